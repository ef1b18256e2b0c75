"""Everything that needs a GPU, in one run: ``python benchmarks/gpu.py [--small]``.

Says what is there, checks every CUDA kernel against its JAX body and the CPU kernel on fresh random inputs at several
sizes, times both, and prints for each the bytes moved, the operations done and the fraction of the bound reached.
Exits with 1 where something disagrees. ``--small`` leaves out the largest sizes. On a machine without a GPU it runs the
same checks on the CPU library, so that the script itself is known to work.

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
from xbar_jax.devices import pulses as kernels

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="arrays of up to 256x256 only")
    parser.add_argument("--build", action="store_true", help="install with the CUDA library before anything else")
    args = parser.parse_args()
    console = Console(width=150)
    if args.build:
        root = Path(__file__).parents[1]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", str(root), "-C", "cmake.define.XBAR_CUDA=ON"]
        subprocess.run(pip, check=True)
        rest = [a for a in sys.argv[1:] if a != "--build"]
        return subprocess.run([sys.executable, __file__, *rest], check=False).returncode  # with what was just installed
    platform = jax.default_backend()
    gpu = platform == "gpu"
    console.print(f"jax {jax.__version__} on {platform}: {jax.devices()[0].device_kind}")
    if gpu:
        query = "name,driver_version,memory.total,clocks.max.sm"
        seen = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv"], capture_output=True, text=True)
        console.print(seen.stdout.strip())
    for library in native.libraries():
        console.print(f"library {library.name}: {library.reason or library.detail}")
    wanted = native.libraries()[1 if gpu else 0]
    if wanted.reason:
        console.print(f"[red]the {wanted.name} library is needed here")
        return 1
    cpu = jax.devices("cpu")[0]

    sizes = [s for s in SIZES if not args.small or s[0] * s[1] * s[2] <= 256 * 256]
    copy, arithmetic = bandwidth(args.small), rate(args.small)
    console.print(f"measured: {copy / 1e9:.0f} GB/s copied, {arithmetic / 1e12:.2f} T operations/s of threefry")
    table = Table(
        "device", "array", "arrays", "pulses, M", "counts", "largest difference", "custom call, ms", "JAX body, ms", "faster by",
        "MB", "M operations", "of the bound", title="pulsed update, batch 8",
    )  # fmt: skip
    failed, rows_out = [], []
    with jax.default_matmul_precision("highest"):
        for name, dev in DEVICES.items():
            for seed, (rows, cols, arrays) in enumerate(sizes):
                with console.status(f"{name} {rows}x{cols} x {arrays}"):
                    f, operands = problem(dev, rows, cols, arrays, seed)
                    assert ("xbar_coincidences" in f.lower(*operands).as_text()) is True
                    fast = jax.block_until_ready(f(*operands))
                    ms = median_ms(lambda: jax.block_until_ready(f(*operands)), 0.5)
                    with native.disabled():
                        body = jax.block_until_ready(f(*operands))
                        body_ms = median_ms(lambda: jax.block_until_ready(f(*operands)), 0.5)
                    exact, worst = compare(fast, body)
                moved = np.abs(np.asarray(dev.weight(fast)) - np.asarray(dev.weight(operands[0]))).max()
                ok = exact and worst < 5e-6 and np.isfinite(worst) and moved > 0
                pulses = sum(int(x.sum()) for x in jax.tree.leaves(fast) if x.dtype == jnp.int32)
                moved_bytes, operations = cost(operands[0], pulses, rows * cols * arrays, rows, cols, arrays)
                bound = 1e3 * max(moved_bytes / copy, operations / arithmetic)
                if not ok:
                    failed.append(
                        f"{name} {rows}x{cols} x {arrays}: counts {exact}, difference {worst:.1e}, moved {moved:.1e}"
                    )
                rows_out.append(
                    dict(device=name, rows=rows, cols=cols, arrays=arrays, pulses=pulses, exact=exact, difference=worst, ms=ms,
                         body_ms=body_ms, bytes=moved_bytes, operations=operations, of_bound=bound / ms)
                )  # fmt: skip
                table.add_row(
                    name, f"{rows}x{cols}", f"{arrays}", f"{pulses / 1e6:.2f}", "equal" if exact else "[red]differ",
                    f"{worst:.0e}", f"{ms:.3f}", f"{body_ms:.3f}", f"{body_ms / ms:.1f}x", f"{moved_bytes / 1e6:.2f}",
                    f"{operations / 1e6:.1f}", f"{bound / ms:.0%}" if gpu else "",
                )  # fmt: skip
    console.print(table)

    for line in other_kernels(cpu):
        console.print(line)
        if ": differ," in line:
            failed.append(line)

    # Reads, and the state seen from Python: update, read, update again, against the body.
    g = jax.random.uniform(jax.random.key(9), (257, 1000), minval=1e-6, maxval=1e-4)
    v, key = jnp.linspace(-0.2, 0.2, 257), jnp.array([3, 4], jnp.uint32)
    read = jax.jit(lambda: kernels.noisy_read(g, v, jnp.full((1, 1), 2e-6), key, jnp.zeros(2, jnp.uint32))[0])
    a = np.asarray(read())
    with native.disabled():
        b = np.asarray(read())
    error = np.abs(a - b).max() / np.abs(b).max()
    console.print(f"noisy read 257x1000: largest relative difference {error:.0e}")
    if not error < 1e-5:
        failed.append(f"noisy read differs by {error:.1e}")

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
    console.print(
        f"update, read in Python, update again: counts {'equal' if exact else 'differ'}, difference {worst:.0e}"
    )
    if not (exact and worst < 5e-6 and np.abs(fast[0]).max() > 0):
        failed.append("the state read in Python is not the state on the device")

    Path(__file__).with_suffix(".json").write_text(json.dumps(rows_out, indent=1))
    for line in failed:
        console.print(f"[red]failed: {line}")
    console.print("everything agrees" if not failed else f"[red]{len(failed)} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
