"""One array as a SPICE netlist, for a second opinion or for what surrounds the array."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from xbar_jax.circuits.cells import Ohmic, Sinh
from xbar_jax.circuits.validate import Terminals, as_cells, as_problem, cell_facts, check, refuse
from xbar_jax.circuits.wires import Wires
from xbar_jax.tree import is_traced
from xbar_jax.typing import ArrayLike


def netlist(
    g: ArrayLike | Ohmic | Sinh,
    wires: Wires | None,
    *,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    top: ArrayLike | None = None,
    bottom: ArrayLike | None = 0.0,
    title: str = "crossbar array",
) -> str:
    """The array of :func:`xbar_jax.solve` as a netlist that ``ngspice -b`` runs as it is.

    Nodes are ``w<i>_<j>`` and ``b<i>_<j>`` on the two sides of cell (i, j); row and column numbers begin at 0.
    Every driven or sensed line has a voltage source: ``vleft<i>``, ``vright<i>``, ``vtop<j>``, ``vbottom<j>``.
    SPICE counts a source's current into its positive node, so ``i(vbottom<j>)`` is ``i_bottom[j]`` and
    ``i(vright<i>)`` is ``i_right[i]``, whereas ``i(vleft<i>)`` and ``i(vtop<j>)`` have the opposite sign. The file
    ends with an operating point and the currents of all sources, printed to 15 digits.

    Nodes that a zero resistance joins are one node; what an infinite one cuts off from every source is left out,
    because it carries no current and SPICE could not solve for it. A cell of :class:`xbar_jax.cells.Sinh` is a
    behavioural source ``bcell<i>_<j>``, and the tolerances of the operating point are set for it.

    Args:
      g, wires, left, right, top, bottom: concrete, as in :func:`xbar_jax.solve`.
      title: first line of the file.

    Returns:
      The text.

    Raises:
      ValueError: as :func:`xbar_jax.solve` does, or an argument is traced.
      TypeError: a cell model that SPICE has no law for here; ``Ohmic`` and ``Sinh`` do.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> text = xb.spice.netlist(jnp.array([[1 / 1024]]), xb.Wires(r_word=1.0, r_bit=2.0), left=0.5)
      >>> print(text.split("* analysis")[0])
      crossbar array
      * 1 word lines, 1 bit lines
      vleft0 left0 0 dc 0.5
      rleft0 left0 w0_0 1.0
      rcell0_0 w0_0 b0_0 1024.0
      rbottom0 b0_0 bottom0 2.0
      vbottom0 bottom0 0 dc 0.0
      <BLANKLINE>
    """
    if is_traced(g, wires, left, right, top, bottom):
        raise ValueError("netlist: every argument must be concrete, got one under a JAX transformation")
    k = 0.0
    if hasattr(g, "current"):
        if not isinstance(g, (Ohmic, Sinh)):
            raise TypeError(
                f"netlist: g must be [rows, cols] S, xb.cells.Ohmic or xb.cells.Sinh, got {type(g).__name__}"
            )
        model, ones = as_cells("netlist", g, None, left, right, top, bottom)
        refuse("netlist", cell_facts(model))
        g, k = np.broadcast_to(model.g, ones.shape), getattr(model, "k", 0.0)
    cells, wires, ends = as_problem("netlist", g, wires, left, right, top, bottom)
    rows, cols = cells.shape
    check("netlist", cells, wires, ends)
    elements = _resistors(np.asarray(cells, np.float64), wires, ends)
    sources = {f"{side}{k}": float(v) for side, x in ends._asdict().items() if x is not None for k, v in enumerate(x)}
    laws = _laws(np.asarray(cells, np.float64), np.broadcast_to(np.asarray(k, np.float64), (rows, cols)))
    lines = [title, f"* {rows} word lines, {cols} bit lines", *_lines(elements, sources, laws)]
    if laws:
        lines.append(".options reltol=1e-12 abstol=1e-18 vntol=1e-13 itl1=1000")
    names = " ".join(f"i(v{name})" for name in sources)
    return "\n".join([*lines, "* analysis", ".control", "set numdgt=15", "op", f"print {names}", ".endc", ".end", ""])


def _resistors(g: np.ndarray, wires: Wires, ends: Terminals) -> list[tuple[str, str, str, float]]:
    """Every resistance as (name, node, node, ohm), terminals first; an open cell is left out."""
    rows, cols = g.shape
    end = lambda side, count: np.broadcast_to(np.asarray(wires.terminal(side), np.float64), (count,)).tolist()
    left, right, top, bottom = (
        end(side, n) for side, n in (("left", rows), ("right", rows), ("top", cols), ("bottom", cols))
    )
    word = np.broadcast_to(np.asarray(wires.r_word, np.float64), (rows, cols - 1)).tolist()
    bit = np.broadcast_to(np.asarray(wires.r_bit, np.float64), (rows - 1, cols)).tolist()
    out = []
    for i in range(rows):
        if ends.left is not None:
            out.append((f"left{i}", f"left{i}", f"w{i}_0", left[i]))
        out += [(f"word{i}_{j}", f"w{i}_{j}", f"w{i}_{j + 1}", word[i][j]) for j in range(cols - 1)]
        if ends.right is not None:
            out.append((f"right{i}", f"w{i}_{cols - 1}", f"right{i}", right[i]))
        out += [(f"cell{i}_{j}", f"w{i}_{j}", f"b{i}_{j}", float(1 / g[i, j])) for j in range(cols) if g[i, j] > 0]
    for j in range(cols):
        if ends.top is not None:
            out.append((f"top{j}", f"top{j}", f"b0_{j}", top[j]))
        out += [(f"bit{i}_{j}", f"b{i}_{j}", f"b{i + 1}_{j}", bit[i][j]) for i in range(rows - 1)]
        if ends.bottom is not None:
            out.append((f"bottom{j}", f"b{rows - 1}_{j}", f"bottom{j}", bottom[j]))
    return out


def _laws(g: np.ndarray, k: np.ndarray) -> dict[str, str]:
    """Currents of the cells that are no resistors, with the nodes left open."""
    curved = np.argwhere((g > 0) & (k > 0)).tolist()
    return {
        f"cell{i}_{j}": f"{float(g[i, j])!r}*sinh({float(k[i, j])!r}*v(%s,%s))/{float(k[i, j])!r}" for i, j in curved
    }


def _lines(elements: list[tuple[str, str, str, float]], sources: dict[str, float], laws: dict[str, str]) -> list[str]:
    """The elements that a source can drive, zero resistances merged; ``laws`` replace resistances."""
    finite = [e for e in elements if np.isfinite(e[3])]
    names = [*sources, *dict.fromkeys(n for e in finite for n in e[1:3] if n not in sources)]
    index = {n: k for k, n in enumerate(names)}

    def group(chosen) -> np.ndarray:
        a, b = ([index[e[k]] for e in chosen] for k in (1, 2))
        graph = coo_array((np.ones(len(a)), (a, b)), shape=(len(names),) * 2)
        return connected_components(graph, directed=False)[1]

    merged, live = group([e for e in finite if e[3] == 0]), group(finite)
    driven = {live[index[s]] for s in sources}
    first: dict[int, str] = {}
    for n in names:
        first.setdefault(merged[index[n]], n)  # a source's node gives its name to all that are one with it
    node = lambda n: first[merged[index[n]]]
    held: set[str] = set()
    lines = {}
    for s, v in sources.items():
        if node(s) in held:  # a second source on the same node, at the same voltage
            lines[s] = f"v{s} {s} 0 dc {v!r}"
            continue
        held.add(node(s))
        lines[s] = f"v{s} {node(s)} 0 dc {v!r}"
    out = []
    for name, a, b, r in finite:
        if a in lines:
            out.append(lines.pop(a))
        if r > 0 and live[index[a]] in driven and node(a) != node(b):
            ends = f"{node(a)} {node(b)}"
            law = laws.get(name)
            out.append(f"b{name} {ends} i={law % (node(a), node(b))}" if law else f"r{name} {ends} {r!r}")
        if b in lines:
            out.append(lines.pop(b))
    return [*out, *lines.values()]
