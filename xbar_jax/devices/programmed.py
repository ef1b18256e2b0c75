"""What programmed devices share: a conductance written once, its drift, its read noise and cells that are stuck."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from xbar_jax import random
from xbar_jax.devices.faults import HEALTHY, OFF, ON, VALUE, Stuck
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Int, Key, Scalar

# What is drawn for a cell; reads have keys of their own.
PROGRAM, READ, NU = range(3)

Normal = Callable[[int], Array]


@dataclass(kw_only=True)
class ProgrammedState:
    """State of an array of programmed cells; what a device does not draw is None.

    Attributes:
      target: [rows, cols] S, conductance that was asked for.
      g: [rows, cols] S, conductance that programming left, whatever the cell is stuck at.
      nu: [rows, cols] exponent of drift.
      kind: [rows, cols] int32, what a cell is stuck at (0: nothing).
    """

    target: Float[Array, "rows cols"] = leaf()
    g: Float[Array, "rows cols"] = leaf()
    nu: Float[Array, "rows cols"] | None = leaf(None)
    kind: Int[Array, "rows cols"] | None = leaf(None)


def _probability(p: Any) -> Any:
    p = p.astype(np.float32) if p.dtype == bool else p
    return (p >= 0) & (p <= 1)


@dataclass(kw_only=True)
class ProgrammedDevice:
    """Base of devices that are programmed once and then read.

        g = max(0, g_target + error),    g(t) = drift(state, t),    g_read = max(0, g(t) + noise(t) n),

    the error, exponents and faults drawn once for each cell by ``program``, n at every read. A stuck cell reads what it
    is stuck at, without noise; the other parts of its state are those of a healthy one.

    A device gives ``_error`` and ``conductance_range``, and as it needs ``_drawn``, ``drift``, ``noise`` and ``window``.

    Args:
      stuck: :class:`Stuck` cells, probabilities or masks [rows, cols]; on and off are the ends of ``conductance_range``.
      program_scale: factor of the spread of programming.
      read_scale: factor of the standard deviation of a read.
      drift_scale: factor of what time does: of exponents, or of changes of conductance.
    """

    stuck: Stuck | None = leaf(None)
    program_scale: Scalar = leaf(1.0)
    read_scale: Scalar = leaf(1.0)
    drift_scale: Scalar = leaf(1.0)

    state_class = ProgrammedState

    def numbers(self) -> Iterator[tuple[str, Any, Callable, str]]:
        """Yields (name, value, what must hold, in words)."""
        for name in ("program_scale", "read_scale", "drift_scale"):
            yield name, getattr(self, name), non_negative, ">= 0 and finite"
        if self.stuck is not None:
            for name in ("on", "off", "open", "value"):
                yield f"stuck.{name}", getattr(self.stuck, name), _probability, "in [0, 1]"
            yield "stuck.g", self.stuck.g, non_negative, ">= 0 and finite, in S"

    def conductance_range(self) -> tuple[Scalar, Scalar]:
        """Least and largest conductance of a nominal cell, S; where cells are stuck off and on."""
        raise NotImplementedError

    def window(self) -> tuple[Scalar, Scalar] | None:
        """Least and largest target that the statistics hold for, S; None: any. Hardware asks for no other."""
        return None

    def program(
        self, g_target: Float[Array, "rows cols"], *, key: Key[Array, ""], row: Scalar = 0, col: Scalar = 0
    ) -> ProgrammedState:
        """Programs one array.

        Args:
          g_target: [rows, cols] S, >= 0.
          key: typed key.
          row, col: global index of the array's first cell, by which its noise is indexed.

        Raises:
          TypeError: ``key`` is not one typed key.
        """
        random.check_one_key("program", key)
        g_target = jnp.asarray(g_target)
        index = random.array_index(g_target.shape, row, col)
        normal = lambda draw: random.cell_normal(key, *index, draw, g_target.dtype)
        error = jnp.asarray(self.program_scale, g_target.dtype) * self._error(g_target, normal)
        return self.state_class(
            target=g_target,
            g=jnp.maximum(g_target + error, 0.0),
            kind=None if self.stuck is None else self.stuck.draw(key, index, g_target.dtype),
            **self._drawn(g_target, normal),
        )

    def _error(self, g_target: Float[Array, "rows cols"], normal: Normal) -> Float[Array, "rows cols"]:
        """What programming misses the target by, S; ``normal(draw)`` is one number for each cell."""
        raise NotImplementedError

    def _drawn(self, g_target: Float[Array, "rows cols"], normal: Normal) -> dict[str, Array]:
        """Further leaves of the state."""
        return {}

    def drift(self, state: ProgrammedState, t: Scalar = 0.0) -> Float[Array, "rows cols"]:
        """Conductance of healthy cells ``t`` seconds after programming, S, >= 0."""
        return state.g

    def noise(self, state: ProgrammedState, g: Float[Array, "rows cols"], t: Scalar = 0.0) -> Float[Array, "..."]:
        """Standard deviation of one read of cells that conduct ``g`` siemens at ``t`` seconds, S."""
        return jnp.zeros((), g.dtype)

    def conductance(self, state: ProgrammedState, t: Scalar = 0.0) -> Float[Array, "rows cols"]:
        """Conductance ``t`` seconds after programming without read noise, S."""
        return self._with_stuck(state, self.drift(state, t))

    def read(
        self, state: ProgrammedState, t: Scalar = 0.0, *, key: Key[Array, ""], row: Scalar = 0, col: Scalar = 0
    ) -> Float[Array, "rows cols"]:
        """Conductance as one read sees it, S.

        Args:
          state: of :meth:`program`.
          t: s since programming, >= 0.
          key: typed key.
          row, col: as in :meth:`program`.
        """
        g = self.drift(state, t)
        std = jnp.asarray(self.read_scale, g.dtype) * self.noise(state, g, t)
        n = random.cell_normal(key, *random.array_index(g.shape, row, col), READ, g.dtype)
        return self._with_stuck(state, jnp.maximum(g + std * n, 0.0))

    def _with_stuck(self, state, g):
        if state.kind is None:
            return g
        low, high = (jnp.asarray(x, g.dtype) for x in self.conductance_range())
        g = jnp.where(state.kind == HEALTHY, g, 0.0)
        g = jnp.where(state.kind == ON, high, jnp.where(state.kind == OFF, low, g))
        return g if self.stuck is None else jnp.where(state.kind == VALUE, jnp.asarray(self.stuck.g, g.dtype), g)


def power_law(g: Float[Array, "..."], nu: Float[Array, "..."], t: Scalar, t0: Scalar) -> Float[Array, "..."]:
    """g ((t + t0)/t0)^-nu, with all derivatives finite from t = 0 on; t and t0 in s."""
    t, t0 = jnp.asarray(t, g.dtype), jnp.asarray(t0, g.dtype)
    return g * jnp.exp(-nu * jnp.log1p(t / t0))


def polynomial(coefficients: Any, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """c_0 + c_1 x + c_2 x^2 + ..."""
    y = jnp.zeros_like(x)
    for c in reversed(tuple(coefficients)):
        y = y * x + jnp.asarray(c, x.dtype)
    return y


def non_negative(x: Any) -> Any:
    """x is >= 0 and finite."""
    return (x >= 0) & (x < np.inf)


def positive(x: Any) -> Any:
    """x is > 0 and finite."""
    return (x > 0) & (x < np.inf)


def finite(x: Any) -> Any:
    """x is finite."""
    return (x > -np.inf) & (x < np.inf)
