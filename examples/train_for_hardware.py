"""Digits on noisy PCM, with and without hardware-aware training: ``python examples/train_for_hardware.py [folder]``.

The same network is trained twice, as a digital one and with the programming error of its cells, clipped kernels and the
digital network as its teacher; both are put on twenty chips with four times the noise of PCM.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import optax
from flax import nnx

import xbar_jax as xb
from xbar_jax.nn import checkpoint, noise, recipes
from xbar_jax.study import digits

HARDWARE = xb.Hardware(
    rows=512,
    cols=512,
    device=xb.devices.PCM(program_scale=4.0, read_scale=4.0),
    dac=xb.DAC(bits=8),
    adc=xb.ADC(bits=8),
    mapping=xb.mapping.Differential(g_min=0.0, g_max=25e-6),
    compensation="global",
)


def train(model, tx, data, epochs, teacher=None):
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, x, y):
        def loss(model):
            logits = model(x)
            if teacher is None:
                return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
            return recipes.distillation_loss(logits, teacher(x), y, temperature=2.0, alpha=0.5)

        optimizer.update(model, nnx.grad(loss)(model))

    rng = np.random.default_rng(0)
    for _ in range(epochs):
        for index in rng.permutation(len(data.x_train))[:1408].reshape(-1, 64):
            step(model, optimizer, data.x_train[index], data.y_train[index])
    return model


def on_chips(model, data, keys):
    """Accuracy of every chip an hour after programming."""
    xb.nn.set_hardware(model, HARDWARE)
    xb.nn.calibrate(model, [data.x_train[:512]] * 2)
    graphdef, state = nnx.split(model)

    @jax.jit
    @jax.vmap
    def chip(key):
        model = nnx.merge(graphdef, state, copy=True)
        xb.nn.program(model, key=key)
        xb.nn.drift(model, 3600.0, key=jax.random.fold_in(key, 1))
        return (model(data.x_test).argmax(-1) == data.y_test).mean()

    return np.asarray(chip(keys))


def main(folder: Path, epochs: int = 40, chips: int = 20) -> dict[str, np.ndarray]:
    data, keys = digits.load(0), jax.random.split(jax.random.key(1), chips)
    modifier = noise.Compose(parts=(noise.Programming(scale=4.0), noise.DropConnect(p=0.01)))
    plain = train(digits.Network(None, rngs=nnx.Rngs(0)), optax.adamw(3e-3), data, epochs)
    aware = digits.Network(None, rngs=nnx.Rngs(0), modifier=modifier)
    tx = optax.chain(optax.adamw(3e-3), recipes.clip_kernels(aware, sigmas=2.5))
    aware = train(aware, tx, data, epochs, teacher=nnx.clone(plain))
    checkpoint.save(folder, epochs * 22, model=aware)
    digital = float((plain(data.x_test).argmax(-1) == data.y_test).mean())
    found = {"plain": on_chips(plain, data, keys), "hardware-aware": on_chips(aware, data, keys)}
    print(f"digital: {100 * digital:.1f} %")
    for name, a in found.items():
        print(f"{name}, on {chips} chips: {100 * a.mean():.1f} ± {100 * a.std():.1f} %")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/train_for_hardware"), help="for the weights")
    main(parser.parse_args().folder)
