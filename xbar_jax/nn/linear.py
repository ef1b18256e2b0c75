"""Dense layers whose product runs on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import nnx

from xbar_jax.hardware import Hardware
from xbar_jax.nn.analog import Analog, InputRange, OutputScale, ProgrammedTile
from xbar_jax.nn.layouts import Dense, General
from xbar_jax.typing import Array, Key

__all__ = ["AnalogLinear", "AnalogLinearGeneral", "InputRange", "OutputScale", "ProgrammedTile"]


class AnalogLinear(Analog):
    """``y = scale * analog(x, w) + b``; see :class:`xbar_jax.nn.Analog`.

    Args:
      in_features, out_features: sizes; or a flax layer alone, whose parameters are taken over.
      hardware: description of the arrays, or None.
      rngs: ``params`` makes the kernel, ``noise`` draws programming and read noise.
      use_bias: add a digital bias.
      modifier: function ``(w, key) -> w`` for training, such as ``xb.nn.noise.Additive``.
      kernel_init: initializer of the kernel [in_features, out_features].
      dtype: of the computation; None follows input and parameters.
      param_dtype: of parameters.

    Example:
      >>> from flax import nnx
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> layer = xb.nn.AnalogLinear(64, 10, hardware=xb.Hardware(wires=xb.Wires()), rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((5, 64))).shape
      (5, 10)
    """

    kind = nnx.Linear

    def __init__(
        self,
        in_features: int | nnx.Linear,
        out_features: int | None = None,
        *,
        hardware: Hardware | None,
        rngs: nnx.Rngs | None = None,
        use_bias: bool = True,
        modifier: Callable[[Array, Key], Array] | None = None,
        kernel_init: Callable[..., Array] = nnx.initializers.lecun_normal(),
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
    ):
        if isinstance(in_features, nnx.Linear):
            super().__init__(in_features, hardware=hardware, rngs=rngs, modifier=modifier)
            return
        self.in_features, self.out_features = in_features, out_features
        self.kernel = nnx.Param(kernel_init(rngs.params(), (in_features, out_features), param_dtype))
        self.bias = nnx.Param(jnp.zeros((out_features,), param_dtype)) if use_bias else None
        self._set_up(
            Dense(self.in_features, self.out_features),
            hardware=hardware,
            rngs=rngs,
            modifier=modifier,
            dtype=dtype,
            param_dtype=param_dtype,
        )

    @staticmethod
    def layout_of(digital: Any) -> Dense:
        return Dense(digital.in_features, digital.out_features)

    def to_digital(self) -> nnx.Linear:
        if self.digital is not None:
            return super().to_digital()
        layer = nnx.Linear(
            self.in_features,
            self.out_features,
            use_bias=self.bias is not None,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            rngs=nnx.Rngs(0),
        )
        layer.kernel = self.kernel
        if self.bias is not None:
            layer.bias = self.bias
        return layer


class AnalogLinearGeneral(Analog):
    """Flax's ``LinearGeneral`` on arrays: a product over several axes; every entry of ``batch_axis`` has arrays of its own.

    Args:
      args, options: as ``flax.nnx.LinearGeneral`` has them; or such a layer alone, whose parameters are taken over.
      hardware, rngs, modifier: as :class:`AnalogLinear` has them.

    Example:
      >>> from flax import nnx
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> layer = xb.nn.AnalogLinearGeneral((2, 3), 4, axis=(-2, -1), hardware=xb.Hardware(), rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((5, 2, 3))).shape
      (5, 4)
    """

    kind = nnx.LinearGeneral

    @staticmethod
    def layout_of(digital: Any) -> General:
        return General(
            axis=tuple(digital.axis),
            batch_axis=tuple(digital.batch_axis),
            batch_shape=tuple(digital.batch_axis.values()),
            in_shape=tuple(digital.in_features),
            out_shape=tuple(digital.out_features),
        )
