"""Weight modifiers for hardware-aware training: what a forward pass sees instead of the master weights.

A modifier is a function ``(w, key) -> w`` of a matrix [..., inputs, outputs]. The layer never writes its result back.
Every gradient is straight through,

    dL/dw = dL/dw_seen,

while numbers of a modifier keep the derivative they have. Noise is drawn in single precision at least, and what is seen
has the dtype of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax.devices.programmed import polynomial
from xbar_jax.hardware import Hardware, Tile, program, quantize
from xbar_jax.nn import product
from xbar_jax.tree import dataclass, leaf, static
from xbar_jax.typing import Array, Float, Key, Scalar

Matrix = Float[Array, "*groups inputs outputs"]
Modifier = Callable[[Matrix, Key[Array, ""]], Matrix]


def _wide(w: Array) -> Array:
    """The weights without their gradient, in single precision at least."""
    return product.wide(jax.lax.stop_gradient(w))


def _seen(w: Array, value: Array) -> Array:
    """``value`` in the dtype of ``w``, with the gradient of ``w``."""
    # w - w is 0, so that the value stays what it is to the last bit.
    return value.astype(w.dtype) + (w - jax.lax.stop_gradient(w))


def _normal(key: Key[Array, ""], like: Array) -> Array:
    return jax.random.normal(key, like.shape, like.dtype)


def _largest(w: Array) -> Array:
    """Largest magnitude of each matrix, 1 where all weights are 0."""
    largest = jnp.abs(w).max((-2, -1), keepdims=True)
    return jnp.where(largest > 0, largest, 1.0)


@dataclass(kw_only=True)
class Additive:
    """Normal noise relative to the largest weight of the matrix: w + std max|w| n.

    Args:
      std: standard deviation relative to max|w|.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> w = xb.nn.noise.Additive(std=0.1)(jnp.ones((3, 2)), jax.random.key(0))

    Reference:
      V. Joshi et al., Nat. Commun. 11, 2473 (2020).
    """

    std: Scalar = leaf(0.05)

    def __call__(self, w: Matrix, key: Key[Array, ""]) -> Matrix:
        wide = _wide(w)
        size = jnp.abs(wide).max((-2, -1), keepdims=True)
        return _seen(w, wide + jnp.asarray(self.std, wide.dtype) * size * _normal(key, wide))


@dataclass(kw_only=True)
class Multiplicative:
    """Normal noise relative to each weight: w (1 + std n).

    Args:
      std: standard deviation relative to each weight.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> w = xb.nn.noise.Multiplicative(std=0.1)(jnp.ones((3, 2)), jax.random.key(0))
    """

    std: Scalar = leaf(0.05)

    def __call__(self, w: Matrix, key: Key[Array, ""]) -> Matrix:
        wide = _wide(w)
        return _seen(w, wide * (1.0 + jnp.asarray(self.std, wide.dtype) * _normal(key, wide)))


@dataclass(kw_only=True)
class Programming:
    """Programming error of a pair of cells whose spread is a polynomial of the conductance.

        w_seen = max|w| (g+ - g-),    g+- = max(0, h+- + scale sigma(h+-) n+-),    h+- = max(+-w, 0) / max|w|,
        sigma(h) = (c_0 + c_1 h + c_2 h^2 + ...) / g_ref

    This is what a read right after programming sees with ``xb.mapping.Differential(g_min=0, per="tile")``, without
    noise of the read. The default is that of :class:`xbar_jax.devices.PCM`.

    Args:
      c: coefficients of sigma, S.
      g_ref: S, largest conductance, for which the coefficients hold.
      scale: factor of the spread.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> w = xb.nn.noise.Programming(scale=2.0)(jnp.ones((3, 2)), jax.random.key(0))

    Reference:
      S. R. Nandakumar et al., ICECS (2019).
    """

    c: Any = leaf((0.26348e-6, 1.9650e-6, -1.1731e-6))
    g_ref: Scalar = leaf(25e-6)
    scale: Scalar = leaf(1.0)

    def __call__(self, w: Matrix, key: Key[Array, ""]) -> Matrix:
        wide = _wide(w)
        size = _largest(wide)
        factor = jnp.asarray(self.scale, wide.dtype) / jnp.asarray(self.g_ref, wide.dtype)

        def cell(h, key):
            sigma = factor * jnp.maximum(polynomial(self.c, h), 0.0)
            return jnp.maximum(h + sigma * _normal(key, h), 0.0)

        up, down = jax.random.split(key)
        share = wide / size
        seen = cell(jnp.maximum(share, 0.0), up) - cell(jnp.maximum(-share, 0.0), down)
        return _seen(w, size * seen)


@dataclass(kw_only=True)
class Device:
    """The error of a device itself: the matrix is programmed by the hardware's mapping and read once.

    Wires and converters are left out, so that a step costs little more than the draws.

    Args:
      hardware: whose ``device`` and ``mapping`` count, and the size of arrays, over which the mapping scales.
      t: s since programming.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> modifier = xb.nn.noise.Device(hardware=xb.Hardware(device=xb.devices.PCM()), t=3600.0)
      >>> w = modifier(jnp.ones((3, 2)), jax.random.key(0))
    """

    hardware: Hardware = leaf()
    t: Scalar = leaf(0.0)

    def __call__(self, w: Matrix, key: Key[Array, ""]) -> Matrix:
        wide = _wide(w)
        flat = wide.reshape(-1, *w.shape[-2:])
        # A single matrix has the key itself, so that it sees what `program` with this key would make of it.
        if len(flat) == 1:
            return _seen(w, self._read(flat[0], key).reshape(w.shape))
        keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(len(flat)))
        return _seen(w, jax.vmap(self._read)(flat, keys).reshape(w.shape))

    def _read(self, w: Array, key: Key[Array, ""]) -> Array:
        k_program, k_read = jax.random.split(key)
        hw = self.hardware.replace(wires=None, cell=None, dac=None, adc=None, bias="digital", compensation=None)
        tile = program(w, hw, key=k_program)
        return _weights(tile.replace(t=jnp.asarray(self.t, w.dtype)), k_read)


def _weights(tile: Tile, key: Key[Array, ""]) -> Float[Array, "inputs outputs"]:
    """The matrix that the conductances of a tile stand for, as one read sees them."""
    hw, tiling = tile.hardware, tile.tiling
    w = hw.mapping.digital(hw.mapping.analog(tile.conductance(key=key))) * tile.scale[:, :, None, :]
    w = jnp.where(tile.live[:, :, None, :], w, 0.0)
    if tile.order is not None:
        w = jnp.take_along_axis(w, jnp.argsort(tile.order, axis=-1)[..., None], axis=2)
    down, across, rows, cols = w.shape
    w = w.transpose(0, 2, 1, 3).reshape(down * rows, across * cols)[:, : tiling.outputs]
    full = (down - 1) * rows
    return jnp.concatenate([w[:full], w[full + tiling.spare[0] :]])


@dataclass(kw_only=True)
class DropConnect:
    """Weights that are absent, as cells that cannot be formed: each is 0 with probability p.

    Args:
      p: probability, 0 to 1. What is left is not scaled up.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> w = xb.nn.noise.DropConnect(p=0.5)(jnp.ones((3, 2)), jax.random.key(0))

    Reference:
      L. Wan et al., ICML (2013), there with a gradient for the weights that are present alone.
    """

    p: Scalar = leaf(0.01)

    def __call__(self, w: Matrix, key: Key[Array, ""]) -> Matrix:
        absent = jax.random.uniform(key, w.shape, jnp.float32) < jnp.asarray(self.p, jnp.float32)
        wide = _wide(w)
        return _seen(w, jnp.where(absent, 0.0, wide))


@dataclass(kw_only=True)
class Discretise:
    """Weights rounded to the levels of a symmetric scale, zero among them.

        w_seen = d round(w / d),    d = max|w| / (2^(bits - 1) - 1),

    2^bits - 1 levels; nothing is drawn.

    Args:
      bits: resolution, > 1; inf (None, 0) leaves the weights as they are.
      per: "layer" or "channel", over what the maximum runs: the matrix, or each output.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> modifier = xb.nn.noise.Discretise.levels(3)
      >>> modifier(jnp.array([[1.0], [0.6], [-0.2]]), jax.random.key(0)).ravel()
      Array([1., 1., 0.], dtype=float32)
    """

    bits: Scalar | None = leaf(math.inf, absent=math.inf)
    per: str = static("layer")

    @classmethod
    def levels(cls, n: int, **changes: Any) -> Discretise:
        """So many levels, an odd number from 3 on.

        Raises:
          ValueError: ``n`` is even or too small: no such scale is symmetric about zero and holds it.
        """
        if isinstance(n, bool) or n != int(n) or n < 3 or n % 2 == 0:
            raise ValueError(f"Discretise.levels: n must be an odd number >= 3, got {n!r}")
        return cls(bits=math.log2(n + 1), **changes)

    def __call__(self, w: Matrix, key: Key[Array, ""]) -> Matrix:
        check_per("Discretise", self.per)
        wide = _wide(w)
        largest = _largest(wide) if self.per == "layer" else jnp.abs(wide).max(-2, keepdims=True)
        bound = jnp.broadcast_to(jnp.where(largest > 0, largest, 1.0), wide.shape)
        return _seen(w, quantize(wide, bound, self.bits))


@dataclass(kw_only=True)
class Compose:
    """One modifier after another, each with its own part of the key.

    Args:
      parts: modifiers, the first acts on the master weights.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> n = xb.nn.noise
      >>> modifier = n.Compose(parts=(n.Discretise(bits=4), n.Additive(std=0.05)))
      >>> w = modifier(jnp.ones((3, 2)), jax.random.key(0))
    """

    parts: tuple[Modifier, ...] = leaf(())

    def __call__(self, w: Matrix, key: Key[Array, ""]) -> Matrix:
        for k, part in enumerate(self.parts):
            w = part(w, jax.random.fold_in(key, k))
        return w


@dataclass(kw_only=True)
class OutputNoise:
    """Normal noise of outputs relative to the largest of each vector: y + std max|y| n.

    A function ``(y, key) -> y`` for outputs, not for weights; an output never depends on other vectors of its batch.

    Args:
      std: standard deviation relative to the largest output of a vector.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> y = xb.nn.noise.OutputNoise(std=0.1)(jnp.ones((4, 2)), jax.random.key(0))
    """

    std: Scalar = leaf(0.05)

    def __call__(self, y: Float[Array, "*batch outputs"], key: Key[Array, ""]) -> Float[Array, "*batch outputs"]:
        wide = _wide(y)
        size = jnp.abs(wide).max(-1, keepdims=True)
        return _seen(y, wide + jnp.asarray(self.std, wide.dtype) * size * _normal(key, wide))


def check_per(name: str, per: str) -> None:
    """Raises ValueError unless ``per`` is "layer" or "channel"."""
    if per not in ("layer", "channel"):
        raise ValueError(f"{name}: per must be 'layer' or 'channel', got {per!r}")
