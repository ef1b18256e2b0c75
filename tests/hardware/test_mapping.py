"""Every mapping: the product, its gradient, its window, wires, noise by cell, rows by weight, zeros."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb

W = np.random.default_rng(0).normal(size=(23, 11)).astype(np.float32) * np.linspace(0.1, 3.0, 11, dtype=np.float32)
X = np.random.default_rng(1).normal(size=(4, 23)).astype(np.float32)
M = xb.mapping
# Relative to the largest output. Sums of both signs cancel to a tenth or less of their terms.
TOL = {np.dtype("float32"): 1e-5, np.dtype("float64"): 1e-13}

MAPPINGS = {
    "pair": M.Differential(),
    "pair, tile, sorted": M.Differential(per="tile", row_order="sorted"),
    "offset": M.Offset(),
    "offset, digital": M.Offset(subtract="digital", per="tile", row_order="sorted"),
    "slices": M.BitSliced(radix=16, slices=6),
    "slices of 3": M.BitSliced(radix=5, slices=10, per="tile", row_order="sorted"),
    "devices, fixed": M.Significance(of=M.Differential(per="fixed", w_max=20.0), factors=(1.0, 2.0, 5.0)),
    "devices, digital": M.Significance(of=M.Offset(subtract="digital"), factors=(1.0, 4.0), combine="digital"),
}
every = pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS.keys())
C = np.arange(1.0, 12.0)


@jax.jit
def run(w, x, hw):
    """Outputs, the slopes of sum_j j y_j by weights and inputs, conductances, the flag."""
    c = jnp.asarray(C, w.dtype)[None]

    def f(w, x):
        tile = xb.program(w, hw)
        y = tile(x)
        return (y * c).sum(), (y, tile.conductance(), tile.converged)

    slopes, (y, g, converged) = jax.grad(f, argnums=(0, 1), has_aux=True)(w, x)
    return y, slopes, g, converged


@jax.jit
def programmed(w, hw, x):
    tile = xb.program(w, hw, key=jax.random.key(3))
    return tile, tile.conductance(key=jax.random.key(4)), tile(x, key=jax.random.key(4))


def hardware(mapping, lo=1e-6, hi=25e-6, bits=np.inf, full=1.0):
    """The same structure for every number, so that each mapping compiles once."""
    window = lambda m: m.replace(g_min=lo, g_max=hi)
    mapping = mapping.replace(of=window(mapping.of)) if isinstance(mapping, M.Significance) else window(mapping)
    return xb.canonical(xb.Hardware(rows=10, cols=5, mapping=mapping, adc=xb.ADC(bits=bits, full_scale=full)))


def check_product(mapping, dtype):
    w, x = np.asarray(W, dtype), np.asarray(X, dtype)
    y, (dw, dx), *_ = run(w, x, hardware(mapping))
    assert y.dtype == dw.dtype == dx.dtype == dtype
    near = lambda got, want, tol: np.testing.assert_allclose(got, want, rtol=0, atol=tol * np.abs(want).max())
    # Digits: half a step of 1 in 2^23 for each of 23 weights.
    digits = dtype == np.float64 and isinstance(mapping, M.BitSliced)
    near(y, x @ w, 1e-6 if digits else TOL[dtype])
    near(dw, np.broadcast_to(x.sum(0)[:, None], w.shape) * C[None], TOL[dtype])
    near(dx, np.broadcast_to((w * C[None]).sum(1), x.shape), 1e-6 if digits else TOL[dtype])


@every
def test_ideal_product_and_its_gradient_for_sizes_that_do_not_fit(mapping):
    check_product(mapping, np.dtype("float32"))


@pytest.mark.parametrize("name", ["pair", "offset, digital", "slices"])
def test_ideal_product_in_double_precision(name):
    with jax.enable_x64(True):
        check_product(MAPPINGS[name], np.dtype("float64"))


@every
def test_the_window_is_kept_and_changes_nothing(mapping):
    # O26: 200 times the window and the full scale of the ADC give the same outputs. The larger full scale is 200 times
    # the smaller exactly, but currents are rounded: a few land on the other side of a threshold.
    a, _, g, _ = run(W, X, hardware(mapping, 1e-6, 1e-5, 6.0, 2e-5))
    b, *_ = run(W, X, hardware(mapping, 2e-4, 2e-3, 6.0, 4e-3))
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(a).max())
    g = np.asarray(g)[np.asarray(g) > 0]
    assert g.min() >= 1e-6 * (1 - 1e-6) and g.max() <= 1e-5 * (1 + 1e-6)
    y, *_, converged = run(W, X, hardware(mapping, 1e-5, 1e-5))
    assert not converged and np.isnan(y).all()
    with pytest.raises(ValueError, match="g_min < g_max"):
        xb.program(W, hardware(mapping, 1e-5, 1e-5))


@every
def test_zero_column_and_zero_layer(mapping):
    # O24, and zero inputs.
    x, w0 = np.array(X), np.array(W)
    w0[:, 3] = 0.0
    for w in (w0, np.zeros_like(w0)):
        y, (dw, dx), *_ = run(w, x, hardware(mapping))
        assert (y[:, 3] == 0).all() and (w.any() or (y == 0).all())
        want = np.broadcast_to(x.sum(0)[:, None], w.shape) * C[None]
        np.testing.assert_allclose(dw, want, rtol=0, atol=2e-5 * np.abs(want).max())
        assert np.isfinite(dx).all()
    assert (run(w0, 0 * x, hardware(mapping))[0] == 0).all()


@pytest.mark.parametrize("mapping", [M.Differential(per="tile"), M.Offset(), M.BitSliced(radix=4, slices=4)], ids=str)
def test_zero_column_in_bfloat16(mapping):
    w0, x = jnp.asarray(W, jnp.bfloat16).at[:, 3].set(0.0), jnp.asarray(X, jnp.bfloat16)
    for w in (w0, jnp.zeros_like(w0)):
        y, (dw, dx), *_ = run(w, x, hardware(mapping))
        assert y.dtype == dw.dtype == dx.dtype == jnp.bfloat16
        assert (y[:, 3] == 0).all() and (w.any() or (y == 0).all())
        y, dw, dx, w32, x32 = (np.asarray(a, np.float32) for a in (y, dw, dx, w, x))
        # 8 bits of each of 23 terms.
        np.testing.assert_allclose(y, x32 @ w32, rtol=0, atol=0.05 * np.abs(x32 @ w32).max() + 1e-30)
        want = x32.sum(0)[:, None] * C[None]
        np.testing.assert_allclose(dw, want, rtol=0, atol=0.05 * np.abs(want).max())
        assert np.isfinite(dx).all()


@pytest.mark.parametrize("mapping", [M.Differential(per="tile"), M.BitSliced(per="fixed", w_max=9.0)], ids=str)
def test_zero_column_is_silent_with_noise(mapping):
    w = W.copy()
    w[:, 3] = 0.0
    tile, _, y = programmed(w, xb.Hardware(device=xb.devices.Gaussian(program_std=1e-6), mapping=mapping), X)
    assert tile.live.tolist() == [[[k != 3 for k in range(11)]]]
    assert (y[:, 3] == 0).all() and np.abs(y - X @ w).max() > 1e-3


def test_slices_reconstruct_the_integer_exactly():
    # 4 slices of 2 bits: 255 steps and the sign.
    mapping = M.BitSliced(radix=4, slices=4, g_min=0.0, g_max=3.0)
    code = np.arange(-255, 256, dtype=np.float32).reshape(73, 7)
    w = code * (0.125 * 255 / 256)
    hw = xb.Hardware(mapping=mapping.replace(per="fixed", w_max=0.125 * 255 * 255 / 256))
    tile = xb.program(w, hw)
    g = np.asarray(tile.conductance())[:, 0, 0]
    digits = g[0::2] - g[1::2]
    assert set(np.unique(g)) == {0.0, 1.0, 2.0, 3.0}
    np.testing.assert_array_equal(sum(4**k * digits[k] for k in range(4)), code)
    assert (np.minimum(g[0::2], g[1::2]) == 0).all()
    np.testing.assert_allclose(tile(np.eye(73)), w, rtol=1e-6, atol=0)
    # Between the steps: the nearest integer, for any radix.
    for radix, slices in ((5, 3), (256, 1)):
        mapping, most = M.BitSliced(radix=radix, slices=slices), radix**slices - 1
        largest = np.abs(W).max(0)
        code = np.round(W / largest * most)
        np.testing.assert_array_equal(mapping.codes(W), code)
        g, scale, *_ = jax.jit(mapping.targets)(W)
        got = sum(radix**k * (g[2 * k] - g[2 * k + 1]) for k in range(slices)) * scale[None]
        np.testing.assert_allclose(got, code * largest / most, rtol=0, atol=1e-5 * largest.max())


def test_every_slice_has_its_own_converter():
    # Two slices of 4 bits. The ADC is too coarse for the low digits and clips at the range of one slice.
    mapping = M.BitSliced(radix=16, slices=2, g_min=0.0, g_max=15.0, per="fixed", w_max=255.0)
    full = float(np.float32(0.2) * 20)
    hw = xb.Hardware(mapping=mapping, adc=xb.ADC(bits=float(np.log2(42)), full_scale=full), v_read=0.2)  # steps of .2 A
    w = jnp.array([[0x3A], [0x21], [0xF0], [0xF5]], jnp.float32)
    # one row: the code itself; rows 2 and 3 together: high digits 15 + 15 clip at 20, low digits 0 + 5
    x = jnp.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 1.0], [0.05, 0, 0, 0]])
    # .05 of 0x3A: digits .15 and .5 steps; halves round to even
    np.testing.assert_allclose(xb.program(w, hw)(x)[:3, 0], [0x3A, 0x21, 16 * 20 + 5], rtol=1e-5)
    assert float(xb.program(w, hw)(x)[3, 0]) in (0.0, 1.0)


def test_offset_against_its_reference_column():
    mapping = M.Offset(g_min=2e-6, g_max=2e-5)
    g = np.asarray(xb.program(W, xb.Hardware(mapping=mapping)).conductance())[0, 0, 0]
    assert g.shape == (23, 12)
    np.testing.assert_allclose(g[:, -1], 1.1e-5, rtol=1e-6)
    np.testing.assert_allclose(g[:, :-1], 1.1e-5 + 9e-6 * W / np.abs(W).max(0), rtol=1e-6)
    tile = xb.program(W, xb.Hardware(rows=10, cols=5, mapping=mapping))
    assert tile.tiling.grid == (3, 3) and tile.tiling.cols == 4  # the fifth column is the reference
    assert tile.conductance().shape == (1, 3, 3, 10, 5)
    # Noise of a reference cell is common to the columns of its array: half of the variance of every weight.
    hw = xb.Hardware(device=xb.devices.Gaussian(program_std=1e-7), mapping=mapping)
    _, g, _ = programmed(W, hw, X)
    error = (np.asarray(g[0, 0, 0]) - [[1.1e-5]]) * 1e7
    error = error[:, :-1] - error[:, -1:] - 90 * W / np.abs(W).max(0)
    np.testing.assert_allclose(np.corrcoef(error.T)[np.triu_indices(11, 1)].mean(), 0.5, atol=0.2)


@jax.jit
def through_wires(w, x, hw):
    tile = xb.program(w, hw)
    g = tile.conductance()[:, 0, 0]
    return tile(x), g, tile.scale[0, 0], jax.vmap(lambda g: xb.read(g, 0.2 * x, WIRES))(g)


WIRES = xb.Wires(r_word=400.0, r_bit=400.0)


def test_offset_reference_is_on_the_wires():
    mapping, w, x = M.Offset(g_min=2e-6, g_max=1e-4), W[:6, :4], X[:, :6]
    y, g, scale, i = map(np.asarray, through_wires(w, x, xb.Hardware(mapping=mapping, wires=WIRES)))
    want = (i[0, :, :-1] - i[0, :, -1:]) * scale / 0.2
    np.testing.assert_allclose(y, want, rtol=0, atol=2e-5 * np.abs(want).max())
    # A reference without wires would leave the drop of g_mid in every column.
    wrong = (i[0, :, :-1] - 0.2 * x @ g[0, :, -1:]) * scale / 0.2
    assert np.abs(wrong - x @ w).max() > 1.5 * np.abs(want - x @ w).max()
    digital = through_wires(w, x, xb.Hardware(mapping=mapping.replace(subtract="digital"), wires=WIRES))[0]
    np.testing.assert_allclose(digital, want, rtol=0, atol=2e-5 * np.abs(want).max())


def test_offset_converts_its_reference_once():
    # Steps of 1 A: weights 3.4 and .4 above and below a reference of 2.3, each converted by itself.
    mapping = M.Offset(g_min=0.0, g_max=4.6, subtract="digital", per="fixed", w_max=2.3)
    hw = xb.Hardware(mapping=mapping, v_read=1.0, adc=xb.ADC(bits=float(np.log2(22)), full_scale=10.0))
    w = jnp.array([[1.1, -1.9, 0.4]])
    np.testing.assert_allclose(xb.program(w, hw)(jnp.ones(1)), [3.0 - 2.0, 0.0 - 2.0, 3.0 - 2.0], atol=1e-5)
    on_wire = hw.replace(mapping=mapping.replace(subtract="wire"))
    np.testing.assert_allclose(xb.program(w, on_wire)(jnp.ones(1)), [1.0, -2.0, 0.0], atol=1e-5)


def test_a_pair_is_two_circuits():
    # Every cell loads its lines with 20 uS at least: G+ - G- as one circuit has neither that load nor its drops.
    w, x = np.abs(W[:6, :4]), np.abs(X[:, :6])
    mapping = M.Differential(g_min=2e-5, g_max=1e-4)
    y, g, scale, i = map(np.asarray, through_wires(w, x, xb.Hardware(mapping=mapping, wires=WIRES)))
    want = (i[0] - i[1]) * scale / 0.2
    np.testing.assert_allclose(y, want, rtol=2e-5)
    one = np.asarray(jax.jit(xb.read)(g[0] - g[1], x, WIRES)) * scale
    assert np.abs(one / want - 1).max() > 0.3


def test_heavy_rows_lie_at_the_sense_end():
    # Falling weights: in the order given the heaviest row is the farthest from the sense end.
    w = np.broadcast_to(0.5 ** np.arange(8.0, dtype=np.float32)[:, None], (8, 3))
    x = np.ones((2, 8), np.float32)

    @jax.jit
    def f(mapping):
        tile = xb.program(w, xb.Hardware(rows=5, wires=xb.Wires(r_word=0.0, r_bit=200.0), mapping=mapping))
        return tile(x), tile.order, tile.conductance()

    given, order, _ = f(M.Differential(per="fixed", g_min=0.0))
    assert order is None
    ordered, order, g = f(M.Differential(per="fixed", g_min=0.0, row_order="sorted"))
    assert np.abs(ordered / (x @ w) - 1).max() < 0.5 * np.abs(given / (x @ w) - 1).max()
    # Spare rows of the last array stay at its top, and the rest is upside down.
    assert order[:, 0].tolist() == [[4, 3, 2, 1, 0], [0, 1, 4, 3, 2]]
    assert (np.diff(np.asarray(g).sum((0, 2, 4)), axis=1) >= 0).all()
    # Below the middle of an offset window a row without weights is heavier than one with: it still comes first.
    w = np.array([[-0.5], [0.0], [1.0], [-1.0]], np.float32)
    assert M.Offset(row_order="sorted").order(w).tolist() == [1, 3, 0, 2]


@pytest.mark.long
@pytest.mark.parametrize(
    "mapping",
    [M.Differential(), M.Offset(), M.BitSliced(radix=4, slices=2), M.Significance()],
    ids=["pair", "offset", "slices", "devices"],
)
def test_noise_of_a_cell_does_not_depend_on_the_tiling(mapping):
    # Rows in the order given: a sorted order is each array's own.
    w = np.sign(W)  # every array has the same scale
    device = xb.devices.Gaussian(program_std=2e-6, read_std=1e-6)

    def cells(rows, cols):
        hw = xb.Hardware(rows=rows, cols=cols + mapping.extra_cols, device=device, mapping=mapping)
        tile, g, _ = programmed(w, hw, X)
        g = np.asarray(g)[..., : tile.tiling.cols]
        down, across = tile.tiling.grid
        spare = tile.tiling.spare
        flat = g.transpose(0, 1, 3, 2, 4).reshape(mapping.planes, down * g.shape[3], across * g.shape[4])
        full = (down - 1) * g.shape[3]
        flat = np.concatenate([flat[:, :full], flat[:, full + spare[0] :]], axis=1)
        return flat[:, :, : w.shape[1]]

    whole = cells(64, 64)
    assert whole.shape == (mapping.planes, 23, 11) and len(np.unique(whole)) > 0.5 * whole.size
    for size in ((10, 4), (23, 6)):
        np.testing.assert_allclose(cells(*size), whole, rtol=1e-6)


def test_the_errors_of_several_devices_average():
    device = xb.devices.Gaussian(program_std=1e-6)
    w = jnp.full((400, 250), 0.5)

    @jax.jit
    def error(mapping):
        hw = xb.Hardware(rows=400, cols=250, device=device, mapping=mapping)
        tile = xb.program(w, hw, key=jax.random.key(0))
        g = tile.conductance(key=jax.random.key(1))
        return tile.hardware.mapping.digital(tile.hardware.mapping.analog(g))[0, 0] - 12e-6

    of = M.Differential(g_min=2e-5, g_max=4.4e-5, per="fixed")
    # 1e5 weights, each a pair of cells.
    one = np.sqrt(2) * 1e-6
    for factors, combine in (((1.0,) * 4, "wire"), ((1.0, 2.0), "digital")):
        want = one * np.sqrt(np.sum(np.square(factors))) / np.sum(factors)
        e = np.asarray(error(M.Significance(of=of, factors=factors, combine=combine)), np.float64)
        np.testing.assert_allclose(e.std(), want, rtol=0.01)
        assert abs(e.mean()) < 4 * want / np.sqrt(e.size)


def test_factors_are_leaves():
    g = np.array([[[2.0]], [[1.0]], [[8.0]], [[5.0]]])
    with jax.enable_x64(True):
        f = lambda k: (m := M.Significance(factors=(1.0, k))).digital(m.analog(g))[0, 0]
        value, slope = jax.value_and_grad(f)(3.0)
        assert value == pytest.approx((1 * 1 + 3 * 3) / 4) and slope == pytest.approx((3 - 1) / 16)
        np.testing.assert_allclose(jax.vmap(f)(jnp.array([1.0, 3.0])), [2.0, 2.5])
    tile = xb.program(W[:3], xb.Hardware(mapping=M.Significance(factors=jnp.array([1.0, 2.0]))))
    assert tile.conductance().shape == (4, 1, 1, 3, 11)
    bad = jax.jit(lambda k: M.Significance(factors=(1.0, k)).targets(W).valid)
    assert bad(1.0) and not bad(-1.0)


def test_fixed_scale_clips_and_is_a_leaf():
    hw = lambda top: xb.Hardware(mapping=M.Differential(per="fixed", w_max=top))
    y = lambda w, top: xb.program(w, hw(top))(jnp.array([1.0, 10.0, 100.0]))[0]
    w = jnp.array([[0.5], [-3.0], [2.0]])
    np.testing.assert_allclose(y(w, 2.0), 0.5 - 20 + 200, rtol=1e-6)
    dw, dtop = jax.grad(y, argnums=(0, 1))(w, 2.0)
    np.testing.assert_allclose(dw[:, 0], [1.0, 0.0, 100.0], rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(dtop, -10.0, rtol=1e-4)


@pytest.mark.parametrize("mapping", [M.Differential(), M.Offset(), M.BitSliced(radix=16, slices=6)], ids=str)
def test_bias_in_the_array_is_driven_with_one(mapping):
    # O20: the line of the bias is not scaled with the inputs.
    b = np.linspace(-2.0, 2.0, 11, dtype=np.float32)

    @jax.jit
    def f(x, r):
        hw = xb.Hardware(mapping=mapping, rows=10, cols=5, bias="array")
        return xb.program(W, hw, bias=b, input_range=r)(x)

    want = np.asarray(X) @ np.asarray(W) + b[None]
    for r in (1.0, 3.0):
        np.testing.assert_allclose(f(X, r), want, rtol=0, atol=2e-5 * np.abs(want).max())
        np.testing.assert_allclose(f(0 * X, r), np.broadcast_to(b, want.shape), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (M.Differential(per="row"), r"mapping\.per must be one of 'column', 'tile', 'fixed', got 'row'"),
        (M.Differential(row_order="up"), r"mapping\.row_order must be one of 'given', 'sorted', got 'up'"),
        (M.Differential(per="fixed", w_max=0.0), r"mapping\.w_max must be > 0 and finite, got 0\.0"),
        (M.Offset(subtract="no"), r"mapping\.subtract must be 'wire' or 'digital', got 'no'"),
        (M.BitSliced(radix=1), r"mapping\.radix must be a whole number >= 2, got 1"),
        (M.BitSliced(slices=2.0), r"mapping\.slices must be a whole number >= 1, got 2\.0"),
        (M.BitSliced(radix=256, slices=4), r"must be <= 2\^24, got 256 \*\* 4"),
        (M.Significance(factors=()), r"mapping\.factors must be a tuple or \[devices\], got \(\)"),
        (M.Significance(factors=(1.0, -1.0)), r"mapping\.factors must be > 0 and finite"),
        (M.Significance(combine="sum"), r"mapping\.combine must be 'wire' or 'digital', got 'sum'"),
        (M.Significance(of=M.Offset(g_min=-1.0)), "0 <= g_min < g_max"),
    ],
)
def test_bad_mappings(mapping, message):
    with pytest.raises(ValueError, match=message):
        xb.program(W, xb.Hardware(mapping=mapping))


def test_a_reference_column_needs_room():
    with pytest.raises(ValueError, match=r"hardware\.cols must be > 1"):
        xb.program(W, xb.Hardware(cols=1, mapping=M.Offset()))


@pytest.mark.long
def test_gradients_do_not_rest_on_how_often_a_weight_is_computed():
    """Unoptimised XLA computes the sum twice, with other rounding: the largest weight is then equal to none."""
    x = jax.random.normal(jax.random.key(0), (8, 6))
    noisy = lambda w, key: w + 0.1 * jax.random.normal(key, w.shape, w.dtype)
    f = jax.jit(jax.vmap(jax.grad(lambda w, key: (xb.program(noisy(w, key), xb.Hardware())(x) ** 2).mean())))
    exact = jax.jit(jax.vmap(jax.grad(lambda w, key: ((x @ noisy(w, key)) ** 2).mean())))
    w, keys = jax.random.normal(jax.random.key(1), (100, 6, 4)), jax.random.split(jax.random.key(2), 100)
    np.testing.assert_allclose(f(w, keys), exact(w, keys), rtol=1e-4, atol=1e-5)
