"""The netlist of an array, run by ngspice, gives the currents of ``solve``."""

from __future__ import annotations

import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb

NGSPICE = shutil.which("ngspice")
needs_ngspice = pytest.mark.skipif(NGSPICE is None, reason="ngspice is not installed")


def simulate(text: str, tmp_path) -> dict[str, float]:
    """Currents into the positive node of every source, A."""
    file = tmp_path / "array.cir"
    file.write_text(text)
    done = subprocess.run([NGSPICE, "-b", str(file)], capture_output=True, text=True, timeout=60)
    found = re.findall(r"^i\(v(\w+)\) = (\S+)", done.stdout, re.M)
    assert found and "singular" not in (done.stdout + done.stderr).lower(), done.stdout + done.stderr
    return {name: float(value) for name, value in found}


# Few shapes and few sets of terminals, since each pair of them compiles: one test takes one shape.
SHAPES = [(1, 1), (1, 24), (24, 1), (7, 12), (24, 21)]
TERMINALS = [("left", "bottom"), ("left", "right", "top", "bottom"), ("right", "top")]


def random_circuit(shape: tuple[int, int], seed: int):
    """Any terminals, open cells, zero and infinite wires."""
    rng = np.random.default_rng([*shape, seed])
    rows, cols = shape
    g = np.exp(rng.uniform(np.log(1e-6), np.log(1e-3), shape))
    g[rng.random(shape) < rng.choice([0.0, 0.2])] = 0.0
    resistance = lambda: float(rng.choice([0.0, rng.uniform(0.1, 100.0)], p=[0.2, 0.8]))
    counts = {"left": rows, "right": rows, "top": cols, "bottom": cols}
    ends = TERMINALS[seed % len(TERMINALS)]
    wires = {"r_word": resistance(), "r_bit": resistance()} | {
        f"r_{side}": rng.uniform(0.5, 50.0, counts[side]) for side in ends
    }
    if seed == 3:
        wires["r_word"] = np.inf
    if seed >= 6 and rows > 1 and cols > 1:
        # A number for each segment, and lines that float.
        wires["r_word"], wires["r_bit"] = rng.uniform(0, 50, (rows, cols - 1)), rng.uniform(0, 50, (rows - 1, cols))
        wires[f"r_{ends[0]}"][:2] = np.inf
        wires[f"r_{ends[-1]}"][-1] = np.inf
    drive = {side: rng.uniform(-1, 1, counts[side]) if side in ends else None for side in counts}
    return g, wires, drive


def compare(g, wires, drive, tmp_path):
    sol = xb.solve(g, wires, **drive)
    found = simulate(xb.spice.netlist(g, wires, **drive), tmp_path)
    scale = max(abs(x) for x in found.values())
    ends = {"left": -sol.i_left, "right": sol.i_right, "top": -sol.i_top, "bottom": sol.i_bottom}
    for name, value in found.items():
        side, k = re.fullmatch(r"([a-z]+)(\d+)", name).groups()
        np.testing.assert_allclose(value, ends[side][int(k)], rtol=0, atol=1e-9 * scale, err_msg=name)
    return found


@needs_ngspice
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fifty_random_circuits(shape, x64, tmp_path):
    for seed in range(10):
        g, wires, drive = random_circuit(shape, seed)
        found = compare(g, xb.Wires(**wires), drive, tmp_path)
        if g.any() and not np.isinf(wires["r_word"]).any():
            assert max(abs(x) for x in found.values()) > 1e-9


@needs_ngspice
@pytest.mark.parametrize(
    "wires",
    [None, xb.Wires(r_word=0.0, r_bit=5.0), xb.Wires(r_word=5.0, r_bit=0.0), xb.Wires(r_word=1e-3, r_bit=1e-3)],
    ids=["ideal", "ideal word lines", "ideal bit lines", "nearly ideal"],
)
def test_limits(wires, x64, tmp_path):
    g = np.array([[1e-3, 0.0, 2e-3], [5e-4, 1e-3, 0.0], [0.0, 0.0, 0.0]])
    compare(g, wires, {"left": np.array([0.5, -0.2, 0.1])}, tmp_path)


def test_what_is_cut_off_is_left_out():
    g = jnp.array([[1e-3, 1e-3], [1e-3, 0.0]])
    text = xb.spice.netlist(g, xb.Wires(r_word=jnp.inf, r_bit=1.0, r_left=2.0), left=0.1)
    # Cell (0, 1) hangs on a bit line that no word line reaches but through it: its bit line is grounded, so it stays.
    assert "rcell0_1 " in text and "rword" not in text
    text = xb.spice.netlist(g, xb.Wires(r_word=jnp.inf, r_bit=jnp.inf, r_left=2.0, r_bottom=1.0), left=0.1)
    assert "rcell0_1 " not in text and "rcell1_0 " in text


def test_bad_input_is_named():
    g = jnp.ones((2, 2)) * 1e-3
    with pytest.raises(ValueError, match="concrete"):
        jax.jit(lambda g: xb.spice.netlist(g, None, left=0.1) and g)(g)
    with pytest.raises(ValueError, match="left must be a scalar or have shape"):
        xb.spice.netlist(g, None, left=jnp.ones(3))
    with pytest.raises(ValueError, match="no terminal"):
        xb.spice.netlist(g, None)
