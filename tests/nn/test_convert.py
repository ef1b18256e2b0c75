"""Whole models on arrays: nothing unreported, nothing silently digital, the same outputs, sixteen chips in one call."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import xbar_jax as xb

IDEAL = xb.Hardware(rows=16, cols=16)
NOISY = IDEAL.replace(device=xb.devices.Gaussian(program_std=5e-7, read_std=1e-7))


class Block(nnx.Module):
    """A small transformer with tied logits."""

    def __init__(self, rngs):
        self.embed = nnx.Embed(11, 8, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        self.up, self.down = nnx.Linear(8, 12, rngs=rngs), nnx.Linear(12, 8, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        x = x + self.attention(self.norm(x))
        return self.embed.attend(x + self.down(jax.nn.gelu(self.up(x))))


class Depthwise(nnx.Module):
    def __init__(self, rngs):
        self.spread = nnx.Conv(3, 6, (3, 3), feature_group_count=3, rngs=rngs)
        self.mix = nnx.Conv(6, 4, (1, 1), use_bias=False, rngs=rngs)
        self.grow = nnx.ConvTranspose(4, 2, (2, 2), (2, 2), rngs=rngs)

    def __call__(self, x):
        return self.grow(jax.nn.relu(self.mix(jax.nn.relu(self.spread(x)))))


TOKENS = jax.random.randint(jax.random.key(0), (2, 5), 0, 11)
SEQUENCE = jax.random.normal(jax.random.key(1), (2, 5, 3))
IMAGES = jax.random.normal(jax.random.key(2), (2, 6, 6, 3))
MODELS = {
    "transformer": (lambda: Block(nnx.Rngs(0)), TOKENS, 7),
    "lstm": (lambda: nnx.RNN(nnx.LSTMCell(3, 4, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0)), SEQUENCE, 8),
    "optimised lstm": (lambda: nnx.RNN(nnx.OptimizedLSTMCell(3, 4, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0)), SEQUENCE, 2),
    "gru": (lambda: nnx.RNN(nnx.GRUCell(3, 4, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0)), SEQUENCE, 2),
    "simple": (lambda: nnx.RNN(nnx.SimpleCell(3, 4, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(0)), SEQUENCE, 2),
    "depthwise": (lambda: Depthwise(nnx.Rngs(0)), IMAGES, 3),
}
run = nnx.jit(lambda model, x: model(x))


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_is_reported_and_the_model_is_the_same(name):
    make, x, kernels = MODELS[name]
    model = make()
    want = run(model, x)
    analog, report = xb.nn.convert(model, hardware=IDEAL)
    paths = {"/".join(map(str, p)) for p, v in nnx.to_flat_state(nnx.state(model, nnx.Param))}
    assert {row.path for row in report} == paths
    products = [row for row in report if row.where == "analog"]
    assert len(products) == kernels and all(len(row.shape) >= 2 and row.arrays > 0 for row in products)
    assert all(row.path.endswith(("bias", "scale")) for row in report if row.where == "digital")
    np.testing.assert_allclose(run(analog, x), want, rtol=0, atol=2e-5)
    assert all(path in str(report) for path in paths)
    np.testing.assert_array_equal(run(model, x), want)
    back = xb.nn.to_digital(analog)
    np.testing.assert_array_equal(run(back, x), want)
    assert nnx.graphdef(back) == nnx.graphdef(model)


def test_layers_programmed_one_by_one_are_read():
    """The arrays take part: a model programmed on coarse cells gives other outputs, drift scales a linear one."""
    make, x, _ = MODELS["transformer"]
    analog, report = xb.nn.convert(make(), hardware=NOISY, rngs=nnx.Rngs(noise=0))
    xb.nn.program(analog, key=jax.random.key(0))
    found = xb.nn.tiles(analog)
    assert (
        len(found) == 7
        and sum(t.hardware.mapping.planes * np.prod(t.tiling.grid) for t in found.values()) == report.arrays
    )
    assert 1e-3 < np.abs(run(analog, x) - run(make(), x)).max() < 1


@pytest.mark.parametrize("name", ["transformer", "lstm"])
def test_sixteen_chips_in_one_call_are_sixteen_calls(name):
    make, x, _ = MODELS[name]
    analog, _ = xb.nn.convert(make(), hardware=NOISY, rngs=nnx.Rngs(noise=0))
    graphdef, state = nnx.split(analog)

    def chip(key):
        model = nnx.merge(graphdef, state, copy=True)
        xb.nn.program(model, key=key)
        return model(x)

    keys = jax.random.split(jax.random.key(3), 16)
    at_once = jax.jit(jax.vmap(chip))(keys)
    one = jax.jit(chip)
    np.testing.assert_allclose(at_once, np.stack([one(k) for k in keys]), rtol=0, atol=1e-5)
    assert (np.asarray(at_once).std(0) > 0).mean() > 0.99


def test_rematerialised_layers_have_the_same_gradient():
    analog, _ = xb.nn.convert(MODELS["depthwise"][0](), hardware=IDEAL.replace(dac=xb.DAC(bits=8)))
    plain = lambda m, x: (m(x) ** 2).sum()
    remat = lambda m, x: (nnx.remat(lambda m, x: m(x))(m, x) ** 2).sum()
    grads = [nnx.jit(nnx.grad(f))(analog, IMAGES) for f in (plain, remat)]
    for a, b in zip(*map(jax.tree.leaves, grads), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_rules_decide_in_order_and_patterns_must_match():
    model = Block(nnx.Rngs(0))
    other = IDEAL.replace(v_read=0.1)
    analog, report = xb.nn.convert(
        model,
        hardware=IDEAL,
        rules=[("attention/out", None, None), ("attention", "LinearGeneral", other)],
        exclude=["^down/kernel$"],
    )
    why = {row.path: (row.where, row.why) for row in report}
    assert why["attention/out/kernel"] == ("digital", "rule 0: 'attention/out'")
    assert why["attention/query/kernel"][0] == "analog" and why["down/kernel"] == (
        "digital",
        "excluded by '^down/kernel$'",
    )
    assert float(analog.attention.query.hardware.v_read) == pytest.approx(0.1)
    assert float(analog.up.hardware.v_read) == pytest.approx(0.2)
    assert type(analog.down) is nnx.Linear and type(analog.attention.out) is nnx.LinearGeneral
    with pytest.raises(ValueError, match="every pattern must match a weight, got none for 'decoder'"):
        xb.nn.convert(model, hardware=IDEAL, rules=[("decoder", None, None)])


class Bare(nnx.Module):
    def __init__(self, rngs):
        self.w = nnx.Param(jax.random.normal(rngs.params(), (3, 4)))
        self.scale = nnx.Param(jnp.ones(4))

    def __call__(self, x):
        return x @ self.w * self.scale


def test_a_weight_that_nothing_touches_is_an_error_unless_named():
    with pytest.raises(ValueError, match=r"(?s)every weight must be touched.*w \[3, 4\] of Bare.*exclude="):
        xb.nn.convert(Bare(nnx.Rngs(0)), hardware=IDEAL)
    _, report = xb.nn.convert(Bare(nnx.Rngs(0)), hardware=IDEAL, exclude=["^w$"])
    assert [(row.path, row.where) for row in report] == [("scale", "digital"), ("w", "digital")]
    own = nnx.Linear(3, 4, dot_general=lambda *a, **k: jax.lax.dot_general(*a, **k), rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="must have flax's own dot_general"):
        xb.nn.convert(own, hardware=IDEAL)


def test_shared_modules_stay_shared_and_the_original_is_apart():
    class Twice(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 3, rngs=rngs)
            self.again = nnx.List([self.first])

        def __call__(self, x):
            return self.again[0](self.first(x))

    model = Twice(nnx.Rngs(0))
    analog, report = xb.nn.convert(model, hardware=IDEAL)
    assert analog.again[0] is analog.first and len(report.of("analog")) == 1
    before = np.asarray(model.first.kernel[...])
    analog.first.kernel.set_value(analog.first.kernel[...] + 1)
    np.testing.assert_array_equal(model.first.kernel[...], before)


def test_tiles_with_their_digital_part_are_attached(tmp_path):
    layer = xb.nn.AnalogLinear(5, 3, hardware=IDEAL, rngs=nnx.Rngs(0))
    layer.bias.set_value(jnp.arange(3.0))
    layer.output_scale.set_value(jnp.array([0.5, 1.0, 2.0]))
    xb.nn.program(layer)
    x = jax.random.normal(jax.random.key(0), (4, 5))
    want = layer(x)
    (tile,) = xb.nn.tiles(layer).values()
    xb.export.save(tile, tmp_path, output_scale=layer.output_scale[...], bias=layer.bias[...])
    (path,) = xb.nn.tiles(layer)
    for use_bias in (True, False):
        other = xb.nn.AnalogLinear(5, 3, hardware=IDEAL, use_bias=use_bias, rngs=nnx.Rngs(1))
        xb.nn.attach(other, {path: xb.export.load(tmp_path)})
        np.testing.assert_allclose(other(x), want, rtol=0, atol=1e-6)
