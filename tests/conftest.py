"""Strict JAX for every test, both precisions, and the oracle fixtures where they are at hand."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

CASES = Path(__file__).parents[2] / "shared" / "cases"


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Every compiled program maps memory, and Linux allows a process 65530 maps: a worker keeps one module's programs."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True)
def compile_fast(request):
    """Tests marked ``long`` spend most of their time in XLA's optimisations, on which results should not rest."""
    long = request.node.get_closest_marker("long") is not None
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", before or long)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Both working precisions; 64-bit mode is on for the second only."""
    with jax.enable_x64(request.param == "float64"):
        yield np.dtype(request.param)


def case(name: str):
    """One oracle fixture, or a skip that says why."""
    file = CASES / f"{name}.npz"
    if not file.exists():
        pytest.skip(f"oracle fixtures are not beside this checkout ({CASES.name}/{name}.npz)")
    with np.load(file) as z:
        return dict(z)
