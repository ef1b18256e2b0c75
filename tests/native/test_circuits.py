"""The circuit calls in three forms: JAX body, CPU kernel, and the CUDA source run on the host."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from forms import run

import xbar_jax as xb
from xbar_jax.circuits.lines import Lines, running_sum
from xbar_jax.circuits.network import METHODS, Network, _cell_currents
from xbar_jax.native import library

pytestmark = pytest.mark.skipif(not library.enabled(), reason="XBAR_NATIVE=0 turns off what is tested here")

# Each form solves to TOL of the largest cell current, and moderate wires do not amplify that; see `close`.
TOL = {"float32": 3e-6, "float64": 1e-12}
NEAR, FAR, CUT = 1, 2, 4
KINDS = ("plain", "both ends", "cut", "cut, both ends", "floating", "far ends only")
NAMES = (
    *("g", "r_word", "near_word", "far_word", "ends_word", "r_bit", "near_bit", "far_bit", "ends_bit"),
    *("c", "q_word", "q_bit", "start", "tol", "max_steps"),
)


def network(kind, shape, dtype, *, flips=(0, 0), each=False, seed=0) -> dict:
    """Operands of the call by name; ``each``: a number for each segment."""
    rng = np.random.default_rng(seed)
    rows, cols = shape
    g = rng.uniform(1e-5, 1e-3, shape)
    sides = {}
    for side, n, lines in (("word", cols, rows), ("bit", rows, cols)):
        sides[f"r_{side}"] = rng.uniform(0.5, 2.0, (n - 1, lines) if each else (1, 1))
        sides[f"near_{side}"], sides[f"far_{side}"] = rng.uniform(0.0, 5.0, (2, lines))
        sides[f"ends_{side}"] = np.full(lines, NEAR)
    q_word, q_bit = np.zeros(rows), np.zeros(cols)
    if kind in ("both ends", "cut, both ends"):
        sides["ends_word"][:] |= FAR
        sides["ends_bit"][::2] |= FAR
    if kind == "far ends only":
        sides["ends_word"][::2], sides["ends_bit"][1::2] = FAR, FAR
    if kind.startswith("cut") and cols > 1:
        sides["ends_word"] |= CUT
        sides["r_word"][:] = 0.0
        g[:, 1 : cols if kind == "cut" else cols - 1] = 0.0
        g = g[:, ::-1].copy() if flips[0] else g
    if kind == "floating":
        sides["ends_word"][rows // 2], sides["ends_bit"][cols // 2 :: 3] = 0, 0
        q_word, q_bit = ((q + 1e-4) * (e == 0) for q, e in ((q_word, sides["ends_word"]), (q_bit, sides["ends_bit"])))
    for side in ("word", "bit"):  # resistances of open terminals are 0
        for end, bit in (("near", NEAR), ("far", FAR)):
            sides[f"{end}_{side}"] *= (sides[f"ends_{side}"] & bit) > 0
    dtype = np.dtype(dtype)
    values = dict(
        g=g, **sides, c=g * rng.uniform(-0.2, 1.0, shape), q_word=q_word, q_bit=q_bit, start=np.zeros((1, 1)),
        tol=np.asarray(TOL[dtype.name]), max_steps=np.asarray(500),
    )  # fmt: skip
    integer = ("ends_word", "ends_bit", "max_steps")
    return {k: jnp.asarray(values[k], np.int32 if k in integer else dtype) for k in NAMES}


def call(*operands, flips=(0, 0), method="auto"):
    return _cell_currents(*operands, word_flip=flips[0], bit_flip=flips[1], method=METHODS.index(method))


def close(a, b, dtype):
    """Two solutions: currents, and potentials in units of the drop of the largest current at 1 kOhm."""
    tolerance = 4 * TOL[np.dtype(dtype).name]
    size = max(float(jnp.abs(a[0]).max()), 1e-30)
    np.testing.assert_allclose(a[0], b[0], rtol=0, atol=tolerance * size)
    for x, y in zip(a[1:3], b[1:3], strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * 1e4 * size)
    assert bool(jnp.all(a[5])) and bool(jnp.all(b[5]))


@pytest.mark.parametrize(("flips", "each"), [((0, 1), False), ((1, 0), False), ((1, 1), True)])
def test_boundaries_in_three_forms(flips, each, dtype):
    solve = jax.jit(lambda *x: call(*x, flips=flips))
    for kind in KINDS:
        if each and kind.startswith("cut"):
            continue  # only a whole line is cut
        x = network(kind, (6, 9), dtype, flips=flips, each=each).values()
        host = run("standin", solve, *x)
        assert host[0].dtype == dtype and float(jnp.abs(host[0]).max()) > 1e-5
        close(host, run("native", solve, *x), dtype)
        close(host, run("body", solve, *x), dtype)
        if kind == "floating":
            assert float(jnp.abs(host[1]).max()) > 1e-3 and float(jnp.abs(host[2]).max()) > 1e-3


# The last one has vectors that do not fit into the team's fast memory, the largest none that does.
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (37, 21), (120, 101)])
def test_sizes_and_tails(shape, dtype):
    solve = jax.jit(call)
    for kind in ("plain", "both ends"):
        x = network(kind, shape, dtype).values()
        host, fast = (run(form, solve, *x) for form in ("standin", "native"))
        close(host, fast, dtype)
        assert host[3].dtype == jnp.int32 and abs(int(host[3]) - int(fast[3])) <= 2
        if shape[0] in (1, 5) and dtype == np.float64:
            close(host, run("body", solve, *x), dtype)


@pytest.mark.parametrize("wires", ["right-driven, top-sensed", "floating"])
def test_solve_and_its_gradient_in_three_forms(wires, x64):
    g = jax.random.uniform(jax.random.key(0), (6, 5), minval=1e-5, maxval=1e-3)
    v = jnp.linspace(0.1, 0.6, 6)
    made, drives = {
        "right-driven, top-sensed": (dict(r_right=3.0, r_top=0.5, r_left=np.inf, r_bottom=np.inf),
                                     lambda v: dict(right=v, top=0.0, bottom=None)),
        "floating": (dict(r_left=jnp.asarray([1.0, np.inf, 2.0, 1.0, 1.0, 0.0])), lambda v: dict(left=v)),
    }[wires]  # fmt: skip

    def power(g, v):
        sol = xb.solve(g, xb.Wires(r_word=1.5, r_bit=2.0, **made), **drives(v))
        return sol.power, sol.converged

    f = jax.jit(jax.value_and_grad(power, argnums=(0, 1), has_aux=True))
    host, fast, body = (run(form, f, g, v) for form in ("standin", "native", "body"))
    assert bool(host[0][1]) and float(jnp.abs(host[1][0]).max()) > 0
    for other in (fast, body):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-14), host, other)


def batched(values, axes, size=3):
    """Operands, those with an axis made ``size`` different ones along it."""
    out = []
    for value, axis in zip(map(np.asarray, values), axes, strict=True):
        if axis is None:
            out.append(value)
            continue
        # What is joined and how many steps there are is moved round; numbers also grow.
        parts = [np.roll(value, k, -1) if value.ndim else value for k in range(size)]
        if value.dtype.kind == "f":
            parts = [part * (1 + k / 8) for k, part in enumerate(parts)]
        out.append(np.stack(parts, axis=axis))
    return out


NETWORK = tuple(0 if k < 9 else None for k in range(15))
RIGHT = tuple(None if k < 9 else 0 for k in range(15))
# Operands by the digits of their number: of any two, one is mapped without the other somewhere.
DIGITS = [tuple(0 if (k + 1) >> d & 1 else None for k in range(15)) for d in range(4)]
CHOICES = [NETWORK, RIGHT, (0,) * 15, *DIGITS]
NESTED = [(NETWORK, RIGHT), (DIGITS[0], DIGITS[3])]


@pytest.mark.long
def test_every_choice_of_in_axes(x64):
    # Arrays one by one are the oracle, and the CPU form.
    x = network("floating", (4, 6), "float64", each=True)
    x = list((x | {"start": 0.5 * x["c"]}).values())
    single = [batched(x, axes) for axes in CHOICES]
    double = [batched(batched(x, inner), outer, size=2) for outer, inner in NESTED]

    @jax.jit
    def everything(single, double):
        one = [jax.vmap(call, in_axes=axes)(*args) for axes, args in zip(CHOICES, single, strict=False)]
        two = [
            jax.vmap(jax.vmap(call, in_axes=inner), in_axes=outer)(*args)
            for (outer, inner), args in zip(NESTED, double, strict=True)
        ]
        return one, two

    host = jax.device_get(run("standin", everything, single, double))
    fast = jax.device_get(run("native", everything, single[:3], double))
    for got, want in zip(jax.tree.leaves((host[0][:3], host[1])), jax.tree.leaves(fast), strict=True):
        if got.dtype == np.float64 and got.ndim > 2:
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-10 * np.abs(want).max())
        elif got.dtype == bool:
            assert got.all() and want.all()
    alone = jax.jit(call)
    for axes, args, got in zip(CHOICES, single, host[0], strict=True):
        for b in range(3):
            want = run("standin", alone, *(v if a is None else v[b] for v, a in zip(args, axes, strict=True)))
            for p, q in zip(got, want, strict=True):
                np.testing.assert_array_equal(p[b], q)  # no array sees its neighbours
    for (outer, inner), args, got in zip(NESTED, double, host[1], strict=True):
        for a, b in itertools.product(range(2), range(3)):
            picked = [v if o is None else v[a] for v, o in zip(args, outer, strict=True)]
            picked = [v if i is None else v[b] for v, i in zip(picked, inner, strict=True)]
            np.testing.assert_array_equal(got[0][a, b], run("standin", alone, *picked)[0])


@pytest.mark.parametrize("form", ["native", "standin"])
def test_start_steps_and_what_cannot_converge(form, dtype):
    solve = jax.jit(call)
    x = network("plain", (37, 21), dtype)
    x["r_bit"] = 20 * x["r_bit"]
    cold = run(form, solve, *x.values())
    assert bool(cold[5]) and int(cold[3]) > 3 and 0 < float(cold[4]) <= 1.1 * TOL[np.dtype(dtype).name] + 1e-5

    # A shape of start other than [1, 1] is another program.
    warm = run(form, solve, *(x | {"start": cold[0]}).values())
    assert int(warm[3]) == 0 and bool(warm[5])
    np.testing.assert_array_equal(warm[0], cold[0])
    near = run(form, solve, *(x | {"start": cold[0] * np.dtype(dtype).type(0.999)}).values())
    close(near, cold, dtype)
    assert 0 < int(near[3]) < int(cold[3])

    for most in (0, 2):
        short = run(form, solve, *(x | {"max_steps": jnp.int32(most)}).values())
        assert int(short[3]) == most and not bool(short[5]) and float(short[4]) > float(cold[4])


@pytest.mark.parametrize("name", ["g", "c", "near_word", "r_bit"])
def test_what_is_not_a_number_never_converges(name):
    x = network("plain", (6, 9), "float32", each=True)
    x[name] = x[name].at[(2,) * x[name].ndim].set(jnp.nan)
    for form in ("native", "standin", "body"):
        bad = run(form, jax.jit(call), *x.values())
        assert not bool(bad[5]) and int(bad[3]) <= 500


@pytest.mark.parametrize("method", METHODS)
def test_heavy_wires_by_every_method(method, x64):
    # The coarse correction is the CPU's; on a GPU the lines are run for longer, to the same currents.
    x = network("plain", (64, 64), "float64")
    x["r_word"], x["r_bit"], x["tol"] = x["r_word"] * 0 + 20.0, x["r_bit"] * 0 + 20.0, jnp.asarray(1e-9)
    solve = jax.jit(lambda *x: call(*x, method=method))
    host, fast = (run(form, solve, *x.values()) for form in ("standin", "native"))
    assert bool(host[5]) and bool(fast[5])
    np.testing.assert_allclose(host[0], fast[0], rtol=0, atol=1e-7 * float(jnp.abs(fast[0]).max()))


@pytest.mark.parametrize("form", ["native", "standin"])
def test_running_sums(form, dtype):
    x = jax.random.normal(jax.random.key(0), (2, 3, 70, 45), dtype)
    for shape in ((1, 1), (1, 5), (5, 1), (70, 45)):
        part = x[0, 0, : shape[0], : shape[1]]
        for reverse in (False, True):
            got = run(form, lambda y: running_sum(y, reverse=reverse), part)
            turned = part[::-1] if reverse else part
            want = np.cumsum(np.asarray(turned), axis=0)  # the same order of additions
            np.testing.assert_array_equal(got, want[::-1] if reverse else want)
    nested = run(form, jax.vmap(jax.vmap(running_sum)), x)
    np.testing.assert_array_equal(nested, np.cumsum(np.asarray(x), axis=2))
    along = run(form, jax.vmap(running_sum, in_axes=2, out_axes=1), x[0])
    np.testing.assert_array_equal(along, np.moveaxis(np.cumsum(np.asarray(x[0]), axis=0), 2, 1))


def test_a_refused_launch_is_an_error():
    lib = ctypes.CDLL(str(library.load("standin").path))
    x = network("plain", (6, 9), "float32").values()
    for f, args in ((jax.jit(call), tuple(x)), (jax.jit(running_sum), (jnp.ones((4, 5)),))):
        good = run("standin", f, *args)
        lib.xbar_refuse_next_launch()
        # Which of the two it is depends on whether the program ran in the thread of its caller.
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="too many resources requested"):
            run("standin", f, *args)
        jax.tree.map(np.testing.assert_array_equal, run("standin", f, *args), good)


def test_a_bad_operand_is_an_error_that_names_it():
    x = network("plain", (6, 9), "float32")
    out = jax.eval_shape(call, *x.values())
    target = jax.ffi.ffi_call(library.target("standin", "xbar_cell_currents"), out)
    f = lambda **wrong: target(*(x | wrong).values(), word_flip=0, bit_flip=0, method=0)
    run("standin", f)
    for name, wrong in (
        ("g must be", dict(g=jnp.ones((6, 8)))),
        ("word lines: near and far", dict(far_word=jnp.ones(5))),
        ("bit lines: ends", dict(ends_bit=jnp.ones(9))),
        ("q and phi", dict(q_bit=jnp.ones(6))),
        ("start must be", dict(start=jnp.ones((6, 5)))),
    ):
        with pytest.raises(jax.errors.JaxRuntimeError, match=name):
            f(**wrong)


def test_lowering_for_cuda_is_one_call_for_the_batch():
    if library.load("cuda").reason is not None:
        pytest.skip(f"the CUDA library is {library.load('cuda').reason}")
    assert {"xbar_cell_currents", "xbar_running_sum"} <= library.load("cuda").targets
    g = jnp.full((4, 5), 1e-4)

    def solve(v):
        return xb.solve(g, xb.Wires(r_word=1.0, r_bit=1.0), left=v).i_cell

    lower = lambda f, *x: jax.jit(f).trace(*x).lower(lowering_platforms=("cuda",)).as_text()
    assert lower(solve, jnp.ones(4)).count("@xbar_cell_currents") == 1
    text = lower(jax.vmap(solve), jnp.ones((3, 4)))
    (line,) = [line for line in text.splitlines() if "@xbar_cell_currents" in line]
    assert "tensor<3x4x5xf32>" in line and "tensor<1x4x5xf32>" in line  # the network is shared, not copied
    assert lower(running_sum, jnp.ones((4, 5))).count("@xbar_running_sum") == 1


PROGRAM = """
import sys
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from xbar_jax.circuits.network import _cell_currents
from xbar_jax.native import library
with np.load(sys.argv[1]) as z:
    cases = {}
    for name, value in z.items():
        cases.setdefault(name.split("/")[0], []).append(value)
out = {k: _cell_currents(*v, word_flip=0, bit_flip=1, method=0) for k, v in cases.items()}
assert all(bool(v[5]) for v in out.values())
np.savez(sys.argv[2], detail=library.load("cpu").detail, **{k: v[0] for k, v in out.items()})
"""


def test_every_instruction_set_solves_to_the_tolerance(tmp_path):
    order = ("sse2", "avx2", "avx512")
    here = library.load("cpu").detail
    if here not in order[1:]:
        pytest.skip(f"this processor has one set only, {here}")
    cases = {}
    with jax.enable_x64(True):
        for shape, dtype in (
            ((1, 1), "float32"), ((1, 5), "float32"), ((5, 1), "float64"), ((37, 21), "float32"), ((64, 70), "float64")
        ):  # fmt: skip
            for name, value in network("floating" if shape[0] > 5 else "plain", shape, dtype).items():
                cases[f"{dtype} {shape}/{name}"] = np.asarray(value)
    np.savez(tmp_path / "in.npz", **cases)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("XBAR_")} | {"JAX_PLATFORMS": "cpu"}
    isas = order[: order.index(here) + 1]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "in.npz"), str(tmp_path / f"{isa}.npz")],
            env=clean | {"XBAR_ISA": isa},
            stderr=subprocess.PIPE,
            text=True,
        )
        for isa in isas
    ]
    runs = []
    for isa, process in zip(isas, started, strict=True):
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
        with np.load(tmp_path / f"{isa}.npz") as z:
            runs.append(dict(z))
        assert str(runs[-1].pop("detail")) == isa
    for other, (name, want) in itertools.product(runs[1:], runs[0].items()):
        tolerance = 4 * TOL[name.split()[0]] * np.abs(want).max()
        np.testing.assert_allclose(other[name], want, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_drops_and_their_transpose(kind, x64):
    """The compiled drops of both lines, and their transpose, are those of the JAX form."""
    x = network(kind, (21, 13), "float64", flips=(1, 0), each=True)
    lines = [x[f"{name}_{side}"] for side in ("word", "bit") for name in ("r", "near", "far", "ends")]
    if "cut" in kind:
        lines[0], lines[4] = jnp.zeros_like(lines[0]), jnp.zeros_like(lines[4])
    word, bit = Lines.of(13, *lines[:4], 1), Lines.of(21, *lines[4:], 0)
    net = Network(x["g"], word, bit)
    alive = word.alive.T & bit.alive  # what nothing reaches carries nothing, and its drop means nothing
    i = jnp.where(alive, jax.random.normal(jax.random.key(0), (2, 21, 13), jnp.float64), 0.0)
    found = jnp.where(alive, jax.vmap(net.drop)(i), 0.0)
    want = jnp.where(alive, jax.vmap(net._drop)(i), 0.0)
    scale = float(jnp.abs(want).max())
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-12 * scale)
    (back,) = jax.vjp(net.drop, i[0])[1](i[1])
    (slow,) = jax.vjp(net._drop, i[0])[1](i[1])
    back, slow = (jnp.where(alive, x, 0.0) for x in (back, slow))
    np.testing.assert_allclose(back, slow, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(jnp.vdot(i[1], found[0]), jnp.vdot(back, i[0]), rtol=1e-9)
