"""Dynamic devices: published values, SciPy's solution of the same equations, and what must hold for any waveform."""

from __future__ import annotations

import io
import pickle

import dynamics
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics import DEVICES, WINDOWS, evolve, state_of

from xbar_jax.devices import flow
from xbar_jax.devices.data_driven import DataDriven
from xbar_jax.devices.data_driven_2021 import DataDriven2021
from xbar_jax.devices.linear_ion_drift import LinearIonDrift
from xbar_jax.devices.stanford_pku import StanfordPKU
from xbar_jax.devices.tables import tabulate
from xbar_jax.devices.vteam import VTEAM
from xbar_jax.devices.yakopcic import Yakopcic
from xbar_jax.devices.yakopcic_general import YakopcicGeneral

YAKOPCIC = Yakopcic(ap=90.0, an=10.0, vp=0.5, vn=0.5, xp=0.1, xn=0.242, alpha_p=1.0, alpha_n=1.0)
ALL = {**DEVICES, **WINDOWS}


def check(got, expected, start, tolerance):
    """Relative to the state or to its displacement, whichever is the larger."""
    scale = np.maximum(np.abs(expected), np.abs(expected - start))
    np.testing.assert_array_less(np.abs(got - expected), tolerance * scale + 1e-300)


def tolerance(name, dtype):
    """1e-6 in either precision; exponents of some 25 lose a digit of float32 in the rate of StanfordPKU."""
    return 1e-5 if name == "StanfordPKU" and dtype == np.float32 else 1e-6


# What a motion must do, for each device and each window.
@pytest.mark.parametrize("name", ALL)
def test_motion_is_scipys_however_it_is_cut(name, dtype):
    dev, state, v, t = ALL[name].cells(dtype)
    start = state_of(state)
    expected = dynamics.moved(ALL[name].dev, start, v, t)
    once = evolve(dev, state, v, t)
    assert once.x.dtype == dtype
    check(state_of(once), expected, start, tolerance(name, dtype))
    # Two half calls are one.
    twice = evolve(dev, evolve(dev, state, v, t / 2), v, t / 2)
    check(state_of(twice), expected, start, tolerance(name, dtype))
    # 0 V, and no time at all, keep both parts of the state.
    for held in (evolve(dev, once, 0.0, t), evolve(dev, once, v, 0.0)):
        np.testing.assert_array_equal(held.x, once.x)
        np.testing.assert_array_equal(held.x_lo, once.x_lo)
    # Eleven days.
    low, high = dev.bounds()
    last = evolve(dev, state, v, 1e6)
    assert np.isfinite(state_of(last)).all()
    assert ((last.x >= low) & (last.x <= high)).all()
    further = np.sign(state_of(last) - expected) * np.sign(expected - start) >= 0
    near = np.abs(state_of(last) - expected) <= 1e-5 * np.maximum(np.abs(expected), np.abs(expected - start))
    assert (further | near).all()


@pytest.mark.parametrize("name", DEVICES)
def test_float32_survives_a_thousand_cuts(name):
    dev, state, v, t = DEVICES[name].cells(np.float32)
    t = 0.3 * t
    start = state_of(state)
    expected = dynamics.moved(DEVICES[name].dev, start, v, t)
    for n in (10, 100, 1000):
        after = state
        for _ in range(n):
            after = evolve(dev, after, v, t / n)
        check(state_of(after), expected, start, 2 * tolerance(name, np.float32))


def test_what_is_below_the_resolution_of_float32_adds_up():
    # 1e-8 of the range in each of 1000 pulses: x alone would stay where it is.
    dev, state = dynamics.cells_of(LinearIonDrift(), 0.9, np.float32)
    after = state
    for _ in range(1000):
        after = evolve(dev, after, 1.0, 1.7e-9)
    r = 100 * 0.9 + 16e3 * 0.1
    np.testing.assert_allclose(state_of(after) - state_of(state), 1e3 * 1.7e-9 * 1e4 / r, rtol=1e-4)
    assert (evolve(dev, state, 1.0, 1.7e-9).x == state.x).all()


def test_derivatives_of_a_cell_that_has_just_arrived(dtype):
    # At the bound since a few 1e-5 of the time: the state is the bound, whatever the time was.
    dev, x, v = VTEAM(), 1e-9, 1.0
    t = (3e-9 - x) / (5e-4 * (v / 0.02 - 1)) * (1 + np.linspace(2e-5, 9e-5, 4))
    state = dev.init((1, 4), x=x, dtype=dtype)

    def end(w_off, v, t):
        after = dev.replace(w_off=w_off).evolve(state, v, t)
        return (after.x + after.x_lo).sum()

    args = (jnp.asarray(3e-9, dtype), jnp.full((1, 4), v, dtype), jnp.asarray(t[None], dtype))
    bound, dv, dt = jax.jit(jax.grad(end, argnums=(0, 1, 2)))(*args)
    np.testing.assert_allclose(bound, 4.0, rtol=1e-6)
    np.testing.assert_array_equal(dv, 0.0)
    np.testing.assert_array_equal(dt, 0.0)


def test_panels_grow_where_both_rules_agree_exactly(dtype):
    # At some of these rates they do. A first panel that ends at a break is short.
    rate = jnp.asarray(1 + np.arange(64)[None] / 7, dtype)
    walk = jax.jit(lambda x: flow.walk(lambda x: rate + 0 * x, x, 1 / rate, 0.0, 10.0, (1e-3,)))
    motion = walk(jnp.zeros_like(rate))
    np.testing.assert_array_equal(motion.end, flow.MOVED)
    np.testing.assert_allclose(motion.d, 1.0, rtol=1e-6)
    assert motion.panels.max() <= 6


def test_a_voltage_beyond_the_table_is_not_silent(dtype):
    table = tabulate(LinearIonDrift(), v_max=0.1, voltages=9, points=16)
    v, t = jnp.asarray([[0.05, 0.3, -0.3, 0.3]], dtype), jnp.asarray([[1e-3, 1e-3, 1e-3, 0.0]], dtype)
    after = jax.jit(table.evolve)(table.init((1, 4), x=0.5, dtype=dtype), v, t)
    np.testing.assert_array_equal(np.isnan(after.x), [[False, True, True, False]])
    # r_off x - (r_off - r_on) x^2/2 grows by (mu r_on/d^2) v t.
    full = lambda x: 16e3 * x - 15900 * x**2 / 2
    np.testing.assert_allclose(full(state_of(after)[0, 0]) - full(0.5), 1e4 * 0.05 * 1e-3, rtol=1e-3)


def moved(dev, x, dtype, v, t):
    """States of the cells that begin at x after t at v, as many as there are numbers."""
    x, v, t = np.broadcast_arrays(*(np.atleast_1d(np.asarray(y, float)) for y in (x, v, t)))
    dev, state = dynamics.cells_of(dev, x, dtype)
    return state_of(evolve(dev, state, dynamics.filled(v), dynamics.filled(t))).ravel()[: x.size]


class TestPublishedValues:
    def test_yakopcic(self, dtype):
        dev, state = dynamics.cells_of(YAKOPCIC, 0.0, dtype)
        after = evolve(dev, state, 1.0, dynamics.filled([1e-3, 5e-3, 10e-3, 50e-3, 80e-3]))
        # 80 ms in one call, where Euler's step gives 7.7. Voltages and times are rounded to float32 here.
        known = [0.09626045, 0.37521386, 0.56684164, 0.94568147, 0.98583408]
        np.testing.assert_allclose(state_of(after)[0, :5], known, rtol=1e-6)
        np.testing.assert_allclose(state_of(evolve(dev, after, -1.0, 10e-3))[0, 2], 0.50627846, rtol=1e-6)
        # Set, a gap at 0 V, set again: the state was kept (5 ms and 5 ms are 10 ms).
        again = evolve(dev, evolve(dev, after, 0.0, 1.0), 1.0, 5e-3)
        np.testing.assert_allclose(state_of(again)[0, 1], 0.56684164, rtol=1e-6)

    def test_yakopcic_in_any_number_of_samples(self):
        dev, state = dynamics.cells_of(YAKOPCIC, 0.0, np.float32)
        for n in (10, 100, 1000, 10_000):
            after = state
            v, t = jnp.full(dynamics.SHAPE, 1.0, jnp.float32), jnp.full(dynamics.SHAPE, 0.01 / n, jnp.float32)
            for _ in range(n):
                after = evolve(dev, after, v, t)
            np.testing.assert_allclose(state_of(after), 0.56684164, rtol=2e-6)

    def test_ion_drift(self, dtype):
        for window, x in (("none", 0.5676214), ("joglekar", 0.3483307)):
            np.testing.assert_allclose(moved(LinearIonDrift(window=window), 0.1, dtype, 1.0, 0.5), x, atol=1e-7)

    def test_ion_drift_has_a_closed_form(self, dtype):
        # r_off x - (r_off - r_on) x^2/2 grows by (mu r_on/d^2) v t.
        x = moved(LinearIonDrift(), 0.1, dtype, [1.0, -0.2, 0.5], [0.5, 0.4, 1.0])
        grown = 1.0 * np.array([0.5, -0.08, 0.5])
        full = lambda x: 16e3 * x - 15900 * x**2 / 2
        np.testing.assert_allclose(full(x), full(0.1) + 1e4 * grown, rtol=1e-6)

    def test_ion_drift_threshold(self):
        dev = LinearIonDrift(v_on=0.55, v_off=-0.55)
        after = moved(dev, 0.5, np.float32, [0.5, -0.54, 0.6, -0.6], 0.01)
        assert (np.sign(after - 0.5) == [0, 0, 1, -1]).all()

    def test_data_driven_2018_takes_its_closed_step(self, dtype):
        dev = jax.tree.map(dynamics.float32, DataDriven())
        r = dynamics.float32([2e3, 9e3, 14e3])
        t = dynamics.float32(2e-4)
        up = moved(dev, r, dtype, 1.0, t)
        s, bound, k = dev.a_p * (np.exp(dev.t_p) - 1), dev.r_p0, dev.k_p
        full = np.log(np.exp(k * bound) + np.exp(-k * s * t) * (np.exp(k * r) - np.exp(k * bound))) / k
        np.testing.assert_allclose(up, full, rtol=1e-6)
        down = moved(dev, r, dtype, -1.0, t)
        s, bound, k = dev.a_n * (np.exp(dev.t_n) - 1), dev.r_n0 - dev.r_n1, dev.k_n
        full = -np.log(np.exp(-k * r + k * s * t) - np.exp(-k * bound) * (np.exp(k * s * t) - 1)) / k
        np.testing.assert_allclose(down, np.where(r > bound, full, r), rtol=1e-6)

    def test_data_driven_2021_takes_its_exact_step(self, dtype):
        dev = jax.tree.map(dynamics.float32, DataDriven2021())
        r = dynamics.float32([1700.0, 2050.0, 2900.0])
        t = dynamics.float32(3e-6)
        for v, s, bound in (
            (1.0, dev.a_p * (np.exp(1 / dev.t_p) - 1), dev.r_p0 + dev.r_p1),
            (-1.0, dev.a_n * (np.exp(1 / dev.t_n) - 1), dev.r_n0 - dev.r_n1),
        ):
            full = (r + s * bound * (bound - r) * t) / (1 + s * (bound - r) * t)
            expected = np.where(s * (bound - r) > 0, full, r)
            np.testing.assert_allclose(moved(dev, r, dtype, v, t), expected, rtol=1e-6)

    def test_vteam_below_and_above_threshold(self, x64):
        # O13 of the reported faults: rate and its derivatives at v = 0.3 are 0; 1 and d/dv = 3 at 1 V.
        dev = VTEAM(v_off=0.5, a_off=1.5, k_off=1.0, w_off=3.0)
        grads = jax.grad(lambda dev, x, v: dev.rate_of(x, v), argnums=(0, 1, 2))
        for v in (0.0, 0.3, 0.5, 1.0, -1.0):
            for window in ("none", "joglekar", "biolek", "team"):
                got = grads(dev.replace(window=window), 1.0, v)
                assert all(np.isfinite(g) for g in jax.tree.leaves(got))
                if v in (0.0, 0.3, 0.5):
                    assert not any(jax.tree.leaves(got)), (v, window)
        got, dx, dv = grads(dev, 1.0, 1.0)
        assert dev.rate_of(1.0, 1.0) == 1.0
        assert (dx, got.k_off) == (0.0, 1.0)
        np.testing.assert_allclose(dv, 3.0)
        np.testing.assert_allclose([got.v_off, got.a_off], [-6.0, 0.0], atol=1e-12)


class TestSinh:
    # O11: 13 V and x = 1 was inf 0 = NaN.
    @pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float32])
    def test_no_overflow(self, kind):
        dev = jax.tree.map(lambda y: jnp.asarray(y, kind), YakopcicGeneral())
        x = jnp.asarray([0, 0.5, 1], kind)
        for v, expected in ((5.0, None), (13.0, [7.7221e33, None, 4.5344e23]), (-30.0, None)):
            e = lambda a, b, v=v: a * np.sinh(b * v)
            on, off = (e(9e-5, 4.96), e(1.5e-5, 6.91)) if v > 0 else (e(1.7e-4, 3.23), e(4.4e-7, 2.6))
            i = np.asarray(dev.current_of(x, jnp.asarray(v, kind)), np.float64)
            full = np.array([off, (on + off) / 2, on])
            np.testing.assert_allclose(i, full, rtol=2e-5 if kind == jnp.float32 else 0.3)
            if expected:
                np.testing.assert_allclose(full[[0, 2]], [expected[0], expected[2]], rtol=1e-4)
            total = lambda x, v, dev: dev.current_of(x, v).astype(jnp.float32).sum()
            for grad in jax.tree.leaves(jax.grad(total, argnums=(0, 1, 2))(x, jnp.asarray(v, kind), dev)):
                assert np.isfinite(np.asarray(grad, np.float32)).all()

    @pytest.mark.parametrize("name", DEVICES)
    def test_no_device_overflows(self, name, dtype):
        dev = DEVICES[name].cells(dtype)[0]
        low, high = (np.asarray(b) for b in dev.bounds())
        x = jnp.asarray(low + (high - low) * np.resize(np.linspace(0, 1, 8), dynamics.SHAPE), dtype)
        v = jnp.asarray(np.repeat([[1e-12], [13.0], [-30.0], [300.0]], 8, 1), dtype)
        for what in (lambda x, v, dev: dev.current_of(x, v), lambda x, v, dev: dev.rate_of(x, v)):
            value, pull = jax.vjp(what, x, v, dev)
            assert np.isfinite(value).all()
            for grad in jax.tree.leaves(pull(jnp.ones_like(x))):
                assert not np.isnan(grad).any()

    def test_law_and_its_derivatives(self, x64):
        from xbar_jax.devices.laws import sinh_law

        y = np.array([0.0, 1e-9, -0.3, 0.499, -0.501, 3.0, -200.0, 700.0])
        np.testing.assert_allclose(sinh_law(2.0, y), 2 * np.sinh(y), rtol=1e-13)
        da, dy = jax.vmap(jax.grad(sinh_law, argnums=(0, 1)))(jnp.full(8, 2.0), y)
        np.testing.assert_allclose(da, np.sinh(y), rtol=1e-13)
        np.testing.assert_allclose(dy, 2 * np.cosh(y), rtol=1e-13)
        second = jax.vmap(jax.grad(jax.grad(sinh_law, argnums=1), argnums=1))(jnp.full(8, 2.0), y)
        np.testing.assert_allclose(second, 2 * np.sinh(y), rtol=1e-12, atol=1e-15)


class TestRoundTrip:
    @pytest.mark.parametrize("name", [*DEVICES, "VTEAM-none"])
    def test_set_read(self, name, dtype):
        dev, state = dynamics.cells_of(ALL[name].dev, 0.0, dtype)
        least, most = (np.asarray(g)[0, 0] for g in dev.conductance_range())
        g = np.resize(np.linspace(least, most, 11), dynamics.SHAPE)
        state = dev.set_conductance(state, jnp.asarray(g, dtype))
        # Where the range begins at 0, what is set as 0 reads as less than 1e-7 of the range.
        read = lambda s: np.testing.assert_allclose(dev.conductance(s), g, rtol=1e-5, atol=0 if least else 1e-7 * most)
        read(state)
        read(evolve(dev, state, 0.0, 1.0))
        # np.savez of its leaves, and pickle.
        leaves, structure = jax.tree.flatten(state)
        file = io.BytesIO()
        np.savez(file, *leaves)
        file.seek(0)
        with np.load(file) as z:
            read(jax.tree.unflatten(structure, [jnp.asarray(z[k]) for k in z.files]))
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(state)).x, state.x)

    def test_beyond_the_range_is_clipped(self):
        dev = VTEAM()
        state = dev.set_conductance(dev.init((1, 2)), jnp.array([[1.0, 1e-9]]))
        np.testing.assert_allclose(dev.conductance(state), [[1 / 50, 1e-3]], rtol=1e-6)

    # What the docstrings state of a fresh cell, at 0.1 V.
    @pytest.mark.parametrize(
        ("dev", "g"),
        [
            (LinearIonDrift(), 1 / (0.1 * 100 + 0.9 * 16e3)),
            (VTEAM(), 1e-3),
            (VTEAM(law="exponential"), 1e-3),
            (Yakopcic(), 0.17 * 0.11 * np.sinh(0.05 * 0.1) / 0.1),
            (YakopcicGeneral(), 1.5e-5 * np.sinh(0.691) / 0.1),
            (StanfordPKU(), 1 / 542),
            (DataDriven(), 0.24 / 1280 * np.sinh(0.3) / 0.1),
            (DataDriven2021(), 0.32046 / 1600 * np.sinh(0.27169) / 0.1),
        ],
        ids=lambda x: type(x).__name__,
    )
    def test_fresh_cell(self, dev, g, dtype):
        np.testing.assert_allclose(dev.conductance(dev.init((1, 1), dtype=dtype)), g, rtol=1e-5)

    def test_ranges(self, x64):
        np.testing.assert_allclose(StanfordPKU().conductance_range(), [1 / 218586, 1 / 542])
        np.testing.assert_allclose(VTEAM(law="exponential").conductance_range(), [1e-3, 1 / 50])
        # Half way of an exponential law.
        dev = VTEAM(law="exponential", v_read=0.3)
        np.testing.assert_allclose(dev.conductance(dev.init((1, 1), x=1.5e-9, dtype=np.float64)), (50e3) ** -0.5)

    @pytest.mark.parametrize("name", DEVICES)
    def test_polarity(self, name):
        dev, state, v, t = DEVICES[name].cells(np.float32)
        gain = np.asarray(dev.conductance(evolve(dev, state, v, t)) - dev.conductance(state))
        moved = gain != 0
        assert moved.sum() > 10
        np.testing.assert_array_equal(np.sign(gain)[moved], dev.polarity * np.sign(np.asarray(v))[moved])
