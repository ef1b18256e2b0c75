"""Imports point downwards only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "xbar_jax"

LEAVES = {"numerics", "random", "tree", "typing"}
BELOW = {
    "numerics": {"typing"},
    "random": {"typing"},
    "tree": set(),
    "typing": set(),
    "native": {"typing"},
    "circuits": LEAVES | {"native"},
    "devices": LEAVES | {"native"},
    "programming": LEAVES | {"circuits", "devices"},
    "hardware": LEAVES | {"circuits", "devices", "programming"},
    "nn": LEAVES | {"circuits", "devices", "programming", "hardware"},
    "study": LEAVES | {"circuits", "devices", "programming", "hardware", "nn", "plot"},
    "plot": {"typing"},
    "cli": {"study", "programming", "plot", "native"},
}


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names |= {f"{node.module}.{a.name}" for a in node.names}
    return names


FILES = sorted(f for f in PACKAGE.rglob("*.py") if f != PACKAGE / "__init__.py")


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_room_imports_only_rooms_below(file):
    room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for name in imported(file):
        parts = name.split(".")
        if parts[0] == "xbar_jax" and parts[1] != room:
            assert parts[1] in BELOW[room], f"{room} must not import {parts[1]}"
        if name.startswith(("flax.nnx", "flax.linen")):
            assert room in ("nn", "study"), f"{room} must not import flax.nnx"
        assert not name.startswith("jax.ffi"), f"{room} must not import jax.ffi"
    if room != "native":
        assert "jax.ffi" not in file.read_text(), f"only native uses jax.ffi, not {room}"
