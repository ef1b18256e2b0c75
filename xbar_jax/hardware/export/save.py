"""Programmed layers as one folder that a lab, or another process, can load."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from xbar_jax.hardware.export import files, schema
from xbar_jax.hardware.export.golden import golden, half_steps, input_ranges, ranges, read_out
from xbar_jax.hardware.export.iterate import ONE, Wiring, alone, named, row_order, signed, targets, weights, wiring
from xbar_jax.hardware.tile import Tile
from xbar_jax.typing import Array, ArrayLike, Key

# Of the products that a load must repeat, where noise is drawn.
READ_SEED = 0


def save(
    tiles: Tile | Mapping[str, Tile],
    path: str | Path,
    *,
    output_scale: Mapping[str, ArrayLike] | ArrayLike | None = None,
    bias: Mapping[str, ArrayLike] | ArrayLike | None = None,
    matrix: Mapping[str, ArrayLike] | ArrayLike | None = None,
    seed: int | Key[Array, ""] | None = None,
    vectors: int = 16,
) -> None:
    """Writes programmed tiles as ``export.json`` and ``arrays.npz``.

        y_j = gamma_learn_j gamma_map_j r / (S v_read) i_j + b_j,    i_j = sum_i (G+_ij - G-_ij) v_read x_i / r

    The folder holds every leaf of the tiles, so that :func:`load` gives them back bit for bit, and in plain numbers what
    a lab needs: targets, ranges, steps, scales, positions, golden vectors, checksums. docs/export.md describes it.
    Both files are complete before they take their names.

    Args:
      tiles: what ``xb.program`` returned, or several by name (``xb.nn.tiles(model)``), of float32 or float64; that of a
        bare layer, whose name is empty, is saved as one without a name.
      path: the folder; made if absent.
      output_scale: by name (or, of one tile, by itself, as the next two), [outputs], gamma_learn, by which the product is
        multiplied digitally, on top of the tile's own. The tile that is loaded has it, and the bias.
      bias: by name, [outputs], added digitally after that, on top of the tile's own.
      matrix: by name, [inputs, outputs], the weights that were programmed; :func:`verify` compares with them. Default:
        those that the targets stand for.
      seed: of programming, a number or a key; kept as a note.
      vectors: golden vectors of each tile, at least 1.

    Raises:
      TypeError: a tile is traced or of half precision, or holds something that a file cannot, such as a function.
      ValueError: a name or a shape does not fit, or the folder cannot be made.

    Example:
      >>> import tempfile, jax.numpy as jnp, xbar_jax as xb
      >>> tile = xb.program(jnp.ones((3, 2)), xb.Hardware(dac=xb.DAC(bits=8), adc=xb.ADC(bits=8)))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     xb.hardware.export.save(tile, folder)
      ...     same = xb.hardware.export.load(folder)
      >>> bool((same(jnp.ones(3)) == tile(jnp.ones(3))).all())
      True
    """
    found = named("save", tiles)
    if not isinstance(vectors, (int, np.integer)) or vectors < 1:
        raise ValueError(f"export.save: vectors must be a whole number >= 1, got {vectors!r}")
    arguments = {"output_scale": output_scale, "bias": bias, "matrix": matrix}
    if alone(tiles):
        # One tile has one name, which need not be given.
        by_name = lambda v: {n or ONE: x for n, x in v.items()} if isinstance(v, Mapping) else {ONE: v}
        arguments = {k: None if v is None else by_name(v) for k, v in arguments.items()}
    given = _by_name(found, **arguments)
    arrays: dict[str, np.ndarray] = {}
    layers = {name: _layer(name, tile, given[name], int(vectors), arrays) for name, tile in found.items()}
    body = {
        "schema": schema.SCHEMA,
        "version": schema.VERSION,
        "package": version("xbar_jax"),
        "single": alone(tiles),
        "seed": schema.encode(seed, "seed", arrays),
        "order": list(found),
        "layers": layers,
    }
    files.write(Path(path), body, arrays)


def _by_name(tiles: Mapping[str, Tile], **given: Any) -> dict[str, dict[str, Any]]:
    """The arguments of each tile, checked; None where there is none."""
    for argument, values in given.items():
        odd = sorted(set(values or {}) - set(tiles))
        if odd:
            raise ValueError(f"export.save: {argument} must name tiles ({', '.join(tiles)}), got {odd[0]!r}")
    return {name: {argument: (values or {}).get(name) for argument, values in given.items()} for name in tiles}


def _layer(name: str, tile: Tile, given: Mapping[str, Any], vectors: int, arrays: dict[str, np.ndarray]) -> dict:
    """JSON of one layer; its arrays go into ``arrays``."""
    dtype = np.asarray(tile.scale).dtype
    shapes = {"output_scale": (tile.outputs,), "bias": (tile.outputs,), "matrix": (tile.inputs, tile.outputs)}
    for argument, value in given.items():
        if value is not None and np.shape(value) != shapes[argument]:
            raise ValueError(
                f"export.save: {argument}[{name!r}] must have shape {list(shapes[argument])}, got {list(np.shape(value))}"
            )
    tile = _with_digital(tile, given["output_scale"], given["bias"])
    tree = schema.encode(tile, f"{name}/tile", arrays)
    g, wired = targets(name, tile), wiring(tile)
    digital = (tile.output_scale, np.ones), (tile.bias, np.zeros)
    output_scale, bias = (fill(tile.outputs, dtype) if v is None else np.asarray(v) for v, fill in digital)
    content = {"gamma_learn": output_scale, "bias": bias}
    content |= _physics(tile, g, wired, output_scale)
    content["matrix"] = stands_for(content, tile.tiling.inputs, tile.outputs)
    if given["matrix"] is not None:
        content["matrix"][: tile.inputs] = np.asarray(given["matrix"], np.float64)
    content |= {f"golden.{n}": x for n, x in golden(tile, g, vectors).items()}
    content["golden.y_tile"] = read_out(tile, content["golden.x"], READ_SEED if tile.needs_key else None)
    arrays |= {f"{name}/{n}": x for n, x in content.items()}
    return {"tile": tree, **_summary(tile, content)}


def _with_digital(tile: Tile, output_scale: ArrayLike | None, bias: ArrayLike | None) -> Tile:
    """The tile with what its layer does digitally."""
    number = lambda x: jnp.asarray(np.asarray(x), tile.scale.dtype)
    if output_scale is not None:
        own = 1 if tile.output_scale is None else np.asarray(tile.output_scale)
        tile = tile.replace(output_scale=number(np.asarray(output_scale) * own))
    if bias is not None:
        tile = tile.replace(bias=number(np.asarray(bias) + (0 if tile.bias is None else np.asarray(tile.bias))))
    return tile


def _physics(tile: Tile, g: np.ndarray, wired: Wiring, output_scale: np.ndarray) -> dict[str, np.ndarray]:
    """Targets and scales of a layer by the names of the format."""
    hw, (down, across) = tile.hardware, tile.tiling.grid
    plus, minus = signed(g, wired)
    scale = np.where(np.asarray(tile.live), np.asarray(tile.scale, np.float64), 0)
    r = ranges(tile).astype(np.float64)
    padded = np.zeros(across * tile.tiling.cols)
    padded[: tile.outputs] = output_scale
    factor = scale * r[:, None, None] / float(hw.v_read) * padded.reshape(1, across, -1)
    content = {"g_plus": plus, "g_minus": minus, "targets": g, "scale": scale, "factor": factor, "input_range": r}
    window = _window(hw.mapping)
    if window is not None:
        content["gamma_map"] = scale * (window[1] - window[0])
    content |= {"wiring.analog": wired.analog, "wiring.extra": wired.extra, "wiring.digital": wired.digital}
    content["wiring.taken"] = wired.taken.astype(np.int32)
    content["lines"] = row_order(tile).astype(np.int32)
    content["adc_bound"] = np.broadcast_to(np.asarray(tile.full_scale, np.float64), (hw.mapping.outs, down, across))
    if tile.baseline is not None:
        content |= {"drift_baseline": np.asarray(tile.baseline), "drift_gain": np.asarray(tile.gain)}
    return content


def stands_for(content: Mapping[str, np.ndarray], inputs: int, outputs: int) -> np.ndarray:
    """The weights that targets and scales stand for, [inputs (+ bias), outputs], in float64."""
    difference = content["g_plus"].astype(np.float64) - content["g_minus"]
    return weights(content["scale"][:, :, None] * difference, content["lines"], inputs, outputs)


def _window(mapping: Any) -> tuple[float, float] | None:
    """Conductance window of a mapping, S, or of the one that it is made of."""
    if hasattr(mapping, "g_min") and hasattr(mapping, "g_max"):
        return float(mapping.g_min), float(mapping.g_max)
    inner = [getattr(mapping, n) for n in getattr(mapping, "__dataclass_fields__", ())]
    return next((w for w in map(_window, inner) if w is not None), None)


def _w_max(mapping: Any) -> float | None:
    """Largest weight of a mapping that clips others, or of the one that it is made of."""
    if hasattr(mapping, "per") and hasattr(mapping, "w_max"):
        return float(mapping.w_max) if mapping.per == "fixed" else None
    inner = [getattr(mapping, n) for n in getattr(mapping, "__dataclass_fields__", ())]
    return next((w for w in map(_w_max, inner) if w is not None), None)


def _summary(tile: Tile, content: Mapping[str, np.ndarray]) -> dict:
    """What a reader wants without opening arrays."""
    hw, tiling = tile.hardware, tile.tiling
    dac_codes = None if hw.dac is None else half_steps(hw.dac.bits)
    adc_codes = None if hw.adc is None else half_steps(hw.adc.bits)
    v_read, window = float(hw.v_read), _window(hw.mapping)
    dac = {
        "largest_code": dac_codes,
        "bound_V": v_read,
        "step_V": None if dac_codes is None else v_read / dac_codes,
        "mode": getattr(hw.dac, "mode", None),
        "phases": getattr(hw.dac, "phases", None),
        "slices": getattr(hw.dac, "slices", None),
    }
    bounds = content["adc_bound"]
    used = np.asarray(tiling.used())
    places = []
    for a, b in np.ndindex(*tiling.grid):
        rows, cols = int(used[a, b].any(1).sum()), int(used[a, b].any(0).sum())
        bound = bounds[:, a, b].tolist()
        adc = {"bound_A": bound, "step_A": None if adc_codes is None else [x / adc_codes for x in bound]}
        places.append(
            {
                "index": [a, b],
                "row": a * tiling.rows,
                "col": b * tiling.cols,
                "rows": rows,
                "cols": cols,
                "spare_rows": tiling.rows - rows,
                "spare_cols": tiling.cols - cols,
                "transposed": False,
                "input_range": float(content["input_range"][a]),
                "adc": adc,
            }
        )
    return {
        "inputs": tile.inputs,
        "outputs": tile.outputs,
        "bias_line": bool(hw.bias_rows),
        "g_min_S": None if window is None else window[0],
        "g_max_S": None if window is None else window[1],
        "S": None if window is None else window[1] - window[0],
        "weight_half_step": getattr(hw.mapping, "half_step", 0.0),
        "w_max": _w_max(hw.mapping),
        "v_read_V": v_read,
        "t_s": float(tile.t),
        "dac": dac,
        "adc_largest_code": adc_codes,
        "largest_input": float(input_ranges(tile).max()),
        "read_seed": READ_SEED if tile.needs_key else None,
        "grid": list(tiling.grid),
        "arrays": places,
    }
