"""Drift compensation: one factor for an array, or for each of its columns, from a read-out that cannot cancel."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.hardware.arrays import currents
from xbar_jax.hardware.description import Hardware
from xbar_jax.typing import Array, Bool, Float


def column_sums(hw: Hardware, g: Float[Array, "planes down across rows lines"]) -> Float[Array, "down across cols"]:
    """What a read-out with one row at a time finds in each column, S:

        s_j = sum_i |i_j(row i at v_read)| / v_read.

    Magnitudes are added, so that weights of both signs do not cancel. Wires and cells are those of the products.
    """
    _, down, _, rows, _ = g.shape
    v = jnp.broadcast_to(jnp.eye(rows, dtype=g.dtype) * hw.v_read.astype(g.dtype), (down, 1, 1, rows, rows))
    i = hw.mapping.digital(currents(hw, g, v))
    return jnp.asarray(jnp.abs(i[:, :, 0]).sum(-2) / hw.v_read.astype(g.dtype))


def gains(
    kind: str | None,
    baseline: Float[Array, "down across cols"],
    now: Float[Array, "down across cols"],
    used: Bool[Array, "..."],
) -> Float[Array, "down across cols"]:
    """Factors by which outputs are multiplied: what was read right after programming over what is read now.

    "global" takes the sums over an array, "column" each column by itself. A column that conducts less than a relative
    1e-6 of its array's largest is left alone.
    """
    if kind == "global":
        over = lambda s: jnp.broadcast_to(jnp.where(used[None], s, 0.0).sum(-1, keepdims=True), s.shape)
        baseline, now = over(baseline), over(now)
    floor = 1e-6 * baseline.max(-1, keepdims=True)
    small = (baseline <= floor) | (now <= floor)
    return jnp.where(small, 1.0, baseline / jnp.where(small, 1.0, now))
