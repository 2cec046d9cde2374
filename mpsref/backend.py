"""Backends: a name, a table of implementations, and what they run on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from mpsref.arguments import arrays
from mpsref.arguments.device import DeviceArrays
from mpsref.arguments.parameters import choice
from mpsref.operations import Operation, OperationKey, Spec, operations

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
    arrays: DeviceArrays | None = None
    """What takes arrays on the backend's device; ``None`` for a backend that reads NumPy arrays alone."""
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


class LazyImplementations(Mapping[OperationKey, Implementation]):
    """The implementations of a package with a module for each family of kernels, imported at the family's first use.

    The kernels of ``mpsref.kernels.softmax`` are implemented by a file ``softmax.py`` anywhere below the package, with
    a table ``IMPLEMENTATIONS``. ``adapted`` turns an entry of such a table into an implementation.
    """

    def __init__(self, package: str, adapted: Callable[[Any], Implementation] = lambda function: function) -> None:
        """Keep the package's name; it is searched when an implementation is first looked up."""
        self._package, self._adapted = package, adapted
        self._found: dict[OperationKey, Implementation] = {}

    @functools.cached_property
    def _modules(self) -> dict[str, str]:
        """The modules below the package, by the last part of their names."""
        root = Path(import_module(self._package).__path__[0])
        paths = (path.relative_to(root).with_suffix("") for path in root.rglob("*.py"))
        return {path.name: ".".join((self._package, *path.parts)) for path in paths}

    def _module(self, spec_type: type[Any]) -> str | None:
        package, _, family = spec_type.__module__.rpartition(".")
        return self._modules.get(family) if package == "mpsref.kernels" else None

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, tuple):
            return False
        spec_type, method = key
        return method in spec_type.declared and self._module(spec_type) is not None

    def __getitem__(self, key: OperationKey) -> Implementation:
        if key not in self._found:
            if key not in self:
                raise KeyError(key)
            module = import_module(str(self._module(key[0])))
            self._found[key] = self._adapted(module.IMPLEMENTATIONS[key])
        return self._found[key]

    def __iter__(self) -> Iterator[OperationKey]:
        return (operation for operation in operations() if operation in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
