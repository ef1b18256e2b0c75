"""Flax layers on analog hardware. The only room that imports flax.nnx."""

from xbar_jax.nn import noise
from xbar_jax.nn.linear import AnalogLinear, InputRange, OutputScale
from xbar_jax.nn.model import attach, calibrate, drift, fit_output_scale, program, set_hardware, tiles, unprogram

__all__ = [
    "AnalogLinear",
    "InputRange",
    "OutputScale",
    "attach",
    "calibrate",
    "drift",
    "fit_output_scale",
    "noise",
    "program",
    "set_hardware",
    "tiles",
    "unprogram",
]
