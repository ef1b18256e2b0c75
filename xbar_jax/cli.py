"""The command ``xbar-jax``. Needs the extra ``cli`` (tyro)."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from xbar_jax.study import drift, export_files, fit_file, program_array, solve_file
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
class Solve:
    """Solve an array from a file: bottom currents, power, IR drop, pictures.

    Examples: ``xbar-jax solve r.csv --left 0.2``; ``xbar-jax solve g.npy --what conductance --left inputs.csv --out run``.
    """

    file: tyro.conf.Positional[Path]
    """Cells [rows, cols]: .csv (a line a row; inf is an open cell), .npy, or .npz with R or G, and V for the drives."""
    out: Path | None = None
    """Folder for currents.csv, solution.npz, report.txt, maps.png and branches.png."""

    settings: tyro.conf.OmitArgPrefixes[solve_file.Settings] = field(default_factory=solve_file.Settings)

    def run(self) -> int:
        return 0 if solve_file.run_solve(self.file, self.settings, self.out) else 1


@dataclass
class Program:
    """Program an array to target conductances, through its wires: error, disturb, energy, pictures.

    Examples: ``xbar-jax program g.csv --set r_on=5e3 r_off=1e5 v_on=-0.6 v_off=0.6 --schedule row --out run``;
    ``xbar-jax program --random 32 32 --device StanfordPKU --method verify``.
    """

    file: tyro.conf.Positional[Path | None] = None
    """Targets [rows, cols]: .csv (a line a row), .npy, or .npz with G or R."""
    out: Path | None = None
    """Folder for state.npz, settings.json, report.txt, programmed.png and convergence.png."""
    resume: bool = False
    """Go on from the last pass that the folder holds for the same settings; --max-passes may be larger."""

    settings: tyro.conf.OmitArgPrefixes[program_array.Settings] = field(default_factory=program_array.Settings)

    def run(self) -> int:
        try:
            return 0 if program_array.run_program(self.file, self.settings, self.out, resume=self.resume) else 1
        except KeyboardInterrupt:
            where = f"; finished passes are in {self.out}, --resume goes on" if self.out else ""
            print(f"\ninterrupted{where}", file=sys.stderr)
            return 130


@dataclass
class Fit:
    """Fit parameters of a device to measured pulse ramps or an I-V curve: error, held-out error, a picture.

    Examples: ``xbar-jax fit set.csv --parameters r_on,r_off,k_on,p --set window=joglekar r_on=370 r_off=645 a_on=1 v_on=-0.5
    k_on=-2e-3 --v=-1 --width 1e-8 --out run``; ``xbar-jax fit iv.csv --device Yakopcic --parameters a1,b``.
    """

    file: tyro.conf.Positional[Path]
    """Ramps of pulses, a column each, A; or two columns, V and A. A header is allowed."""
    out: Path | None = None
    """Folder for fit.json, predictions.csv, report.txt and fit.png."""

    settings: tyro.conf.OmitArgPrefixes[fit_file.Settings] = field(default_factory=fit_file.Settings)

    def run(self) -> int:
        fit_file.run_fit(self.file, self.settings, self.out)
        return 0


@dataclass
class Drift:
    """Accuracy of a network on phase-change memory from half a minute to a year after programming: table and picture.

    Examples: ``xbar-jax drift``; ``xbar-jax drift --data mnist --folder mnist --out runs/mnist``.
    """

    out: Path = Path("runs/drift")
    """Folder for report.md, results.json and drift.png."""
    resume: bool = False
    """Keep the trainings that the folder already holds for the same settings; --seeds may be larger."""
    settings: tyro.conf.OmitArgPrefixes[drift.Settings] = field(default_factory=drift.Settings)

    def run(self) -> int:
        try:
            drift.run_drift(self.settings, self.out, resume=self.resume)
        except KeyboardInterrupt:
            where = self.out / "results.json"
            print(f"\ninterrupted; finished trainings are in {where}, --resume goes on", file=sys.stderr)
            return 130
        return 0


@dataclass
class Train:
    """Train a network for hardware, or on it, from a YAML file: metrics, a picture, checkpoints that go on bit for bit.

    Examples: ``xbar-jax train --example > train.yaml``; ``xbar-jax train --config train.yaml --out runs/mine``;
    ``xbar-jax train --config train.yaml --out runs/mine --resume``.
    """

    config: Path | None = None
    """What to train, YAML."""
    out: Path = Path("runs/train")
    """Folder for metrics.jsonl, training.png and checkpoints/."""
    resume: bool = False
    """Go on from the last checkpoint in the folder; begin where there is none."""
    example: bool = False
    """Print a configuration with every key that is common, and stop."""

    def run(self) -> int:
        from xbar_jax.study import train, train_config

        if self.example:
            print(train_config.EXAMPLE, end="")
            return 0
        if self.config is None:
            raise ValueError("train: --config must be given (xbar-jax train --example prints one), got None")
        return train.run_train(train_config.load(self.config), self.out, resume=self.resume)[0]


@dataclass
class Export:
    """Put weights on arrays and export them: targets, scales, codes, golden vectors, checksums.

    Examples: ``xbar-jax export weights.npz --out chip --dac-bits 8 --adc-bits 9``;
    ``xbar-jax export w.csv --out chip --device PCM --rows 128 --cols 128 --csv``.
    """

    file: tyro.conf.Positional[Path]
    """Weights [inputs, outputs]: .npz (every matrix is a layer, NAME_bias its bias), .npy or .csv (a line an input)."""
    out: Path
    """Folder for export.json and arrays.npz."""

    settings: tyro.conf.OmitArgPrefixes[export_files.Settings] = field(default_factory=export_files.Settings)

    def run(self) -> int:
        return 0 if export_files.run_export(self.file, self.settings, self.out) else 1


@dataclass
class Verify:
    """Verify an export from its files alone: checksums, golden vectors, the digital layer, a load. Exit status 0 or 1."""

    folder: tyro.conf.Positional[Path]
    """What ``xbar-jax export`` or xb.export.save wrote."""

    def run(self) -> int:
        return 0 if export_files.run_verify(self.folder) else 1


BENCHMARKS = ("solve", "update", "overhead", "dynamics", "program", "inference")


@dataclass
class Bench:
    """Run the benchmarks of the source checkout: solves against peers, the pulsed update, calls against plain XLA,
    dynamic devices, programming, inference."""

    which: tyro.conf.Positional[Literal["solve", "update", "overhead", "dynamics", "program", "inference", "all"]] = (
        "all"
    )
    """Which benchmark."""
    quick: bool = False
    """Small sizes only."""
    out: Path = Path("runs/bench")
    """Folder for the numbers, one .json for each benchmark."""

    def run(self) -> int:
        scripts = _benchmarks()
        self.out.mkdir(parents=True, exist_ok=True)
        status = 0
        for name in BENCHMARKS if self.which == "all" else (self.which,):
            command = [sys.executable, str(scripts / f"{name}.py"), "--out", str(self.out / f"{name}.json")]
            print(f"{name}: {scripts / name}.py", flush=True)
            status = max(status, subprocess.run(command + ["--quick"] * self.quick).returncode)
        return status


def _benchmarks() -> Path:
    """The folder benchmarks/ of the checkout that this package, or else the current folder, belongs to."""
    for root in (Path(__file__).resolve().parents[1], Path.cwd()):
        project = root / "pyproject.toml"
        named = tomllib.loads(project.read_text()).get("project", {}).get("name") if project.is_file() else None
        if named == "xbar_jax" and (root / "benchmarks" / "timing.py").is_file():
            return root / "benchmarks"
    raise ValueError("bench: benchmarks/ must be at hand; run this from a clone of the xbar_jax repository")


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


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Solve, tyro.conf.subcommand("solve")]
    | Annotated[Program, tyro.conf.subcommand("program")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Drift, tyro.conf.subcommand("drift")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Verify, tyro.conf.subcommand("verify")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Info, tyro.conf.subcommand("info")]
)


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    command = tyro.cli(Command, prog="xbar-jax", description=__import__("xbar_jax").__doc__, args=args)
    try:
        return command.run()
    except (ValueError, TypeError) as e:
        if isinstance(e, TypeError) and not str(e).startswith(command.__class__.__name__.lower()):
            raise
        print(f"xbar-jax: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
