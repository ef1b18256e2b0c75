"""JAX body, CPU kernel and the CUDA source run on the host give the same pulses and the same weights."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from forms import run
from jax.test_util import check_grads

import xbar_jax as xb
from xbar_jax import native
from xbar_jax.devices import kernels
from xbar_jax.native import library

pytestmark = pytest.mark.skipif(not library.enabled(), reason="XBAR_NATIVE=0 turns off what is tested here")

D = xb.devices
DEVICES = {
    "ConstantStep": D.ConstantStep(write_noise_std=2.0, diffusion=1e-3, lifetime=50.0),
    "LinearStep": D.LinearStep(gamma_up=0.3, gamma_down=0.5),
    "LinearStep, additive": D.LinearStep(gamma_up=0.3, gamma_down=0.5, relative_noise=0.0),
    "SoftBounds": D.SoftBounds(corrupt_devices_prob=0.1),
    "SoftBoundsReference": D.SoftBoundsReference(subtract_symmetry_point=True),
    "ExpStep": D.ExpStep(dw_min=0.003, corrupt_devices_prob=0.1),
    "PowStep": D.PowStep(gamma_up=2.2, gamma_down=0.4, corrupt_devices_prob=0.1),
    "PiecewiseStep": D.PiecewiseStep(nodes_up=(1.0, 0.5, 2.0), nodes_down=(0.3, 1.0, 0.7)),
    "OneSided": D.OneSided(device=D.SoftBounds(dw_min=0.02, w_min=0.0, w_max=1.0)),
    "ReRamES": D.presets["ReRamES"],  # noise of many steps
    "ReRamArrayOM": D.presets["ReRamArrayOM"],  # log-normal
}

# Two evaluations of log, sin and exp differ by a few units of the last place in each of some 60 pulses; the
# presets whose noise is many times their step see that much more of it.
ROUNDING = 2e-6


def same(a, b, tolerance=ROUNDING):
    """Integers bit for bit, numbers to rounding."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jnp.integer):
            np.testing.assert_array_equal(x, y)
        else:
            np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


def inputs(rows, cols, samples, seed=0):
    k1, k2 = jax.random.split(jax.random.key(seed))
    x = jax.random.uniform(k1, (samples, rows), minval=-1.0)
    return x, 0.1 * jax.random.normal(k2, (samples, cols))


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_in_three_forms(name):
    dev = DEVICES[name]
    x, d = inputs(7, 39, 6)

    @jax.jit
    def both(key):
        state = dev.init((7, 39), key=key)
        state = xb.pulsed_update(dev, state, x, d, lr=0.2, key=key, row=3, col=100)
        n = jax.random.randint(key, (7, 39), -40, 40)  # more than one word's worth of pulses
        return dev.pulse(state, n, key=key, row=3, col=100)

    body, fast, host = (run(form, both, jax.random.key(5)) for form in ("body", "native", "standin"))
    moved = np.abs(np.asarray(dev.weight(body) - dev.weight(dev.init((7, 39), key=jax.random.key(5)))))
    assert np.median(moved) > 1e-3
    same(body, fast)
    same(host, fast, tolerance=0.0)  # the same arithmetic in the same order


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mean_count", "deterministic"])
@pytest.mark.parametrize("name", ["SoftBounds", "OneSided"])
def test_counted_variants_in_three_forms(name, kind):
    dev = DEVICES[name]
    x, d = inputs(5, 18, 4)
    f = jax.jit(
        lambda k: xb.pulsed_update(
            dev, dev.init((5, 18), key=k), x, d, lr=-0.2, key=k, pulses=kind, bl_management=False
        )
    )
    body, fast, host = (run(form, f, jax.random.key(0)) for form in ("body", "native", "standin"))
    same(body, fast)
    same(host, fast, tolerance=0.0)


def operands(samples=3, words=2, rows=5, cols=21):
    k = jax.random.split(jax.random.key(1), 6)
    bits = lambda key, *shape: jax.random.bits(key, shape, jnp.uint32)
    return [
        jax.random.uniform(k[0], (rows, cols), minval=-0.3, maxval=0.3),
        bits(k[1], samples, words, rows) & bits(k[5], samples, words, rows),
        bits(k[2], samples, words, cols),
        bits(k[3], samples, 2),
        jnp.array([7, 1000], jnp.uint32),
        jnp.full((1, 1), 0.01),
        jax.random.uniform(k[4], (rows, cols), minval=0.005, maxval=0.02),
        jnp.full((rows, 1), 0.6),
        jnp.full((1, cols), -0.6),
        jnp.full((1, 1), 0.3),
    ]


def coincidences(*xs):
    return kernels.coincidences(*xs, device=D.ConstantStep)


def batched(xs, axes, size=3):
    """Operands of which those with an axis are ``size`` different ones along it."""
    out = []
    for x, axis in zip(xs, axes, strict=True):
        if axis is None:
            out.append(x)
            continue
        parts = [x if i == 0 else (jnp.roll(x, i) if x.size > 1 else x * (1 + i / 4)) for i in range(size)]
        out.append(jnp.stack(parts, axis=axis))
    return out


# w, row trains, col trains, keys, origin, then two of the parameters share one choice each.
ONE = [tuple(0 if i == k else None for i in range(6)) for k in range(6)]
ALL_BUT_ONE = [tuple(None if i == k else 0 for i in range(6)) for k in range(6)]
CHOICES = [*ONE, *ALL_BUT_ONE, (0,) * 6, (0, None, 0, None, 0, None), (None, 0, None, 0, None, 0)]


@pytest.mark.long
@pytest.mark.parametrize("form", ["native", "standin"])
def test_every_choice_of_in_axes(form):
    xs = operands()
    one = jax.jit(lambda *a: kernels.coincidences.body(*a, device=D.ConstantStep))
    for choice in CHOICES:
        axes = (*choice[:5], choice[5], None, choice[5], None, choice[5])
        args = batched(xs, axes)
        got = run(form, jax.vmap(coincidences, in_axes=axes), *args)
        for b in range(3):
            want = one(*(x if a is None else x[b] for x, a in zip(args, axes, strict=True)))
            same(want, [g[b] for g in got])


@pytest.mark.parametrize("form", ["native", "standin"])
def test_nested_vmap_shares_operands_along_different_axes(form):
    xs = operands()
    outer = (None, 0, None, 0, None, None, 0, None, None, 0)
    inner = (0, None, 0, None, 0, 0, None, None, 0, None)
    args = batched(batched(xs, inner), outer, size=2)
    got = run(form, jax.vmap(jax.vmap(coincidences, in_axes=inner), in_axes=outer), *args)
    for a, b in itertools.product(range(2), range(3)):
        pick = []
        for x, o, i in zip(args, outer, inner, strict=True):
            x = x if o is None else x[a]
            pick.append(x if i is None else x[b])
        same(kernels.coincidences.body(*pick, device=D.ConstantStep), [g[a, b] for g in got])


def test_axes_other_than_the_first():
    xs = operands()
    axes = (2, 1, None, None, None, None, 1, None, None, None)
    got = jax.vmap(coincidences, in_axes=axes, out_axes=1)(*batched(xs, axes))
    with native.disabled():
        want = jax.vmap(coincidences, in_axes=axes, out_axes=1)(*batched(xs, axes))
    same(want, got)


@pytest.mark.parametrize("form", ["native", "standin"])
@pytest.mark.parametrize("axes", [(0, None, None, None), (None, 0, 0, None), (0, 0, 0, 0), (None, None, None, 0)])
def test_trains_for_in_axes(form, axes):
    k = jax.random.key(2)
    xs = [
        jax.random.randint(k, (4, 19), -(2**30), 2**30),
        jnp.array([0, 1, 31, 70], jnp.int32),
        jax.random.bits(k, (4, 2), jnp.uint32),
        jnp.uint32(11),
    ]
    f = lambda *a: kernels.trains(*a, _words=3)
    args = [
        x if a is None else jnp.stack([x, x + x.dtype.type(1), x + x.dtype.type(2)])
        for x, a in zip(xs, axes, strict=True)
    ]
    (got,) = run(form, jax.vmap(f, in_axes=axes), *args)
    with native.disabled():
        (want,) = jax.vmap(f, in_axes=axes)(*args)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("form", ["native", "standin"])
@pytest.mark.parametrize("axes", [(None,) * 5, (0, None, None, None, None), (None, 0, None, 0, None), (0, 0, 0, 0, 0)])
def test_noisy_read_for_in_axes(form, axes):
    k = jax.random.key(3)
    g, v = jax.random.uniform(k, (23, 37), maxval=1e-4), jax.random.normal(k, (23,))
    xs = [g, v, jnp.full((23, 1), 1e-5), jax.random.bits(k, (2,), jnp.uint32), jnp.array([2, 3], jnp.uint32)]
    f = kernels.noisy_read
    if any(a == 0 for a in axes):
        xs = [x if a is None else jnp.stack([x, x[::-1], x * x.dtype.type(2)]) for x, a in zip(xs, axes, strict=True)]
        f = jax.vmap(f, in_axes=axes)
    (got,) = run(form, f, *xs)
    (want,) = run("body", f, *xs)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-9)  # of sums of about 5e-4


def test_noise_of_a_read_has_the_variance_and_the_independence_of_its_cells():
    # var i_j = sum_i v_i^2 std_i^2, columns independent; 1e5 reads.
    g, v, std = jnp.full((3, 2), 1e-5), jnp.array([0.1, -0.2, 0.3]), jnp.array([[1e-6], [2e-6], [3e-6]])
    std = jnp.broadcast_to(std, (3, 2))
    keys = jax.random.split(jax.random.key(0), 100_000)
    i = np.asarray(jax.jit(jax.vmap(lambda k: xb.devices.noisy_read(g, v, std, key=k)))(keys), np.float64)
    np.testing.assert_allclose(i.mean(0), 2e-6, atol=5 * 1e-6 / 316)
    want = np.sqrt(np.sum((np.asarray(v)[:, None] * np.asarray(std)) ** 2, axis=0))
    np.testing.assert_allclose(i.std(0), want, rtol=0.01)
    assert abs(np.corrcoef(i.T)[0, 1]) < 0.016  # five standard errors


def test_under_jit_scan_vmap_grad_and_donation():
    dev = D.SoftBounds()
    x, d = inputs(6, 20, 4)
    keys = jax.random.split(jax.random.key(1), 3)
    state = jax.vmap(lambda k: dev.init((6, 20), key=k))(keys)

    def train(state, key):
        def one(s, k):
            return xb.pulsed_update(dev, s, x, d, lr=0.1, key=k), None

        return jax.lax.scan(one, state, jax.random.split(key, 3))[0]

    def loss(lr, x, state, key):
        return jnp.sum(dev.weight(xb.pulsed_update(dev, state, x, d, lr=lr, key=key)) ** 2)

    gradient = jax.grad(loss, argnums=(0, 1))

    def all_of_it(state, keys):
        """scan inside vmap, vmap inside scan, vmap of grad, grad of vmap, jvp."""

        def batch(s, i):
            go = lambda s, k: xb.pulsed_update(dev, s, x, d, lr=0.1, key=jax.random.fold_in(k, i))
            return jax.vmap(go)(s, keys), None

        losses = lambda lr: jax.vmap(lambda s, k: loss(lr, x, s, k))(state, keys)
        return (
            (jax.vmap(train)(state, keys), jax.lax.scan(batch, state, jnp.arange(2))[0]),
            (
                jax.vmap(lambda s, k: gradient(0.1, x, s, k))(state, keys),
                jax.grad(lambda lr: losses(lr).sum())(0.1),
                jax.jvp(losses, (0.1,), (1.0,)),
            ),
        )

    body, fast, host = (run(form, jax.jit(all_of_it), state, keys) for form in ("body", "native", "standin"))
    same(body[0], fast[0])
    same(body[1], fast[1], 1e-4)  # gradients of a sum over cells, of order 1
    same(host, fast, tolerance=0.0)
    assert all(float(jnp.abs(g).max()) > 1e-3 for g in jax.tree.leaves(fast[1]))


@pytest.mark.parametrize("form", ["native", "standin"])
def test_donation_works_in_place_and_without_it_the_callers_array_is_safe(form):
    xs = operands()
    before = np.asarray(xs[0]).copy()
    want = kernels.coincidences.body(*xs, device=D.ConstantStep)

    got = run(form, jax.jit(coincidences), *xs)
    same(want, got)
    np.testing.assert_array_equal(xs[0], before)

    donated = jnp.array(before)
    at = donated.unsafe_buffer_pointer()
    got = run(form, jax.jit(coincidences, donate_argnums=0), donated, *xs[1:])
    same(want, got)
    assert donated.is_deleted()
    assert got[0].unsafe_buffer_pointer() == at


@pytest.mark.long
def test_second_derivatives_in_both_modes():
    # No noise and a smooth step: the pathwise derivative of the pulses that fell, against finite differences.
    dev = D.PowStep(dw_min=0.05, dw_min_dtod=0.0, dw_min_std=0.0, up_down_dtod=0.0, gamma_up=1.7, gamma_down=1.3)
    with jax.enable_x64(True):
        state = dev.init((2, 3), key=jax.random.key(0), dtype=jnp.float64)
        n = jnp.array([[2, -1, 3], [1, 0, -2]])

        def f(w, gamma):
            d = dev.replace(gamma_up=gamma)
            s = d.init((2, 3), key=jax.random.key(0), w=w, dtype=jnp.float64)
            return d.weight(d.pulse(s, n, key=jax.random.key(1), max_pulses=3))

        w = 0.1 * jnp.arange(6.0).reshape(2, 3) - 0.2
        check_grads(f, (w, jnp.asarray(1.7)), order=2, modes=("fwd", "rev"))
    assert state.w.dtype == jnp.float64


@pytest.mark.parametrize("shape", [(1, 1), (300, 1), (33, 257), (2, 129)])
def test_sizes_and_tails(shape):
    dev = D.SoftBounds()
    x, d = inputs(*shape, 3)
    f = jax.jit(lambda k: xb.pulsed_update(dev, dev.init(shape, key=k), x, d, lr=0.3, key=k))
    body, fast, host = (run(form, f, jax.random.key(0)) for form in ("body", "native", "standin"))
    same(body, fast)
    same(host, fast, tolerance=0.0)


def test_a_tile_of_an_array_has_the_pulses_and_noise_of_the_whole():
    dev = D.SoftBounds()
    x, d = inputs(40, 50, 3)
    x, d = x.at[:, 0].set(1.0), d.at[:, 0].set(0.5)  # every part has the largest input and error
    x, d = x.at[:, 20].set(1.0), d.at[:, 30].set(0.5)
    key = jax.random.key(4)
    whole = xb.pulsed_update(dev, dev.init((40, 50), key=key), x, d, lr=0.1, key=key)
    part = dev.init((20, 20), key=key, row=20, col=30)
    part = xb.pulsed_update(dev, part, x[:, 20:], d[:, 30:], lr=0.1, key=key, row=20, col=30)
    np.testing.assert_array_equal(part.pulses, whole.pulses[20:, 30:])
    np.testing.assert_array_equal(part.w, whole.w[20:, 30:])


def test_a_device_with_many_parameters_of_each_cell():
    # 60 nodes a direction, each [rows, cols]: 125 parameters of every cell, beyond every tier of registers.
    rows, cols, nodes = 9, 33, 60
    k = jax.random.split(jax.random.key(0), 2)
    up, down = (jax.random.uniform(key, (nodes, rows, cols), minval=0.2, maxval=2.0) for key in k)
    dev = D.PiecewiseStep(nodes_up=up, nodes_down=down, dw_min=0.02)
    x, d = inputs(rows, cols, 2)
    f = jax.jit(lambda key: xb.pulsed_update(dev, dev.init((rows, cols), key=key), x, d, lr=0.5, key=key))
    body, fast, host = (run(form, f, jax.random.key(3)) for form in ("body", "native", "standin"))
    same(body, fast)
    same(host, fast, tolerance=0.0)


KERNELS = ["ConstantStep", "LinearStep", "ExpStep", "PowStep", "PiecewiseStep", "many nodes"]


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_batched_over_every_kind_of_operand(name):
    """Trains and counts, each kind of operand alone, all together, and none of the state; one program a form."""
    many = tuple(jnp.linspace(0.5, 1.5, 12))
    dev = D.PiecewiseStep(nodes_up=many, nodes_down=many[::-1]) if name == "many nodes" else DEVICES[name]
    dev = dev.replace(dw_min=0.01)
    w, rows, cols, keys, origin, *_ = operands(rows=4, cols=18)
    state = dev.init((4, 18), key=jax.random.key(8), w=w)
    parameters = dev.parameters(state)
    n = jax.random.randint(jax.random.key(9), (3, 4, 18), -40, 40)
    trains = lambda w, r, c, k, o, scale: kernels.coincidences(
        w, r, c, k, o, parameters[0] * scale, *parameters[1:], device=type(dev), only=-1
    )
    counts = lambda w, n, k, o, scale: kernels.pulses(
        w, n, k, o, parameters[0] * scale, *parameters[1:], device=type(dev)
    )
    two = lambda x: jnp.stack([x, jnp.roll(x, 1) if x.ndim else x * 2])

    def everything(w, rows, cols, keys, origin, n):
        out = []
        for f, xs in (
            (trains, (w, rows, cols, keys, origin, jnp.float32(1))),
            (counts, (w, n, keys, origin, jnp.float32(1))),
        ):
            alone = [tuple(0 if i == k else None for i in range(len(xs))) for k in range(len(xs))]
            for axes in [*alone, (0,) * len(xs), (None, *[0] * (len(xs) - 1))]:
                out.append(
                    jax.vmap(f, in_axes=axes)(*(x if a is None else two(x) for x, a in zip(xs, axes, strict=True)))
                )
        return out

    args = (w, rows, cols, keys, origin, n)
    body, fast, host = (run(form, jax.jit(everything), *args) for form in ("body", "native", "standin"))
    same(body, fast)
    same(host, fast, tolerance=0.0)


def test_derivative_of_pulses_under_vmap_over_their_number():
    dev = D.PowStep(dw_min=0.02, dw_min_std=0.3, gamma_up=1.5)
    state = dev.init((3, 5), key=jax.random.key(0))
    f = lambda n: jax.jvp(
        lambda w: dev.pulse(state.replace(w=w), n, key=jax.random.key(1)).w, (state.w,), (jnp.ones((3, 5)),)
    )
    n = jnp.array([0, 3, -4])
    body, fast = (run(form, jax.vmap(f), n) for form in ("body", "native"))
    same(body, fast)
    for k in range(3):
        same(jax.tree.map(lambda x: x[k], fast), f(n[k]))
    assert float(jnp.abs(fast[1][1] - 1).max()) > 1e-3


@pytest.mark.parametrize("form", ["native", "standin", "body"])
@pytest.mark.parametrize("name", [*KERNELS, "SoftBounds"])
def test_what_is_not_a_number_stays_so(name, form):
    many = (1.0,) * 12
    dev = D.PiecewiseStep(nodes_up=many, nodes_down=many) if name == "many nodes" else DEVICES[name]
    state = dev.init((2, 20), key=jax.random.key(0))
    state = state.replace(w=state.w.at[1, 3].set(jnp.nan))
    w = np.asarray(run(form, lambda s: dev.pulse(s, 3, key=jax.random.key(1), max_pulses=3), state).w)
    assert np.isnan(w[1, 3]) and np.isnan(w).sum() == 1
