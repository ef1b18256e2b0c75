"""Faults that users of such tools met, with the right values (O1 to O7)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb

X23 = np.array([[1e3, 2e3, 3e3], [4e3, 5e3, 6e3]])
V23 = np.array([0.5, -0.2])


def milliamps(r, v, r_word, r_bit):
    return np.asarray(xb.solve(1 / np.asarray(r), xb.Wires(r_word=r_word, r_bit=r_bit), left=v).i_bottom) * 1e3


@pytest.mark.parametrize(
    ("r_word", "r_bit", "want"),
    [
        (0, 0, [0.45, 0.21, 0.13333333]),
        (10, 20, [0.421581, 0.198863, 0.126616]),
        (0, 20, [0.429624, 0.204680, 0.130926]),
        (10, 0, [0.441342, 0.203882, 0.128835]),
        (20, 10, [0.423280, 0.195666, 0.123533]),
        (np.inf, 10, [0, 0, 0]),
        (10, np.inf, [0, 0, 0]),
        (np.inf, np.inf, [0, 0, 0]),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_o1_line_resistance_limits(r_word, r_bit, want, traced, x64):
    if traced:
        f = jax.jit(lambda a, b: xb.solve(1 / X23, xb.Wires(r_word=a, r_bit=b), left=V23).i_bottom)
        got = np.asarray(f(float(r_word), float(r_bit))) * 1e3
    else:
        got = milliamps(X23, V23, r_word, r_bit)
    np.testing.assert_allclose(got, want, rtol=0, atol=6e-7)


def test_o1_single_cell_and_continuity(x64):
    np.testing.assert_allclose(milliamps([[1e3]], [1.0], 10, 20), [0.970873786], rtol=1e-9)
    with pytest.raises(ValueError, match="g must be finite and >= 0 S"):
        xb.solve(np.array([[np.inf]]), xb.Wires(r_word=1.0, r_bit=2.0), left=1.0)
    np.testing.assert_allclose(milliamps(X23, V23, 1e-9, 1e-9), milliamps(X23, V23, 0, 0), rtol=1e-9)


O2 = np.array(
    [
        [np.inf, 20, np.inf, 40],
        [np.inf, np.inf, np.inf, 80],
        [np.inf, 100, np.inf, 120],
        [np.inf, 140, 150, np.inf],
        [170, np.inf, 190, np.inf],
    ]
)


@pytest.mark.parametrize(
    ("r_word", "r_bit", "want"),
    [
        (0, 2, [0.01744186, 0.09747267, 0.02827763, 0.06509160]),
        (1, 0, [0.01745349, 0.13495950, 0.02834377, 0.07814130]),
    ],
)
def test_o2_open_devices(r_word, r_bit, want, x64):
    np.testing.assert_allclose(milliamps(O2, [3, 2, -1, 2, 3], r_word, r_bit) / 1e3, want, rtol=0, atol=6e-9)
    assert not milliamps(np.full((3, 3), np.inf), [1.0, 2.0, 3.0], r_word, r_bit).any()
    opened = np.array(X23)
    opened[:, 2] = np.inf
    got = milliamps(opened, V23, 10, 20)
    assert got[2] == 0
    np.testing.assert_allclose(got[:2], milliamps(X23[:, :2], V23, 10, 20), rtol=1e-12)


@pytest.mark.parametrize("kind", [np.int32, list, float])
def test_o3_integer_inputs(kind, x64):
    r, v = [[10, 20], [30, 40]], [1, 1]
    make = (lambda x: x) if kind is list else (lambda x: np.asarray(x, kind))
    np.testing.assert_allclose(milliamps(make(r), make(v), 0, 0) / 1e3, [0.13333333, 0.075], atol=6e-9)
    np.testing.assert_allclose(milliamps(make(r), make(v), 1, 2) / 1e3, [0.08688794, 0.05510395], atol=6e-9)
    # conductances given as integers are siemens, not truncated reciprocals
    assert xb.solve(np.array([[2]], np.int32), None, left=3).i_bottom[0] == 6.0


def test_o4_single_rows_and_columns(x64):
    r = np.array([1e3, 2e3, 3e3, 4e3])
    np.testing.assert_allclose(milliamps(r[None], [1.0], 10, 20), [0.960792, 0.480011, 0.319218, 0.239216], atol=6e-7)
    np.testing.assert_allclose(milliamps(r[:, None], [1, 0.5, -0.5, 0.25], 10, 20), [1.007203], atol=6e-7)
    np.testing.assert_allclose(milliamps(r[:, None], 1.0, 10, 20), [1.875263], atol=6e-7)


def test_o5_orientation(x64):
    r, v = [[1e3, 2e3], [5e3, 10e3]], [0.5, -0.2]
    np.testing.assert_allclose(milliamps(r, v, 10, 10), [0.44271, 0.22269], atol=6e-6)
    np.testing.assert_allclose(milliamps(r, v, 10, 20), [0.433083, 0.220254], atol=6e-7)
    g, v = 1 / np.arange(1.0, 17.0).reshape(4, 4), np.array([0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(xb.read(g, v), [0.20410256, 0.14190476, 0.11584416, 0.1], atol=6e-9)
    np.testing.assert_allclose(xb.read(g.T, v), [0.4, 0.14619048, 0.09171717, 0.06697802], atol=6e-9)
    w = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], jnp.float32)
    np.testing.assert_allclose(
        xb.program(w, xb.Hardware())(jnp.array([1.0, 10.0], jnp.float32)), [41, 52, 63], rtol=1e-6
    )


@pytest.mark.parametrize("way", ["solve", "effective"])
def test_o6_a_floating_column_in_a_batch_harms_nobody(way, dtype):
    rng = np.random.default_rng(0)
    g = jnp.asarray(rng.uniform(1e-5, 1e-4, (3, 4, 3)), dtype).at[1, :, 1].set(0.0)
    r_bottom = jnp.full((3, 3), 2.0, dtype).at[1, 1].set(jnp.inf)
    v = jnp.asarray(rng.uniform(0, 1, 4), dtype)

    def one(g, r_bottom):
        wires = xb.Wires(r_word=1.0, r_bit=1.0, r_bottom=r_bottom)
        if way == "effective":
            return v @ xb.effective_conductance(g, wires), jnp.array(True)
        sol = xb.solve(g, wires, left=v)
        return sol.i_bottom, sol.converged

    batch, ok = jax.vmap(one)(g, r_bottom)
    assert ok.all()
    assert batch[1, 1] == 0
    for k in (0, 2):
        np.testing.assert_allclose(batch[k], one(g[k], r_bottom[k])[0], rtol=1e-6)
    grads = jax.grad(lambda g, r: jax.vmap(one)(g, r)[0].sum(), argnums=(0, 1))(g, r_bottom)
    assert all(np.isfinite(x).all() for x in grads)


def test_o6_a_floating_column_with_closed_cells_carries_nothing_out(x64):
    g = jnp.full((2, 3, 2), 1e-4).at[:, 0, 1].set(2e-4)
    r = jnp.array([[1.0, 1.0], [1.0, jnp.inf]])
    v = jnp.array([1.0, 0.5, 0.0])
    sol = jax.vmap(lambda g, r: xb.solve(g, xb.Wires(r_bottom=r), left=v))(g, r)
    assert sol.converged.all()
    from oracle import nodal

    for k in range(2):
        want = nodal(g[k], 1.0, 1.0, left=v, r_bottom=r[k])
        np.testing.assert_allclose(sol.i_bottom[k], want["i_bottom"], rtol=1e-9, atol=1e-18)
        np.testing.assert_allclose(sol.v_bit[k], want["v_bit"], rtol=1e-9)
    assert sol.i_bottom[1, 1] == 0
    # A scalar that is inf is a mistake, not a floating array.
    flagged = jax.jit(lambda r: xb.solve(g[0], xb.Wires(r_bottom=r), left=1.0))(jnp.inf)
    assert not flagged.converged and np.isnan(flagged.i_bottom).all()


def test_o7_precision_is_never_silently_less_than_asked():
    wires = xb.Wires(r_word=10.0, r_bit=20.0)
    with pytest.raises(ValueError, match=r"dtype=float64 needs 64-bit mode"):
        xb.solve(1 / X23, wires, left=V23, dtype=jnp.float64)
    with pytest.raises(ValueError, match=r"tol must lie in .* for float32"):
        xb.solve(1 / X23, wires, left=V23, tol=1e-12)
    with jax.enable_x64(True):
        sol = jax.jit(lambda g: xb.solve(g, wires, left=V23, dtype=jnp.float64, tol=1e-14))(1 / X23)
        assert sol.i_bottom.dtype == jnp.float64
        from oracle import nodal

        np.testing.assert_allclose(sol.i_bottom, nodal(1 / X23, 10.0, 20.0, left=V23)["i_bottom"], rtol=1e-12)


def test_o7_batch_of_one_equals_unbatched():
    rng = np.random.default_rng(0)
    g = jnp.asarray(1 / rng.uniform(1e4, 1e6, (32, 32)), jnp.float32)
    v = jnp.asarray(rng.uniform(0, 1, 32), jnp.float32)
    f = lambda g: xb.solve(g, xb.Wires(r_word=1.0, r_bit=1.0), left=v).i_bottom
    np.testing.assert_allclose(jax.vmap(f)(g[None])[0], f(g), rtol=1e-5)
