"""Loss and accuracy against the epochs of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def training_curves(history: Sequence[Mapping[str, float]], *, title: str = "") -> Figure:
    """Loss at the left, accuracies of training and test at the right.

    Args:
      history: a mapping for each epoch with ``epoch``, ``loss``, ``train_accuracy`` and ``test_accuracy`` (0..1).
      title: heading of the picture.
    """
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    figure.suptitle(title, fontsize=10)
    left, right = figure.subplots(1, 2)
    epochs = [h["epoch"] for h in history]
    marker = {"marker": "o", "ms": 3} if len(epochs) < 40 else {}
    left.plot(epochs, [h["loss"] for h in history], color="C3", **marker)
    left.set_ylabel("loss")
    for name, label, style in (("train_accuracy", "training", "--"), ("test_accuracy", "test", "-")):
        right.plot(epochs, [100 * h[name] for h in history], ls=style, label=label, **marker)
    right.set_ylabel("accuracy, %")
    right.legend(loc="lower right", frameon=False, fontsize=8)
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25)
    return figure
