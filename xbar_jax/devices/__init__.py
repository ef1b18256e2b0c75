"""A cell as a physical object. Knows no array."""

from xbar_jax.devices.constant_step import ConstantStep
from xbar_jax.devices.dynamic import DynamicDevice, DynamicState
from xbar_jax.devices.exp_step import ExpStep
from xbar_jax.devices.gaussian import Gaussian, GaussianState
from xbar_jax.devices.linear_step import LinearStep
from xbar_jax.devices.noisy_read import noisy_read
from xbar_jax.devices.one_sided import OneSided, OneSidedState
from xbar_jax.devices.piecewise_step import PiecewiseStep
from xbar_jax.devices.pow_step import PowStep
from xbar_jax.devices.presets import presets
from xbar_jax.devices.pulsed import Pulsed, PulsedState
from xbar_jax.devices.response import pulse_response, saturating_exponential, saturating_exponential_inverse
from xbar_jax.devices.soft_bounds import SoftBounds, symmetry_point
from xbar_jax.devices.soft_bounds_reference import SoftBoundsReference
from xbar_jax.devices.spread import Spread
from xbar_jax.devices.step import StepDevice, StepState
from xbar_jax.devices.update import pulsed_update
from xbar_jax.devices.vteam import VTEAM
from xbar_jax.devices.yakopcic import Yakopcic

__all__ = [
    "VTEAM",
    "ConstantStep",
    "DynamicDevice",
    "DynamicState",
    "ExpStep",
    "Gaussian",
    "GaussianState",
    "LinearStep",
    "OneSided",
    "OneSidedState",
    "PiecewiseStep",
    "PowStep",
    "Pulsed",
    "PulsedState",
    "SoftBounds",
    "SoftBoundsReference",
    "Spread",
    "StepDevice",
    "StepState",
    "Yakopcic",
    "noisy_read",
    "presets",
    "pulse_response",
    "pulsed_update",
    "saturating_exponential",
    "saturating_exponential_inverse",
    "symmetry_point",
]
