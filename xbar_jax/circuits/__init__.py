"""An array as an electrical network. Knows conductances and wires, not devices."""

from xbar_jax.circuits import cells, spice
from xbar_jax.circuits.effective import effective_conductance
from xbar_jax.circuits.read import prefers_effective, read
from xbar_jax.circuits.readout import IRDrop, Losses, ir_drop, losses, sneak_share
from xbar_jax.circuits.solve import Solution, solve
from xbar_jax.circuits.transient import Transient, settling_time, transient
from xbar_jax.circuits.wires import Wires

__all__ = [
    "IRDrop",
    "Losses",
    "Solution",
    "Transient",
    "Wires",
    "cells",
    "effective_conductance",
    "ir_drop",
    "losses",
    "prefers_effective",
    "read",
    "settling_time",
    "sneak_share",
    "solve",
    "spice",
    "transient",
]
