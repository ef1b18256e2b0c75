"""Passive arrays against independent solves of their networks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import nodal
from scipy.optimize import root

import xbar_jax as xb
from xbar_jax.programming import ISPP, AdaptiveWidth, program_passive, pulse_array
from xbar_jax.programming.lines import Scheme

R_ON, R_OFF, W = 5e3, 1e5, 3e-9
VTEAM = xb.devices.VTEAM(r_on=R_ON, r_off=R_OFF, v_on=-0.6, v_off=0.6)
R = 20.0
WIRES = xb.Wires(r_word=R, r_bit=R)


def reads(g, r=R):
    """Every cell read in its row, by the dense node equations."""
    return np.stack([nodal(g, r, r, left=np.eye(len(g))[k], bottom=0.0)["i_bottom"] for k in range(len(g))])


def targets(shape, seed=0):
    return np.random.default_rng(seed).uniform(4.8e-5, 1.62e-4, shape)


@pytest.mark.parametrize(("scheme", "schedule"), [("half", "cell"), ("third", "row"), ("floating", "column")])
def test_an_independent_solve_reads_the_targets(scheme, schedule):
    g = targets((3, 4))
    state = VTEAM.init((3, 4), x=1.5e-9)
    out = program_passive(
        VTEAM, state, jnp.asarray(g, jnp.float32), WIRES, scheme=scheme, schedule=schedule, tolerance=0.02
    )
    now = 1 / (R_ON + (R_OFF - R_ON) * np.asarray(out.state.x, float) / W)
    error = reads(now) / reads(g) - 1
    assert out.converged.all() and (np.abs(error) <= 0.0201).all()
    np.testing.assert_allclose(out.error, error, atol=1e-4)
    np.testing.assert_allclose(out.conductance, now, rtol=1e-4)
    # Floating lines of a small array leave more than half of the voltage on cells that nobody selected.
    assert (float(out.disturb.max()) < 1e-6) == (scheme != "floating")
    assert (out.pulses >= 1).sum() > 8 and (out.energy > 0).all() and float(out.energy_wires) > 0


def test_row_verify_programs_the_reads_themselves(dtype):
    g = 0.8 * targets((4, 3))
    state = VTEAM.init((4, 3), dtype=dtype)
    out = program_passive(VTEAM, state, jnp.asarray(g, dtype), WIRES, schedule="row", verify="row", tolerance=0.005)
    now = 1 / (R_ON + (R_OFF - R_ON) * np.asarray(out.state.x, float) / W)
    assert out.converged.all() and out.error.dtype == dtype
    assert (np.abs(reads(now) / g - 1) <= 0.0051).all()
    eps = 1e-4 if dtype == np.float32 else 1e-8
    np.testing.assert_allclose(out.error, reads(now) / g - 1, atol=eps)


def test_schemes_put_their_voltages_on_the_cells():
    on, a = jnp.array([True, False, True]), jnp.array([0.9, 0.0, 0.7])
    at = jnp.array([False, True])

    def cells(scheme):
        left, bottom = scheme.write(at, jnp.float32(0.9), a, on)
        return np.asarray(left)[:, None] - np.asarray(bottom)[None, :]

    half = np.array([[0.45, 0.0, 0.25], [0.9, 0.45, 0.7]])
    third = np.array([[0.3, -0.3, 0.1], [0.9, 0.3, 0.7]])
    np.testing.assert_allclose(cells(Scheme(name="half")), half, atol=1e-7)
    np.testing.assert_allclose(cells(Scheme(name="third")), third, atol=1e-7)
    np.testing.assert_allclose(cells(Scheme(name="half", across=False)), half.T, atol=1e-7)
    np.testing.assert_allclose(cells(Scheme(name="third", across=False)), third.T, atol=1e-7)


def sinh_reads(dev, x, v, r):
    """Currents per volt of each cell read in its row, Kirchhoff's laws for i = a x sinh(b v) by scipy."""
    m, n = x.shape
    law = lambda u: dev.a1 * x * np.sinh(dev.b * u)

    def balance(y, drive):
        vw, vb = y.reshape(2, m, n)
        word = np.concatenate([drive[:, None], vw], axis=1)
        along = (word[:, :-1] - word[:, 1:]) / r
        down = (vb - np.concatenate([vb[1:], np.zeros((1, n))])) / r
        i = law(vw - vb)
        out_w = np.concatenate([along[:, 1:], np.zeros((m, 1))], axis=1)
        into_b = np.concatenate([np.zeros((1, n)), down[:-1]])
        return np.concatenate([(along - out_w - i).ravel(), (into_b + i - down).ravel()])

    rows = []
    for k in range(m):
        drive = v * np.eye(m)[k]
        start = np.stack([np.repeat(drive[:, None], n, 1), np.zeros((m, n))]).ravel()
        y = root(balance, start, args=(drive,), tol=1e-12)
        rows.append(y.x.reshape(2, m, n)[1, -1] / r / v)
    return np.stack(rows)


def test_cells_that_are_not_ohmic(x64):
    dev = xb.devices.Yakopcic(a1=2e-4, a2=2e-4, b=2.0, ap=40.0, an=40.0, vp=0.6, vn=0.6)
    state = dev.init((4, 4), dtype=jnp.float64)
    g = np.random.default_rng(1).uniform(0.3, 0.7, (4, 4)) * 4e-4
    control = AdaptiveWidth(width_up=1e-5, width_down=1e-5)
    out = program_passive(dev, state, jnp.asarray(g), WIRES, schedule="row", control=control, tolerance=0.02)
    goal = np.asarray(dev.set_conductance(state, jnp.asarray(g)).x)
    error = sinh_reads(dev, np.asarray(out.state.x), 0.1, R) / sinh_reads(dev, goal, 0.1, R) - 1
    assert out.converged.all() and (np.abs(error) <= 0.0201).all()
    np.testing.assert_allclose(out.error, error, atol=1e-6)
    assert float(out.disturb.max()) < 1e-9


def test_half_selected_cells_are_disturbed_as_they_must_be(x64):
    """Ideal wires, thresholds below V/2: the neighbour moves at its own constant rate for as long as pulses last."""
    dev = xb.devices.VTEAM(r_on=R_ON, r_off=R_OFF, v_on=-0.4, v_off=0.4, k_on=-5e-4, a_on=1.0)
    control = ISPP(v_up=1.0, step_up=0.0, width_up=1e-7)
    mask = jnp.array([[True, False], [False, False]])
    state = dev.init((2, 2), dtype=jnp.float64, x=2e-9)
    out = program_passive(dev, state, 4e-5, None, control=control, mask=mask, tolerance=0.2)
    t = 1e-7 * int(out.pulses[0, 0])
    moved = lambda v, t: 2e-9 - 5e-4 * (v / 0.4 - 1) * t
    r = lambda w: R_ON + (R_OFF - R_ON) * w / W
    neighbour = r(2e-9) / r(moved(0.5, t)) - 1
    np.testing.assert_allclose(out.disturb, [[0.0, neighbour], [neighbour, 0.0]], rtol=1e-6, atol=1e-12)
    assert out.pulses.tolist()[0][0] > 1 and out.converged.tolist() == mask.tolist()
    np.testing.assert_allclose(1 / out.conductance[0, 0], r(moved(1.0, t)), rtol=1e-8)


def test_energy_of_one_cell(x64):
    """One pulse through two segments: i = V/(R + 2 r) at its beginning."""
    state = VTEAM.set_conductance(VTEAM.init((1, 1), dtype=jnp.float64), 1e-4)
    control = ISPP(v_down=1.1, width_down=1e-9)
    out = program_passive(VTEAM, state, 1e-5, xb.Wires(r_word=500.0, r_bit=300.0), control=control, max_pulses=1)
    i = 1.1 / (1e4 + 800)
    assert int(out.pulses[0, 0]) == 1
    np.testing.assert_allclose(out.energy, i * i * 1e4 * 1e-9, rtol=1e-8)
    np.testing.assert_allclose(out.energy_wires, i * i * 800 * 1e-9, rtol=1e-8)
    rate = 5e-4 * (i * 1e4 / 0.6 - 1) * (R_OFF - R_ON) / W
    np.testing.assert_allclose(1 / out.conductance, 1e4 + rate * 1e-9, rtol=1e-9)


def test_what_cannot_be_reached_ends_and_leaves_the_rest():
    g = jnp.full((2, 3), 1e-4).at[0, 1].set(1e-3).at[1, 2].set(1e-7)
    dev = VTEAM.replace(window="joglekar")
    state = dev.init((2, 3), x=1e-9)
    state = state.replace(x=state.x.at[0, 0].set(0.0))
    out = program_passive(dev, state, g, WIRES, schedule="row", max_pulses=30, max_passes=6, tolerance=0.02)
    assert out.converged.tolist() == [[False, False, True], [True, True, False]]
    assert int(out.pulses.max()) == 30 and float(out.conductance[0, 0]) == pytest.approx(1 / R_ON, rel=1e-5)


def test_vmap_is_a_loop_over_arrays():
    g = jnp.asarray(targets((3, 2, 3)), jnp.float32)
    state = VTEAM.init((2, 3))
    f = jax.jit(lambda g: program_passive(VTEAM, state, g, WIRES, schedule="row"))
    many = jax.vmap(f)(g)
    assert len(set(many.steps.tolist())) > 1
    for k in range(3):
        one = f(g[k])
        assert int(one.steps) == int(many.steps[k]) and (one.pulses == many.pulses[k]).all()
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[k], b, rtol=1e-4, atol=1e-7), many, one)


def test_derivatives_of_a_sequence_of_pulses(x64):
    """Both modes, through the wires, against differences."""
    state, line = VTEAM.init((2, 2), dtype=jnp.float64, x=1.5e-9), jnp.eye(2)

    def outcome(v, k_on):
        dev = VTEAM.replace(k_on=k_on)

        def one(s, k):
            left, bottom = -0.5 * v * line[k // 2], 0.5 * v * line[k % 2]
            return pulse_array(dev, s, WIRES, left=left, bottom=bottom, t=2e-10)[0], None

        return dev.conductance(jax.lax.scan(one, state, jnp.array([0, 3, 1, 0]))[0]).ravel()

    at = (1.1, -10.0)
    reverse, forward = (jnp.stack(d(outcome, (0, 1))(*at)) for d in (jax.jacrev, jax.jacfwd))
    for n, h in ((0, 1e-6), (1, 1e-5)):
        ends = [outcome(*(x + d * h * (i == n) for i, x in enumerate(at))) for d in (1, -1)]
        want = (ends[0] - ends[1]) / (2 * h)
        assert np.abs(want).max() > 0
        for found in (reverse, forward):
            np.testing.assert_allclose(found[n], want, rtol=1e-5, atol=1e-7 * np.abs(want).max())


def test_derivative_through_the_loop(x64):
    g = jnp.asarray(targets((2, 2)))
    state = VTEAM.init((2, 2), dtype=jnp.float64)
    control = ISPP(v_up=0.7, v_down=0.7, step_up=0.01, step_down=0.01, width_up=1e-9, width_down=1e-7)

    def programmed(v):
        out = program_passive(VTEAM, state, g, WIRES, control=control.replace(v_up=v), tolerance=0.05)
        return out.conductance, out.pulses

    (at, pulses), (slope, _) = jax.jvp(programmed, (0.7,), (1.0,))
    ends = [programmed(0.7 + h) for h in (1e-6, -1e-6)]
    assert all((p == pulses).all() for _, p in ends)
    np.testing.assert_allclose(slope, (ends[0][0] - ends[1][0]) / 2e-6, rtol=1e-3, atol=1e-4 * float(at.max()))


def test_random_devices_need_a_key():
    dev = VTEAM.replace(spread={"k_on": xb.devices.Spread(dtod=0.2, ctoc=0.2)})
    state = dev.init((2, 2), key=jax.random.key(0))
    with pytest.raises(TypeError, match="key must be given"):
        program_passive(dev, state, 1e-4, WIRES)
    run = lambda seed: program_passive(dev, state, 1e-4, WIRES, key=jax.random.key(seed), tolerance=0.05)
    a, b, c = run(1), run(1), run(2)
    assert a.converged.all() and (a.conductance == b.conductance).all() and (a.conductance != c.conductance).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(scheme="quarter"), "scheme must be one of half, third, floating"),
        (dict(schedule="all"), "schedule must be one of cell, row, column"),
        (dict(verify="none"), "verify must be one of cell, row"),
        (dict(v_read=jnp.ones(2)), r"v_read must be one number, got \[2\]"),
        (dict(g_target=0.0), "g_target must be finite and > 0 S"),
    ],
)
def test_errors_name_the_argument(changes, message):
    options = dict(g_target=1e-4, wires=WIRES) | changes
    with pytest.raises(ValueError, match=message):
        program_passive(VTEAM, VTEAM.init((2, 2)), options.pop("g_target"), options.pop("wires"), **options)
