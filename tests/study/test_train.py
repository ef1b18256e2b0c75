"""``xbar-jax train``: interrupted and resumed bit for bit, errors by key, files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from rich.console import Console

from xbar_jax import cli
from xbar_jax.nn import checkpoint
from xbar_jax.study import train, train_config
from xbar_jax.study.train_config import load

ROOT = Path(__file__).parents[2]
CONFIG = """
hidden: [8]
batch: 256
epochs: 120
save_every: 1000
optimizer: {rate: 1e-2}
modifier: {name: Additive, std: 0.1}
clip: 2.5
hardware: {dac_bits: 8}
"""


@pytest.fixture(autouse=True)
def users_settings():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def written(tmp_path, text):
    file = tmp_path / "train.yaml"
    file.write_text(text)
    return file


def final(settings, out):
    """Everything in the last checkpoint of a run, as bytes."""
    run = train._begin(settings, out)
    parts = {"model": run.model, "optimizer": run.optimizer, "progress": train.Progress()}
    found = checkpoint.restore(out / "checkpoints", hardware="saved", **parts)
    state = nnx.state((run.model, run.optimizer))
    plain = lambda x: jax.random.key_data(x) if jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    return found, [np.asarray(plain(x)).tobytes() for x in jax.tree.leaves(state)]


def test_an_interrupt_loses_no_step_and_resume_is_bit_for_bit(tmp_path):
    config, out = written(tmp_path, CONFIG), tmp_path / "cut"
    command = [sys.executable, "-m", "xbar_jax.cli", "train", "--config", str(config), "--out", str(out)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = out / "metrics.jsonl"
    until = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        assert running.poll() is None and time.monotonic() < until, running.stdout.read()
        time.sleep(0.01)
    seen = metrics.read_text().count("\n")
    running.send_signal(signal.SIGINT)
    text, _ = running.communicate(timeout=60)
    assert running.returncode == 130 and "--resume goes on" in text, text
    # Nothing was saved but by the interrupt, after the step it fell in: all finished epochs, and a part of the next.
    (step,) = checkpoint.steps(out / "checkpoints")
    lines = metrics.read_text().splitlines()
    assert len(lines) >= seen and 5 * len(lines) <= step < 5 * (len(lines) + 1) < 600

    settings, console = load(config), Console(quiet=True)
    status, history = train.run_train(settings, out, resume=True, console=console)
    assert status == 0 and [h["epoch"] for h in history] == list(range(1, 121))
    assert [json.loads(line) for line in metrics.read_text().splitlines()] == history
    straight = tmp_path / "straight"
    _, other = train.run_train(settings, straight, console=console)
    numbers = lambda history: [{k: v for k, v in h.items() if k != "seconds"} for h in history]
    assert numbers(history) == numbers(other)
    (cut, state), (whole, same) = final(settings, out), final(settings, straight)
    assert cut.step == whole.step == 600 and state == same
    assert history[-1]["test_accuracy"] > 0.7
    assert (out / "training.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="--out must be a folder without a run"):
        train.run_train(settings, out, console=console)
    with pytest.raises(ValueError, match=r"train: clip must be that of the run in .*, 2.5, got 2.0"):
        train.run_train(load(written(tmp_path, CONFIG.replace("2.5", "2.0"))), out, resume=True, console=console)


def test_training_through_hardware_stops_where_the_loss_stays(tmp_path):
    text = """
    hidden: []
    epochs: 6
    batch: 512
    patience: 2
    through_hardware: true
    optimizer: {name: sgd, rate: 1e-9, schedule: constant}
    hardware: {device: Gaussian, device_set: {program_std: 1e-6}, dac_bits: 6, adc_bits: 8}
    """
    settings = load(written(tmp_path, text))
    status, history = train.run_train(settings, tmp_path / "run", console=Console(quiet=True))
    # Nothing is learnt, so the noise decides which loss is the lowest: two epochs without a lower one end the run.
    losses = [h["loss"] for h in history]
    best = int(np.argmin(losses))
    assert status == 0 and (len(losses) == best + 3 or len(losses) == 6)
    assert len(set(losses)) == len(losses) and len({h["test_accuracy"] for h in history}) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epoch: 3", r"epoch must be one of the keys .* \(perhaps epochs\), got 3"),
        ("optimizer: {rate: fast}", "optimizer.rate must be a number, got 'fast'"),
        ("optimizer: {name: lion}", "optimizer.name must be one of adamw, adam, sgd, got 'lion'"),
        ("hidden: 12", "hidden must be a list of whole numbers, got 12"),
        ("hidden: [8, 1.5]", r"hidden\[1\] must be a whole number, got 1.5"),
        ("epochs: 0", "epochs must be >= 1, got 0"),
        ("modifier: {name: Additive, sd: 1}", "modifier Additive: sd must be one of std, got 1"),
        ("modifier: [{name: Noise}]", r"modifier\[0\] must be one of Additive, .* got 'Noise'"),
        ("modifier: {name: Device}", "hardware.device must be given where a modifier is Device"),
        ("mode: digital\nhardware: {device: PCN}", "hardware.device must be one of .*PCM.*, got 'PCN'"),
        ("mode: digital\nhardware: {dac_bits: 0.5}", "hardware.dac.bits must be > 1"),
        ("mode: hwa", "modifier must be given in mode hwa"),
        ("a: [", "--config must be YAML"),
        ("- 1", "the configuration must be keys with values"),
    ],
)
def test_errors_name_the_key(text, words, tmp_path, capsys):
    assert cli.main(["train", "--config", str(written(tmp_path, text)), "--out", str(tmp_path / "out")]) == 2
    with pytest.raises(ValueError, match=f"train: {words}"):
        load(tmp_path / "train.yaml")
    assert capsys.readouterr().err.startswith("xbar-jax: train: ") and not (tmp_path / "out").exists()


def test_the_example_is_a_configuration(capsys, tmp_path):
    assert cli.main(["train", "--example"]) == 0
    text = capsys.readouterr().out
    assert text == (ROOT / "examples" / "train.yaml").read_text()
    settings = load(written(tmp_path, text))
    modifier, hw = train_config.modifier(settings), train_config.hardware(settings)
    assert [type(p).__name__ for p in modifier.parts] == ["Additive", "DropConnect"] and modifier.parts[0].std == 0.1
    assert hw.adc.bits == 8 and hw.mapping.g_max == 25e-6 and type(hw.device).__name__ == "PCM"
    assert settings.optimizer.rate == 5e-3
    assert cli.main(["train"]) == 2 and "--config must be given" in capsys.readouterr().err
    assert cli.main(["train", "--config", "nowhere.yaml"]) == 2 and "can be read" in capsys.readouterr().err
