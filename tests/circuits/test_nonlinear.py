"""Arrays of non-linear cells: fixtures, ngspice, closed forms, limits, derivatives, honesty."""

from __future__ import annotations

import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import case
from scipy.optimize import brentq

import xbar_jax as xb
from xbar_jax.tree import dataclass, leaf

NGSPICE = shutil.which("ngspice")
SHAPE = (5, 4)


def sinh(g, k):
    return lambda v: g * np.sinh(k * v) / k


def random_array(seed, k=3.0, shape=SHAPE, dtype=np.float64):
    rng = np.random.default_rng(seed)
    g = np.exp(rng.uniform(np.log(1e-5), np.log(1e-3), shape))
    return xb.cells.Sinh(jnp.asarray(g, dtype), jnp.asarray(k, dtype)), rng.uniform(-1, 1, shape[0]).astype(dtype)


def through(first, second_r, v):
    """Current of a scalar law behind a resistance."""
    return first(brentq(lambda u: u + second_r * first(u) - v, min(0, v), max(0, v), xtol=1e-300, rtol=1e-15))


@pytest.mark.parametrize(("name", "tol"), [("float64", 1e-8), ("float32", 3e-5)])
def test_fixture(name, tol):
    z = case("8x8_sinh")
    with jax.enable_x64(name == "float64"):
        cells = xb.cells.Sinh(jnp.asarray(1 / z["R"], name), float(z["sinh_k"]))
        wires = xb.Wires(r_word=float(z["r_wl"]), r_bit=float(z["r_bl"]))
        sol = jax.vmap(lambda v: xb.solve(cells, wires, left=v))(jnp.asarray(z["V"], name))
    assert sol.converged.all() and (sol.steps <= 5).all()
    np.testing.assert_allclose(sol.i_bottom, z["I_scipy"], rtol=tol)
    np.testing.assert_allclose(sol.i_bottom, z["I_ngspice"], rtol=max(tol, 1e-8))
    np.testing.assert_allclose(sol.v_word, z["Vw"], rtol=tol, atol=tol)
    np.testing.assert_allclose(sol.v_bit, z["Vb"], rtol=tol, atol=tol)


@pytest.mark.parametrize("v", [0.0, 1e-3, -0.4, 3.0])
def test_one_cell_behind_resistances(v, x64):
    wires = xb.Wires(r_word=1.0, r_bit=1.0, r_left=300.0, r_bottom=50.0)
    g, k = 2e-3, 5.0
    want = through(sinh(g, k), 350.0, v) if v else 0.0
    sol = xb.solve(xb.cells.Sinh(jnp.full((1, 1), g), k), wires, left=v)
    assert sol.converged
    np.testing.assert_allclose(sol.i_cell[0, 0], want, rtol=1e-9)
    np.testing.assert_allclose(sol.power, v * want, rtol=1e-9)


@pytest.mark.parametrize("v", [0.1, -0.8, 2.0])
def test_one_selector_behind_resistances(v, x64):
    parts = (2e-4, 2.0), (1e-7, 12.0)

    def law(u):
        x = brentq(lambda x: sinh(*parts[0])(x) - sinh(*parts[1])(u - x), min(0, u), max(0, u), xtol=1e-300, rtol=1e-15)
        return sinh(*parts[0])(x)

    cells = xb.cells.OneSelector(xb.cells.Sinh(jnp.full((1, 1), parts[0][0]), parts[0][1]), xb.cells.Sinh(*parts[1]))
    sol = xb.solve(cells, xb.Wires(r_word=1.0, r_bit=1.0, r_left=900.0, r_bottom=100.0), left=v)
    assert sol.converged
    np.testing.assert_allclose(sol.i_cell[0, 0], through(law, 1000.0, v), rtol=1e-9)


@pytest.mark.parametrize("v", [0.1, -0.3, 2.0])
@pytest.mark.parametrize("gate", [0.4, 2.0])
def test_one_transistor_behind_resistances(v, gate, x64):
    g, r_left, r_bottom, beta, n, phi = 5e-4, 300.0, 400.0, 2e-3, 1.4, 0.026
    vp = (gate - 0.5) / n
    half = lambda v: np.logaddexp(0.0, (vp - v) / (2 * phi)) ** 2

    def miss(i):  # Kirchhoff's voltage law around the loop, from the source down to the drain
        source = r_bottom * i
        drain = v - (r_left + 1 / g) * i
        return i - 2 * n * beta * phi**2 * (half(source) - half(drain))

    want = brentq(miss, -1e-2, 1e-2, xtol=1e-300, rtol=1e-15)
    cells = xb.cells.Transistor(xb.cells.Ohmic(jnp.full((1, 1), g)), v_gate=gate, beta=beta, n=n, phi=phi)
    sol = xb.solve(cells, xb.Wires(r_word=1.0, r_bit=1.0, r_left=r_left, r_bottom=r_bottom), left=v)
    assert sol.converged
    np.testing.assert_allclose(sol.i_cell[0, 0], want, rtol=1e-8)


LIMITS = {
    "ordinary": xb.Wires(r_word=10.0, r_bit=20.0),
    "ideal": None,
    "one side ideal": xb.Wires(r_word=0.0, r_bit=20.0),
    "cut word lines": xb.Wires(r_word=np.inf, r_bit=20.0, r_left=5.0),
    "cut bit lines": xb.Wires(r_word=10.0, r_bit=np.inf, r_bottom=5.0),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_ohmic_is_the_linear_solve(limit, x64):
    cells, v = random_array(1)
    ends = {"left": v} if limit != "ordinary" else {"left": v, "right": 0.1, "top": 0.2}
    wires = LIMITS[limit]
    if limit == "ordinary":
        wires = wires.replace(r_right=7.0, r_top=np.linspace(1.0, 9.0, SHAPE[1]))
    g = cells.g.at[1, 2].set(0.0)
    want = xb.solve(g, wires, **ends, tol=1e-13)
    got = xb.solve(xb.cells.Ohmic(g), wires, **ends, tol=1e-13)
    assert got.converged and got.i_cell[1, 2] == 0
    for name in ("i_left", "i_right", "i_top", "i_bottom", "v_word", "v_bit", "i_cell", "power"):
        a, b = getattr(got, name), getattr(want, name)
        np.testing.assert_allclose(a, b, atol=1e-10 * float(jnp.abs(b).max()), rtol=0, err_msg=name)


@pytest.mark.parametrize("limit", ["ordinary", "ideal", "one side ideal"])
def test_a_strong_transistor_is_a_wire(limit, x64):
    cells, v = random_array(2)
    want = xb.solve(cells, LIMITS[limit], left=v)
    one = xb.cells.Transistor(cells, v_gate=jnp.full(SHAPE[0], 5.0), beta=1e6)
    got = xb.solve(one, LIMITS[limit], left=v)
    assert got.converged
    np.testing.assert_allclose(got.i_cell, want.i_cell, rtol=1e-6, atol=1e-9 * float(jnp.abs(want.i_cell).max()))


def test_kirchhoff_and_the_law_hold(x64):
    """The solution is checked against its definition, with every terminal joined and voltages on both sides."""
    cells, v = random_array(3)
    wires = xb.Wires(r_word=10.0, r_bit=20.0, r_right=30.0, r_top=3.0)
    for model in (cells, xb.cells.Transistor(cells, v_gate=jnp.linspace(0.3, 3.0, SHAPE[0]))):
        sol = xb.solve(model, wires, left=v, right=0.1, top=-0.2)
        law = model.current(*((sol.v_word - sol.v_bit,) if model is cells else (sol.v_word, sol.v_bit)))
        size = float(jnp.abs(sol.i_cell).max())
        assert sol.converged and float(sol.residual) <= 1e-10
        np.testing.assert_allclose(law, sol.i_cell, atol=2e-10 * size, rtol=0)
        inner = jnp.diff(-sol.v_word, axis=1) / 10.0  # segment currents, rightwards
        flow = jnp.concatenate([sol.i_left[:, None], inner, sol.i_right[:, None]], 1)
        np.testing.assert_allclose(flow[:, :-1] - flow[:, 1:], sol.i_cell, atol=1e-9 * size, rtol=0)
        inner = jnp.diff(-sol.v_bit, axis=0) / 20.0
        flow = jnp.concatenate([sol.i_top[None], inner, sol.i_bottom[None]], 0)
        np.testing.assert_allclose(flow[1:] - flow[:-1], sol.i_cell, atol=1e-9 * size, rtol=0)


@pytest.mark.skipif(NGSPICE is None, reason="ngspice is not installed")
@pytest.mark.parametrize("seed", range(3))
def test_ngspice(seed, x64, tmp_path):
    rng = np.random.default_rng(seed)
    cells, v = random_array(seed + 10)
    k = np.where(rng.random(SHAPE) < 0.2, 0.0, rng.uniform(1, 5, SHAPE))
    cells = cells.replace(g=cells.g.at[2, 1].set(0.0), k=jnp.asarray(k))
    wires = xb.Wires(r_word=rng.uniform(0, 50), r_bit=0.0 if seed == 2 else 7.0, r_top=rng.uniform(1, 50, SHAPE[1]))
    if seed == 1:  # a word and a bit line float
        r_top, r_left = wires.r_top.copy(), rng.uniform(1, 50, SHAPE[0])
        r_top[0] = r_left[-1] = np.inf
        wires = wires.replace(r_top=r_top, r_left=r_left, r_bottom=r_top)
    top = rng.uniform(-0.5, 0.5, SHAPE[1])
    file = tmp_path / "array.cir"
    file.write_text(xb.spice.netlist(cells, wires, left=v, top=top))
    assert "bcell" in file.read_text() and "bcell2_1" not in file.read_text()
    done = subprocess.run([NGSPICE, "-b", str(file)], capture_output=True, text=True, timeout=60)
    found = {name: float(x) for name, x in re.findall(r"^i\(v(\w+)\) = (\S+)", done.stdout, re.M)}
    sol = xb.solve(cells, wires, left=v, top=top)
    assert sol.converged
    scale = max(abs(x) for x in found.values())
    for side, currents in {"left": -sol.i_left, "top": -sol.i_top, "bottom": sol.i_bottom}.items():
        want = [found[f"{side}{n}"] for n in range(len(currents))]
        np.testing.assert_allclose(currents, want, rtol=0, atol=1e-8 * scale, err_msg=done.stderr)


def test_netlist_of_another_law_is_refused():
    selector = xb.cells.OneSelector(xb.cells.Ohmic(jnp.ones((2, 2))), xb.cells.Sinh(1.0, 1.0))
    with pytest.raises(TypeError, match=r"netlist: g must be .* xb.cells.Sinh, got OneSelector"):
        xb.spice.netlist(selector, None, left=1.0)


@pytest.mark.parametrize("mixed", [False, True])
def test_steps_on_a_large_array(mixed, x64):
    """At 1 V at most 6 Newton steps reach 1e-10; at 3 V, where currents grow by exp(15), all is finite and told."""
    rng = np.random.default_rng(0)
    g = np.exp(rng.uniform(np.log(1e-5), np.log(1e-3), (128, 128)))
    v = rng.uniform(-1.0 if mixed else 0.0, 1.0, 128)
    run = jax.jit(lambda r, v, k: xb.solve(xb.cells.Sinh(g, k), xb.Wires(r_word=r, r_bit=r), left=v))
    for r, k in ((1.0, 3.0), (1.0, 5.0), (10.0, 5.0), (50.0, 5.0)):
        sol = run(r, v, k)
        assert sol.converged and sol.residual <= 1e-10 and sol.steps <= 6, (r, k, int(sol.steps))
    for r in (1.0, 50.0):
        sol = run(r, 3 * v, 5.0)
        assert sol.converged and sol.residual <= 1e-10 and sol.steps <= 15
        law = g * np.sinh(5 * np.asarray(sol.v_word - sol.v_bit)) / 5
        np.testing.assert_allclose(sol.i_cell, law, rtol=0, atol=1e-9 * np.abs(law).max())


def test_what_does_not_converge_says_so(x64):
    cells, v = random_array(5, k=5.0)
    wires = xb.Wires(r_word=10.0, r_bit=20.0)
    sol = xb.solve(cells, wires, left=3 * v, max_steps=2)
    assert not sol.converged and sol.steps == 2 and sol.residual > 1e-10
    assert np.isfinite(sol.i_cell).all()
    with pytest.raises(RuntimeError, match="no convergence"):
        xb.solve(cells, wires, left=3 * v, max_steps=2, throw=True)


@pytest.mark.parametrize("v", [13.0, -30.0])
def test_no_overflow_in_single_precision(v):
    """O11 in an array: neither the current nor a gradient is NaN, with wires and without."""
    g = jnp.asarray(np.geomspace(1e-14, 1e-3, 20, dtype=np.float32).reshape(SHAPE))
    for wires in (xb.Wires(r_word=1.0, r_bit=1.0), None):

        def total(g, v, k):
            sol = xb.solve(xb.cells.Sinh(g, k), wires, left=v)
            return sol.i_bottom.sum(), sol

        (value, sol), grads = jax.value_and_grad(total, (0, 1, 2), has_aux=True)(g, jnp.float32(v), jnp.float32(6.91))
        if sol.converged:
            assert np.isfinite(value) and value != 0
        assert not np.isnan(sol.i_cell).any()
        assert not any(np.isnan(x).any() for x in grads)


def test_a_guess_saves_steps_and_changes_nothing(x64):
    cells, v = random_array(6)
    wires = xb.Wires(r_word=10.0, r_bit=20.0)
    first = xb.solve(cells, wires, left=v)
    again = xb.solve(cells, wires, left=1.001 * v, start=first)
    cold = xb.solve(cells, wires, left=1.001 * v)
    assert again.converged and again.steps < cold.steps
    np.testing.assert_allclose(again.i_cell, cold.i_cell, rtol=1e-8, atol=1e-15)


@dataclass
class _Cubic:
    """A device of another room: what is needed is current(state, v)."""

    third: float = leaf(2.0)

    def current(self, state, v):
        return state["g"] * (v + self.third * v**3)


def test_any_device_is_a_cell(x64):
    cells, v = random_array(7)
    wires = xb.Wires(r_word=10.0, r_bit=20.0)

    def bottom(g, third):
        sol = xb.solve(xb.cells.Device(_Cubic(third), {"g": g}), wires, left=v)
        return sol.i_bottom, sol

    _, sol = bottom(cells.g, 2.0)
    u = sol.v_word - sol.v_bit
    assert sol.converged
    np.testing.assert_allclose(sol.i_cell, cells.g * (u + 2 * u**3), rtol=1e-8, atol=1e-15)
    slope = jax.jvp(lambda t: bottom(cells.g, t)[0], (jnp.asarray(2.0),), (jnp.asarray(1.0),))[1]
    step = 1e-4
    central = (bottom(cells.g, 2.0 + step)[0] - bottom(cells.g, 2.0 - step)[0]) / (2 * step)
    np.testing.assert_allclose(slope, central, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sinh", "transistor"])
def test_second_derivatives(kind, x64):
    """In cells, wires, terminals, drives and gates: forward over reverse and reverse over forward, both against
    central differences of the gradient, which is itself checked against those of the value."""
    shape = (3, 2)
    cells, v = random_array(8, shape=shape)

    def loss(x):
        g, k, r_word, r_bit, r_left, left, gate = x
        model = xb.cells.Sinh(1e-4 * g, k)
        if kind == "transistor":
            model = xb.cells.Transistor(model, v_gate=gate, phi=0.1)
        wires = xb.Wires(r_word=100 * r_word, r_bit=100 * r_bit, r_left=100 * r_left)
        sol = xb.solve(model, wires, left=left, tol=1e-13)
        return (1e8 * sol.i_bottom**2).sum() + (sol.v_word**3).sum()

    one = jnp.asarray(1.0)
    x = (1e4 * cells.g, 2 * one, one, 2 * one, one, jnp.asarray(v), jnp.linspace(0.8, 2.0, 3))
    rng = np.random.default_rng(0)
    dx = jax.tree.map(lambda x: jnp.asarray(rng.uniform(-1, 1, x.shape)), x)
    value, grad = jax.jit(loss), jax.jit(jax.grad(loss))
    along = lambda t: jax.tree.map(lambda x, d: x + t * d, x, dx)
    h = 1e-4
    slope = sum((a * b).sum() for a, b in zip(grad(x), dx, strict=True))
    np.testing.assert_allclose(slope, (value(along(h)) - value(along(-h))) / (2 * h), rtol=1e-6)
    want = jax.tree.map(lambda a, b: (a - b) / (2 * h), grad(along(h)), grad(along(-h)))
    forward_over_reverse = jax.jit(lambda x, dx: jax.jvp(jax.grad(loss), (x,), (dx,))[1])(x, dx)
    found = [forward_over_reverse]
    if kind == "sinh":  # half a minute of compilation for the other
        found.append(jax.jit(jax.grad(lambda x, dx: jax.jvp(loss, (x,), (dx,))[1]))(x, dx))
    for got in found:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), got, want)


def test_gradients_of_a_batch(x64):
    cells, v = random_array(9)
    vs = jnp.stack([v, -0.5 * v, 0.2 + v])

    def loss(cells, r, v):
        return (xb.solve(cells, xb.Wires(r_word=r, r_bit=2 * r), left=v).i_bottom ** 2).sum() * 1e6

    batch = jax.jit(jax.vmap(jax.grad(loss, (0, 1, 2)), (None, None, 0)))(cells, 10.0, vs)
    for n in range(3):
        one = jax.grad(loss, (0, 1, 2))(cells, 10.0, vs[n])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[n], b, rtol=1e-7, atol=1e-12), batch, one)
    step = 1e-3
    central = (loss(cells, 10 + step, v) - loss(cells, 10 - step, v)) / (2 * step)
    np.testing.assert_allclose(batch[1][0], central, rtol=1e-5)
    for where in ((0, 0), (3, 2)):
        h = 1e-4 * cells.g[where]
        up, down = (loss(cells.replace(g=cells.g.at[where].add(s * h)), 10.0, v) for s in (1, -1))
        np.testing.assert_allclose(batch[0].g[0][where], (up - down) / (2 * h), rtol=1e-5)


def test_gradients_are_finite_at_the_limits(x64):
    cells, v = random_array(9)
    cells = cells.replace(g=cells.g.at[0, 0].set(0.0))

    def total(cells, r_word, r_left, v):
        return xb.solve(cells, xb.Wires(r_word=r_word, r_bit=3.0, r_left=r_left), left=v).i_bottom.sum()

    for r_word in (0.0, np.inf):
        grads = jax.grad(total, (0, 1, 2, 3))(cells, r_word, 5.0, v)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(grads))
    slope = jax.grad(total, 1)(cells, 0.0, 5.0, v)
    np.testing.assert_allclose(slope, (total(cells, 1e-4, 5.0, v) - total(cells, 0.0, 5.0, v)) / 1e-4, rtol=1e-3)


def test_a_bad_number_is_named_or_flagged():
    g = jnp.full(SHAPE, 1e-4)
    wires = xb.Wires(r_word=1.0, r_bit=1.0)
    bad = {
        "Sinh.g must be finite and >= 0 S": xb.cells.Sinh(g.at[1, 1].set(-1.0), 3.0),
        r"Sinh.g must be finite and >= 0 S.*at \[1, 2\]": xb.cells.Sinh(g.at[1, 2].set(jnp.inf), 3.0),
        "Sinh.k must be finite and >= 0": xb.cells.Sinh(g, -3.0),
        "Ohmic.g must be finite": xb.cells.OneSelector(xb.cells.Ohmic(-g), xb.cells.Sinh(1e-6, 10.0)),
        "Transistor.phi must be finite and > 0": xb.cells.Transistor(xb.cells.Ohmic(g), v_gate=1.0, phi=0.0),
        "must give it the shape": xb.cells.Sinh(1e-4, 3.0),
        r"scalars or fit \[rows, cols\]": xb.cells.Sinh(g, jnp.ones((2, 2))),
        r"Transistor must be scalars or fit": xb.cells.Transistor(xb.cells.Ohmic(g), v_gate=jnp.ones(3)),
    }
    for message, cells in bad.items():
        with pytest.raises(ValueError, match=f"solve: .*{message}"):
            xb.solve(cells, wires, left=1.0)
    with pytest.raises(ValueError, match=r"left must be a scalar or have shape \[5\]"):
        xb.solve(xb.cells.Sinh(g, 3.0), wires, left=jnp.ones(4))
    with pytest.raises(TypeError, match=r"pytree with current\(v\), got _Plain"):
        xb.solve(_Plain(), wires, left=1.0)
    flagged = jax.jit(lambda g: xb.solve(xb.cells.Sinh(g, 3.0), wires, left=1.0))(g.at[0, 0].set(-1.0))
    assert not flagged.converged and np.isnan(flagged.i_bottom).all()


class _Plain:
    def current(self, v):
        return v
