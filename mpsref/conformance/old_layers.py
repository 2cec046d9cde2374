"""Layers of the families that have not moved: how they shrink and grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from mpsref.arguments.arrays import ImageShape
from mpsref.conformance.layer import Layer
from mpsref.kernels import (
    Concatenation,
    Reshape,
    Slice,
)
from mpsref.registry import Problem, Spec


class PairedLayer(Layer):
    """A layer with two operands; axes of the second one that are as long as those of the first stay so."""

    @classmethod
    def read(cls, *, source_shape: ImageShape, parameters: dict[str, Any], **row: Any) -> Self:  # type: ignore[override]
        """Return the layer of a row; the second operand has one row, column or channel where its stride is 0."""
        strides = parameters.get("secondary_strides", (1, 1, 1))
        shape = source_shape[0], *(length if t else 1 for length, t in zip(source_shape[1:], strides, strict=True))
        return super().read(source_shape=source_shape, parameters=parameters, call={"secondary_shape": shape}, **row)

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels and images."""
        return self._fitted(super().small(channels, batch))

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with one axis of its operands longer."""
        return self._fitted(super().grown(axis, factor))

    def _fitted(self, changed: Self) -> Self:
        shapes = zip(self.source_shape, changed.source_shape, self.call["secondary_shape"], strict=True)
        return replace(changed, call={"secondary_shape": tuple(new if y == old else y for old, new, y in shapes)})


def read_movement(kernel: type[Spec], **row: Any) -> Layer:
    """Return the layer of a row; a size "rest" extends to the end of the axis."""
    if kernel is Slice and "size" in row["parameters"]:
        size = tuple(None if length == "rest" else length for length in row["parameters"]["size"])
        row["parameters"] = {**row["parameters"], "size": size}
    kind = {Concatenation: ConcatenationLayer, Reshape: ReshapeLayer}.get(kernel, Layer)
    if kernel is Slice and row["parameters"]["offset"][2]:
        kind = ChannelSliceLayer
    return kind.read(kernel=kernel, **row)


class ConcatenationLayer(Layer):
    """A concatenation; the channels of the source shape are those of all sources."""

    @classmethod
    def read(  # type: ignore[override]
        cls, *, batch_shape: tuple[int, int, int], channels: tuple[int, ...], **row: Any
    ) -> Self:
        """Return the layer of a row."""
        row.setdefault("parameters", {"channel_alignment": 4})
        return super().read(source_shape=(*batch_shape, sum(channels)), call={"channels": channels}, **row)

    def problem(self, method: str) -> Problem:
        """Return the problem of one of the operations."""
        problem: Problem = self.spec.problems[method](self.spec, self.source_shape[:3], self.call["channels"])
        return problem

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with as many channels a source, one more for each next one, and fewer images."""
        counts = tuple(channels + k for k in range(len(self.call["channels"])))
        return replace(super().small(sum(counts), batch), call={"channels": counts})

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with one axis of all sources longer."""
        counts = tuple(c * factor if axis == 3 else c for c in self.call["channels"])
        return replace(super().grown(axis, factor), call={"channels": counts})


class ReshapeLayer(Layer):
    """A reshape, whose size has to fit the image."""

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels and images."""
        return self._fitted(super().small(channels, batch))

    def grown(self, axis: int, factor: int) -> Self:
        """Return this layer with one axis of the image longer."""
        return self._fitted(super().grown(axis, factor))

    def _fitted(self, changed: Self) -> Self:
        assert isinstance(self.spec, Reshape)
        _, height, width, channels = changed.source_shape
        size = (1, 1, height * width * channels) if self.spec.size[0] == 1 else (height * width, 1, channels)
        return replace(changed, spec=replace(self.spec, size=size))


class ChannelSliceLayer(Layer):
    """A slice of channels, which has to fit the image."""

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with all its channels and fewer images."""
        return super().small(self.source_shape[3], batch)


READERS: dict[str, Callable[..., Layer]] = {
    "arithmetic": PairedLayer.read,
    "movement": read_movement,
}
