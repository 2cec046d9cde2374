"""The base class of all kernels: properties, copies, archives, and the calls that a kernel keeps.

A kernel family derives from one of ``MPSCNNKernel``, ``MPSCNNBinaryKernel``, ``MPSCNNMultiaryKernel`` and
``MPSCNNGradientKernel``, declares its properties, and says in ``_problem`` what is computed.

Source: ``MPSKernel.h`` [doc].
"""

from __future__ import annotations

import abc
import copy
import inspect
import itertools
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import MISSING
from typing import Any, Self, TypeVar

from mpsref.arguments.arrays import Shape
from mpsref.mps.core.call import Call, Computation
from mpsref.mps.core.properties import (
    ConstructorSignature,
    Property,
    PropertyHolder,
    backend_like,
    check_keywords,
    constructed,
    describe_encode,
    describe_parameters,
    initialize,
    is_read_only,
    label_like,
    make_constructor,
    optional,
    properties_of,
)
from mpsref.mps.core.serialization import SecureCoding, import_families, secure_coding
from mpsref.mps.core.state import ForwardRecord
from mpsref.registry import Backend

_K = TypeVar("_K", bound="type[MPSKernel]")

UNSAVED = "backend", "label"
"""Properties that are no part of what a kernel computes."""


def saved(*arguments: str, version: int = 1) -> Callable[[_K], _K]:
    """Return a class decorator that registers a kernel class for saving, with other arguments than most.

    ``arguments`` are those of the constructor, each also an attribute: by default the read-only ones. All properties
    that can be set are saved, except the backend, which depends on the machine, and the label. Classes of MPS are
    registered when they are made.
    """

    def register(kind: _K) -> _K:
        writable = [name for name, prop in properties_of(kind).items() if not prop.read_only and name not in UNSAVED]
        new = tuple(name for name in writable if name not in kind._coding.properties)
        fixed = tuple(one.name for one in inspect.signature(kind).parameters.values() if is_read_only(kind, one.name))
        return secure_coding(version, arguments=arguments or fixed, properties=new)(kind)

    return register


@constructed(init=False, kw_only=True)
class MPSKernel(PropertyHolder, SecureCoding, metaclass=abc.ABCMeta):
    """Base class of all kernels.

    Properties are checked when they are set; other names raise ``PropertyError``.

    Parameters
    ----------
    backend : str or Backend, optional
        The backend to run on; ``None`` for the current one when the kernel runs.
    **properties
        Initial values of properties, by name.

    Notes
    -----
    ``MPSKernel`` in ``MPSKernel.h`` [doc].
    """

    __slots__ = ("_before", "_calls", "_computation", "_configured_by", "_copy_of", "_crops", "_shape", "_state")

    backend: Property[str | Backend | None] = Property(
        optional(backend_like),
        None,
        "The backend to run on: a name, an ``mpsref.Backend``, or ``None`` for the one in use.",
    )

    label: Property[str | None] = Property(label_like, None, "A string that identifies the kernel; it is not saved.")

    def __init_subclass__(cls, **options: Any) -> None:
        for name, own in vars(cls).items():
            if name.startswith("encode") and inspect.isfunction(own) and "command_buffer" in own.__code__.co_varnames:
                describe_encode(own)
        super().__init_subclass__(**options)
        make_constructor(cls, MPSKernel, (), backend=None)
        if cls.__name__.startswith("MPS") and cls.__module__.startswith("mpsref."):
            describe_parameters(cls)
            saved()(cls)

    __signature__ = ConstructorSignature()

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Raise ``TypeError`` for an abstract class."""
        if inspect.isabstract(cls):
            import_families()
            names = sorted({kind.__name__ for kind in _descendants(cls) if not inspect.isabstract(kind)})
            raise TypeError(
                f"{cls.__name__} is abstract; make one of {', '.join(names) or 'a class that derives from it'}"
            )
        check_keywords(cls, kwargs)
        made = super().__new__(cls)
        made._start()
        return made

    def _start(self) -> None:
        """Set what a kernel keeps from one encode to the next, and what a copy knows of its encode; no properties."""
        self._calls: dict[tuple[Hashable, ...], Call] = {}  # up to 8 by shapes, valid with the same properties
        self._configured_by: ForwardRecord | None = None  # of the last state that has configured a gradient kernel
        self._copy_of: Self | None = None  # of the copy that an encode configures, the kernel
        self._before: tuple[object, ...] = ()  # of such a copy, the properties of the kernel when it was made
        self._state: Any = None  # of such a copy, the state that the encode reads
        self._crops: Sequence[tuple[slice, slice]] = ()  # of such a copy, rows and columns to read of the first sources
        self._shape: Shape = ()  # of such a copy, the shape of the destination
        self._computation: Computation | None = None  # of such a copy, its computation, if that determines the shape

    @property
    def _kernel(self) -> Self:
        """The kernel that the user has made."""
        return self._copy_of or self

    def _to_configure(self, state: Any = None) -> Self:
        """Return a copy to configure for one encode, so that an error changes nothing; see :meth:`_take`."""
        own = object.__new__(type(self))
        own.__dict__.update(self.__dict__)
        put = object.__setattr__  # since names that are private need no check
        put(own, "_calls", self._calls)
        put(own, "_configured_by", self._configured_by)
        put(own, "_copy_of", self._copy_of or self)
        put(own, "_before", tuple(vars(self).values()))
        put(own, "_state", state)
        put(own, "_crops", ())
        put(own, "_computation", None)
        return own

    def _take(self, own: Self, call: Call | None = None) -> None:
        """Take the properties that an encode has changed on a copy, and keep its call; threads may change others."""
        new, before = vars(own), own._before
        if len(new) > len(before) or not all(map(operator.is_, new.values(), before)):
            pairs = zip(new.items(), itertools.chain(before, itertools.repeat(MISSING)), strict=False)  # new ones last
            vars(self).update(item for item, old in pairs if item[1] is not old)
        self._configured_by = own._configured_by
        if call is not None and call.properties:
            if len(self._calls) >= 8:
                self._calls.clear()
            self._calls[call.key] = call

    def __getstate__(self) -> dict[str, object]:
        """Return the properties, without prepared encodes, for copies."""
        return vars(self)

    def __init__(self, *, backend: str | Backend | None = None, **properties: Any) -> None:
        initialize(self, {"backend": backend, **properties})

    @abc.abstractmethod
    def encode(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel on its images."""

    def _assign(self, **values: object) -> None:
        """Set properties to legal values without a check; keep the present object if it equals the value."""
        own = vars(self)
        for name, value in values.items():
            if own[name] != value:
                own[name] = value

    def copy(self) -> Self:
        """Return an independent kernel with equal properties."""
        return copy.copy(self)

    def __repr__(self) -> str:
        arguments = {name: getattr(self, name) for name in self._coding.arguments}
        fresh = vars(type(self)(**arguments))
        changed = {name: vars(self)[name] for name in properties_of(type(self)) if vars(self)[name] != fresh[name]}
        if isinstance(self.backend, Backend):
            changed["backend"] = self.backend.name
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in (arguments | changed).items())})"
        )


def _descendants(kind: type[object]) -> Iterator[type[object]]:
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)
