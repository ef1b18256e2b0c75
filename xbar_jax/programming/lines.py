"""Voltages of the lines of a passive array while one line of cells is written or read.

A *line* is the word line (or bit line) whose cells are programmed together; the *lanes* are the lines that cross it,
one cell each.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xbar_jax.circuits import Solution, Wires, cells, solve
from xbar_jax.tree import dataclass, static
from xbar_jax.typing import Array, Bool, Float, Int, Scalar

SCHEMES = ("half", "third", "floating")


@dataclass(kw_only=True)
class Scheme:
    """How lines are biased.

    With U half of the largest amplitude and a_j what cell j is to see, all between the terminals:

        the line: U,    the lane of a pulsed cell: U - a_j,    other lines: -p U,    other lanes: p U,

    p = 0 for "half" (half-selected cells see V/2, the rest 0) and 1/3 for "third" (all others see V/3); "floating"
    leaves other lines and lanes open while writing. The signs are turned where the line is a bit line.

    Args:
      name: "half", "third" or "floating".
      across: the line is a word line (its lanes are the bit lines); else a bit line.
    """

    name: str = static("half")
    across: bool = static(True)

    def axis(self) -> int:
        return 0 if self.across else 1

    def sides(self, line: Array, lanes: Array) -> tuple[Array, Array]:
        """(left, bottom) from what the lines of either kind are given."""
        return (line, lanes) if self.across else (lanes, line)

    def write(
        self, at: Bool[Array, " lines"], peak: Array, a: Float[Array, " lanes"], on: Bool[Array, " lanes"]
    ) -> tuple[Array, Array]:
        """(left, bottom), V, with ``a`` on the cells of the line ``at`` whose lanes are ``on``."""
        u = 0.5 * peak * (1.0 if self.across else -1.0)
        other = u / 3.0 if self.name == "third" else jnp.zeros_like(u)
        return self.sides(jnp.where(at, u, -other), jnp.where(on, u - (a if self.across else -a), other))

    def read(self, at: Bool[Array, " lines"], lanes: int, v_read: Array) -> tuple[Array, Array]:
        """(left, bottom), V: the line at ``v_read``, all else at 0, so that each lane collects its cell's current."""
        v = v_read if self.across else -v_read
        return self.sides(jnp.where(at, v, 0.0), jnp.zeros((lanes,), v.dtype))

    def collected(self, sol: Solution) -> Float[Array, " lanes"]:
        """Currents of the lanes in a read, A, positive for positive voltages of the cells."""
        return sol.i_bottom if self.across else sol.i_left

    def wires(self, wires: Wires, at: Bool[Array, " lines"], on: Bool[Array, " lanes"], writing: Array) -> Wires:
        """``wires`` with the lines open that float now."""
        if self.name != "floating":
            return wires
        left, bottom = self.sides(at, on)
        dtype = jnp.result_type(float)
        r = {
            "r_left": jnp.where(left | ~writing, jnp.asarray(wires.terminal("left"), dtype), jnp.inf),
            "r_bottom": jnp.where(bottom | ~writing, jnp.asarray(wires.terminal("bottom"), dtype), jnp.inf),
        }
        return wires.replace(**r)


def cells_of(dev: Any, state: Any, g: Any = None) -> Any:
    """What :func:`xbar_jax.solve` takes for an array of devices in this state, of conductance ``g`` if that is known."""
    if not dev.ohmic:
        return cells.Device(dev, state)
    return dev.conductance(state) if g is None else g


def pulse_array(
    dev: Any,
    state: Any,
    wires: Wires | None,
    *,
    left: Float[Array, " rows"],
    bottom: Float[Array, " cols"],
    t: Scalar,
    key: Any = None,
    start: Solution | None = None,
) -> tuple[Any, Solution]:
    """One pulse on a passive array: the voltages of all cells through the wires, held for a time.

    The voltages are those at the beginning of the pulse; several short pulses follow what the motion does to them.
    Differentiable in everything, forwards and backwards.

    Args:
      dev, state: a dynamic device and its state, [rows, cols].
      wires: resistances of lines and terminals; None is ideal.
      left, bottom: V, drives of word and bit lines, a number or one per line.
      t: s.
      key: typed key, where the device is random in time.
      start: as in :func:`xbar_jax.solve`.

    Returns:
      The state after the pulse, and the :class:`xbar_jax.Solution` at its beginning.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.VTEAM(v_on=-0.6, v_off=0.6)
      >>> left, bottom = jnp.array([-0.5, 0.0]), jnp.array([0.5, 0.0])
      >>> state, sol = xb.programming.pulse_array(dev, dev.init((2, 2)), xb.Wires(), left=left, bottom=bottom, t=1e-9)
    """
    return pulse_with(dev, state, None, wires, left=left, bottom=bottom, t=t, key=key, start=start)


def pulse_with(dev, state, g, wires, *, left, bottom, t, key, start=None) -> tuple[Any, Solution]:
    """:func:`pulse_array` of an array whose ``dev.conductance(state)`` is known to be ``g``, or None."""
    sol = solve(cells_of(dev, state, g), wires, left=left, bottom=bottom, start=start)
    return dev.evolve(state, sol.v_cell, t, key=key), sol


def read_line(dev: Any, state: Any, wires: Wires | None, scheme: Scheme, k: Int[Array, ""], v_read: Scalar):
    """Conductances of the cells of line ``k`` as read through the wires, [lanes] S, and whether the solve converged."""
    lines, lanes = state.x.shape if scheme.across else state.x.shape[::-1]
    v = jnp.asarray(v_read, state.x.dtype)
    left, bottom = scheme.read(jnp.arange(lines, dtype=jnp.int32) == k, lanes, v)
    sol = solve(cells_of(dev, state), wires, left=left, bottom=bottom)
    return scheme.collected(sol) / v, sol.converged
