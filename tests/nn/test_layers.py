"""Analog layers of every kind against Flax's own: values, gradients, noise, programming, drift."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import xbar_jax as xb

IDEAL = xb.Hardware(rows=8, cols=4)
GAUSSIAN = xb.devices.Gaussian(program_std=1e-6, read_std=1e-6)
ATOL = {"float32": 2e-5, "float64": 1e-12}


def with_bias(layer, key=3):
    """The layer with a bias that is not zero."""
    if getattr(layer, "bias", None) is not None:
        b = layer.bias[...]
        layer.bias.set_value(jax.random.normal(jax.random.key(key), b.shape, b.dtype))
    return layer


def digital(kind, dtype=jnp.float32):
    """A small flax layer of each kind, the analog class, and the shape of an input."""
    rngs, p = nnx.Rngs(0), {"param_dtype": dtype}
    made = {
        "linear": lambda: (nnx.Linear(5, 6, rngs=rngs, **p), xb.nn.AnalogLinear, (3, 5)),
        "general": lambda: (
            nnx.LinearGeneral((2, 3), (3, 2), axis=(1, -1), rngs=rngs, **p),
            xb.nn.AnalogLinearGeneral,
            (4, 2, 3),
        ),
        "general with batch axes": lambda: (
            nnx.LinearGeneral((2, 3), 4, axis=(-2, -1), batch_axis={0: 2}, rngs=rngs, **p),
            xb.nn.AnalogLinearGeneral,
            (2, 5, 2, 3),
        ),
        "conv": lambda: (
            nnx.Conv(4, 6, (3, 2), (1, 2), kernel_dilation=(1, 2), feature_group_count=2, rngs=rngs, **p),
            xb.nn.AnalogConv,
            (2, 5, 6, 4),
        ),
        "depthwise": lambda: (
            nnx.Conv(3, 6, (3,), feature_group_count=3, padding="CIRCULAR", rngs=rngs, **p),
            xb.nn.AnalogConv,
            (2, 7, 3),
        ),
        "transpose": lambda: (
            nnx.ConvTranspose(3, 4, (3, 2), (2, 1), transpose_kernel=True, rngs=rngs, **p),
            xb.nn.AnalogConvTranspose,
            (2, 3, 4, 3),
        ),
        "einsum": lambda: (
            nnx.Einsum("...ga,bga->...bg", (4, 2, 3), (4, 2), rngs=rngs, **p),
            xb.nn.AnalogEinsum,
            (3, 2, 2, 3),
        ),
    }
    layer, analog, shape = made[kind]()
    return with_bias(layer), analog, jax.random.normal(jax.random.key(1), shape, dtype)


KINDS = ["linear", "general", "general with batch axes", "conv", "depthwise", "transpose", "einsum"]


def squares(m, x):
    return (m(x) ** 2).sum()


numbers = lambda low, high: st.integers(low, high)


@st.composite
def convolutions(draw):
    dims = draw(numbers(1, 3))
    each = lambda low, high: tuple(draw(numbers(low, high)) for _ in range(dims))
    groups, wide = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)])), draw(numbers(1, 3))
    options = dict(
        in_features=groups[0] * groups[1],
        out_features=groups[0] * wide,
        kernel_size=each(1, 3),
        strides=each(1, 2),
        input_dilation=each(1, 2),
        kernel_dilation=each(1, 2),
        feature_group_count=groups[0],
        use_bias=draw(st.booleans()),
    )
    modes = ["SAME", "VALID", "CIRCULAR", "REFLECT"] + ["CAUSAL"] * (dims == 1)
    pairs = tuple((draw(numbers(0, 2)), draw(numbers(0, 2))) for _ in range(dims))
    options["padding"] = draw(st.sampled_from([*modes, draw(numbers(0, 2)), pairs]))
    if isinstance(options["padding"], str):
        options["input_dilation"] = 1
    return options, (draw(numbers(1, 2)), *each(5, 6), options["in_features"])


@pytest.mark.long
@hypothesis.settings(max_examples=200, deadline=None, derandomize=True, database=None)
@hypothesis.given(convolutions())
def test_an_ideal_convolution_equals_the_digital_one(drawn):
    options, shape = drawn
    rng = np.random.default_rng(0)
    drawn = lambda key, shape, dtype: jnp.asarray(rng.normal(size=shape), dtype)
    layer = nnx.Conv(**options, rngs=nnx.Rngs(0), kernel_init=drawn, bias_init=drawn)
    analog = xb.nn.AnalogConv(layer, hardware=IDEAL)
    x = jnp.asarray(rng.normal(size=shape), jnp.float32)
    want, got = jax.jit(lambda x: (layer(x), analog(x)))(x)
    assert want.shape == got.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=ATOL["float32"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_equals_flax_and_so_does_its_gradient(kind):
    layer, analog, x = digital(kind)
    held = analog(layer, hardware=IDEAL.replace(bias="array"))
    m = analog(layer, hardware=IDEAL)

    @nnx.jit
    def run(m, x):
        return m(x), nnx.grad(squares)(m, x)

    (want, dense), (got, arrays), (with_held, arrays_held) = (run(a, x) for a in (layer, m, held))
    assert want.shape == got.shape and want.dtype == got.dtype
    np.testing.assert_allclose(got, want, rtol=0, atol=ATOL["float32"])
    np.testing.assert_allclose(with_held, want, rtol=0, atol=ATOL["float32"])
    for name in ("kernel", "bias"):
        for found in (arrays, arrays_held):
            np.testing.assert_allclose(found[name][...], dense[name][...], rtol=1e-4, atol=1e-4)
    back = m.to_digital()
    assert type(back) is type(layer) and nnx.graphdef(back) == nnx.graphdef(layer)
    np.testing.assert_array_equal(back.kernel[...], layer.kernel[...])


@pytest.mark.parametrize("kind", ["conv", "einsum"])
def test_double_precision(kind, x64):
    layer, analog, x = digital(kind, jnp.float64)
    got = jax.jit(analog(layer, hardware=IDEAL))(x)
    assert got.dtype == jnp.float64
    np.testing.assert_allclose(got, layer(x), rtol=0, atol=ATOL["float64"])


def test_half_precision_computes_in_single_and_answers_in_half():
    layer = nnx.Conv(2, 3, (3,), dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (2, 6, 2))
    got = jax.jit(xb.nn.AnalogConv(layer, hardware=IDEAL))(x)
    assert got.dtype == layer(x).dtype == jnp.bfloat16
    np.testing.assert_allclose(got.astype(jnp.float32), layer(x).astype(jnp.float32), rtol=0, atol=0.03)


@pytest.mark.parametrize("padding", ["SAME", "VALID", "CIRCULAR", ((1, 2), (0, 1))])
@pytest.mark.parametrize("transposed", [False, True])
def test_transposed_convolutions(padding, transposed):
    options = dict(padding=padding, transpose_kernel=transposed, kernel_dilation=(1, 2))
    layer = with_bias(nnx.ConvTranspose(2, 3, (4, 2), (3, 2), rngs=nnx.Rngs(0), **options))
    x = jax.random.normal(jax.random.key(0), (2, 2, 3, 2))
    want, got = jax.jit(lambda x: (layer(x), xb.nn.AnalogConvTranspose(layer, hardware=None)(x)))(x)
    np.testing.assert_allclose(got, want, rtol=0, atol=ATOL["float32"])


EQUATIONS = [
    ("nta,hab->nthb", (3, 2, 4), (5, 6, 2)),
    ("bta,ba->bt", (3, 2), (3, 4, 2)),
    ("nxa,zab->bn", (3, 2, 4), (5, 6, 2)),
    ("a...,ab->...b", (2, 4), (2, 5, 3)),
    ("a,b->ab", (4,), (3,)),
]


@pytest.mark.parametrize(("equation", "kernel", "shape"), EQUATIONS)
def test_einsum_equations(equation, kernel, shape):
    layout = xb.nn.layouts.Einsum(equation, kernel)
    w, x = jax.random.normal(jax.random.key(0), kernel), jax.random.normal(jax.random.key(1), shape)
    np.testing.assert_array_equal(layout.kernel(layout.matrix(w)), w)
    assert layout.matrix(w).shape == (layout.groups, layout.inputs, layout.outputs)
    product = lambda x: np.einsum("...gi,gio->...go", np.asarray(x), np.asarray(layout.matrix(w)))
    want = np.einsum(equation, np.asarray(x), np.asarray(w))
    np.testing.assert_allclose(layout.apply(x, product), want, rtol=0, atol=ATOL["float32"])


def test_reported_convolutions():
    """Non-square kernels, strides and transposes, whose answers are written out, and a kernel over several arrays."""
    x = jnp.arange(15.0).reshape(1, 3, 5, 1)
    row = jnp.array([1.0, 0.0, -1.0])

    def conv(size, strides, kernel=row):
        layer = nnx.Conv(1, 1, size, strides, padding="VALID", use_bias=False, rngs=nnx.Rngs(0))
        layer.kernel.set_value(kernel.reshape(*size, 1, 1))
        return np.asarray(xb.nn.AnalogConv(layer, hardware=IDEAL)(x))[0, :, :, 0]

    np.testing.assert_allclose(conv((1, 3), (1, 1)), np.full((3, 3), -2.0), rtol=1e-5)
    np.testing.assert_allclose(conv((1, 3), (1, 2)), np.full((3, 2), -2.0), rtol=1e-5)
    np.testing.assert_allclose(conv((3, 1), (1, 1)), np.full((1, 5), -10.0), rtol=1e-5)
    layer = nnx.Conv(1, 32, (3, 3), rngs=nnx.Rngs(0))
    analog = xb.nn.AnalogConv(layer, hardware=xb.Hardware(rows=10, cols=10))
    assert analog.program().tiling.grid == (1, 4)
    image = jax.random.normal(jax.random.key(0), (3, 6, 5, 1))
    np.testing.assert_allclose(analog(image), layer(image), rtol=0, atol=1e-5)


MODIFIERS = [None, xb.nn.noise.Additive(std=0.1), xb.nn.noise.DropConnect(p=0.3), xb.nn.noise.Discretise(bits=4)]


@pytest.mark.parametrize("modifier", MODIFIERS, ids=lambda m: type(m).__name__)
def test_a_convolution_of_one_pixel_is_the_linear_layer(modifier):
    """Same key, same weights: the same noise, modifiers, programming and drift."""
    hw = IDEAL.replace(device=GAUSSIAN.replace(nu=0.05), compensation="global")
    rngs, x = nnx.Rngs(noise=0), jax.random.normal(jax.random.key(2), (4, 5))
    options = dict(hardware=hw, modifier=modifier, rngs=rngs)
    linear = xb.nn.AnalogLinear(nnx.Linear(5, 6, rngs=nnx.Rngs(0)), **options)
    key = jax.random.key(3)
    for dims in (1, 2):
        layer = nnx.Conv(5, 6, (1,) * dims, rngs=nnx.Rngs(0))
        layer.kernel.set_value(linear.kernel[...].reshape(*(1,) * dims, 5, 6))
        conv, pixel = xb.nn.AnalogConv(layer, **options), x.reshape(4, *(1,) * dims, 5)
        np.testing.assert_array_equal(conv(pixel, key=key).reshape(4, 6), linear(x, key=key))
        for m in (conv, linear):
            m.program(key=key)
            m.drift(3600.0, key=jax.random.key(4))
        np.testing.assert_array_equal(conv(pixel).reshape(4, 6), linear(x))
        assert np.abs(linear(x) - x @ linear.kernel[...]).max() > 1e-3
        xb.nn.unprogram(linear)


@pytest.mark.parametrize("kind", KINDS)
def test_drift_reaches_every_layer(kind):
    """nu = 0.05 scales all outputs by 0.7711 after an hour, compensated by 1; a column of zeros stays 0."""
    layer, analog, x = digital(kind)
    layer.bias.set_value(0 * layer.bias[...])
    w = layer.kernel[...]
    layer.kernel.set_value(jnp.where(jnp.arange(w.shape[-1]) == 0, 0.0, w))
    device = xb.devices.Gaussian(nu=0.05)
    for compensation, factor in ((None, 0.77110953), ("global", 1.0)):
        m = analog(layer, hardware=IDEAL.replace(device=device, compensation=compensation), rngs=nnx.Rngs(noise=0))
        xb.nn.program(m, key=jax.random.key(0))
        xb.nn.drift(m, 3600.0, key=jax.random.key(1))
        got, want = m(x), layer(x)
        np.testing.assert_allclose(got, factor * want, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(got[want == 0.0], 0.0)
        assert (np.asarray(want) != 0).any()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_zero_give_zero_and_finite_gradients(kind):
    layer, analog, x = digital(kind)
    layer.kernel.set_value(0 * layer.kernel[...])
    layer.bias.set_value(0 * layer.bias[...])
    m = analog(layer, hardware=IDEAL.replace(adc=xb.ADC(bits=8), dac=xb.DAC(bits=8)))
    run = nnx.jit(lambda m, x: (m(x), nnx.grad(lambda m, x: (m(x) + 1.0).sum())(m, x)))
    y, slopes = run(m, x)
    slope = np.asarray(slopes["kernel"][...])
    np.testing.assert_array_equal(y, 0.0)
    assert np.isfinite(slope).all() and np.abs(slope).max() > 0
    xb.nn.program(m)
    np.testing.assert_array_equal(m(0 * x), 0.0)


def test_every_call_sibling_and_member_draws_its_own_noise():
    class Siblings(nnx.Module):
        def __init__(self, rngs):
            make = lambda: xb.nn.AnalogConv(nnx.Conv(2, 3, (3,), rngs=nnx.Rngs(0)), hardware=hw, rngs=rngs)
            self.a, self.b = make(), make()

        def __call__(self, x):
            return jnp.stack([self.a(x), self.b(x)])

    hw = IDEAL.replace(device=GAUSSIAN)
    x = jax.random.normal(jax.random.key(0), (2, 5, 2))
    calls = nnx.jit(lambda m, x: m(x))
    m = Siblings(nnx.Rngs(noise=0))
    first = calls(m, x)
    assert np.abs(first[0] - first[1]).max() > 1e-3
    graphdef, state = nnx.split(m)
    second = calls(nnx.merge(graphdef, state), x)
    assert np.abs(second - first).max() > 1e-3
    again = Siblings(nnx.Rngs(noise=0))
    np.testing.assert_array_equal(calls(again, x), first)
    np.testing.assert_array_equal(calls(again, x), second)
    eight = jax.vmap(lambda k: m.a(x, key=k))(jax.random.split(jax.random.key(1), 8))
    assert len(np.unique(np.asarray(eight)[:, 0, 0, 0])) == 8


def test_groups_have_tiles_of_their_own():
    hw = IDEAL.replace(device=GAUSSIAN, dac=xb.DAC(bits=8), adc=xb.ADC(bits=8))
    layer, _, x = digital("depthwise")
    m = nnx.Sequential(xb.nn.AnalogConv(layer, hardware=hw, rngs=nnx.Rngs(noise=0)))
    xb.nn.calibrate(m, [x])
    np.testing.assert_allclose(m.layers[0].input_range[...], np.abs(x).max(), rtol=1e-6)
    xb.nn.program(m, key=jax.random.key(0))
    before = np.abs(m(x) - layer(x)).mean()
    xb.nn.fit_output_scale(m, x)
    assert np.abs(m(x) - layer(x)).mean() < before
    tiles = xb.nn.tiles(m)
    assert list(tiles) == [f"layers/0/{g}" for g in range(3)] and tiles["layers/0/1"].outputs == 2
    g = [np.asarray(t.conductance(key=jax.random.key(1))) for t in tiles.values()]
    assert np.abs(g[0] - g[1]).max() > 1e-7
    other = nnx.Sequential(xb.nn.AnalogConv(nnx.clone(layer), hardware=hw, rngs=nnx.Rngs(noise=0)))
    other.layers[0].output_scale.set_value(m.layers[0].output_scale[...])
    xb.nn.attach(other, tiles)
    key = jax.random.key(5)
    np.testing.assert_array_equal(other.layers[0](x, key=key), m.layers[0](x, key=key))
    tiles.pop("layers/0/1")
    with pytest.raises(ValueError, match="must hold every group of 'layers/0', got none for layers/0/1"):
        xb.nn.attach(other, tiles)


def test_logits_of_tied_embeddings():
    embed = nnx.Embed(7, 5, rngs=nnx.Rngs(0))
    m = xb.nn.AnalogEmbed(embed, hardware=IDEAL)
    query = jax.random.normal(jax.random.key(0), (3, 5))
    np.testing.assert_allclose(m.attend(query), embed.attend(query), rtol=0, atol=ATOL["float32"])
    words = jnp.array([0, 6, 3])
    np.testing.assert_array_equal(m(words), embed(words))
    assert list(nnx.to_flat_state(nnx.state(m, nnx.Param)).paths) == [
        ("embedding",),
        ("input_range",),
        ("output_scale",),
    ]
    slope = nnx.grad(lambda m: (m.attend(m(words)) ** 2).sum())
    np.testing.assert_allclose(slope(m)["embedding"][...], slope(embed)["embedding"][...], rtol=1e-4, atol=1e-4)


def test_errors():
    conv = xb.nn.AnalogConv(2, 3, (3, 3), hardware=None, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"AnalogConv: x must have shape \[..., n, n, 2\], got \[4, 5\]"):
        conv(jnp.ones((4, 5)))
    with pytest.raises(ValueError, match=r"AnalogConv\.program: hardware must be given"):
        conv.program()
    with pytest.raises(ValueError, match=r"AnalogConv\.drift: layer must be programmed first"):
        conv.drift(1.0)
    with pytest.raises(ValueError, match="rngs must have a stream 'noise'"):
        xb.nn.AnalogConv(nnx.Conv(2, 3, (3,), rngs=nnx.Rngs(0)), hardware=IDEAL.replace(device=GAUSSIAN))
    general = xb.nn.AnalogLinearGeneral((2, 3), 4, axis=(1, -1), hardware=None, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"AnalogLinearGeneral: x must have sizes \(2, 3\) at axes"):
        general(jnp.ones((5, 2, 4)))
    einsum = xb.nn.AnalogEinsum("ab,bc->ac", (2, 3), hardware=None, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="AnalogEinsum: x must fit 'ab,bc->ac'"):
        einsum(jnp.ones((5, 3)))
    with pytest.raises(ValueError, match="einsum_str must be 'ab,bc->ac'"):
        einsum(jnp.ones((5, 2)), "ab,bc->ca")
    for bad in ("aab,bc->ac", "ab,b...->a...", "ab,bc->ad"):
        with pytest.raises(ValueError, match="Einsum: "):
            xb.nn.layouts.Einsum(bad, (2, 3))
