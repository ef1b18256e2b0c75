"""Descriptions and states as plain JSON with their numbers in named arrays, and back, without pickle.

    None, bool, int, str            themselves
    float of the structure          itself, or {"float": "inf"}
    list, tuple, dict               [..], {"tuple": [..]}, {"dict": {..}}
    number or array                 {"array": name, ..}: bits and dtype are those of the array of that name
    key                             {"key": name, "impl": ..}: its words are the array of that name
    description, state              {"class": "hardware.ADC", "fields": {..}}

Only classes that xbar_jax exports are made, by their public name and their fields.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

SCHEMA = "xbar_jax.export"
VERSION = 2


@functools.cache
def classes() -> dict[str, type]:
    """Every class that a file may name, by public name."""
    # Not at import: the package that holds this one is among them.
    from xbar_jax import circuits, devices, hardware

    rooms = {
        "hardware": hardware,
        "mapping": hardware.mapping,
        "devices": devices,
        "circuits": circuits,
        "cells": circuits.cells,
    }
    found: dict[str, type] = {}
    for room, module in rooms.items():
        for name, kind in sorted(vars(module).items()):
            is_record = isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"))
            if is_record and not name.startswith("_") and kind not in found.values():
                found[f"{room}.{name}"] = kind
    return found


def encode(node: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    """JSON of ``node``; its numbers go into ``arrays`` by names that begin with ``where``.

    Raises:
      TypeError: something that a file cannot hold, such as a function, named by its place.
    """
    if node is None or isinstance(node, (bool, int, str)):
        return node
    if isinstance(node, jax.Array) and jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
        arrays[where] = np.asarray(jax.random.key_data(node))
        return {"key": where, "impl": str(jax.random.key_impl(node))}
    if isinstance(node, (jax.Array, np.ndarray, np.generic)):
        arrays[where] = np.asarray(node)
        found = {"array": where, "dtype": arrays[where].dtype.name, "shape": list(arrays[where].shape)}
        return found | ({"value": repr(arrays[where].item())} if arrays[where].ndim == 0 else {})
    if isinstance(node, float):
        return node if math.isfinite(node) else {"float": repr(node)}
    for public, kind in classes().items():
        if type(node) is kind:
            return {"class": public, "fields": {n: encode(v, f"{where}.{n}", arrays) for n, v in _fields(node)}}
    if type(node) is list:
        return [encode(x, f"{where}.{k}", arrays) for k, x in enumerate(node)]
    if type(node) is tuple:
        return {"tuple": [encode(x, f"{where}.{k}", arrays) for k, x in enumerate(node)]}
    if isinstance(node, dict) and all(isinstance(k, str) for k in node):
        return {"dict": {k: encode(x, f"{where}.{k}", arrays) for k, x in node.items()}}
    what = "a function" if callable(node) and not isinstance(node, type) else f"something of type {type(node).__name__}"
    raise TypeError(
        f"export.save: {where} must be numbers, text or a class that xbar_jax exports, got {what}, "
        "which a file cannot hold"
    )


def decode(found: Any, arrays: Mapping[str, np.ndarray], file: str) -> Any:
    """What :func:`encode` was given.

    Raises:
      ValueError: JSON or arrays that this version of the package does not know, or a dtype that needs 64-bit mode.
    """
    if isinstance(found, list):
        return [decode(x, arrays, file) for x in found]
    if not isinstance(found, dict):
        return found
    if "float" in found:
        return float(found["float"])
    if "tuple" in found:
        return tuple(decode(x, arrays, file) for x in found["tuple"])
    if "dict" in found:
        return {k: decode(x, arrays, file) for k, x in found["dict"].items()}
    if "key" in found:
        return jax.random.wrap_key_data(_array(found["key"], arrays, file), impl=found["impl"])
    if "array" in found:
        return _array(found["array"], arrays, file)
    return _record(found, arrays, file)


def _record(found: dict, arrays: Mapping[str, np.ndarray], file: str) -> Any:
    public = found.get("class")
    kind = classes().get(str(public))
    if kind is None:
        raise ValueError(f"export.load: {file}: class must be one that xbar_jax exports, got {public!r}")
    names = kind._fields if hasattr(kind, "_fields") else [f.name for f in dataclasses.fields(kind) if f.init]
    if set(names) != set(found["fields"]):
        odd = ", ".join(sorted(set(names) ^ set(found["fields"])))
        raise ValueError(
            f"export.load: {file}: fields of {public} must be those of this version of xbar_jax, they differ in {odd}"
        )
    return kind(**{n: decode(v, arrays, file) for n, v in found["fields"].items()})


def _fields(node: Any) -> list[tuple[str, Any]]:
    names = node._fields if hasattr(node, "_fields") else [f.name for f in dataclasses.fields(node) if f.init]
    return [(n, getattr(node, n)) for n in names]


def _array(name: str, arrays: Mapping[str, np.ndarray], file: str) -> jax.Array:
    if name not in arrays:
        raise ValueError(f"export.load: {file}: array {name} is missing")
    x = arrays[name]
    if x.dtype.itemsize == 8 and x.dtype.kind in "fiu" and not jax.config.read("jax_enable_x64"):
        raise ValueError(f"export.load: array {name} is {x.dtype}; load it with jax's 64-bit mode on")
    return jnp.asarray(x)


def plain(x: np.ndarray) -> np.ndarray:
    """An array of a dtype that every reader of .npy knows; the bits of others as unsigned integers."""
    x = np.asarray(x, order="C")
    return x if x.dtype.kind in "biuf" and x.dtype.isbuiltin == 1 else x.view(f"u{x.dtype.itemsize}")


def typed(x: np.ndarray, dtype: str) -> np.ndarray:
    """The array of :func:`plain` in its own dtype."""
    if x.dtype.name == dtype:
        return x
    return x.view(np.dtype(getattr(ml_dtypes, dtype, dtype)))
