"""The error classes of mpsref. Each is a ``ValueError`` or a ``TypeError``: one ``except`` clause of each is enough."""

from __future__ import annotations

__all__ = ["GraphError", "NoGradientError", "NotSynchronizedError", "OrderError", "ShapeError", "UnsupportedError"]


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
