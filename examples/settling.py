"""How long the columns of an array take to settle: ``python examples/settling.py [folder]`` (extra ``demo``).

A 64 x 64 array is switched on at its word lines, with 1 to 20 ohm a segment. Prints the time to 1 % of the final
current for the first and the last column, beside the estimate from Elmore delays, and writes settling.png.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import xbar_jax as xb
from xbar_jax import plot

ROWS = COLS = 64
C = 0.5e-15  # farad from every node to ground
RESISTANCES = (1.0, 5.0, 20.0)
STEPS = 400


def elmore(r: float) -> np.ndarray:
    """Delay of each column, s: its place on the word lines, and the mean over the rows of its own bit line."""
    line = lambda n: C * r * (n + np.cumsum(np.r_[0, np.arange(n - 1, 0, -1)]))
    return line(COLS) + line(ROWS).mean()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/settling"), help="where the picture goes")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    g = 1 / jnp.exp(jax.random.uniform(jax.random.key(0), (ROWS, COLS), minval=jnp.log(1e4), maxval=jnp.log(1e6)))

    @jax.jit
    def run(r, dt):
        wires = xb.Wires(r_word=r, r_bit=r)
        out = xb.transient(g, wires, left=0.2, c_word=C, c_bit=C, dt=dt, steps=STEPS)
        final = xb.solve(g, wires, left=0.2).i_bottom
        return out, final, xb.settling_time(out.times, out.i_bottom, 0.01, final)

    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    print("ohm   settled to 1 %, ps (first, last column)   ln 100 x Elmore delay, ps   converged")
    for axes, r in zip(figure.subplots(1, len(RESISTANCES)), RESISTANCES, strict=True):
        delay = elmore(r)
        out, final, settled = run(r, 4 * delay[-1] / STEPS)
        estimate = np.log(100) * delay * 1e12
        print(
            f"{r:3.0f}   {settled[0] * 1e12:10.1f} {settled[-1] * 1e12:10.1f}"
            f"   {estimate[0]:30.1f} {estimate[-1]:10.1f}   {bool(out.converged)}"
        )
        for k, j in enumerate((0, 21, 42, 63)):
            color = f"C{k}"
            axes.plot(out.times * 1e12, out.i_bottom[:, j] / final[j], color=color, label=f"column {j}")
            axes.axvline(settled[j] * 1e12, color=color, ls=":", lw=1)
        axes.axhspan(0.99, 1.01, color="0.5", alpha=0.2, lw=0)
        axes.set_title(f"{r:g} ohm a segment", fontsize=10)
        axes.set_xlabel("time, ps")
        axes.grid(alpha=0.25)
    figure.axes[0].set_ylabel("column current / final current")
    figure.axes[-1].legend(loc="lower right", fontsize=8)
    plot.save(figure, folder / "settling.png")
    print(f"wrote {folder / 'settling.png'} (dotted: settled to 1 %)")
