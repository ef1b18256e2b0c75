"""Fits the relaxation of resistive memory to measured cells: ``python benchmarks/fit_rram.py [FOLDER]``.

FOLDER holds techC_relaxdata.min.tsv.gz of RRAM-Relaxation-Master-Model (akashlevy, MIT licence); ../shared/data/
rram_relaxation by default. A quarter of the cells is held out. Prints the coefficients for xbar_jax/devices/rram.py and a
table of residuals, and writes benchmarks/fit_rram.json and docs/rram_relaxation.png.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from xbar_jax.devices.relaxation import Relaxation
from xbar_jax.devices.relaxation_fit import (
    RelaxationData,
    correlations,
    fit_relaxation,
    initial_law,
    load_relaxation,
    predicted,
    programming_spread,
    split,
)

ROOT = Path(__file__).parents[1]
WIDTH = 1.25e-6  # S, of a level: 32 over 40 uS
GROUPS = ((0, 0), (1, 3), (4, 7), (8, 15), (16, 23), (24, 31), (0, 31))


def rounded(law: Relaxation) -> Relaxation:
    """The law with the digits that are published."""
    digits = lambda x: [digits(y) for y in x] if isinstance(x, list | tuple) else float(f"{x:.5g}")
    return Relaxation(**{f.name: digits(getattr(law, f.name)) for f in dataclasses.fields(law)})


def residuals(law: Relaxation, data: RelaxationData) -> list[dict[str, float]]:
    """Measured and predicted mean and spread of the change, uS, for groups of levels at every time."""
    found = []
    for j, t in enumerate(data.t):
        for low, high in GROUPS:
            part = (data.level >= low) & (data.level <= high) & np.isfinite(data.change[:, j])
            change = 1e6 * data.change[part, j]
            mean, square = predicted(law, data.g[part], float(t))
            std = change.std()
            kurtosis = ((change - change.mean()) ** 4).mean() / std**4
            found.append(
                {
                    "t": float(t),
                    "levels": [low, high],
                    "cells": int(part.sum()),
                    "mean": float(change.mean()),
                    "mean_predicted": float(1e6 * mean.mean()),
                    "std": float(std),
                    "std_predicted": float(1e6 * np.sqrt(square.mean() - mean.mean() ** 2)),
                    "std_error": float(std * np.sqrt((kurtosis - 1) / (4 * part.sum()))),
                }
            )
    return found


def table(rows: list[dict[str, float]], title: str) -> Table:
    found = Table(title=title)
    for name in ("t, s", "levels", "cells", "mean", "predicted", "spread", "+-", "predicted", "off by"):
        found.add_column(name, justify="right")
    for row in rows:
        levels = "-".join(str(k) for k in row["levels"])
        off = 100 * (row["std_predicted"] / row["std"] - 1)
        numbers = (f"{row[k]:.2f}" for k in ("mean", "mean_predicted", "std", "std_error", "std_predicted"))
        whole = row["levels"] == [0, 31]
        found.add_row(f"{row['t']:g}", levels, str(row["cells"]), *numbers, f"{off:+.1f} %", end_section=whole)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT.parent / "shared" / "data" / "rram_relaxation")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "fit_rram.json")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "rram_relaxation.png")
    args = parser.parse_args()
    console = Console(width=110)
    data = load_relaxation(args.folder / "techC_relaxdata.min.tsv.gz")
    fitted, held = split(data)
    levels, spread = programming_spread(data.part(data.level < 32), WIDTH)
    with console.status(f"fitting {len(fitted.g)} cells"):
        law = rounded(fit_relaxation(fitted, initial_law(data.t)))
    rows = residuals(law, held)
    console.print(table(rows, f"change of {len(held.g)} cells that were held out, uS"))
    error = data.g - (data.level + 0.5) * WIDTH
    half_width = float(f"{np.sqrt(3) * error[data.level < 32].std():.3g}")
    console.print(f"programming: spread {1e6 * error[data.level < 32].std():.3f} uS, half_width {half_width:g} S")
    for field in dataclasses.fields(law):
        console.print(f"    {field.name}={getattr(law, field.name)},", highlight=False)
    found = {
        "law": {f.name: getattr(law, f.name) for f in dataclasses.fields(law)},
        "half_width": half_width,
        "programming_std_uS": dict(zip(map(int, levels), (1e6 * spread).round(3).tolist(), strict=True)),
        "correlations": correlations(law, held.part((held.level >= 4) & (held.level < 32))).round(3).tolist(),
        "held_out": rows,
    }
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    from xbar_jax.plot.parts import save
    from xbar_jax.plot.relaxation import relaxation_spread

    title = f"Relaxation of resistive memory: {len(held.g)} cells that were not fitted"
    save(relaxation_spread(partial(predicted, law), held, (1.0, 4.0, 1e5), title=title), args.picture)


if __name__ == "__main__":
    main()
