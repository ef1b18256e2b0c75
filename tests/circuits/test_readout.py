"""Branch currents, losses, IR drop and sneak paths: conservation at every node, closed forms, limits, derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import array, nodal

import xbar_jax as xb

FIELDS = ("r_word", "r_bit", "r_left", "r_right", "r_top", "r_bottom")
RESISTANCES = [0.0, 1e-6, 1.0, 30.0, 1e4, np.inf]


@jax.jit
def read_off(g, r, left, right, top):
    """Everything for one array, the resistances as numbers: one compilation a shape."""
    wires = xb.Wires(**dict(zip(FIELDS, r, strict=True)))
    sol = xb.solve(g, wires, left=left, right=right, top=top)
    return sol, sol.i_word, sol.i_bit, sol.v_cell, xb.losses(sol, wires)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([(4, 3), (1, 5), (3, 1)]),
    seed=st.integers(0, 10**6),
    r=st.lists(st.sampled_from(RESISTANCES), min_size=6, max_size=6),
    open_share=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_kirchhoff_at_every_node_and_the_balance_of_power(shape, seed, r, open_share):
    rows, cols = shape
    with jax.enable_x64(True):
        rng = np.random.default_rng(seed)
        g = rng.uniform(1e-6, 1e-3, shape) * (rng.uniform(size=shape) >= open_share)
        r = np.array(r)
        r[[2, 5]] = np.where(np.isinf(r[[2, 5]]), 7.0, r[[2, 5]])  # a line with a closed cell needs a terminal
        r[2] += 1e-3  # two drives without any resistance between them are a short circuit
        r[3] = 5.0 if np.isinf(r[3]) else r[3]
        r[4] = 5.0 if np.isinf(r[4]) else r[4] + 1e-3
        left, right = rng.uniform(-1, 1, (2, rows))
        top = rng.uniform(-1, 1, cols)
        sol, i_word, i_bit, v_cell, lost = read_off(g, r, left, right, top)
        assert sol.converged
        i_word, i_bit = np.asarray(i_word), np.asarray(i_bit)
        assert i_word.shape == (rows, cols + 1) and i_bit.shape == (rows + 1, cols)
        largest = max(np.abs(i_word).max(), np.abs(i_bit).max(), 1e-12)
        close = dict(rtol=0, atol=1e-9 * largest)
        np.testing.assert_allclose(i_word[:, :-1] - i_word[:, 1:], sol.i_cell, **close)
        np.testing.assert_allclose(i_bit[1:] - i_bit[:-1], sol.i_cell, **close)
        np.testing.assert_array_equal(i_word[:, [0, -1]], np.stack([sol.i_left, sol.i_right], 1))
        np.testing.assert_array_equal(i_bit[[0, -1]], np.stack([sol.i_top, sol.i_bottom]))
        # Ohm's law in every segment, where node voltages say anything: r i is the fall of voltage.
        if np.isfinite(r[0]):
            np.testing.assert_allclose(r[0] * i_word[:, 1:-1], -np.diff(sol.v_word, axis=1), rtol=0, atol=1e-9)
        else:
            np.testing.assert_allclose(i_word[:, 1:-1], 0, **close)
        if np.isfinite(r[1]):
            np.testing.assert_allclose(r[1] * i_bit[1:-1], -np.diff(sol.v_bit, axis=0), rtol=0, atol=1e-9)
        else:
            np.testing.assert_allclose(i_bit[1:-1], 0, **close)
        if np.isfinite(r[:2]).all():
            np.testing.assert_allclose(v_cell, sol.v_word - sol.v_bit, rtol=0, atol=1e-12)
        np.testing.assert_allclose(lost.total, sol.power, rtol=1e-8, atol=1e-9 * largest)
        parts = jax.tree.leaves(lost)
        assert all((np.asarray(p) >= -1e-9 * largest).all() for p in parts)
        np.testing.assert_allclose(sum(p.sum() for p in parts), lost.total, rtol=1e-12, atol=1e-30)


def test_branch_currents_against_the_nodal_oracle(x64):
    g, v = array(5, 4)
    sol = xb.solve(g, xb.Wires(r_word=3.0, r_bit=7.0), left=v)
    want = nodal(g, 3.0, 7.0, left=v)
    np.testing.assert_allclose(sol.i_word[:, 1:-1], -np.diff(want["v_word"], axis=1) / 3.0, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(sol.i_bit[1:-1], -np.diff(want["v_bit"], axis=0) / 7.0, rtol=1e-8, atol=1e-14)


def test_branch_currents_keep_float32_where_the_resistance_is_tiny():
    g, v = array(64, 48)
    with jax.enable_x64(True):
        exact = xb.solve(g, xb.Wires(r_word=1e-6, r_bit=1e-6), left=v)
        words, bits = np.asarray(exact.i_word), np.asarray(exact.i_bit)
    sol = xb.solve(jnp.asarray(g, jnp.float32), xb.Wires(r_word=1e-6, r_bit=1e-6), left=jnp.asarray(v, jnp.float32))
    # The open ends are summed from themselves: relative accuracy in the smallest branch, of one cell's current.
    np.testing.assert_allclose(sol.i_word[:, -2], words[:, -2], rtol=1e-5)
    np.testing.assert_allclose(sol.i_bit[1], bits[1], rtol=1e-5)
    np.testing.assert_allclose(sol.i_word, words, rtol=0, atol=2e-6 * np.abs(words).max())
    assert (np.asarray(sol.i_word)[:, -1] == 0).all() and (np.asarray(sol.i_bit)[0] == 0).all()


def test_branch_currents_of_a_batch(x64):
    g, v = array(4, 3)
    vs = np.stack([v, -2 * v])
    wires = xb.Wires(r_word=2.0, r_bit=3.0)
    batch = jax.vmap(lambda v: xb.solve(g, wires, left=v))(vs)
    for k in (0, 1):
        one = xb.solve(g, wires, left=vs[k])
        for name in ("v_cell", "i_word", "i_bit"):
            np.testing.assert_allclose(getattr(batch, name)[k], getattr(one, name), rtol=1e-9, atol=1e-15)


def test_losses_of_one_cell_by_hand(x64):
    wires = xb.Wires(r_word=10.0, r_bit=20.0, r_left=30.0, r_bottom=60.0)
    lost = xb.losses(xb.solve(np.array([[1e-2]]), wires, left=1.9), wires)  # 30 + 100 + 60 ohm
    np.testing.assert_allclose([lost.left[0], lost.cell[0, 0], lost.bottom[0]], [3e-3, 1e-2, 6e-3], rtol=1e-9)
    assert lost.word.shape == (1, 0) and lost.bit.shape == (0, 1)
    assert lost.top[0] == 0 and lost.right[0] == 0
    np.testing.assert_allclose([lost.terminals, lost.total], [9e-3, 1.9e-2], rtol=1e-9)


def test_losses_default_leads_are_one_segment_and_may_differ(x64):
    g, v = array(4, 3)
    leads, explicit = xb.Wires(r_word=3.0, r_bit=5.0), xb.Wires(r_word=3.0, r_bit=5.0, r_left=3.0, r_bottom=5.0)
    sol = xb.solve(g, leads, left=v)
    for a, b in zip(jax.tree.leaves(xb.losses(sol, leads)), jax.tree.leaves(xb.losses(sol, explicit)), strict=True):
        np.testing.assert_array_equal(a, b)
    each = xb.Wires(r_word=np.arange(8.0).reshape(4, 2), r_bit=np.full((3, 3), np.inf), r_left=np.arange(4.0))
    lost = xb.losses(sol, each)
    np.testing.assert_allclose(lost.word, np.arange(8.0).reshape(4, 2) * sol.i_word[:, 1:-1] ** 2, rtol=1e-12)
    np.testing.assert_allclose(lost.left, np.arange(4.0) * sol.i_left**2, rtol=1e-12)
    assert not np.asarray(lost.bit).any()
    assert not xb.losses(sol, None).word.any()


@pytest.mark.long
def test_losses_differentiate_also_where_a_resistance_is_infinite(x64):
    g, v = array(4, 3)

    def cells(r, right, g):
        wires = xb.Wires(r_word=r, r_bit=2.0, r_right=right)
        lost = xb.losses(xb.solve(g, wires, left=v), wires)
        return lost.cell.sum() + 2 * lost.word.sum() + 3 * lost.terminals

    got = jax.grad(cells, argnums=(0, 1, 2))(3.0, np.inf, g)
    assert got[1] == 0.0
    np.testing.assert_allclose(got[0], (cells(3.001, np.inf, g) - cells(2.999, np.inf, g)) / 2e-3, rtol=1e-6)
    up, down = g.copy(), g.copy()
    up[1, 2], down[1, 2] = 1.001 * g[1, 2], 0.999 * g[1, 2]
    slope = (cells(3.0, np.inf, up) - cells(3.0, np.inf, down)) / (up[1, 2] - down[1, 2])
    np.testing.assert_allclose(got[2][1, 2], slope, rtol=1e-5)
    assert jax.grad(cells)(np.inf, np.inf, g) == 0.0


def test_ir_drop_of_one_cell_by_hand_and_of_none(x64):
    sol = xb.solve(np.array([[1e-2]]), xb.Wires(r_left=30.0, r_bottom=60.0), left=-1.9)
    lost = xb.ir_drop(sol, left=-1.9)
    np.testing.assert_allclose([lost.drop[0, 0], lost.relative[0, 0], lost.worst], [-0.9, 0.9 / 1.9, 0.9], rtol=1e-9)
    g, v = array(4, 3)
    assert np.abs(xb.ir_drop(xb.solve(g, None, left=v), left=v).drop).max() < 1e-15


def test_ir_drop_is_worst_far_from_driver_and_sense_node(x64):
    rows, cols = 6, 5
    g = np.full((rows, cols), 1e-3)
    for left, right, where in ((0.5, None, (0, cols - 1)), (None, 0.5, (0, 0))):
        wires = xb.Wires(r_word=5.0, r_bit=5.0, r_right=np.inf if right is None else 5.0)
        sol = xb.solve(g, wires, left=left, right=right)
        lost = xb.ir_drop(sol, left=left, right=right)
        assert (lost.row, lost.col) == where
        np.testing.assert_allclose(lost.worst, 0.5 - sol.v_cell[where], rtol=1e-12)
        np.testing.assert_allclose(lost.relative, 1 - np.asarray(sol.v_cell) / 0.5, rtol=0, atol=1e-12)


@pytest.mark.long
def test_ir_drop_counts_what_an_unselected_row_sees(x64):
    v = np.array([1.0, 0.0])
    sol = xb.solve(np.full((2, 2), 1e-2), xb.Wires(r_word=10.0, r_bit=10.0), left=v)
    lost = jax.jit(lambda sol, v: xb.ir_drop(sol, left=v))(sol, v)
    np.testing.assert_allclose(lost.drop[1], -np.asarray(sol.v_cell[1]), rtol=1e-12)
    assert (np.asarray(lost.relative)[1] == 0).all() and np.abs(lost.drop[1]).min() > 0
    slope = jax.grad(lambda r: xb.ir_drop(xb.solve(np.full((2, 2), 1e-2), xb.Wires(r_word=r), left=v), left=v).worst)(
        9.0
    )
    at = lambda r: xb.ir_drop(xb.solve(np.full((2, 2), 1e-2), xb.Wires(r_word=r), left=v), left=v).worst
    np.testing.assert_allclose(slope, (at(9.001) - at(8.999)) / 2e-3, rtol=1e-6)


def test_sneak_share_without_wires_is_what_the_other_rows_bring(dtype):
    g = jnp.asarray([[1.0, 2.0, 0.0], [3.0, 2.0, 0.0], [4.0, 4.0, 0.0]], dtype)
    sol = xb.solve(g, None, left=jnp.asarray([1.0, 1.0, 0.5], dtype))
    want = {(0,): [5 / 6, 2 / 3, 0.0], (0, 2): [0.5, 1 / 3, 0.0], (0, 1, 2): [0.0, 0.0, 0.0], (): [1.0, 1.0, 0.0]}
    for rows, share in want.items():
        mask = np.isin(np.arange(3), rows)
        for chosen in (list(rows), mask, jnp.asarray(mask), [r - 3 for r in rows], [*rows, *rows]):
            np.testing.assert_allclose(xb.sneak_share(sol, chosen), share, rtol=1e-6)
            assert xb.sneak_share(sol, chosen).dtype == dtype
    traced = jax.jit(xb.sneak_share)
    np.testing.assert_allclose(traced(sol, jnp.asarray(0)), want[(0,)], rtol=1e-6)
    assert np.isnan(traced(sol, jnp.asarray([0, 3]))).all()
    slope = jax.grad(lambda g: xb.sneak_share(xb.solve(g, None, left=1.0), 0).sum())(g)
    np.testing.assert_allclose(slope[:2, 0], [-7 / 64, 1 / 64], rtol=1e-5)
    assert np.isfinite(slope).all()


def test_sneak_share_through_a_passive_array(x64):
    # One selected cell, open, its neighbours closed: all that is sensed came round through the three others.
    g = np.array([[0.0, 1e-3], [1e-3, 1e-3]])
    wires = xb.Wires(r_word=0.0, r_bit=0.0, r_left=np.array([0.0, 1e12]), r_bottom=np.array([0.0, 1e12]))
    sol = xb.solve(g, wires, left=np.array([1.0, 0.0]))
    np.testing.assert_allclose(sol.i_bottom[0], 1e-3 / 3, rtol=1e-6)
    np.testing.assert_allclose(xb.sneak_share(sol, 0)[0], 1.0, rtol=1e-12)
    closed = xb.solve(np.full((2, 2), 1e-3), wires, left=np.array([1.0, 0.0]))
    np.testing.assert_allclose(xb.sneak_share(closed, 0)[0], 1 / 4, rtol=1e-6)


def test_sneak_share_counts_what_a_driven_top_brings(x64):
    g, v = array(4, 3)
    sol = xb.solve(g, xb.Wires(r_word=2.0, r_bit=3.0, r_top=5.0), left=v, top=0.3)
    want = 1 - np.asarray(sol.i_cell)[[0, 2]].sum(0) / sol.i_bottom
    np.testing.assert_allclose(xb.sneak_share(sol, [0, 2]), want, rtol=1e-9)


def test_readout_under_vmap_equals_one_by_one(x64):
    g, v = array(4, 3)
    wires = xb.Wires(r_word=2.0, r_bit=3.0)

    def all_of(v):
        sol = xb.solve(g, wires, left=v)
        lost, drop = xb.losses(sol, wires), xb.ir_drop(sol, left=v)
        return lost.total, lost.word, drop.worst, drop.row, xb.sneak_share(sol, np.array([1]))

    vs = np.stack([v, 0.3 - v])
    for k in (0, 1):
        for a, b in zip(jax.vmap(all_of)(vs), all_of(vs[k]), strict=True):
            np.testing.assert_allclose(a[k], b, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda s: xb.losses(s, xb.Wires(r_word=np.ones(3))),
            ValueError,
            r"losses: r_word must be a scalar or \[4, 2\]",
        ),
        (
            lambda s: xb.losses(s, xb.Wires(r_bottom=np.ones(4))),
            ValueError,
            r"losses: r_bottom must be .* \[3\].*\[4\]",
        ),
        (lambda s: xb.losses(s, 3.0), TypeError, "losses: wires must be an xb.Wires or None, got float"),
        (lambda s: xb.losses("s", None), TypeError, "losses: sol must be an xb.Solution, got str"),
        (lambda s: xb.losses(jax.tree.map(lambda x: x[None], s), None), ValueError, "losses: sol must be of one array"),
        (lambda s: xb.ir_drop(s), ValueError, "ir_drop: left or right must be given"),
        (lambda s: xb.ir_drop(s, left=np.ones(3)), ValueError, r"ir_drop: left must be a scalar or \[4\].*\[3\]"),
        (lambda s: xb.ir_drop(s, left=1.0, bottom=None), ValueError, "ir_drop: bottom or top must be given"),
        (lambda s: xb.ir_drop(s, left=1.0, right=2.0), ValueError, "ir_drop: left and right must be equal"),
        (lambda s: xb.sneak_share(s, 4), ValueError, r"sneak_share: rows must lie in 0\.\.3, got 4"),
        (lambda s: xb.sneak_share(s, np.ones(3, bool)), ValueError, r"sneak_share: rows must be a mask \[4\]"),
        (lambda s: xb.sneak_share(s, 0.5), TypeError, "sneak_share: rows must be a boolean mask or integer indices"),
    ],
)
def test_errors_name_the_argument(call, kind, message):
    with pytest.raises(kind, match=message):
        call(xb.solve(np.full((4, 3), 1e-4), xb.Wires(), left=1.0))
