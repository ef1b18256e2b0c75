"""Everything that needs a GPU, in one run: ``python benchmarks/gpu.py [--small] [--only updates|circuits]``.

Says what is there, checks every CUDA kernel against its JAX body and the CPU kernel on fresh random inputs at several
sizes, times both, and prints for each the bytes moved, the operations done and the fraction of the bound reached.
Exits with 1 where something disagrees. ``--small`` leaves out the largest sizes. On a machine without a GPU it runs the
same checks on the CPU library, so that the script itself is known to work.

Circuits: exact wires in float32, one array and 64, against the CPU in float64.

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
from rich.console import Console
from rich.table import Table
from timing import median_ms

import xbar_jax as xb
from xbar_jax import native
from xbar_jax.devices import kernels

D = xb.devices
DEVICES = {
    "ConstantStep": D.ConstantStep(),
    "SoftBounds": D.SoftBounds(),
    "ExpStep": D.ExpStep(),
    "PowStep": D.PowStep(gamma_up=2.0, gamma_down=2.0),
    "PiecewiseStep, 60 nodes": D.PiecewiseStep(nodes_up=(1.0, 0.5) * 30, nodes_down=(0.5, 1.0) * 30),
    "OneSided": D.OneSided(device=D.SoftBounds(w_min=0.0, w_max=1.2)),
}
BATCH = 8
# rows, cols, arrays under vmap
SIZES = [(1, 1, 1), (33, 257, 1), (256, 256, 1), (4096, 4096, 1), (256, 256, 512)]
# rows = cols, arrays under vmap
CIRCUITS = [(64, 1), (64, 64), (128, 1), (128, 64), (256, 1), (256, 64)]
# Largest error of float32 output currents on these arrays, relative to the largest current.
CIRCUIT_ERROR = 2e-5

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
    parser.add_argument("--only", choices=("updates", "circuits"), help="one half of it")
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
        if args.only != "circuits":
            found["updates"], failed = updates(console, args.small, gpu)
        if args.only != "updates":
            found["circuits"], missed = circuits(console, args.small)
            failed += missed
    if args.only != "circuits":
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
