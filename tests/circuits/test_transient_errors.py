"""Bad input to transients: named where it is concrete, flagged under a trace."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"c_word": -1e-15}, ValueError, "transient: c_word must be finite and >= 0 F, got -1e-15"),
        ({"c_bit": np.array([[0, 0], [0, -2.0], [0, 0]])}, ValueError, r"c_bit must be .* got -2.0 at \[1, 1\]"),
        ({"c_cell": np.inf}, ValueError, "c_cell must be finite"),
        ({"c_cell": np.zeros(3)}, ValueError, r"c_cell must be a scalar or have shape \[3, 2\], in F, got \[3\]"),
        ({"dt": 0.0}, ValueError, "dt must be finite and > 0 s, got 0.0"),
        ({"dt": -1e-12}, ValueError, "dt must be finite and > 0 s, got -1e-12"),
        ({"dt": np.nan}, ValueError, "dt must be finite and > 0 s, got nan"),
        ({"steps": 0}, ValueError, "steps must be an integer >= 1, got 0"),
        ({"steps": 2.0}, ValueError, "steps must be an integer >= 1, got 2.0"),
        ({"scheme": "euler"}, ValueError, "scheme must be one of backward_euler, sdirk2, got 'euler'"),
        (
            {"left": np.zeros((3, 3))},
            ValueError,
            r"left must be a scalar, \[3\], \[4, 3\] .* or \[5, 3\] .* got \[3, 3\]",
        ),
        ({"left": np.array([[0.0]] * 3 + [[np.nan]])}, ValueError, "left must be finite, in V, got nan"),
        ({"right": 1.0}, ValueError, "transient: right= given but r_right is inf"),
        (
            {"wires": xb.Wires(r_left=np.array([1.0, np.inf, 1.0])), "g": np.array([[1.0], [0.0], [1.0]])},
            ValueError,
            r"every word line needs a terminal of finite resistance, got none at \[1\]|left= given but r_left is inf",
        ),
        (
            {"wires": xb.Wires(r_bottom=np.array([1.0, np.inf])), "g": np.eye(3, 2) * [[1.0, 0.0]]},
            ValueError,
            r"every bit line needs a terminal of finite resistance, got none at \[1\]",
        ),
        ({"left": None}, ValueError, "the word lines have no terminal"),
        ({"g": -np.ones((3, 2))}, ValueError, "transient: g must be finite and >= 0 S"),
        ({"tol": 1e-20}, ValueError, "transient: tol must lie in"),
        ({"initial": 1.0}, TypeError, "initial must be a Solution, a Transient or None, got float"),
        ({"wires": 1.0}, TypeError, "wires must be an xb.Wires or None, got float"),
        (
            {
                "wires": xb.Wires(r_word=0.0, r_bit=1.0, r_right=0.0),
                "left": np.zeros((4, 3)),
                "right": np.eye(5, 3),
            },
            ValueError,
            "left and right must be equal",
        ),
    ],
)
def test_bad_input_is_named(change, error, message):
    given = {"g": np.full((3, 2), 1e-4), "wires": xb.Wires(), "left": 1.0, "dt": 1e-12, "steps": 4} | change
    with pytest.raises(error, match=message):
        xb.transient(given.pop("g"), given.pop("wires"), **given)


def test_initial_of_another_shape():
    sol = xb.solve(np.full((2, 2), 1e-4), None, left=1.0)
    with pytest.raises(ValueError, match=r"initial must be of an array \[3, 2\], got \[2, 2\]"):
        xb.transient(np.full((3, 2), 1e-4), None, left=1.0, dt=1e-12, steps=1, initial=sol)


@pytest.mark.parametrize("change", [{"c": -1e-15}, {"dt": -1e-12}, {"dt": 0.0}, {"g": -1e-4}, {"left": np.nan}])
def test_the_same_under_a_trace_is_a_flag(change):
    given = {"g": 1e-4, "c": 1e-15, "dt": 1e-12, "left": 1.0}

    @jax.jit
    def f(g, c, dt, left):
        wave = left * jnp.array([[0.0], [1.0], [0.5]])
        return xb.transient(jnp.full((3, 2), g), xb.Wires(), left=wave, c_word=c, dt=dt, steps=2)

    assert f(**given).converged
    run = f(**(given | change))
    assert not run.converged
    assert np.isnan(run.i_bottom).all() and np.isnan(run.v_word).all()
