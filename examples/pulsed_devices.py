"""Pulsed devices: their up/down curves, and a classifier trained by pulses alone.

``python examples/pulsed_devices.py [folder]`` writes pulse_response.png and prints the accuracy of a digits classifier
whose weights live on each device and only ever change by ``xb.pulsed_update``.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.progress import track
from sklearn.datasets import load_digits

import xbar_jax as xb
from xbar_jax import plot

DEVICES = {
    "ConstantStep": xb.devices.ConstantStep(),
    "SoftBounds": xb.devices.SoftBounds(),
    "ExpStep": xb.devices.ExpStep(),
    "PowStep": xb.devices.PowStep(gamma_up=2.0, gamma_down=2.0),
    **{name: xb.devices.presets[name] for name in ("Capacitor", "EcRam", "ReRamES", "ReRamSB", "PCM", "Idealized")},
}


def curve(dev, key, n: int = 1000):
    """Up and down from the lower bound, six cells."""
    state = dev.init((1, 6), key=key)
    if not isinstance(dev, xb.devices.OneSided):
        state = dev.set_weight(state, -jnp.inf)
    return xb.devices.pulse_response(dev, state, n, n, key=key)


def train(dev, x, labels, key, epochs: int = 10, batch: int = 10, lr: float = 0.01) -> float:
    """Softmax regression on one array: forward with the weights that are read, backward by pulses. Accuracy at the end."""

    def step(state, xs):
        x, y, key = xs
        error = jax.nn.softmax(x @ dev.weight(state)) - jax.nn.one_hot(y, 10)
        return xb.pulsed_update(dev, state, x, error, lr=lr, key=key), None

    @jax.jit
    def epoch(state, key):
        order = jax.random.permutation(key, len(x) // batch * batch).reshape(-1, batch)
        return jax.lax.scan(step, state, (x[order], labels[order], jax.random.split(key, len(order))))[0]

    state = dev.init((x.shape[1], 10), key=key)
    for e in range(epochs):
        state = epoch(state, jax.random.fold_in(key, e))
    return float(jnp.mean(jnp.argmax(x @ dev.weight(state), axis=1) == labels))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/pulsed"), help="where the picture goes")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    key = jax.random.key(0)
    curves = {name: curve(dev, key) for name, dev in track(DEVICES.items(), "curves")}
    plot.save(plot.pulse_response(curves, 1000), folder / "pulse_response.png")

    digits = load_digits()
    x, labels = jnp.asarray(digits.data / 16, jnp.float32), jnp.asarray(digits.target)
    accuracy = {name: train(dev, x, labels, key) for name, dev in track(DEVICES.items(), "training")}
    for name, a in accuracy.items():
        print(f"{name:14} {100 * a:.1f} % of the training images after 10 epochs of pulses")
    print(f"picture: {folder / 'pulse_response.png'}")
