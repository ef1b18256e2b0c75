"""Resistive memory against the cells that it was fitted to, and against cells that were held out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import CASES

import xbar_jax as xb
from xbar_jax.devices.relaxation import sinh_arcsinh
from xbar_jax.devices.relaxation_fit import correlations, fit_relaxation, initial_law, load_relaxation, predicted, split

RRAM = xb.devices.RRAM
FILE = CASES.parent / "data" / "rram_relaxation" / "techC_relaxdata.min.tsv.gz"
SHAPE = (400, 250)


@pytest.fixture(scope="module")
def held_out():
    if not FILE.exists():
        pytest.skip(f"measured cells are not beside this checkout (rram_relaxation/{FILE.name})")
    return split(load_relaxation(FILE))[1]


@pytest.fixture(scope="module")
def state():
    return RRAM().program(jnp.full(SHAPE, 2e-5), key=jax.random.key(0))


def below(data, levels):
    return data.part(data.level < levels)


@pytest.mark.parametrize(("t", "tolerance"), [(1.0, 0.03), (4.0, 0.06), (1e5, 0.03)])
def test_the_spread_of_cells_that_were_held_out(held_out, t, tolerance):
    data = below(held_out, 32)
    j = int(np.argmin(np.abs(data.t - t)))
    read = np.isfinite(data.change[:, j])
    change, g = data.change[read, j], data.g[read]
    mean, square = predicted(RRAM().relaxation, g, t)
    std = np.sqrt(square.mean() - mean.mean() ** 2)
    np.testing.assert_allclose(std, change.std(), rtol=tolerance)
    np.testing.assert_allclose(mean.mean(), change.mean(), rtol=0, atol=0.1e-6)
    # drawn cells, many times the measured ones
    dev = RRAM(half_width=0.0)
    target = jnp.asarray(np.random.default_rng(0).choice(g.astype(np.float32), SHAPE))
    drawn = dev.conductance(dev.program(target, key=jax.random.key(0)), t) - target
    np.testing.assert_allclose(drawn.std(), std, rtol=0.015)
    quartiles = lambda x: np.subtract(*np.quantile(x, [0.75, 0.25]))
    np.testing.assert_allclose(quartiles(drawn), quartiles(change), rtol=0.15)


def test_programming_of_held_out_cells(held_out):
    data = below(held_out, 32)
    error = data.g - (data.level + 0.5) * 1.25e-6
    np.testing.assert_allclose(error.std(), RRAM().half_width / np.sqrt(3), rtol=0.02)
    fourth = (error**4).mean() / (error**2).mean() ** 2
    assert abs(fourth - 1.8) < 0.15  # 1.8 of a uniform number, 3 of a normal one


def test_times_of_held_out_cells_hang_together(held_out):
    law = RRAM().relaxation
    data = held_out.part((held_out.level >= 4) & (held_out.level < 32))
    a = np.array([law.direction(jnp.asarray(t)) for t in data.t])
    np.testing.assert_allclose(a @ a.T, correlations(law, data), rtol=0, atol=0.1)


def test_programming_stops_anywhere_in_the_window(state):
    error = 1e6 * (state.g - state.target)
    assert np.abs(error).max() <= 0.6071
    np.testing.assert_allclose(error.std(), 0.607 / np.sqrt(3), rtol=0.01)


def test_all_times_see_one_trajectory(state):
    dev = RRAM()
    change = {t: np.asarray(dev.conductance(state, t) - state.g) for t in (1.0, 1.1, 1e5)}
    np.testing.assert_array_equal(change[1.0], dev.conductance(state, 1.0) - state.g)
    ranks = {t: np.argsort(np.argsort(c.ravel())) for t, c in change.items()}
    assert np.corrcoef(ranks[1.0], ranks[1.1])[0, 1] > 0.98
    assert 0.2 < np.corrcoef(ranks[1.0], ranks[1e5])[0, 1] < 0.45
    np.testing.assert_array_equal(dev.conductance(state, 0.0), state.g)
    (mean,), (square,) = predicted(dev.relaxation, np.array([2e-5]), 1e5)
    np.testing.assert_allclose(change[1e5].std(), np.sqrt(square - mean**2), rtol=0.01)
    np.testing.assert_allclose(change[1e5].mean(), mean, rtol=0, atol=0.05e-6)


@pytest.mark.parametrize(("h", "e"), [(0.05, 0.0), (0.05, 2.0), (1.0, -0.4), (1.6, 0.5)])
def test_the_transform_has_mean_0_and_variance_1(h, e, dtype):
    z = np.linspace(-12.0, 12.0, 20001)
    weight = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    w = np.asarray(sinh_arcsinh(*(jnp.asarray(x, dtype) for x in (z, np.full_like(z, h), np.full_like(z, e)))))
    assert w.dtype == dtype
    np.testing.assert_allclose([(w * weight).sum(), (w**2 * weight).sum()], [0.0, 1.0], rtol=0, atol=2e-4)
    assert (np.diff(w) > 0).all()


def test_the_law_is_smooth_and_in_range(dtype):
    law = RRAM().relaxation
    g = jnp.asarray([[0.0], [1e-7], [2e-5], [4e-5], [1e-4]], dtype)
    t = jnp.asarray([[0.0, 1e-12, 1e-3, 1.0, 1e5, 3e7]], dtype)
    mean, std, h, _ = law.statistics(g, t)
    assert mean.dtype == std.dtype == dtype
    assert (mean[:, 0] == 0).all()
    assert (std[:, 0] == 0).all()
    assert (np.diff(std, axis=1) >= 0).all()
    assert (std < 6e-6).all()
    assert ((h >= 0.05) & (h <= 1.6)).all()
    for at in t[0]:
        np.testing.assert_allclose(sum(a * a for a in law.direction(at)), 1.0, rtol=1e-5)


@pytest.mark.long
def test_a_fit_finds_the_law_that_cells_were_drawn_from():
    rng = np.random.default_rng(0)
    start = initial_law(np.array([0.1, 10.0, 1e3]))
    truth = start.replace(
        mean=[[0.0, -1e-6, 0.0, 0.0], [0.0] * 4],
        p=[0.6, 0.0, 0.0],
        s=[-14.0, 1.0, 0.0, 0.0],
        tail=[-0.5, 0.0, 0.0, 0.0],
    )
    level = np.repeat(np.arange(4), 1500) * 2 + 8
    g = (level + rng.uniform(0, 1, level.shape)) * 1.25e-6
    with jax.enable_x64(True):
        n = tuple(jnp.asarray(x) for x in rng.normal(size=(3, len(g))))
        change = np.stack([np.asarray(truth.change(jnp.asarray(g), t, n)) for t in start_times(start)], axis=1)
    data = xb.devices.RelaxationData(g, (level - 8) // 2, start_times(start), change)
    found = fit_relaxation(data, start, levels=4)
    for t in (1.0, 100.0):
        (m0, s0), (m1, s1) = (predicted(law, np.array([1.2e-5, 1.8e-5]), t) for law in (truth, found))
        np.testing.assert_allclose(np.sqrt(s1 - m1**2), np.sqrt(s0 - m0**2), rtol=0.06)
        np.testing.assert_allclose(m1, m0, rtol=0, atol=0.15e-6)


def start_times(law):
    return 10.0 ** np.array(law.nodes)


def test_a_table_of_another_width_is_refused(tmp_path):
    file = tmp_path / "cells.tsv"
    file.write_text("1 2 3\n")
    with pytest.raises(ValueError, match="load_relaxation: file must have 7 columns, got 3"):
        load_relaxation(file)
