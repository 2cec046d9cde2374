"""The training loop: epochs over shuffled batches, and checkpoints from which a run resumes bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import as_float, choice, integer, number
from mpsref.mps import MPSNNOptimizer, MPSNNOptimizerAdam, MPSNNOptimizerStochasticGradientDescent
from mpsref.registry import Backend
from mpsref.training import checkpoint, digits
from mpsref.training.network import Network

OPTIMIZERS = {"adam": 2e-3, "sgd": 5e-2}
"""Default learning rates by the name of the optimizer. The momentum of SGD is 0.9."""


@dataclass(frozen=True)
class Settings:
    """The parameters of a run, except the backend.

    Parameters
    ----------
    optimizer : {"adam", "sgd"}
    learning_rate : float
        0 selects the default of the optimizer: 0.002 for Adam, 0.05 for SGD.
    batch : int
        Images in a batch.
    seed : int
        Seed of weights, order of the batches, and dropout masks.

    Raises
    ------
    ValueError, TypeError
        If a value is out of range or has the wrong type.
    """

    optimizer: str = "adam"
    learning_rate: float = 0.0
    batch: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        choice("optimizer", self.optimizer, OPTIMIZERS)
        rate = number("learning_rate", self.learning_rate, low=0) or OPTIMIZERS[self.optimizer]
        object.__setattr__(self, "learning_rate", rate)
        integer("batch", self.batch, low=1)
        integer("seed", self.seed, low=0)

    def optimizer_on(self, backend: str | Backend | None) -> MPSNNOptimizer:
        """Return a new optimizer that runs on ``backend``."""
        if self.optimizer == "adam":
            return MPSNNOptimizerAdam(self.learning_rate, backend=backend)
        return MPSNNOptimizerStochasticGradientDescent(self.learning_rate, momentum_scale=0.9, backend=backend)


@dataclass(frozen=True)
class Epoch:
    """The results of one epoch."""

    number: int
    loss: float
    """Mean over the training images, each with dropout and the weights of its step."""
    accuracy: float
    """Fraction of the held-out digits that are classified correctly."""
    seconds: float


def _epoch(number: object, loss: object, accuracy: object, seconds: object) -> Epoch:
    """Return the results of an epoch from those in a file."""
    values = {"loss": loss, "accuracy": accuracy, "seconds": seconds}
    return Epoch(
        integer("number", number, low=1), **{name: as_float(name, one, "a number") for name, one in values.items()}
    )


class Trainer:
    """A training run.

    Parameters
    ----------
    settings : Settings
    backend : str, Backend or None
        Runs the kernels and the optimizer.

    Attributes
    ----------
    network : Network
    history : list of Epoch
        The results of the epochs so far.
    losses : list of float
        The mean loss of each step so far.
    """

    def __init__(self, settings: Settings, backend: str | Backend | None = None) -> None:
        self.settings = settings
        self.learn, self.held_out = digits.load()
        self.network = Network(settings.optimizer_on(backend), settings.batch, settings.seed, backend)
        self.history: list[Epoch] = []
        self.losses: list[float] = []

    @property
    def steps(self) -> int:
        """Number of steps in an epoch; the last batch may be smaller."""
        return -(-len(self.learn.digits) // self.settings.batch)

    def _batches(self) -> Iterator[NDArray[np.int64]]:
        """Yield the indices of the images of each batch; the order depends on seed and epoch alone."""
        generator = np.random.default_rng([self.settings.seed, len(self.history)])
        order = generator.permutation(len(self.learn.digits))
        return (order[k : k + self.settings.batch] for k in range(0, len(order), self.settings.batch))

    def epoch(self, step: Callable[[], None] = lambda: None) -> Epoch:
        """Train on each image once and measure the accuracy.

        Parameters
        ----------
        step : callable, optional
            Called after each batch, for progress.

        Returns
        -------
        Epoch
            The results, which are also appended to ``history``.
        """
        start, total = time.perf_counter(), 0.0
        labels = self.learn.one_hot()
        before = len(self.history) * self.steps
        losses = []
        for step_number, batch in enumerate(self._batches(), before):
            loss = self.network.train(self.learn.images[batch], labels[batch], step_number)
            losses.append(loss / len(batch))
            total += loss
            step()
        seconds = time.perf_counter() - start
        done = Epoch(len(self.history) + 1, total / len(labels), self.accuracy(), seconds)
        self.history.append(done)
        self.losses += losses
        return done

    def accuracy(self) -> float:
        """Return the fraction of the held-out digits that are classified correctly."""
        scores = self.network.scores(self.held_out.images)
        return float(np.mean(scores.argmax(axis=1) == self.held_out.digits))

    def save(self, path: Path) -> None:
        """Write a checkpoint; an interruption does not damage a previous file.

        Parameters
        ----------
        path : Path
            The file to write or replace.
        """
        header = {
            "settings": asdict(self.settings),
            "history": [asdict(epoch) for epoch in self.history],
            "losses": self.losses,
            "time_step": getattr(self.network.optimizer.optimizer, "time_step", 0),
        }
        checkpoint.write(path, header, self._arrays())

    def _arrays(self) -> dict[str, Array]:
        """Return the arrays that training changes, by name."""
        found = {f"{name}.{key}": a for name, source in self.network.sources.items() for key, a in source.arrays()}
        return found | {f"optimizer.{name}": a for name, a in self.network.optimizer.moments.items()}

    @classmethod
    def resume(cls, path: Path, backend: str | Backend | None = None) -> Trainer:
        """Continue the run of a checkpoint, with the same results as a run without interruption.

        Parameters
        ----------
        path : Path
            A file written by :meth:`save`.
        backend : str, Backend or None
            Runs the kernels and the optimizer.

        Returns
        -------
        Trainer

        Raises
        ------
        ValueError
            If the file is missing or damaged.
        """
        header, arrays = checkpoint.read(path)
        with checkpoint.reading(path):
            trainer = cls(Settings(**header["settings"]), backend)
            trainer.history = [_epoch(**epoch) for epoch in header["history"]]
            trainer.losses = [as_float("losses", loss, "a number") for loss in header["losses"]]
            for name, array in trainer._arrays().items():
                saved = arrays[name]
                if saved.shape != array.shape or saved.dtype != array.dtype:
                    raise ValueError(f"{name} has shape {saved.shape}, {saved.dtype}")
            for name, source in trainer.network.sources.items():
                for key, _ in source.arrays():
                    setattr(source, f"{key}_array", arrays[f"{name}.{key}"])
            joint = trainer.network.optimizer
            joint.join()
            joint.moments = {name: arrays[f"optimizer.{name}"] for name in joint.moments}
            if hasattr(joint.optimizer, "time_step"):
                joint.optimizer.time_step = integer("time_step", header["time_step"], low=0)
        trainer.network.training.reload_from_data_sources()
        return trainer
