"""What one product takes: energy and time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.circuits import solve
from xbar_jax.hardware.description import Hardware
from xbar_jax.hardware.tile import Tile
from xbar_jax.tree import dataclass, is_traced, leaf, static
from xbar_jax.typing import Array, ArrayLike, Float, Key, Scalar


@dataclass(kw_only=True)
class Prices:
    """Energies and times of the parts around the arrays. Every one is a leaf.

    Args:
      t_read: s, one read: the time that voltages are held, or the longest pulse of PWM. No default: it belongs to a chip
        (250 ns in the PCM of Nandakumar et al., ICECS 2019).
      dac: J, one line of one array driven for one conversion. No default: published figures run over decades with the
        resolution and the load.
      adc_per_level: J, Walden's figure of merit F: a conversion of b bits takes F 2^b. Default 34.4 fJ, one measured
        converter of 7 bits at 1.25 GS/s in 28 nm CMOS (Ramkaj et al., IEEE J. Solid-State Circuits 53(7), 1889 (2018)).
      t_convert: s, one conversion. Default 0.8 ns, of the same converter.
      columns_per_adc: columns that share one converter and take turns, >= 1.
      multiply, add: J, one digital operation. Defaults 3.7 and 0.9 pJ, of 32-bit floating point in 45 nm CMOS at 0.9 V
        (Horowitz, ISSCC 2014, p. 10).

    Example:
      >>> import xbar_jax as xb
      >>> prices = xb.hardware.Prices(t_read=250e-9, dac=1e-12, columns_per_adc=8)

    Reference:
      R. H. Walden, IEEE J. Sel. Areas Commun. 17(4), 539 (1999).
    """

    t_read: Scalar = leaf()
    dac: Scalar = leaf()
    adc_per_level: Scalar = leaf(34.4e-15)
    t_convert: Scalar = leaf(0.8e-9)
    columns_per_adc: Scalar = leaf(1.0)
    multiply: Scalar = leaf(3.7e-12)
    add: Scalar = leaf(0.9e-12)

    def check(self, name: str) -> None:
        """Raises where a concrete number is out of its range."""
        for field, least, unit in (
            ("t_read", 0.0, " and finite, in s"),
            ("dac", 0.0, " and finite, in J"),
            ("adc_per_level", 0.0, " and finite, in J"),
            ("t_convert", 0.0, " and finite, in s"),
            ("columns_per_adc", 1.0, " and finite"),
            ("multiply", 0.0, " and finite, in J"),
            ("add", 0.0, " and finite, in J"),
        ):
            x = getattr(self, field)
            if not is_traced(x) and not np.all((np.asarray(x) >= least) & np.isfinite(x)):
                raise ValueError(f"{name}: prices.{field} must be >= {least:g}{unit}, got {np.asarray(x)}")


@dataclass(kw_only=True)
class Cost:
    """Energy and time of the product of one vector.

    Attributes:
      array: [*batch] J, dissipated in the cells and wires of all arrays.
      dac, adc, digital: J, in the converters at the rows, at the columns, and in the arithmetic behind them.
      latency: s, all arrays at once, one conversion of the inputs after the other.
      reads: conversions of the inputs: phases times input slices.
      drives: lines driven, all reads together.
      conversions: results that the converters at the columns give, all reads together.
      multiplies, adds: digital operations.
    """

    array: Float[Array, "*batch"]
    dac: Float[Array, ""]
    adc: Float[Array, ""]
    digital: Float[Array, ""]
    latency: Float[Array, ""]
    reads: int = static()
    drives: int = static()
    conversions: int = static()
    multiplies: int = static()
    adds: int = static()

    @property
    def energy(self) -> Float[Array, "*batch"]:
        """J, all parts together."""
        return self.array + (self.dac + self.adc + self.digital)


def cost(tile: Tile, x: ArrayLike, prices: Prices, *, key: Key[Array, ""] | None = None) -> Cost:
    """Energy and latency of the products of a tile with inputs.

        E_array   = sum over reads and arrays of P(v) t_read, P what the terminals of the nodal solution supply
        E_dac     = lines x reads x dac
        E_adc     = conversions x adc_per_level 2^bits
        E_digital = one addition for each conversion, one multiplication for each column of each array (and the bias)
        latency   = reads (t_read + min(columns_per_adc, cols) t_convert)

    With PWM all pulses start together and row i is on for the share |v_i|/v_read of ``t_read``; for ohmic cells with
    the input conductance Y of an array (diagonal without wires) this is exactly

        E = t_read v_read^2 sum_ij s_i s_j Y_ij min(|v_i|, |v_j|) / v_read,    s_i the sign of v_i.

    Other cells are read by pulses of 1, 2, 4, ... slots, each with its own power. Every circuit of a mapping has its own
    drivers and, for every slice, its own converters. An ideal ADC (None, or infinite ``bits``) takes neither energy nor
    time. Not counted: what drivers and sense amplifiers lose by themselves, charge on lines, buffers, and traffic.

    Args:
      tile: programmed weights, with the wires and converters of its hardware.
      x: [..., inputs].
      prices: of the parts.
      key: required exactly when ``tile.needs_key``.

    Returns:
      :class:`Cost`; NaN where the tile or a solve did not converge. Differentiable.

    Raises:
      ValueError: the shape of ``x``, a price out of its range, or no key.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> hw = xb.Hardware(wires=xb.Wires(r_word=1.0, r_bit=1.0), dac=xb.DAC(bits=8), adc=xb.ADC(bits=8))
      >>> tile = xb.program(jnp.ones((64, 10)), hw)
      >>> spent = xb.hardware.cost(tile, jnp.ones((5, 64)), xb.hardware.Prices(t_read=1e-7, dac=1e-12))
      >>> spent.energy.shape, spent.conversions, round(float(spent.adc) * 1e12, 2)
      ((5,), 10, 88.06)
    """
    if not isinstance(tile, Tile):
        raise TypeError(f"cost: tile must be an xb.Tile, got {type(tile).__name__}")
    if not isinstance(prices, Prices):
        raise TypeError(f"cost: prices must be an xb.hardware.Prices, got {type(prices).__name__}")
    prices.check("cost")
    dtype = tile.scale.dtype
    x = jnp.asarray(x, dtype)
    if x.ndim == 0 or x.shape[-1] != tile.inputs:
        raise ValueError(f"cost: x must have shape [..., {tile.inputs}], got {list(x.shape)}")
    if tile.needs_key and key is None:
        raise ValueError("cost: key must be given, since the hardware draws noise; got None")
    hw, tiling = tile.hardware, tile.tiling
    price = jax.tree.map(lambda p: jnp.asarray(p, dtype), prices)
    batch = x.shape[:-1]
    array = _array_energy(tile, x.reshape(int(np.prod(batch)), tile.inputs), key) * price.t_read
    down, across = tiling.grid
    reads = 1 if hw.dac is None else hw.dac.conversions
    drives = reads * tiling.inputs * across * hw.mapping.planes
    used = [min(tiling.cols, tiling.outputs - a * tiling.cols) for a in range(across)]
    conversions = reads * down * sum(hw.mapping.conversions(n) for n in used)
    multiplies = down * tiling.outputs
    adds = conversions + (0 if tile.bias is None else tiling.outputs)
    bits = jnp.asarray(np.inf if hw.adc is None or hw.adc.bits is None else hw.adc.bits, dtype)
    ideal = jnp.isinf(bits) | (bits == 0)
    each = jnp.where(ideal, 0.0, price.adc_per_level * jnp.exp2(jnp.where(ideal, 1.0, bits)))
    turn = jnp.where(ideal, 0.0, jnp.minimum(price.columns_per_adc, float(tiling.cols)) * price.t_convert)
    return Cost(
        array=array.reshape(batch),
        dac=drives * price.dac,
        adc=conversions * each,
        digital=multiplies * price.multiply + adds * price.add,
        latency=reads * (price.t_read + turn),
        reads=reads,
        drives=drives,
        conversions=conversions,
        multiplies=multiplies,
        adds=adds,
    )


def _array_energy(tile: Tile, x: Float[Array, "batch inputs"], key) -> Float[Array, " batch"]:
    """Energy of all arrays for each vector over ``t_read``, J/s."""
    hw = tile.hardware
    v, weight = tile.voltages(x, key=key)
    v = tile._driven(v, key)
    down, across = tile.tiling.grid
    circuits, (reads, batch, rows) = v.shape[0], v.shape[3:]
    v = jnp.broadcast_to(v, (circuits, down, across, reads, batch, rows))
    v = v.reshape(circuits, down, across, reads * batch, rows)
    g = tile.conductance(key=key)
    pwm = hw.dac is not None and hw.dac.mode == "pwm" and hw.cell is None
    if hw.cell is not None or (hw.wires is not None and not pwm and reads * batch < rows):
        # One axis for all arrays: every level of vmap over the solver is compiled anew.
        each = jax.vmap(lambda g, v: jax.vmap(lambda v: _power(hw, g, v))(v))
        power = each(_flat(g), _flat(jnp.broadcast_to(v, (*g.shape[:3], *v.shape[3:])))).sum(0)
    else:
        power = _ohmic_power(hw, g, v, pwm)
    power = (power.reshape(reads, batch) * _durations(hw, weight)[:, None]).sum(0)
    return jnp.where(tile.converged, power, jnp.nan)


def _flat(x: Float[Array, "planes down across a b"]) -> Float[Array, "arrays a b"]:
    return x.reshape(-1, *x.shape[3:])


def _durations(hw: Hardware, weight: Float[Array, " reads"]) -> Float[Array, " reads"]:
    """Parts of ``t_read`` that the reads take."""
    pulses = 1 if hw.dac is None else hw.dac.pulses(hw.cell is None)
    if pulses == 1:
        return jnp.ones_like(weight)
    if hw.dac.slices is None:
        return jnp.abs(weight)  # slots of the pulse over those of the whole code
    share = jnp.asarray(2.0 ** np.arange(pulses) / (2.0**pulses - 1), weight.dtype)
    return jnp.tile(share, weight.shape[0] // pulses)


def _power(hw: Hardware, g: Float[Array, "rows lines"], v: Float[Array, " rows"]) -> Float[Array, ""]:
    """Power of one array for one vector, W."""
    cells = g if hw.cell is None else hw.cell.replace(g=g)
    if hw.wires is None:
        held = jnp.broadcast_to(v[:, None], g.shape)
        return (held * cells.current(held)).sum()
    sol = solve(cells, hw.wires, left=v)
    return jnp.where(sol.converged, sol.power, jnp.nan)


def _ohmic_power(
    hw: Hardware,
    g: Float[Array, "planes down across rows lines"],
    v: Float[Array, "planes|1 down across vectors rows"],
    pwm: bool,
) -> Float[Array, " vectors"]:
    """Power of all arrays for many vectors, W, through the input conductances; with PWM the mean over ``t_read``."""
    v_read = hw.v_read.astype(g.dtype)
    if hw.wires is None:
        square = v_read * jnp.abs(v) if pwm else v**2
        return jnp.einsum("pdavr,pdar->v", square, _same(g.sum(-1), v))

    def drawn(g):
        sol = jax.vmap(lambda v: solve(g, hw.wires, left=v))(jnp.eye(g.shape[0], dtype=g.dtype))
        return jnp.where(sol.converged[:, None], sol.i_left, jnp.nan)

    y = jax.vmap(drawn)(_flat(g)).reshape(*g.shape[:4], g.shape[3])
    y = _same(y, v)
    if not pwm:
        return jnp.einsum("pdavr,pdars,pdavs->v", v, y, v)
    size, sign = jnp.abs(v), jnp.sign(v)
    both = jnp.minimum(size[..., :, None], size[..., None, :]) * sign[..., :, None] * sign[..., None, :]
    return jnp.asarray(v_read * jnp.einsum("pdars,pdavrs->v", y, both))


def _same(y: Float[Array, "planes ..."], v: Float[Array, "planes|1 ..."]) -> Array:
    """Where all circuits see the same voltages, what they take together."""
    return y if v.shape[0] > 1 else y.sum(0, keepdims=True)
