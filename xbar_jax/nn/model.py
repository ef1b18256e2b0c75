"""Operations on every analog layer of a model."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from xbar_jax.hardware import Hardware, Tile
from xbar_jax.hardware.tile import full_scale
from xbar_jax.nn.analog import Analog
from xbar_jax.nn.product import per_output, wide
from xbar_jax.tree import canonical, is_traced
from xbar_jax.typing import Array, ArrayLike, Key, Scalar


def analog_layers(model: nnx.Module) -> Iterator[tuple[str, Analog]]:
    """Every analog layer of a model by its path, in the order of the paths."""
    found = {"/".join(map(str, path)): m for path, m in nnx.iter_modules(model) if isinstance(m, Analog)}
    yield from sorted(found.items())


def _layer_key(key: Key[Array, ""] | None, path: str) -> Key[Array, ""] | None:
    return None if key is None else jax.random.fold_in(key, zlib.crc32(path.encode()))


def program(model: nnx.Module, *, key: Key[Array, ""] | None = None) -> None:
    """Programs every analog layer that has hardware. A layer's key depends on its path only."""
    for path, layer in analog_layers(model):
        if layer.hardware is not None:
            layer.program(key=_layer_key(key, path) if layer.hardware.draws else None)


def drift(model: nnx.Module, t: Scalar, *, key: Key[Array, ""] | None = None) -> None:
    """Every programmed tile ``t`` seconds after programming, see :meth:`xbar_jax.Tile.drift`.

    Args:
      model: changed in place.
      t: s since programming.
      key: of the read-out, whose noise is then held; a layer's own depends on its path only. Without one every call
        draws its own noise.

    Raises:
      ValueError: no layer has been programmed.
    """
    programmed = [(path, layer) for path, layer in analog_layers(model) if layer.tile.get_value() is not None]
    if not programmed:
        raise ValueError("drift: model must be programmed first (xb.nn.program), got one without tiles")
    for path, layer in programmed:
        layer.drift(t, key=_layer_key(key, path))


def unprogram(model: nnx.Module) -> None:
    """Back to hardware-aware calls from the master weights."""
    for _, layer in analog_layers(model):
        layer.tile.set_value(None)


def tiles(model: nnx.Module) -> dict[str, Tile]:
    """The programmed tiles of a model by layer path; "path/0", "path/1", ... where a layer has several groups."""
    found = {}
    for path, layer in analog_layers(model):
        tile = layer.tile.get_value()
        if tile is not None and layer.layout.groups == 1:
            found[path] = tile
        elif tile is not None:
            names = _tile_names(path, layer)
            found |= {name: jax.tree.map(lambda a, g=g: a[g], tile) for g, name in enumerate(names)}
    return found


def attach(model: nnx.Module, tiles: dict[str, Tile]) -> None:
    """Puts tiles into the layers of the same paths; digital scales and biases that they have become those of the layers.

    Raises:
      ValueError: a path that the model does not have, a tile of another size, or some groups of a layer only.
    """
    layers = dict(analog_layers(model))
    owner = {name: path for path, layer in layers.items() for name in _tile_names(path, layer)}
    for name, tile in tiles.items():
        if name not in owner:
            raise ValueError(f"attach: tiles must name analog layers ({', '.join(owner)}), got {name!r}")
        layout = layers[owner[name]].layout
        if (tile.inputs, tile.outputs) != (layout.inputs, layout.outputs):
            raise ValueError(
                f"attach: tiles[{name!r}] must be {layout.inputs} x {layout.outputs}, got {(tile.inputs, tile.outputs)}"
            )
    for path in dict.fromkeys(owner[name] for name in tiles):
        layer, names = layers[path], _tile_names(path, layers[path])
        missing = [name for name in names if name not in tiles]
        if missing:
            raise ValueError(f"attach: tiles must hold every group of {path!r}, got none for {', '.join(missing)}")
        parts = [_taken(layer, g, tiles[name]) for g, name in enumerate(names)]
        layer.tile.set_value(parts[0] if len(parts) == 1 else jax.tree.map(lambda *a: jnp.stack(a), *parts))
        layer.input_range.set_value(parts[0].input_range)
        layer.hardware = nnx.data(parts[0].hardware)


def _taken(layer: Analog, group: int, tile: Tile) -> Tile:
    """A tile whose digital scale and bias, where it has any, have become those of the layer; a layer without keeps them there."""
    if tile.output_scale is not None and (layer.bias is not None or tile.bias is None):
        scale = layer.output_scale[...]
        own = tile.output_scale.astype(scale.dtype)
        layer.output_scale.set_value(own if scale.ndim == 1 else scale.at[group].set(own))
        tile = tile.replace(output_scale=None)
    elif tile.output_scale is not None:
        layer.output_scale.set_value(jnp.ones_like(layer.output_scale[...]))
    if tile.bias is not None and layer.bias is not None:
        bias = layer.bias[...]
        place = layer.layout.bias(jnp.arange(bias.size).reshape(bias.shape)).reshape(layer.layout.groups, -1)[group]
        layer.bias.set_value(bias.reshape(-1).at[place].set(tile.bias.astype(bias.dtype)).reshape(bias.shape))
        tile = tile.replace(bias=None)
    return tile


def _tile_names(path: str, layer: Analog) -> list[str]:
    groups = layer.layout.groups
    return [path] if groups == 1 else [f"{path}/{g}" if path else str(g) for g in range(groups)]


def set_hardware(model: nnx.Module, hardware: Hardware | Callable[[Hardware], Hardware] | None) -> None:
    """Gives every analog layer new hardware; inside jit and vmap its numbers may be traced.

    A programmed layer goes back to its master weights: what was programmed on other hardware would not
    show the change. A layer keeps its input range unless ``dac.input_range`` is a new number.

    Args:
      model: changed in place.
      hardware: a description, None for digital layers, or a function of the layer's present hardware.

    Example:
      >>> import xbar_jax as xb
      >>> from flax import nnx
      >>> model = xb.nn.AnalogLinear(4, 2, hardware=xb.Hardware(), rngs=nnx.Rngs(0))
      >>> xb.nn.set_hardware(model, lambda hw: hw.replace(v_read=0.1))
    """
    for _, layer in analog_layers(model):
        new = hardware(layer.hardware) if callable(hardware) else hardware  # type: ignore[arg-type]
        if new is not None:
            new.check("set_hardware")
        new = canonical(new)
        if _asks_for_range(layer.hardware, new):
            kept = layer.input_range[...]
            layer.input_range.set_value(jnp.asarray(new.dac.input_range, kept.dtype))
        layer.hardware = nnx.data(new)
        layer.tile.set_value(None)


def _asks_for_range(old: Hardware | None, new: Hardware | None) -> bool:
    """Whether ``new`` names an input range that ``old`` did not."""
    if new is None or new.dac is None:
        return False
    if old is None or old.dac is None:
        return True
    before, after = old.dac.input_range, new.dac.input_range
    if before is after:
        return False
    return is_traced(before, after) or bool(before != after)


class Ranges(NamedTuple):
    """Largest input and largest column current (A) that a layer has seen."""

    x: Array
    i: Array


def calibrate(model: nnx.Module, batches: Iterable[ArrayLike]) -> None:
    """Sets input ranges and ADC full scales to the largest values seen.

    A layer with a DAC gets the largest |x| as its input range, one with an ADC the largest column
    current as its full scale: of its programmed arrays if it has them, else of ideal cells. Ranges grow from batch to
    batch and from call to call; each layer sees what the layers before it produce with the ranges found so far. Called
    outside jit.

    Args:
      model: called as ``model(batch)``; changed in place.
      batches: inputs.
    """
    zero = lambda layer: jnp.zeros((), wide(layer.kernel[...]).dtype)
    seen = {path: Ranges(zero(layer), zero(layer)) for path, layer in analog_layers(model)}
    for x in batches:
        seen = _observed(model, _watch_ranges, x, seen)
        for path, layer in analog_layers(model):
            _set_ranges(layer, seen[path])


def _watch_ranges(layer: Analog, x: Array, before: Ranges) -> tuple[Array, Ranges]:
    seen = before._replace(x=jnp.maximum(jnp.abs(x).max().astype(before.x.dtype), before.x))
    if layer.hardware is None:
        return layer.exact(x), seen
    r, hw = _ranges(layer, seen)
    tile = layer.tile.get_value()
    if tile is None:
        quiet = hw.replace(device=None, adc=None)
        tile = layer.programmed(layer.matrix(), quiet, None)
    groups = layer.layout.groups
    tile = tile.replace(input_range=r if groups == 1 else jnp.broadcast_to(r, (groups, *r.shape)))

    def look(tile: Tile, x: Array) -> tuple[Array, Array]:
        i, weight = tile.currents(x, key=jax.random.key(0))
        return tile.digitize(i, weight, key=jax.random.key(0)), jnp.abs(i).max()

    flat = x.reshape(-1, *x.shape[-1 if groups == 1 else -2 :])
    y, i = look(tile, flat) if groups == 1 else jax.vmap(look, in_axes=(0, 1), out_axes=(1, 0))(tile, flat)
    y = y.reshape(*x.shape[:-1], y.shape[-1])
    return y, seen._replace(i=jnp.maximum(i.max().astype(seen.i.dtype), seen.i))


def _ranges(layer: Analog, seen: Ranges) -> tuple[Array, Hardware]:
    """Input range and hardware of a layer that has seen such values."""
    hw: Any = layer.hardware
    r = layer.input_range[...]
    if hw.dac is not None:
        r = jnp.where(seen.x > 0, seen.x.astype(r.dtype), r)
    if hw.adc is not None:
        full = jnp.where(seen.i > 0, seen.i, full_scale(hw, seen.i.dtype))
        hw = hw.replace(adc=hw.adc.replace(full_scale=full))
    return r, hw


def _set_ranges(layer: Analog, seen: Ranges) -> None:
    if layer.hardware is None:
        return
    r, hw = _ranges(layer, seen)
    layer.input_range.set_value(r)
    layer.hardware = nnx.data(hw)
    tile = layer.tile.get_value()
    if tile is not None:
        groups = layer.layout.groups
        each = (lambda a: a) if groups == 1 else (lambda a: jnp.broadcast_to(a, (groups, *a.shape)))
        full = full_scale(hw, tile.full_scale.dtype)
        now = tile.replace(input_range=each(r), full_scale=each(full), hardware=jax.tree.map(each, hw))
        layer.tile.set_value(now)


class Powers(NamedTuple):
    """Sums over inputs, per output: what is wanted times what is got, and the square of what is got."""

    both: Array
    got: Array


def fit_output_scale(model: nnx.Module, x: ArrayLike) -> None:
    """Fits the digital factor of each output so that the arrays give what the kernel would.

    Least squares per column on the layer's own inputs, layer after layer:
    scale_j = <x w, y>_j / <y, y>_j with y what the array returns. Called outside jit.

    Args:
      model: called as ``model(x)``; changed in place.
      x: a batch of inputs.
    """
    zero = lambda layer: jnp.zeros(layer.output_scale[...].shape, wide(layer.kernel[...]).dtype)
    start = {path: Powers(zero(layer), zero(layer)) for path, layer in analog_layers(model)}
    fitted = _observed(model, _fit_scale, x, start)
    for path, layer in analog_layers(model):
        layer.output_scale.set_value(_scale(fitted[path], layer.output_scale[...]))


def _fit_scale(layer: Analog, x: Array, before: Powers) -> tuple[Array, Powers]:
    want, got = layer.exact(x), layer.matmul(x)
    if layer.holds_bias:
        want = want + per_output(layer.bias_matrix(), want)
    batch = tuple(range(got.ndim - before.got.ndim))
    seen = Powers(before.both + (want * got).sum(batch), before.got + (got * got).sum(batch))
    layer.output_scale.set_value(_scale(seen, layer.output_scale[...]))
    return got, seen


def _scale(seen: Powers, before: Array) -> Array:
    live = seen.got > 0
    return jnp.where(live, (seen.both / jnp.where(live, seen.got, 1.0)).astype(before.dtype), before)


class Seen(nnx.Variable):
    """What a layer has found while it is observed; a Variable, so that a scan carries it."""


def _observed(model: nnx.Module, observe: Callable, x: ArrayLike, start: dict[str, Any]) -> dict[str, Any]:
    """What ``observe(layer, x, so_far) -> (product, so_far)`` finds at every analog layer, in one compiled run.

    The product takes the place of the layer's own, so that arrays are read once.
    """
    graphdef, state = nnx.split(model)
    return _run_observed(graphdef, observe, state, jnp.asarray(x), start)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run_observed(graphdef, observe, state, x, start):
    model = nnx.merge(graphdef, state, copy=True)

    def note(layer, x):
        y, found = observe(layer, x, layer.seen.get_value())
        layer.seen.set_value(found)
        return y

    layers = dict(analog_layers(model))
    for path, layer in layers.items():
        layer.seen = nnx.data(Seen(start[path]))
        layer.observe = note
    model(x)
    return {path: layer.seen.get_value() for path, layer in layers.items()}
