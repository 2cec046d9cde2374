"""Normalizations of whole channels: batch, instance, group and layer normalization, and across channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpsref import BatchNormalization, CrossChannelNormalization, GroupNormalization, InstanceNormalization
from mpsref.arguments.arrays import Array
from mpsref.conformance.audit import Check
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.operations import Problem
from mpsref_torch.auditing.layer import Layer, problem_of
from mpsref_torch.auditing.sampled import ALL, VALUES, Draw, array


class Affine(Layer):
    """A normalization with a scale and a shift for each channel."""

    def __init__(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
        given = {"x": x, "weight": weight, "bias": bias}
        self.inputs = {name: tensor for name, tensor in given.items() if tensor is not None}
        self.weight, self.bias = weight, bias
        self.kept: Array | None = None
        self.channels: list[int] = []

    def vectors(self, *names: str) -> tuple[Array, ...]:
        """Return those of scale and shift that are given, for the channels."""
        return tuple(array(self.inputs[name])[self.channels] for name in names if name in self.inputs)

    def flat(self, tensor: Tensor) -> Array:
        """Return the channels as an image of the problem."""
        part = tensor.detach()
        if len(self.channels) < part.shape[1]:
            part = part.index_select(1, part.new_tensor(self.channels).long())
        return array(part).reshape(part.shape[0], len(self.channels), -1, 1).transpose(0, 2, 3, 1)


class Grouped(Affine):
    """A normalization with its own statistics, as instance or group normalization: all images, some groups.

    In training, batch normalization is instance normalization of one image that has the pixels of the batch.
    """

    def __init__(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        spec: InstanceNormalization | GroupNormalization,
        *,
        joins_images: bool = False,
    ) -> None:
        super().__init__(x, weight, bias)
        if x.dim() < 2:
            raise UnsupportedError(f"an input of shape {tuple(x.shape)}")
        self.layer, self.joins_images = spec, joins_images
        self.size = x.shape[1] // spec.groups_in(x.shape[1])
        """Channels of a group."""

    def flat(self, tensor: Tensor) -> Array:
        found = super().flat(tensor)
        return found.reshape(1, -1, 1, found.shape[3]) if self.joins_images else found

    def _spec(self) -> Any:
        groups = len(self.channels) // self.size
        return (
            self.layer
            if isinstance(self.layer, InstanceNormalization)
            else GroupNormalization(groups, self.layer.epsilon)
        )

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        x = self.inputs["x"]
        group = self.size * (x.numel() // x.shape[1])
        chosen = draw.some(x.shape[1] // self.size, max(1, VALUES // group))
        self.channels = [one * self.size + member for one in chosen for member in range(self.size)]
        part = self.flat(x)
        self.kept = part.copy() if wanted else None
        spec = self._spec()
        problem = spec.problems["forward"](spec, part.shape, self.weight is not None, self.bias is not None)
        return [Check(problem, (part, *self.vectors("weight", "bias")), {"result": self.flat(y)})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        assert self.kept is not None
        spec, x = self._spec(), self.kept
        problem = spec.problems["gradient"](spec, x.shape, self.weight is not None)
        inputs = self.flat(g), x, *self.vectors("weight")
        of = [(k, name) for k, name in enumerate(("x", "weight", "bias")) if name in found]
        actual = {
            f"gradient for {name}": array(found[name])[self.channels] if k else self.flat(found[name]) for k, name in of
        }
        self.kept = None
        return [Check(problem, inputs, actual, tuple(k for k, _ in of))]

    def whole(self, method: str) -> Problem:
        x = self.inputs["x"]
        n, c = x.shape[:2]
        shape = (n, *((1,) * (4 - x.dim())), *x.shape[2:4], c) if x.dim() <= 4 else (n, math.prod(x.shape[2:]), 1, c)
        if self.joins_images:
            shape = (1, n * shape[1], shape[2], c)
        options = (self.weight is not None, self.bias is not None)[: 2 if method == "forward" else 1]
        return problem_of(self.layer, method, shape, *options)


class FrozenBatch(Affine):
    """Batch normalization with given statistics: some channels, all of their pixels."""

    def __init__(
        self, x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float
    ) -> None:
        super().__init__(x, weight, bias)
        self.statistics, self.layer = (mean.detach().clone(), variance.detach().clone()), BatchNormalization(epsilon)

    def _given(self) -> tuple[Array, ...]:
        return tuple(array(one)[self.channels] for one in self.statistics)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        x = self.inputs["x"]
        self.channels = draw.some(x.shape[1], max(1, VALUES // (x.numel() // x.shape[1])))
        part = self.flat(x)
        self.kept = part.copy() if wanted else None
        problem = self._problem("forward", part.shape)
        inputs = part, *self._given(), *self.vectors("weight", "bias")
        return [Check(problem, inputs, {"result": self.flat(y)})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        assert self.kept is not None
        x, source, checks = self.kept, self.flat(g), []
        if "x" in found:
            inputs = source, x, *self._given(), *self.vectors("weight")
            problem = self._problem("gradient", x.shape)
            checks.append(Check(problem, inputs, {"gradient for x": self.flat(found["x"])}))
        of = [(k, name) for k, name in ((0, "bias"), (1, "weight")) if name in found]
        if of:
            actual = {f"gradient for {name}": array(found[name])[self.channels] for _, name in of}
            problem = self._problem("statistics_gradient", x.shape)
            checks.append(Check(problem, (source, x, *self._given()), actual, tuple(k for k, _ in of)))
        self.kept = None
        return checks

    def _problem(self, method: str, shape: Any) -> Problem:
        options = {"gamma": self.weight is not None, "beta": self.bias is not None}
        return problem_of(self.layer, method, shape, **options)

    def whole(self, method: str) -> Problem:
        n, c, *size = self.inputs["x"].shape
        return self._problem(method, (n, *([*size, 1, 1][:2] if len(size) < 3 else [math.prod(size), 1]), c))


def batch(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Layer:
    """Translate ``batch_norm``."""
    if not training:
        assert running_mean is not None
        assert running_var is not None
        return FrozenBatch(input, running_mean, running_var, weight, bias, eps)
    return Grouped(input, weight, bias, InstanceNormalization(eps), joins_images=True)


def instance(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Layer:
    """Translate ``instance_norm``."""
    if not use_input_stats:
        return batch(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return Grouped(input, weight, bias, InstanceNormalization(eps))


def group(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Layer:
    """Translate ``group_norm``."""
    return Grouped(input, weight, bias, GroupNormalization(num_groups, eps))


class LayerNormalization(Grouped):
    """``layer_norm`` over the last axis: each row is an image of one pixel, with one group of channels."""

    def __init__(
        self,
        input: Tensor,
        normalized_shape: Any,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> None:
        if len(tuple(normalized_shape)) != 1 or input.dim() < 2:
            raise UnsupportedError(f"normalized_shape is {tuple(normalized_shape)}; mpsref has layers of one axis")
        if input.numel() > ALL:
            raise UnsupportedError(f"{input.numel()} elements; the gradients for weight and bias need all of them")
        super().__init__(input, weight, bias, GroupNormalization(1, eps))
        self.size = input.shape[-1]

    def flat(self, tensor: Tensor) -> Array:
        return array(tensor).reshape(-1, 1, 1, tensor.shape[-1])

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        self.channels = list(range(self.size))
        part = self.flat(self.inputs["x"])
        self.kept = part.copy() if wanted else None
        problem = self.layer.problems["forward"](self.layer, part.shape, self.weight is not None, self.bias is not None)
        return [Check(problem, (part, *self.vectors("weight", "bias")), {"result": self.flat(y)})]

    def whole(self, method: str) -> Problem:
        shape = (self.inputs["x"].numel() // self.size, 1, 1, self.size)
        options = (self.weight is not None, self.bias is not None)[: 2 if method == "forward" else 1]
        return problem_of(self.layer, method, shape, *options)


class AcrossChannels(Layer):
    """``local_response_norm``: some pixels, all of their channels."""

    def __init__(self, input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.inputs, self.layer = {"x": input}, CrossChannelNormalization(size, alpha, beta, k)
        self.shape = tuple(input.shape)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        lead = (self.shape[0], *self.shape[2:])
        self.index = draw.positions(lead, max(2, VALUES // self.shape[1]))
        part = self._pixels(self.inputs["x"])
        self.kept = part.copy()
        problem = self.layer.problems["forward"](self.layer, part.shape)
        return [Check(problem, (part,), {"result": self._pixels(y)})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        problem = self.layer.problems["gradient"](self.layer, self.kept.shape)
        return [Check(problem, (self._pixels(g), self.kept), {"gradient for x": self._pixels(found["x"])})]

    def _pixels(self, tensor: Tensor) -> Array:
        return rows(tensor, 1, self.index)

    def whole(self, method: str) -> Problem:
        n, c, *size = self.shape
        return problem_of(self.layer, method, (n, *[*size, 1, 1][:2], c))


def rows(tensor: Tensor, axis: int, index: tuple[Any, ...]) -> Array:
    """Return all elements along an axis at some positions of the other axes, as an image (positions, 1, 1, C)."""
    moved = tensor.detach().movedim(axis, -1)
    picked = moved[tuple(moved.new_tensor(np.asarray(one)).long() for one in index)] if index else moved[None]
    return array(picked)[:, None, None]
