"""A cell as a physical object. Knows no array."""

from xbar_jax.devices.gaussian import Gaussian, GaussianState

__all__ = ["Gaussian", "GaussianState"]
