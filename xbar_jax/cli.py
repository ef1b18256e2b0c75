"""The command ``xbar-jax``. Needs the extra ``cli`` (tyro)."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from xbar_jax.study.digits import Settings


@dataclass
class Demo:
    """Train a network on handwritten digits, put it on arrays, and bring back what the wires took."""

    out: Path = Path("runs/demo")
    """Folder for report.md, results.json and the pictures."""
    resume: bool = False
    """Keep the points that the folder already holds for the same settings."""
    settings: tyro.conf.OmitArgPrefixes[Settings] = field(default_factory=Settings)

    def run(self) -> int:
        from xbar_jax.study.report import run_demo

        try:
            run_demo(self.settings, self.out, resume=self.resume)
        except KeyboardInterrupt:
            print(
                f"\ninterrupted; finished points are in {self.out / 'results.json'}, --resume goes on", file=sys.stderr
            )
            return 130
        return 0


@dataclass
class Info:
    """Show versions, the backend and the devices."""

    def run(self) -> int:
        import jax
        from rich.console import Console
        from rich.table import Table

        from xbar_jax import native

        table = Table("what", "found", title="xbar-jax", show_header=False)
        for package in ("xbar_jax", "jax", "jaxlib", "flax", "optax", "numpy", "scipy"):
            table.add_row(package, importlib.metadata.version(package))
        table.add_row("python", platform.python_version())
        table.add_row("backend", jax.default_backend())
        table.add_row("devices", ", ".join(str(d) for d in jax.devices()))
        table.add_row("64-bit mode", str(bool(jax.config.read("jax_enable_x64"))))
        for library in native.libraries():
            state = f"not used: {library.reason}"
            if library.reason is None:
                calls = ", ".join(sorted(t.removeprefix("xbar_") for t in library.targets))
                idle = library.name == "cuda" and jax.default_backend() != "gpu"
                state = f"{'built, not in use on this backend; ' if idle else ''}{library.detail}; calls {calls}; device kernels {', '.join(sorted(library.devices))}"
            table.add_row(f"custom calls, {library.name}", state)
        Console().print(table)
        return 0


Command = Annotated[Demo, tyro.conf.subcommand("demo")] | Annotated[Info, tyro.conf.subcommand("info")]


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    command = tyro.cli(Command, prog="xbar-jax", description=__import__("xbar_jax").__doc__, args=args)
    try:
        return command.run()
    except ValueError as e:
        print(f"xbar-jax: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
