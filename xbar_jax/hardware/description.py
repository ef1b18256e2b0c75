"""The description of an array with its periphery."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from xbar_jax.circuits import Wires
from xbar_jax.hardware.converters import ADC, DAC
from xbar_jax.hardware.mapping import Differential
from xbar_jax.tree import dataclass, is_traced, leaf, static
from xbar_jax.typing import Scalar


@dataclass(kw_only=True)
class Hardware:
    """One array and what surrounds it. Every number is a leaf; sizes are static.

    Args:
      rows, cols: largest array; a bigger matrix is split over several.
      device: the cells, a programmed device such as :class:`xbar_jax.devices.Gaussian`; None holds any
        conductance exactly.
      wires: None is ideal (no resistance anywhere).
      dac, adc: None is ideal.
      mapping: from weights to conductances.
      v_read: V, largest read voltage.

    Example:
      >>> import xbar_jax as xb
      >>> hw = xb.Hardware(rows=128, cols=128, wires=xb.Wires(r_word=1.0, r_bit=1.0), dac=xb.DAC(bits=8))
      >>> hw = hw.replace(v_read=0.1)
    """

    rows: int = static(256)
    cols: int = static(256)
    device: Any = leaf(None)
    wires: Wires | None = leaf(None)
    dac: DAC | None = leaf(None)
    adc: ADC | None = leaf(None)
    mapping: Differential = leaf(Differential())
    v_read: Scalar = leaf(0.2)

    def check(self, name: str) -> None:
        """Raises where a size, a type or a concrete number is out of its range."""
        for field in ("rows", "cols"):
            n = getattr(self, field)
            if not isinstance(n, (int, np.integer)) or n < 1:
                raise ValueError(f"{name}: hardware.{field} must be a whole number >= 1, got {n!r}")
        for field, kind in (("wires", Wires), ("dac", DAC), ("adc", ADC)):
            value = getattr(self, field)
            if value is not None and not isinstance(value, kind):
                raise TypeError(
                    f"{name}: hardware.{field} must be an xb.{kind.__name__} or None, got {type(value).__name__}"
                )
        for field in ("program", "read"):
            if self.device is not None and not callable(getattr(self.device, field, None)):
                raise TypeError(
                    f"{name}: hardware.device must be a programmed device, got {type(self.device).__name__}"
                )
        if not hasattr(self.mapping, "targets"):
            raise TypeError(f"{name}: hardware.mapping must be an xb.mapping.*, got {type(self.mapping).__name__}")
        self.mapping.check(name)
        _check_number(name, "v_read", self.v_read, lambda v: (v > 0) & np.isfinite(v), "> 0 and finite, in V")
        for field in ("dac", "adc"):
            converter = getattr(self, field)
            bits = None if converter is None else converter.bits
            _check_number(name, f"{field}.bits", bits, lambda b: (b > 1) | (b == 0), "> 1 (inf, None or 0 is ideal)")
        if self.dac is not None:
            _check_number(
                name, "dac.input_range", self.dac.input_range, lambda r: (r > 0) & np.isfinite(r), "> 0 and finite"
            )
        if self.adc is not None:
            _check_number(
                name, "adc.full_scale", self.adc.full_scale, lambda f: (f > 0) & np.isfinite(f), "> 0 and finite, in A"
            )


def _check_number(name: str, field: str, value: Any, holds, want: str) -> None:
    if value is None or is_traced(value):
        return
    number = np.asarray(value)
    if not np.all(holds(number)):
        raise ValueError(f"{name}: hardware.{field} must be {want}, got {jnp.asarray(value)}")
