"""The error classes of mpsref. Each is a ``ValueError`` or a ``TypeError``: one ``except`` clause of each is enough."""

from __future__ import annotations

__all__ = [
    "CycleError",
    "DuplicateHandleError",
    "GraphError",
    "MissingSourceError",
    "MultipleGradientsError",
    "NoGradientError",
    "NotSynchronizedError",
    "OrderError",
    "ShapeError",
    "SharedDataSourceWarning",
    "TrainingGraphWarning",
    "UnknownSourceError",
    "UnsupportedError",
    "needs",
]


class ShapeError(ValueError):
    """A rank or a shape does not fit."""


class UnsupportedError(NotImplementedError, ValueError):
    """Something that Apple documents as unavailable, that mpsref does not build, or that a backend lacks."""


class OrderError(RuntimeError, ValueError):
    """A call came out of order, or a data source reported that it could not load or update."""


class NotSynchronizedError(OrderError):
    """The host reads a state that no command buffer has completed yet."""


class GraphError(ValueError):
    """A graph cannot be built or run as it is."""


class NoGradientError(GraphError):
    """A kernel without a gradient is asked for one."""


class MultipleGradientsError(GraphError):
    """One gradient is asked for of a node that has several."""


class CycleError(GraphError):
    """A node depends on itself."""


class MissingSourceError(GraphError):
    """A run lacks an input of the graph."""


class UnknownSourceError(GraphError):
    """A run was given what is no input of the graph."""


class DuplicateHandleError(GraphError):
    """Two inputs of a graph have the handle by which a run names one."""


class TrainingGraphWarning(UserWarning):
    """A training graph is built in a way that is seldom meant."""


class SharedDataSourceWarning(UserWarning):
    """Several nodes of a graph share a data source, which is then updated once for each."""


def needs(what: str, package: str, extra: str, error: ImportError) -> UnsupportedError:
    """Return the error for an optional package that is missing: ``what`` needs ``package``, which ``extra`` brings."""
    return UnsupportedError(f'{what} need {package} ({error}): pip install "mpsref[{extra}]"')
