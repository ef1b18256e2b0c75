"""The demo as a run: progress, a table in the terminal, and a folder with report, numbers and pictures."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from xbar_jax.study import digits
from xbar_jax.study.files import bar, made_with, made_with_words, write

SHOWN = 8.0, 0.01  # bits and noise of the terminal table and the picture, if they are in the sweep


def run_demo(
    settings: digits.Settings, out: Path, *, resume: bool = False, console: Console | None = None
) -> dict[str, Any]:
    """Runs the digits study and writes ``out``/results.json, report.md and pictures.

    The numbers are written after every wire resistance, so that an interrupted run keeps what it has.

    Args:
      settings: what is varied.
      out: folder; made if absent.
      resume: keep the resistances that ``out``/results.json already holds for the same settings.

    Returns:
      The content of results.json.

    Raises:
      ValueError: the settings are out of range, or ``resume`` finds other settings.
    """
    _check(settings)
    console = console or Console()
    out.mkdir(parents=True, exist_ok=True)
    kept = _load(out, settings) if resume else {}
    started = time.perf_counter()
    data = digits.load(settings.seed)
    todo = [r for r in settings.resistances if _key(r) not in kept]
    before, each = digits.work(settings)

    with bar(console) as progress:
        task = progress.add_task("digital", total=before + each * len(todo))
        tick = lambda what: progress.update(task, description=what, advance=1)
        digital = digits.train_digital(settings, data, tick)
        found = dict(kept)
        results = _results(settings, digital.accuracy, found, started)
        for r in todo:
            found[_key(r)] = {name: a.tolist() for name, a in digits.compare(settings, data, digital, r, tick).items()}
            results = _results(settings, digital.accuracy, found, started)
            write(out / "results.json", json.dumps(results, indent=1) + "\n")
            progress.console.print(_line(settings, r, found[_key(r)]))

    lost_at = 30.0 if 30.0 in settings.resistances else settings.resistances[-1]
    pictures = _pictures(results, digits.drop_map(digital, lost_at), lost_at, out)
    write(out / "report.md", markdown(results, pictures))
    write(out / "results.json", json.dumps(results, indent=1) + "\n")
    console.print(terminal_table(results))
    console.print(f"digital {100 * digital.accuracy:.1f} %   {results['seconds']:.0f} s   {out / 'report.md'}")
    return results


def _line(settings: digits.Settings, r: float, accuracy: dict[str, Any]) -> str:
    bits, std = settings.bits[0], settings.program_std[0]
    means = ", ".join(f"{name} {100 * np.mean(a[0][0]):.1f} %" for name, a in accuracy.items())
    return f"{r:g} ohm, {bits:g} bits, noise {100 * std:g} %: {means}"


def _check(settings: digits.Settings) -> None:
    for name in ("resistances", "bits", "program_std"):
        values = getattr(settings, name)
        if not values or any(math.isnan(v) or v < 0 for v in values):
            raise ValueError(f"demo: {name} must hold at least one number >= 0, got {values}")
    if any(b <= 1 and b != 0 for b in settings.bits):
        raise ValueError(f"demo: bits must be > 1 (inf or 0 is ideal), got {settings.bits}")
    for name in ("chips", "digital_epochs", "wire_epochs"):
        if getattr(settings, name) < 1:
            raise ValueError(f"demo: {name} must be >= 1, got {getattr(settings, name)}")


def _key(r: float) -> str:
    return f"{r:g}"


def _plain(settings: digits.Settings) -> dict[str, Any]:
    spell = lambda v: "inf" if v == math.inf else v
    return {k: [spell(x) for x in v] if isinstance(v, tuple) else v for k, v in dataclasses.asdict(settings).items()}


def _results(settings, accuracy: float, found: dict[str, Any], started: float) -> dict[str, Any]:
    return {
        "settings": _plain(settings),
        "axes": ["resistance", "method", "bits", "program_std", "chip"],
        "digital_accuracy": accuracy,
        "accuracy": {_key(r): found[_key(r)] for r in settings.resistances if _key(r) in found},
    } | made_with(started)


def _load(out: Path, settings: digits.Settings) -> dict[str, Any]:
    file = out / "results.json"
    if not file.exists():
        return {}
    old = json.loads(file.read_text())
    if old["settings"] != _plain(settings):
        raise ValueError(f"demo: resume must find the same settings, got others in {file}")
    return old["accuracy"]


def _shown(results: dict[str, Any]) -> tuple[int, int]:
    s = results["settings"]
    bits = s["bits"].index(SHOWN[0]) if SHOWN[0] in s["bits"] else 0
    return bits, s["program_std"].index(SHOWN[1]) if SHOWN[1] in s["program_std"] else 0


def terminal_table(results: dict[str, Any]) -> Table:
    """Accuracy against wire resistance at ideal periphery and at one realistic setting."""
    b, n = _shown(results)
    s = results["settings"]
    resistances = list(results["accuracy"])
    title = "Digits on arrays: test accuracy, %, against wire resistance, ohm a segment"
    table = Table(
        title=title,
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        caption="mean ± standard deviation over chips",
    )
    table.add_column("weights", no_wrap=True)
    table.add_column("periphery", no_wrap=True)
    for r in resistances:
        table.add_column(r, justify="right", no_wrap=True)
    for name in digits.METHODS:
        for i, j in dict.fromkeys([(0, 0), (b, n)]):
            cells = [_cell(results["accuracy"][r][name][i][j]) for r in resistances]
            table.add_row(name, _periphery(s, i, j), *cells, end_section=(i, j) == (b, n))
    return table


def _converters(bits: float | str) -> str:
    return "ideal" if bits == "inf" else f"{bits:g}-bit"


def _periphery(s: dict[str, Any], i: int, j: int) -> str:
    bits, std = s["bits"][i], s["program_std"][j]
    return "ideal" if bits == "inf" and std == 0 else f"{_converters(bits)}, {100 * std:g} %"


def _cell(chips: list[float]) -> str:
    mean, spread = 100 * np.mean(chips), 100 * np.std(chips)
    return f"{mean:.1f}" + (f"±{spread:.1f}" if spread > 0 else "")


def markdown(results: dict[str, Any], pictures: dict[str, str]) -> str:
    """report.md: the setting, every number of the sweep, the pictures."""
    s = results["settings"]
    resistances = list(results["accuracy"])
    lines = [
        "# Digits on simulated arrays",
        "",
        f"64-128-10 network, 8x8 digits, arrays of 64x128 and 128x10 cells of 10 to 100 kohm, two of each (positive and negative part of the weights), "
        f"seed {s['seed']}, {s['chips']} chips a point. Digital accuracy **{100 * results['digital_accuracy']:.1f} %**.",
        "",
        *(f"* **{name}**: {what}." for name, what in digits.METHODS.items()),
        "",
        *(f"![{what}]({file})\n" for what, file in pictures.items()),
    ]
    for i, bits in enumerate(s["bits"]):
        for j, std in enumerate(s["program_std"]):
            lines += [
                f"## {_converters(bits).capitalize()} converters, programming noise {100 * std:g} % of the window",
                "",
                "| weights | " + " | ".join(f"{r} ohm" for r in resistances) + " |",
                "|---" * (len(resistances) + 1) + "|",
            ]
            for name in digits.METHODS:
                cells = [_cell(results["accuracy"][r][name][i][j]) for r in resistances]
                lines.append(f"| {name} | " + " | ".join(cells) + " |")
            lines.append("")
    lines.append(made_with_words(results))
    return "\n".join(lines) + "\n"


def _pictures(results: dict[str, Any], lost: tuple[np.ndarray, np.ndarray], r: float, out: Path) -> dict[str, str]:
    from xbar_jax import plot

    b, n = _shown(results)
    s = results["settings"]
    x = [float(r) for r in results["accuracy"]]
    curves = {name: [results["accuracy"][k][name][b][n] for k in results["accuracy"]] for name in digits.METHODS}
    title = (
        f"{_converters(s['bits'][b])} converters, {100 * s['program_std'][n]:g} % programming noise, {s['chips']} chips"
    )
    plot.save(plot.accuracy_curves(x, curves, results["digital_accuracy"], title=title), out / "accuracy.png")
    plot.save(
        plot.array_map(
            100 * lost[0],
            "voltage lost in the wires, %",
            f"Hidden layer, positive array, all rows driven, {r:g} ohm a segment",
        ),
        out / "ir_drop.png",
    )
    return {"Accuracy against wire resistance": "accuracy.png", "IR drop of one array": "ir_drop.png"}
