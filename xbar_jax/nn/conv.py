"""Convolutions whose products run on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flax import nnx

from xbar_jax.nn import conv_layouts
from xbar_jax.nn.analog import Analog


class AnalogConv(Analog):
    """Flax's ``Conv`` on arrays: every pixel of the result is one vector, every group of channels has arrays of its own.

    Noise of the cells is drawn once for a call, so that all pixels and all of the batch see the same cells; converters
    draw for every vector.

    Args:
      args, options: as ``flax.nnx.Conv`` has them, with every padding, strides, dilations and groups; or such a layer
        alone, whose parameters are taken over.
      hardware: description of the arrays, or None.
      rngs: ``params`` makes the kernel, ``noise`` draws programming and read noise.
      modifier: function ``(w, key) -> w`` of the matrix [prod(kernel_size) in_features, out_features] (of each group).

    Example:
      >>> from flax import nnx
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> layer = xb.nn.AnalogConv(1, 32, (3, 3), hardware=xb.Hardware(rows=10, cols=10), rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((2, 8, 8, 1))).shape
      (2, 8, 8, 32)
    """

    kind = nnx.Conv

    @staticmethod
    def layout_of(digital: Any) -> conv_layouts.Conv:
        each = lambda n: each_dim(n, len(digital.kernel_size))
        return conv_layouts.Conv(
            size=tuple(digital.kernel_size),
            in_features=digital.in_features,
            out_features=digital.out_features,
            groups=digital.feature_group_count,
            strides=each(digital.strides),
            input_dilation=each(digital.input_dilation),
            kernel_dilation=each(digital.kernel_dilation),
            padding=canonical_padding(digital.padding, len(digital.kernel_size)),
        )


class AnalogConvTranspose(Analog):
    """Flax's ``ConvTranspose`` on arrays: every pixel of the result is one vector.

    Args:
      args, options: as ``flax.nnx.ConvTranspose`` has them; or such a layer alone, whose parameters are taken over.
      hardware, rngs, modifier: as :class:`AnalogConv` has them.

    Example:
      >>> from flax import nnx
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> layer = xb.nn.AnalogConvTranspose(3, 4, (2, 2), strides=2, hardware=xb.Hardware(), rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((1, 5, 5, 3))).shape
      (1, 10, 10, 4)
    """

    kind = nnx.ConvTranspose

    @staticmethod
    def layout_of(digital: Any) -> conv_layouts.ConvTranspose:
        each = lambda n: each_dim(n, len(digital.kernel_size))
        return conv_layouts.ConvTranspose(
            size=tuple(digital.kernel_size),
            in_features=digital.in_features,
            out_features=digital.out_features,
            strides=each(digital.strides),
            kernel_dilation=each(digital.kernel_dilation),
            padding=canonical_padding(digital.padding, len(digital.kernel_size)),
            transposed=digital.transpose_kernel,
        )


def each_dim(n: int | Sequence[int] | None, dims: int) -> tuple[int, ...]:
    """One number for each dimension; None is 1."""
    return (1 if n is None else n,) * dims if n is None or isinstance(n, int) else tuple(n)


def canonical_padding(padding: Any, dims: int) -> conv_layouts.Pads:
    """A mode, or a pair (low, high) for each dimension, of what flax allows."""
    if isinstance(padding, str):
        return padding
    pads = each_dim(padding, dims)
    if len(pads) != dims or not all(isinstance(p, int) or len(p) == 2 for p in pads):
        raise ValueError(f"padding must be a mode, a number, or {dims} numbers or pairs, got {padding!r}")
    return tuple((p, p) if isinstance(p, int) else tuple(p) for p in pads)
