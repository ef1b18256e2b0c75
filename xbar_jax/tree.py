"""Descriptions as pytrees: every number a leaf that can be swept, differentiated or sharded.

A description (wires, a converter, a device, a whole ``Hardware``) is a frozen dataclass. Its numbers are
leaves, its sizes and modes are static. Nothing is checked or converted in a constructor, because JAX
also builds these classes with ``None`` (an axis) or a sentinel in the place of a number.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")

dataclass = flax.struct.dataclass


def static(default: Any = dataclasses.MISSING) -> Any:
    """A field that is part of the structure: a size, a mode, a function. A new value recompiles."""
    return flax.struct.field(pytree_node=False, default=default)


def leaf(default: Any = dataclasses.MISSING, *, absent: float | None = None) -> Any:
    """A field that holds a number. ``absent`` is the number that None (and 0) stands for."""
    return flax.struct.field(pytree_node=True, default=default, metadata={"absent": absent})


def is_traced(*values: Any) -> bool:
    """True if any leaf of ``values`` is under a JAX transformation, so that its value is not known."""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(values))


def canonical(tree: T) -> T:
    """The same description with every number a strongly typed floating-point array.

    Changing a number of a canonical description never recompiles a jitted function, whereas a Python
    number, a numpy scalar and an array of another dtype are three different types to ``jax.jit``.
    Numbers that are already floating-point arrays keep their dtype; others get JAX's default float.
    Where a field says what None or 0 stands for (``bits`` of a converter: inf, exactly ideal), that
    number is filled in. None elsewhere is structure and stays.

    Args:
      tree: any pytree of descriptions and numbers.

    Returns:
      A pytree of the same type.

    Example:
      >>> import xbar_jax as xb
      >>> xb.canonical(xb.ADC(bits=None)).bits
      Array(inf, dtype=float32)
    """

    def number(x: Any) -> Any:
        if isinstance(x, (bool, np.bool_)) or not isinstance(x, (int, float, np.ndarray, np.generic, jax.Array)):
            return x
        dtype = jnp.asarray(x).dtype if not isinstance(x, jax.Array) else x.dtype
        if jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.bool_:
            return x
        if isinstance(x, jax.Array) and jnp.issubdtype(dtype, jnp.floating):
            return jax.lax.convert_element_type(x, dtype)  # strips a weak type
        return jnp.asarray(x, dtype=jnp.result_type(float))

    return jax.tree.map(number, _fill_absent(tree))


def _fill_absent(node: Any) -> Any:
    if isinstance(node, (list, tuple)) and type(node) in (list, tuple):
        return type(node)(_fill_absent(x) for x in node)
    if isinstance(node, dict):
        return {k: _fill_absent(v) for k, v in node.items()}
    if not dataclasses.is_dataclass(node) or isinstance(node, type):
        return node
    changes: dict[str, Any] = {}
    for f in dataclasses.fields(node):
        if not f.metadata.get("pytree_node", True):
            continue
        value = getattr(node, f.name)
        absent = f.metadata.get("absent")
        if absent is None:
            filled = _fill_absent(value)
        elif value is None:
            filled = absent
        elif is_traced(value):
            filled = value
        else:
            filled = (
                jnp.where(jnp.asarray(value) == 0, jnp.asarray(absent, jnp.asarray(value).dtype), value)
                if isinstance(value, (jax.Array, np.ndarray)) and jnp.issubdtype(value.dtype, jnp.floating)
                else (absent if np.ndim(value) == 0 and value == 0 else value)
            )
        if filled is not value:
            changes[f.name] = filled
    return dataclasses.replace(node, **changes) if changes else node
