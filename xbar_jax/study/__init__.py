"""Sweeps and experiments."""

from xbar_jax.study.sweep import sweep, sweep_axes

__all__ = ["sweep", "sweep_axes"]
