"""Faults and ageing of a dynamic device: stuck cells, finite levels, drift, retention, endurance, read disturb.

Each effect has a part of the state of its own and changes what is read, never what another effect holds. With g the
conductance that the device itself has, the cells read

    g -> levels -> drift -> retention -> endurance -> stuck.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax import random
from xbar_jax.devices.ageing import Ageing, Drift
from xbar_jax.devices.check import check_number
from xbar_jax.tree import dataclass, is_traced, leaf
from xbar_jax.typing import Array, Cellwise, Float, Int, Key, Scalar

# Kinds of a stuck cell.
HEALTHY, ON, OFF, OPEN, VALUE = range(5)
# Parts of the key of init, far from the draws of the device itself.
_STUCK, _DRIFT = 1_000_001, 1_000_002


@dataclass(kw_only=True)
class Stuck:
    """Cells that conduct one thing for ever, whatever is done to them. They are ohmic; on and off are the ends of the
    range of a nominal cell.

    One uniform number u of each cell decides between the kinds, so that all fractions are met jointly:

        on: u < on,  off: on <= u < on + off,  open: ... + open,  value: ... + value,  else healthy.

    Args:
      on, off, open, value: probabilities, whose sum is at most 1: one number, or [rows, cols]. A mask, [rows, cols] of
        bool, is a probability of 0 or 1; if all that is given are masks no key is needed. A cell in several masks is of
        the first kind named.
      g: S, of the cells stuck at a value; one number or [rows, cols].
    """

    on: Cellwise = leaf(0.0)
    off: Cellwise = leaf(0.0)
    open: Cellwise = leaf(0.0)
    value: Cellwise = leaf(0.0)
    g: Cellwise = leaf(0.0)

    def _shares(self) -> tuple[Any, ...]:
        return self.on, self.off, self.open, self.value

    @property
    def needs_key(self) -> bool:
        """Some kind is drawn: anything but a plain 0 or a mask."""
        return not all(_is_mask(p) or (isinstance(p, (int, float)) and p == 0) for p in self._shares())

    def draw(self, key: Any, index: tuple[Array, Array], dtype: Any) -> Int[Array, "rows cols"]:
        """The kind of each cell: HEALTHY, ON, OFF, OPEN or VALUE."""
        shape = index[0].shape
        u = jnp.zeros(shape, dtype)
        if key is not None:
            bits = random.cell_bits(jax.random.fold_in(key, _STUCK), *index, 0) >> 9
            u = ((bits.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)).astype(dtype)
        kind, below = jnp.full(shape, HEALTHY, jnp.int32), jnp.zeros(shape, dtype)
        for code, p in zip((ON, OFF, OPEN, VALUE), self._shares(), strict=True):
            above = below + jnp.broadcast_to(jnp.asarray(p).astype(dtype), shape)
            kind = jnp.where((u >= below) & (u < above), code, kind)
            below = above
        return kind

    def check(self, shape: tuple[int, int]) -> None:
        """Raises for a number that has no meaning."""
        for name in ("on", "off", "open", "value", "g"):
            check_number("Stuck", name, getattr(self, name), shape, low=0.0, high=1.0 if name != "g" else np.inf)
        if not is_traced(*self._shares()):
            drawn = [np.asarray(p, float) for p in self._shares() if not _is_mask(p)]
            total = np.max(sum(drawn, np.zeros(())))
            if total > 1 + 1e-6:
                raise ValueError(f"Stuck: on + off + open + value must be at most 1, got {total:g}")


@dataclass(kw_only=True)
class FaultyState:
    """State of cells with faults; what a device does not have is None.

    Attributes:
      inner: state of the device itself.
      kind: [rows, cols] int32, what a cell is stuck at (0: nothing).
      nu: [rows, cols] exponent of drift.
      age: [rows, cols] s, since the cell was written.
      cycles: [rows, cols] full cycles of switching: half of the way that the conductance went, in ranges.
      reads: [rows, cols] reads by :meth:`Faulty.read`.
    """

    inner: Any = leaf()
    kind: Int[Array, "rows cols"] | None = leaf(None)
    nu: Float[Array, "rows cols"] | None = leaf(None)
    age: Float[Array, "rows cols"] | None = leaf(None)
    cycles: Float[Array, "rows cols"] | None = leaf(None)
    reads: Float[Array, "rows cols"] = leaf()

    @property
    def x(self) -> Float[Array, "rows cols"]:
        """State variable of the device itself."""
        return self.inner.x


class Read(NamedTuple):
    """Attributes:
    i: [rows, cols] A.
    state: after the read.
    """

    i: Float[Array, "rows cols"]
    state: FaultyState


@dataclass(kw_only=True)
class Faulty:
    """A dynamic device with faults; used like the device itself.

    A voltage moves the device as ever, adds its time to the age of the cells and their switching to their cycles. A cell
    that is rewritten is young again: the age falls by e^-(|change of g|/range/refresh). A stuck cell stays what it is
    under any programming, and a worn one too.

    Args:
      device: any dynamic device.
      stuck: :class:`Stuck`, drawn by ``init``.
      levels: how many conductances a cell can have, evenly spaced over the range of a nominal cell, or these
        conductances [n], S; what is read is the nearest. The device underneath stays continuous, and derivatives pass
        as if there were no levels.
      drift: :class:`Drift`.
      retention: :class:`Ageing` with time.
      endurance: :class:`Ageing` with cycles.
      t_read: s, how long a read takes.
      refresh: share of the range that makes a rewritten cell young.

    Example:
      >>> import jax, xbar_jax as xb
      >>> dev = xb.devices.Faulty(device=xb.devices.VTEAM(r_on=100.0, r_off=16e3), levels=4)
      >>> state = dev.init((1, 5))
      >>> state = dev.set_conductance(state, jax.numpy.linspace(0, 1e-2, 5)[None])
      >>> print((1e3 * dev.conductance(state)).round(4))  # mS
      [[ 0.0625  3.375   3.375   6.6875 10.    ]]
    """

    device: Any = leaf()
    stuck: Stuck | None = leaf(None)
    levels: Any = leaf(None)
    drift: Drift | None = leaf(None)
    retention: Ageing | None = leaf(None)
    endurance: Ageing | None = leaf(None)
    t_read: Cellwise = leaf(1e-7)
    refresh: Cellwise = leaf(0.01)

    @property
    def polarity(self) -> int:
        """That of the device."""
        return self.device.polarity

    @property
    def ohmic(self) -> bool:
        """That of the device."""
        return self.device.ohmic

    @property
    def v_read(self) -> Any:
        """That of the device."""
        return self.device.v_read

    @property
    def needs_key(self) -> bool:
        """A stochastic part of the device is present."""
        return self.device.needs_key

    def conductance_range(self) -> tuple[Array, Array]:
        """That of a nominal device, S."""
        return self.device.conductance_range()

    # State.

    def init(
        self,
        shape: tuple[int, int],
        *,
        key: Key[Array, ""] | None = None,
        row: Scalar = 0,
        col: Scalar = 0,
        dtype: Any = jnp.float32,
        **settings: Any,
    ) -> FaultyState:
        """Cells with their faults drawn; the device itself is drawn as it would be without them.

        Args:
          shape: (rows, cols).
          key: typed key; needed where a fault, or the spread of the device, is drawn.
          row, col: global index of the array's first cell.
          dtype: of the state.
          settings: what the ``init`` of the device takes besides.
        """
        self.check(shape)
        if self._draws:
            if key is None:
                raise TypeError("Faulty.init: key must be given, faults are to be drawn")
            random.check_one_key("init", key)
        inner = self.device.init(shape, key=key, row=row, col=col, dtype=dtype, **settings)
        index = random.array_index(tuple(shape), row, col)
        zero = jnp.zeros(shape, dtype)
        nu = None
        if self.drift is not None:
            nu = zero + jnp.asarray(self.drift.nu, dtype)
            if self.drift.nu_std is not None and key is not None:
                n = random.cell_normal(jax.random.fold_in(key, _DRIFT), *index, 0, dtype)
                nu = nu + jnp.asarray(self.drift.nu_std, dtype) * n
        return FaultyState(
            inner=inner,
            kind=None if self.stuck is None else self.stuck.draw(key if self.stuck.needs_key else None, index, dtype),
            nu=nu,
            age=None if self.drift is None and self.retention is None else zero,
            cycles=None if self.endurance is None else zero,
            reads=zero,
        )

    @property
    def _draws(self) -> bool:
        drifts = self.drift is not None and self.drift.nu_std is not None
        return drifts or (self.stuck is not None and self.stuck.needs_key)

    def check(self, shape: tuple[int, int]) -> None:
        """Raises for a concrete number that has no meaning."""
        if self.stuck is not None:
            self.stuck.check(shape)
        if self.levels is not None:
            check_levels(self.levels)
        if self.drift is not None:
            for name in ("nu", "nu_std"):
                if getattr(self.drift, name) is not None:
                    check_number("Drift", name, getattr(self.drift, name), shape, low=0.0)
            check_number("Drift", "t0", self.drift.t0, shape, low=0.0, strict=True)
        for name in ("retention", "endurance"):
            if getattr(self, name) is not None:
                getattr(self, name).check(name, shape)
        check_number("Faulty", "t_read", self.t_read, shape, low=0.0)
        check_number("Faulty", "refresh", self.refresh, shape, low=0.0, strict=True)

    def set_conductance(self, state: FaultyState, g: Float[Array, "rows cols"]) -> FaultyState:
        """Writes the device; what is read may differ, by the faults. Counts as one way of switching."""
        inner = self.device.set_conductance(state.inner, g)
        state = self._switched(state, inner)
        return state if state.age is None else state.replace(age=jnp.zeros_like(state.age))

    def aged(self, state: FaultyState, *, t: Any = 0.0, cycles: Any = 0.0) -> FaultyState:
        """The state ``t`` seconds at 0 V and so many cycles of switching later."""
        if not is_traced(t, cycles) and (np.min(t) < 0 or np.min(cycles) < 0):
            raise ValueError(f"aged: t and cycles must be >= 0, got {np.min(t)} s and {np.min(cycles)}")
        more = lambda old, new: None if old is None else old + jnp.asarray(new, old.dtype)
        return state.replace(age=more(state.age, t), cycles=more(state.cycles, cycles))

    # Electrical behaviour.

    def conductance(self, state: FaultyState) -> Float[Array, "rows cols"]:
        """I(v_read)/v_read, S, with all faults."""
        g = self._worn(state, self.device.conductance(state.inner))
        return g if state.kind is None else jnp.where(state.kind == HEALTHY, g, self._stuck_at(state))

    def current(self, state: FaultyState, v: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """Current at ``v`` volt, A: that of the device, scaled as its conductance is; a stuck cell is ohmic."""
        i = self.device.current(state.inner, v)
        v = jnp.asarray(v, i.dtype)
        if self._changes:
            own = self.device.conductance(state.inner)
            g, flows = self._worn(state, own), own > 0
            i = jnp.where(flows, i * (g / jnp.where(flows, own, 1.0)), g * v)
        return i if state.kind is None else jnp.where(state.kind == HEALTHY, i, self._stuck_at(state) * v)

    @property
    def _changes(self) -> bool:
        return any(x is not None for x in (self.levels, self.drift, self.retention, self.endurance))

    def _worn(self, state, g):
        """``g`` with all faults but stuck cells."""
        if not self._changes:
            return g
        low, high = (jnp.asarray(x, g.dtype) for x in self.conductance_range())
        if self.levels is not None:
            # The straight-through derivative; g - g is exactly 0.
            g = jax.lax.stop_gradient(nearest_level(g, self.levels, low, high)) + (g - jax.lax.stop_gradient(g))
        near_on = g > jnp.sqrt(low) * jnp.sqrt(high)
        if self.drift is not None:
            t0 = jnp.asarray(self.drift.t0, g.dtype)
            g = g * (jnp.maximum(state.age, t0) / t0) ** -state.nu
        if self.retention is not None:
            g = self.retention.aged(g, state.age, near_on)
        if self.endurance is not None:
            g = self.endurance.aged(g, state.cycles, near_on)
        return g

    def _stuck_at(self, state):
        low, high = (jnp.asarray(x, state.reads.dtype) for x in self.conductance_range())
        g = jnp.where(state.kind == ON, high, jnp.where(state.kind == OFF, low, 0.0))
        if self.stuck is not None:
            g = jnp.where(state.kind == VALUE, jnp.asarray(self.stuck.g, g.dtype), g)
        return g

    def read(
        self,
        state: FaultyState,
        v: Any = None,
        *,
        n: Scalar = 1,
        key: Key[Array, ""] | None = None,
        row: Scalar = 0,
        col: Scalar = 0,
    ) -> Read:
        """The current of a read, and the state that ``n`` such reads leave: the device moves as under any voltage.

        Args:
          state: of the array.
          v: V; ``v_read`` if None.
          n: how many reads, each of ``t_read`` seconds.
          key, row, col: as in :meth:`evolve`.
        """
        v = self.v_read if v is None else v
        dtype = state.reads.dtype
        i = self.current(state, jnp.broadcast_to(jnp.asarray(v, dtype), state.reads.shape))
        n = jnp.asarray(n, dtype)
        t = jnp.asarray(self.t_read, dtype) * n
        state = self.evolve(state, v, t, key=key, row=row, col=col)
        return Read(i, state.replace(reads=state.reads + n))

    # Motion.

    def evolve(
        self,
        state: FaultyState,
        v: Float[Array, "rows cols"],
        t: Float[Array, "rows cols"],
        *,
        key: Key[Array, ""] | None = None,
        row: Scalar = 0,
        col: Scalar = 0,
    ) -> FaultyState:
        """The state after a voltage was held for a time; arguments as those of the device."""
        state = self._switched(state, self.device.evolve(state.inner, v, t, key=key, row=row, col=col))
        return state if state.age is None else state.replace(age=state.age + jnp.asarray(t, state.age.dtype))

    def _switched(self, state, inner):
        if state.age is not None or state.cycles is not None:
            low, high = (jnp.asarray(x, state.reads.dtype) for x in self.conductance_range())
            way = jnp.abs(self.device.conductance(inner) - self.device.conductance(state.inner)) / (high - low)
            if state.age is not None:
                state = state.replace(age=state.age * jnp.exp(-way / jnp.asarray(self.refresh, way.dtype)))
            if state.cycles is not None:
                state = state.replace(cycles=state.cycles + 0.5 * way)
        return state.replace(inner=inner)


def nearest_level(g: Float[Array, "..."], levels: Any, low: Scalar, high: Scalar) -> Float[Array, "..."]:
    """The conductance of a cell that has a finite number of them.

    Args:
      g: S.
      levels: their number n, low + k (high - low)/(n - 1), one level in the middle; or the levels themselves, [n], S.
      low, high: the range, S.

    Example:
      >>> import jax.numpy as jnp
      >>> print((1e3 * nearest_level(jnp.array([0.0, 4e-3, 1.0]), 4, 1 / 16e3, 1 / 100)).round(4))  # mS
      [ 0.0625  3.375  10.    ]
    """
    check_levels(levels)
    g = jnp.asarray(g)
    levels, low, high = (jnp.asarray(x, g.dtype) for x in (levels, low, high))
    if levels.ndim == 1:
        return levels[jnp.argmin(jnp.abs(g[..., None] - levels.reshape(*[1] * g.ndim, -1)), -1)]
    gaps = jnp.where(levels > 1, levels - 1, 1.0)
    k = jnp.round(jnp.clip((g - low) / (high - low), 0.0, 1.0) * gaps)
    return jnp.where(levels > 1, low + (high - low) * (k / gaps), jnp.full_like(g, 1.0) * (0.5 * (low + high)))


def check_levels(levels: Any) -> None:
    """Raises for levels that are neither a whole number >= 1 nor a list of conductances >= 0."""
    if np.ndim(levels) > 1 or np.size(levels) == 0:
        raise ValueError(f"levels: levels must be a number or a list of conductances, got shape {np.shape(levels)}")
    if is_traced(levels):
        return
    x = np.asarray(levels, float)
    if x.ndim == 0 and (not np.isfinite(x) or x < 1 or x != np.round(x)):
        raise ValueError(f"levels: levels must be a whole number >= 1, got {levels}")
    if x.ndim == 1 and not (np.isfinite(x) & (x >= 0)).all():
        raise ValueError(f"levels: levels must be finite and >= 0 S, got {levels}")


def _is_mask(p: Any) -> bool:
    return isinstance(p, bool) or (hasattr(p, "dtype") and jnp.issubdtype(p.dtype, jnp.bool_))
