"""Exports: bit for bit back, golden vectors by numpy alone, every flipped bit caught."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.hardware import export

W = np.random.default_rng(0).normal(size=(21, 13)).astype(np.float32)
W[:, 4] = 0  # an output without weights
X = np.random.default_rng(1).uniform(-1, 1, (5, 21)).astype(np.float32)
IDEAL = xb.Hardware(rows=8, cols=6)
CODES = IDEAL.replace(dac=xb.DAC(bits=8), adc=xb.ADC(bits=9))
NOISY = CODES.replace(
    device=xb.devices.Gaussian(program_std=1e-6, read_std=2e-7),
    adc=xb.ADC(bits=9, gain_std=0.01, noise=1e-3),
    compensation="column",
)
KEY = jax.random.key(7)


READ = jax.jit(lambda tile, x, key: tile(x, key=key))


def programmed(hw, dtype=np.float32, **options):
    return xb.program(jnp.asarray(W, dtype), hw, key=KEY if hw.draws else None, **options)


def product(tile):
    return np.asarray(READ(tile, jnp.asarray(X, tile.scale.dtype), KEY if tile.needs_key else None))


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(product(a), product(b))


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A chip with everything on it, after an hour, and its export."""
    tile = programmed(NOISY).drift(3600.0, key=jax.random.key(2))
    path = tmp_path_factory.mktemp("noisy")
    export.save(tile, path, seed=7)
    return tile, path


@pytest.fixture
def copy(noisy, tmp_path):
    for file in noisy[1].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_a_layer_comes_back_bit_for_bit(noisy):
    tile, path = noisy
    assert_same(export.load(path), tile)
    assert sorted(f.name for f in path.iterdir()) == ["arrays.npz", "export.json"]
    (report,) = export.verify(path).layers
    assert report.exact and not report.failures


def test_wires_cells_and_converters_come_back(tmp_path):
    parts = {"wires": xb.Wires(r_word=2.0, r_bit=np.full((7, 6), 3.0)), "adc": xb.ADC(bits=6, offset_std=0.01)}
    tile = programmed(CODES.replace(bias="array", mapping=xb.mapping.Differential(per="tile"), **parts))
    export.save(tile, tmp_path)
    back = export.load(tmp_path)
    assert jax.tree.structure(back) == jax.tree.structure(tile)
    for x, y in zip(jax.tree.leaves(back), jax.tree.leaves(tile), strict=True):
        np.testing.assert_array_equal(x, y)
    assert export.verify(tmp_path).ok


def test_double_precision_and_its_mode(x64, tmp_path):
    tile = programmed(CODES, np.float64, input_range=jnp.asarray([1.0, 2.0, 1.5], np.float64))
    export.save({"a/b": tile}, tmp_path)
    assert_same(export.load(tmp_path)["a/b"], tile)
    with jax.enable_x64(False):
        assert export.verify(tmp_path).ok
        with pytest.raises(ValueError, match=r"export.load: array a/b/tile\.\S+ is float64; load it with"):
            export.load(tmp_path)


def test_a_fresh_process_verifies_and_repeats(noisy):
    tile, path = noisy
    program = f"""
import jax, numpy as np
from xbar_jax.hardware import export
report = export.verify({str(path)!r})
assert report.ok and report.layers[0].exact, report
tile = export.load({str(path)!r})
x = np.random.default_rng(1).uniform(-1, 1, (5, 21)).astype(np.float32)
read = jax.jit(lambda tile, x, key: tile(x, key=key))
print(np.asarray(read(tile, x, jax.random.key(7))).tobytes().hex())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == product(tile).tobytes().hex()


MAPPINGS = {
    "pair": (xb.mapping.Differential(), {}),
    "offset": (xb.mapping.Offset(subtract="digital"), {"adc": xb.ADC(bits=10, full_scale=2.5e-5)}),
    "slices": (xb.mapping.BitSliced(radix=4, slices=3), {}),
    "two": (xb.mapping.Significance(of=xb.mapping.Differential(row_order="sorted"), factors=(1.0, 3.0)), {}),
    "input slices": (xb.mapping.Differential(), {"dac": xb.DAC(bits=6, code_bits=6, slices=2, phases="two")}),
    "drawn": (xb.mapping.Differential(), {"dac": xb.DAC(bits=7, mode="pwm", noise=0.01, rounding="stochastic")}),
}


@pytest.mark.parametrize("name", MAPPINGS)
def test_integers_times_conductances_are_the_digital_layer(name, tmp_path):
    """The acceptance: counts x conductances -> currents -> codes -> scales -> y, by numpy from the files alone."""
    mapping, parts = MAPPINGS[name]
    tile = programmed(CODES.replace(mapping=mapping, **parts))
    export.save({"fc": tile}, tmp_path, matrix={"fc": W})
    (report,) = export.verify(tmp_path, replay=False).layers
    assert not report.failures
    assert report.dac_wrong == report.adc_wrong == 0
    assert report.y_error < 1e-6
    # The expected error is the one that is found, not a bound far above it.
    assert 0.4 < report.digital_error / report.quantisation < 1.6
    assert 1e-4 < report.digital_error < 0.2
    assert report.weight_error < (0.02 if name == "slices" else 1e-6)


def test_the_files_hold_what_a_lab_needs(tmp_path):
    """y from the arrays of the file and nothing else, as docs/export.md says it."""
    scale, bias = np.linspace(0.5, 2.0, 13).astype(np.float32), np.arange(13, dtype=np.float32)
    tile = programmed(CODES.replace(v_read=0.1), input_range=2.0)
    export.save({"fc": tile}, tmp_path, output_scale={"fc": scale}, bias={"fc": bias})
    body, a = export.read(tmp_path)
    layer = body["layers"]["fc"]
    codes = a["fc/golden.dac_codes"]
    assert codes.dtype == np.int32 and np.abs(codes).max() == layer["dac"]["largest_code"] == 127
    assert layer["dac"]["step_V"] == pytest.approx(0.1 / 127) and layer["S"] == pytest.approx(24e-6)
    y = np.zeros((len(codes), 13))
    for one in layer["arrays"]:
        i, j = one["index"]
        top, rows, cols = one["spare_rows"], one["rows"], one["cols"]
        plus, minus = (a[f"fc/g_{s}"][i, j, top:, :cols].astype(float) for s in ("plus", "minus"))
        volts = codes[:, one["row"] : one["row"] + rows] * layer["dac"]["step_V"]
        read = np.rint((volts @ (plus - minus)) / one["adc"]["step_A"][0])
        want = a["fc/golden.adc_codes"][0, i, j, 0, :, :cols]
        assert (read == want).mean() > 0.99  # ties
        gamma = a["fc/gamma_map"][i, j, :cols] * a["fc/gamma_learn"][one["col"] : one["col"] + cols]
        factor = gamma * one["input_range"] / (layer["S"] * layer["v_read_V"])
        np.testing.assert_allclose(factor, a["fc/factor"][i, j, :cols], rtol=1e-6)
        y[:, one["col"] : one["col"] + cols] += factor * want * one["adc"]["step_A"][0]
    y += a["fc/bias"]
    np.testing.assert_allclose(y, a["fc/golden.y"], rtol=0, atol=1e-5 * np.abs(y).max())
    inside = slice(3, None)
    digital = a["fc/golden.x"] @ W * scale + bias
    assert np.linalg.norm((y - digital)[inside]) < 0.05 * np.linalg.norm((digital - bias)[inside])
    assert export.verify(tmp_path).ok


def test_bias_lines_zeros_and_drifted_baselines(noisy, tmp_path):
    bias = np.linspace(-1, 1, 13).astype(np.float32)
    tiles = {
        "bias": programmed(CODES.replace(bias="array"), bias=bias),
        "digital": programmed(IDEAL, bias=bias),
        "zeros": xb.program(jnp.zeros((3, 2)), CODES),
    }
    export.save(tiles, tmp_path)
    assert export.verify(tmp_path).ok
    loaded = export.load(tmp_path)
    assert list(loaded) == list(tiles)
    for name, tile in tiles.items():
        assert jax.tree.structure(loaded[name]) == jax.tree.structure(tile)
    assert (np.asarray(loaded["zeros"](jnp.ones(3))) == 0).all()
    _, a = export.read(tmp_path)
    np.testing.assert_allclose(a["bias/matrix"][:-1], W, atol=1e-5)
    np.testing.assert_allclose(a["bias/matrix"][-1], bias, atol=1e-5)
    tile, path = noisy
    np.testing.assert_array_equal(export.read(path).arrays["tile/drift_baseline"], tile.baseline)


def flip(file, place, bit=0):
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)


def test_every_flipped_bit_is_caught(copy):
    rng = np.random.default_rng(3)
    for name in ("export.json", "arrays.npz"):
        file = copy / name
        whole = file.read_bytes()
        for place in [*rng.integers(0, len(whole), 40), 0, len(whole) - 1]:
            flip(file, place, int(rng.integers(8)))
            with pytest.raises(ValueError, match=rf"export: .*{name}"):
                export.read(copy)
            file.write_bytes(whole)
    assert export.read(copy).body["seed"] == 7


def test_a_flipped_bit_names_its_array(copy):
    npz = copy / "arrays.npz"
    g = export.read(copy).arrays["tile/g_plus"]
    flip(npz, npz.read_bytes().index(g.tobytes()) + 5)
    with pytest.raises(ValueError, match=r"arrays\.npz: array tile/g_plus is broken"):
        export.load(copy)
    # An archive written again, with sums of its own, does not hide it.
    with np.load(npz) as z:
        content = {n: z[n] for n in z.files if n != "tile/g_plus"}
    np.savez(npz, **content, **{"tile/g_plus": g * 2})
    with pytest.raises(ValueError, match=r"arrays\.npz: array tile/g_plus differs from its checksum"):
        export.load(copy)
    np.savez(npz, **content)
    with pytest.raises(ValueError, match=r"arrays\.npz: array tile/g_plus is missing"):
        export.load(copy)
    npz.unlink()
    with pytest.raises(ValueError, match=r"arrays\.npz cannot be read: No such file"):
        export.verify(copy)


def rewritten(folder, change):
    """The export with another body, its sums made anew."""
    stored = export.read(folder)
    body = json.loads(json.dumps(stored.body))
    arrays = dict(stored.arrays)
    change(body, arrays)
    export.files.write(folder, body, arrays)


def test_another_version_or_class_is_an_error(copy):
    def newer(body, arrays):
        body["version"] = 3

    def unknown(body, arrays):
        body["version"] = 2
        body["layers"]["tile"]["tile"]["fields"]["hardware"]["class"] = "os.system"

    text = (copy / "export.json").read_text()
    rewritten(copy, newer)
    with pytest.raises(ValueError, match=r"export\.json: version must be 2, got 3"):
        export.load(copy)
    (copy / "export.json").write_text(text)
    rewritten(copy, unknown)
    with pytest.raises(ValueError, match=r"class must be one that xbar_jax exports, got 'os.system'"):
        export.load(copy)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("factor", "outputs differ"),
        ("golden.dac_codes", "codes of inputs differ"),
        ("golden.adc_codes", "codes of currents differ"),
        ("g_plus", "weights differ from them|digital layer"),
        ("golden.volts", "read voltages"),
        ("golden.y_tile", "does not repeat"),
    ],
)
def test_wrong_content_with_right_sums_does_not_verify(part, words, copy):
    def change(body, arrays):
        x = arrays[f"tile/{part}"]
        arrays[f"tile/{part}"] = x + 3 if x.dtype == np.int32 else 2 * x

    rewritten(copy, change)
    report = export.verify(copy)
    assert not report.ok
    assert any(w in f for f in report.layers[0].failures for w in words.split("|"))


def test_other_hardware_is_asked_for(tmp_path):
    """A layer trained without converters, loaded into coarse ones: the coarse ones count, and only when asked for."""
    tile = programmed(IDEAL, input_range=1.0, bias=np.ones(13, np.float32))
    export.save(tile, tmp_path)
    coarse = xb.Hardware(rows=16, cols=16, dac=xb.DAC(bits=4), mapping=xb.mapping.Differential(g_min=2e-6, g_max=2e-4))
    fine, rough = product(export.load(tmp_path)), product(export.load(tmp_path, hardware=coarse))
    exact = X @ W + 1
    np.testing.assert_allclose(fine, exact, atol=1e-5)
    assert 0.02 < np.linalg.norm(rough - exact) / np.linalg.norm(exact) < 0.2
    np.testing.assert_allclose(rough, product(programmed(coarse, bias=np.ones(13, np.float32))), atol=1e-4)
    with pytest.raises(ValueError, match="program: key must be given"):
        export.load(tmp_path, hardware=NOISY)
    with pytest.raises(TypeError, match=r"export.load: hardware must be an xb.Hardware or None, got dict"):
        export.load(tmp_path, hardware={})
    export.save(programmed(CODES, input_range=jnp.asarray([1.0, 2.0, 1.5])), tmp_path)
    assert export.load(tmp_path, hardware=CODES).input_range.tolist() == [1.0, 2.0, 1.5]
    with pytest.raises(ValueError, match=r"has 3 input ranges, .* hardware.rows must make as many, got 2"):
        export.load(tmp_path, hardware=coarse)


def test_what_a_file_cannot_hold_is_an_error(tmp_path):
    class Own(xb.devices.Gaussian):
        pass

    tile = programmed(NOISY)
    for device, words in ((Own(), "something of type Own"), (lambda g: g, "a function")):
        with pytest.raises(TypeError, match=rf"export.save: tile/tile.hardware.device must be .*, got {words}"):
            export.save(tile.replace(hardware=NOISY.replace(device=device)), tmp_path)
    with pytest.raises(TypeError, match="must be concrete, got a traced one"):
        jax.jit(lambda t: export.save(t, tmp_path))(tile)
    with pytest.raises(ValueError, match="must be one chip, got a batch"):
        export.save(jax.tree.map(lambda x: jnp.stack([x, x]), tile), tmp_path)
    with pytest.raises(ValueError, match=r"bias\['fc'\] must have shape \[13\], got \[2\]"):
        export.save({"fc": tile}, tmp_path, bias={"fc": np.ones(2)})
    with pytest.raises(ValueError, match=r"output_scale must name tiles \(fc\), got 'fd'"):
        export.save({"fc": tile}, tmp_path, output_scale={"fd": np.ones(13)})
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="path must be a folder that can be made"):
        export.save(programmed(IDEAL), tmp_path / "file")


def test_keys_tuples_and_narrow_dtypes_in_a_tree():
    tree = {
        "key": jax.random.key(3),
        "t": (1.5, float("inf"), None, True, "words"),
        "b": jnp.asarray([1.0, 2.5], jnp.bfloat16),
        "list": [np.float32(2.0), xb.hardware.Tiling(3, 4, 2, 2)],
    }
    arrays: dict = {}
    text = json.dumps(export.schema.encode(tree, "x", arrays), allow_nan=False)
    arrays = {n: export.schema.typed(export.schema.plain(a), a.dtype.name) for n, a in arrays.items()}
    back = export.schema.decode(json.loads(text), arrays, "file")
    assert jax.random.key_data(back["key"]).tolist() == jax.random.key_data(tree["key"]).tolist()
    assert back["t"] == tree["t"] and back["list"] == tree["list"]
    assert back["b"].dtype == jnp.bfloat16 and back["b"].tolist() == [1.0, 2.5]


def test_equal_contents_are_equal_files(noisy, tmp_path):
    tile, path = noisy
    export.save(tile, tmp_path, seed=7)
    for file in path.iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_the_iterator_gives_every_weight_once():
    tiles = {
        "a": programmed(CODES.replace(mapping=xb.mapping.Differential(row_order="sorted"))),
        "b": programmed(NOISY),
    }
    found = {name: np.full(W.shape, np.nan) for name in tiles}
    count = 0
    for one in export.arrays(tiles):
        cols = one.col + np.arange(one.g_plus.shape[1])
        assert np.isnan(found[one.name][np.ix_(one.inputs, cols)]).all()
        found[one.name][np.ix_(one.inputs, cols)] = one.scale * (one.g_plus - one.g_minus)
        assert one.g_plus.min() >= 1e-6 * (1 - 1e-6) and one.g_plus.max() <= 25e-6 * (1 + 1e-6)
        np.testing.assert_array_equal(one.circuits, [one.g_plus, one.g_minus])
        count += 1
    assert count == 2 * 3 * 3
    for w in found.values():
        np.testing.assert_allclose(w, W, atol=1e-5)


def test_tables_hold_the_targets_exactly(tmp_path):
    tile = programmed(NOISY)
    written = export.csv({"net/fc 1": tile}, tmp_path)
    assert len(written) == 18 and written[0].name == "net_fc_1_0_0_plus.csv"
    each = list(export.arrays(tile))
    for one, plus, minus in zip(each, written[::2], written[1::2], strict=True):
        np.testing.assert_array_equal(np.loadtxt(plus, delimiter=",", dtype=np.float32, ndmin=2), one.g_plus)
        np.testing.assert_array_equal(np.loadtxt(minus, delimiter=",", dtype=np.float32, ndmin=2), one.g_minus)
    head = written[-1].read_text().splitlines()[:3]
    assert "S; layer net/fc 1, array 2 2, minus" in head[0]
    assert head[2] == "# input of each line: 16 17 18 19 20"
    offset = programmed(IDEAL.replace(mapping=xb.mapping.Offset()))
    first = export.csv(offset, tmp_path / "offset")[0]
    assert first.name == "tile_0_0_circuit0.csv"
    assert np.loadtxt(first, delimiter=",").shape == (8, 6)  # five columns of weights and the reference
