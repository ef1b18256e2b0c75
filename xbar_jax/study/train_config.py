"""The configuration of a training: a YAML file, checked key by key, and what it describes."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml  # type: ignore[import-untyped]

from xbar_jax import devices
from xbar_jax.circuits import Wires
from xbar_jax.hardware import ADC, DAC, Hardware, mapping
from xbar_jax.nn import noise

EXAMPLE = """\
# xbar-jax train --config examples/train.yaml --out runs/train
# `xbar-jax train --example` prints this file.
data: digits          # digits (scikit-learn, 8x8) or mnist (28x28; folder: with the four IDX files)
hidden: [128]         # units of each hidden layer
mode: hwa             # digital or hwa (hardware-aware)
epochs: 30
batch: 64
seed: 0
patience: null        # stop after so many epochs without a lower training loss
save_every: 1         # epochs between checkpoints; an interrupt saves after the step it falls in
smoothing: 0.1        # of labels
optimizer: {name: adamw, rate: 5e-3, decay: 0.1, schedule: cosine}

# What a forward pass of training sees (mode hwa): xb.nn.noise.* by name with its numbers, or a list of them.
modifier:
  - {name: Additive, std: 0.1}
  - {name: DropConnect, p: 0.01}
clip: 2.5             # kernels stay within so many standard deviations after every step; null: free
through_hardware: false   # true: training runs through converters, wires and cells below as well

# Where the network is tested after every epoch; null: as a digital network.
hardware:
  rows: 512
  cols: 512
  device: PCM         # xb.devices.*, or null for cells that hold their targets
  device_set: {program_scale: 1.0, read_scale: 1.0}
  dac_bits: 8
  adc_bits: 8
  g_min: 0.0          # S
  g_max: 25e-6        # S
"""


@dataclass(frozen=True)
class Optimizer:
    """Of the parameters that are trained digitally."""

    name: Literal["adamw", "adam", "sgd"] = "adamw"
    rate: float = 5e-3
    """Learning rate at the start."""
    decay: float = 0.1
    """Weight decay of kernels (adamw)."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Cosine goes to 0 over all epochs."""


@dataclass(frozen=True)
class Arrays:
    """The hardware that a network is tested on, and trained through if asked."""

    rows: int = 512
    cols: int = 512
    device: str | None = None
    """Name of a programmed device; null holds every target."""
    device_set: dict = dataclasses.field(default_factory=dict)
    """Its numbers."""
    dac_bits: float | None = None
    adc_bits: float | None = None
    """Resolution of converters; null is ideal."""
    g_min: float = 0.0
    """S."""
    g_max: float = 25e-6
    """S."""
    per: Literal["column", "tile"] = "column"
    """What has a scale of its own."""
    r_wire: float | None = None
    """Ohm a segment, word and bit lines alike; null is no wires."""


@dataclass(frozen=True)
class Settings:
    """What ``xbar-jax train`` is asked."""

    data: Literal["digits", "mnist"] = "digits"
    folder: Path | None = None
    """With the four IDX files of MNIST."""
    hidden: tuple[int, ...] = (128,)
    mode: Literal["digital", "hwa"] = "hwa"
    epochs: int = 30
    batch: int = 64
    seed: int = 0
    patience: int | None = None
    save_every: int = 1
    smoothing: float = 0.1
    optimizer: Optimizer = Optimizer()
    modifier: list | dict | None = None
    clip: float | None = None
    through_hardware: bool = False
    hardware: Arrays | None = None


def load(file: Path) -> Settings:
    """Settings of a YAML file.

    Raises:
      ValueError: no such file, no YAML, or a key or value that makes no sense, by its name.
    """
    try:
        found = yaml.safe_load(file.read_text())
    except OSError as e:
        raise ValueError(f"train: --config must be a file that can be read, got {file}: {e.strerror}") from None
    except yaml.YAMLError as e:
        raise ValueError(f"train: --config must be YAML, got {file}: {' '.join(str(e).split())}") from None
    settings = _record(Settings, {} if found is None else found, "")
    _check(settings)
    return settings


def plain(settings: Settings) -> dict[str, Any]:
    """Settings as they stand in a file."""
    return _plain(dataclasses.asdict(settings))


def _plain(x: Any) -> Any:
    if isinstance(x, Mapping):
        return {k: _plain(v) for k, v in x.items()}
    return [_plain(v) for v in x] if isinstance(x, (list, tuple)) else str(x) if isinstance(x, Path) else x


def _error(key: str, want: str, got: Any) -> ValueError:
    return ValueError(f"train: {key} must be {want}, got {got!r}")


def _record(kind: type, found: Any, where: str) -> Any:
    """A dataclass from a mapping of its fields."""
    if not isinstance(found, Mapping):
        raise _error(where or "the configuration", "keys with values", found)
    hints = typing.get_type_hints(kind)
    for key in found:
        if key not in hints:
            near = difflib.get_close_matches(str(key), hints, 1)
            raise _error(
                f"{where}{'.' if where else ''}{key}",
                f"one of the keys {', '.join(hints)}" + (f" (perhaps {near[0]})" if near else ""),
                found[key],
            )
    return kind(**{k: _value(hints[k], v, f"{where}{'.' if where else ''}{k}") for k, v in found.items()})


def _value(hint: Any, x: Any, where: str) -> Any:
    """``x`` as a field of type ``hint``."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        kinds = typing.get_args(hint)
        if x is None and type(None) in kinds:
            return None
        kinds = tuple(k for k in kinds if k is not type(None))
        if len(kinds) == 1:
            return _value(kinds[0], x, where)
        if not isinstance(x, kinds):
            raise _error(where, " or ".join(_WORDS[k] for k in kinds), x)
        return x
    if typing.get_origin(hint) is Literal:
        if x not in typing.get_args(hint):
            raise _error(where, f"one of {', '.join(map(str, typing.get_args(hint)))}", x)
        return x
    if typing.get_origin(hint) is tuple:
        if not isinstance(x, list):
            raise _error(where, "a list of whole numbers", x)
        return tuple(_value(typing.get_args(hint)[0], v, f"{where}[{k}]") for k, v in enumerate(x))
    if dataclasses.is_dataclass(hint):
        return _record(typing.cast(type, hint), x, where)
    if hint is float:
        return number(x, where)
    if hint is Path:
        return Path(_value(str, x, where))
    if not isinstance(x, hint) or (hint is int and isinstance(x, bool)):
        raise _error(where, _WORDS[hint], x)
    return x


_WORDS = {int: "a whole number", bool: "true or false", str: "text", dict: "keys with values", list: "a list"}


def number(x: Any, where: str) -> float:
    """A number; YAML takes 5e-3 for text."""
    try:
        if isinstance(x, bool) or not isinstance(x, (int, float, str)):
            raise ValueError
        return float(x)
    except ValueError:
        raise _error(where, "a number", x) from None


def _check(s: Settings) -> None:
    for key, value in (
        ("epochs", s.epochs),
        ("batch", s.batch),
        ("save_every", s.save_every),
        ("patience", s.patience),
    ):
        if value is not None and value < 1:
            raise _error(key, ">= 1", value)
    if s.seed < 0:
        raise _error("seed", ">= 0", s.seed)
    if any(n < 1 for n in s.hidden):
        raise _error("hidden", "a list of numbers >= 1", list(s.hidden))
    if not 0 <= s.smoothing < 1:
        raise _error("smoothing", "from 0 to below 1", s.smoothing)
    if not 0 < s.optimizer.rate < math.inf:
        raise _error("optimizer.rate", "> 0 and finite", s.optimizer.rate)
    if s.clip is not None and not s.clip > 0:
        raise _error("clip", "> 0 or null", s.clip)
    if s.mode == "hwa" and s.modifier is None and not s.through_hardware:
        raise _error("modifier", "given in mode hwa, unless through_hardware is true", None)
    if s.mode != "hwa" and (s.modifier is not None or s.through_hardware):
        raise _error("mode", "hwa where a modifier or through_hardware is given", s.mode)
    if s.through_hardware and s.hardware is None:
        raise _error("hardware", "given where through_hardware is true", None)
    hardware(s)
    modifier(s)


def named(key: str, known: Mapping[str, Any], name: Any, numbers: Mapping[str, Any], **given: Any) -> Any:
    """The description ``name`` with numbers set, from the mapping of all that there are."""
    if name not in known:
        raise _error(key, f"one of {', '.join(known)}", name)
    kind = known[name]
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for field in numbers:
        if field not in fields:
            raise _error(f"{key} {name}: {field}", f"one of {', '.join(fields)}", numbers[field])
    value = lambda field, x: (
        x if x is None or fields[field].type in ("str", str) else number(x, f"{key} {name}: {field}")
    )
    return kind(**given, **{f: value(f, x) for f, x in numbers.items()})


_BASES = {"ProgrammedDevice", "StepDevice", "DynamicDevice"}


def classes(room: Any, *attributes: str) -> dict[str, type]:
    """The public descriptions of a room that have some attributes."""
    found = {n: k for n, k in vars(room).items() if inspect.isclass(k) and dataclasses.is_dataclass(k)}
    able = lambda name, kind: name not in _BASES and all(hasattr(kind, a) for a in attributes)
    return {n: kind for n, kind in sorted(found.items()) if not n.startswith("_") and able(n, kind)}


def hardware(s: Settings) -> Hardware | None:
    """The hardware that the settings describe."""
    if s.hardware is None:
        return None
    h, device = s.hardware, None
    if h.device is not None:
        device = named("hardware.device", classes(devices, "program", "read", "drift"), h.device, h.device_set)
    elif h.device_set:
        raise _error("hardware.device", "given where device_set is", None)
    hw = Hardware(
        rows=h.rows,
        cols=h.cols,
        device=device,
        wires=None if h.r_wire is None else Wires(r_word=h.r_wire, r_bit=h.r_wire),
        dac=None if h.dac_bits is None else DAC(bits=h.dac_bits),
        adc=None if h.adc_bits is None else ADC(bits=h.adc_bits, full_scale=1e-3),
        mapping=mapping.Differential(g_min=h.g_min, g_max=h.g_max, per=h.per),
    )
    hw.check("train")
    return hw


def modifier(s: Settings) -> noise.Modifier | None:
    """The modifier that the settings describe."""
    if s.modifier is None:
        return None
    known = {n: k for n, k in classes(noise, "__call__").items() if n not in ("Compose", "OutputNoise")}
    found = []
    for k, one in enumerate(s.modifier if isinstance(s.modifier, list) else [s.modifier]):
        key = f"modifier[{k}]" if isinstance(s.modifier, list) else "modifier"
        if not isinstance(one, Mapping) or "name" not in one:
            raise _error(key, f"keys with values, name among them ({', '.join(known)})", one)
        given: dict[str, Any] = {}
        if one["name"] == "Device":
            if s.hardware is None or s.hardware.device is None:
                raise _error("hardware.device", "given where a modifier is Device", None)
            given = {"hardware": hardware(s)}
        found.append(named(key, known, one["name"], {f: x for f, x in one.items() if f != "name"}, **given))
    return found[0] if len(found) == 1 else noise.Compose(parts=tuple(found))
