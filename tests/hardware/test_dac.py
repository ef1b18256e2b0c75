"""Inputs: the quantiser, reads and weights of every DAC mode, codes and back, gradients, keys."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.hardware.adc import ADC
from xbar_jax.hardware.dac import DAC
from xbar_jax.hardware.quantize import half, positive, quantize
from xbar_jax.hardware.ranges import dynamic

X = jax.random.normal(jax.random.key(1), (6, 9))
W = jax.random.normal(jax.random.key(0), (9, 4))
ROWS = jnp.arange(9, dtype=jnp.int32)
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
    # One scale for all arrays: the noise of the least conductance counts by it.
    hw = xb.Hardware(dac=DAC(noise=0.05), mapping=xb.mapping.Differential(per="fixed", w_max=4.0))
    whole = product(hw)
    for rows in (4, 5):
        np.testing.assert_allclose(product(hw.replace(rows=rows)), whole, rtol=0, atol=2e-5)
    error = np.asarray(whole - X @ W)
    assert np.abs(error).max() > 1e-2
    # Arrays side by side have drivers of their own: the columns of the first see those of the whole, the others do not.
    apart = np.asarray(product(hw.replace(cols=3)) - X @ W)
    np.testing.assert_allclose(apart[:, :3], error[:, :3], rtol=0, atol=2e-5)
    assert np.abs(apart[:, 3] - error[:, 3]).max() > 1e-2


def test_both_circuits_of_a_pair_have_their_drivers():
    """A weight of nearly 0 is two cells of g_min, whose errors do not cancel: std = noise g_min / window sqrt(2 rows)."""
    w = jnp.concatenate([jnp.full((100, 1), 1e-12), jnp.ones((100, 1))], axis=1)
    mapping = xb.mapping.Differential(g_min=5e-6, g_max=25e-6, per="tile")
    tile = xb.program(w, xb.Hardware(dac=DAC(noise=0.1), mapping=mapping))
    y = np.asarray(tile(jnp.zeros((20000, 100)), key=jax.random.key(0)))
    np.testing.assert_allclose(y[:, 0].std(), 0.1 * 5 / 20 * np.sqrt(2 * 100), rtol=0.02)
    np.testing.assert_allclose(y[:, 1].std(), 0.1 * np.sqrt((25**2 + 5**2) / 20**2 * 100), rtol=0.02)


def test_pulses_of_one_code_share_the_error_of_its_level():
    key = jax.random.key(2)
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
