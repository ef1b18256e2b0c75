"""Write and verify against closed forms of VTEAM's motion."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.programming import ISPP, AdaptiveAmplitude, AdaptiveWidth, write_verify

R_ON, R_OFF, W = 5e3, 1e5, 3e-9
VTEAM = xb.devices.VTEAM(r_on=R_ON, r_off=R_OFF, v_on=-0.6, v_off=0.6)


def conductance(w):
    return 1 / (R_ON + (R_OFF - R_ON) * np.asarray(w, float) / W)


def targets(shape, seed=0, low=2e-5, high=1.8e-4):
    return np.random.default_rng(seed).uniform(low, high, shape)


CONTROLS = {
    "ispp": ISPP(v_up=0.62, v_down=0.62, step_up=0.01, step_down=0.01, v_max=1.5, width_up=2e-9, width_down=1e-6),
    "width": AdaptiveWidth(),
    "amplitude": AdaptiveAmplitude(v_max=1.5, width_up=2e-9, width_down=2e-6),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_cells_reach_their_targets_from_either_side(control, dtype):
    g = targets((4, 5))
    fresh = VTEAM.init(g.shape, dtype=dtype)
    state = VTEAM.set_conductance(fresh, jnp.asarray(np.where(np.arange(5) % 2, 1.9e-4, 1.2e-5) + 0 * g, dtype))
    out = write_verify(VTEAM, state, jnp.asarray(g), control=CONTROLS[control], tolerance=0.01, max_pulses=60)
    seen = conductance(out.state.x)
    assert out.converged.all() and out.conductance.dtype == dtype
    assert (np.abs(seen / g - 1) <= 0.0101).all()
    np.testing.assert_allclose(out.conductance, seen, rtol=1e-4 if dtype == np.float32 else 1e-9)
    np.testing.assert_allclose(out.error, seen / g - 1, atol=1e-4)
    assert int(out.pulses.max()) == int(out.steps) and bool(out.solved) and (np.asarray(out.disturb) == 0).all()
    if control != "ispp":
        assert float(out.pulses.mean()) < (17 if control == "amplitude" else 11)


def test_width_foretells_an_exponential_rate():
    """dy/dt = r exp(s y): once s is seen, one pulse is exact."""
    control, rate, s = AdaptiveWidth(growth=100.0, width_up=0.05, longest=100.0), 3.0, -1.7
    y = np.zeros(1, np.float32)
    memory = control.start((1,), jnp.float32)
    fired = jnp.ones(1, bool)
    for wanted in (0.5, 0.6, 0.8, 0.7, 0.6, 0.5):
        _, t = control.pulse(memory, jnp.asarray(y), jnp.full(1, wanted, jnp.float32))
        new = np.log(np.exp(-s * y) - s * rate * np.asarray(t)) / -s
        memory = control.learn(
            memory, fired, None, t, jnp.asarray(y), jnp.asarray(new, jnp.float32), jnp.full(1, wanted, jnp.float32)
        )
        error, y = new - y - wanted, new.astype(np.float32)
    np.testing.assert_allclose(error, 0, atol=0.03)


def test_ispp_raises_its_amplitude_and_begins_anew_in_the_other_direction():
    control = ISPP(v_up=0.8, v_down=0.7, step_up=0.1, step_down=0.05, v_max=1.05, width_up=1.0, width_down=2.0)
    memory = control.start((), jnp.float32)
    seen = []
    for wanted in (1, 1, 1, 1, -1, -1, 1):
        v, t = control.pulse(memory, jnp.float32(0), jnp.float32(wanted))
        memory = control.learn(memory, jnp.bool_(True), v, t, None, jnp.float32(0), jnp.float32(wanted))
        memory = control.renew(memory, jnp.bool_(False))
        seen.append((float(v), float(t)))
    np.testing.assert_allclose([v for v, _ in seen], [0.8, 0.9, 1.0, 1.05, 0.7, 0.75, 0.8], rtol=1e-6)
    assert [t for _, t in seen] == [1, 1, 1, 1, 2, 2, 1]


def test_what_cannot_be_reached_ends():
    """Targets beyond both ends, and cells that Joglekar's window locks at theirs."""
    locked = VTEAM.replace(window="joglekar")
    g = jnp.array([[1e-3, 1e-6, 1e-4, 1e-4]])
    state = locked.init((1, 4))
    state = state.replace(x=jnp.array([[1e-9, 1e-9, 0.0, 1e-9]], jnp.float32))
    out = write_verify(locked, state, g, max_pulses=25)
    assert out.converged.tolist() == [[False, False, False, True]]
    assert out.pulses.tolist()[0][:3] == [25, 25, 25]
    assert float(out.conductance[0, 2]) == pytest.approx(1 / R_ON, rel=1e-6) and np.isfinite(out.error).all()


def test_mask_leaves_cells_alone():
    g = targets((4, 5))
    mask = jnp.asarray(np.arange(20).reshape(4, 5) % 3 == 0)
    state = VTEAM.init(g.shape)
    out = write_verify(VTEAM, state, jnp.asarray(g, jnp.float32), mask=mask)
    assert (out.converged == mask).all() and ((out.pulses > 0) == mask).all()
    assert (np.asarray(out.state.x)[~mask] == np.asarray(state.x)[~mask]).all()


def test_energy_of_one_pulse(x64):
    """R rises from R0 at a constant rate: the heat is v^2 / R' ln(R1/R0)."""
    dev = VTEAM.replace(a_off=1.0)
    state = dev.set_conductance(dev.init((1, 1), dtype=jnp.float64), 1e-4)
    control = ISPP(v_down=0.9, width_down=4e-7)
    out = write_verify(dev, state, 1e-5, control=control, max_pulses=1)
    r0, slope = 1e4, (R_OFF - R_ON) / W * 5e-4 * 0.5
    want = 0.81 / slope * np.log(1 + slope * 4e-7 / r0)
    assert int(out.pulses[0, 0]) == 1 and float(out.energy_wires) == 0
    np.testing.assert_allclose(out.energy, want, rtol=0.02)
    np.testing.assert_allclose(1 / out.conductance, r0 + slope * 4e-7, rtol=1e-9)


def test_vmap_is_a_loop_over_arrays():
    g = jnp.asarray(targets((3, 4, 5)), jnp.float32)
    state = VTEAM.init((4, 5))
    many = jax.vmap(lambda g: write_verify(VTEAM, state, g))(g)
    for k in range(3):
        one = write_verify(VTEAM, state, g[k])
        same = lambda a, b: np.testing.assert_allclose(a[k], b, rtol=1e-5, atol=1e-4 * np.abs(b).max() + 1e-30)
        jax.tree.map(same, many, one)


def test_derivative_of_what_was_programmed(x64):
    """Forward through the loop, against differences; the last error leaves the sequence of pulses as it is."""
    g = jnp.asarray(targets((2, 2)))
    state = VTEAM.init((2, 2), dtype=jnp.float64)

    def programmed(v, k_on):
        out = write_verify(VTEAM.replace(k_on=k_on), state, g, control=CONTROLS["ispp"].replace(v_up=v))
        return out.conductance, out.pulses

    both = jax.jit(lambda at, along: jax.jvp(lambda x: programmed(*x), (at,), (along,)))
    at = jnp.array([0.62, -10.0])
    for along, h in ((jnp.array([1.0, 0.0]), 1e-6), (jnp.array([0.0, 1.0]), 1e-5)):
        (_, pulses), (slope, _) = both(at, along)
        ends = [both(at + d * h * along, along)[0] for d in (1, -1)]
        assert all((p == pulses).all() for _, p in ends)
        np.testing.assert_allclose(slope, (ends[0][0] - ends[1][0]) / (2 * h), rtol=2e-4)


def test_keys():
    dev = VTEAM.replace(spread={"k_on": xb.devices.Spread(ctoc=0.3)})
    state = dev.init((2, 2), key=jax.random.key(0))
    with pytest.raises(TypeError, match="key must be given"):
        write_verify(dev, state, 1e-4)
    run = lambda seed: np.asarray(write_verify(dev, state, 1e-4, key=jax.random.key(seed)).conductance)
    assert (run(1) == run(1)).all() and (run(1) != run(2)).any()


def test_a_read_may_be_given():
    """The cells are programmed to what the read says: here 5 % too much."""
    out = write_verify(VTEAM, VTEAM.init((2, 3)), 1e-4, read=lambda state, key: 1.05 * VTEAM.conductance(state))
    np.testing.assert_allclose(conductance(out.state.x), 1e-4 / 1.05, rtol=0.0101)


def test_pulsed_device_counts_its_steps():
    dev = xb.devices.ConstantStep(
        dw_min=0.01, dw_min_dtod=0.0, dw_min_std=0.0, up_down_dtod=0.0, w_max_dtod=0.0, w_min_dtod=0.0
    )
    state = dev.init((1, 3), key=jax.random.key(0))
    out = write_verify(dev, state, jnp.array([[0.3, -0.2, 0.9]]), key=jax.random.key(1), tolerance=0.004, max_pulses=90)
    assert out.pulses.tolist() == [[30, 20, 90]] and out.converged.tolist() == [[True, True, False]]
    np.testing.assert_allclose(out.conductance, [[0.3, -0.2, 0.6]], atol=1e-5)
    with pytest.raises(TypeError, match="key must be given"):
        write_verify(dev, state, 0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(g_target=jnp.ones((3, 2))), r"g_target must be a number or \[2, 3\]"),
        (dict(g_target=-1e-5), "g_target must be finite and > 0 S"),
        (dict(mask=jnp.ones((2, 3))), r"mask must be bool \[2, 3\]"),
    ],
)
def test_errors_name_the_argument(changes, message):
    with pytest.raises(ValueError, match=message):
        write_verify(VTEAM, VTEAM.init((2, 3)), **(dict(g_target=1e-4) | changes))
