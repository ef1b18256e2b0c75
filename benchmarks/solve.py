"""One array with wires, against the exact peers, in one run: ``python benchmarks/solve.py [--quick]``.

Cases (square, float64, relative residual 1e-10): "std" devices log-uniform 1k-100k ohm, r = 1 ohm;
"hard" 1k-10k ohm, r = 10 ohm. A peer that is not installed is skipped and named. Peers get the sparse nodal
matrix ready assembled (assembly is not timed), except badcrossbar, which takes the resistances.
Prints a table and writes benchmarks/solve.json.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from rich.console import Console
from rich.table import Table
from timing import median_ms

import xbar_jax as xb

SOLVE, EFFECTIVE = "xbar_jax solve", "xbar_jax effective_conductance"
SKIPPED: list[str] = []
CASES = {"std": (1e3, 1e5, 1.0), "hard": (1e3, 1e4, 10.0)}


def array(n: int, case: str, vectors: int):
    low, high, r = CASES[case]
    rng = np.random.default_rng(n)
    resistance = np.exp(rng.uniform(np.log(low), np.log(high), (n, n)))
    return resistance, rng.uniform(0, 1, (vectors, n)), r


def nodal(resistance: np.ndarray, r: float) -> sp.csc_matrix:
    """Chen's node equations for the default terminals, sparse."""
    m, n = resistance.shape
    g = sp.diags(1 / resistance.ravel())

    def chain(k: int, lead: int):
        """Segments between k nodes and one to the source at node ``lead``."""
        diagonal = np.full(k, 2.0)
        diagonal[[0, -1]] = 1.0
        diagonal[lead] += 1.0
        return sp.diags([-np.ones(k - 1), diagonal, -np.ones(k - 1)], [-1, 0, 1]) / r

    word = sp.kron(sp.eye(m), chain(n, 0))
    bit = sp.kron(chain(m, -1), sp.eye(n))
    return sp.bmat([[word + g, -g], [-g, bit + g]]).tocsc()


def right_hand_sides(v: np.ndarray, r: float) -> np.ndarray:
    vectors, n = v.shape
    b = np.zeros((vectors, 2, n, n))
    b[:, 0, :, 0] = v / r
    return b.reshape(vectors, -1).T


def outputs(x: np.ndarray, n: int, r: float) -> np.ndarray:
    return x.reshape(2, n, n, -1)[1, -1].T / r


def peers(resistance, v, r) -> dict[str, Callable[[], np.ndarray]]:
    """A call for each installed peer that factors, solves and returns the output currents [vectors, n]."""
    n = resistance.shape[0]
    k, b = nodal(resistance, r), right_hand_sides(v, r)
    coo = k.tocoo()
    rows, cols, data, bj = jnp.asarray(coo.row), jnp.asarray(coo.col), jnp.asarray(coo.data), jnp.asarray(b)
    count = itertools.count(1)
    # A solver that caches factors by value must not be timed on a repeated matrix.
    fresh = lambda: data * (1 + 1e-15 * next(count))
    found: dict[str, Callable[[], np.ndarray]] = {}

    def splu():
        lu = spla.splu(k, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}, diag_pivot_thresh=0.0)
        return outputs(lu.solve(b), n, r)

    found["scipy splu"] = splu
    if klujax := installed("klujax"):
        klu = jax.jit(lambda d: klujax.solve(rows, cols, d, bj))
        found["klujax"] = lambda: outputs(np.asarray(klu(fresh())), n, r)
    if sparsax := installed("sparsax"):
        cholmod = jax.jit(lambda d: sparsax.solve(rows, cols, d, bj if bj.shape[1] > 1 else bj[:, 0]))
        found["sparsax"] = lambda: outputs(np.asarray(cholmod(fresh())), n, r)
    if badcrossbar := installed("badcrossbar"):
        logging.disable(logging.INFO)
        only = dict(node_voltages=False, all_currents=False)
        found["badcrossbar"] = lambda: np.asarray(badcrossbar.compute(v.T, resistance, r_i=r, **only).currents.output)
    return found


def installed(name: str):
    """The module, or None with a line that says it is skipped."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if name not in SKIPPED:
            print(f"{name} is not installed: skipped")
            SKIPPED.append(name)
        return None


def ours(resistance, v, r) -> dict[str, Callable[[], Any]]:
    """Our two ways to the output currents, the forward pass alone and its gradient to all cells and drives."""
    g, v, wires = jnp.asarray(1 / resistance), jnp.asarray(v), xb.Wires(r_word=r, r_bit=r)
    solve = jax.jit(lambda g, v: jax.vmap(lambda v: xb.solve(g, wires, left=v))(v))
    effective = jax.jit(lambda g, v: v @ xb.effective_conductance(g, wires))
    total = lambda g, v: jax.vmap(lambda v: xb.solve(g, wires, left=v).i_bottom)(v).sum()
    forward, gradient = jax.jit(total), jax.jit(jax.value_and_grad(total, argnums=(0, 1)))
    return {
        name: functools.partial(lambda f: jax.block_until_ready(f(g, v)), f)
        for name, f in ((SOLVE, solve), (EFFECTIVE, effective), ("forward", forward), ("gradient", gradient))
    }


def memory(case: str, n: int, tool: str) -> float:
    """Memory of one solve of one tool in a process of its own, above what the imports take, MiB."""
    program = (
        "import re, sys, jax; sys.path.insert(0, sys.argv[1]); import solve; "
        "jax.config.update('jax_enable_x64', True); [solve.installed(p) for p in ('klujax', 'sparsax', 'badcrossbar')]; "
        "case = solve.array(int(sys.argv[3]), sys.argv[2], 1); jax.numpy.ones(3).block_until_ready(); "
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1024; before = peak(); "
        "call = (solve.ours(*case) | solve.peers(*case))[sys.argv[4]]; call(); print('MiB', peak() - before)"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", program, here, case, str(n), tool], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split("MiB")[-1])


def ratios(records: list[dict]) -> list[str]:
    """How many times faster the better of ours is than the best peer and than badcrossbar, case by case."""
    lines = []
    for key in dict.fromkeys((x["case"], x["size"], x["vectors"]) for x in records):
        here = {x["tool"]: x["ms"] for x in records if (x["case"], x["size"], x["vectors"]) == key}
        mine = min((ms, t) for t, ms in here.items() if t in (SOLVE, EFFECTIVE))
        others = sorted((ms, t) for t, ms in here.items() if t not in (SOLVE, EFFECTIVE, "gradient"))
        shown = [others[0], *(x for x in others[1:] if x[1] == "badcrossbar")]
        against = ", ".join(f"{ms / mine[0]:.1f} times faster than {t}" for ms, t in shown)
        lines.append(f"{key[0]} {key[1]} x {key[2]} vectors: {mine[1]} is {against}")
    return lines


def measure(case: str, n: int, vectors: int) -> list[dict]:
    """Every tool on one array."""
    resistance, v, r = array(n, case, vectors)
    exact = outputs(spla.splu(nodal(resistance, r)).solve(right_hand_sides(v, r)), n, r)
    calls = peers(resistance, v, r) | ours(resistance, v, r)
    plain = median_ms(calls.pop("forward"))
    records = []
    for tool, call in calls.items():
        ms, found = median_ms(call), call()
        record = dict(case=case, size=n, vectors=vectors, tool=tool, ms=ms)
        if tool == "gradient":
            record["forwards"] = ms / plain
        else:
            i = found.i_bottom if tool == SOLVE else found
            record["error"] = float(np.abs(np.asarray(i) - exact).max() / np.abs(exact).max())
        if tool == SOLVE:
            record["iterations"] = int(found.steps.max())
        if vectors == 1 and n >= 128:
            record["MiB"] = memory(case, n, tool)
        records.append(record)
        print(f"{case} {n} x {vectors}: {tool} {ms:.2f} ms", flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="16 and 64 only")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("solve.json"))
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    records = []
    for case in CASES:
        for n in (16, 64) if args.quick else (16, 64, 128, 256):
            for vectors in (1, 64) if case == "std" and n <= 128 else (1,):
                records += measure(case, n, vectors)
    shown = {"case": "", "size": "", "vectors": "", "tool": "", "ms": ".2f", "error": ".0e", "iterations": "", "forwards": ".2f", "MiB": ".0f"}  # fmt: skip
    table = Table(*shown, title="Exact solves with wires, float64")
    for x in records:
        table.add_row(*(format(x[k], spec) if k in x else "" for k, spec in shown.items()))
    Console(width=120).print(table)
    for line in ratios(records):
        print(line)
    args.out.write_text(json.dumps(dict(records=records, cores=os.cpu_count(), jax=jax.__version__), indent=1) + "\n")


if __name__ == "__main__":
    main()
