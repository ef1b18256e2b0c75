"""An embedding whose logits run on arrays."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx

from xbar_jax.nn import layouts
from xbar_jax.nn.analog import Analog
from xbar_jax.typing import Array, ArrayLike, Key


class AnalogEmbed(Analog):
    """Flax's ``Embed``: looking up is digital, ``attend`` (logits of tied weights) is a product on arrays.

    Args:
      args, options: as ``flax.nnx.Embed`` has them; or such a layer alone, whose parameters are taken over.
      hardware, rngs, modifier: as :class:`xbar_jax.nn.AnalogLinear` has them; the matrix is [features, num_embeddings].

    Example:
      >>> from flax import nnx
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> layer = xb.nn.AnalogEmbed(10, 4, hardware=xb.Hardware(), rngs=nnx.Rngs(0))
      >>> layer.attend(layer(jnp.array([1, 2, 3]))).shape
      (3, 10)
    """

    kind = nnx.Embed

    def _keep(self, digital: Any) -> None:
        self.embedding, self.bias = digital.embedding, None
        self.num_embeddings, self.features = digital.num_embeddings, digital.features

    @property
    def kernel(self) -> nnx.Param:
        """The embedding [num_embeddings, features]."""
        return self.embedding

    def to_digital(self) -> nnx.Embed:
        layer: nnx.Embed = nnx.merge(
            self.digital,  # type: ignore[arg-type]
            nnx.State({"embedding": self.embedding}),
        )
        layer.embedding = self.embedding
        return layer

    def __call__(self, x: ArrayLike, *, out_sharding: Any = None) -> Array:  # type: ignore[override]
        """Rows of the embedding for whole numbers x."""
        return self.to_digital()(jnp.asarray(x), out_sharding=out_sharding)

    def attend(self, query: ArrayLike, *, key: Key[Array, ""] | None = None, out_sharding: Any = None) -> Array:
        """Inner products with every row, [..., features] -> [..., num_embeddings]."""
        return super().__call__(query, key=key, out_sharding=out_sharding)

    @staticmethod
    def layout_of(digital: Any) -> layouts.Transposed:
        return layouts.Transposed(digital.features, digital.num_embeddings)
