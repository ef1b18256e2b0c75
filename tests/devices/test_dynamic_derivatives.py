"""Derivatives of dynamic devices: to the state, the voltage, the time and every number, against finite differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics import DEVICES, SHAPE, evolve

from xbar_jax.devices.linear_ion_drift import LinearIonDrift
from xbar_jax.devices.vteam import VTEAM
from xbar_jax.devices.yakopcic import Yakopcic

pytestmark = pytest.mark.long

# What a number that is 0 is compared to.
SIZES = {"w_on": 3e-9, "team_on": 3e-9, "delta": 0.02}


def points(case, dtype=np.float64):
    """Interior points in both directions, one below threshold, and what a million seconds make of the first ones.

    Each [4, 8], the rows equal, so that a row is one point of a difference formula.
    """
    dev, state, v, t = case.cells(dtype)
    v, t = np.array(v[1]), np.array(t[1])
    x = np.array(state.x[1])
    x[4:] = np.asarray(state.x)[2, 4:]
    v[6], v[7] = case.read, v[2]
    t[1], t[3] = 1e6, 1e6
    return dev, *(jnp.asarray(np.tile(y, (4, 1)), dtype) for y in (x, v, t))


def arguments(dev, x, v, t):
    leaves = {name: getattr(dev, name) for name in dev._numbers() if getattr(dev, name) is not None}
    return {**leaves, "x": x, "v": v, "t": t}


def outcome(dev, args):
    """State after the motion, from one dictionary of numbers."""
    numbers = {k: y for k, y in args.items() if k not in ("x", "v", "t")}
    whole = dev.replace(**numbers)
    state = dev.state_class(x=args["x"], x_lo=jnp.zeros_like(args["x"]), cells={})
    after = evolve(whole, state, args["v"], args["t"])
    return after.x + after.x_lo


@pytest.mark.parametrize("name", DEVICES)
def test_every_derivative_is_that_of_finite_differences(name, x64):
    dev, x, v, t = points(DEVICES[name])
    args = arguments(dev, x, v, t)

    total = lambda args: outcome(dev, args)
    after, grads = jax.jit(lambda args: (total(args), jax.grad(lambda a: total(a).sum())(args)))(args)
    scale = np.abs(np.asarray(after)).max()
    sizes = {k: np.where(y == 0, SIZES.get(k, 1.0), np.abs(y)) for k, y in args.items()}
    if name in ("VTEAM", "StanfordPKU"):
        # Reverse and forward mode are one derivative.
        rng = np.random.default_rng(0)
        direction = {k: jnp.asarray(sizes[k] * rng.standard_normal(SHAPE)) for k in args}
        pushed = jax.jit(lambda args, direction: jax.jvp(total, (args,), (direction,))[1])(args, direction)
        np.testing.assert_allclose(pushed, sum(grads[k] * direction[k] for k in args), rtol=1e-9, atol=1e-9 * scale)
    seen = 0
    for k in args:
        assert np.isfinite(grads[k]).all(), k
        h = 1e-4 * sizes[k][0]
        stencil = np.array([[1.0], [-1.0], [2.0], [-2.0]]) * h
        y = np.asarray(outcome(dev, args | {k: args[k] + stencil}))
        expected = (8 * (y[0] - y[1]) - (y[2] - y[3])) / (12 * h)
        size = scale / sizes[k][0]
        np.testing.assert_allclose(
            grads[k][0], expected, rtol=1e-4, atol=2e-6 * size.max() if np.ndim(size) else 0, err_msg=k
        )
        seen += (np.abs(expected) > 1e-4 * size).any()
    assert seen > 4


class TestEnds:
    def test_locked_states_grow_and_shrink(self, x64):
        # Joglekar's window is 4 x (1 - x): x = 0 is left as e^(r t), x = 1 is reached as e^(-r t).
        dev = LinearIonDrift(window="joglekar")
        final = lambda x, v, t: dev.evolve(dev.init((1, 1), dtype=np.float64).replace(x=x), v, t).x.sum()
        grad = jax.jit(jax.grad(final, argnums=(0, 1, 2)))
        for x, r in ((0.0, 4 * 1e4 / 16e3), (1.0, -4 * 1e4 / 100)):
            got = grad(jnp.full((1, 1), x), jnp.ones((1, 1)), jnp.full((1, 1), 0.01))
            np.testing.assert_allclose(got[0], np.exp(r * 0.01), rtol=1e-9)
            assert got[1:] == (0.0, 0.0)

    def test_at_a_bound_the_state_follows_the_bound(self, x64):
        dev = VTEAM()

        def final(dev, x, v):
            return dev.evolve(dev.init((1, 1), x=x, dtype=np.float64), v, 1e-5).x.sum()

        grad = jax.jit(jax.grad(final, argnums=(0, 1, 2)))
        for x in (1e-9, 3e-9):
            got, dx, dv = grad(dev, x, 0.1)
            assert (dx, dv) == (0.0, 0.0)
            assert got.w_off == 1.0
            assert got.w_on == got.k_off == 0.0

    def test_at_zero_volt_without_a_threshold(self, x64):
        dev = LinearIonDrift()
        final = lambda v: dev.evolve(dev.init((1, 1), x=0.3, dtype=np.float64), v, 1e-3).x.sum()
        np.testing.assert_allclose(jax.jit(jax.grad(final))(0.0), 1e4 * 1e-3 / (0.3 * 100 + 0.7 * 16e3), rtol=1e-9)

    def test_second_derivatives(self, x64):
        dev = Yakopcic()
        v, t = 0.3, 1e-3
        final = lambda x: dev.evolve(dev.init((1, 1), x=x, dtype=np.float64), v, t).x.sum()
        h = 1e-3
        first = jax.jit(jax.grad(final))
        expected = (first(0.5 + h) - first(0.5 - h)) / (2 * h)
        np.testing.assert_allclose(jax.jit(jax.jacfwd(first))(0.5), expected, rtol=1e-4)

    @pytest.mark.parametrize("name", ["VTEAM", "StanfordPKU", "DataDriven2021"])
    def test_finite_in_float32(self, name):
        dev, x, v, t = points(DEVICES[name], np.float32)
        args = arguments(dev, x, v, t)
        grads = jax.jit(jax.grad(lambda a: outcome(dev, a).sum()))(args)
        for k, g in grads.items():
            assert np.isfinite(g).all(), k
