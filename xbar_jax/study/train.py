"""A network trained from a configuration: progress, a line of numbers for every epoch, a picture, and state to go on from.

A step is one compiled call, and everything that changes is in arrays: what a run has after a step is decided by its
configuration alone, whether it was interrupted in between or not.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from rich.console import Console

from xbar_jax import nn
from xbar_jax.nn import checkpoint, recipes
from xbar_jax.nn.model import analog_layers
from xbar_jax.study import digits, mnist, train_config
from xbar_jax.study.files import bar, made_with, write
from xbar_jax.study.train_config import Settings
from xbar_jax.typing import Array, Float

INTERRUPTED = 130  # exit status


class Network(nnx.Module):
    """Analog dense layers with rectified units between them."""

    def __init__(self, sizes: tuple[int, ...], hardware: Any, modifier: Any, rngs: nnx.Rngs):
        make = functools.partial(nn.AnalogLinear, hardware=hardware, modifier=modifier, rngs=rngs)
        self.layers = nnx.List([make(*pair) for pair in itertools.pairwise(sizes)])

    def __call__(self, x: Float[Array, "batch inputs"]) -> Float[Array, "batch classes"]:
        *hidden, last = self.layers
        for layer in hidden:
            x = jax.nn.relu(layer(x))
        return last(x)


class Progress(NamedTuple):
    """Where a run is, all of it in the checkpoint.

    Attributes:
      epoch, batch: the next step; epochs count from 0.
      loss, right: of the epoch so far: sum of the losses of batches, and images named right.
      best, stale: lowest loss of an epoch, and epochs since.
      seconds: spent in the epoch so far.
    """

    epoch: int = 0
    batch: int = 0
    loss: float = 0.0
    right: int = 0
    best: float = float("inf")
    stale: int = 0
    seconds: float = 0.0


class _Run(NamedTuple):
    settings: Settings
    out: Path
    source: mnist.Source
    model: Network
    optimizer: nnx.Optimizer

    @property
    def batches(self) -> int:
        return len(self.source.data.x_train) // self.settings.batch

    def save(self, progress: Progress) -> None:
        step = progress.epoch * self.batches + progress.batch
        folder = self.out / "checkpoints"
        if step not in checkpoint.steps(folder):
            parts: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer, "progress": progress}
            checkpoint.save(folder, step, **parts)


def run_train(
    settings: Settings, out: Path, *, resume: bool = False, console: Console | None = None
) -> tuple[int, list[dict[str, Any]]]:
    """Trains and writes ``out``: config.json, metrics.jsonl, training.png (with matplotlib) and checkpoints/.

    SIGINT and SIGTERM end the run after the step they fall in, with a checkpoint.

    Args:
      settings: of :func:`xbar_jax.study.train_config.load`.
      out: folder; made if absent.
      resume: go on from the last checkpoint in ``out``, bit for bit; begin where there is none.

    Returns:
      The exit status, 0 or 130 after an interrupt, and the content of metrics.jsonl.

    Raises:
      ValueError: ``out`` holds a run and ``resume`` is False, or one with other settings.
    """
    console = console or Console()
    _folder(settings, out, resume)
    run = _begin(settings, out)
    progress, history = _resumed(run, resume)
    if progress.epoch or progress.batch:
        console.print(f"going on after epoch {progress.epoch}, batch {progress.batch} of {run.batches}")
    with _asked_to_stop() as stop:
        progress, history = _train(run, progress, history, stop, console)
    run.save(progress)
    with contextlib.suppress(ImportError):
        from xbar_jax.plot import save as save_picture
        from xbar_jax.plot.training import training_curves

        if history:
            save_picture(training_curves(history, title=f"{run.source.name}, {settings.mode}"), out / "training.png")
    finished = progress.epoch >= settings.epochs or _stale(settings, progress)
    if not finished:
        console.print(f"interrupted after epoch {progress.epoch}, batch {progress.batch}; --resume goes on")
        return INTERRUPTED, history
    last = history[-1]
    console.print(
        f"{run.source.name}; {last['epoch']} epochs; test accuracy {100 * last['test_accuracy']:.1f} %   {out / 'metrics.jsonl'}"
    )
    return 0, history


def _folder(settings: Settings, out: Path, resume: bool) -> None:
    """The folder of a run, whose settings are those given; what may change on the way may differ."""
    file, free = out / "config.json", {"patience", "save_every"}
    if settings.optimizer.schedule == "constant":
        free.add("epochs")
    now = train_config.plain(settings)
    if file.exists():
        if not resume:
            raise ValueError(f"train: --out must be a folder without a run, or --resume be given, got {out}")
        old = json.loads(file.read_text())["settings"]
        other = [k for k in now if k not in free and old.get(k) != now[k]]
        if other:
            raise ValueError(
                f"train: {other[0]} must be that of the run in {out}, {old.get(other[0])}, got {now[other[0]]}"
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ValueError(f"train: --out must be a folder that can be made, got {out}: {e.strerror}") from e
    write(file, json.dumps({"settings": now} | made_with(time.perf_counter()), indent=1) + "\n")


def _begin(settings: Settings, out: Path) -> _Run:
    """Data, model and optimiser before the first step."""
    if settings.data == "mnist":
        source = mnist.load(settings.folder, settings.seed)
    else:
        data = digits.load(settings.seed)
        source = mnist.Source(f"8x8 digits, {len(data.x_train)} + {len(data.x_test)} images", data)
    images = source.data.x_train
    if settings.batch > len(images):
        raise ValueError(f"train: batch must be at most {len(images)}, the images of training, got {settings.batch}")
    sizes = (images.shape[1], *settings.hidden, 10)
    through = train_config.hardware(settings) if settings.through_hardware else None
    rngs = nnx.Rngs(params=settings.seed, noise=settings.seed + 1)
    model = Network(sizes, through, train_config.modifier(settings), rngs)
    if through is not None:
        nn.calibrate(model, [images[:512]] * 2)
    steps = settings.epochs * (len(images) // settings.batch)
    tx = _optimizer(settings, model, steps)
    return _Run(settings, out, source, model, nnx.Optimizer(model, tx, wrt=nnx.Param))


def _optimizer(settings: Settings, model: Network, steps: int) -> optax.GradientTransformation:
    o = settings.optimizer
    rate = optax.cosine_decay_schedule(o.rate, steps) if o.schedule == "cosine" else o.rate
    kernels = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    tx = {
        "adamw": lambda: optax.adamw(rate, weight_decay=o.decay, mask=kernels),
        "adam": lambda: optax.adam(rate),
        "sgd": lambda: optax.sgd(rate),
    }[o.name]()
    return tx if settings.clip is None else optax.chain(tx, recipes.clip_kernels(model, sigmas=settings.clip))


def _resumed(run: _Run, resume: bool) -> tuple[Progress, list[dict[str, Any]]]:
    """The last checkpoint in the model and the optimiser, and the numbers of the epochs before it."""
    folder, file = run.out / "checkpoints", run.out / "metrics.jsonl"
    if not (resume and checkpoint.steps(folder)):
        write(file, "")
        return Progress(), []
    parts: dict[str, Any] = {"model": run.model, "optimizer": run.optimizer, "progress": Progress()}
    # The settings are the same, so what differs is what calibration found.
    progress = checkpoint.restore(folder, hardware="saved", **parts).parts["progress"]
    history = [json.loads(line) for line in file.read_text().splitlines()][: progress.epoch]
    write(file, "".join(json.dumps(h) + "\n" for h in history))
    return progress, history


def _stale(settings: Settings, progress: Progress) -> bool:
    return settings.patience is not None and progress.stale >= settings.patience


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets; a second signal acts as usual."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def note(*_):
        event.set()
        for s, old in before.items():
            signal.signal(s, old)

    for s in before:
        signal.signal(s, note)
    try:
        yield event
    finally:
        for s, old in before.items():
            signal.signal(s, old)


def _train(run: _Run, progress: Progress, history: list, stop: threading.Event, console: Console):
    """Epoch after epoch, until the last, patience, or a signal."""
    settings, data = run.settings, run.source.data
    graphdef, state = nnx.split((run.model, run.optimizer))
    sync = lambda: nnx.update((run.model, run.optimizer), nnx.filter_state(state, nnx.Variable))
    smoothing = jnp.float32(settings.smoothing)
    with bar(console) as shown:
        total = settings.epochs * run.batches
        task = shown.add_task("training", total=total, completed=progress.epoch * run.batches + progress.batch)
        while progress.epoch < settings.epochs and not _stale(settings, progress) and not stop.is_set():
            order = _order(settings, progress.epoch, len(data.x_train), run.batches)
            started, spent = time.perf_counter(), progress.seconds
            while progress.batch < run.batches and not stop.is_set():
                state, loss, right = _step(
                    graphdef, state, data.x_train, data.y_train, order[progress.batch], smoothing
                )
                progress = progress._replace(
                    batch=progress.batch + 1,
                    loss=progress.loss + float(loss),
                    right=progress.right + int(right),
                    seconds=spent + time.perf_counter() - started,
                )
                shown.update(task, advance=1)
            sync()
            if progress.batch < run.batches:
                break
            progress = _finish_epoch(run, progress, history)
            shown.update(task, description=f"test {100 * history[-1]['test_accuracy']:.1f} %")
            if progress.epoch % settings.save_every == 0:
                run.save(progress)
    return progress, history


def _order(settings: Settings, epoch: int, images: int, batches: int) -> Array:
    """Indices of the images of every batch, [batches, batch]."""
    key = jax.random.fold_in(jax.random.key(settings.seed), epoch)
    return jax.random.permutation(key, images)[: batches * settings.batch].reshape(batches, settings.batch)


def _loss(model, x, y, smoothing):
    logits = model(x)
    labels = optax.smooth_labels(jax.nn.one_hot(y, 10, dtype=logits.dtype), smoothing)
    return optax.softmax_cross_entropy(logits, labels).mean(), (logits.argmax(-1) == y).sum()


@functools.partial(jax.jit, static_argnums=(0,))
def _step(graphdef, state, images, labels, index, smoothing):
    """One batch; the new state, its loss and how many it named right."""
    model, optimizer = nnx.merge(graphdef, state, copy=True)
    batch = images[index], labels[index], smoothing
    (loss, right), grads = nnx.value_and_grad(_loss, has_aux=True)(model, *batch)
    optimizer.update(model, grads)
    return nnx.split((model, optimizer))[1], loss, right


def _finish_epoch(run: _Run, progress: Progress, history: list) -> Progress:
    """Tests, writes the numbers of the epoch, and begins the next."""
    loss = progress.loss / run.batches
    one = {
        "step": (progress.epoch + 1) * run.batches,
        "epoch": progress.epoch + 1,
        "loss": loss,
        "train_accuracy": progress.right / (run.batches * run.settings.batch),
        "test_accuracy": accuracy(run.settings, run.model, run.source.data),
        "seconds": round(progress.seconds, 6),
    }
    history.append(one)
    with (run.out / "metrics.jsonl").open("a") as f:
        f.write(json.dumps(one) + "\n")
    better = loss < progress.best
    return Progress(
        epoch=progress.epoch + 1,
        best=min(loss, progress.best),
        stale=0 if better else progress.stale + 1,
    )


def accuracy(settings: Settings, model: Network, data: digits.Data) -> float:
    """Share of test images named right: by one chip of the hardware, else by the digital network.

    Every epoch programs the same chip, by its key, and the model stays untouched.
    """
    hardware = train_config.hardware(settings)
    tested = nnx.merge(*nnx.split(model), copy=True)
    for _, layer in analog_layers(tested):
        layer.modifier = nnx.data(None)
    if hardware is not None and not settings.through_hardware:
        nn.set_hardware(tested, hardware)
        nn.calibrate(tested, [data.x_train[:512]] * 2)
    return float(_accuracy(*nnx.split(tested), jax.random.key(settings.seed + 3), data.x_test, data.y_test))


@functools.partial(jax.jit, static_argnums=(0,))
def _accuracy(graphdef, state, key, x, y):
    model = nnx.merge(graphdef, state, copy=True)
    nn.program(model, key=key)
    if nn.tiles(model):
        nn.drift(model, 0.0, key=jax.random.fold_in(key, 1))
    return (model(x).argmax(-1) == y).mean()
