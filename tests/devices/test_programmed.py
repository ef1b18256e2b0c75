"""Programmed devices: statistics of programming, drift and reads, faults, edges, derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import foldnorm

import xbar_jax as xb
from xbar_jax.devices.faults import HEALTHY

D = xb.devices
Partial = jax.tree_util.Partial
SHAPE = (400, 250)  # 1e5 cells
STATISTICS = 0.01  # relative, of a standard deviation over 1e5 draws
ROUNDING = {"float32": 2e-6, "float64": 1e-12}
DEVICES = {
    "Gaussian": D.Gaussian(program_std=1e-6, read_std=1e-7, nu=0.05, nu_std=0.01),
    "StateIndependent": D.StateIndependent(),
    "PCM": D.PCM(),
    "CMO": D.CMO(p=(0.0, 0.01), read_std=1e-7),
    "Custom": D.Custom(
        program_std=Partial(lambda a, g: a * g, 0.05),
        nu=([0.0, 2e-5], [0.1, 0.05]),
        nu_std=0.01,
        read_std=Partial(lambda g, t: 0.01 * g * jnp.log1p(t)),
    ),
    "RRAM": D.RRAM(read_std=1e-7),
}
every_device = pytest.mark.parametrize("name", DEVICES)


# Eager on purpose: operations of one shape are compiled once for all devices.
SMALL = (4, 6)


def program(dev, g, seed=0, row=0, col=0):
    return dev.program(g, key=jax.random.key(seed), row=row, col=col)


def read(dev, state, t, key):
    return dev.read(state, t, key=key)


def conductance(dev, state, t):
    return dev.conductance(state, t)


def many(dev, g):
    """A canonical device and 1e5 of its cells at one target."""
    dev = xb.canonical(dev)
    return dev, program(dev, jnp.full(SHAPE, g, jnp.float32))


@pytest.mark.parametrize(
    ("dev", "g", "std"),
    [
        (D.PCM(), 25e-6, 1.05538e-6),
        (D.PCM(), 12.5e-6, 0.952705e-6),
        (D.PCM(g_max=50e-6), 25e-6, 1.90541e-6),
        (D.PCM(program_scale=4.0), 25e-6, 4.22152e-6),
        (D.PCM.chip(1), 10.35e-6, 1.00756712e-6),
        (D.PCM.chip(1), 5.175e-6, 0.86531293e-6),
        (D.PCM.chip(2), 20.7e-6, 1.09269857e-6),
        (D.PCM.chip(2), 10.35e-6, 0.9910132e-6),
        (D.StateIndependent(), 10e-6, 0.2e-6),
        (D.CMO(p=(0.1e-6, 0.02)), 50e-6, 1.1e-6),
        (D.Custom(program_std=([0.0, 20e-6], [0.0, 1e-6])), 10e-6, 0.5e-6),
        (D.Custom(program_std=Partial(lambda a, g: a * g, 0.05)), 10e-6, 0.5e-6),
        (D.RRAM(), 20e-6, 0.607e-6 / np.sqrt(3)),
    ],
)
def test_the_spread_of_programming(dev, g, std):
    _, state = many(dev, g)
    np.testing.assert_allclose(state.g.std(), std, rtol=STATISTICS)
    np.testing.assert_allclose(state.g.mean(), g, rtol=0, atol=4 * std / 1e5**0.5)
    np.testing.assert_array_equal(state.target, np.float32(g))


@pytest.mark.parametrize(
    ("dev", "g", "mean", "std"),
    [
        (D.PCM(), 25e-6, 0.049, 0.008),
        (D.PCM(), 2.5e-6, 0.0600901, 0.0228823),
        (D.PCM(), 25e-9, 0.1, 0.045),
        (D.PCM(), 0.0, 0.1, 0.045),
        (D.StateIndependent(), 10e-6, 0.1, 0.05),
        (D.Custom(nu=([0.0, 20e-6], [0.1, 0.05]), nu_std=0.01), 10e-6, 0.075, 0.01),
    ],
)
def test_exponents_of_drift_are_drawn_once(dev, g, mean, std):
    dev, state = many(dev, g)
    want = foldnorm(mean / std, scale=std)
    np.testing.assert_allclose(state.nu.mean(), want.mean(), rtol=0, atol=4 * std / 1e5**0.5)
    np.testing.assert_allclose(state.nu.std(), want.std(), rtol=STATISTICS)
    if g > 0:
        seen = -jnp.log(conductance(dev, state, 980.0) / state.g) / jnp.log(50.0)
        np.testing.assert_allclose(seen[:5][state.g[:5] > 0], state.nu[:5][state.g[:5] > 0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "dev", [D.PCM(nu=0.05), D.Gaussian(nu=0.05), D.StateIndependent(nu=0.05, nu_std=0.0), D.Custom(nu=0.05)]
)
def test_an_hour_of_drift(dev, dtype):
    g = jnp.full(SMALL, 2e-5, dtype)
    state = program(dev, g)
    want = 0.77110953
    ratio = conductance(dev, state, 3600.0) / conductance(dev, state, 0.0)
    assert ratio.dtype == dtype
    np.testing.assert_allclose(ratio, want, rtol=0, atol=1e-7 if dtype == np.float64 else 3e-7)
    twice = conductance(dev.replace(drift_scale=2.0), state, 3600.0)
    np.testing.assert_allclose(twice, state.g * want**2, rtol=1e-6)


def test_read_noise_of_pcm_is_that_of_the_target(dtype):
    dev = D.PCM(program_scale=0.0)
    state = program(dev, jnp.tile(jnp.asarray([25e-6, 2.5e-6, 0.25e-6], dtype), (4, 2)))
    other = state.replace(g=state.g * 3)
    q = np.tile([0.0088, 0.03930816, 0.17558308], (4, 2))
    for t, factor in ((3600.0, 4.76475), (0.0, np.sqrt(np.log(20.00000025 / 5e-7)))):
        std = dev.noise(state, conductance(dev, state, t), t)
        np.testing.assert_allclose(std / conductance(dev, state, t), q * factor, rtol=2e-6)
        # three times the conductance, three times the noise: its relative size is the target's
        np.testing.assert_allclose(dev.noise(other, 3 * state.g, t), 3 * dev.noise(state, state.g, t), rtol=2e-6)


@pytest.mark.parametrize(
    ("dev", "g", "relative"),
    [
        (D.PCM(), 25e-6, 0.0088 * 4.76475),
        (D.PCM(), 2.5e-6, 0.03930816 * 4.76475),
        (D.PCM(read_scale=0.1), 0.25e-6, 0.017558308 * 4.76475),
        (D.CMO(p=(0.0, 0.01), read_std=1e-7), 50e-6, None),
    ],
)
def test_the_spread_of_reads(dev, g, relative):
    dev, state = many(dev, g)
    now = conductance(dev, state, 3600.0)
    seen = read(dev, state, 3600.0, jax.random.key(1))
    held = now > 0.2 * g
    n = ((seen - now) / now)[held] / relative if relative else (seen - now) / 1e-7
    np.testing.assert_allclose(n.std(), 1.0, rtol=STATISTICS)
    again = read(dev, state, 3600.0, jax.random.key(2))
    assert abs(np.corrcoef((seen - now).ravel(), (again - now).ravel())[0, 1]) < 0.02


def test_cmo_drifts_by_one_number_of_a_cell():
    dev, state = many(D.CMO(p=(0.0, 0.002)), 50e-6)
    np.testing.assert_array_equal(conductance(dev, state, 0.99), state.g)
    for t in (1.0, 1e4):
        change = 1e6 * (conductance(dev, state, t) - state.g)
        np.testing.assert_allclose(change.mean(), -0.089 * np.log(t), rtol=0, atol=0.01)
        np.testing.assert_allclose(change.std(), 0.042 * np.log(t) + 0.412, rtol=STATISTICS)
    one, later = (np.asarray(conductance(dev, state, t) - state.g).ravel() for t in (10.0, 1e5))
    assert np.corrcoef(one, later)[0, 1] > 0.9999


@every_device
def test_programming_drift_and_reads_have_an_effect(name):
    dev = DEVICES[name]
    state = program(dev, jnp.full(SMALL, 2e-5))
    assert (state.g != state.target).all()
    assert (conductance(dev, state, 3600.0) != conductance(dev, state, 0.0)).all()
    np.testing.assert_array_equal(conductance(dev, state, 0.0), state.g)
    still = xb.canonical(dev).replace(drift_scale=jnp.zeros(()))
    np.testing.assert_allclose(conductance(still, state, 3600.0), state.g, rtol=1e-6)
    exact = program(dev.replace(program_scale=0.0), state.target)
    np.testing.assert_array_equal(exact.g, state.target)


@pytest.mark.parametrize("compensation", [None, "global"])
@pytest.mark.parametrize("dev", [D.PCM(nu=0.05, program_scale=0.0, read_scale=0.0), D.PCM(nu=0.05, read_scale=0.0)])
def test_a_tile_is_programmed_and_drifts_whatever_is_compensated(compensation, dev):
    w = jax.random.normal(jax.random.key(0), (6, 4))
    hw = xb.Hardware(device=dev, compensation=compensation)
    tile = xb.program(w, hw, key=jax.random.key(1))
    key = jax.random.key(2)
    x = jnp.ones((6,))
    noisy = dev.program_scale != 0
    assert (np.abs(tile(x, key=key) - x @ w).max() > 0.005) == noisy
    ratio = tile.drift(3600.0, key=key)(x) / tile.drift(0.0, key=key)(x)
    np.testing.assert_allclose(ratio, 0.77110953 if compensation is None else 1.0, rtol=1e-4)


@every_device
def test_edges_are_finite_and_not_negative(name, dtype):
    dev = DEVICES[name].replace(program_scale=20.0, read_scale=20.0, drift_scale=3.0)
    g = jnp.asarray([[0.0, 1e-12, 2e-7], [1e-5, 4e-5, 1e-4]], dtype)
    g = jnp.tile(g, (2, 2))
    state = program(dev, g, seed=3)
    assert all(x.dtype == dtype for x in jax.tree.leaves(state))
    for t in (0.0, 1e-9, 1.0, 3e7):
        for seen in (conductance(dev, state, t), read(dev, state, t, jax.random.key(4))):
            assert seen.dtype == dtype
            assert np.isfinite(seen).all()
            assert (seen >= 0).all()


@every_device
def test_gradients_are_finite_everywhere_and_right(name):
    with jax.enable_x64(True):
        dev = xb.canonical(DEVICES[name])
        g = jnp.tile(jnp.asarray([0.0, 1e-9, 8e-6, 1.7e-5, 2.4e-5, 4e-5]), (4, 1))
        key = jax.random.key(5)

        def f(dev, g, t):
            return dev.read(dev.program(g, key=key), t, key=key).sum()

        slope = jax.grad(f, (0, 1, 2))
        for t in (0.0, 3600.0):
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(slope(dev, g, jnp.asarray(t))))
        # away from 0, where conductances are cut off
        at = (jnp.full(SMALL, 1.5e-5), jnp.asarray(3600.0))
        found = slope(dev, *at)
        for k, step in ((0, 1e-10), (1, 0.1)):
            high, low = ([x + s * step if i == k else x for i, x in enumerate(at)] for s in (1, -1))
            want = (f(dev, *high) - f(dev, *low)) / (2 * step)
            np.testing.assert_allclose(found[1 + k].sum(), want, rtol=1e-5)


@every_device
def test_noise_belongs_to_the_cell(name):
    dev = DEVICES[name]
    whole = program(dev, jnp.full((7, 8), 1.5e-5))
    part = program(dev, jnp.full(SMALL, 1.5e-5), row=3, col=2)
    # The words are the same; what is computed of them may differ by a rounding between two sizes of an array.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[3:, 2:], b, rtol=3e-7), whole, part)
    assert len(np.unique(whole.g)) == whole.g.size
    seen = [dev.read(part, 60.0, key=jax.random.key(1), row=3 + k, col=2) for k in (0, 1)]
    np.testing.assert_array_equal(seen[0] == seen[1], np.broadcast_to(dev.noise(part, part.g, 60.0) == 0, SMALL))


@pytest.mark.parametrize("name", ["PCM", "RRAM"])
def test_compiled_and_batched_chips_are_those_of_one_by_one(name):
    dev = DEVICES[name]
    keys = jax.random.split(jax.random.key(0), 3)
    g = jnp.full(SMALL, 1.5e-5)
    f = lambda key, t: dev.read(dev.program(g, key=key), t, key=key)
    chips = jax.jit(jax.vmap(f, (0, None)))(keys, 60.0)
    np.testing.assert_allclose(chips[1], f(keys[1], 60.0), rtol=1e-5)
    assert (chips[0] != chips[1]).all()


@every_device
def test_stuck_cells_change_what_is_read_and_nothing_else(name):
    dev = DEVICES[name]
    mask = jnp.zeros(SMALL, bool)
    marked = lambda k: mask.at[0, k].set(True)
    stuck = D.Stuck(on=marked(0), off=marked(1), open=marked(2), value=marked(3), g=7e-6)
    g = jnp.full(SMALL, 1.5e-5)
    state = program(dev, g)
    faulty = dev.replace(stuck=stuck)
    with_faults = program(faulty, g)
    jax.tree.map(np.testing.assert_array_equal, with_faults.replace(kind=None), state)
    low, high = dev.conductance_range()
    want = np.array([high, low, 0.0, 7e-6], np.float32)
    for t in (0.0, 3600.0):
        for seen, healthy in (
            (conductance(faulty, with_faults, t), conductance(dev, state, t)),
            (read(faulty, with_faults, t, jax.random.key(1)), read(dev, state, t, jax.random.key(1))),
        ):
            np.testing.assert_allclose(seen[0, :4], want, rtol=1e-6)
            np.testing.assert_allclose(seen[0, 4:], healthy[0, 4:], rtol=1e-6)
            np.testing.assert_allclose(seen[1:], healthy[1:], rtol=1e-6)


def test_shares_of_stuck_cells_are_met_jointly():
    dev, state = many(D.PCM(stuck=D.Stuck(on=0.1, off=0.2, open=0.3)), 1e-5)
    shares = np.bincount(np.asarray(state.kind).ravel(), minlength=5) / 1e5
    np.testing.assert_allclose(shares, [0.4, 0.1, 0.2, 0.3, 0.0], rtol=0, atol=0.005)
    assert (state.g[state.kind != HEALTHY] > 0).all()
    tile = xb.program(jnp.ones((4, 3)), xb.Hardware(device=dev), key=jax.random.key(0))
    assert tile.state.kind.shape == tile.state.g.shape


def test_laws_of_a_custom_device(dtype):
    pcm = D.PCM()
    g = jnp.linspace(1e-6, 24e-6, 24, dtype=dtype).reshape(SMALL)
    same = D.Custom(
        program_std=Partial(lambda g: pcm.program_std(g)),
        nu=Partial(lambda g: pcm.exponent(g)[0]),
        nu_std=Partial(lambda g: pcm.exponent(g)[1]),
    )
    one, other = program(pcm, g), program(same, g)
    np.testing.assert_allclose(one.g, other.g, rtol=ROUNDING[str(dtype)])
    np.testing.assert_allclose(one.nu, np.abs(other.nu), rtol=50 * ROUNDING[str(dtype)])
    table = D.Custom(read_std=([0.0, 1e-5, 2e-5], jnp.array([0.0, 1e-6, 5e-6])))
    np.testing.assert_allclose(table.noise(other, g)[0, :2], [1e-7, 2e-7], rtol=1e-5)
    np.testing.assert_allclose(table.noise(other, g)[-1, -1], 5e-6, rtol=1e-6)
    timed = D.Custom(read_std=Partial(lambda a, g, t: a * g * t, 2.0))
    np.testing.assert_allclose(timed.noise(other, g, 3.0), 6 * g, rtol=1e-6)
    swept = jax.jit(jax.vmap(lambda a: timed.replace(read_std=Partial(timed.read_std.func, a)).noise(other, g, 3.0)))
    np.testing.assert_allclose(swept(jnp.array([1.0, 2.0], dtype)), jnp.stack([3 * g, 6 * g]), rtol=1e-6)


@pytest.mark.parametrize(
    ("dev", "words"),
    [
        (D.PCM(g_max=0.0), "device.g_max must be > 0"),
        (D.PCM(t0=-1.0), "device.t0"),
        (D.PCM(nu=-0.1), "device.nu"),
        (D.PCM(program_scale=-1.0), "device.program_scale"),
        (D.PCM(c=(0.0, np.nan)), r"device.c\[1\]"),
        (D.PCM(stuck=D.Stuck(on=1.5)), "device.stuck.on"),
        (D.StateIndependent(nu_std=-1.0), "device.nu_std"),
        (D.CMO(p=(0.0, -0.01)), r"device.p\[1\]"),
        (D.CMO(p=(0.0, 0.0), read_std=np.inf), "device.read_std"),
        (D.RRAM(half_width=-1e-6), "device.half_width"),
        (D.Custom(program_std=-1.0), "device.program_std"),
        (D.Custom(nu=([0.0, 0.0], [0.1, 0.1])), r"device.nu\[0\] must be nodes that increase"),
        (D.Custom(read_std=([0.0, 1.0], [0.1, -0.1])), r"device.read_std\[1\]"),
        (D.Custom(read_std=([0.0, 1.0], [0.1])), "Custom: read_std must be .nodes, values."),
        (D.Custom(read_std=abs), "Custom: read_std must be a number"),
    ],
)
def test_bad_numbers_are_named(dev, words):
    with pytest.raises((ValueError, TypeError), match=words):
        xb.program(jnp.ones((2, 2)), xb.Hardware(device=dev), key=jax.random.key(0))


def test_other_bad_arguments():
    with pytest.raises(ValueError, match=r"PCM.chip: devices must be 1 or 2, got 3"):
        D.PCM.chip(3)
    with pytest.raises(TypeError, match="program: key must be"):
        D.PCM().program(jnp.ones((2, 2)), key=None)
    keys = jax.random.split(jax.random.key(0))
    with pytest.raises(TypeError, match="one key"):
        D.PCM().program(jnp.ones((2, 2)), key=keys)
