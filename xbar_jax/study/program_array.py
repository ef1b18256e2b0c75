"""An array programmed to targets from a file: progress, a table in the terminal, and a folder with state and pictures."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from xbar_jax import programming
from xbar_jax.circuits.wires import Wires
from xbar_jax.devices.faults import Faulty, Stuck
from xbar_jax.devices.measured import read_table
from xbar_jax.study import named_device
from xbar_jax.study.files import write

KEYS = {"conductance": ("G", "g", "conductance", "target"), "resistance": ("R", "r", "resistance")}
CONTROLS = {
    "width": programming.AdaptiveWidth,
    "amplitude": programming.AdaptiveAmplitude,
    "ispp": programming.ISPP,
}


@dataclass(frozen=True)
class Settings:
    """What ``xbar-jax program`` is asked."""

    device: str = "VTEAM"
    """Name of the device: VTEAM, Yakopcic, ..."""
    set: tuple[str, ...] = ()
    """Numbers and choices of the device, name=value."""
    what: Literal["conductance", "resistance"] | None = None
    """What the file holds, S or ohm. Default: conductance; in a .npz by the name of the array."""
    random: tuple[int, int] | None = None
    """Random targets of so many rows and columns, instead of a file."""
    within: tuple[float, float] = (0.2, 0.8)
    """Part of the range of the device in which random targets lie."""
    method: Literal["passive", "verify"] = "passive"
    """Through the wires of a passive array, or each cell on its own as behind a transistor."""
    scheme: Literal["half", "third", "floating"] = "half"
    """What half-selected lines are given."""
    schedule: Literal["cell", "row", "column"] = "cell"
    """One cell after another, or lines at once."""
    verify: Literal["cell", "row"] = "cell"
    """Whether the targets are those of the cells, or of what is read through the wires."""
    control: Literal["width", "amplitude", "ispp"] = "width"
    """What changes from pulse to pulse."""
    control_set: tuple[str, ...] = ()
    """Numbers of that schedule, name=value, such as v_up=0.9."""
    r_word: float = 1.0
    """Word-line resistance, ohm a segment."""
    r_bit: float = 1.0
    """Bit-line resistance, ohm a segment."""
    r_left: float | None = None
    """Left terminal of each word line, ohm in total. Default: one segment."""
    r_bottom: float | None = None
    """Bottom terminal of each bit line, ohm in total. Default: one segment."""
    tolerance: float = 0.01
    """Relative error to reach."""
    max_pulses: int = 100
    """Pulses of a cell, in a pass."""
    max_passes: int = 20
    """Passes over the array."""
    stuck_on: float = 0.0
    """Probability of cells stuck at the largest conductance."""
    stuck_off: float = 0.0
    """Probability of cells stuck at the least."""
    stuck_open: float = 0.0
    """Probability of open cells."""
    levels: int | None = None
    """Conductances that a cell can have. Default: any."""
    seed: int = 0
    """Of everything that is drawn."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision."""


@dataclass
class _Run:
    """Where programming is after some passes; all arrays are plain."""

    state: Any
    pulses: np.ndarray
    disturb: np.ndarray
    energy: np.ndarray
    energy_wires: float
    steps: int
    outside: list[int]
    error: np.ndarray
    converged: np.ndarray
    seconds: float
    done: bool


def run_program(
    file: Path | None,
    settings: Settings,
    out: Path | None = None,
    *,
    resume: bool = False,
    console: Console | None = None,
) -> bool:
    """Programs the array in ``file``, prints a table and writes ``out``.

    ``out`` gets state.npz (every part of the state, targets, conductances, errors, pulses; written after every pass),
    settings.json, report.txt and, with matplotlib, programmed.png and convergence.png.

    Args:
      file: targets [rows, cols], .csv, .npy or .npz; None with ``settings.random``.
      settings: what is asked.
      out: folder; made if absent. None only prints.
      resume: go on from the last pass that ``out`` holds for the same settings and targets.

    Returns:
      Whether every cell is within its tolerance.

    Raises:
      ValueError: a file, a name or a number that makes no sense.
    """
    with jax.enable_x64(settings.dtype == "float64"):
        return _run(file, settings, out, resume, console or Console())


def _run(file, settings: Settings, out: Path | None, resume: bool, console: Console) -> bool:
    _check(settings)
    dev = _device(settings)
    target = _targets(file, settings, dev)
    rows, cols = target.shape
    control = named_device.configured("program", "--control-set", CONTROLS[settings.control](), settings.control_set)
    wires = Wires(r_word=settings.r_word, r_bit=settings.r_bit, r_left=settings.r_left, r_bottom=settings.r_bottom)
    if resume and out is None:
        raise ValueError("program: --resume needs --out, the folder to go on from")
    if out is not None:
        named_device.folder("program", out)
    key = jax.random.key(settings.seed)
    state = dev.init((rows, cols), key=key, dtype=jnp.dtype(settings.dtype))
    run = _begin(dev, state, target, settings)
    if resume and out is not None:
        run = _resumed(out, run, settings, target)
    elif out is not None:
        write(out / "settings.json", json.dumps(_plain(settings), indent=1) + "\n")

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[done]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("compiling", total=target.size, done="")
        while not run.done:
            n = len(run.outside)
            run = _pass(dev, run, target, wires, control, settings, jax.random.fold_in(key, n))
            inside = target.size - run.outside[-1]
            progress.update(task, completed=inside, description=f"pass {n}", done=f"{inside} of {target.size} cells")
            if out is not None:
                _save(out / "state.npz", run, target, dev)

    table = _table(run, target, dev, settings, file)
    console.print(table)
    if out is not None:
        with (out / "report.txt").open("w") as f:
            Console(file=f, width=120).print(table)
        names = ["state.npz", "settings.json", "report.txt", *_pictures(out, run, target, dev, settings)]
        console.print(f"written: {', '.join(str(out / n) for n in names)}", highlight=False, soft_wrap=True)
    return bool(run.converged.all())


def _check(settings: Settings) -> None:
    for name in ("tolerance", "max_pulses", "max_passes"):
        if not getattr(settings, name) > 0:
            raise ValueError(f"program: --{name.replace('_', '-')} must be > 0, got {getattr(settings, name)}")
    low, high = settings.within
    if not 0 <= low < high <= 1:
        raise ValueError(f"program: --within must be two shares of the range, 0 <= low < high <= 1, got {low} {high}")
    if settings.random is not None and min(settings.random) < 1:
        raise ValueError(f"program: --random must be two numbers >= 1, got {settings.random}")


def _device(settings: Settings) -> Any:
    dev = named_device.device("program", settings.device, settings.set)
    faults = (settings.stuck_on, settings.stuck_off, settings.stuck_open)
    if not any(faults) and settings.levels is None:
        return dev
    stuck = Stuck(on=faults[0], off=faults[1], open=faults[2]) if any(faults) else None
    return Faulty(device=dev, stuck=stuck, levels=settings.levels)


def _targets(file: Path | None, settings: Settings, dev: Any) -> np.ndarray:
    if (file is None) == (settings.random is None):
        raise ValueError("program: either a file of targets or --random ROWS COLS must be given")
    if file is None:
        low, high = (float(g) for g in dev.conductance_range())
        a, b = settings.within
        assert settings.random is not None
        share = np.random.default_rng(settings.seed).uniform(a, b, settings.random)
        return low + (high - low) * share
    stored = _load(file)
    pairs = [(kind, k) for kind, keys in KEYS.items() for k in keys if k in stored and settings.what in (None, kind)]
    if "" in stored:
        pairs = [(settings.what or "conductance", "")]
    if len(pairs) != 1:
        wanted = ", ".join(KEYS[settings.what] if settings.what else sum(KEYS.values(), ()))
        raise ValueError(f"program: {file} must hold one of {wanted}, got {', '.join(stored) or 'nothing'}")
    ((kind, key),) = pairs
    x = stored[key]
    if not np.issubdtype(x.dtype, np.number) or np.iscomplexobj(x) or x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"program: {file} must hold real numbers [rows, cols], got {x.dtype} {list(x.shape)}")
    x = x.astype(float)
    bad = ~(np.isfinite(x) & (x > 0))
    if bad.any():
        at = np.argwhere(bad)[0]
        unit = "S" if kind == "conductance" else "ohm"
        raise ValueError(f"program: {file}: {kind} must be finite and > 0 {unit}, got {x[tuple(at)]} at {at.tolist()}")
    if kind == "conductance" and settings.what is None and x.min() >= 1.0:
        raise ValueError(
            f"program: {file}: conductances of {x.min():.3g} S and more; --what resistance if these are ohm"
        )
    return x if kind == "conductance" else 1 / x


def _load(file: Path) -> dict[str, np.ndarray]:
    kind = file.suffix.lower()
    if kind not in (".npy", ".npz"):
        return {"": read_table(file, "program")}
    if not file.is_file():
        raise ValueError(f"program: {file} does not exist")
    try:
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {"": found}
        with found:
            return {k: found[k] for k in found.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        raise ValueError(f"program: {file} is not a readable {kind} file of plain numbers") from None


def _begin(dev, state, target, settings: Settings) -> _Run:
    error = np.asarray(dev.conductance(state), float) / target - 1
    zero = np.zeros(target.shape)
    outside = int((np.abs(error) > settings.tolerance).sum())
    return _Run(state, zero.astype(int), zero, zero, 0.0, 0, [outside], error, np.zeros(target.shape, bool), 0.0, False)


def _pass(dev, run: _Run, target, wires, control, settings: Settings, key) -> _Run:
    """One pass over a passive array; or the whole of write and verify."""
    started = time.perf_counter()
    shared: dict[str, Any] = dict(
        key=key, control=control, tolerance=settings.tolerance, max_pulses=settings.max_pulses
    )
    if settings.method == "verify":
        done = programming.write_verify(dev, run.state, target, **shared)
    else:
        ways: dict[str, Any] = dict(
            scheme=settings.scheme, schedule=settings.schedule, verify=settings.verify, max_passes=1
        )
        done = programming.program_passive(dev, run.state, target, wires, **ways, **shared)
    fired = np.asarray(done.pulses)
    converged = np.asarray(done.converged)
    passes = len(run.outside)
    return _Run(
        state=done.state,
        pulses=run.pulses + fired,
        disturb=np.maximum(run.disturb, np.asarray(done.disturb, float)),
        energy=run.energy + np.asarray(done.energy, float),
        energy_wires=run.energy_wires + float(done.energy_wires),
        steps=run.steps + int(done.steps),
        outside=[*run.outside, int((~converged).sum())],
        error=np.asarray(done.error, float),
        converged=converged,
        seconds=run.seconds + time.perf_counter() - started,
        done=settings.method == "verify" or bool(converged.all()) or fired.sum() == 0 or passes >= settings.max_passes,
    )


def _plain(settings: Settings) -> dict[str, Any]:
    return json.loads(json.dumps(dataclasses.asdict(settings)))


def _parts(state: Any) -> dict[str, Any]:
    """The leaves of a state by their place in it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {"state" + jax.tree_util.keystr(path): x for path, x in leaves}


def _save(file: Path, run: _Run, target, dev) -> None:
    kept: dict[str, Any] = {f.name: getattr(run, f.name) for f in dataclasses.fields(run) if f.name != "state"}
    kept |= {name: np.asarray(x) for name, x in _parts(run.state).items()}
    kept |= {"target": target, "conductance": np.asarray(dev.conductance(run.state), float)}
    part = file.with_suffix(".part.npz")
    np.savez_compressed(part, **kept)
    part.replace(file)


def _resumed(out: Path, fresh: _Run, settings: Settings, target) -> _Run:
    """The run that ``out`` holds; as many passes as are asked may be more than before."""
    state_file, settings_file = out / "state.npz", out / "settings.json"
    if not (state_file.exists() and settings_file.exists()):
        raise ValueError(f"program: --resume must find a run in {out}, there is none")
    ours, theirs = _plain(settings), json.loads(settings_file.read_text())
    differ = [k for k in ours if k != "max_passes" and ours[k] != theirs.get(k)]
    if differ:
        raise ValueError(f"program: --resume must find the same settings in {out}, differs: {', '.join(differ)}")
    with np.load(state_file) as z:
        stored = dict(z)
    if not np.array_equal(stored["target"], target):
        raise ValueError(f"program: --resume must find the same targets in {out}, got others")
    leaves, structure = jax.tree.flatten(fresh.state)
    restored = [jnp.asarray(stored[name], x.dtype) for name, x in zip(_parts(fresh.state), leaves, strict=True)]
    outside = stored["outside"].tolist()
    converged = stored["converged"]
    return _Run(
        state=jax.tree.unflatten(structure, restored),
        pulses=stored["pulses"],
        disturb=stored["disturb"],
        energy=stored["energy"],
        energy_wires=float(stored["energy_wires"]),
        steps=int(stored["steps"]),
        outside=outside,
        error=stored["error"],
        converged=converged,
        seconds=float(stored["seconds"]),
        done=bool(converged.all()) or len(outside) > settings.max_passes,
    )


def _table(run: _Run, target, dev, settings: Settings, file: Path | None) -> Table:
    rows, cols = target.shape
    what = "random targets" if file is None else file.name
    table = Table(title=f"{what}: {rows} word lines, {cols} bit lines of {settings.device}", box=box.SIMPLE_HEAD)
    table.add_column("quantity")
    table.add_column("value", justify="right")
    n = int(run.converged.sum())
    table.add_row("cells within tolerance", f"{n} of {target.size} ({100 * n / target.size:.2f} %)")
    finite = np.abs(run.error[np.isfinite(run.error)])
    table.add_row("error, mean", f"{100 * finite.mean():.3g} %" if finite.size else "none")
    worst = np.unravel_index(np.argmax(np.where(np.isfinite(run.error), np.abs(run.error), np.inf)), target.shape)
    table.add_row("error, worst", f"{100 * run.error[worst]:.3g} % at [{worst[0]}, {worst[1]}]")
    table.add_row("pulses of a cell, mean and most", f"{run.pulses.mean():.3g}, {run.pulses.max()}")
    if settings.method == "passive":
        table.add_row("disturb by pulses for others, worst", f"{100 * run.disturb.max():.3g} %")
    table.add_row("energy, cells", f"{run.energy.sum():.4g} J")
    if settings.method == "passive":
        table.add_row("energy, wires", f"{run.energy_wires:.4g} J")
        table.add_row("passes", f"{len(run.outside) - 1}")
        table.add_row("nodal solves", f"{run.steps}")
    table.add_row("time", f"{run.seconds:.2f} s, compiling included")
    if isinstance(dev, Faulty) and run.state.kind is not None:
        kinds = np.bincount(np.asarray(run.state.kind).ravel(), minlength=5)
        table.add_row("cells stuck on, off, open", f"{kinds[1]}, {kinds[2]}, {kinds[3]}")
    return table


def _pictures(out: Path, run: _Run, target, dev, settings: Settings) -> list[str]:
    try:
        from xbar_jax import plot
    except ImportError:
        print("xbar-jax: program: no pictures without matplotlib; pip install 'xbar_jax[plot]'", file=sys.stderr)
        return []
    reached = np.asarray(dev.conductance(run.state), float)
    how = f"{settings.scheme} select, {settings.schedule}" if settings.method == "passive" else "each cell on its own"
    title = f"{settings.device}, {how}: {100 * run.converged.mean():.2f} % within {100 * settings.tolerance:g} %"
    errors = {"as read at the end": run.error, "of the cell itself": reached / target - 1}
    figures = {
        "programmed.png": plot.programmed(target, reached, run.error, run.pulses, title=title),
        "convergence.png": plot.convergence(run.outside, errors, run.pulses, settings.tolerance, title=title),
    }
    for name, figure in figures.items():
        plot.save(figure, out / name)
    return list(figures)
