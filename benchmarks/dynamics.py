"""Dynamic devices against their JAX body, in one run: ``python benchmarks/dynamics.py [--quick] [--out FILE]``.

One array of 256x256 cells (the JARTv1b of the second table: 512x512), float32, on one core: states over the range,
one pulse for all. A sub-step is an accepted panel; its time is that of the whole motion, rejected panels too, by their
number. A call is ``evolve``. Times are medians. Prints a table and writes benchmarks/dynamics.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table
from timing import median_ms

from xbar_jax import native
from xbar_jax.devices.data_driven import DataDriven
from xbar_jax.devices.data_driven_2021 import DataDriven2021
from xbar_jax.devices.flow import displacement
from xbar_jax.devices.jart import JARTv1b
from xbar_jax.devices.linear_ion_drift import LinearIonDrift
from xbar_jax.devices.stanford_pku import StanfordPKU
from xbar_jax.devices.tables import tabulate
from xbar_jax.devices.vteam import VTEAM
from xbar_jax.devices.yakopcic import Yakopcic
from xbar_jax.devices.yakopcic_general import YakopcicGeneral

CELLS = 256
# Device, voltage, time, and the most that a sub-step may cost, ns.
CASES = {
    "VTEAM, 10 ns": (VTEAM(), -0.6, 10e-9, 5.0),
    "VTEAM, Biolek, 10 ns": (VTEAM(window="biolek"), -0.6, 10e-9, None),
    "VTEAM, TEAM, 10 ns": (VTEAM(window="team"), -0.6, 10e-9, None),
    "LinearIonDrift, Joglekar, 10 ms": (LinearIonDrift(window="joglekar"), 1.0, 10e-3, None),
    "Yakopcic, 10 us": (Yakopcic(), 1.0, 10e-6, None),
    "YakopcicGeneral, 1 ms": (YakopcicGeneral(), 1.0, 1e-3, None),
    "StanfordPKU, 10 ns": (StanfordPKU(), 1.5, 10e-9, 20.0),
    "DataDriven, 1 ms": (DataDriven(), 1.0, 1e-3, None),
    "DataDriven2021, 1 us": (DataDriven2021(), -1.0, 1e-6, None),
    "JARTv1b, 1 us": (JARTv1b(), -0.342, 1e-6, None),
    "JARTv1b, explicit, 1 us": (JARTv1b(law="explicit"), -0.342, 1e-6, None),
}
# JARTv1b with spread: cells and s that a million of them may take for one pulse of 1 us.
SPREAD_CELLS, SPREAD_LIMIT = 512, 8.0
# The same with nominal numbers, by a table.
TABLE_LIMIT = 1.0


def problem(dev, v, t, n):
    """A jitted pulse on n x n cells, its bare motion, and the cells, over the middle 90 % of their range."""
    key = jax.random.key(0)
    state = dev.init((n, n), key=key)
    low, high = dev.of(state).bounds()
    x = low + (high - low) * jax.random.uniform(key, (n, n), minval=0.05, maxval=0.95)
    full = lambda y: jnp.full((n, n), y, jnp.float32)
    call = jax.jit(lambda s: dev.evolve(s, v, t))
    motion = jax.jit(lambda s: displacement(dev.of(s), s.x, full(v), full(t)))
    return call, motion, state.replace(x=jnp.asarray(x, jnp.float32))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="what has a limit only, without the JAX bodies")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    # Before the threads of XLA start.
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
    console = Console(width=140)
    table = Table(
        "device", "sub-steps a cell", "call, ns a cell", "ns a sub-step", "at most", "JAX body, ns a cell", "faster by",
        title=f"{CELLS}x{CELLS} cells, one core, float32",
    )  # fmt: skip
    rows, failed = [], []
    for name, (dev, v, t, limit) in CASES.items():
        if options.quick and limit is None:
            continue
        with console.status(name):
            f, motion, state = problem(dev, v, t, CELLS)
            n = int(motion(state).panels.sum())
            step = 1e6 * median_ms(lambda: jax.block_until_ready(motion(state))) / n
            each = lambda ms: 1e6 * ms / CELLS**2
            fast = each(median_ms(lambda: jax.block_until_ready(f(state))))
            body = float("nan")
            if not options.quick:
                with native.disabled():
                    body = each(median_ms(lambda: jax.block_until_ready(f(state)), budget=1.0))
        rows.append(
            {"device": name, "substeps": n / CELLS**2, "ns_cell": fast, "ns_substep": step,
             "limit": limit, "body_ns_cell": body}
        )  # fmt: skip
        if limit is not None and step > limit:
            failed.append(f"{name}: {step:.1f} ns a sub-step, at most {limit}")
        table.add_row(
            name, f"{n / CELLS**2:.2f}", f"{fast:.1f}", f"{step:.1f}", "" if limit is None else f"{limit:g}",
            f"{body:.0f}", f"{body / fast:.0f}x",
        )  # fmt: skip
    console.print(table)

    million = Table("JARTv1b, one pulse of 1 us", "s, one core", "at most", title="a million cells")
    of_million = {}
    pulses = {"SET, -0.342 V": -0.342, "RESET, 0.7065 V": 0.7065}
    kinds = {
        "spread of every cell": (JARTv1b.with_spread(), SPREAD_LIMIT),
        "nominal, by a table": (tabulate(JARTv1b(), list(pulses.values())), TABLE_LIMIT),
    }
    for (kind, (dev, most)), (pulse, v) in itertools.product(kinds.items(), pulses.items()):
        name = f"{kind}, {pulse}"
        with console.status(name):
            f, _, state = problem(dev, v, 1e-6, SPREAD_CELLS)
            seconds = 1e-3 * median_ms(lambda: jax.block_until_ready(f(state))) * 1e6 / SPREAD_CELLS**2
        of_million[name] = seconds
        million.add_row(name, f"{seconds:.2f}", f"{most:g}")
        if seconds > most:
            failed.append(f"JARTv1b, {name}: {seconds:.1f} s a million, at most {most}")
    console.print(million)
    if not options.quick:
        options.out.write_text(json.dumps({"cases": rows, "jart_million_s": of_million}, indent=1))
    for line in failed:
        console.print(f"[red]missed: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
