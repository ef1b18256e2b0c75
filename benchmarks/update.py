"""The pulsed update against its JAX body, in one run: ``python benchmarks/update.py [--quick] [--out FILE]``.

One array of 256x256, a mini-batch of 64: x uniform(-1, 1), d normal of 0.1, lr 0.1, dw_min 0.001, BL 31, some
17 million coincidences. Times are medians of the whole jitted call, trains and all. "per core" runs in a process
of its own that is pinned to one core. Prints a table and writes benchmarks/update.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table
from timing import median_ms

import xbar_jax as xb
from xbar_jax import native

D = xb.devices
ROWS = COLS = 256
BATCH = 64
# Device, and the most that one coincidence may cost, ns on one core.
CASES = {
    "ConstantStep": (D.ConstantStep(), 3.0),
    "ConstantStep, no noise": (D.ConstantStep(dw_min_std=0.0), 0.5),
    "LinearStep": (D.LinearStep(gamma_up=0.3, gamma_down=0.3), None),
    "SoftBounds": (D.SoftBounds(), 3.0),
    "ExpStep": (D.ExpStep(), 5.0),
    "PowStep": (D.PowStep(gamma_up=2.0, gamma_down=2.0), None),
    "PiecewiseStep, 3 nodes": (D.PiecewiseStep(nodes_up=(1.0, 0.8, 0.5), nodes_down=(0.5, 0.8, 1.0)), None),
    "OneSided SoftBounds": (D.OneSided(device=D.SoftBounds(w_min=0.0, w_max=1.2)), None),
}


def problem(dev, arrays: int | None = None):
    """A jitted update of one array, or of many under vmap, its arguments, and the coincidences of one array."""
    k = jax.random.split(jax.random.key(0), 4)
    x = jax.random.uniform(k[0], (BATCH, ROWS), minval=-1.0)
    d = 0.1 * jax.random.normal(k[1], (BATCH, COLS))

    def update(state, key):
        return xb.pulsed_update(dev, state, x, d, lr=0.1, key=key)

    init = lambda key: dev.init((ROWS, COLS), key=key)
    state = init(k[2])
    n = sum(int(a.sum()) for a in jax.tree.leaves(update(state, k[3])) if a.dtype == jnp.int32)
    if arrays is None:
        return jax.jit(update), (state, k[3]), n
    keys = jax.random.split(k[2], arrays)
    return jax.jit(jax.vmap(update)), (jax.vmap(init)(keys), keys), n


def one_core(names: list[str]) -> dict[str, float]:
    """Milliseconds of each case in a process pinned to one core."""
    code = "import sys, json; sys.path.insert(0, sys.argv[1]); import update; print(json.dumps(update.times(sys.argv[2:])))"
    out = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), *names],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]}),
    )
    return json.loads(out.stdout.splitlines()[-1])


def times(names: list[str]) -> dict[str, float]:
    result = {}
    for name in names:
        f, args, _ = problem(CASES[name][0])
        result[name] = median_ms(lambda: jax.block_until_ready(f(*args)))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ConstantStep and SoftBounds only")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    names = ["ConstantStep", "SoftBounds"] if options.quick else list(CASES)
    console = Console(width=140)
    cores = len(os.sched_getaffinity(0))
    table = Table(
        "device", "M coincidences", "one core, ms", "ns each", "at most", f"{cores} cores, ms", "JAX body, ms", "faster by",
        title=f"{ROWS}x{COLS}, batch {BATCH}",
    )  # fmt: skip
    rows, failed = [], []
    with console.status("one core"):
        alone = one_core(names)
    for name in names:
        dev, limit = CASES[name]
        with console.status(name):
            f, args, n = problem(dev)
            fast = median_ms(lambda: jax.block_until_ready(f(*args)))
            with native.disabled():
                body = median_ms(lambda: jax.block_until_ready(f(*args)), budget=1.0)
        each = 1e6 * alone[name] / n
        rows.append(
            {"device": name, "coincidences": n, "one_core_ms": alone[name], "ns": each, "limit_ns": limit,
             "ms": fast, "body_ms": body}
        )  # fmt: skip
        if limit is not None and each > limit:
            failed.append(f"{name}: {each:.2f} ns, at most {limit}")
        table.add_row(
            name, f"{n / 1e6:.1f}", f"{alone[name]:.1f}", f"{each:.2f}", "" if limit is None else f"{limit}",
            f"{fast:.1f}", f"{body:.0f}", f"{body / fast:.0f}x",
        )  # fmt: skip
    console.print(table)

    f, args, _ = problem(CASES["SoftBounds"][0])
    g, many, _ = problem(CASES["SoftBounds"][0], 64)
    with console.status("64 arrays under vmap"):
        pairs = [
            (
                median_ms(lambda: jax.block_until_ready(f(*args)), 0.5),
                median_ms(lambda: jax.block_until_ready(g(*many)), 3.0),
            )
            for _ in range(3)
        ]
    one, batch = (float(np.median(column)) for column in zip(*pairs, strict=True))
    console.print(f"64 arrays under vmap, SoftBounds: {batch:.0f} ms, one array {one:.1f} ms: {batch / one:.1f} times")
    if batch > 64 * one:
        failed.append(f"64 arrays cost {batch / one:.1f} times one")
    options.out.write_text(json.dumps({"cases": rows, "vmap64": batch, "one": one}, indent=1))
    for line in failed:
        console.print(f"[red]missed: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
