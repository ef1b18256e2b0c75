"""The README's example and every docstring's example run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import jax
import pytest

import xbar_jax

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    m.name for m in pkgutil.walk_packages(xbar_jax.__path__, "xbar_jax.") if not m.name.split(".")[-1].startswith("lib")
)


@pytest.fixture(autouse=True)
def users_settings():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_readme_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len(code.strip().splitlines()) <= 18
    exec(compile(code, "README.md", "exec"), {})
    assert "(3, 10)" in capsys.readouterr().out


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0


def test_public_names_have_docstrings():
    for name in xbar_jax.__all__:
        assert getattr(xbar_jax, name).__doc__, name
