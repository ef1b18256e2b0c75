"""Epochs of the demo's digits network through exact wires: ``python benchmarks/digits_step.py``.

64-128-10, batch 64, float32, 8-bit converters: through wires of 30 and 50 ohm a segment, on the same arrays with
wires=None, and without arrays. Prints one line of JSON: ms an epoch of each, and the steps of an epoch.
"""

from __future__ import annotations

import json

import jax
from flax import nnx
from timing import interleaved_ms

from xbar_jax.nn import calibrate, set_hardware
from xbar_jax.study import digits

OHM = (30.0, 50.0)
EPOCHS = 10  # of the learning-rate schedule


def on_wires(plain: digits.Network, data: digits.Data, r: float) -> digits.Network:
    model = digits.on_arrays(plain, r, bits=8.0)
    calibrate(model, [data.x_train[:512]])
    return model


def networks(data: digits.Data) -> dict[str, digits.Network]:
    plain = digits.Network(None, rngs=nnx.Rngs(0))
    found = {f"{r:g} ohm": on_wires(plain, data, r) for r in OHM}
    found["wires=None"] = on_wires(plain, data, OHM[0])
    set_hardware(found["wires=None"], lambda hardware: hardware.replace(wires=None))
    return found | {"no arrays": plain}


def epoch(model: digits.Network, data: digits.Data):
    """A call that trains one epoch, always from the same weights."""
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)
    optimizer = digits._optimizer(digits.THROUGH_WIRES, EPOCHS * steps(data))
    state, key = optimizer.init(params), jax.random.key(0)
    return lambda: jax.block_until_ready(digits._epoch(graphdef, optimizer, params, state, rest, data, key, 0.1))


def steps(data: digits.Data) -> int:
    return len(data.x_train) // 64


if __name__ == "__main__":
    data = digits.load(0)
    calls = {name: epoch(model, data) for name, model in networks(data).items()}
    print(json.dumps({"epoch_ms": interleaved_ms(calls, rounds=3), "steps": steps(data)}))
