"""The exception classes of mpsref. All errors are subclasses of ``ValueError`` or ``TypeError``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
]


def loaded(point: EntryPoint) -> Any:
    """Return what a package has under an entry point; raise ImportError if its import would end the process."""
    try:
        return point.load()
    except SystemExit as error:
        raise ImportError(
            f"{point.group}: {point.name!r} ({point.value}) cannot be loaded: SystemExit: {error}"
        ) from None


class ShapeError(ValueError):
    """The rank or the shape of an array is wrong."""


class UnsupportedError(NotImplementedError, ValueError):
    """A feature is unavailable according to Apple, not implemented in mpsref, or not implemented by a backend."""


class OrderError(RuntimeError, ValueError):
    """A call is out of order, or a data source failed to load or to update."""


class NotSynchronizedError(OrderError):
    """The host reads a state before its command buffer has completed."""


class GraphError(ValueError):
    """A graph cannot be built or run."""


class NoGradientError(GraphError):
    """The gradient of a kernel without a gradient is requested."""


class MultipleGradientsError(GraphError):
    """A single gradient of a node with several gradients is requested."""


class CycleError(GraphError):
    """A node depends on itself."""


class MissingSourceError(GraphError):
    """An input of the graph is missing in a run."""


class UnknownSourceError(GraphError):
    """An argument of a run is not an input of the graph."""


class DuplicateHandleError(GraphError):
    """Two inputs of a graph have the same handle."""


class TrainingGraphWarning(UserWarning):
    """The structure of a training graph is probably unintended."""


class SharedDataSourceWarning(UserWarning):
    """Several nodes of a graph share a data source, which is updated once for each of them."""


def needs(what: str, package: str, extra: str, error: ImportError) -> UnsupportedError:
    """Return the error for a missing optional package that ``what`` needs and the extra ``extra`` installs."""
    return UnsupportedError(f"{what} need {package} ({error}): {install(extra)}")


def install(extra: str) -> str:
    """Return the command that installs an extra in the folder of mpsref, which is on no package index.

    >>> install("torch")
    'pip install -e ".[torch]"'
    """
    return f'pip install -e ".[{extra}]"'
