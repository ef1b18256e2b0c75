"""Everything that needs a GPU, in one run: ``python benchmarks/gpu.py [--small] [--only PART]``.

Says what is there, checks every CUDA kernel against its JAX body and the CPU kernel on fresh random inputs at several
sizes, times both, and prints for each the bytes moved, the operations done and the fraction of the bound reached.
Exits with 1 where something disagrees. ``--small`` leaves out the largest sizes. On a machine without a GPU it runs the
same checks on the CPU library, so that the script itself is known to work.

Parts: ``updates``; ``circuits``, exact wires in float32, one array and 64, against the CPU in float64; ``dynamics``, the
motion of every dynamic device, with the time of a cell at 1M and 16M cells and that of a pulse on 1M JART cells;
``programming``, a passive array of 32x32 cells and 64 of them under vmap, read again by the sparse solve of
benchmarks/program.py.

``--build`` first installs the package with its CUDA library into this Python (``pip install . -C
cmake.define.XBAR_CUDA=ON``; jax itself with CUDA, ``pip install 'jax[cuda13]'``, is for you to choose).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import program as passive
from rich.console import Console
from rich.table import Table
from timing import median_ms

import xbar_jax as xb
from xbar_jax import native
from xbar_jax.devices import flow, kernels

D = xb.devices
DEVICES = {
    "ConstantStep": D.ConstantStep(),
    "SoftBounds": D.SoftBounds(),
    "ExpStep": D.ExpStep(),
    "PowStep": D.PowStep(gamma_up=2.0, gamma_down=2.0),
    "PiecewiseStep, 60 nodes": D.PiecewiseStep(nodes_up=(1.0, 0.5) * 30, nodes_down=(0.5, 1.0) * 30),
    "OneSided": D.OneSided(device=D.SoftBounds(w_min=0.0, w_max=1.2)),
}
PARTS = ("updates", "circuits", "dynamics", "programming")
BATCH = 8
# rows, cols, arrays under vmap
SIZES = [(1, 1, 1), (33, 257, 1), (256, 256, 1), (4096, 4096, 1), (256, 256, 512)]
# rows = cols, arrays under vmap
CIRCUITS = [(64, 1), (64, 64), (128, 1), (128, 64), (256, 1), (256, 64)]
# Largest error of float32 output currents on these arrays, relative to the largest current.
CIRCUIT_ERROR = 2e-5

# Device, the largest voltage, and a time in which cells move far.
DYNAMICS = {
    "VTEAM": (D.VTEAM(), 1.5, 1e-8),
    "VTEAM, Biolek": (D.VTEAM(window="biolek", p=2.5), 1.5, 1e-8),
    "VTEAM, TEAM": (D.VTEAM(window="team"), 1.5, 1e-8),
    "LinearIonDrift, Joglekar": (D.LinearIonDrift(window="joglekar"), 1.5, 0.1),
    "Yakopcic": (D.Yakopcic(), 1.5, 1e-4),
    "YakopcicGeneral": (D.YakopcicGeneral(), 1.5, 1e-2),
    "StanfordPKU": (D.StanfordPKU(), 2.0, 1e-8),
    "DataDriven": (D.DataDriven(), 1.5, 0.1),
    "DataDriven2021": (D.DataDriven2021(), 1.5, 1e-3),
    "JARTv1b": (D.JARTv1b(), 0.8, 1e-6),
    "JARTv1b, explicit": (D.JARTv1b(law="explicit"), 0.8, 1e-6),
    "JARTv1b, spread": (D.JARTv1b.with_spread(), 0.8, 1e-6),
}
# rows, cols: compared with the JAX body; timed alone.
COMPARED, TIMED = [(33, 257), (1024, 1024)], [(4096, 4096)]
# Largest difference of a displacement, of itself (the rate of JART is the exponential of some 30 times what is rounded)
# and of the range; and the share of cells whose rounding may tell another end.
MOTION_ERROR, JART_ERROR, OF_RANGE, OTHER_ENDS = 2e-5, 3e-4, 1e-5, 0.03
# V and s of the pulse on a million JART cells.
PULSES, PULSE = (-0.342, 0.7065), 1e-6
PASSIVE, ARRAYS = 32, 64

# Integer and floating-point operations of the arithmetic in custom_calls/include/xbar: 20 rounds of threefry and its key
# schedule; the logarithm, root and sine and cosine of a pair; one bounded step.
THREEFRY, PAIR, STEP = 80, 60, 10


def fresh(seed: int, rows: int, cols: int, arrays: int):
    k = jax.random.split(jax.random.key(seed), 3)
    x = jax.random.uniform(k[0], (arrays, BATCH, rows), minval=-1.0)
    d = 0.1 * jax.random.normal(k[1], (arrays, BATCH, cols))
    return x, d, jax.random.split(k[2], arrays)


def problem(dev, rows, cols, arrays, seed):
    """A jitted update that keeps to one array where there is one, and its operands."""
    x, d, keys = fresh(seed, rows, cols, arrays)
    init = lambda key: dev.init((rows, cols), key=key)
    update = lambda s, x, d, key: xb.pulsed_update(dev, s, x, d, lr=0.1, key=key)
    if arrays == 1:
        return jax.jit(update), (init(keys[0]), x[0], d[0], keys[0])
    return jax.jit(jax.vmap(update)), (jax.vmap(init)(keys), x, d, keys)


def compare(a, b) -> tuple[bool, float]:
    """Pulse counts equal bit for bit, and the largest difference of a number."""
    pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    exact = all(bool(jnp.array_equal(x, y)) for x, y in pairs if jnp.issubdtype(x.dtype, jnp.integer))
    worst = max([0.0, *(float(jnp.abs(x - y).max()) for x, y in pairs if jnp.issubdtype(x.dtype, jnp.floating))])
    return exact, worst


def bandwidth(small: bool) -> float:
    """Bytes a second of a copy, measured."""
    n = 2 ** (22 if small else 28)
    a = jnp.zeros(n, jnp.float32)
    f = jax.jit(lambda a: a + 1)
    return 8e3 * n / median_ms(lambda: jax.block_until_ready(f(a)), 0.5)


def rate(small: bool) -> float:
    """32-bit operations a second, measured on threefry alone: rounds of it on numbers that stay in registers."""
    n, repeats = 2 ** (16 if small else 22), 64

    @jax.jit
    def f(a):
        def again(_, ab):
            return xb.random.threefry((jnp.uint32(1), jnp.uint32(2)), *ab)

        return jax.lax.fori_loop(0, repeats, again, (a, a))[0]

    a = jnp.arange(n, dtype=jnp.uint32)
    return 1e3 * THREEFRY * n * repeats / median_ms(lambda: jax.block_until_ready(f(a)), 0.5)


def cost(state, pulses: int, cells: int, rows: int, cols: int, arrays: int) -> tuple[float, float]:
    """Bytes and operations that one update cannot do without."""
    read = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    trains = arrays * BATCH * (rows + cols)
    written = 8 * cells
    operations = THREEFRY * 16 * trains + pulses * (THREEFRY / 2 + PAIR / 2 + STEP) + 6 * cells * BATCH
    return float(read + written + 12 * trains), float(operations)


def other_kernels(cpu) -> list[str]:
    """Given counts, trains of several words, one sign alone and the counted variants; and the CPU on the same trains."""
    dev = DEVICES["ExpStep"]
    rows, cols = 65, 130
    x, d, keys = fresh(11, rows, cols, 1)
    x, d, key = x[0], d[0], keys[0]
    state = dev.init((rows, cols), key=key)
    n = jax.random.randint(key, (rows, cols), -70, 70)
    k, origin = jax.random.bits(key, (BATCH, 2), jnp.uint32), jnp.array([5, 7], jnp.uint32)
    # A train's sign is the same in each of its words.
    signed = lambda bits: (bits & jnp.uint32(0x11111111)) | (bits[:, :1] & jnp.uint32(1 << 31))
    trains = [signed(jax.random.bits(key, (BATCH, 3, m), jnp.uint32)) for m in (rows, cols)]
    cases = {
        "pulses by counts": lambda: dev.pulse(state, n, key=key),
        "trains of 3 words, down alone": lambda: kernels.coincidences(
            state.w, *trains, k, origin, *dev.parameters(state), device=type(dev), only=-1
        ),
        "train words": lambda: kernels.trains(
            jnp.round(x * kernels.ONE).astype(jnp.int32), jnp.full(BATCH, 70, jnp.int32), k, jnp.uint32(3), _words=3
        ),
        "mean_count": lambda: xb.pulsed_update(dev, state, x, d, lr=0.1, key=key, pulses="mean_count"),
        "deterministic": lambda: xb.pulsed_update(dev, state, x, d, lr=-0.1, key=key, pulses="deterministic"),
    }
    lines = []
    for name, f in cases.items():
        fast = jax.jit(f)()
        with native.disabled():
            body = jax.jit(f)()
        exact, worst = compare(fast, body)
        lines.append(f"{name}: {'equal' if exact and worst < 5e-6 else 'differ'}, largest difference {worst:.0e}")
    operands = (state.w, *trains, k, origin, *dev.parameters(state))
    call = jax.jit(lambda *xs: kernels.coincidences(*xs, device=type(dev)))
    exact, worst = compare(jax.device_get(call(*operands)), jax.device_get(call(*jax.device_put(operands, cpu))))
    lines.append(f"this device against the CPU kernel: {'equal' if exact and worst < 1e-6 else 'differ'}, {worst:.0e}")
    return lines


def install() -> int:
    """Installs the package with its CUDA library, then runs this script again, with what was installed."""
    root = Path(__file__).parents[1]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", str(root), "-C", "cmake.define.XBAR_CUDA=ON"]
    subprocess.run(pip, check=True)
    rest = [a for a in sys.argv[1:] if a != "--build"]
    return subprocess.run([sys.executable, __file__, *rest], check=False).returncode


def present(console: Console, gpu: bool) -> str | None:
    """Says what is there; returns why nothing can be measured, or None."""
    console.print(f"jax {jax.__version__} on {jax.default_backend()}: {jax.devices()[0].device_kind}")
    if gpu:
        query = "name,driver_version,memory.total,clocks.max.sm"
        seen = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv"], capture_output=True, text=True)
        console.print(seen.stdout.strip())
    for library in native.libraries():
        console.print(f"library {library.name}: {library.reason or library.detail}")
    wanted = native.libraries()[1 if gpu else 0]
    return f"the {wanted.name} library is needed here" if wanted.reason else None


def timed(f, operands, budget: float = 0.5):
    """Results and milliseconds of the custom call and of the JAX body."""
    call = lambda: jax.block_until_ready(f(*operands))
    fast, ms = call(), median_ms(call, budget)
    with native.disabled():
        return fast, ms, call(), median_ms(call, budget)


def updates(console: Console, small: bool, gpu: bool) -> tuple[list[dict], list[str]]:
    """Pulsed updates of every device and size: the records, and what failed."""
    copy, arithmetic = bandwidth(small), rate(small)
    console.print(f"measured: {copy / 1e9:.0f} GB/s copied, {arithmetic / 1e12:.2f} T operations/s of threefry")
    records, failed = [], []
    for name, dev in DEVICES.items():
        for seed, (rows, cols, arrays) in enumerate(SIZES):
            if small and rows * cols * arrays > 256 * 256:
                continue
            with console.status(f"{name} {rows}x{cols} x {arrays}"):
                f, operands = problem(dev, rows, cols, arrays, seed)
                assert ("xbar_coincidences" in f.lower(*operands).as_text()) is True
                fast, ms, body, body_ms = timed(f, operands)
                exact, worst = compare(fast, body)
            moved = np.abs(np.asarray(dev.weight(fast)) - np.asarray(dev.weight(operands[0]))).max()
            pulses = sum(int(x.sum()) for x in jax.tree.leaves(fast) if x.dtype == jnp.int32)
            moved_bytes, operations = cost(operands[0], pulses, rows * cols * arrays, rows, cols, arrays)
            bound = 1e3 * max(moved_bytes / copy, operations / arithmetic)
            if not (exact and worst < 5e-6 and np.isfinite(worst) and moved > 0):
                what = f"{name} {rows}x{cols} x {arrays}"
                failed.append(f"{what}: counts {exact}, difference {worst:.1e}, moved {moved:.1e}")
            records.append(
                dict(device=name, rows=rows, cols=cols, arrays=arrays, pulses=pulses, exact=exact, difference=worst, ms=ms,
                     body_ms=body_ms, bytes=moved_bytes, operations=operations, of_bound=bound / ms)
            )  # fmt: skip
    console.print(update_table(records, gpu))
    return records, failed


def update_table(records: list[dict], gpu: bool) -> Table:
    table = Table(
        "device", "array", "arrays", "pulses, M", "counts", "largest difference", "custom call, ms", "JAX body, ms", "faster by",
        "MB", "M operations", "of the bound", title="pulsed update, batch 8",
    )  # fmt: skip
    for x in records:
        table.add_row(
            x["device"], f"{x['rows']}x{x['cols']}", f"{x['arrays']}", f"{x['pulses'] / 1e6:.2f}",
            "equal" if x["exact"] else "[red]differ", f"{x['difference']:.0e}", f"{x['ms']:.3f}", f"{x['body_ms']:.3f}",
            f"{x['body_ms'] / x['ms']:.1f}x", f"{x['bytes'] / 1e6:.2f}", f"{x['operations'] / 1e6:.1f}",
            f"{x['of_bound']:.0%}" if gpu else "",
        )  # fmt: skip
    return table


def circuit(n: int, arrays: int):
    """Cells of 1k-100k ohm [arrays, n, n], one input [n] and wires of 1 ohm, float32."""
    k = jax.random.split(jax.random.key(n), 2)
    g = 10 ** jax.random.uniform(k[0], (arrays, n, n), minval=-5.0, maxval=-3.0)
    return g, jax.random.uniform(k[1], (n,)), xb.Wires(r_word=1.0, r_bit=1.0)


def circuit_problem(what: str, n: int, arrays: int):
    """A jitted solve of every array, or its effective conductance, with the operands, and the custom call it should hold."""
    g, v, wires = circuit(n, arrays)
    if what == "solve":
        return (
            jax.jit(jax.vmap(lambda g, v: xb.solve(g, wires, left=v), in_axes=(0, None))),
            (g, v),
            "xbar_cell_currents",
        )
    read = lambda g, v: v @ xb.effective_conductance(g, wires)
    return jax.jit(jax.vmap(read, in_axes=(0, None))), (g, v), "xbar_effective"


def on_cpu_in_double(g, v, wires, arrays: int) -> np.ndarray:
    """Output currents of the first few arrays by the CPU, in float64."""
    g, v = np.asarray(g[:arrays]), np.asarray(v)
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        solve = lambda g: xb.solve(g, wires, left=jnp.asarray(v, jnp.float64)).i_bottom
        return np.asarray(jax.vmap(solve)(jnp.asarray(g, jnp.float64)))


def circuits(console: Console, small: bool) -> tuple[list[dict], list[str]]:
    """Exact wires in float32 against the CPU in float64: the records, and what failed."""
    table = Table(
        "what", "array", "arrays", "steps", "converged", "error against the CPU", "of the JAX body", "custom call, ms",
        "JAX body, ms", "faster by", title="exact wires, float32, 1k-100k ohm, 1 ohm a segment",
    )  # fmt: skip
    records, failed = [], []
    cases = [("solve", n, arrays) for n, arrays in CIRCUITS] + [("effective_conductance", n, 64) for n in (64, 128)]
    for what, n, arrays in cases:
        if small and n * n * arrays > 64 * 64 * 64:
            continue
        with console.status(f"{what} {n}x{n} x {arrays}"):
            f, operands, call = circuit_problem(what, n, arrays)
            is_native = call in f.lower(*operands).as_text()
            fast, ms, body, body_ms = timed(f, operands)
            reference = on_cpu_in_double(*operands, circuit(n, 1)[2], 4)
        currents = lambda x: np.asarray(x.i_bottom if what == "solve" else x)
        error, body_error = (
            float(np.abs(currents(x)[: len(reference)] - reference).max() / np.abs(reference).max())
            for x in (fast, body)
        )
        record = dict(
            what=what, n=n, arrays=arrays, native=is_native, error=error, body_error=body_error, ms=ms, body_ms=body_ms
        )
        if what == "solve":
            record |= dict(steps=int(fast.steps.max()), converged=bool(fast.converged.all()))
        records.append(record)
        # The effective conductance has no CUDA kernel: its JAX form runs there.
        if what == "solve" and not is_native:
            failed.append(f"{what} {n}x{n}: no custom call {call}")
        if not (error < CIRCUIT_ERROR and np.isfinite(currents(fast)).all() and record.get("converged", True)):
            failed.append(f"{what} {n}x{n} x {arrays}: error {error:.1e}, converged {record.get('converged', '-')}")
        table.add_row(
            what, f"{n}x{n}", f"{arrays}", f"{record.get('steps', '')}", f"{record.get('converged', '')}", f"{error:.0e}",
            f"{body_error:.0e}", f"{ms:.3f}" if is_native else "", f"{body_ms:.3f}",
            f"{body_ms / ms:.1f}x" if is_native else "",
        )  # fmt: skip
    console.print(table)
    return records, failed


def motion_problem(dev, most: float, time: float, rows: int, cols: int, seed: int):
    """A jitted motion of cells over their whole range, at voltages and times of their own, and its operands."""
    k = jax.random.split(jax.random.key(seed), 4)
    state = dev.init((rows, cols), key=k[0])
    low, high = dev.of(state).bounds()
    x = low + (high - low) * jax.random.uniform(k[1], (rows, cols), minval=0.02, maxval=0.98)
    v = jax.random.uniform(k[2], (rows, cols), minval=-most, maxval=most)
    t = time * 10 ** jax.random.uniform(k[3], (rows, cols), minval=-2.0, maxval=2.0)
    t = t.at[:, ::11].set(0.0)
    f = jax.jit(lambda state, v, t: flow.displacement(dev.of(state), state.x, v, t))
    return f, (state.replace(x=x.astype(jnp.float32)), v, t), jnp.max(high - low)


def compare_motions(fast, body, reach, own: float) -> tuple[float, float]:
    """The largest difference of a displacement, 1 is what is allowed; the share of cells that end otherwise."""
    over = jnp.abs(fast.d - body.d) / (own * jnp.abs(body.d) + OF_RANGE * reach)
    # Where a state comes to rest at a bound, rounding decides whether it is told to have settled before it.
    rests = lambda m: (m.end == flow.BOUND) | (m.end == flow.SETTLED)
    unlike = (fast.end != body.end) & ~(rests(fast) & rests(body))
    return float(over.max()), float(unlike.mean())


def dynamics(console: Console, small: bool) -> tuple[list[dict], list[str]]:
    """Motions of every device, against the JAX body and timed: the records, and what failed."""
    table = Table(
        "device", "cells", "panels a cell", "difference, of what is allowed", "other ends", "custom call, ns a cell",
        "JAX body, ns a cell", "faster by", title="motion of dynamic cells, voltages and times of their own",
    )  # fmt: skip
    records, failed = [], []
    for name, (dev, most, time) in DYNAMICS.items():
        for seed, (rows, cols) in enumerate(COMPARED + TIMED):
            cells = rows * cols
            if small and cells > 256 * 256:
                continue
            with console.status(f"{name} {rows}x{cols}"):
                f, operands, reach = motion_problem(dev, most, time, rows, cols, seed)
                is_native = "xbar_evolve" in f.lower(*operands).as_text()
                call = lambda f=f, operands=operands: jax.block_until_ready(f(*operands))
                fast, each = call(), 1e6 / cells
                record = dict(
                    device=name, cells=cells, native=is_native, panels=float(fast.panels.mean()),
                    moved=float((fast.d != 0).mean()), finite=bool(jnp.isfinite(fast.d).all()),
                )  # fmt: skip
                if (rows, cols) in COMPARED:
                    fast, ms, body, body_ms = timed(f, operands)
                    error = JART_ERROR if name.startswith("JART") else MOTION_ERROR
                    difference, ends = compare_motions(fast, body, reach, error)
                    record |= dict(difference=difference, other_ends=ends, body_ns=body_ms * each)
                else:
                    ms = median_ms(call, 0.5)
                record["ns"] = ms * each
            fine = is_native and record["finite"] and record["moved"] > 0.1
            if not (fine and record.get("difference", 0) <= 1 and record.get("other_ends", 0) <= OTHER_ENDS):
                failed.append(f"{name}, {cells} cells: {record}")
            records.append(record)
            body_ns = record.get("body_ns")
            table.add_row(
                name, f"{cells}", f"{record['panels']:.2f}",
                *(["", ""] if body_ns is None else [f"{record['difference']:.2f}", f"{record['other_ends']:.2%}"]),
                f"{record['ns']:.3f}", *(["", ""] if body_ns is None else [f"{body_ns:.2f}", f"{body_ns / record['ns']:.1f}x"]),
            )  # fmt: skip
    console.print(table)
    more, missed = jart_pulses(console, small)
    return records + more, failed + missed


def jart_pulses(console: Console, small: bool) -> tuple[list[dict], list[str]]:
    """One pulse of 1 us on a million JART cells: with spread, nominal, and nominal by a table."""
    n = 64 if small else 1024
    table = Table("cells", "pulse", "ms", title=f"JARTv1b, {n}x{n} cells, one pulse of 1 us")
    kinds = {
        "spread of every cell": D.JARTv1b.with_spread(),
        "nominal": D.JARTv1b(),
        "nominal, by a table": D.tabulate(D.JARTv1b(), list(PULSES)),
    }
    records, failed = [], []
    for kind, dev in kinds.items():
        key = jax.random.key(5)
        state = dev.init((n, n), key=key)
        low, high = dev.of(state).bounds()
        x = low + (high - low) * jax.random.uniform(key, (n, n), minval=0.05, maxval=0.95)
        state = state.replace(x=x.astype(jnp.float32))
        for v in PULSES:
            with console.status(f"{kind}, {v} V"):
                f = jax.jit(lambda state, dev=dev, v=v: dev.evolve(state, v, PULSE))
                after = jax.block_until_ready(f(state))
                ms = median_ms(lambda f=f, state=state: jax.block_until_ready(f(state)), 0.5)
            # A negative voltage raises the state.
            if not bool(
                jnp.isfinite(after.x).all() & ((after.x - state.x) * -v >= 0).all() & (after.x != state.x).any()
            ):
                failed.append(f"JARTv1b, {kind}, {v} V: states move the wrong way, or not at all")
            records.append(dict(device="JARTv1b, one pulse", kind=kind, cells=n * n, v=v, ms=ms))
            table.add_row(kind, f"{v} V", f"{ms:.3f}")
    console.print(table)
    return records, failed


def programming(console: Console, small: bool) -> tuple[list[dict], list[str]]:
    """Passive arrays through their wires, one and many under vmap: the records, and what failed."""
    n, arrays = (8, 2) if small else (PASSIVE, ARRAYS)
    table = Table(
        "schedule", "arrays", "s", "of one", "solves", "converged", "of these within 2 % when read again",
        title=f"passive array, {n}x{n} VTEAM cells, V/2, wires of 5 ohm a segment",
    )  # fmt: skip
    records, failed = [], []
    for schedule in ("cell", "row"):
        g = passive.targets(n, arrays)
        one = passive.program(schedule)
        with console.status(f"{schedule}, one"):
            single, _ = passive.best(one, g[0], times=2)
        with console.status(f"{schedule}, {arrays}"):
            seconds, out = passive.best(jax.jit(jax.vmap(one)), g, times=1)
        converged = np.asarray(out.converged)
        # The first few arrays by a solver of its own.
        errors = [passive.reread(jax.tree.map(lambda y, k=k: y[k], out.state), g[k])[converged[k]] for k in range(2)]
        within = float((np.abs(np.concatenate(errors)) <= passive.TOLERANCE * 1.0005).mean())
        record = dict(
            schedule=schedule, n=n, arrays=arrays, seconds=seconds, seconds_of_one=single,
            solves=int(out.steps.max()), converged=float(converged.mean()), reread_within=within,
        )  # fmt: skip
        records.append(record)
        if record["converged"] < 0.99 or within < 1:
            failed.append(f"{schedule}: converged {record['converged']:.2%}, of these within 2 % {within:.2%}")
        table.add_row(
            schedule, f"{arrays}", f"{seconds:.3f}", f"{single:.3f}", f"{record['solves']}",
            f"{record['converged']:.2%}", f"{within:.2%}",
        )  # fmt: skip
    console.print(table)
    return records, failed


def noisy_read() -> tuple[str, bool]:
    """A read with noise against its JAX body."""
    g = jax.random.uniform(jax.random.key(9), (257, 1000), minval=1e-6, maxval=1e-4)
    v, key = jnp.linspace(-0.2, 0.2, 257), jnp.array([3, 4], jnp.uint32)
    read = jax.jit(lambda: kernels.noisy_read(g, v, jnp.full((1, 1), 2e-6), key, jnp.zeros(2, jnp.uint32))[0])
    a = np.asarray(read())
    with native.disabled():
        b = np.asarray(read())
    error = np.abs(a - b).max() / np.abs(b).max()
    return f"noisy read 257x1000: largest relative difference {error:.0e}", bool(error < 1e-5)


def seen_between() -> tuple[str, bool]:
    """The state seen from Python: update, read, update again, against the body."""
    dev = DEVICES["SoftBounds"]
    f, (state, x, d, k) = problem(dev, 64, 64, 1, 7)

    def twice():
        first = f(state, x, d, k)
        seen = np.asarray(dev.weight(first))  # read in Python between the two
        return seen, f(jax.tree.map(jnp.asarray, first), x, d, jax.random.fold_in(k, 1))

    fast = twice()
    with native.disabled():
        body = twice()
    exact, worst = compare(jax.tree.map(jnp.asarray, fast), jax.tree.map(jnp.asarray, body))
    line = f"update, read in Python, update again: counts {'equal' if exact else 'differ'}, difference {worst:.0e}"
    return line, exact and worst < 5e-6 and bool(np.abs(fast[0]).max() > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="arrays of up to 256x256 cells in all only")
    parser.add_argument("--build", action="store_true", help="install with the CUDA library before anything else")
    parser.add_argument("--only", choices=PARTS, help="one part of it")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    if args.build:
        return install()
    console = Console(width=150)
    gpu = jax.default_backend() == "gpu"
    if missing := present(console, gpu):
        console.print(f"[red]{missing}")
        return 1
    found: dict[str, list[dict]] = {}
    failed: list[str] = []
    with jax.default_matmul_precision("highest"):
        parts = {
            "updates": lambda: updates(console, args.small, gpu),
            "circuits": lambda: circuits(console, args.small),
            "dynamics": lambda: dynamics(console, args.small),
            "programming": lambda: programming(console, args.small),
        }
        for part in PARTS if args.only is None else [args.only]:
            found[part], missed = parts[part]()
            failed += missed
    if args.only in (None, "updates"):
        lines = [(x, ": differ," not in x) for x in other_kernels(jax.devices("cpu")[0])]
        for line, fine in [*lines, noisy_read(), seen_between()]:
            console.print(line)
            failed += [] if fine else [line]
    args.out.write_text(json.dumps(found, indent=1))
    for line in failed:
        console.print(f"[red]failed: {line}")
    console.print("everything agrees" if not failed else f"[red]{len(failed)} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
