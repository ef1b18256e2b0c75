"""Measured data from a file, fitted by a device: a table in the terminal, and a folder with numbers and a picture."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from xbar_jax.devices.fitting import Fit, fit
from xbar_jax.devices.measured import IVCurve, PulseRamps, load_iv, load_ramps, read_table
from xbar_jax.study import named_device


@dataclass(frozen=True)
class Settings:
    """What ``xbar-jax fit`` is asked."""

    device: str = "VTEAM"
    """Name of the device: VTEAM, Yakopcic, ..."""
    parameters: str = ""
    """Parameters to fit, separated by commas; with bounds as name:low:high."""
    set: tuple[str, ...] = ()
    """Numbers and choices of the device, name=value, where the fit begins and what it leaves."""
    kind: Literal["auto", "ramps", "iv"] = "auto"
    """What the file holds: a column for each ramp of pulses, or V and A. Default: two columns are V and A."""
    v: float = math.nan
    """Voltage of the pulses, V."""
    width: float = math.nan
    """Width of a pulse, s."""
    v_read: float = 0.1
    """Voltage at which the currents of a ramp were read, V."""
    dwell: float = 0.0
    """Time from one reading of an I-V curve to the next, s; 0: the state does not move."""
    start: Literal["first", "common"] = "first"
    """Where ramps start: each at its first reading, or all at one conductance that is fitted."""
    held_out: float = 0.25
    """Share of the ramps, or readings, that are only predicted."""
    steps: int = 300
    """Steps of Adam, at most."""
    learning_rate: float = 0.02
    """Of Adam, at its start."""
    refine: int = 60
    """Steps of L-BFGS after that."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of the fit."""


def run_fit(file: Path, settings: Settings, out: Path | None = None, *, console: Console | None = None) -> Fit:
    """Fits a device to the currents in ``file``, prints a table and writes ``out``.

    ``out`` gets fit.json (parameters, errors), predictions.csv (in the layout of the file), report.txt and, with
    matplotlib, fit.png.

    Args:
      file: ramps, a column each, or two columns V and A; a header is allowed.
      settings: what is asked.
      out: folder; made if absent. None only prints.

    Raises:
      ValueError: a file, a name or a number that makes no sense.
    """
    console = console or Console()
    dev = named_device.device("fit", settings.device, settings.set)
    parameters = _parameters(settings.parameters)
    data = _data(file, settings)
    if out is not None:
        named_device.folder("fit", out)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
    with jax.enable_x64(settings.dtype == "float64"), Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("compiling", total=settings.steps + settings.refine)

        def tick(n: int, loss: float) -> None:
            progress.update(task, completed=n + 1, description=f"error {100 * math.sqrt(loss):.3f} %")

        found = fit(
            dev,
            data,
            parameters,
            start=settings.start,
            held_out=settings.held_out,
            steps=settings.steps,
            learning_rate=settings.learning_rate,
            refine=settings.refine,
            on_step=tick,
        )
    table = _table(dev, data, found, settings)
    console.print(table)
    if out is not None:
        _write(out, data, found, settings, table, console)
    return found


def _parameters(text: str) -> dict[str, tuple[float, float] | None]:
    found: dict[str, tuple[float, float] | None] = {}
    for entry in filter(None, (e.strip() for e in text.split(","))):
        name, *limits = entry.split(":")
        try:
            low_high = [float(x) for x in limits]
        except ValueError:
            low_high = [math.nan]
        if len(low_high) not in (0, 2) or not all(map(math.isfinite, low_high)):
            raise ValueError(f"fit: --parameters must be names, or name:low:high, separated by commas, got {entry!r}")
        found[name] = (low_high[0], low_high[1]) if low_high else None
    if not found:
        raise ValueError("fit: --parameters must name at least one parameter of the device")
    return found


def _data(file: Path, settings: Settings) -> PulseRamps | IVCurve:
    kind = settings.kind
    if kind == "auto":
        kind = "iv" if read_table(file, "fit").shape[1] == 2 else "ramps"
    if kind == "iv":
        if not settings.dwell >= 0:
            raise ValueError(f"fit: --dwell must be >= 0 s, got {settings.dwell}")
        return load_iv(file, dwell=settings.dwell)
    if not (math.isfinite(settings.v) and settings.v != 0):
        raise ValueError("fit: --v must be given, the voltage of the pulses")
    for name in ("width", "v_read"):
        if not getattr(settings, name) > 0:
            raise ValueError(f"fit: --{name.replace('_', '-')} must be given and > 0, got {getattr(settings, name)}")
    return load_ramps(file, v=settings.v, width=settings.width, v_read=settings.v_read)


def _table(dev: Any, data: Any, found: Fit, settings: Settings) -> Table:
    shape = np.shape(data.i)
    size = f"{shape[0]} readings" if len(shape) == 1 else f"{shape[0]} ramps of {shape[1]} readings"
    table = Table(title=f"{data.name}: {size}, fitted by {type(dev).__name__}", box=box.SIMPLE_HEAD)
    table.add_column("quantity")
    table.add_column("before", justify="right")
    table.add_column("fitted", justify="right")
    for name, value in found.values.items():
        if name == "start":
            table.add_row("start, S", f"{data.g_start:.6g}", f"{value[0]:.6g}")
        else:
            table.add_row(name, f"{float(getattr(dev, name)):.6g}", f"{value:.6g}")
    table.add_section()
    table.add_row("error, fitted", "", f"{100 * found.error:.3f} %")
    table.add_row("error, held out", "", f"{100 * found.held_out_error:.3f} %")
    if found.plain_error is not None:
        table.add_row("  of the mean ramp, no model", "", f"{100 * found.plain_error:.3f} %")
    table.add_row("steps", "", f"{len(found.losses)} ({found.stopped})")
    table.caption = "errors: root mean square, relative to that of the currents"
    return table


def _write(out: Path, data: Any, found: Fit, settings: Settings, table: Table, console: Console) -> None:
    numbers = {
        "device": type(found.dev).__name__,
        "set": list(settings.set),
        "values": found.values,
        "error": found.error,
        "held_out_error": found.held_out_error,
        "plain_error": found.plain_error,
        "held_out": np.flatnonzero(found.held_out[0]).tolist(),
        "stopped": found.stopped,
        "losses": found.losses.tolist(),
    }
    (out / "fit.json").write_text(json.dumps(numbers, indent=1) + "\n")
    (model,) = found.predictions
    lines = np.stack([np.asarray(data.v, float), model], 1) if model.ndim == 1 else model.T
    np.savetxt(out / "predictions.csv", lines, delimiter=",", fmt="%.9g")
    with (out / "report.txt").open("w") as f:
        Console(file=f, width=120).print(table)
    written = ["fit.json", "predictions.csv", "report.txt"]
    try:
        from xbar_jax import plot
    except ImportError:
        print("xbar-jax: fit: no picture without matplotlib; pip install 'xbar_jax[plot]'", file=sys.stderr)
    else:
        title = f"{settings.device}: held out {100 * found.held_out_error:.2f} %"
        plot.save(plot.fitted([data], found, title=title), out / "fit.png")
        written.append("fit.png")
    console.print(f"written: {', '.join(str(out / name) for name in written)}", highlight=False, soft_wrap=True)
