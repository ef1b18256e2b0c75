"""Circuits solved by three other simulators, and the node equations solved densely."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import case
from oracle import array, nodal

import xbar_jax as xb

LINEAR = [
    *("12x16_asym", "16x12_asym", "16x12_both", "16x12_deadrowcol", "16x12_hard", "16x12_inf", "16x12_neg"),
    *("16x12_srcsink", "16x1_col", "1x1", "1x12_row", "64x64_hard", "64x64_std", "8x8_hard", "8x8_highR"),
    *("8x8_std", "8x8_tinyr"),
]
TOLERANCE = {"float64": 1e-9, "float32": 2e-5}


def circuit(z, dtype):
    both = bool(z["both"])
    wires = xb.Wires(
        r_word=float(z["r_wl"]),
        r_bit=float(z["r_bl"]),
        r_left=float(z["r_wl"] + z["r_src"]),
        r_bottom=float(z["r_bl"] + z["r_sink"]),
        r_right=float(z["r_wl"]) if both else np.inf,
    )
    return jnp.asarray(1 / z["R"], dtype), jnp.asarray(z["V"], dtype), wires, both


@pytest.mark.parametrize("name", LINEAR)
def test_solve_reproduces_the_fixture(name, dtype):
    z = case(name)
    g, v, wires, both = circuit(z, dtype)
    sol = jax.vmap(lambda v: xb.solve(g, wires, left=v, right=v if both else None))(v)
    tol = TOLERANCE[dtype.name]
    for got, want in (
        (sol.i_bottom, z["I_ngspice"]),
        (sol.i_bottom, z["I_scipy"]),
        (sol.v_word, z["Vw"]),
        (sol.v_bit, z["Vb"]),
    ):
        # An open cell leaves isolated nodes at no defined voltage in the oracle's file only where a whole line is dead.
        known = np.isfinite(want)
        np.testing.assert_allclose(np.asarray(got)[known], want[known], rtol=0, atol=tol * np.abs(want[known]).max())
    assert got.dtype == dtype
    assert bool(sol.converged.all())


@pytest.mark.parametrize("name", [n for n in LINEAR if n != "16x12_both"])
@pytest.mark.parametrize("lead", ["segment", "given"])
def test_effective_conductance_reproduces_the_fixture(name, lead, dtype):
    z = case(name)
    g, v, wires, _ = circuit(z, dtype)
    if lead == "segment":
        if z["r_src"] or z["r_sink"]:
            pytest.skip("this circuit has a lead of its own")
        wires = wires.replace(r_left=None, r_bottom=None)
    i = np.asarray(v) @ np.asarray(xb.effective_conductance(g, wires))
    np.testing.assert_allclose(i, z["I_scipy"], rtol=0, atol=TOLERANCE[dtype.name] * np.abs(z["I_scipy"]).max())


@pytest.mark.parametrize("name", ["8x8_std", "8x8_hard", "16x12_asym"])
@pytest.mark.parametrize("way", ["solve", "effective"])
def test_gradients_reproduce_the_fixture(name, way, x64):
    z = case(f"grad_{name}")

    def loss(r, v, r_word, r_bit):
        wires = xb.Wires(r_word=r_word, r_bit=r_bit)
        if way == "effective":
            i = v @ xb.effective_conductance(1 / r, wires)
        else:
            i = jax.vmap(lambda v: xb.solve(1 / r, wires, left=v, tol=1e-12).i_bottom)(v)
        return (z["C"] * i).sum()

    got = jax.grad(loss, argnums=(0, 1, 2, 3))(z["R"], z["V"], float(z["r_wl"]), float(z["r_bl"]))
    for a, want in zip(got, ("dR", "dV", "dr_wl", "dr_bl"), strict=True):
        np.testing.assert_allclose(a, z[want], rtol=0, atol=1e-7 * np.abs(z[want]).max())


SIDES = ("left", "right", "top", "bottom")


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (2, 2), (6, 4), (4, 7)])
@pytest.mark.parametrize("driven", ["lb", "rb", "lt", "rt", "lrb", "lbt", "lrt", "lrbt"])
def test_every_choice_of_terminals_against_the_node_equations(shape, driven, x64):
    rows, cols = shape
    g, _ = array(rows, cols, seed=rows * 10 + cols)
    rng = np.random.default_rng(7)
    ends = {s: rng.uniform(-1, 1, rows if s in ("left", "right") else cols) if s[0] in driven else None for s in SIDES}
    r = dict(r_left=3.0, r_right=5.0, r_top=7.0, r_bottom=2.0)
    want = nodal(g, 1.5, 2.5, **ends, **r)
    sol = xb.solve(g, xb.Wires(r_word=1.5, r_bit=2.5, **r), **ends, tol=1e-13)
    scale = max(np.abs(want[k]).max() for k in ("i_left", "i_right", "i_top", "i_bottom"))
    for k in ("i_left", "i_right", "i_top", "i_bottom", "v_word", "v_bit"):
        np.testing.assert_allclose(
            getattr(sol, k), want[k], rtol=0, atol=1e-10 * (scale if k[0] == "i" else 1.0), err_msg=k
        )
    assert sol.converged


def test_power_is_what_cells_and_wires_dissipate(x64):
    g, v = array(5, 4)
    sol = xb.solve(g, xb.Wires(r_word=20.0, r_bit=30.0), left=v)
    want = nodal(g, 20.0, 30.0, left=v)
    vw, vb = want["v_word"], want["v_bit"]
    cells = (g * (vw - vb) ** 2).sum()
    word = (np.diff(vw, axis=1) ** 2).sum() / 20 + ((v - vw[:, 0]) ** 2).sum() / 20
    bit = (np.diff(vb, axis=0) ** 2).sum() / 30 + (vb[-1] ** 2).sum() / 30
    np.testing.assert_allclose(sol.power, cells + word + bit, rtol=1e-9)


def test_wires_none_is_ideal(dtype):
    g, v = (jnp.asarray(x, dtype) for x in array(5, 3))
    np.testing.assert_allclose(xb.solve(g, None, left=v).i_bottom, np.asarray(v) @ np.asarray(g), rtol=1e-5)
    assert xb.effective_conductance(g, None) is g or (xb.effective_conductance(g, None) == g).all()
