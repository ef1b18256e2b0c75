"""Faults and ageing: requested fractions, levels, the laws of time, and that no effect overwrites another."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.devices import Ageing, Drift, Faulty, Stuck

# 1/16k to 1/100 S: the range of the reported case.
CELL = xb.devices.VTEAM(r_on=100.0, r_off=16e3, v_on=-0.5, v_off=0.5, k_on=-1e-3, k_off=1e-3, a_on=1.0)
LEVELS = [6.25e-5, 3.375e-3, 6.6875e-3, 1e-2]
KEY = jax.random.key(3)


def spread(n):
    return jnp.linspace(6.25e-5, 1e-2, n)[None]


# Stuck cells.


def test_the_fractions_are_met_jointly():
    shape, want = (250, 400), {1: 0.05, 2: 0.1, 3: 0.02, 4: 0.03}
    stuck = Stuck(on=0.05, off=0.1, open=0.02, value=0.03, g=2e-3)
    state = Faulty(device=CELL, stuck=stuck).init(shape, key=KEY)
    share = np.bincount(np.asarray(state.kind).ravel(), minlength=5) / 1e5
    for kind, p in want.items():
        assert abs(share[kind] - p) < 4 * np.sqrt(p * (1 - p) / 1e5)
    assert abs(share[0] - 0.8) < 4 * np.sqrt(0.16 / 1e5)


def test_what_stuck_cells_conduct_and_that_nothing_moves_them(dtype):
    dev = Faulty(device=CELL, stuck=Stuck(on=0.2, off=0.2, open=0.2, value=0.2, g=2e-3))
    state = dev.init((8, 50), key=KEY, dtype=dtype)
    kind = np.asarray(state.kind)
    written = dev.set_conductance(state, 5e-3)
    for s in (state, written, dev.evolve(written, -0.9, 1e-7), dev.evolve(written, 0.9, 1.0)):
        g = np.asarray(dev.conductance(s))
        for k, value in {1: 1e-2, 2: 6.25e-5, 3: 0.0, 4: 2e-3}.items():
            np.testing.assert_allclose(g[kind == k], value, rtol=1e-5)
            np.testing.assert_allclose(np.asarray(dev.current(s, jnp.full(kind.shape, -0.3, dtype)))[kind == k], -0.3 * value, rtol=1e-5)  # fmt: skip
    np.testing.assert_allclose(np.asarray(dev.conductance(written))[kind == 0], 5e-3, rtol=1e-5)
    # Underneath the cell is what it would be: the fault is a part of its own.
    healed = written.replace(kind=jnp.zeros_like(written.kind))
    np.testing.assert_allclose(dev.conductance(healed), 5e-3, rtol=1e-5)


def test_a_mask_is_met_exactly_and_needs_no_key():
    mask = np.zeros((3, 4), bool)
    mask[1, 2] = mask[0, 0] = True
    dev = Faulty(device=CELL, stuck=Stuck(open=mask, value=~mask, g=jnp.full((3, 4), 3e-3)))
    g = dev.conductance(dev.init((3, 4)))
    np.testing.assert_allclose(g, np.where(mask, 0.0, 3e-3), rtol=1e-6)


def test_a_cell_keeps_its_fault_wherever_the_array_is_cut():
    dev = Faulty(device=CELL, stuck=Stuck(on=0.3, open=0.3))
    whole = dev.init((6, 8), key=KEY).kind
    np.testing.assert_array_equal(dev.init((3, 5), key=KEY, row=2, col=1).kind, whole[2:5, 1:6])
    assert (dev.init((6, 8), key=jax.random.key(4)).kind != whole).any()


def test_faults_do_not_change_the_spread_of_the_device():
    varied = CELL.replace(spread={"r_on": xb.devices.Spread(dtod=0.2)})
    dev = Faulty(device=varied, stuck=Stuck(open=0.3), drift=Drift(nu_std=0.01))
    state = dev.init((4, 4), key=KEY)
    np.testing.assert_array_equal(state.inner.cells["r_on"], varied.init((4, 4), key=KEY).cells["r_on"])


# Finite levels.


def test_four_levels_of_the_reported_case(dtype):
    dev = Faulty(device=CELL, levels=4)
    state = dev.set_conductance(dev.init((1, 101), dtype=dtype), spread(101).astype(dtype))
    g = np.unique(np.asarray(dev.conductance(state)))
    assert len(g) == 4
    np.testing.assert_allclose(g, LEVELS, rtol=2e-6 if dtype == np.float32 else 1e-12)
    i = np.unique(np.asarray(dev.current(state, jnp.full((1, 101), 0.2, dtype))).round(9))
    np.testing.assert_allclose(i, 0.2 * np.array(LEVELS), rtol=1e-5)
    # The nearest one: the middle between two levels divides them.
    near = np.argmin(np.abs(np.asarray(spread(101)).T - LEVELS), axis=1)
    got = np.asarray(dev.conductance(state))[0]
    middle = np.abs(np.diff(np.sort(np.abs(np.asarray(spread(101)).T - LEVELS), axis=1)[:, :2])).ravel() < 1e-6
    np.testing.assert_allclose(got[~middle], np.array(LEVELS)[near][~middle], rtol=1e-5)


@pytest.mark.parametrize(
    ("levels", "want"), [(2, [6.25e-5, 1e-2]), (1, [0.5 * (6.25e-5 + 1e-2)]), ([1e-3, 4e-3, 7e-3], [1e-3, 4e-3, 7e-3])]
)
def test_two_levels_one_and_a_list(levels, want):
    dev = Faulty(device=CELL, levels=jnp.asarray(levels) if isinstance(levels, list) else levels)
    state = dev.set_conductance(dev.init((1, 33)), spread(33))
    np.testing.assert_allclose(np.unique(dev.conductance(state)), want, rtol=1e-5)


def test_levels_can_be_swept_and_pass_derivatives():
    state = CELL.set_conductance(CELL.init((1, 40)), spread(40))

    def distinct(levels):
        dev = Faulty(device=CELL, levels=levels)
        g = dev.conductance(dev.init((1, 40)).replace(inner=state))
        return (jnp.diff(jnp.sort(g)) > 1e-5).sum() + 1

    np.testing.assert_array_equal(jax.vmap(distinct)(jnp.array([1.0, 2.0, 5.0, 16.0])), [1, 2, 5, 16])
    read = lambda dev, x: dev.conductance(dev.init((1, 1)).replace(inner=CELL.init((1, 1), x=x)))[0, 0]
    own = jax.grad(lambda x: CELL.conductance(CELL.init((1, 1), x=x))[0, 0])(1e-9)
    np.testing.assert_allclose(jax.grad(lambda x: read(Faulty(device=CELL, levels=3), x))(1e-9), own, rtol=1e-6)


# Time and wear.


def test_drift_follows_its_power_law():
    dev = Faulty(device=CELL, drift=Drift(nu=0.05, t0=10.0))
    state = dev.set_conductance(dev.init((1, 2)), 4e-3)
    for t, want in ((0.0, 1.0), (10.0, 1.0), (3600.0, 360.0**-0.05), (1e7, 1e6**-0.05)):
        held = dev.evolve(state, 0.0, t)
        np.testing.assert_allclose(dev.conductance(held), 4e-3 * want, rtol=1e-5)
        np.testing.assert_allclose(dev.conductance(dev.aged(state, t=t)), 4e-3 * want, rtol=1e-5)
    rewritten = dev.set_conductance(dev.aged(state, t=1e7), 2e-3)
    np.testing.assert_allclose(dev.conductance(rewritten), 2e-3, rtol=1e-5)
    pulsed = dev.evolve(dev.aged(state, t=1e7), -1.0, 1e-6)  # a full SET writes the cell anew
    np.testing.assert_allclose(dev.conductance(pulsed), 1e-2, rtol=1e-5)
    wide = Faulty(device=CELL, drift=Drift(nu=0.05, nu_std=0.01)).init((100, 100), key=KEY)
    assert abs(float(wide.nu.mean()) - 0.05) < 4e-4 and abs(float(wide.nu.std()) - 0.01) < 3e-4


# p0, p1 (per nm), p2, p3 of each end; what they give at 350 K and 10 nm, by hand.
ON, OFF = (2e3, 0.05, 0.8, 0.4), (5e2, 0.02, -0.3, -0.2)
TC = 298.0 / 350.0


def law(p, r0, x, stable=None):
    limit = p[0] * np.exp(p[1] * 10 + p[2] * TC)
    if x <= limit:
        return r0
    if stable is not None:
        return stable
    return 10 ** (np.log10(r0) + p[3] * (p[1] * 10 + p[2] * TC) * (np.log10(x) - np.log10(limit)))


@pytest.mark.parametrize("what", ["retention", "endurance"])
@pytest.mark.parametrize("mode", ["sudden", "gradual"])
def test_ageing_against_its_formulas(what, mode):
    ageing = Ageing(on=ON, off=OFF, temperature=350.0, mode=mode, r_stable_on=700.0, r_stable_off=5e3)
    dev = Faulty(device=CELL, **{what: ageing})
    r0 = np.array([[150.0, 12e3]])  # one near each end
    state = dev.set_conductance(dev.init((1, 2)), jnp.asarray(1 / r0, jnp.float32))
    for x in (400.0, 600.0, 5e3, 1e6):
        aged = dev.aged(state, **{"t" if what == "retention" else "cycles": x})
        # What was written counts as half a way over the range at most.
        stable = (700.0, 5e3) if mode == "sudden" else (None, None)
        want = [[law(p, r, x, s) for p, r, s in zip((ON, OFF), r0[0], stable, strict=True)]]
        rtol = 1e-4 if what == "retention" else 2e-3
        np.testing.assert_allclose(1 / np.asarray(dev.conductance(aged)), want, rtol=rtol)
    moved = np.asarray(1 / dev.conductance(dev.aged(state, t=1e6, cycles=1e6)))
    assert (np.abs(moved / r0 - 1) > 0.05).all()


def test_switching_there_and_back_is_one_cycle_however_it_is_cut():
    dev = Faulty(device=CELL, endurance=Ageing(on=(1e30, 0.0, 0.0, 0.0)))
    state = dev.init((1, 2))
    there = dev.evolve(state, -1.0, 1e-3)
    np.testing.assert_allclose(there.cycles, 0.5, rtol=1e-5)
    np.testing.assert_allclose(dev.evolve(there, 1.0, 1e-3).cycles, 1.0, rtol=1e-5)
    cut = state
    for _ in range(10):
        cut = dev.evolve(cut, -1.0, 2e-7)
    np.testing.assert_allclose(cut.cycles, dev.evolve(state, -1.0, 2e-6).cycles, rtol=1e-4)
    assert float(cut.cycles[0, 0]) > 1e-3


def test_reads_disturb_as_the_device_moves_and_are_counted():
    soft = CELL.replace(v_on=-0.05, k_on=-1e-6, v_read=-0.1)
    dev = Faulty(device=soft, t_read=1e-6)
    state = dev.set_conductance(dev.init((2, 2)), 1e-3)
    read = dev.read(state, n=500)
    np.testing.assert_allclose(read.i, -0.1 * 1e-3, rtol=1e-5)
    np.testing.assert_array_equal(read.state.reads, 500)
    # dw = k_on (v/v_on - 1)^a t = -1e-6 * 1 * 5e-4 s, of 3 nm.
    r = 1e3 - (16e3 - 100) * 5e-10 / 3e-9
    np.testing.assert_allclose(1 / dev.conductance(read.state), max(r, 100.0), rtol=1e-4)
    half = dev.read(dev.read(state, n=5).state, n=5).state
    np.testing.assert_allclose(dev.conductance(half), dev.conductance(dev.read(state, n=10).state), rtol=1e-6)
    np.testing.assert_array_equal(half.reads, 10)


# Composition.


def test_effects_compose_in_their_order_and_leave_each_other_alone(x64):
    retention = Ageing(on=(1e3, 0.0, 1.0, 0.5), off=(1e3, 0.0, 1.0, 0.5), mode="gradual")
    mask = np.array([[False, False, True]])
    dev = Faulty(device=CELL, levels=4, drift=Drift(nu=0.1), retention=retention, stuck=Stuck(value=mask, g=1.5e-3))
    state = dev.set_conductance(dev.init((1, 3), dtype=jnp.float64), jnp.array([[3e-3, 9.9e-3, 3e-3]]))
    aged = dev.aged(state, t=1e5)
    level = np.array([3.375e-3, 1e-2])
    late = (1e5 / (1e3 * np.e)) ** -0.5  # 10^(p3 p2 log10(x/x_th)) on the resistance
    want = [*(level * 1e5**-0.1 * late), 1.5e-3]
    np.testing.assert_allclose(dev.conductance(aged), [want], rtol=1e-9)
    np.testing.assert_allclose(dev.current(aged, jnp.full((1, 3), 0.1)), [0.1 * np.array(want)], rtol=1e-9)
    # Each leaf still holds its own.
    np.testing.assert_allclose(CELL.conductance(aged.inner), [[3e-3, 9.9e-3, 3e-3]], rtol=1e-9)
    fresh = aged.replace(age=jnp.zeros((1, 3)), kind=jnp.zeros((1, 3), jnp.int32))
    np.testing.assert_allclose(dev.conductance(fresh), [[*level, 3.375e-3]], rtol=1e-9)


def test_under_programming_the_stuck_cells_never_converge():
    mask = np.zeros((4, 4), bool)
    mask[0, 1] = mask[3, 3] = True
    cell = xb.devices.VTEAM(r_on=5e3, r_off=1e5, v_on=-0.6, v_off=0.6)
    dev = Faulty(device=cell, stuck=Stuck(on=mask), drift=Drift(), endurance=Ageing(on=(1e6, 0, 0, 0)))
    state = dev.init((4, 4))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        out = xb.programming.write_verify(dev, state, jnp.full((4, 4), 5e-5), tolerance=0.02, max_pulses=40)
    np.testing.assert_array_equal(out.converged, ~mask)
    assert (np.asarray(out.pulses)[mask] == 40).all()
    np.testing.assert_allclose(np.asarray(out.conductance)[~mask], 5e-5, rtol=0.021)
    assert (np.asarray(out.state.cycles) > 0).any()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Faulty(device=CELL, levels=0), "levels must be a whole number >= 1, got 0"),
        (lambda: Faulty(device=CELL, levels=2.5), "levels must be a whole number >= 1, got 2.5"),
        (lambda: Faulty(device=CELL, levels=np.array([1e-3, np.nan])), "levels must be finite"),
        (lambda: Faulty(device=CELL, stuck=Stuck(on=1.2)), "Stuck: on must be >= 0 and <= 1, got 1.2"),
        (lambda: Faulty(device=CELL, stuck=Stuck(on=0.6, off=0.6)), "on + off + open + value must be at most 1"),
        (lambda: Faulty(device=CELL, stuck=Stuck(open=np.zeros((3, 3)))), "Stuck: open must be a number or of shape"),
        (lambda: Faulty(device=CELL, drift=Drift(t0=0.0)), "Drift: t0 must be > 0"),
        (lambda: Faulty(device=CELL, retention=Ageing(mode="slow")), "retention: mode must be 'sudden' or 'gradual'"),
        (lambda: Faulty(device=CELL, retention=Ageing(mode="gradual")), "retention: on or off must have a finite p0"),
        (lambda: Faulty(device=CELL, endurance=Ageing(on=(1.0, 2.0))), r"endurance: on must be \(p0, p1, p2, p3\)"),
    ],
)
def test_mistakes_are_named(build, message):
    with pytest.raises(ValueError, match=message.replace("+", r"\+")):
        build().init((2, 2), key=KEY)


def test_a_fault_that_is_drawn_needs_a_key():
    with pytest.raises(TypeError, match=r"Faulty\.init: key must be given"):
        Faulty(device=CELL, stuck=Stuck(on=0.1)).init((2, 2))
