"""From signed weights to conductances, which are positive, and back from currents. A mapping is one file."""

from xbar_jax.hardware.mapping.base import Mapping
from xbar_jax.hardware.mapping.bit_sliced import BitSliced
from xbar_jax.hardware.mapping.differential import Differential
from xbar_jax.hardware.mapping.offset import Offset
from xbar_jax.hardware.mapping.significance import Significance
from xbar_jax.hardware.mapping.targets import Targets

__all__ = ["BitSliced", "Differential", "Mapping", "Offset", "Significance", "Targets"]
