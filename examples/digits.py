"""The demo as a script: ``python examples/digits.py [folder]``; ``xbar-jax demo`` has more options."""

import argparse
from pathlib import Path

from xbar_jax.study.digits import Settings
from xbar_jax.study.report import run_demo

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/demo"), help="where the report goes")
    run_demo(Settings(), parser.parse_args().folder)
