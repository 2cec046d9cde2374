"""Properties of kernels: checked when set, listed for ``repr``, equality, copies and archives.

>>> class Blur:
...     radius = Property(at_least(1), 2, "How far it reaches, in pixels.")
>>> blur = Blur()
>>> initialize(blur, {"radius": 3})
>>> blur.radius
3
>>> blur.radius = 0
Traceback (most recent call last):
ValueError: radius is 0; it must be an integer >= 1
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast, overload

from mpsref.arguments.parameters import integer

T = TypeVar("T")

Check: TypeAlias = Callable[[str, Any], T]
"""``check(name, value)`` returns the legal value that ``value`` stands for, or raises an error that names it."""


class PropertyError(AttributeError, TypeError):
    """A kernel has no such property, or it cannot be set."""


class Property(Generic[T]):
    """An attribute of a kernel that passes through ``check`` when it is set; the value itself is immutable.

    A ``read_only`` one is set once, by :func:`fix`. Values live in the instance's ``__dict__`` under the name of
    the property, so that copies need no help. A subclass may declare a property again, with other legal values.
    """

    def __init__(self, check: Check[T], default: T, doc: str, read_only: bool = False) -> None:
        """Declare a property; ``doc`` says what it is."""
        self.check = check
        self.default = default
        self.read_only = read_only
        self.__doc__ = doc
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    if TYPE_CHECKING:  # with __set__ alone, Python itself reads the instance's ``__dict__``, without any call

        @overload
        def __get__(self, instance: None, owner: type) -> Property[T]: ...

        @overload
        def __get__(self, instance: object, owner: type) -> T: ...

        def __get__(self, instance: object | None, owner: type) -> Property[T] | T: ...

    def __set__(self, instance: object, value: Any) -> None:
        if self.read_only:
            raise PropertyError(
                f"{self.name} of {type(instance).__name__} is read-only: it is fixed when the kernel is made; "
                "make another kernel with the value you need"
            )
        instance.__dict__[self.name] = self.accepted(instance, value)

    def accepted(self, instance: object, value: Any) -> T:
        """Return the legal value that ``value`` stands for."""
        return self.check(self.name, value)

    def initial(self, instance: object) -> T:
        """Return the default."""
        return self.default


class PerSource(Property[tuple[T, ...]]):
    """A property with one value for each of the ``source_count`` sources of its kernel."""

    def __init__(self, check: Check[T], default: T, doc: str) -> None:
        """Declare a property; ``check`` and ``default`` are those of one source's value."""
        super().__init__(lambda name, values: tuple(check(f"{name}[{k}]", v) for k, v in enumerate(values)), (), doc)
        self.default_of_one = default

    def accepted(self, instance: Any, value: Any) -> tuple[T, ...]:
        """Check the number of the values, and each."""
        if not isinstance(value, (tuple, list)):
            raise TypeError(f"{self.name} is {value!r}; it must be a tuple with one value for each source")
        if len(value) != instance.source_count:
            raise ValueError(
                f"{self.name} has {len(value)} values; it must have one for each of {instance.source_count} sources"
            )
        return self.check(self.name, value)

    def initial(self, instance: Any) -> tuple[T, ...]:
        """Return the default of one, for each source."""
        return (self.default_of_one,) * int(instance.source_count)


def properties_of(kind: type[Any]) -> Mapping[str, Property[Any]]:
    """Return the properties of a class by name, those of its bases first."""
    return _properties_of(cast(Hashable, kind))


class Alias:
    """Another name for a property, which can only be read under it."""

    def __init__(self, of: str, doc: str) -> None:
        """Give the property ``of`` another name."""
        self.of = of
        self.__doc__ = doc
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else getattr(instance, self.of)

    def __set__(self, instance: object, value: Any) -> None:
        raise PropertyError(f"{self.name} of {type(instance).__name__} is read-only: it shows {self.of}")


@functools.cache
def _properties_of(kind: Any) -> Mapping[str, Property[Any]]:
    names = [name for base in reversed(kind.__mro__) for name, value in vars(base).items() if _is_property(value)]
    found = {name: getattr(kind, name) for name in dict.fromkeys(names)}
    return {name: value for name, value in found.items() if _is_property(value)}


def _is_property(value: object) -> bool:
    return isinstance(value, Property)


def fix(instance: Any, **values: Any) -> None:
    """Set properties at construction, read-only ones too; before :func:`initialize`, which leaves them alone."""
    known = properties_of(type(instance))
    for name, value in values.items():
        instance.__dict__[name] = known[name].accepted(instance, value)


def initialize(instance: Any, values: Mapping[str, Any]) -> None:
    """Give every property of ``instance`` that is not fixed yet its value from ``values``, or its default.

    ``values`` is what a user passed by keyword: a name that is no property, or a read-only one, raises ``TypeError``.
    """
    known, kind = properties_of(type(instance)), type(instance).__name__
    for name in values:
        if name not in known or known[name].read_only:
            legal = ", ".join(n for n, p in known.items() if not p.read_only)
            raise TypeError(f"{name} is no property of {kind} that can be set; those are: {legal}")
    for name, one in known.items():
        if name in values:
            instance.__dict__[name] = one.accepted(instance, values[name])
        elif name not in instance.__dict__:
            instance.__dict__[name] = one.initial(instance)


class PropertyHolder:
    """Base of objects with properties: no other public attribute can be set, and equal values make equal objects."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and not hasattr(getattr(type(self), name, None), "__set__"):
            legal = ", ".join(n for n, one in properties_of(type(self)).items() if not one.read_only)
            raise PropertyError(f"{type(self).__name__} has no property {name!r}; those that can be set are: {legal}")
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        """Whether both are of one class with equal properties."""
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # properties change


def at_least(low: int) -> Check[int]:
    """Return the check for integers from ``low`` on."""
    return lambda name, value: integer(name, value, low)


def optional(check: Check[T]) -> Check[T | None]:
    """Return ``check`` with ``None`` allowed."""
    return lambda name, value: None if value is None else check(name, value)


def multiple_of_four(name: str, value: Any) -> int:
    """Check a channel offset: four channels share a texture slice, so it is a multiple of 4. Source: [doc]."""
    number = integer(name, value, low=0)
    if number % 4:
        raise ValueError(f"{name} is {number}; it must be a multiple of 4 (four channels share a slice)")
    return number
