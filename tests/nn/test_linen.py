"""Linen models by interception: the same outputs and gradients, every weight reported, arrays in a collection."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb

IDEAL = xb.Hardware(rows=16, cols=16)
NOISY = IDEAL.replace(device=xb.devices.Gaussian(program_std=5e-7, read_std=1e-7))


class Mixed(nn.Module):
    """Every kind of product that linen's layers have."""

    @nn.compact
    def __call__(self, tokens, images):
        embed = nn.Embed(11, 8)
        x = embed(tokens)
        x = nn.MultiHeadDotProductAttention(2)(x)
        x = nn.RNN(nn.OptimizedLSTMCell(8))(x)
        x = nn.RNN(nn.GRUCell(8))(x)
        y = nn.Conv(6, (3, 3), feature_group_count=3)(images)
        y = nn.ConvTranspose(4, (2, 2), strides=(2, 2))(y)
        y = nn.Dense(8)(nn.LayerNorm()(y).mean((1, 2)))
        return embed.attend(x + y[:, None, :])


MODEL = Mixed()
INPUTS = jax.random.randint(jax.random.key(0), (2, 4), 0, 11), jax.random.normal(jax.random.key(1), (2, 6, 6, 3))
VARIABLES = MODEL.init(jax.random.key(2), *INPUTS)


def converted(hardware, **options):
    return xb.nn.convert(MODEL, hardware=hardware, variables=VARIABLES, inputs=INPUTS, **options)


def test_every_weight_is_reported_and_the_model_is_the_same():
    analog, report = converted(IDEAL)
    paths = {"/".join(k.key for k in p) for p, _ in jax.tree_util.tree_leaves_with_path(VARIABLES["params"])}
    assert {row.path for row in report} == paths
    assert {row.where for row in report if row.path.endswith(("kernel", "embedding"))} == {"analog"}
    assert all(row.path.endswith(("bias", "scale")) for row in report if row.where == "digital")
    f = jax.jit(lambda v: analog.apply(v, *INPUTS))
    want = MODEL.apply(VARIABLES, *INPUTS)
    np.testing.assert_allclose(f(VARIABLES), want, rtol=0, atol=3e-5)
    np.testing.assert_allclose(f(analog.program(VARIABLES)), want, rtol=0, atol=3e-5)
    loss = lambda apply: lambda v: (apply(v, *INPUTS) ** 2).mean()
    found, exact = (jax.jit(jax.grad(loss(g)))(VARIABLES) for g in (analog.apply, MODEL.apply))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


class Small(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(8)(x)))


def test_programmed_once_and_read_many_times():
    x = jax.random.normal(jax.random.key(0), (5, 4))
    model = Small()
    variables = model.init(jax.random.key(1), x)
    analog, _ = xb.nn.convert(model, hardware=NOISY, variables=variables, inputs=(x,))
    with pytest.raises(ValueError, match="rngs must have a stream 'noise'"):
        analog.apply(variables, x)
    read = jax.jit(lambda v, k: analog.apply(v, x, rngs={"noise": k}))
    chips = [analog.program(variables, key=jax.random.key(k)) for k in (0, 0, 1)]
    assert sorted(chips[0]["analog"]) == ["Dense_0", "Dense_1"]
    one, same, other = (read(c, jax.random.key(5)) for c in chips)
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3 and np.abs(one - read(chips[0], jax.random.key(6))).max() > 1e-5
    keys = jax.random.split(jax.random.key(7), 16)
    chip = lambda k: analog.apply(analog.program(variables, key=k), x, rngs={"noise": k})
    at_once = jax.jit(jax.vmap(chip))(keys)
    each = jax.jit(chip)
    np.testing.assert_allclose(at_once, np.stack([each(k) for k in keys]), rtol=0, atol=1e-5)


def test_a_weight_that_no_layer_consumed_is_an_error_unless_named():
    class Bare(nn.Module):
        @nn.compact
        def __call__(self, x):
            return x @ self.param("w", nn.initializers.lecun_normal(), (4, 3))

    x = jnp.ones((2, 4))
    variables = Bare().init(jax.random.key(0), x)
    with pytest.raises(ValueError, match=r"(?s)every weight must be touched.*w \[4, 3\] of module at the top"):
        xb.nn.convert(Bare(), hardware=IDEAL, variables=variables, inputs=(x,))
    _, report = xb.nn.convert(Bare(), hardware=IDEAL, variables=variables, inputs=(x,), exclude=["w"])
    assert [row.where for row in report] == ["digital"]
