"""The stochastic pulsed update: lengths and probabilities of trains, moments of the change, order, derivatives."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.devices.update import lines

D = 1e-3
KINDS = ("stochastic", "mean_count", "deterministic")


def ideal(dw_min=D, bound=100.0, **others):
    """A device of constant step, without spread or noise."""
    none = {"dw_min_dtod": 0.0, "dw_min_std": 0.0, "up_down_dtod": 0.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0}
    return xb.devices.ConstantStep(**{"dw_min": dw_min, "w_max": bound, "w_min": -bound} | none | others)


# One shape for all, so that a program compiles once: 8 samples of 4 rows and 5 columns, zeros where there are fewer.
SAMPLES, ROWS, COLS = 8, 4, 5


@functools.partial(jax.jit, static_argnames=("pulses", "bl_max"))
def update(dev, state, x, d, lr, key, row=0, col=0, pulses="stochastic", bl_max=31):
    return xb.pulsed_update(dev, state, x, d, lr=lr, key=key, row=row, col=col, pulses=pulses, bl_max=bl_max)


def init(dev, row=0, col=0):
    return dev.init((ROWS, COLS), key=jax.random.key(0), row=row, col=col)


def padded(x, d):
    x, d = (np.asarray(v, np.float32) for v in (x, d))
    return (np.pad(v, ((0, SAMPLES - len(v)), (0, n - v.shape[1]))) for v, n in ((x, ROWS), (d, COLS)))


def change(x, d, lr, seed=1, **static):
    """dW of an ideal device that starts at 0, float64; cells that are padding do not change."""
    dev = ideal()
    rows, cols = np.shape(x)[1], np.shape(d)[1]
    new = update(dev, zero_state(), *padded(x, d), lr, jax.random.key(seed), **static)
    w = np.array(dev.weight(new), np.float64)
    assert not w[rows:].any() and not w[:, cols:].any()
    return w[:rows, :cols]


@functools.cache
def zero_state():
    return init(ideal())


def numpy_lines(x, d, lr, dw_min, bl_max=31, bl_management=True, update_management=True):
    """Probabilities and lengths of one sample in float64, from the text of the paper."""
    x, d = np.abs(np.asarray(x, np.float64)), np.abs(np.asarray(d, np.float64))
    top_x, top_d, rate = x.max(), d.max(), abs(lr)
    k = rate * top_x * top_d / dw_min
    if k == 0:
        return np.zeros_like(x), np.zeros_like(d), 0
    length = min(int(np.ceil(k * (1 - 1e-6))), bl_max) if bl_management else bl_max
    a = b = np.sqrt(rate / (dw_min * length))
    if update_management:
        reach = top_d * min(1.0, bl_max / k)
        a, b = a * np.sqrt(top_x / reach), b * np.sqrt(reach / top_x)
    return np.minimum(1, b * x), np.minimum(1, a * d), length


# Moments.

DRAWS = 100_000
SETTINGS = {
    "one sample": ([[1.0, -0.6]], [[0.8, 0.5, -0.3]], {}),
    "two samples, long trains": ([[1.0, -0.6], [-0.5, 0.9]], [[0.8, 0.5, -0.3], [0.7, -0.9, 0.2]], {"bl_management": False}),
    "four words, equal gains": ([[1.0, -0.6]], [[0.8, 0.5, -0.3]],
                                {"bl_max": 100, "bl_management": False, "update_management": False}),
}  # fmt: skip
RATE = 0.0118


def moments(x, d, static):
    """Mean and covariance [cells, cells] of the signed number of pulses (positive lowers W), lines shared in a slot."""
    cells = [(i, j) for i in range(len(x[0])) for j in range(len(d[0]))]
    mean, cov = np.zeros(len(cells)), np.zeros((len(cells), len(cells)))
    for xs, ds in zip(x, d, strict=True):
        p, q, length = numpy_lines(xs, ds, RATE, D, **static)
        assert max(p.max(), q.max()) < 0.99, "the setting is meant to be away from saturation"
        sign = lambda i, j, xs=xs, ds=ds: np.sign(xs[i] * ds[j])
        for a, (i, j) in enumerate(cells):
            mean[a] += length * sign(i, j) * p[i] * q[j]
            for b, (k, m) in enumerate(cells):
                both = p[i] * (1 if i == k else p[k]) * q[j] * (1 if j == m else q[m])
                cov[a, b] += length * sign(i, j) * sign(k, m) * (both - p[i] * q[j] * p[k] * q[m])
    return mean, cov


def worst(got, want_mean, want_cov):
    """Largest deviations of the first two moments of [draws, cells], in standard errors."""
    n = len(got)
    var = np.diag(want_cov)
    error = np.sqrt((np.outer(var, var) * 1.2 + want_cov**2) / n)
    mean = np.abs(got.mean(axis=0) - want_mean) / np.sqrt(var / n)
    return mean.max(), (np.abs(np.cov(got.T) - want_cov) / error).max()


@functools.partial(jax.jit, static_argnames=("bl_max", "bl_management", "update_management"))
def many(dev, state, x, d, lr, keys, **static):
    one = lambda key: xb.pulsed_update(dev, state, x, d, lr=lr, key=key, **static)
    new = jax.vmap(one)(keys)
    return new.w, new.pulses


@pytest.mark.parametrize("name", SETTINGS)
def test_moments_of_the_change(name):
    x, d, static = SETTINGS[name]
    dev = ideal()
    state = dev.init((2, 3), key=jax.random.key(0))
    keys = jax.random.split(jax.random.key(7), DRAWS)
    w, pulses = many(dev, state, jnp.array(x), jnp.array(d), RATE, keys, **static)
    got = -np.asarray(w, np.float64).reshape(DRAWS, 6) / D
    assert np.abs(got - np.round(got)).max() < 1e-3, "a change is a whole number of steps"
    got = np.round(got)
    if len(x) == 1:
        np.testing.assert_array_equal(np.asarray(pulses).reshape(DRAWS, 6), np.abs(got))

    mean, cov = moments(x, d, static)
    np.testing.assert_allclose(mean * D, RATE * (np.array(x).T @ np.array(d)).ravel(), rtol=1e-9)
    of_mean, of_cov = worst(got, mean, cov)
    assert of_mean < 5 and of_cov < 5
    # what the general formula says of each pair of cells
    if len(x) == 1:
        p, q, length = numpy_lines(x[0], d[0], RATE, D, **static)
        np.testing.assert_allclose(cov[0, 0], length * p[0] * q[0] * (1 - p[0] * q[0]), rtol=1e-9)
        np.testing.assert_allclose(cov[0, 1], length * p[0] * q[0] * q[1] * (1 - p[0]), rtol=1e-9)
        np.testing.assert_allclose(-cov[0, 3], length * p[0] * p[1] * q[0] * (1 - q[0]), rtol=1e-9)
        np.testing.assert_allclose(cov[0, 4], 0, atol=1e-12)
    # independent binomials have the same mean and variances, and fail
    rng = np.random.default_rng(0)
    alone = np.zeros((DRAWS, 6))
    for xs, ds in zip(x, d, strict=True):
        p, q, length = numpy_lines(xs, ds, RATE, D, **static)
        alone += rng.binomial(length, np.outer(p, q).ravel(), (DRAWS, 6)) * np.sign(np.outer(xs, ds)).ravel()
    alone_mean, alone_cov = worst(alone, mean, cov)
    assert alone_mean < 5 and alone_cov > 20


@pytest.mark.parametrize("pulses", KINDS)
def test_saturation_and_batches(pulses):
    # BL = 31, p = q = 1
    np.testing.assert_allclose(change([[1.0]], [[1.0]], 0.05, pulses=pulses), -0.031, rtol=2e-6)
    np.testing.assert_allclose(change([[1.0]], [[1.0]], -0.05, pulses=pulses), 0.031, rtol=2e-6)
    # eight equal samples, each of ten sure coincidences; a later call does what the first did
    dev, state = ideal(), zero_state()
    x, d = np.ones((8, ROWS), np.float32), np.ones((8, COLS), np.float32)
    for call in (1, 2, 3):
        state = update(dev, state, x, d, 0.01, jax.random.key(call), pulses=pulses)
        np.testing.assert_allclose(dev.weight(state), -0.08 * call, rtol=2e-5)
        np.testing.assert_array_equal(state.pulses, 80 * call)


@pytest.mark.parametrize("pulses", ["stochastic", "mean_count"])
def test_trains_of_several_words(pulses):
    for lr, want in ((0.5, -0.1), (0.05, -0.05), (0.03, -0.03), (-0.062, 0.062)):
        got = change([[1.0]], [[1.0]], lr, pulses=pulses, bl_max=100)
        np.testing.assert_allclose(got, want, rtol=5e-6)


def test_very_long_trains_are_right_or_refused():
    dev, ones = ideal(2.0**-15), np.ones((1, 1), np.float32)
    state = jax.tree.map(lambda v: v[:1, :1], init(dev))
    refusal = None
    try:
        w = xb.pulsed_update(dev, state, ones, ones, lr=1.0, key=jax.random.key(0), pulses="mean_count", bl_max=2**15).w
    except ValueError as e:
        refusal = str(e)
    assert "bl_max" in refusal if refusal else w.tolist() == [[-1.0]]


def test_noise_of_a_pulse_and_the_trains_are_independent():
    # The first row always fires. In the others a pulse falls where the bit of the row is set, and its size must not
    # know of that bit.
    rows, noisy = 40_000, {"dw_min_std": 0.3}
    x = jnp.full((1, rows), 0.5).at[0, 0].set(1.0)
    single = ideal(0.01, 1.0, **noisy)
    pair = xb.devices.OneSided(device=ideal(0.01, 1.0, w_min=0.0, **noisy), refresh_at=jnp.inf)
    alike = jax.tree.map(lambda v: jnp.broadcast_to(v[:1, :1], (rows, 2)), init(single))
    floor = alike.replace(cells=alike.cells | {"lower": jnp.zeros((rows, 2))})
    for dev, state in ((single, alike), (pair, xb.devices.OneSidedState(plus=floor, minus=floor))):
        for side in (1.0, -1.0):
            new = update(dev, state, x, jnp.full((1, 2), side), 0.01, jax.random.key(3))
            step = np.asarray(dev.weight(new)) / (-0.01 * side)
            for j in (0, 1):
                hit = step[1:, j][step[1:, j] != 0]
                assert abs(len(hit) / rows - 0.5) < 0.0125
                np.testing.assert_allclose(hit.mean(), 1, atol=0.01)
                np.testing.assert_allclose(hit.std(), 0.3, rtol=0.03)


# Lengths and probabilities.


@functools.partial(jax.jit, static_argnames=("bl_max", "bl_management"))
@functools.partial(jax.vmap, in_axes=(0, 0, 0, None, None))
def length(x, lr, dw, bl_max=31, bl_management=True):
    return lines(x[None], jnp.ones((1, 1), x.dtype), lr=lr, dw_min=dw, bl_max=bl_max, bl_management=bl_management).slots


def lengths(x, lr, dw, dtype=np.float32, **static):
    x, lr, dw = (np.atleast_1d(np.asarray(v, dtype)) for v in np.broadcast_arrays(x, lr, dw))
    static = {"bl_max": 31, "bl_management": True} | static
    both = np.stack([x, x / 7], axis=1)
    return np.asarray(length(both, lr, dw, static["bl_max"], static["bl_management"]))[:, 0].tolist()


def test_length_of_the_trains(dtype):
    assert lengths(1.0, 0.006, 0.0002, dtype) == [30]  # 30.000002 in float32
    assert lengths(0.6, 0.01, 0.0002, dtype) == [30]
    step, n = np.meshgrid([1e-3, 2e-4, 1.6e-3, 0.07, 2.8214e-4], np.arange(1, 32), indexing="ij")
    step, n = step.ravel(), n.ravel()
    assert lengths(1.0, n * step, step, dtype) == n.tolist()
    assert lengths(1.0, -n * step, step, dtype) == n.tolist()
    assert lengths(n * 0.1, 10 * step, step, dtype) == n.tolist()
    assert lengths(1.0, (n + 1e-4) * step, step, dtype) == np.minimum(n + 1, 31).tolist()


def test_longest_train():
    assert lengths(1.0, 1.0, 1e-3) == [31]
    assert lengths([1.0, 0.05], 1.0, 1e-3, bl_max=100) == [100, 50]
    assert lengths([1.0, 0.0], 1e-5, 1e-3, bl_management=False) == [31, 0]


ALL_LINES = functools.partial(jax.jit, static_argnames=("bl_max", "bl_management", "update_management"))(
    lambda x, d, lr, **static: lines(x, d, lr=lr, dw_min=D, **static)
)


@pytest.mark.parametrize("pulses", KINDS)
def test_a_zero_sample_sends_nothing(pulses):
    zeros = ((0.0, 1.0, 0.1), (1.0, 0.0, 0.1), (1.0, 1.0, 0.0), (0.0, 0.0, 0.0))
    for x, d, lr in zeros:
        sent = ALL_LINES(jnp.full((1, 3), x), jnp.full((1, 2), d), lr)
        assert sent.slots.tolist() == [0]
        assert np.isfinite(sent.rows).all() and np.isfinite(sent.cols).all()
    dev = ideal(dw_min_std=0.3, write_noise_std=1.0)
    x, d = np.ones((8, ROWS), np.float32), np.ones((8, COLS), np.float32)
    state = update(dev, zero_state(), x, d, 0.01, jax.random.key(1), pulses=pulses)
    assert np.ptp(dev.weight(state)) > 0
    for a, b, lr in zeros:
        new = update(dev, state, a * x, b * d, lr, jax.random.key(2), pulses=pulses)
        for u, v in zip(jax.tree.leaves(new), jax.tree.leaves(state), strict=True):
            np.testing.assert_array_equal(u, v)


@pytest.mark.parametrize(("bl_management", "update_management"), [(True, True), (False, True), (True, False)])
def test_lines_equal_float64(bl_management, update_management):
    rng = np.random.default_rng(0)
    # samples from far below one step to far above the longest train
    x = rng.normal(size=(40, 5)) * 10.0 ** rng.uniform(-4, 2, (40, 1))
    d = rng.normal(size=(40, 3)) * 10.0 ** rng.uniform(-4, 2, (40, 1))
    x[0], d[1], x[2, 1:] = 0.0, 0.0, 0.0
    for lr in (0.01, -0.3):
        for bl_max in (31, 7):
            static = {"bl_max": bl_max, "bl_management": bl_management, "update_management": update_management}
            got = ALL_LINES(jnp.float32(x), jnp.float32(d), lr, **static)
            want = [numpy_lines(a, b, lr, D, **static) for a, b in zip(x, d, strict=True)]
            some = np.array([v[2] > 0 for v in want])
            np.testing.assert_array_equal(got.slots, [v[2] for v in want])
            np.testing.assert_allclose(np.abs(got.rows)[some], np.array([v[0] for v in want])[some], rtol=2e-6)
            np.testing.assert_allclose(np.abs(got.cols)[some], np.array([v[1] for v in want])[some], rtol=2e-6)
            np.testing.assert_array_equal(np.sign(got.rows)[some], (np.sign(x) * np.sign(lr))[some])
            np.testing.assert_array_equal(np.sign(got.cols)[some], np.sign(d)[some])
            assert np.abs(got.rows).max() <= 1 and np.abs(got.cols).max() <= 1


@pytest.mark.parametrize("pulses", ["mean_count", "deterministic"])
def test_counted_variants_equal_numpy(pulses):
    rng = np.random.default_rng(3)
    x, d = rng.normal(size=(6, 4)), rng.normal(size=(6, 5))
    x[5] = 0.0
    for lr in (0.004, 0.03, -0.03):
        want = np.zeros((4, 5))
        for xs, ds in zip(x, d, strict=True):
            p, q, length = numpy_lines(xs, ds, lr, D)
            if length == 0:
                continue
            if pulses == "mean_count":  # halves, which are common here, count as one
                n = np.floor(np.outer(np.round(length * p), np.round(length * q)) / length + 0.5)
            else:
                n = np.round(length * np.outer(p, q))
            want -= D * n * np.sign(lr * np.outer(xs, ds))
        np.testing.assert_allclose(change(x, d, lr, pulses=pulses), want, rtol=0, atol=D / 100)


@pytest.mark.parametrize("pulses", KINDS)
def test_a_negative_rate_reverses_every_pulse(pulses):
    rng = np.random.default_rng(4)
    x, d = rng.normal(size=(6, 4)), rng.normal(size=(6, 5))
    forth, back = (change(x, d, lr, pulses=pulses) for lr in (0.02, -0.02))
    np.testing.assert_allclose(back, -forth, rtol=1e-6)
    # and the positive one descends
    assert np.corrcoef(forth.ravel(), (-x.T @ d).ravel())[0, 1] > 0.9


@pytest.mark.parametrize(("kind", "pulses"), [("SoftBounds", "stochastic"), *(("ConstantStep", p) for p in KINDS)])
def test_samples_act_in_order(kind, pulses):
    step, high, low = 0.2, 0.9, -0.7
    cls = getattr(xb.devices, kind)
    dev = cls(dw_min=step, w_max=high, w_min=low,
              dw_min_dtod=0.0, dw_min_std=0.0, up_down_dtod=0.0, w_max_dtod=0.0, w_min_dtod=0.0)  # fmt: skip
    soft = kind == "SoftBounds"
    rng = np.random.default_rng(0)
    x, d = (rng.choice([-1.0, 1.0], (SAMPLES, n)) for n in (ROWS, COLS))
    results = []
    for order in (slice(None), slice(None, None, -1)):
        w = np.zeros((ROWS, COLS))
        for xs, ds in zip(x[order], d[order], strict=True):
            for _ in range(3):  # lr = 3 steps: three sure coincidences a sample
                up = -np.outer(xs, ds) > 0
                size = np.where(up, step * (1 - soft * w / high), -step * (1 - soft * w / low))
                w = np.clip(w + size, low, high)
        state = init(dev)
        a, b = np.float32(x[order]), np.float32(d[order])
        state = update(dev, state, a, b, 3 * step, jax.random.key(1), pulses=pulses)
        np.testing.assert_allclose(dev.weight(state), w, rtol=0, atol=2e-6)
        results.append(w)
    assert np.abs(results[0] - results[1]).max() > 0.1


def test_lines_and_noise_are_indexed_by_cell():
    dev = ideal(0.01, 1.0, dw_min_std=0.3, dw_min_dtod=0.3, write_noise_std=0.5, diffusion=0.003)
    rng = np.random.default_rng(1)
    x, d = rng.uniform(-0.9, 0.9, (SAMPLES, ROWS + 1)), rng.uniform(-0.9, 0.9, (SAMPLES, COLS + 2))
    x[:, 1] = d[:, 2] = 1.0  # every part has the same maximum

    def part(row, col, at_row, at_col):
        a, b = np.float32(x[:, row : row + ROWS]), np.float32(d[:, col : col + COLS])
        return np.asarray(
            dev.weight(update(dev, init(dev, at_row, at_col), a, b, 0.08, jax.random.key(5), at_row, at_col))
        )

    first, moved, elsewhere = part(0, 0, 0, 0), part(1, 2, 1, 2), part(1, 2, 0, 0)
    np.testing.assert_array_equal(moved[:-1, :-2], first[1:, 2:])
    assert np.abs(elsewhere - moved).max() > 1e-3


# Use inside other programs.


def test_numbers_may_be_literals_or_constants_inside_jit():
    dev = ideal()
    x, d, key = jnp.ones((1, ROWS)), jnp.ones((1, COLS)), jax.random.key(1)
    f = lambda s: xb.pulsed_update(dev, s, x, np.asarray(d), lr=0.01, key=key)
    np.testing.assert_allclose(jax.jit(f)(zero_state()).w, -0.01, rtol=1e-5)


def test_a_new_number_compiles_nothing():
    x, d = padded([[1.0]], [[1.0]])
    before = update._cache_size()
    for dw, lr in ((1e-3, 0.01), (2e-3, 0.02), (1e-3, -0.03)):
        dev = ideal(dw)
        new = update(dev, init(dev), x, d, lr, jax.random.key(0))
        np.testing.assert_allclose(new.w[0, 0], -lr, rtol=1e-5)
    assert update._cache_size() <= before + 1


def test_a_step_given_for_each_cell():
    x, d = padded([[1.0, 0.4, -0.3]], [[0.5, -1.0]])
    got = update(ideal(jnp.full((ROWS, COLS), D)), zero_state(), x, d, 0.02, jax.random.key(1)).w
    want = update(ideal(), zero_state(), x, d, 0.02, jax.random.key(1)).w
    np.testing.assert_array_equal(got, want)
    assert np.abs(want).max() > 5 * D


# Derivatives.


@functools.partial(jax.jit, static_argnames="pulses")
def grads(dev, state, c, x, d, lr, pulses="stochastic"):
    """Derivatives of sum(c W') with respect to W, its cells, x, d and lr."""

    def loss(w, cells, x, d, lr):
        new = state.replace(w=w, cells=cells)
        new = xb.pulsed_update(dev, new, x, d, lr=lr, key=jax.random.key(1), pulses=pulses)
        return (c * dev.weight(new)).sum()

    return jax.grad(loss, argnums=(0, 1, 2, 3, 4))(state.w, state.cells, x, d, lr)


@pytest.mark.parametrize("pulses", ["stochastic", "mean_count"])
def test_derivative_of_a_constant_step(pulses):
    rng = np.random.default_rng(6)
    x, d, c = (rng.normal(size=s).astype(np.float32) for s in ((3, ROWS), (3, COLS), (ROWS, COLS)))
    lr = 0.02
    gw, _, gx, gd, glr = grads(ideal(), zero_state(), c, x, d, lr, pulses)
    np.testing.assert_allclose(gw, c, rtol=1e-6)  # of W - lr x^T d
    np.testing.assert_allclose(gx, -lr * d @ c.T, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gd, -lr * x @ c, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(glr, -(c * (x.T @ d)).sum(), rtol=1e-5)

    # Bounds at -0.5 and 0.5; the first sample moves column 0 up and the others down, the rest send nothing.
    x = np.array([[1, 1, 1, 1]] + 2 * [[0, 0, 0, 0]], np.float32)
    d = np.array([[-1, 1, 1, 1, 1]] + 2 * [[0] * 5], np.float32)
    w = np.zeros((ROWS, COLS), np.float32)
    w[0], w[1] = 0.5, -0.5
    stays = np.zeros((ROWS, COLS), bool)
    stays[0, 0] = stays[1, 1:] = True
    gw, cells, gx, *_ = grads(
        ideal(bound=0.5), zero_state().replace(w=jnp.array(w), cells=bounds(0.5)), c, x, d, lr, pulses
    )
    np.testing.assert_allclose(gw, np.where(stays, 0, c), rtol=1e-6)
    np.testing.assert_allclose(gx[0], -lr * (np.where(stays, 0, c) * d[0]).sum(axis=1), rtol=1e-4)
    np.testing.assert_allclose(cells["upper"], np.where(stays & (w > 0), c, 0), rtol=1e-6)
    np.testing.assert_allclose(cells["lower"], np.where(stays & (w < 0), c, 0), rtol=1e-6)


def test_derivative_with_a_step_for_each_cell():
    # pulses are counted in the mean step, so a cell moves by -lr x d times its own step over the mean
    rng = np.random.default_rng(6)
    x, d, c = (rng.normal(size=s).astype(np.float32) for s in ((3, ROWS), (3, COLS), (ROWS, COLS)))
    step = D * rng.uniform(0.5, 1.5, (ROWS, COLS)).astype(np.float32)
    dev = ideal(jnp.asarray(step))
    *_, gx, _, glr = grads(dev, init(dev), c, x, d, 0.02)
    weighted = c * step / step.mean()
    np.testing.assert_allclose(gx, -0.02 * d @ weighted.T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(glr, -(weighted * (x.T @ d)).sum(), rtol=1e-4)


def bounds(b):
    cells = zero_state().cells
    return cells | {"upper": jnp.full_like(cells["upper"], b), "lower": jnp.full_like(cells["lower"], -b)}


def test_derivative_of_the_state_follows_the_pulses():
    # n up pulses of a soft-bounds cell: w_n = b - (b - w)(1 - D/b)^n
    step, b, n = 0.05, 0.8, 6
    dev = xb.devices.SoftBounds(dw_min=step, w_max=b, w_min=-b,
                                dw_min_dtod=0.0, dw_min_std=0.0, up_down_dtod=0.0, w_max_dtod=0.0, w_min_dtod=0.0)  # fmt: skip
    w = np.linspace(-0.5, 0.6, ROWS * COLS).reshape(ROWS, COLS)
    state = dev.init((ROWS, COLS), key=jax.random.key(0), w=w)
    x, d = np.ones((1, ROWS), np.float32), -np.ones((1, COLS), np.float32)
    gw, cells, gx, *_ = grads(dev, state, np.ones((ROWS, COLS), np.float32), x, d, n * step)
    keep = 1 - step / b
    np.testing.assert_allclose(gw, keep**n, rtol=1e-5)
    np.testing.assert_allclose(cells["step_up"], (b - w) * n * keep ** (n - 1) / b, rtol=1e-5)
    of_bound = 1 - keep**n - (b - w) * n * keep ** (n - 1) * step / b**2
    np.testing.assert_allclose(cells["upper"], of_bound, rtol=1e-4, atol=1e-5)
    # of x: every expected pulse moves the cell by its step at the new weight
    new = b - (b - w) * keep**n
    np.testing.assert_allclose(gx[0], (n * step * (1 - new / b)).sum(axis=1), rtol=1e-5)


# Errors.


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": jnp.ones((1, 4))}, ValueError, r"pulsed_update: x must be of shape \[batch, 3\]"),
        ({"x": jnp.ones(3)}, ValueError, r"pulsed_update: x must be of shape \[batch, 3\]"),
        ({"d": jnp.ones((1, 3))}, ValueError, r"pulsed_update: d must be of shape \[batch, 2\]"),
        ({"d": jnp.ones((2, 2))}, ValueError, "pulsed_update: x and d must have the same batch, got 1 and 2"),
        ({"x": jnp.ones((1, 3), jnp.int32)}, ValueError, "pulsed_update: x must be floating point, got int32"),
        ({"x": jnp.full((1, 3), jnp.nan)}, ValueError, "pulsed_update: x must be finite"),
        ({"d": jnp.full((1, 2), jnp.inf)}, ValueError, "pulsed_update: d must be finite"),
        ({"lr": np.nan}, ValueError, "pulsed_update: lr must be finite, got nan"),
        ({"pulses": "mean"}, ValueError, "pulsed_update: pulses must be one of stochastic, mean_count, deterministic"),
        ({"bl_max": 0}, ValueError, "pulsed_update: bl_max must be an integer .* 1.*, got 0"),
        ({"bl_max": 10.0}, ValueError, "pulsed_update: bl_max must be an integer .* 1.*, got 10.0"),
        ({"key": np.zeros(2, np.uint32)}, TypeError, "key must be a typed key"),
        ({"key": jax.random.key(0, impl="rbg")}, TypeError, "key must be of implementation threefry2x32, got rbg"),
    ],
)
def test_an_error_names_its_argument(change, error, message):
    dev = ideal()
    state = jax.tree.map(lambda v: v[:3, :2], zero_state())
    args = {"x": jnp.ones((1, 3)), "d": jnp.ones((1, 2)), "lr": 0.01, "key": jax.random.key(0)} | change
    with pytest.raises(error, match=message):
        xb.pulsed_update(dev, state, args.pop("x"), args.pop("d"), **args)
