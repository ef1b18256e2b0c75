"""What every dynamic device shares: its state, its motion, its conductance.

A dynamic device is a current and a rate of change, both functions of one state variable and the voltage:

    i = I(x, v),    dx/dt = f(x, v).

A new one is a class with its own numbers and :meth:`DynamicDevice.current_of`, :meth:`DynamicDevice.rate_of` and
:meth:`DynamicDevice.bounds`; the rest follows.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax import random
from xbar_jax.devices.flow import displacement
from xbar_jax.devices.spread import Spread
from xbar_jax.tree import dataclass, is_traced, leaf
from xbar_jax.typing import Array, Cellwise, Float, Key, Scalar

# Parts of the key given to evolve.
CYCLE, RANDOM = 0, 1


@dataclass(kw_only=True)
class DynamicState:
    """State of an array of dynamic cells.

    Attributes:
      x: [rows, cols] the state variable, in the unit that the device names.
      x_lo: [rows, cols] what ``x`` lacks: x + x_lo is the state to twice the digits, so that many short pulses
        do what one long pulse does.
      cells: per-cell parameters that ``init`` drew, each [rows, cols].
    """

    x: Float[Array, "rows cols"]
    x_lo: Float[Array, "rows cols"]
    cells: dict[str, Float[Array, "rows cols"]]


@dataclass(kw_only=True)
class DynamicDevice:
    """Parameters of all dynamic devices.

    Every number of a device is a scalar or [rows, cols].

    Args:
      v_read: V, at which conductance is read.
      spread: {parameter: :class:`Spread`}, what ``init`` draws for each cell; None: all cells are nominal.
    """

    v_read: Cellwise = leaf(0.1)
    spread: dict[str, Spread] | None = leaf(None)

    # +1: positive voltage raises the conductance.
    polarity: ClassVar[int] = 1
    # The current is proportional to the voltage: i = g v.
    ohmic: ClassVar[bool] = False
    # Numbers that must be so.
    positive: ClassVar[tuple[str, ...]] = ()
    negative: ClassVar[tuple[str, ...]] = ()
    # The native kernel (a header of this name in custom_calls/include/xbar/dynamics), or None.
    kernel: ClassVar[str | None] = None
    state_class: ClassVar[type] = DynamicState

    # What a device is; each overrides these. The numbers of ``self`` are those of the cells here.

    def current_of(self, x: Array, v: Array) -> Array:
        """I(x, v), A, elementwise."""
        raise NotImplementedError

    def rate_of(self, x: Array, v: Array) -> Array:
        """dx/dt, per second, elementwise."""
        raise NotImplementedError

    def bounds(self) -> tuple[Any, Any]:
        """The least and the largest state."""
        raise NotImplementedError

    def limits(self, v: Array) -> tuple[Any, Any]:
        """How far down and up a motion at ``v`` volt can go; other than the bounds where it stops inside them."""
        return self.bounds()

    def breaks(self) -> tuple[Any, ...]:
        """States at which the rate jumps or has a kink."""
        return ()

    def initial(self) -> Any:
        """State of a fresh cell."""
        return self.bounds()[0]

    # The device as its kernel takes it.

    @classmethod
    def _fields(cls, *, leaves: bool) -> tuple[str, ...]:
        described: Any = cls
        return tuple(f.name for f in dataclasses.fields(described) if f.metadata.get("pytree_node", True) == leaves)

    @classmethod
    def _numbers(cls) -> tuple[str, ...]:
        return tuple(f for f in cls._fields(leaves=True) if f not in ("v_read", "spread"))

    def codes(self) -> tuple[float, ...]:
        """Static choices as numbers, in front of the parameters of the kernel."""
        return ()

    def kernel_operands(self, x: Array) -> list[Array]:
        """The choices and numbers of the cells, each [rows or 1, cols or 1] as ``x`` has them."""

        def cellwise(y):
            y = jnp.asarray(y, x.dtype)
            return y.reshape(1, 1) if y.ndim == 0 else y

        return [cellwise(y) for y in (*self.codes(), *(getattr(self, name) for name in self._numbers()))]

    def rebuild(self) -> Any:
        """A hashable function from the operands of the kernel to the device."""
        static = tuple((f, getattr(self, f)) for f in self._fields(leaves=False))
        return _Rebuild(type(self), static, len(self.codes()))

    # State.

    def of(self, state: DynamicState) -> Any:
        """The device with the numbers of the cells of ``state``."""
        dev = self.replace(spread=None, **state.cells)  # type: ignore[attr-defined]
        return jax.tree.map(lambda y: jnp.asarray(y, state.x.dtype), dev)

    def init(
        self,
        shape: tuple[int, int],
        *,
        key: Key[Array, ""] | None = None,
        x: Float[Array, "rows cols"] | None = None,
        row: Scalar = 0,
        col: Scalar = 0,
        dtype: Any = jnp.float32,
    ) -> Any:
        """Cells with the spread from device to device drawn.

        Args:
          shape: (rows, cols).
          key: typed key; needed where ``spread`` is given.
          x: state variable, [rows, cols] or one number, clipped to the bounds; that of a fresh cell if None.
          row, col: global index of the array's first cell, by which its spread is indexed.
          dtype: of the state.
        """
        name = type(self).__name__
        if np.ndim(shape) != 1 or len(shape) != 2 or min(shape) < 1:
            raise ValueError(f"init: shape must be (rows, cols) with at least one cell, got {shape}")
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(f"init: dtype must be floating point, got {dtype}")
        self.check((shape[0], shape[1]))
        cells = {}
        if self.spread is not None:
            if key is None:
                raise TypeError(f"{name}.init: key must be given, spread is to be drawn")
            random.check_one_key("init", key)
            index = random.array_index(tuple(shape), row, col)
            for draw, field in enumerate(sorted(self.spread)):
                nominal = getattr(self, field)
                p = self.spread[field].draw(nominal, key, index, draw, dtype)
                # Where spread would change a sign that must stay, a hundredth of the nominal value is kept.
                least = 0.01 * jnp.asarray(nominal, dtype)
                p = jnp.maximum(p, least) if field in self.positive else p
                cells[field] = jnp.minimum(p, least) if field in self.negative else p
        zero = jnp.zeros(shape, dtype)
        dev = self.replace(**cells)  # type: ignore[attr-defined]
        low, high = dev.bounds()
        x = jnp.asarray(dev.initial() if x is None else x, dtype)
        x = jnp.clip(x, jnp.asarray(low, dtype), jnp.asarray(high, dtype))
        return self.state_class(x=zero + x, x_lo=zero, cells=cells)

    def check(self, shape: tuple[int, int]) -> None:
        """Raises for a concrete number that has no meaning."""
        name = type(self).__name__
        for field in self._numbers():
            value = getattr(self, field)
            if value is None:
                continue
            if np.shape(value) not in ((), shape):
                raise ValueError(f"{name}: {field} must be a scalar or of shape {shape}, got {np.shape(value)}")
            if not is_traced(value) and not np.isfinite(np.asarray(value, np.float64)).all():
                raise ValueError(f"{name}: {field} must be finite, got {value}")
            for sign, fields in ((1, self.positive), (-1, self.negative)):
                if field in fields and not is_traced(value) and (np.asarray(value) * sign <= 0).any():
                    raise ValueError(f"{name}: {field} must be {'><'[sign < 0]} 0, got {value}")
        self.codes()
        low, high = self.bounds()
        if not is_traced(low, high) and not (np.asarray(low) < np.asarray(high)).all():
            raise ValueError(f"{name}: the least state must be below the largest, got {low} and {high}")
        for field in self.spread or {}:
            if field not in self._numbers():
                raise ValueError(f"{name}: spread must name parameters ({', '.join(self._numbers())}), got {field!r}")
            spread = self.spread[field]  # type: ignore[index]
            for part, value in (("dtod", spread.dtod), ("ctoc", spread.ctoc)):
                if value is not None and not is_traced(value) and not (np.asarray(value) >= 0).all():
                    raise ValueError(f"{name}: {part} of the spread of {field} must be >= 0, got {value}")
            if not is_traced(spread.low, spread.high) and not (np.asarray(spread.low) < np.asarray(spread.high)).all():
                raise ValueError(f"{name}: low of the spread of {field} must be below high, got {spread.low}")
            if getattr(self, field) is None:
                raise ValueError(f"{name}: spread must name parameters that are given, {field} is None")

    # Electrical behaviour.

    def current(self, state: DynamicState, v: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """Current at ``v`` volt, A."""
        return _current(self.of(state), state.x, jnp.asarray(v, state.x.dtype))

    def rate(self, state: DynamicState, v: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """Rate of change of the state at ``v`` volt, per second."""
        return _rate(self.of(state), state.x, jnp.broadcast_to(jnp.asarray(v, state.x.dtype), state.x.shape))

    def conductance(self, state: DynamicState) -> Float[Array, "rows cols"]:
        """I(v_read)/v_read, S."""
        return _conductance(self.of(state), state.x)

    def conductance_at(self, x):
        v = jnp.asarray(self.v_read, jnp.result_type(x))
        return self.current_of(x, v) / v

    def conductance_range(self) -> tuple[Array, Array]:
        """The least and the largest conductance of a nominal cell, S."""
        nominal = self.replace(spread=None)  # type: ignore[attr-defined]
        ends = [_conductance(nominal, jnp.asarray(x, jnp.result_type(float))) for x in self.bounds()]
        return jnp.minimum(*ends), jnp.maximum(*ends)

    def set_conductance(self, state: DynamicState, g: Float[Array, "rows cols"]) -> Any:
        """Sets the conductances exactly, clipped to what each cell reaches.

        Args:
          state: of the array.
          g: S, [rows, cols] or one number.
        """
        if jnp.shape(g) not in ((), state.x.shape):
            raise ValueError(f"set_conductance: g must be of shape {state.x.shape}, got {jnp.shape(g)}")
        g = jnp.broadcast_to(jnp.asarray(g, state.x.dtype), state.x.shape)
        dev = self.of(state)
        return state.replace(x=_state_of(dev, g), x_lo=jnp.zeros_like(state.x))

    # Motion.

    def evolve(
        self,
        state: DynamicState,
        v: Float[Array, "rows cols"],
        t: Float[Array, "rows cols"],
        *,
        key: Key[Array, ""] | None = None,
        row: Scalar = 0,
        col: Scalar = 0,
    ) -> Any:
        """The state after a voltage was held for a time.

        The answer does not depend on how a waveform is cut, up to the stated accuracy (:mod:`xbar_jax.devices.flow`), as
        if ``t`` were off by a relative

            float64:  1e-9; 1e-7 for the layers of VTEAM's window "team",
            float32:  1e-6; where rounding in the rate is larger, 1e-5 (StanfordPKU) or 3e-4 (JARTv1b),

        and the state stays in its bounds for any t. Derivatives with respect to the state, v, t and every number of the
        device are exact.

        Args:
          state: of the array.
          v: V, [rows, cols] or one number.
          t: s, >= 0, [rows, cols] or one number.
          key: typed key; needed where a part of the device is random in time.
          row, col: global index of the array's first cell, by which noise is indexed.

        Raises:
          TypeError: a key is needed and not given.
        """
        name = type(self).__name__
        v, t = held(state, v, t)
        if self.needs_key:
            if key is None:
                raise TypeError(f"{name}.evolve: key must be given, a part of this device is random in time")
            random.check_one_key("evolve", key)
        index = random.array_index(state.x.shape, row, col)
        state = self._next_cycle(state, t, key, index)
        dev = self.of(state)
        state = added(dev, state, displacement(dev, state.x, v, t).d)
        return self.diffuse(state, v, t, key=key, index=index) if self.needs_key else state

    @property
    def needs_key(self) -> bool:
        """A stochastic part is present, whatever its size."""
        return any(s.ctoc is not None for s in (self.spread or {}).values())

    def diffuse(self, state: Any, v: Array, t: Array, *, key: Any, index: Any) -> Any:
        """What chance adds to the state in a time ``t``."""
        return state

    def _next_cycle(self, state, t, key, index):
        moving = {k: s for k, s in (self.spread or {}).items() if s.ctoc is not None}
        if not moving:
            return state
        dtype = state.x.dtype
        cells = dict(state.cells)
        for draw, field in enumerate(sorted(moving)):
            p = moving[field].moved(
                cells[field], getattr(self, field), jax.random.fold_in(key, CYCLE), index, draw, dtype
            )
            cells[field] = jnp.where(t > 0, p, cells[field])
        state = state.replace(cells=cells)
        low, high = self.of(state).bounds()
        x = jnp.clip(state.x, low, high)
        return state.replace(x=x, x_lo=jnp.where(x == state.x, state.x_lo, 0.0))


class _Rebuild:
    """Operands of a kernel -> the device they are of; equal for equal classes and static choices."""

    def __init__(self, cls, static, codes):
        self.cls, self.static, self.codes = cls, static, codes

    def __call__(self, operands):
        return self.cls(**dict(zip(self.cls._numbers(), operands[self.codes :], strict=True)), **dict(self.static))

    def __eq__(self, other):
        return type(other) is _Rebuild and (self.cls, self.static, self.codes) == (other.cls, other.static, other.codes)

    def __hash__(self):
        return hash((self.cls, self.static, self.codes))


def held(state: DynamicState, v: Any, t: Any) -> tuple[Array, Array]:
    """Voltage and time of each cell, [rows, cols], or an error in the name of evolve."""
    for label, y in (("v", v), ("t", t)):
        if jnp.shape(y) not in ((), state.x.shape):
            raise ValueError(f"evolve: {label} must be a number or of shape {state.x.shape}, got {jnp.shape(y)}")
    if not is_traced(t) and (np.asarray(t) < 0).any():
        raise ValueError(f"evolve: t must be >= 0 s, got {np.min(t)}")
    v, t = (jnp.broadcast_to(jnp.asarray(y, state.x.dtype), state.x.shape) for y in (v, t))
    return v, t


def added(dev: Any, state: DynamicState, d: Array) -> Any:
    """The state moved by ``d``, to twice the digits and inside its bounds."""
    low, high = (jnp.asarray(b, state.x.dtype) for b in dev.bounds())
    d = d + state.x_lo
    x = state.x + d
    # Knuth's sum: x + lost is exactly state.x + d.
    part = x - state.x
    lost = (state.x - (x - part)) + (d - part)
    # Selected, not clipped: clipping halves the derivative of a state at a bound.
    inside = jnp.where(x < low, low, jnp.where(x > high, high, x))
    return state.replace(x=inside, x_lo=jnp.where(inside == x, lost, 0.0))


# Compiled once for each kind of device, also where the caller does not compile.
_current = jax.jit(lambda dev, x, v: dev.current_of(x, v))
_rate = jax.jit(lambda dev, x, v: dev.rate_of(x, v))
_conductance = jax.jit(lambda dev, x: dev.conductance_at(x))


# With G(x, dev) = g:  dx = (dg - dG) / G'(x), zero where x is at a bound.
@jax.custom_jvp
@jax.jit
def _state_of(dev, g):
    """The state that conducts ``g``, by halving: the conductance is monotonous in the state."""
    low, high = (jnp.broadcast_to(jnp.asarray(b, g.dtype), g.shape) for b in dev.bounds())
    rises = dev.conductance_at(high) > dev.conductance_at(low)

    def halve(ends, _):
        low, high = ends
        middle = low + 0.5 * (high - low)
        above = (dev.conductance_at(middle) > g) == rises
        return (jnp.where(above, low, middle), jnp.where(above, middle, high)), None

    (a, b), _ = lax.scan(halve, (low, high), length=int(jnp.finfo(g.dtype).nmant) + 6)
    # One step of the secant, which rounding in the conductance has left exact enough.
    ga, gb = dev.conductance_at(a), dev.conductance_at(b)
    share = jnp.where(gb == ga, 0.5, (g - ga) / jnp.where(gb == ga, 1.0, gb - ga))
    return jnp.clip(a + jnp.clip(share, 0.0, 1.0) * (b - a), low, high)


@_state_of.defjvp
def _state_of_jvp(primals, tangents):
    (dev, g), (ddev, dg) = primals, tangents
    x = _state_of(dev, g)
    low, high = dev.bounds()
    _, slope = jax.jvp(dev.conductance_at, (x,), (jnp.ones_like(x),))
    _, change = jax.jvp(lambda dev: dev.conductance_at(x), (dev,), (ddev,))
    inside = (x > low) & (x < high) & (slope != 0)
    return x, jnp.where(inside, (dg - change) / jnp.where(inside, slope, 1.0), 0.0)
