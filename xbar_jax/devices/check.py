"""What the numbers of a device must be."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from xbar_jax.tree import is_traced


def check_parameters(dev: Any, shape: tuple[int, int]) -> None:
    """Raises for a shape that does not fit, or a concrete number that has no meaning."""
    for f in dataclasses.fields(dev):
        value = getattr(dev, f.name)
        if not f.metadata.get("pytree_node", True) or f.name.startswith("nodes_"):
            continue
        where = f"{type(dev).__name__}: {f.name} must be"
        if np.shape(value) != () and (
            np.ndim(value) != 2 or any(s not in (1, n) for s, n in zip(np.shape(value), shape, strict=True))
        ):
            raise ValueError(
                f"{where} a scalar or of shape {shape}, either axis of it 1 at will, got {np.shape(value)}"
            )
        if is_traced(value):
            continue
        x = np.asarray(value, np.float64)
        if not np.isfinite(x).all():
            raise ValueError(f"{where} finite, got {value}")
        positive, unsigned = (
            f.name == "dw_min",
            f.name.endswith(("_std", "_dtod")) or f.name in ("lifetime", "diffusion"),
        )
        if (positive and (x <= 0).any()) or (unsigned and (x < 0).any()):
            raise ValueError(f"{where} {'> 0' if positive else '>= 0'}, got {value}")
        if f.name == "corrupt_devices_prob" and ((x < 0) | (x > 1)).any():
            raise ValueError(f"{where} in [0, 1], got {value}")
    if not is_traced(dev.w_min, dev.w_max) and (np.asarray(dev.w_min) > np.asarray(dev.w_max)).any():
        raise ValueError(f"{type(dev).__name__}: w_min must be <= w_max, got {dev.w_min} and {dev.w_max}")


def check_number(
    owner: str, name: str, x: Any, shape: Any, *, low: float, high: float = np.inf, strict: bool = False
) -> None:
    """Raises, in the name of its owner, for a number of the wrong shape or out of [low, high] ((low, high] if strict)."""
    if np.shape(x) not in ((), tuple(shape)):
        raise ValueError(f"{owner}: {name} must be a number or of shape {tuple(shape)}, got {np.shape(x)}")
    if is_traced(x):
        return
    y = np.asarray(x, float)
    bad = ~((y > low if strict else y >= low) & (y <= high))
    if bad.any():
        upper = "" if np.isinf(high) else f" and <= {high:g}"
        raise ValueError(f"{owner}: {name} must be {'>' if strict else '>='} {low:g}{upper}, got {y[bad].flat[0]:g}")
