"""Window functions: how a state slows down towards its ends. s in [0, 1]; ``direction`` > 0 raises s.

Each is computed as 1 - (1 - q)^p from a q that has all its digits near the ends, where 1 - (1 - q) has few.
"""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.typing import Array, Scalar


def none(s: Array, direction: Array, p: Scalar = 1.0) -> Array:
    """1; the state stops at its bounds."""
    return jnp.ones_like(s)


def joglekar(s: Array, direction: Array, p: Scalar = 1.0) -> Array:
    """1 - (2 s - 1)^(2p).

    Zero at both ends whatever the direction: a state that has reached one is locked there. Closed-loop programming
    reports such cells as not converged.

    Reference: Y. N. Joglekar and S. J. Wolf, Eur. J. Phys. 30, 661 (2009).
    """
    return _drop(4.0 * (s * (1.0 - s)), p)


def biolek(s: Array, direction: Array, p: Scalar = 1.0) -> Array:
    """1 - (s - step(-direction))^(2p): zero only at the end that the state moves to.

    Reference: Z. Biolek, D. Biolek, V. Biolkova, Radioengineering 18, 210 (2009).
    """
    return _drop(_ahead(s, direction), p)


def prodromakis(s: Array, direction: Array, p: Scalar = 1.0, j: Scalar = 1.0) -> Array:
    """j (1 - ((s - 1/2)^2 + 3/4)^p).

    Reference: T. Prodromakis et al., IEEE Trans. Electron Devices 58, 3099 (2011).
    """
    return j * _drop(s * (1.0 - s), p)


def zha(s: Array, direction: Array, p: Scalar = 1.0, j: Scalar = 1.0) -> Array:
    """j (1 - (1/4 (s - step(-direction))^2 + 3/4)^p): that of Prodromakis without its lock.

    Reference: J. Zha, H. Huang, Y. Liu, IEEE Trans. Circuits Syst. II 63, 423 (2016).
    """
    return j * _drop(0.25 * _ahead(s, direction), p)


NAMES = ("none", "joglekar", "biolek", "prodromakis", "zha")


def window(name: str, s: Array, direction: Array, p: Scalar = 1.0, j: Scalar = 1.0) -> Array:
    """The window of a name, on s clipped to [0, 1].

    Raises:
      ValueError: there is no such window.
    """
    # Selected, not clipped: clipping halves the derivative at the ends.
    s = jnp.where(s < 0, 0.0, jnp.where(s > 1, 1.0, s))
    direction = jnp.broadcast_to(direction, s.shape)
    if name == "none":
        return none(s, direction)
    if name == "joglekar":
        return joglekar(s, direction, p)
    if name == "biolek":
        return biolek(s, direction, p)
    if name == "prodromakis":
        return prodromakis(s, direction, p, j)
    if name == "zha":
        return zha(s, direction, p, j)
    raise ValueError(f"window must be one of {', '.join(NAMES)}, got {name!r}")


def code(choice: str, name: str, names: tuple[str, ...] = NAMES) -> float:
    """The number of a static choice among ``names``.

    Raises:
      ValueError: it is none of them.
    """
    if name not in names:
        raise ValueError(f"{choice} must be one of {', '.join(names)}, got {name!r}")
    return float(names.index(name))


def _ahead(s, direction):
    """1 - (s - step(-direction))^2 = e (2 - e), e the distance to the end ahead."""
    e = jnp.where(direction < 0, s, 1.0 - s)
    return e * (2.0 - e)


def _drop(q, p):
    """1 - (1 - q)^p, with finite derivatives at q = 1."""
    inside = q < 1
    return jnp.where(inside, -jnp.expm1(p * jnp.log1p(-jnp.where(inside, q, 0.0))), 1.0)
