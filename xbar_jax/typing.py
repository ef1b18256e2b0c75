"""Names for the argument types that every room uses.

Shapes are written with jaxtyping; a ``Scalar`` is one physical number that may be a Python number, a
numpy scalar or a zero-dimensional (possibly traced) array. A ``Cellwise`` number is one for all cells or [rows, cols].
"""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

Scalar: TypeAlias = float | int | np.ndarray | np.generic | jax.Array
ArrayLike: TypeAlias = float | int | list[Any] | tuple[Any, ...] | np.ndarray | np.generic | jax.Array
Cellwise: TypeAlias = Any

__all__ = ["Array", "ArrayLike", "Bool", "Cellwise", "Float", "Int", "Key", "Scalar"]
