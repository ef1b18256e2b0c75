"""Inference: one product with converters and output noise against a plain one, and twenty chips in one call.

``python benchmarks/inference.py [--quick]``. The product: 256x256 weights on one array, 64 vectors, 8-bit converters,
output noise, jitted, float32; against ``x @ w`` plus the drawing of as many normal numbers, measured in turns in one
run. The chips: the digits network on twenty programmed PCM chips at one time, as one compiled call; its time, and its
memory as XLA states it for the program and as the process's peak rises. Prints a table of what is asked and what was
seen, and writes benchmarks/inference.json. Exits with 1 where something asked is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from rich.console import Console
from rich.table import Table

import xbar_jax as xb
from xbar_jax.study import digits, drift

MOST = 1.5  # times the plain product and its normal numbers


def in_turns(fs: dict, rounds: int, times: int) -> dict[str, list[float]]:
    """Seconds of one call of each function, in turns; each round is the mean of a few calls."""
    taken: dict[str, list[float]] = {name: [] for name in fs}
    for f in fs.values():
        jax.block_until_ready(f())
    for _ in range(rounds):
        for name, f in fs.items():
            start = time.perf_counter()
            for _ in range(times):
                out = f()
            jax.block_until_ready(out)
            taken[name].append((time.perf_counter() - start) / times)
    return taken


def product(quick: bool) -> dict:
    """The product on an array against the plain one."""
    kw, kx, key = jax.random.split(jax.random.key(0), 3)
    w, x = jax.random.normal(kw, (256, 256)) / 16, jax.random.uniform(kx, (64, 256), minval=-1.0)
    hw = xb.Hardware(rows=256, cols=256, dac=xb.DAC(bits=8), adc=xb.ADC(bits=8, noise=0.005))
    tile = xb.program(w, hw)
    analog = jax.jit(lambda tile, x, key: tile(x, key=key))
    plain = jax.jit(lambda x, w: x @ w)
    normals = jax.jit(lambda key: jax.random.normal(key, (64, 256)))
    fs = {"array": lambda: analog(tile, x, key), "product": lambda: plain(x, w), "normals": lambda: normals(key)}
    taken = in_turns(fs, 10 if quick else 60, 20)
    ratios = [a / (p + n) for a, p, n in zip(taken["array"], taken["product"], taken["normals"], strict=True)]
    error = jnp.linalg.norm(analog(tile, x, key) - x @ w) / jnp.linalg.norm(x @ w)
    return {k: float(np.median(v)) for k, v in taken.items()} | {
        "ratio": float(np.median(ratios)),
        "error": float(error),
    }


def chips(n: int) -> dict:
    """Accuracy of many chips of the digits network: time and memory of the one call."""
    settings = drift.Settings(chips=n)
    data = digits.load(0)
    model = digits.Network(drift.hardware(settings, "global"), rngs=nnx.Rngs(0))
    graphdef, state = nnx.split(model)
    keys = jax.random.split(jax.random.key(0), n)
    args = state, jnp.float32(1.0), jnp.array([3600.0]), keys, data.x_test, data.y_test
    compiled = drift.chip_accuracy.lower(graphdef, *args).compile()
    memory = compiled.memory_analysis()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        found = jax.block_until_ready(compiled(*args))
        taken.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return dict(
        chips=found.shape[0],
        seconds=min(taken),
        temporary=memory.temp_size_in_bytes / 2**20,
        arguments=memory.argument_size_in_bytes / 2**20,
        rise=peak / 2**10,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    one, many = product(arguments.quick), chips(20)
    table = Table("what", "asked", "seen", "met", title="inference")
    met = one["ratio"] <= MOST
    table.add_row(
        "256x256, 64 vectors, 8 bits, output noise", f"<= {MOST} x (product + normals)", f"{one['ratio']:.2f}", str(met)
    )
    table.add_row(
        "",
        "",
        f"{1e3 * one['array']:.3f} ms; product {1e3 * one['product']:.3f}, normals {1e3 * one['normals']:.3f}",
        "",
    )
    table.add_row("its relative error, noise included", "", f"{one['error']:.3f}", "")
    table.add_row(
        f"{many['chips']} chips of the digits network, one call", "time stated", f"{1e3 * many['seconds']:.0f} ms", ""
    )
    table.add_row(
        "",
        "peak stated",
        f"{many['temporary']:.0f} MiB scratch, {many['arguments']:.1f} MiB arguments; process + {many['rise']:.0f} MiB",
        "",
    )
    Console().print(table)
    arguments.out.write_text(json.dumps({"product": one, "chips": many}, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
