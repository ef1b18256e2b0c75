"""Charging lines: closed forms, the exponential of the dense network, ngspice, derivatives, bad input."""

from __future__ import annotations

import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from oracle import array
from scipy.linalg import expm

import xbar_jax as xb

pytestmark = pytest.mark.long

SCHEMES = {"backward_euler": 1, "sdirk2": 2}
NGSPICE = shutil.which("ngspice")


def dense(g, r_word, r_bit, c_word, c_bit, c_cell):
    """K and C of the node equations K x + C dx/dt = E p, unknowns (word, bit) row by row; leads of one segment."""
    m, n = g.shape
    k, c, e = np.zeros((2 * m * n, 2 * m * n)), np.zeros((2 * m * n, 2 * m * n)), np.zeros((2 * m * n, m))
    u, v = (lambda i, j: i * n + j), (lambda i, j: m * n + i * n + j)

    def join(mat, x, y, value):
        mat[np.ix_([x, y], [x, y])] += value * np.array([[1, -1], [-1, 1]])

    for i in range(m):
        for j in range(n):
            join(k, u(i, j), v(i, j), g[i, j])
            join(c, u(i, j), v(i, j), c_cell[i, j])
            c[u(i, j), u(i, j)] += c_word[i, j]
            c[v(i, j), v(i, j)] += c_bit[i, j]
            if j + 1 < n:
                join(k, u(i, j), u(i, j + 1), 1 / r_word)
            if i + 1 < m:
                join(k, v(i, j), v(i + 1, j), 1 / r_bit)
        k[u(i, 0), u(i, 0)] += 1 / r_word
        e[u(i, 0), i] += 1 / r_word
    for j in range(n):
        k[v(m - 1, j), v(m - 1, j)] += 1 / r_bit
    return k, c, e


R_WORD, R_BIT = 120.0, 80.0


def network(seed=0, shape=(6, 5)):
    """Capacitances that differ from node to node: a slip of order or side cannot cancel."""
    g, v = array(*shape, seed, low=1e3, high=1e5)
    rng = np.random.default_rng(seed + 1)
    word, bit, cell = (rng.uniform(0.2, 1.0, shape) * scale for scale in (2e-15, 1e-15, 3e-16))
    return g, v, {"c_word": word, "c_bit": bit, "c_cell": cell}


def relax(a, times, x):
    """exp(-A t) x at evenly spaced times from 0."""
    over = expm(-times[1] * a)
    out = [x]
    for _ in times[1:]:
        out.append(over @ out[-1])
    return np.stack(out)


def exact(g, v, caps, times, x0=None):
    """(i_left, i_bottom, nodes) of a step at t = 0 by the matrix exponential."""
    k, c, e = dense(g, R_WORD, R_BIT, **caps)
    final = np.linalg.solve(k, e @ v)
    start = np.zeros_like(final) if x0 is None else x0
    x = final[None] + relax(np.linalg.solve(c, k), times, start - final)
    m, n = g.shape
    word, bit = x[:, : m * n].reshape(-1, m, n), x[:, m * n :].reshape(-1, m, n)
    return (v[None] - word[:, :, 0]) / R_WORD, bit[:, -1] / R_BIT, (word, bit)


WIRES = xb.Wires(r_word=R_WORD, r_bit=R_BIT)


@pytest.mark.parametrize(("scheme", "order"), SCHEMES.items())
@pytest.mark.parametrize("side", ["c_word", "c_bit", "c_cell"])
def test_one_cell_is_one_time_constant_and_the_order_is_as_stated(scheme, order, side, x64):
    g, r_left, r_bottom, c = 1e-3, 100.0, 200.0, 1e-12
    series = r_left + 1 / g + r_bottom
    parallel = lambda a, b: a * b / (a + b)
    resistance = {
        "c_word": parallel(r_left, 1 / g + r_bottom),
        "c_bit": parallel(r_bottom, 1 / g + r_left),
        "c_cell": parallel(1 / g, r_left + r_bottom),
    }[side]
    tau = c * resistance
    # Right after the step the capacitor is a short circuit.
    first = {"c_word": 0.0, "c_bit": 0.0, "c_cell": 1 / (r_left + r_bottom)}[side]
    errors = []
    for steps in (32, 64):
        run = xb.transient(
            jnp.array([[g]]),
            xb.Wires(r_left=r_left, r_bottom=r_bottom),
            left=1.0,
            dt=4 * tau / steps,
            steps=steps,
            scheme=scheme,
            **{side: c},
        )
        want = 1 / series + (first - 1 / series) * np.exp(-np.asarray(run.times[1:]) / tau)
        errors.append(np.abs(run.i_bottom[1:, 0] - want).max() * series)
        assert run.converged
    rates = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(rates, order, atol=0.15)
    assert errors[-1] < {1: 0.05, 2: 5e-4}[order]


@pytest.mark.parametrize(("scheme", "order"), SCHEMES.items())
def test_against_the_matrix_exponential(scheme, order, x64):
    g, v, caps = network()
    span = 1.2e-11  # a few time constants
    errors = []
    for steps in (96, 192):
        run = xb.transient(g, WIRES, left=v, **caps, dt=span / steps, steps=steps, scheme=scheme, history=True)
        want = exact(g, v, caps, np.asarray(run.times))
        settled = slice(steps // 12, None)  # 1 ps: the fastest nodes of a step are not resolved before
        distance = lambda x, y, at=settled: np.abs(x - y)[at].max() / np.abs(y).max()
        errors.append(jax.tree.map(distance, (run.i_left, run.i_bottom, *run.history), (*want[:2], *want[2])))
        np.testing.assert_array_equal(run.history[0][-1], run.v_word)
    rates = np.log2(np.array(errors[-2]) / errors[-1])
    assert (rates > order - 0.2).all(), errors
    assert max(errors[-1]) < {1: 2e-2, 2: 2e-4}[order], errors


def test_waveforms_held_and_straight(x64):
    """A ramp against its closed form by the exponential; a held waveform against restarted constant drives."""
    g, v, caps = network()
    steps, dt = 200, 1e-13
    k, c, e = dense(g, R_WORD, R_BIT, **caps)
    a = np.linalg.solve(c, k)
    t = dt * np.arange(steps + 1)
    rate = v / (steps * dt)
    # x = rate K^-1 E (t - K^-1 C (1 - exp(-A t)))
    final = np.linalg.solve(k, e @ rate)
    slow = np.linalg.solve(k, c @ final)
    x = final[None] * t[:, None] - slow[None] + relax(a, t, slow)
    want = x[:, g.size :].reshape(-1, *g.shape)[:, -1] / R_BIT
    run = xb.transient(g, WIRES, left=t[:, None] * rate[None, :], **caps, dt=dt, steps=steps)
    assert np.abs(run.i_bottom - want).max() < 5e-5 * np.abs(want).max()

    held = np.concatenate([np.tile(v, (30, 1)), np.tile(-0.3 * v[::-1], (20, 1))])
    run = xb.transient(g, WIRES, left=held, **caps, dt=dt, steps=50)
    first = xb.transient(g, WIRES, left=v, **caps, dt=dt, steps=30)
    second = xb.transient(g, WIRES, left=-0.3 * v[::-1], **caps, dt=dt, steps=20, initial=first)
    np.testing.assert_allclose(run.i_bottom[:31], first.i_bottom, rtol=1e-8, atol=1e-15)
    np.testing.assert_allclose(run.i_bottom[30:], second.i_bottom, rtol=0, atol=1e-8 * np.abs(run.i_bottom).max())
    np.testing.assert_allclose(run.v_word, second.v_word, rtol=0, atol=1e-9)


TERMINALS = {
    "left, bottom": (WIRES, {"left": 0.3}),
    "no lead": (xb.Wires(r_word=5.0, r_bit=0.0, r_left=0.0), {"left": 0.3}),
    "ideal": (None, {"left": 0.3}),
    "four sides": (
        xb.Wires(r_word=50.0, r_bit=70.0, r_right=30.0, r_top=0.0),
        {"left": 0.3, "right": -0.1, "top": 0.05},
    ),
    "right, top": (
        xb.Wires(r_word=50.0, r_bit=70.0, r_right=3.0, r_top=4.0),
        {"right": 0.2, "top": 0.0, "bottom": None},
    ),
    "cut": (xb.Wires(r_word=np.inf, r_bit=70.0, r_left=3.0), {"left": 0.2}),
}


@pytest.mark.parametrize("name", TERMINALS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_ends_at_the_operating_point(name, scheme, x64):
    wires, drives = TERMINALS[name]
    g, _, caps = network()
    g[2, 3] = 0.0
    sol = xb.solve(g, wires, **drives, tol=1e-13)
    run = xb.transient(g, wires, **drives, **caps, dt=2e-11, steps=40, scheme=scheme)
    assert run.converged
    scale = max(np.abs(x).max() for x in (sol.i_left, sol.i_right, sol.i_bottom, sol.i_top))
    for side in ("i_left", "i_right", "i_top", "i_bottom"):
        np.testing.assert_allclose(getattr(run, side)[-1], getattr(sol, side), rtol=0, atol=1e-9 * scale, err_msg=side)
    alive = slice(0, 1) if name == "cut" else slice(None)
    np.testing.assert_allclose(run.v_word[:, alive], sol.v_word[:, alive], rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.v_bit, sol.v_bit, rtol=0, atol=1e-9)
    # From there nothing changes any more.
    rest = xb.transient(g, wires, **drives, **caps, dt=1e-12, steps=3, scheme=scheme, initial=sol)
    still = np.broadcast_to(sol.i_bottom, rest.i_bottom.shape)
    np.testing.assert_allclose(rest.i_bottom, still, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_capacitance_every_step_is_static(scheme, dtype):
    g, v, _ = network()
    wave = np.stack([v, -v, 0.5 * v]).astype(dtype)
    run = xb.transient(g, WIRES, left=wave, dt=1e-12, steps=3, scheme=scheme, dtype=dtype)
    want = jax.vmap(lambda v: xb.solve(jnp.asarray(g, dtype), WIRES, left=v).i_bottom)(jnp.asarray(wave))
    tol = 1e-9 if dtype == np.float64 else 2e-5
    np.testing.assert_allclose(run.i_bottom[1:], want, rtol=0, atol=tol * np.abs(want).max())


def test_charge_is_conserved_and_single_precision_follows_double(dtype):
    """What goes in minus what comes out is what the capacitors to ground hold (backward Euler sums it exactly)."""
    g, v, caps = network()
    run = xb.transient(g, WIRES, left=v, **caps, dt=2e-13, steps=100, scheme="backward_euler", dtype=dtype)
    entered = (run.i_left[1:].sum() - run.i_bottom[1:].sum()) * 2e-13
    held = (caps["c_word"] * np.asarray(run.v_word)).sum() + (caps["c_bit"] * np.asarray(run.v_bit)).sum()
    size = np.abs(run.i_left[1:]).sum() * 2e-13
    assert abs(entered - held) < size * (1e-9 if dtype == np.float64 else 1e-5)
    assert abs(held) > 1e-2 * size


@pytest.mark.parametrize("dt", [1e-16, 1e-14, 1e-12])
def test_single_precision_at_steps_far_below_and_above_the_time_constants(dt):
    # Optimised: without fused multiply-adds 3e-4 at the shortest step.
    jax.config.update("jax_disable_most_optimizations", False)
    g, v, caps = network()
    with jax.enable_x64(True):
        want = np.asarray(xb.transient(g, WIRES, left=v, **caps, dt=dt, steps=100).i_bottom)
    run = xb.transient(g, WIRES, left=v, **caps, dt=dt, steps=100, dtype=np.float32)
    assert run.converged
    assert np.abs(run.i_bottom - want).max() < 3e-5 * np.abs(want).max()


def test_time_zero_belongs_to_the_initial_state(x64):
    g, v, caps = network()
    sol = xb.solve(g, WIRES, left=v)
    run = xb.transient(g, WIRES, left=0.0, **caps, dt=1e-13, steps=100, initial=sol, history=True)
    np.testing.assert_array_equal(run.i_bottom[0], sol.i_bottom)
    np.testing.assert_array_equal(run.history[1][0], sol.v_bit)
    # Discharge: by linearity the step minus its end, seen the other way round.
    up = xb.transient(g, WIRES, left=v, **caps, dt=1e-13, steps=100)
    np.testing.assert_allclose(run.i_bottom[1:], sol.i_bottom[None] - up.i_bottom[1:], rtol=0, atol=1e-11)
    assert (up.i_bottom[0] == 0).all() and (up.i_left[0] == 0).all()


def test_settling_time_of_an_exponential(x64):
    tau = jnp.array([1.0, 2.0, 5.0])
    t = jnp.linspace(0.0, 40.0, 4001)
    i = (1 - 1.5 * jnp.exp(-t[:, None] / tau[None, :])) * jnp.array([1.0, -2.0, 3.0])[None, :]
    for tolerance in (0.1, 0.01):
        got = xb.settling_time(t, i, tolerance, jnp.array([1.0, -2.0, 3.0]))
        np.testing.assert_allclose(got, tau * np.log(1.5 / tolerance), rtol=1e-4)
    # An overshoot counts: settled is for good. A line that never is: inf. NaN is not settled, a constant is at once.
    wave = jnp.array([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.5, 2.0, 1.0, np.nan], [1.0, 3.0, 1.0, 1.0]])
    got = xb.settling_time(jnp.arange(4.0), wave, 0.1, 1.0)
    np.testing.assert_allclose(got[:3], [2.8, np.inf, 0.0])
    assert not got[3] <= 2
    np.testing.assert_allclose(xb.settling_time(jnp.arange(4.0), wave[:, :1], 0.1), [2.8])
    # Differentiable: d(tau log(1.5 / tol))/dtau.
    f = lambda tau: xb.settling_time(t, (1 - 1.5 * jnp.exp(-t / tau))[:, None], 0.01, 1.0)[0]
    np.testing.assert_allclose(jax.grad(f)(2.0), np.log(150), rtol=2e-3)


def test_settling_of_one_cell_and_elmore_of_lines(x64):
    tau = 1e-12 * (100.0 * 1200.0 / 1300.0)
    run = xb.transient(
        jnp.array([[1e-3]]), xb.Wires(r_left=100.0, r_bottom=200.0), left=1.0, c_word=1e-12, dt=tau / 50, steps=400
    )
    got = xb.settling_time(run.times, run.i_bottom, 0.01, 1 / jnp.array([1300.0]))
    np.testing.assert_allclose(got, tau * np.log(100), rtol=1e-3)

    # The first moment of the step response of lightly loaded lines is the Elmore delay: the formula of settling_time.
    m, n, r, lead, c = 6, 5, 30.0, 70.0, 1e-15
    wires = xb.Wires(r_word=r, r_bit=r, r_left=lead, r_bottom=lead)
    run = xb.transient(
        np.full((m, n), 1e-9), wires, left=1.0, c_word=c, c_bit=c, dt=2e-12, steps=60, scheme="backward_euler"
    )
    moment = 2e-12 * (1 - run.i_bottom[1:] / run.i_bottom[-1:]).sum(0)  # exact for backward Euler
    line = lambda count, k: c * (lead * count + r * sum(count - s for s in range(1, k + 1)))
    bits = np.mean([line(m, k) for k in range(m)])
    np.testing.assert_allclose(moment, [line(n, j) + bits for j in range(n)], rtol=1e-4)


def functional(g, r, c, v, dt, scheme):
    """Numbers of order one for the differences: mS, fF, ps, mA."""
    wires = xb.Wires(r_word=r[0], r_bit=r[1], r_left=r[2])
    run = xb.transient(
        g * 1e-3, wires, left=v, c_word=c[0] * 1e-15, c_bit=c[1] * 1e-15, c_cell=c[2] * 1e-15, dt=dt * 1e-12, steps=4,
        scheme=scheme, tol=1e-14,
    )  # fmt: skip
    return run.i_bottom[1:] * 1e3, run.v_word[:, -1], run.i_left[-1] * 1e3


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_derivatives(scheme, mode, x64):
    g, v, _ = network(shape=(3, 2))
    args = jnp.asarray(g * 1e3), jnp.array([200.0, 300.0, 50.0]), jnp.array([2.0, 1.0, 0.3]), jnp.asarray(v), 0.7
    f = lambda *a: functional(*a, scheme)
    check_grads(f, args, order=1, modes=(mode,), rtol=1e-5, atol=1e-6)


def test_second_order_derivatives_and_those_at_the_limits(x64):
    g, v, _ = network(shape=(3, 2))
    f = lambda c: functional(jnp.asarray(g * 1e3), jnp.array([200.0, 300.0, 50.0]), c, jnp.asarray(v), 0.7, "sdirk2")[
        0
    ].sum()
    c = jnp.array([2.0, 1.0, 0.3])
    slope = jax.jit(jax.grad(f))
    numeric = np.stack([(slope(c + h) - slope(c - h)) / 2e-4 for h in 1e-4 * np.eye(3)])
    np.testing.assert_allclose(jax.jit(jax.hessian(f))(c), numeric, rtol=1e-5, atol=1e-8)
    # Zero resistance, zero capacitance and an open cell have derivatives too: one-sided differences.
    base = [jnp.asarray(g * 1e3).at[0, 0].set(0.0), jnp.zeros(3), jnp.zeros(3), jnp.asarray(v), 0.7]
    total = jax.jit(lambda *a: functional(*a, "sdirk2")[0].sum())
    for k, grad in enumerate(jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*base)):
        for where in np.ndindex(grad.shape):
            moved = list(base)
            moved[k] = base[k].at[where].add(1e-5)
            difference = (total(*moved) - total(*base)) / 1e-5
            np.testing.assert_allclose(grad[where], difference, rtol=1e-3, atol=1e-6)


def test_single_precision_gradient_where_capacitors_outweigh_wires():
    """H W is about 1e4 here; without its second pass the adjoint would lose another digit."""
    g, v, _ = network()
    f = lambda g, c, dtype: xb.transient(
        g, WIRES, left=v.astype(dtype), c_word=c, c_bit=c, dt=1e-15, steps=20, dtype=dtype
    ).i_bottom[-1].sum()  # fmt: skip
    with jax.enable_x64(True):
        want = jax.grad(f, argnums=(0, 1))(jnp.asarray(g), 5e-15, np.dtype("float64"))
    got = jax.grad(f, argnums=(0, 1))(jnp.asarray(g, jnp.float32), 5e-15, np.dtype("float32"))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max())


def test_vmap_over_everything_equals_loops(x64):
    rng = np.random.default_rng(0)
    g = jnp.asarray(rng.uniform(1e-5, 1e-3, (3, 4, 3)))
    v = jnp.asarray(rng.uniform(-1, 1, (3, 5, 4)))
    r, c, dt = jnp.array([0.0, 5.0, 50.0]), jnp.array([0.0, 1e-15, 1e-14]), jnp.array([1e-13, 1e-12, 1e-11])
    f = lambda g, v, r, c, dt: (
        xb.transient(g, xb.Wires(r_word=r, r_bit=r), left=v, c_word=c, c_cell=c, dt=dt, steps=5).i_bottom
    )
    args = g, v, r, c, dt
    for axes in ((0, 0, 0, 0, 0), (None, 0, None, None, None), (None, None, None, None, 0), (0, None, None, 0, None)):
        given = [x if a == 0 else x[1] for x, a in zip(args, axes, strict=True)]
        got = jax.jit(jax.vmap(f, in_axes=axes))(*given)
        for k in range(3):
            one = f(*(x[k] if a == 0 else x[1] for x, a in zip(args, axes, strict=True)))
            np.testing.assert_allclose(got[k], one, rtol=1e-8, atol=1e-14)


def test_lines_are_factored_once_for_all_steps(x64):
    """Two scans that factor the lines stand outside the scan over time; none of their kind inside."""
    g, v, caps = network()
    f = lambda g: xb.transient(g, WIRES, left=v, **caps, dt=1e-12, steps=77).i_bottom
    outside = []

    def walk(jaxpr):
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "scan":
                outside.append(eqn.params["length"])
            elif eqn.primitive.name in ("jit", "pjit"):
                walk(eqn.params["jaxpr"].jaxpr)

    walk(jax.make_jaxpr(f)(jnp.asarray(g)).jaxpr)
    assert sorted(outside) == [4, 5, 77]  # cols - 1, rows - 1, steps


SPICE_STEP = 2e-15


def spice(g, v, caps, span, tmp_path):
    """Column currents of a step at t = 0 by ngspice: trapezoidal, zero initial voltages."""
    text = xb.spice.netlist(g, WIRES, left=v).split("* analysis")[0]
    for i, j in np.ndindex(*g.shape):
        text += f"cw{i}_{j} w{i}_{j} 0 {float(caps['c_word'][i, j])!r} ic=0\n"
        text += f"cb{i}_{j} b{i}_{j} 0 {float(caps['c_bit'][i, j])!r} ic=0\n"
        text += f"cc{i}_{j} w{i}_{j} b{i}_{j} {float(caps['c_cell'][i, j])!r} ic=0\n"
    names = [f"i(vbottom{j})" for j in range(g.shape[1])] + [f"i(vleft{i})" for i in range(g.shape[0])]
    text += f""".options reltol=1e-6 abstol=1e-18 vntol=1e-12
.control
set numdgt=12
set wr_singlescale
tran {SPICE_STEP!r} {span!r} 0 {SPICE_STEP!r} uic
wrdata {tmp_path / "out.txt"} {" ".join(names)}
.endc
.end
"""
    (tmp_path / "array.cir").write_text(text)
    done = subprocess.run([NGSPICE, "-b", "array.cir"], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert not re.search(r"error|singular|aborted", done.stdout + done.stderr, re.I), done.stdout + done.stderr
    table = np.loadtxt(tmp_path / "out.txt")
    return table[:, 0], table[:, 1 : 1 + g.shape[1]], -table[:, 1 + g.shape[1] :]


@pytest.mark.skipif(NGSPICE is None, reason="ngspice is not installed")
def test_against_ngspice(x64, tmp_path):
    g, v, caps = network(seed=3, shape=(8, 6))
    span, steps = 1.2e-11, 240
    t, i_bottom, i_left = spice(g, v, caps, span, tmp_path)
    error = {}
    for scheme in SCHEMES:
        run = xb.transient(g, WIRES, left=v, **caps, dt=span / steps, steps=steps, scheme=scheme)
        at = np.asarray(run.times)
        settled = at > 1e-12
        for got, want in ((run.i_bottom, i_bottom), (run.i_left, i_left)):
            want = np.stack([np.interp(at, t, x) for x in want.T], axis=1)
            error[scheme] = max(error.get(scheme, 0.0), np.abs(got - want)[settled].max() / np.abs(want[settled]).max())
    # Time steps of 50 fs here, of 2 fs there, time constants of about 1 ps: first and second order.
    assert error["backward_euler"] < 2e-2
    assert error["sdirk2"] < 5e-4
    assert error["sdirk2"] < error["backward_euler"] / 10
