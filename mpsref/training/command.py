"""``mpsref train``: progress, checkpoints, interruption, the plot of a run."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mpsref.registry import get_backend
from mpsref.training.trainer import Epoch, Trainer
from mpsref.viz.figures import figure_type

INTERRUPTED = 130
"""The exit status after Ctrl-C."""
LOSS, ACCURACY = "#1F5A99", "#B3541E"


def run(
    trainer: Trainer, epochs: int, checkpoint: Path | None, curve: Path | None, json: bool, console: Console
) -> int:
    """Train until the run has ``epochs`` epochs in total.

    Parameters
    ----------
    trainer : Trainer
    epochs : int
    checkpoint : Path or None
        Write a checkpoint to this file after each epoch.
    curve : Path or None
        Write a figure of loss and accuracy to this file.
    json : bool
        Print the result as JSON.
    console : Console
        Output.

    Returns
    -------
    int
        The exit status: 0, or :data:`INTERRUPTED` after Ctrl-C, which keeps the last checkpoint.
    """
    if curve is not None:
        figure_type()  # fail before the training, not after it, if matplotlib is missing
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=json or not console.is_terminal,
    ) as progress:
        try:
            while len(trainer.history) < epochs:
                task = progress.add_task(f"epoch {len(trainer.history) + 1} of {epochs}", total=trainer.steps)
                done = trainer.epoch(lambda task=task: progress.advance(task))  # type: ignore[misc]
                progress.remove_task(task)
                if not json:
                    console.print(_line(done), highlight=False)
                if checkpoint is not None:
                    trainer.save(checkpoint)
        except KeyboardInterrupt:
            kept = f"{checkpoint} has the last epoch; continue with --resume" if checkpoint else "nothing was saved"
            console.print(f"interrupted in epoch {len(trainer.history) + 1}; {kept}", highlight=False, markup=False)
            return INTERRUPTED
    if curve is not None:
        draw(trainer, curve)
    if json:
        console.file.write(jsonlib.dumps(report(trainer), indent=2) + "\n")
    elif curve is not None:
        console.print(f"wrote {curve}", highlight=False, markup=False)
    return 0


def report(trainer: Trainer) -> dict[str, object]:
    """Return the run as JSON data with stable names."""
    backend = trainer.network.training.backend
    return {
        "backend": backend.name,
        "device": get_backend(backend).device(),
        "settings": asdict(trainer.settings),
        "epochs": [asdict(epoch) for epoch in trainer.history],
    }


def draw(trainer: Trainer, path: Path) -> None:
    """Plot the loss of each step and the accuracy after each epoch.

    Parameters
    ----------
    trainer : Trainer
    path : Path
        The file to write; the suffix selects the format.

    Raises
    ------
    UnsupportedError
        If matplotlib is not installed.
    """
    figure = figure_type()(figsize=(7, 4), layout="constrained")
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


def _line(epoch: Epoch) -> str:
    return f"epoch {epoch.number:3}  loss {epoch.loss:.4f}  accuracy {epoch.accuracy:7.2%}  {epoch.seconds:.2f} s"
