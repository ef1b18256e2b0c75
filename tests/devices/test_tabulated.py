"""Tables against the devices that they are made of."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from xbar_jax.devices.jart import JARTState, JARTv1b
from xbar_jax.devices.spread import Spread
from xbar_jax.devices.tables import tabulate
from xbar_jax.devices.vteam import VTEAM

JART = JARTv1b()
PULSES = (-0.342, 0.7065)
evolve = jax.jit(lambda dev, s, v, t: dev.evolve(s, v, t))


@functools.cache
def pulses(bits=32):
    """The table of both pulses, in each precision once."""
    return tabulate(JART, PULSES)


def moved(before, after):
    return np.asarray(after.x - before.x, float) + np.asarray(after.x_lo - before.x_lo, float)


def test_pulses_of_jart(dtype):
    """A few nanoseconds to minutes, over the whole range of N."""
    table = pulses(8 * dtype.itemsize)
    assert table.direct
    assert table.state_class is JARTState
    assert table.polarity == -1
    assert table.current_error < 1e-4
    n = np.tile(np.geomspace(0.0085, 19, 16), (2, 1))
    n[1] = n[1, ::-1]
    t = jnp.asarray(np.tile(np.geomspace(2e-9, 60, 8), (2, 2)), dtype)
    v = jnp.asarray(np.repeat(np.array(PULSES)[:, None], 16, 1), dtype)
    state = JART.init(n.shape, x=jnp.asarray(np.log(n), dtype), dtype=dtype)
    exact, got = moved(state, evolve(JART, state, v, t)), moved(state, evolve(table, state, v, t))
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=3e-7 if dtype == np.float32 else 1e-12)
    # Within three intervals of an end that is never reached.
    near = jnp.asarray(np.log([[19.5] * 16, [0.0081] * 16]), dtype)
    state = state.replace(x=near)
    exact, got = moved(state, evolve(JART, state, v, t)), moved(state, evolve(table, state, v, t))
    np.testing.assert_allclose(got, exact, rtol=3e-3, atol=3e-7 if dtype == np.float32 else 1e-12)
    low, high = (np.asarray(b, dtype) for b in table.bounds())
    after = evolve(table, state, v, 1e9 + 0 * t)
    assert ((after.x >= low) & (after.x <= high)).all()
    np.testing.assert_allclose(after.x[0], high, atol=1e-5)
    np.testing.assert_allclose(after.x[1], low, atol=1e-5)


def test_currents_of_jart(dtype):
    table = pulses(8 * dtype.itemsize)
    x = jnp.asarray(np.linspace(*(float(b) for b in JART.bounds()), 40)[None], dtype)
    current = jax.jit(JART.current_of)
    for v in (*PULSES, 0.2):
        v = jnp.full(x.shape, v, dtype)
        np.testing.assert_allclose(table.current_of(x, v), current(x, v), rtol=2e-5)
    zero = jnp.zeros(x.shape, dtype)
    np.testing.assert_array_equal(table.current_of(x, zero), 0.0)
    np.testing.assert_array_equal(table.rate_of(x, zero), 0.0)
    state = table.init((1, 11), dtype=dtype)
    g = jnp.linspace(*table.conductance_range(), 11).astype(dtype)[None]
    np.testing.assert_allclose(table.conductance(table.set_conductance(state, g)), g, rtol=1e-5)


def test_other_voltages_are_not_numbers():
    table = pulses()
    state = table.init((1, 3), x=0.0)
    v = jnp.asarray([[-0.3, -0.342, 0.0]])
    after = evolve(table, state, v, 1e-3)
    np.testing.assert_array_equal(np.isnan(after.x), [[True, False, False]])
    assert after.x[0, 1] > 0
    assert after.x[0, 2] == 0
    np.testing.assert_array_equal(np.isnan(table.current(state, v)), [[True, False, False]])


def test_small_pulses_add_up():
    table = pulses()
    state = table.init((1, 4), x=jnp.log(jnp.asarray([[0.06, 0.2, 0.4, 1.98]])))
    whole = evolve(table, state, -0.342, 1e-6)
    pieces = jax.jit(lambda s: jax.lax.scan(lambda s, _: (table.evolve(s, -0.342, 1e-8), None), s, length=100)[0])(
        state
    )
    np.testing.assert_allclose(moved(state, pieces), moved(state, whole), rtol=1e-3)


def test_derivatives_of_a_look_up(x64):
    """Those of JART by differences, whose voltage is not tied to a table."""
    table = pulses(64)
    x, v = jnp.log(jnp.asarray([[0.2, 0.5]], float)), jnp.asarray([PULSES])
    t = jnp.asarray([[3e-4, 1e-5]])
    state = table.init((1, 2), dtype=float)

    def whole(x, v, t):
        before = state.replace(x=x)
        return moved(before, evolve(JART, before, v, t)) + np.asarray(x)

    def total(x, v, t):
        after = table.evolve(state.replace(x=x), v, t)
        return (after.x + after.x_lo).sum()

    got = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(x, v, t)
    for at, size in ((0, 1e-5), (1, 1e-6), (2, 1e-9)):
        args = [x, v, t]
        up, down = ([*args[:at], args[at] + s * size, *args[at + 1 :]] for s in (1, -1))
        difference = (whole(*up) - whole(*down)) / (2 * size)
        np.testing.assert_allclose(got[at], difference, rtol=2e-3)


def test_between_voltages(dtype):
    """Rates and currents at voltages of their own; a motion against an independent ODE solver."""
    table = tabulate(JART, v_max=0.8)
    rng = np.random.default_rng(0)
    n = jnp.asarray(np.exp(rng.uniform(np.log(0.0081), np.log(15), (20, 50))), dtype)
    size = rng.uniform(0.01, 0.8, n.shape) * rng.choice([-1, 1], n.shape)
    v = jnp.asarray(size, dtype)
    exact = jax.jit(lambda x, v: (JART.rate_of(x, v), JART.current_of(x, v)))(jnp.log(n), v)
    got = jax.jit(lambda x, v: (table.rate_of(x, v), table.current_of(x, v)))(jnp.log(n), v)
    np.testing.assert_allclose(got[0], exact[0], rtol=3e-3)
    np.testing.assert_allclose(got[1], exact[1], rtol=3e-4)
    assert np.median(np.abs(np.asarray(got[0] / exact[0], float) - 1)) < 2e-5
    assert np.isnan(table.current_of(jnp.zeros((1, 1), dtype), jnp.full((1, 1), 0.9, dtype))).all()
    state = table.init((1, 3), x=jnp.asarray(np.log([[0.2, 0.5, 0.5]]), dtype), dtype=dtype)
    v, t = np.array([[-0.35, 0.7, 0.0]]), 1e-4
    rate = jax.jit(JART.rate_of)
    change = []
    for k in range(3):
        f = lambda _, x, k=k: np.asarray(rate(jnp.asarray(x[None], dtype), jnp.asarray(v[:, k : k + 1], dtype)))[0]
        x0 = np.asarray(state.x[0, k : k + 1], float)
        change.append((solve_ivp(f, (0, t), x0, rtol=1e-6, atol=1e-9).y[0, -1] - x0)[0])
    np.testing.assert_allclose(
        moved(state, evolve(table, state, jnp.asarray(v, dtype), t))[0], change, rtol=1e-3, atol=1e-12
    )


def test_locked_window_is_integrated(x64):
    """A rate that vanishes where a motion begins: no look-up. Joglekar's window at constant rate is a logistic curve."""
    dev = VTEAM(window="joglekar", k_off=1.0)
    table = tabulate(dev, 0.04)
    assert not table.direct
    s = np.array([[0.0, 0.1, 0.5]])
    t = 4e-9
    # ds/dt = k 4 s (1 - s)
    k = 1.0 * (0.04 / 0.02 - 1) / 3e-9
    exact = s * np.exp(4 * k * t) / (1 - s + s * np.exp(4 * k * t))
    state = table.init(s.shape, x=jnp.asarray(s * 3e-9), dtype=float)
    np.testing.assert_allclose(evolve(table, state, 0.04, t).x / 3e-9, exact, rtol=1e-6)


def test_bound_is_reached(dtype):
    """A constant rate: the state moves straight and stops at its bound."""
    dev = VTEAM(k_off=1.0)
    table = tabulate(dev, [0.04, -0.3, 0.01], points=100)
    assert table.direct
    state = table.init((1, 4), x=0.0, dtype=dtype)
    t = jnp.asarray([[0.0, 1e-12, 1e-9, 1e-8]], dtype)
    np.testing.assert_allclose(evolve(table, state, 0.04, t).x, np.minimum(t * 1.0, 3e-9), rtol=1e-5)
    # Below the threshold nothing moves.
    np.testing.assert_array_equal(evolve(table, state, 0.01, t).x, 0.0)


def test_what_cannot_be_a_table():
    with pytest.raises(ValueError, match="must be alike"):
        tabulate(JART.replace(spread={"r": Spread()}), -0.3)
    with pytest.raises(ValueError, match="must be alike"):
        tabulate(VTEAM(r_on=np.ones((2, 2))), -0.3)
    with pytest.raises(ValueError, match="one of v and v_max must be given"):
        tabulate(JART)
    with pytest.raises(ValueError, match="v must be voltages other than 0"):
        tabulate(JART, [0.0, 1.0])
    with pytest.raises(ValueError, match="v_max must be > 0"):
        tabulate(JART, v_max=-1.0)
    with pytest.raises(ValueError, match="points and voltages must be at least 8"):
        tabulate(JART, 0.1, points=4)
    with pytest.raises(TypeError, match="must be known"):
        jax.jit(lambda r: tabulate(VTEAM(r_on=r), -0.3))(1.0)
