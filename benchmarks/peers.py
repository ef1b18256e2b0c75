"""The arrays of benchmarks/solve.py, and other tools that solve them exactly.

Peers get the sparse nodal matrix ready assembled (assembly is not timed), except badcrossbar, which takes the
resistances. One that is not installed is skipped and named.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import logging
from collections.abc import Callable
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

# Name -> lowest and highest resistance of a cell (log-uniform), resistance of a segment, ohm.
CASES = {"std": (1e3, 1e5, 1.0), "hard": (1e3, 1e4, 10.0), "r = 100": (1e3, 1e4, 100.0)}

Call = Callable[[], np.ndarray]


def array(n: int, case: str, vectors: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Resistances [n, n], inputs [vectors, n] and the resistance of a segment."""
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
    """Currents at the bottom [vectors, n] from node voltages."""
    return x.reshape(2, n, n, -1)[1, -1].T / r


def exact(resistance: np.ndarray, v: np.ndarray, r: float) -> np.ndarray:
    """Output currents [vectors, n] by a sparse LU."""
    x = spla.splu(nodal(resistance, r)).solve(right_hand_sides(v, r))
    return outputs(x, resistance.shape[0], r)


@functools.cache
def installed(name: str) -> ModuleType | None:
    """The module, or None with a line that says it is skipped."""
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed: skipped", flush=True)
        return None


def peers(resistance: np.ndarray, v: np.ndarray, r: float) -> dict[str, Call]:
    """A call for each installed peer that factors, solves and returns the output currents [vectors, n]."""
    n = resistance.shape[0]
    k, b = nodal(resistance, r), right_hand_sides(v, r)
    coo = k.tocoo()
    rows, cols, data, bj = jnp.asarray(coo.row), jnp.asarray(coo.col), jnp.asarray(coo.data), jnp.asarray(b)
    count = itertools.count(1)
    # A solver that caches factors by value must not be timed on a repeated matrix.
    fresh = lambda: data * (1 + 1e-15 * next(count))

    def splu():
        lu = spla.splu(k, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}, diag_pivot_thresh=0.0)
        return outputs(lu.solve(b), n, r)

    found: dict[str, Call] = {"scipy splu": splu}
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
