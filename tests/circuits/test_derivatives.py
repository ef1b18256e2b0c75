"""Derivatives of every order and mode, batching, and what they cost."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from oracle import array

import xbar_jax as xb
from xbar_jax.numerics import resolvent

pytestmark = pytest.mark.long

G, V = array(4, 3, low=1e2, high=1e3)


def solved(g, v, r, lead, end):
    wires = xb.Wires(r_word=r[0], r_bit=r[1], r_left=lead, r_right=end, r_top=end)
    return xb.solve(g * 1e-3, wires, left=v, right=0.3, top=0.1, tol=1e-14).i_bottom * 1e3


def solved_default(g, v, r, lead, end):
    del lead, end
    return xb.solve(g * 1e-3, xb.Wires(r_word=r[0], r_bit=r[1]), left=v, tol=1e-14).i_bottom * 1e3


def effective(g, v, r, lead, end):
    del end
    return v @ xb.effective_conductance(g * 1e-3, xb.Wires(r_word=r[0], r_bit=r[1], r_bottom=lead[0])) * 1e3


def effective_default(g, v, r, lead, end):
    del lead, end
    return v @ xb.effective_conductance(g * 1e-3, xb.Wires(r_word=r[0], r_bit=r[1])) * 1e3


@pytest.mark.parametrize("f", [solved, solved_default, effective, effective_default], ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_second_order_derivatives(f, mode, x64):
    # Conductances in mS, currents in mA and resistances near a kilo-ohm: numbers of order one for the differences.
    args = (jnp.asarray(G * 1e3), jnp.asarray(V), jnp.array([20.0, 30.0]), jnp.array([40.0, 50.0, 60.0, 70.0]), 80.0)
    check_grads(f, args, order=2, modes=(mode,), rtol=1e-5, atol=1e-6)


def test_hessian_modes_agree(x64):
    f = lambda g: solved_default(g, jnp.asarray(V), jnp.array([20.0, 30.0]), None, None).sum()
    g = jnp.asarray(G * 1e3)
    a, b = jax.jacfwd(jax.grad(f))(g), jax.jacrev(jax.jacfwd(f))(g)
    np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)


def test_batches_of_inputs_arrays_and_gradients_equal_loops(x64):
    rng = np.random.default_rng(0)
    g = jnp.asarray(rng.uniform(1e-5, 1e-3, (3, 5, 4)))
    v = jnp.asarray(rng.uniform(-1, 1, (3, 5)))
    r = jnp.array([0.0, 5.0, 50.0])
    f = lambda g, v, r: xb.solve(g, xb.Wires(r_word=r, r_bit=r), left=v).i_bottom
    for axes in (
        (0, 0, 0),
        (0, None, None),
        (None, 0, None),
        (None, None, 0),
        (0, 0, None),
        (None, 0, 0),
        (0, None, 0),
    ):
        pick = lambda k, axes=axes: [
            x if a is None and x.ndim == full - 1 else (x[k] if a == 0 else x[0])
            for x, a, full in zip((g, v, r), axes, (3, 2, 1), strict=True)
        ]
        given = [x if a == 0 else x[0] for x, a in zip((g, v, r), axes, strict=True)]
        for h in (f, jax.grad(lambda *a: f(*a).sum(), argnums=(0, 1, 2))):
            got = jax.vmap(h, in_axes=axes)(*given)
            for k in range(3):
                jax.tree.map(
                    lambda x, y, k=k: np.testing.assert_allclose(x[k], y, rtol=1e-7, atol=1e-12), got, h(*pick(k))
                )


def calls(f, *args):
    """Shapes of the operands of every call to the native solve in f(*args)."""
    text = jax.jit(f).lower(*args).as_text()
    lines = [x for x in text.splitlines() if "@xbar_cell_currents" in x]
    return [re.findall(r"tensor<([\dx]*)xf64>", x.split(" : ")[-1])[0] for x in lines]


def test_many_inputs_share_the_factors_of_their_array(x64):
    g, _ = array(6, 5)
    v = jnp.ones((7, 6))
    f = lambda g, v: xb.solve(g, xb.Wires(), left=v).i_bottom
    assert calls(jax.vmap(f, in_axes=(None, 0)), jnp.asarray(g), v) == ["1x6x5"]
    assert calls(jax.vmap(f), jnp.stack([jnp.asarray(g)] * 7), v) == ["7x6x5"]


HARD = [((128, 128), 50.0, None), ((64, 64), 1000.0, None), ((128, 8), 100.0, 0.0), ((96, 96), 100.0, None)]


@pytest.mark.parametrize(("shape", "r", "lead"), HARD)
def test_hard_arrays_converge_and_say_so(shape, r, lead, dtype):
    g = jnp.asarray(array(*shape, low=1e3, high=1e4)[0], dtype)
    wires = xb.Wires(r_word=r, r_bit=r, r_left=lead, r_bottom=lead)
    sol = xb.solve(g, wires, left=1.0)
    assert sol.converged, (sol.residual, sol.steps)
    assert sol.steps < 200
    want = xb.effective_conductance(g, wires).sum(0)
    tol = 1e-9 if dtype == np.float64 else 2e-5
    np.testing.assert_allclose(sol.i_bottom, want, rtol=0, atol=tol * np.abs(want).max())


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 16, 33])
@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, 1e3])
def test_resolvent_is_accurate_relative_to_itself(n, size, dtype):
    a = np.random.default_rng(n).uniform(-1, 1, (n, n))
    x = size * (a @ a.T + 0.1 * np.eye(n)) / n
    x = np.asarray(x, dtype).astype(float)
    w, q = np.linalg.eigh(x)
    want = (q * (w / (1 + w))) @ q.T
    np.testing.assert_allclose(
        resolvent(jnp.asarray(x, dtype)),
        want,
        rtol=0,
        atol=40 * np.finfo(dtype).eps * np.abs(want).max() * max(1, size) ** 0.5,
    )


def test_status_says_when_the_steps_run_out(x64):
    g = 1 / np.random.default_rng(0).uniform(1e3, 1e4, (64, 64))
    sol = xb.solve(g, xb.Wires(r_word=50.0, r_bit=50.0), left=1.0, max_steps=3)
    assert not sol.converged
    assert sol.residual > 1e-10
    assert sol.steps == 3
    with pytest.raises(RuntimeError, match="no convergence"):
        xb.solve(g, xb.Wires(r_word=50.0, r_bit=50.0), left=1.0, max_steps=3, throw=True)
    assert xb.solve(g, xb.Wires(r_word=50.0, r_bit=50.0), left=1.0, throw=True).converged


def test_read_is_exact_whichever_way_it_goes(dtype):
    g, _ = array(40, 30)
    v = np.random.default_rng(1).uniform(-1, 1, (2, 5, 40))
    wires = xb.Wires(r_word=3.0, r_bit=4.0)
    g, v = jnp.asarray(g, dtype), jnp.asarray(v, dtype)
    want = jax.vmap(jax.vmap(lambda v: xb.solve(g, wires, left=v).i_bottom))(v)
    for got in (xb.read(g, v, wires), jnp.stack([jnp.stack([xb.read(g, u, wires) for u in w]) for w in v])):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert xb.read(g, v[0, 0], wires).shape == (30,)
