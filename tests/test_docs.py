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
    first, cells, pulses, moving, chip = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
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


@pytest.mark.parametrize("page", ["programmed_devices", "mapping", "export"])
def test_the_pages_on_inference_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.S)
    assert blocks
    for text in blocks:
        exec(compile(text, f"{page}.md", "exec"), names)
    if page == "programmed_devices":
        assert (names["hour"] < names["state"].g).mean() > 0.99 and names["y"].shape == (4,)
    if page == "export":
        assert (tmp_path / "chip" / "export.json").is_file()


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
