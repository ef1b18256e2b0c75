"""The programs of docs/circuit.md run, one after the other as a reader would copy them."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "circuit.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_program(program):
    assert "assert" in program
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile(program, "circuit.md", "exec"), {})
