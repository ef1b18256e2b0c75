"""An einsum whose product runs on arrays."""

from __future__ import annotations

from typing import Any

from flax import nnx

from xbar_jax.nn import layouts
from xbar_jax.nn.analog import Analog
from xbar_jax.typing import Array, ArrayLike


class AnalogEinsum(Analog):
    """Flax's ``Einsum`` on arrays; letters that input, kernel and result share are groups with arrays of their own.

    Args:
      args, options: as ``flax.nnx.Einsum`` has them; or such a layer alone, whose parameters are taken over.
      hardware, rngs, modifier: as :class:`xbar_jax.nn.AnalogLinear` has them.

    Example:
      >>> from flax import nnx
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> layer = xb.nn.AnalogEinsum("nta,hab->nthb", (8, 2, 4), (8, 4), hardware=xb.Hardware(), rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((16, 11, 2))).shape
      (16, 11, 8, 4)
    """

    kind = nnx.Einsum

    def _keep(self, digital: Any) -> None:
        self.kernel, self.bias = digital.kernel, digital.bias
        self.einsum_str = digital.einsum_str

    def __call__(self, x: ArrayLike, einsum_str: str | None = None, **more: Any) -> Array:
        """Applies the layer; an equation given here must be the layer's own, which its arrays are made for."""
        if einsum_str is not None and einsum_str.replace(" ", "") != self.einsum_str:
            raise ValueError(f"AnalogEinsum: einsum_str must be {self.einsum_str!r}, got {einsum_str!r}")
        return super().__call__(x, **more)

    @staticmethod
    def layout_of(digital: Any) -> layouts.Einsum:
        return layouts.Einsum(digital.einsum_str.replace(" ", ""), tuple(digital.kernel_shape))
