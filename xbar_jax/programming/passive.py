"""Programming of a passive (0T1R) array: every pulse and every read goes through the wires and meets all cells."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax.circuits import Wires
from xbar_jax.programming.control import AdaptiveWidth
from xbar_jax.programming.lines import SCHEMES, Scheme, pulse_with, read_line
from xbar_jax.programming.result import Programmed, as_mask, as_targets, part
from xbar_jax.programming.write_verify import check_key, log_read
from xbar_jax.tree import dataclass, is_traced
from xbar_jax.typing import Array, Bool, Float, Int, Key, Scalar

SCHEDULES = ("cell", "row", "column")
VERIFY = ("cell", "row")
# Pulses of one line whose widths differ by less are given together.
_ALIKE = 3.0


def program_passive(
    dev: Any,
    state: Any,
    g_target: Float[Array, "rows cols"],
    wires: Wires | None,
    *,
    key: Key[Array, ""] | None = None,
    scheme: str = "half",
    schedule: str = "cell",
    verify: str = "cell",
    control: Any = None,
    tolerance: Scalar = 0.01,
    max_pulses: Scalar = 100,
    max_passes: Scalar = 20,
    v_read: Scalar | None = None,
    mask: Bool[Array, "rows cols"] | None = None,
) -> Programmed:
    """Programs a passive array, through its wires and with what each pulse does to all other cells.

    Lines are visited one after another. A line is read, cells outside their tolerance get a pulse, and so on until
    none is left; passes over the array are repeated until one has needed no pulse. A pulse is one nodal solve and
    one step of every cell with its own voltage, held at its value at the start of the pulse, and so is
    the current in its energy; where the lanes of a line have pulses of different widths there is one of both for each
    interval. Reads cost nothing and disturb nothing.

    A read puts ``v_read`` on the line with all else at 0 V, and each lane collects the current of its cell: for ohmic
    cells an entry of :func:`xbar_jax.effective_conductance`. What it is compared with is ``verify``:

    * "row": the target itself. The array then acts as ``g_target`` when it is read through its wires. Wires take
      from every read, so the upper end of the range is out of reach.
    * "cell" (default): what this read gives in the same array with every cell at its target, so that the targets are
      those of the cells, and whatever the device reaches is in reach. ``tolerance`` bounds the read, to which the
      wires and the other cells of the line belong: the conductance of a converged cell may be off its own target by
      more, the more so the less of the read is the cell's own. A guarded read, with the other lines at
      ``v_read`` too, is no way around this: the row then carries the current of the cell alone, but the column that
      of all its cells, and by reciprocity the current is the same number.

    A pure function in one compiled loop, to be vmapped over arrays; it ends for every target. Forward derivatives
    (``jax.jvp``) are those of the sequence of pulses that was chosen; :func:`pulse_array` has derivatives both ways.

    Args:
      dev: a dynamic device.
      state: of the array.
      g_target: S, > 0, [rows, cols] or one number.
      wires: resistances of lines and terminals, driven at the left and at the bottom; None is ideal.
      key: typed key; needed where the device is random. Each pulse has a part of its own.
      scheme: "half", "third" or "floating", see :class:`Scheme`.
      schedule: "cell", one cell after another; "row" or "column", all cells of a line together, first those to be
        raised, then those to be lowered, each with amplitude and width of its own.
      verify: "cell" or "row".
      control: :class:`AdaptiveWidth` (default), :class:`AdaptiveAmplitude`, :class:`ISPP`. Its amplitudes are those
        between the terminals; half of it must stay below the threshold of the device.
      tolerance: relative.
      max_pulses: of each cell, in all.
      max_passes: over the array.
      v_read: V, not 0; that of the device if None.
      mask: [rows, cols] cells to program; all if None.

    Returns:
      :class:`Programmed`; ``error`` and ``converged`` are those of a verify of the whole array at the end. A cell whose
      read is not a number gets no more pulses and has not converged.

    Raises:
      TypeError: a key is needed and not given.
      ValueError: a name, a shape or a concrete value out of its range.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.VTEAM(r_on=5e3, r_off=1e5, v_on=-0.6, v_off=0.6)
      >>> wires = xb.Wires(r_word=5.0, r_bit=5.0)
      >>> out = xb.programming.program_passive(dev, dev.init((3, 4)), 8e-5, wires, schedule="row")
      >>> bool(out.converged.all()), bool(out.disturb.max() < 1e-6)
      (True, True)
    """
    for label, value, names in (
        ("scheme", scheme, SCHEMES),
        ("schedule", schedule, SCHEDULES),
        ("verify", verify, VERIFY),
    ):
        if value not in names:
            raise ValueError(f"program_passive: {label} must be one of {', '.join(names)}, got {value!r}")
    if not hasattr(dev, "evolve"):
        raise TypeError(f"program_passive: dev must be a dynamic device, got {type(dev).__name__}")
    g_target = as_targets("program_passive", g_target, state.x.shape, state.x.dtype)
    mask = as_mask("program_passive", mask, state.x.shape)
    check_key("program_passive", dev, key)
    v_read = dev.v_read if v_read is None else v_read
    if np.ndim(v_read) != 0:
        raise ValueError(f"program_passive: v_read must be one number, got {list(np.shape(v_read))}")
    if not is_traced(v_read) and not (np.isfinite(v_read) and v_read != 0):
        raise ValueError(f"program_passive: v_read must be a finite voltage other than 0 V, got {v_read}")
    control = AdaptiveWidth() if control is None else control
    limits = tuple(
        jnp.asarray(x, t) for x, t in ((tolerance, state.x.dtype), (max_pulses, jnp.int32), (max_passes, jnp.int32))
    )
    task = Task(dev, wires, g_target, mask, control, limits, jnp.asarray(v_read, state.x.dtype), key)
    way = Scheme(name=scheme, across=schedule != "column")
    return _program(task, state, way, single=schedule == "cell", verify=verify)


@dataclass
class Task:
    """What does not change while an array is programmed; ``limits``: tolerance, max_pulses, max_passes."""

    dev: Any
    wires: Any
    g_target: Any
    mask: Any
    control: Any
    limits: Any
    v_read: Any
    key: Any


@dataclass(kw_only=True)
class _Lanes:
    """The pulse that the lanes of the line have got, each [lanes]; peak: V, the largest amplitude."""

    fired: Bool[Array, " lanes"]
    a: Float[Array, " lanes"]
    second: Float[Array, " lanes"]
    left: Float[Array, " lanes"]
    y: Float[Array, " lanes"]
    wanted: Float[Array, " lanes"]
    peak: Float[Array, ""]


@dataclass(kw_only=True)
class _Progress:
    """Where the loop is: line, first lane not yet done (cell by cell), pass; whether this pass has needed a pulse."""

    line: Int[Array, ""]
    lane: Int[Array, ""]
    passes: Int[Array, ""]
    dirty: Bool[Array, ""]
    done: Bool[Array, ""]


@dataclass(kw_only=True)
class _Tally:
    """What is counted; ``g``: conductance of each cell, ``g_left``: when it was last selected."""

    pulses: Int[Array, "rows cols"]
    g: Float[Array, "rows cols"]
    g_left: Float[Array, "rows cols"]
    disturb: Float[Array, "rows cols"]
    energy: Float[Array, "rows cols"]
    energy_wires: Float[Array, ""]
    solved: Bool[Array, ""]
    steps: Int[Array, ""]


@functools.partial(jax.jit, static_argnames=("single", "verify"))
def _program(task: Task, state, scheme: Scheme, *, single: bool, verify: str) -> Programmed:
    expected, known = expected_reads(task, state, scheme, verify)
    lines, lanes = _counts(expected, scheme)
    zero = lambda shape: jnp.zeros(shape, expected.dtype)
    none = jnp.zeros((lanes,), bool)
    pulse = _Lanes(
        fired=none,
        a=zero(lanes),
        second=zero(lanes),
        left=zero(lanes),
        y=zero(lanes),
        wanted=zero(lanes),
        peak=zero(()),
    )
    n = jnp.int32(0)
    off = jnp.bool_(False)
    progress = _Progress(line=n, lane=n, passes=n, dirty=off, done=task.limits[2] <= 0)
    g = task.dev.conductance(state)
    tally = _Tally(
        pulses=jnp.zeros(expected.shape, jnp.int32),
        g=g,
        g_left=g,
        disturb=zero(expected.shape),
        energy=zero(expected.shape),
        energy_wires=zero(()),
        solved=known,
        steps=n,
    )
    memory = task.control.start((lanes,), expected.dtype)

    def turn(carry):
        state, pulse, memory, progress, tally = carry
        # An array that is done drives no line, so that its solve has nothing to do while others of a batch go on.
        at = (jnp.arange(lines, dtype=jnp.int32) == progress.line) & ~progress.done
        state, pulse, tally, collected, writing = _one_solve(task, scheme, state, pulse, at, tally, progress.done)
        memory, pulse, progress, tally = _decide(
            task, scheme, single, expected, collected, ~writing, at, memory, pulse, progress, tally
        )
        return state, pulse, memory, progress, tally

    carry = lax.while_loop(lambda c: _any(~c[3].done), turn, (state, pulse, memory, progress, tally))
    state, *_, tally = carry
    reads, solved = read_array(task, state, scheme)
    error = reads / expected - 1.0
    solved = solved & tally.solved
    return Programmed(
        state=state,
        conductance=task.dev.conductance(state),
        pulses=tally.pulses,
        converged=task.mask & (jnp.abs(error) <= task.limits[0]) & solved,
        error=error,
        disturb=tally.disturb,
        energy=tally.energy,
        energy_wires=tally.energy_wires,
        solved=solved,
        steps=tally.steps,
    )


# A loop of many arrays turns until all are done. Told so here, vmap does not choose between old and new of all that is
# carried; an array that is done has no pulse any more and changes nothing by itself.
@jax.custom_batching.custom_vmap
def _any(x: Bool[Array, ""]) -> Bool[Array, ""]:
    return x


@_any.def_vmap
def _(axis_size, in_batched, x):
    return _any(x.any(0)), False


def _counts(cells: Array, scheme: Scheme) -> tuple[int, int]:
    """(lines, lanes)."""
    rows, cols = cells.shape
    return (rows, cols) if scheme.across else (cols, rows)


def _cells(scheme: Scheme, at: Array, lanes: Array) -> Array:
    """The cells of a line whose lanes are chosen, bool [rows, cols]."""
    return at[:, None] & lanes[None, :] if scheme.across else lanes[:, None] & at[None, :]


def read_array(task: Task, state: Any, scheme: Scheme) -> tuple[Array, Array]:
    """All cells read line by line, [rows, cols] S, and whether every solve converged."""
    lines, _ = _counts(state.x, scheme)
    one = lambda k: read_line(task.dev, state, task.wires, scheme, k, task.v_read)
    g, solved = jax.vmap(one)(jnp.arange(lines, dtype=jnp.int32))
    return (g if scheme.across else g.T), solved.all()


def expected_reads(task: Task, state: Any, scheme: Scheme, verify: str) -> tuple[Array, Array]:
    """What a read of each programmed cell gives once all are at their targets, S, and whether every solve converged."""
    if verify == "row":
        return task.g_target, jnp.bool_(True)
    dev = task.dev
    goal = dev.set_conductance(state, jnp.where(task.mask, task.g_target, dev.conductance(state)))
    reads, solved = read_array(task, goal, scheme)
    # A target that the cell cannot reach stays out of reach; a cell that is open has none of its own.
    reached = dev.conductance(goal)
    ratio = task.g_target / jnp.where(reached == 0, 1.0, reached)
    return jnp.where(task.mask & (reached != 0), reads * ratio, task.g_target), solved


def _one_solve(task: Task, scheme: Scheme, state, pulse: _Lanes, at, tally: _Tally, done):
    """One interval of the pulse of the line ``at``, or its read where no pulse is going on."""
    on = pulse.left > 0
    writing = on.any()
    lanes = on.shape[0]
    write = scheme.write(at, pulse.peak, pulse.a, on)
    left, bottom = (jnp.where(writing, w, r) for w, r in zip(write, scheme.read(at, lanes, task.v_read), strict=True))
    t = jnp.where(writing, jnp.min(pulse.left, where=on, initial=jnp.inf), 0.0)
    key = part(task.key, tally.steps) if task.dev.needs_key else None
    wires = scheme.wires(Wires(r_word=0.0, r_bit=0.0) if task.wires is None else task.wires, at, on, writing)
    state, sol = pulse_with(task.dev, state, tally.g, wires, left=left, bottom=bottom, t=t, key=key)
    g = task.dev.conductance(state)
    heat = sol.v_cell * sol.i_cell
    # A lane whose pulse has ended is half-selected for the rest of the others.
    chosen = _cells(scheme, at, on)
    moved = jnp.where(chosen, 0.0, jnp.abs(g - tally.g_left) / jnp.where(tally.g_left > 0, tally.g_left, 1.0))
    tally = tally.replace(
        g=g,
        g_left=jnp.where(chosen, g, tally.g_left),
        disturb=jnp.maximum(tally.disturb, moved),
        energy=tally.energy + heat * t,
        energy_wires=tally.energy_wires + (sol.power - heat.sum()) * t,
        solved=tally.solved & sol.converged,
        steps=tally.steps + (~done).astype(jnp.int32),
    )
    pulse = pulse.replace(left=jnp.where(pulse.left <= t, 0.0, pulse.left - t))
    return state, pulse, tally, scheme.collected(sol) / task.v_read, writing


def _decide(
    task, scheme, single, expected, collected, reading, at, memory, pulse: _Lanes, progress: _Progress, tally: _Tally
):
    """After a read: what it teaches, and the next pulse, line or pass. After an interval of a pulse: nothing."""
    tolerance, max_pulses, max_passes = task.limits
    line_of = lambda x: lax.dynamic_index_in_dim(x, progress.line, scheme.axis(), keepdims=False)
    goal, count, mine = line_of(expected), line_of(tally.pulses), line_of(task.mask)
    lanes, lines = goal.shape[0], at.shape[0]
    g = jnp.where(reading, collected, goal)
    y = log_read(g, goal)
    learnt = task.control.learn(memory, pulse.fired & reading, jnp.abs(pulse.a), pulse.second, pulse.y, y, pulse.wanted)
    wanted = jnp.log(goal) - y
    need = reading & ~progress.done & mine & (jnp.abs(g - goal) > tolerance * goal) & (count < max_pulses)
    index = jnp.arange(lanes, dtype=jnp.int32)
    lane = progress.lane
    if single:
        lane = jnp.min(index, where=need & (index >= lane), initial=lanes)
        learnt = task.control.renew(learnt, reading & (lane != progress.lane))
    volt, second = task.control.pulse(learnt, y, wanted)
    if single:
        chosen = index == lane
    else:
        chosen = need & ((wanted > 0) == (need & (wanted > 0)).any())
        # Lanes of like widths only: what is left of a long pulse would see other voltages once the short ones end.
        chosen = chosen & (second <= _ALIKE * jnp.min(second, where=chosen, initial=jnp.inf))
    fire = chosen.any()
    a = jnp.where(chosen, jnp.sign(wanted) * task.dev.polarity * volt, 0.0)
    second = jnp.where(chosen, second, 0.0)
    size = jnp.abs(a).max()
    peak = jnp.where(size == a.max(), size, -size)
    fresh = _Lanes(fired=chosen, a=a, second=second, left=second, y=y, wanted=wanted, peak=peak)
    pulse = jax.tree.map(lambda new, old: jnp.where(reading, new, old), fresh, pulse)
    onward = reading & ~fire & ~progress.done
    last = onward & (progress.line == lines - 1)
    dirty = progress.dirty | fire
    passes = progress.passes + last.astype(jnp.int32)
    memory = jax.tree.map(lambda new, old: jnp.where(reading, new, old), learnt, memory)
    memory = task.control.renew(memory, jnp.broadcast_to(onward, (lanes,)))
    progress = _Progress(
        line=jnp.where(last, 0, progress.line + onward.astype(jnp.int32)).astype(jnp.int32),
        lane=jnp.where(onward, 0, jnp.where(reading, lane, progress.lane)).astype(jnp.int32),
        passes=passes,
        dirty=dirty & ~last,
        done=progress.done | (last & (~dirty | (passes >= max_passes))),
    )
    counted = _cells(scheme, at, chosen)
    return memory, pulse, progress, tally.replace(pulses=tally.pulses + counted.astype(jnp.int32))
