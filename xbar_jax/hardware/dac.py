"""The converter at the rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax import random
from xbar_jax.hardware.quantize import cell_uniform, check_finite, code, half, is_ideal, passed, positive
from xbar_jax.tree import dataclass, leaf, static
from xbar_jax.typing import Array, Float, Int, Key, Scalar

_ROUNDING, _NOISE = 0, 1


class Reads(NamedTuple):
    """What one input vector asks of the arrays: one read of them or several, whose results are added.

    Attributes:
      v: [reads, *batch, rows] V.
      weight: [reads], factor of each read, after the ADC.
    """

    v: Float[Array, "reads *batch rows"]
    weight: Float[Array, " reads"]


@dataclass(kw_only=True)
class DAC:
    """Converter at the rows: x in units of the input range r becomes a voltage within +- v_read.

        code = round(clip(x / r, -1, 1) n),    v = v_read code / n,    n = 2^(bits - 1) - 1

    With ``mode="pwm"`` a row is held at +- v_read for |code| of n slots, and the charge is what counts. Ohmic cells
    give the same charge as at the voltage v, so that one read stands for it. Other cells are read at +- v_read, once
    for each bit of |code|, the pulses being 1, 2, 4, ... slots long; sum of weight x current is the charge over n
    slots. That is exact for drivers that send a code as such pulses, and for any driver where wires are ideal.

    Slices send the bits of |code| in several reads, from the least significant on; a slice of value d of k bits is the
    voltage +- v_read d / (2^k - 1). Every slice is converted by the ADC on its own, and added with its power of two.

    Gradient: straight-through, as of :func:`xbar_jax.hardware.quantize`. Where there are several reads, each passes the
    same share of it (a surrogate).

    Args:
      bits: resolution; inf, None or 0 is ideal (no clipping either).
      input_range: largest |x| that is converted; a layer or tile keeps its own, this is where it starts.
      noise: standard deviation of the noise of a driver in one read, relative to v_read; None: without. In a tile every
        line of every array has a driver of its own.
      mode: "amplitude" or "pwm".
      phases: "bipolar" drives both signs at once; "two" reads the positive inputs, then the negative ones as positive
        voltages, and subtracts the results.
      rounding: "nearest" (halves to even) or "stochastic".
      slices: bits of a slice of the input, None: all in one.
      code_bits: static size of the codes, sign included: ``bits`` <= code_bits. Required where the number of reads
        depends on it: with slices, and for PWM of cells that are not ohmic.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> dac = xb.DAC(bits=8, code_bits=8, slices=1, phases="two")
      >>> dac.conversions
      14
      >>> dac.codes(jnp.array([0.5, -3.0]), 1.0)
      Array([  64, -127], dtype=int32)
    """

    bits: Scalar | None = leaf(math.inf, absent=math.inf)
    input_range: Scalar = leaf(1.0)
    noise: Scalar | None = leaf(None)
    mode: str = static("amplitude")
    phases: str = static("bipolar")
    rounding: str = static("nearest")
    slices: int | None = static(None)
    code_bits: int | None = static(None)

    def numbers(self):
        """Yields (name, value, what must hold, in words)."""
        bits, most = math.inf if self.bits is None else self.bits, self.code_bits
        if most is None:
            yield "bits", bits, lambda b: (b > 1) | (b == 0), "> 1 (inf, None or 0 is ideal)"
        else:
            yield "bits", bits, lambda b: (b > 1) & (b <= most), f"> 1 and <= code_bits, {most}"
        yield "input_range", self.input_range, lambda x: (x > 0) & (x < math.inf), "> 0 and finite"
        if self.noise is not None:
            yield "noise", self.noise, lambda x: (x >= 0) & (x < math.inf), ">= 0 and finite"

    def check(self, name: str) -> None:
        """Raises where a static parameter is out of its range."""
        choices = {
            "mode": ("amplitude", "pwm"),
            "phases": ("bipolar", "two"),
            "rounding": ("nearest", "stochastic"),
        }
        for field, allowed in choices.items():
            if getattr(self, field) not in allowed:
                got = getattr(self, field)
                raise ValueError(f"{name}: dac.{field} must be {allowed[0]!r} or {allowed[1]!r}, got {got!r}")
        for field, least in (("slices", 1), ("code_bits", 2)):
            n = getattr(self, field)
            if n is not None and (not isinstance(n, (int, np.integer)) or not least <= n <= 24):
                raise ValueError(f"{name}: dac.{field} must be a whole number from {least} to 24, or None, got {n!r}")
        if self.slices is not None and self.code_bits is None:
            raise ValueError(f"{name}: dac.code_bits must be given with dac.slices, got None")

    @property
    def draws(self) -> bool:
        """Some part is drawn when weights are programmed."""
        return False

    @property
    def needs_key(self) -> bool:
        """Some part is drawn at every read."""
        return self.noise is not None or self.rounding == "stochastic"

    @property
    def conversions(self) -> int:
        """Conversions of a column for one vector: slices times phases."""
        slices = 1 if self.slices is None else -(-(self.code_bits - 1) // self.slices)
        return slices * (2 if self.phases == "two" else 1)

    def pulses(self, linear: bool) -> int:
        """Reads of the arrays for one conversion: 1, or the bits of a code that is sent as pulses."""
        if self.mode != "pwm" or linear:
            return 1
        if self.code_bits is None:
            raise ValueError("DAC: code_bits must be given for PWM of cells that are not ohmic, got None")
        return self.code_bits - 1 if self.slices is None else self.slices

    def codes(
        self,
        x: Float[Array, "*batch rows"],
        r: Scalar,
        *,
        key: Key[Array, ""] | None = None,
        row: Int[Array, "..."] | None = None,
    ) -> Int[Array, "*batch rows"]:
        """Signed integer codes, int32, for inputs; with ``pwm``, the slots of the pulse.

        Arguments as of :meth:`reads`; ``row`` counts from 0 by default. ``bits`` must be finite; under a
        trace, where that cannot be seen, the codes of an ideal converter are those of 8 bits and mean nothing.

        Raises:
          ValueError: ``bits`` is known to be ideal.
        """
        self.check("DAC.codes")
        check_finite("DAC.codes", "dac.bits", self.bits)
        x = jnp.asarray(x)
        u = self._uniform(x, row, key)
        return code(x, positive(jnp.asarray(r, x.dtype)), self._bits(x.dtype), u).astype(jnp.int32)

    def voltage_of(self, codes: Int[Array, "*batch rows"], v_read: Scalar, *, linear: bool = True, dtype=None) -> Reads:
        """The reads that codes ask for: what :meth:`reads` gives for the same codes, bit for bit, without noise.

        Args:
          codes: signed integer codes.
          v_read: V.
          linear: the cells are ohmic.
          dtype: of the voltages; default JAX's default float.

        Raises:
          ValueError: ``bits`` is known to be ideal.
        """
        check_finite("DAC.voltage_of", "dac.bits", self.bits)
        n = jnp.asarray(codes).astype(jnp.result_type(float) if dtype is None else dtype)
        v_read = jnp.asarray(v_read, n.dtype)
        return self._reads(n, n * _unit(v_read, self._bits(n.dtype)), v_read, linear)

    def reads(
        self,
        x: Float[Array, "*batch rows"],
        r: Float[Array, "..."],
        v_read: Scalar,
        *,
        linear: bool,
        row: Int[Array, "..."],
        key: Key[Array, ""] | None,
    ) -> Reads:
        """Voltages for inputs.

        Args:
          x: inputs.
          r: input range, broadcastable to ``x``.
          v_read: V.
          linear: the cells are ohmic.
          row: global index of each row, broadcastable to ``x``, by which noise is indexed together with the vector.
          key: required where ``needs_key``.

        Returns:
          :class:`Reads`, ordered by phase, slice and pulse.
        """
        self.check("DAC.reads")
        x = jnp.asarray(x)
        v_read, r = jnp.asarray(v_read, x.dtype), positive(jnp.asarray(r, x.dtype))
        v, n = _drive(x, r, v_read, self._bits(x.dtype), self._uniform(x, row, key))
        reads = self._reads(n, v, v_read, linear)
        return (
            reads
            if self.noise is None
            else reads._replace(v=self.driven(reads.v, v_read, row=row, key=key, linear=linear))
        )

    def driven(
        self,
        v: Float[Array, "reads *batch rows"],
        v_read: Scalar,
        *,
        linear: bool,
        row: Int[Array, "..."],
        key: Key[Array, ""] | None,
    ) -> Float[Array, "reads *batch rows"]:
        """Voltages with the noise of their drivers, V; arguments as of :meth:`reads`, the key that of these drivers.

        The pulses of one code share their noise: it is the error of a level, not of a slot.
        """
        if self.noise is None:
            return v
        index = _index(v.shape[1:], row)
        each = jnp.stack([random.cell_normal(_key(key), *index, _NOISE + k, v.dtype) for k in range(self.conversions)])
        each = jnp.repeat(each, self.pulses(linear), axis=0)
        return v + jnp.asarray(self.noise, v.dtype) * jnp.asarray(v_read, v.dtype) * each

    def integrate(
        self, i: Float[Array, "*outs reads batch cols"], weight: Float[Array, " reads"], *, linear: bool
    ) -> tuple[Float[Array, "*outs conversions batch cols"], Float[Array, " conversions"]]:
        """The currents that are converted, A, from those of every read: the pulses of one code are one charge.

        The mean over the time of the code, sum_k 2^k i_k / sum_k 2^k; with one pulse for each conversion, ``i`` itself.
        """
        pulses = self.pulses(linear)
        if pulses == 1:
            return i, weight
        share = jnp.asarray(2.0 ** np.arange(pulses) / (2.0**pulses - 1), i.dtype)
        i = i.reshape(*i.shape[:-3], -1, pulses, *i.shape[-2:])
        return jnp.einsum("p,...pbc->...bc", share, i), weight.reshape(-1, pulses).sum(1)

    def _bits(self, dtype):
        return jnp.asarray(math.inf if self.bits is None else self.bits, dtype)

    def _uniform(self, x, row, key):
        if self.rounding != "stochastic":
            return None
        row = jnp.arange(x.shape[-1], dtype=jnp.int32) if row is None else row
        return cell_uniform(_key(key), *_index(x.shape, row), _ROUNDING, x.dtype)

    def _reads(self, n, v, v_read, linear: bool) -> Reads:
        """Reads for codes ``n`` whose voltages are ``v``, which carry the gradient."""
        if self.phases == "two":
            parts = [
                (jnp.maximum(n, 0.0), jnp.maximum(v, 0.0), 1.0),
                (jnp.maximum(-n, 0.0), jnp.maximum(-v, 0.0), -1.0),
            ]
        else:
            parts = [(n, v, 1.0)]
        if self.slices is None and self.pulses(linear) == 1:
            return Reads(v=jnp.stack([v for _, v, _ in parts]), weight=jnp.asarray([s for *_, s in parts], v.dtype))
        lines, weights = [], []
        for n, v, sign in parts:
            reads = self._split(n, v, v_read, linear)
            lines.append(reads.v)
            weights.append(sign * reads.weight)
        return Reads(v=jnp.concatenate(lines), weight=jnp.concatenate(weights))

    def _split(self, n, v, v_read, linear: bool) -> Reads:
        """The reads of one phase, one for each slice, or for each bit of a slice that is sent as pulses."""
        k = self.code_bits - 1 if self.slices is None else self.slices
        slices, pulses, full = -(-(self.code_bits - 1) // k), self.pulses(linear), 2**k - 1
        number, sign = jnp.abs(n).astype(jnp.int32), jnp.sign(n) * v_read
        levels, sizes = [], []
        for j in range(slices):
            part = (number >> (k * j)) & full
            for p in range(pulses):
                share = part.astype(v.dtype) / full if pulses == 1 else ((part >> p) & 1).astype(v.dtype)
                levels.append(jax.lax.stop_gradient(share * sign))
                sizes.append(2.0 ** (k * j) * full if pulses == 1 else 2.0 ** (k * j + p))
        steps = half(self._bits(v.dtype))
        carried = (v - jax.lax.stop_gradient(v)) * (steps / sum(sizes))
        return Reads(v=jnp.stack(levels) + carried[None], weight=jnp.asarray(sizes, v.dtype) / steps)


@jax.custom_jvp
def _drive(x, r, v_read, bits, u):
    """Voltage and code of one read, both floating point."""
    n = code(x, r, bits, u)
    return jnp.where(is_ideal(bits), x / r * v_read, n * _unit(v_read, bits)), n


@_drive.defjvp
def _drive_jvp(primals, tangents):
    # v = v_read q / r with q the quantised input, whose tangent is straight-through.
    x, r, v_read, bits, _ = primals
    dx, dr, dv_read = tangents[:3]
    v, n = _drive(*primals)
    share = jnp.where(is_ideal(bits), x / r, n / half(bits))
    dq = passed(x, r, is_ideal(bits), dx, dr)
    return (v, n), (share * dv_read + v_read * (dq - share * dr) / r, jnp.zeros_like(n))


def _unit(v_read, bits):
    """Voltage of one step."""
    return v_read / jax.lax.optimization_barrier(half(bits))


def _index(shape, row):
    vector = jnp.zeros(shape, jnp.int32)
    if len(shape) > 1:
        vector = vector + jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 2)
    return vector, jnp.broadcast_to(jnp.asarray(row, jnp.int32), shape)


def _key(key):
    if key is None:
        raise ValueError("DAC: key must be given, since noise or stochastic rounding is drawn; got None")
    return key
