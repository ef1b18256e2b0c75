"""Training that stops, is loaded by a new process and goes on as if nothing had been; copies of layers."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import xbar_jax as xb
from xbar_jax.nn import checkpoint
from xbar_jax.nn.noise import Additive


@pytest.fixture(autouse=True)
def users_settings():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


# What both processes run: `runs` makes everything anew, `train(runs, n)` goes n steps.
PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np, optax
from flax import nnx
import xbar_jax as xb
from xbar_jax.nn import checkpoint, recipes

names = ("ConstantStep", "LinearStep", "SoftBounds", "SoftBoundsReference", "ExpStep", "PowStep", "PiecewiseStep")
devices = {name: getattr(xb.devices, name)() for name in names}
devices["OneSided"] = xb.devices.OneSided(device=xb.devices.SoftBounds())
devices["Pulsed"] = xb.devices.Pulsed(
    xb.devices.JARTv1b(), v_set=-0.342, v_reset=0.7065, width=1e-6, w_range=(-0.6, 0.6)
)
x, d = jnp.linspace(-1.0, 1.0, 6).reshape(2, 3), jnp.array([[0.5, -1.0], [1.0, 0.25]])


def runs(seed):
    rngs = nnx.Rngs(params=seed, noise=seed + 1)
    hw = xb.Hardware(rows=2, cols=2, device=xb.devices.Gaussian(program_std=1e-6), dac=xb.DAC(bits=6))
    model = xb.nn.AnalogLinear(3, 2, hardware=hw, rngs=rngs, modifier=xb.nn.noise.Additive(std=0.1))
    tx = optax.chain(recipes.decay_ranges(0.1), optax.adamw(0.05), recipes.clip_kernels(model))
    key = jax.random.key(seed)
    pulsed = {name: dev.init((3, 2), key=key) for name, dev in devices.items()}
    return {"model": model, "optimizer": nnx.Optimizer(model, tx, wrt=nnx.Param), "pulsed": pulsed, "key": key, "count": 0}


@jax.jit
def pulse(pulsed, key):
    return {name: xb.pulsed_update(dev, pulsed[name], x, d, lr=0.05, key=key) for name, dev in devices.items()}


@nnx.jit
def step(model, optimizer):
    optimizer.update(model, nnx.grad(lambda m: ((m(x) - d) ** 2).mean())(model))


def train(runs, n):
    for _ in range(n):
        step(runs["model"], runs["optimizer"])
        key, draw = jax.random.split(runs["key"])
        runs |= {"pulsed": pulse(runs["pulsed"], draw), "key": key, "count": runs["count"] + 1}
    return runs


def content(runs):
    leaves = jax.tree.leaves([nnx.state((runs["model"], runs["optimizer"])), runs["pulsed"], runs["key"], runs["count"]])
    plain = lambda v: jax.random.key_data(v) if hasattr(v, "dtype") and jnp.issubdtype(v.dtype, jax.dtypes.prng_key) else v
    return [np.asarray(plain(v)) for v in leaves]
"""
LATER = """
folder = sys.argv[1]
fresh = runs(seed=17)
assert int(fresh["optimizer"].step[...]) == 0
found = checkpoint.restore(folder + "/run", **fresh)
assert int(fresh["optimizer"].step[...]) == 5
assert found.step == 5 and found.parts["optimizer"] is fresh["optimizer"]
np.savez(folder + "/later.npz", *content(train(found.parts, 5)))
"""


def test_a_new_process_goes_on_bit_for_bit(tmp_path):
    """Hardware-aware training and every step device: 10 steps are 5, a checkpoint, a new process, and 5.

    Not marked long: such tests are compiled in another way than the new process compiles.
    """
    names: dict = {}
    exec(compile(PROGRAM, "program", "exec"), names)
    runs = names["train"](names["runs"](0), 5)
    checkpoint.save(tmp_path / "run", 5, **runs)
    first = names["content"](runs)
    straight = names["content"](names["train"](runs, 5))
    done = subprocess.run([sys.executable, "-c", PROGRAM + LATER, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "later.npz") as z:
        later = [z[f"arr_{k}"] for k in range(len(z.files))]
    assert len(straight) == len(later) > 60
    for a, b in zip(straight, later, strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
    moved = sum(a.tobytes() != b.tobytes() for a, b in zip(first, straight, strict=True))
    assert moved > 20  # kernels, moments, counters, keys, and the cells of all nine devices


def layer(hardware, std=0.1, out=2):
    return xb.nn.AnalogLinear(3, out, hardware=hardware, rngs=nnx.Rngs(params=0, noise=1), modifier=Additive(std=std))


FINE = xb.Hardware(dac=xb.DAC(bits=8), device=xb.devices.PCM())
COARSE = FINE.replace(dac=xb.DAC(bits=3), device=None)


def test_hardware_on_load_is_explicit(tmp_path):
    saved = layer(FINE)
    saved.kernel.set_value(jnp.full((3, 2), 0.7))
    checkpoint.save(tmp_path, 1, model=saved)
    for target, words in (
        (layer(COARSE), "model/ .other parts or sizes."),
        (layer(FINE.replace(dac=xb.DAC(bits=3))), "dac.bits .8.0 saved, 3.0 here."),
        (layer(None), "other parts"),
        (layer(FINE, std=0.2), "modifier/std .0.1 saved, 0.2 here."),
    ):
        before = np.array(target.kernel[...])
        with pytest.raises(ValueError, match=f"hardware must be 'keep' .* or 'saved', since they differ in .*{words}"):
            checkpoint.restore(tmp_path, model=target)
        np.testing.assert_array_equal(target.kernel[...], before)  # nothing was changed
    kept = layer(COARSE, std=0.2)
    assert checkpoint.restore(tmp_path, hardware="keep", model=kept).parts["model"] is kept
    assert kept.hardware.dac.bits == 3 and kept.hardware.device is None and kept.modifier.std == np.float32(0.2)
    x = jnp.array([[0.3, -0.2, 0.9]])
    xb.nn.program(kept)
    # Three bits and an input range of 1: 0.3, -0.2, 0.9 are 1/3, -1/3, 1.
    np.testing.assert_allclose(kept(x), 0.7 * (1 / 3 - 1 / 3 + 1) * np.ones((1, 2)), rtol=1e-5)
    for target in (layer(None), layer(COARSE, std=0.2)):
        checkpoint.restore(tmp_path, hardware="saved", model=target)
        same = jax.tree.map(lambda a, b: np.array_equal(a, b), target.hardware, saved.hardware)
        assert jax.tree.all(same) and target.modifier.std == np.float32(0.1)
        assert jax.tree.structure(target.hardware) == jax.tree.structure(saved.hardware)
    equal = layer(FINE)
    checkpoint.restore(tmp_path, model=equal)
    np.testing.assert_array_equal(equal.kernel[...], saved.kernel[...])


def test_hardware_with_functions_is_saved_where_the_target_has_them(tmp_path):
    custom = xb.Hardware(device=xb.devices.Custom(program_std=jax.tree_util.Partial(jnp.sqrt)))
    model = layer(custom.replace(v_read=0.1))
    checkpoint.save(tmp_path, 1, model=model)
    target = layer(xb.Hardware())
    with pytest.raises(ValueError, match="a file cannot hold its functions"):
        checkpoint.restore(tmp_path, hardware="saved", model=target)
    target = layer(custom)
    checkpoint.restore(tmp_path, hardware="saved", model=target)
    assert target.hardware.v_read == np.float32(0.1)


def test_what_does_not_fit_is_named(tmp_path):
    state = {
        "key": jax.random.key(0),
        "w": jnp.ones((2, 3), jnp.bfloat16),
        "none": jnp.zeros((0, 4)),
        "n": 3,
        "lr": 0.1,
    }
    checkpoint.save(tmp_path, 7, model=layer(None), state=state)
    back = checkpoint.restore(tmp_path, state=state | {"w": jnp.zeros((2, 3), jnp.bfloat16), "n": 0, "lr": 0.0})
    assert back.step == 7 and back.parts["state"]["n"] == 3 and back.parts["state"]["lr"] == 0.1
    assert back.parts["state"]["w"].dtype == jnp.bfloat16 and float(back.parts["state"]["w"].min()) == 1
    assert back.parts["state"]["none"].shape == (0, 4)
    for part, words in (
        ({"model": layer(None, out=4)}, r"model/bias must be float32\[2\], as saved, got float32\[4\]"),
        (
            {"state": state | {"w": jnp.ones((2, 3))}},
            r"state/w must be bfloat16\[2, 3\], as saved, got float32\[2, 3\]",
        ),
        ({"state": state | {"more": 1}}, "the target has the array 'more', the checkpoint not"),
        ({"state": state | {"key": jax.random.key(0, impl="rbg")}}, "state/key must be key of threefry2x32"),
        ({"optimizer": 1}, "parts must be among those saved .model, state., got 'optimizer'"),
    ):
        with pytest.raises(ValueError, match=words):
            checkpoint.restore(tmp_path, **part)
    with pytest.raises(ValueError, match=r"step must be one of \[7\]"):
        checkpoint.restore(tmp_path, step=8, state=state)
    with pytest.raises(ValueError, match="step must be > 7"):
        checkpoint.save(tmp_path, 7, state=state)
    with pytest.raises(ValueError, match="hardware must be 'keep' or 'saved', got 'load'"):
        checkpoint.restore(tmp_path, hardware="load", state=state)
    with pytest.raises(ValueError, match="at least one module"):
        checkpoint.save(tmp_path, 8)
    with pytest.raises(ValueError, match="other names than those of arguments, got 'hardware'"):
        checkpoint.save(tmp_path, 8, x=1, hardware=2)


def test_the_last_few_stay_and_what_was_cut_off_is_not_seen(tmp_path):
    assert checkpoint.steps(tmp_path / "nowhere") == []
    for step in range(1, 5):
        checkpoint.save(tmp_path, step, keep=2, x=jnp.float32(step))
    assert checkpoint.steps(tmp_path) == [3, 4]
    (tmp_path / "5.orbax-checkpoint-tmp").mkdir()  # what is left of a process that died while it wrote
    assert checkpoint.steps(tmp_path) == [3, 4]
    assert checkpoint.restore(tmp_path, x=jnp.float32(0)).parts["x"] == 4
    checkpoint.save(tmp_path, 5, keep=2, x=jnp.float32(5))
    assert checkpoint.restore(tmp_path, x=jnp.float32(0)).parts["x"] == 5
    assert checkpoint.restore(tmp_path, step=4, x=jnp.float32(0)).parts["x"] == 4


def test_copies_of_a_layer_are_independent():
    """deepcopy and pickle: the same outputs, noise included, and a state of their own."""
    x = jnp.array([[0.3, -0.2, 0.9]])
    model = layer(FINE.replace(device=None))

    @nnx.jit
    def slope(m):
        return nnx.value_and_grad(lambda m: m(x).sum())(m)

    for make in (copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), nnx.clone):
        twin = make(model)
        before, count = np.array(model.kernel[...]), int(model.noise.count[...])
        y, grads = slope(twin)
        assert int(model.noise.count[...]) == count
        np.testing.assert_array_equal(slope(model)[0], y)
        nnx.Optimizer(twin, optax.sgd(1.0), wrt=nnx.Param).update(twin, grads)
        np.testing.assert_array_equal(model.kernel[...], before)
        assert float(jnp.abs(twin.kernel[...] - before).max()) > 0.1
        xb.nn.set_hardware(twin, COARSE)
        assert model.hardware.dac.bits == 8
