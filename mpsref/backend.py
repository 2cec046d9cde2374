"""Backends: a name, a table of implementations, and a device."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from anymetal.fork_safe import cached_property, importing
from mpsref.arguments import arrays
from mpsref.arguments.device import DeviceArrays
from mpsref.arguments.layouts import LAYOUTS
from mpsref.arguments.parameters import choice, flag
from mpsref.arguments.text import shown
from mpsref.operations import Operation, OperationKey, Problem, Spec, operations

Implementation: TypeAlias = Callable[..., None]
"""``implementation(problem, *inputs, out)``: inputs C-contiguous in native byte order, ``out`` an array or a tuple.

Inputs of a backend with :attr:`Backend.layouts` have any strides.
"""


class Timed(NamedTuple):
    """A call of a framework whose tensors are prepared, and the results of the problem that it computes."""

    call: Callable[[], object]
    results: tuple[arrays.Array, ...]


class Timing(Protocol):
    """What the benchmark compares a backend with: the calls that users of a framework make."""

    def session(self, threads: int) -> AbstractContextManager[str]:
        """Return a context in which calls run in this many threads; it yields the version of the framework."""

    def timed(self, problem: Problem, inputs: Sequence[arrays.Array], *, fresh: bool = True) -> Timed | None:
        """Return the call that computes a problem, or ``None``; into given memory unless ``fresh``."""

    def together(self, spec: Spec, named: Mapping[str, arrays.Array]) -> Timed | None:
        """Return the call that computes several operations in one, from all of their inputs by name, or ``None``."""


@dataclass(frozen=True, eq=False)
class Backend:
    """A name and a table of implementations.

    Parameters
    ----------
    name : str
        The name of the backend.
    implementations : mapping of OperationKey to Implementation
        The table. Entries are checked only in a ``dict``: another mapping may import implementations on access.
    unavailable : callable, optional
        Returns ``None``, or a sentence with the reason why the backend cannot run on this machine, and a remedy.
    device : callable, optional
        Returns the name of the device; called only if the backend is available.
    dtypes : tuple of str, optional
        Supported dtypes of images. Parameters of float16 images are float32.
    arrays : DeviceArrays, optional
        Access to arrays on the device of the backend; ``None`` for a backend that reads only NumPy arrays.
    fast_math : bool, optional
        Whether NaN, infinities and the sign of zero are unspecified, as in Metal's fast math.
    refuses : callable, optional
        ``refuses(problem)`` returns ``None``, or a sentence with the reason why the backend does not run this problem.
        An implementation may also raise ``UnsupportedError``.
    layouts : tuple of str, optional
        Layouts of inputs in memory, of :data:`mpsref.arguments.layouts.LAYOUTS`, in which the backend is tested: the
        first one is the simplest. With layouts, implementations get the arrays of a call with their strides; without,
        they get C-contiguous ones.
    rules : tuple of str, optional
        Names of :data:`mpsref.conformance.rules.RULES`: documented differences from MPS, which a check allows.
    named_only : bool, optional
        Whether a check of all backends leaves this one out, as those of frameworks.
    distinct_problems : int, optional
        For a backend that compiles each problem: how many layers, and how many different random problems, a check of
        an operation has. Its other cases are these problems with other data, without the properties.
    timing : Timing, optional
        The calls of a framework for the benchmark.
    isolated : bool, optional
        Whether a check runs the cases in a process of their own, because they may crash, or never end. If the backend
        is not installed, the process is forked from the one that checks, in which it should not have computed before;
        with ``named_only`` this is done only if the check is told to.
    is_worn : callable, optional
        Returns whether this process should run no more calls, because each takes longer than the one before: a check in
        several processes goes on in a new one.

    Raises
    ------
    TypeError, ValueError
        If a parameter has a wrong type or value.
    """

    name: str
    implementations: Mapping[OperationKey, Implementation]
    unavailable: Callable[[], str | None] = field(default=lambda: None)
    device: Callable[[], str] = field(default=lambda: "CPU")
    dtypes: tuple[str, ...] = ("float16", "float32")
    arrays: DeviceArrays | None = None
    fast_math: bool = False
    refuses: Callable[[Problem], str | None] = field(default=lambda problem: None)
    layouts: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    named_only: bool = False
    distinct_problems: int | None = None
    timing: Timing | None = None
    isolated: bool = False
    is_worn: Callable[[], bool] = field(default=lambda: False)

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"name is {shown(self.name)}; it must be a non-empty str")
        if not isinstance(self.dtypes, tuple) or not self.dtypes:
            raise TypeError(f"dtypes is {shown(self.dtypes)}; it must be a non-empty tuple of names")
        for name in self.dtypes:
            choice("dtypes", name, arrays.DTYPES)
        for field_name in ("layouts", "rules"):
            if not isinstance(getattr(self, field_name), tuple):
                raise TypeError(f"{field_name} is {shown(getattr(self, field_name))}; it must be a tuple of names")
        for field_name in ("unavailable", "device", "refuses", "is_worn"):
            if not callable(function := getattr(self, field_name)):
                raise TypeError(f"{field_name} is {shown(function)}; it must be a function")
        for name in self.layouts:
            choice("layouts", name, LAYOUTS)
        flag("isolated", self.isolated)
        if not isinstance(self.implementations, Mapping):
            raise TypeError(f"implementations is of type {type(self.implementations).__name__}; it must be a mapping")
        if isinstance(self.implementations, dict):
            for key, function in self.implementations.items():
                _check_implementation(key, function)

    @cached_property
    def _taken(self) -> frozenset[type]:
        return arrays.taken(self.dtypes)

    def why_not(self, operation: OperationKey, spec: Spec) -> str | None:
        """Return ``None`` if this backend runs ``operation`` for ``spec``, else the reason as a sentence."""
        return self.lacks(operation)

    def why_not_problem(self, problem: Problem) -> str | None:
        """Return ``None`` if this backend runs ``problem``, else the reason as a sentence."""
        return self.why_not(problem.operation, problem.spec) or self.refuses(problem)

    def untaken(self, problem: Problem, inputs: Iterable[Any]) -> str | None:
        """Return the name of the first input whose dtype this backend does not take, or ``None``."""
        for (name, argument), array in zip(problem.arguments.items(), inputs, strict=True):
            taken = argument.dtype == "real" and array.dtype == np.float32 and "float16" in self.dtypes
            if array.dtype.kind == "f" and array.dtype.type not in self._taken and not taken:
                return name
        return None

    def lacks(self, operation: OperationKey) -> str | None:
        """Return the reason why this backend runs ``operation`` for no spec at all, else ``None``."""
        reason = self.unavailable()
        if reason is None and operation not in self.implementations:
            return f"backend {shown(self.name)} does not implement {Operation(*operation)}"
        return reason


def _check_implementation(key: Any, function: object) -> None:
    is_pair = isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type) and issubclass(key[0], Spec)
    if not is_pair or key[1] not in key[0].problems:
        raise TypeError(
            f"implementations has the key {shown(key)}; a key is a kernel and the name of one of its methods, such as "
            '(mpsref.PoolingAverage, "gradient")'
        )
    if not callable(function):
        raise TypeError(
            f"implementations[{Operation(*key)}] is of type {type(function).__name__}; it must be a function"
        )


BackendLike: TypeAlias = str | Backend | None
"""A backend or its name; ``None`` is the default backend."""


class BackendInfo(NamedTuple):
    """One row of :func:`backends`."""

    name: str
    available: bool
    device: str
    """Name of the device; empty if the backend is unavailable."""
    reason: str
    """Reason for unavailability and a remedy; empty if the backend is available."""


@contextmanager
def _without_collections() -> Iterator[None]:
    """Suspend the garbage collector, which takes a sixth of the time of the import of a large package."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            if gc.get_freeze_count() == 0:  # all objects become old ones, which the next collection does not visit
                gc.freeze()
                gc.unfreeze()
            gc.enable()


class LazyImplementations(Mapping[OperationKey, Implementation]):
    """The implementations of a package with one module per kernel family, imported at the first use of the family.

    The kernels of ``mpsref.kernels.softmax`` are implemented in a module ``softmax.py`` at any depth below the package;
    the module has a table ``IMPLEMENTATIONS``. ``adapted`` converts an entry of this table into an implementation.
    """

    def __init__(self, package: str, adapted: Callable[[Any], Implementation] = lambda function: function) -> None:
        """Store the name of the package, which is searched at the first lookup."""
        self._package, self._adapted = package, adapted
        self._found: dict[OperationKey, Implementation] = {}

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Names of the modules below the package, by their last component."""
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
            with importing, _without_collections():
                module = import_module(str(self._module(key[0])))
                self._found[key] = self._adapted(module.IMPLEMENTATIONS[key])  # may import, too
        return self._found[key]

    def __iter__(self) -> Iterator[OperationKey]:
        return (operation for operation in operations() if operation in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
