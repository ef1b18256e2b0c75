"""Pulses on an array of cells: the JAX forms of the native kernels in ``custom_calls``.

A line's train is a row of 32-bit words: 31 slots each, and in bit 31 the sign of the line's input. Pulse
2m and 2m+1 of a cell in one sample take their noise from the two normal numbers of threefry(k0, k1 + m)
of the cell's global (row, column), (k0, k1) the key of the sample; so the noise of a cell depends on
nothing else.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from xbar_jax import native, random
from xbar_jax.typing import Array, Float, Int

SLOTS = 31  # of one word
ONE = 2**30  # the threshold of probability 1


@native.custom_call("xbar_trains")
def trains(
    thresholds: Int[Array, "samples lines"],
    slots: Int[Array, " samples"],
    keys: Int[Array, "samples 2"],
    line: Int[Array, ""],
    *,
    _words: int,
) -> tuple[Int[Array, "samples words lines"]]:
    """Draws one Bernoulli bit for every line and slot.

    Slot t of a line is set where the upper 30 bits of word t % 2 of threefry(key, (line, t // 2)) are below
    |threshold|, so a threshold of 2^30 is always met and 0 never.

    Args:
      thresholds: int32, sign(x) round(2^30 p).
      slots: int32, BL: slots of each sample that are used.
      keys: uint32, words of one key a sample.
      line: uint32, global index of the first line.
      _words: words of a train.

    Returns:
      uint32 trains.
    """
    n = thresholds.shape[-1]
    pairs = (_words * SLOTS + 1) // 2
    index = line + jnp.arange(n, dtype=jnp.uint32)

    def sample(threshold, used, key):
        pair = jnp.arange(pairs, dtype=jnp.uint32)[:, None]
        first, second = random.threefry((key[0], key[1]), index[None, :], pair)
        draws = jnp.stack([first, second], axis=1).reshape(2 * pairs, n)[: _words * SLOTS] >> 2
        level = jnp.abs(threshold).astype(jnp.uint32)
        hit = (draws < level[None, :]) & (jnp.arange(_words * SLOTS, dtype=jnp.int32)[:, None] < used)
        bits = hit.reshape(_words, SLOTS, n).astype(jnp.uint32) << jnp.arange(SLOTS, dtype=jnp.uint32)[None, :, None]
        sign = jnp.where(threshold < 0, jnp.uint32(1 << 31), jnp.uint32(0))
        return bits.sum(axis=1, dtype=jnp.uint32) | sign[None, :]

    return (jax.vmap(sample)(thresholds, slots, keys),)


def signed_counts(row: Int[Array, "words rows"], col: Int[Array, "words cols"]) -> Int[Array, "rows cols"]:
    """Coincidences of one sample, positive where they are up pulses: where the signs of the lines differ."""
    both = row[:, :, None] & col[:, None, :] & jnp.uint32(2**SLOTS - 1)
    n = lax.population_count(both).astype(jnp.int32).sum(axis=0, dtype=jnp.int32)
    up = (row[0, :, None] ^ col[0, None, :]) >> 31 == 1
    return jnp.where(up, n, -n)


def _apply(
    w: Float[Array, "rows cols"],
    counts: Int[Array, "rows cols"],
    key: Int[Array, " 2"],
    index: Any,
    parameters: tuple[Array, ...],
    device: Any,
    limit: int | None,
) -> Float[Array, "rows cols"]:
    """The signed pulses of one sample on every cell, pulse after pulse. ``limit``: no cell gets more."""
    up, n = counts > 0, jnp.abs(counts)

    def pair(m, w):
        # Both words depend on m, so that under vmap they have the same axes.
        counter = key + jnp.stack([jnp.zeros_like(m), m]).astype(jnp.uint32)
        words = random.threefry((counter[0], counter[1]), *index)
        first, second = (z.astype(w.dtype) for z in random.normal_pair(*words))
        w = jnp.where(n > 2 * m, device.step(w, up, first, parameters), w)
        return jnp.where(n > 2 * m + 1, device.step(w, up, second, parameters), w)

    if limit is None:
        return lax.fori_loop(0, (n.max(initial=0) + 1) // 2, pair, w)

    def some(w, m):
        return lax.cond(jnp.any(n > 2 * m), lambda w: pair(m, w), lambda w: w, w), None

    return lax.scan(some, w, jnp.arange((limit + 1) // 2, dtype=jnp.int32))[0]


def _in_order(w, samples, keys, counts_of, origin, parameters, device, limit):
    """Samples one after another; each sees the weights that the one before it left."""
    index = random.array_index(w.shape, origin[0], origin[1])

    def sample(carry, xs):
        w, total = carry
        of, key = xs
        counts = counts_of(of)
        return (_apply(w, counts, key, index, parameters, device, limit), total + jnp.abs(counts)), None

    return lax.scan(sample, (w, jnp.zeros(w.shape, jnp.int32)), (samples, keys))[0]


@native.custom_call("xbar_coincidences", in_place={0: 0})
def coincidences(
    w: Float[Array, "rows cols"],
    row_trains: Int[Array, "samples words rows"],
    col_trains: Int[Array, "samples words cols"],
    keys: Int[Array, "samples 2"],
    origin: Int[Array, " 2"],
    *parameters: Float[Array, "..."],
    device: Any,
    only: int = 0,
) -> tuple[Float[Array, "rows cols"], Int[Array, "rows cols"]]:
    """One pulse for every slot that is set on both lines of a cell.

    Args:
      w: hidden weights.
      row_trains, col_trains: from :func:`trains`.
      keys: uint32, words of the noise key of each sample.
      origin: uint32, global (row, column) of the first cell.
      *parameters: of the device, each [rows or 1, cols or 1], in the order that its ``step`` expects.
      device: class with ``step(w, up, noise, parameters)`` and ``kernel``.
      only: 0 for every pulse; +1 or -1 for the pulses of that sign alone, applied as up pulses.

    Returns:
      The weights, and int32: pulses that each cell got.
    """

    def counts(of):
        c = signed_counts(*of)
        return c if only == 0 else jnp.maximum(only * c, 0)

    limit = row_trains.shape[1] * SLOTS
    return _in_order(w, (row_trains, col_trains), keys, counts, origin, parameters, device, limit)


@native.custom_call("xbar_pulses", in_place={0: 0})
def pulses(
    w: Float[Array, "rows cols"],
    counts: Int[Array, "samples rows cols"],
    keys: Int[Array, "samples 2"],
    origin: Int[Array, " 2"],
    *parameters: Float[Array, "..."],
    device: Any,
    _limit: int | None = None,
) -> tuple[Float[Array, "rows cols"], Int[Array, "rows cols"]]:
    """Given numbers of pulses, positive up. Arguments as in :func:`coincidences`.

    ``_limit``, at least the largest count, makes the JAX form a loop of fixed length, which has a reverse
    derivative; without it only the forward derivative exists.
    """
    return _in_order(w, counts, keys, lambda c: c, origin, parameters, device, _limit)


@native.custom_call("xbar_read")
def noisy_read(
    g: Float[Array, "rows cols"],
    v: Float[Array, " rows"],
    std: Float[Array, "..."],
    key: Int[Array, " 2"],
    origin: Int[Array, " 2"],
) -> tuple[Float[Array, " cols"]]:
    """i[j] = sum over i of v[i] (g[i, j] + std[i, j] n[i, j]), A; n is drawn once a cell and read.

    Args:
      g: S.
      v: V.
      std: S, [rows or 1, cols or 1].
      key: uint32, words of the key of this read.
      origin: uint32, global (row, column) of the first cell.
    """
    n, _ = random.normal_pair(*random.threefry((key[0], key[1]), *random.array_index(g.shape, origin[0], origin[1])))
    return (jnp.sum(v[:, None] * (g + std * n.astype(g.dtype)), axis=0),)
