"""Convolutions as products: every pixel of the result is one vector, its patch of the input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from xbar_jax.typing import Array, Float

Pads = str | tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class Conv:
    """A convolution of 1 to 3 dimensions or more, channels last.

    The matrix of a group is [prod(size) in_features / groups, out_features / groups], rows in the order of the kernel.

    Args:
      size: of the kernel.
      in_features, out_features: channels.
      groups: of channels that do not mix; in_features of them is depthwise.
      strides, input_dilation, kernel_dilation: one for each dimension.
      padding: "SAME", "VALID", "CIRCULAR", "REFLECT", "CAUSAL", or a pair (low, high) for each dimension.
    """

    size: tuple[int, ...]
    in_features: int
    out_features: int
    groups: int = 1
    strides: tuple[int, ...] = ()
    input_dilation: tuple[int, ...] = ()
    kernel_dilation: tuple[int, ...] = ()
    padding: Pads = "SAME"

    inputs = property(lambda self: math.prod(self.size) * (self.in_features // self.groups))
    outputs = property(lambda self: self.out_features // self.groups)

    def matrix(self, kernel: Array) -> Float[Array, "groups inputs outputs"]:
        return kernel.reshape(self.inputs, self.groups, self.outputs).swapaxes(0, 1)

    def kernel(self, matrix: Float[Array, "groups inputs outputs"]) -> Array:
        return matrix.swapaxes(0, 1).reshape(*self.size, self.in_features // self.groups, self.out_features)

    def bias(self, b: Array) -> Float[Array, "groups outputs"]:
        return b.reshape(self.groups, self.outputs)

    def check(self, name: str, x: Array) -> None:
        """Raises ValueError where ``x`` does not fit."""
        if x.ndim < len(self.size) + 1 or x.shape[-1] != self.in_features:
            dims = ", ".join("n" for _ in self.size)
            raise ValueError(f"{name}: x must have shape [..., {dims}, {self.in_features}], got {list(x.shape)}")

    def apply(self, x: Array, product: Callable[[Array], Array]) -> Array:
        lead = x.shape[: x.ndim - len(self.size) - 1]
        y = product(self.patches(x.reshape(math.prod(lead), *x.shape[len(lead) :])))
        return y.reshape(*lead, *y.shape[1:-2], self.out_features)

    def patches(self, x: Float[Array, "batch *dims channels"]) -> Float[Array, "batch *pixels groups inputs"]:
        """What each pixel of the result sees, in the order of the kernel."""
        x = self._padded(x)
        n = len(self.size)
        for d in range(n):
            k, step, dilation = self.size[d], self.strides[d], self.kernel_dilation[d]
            pixels = (x.shape[1 + d] - (k - 1) * dilation - 1) // step + 1
            part = lambda i, d=d, p=pixels, s=step, w=dilation: lax.slice_in_dim(
                x, i * w, i * w + (p - 1) * s + 1, s, axis=1 + d
            )
            x = jnp.stack([part(i) for i in range(k)], axis=-1)
        # [batch, *pixels, channels, *size] -> [batch, *pixels, groups, *size, channels of a group]
        x = x.reshape(*x.shape[: 1 + n], self.groups, self.in_features // self.groups, *self.size)
        x = jnp.moveaxis(x, 2 + n, -1)
        return x.reshape(*x.shape[: 2 + n], self.inputs)

    def _padded(self, x: Array) -> Array:
        reach = [(k - 1) * w + 1 for k, w in zip(self.size, self.kernel_dilation, strict=True)]
        pads = self.padding
        if pads in ("CIRCULAR", "REFLECT"):
            width = [(0, 0), *(((k - 1) // 2, k // 2) for k in reach), (0, 0)]
            x = jnp.pad(x, width, mode="wrap" if pads == "CIRCULAR" else "reflect")
            pads = "VALID"
        elif pads == "CAUSAL":
            if len(self.size) != 1:
                raise ValueError(f"Conv: padding 'CAUSAL' must have one dimension, got {len(self.size)}")
            pads = ((reach[0] - 1, 0),)
        if isinstance(pads, str):
            pads = tuple(lax.padtype_to_pads(x.shape[1:-1], reach, self.strides, pads))
        inner = [(lo, hi, w - 1) for (lo, hi), w in zip(pads, self.input_dilation, strict=True)]
        return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *inner, (0, 0, 0)])


@dataclasses.dataclass(frozen=True)
class ConvTranspose(Conv):
    """A transposed convolution: ``strides`` dilate the input. As :class:`Conv` otherwise.

    Args:
      transposed: the kernel is [*size, out_features, in_features] with its dimensions reversed.
    """

    transposed: bool = False

    def matrix(self, kernel: Array) -> Float[Array, "groups inputs outputs"]:
        if self.transposed:
            kernel = jnp.flip(kernel, range(len(self.size))).swapaxes(-1, -2)
        return super().matrix(kernel)

    def kernel(self, matrix: Float[Array, "groups inputs outputs"]) -> Array:
        kernel = super().kernel(matrix)
        return jnp.flip(kernel.swapaxes(-1, -2), range(len(self.size))) if self.transposed else kernel

    def patches(self, x: Float[Array, "batch *dims channels"]) -> Float[Array, "batch *pixels groups inputs"]:
        plain = Conv(
            size=self.size,
            in_features=self.in_features,
            out_features=self.out_features,
            strides=(1,) * len(self.size),
            input_dilation=self.strides,
            kernel_dilation=self.kernel_dilation,
            padding=self._pads(),
        )
        seen = plain.patches(x)
        if self.padding != "CIRCULAR":
            return seen
        # A product is linear: patches that fall on one pixel of the period are added before it, so that the arrays
        # are read once for each pixel.
        for d, (n, step) in enumerate(zip(x.shape[1:-1], self.strides, strict=True)):
            seen = _folded(seen, 1 + d, n * step, extra_left=not self.transposed)
        return seen

    def _pads(self) -> Pads:
        """As jax.lax.conv_transpose pads."""
        if not isinstance(self.padding, str):
            return self.padding
        if self.padding not in ("SAME", "VALID", "CIRCULAR"):
            raise ValueError(
                f"ConvTranspose: padding must be 'SAME', 'VALID', 'CIRCULAR' or pairs, got {self.padding!r}"
            )
        pads = []
        for k, w, s in zip(self.size, self.kernel_dilation, self.strides, strict=True):
            k = (k - 1) * w + 1
            if self.padding == "SAME":
                total = k + s - 2
                low = k - 1 if s > k - 1 else -(-total // 2)
            else:
                total, low = k + s - 2 + max(k - s, 0), k - 1
            pads.append((low, total - low))
        return tuple(pads)


def _folded(x: Array, axis: int, period: int, *, extra_left: bool) -> Array:
    """Sum of the periods along an axis, about its middle."""
    spare = -(x.shape[axis] - period) % (2 * period)
    small, large = spare // 2, (spare + 1) // 2
    widths = [(0, 0)] * x.ndim
    widths[axis] = (large, small) if extra_left else (small, large)
    x = jnp.pad(x, widths)
    return x.reshape(*x.shape[:axis], -1, period, *x.shape[axis + 1 :]).sum(axis)
