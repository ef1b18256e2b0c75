"""Dynamic devices in training: weights from conductances, pulses from voltages that are held."""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.devices import Pulsed, Spread

R_ON, R_OFF, W_OFF = 5e3, 1e5, 3e-9
# dw/dt = k (|v|/0.6 - 1): at 0.9 V 2.5e-4 m/s either way.
CELL = xb.devices.VTEAM(r_on=R_ON, r_off=R_OFF, v_on=-0.6, v_off=0.6, k_on=-5e-4, k_off=5e-4, a_on=1.0, a_off=1.0)
SPEED = 2.5e-4


def trained(width=1e-8, device=CELL, **others):
    return Pulsed(device, v_set=-0.9, v_reset=0.9, width=width, **others)


def weight_at(w):
    """Of a cell whose state is w, from its resistance."""
    g = 1 / (R_ON + (R_OFF - R_ON) * w / W_OFF)
    low, high = 1 / R_OFF, 1 / R_ON
    return -0.6 + 1.2 * (g - low) / (high - low)


@pytest.fixture(params=[False, True], ids=["native", "body"])
def form(request):
    if request.param:
        with xb.native.disabled():
            yield
    else:
        yield


def test_pulses_hold_their_voltage(dtype, form):
    dev = trained()
    state = dev.init((2, 3), dtype=dtype)
    x = np.linspace(0.6e-9, 2.4e-9, 6).reshape(2, 3)
    state = dev.set_weight(state, jnp.asarray(weight_at(x), dtype))
    np.testing.assert_allclose(state.cell.x, x, rtol=2e-5 if dtype == np.float32 else 1e-11)
    n = np.array([[1, -2, 0], [5, -7, 3]])
    new = dev.pulse(state, jnp.asarray(n))
    want = np.clip(x - n * SPEED * 1e-8, 0, W_OFF)
    np.testing.assert_allclose(new.cell.x, want, rtol=5e-5 if dtype == np.float32 else 1e-10, atol=1e-15)
    np.testing.assert_allclose(dev.weight(new), weight_at(want), rtol=2e-4 if dtype == np.float32 else 1e-9, atol=1e-6)
    assert (np.asarray(new.pulses) == np.abs(n)).all() and new.pulses.dtype == np.int32
    assert new.cell.x.dtype == dtype


def test_bounds_and_granularity(x64):
    dev = trained()
    state = dev.init((1, 2), w=np.array([[-9.0, 9.0]]), dtype=np.float64)
    low, high = dev.weight_range(state)
    np.testing.assert_allclose(dev.weight(state), [[-0.6, 0.6]], rtol=1e-9)
    np.testing.assert_allclose(low, -0.6, rtol=1e-9)
    np.testing.assert_allclose(high, 0.6, rtol=1e-9)
    # The mean step at w = 0: g is half way, the state from the resistance.
    g = 0.5 * (1 / R_OFF + 1 / R_ON)
    x = W_OFF * (1 / g - R_ON) / (R_OFF - R_ON)
    up, down = (abs(weight_at(x - n * SPEED * 1e-8)) for n in (1, -1))
    np.testing.assert_allclose(dev.granularity, 0.5 * (up + down), rtol=1e-8)
    assert trained(dw_min=0.02).granularity == 0.02


def test_the_update_is_coincidences_of_the_same_trains(form):
    """Against a device of constant step, whose weight counts its pulses: equal lines, equal keys."""
    rng = np.random.default_rng(3)
    x, d = rng.normal(size=(6, 4)).astype(np.float32), rng.normal(size=(6, 5)).astype(np.float32)
    dev = trained(width=1e-10, dw_min=0.01)
    state = dev.init((4, 5), w=0.0)
    new = jax.jit(lambda s: xb.pulsed_update(dev, s, x, d, lr=0.05, key=jax.random.key(7)))(state)
    none = {"dw_min_dtod": 0.0, "dw_min_std": 0.0, "up_down_dtod": 0.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0}
    counter = xb.devices.ConstantStep(dw_min=0.01, w_max=100.0, w_min=-100.0, **none)
    counted = xb.pulsed_update(
        counter, counter.init((4, 5), key=jax.random.key(0)), x, d, lr=0.05, key=jax.random.key(7)
    )
    net = np.round(np.asarray(counter.weight(counted)) / 0.01)
    assert (new.pulses == counted.pulses).all() and new.pulses.max() > 5
    moved = np.asarray(new.cell.x, np.float64) + np.asarray(new.cell.x_lo) - np.asarray(state.cell.x)
    np.testing.assert_allclose(moved, -net * SPEED * 1e-10, rtol=1e-4, atol=1e-17)


def test_a_cell_that_changes_from_cycle_to_cycle_gets_pulses_one_by_one():
    spread = {"k_on": Spread(dtod=0.0, ctoc=0.2, low=-1e-3, high=-1e-4)}
    dev = trained(device=CELL.replace(spread=spread))
    state = dev.init((20, 30), key=jax.random.key(1), w=0.0)
    with pytest.raises(TypeError, match="key"):
        dev.pulse(state, jnp.int32(2))
    new = jax.jit(lambda s: dev.pulse(s, jnp.int32(3), key=jax.random.key(2)))(state)
    moved = np.asarray(state.cell.x - new.cell.x) / (SPEED * 1e-8)
    # k after 1, 2 and 3 steps of a random walk of 0.2: their sum has mean 3 and variance 0.04 (9 + 4 + 1).
    assert abs(moved.mean() - 3) < 5 * 0.75 / 24 and abs(moved.std() / np.sqrt(0.04 * 14) - 1) < 0.12
    assert (dev.pulse(state, jnp.int32(0), key=jax.random.key(2)).cell.x == state.cell.x).all()


def test_spread_of_the_cells_and_a_round_trip():
    """Every cell with a speed of its own; state through a file."""
    dev = trained(device=CELL.replace(spread={"k_off": Spread(dtod=0.3, low=0.0), "r_on": Spread(dtod=0.1)}))
    state = dev.init((8, 9), key=jax.random.key(4), w=0.1)
    np.testing.assert_allclose(dev.weight(state), 0.1, atol=2e-6)
    new = dev.pulse(state, jnp.int32(-2))
    moved = (new.cell.x - state.cell.x) + (new.cell.x_lo - state.cell.x_lo)
    np.testing.assert_allclose(moved, state.cell.cells["k_off"] * 0.5 * 2e-8, rtol=2e-4)
    file = io.BytesIO()
    np.savez(file, **{str(k): v for k, v in enumerate(jax.tree.leaves(new))})
    file.seek(0)
    with np.load(file) as z:
        again = jax.tree.unflatten(jax.tree.structure(new), [jnp.asarray(z[k]) for k in z])
    assert (dev.weight(again) == dev.weight(new)).all() and (again.pulses == 2).all()


def test_derivatives(x64):
    """The surrogate in lr, and the true derivative in the state, against differences."""
    dev = trained(width=1e-10, dw_min=1e-3)
    x, d = np.full((1, 1), 0.7), np.full((1, 1), -0.4)
    state = dev.init((1, 1), w=0.2, dtype=np.float64)
    run = lambda state, lr: dev.weight(xb.pulsed_update(dev, state, x, d, lr=lr, key=jax.random.key(0)))[0, 0]
    slope = jax.grad(run, 1)(state, 0.1)
    one = dev.pulse(state, jnp.int32(1))
    after = xb.pulsed_update(dev, state, x, d, lr=0.1, key=jax.random.key(0))
    step = dev.weight(dev.pulse(after, jnp.int32(1))) - dev.weight(after)
    np.testing.assert_allclose(slope, 0.28 * step[0, 0] / 1e-3, rtol=1e-2)
    v = jax.grad(lambda v: dev.weight(dev.replace(v_set=v).pulse(state, jnp.int32(3)))[0, 0])(-0.9)
    f = lambda v: dev.weight(dev.replace(v_set=v).pulse(state, jnp.int32(3)))[0, 0]
    np.testing.assert_allclose(v, (f(-0.9 + 1e-6) - f(-0.9 - 1e-6)) / 2e-6, rtol=1e-6)
    assert dev.weight(one)[0, 0] > 0.2


def test_messages():
    dev = trained()
    state = dev.init((2, 3))
    with pytest.raises(TypeError, match="n must be of an integer type"):
        dev.pulse(state, jnp.ones((2, 3)))
    with pytest.raises(ValueError, match=r"n must be of shape \(2, 3\)"):
        dev.pulse(state, jnp.ones((3, 2), jnp.int32))
    with pytest.raises(ValueError, match="v_set must be < 0 V"):
        Pulsed(CELL, v_set=0.9, v_reset=-0.9).init((1, 1))
    with pytest.raises(ValueError, match="v_reset must be < 0 V"):
        Pulsed(xb.devices.Yakopcic(), v_set=0.9, v_reset=0.9).init((1, 1))
    with pytest.raises(TypeError, match="device must be a DynamicDevice, got Faulty"):
        Pulsed(xb.devices.Faulty(device=CELL), v_set=-0.9, v_reset=0.9).init((1, 1))


def test_granularity_of_cells_with_numbers_of_their_own(x64):
    """That of the mean cell."""
    k = jnp.asarray([[4e-4, 6e-4], [5e-4, 5e-4]])
    each = trained(device=CELL.replace(k_off=k, k_on=-k))
    np.testing.assert_allclose(each.granularity, trained().granularity, rtol=1e-9)
