"""Arrays with wires, against the exact peers, in one run: ``python benchmarks/solve.py [--quick] [--plot FILE]``.

Cases (square, float64, relative residual 1e-10): "std" devices log-uniform 1k-100k ohm, r = 1 ohm; "hard" 1k-10k ohm,
r = 10 ohm; "r = 100" 1k-10k ohm, r = 100 ohm. Peers (benchmarks/peers.py) run up to 256, sparsax also at 512. Times are
medians; whatever is compared takes turns in one process. Then derivatives, batches, non-linear cells, float32, and one
training step of the demo through exact wires. Prints tables, the last of them what is asked and what was seen, and writes
benchmarks/solve.json. Exits with 1 where something asked is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import circuit_cases as extra
import jax
import numpy as np
from circuit_cases import FORWARD, GRADIENT, OURS, SOLVE
from peers import CASES, array, exact, peers
from rich.console import Console
from rich.table import Table
from timing import interleaved_ms

SIZES = (16, 64, 128, 256, 512, 1024)
PEERS_TO = 256
PATIENCE = 5.0  # s for a call of the one peer that is asked beyond
MEMORY = (256,)  # sizes whose memory is measured, each tool in a process of its own
HERE = Path(__file__).parent


def tools(n: int, problem: tuple) -> dict[str, Any]:
    """The calls that are compared at one size."""
    calls = peers(*problem)
    if n > PEERS_TO:
        calls = {name: f for name, f in calls.items() if name == "sparsax" and n <= 2 * PEERS_TO and _patient(name, f)}
    mine = extra.ours(*problem)
    return calls | {name: f for name, f in mine.items() if n <= 512 or name in (SOLVE, FORWARD, GRADIENT)}


def _patient(name: str, f) -> bool:
    f()  # compiles
    start = time.perf_counter()
    f()
    taken = time.perf_counter() - start
    if taken > PATIENCE:
        print(f"{name}: {taken:.1f} s, left out", flush=True)
    return taken <= PATIENCE


def measure(case: str, n: int, vectors: int, budget: float) -> list[dict]:
    """Every tool on one array, ``budget`` s each."""
    problem = array(n, case, vectors)
    calls = tools(n, problem)
    ms = interleaved_ms(calls, budget, rounds=5 if n <= PEERS_TO else 3)
    reference = exact(*problem) if n <= 512 else None
    records = []
    for tool, call in calls.items():
        if tool == FORWARD:
            continue
        record = dict(case=case, size=n, vectors=vectors, tool=tool, ms=ms[tool])
        if tool == GRADIENT:
            record["forwards"] = ms[GRADIENT] / ms[FORWARD]
        else:
            found = call()
            i = np.asarray(found.i_bottom if tool == SOLVE else found)
            if reference is not None:
                record["error"] = float(np.abs(i - reference).max() / np.abs(reference).max())
            if tool == SOLVE:
                record |= dict(iterations=int(found.steps.max()), converged=bool(found.converged.all()))
        records.append(record)
    fastest = min(ms[t] for t in OURS if t in ms)
    print(f"{case} {n} x {vectors}: {', '.join(f'{t} {ms[t]:.3g}' for t in ms)} ms; ours {fastest:.3g}", flush=True)
    return records


def memory(case: str, n: int, tool: str) -> float:
    """Memory of one solve of one tool in a process of its own, above what the imports take, MiB."""
    program = (
        "import re, sys, jax; sys.path.insert(0, sys.argv[1]); import solve, peers; "
        "jax.config.update('jax_enable_x64', True); [peers.installed(p) for p in ('klujax', 'sparsax', 'badcrossbar')]; "
        "n = int(sys.argv[3]); case = peers.array(n, sys.argv[2], 1); jax.numpy.ones(3).block_until_ready(); "
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1024; before = peak(); "
        "call = solve.tools(n, case)[sys.argv[4]]; call(); print('MiB', peak() - before)"
    )
    command = [sys.executable, "-c", program, str(HERE), case, str(n), tool]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split("MiB")[-1])


def training() -> dict:
    """benchmarks/digits_step.py in a process without 64-bit mode."""
    done = subprocess.run([sys.executable, str(HERE / "digits_step.py")], capture_output=True, text=True)
    if done.returncode:
        print(f"training: skipped: {(done.stderr.strip() or 'no output').splitlines()[-1]}")
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def run(quick: bool, console: Console) -> dict:
    """All that is measured, section by section."""
    records = []
    for case in CASES:
        for n in SIZES[:2] if quick else SIZES:
            for vectors in (1, 64) if case == "std" and n in (64, 128) else (1,):
                with console.status(f"{case} {n} x {vectors}"):
                    records += measure(case, n, vectors, 0.2 if quick else 1.0)
    if not quick:
        for x in records:
            if x["vectors"] == 1 and x["size"] in MEMORY and x["case"] != "r = 100":
                with console.status(f"memory of {x['tool']}, {x['case']} {x['size']}"):
                    x["MiB"] = memory(x["case"], x["size"], x["tool"])
    n = 64 if quick else 128
    found: dict[str, Any] = dict(records=records)
    sections = dict(vmap=extra.many_arrays, newton=lambda: extra.newton(n), float32=lambda: extra.single(n))
    if not quick:
        sections |= dict(growth=extra.growth, training=training)
    for name, section in sections.items():
        with console.status(name):
            found[name] = section()
    return found | dict(cores=len(os.sched_getaffinity(0)), jax=jax.__version__)


class Asked(NamedTuple):
    """One line of the last table."""

    what: str
    asked: str
    seen: str
    ok: bool


class Times:
    """Times of one array by tool."""

    def __init__(self, records: list[dict], case: str, size: int, vectors: int = 1):
        mine = [x for x in records if (x["case"], x["size"], x["vectors"]) == (case, size, vectors)]
        self.ms = {x["tool"]: x["ms"] for x in mine if x["tool"] != GRADIENT}
        self.iterations = next((x["iterations"] for x in mine if "iterations" in x), None)

    def best(self, peers: bool) -> tuple[float, str] | None:
        """Fastest (ms, tool) of the peers, or of ours."""
        return min(((ms, t) for t, ms in self.ms.items() if (t not in OURS) == peers), default=None)


def faster(records: list[dict], case: str, size: int, vectors: int, times: float, name: str | None = None):
    """Ours against the best peer, or a named one, where both were measured."""
    here = Times(records, case, size, vectors)
    mine, other = here.best(False), here.best(True)
    if name is not None:
        other = (here.ms[name], name) if name in here.ms else None
    if mine is None or other is None:
        return
    what = f"{case} {size}, {'one vector' if vectors == 1 else f'{vectors} vectors'}, {mine[1]} against {other[1]}"
    ratio = other[0] / mine[0]
    yield Asked(what, f">= {times:g}x", f"{ratio:.1f}x ({mine[0]:.3g} ms, {other[0]:.3g} ms)", ratio >= times)


def at_most(what: str, limit: float, seen: float, unit: str = "", spec: str = ".3g") -> Asked:
    return Asked(what, f"<= {limit:g}{unit}", f"{seen:{spec}}{unit}", seen <= limit)


def asked(found: dict) -> Iterator[Asked]:
    """What is asked of the circuits, where this run has measured it."""
    records = found["records"]
    yield from faster(records, "std", 128, 1, 40)
    yield from faster(records, "std", 128, 1, 200, "badcrossbar")
    yield from faster(records, "std", 128, 64, 10)
    for case, limit in (("hard", 250), ("r = 100", 600)):
        if best := Times(records, case, 512).best(False):
            yield at_most(f"{case} 512, one vector", limit, best[0], " ms")
    if any("converged" in x for x in records):
        every = [x["converged"] for x in records if "converged" in x]
        yield Asked("every solve converged to 1e-10", "all", f"{sum(every)} of {len(every)}", all(every))
    if "growth" in found:
        a, b = found["growth"]["sizes"]
        yield at_most(f"std, growth of the time from {a} to {b}, exponent of N", 2.8, found["growth"]["exponent"])
    for key in ("std", "hard", "r = 100"):
        mine = [x for x in records if x["tool"] == GRADIENT and x["case"] == key and 64 <= x["size"] <= 512]
        if mine:
            worst = max(mine, key=lambda x: x["forwards"])
            yield at_most(f"gradient / forward, {key}, worst of 64 to 512 ({worst['size']})", 2.5, worst["forwards"])
    x = found["vmap"]
    yield at_most(f"{x['arrays']} arrays of {x['size']}x{x['size']} / one of them", x["arrays"], x["ratio"])
    for x in found["float32"]:
        yield at_most(f"float32 {x['case']} {x['size']}, r = {x['r']:g} ohm, error", x["asked"], x["error"], spec=".1e")
    for x in found["newton"]:
        name = f"Newton, Sinh {x['size']}, k = {x['k']:g}"
        yield at_most(f"{name}: steps", 6, x["steps"])
        if x["size"] == 128:
            yield at_most(f"{name}: time / one linear solve", 8, x["solves"])
    if found.get("training"):
        ms, steps = found["training"]["epoch_ms"], found["training"]["steps"]
        free = ms["wires=None"]
        for name in (name for name in ms if name.endswith("ohm")):
            yield at_most(f"digits, batch 64, {name}: a step", 30, ms[name] / steps, " ms")
            yield at_most(f"digits, {name}: epoch / wires=None", 60, ms[name] / free)


def table(title: str, columns: dict[str, str], rows: list[dict]) -> Table:
    """Rows of numbers, each in the format of its column; empty where a row has none."""
    out = Table(*columns, title=title)
    for x in rows:
        out.add_row(*(format(x[k], spec) if k in x else "" for k, spec in columns.items()))
    return out


def tables(found: dict) -> Iterator[Table]:
    columns = {"case": "", "size": "", "vectors": "", "tool": "", "ms": ".4g", "error": ".0e", "iterations": "", "forwards": ".2f", "MiB": ".0f"}  # fmt: skip
    yield table("Exact solves with wires, float64", columns, found["records"])
    columns = {"size": "", "k": "g", "steps": "", "converged": "", "ms": ".3g", "linear_ms": ".3g", "solves": ".2f"}
    yield table("Non-linear cells, g sinh(k v) / k at 1 V", columns, found["newton"])
    if found.get("training"):
        ms, steps = found["training"]["epoch_ms"], found["training"]["steps"]
        rows = [{"network": k, "epoch, ms": x, "step, ms": x / steps, "/ wires=None": x / ms["wires=None"], "/ no arrays": x / ms["no arrays"]} for k, x in ms.items()]  # fmt: skip
        columns = {"network": "", "epoch, ms": ".4g", "step, ms": ".3g", "/ wires=None": ".1f", "/ no arrays": ".0f"}
        yield table("Digits 64-128-10, batch 64, float32", columns, rows)
    verdict = Table("what", "asked", "seen", "ok", title="asked and seen")
    for line in asked(found):
        verdict.add_row(line.what, line.asked, line.seen, "yes" if line.ok else "[red]NO")
    yield verdict


def picture(records: list[dict], file: Path) -> None:
    """Time of one vector against N, with the iterations at each point."""
    from matplotlib.figure import Figure

    from xbar_jax import plot

    figure = Figure(figsize=(7.0, 4.8), layout="constrained")
    axes = figure.add_subplot()
    sizes = sorted({x["size"] for x in records})
    for k, (case, (low, high, r)) in enumerate(CASES.items()):
        here = [(n, Times(records, case, n)) for n in sizes]
        points = [(n, x.ms[SOLVE], x.iterations) for n, x in here if SOLVE in x.ms]
        label = f"solve, {case}: {low / 1e3:g}-{high / 1e3:g} kohm, wires of {r:g} ohm"
        axes.loglog([p[0] for p in points], [p[1] for p in points], "osD"[k] + "-", color=f"C{k}", ms=5, label=label)
        for n, ms, steps in points:
            # Hardest case on top.
            place = (0, (-13, 0, 7)[k]) if k != 1 else (9, -3)
            axes.annotate(
                f"{steps}", (n, ms), place, textcoords="offset points", ha="center", fontsize=7.5, color=f"C{k}"
            )
    best = [(n, Times(records, "std", n).best(True)) for n in sizes]
    best = [(n, x) for n, x in best if x is not None]
    if best:
        names = ", ".join(dict.fromkeys(x[1] for _, x in best))
        axes.loglog([n for n, _ in best], [x[0] for _, x in best], "k^--", ms=5, label=f"best exact peer, std: {names}")
    axes.set_xticks(sizes, [f"{n}" for n in sizes])
    axes.minorticks_off()
    axes.set_xlabel("N, of an array of N x N cells")
    axes.set_ylabel("time of one vector, ms")
    axes.set_title("float64, residual 1e-10; numbers: iterations", fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8)
    plot.save(figure, file)
    print(f"picture: {file}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="16 and 64 only, without memory and training")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also a picture of the growth (docs/growth.png)")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    console = Console(width=130)
    found = run(args.quick, console)
    lines = list(asked(found))
    for t in tables(found):
        console.print(t)
    args.out.write_text(json.dumps(found | dict(asked=[x._asdict() for x in lines]), indent=1) + "\n")
    if args.plot:
        picture(found["records"], args.plot)
    return 0 if all(x.ok for x in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
