"""What runs write and show: files that are never half written, what a result was made with, a progress bar."""

from __future__ import annotations

import importlib.metadata
import os
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_PACKAGES = ("xbar_jax", "jax", "jaxlib", "flax", "optax", "numpy")


def write(file: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    part = file.with_suffix(file.suffix + ".part")
    part.write_text(text)
    part.replace(file)


def made_with(started: float) -> dict[str, Any]:
    """Seconds since ``started`` (of time.perf_counter), cores, and versions of packages."""
    return {
        "seconds": time.perf_counter() - started,
        "cores": os.cpu_count(),
        "versions": {p: importlib.metadata.version(p) for p in _PACKAGES},
    }


def made_with_words(results: dict[str, Any]) -> str:
    """:func:`made_with` as the last line of a report."""
    versions = ", ".join(f"{k} {v}" for k, v in results["versions"].items())
    return f"{results['seconds']:.0f} s on {results['cores']} cores; {versions}."


def bar(console: Console) -> Progress:
    """A progress bar with counts and times."""
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console)
