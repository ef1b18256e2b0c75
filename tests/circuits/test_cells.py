"""The laws of single cells: closed forms, scalar roots, no overflow, derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.optimize import brentq

import xbar_jax as xb

V = np.array([[-1.3, -0.2, 0.0, 1e-4], [0.05, 0.4, 1.0, 3.0]])


def ekv(v_drain, v_source, v_gate, v_threshold=0.5, beta=1e-3, n=1.3, phi=0.02585):
    vp = (v_gate - v_threshold) / n
    half = lambda v: np.logaddexp(0.0, (vp - v) / (2 * phi)) ** 2
    return 2 * n * beta * phi**2 * (half(v_source) - half(v_drain))


def series(first, second, v):
    """Current of two scalar laws in series, by bisection."""
    if v == 0:
        return 0.0
    x = brentq(lambda x: first(x) - second(v - x), min(0.0, v), max(0.0, v), xtol=1e-300, rtol=1e-15)
    return first(x)


def test_sinh_is_its_closed_form(dtype):
    g, k = np.full(V.shape, 2e-4), np.array([[0.0, 1e-6, 3.0, 5.0]])
    i = xb.cells.Sinh(jnp.asarray(g, dtype), jnp.asarray(np.repeat(k, 2, 0), dtype)).current(jnp.asarray(V, dtype))
    want = np.where(k > 0, g * np.sinh(k * V) / np.where(k > 0, k, 1), g * V)
    assert i.dtype == dtype
    np.testing.assert_allclose(i, want, rtol=32 * float(np.finfo(dtype).eps))


def test_sinh_joins_its_two_formulas_smoothly(x64):
    # The series and the exponential meet at |k v| = 0.6; three derivatives agree with the closed form on both sides.
    v = jnp.array([0.5999, 0.6001, -0.5999, -0.6001, 0.0])
    law = lambda v: xb.cells.Sinh(1.0, 1.0).current(v)
    for want in (jnp.sinh, jnp.cosh, jnp.sinh, jnp.cosh):
        np.testing.assert_allclose(jax.vmap(law)(v), want(v), rtol=1e-12)
        law = jax.grad(law)


@pytest.mark.parametrize("v", [5.0, 13.0, -30.0])
@pytest.mark.parametrize("x", [0.0, 0.5, 1.0])
def test_no_overflow_times_zero(v, x):
    """O11: 6.91 * 13 V overflows sinh in float32, but not the current; inf * 0 never arises."""

    def current(v, x, k):
        return xb.cells.Sinh((1 - x) * 1.0 + x * 5.87e-11, k).current(v)

    arguments = (jnp.float32(v), jnp.float32(x), jnp.float32(6.91))
    value, grads = jax.value_and_grad(current, (0, 1, 2))(*arguments)
    assert not np.isnan(value) and not np.isnan(np.array(grads)).any()
    g = np.float64((1 - x) + x * 5.87e-11)
    if abs(v) < 30:  # beyond, the exponent is held
        np.testing.assert_allclose(value, g * np.sinh(6.91 * v) / 6.91, rtol=3e-5)
    if abs(v) < 30 and g * np.cosh(6.91 * v) < np.finfo(np.float32).max:
        np.testing.assert_allclose(grads[0], g * np.cosh(6.91 * v), rtol=3e-5)
    assert np.isfinite(value)


def test_an_open_cell_stays_open_at_any_voltage():
    i, slope = jax.jvp(xb.cells.Sinh(0.0, 6.91).current, (jnp.float32(-1e3),), (jnp.float32(1.0),))
    assert i == 0 and slope == 0


def test_one_selector_is_the_scalar_root(dtype):
    g, k, g_s, k_s = 1e-4, 2.0, 1e-8, 14.0
    cells = xb.cells.OneSelector(
        xb.cells.Sinh(jnp.full(V.shape, g, dtype), jnp.asarray(k, dtype)),
        xb.cells.Sinh(jnp.asarray(g_s, dtype), jnp.asarray(k_s, dtype)),
    )
    i = jax.jit(lambda c, v: c.current(v))(cells, jnp.asarray(V, dtype))
    sinh = lambda g, k: lambda v: g * np.sinh(k * v) / k
    want = np.vectorize(lambda v: series(sinh(g, k), sinh(g_s, k_s), v))(V)
    np.testing.assert_allclose(i, want, rtol=300 * float(np.finfo(dtype).eps))
    # Orders of magnitude beyond the range of either law alone.
    far = cells.current(jnp.full(V.shape, 40.0, dtype))
    np.testing.assert_allclose(far, series(sinh(g, k), sinh(g_s, k_s), 40.0), rtol=3000 * float(np.finfo(dtype).eps))


def test_transistor_is_the_scalar_root(dtype):
    g, k = 3e-4, 2.0
    v_bit = np.where(V > 0.3, 0.1, 0.0)
    gate = np.array([0.2, 2.5])
    cells = xb.cells.Transistor(
        xb.cells.Sinh(jnp.full(V.shape, g, dtype), jnp.asarray(k, dtype)), v_gate=jnp.asarray(gate, dtype)
    )
    cells = jax.tree.map(lambda x: jnp.asarray(x, dtype), cells)
    i = jax.jit(lambda c, w, b: c.current(w, b))(cells, jnp.asarray(V, dtype), jnp.asarray(v_bit, dtype))
    cell = lambda v: g * np.sinh(k * v) / k
    want = [
        [series(cell, lambda d, b=b, vg=vg: ekv(b + d, b, vg), w - b) for w, b in zip(*row, strict=True)]
        for *row, vg in zip(V, v_bit, gate, strict=True)
    ]
    # A gate overdrive is a difference of voltages: exp((v_gate - v_threshold) / n phi) magnifies its rounding.
    np.testing.assert_allclose(i, want, rtol=2e4 * float(np.finfo(dtype).eps), atol=0)
    assert abs(i[0, -1]) < 1e-2 * abs(i[1, -1])  # the gate works, and row by row


def test_transistor_is_symmetric_in_source_and_drain(x64):
    cell = xb.cells.Ohmic(jnp.full((1, 1), 1e3))  # no resistance to speak of
    at = lambda w, b: xb.cells.Transistor(cell, v_gate=1.5).current(jnp.full((1, 1), w), jnp.full((1, 1), b))
    np.testing.assert_allclose(at(0.3, 0.1), -at(0.1, 0.3), rtol=1e-6)
    np.testing.assert_allclose(at(0.3, 0.1), ekv(0.3, 0.1, 1.5), rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["selector", "transistor"])
def test_derivatives_of_the_eliminated_node(kind, x64):
    v = jnp.array([[-0.7, 0.3], [0.9, 1.6]])

    def current(g, k, third, v):
        cell = xb.cells.Sinh(g * 1e-4, k)
        if kind == "selector":
            return 1e4 * xb.cells.OneSelector(cell, xb.cells.Sinh(third * 1e-6, 6.0)).current(v)
        return 1e4 * xb.cells.Transistor(cell, v_gate=third * 1.2, phi=0.1).current(v, 0.1 * v)

    arguments = (jnp.array([[1.0, 2.0], [0.5, 1.0]]), jnp.asarray(2.0), jnp.asarray(1.0), v)
    check_grads(current, arguments, order=2, modes=("fwd", "rev"), rtol=1e-5, atol=1e-5)


def test_derivatives_where_nothing_flows(x64):
    series = xb.cells.OneSelector(xb.cells.Sinh(1e-4, 2.0), xb.cells.Sinh(3e-4, 2.0))
    np.testing.assert_allclose(jax.grad(series.current)(0.0), 1 / (1e4 + 1 / 3e-4), rtol=1e-12)
    open_cell = series.replace(cell=xb.cells.Ohmic(0.0))
    value, slope = jax.value_and_grad(open_cell.current)(1.0)
    assert value == 0 and slope == 0
