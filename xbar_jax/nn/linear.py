"""A dense layer whose product runs on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from xbar_jax.hardware import Hardware, Tile, program
from xbar_jax.tree import canonical
from xbar_jax.typing import Array, ArrayLike, Float, Key


class InputRange(nnx.Param):
    """Largest |x| that a layer converts; learnable."""


class OutputScale(nnx.Param):
    """Digital factor per output, on top of the mapping's own; learnable, or fitted on the array."""


class ProgrammedTile(nnx.Variable):
    """The arrays of a layer after programming; None before."""


class AnalogLinear(nnx.Module):
    """``y = scale * analog(x, w) + b`` on simulated arrays.

    Before :meth:`program` a call is hardware-aware: the kernel goes through the modifier and a fresh
    programming of the arrays (differentiable, straight through the converters), and the master weights
    stay untouched. After it a call reads the programmed arrays. With ``hardware=None`` the layer is an
    ordinary dense layer.

    Args:
      in_features, out_features: sizes.
      hardware: description of the arrays, or None.
      rngs: ``params`` makes the kernel, ``noise`` draws programming and read noise.
      use_bias: add a digital bias.
      modifier: function ``(w, key) -> w`` for training, such as ``xb.nn.noise.Additive``.
      kernel_init: initializer of the kernel [in_features, out_features].
      dtype: dtype of parameters.

    Example:
      >>> from flax import nnx
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> layer = xb.nn.AnalogLinear(64, 10, hardware=xb.Hardware(wires=xb.Wires()), rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((5, 64))).shape
      (5, 10)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hardware: Hardware | None,
        rngs: nnx.Rngs,
        use_bias: bool = True,
        modifier: Callable[[Array, Key], Array] | None = None,
        kernel_init: Callable[..., Array] = nnx.initializers.lecun_normal(),
        dtype: Any = jnp.float32,
    ):
        if hardware is not None:
            hardware.check("AnalogLinear")
        self.in_features, self.out_features = in_features, out_features
        self.kernel = nnx.Param(kernel_init(rngs.params(), (in_features, out_features), dtype))
        self.bias = nnx.Param(jnp.zeros((out_features,), dtype)) if use_bias else None
        self.output_scale = OutputScale(jnp.ones((out_features,), dtype))
        start = 1.0 if hardware is None or hardware.dac is None else hardware.dac.input_range
        self.input_range = InputRange(jnp.asarray(start, dtype))
        self.hardware = nnx.data(canonical(hardware))
        self.modifier = nnx.data(canonical(modifier))
        self.tile = nnx.data(ProgrammedTile(None))
        draws = modifier is not None or (hardware is not None and hardware.draws)
        if draws and not ("noise" in rngs or "default" in rngs):
            raise ValueError("AnalogLinear: rngs must have a stream 'noise' or 'default' for the noise it draws")
        self.noise = rngs.noise.fork() if "noise" in rngs or "default" in rngs else None
        self.observe = None

    def __call__(self, x: ArrayLike, *, key: Key[Array, ""] | None = None) -> Float[Array, "*batch out_features"]:
        """Applies the layer.

        Args:
          x: [..., in_features].
          key: where noise is drawn; default the layer's own ``noise`` stream.
        """
        x = jnp.asarray(x)
        if x.ndim == 0 or x.shape[-1] != self.in_features:
            raise ValueError(f"AnalogLinear: x must have shape [..., {self.in_features}], got {list(x.shape)}")
        y = self.matmul(x, key) if self.observe is None else self.observe(self, x)
        y = y * self._per_output(self.output_scale[...], x)
        return y if self.bias is None else y + self._per_output(self.bias[...], x)

    def matmul(self, x: Array, key: Key[Array, ""] | None = None) -> Array:
        """The product alone: no output scale, no bias."""
        programmed = self.tile.get_value()
        if programmed is not None:
            tile = programmed.replace(input_range=self.input_range[...])
            return tile(x, key=(self.noise() if key is None else key) if tile.needs_key else None)
        kernel = self.kernel[...]
        stochastic = self.modifier is not None or (self.hardware is not None and self.hardware.draws)
        k_modify = k_program = k_read = None
        if stochastic:
            k_modify, k_program, k_read = jax.random.split(self.noise() if key is None else key, 3)
        if self.modifier is not None:
            kernel = self.modifier(kernel, k_modify)
        if self.hardware is None:
            return x @ kernel
        tile = program(kernel, self.hardware, key=k_program, input_range=self.input_range[...])
        return tile(x, key=k_read)

    def program(self, *, key: Key[Array, ""] | None = None) -> Tile:
        """Programs the kernel onto arrays and reads them from now on."""
        if self.hardware is None:
            raise ValueError("AnalogLinear.program: hardware must be given, got None (a digital layer)")
        tile = program(self.kernel[...], self.hardware, key=key, input_range=self.input_range[...])
        self.tile.set_value(tile)
        return tile

    @staticmethod
    def _per_output(p, x):
        return p.reshape((1,) * (x.ndim - 1) + p.shape)
