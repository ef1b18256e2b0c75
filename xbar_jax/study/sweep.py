"""Sweeps: ``jax.vmap`` over numbers inside a description."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.tree import canonical
from xbar_jax.typing import ArrayLike

T = TypeVar("T")


def sweep_axes(hw: T, *paths: str) -> T:
    """``in_axes`` for ``jax.vmap`` over the named numbers of a description.

    Args:
      hw: a description, such as a ``Hardware``.
      paths: fields joined by dots, such as "wires.r_word" or "adc.bits".

    Returns:
      ``hw`` with 0 in the place of each named number and None in the place of every other.

    Raises:
      ValueError: an unknown field, or a part that is None or static.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> hw = xb.canonical(xb.Hardware(wires=xb.Wires()))
      >>> axes = xb.sweep_axes(hw, "v_read")
      >>> v = jax.vmap(lambda hw: 2 * hw.v_read, in_axes=(axes,))(hw.replace(v_read=jnp.array([0.1, 0.2])))
    """
    axes = jax.tree.map(lambda _: None, hw)
    for path in paths:
        _get(hw, path)
        axes = _set(axes, path, 0)
    return axes


def sweep(
    f: Callable[[Any], Any], hw: Any, values: Mapping[str, ArrayLike], *, grid: bool = False, chunk: int | None = None
) -> Any:
    """Evaluates ``f`` for many descriptions in one vectorised call.

    Wrap what calls it in ``jax.jit`` to compile once for any numbers.

    Args:
      f: function of the description; it closes over everything else.
      hw: the description whose numbers are replaced.
      values: arrays by path, such as ``{"wires.r_word": [0, 1, 2], "adc.bits": [8, 6, jnp.inf]}``.
      grid: False goes through the arrays together (all of one length); True takes every combination.
      chunk: evaluate at most this many points at a time, to bound memory; default all at once.

    Returns:
      The results of ``f`` with a leading axis, or with ``grid`` one axis per path in the order given.

    Raises:
      ValueError: an unknown path, or arrays that do not fit together.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> hw = xb.Hardware(wires=xb.Wires())
      >>> f = lambda hw: xb.program(jnp.ones((3, 2)), hw)(jnp.ones(3))
      >>> y = xb.sweep(f, hw, {"wires.r_word": [0.0, 10.0], "v_read": [0.1, 0.2, 0.3]}, grid=True)
      >>> y.shape
      (2, 3, 2)
    """
    hw = canonical(hw)
    if not values:
        raise ValueError("sweep: values must name at least one number, got none")
    arrays = {path: jnp.asarray(v, jnp.asarray(_get(hw, path)).dtype) for path, v in values.items()}
    for path, a in arrays.items():
        if a.ndim == 0 or a.shape[0] == 0:
            raise ValueError(f"sweep: values[{path!r}] must be a non-empty array, got shape {list(a.shape)}")
    lengths = tuple(a.shape[0] for a in arrays.values())
    if grid:
        index = np.indices(lengths).reshape(len(lengths), -1)
        arrays = {path: a[i] for (path, a), i in zip(arrays.items(), index, strict=True)}
    elif len(set(lengths)) > 1:
        raise ValueError(
            f"sweep: values must have one length, got {dict(zip(arrays, lengths, strict=True))}; grid=True combines them"
        )

    def at(point):
        here = hw
        for path, value in point.items():
            here = _set(here, path, value)
        return f(here)

    out = jax.vmap(at)(arrays) if chunk is None else jax.lax.map(at, arrays, batch_size=chunk)
    return jax.tree.map(lambda x: x.reshape(*lengths, *x.shape[1:]), out) if grid else out


def _get(node: Any, path: str) -> Any:
    name, _, rest = path.partition(".")
    known = [f.name for f in dataclasses.fields(node)] if dataclasses.is_dataclass(node) else []
    if name not in known:
        close = difflib.get_close_matches(name, known, 1)
        hint = (
            f"; did you mean {close[0]!r}?"
            if close
            else f"; {type(node).__name__} has {', '.join(known) or 'no fields'}"
        )
        raise ValueError(f"sweep: {name!r} must be a field of {type(node).__name__}, got an unknown name{hint}")
    field = next(f for f in dataclasses.fields(node) if f.name == name)
    if not field.metadata.get("pytree_node", True):
        raise ValueError(
            f"sweep: {name!r} must be a number, got a static field of {type(node).__name__} (a size or mode)"
        )
    value = getattr(node, name)
    if value is None:
        raise ValueError(f"sweep: {name!r} must be set before it can be swept, got None in {type(node).__name__}")
    if rest:
        return _get(value, rest)
    if dataclasses.is_dataclass(value):
        fields = ", ".join(f"{name}.{f.name}" for f in dataclasses.fields(value))
        raise ValueError(f"sweep: {name!r} must be a number, got a {type(value).__name__}; name one of {fields}")
    return value


def _set(node: Any, path: str, value: Any) -> Any:
    name, _, rest = path.partition(".")
    return dataclasses.replace(node, **{name: _set(getattr(node, name), rest, value) if rest else value})
