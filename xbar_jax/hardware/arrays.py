"""What the arrays of a tile do: every one read with its voltages, every one programmed with its part of the noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax.circuits import effective_conductance, prefers_effective, solve
from xbar_jax.hardware.description import Hardware
from xbar_jax.hardware.tiling import Tiling
from xbar_jax.typing import Array, Float, Int, Key

# Global column of the first line that a mapping adds to an array; those of weights start from 0.
_EXTRA = 1 << 30


def over_arrays(hw: Hardware, tiling: Tiling, key: Key[Array, ""], f: Callable, x: Any) -> Any:
    """``f(device, x, key, row, col)`` for every array, over leaves [planes, down, across, rows, lines].

    The columns of weights have their global index whatever the size of the arrays; lines that the mapping adds belong
    to an array, and have indices of their own. What the device gives for every cell is cut likewise.
    """
    row, col = tiling.offsets()
    extra = hw.mapping.extra_cols
    planes = jax.tree.leaves(x)[0].shape[0]
    keys = jax.vmap(lambda p: jax.random.fold_in(key, p))(jnp.arange(planes))
    own = {path: _cut(a, hw, tiling, planes) for path, a in cellwise(hw.device).items()}
    across = jax.vmap(lambda x, own, *where: f(_with(hw.device, own), x, *where), in_axes=(0, 0, None, None, 0))
    down = jax.vmap(across, in_axes=(0, 0, None, 0, None))
    over = jax.vmap(down, in_axes=(0, 0, 0, None, None))
    if not extra:
        return over(x, own, keys, row, col)
    cut = lambda s: jax.tree.map(lambda a: a[..., s], (x, own))
    lines = _EXTRA + extra * jnp.arange(tiling.grid[1], dtype=jnp.int32)
    weights = over(*cut(slice(None, -extra)), keys, row, col)
    added = over(*cut(slice(-extra, None)), keys, row, lines)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=-1), weights, added)


def cellwise(device: Any) -> dict[str, Array]:
    """What a device gives for every cell: its fields, and those of its stuck cells, that are [rows, cols] or more."""
    found = {}
    for prefix, part in (("", device), ("stuck.", getattr(device, "stuck", None))):
        for f in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
            value = getattr(part, f.name)
            if getattr(value, "ndim", 0) >= 2:
                found[prefix + f.name] = value
    return found


def check_cells(name: str, hw: Hardware, tiling: Tiling) -> None:
    """Raises where the device gives something for every cell, but not for the cells of this matrix."""
    lines = tiling.outputs + hw.mapping.extra_cols * tiling.grid[1]
    want = (hw.mapping.planes, tiling.inputs, lines)
    for path, value in cellwise(hw.device).items():
        shape = value.shape
        if len(shape) > 3 or any(n not in (1, m) for n, m in zip(shape[::-1], want[::-1], strict=False)):
            added = " (the last of them lines that the mapping adds)" if lines > tiling.outputs else ""
            raise ValueError(
                f"{name}: hardware.device.{path} must be a number, [{want[1]}, {want[2]}] for the cells of the whole "
                f"matrix{added}, or [{want[0]}, {want[1]}, {want[2]}] with the circuits, got {list(shape)}"
            )


def _cut(a: Array, hw: Hardware, tiling: Tiling, planes: int) -> Float[Array, "planes down across rows lines"]:
    """Every array's part of what is given for the cells of a matrix, lines that the mapping adds last."""
    down, across = tiling.grid
    extra = hw.mapping.extra_cols
    a = jnp.broadcast_to(a, (planes, tiling.inputs, tiling.outputs + extra * across))

    def one(a):
        added = tiling.split_inputs(a[:, tiling.outputs :].T).reshape(down, across, extra, tiling.rows)
        return jnp.concatenate([tiling.split(a[:, : tiling.outputs]), jnp.swapaxes(added, -1, -2)], axis=-1)

    return jax.vmap(one)(a)


def _with(device: Any, own: dict[str, Array]) -> Any:
    """The device with other values of :func:`cellwise`."""
    plain = {path: value for path, value in own.items() if "." not in path}
    stuck = {path.partition(".")[2]: value for path, value in own.items() if "." in path}
    if stuck:
        plain["stuck"] = dataclasses.replace(device.stuck, **stuck)
    return dataclasses.replace(device, **plain) if plain else device


def drive(
    hw: Hardware,
    tiling: Tiling,
    v: Float[Array, "down reads batch rows"],
    order: Int[Array, "down across rows"] | None,
    key: Key[Array, ""] | None,
) -> Float[Array, "planes|1 down across|1 reads batch rows"]:
    """Voltages at the lines of every array, V, its rows in their order.

    Every circuit of every array has drivers of its own. Their noise is indexed by circuit and by place across, and in
    these by vector and global row, so that the cut of the rows does not change it. Without noise all are alike.
    """
    drivers = v[None, :, None]
    if hw.dac is not None and hw.dac.noise is not None:
        dac, row = hw.dac, global_rows(tiling)
        one = lambda key: jnp.moveaxis(
            dac.driven(jnp.moveaxis(v, 1, 0), hw.v_read, linear=hw.cell is None, row=row, key=key), 0, 1
        )
        fold = lambda key, n: jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(n))
        keys = jax.vmap(lambda k: fold(k, tiling.grid[1]))(fold(key, hw.mapping.planes))
        drivers = jax.vmap(jax.vmap(one, out_axes=1))(keys)
    if order is None:
        return drivers
    drivers = jnp.broadcast_to(drivers, (*drivers.shape[:2], order.shape[1], *drivers.shape[3:]))
    return jax.vmap(jax.vmap(jax.vmap(lambda v, order: v[..., order])), in_axes=(0, None))(drivers, order)


def global_rows(tiling: Tiling) -> Int[Array, "down 1 rows"]:
    """Global index of every row of the arrays."""
    return tiling.offsets()[0][:, None, None] + jnp.arange(tiling.rows, dtype=jnp.int32)[None, None, :]


def currents(
    hw: Hardware,
    g: Float[Array, "planes down across rows lines"],
    v: Float[Array, "planes|1 down across|1 reads batch rows"],
) -> Float[Array, "outs down across reads batch cols"]:
    """Currents that reach the converters at the columns, A.

    Ohmic cells make the currents linear in the voltages, and what the mapping takes on the wire is linear in the
    currents: for many vectors, and always without wires, the conductances are combined once and multiplied once,

        i = v (G_eff,+ - G_eff,-)    for a pair, for example,

    unless each circuit has voltages of its own. Else every vector of every circuit is a nodal solve.
    """
    planes, down, across, rows, lines = g.shape
    reads, batch = v.shape[3:5]
    same = v.shape[0] == 1
    v = jnp.broadcast_to(v, (v.shape[0], down, across, reads, batch, rows))
    v = v.reshape(v.shape[0], down, across, reads * batch, rows)
    if hw.cell is None and prefers_effective((rows, lines), reads * batch, hw.wires):
        if hw.wires is not None:
            effective = jax.vmap(lambda g: effective_conductance(g, hw.wires))
            g = effective(g.reshape(-1, rows, lines)).reshape(g.shape)
        # One product for each conversion: XLA's is twice as fast on a CPU without a further batch axis.
        if same:
            i = jnp.stack([jnp.matmul(v[0], g) for g in hw.mapping.analog(g)])
        else:
            i = hw.mapping.analog(jnp.stack([jnp.matmul(v, g) for v, g in zip(v, g, strict=True)]))
    else:
        # One vmap over all arrays, not one for each axis: every level is traced anew.
        v = jnp.broadcast_to(v, (planes, *v.shape[1:])).reshape(-1, reads * batch, rows)
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
