"""An array as an electrical network. Knows conductances and wires, not devices."""

from xbar_jax.circuits import spice
from xbar_jax.circuits.effective import effective_conductance
from xbar_jax.circuits.read import read
from xbar_jax.circuits.solve import Solution, solve
from xbar_jax.circuits.wires import Wires

__all__ = ["Solution", "Wires", "effective_conductance", "read", "solve", "spice"]
