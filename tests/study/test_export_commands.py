"""``xbar-jax export`` and ``xbar-jax verify``: weights from a file, a folder, a table, and the truth of it."""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from rich.console import Console

from xbar_jax import nn
from xbar_jax.hardware import ADC, DAC, Hardware, export
from xbar_jax.study import digits
from xbar_jax.study.export_files import Settings, run_export, run_verify

W = np.random.default_rng(0).normal(size=(9, 5))
BIAS = np.linspace(-1, 1, 5)


@pytest.fixture(autouse=True)
def users_settings():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def write(folder, name, **x):
    file = folder / name
    if name.endswith(".csv"):
        np.savetxt(file, x["fc"], delimiter=",")
    elif name.endswith(".npy"):
        np.save(file, x["fc"])
    else:
        np.savez(file, **x)
    return file


def shown(run, *args):
    """Whether it holds, and what is printed."""
    text = io.StringIO()
    ok = run(*args, console=Console(file=text, width=160))
    return ok, text.getvalue()


def test_a_network_is_exported_and_verified(tmp_path):
    file = write(tmp_path, "net.npz", fc=W, fc_bias=BIAS, out=W[::-1])
    out = tmp_path / "out"
    settings = Settings(rows=6, cols=4, device="gaussian", set=("program_std=1e-6",), csv=True)
    ok, text = shown(run_export, file, settings, out)
    assert ok and "exact" in text and "9x5" in text
    tiles = export.load(out)
    assert list(tiles) == ["fc", "out"] and float(tiles["fc"].hardware.device.program_std) == pytest.approx(1e-6)
    np.testing.assert_allclose(tiles["fc"].bias, BIAS, rtol=1e-6)
    assert len(list((out / "csv").iterdir())) == 2 * 2 * 4
    assert (np.asarray(tiles["fc"].state.g) != np.asarray(tiles["fc"].state.target)).any()
    ok, text = shown(run_verify, out)
    assert ok and "holds" in text
    npz = out / "arrays.npz"
    content = bytearray(npz.read_bytes())
    content[len(content) // 2] ^= 4
    npz.write_bytes(content)
    ok, text = shown(run_verify, out)
    assert not ok and text.startswith("failed: export: ") and "arrays.npz" in text


def by_integers(layer, a, name, x):
    """A layer's outputs by counts of pulse slots, conductances and scales of an export; and what rounding lets expect.

    Args:
      layer, a: of the export, JSON and arrays.
      name: of the layer.
      x: [n, inputs], within the input range.

    Returns:
      outputs and their variance, [n, outputs].
    """
    n, m, v_read = layer["dac"]["largest_code"], layer["adc_largest_code"], layer["v_read_V"]
    y, variance = np.zeros((2, len(x), layer["outputs"]))
    for one in layer["arrays"]:
        i, j = one["index"]
        rows, cols = slice(one["row"], one["row"] + one["rows"]), slice(one["col"], one["col"] + one["cols"])
        plus, minus = (
            a[f"{name}/g_{s}"][i, j, one["spare_rows"] :, : one["cols"]].astype(float) for s in ("plus", "minus")
        )
        share = x[:, rows] / one["input_range"]
        counts = np.rint(np.clip(share, -1, 1) * n).astype(int)
        current = (counts @ (plus - minus)) * v_read / n  # the charge of a pulse over its longest
        step = one["adc"]["step_A"][0]
        codes = np.rint(current / step)
        assert np.abs(codes).max() < m
        factor = a[f"{name}/factor"][i, j, : one["cols"]]
        y[:, cols] += factor * codes * step
        inexact = np.abs(share * n - np.rint(share * n)) > 1e-4  # zeros and full inputs have codes of their own
        variance[:, cols] += (inexact @ ((plus - minus) ** 2) * (v_read / n) ** 2 + step**2) * factor**2 / 12
    return y + a[f"{name}/bias"], variance


def test_a_trained_network_by_integers(tmp_path):
    """The acceptance: PWM counts x conductances -> currents -> scales against the digital layers of a trained network."""
    data = digits.load(0)
    trained = digits.train(digits.Network(None, rngs=nnx.Rngs(0)), data, 8, digits.DIGITAL, jax.random.key(0), int)
    hw = Hardware(rows=48, cols=32, dac=DAC(bits=8, mode="pwm"), adc=ADC(bits=10, full_scale=5e-5))
    model = digits.Network(hw, rngs=nnx.Rngs(0))
    nnx.update(model, nnx.state(trained, nnx.Param))
    layers = {"hidden": model.hidden, "output": model.output}
    model.output.output_scale.set_value(jnp.linspace(0.5, 1.5, 10))
    nn.calibrate(model, [data.x_train])
    nn.program(model)
    own = {
        name: {n: np.asarray(getattr(layer, n)[...]) for n in ("kernel", "output_scale", "bias")}
        for name, layer in layers.items()
    }
    arguments = {
        argument: {n: v[part] for n, v in own.items()}
        for argument, part in {"matrix": "kernel", "output_scale": "output_scale", "bias": "bias"}.items()
    }
    export.save(nn.tiles(model), tmp_path, **arguments)
    assert export.verify(tmp_path).ok
    body, a = export.read(tmp_path)
    x = np.asarray(data.x_test, np.float64)
    for name, p in own.items():
        x = np.minimum(x, body["layers"][name]["largest_input"])
        product = (x @ p["kernel"]) * p["output_scale"]
        y, variance = by_integers(body["layers"][name], a, name, x)
        error, expected = np.linalg.norm(y - p["bias"] - product), np.sqrt(variance.sum())
        assert 0.8 < error / expected < 1.2, name
        assert 1e-3 < expected / np.linalg.norm(product) < 0.05, name
        x = np.maximum(y, 0)
    assert (y.argmax(1) == data.y_test).mean() > 0.9


@pytest.mark.parametrize("name", ["fc.csv", "fc.npy"])
def test_other_files_orientation_and_precision(name, tmp_path):
    settings = Settings(transposed=True, dtype="float64", per="tile", dac_bits=None, adc_bits=None, v_read=0.1)
    ok, text = shown(run_export, write(tmp_path, name, fc=W.T), settings, tmp_path / "out")
    assert ok and "none" in text
    stored = export.read(tmp_path / "out")
    np.testing.assert_allclose(stored.arrays["fc/matrix"], W, rtol=1e-12)
    assert stored.body["layers"]["fc"]["v_read_V"] == 0.1 and stored.body["seed"] == 0


@pytest.mark.parametrize(
    ("arrays", "changes", "words"),
    [
        ({"fc": W}, {"device": "Sponge"}, r"--device must be one of .*Gaussian.*, got 'Sponge'"),
        ({"fc": W}, {"set": ("a=1",)}, "--set must come with --device"),
        ({"fc": W}, {"g_max": 1e-6}, r"export: layer fc: program: mapping.g_min and mapping.g_max must satisfy"),
        ({"fc": W * np.nan}, {}, "layer fc: program: w must be finite"),
        ({"b": BIAS}, {}, "must hold at least one matrix"),
        (
            {"fc": W, "bis": BIAS},
            {},
            r"bis must be a matrix, or a bias named as its matrix and '_bias', got shape \[5\]",
        ),
        ({"fc": W, "fc_bias": BIAS[:2]}, {}, r"layer fc: program: bias must have shape \[5\]"),
        ({"fc": W.astype(complex)}, {}, "fc must hold real numbers, got complex128"),
    ],
)
def test_mistakes_are_told(arrays, changes, words, tmp_path):
    file = write(tmp_path, "net.npz", **arrays)
    with pytest.raises(ValueError, match=words):
        run_export(file, Settings(**changes), tmp_path / "out")


def test_files_that_are_none(tmp_path):
    for name, words in (("a.npz", "does not exist"), ("a.txt", "does not exist"), ("a.json", "must end in .csv")):
        with pytest.raises(ValueError, match=words):
            run_export(tmp_path / name, Settings(), tmp_path / "out")
    (tmp_path / "a.npz").write_text("none")
    with pytest.raises(ValueError, match=r"is not a readable \.npz file"):
        run_export(tmp_path / "a.npz", Settings(), tmp_path / "out")
    with pytest.raises(ValueError, match="verify: path must be the folder of an export"):
        run_verify(tmp_path / "none")
    assert run_verify(tmp_path) is False
