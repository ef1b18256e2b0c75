"""Random numbers indexed by cell.

The counter of the generator is the global (row, column) of the cell, so that tiling, padding, batching,
sharding and backend never change the noise of a cell. Which quantity is drawn is folded into the key.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32

from xbar_jax.typing import Array, Float, Int, Key, Scalar


def cell_bits(
    key: Key[Array, ""], row: Int[Array, "..."], col: Int[Array, "..."], draw: int | Array
) -> Int[Array, "..."]:
    """32 random bits for each cell.

    threefry-2x32 of the counter (row, col) under ``fold_in(key, draw)``; the two words are xored.

    Args:
      key: a typed threefry key.
      row, col: global indices of the cells, of equal shape.
      draw: which draw of this key.

    Returns:
      uint32 of the shape of ``row``.

    Raises:
      TypeError: ``key`` is not a typed threefry key.
      ValueError: ``row`` and ``col`` differ in shape.
    """
    check_key(key)
    row, col = jnp.asarray(row), jnp.asarray(col)
    if row.shape != col.shape:
        raise ValueError(f"cell_bits: row and col must have equal shapes, got {row.shape} and {col.shape}")
    words = key_words(jax.random.fold_in(key, draw))
    first, second = threefry((words[0], words[1]), row, col)
    return first ^ second


def check_key(key: Key[Array, ""]) -> None:
    """Raises TypeError unless ``key`` is a typed threefry key."""
    if not (hasattr(key, "dtype") and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        got = f"{key.dtype}{list(key.shape)}" if hasattr(key, "dtype") else repr(key)
        raise TypeError(f"key must be a typed key from jax.random.key, got {got}")
    if jax.random.key_impl(key) != "threefry2x32":
        raise TypeError(f"key must be of implementation threefry2x32, got {jax.random.key_impl(key)}")


def check_one_key(name: str, key: Key[Array, ""]) -> None:
    """Raises TypeError, in the name of a function, unless ``key`` is one typed threefry key."""
    try:
        check_key(key)
    except TypeError as e:
        raise TypeError(f"{name}: {e}") from None
    if key.shape != ():
        raise TypeError(f"{name}: key must be one key, got {list(key.shape)} of them; jax.vmap maps over keys")


def cell_normal(key, row, col, draw, dtype=jnp.float32) -> Float[Array, "..."]:
    """A standard normal number for each cell, of the resolution of float32.

    The upper 23 bits make a uniform number strictly inside (-1, 1), and x = sqrt(2) erfinv(u).
    Arguments as in :func:`cell_bits`.
    """
    bits = cell_bits(key, row, col, draw) >> jnp.uint32(9)
    u = (bits.astype(jnp.float32) + 0.5) * (2.0 / 2**23) - 1.0
    return (jnp.sqrt(2.0).astype(jnp.float32) * jax.lax.erf_inv(u)).astype(dtype)


def threefry(
    words: tuple[Array, Array], a: Int[Array, "..."], b: Int[Array, "..."]
) -> tuple[Int[Array, "..."], Int[Array, "..."]]:
    """threefry-2x32 of the counters (a, b) under the key of two scalar words; both words of the result.

    Reference: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    a, b = jnp.broadcast_arrays(jnp.asarray(a, jnp.uint32), jnp.asarray(b, jnp.uint32))
    # threefry_2x32 pairs the first half of its counter with the second.
    out = threefry_2x32(words, jnp.concatenate([a.ravel(), b.ravel()]))
    first, second = jnp.split(out, 2)
    return first.reshape(a.shape), second.reshape(a.shape)


def normal_pair(a: Int[Array, "..."], b: Int[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Two independent standard normal float32 numbers from two random words.

        z = sqrt(-2 ln u) (cos t, sin t),

    u of 24 bits strictly inside (0, 1), the angle t from 24 bits of a quarter turn and two bits of its
    quadrant, turned by an eighth so that the series are short.

    Reference: Box and Muller, Ann. Math. Statist. 29 (1958).
    """
    scale = jnp.float32(2.0**-24)
    u = ((a >> 8).astype(jnp.int32).astype(jnp.float32) + jnp.float32(0.5)) * scale
    radius = jnp.sqrt(jnp.log(u) * jnp.float32(-2.0))
    f = ((b & jnp.uint32(0x3FFFFFFF)) >> 6).astype(jnp.int32).astype(jnp.float32) * scale - jnp.float32(0.5)
    sin, cos = jnp.sin(f * jnp.float32(jnp.pi / 2)), jnp.cos(f * jnp.float32(jnp.pi / 2))
    odd, upper = (b >> 30) & 1, b >> 31
    x, y = jnp.where(odd == 1, sin, cos), jnp.where(odd == 1, cos, sin)
    return radius * jnp.where((odd ^ upper) == 1, -x, x), radius * jnp.where(upper == 1, -y, y)


def key_words(key: Key[Array, "..."]) -> Int[Array, "... 2"]:
    """The two uint32 words of typed threefry keys."""
    check_key(key)
    return jax.random.key_data(key)


def array_index(
    shape: tuple[int, ...], row: Scalar, col: Scalar
) -> tuple[Int[Array, "rows cols"], Int[Array, "rows cols"]]:
    """Global (row, column) of every cell of an array whose first cell is (``row``, ``col``)."""
    rows, cols = shape
    i = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32)[:, None] + jnp.asarray(row, jnp.int32), shape)
    j = jnp.broadcast_to(jnp.arange(cols, dtype=jnp.int32)[None, :] + jnp.asarray(col, jnp.int32), shape)
    return i, j
