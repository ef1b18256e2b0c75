"""The main job: handwritten digits from a trained Flax network to simulated arrays and back.

A 64-128-10 network is trained on the 8x8 digits of scikit-learn, put on arrays of 64x128 and 128x10 cells
(a differential pair each, 10 to 100 kohm), and evaluated over wire resistance, converter resolution and
programming noise, ten chips a point. Four networks are compared: the digital weights as they are, the
same with a gain per column fitted on the array, weights trained with Gaussian noise, and weights trained
through the exact wires.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from xbar_jax.circuits import Wires, solve
from xbar_jax.devices import Gaussian
from xbar_jax.hardware import ADC, DAC, Hardware, mapping
from xbar_jax.nn import AnalogLinear, calibrate, fit_output_scale, noise, program, set_hardware
from xbar_jax.typing import Array, Float, Key

G_MIN, G_MAX = 1e-5, 1e-4  # S: cells of 100 and 10 kohm


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the study varies. The defaults are the study."""

    resistances: tuple[float, ...] = (0.0, 10.0, 20.0, 30.0, 50.0)
    """Wire resistance, ohm a segment."""
    bits: tuple[float, ...] = (math.inf, 8.0, 6.0)
    """Resolution of both converters; inf is ideal."""
    program_std: tuple[float, ...] = (0.0, 0.01, 0.03)
    """Programming noise, standard deviation relative to g_max - g_min."""
    chips: int = 10
    """Programmed chips a point."""
    digital_epochs: int = 60
    """Epochs of the digital networks."""
    wire_epochs: int = 10
    """Epochs through the wires, from the digital weights."""
    seed: int = 0
    """Seed of the split, the initial weights and every draw."""


class Data(NamedTuple):
    """Images [n, 64] in 0..1 and labels."""

    x_train: Float[Array, "n 64"]
    y_train: Array
    x_test: Float[Array, "m 64"]
    y_test: Array


def load(seed: int) -> Data:
    """The digits of scikit-learn, one fifth held out."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x / 16.0, y, test_size=0.2, random_state=seed)
    images = lambda x: jnp.asarray(x, jnp.float32)
    return Data(images(x_train), jnp.asarray(y_train), images(x_test), jnp.asarray(y_test))


class Network(nnx.Module):
    """64 inputs, 128 rectified units, 10 outputs, or other sizes."""

    def __init__(
        self,
        hardware: Hardware | None,
        *,
        rngs: nnx.Rngs,
        modifier: Any = None,
        inputs: int = 64,
        hidden: int = 128,
    ):
        make = functools.partial(AnalogLinear, hardware=hardware, rngs=rngs, modifier=modifier)
        self.hidden = make(inputs, hidden)
        self.output = make(hidden, 10)

    def __call__(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch 10"]:
        return self.output(jax.nn.relu(self.hidden(x)))


def array_hardware() -> Hardware:
    """The arrays of the study: wires, converters and noise stand at ideal and are swept."""
    return Hardware(
        rows=128,
        cols=128,
        device=Gaussian(program_std=0.0, read_std=0.0),
        wires=Wires(r_word=0.0, r_bit=0.0),
        dac=DAC(bits=math.inf),
        adc=ADC(bits=math.inf, full_scale=1e-3),
        mapping=mapping.Differential(g_min=G_MIN, g_max=G_MAX, per="tile"),
    )


def at_point(hw: Hardware, r: Any, bits: Any, std: Any) -> Hardware:
    """``hw`` with wires of r ohm, converters of ``bits`` and programming noise ``std`` (relative)."""
    return hw.replace(
        wires=hw.wires.replace(r_word=r, r_bit=r),
        dac=hw.dac.replace(bits=bits),
        adc=hw.adc.replace(bits=bits),
        device=hw.device.replace(program_std=std * (G_MAX - G_MIN)),
    )


def on_arrays(digital: Network, r: float, bits: float = math.inf, std: float = 0.0) -> Network:
    """The parameters of ``digital`` in a network with arrays at one point of the sweep."""
    model = Network(array_hardware(), rngs=nnx.Rngs(0))
    nnx.update(model, nnx.state(digital, nnx.Param))
    point = jnp.float32(r), jnp.float32(bits), jnp.float32(std)
    set_hardware(model, lambda hw: at_point(hw, *point))
    return model


@functools.partial(jax.jit, static_argnums=(0, 1))
def _epoch(graphdef, optimizer, params, opt_state, rest, data: Data, key, input_noise):
    """One epoch in one compiled call; the hardware is in ``rest``, so its numbers never recompile it."""
    order, jitter = jax.random.split(key)
    batches = len(data.x_train) // 64
    order = jax.random.permutation(order, len(data.x_train))[: batches * 64].reshape(batches, 64)

    def step(carry, batch):
        params, opt_state, rest = carry
        index, key = batch
        x = data.x_train[index]
        x = x + input_noise * jax.random.normal(key, x.shape, x.dtype)
        labels = optax.smooth_labels(jax.nn.one_hot(data.y_train[index], 10), 0.1)

        def loss(params):
            model = nnx.merge(graphdef, params, rest, copy=True)
            value = optax.softmax_cross_entropy(model(x), labels).mean()
            return value, nnx.split(model, nnx.Param, ...)[2]

        (value, rest), grads = jax.value_and_grad(loss, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state, rest), value

    carry, losses = jax.lax.scan(step, (params, opt_state, rest), (order, jax.random.split(jitter, batches)))
    return *carry, losses.mean()


class Recipe(NamedTuple):
    """Peak learning rate and weight decay of AdamW."""

    rate: float
    decay: float


# Chosen on training images alone: by five-fold cross-validation, and on a held-out fifth at 50 ohm.
DIGITAL, THROUGH_WIRES = Recipe(5e-3, 0.3), Recipe(2e-2, 0.1)


def train(model: Network, data: Data, epochs: int, recipe: Recipe, key: Key, tick: Callable[[], None]) -> Network:
    """Trains with AdamW, cosine decay, smoothed labels (0.1) and a little input noise (0.1)."""
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    optimizer = _optimizer(recipe, epochs * (len(data.x_train) // 64))
    opt_state = optimizer.init(params)
    for epoch in range(epochs):
        key_epoch = jax.random.fold_in(key, epoch)
        params, opt_state, rest, loss = _epoch(graphdef, optimizer, params, opt_state, rest, data, key_epoch, 0.1)
        loss.block_until_ready()
        tick()
    return nnx.merge(graphdef, params, rest)


def _kernels(params):
    """Weight decay is for kernels, not for biases, scales and ranges."""
    return jax.tree.map(lambda p: p.ndim == 2, params)


@functools.cache
def _optimizer(recipe: Recipe, steps: int) -> optax.GradientTransformation:
    return optax.adamw(optax.cosine_decay_schedule(recipe.rate, steps), weight_decay=recipe.decay, mask=_kernels)


@functools.partial(jax.jit, static_argnums=(0,))
def chip_accuracy(graphdef, state, r, bits, std, keys, x, y) -> Float[Array, "settings chips"]:
    """Test accuracy of every chip at every setting: two vmaps, one compiled call for any numbers.

    Args:
      graphdef, state: the network.
      r: ohm, scalar.
      bits, std: [settings], converter resolution and relative programming noise.
      keys: [chips].
      x, y: test images and labels.
    """

    def chip(bits, std, key):
        model = nnx.merge(graphdef, state, copy=True)
        set_hardware(model, lambda hw: at_point(hw, r, bits, std))
        program(model, key=key)
        return (model(x).argmax(-1) == y).mean()

    return jax.vmap(jax.vmap(chip, in_axes=(None, None, 0)), in_axes=(0, 0, None))(bits, std, keys)


def evaluate(model: Network, settings: Settings, r: float, data: Data) -> np.ndarray:
    """Accuracies [bits, program_std, chips] of one network at one wire resistance."""
    bits, std = (
        jnp.asarray(a.ravel(), jnp.float32) for a in np.meshgrid(settings.bits, settings.program_std, indexing="ij")
    )
    keys = jax.random.split(jax.random.key(settings.seed + 1000), settings.chips)
    graphdef, state = nnx.split(model)
    found = chip_accuracy(graphdef, state, jnp.float32(r), bits, std, keys, data.x_test, data.y_test)
    return np.asarray(found).reshape(len(settings.bits), len(settings.program_std), settings.chips)


METHODS = {
    "as is": "digital weights on the arrays",
    "column gain": "the same, a gain per column fitted on the array with 512 training images",
    "weight noise": "trained with Gaussian weight noise (5 % of the largest), no wires",
    "through wires": "from digital weights and fitted gains, weights and gains trained on through the exact wires, 8-bit converters and 1 % noise",
}


class Digital(NamedTuple):
    """The two networks trained without arrays."""

    plain: Network
    noisy: Network
    accuracy: float


def train_digital(settings: Settings, data: Data, tick: Callable[[str], None]) -> Digital:
    """Trains the digital network and the one with Gaussian weight noise from the same initial weights."""
    key = jax.random.key(settings.seed)
    rngs = lambda: nnx.Rngs(settings.seed)
    plain = train(Network(None, rngs=rngs()), data, settings.digital_epochs, DIGITAL, key, lambda: tick("digital"))
    noisy = Network(None, rngs=rngs(), modifier=noise.Additive(std=0.05))
    noisy = train(noisy, data, settings.digital_epochs, DIGITAL, key, lambda: tick("weight noise"))
    right = plain(data.x_test).argmax(-1) == data.y_test
    return Digital(plain, noisy, float(right.mean()))


def compare(
    settings: Settings, data: Data, digital: Digital, r: float, tick: Callable[[str], None]
) -> dict[str, np.ndarray]:
    """Accuracies [bits, program_std, chips] of the four networks at one wire resistance.

    Every network's converter ranges are calibrated on training images at this resistance.
    """
    images = data.x_train[:512]
    found: dict[str, np.ndarray] = {}

    def measure(name: str, model: Network) -> None:
        calibrate(model, [images, images])
        found[name] = evaluate(model, settings, r, data)
        tick(f"{r:g} ohm")

    model = on_arrays(digital.plain, r)
    measure("as is", model)
    fit_output_scale(model, images)
    measure("column gain", model)
    measure("weight noise", on_arrays(digital.noisy, r))
    set_hardware(model, lambda hw: at_point(hw, *map(jnp.float32, (r, 8.0, 0.01))))
    key = jax.random.fold_in(jax.random.key(settings.seed), 1)
    model = train(model, data, settings.wire_epochs, THROUGH_WIRES, key, lambda: tick(f"{r:g} ohm"))
    measure("through wires", model)
    return found


def work(settings: Settings) -> tuple[int, int]:
    """How many ticks :func:`train_digital` and each :func:`compare` make."""
    return 2 * settings.digital_epochs, len(METHODS) + settings.wire_epochs


def drop_map(digital: Digital, r: float) -> tuple[np.ndarray, np.ndarray]:
    """One array of the hidden layer with all rows at the read voltage, through wires of r ohm.

    Returns:
      ``(lost, g)``, each [64, 128]: share of the read voltage that the wires take from each cell, and
      the conductances in S.
    """
    model = on_arrays(digital.plain, r)
    tile = model.hidden.program(key=jax.random.key(0))
    g = tile.conductance(key=jax.random.key(0))[0, 0, 0]
    v = tile.hardware.v_read
    sol = solve(g, tile.hardware.wires, left=v, throw=True)
    return np.asarray(1.0 - (sol.v_word - sol.v_bit) / v), np.asarray(g)
