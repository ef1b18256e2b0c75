"""Weights from a file, put on arrays and exported; an export, verified: a folder, and a table in the terminal."""

from __future__ import annotations

import dataclasses
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from xbar_jax import devices
from xbar_jax.hardware import ADC, DAC, Hardware, Tile, mapping, program
from xbar_jax.hardware.export import Report, csv, save, verify
from xbar_jax.study import named_device

BIAS = "_bias"


@dataclass(frozen=True)
class Settings:
    """What ``xbar-jax export`` is asked."""

    transposed: bool = False
    """The file holds [outputs, inputs], as other frameworks do."""
    rows: int = 256
    """Rows of an array, at most."""
    cols: int = 256
    """Columns of an array, at most."""
    g_min: float = 1e-6
    """Smallest conductance, S."""
    g_max: float = 25e-6
    """Largest conductance, S."""
    per: Literal["column", "tile"] = "column"
    """What has a scale of its own: each column of an array, or each array."""
    dac_bits: float | None = 8
    """Of the converters at the rows; None is ideal."""
    adc_bits: float | None = 8
    """Of the converters at the columns; None is ideal."""
    adc_full_scale: float | None = None
    """Largest current that is converted, A. Default: that of twelve full cells."""
    v_read: float = 0.2
    """Largest read voltage, V."""
    input_range: float = 1.0
    """Largest |x| that is converted."""
    device: str | None = None
    """Name of a programmed device: Gaussian, PCM, ... Default: cells that hold their targets exactly."""
    set: tuple[str, ...] = ()
    """Numbers and choices of the device, name=value."""
    seed: int = 0
    """Of everything that is drawn."""
    csv: bool = False
    """Write the targets of every array as .csv, too, into the folder csv/."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision."""


def run_export(file: Path, settings: Settings, out: Path, *, console: Console | None = None) -> bool:
    """Programs every matrix of ``file`` onto arrays, writes them as an export to ``out`` and verifies it.

    Args:
      file: .npz, .npy or .csv with weights [inputs, outputs]. In a .npz every matrix is a layer by its name, and a vector
        ``<name>_bias`` (or ``bias`` beside one matrix) is its bias.
      settings: what is asked.
      out: folder; made if absent.

    Returns:
      Whether the export verifies.

    Raises:
      ValueError: a file, a name or a number that makes no sense.
    """
    console = console or Console()
    with jax.enable_x64(settings.dtype == "float64"):
        hw = _hardware(settings)
        layers = _layers(file, settings)
        named_device.folder("export", out)
        tiles, matrices = {}, {}
        for name, (w, bias) in layers.items():
            own = jax.random.fold_in(jax.random.key(settings.seed), zlib.crc32(name.encode()))
            tiles[name] = _program(name, w, hw, own if hw.draws else None, bias)
            matrices[name] = w
        save(tiles, out, matrix=matrices, seed=settings.seed)
        written = csv(tiles, out / "csv") if settings.csv else []
    report = verify(out)
    console.print(_table(report, f"{file.name} on arrays of {settings.rows} x {settings.cols}"))
    also = f", and {len(written)} tables in {out / 'csv'}" if written else ""
    console.print(f"written: {out / 'export.json'}, {out / 'arrays.npz'}{also}", highlight=False, soft_wrap=True)
    return report.ok


def run_verify(path: Path, *, console: Console | None = None) -> bool:
    """Verifies an export and prints what was found.

    Args:
      path: its folder.

    Returns:
      Whether all holds.

    Raises:
      ValueError: there is no such folder.
    """
    console = console or Console()
    if not path.is_dir():
        raise ValueError(f"verify: path must be the folder of an export, got {path}")
    try:
        report = verify(path)
    except ValueError as e:
        console.print(f"failed: {e}", highlight=False, markup=False, soft_wrap=True)
        return False
    console.print(_table(report, str(path)))
    return report.ok


def _table(report: Report, title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("layer")
    for heading in ("size", "arrays", "wrong", "error", "expected", "clipped", "load"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("found")
    for layer in report.layers:
        codes = [n for n in (layer.dac_wrong, layer.adc_wrong) if n is not None]
        table.add_row(
            layer.name,
            f"{layer.inputs}x{layer.outputs}",
            str(layer.arrays),
            str(sum(codes)) if codes else "none",
            f"{100 * layer.digital_error:.2g} %",
            f"{100 * layer.quantisation:.2g} %",
            f"{100 * layer.saturated:.2g} %",
            "exact" if layer.exact else "near",
            "; ".join(layer.failures) or "holds",
        )
    table.caption = "wrong: codes; error: golden outputs from the digital layer, relative l2; expected: of the steps"
    return table


def _hardware(settings: Settings) -> Hardware:
    device = None
    if settings.device is not None:
        known = {n.lower(): n for n in _programmed()}
        if settings.device.lower() not in known:
            raise ValueError(
                f"export: --device must be one of {', '.join(sorted(known.values()))}, got {settings.device!r}"
            )
        start = getattr(devices, known[settings.device.lower()])()
        device = named_device.configured("export", "--set", start, settings.set)
    elif settings.set:
        raise ValueError("export: --set must come with --device, whose numbers it gives")
    return Hardware(
        rows=settings.rows,
        cols=settings.cols,
        device=device,
        dac=DAC(bits=settings.dac_bits, input_range=settings.input_range),
        adc=ADC(bits=settings.adc_bits, full_scale=settings.adc_full_scale),
        mapping=mapping.Differential(g_min=settings.g_min, g_max=settings.g_max, per=settings.per),
        v_read=settings.v_read,
    )


def _programmed() -> list[str]:
    """Programmed devices that can be made of numbers."""
    found = []
    for name in sorted(set(devices.__all__) - {"ProgrammedDevice"}):
        kind: Any = getattr(devices, name)
        if dataclasses.is_dataclass(kind) and all(hasattr(kind, f) for f in ("program", "read", "numbers")):
            fields = dataclasses.fields(kind)
            missing = dataclasses.MISSING
            if all(f.default is not missing or f.default_factory is not missing for f in fields if f.init):
                found.append(name)
    return found


def _program(name: str, w: np.ndarray, hw: Hardware, key: Any, bias: np.ndarray | None) -> Tile:
    try:
        return program(jnp.asarray(w), hw, key=key, bias=bias)
    except ValueError as e:
        raise ValueError(f"export: layer {name}: {e}") from e


def _layers(file: Path, settings: Settings) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    stored = _load(file)
    for name, x in stored.items():
        if not (np.issubdtype(x.dtype, np.floating) or np.issubdtype(x.dtype, np.integer)):
            raise ValueError(f"export: {file}: {name} must hold real numbers, got {x.dtype}")
    names = [n for n, x in stored.items() if x.ndim == 2]
    if not names:
        raise ValueError(f"export: {file} must hold at least one matrix [inputs, outputs]")
    found = {}
    rest = set(stored) - set(names)
    for name in names:
        own = {f"{name}{BIAS}"} | ({"bias"} if len(names) == 1 else set())
        bias = next((stored[n] for n in sorted(own & rest)), None)
        rest -= own
        w = stored[name].T if settings.transposed else stored[name]
        found[name] = (w.astype(settings.dtype), None if bias is None else bias.astype(settings.dtype))
    if rest:
        raise ValueError(
            f"export: {file}: {min(rest)} must be a matrix, or a bias named as its matrix and {BIAS!r}, "
            f"got shape {list(stored[min(rest)].shape)}"
        )
    return found


def _load(file: Path) -> Mapping[str, np.ndarray]:
    kind = file.suffix.lower()
    if kind not in (".csv", ".txt", ".npy", ".npz"):
        raise ValueError(f"export: {file} must end in .csv, .txt, .npy or .npz")
    try:
        if kind in (".csv", ".txt"):
            return {file.stem: np.loadtxt(file, delimiter=",", ndmin=2)}
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {file.stem: found}
        with found:
            return {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise ValueError(f"export: {file} does not exist") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as e:
        raise ValueError(f"export: {file} is not a readable {kind} file of plain numbers: {e}") from e
