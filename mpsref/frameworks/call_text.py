"""Calls of a framework as text that runs: a function of tensors is called with their names in place of values.

While :func:`noted` runs, modules of a framework are :class:`Named`, and adapters note the functions that they run.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

_notes: ContextVar[list[str] | None] = ContextVar("_notes", default=None)

WRITTEN = 128
"""Larger tensors have random values in the text."""


LAYER = "x", "weights", "bias"
"""Names of the tensors of a function whose own are unknown."""


class Syntax(NamedTuple):
    """How a framework is called; ``{}`` is replaced by values or a shape, ``{call}`` and ``{names}`` by expressions."""

    imports: str
    array: str
    """A tensor of given values."""
    random: str
    """A tensor of a given shape."""
    gradient: str
    """The gradients of a call for some names, from the source gradient ``g``."""
    leaf: str = "{}"
    """A tensor whose gradient is taken."""
    call: str = "{call}"
    """A call, by its expression and by ``{all}`` names of its tensors."""


@contextlib.contextmanager
def noted() -> Iterator[list[str]]:
    """Yield a list; the calls of frameworks in the ``with`` block are added to it, each with its imports and inputs."""
    notes: list[str] = []
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def named(name: str, value: Any) -> Any:
    """Return a module or function of a framework; under its name while calls are noted."""
    return value if _notes.get() is None else Named(name, value)


def note(syntax: Syntax | None, function: Callable[..., Any], tensors: Callable[[], Sequence[str]], count: int) -> None:
    """Note a call; with ``count``, the gradients for its first tensors. ``tensors()`` are the texts of all."""
    notes = _notes.get()
    if notes is None or syntax is None:
        return
    given = list(tensors())
    names = _names(function, len(given) - (count > 0))
    try:
        call = _text(function(*map(Expression, names)))
    except Exception:  # a function that reads values or shapes of its tensors has no text; any error is possible
        return
    call = syntax.call.format(call=call, all=", ".join(names))
    first = ", ".join(names[:count])
    values = [syntax.leaf.format(text) if k < count else text for k, text in enumerate(given)]
    lines = [f"{name} = {value}" for name, value in zip([*names, "g"], values, strict=False)]
    last = syntax.gradient.format(call=call, names=first) if count else call
    notes.append("\n".join([syntax.imports, *lines, last]))


def note_text(make: Callable[[], str]) -> None:
    """Note a call by its text, which is made if calls are noted, and is empty if it is too long."""
    notes = _notes.get()
    if notes is not None and (text := make()):
        notes.append(text)


def values(syntax: Syntax, array: Any) -> str:
    """Return the text of a tensor with the values of an array; random ones if they are many."""
    many = array.size > WRITTEN
    return syntax.random.format(tuple(array.shape)) if many else syntax.array.format(_numbers(array.tolist()))


def _numbers(nested: Any) -> str:
    """Return nested lists as text, with NaN and infinities that Python reads."""
    if isinstance(nested, list):
        return f"[{', '.join(map(_numbers, nested))}]"
    return repr(nested) if not isinstance(nested, float) or np.isfinite(nested) else f'float("{nested}")'


def _names(function: Any, count: int) -> list[str]:
    """Return names of the arguments of a function: its own, then those of a layer."""
    try:
        own = [name for name, one in inspect.signature(function).parameters.items() if one.kind in (0, 1)]
    except (TypeError, ValueError):  # a function in C
        own = []
    rest = [name for name in (*LAYER[len(own) :], *(f"x{k}" for k in range(count))) if name not in own]
    return [*own, *rest][:count]


def _operator(sign: str, reverse: bool = False) -> Any:
    """Return the method of an operator of two operands."""

    def apply(self: Expression, other: Any) -> Expression:
        left, right = _atom(self._text), _atom(_text(other))
        return Expression(f"{right} {sign} {left}" if reverse else f"{left} {sign} {right}")

    return apply


class Expression:
    """A tensor by the expression that computes it."""

    def __init__(self, text: str) -> None:
        """Store the expression."""
        self._text = text

    def __getattr__(self, name: str) -> Expression:
        """Return an attribute, such as a method."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Expression(f"{_atom(self._text)}.{name}")

    def __call__(self, *args: Any, **words: Any) -> Expression:
        """Return the call of a method."""
        return Expression(f"{self._text}({_arguments(args, words)})")

    def __getitem__(self, index: Any) -> Expression:
        return Expression(f"{_atom(self._text)}[{_index(index)}]")

    __iter__ = None
    __array_ufunc__ = None  # arrays leave operators to this class

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Expression:
        """Return the expression of a function of PyTorch."""
        import torch

        name = torch.overrides.resolve_name(function) or str(function)
        name = f"torch.ops.{name}" if name.startswith("aten.") else name
        given = {word: one for word, one in (kwargs or {}).items() if not word.startswith("_")}  # none of users
        return Expression(f"{name.replace('torch.nn.functional.', 'F.')}({_arguments(args, given)})")

    __add__, __sub__, __mul__, __truediv__, __pow__, __matmul__ = map(_operator, ("+", "-", "*", "/", "**", "@"))
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))
    __radd__, __rsub__, __rmul__, __rtruediv__ = (_operator(sign, True) for sign in ("+", "-", "*", "/"))

    def __neg__(self) -> Expression:
        return Expression(f"-{_atom(self._text)}")

    def __bool__(self) -> bool:
        raise TypeError("a name has no truth value")


class Named:
    """A module, a function or a layer of a framework, which returns text for names of tensors, else what it is."""

    def __init__(self, name: str | Callable[[], str], value: Any) -> None:
        """Store the name, or what returns it, and the value."""
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_value", value)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._value, name)
        return Named(lambda: f"{_text(self)}.{name}", found) if callable(found) or inspect.ismodule(found) else found

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Expression):
            raise TypeError(f"an assignment to {_text(self)}.{name} is no expression")
        setattr(self._value, name, value)

    def __call__(self, *args: Any, **words: Any) -> Any:
        """Return the expression if a name is among the arguments, else the result."""
        if _has_tensor([args, words]):
            return Expression(f"{_text(self)}({_arguments(args, words)})")
        found = self._value(*map(_plain, args), **{name: _plain(one) for name, one in words.items()})
        if not callable(found) or hasattr(found, "__enter__"):  # a result, or a context
            return found
        return Named(lambda: f"{_text(self)}({_arguments(args, words)})", found)


def _plain(value: Any) -> Any:
    """Return a value without its name."""
    return value._value if isinstance(value, Named) else value


def _has_tensor(value: Any) -> bool:
    """Return whether a name of a tensor is among values."""
    if isinstance(value, Mapping):
        return any(map(_has_tensor, value.values()))
    return isinstance(value, Expression) or (isinstance(value, list | tuple) and any(map(_has_tensor, value)))


def _atom(text: str) -> str:
    """Return an expression that may stand on the left of a dot: in brackets if a space is outside of all brackets."""
    depth = 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and sign == " ":
            return f"({text})"
    return f"({text})" if text.startswith("-") else text


def _arguments(args: Sequence[Any], words: Mapping[str, Any]) -> str:
    """Return the text of arguments."""
    return ", ".join([*map(_text, args), *(f"{name}={_text(one)}" for name, one in words.items())])


def _text(value: Any) -> str:
    """Return a value as Python reads it."""
    if isinstance(value, Expression):
        return value._text
    if isinstance(value, Named):
        return str(value._name() if callable(value._name) else value._name)
    if isinstance(value, np.ndarray):
        if value.size > WRITTEN:
            raise ValueError("a table of constants is too long for a line")
        return f"np.array({_numbers(value.tolist())}, {value.dtype.name!r})"
    if isinstance(value, FunctionType):
        names = _names(value, len(inspect.signature(value).parameters))
        return f"lambda {', '.join(names)}: {_text(value(*map(Expression, names)))}"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_text, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name!r}: {_text(one)}' for name, one in value.items())}}}"
    if isinstance(value, type):
        return value.__name__ if value.__module__ == "builtins" else f"np.{value.__name__}"
    if isinstance(value, np.generic):
        return _numbers(value.item())
    return _numbers(value) if isinstance(value, float) else repr(value)


def _index(index: Any) -> str:
    """Return the text between the brackets of an index."""
    if isinstance(index, tuple):
        return ", ".join(map(_index, index))
    if isinstance(index, slice):
        begin, end = ("" if one is None else _text(one) for one in (index.start, index.stop))
        return f"{begin}:{end}" + ("" if index.step is None else f":{_text(index.step)}")
    return _text(index)
