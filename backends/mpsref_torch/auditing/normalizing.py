"""Normalizations of whole channels: batch, instance, group and layer normalization, and across channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from mpsref import BatchNormalization, CrossChannelNormalization, GroupNormalization, InstanceNormalization
from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.operations import Problem
from mpsref_torch.auditing.formulas import Normalized, of_rows
from mpsref_torch.auditing.layer import Rows, Sampled, Translated, image_shape, problem_of
from mpsref_torch.auditing.sampled import ALL, VALUES, Draw, array, positions_on


class Affine(Sampled):
    """A normalization with a scale and a shift for each channel."""

    def given(self) -> dict[str, Array]:
        parameters = {"gamma": self.inputs.get("weight"), "beta": self.inputs.get("bias")}
        given = {name: array(tensor)[self.channels] for name, tensor in parameters.items() if tensor is not None}
        return super().given() | given

    def part(self, tensor: Tensor) -> Array:
        part = tensor.detach()
        if len(self.channels) < part.shape[1]:
            part = part.index_select(1, positions_on(part, self.channels))
        return array(part).reshape(part.shape[0], len(self.channels), -1, 1).transpose(0, 2, 3, 1)


class Grouped(Affine):
    """A normalization with its own statistics, as instance or group normalization: all images, some groups.

    In training, batch normalization is instance normalization of one image that has the pixels of the batch.
    """

    GRADIENTS: ClassVar = {"gradient": ("x", "weight", "bias")}

    def __init__(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        spec: InstanceNormalization | GroupNormalization,
        *,
        joins_images: bool = False,
        running: Sequence[Tensor | None] = (),
    ) -> None:
        super().__init__(x, spec, weight=weight, bias=bias)
        names = zip(("mean", "variance"), running, strict=False)
        self.fixed = {name: tensor for name, tensor in names if tensor is not None}
        if x.dim() < 2:
            raise UnsupportedError(f"an input of shape {self.shape}")
        self.joins_images = joins_images
        self.size = x.shape[1] // spec.groups_in(x.shape[1])
        """Channels of a group."""

    def choose(self, draw: Draw) -> None:
        group = self.size * (math.prod(self.shape) // self.shape[1])
        chosen = draw.some(self.shape[1] // self.size, max(1, VALUES // group))
        self.channels = [one * self.size + member for one in chosen for member in range(self.size)]

    def part(self, tensor: Tensor) -> Array:
        found = super().part(tensor)
        return found.reshape(1, -1, 1, found.shape[3]) if self.joins_images else found

    def problem(self, method: str, shape: Shape) -> Problem:
        spec = self.layer
        if isinstance(spec, GroupNormalization):
            spec = replace(spec, groups=shape[3] // self.size)
        options = ("weight" in self.inputs, "bias" in self.inputs)[: 2 if method == "forward" else 1]
        return problem_of(spec, method, shape, *options)

    @property
    def count(self) -> int:
        """Elements of a mean."""
        images = self.shape[0] if self.joins_images else 1
        return int(self.size * math.prod(self.shape[2:]) * images)

    def repeated(self, generator: Any) -> Translated:
        n, c = self.shape[:2]
        pixels = math.prod(self.shape[2:])
        if self.joins_images:
            arranged, axes = (n, c, 1, pixels), (0, 3)
        else:
            arranged, axes = (n, c // self.size, self.size, pixels), (2, 3)
        weight, bias = self.inputs.get("weight"), self.inputs.get("bias")
        return Normalized(self.inputs["x"], weight, bias, self.layer.epsilon, arranged, axes).repeated(generator)

    def whole(self, method: str) -> Problem:
        n, height, width, c = image_shape(self.shape)
        return self.problem(method, (1, n * height, width, c) if self.joins_images else (n, height, width, c))


class FrozenBatch(Affine):
    """Batch normalization with given statistics: some channels, all of their pixels."""

    GRADIENTS: ClassVar = {"gradient": ("x",), "statistics_gradient": ("bias", "weight")}

    def __init__(
        self, x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float
    ) -> None:
        super().__init__(x, BatchNormalization(epsilon), weight=weight, bias=bias)
        self.fixed = {"mean": mean, "variance": variance}  # 0 and 1 when the call is run again
        self.statistics = {"mean": mean.detach().clone(), "variance": variance.detach().clone()}

    def choose(self, draw: Draw) -> None:
        self.channels = draw.some(self.shape[1], max(1, VALUES // (math.prod(self.shape) // self.shape[1])))

    def given(self) -> dict[str, Array]:
        return super().given() | {name: array(one)[self.channels] for name, one in self.statistics.items()}

    def repeated(self, generator: Any) -> Translated:
        """Return the layer with means of 0 and variances of 1."""
        n, c, *pixels = self.shape
        weight, bias, arranged = self.inputs.get("weight"), self.inputs.get("bias"), (n, c, 1, math.prod(pixels))
        found = Normalized(self.inputs["x"], weight, bias, self.layer.epsilon, arranged, (0, 3))
        found.statistics = 0.0, 1.0
        return found.repeated(generator)

    def problem(self, method: str, shape: Shape) -> Problem:
        return problem_of(self.layer, method, shape, gamma="weight" in self.inputs, beta="bias" in self.inputs)


def batch(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Translated:
    """Translate ``batch_norm``."""
    if not training:
        assert running_mean is not None
        assert running_var is not None
        return FrozenBatch(input, running_mean, running_var, weight, bias, eps)
    running = running_mean, running_var
    return Grouped(input, weight, bias, InstanceNormalization(eps), joins_images=True, running=running)


def instance(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Translated:
    """Translate ``instance_norm``."""
    if not use_input_stats:
        return batch(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return Grouped(input, weight, bias, InstanceNormalization(eps), running=(running_mean, running_var))


def group(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Translated:
    """Translate ``group_norm``."""
    return Grouped(input, weight, bias, GroupNormalization(num_groups, eps))


def layer(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Translated:
    """Translate ``layer_norm``."""
    shape = tuple(normalized_shape)
    if len(shape) == 1 and input.dim() > 1 and input.numel() <= ALL // 4:
        return LayerNormalization(input, weight, bias, eps)
    return of_rows(input, shape, weight, bias, eps, centered=True)


class LayerNormalization(Grouped):
    """``layer_norm`` over the last axis: each row is an image of one pixel, with one group of channels."""

    def __init__(self, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> None:
        super().__init__(input, weight, bias, GroupNormalization(1, eps))
        self.size = input.shape[-1]

    @property
    def count(self) -> int:
        return int(self.size)

    def repeated(self, generator: Any) -> Translated:
        inputs = self.inputs
        options = inputs["x"], (self.size,), inputs.get("weight"), inputs.get("bias"), self.layer.epsilon
        return of_rows(*options, centered=True).repeated(generator)

    def choose(self, draw: Draw) -> None:
        self.channels = list(range(self.size))

    def part(self, tensor: Tensor) -> Array:
        return array(tensor).reshape(-1, 1, 1, self.size)

    def whole(self, method: str) -> Problem:
        return self.problem(method, (math.prod(self.shape) // self.size, 1, 1, self.size))


class AcrossChannels(Rows):
    """``local_response_norm``: some pixels, all of their channels."""

    def __init__(self, input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__(input, CrossChannelNormalization(size, alpha, beta, k), 1)
