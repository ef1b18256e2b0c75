"""Custom call against plain XLA over six decades of size: ``python benchmarks/overhead.py [--quick] [--out FILE]``.

Two operators, each the same function in both forms: a noisy read i = v (g + std n), and pulses on every cell (four up
pulses of a soft-bounds device, with noise). "call" is the whole call from Python, the result awaited; "kernel" is one of
many calls inside one compiled loop, so that dispatch is left out. The error is the largest against the same draws in
float64, over the largest result. On a machine with a GPU both run there.
Prints a table, writes benchmarks/overhead.json and a picture.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from timing import median_ms

from xbar_jax import native, plot
from xbar_jax.devices import SoftBounds, kernels

CELLS = [10**k for k in range(1, 8)]
PARAMETERS = (0.01, 0.01, 0.6, -0.6, 0.3, 1 / 0.6, -1 / 0.6, 1.0)


def shape_of(cells: int) -> tuple[int, int]:
    rows = 10 ** (len(str(cells)) // 2)
    return rows, cells // rows


def read_problem(cells: int):
    """Operands, and the function of a counter that changes the draw."""
    rows, cols = shape_of(cells)
    k = jax.random.split(jax.random.key(0), 3)
    g = jax.random.uniform(k[0], (rows, cols), minval=1e-6, maxval=1e-4)
    v = jax.random.uniform(k[1], (rows,), minval=-0.2, maxval=0.2)
    std, key, origin = jnp.full((1, 1), 2e-6), jax.random.bits(k[2], (2,), jnp.uint32), jnp.zeros(2, jnp.uint32)
    return (g, v, std, key, origin), lambda g, v, std, key, origin, i: kernels.noisy_read(
        g, v, std, key + jnp.asarray(i, jnp.uint32), origin
    )[0]


def pulse_problem(cells: int):
    shape = shape_of(cells)
    w = jax.random.uniform(jax.random.key(1), shape, minval=-0.5, maxval=0.5)
    n, keys, origin = jnp.full((1, *shape), 4, jnp.int32), jnp.zeros((1, 2), jnp.uint32), jnp.zeros(2, jnp.uint32)
    p = tuple(jnp.full((1, 1), x) for x in PARAMETERS)
    return (w, n, keys, origin, *p), lambda w, n, keys, origin, *pi: kernels.pulses(
        w, n, keys + jnp.asarray(pi[-1], jnp.uint32), origin, *pi[:-1], device=SoftBounds, _limit=4
    )[0]


OPERATORS = {"noisy read": read_problem, "pulses": pulse_problem}


def measure(operator: str, cells: int, budget: float) -> dict:
    operands, f = OPERATORS[operator](cells)
    call = jax.jit(lambda *xs: f(*xs, 0))
    loops = max(2, min(1000, 10**6 // cells))

    @jax.jit
    def loop(*xs):
        return jax.lax.fori_loop(0, loops, lambda i, total: total + f(*xs, i), jnp.zeros_like(call(*xs)))

    def one():
        result = np.asarray(call(*operands))
        times = [
            1e3 * median_ms(lambda: jax.block_until_ready(call(*operands)), budget, most=200),
            1e3 * median_ms(lambda: jax.block_until_ready(loop(*operands)), budget, most=200) / loops,
        ]
        return result, *times

    fast, call_us, kernel_us = one()
    with native.disabled():
        body, body_call_us, body_us = one()
    with jax.enable_x64(True):
        wide = tuple(x.astype(jnp.float64) if x.dtype == jnp.float32 else x for x in operands)
        exact = np.asarray(f(*wide, 0))
    scale = np.abs(exact).max()
    return {
        "operator": operator, "cells": cells, "call_us": call_us, "kernel_us": kernel_us, "xla_call_us": body_call_us,
        "xla_us": body_us, "error": float(np.abs(fast - exact).max() / scale),
        "xla_error": float(np.abs(body - exact).max() / scale),
    }  # fmt: skip


def picture(rows: list[dict], title: str) -> Figure:
    """Time and error against the number of cells, an operator a column."""
    figure = Figure(figsize=(9.0, 6.4), layout="constrained")
    axes = figure.subplots(2, len(OPERATORS), sharex=True, height_ratios=[2, 1])
    for j, operator in enumerate(OPERATORS):
        mine = [r for r in rows if r["operator"] == operator]
        x = [r["cells"] for r in mine]
        top, bottom = axes[0, j], axes[1, j]
        for key, label, style in (
            ("call_us", "custom call, from Python", "C0o-"), ("kernel_us", "custom call, kernel", "C0o--"),
            ("xla_call_us", "plain XLA, from Python", "C1s-"), ("xla_us", "plain XLA, kernel", "C1s--"),
        ):  # fmt: skip
            top.loglog(x, [r[key] for r in mine], style, ms=4, label=label)
        bottom.loglog(x, [r["error"] for r in mine], "C0o-", ms=4)
        bottom.loglog(x, [r["xla_error"] for r in mine], "C1s-", ms=4)
        top.set_title(operator, fontsize=10)
        bottom.set_xlabel("cells")
        for axis in (top, bottom):
            axis.grid(alpha=0.25)
    axes[0, 0].set_ylabel("time, us")
    axes[1, 0].set_ylabel("largest error")
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to 10^5 cells")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--picture", type=Path, help="default: beside the numbers")
    args = parser.parse_args()
    args.picture = args.picture or args.out.with_suffix(".png")
    console = Console(width=140)
    device = jax.devices()[0]
    table = Table(
        "operator", "cells", "custom call, us", "kernel, us", "XLA call, us", "XLA kernel, us", "kernel faster by",
        "error", "XLA error", title=f"custom call against plain XLA on {device.device_kind}",
    )  # fmt: skip
    rows = []
    for operator in OPERATORS:
        for cells in CELLS[:5] if args.quick else CELLS:
            with console.status(f"{operator}, {cells} cells"):
                r = measure(operator, cells, 0.3 if args.quick else 1.0)
            rows.append(r)
            table.add_row(
                operator, f"{cells}", f"{r['call_us']:.1f}", f"{r['kernel_us']:.2f}", f"{r['xla_call_us']:.1f}",
                f"{r['xla_us']:.2f}", f"{r['xla_us'] / r['kernel_us']:.1f}x", f"{r['error']:.0e}", f"{r['xla_error']:.0e}",
            )  # fmt: skip
    console.print(table)
    args.out.write_text(json.dumps(rows, indent=1))
    plot.save(picture(rows, f"the same operator, custom call and plain XLA, on {device.device_kind}"), args.picture)
    console.print(f"picture: {args.picture}")


if __name__ == "__main__":
    main()
