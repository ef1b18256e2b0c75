"""The three forms of a function with a compiled one: native, JAX body, the CUDA source on the host."""

from __future__ import annotations

import jax

from xbar_jax import native


def run(form, f, *args):
    """``f`` in the form ``body``, ``standin`` or ``native``."""
    if form == "body":
        with native.disabled():
            return jax.block_until_ready(f(*args))
    if form == "standin":
        with native.standin():
            return jax.block_until_ready(f(*args))
    return jax.block_until_ready(f(*args))
