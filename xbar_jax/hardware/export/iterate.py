"""Every array of a set of tiles, whatever holds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.hardware.tile import Tile
from xbar_jax.tree import is_traced
from xbar_jax.typing import Float, Int

ONE = "tile"  # name of a tile that was given without one


class ArrayTargets(NamedTuple):
    """What one array is programmed to.

    Attributes:
      name: of the layer.
      place: which array of the layer, along the inputs and along the outputs.
      row, col: of the weight matrix, where the array's part begins.
      inputs: [rows], which input drives each line, from the far end to the one next to the converters. The number of
        inputs itself stands for the line of a bias held by the arrays.
      g_plus, g_minus: [rows, cols] S, targets: every weight is proportional to their difference.
      circuits: [planes, rows, lines] S, what each circuit is programmed to. The first two are ``g_plus`` and ``g_minus``
        for a differential pair; other mappings have slices, copies or reference lines.
      scale: [cols] 1/S, weight per siemens of the difference; 0 for a column of zeros.
    """

    name: str
    place: tuple[int, int]
    row: int
    col: int
    inputs: Int[np.ndarray, " rows"]
    g_plus: Float[np.ndarray, "rows cols"]
    g_minus: Float[np.ndarray, "rows cols"]
    circuits: Float[np.ndarray, "planes rows lines"]
    scale: Float[np.ndarray, " cols"]


class Wiring(NamedTuple):
    """How a mapping joins the currents of circuits, taken from what its functions return.

        out_oj = sum_p analog_opj i_pj + sum_pe extra_opej i_p,cols+e,    i_j = sum_o digital_oj out_o,taken_oj

    Attributes:
      analog: [outs, planes, cols].
      extra: [outs, planes, extra, cols].
      digital: [outs, cols].
      taken: [outs, cols], whose conversion column j uses: its own, but for a reference that is converted once.
    """

    analog: Float[np.ndarray, "outs planes cols"]
    extra: Float[np.ndarray, "outs planes extra cols"]
    digital: Float[np.ndarray, "outs cols"]
    taken: Int[np.ndarray, "outs cols"]


def arrays(tiles: Tile | Mapping[str, Tile]) -> Iterator[ArrayTargets]:
    """Every array of one tile or of many, with what it is programmed to.

        w_ij = scale_j (G+_ij - G-_ij)

    Args:
      tiles: a Tile, or tiles by name; for a model ``xb.nn.tiles(model)``.

    Yields:
      :class:`ArrayTargets`, of numpy arrays without unused cells.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> tile = xb.program(jnp.ones((3, 5)), xb.Hardware(rows=2, cols=4))
      >>> [(a.place, a.row, a.col, a.g_plus.shape) for a in xb.hardware.export.arrays(tile)]
      [((0, 0), 0, 0, (2, 4)), ((0, 1), 0, 4, (2, 1)), ((1, 0), 2, 0, (1, 4)), ((1, 1), 2, 4, (1, 1))]
    """
    for name, tile in named("arrays", tiles).items():
        g, wired = targets(name, tile), wiring(tile)
        plus, minus = signed(g, wired)
        used = np.asarray(tile.tiling.used())
        first, order = _first_rows(tile), row_order(tile)
        scale = np.where(np.asarray(tile.live), np.asarray(tile.scale), 0)
        for a, b in np.ndindex(*tile.tiling.grid):
            rows, cols = used[a, b].any(1), used[a, b].any(0)
            lines = np.concatenate([cols, np.ones(g.shape[-1] - cols.size, bool)])
            cells = np.ix_(rows, cols)
            yield ArrayTargets(
                name=name,
                place=(a, b),
                row=a * tile.tiling.rows,
                col=b * tile.tiling.cols,
                inputs=(first[a] + order[a, b])[rows],
                g_plus=plus[a, b][cells],
                g_minus=minus[a, b][cells],
                circuits=g[:, a, b][:, rows][:, :, lines],
                scale=scale[a, b][cols],
            )


def alone(tiles: Any) -> bool:
    """One tile without a name: given by itself, or as that of a bare layer, whose path is empty."""
    return isinstance(tiles, Tile) or (isinstance(tiles, Mapping) and list(tiles) == [""])


def named(function: str, tiles: Any) -> dict[str, Tile]:
    """Tiles by name, checked: concrete, and one chip each."""
    found = {ONE: tiles if isinstance(tiles, Tile) else tiles[""]} if alone(tiles) else tiles
    if not isinstance(found, Mapping) or not found:
        raise TypeError(
            f"export.{function}: tiles must be a Tile or tiles by name (xb.nn.tiles(model)), got {type(tiles).__name__}"
        )
    for name, tile in found.items():
        if not isinstance(name, str) or not name or "\\" in name or ".." in name.split("/"):
            raise ValueError(f"export.{function}: a name of a tile must be text that can name an array, got {name!r}")
        if not isinstance(tile, Tile):
            raise TypeError(f"export.{function}: tiles[{name!r}] must be a Tile, got {type(tile).__name__}")
        if is_traced(tile):
            raise TypeError(
                f"export.{function}: tiles[{name!r}] must be concrete, got a traced one; call it outside jit"
            )
        if tile.scale.dtype not in (jnp.float32, jnp.float64):
            raise TypeError(
                f"export.{function}: tiles[{name!r}] must be of float32 or float64, got {tile.scale.dtype.name}"
            )
        if tile.scale.ndim != 3:
            raise ValueError(
                f"export.{function}: tiles[{name!r}] must be one chip, got a batch of them; "
                "take one with jax.tree.map(lambda x: x[k], tile)"
            )
    return dict(found)


def targets(name: str, tile: Tile) -> Float[np.ndarray, "planes down across rows lines"]:
    """What the cells were asked for, S; unused cells are 0."""
    g = tile.state if tile.hardware.device is None else _target(tile.state)
    if g is None:
        raise TypeError(
            f"export: tiles[{name!r}]: the state of {type(tile.hardware.device).__name__} must hold target, [rows, cols] S"
        )
    used = np.asarray(tile.tiling.used())
    lines = np.broadcast_to(used.any(-1, keepdims=True), (*used.shape[:-1], g.shape[-1] - used.shape[-1]))
    return np.where(np.concatenate([used, lines], -1), np.asarray(g), 0)


def _target(state: Any) -> Any:
    if getattr(state, "target", None) is not None:
        return state.target
    fields = dataclasses.fields(state) if dataclasses.is_dataclass(state) and not isinstance(state, type) else ()
    return next((t for t in (_target(getattr(state, f.name)) for f in fields) if t is not None), None)


def wiring(tile: Tile) -> Wiring:
    """The linear maps of a tile's mapping as numbers.

    Raises:
      ValueError: the mapping mixes columns or is not linear.
    """
    mapping, cols, dtype = tile.hardware.mapping, tile.tiling.cols, tile.scale.dtype
    planes, extra = jax.tree.leaves(tile.state)[0].shape[0], mapping.extra_cols
    lines = cols + extra
    basis = np.zeros((planes, 1 + extra, planes, lines), dtype)
    for p in range(planes):
        basis[p, 0, p, :cols] = 1
        basis[p, 1 + np.arange(extra), p, cols + np.arange(extra)] = 1
    found = _each(mapping.analog, basis.reshape(-1, planes, lines))
    outs = found.shape[1]
    found = np.moveaxis(found.reshape(planes, 1 + extra, outs, cols), 2, 0)
    one = np.eye(outs * cols, dtype=dtype).reshape(-1, outs, cols)
    matrix = _each(mapping.digital, one).reshape(outs, cols, cols)
    taken = np.abs(matrix).argmax(1)
    digital = np.take_along_axis(matrix, taken[:, None], 1)[:, 0]
    wired = Wiring(found[:, :, 0], found[:, :, 1:], digital, np.where(digital == 0, np.arange(cols), taken))
    rng = np.random.default_rng(0)
    i, o = rng.normal(size=(1, planes, lines)).astype(dtype), rng.normal(size=(1, outs, cols)).astype(dtype)
    other = np.take_along_axis(wired.analog, wired.taken[:, None], 2) * (wired.taken != np.arange(cols))[:, None]
    near = lambda a, b: np.allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())
    linear = near(combine(i[0], wired), _each(mapping.analog, i)[0]) and near(
        recombine(o[0], wired), _each(mapping.digital, o)[0]
    )
    if not linear or other.any():
        raise ValueError(f"export: mapping {type(mapping).__name__} must be linear, and weights apart column by column")
    return wired


def _each(f: Callable, x: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(f)(jnp.asarray(x)))


def combine(i: np.ndarray, wired: Wiring) -> np.ndarray:
    """What reaches the converters, [outs, ..., cols], for currents of circuits [planes, ..., lines]."""
    cols = wired.analog.shape[-1]
    out = np.einsum("opc,p...c->o...c", wired.analog, i[..., :cols])
    if wired.extra.shape[2]:
        out = out + np.einsum("opec,p...e->o...c", wired.extra, i[..., cols:])
    return out


def recombine(out: np.ndarray, wired: Wiring) -> np.ndarray:
    """Current of every weight, [..., cols], for conversions [outs, ..., cols]."""
    taken = np.stack([x[..., k] for x, k in zip(out, wired.taken, strict=True)])
    return np.asarray(np.einsum("oc,o...c->...c", wired.digital, taken))


def signed(g: np.ndarray, wired: Wiring) -> tuple[np.ndarray, np.ndarray]:
    """G+ and G-, [down, across, rows, cols] S: the circuits that add to a weight, and those that subtract."""
    positive = lambda x: np.maximum(x, 0).astype(g.dtype)
    found = []
    for sign in (1, -1):
        line, extra = recombine(wired.analog, wired), recombine(wired.extra, wired)
        one = wired._replace(analog=positive(sign * line)[None], extra=positive(sign * extra)[None])
        found.append(combine(g, one)[0])
    return found[0], found[1]


def weights(
    difference: Float[np.ndarray, "down across rows cols"],
    lines: Int[np.ndarray, "down across rows"],
    inputs: int,
    outputs: int,
) -> Float[np.ndarray, "inputs outputs"]:
    """One matrix of the weights on arrays, the row of a bias included."""
    back = np.zeros_like(difference)
    np.put_along_axis(back, lines[..., None].astype(np.int64), difference, axis=2)
    down, across, rows, cols = back.shape
    full = back.transpose(0, 2, 1, 3).reshape(down * rows, across * cols)
    head, spare = (down - 1) * rows, down * rows - inputs
    return np.concatenate([full[:head], full[head + spare :]])[:, :outputs]


def row_order(tile: Tile) -> np.ndarray:
    """[down, across, rows], which of an array's inputs drives each line."""
    shape = (*tile.tiling.grid, tile.tiling.rows)
    return np.broadcast_to(np.arange(shape[-1]), shape) if tile.order is None else np.asarray(tile.order)


def _first_rows(tile: Tile) -> np.ndarray:
    return np.asarray(tile.tiling.offsets()[0])
