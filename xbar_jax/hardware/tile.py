"""Weights on arrays, and the analog matrix-vector product."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.circuits import read
from xbar_jax.hardware.converters import quantize
from xbar_jax.hardware.description import Hardware
from xbar_jax.hardware.tiling import Tiling
from xbar_jax.tree import canonical, dataclass, is_traced, static
from xbar_jax.typing import Array, ArrayLike, Bool, Float, Key, Scalar


@dataclass(kw_only=True)
class Tile:
    """A weight matrix on its arrays; what :func:`program` returns.

    Attributes:
      state: state of the cells, every leaf [planes, down, across, rows, cols].
      scale: [down, across, cols] 1/S, weight per siemens.
      live: [down, across, cols], False for columns of zeros, whose output is exactly 0.
      input_range: largest |x| that the converter at the rows takes.
      hardware: the description it was programmed on, canonical.
      converged: False where a parameter was found invalid under a trace.
      tiling: how the matrix lies over the arrays (static).
    """

    state: Any
    scale: Float[Array, "down across cols"]
    live: Bool[Array, "down across cols"]
    input_range: Float[Array, ""]
    hardware: Hardware
    converged: Bool[Array, ""]
    tiling: Tiling = static()

    def __call__(self, x: ArrayLike, *, key: Key[Array, ""] | None = None) -> Float[Array, "*batch outputs"]:
        """The analog product ``x @ w``.

        Input range and DAC, array read, ADC, digital scale per column, sum over row arrays:

            v = v_read quantize(x, r) / r,   y_j = r / v_read sum_tiles scale_j quantize(i_j, full_scale)

        Args:
          x: [..., inputs]; leading axes are a batch for the same arrays (read noise is drawn once per call).
          key: required exactly when the hardware has a device.

        Returns:
          [..., outputs]; NaN where ``converged`` is False.
        """
        tiling = self.tiling
        x = jnp.asarray(x, self.scale.dtype)
        if x.ndim == 0 or x.shape[-1] != tiling.inputs:
            raise ValueError(f"Tile: x must have shape [..., {tiling.inputs}], got {list(x.shape)}")
        batch = x.shape[:-1]
        y = self.digitize(self.currents(x.reshape(int(np.prod(batch)), tiling.inputs), key=key))
        return y.reshape(*batch, tiling.outputs)

    def voltages(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch inputs"]:
        """Read voltages for inputs, V."""
        dac, r = self.hardware.dac, self._range()
        x = x if dac is None else quantize(x, r, dac.bits)
        return x / r * self.hardware.v_read.astype(x.dtype)

    def conductance(self, *, key: Key[Array, ""] | None = None) -> Float[Array, "planes down across rows cols"]:
        """Conductances as one read sees them, S; unused cells are open (0)."""
        device, tiling = self.hardware.device, self.tiling
        if device is None:
            g = self.state
        else:
            g = _over_arrays(
                tiling, _need_key("Tile", key), lambda s, k, row, col: device.read(s, key=k, row=row, col=col)
            )(self.state)
        return jnp.where(tiling.used()[None], g, 0.0)

    def currents(
        self, x: Float[Array, "batch inputs"], *, key: Key[Array, ""] | None = None
    ) -> Float[Array, "down across batch cols"]:
        """Combined column currents of every array before the ADC, A."""
        over_across = jax.vmap(lambda g, v: read(g, v, self.hardware.wires), in_axes=(0, None))
        over_planes = jax.vmap(jax.vmap(over_across), in_axes=(0, None))
        v = self.tiling.split_inputs(self.voltages(x))
        return self.hardware.mapping.combine(over_planes(self.conductance(key=key), v))

    def digitize(self, i: Float[Array, "down across batch cols"]) -> Float[Array, "batch outputs"]:
        """Outputs from the combined currents: ADC, scale per column, sum over the arrays along the inputs."""
        hw = self.hardware
        if hw.adc is not None:
            i = quantize(i, full_scale(hw, i.dtype), hw.adc.bits)
        y = i * self.scale[:, :, None, :]
        # A column of zeros gives 0 but keeps its gradient, so that it can be trained.
        y = y - jnp.where(self.live[:, :, None, :], 0.0, jax.lax.stop_gradient(y))
        y = y.sum(0) * (self._range() / hw.v_read.astype(i.dtype))
        return self.tiling.join_outputs(jnp.where(self.converged, y, jnp.nan))

    def _range(self):
        # A range of 0 or less is held at a small positive one; its gradient passes, so that it can recover.
        r = self.input_range
        floor = jnp.asarray(jnp.finfo(r.dtype).eps, r.dtype)
        return r + jax.lax.stop_gradient(jnp.maximum(r, floor) - r)


def program(
    w: ArrayLike, hw: Hardware, *, key: Key[Array, ""] | None = None, input_range: Scalar | None = None
) -> Tile:
    """Programs a weight matrix onto arrays.

    Args:
      w: [inputs, outputs]; any size, split over arrays of at most [hw.rows, hw.cols].
      hw: the hardware; its numbers may be traced (swept, differentiated, vmapped).
      key: required exactly when ``hw.device`` is given.
      input_range: largest |x|; default ``hw.dac.input_range``, 1 without a DAC.

    Returns:
      A :class:`Tile`. Differentiable in ``w`` and in every number of ``hw``.

    Raises:
      ValueError: a shape or a concrete number is out of its range, or the key is missing.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> tile = xb.program(jnp.ones((3, 2)), xb.Hardware(wires=xb.Wires(r_word=1.0, r_bit=1.0)))
      >>> y = tile(jnp.ones((5, 3)))
    """
    if not isinstance(hw, Hardware):
        raise TypeError(f"program: hw must be an xb.Hardware, got {type(hw).__name__}")
    hw.check("program")
    hw = canonical(hw)
    w = jnp.asarray(w)
    w = w if jnp.issubdtype(w.dtype, jnp.floating) else w.astype(jnp.result_type(float))
    if w.ndim != 2 or 0 in w.shape:
        raise ValueError(f"program: w must have shape [inputs, outputs], got {list(w.shape)}")
    if not is_traced(w) and not np.isfinite(w).all():
        raise ValueError("program: w must be finite, got " + str(w[~np.isfinite(w)][0]))
    tiling = Tiling.make(*w.shape, hw.rows, hw.cols)
    targets = jax.vmap(jax.vmap(hw.mapping.targets))(tiling.split(w))
    g = jnp.moveaxis(targets.g, 2, 0)
    if hw.device is not None:
        device = hw.device
        g = _over_arrays(
            tiling, _need_key("program", key), lambda g, k, row, col: device.program(g, key=k, row=row, col=col)
        )(g)
    if input_range is None:
        input_range = 1.0 if hw.dac is None else hw.dac.input_range
    return Tile(
        state=g,
        scale=targets.scale,
        live=targets.live,
        input_range=jnp.asarray(input_range, w.dtype),
        hardware=hw,
        converged=targets.valid.all() & hw.valid() & jnp.isfinite(w).all(),
        tiling=tiling,
    )


def full_scale(hw: Hardware, dtype) -> Float[Array, ""]:
    """Full-scale current of the ADC, A."""
    given = None if hw.adc is None else hw.adc.full_scale
    if given is None:
        given = 12.0 * (hw.mapping.g_max - hw.mapping.g_min) * hw.v_read
    return jnp.asarray(given, dtype)


def _need_key(name: str, key):
    if key is None:
        raise ValueError(f"{name}: key must be given, since hardware.device draws noise; got None")
    return key


def _over_arrays(tiling: Tiling, key, f):
    """``f(x, key, row, col)`` for every array, over leaves [planes, down, across, ...]."""
    row, col = tiling.offsets()

    def call(x):
        planes = jax.tree.leaves(x)[0].shape[0]
        keys = jax.vmap(lambda p: jax.random.fold_in(key, p))(jnp.arange(planes))
        across = jax.vmap(f, in_axes=(0, None, None, 0))
        down = jax.vmap(across, in_axes=(0, None, 0, None))
        return jax.vmap(down, in_axes=(0, 0, None, None))(x, keys, row, col)

    return call
