"""What surrounds an array: its description, converters, mapping, tiles, what a product costs, and export."""

from xbar_jax.hardware import mapping
from xbar_jax.hardware.adc import ADC
from xbar_jax.hardware.cost import Cost, Prices, cost
from xbar_jax.hardware.cyclic import Cyclic
from xbar_jax.hardware.dac import DAC, Reads
from xbar_jax.hardware.description import Hardware
from xbar_jax.hardware.quantize import quantize
from xbar_jax.hardware.ramp import Ramp
from xbar_jax.hardware.ranges import Max, MovingStd, Quantile, calibrate, dynamic
from xbar_jax.hardware.sar import SAR
from xbar_jax.hardware.tile import Tile, program
from xbar_jax.hardware.tiling import Tiling

from xbar_jax.hardware import export  # isort: skip  (it looks up the classes above by name)

__all__ = [
    "ADC",
    "DAC",
    "SAR",
    "Cost",
    "Cyclic",
    "Hardware",
    "Max",
    "MovingStd",
    "Prices",
    "Quantile",
    "Ramp",
    "Reads",
    "Tile",
    "Tiling",
    "calibrate",
    "cost",
    "dynamic",
    "export",
    "mapping",
    "program",
    "quantize",
]
