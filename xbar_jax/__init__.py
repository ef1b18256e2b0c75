"""xbar_jax: a crossbar, from the physics of a cell to the accuracy of a network, as one JAX program."""

from importlib.metadata import version

from xbar_jax import devices, hardware, native, nn
from xbar_jax.circuits import Solution, Wires, effective_conductance, read, solve, spice
from xbar_jax.devices import pulsed_update
from xbar_jax.hardware import ADC, DAC, Hardware, Tile, mapping, program
from xbar_jax.study import sweep, sweep_axes
from xbar_jax.tree import canonical

__version__ = version("xbar_jax")

__all__ = [
    "ADC",
    "DAC",
    "Hardware",
    "Solution",
    "Tile",
    "Wires",
    "canonical",
    "devices",
    "effective_conductance",
    "hardware",
    "mapping",
    "native",
    "nn",
    "program",
    "pulsed_update",
    "read",
    "solve",
    "spice",
    "sweep",
    "sweep_axes",
]
