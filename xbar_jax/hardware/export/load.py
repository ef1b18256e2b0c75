"""Tiles from an export: the same ones, or the same weights on other hardware."""

from __future__ import annotations

import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.hardware.description import Hardware
from xbar_jax.hardware.export import files, schema
from xbar_jax.hardware.export.save import stands_for
from xbar_jax.hardware.tile import Tile, program
from xbar_jax.typing import Array, ArrayLike, Key


def load(
    path: str | Path, *, hardware: Hardware | None = None, key: Key[Array, ""] | None = None
) -> Tile | dict[str, Tile]:
    """The tiles of an export.

    Without ``hardware`` they are those that were saved, bit for bit: cells, converters, drift, description. With it the
    weights that the targets stand for are programmed anew on that hardware; input ranges, digital scales and biases are
    kept, drift, its compensation and the full scales of converters begin anew. Which of both is never guessed.

    Args:
      path: the folder.
      hardware: other hardware to program, or None.
      key: of programming, where ``hardware`` draws; each layer's own is derived from its name.

    Returns:
      A Tile if one was saved without a name, else tiles by name, in the order in which they were saved. They have the
      digital scales and biases that were given to :func:`save`.

    Raises:
      ValueError: a file is missing, broken, of another version, or its dtype needs 64-bit mode; a layer has an input range
        for each row of arrays and ``hardware`` has another number of them.

    Example:
      >>> import tempfile, jax.numpy as jnp, xbar_jax as xb
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     xb.hardware.export.save({"fc": xb.program(jnp.ones((3, 2)), xb.Hardware())}, folder)
      ...     tiles = xb.hardware.export.load(folder, hardware=xb.Hardware(adc=xb.ADC(bits=6)))
      >>> float(tiles["fc"].hardware.adc.bits)
      6.0
    """
    if hardware is not None and not isinstance(hardware, Hardware):
        raise TypeError(f"export.load: hardware must be an xb.Hardware or None, got {type(hardware).__name__}")
    stored = files.read(path)
    tiles = {name: tile_of(stored, name, str(Path(path) / files.JSON)) for name in stored.body["order"]}
    if hardware is not None:
        tiles = {name: _other(stored, name, tile, hardware, key) for name, tile in tiles.items()}
    return next(iter(tiles.values())) if stored.body["single"] else tiles


def tile_of(stored: files.Stored, name: str, file: str) -> Tile:
    """One saved tile."""
    return schema.decode(stored.body["layers"][name]["tile"], stored.arrays, file)


def _other(stored: files.Stored, name: str, tile: Tile, hw: Hardware, key) -> Tile:
    content = {n: stored.arrays[f"{name}/{n}"] for n in ("g_plus", "g_minus", "scale", "lines")}
    w = stands_for(content, tile.tiling.inputs, tile.outputs)
    bias, scale = tile.bias, tile.output_scale
    r = np.asarray(tile.input_range)
    if r.ndim and (r == r[0]).all():
        r = r[0]
    if tile.hardware.bias_rows:
        held = np.asarray(w[-1] * r.reshape(-1)[-1], r.dtype) * (1 if scale is None else np.asarray(scale))
        bias, w = jnp.asarray(held + (0 if bias is None else np.asarray(bias)), tile.scale.dtype), w[:-1]
    down = -(-(w.shape[0] + hw.bias_rows) // hw.rows)
    if r.ndim and r.shape != (down,):
        raise ValueError(
            f"export.load: layer {name!r} has {r.size} input ranges, one for each row of arrays; "
            f"hardware.rows must make as many, got {down}"
        )
    own = None if key is None else jax.random.fold_in(key, zlib.crc32(name.encode()))
    given: dict[str, ArrayLike | None] = {"input_range": jnp.asarray(r), "bias": bias}
    if scale is not None:
        # Arrays that hold a bias would scale it.
        given.pop("bias")
    other = program(jnp.asarray(w, tile.scale.dtype), hw, key=own, **given)
    return other if scale is None else other.replace(output_scale=scale, bias=bias)
