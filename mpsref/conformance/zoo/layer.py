"""What a layer of the zoo is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from mpsref.arguments.arrays import ImageShape, Shape
from mpsref.errors import NoGradientError
from mpsref.registry import Problem, Spec

__all__ = ["Layer"]


@dataclass(frozen=True)
class Layer:
    """One kernel of a published network, at the batch size that is benchmarked."""

    name: str
    """The network's key in :data:`NETWORKS`, a dot, and what the network calls the layer."""
    network: str
    spec: Spec
    source_shape: ImageShape
    call: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields of its problems beside these: each problem takes those that it has, such as the output size."""
    framework: str = ""
    """The function of :mod:`mpsref.padding` that placed the windows, where there was one."""
    words: tuple[tuple[str, Any], ...] = ()
    """The other arguments of that function, as published."""
    note: str = ""

    @property
    def methods(self) -> tuple[str, ...]:
        """The operations of its kernel that it has: all but a gradient that does not exist for its parameters."""
        return tuple(method for method in self.spec.problems if self._has(method))

    def _has(self, method: str) -> bool:
        try:
            self.problem(method)
        except NoGradientError:
            return False
        return True

    def problem(self, method: str) -> Problem:
        """Return the problem of one of the kernel's operations."""
        kind = self.spec.problems[method]
        known = {f.name for f in dataclasses.fields(kind)}
        problem: Problem = kind(
            self.spec, self.source_shape, **{name: value for name, value in self.call.items() if name in known}
        )
        return problem

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels and images, for a quick check; the windows lie where they lay.

        >>> from mpsref.conformance import zoo
        >>> zoo.by_name("resnet50.global").small().source_shape
        (1, 7, 7, 3)
        """
        _, height, width, _ = self.source_shape
        return replace(self, source_shape=(batch, height, width, channels))

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with one axis of its source, and of what depends on it, ``factor`` times as long."""
        n, height, width, c = (length * factor if k == axis else length for k, length in enumerate(self.source_shape))
        sizes = {
            name: tuple(length * factor if k + 1 == axis else length for k, length in enumerate(value))
            for name, value in self.call.items()
            if name in ("output_size", "gradient_size")
        }
        return replace(self, source_shape=(n, height, width, c), call={**self.call, **sizes})

    @property
    def nbytes(self) -> int:
        """Bytes that one float32 forward call must move: all that it reads and writes, once."""
        problem = self.problem("forward")
        shapes: list[Shape] = [*problem.input_shapes.values(), *problem.result_shapes]
        return 4 * sum(math.prod(shape) for shape in shapes)
