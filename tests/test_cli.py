"""The commands, as they are typed: files in, numbers and files out, one line for each mistake."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax import cli

R23 = np.array([[1e3, 2e3, 3e3], [4e3, np.inf, 6e3]])
V2 = np.array([0.5, -0.2])


@pytest.fixture(autouse=True)
def users_settings():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def write(folder, name, x):
    file = folder / name
    if name.endswith(".csv"):
        file.write_text("\n".join(",".join(f"{v:.17g}" for v in row) for row in np.atleast_2d(x)) + "\n")
    elif name.endswith(".npy"):
        np.save(file, x)
    else:
        np.savez(file, **x)
    return str(file)


def currents(g, left, dtype=np.float64, **wires):
    with jax.enable_x64(dtype == np.float64):
        sol = xb.solve(np.asarray(g, dtype), xb.Wires(**wires), left=np.asarray(left, dtype))
        return np.asarray(sol.i_bottom)


def run(folder, *args):
    """Runs ``xbar-jax solve`` and returns the currents it wrote."""
    out = folder / "out"
    assert cli.main(["solve", *args, "--out", str(out)]) == 0
    return np.loadtxt(out / "currents.csv", delimiter=",", ndmin=2)


@pytest.mark.parametrize(
    ("name", "content", "args"),
    [
        ("r.csv", R23, []),
        ("g.csv", 1 / R23, ["--what", "conductance"]),
        ("r.npy", R23, []),
        ("r.npy", R23.astype(np.float32), []),
        ("a.npz", {"R": R23}, []),
        ("a.npz", {"conductance": 1 / R23}, []),
        ("a.npz", {"g": 1 / R23, "R": 7 * R23}, ["--what", "conductance"]),
    ],
)
def test_every_kind_of_file_gives_the_currents_of_solve(name, content, args, tmp_path):
    got = run(tmp_path, write(tmp_path, name, content), *args, "--left", "0.25", "--r-word", "10", "--r-bit", "20")
    want = currents(1 / R23, np.full(2, 0.25), r_word=10.0, r_bit=20.0)
    np.testing.assert_allclose(got, want[None], rtol=1e-9)


@pytest.mark.parametrize("form", ["column.csv", "line.csv", "v.npy", "a.npz"])
def test_one_voltage_a_row(form, tmp_path):
    shaped = {"column.csv": V2[:, None], "line.csv": V2[None], "v.npy": V2, "a.npz": {"V": V2}}[form]
    got = run(tmp_path, write(tmp_path, "r.csv", R23), "--left", write(tmp_path, form, shaped), "--r-left", "40")
    np.testing.assert_allclose(got, currents(1 / R23, V2, r_left=40.0)[None], rtol=1e-9)


def test_voltages_come_with_the_array(tmp_path):
    file = write(tmp_path, "a.npz", {"G": 1 / R23, "V": np.stack([V2, 2 * V2])})
    want = currents(1 / R23, V2)
    np.testing.assert_allclose(run(tmp_path, file), np.stack([want, 2 * want]), rtol=1e-8)
    np.testing.assert_allclose(run(tmp_path, file, "--left=-0.5"), currents(1 / R23, np.full(2, -0.5))[None], rtol=1e-8)


def test_what_the_folder_holds_for_several_vectors(tmp_path, capsys):
    vs = np.stack([V2, [0.1, 0.2], [0.0, 1.0]])
    got = run(tmp_path, write(tmp_path, "r.csv", R23), "--left", write(tmp_path, "v.csv", vs))
    with np.load(tmp_path / "out" / "solution.npz") as z:
        found = dict(z)
    with jax.enable_x64(True):
        for k, v in enumerate(vs):
            sol = xb.solve(1 / R23, xb.Wires(), left=v)
            np.testing.assert_allclose(got[k], sol.i_bottom, rtol=1e-9)
            for name in ("v_word", "v_bit", "i_cell", "i_word", "i_bit", "v_cell", "i_left", "power"):
                np.testing.assert_allclose(found[name][k], getattr(sol, name), rtol=1e-9, atol=1e-15)
    assert found["converged"].all()
    np.testing.assert_array_equal(found["left"], vs)
    np.testing.assert_array_equal(found["g"], 1 / R23)
    for picture in ("maps.png", "branches.png"):
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "3 vectors" in printed
    assert (tmp_path / "out" / "report.txt").read_text().strip().splitlines()[0].strip() in printed


def test_the_report_says_where_the_power_goes(tmp_path, capsys):
    # 30 + 100 + 60 ohm at 1.9 V: 10 mA; 3, 10 and 6 mW
    file = write(tmp_path, "r.csv", np.array([[100.0]]))
    assert cli.main(["solve", file, "--left", "1.9", "--r-left", "30", "--r-bottom", "60"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = lambda name: next(line for line in lines if line.strip().startswith(name))
    assert "0.019 W" in row("power") and "0.01 W" in row("cells") and "52.63 %" in row("cells")
    assert "0.009 W" in row("terminals") and "47.37 %" in row("terminals")
    assert "0.9 V of 1.9 V (47.4 %) at [0, 0]" in row("worst IR drop")
    assert "yes" in row("converged") and "0.01" in row("bottom currents, A:")
    assert not list(tmp_path.glob("out*"))


def test_all_four_sides_and_single_precision(tmp_path):
    args = ["--left", "0.3", "--right", "0.3", "--top", "0.1", "--bottom", "-0.05", "--r-right", "2", "--r-top", "3"]
    got = run(tmp_path, write(tmp_path, "r.csv", R23), *args, "--dtype", "float32")
    sol = xb.solve(
        np.asarray(1 / R23, np.float32), xb.Wires(r_right=2.0, r_top=3.0), left=0.3, right=0.3, top=0.1, bottom=-0.05
    )
    np.testing.assert_allclose(got, np.asarray(sol.i_bottom)[None], rtol=1e-5)
    with np.load(tmp_path / "out" / "solution.npz") as z:
        assert z["i_bottom"].dtype == np.float32


def test_open_bottom_is_no_sense_node(tmp_path):
    args = ["--left", "0.3", "--top", "0", "--r-top", "3", "--bottom", "open"]
    assert not run(tmp_path, write(tmp_path, "r.csv", R23), *args).any()
    with np.load(tmp_path / "out" / "solution.npz") as z:
        assert (z["i_top"] < 0).all()


def test_an_unconverged_solve_is_no_success(tmp_path, capsys):
    file = write(tmp_path, "r.csv", np.full((12, 12), 10.0))
    assert cli.main(["solve", file, "--left", "1", "--max-steps", "1"]) == 1
    found = capsys.readouterr()
    assert "did not converge" in found.err and "NO" in found.out


MISTAKES = {
    "ragged": ("1,2\n3\n", "line 2: 1 numbers, the lines above have 2"),
    "nan": ("1,nan\n3,4\n", r"resistance must be > 0 ohm (inf is an open cell), got nan at [0, 1]"),
    "negative": ("1,2\n3,-4\n", "got -4.0 at [1, 1]"),
    "zero": ("1,2\n3,0\n", "got 0.0 at [1, 1]"),
    "words": ("row,col\n1,2\n", "line 1: 'row' is not a number"),
    "hole": ("1,\n3,4\n", "line 1: '' is not a number"),
    "empty": ("# nothing\n\n", "holds no numbers"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_bad_table_is_one_line_and_status_2(name, tmp_path, capsys):
    text, message = MISTAKES[name]
    (tmp_path / "r.csv").write_text(text)
    assert cli.main(["solve", str(tmp_path / "r.csv"), "--left", "1"]) == 2
    found = capsys.readouterr()
    assert message in found.err and found.err.startswith("xbar-jax: solve: ") and found.err.count("\n") == 1
    assert not found.out


@pytest.mark.parametrize(
    ("name", "content", "args", "message"),
    [
        ("r.npy", np.ones(3), ["--left", "1"], "must have shape [rows, cols], got [3]"),
        ("r.npy", np.ones((2, 2)) * 1j, ["--left", "1"], "must hold real numbers, got complex128"),
        ("a.npz", {"x": R23}, ["--left", "1"], "must hold one of R, r, resistance, G, g, conductance, got x"),
        ("a.npz", {"R": R23, "G": R23}, ["--left", "1"], "holds R and G; --what must choose one"),
        ("a.npz", {"R": R23, "V": np.ones(3)}, [], "V must have shape [2], or [vectors, 2]"),
        ("g.csv", R23, ["--left", "1", "--what", "conductance"], "conductance must be finite and >= 0 S"),
        ("r.csv", R23, [], "--left must be given"),
        ("r.csv", R23, ["--left", "nosuch.csv"], "--left must be a voltage or a file, got 'nosuch.csv'"),
        ("r.csv", R23, ["--left", "nan"], "--left must be finite, in V, got nan"),
        ("r.csv", R23, ["--left", "1", "--right", "1"], "right= given but r_right is inf"),
        ("r.csv", R23, ["--left", "1", "--r-word", "-1"], "r_word must be >= 0 ohm"),
        ("r.csv", R23, ["--left", "1", "--bottom", "open"], "the bit lines have no terminal"),
        ("r.csv", R23, ["--left", "1", "--sinh-k", "-2"], "--sinh-k must be >= 0 per V"),
        ("r.csv", R23, ["--left", "1", "--tol", "1e-30"], "tol must lie in"),
        ("r.xls", None, ["--left", "1"], "must end in .csv, .txt, .npy or .npz"),
        ("r.npz", None, ["--left", "1"], "is not a readable .npz file"),
        ("nosuch.csv", ..., ["--left", "1"], "does not exist"),
    ],
)
def test_mistakes_are_named(name, content, args, message, tmp_path, capsys):
    if content is None:
        (tmp_path / name).write_bytes(b"no numbers")
    elif content is not ...:
        write(tmp_path, name, content)
    assert cli.main(["solve", str(tmp_path / name), *args]) == 2
    found = capsys.readouterr()
    assert message in found.err and found.err.count("\n") == 1, found.err


def test_voltages_of_the_wrong_length_and_pickles_are_refused(tmp_path, capsys):
    file = write(tmp_path, "r.csv", R23)
    assert cli.main(["solve", file, "--left", write(tmp_path, "v.csv", np.ones((4, 3)))]) == 2
    assert "must have shape [2], or [vectors, 2] for several" in capsys.readouterr().err
    both = ["--left", write(tmp_path, "v.csv", np.ones((3, 2))), "--right", write(tmp_path, "w.csv", np.ones((4, 2)))]
    assert cli.main(["solve", file, *both, "--r-right", "1"]) == 2
    assert "--left must hold 1 or 4 vectors" in capsys.readouterr().err
    np.save(tmp_path / "o.npy", np.array([None, {}]), allow_pickle=True)
    assert cli.main(["solve", str(tmp_path / "o.npy"), "--left", "1"]) == 2
    assert "is not a readable .npy file of plain numbers" in capsys.readouterr().err


def test_conductances_read_as_resistances_are_pointed_out(tmp_path, capsys):
    assert cli.main(["solve", write(tmp_path, "g.csv", np.full((2, 2), 1e-4)), "--left", "1"]) in (0, 1)
    assert "--what conductance reads siemens" in capsys.readouterr().err


def test_sinh_cells_come_from_the_library_or_their_lack_is_said(tmp_path, capsys):
    file = write(tmp_path, "r.csv", np.array([[1e3]]))
    status = cli.main(["solve", file, "--left", "0.5", "--sinh-k", "3", "--r-word", "0", "--r-bit", "0"])
    found = capsys.readouterr()
    if hasattr(xb, "cells"):
        assert status == 0
        assert f"{1e-3 * np.sinh(1.5) / 3:.6g}" in found.out
    else:
        assert status == 2 and "--sinh-k needs xb.cells.Sinh" in found.err


def test_bench_runs_the_scripts_of_the_checkout_with_this_python(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(subprocess, "run", lambda c: calls.append(c) or subprocess.CompletedProcess(c, len(calls) - 1))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "--quick"]) == 5  # the worst of 0 to 5
    assert [c[0] for c in calls] == [sys.executable] * 6
    names = ("solve", "update", "overhead", "dynamics", "program", "inference")
    assert [c[1].rsplit("/", 1)[1] for c in calls] == [f"{n}.py" for n in names]
    assert all(c[2:] == ["--out", f"runs/bench/{n}.json", "--quick"] for c, n in zip(calls, names, strict=True))
    assert (tmp_path / "runs/bench").is_dir()
    calls.clear()
    assert cli.main(["bench", "update"]) == 0
    assert len(calls) == 1 and "--quick" not in calls[0]


def test_bench_without_a_checkout_says_what_to_clone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "site-packages" / "xbar_jax" / "cli.py"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench"]) == 2
    assert "clone of the xbar_jax repository" in capsys.readouterr().err


@pytest.mark.parametrize("args", [["solve"], ["nosuch"], ["solve", "a.csv", "--dtype", "float16"]])
def test_tyro_refuses_what_it_does_not_know(args):
    with pytest.raises(SystemExit) as e:
        cli.main(args)
    assert e.value.code == 2


# Programming.

VTEAM = ["--set", "r_on=5e3", "r_off=1e5", "v_on=-0.6", "v_off=0.6"]
TARGETS = np.array([[2e-5, 8e-5, 1.5e-4], [6e-5, 3e-5, 1e-4]])


def program(folder, *args):
    return cli.main(["program", *args, "--out", str(folder / "out")])


def test_an_array_is_programmed_and_what_it_holds_is_kept(tmp_path, capsys):
    file = write(tmp_path, "g.csv", TARGETS)
    asked = [file, *VTEAM, "--schedule", "row", "--r-word", "5", "--r-bit", "5", "--tolerance", "0.02"]
    assert program(tmp_path, *asked) == 0
    with np.load(tmp_path / "out/state.npz") as z:
        found = dict(z)
    np.testing.assert_array_equal(found["target"], TARGETS)
    # The wires of so small an array take little: what the cells hold, by the law of the device, is the target.
    w = found["state.x"].astype(float)
    np.testing.assert_allclose(1 / (5e3 + 95e3 * w / 3e-9), found["conductance"], rtol=1e-4)
    np.testing.assert_allclose(found["conductance"], TARGETS, rtol=0.022)
    assert found["converged"].all() and found["outside"][0] > 0 and found["outside"][-1] == 0
    assert (found["energy"] > 0).all() and found["pulses"].sum() >= 6
    printed = capsys.readouterr().out
    assert "6 of 6 (100.00 %)" in printed and "disturb" in printed
    assert "6 of 6 (100.00 %)" in (tmp_path / "out/report.txt").read_text()
    for picture in ("programmed.png", "convergence.png"):
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")

    # It is done: going on changes nothing. Other settings, or other targets, are refused.
    before = (tmp_path / "out/state.npz").read_bytes()
    assert program(tmp_path, *asked, "--resume") == 0
    assert (tmp_path / "out/state.npz").read_bytes() == before
    assert program(tmp_path, *asked, "--resume", "--r-left", "3") == 2
    assert "--resume must find the same settings" in capsys.readouterr().err
    write(tmp_path, "g.csv", 1.1 * TARGETS)
    assert program(tmp_path, *asked, "--resume") == 2
    assert "--resume must find the same targets" in capsys.readouterr().err


def test_a_run_goes_on_from_its_last_pass(tmp_path, capsys):
    file = write(tmp_path, "g.csv", TARGETS)
    asked = [file, *VTEAM, "--schedule", "row", "--max-pulses", "1"]
    assert program(tmp_path, *asked, "--max-passes", "1") == 1
    assert program(tmp_path, *asked, "--max-passes", "3", "--resume") == 1
    with np.load(tmp_path / "out/state.npz") as z:
        cut = dict(z)
    assert len(cut["outside"]) == 4 and cut["pulses"].max() == 3
    assert program(tmp_path / "whole", *asked, "--max-passes", "3") == 1
    with np.load(tmp_path / "whole/out/state.npz") as z:
        for name in ("state.x", "pulses", "outside", "disturb", "energy"):
            np.testing.assert_array_equal(cut[name], z[name])


def test_random_targets_each_cell_on_its_own_with_stuck_cells(tmp_path, capsys):
    asked = ["--random", "6", "5", *VTEAM, "--method", "verify", "--stuck-open", "0.3", "--seed", "4"]
    assert program(tmp_path, *asked, "--within", "0.4", "0.6") == 1
    with np.load(tmp_path / "out/state.npz") as z:
        target, open_, done, g = z["target"], z["state.kind"] == 3, z["converged"], z["conductance"]
    low, high = 1e-5 + 0.4 * 1.9e-4, 1e-5 + 0.6 * 1.9e-4
    assert target.shape == (6, 5) and (target >= low).all() and (target <= high).all()
    assert 0 < open_.sum() < 20
    np.testing.assert_array_equal(done, ~open_)
    np.testing.assert_array_equal(g[open_], 0.0)
    assert f"0, 0, {open_.sum()}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--random", "2", "2", "--device", "memristor"], "--device must be one of"),
        (["--random", "2", "2", "--set", "r_onn=3"], "--set must name a field of VTEAM"),
        (["--random", "2", "2", "--set", "r_on"], "--set must be name=value, got 'r_on'"),
        (["--random", "2", "2", "--set", "r_on=many"], "--set r_on must be a number, got 'many'"),
        (["--random", "2", "2", "--set", "r_on=-5"], "VTEAM: r_on must be > 0"),
        (["--random", "2", "2", "--control-set", "v_upp=1"], "--control-set must name a field of AdaptiveWidth"),
        (["--random", "2", "2", "--tolerance", "0"], "--tolerance must be > 0"),
        (["--random", "2", "2", "--within", "0.8", "0.2"], "--within must be two shares"),
        (["--random", "2", "2", "--stuck-on", "1.5"], "Stuck: on must be >= 0 and <= 1"),
        (["--random", "2", "2", "--resume"], "--resume needs --out"),
        ([], "either a file of targets or --random"),
        (["nowhere.npy"], "nowhere.npy does not exist"),
        (["zero.csv"], "conductance must be finite and > 0 S, got 0.0 at [0, 1]"),
        (["ohm.csv"], "--what resistance if these are ohm"),
    ],
)
def test_mistakes_of_program_take_one_line(args, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "zero.csv", np.array([[1e-4, 0.0]]))
    write(tmp_path, "ohm.csv", np.array([[1e4, 2e4]]))
    assert cli.main(["program", *args]) == 2
    found = capsys.readouterr()
    assert message in found.err and found.err.count("\n") == 1, found.err


# Fits.


def test_a_curve_is_fitted_from_a_file(tmp_path, capsys):
    v = np.linspace(-1, 1, 33)
    file = tmp_path / "iv.csv"
    file.write_text("V,A\n" + "\n".join(f"{x:.9g},{y:.9g}" for x, y in zip(v, 3e-5 * np.sinh(2.5 * v), strict=True)))
    asked = [
        "fit",
        str(file),
        "--device",
        "yakopcic",
        "--parameters",
        "a1, a2, b:0.5:9",
        "--set",
        "b=2",
        "a1=1e-3",
        "a2=1e-3",
    ]
    assert cli.main([*asked, "--steps", "80", "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out/fit.json").read_text())
    np.testing.assert_allclose(
        [found["values"][n] for n in ("a1", "a2", "b")], [3e-5 / 0.11, 3e-5 / 0.11, 2.5], rtol=0.01
    )
    assert found["held_out_error"] < 3e-3 and len(found["held_out"]) == 8
    predicted = np.loadtxt(tmp_path / "out/predictions.csv", delimiter=",")
    np.testing.assert_allclose(predicted[:, 1], 3e-5 * np.sinh(2.5 * v), rtol=0.02, atol=1e-8)
    assert (tmp_path / "out/fit.png").read_bytes().startswith(b"\x89PNG")
    assert "error, held out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["iv.csv"], "--parameters must name at least one"),
        (["iv.csv", "--parameters", "a1:3"], "--parameters must be names, or name:low:high"),
        (["iv.csv", "--parameters", "c"], "parameters must be among those of VTEAM"),
        (["iv.csv", "--parameters", "k_on", "--kind", "ramps"], "--v must be given, the voltage of the pulses"),
        (["iv.csv", "--parameters", "k_on", "--kind", "ramps", "--v", "1"], "--width must be given and > 0"),
        (["none.csv", "--parameters", "k_on"], "none.csv does not exist"),
    ],
)
def test_mistakes_of_fit_take_one_line(args, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "iv.csv", np.array([[0.0, 1e-4], [0.5, 2e-4], [1.0, 3e-4]]))
    assert cli.main(["fit", *args]) == 2
    found = capsys.readouterr()
    assert message in found.err and found.err.count("\n") == 1, found.err
