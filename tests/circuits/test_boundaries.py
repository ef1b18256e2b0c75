"""Boundaries of every kind against the dense node equations: floating lines, a number for each segment, any side."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from oracle import array, nodal

import xbar_jax as xb
from xbar_jax import native

pytestmark = pytest.mark.long

ROWS, COLS = 9, 7
RNG = np.random.default_rng(5)
EACH = dict(r_word=RNG.uniform(0.5, 60, (ROWS, COLS - 1)), r_bit=RNG.uniform(0.5, 60, (ROWS - 1, COLS)))
LEFT, BOTTOM = RNG.uniform(2, 20, ROWS), RNG.uniform(2, 20, COLS)
V, U = RNG.uniform(-1, 1, ROWS), RNG.uniform(-1, 1, COLS)


def opened(r, *lines):
    r = r.copy()
    r[list(lines)] = np.inf
    return r


CIRCUITS = {
    "a word line floats": (dict(r_left=opened(LEFT, 3)), dict(left=V)),
    "all word lines but one float": (dict(r_left=opened(LEFT, *range(1, ROWS))), dict(left=V)),
    "bit lines float": (dict(r_bottom=opened(BOTTOM, 0, 4)), dict(left=V)),
    "both kinds float": (dict(r_left=opened(LEFT, 0, 8), r_bottom=opened(BOTTOM, 6)), dict(left=V, bottom=0.1)),
    "one end or the other or none": (
        dict(
            r_left=opened(LEFT, 0, 1),
            r_right=opened(LEFT, 1, 2),
            r_top=opened(BOTTOM, 3),
            r_bottom=opened(BOTTOM, 3, 5),
        ),
        dict(left=V, right=-V, top=U, bottom=0.0),
    ),
    "every segment its own": (EACH, dict(left=V)),
    "every segment its own, both ends": (EACH | dict(r_right=LEFT, r_top=3.0), dict(left=V, right=0.3, top=U)),
    "columns driven, rows sensed": (dict(r_top=2.0, r_left=4.0), dict(left=0.0, top=U, bottom=None)),
    "columns driven from below, rows sensed at the right": (
        EACH | dict(r_right=25.0),
        dict(left=None, right=0.0, bottom=U),
    ),
    "every segment its own, and lines float": (
        EACH | dict(r_left=opened(LEFT, 2, 3), r_bottom=opened(BOTTOM, 1)),
        dict(left=V),
    ),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "float64") for name in CIRCUITS] + [("one end or the other or none", "float32")],
    indirect=["dtype"],
)
def test_boundaries_match_the_node_equations(name, dtype):
    g, _ = array(ROWS, COLS, seed=2)
    wires, drives = CIRCUITS[name]
    wires = dict(r_word=2.0, r_bit=3.0) | wires
    sol = xb.solve(jnp.asarray(g, dtype), xb.Wires(**wires), **drives)
    want = nodal(g, wires.pop("r_word"), wires.pop("r_bit"), **wires, **drives)
    assert sol.converged
    tol = 1e-9 if dtype == np.float64 else 2e-5
    largest = max(np.abs(want[k]).max() for k in ("i_left", "i_right", "i_top", "i_bottom"))
    for key, value in want.items():
        atol = tol * (largest if key.startswith("i") else np.abs(want["v_word"]).max())
        np.testing.assert_allclose(getattr(sol, key), value, rtol=0, atol=atol, err_msg=key)
    # What floats carries nothing at all.
    for side in ("left", "right", "top", "bottom"):
        r = np.broadcast_to(wires.get(f"r_{side}", 1.0), np.shape(getattr(sol, f"i_{side}")))
        assert (np.asarray(getattr(sol, f"i_{side}"))[np.isinf(r)] == 0).all()


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_derivatives_with_floating_lines(mode, x64):
    g, v = (jnp.asarray(x) for x in array(4, 3, seed=1))
    r_left, r_bottom = jnp.array([1.0, jnp.inf, 2.0, 1.0]), jnp.array([3.0, 1.0, jnp.inf])
    weights = jnp.arange(1.0, 13.0).reshape(4, 3)

    def loss(g, v, r):
        wires = xb.Wires(r_word=r, r_bit=2 * r, r_left=r_left, r_bottom=r_bottom)
        sol = xb.solve(g, wires, left=v, tol=1e-14)
        return 1e3 * sol.i_bottom.sum() + (weights * (sol.v_word - 2 * sol.v_bit)).sum()

    scaled = lambda g, v, r: loss(g * 1e-3, v, r)
    check_grads(scaled, (g * 1e3, v, jnp.array(5.0)), order=2, modes=[mode], atol=1e-5, rtol=1e-5, eps=1e-4)


def test_effective_conductance_with_open_ends(x64):
    g, v = array(ROWS, COLS, seed=3)
    for wires in (
        dict(r_word=2.0, r_bit=3.0, r_left=opened(LEFT, 3), r_bottom=opened(BOTTOM, 0, 4)),
        EACH | dict(r_left=LEFT, r_bottom=BOTTOM),
    ):
        want = nodal(g, wires["r_word"], wires["r_bit"], left=v, r_left=wires["r_left"], r_bottom=wires["r_bottom"])
        found = v @ xb.effective_conductance(g, xb.Wires(**wires))
        np.testing.assert_allclose(found, want["i_bottom"], rtol=0, atol=1e-9 * np.abs(want["i_bottom"]).max())


LEADS = {
    "wide": ((19, 21), {}),
    "tall, leads of its own": ((21, 19), dict(r_left=0.0, r_bottom=50.0)),
    "open and unequal ends": ((9, 7), dict(r_left=opened(LEFT, 3), r_bottom=opened(BOTTOM, 0, 4))),
    "every segment its own": ((9, 7), EACH),
}


@pytest.mark.parametrize("name", LEADS)
def test_gradient_of_the_effective_conductance(name, x64):
    """The compiled gradient in g, with the rest of the derivative beside it, is that of the JAX form."""
    shape, wires = LEADS[name]
    g, weights = jnp.asarray(array(*shape, low=1e3, high=1e4)[0]), jnp.asarray(RNG.normal(size=shape))
    loss = lambda g, r: (weights * xb.effective_conductance(g, xb.Wires(**(dict(r_word=r, r_bit=20.0) | wires)))).sum()
    found = jax.grad(loss, argnums=(0, 1))(g, 30.0), jax.grad(loss)(g, 30.0)
    with native.disabled():
        want = jax.grad(loss, argnums=(0, 1))(g, 30.0)
    scale = np.abs(want[0]).max()
    np.testing.assert_allclose(found[0][0], want[0], rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(found[1], want[0], rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(found[0][1], want[1], rtol=1e-9)
    along = jax.jvp(lambda g: loss(g, 30.0), (g,), (g,))[1]
    np.testing.assert_allclose(along, (want[0] * g).sum(), rtol=1e-8)


LOW = np.where((np.arange(96)[:, None] < 48) & (np.arange(96)[None, :] < 40), 1e-10, 1.0)


@pytest.mark.parametrize("form", ["native", "jax"])
@pytest.mark.parametrize("block", [False, True], ids=["full", "half open"])
def test_two_level_keeps_the_iterations_few(form, block, dtype):
    g = jnp.asarray(array(96, 96, low=1e3, high=1e4)[0] * (LOW if block else 1.0), dtype)
    wires = xb.Wires(r_word=100.0, r_bit=60.0, r_left=20.0)
    run = lambda method: xb.solve(g, wires, left=1.0, method=method)
    if form == "jax":
        with native.disabled():
            two, one = run("two_level"), run("line_cg")
    else:
        two, one = run("two_level"), run("line_cg")
    assert two.converged and one.converged
    assert two.steps <= 30 < one.steps
    tol = 1e-9 if dtype == np.float64 else 3e-5
    np.testing.assert_allclose(two.i_bottom, one.i_bottom, rtol=0, atol=tol * np.abs(one.i_bottom).max())


@pytest.mark.parametrize("lead", [None, 0.0, 50.0])
@pytest.mark.parametrize("method", ["line_cg", "two_level"])
def test_heavy_wires_converge_for_every_drive(method, lead, dtype):
    """A stall of one refinement is not yet rounding."""
    rng = np.random.default_rng(0)
    g = jnp.asarray(1 / rng.uniform(1e3, 1e4, (128, 128)), dtype)
    v = jnp.asarray(np.concatenate([np.ones((1, 128)), rng.uniform(0, 1, (11, 128))]), dtype)
    wires = xb.Wires(r_word=100.0, r_bit=100.0, r_left=lead, r_bottom=lead)
    sol = jax.vmap(lambda v: xb.solve(g, wires, left=v, method=method))(v)
    assert sol.converged.all()
    assert float(sol.residual.max()) <= (1e-10 if dtype == np.float64 else 1e-5)
    if method == "two_level":
        assert int(sol.steps.max()) <= 30
        assert np.isfinite(xb.read(g, v[:3], wires)).all()


@pytest.mark.parametrize("large", [1e3, 1e6, 1e9])
def test_no_resistance_beside_large_ones(large, dtype):
    g, v = (jnp.asarray(x, dtype) for x in array(12, 4, low=1e3, high=1e4))
    wires = xb.Wires(r_word=10.0, r_bit=10.0, r_bottom=jnp.asarray([0.0, large, large, large], dtype))
    want = xb.solve(g, wires, left=v).i_bottom
    tol = 1e-9 if dtype == np.float64 else 2e-5
    total = float(jnp.abs(want).max())
    np.testing.assert_allclose(v @ xb.effective_conductance(g, wires), want, rtol=0, atol=tol * total)
    loss = lambda g: (xb.effective_conductance(g, wires) * v[:, None]).sum()
    found = jax.grad(loss)(g)
    with native.disabled():
        slow = jax.grad(loss)(g)
    np.testing.assert_allclose(
        found, slow, rtol=0, atol=(1e-8 if dtype == np.float64 else 1e-3) * float(jnp.abs(slow).max())
    )


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (2, 2), (33, 33), (2, 257)], ids=str)
def test_o8_small_and_odd_sizes(size, x64):
    g, v = array(*size, seed=9)
    for dtype, tol in ((jnp.float64, 1e-9), (jnp.float32, 2e-5)):
        wires = xb.Wires(r_word=10.0, r_bit=20.0, r_left=5.0, r_bottom=7.0)
        sol = xb.solve(jnp.asarray(g, dtype), wires, left=jnp.asarray(v, dtype))
        want = nodal(g, 10.0, 20.0, left=v, r_left=5.0, r_bottom=7.0)["i_bottom"]
        np.testing.assert_allclose(sol.i_bottom, want, rtol=0, atol=tol * np.abs(want).max())


def test_o8_a_batch_of_five_hundred_small_arrays():
    g, v = array(2, 2, seed=9)
    many = jax.vmap(lambda g: xb.solve(g, xb.Wires(r_word=1.0, r_bit=1.0), left=jnp.asarray(v, jnp.float32)).i_bottom)
    found = many(jnp.broadcast_to(jnp.asarray(g, jnp.float32), (512, 2, 2)))
    np.testing.assert_allclose(found, np.broadcast_to(nodal(g, 1.0, 1.0, left=v)["i_bottom"], (512, 2)), rtol=2e-5)


def test_o6_a_hundred_thousand_equal_arrays():
    g, v = (jnp.asarray(x, jnp.float32) for x in array(4, 4, seed=9))
    one = lambda g: xb.solve(g, xb.Wires(r_word=1.0, r_bit=1.0), left=v)
    many = jax.jit(jax.vmap(one))(jnp.broadcast_to(g, (100_000, 4, 4)))
    assert many.converged.all()
    np.testing.assert_array_equal(many.i_bottom, np.broadcast_to(many.i_bottom[0], (100_000, 4)))
    np.testing.assert_allclose(many.i_bottom[0], one(g).i_bottom, rtol=1e-6)


@pytest.mark.parametrize("case", ["std", "hard"])
def test_float32_keeps_the_output_currents_of_a_large_array(case, x64):
    """Single precision with 64-bit mode on, beside double."""
    high, r = (1e5, 1.0) if case == "std" else (1e4, 10.0)
    g, v = array(128, 128, seed=3, low=1e3, high=high)
    run = lambda dtype: xb.solve(jnp.asarray(g, dtype), xb.Wires(r_word=r, r_bit=r), left=jnp.asarray(v, dtype))
    single, double = run(jnp.float32), run(jnp.float64)
    assert single.i_bottom.dtype == jnp.float32 and single.converged
    np.testing.assert_allclose(
        single.i_bottom, double.i_bottom, rtol=0, atol=2e-5 * float(jnp.abs(double.i_bottom).max())
    )


@pytest.mark.parametrize("method", ["line_cg", "two_level"])
def test_native_and_jax_forms_agree(method, dtype):
    """On lines of every kind at once, and with an odd size that no register divides."""
    g = jnp.asarray(array(37, 21, seed=4)[0], dtype)
    left, bottom = np.full(37, 3.0), np.full(21, 2.0)
    left[[0, 5]] = np.inf
    bottom[20] = np.inf
    wires = xb.Wires(r_word=4.0, r_bit=7.0, r_left=left, r_bottom=bottom, r_right=opened(left, 5, 6), r_top=bottom * 2)
    run = lambda: xb.solve(g, wires, left=0.3, right=-0.1, top=0.2, method=method)
    fast = run()
    with native.disabled():
        slow = run()
    tol = 1e-9 if dtype == np.float64 else 2e-5
    for key in ("i_cell", "v_word", "v_bit", "i_left", "i_bottom"):
        want = np.asarray(getattr(slow, key))
        np.testing.assert_allclose(getattr(fast, key), want, rtol=0, atol=tol * np.abs(want).max(), err_msg=key)


def test_a_start_saves_iterations_and_changes_nothing(x64):
    g, v = (jnp.asarray(x) for x in array(48, 40, low=1e3, high=1e4))
    wires = xb.Wires(r_word=10.0, r_bit=10.0)
    cold = xb.solve(g, wires, left=v)
    near = xb.solve(g, wires, left=v * (1 + 1e-4), start=cold)
    again = xb.solve(g, wires, left=v, start=cold)
    assert again.steps == 0
    assert near.steps < cold.steps
    np.testing.assert_allclose(
        near.i_bottom, cold.i_bottom * (1 + 1e-4), rtol=0, atol=1e-9 * float(jnp.abs(cold.i_bottom).max())
    )
    grad = jax.grad(lambda v: xb.solve(g, wires, left=v, start=cold).i_bottom.sum())(v)
    want = jax.grad(lambda v: xb.solve(g, wires, left=v).i_bottom.sum())(v)
    np.testing.assert_allclose(grad, want, rtol=1e-8)
    with pytest.raises(ValueError, match="start must be the Solution"):
        xb.solve(g[:3], wires, left=v[:3], start=cold)


def test_every_way_to_batch(x64):
    """Shared or not: cells, wires, drives, in one call and nested."""
    g, v = array(6, 5, seed=7)
    gs, vs, rs = jnp.stack([g, 2 * g, 3 * g]), jnp.stack([v, -v, 2 * v]), jnp.array([1.0, 20.0, 300.0])
    one = lambda g, v, r: xb.solve(g, xb.Wires(r_word=r, r_bit=r), left=v).i_bottom
    axes = [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, None), (0, None, 0), (None, 0, 0), (0, 0, 0)]
    for ax in axes:
        args = [x if a == 0 else x[1] for x, a in zip((gs, vs, rs), ax, strict=True)]
        found = jax.vmap(one, in_axes=ax)(*args)
        for k in range(3):
            want = one(*(x[k] if a == 0 else x for x, a in zip(args, ax, strict=True)))
            np.testing.assert_allclose(found[k], want, rtol=1e-9, atol=1e-16)
    nested = jax.vmap(lambda g, r: jax.vmap(lambda v: one(g, v, r))(vs))(gs, rs)
    assert nested.shape == (3, 3, 5)
    np.testing.assert_allclose(nested[2, 1], one(gs[2], vs[1], rs[2]), rtol=1e-9)
