"""Zero and infinite resistances, open cells and lines: exact, traced or not, with finite gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import array, nodal

import xbar_jax as xb

X23 = np.array([[1e3, 2e3, 3e3], [4e3, 5e3, 6e3]])
V23 = np.array([0.5, -0.2])


def current(r_word, r_bit, g, v, **more):
    return xb.solve(g, xb.Wires(r_word=r_word, r_bit=r_bit, **more), left=v).i_bottom


@pytest.mark.parametrize(("r_word", "r_bit"), [(0.0, 0.0), (0.0, 2.0), (2.0, 0.0), (np.inf, 1.0), (1.0, np.inf)])
@pytest.mark.parametrize("traced", [False, True])
def test_limit_of_small_and_large_resistance(r_word, r_bit, traced, x64):
    g, v = array(5, 4)
    f = jax.jit(current) if traced else current
    near = lambda r: 1e-9 if r == 0 else (1e15 if np.isinf(r) else r)
    want = nodal(g, near(r_word), near(r_bit), left=v)["i_bottom"]
    got = f(r_word, r_bit, g, v)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-15)
    # an isolated line carries 0; 1e15 ohm carries 1e-15 A, which is within rounding of the milliamperes elsewhere
    np.testing.assert_allclose(got, f(near(r_word), near(r_bit), g, v), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(
        np.asarray(v) @ xb.effective_conductance(g, xb.Wires(r_word=r_word, r_bit=r_bit)), want, rtol=1e-6, atol=1e-15
    )


@pytest.mark.parametrize("r", [0.0, np.inf])
def test_cut_wires_leave_what_touches_a_terminal(r, x64):
    # r_word = inf with terminals of their own: only the first and last cell of a row conduct.
    g, v = array(3, 4)
    sol = xb.solve(g, xb.Wires(r_word=np.inf, r_bit=1.0, r_left=5.0, r_right=7.0), left=v, right=v if r else None)
    want = nodal(g, 1e14, 1.0, left=v, right=v if r else None, r_left=5.0, r_right=7.0)
    np.testing.assert_allclose(sol.i_bottom, want["i_bottom"], rtol=1e-6, atol=1e-13)
    np.testing.assert_allclose(sol.i_right, want["i_right"], rtol=1e-6, atol=1e-13)


@pytest.mark.parametrize("ends", ["left", "both"])
def test_terminal_of_zero_ohm_holds_its_node(ends, dtype):
    g, v = (jnp.asarray(x, dtype) for x in array(4, 5))
    right = v if ends == "both" else None
    wires = xb.Wires(r_word=3.0, r_bit=3.0, r_left=0.0, r_bottom=0.0, r_right=0.0)
    sol = xb.solve(g, wires, left=v, right=right)
    np.testing.assert_allclose(sol.v_word[:, 0], v, rtol=1e-6)
    np.testing.assert_allclose(sol.v_bit[-1], 0, atol=1e-7)
    if right is not None:
        np.testing.assert_allclose(sol.v_word[:, -1], v, rtol=1e-5)
    want = nodal(g, 3.0, 3.0, left=v, right=right, r_left=1e-9, r_right=1e-9, r_bottom=1e-9)
    np.testing.assert_allclose(sol.i_bottom, want["i_bottom"], rtol=0, atol=2e-5 * np.abs(want["i_bottom"]).max())


def test_open_cells_rows_and_columns_carry_exactly_nothing(dtype):
    g, v = array(5, 4)
    g[2], g[:, 1] = 0.0, 0.0
    sol = xb.solve(jnp.asarray(g, dtype), xb.Wires(r_word=10.0, r_bit=20.0), left=jnp.asarray(v, dtype))
    assert sol.i_left[2] == 0 and sol.i_bottom[1] == 0
    assert not xb.solve(jnp.zeros((3, 3), dtype), xb.Wires(), left=1.0).i_bottom.any()


def test_gradients_at_the_limits_are_finite_and_right(x64):
    g, v = array(4, 3)
    g[1, 1] = 0.0
    total = lambda r_word, r_bit, g: (current(r_word, r_bit, g, v) * np.arange(1.0, 4.0)).sum()
    for point in ((0.0, 0.0), (0.0, 2.0), (3.0, 0.0)):
        got = jax.grad(total, argnums=(0, 1, 2))(*point, jnp.asarray(g))
        h = 1e-4
        for k in (0, 1):
            step = [h if j == k else 0.0 for j in (0, 1)]
            # one-sided second order at the bound
            f = [float(total(point[0] + s * step[0], point[1] + s * step[1], g)) for s in (0, 1, 2)]
            np.testing.assert_allclose(got[k], (-3 * f[0] + 4 * f[1] - f[2]) / (2 * h), rtol=1e-5)
        up = np.array(g)
        up[1, 1] += 1e-9
        np.testing.assert_allclose(got[2][1, 1], (total(*point, up) - total(*point, g)) / 1e-9, rtol=1e-4)


def test_gradient_to_an_infinite_resistance_is_zero(x64):
    g, v = array(3, 3)
    f = lambda r_right, r_top: xb.solve(g, xb.Wires(r_right=r_right, r_top=r_top), left=v).i_bottom.sum()
    assert jax.grad(f, argnums=(0, 1))(np.inf, np.inf) == (0.0, 0.0)
    f = lambda r: current(r, 1.0, g, v).sum()
    assert jax.grad(f)(np.inf) == 0.0
    assert jax.grad(lambda r: xb.effective_conductance(g, xb.Wires(r_word=r)).sum())(np.inf) == 0.0


def test_terminal_left_none_follows_the_segment(x64):
    g, v = array(3, 4)
    with_lead = jax.grad(lambda r: current(r, 1.0, g, v).sum())(2.0)
    parts = jax.grad(lambda r, lead: current(r, 1.0, g, v, r_left=lead).sum(), argnums=(0, 1))(2.0, 2.0)
    np.testing.assert_allclose(with_lead, parts[0] + parts[1], rtol=1e-9)


@pytest.mark.parametrize("r", [1e-6, 1e-3, 1.0, 50.0])
@pytest.mark.parametrize("lead", [None, 50.0])
def test_float32_keeps_its_accuracy_for_any_resistance(r, lead):
    g, v = array(48, 32, seed=3)
    with jax.enable_x64(True):
        wires = xb.Wires(r_word=r, r_bit=r, r_left=lead, r_bottom=lead)
        want = np.asarray(current(r, r, g, v, r_left=lead, r_bottom=lead))
        lost = v @ g - want
    single = lambda x: jnp.asarray(x, jnp.float32)
    for got in (
        current(r, r, single(g), single(v), r_left=lead, r_bottom=lead),
        single(v) @ xb.effective_conductance(single(g), wires),
    ):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())
    assert np.abs(lost).max() > 0


@settings(max_examples=40, deadline=None)
@given(
    rows=st.sampled_from([1, 2, 5]),
    cols=st.sampled_from([1, 3, 4]),
    seed=st.integers(0, 10**6),
    r=st.lists(st.sampled_from([0.0, 1e-6, 1.0, 30.0, 1e4]), min_size=6, max_size=6),
    open_share=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_charge_and_energy_are_conserved(rows, cols, seed, r, open_share):
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        g = rng.uniform(1e-6, 1e-3, (rows, cols)) * (rng.uniform(size=(rows, cols)) >= open_share)
        names = ("r_word", "r_bit", "r_left", "r_right", "r_top", "r_bottom")
        wires = xb.Wires(**{n: x + (1e-3 if n == "r_left" else 0.0) for n, x in zip(names, r, strict=True)})
        left, right = rng.uniform(-1, 1, (2, rows))
        top = rng.uniform(-1, 1, cols) if r[4] + r[5] + r[1] * (rows - 1) > 0 else 0.0
        sol = xb.solve(g, wires, left=left, right=right, top=top, bottom=0.0)
        assert sol.converged, (sol.residual, sol.steps)
        flow = [np.asarray(x) for x in (sol.i_left, sol.i_top, -sol.i_right, -sol.i_bottom)]
        largest = max(np.abs(x).max() for x in flow) + 1e-30
        assert abs(sum(x.sum() for x in flow)) <= 1e-9 * largest * rows * cols
        np.testing.assert_allclose(sol.i_cell, g * (sol.v_word - sol.v_bit), rtol=0, atol=1e-9 * max(largest, 1e-3))
        assert sol.power >= -1e-9 * largest
