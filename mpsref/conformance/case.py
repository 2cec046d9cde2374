"""A case: one problem with its data, as a string to print, filter, replay and put into a bug report.

>>> case = Case.parse("PoolingAverage.gradient:n2h7w6c3,k3x2,s2x1,o1x0,clamp,zp1x0,float32,seed=7")
>>> case.problem.spec
PoolingAverage(kernel_size=(3, 2), strides=(2, 1), offset=(1, 0), edge_mode='clamp', zero_pad_size=(1, 0))
>>> str(case)
'PoolingAverage.gradient:n2h7w6c3,k3x2,s2x1,o1x0,clamp,zp1x0,float32,seed=7'

The tokens come from the ``metadata`` of the fields of spec and problem. A field with its default value is left out.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np

from mpsref import codecs, registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array
from mpsref.arguments.layouts import LAYOUTS, PLAIN, arranged, repeats
from mpsref.arguments.parameters import choice, integer
from mpsref.arguments.text import near, shown
from mpsref.codecs import Codec
from mpsref.conformance import data
from mpsref.conformance.data import DataFamily
from mpsref.errors import UnsupportedError
from mpsref.operations import operation_of

DATA_FAMILIES = get_args(DataFamily)

AnyProblem = TypeVar("AnyProblem", bound=registry.Problem)

LARGE = 1 << 28
"""Cases of fewer bytes are run without a look at the memory that is left."""


def operations() -> Iterator[registry.Operation]:
    """Yield all operations."""
    yield from registry.operations()


def operation_named(name: str) -> registry.Operation:
    """Return the operation of this name, such as ``PoolingAverage.forward``.

    >>> operation_named("PoolingAverage.forward").method
    'forward'
    """
    if (found := operation_of(name)) is not None:
        return found
    from mpsref.frameworks import chains  # which imports what differentiates

    if name == str(chains.OPERATION):
        return chains.OPERATION
    known = [*map(str, operations()), str(chains.OPERATION)]
    raise ValueError(f"unknown operation {shown(name)}{near(name, known)}; `mpsref kernels` lists all")


@dataclass(frozen=True)
class Case:
    """A problem and its data.

    Parameters
    ----------
    problem
        The problem.
    dtype
        Of the images: "float32", "float16" or "float64".
    family
        Of the data: "real", "exact", "hard", "nonfinite" or "small", see :mod:`mpsref.conformance.data`.
    seed
        Of the data; 0 counts up, to follow by hand.
    layouts
        Of each input in memory, see :mod:`mpsref.arguments.layouts`; the last one is that of the inputs that follow.
        Empty if all are C-contiguous.
    """

    problem: registry.Problem
    dtype: str = "float32"
    family: DataFamily = "real"
    seed: int = 0
    layouts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the type of the problem, dtype, family and seed."""
        if not isinstance(self.problem, registry.Problem):
            raise TypeError(f"problem is of type {type(self.problem).__name__}; it must be a Problem")
        choice("dtype", self.dtype, arrays.DTYPES)
        choice("family", self.family, DATA_FAMILIES)
        integer("seed", self.seed, low=0)
        for layout in self.layouts:
            choice("layouts", layout, LAYOUTS)
        if self.layouts:  # a problem of a property may have more inputs than the case that it is made from, or fewer
            read = self.problem.arguments.values()
            given = self.layouts + self.layouts[-1:] * len(read)
            fitted = tuple(_legal_layout(layout, one.dtype) for layout, one in zip(given, read, strict=False))
            object.__setattr__(self, "layouts", () if all(layout == PLAIN for layout in fitted) else fitted)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a case is made again in another process: from its string."""
        return Case.parse, (str(self),)

    def __str__(self) -> str:
        shape, *call = _printed(self.problem)
        family = [] if self.family == "real" else [self.family]
        layouts = [_LAYOUTS.write(self.layouts)] if self.layouts else []
        words = [shape, *_printed(self.problem.spec), *call, self.dtype, *family, *layouts, f"seed={self.seed}"]
        return f"{self.problem.operation}:{','.join(words)}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """Return the case of a string; raise ``ValueError`` that names the wrong token."""
        name, colon, rest = text.strip().partition(":")
        if not colon:
            raise ValueError(f"case {shown(text)} has no ':'; a case is 'Operation.method:token,token,...'")
        operation = operation_named(name)
        problem_type = operation.spec_type.problems[operation.method]
        known = [*_fields(problem_type), *_fields(operation.spec_type), *_DATA_FIELDS]
        found: dict[_Field, Any] = {}
        for word in rest.split(","):
            field, value = _read(word, known, text)
            if field in found:
                raise ValueError(f"case {shown(text)} names {field.name} twice, the second time with {shown(word)}")
            found[field] = value
        values = {owner: {f.name: v for f, v in found.items() if f.owner is owner} for owner in (problem_type, cls)}
        spec = {f.name: v for f, v in found.items() if f.owner is operation.spec_type}
        try:
            return cls(problem_type(operation.spec_type(**spec), **values[problem_type]), **values[cls])
        except TypeError as error:
            missing = re.findall(r"'(\w+)'", str(error))
            examples = ", ".join(f"{f.name} ({f.codec.example})" for f in known if f.name in missing)
            raise ValueError(f"case {shown(text)} lacks {examples or error}") from error

    def of(self, *kinds: type[AnyProblem]) -> AnyProblem:
        """Return the problem, which must be one of ``kinds``."""
        assert isinstance(self.problem, kinds)
        return self.problem

    def result_dtypes(self) -> tuple[np.dtype[Any], ...]:
        """Return the dtype of each result."""
        return self.problem.result_dtypes(*self.problem.input_dtypes(np.dtype(self.dtype)).values())

    def nbytes(self) -> int:
        """Return how many bytes a check needs at least, without the intermediate arrays of formulas and backends."""
        problem, dtypes = self.problem, self.problem.input_dtypes(np.dtype(self.dtype))
        results = zip(problem.result_shapes, self.result_dtypes(), strict=True)
        stored = [*((shape, dtypes[name]) for name, shape in problem.input_shapes.items()), *results]
        # In its dtype between guards, and in float64: an input when it is drawn, a result with the terms of its bound.
        return sum(math.prod(shape) * (2 * dtype.itemsize + 16) for shape, dtype in stored)

    def inputs(self) -> tuple[Array, ...]:
        """Return the inputs of the operation: equal at every call, and new arrays, which may be changed.

        Raises ``UnsupportedError`` if they need more memory than there is, with the results and the reference.
        """
        repeating = self.layouts if any(repeats(layout, 1) for layout in self.layouts) else ()
        plain = _inputs(self.problem, self.dtype, self.family, self.seed, repeating)
        if not self.layouts:
            return tuple([array.copy() for array in plain])
        return tuple(arranged(array, layout) for array, layout in zip(plain, self.layouts, strict=True))


def _legal_layout(layout: str, dtype: str) -> str:
    """Return a layout, without the repetition of indices, which would name pixels of other windows."""
    return layout.partition("-")[0] if dtype == "int32" and repeats(layout, 4) else layout


@lru_cache(maxsize=300)
def _inputs(
    problem: registry.Problem, dtype: str, family: DataFamily, seed: int, layouts: tuple[str, ...]
) -> tuple[Array, ...]:
    """Return the inputs of a case, which each backend and each property reads."""
    case = Case(problem, dtype, family, seed)
    needed = case.nbytes()
    if needed > LARGE and needed > (left := arrays.available_memory()):
        raise UnsupportedError(
            f"case {case} needs at least {needed} bytes for its inputs, its results and their reference in "
            f"float64, and {left} are available; choose a smaller image"
        )
    return data.inputs(problem, dtype, family, seed, layouts)


class _Field(NamedTuple):
    """A field that is written in case strings, with its codec."""

    owner: type
    name: str
    codec: Codec


_LAYOUTS = Codec(
    "memory=nchw+nhwc-gap",
    rf"memory=((?:{'|'.join(LAYOUTS)})(?:\+(?:{'|'.join(LAYOUTS)}))*)",
    lambda text: tuple(text.split("+")),
    lambda layouts: f"memory={'+'.join(layouts)}",
)

_DATA_FIELDS = (
    _Field(Case, "dtype", codecs.word(*arrays.DTYPES)._replace(example="float32")),
    _Field(Case, "family", codecs.word(*DATA_FAMILIES)),
    _Field(Case, "seed", Codec("seed=7", r"seed=(\d+)", int, str)),
    _Field(Case, "layouts", _LAYOUTS),
)


def _fields(owner: Any) -> list[_Field]:
    kind = owner if isinstance(owner, type) else type(owner)
    return [_Field(kind, f.name, f.metadata["codec"]) for f in dataclasses.fields(kind) if "codec" in f.metadata]


def _printed(thing: Any) -> Iterator[str]:
    """Yield the tokens of a spec or a problem, without implied ones."""
    defaults = {f.name: f.default for f in dataclasses.fields(thing)}
    for _, name, codec in _fields(thing):
        default = defaults[name]
        if default is dataclasses.MISSING or not _implied(thing, name, default):
            yield codec.write(getattr(thing, name))


def _implied(thing: Any, name: str, default: Any) -> bool:
    """Return whether the thing is the same without the field."""
    try:
        return bool(dataclasses.replace(thing, **{name: default}) == thing)
    except (TypeError, ValueError):  # without a default, such as the output size for an offset past the image
        return False


def _read(word: str, known: list[_Field], text: str) -> tuple[_Field, Any]:
    for field in known:
        match = re.fullmatch(field.codec.pattern, word)
        if match:
            return field, field.codec.read(*match.groups())
    examples = ", ".join(field.codec.example for field in known)
    raise ValueError(f"case {shown(text)}: cannot read {shown(word)}; tokens of this operation look like {examples}")
