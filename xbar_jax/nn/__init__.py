"""Flax layers on analog hardware. The only room that imports flax.nnx."""

from xbar_jax.nn import checkpoint, layouts, linen, noise, recipes
from xbar_jax.nn.analog import Analog, InputRange, OutputScale
from xbar_jax.nn.conv import AnalogConv, AnalogConvTranspose
from xbar_jax.nn.convert import convert, to_digital
from xbar_jax.nn.einsum import AnalogEinsum
from xbar_jax.nn.embed import AnalogEmbed
from xbar_jax.nn.linear import AnalogLinear, AnalogLinearGeneral
from xbar_jax.nn.model import attach, calibrate, drift, fit_output_scale, program, set_hardware, tiles, unprogram
from xbar_jax.nn.report import Report

__all__ = [
    "Analog",
    "AnalogConv",
    "AnalogConvTranspose",
    "AnalogEinsum",
    "AnalogEmbed",
    "AnalogLinear",
    "AnalogLinearGeneral",
    "InputRange",
    "OutputScale",
    "Report",
    "attach",
    "calibrate",
    "checkpoint",
    "convert",
    "drift",
    "fit_output_scale",
    "layouts",
    "linen",
    "noise",
    "program",
    "recipes",
    "set_hardware",
    "tiles",
    "to_digital",
    "unprogram",
]
