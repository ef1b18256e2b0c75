"""The product of a layer: one matrix on arrays, or one for each of several groups."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xbar_jax.hardware import Hardware, Tile, program
from xbar_jax.typing import Array, ArrayLike, Float, Key, Scalar


def programmed(
    matrix: Float[Array, "*groups inputs outputs"],
    hardware: Hardware,
    *,
    key: Key[Array, ""] | None,
    input_range: ArrayLike,
    bias: Float[Array, "*groups outputs"] | None = None,
) -> Tile:
    """Matrices on arrays, with a leading axis of groups where there is one; each has its own part of the key.

    Args:
      matrix: weights.
      hardware: the arrays.
      key: where something is drawn.
      input_range: largest |x|, one for all groups.
      bias: that the arrays hold.
    """
    if matrix.ndim == 2:
        return program(matrix, hardware, key=key, input_range=input_range, bias=bias)
    write = lambda w, b, k: program(w, hardware, key=k, input_range=input_range, bias=b)
    axes = (0, None if bias is None else 0, None if key is None else 0)
    return jax.vmap(write, in_axes=axes)(matrix, bias, _group_keys(key, len(matrix)))


def read(
    tile: Tile,
    x: Float[Array, "*batch inputs"],
    *,
    key: Key[Array, ""] | None,
    input_range: Array | None = None,
    groups: int = 1,
) -> Float[Array, "*batch outputs"]:
    """The product of programmed arrays, x [..., groups, inputs] where there are several groups.

    Args:
      tile: from :func:`programmed`.
      x: inputs.
      key: where noise is drawn.
      input_range: in place of the one that was programmed for.
      groups: how many; 1 has no axis.
    """
    if input_range is not None:
        r = input_range.astype(tile.input_range.dtype)
        tile = tile.replace(input_range=r if groups == 1 else jnp.broadcast_to(r, (groups, *r.shape)))
    if groups == 1:
        return tile(x, key=key)
    axes = (0, 1, None if key is None else 0)
    flat = x.reshape(-1, *x.shape[-2:])
    y = jax.vmap(lambda t, x, k: t(x, key=k), in_axes=axes, out_axes=1)(tile, flat, _group_keys(key, groups))
    return y.reshape(*x.shape[:-1], y.shape[-1])


def drifted(tile: Tile, t: Scalar, *, key: Key[Array, ""] | None, groups: int = 1) -> Tile:
    """The arrays ``t`` seconds after programming, see :meth:`xbar_jax.Tile.drift`."""
    if groups == 1:
        return tile.drift(t, key=key)
    axes = (0, None if key is None else 0)
    return jax.vmap(lambda a, k: a.drift(t, key=k), in_axes=axes)(tile, _group_keys(key, groups))


def exact(
    x: Float[Array, "*batch inputs"], matrix: Float[Array, "*groups inputs outputs"]
) -> Float[Array, "*batch outputs"]:
    """The digital product, group by group where there are several."""
    matrix = matrix.astype(x.dtype)
    return x @ matrix if matrix.ndim == 2 else jnp.einsum("...gi,gio->...go", x, matrix)


def wide(x: Array) -> Array:
    """In single precision at least."""
    return x if jnp.finfo(x.dtype).bits >= 32 else x.astype(jnp.float32)


def per_output(p: Float[Array, "*groups outputs"], y: Float[Array, "*batch outputs"]) -> Array:
    """One number per output, against outputs with leading axes."""
    return p.astype(y.dtype).reshape((1,) * (y.ndim - p.ndim) + p.shape)


def _group_keys(key: Key[Array, ""] | None, groups: int) -> Key[Array, " groups"] | None:
    if key is None:
        return None
    return jax.vmap(lambda g: jax.random.fold_in(key, g))(jnp.arange(groups))
