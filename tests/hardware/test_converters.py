"""Converters: reads and weights of every DAC mode, codes and back, ADC errors by converter, gradients, keys."""

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
from xbar_jax.hardware.quantize import half, positive, quantize
from xbar_jax.hardware.ramp import Ramp
from xbar_jax.hardware.ranges import dynamic
from xbar_jax.hardware.sar import SAR

X = jax.random.normal(jax.random.key(1), (6, 9))
W = jax.random.normal(jax.random.key(0), (9, 4))
ROWS = jnp.arange(9, dtype=jnp.int32)
COLS = jnp.arange(4, dtype=jnp.int32)[None]
ROUNDING = {"float32": 2e-6, "float64": 4e-15}  # of sums of a dozen terms of order one


def reads(dac, x, r=1.5, v_read=0.2, linear=True, key=None, row=ROWS):
    return dac.reads(x, jnp.asarray(r, x.dtype), v_read, linear=linear, row=row, key=key)


def total(reads):
    return jnp.tensordot(reads.weight, reads.v, 1)


# quantiser


def test_steps_are_whole_numbers(dtype):
    bits = np.arange(2, 21)
    np.testing.assert_array_equal(half(jnp.asarray(bits, dtype)), 2.0 ** (bits - 1) - 1)
    assert half(jnp.asarray(np.log2(66), dtype)) == 32  # 64 steps


def test_ties_zero_and_the_negative_side(dtype):
    q = jax.jit(lambda x: quantize(x, 12.0, np.log2(66)))
    x = jnp.asarray([0.1875, 0.5625, 0.9375, 0.1874, 0.1876, 0.0, 12.0, 12.2, 40.0], dtype)
    want = [0, 0.75, 0.75, 0, 0.375, 0, 12, 12, 12]  # halves to even
    np.testing.assert_array_equal(q(x), want)
    np.testing.assert_array_equal(q(-x), -np.asarray(want))
    assert q(x).dtype == dtype
    for bound in (0.0, -1.0):
        np.testing.assert_array_equal(quantize(x, bound, 8), np.zeros(9))
        grad = jax.grad(lambda b: quantize(x, b, 8).sum())(jnp.asarray(bound, dtype))
        assert grad >= 8  # more range, more output


def test_scaling_every_vector_by_its_own_maximum():
    bits = float(np.log2(66))
    tile = xb.program(jnp.ones((1, 1)), xb.Hardware(adc=ADC(bits=bits)))
    x = jnp.array([[0.1], [0.2], [0.5], [1.0], [-0.3], [0.0]])
    fixed, scaled = tile(x)[:, 0], dynamic(tile, x)[:, 0]
    np.testing.assert_allclose(fixed, [0, 0.375, 0.375, 1.125, -0.375, 0], atol=1e-6)
    np.testing.assert_allclose(scaled, 1.125 * x[:, 0], rtol=1e-6)
    biased = xb.program(jnp.ones((1, 1)), xb.Hardware(adc=ADC(bits=bits)), bias=jnp.array([2.0]))
    np.testing.assert_allclose(dynamic(biased, x)[:, 0], 1.125 * x[:, 0] + 2, rtol=1e-6)


def test_stochastic_rounding_is_unbiased_and_by_place():
    x = jnp.full((1000, 100), 0.3)
    at = jax.jit(lambda x, key: quantize(x, 1.0, 3.0, key=key))
    q = at(x, jax.random.key(0))  # levels 1/3 apart
    assert set(np.unique(np.round(q * 3).astype(int))) == {0, 1}
    np.testing.assert_allclose(q.mean(), 0.3, atol=4 * np.sqrt(0.09) / 3 / np.sqrt(1e5))
    np.testing.assert_array_equal(at(x[:1], jax.random.key(0)), q[:1])
    ends = at(jnp.array([5.0, -5.0, 0.0]), jax.random.key(0))
    np.testing.assert_array_equal(ends, [1, -1, 0])
    grad = jax.grad(lambda x, b: quantize(x, b, 3.0, key=jax.random.key(0)).sum(), argnums=(0, 1))
    gx, gb = grad(jnp.array([0.3, 2.0, -3.0]), 1.0)
    np.testing.assert_array_equal(gx, [1, 0, 0])
    assert gb == 0


def test_ranges_that_cannot_be_divided_by():
    for r in (0.0, -0.3, -1.0, -3.0, -1e6):
        assert positive(jnp.float32(r)) > 0 and jax.grad(positive)(r) == 1
        assert np.isfinite(reads(DAC(bits=8), X, r).v).all() and np.isfinite(reads(DAC(), X, r).v).all()


# DAC

MODES = [
    dict(),
    dict(phases="two"),
    dict(slices=2, code_bits=6),
    dict(slices=1, phases="two", code_bits=6),
    dict(mode="pwm", code_bits=6),
    dict(mode="pwm", phases="two", slices=2, code_bits=6),
]


@jax.jit
def everything(dac, cells, x):
    """Reads, codes, the reads of the codes and a gradient in one program; ``cells`` is None for ohmic ones."""
    f = lambda x: reads(dac, x, linear=cells is None)
    codes = dac.codes(x, 1.5)
    back = dac.voltage_of(codes, 0.2, linear=cells is None, dtype=x.dtype)
    return f(x), codes, back, jax.grad(lambda x: (total(f(x)) ** 2).sum())(x)


@pytest.mark.parametrize("kind", MODES, ids=str)
def test_reads_add_up_to_the_quantised_input(kind, dtype):
    x = X.astype(dtype)
    dac = xb.canonical(DAC(bits=6, **kind))
    steps = np.asarray(x) * 31 / 1.5
    want = np.clip(np.round(steps), -31, 31)
    for cells in (None, 0) if kind.get("mode") == "pwm" else (None,):
        out, codes, back, grad = jax.tree.map(np.asarray, everything(dac, cells, x))
        slices = 1 if "slices" not in kind else -(-5 // kind["slices"])
        pulses = 1 if cells is None else kind.get("slices", 5)
        assert out.v.shape[0] == slices * pulses * (1 + ("phases" in kind))
        assert dac.conversions == out.v.shape[0] // pulses
        np.testing.assert_array_equal(codes, want)
        assert codes.dtype == np.int32 and out.v.dtype == dtype
        atol = ROUNDING[str(dtype)]
        np.testing.assert_allclose(np.tensordot(out.weight, out.v, 1), want * 0.2 / 31, rtol=0, atol=atol)
        assert np.abs(out.v).max() <= 0.2 * (1 + 1e-6)
        assert "phases" not in kind or (out.v >= 0).all()
        assert pulses == 1 or set(np.unique(np.abs(out.v))) <= {0, dtype.type(0.2)}
        np.testing.assert_array_equal(back.v, out.v)
        np.testing.assert_array_equal(back.weight, out.weight)
        # the gradient is that of one read, whatever the number of them
        one = 2 * want * 0.2 / 31 * (np.abs(x) <= 1.5) * 0.2 / 1.5
        np.testing.assert_allclose(grad, one, rtol=0, atol=atol)


def test_codes_are_the_same_in_any_program():
    dac = DAC(bits=8)
    x = jnp.linspace(-3, 3, 40001)
    eager = dac.codes(x, 2.9)
    np.testing.assert_array_equal(jax.jit(lambda x: dac.codes(x, 2.9))(x), eager)
    np.testing.assert_array_equal(jax.jit(dac.codes)(x, 2.9), eager)
    v = jax.jit(lambda x: reads(dac, x, 2.9, row=jnp.int32(0)).v)(x)
    np.testing.assert_array_equal(v, dac.voltage_of(eager, 0.2).v)
    np.testing.assert_array_equal(np.unique(eager), np.arange(-127, 128))


def test_pulses_of_cells_that_are_not_ohmic_are_the_charge_of_the_slots():
    dac = DAC(bits=5, mode="pwm", code_bits=5)
    hw = xb.Hardware(cell=xb.cells.Sinh(None, 3.0), dac=dac)

    @jax.jit
    def run(hw):
        tile = xb.program(jnp.abs(W) + 0.1, hw, input_range=1.5)
        i, weight = tile.currents(X)
        return tile(X), tile.conductance()[:, 0, 0], dac.integrate(i, weight, linear=False) if i.shape[3] > 1 else i

    _, g, mean = run(hw)
    mean, ones = mean if isinstance(mean, tuple) else (mean, jnp.ones(1))
    g, count = np.asarray(g), np.asarray(dac.codes(X, 1.5))
    charge = 0.0
    for slot in range(15):  # every row is on for its first |count| slots
        v = 0.2 * np.sign(count) * (np.abs(count) > slot)
        i = np.einsum("prc,br->pbc", g, np.sinh(3 * v) / 3)
        charge = charge + (i[0] - i[1])
    assert mean.shape[3] == 1
    np.testing.assert_allclose(mean[0, 0, 0, 0], charge / 15, rtol=0, atol=1e-5 * np.abs(charge).max())
    np.testing.assert_allclose(ones, [1.0], rtol=1e-6)
    # amplitudes see the bend of the cells
    y, *_ = run(hw)
    assert np.abs(y - run(hw.replace(dac=DAC(bits=5)))[0]).max() > 1e-2


@jax.jit
def converted(hw):
    """Outputs, currents and weights of the reads, scales; and outputs without an ADC."""
    tile = xb.program(W, hw, input_range=2.0)
    return tile(X), *tile.currents(X), tile.scale, tile.replace(hardware=tile.hardware.replace(adc=None))(X)


def test_phases_and_slices_are_converted_apart():
    hw = xb.Hardware(adc=ADC(bits=4, full_scale=20e-6), dac=DAC(bits=5))
    one, *_, plain = converted(hw)
    for kind in (dict(phases="two"), dict(slices=2, code_bits=5, phases="two")):
        y, i, weight, scale, ideal = jax.tree.map(np.asarray, converted(hw.replace(dac=DAC(bits=5, **kind))))
        step = 20e-6 / 7
        each = np.clip(np.round(i / step), -7, 7) * step
        want = np.einsum("r,odarbc->bc", weight, each) * scale[0] * (2.0 / 0.2)
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
        assert np.abs(y - one).max() > 1e-2
        np.testing.assert_allclose(ideal, plain, rtol=0, atol=2e-5)


drive = jax.jit(reads, static_argnames="linear")


def test_input_noise_is_of_the_sample_and_the_global_row():
    dac = xb.canonical(DAC(noise=0.05, phases="two", bits=8))
    key = jax.random.key(2)
    v = np.asarray(drive(dac, jnp.zeros((1000, 100)), key=key, row=jnp.arange(100)).v)
    np.testing.assert_allclose(v[0].std(), 0.05 * 0.2, rtol=0.01)
    assert abs(np.corrcoef(v[0].ravel(), v[1].ravel())[0, 1]) < 0.02
    part = drive(dac, 0 * X, key=key, row=20 + ROWS).v
    np.testing.assert_array_equal(part, v[:, :6, 20:29])
    product = jax.jit(lambda hw: xb.program(W, hw, key=key)(X, key=key))
    hw = xb.Hardware(dac=DAC(noise=0.05))
    whole = product(hw)
    for rows, cols in ((4, 3), (5, 4)):
        np.testing.assert_allclose(product(hw.replace(rows=rows, cols=cols)), whole, rtol=0, atol=2e-5)
    assert np.abs(whole - X @ W).max() > 1e-2
    # pulses of one code share the error of its level
    dac = xb.canonical(DAC(noise=0.05, bits=5, mode="pwm", code_bits=5))
    one, many = (total(drive(dac, X, linear=linear, key=key)) for linear in (True, False))
    np.testing.assert_allclose(one, many, atol=1e-7)


def test_stochastic_inputs_average_to_the_input():
    dac = DAC(bits=3, rounding="stochastic")
    x = jnp.full((1000, 100), 0.4)
    key, row = jax.random.key(0), jnp.arange(100)
    v, codes = jax.jit(lambda x: (reads(dac, x, 1.5, 1.5, key=key, row=row).v, dac.codes(x, 1.5, key=key)))(x)
    np.testing.assert_allclose(v.mean(), 0.4, rtol=0.01)
    np.testing.assert_array_equal(dac.voltage_of(codes, 1.5).v, v)


def test_gradients_of_the_dac_are_those_of_its_equation(dtype):
    x = jnp.asarray([0.3, 1.0, 4.0, -7.0], dtype)
    f = lambda x, r, v: (drive(DAC(bits=8), x, r, v, row=jnp.arange(4)).v[0] * jnp.arange(1.0, 5.0, dtype=dtype)).sum()
    gx, gr, gv = jax.jit(jax.grad(f, argnums=(0, 1, 2)))(x, jnp.asarray(2.0, dtype), jnp.asarray(0.2, dtype))
    np.testing.assert_allclose(gx, [0.1, 0.2, 0, 0], rtol=1e-6)
    q = quantize(x, 2.0, 8)
    np.testing.assert_allclose(gr, -(0.2 / 4) * (q[0] + 2 * q[1]), rtol=1e-5)  # clipped ends follow v_read alone
    np.testing.assert_allclose(gv, (np.asarray(q) * np.arange(1, 5)).sum() / 2, rtol=1e-5)
    second = jax.jit(jax.grad(lambda r: jax.grad(f, argnums=1)(x, r, jnp.asarray(0.2, dtype))))(jnp.asarray(2.0, dtype))
    assert np.isfinite(second)


# ADC


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
    with pytest.raises(ValueError, match=r"DAC.codes: dac.bits must be finite, got inf"):
        DAC().codes(X, 1.0)
