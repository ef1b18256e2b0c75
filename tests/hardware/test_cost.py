"""Energy and latency of a product against closed forms, nodal solutions and counts by hand."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.hardware.cost import Prices, cost

W = np.asarray(jax.random.normal(jax.random.key(0), (7, 5)))
X = np.asarray(jax.random.uniform(jax.random.key(1), (9, 7), minval=-1.0, maxval=1.0))
PRICES = Prices(t_read=1e-7, dac=2e-12)
WIRES = xb.Wires(r_word=1000.0, r_bit=500.0)
TOL = {np.dtype("float32"): 2e-5, np.dtype("float64"): 1e-10}

spent = jax.jit(lambda w, x, hw, prices=PRICES: cost(xb.program(w, hw), x, prices))


def test_power_of_ideal_arrays(dtype):
    w, x = np.asarray(W, dtype), np.asarray(X, dtype)
    hw = xb.Hardware(rows=4, cols=3)
    got = spent(w, x, hw)
    tile = xb.program(w, hw)
    g = np.asarray(tile.conductance()).sum((0, 2, 4)).ravel()  # of the rows of both arrays down
    g = np.delete(g, 4)  # a spare row
    np.testing.assert_allclose(got.array, 1e-7 * (0.2 * x) ** 2 @ g, rtol=TOL[dtype])
    assert got.array.dtype == got.energy.dtype == got.latency.dtype == dtype
    np.testing.assert_allclose(got.energy, got.array + got.dac + got.adc + got.digital, rtol=1e-6)


@jax.jit
def power(g, v):
    """Of both sides of a pair, W, and what it is by parts."""
    sol = jax.vmap(jax.vmap(lambda g, v: xb.solve(g, WIRES, left=v), in_axes=(None, 0)), in_axes=(0, None))(g, v)
    lost = jax.vmap(jax.vmap(lambda sol: xb.losses(sol, WIRES).total))(sol)
    return sol.power.sum(0), lost.sum(0)


@pytest.mark.long
def test_power_in_wires_is_that_of_the_nodes():
    hw = xb.Hardware(wires=WIRES)
    g = xb.program(W, hw).conductance()[:, 0, 0]
    supplied, lost = power(g, 0.2 * X)
    np.testing.assert_allclose(supplied, lost, rtol=2e-5)
    # 9 vectors through the input conductance, 3 each by itself
    np.testing.assert_allclose(spent(W, X, hw).array, 1e-7 * supplied, rtol=2e-5)
    np.testing.assert_allclose(spent(W, X[:3], hw).array, 1e-7 * supplied[:3], rtol=2e-5)
    ideal = spent(W, X, hw.replace(wires=None)).array
    assert (1e-7 * supplied < 0.99 * ideal).all()


@pytest.mark.parametrize("wires", [None, WIRES], ids=["ideal", "wires"])
def test_pulses_are_counted_by_their_slots(wires):
    # Two bits and a sign: three slots, and the arrays solved in each.
    hw = xb.Hardware(wires=wires, dac=xb.DAC(bits=3, mode="pwm"))
    codes = np.asarray(hw.dac.codes(X, 1.0))
    assert set(np.unique(codes)) == set(range(-3, 4))
    g = np.asarray(xb.program(W, hw).conductance()[:, 0, 0])
    slots = [np.float32(0.2) * np.where(np.abs(codes) > k, np.sign(codes), 0).astype(np.float32) for k in range(3)]
    each = [v**2 @ g.sum((0, 2)) if wires is None else power(g, v)[0] for v in slots]
    got = spent(W, X, hw)
    np.testing.assert_allclose(got.array, 1e-7 * np.mean(each, axis=0), rtol=2e-5)
    amplitude = 1e-7 * (0.2 * codes / 3) ** 2 @ g.sum((0, 2))
    assert got.reads == 1 and (wires is not None or (got.array > 1.1 * amplitude).all())


def test_pulses_of_cells_that_are_not_ohmic():
    cell = xb.cells.Sinh(None, 10.0)
    hw = xb.Hardware(cell=cell, dac=xb.DAC(bits=4, code_bits=4, mode="pwm"))
    g = np.asarray(xb.program(W, hw).conductance()).sum((0, 1, 2, 4))
    each = np.abs(np.asarray(hw.dac.codes(X, 1.0))) / 7
    got = spent(W, X, hw)
    # A row is on at v_read for its slots, whatever the pulses they come in.
    np.testing.assert_allclose(got.array, 1e-7 * each @ (g * 0.2 * np.sinh(10 * 0.2) / 10), rtol=1e-5)
    assert got.reads == 1 and got.conversions == 5
    still = spent(W, X, hw.replace(dac=None)).array
    v = 0.2 * X
    np.testing.assert_allclose(still, 1e-7 * (v * np.sinh(10 * v) / 10) @ g, rtol=1e-5)


def test_sliced_and_two_phase_inputs_are_several_reads():
    dac = xb.DAC(bits=5, code_bits=5, slices=2, phases="two")
    got = spent(W, X, xb.Hardware(dac=dac))
    # +-15 slots of each sign: a low and a high slice of two bits, 0 to 3 thirds of v_read
    codes = np.abs(np.asarray(dac.codes(X, 1.0)))
    g = np.asarray(xb.program(W, xb.Hardware()).conductance()).sum((0, 1, 2, 4))
    want = 1e-7 * 0.2**2 * (((codes % 4) / 3) ** 2 + ((codes // 4) / 3) ** 2) @ g
    np.testing.assert_allclose(got.array, want, rtol=1e-5)
    assert got.reads == 4 and got.drives == 4 * 7 * 2 and got.conversions == 4 * 5
    np.testing.assert_allclose(got.latency, 4e-7, rtol=1e-6)


@pytest.mark.parametrize(
    ("mapping", "lines", "conversions"),
    [
        # 7 x 5 on arrays of 4 x 3: 2 down, 2 across, 3 and 2 columns
        (xb.mapping.Differential(), 7 * 2 * 2, 2 * 5),
        (xb.mapping.BitSliced(radix=4, slices=3), 7 * 2 * 6, 3 * 2 * 5),
        (xb.mapping.Significance(factors=(1.0, 1.0, 1.0)), 7 * 2 * 6, 2 * 5),
        (xb.mapping.Significance(factors=(1.0, 1.0, 1.0), combine="digital"), 7 * 2 * 6, 3 * 2 * 5),
        # a third column for the reference: 3 across, 2, 2 and 1 columns
        (xb.mapping.Offset(), 7 * 3, 2 * 5),
        (xb.mapping.Offset(subtract="digital"), 7 * 3, 2 * (5 + 3)),
    ],
    ids=["pair", "slices", "devices", "devices, digital", "offset", "offset, digital"],
)
def test_counts_of_every_mapping(mapping, lines, conversions):
    hw = xb.Hardware(rows=4, cols=3, mapping=mapping, adc=xb.ADC(bits=8.0, full_scale=1e-4))
    bias = np.ones(5, np.float32)
    got = cost(xb.program(W, hw, bias=bias), X[0], PRICES)
    assert (got.drives, got.conversions, got.multiplies, got.adds) == (lines, conversions, 10, conversions + 5)
    np.testing.assert_allclose(got.dac, lines * 2e-12, rtol=1e-6)
    np.testing.assert_allclose(got.adc, conversions * 34.4e-15 * 256, rtol=1e-6)
    np.testing.assert_allclose(got.digital, 10 * 3.7e-12 + got.adds * 0.9e-12, rtol=1e-6)


def test_latency_of_shared_converters():
    hw = xb.Hardware(adc=xb.ADC(bits=8.0))
    at = lambda n, hw=hw: float(spent(W, X[0], hw, PRICES.replace(t_convert=1e-8, columns_per_adc=n)).latency)
    np.testing.assert_allclose([at(1.0), at(4.0), at(64.0)], [1.1e-7, 1.4e-7, 1.5e-7], rtol=1e-5)
    # One more bit is twice the energy; an ideal converter is free.
    energy = lambda bits: float(spent(W, X[0], hw.replace(adc=xb.ADC(bits=bits))).adc)
    np.testing.assert_allclose(energy(9.0) / energy(8.0), 2.0, rtol=1e-5)
    assert energy(np.inf) == 0 and at(1.0, hw.replace(adc=None)) == pytest.approx(1e-7)


def test_prices_and_hardware_have_gradients():
    with jax.enable_x64(True):
        x, w = np.asarray(X[:2], float), np.asarray(W, float)

        def f(p):
            hw = xb.Hardware(mapping=xb.mapping.Offset(g_max=p["g"]), adc=xb.ADC(bits=p["bits"]), v_read=p["v"])
            return cost(xb.program(w, hw), x, PRICES.replace(t_read=p["t"])).energy.sum() * 1e12

        p = {"g": 2e-5, "bits": 6.0, "v": 0.2, "t": 1e-7}
        grad = jax.jit(jax.grad(f))(p)
        f = jax.jit(f)
        for name, at in p.items():
            h = 1e-4 * at
            slope = (f({**p, name: at + h}) - f({**p, name: at - h})) / (2 * h)
            np.testing.assert_allclose(grad[name], slope, rtol=1e-6)
            assert grad[name] != 0


def test_noise_of_the_cells_is_in_the_energy():
    hw = xb.Hardware(device=xb.devices.Gaussian(program_std=1e-6, read_std=1e-6))
    tile = xb.program(W, hw, key=jax.random.key(0))
    a, b = (cost(tile, X, PRICES, key=jax.random.key(k)).array for k in (1, 2))
    g = np.asarray(tile.conductance(key=jax.random.key(1))).sum((0, 1, 2, 4))
    np.testing.assert_allclose(a, 1e-7 * (0.2 * X) ** 2 @ g, rtol=1e-5)
    assert np.abs(a / b - 1).max() > 1e-3


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: cost(t, X[:, :3], PRICES), ValueError, r"cost: x must have shape \[..., 7\]"),
        (
            lambda t: cost(t, X, PRICES.replace(t_read=-1.0)),
            ValueError,
            r"prices\.t_read must be >= 0 and finite, in s",
        ),
        (lambda t: cost(t, X, PRICES.replace(columns_per_adc=0)), ValueError, r"prices\.columns_per_adc must be >= 1"),
        (lambda t: cost(W, X, PRICES), TypeError, "tile must be an xb.Tile, got ndarray"),
        (lambda t: cost(t, X, 1.0), TypeError, "prices must be an xb.hardware.Prices, got float"),
        (
            lambda t: cost(xb.program(W, xb.Hardware(device=xb.devices.Gaussian()), key=jax.random.key(0)), X, PRICES),
            ValueError,
            "cost: key must be given",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call(xb.program(W, xb.Hardware()))


def test_times_and_the_dac_have_no_default():
    with pytest.raises(TypeError, match="t_read"):
        Prices(dac=1e-12)
    with pytest.raises(TypeError, match="dac"):
        Prices(t_read=1e-7)
