"""The smooth modes of an array, for the solver: what lines solved one by one cannot see.

A uniform line of n nodes with segments r and ends joined through conductances y_near and y_far (in units of
1/r, 0 where open) has the eigenvectors x_j = cos(theta j - phi_near), j counted from the near end, with

    theta (n - 1) - phi_near - phi_far = k pi,    tan phi = (cos theta - 1 + y) / sin theta,

and W^-1 x = (2 - 2 cos theta) / r x. With alpha and beta these eigenvalues of the mean word and bit line and g the
mean conductance, the Schur complement S of equal cells has the eigenvalues beta + g alpha / (alpha + g), and lines
alone account for beta + g. The difference of their inverses is what the coarse correction adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

from xbar_jax.circuits.lines import Lines
from xbar_jax.tree import dataclass
from xbar_jax.typing import Array, Bool, Float

if TYPE_CHECKING:
    from xbar_jax.circuits.network import Network

# N^2 r g from which the correction pays, and how soft a mode must be (in mean conductances) to be part of it.
FROM = 100.0
SOFTER = 2.0


@dataclass
class Coarse:
    """``x -> Q_bit (gain * (Q_bit^T x Q_word)) Q_word^T``; nothing where ``active`` is False.

    Attributes:
      word: [cols, modes], orthonormal. bit: [rows, modes].
      gain: [bit modes, word modes] ohm.
      active: whether the wires weigh enough.
    """

    word: Float[Array, "cols word_modes"]
    bit: Float[Array, "rows bit_modes"]
    gain: Float[Array, "bit_modes word_modes"]
    active: Bool[Array, ""]

    def __call__(self, x: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        def correct(x):
            return self.bit @ (self.gain * (self.bit.T @ (x @ self.word))) @ self.word.T

        return lax.cond(self.active, correct, jnp.zeros_like, x)


def make_coarse(network: Network, *, always: bool) -> Coarse:
    """The coarse space of an array; ``always``, or only where the wires weigh enough."""
    rows, cols = network.g.shape
    g = network.g.mean()
    alpha, word, r_word = _modes(network.word, g)
    beta, bit, r_bit = _modes(network.bit, g)
    weight = 0.5 * g * (r_word * cols**2 + r_bit * rows**2)
    usable = (g > 0) & (r_word > 0) & (r_bit > 0)
    safe = jnp.where(usable, g, 1.0)
    used = (alpha < SOFTER * g)[None, :] & (beta < SOFTER * g)[:, None]
    alpha, beta = alpha[None, :], beta[:, None]
    exact, lines = beta + safe * alpha / (alpha + safe), beta + safe
    gain = jnp.where(used & usable, (lines / safe) ** 2 * (1.0 / exact - 1.0 / lines), 0.0)
    return Coarse(word=word, bit=bit, gain=gain, active=usable & (always | (weight > FROM)))


def _modes(lines: Lines, g):
    """Eigenvalues [modes] S and eigenvectors [n, modes] of the mean line, and its segment, ohm."""
    n, dtype = lines.n, lines.near.dtype
    count = min(n, max(32, n // 4))
    mean = lambda x: x.sum() / max(1, x.size)
    r = mean(lines.r) if n > 1 else jnp.zeros((), dtype)
    end = lambda on, ohm: r * mean(jnp.where(on, 1.0 / jnp.maximum(ohm, 1e-6), 0.0))
    near = end(lines.near_on, lines.near)
    far = jnp.zeros_like(near) if lines.far is None else end(lines.far_on, lines.far)
    k = jnp.arange(count, dtype=dtype)
    phase = lambda theta, y: jnp.arctan2(jnp.cos(theta) - 1.0 + y, jnp.sin(theta))

    def halve(_, bounds):
        low, high = bounds
        theta = 0.5 * (low + high)
        short = theta * (n - 1) - phase(theta, near) - phase(theta, far) < jnp.pi * k
        return jnp.where(short, theta, low), jnp.where(short, high, theta)

    low, high = lax.fori_loop(0, 45, halve, (jnp.zeros_like(k), jnp.full_like(k, jnp.pi)))
    theta = 0.5 * (low + high)
    at = jnp.arange(n, dtype=dtype)[:, None]
    x = jnp.cos(theta[None, :] * (at[::-1] if lines.flip else at) - phase(theta, near)[None, :])
    x = x / jnp.sqrt((x**2).sum(0, keepdims=True))
    return (2.0 - 2.0 * jnp.cos(theta)) / jnp.where(r > 0, r, 1.0), x, r
