"""What a crossbar's wires take: one array solved, its power and IR drop as a table, pictures of every branch.

``python examples/read_an_array.py [folder]`` writes maps.png and branches.png. The same from the command line:
``xbar-jax solve resistances.csv --left 0.2 --r-word 5 --r-bit 5 --out folder``.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import xbar_jax as xb
from xbar_jax import plot

ROWS, COLS, V = 32, 24, 0.2

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/read"), help="where the pictures go")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    resistance = 10 ** jax.random.uniform(jax.random.key(0), (ROWS, COLS), minval=3.0, maxval=5.0)  # 1 to 100 kohm
    g = 1 / resistance
    wires = xb.Wires(r_word=5.0, r_bit=5.0)
    sol = xb.solve(g, wires, left=V, throw=True)

    lost = xb.losses(sol, wires)
    drop = xb.ir_drop(sol, left=V)
    table = Table("quantity", "value", title=f"{ROWS}x{COLS} cells of 1 to 100 kohm, 5 ohm a segment, {V} V")
    table.add_row("power", f"{1e3 * sol.power:.3f} mW")
    for name, p in {"cells": lost.cell, "word lines": lost.word, "bit lines": lost.bit}.items():
        table.add_row(f"  in the {name}", f"{100 * p.sum() / sol.power:.1f} %")
    table.add_row("  in the terminals", f"{100 * lost.terminals / sol.power:.1f} %")
    table.add_row("worst IR drop", f"{1e3 * drop.worst:.1f} of {1e3 * V:.0f} mV, at row {drop.row}, column {drop.col}")
    table.add_row("current lost to the wires", f"{100 * (1 - sol.i_bottom.sum() / (V * g.sum())):.1f} %")

    # One row read while the others are grounded: what the other rows carry away again.
    one = xb.solve(g, wires, left=jnp.zeros(ROWS).at[0].set(V))
    table.add_row(
        "sneak share, row 0 read alone", f"{100 * xb.sneak_share(one, 0).mean():.1f} % (it leaves by the grounded rows)"
    )

    # Everything is differentiable: how the worst drop grows with the resistance of the word lines.
    worst = lambda r: xb.ir_drop(xb.solve(g, wires.replace(r_word=r), left=V), left=V).worst
    table.add_row("worst IR drop, slope", f"{1e3 * jax.grad(worst)(5.0):.2f} mV per ohm of r_word")
    Console().print(table)

    plot.save(plot.array_maps(sol, title="one read, all rows at 0.2 V"), folder / "maps.png")
    plot.save(plot.array_branches(sol, wires, title="currents in every branch"), folder / "branches.png")
    print(f"pictures: {folder / 'maps.png'}, {folder / 'branches.png'}")
