"""Faults that users of such tools met, on pulsed devices, with the right values (O12, O14, O15, O22, O27, O28)."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from scipy import stats

import xbar_jax as xb
from xbar_jax import native

dv = xb.devices
EXACT = {"dw_min_dtod": 0.0, "dw_min_std": 0.0, "up_down_dtod": 0.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0}
SHAPE = ROWS, COLS = 4, 5
EFFECTS = {"write_noise_std": 1.0, "lifetime": 50.0, "diffusion": 0.001, "dw_min": 0.01}
DEVICES = {
    "ConstantStep": dv.ConstantStep(**EFFECTS),
    "LinearStep": dv.LinearStep(**EFFECTS, gamma_up=0.5, gamma_down=0.8),
    "SoftBounds": dv.SoftBounds(**EFFECTS),
    "SoftBoundsReference": dv.SoftBoundsReference(**EFFECTS, subtract_symmetry_point=True),
    "ExpStep": dv.ExpStep(**EFFECTS),
    "PowStep": dv.PowStep(**EFFECTS),
    "PiecewiseStep": dv.PiecewiseStep(**EFFECTS, nodes_up=(1.5, 1.0, 0.3), nodes_down=(0.3, 1.1, 1.4)),
    "OneSided": dv.OneSided(device=dv.SoftBounds(**EFFECTS | {"w_min": 0.0, "w_max": 1.0, "write_noise_std": 0.0}),
                            refresh_at=0.3),
}  # fmt: skip


def init(dev, key):  # not jitted: its operations are compiled once for all devices
    return dev.init(SHAPE, key=key)


@jax.jit
def update(dev, state, x, d, lr, key):
    return xb.pulsed_update(dev, state, x, d, lr=lr, key=key)


def data(n, batch=3, dtype=np.float32):
    rng = np.random.default_rng(0)
    return [
        (rng.normal(size=(batch, ROWS)).astype(dtype), rng.normal(size=(batch, COLS)).astype(dtype)) for _ in range(n)
    ]


def train(dev, state, calls, first=0):
    for k, (x, d) in enumerate(calls, first):
        state = update(dev, state, x, d, 0.05, jax.random.key(100 + k))
    return state


def same(a, b):
    for (path, u), v in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(u, v, err_msg=jax.tree_util.keystr(path))


def hidden(dev, state):
    """Hidden weights with the bounds of their cells."""
    parts = (state.plus, state.minus) if isinstance(dev, dv.OneSided) else (state,)
    return [(np.asarray(s.w), np.asarray(s.cells["lower"]), np.asarray(s.cells["upper"])) for s in parts]


# Every device: O12, O15, O22.


@pytest.mark.parametrize("name", DEVICES)
def test_o12_o15_o22_a_state_is_kept_copied_and_inside_its_bounds(name):
    dev, calls = DEVICES[name], data(6)
    fresh = init(dev, jax.random.key(0))
    state = train(dev, fresh, calls[:2])
    read = np.array(dev.weight(state))
    assert np.abs(read - np.asarray(dev.weight(fresh))).max() > 0.01

    # copies are independent of the original, which does not change
    others = {"deepcopy": copy.deepcopy((dev, state)), "pickle": pickle.loads(pickle.dumps((dev, state)))}
    changed = train(dev, state, calls[2:3], 2)
    np.testing.assert_array_equal(dev.weight(state), read)
    want = train(dev, changed, calls[3:], 3)
    for other_dev, other in others.values():
        same((other_dev, other), (dev, state))
        np.testing.assert_array_equal(other_dev.weight(other), read)
        same(train(other_dev, other, calls[2:], 2), want)
    # through numpy and back
    bare = jax.tree.map(np.array, state)
    same(train(dev, bare, calls[2:], 2), want)

    # the whole history in the JAX form
    with native.disabled():
        body = train(dev, fresh, calls)
    for (w, *_), (v, *_) in zip(hidden(dev, want), hidden(dev, body), strict=True):
        np.testing.assert_allclose(w, v, rtol=0, atol=2e-6)
    np.testing.assert_allclose(dev.weight(want), dev.weight(body), rtol=0, atol=4e-6)
    if name != "OneSided":
        np.testing.assert_array_equal(want.pulses, body.pulses)
        assert want.pulses.min() > 0

    check_bounds(name)


def check_bounds(name):
    """O15: at initialisation, after load and after an update, every cell is inside its own bounds."""
    dev = DEVICES[name]
    part = {"corrupt_devices_prob": 0.1, "write_noise_std": 0.0, "diffusion": 0.1, "dw_min_std": 1.0, "dw_min": 0.05}
    dev = dev.replace(device=dev.device.replace(**part)) if name == "OneSided" else dev.replace(**part)
    rng, seen = np.random.default_rng(1), []
    for seed in range(25):
        state = init(dev, jax.random.key(seed))
        far = load(dev, state, 5 * rng.normal(size=SHAPE).astype(np.float32))
        for s in (state, far, train(dev, far, data(1))):
            w, low, high = read_all(dev, s)
            assert (low <= high).all() and (low - 1e-6 <= w).all() and (w <= high + 1e-6).all()
            for v, lower, upper in hidden(dev, s):
                assert (lower <= v).all() and (v <= upper).all()
        seen.append((np.minimum(*(np.abs(v - read_all(dev, far)[0]) for v in read_all(dev, far)[1:])), w))
    assert (np.array([v for v, _ in seen]) < 1e-6).mean() > 0.7  # most that was asked for lies beyond a bound
    assert len(np.unique([w for _, w in seen])) > 300


@jax.jit
def load(dev, state, w):
    return dev.set_weight(state, w)


@jax.jit
def read_all(dev, state):
    return dev.weight(state), *dev.weight_range(state)


def test_o15_initial_weights_are_clipped_to_the_bounds():
    dev = dv.SoftBoundsReference()
    w = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    state = dev.init(SHAPE, key=jax.random.key(0), w=w)
    low, high = dev.weight_range(state)
    assert ((w < low) | (w > high)).mean() > 0.2
    np.testing.assert_allclose(dev.weight(state), np.clip(w, low, high), rtol=0, atol=1e-6)


# O12: hidden state.


def test_o12_two_short_calls_are_one_long_one():
    dev = dv.SoftBounds(**EXACT | {"dw_min": 0.02})
    state = init(dev, jax.random.key(0))
    pulse = jax.jit(lambda s, n: dev.pulse(s, n, key=jax.random.key(1)))
    half = pulse(state, 5)
    np.testing.assert_allclose(half.w, 0.6 * (1 - (1 - 0.02 / 0.6) ** 5), rtol=1e-5)
    np.testing.assert_array_equal(pulse(half, 5).w, pulse(state, 10).w)
    same(pulse(half, 0), half)  # zero pulses, zero volt: nothing
    for x, d in ((0.0, 1.0), (1.0, 0.0)):
        rest = update(
            dev, half, np.full((3, ROWS), x, np.float32), np.full((3, COLS), d, np.float32), 0.05, jax.random.key(3)
        )
        same(rest, half)


def test_o12_jit_scan_and_vmap_keep_the_state():
    dev, calls = DEVICES["SoftBoundsReference"], data(5)
    state = init(dev, jax.random.key(0))
    want = train(dev, state, calls)
    # two arrays side by side, each from its own state with its own inputs
    x, d = (jnp.stack([jnp.stack(v), jnp.stack(v[::-1])], axis=1) for v in zip(*calls, strict=True))
    keys = jnp.stack([jax.random.key(100 + k) for k in range(5)])

    @jax.jit
    def scanned(dev, both):
        one = lambda s, x, d, key: xb.pulsed_update(dev, s, x, d, lr=jnp.float32(0.05), key=key)
        step = lambda s, v: (jax.vmap(one, in_axes=(0, 0, 0, None))(s, *v), None)
        return jax.lax.scan(step, both, (x, d, keys))[0]

    after = scanned(dev, jax.tree.map(lambda *v: jnp.stack(v), state, want))
    same(jax.tree.map(lambda v: v[0], after), want)
    same(jax.tree.map(lambda v: v[1], after), train(dev, want, calls[::-1]))


def test_o12_o22_a_model_keeps_its_state():
    dev, calls = DEVICES["SoftBoundsReference"], data(4)

    class Cells(nnx.Module):
        def __init__(self, state):
            self.state = nnx.Variable(state)

    @nnx.jit
    def step(model, x, d, key):
        model.state.set_value(xb.pulsed_update(dev, model.state.get_value(), x, d, lr=jnp.float32(0.05), key=key))

    model = Cells(init(dev, jax.random.key(0)))
    for k, (x, d) in enumerate(calls[:2]):
        step(model, x, d, jax.random.key(100 + k))
    half = train(dev, init(dev, jax.random.key(0)), calls[:2])
    np.testing.assert_allclose(model.state.get_value().w, half.w, rtol=0, atol=1e-6)
    twin = nnx.clone(model)
    for k, (x, d) in enumerate(calls[2:], 2):
        step(twin, x, d, jax.random.key(100 + k))
    np.testing.assert_allclose(model.state.get_value().w, half.w, rtol=0, atol=1e-6)
    np.testing.assert_allclose(twin.state.get_value().w, train(dev, half, calls[2:], 2).w, rtol=0, atol=1e-6)


# O14: counts and sizes.


def test_o14_counts_of_pulses():
    dev = dv.ConstantStep.from_counts(10, 20, w_min=-1.0, w_max=1.0, **EXACT)
    np.testing.assert_allclose([dev.dw_min, dev.up_down], [0.15, 1 / 3], rtol=1e-9)
    state = init(dev, jax.random.key(0))
    pulse = jax.jit(lambda s, n: dev.pulse(s, n, key=jax.random.key(1)))
    bottom = dev.set_weight(state, -1.0)
    top = pulse(bottom, 10)
    np.testing.assert_allclose(pulse(bottom, 1).w, -0.8, atol=1e-6)
    np.testing.assert_allclose(pulse(bottom, 9).w, 0.8, atol=1e-6)
    np.testing.assert_allclose(top.w, 1, atol=1e-6)
    np.testing.assert_allclose(pulse(top, -1).w, 0.9, atol=1e-6)
    np.testing.assert_allclose(pulse(top, -19).w, -0.9, atol=2e-6)
    np.testing.assert_allclose(pulse(top, -20).w, -1, atol=2e-6)
    np.testing.assert_allclose(pulse(pulse(state, 3), -3).w, 0.3, atol=1e-6)
    np.testing.assert_array_equal(pulse(bottom, 25).w, 1)
    curve = dv.pulse_response(dev, bottom, 10, 20, key=jax.random.key(0))[:, 0, 0]
    want = np.concatenate([np.linspace(-1, 1, 11), np.linspace(1, -1, 21)[1:]])
    np.testing.assert_allclose(curve, want, rtol=0, atol=2e-6)


def test_o14_the_learning_rate_counts():
    dev = dv.ConstantStep(**EXACT | {"dw_min": 0.001, "w_max": 10.0, "w_min": -10.0})
    state = init(dev, jax.random.key(0))
    x, d = jnp.ones((1, ROWS)), jnp.ones((1, COLS))
    for lr in (1.0, 0.5, 0.01):
        new = xb.pulsed_update(dev, state, x, d, lr=lr, key=jax.random.key(0), bl_max=1000)
        np.testing.assert_allclose(new.w, -lr, rtol=3e-5)
    coarse = dv.ConstantStep(**EXACT | {"dw_min": 0.125, "w_max": 10.0, "w_min": -10.0})
    new = update(coarse, init(coarse, jax.random.key(0)), x, d, 1.0, jax.random.key(0))
    np.testing.assert_array_equal(new.w, -1)


# O27: noise.


@functools.cache
def large():
    """1e5 cells of a constant step of 0.01 with wide bounds."""
    dev = dv.ConstantStep(**EXACT | {"dw_min": 0.01, "w_max": 10.0, "w_min": -10.0})
    return dev.init((250, 400), key=jax.random.key(0))


def test_o27_noise_is_new_in_each_call_and_each_member():
    dev = dv.ConstantStep(**EXACT | {"dw_min": 0.01, "w_max": 10.0, "w_min": -10.0, "dw_min_std": 0.3})
    state = large()

    @jax.jit
    def step(state, key):
        return dev.pulse(state, 1, key=key)

    noise = lambda a, b: ((np.asarray(a.w, np.float64) - np.asarray(b.w)) / 0.01 - 1).ravel()
    one, again, other = (step(state, jax.random.key(k)) for k in (1, 1, 2))
    same(one, again)
    for n in (noise(one, state), noise(other, state)):
        np.testing.assert_allclose(n.std(), 0.3, rtol=0.01)
        np.testing.assert_allclose(n.mean(), 0, atol=0.004)
    assert abs(np.corrcoef(noise(one, state), noise(other, state))[0, 1]) < 0.015
    # as a training loop does it: the key folded with the step
    keys = [jax.random.fold_in(jax.random.key(7), k) for k in range(3)]
    states = list(itertools.accumulate(keys, step, initial=state))
    draws = np.stack([noise(b, a) for a, b in itertools.pairwise(states)])
    np.testing.assert_allclose(np.corrcoef(draws), np.eye(3), atol=0.016)

    small = jax.tree.map(lambda v: v[:50, :50], state)
    keys = jax.random.split(jax.random.key(3), 8)
    many = np.asarray(jax.jit(jax.vmap(step, in_axes=(None, 0)))(small, keys).w)
    assert len(np.unique(np.round(many, 7))) > 0.9 * many.size
    np.testing.assert_allclose(np.corrcoef(many.reshape(8, -1)), np.eye(8), atol=0.09)
    for k in (0, 7):
        np.testing.assert_array_equal(many[k], step(small, keys[k]).w)


@pytest.mark.parametrize("pulses", ["stochastic", "mean_count"])
def test_o27_samples_of_one_update_have_noise_of_their_own(pulses):
    dev = dv.ConstantStep(**EXACT | {"dw_min": 0.01, "w_max": 10.0, "w_min": -10.0, "dw_min_std": 0.3})
    state = large()
    f = jax.jit(lambda s, x, d, lr, key: xb.pulsed_update(dev, s, x, d, lr=lr, key=key, pulses=pulses))
    x, d = np.ones((4, 250), np.float32), np.ones((4, 400), np.float32)
    # four samples of one sure pulse each, or of four: variances add
    for lr, n in ((0.01, 4), (0.04, 16)):
        a, b = (np.asarray(f(state, x, d, lr, jax.random.key(k)).w, np.float64) / -0.01 for k in (1, 2))
        np.testing.assert_allclose(a.mean(), n, rtol=0.002)
        np.testing.assert_allclose(a.std(), 0.3 * n**0.5, rtol=0.01)
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.016


def test_o27_trains_are_new_for_each_key_and_sample():
    dev = dv.ConstantStep(**EXACT | {"dw_min": 0.001, "w_max": 10.0, "w_min": -10.0})
    state = init(dev, jax.random.key(0))
    x, d = np.full((3, ROWS), 0.5, np.float32), np.full((3, COLS), 0.5, np.float32)
    x[:, 0] = d[:, 0] = 1.0
    a, b, c = (np.asarray(update(dev, state, x, d, 0.02, jax.random.key(k)).pulses) for k in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    one = np.zeros_like(x), np.zeros_like(d)
    each = []
    for k in range(3):  # the same sample in another place of the batch has other trains
        xs, ds = (v.copy() for v in one)
        xs[k], ds[k] = x[0], d[0]
        each.append(np.asarray(update(dev, state, xs, ds, 0.02, jax.random.key(1)).pulses))
    assert all((u != v).any() for u, v in itertools.combinations(each, 2))
    np.testing.assert_array_equal(sum(each), a)


# O28: dtypes and frozen leaves.


@pytest.mark.parametrize("name", ["SoftBoundsReference", "OneSided"])
def test_o28_float32_stays_float32_under_x64(name, x64):
    dev = DEVICES[name]
    state = dev.init(SHAPE, key=jax.random.key(0))
    first = jax.tree.map(lambda v: v.dtype, state)
    assert all(t in (np.float32, np.int32) for t in jax.tree.leaves(first))
    new = state
    for k, (x, d) in enumerate(data(3, dtype=np.float64)):
        new = xb.pulsed_update(dev, new, x, d, lr=0.05, key=jax.random.key(k))
    assert jax.tree.map(lambda v: v.dtype, new) == first
    assert np.abs(np.asarray(dev.weight(new)) - np.asarray(dev.weight(state))).max() > 0.01


def test_o28_float64_state_is_exact_to_float64(x64):
    b, step = 0.6, 0.01
    dev = dv.SoftBounds(**EXACT | {"dw_min": step})
    state = dev.init(SHAPE, key=jax.random.key(0), dtype=jnp.float64)
    x, d = np.ones((3, ROWS)), -np.ones((3, COLS))
    new = xb.pulsed_update(dev, state, x, d, lr=7 * step, key=jax.random.key(0))
    assert new.w.dtype == np.float64
    np.testing.assert_allclose(new.w, b * (1 - (1 - step / b) ** 21), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_o28_noise_of_half_precision(dtype):
    shape = 250, 400
    wide = EXACT | {"dw_min": 0.25, "w_max": 8.0, "w_min": -8.0, "dw_min_std": 0.3, "write_noise_std": 0.5}
    dev = dv.ConstantStep(**wide)
    state = dev.init(shape, key=jax.random.key(0), dtype=dtype)

    @jax.jit
    def step(dev, state, n, key):
        return dev.pulse(state, n, key=key, max_pulses=2)

    f64 = lambda v: np.asarray(v).astype(np.float64)
    new = step(dev, state, jnp.full(shape, -1), jax.random.key(1))
    assert new.w.dtype == new.offset.dtype == dev.weight(new).dtype == jnp.dtype(dtype)
    w, offset = f64(new.w), f64(new.offset)
    assert np.isfinite(w).all() and np.isfinite(offset).all()
    np.testing.assert_allclose([w.mean(), w.std()], [-0.25, 0.075], rtol=0.02)
    np.testing.assert_allclose(offset.std(), 0.125, rtol=0.02)
    assert stats.kstest(offset[:20].ravel() / 0.125, "norm").statistic < 0.02
    # spread, stuck cells and resets
    mixed = dev.replace(w_max_dtod=0.2, corrupt_devices_prob=0.25, reset_std=0.5)
    state = mixed.init(shape, key=jax.random.key(2), dtype=dtype)
    low, high, w = (f64(v) for v in (state.cells["lower"], state.cells["upper"], state.w))
    stuck = low == high
    np.testing.assert_allclose(stuck.mean(), 0.25, atol=0.007)
    np.testing.assert_allclose(
        [w[stuck].mean(), w[stuck].std()], [0, np.sqrt((16**2 + 1.6**2) / 12 + 1.6**2 / 4)], atol=0.1
    )
    np.testing.assert_allclose([high[~stuck].mean(), high[~stuck].std()], [8, 1.6], rtol=0.02)
    assert np.isfinite(w).all() and (low <= w).all() and (w <= high).all()
    np.testing.assert_allclose(f64(mixed.reset_cells(state, key=jax.random.key(3)).w)[~stuck].std(), 0.5, rtol=0.02)
    # updates: finite, of the dtype, of the right mean
    x, d = jnp.ones((3, shape[0]), dtype), jnp.ones((3, shape[1]), dtype)
    new = xb.pulsed_update(
        dev, dev.init(shape, key=jax.random.key(0), dtype=dtype), x, d, lr=0.5, key=jax.random.key(4)
    )
    assert new.w.dtype == jnp.dtype(dtype)
    np.testing.assert_allclose([f64(new.w).mean(), f64(new.w).std()], [-1.5, 0.075 * 6**0.5], rtol=0.02)


@pytest.mark.parametrize("name", ["ExpStep", "PowStep", "PiecewiseStep"])
def test_o28_devices_step_in_half_precision(name):
    dev = DEVICES[name].replace(**EXACT | EFFECTS | {"write_noise_std": 0.0, "dw_min": 0.125})
    if name == "PowStep":
        dev = dev.replace(gamma_up_dtod=0.0, gamma_down_dtod=0.0)
    n = np.zeros(SHAPE, np.int32)
    n[:, :4] = [2, -2, 20, -20]
    n[:2, 4] = 20, -20
    pulse = jax.jit(lambda dev, state: dev.pulse(state, n, key=jax.random.key(1)).w)
    cast = lambda v, t: v.astype(t) if v.dtype == np.float32 else v
    state = init(dev, jax.random.key(0))
    if name == "PowStep":  # an exponent of 0 is a constant step, at the bounds too
        state = state.replace(
            cells=state.cells | {k: v.at[:, 4].set(0.0) for k, v in state.cells.items() if "gamma" in k}
        )
    states = [jax.tree.map(lambda v, t=t: cast(v, t), state) for t in ("float32", "float16", "bfloat16")]
    exact, *rough = (np.asarray(pulse(dev, s)).astype(np.float64) for s in states)
    for w, eps in zip(rough, (2.0**-11, 2.0**-8), strict=True):
        np.testing.assert_allclose(w, exact, rtol=0, atol=8 * eps)
    if name == "PowStep":
        np.testing.assert_allclose(exact[:2, 4], [0.6, -0.6], rtol=1e-6)


def test_o28_frozen_constants_stay():
    dev = dv.SoftBounds(**EFFECTS | {"corrupt_devices_prob": 0.0})
    state = init(dev, jax.random.key(0))
    x, d = data(1)[0]
    params = {"dev": xb.canonical(dev), "w": state.w, "cells": state.cells, "scale": jnp.ones((1, COLS))}
    before = jax.tree.map(np.array, params)
    label = lambda path, _: "learnt" if path[0].key in ("w", "scale") else "frozen"
    labels = jax.tree_util.tree_map_with_path(label, params)
    opt = optax.partition({"learnt": optax.adamw(1e-2, weight_decay=0.1), "frozen": optax.set_to_zero()}, labels)

    @jax.jit
    def step(params, memory, key):
        def loss(p):
            s = state.replace(w=p["w"], cells=p["cells"])
            s = xb.pulsed_update(p["dev"], s, x, d, lr=jnp.float32(0.05), key=key)
            return ((p["dev"].weight(s) * p["scale"] - 0.2) ** 2).sum()

        grads = jax.grad(loss)(params)
        with jax.numpy_dtype_promotion("standard"):  # optax is not strict
            updates, memory = opt.update(grads, memory, params)
        return optax.apply_updates(params, updates), memory, grads

    memory = opt.init(params)
    for k in range(10):
        params, memory, grads = step(params, memory, jax.random.key(k))
    # the device does have gradients, which the optimiser was not to use
    assert float(jnp.abs(grads["dev"].dw_min_std)) > 1e-6 and float(jnp.abs(grads["cells"]["upper"]).max()) > 1e-6
    assert all(np.isfinite(v).all() for v in jax.tree.leaves(grads))
    same({k: params[k] for k in ("dev", "cells")}, {k: before[k] for k in ("dev", "cells")})
    assert np.abs(params["w"] - before["w"]).min() > 1e-3 and np.abs(params["scale"] - before["scale"]).min() > 1e-3
