"""The description of an array with its periphery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.circuits import Wires
from xbar_jax.hardware.adc import ADC
from xbar_jax.hardware.dac import DAC
from xbar_jax.hardware.mapping import Differential
from xbar_jax.tree import dataclass, is_traced, leaf, static
from xbar_jax.typing import Array, Bool, Scalar

COMPENSATION = ("global", "column")


@dataclass(kw_only=True)
class Hardware:
    """One array and what surrounds it. Every number is a leaf; sizes are static.

    Args:
      rows, cols: largest array; a bigger matrix is split over several.
      device: the cells, a programmed device such as :class:`xbar_jax.devices.PCM`; None holds any conductance exactly.
      cell: current law of the cells, such as ``xb.cells.Sinh(None, 3.0)``, whose ``g`` is what the device holds; None is
        ohmic.
      wires: None is ideal (no resistance anywhere).
      dac, adc: None is ideal.
      mapping: from weights to conductances.
      v_read: V, largest read voltage.
      bias: "digital" adds a bias to the outputs; "array" holds it in one more row, whose line is driven with the whole
        input range.
      compensation: of drift, "global" (one factor for each array), "column", or None; see
        :mod:`xbar_jax.hardware.compensation`.

    The window of the mapping must be within that of the device's statistics (``device.window()``, where it has one).

    Example:
      >>> import xbar_jax as xb
      >>> hw = xb.Hardware(rows=128, cols=128, wires=xb.Wires(r_word=1.0, r_bit=1.0), dac=xb.DAC(bits=8))
      >>> hw = hw.replace(v_read=0.1)
    """

    rows: int = static(256)
    cols: int = static(256)
    device: Any = leaf(None)
    cell: Any = leaf(None)
    wires: Wires | None = leaf(None)
    dac: DAC | None = leaf(None)
    adc: ADC | None = leaf(None)
    mapping: Any = leaf(Differential())
    v_read: Scalar = leaf(0.2)
    bias: str = static("digital")
    compensation: str | None = static(None)

    @property
    def draws(self) -> bool:
        """Something is drawn when weights are programmed or when they are read."""
        parts = (self.dac, self.adc)
        return self.device is not None or any(p is not None and (p.needs_key or p.draws) for p in parts)

    @property
    def bias_rows(self) -> int:
        """Rows of the matrix on the arrays that hold a bias."""
        return int(self.bias == "array")

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
        if self.dac is not None:
            self.dac.check(name)
        for field in ("program", "read", "numbers"):
            if self.device is not None and not callable(getattr(self.device, field, None)):
                raise TypeError(
                    f"{name}: hardware.device must be a programmed device, got {type(self.device).__name__}"
                )
        if self.cell is not None and not (callable(getattr(self.cell, "current", None)) and hasattr(self.cell, "g")):
            raise TypeError(f"{name}: hardware.cell must be an xb.cells.* with g, got {type(self.cell).__name__}")
        if self.bias not in ("digital", "array"):
            raise ValueError(f"{name}: hardware.bias must be 'digital' or 'array', got {self.bias!r}")
        if self.compensation is not None and self.compensation not in COMPENSATION:
            raise ValueError(
                f"{name}: hardware.compensation must be one of {', '.join(COMPENSATION)}, or None, got {self.compensation!r}"
            )
        if not hasattr(self.mapping, "targets"):
            raise TypeError(f"{name}: hardware.mapping must be an xb.mapping.*, got {type(self.mapping).__name__}")
        self.mapping.check(name)
        if self.cols <= self.mapping.extra_cols:
            raise ValueError(
                f"{name}: hardware.cols must be > {self.mapping.extra_cols} for this mapping, got {self.cols}"
            )
        for field, value, holds, want in self._numbers():
            if not is_traced(value) and not np.all(holds(np.asarray(value))):
                raise ValueError(f"{name}: hardware.{field} must be {want}, got {np.asarray(value)}")
        for field, value, (low, high), want in self._windows():
            if not is_traced(value, low, high) and not np.all(
                within(np.asarray(value, float), np.asarray(low, float), np.asarray(high, float))
            ):
                raise ValueError(f"{name}: hardware.{field} must be {want}, got {np.asarray(value)} S")

    def valid(self) -> Bool[Array, ""]:
        """The facts of :meth:`check` about numbers as one flag, for use under a trace."""
        found = [jnp.all(holds(jnp.asarray(value))) for _, value, holds, _ in self._numbers()]
        single = lambda x: jnp.asarray(x).astype(jnp.float32)
        for _, value, (low, high), _ in self._windows():
            found.append(jnp.all(within(single(value), single(low), single(high))))
        return jnp.stack(found).all()

    def _windows(self) -> Iterator[tuple[str, Any, tuple[Any, Any], str]]:
        """Yields (field, value, limits in S, what must hold) where the statistics of the device hold in a window only."""
        limits = getattr(self.device, "window", lambda: None)()
        if limits is None:
            return
        kind = type(self.device).__name__
        number = lambda x: "traced" if is_traced(x) else f"{float(np.min(np.asarray(x))):.4g}"
        want = f"within the window of the statistics of {kind}, {number(limits[0])} to {number(limits[1])} S (hardware.device)"
        for field in ("g_min", "g_max"):
            yield f"mapping.{field}", getattr(self.mapping, field), limits, want

    def _numbers(self) -> Iterator[tuple[str, Any, Callable[[Any], Any], str]]:
        """Yields (field, value, what must hold, in words) for every number but the mapping's own."""
        positive = lambda x: (x > 0) & (x < np.inf)
        yield "v_read", self.v_read, positive, "> 0 and finite, in V"
        for field in ("dac", "adc", "device"):
            part = getattr(self, field)
            for name, value, holds, want in () if part is None else part.numbers():
                yield f"{field}.{name}", value, holds, want
        for path, r in jax.tree_util.tree_leaves_with_path(self.wires):
            yield f"wires{jax.tree_util.keystr(path)}", r, lambda r: r >= 0, ">= 0 ohm (inf is open)"
        for path, value in jax.tree_util.tree_leaves_with_path(self.cell):
            yield f"cell{jax.tree_util.keystr(path)}", value, lambda x: (x >= 0) & (x < np.inf), ">= 0 and finite"


def within(x: Any, low: Any, high: Any) -> Any:
    """low <= x <= high, S, but for what rounding to single precision makes of equal numbers."""
    return (x >= low - 1e-6 * high) & (x <= high + 1e-6 * high)
