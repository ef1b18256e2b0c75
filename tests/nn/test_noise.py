"""Modifiers: moments against closed forms, gradients straight through, every precision, master weights that stay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import xbar_jax as xb
from xbar_jax.nn.noise import (
    Additive,
    Compose,
    Device,
    Discretise,
    DropConnect,
    Multiplicative,
    OutputNoise,
    Programming,
)

KEY = jax.random.key(3)
PCM = xb.Hardware(
    rows=4, cols=3, device=xb.devices.PCM(), mapping=xb.mapping.Differential(g_min=0.0, row_order="sorted")
)
ALL = {
    "additive": Additive(std=0.1),
    "multiplicative": Multiplicative(std=0.1),
    "programming": Programming(scale=2.0),
    "device": Device(hardware=PCM, t=3600.0),
    "drop_connect": DropConnect(p=0.3),
    "discretise": Discretise(bits=4.0, per="channel"),
    "compose": Compose(parts=(Discretise(bits=5.0), Programming())),
}
see = jax.jit(lambda modifier, w, key: modifier(w, key))
DTYPES = (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64)
W = np.random.default_rng(0).normal(size=(6, 5))


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_straight_through_in_every_precision(name):
    c = np.random.default_rng(1).normal(size=W.shape)
    modifier = xb.tree.canonical(ALL[name])

    @jax.jit
    def both(w, c):
        seen, pull = jax.vjp(lambda w: modifier(w, KEY), w)
        return seen, pull(c)[0]

    with jax.enable_x64(True):
        for dtype in DTYPES if name in ("additive", "programming") else (jnp.bfloat16, jnp.float64):
            w = jnp.asarray(W, dtype)
            seen, slope = both(w, jnp.asarray(c, dtype))
            at_zero = both(jnp.zeros_like(w), jnp.asarray(c, dtype))[1]
            assert seen.dtype == slope.dtype == dtype and bool(jnp.isfinite(seen).all())
            assert 0 < float(jnp.abs(seen - w).max()) < 2.5
            np.testing.assert_array_equal(slope, jnp.asarray(c, dtype))
            np.testing.assert_array_equal(at_zero, slope)


@pytest.mark.parametrize("dtype", DTYPES)
def test_standard_deviations_of_normal_noise(dtype):
    with jax.enable_x64(dtype == jnp.float64):
        w = jnp.asarray(np.random.default_rng(2).uniform(0.5, 2.0, (400, 300)), dtype)
        for modifier, size in ((Additive(std=0.1), jnp.abs(w).max()), (Multiplicative(std=0.1), w)):
            error = np.asarray(see(modifier, w, KEY), float) - np.asarray(w, float)
            share = error / np.asarray(size, float)
            assert abs(share.std() / 0.1 - 1) < 0.02 and abs(share.mean()) < 0.1 * 5 / np.sqrt(w.size)
            assert len(np.unique(np.asarray(see(modifier, w, KEY), float))) > 1000 * (
                dtype in (jnp.float32, jnp.float64)
            )


def test_programming_error_of_a_pair(dtype):
    """Moments of max(0, h + s n) - max(0, s0 n): in closed form, h many s away from 0."""
    h = np.array([1.0, 0.5, -0.25, 0.0])
    w = jnp.asarray(np.tile(4 * h, (100_000, 1)), dtype)
    seen = np.asarray(see(Programming(), w, KEY)) / 4
    assert seen.dtype == dtype
    sigma = lambda h: (0.26348 + 1.9650 * h - 1.1731 * h**2) / 25
    s0, half = sigma(0.0), np.sqrt(0.5 - 0.5 / np.pi)  # of max(0, n): mean 1/sqrt(2 pi), variance 1/2 - 1/(2 pi)
    mean = h - np.sign(h) * s0 / np.sqrt(2 * np.pi)
    std = np.where(h == 0, np.sqrt(2) * s0 * half, np.hypot(sigma(np.abs(h)), s0 * half))
    np.testing.assert_allclose(seen.std(0), std, rtol=0.01)
    np.testing.assert_allclose(seen.mean(0), mean, rtol=0, atol=5 * std.max() / np.sqrt(1e5))
    np.testing.assert_array_equal(see(Programming(scale=0.0), w, KEY), w)


def test_a_device_is_seen_as_arrays_would_read_it():
    """The matrix is what a programmed tile makes of unit vectors, split over arrays, in any order of rows.

    Wires, converters and a place for the bias are not part of a device.
    """
    hw = PCM.replace(mapping=xb.mapping.BitSliced(radix=4, slices=2, g_min=1e-6, row_order="sorted"))
    more = hw.replace(wires=xb.Wires(r_word=50.0, r_bit=50.0), dac=xb.DAC(bits=3), adc=xb.ADC(bits=3), bias="array")
    w = jnp.asarray(W, jnp.float32).at[:, 1].set(0.0)

    @jax.jit
    def read(w):
        k_program, k_read = jax.random.split(KEY)
        tile = xb.program(w, hw, key=k_program).replace(t=jnp.float32(3600.0))
        return tile(jnp.eye(6), key=k_read)

    seen = see(Device(hardware=more, t=3600.0), w, KEY)
    np.testing.assert_allclose(seen, read(w), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(seen[:, 1], 0.0)


def test_absent_weights_and_levels():
    w = jnp.asarray(np.random.default_rng(4).uniform(0.1, 1.0, (300, 300)), jnp.float32)
    seen = np.asarray(see(DropConnect(p=0.2), w, KEY))
    assert abs((seen == 0).mean() - 0.2) < 4 * np.sqrt(0.2 * 0.8 / w.size)
    np.testing.assert_array_equal(seen[seen != 0], np.asarray(w)[seen != 0])
    w = jnp.asarray(W, jnp.float32)
    largest = np.abs(W).max()
    np.testing.assert_allclose(
        see(Discretise.levels(5), w, KEY), np.round(W / largest * 2) / 2 * largest, rtol=1e-6, atol=1e-6
    )
    column = np.abs(W).max(0)
    found = np.asarray(see(Discretise(bits=3.0, per="channel"), w, KEY))
    np.testing.assert_allclose(found, np.round(W / column * 3) / 3 * column, rtol=1e-6, atol=1e-6)
    assert max(len(np.unique(np.round(c, 5))) for c in found.T) <= 7
    for ideal in (None, 0, np.inf):
        np.testing.assert_array_equal(Discretise(bits=xb.canonical(Discretise(bits=ideal)).bits)(w, KEY), w)


def test_parts_are_independent_and_groups_apart():
    w = jnp.asarray(W, jnp.float32)
    both = see(Compose(parts=(Additive(std=0.1), Additive(std=0.1))), jnp.ones((300, 300)), KEY)
    once = see(Additive(std=0.1), jnp.ones((300, 300)), jax.random.fold_in(KEY, 0))
    np.testing.assert_allclose(both.std(), np.hypot(once.std(), 0.1 * np.abs(once).max()), rtol=0.02)
    first = see(Additive(std=0.1), w, jax.random.fold_in(KEY, 0))
    np.testing.assert_array_equal(
        see(Compose(parts=(Additive(std=0.1), Discretise(bits=4.0))), w, KEY), see(Discretise(bits=4.0), first, KEY)
    )
    pair = jnp.stack([w, 100 * w])
    cells = Device(hardware=xb.Hardware(device=xb.devices.Gaussian(program_std=1e-6)))
    for modifier in (Additive(std=0.1), Programming(), Discretise(bits=4.0), cells):
        seen = see(modifier, pair, KEY)
        assert seen.shape == pair.shape and float(jnp.abs(seen[0] - w).max()) < 1.0
        assert float(jnp.abs(seen[1] / 100 - w).max()) < 1.0
        drawn = not isinstance(modifier, Discretise)
        assert bool(jnp.allclose(seen[0], seen[1] / 100, rtol=1e-4)) != drawn  # each group has its own noise


def test_output_noise_is_that_of_each_vector():
    y = jnp.asarray(np.random.default_rng(5).normal(size=(2, 50_000)), jnp.float32).at[1].multiply(1e3)
    seen = see(OutputNoise(std=0.05), y, KEY)
    error = np.asarray(seen - y) / np.abs(y).max(1, keepdims=True)
    np.testing.assert_allclose(error.std(1), 0.05, rtol=0.02)
    np.testing.assert_array_equal(see(OutputNoise(std=0.05), y.at[1].set(0.0), KEY)[0], seen[0])
    np.testing.assert_array_equal(jax.grad(lambda y: OutputNoise()(y, KEY).sum())(y[:, :3]), np.ones((2, 3)))


def test_numbers_are_leaves():
    """Swept by vmap; the derivative with respect to a number is that of the noise."""
    w, stds = jnp.asarray(W, jnp.float32), jnp.array([0.0, 0.1, 0.2])
    seen = jax.vmap(lambda s: Additive(std=s)(w, KEY))(stds)
    np.testing.assert_array_equal(seen[0], w)
    np.testing.assert_allclose(seen[2] - w, 2 * (seen[1] - w), rtol=0, atol=1e-6)
    slope = jax.grad(lambda s: Additive(std=s)(w, KEY).sum())(jnp.float32(0.1))
    np.testing.assert_allclose(slope, (seen[1] - w).sum() / 0.1, rtol=1e-4)


def test_master_weights_stay_and_calls_differ():
    parts = Compose(parts=(Additive(std=0.1), DropConnect(p=0.1), Programming()))
    model = xb.nn.AnalogLinear(6, 5, hardware=None, rngs=nnx.Rngs(params=0, noise=1), modifier=parts)
    before, x = np.array(model.kernel[...]), jnp.ones((2, 6))
    call = nnx.jit(lambda m: m(x))
    outputs = [np.asarray(call(model)) for _ in range(50)]
    assert len({o.tobytes() for o in outputs}) == 50
    assert model.kernel[...].tobytes() == before.tobytes()


def test_errors():
    with pytest.raises(ValueError, match=r"Discretise.levels: n must be an odd number >= 3, got 4"):
        Discretise.levels(4)
    with pytest.raises(ValueError, match="per must be 'layer' or 'channel', got 'row'"):
        Discretise(bits=4.0, per="row")(jnp.ones((2, 2)), KEY)
