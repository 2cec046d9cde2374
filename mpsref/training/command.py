"""``mpsref train``: what it prints, saves and answers to an interruption."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mpsref.registry import get_backend
from mpsref.training.trainer import Epoch, Trainer

__all__ = ["INTERRUPTED", "run"]

INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def run(
    trainer: Trainer, epochs: int, checkpoint: Path | None, curve: Path | None, json: bool, console: Console
) -> int:
    """Train until ``epochs`` are done in all; return the exit status.

    The checkpoint is written after each epoch. An interruption ends the run at once; the last checkpoint stays.
    """
    if curve is not None:
        from mpsref.training import curve as drawing  # a missing matplotlib is known before an hour of training

        del drawing
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
            kept = f"{checkpoint} has the last epoch; go on with --resume" if checkpoint else "nothing was saved"
            console.print(f"interrupted in epoch {len(trainer.history) + 1}; {kept}", highlight=False, markup=False)
            return INTERRUPTED
    if curve is not None:
        from mpsref.training.curve import draw

        draw(trainer, curve)
    if json:
        console.file.write(jsonlib.dumps(report(trainer), indent=2) + "\n")
    elif curve is not None:
        console.print(f"wrote {curve}", highlight=False, markup=False)
    return 0


def report(trainer: Trainer) -> dict[str, Any]:
    """Return the run as plain data; its names are stable."""
    backend = trainer.network.training.backend
    return {
        "backend": backend.name,
        "device": get_backend(backend).device(),
        "settings": asdict(trainer.settings),
        "epochs": [asdict(epoch) for epoch in trainer.history],
    }


def _line(epoch: Epoch) -> str:
    return f"epoch {epoch.number:3}  loss {epoch.loss:.4f}  accuracy {epoch.accuracy:7.2%}  {epoch.seconds:.2f} s"
