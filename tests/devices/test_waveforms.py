"""Waveforms, loops and curves, against closed forms and scipy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import xbar_jax as xb
from xbar_jax import plot

VTEAM = xb.devices.VTEAM(r_on=5e3, r_off=1e5, v_on=-0.6, v_off=0.6, k_on=-1e-3, k_off=1e-3, a_on=1.0, a_off=1.0)
# The threshold device of the reported case O10.
YAKOPCIC = xb.devices.Yakopcic(ap=90.0, an=10.0, vp=0.5, vn=0.5, xp=0.1, xn=0.242, alpha_p=1.0, alpha_n=1.0)


def test_what_the_waveforms_hold():
    w = (
        xb.devices.pulses(0.5, 1e-6, 3e-6, n=2)
        + xb.devices.ramp(0.0, -1.0, 1e-3, 2)
        + xb.devices.ispp(0.2, 0.1, 1e-7, 3)
    )
    np.testing.assert_allclose(w.v, [0.5, 0, 0.5, 0, -0.25, -0.75, 0.2, 0.3, 0.4], rtol=1e-6)
    np.testing.assert_allclose(w.t, [1e-6, 3e-6, 1e-6, 3e-6, 5e-4, 5e-4, 1e-7, 1e-7, 1e-7], rtol=1e-6)
    np.testing.assert_allclose(w.duration, 8e-6 + 1e-3 + 3e-7, rtol=1e-6)
    assert xb.devices.ispp(0.2, 0.1, 1e-7, 2, gap=1e-6).v.tolist() == pytest.approx([0.2, 0.0, 0.3, 0.0])
    each = xb.devices.concatenate(xb.devices.pulses(jnp.ones((2, 3)), 1e-6), w)
    assert each.v.shape == (10, 2, 3) and (each.v[1:, 1, 2] == w.v).all()


def test_a_train_is_the_sum_of_its_pulses_and_cuts_do_not_matter(dtype):
    state = VTEAM.init((1, 2), x=2e-9, dtype=dtype)
    # dw = k (v/v_th - 1) t, pulse by pulse.
    train = xb.devices.pulses(-0.9, 3e-7, 1e-6, n=5) + xb.devices.pulses(1.2, 1e-7, n=2)
    done = xb.devices.apply(VTEAM, state, train)
    w = 2e-9 + np.cumsum([*[-1e-3 * 0.5 * 3e-7, 0.0] * 5, 1e-10, 1e-10])
    g = 1 / (5e3 + 95e3 * w / 3e-9)
    np.testing.assert_allclose(done.g[:, 0, 1], g, rtol=1e-5)
    np.testing.assert_allclose(done.i[:, 0, 0], np.asarray(train.v) * g, rtol=1e-5)
    fine = xb.devices.Waveform(v=jnp.repeat(train.v, 8), t=jnp.repeat(train.t / 8, 8))
    again = xb.devices.apply(VTEAM, state, fine)
    np.testing.assert_allclose(again.state.x, done.state.x, rtol=1e-6 if dtype == np.float32 else 1e-9)


def test_the_reported_pulses_as_a_waveform(x64):
    state = YAKOPCIC.init((1, 1), x=0.0, dtype=jnp.float64)
    wave = xb.devices.concatenate(xb.devices.pulses(1.0, 5e-3, n=2), xb.devices.pulses(-1.0, 1e-2))
    done = xb.devices.apply(YAKOPCIC.replace(a1=1.0, a2=1.0, b=1.0), state, wave)
    x = np.asarray(done.i)[:, 0, 0] / np.sinh(np.asarray(wave.v))
    np.testing.assert_allclose(x, [0.37521386, 0.56684164, 0.50627846], rtol=1e-7)


def test_each_cell_may_have_its_own_amplitude():
    state = VTEAM.init((1, 3))
    done = xb.devices.apply(VTEAM, state, xb.devices.pulses(jnp.array([[-0.5, -0.9, -1.2]]), 2e-7, n=3))
    want = 3e-9 - 3 * 2e-7 * 1e-3 * np.array([0.0, 0.5, 1.0])
    np.testing.assert_allclose(done.state.x[0], want, rtol=1e-5)


def area(v, i):
    """Signed, of the loop: positive where the way back at V > 0 carries more current."""
    return -np.trapezoid(i, v)


@pytest.mark.parametrize("shape", ["triangle", "sine"])
def test_the_loop_is_pinched_and_runs_the_right_way(shape):
    sets_up = xb.devices.iv_sweep(YAKOPCIC.replace(b=2.0), YAKOPCIC.init((1, 1)), 0.9, 0.1, 120, shape=shape)
    sets_down = xb.devices.iv_sweep(VTEAM, VTEAM.init((1, 1)), -1.0, 1e-5, 120, shape=shape)
    for loop, points in ((sets_up, 120), (sets_down, 120)):
        v, i = np.asarray(loop.v), np.asarray(loop.i)[:, 0, 0]
        at_zero = [0, points // 2, points]
        assert (v[at_zero] == 0).all() and (i[at_zero] == 0).all()
        assert (i * v >= 0).all()
        first = slice(0, points // 2 + 1)
        # In the half that sets, more current flows on the way back.
        back = np.abs(i[first])[::-1] - np.abs(i[first])
        assert back[: points // 4 - 1].max() > 0.1 * np.abs(i).max()
        assert area(np.abs(v[first]), np.abs(i[first])) > 0.05 * np.abs(v).max() * np.abs(i[first]).max()
        np.testing.assert_allclose(np.abs(v).max(), np.abs(v[points // 4]), rtol=1e-6)
    np.testing.assert_allclose(sets_up.t[-1], 0.1, rtol=1e-6)
    below = xb.devices.iv_sweep(VTEAM, VTEAM.init((1, 1)), 0.5, 1e-5, 40)  # under both thresholds: a line
    np.testing.assert_allclose(np.asarray(below.i)[:, 0, 0], np.asarray(below.v) / 1e5, rtol=1e-6)


def test_the_sweep_against_scipy_is_second_order(x64):
    rate = lambda t, x: [
        float(YAKOPCIC.rate_of(jnp.float64(np.clip(x[0], 0, 1)), jnp.float64(0.9 * np.sin(20 * np.pi * t))))
    ]
    want = solve_ivp(rate, (0, 0.1), [0.11], rtol=1e-8, atol=1e-10, max_step=1e-3).y[0, -1]

    def miss(points):
        loop = xb.devices.iv_sweep(YAKOPCIC, YAKOPCIC.init((1, 1), dtype=jnp.float64), 0.9, 0.1, points, shape="sine")
        return abs(float(loop.state.x[0, 0]) - want)

    coarse, fine = miss(160), miss(640)
    assert fine < 3e-6 * want
    assert coarse > 10 * fine


def test_up_and_down_curve_of_a_dynamic_device():
    curve = xb.devices.pulse_response(VTEAM, VTEAM.init((1, 2)), 3, 2, v_set=-0.9, v_reset=1.2, width=2e-7)
    w = 3e-9 + np.cumsum([0.0, -1e-10, -1e-10, -1e-10, 2e-10, 2e-10])
    want = 1 / (5e3 + 95e3 * np.minimum(w, 3e-9) / 3e-9)
    np.testing.assert_allclose(curve[:, 0, 1], want, rtol=1e-5)
    up = xb.devices.pulse_response(VTEAM, VTEAM.init((1, 2)), 3, 0, v_set=-0.9, v_reset=1.2, width=2e-7)
    np.testing.assert_allclose(up, curve[:4], rtol=1e-6)


def test_the_pictures_hold_the_loop_and_the_curve():
    loop = xb.devices.iv_sweep(VTEAM, VTEAM.init((1, 1)), -1.0, 1e-5, 40)
    axes = plot.iv_loops({"a": loop, "b": loop}).axes
    drawn = np.array(axes[1].collections[0].get_segments())
    v, i = np.asarray(loop.v), 1e6 * np.asarray(loop.i)[:, 0, 0]
    assert axes[1].get_ylabel() == "uA"
    np.testing.assert_allclose(np.concatenate([drawn[:, 0], drawn[-1:, 1]]), np.stack([v, i], 1), rtol=1e-6)
    g = np.array([1e-5, 2e-5, 1.5e-5])[:, None, None] * np.ones((1, 1, 2))
    (axes,) = plot.pulse_curve({"a": g}, 1).axes
    mean = axes.lines[-1]
    np.testing.assert_allclose(mean.get_ydata(), [10.0, 20.0, 15.0])


def test_gradient_of_a_train_with_respect_to_its_amplitude():
    state = VTEAM.init((1, 1))

    def last(v):
        return xb.devices.apply(VTEAM, state, xb.devices.pulses(v, 2e-7, n=4)).state.x[0, 0]

    np.testing.assert_allclose(jax.grad(last)(-0.9), 4 * 2e-7 * -1e-3 / -0.6, rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: xb.devices.pulses(1.0, -1e-6), "pulses: width must be >= 0 s"),
        (lambda: xb.devices.pulses(1.0, 1e-6, n=0), "pulses: n must be a whole number >= 1"),
        (lambda: xb.devices.ramp(0.0, 1.0, 1e-3, 0), "ramp: steps must be a whole number >= 1"),
        (lambda: xb.devices.iv_sweep(VTEAM, VTEAM.init((1, 1)), 1.0, 1.0, 21), "iv_sweep: points must be even"),
        (lambda: xb.devices.iv_sweep(VTEAM, VTEAM.init((1, 1)), 1.0, 1.0, shape="saw"), "iv_sweep: shape must be"),
        (lambda: xb.devices.concatenate(), "concatenate: waves must hold at least one"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_what_the_up_and_down_curve_needs():
    with pytest.raises(TypeError, match="pulse_response: width must be given"):
        xb.devices.pulse_response(VTEAM, VTEAM.init((1, 1)), 1, 1, v_set=-1.0, v_reset=1.0)
    dev = xb.devices.SoftBounds()
    with pytest.raises(TypeError, match="pulse_response: key must be given"):
        xb.devices.pulse_response(dev, dev.init((1, 1), key=jax.random.key(0)), 1, 1)
