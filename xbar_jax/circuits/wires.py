"""The wires of an array and what they are joined to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Scalar


@dataclass(kw_only=True)
class Wires:
    """Resistances of the lines of one array, in ohm. Every one is a leaf.

    ``r_word`` lies between neighbouring cells of a word line (row), ``r_bit`` between neighbouring cells
    of a bit line (column). A terminal resistance is the TOTAL resistance between the driver or sense node
    and the first cell of the line: 0 is an ideal contact, inf is open.

    Two conventions for the lead are in use. One segment per cell including the lead (the default):
    ``r_left=None, r_bottom=None``. No lead segment but one source resistor (Chen 2013): ``r_left=r_source,
    r_bottom=r_source``.

    Args:
      r_word: word-line segments: a scalar, or finite and [rows, cols - 1], one number for each segment.
      r_bit: bit-line segments: a scalar, or finite and [rows - 1, cols].
      r_left: left terminal of the word lines; None is one segment, ``r_word`` (the nearest one of each line).
      r_right: right terminal of the word lines.
      r_top: top terminal of the bit lines.
      r_bottom: bottom terminal of the bit lines; None is one segment, ``r_bit`` (the nearest one of each line).

    A terminal resistance may be a scalar or one number per line. Of several numbers inf is a line without that
    terminal, whose drive is ignored: with no other end it floats. A break inside a line is a large number.

    Example:
      >>> import xbar_jax as xb
      >>> wires = xb.Wires(r_word=1.0, r_bit=1.0)
      >>> chen = xb.Wires(r_word=1.0, r_bit=1.0, r_left=50.0, r_bottom=50.0)

    Reference:
      A. Chen, IEEE Trans. Electron Devices 60(4), 1318 (2013), doi 10.1109/TED.2013.2246791.
    """

    r_word: Scalar = leaf(1.0)
    r_bit: Scalar = leaf(1.0)
    r_left: Scalar | None = leaf(None)
    r_right: Scalar = leaf(math.inf)
    r_top: Scalar = leaf(math.inf)
    r_bottom: Scalar | None = leaf(None)

    def terminal(self, side: str) -> Scalar:
        """Resistance of the terminals of one side, ohm, None replaced by what it stands for."""
        r = getattr(self, f"r_{side}")
        if r is not None:
            return r
        segment: Any = self.r_word if side == "left" else self.r_bit
        if np.ndim(segment) < 2:
            return segment
        return segment[:, 0] if side == "left" else segment[-1]
