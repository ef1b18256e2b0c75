"""Targets as text, for the scripts of a lab."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xbar_jax.hardware.export.iterate import ArrayTargets, arrays
from xbar_jax.hardware.tile import Tile


def csv(tiles: Tile | Mapping[str, Tile], folder: str | Path) -> list[Path]:
    """Writes the targets of every circuit of every array, one file each, a line a row, S.

    A differential pair gives ``<name>_<i>_<j>_plus.csv`` and ``.._minus.csv``, any other mapping ``.._circuit<k>.csv``,
    with the lines that it adds as last columns. Numbers have as many digits as their dtype holds. Lines of comment
    begin with ``#``.

    Args:
      tiles: a Tile, or tiles by name.
      folder: made if absent.

    Returns:
      The files, in the order of :func:`arrays`.

    Raises:
      ValueError: ``folder`` cannot be made, or two names give the same file.

    Example:
      >>> import tempfile, jax.numpy as jnp, xbar_jax as xb
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     written = xb.hardware.export.csv(xb.program(jnp.ones((3, 2)), xb.Hardware()), folder)
      ...     [file.name for file in written]
      ['tile_0_0_plus.csv', 'tile_0_0_minus.csv']
    """
    folder = Path(folder)
    tables = {}
    for one in arrays(tiles):
        a, b = one.place
        for circuit, g in zip(_circuits(one), one.circuits, strict=True):
            name = f"{re.sub(r'[^A-Za-z0-9_.-]', '_', one.name)}_{a}_{b}_{circuit}.csv"
            if name in tables:
                raise ValueError(
                    f"export.csv: names of tiles must differ in their letters and digits, got {name} twice"
                )
            tables[name] = _text(one, circuit, g)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ValueError(f"export.csv: folder must be one that can be made, got {folder}: {e.strerror}") from e
    for name, text in tables.items():
        part = folder / f"{name}.part"
        part.write_text(text)
        os.replace(part, folder / name)
    return [folder / name for name in tables]


def _circuits(one: ArrayTargets) -> list[str]:
    pair = len(one.circuits) == 2 and one.circuits.shape[1:] == one.g_plus.shape
    if pair and (one.circuits[0] == one.g_plus).all() and (one.circuits[1] == one.g_minus).all():
        return ["plus", "minus"]
    return [f"circuit{k}" for k in range(len(one.circuits))]


def _text(one: ArrayTargets, circuit: str, g: np.ndarray) -> str:
    digits = "%.17g" if g.dtype == np.float64 else "%.9g"
    rows, lines = g.shape
    cols = one.g_plus.shape[1]
    added = f", then {lines - cols} of the mapping" if lines > cols else ""
    head = [
        f"# conductance targets, S; layer {one.name}, array {one.place[0]} {one.place[1]}, {circuit}",
        f"# {rows} lines of inputs from {one.row}, {cols} columns of outputs from {one.col}{added}",
        f"# input of each line: {' '.join(map(str, one.inputs))}",
    ]
    return "\n".join(head + [",".join(digits % x for x in row) for row in g.tolist()]) + "\n"
