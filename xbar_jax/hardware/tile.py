"""Weights on arrays, and the analog matrix-vector product."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.hardware.arrays import check_cells, currents, drive, global_rows, over_arrays
from xbar_jax.hardware.compensation import column_sums, gains
from xbar_jax.hardware.description import Hardware
from xbar_jax.hardware.quantize import positive
from xbar_jax.hardware.tiling import Tiling
from xbar_jax.tree import canonical, dataclass, is_traced, leaf, static
from xbar_jax.typing import Array, ArrayLike, Bool, Float, Int, Key, Scalar

# Parts of a key, far from the draws of a device.
_CONVERTERS, _ROWS, _COLUMNS, _BASELINE, _READ_OUT = 2_000_001, 2_000_002, 2_000_003, 2_000_004, 2_000_005


@dataclass(kw_only=True)
class Tile:
    """A weight matrix on its arrays; what :func:`program` returns.

    Attributes:
      state: state of the cells, every leaf [planes, down, across, rows, lines].
      t: s since programming.
      held: conductances that one read-out at ``t`` saw and all products use, S; None: every product reads anew.
      scale: [down, across, cols] 1/S, weight per siemens.
      live: [down, across, cols], False for columns of zeros, whose output is exactly 0.
      output_scale: [outputs], digital factor of the product; None: 1. What a layer that keeps its own does not need.
      bias: [outputs], added digitally; None where there is none or the arrays hold it.
      input_range: largest |x| that the converter at the rows takes; one number, or [down].
      full_scale: A, of the converters at the columns; one number, or [outs, down, across].
      converters: what is fixed for each converter at the columns, leaves [outs, down, across, cols]; None if nothing is.
      order: [down, across, rows] which input drives each row; None is in order.
      baseline: [down, across, cols] S, column read-out right after programming; None without compensation.
      gain: [down, across, cols] factor of drift compensation; None without.
      hardware: the description it was programmed on, canonical.
      converged: False where a parameter was found invalid under a trace.
      tiling: how the matrix lies over the arrays (static).
    """

    state: Any
    scale: Float[Array, "down across cols"]
    live: Bool[Array, "down across cols"]
    input_range: Float[Array, "..."]
    full_scale: Float[Array, "..."]
    hardware: Hardware
    converged: Bool[Array, ""]
    t: Float[Array, ""] = leaf()
    held: Float[Array, "planes down across rows lines"] | None = leaf(None)
    output_scale: Float[Array, " outputs"] | None = leaf(None)
    bias: Float[Array, " outputs"] | None = leaf(None)
    converters: Any = leaf(None)
    order: Int[Array, "down across rows"] | None = leaf(None)
    baseline: Float[Array, "down across cols"] | None = leaf(None)
    gain: Float[Array, "down across cols"] | None = leaf(None)
    tiling: Tiling = static()

    @property
    def needs_key(self) -> bool:
        """A product draws noise, so that a key is required."""
        hw = self.hardware
        cells = hw.device is not None and self.held is None
        return cells or any(c is not None and c.needs_key for c in (hw.dac, hw.adc))

    @property
    def outputs(self) -> int:
        """Columns of the weight matrix."""
        return self.tiling.outputs

    @property
    def inputs(self) -> int:
        """Rows of the weight matrix, without the one that holds a bias."""
        return self.tiling.inputs - self.hardware.bias_rows

    def __call__(self, x: ArrayLike, *, key: Key[Array, ""] | None = None) -> Float[Array, "*batch outputs"]:
        """The analog product ``x @ w + b``.

        In order: input range and DAC, input noise, array read, ADC, digital scale per column and gain of drift
        compensation, sum over row arrays, bias:

            y_j = output_scale_j r / v_read sum_tiles gain_j scale_j sum_reads weight ADC(i_j(v)) + b_j.

        Args:
          x: [..., inputs]; leading axes are a batch for the same arrays (noise of the cells is drawn once per call).
          key: required exactly when ``needs_key``.

        Returns:
          [..., outputs]; NaN where ``converged`` is False.
        """
        x = jnp.asarray(x, self.scale.dtype)
        if x.ndim == 0 or x.shape[-1] != self.inputs:
            raise ValueError(f"Tile: x must have shape [..., {self.inputs}], got {list(x.shape)}")
        if self.needs_key:
            _need_key("Tile", key)
        batch = x.shape[:-1]
        if 0 in batch:
            return jnp.zeros((*batch, self.outputs), x.dtype)
        y = _product(self, x.reshape(int(np.prod(batch)), self.inputs), key)
        return y.reshape(*batch, self.outputs)

    def voltages(
        self, x: Float[Array, "batch inputs"], *, key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "down reads batch rows"], Float[Array, " reads"]]:
        """Read voltages of every row of arrays for inputs, V, before the noise of their drivers; the weight of each read."""
        hw, r = self.hardware, self._range()
        x = jnp.asarray(x, self.scale.dtype)
        if hw.bias_rows:
            # The line of the bias is driven with the whole range: not an input, and not scaled with them.
            x = jnp.concatenate([x, jnp.broadcast_to(r.reshape(-1)[-1], (x.shape[0], 1))], axis=1)
        x = self.tiling.split_inputs(x)
        r = jnp.broadcast_to(r, (self.tiling.grid[0],))[:, None, None]
        v_read = hw.v_read.astype(x.dtype)
        if hw.dac is None:
            return (x / r * v_read)[:, None], jnp.ones((1,), x.dtype)
        dac, row = hw.dac.replace(noise=None), global_rows(self.tiling)
        reads = dac.reads(x, r, v_read, linear=hw.cell is None, row=row, key=_part(key, _ROWS))
        return jnp.moveaxis(reads.v, 0, 1), reads.weight

    def conductance(self, *, key: Key[Array, ""] | None = None) -> Float[Array, "planes down across rows lines"]:
        """Conductances as one read sees them, S; unused cells are open (0)."""
        if self.held is not None:
            return self.held
        return _conductance(self.hardware, self.tiling, self.state, self.t, _part_or(key, "Tile", self.hardware))

    def currents(
        self, x: Float[Array, "batch inputs"], *, key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "outs down across reads batch cols"], Float[Array, " reads"]]:
        """Column currents of every array that reach a converter, A, and the weight of each read."""
        v, weight = self.voltages(x, key=key)
        hw = self.hardware
        i = currents(hw, self.conductance(key=key), self._driven(v, key))
        return (i, weight) if hw.dac is None else hw.dac.integrate(i, weight, linear=hw.cell is None)

    def digitize(
        self,
        i: Float[Array, "outs down across reads batch cols"],
        weight: Float[Array, " reads"],
        *,
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "batch outputs"]:
        """Outputs from the currents: ADC, sum over reads, scale and gain per column, sum over row arrays, bias."""
        hw = self.hardware
        outs, down, across, reads, batch, cols = i.shape
        if hw.adc is not None:
            full = jnp.broadcast_to(self.full_scale, (outs, down, across))[..., None, None]
            col = self.tiling.offsets()[1][:, None] + jnp.arange(cols, dtype=jnp.int32)[None, :]
            # The reads of a vector side by side, so that its noise does not depend on how many others there are.
            flat = jnp.moveaxis(i, 3, 4).reshape(outs, down, across, batch * reads, cols)
            flat = hw.adc.convert(flat, full, self.converters, key=_part(key, _COLUMNS), col=col)
            i = jnp.moveaxis(flat.reshape(outs, down, across, batch, reads, cols), 4, 3)
        y = jnp.einsum("r,odarbc->odabc", weight, i) if reads > 1 else i[:, :, :, 0] * weight[0]
        y = hw.mapping.digital(y) * self.scale[:, :, None, :]
        if self.gain is not None:
            y = y * self.gain[:, :, None, :]
        # A column of zeros gives 0 but keeps its gradient, so that it can be trained.
        y = y - jnp.where(self.live[:, :, None, :], 0.0, jax.lax.stop_gradient(y))
        r = jnp.broadcast_to(self._range(), (down,))[:, None, None, None]
        y = (y * (r / hw.v_read.astype(i.dtype))).sum(0)
        y = self.tiling.join_outputs(jnp.where(self.converged, y, jnp.nan))
        y = y if self.output_scale is None else y * self.output_scale[None]
        return y if self.bias is None else y + self.bias[None]

    def drift(self, t: Scalar, *, key: Key[Array, ""] | None = None, hold: bool = True) -> Tile:
        """The tile ``t`` seconds after programming.

        With a key, the noise of this read-out is drawn now and held for all products until the next call; without
        one every product draws its own. Where the hardware compensates drift, the gain is measured anew (which needs
        the key).

        Args:
          t: s since programming, >= 0; not the time since the last call.
          key: of the read-out.
          hold: False: the key serves the compensation only, and every product draws its own noise.

        Example:
          >>> import jax, jax.numpy as jnp, xbar_jax as xb
          >>> hw = xb.Hardware(device=xb.devices.Gaussian(read_std=1e-7))
          >>> tile = xb.program(jnp.ones((3, 2)), hw, key=jax.random.key(0))
          >>> y = tile.drift(3600.0, key=jax.random.key(1))(jnp.ones(3))
        """
        hw = self.hardware
        if not is_traced(t) and not (np.ndim(t) == 0 and np.isfinite(t) and t >= 0):
            raise ValueError(f"Tile.drift: t must be one number >= 0, in s, got {t}")
        t = jnp.asarray(t, self.scale.dtype)
        if hw.device is None:
            return self.replace(t=t)
        if self.baseline is not None:
            _need_key("Tile.drift", key, "hardware.compensation reads the arrays")
        return _drifted(self, t, key, hold)

    def _driven(self, v: Float[Array, "down reads batch rows"], key: Key[Array, ""] | None) -> Array:
        """Voltages at the lines of every array, [planes | 1, down, across | 1, reads, batch, rows]."""
        return drive(self.hardware, self.tiling, v, self.order, _part(key, _ROWS))

    def _range(self):
        return positive(self.input_range)


def program(
    w: ArrayLike,
    hw: Hardware,
    *,
    key: Key[Array, ""] | None = None,
    input_range: ArrayLike | None = None,
    bias: ArrayLike | None = None,
) -> Tile:
    """Programs a weight matrix onto arrays.

    Args:
      w: [inputs, outputs]; any size, split over arrays of at most [hw.rows, hw.cols].
      hw: the hardware; its numbers may be traced (swept, differentiated, vmapped).
      key: required exactly when something is drawn: ``hw.device`` is given, or converters differ from each other.
      input_range: largest |x|; default ``hw.dac.input_range``, 1 without a DAC. One number, or one for each row of
        arrays.
      bias: [outputs]; added digitally, or held by one more row of the arrays, as ``hw.bias`` says.

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
    if input_range is None:
        input_range = 1.0 if hw.dac is None else hw.dac.input_range
    r = jnp.asarray(input_range, w.dtype)
    bias = None if bias is None else _checked_bias(bias, w)
    if hw.bias_rows:
        held = jnp.zeros((1, w.shape[1]), w.dtype) if bias is None else bias[None] / positive(r).reshape(-1)[-1]
        w, bias = jnp.concatenate([w, held]), None
    tiling = Tiling.make(*w.shape, hw.rows, hw.cols - hw.mapping.extra_cols)
    if r.shape not in ((), (tiling.grid[0],)):
        raise ValueError(
            f"program: input_range must be one number or [{tiling.grid[0]}], one per row of arrays, got {list(r.shape)}"
        )
    check_cells("program", hw, tiling)
    if hw.device is not None or (hw.adc is not None and hw.adc.draws):
        _need_key("program", key)
    return _on_arrays(w, hw, r, bias, tiling, key)


# Compiled whole, so that a call outside jit is one program as well.
@functools.partial(jax.jit, static_argnums=(4,))
def _on_arrays(w: Array, hw: Hardware, r: Array, bias: Array | None, tiling: Tiling, key) -> Tile:
    blocks = tiling.split(w)
    order = None
    if hw.mapping.row_order != "given":
        order = jax.vmap(jax.vmap(hw.mapping.order))(blocks)
        blocks = jax.vmap(jax.vmap(lambda w, order: w[order]))(blocks, order)
    targets = jax.vmap(jax.vmap(hw.mapping.targets))(blocks)
    state = jnp.moveaxis(targets.g, 2, 0)
    if hw.device is not None:
        write = lambda device, g, k, row, col: device.program(g, key=k, row=row, col=col)
        state = over_arrays(hw, tiling, key, write, state)
    tile = Tile(
        state=state,
        t=jnp.zeros((), w.dtype),
        scale=targets.scale,
        live=targets.live,
        bias=bias,
        input_range=r,
        full_scale=full_scale(hw, w.dtype),
        converters=_draw_converters(hw, tiling, key, w.dtype),
        order=order,
        hardware=hw,
        converged=targets.valid.all() & hw.valid() & jnp.isfinite(w).all() & jnp.isfinite(r).all(),
        tiling=tiling,
    )
    if hw.device is None or hw.compensation is None:
        return tile
    g = _conductance(hw, tiling, state, tile.t, jax.random.fold_in(key, _BASELINE))
    baseline = column_sums(hw, g, _meant(state))
    return tile.replace(baseline=baseline, gain=jnp.ones_like(baseline))


@jax.jit
def _product(tile: Tile, x: Float[Array, "batch inputs"], key) -> Float[Array, "batch outputs"]:
    i, weight = tile.currents(x, key=key)
    return tile.digitize(i, weight, key=key)


@functools.partial(jax.jit, static_argnames="hold")
def _drifted(tile: Tile, t: Array, key, hold: bool) -> Tile:
    hw, gain = tile.hardware, None
    held = None if key is None or not hold else _conductance(hw, tile.tiling, tile.state, t, key)
    if tile.baseline is not None:
        g = _conductance(hw, tile.tiling, tile.state, t, jax.random.fold_in(key, _READ_OUT))
        now = column_sums(hw, g, _meant(tile.state))
        gain = gains(hw.compensation, tile.baseline, now, tile.tiling.used_outputs())
    return tile.replace(t=t, held=held, gain=gain)


def full_scale(hw: Hardware, dtype) -> Float[Array, ""]:
    """Full-scale current of the ADC, A."""
    given = None if hw.adc is None else hw.adc.full_scale
    if given is None:
        given = 12.0 * (hw.mapping.g_max - hw.mapping.g_min) * hw.v_read
    return jnp.asarray(given, dtype)


def _checked_bias(bias: ArrayLike, w: Array) -> Array:
    bias = jnp.asarray(bias, w.dtype)
    if bias.shape != w.shape[1:]:
        raise ValueError(f"program: bias must have shape [{w.shape[1]}], one per output, got {list(bias.shape)}")
    if not is_traced(bias) and not np.isfinite(bias).all():
        raise ValueError("program: bias must be finite, got " + str(bias[~np.isfinite(bias)][0]))
    return bias


def _draw_converters(hw: Hardware, tiling: Tiling, key, dtype) -> Any:
    if hw.adc is None:
        return None
    down, across = tiling.grid
    col = tiling.offsets()[1][:, None] + jnp.arange(tiling.cols, dtype=jnp.int32)[None, :]
    return hw.adc.draw((hw.mapping.outs, down, across, tiling.cols), col, key=_part(key, _CONVERTERS), dtype=dtype)


def _conductance(hw: Hardware, tiling: Tiling, state: Any, t: Array, key) -> Array:
    """Conductances of a read at ``t``, S; unused cells are open."""
    g = state
    if hw.device is not None:
        look = lambda device, s, k, row, col: device.read(s, t, key=k, row=row, col=col)
        g = over_arrays(hw, tiling, key, look, state)
    if tiling.spare == (0, 0):
        return g
    used = tiling.used()
    extra = hw.mapping.extra_cols
    if extra:
        # Lines that the mapping adds use every row that holds a weight.
        lines = jnp.broadcast_to(used.any(-1, keepdims=True), (*used.shape[:-1], extra))
        used = jnp.concatenate([used, lines], axis=-1)
    return jnp.where(used[None], g, 0.0)


def _meant(state: Any) -> Array:
    """Targets of the cells, S."""
    if getattr(state, "target", None) is None:
        raise ValueError(
            f"Tile: hardware.device must keep the target of its cells where drift is compensated, got {type(state).__name__}"
        )
    return state.target


def _part(key, part: int):
    return None if key is None else jax.random.fold_in(key, part)


def _part_or(key, name: str, hw: Hardware):
    return None if hw.device is None else _need_key(name, key)


def _need_key(name: str, key, why: str = "the hardware draws noise"):
    if key is None:
        raise ValueError(f"{name}: key must be given, since {why}; got None")
    return key
