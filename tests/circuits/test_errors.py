"""Bad input: the argument by name, what was expected, what came; under a trace a flag."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb

G = np.full((3, 2), 1e-4)


def bad(position, value):
    g = np.array(G)
    g[position] = value
    return g


@pytest.mark.parametrize(
    ("g", "wires", "drives", "error", "message"),
    [
        (
            bad((1, 1), -0.5),
            {},
            {"left": 1.0},
            ValueError,
            r"solve: g must be finite and >= 0 S.*got -0.5.*at \[1, 1\]",
        ),
        (bad((2, 0), np.inf), {}, {"left": 1.0}, ValueError, r"g must be finite.*got inf at \[2, 0\]"),
        (bad((0, 0), np.nan), {}, {"left": 1.0}, ValueError, r"g must be finite.*got nan"),
        (G[0], {}, {"left": 1.0}, ValueError, r"g must have shape \[rows, cols\].*got \[2\]"),
        (G[:0], {}, {"left": 1.0}, ValueError, r"at least one cell, got \[0, 2\]"),
        (G.astype(complex), {}, {"left": 1.0}, TypeError, "g must hold real numbers"),
        ("abc", {}, {"left": 1.0}, TypeError, "g must be a"),
        (G, {"r_word": -1.0}, {"left": 1.0}, ValueError, "r_word must be >= 0 ohm.*got -1.0"),
        (G, {"r_bit": np.nan}, {"left": 1.0}, ValueError, "r_bit must be >= 0 ohm.*got nan"),
        (G, {"r_bottom": [1.0, -2.0]}, {"left": 1.0}, ValueError, r"r_bottom must be >= 0 ohm.*got -2.0 at \[1\]"),
        (G, {"r_left": [1.0, 2.0]}, {"left": 1.0}, ValueError, r"r_left must be a scalar or \[3\].*got \[2\]"),
        (G, {"r_word": [1.0, 2.0]}, {"left": 1.0}, ValueError, r"r_word must be a scalar or \[3, 1\]"),
        (G, {}, {"left": [1.0, 2.0]}, ValueError, r"left must be a scalar or have shape \[3\].*got \[2\]"),
        (G, {}, {"left": [1.0, np.nan, 2.0]}, ValueError, r"left must be finite, in V, got nan at \[1\]"),
        (G, {}, {"left": 1.0, "right": 1.0}, ValueError, "right= given but r_right is inf"),
        (G, {}, {"left": 1.0, "top": 1.0}, ValueError, "top= given but r_top is inf"),
        (G, {"r_left": np.inf}, {"left": 1.0}, ValueError, "left= given but r_left is inf"),
        (G, {"r_bottom": np.inf}, {"left": 1.0}, ValueError, "every bit line with a closed cell needs a terminal"),
        (G, {}, {}, ValueError, "the word lines have no terminal; give left= or right="),
        (G, {}, {"left": 1.0, "bottom": None}, ValueError, "the bit lines have no terminal; give top= or bottom="),
        (G, {"r_word": 0.0, "r_right": 0.0}, {"left": 1.0, "right": 0.0}, ValueError, "a short circuit"),
        (
            G,
            {},
            {"left": 1.0, "method": "magic"},
            ValueError,
            "method must be one of auto, line_cg, two_level, got 'magic'",
        ),
        (G, {}, {"left": 1.0, "dtype": np.float16}, TypeError, "dtype must be float32 or float64"),
    ],
)
def test_message(g, wires, drives, error, message):
    with pytest.raises(error, match=message):
        xb.solve(g, xb.Wires(**wires), **drives)


def test_unknown_names_and_types():
    with pytest.raises(TypeError, match="r_wrd"):
        xb.Wires(r_wrd=1.0)
    with pytest.raises(TypeError, match="lft"):
        xb.solve(G, xb.Wires(), lft=1.0)
    with pytest.raises(TypeError, match=r"wires must be an xb.Wires or None, got float"):
        xb.solve(G, 1.0, left=1.0)
    with pytest.raises(ValueError, match=r"effective_conductance: g must be finite"):
        xb.effective_conductance(bad((0, 0), -1.0), xb.Wires())
    with pytest.raises(ValueError, match=r"read: v must have shape \[..., 3\], one voltage per row, got \[4, 2\]"):
        xb.read(G, np.ones((4, 2)))


@pytest.mark.parametrize(
    ("g", "wires", "drives"),
    [
        (bad((1, 1), -1e-6), {}, {}),
        (bad((0, 0), np.nan), {}, {}),
        (bad((0, 0), np.inf), {}, {}),
        (G, {"r_word": -1.0}, {}),
        (G, {"r_bit": np.nan}, {}),
        (G, {"r_bottom": np.inf}, {}),
        (G, {}, {"left": np.nan}),
        (G, {}, {"right": 1.0}),
        (G, {"r_word": 0.0, "r_left": 0.0, "r_right": 0.0}, {"right": 0.0}),
    ],
)
def test_the_same_facts_under_a_trace_are_a_flag(g, wires, drives):
    sol = jax.jit(lambda g, w, d: xb.solve(g, w, **{"left": 1.0, **d}))(
        jnp.asarray(g, jnp.float32), xb.Wires(**wires), drives
    )
    assert not sol.converged
    assert np.isnan(sol.i_bottom).all()


def test_throw_is_for_concrete_solves():
    with pytest.raises(ValueError, match="throw must be False under jit"):
        jax.jit(lambda g: xb.solve(g, xb.Wires(), left=1.0, throw=True).i_bottom)(jnp.asarray(G, jnp.float32))
