"""Recipes over optax against numpy; learnt ranges that count every call; runs that reproduce."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import xbar_jax as xb
from xbar_jax.nn import recipes
from xbar_jax.nn.noise import Additive


@pytest.fixture(autouse=True)
def users_settings():
    # optax promotes.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class Mixed(nnx.Module):
    """A digital layer and an analog one, a kernel each."""

    def __init__(self, modifier=None, dtype=jnp.float32):
        rngs = nnx.Rngs(params=0, noise=1)
        self.digital = nnx.Linear(5, 6, rngs=rngs, param_dtype=dtype)
        self.analog = xb.nn.AnalogLinear(
            6, 4, hardware=xb.Hardware(dac=xb.DAC(bits=6)), rngs=rngs, modifier=modifier, dtype=dtype
        )

    def __call__(self, x):
        return self.analog(jax.nn.tanh(self.digital(x)))


@pytest.mark.parametrize("per", ["layer", "channel"])
def test_only_analog_kernels_are_clipped(per):
    model = Mixed()
    rng = np.random.default_rng(0)
    for layer in (model.digital, model.analog):
        layer.kernel.set_value(jnp.asarray(rng.standard_t(2, layer.kernel.shape), jnp.float32))
    params = nnx.state(model, nnx.Param)
    tx = optax.chain(optax.sgd(0.5), recipes.clip_kernels(model, sigmas=1.2, per=per))
    grads = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape), p.dtype), params)
    updates, _ = tx.update(grads, tx.init(params), params)
    new = nnx.to_pure_dict(optax.apply_updates(params, updates))
    free = nnx.to_pure_dict(jax.tree.map(lambda p, g: p - 0.5 * g, params, grads))
    w = np.asarray(free["analog"]["kernel"])
    bound = 1.2 * w.std(None if per == "layer" else 0)
    assert (np.abs(w) > bound).any()
    np.testing.assert_allclose(new["analog"]["kernel"], np.clip(w, -bound, bound), rtol=0, atol=1e-6)
    new["analog"].pop("kernel"), free["analog"].pop("kernel")
    jax.tree.map(np.testing.assert_array_equal, new, free)


def test_a_kernel_without_spread_is_left_alone():
    model = Mixed()
    model.analog.kernel.set_value(jnp.full((6, 4), 0.3))
    params = nnx.state(model, nnx.Param)
    tx = recipes.clip_kernels(model)
    updates, _ = tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
    assert all(float(jnp.abs(u).max()) == 0 for u in jax.tree.leaves(updates["analog"]))
    model.analog.kernel.set_value(jnp.zeros((6, 4)))
    params = nnx.state(model, nnx.Param)
    updates, _ = tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
    assert all(float(jnp.abs(u).max()) == 0 for u in jax.tree.leaves(updates["analog"]))


def test_frozen_leaves_keep_every_bit():
    """Ten AdamW steps with decay, against the same optimiser on the other leaves alone."""
    cells = xb.canonical(xb.devices.PCM())
    params = {"w": jnp.arange(3.0), "cells": cells, "zero": jnp.array([-0.0, 0.5])}
    tx = recipes.freeze(optax.adamw(0.1, weight_decay=0.1), ("^cells/", "zero"))
    alone = optax.adamw(0.1, weight_decay=0.1)

    @jax.jit
    def run(params):
        w, state, state_alone = params["w"], tx.init(params), alone.init({"w": params["w"]})
        for k in range(10):
            grads = jax.tree.map(lambda p, k=k: jnp.full_like(p, 1.0 + k), params)
            updates, state = tx.update(grads, state, params)
            params = optax.apply_updates(params, updates)
            u, state_alone = alone.update({"w": grads["w"]}, state_alone, {"w": w})
            w = w + u["w"]
        return params, w, state

    new, w, state = run(params)
    assert jax.tree.all(jax.tree.map(lambda a, b: a.tobytes() == b.tobytes(), new["cells"], cells))
    assert new["zero"].tobytes() == params["zero"].tobytes()
    np.testing.assert_allclose(new["w"], w, rtol=1e-6)
    assert float(jnp.abs(new["w"] - params["w"]).min()) > 0.5
    # No moments are kept for what is frozen: mu and nu of w, and a count.
    assert sorted(x.shape for x in jax.tree.leaves(state)) == [(), (3,), (3,)]


def test_precision_of_parameters_and_state_stays_with_64_bit_mode_on():
    with jax.enable_x64(True):
        model = Mixed(modifier=Additive(std=0.05))
        tx = optax.chain(recipes.decay_ranges(0.01), optax.adamw(1e-2), recipes.clip_kernels(model))
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
        types = lambda: jax.tree.map(lambda x: x.dtype, nnx.state((model, optimizer)))
        before = types()

        @nnx.jit
        def step(model, optimizer):
            optimizer.update(model, nnx.grad(lambda m: (m(jnp.ones((2, 5), jnp.float32)) ** 2).mean())(model))

        for _ in range(3):
            step(model, optimizer)
        assert types() == before
        assert model.analog.kernel[...].dtype == jnp.float32


def test_ranges_decay_before_the_optimiser():
    model = Mixed()
    model.analog.input_range.set_value(jnp.float32(2.0))
    params = nnx.state(model, nnx.Param)
    tx = optax.chain(recipes.decay_ranges(0.3), optax.sgd(0.1))
    grads = jax.tree.map(jnp.ones_like, params)
    new = optax.apply_updates(params, tx.update(grads, tx.init(params), params)[0])
    np.testing.assert_allclose(new["analog"]["input_range"][...], 2.0 - 0.1 * (1 + 0.3 * 2.0), rtol=1e-6)
    np.testing.assert_allclose(new["analog"]["kernel"][...], params["analog"]["kernel"][...] - 0.1, rtol=1e-5)


def test_the_gradient_of_a_range_counts_every_call():
    """r = 1, w = 1, x = [.5, 2, -3], L = y1 + y2: dL/dr = 1 in one call, in a loop, and in a scan."""
    layer = xb.nn.AnalogLinear(
        1,
        1,
        hardware=xb.Hardware(dac=xb.DAC(bits=8)),
        rngs=nnx.Rngs(0),
        use_bias=False,
        kernel_init=nnx.initializers.ones,
    )
    graphdef, state = nnx.split(layer)
    x, share = jnp.array([[0.5], [2.0], [-3.0]]), jnp.array([1.0, 1.0, 0.0])

    def slope_of(run):
        def loss(r):
            m = nnx.merge(graphdef, state, copy=True)
            m.input_range.set_value(r)
            return run(m)

        slope = jax.jit(jax.grad(loss))
        return lambda r: float(slope(jnp.float32(r)))

    ways = (
        lambda m: (share * m(x)[:, 0]).sum(),
        lambda m: sum(s * m(v[None])[0, 0] for s, v in zip(share, x, strict=True)),
        lambda m: jax.lax.scan(lambda total, sv: (total + sv[0] * m(sv[1])[0], None), jnp.float32(0), (share, x))[0],
    )
    for slope in map(slope_of, ways):
        assert slope(1.0) == pytest.approx(1.0, abs=1e-6)
        assert slope(4.0) == pytest.approx(0.0, abs=1e-6)
        for r in (0.0, -1.0):
            assert slope(r) == pytest.approx(2.0, abs=1e-5)  # both inputs are beyond: each asks for a wider range


def test_ranges_start_at_three_standard_deviations():
    model = Mixed()
    batches = [np.random.default_rng(k).normal(size=(40, 5)).astype(np.float32) * (k + 1) for k in range(3)]
    recipes.start_ranges(model, batches, xb.hardware.MovingStd(factor=3.0, decay=0.5))
    hidden = [np.asarray(jax.nn.tanh(model.digital(jnp.asarray(b)))) for b in batches]
    rms = np.array([np.sqrt((h**2).mean()) for h in hidden])
    want = 3 * (0.125 * rms[0] + 0.25 * rms[1] + 0.5 * rms[2]) / 0.875
    np.testing.assert_allclose(model.analog.input_range[...], want, rtol=1e-5)
    before = model.analog.input_range[...]
    model.digital.kernel.set_value(jnp.zeros((5, 6)))
    recipes.start_ranges(model, batches[:1])
    assert model.analog.input_range[...] == before  # only zeros were seen


def test_distillation_against_numpy(dtype):
    rng = np.random.default_rng(0)
    student, teacher, labels = rng.normal(size=(7, 4)), rng.normal(size=(7, 4)), rng.integers(0, 4, 7)
    soft = lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    t, alpha = 3.0, 0.3
    p, q = soft(teacher / t), soft(student / t)
    want = (1 - alpha) * -np.log(soft(student)[np.arange(7), labels]).mean()
    want += alpha * t**2 * (p * np.log(p / q)).sum(-1).mean()
    loss = lambda s, g: recipes.distillation_loss(s, g, jnp.asarray(labels), temperature=t, alpha=alpha)
    value, slopes = jax.value_and_grad(loss, (0, 1))(jnp.asarray(student, dtype), jnp.asarray(teacher, dtype))
    np.testing.assert_allclose(value, want, rtol={"float32": 1e-5, "float64": 1e-12}[dtype.name])
    assert value.dtype == dtype and float(jnp.abs(slopes[1]).max()) == 0
    one_hot = np.eye(4)[labels]
    closed = ((1 - alpha) * (soft(student) - one_hot) + alpha * t * (q - p)) / 7
    np.testing.assert_allclose(slopes[0], closed, rtol=0, atol={"float32": 1e-6, "float64": 1e-12}[dtype.name])


def test_noise_of_steps_runs_and_evaluation():
    """A jitted step draws anew each time, a seed gives one run, an explicit key one evaluation."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(8, 5)), jnp.float32)

    @nnx.jit
    def step(model, optimizer):
        loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    still, moving = optax.sgd(0.0), optax.sgd(0.1)

    def run(tx, steps):
        model = Mixed(modifier=Additive(std=0.2))
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
        losses = [float(step(model, optimizer)) for _ in range(steps)]
        return losses, model

    assert len(set(run(still, 4)[0])) == 4
    (a, m), (b, n) = run(moving, 4), run(moving, 4)
    assert a == b
    assert jax.tree.all(
        jax.tree.map(lambda p, q: p.tobytes() == q.tobytes(), nnx.state(m, nnx.Param), nnx.state(n, nnx.Param))
    )
    h, key = jnp.ones((2, 6)), jax.random.key(9)
    first, count = m.analog(h, key=key), int(m.analog.noise.count[...])
    np.testing.assert_array_equal(m.analog(h, key=key), first)
    assert int(m.analog.noise.count[...]) == count and float(jnp.abs(m.analog(h) - first).max()) > 0


def test_errors():
    model = Mixed()
    with pytest.raises(ValueError, match="clip_kernels: sigmas must be > 0, got 0"):
        recipes.clip_kernels(model, sigmas=0)
    with pytest.raises(ValueError, match="per must be 'layer' or 'channel'"):
        recipes.clip_kernels(model, per="row")
    with pytest.raises(ValueError, match="must have analog layers"):
        recipes.clip_kernels(model.digital)
    with pytest.raises(ValueError, match="names must be found in the paths of parameters"):
        recipes.freeze(optax.sgd(0.1), "nothing").init({"w": jnp.ones(2)})
    with pytest.raises(ValueError, match="at least one batch"):
        recipes.start_ranges(model, [])
