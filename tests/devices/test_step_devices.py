"""Pulsed devices against the equations of their steps in float64, their spread, and what time does to them."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import xbar_jax as xb

# One shape, of 1e5 cells, for all: enough for statistics, and each program compiles once.
SHAPE = 250, 400
EXACT = {"dw_min_dtod": 0.0, "dw_min_std": 0.0, "up_down_dtod": 0.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0}
KEYS = [jax.random.key(k) for k in range(10)]

dv = xb.devices


def init(dev, key=KEYS[0]):  # not jitted: its operations are compiled once for all devices
    return dev.init(SHAPE, key=key)


@jax.jit
def pulse(dev, state, n, key=KEYS[1]):
    return dev.pulse(state, n, key=key)


@jax.jit
def relax(dev, state, key=KEYS[2]):
    return dev.relax(state, key=key)


def at(dev, w):
    """A state at the hidden weights ``w``; each cell keeps its own bounds."""
    state = init(dev)
    w = jnp.broadcast_to(jnp.asarray(w, jnp.float32), SHAPE)
    return state.replace(w=jnp.clip(w, state.cells["lower"], state.cells["upper"]))


def f64(x):
    return np.asarray(x, np.float64)


# Relative step y(w, up) of each device, from the equations; c holds each cell's own parameters in float64.


def constant(dev, c, w, up):
    return np.ones_like(w)


def linear(dev, c, w, up):
    return 1 - np.where(up, c["gamma_up"], c["gamma_down"]) * w / np.where(up, c["upper"], c["lower"])


def soft(dev, c, w, up):
    return 1 - w / np.where(up, c["upper"], c["lower"])


def exponential(dev, c, w, up):
    z = 2 * dev.a * w / (c["upper"] - c["lower"]) + dev.b
    return np.maximum(
        0, 1 - np.where(up, dev.a_up * np.exp(dev.gamma_up * z), dev.a_down * np.exp(-dev.gamma_down * z))
    )


def power(dev, c, w, up):
    om = np.clip((c["upper"] - w) / (c["upper"] - c["lower"]), 0, 1)
    return np.where(up, om ** c["gamma_up"], (1 - om) ** c["gamma_down"])


def piecewise(dev, c, w, up):
    t = (w - c["lower"]) / (c["upper"] - c["lower"])
    up_nodes, down_nodes = f64(dev.nodes_up), f64(dev.nodes_down)
    if up_nodes.ndim == 1:
        grid = np.linspace(0, 1, len(up_nodes))
        return np.where(up, np.interp(t, grid, up_nodes), np.interp(t, grid, down_nodes))
    k = np.clip((t * (len(up_nodes) - 1)).astype(int), 0, len(up_nodes) - 2)
    share = t * (len(up_nodes) - 1) - k
    pick = lambda nodes, k: np.take_along_axis(nodes, k[None], axis=0)[0]
    return np.where(up, *((1 - share) * pick(v, k) + share * pick(v, k + 1) for v in (up_nodes, down_nodes)))


def bumps(n, phase):
    return tuple(float(v) for v in 1 + 0.7 * np.sin(np.linspace(0, 4, n) + phase))


BIG = {"dw_min": 0.06, "up_down": 0.2}  # steps that reach the bounds
DEVICES = {
    "ConstantStep": (dv.ConstantStep(**BIG), constant),
    "LinearStep": (dv.LinearStep(**BIG, gamma_up=0.5, gamma_down=0.8), linear),
    "LinearStep, additive": (dv.LinearStep(**BIG, gamma_up=0.5, gamma_down=0.8, relative_noise=0.0), linear),
    "SoftBounds": (dv.SoftBounds(**BIG), soft),
    "SoftBoundsReference": (dv.SoftBoundsReference(**BIG), soft),
    "ExpStep": (dv.ExpStep(**BIG), exponential),
    "ExpStep, ends inside": (dv.ExpStep(**BIG, a=1.0, b=0.1, a_up=0.2, a_down=0.3, gamma_up=3.0, gamma_down=4.0), exponential),
    "ExpStep, ReRamES": (dv.presets["ReRamES"].replace(**BIG, write_noise_std=0.0), exponential),
    "PowStep": (dv.PowStep(**BIG, gamma_up=2.0, gamma_down=0.6), power),
    "PiecewiseStep, 2 nodes": (dv.PiecewiseStep(**BIG, nodes_up=(1.5, 0.2), nodes_down=(0.1, 1.1)), piecewise),
    "PiecewiseStep, 3 nodes": (dv.PiecewiseStep(**BIG, nodes_up=bumps(3, 0), nodes_down=bumps(3, 1)), piecewise),
    "PiecewiseStep, 60 nodes": (dv.PiecewiseStep(**BIG, nodes_up=bumps(60, 0), nodes_down=bumps(60, 2)), piecewise),
    "PiecewiseStep, of each cell": (
        dv.PiecewiseStep(
            **BIG,
            nodes_up=np.random.default_rng(0).uniform(0.1, 2, (3, *SHAPE)).astype(np.float32),
            nodes_down=np.random.default_rng(1).uniform(0.1, 2, (3, *SHAPE)).astype(np.float32),
        ),
        piecewise,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEVICES)
def test_pulses_follow_the_equation(name):
    dev, y = DEVICES[name]
    rng = np.random.default_rng(2)

    # Without noise, each cell with its own parameters, up to 12 pulses in a row.
    quiet = dev.replace(dw_min_std=0.0)
    state = at(quiet, rng.uniform(-0.8, 0.8, SHAPE))
    c = {k: f64(v) for k, v in state.cells.items()}
    n = rng.integers(-12, 13, SHAPE)
    up, w = n > 0, f64(state.w)
    for k in range(12):
        step = np.where(up, c["step_up"], -c["step_down"]) * y(quiet, c, w, up)
        w = np.where(np.abs(n) > k, np.clip(w + step, c["lower"], c["upper"]), w)
    new = pulse(quiet, state, jnp.asarray(n, jnp.int32))
    np.testing.assert_allclose(new.w, w, rtol=0, atol=3e-5)
    np.testing.assert_array_equal(new.pulses, np.abs(n))
    np.testing.assert_array_equal(new.w[n == 0], state.w[n == 0])
    if y is constant:
        assert np.mean((w == c["upper"]) | (w == c["lower"])) > 0.02

    # Noise of one pulse, all cells alike: mean D y, standard deviation sigma D y (sigma D in the additive form).
    size, sigma, w0 = 0.01, 0.3, 0.2
    noisy = dev.replace(**EXACT | {"dw_min": size, "up_down": 0.0, "dw_min_std": sigma})
    if isinstance(dev, (dv.LinearStep, dv.PowStep)):
        noisy = noisy.replace(gamma_up_dtod=0.0, gamma_down_dtod=0.0)
    state = at(noisy, w0)
    c = {k: f64(v) for k, v in state.cells.items()}
    for sign in (1, -1):
        step = f64(pulse(noisy, state, jnp.full(SHAPE, sign, jnp.int32)).w) - f64(state.w)
        want = sign * size * y(noisy, c, f64(state.w), np.full(SHAPE, sign > 0))
        noise = (step - want) / (size * sigma if name.endswith("additive") else want * sigma)
        np.testing.assert_allclose(noise.mean(), 0, atol=0.013)
        np.testing.assert_allclose(noise.std(), 1, rtol=0.01)


def test_noise_is_normal_and_new_in_each_pulse():
    dev = dv.ConstantStep(**EXACT | {"dw_min": 1.0, "w_max": 1e3, "w_min": -1e3, "dw_min_std": 1.0})
    state = at(dev, 0.0)
    w = [f64(pulse(dev, state, jnp.full(SHAPE, n, jnp.int32)).w) for n in range(6)]
    noise = np.stack([(b - a - 1).ravel() for a, b in itertools.pairwise(w)])
    for row in noise:
        assert stats.kstest(row, "norm").pvalue > 1e-3
    np.testing.assert_allclose(np.corrcoef(noise), np.eye(5), atol=0.016)
    np.testing.assert_allclose(np.corrcoef(noise**2), np.eye(5), atol=0.016)
    field = noise[0].reshape(SHAPE)  # neighbours know nothing of each other
    for a, b in ((field[1:], field[:-1]), (field[:, 1:], field[:, :-1]), (field[1:, 1:], field[:-1, :-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.016
    # many pulses: a sum of as many independent numbers
    w = f64(pulse(dev, state, jnp.full(SHAPE, 77, jnp.int32)).w)
    np.testing.assert_allclose([w.mean() / 77, w.std() / 77**0.5], 1, rtol=0.01)


def test_noise_is_indexed_by_cell():
    dev = dv.ConstantStep(dw_min=0.02, write_noise_std=1.0, diffusion=0.01, corrupt_devices_prob=0.1)

    @jax.jit
    def history(row, col):
        state = dev.init((30, 40), key=KEYS[0], row=row, col=col)
        state = dev.pulse(state, 3, key=KEYS[1], row=row, col=col)
        state = dev.relax(state, key=KEYS[2], row=row, col=col)
        reset = dev.reset_cells(state, key=KEYS[3], row=row, col=col)
        return jnp.stack([dev.weight(state), state.w, reset.w, state.cells["step_up"], state.cells["upper"]])

    first, moved = history(0, 0), history(3, 7)
    np.testing.assert_array_equal(moved[:, :-3, :-7], first[:, 3:, 7:])
    assert (np.asarray(moved != first).mean(axis=(1, 2)) > 0.8).all()


# Soft bounds.


def test_symmetry_point():
    up, down, high, low = 0.012, 0.008, 0.8, -0.5
    dev = dv.SoftBounds(**EXACT | {"dw_min": 0.01, "up_down": 0.2, "w_max": high, "w_min": low})
    balance = (up - down) / (up / high - down / low)
    np.testing.assert_allclose(dv.symmetry_point(init(dev)), balance, rtol=1e-5)
    one = jnp.ones(SHAPE, jnp.int32)
    there = pulse(dev, at(dev, balance), one)
    back = pulse(dev, there, -one)
    step = up * (1 - balance / high)
    np.testing.assert_allclose(there.w, balance + step, rtol=1e-5)
    np.testing.assert_allclose(back.w, balance + step * down / low, rtol=1e-5)  # to second order in D
    assert np.abs(np.asarray(back.w) - balance).max() < step * down / -low * 1.01
    # up and down in turn, from anywhere, with each cell's own bounds and steps
    dev = dv.SoftBounds(dw_min=0.02, up_down=0.2, dw_min_std=0.0, w_max_dtod=0.15, w_min_dtod=0.15)
    state = at(dev, np.random.default_rng(0).uniform(-0.8, 0.8, SHAPE))

    @jax.jit
    def alternate(dev, state):
        return jax.lax.fori_loop(0, 400, lambda k, s: dev.pulse(dev.pulse(s, 1, key=KEYS[1]), -1, key=KEYS[1]), state)

    c = {k: f64(v) for k, v in state.cells.items()}
    end = f64(alternate(dev, state).w)
    keep_up, keep_down = 1 - c["step_up"] / c["upper"], 1 + c["step_down"] / c["lower"]
    fixed = (c["step_up"] * keep_down - c["step_down"]) / (1 - keep_up * keep_down)
    slow = (keep_up * keep_down) ** 400
    np.testing.assert_allclose(end, fixed + slow * (f64(state.w) - fixed), rtol=0, atol=2e-5)
    balance = (c["step_up"] - c["step_down"]) / (c["step_up"] / c["upper"] - c["step_down"] / c["lower"])
    assert (np.abs(end - balance) < np.maximum(c["step_up"], c["step_down"]) + slow * 3).all()
    np.testing.assert_allclose(dv.symmetry_point(state), balance, rtol=0, atol=1e-5)


def test_soft_bounds_against_a_reference():
    dev = dv.SoftBoundsReference(
        **EXACT | {"dw_min": 0.01, "w_max": 0.6, "w_min": -0.5}, reference=0.1, reference_std=0.05
    )
    state = init(dev)
    ref = f64(state.cells["reference"])
    np.testing.assert_allclose([ref.mean(), ref.std()], [0.1, 0.05], rtol=0.01)
    low, high = dev.weight_range(state)
    np.testing.assert_allclose(low, -0.5 - ref, atol=1e-6)
    np.testing.assert_allclose(high, 0.6 - ref, atol=1e-6)
    np.testing.assert_allclose(dev.weight(state), 0, atol=1e-7)
    for sign, bound in ((1, 0.6), (-1, -0.5)):
        end = pulse(dev, state, jnp.full(SHAPE, 2000 * sign, jnp.int32))
        np.testing.assert_allclose(dev.weight(end), bound - ref, atol=1e-5)
        np.testing.assert_allclose(dev.weight(dev.set_weight(state, sign * jnp.inf)), bound - ref, atol=1e-6)
    w = jnp.linspace(-0.3, 0.3, SHAPE[1])[None, :] * jnp.ones((SHAPE[0], 1))
    got = dev.weight(dev.set_weight(state, w))
    np.testing.assert_allclose(got, np.clip(w, -0.5 - ref, 0.6 - ref), atol=1e-6)


def test_the_symmetry_point_as_reference():
    dev = dv.SoftBoundsReference(dw_min=0.01, up_down=0.2, dw_min_std=0.0, reference=0.05, reference_std=0.0,
                                 subtract_symmetry_point=True)  # fmt: skip
    state = init(dev)
    c = {k: f64(v) for k, v in state.cells.items()}
    balance = (c["step_up"] - c["step_down"]) / (c["step_up"] / c["upper"] - c["step_down"] / c["lower"])
    low, high = dev.weight_range(state)
    np.testing.assert_allclose(low, c["lower"] - balance - 0.05, atol=1e-5)
    np.testing.assert_allclose(high, c["upper"] - balance - 0.05, atol=1e-5)
    still = dev.set_weight(state, -0.05 * jnp.ones(SHAPE))  # at the symmetry point, where both steps are equal
    # apart from cells so narrow that one step takes them to a bound
    inside = np.minimum(c["upper"], -c["lower"]) > 0.05
    assert inside.mean() > 0.99
    one = jnp.ones(SHAPE, jnp.int32)
    up, down = (f64(dev.weight(pulse(dev, still, s * one)) - dev.weight(still)) for s in (1, -1))
    np.testing.assert_allclose(up[inside], -down[inside], atol=1e-6)
    assert up[inside].min() > 0


def test_response_is_the_closed_form():
    b, low, d_up, d_down, n = 0.8, -0.5, 0.024, 0.016, 60
    dev = dv.SoftBounds(**EXACT | {"dw_min": 0.02, "up_down": 0.2, "w_max": b, "w_min": low})
    state = dev.init((1, 2), key=KEYS[0])
    got = f64(dv.pulse_response(dev, state, n, n, key=KEYS[1]))[:, 0, 1]
    k = np.arange(n + 1)
    rise = b * (1 - (1 - d_up / b) ** k)
    fall = low + (rise[-1] - low) * (1 - d_down / -low) ** k
    np.testing.assert_allclose(got, np.concatenate([rise, fall[1:]]), rtol=0, atol=2e-6)
    # the same curve from the lower bound, as data on potentiation are given: G_min + B (1 - e^(-P/A))
    state = dev.set_weight(state, -jnp.inf)
    got = f64(dv.pulse_response(dev, state, n, n, key=KEYS[1]))[: n + 1, 0, 0]
    a = -1 / np.log(1 - d_up / b)
    scale = (got[-1] - low) / (1 - np.exp(-n / a))
    np.testing.assert_allclose(got, low + scale * (1 - np.exp(-k / a)), rtol=0, atol=2e-6)
    np.testing.assert_allclose(scale, b - low, rtol=1e-5)


def test_response_has_new_noise_in_each_pulse():
    dev = dv.ConstantStep(**EXACT | {"dw_min": 0.01, "w_max": 10.0, "w_min": -10.0, "dw_min_std": 0.3})
    curve = f64(dv.pulse_response(dev, dev.init((1, 2), key=KEYS[0]), 60, 60, key=KEYS[1]))
    noise = np.diff(curve[:, 0], axis=0) / np.repeat([0.01, -0.01], 60)[:, None] - 1
    assert len(np.unique(np.round(noise, 5))) > 230
    np.testing.assert_allclose(noise.std(), 0.3, rtol=0.15)
    with pytest.raises(ValueError, match="pulse_response: n_up and n_down must not be negative, got -1 and 3"):
        dv.pulse_response(dev, None, -1, 3, key=KEYS[1])


# Spread from device to device.


def test_spread_of_every_parameter():
    dev = dv.ConstantStep(
        dw_min=0.01, dw_min_dtod=0.2, up_down=0.1, up_down_dtod=0.03, w_max=0.7, w_max_dtod=0.15, w_min=-0.4, w_min_dtod=0.25,
        lifetime=100.0, lifetime_dtod=0.1, diffusion=0.02, diffusion_dtod=0.12, reset=0.1, reset_dtod=0.022,
    )  # fmt: skip
    c = {k: f64(v).ravel() for k, v in init(dev).cells.items()}
    size = (c["step_up"] + c["step_down"]) / 2
    drawn = {
        "dw_min": (size, 0.01, 0.2 * 0.01), "up_down": ((c["step_up"] - c["step_down"]) / 2 / size, 0.1, 0.03),
        "w_max": (c["upper"], 0.7, 0.15 * 0.7), "w_min": (c["lower"], -0.4, 0.25 * 0.4),
        "lifetime": (c["lifetime"], 100.0, 10.0), "diffusion": (c["diffusion"], 0.02, 0.0024), "reset": (c["reset"], 0.1, 0.022),
    }  # fmt: skip
    for name, (x, mean, std) in drawn.items():
        np.testing.assert_allclose(x.mean(), mean, rtol=0, atol=0.02 * std, err_msg=name)
        np.testing.assert_allclose(x.std(), std, rtol=0.02, err_msg=name)
    together = np.corrcoef([x for x, *_ in drawn.values()])
    np.testing.assert_allclose(together, np.eye(len(drawn)), atol=0.016)
    another = f64(init(dev, KEYS[5]).cells["upper"]).ravel()
    assert abs(np.corrcoef(another, c["upper"])[0, 1]) < 0.016


def test_spread_of_the_slopes():
    for cls in (dv.LinearStep, dv.PowStep):
        dev = cls(gamma_up=0.5, gamma_down=0.8, gamma_up_dtod=0.1, gamma_down_dtod=0.2)
        c = {k: f64(v).ravel() for k, v in init(dev).cells.items()}
        for name, mean, std in (("gamma_up", 0.5, 0.05), ("gamma_down", 0.8, 0.16)):
            np.testing.assert_allclose(c[name].mean(), mean, rtol=0, atol=0.02 * std)
            np.testing.assert_allclose(c[name].std(), std, rtol=0.02)
        assert abs(np.corrcoef(c["gamma_up"], c["gamma_down"])[0, 1]) < 0.016


def test_log_normal_spread():
    dev = dv.SoftBoundsReference(dw_min=0.0949, dw_min_dtod=0.7829, log_normal=True, up_down=0.0, up_down_dtod=0.0)
    size = np.log(f64(init(dev).cells["step_up"]).ravel())
    np.testing.assert_allclose(np.median(size), np.log(0.0949), atol=0.012)
    np.testing.assert_allclose(size.std(), 0.7829, rtol=0.01)
    assert stats.kstest((size - np.log(0.0949)) / 0.7829, "norm").pvalue > 1e-3


@pytest.mark.parametrize(("w_min", "w_max"), [(-0.6, 0.6), (0.0, 2.0), (0.2, 0.4), (-0.4, -0.2)])
def test_wide_spread_leaves_every_cell_a_range(w_min, w_max):
    dev = dv.ConstantStep(w_min=w_min, w_max=w_max, w_min_dtod=0.6, w_max_dtod=0.6, dw_min_dtod=1.0)
    state = init(dev)
    c = {k: np.asarray(v) for k, v in state.cells.items()}
    assert (c["lower"] <= c["upper"]).all()
    assert (c["step_up"] > 0).all() and (c["step_down"] > 0).all()
    assert ((c["lower"] <= state.w) & (state.w <= c["upper"])).all()
    if w_min < 0 < w_max:
        assert (c["lower"] < 0).all() and (c["upper"] > 0).all()


@pytest.mark.parametrize("name", ["ConstantStep", "SoftBounds", "ExpStep", "PowStep", "PiecewiseStep, 3 nodes"])
def test_corrupt_cells(name):
    dev = DEVICES[name][0].replace(corrupt_devices_prob=0.1, w_max_dtod=0.0, w_min_dtod=0.0, write_noise_std=0.0)
    state = init(dev)
    c = {k: np.asarray(v) for k, v in state.cells.items()}
    stuck = c["lower"] == c["upper"]
    np.testing.assert_allclose(stuck.mean(), 0.1, rtol=0, atol=5 * (0.09 / stuck.size) ** 0.5)
    w = np.asarray(dev.weight(state))
    assert stats.kstest(w[stuck], "uniform", args=(-0.6, 1.2)).pvalue > 1e-3
    later = pulse(dev, state, jnp.asarray(np.random.default_rng(0).integers(-9, 10, SHAPE), jnp.int32))
    states = [later, dev.set_weight(state, 0.1)]
    if name == "ConstantStep":
        states += [relax(dev.replace(diffusion=0.1, lifetime=5.0), later), dev.reset_cells(state, key=KEYS[3])]
    for s in states:
        np.testing.assert_array_equal(np.asarray(dev.weight(s))[stuck], w[stuck])
        assert (np.asarray(s.w)[~stuck] != w[~stuck]).mean() > 0.9


def test_from_counts():
    for n_up, n_down, low, high in ((10, 20, -1.0, 1.0), (7, 3, -0.3, 0.9), (50, 50, 0.0, 2.0)):
        dev = dv.ConstantStep.from_counts(n_up, n_down, w_min=low, w_max=high, **{k: EXACT[k] for k in EXACT})
        np.testing.assert_allclose(dev.dw_min, (high - low) * (1 / n_up + 1 / n_down) / 2, rtol=1e-9)
        np.testing.assert_allclose(dev.up_down, (n_down - n_up) / (n_down + n_up), rtol=1e-9)
        state = at(dev, low)
        for n, start, want in ((n_up, low, high), (n_up - 1, low, high - (high - low) / n_up), (-n_down, high, low),
                               (1 - n_down, high, low + (high - low) / n_down)):  # fmt: skip
            got = pulse(dev, state.replace(w=jnp.full(SHAPE, start)), jnp.full(SHAPE, n, jnp.int32)).w
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


# Write noise and time.


def test_write_noise():
    dev = dv.ConstantStep(dw_min=0.01, write_noise_std=2.0)
    state = init(dev)
    np.testing.assert_array_equal(dev.weight(state), state.w)
    n = jnp.asarray(np.random.default_rng(0).integers(-3, 4, SHAPE), jnp.int32)
    written, plain = pulse(dev, state, n), pulse(dev.replace(write_noise_std=0.0), state, n)
    np.testing.assert_array_equal(written.w, plain.w)
    noise = f64(dev.weight(written)) - f64(written.w)
    got = np.asarray(n) != 0
    np.testing.assert_allclose(noise[got].std(), 0.02, rtol=0.01)
    np.testing.assert_allclose(noise[got].mean(), 0, atol=4e-4)
    np.testing.assert_array_equal(noise[~got], 0)
    # a second round: what is not written keeps the noise that it has
    m = jnp.asarray(np.random.default_rng(1).integers(0, 2, SHAPE), jnp.int32)
    again = pulse(dev, written, m, KEYS[4])
    later, wrote = f64(dev.weight(again)) - f64(again.w), np.asarray(m) != 0
    np.testing.assert_allclose(later[~wrote], noise[~wrote], rtol=0, atol=1e-7)
    assert abs(np.corrcoef(later[wrote & got], noise[wrote & got])[0, 1]) < 0.02
    np.testing.assert_allclose(later[wrote].std(), 0.02, rtol=0.01)
    # it is independent of the noise of the pulse
    alike = dev.replace(dw_min_dtod=0.0, up_down_dtod=0.0)
    one = pulse(alike, init(alike), jnp.ones(SHAPE, jnp.int32))
    assert abs(np.corrcoef(f64(one.offset).ravel(), f64(one.w).ravel())[0, 1]) < 0.016


def test_decay():
    dev = dv.ConstantStep(lifetime=20.0, lifetime_dtod=0.2, decay_to=0.1, w_max_dtod=0.0, w_min_dtod=0.0)
    state = at(dev, np.random.default_rng(0).uniform(-0.5, 0.5, SHAPE))
    w, life = f64(state.w), f64(state.cells["lifetime"])
    new = state
    for k in range(1, 6):
        new = relax(dev, new)
        np.testing.assert_allclose(new.w, (w - 0.1) * (1 - 1 / life) ** k + 0.1, rtol=0, atol=1e-6)
    off = dev.replace(lifetime=0.0)
    state = at(off, w)
    np.testing.assert_array_equal(relax(off, state).w, state.w)
    assert np.isfinite(init(off).cells["lifetime"]).all()


def test_diffusion():
    dev = dv.ConstantStep(**EXACT | {"diffusion": 0.01, "w_max": 10.0, "w_min": -10.0})
    state = at(dev, 0.3)
    one = relax(dev, state)
    four = one
    for k in (6, 7, 8):
        four = relax(dev, four, KEYS[k])
    for new, std in ((one, 0.01), (four, 0.02)):
        change = f64(new.w) - 0.3
        np.testing.assert_allclose(change.std(), std, rtol=0.01)
        np.testing.assert_allclose(change.mean(), 0, atol=0.02 * std)
    np.testing.assert_array_equal(one.pulses, 0)
    np.testing.assert_array_equal(relax(dev.replace(diffusion=0.0), init(dev.replace(diffusion=0.0))).w, 0)
    tight = dev.replace(w_max=0.3)
    change = f64(relax(tight, at(tight, 0.3)).w) - f64(at(tight, 0.3).w)
    assert change.max() == 0 and 0.45 < (change < 0).mean() < 0.55


def test_an_update_lets_one_step_of_time_pass():
    dev = dv.ConstantStep(**EXACT, lifetime=4.0, diffusion=0.01)
    state = dev.init(SHAPE, key=KEYS[0], w=jnp.full(SHAPE, 0.4))
    new = xb.pulsed_update(dev, state, jnp.zeros((3, SHAPE[0])), jnp.zeros((3, SHAPE[1])), lr=0.1, key=KEYS[2])
    np.testing.assert_allclose([new.w.mean(), new.w.std()], [0.3, 0.01], rtol=0.01)
    np.testing.assert_array_equal(new.pulses, 0)


def test_reset():
    dev = dv.ConstantStep(reset=0.1, reset_dtod=0.02, reset_std=0.03, write_noise_std=5.0)
    state = pulse(dev, init(dev), jnp.full(SHAPE, 40, jnp.int32))
    where = jnp.asarray(np.random.default_rng(0).integers(0, 2, SHAPE), bool)
    new = dev.reset_cells(state, where, key=KEYS[3])
    got = f64(new.w)[where]
    np.testing.assert_allclose([got.mean(), got.std()], [0.1, (0.02**2 + 0.03**2) ** 0.5], rtol=0.02)
    np.testing.assert_allclose((f64(new.w) - f64(state.cells["reset"]))[where].std(), 0.03, rtol=0.02)
    np.testing.assert_array_equal(new.w[~where], state.w[~where])
    np.testing.assert_array_equal(dev.weight(new)[~where], dev.weight(state)[~where])
    assert ((new.w >= state.cells["lower"]) & (new.w <= state.cells["upper"])).all()


# One-sided pairs.


def pair(refresh_at=0.9, **others):
    one = {"dw_min": 0.01, "w_max": 1.0, "w_min": 0.0} | EXACT | {"reset_std": 0.0}
    return dv.OneSided(device=dv.ConstantStep(**one | others), refresh_at=refresh_at)


def with_sides(dev, plus, minus):
    state = init(dev)
    side = lambda s, w: s.replace(w=jnp.broadcast_to(jnp.float32(w), SHAPE))
    return state.replace(plus=side(state.plus, plus), minus=side(state.minus, minus))


@jax.jit
def refresh(dev, state, key=KEYS[3]):
    return dev.refresh(state, key=key)


def test_pairs_only_go_up():
    dev = pair()
    n = np.random.default_rng(0).integers(-30, 31, SHAPE)
    state = init(dev)
    low, high = dev.weight_range(state)
    np.testing.assert_array_equal([low.min(), low.max(), high.min(), high.max()], [-1, -1, 1, 1])
    new = pulse(dev, state, jnp.asarray(n, jnp.int32))
    np.testing.assert_allclose(new.plus.w, 0.01 * np.maximum(n, 0), atol=1e-6)
    np.testing.assert_allclose(new.minus.w, 0.01 * np.maximum(-n, 0), atol=1e-6)
    np.testing.assert_allclose(dev.weight(new), 0.01 * n, atol=1e-6)
    back = pulse(dev, new, jnp.asarray(-n, jnp.int32))
    np.testing.assert_allclose(back.plus.w, 0.01 * np.abs(n), atol=1e-6)
    np.testing.assert_allclose(dev.weight(back), 0, atol=1e-6)
    w = np.random.default_rng(1).uniform(-1.2, 1.2, SHAPE)
    np.testing.assert_allclose(dev.weight(dev.set_weight(state, w)), np.clip(w, -1, 1), atol=1e-6)


def test_weights_of_a_pair_with_unequal_lower_bounds_are_set_exactly():
    dev = dv.OneSided(device=dv.SoftBounds())
    state = init(dev)
    w = np.random.default_rng(1).uniform(-0.2, 0.2, SHAPE)
    low, high = (f64(v) for v in dev.weight_range(state))
    inside = (low < w) & (w < high)
    assert inside.mean() > 0.99
    np.testing.assert_allclose(f64(dev.weight(dev.set_weight(state, w)))[inside], w[inside], rtol=0, atol=1e-6)


def test_refresh_of_saturated_pairs():
    dev = pair(dw_min=0.002, dw_min_std=0.3)
    rng = np.random.default_rng(0)
    plus, minus = rng.uniform(0, 1, (2, *SHAPE))
    state = with_sides(dev, plus, minus)
    worn = (plus >= 0.9) | (minus >= 0.9)
    fits = np.abs(plus - minus) < 0.88  # a weight that needs the whole of one side: see below
    np.testing.assert_array_equal(np.asarray(dev.saturated(state))[fits], worn[fits])
    worn &= fits
    new = refresh(dev, state)
    before, after = f64(dev.weight(state)), f64(dev.weight(new))
    assert np.abs(after - before)[worn].max() < 2 * 0.002
    assert abs((after - before)[worn].mean()) < 0.0002
    high, less = np.maximum(new.plus.w, new.minus.w), np.minimum(new.plus.w, new.minus.w)
    np.testing.assert_allclose(high[worn], np.abs(before)[worn], atol=0.02)
    assert less[worn].max() <= 0.02
    for side in ("plus", "minus"):
        fresh = np.maximum(plus, minus) < 0.9
        np.testing.assert_array_equal(getattr(new, side).w[fresh], getattr(state, side).w[fresh])
    for leaf, old in zip(jax.tree.leaves(refresh(pair(jnp.inf), state)), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(leaf, old)


def test_a_refresh_makes_up_for_the_spread_of_the_reset():
    # 0.01 of spread is five steps: a pair of a small weight may come back on the wrong side
    dev = pair(dw_min=0.002, reset_std=0.01)
    weight = np.random.default_rng(0).uniform(-0.03, 0.03, SHAPE)
    state = with_sides(dev, 0.95, 0.95 - weight)
    error = f64(dev.weight(refresh(dev, state))) - f64(dev.weight(state))
    assert np.abs(error).max() < 2 * 0.002


def test_a_refresh_keeps_weights_that_need_the_whole_of_one_side():
    dev = pair(dw_min=0.002, reset_std=0.01)
    plus, minus = np.random.default_rng(0).uniform((0.9, 0.0), (1.0, 0.1), (*SHAPE, 2)).transpose(2, 0, 1)
    for state in (with_sides(dev, plus, minus), with_sides(dev, minus, plus)):
        error = f64(dev.weight(refresh(dev, state))) - f64(dev.weight(state))
        assert np.abs(error).max() < 2 * 0.002


def test_refresh_of_a_device_whose_first_pulses_are_large():
    # of the PCM preset: 28 steps of dw_min at 0, 3.9 at 0.9; many pulses at once would fill a side and its twin
    one = dv.presets["PCM"].device.replace(**EXACT, reset_std=0.0)
    dev = dv.OneSided(device=one)
    weight = np.random.default_rng(0).uniform(0.3, 1.2, SHAPE)
    state = with_sides(dev, 1.9, 1.9 - weight)
    assert dev.saturated(state).all()
    new = refresh(dev, state)
    error = np.abs(f64(dev.weight(new)) - f64(dev.weight(state)))
    last = 0.01 * (1 + 27.235 * np.exp(-2.5 * (weight - 0.2)))  # the pulse that crosses the weight, or a larger one
    assert (error <= last).all()
    assert not dev.saturated(new).any()


def test_an_update_of_pairs_descends_and_refreshes():
    dev = pair(dw_min=0.002)
    state = with_sides(dev, 0.89, 0.5)
    x, d = jnp.ones((2, SHAPE[0])), jnp.ones((2, SHAPE[1]))
    for lr, plus, minus in ((-0.02, 0.43, 0.0), (0.02, 0.89, 0.54)):
        new = xb.pulsed_update(dev, state, x, d, lr=lr, key=KEYS[4])
        np.testing.assert_allclose(dev.weight(new), 0.39 - 2 * lr, atol=0.002)
        np.testing.assert_allclose(new.plus.w, plus, atol=0.002)
        np.testing.assert_allclose(new.minus.w, minus, atol=0.002)


# Presets.

LN = {"log_normal": True, "subtract_symmetry_point": True}
PUBLISHED = {
    "Capacitor": (dv.LinearStep, {"dw_min": 0.005, "gamma_up": 0.05, "gamma_down": 0.05, "lifetime": 1e6}),
    "EcRam": (dv.LinearStep, {"dw_min": 0.002, "up_down": (1.1724 - 0.8276) / 2, "gamma_up": 0.1153, "gamma_down": 0.5085}),
    "EcRamMO": (dv.LinearStep, {"dw_min": 2.8214e-4, "up_down": (1.1714 - 0.8286) / 2, "gamma_up": 0.4152, "gamma_down": 0.7342,
                                "dw_min_std": 2.0}),
    "ReRamES": (dv.ExpStep, {"dw_min": 0.00135, "up_down": 0.259, "w_max": 1.0, "w_min": -1.0, "a": -0.5, "b": -0.5,
                             "gamma_up": 5.0, "gamma_down": 5.0, "a_up": -1.18445, "a_down": -0.081404, "dw_min_dtod": 0.2,
                             "w_max_dtod": 0.3, "w_min_dtod": 0.3, "dw_min_std": 5.0, "write_noise_std": 75.0}),
    "ReRamSB": (dv.SoftBoundsReference, {"dw_min": 0.002, "w_max": 1.25, "w_min": -0.75, "dw_min_std": 3.75,
                                         "write_noise_std": 56.0}),
    "ReRamArrayOM": (dv.SoftBoundsReference, LN | {"dw_min": 0.0949, "dw_min_dtod": 0.7829, "dw_min_std": 0.4158,
                                                   "write_noise_std": 1.4113}),
    "ReRamArrayHfO2": (dv.SoftBoundsReference, LN | {"dw_min": 0.4622, "dw_min_dtod": 0.7125, "dw_min_std": 0.2174,
                                                     "write_noise_std": 0.5841}),
    "GokmenVlasov": (dv.ConstantStep, {"dw_min": 1.6e-3, "w_max": 1.0, "w_min": -1.0}),
    "Idealized": (dv.ConstantStep, {"dw_min": 2e-4, "dw_min_dtod": 0.0, "dw_min_std": 0.0}),
    "PCM": (dv.ExpStep, {"dw_min": 0.01, "w_max": 2.0, "w_min": 0.0, "a": -1.0, "gamma_up": 2.5, "gamma_down": 2.5,
                         "a_up": -27.235, "a_down": -2.235, "dw_min_std": 0.6}),
}  # fmt: skip


def test_presets_are_the_published_numbers():
    assert set(dv.presets) == set(PUBLISHED)
    for name, (kind, numbers) in PUBLISHED.items():
        dev = dv.presets[name]
        if name == "PCM":
            assert type(dev) is dv.OneSided
            dev = dev.device
        assert type(dev) is kind, name
        for field, value in numbers.items():
            np.testing.assert_allclose(getattr(dev, field), value, rtol=1e-9, err_msg=f"{name}.{field}")


def test_presets_step_as_their_numbers_say():
    c = init(dv.presets["EcRam"]).cells
    np.testing.assert_allclose(c["step_up"].mean(), 0.002 * 1.1724, rtol=0.01)
    np.testing.assert_allclose(c["step_down"].mean(), 0.002 * 0.8276, rtol=0.01)
    dev = dv.presets["ReRamArrayOM"]
    start = init(dev)
    one = jnp.ones(SHAPE, jnp.int32)
    shift = f64(pulse(dev, start, one).offset - start.offset)  # read noise of 1.4113 steps
    np.testing.assert_allclose(shift.std(), 1.4113 * 0.0949, rtol=0.01)
    dev = dv.presets["PCM"]
    dev = dev.replace(device=dev.device.replace(dw_min_std=0.0))
    state = pulse(dev, init(dev), one)
    # from 0 the first pulse is 0.01 (1 + 27.235) high
    np.testing.assert_allclose(state.plus.w.mean(), 0.28235, rtol=0.01)
    np.testing.assert_array_equal(state.minus.w, 0)


# Errors.


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda d, s: d.init((3,), key=KEYS[0]), ValueError, r"init: shape must be \(rows, cols\)"),
        (lambda d, s: d.init((0, 3), key=KEYS[0]), ValueError, r"init: shape must be \(rows, cols\)"),
        (lambda d, s: d.set_weight(s, jnp.ones(3)), ValueError, r"set_weight: w must be of shape \(2, 3\), got \(3,\)"),
        (lambda d, s: d.pulse(s, 1.0, key=KEYS[0]), TypeError, "pulse: n must be of an integer type, got float32"),
        (lambda d, s: d.pulse(s, jnp.ones(3, int), key=KEYS[0]), ValueError, r"pulse: n must be of shape \(2, 3\)"),
        (lambda d, s: d.pulse(s, 4, key=KEYS[0], max_pulses=3), ValueError, "pulse: max_pulses must be at least .* 3 < 4"),
        (lambda d, s: d.replace(dw_min_std=jnp.ones(3)).pulse(s, 1, key=KEYS[0]), ValueError, "a parameter must be a scalar or of shape"),
        (lambda d, s: d.pulse(s, 1, key=jax.random.key(0, impl="rbg")), TypeError, "key must be of implementation threefry2x32"),
        (lambda d, s: dv.PiecewiseStep(nodes_up=(1.0,)).pulse(s, 1, key=KEYS[0]), ValueError, "nodes_up and nodes_down must have the same"),
        (lambda d, s: dv.StepDevice().pulse(s, 1, key=KEYS[0]), TypeError, "StepDevice is a base"),
    ],
)  # fmt: skip
def test_an_error_names_its_argument(call, error, message):
    dev = dv.ConstantStep()
    with pytest.raises(error, match=message):
        call(dev, dev.init((2, 3), key=KEYS[0]))


def test_the_spread_of_a_reset_about_zero_is_not_lost():
    dev = dv.ConstantStep(reset_dtod=0.05, reset_std=0.0, w_max=1.0, w_min=-1.0)
    state = dev.reset_cells(dev.init(SHAPE, key=KEYS[0]), key=KEYS[1])
    np.testing.assert_allclose(np.std(state.w), 0.05, rtol=0.02)


def test_from_counts_gives_exactly_the_counts_it_is_given():
    dev = dv.ConstantStep.from_counts(10, 20, w_min=-1.0, w_max=1.0)
    state = dev.init((1, 50), key=KEYS[0], w=-jnp.ones((1, 50)))
    state = dev.pulse(state, 10, key=KEYS[1])
    np.testing.assert_allclose(dev.weight(state), 1.0, atol=1e-6)
    np.testing.assert_allclose(dev.weight(dev.pulse(state, -20, key=KEYS[2])), -1.0, atol=1e-6)


@pytest.mark.parametrize("dev", [dv.SoftBounds(w_min=0.2, w_max=0.8), dv.LinearStep(w_min=-0.8, w_max=-0.2)])
def test_bounds_of_one_sign_are_refused_where_the_step_is_defined_about_zero(dev):
    with pytest.raises(ValueError, match="w_min must be <= 0 and w_max >= 0"):
        dev.init((2, 2), key=KEYS[0])


def test_a_very_short_lifetime_decays_to_the_point_and_not_beyond():
    dev = dv.ConstantStep(lifetime=0.3, decay_to=0.1)
    state = dev.set_weight(dev.init((2, 2), key=KEYS[0]), 0.3)
    np.testing.assert_allclose(dev.relax(state, key=KEYS[1]).w, np.clip(0.1, *map(np.asarray, dev.weight_range(state))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dw_min": 0.0}, "dw_min must be > 0"),
        ({"dw_min": np.nan}, "dw_min must be finite"),
        ({"dw_min_std": -1.0}, "dw_min_std must be >= 0"),
        ({"lifetime": -5.0}, "lifetime must be >= 0"),
        ({"corrupt_devices_prob": 2.0}, "corrupt_devices_prob must be in"),
        ({"w_min": 0.6, "w_max": 0.5}, "w_min must be <= w_max"),
        ({"up_down": np.ones((3, 5))}, "up_down must be a scalar or of shape"),
        ({"w_max": np.ones(3)}, "w_max must be a scalar or of shape"),
    ],
)
def test_numbers_without_meaning_are_refused(change, message):
    with pytest.raises(ValueError, match=f"ConstantStep: {message}"):
        dv.ConstantStep(**change).init((5, 3), key=KEYS[0])


def test_keys_and_states_that_are_not_are_named():
    dev, x, d = dv.SoftBounds(), jnp.ones((2, 5)), jnp.ones((2, 3))
    state = dev.init((5, 3), key=KEYS[0])
    for key in (jax.random.PRNGKey(0), 0, None, jax.random.split(KEYS[0], 4)):
        for name, call in (
            ("init", lambda: dev.init((5, 3), key=key)),
            ("pulse", lambda: dev.pulse(state, 1, key=key)),
            ("pulsed_update", lambda: xb.pulsed_update(dev, state, x, d, lr=0.1, key=key)),
        ):
            with pytest.raises(TypeError, match=f"{name}: key must be"):
                call()
    with pytest.raises(TypeError, match=r"state must come from SoftBounds\.init"):
        xb.pulsed_update(dev, jnp.zeros((5, 3)), x, d, lr=0.1, key=KEYS[0])
    with pytest.raises(TypeError, match="dev must be a pulsed device"):
        xb.pulsed_update(state, dev, x, d, lr=0.1, key=KEYS[0])
    with pytest.raises(ValueError, match="lr must be one number"):
        xb.pulsed_update(dev, state, x, d, lr=jnp.ones(3), key=KEYS[0])
