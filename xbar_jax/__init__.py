"""xbar_jax: a crossbar, from the physics of a cell to the accuracy of a network, as one JAX program."""

from importlib.metadata import version

from xbar_jax import devices, hardware, native, nn, programming
from xbar_jax.circuits import (
    IRDrop,
    Losses,
    Solution,
    Transient,
    Wires,
    cells,
    effective_conductance,
    ir_drop,
    losses,
    read,
    settling_time,
    sneak_share,
    solve,
    spice,
    transient,
)
from xbar_jax.devices import pulsed_update
from xbar_jax.hardware import ADC, DAC, Hardware, Tile, export, mapping, program
from xbar_jax.study import sweep, sweep_axes
from xbar_jax.tree import canonical

__version__ = version("xbar_jax")

__all__ = [
    "ADC",
    "DAC",
    "Hardware",
    "IRDrop",
    "Losses",
    "Solution",
    "Tile",
    "Transient",
    "Wires",
    "canonical",
    "cells",
    "devices",
    "effective_conductance",
    "export",
    "hardware",
    "ir_drop",
    "losses",
    "mapping",
    "native",
    "nn",
    "program",
    "programming",
    "pulsed_update",
    "read",
    "settling_time",
    "sneak_share",
    "solve",
    "spice",
    "sweep",
    "sweep_axes",
    "transient",
]
