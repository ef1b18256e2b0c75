"""Dynamic devices as arrays: spread, what is random in time, vmap, parameters of each cell, and messages."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xbar_jax.devices.data_driven import DataDriven
from xbar_jax.devices.linear_ion_drift import LinearIonDrift
from xbar_jax.devices.spread import Spread
from xbar_jax.devices.stanford_pku import StanfordPKU
from xbar_jax.devices.vteam import VTEAM
from xbar_jax.devices.yakopcic import Yakopcic
from xbar_jax.devices.yakopcic_general import YakopcicGeneral

KEY = jax.random.key(7)
SIDE = 320


class TestSpread:
    def test_drawn_as_stated(self, dtype):
        dev = VTEAM(spread={"r_on": Spread(dtod=0.1), "k_off": Spread(dtod=0.3, low=4e-4, high=8e-4)})
        cells = dev.init((SIDE, SIDE), key=KEY, dtype=dtype).cells
        assert set(cells) == {"r_on", "k_off"}
        r_on, k_off = (np.asarray(cells[k], float) for k in ("r_on", "k_off"))
        # 1e5 draws of a normal number: the standard deviation within 1 %.
        np.testing.assert_allclose(r_on.std(), 5.0, rtol=0.01)
        np.testing.assert_allclose(r_on.mean(), 50.0, rtol=1e-3)
        # The truncated one: within its bounds, and no heap at either.
        assert k_off.min() >= np.dtype(dtype).type(4e-4) and k_off.max() <= np.dtype(dtype).type(8e-4)
        assert (k_off == k_off.min()).mean() < 1e-3
        from scipy.stats import truncnorm

        truth = truncnorm(-1e-4 / 1.5e-4, 3e-4 / 1.5e-4, 5e-4, 1.5e-4)
        np.testing.assert_allclose(k_off.mean(), truth.mean(), rtol=2e-3)
        np.testing.assert_allclose(k_off.std(), truth.std(), rtol=0.01)
        np.testing.assert_allclose(np.corrcoef(r_on.ravel(), k_off.ravel())[0, 1], 0, atol=0.015)

    def test_indexed_by_cell(self):
        dev = VTEAM(spread={"r_on": Spread()})
        whole = dev.init((4, 6), key=KEY).cells["r_on"]
        part = dev.init((2, 3), key=KEY, row=1, col=3).cells["r_on"]
        np.testing.assert_array_equal(part, whole[1:3, 3:6])

    def test_counts_in_current_and_motion(self):
        dev = VTEAM(spread={"r_off": Spread(dtod=0.2), "k_off": Spread(dtod=0.2)})
        state = dev.init((2, 3), key=KEY, x=1e-9)
        np.testing.assert_allclose(dev.current(state, 0.01), 0.01 / (50 + (state.cells["r_off"] - 50) / 3), rtol=1e-6)
        moved = dev.evolve(state, 0.04, 1e-7).x - state.x
        np.testing.assert_allclose(moved, state.cells["k_off"] * 1e-7, rtol=1e-5)

    def test_cycle_to_cycle(self):
        dev = VTEAM(spread={"k_off": Spread(dtod=0.1, ctoc=0.02, low=4.5e-4, high=5.5e-4)})
        state = dev.init((SIDE, SIDE), key=KEY)
        with pytest.raises(TypeError, match=r"VTEAM\.evolve: key must be given"):
            dev.evolve(state, 0.04, 1e-8)
        step = jax.jit(lambda s, key, t: dev.evolve(s, 0.01, t, key=key).cells["k_off"])
        after = step(state, jax.random.key(1), 1e-8)
        inside = np.abs(state.cells["k_off"] - 5e-4) < 1e-5
        np.testing.assert_allclose(np.std((after - state.cells["k_off"])[inside]), 1e-5, rtol=0.02)
        assert after.min() >= np.float32(4.5e-4) and after.max() <= np.float32(5.5e-4)
        # No time, no cycle; another key, another cycle.
        np.testing.assert_array_equal(step(state, jax.random.key(1), 0.0), state.cells["k_off"])
        assert (step(state, jax.random.key(2), 1e-8) != after).mean() > 0.8


class TestRandomGap:
    def test_published_delta_is_of_the_scale_of_nanometres(self):
        # 0.02 nm in a nanosecond, by the gate at 298 K, and with the root of the time.
        dev = StanfordPKU(delta=0.02)
        state = dev.init((SIDE, SIDE), x=0.9e-9)
        step = jax.jit(lambda t, v: dev.evolve(state, v, t, key=KEY).x - state.x)
        gate = 1 / (1 + np.exp((450 - 298) / 500))
        for t in (1e-9, 1e-8):
            np.testing.assert_allclose(np.std(step(t, 0.0)), 0.02 * gate * np.sqrt(t * 1e-9), rtol=0.01)
        assert (step(0.0, 1.5) == 0).all()
        # The deterministic part is that of the device without.
        plain = StanfordPKU()
        there = plain.evolve(plain.init((1, 1), x=0.9e-9), 1.2, 1e-9)
        temperature = plain.temperature_of(there.x, 1.2)
        gate = 1 / (1 + np.exp((450 - float(temperature[0, 0])) / 500))
        moved = step(1e-9, 1.2)
        np.testing.assert_allclose(np.std(moved), 0.02e-9 * gate, rtol=0.01)
        np.testing.assert_allclose(np.mean(moved), there.x[0, 0] - 0.9e-9, atol=4 * 0.02e-9 / SIDE)

    def test_stays_in_bounds(self):
        dev = StanfordPKU(delta=2.0)
        low, high = dev.bounds()
        x = dev.evolve(dev.init((40, 40)), 0.0, 1e-6, key=KEY).x
        assert x.min() >= np.float32(low) and x.max() <= np.float32(high)
        assert (x == x.max()).mean() > 0.1 and (x == x.min()).mean() > 0.1

    def test_key_exactly_where_delta_is_given(self):
        with pytest.raises(TypeError, match=r"StanfordPKU\.evolve: key must be given, a part of this device is random"):
            StanfordPKU(delta=0.0).evolve(StanfordPKU().init((1, 1)), 1.0, 1e-9)
        plain = StanfordPKU()
        state = plain.init((1, 1))
        np.testing.assert_array_equal(
            StanfordPKU(delta=0.0).evolve(state, -1.2, 1e-9, key=KEY).x, plain.evolve(state, -1.2, 1e-9).x
        )

    def test_kernel_has_a_number_for_no_delta(self):
        dev = StanfordPKU()
        operands = dev.kernel_operands(jnp.ones((2, 2)))
        assert len(operands) == len(dev._numbers())
        assert all(x.shape == (1, 1) and x.dtype == np.float32 for x in operands)
        assert operands[dev._numbers().index("delta")] == 0.0


class TestArrays:
    def test_vmap_is_a_loop(self):
        dev = VTEAM(window="biolek")
        v = jnp.asarray([0.05, 0.1, -0.4])
        k = jnp.asarray([2e-4, 5e-4, 9e-4])
        w = jnp.asarray([[[1e-9]], [[2e-9]], [[2.5e-9]]])
        one = lambda k, v, w: dev.replace(k_off=k).evolve(dev.init((1, 1)).replace(x=w), v, 1e-7).x
        for axes in ((0, 0, 0), (0, None, None), (None, 0, None), (None, None, 0)):
            args = [y if a == 0 else y[0] for y, a in zip((k, v, w), axes, strict=True)]
            got = jax.vmap(one, in_axes=axes)(*args)
            for n in range(3):
                alone = one(*(y[n] if a == 0 else y for y, a in zip(args, axes, strict=True)))
                np.testing.assert_allclose(got[n], alone, rtol=1e-6)

    def test_parameters_of_each_cell(self):
        k = np.array([[1e-4, 2e-4, 3e-4], [4e-4, 5e-4, 6e-4]], np.float32)
        dev = VTEAM(k_off=jnp.asarray(k))
        after = dev.evolve(dev.init((2, 3), x=0.0), 0.04, 1e-6)
        np.testing.assert_allclose(after.x, k * 1e-6, rtol=1e-6)
        np.testing.assert_allclose(dev.rate(after, 0.06), 2 * k, rtol=1e-5)


class TestMessages:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: VTEAM(v_off=-0.1), r"VTEAM: v_off must be > 0, got -0.1"),
            (lambda: VTEAM(v_on=0.1), r"VTEAM: v_on must be < 0, got 0.1"),
            (lambda: VTEAM(w_off=-1e-9), r"VTEAM: the least state must be below the largest"),
            (lambda: VTEAM(law="log"), r"VTEAM: law must be one of linear, exponential, got 'log'"),
            (lambda: VTEAM(window="teem"), r"VTEAM: window must be one of none, .*team, got 'teem'"),
            (lambda: VTEAM(k_on=np.nan), r"VTEAM: k_on must be finite"),
            (lambda: VTEAM(k_on=np.ones(3)), r"VTEAM: k_on must be a scalar or of shape \(1, 2\), got \(3,\)"),
            (lambda: LinearIonDrift(v_on=-0.5), r"LinearIonDrift: v_off <= 0 <= v_on must hold, got 0.0 and -0.5"),
            (lambda: StanfordPKU(r_on=3e5), r"StanfordPKU: the least state must be below the largest"),
            (lambda: StanfordPKU(g0=0.0), r"StanfordPKU: g0 must be > 0, got 0.0"),
            (lambda: StanfordPKU(spread={"delta": Spread()}), r"parameters that are given, delta is None"),
            (lambda: DataDriven(spread={"k": Spread()}), r"DataDriven: spread must name parameters \(a, b, .*got 'k'"),
            (lambda: Yakopcic(b=0.0), r"Yakopcic: b must be > 0, got 0.0"),
        ],
    )
    def test_numbers(self, make, message):
        with pytest.raises(ValueError, match=message):
            make().init((1, 2), key=KEY)

    def test_calls(self):
        dev = VTEAM()
        state = dev.init((2, 2))
        with pytest.raises(ValueError, match=r"evolve: t must be >= 0 s, got -1"):
            dev.evolve(state, 0.1, -1.0)
        with pytest.raises(ValueError, match=r"evolve: v must be a number or of shape \(2, 2\), got \(2,\)"):
            dev.evolve(state, jnp.ones(2), 1.0)
        with pytest.raises(ValueError, match=r"set_conductance: g must be of shape \(2, 2\), got \(3,\)"):
            dev.set_conductance(state, jnp.ones(3))
        with pytest.raises(TypeError, match=r"VTEAM\.init: key must be given, spread is to be drawn"):
            VTEAM(spread={"r_on": Spread()}).init((2, 2))
        with pytest.raises(ValueError, match=r"init: shape must be \(rows, cols\)"):
            dev.init((2,))
        with pytest.raises(TypeError, match=r"init: dtype must be floating point"):
            dev.init((2, 2), dtype=jnp.int32)


def test_no_sign_that_must_stay_is_changed_by_spread():
    """r_on of half its mean: what would be below a hundredth of the nominal value is put there."""
    dev = VTEAM(spread={"r_on": Spread(dtod=0.5), "v_on": Spread(dtod=0.5)})
    cells = dev.init((200, 200), key=jax.random.key(0)).cells
    assert (
        cells["v_on"].max() < 0
        and cells["r_on"].min() == np.float32(0.5)
        and 0.01 < np.mean(np.asarray(cells["r_on"]) < 0.51) < 0.04
    )
    for spread, message in (
        (Spread(dtod=-0.1), "dtod of the spread of r_on must be >= 0"),
        (Spread(low=2.0, high=1.0), "low of the spread of r_on must be below high"),
    ):
        with pytest.raises(ValueError, match=message):
            VTEAM(spread={"r_on": spread}).init((1, 1), key=jax.random.key(0))


def test_eta_turns_the_polarity_round():
    for cls in (Yakopcic, YakopcicGeneral):
        state = cls().init((1, 1), x=0.5)
        up, down = (cls(eta=eta).evolve(state, 1.0, 1e-4).x[0, 0] for eta in (1.0, -1.0))
        assert down < 0.5 < up and cls().polarity == 1 and cls(eta=-1.0).polarity == -1
