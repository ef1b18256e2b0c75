"""What is asked of a circuit: concrete values are checked at the door, traced ones become a flag.

Each fact is written once, as an array expression. ``check`` evaluates it on concrete values and raises;
``is_valid`` evaluates it under a trace.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.circuits.wires import Wires
from xbar_jax.tree import is_traced
from xbar_jax.typing import Array, ArrayLike, Bool, Float


class Terminals(NamedTuple):
    """Voltages of the four sides, V: a scalar or one number per line; None is not joined."""

    left: Any = None
    right: Any = None
    top: Any = None
    bottom: Any = None


def working_dtype(name: str, dtype: Any, *values: Any) -> jnp.dtype:
    """The floating-point type of a solve: that of ``values``, or the one asked for."""
    if dtype is not None:
        asked = np.dtype(dtype)
        if asked != jnp.zeros((), jax.dtypes.canonicalize_dtype(asked)).dtype:
            raise ValueError(
                f"{name}: dtype={asked.name} needs 64-bit mode, got jax_enable_x64=False; "
                "set jax.config.update('jax_enable_x64', True)"
            )
        found = asked
    else:
        kinds = [x.dtype for x in jax.tree.leaves(values) if hasattr(x, "dtype") and np.ndim(x) > 0]
        floats = [jax.dtypes.canonicalize_dtype(d) for d in kinds if jnp.issubdtype(d, jnp.floating)]
        found = jnp.result_type(*floats) if floats else jnp.result_type(float)
    if found not in (np.dtype("float32"), np.dtype("float64")):
        raise TypeError(f"{name}: dtype must be float32 or float64, got {found}")
    return found


def as_conductance(name: str, g: ArrayLike, dtype: Any = None) -> Float[Array, "rows cols"]:
    """``g`` as a [rows, cols] floating-point array, checked for type and shape."""
    try:
        shape, kind = np.shape(g), jnp.asarray(g).dtype
    except (TypeError, ValueError) as e:
        raise TypeError(f"{name}: g must be a [rows, cols] array of conductances in S, got {type(g).__name__}") from e
    if not (jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer)):
        raise TypeError(f"{name}: g must hold real numbers, got dtype {kind}")
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"{name}: g must have shape [rows, cols] with at least one cell, got {list(shape)}; jax.vmap batches arrays"
        )
    return jnp.asarray(g, working_dtype(name, dtype, g))


def as_drive(name: str, side: str, v: ArrayLike | None, count: int, dtype) -> Float[Array, " count"] | None:
    """A drive of one side as one voltage per line."""
    if v is None:
        return None
    if np.shape(v) not in ((), (count,)):
        raise ValueError(
            f"{name}: {side} must be a scalar or have shape [{count}], one voltage per line, "
            f"got {list(np.shape(v))}; jax.vmap or xb.read batches inputs"
        )
    return jnp.broadcast_to(jnp.asarray(v, dtype), (count,))


def as_problem(name: str, g, wires: Wires | None, left, right, top, bottom, dtype=None):
    """Conductances, wires and drives in one precision; wires=None is ideal."""
    dtype = working_dtype(name, dtype, g, left, right, top, bottom)
    g = as_conductance(name, g, dtype)
    rows, cols = g.shape
    sides = zip(("left", "right", "top", "bottom"), (left, right, top, bottom), (rows, rows, cols, cols), strict=True)
    ends = Terminals(*(as_drive(name, side, x, count, dtype) for side, x, count in sides))
    return g, Wires(r_word=0.0, r_bit=0.0) if wires is None else wires, ends


def as_cells(name: str, cells: Any, dtype: Any, *values: Any):
    """A cell model with its numbers in one precision, and conductances of 1 S in its shape.

    The shape is that of the currents at one and the same voltage.
    """
    dtype = working_dtype(name, dtype, cells, *values)
    for x in jax.tree.leaves(cells):
        if not isinstance(x, (bool, int, float, complex, np.ndarray, np.generic, jax.Array)):
            raise TypeError(
                f"{name}: g must be an array or a pytree with current(v), got {type(cells).__name__} "
                f"with {type(x).__name__} among its leaves"
            )

    def number(x):
        floating = not isinstance(x, bool) and (
            isinstance(x, (int, float)) or (hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating))
        )
        return jnp.asarray(x, dtype) if floating else x

    cells = jax.tree.map(number, cells)
    ports = getattr(cells, "terminals", 2) - 1
    kind = type(cells).__name__

    def currents(shape):
        try:
            return jax.eval_shape(lambda c, *v: c.current(*v), cells, *[jax.ShapeDtypeStruct(shape, dtype)] * ports)
        except (TypeError, ValueError) as e:
            raise ValueError(
                f"{name}: the numbers of {kind} must be scalars or fit [rows, cols], got currents that do not "
                f"evaluate for voltages of shape {list(shape)}: {e}"
            ) from e

    out = currents(())
    if len(out.shape) != 2 or 0 in out.shape:
        raise ValueError(
            f"{name}: the numbers of {kind} must give it the shape [rows, cols] with at least one cell, "
            f"got {list(out.shape)}; jax.vmap batches arrays"
        )
    full = currents(out.shape)
    if full.shape != out.shape or not jnp.issubdtype(full.dtype, jnp.floating):
        raise ValueError(f"{name}: {kind}.current must be real and [rows, cols], got {full.dtype} {list(full.shape)}")
    return cells, jnp.ones(out.shape, dtype)


def cell_facts(cells: Any):
    """Facts of a cell model, if it states any."""
    yield from (cells.facts() if hasattr(cells, "facts") else ())


def _facts(g, wires: Wires, ends: Terminals):
    """Yields (what must hold, the values it is about, the message if it does not)."""
    yield jnp.isfinite(g) & (g >= 0), g, "g must be finite and >= 0 S (an open cell is 0)"
    for field in ("r_word", "r_bit", "r_left", "r_right", "r_top", "r_bottom"):
        r = getattr(wires, field)
        if r is None:
            continue
        yield jnp.asarray(r) >= 0, r, f"{field} must be >= 0 ohm (inf is open)"
        if np.ndim(r) == 2:
            yield jnp.isfinite(jnp.asarray(r)), r, f"{field} must be finite where it is an array (a break: a large one)"
    for side, v in ends._asdict().items():
        r = getattr(wires, f"r_{side}")
        if v is None:
            continue
        yield jnp.isfinite(v), v, f"{side} must be finite, in V"
        if r is None or np.ndim(r) == 1 or (side == "bottom" and np.ndim(v) == 0 and not is_traced(v) and v == 0):
            continue  # a missing sense node is the floating-line fact below; line by line, lines may float
        yield (
            jnp.isfinite(jnp.asarray(r)) | jnp.isnan(jnp.asarray(r)),
            r,
            f"{side}= given but r_{side} is inf; r_{side} must be finite for a driven side",
        )
    for line, axis, sides in (("word", 1, ("left", "right")), ("bit", 0, ("bottom", "top"))):
        closed = g.sum(axis) > 0
        given = [wires.terminal(side) for side in sides if getattr(ends, side) is not None]
        joined = sum(
            (jnp.isfinite(jnp.asarray(r)).astype(jnp.int32) for r in given), jnp.zeros(closed.shape, jnp.int32)
        )
        if any(np.ndim(r) == 0 for r in given):
            own = [wires.r_left, wires.r_bottom][axis == 0] is None and getattr(ends, sides[0]) is not None
            yield (
                (joined > 0) | ~closed | own,
                joined > 0,
                f"every {line} line with a closed cell needs a terminal: {sides[0]}= or {sides[1]}= with a finite resistance",
            )
        a, b = (getattr(ends, side) for side in sides)
        if a is not None and b is not None:
            segments = jnp.asarray(getattr(wires, f"r_{line}"), g.dtype)
            whole = (
                segments.sum(axis) if segments.ndim else segments * (g.shape[axis] - 1) if g.shape[axis] > 1 else 0.0
            )
            whole = whole + sum(jnp.asarray(r, g.dtype) for r in given)
            yield (
                (whole > 0) | (a == b),
                whole,
                f"{sides[0]} and {sides[1]} must be equal where a {line} line has no resistance at all (a short circuit)",
            )


def check(name: str, g, wires: Wires, ends: Terminals) -> None:
    """Raises for every fact whose values are concrete and that does not hold."""
    if not isinstance(wires, Wires):
        raise TypeError(f"{name}: wires must be an xb.Wires or None, got {type(wires).__name__}")
    rows, cols = g.shape
    shapes = dict(
        r_word=(rows, cols - 1),
        r_bit=(rows - 1, cols),
        r_left=(rows,),
        r_right=(rows,),
        r_top=(cols,),
        r_bottom=(cols,),
    )
    for field, each in shapes.items():
        r = getattr(wires, field)
        if r is None and field in ("r_left", "r_bottom"):
            segment, n = (wires.r_word, cols) if field == "r_left" else (wires.r_bit, rows)
            if np.ndim(segment) == 2 and n == 1:
                raise ValueError(f"{name}: {field} must be given where a line has no segment, in ohm, got None")
            continue
        if r is None or np.shape(r) not in ((), each):
            got = "None" if r is None else list(np.shape(r))
            raise ValueError(f"{name}: {field} must be a scalar or {list(each)}, in ohm, got {got}")
    for sides, line in ((("left", "right"), "word"), (("top", "bottom"), "bit")):
        if all(getattr(ends, s) is None for s in sides):
            raise ValueError(
                f"{name}: the {line} lines have no terminal; give {sides[0]}= or {sides[1]}=, got None for both"
            )
    refuse(name, _facts(g, wires, ends))


def refuse(name: str, facts) -> None:
    """Raises for the first of ``(what must hold, the values it is about, the message)`` that is known not to hold."""
    for holds, values, message in facts:
        if is_traced(holds):
            continue
        holds = np.asarray(holds)
        if not holds.all():
            where = np.argwhere(~holds)[0].tolist()
            shown = np.asarray(values)
            found = shown[tuple(where)] if shown.shape == holds.shape else shown
            raise ValueError(f"{name}: {message}, got {found}" + (f" at {where}" if where else ""))


def is_valid(g, wires: Wires, ends: Terminals) -> Bool[Array, ""]:
    """All facts of :func:`check` as one traced flag."""
    return hold(_facts(g, wires, ends))


def hold(facts) -> Bool[Array, ""]:
    """All facts as one traced flag."""
    return jnp.stack([jnp.bool_(True), *(jnp.asarray(holds).all() for holds, _, _ in facts)]).all()
