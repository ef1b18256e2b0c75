"""What benchmarks/solve.py asks beyond one linear solve: derivatives, batches, non-linear cells, float32, growth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peers import array
from timing import interleaved_ms

import xbar_jax as xb

SOLVE, READ, EFFECTIVE = "xbar_jax solve", "xbar_jax read", "xbar_jax effective_conductance"
OURS = (SOLVE, READ, EFFECTIVE)
GRADIENT, FORWARD = "gradient", "forward"


def problem(n: int, case: str, vectors: int = 1):
    """Conductances, inputs [vectors, n] and wires of one of the arrays."""
    resistance, v, r = array(n, case, vectors)
    return jnp.asarray(1 / resistance), jnp.asarray(v), xb.Wires(r_word=r, r_bit=r)


def waiting(f: Callable, *args: Any) -> Callable[[], Any]:
    """A call of the compiled ``f`` that waits for its result."""
    f = jax.jit(f)
    return lambda: jax.block_until_ready(f(*args))


def ours(resistance: np.ndarray, v: np.ndarray, r: float) -> dict[str, Callable[[], Any]]:
    """Our ways to the output currents; of one vector, from 64x64 on, their sum alone and with its gradient to all inputs."""
    g, v, wires = jnp.asarray(1 / resistance), jnp.asarray(v), xb.Wires(r_word=r, r_bit=r)

    def each(g, v):
        if len(v) > 1:
            return jax.vmap(lambda v: xb.solve(g, wires, left=v))(v)
        return jax.tree.map(lambda x: x[None], xb.solve(g, wires, left=v[0]))

    calls = {
        SOLVE: waiting(each, g, v),
        READ: waiting(lambda g, v: xb.read(g, v, wires), g, v),
        EFFECTIVE: waiting(lambda g, v: v @ xb.effective_conductance(g, wires), g, v),
    }
    if len(v) == 1 and len(g) >= 64:
        total = lambda g, v: each(g, v).i_bottom.sum()
        calls[FORWARD] = waiting(total, g, v)
        calls[GRADIENT] = waiting(jax.value_and_grad(total, argnums=(0, 1)), g, v)
    return calls


def growth(small: int = 64, large: int = 512) -> dict:
    """Exponent of the time of one std vector against N."""
    calls = {n: ours(*array(n, "std", 1))[SOLVE] for n in (small, large)}
    ms = interleaved_ms(calls)
    return dict(sizes=[small, large], ms=list(ms.values()), exponent=math.log(ms[large] / ms[small], large / small))


def many_arrays(n: int = 64, arrays: int = 64) -> dict:
    """Arrays under vmap, one vector each, against one of them."""
    _, v, wires = problem(n, "std")
    low, high = 1e-5, 1e-3
    g = jnp.exp(jax.random.uniform(jax.random.key(0), (arrays, n, n), minval=math.log(low), maxval=math.log(high)))
    solve = lambda g: xb.solve(g, wires, left=v[0]).i_bottom
    ms = interleaved_ms({"one": waiting(solve, g[0]), "all": waiting(jax.vmap(solve), g)})
    return dict(size=n, arrays=arrays, one_ms=ms["one"], all_ms=ms["all"], ratio=ms["all"] / ms["one"])


def newton(n: int) -> list[dict]:
    """Non-linear cells at 1 V: Newton steps, and the time against one linear solve of the same array."""
    g, _, wires = problem(n, "std")
    steepness = (3.0, 5.0)
    calls = {k: waiting(lambda g, k=k: xb.solve(xb.cells.Sinh(g, k), wires, left=1.0), g) for k in steepness}
    ms = interleaved_ms(calls | {0.0: waiting(lambda g: xb.solve(g, wires, left=1.0), g)})
    found = {k: call() for k, call in calls.items()}
    return [
        dict(size=n, k=k, steps=int(x.steps), converged=bool(x.converged), ms=ms[k], linear_ms=ms[0.0], solves=ms[k] / ms[0.0])
        for k, x in found.items()
    ]  # fmt: skip


# Case, resistance of a segment (None: that of the case), largest error asked of float32.
SINGLE = (("std", None, 2e-5), ("hard", None, 2e-5), ("std", 1e-3, 2e-5), ("std", 1e-6, 2e-5))


def single(n: int) -> list[dict]:
    """Output currents in float32 against float64, relative to the largest."""
    found = []
    for case, r, asked in SINGLE:
        g, v, wires = problem(n, case)
        wires = wires if r is None else xb.Wires(r_word=r, r_bit=r)
        wide, narrow = (np.asarray(xb.solve(g, wires, left=v[0], dtype=d).i_bottom) for d in ("float64", "float32"))
        error = float(np.abs(narrow - wide).max() / np.abs(wide).max())
        found.append(dict(case=case, size=n, r=wires.r_word, error=error, asked=asked))
    return found
