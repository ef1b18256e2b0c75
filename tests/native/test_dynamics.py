"""JAX body, CPU kernel and the CUDA source run on the host move the state of every dynamic device alike."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from forms import run

import xbar_jax as xb
from xbar_jax.devices import flow
from xbar_jax.devices.data_driven import DataDriven
from xbar_jax.devices.data_driven_2021 import DataDriven2021
from xbar_jax.devices.jart import JARTv1b
from xbar_jax.devices.linear_ion_drift import LinearIonDrift
from xbar_jax.devices.stanford_pku import StanfordPKU
from xbar_jax.devices.vteam import VTEAM
from xbar_jax.devices.yakopcic import Yakopcic
from xbar_jax.devices.yakopcic_general import YakopcicGeneral
from xbar_jax.native import library

pytestmark = pytest.mark.skipif(not library.enabled(), reason="XBAR_NATIVE=0 turns off what is tested here")

# The device, voltages, a time in which cells move far, and the parameters that differ from cell to cell.
CASES = {
    "VTEAM": (VTEAM(), 1.5, 1e-8, ("k_on", "w_off", "v_on")),
    "VTEAM, Joglekar": (VTEAM(window="joglekar"), 1.5, 1e-8, ("k_off", "w_on")),
    "VTEAM, Biolek": (VTEAM(window="biolek", p=2.5), 1.5, 1e-8, ("p", "a_off")),
    "VTEAM, Prodromakis": (VTEAM(window="prodromakis", p=3.0, j=0.8), 1.5, 1e-8, ("p", "j")),
    "VTEAM, Zha": (VTEAM(window="zha", p=0.7), 1.5, 1e-8, ("p", "r_on")),
    "VTEAM, TEAM": (VTEAM(window="team"), 1.5, 1e-8, ("w_c", "team_off")),
    "VTEAM, thresholds of one sign": (VTEAM(v_off=0.2, v_on=0.5, k_on=1e-3), 1.5, 1e-7, ("v_off",)),
    "Yakopcic": (Yakopcic(), 1.5, 1e-4, ("xp", "alpha_n", "vp")),
    "YakopcicGeneral": (YakopcicGeneral(), 1.5, 1e-2, ("xn", "ap")),
    "LinearIonDrift": (LinearIonDrift(window="joglekar", v_on=0.1), 1.5, 0.1, ("r_off", "mu")),
    "StanfordPKU": (StanfordPKU(), 2.0, 1e-8, ("ea", "r_off", "t_ox")),
    "DataDriven": (DataDriven(), 1.5, 0.1, ("t_p", "r_n0")),
    "DataDriven2021": (DataDriven2021(), 1.5, 1e-3, ("a_p", "r_n0")),
    "JARTv1b": (JARTv1b(), 0.8, 1e-6, ("r", "l_d", "n_max", "n_min")),
    "JARTv1b, explicit": (JARTv1b(law="explicit"), 0.8, 1e-6, ("r", "fit_j")),
}
SHAPE = (6, 37)
# Of the displacement, and of the range: the rounding of two evaluations of the rate. The rate of a JART cell is the
# exponential of some 30 times what is rounded.
ROUNDING = {"JARTv1b": 3e-4, "JARTv1b, explicit": 3e-4}
USUAL = 2e-5
OF_RANGE = 1e-5


def problem(name, shape=SHAPE, seed=0):
    """A device with spread parameters, and states, voltages and times of all kinds."""
    dev, v, t, spread = CASES[name]
    rng = np.random.default_rng(seed)
    dev = dev.replace(
        **{
            f: jnp.asarray(getattr(dev, f) * (1 + 0.1 * rng.uniform(-1, 1, shape)) + (1e-10 if f == "w_on" else 0),
                           jnp.float32)
            for f in spread
        }
    )  # fmt: skip
    low, high = (np.broadcast_to(np.asarray(b), shape) for b in dev.bounds())
    x = rng.uniform(low + 0.02 * (high - low), high - 0.02 * (high - low))
    v = rng.uniform(-v, v, shape)
    t = t * 10 ** rng.uniform(-2, 2, shape)
    t.flat[::11] = 0.0
    t.flat[5::23] = 1e3
    v.flat[7::29] = 0.0
    return dev, *(jnp.asarray(y, jnp.float32) for y in (x, v, t))


@jax.jit
def move(dev, x, v, t):
    return flow.displacement(dev, x, v, t)


def same(want, got, dev, rounding=USUAL, equal=0.5):
    """The motions agree to rounding; most cells that arrive took the same number of panels."""
    low, high = (np.asarray(b) for b in dev.bounds())
    d, other = np.asarray(want.d, np.float64), np.asarray(got.d, np.float64)
    worst = np.abs(other - d) - rounding * np.abs(d) - OF_RANGE * (high - low)
    assert (worst <= 0).all(), f"off by {np.abs(other - d).max()}"
    # Where a state comes to rest at a bound, rounding decides whether it is told to have settled before it.
    rests = np.isin(want.end, (flow.BOUND, flow.SETTLED)) & np.isin(got.end, (flow.BOUND, flow.SETTLED))
    unlike = (np.asarray(want.end) != np.asarray(got.end)) & ~rests
    assert unlike.mean() <= 0.03, "ends differ"
    assert (np.asarray(want.end) == flow.STILL).tolist() == (np.asarray(got.end) == flow.STILL).tolist()
    arrives = np.asarray(want.end) == flow.MOVED
    if arrives.sum() >= 20:
        assert (np.asarray(want.panels) == np.asarray(got.panels))[arrives].mean() >= equal


@pytest.mark.parametrize("name", CASES)
def test_every_device_in_three_forms(name):
    dev, x, v, t = problem(name)
    body, fast, host = (run(form, move, dev, x, v, t) for form in ("body", "native", "standin"))
    kinds = np.bincount(np.asarray(body.end).ravel(), minlength=4)
    assert kinds[flow.STILL] > 10 and kinds[flow.MOVED] > 20 and kinds[flow.BOUND] + kinds[flow.SETTLED] > 2
    rounding = ROUNDING.get(name, USUAL)
    same(body, fast, dev, rounding)
    same(body, host, dev, rounding)
    still = np.asarray(t == 0.0)
    assert (np.asarray(fast.d)[still] == 0).all() and (np.asarray(fast.panels)[still] == 0).all()


def test_closed_forms():
    # Without a window w = w0 + k t; R' of the two data-driven devices by the closed step of their papers.
    shape = (3, 50)
    rng = np.random.default_rng(1)
    v = rng.uniform(0.3, 1.0, shape)
    got = lambda dev, x, v, t: np.asarray(run("native", move, dev, *(jnp.asarray(y, jnp.float32) for y in (x, v, t))).d)

    dev = VTEAM()
    x, t = rng.uniform(0, 1e-9, shape), rng.uniform(0, 2e-8, shape)
    np.testing.assert_allclose(got(dev, x, v, t), 5e-4 * (v / 0.02 - 1) * t, rtol=1e-5)

    dev = DataDriven()
    x, t = rng.uniform(2e3, 9e3, shape), rng.uniform(0, 1e-2, shape)
    s, k, r = dev.a_p * (np.exp(dev.t_p * v) - 1), dev.k_p, dev.r_p0
    want = np.log(np.exp(k * r) + np.exp(-k * s * t) * (np.exp(k * x) - np.exp(k * r))) / k - x
    np.testing.assert_allclose(got(dev, x, v, t), want, rtol=1e-5, atol=1e-3)

    dev = DataDriven2021()
    x, t = rng.uniform(1.7e3, 2e3, shape), rng.uniform(0, 1e-5, shape)
    s, r = dev.a_n * (np.exp(v / dev.t_n) - 1), dev.r_n0 - dev.r_n1 * v
    v, ahead = -v, s * (r - x) > 0
    want = np.where(ahead, (x + s * r * (r - x) * t) / (1 + s * (r - x) * t) - x, 0.0)
    assert ahead.mean() > 0.1
    np.testing.assert_allclose(got(dev, x, v, t), np.clip(x + want, 1600, 3000) - x, rtol=2e-5, atol=1e-3)


def evolve(name, *xs):
    dev = CASES[name][0]
    return flow.Motion(*flow._evolve(*xs, device=type(dev), _rebuild=dev.rebuild()))


def operands(name, rows=3, cols=21):
    """x, v, t and the numbers of the device: of the array, of each row, of each column, of each cell."""
    dev, x, v, t = problem(name, (rows, cols))
    numbers = CASES[name][0].kernel_operands(x)
    codes = len(dev.codes())
    shapes = ((1, 1), (rows, 1), (1, cols), (rows, cols))
    scale = lambda k, y: y * (1 + 0.02 * jnp.linspace(0.0, 1.0, int(np.prod(shapes[k % 4]))).reshape(shapes[k % 4]))
    return [x, v, t, *(y if k < codes else scale(k, y) for k, y in enumerate(numbers))], codes


def batched(xs, axes, size):
    """Operands of which those with an axis are ``size`` different ones along it."""
    out = []
    for x, axis in zip(xs, axes, strict=True):
        parts = [x * (1 + i / 64) for i in range(size)]
        out.append(x if axis is None else jnp.stack(parts, axis=axis))
    return out


@pytest.mark.parametrize("form", ["native", "standin"])
def test_every_choice_of_in_axes(form):
    name = "VTEAM, Zha"
    xs, codes = operands(name)
    dev = CASES[name][0]
    f = functools.partial(evolve, name)
    one = jax.jit(f)
    alone = [tuple(0 if i == k else None for i in range(4)) for k in range(4)]
    for x, v, t, p in [*alone, (0, 0, 0, 0), (None, 0, None, 0), (0, None, 1, None), (None, None, None, 2)]:
        numbers = len(xs) - 3 - codes
        axes = (x, v, t, *(None,) * codes, *(p if k % 2 else None for k in range(numbers)))
        args = batched(xs, axes, 3)
        got = run(form, jax.vmap(f, in_axes=axes), *args)
        for b in range(3):
            want = run("body", one, *(y if a is None else jnp.take(y, b, a) for y, a in zip(args, axes, strict=True)))
            same(want, jax.tree.map(lambda y, b=b: y[b], got), dev)


@pytest.mark.parametrize("form", ["native", "standin"])
def test_nested_vmap_shares_operands_along_different_axes(form):
    name = "StanfordPKU"
    xs, _ = operands(name)
    dev = CASES[name][0]
    rest = len(xs) - 3
    outer = (None, 0, None, *(0 if k % 3 == 0 else None for k in range(rest)))
    inner = (0, None, 0, *(0 if k % 2 == 0 else None for k in range(rest)))
    args = batched(batched(xs, inner, 3), outer, 2)
    f = functools.partial(evolve, name)
    both = jax.jit(jax.vmap(jax.vmap(f, in_axes=inner), in_axes=outer))
    want, got = run("body", both, *args), run(form, both, *args)
    for a, b in itertools.product(range(2), range(3)):
        same(*(jax.tree.map(lambda y, a=a, b=b: y[a, b], m) for m in (want, got)), dev)


@pytest.mark.parametrize("form", ["native", "standin"])
@pytest.mark.parametrize("shape", [(1, 1), (300, 1), (40, 41)])
def test_sizes_and_tails(form, shape):
    # More cells than are listed at a time, a few of which move.
    dev, x, v, t = problem("Yakopcic", shape, seed=3)
    t = jnp.where(jnp.arange(t.size).reshape(shape) % 5 == 0, t + 1e-4, 0.0)
    same(run("body", move, dev, x, v, t), run(form, move, dev, x, v, t), dev)


def test_eager_jit_and_donation():
    name = "VTEAM, Joglekar"
    dev, x, v, t = problem(name)
    eager = run("native", flow.displacement, dev, x, v, t)
    before = np.asarray(x).copy()
    jitted = run("native", move, dev, x, v, t)
    np.testing.assert_array_equal(x, before)
    donated = run("native", jax.jit(flow.displacement, donate_argnums=(1, 2, 3)), dev, x, v + 0.0, t + 0.0)
    for one, other in ((eager, jitted), (jitted, donated)):
        jax.tree.map(np.testing.assert_array_equal, one, other)


def test_the_gradient_is_that_of_the_body():
    dev, x, v, _ = problem("DataDriven2021", (3, 9))
    v, t = jnp.sign(v + 0.01) - 0.2 * v, jnp.full(x.shape, 3e-6, jnp.float32)
    f = jax.jit(jax.grad(lambda dev, x, v, t: (1e-3 * flow.displacement(dev, x, v, t).d).sum(), argnums=(0, 1, 2, 3)))
    body, fast = (run(form, f, dev, x, v, t) for form in ("body", "native"))
    for a, b in zip(jax.tree.leaves(body), jax.tree.leaves(fast), strict=True):
        a, b = (np.asarray(y, np.float64) for y in (a, b))
        np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-4 * np.abs(a).max())
    assert all(np.abs(np.asarray(y)).max() > 0 for y in fast[1:])


FORMS = ["body", "native", "standin"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["VTEAM, Joglekar", "DataDriven"])
def test_what_is_not_a_number_is_seen(form, name):
    # The comparisons of either rate hide a voltage that is none.
    dev, x, v, t = problem(name, (2, 20))
    t = (t + 1e-9).at[1, 7].set(0.0)
    x, v, t = x.at[1, 3].set(jnp.nan), v.at[0, 4].set(jnp.nan).at[1, 7].set(jnp.nan), t.at[1, 5].set(jnp.nan)
    motion = run(form, move, dev, x, v, t)
    lost = np.zeros(x.shape, bool)
    lost[1, 3] = lost[0, 4] = lost[1, 5] = True
    np.testing.assert_array_equal(np.isnan(motion.d), lost)
    assert (np.asarray(motion.end)[lost] == flow.STILL).all()
    assert motion.d[1, 7] == 0


# Thresholds, and whether cells move at exactly these.
THRESHOLDS = {
    "LinearIonDrift": (LinearIonDrift(v_on=0.55, v_off=-0.55), (0.55, -0.55), True),
    "VTEAM": (VTEAM(), (0.02, -0.2), False),
    "Yakopcic": (Yakopcic(), (0.16, -0.15), False),
    "YakopcicGeneral": (YakopcicGeneral(vp=0.4, vn=0.3), (0.4, -0.3), False),
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_exactly_at_a_threshold(name):
    dev, thresholds, moves = THRESHOLDS[name]
    at = np.float32(thresholds)
    v = np.stack([np.nextafter(at, np.float32(0)), at, np.nextafter(at, np.float32(9) * at)])
    low, high = dev.bounds()
    x = np.full_like(v, 0.5 * (low + high))
    want = np.array([False, moves, True])[:, None] & (v != 0)
    for form in FORMS:
        d = np.asarray(run(form, move, dev, *(jnp.asarray(y) for y in (x, v, np.full_like(v, 0.1)))).d)
        np.testing.assert_array_equal(d != 0, want, err_msg=form)


@pytest.mark.parametrize("form", FORMS)
def test_panels_grow_where_the_rate_is_constant(form):
    # A break that leaves the rate as it is makes the first panel short. At some rates both rules agree to the last digit.
    ap = np.float32(4000 * (1 + np.arange(64) / 7))[None]
    dev, rate = Yakopcic(xp=0.9, xn=0.8, ap=jnp.asarray(ap)), ap * (np.exp(1) - np.exp(0.16))
    x, v, t = np.full_like(ap, 0.2 - 1e-3), np.ones_like(ap), np.float32(0.6 / rate)
    motion = run(form, move, dev, *(jnp.asarray(y) for y in (x, v, t)))
    np.testing.assert_array_equal(motion.end, flow.MOVED)
    np.testing.assert_allclose(motion.d, 0.6, rtol=2e-6)
    assert np.asarray(motion.panels).max() <= 6


@pytest.mark.parametrize("form", FORMS)
def test_what_is_left_behind_a_break_or_a_bound(form):
    # Behind xp the rate r falls: x - xp = r s - (r s)^2/2 (alpha_p + 1/(1 - xp)) in a short time s.
    dev, v = Yakopcic(), 1.0
    rate = 4000.0 * (np.exp(v) - np.exp(0.16))
    x, xp = float(np.float32(0.11)), float(np.float32(0.3))
    to = (xp - x) / rate
    t = np.float32([[to * (1 + share) for share in (2e-5, 5e-5, 9e-5)]])
    move_ = lambda dev, x, v, t: run(form, move, dev, *(jnp.broadcast_to(jnp.float32(y), t.shape) for y in (x, v, t)))
    behind = rate * (t.astype(float) - to)
    got = x + np.asarray(move_(dev, x, v, t).d, float) - xp
    np.testing.assert_allclose(got, behind - 0.5 * behind**2 * (1 + 1 / 0.7), rtol=0, atol=2e-7)
    assert (np.diff(got) > 3e-6).all()

    dev, x = VTEAM(), 1e-9
    t = np.float32([[(3e-9 - x) / (5e-4 * (1 / 0.02 - 1)) * (1 + share) for share in (2e-5, 5e-5, 9e-5)]])
    motion = move_(dev, x, 1.0, t)
    np.testing.assert_array_equal(motion.end, flow.BOUND)
    np.testing.assert_allclose(motion.d, 2e-9, rtol=1e-6)


def test_states_stay_in_their_bounds_for_any_time():
    dev, x, v, t = problem("DataDriven", (20, 30))
    low, high = dev.bounds()
    for time in (1e-30, 1.0, 1e30):
        m = run("native", move, dev, x, v, jnp.full_like(t, time))
        reached = np.asarray(x + m.d)
        assert (reached >= low - 1e-3).all() and (reached <= high + 2e-3).all()


def direct(form, xs, device="vteam", results=None):
    x = xs[0]
    shapes = results or [jax.ShapeDtypeStruct(x.shape, d) for d in ("float32", "int32", "int32")]
    target = library.target("standin" if form == "standin" else "cpu", "xbar_evolve")
    assert library.available("standin" if form == "standin" else "cpu", "xbar_evolve", None)
    return jax.block_until_ready(jax.ffi.ffi_call(target, shapes)(*xs, device=device))


@pytest.mark.parametrize("form", ["native", "standin"])
def test_bad_operands_are_told(form):
    xs, _ = operands("VTEAM")

    def told(match, xs=xs, **options):
        with pytest.raises(Exception, match=match):
            direct(form, xs, **options)

    direct(form, xs)
    told("x must be float32", [xs[0].astype(jnp.int32), *xs[1:]])
    told("v must be float32", [xs[0], xs[1][:, :5], *xs[2:]])
    told("t must be float32", [*xs[:2], xs[2][:2], *xs[3:]])
    told("vteam takes 17 numbers, got 16", xs[:-1])
    told("vteam takes 17 numbers, got 18", [*xs, xs[-1]])
    told("parameter 4 must be float32", [*xs[:7], jnp.ones((2, 21)), *xs[8:]])
    told("choice 0 must be one number", [*xs[:3], jnp.zeros_like(xs[0]), *xs[4:]])
    told("no kernel for the motion of device linear_step", xs, device="linear_step")
    wrong = [jax.ShapeDtypeStruct(xs[0].shape, d) for d in ("float32", "float32", "int32")]
    told("end must be int32", xs, results=wrong)


def test_a_failed_launch_is_an_error():
    import ctypes

    dev, x, v, t = problem("VTEAM")
    run("standin", move, dev, x, v, t)
    ctypes.CDLL(str(library.load("standin").path)).xbar_refuse_next_launch()
    with pytest.raises(Exception, match="kernel launch failed: too many resources"):
        run("standin", move, dev, x, v, t)
    run("standin", move, dev, x, v, t)


def test_the_call_is_lowered_for_cuda_too():
    if not library.available("cuda", "xbar_evolve", "vteam"):
        pytest.skip("the CUDA library is not built")
    dev, x, v, t = problem("VTEAM")
    text = jax.jit(lambda v: flow.displacement(dev, x, v, t)).trace(v).lower(lowering_platforms=("cuda",)).as_text()
    assert "xbar_evolve" in text and 'device = "vteam"' in text


def test_a_dynamic_device_has_a_kernel_or_names_none():
    for name, (dev, *_) in CASES.items():
        assert type(dev).kernel in library.load("cpu").devices, name
    assert not {"vteam", "jart"} & {c.kernel for c in (xb.devices.ConstantStep, xb.devices.SoftBounds)}
