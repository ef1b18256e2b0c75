"""What the arrays of a tile do: every one read with its voltages, every one programmed with its part of the noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax.circuits import effective_conductance, prefers_effective, solve
from xbar_jax.hardware.description import Hardware
from xbar_jax.hardware.tiling import Tiling
from xbar_jax.typing import Array, Float, Key

# Global column of the first line that a mapping adds to an array; those of weights start from 0.
_EXTRA = 1 << 30


def over_arrays(hw: Hardware, tiling: Tiling, key: Key[Array, ""], f: Callable, x: Any) -> Any:
    """``f(x, key, row, col)`` for every array, over leaves [planes, down, across, rows, lines].

    The columns of weights have their global index whatever the size of the arrays; lines that the mapping adds belong
    to an array, and have indices of their own.
    """
    row, col = tiling.offsets()
    extra = hw.mapping.extra_cols
    planes = jax.tree.leaves(x)[0].shape[0]
    keys = jax.vmap(lambda p: jax.random.fold_in(key, p))(jnp.arange(planes))
    across = jax.vmap(f, in_axes=(0, None, None, 0))
    down = jax.vmap(across, in_axes=(0, None, 0, None))
    over = jax.vmap(down, in_axes=(0, 0, None, None))
    if not extra:
        return over(x, keys, row, col)
    cut = lambda s: jax.tree.map(lambda a: a[..., s], x)
    own = _EXTRA + extra * jnp.arange(tiling.grid[1], dtype=jnp.int32)
    weights, added = over(cut(slice(None, -extra)), keys, row, col), over(cut(slice(-extra, None)), keys, row, own)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=-1), weights, added)


def currents(
    hw: Hardware,
    g: Float[Array, "planes down across rows lines"],
    v: Float[Array, "down across|1 reads batch rows"],
) -> Float[Array, "outs down across reads batch cols"]:
    """Currents that reach the converters at the columns, A.

    Ohmic cells make the currents linear in the voltages, and what the mapping takes on the wire is linear in the
    currents: for many vectors, and always without wires, the conductances are combined once and multiplied once,

        i = v (G_eff,+ - G_eff,-)    for a pair, for example.

    Else every vector of every circuit is a nodal solve.
    """
    planes, down, across, rows, lines = g.shape
    reads, batch = v.shape[2:4]
    v = jnp.broadcast_to(v, (down, across, reads, batch, rows)).reshape(down, across, reads * batch, rows)
    if hw.cell is None and prefers_effective((rows, lines), reads * batch, hw.wires):
        if hw.wires is not None:
            effective = jax.vmap(lambda g: effective_conductance(g, hw.wires))
            g = effective(g.reshape(-1, rows, lines)).reshape(g.shape)
        # One product for each conversion: XLA's is twice as fast on a CPU without a further batch axis.
        i = jnp.stack([jnp.matmul(v, g) for g in hw.mapping.analog(g)])
    else:
        # One vmap over all arrays, not one for each axis: every level is traced anew.
        v = jnp.broadcast_to(v[None], (planes, *v.shape)).reshape(-1, reads * batch, rows)
        each = jax.vmap(jax.vmap(lambda g, v: _bottom(hw, g, v), in_axes=(None, 0)))
        i = each(g.reshape(-1, rows, lines), v).reshape(planes, down, across, reads * batch, lines)
        i = hw.mapping.analog(i)
    return i.reshape(i.shape[0], down, across, reads, batch, i.shape[-1])


def _bottom(hw: Hardware, g: Float[Array, "rows lines"], v: Float[Array, " rows"]) -> Float[Array, " lines"]:
    """Currents at the bottom of one array for one vector, A; NaN where the solve did not converge."""
    cells = g if hw.cell is None else hw.cell.replace(g=g)
    if hw.wires is None:
        return cells.current(jnp.broadcast_to(v[:, None], g.shape)).sum(0)
    sol = solve(cells, hw.wires, left=v)
    return jnp.where(sol.converged, sol.i_bottom, jnp.nan)
