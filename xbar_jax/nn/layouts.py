"""How the kernel of an operation is a matrix on arrays, and how its inputs become vectors of read voltages.

A layout has ``groups``, and per group ``inputs`` and ``outputs``;

    matrix(kernel) -> [groups, inputs, outputs],    kernel(matrix) -> kernel,    bias(b) -> [groups, outputs],
    apply(x, product) -> y    with product: [..., groups, inputs] -> [..., groups, outputs].

Every weight is one entry of the matrix, so that ``kernel`` undoes ``matrix`` exactly. No Flax here.
"""

from __future__ import annotations

import dataclasses
import math
import string
from collections.abc import Callable

import jax.numpy as jnp

from xbar_jax.typing import Array, Float

Product = Callable[[Array], Array]


@dataclasses.dataclass(frozen=True)
class Dense:
    """``y = x w`` over the last axis.

    Example:
      >>> import jax.numpy as jnp
      >>> from xbar_jax.nn import layouts
      >>> layouts.Dense(3, 2).matrix(jnp.ones((3, 2))).shape
      (1, 3, 2)
    """

    inputs: int
    outputs: int
    groups = 1

    def matrix(self, kernel: Float[Array, "inputs outputs"]) -> Float[Array, "1 inputs outputs"]:
        return kernel[None]

    def kernel(self, matrix: Float[Array, "1 inputs outputs"]) -> Float[Array, "inputs outputs"]:
        return matrix[0]

    def bias(self, b: Array) -> Float[Array, "1 outputs"]:
        return b[None]

    def check(self, name: str, x: Array) -> None:
        """Raises ValueError where ``x`` does not fit."""
        if x.ndim == 0 or x.shape[-1] != self.inputs:
            raise ValueError(f"{name}: x must have shape [..., {self.inputs}], got {list(x.shape)}")

    def apply(self, x: Array, product: Product) -> Array:
        return product(x[..., None, :])[..., 0, :]


class Transposed(Dense):
    """``y = x w^T`` over the last axis: the logits of an embedding [outputs, inputs]."""

    def matrix(self, kernel: Float[Array, "outputs inputs"]) -> Float[Array, "1 inputs outputs"]:
        return kernel.T[None]

    def kernel(self, matrix: Float[Array, "1 inputs outputs"]) -> Float[Array, "outputs inputs"]:
        return matrix[0].T


@dataclasses.dataclass(frozen=True)
class General:
    """A product over several axes, with axes of a batch that have kernels of their own.

    Args:
      axis: axes of x that are summed over; the kernel has them in ascending order.
      batch_axis: axes of x that have a kernel each.
      batch_shape, in_shape, out_shape: of the kernel, [*batch_shape, *in_shape, *out_shape].
    """

    axis: tuple[int, ...]
    batch_axis: tuple[int, ...]
    batch_shape: tuple[int, ...]
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]

    groups = property(lambda self: math.prod(self.batch_shape))
    inputs = property(lambda self: math.prod(self.in_shape))
    outputs = property(lambda self: math.prod(self.out_shape))

    def matrix(self, kernel: Array) -> Float[Array, "groups inputs outputs"]:
        return kernel.reshape(self.groups, self.inputs, self.outputs)

    def kernel(self, matrix: Float[Array, "groups inputs outputs"]) -> Array:
        return matrix.reshape(*self.batch_shape, *self.in_shape, *self.out_shape)

    def bias(self, b: Array) -> Float[Array, "groups outputs"]:
        return b.reshape(self.groups, self.outputs)

    def _axes(self, x: Array) -> tuple[list[int], list[int], list[int]]:
        axis = sorted(a % x.ndim for a in self.axis)
        batch = sorted(a % x.ndim for a in self.batch_axis)
        return [a for a in range(x.ndim) if a not in axis + batch], batch, axis

    def check(self, name: str, x: Array) -> None:
        """Raises ValueError where ``x`` does not fit."""
        needed = max([a + 1 if a >= 0 else -a for a in self.axis + self.batch_axis], default=0)
        if x.ndim >= needed:
            _, batch, axis = self._axes(x)
            if tuple(x.shape[a] for a in batch + axis) == self.batch_shape + self.in_shape:
                return
        raise ValueError(
            f"{name}: x must have sizes {self.batch_shape + self.in_shape} at axes {self.batch_axis + self.axis}, "
            f"got {list(x.shape)}"
        )

    def apply(self, x: Array, product: Product) -> Array:
        free, batch, axis = self._axes(x)
        lead = tuple(x.shape[a] for a in free)
        y = product(x.transpose(*free, *batch, *axis).reshape(*lead, self.groups, self.inputs))
        y = y.reshape(*lead, *self.batch_shape, *self.out_shape)
        n, m = len(free), len(batch)
        return y.transpose(*range(n, n + m), *range(n), *range(n + m, y.ndim))


@dataclasses.dataclass(frozen=True)
class Einsum:
    """A two-operand einsum whose second operand is the kernel.

    Letters that x, kernel and result share are groups; letters of kernel and result are outputs; the other letters of
    the kernel are inputs, driven alike where x does not have them.

    Args:
      equation: such as "bta,ahd->bthd"; an ellipsis may stand for axes of x and of the result.
      kernel_shape: sizes of the kernel.

    Raises:
      ValueError: the equation is not of this kind.
    """

    equation: str
    kernel_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        lhs, rhs, out = self._parts()
        for name, part in (("x", lhs), ("the kernel", rhs), ("the result", out)):
            letters = part.replace("...", "")
            if len(set(letters)) != len(letters):
                raise ValueError(f"Einsum: letters of {name} must differ from each other, got {self.equation!r}")
        if "." in rhs or len(rhs) != len(self.kernel_shape) or ("..." in lhs) != ("..." in out):
            raise ValueError(
                f"Einsum: equation must name every axis of the kernel {self.kernel_shape}, and an ellipsis of x must be "
                f"in the result, got {self.equation!r}"
            )
        if set(out) - set(lhs) - set(rhs):
            raise ValueError(f"Einsum: letters of the result must be those of x or kernel, got {self.equation!r}")

    def _parts(self) -> tuple[str, str, str]:
        both, _, out = self.equation.replace(" ", "").partition("->")
        lhs, _, rhs = both.partition(",")
        return lhs, rhs, out

    def _letters(self) -> tuple[str, str, str, str]:
        """Letters of the kernel: groups, inputs that x has, inputs that it has not, outputs."""
        lhs, rhs, out = self._parts()
        group = "".join(c for c in rhs if c in lhs and c in out)
        shared = "".join(c for c in rhs if c in lhs and c not in out)
        alike = "".join(c for c in rhs if c not in lhs and c not in out)
        return group, shared, alike, "".join(c for c in rhs if c not in lhs and c in out)

    def _shape(self, letters: str) -> tuple[int, ...]:
        sizes = dict(zip(self._parts()[1], self.kernel_shape, strict=True))
        return tuple(sizes[c] for c in letters)

    groups = property(lambda self: math.prod(self._shape(self._letters()[0])))
    outputs = property(lambda self: math.prod(self._shape(self._letters()[3])))

    @property
    def inputs(self) -> int:
        _, shared, alike, _ = self._letters()
        return math.prod(self._shape(shared + alike))

    def matrix(self, kernel: Array) -> Float[Array, "groups inputs outputs"]:
        rhs, order = self._parts()[1], "".join(self._letters())
        return kernel.transpose(*(rhs.index(c) for c in order)).reshape(self.groups, self.inputs, self.outputs)

    def kernel(self, matrix: Float[Array, "groups inputs outputs"]) -> Array:
        rhs, order = self._parts()[1], "".join(self._letters())
        return matrix.reshape(self._shape(order)).transpose(*(order.index(c) for c in rhs))

    def bias(self, b: Array) -> Float[Array, "groups outputs"]:
        group, _, _, outs = self._letters()
        held = "".join(c for c in self._parts()[2] if c in group + outs)
        b = b.reshape(self._shape(held)).transpose(*(held.index(c) for c in group + outs))
        return b.reshape(self.groups, self.outputs)

    def _spelled(self, x: Array) -> tuple[str, str]:
        """Letters of x and of the result, with letters for an ellipsis."""
        lhs, rhs, out = self._parts()
        if "..." not in lhs:
            return lhs, out
        unused = [c for c in string.ascii_letters if c not in lhs + rhs + out]
        more = "".join(unused[: x.ndim - len(lhs) + 3])
        return lhs.replace("...", more), out.replace("...", more)

    def check(self, name: str, x: Array) -> None:
        """Raises ValueError where ``x`` does not fit."""
        lhs, _ = self._spelled(x)
        sizes = dict(zip(self._parts()[1], self.kernel_shape, strict=True))
        if len(lhs) != x.ndim or any(sizes.get(c, n) != n for c, n in zip(lhs, x.shape, strict=True)):
            raise ValueError(
                f"{name}: x must fit {self.equation!r} with a kernel {list(self.kernel_shape)}, got {list(x.shape)}"
            )

    def apply(self, x: Array, product: Product) -> Array:
        lhs, out = self._spelled(x)
        group, shared, alike, outs = self._letters()
        free = "".join(c for c in lhs if c not in group + shared and c in out)
        lead = tuple(x.shape[lhs.index(c)] for c in free)
        x = jnp.einsum(f"{lhs}->{free}{group}{shared}", x).reshape(*lead, self.groups, -1, 1)
        x = jnp.broadcast_to(x, (*x.shape[:-1], math.prod(self._shape(alike))))
        y = product(x.reshape(*lead, self.groups, self.inputs))
        order = free + group + outs
        y = y.reshape(*lead, *self._shape(group + outs))
        return y.transpose(*(order.index(c) for c in out))
