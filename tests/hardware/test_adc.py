"""Outputs: ADC errors by converter, every form of it, gradients, and bad input of both sides."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.hardware.adc import ADC
from xbar_jax.hardware.cyclic import Cyclic
from xbar_jax.hardware.dac import DAC
from xbar_jax.hardware.quantize import quantize
from xbar_jax.hardware.ramp import Ramp
from xbar_jax.hardware.sar import SAR

X = jax.random.normal(jax.random.key(1), (6, 9))
W = jax.random.normal(jax.random.key(0), (9, 4))
COLS = jnp.arange(4, dtype=jnp.int32)[None]


@jax.jit
def conversion(adc, i, full, state=None, key=None, col=None):
    """Converted, codes, their currents and gradients to i and full scale in one program."""
    f = lambda i, full: adc.convert(i, full, state, key=key, col=col)
    codes = adc.codes(i, full, state, key=key, col=col)
    grads = jax.grad(lambda i, full: f(i, full).sum(), argnums=(0, 1))(i, full)
    return f(i, full), codes, adc.current_of(codes, full, dtype=i.dtype), grads


@pytest.mark.parametrize("kind", [ADC, SAR, Cyclic, Ramp])
def test_an_adc_without_errors_is_the_quantiser(kind, dtype):
    i = jnp.linspace(-1.3e-5, 1.3e-5, 4000).astype(dtype)
    full = jnp.asarray(1e-5, dtype)
    for bits in (2, 7):
        got, codes, back, (gi, gf) = jax.tree.map(np.asarray, conversion(xb.canonical(kind(bits=bits)), i, full))
        # halves go up in a search from below, and to even in the quantiser
        top = 2 ** (bits - 1) - 1
        place = np.asarray(i, float) * top / 1e-5
        clear = np.abs(np.abs(place) % 1 - 0.5) > 1e-3
        assert (~clear).sum() < 40
        np.testing.assert_array_equal(codes[clear], np.clip(np.round(place), -top, top)[clear])
        np.testing.assert_allclose(got, codes * (1e-5 / top), rtol=1e-6)
        assert got.dtype == dtype and codes.dtype == np.int32
        np.testing.assert_array_equal(back, got)
        np.testing.assert_array_equal(gi, np.abs(i) <= full)
        np.testing.assert_allclose(gf, 0, atol=1e-3)


def test_errors_of_size_zero_are_none():
    i, full = jnp.linspace(-1.3e-5, 1.3e-5, 4000).reshape(1, 1, 1, 1000, 4), jnp.float32(1e-5)
    zeros = [
        SAR(bits=6, mismatch=0.0, gain_std=0.0, offset_std=0.0),
        Cyclic(bits=6, stage_gain_std=0.0, comparator_std=0.0),
        Ramp(bits=6, curve_std=0.0),
    ]

    @jax.jit
    def run(zeros):
        with_errors = [a.codes(i, full, drawn(a)) for a in zeros]
        return with_errors, [type(a)(bits=a.bits).codes(i, full) for a in zeros]

    for got, want in zip(*run(zeros), strict=True):
        np.testing.assert_array_equal(got, want)
        assert len(np.unique(got)) == 63


def test_the_gradient_of_a_saturated_converter_goes_to_the_full_scale():
    for adc in (ADC(bits=6), SAR(bits=6), Cyclic(bits=6), Ramp(bits=6)):
        *_, (gi, gf) = conversion(adc, jnp.array([0.4, 3.0, 5.0, -2.0]), jnp.float32(1))
        np.testing.assert_array_equal(gi, [1, 0, 0, 0])
        assert gf == 1  # 1 + 1 - 1


@partial(jax.jit, static_argnames=("cols", "outs", "down"))
def drawn(adc, cols=4, outs=1, down=1):
    col = jnp.arange(cols, dtype=jnp.int32)[None]
    return adc.draw((outs, down, 1, cols), col, key=jax.random.key(0), dtype=jnp.float32)


def test_every_converter_has_its_gain_and_offset():
    adc = ADC(gain_std=0.02, offset_std=0.01)
    state = drawn(adc, cols=20000, outs=2, down=3)
    assert state["gain"].shape == (2, 3, 1, 20000)
    np.testing.assert_allclose(state["gain"].std(), 0.02, rtol=0.01)
    np.testing.assert_allclose(state["offset"].std(), 0.01, rtol=0.01)
    assert len(np.unique(state["gain"])) > 100_000  # of the resolution of a float
    few = drawn(adc)
    np.testing.assert_array_equal(few["gain"][0, 0, 0], state["gain"][0, 0, 0, :4])
    i = jnp.full((1, 1, 1, 2, 4), 3e-6)
    got = adc.convert(i, jnp.full((1, 1, 1, 1, 1), 1e-5), few, key=None, col=COLS)
    want = few["gain"][:, :, :, None] * 3e-6 + few["offset"][:, :, :, None] * 1e-5
    np.testing.assert_allclose(got, jnp.broadcast_to(want, i.shape), rtol=1e-6)


def test_converter_errors_belong_to_columns_whatever_the_tiling():
    hw = xb.Hardware(rows=16, adc=ADC(bits=9, gain_std=0.05, offset_std=0.02, noise=0.01), v_read=0.1)
    key, again = jax.random.split(jax.random.key(5))
    run = jax.jit(lambda hw, x, again: xb.program(W, hw, key=key)(x, key=again))
    y = run(hw, X, again)
    np.testing.assert_allclose(run(hw.replace(cols=3), X, again), y, rtol=0, atol=2e-5)
    np.testing.assert_allclose(
        run(hw, X.at[2:].set(7.0), again)[:2], y[:2], rtol=0, atol=2e-5
    )  # no sample sees its companions
    assert np.abs(run(hw, X, key) - y).max() > 1e-2  # noise anew
    with pytest.raises(ValueError, match="key must be given"):
        xb.program(W, hw)
    with pytest.raises(ValueError, match="key must be given"):
        xb.program(W, hw.replace(adc=ADC(noise=0.1)))(X)


def test_noise_of_conversions():
    adc = ADC(noise=0.03)
    i = jnp.zeros((2, 1, 1, 500, 100))
    col = jnp.arange(100, dtype=jnp.int32)[None]
    got = jax.jit(adc.convert)(i, 1e-5, None, key=jax.random.key(0), col=col)
    np.testing.assert_allclose(got.std(), 0.03 * 1e-5, rtol=0.01)
    assert abs(np.corrcoef(got[0].ravel(), got[1].ravel())[0, 1]) < 0.02


def test_the_bow_is_largest_at_one_over_root_three():
    u = jnp.linspace(-1.5, 1.5, 3001)
    got = ADC(nonlinearity=0.05).convert(u * 2e-6, 2e-6, None, key=None, col=None) / 2e-6
    bow = got - u
    np.testing.assert_allclose(bow.max(), 0.05, rtol=1e-4)
    np.testing.assert_allclose(u[jnp.argmax(bow)], 1 / np.sqrt(3), atol=1e-3)
    np.testing.assert_allclose(np.asarray(bow)[[0, 500, 1500, 2500, 3000]], 0, atol=1e-6)
    assert (np.diff(got) > 0).all()
    f = lambda c: ADC(nonlinearity=c).convert(jnp.float32(0.5), jnp.float32(1), None, key=None, col=None)
    np.testing.assert_allclose(jax.grad(f)(0.05), (0.5 - 0.125) * 1.5 * np.sqrt(3), rtol=1e-6)


def thresholds(adc, state, col=0, n=20001):
    """Inputs, in units of the full scale, at which the code rises."""
    u = jnp.linspace(-1, 1, n)
    i = jnp.broadcast_to(u[:, None], (1, 1, 1, n, 4))
    codes = np.asarray(adc.codes(i, jnp.ones((1, 1, 1, 1, 1)), state))[0, 0, 0, :, col]
    return np.asarray(u), codes


def test_sar_thresholds_are_the_charges_of_its_capacitors():
    adc = SAR(bits=4, mismatch=0.1)
    state = drawn(adc)
    u, codes = thresholds(adc, state)
    caps = np.array([c[0, 0, 0, 0] for c in state["capacitors"]])
    kept = np.array([sum(caps[k] for k in range(4) if n >> k & 1) for n in range(16)])
    level = (kept * 16 / (1 + caps.sum()) - 0.5 - 7) / 7  # where code n begins, unless a later code hides it
    for n in range(1, 14):
        if level[n] < level[n + 1 :].min() and level[n] > level[:n].max():
            np.testing.assert_allclose(u[np.argmax(codes >= n - 7)], level[n], atol=2e-4)
    # the spread of a sum of units grows as its root
    many = drawn(SAR(bits=4, mismatch=0.02), cols=100_000)["capacitors"]
    for k in range(4):
        np.testing.assert_allclose(many[k].std(), 0.02 * 2 ** (k / 2), rtol=0.01)


def test_cyclic_errors_are_carried_from_stage_to_stage():
    adc = Cyclic(bits=5, stage_gain_std=0.05, comparator_std=0.03)
    state = drawn(adc)
    u, codes = thresholds(adc, state, col=2, n=401)
    e, c = (float(state[name][0, 0, 0, 2]) for name in ("stage", "comparator"))
    y = ((u + 1) * 15 + 0.5) / 16 - 1
    number = np.zeros_like(y)
    for _ in range(5):
        d = np.where(y >= c, 1, -1)
        number, y = 2 * number + (d + 1) / 2, (1 + e) * (2 * y - d)
    differ = codes != np.minimum(number, 30) - 15
    assert differ.mean() < 0.01  # float against double
    ideal = np.asarray(Cyclic(bits=5).codes(jnp.asarray(u), 1.0))
    assert (codes != ideal).mean() > 0.05


def test_a_ramp_is_shared_by_the_columns_of_an_array():
    adc = Ramp(bits=6, curve=0.1, curve_std=0.05, gain_std=0.02, offset_std=0.01)
    state = drawn(adc, down=2)
    for name in ("curve", "gain"):
        assert np.ptp(state[name], axis=-1).max() == 0 and np.ptp(state[name]) > 0
    assert np.ptp(state["offset"], axis=-1).min() > 0
    bowed = Ramp(bits=6, curve=0.2)
    t = np.linspace(-1, 1, 63)  # where each count is
    f = jnp.asarray(t + 0.2 * (1 - t * t), jnp.float32)
    np.testing.assert_array_equal(conversion(bowed, f, jnp.float32(1))[1], np.arange(-31, 32))
    got, *_, (slope, _) = conversion(bowed.replace(bits=np.inf), f, jnp.float32(1))
    np.testing.assert_allclose(got, t, atol=1e-6)
    np.testing.assert_allclose(slope[1:-1], 1 / (1 - 0.4 * t[1:-1]), rtol=1e-4)


@pytest.mark.parametrize(
    ("adc", "precision"),
    [
        (SAR(bits=6, mismatch=0.02, noise=0.01, nonlinearity=0.02, gain_std=0.01), "float32"),
        (Cyclic(bits=6, stage_gain_std=0.01, comparator_std=0.01), "float64"),
        (Ramp(bits=6, curve=0.05, curve_std=0.01, offset_std=0.01), "float64"),
    ],
    ids=["sar", "cyclic", "ramp"],
)
def test_every_form_works_in_a_tile(adc, precision):
    @jax.jit
    def run(hw, w, x, key):
        def f(w):
            y = xb.program(w, hw, key=key)(x, key=key)
            return (y**2).sum(), y

        return jax.grad(f, has_aux=True)(w)

    with jax.enable_x64(precision == "float64"):
        hw = xb.Hardware(rows=5, cols=2, adc=adc, mapping=xb.mapping.Differential(g_max=100e-6))
        w, x = W.astype(precision), X.astype(precision)
        grad, y = jax.tree.map(np.asarray, run(hw, w, x, jax.random.key(0)))
    assert y.dtype == precision and np.isfinite(y).all()
    want = np.asarray(x) @ np.asarray(w)
    assert 1e-4 < np.linalg.norm(y - want) / np.linalg.norm(want) < 1
    assert np.isfinite(grad).all() and np.abs(grad).max() > 0


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (dict(adc=SAR(bits=1)), "adc.bits must be a whole number from 2 to 20"),
        (dict(adc=SAR(bits=8, mismatch=-0.1)), "adc.mismatch must be from 0"),
        (dict(adc=Cyclic(bits=8, stage_gain_std=np.nan)), "adc.stage_gain_std must be"),
        (dict(adc=Ramp(curve=0.6)), "adc.curve must be between"),
        (dict(adc=ADC(nonlinearity=0.3)), "adc.nonlinearity must be between"),
        (dict(adc=ADC(noise=-1.0)), "adc.noise must be >= 0"),
        (dict(dac=DAC(bits=8, code_bits=6)), "dac.bits must be > 1 and <= code_bits, 6"),
        (dict(dac=DAC(code_bits=6, slices=1)), "dac.bits must be > 1 and <= code_bits, 6"),
        (dict(dac=DAC(noise=-1.0)), "dac.noise must be >= 0"),
        (dict(dac=DAC(bits=8, slices=2)), "dac.code_bits must be given with dac.slices"),
        (dict(dac=DAC(mode="pulse")), "dac.mode must be 'amplitude' or 'pwm', got 'pulse'"),
        (dict(dac=DAC(phases="one")), "dac.phases must be 'bipolar' or 'two'"),
        (dict(dac=DAC(rounding="up")), "dac.rounding must be 'nearest' or 'stochastic'"),
        (dict(dac=DAC(bits=4, code_bits=40)), "dac.code_bits must be a whole number from 2 to 24"),
        (dict(dac=DAC(bits=8, mode="pwm"), cell=xb.cells.Sinh(None, 3.0)), "code_bits must be given for PWM"),
        (dict(dac=DAC(noise=0.1)), "key must be given"),
    ],
)
def test_bad_input(part, message):
    with pytest.raises(ValueError, match=message):
        xb.program(W, xb.Hardware(**part), key=jax.random.key(0))(X)


def test_ideal_converters_have_no_codes():
    for name, codes in (
        ("DAC.codes: dac", lambda: DAC().codes(X, 1.0)),
        ("DAC.voltage_of: dac", lambda: DAC(bits=None).voltage_of(1, 0.2)),
        ("ADC.codes: adc", lambda: ADC().codes(X, 1e-6)),
        ("ADC.current_of: adc", lambda: ADC(bits=0).current_of(1, 1e-6)),
    ):
        with pytest.raises(ValueError, match=rf"{name}.bits must be finite, since an ideal converter has no codes"):
            codes()


@pytest.mark.parametrize(
    "adc",
    [ADC(bits=6, nonlinearity=0.02), Ramp(bits=6, curve=0.05), SAR(bits=6), Cyclic(bits=6)],
    ids=["bow", "ramp", "sar", "cyclic"],
)
@pytest.mark.parametrize("full", [0.0, -1.0])
def test_no_full_scale_gives_nothing_and_leads_out_of_there(adc, full):
    state = adc.draw((1, 1, 1, 4), COLS, key=None, dtype=jnp.float32)
    i = jnp.linspace(-1.0, 1.0, 4).reshape(1, 1, 1, 1, 4)
    f = lambda i, full: adc.convert(i, jnp.full((1, 1, 1, 1, 1), full), state, key=None, col=COLS)
    np.testing.assert_array_equal(f(i, jnp.float32(full)), 0.0)
    slopes = jax.grad(lambda i, full: (f(i, full) ** 2).sum() + (jnp.sign(i) * f(i, full)).sum(), (0, 1))(
        i, jnp.float32(full)
    )
    assert all(np.isfinite(s).all() for s in slopes)


def test_fractional_bits_stay_within_the_bound():
    """2^2.5 - 2 = 3.66 steps of .547: the last whole one is .547, the bound 1 is none."""
    x = jnp.asarray([0.2, 0.5, 1.0, 5.0, -5.0])
    got = np.asarray(quantize(x, 1.0, 2.5))
    step = 2 / (2**2.5 - 2)
    np.testing.assert_allclose(got, [0, step, step, step, -step], rtol=1e-6)
    assert np.abs(got).max() <= 1
