"""The demo at a small size: it runs, its numbers land in the folder, it resumes."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from xbar_jax.study.digits import METHODS, Settings, load
from xbar_jax.study.report import run_demo

SMALL = Settings(resistances=(0.0, 50.0), bits=(8.0,), program_std=(0.01,), chips=2, digital_epochs=15, wire_epochs=3)


@pytest.fixture(scope="module", autouse=True)
def users_settings():
    # optax itself mixes types; the demo runs with JAX's own settings.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    run_demo(SMALL, out)
    return out


def test_wires_take_and_training_through_them_returns(folder):
    r = json.loads((folder / "results.json").read_text())
    mean = lambda r_, name: np.mean(r["accuracy"][r_][name])
    assert r["digital_accuracy"] > 0.95
    assert mean("0", "as is") > 0.95
    assert mean("50", "as is") < mean("50", "column gain") < mean("50", "through wires")
    assert mean("50", "through wires") > 0.9
    assert set(r["accuracy"]["0"]) == set(METHODS)
    assert all((folder / f).stat().st_size > 10_000 for f in ("accuracy.png", "ir_drop.png"))
    assert "through wires" in (folder / "report.md").read_text()


def test_resume_keeps_what_is_there_and_refuses_other_settings(folder):
    before = json.loads((folder / "results.json").read_text())["accuracy"]
    assert run_demo(SMALL, folder, resume=True)["accuracy"] == before
    with pytest.raises(ValueError, match="same settings"):
        run_demo(Settings(), folder, resume=True)
    with pytest.raises(ValueError, match="bits must be > 1"):
        run_demo(Settings(bits=(1.0,)), folder)
    with pytest.raises(ValueError, match="chips must be >= 1"):
        run_demo(Settings(chips=0), folder)


def test_data_is_split_once():
    d = load(0)
    assert d.x_train.shape == (1437, 64)
    assert d.x_test.shape == (360, 64)
    assert float(d.x_train.max()) == 1.0
