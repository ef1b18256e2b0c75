"""What the pictures of an array show: every branch at its place, in the colour of its current."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from oracle import array

import xbar_jax as xb
from xbar_jax import plot
from xbar_jax.plot.parts import colours


@pytest.fixture(autouse=True)
def users_settings():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def branches(figure):
    """{(x0, y0, x1, y1): current in the unit shown} of the coloured segments."""
    lines = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)][1]
    ends = np.round([s.ravel() for s in lines.get_segments()], 6)
    return dict(zip(map(tuple, ends.tolist()), lines.get_array().tolist(), strict=True))


def test_branches_lie_where_their_current_flows(x64):
    g, v = array(3, 4)
    wires = xb.Wires(r_word=10.0, r_bit=10.0)
    sol = xb.solve(g, wires, left=v)
    drawn = branches(plot.array_branches(sol, wires))
    assert len(drawn) == 3 * 4 + 3 * 4  # open right and top ends are left out
    scale = np.abs(sol.i_word).max() / max(abs(i) for i in drawn.values())
    for (x0, y0, x1, y1), i in drawn.items():
        if y0 == y1:  # a word line: the segment that ends at node (row, col)
            want = sol.i_word[round(y0 + 0.18), round(x1 + 0.18)]
            assert x0 < x1
        else:
            want = sol.i_bit[round(y0 - 0.18) + 1, round(x0 - 0.18)]
            assert x0 == x1 and y0 < y1
        np.testing.assert_allclose(i * scale, want, rtol=1e-6)
    cut = xb.Wires(r_word=np.inf, r_bit=10.0, r_left=10.0)
    assert len(branches(plot.array_branches(xb.solve(g, cut, left=v), cut))) == 3 + 3 * 4


def test_maps_show_voltages_currents_and_power(x64):
    g, v = array(3, 4)
    sol = xb.solve(g, xb.Wires(r_word=10.0, r_bit=10.0), left=v)
    shown = {a.get_title(): np.asarray(a.images[0].get_array()) for a in plot.array_maps(sol).axes if a.images}
    units = {"m": 1e-3, "u": 1e-6, "n": 1e-9}
    want = [sol.v_word, sol.v_bit, sol.i_cell, sol.v_cell * sol.i_cell]
    for (title, values), x in zip(shown.items(), want, strict=True):
        unit = title.rsplit(" ", 1)[1]
        np.testing.assert_allclose(values * (units[unit[0]] if len(unit) > 1 else 1.0), x, rtol=1e-9)


@pytest.mark.parametrize(
    ("values", "limits"),
    [([1.0, 3.0], (0.0, 3.0)), ([-3.0, -1.0], (-3.0, 0.0)), ([-1.0, 3.0], (-3.0, 3.0)), ([0.0, 0.0], (-0.5, 0.5))],
)
def test_scales_of_currents_hold_zero(values, limits):
    assert colours(np.array(values), "viridis", "coolwarm", True)[1:] == limits
