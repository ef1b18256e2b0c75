"""Exports whose targets are not the weights do not verify; what a layer does digitally comes back with its tile."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import xbar_jax as xb
from xbar_jax.hardware import export

W = np.asarray(jax.random.normal(jax.random.key(0), (21, 9)), np.float32)
X = np.asarray(jax.random.uniform(jax.random.key(1), (5, 21), minval=-1.0), np.float32)
MAPPINGS = {
    "pair": xb.mapping.Differential(),
    "tile": xb.mapping.Differential(per="tile", row_order="sorted"),
    "offset": xb.mapping.Offset(subtract="digital"),
    "slices": xb.mapping.BitSliced(radix=2, slices=7),
    "two": xb.mapping.Significance(of=xb.mapping.BitSliced(radix=4, slices=3), factors=(1.0, 3.0)),
}


def hardware(mapping, **parts):
    return xb.Hardware(rows=16, cols=8, dac=xb.DAC(bits=8), adc=xb.ADC(bits=9), mapping=mapping, **parts)


def negated(w):
    w[:, 7] *= -1
    return w


def dropped(w):
    w[:, 2] = 0
    return w


def one_more(w):
    """One weight of the largest of its column, off by a fiftieth of it."""
    w[3, 4] -= 0.02 * np.sign(w[3, 4]) * np.abs(w[:16, 4]).max()
    return w


WRONG = {"negated": negated, "dropped": dropped, "smaller": lambda w: 0.7 * w, "one weight": one_more}


@pytest.mark.parametrize("name", MAPPINGS)
def test_targets_of_other_weights_do_not_verify(name, tmp_path):
    for wrong, change in ({"right": lambda w: w} | WRONG).items():
        tile = xb.program(change(W.copy()), hardware(MAPPINGS[name]))
        export.save(tile, tmp_path / wrong, matrix=W)
        (report,) = export.verify(tmp_path / wrong, replay=False).layers
        if wrong == "right":
            assert not report.failures and report.weights_wrong == 0
        else:
            assert any("weights differ" in words for words in report.failures), wrong
            # What is measured of an error is no part of what is expected; one weight hides in the steps of converters.
            assert wrong == "one weight" or any("digital layer" in words for words in report.failures), wrong
            count = {"negated": 21, "dropped": 21, "smaller": W.size, "one weight": 1}[wrong]
            assert 0.8 * count <= report.weights_wrong <= count


def test_what_the_converters_lose_is_not_taken_for_an_error_of_weights(tmp_path):
    """The bound is that of the mapping: a step more than half is an error."""
    mapping = xb.mapping.BitSliced(radix=2, slices=3)  # 7 steps
    w = np.array([[1.0], [0.4], [-0.2]], np.float32)
    export.save(xb.program(w, hardware(mapping)), tmp_path / "near", matrix=w)
    assert export.verify(tmp_path / "near", replay=False).ok
    moved = np.array([[1.0], [0.4 - 1.1 / 7], [-0.2]], np.float32)
    export.save(xb.program(moved, hardware(mapping)), tmp_path / "far", matrix=w)
    assert export.verify(tmp_path / "far", replay=False).layers[0].weights_wrong == 1


def test_weights_beyond_the_largest_are_counted(tmp_path):
    tile = xb.program(W, hardware(xb.mapping.Differential(per="fixed", w_max=1.5)))
    export.save(tile, tmp_path, matrix=W)
    (report,) = export.verify(tmp_path, replay=False).layers
    assert report.clipped == (np.abs(W) > 1.5).sum() > 0
    assert report.weights_wrong == 0


SCALE, BIAS = np.linspace(0.5, 2.0, 9).astype(np.float32), np.arange(9, dtype=np.float32)


@pytest.mark.parametrize("bias", ["digital", "array"])
def test_a_load_does_what_the_layer_does(bias, tmp_path):
    own = np.linspace(-0.3, 0.3, 9).astype(np.float32)
    tile = xb.program(W, hardware(MAPPINGS["pair"], bias=bias), bias=own)
    export.save({"fc": tile}, tmp_path, output_scale={"fc": SCALE}, bias={"fc": BIAS})
    same = export.load(tmp_path)["fc"]
    product = np.asarray(tile.replace(bias=None)(X)) * SCALE
    want = product + BIAS + (own if bias == "digital" else 0)
    np.testing.assert_allclose(same(X), want, rtol=0, atol=3e-6 * np.abs(want).max())
    report = export.verify(tmp_path)
    assert report.ok and report.layers[0].exact
    np.testing.assert_allclose(export.read(tmp_path)[1]["fc/golden.y_tile"][0], want_at_zero(tile), rtol=0, atol=1e-5)


def test_a_bare_layer_comes_back_bit_for_bit(tmp_path):
    """Its only tile has an empty name; compiled, the load gives the output of the layer."""
    layer = xb.nn.AnalogLinear(21, 9, hardware=hardware(MAPPINGS["pair"]), rngs=nnx.Rngs(0))
    layer.output_scale.set_value(jnp.asarray(SCALE))
    layer.bias.set_value(jnp.asarray(BIAS))
    xb.nn.program(layer)
    named = {"": layer.output_scale[...]}
    export.save(xb.nn.tiles(layer), tmp_path, output_scale=named, bias=layer.bias[...])
    same = export.load(tmp_path)
    assert export.read(tmp_path).body["order"] == ["tile"]
    y = nnx.jit(lambda layer, x: layer(x))(layer, X)
    np.testing.assert_array_equal(jax.jit(lambda tile, x: tile(x))(same, X), y)
    assert [one.name for one in export.arrays(xb.nn.tiles(layer))] == ["tile"] * 4


def want_at_zero(tile):
    """Outputs of the golden vector of zeros."""
    product = np.asarray(tile.replace(bias=None)(np.zeros((1, 21), np.float32)))[0]
    return product * SCALE + BIAS + (0 if tile.bias is None else np.asarray(tile.bias))


@pytest.mark.parametrize("before", ["digital", "array"])
@pytest.mark.parametrize("after", ["digital", "array"])
def test_other_hardware_keeps_the_digital_part(before, after, tmp_path):
    own = np.linspace(-0.3, 0.3, 9).astype(np.float32)
    tile = xb.program(W, xb.Hardware(rows=16, cols=8, bias=before), bias=own)
    export.save(tile, tmp_path, output_scale=SCALE, bias=BIAS)
    other = export.load(tmp_path, hardware=xb.Hardware(rows=64, cols=4, bias=after))
    want = (X @ W + (own if before == "array" else 0)) * SCALE + BIAS + (own if before == "digital" else 0)
    np.testing.assert_allclose(other(X), want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_how_inputs_are_driven_is_said(tmp_path):
    tile = xb.program(W, xb.Hardware(dac=xb.DAC(bits=7, mode="pwm", phases="two")))
    export.save(tile, tmp_path)
    dac = export.read(tmp_path)[0]["layers"]["tile"]["dac"]
    assert (dac["mode"], dac["phases"], dac["slices"], dac["largest_code"]) == ("pwm", "two", None, 63)


def test_half_precision_is_refused_in_words(tmp_path):
    tile = xb.program(jnp.asarray(W, jnp.bfloat16), xb.Hardware())
    with pytest.raises(TypeError, match=r"tiles\['tile'\] must be of float32 or float64, got bfloat16"):
        export.save(tile, tmp_path)
