"""A layer of a published network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from mpsref.arguments.arrays import ImageShape, Shape
from mpsref.errors import NoGradientError
from mpsref.registry import Problem, Spec


@dataclass(frozen=True)
class Layer:
    """One kernel of a published network, at the batch size that is benchmarked.

    Parameters
    ----------
    name
        The key of the network, a dot, and the name of the layer in the network.
    network
        The network with its framework and the size of its input images.
    spec
        The kernel.
    source_shape
        Shape of the source image, (N, H, W, C).
    call
        Other fields of the problems, such as the output size. Each problem takes those that it has.
    framework
        The function of :mod:`mpsref.padding` that placed the windows, where there was one.
    words
        The other arguments of that function, as published.
    note
        A remark.
    """

    name: str
    network: str
    spec: Spec
    source_shape: ImageShape
    call: Mapping[str, Any] = field(default_factory=dict, hash=False)
    framework: str = ""
    words: tuple[tuple[str, Any], ...] = ()
    note: str = ""

    @classmethod
    def read(
        cls,
        name: str,
        network: str,
        kernel: type[Spec],
        source_shape: ImageShape,
        parameters: Mapping[str, Any] | None = None,
        call: Mapping[str, Any] | None = None,
        note: str = "",
    ) -> Self:
        """Return the layer of a row of the TOML file, whose keys are the arguments."""
        return cls(name, network, kernel(**parameters or {}), source_shape, call or {}, note=note)

    @property
    def checked_channels(self) -> int:
        """Number of channels in a check."""
        return 5

    @property
    def methods(self) -> tuple[str, ...]:
        """The operations of the kernel, without a gradient that does not exist for its parameters."""
        return tuple(method for method in self.spec.problems if self._has(method))

    def _has(self, method: str) -> bool:
        try:
            self.problem(method)
        except NoGradientError:
            return False
        return True

    def problem(self, method: str) -> Problem:
        """Return the problem of an operation."""
        kind = self.spec.problems[method]
        known = {f.name for f in dataclasses.fields(kind)}
        problem: Problem = kind(
            self.spec, self.source_shape, **{name: value for name, value in self.call.items() if name in known}
        )
        return problem

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels and images and the same windows, for a quick check.

        >>> from mpsref.conformance import layers
        >>> layers.by_name("resnet50.global").small().source_shape
        (1, 7, 7, 3)
        """
        _, height, width, _ = self.source_shape
        return self._fitted(replace(self, source_shape=(batch, height, width, channels)))

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with an axis of its source, and of dependent sizes, multiplied by ``factor``."""
        n, height, width, c = (length * factor if k == axis else length for k, length in enumerate(self.source_shape))
        names = {problem.size_field() for problem in self.spec.problems.values()}
        sizes = {
            name: tuple(length * factor if k + 1 == axis else length for k, length in enumerate(value))
            for name, value in self.call.items()
            if name in names
        }
        return self._fitted(replace(self, source_shape=(n, height, width, c), call={**self.call, **sizes}))

    def _fitted(self, changed: Self) -> Self:
        """Return a copy of this layer with another source shape, whose other fields fit to that."""
        return changed

    @property
    def nbytes(self) -> int:
        """Bytes of all inputs and results of a float32 forward call, or of the first operation."""
        problem = self.problem("forward" if "forward" in self.spec.problems else self.methods[0])
        shapes: list[Shape] = [*problem.input_shapes.values(), *problem.result_shapes]
        return 4 * sum(math.prod(shape) for shape in shapes)
