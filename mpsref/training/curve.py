"""The picture of a run: loss of every step, accuracy after every epoch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mpsref.errors import needs

if TYPE_CHECKING:
    from mpsref.training.trainer import Trainer

__all__ = ["draw"]

LOSS, ACCURACY = "#1F5A99", "#B3541E"


def draw(trainer: Trainer, path: Path) -> None:
    """Draw the run so far; the format is that of the file's name. Needs matplotlib (``pip install mpsref[plot]``)."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise needs("pictures", "matplotlib", "plot", error) from error
    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    steps = range(1, len(trainer.losses) + 1)
    left.plot([step / trainer.steps for step in steps], trainer.losses, color=LOSS, linewidth=1)
    left.set(xlabel="epoch", ylabel="loss", yscale="log")
    left.yaxis.label.set_color(LOSS)
    right = left.twinx()
    numbers = [epoch.number for epoch in trainer.history]
    right.plot(numbers, [100 * epoch.accuracy for epoch in trainer.history], color=ACCURACY, marker="o", markersize=4)
    right.set(ylabel="accuracy on held-out digits, %", ylim=(80, 100))
    right.yaxis.label.set_color(ACCURACY)
    settings = trainer.settings
    left.set_title(f"Digits, {settings.optimizer}, batches of {settings.batch}, seed {settings.seed}")
    figure.savefig(path, dpi=150)
