"""Vectors that tell whether a load, or a chip, does what the export says."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.hardware.adc import ADC
from xbar_jax.hardware.tile import Tile
from xbar_jax.tree import canonical
from xbar_jax.typing import Array, Float


def nominal(tile: Tile, g: np.ndarray) -> Tile:
    """The tile with ohmic cells that hold their targets ``g``, ideal wires, and converters without errors."""
    hw = tile.hardware
    dac, adc = hw.dac, hw.adc
    if dac is not None:
        plain = {"noise": None, "rounding": "nearest"}
        dac = dac.replace(**{n: v for n, v in plain.items() if n in dac.__dataclass_fields__})
    if adc is not None:
        adc = ADC(bits=adc.bits, full_scale=adc.full_scale)
    ideal = {"device": None, "cell": None, "wires": None, "compensation": None}
    return tile.replace(
        state=jnp.asarray(g),
        t=jnp.zeros_like(tile.t),
        held=None,
        converters=None,
        baseline=None,
        gain=None,
        hardware=canonical(hw.replace(dac=dac, adc=adc, **ideal)),
    )


def half_steps(bits: Any) -> float | None:
    """Largest code of a converter, a step being full scale / that; None is ideal."""
    if bits is None or not np.isfinite(float(bits)) or float(bits) == 0:
        return None
    number = float(np.exp2(np.float64(bits)))
    # A whole number of steps has no exact logarithm; see quantize.half.
    whole, eps = round(number), float(np.finfo(np.result_type(np.asarray(bits).dtype, np.float32)).eps)
    return (whole if abs(number - whole) <= 16 * eps * whole else number) / 2 - 1


def ranges(tile: Tile) -> np.ndarray:
    """Largest |x| of each row of arrays, [down]; what the tile makes of one that is not positive."""
    r = np.asarray(tile.input_range)
    return np.broadcast_to(np.maximum(r, np.finfo(r.dtype).eps), tile.tiling.grid[:1])


def input_ranges(tile: Tile) -> np.ndarray:
    """Largest |x| of each row of the matrix on the arrays, [inputs (+ bias)]."""
    return np.repeat(ranges(tile), tile.tiling.rows)[: tile.tiling.inputs]


def inputs(tile: Tile, vectors: int) -> Float[np.ndarray, "vectors inputs"]:
    """Zeros, the full range with both signs, one and a half times that, and uniform random ones."""
    r = input_ranges(tile)[: tile.inputs]
    unit = np.random.default_rng(0).uniform(-1, 1, (vectors, r.size))
    ends = np.where(np.arange(r.size) % 2, -1.0, 1.0)
    for k, special in enumerate((0 * ends, ends, 1.5 * ends)[:vectors]):
        unit[k] = special
    return np.asarray(unit * r, np.asarray(tile.scale).dtype)


def golden(tile: Tile, g: np.ndarray, vectors: int) -> dict[str, np.ndarray]:
    """Inputs, what the converters make of them, and outputs, for cells that hold their targets exactly.

    Args:
      tile: as programmed.
      g: [planes, down, across, rows, lines] S, its targets.
      vectors: how many.

    Returns:
      x [vectors, inputs]; dac_codes int32 [vectors, inputs (+ bias)]; volts [down, reads, vectors, rows] and weight
      [reads]; adc_codes int32 [outs, down, across, reads, vectors, cols]; y [vectors, outputs]. Codes are left out where
      a converter is ideal.
    """
    ideal = nominal(tile, g)
    hw = ideal.hardware
    codes = tuple(c is not None and half_steps(c.bits) is not None for c in (hw.dac, hw.adc))
    x = inputs(tile, vectors)
    found = _run(ideal, jnp.asarray(x), jnp.asarray(input_ranges(tile), x.dtype), codes)
    return {"x": x} | {name: np.asarray(value) for name, value in found.items()}


@functools.partial(jax.jit, static_argnames="codes")
def _run(ideal: Tile, x, r, codes: tuple[bool, bool]) -> dict[str, Array]:
    v, weight = ideal.voltages(x)
    i, _ = ideal.currents(x)
    found = {"volts": v, "weight": weight}
    if codes[0]:
        line = jnp.broadcast_to(r[-1:], (x.shape[0], ideal.hardware.bias_rows))
        full = jnp.concatenate([x, line], axis=1)
        found["dac_codes"] = ideal.hardware.dac.codes(full, jnp.broadcast_to(r[None], full.shape))
    if codes[1]:
        full = jnp.broadcast_to(ideal.full_scale, i.shape[:3])[..., None, None, None]
        found["adc_codes"] = ideal.hardware.adc.codes(i, full)
    return found | {"y": ideal.digitize(i, weight)}


def read_out(tile: Tile, x: np.ndarray, seed: int | None) -> np.ndarray:
    """Outputs of the tile as it is, with the noise of ``seed``."""
    key = None if seed is None else jax.random.key(seed)
    return np.asarray(_read_out(tile, jnp.asarray(x), key))


@jax.jit
def _read_out(tile: Tile, x, key):
    return tile(x, key=key)
