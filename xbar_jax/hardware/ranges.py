"""Calibration: ranges of the converters from what a tile sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax.hardware.quantize import positive
from xbar_jax.hardware.tile import Tile
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, ArrayLike, Bool, Float, Int, Key, Scalar


@dataclass(kw_only=True)
class RangeState:
    """What a tracker keeps.

    Attributes:
      estimate: [...], of the range, free of the bias of its start.
      count: int32, batches seen.
    """

    estimate: Float[Array, "..."]
    count: Int[Array, ""]


class Tracker:
    """A running estimate of the largest magnitude worth converting; see :class:`Quantile`, :class:`MovingStd`, :class:`Max`.

    Pure: ``state = tracker.init()``, ``state = tracker.update(state, x)``, ``r = tracker.value(state)``.
    """

    def init(self, shape: tuple[int, ...] = (), dtype: Any = jnp.float32) -> RangeState:
        """State before the first batch, for ``shape`` ranges; their value is 0."""
        return RangeState(estimate=jnp.zeros(shape, dtype), count=jnp.zeros((), jnp.int32))

    def update(
        self, state: RangeState, x: Float[Array, "... samples"], where: Bool[Array, "... samples"] | None = None
    ) -> RangeState:
        """State after one more batch.

        Args:
          state: so far.
          x: samples of every range along the last axis.
          where: samples that count, broadcastable to ``x``; default all.
        """
        # In single precision at least: the squares of half-precision numbers overflow.
        wide = jnp.abs(x).astype(x.dtype if jnp.finfo(x.dtype).bits >= 32 else jnp.float32)
        used = jnp.broadcast_to(jnp.asarray(True) if where is None else where, x.shape)
        one = self._one(wide, used)
        now = self._merge(state.estimate.astype(one.dtype), one, (state.count + 1).astype(one.dtype))
        return RangeState(estimate=now.astype(state.estimate.dtype), count=state.count + 1)

    def value(self, state: RangeState) -> Float[Array, "..."]:
        """The range."""
        return state.estimate

    def _one(self, x, used):
        raise NotImplementedError

    def _merge(self, old, one, n):
        raise NotImplementedError


@dataclass(kw_only=True)
class Quantile(Tracker):
    """Mean over batches of the q-quantile of |x|.

        r_n = r_n-1 + (q_n - r_n-1) / n,    q_n interpolated linearly between the ordered samples.

    Args:
      q: share of the samples within the range, 0 to 1.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> tracker = xb.hardware.Quantile(q=0.5)
      >>> state = tracker.update(tracker.init(), jnp.array([-1.0, 2.0, 3.0, -9.0]))
      >>> tracker.value(state)
      Array(2.5, dtype=float32)
    """

    q: Scalar = leaf(0.999)

    def _one(self, x, used):
        ordered = jnp.sort(jnp.where(used, x, jnp.inf), axis=-1)
        last = jnp.maximum(used.sum(-1).astype(jnp.int32) - 1, 0)
        place = jnp.clip(jnp.asarray(self.q, x.dtype), 0.0, 1.0) * last.astype(x.dtype)
        low = jnp.floor(place).astype(jnp.int32)
        pick = lambda k: jnp.take_along_axis(ordered, jnp.minimum(k, last)[..., None], axis=-1)[..., 0]
        a, b = pick(low), pick(low + 1)
        value = a + (b - a) * (place - low.astype(x.dtype))
        return jnp.where(used.any(-1), value, 0.0)

    def _merge(self, old, one, n):
        return old + (one - old) / n


@dataclass(kw_only=True)
class MovingStd(Tracker):
    """A multiple of the moving standard deviation about zero, the centre of a symmetric range.

        s_n = s_n-1 + (1 - decay) / (1 - decay^n) (std(x_n) - s_n-1),    r = factor s,    std(x) = sqrt(mean(x^2))

    This is the exponential average divided by 1 - decay^n, but without the division at the end: a constant stays
    exactly what it is in every precision.

    Args:
      factor: standard deviations within the range.
      decay: weight of the past, from 0 to below 1.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> tracker = xb.hardware.MovingStd(factor=3.0, decay=0.9)
      >>> tracker.value(tracker.update(tracker.init(), jnp.array([1.0, -1.0])))
      Array(3., dtype=float32)
    """

    factor: Scalar = leaf(3.0)
    decay: Scalar = leaf(0.99)

    def _one(self, x, used):
        largest = jnp.where(used, x, 0.0).max(-1, keepdims=True)
        unit = jnp.where(largest > 0, largest, 1.0)  # currents squared are below the smallest number
        share = jnp.where(used, x / unit, 0.0)
        return jnp.sqrt((share * share).sum(-1) / jnp.maximum(used.sum(-1), 1).astype(x.dtype)) * unit[..., 0]

    def _merge(self, old, one, n):
        decay = jnp.asarray(self.decay, one.dtype)
        return old + (1.0 - decay) / (1.0 - decay**n) * (one - old)

    def value(self, state: RangeState) -> Float[Array, "..."]:
        """The range."""
        return state.estimate * jnp.asarray(self.factor, state.estimate.dtype)


@dataclass(kw_only=True)
class Max(Tracker):
    """The largest magnitude of all batches.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> tracker = xb.hardware.Max()
      >>> tracker.value(tracker.update(tracker.init(), jnp.array([1.0, -2.0])))
      Array(2., dtype=float32)
    """

    def _one(self, x, used):
        return jnp.where(used, x, 0.0).max(-1)

    def _merge(self, old, one, n):
        return jnp.maximum(old, one)


def calibrate(
    tile: Tile,
    batches: Iterable[ArrayLike],
    *,
    inputs: Tracker | None = Max(),
    outputs: Tracker | None = Max(),
    key: Key[Array, ""] | None = None,
) -> Tile:
    """The tile with the ranges of its converters set from inputs it will see.

    First the input range of every row of arrays from the inputs, then, with these ranges, the full scale of the
    converters of every array from the currents of all reads. A range for which only zeros were seen stays as it is.

    Args:
      tile: what :func:`xbar_jax.program` returned.
      batches: of inputs, each [..., inputs].
      inputs: tracker of |x|, the largest by default; None leaves the input ranges.
      outputs: tracker of the column currents, A, the largest by default; None leaves the full scales.
      key: of the reads, one after another; required with ``outputs`` exactly when ``tile.needs_key``.

    Returns:
      The tile with ``input_range`` [down] and ``full_scale`` [outs, down, across].

    Raises:
      ValueError: there are no batches, a shape does not fit, the key is missing, or the arrays hold a bias, which was
        programmed for the input range there was.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> tile = xb.program(jnp.ones((3, 2)), xb.Hardware(dac=xb.DAC(bits=8), adc=xb.ADC(bits=8)))
      >>> batches = jax.random.normal(jax.random.key(0), (5, 20, 3))
      >>> tile = xb.hardware.calibrate(tile, batches, inputs=xb.hardware.Max(), outputs=xb.hardware.Quantile(q=0.99))
      >>> tile.input_range.shape, tile.full_scale.shape
      ((1,), (1, 1, 1))
    """
    dtype, (down, across), outs = tile.scale.dtype, tile.tiling.grid, tile.hardware.mapping.outs
    rows = [jnp.asarray(x, dtype) for x in batches]
    if not rows:
        raise ValueError("calibrate: batches must hold at least one batch, got none")
    for x in rows:
        if x.ndim == 0 or x.shape[-1] != tile.inputs or x.size == 0:
            raise ValueError(f"calibrate: batches must have shape [..., {tile.inputs}], got {list(x.shape)}")
    rows = [x.reshape(-1, tile.inputs) for x in rows]
    if inputs is not None:
        if tile.hardware.bias_rows:
            raise ValueError(
                "calibrate: inputs must be None where the arrays hold a bias, which is programmed for one input range; "
                "program anew with input_range="
            )
        state = inputs.init((down,), dtype)
        for x in rows:
            state = _see_inputs(inputs, state, tile, x)
        old = jnp.broadcast_to(tile.input_range, (down,))
        tile = tile.replace(input_range=_seen(inputs.value(state), old))
    if outputs is not None:
        if tile.needs_key and key is None:
            raise ValueError("calibrate: key must be given, since the hardware draws noise; got None")
        state = outputs.init((outs, down, across), dtype)
        for n, x in enumerate(rows):
            state = _see_outputs(outputs, state, tile, x, None if key is None else jax.random.fold_in(key, n))
        old = jnp.broadcast_to(tile.full_scale, (outs, down, across))
        tile = tile.replace(full_scale=_seen(outputs.value(state), old))
    return tile


def dynamic(tile: Tile, x: ArrayLike, *, key: Key[Array, ""] | None = None) -> Float[Array, "*batch outputs"]:
    """The product with every vector scaled to the input range by its own largest magnitude.

        y(x) = s y0(x / s) + b,    s = max_i |x_i| / r,

    y0 the product without a bias. It takes a search for the maximum and a multiplication for each vector, in digital
    hardware; ranges that :func:`calibrate` sets are static. A vector's result does not depend on others.

    Args:
      tile: whose bias, if there is one, is digital.
      x: [..., inputs].
      key: required exactly when ``tile.needs_key``.

    Raises:
      ValueError: the arrays hold a bias.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> tile = xb.program(jnp.ones((1, 1)), xb.Hardware(dac=xb.DAC(bits=4)))
      >>> y = xb.hardware.dynamic(tile, jnp.array([[30.0], [0.001]]))
    """
    if tile.hardware.bias_rows:
        raise ValueError("dynamic: tile must have a digital bias, got one that the arrays hold")
    x = jnp.asarray(x, tile.scale.dtype)
    largest = jnp.abs(x).max(-1, keepdims=True)
    # Every row of arrays has its range; the smallest holds the largest input.
    s = jnp.where(largest > 0, largest, 1.0) / positive(tile.input_range).min()
    y = s * tile.replace(bias=None)(x / s, key=key)
    return y if tile.bias is None else y + jnp.broadcast_to(tile.bias, y.shape)


def _seen(value, old):
    return jnp.where(value > 0, value, old)


@jax.jit
def _see_inputs(tracker, state, tile, x):
    split = lambda x: tile.tiling.split_inputs(x)
    x, used = split(x), split(jnp.ones((1, x.shape[1]), bool))
    down, batch, rows = x.shape
    used = jnp.broadcast_to(used, x.shape)
    return tracker.update(state, x.reshape(down, batch * rows), used.reshape(down, batch * rows))


@jax.jit
def _see_outputs(tracker, state, tile, x, key):
    i, _ = tile.currents(x, key=key)
    outs, down, across, reads, batch, cols = i.shape
    used = jnp.broadcast_to(tile.tiling.used_outputs()[:, None, None, :], (across, reads, batch, cols))
    flat = lambda a: a.reshape(*a.shape[:-3], reads * batch * cols)
    return tracker.update(state, flat(i), jnp.broadcast_to(flat(used), (outs, down, across, reads * batch * cols)))
