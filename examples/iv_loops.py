"""Pinched loops and up/down curves of dynamic devices.

``python examples/iv_loops.py [folder]`` writes iv_loops.png and pulse_curve.png, and prints what each device went through.
"""

import argparse
from pathlib import Path

import numpy as np
from rich.progress import track

import xbar_jax as xb
from xbar_jax import plot

devices = xb.devices

# Device, amplitude of the loop (V, of the half that sets first), the other half, period; SET and RESET voltage, width.
CASES = {
    "VTEAM": (
        devices.VTEAM(r_on=5e3, r_off=1e5, v_on=-0.6, v_off=0.6, k_on=-1e-2, k_off=1e-2, a_on=2.0, a_off=2.0),
        (-1.2, 1.2, 1e-5),
        (-0.9, 0.9, 2e-8),
    ),
    "VTEAM, Joglekar window": (
        devices.VTEAM(
            r_on=5e3, r_off=1e5, v_on=-0.6, v_off=0.6, k_on=-1e-2, k_off=1e-2, a_on=2.0, a_off=2.0, window="joglekar"
        ),
        (-1.2, 1.2, 1e-5),
        (-0.9, 0.9, 1e-7),
    ),
    "Yakopcic": (
        devices.Yakopcic(ap=90.0, an=40.0, vp=0.5, vn=0.5, xp=0.3, xn=0.5, alpha_n=1.0, b=2.0, a1=1e-4, a2=1e-4),
        (1.0, -1.0, 0.1),
        (0.8, -0.8, 1e-3),
    ),
    "LinearIonDrift, Biolek window": (devices.LinearIonDrift(window="biolek"), (1.0, -1.0, 4.0), (0.6, -0.1, 0.01)),
    "StanfordPKU": (devices.StanfordPKU(), (1.3, -1.25, 1e-3), (1.2, -1.15, 2e-8)),
    "JARTv1b": (devices.JARTv1b(), (-0.8, 1.3, 1e-3), (-0.48, 1.1, 1e-7)),
}


def main(folder: Path, points: int = 400, pulses: int = 60) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    loops, curves = {}, {}
    for name, (dev, (up, down, period), (v_set, v_reset, width)) in track(CASES.items(), "devices"):
        low, high = dev.conductance_range()
        state = dev.set_conductance(dev.init((1, 1)), low + 0.1 * (high - low))
        loops[name] = devices.iv_sweep(dev, state, up, period, points, negative=down, shape="sine", cycles=2)
        curves[name] = devices.pulse_response(dev, state, pulses, pulses, v_set=v_set, v_reset=v_reset, width=width)
    plot.save(plot.iv_loops(loops), folder / "iv_loops.png")
    plot.save(plot.pulse_curve(curves, pulses), folder / "pulse_curve.png")
    for name, g in curves.items():
        i = np.abs(np.asarray(loops[name].i))
        span = f"{float(g.min()):.3g} to {float(g.max()):.3g} S by pulses"
        print(f"{name:24} {i.max():.3g} A at most in the loop, {span}")
    print(f"pictures: {folder / 'iv_loops.png'}, {folder / 'pulse_curve.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/iv_loops"), help="where the pictures go")
    main(parser.parse_args().folder)
