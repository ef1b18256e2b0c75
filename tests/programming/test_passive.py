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


def program(g, scheme="third", schedule="row", state=None):
    """A program of (3, 4) cells; one compilation for each scheme and schedule."""
    state = VTEAM.init((3, 4), x=1.5e-9) if state is None else state
    return program_passive(
        VTEAM, state, jnp.asarray(g, jnp.float32), WIRES, scheme=scheme, schedule=schedule, tolerance=0.02
    )


@pytest.mark.parametrize(("scheme", "schedule"), [("half", "cell"), ("third", "row"), ("floating", "column")])
def test_an_independent_solve_reads_the_targets(scheme, schedule):
    g = targets((3, 4))
    out = program(g, scheme, schedule)
    now = 1 / (R_ON + (R_OFF - R_ON) * np.asarray(out.state.x, float) / W)
    error = reads(now) / reads(g) - 1
    assert out.converged.all() and bool(out.solved) and (np.abs(error) <= 0.0201).all()
    np.testing.assert_allclose(out.error, error, atol=1e-4)
    np.testing.assert_allclose(out.conductance, now, rtol=1e-4)
    # Floating lines of a small array leave more than half of the voltage on cells that nobody selected.
    assert (float(out.disturb.max()) < 1e-6) == (scheme != "floating")
    assert (out.pulses >= 1).sum() > 8 and (out.energy > 0).all() and float(out.energy_wires) > 0


def test_vmap_is_a_loop_over_arrays():
    g = targets((3, 3, 4))
    many = jax.vmap(program)(jnp.asarray(g, jnp.float32))
    assert len(set(many.steps.tolist())) > 1
    for k in range(3):
        one = program(g[k])
        assert int(one.steps) == int(many.steps[k]) and (one.pulses == many.pulses[k]).all()
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[k], b, rtol=1e-4, atol=1e-7), many, one)


@pytest.mark.parametrize("bad", [np.s_[1, 2], np.s_[:, :]])
def test_a_read_that_is_no_number_ends(bad):
    """A cell of no conductance leaves no voltage of its array defined."""
    state = VTEAM.init((3, 4), x=1.5e-9)
    out = program(targets((3, 4)), state=state.replace(x=state.x.at[bad].set(jnp.nan)))
    assert not out.converged[bad].any() and np.isnan(out.error[bad]).all() and int(out.steps) < 100
    assert not bool(out.solved) and not out.converged.any()


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


def test_half_selected_cells_move_as_they_must_and_every_pulse_heats(x64):
    """Thresholds below V/2: a neighbour moves at its own constant rate for as long as a pulse of another cell lasts,
    and so does a cell whose own pulse was the shorter one. Heat by the node equations, at the start of an interval.
    """
    dev = xb.devices.VTEAM(r_on=R_ON, r_off=R_OFF, v_on=-0.4, v_off=0.4, k_on=-5e-4, a_on=1.0)
    state = dev.init((2, 2), dtype=jnp.float64, x=2e-9)
    mask = jnp.array([[True, True], [False, False]])
    control = ISPP(v_up=1.0, step_up=0.0, width_up=jnp.array([1e-7, 2e-7]))

    def run(r, widths):
        return program_passive(
            dev,
            state,
            2e-4,
            xb.Wires(r_word=r, r_bit=r),
            schedule="row",
            control=control.replace(width_up=jnp.asarray(widths)),
            mask=mask,
            max_pulses=2,
        )

    out = run(0.0, [1e-7, 2e-7])
    moved = lambda x, v: x - 5e-4 * (v / 0.4 - 1) * 1e-7
    r = lambda w: R_ON + (R_OFF - R_ON) * w / W
    x, disturb, energy = np.full((2, 2), 2e-9), np.zeros((2, 2)), np.zeros((2, 2))
    left = x.copy()
    for v in 2 * [np.array([[1.0, 1.0], [0.5, 0.5]]), np.array([[0.5, 1.0], [0.0, 0.5]])]:
        energy += v * v / r(x) * 1e-7
        x = np.where(v > 0.4, moved(x, v), x)
        left = np.where(v == 1.0, x, left)
        disturb = np.maximum(disturb, r(left) / r(x) - 1)
    assert disturb[0, 0] > 0 and out.pulses.tolist() == [[2, 2], [0, 0]]
    np.testing.assert_allclose(out.disturb, disturb, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(1 / out.conductance, r(x), rtol=1e-8)
    np.testing.assert_allclose(out.energy, energy, rtol=1e-8)
    assert abs(float(out.energy_wires)) < 1e-12 * energy.sum()

    out = run(500.0, [1e-15, 1e-15])
    sol = nodal(np.full((2, 2), 1 / r(2e-9)), 500.0, 500.0, left=[-0.5, 0.0], bottom=[0.5, 0.5])
    v = sol["v_word"] - sol["v_bit"]
    cells = v * v / r(2e-9)
    supplied = [-0.5, 0.0] @ sol["i_left"] - [0.5, 0.5] @ sol["i_bottom"]
    np.testing.assert_allclose(out.energy, 2e-15 * cells, rtol=1e-5)
    np.testing.assert_allclose(out.energy_wires, 2e-15 * (supplied - cells.sum()), rtol=1e-5)


def test_stuck_cells_and_targets_out_of_reach_leave_the_rest():
    """A device random in time, too: it needs a key, and repeats with the same one."""
    open_, on = (jnp.zeros((2, 3), bool).at[k].set(True) for k in ((0, 0), (1, 1)))
    vteam = VTEAM.replace(spread={"k_on": xb.devices.Spread(dtod=0.2, ctoc=0.2)})
    dev = xb.devices.Faulty(device=vteam, stuck=xb.devices.Stuck(open=open_, on=on))
    state = dev.init((2, 3), key=jax.random.key(0), x=1e-9)
    g = jnp.full((2, 3), 1e-4).at[0, 1].set(1e-3).at[1, 2].set(1e-7)
    with pytest.raises(TypeError, match="key must be given"):
        program_passive(dev, state, g, WIRES)
    run = lambda seed: program_passive(
        dev, state, g, None, key=jax.random.key(seed), schedule="row", max_pulses=30, max_passes=6, tolerance=0.02
    )
    out, same, other = run(1), run(1), run(2)
    assert out.converged.tolist() == [[False, False, True], [True, False, False]] and bool(out.solved)
    assert np.isfinite(out.disturb).all() and np.isfinite(out.error).all() and int(out.pulses.max()) == 30
    np.testing.assert_allclose(out.conductance[[0, 1], [0, 1]], [0.0, 1 / R_ON], rtol=1e-6)
    np.testing.assert_allclose(out.error[[0, 1], [0, 1]], [-1.0, 1.0], rtol=1e-5)
    assert (out.energy == same.energy).all() and (out.energy != other.energy).any()


@pytest.mark.long
def test_jart_cells_switch_on():
    """Currents that are not ohmic, a motion that runs away: all reach their targets within what the wires leave open."""
    dev = xb.devices.JARTv1b()
    state = dev.init((2, 2))
    control = AdaptiveWidth(v_up=0.7, v_down=0.9, width_up=1e-8, width_down=1e-8, longest=1e-3)
    out = program_passive(dev, state, 6e-4, WIRES, control=control, tolerance=0.05, max_pulses=30, max_passes=3)
    assert out.converged.all() and bool(out.solved) and (out.pulses >= 1).all() and int(out.steps) < 100
    assert (out.state.n > 100 * state.n).all() and (np.abs(out.conductance / 6e-4 - 1) < 0.1).all()
    assert float(out.disturb.max()) < 1e-3 and (out.energy > 0).all()


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


def test_row_verify_programs_the_reads_and_derivatives_follow_through_the_loop(x64):
    """The reads by the node equations; derivatives by schedule and device against differences."""
    g = 0.8 * targets((3, 2))
    state = VTEAM.init((3, 2), dtype=jnp.float64)
    control = ISPP(v_up=0.7, v_down=0.7, step_up=0.01, step_down=0.01, width_up=1e-9, width_down=1e-7)

    def programmed(x):
        v_up, k_on = x
        return program_passive(
            VTEAM.replace(k_on=k_on),
            state,
            jnp.asarray(g),
            WIRES,
            schedule="row",
            verify="row",
            control=control.replace(v_up=v_up),
            tolerance=0.02,
        )

    both = jax.jit(lambda at, along: jax.jvp(programmed, (at,), (along,)))
    at = jnp.array([0.7, -10.0])
    for along, h in ((jnp.array([1.0, 0.0]), 1e-6), (jnp.array([0.0, 1.0]), 1e-5)):
        out, slope = both(at, along)
        now = 1 / (R_ON + (R_OFF - R_ON) * np.asarray(out.state.x) / W)
        assert out.converged.all() and (np.abs(reads(now) / g - 1) <= 0.0201).all()
        np.testing.assert_allclose(out.error, reads(now) / g - 1, atol=1e-8)
        ends = [both(at + d * h * along, along)[0] for d in (1, -1)]
        assert all((end.pulses == out.pulses).all() for end in ends)
        want = (ends[0].conductance - ends[1].conductance) / (2 * h)
        np.testing.assert_allclose(slope.conductance, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(scheme="quarter"), "scheme must be one of half, third, floating"),
        (dict(schedule="all"), "schedule must be one of cell, row, column"),
        (dict(verify="none"), "verify must be one of cell, row"),
        (dict(v_read=jnp.ones(2)), r"v_read must be one number, got \[2\]"),
        (dict(v_read=0.0), "v_read must be a finite voltage other than 0 V"),
        (dict(g_target=0.0), "g_target must be finite and > 0 S"),
    ],
)
def test_errors_name_the_argument(changes, message):
    options = dict(g_target=1e-4, wires=WIRES) | changes
    with pytest.raises(ValueError, match=message):
        program_passive(VTEAM, VTEAM.init((2, 2)), options.pop("g_target"), options.pop("wires"), **options)
