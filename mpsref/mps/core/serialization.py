"""Saving objects to dictionaries and JSON, and loading them: secure coding in MPS.

A class that can be saved derives from :class:`SecureCoding` and lists the arguments of its constructor and the
properties to set afterwards in :func:`secure_coding`:

>>> @secure_coding(version=1, arguments=("side",), properties=("label",))
... class Square(SecureCoding):
...     def __init__(self, side):
...         self.side, self.label = side, None
>>> Square(3).to_json()
'{"class":"Square","properties":{"label":null,"side":3},"version":1}'
>>> Square.from_json(Square(3).to_json()).side
3

Equal values give equal bytes. Loading executes nothing from the input: only registered classes are legal, a value is a
number, a string, ``None``, a list of these or another saved object, and the constructor and the setters of the class
check each value. Illegal values and unknown or missing names raise ``ValueError`` with the position in the input.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self, TypeAlias, TypeVar

import numpy as np

from mpsref.arguments.text import shown
from mpsref.mps.core.properties import PropertyError, PropertyHolder, hinting, instance_of

KEYS = ("class", "properties", "version")
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""Numbers that JSON does not have; each is saved as ``{"float": word}``."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value that JSON represents exactly."""


@dataclass(frozen=True)
class _Coding:
    """The saved state of a class: version, constructor arguments, and properties set after construction."""

    version: int
    arguments: tuple[str, ...]
    properties: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.arguments + self.properties


_registered: dict[str, type[SecureCoding]] = {}


class SecureCoding:
    """Base class of objects that can be saved; see :func:`secure_coding`."""

    _coding: ClassVar[_Coding] = _Coding(0, (), ())

    def saved_values(self) -> dict[str, object]:
        """Return the saved values by name: constructor arguments, then properties.

        Raises ``ValueError`` if the class is not registered; subclasses of a registered class are not registered.
        """
        _check_registered(type(self))
        return {name: getattr(self, name) for name in self._coding.names}

    def to_dict(self) -> dict[str, Json]:
        """Return the saved object as a dictionary.

        Returns
        -------
        dict
            The class, its version and its saved values, as strings, numbers, booleans, ``None``, lists and
            dictionaries.

        Raises
        ------
        ValueError
            If the class is not registered.
        TypeError
            If a value cannot be saved.
        """
        name = type(self).__name__
        properties = {key: _encoded(f"{name}.{key}", value) for key, value in self.saved_values().items()}
        return {"class": name, "properties": properties, "version": self._coding.version}

    @classmethod
    def from_dict(cls, data: object, **context: Any) -> Self:
        """Load an object.

        Parameters
        ----------
        data : dict
            A result of :meth:`to_dict`.
        **context
            Further arguments of the constructor that are not saved, such as ``backend``.

        Returns
        -------
        object
            An instance of this class or of a registered subclass.

        Raises
        ------
        ValueError
            If ``data`` has unknown, missing or illegal values.
        """
        with _nesting_limited("data"):
            return _decoded_object(cls, cls.__name__, data, context)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON in ASCII with sorted keys and without spaces; errors are the same."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str, **context: Any) -> Self:
        """Load an object from JSON.

        Parameters
        ----------
        text : str
            A result of :meth:`to_json`.
        **context
            As in :meth:`from_dict`.

        Returns
        -------
        object
            An instance of this class or of a registered subclass.

        Raises
        ------
        TypeError
            If ``text`` is not a str.
        ValueError
            If ``text`` is not JSON, and as in :meth:`from_dict`.
        """
        return cls.from_dict(_parsed(text), **context)


_C = TypeVar("_C", bound=type[SecureCoding])


DEEPEST = 100
"""Maximum depth of the lists and objects of a saved object."""


@hinting
def secure_coding(
    version: int, *, arguments: tuple[str, ...] | None = None, properties: tuple[str, ...] = ()
) -> Callable[[_C], _C]:
    """Return a class decorator that registers a class for saving and loading under its name.

    Parameters
    ----------
    version : int
        The version of the saved values, to be incremented when their meaning changes.
    arguments : tuple of str, optional
        Names of the arguments of the constructor, each also an attribute; by default those of the base class.
    properties : tuple of str
        Attributes to save in addition to those of the base class.

    Raises
    ------
    ValueError
        If another class with this name is registered.
    """

    def register(cls: _C) -> _C:
        name = cls.__name__
        other = _registered.get(name) if cls.__module__.startswith("mpsref.") else _lookup(name)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"class name {name!r} is taken by {other.__module__}.{other.__qualname__}; choose another")
        base = cls._coding
        cls._coding = _Coding(version, base.arguments if arguments is None else arguments, base.properties + properties)
        _registered[name] = cls
        return cls

    return register


class Descriptor(PropertyHolder, SecureCoding):
    """Parameters that can be set, of kernels, which copy the descriptor when they are made; such a copy is fixed."""

    __slots__ = ("_is_fixed",)

    def __setattr__(self, name: str, value: object) -> None:
        """Raise ``PropertyError`` for the copy of a kernel: calls of the kernel were prepared with its values."""
        if not name.startswith("_") and getattr(self, "_is_fixed", False):
            raise PropertyError(
                f"{name} of {type(self).__name__} is read-only: this descriptor is the copy of a kernel or node; set "
                "it in a descriptor.copy(), and make another kernel with that"
            )
        super().__setattr__(name, value)  # type: ignore[misc]  # that of NoNewAttributes

    def _fixed(self, value: bool) -> Self:
        """Set whether no property can be set, nor those of the descriptors in it; return the object."""
        self._is_fixed = value
        for part in vars(self).values():
            if isinstance(part, Descriptor):
                part._fixed(value)
        return self

    def check(self) -> None:
        """Raise ``ValueError`` unless the properties fit each other."""

    @classmethod
    def _checked_copy(cls, name: str, value: object) -> Self:
        """Return a copy of a descriptor whose properties fit each other: the check of a property of a kernel."""
        descriptor = instance_of(name, value, cls)
        descriptor.check()
        return descriptor.copy()._fixed(True)

    def copy(self) -> Self:
        """Return an equal descriptor, which can be changed."""
        return copy.copy(self)._fixed(False)

    def __repr__(self) -> str:
        """Return a call with the required arguments and the values that differ from their defaults."""
        parameters = inspect.signature(type(self)).parameters.values()
        required = [one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
        given = [getattr(self, name) for name in required]
        fresh, words = type(self)(*given), list(map(repr, given))
        for name in self._coding.names:
            value = getattr(self, name)
            if name not in required and value != getattr(fresh, name):
                is_infinite = isinstance(value, float) and math.isinf(value)
                words.append(f"{name}={f'float({str(value)!r})' if is_infinite else repr(value)}")
        return f"{type(self).__name__}({', '.join(words)})"


def _lookup(name: str) -> type[SecureCoding] | None:
    """Return the class registered under ``name``; a public class of ``mpsref.mps`` is imported first."""
    if name not in _registered:
        getattr(importlib.import_module("mpsref.mps"), name, None)
    return _registered.get(name)


@functools.cache
def import_families() -> None:
    """Import all classes of ``mpsref.mps``, which are lazy, so that messages can list them."""
    mps = importlib.import_module("mpsref.mps")
    for name in mps.__all__:
        getattr(mps, name)


def _check_registered(cls: type[SecureCoding]) -> None:
    if _registered.get(cls.__name__) is not cls:
        raise ValueError(f"class {cls.__name__} is not registered for saving; decorate it with @secure_coding(version)")


def _encoded(where: str, value: object) -> Json:
    """Return ``value`` as JSON."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):  # also members of enumerations: their setters accept the number
        return int(value)
    if isinstance(value, (float, np.float16, np.float32)):
        number = float(value)
        return number if math.isfinite(number) else {"float": str(number)}
    if isinstance(value, (tuple, list)):
        return [_encoded(f"{where}[{k}]", entry) for k, entry in enumerate(value)]
    if isinstance(value, SecureCoding):
        return value.to_dict()
    raise TypeError(
        f"{where} is {shown(value)} of type {type(value).__name__}, which cannot be saved; it must be a number, a "
        "string, None, a tuple of these, or an object of a class registered with @secure_coding"
    )


def _decoded(where: str, data: object) -> object:
    """Invert :func:`_encoded`, with tuples for lists."""
    if data is None or isinstance(data, (bool, str, int)):
        return data
    if isinstance(data, float):
        if not math.isfinite(data):
            raise ValueError(f'{where} is {data}; a number that is not finite must be saved as {{"float": "{data}"}}')
        return data
    if isinstance(data, (list, tuple)):
        return tuple(_decoded(f"{where}[{k}]", entry) for k, entry in enumerate(data))
    if isinstance(data, dict):
        if data.keys() != {"float"}:
            return _decoded_object(SecureCoding, where, data, {})
        word = data["float"]
        if not isinstance(word, str) or word not in NOT_FINITE:
            raise ValueError(
                f"{where} has the float {shown(word)}; it must be one of {', '.join(map(repr, NOT_FINITE))}"
            )
        return NOT_FINITE[word]
    raise ValueError(f"{where} is {shown(data)} of type {type(data).__name__}, which is not a saved value")


_S = TypeVar("_S", bound=SecureCoding)


def _decoded_object(base: type[_S], where: str, data: object, context: dict[str, Any]) -> _S:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is {shown(data)}; it must be a dictionary with the keys {', '.join(KEYS)}")
    _check_keys(where, "key", data, KEYS)
    name, version, properties = data["class"], data["version"], data["properties"]
    cls = _lookup(name) if isinstance(name, str) else None
    if cls is None or not issubclass(cls, base):
        import_families()
        known = sorted(
            known for known, other in _registered.items() if issubclass(other, base) and not inspect.isabstract(other)
        )
        raise ValueError(f"{where} has the class {shown(name)}; it must be one of {', '.join(known) or '(none)'}")
    if type(version) is not int or version != cls._coding.version:
        raise ValueError(
            f"{where} has version {shown(version)} of {name}; this mpsref reads version {cls._coding.version}"
        )
    if not isinstance(properties, dict):
        raise ValueError(f"{where} has properties {shown(properties)}; it must be a dictionary")
    _check_keys(where, "property", properties, cls._coding.names)
    values = {key: _decoded(f"{name}.{key}", value) for key, value in properties.items()}
    try:
        loaded = cls(**{key: values[key] for key in cls._coding.arguments}, **context)
        for key in cls._coding.properties:
            setattr(loaded, key, values[key])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} describes no legal {name}: {error}") from error
    for key, value in loaded.saved_values().items():  # setters accept several forms of a value, but one is saved
        present, saved = _encoded(key, values[key]), _encoded(key, value)
        if present != saved:
            raise ValueError(f"{where} has {key} {present}; it must be {saved}")
    return loaded


def _check_keys(where: str, kind: str, data: Mapping[str, object], legal: tuple[str, ...]) -> None:
    """Raise ``ValueError`` for an unknown or missing key."""
    for key in data:
        if key not in legal:
            raise ValueError(f"{where} has the unknown {kind} {shown(key)}; it must have {', '.join(sorted(legal))}")
    for key in legal:
        if key not in data:
            raise ValueError(f"{where} lacks the {kind} {shown(key)}; it must have {', '.join(sorted(legal))}")


def _parsed(text: str) -> object:
    """Return the value of the JSON ``text``; ``ValueError`` also for Python's extensions of JSON."""
    if not isinstance(text, str):
        raise TypeError(f"text is of type {type(text).__name__}; it must be a str")
    try:
        with _nesting_limited("text"):
            data: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_refused)
    except json.JSONDecodeError as error:
        raise ValueError(f"text is not JSON: {error}") from error
    _check_depth("text", data)
    return data


def _check_depth(name: str, data: object) -> None:
    """Raise ``ValueError`` for lists in lists beyond ``DEEPEST``, whatever the recursion limit of the process is."""
    level = [data]
    for _ in range(DEEPEST):
        level = [
            inner
            for entry in level
            if isinstance(entry, list | dict)
            for inner in (entry.values() if isinstance(entry, dict) else entry)
        ]
        if not level:
            return
    raise ValueError(f"{name} is nested too deeply for a saved object")


@contextmanager
def _nesting_limited(name: str) -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise ValueError(f"{name} is nested too deeply for a saved object") from error


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"text has the key {shown(twice)} twice in one object")
    return data


def _refused(word: str) -> NoReturn:
    raise ValueError(f"text has the number {word}, which JSON does not have")
