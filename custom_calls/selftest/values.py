"""Writes values.h: what the self-test gives to the kernels, and what the JAX forms make of it.

python custom_calls/selftest/values.py
"""

from __future__ import annotations

import functools
import os
import textwrap
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax.numpy as jnp
import numpy as np

import xbar_jax as xb
from xbar_jax import native
from xbar_jax.devices import flow, kernels
from xbar_jax.devices.data_driven import DataDriven
from xbar_jax.devices.data_driven_2021 import DataDriven2021
from xbar_jax.devices.jart import JARTv1b
from xbar_jax.devices.linear_ion_drift import LinearIonDrift
from xbar_jax.devices.stanford_pku import StanfordPKU
from xbar_jax.devices.vteam import VTEAM
from xbar_jax.devices.yakopcic import Yakopcic
from xbar_jax.devices.yakopcic_general import YakopcicGeneral

HERE = Path(__file__).parent
ROWS, COLS, SAMPLES, WORDS = 3, 33, 3, 2
ORIGIN = np.array([100, 2000], np.uint32)
rng = np.random.default_rng(0)


def numbers(low: float, high: float, *shape: int, source: np.random.Generator = rng) -> np.ndarray:
    """float32 of three decimals, which the header states exactly."""
    return np.round(source.uniform(low, high, shape), 3).astype(np.float32)


# Every kind of stride: of each cell, of each column, of each row, of the array.
CELL, COL, ROW, ONE = (ROWS, COLS), (1, COLS), (ROWS, 1), (1, 1)
CELLS = {
    "step_up": numbers(0.002, 0.012, *CELL),
    "step_down": numbers(0.002, 0.012, *COL),
    "upper": numbers(0.4, 0.8, *COL),
    "lower": np.full(ONE, -0.6, np.float32),
    "gamma_up": numbers(0.2, 1.5, *COL),
    "gamma_down": numbers(0.2, 1.5, *ROW),
}
CELLS["upper"][0, 5] = 0  # a bound of 0
CELLS["upper"][0, COLS - 1] = -0.6  # stuck
SPREAD = np.array([[0.3], [0.0], [0.5]], np.float32)  # row 1 without noise
DEVICES = [
    xb.devices.ConstantStep(dw_min_std=SPREAD),
    xb.devices.ExpStep(
        dw_min_std=SPREAD,
        a_up=numbers(0.0, 0.5, *COL),
        a_down=0.4,
        gamma_up=2.5,
        gamma_down=numbers(1.0, 3.0, *COL),
        a=0.3,
        b=0.25,
    ),
    xb.devices.LinearStep(dw_min_std=SPREAD, relative_noise=np.array([[1.0], [0.0], [0.0]], np.float32)),
    xb.devices.PiecewiseStep(
        dw_min_std=SPREAD,
        nodes_up=tuple(numbers(0.2, 1.5, *shape) for shape in (ONE, COL, ROW, ONE, COL)),
        nodes_down=tuple(numbers(0.2, 1.5, *shape) for shape in (ROW, ONE, COL, COL, ROW)),
    ),
    xb.devices.PowStep(dw_min_std=SPREAD),
]
near = functools.partial(numbers, source=np.random.default_rng(1))
# Dynamic devices, the voltages that they are tried at, and a time in which cells move far.
DYNAMICS = [
    (VTEAM(window="biolek", p=2.5, k_on=-10 * near(0.9, 1.1, *CELL)), 1.5, 1e-8),
    (Yakopcic(xp=near(0.2, 0.4, *CELL)), 1.5, 1e-4),
    (YakopcicGeneral(), 1.5, 1e-2),
    (LinearIonDrift(window="joglekar", r_off=1e3 * near(14, 18, *CELL)), 1.5, 0.1),
    (StanfordPKU(ea=near(0.58, 0.62, *CELL)), 2.0, 1e-8),
    (DataDriven(), 1.5, 0.1),
    (DataDriven2021(), 1.5, 1e-3),
    (JARTv1b(r=45e-9 * near(0.9, 1.1, *CELL)), 0.8, 1e-6),
]
COMMON = ("step_up", "step_down", "upper", "lower", "spread")


def state(w: np.ndarray) -> xb.devices.StepState:
    return xb.devices.StepState(w=jnp.asarray(w), offset=w * 0, cells=CELLS, pulses=np.zeros(w.shape, np.int32))


def inputs() -> dict[str, np.ndarray]:
    """What the kernels get beside the parameters of the devices."""
    sign = lambda n: rng.choice(np.array([-1, 1], np.int32), (SAMPLES, n))
    thresholds = lambda n: sign(n) * rng.integers(2**28, 2**30, (SAMPLES, n), np.int32)
    row_thresholds, col_thresholds = thresholds(ROWS), thresholds(COLS)
    row_thresholds[0, 0] = -(2**30)  # probability 1
    col_thresholds[:, :3] = 0, 2**30, -(2**30)
    counts = rng.integers(-40, 41, (SAMPLES, ROWS, COLS), np.int32)
    counts[1] //= 20
    return {
        "origin": ORIGIN,
        "keys": rng.integers(0, 2**32, (SAMPLES, 2), np.uint32),
        "slots": np.array([62, 40, 5], np.int32),  # both words, the second in part, the first in part
        "row_thresholds": row_thresholds,
        "col_thresholds": col_thresholds,
        "counts": counts,
        "w": np.clip(numbers(-0.5, 0.5, *CELL), CELLS["lower"], CELLS["upper"]),
        "g": numbers(0.1, 1, *CELL),
        "v": numbers(0.1, 0.5, ROWS),
        "std": numbers(0, 0.1, *COL),
    }


def weights(w: Any) -> np.ndarray:
    """Seven decimals: the self-test asks for 2e-6."""
    return np.round(np.asarray(w), 7)


def results(x: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What the JAX forms make of it: what all devices share, and the parameters and weights of each."""
    lines = lambda kind, axis: kernels.trains(
        x[f"{kind}_thresholds"], x["slots"], x["keys"], jnp.asarray(ORIGIN[axis]), _words=WORDS
    )[0]
    shared = {"row_trains": lines("row", 0), "col_trains": lines("col", 1)}
    by_device = {}
    for dev in DEVICES:
        p = dev.parameters(state(x["w"]))
        coincidences = lambda only: kernels.coincidences(
            x["w"], shared["row_trains"], shared["col_trains"], x["keys"], ORIGIN, *p, device=type(dev), only=only
        )
        by_trains, shared["pulses_by_trains"] = coincidences(0)
        only_down, shared["pulses_only_down"] = coincidences(-1)
        by_counts, shared["pulses_by_counts"] = kernels.pulses(
            x["w"], x["counts"], x["keys"], ORIGIN, *p, device=type(dev)
        )
        if dev.kernel == "linear_step":
            shared["linear_step_only_down"] = weights(only_down)
        by_device[dev.kernel] = {"parameters": p, "by_trains": weights(by_trains), "by_counts": weights(by_counts)}
    shared["currents"] = kernels.noisy_read(x["g"], x["v"], x["std"], x["keys"][0], ORIGIN)[0]
    return shared, by_device


def motions() -> dict[str, dict[str, Any]]:
    """States, voltages and times of every dynamic device, and how far its cells move."""
    out = {}
    for dev, most, time in DYNAMICS:
        low, high = (np.broadcast_to(np.asarray(b, np.float32), CELL) for b in dev.bounds())
        x = low + (high - low) * near(0.02, 0.98, *CELL)
        v, t = near(-most, most, *CELL), time * 10 ** near(-2, 2, *CELL)
        t[0, ::7] = 0.0
        x, v, t = (jnp.asarray(y, jnp.float32) for y in (x, v, t))
        dev = dev.replace(
            **{k: jnp.asarray(getattr(dev, k), jnp.float32) for k in dev._numbers() if getattr(dev, k) is not None}
        )
        motion = flow.displacement(dev, x, v, t)
        out[dev.kernel] = {
            "parameters": dev.kernel_operands(x), "x": x, "v": v, "t": t, "d": motion.d,
            "range": np.max(high - low)[None],
        }  # fmt: skip
    return out


def constant(name: str, x: Any) -> str:
    """One array of the header, in lines of at most 120 characters; float32 in its shortest exact form."""
    x = np.asarray(x)
    kind, text = {"f": ("float", str), "i": ("int32_t", str), "u": ("uint32_t", hex)}[x.dtype.kind]
    return wrapped(f"constexpr {kind} {name}[] = {{{', '.join(text(v) for v in x.ravel())}}};")


def wrapped(text: str) -> str:
    return textwrap.fill(text, 120, subsequent_indent="    ")


def header() -> str:
    x = inputs()
    with native.disabled():
        shared, by_device = results(x)
        moved = motions()
    out = [
        "// Inputs of the self-test, and what the JAX forms in xbar_jax/devices/kernels.py and flow.py make of them.",
        "// Written by: python custom_calls/selftest/values.py",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        "// clang-format off",
        "namespace values {",
        "",
        f"constexpr int kRows = {ROWS}, kCols = {COLS}, kSamples = {SAMPLES}, kWords = {WORDS};",
        *(constant(k, v) for k, v in x.items()),
        "",
        *(constant(k, v) for k, v in shared.items()),
        "",
        "struct Parameter {",
        "  const float* ptr;",
        "  int rows, cols;  // each that of the array, or 1",
        "};",
        "struct Device {",
        "  const char* name;",
        "  const Parameter* parameters;",
        "  int n_parameters;",
        "  const float *by_trains, *by_counts;  // weights",
        "};",
        "",
    ]
    table = []
    for kernel, y in by_device.items():
        names = [*COMMON, *(f"{kernel}_{k}" for k in range(len(COMMON), len(y["parameters"])))]
        first = 0 if not table else len(COMMON)  # the common ones once
        out += [constant(name, v) for name, v in list(zip(names, y["parameters"], strict=True))[first:]]
        text = ", ".join(
            f"{{{name}, {v.shape[0]}, {v.shape[1]}}}" for name, v in zip(names, y["parameters"], strict=True)
        )
        out.append(wrapped(f"constexpr Parameter {kernel}[] = {{{text}}};"))
        out += [constant(f"{kernel}_{k}", y[k]) for k in ("by_trains", "by_counts")]
        table.append(f'    {{"{kernel}", {kernel}, {len(names)}, {kernel}_by_trains, {kernel}_by_counts}},')
    out += ["", "constexpr Device devices[] = {", *table, "};", ""]
    out += [
        "struct Motion {",
        "  const char* name;",
        "  const Parameter* parameters;",
        "  int n_parameters;",
        "  const float *x, *v, *t, *d, *range;",
        "};",
        "",
    ]
    table = []
    for kernel, y in moved.items():
        names = [f"{kernel}_{k}" for k in range(len(y["parameters"]))]
        out += [constant(name, v) for name, v in zip(names, y["parameters"], strict=True)]
        text = ", ".join(
            f"{{{name}, {v.shape[0]}, {v.shape[1]}}}" for name, v in zip(names, y["parameters"], strict=True)
        )
        out.append(wrapped(f"constexpr Parameter {kernel}[] = {{{text}}};"))
        fields = ("x", "v", "t", "d", "range")
        out += [constant(f"{kernel}_{k}", y[k]) for k in fields]
        table.append(
            wrapped(f'    {{"{kernel}", {kernel}, {len(names)}, {", ".join(f"{kernel}_{k}" for k in fields)}}},')
        )
    return "\n".join([*out, "", "constexpr Motion motions[] = {", *table, "};", "", "}  // namespace values", ""])


if __name__ == "__main__":
    written = {dev.kernel for dev in DEVICES} | {dev.kernel for dev, *_ in DYNAMICS}
    folders = (HERE.parent / "include/xbar" / kind for kind in ("devices", "dynamics"))
    headers = {p.stem for folder in folders for p in folder.glob("*.h")}
    if written != headers:
        raise SystemExit(f"values.py: devices without values or without a header: {sorted(written ^ headers)}")
    (HERE / "values.h").write_text(header())
