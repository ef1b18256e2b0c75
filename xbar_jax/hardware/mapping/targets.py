"""What a mapping asks of the arrays."""

from __future__ import annotations

from typing import NamedTuple

from xbar_jax.typing import Array, Bool, Float


class Targets(NamedTuple):
    """What a mapping asks of the arrays that hold one block of weights.

    Attributes:
      g: [planes, rows, lines] S, one plane per circuit; ``lines`` are the columns and those that the mapping adds.
      scale: [cols] 1/S, weight per siemens of what :meth:`digital` returns.
      live: [cols], False for a column whose weights are all zero: its output is 0 whatever the noise.
      valid: False where a parameter is out of its range.
    """

    g: Float[Array, "planes rows lines"]
    scale: Float[Array, " cols"]
    live: Bool[Array, " cols"]
    valid: Bool[Array, ""]
