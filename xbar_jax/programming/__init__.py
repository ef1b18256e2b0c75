"""From target to conductance: write and verify, passive arrays, gradient descent."""

from xbar_jax.programming.control import ISPP, AdaptiveAmplitude, AdaptiveWidth
from xbar_jax.programming.gradient_descent import gradient_descent
from xbar_jax.programming.lines import pulse_array
from xbar_jax.programming.passive import program_passive
from xbar_jax.programming.result import Programmed
from xbar_jax.programming.write_verify import write_verify

__all__ = [
    "ISPP",
    "AdaptiveAmplitude",
    "AdaptiveWidth",
    "Programmed",
    "gradient_descent",
    "program_passive",
    "pulse_array",
    "write_verify",
]
