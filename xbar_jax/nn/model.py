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
from xbar_jax.hardware import program as program_tile
from xbar_jax.hardware.tile import full_scale
from xbar_jax.nn.linear import AnalogLinear
from xbar_jax.tree import canonical, is_traced
from xbar_jax.typing import Array, ArrayLike, Key, Scalar


def analog_layers(model: nnx.Module) -> Iterator[tuple[str, AnalogLinear]]:
    """Every analog layer of a model by its path, in the order of the paths."""
    found = {"/".join(map(str, path)): m for path, m in nnx.iter_modules(model) if isinstance(m, AnalogLinear)}
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
    found = tiles(model)
    if not found:
        raise ValueError("drift: model must be programmed first (xb.nn.program), got one without tiles")
    for path, layer in analog_layers(model):
        if path in found:
            layer.tile.set_value(found[path].drift(t, key=_layer_key(key, path)))


def unprogram(model: nnx.Module) -> None:
    """Back to hardware-aware calls from the master weights."""
    for _, layer in analog_layers(model):
        layer.tile.set_value(None)


def tiles(model: nnx.Module) -> dict[str, Tile]:
    """The programmed tiles of a model by layer path."""
    found = {path: layer.tile.get_value() for path, layer in analog_layers(model)}
    return {path: tile for path, tile in found.items() if tile is not None}


def attach(model: nnx.Module, tiles: dict[str, Tile]) -> None:
    """Puts tiles into the layers of the same paths.

    Raises:
      ValueError: a path that the model does not have, or a tile of another size.
    """
    layers = dict(analog_layers(model))
    for path, tile in tiles.items():
        if path not in layers:
            raise ValueError(f"attach: tiles must name analog layers ({', '.join(layers)}), got {path!r}")
        layer, size = layers[path], (tile.tiling.inputs, tile.tiling.outputs)
        if size != (layer.in_features, layer.out_features):
            raise ValueError(f"attach: tiles[{path!r}] must be {layer.in_features} x {layer.out_features}, got {size}")
        layer.tile.set_value(tile)
        layer.input_range.set_value(tile.input_range)
        layer.hardware = nnx.data(tile.hardware)


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
    current as its full scale: of its programmed arrays if it has them, else of ideal cells. Ranges grow from batch to batch; each layer sees what
    the layers before it produce with the ranges found so far. Called outside jit.

    Args:
      model: called as ``model(batch)``; changed in place.
      batches: inputs.
    """
    seen: dict[str, Ranges] | None = None
    for x in batches:
        seen = _observed(model, _watch_ranges, x, seen)
        for path, layer in analog_layers(model):
            if path in seen:
                _set_ranges(layer, seen[path])


def _watch_ranges(layer: AnalogLinear, x: Array, so_far: Ranges | None) -> tuple[Array, Ranges]:
    largest = jnp.abs(x).max()
    before = Ranges(jnp.zeros_like(largest), jnp.zeros_like(largest)) if so_far is None else so_far
    seen = before._replace(x=jnp.maximum(largest, before.x))
    if layer.hardware is None:
        return x @ layer.kernel[...], seen
    _set_ranges(layer, seen)
    tile = layer.tile.get_value()
    if tile is None:
        quiet = layer.hardware.replace(device=None, adc=None)
        tile = program_tile(layer.kernel[...], quiet, input_range=layer.input_range[...])
    i, weight = tile.currents(x, key=jax.random.key(0))
    return tile.digitize(i, weight, key=jax.random.key(0)), seen._replace(i=jnp.maximum(jnp.abs(i).max(), seen.i))


def _set_ranges(layer: AnalogLinear, seen: Ranges) -> None:
    hw, largest, current = layer.hardware, seen.x, seen.i
    if hw is not None and hw.dac is not None:
        kept = layer.input_range[...]
        layer.input_range.set_value(jnp.where(largest > 0, largest.astype(kept.dtype), kept))
    if hw is not None and hw.adc is not None:
        full = jnp.where(current > 0, current, full_scale(hw.replace(adc=None), current.dtype))
        layer.hardware = nnx.data(hw.replace(adc=hw.adc.replace(full_scale=full)))
    programmed = layer.tile.get_value()
    if programmed is not None and layer.hardware is not None:
        full = full_scale(layer.hardware, programmed.full_scale.dtype)
        now = programmed.replace(input_range=layer.input_range[...], full_scale=full, hardware=layer.hardware)
        layer.tile.set_value(now)


def fit_output_scale(model: nnx.Module, x: ArrayLike) -> None:
    """Fits the digital factor of each output so that the arrays give what the kernel would.

    Least squares per column on the layer's own inputs, layer after layer:
    scale_j = <x w, y>_j / <y, y>_j with y what the array returns. Called outside jit.

    Args:
      model: called as ``model(x)``; changed in place.
      x: a batch of inputs.
    """
    fitted = _observed(model, _fit_scale, x, None)
    for path, layer in analog_layers(model):
        if path in fitted:
            layer.output_scale.set_value(fitted[path])


def _fit_scale(layer: AnalogLinear, x: Array, _: None) -> tuple[Array, Array]:
    want, got = x @ layer.kernel[...], layer.matmul(x)
    power = (got * got).sum(0)
    scale = jnp.where(power > 0, (want * got).sum(0) / jnp.where(power > 0, power, 1.0), 1.0)
    layer.output_scale.set_value(scale.astype(layer.output_scale[...].dtype))
    return got, layer.output_scale[...]


def _observed(model: nnx.Module, observe: Callable, x: ArrayLike, so_far: dict | None) -> dict[str, Any]:
    """What ``observe(layer, x, so_far) -> (product, finding)`` finds at every analog layer, in one compiled run.

    The product takes the place of the layer's own, so that arrays are read once.
    """
    graphdef, state = nnx.split(model)
    return _run_observed(graphdef, observe, state, jnp.asarray(x), so_far)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run_observed(graphdef, observe, state, x, so_far):
    model = nnx.merge(graphdef, state, copy=True)
    found: dict[str, Any] = dict(so_far or {})

    def watch(path):
        def note(layer, x):
            y, found[path] = observe(layer, x.reshape(-1, x.shape[-1]), found.get(path))
            return y.reshape(*x.shape[:-1], y.shape[-1])

        return note

    for path, layer in analog_layers(model):
        layer.observe = watch(path)
    model(x)
    return found
