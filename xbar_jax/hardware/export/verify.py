"""An export checked from its files alone: integers times conductances must be what is stored, and the digital layer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from xbar_jax.hardware.export import files
from xbar_jax.hardware.export.golden import read_out
from xbar_jax.hardware.export.iterate import Wiring, combine, recombine, weights
from xbar_jax.hardware.export.load import tile_of
from xbar_jax.hardware.export.save import stands_for

# Errors of rounding are uniform over a step: step^2 / 12 each. Twice their sum leaves room for few vectors.
_ROOM = 2.0
# What targets stand for, in units of the dtype's rounding: sums of a few conductances and the scale.
_ROUNDING = 16.0


class LayerReport(NamedTuple):
    """What was found for one layer.

    Attributes:
      name, inputs, outputs, arrays: which layer, its sizes, how many arrays.
      dac_wrong, adc_wrong: golden codes that differ from the recomputed ones and are no ties; None without codes.
      y_error: relative l2 difference between the stored outputs and those from codes, conductances and scales.
      digital_error: relative l2 difference between the latter and x w + b, where nothing is clipped.
      quantisation: what the steps of converters and weights, and the dtype, let expect for ``digital_error``.
      weight_error: relative l2 difference between the weights of the targets and the matrix they stand for.
      weights_wrong: weights that differ from their targets by more than rounding and the steps of the mapping.
      clipped: weights beyond the largest that the mapping takes.
      saturated: share of conversions at the largest code.
      exact: the loaded tile gives the stored outputs bit for bit; None if it was not run.
      failures: what does not hold, in words.
    """

    name: str
    inputs: int
    outputs: int
    arrays: int
    dac_wrong: int | None
    adc_wrong: int | None
    y_error: float
    digital_error: float
    quantisation: float
    weight_error: float
    weights_wrong: int
    clipped: int
    saturated: float
    exact: bool | None
    failures: tuple[str, ...]


class Report(NamedTuple):
    """What :func:`verify` found.

    Attributes:
      layers: a :class:`LayerReport` each.
    """

    layers: tuple[LayerReport, ...]

    @property
    def ok(self) -> bool:
        """Everything holds in every layer."""
        return not any(layer.failures for layer in self.layers)


class _Found(NamedTuple):
    dac_wrong: int | None
    adc_wrong: int | None
    y: np.ndarray  # [vectors, outputs]
    rounding: np.ndarray  # [vectors, outputs], what the dtype of the stored outputs lets expect
    converted: np.ndarray  # [outputs], variance that the ADC lets expect
    saturated: np.ndarray  # [vectors, outputs]
    share: float
    volts_differ: float


def verify(path: str | Path, *, replay: bool = True) -> Report:
    """Recomputes the golden vectors of an export from its files alone.

    The integer path uses numpy only, in float64: codes of x, codes x step -> volts, volts x targets -> currents ->
    codes -> scales -> y. Each is compared with what is stored, and y with the digital layer x w + b, whose difference
    must be within quantisation,

        |y - (x w + b)|^2 <= 4 [sum (r w_ij / N)^2 / 12 + sum (factor_j F / M)^2 / 12 + sum (x dw)_j^2],

    N and M being the largest codes of the converters at the rows and at the columns, F the bound of the latter, dw what
    the mapping may make of the weights. Each weight must be what its targets stand for, to half a step of a mapping of
    few levels and to rounding of any other; dw is no more than that. Where the mapping has a largest weight, those beyond
    it are counted, and dw has what they lose. Then the tiles are loaded and must repeat their own stored outputs.

    Args:
      path: the folder.
      replay: load the tiles and run them, too.

    Returns:
      A :class:`Report`.

    Raises:
      ValueError: a file is missing, broken or of another version.

    Example:
      >>> import tempfile, jax, xbar_jax as xb
      >>> w = jax.random.normal(jax.random.key(0), (20, 8))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     tile = xb.program(w, xb.Hardware(rows=16, dac=xb.DAC(bits=8), adc=xb.ADC(bits=9)))
      ...     xb.hardware.export.save(tile, folder)
      ...     report = xb.hardware.export.verify(folder)
      >>> report.ok, report.layers[0].arrays, report.layers[0].exact
      (True, 2, True)
    """
    stored = files.read(path)
    return Report(tuple(_layer(stored, name, str(Path(path) / files.JSON), replay) for name in stored.body["order"]))


def _layer(stored: files.Stored, name: str, file: str, replay: bool) -> LayerReport:
    about = stored.body["layers"][name]
    a = {n.rpartition("/")[2]: x for n, x in stored.arrays.items() if n.rpartition("/")[0] == name}
    x, r = _driven(about, a)
    found = _integer_path(about, a, x, r)
    decoded = stands_for(a, a["matrix"].shape[0], about["outputs"])
    clipped, weights_wrong, dw = _weights(about, a, decoded)
    learnt = a["gamma_learn"].astype(np.float64)
    plain = (x @ a["matrix"]) * learnt
    keep = (np.abs(x) <= r).all(1)[:, None] & ~found.saturated
    codes = about["dac"]["largest_code"]
    step = np.where(np.arange(len(r)) < about["inputs"], 0.0 if codes is None else 1 / codes, 0.0) * r
    variance = ((a["matrix"] * learnt) ** 2 * step[:, None] ** 2).sum(0) / 12 + found.converted
    expected = variance + ((x @ dw) * learnt) ** 2 + found.rounding**2
    size = _norm(plain * keep) or 1.0
    digital, quantisation = _norm((found.y - a["bias"] - plain) * keep) / size, np.sqrt((expected * keep).sum()) / size
    y_size = _norm(a["golden.y"]) or 1.0
    y_error = _norm(found.y - a["golden.y"]) / y_size
    weight_error = _norm(a["matrix"] - decoded) / (_norm(a["matrix"]) or 1.0)
    exact, near = _replay(stored, name, about, a, file, expected) if replay else (None, True)
    facts = [
        (not found.dac_wrong, f"{found.dac_wrong} codes of inputs differ"),
        (found.volts_differ <= 1, "read voltages are not those of the codes"),
        (not found.adc_wrong, f"{found.adc_wrong} codes of currents differ"),
        (y_error <= _norm(found.rounding) / y_size, f"outputs differ from those stored by {y_error:.2g}"),
        (
            digital <= _ROOM * quantisation,
            f"outputs differ from the digital layer by {digital:.2g}, not {quantisation:.2g}",
        ),
        (not weights_wrong, f"targets of {weights_wrong} weights differ from them, by {weight_error:.2g} in all"),
        (near, "the loaded tile does not repeat its outputs"),
    ]
    return LayerReport(
        name=name,
        inputs=about["inputs"],
        outputs=about["outputs"],
        arrays=len(about["arrays"]),
        dac_wrong=found.dac_wrong,
        adc_wrong=found.adc_wrong,
        y_error=y_error,
        digital_error=digital,
        quantisation=float(quantisation),
        weight_error=weight_error,
        weights_wrong=weights_wrong,
        clipped=clipped,
        saturated=found.share,
        exact=exact,
        failures=tuple(words for holds, words in facts if not holds),
    )


def _weights(about: Mapping[str, Any], a: Mapping[str, np.ndarray], decoded: np.ndarray) -> tuple[int, int, np.ndarray]:
    """How many weights the mapping clips, how many are not what their targets stand for, and what it may lose of each."""
    matrix, largest = a["matrix"], about["w_max"]
    inputs = np.arange(len(matrix))[:, None] < about["inputs"]
    beyond = np.zeros(matrix.shape, bool) if largest is None else (np.abs(matrix) > largest) & inputs
    meant = np.where(beyond, np.sign(matrix) * (largest or 0.0), matrix)
    eps = float(np.finfo(a["golden.x"].dtype).eps)
    rounding = _ROUNDING * eps * a["scale"][:, :, None] * (a["g_plus"].astype(np.float64) + a["g_minus"])
    steps = a["gamma_map"][:, :, None] * about["weight_half_step"] if about["weight_half_step"] else 0.0
    allowed = weights(rounding + steps, a["lines"], *matrix.shape) + _ROUNDING * eps * np.abs(meant)
    lost = matrix - meant + np.clip(meant - decoded, -allowed, allowed)
    return int(beyond.sum()), int((np.abs(decoded - meant) > allowed).sum()), lost


def _driven(about: Mapping[str, Any], a: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of every row of the matrix on the arrays, and their ranges; the line of a bias has the whole range."""
    r = np.repeat(a["input_range"], a["g_plus"].shape[2])[: a["matrix"].shape[0]]
    x = a["golden.x"].astype(np.float64)
    if about["bias_line"]:
        x = np.concatenate([x, np.full((len(x), 1), r[-1])], axis=1)
    return x, r


def _integer_path(about: Mapping[str, Any], a: Mapping[str, np.ndarray], x: np.ndarray, r: np.ndarray) -> _Found:
    eps = float(np.finfo(a["golden.x"].dtype).eps)
    down, across, rows, cols = a["g_plus"].shape
    n, v_read = about["dac"]["largest_code"], about["v_read_V"]
    v, dac_wrong = x / r * v_read, None
    if n is not None:
        dac_wrong = _differ(np.clip(x / r, -1, 1) * n, a["golden.dac_codes"], 8 * eps * n)
        v = a["golden.dac_codes"] / n * v_read
    volts, weight = a["golden.volts"].astype(np.float64), a["golden.weight"].astype(np.float64)
    head, spare = (down - 1) * rows, down * rows - x.shape[1]
    full = np.concatenate([v[:, :head], np.zeros((len(v), spare)), v[:, head:]], axis=1)
    asked = full.reshape(len(v), down, rows).transpose(1, 0, 2)
    near = 16 * eps * (np.einsum("k,aknr->anr", np.abs(weight), np.abs(volts)) + v_read)
    volts_differ = float((np.abs(np.einsum("k,aknr->anr", weight, volts) - asked) / near).max())

    wired = Wiring(*(a[f"wiring.{part}"].astype(np.float64) for part in Wiring._fields))
    wired = wired._replace(taken=a["wiring.taken"])
    sizes = Wiring(*map(np.abs, wired))
    i = combine(_currents(volts, a), wired)
    most = combine(_currents(np.abs(volts), a), sizes)
    slack = eps * (rows + 16) * most
    adc_wrong, m = None, about["adc_largest_code"]
    converted, saturated = np.zeros((down, across, cols)), np.zeros(i.shape, bool)
    factor, live = a["factor"], (a["factor"] != 0)[None, :, :, None, None, :]
    if m is not None:
        bound = a["adc_bound"][:, :, :, None, None, None]
        codes = a["golden.adc_codes"]
        adc_wrong = _differ(np.clip(i / bound, -1, 1) * m, codes, (slack / bound + 8 * eps) * m)
        i = codes / m * bound
        slack = 16 * eps * np.abs(i)
        saturated = (np.abs(codes) >= m) & live
        step = (a["adc_bound"][..., None] * wired.digital[:, None, None] * factor / m) ** 2
        converted = step.sum(0) * (weight**2).sum() / 12
    flat = lambda z: z.transpose(1, 0, 2).reshape(z.shape[1], -1)[:, : about["outputs"]]
    join = lambda i, weight, wired, factor: flat(
        np.einsum("k,abknc,abc->bnc", weight, recombine(i, wired), factor, optimize=True)
    )
    y = join(i, weight, wired, factor) + a["bias"]
    rounding = join(slack, np.abs(weight), sizes, np.abs(factor)) + 16 * eps * np.abs(y)
    clipped = flat((recombine(saturated, sizes) > 0).any((0, 2)))
    variance = converted.sum(0).reshape(-1)[: about["outputs"]]
    return _Found(dac_wrong, adc_wrong, y, rounding, variance, clipped, float(saturated.mean()), volts_differ)


def _currents(volts: np.ndarray, a: Mapping[str, np.ndarray]) -> np.ndarray:
    """Currents of every line, [planes, down, across, reads, vectors, lines] A."""
    lines = a["lines"].astype(np.int64)
    driven = np.stack([[volts[i][..., order] for order in lines[i]] for i in range(len(lines))])
    return np.asarray(np.einsum("abknr,pabrl->pabknl", driven, a["targets"].astype(np.float64), optimize=True))


def _differ(share: np.ndarray, codes: np.ndarray, slack: Any) -> int:
    """Codes that are not the nearest to ``share``, beyond what rounding of the dtype makes of a tie."""
    return int((np.abs(share - codes) > 0.5 + slack).sum())


def _replay(
    stored: files.Stored,
    name: str,
    about: Mapping[str, Any],
    a: Mapping[str, np.ndarray],
    file: str,
    expected: np.ndarray,
) -> tuple[bool, bool]:
    """Whether the loaded tile repeats its outputs, bit for bit and within rounding of another machine."""
    wide = any(x.dtype.itemsize == 8 and x.dtype.kind in "fiu" for n, x in stored.arrays.items() if "/tile." in n)
    with jax.enable_x64(wide or bool(jax.config.read("jax_enable_x64"))):
        tile = tile_of(stored, name, file)
        y = read_out(tile, a["golden.x"], about["read_seed"])
    want = a["golden.y_tile"]
    difference = _norm(y - want) if np.isfinite(want).all() else float(not np.array_equal(np.isnan(y), np.isnan(want)))
    eps = float(np.finfo(want.dtype).eps)
    allowed = 1000 * eps * _norm(want) + np.sqrt(expected.sum())
    return bool(np.array_equal(y, want, equal_nan=True)), bool(difference <= allowed)


def _norm(x: np.ndarray) -> float:
    return float(np.sqrt((np.asarray(x, np.float64) ** 2).sum()))
