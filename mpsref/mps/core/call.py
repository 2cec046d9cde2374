"""Calls: how an encode, or a step of a graph, computes its destination.

A kernel makes a :class:`Call` from the shapes of its sources; a family says in ``_problem`` which :class:`Computation`
gives a region of the destination. A call has no pixels: it runs on any images of these shapes, on any backend.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from mpsref import registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.arguments.parameters import Pair
from mpsref.mps.core.clip_regions import Region, overlap
from mpsref.registry import Backend, Problem, Spec

T = TypeVar("T")

Index: TypeAlias = tuple[slice, ...]
"""The index of a part of an image."""


@functools.lru_cache(maxsize=1024)
def problem_of(spec: Spec, method: str, *fields: Any) -> Problem:
    """Return the problem of a call of a functional form, the same object for equal arguments."""
    problem: Problem = spec.problems[method](spec, *fields)
    return problem


@functools.lru_cache(maxsize=1024)
def made(kind: Callable[..., T], *values: Any, **named: Any) -> T:
    """Return a functional form, the same object for equal arguments."""
    return kind(*values, **named)


class Computation(NamedTuple):
    """How to compute a region of a destination: by a problem, or by a function."""

    problem: Problem | None = None
    first: Pair | None = None
    """The pixel of the result that is the first of the region, which is 0 outside the result; ``None``: it is whole."""
    operands: tuple[Array | None, ...] = ()
    """The inputs of the problem after the images, such as weights; ``None`` for one that there is not."""
    source: Callable[[Array], Array] | None = None
    """Returns the image that the problem reads, where that is not the region of the source."""
    result: Callable[[Array], Array] | None = None
    """Returns the region from the result of the problem, where they differ."""
    compute: Callable[..., Any] | None = None
    """``compute(images, backend, *operands)`` returns the region in a new array, if it is not that of one problem."""
    returns_result: bool = False
    """Whether ``compute`` returns an array of the dtype of the images that is used nowhere else."""
    each: Sequence[tuple[Problem, slice]] = ()
    """The problems of a list, which read all sources, and the images of the region that each of them gives."""
    images: int | None = None
    """How many images it reads, the first ones; ``None``: as many as the problem has besides the operands, or all."""
    form: Spec | None = None
    """The functional form of a function that has no problem."""
    shape: Shape | None = None
    """The shape of the result for whole images, if it is not that of the problem."""

    @property
    def is_all(self) -> bool:
        """Whether the region is the result of the problem."""
        is_own = self.compute is None or self.returns_result
        return is_own and self.first is None and self.result is None and not self.each

    @property
    def result_shape(self) -> Shape:
        """The shape of the result for whole images."""
        if self.shape is not None:
            return self.shape
        assert self.problem is not None
        return self.problem.result_shapes[0]

    def count_of(self, sources: int) -> int:
        """Return how many of the ``sources`` it reads."""
        if self.images is not None or self.problem is None:
            return sources if self.images is None else self.images
        operands = [operand for operand in self.operands if operand is not None] if self.operands else ()
        return min(sources, len(self.problem.arguments) - len(operands))

    def computed(
        self,
        images: Sequence[Array],
        backend: str | Backend | None,
        operands: Sequence[Any] | None = None,
        out: Array | None = None,
    ) -> Any:
        """Return the result of the problem, in ``out`` if it is given, or of the function."""
        if self.compute is not None:
            return self.compute(images, backend, *(operands or ()))
        if self.source is not None:
            images = [self.source(*images)]
        if self.operands or operands:
            images = [*images, *self.operands_for(images[0], operands)]  # in the dtypes that go with the images
        return registry.run_one(self.problem, *images, out=out, backend=backend)

    def put(self, result: Any, out: Array) -> None:
        """Write the region ``out`` from the result of the problem or of the function."""
        if self.result is not None:
            result = self.result(result)
        with np.errstate(over="ignore"):  # storing in float16 may overflow to infinity
            if self.first is None:
                out[...] = result
                return
            (y, y_read), (x, x_read) = map(overlap, self.first, out.shape[1:3], result.shape[1:3])
            out[...] = 0
            out[:, y, x] = result[:, y_read, x_read]

    def operands_for(self, image: Array, operands: Sequence[Array | None] | None = None) -> list[Array]:
        """Return the operands, or others, in the dtypes that go with an image."""
        present = [array for array in (self.operands if operands is None else operands) if array is not None]
        for array in present:
            if array.dtype != image.dtype:
                break
        else:
            return present  # the registry checks the shapes
        assert self.problem is not None
        declared = list(self.problem.arguments.items())[-len(present) :]
        return [
            arrays.as_vector(name, array, self.problem.shape_of(wanted.dims), image)
            if wanted.dtype == "real"
            else array
            for (name, wanted), array in zip(declared, present, strict=True)
        ]


class Call(NamedTuple):
    """An encode, placed: what is read, what is run and what is written, and what a state records."""

    computation: Computation | None
    """``None``: the region has no pixels."""
    reads: tuple[Index | None, ...]
    """For each source the index of the region that is read; ``None``: all of it."""
    images: int
    """How many sources the computation reads, the first ones."""
    name: str
    """The name of the destination, for messages."""
    shape: Shape
    """The shape of the destination."""
    dtype: DType | None
    """The dtype of a new destination, where a custom padding policy has chosen another than that of the source."""
    region: Region
    """The region of the destination that is written; a new destination is 0 outside."""
    is_whole: bool = True
    """Whether the region is all of the destination."""
    is_empty: bool = False
    """Whether the region has no elements."""
    is_all: bool = False
    """Whether the region is the result of the problem."""
    record: Any = None
    """The :class:`ForwardRecord` of the encode, or that of the state that configured it."""
    key: tuple[Hashable, ...] = ()
    """The shapes that the call is for."""
    properties: tuple[object, ...] = ()
    """The properties of the kernel; the call is valid as long as they are these objects. Empty: for one encode."""

    @property
    def spec(self) -> Any:
        """The functional form, or ``None``."""
        computation = self.computation
        if computation is None or computation.problem is None:
            return None if computation is None else computation.form
        return computation.problem.spec

    def run(
        self,
        sources: Sequence[Array],
        target: Array | None = None,
        backend: str | Backend | None = None,
        operands: Sequence[Any] | None = None,
    ) -> Array:
        """Write the destination ``target``, or a new one; return it. ``operands`` replace those of the computation.

        Images are computed in their widest dtype, and the result is rounded to the dtype of the destination.
        """
        computation, dtype = self.computation, sources[0].dtype
        is_direct = self.dtype is None and dtype.isnative
        for source in sources if target is None else (*sources, target):
            is_direct = is_direct and source.dtype == dtype
        images = list(sources[: self.images])
        for k, index in enumerate(self.reads[: self.images]):
            if index is not None:
                images[k] = images[k][index]
        if target is None:
            if is_direct and self.is_all and self.is_whole:
                return computation.computed(images, backend, operands)  # type: ignore[no-any-return, union-attr]
            target = arrays.empty(self.name, self.shape, (self.dtype or dtype).newbyteorder("="), sources)
            if not self.is_whole:
                target.fill(0)
        if computation is None or self.is_empty:
            return target
        result = out = target if self.is_whole else target[self.region]
        if not is_direct:
            wide = np.result_type(target.dtype, *(source.dtype for source in sources)).newbyteorder("=")
            result = arrays.empty("the result", out.shape, wide, (target,))
            images = [image.astype(wide, copy=False) for image in images]
        if self.is_all and computation.compute is None:
            computation.computed(images, backend, operands, result)
        elif computation.each:
            for problem, part in computation.each:
                registry.run_one(problem, *images, out=result[part], backend=backend)
        else:
            computation.put(computation.computed(images, backend, operands), result)
        if not is_direct:
            with np.errstate(over="ignore"):
                out[...] = result
        return target
