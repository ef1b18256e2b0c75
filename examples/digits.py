"""The demo as a script: ``python examples/digits.py [folder]``; the same as ``xbar-jax demo``."""

import sys
from pathlib import Path

from xbar_jax.study.digits import Settings
from xbar_jax.study.report import run_demo

if __name__ == "__main__":
    run_demo(Settings(), Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo"))
