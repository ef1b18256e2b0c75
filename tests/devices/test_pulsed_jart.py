"""JART v1b in training: N and weight move and are seen, in the native and the JAX form, through files, and on digits."""

from __future__ import annotations

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from forms import run

import xbar_jax as xb
from xbar_jax.devices import JARTv1b, Pulsed, Spread

SPREAD = {"r": Spread(dtod=0.05, low=40.5e-9, high=49.5e-9), "l_d": Spread(dtod=0.05, low=0.36e-9, high=0.44e-9)}


def trained(**others):
    """As JART is used in training: N in [.06, 1.98974521], weights from the current at 0.2 V."""
    cell = JARTv1b(n_low=0.06, n_high=1.98974521, spread=SPREAD)
    return Pulsed(cell, v_set=-0.342, v_reset=0.7065, width=1e-6, dw_min=0.0125, **others)


@functools.cache
def digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x = np.hstack([x[order] / 16.0, np.ones((len(y), 1))]).astype(np.float32)
    return x, y[order]


def test_weights_move_in_both_forms_and_survive_a_file(tmp_path):
    """64x64 cells, each with radius and disc of its own: 8 samples, native against the JAX form."""
    rng = np.random.default_rng(1)
    x, d = (rng.normal(size=(8, 64)).astype(np.float32) for _ in range(2))
    dev = trained()
    state = dev.init((64, 64), key=jax.random.key(0), w=0.0)
    update = lambda state: xb.pulsed_update(dev, state, x, d, lr=0.02, key=jax.random.key(1))
    fast = run("native", update, state)
    body = run("body", update, state)
    assert (fast.pulses == body.pulses).all() and 0.3 < np.mean(np.asarray(fast.pulses) > 0) < 1
    moved = np.asarray(fast.cell.log_n - state.cell.log_n)
    hit = np.asarray(fast.pulses) > 0
    assert (moved[~hit] == 0).all() and (moved[hit] != 0).mean() > 0.9
    np.testing.assert_allclose(fast.cell.log_n, body.cell.log_n, atol=2e-5)
    np.testing.assert_allclose(dev.weight(fast), dev.weight(body), atol=2e-5)
    # The weight follows -x^T d, though every cell moves at a speed of its own.
    change = np.asarray(dev.weight(fast) - dev.weight(state))
    assert np.corrcoef(change.ravel(), -(x.T @ d).ravel())[0, 1] > 0.6
    (tmp_path / "state").write_bytes(pickle.dumps(fast))
    again = pickle.loads((tmp_path / "state").read_bytes())
    assert (np.asarray(again.cell.log_n) == np.asarray(fast.cell.log_n)).all()
    assert (np.asarray(dev.weight(again)) == np.asarray(dev.weight(fast))).all()
    then, now = update(again), update(fast)
    assert (np.asarray(then.cell.log_n) == np.asarray(now.cell.log_n)).all()


@pytest.mark.long
def test_a_digits_network_trains_on_it():
    """Softmax regression whose weights are 650 JART cells and only ever change by pulses; one epoch."""
    x, y = digits()
    dev = trained()

    def epoch(state):
        batches = jnp.asarray(x[:1430].reshape(143, 10, 65)), jnp.asarray(y[:1430].reshape(143, 10))

        def step(state, xs):
            x, y, k = xs
            error = jax.nn.softmax(4.0 * (x @ dev.weight(state))) - jax.nn.one_hot(y, 10)
            return xb.pulsed_update(dev, state, x, error, lr=0.05, key=jax.random.fold_in(jax.random.key(2), k)), None

        return jax.lax.scan(step, state, (*batches, jnp.arange(143)))[0]

    state = dev.init((65, 10), key=jax.random.key(0), w=0.0)
    new = run("native", epoch, state)
    right = lambda state: (np.asarray(x[1430:] @ dev.weight(state)).argmax(1) == y[1430:]).mean()
    assert right(state) < 0.2 and right(new) > 0.8
    assert new.pulses.mean() > 50
    n = np.asarray(new.cell.n)
    assert n.std() > 0.1 and n.min() >= 0.06 * (1 - 1e-6) and n.max() <= 1.98974521 * (1 + 1e-6)
