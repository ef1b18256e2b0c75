"""An array from a file, solved: a table in the terminal, and a folder with currents, fields and pictures."""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from xbar_jax.circuits.readout import IRDrop, Losses, ir_drop, losses
from xbar_jax.circuits.solve import Solution, solve
from xbar_jax.circuits.wires import Wires

What = Literal["resistance", "conductance"]
SIDES = ("left", "right", "top", "bottom")
KEYS: dict[What, tuple[str, ...]] = {"resistance": ("R", "r", "resistance"), "conductance": ("G", "g", "conductance")}
DRIVES = ("left", "V", "v")
LINES_SHOWN = 20


@dataclass(frozen=True)
class Settings:
    """What ``xbar-jax solve`` is asked."""

    what: What | None = None
    """What the file holds, ohm or S. Default: resistance; in a .npz by the name of the array."""
    left: str | None = None
    """Voltage of all word lines, V, or a file with one for each row, [rows], or several vectors, [vectors, rows]."""
    right: str | None = None
    """The same at the right; needs --r-right. Default: open."""
    top: str | None = None
    """The same for the top of the bit lines; needs --r-top. Default: open."""
    bottom: str = "0"
    """The same for the bottom of the bit lines, where they are sensed; "open" leaves them open."""
    r_word: float = 1.0
    """Word-line resistance, ohm a segment."""
    r_bit: float = 1.0
    """Bit-line resistance, ohm a segment."""
    r_left: float | None = None
    """Left terminal of each word line, ohm in total. Default: one segment."""
    r_right: float = math.inf
    """Right terminal, ohm."""
    r_top: float = math.inf
    """Top terminal of each bit line, ohm."""
    r_bottom: float | None = None
    """Bottom terminal, ohm in total. Default: one segment."""
    sinh_k: float | None = None
    """Cells of i = g sinh(k v) / k instead of linear ones; k in 1/V."""
    dtype: Literal["float32", "float64"] = "float64"
    """Precision of the solve."""
    tol: float | None = None
    """Relative residual to reach. Default: 1e-10 in float64, 1e-5 in float32."""
    max_steps: int = 1000
    """Bound on the iterations."""


@dataclass(frozen=True)
class Report:
    """One input vector: its solution, where its power goes and what the wires take (None: no ideal voltage)."""

    sol: Solution
    lost: Losses
    drop: IRDrop | None
    largest: float  # V, of the ideal voltage at the worst cell


def run_solve(file: Path, settings: Settings, out: Path | None = None, *, console: Console | None = None) -> bool:
    """Solves the array in ``file``, prints a table and writes ``out``.

    ``out`` gets currents.csv (bottom currents, A, a line for each vector), solution.npz (every field, with a leading
    axis if there are several vectors), report.txt, and, with matplotlib, maps.png and branches.png of the first vector.

    Args:
      file: .csv, .npy or .npz with resistances or conductances [rows, cols].
      settings: what is asked.
      out: folder; made if absent. None only prints.

    Returns:
      Whether every vector converged.

    Raises:
      ValueError: a file or a number that is no array.
    """
    with jax.enable_x64(settings.dtype == "float64"):
        return _run(file, settings, out, console or Console())


def _run(file: Path, settings: Settings, out: Path | None, console: Console) -> bool:
    stored = load(file)
    g = _conductance(file, stored, settings.what)
    rows, cols = g.shape
    counts = dict(zip(SIDES, (rows, rows, cols, cols), strict=True))
    drives = {side: _drive(side, getattr(settings, side), n) for side, n in counts.items()}
    if settings.left is None:
        drives["left"] = next((_vectors(f"{file.name}: {k}", stored[k], rows) for k in DRIVES if k in stored), None)
    if drives["left"] is drives["right"] is None:
        raise ValueError("solve: --left must be given, a voltage or a file with one for each row")
    vectors = max(len(v) for v in drives.values() if v is not None)
    for side, v in drives.items():
        if v is not None and len(v) not in (1, vectors):
            raise ValueError(f"solve: --{side} must hold 1 or {vectors} vectors, as the other sides do, got {len(v)}")
    if out is not None:
        _make(out)

    wires = Wires(**{f"r_{name}": getattr(settings, f"r_{name}") for name in ("word", "bit", *SIDES)})
    cell = _cells(jnp.asarray(g, settings.dtype), settings.sinh_k)
    numbers = range(vectors)
    shown = track(numbers, "solving", console=console, transient=True) if vectors > LINES_SHOWN else numbers
    reports = [_one(cell, wires, _pick(drives, k), settings) for k in shown]

    table = _table(reports, f"{file.name}: {rows} word lines, {cols} bit lines, {_size(vectors)}, {settings.dtype}")
    console.print(table)
    if out is None:
        for k, r in enumerate(reports[:LINES_SHOWN]):
            which = f" of vector {k}" if vectors > 1 else ""
            few = ", ".join(f"{float(i):.6g}" for i in r.sol.i_bottom[:8])
            console.print(
                f"bottom currents{which}, A: {few}{', ...' if cols > 8 else ''}", highlight=False, soft_wrap=True
            )
    else:
        _write(out, g, drives, reports, table)
        console.print(f"written: {', '.join(_pictures(out, file, reports, wires))}", highlight=False, soft_wrap=True)
    converged = all(bool(r.sol.converged) for r in reports)
    if not converged:
        failed = [k for k, r in enumerate(reports) if not bool(r.sol.converged)]
        print(f"xbar-jax: solve: vector {failed[0]} did not converge; {len(failed)} of {vectors}", file=sys.stderr)
    return converged


def _one(cell: Any, wires: Wires, v: dict[str, Any], settings: Settings) -> Report:
    sol = solve(cell, wires, **v, tol=settings.tol, max_steps=settings.max_steps)
    try:
        drop = ir_drop(sol, **v)
    except ValueError:  # two drives of a line differ: no voltage without wires
        return Report(sol, losses(sol, wires), None, 0.0)
    ideal = float(drop.drop[drop.row, drop.col] + sol.v_cell[drop.row, drop.col])
    return Report(sol, losses(sol, wires), drop, ideal)


def _cells(g: Any, k: float | None) -> Any:
    if k is None:
        return g
    if not (math.isfinite(k) and k >= 0):
        raise ValueError(f"solve: --sinh-k must be >= 0 per V, got {k}")
    try:
        from xbar_jax.circuits.cells import Sinh
    except ImportError as e:
        raise ValueError("solve: --sinh-k needs xb.cells.Sinh, which this version of xbar_jax does not have") from e
    return Sinh(g=g, k=jnp.asarray(k, g.dtype))


def _pick(drives: Mapping[str, np.ndarray | None], k: int) -> dict[str, Any]:
    return {side: None if v is None else v[k if len(v) > 1 else 0] for side, v in drives.items()}


def load(file: Path) -> dict[str, np.ndarray]:
    """The arrays of a .csv, .npy or .npz file by name; those of the first two have the name ""."""
    if not file.is_file():
        raise ValueError(f"solve: {file} does not exist" if not file.exists() else f"solve: {file} is not a file")
    kind = file.suffix.lower()
    if kind in (".csv", ".txt"):
        return {"": _read_csv(file)}
    if kind not in (".npy", ".npz"):
        raise ValueError(f"solve: {file} must end in .csv, .txt, .npy or .npz")
    try:
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {"": found}
        with found:
            return {key: found[key] for key in found.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as e:
        raise ValueError(f"solve: {file} is not a readable {kind} file of plain numbers") from e


def _read_csv(file: Path) -> np.ndarray:
    """Numbers separated by commas, semicolons, tabs or blanks; ``#`` begins a comment."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise ValueError(f"solve: {file} is not a text file") from e
    table: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        mark = next((c for c in ",;\t" if c in line), None)
        row = []
        for entry in line.split(mark):
            try:
                row.append(float(entry))
            except ValueError:
                shown = entry.strip()[:30]
                raise ValueError(f"solve: {file}, line {number}: {shown!r} is not a number") from None
        if table and len(row) != len(table[0]):
            raise ValueError(f"solve: {file}, line {number}: {len(row)} numbers, the lines above have {len(table[0])}")
        table.append(row)
    if not table:
        raise ValueError(f"solve: {file} holds no numbers")
    return np.array(table)


def _numbers(name: str, x: np.ndarray) -> np.ndarray:
    if not (np.issubdtype(x.dtype, np.floating) or np.issubdtype(x.dtype, np.integer)):
        raise ValueError(f"solve: {name} must hold real numbers, got {x.dtype}")
    return x.astype(np.float64)


def _conductance(file: Path, stored: Mapping[str, np.ndarray], what: What | None) -> np.ndarray:
    """[rows, cols] S from the arrays of a file, checked."""
    if "" in stored:
        name, key = str(file), ""
        kind: What = what or "resistance"
    else:
        pairs = [(kind, key) for kind, keys in KEYS.items() for key in keys if key in stored]
        pairs = [p for p in pairs if what in (None, p[0])]
        if not pairs:
            wanted = KEYS[what] if what else sum(KEYS.values(), ())
            has = ", ".join(stored) or "nothing"
            raise ValueError(f"solve: {file} must hold one of {', '.join(wanted)}, got {has}")
        if len(pairs) > 1:
            raise ValueError(f"solve: {file} holds {' and '.join(k for _, k in pairs)}; --what must choose one")
        ((kind, key),) = pairs
        name = f"{file}, {key}"
    x = _numbers(name, stored[key])
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"solve: {name} must have shape [rows, cols], got {list(x.shape)}")
    ohm = kind == "resistance"
    bad = ~(x > 0) if ohm else ~(np.isfinite(x) & (x >= 0))
    if bad.any():
        where = np.argwhere(bad)[0]
        must = "> 0 ohm (inf is an open cell)" if ohm else "finite and >= 0 S (0 is an open cell)"
        raise ValueError(f"solve: {name}: {kind} must be {must}, got {x[tuple(where)]} at {where.tolist()}")
    finite = x[np.isfinite(x) & (x > 0)]
    if what is None and finite.size and "" in stored and finite.max() < 1.0:
        print(
            f"xbar-jax: solve: {name} is read as resistances, of at most {finite.max():.3g} ohm; "
            "--what conductance reads siemens",
            file=sys.stderr,
        )
    with np.errstate(over="ignore"):
        g = 1 / x if ohm else x
    if not np.isfinite(g).all():
        raise ValueError(f"solve: {name}: resistance must be > 0 ohm, got {x.min()}")
    return g


def _drive(side: str, text: str | None, count: int) -> np.ndarray | None:
    """One side's voltages as [vectors, lines] from a number or the name of a file; None is open."""
    if text is None or text.lower() in ("none", "open"):
        return None
    try:
        return _vectors(f"--{side}", np.array(float(text)), count)
    except ValueError:
        if _is_number(text):
            raise
    file = Path(text)
    if not file.exists():
        raise ValueError(f"solve: --{side} must be a voltage or a file, got {text!r}, which does not exist")
    stored = load(file)
    keys = [k for k in ("", side, "V", "v") if k in stored]
    if not keys:
        raise ValueError(f"solve: --{side}: {file} must hold {side} or V, got {', '.join(stored)}")
    return _vectors(f"--{side}: {file}", stored[keys[0]], count)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _vectors(name: str, x: np.ndarray, count: int) -> np.ndarray:
    """[vectors, count] from a scalar, [count], [vectors, count] or a column [count, 1]."""
    x = _numbers(name, x)
    if not np.isfinite(x).all():
        raise ValueError(f"solve: {name} must be finite, in V, got {x[~np.isfinite(x)].ravel()[0]}")
    if x.ndim == 0:
        return np.full((1, count), float(x))
    if x.ndim == 1 and len(x) == count:
        return x[None]
    if x.ndim == 2 and x.shape[1] == count and len(x):
        return x
    if x.shape == (count, 1):
        return x.T
    raise ValueError(
        f"solve: {name} must have shape [{count}], or [vectors, {count}] for several, one voltage for each line, "
        f"got {list(x.shape)}"
    )


def _size(vectors: int) -> str:
    return "1 vector" if vectors == 1 else f"{vectors} vectors"


def _worst(r: Report) -> str:
    if r.drop is None:
        return "none: two drives of a line differ"
    share = f" of {abs(r.largest):.4g} V ({100 * float(r.drop.worst) / abs(r.largest):.3g} %)" if r.largest else ""
    return f"{float(r.drop.worst):.4g} V{share} at [{int(r.drop.row)}, {int(r.drop.col)}]"


def _parts(r: Report) -> dict[str, float]:
    lost = r.lost
    parts = {"cells": lost.cell.sum(), "word lines": lost.word.sum(), "bit lines": lost.bit.sum()}
    return {name: float(x) for name, x in (parts | {"terminals": lost.terminals}).items()}


def _table(reports: list[Report], title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD)
    if len(reports) == 1:
        (r,) = reports
        table.add_column("quantity")
        table.add_column("value", justify="right")
        table.add_column("share", justify="right")
        power = float(r.sol.power)
        share = lambda p: f"{100 * p / power:.2f} %" if power else ""
        table.add_row("power", f"{power:.4g} W", "")
        for name, p in _parts(r).items():
            table.add_row(f"  {name}", f"{p:.4g} W", share(p))
        table.add_row("worst IR drop", _worst(r), "")
        table.add_row("bottom current, sum", f"{float(r.sol.i_bottom.sum()):.6g} A", "")
        table.add_row("converged", _verdict(r), "")
        table.add_row("residual", f"{float(r.sol.residual):.1e}", "")
        table.add_row("steps", f"{int(r.sol.steps)}", "")
        return table
    for name in ("vector", "power, W", "cells, %", "wires, %", "ends, %", "IR drop, V", "at", "ok"):
        table.add_column(name, justify="right", no_wrap=True)
    for k, r in enumerate(reports[:LINES_SHOWN]):
        power, parts = float(r.sol.power), _parts(r)
        sums = parts["cells"], parts["word lines"] + parts["bit lines"], parts["terminals"]
        shares = [f"{100 * p / power:.2f}" if power else "" for p in sums]
        worst, at = (
            ("", "") if r.drop is None else (f"{float(r.drop.worst):.3g}", f"{int(r.drop.row)}, {int(r.drop.col)}")
        )
        table.add_row(str(k), f"{power:.3g}", *shares, worst, at, _verdict(r))
    more = f"{len(reports) - LINES_SHOWN} more vectors; " if len(reports) > LINES_SHOWN else ""
    table.caption = (
        f"{more}cells, wires, ends (terminals): shares of the power; IR drop: the worst, and its row, column"
    )
    return table


def _verdict(r: Report) -> str:
    return "yes" if bool(r.sol.converged) else "NO"


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ValueError(f"solve: --out must be a folder that can be made, got {out}: {e.strerror}") from e


def _write(out: Path, g, drives, reports: list[Report], table: Table) -> None:
    stack = lambda xs: np.stack([np.asarray(x) for x in xs]) if len(reports) > 1 else np.asarray(xs[0])
    fields = (*Solution.__dataclass_fields__, "i_word", "i_bit")
    arrays = {name: stack([getattr(r.sol, name) for r in reports]) for name in fields}
    given = {side: v if len(v) > 1 else v[0] for side, v in drives.items() if v is not None}
    np.savez_compressed(out / "solution.npz", **{"g": g, **given, **arrays})
    currents = np.atleast_2d(arrays["i_bottom"])
    np.savetxt(out / "currents.csv", currents, delimiter=",", fmt="%.17g" if currents.dtype == np.float64 else "%.9g")
    with (out / "report.txt").open("w") as f:
        Console(file=f, width=140).print(table)


def _pictures(out: Path, file: Path, reports: list[Report], wires: Wires) -> list[str]:
    """Draws the first vector; returns what the folder now holds."""
    written = [str(out / name) for name in ("currents.csv", "solution.npz", "report.txt")]
    try:
        from xbar_jax import plot
    except ImportError:
        print("xbar-jax: solve: no pictures without matplotlib; pip install 'xbar_jax[plot]'", file=sys.stderr)
        return written
    title = file.name if len(reports) == 1 else f"{file.name}, vector 0"
    pictures = {
        "maps.png": plot.array_maps(reports[0].sol, title=title),
        "branches.png": plot.array_branches(reports[0].sol, wires, title=title),
    }
    for name, figure in pictures.items():
        plot.save(figure, out / name)
    return [*written, *(str(out / name) for name in pictures)]
