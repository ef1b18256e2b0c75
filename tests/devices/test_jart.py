"""JART VCM v1b against its published figures and an independent model of it in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import constants as si
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from xbar_jax.devices.jart import JARTv1b

# (V, N, I, T, dN/dt) of an independent solve with rounded constants.
TABLE = np.array(
    [
        (0.2, 0.06, 2.0030e-5, 307.7, -1.1061e-8),
        (0.2, 1.99, 1.0869e-4, 316.5, -1.3785e-8),
        (0.7065, 0.06, 7.1963e-5, 478.7, -2.3821),
        (0.7065, 0.6, 2.9517e-4, 665.9, -6.9646e3),
        (0.7065, 20, 4.3438e-4, 471.3, -3.6689e-1),
        (-0.342, 0.06, -3.1423e-5, 440.7, 2.8399),
        (-0.342, 0.6, -1.3653e-4, 624.8, 5.5564e3),
        (-0.342, 6, -2.0635e-4, 480.6, 5.8711e-1),
        (-0.2, 0.2, -4.6799e-5, 393.0, 4.9490e-3),
    ]
)
DEVICE = JARTv1b()
SHAPE = (2, 4)

look = jax.jit(lambda dev, s, v: (dev.current(s, v), dev.temperature(s, v), dev.rate(s, v)))
evolve = jax.jit(lambda dev, s, v, t: dev.evolve(s, v, t))


def cells(dev, n, dtype):
    n = np.asarray(n, float)
    return dev.init(n.shape, x=jnp.asarray(np.log(n), dtype), dtype=dtype)


def moved(before, after):
    """Change of ln N, of both words of the state."""
    return np.asarray(after.log_n - before.log_n, float) + np.asarray(after.log_n_lo - before.log_n_lo, float)


# The model once more, in SI units, one cell at a time.
class Model:
    def __init__(self, **changes):
        p = {k: float(getattr(DEVICE, k)) for k in DEVICE._numbers()} | {k: float(x) for k, x in changes.items()}
        self.p = p
        area = np.pi * p["r"] ** 2
        self.area, self.sigma = area, si.e * p["z"] * p["mu"] * 1e26
        self.plug = (p["l_cell"] - p["l_d"]) / (self.sigma * p["n_plug"] * area)

    def parts(self, v, n, vs):
        """I from the resistances, then T, then the current that the barrier would carry."""
        p = self.p
        hot = p["l_d"] / (self.sigma * n * self.area) + self.plug
        cubic = [p["alpha_line"] * p["r_0"] ** 2 * p["r_th_line"], 0.0, hot + p["r_tiox"] + p["r_0"], -(abs(v) - vs)]
        a, b, rest = cubic[0], cubic[2], -cubic[3]
        # Cardano's real root, as a hyperbolic sine.
        q = np.sqrt(b / (3 * a))
        i = 2 * q * np.sinh(np.arcsinh(rest / (2 * a * q**3)) / 3)
        heat = p["r_th0"] * (p["r_det"] / p["r"]) ** 2 * (1 if v < 0 else p["r_th_reset"])
        kelvin = p["t_0"] + heat * i * (vs + i * hot)
        kt = si.k * kelvin
        psi = p["phi_0"] - p["phi_n"] - np.sign(v) * vs
        eps = p["eps_phi"] * si.epsilon_0
        lowered = (si.e**3 * p["z"] * n * 1e26 * max(psi, 0) / (8 * np.pi**2 * eps**3)) ** 0.25
        phi = max(0.0, p["phi_0"] - lowered)
        if v < 0:
            w00 = si.e * si.h / (4 * np.pi) * np.sqrt(p["z"] * n * 1e26 / (si.m_e * p["eps_s"] * si.epsilon_0))
            y = w00 / kt
            xi = w00 / (y - np.tanh(y))
            pre = self.area * p["a_star"] * kelvin / si.k
            pre *= np.sqrt(np.pi * w00 * si.e * (vs + phi / np.cosh(y) ** 2)) * np.exp(-si.e * phi * np.tanh(y) / w00)
            barrier = pre * np.expm1(si.e * vs / xi)
        else:
            barrier = self.area * p["a_star"] * kelvin**2 * np.exp(-si.e * phi / kt) * np.expm1(si.e * vs / kt)
        return i, kelvin, hot, barrier

    def excess(self, v, n, vs):
        i, _, _, barrier = self.parts(v, n, vs)
        return np.log(barrier / i)

    def roots(self, v, n, points=1500):
        u = abs(v)
        close = np.geomspace(1e-10, 0.9, points) * u
        scan = np.unique(np.concatenate([np.linspace(0, u, points)[1:-1], close, u - close]))
        f = np.array([self.excess(v, n, s) for s in scan])
        at = np.flatnonzero(f[:-1] * f[1:] < 0)
        return [brentq(lambda s: self.excess(v, n, s), scan[k], scan[k + 1], xtol=1e-15) for k in at]

    def current(self, v, n, vs=None):
        if vs is None:
            vs = self.roots(v, n)[0]
        return np.sign(v) * self.parts(v, n, vs)[0]

    def rate(self, v, n, vs=None):
        """dN/dt; the lowest root is the only one below 50 mV for the numbers used here."""
        p = self.p
        if vs is None:
            vs = brentq(lambda s: self.excess(v, n, s), 1e-9, 0.05 if v > 0 else 0.99 * abs(v), xtol=1e-15)
        i, kelvin, hot, _ = self.parts(v, n, vs)
        field = np.sign(v) * (i * (hot - self.plug) / p["l_d"] if v < 0 else (vs + i * hot) / p["l_cell"])
        y = p["z"] * p["a"] * field / (np.pi * p["d_w"])
        kt = si.k * kelvin / si.e
        hop = lambda s: np.exp(-p["d_w"] * (np.sqrt(1 - y * y) + s * y * np.pi / 2 + y * np.arcsin(y)) / kt)
        window = 1 - (n / p["n_max"] if v < 0 else p["n_min"] / n) ** p["p"]
        return -0.5 * (p["n_plug"] + n) * p["a"] * p["nu_0"] / p["l_d"] * (hop(-1) - hop(1)) * window

    def motion(self, v, n, t):
        """Change of ln N."""
        rate = lambda _, x: [self.rate(v, float(np.exp(x[0] + np.log(n)))) / float(np.exp(x[0] + np.log(n)))]
        return solve_ivp(rate, (0, t), [0.0], method="DOP853", rtol=1e-10, atol=1e-16).y[0, -1]


def test_reference_values(dtype):
    v, n, i, kelvin, rate = TABLE.T.reshape(5, 3, 3)
    state = cells(DEVICE, n, dtype)
    got = look(DEVICE, state, jnp.asarray(v, dtype))
    np.testing.assert_allclose(got[0], i, rtol=2e-3)
    np.testing.assert_allclose(got[1], kelvin, rtol=1e-3)
    np.testing.assert_allclose(got[2] * state.n, rate, rtol=1e-2)
    # The model in SI units says what the rounded figures leave open.
    tight = 5e-6 if dtype == np.float32 else 1e-10
    exact = np.array([Model().rate(*at) for at in zip(v.ravel(), n.ravel(), strict=True)]).reshape(v.shape)
    np.testing.assert_allclose(got[2] * state.n, exact, rtol=10 * tight)


def test_explicit_law_agrees_with_the_implicit_one(dtype):
    v, n, i = TABLE.T[:3].reshape(3, 3, 3)
    state = cells(DEVICE, n, dtype)
    got = look(DEVICE.replace(law="explicit"), state, jnp.asarray(v, dtype))
    np.testing.assert_allclose(got[0], i, rtol=0.06)


# A higher barrier folds: with rising N the lowest root appears beside one far above.
FOLDED = {"phi_0": 0.45, "phi_n": 0.33, "r_th_reset": 0.05}


@pytest.mark.parametrize("changes", [{}, FOLDED], ids=["default", "folded"])
def test_lowest_root(dtype, changes):
    n = np.geomspace(0.009, 19, 9).reshape(3, 3)
    model = Model(**changes)
    counts, highs = [], []
    for v in (0.2, 0.4, 1.2, -0.05, -1.0):
        roots = [model.roots(v, k) for k in n.ravel()]
        exact = np.array([model.current(v, k, r[0]) for k, r in zip(n.ravel(), roots, strict=True)]).reshape(n.shape)
        dev = DEVICE.replace(**changes)
        got = look(dev, cells(dev, n, dtype), jnp.full(n.shape, v, dtype))[0]
        tight = 5e-6 if dtype == np.float32 else 1e-10
        # Where the barrier takes all but a little of v, that little is a difference.
        np.testing.assert_allclose(got, exact, rtol=tight, atol=tight * 0.05 * abs(v) / 1500)
        counts += [len(r) for r in roots]
        highs += [r[0] > 0.12 for r in roots if v > 0]
    assert max(counts) == 3
    assert any(highs) == bool(changes)


def test_single_pulses_of_the_explicit_law(dtype):
    dev = JARTv1b(law="explicit", n_low=0.06, n_high=1.98974521)
    n = np.array([[0.06, 0.2, 0.4, 1.98], [0.08, 0.2, 0.4, 1.98]])
    v = jnp.asarray([[-0.342] * 4, [0.7065] * 4], dtype)
    state = cells(dev, n, dtype)
    change = np.expm1(moved(state, evolve(dev, state, v, 1e-6))) * n
    published = [[1.850e-6, 2.365e-3, 7.969e-3, 7.874e-5], [-1.735e-5, -3.832e-3, -1.207e-2, -8.114e-5]]
    np.testing.assert_allclose(change, published, rtol=0.05)


N = np.array([[0.06, 0.2, 0.4, 1.98], [0.08, 0.2, 0.4, 1.98]])
V = np.array([[-0.342] * 4, [0.7065] * 4])


def test_a_pulse_in_a_hundred_pieces():
    dtype = np.dtype(np.float32)
    state = cells(DEVICE, N, dtype)
    v = jnp.asarray(V, dtype)
    whole = evolve(DEVICE, state, v, 1e-6)
    step = lambda s, _: (DEVICE.evolve(s, v, 1e-8), None)
    pieces = jax.jit(lambda s: jax.lax.scan(step, s, length=100)[0])(state)
    np.testing.assert_allclose(moved(state, pieces), moved(state, whole), rtol=2e-3)


def test_motion_against_an_ode_solver(dtype):
    n, t = N.copy(), np.array([[1e-6, 1e-4, 1e-3, 1e-2], [1e-1, 1e-4, 1e-6, 1e-4]])
    v = np.array([[-0.342, -0.342, -0.3, -0.4], [0.7065, 0.6, 0.7065, 0.8]])
    state = cells(DEVICE, n, dtype)
    got = moved(state, evolve(DEVICE, state, jnp.asarray(v, dtype), jnp.asarray(t, dtype)))
    exact = [Model().motion(*at) for at in zip(v.ravel(), n.ravel(), t.ravel(), strict=True)]
    assert max(exact) > 0.5
    assert min(exact) < -0.3
    np.testing.assert_allclose(got.ravel(), exact, rtol=3e-4 if dtype == np.float32 else 1e-6)


def test_state_stays_in_its_bounds(dtype):
    for v, end in ((-1.0, 20.0), (1.0, 0.008), (-5.0, 20.0), (13.0, 0.008)):
        after = evolve(DEVICE, cells(DEVICE, N, dtype), jnp.full(SHAPE, v, dtype), 1e9)
        low, high = (np.asarray(b, dtype) for b in DEVICE.bounds())
        assert ((after.log_n >= low) & (after.log_n <= high)).all()
        np.testing.assert_allclose(after.n, end, rtol=1e-3)


def test_no_voltage_moves_nothing(dtype):
    state = cells(DEVICE, N, dtype)
    after = evolve(DEVICE, state, jnp.zeros(SHAPE, dtype), 1.0)
    np.testing.assert_array_equal(after.log_n, state.log_n)
    np.testing.assert_array_equal(DEVICE.current(state, jnp.zeros(SHAPE, dtype)), 0.0)


def test_set_and_read(dtype):
    low, high = DEVICE.conductance_range()
    g = jnp.linspace(low, high, 11).astype(dtype)[None]
    state = cells(DEVICE, np.full((1, 11), 0.1), dtype)
    read = jax.jit(lambda g: DEVICE.conductance(DEVICE.set_conductance(state, g)))
    np.testing.assert_allclose(read(g), g, rtol=1e-5)
    exact = [Model().current(0.2, 0.008) / 0.2, Model().current(0.2, 20.0) / 0.2]
    np.testing.assert_allclose([low, high], exact, rtol=1e-5)


@pytest.mark.long
def test_gradients_of_a_pulse(x64):
    """To v, t, ln N and every number, against central differences."""
    t = np.array([[1e-4, 1e-4, 1e-6, 1e-3], [1e-3, 1e-5, 1e-6, 1e-4]])
    state, v = cells(DEVICE, N, float), jnp.asarray(V)
    leaves = {k: jnp.asarray(float(getattr(DEVICE, k))) for k in DEVICE._numbers() if not k.startswith("fit_")}

    def total(leaves, x, v, t):
        after = evolve(DEVICE.replace(**leaves), state.replace(x=x), v, t)
        return (((after.log_n - state.log_n) + after.log_n_lo) * weights).sum()

    base = moved(state, evolve(DEVICE, state, v, t))
    # Each cell counts alike, whatever its change is.
    weights = jnp.asarray(1 / base)
    grads = jax.jit(jax.grad(total, argnums=(0, 1, 2, 3)))(leaves, state.x, v, jnp.asarray(t))
    fixed = (leaves, state.x, v, jnp.asarray(t))
    whole = jax.jit(total)

    def difference(make, size):
        return float(whole(*make(size)) - whole(*make(-size))) / (2 * size)

    for k, value in leaves.items():
        rel = difference(lambda h, k=k, value=value: ({**leaves, k: value * (1 + h)}, *fixed[1:]), 1e-5)
        np.testing.assert_allclose(grads[0][k] * value, rel, rtol=2e-5, atol=1e-6, err_msg=k)
    for at, name in ((2, "v"), (3, "t")):
        rel = difference(lambda h, at=at: (*fixed[:at], fixed[at] * (1 + h), *fixed[at + 1 :]), 1e-5)
        np.testing.assert_allclose((grads[at] * fixed[at]).sum(), rel, rtol=2e-5, err_msg=name)
    rel = difference(lambda h: (leaves, state.x + h, *fixed[2:]), 1e-5)
    np.testing.assert_allclose(grads[1].sum(), rel, rtol=2e-5)


def test_gradients_of_the_explicit_law(x64):
    names = [k for k in DEVICE._numbers() if k.startswith("fit_")]
    state, v = cells(DEVICE, N, float), jnp.asarray(V)
    rates = jax.jit(lambda p: jnp.log(jnp.abs(DEVICE.replace(law="explicit", **p).rate(state, v))).sum())
    values = {k: jnp.asarray(float(getattr(DEVICE, k))) for k in names}
    grads = jax.jit(jax.grad(rates))(values)
    for k, value in values.items():
        h = 1e-6
        rel = float(rates({**values, k: value * (1 + h)}) - rates({**values, k: value * (1 - h)})) / (2 * h)
        np.testing.assert_allclose(grads[k] * value, rel, rtol=1e-5, atol=1e-6, err_msg=k)


def test_second_derivative_of_the_rate(x64):
    at = jnp.full((1, 1), -0.9), jnp.full((1, 1), 0.7065)
    slope = jax.jit(lambda x: jax.jvp(lambda x: DEVICE.rate_of(x, at[1]), (x,), (jnp.ones_like(x),))[1])
    second = jax.jvp(slope, at[:1], (jnp.ones((1, 1)),))[1]
    h = 1e-5
    np.testing.assert_allclose(second, (slope(at[0] + h) - slope(at[0] - h)) / (2 * h), rtol=1e-6)


def test_spread_tells_cells_apart():
    dtype = np.dtype(np.float32)
    dev = JARTv1b.with_spread(ctoc=0.1)
    state = dev.init(SHAPE, key=jax.random.key(3), x=float(np.log(0.4)), dtype=dtype)
    limits = {"r": (40.5e-9, 49.5e-9), "l_d": (0.36e-9, 0.44e-9), "n_max": (18, 22), "n_min": (0.004, 0.25)}
    for k, (low, high) in limits.items():
        assert len(np.unique(state.cells[k])) == state.x.size
        assert (state.cells[k] >= low * (1 - 1e-6)).all() and (state.cells[k] <= high * (1 + 1e-6)).all()
    v = jnp.asarray(V, dtype)
    after = jax.jit(lambda s, key: dev.evolve(s, v, 1e-5, key=key))(state, jax.random.key(4))
    assert all((after.cells[k] != state.cells[k]).any() for k in limits)
    # What moved is what the numbers of each cell say, those of the cycle.
    got = moved(state, after)
    exact = []
    for at in np.ndindex(*SHAPE):
        own = Model(**{k: after.cells[k][at] for k in limits})
        exact.append(own.motion(V[at], float(state.n[at]), 1e-5))
    np.testing.assert_allclose(got.ravel(), exact, rtol=1e-3)
    assert len(np.unique(got)) == state.x.size


def test_law_is_checked():
    with pytest.raises(ValueError, match="law must be 'implicit' or 'explicit', got 'fitted'"):
        JARTv1b(law="fitted").init((1, 1))
