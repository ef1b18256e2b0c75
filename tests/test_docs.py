"""The README's example and every docstring's example run."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import xbar_jax
from xbar_jax.native import library

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    m.name for m in pkgutil.walk_packages(xbar_jax.__path__, "xbar_jax.") if not m.name.split(".")[-1].startswith("lib")
)


@pytest.fixture(autouse=True)
def users_settings():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_readme_examples_run(capsys, tmp_path, monkeypatch):
    first, cells, pulses, moving, chip, network = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    assert len(first.strip().splitlines()) <= 18
    exec(compile(first, "README.md", "exec"), {})
    assert "(3, 10)" in capsys.readouterr().out
    exec(compile(cells, "README.md", "exec"), {})
    steps, converged, *slopes = capsys.readouterr().out.replace("[", " ").replace("]", " ").split()
    assert int(steps) < 10 and converged == "True" and all(float(x) > 0 for x in slopes) and len(slopes) == 3
    exec(compile(pulses, "README.md", "exec"), {})
    std, count = capsys.readouterr().out.split()
    assert float(std) > 0.01 and int(count) > 1000
    names: dict = {}
    exec(compile(moving, "README.md", "exec"), names)
    assert names["out"].converged.all() and names["out"].disturb.max() < 1e-5
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    exec(compile(chip, "README.md", "exec"), {})
    fresh, year, ok = capsys.readouterr().out.split()
    assert 0.01 < float(fresh) < 0.15 and float(year) < 0.25 and ok == "True"
    assert (names["state"].log_n > -1.0).all()
    exec(compile(network, "README.md", "exec"), {})
    *table, error = capsys.readouterr().out.strip().splitlines()
    assert all(f"{part}/kernel" in "".join(table) for part in ("query", "key", "value", "out"))
    assert 1e-3 < float(error) < 0.3


PAGES = {
    "programmed_devices": lambda n, said: (n["hour"] < n["state"].g).mean() > 0.99 and n["y"].shape == (4,),
    # Four devices for each weight halve the error of one pair; energy, in joule, and latency are those of the last line.
    "mapping": lambda n, said: (
        abs(2 * float(said[3].split()[1]) / float(said[0].split()[1]) - 1) < 0.1
        and (n["spent"].array > 0).all()
        and n["spent"].energy.shape == (8,)
        and float(n["spent"].latency) > 250e-9
    ),
    # The page states its own figures.
    "converters": lambda n, said: n["codes"].tolist() == [64, -32, 127] and n["error"](n["tile"]) < 0.04,
    "export": lambda n, said: (
        n["report"].ok
        and n["report"].layers[0].digital_error < 2 * n["report"].layers[0].quantisation
        and (n["same"].state.g == n["tile"].state.g).all()
    ),
    "conversion": lambda n, said: 1e-3 < n["error"] < 0.3 and len(n["report"].of("analog")) == 2,
    "training": lambda n, said: n["losses"][-1] < 0.1 * n["losses"][0] and n["error"] < 0.1,
}


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_on_inference_and_training_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for text in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.S):
        exec(compile(text, f"{page}.md", "exec"), names)
    assert PAGES[page](names, capsys.readouterr().out.splitlines())


def test_the_page_on_dynamic_devices_runs():
    """docs/dynamic_devices.md, one program after another."""
    use, write, waves, faults, fitting = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "dynamic_devices.md").read_text(), re.S
    )
    run = lambda text: (names := {}) is None or exec(compile(text, "dynamic_devices.md", "exec"), names) or names
    assert run(use)["dev"].polarity == -1
    assert 0 < run(write)["state"].x < 1
    assert run(waves)["curve"].shape == (121, 1, 1)
    out = run(faults)["out"]
    assert 0.9 < out.converged.mean() < 1
    found = run(fitting)["found"]
    assert abs(found.values["k_on"] / -2e-4 - 1) < 1e-3 and found.held_out_error < 1e-3


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0


@pytest.mark.long
@pytest.mark.skipif(not library.enabled(), reason="XBAR_NATIVE=0 turns off what is tested here")
def test_the_worked_device_builds_and_agrees(tmp_path):
    """docs/devices.md as a reader would follow it: both files, the library built, the comparison run."""
    text = (ROOT / "docs" / "devices.md").read_text()
    device, compare = re.findall(r"```python\n(.*?)```", text, re.S)
    (header,) = re.findall(r"```cpp\n(.*?)```", text, re.S)
    assert len((device + header + compare).splitlines()) < 100
    sources = tmp_path / "custom_calls"
    shutil.copytree(ROOT / "custom_calls", sources)
    (sources / "include/xbar/devices/cubic_step.h").write_text(header)
    (tmp_path / "cubic_step.py").write_text(device)
    cmake = shutil.which("cmake") or str(Path(sys.executable).with_name("cmake"))
    options = [f"-DPython3_EXECUTABLE={sys.executable}", "-DXBAR_CUDA=OFF", "-DXBAR_STANDIN=OFF"]
    for step in (["-S", str(sources), "-B", str(tmp_path / "build"), *options], ["--build", str(tmp_path / "build")]):
        done = subprocess.run([cmake, *step], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    program = f"""
import importlib.resources, pathlib
importlib.resources.files = lambda package: pathlib.Path({str(tmp_path / "build")!r})
{compare.replace("xbar_jax.devices.cubic_step", "cubic_step")}
assert "cubic_step" in native.libraries()[0].devices
assert "xbar_coincidences" in update.lower(state, key).as_text()
assert float(jnp.abs(fast.w - body.w).max()) < 1e-6 and float(jnp.abs(fast.w - state.w).max()) > 0.05
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"XBAR_ISA": ""}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True")


def test_public_names_have_docstrings():
    for name in xbar_jax.__all__:
        assert getattr(xbar_jax, name).__doc__, name
