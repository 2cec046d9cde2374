"""Backends: a name, a table of implementations, and what they run on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from mpsref.arguments import arrays
from mpsref.arguments.parameters import choice
from mpsref.operations import Operation, OperationKey, Spec

__all__ = ["Backend", "BackendInfo", "Implementation"]

Implementation: TypeAlias = Callable[..., None]
"""``implementation(problem, *inputs, out)``: inputs C-contiguous in native byte order, ``out`` an array or a tuple."""


def _always() -> None:
    return None


@dataclass(frozen=True, eq=False)
class Backend:
    """A name and a table of implementations.

    ``unavailable()`` returns ``None``, or the sentence that says why the backend cannot run here and what to do.
    ``device()`` names what it runs on; it is called only where the backend is available. ``dtypes`` are those of the
    images that it takes. Raises ``TypeError`` or ``ValueError`` for anything else; a table that is no ``dict`` may be
    one that imports what it is asked for, and is not looked into.
    """

    name: str
    implementations: Mapping[OperationKey, Implementation]
    unavailable: Callable[[], str | None] = _always
    device: Callable[[], str] = field(default=lambda: "CPU")
    dtypes: tuple[str, ...] = ("float16", "float32")
    fast_math: bool = False
    """Whether NaN, infinities and the sign of zero mean nothing, as in Metal's fast math."""

    def __post_init__(self) -> None:
        """Check what a backend is made of."""
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name is {self.name!r}; it must be a text that is not empty")
        if not isinstance(self.dtypes, tuple) or not self.dtypes:
            raise TypeError(f"dtypes is {self.dtypes!r}; it must be a tuple with one name or more")
        for name in self.dtypes:
            choice("dtypes", name, arrays.DTYPES)
        if not isinstance(self.implementations, Mapping):
            raise TypeError(f"implementations is of type {type(self.implementations).__name__}; it must be a mapping")
        if isinstance(self.implementations, dict):
            for key, function in self.implementations.items():
                _check_implementation(key, function)

    @functools.cached_property
    def _taken(self) -> frozenset[type]:
        return arrays.taken(self.dtypes)

    def why_not(self, operation: OperationKey, spec: Spec) -> str | None:
        """Return ``None`` if this backend runs ``operation`` for ``spec``, else the reason in one sentence."""
        return self.lacks(operation)

    def lacks(self, operation: OperationKey) -> str | None:
        """Return why this backend runs ``operation`` for no spec at all, ``None`` if it runs it for some."""
        reason = self.unavailable()
        if reason is None and operation not in self.implementations:
            return f"backend {self.name!r} does not implement {Operation(*operation)}"
        return reason


def _check_implementation(key: Any, function: Any) -> None:
    is_pair = isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type) and issubclass(key[0], Spec)
    if not is_pair or key[1] not in key[0].problems:
        raise TypeError(
            f"implementations has the key {key!r}; a key is a kernel and the name of one of its methods, such as "
            '(mpsref.PoolingAverage, "gradient")'
        )
    if not callable(function):
        raise TypeError(
            f"implementations[{Operation(*key)}] is of type {type(function).__name__}; it must be a function"
        )


class BackendInfo(NamedTuple):
    """One row of :func:`backends`."""

    name: str
    available: bool
    device: str
    """What it runs on; empty where it is not available."""
    reason: str
    """Why it is not available and what to do; empty where it is."""
