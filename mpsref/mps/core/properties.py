"""Properties of kernels: checked when set, listed for ``repr``, equality, copies and archives.

>>> class Blur:
...     radius = Property(at_least(1), 2, "Radius in pixels.")
>>> blur = Blur()
>>> initialize(blur, {"radius": 3})
>>> blur.radius
3
>>> blur.radius = 0
Traceback (most recent call last):
ValueError: radius is 0; it must be an integer >= 1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from mpsref.arguments.parameters import integer

T = TypeVar("T")

Check: TypeAlias = Callable[[str, Any], T]
"""``check(name, value)`` returns the value to store; it raises an error with the name for an illegal one."""


class PropertyError(AttributeError, TypeError):
    """The object has no such property, or it cannot be set."""


class Property(Generic[T]):
    """An attribute that is checked when it is set; its values are immutable.

    A ``read_only`` property is set once, by :func:`fix`. A subclass may declare a property again, with other legal
    values. Values are stored in the instance's ``__dict__`` under the name of the property: reading takes no call.
    """

    name = ""

    def __init__(self, check: Check[T], default: T, doc: str, read_only: bool = False) -> None:
        self.check, self.default, self.read_only = check, default, read_only
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    if TYPE_CHECKING:

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

    def fixed(self) -> Property[T]:
        """Return the same property, read-only."""
        return Property(self.check, self.default, self.__doc__ or "", read_only=True)

    def accepted(self, instance: Any, value: Any) -> T:
        """Return the value to store."""
        return self.check(self.name, value)

    def initial(self, instance: Any) -> T:
        """Return the default."""
        return self.default


class PerSource(Property[tuple[T, ...]]):
    """A property with one value for each of the ``source_count`` sources of its kernel."""

    def __init__(self, check: Check[T], default: T, doc: str) -> None:
        super().__init__(
            lambda name, values: tuple(check(f"{name}[{k}]", value) for k, value in enumerate(values)), (default,), doc
        )

    def accepted(self, instance: Any, value: Any) -> tuple[T, ...]:
        """Check the number of values, and each of them."""
        if not isinstance(value, (tuple, list)):
            raise TypeError(f"{self.name} is {value!r}; it must be a tuple with one value for each source")
        if len(value) != instance.source_count:
            raise ValueError(
                f"{self.name} has {len(value)} values; it must have one for each of {instance.source_count} sources"
            )
        return self.check(self.name, value)

    def initial(self, instance: Any) -> tuple[T, ...]:
        """Return the default for each source."""
        return self.default * int(instance.source_count)


class Alias:
    """A second, read-only name of a property."""

    name = ""

    def __init__(self, of: str, doc: str, convert: Callable[[Any], Any] | None = None) -> None:
        self.of, self.convert = of, convert
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        value = getattr(instance, self.of)
        return value if self.convert is None else self.convert(value)

    def __set__(self, instance: object, value: Any) -> None:
        raise PropertyError(f"{self.name} of {type(instance).__name__} is read-only: it shows {self.of}")


_known: dict[type, Mapping[str, Property[Any]]] = {}


def properties_of(kind: type[Any]) -> Mapping[str, Property[Any]]:
    """Return the properties of a class by name, those of its bases first."""
    if kind not in _known:
        names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
        found = ((name, getattr(kind, name, None)) for name in names)
        _known[kind] = {name: one for name, one in found if isinstance(one, Property)}
    return _known[kind]


def fix(instance: Any, **values: Any) -> None:
    """Set properties at construction, read-only ones too; before :func:`initialize`, which keeps them."""
    known = properties_of(type(instance))
    for name, value in values.items():
        instance.__dict__[name] = known[name].accepted(instance, value)


def initialize(instance: Any, values: Mapping[str, Any]) -> None:
    """Set every property that is not fixed yet to its value in ``values``, or to its default.

    Raises ``TypeError`` for a name in ``values`` that is no property, or a read-only one.
    """
    known, kind = properties_of(type(instance)), type(instance).__name__
    for name in values:
        if name not in known or known[name].read_only:
            raise TypeError(f"{name} is no property of {kind} that can be set; those are: {_settable(instance)}")
    for name, one in known.items():
        if name in values:
            instance.__dict__[name] = one.accepted(instance, values[name])
        elif name not in instance.__dict__:
            instance.__dict__[name] = one.initial(instance)


def _settable(instance: Any) -> str:
    return ", ".join(name for name, one in properties_of(type(instance)).items() if not one.read_only)


class PropertyHolder:
    """Base of objects with properties: no other public attribute can be set, and equal values make equal objects."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and not hasattr(getattr(type(self), name, None), "__set__"):
            raise PropertyError(
                f"{type(self).__name__} has no property {name!r}; those that can be set are: {_settable(self)}"
            )
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        """Whether both are of one class with equal properties."""
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # properties change


def at_least(low: int) -> Check[int]:
    """Return the check for integers >= ``low``."""
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
