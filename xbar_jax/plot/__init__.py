"""Pictures. Needs the extra ``plot`` (matplotlib)."""

from xbar_jax.plot.accuracy import accuracy_curves
from xbar_jax.plot.arrays import array_branches, array_map, array_maps
from xbar_jax.plot.devices import fitted, iv_loops, pulse_curve, pulse_response
from xbar_jax.plot.drift import drift_curves
from xbar_jax.plot.parts import save
from xbar_jax.plot.programming import convergence, programmed
from xbar_jax.plot.relaxation import relaxation_spread
from xbar_jax.plot.training import training_curves

__all__ = [
    "accuracy_curves",
    "array_branches",
    "array_map",
    "array_maps",
    "convergence",
    "drift_curves",
    "fitted",
    "iv_loops",
    "programmed",
    "pulse_curve",
    "pulse_response",
    "relaxation_spread",
    "save",
    "training_curves",
]
