"""Each weight on several devices that are read together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.hardware.mapping.base import heaviest_last
from xbar_jax.hardware.mapping.differential import Differential
from xbar_jax.hardware.mapping.targets import Targets
from xbar_jax.tree import dataclass, is_traced, leaf, static
from xbar_jax.typing import Array, Float, Int, Scalar

COMBINE = ("wire", "digital")


@dataclass(kw_only=True)
class Significance:
    """Another mapping on N devices in the place of each, their currents weighted by significance.

        i = sum_n F_n i_n / sum_n F_n

    All N hold the same target. Their errors are independent, so that the standard deviation of a weight is that of one
    device times sqrt(sum F_n^2) / sum F_n, which is 1/sqrt(N) for equal factors.

    Args:
      of: the mapping that is repeated.
      factors: N numbers > 0, a tuple or [N].
      combine: "wire" (currents are weighted, by mirrors or by the length of the pulses, and reach one converter) or
        "digital" (each has its own converter).

    Example:
      >>> import xbar_jax as xb
      >>> mapping = xb.mapping.Significance(of=xb.mapping.Differential(g_max=5e-5), factors=(1.0, 1.0, 1.0, 1.0))

    Reference:
      I. Boybat et al., Nat. Commun. 9, 2514 (2018), doi 10.1038/s41467-018-04933-y.
    """

    of: Any = leaf(Differential())
    factors: tuple[Scalar, ...] | Float[Array, " devices"] = leaf((1.0, 1.0))
    combine: str = static("wire")

    @property
    def planes(self) -> int:
        """Circuits: those of ``of``, N times."""
        return len(self.factors) * self.of.planes

    @property
    def outs(self) -> int:
        """Conversions of each column."""
        return self.of.outs * (1 if self.combine == "wire" else len(self.factors))

    @property
    def extra_cols(self) -> int:
        """Lines of every array that hold no weights."""
        return self.of.extra_cols

    @property
    def half_step(self) -> float:
        """Largest error of a weight, in units of its scale times g_max - g_min, of ``of``."""
        return self.of.half_step

    @property
    def row_order(self) -> str:
        """ "given" or "sorted", as ``of`` says."""
        return self.of.row_order

    @property
    def g_min(self) -> Scalar:
        """S, of ``of``."""
        return self.of.g_min

    @property
    def g_max(self) -> Scalar:
        """S, of ``of``."""
        return self.of.g_max

    def check(self, name: str) -> None:
        """Raises where a concrete parameter is out of its range."""
        if not hasattr(self.of, "targets"):
            raise TypeError(f"{name}: mapping.of must be an xb.mapping.*, got {type(self.of).__name__}")
        self.of.check(name)
        if self.combine not in COMBINE:
            raise ValueError(f"{name}: mapping.combine must be 'wire' or 'digital', got {self.combine!r}")
        vector = hasattr(self.factors, "__len__") and getattr(self.factors, "ndim", 1) == 1
        if not vector or len(self.factors) == 0:
            raise ValueError(f"{name}: mapping.factors must be a tuple or [devices], got {self.factors!r}")
        if not is_traced(self.factors):
            f = np.asarray(self.factors)
            if not ((f > 0) & np.isfinite(f)).all():
                raise ValueError(f"{name}: mapping.factors must be > 0 and finite, got {f}")

    def _shares(self, dtype) -> Float[Array, " devices"]:
        f = jnp.stack([jnp.asarray(x, dtype) for x in self.factors])
        return f / f.sum()

    def targets(self, w: Float[Array, "rows cols"]) -> Targets:
        """Conductances for one block of weights."""
        one = self.of.targets(w)
        f = jnp.stack([jnp.asarray(x, w.dtype) for x in self.factors])
        valid = one.valid & ((f > 0) & jnp.isfinite(f)).all()
        return one._replace(g=jnp.tile(one.g, (len(self.factors), 1, 1)), valid=valid)

    def order(self, w: Float[Array, "rows cols"]) -> Int[Array, " rows"]:
        """Which row of weights each row of the array holds, top to bottom."""
        return heaviest_last(w, self.of.targets(w).g)

    def analog(self, i: Float[Array, "planes *batch lines"]) -> Float[Array, "outs *batch cols"]:
        """Currents that reach a converter, A."""
        i = jax.vmap(self.of.analog)(i.reshape(len(self.factors), self.of.planes, *i.shape[1:]))
        if self.combine == "wire":
            return jnp.einsum("n,n...->...", self._shares(i.dtype), i)
        return i.reshape(-1, *i.shape[2:])

    def digital(self, i: Float[Array, "outs *batch cols"]) -> Float[Array, "*batch cols"]:
        """The one number that stands for the weight, A."""
        if self.combine == "digital":
            i = i.reshape(len(self.factors), self.of.outs, *i.shape[1:])
            i = jnp.einsum("n,n...->...", self._shares(i.dtype), i)
        return jnp.asarray(self.of.digital(i))

    def conversions(self, cols: int) -> int:
        """Conversions that one read of an array with ``cols`` columns of weights takes."""
        return self.of.conversions(cols) * (1 if self.combine == "wire" else len(self.factors))
