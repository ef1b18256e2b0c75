"""Measured data of devices: currents after equal pulses, and current against voltage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax.tree import dataclass, leaf, static
from xbar_jax.typing import Array, Float, Scalar


@dataclass(kw_only=True)
class PulseRamps:
    """Currents read at the start and during a train of equal pulses.

    Args:
      i: [ramps, readings] A; NaN after the end of a ramp.
      v: V, of the pulses.
      width: s, of each.
      v_read: V, at which the currents were read.
      k: [readings] pulses before each reading; None: 0, 1, 2, ...
      name: static; for reports.
    """

    i: Float[Array, "ramps readings"] = leaf()
    v: Scalar = leaf()
    width: Scalar = leaf()
    v_read: Scalar = leaf(0.1)
    k: Any = leaf(None)
    name: str = static("ramps")

    @property
    def pulses(self) -> Float[Array, "readings"]:
        """Pulses before each reading."""
        return jnp.arange(jnp.shape(self.i)[1]) if self.k is None else jnp.asarray(self.k)

    @property
    def g_start(self) -> Any:
        """S, the mean of the first readings."""
        return np.mean(np.asarray(self.i)[:, 0]) / float(self.v_read)

    def predicted(self, dev: Any, g: Any = None) -> Float[Array, "ramps readings"]:
        """The currents of a device, A.

        n equal pulses are one of n widths, so all readings are one ``evolve`` of [ramps, readings] cells.

        Args:
          dev: dynamic device.
          g: S, where every ramp starts; each ramp is then scaled by its own first reading. None: each ramp starts at
            its own first reading.
        """
        dtype = jnp.result_type(float)
        i, v_read, width, k = (jnp.asarray(x, dtype) for x in (self.i, self.v_read, self.width, self.pulses))
        first = i[:, :1]
        dev = dev.replace(v_read=v_read)
        state = dev.init(i.shape, dtype=dtype)
        start = first / v_read if g is None else jnp.full_like(first, 1.0) * g
        state = dev.set_conductance(state, jnp.broadcast_to(start, i.shape))
        t = jnp.broadcast_to((k - k[0])[None] * width, i.shape)
        found = dev.conductance(dev.evolve(state, jnp.asarray(self.v, dtype), t)) * v_read
        return found if g is None else found * (first / (start * v_read))

    @property
    def units(self) -> int:
        """How many parts can be held out: ramps, or the readings of a single one."""
        ramps, readings = np.shape(self.i)
        return ramps if ramps > 1 else readings

    def used(self, keep: np.ndarray) -> np.ndarray:
        """[ramps, readings] bool: readings of the parts ``keep`` [units]."""
        at = keep[:, None] if len(self.i) > 1 else keep[None]
        return np.broadcast_to(at, np.shape(self.i)) & np.isfinite(np.asarray(self.i))

    def thinned(self, readings: int) -> tuple[PulseRamps, np.ndarray]:
        """About so many readings of each ramp, the first and the last among them, and which these are."""
        n = np.shape(self.i)[1]
        at = np.unique(np.linspace(0, n - 1, min(n, max(readings, 2))).round().astype(int))
        return self.replace(i=np.asarray(self.i)[:, at], k=np.asarray(self.pulses)[at]), at  # type: ignore[attr-defined]


@dataclass(kw_only=True)
class IVCurve:
    """Current against voltage, in the order it was measured.

    Args:
      v: [readings] V.
      i: [readings] A.
      dwell: s, from one reading to the next; a plain 0: the state does not move.
      name: static; for reports.
    """

    v: Float[Array, "readings"] = leaf()
    i: Float[Array, "readings"] = leaf()
    dwell: Scalar = leaf(0.0)
    name: str = static("I-V curve")

    @property
    def g_start(self) -> Any:
        """S, of the first reading that is at a tenth of the largest voltage or beyond."""
        v, i = np.asarray(self.v, float), np.asarray(self.i, float)
        at = int(np.argmax((np.abs(v) >= 0.1 * np.abs(v).max()) & np.isfinite(i)))
        return i[at] / v[at]

    def predicted(self, dev: Any, g: Any = None) -> Float[Array, "readings"]:
        """The currents of a device, A; between two readings the voltage in their middle is held.

        Args:
          dev: dynamic device.
          g: S, where the curve starts; a fresh device if None.
        """
        dtype = jnp.result_type(float)
        v, dwell = jnp.asarray(self.v, dtype), jnp.asarray(self.dwell, dtype)
        state = dev.init((1, 1), dtype=dtype)
        if g is not None:
            state = dev.set_conductance(state, jnp.full((1, 1), 1.0, dtype) * g)

        if isinstance(self.dwell, (int, float)) and self.dwell == 0:
            return jax.vmap(lambda v: dev.current(state, v[None, None])[0, 0])(v)

        def step(state, xs):
            held, v = xs
            state = dev.evolve(state, held, dwell)
            return state, dev.current(state, v[None, None])[0, 0]

        first = dev.current(state, v[:1, None])[0]
        return jnp.concatenate([first, lax.scan(step, state, (0.5 * (v[1:] + v[:-1]), v[1:]))[1]])

    @property
    def units(self) -> int:
        """How many parts can be held out: the readings."""
        return len(self.v)

    def used(self, keep: np.ndarray) -> np.ndarray:
        """[readings] bool: the readings ``keep``."""
        return keep & np.isfinite(np.asarray(self.i))

    def thinned(self, readings: int) -> tuple[IVCurve, np.ndarray]:
        """All readings: the state passes through each."""
        return self, np.arange(len(self.v))


def load_ramps(file: str | Path, *, v: Scalar, width: Scalar, v_read: Scalar = 0.1) -> PulseRamps:
    """Ramps of pulses from a text file: a column for each ramp, a line for each reading, currents in A.

    A header is allowed; NaN, or nothing, where a ramp has ended.

    Args:
      file: numbers separated by commas, semicolons, tabs or blanks.
      v: V, of the pulses.
      width: s, of each.
      v_read: V, at which the currents were read.

    Raises:
      ValueError: the file holds no such table.
    """
    x = read_table(file, "load_ramps").T
    name = Path(file).name
    if x.shape[1] < 3:
        raise ValueError(f"load_ramps: {file} must have at least 3 lines of currents, got {x.shape[1]}")
    if not (np.isfinite(x[:, 0]) & (x[:, 0] != 0)).all():
        raise ValueError(f"load_ramps: {file}: every ramp must begin with a current, got {x[:, 0].tolist()}")
    return PulseRamps(i=x, v=v, width=width, v_read=v_read, name=name)


def load_iv(file: str | Path, *, dwell: Scalar = 0.0) -> IVCurve:
    """A curve of current against voltage from a text file of two columns: V, A. A header is allowed.

    Args:
      file: numbers separated by commas, semicolons, tabs or blanks.
      dwell: s, from one reading to the next; 0: the state does not move.

    Raises:
      ValueError: the file holds no such table.
    """
    x = read_table(file, "load_iv")
    if x.shape[1] != 2 or len(x) < 3:
        raise ValueError(f"load_iv: {file} must have two columns, V and A, and at least 3 lines, got {list(x.shape)}")
    if not np.isfinite(x).all():
        raise ValueError(f"load_iv: {file}: voltages and currents must be finite")
    return IVCurve(v=x[:, 0], i=x[:, 1], dwell=dwell, name=Path(file).name)


def read_table(file: str | Path, name: str) -> np.ndarray:
    """[lines, columns] of a text file whose first line may be a header; NaN where an entry is empty."""
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"{name}: {file} does not exist" if not path.exists() else f"{name}: {file} is not a file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{name}: {file} is not a text file") from None
    table: list[list[float]] = []
    header = False
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip("\r\n ")
        if not line:
            continue
        mark = next((c for c in ",;\t" if c in line), None)
        try:
            row = [float(e) if e.strip() else np.nan for e in line.split(mark)]
        except ValueError:
            if table or header:
                raise ValueError(f"{name}: {file}, line {number}: {line[:30]!r} is not a line of numbers") from None
            header = True
            continue
        if table and len(row) != len(table[0]):
            raise ValueError(f"{name}: {file}, line {number}: {len(row)} numbers, the lines above have {len(table[0])}")
        table.append(row)
    if not table:
        raise ValueError(f"{name}: {file} holds no numbers")
    return np.array(table)
