"""What surrounds an array: its description, converters, mapping and tiles."""

from xbar_jax.hardware import mapping
from xbar_jax.hardware.converters import ADC, DAC, quantize
from xbar_jax.hardware.description import Hardware
from xbar_jax.hardware.tile import Tile, program
from xbar_jax.hardware.tiling import Tiling

__all__ = ["ADC", "DAC", "Hardware", "Tile", "Tiling", "mapping", "program", "quantize"]
