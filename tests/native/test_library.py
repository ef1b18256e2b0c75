"""Loading, the ABI check, the environment, failures, threads, shards and the lowering for CUDA."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax import native
from xbar_jax.devices import kernels
from xbar_jax.native import library

pytestmark = pytest.mark.skipif(not library.enabled(), reason="XBAR_NATIVE=0 turns off what is tested here")

DEV = xb.devices.SoftBounds()


def update(key, shape=(8, 24), samples=3, dev=DEV):
    x = jax.random.uniform(key, (samples, shape[0]), minval=-1.0)
    d = 0.1 * jax.random.normal(key, (samples, shape[1]))
    return xb.pulsed_update(dev, dev.init(shape, key=key), x, d, lr=0.1, key=key)


def test_the_cpu_and_standin_libraries_are_installed_and_used():
    assert library.load("cpu").reason is None
    assert library.load("standin").reason is None
    text = jax.jit(update).lower(jax.random.key(0)).as_text()
    assert text.count("xbar_coincidences") == 1 and text.count("xbar_trains") == 2
    with native.disabled():
        assert "xbar_" not in jax.jit(update).lower(jax.random.key(0)).as_text()


def test_disabled_is_part_of_the_cache_key_of_jit():
    f = jax.jit(update)
    f(jax.random.key(0))
    assert "xbar_coincidences" in f.lower(jax.random.key(0)).as_text()
    with native.disabled():
        assert "xbar_coincidences" not in f.lower(jax.random.key(0)).as_text()


def test_one_call_for_a_batch_and_none_of_it_copied():
    keys = jax.random.split(jax.random.key(0), 5)
    x, d = jnp.ones((3, 8)), jnp.ones((3, 24))
    state = DEV.init((8, 24), key=keys[0])
    f = jax.jit(jax.vmap(lambda k: xb.pulsed_update(DEV, state, x, d, lr=0.1, key=k).w))
    text = f.lower(keys).as_text()
    calls = [line for line in text.splitlines() if "@xbar_coincidences" in line]
    assert len(calls) == 1
    # The state is updated in place and so has the batch's size; the parameters of the cells are shared.
    assert "tensor<5x8x24xf32>" in calls[0] and "tensor<1x8x24xf32>" in calls[0]


def test_lowering_for_cuda_is_one_call_with_the_alias():
    if library.load("cuda").reason is not None:
        pytest.skip(f"the CUDA library is {library.load('cuda').reason}")
    k = jnp.zeros((2, 2), jnp.uint32)
    bits = lambda n: jnp.zeros((2, 1, n), jnp.uint32)

    def call(w):
        parameters = [jnp.ones((1, 1))] * 5
        return kernels.coincidences(
            w, bits(4), bits(5), k, jnp.zeros(2, jnp.uint32), *parameters, device=xb.devices.ConstantStep
        )

    text = jax.jit(call).trace(jnp.zeros((4, 5))).lower(lowering_platforms=("cuda",)).as_text()
    (line,) = [line for line in text.splitlines() if "custom_call" in line]
    assert "@xbar_coincidences" in line and "output_operand_alias" in line
    text = jax.jit(update).trace(jax.random.key(0)).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@xbar_coincidences") == 1 and text.count("@xbar_trains") == 2


def test_abi_refusal():
    assert library.refusal((0, 3), (0, 3)) is None
    assert library.refusal((0, 1), (0, 3)) is None
    assert "0.9" in library.refusal((0, 9), (0, 3))
    assert "1.0" in library.refusal((1, 0), (0, 3))
    major, minor = library.running_ffi_version()
    lib = ctypes.CDLL(str(library.load("cpu").path))
    assert (lib.xbar_ffi_major(), lib.xbar_ffi_minor()) <= (major, minor)


def test_a_library_that_is_missing_says_so(tmp_path):
    missing = library.load("cpu", tmp_path / "libxbar_cpu.so")
    assert "not built" in missing.reason
    broken = tmp_path / "libxbar_broken.so"
    broken.write_text("this is not a library")
    assert "cannot be loaded" in library.load("cpu", broken).reason


PROGRAM = """
import json, sys, warnings
import jax, jax.numpy as jnp, numpy as np
import xbar_jax as xb
from xbar_jax.native import library
if {hide}:
    library.PLATFORMS  # as on a machine where nothing was built
    real = library.importlib.resources.files
    import pathlib
    library.importlib.resources.files = lambda package: pathlib.Path("/nonexistent")
dev = xb.devices.SoftBounds()
key = jax.random.key(0)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    x, d = jax.random.uniform(key, (3, 8), minval=-1.0), 0.1 * jax.random.normal(key, (3, 37))
    state = xb.pulsed_update(dev, dev.init((8, 37), key=key), x, d, lr=0.1, key=key)
print(json.dumps(dict(
    w=np.asarray(state.w).tolist(), pulses=np.asarray(state.pulses).tolist(),
    detail=library.load("cpu").detail, reason=library.load("cpu").reason, warnings=[str(w.message) for w in seen],
)))
"""


def in_new_process(hide=False, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("XBAR_")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{hide}", str(hide))],
        env=clean | env | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.long
def test_every_instruction_set_gives_the_same_numbers():
    if library.load("cpu").detail not in ("avx512", "avx2"):
        pytest.skip(f"this processor has one set only, {library.load('cpu').detail}")
    runs = {isa: json.loads(in_new_process(XBAR_ISA=isa).stdout) for isa in ("sse2", "avx2")}
    assert {isa: r["detail"] for isa, r in runs.items()} == {"sse2": "sse2", "avx2": "avx2"}
    here = json.loads(in_new_process().stdout)
    for r in runs.values():
        assert r["w"] == here["w"] and r["pulses"] == here["pulses"]


def test_an_instruction_set_that_does_not_exist_is_an_error():
    failed = in_new_process(XBAR_ISA="avx1024")
    assert failed.returncode != 0 and "XBAR_ISA must be one of" in failed.stderr


def test_turned_off_it_runs_in_jax_without_a_warning():
    off = json.loads(in_new_process(XBAR_NATIVE="0").stdout)
    on = json.loads(in_new_process().stdout)
    assert "XBAR_NATIVE=0" in off["reason"] and off["warnings"] == []
    assert off["pulses"] == on["pulses"]
    np.testing.assert_allclose(off["w"], on["w"], rtol=0, atol=2e-6)


def test_without_a_library_it_warns_once_and_when_required_it_fails():
    r = json.loads(in_new_process(hide=True).stdout)
    assert len(r["warnings"]) == 1 and "not built" in r["warnings"][0]
    failed = in_new_process(hide=True, XBAR_REQUIRE_NATIVE="1")
    assert failed.returncode != 0 and "XBAR_REQUIRE_NATIVE=1" in failed.stderr


def test_a_failed_launch_raises_and_the_state_stays():
    lib = ctypes.CDLL(str(library.load("standin").path))
    state = DEV.init((8, 24), key=jax.random.key(0))
    before = np.asarray(state.w).copy()
    x, d = jnp.ones((2, 8)), jnp.ones((2, 24))
    with native.standin():
        f = jax.jit(lambda s, k: xb.pulsed_update(DEV, s, x, d, lr=0.1, key=k))
        good = f(state, jax.random.key(1))
        assert np.abs(np.asarray(good.w) - before).min() > 0
        lib.xbar_refuse_next_launch()
        with pytest.raises(jax.errors.JaxRuntimeError, match="too many resources requested"):
            jax.block_until_ready(f(state, jax.random.key(1)))
        np.testing.assert_array_equal(np.asarray(state.w), before)
        np.testing.assert_array_equal(f(state, jax.random.key(1)).w, good.w)


def test_a_bad_operand_is_an_error_that_names_it():
    ok = [jnp.zeros((4, 5)), jnp.zeros((2, 1, 4), jnp.uint32), jnp.zeros((2, 1, 5), jnp.uint32), jnp.zeros((2, 2), jnp.uint32),
          jnp.zeros(2, jnp.uint32)]  # fmt: skip
    parameters = [jnp.ones((1, 1))] * 5
    out = (jax.ShapeDtypeStruct((4, 5), jnp.float32), jax.ShapeDtypeStruct((4, 5), jnp.int32))

    def call(*operands, device="constant_step"):
        f = jax.ffi.ffi_call("xbar_coincidences", out)
        return jax.block_until_ready(jax.jit(lambda *xs: f(*xs, device=device, only=0))(*operands))

    call(*ok, *parameters)
    wrong = {
        "row_trains": (1, jnp.zeros((2, 1, 3), jnp.uint32)),
        "col_trains": (2, jnp.zeros((3, 1, 5), jnp.uint32)),
        "keys": (3, jnp.zeros((2, 3), jnp.uint32)),
        "origin": (4, jnp.zeros(2, jnp.int32)),
    }
    for name, (k, value) in wrong.items():
        with pytest.raises(Exception, match=name):
            call(*[value if i == k else x for i, x in enumerate(ok)], *parameters)
    with pytest.raises(Exception, match="parameter 4"):
        call(*ok, *parameters[:4], jnp.ones((3, 1)))
    with pytest.raises(Exception, match="at least 5 parameters"):
        call(*ok, *parameters[:4])
    with pytest.raises(Exception, match="exp_step takes at least 9 parameters"):
        call(*ok, *parameters, device="exp_step")
    with pytest.raises(Exception, match="no kernel for device unknown"):
        call(*ok, *parameters, device="unknown")


@pytest.mark.timeout(120)
def test_many_concurrent_calls_never_deadlock():
    # Independent calls in one program, each big enough to be cut into chunks: 4 times as many as cores.
    n = 4 * (os.cpu_count() or 1)
    shape = (128, 128)
    x, d = jnp.ones((16, 128)), jnp.ones((16, 128))
    states = [DEV.init(shape, key=jax.random.key(i)) for i in range(n)]

    @jax.jit
    def all_at_once(states, key):
        new = [xb.pulsed_update(DEV, s, x, d, lr=0.1, key=jax.random.fold_in(key, i)).w for i, s in enumerate(states)]
        return sum(w.sum() for w in new)

    first = float(all_at_once(states, jax.random.key(0)))
    for _ in range(20):
        assert float(all_at_once(states, jax.random.key(0))) == first


@pytest.mark.timeout(120)
def test_vmapped_calls_inside_scan_never_deadlock():
    keys = jax.random.split(jax.random.key(0), 16)
    states = jax.vmap(lambda k: DEV.init((64, 64), key=k))(keys)
    x, d = jnp.ones((8, 64)), jnp.ones((8, 64))

    @jax.jit
    def f(states, keys):
        def one(s, i):
            go = lambda s, k: xb.pulsed_update(DEV, s, x, d, lr=0.1, key=jax.random.fold_in(k, i))
            return jax.vmap(go)(s, keys), None

        return jax.lax.scan(one, states, jnp.arange(30))[0]

    out = f(states, keys)
    # The same arrays one after another.
    alone = f(jax.tree.map(lambda a: a[3:4], states), keys[3:4])
    np.testing.assert_array_equal(out.w[3], alone.w[0])
    np.testing.assert_array_equal(out.pulses[3], alone.pulses[0])


SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import xbar_jax as xb
from xbar_jax import native
assert len(jax.devices()) == 4
dev = xb.devices.SoftBounds()
keys = jax.random.split(jax.random.key(0), 8)
x, d = jax.random.uniform(keys[0], (3, 16), minval=-1.0), 0.1 * jax.random.normal(keys[1], (3, 40))
def update(k):
    s = jax.vmap(lambda k: dev.init((16, 40), key=k))(k)
    return jax.vmap(lambda s, k: xb.pulsed_update(dev, s, x, d, lr=0.1, key=k))(s, k)
mesh = Mesh(np.array(jax.devices()), ("arrays",))
sharded = jax.jit(jax.shard_map(update, mesh=mesh, in_specs=P("arrays"), out_specs=P("arrays")))
want = jax.jit(update)(keys)
on = jax.device_put(keys, NamedSharding(mesh, P("arrays")))
got = sharded(on)
assert "xbar_coincidences" in sharded.lower(on).as_text()
assert len(got.w.sharding.device_set) == 4
np.testing.assert_array_equal(got.pulses, want.pulses)
np.testing.assert_array_equal(got.w, want.w)
with native.disabled():
    body = sharded(on)
np.testing.assert_array_equal(got.pulses, body.pulses)
np.testing.assert_allclose(got.w, body.w, rtol=0, atol=2e-6)
print("same")
"""


def test_inside_shard_map_on_four_devices():
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    out = subprocess.run([sys.executable, "-c", SHARDED], env=env, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == "same"


def test_sixty_parameters_of_each_cell_cost_no_time_to_compile_and_their_memory_traffic():
    rows = cols = 256
    x = jax.random.uniform(jax.random.key(0), (64, rows), minval=-1.0)
    d = 0.1 * jax.random.normal(jax.random.key(1), (64, cols))

    def seconds(nodes, shape):
        shape = (nodes, *shape)
        dev = xb.devices.PiecewiseStep(nodes_up=jnp.ones(shape), nodes_down=jnp.ones(shape))
        state = dev.init((rows, cols), key=jax.random.key(2))
        f = jax.jit(lambda dev, s, k: xb.pulsed_update(dev, s, x, d, lr=0.1, key=k))
        start = time.perf_counter()
        compiled = f.lower(dev, state, jax.random.key(3)).compile()
        compile_time = time.perf_counter() - start
        times = []
        for _ in range(7):
            start = time.perf_counter()
            out = jax.block_until_ready(compiled(dev, state, jax.random.key(3)))
            times.append(time.perf_counter() - start)
        assert int(out.pulses.sum()) > 10_000_000
        return compile_time, min(times)

    compile_few, _ = seconds(6, ())
    _, shared = seconds(30, (1, 1))
    compile_many, own = seconds(30, (rows, cols))  # 66 parameters of each cell, 17 MB
    assert compile_many < 3 * compile_few + 5
    # 17 MB once at 1 GB/s is 17 ms; read for every sample or pulse it would be seconds.
    assert own < 1.3 * shared + 0.017


def test_info_lists_the_calls_and_why_not(capsys):
    from xbar_jax.cli import main

    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert "custom calls, cpu" in out and "coincidences" in out and library.load("cpu").detail in out
    assert "custom calls, cuda" in out


def test_kernels_in_other_precisions_run_in_jax():
    with jax.enable_x64(True):
        state = DEV.init((4, 6), key=jax.random.key(0), dtype=jnp.float64)
        f = jax.jit(lambda s: DEV.pulse(s, 3, key=jax.random.key(1)).w)
        assert "xbar_pulses" not in f.lower(state).as_text()
        assert f(state).dtype == jnp.float64


def test_a_class_with_a_step_of_its_own_does_not_run_its_parents_kernel():
    class Own(xb.devices.ConstantStep):
        @staticmethod
        def step(w, up, noise, p):
            return jnp.where(up, w + 0.25, w - 0.25)

    class Renamed(xb.devices.ConstantStep):
        pass

    assert Own.kernel is None and Renamed.kernel == "constant_step" and xb.devices.SoftBounds.kernel == "linear_step"
    state = xb.devices.ConstantStep().init((2, 3), key=jax.random.key(0))
    np.testing.assert_allclose(Own().pulse(state, 1, key=jax.random.key(1)).w, 0.25)


def test_a_kernel_that_the_library_lacks_warns_or_is_an_error(monkeypatch):
    class Missing(xb.devices.ConstantStep):
        kernel = "nosuch"

    state = xb.devices.ConstantStep().init((2, 3), key=jax.random.key(0))
    monkeypatch.setenv("XBAR_REQUIRE_NATIVE", "1")
    with pytest.raises(RuntimeError, match="without a kernel for device nosuch"):
        Missing().pulse(state, 1, key=jax.random.key(1))
    monkeypatch.setenv("XBAR_REQUIRE_NATIVE", "0")
    with pytest.warns(UserWarning, match="without a kernel for device nosuch"):
        Missing().pulse(state, 1, key=jax.random.key(1))
    nodes = (1.0,) * 600
    dev = xb.devices.PiecewiseStep(nodes_up=nodes, nodes_down=nodes)
    with pytest.warns(UserWarning, match="limited to 1024 operands"):
        out = dev.pulse(dev.init((1, 2), key=jax.random.key(0)), 1, key=jax.random.key(1))
    assert (out.w > 0).all()


def test_stored_values_of_the_self_test_are_those_of_the_jax_forms():
    folder = Path(__file__).parents[2] / "custom_calls" / "selftest"
    code = "import sys; sys.path.insert(0, sys.argv[1]); import values; print(values.header())"
    out = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=200)
    numbers = lambda text: np.array([float(x) for x in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text)])
    now, stored = numbers(out.stdout), numbers((folder / "values.h").read_text())
    assert len(now) == len(stored) > 1000, out.stderr
    # States of a thousand steps differ by 4e-6 between releases of XLA, on whose exponentials they rest.
    np.testing.assert_allclose(now, stored, rtol=1e-5, atol=2e-6)


def test_a_device_without_a_kernel_runs_in_jax():
    class Own(xb.devices.ConstantStep):
        kernel = None

    base = xb.devices.ConstantStep()
    state = base.init((4, 6), key=jax.random.key(0))
    own = kernels.pulses(
        state.w,
        jnp.full((1, 4, 6), 3),
        jnp.zeros((1, 2), jnp.uint32),
        jnp.zeros(2, jnp.uint32),
        *base.parameters(state),
        device=Own,
    )
    fast = kernels.pulses(
        state.w, jnp.full((1, 4, 6), 3), jnp.zeros((1, 2), jnp.uint32), jnp.zeros(2, jnp.uint32), *base.parameters(state),
        device=xb.devices.ConstantStep,
    )  # fmt: skip
    np.testing.assert_allclose(own[0], fast[0], rtol=0, atol=2e-6)
