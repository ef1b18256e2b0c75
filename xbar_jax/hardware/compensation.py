"""Drift compensation: one factor for an array, or for each of its columns, from a read-out that cannot cancel.

The rows are read one at a time and every current is multiplied by the weight that its cells were programmed to. All terms
are positive, whatever the signs of the weights; the noise of a read is neither rectified nor weighted where there is no
weight; and cells count by their share of the products, those that hold a 0, and drift by other exponents, not at all.
"""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.hardware.arrays import currents
from xbar_jax.hardware.description import Hardware
from xbar_jax.typing import Array, Bool, Float


def column_sums(
    hw: Hardware,
    g: Float[Array, "planes down across rows lines"],
    target: Float[Array, "planes down across rows lines"],
) -> Float[Array, "down across cols"]:
    """What a read-out with one row at a time finds in each column, S:

        s_j = sum_i u_ij i_j(row i at v_read) / v_read,    u_ij = T_ij / max |T|,

    T_ij the conductance of a weight, S, as its cells were meant, the circuits subtracted; the maximum is that of the
    array. Wires and cells are those of the products.
    """
    _, down, _, rows, _ = g.shape
    v = jnp.broadcast_to(jnp.eye(rows, dtype=g.dtype) * hw.v_read.astype(g.dtype), (1, down, 1, 1, rows, rows))
    i = hw.mapping.digital(currents(hw, g, v))[:, :, 0]
    meant = hw.mapping.digital(hw.mapping.analog(target))
    largest = jnp.abs(meant).max((-2, -1), keepdims=True)
    u = meant / jnp.where(largest > 0, largest, 1.0)
    return jnp.asarray((u * i).sum(-2) / hw.v_read.astype(g.dtype))


def gains(
    kind: str | None,
    baseline: Float[Array, "down across cols"],
    now: Float[Array, "down across cols"],
    used: Bool[Array, "..."],
) -> Float[Array, "down across cols"]:
    """Factors by which outputs are multiplied: what was read right after programming over what is read now.

    "global" takes the sums over an array, "column" each column by itself. A column that is read below a relative 1e-6 of
    its array's largest is left alone.
    """
    if kind == "global":
        over = lambda s: jnp.broadcast_to(jnp.where(used[None], s, 0.0).sum(-1, keepdims=True), s.shape)
        baseline, now = over(baseline), over(now)
    floor = 1e-6 * baseline.max(-1, keepdims=True)
    small = (baseline <= floor) | (now <= floor)
    return jnp.where(small, 1.0, baseline / jnp.where(small, 1.0, now))
