"""Compiled forms of hot functions: libraries of XLA custom calls, and the decorator that uses them."""

from xbar_jax.native.call import FLOATS, custom_call, disabled, standin
from xbar_jax.native.library import Library, available, libraries

__all__ = ["FLOATS", "Library", "available", "custom_call", "disabled", "libraries", "standin"]
