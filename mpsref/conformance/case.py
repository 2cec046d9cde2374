"""A case as a string: one problem with its data, to print, filter, replay and put into a bug report.

>>> case = Case.parse("PoolingAverage.gradient:n2h7w6c3,k3x2,s2x1,o1x0,clamp,zp1x0,float32,seed=7")
>>> case.problem.spec
PoolingAverage(kernel_size=(3, 2), strides=(2, 1), offset=(1, 0), edge_mode='clamp', zero_pad_size=(1, 0))
>>> str(case)
'PoolingAverage.gradient:n2h7w6c3,k3x2,s2x1,o1x0,clamp,zp1x0,float32,seed=7'

The tokens come from the ``metadata`` of the fields of spec and problem, so a new kernel gets its strings by naming
them there. A field that has the value it would have anyway is left out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from mpsref import images, kernels, registry
from mpsref.conformance import data
from mpsref.conformance.data import Family
from mpsref.images import Array
from mpsref.parameters import choice, integer

__all__ = ["Case", "operation_named", "operations"]

FAMILIES = get_args(Family)


def operations() -> Iterator[registry.Operation]:
    """Yield every operation there is."""
    for spec_type in kernels.SPECS:
        for method in spec_type.problems:
            yield registry.Operation(spec_type, method)


def operation_named(name: str) -> registry.Operation:
    """Return the operation that prints as ``name``.

    >>> operation_named("PoolingAverage.forward").method
    'forward'
    """
    known = {str(operation): operation for operation in operations()}
    if name not in known:
        raise ValueError(f"unknown operation {name!r}; known: {', '.join(known)}")
    return known[name]


@dataclass(frozen=True)
class Case:
    """A problem, and the data to run it on: dtype, family and seed (0: values that count up, easy to read)."""

    problem: registry.Problem
    dtype: str = "float32"
    family: Family = "real"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check dtype, family and seed."""
        choice("dtype", self.dtype, images.DTYPES)
        choice("family", self.family, FAMILIES)
        integer("seed", self.seed, low=0)

    def __str__(self) -> str:
        shape, *call = _printed(self.problem)
        family = [] if self.family == "real" else [self.family]
        words = [shape, *_printed(self.problem.spec), *call, self.dtype, *family, f"seed={self.seed}"]
        return f"{self.problem.operation}:{','.join(words)}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """Return the case that ``text`` describes; raise ``ValueError`` that names the piece that is wrong."""
        name, colon, rest = text.strip().partition(":")
        if not colon:
            raise ValueError(f"case {text!r} has no ':'; a case is 'Operation.method:token,token,...'")
        operation = operation_named(name)
        problem_type = operation.spec_type.problems[operation.method]
        known = [*_tokens(problem_type), *_tokens(operation.spec_type), *_DATA_TOKENS]
        found: dict[_Token, Any] = {}
        for word in rest.split(","):
            token, value = _read(word, known, text)
            if token in found:
                raise ValueError(f"case {text!r} names {token.field} twice, the second time with {word!r}")
            found[token] = value
        values = {owner: {t.field: v for t, v in found.items() if t.owner is owner} for owner in (problem_type, cls)}
        spec = {t.field: v for t, v in found.items() if t.owner is operation.spec_type}
        try:
            return cls(problem_type(operation.spec_type(**spec), **values[problem_type]), **values[cls])
        except TypeError as error:
            missing = re.findall(r"'(\w+)'", str(error))
            examples = ", ".join(f"{t.field} ({t.example})" for t in known if t.field in missing)
            raise ValueError(f"case {text!r} lacks {examples or error}") from error

    def inputs(self) -> tuple[Array, ...]:
        """Return the arrays that the operation reads, the same at every call."""
        shapes = self.problem.input_shapes.values()
        return tuple(
            data.values(shape, self.dtype, self.family, self.seed, stream) for stream, shape in enumerate(shapes)
        )


class _Token(NamedTuple):
    """How one field is written: a pattern that reads it, and a function that prints it."""

    owner: type
    field: str
    example: str
    pattern: str
    read: Callable[..., Any]
    write: Callable[[Any], str]


_INT = r"(-?\d+)"


def _token(owner: type, name: str, code: Any) -> _Token:
    """Return the token of a field whose metadata says ``code``."""
    if isinstance(code, tuple):  # a bare word
        return _Token(owner, name, code[0], f"({'|'.join(code)})", str, str)
    if code == "nhwc":
        return _Token(
            owner, name, "n1h5w5c1", f"n{_INT}h{_INT}w{_INT}c{_INT}",
            lambda *numbers: tuple(map(int, numbers)),
            lambda shape: "n{}h{}w{}c{}".format(*shape),
        )  # fmt: skip
    if code == "clip":
        return _Token(
            owner, name, "clip0x0+4x4", rf"clip{_INT}x{_INT}\+{_INT}x{_INT}",
            lambda y, x, h, w: ((int(y), int(x)), (int(h), int(w))),
            lambda clip: "clip{}x{}+{}x{}".format(*clip[0], *clip[1]),
        )  # fmt: skip
    return _Token(
        owner, name, f"{code}3x3", rf"{code}{_INT}x{_INT}",
        lambda y, x: (int(y), int(x)),
        lambda pair: f"{code}{pair[0]}x{pair[1]}",
    )  # fmt: skip


_DATA_TOKENS = (
    _Token(Case, "dtype", "float32", f"({'|'.join(images.DTYPES)})", str, str),
    _Token(Case, "family", "exact", f"({'|'.join(FAMILIES)})", str, str),
    _Token(Case, "seed", "seed=7", r"seed=(\d+)", int, str),
)


def _tokens(owner: Any) -> list[_Token]:
    fields = [f for f in dataclasses.fields(owner) if "token" in f.metadata]
    return [_token(owner if isinstance(owner, type) else type(owner), f.name, f.metadata["token"]) for f in fields]


def _printed(thing: Any) -> Iterator[str]:
    """Yield the words of a spec or a problem, without those that say what would be so anyway."""
    defaults = {f.name: f.default for f in dataclasses.fields(thing)}
    for token in _tokens(thing):
        default = defaults[token.field]
        if default is dataclasses.MISSING or not _implied(thing, token.field, default):
            yield token.write(getattr(thing, token.field))


def _implied(thing: Any, name: str, default: Any) -> bool:
    """Tell whether leaving the field out gives the same thing."""
    try:
        return bool(dataclasses.replace(thing, **{name: default}) == thing)
    except ValueError:  # there is no default here, as for the output size of an offset behind the image
        return False


def _read(word: str, known: list[_Token], text: str) -> tuple[_Token, Any]:
    for token in known:
        match = re.fullmatch(token.pattern, word)
        if match:
            return token, token.read(*match.groups())
    examples = ", ".join(token.example for token in known)
    raise ValueError(f"case {text!r}: cannot read {word!r}; tokens of this operation look like {examples}")
