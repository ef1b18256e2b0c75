"""What became of every weight of a converted model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from rich.table import Table

from xbar_jax.hardware import Hardware
from xbar_jax.hardware.tiling import Tiling
from xbar_jax.nn.rules import Choice


@dataclasses.dataclass(frozen=True)
class Row:
    """One weight.

    Attributes:
      path: of the weight, such as "encoder/query/kernel".
      operation: the kind of layer that it belongs to.
      shape: of the weight.
      where: "analog" or "digital".
      grid: (groups, arrays along the inputs, arrays along the outputs), or None.
      arrays: how many it fills, every plane of the mapping counted.
      why: the rule, or what else decided.
    """

    path: str
    operation: str
    shape: tuple[int, ...]
    where: str
    grid: tuple[int, int, int] | None
    arrays: int
    why: str


@dataclasses.dataclass(frozen=True)
class Report:
    """Every weight of a converted model, in the order of the paths.

    Example:
      >>> from flax import nnx
      >>> import xbar_jax as xb
      >>> _, report = xb.nn.convert(nnx.Linear(20, 3, rngs=nnx.Rngs(0)), hardware=xb.Hardware(rows=16, cols=16))
      >>> [(row.path, row.where, row.grid) for row in report]
      [('bias', 'digital', None), ('kernel', 'analog', (1, 2, 1))]
    """

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def arrays(self) -> int:
        """Arrays of the whole model."""
        return sum(row.arrays for row in self.rows)

    def of(self, where: str) -> list[Row]:
        """The rows that are "analog", or those that are "digital"."""
        return [row for row in self.rows if row.where == where]

    def table(self) -> Table:
        """A rich table."""
        table = Table(*HEADS, title=self._title())
        for row in self.rows:
            table.add_row(*_texts(row), style=None if row.where == "analog" else "dim")
        return table

    def __str__(self) -> str:
        lines = [HEADS, *(_texts(row) for row in self.rows)]
        widths = [max(len(line[k]) for line in lines) for k in range(len(HEADS))]
        text = ["  ".join(t.ljust(w) for t, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([*text, self._title()])

    def _title(self) -> str:
        return f"{len(self.of('analog'))} weights analog on {self.arrays} arrays, {len(self.of('digital'))} digital"


HEADS = ("weight", "operation", "shape", "where", "grid", "arrays", "why")


def _texts(row: Row) -> tuple[str, ...]:
    size = lambda n: " x ".join(map(str, n))
    grid = "" if row.grid is None else size(row.grid[1:]) if row.grid[0] == 1 else size(row.grid)
    count = str(row.arrays) if row.arrays else ""
    return row.path, row.operation, size(row.shape), row.where, grid, count, row.why


def weight_row(name: str, kind: str, shape: tuple[int, ...], choice: Choice, layout: Any) -> Row:
    """The row of a kernel, embedding or bias of a layer for which a choice was made."""
    hw = choice.hardware
    if hw is None:
        return Row(name, kind, shape, "digital", None, 0, choice.why)
    if name.rpartition("/")[2] == "bias":
        held = "in one more row of the arrays" if hw.bias_rows else "bias, added digitally"
        return Row(name, kind, shape, "analog" if hw.bias_rows else "digital", None, 0, held)
    why = choice.why if kind != "Embed" else f"{choice.why}; logits on arrays, looking up is digital"
    return Row(name, kind, shape, "analog", *on_arrays(layout, hw), why)


def on_arrays(layout: Any, hardware: Hardware) -> tuple[tuple[int, int, int], int]:
    """The grid of a layout, and how many arrays that is."""
    tiling = Tiling.make(
        layout.inputs + hardware.bias_rows, layout.outputs, hardware.rows, hardware.cols - hardware.mapping.extra_cols
    )
    down, across = tiling.grid
    return (layout.groups, down, across), layout.groups * down * across * hardware.mapping.planes
