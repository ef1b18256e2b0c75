"""The stochastic pulsed update: W <- W - lr x^T d by coincidences of pulse trains."""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from xbar_jax import random
from xbar_jax.devices import kernels
from xbar_jax.devices.step import LINES
from xbar_jax.tree import is_traced
from xbar_jax.typing import Array, Float, Int, Key, Scalar

State = TypeVar("State")
_KINDS = ("stochastic", "mean_count", "deterministic")


class Lines(NamedTuple):
    """Pulse trains of a mini-batch before any draw.

    Attributes:
      rows, cols: [samples, lines] signed probabilities of a pulse in one slot.
      slots: int32 [samples], BL.
    """

    rows: Float[Array, "samples rows"]
    cols: Float[Array, "samples cols"]
    slots: Int[Array, " samples"]


def lines(
    x: Float[Array, "samples rows"],
    d: Float[Array, "samples cols"],
    *,
    lr: Scalar,
    dw_min: Scalar,
    bl_max: int = 31,
    bl_management: bool = True,
    update_management: bool = True,
) -> Lines:
    """Train length and pulse probabilities of every sample.

    With X = max|x_i|, E = max|d_j| of the sample and k = |lr| X E / dw_min:

        BL = min(ceil k, bl_max) with bl_management, else bl_max; 0 where k = 0 or is not a number,
        p_i = min(1, B |x_i|), q_j = min(1, A |d_j|), A = B = sqrt(|lr|/(dw_min BL)),

    and with update_management A *= sqrt(X/E*), B *= sqrt(E*/X), E* = E min(1, bl_max/k), so that both kinds
    of line use their range. The expected update is -lr x_i d_j, and saturates at BL dw_min.

    ceil takes a k that is an integer to within rounding as that integer.

    Returns:
      Signed probabilities, sign(lr x_i) p_i and sign(d_j) q_j, and BL.

    Reference: Gokmen and Vlasov, Front. Neurosci. 10, 333 (2016); Gokmen et al., Front. Neurosci. 12, 745 (2018).
    """
    lr, dw = jnp.asarray(lr, x.dtype), jnp.asarray(dw_min, x.dtype)
    top_x, top_d = jnp.max(jnp.abs(x), axis=1, initial=0), jnp.max(jnp.abs(d), axis=1, initial=0)
    k = jnp.minimum(jnp.abs(lr) * top_x * top_d / dw, jnp.finfo(x.dtype).max / 1e6)  # beyond it all saturates
    moves = k > 0
    full = jnp.asarray(bl_max, x.dtype)
    slack = 4 * jnp.finfo(x.dtype).eps
    length = jnp.minimum(jnp.ceil(k * (1 - slack)), full) if bl_management else jnp.full_like(k, bl_max)
    length = jnp.where(moves, jnp.maximum(length, 1), 0)
    gain = jnp.sqrt(jnp.abs(lr) / (dw * jnp.maximum(length, 1)))
    row_gain = col_gain = gain
    if update_management:
        safe = lambda v: jnp.where(moves, v, 1)
        ratio = jnp.sqrt(safe(top_x) / (safe(top_d) * jnp.minimum(1, full / safe(k))))
        row_gain, col_gain = gain / ratio, gain * ratio
    signed = lambda v, g: jnp.sign(v) * jnp.minimum(1, g[:, None] * jnp.abs(v))
    return Lines(signed(x, row_gain) * jnp.sign(lr), signed(d, col_gain), length.astype(jnp.int32))


def mean_counts(
    row: Float[Array, " rows"], col: Float[Array, " cols"], slots: Int[Array, ""]
) -> Int[Array, "rows cols"]:
    """round(c_x c_d / BL), c = round(BL p): the coincidences of evenly spread pulses; positive is up."""
    full = slots.astype(row.dtype)
    cx, cd = (jnp.round(full * jnp.abs(p)).astype(jnp.int32) for p in (row, col))
    n = (2 * cx[:, None] * cd[None, :] + slots) // jnp.maximum(2 * slots, 1)
    return jnp.where(jnp.sign(row)[:, None] * jnp.sign(col)[None, :] < 0, n, -n)


def implicit_counts(
    row: Float[Array, " rows"], col: Float[Array, " cols"], slots: Int[Array, ""]
) -> Int[Array, "rows cols"]:
    """round(BL p q): the expected number of coincidences; positive is up."""
    n = jnp.round(slots.astype(row.dtype) * jnp.abs(row)[:, None] * jnp.abs(col)[None, :]).astype(jnp.int32)
    return jnp.where(jnp.sign(row)[:, None] * jnp.sign(col)[None, :] < 0, n, -n)


def pulsed_update(
    dev: Any,
    state: State,
    x: Float[Array, "samples rows"],
    d: Float[Array, "samples cols"],
    *,
    lr: Scalar,
    key: Key[Array, ""],
    pulses: Literal["stochastic", "mean_count", "deterministic"] = "stochastic",
    bl_max: int = 31,
    bl_management: bool = True,
    update_management: bool = True,
    row: Scalar = 0,
    col: Scalar = 0,
) -> State:
    """W <- W - lr x^T d on the devices, by coincidences of pulses; samples one after another.

    In each of BL slots every line draws one bit, shared by all its cells, so coincidences along a row or a
    column are correlated. A cell gets one pulse of sign -sign(lr x_i d_j) for each slot set on both its
    lines: E[dW] = -lr x_i d_j for a device of constant step, until it saturates at BL dw_min. See
    :func:`lines` for BL and the probabilities. After the last sample decay and diffusion act once.

    ``state`` must come from ``init`` of this very device, which draws its steps and bounds into it.

    Derivatives. With respect to the state, and with ``init`` inside to the parameters of the device, they are those
    of the pulses that fell, with their number held fixed. With respect to x, d and lr they are a surrogate, since numbers
    of pulses are integers: dW = -slope d(lr x^T d), slope the step of one pulse at the new weight over
    dw_min, as if every pulse in expectation moved the cell by its local step.

    Args:
      dev: pulsed device, e.g. :class:`ConstantStep`.
      state: of one array.
      x: inputs of the rows.
      d: errors of the columns.
      lr: learning rate; negative reverses every pulse.
      key: typed key.
      pulses: static. "stochastic"; "mean_count": round(c_x c_d/BL) coincidences, c = round(BL p);
        "deterministic": round(BL p q). The last two draw no trains.
      bl_max: static, longest train.
      bl_management: static, shortens the train of a small sample.
      update_management: static, balances rows and columns.
      row, col: global index of the array's first cell, by which lines and noise are indexed.

    Returns:
      The new state, of the type of ``state``.

    Raises:
      ValueError: a shape, ``pulses`` or ``bl_max`` is wrong.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.SoftBounds()
      >>> state = dev.init((3, 2), key=jax.random.key(0))
      >>> x, d = jnp.ones((8, 3)), jnp.ones((8, 2))
      >>> state = xb.pulsed_update(dev, state, x, d, lr=0.01, key=jax.random.key(1))

    Reference: Gokmen and Vlasov, Front. Neurosci. 10, 333 (2016).
    """
    if not hasattr(dev, "apply_trains"):
        raise TypeError(f"pulsed_update: dev must be a pulsed device, got {type(dev).__name__}")
    random.check_one_key("pulsed_update", key)
    try:
        shape = jax.eval_shape(dev.weight, state).shape
    except (AttributeError, KeyError):
        raise TypeError(
            f"pulsed_update: state must come from {type(dev).__name__}.init, got {type(state).__name__}"
        ) from None
    x, d = (jnp.asarray(v) for v in (x, d))
    _check(x, d, shape, lr, pulses, bl_max)
    dtype = jax.eval_shape(dev.weight, state).dtype
    work = jnp.float64 if dtype == jnp.float64 else jnp.float32
    update = _updated(pulses, bl_max, bl_management, update_management)
    return update(
        dev, state, x.astype(work), d.astype(work), jnp.asarray(lr, work), key, jnp.asarray(row), jnp.asarray(col)
    )


def _check(x, d, shape, lr, pulses, bl_max) -> None:
    if pulses not in _KINDS:
        raise ValueError(f"pulsed_update: pulses must be one of {', '.join(_KINDS)}, got {pulses!r}")
    if isinstance(bl_max, bool) or not isinstance(bl_max, int) or not 1 <= bl_max < 2**15:
        raise ValueError(f"pulsed_update: bl_max must be an integer from 1 to {2**15 - 1}, got {bl_max!r}")
    for name, v, n, axis in (("x", x, shape[0], "rows"), ("d", d, shape[1], "cols")):
        if v.ndim != 2 or v.shape[1] != n:
            raise ValueError(
                f"pulsed_update: {name} must be of shape [batch, {n}] (one value for each of the {axis}), got {v.shape}"
            )
        if not jnp.issubdtype(v.dtype, jnp.floating):
            raise ValueError(f"pulsed_update: {name} must be floating point, got {v.dtype}")
        if not _finite(v):
            raise ValueError(f"pulsed_update: {name} must be finite")
    if x.shape[0] != d.shape[0]:
        raise ValueError(f"pulsed_update: x and d must have the same batch, got {x.shape[0]} and {d.shape[0]}")
    if jnp.shape(lr) != ():
        raise ValueError(f"pulsed_update: lr must be one number, got shape {jnp.shape(lr)}")
    if not _finite(jnp.asarray(lr)):
        raise ValueError(f"pulsed_update: lr must be finite, got {lr}")


def _finite(v: Array) -> bool:
    """False where a concrete array holds what is not finite; it is looked at where it lies, not copied."""
    if is_traced(v) or not v.is_fully_addressable:
        return True
    with jax.ensure_compile_time_eval():
        return bool(jnp.isfinite(v).all())


@functools.cache
def _updated(pulses: str, bl_max: int, bl_management: bool, update_management: bool):
    """The update with its surrogate derivative, for one choice of the static arguments."""

    def update(dev, state, x, d, lr, key, row, col):
        sent = lines(
            x,
            d,
            lr=lr,
            dw_min=dev.granularity,
            bl_max=bl_max,
            bl_management=bl_management,
            update_management=update_management,
        )
        sent = lax.stop_gradient(sent)
        if pulses == "stochastic":
            state = _stochastic(dev, state, sent, key, bl_max, row, col)
        else:
            state = _counted(dev, state, sent, key, pulses, bl_max, row, col)
        return dev.relax(state, key=key, row=row, col=col)

    def run(dev, state, x, d, lr, key, row, col):
        new = update(dev, state, x, d, lr, key, row, col)
        return dev.surrogate(new, -lr * (x.T @ d))

    return jax.jit(run)


def _stochastic(dev, state, sent: Lines, key, bl_max, row, col):
    words = -(-bl_max // kernels.SLOTS)
    folded = jax.random.fold_in(key, LINES)

    def trains(p, side, first):
        base = jax.random.fold_in(folded, side)
        keys = random.key_words(jax.vmap(lambda s: jax.random.fold_in(base, s))(jnp.arange(p.shape[0])))
        thresholds = jnp.round(p * kernels.ONE).astype(jnp.int32)
        return kernels.trains(thresholds, sent.slots, keys, first.astype(jnp.uint32), _words=words)[0]

    return dev.apply_trains(state, trains(sent.rows, 0, row), trains(sent.cols, 1, col), key=key, row=row, col=col)


def _counted(dev, state, sent: Lines, key, pulses, bl_max, row, col):
    counts_of = mean_counts if pulses == "mean_count" else implicit_counts
    folded = jax.random.fold_in(key, LINES)

    def sample(state, xs):
        p, q, slots, s = xs
        counts = counts_of(p, q, slots)
        return dev.apply_counts(
            state, counts[None], key=jax.random.fold_in(folded, s), row=row, col=col, max_pulses=bl_max
        ), None

    return lax.scan(sample, state, (*sent, jnp.arange(sent.slots.shape[0])))[0]
