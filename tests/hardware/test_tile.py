"""Arrays with periphery: tiling, noise by cell, converters as leaves, sweeps without a retrace."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import xbar_jax as xb

W = jax.random.normal(jax.random.key(0), (37, 21))
X = jax.random.normal(jax.random.key(1), (5, 37))


def test_ideal_arrays_give_the_product_for_any_tiling():
    for rows, cols in ((16, 8), (37, 21), (256, 256), (1, 1), (36, 20)):
        y = xb.program(W, xb.Hardware(rows=rows, cols=cols))(X)
        np.testing.assert_allclose(y, X @ W, rtol=0, atol=2e-5 * np.abs(X @ W).max())


@pytest.mark.long
def test_padding_contributes_nothing_with_wires():
    hw = xb.Hardware(rows=40, cols=21, wires=xb.Wires(r_word=5.0, r_bit=5.0))
    split = xb.program(W, hw.replace(rows=20, cols=16))(X)
    parts = [xb.program(W[a:b, c:d], hw)(X[:, a:b]) for a, b in ((0, 20), (20, 37)) for c, d in ((0, 16), (16, 21))]
    # a tile keeps the scale of its own columns, so the parts add up to the split matrix
    want = jnp.concatenate([parts[0] + parts[2], parts[1] + parts[3]], axis=1)
    np.testing.assert_allclose(split, want, rtol=0, atol=2e-5 * np.abs(want).max())
    assert np.abs(split - X @ W).max() > 1e-2


def test_a_key_gives_a_cell_the_same_noise_whatever_the_tiling():
    device = xb.devices.Gaussian(program_std=1e-6, read_std=1e-6)
    mapping = xb.mapping.Differential(per="tile")
    w = jnp.sign(W)  # every tile has the same scale

    def cells(rows, cols):
        tile = xb.program(w, xb.Hardware(rows=rows, cols=cols, device=device, mapping=mapping), key=jax.random.key(3))
        g = tile.conductance(key=jax.random.key(4))
        used = np.asarray(tile.tiling.used())
        flat = np.zeros((2, *w.shape))
        r0, c0 = tile.tiling.offsets()
        for a in range(used.shape[0]):
            for b in range(used.shape[1]):
                i, j = np.nonzero(used[a, b])
                flat[:, i + int(r0[a]), j + int(c0[b])] = np.asarray(g)[:, a, b, i, j]
        return flat

    whole = cells(64, 64)
    for size in ((16, 8), (37, 20), (10, 30)):
        np.testing.assert_array_equal(cells(*size), whole)
    assert len(np.unique(whole[0] - 25e-6 * (np.asarray(w) > 0))) > 100


def test_statistics_of_programming_and_reading():
    dev = xb.devices.Gaussian(program_std=2e-6, read_std=1e-6)
    target = jnp.full((400, 250), 5e-5)
    state = dev.program(target, key=jax.random.key(0))
    np.testing.assert_allclose((state.g - target).std(), 2e-6, rtol=0.01)
    read = dev.read(state, key=jax.random.key(1))
    np.testing.assert_allclose((read - state.g).std(), 1e-6, rtol=0.01)
    assert (dev.program(jnp.zeros((50, 50)), key=jax.random.key(0)).g >= 0).all()


def test_bits_inf_equals_no_converter():
    hw = xb.Hardware(wires=xb.Wires())
    plain = xb.program(W, hw)(X)
    for bits in (jnp.inf, None, 0):
        np.testing.assert_array_equal(xb.program(W, hw.replace(dac=xb.DAC(bits=bits), adc=xb.ADC(bits=bits)))(X), plain)


def test_quantiser_values():
    bits = float(np.log2(66))  # 64 steps
    q = lambda x: xb.hardware.quantize(jnp.asarray(x), 12.0, bits)
    np.testing.assert_allclose(q([0.1, 0.2, 0.5, 1.0, -0.2, 0.0]), [0, 0.375, 0.375, 1.125, -0.375, 0], atol=1e-5)
    np.testing.assert_allclose(q([0.1874, 0.1876, 40.0, -40.0]), [0, 0.375, 12, -12], atol=1e-5)


def test_input_range_gradient_counts_every_call():
    def loss(r, xs):
        tile = xb.program(jnp.ones((1, 1)), xb.Hardware(dac=xb.DAC(bits=8)), input_range=r)
        return sum(tile(x).sum() for x in xs)

    x = jnp.array([[0.5], [2.0]])
    np.testing.assert_allclose(jax.grad(loss)(1.0, [x]), 1.0, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(loss)(1.0, [x[:1], x[1:]]), 1.0, rtol=1e-5)
    assert np.isfinite(jax.grad(loss)(0.0, [x])) and np.isfinite(loss(-1.0, [x]))


@pytest.mark.long
def test_zero_weights_and_columns():
    x = jnp.arange(1.0, 5.0)
    noisy = xb.Hardware(device=xb.devices.Gaussian(program_std=1e-6, read_std=1e-6))
    for w in (jnp.zeros((4, 3)), jnp.ones((4, 3)).at[:, 1].set(0.0)):
        for hw in (xb.Hardware(), xb.Hardware(wires=xb.Wires()), noisy):
            key = jax.random.key(0) if hw.device is not None else None
            f = lambda w, hw=hw, key=key: xb.program(w, hw, key=key)(x, key=key)
            assert f(w)[1] == 0
            grad = jax.grad(lambda w, f=f: f(w).sum())(w)
            assert np.isfinite(grad).all()
        ideal = jax.grad(lambda w: xb.program(w, xb.Hardware())(x)[1])(w + 0.0)
        # max(w, 0) and max(-w, 0) meet at 0 with half a slope each
        np.testing.assert_allclose(ideal[:, 1], x, rtol=1e-6)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("adc.bits", 1.0),
        ("adc.bits", np.nan),
        ("dac.bits", 0.5),
        ("wires.r_word", -1.0),
        ("device.program_std", np.nan),
        ("adc.full_scale", 0.0),
        ("v_read", np.inf),
        ("mapping.g_max", 1e-6),
    ],
)
def test_a_bad_number_is_an_error_or_a_flag(path, value):
    hw = xb.Hardware(wires=xb.Wires(), dac=xb.DAC(), adc=xb.ADC(full_scale=1e-5), device=xb.devices.Gaussian())
    key = jax.random.key(0)

    def f(hw):
        tile = xb.program(W, hw, key=key)
        return tile.converged, tile(X, key=key)

    ok, y = xb.sweep(f, hw, {path: [float(np.asarray(getattr_path(hw, path), float)), value]})
    assert ok.tolist() == [True, False]
    assert np.isfinite(y[0]).all()
    assert np.isnan(y[1]).all()
    with pytest.raises(ValueError, match=r"hardware\.|g_min"):
        xb.program(W, with_path(hw, path, value), key=key)


def getattr_path(node, path):
    for name in path.split("."):
        node = getattr(node, name)
    return node


def with_path(node, path, value):
    name, _, rest = path.partition(".")
    return node.replace(**{name: with_path(getattr(node, name), rest, value) if rest else value})


def test_rescaled_window_leaves_outputs():
    hw = xb.Hardware(adc=xb.ADC(bits=8, full_scale=1e-5), mapping=xb.mapping.Differential(g_min=1e-6, g_max=1e-5))
    big = hw.replace(adc=xb.ADC(bits=8, full_scale=2e-3), mapping=xb.mapping.Differential(g_min=2e-4, g_max=2e-3))
    np.testing.assert_allclose(xb.program(W, hw)(X), xb.program(W, big)(X), rtol=1e-5, atol=1e-5)


def test_numbers_change_without_a_retrace():
    count = []

    @jax.jit
    def f(hw, x):
        count.append(1)
        return xb.program(W, hw)(x)

    hw = xb.canonical(xb.Hardware(wires=xb.Wires(), adc=xb.ADC(bits=8), dac=xb.DAC()))
    outs = [f(xb.canonical(h), X) for h in (hw, hw.replace(v_read=0.1), hw.replace(adc=xb.ADC(bits=None)),
            hw.replace(wires=xb.Wires(r_word=np.float64(9), r_bit=3)), hw.replace(mapping=xb.mapping.Differential(g_max=5e-5)))]  # fmt: skip
    assert len(count) == 1
    assert np.abs(outs[3] - outs[0]).max() > 1e-3


def test_numbers_change_without_a_retrace_in_a_module():
    layer = xb.nn.AnalogLinear(37, 21, hardware=xb.Hardware(wires=xb.Wires(), adc=xb.ADC(bits=8)), rngs=nnx.Rngs(0))
    before, count = np.array(layer.kernel[...]), []

    @nnx.jit
    def f(layer, x):
        count.append(1)
        return layer(x)

    a = f(layer, X)
    xb.nn.set_hardware(layer, lambda hw: hw.replace(wires=xb.Wires(r_word=20.0, r_bit=20.0), adc=xb.ADC(bits=3)))
    b = f(layer, X)
    assert len(count) == 1 and np.abs(a - b).max() > 1e-2
    np.testing.assert_array_equal(layer.kernel[...], before)


def test_sweep_equals_the_loop():
    hw = xb.Hardware(wires=xb.Wires(), adc=xb.ADC(bits=8))
    f = lambda hw: xb.program(W, hw)(X)
    r, bits = [0.0, 5.0], [6.0, jnp.inf]
    at = lambda r, b: f(hw.replace(wires=hw.wires.replace(r_word=r), adc=hw.adc.replace(bits=b)))
    both = xb.sweep(f, hw, {"wires.r_word": r, "adc.bits": bits})
    for k in range(2):
        np.testing.assert_allclose(both[k], at(r[k], bits[k]), rtol=0, atol=1e-5)
    grid = xb.sweep(f, hw, {"wires.r_word": r, "adc.bits": bits}, grid=True)
    np.testing.assert_allclose(grid[1, 0], at(r[1], bits[0]), rtol=0, atol=1e-5)
    axes = xb.sweep_axes(xb.canonical(hw), "v_read")
    assert axes.v_read == 0 and axes.wires.r_word is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: xb.program(W, xb.Hardware(mapping=xb.mapping.Differential(g_min=1e-5, g_max=1e-5))), "g_min < g_max"),
        (lambda: xb.program(W[0], xb.Hardware()), r"w must have shape \[inputs, outputs\]"),
        (lambda: xb.program(W, xb.Hardware(device=xb.devices.Gaussian())), "key must be given"),
        (lambda: xb.program(W, xb.Hardware(rows=0)), "hardware.rows must be a whole number >= 1"),
        (lambda: xb.program(W, xb.Hardware(adc=xb.ADC(bits=-3))), "adc.bits must be > 1"),
        (lambda: xb.program(W, xb.Hardware())(jnp.ones(3)), r"x must have shape \[..., 37\]"),
        (lambda: xb.sweep_axes(xb.Hardware(), "v_raed"), "did you mean 'v_read'"),
        (lambda: xb.sweep_axes(xb.Hardware(), "wires.r_word"), "'wires' must be set"),
        (lambda: xb.sweep_axes(xb.Hardware(), "rows"), "static field"),
        (
            lambda: xb.sweep(lambda h: h, xb.Hardware(adc=xb.ADC()), {"v_read": [1.0], "adc.bits": [1.0, 2.0]}),
            "one length",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.long
def test_ten_chips_by_twelve_settings_in_one_compiled_call():
    count = []

    @jax.jit
    def f(r, bits, std, keys):
        count.append(1)

        def chip(r, bits, std, key):
            hw = xb.Hardware(
                rows=20,
                wires=xb.Wires(r_word=r, r_bit=r),
                adc=xb.ADC(bits=bits),
                device=xb.devices.Gaussian(program_std=std),
            )
            return xb.program(W, hw, key=key)(X, key=key)

        return jax.vmap(jax.vmap(chip, in_axes=(None, None, None, 0)), in_axes=(0, 0, 0, None))(r, bits, std, keys)

    keys = jax.random.split(jax.random.key(0), 10)
    settings = [jnp.linspace(0, 20, 12), jnp.linspace(4, 9, 12), jnp.linspace(0, 1e-6, 12)]
    a = f(*settings, keys)
    f(settings[0] * 2, settings[1] + 1, settings[2] * 3, keys)
    assert a.shape == (12, 10, 5, 21) and len(count) == 1
    assert np.abs(a[0] - a[0, :1]).max() == 0 and np.abs(a[5, 0] - a[5, 1]).max() > 0
