"""What every analog layer has in common: master weights, arrays, and the product between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn import dtypes

from xbar_jax.hardware import Hardware, Tile
from xbar_jax.nn import product
from xbar_jax.tree import canonical
from xbar_jax.typing import Array, ArrayLike, Float, Key, Scalar


class InputRange(nnx.Param):
    """Largest |x| that a layer converts; learnable."""


class OutputScale(nnx.Param):
    """Digital factor per output, on top of the mapping's own; learnable, or fitted on the array."""


class ProgrammedTile(nnx.Variable):
    """The arrays of a layer after programming, with a leading axis of groups where there are several; None before."""


class Analog(nnx.Module):
    """Base of the analog layers: ``y = scale * analog(x, w) + b`` for an operation whose kernel is a matrix.

    Before :meth:`program` a call is hardware-aware: the kernel goes through the modifier and a fresh
    programming of the arrays (differentiable, straight through the converters), and the master weights
    stay untouched. After it a call reads the programmed arrays. With ``hardware=None`` the layer is the digital one.
    Where ``hardware.bias`` is "array" the arrays hold the bias, and the scale covers it. Arrays compute in single
    precision at least; the result has the dtype of the digital layer.

    Attributes:
      kernel, bias: master weights, with the shapes of the digital layer.
      layout: how the kernel is a matrix, see :mod:`xbar_jax.nn.layouts`.
      output_scale: [outputs], or [groups, outputs].
      input_range: largest |x|, for all groups.
      tile: what is programmed.
      observe: function ``(layer, x) -> product`` in place of :meth:`matmul`; x as there.
    """

    # The flax layer that a class takes the place of.
    kind: type[nnx.Module]

    def __init__(
        self,
        *args: Any,
        hardware: Hardware | None,
        rngs: nnx.Rngs | None = None,
        modifier: Callable[[Array, Key], Array] | None = None,
        **options: Any,
    ):
        """Takes over the parameters and options of a flax layer: the one given alone, or one made of ``args`` and ``options``."""
        alone = len(args) == 1 and isinstance(args[0], self.kind) and not options
        digital = args[0] if alone else self.kind(*args, **options, rngs=rngs)
        self._keep(digital)
        self._set_up(
            self.layout_of(digital),
            hardware=hardware,
            rngs=rngs,
            modifier=modifier,
            dtype=digital.dtype,
            param_dtype=digital.param_dtype,
            promote_dtype=digital.promote_dtype,
            mask=getattr(digital, "mask", None),
            digital=nnx.graphdef(digital),
        )

    def _set_up(
        self,
        layout: Any,
        *,
        hardware: Hardware | None,
        rngs: nnx.Rngs | None,
        modifier: Callable[[Array, Key], Array] | None,
        dtype: Any,
        param_dtype: Any,
        promote_dtype: Callable = dtypes.promote_dtype,
        mask: Array | None = None,
        digital: nnx.GraphDef | None = None,
    ) -> None:
        name = type(self).__name__
        if hardware is not None:
            hardware.check(name)
        self.layout = nnx.static(layout)
        self.dtype, self.param_dtype, self.promote_dtype = dtype, param_dtype, promote_dtype
        self.mask = nnx.data(mask)
        self.digital = nnx.static(digital)
        shape = (layout.outputs,) if layout.groups == 1 else (layout.groups, layout.outputs)
        self.output_scale = OutputScale(jnp.ones(shape, param_dtype))
        start = 1.0 if hardware is None or hardware.dac is None else hardware.dac.input_range
        self.input_range = InputRange(jnp.asarray(start, param_dtype))
        self.hardware = nnx.data(canonical(hardware))
        self.modifier = nnx.data(canonical(modifier))
        self.tile = nnx.data(ProgrammedTile(None))
        streams = rngs is not None and ("noise" in rngs or "default" in rngs)
        if (modifier is not None or (hardware is not None and hardware.draws)) and not streams:
            raise ValueError(f"{name}: rngs must have a stream 'noise' or 'default' for the noise it draws")
        self.noise = rngs.noise.fork() if rngs is not None and streams else None
        self.observe: Callable | None = None

    def _keep(self, digital: Any) -> None:
        self.kernel, self.bias = digital.kernel, digital.bias
        self.in_features, self.out_features = digital.in_features, digital.out_features

    @staticmethod
    def layout_of(digital: Any) -> Any:
        """The layout of a flax layer."""
        raise NotImplementedError

    def to_digital(self) -> Any:
        """The flax layer with the master weights."""
        if self.digital is None:
            raise NotImplementedError
        parts = {"kernel": self.kernel} if self.bias is None else {"kernel": self.kernel, "bias": self.bias}
        if self.mask is not None:
            parts["mask"] = self.mask
        layer = nnx.merge(self.digital, nnx.State(parts))
        # The very same Variables, so that what was shared stays shared.
        layer.kernel = self.kernel
        if self.bias is not None:
            layer.bias = self.bias
        return layer

    def __call__(self, x: ArrayLike, *, key: Key[Array, ""] | None = None, out_sharding: Any = None) -> Array:
        """Applies the layer.

        Args:
          x: as the digital layer takes it.
          key: where noise is drawn; default the layer's own ``noise`` stream.
          out_sharding: as flax's layers have it.
        """
        x = jnp.asarray(x)
        self.layout.check(type(self).__name__, x)
        kernel: Array
        x, kernel = self.promote_dtype((x, self.kernel[...]), dtype=self.dtype)
        y = self.layout.apply(product.wide(jnp.asarray(x)), lambda x: self._outputs(x, key)).astype(kernel.dtype)
        return y if out_sharding is None else jax.sharding.reshard(y, out_sharding)

    def _outputs(self, x: Float[Array, "*batch groups inputs"], key) -> Float[Array, "*batch groups outputs"]:
        one = self.layout.groups == 1
        x = x[..., 0, :] if one else x
        y = self.matmul(x, key) if self.observe is None else self.observe(self, x)
        y = y * product.per_output(self.output_scale[...], y)
        if self.bias is not None and not self.holds_bias:
            y = y + product.per_output(self.bias_matrix(), y)
        return y[..., None, :] if one else y

    @property
    def holds_bias(self) -> bool:
        """The arrays hold the bias, so that the product has it."""
        return self.bias is not None and self.hardware is not None and self.hardware.bias_rows > 0

    def matrix(self) -> Array:
        """The kernel as a matrix [inputs, outputs], or [groups, inputs, outputs] of several groups."""
        kernel = self.kernel[...] if self.mask is None else self.kernel[...] * self.mask.astype(self.kernel.dtype)
        matrix = product.wide(self.layout.matrix(kernel))
        return matrix[0] if self.layout.groups == 1 else matrix

    def bias_matrix(self) -> Array:
        """The bias [outputs], or [groups, outputs]."""
        bias = product.wide(self.layout.bias(self.bias[...]))
        return bias[0] if self.layout.groups == 1 else bias

    def matmul(self, x: Array, key: Key[Array, ""] | None = None) -> Array:
        """The product alone: no output scale, no digital bias.

        Args:
          x: [..., inputs], or [..., groups, inputs] of several groups.
          key: default the layer's own stream.

        Returns:
          [..., outputs], or [..., groups, outputs].
        """
        programmed = self.tile.get_value()
        if programmed is not None:
            key = None if not programmed.needs_key else self.noise() if key is None else key
            return product.read(programmed, x, key=key, input_range=self.input_range[...], groups=self.layout.groups)
        matrix = self.matrix()
        stochastic = self.modifier is not None or (self.hardware is not None and self.hardware.draws)
        k_modify = k_program = k_read = None
        if stochastic:
            k_modify, k_program, k_read = jax.random.split(self.noise() if key is None else key, 3)
        if self.modifier is not None:
            matrix = self.modifier(matrix, k_modify)
        if self.hardware is None:
            return self.exact(x, matrix)
        tile = self.programmed(matrix, self.hardware, k_program)
        return product.read(tile, x, key=k_read, input_range=self.input_range[...], groups=self.layout.groups)

    def exact(self, x: Array, matrix: Array | None = None) -> Array:
        """The digital product, of the master weights where no other matrix is given; as :meth:`matmul`."""
        return product.exact(x, self.matrix() if matrix is None else matrix)

    def programmed(self, matrix: Array, hardware: Hardware, key: Key[Array, ""] | None) -> Tile:
        """A matrix on arrays, see :func:`xbar_jax.nn.product.programmed`."""
        bias = self.bias_matrix() if self.holds_bias else None
        return product.programmed(matrix, hardware, key=key, input_range=self.input_range[...], bias=bias)

    def program(self, *, key: Key[Array, ""] | None = None) -> Tile:
        """Programs the kernel onto arrays and reads them from now on."""
        if self.hardware is None:
            raise ValueError(f"{type(self).__name__}.program: hardware must be given, got None (a digital layer)")
        tile = self.programmed(self.matrix(), self.hardware, key)
        self.tile.set_value(tile)
        return tile

    def drift(self, t: Scalar, *, key: Key[Array, ""] | None = None) -> None:
        """The programmed arrays ``t`` seconds after programming, see :meth:`xbar_jax.Tile.drift`."""
        tile = self.tile.get_value()
        if tile is None:
            raise ValueError(f"{type(self).__name__}.drift: layer must be programmed first")
        self.tile.set_value(product.drifted(tile, t, key=key, groups=self.layout.groups))
