"""Normalizations of whole channels: batch, instance, group and layer normalization, and across channels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from mpsref import BatchNormalization, CrossChannelNormalization, GroupNormalization, InstanceNormalization
from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.operations import Problem
from mpsref_torch.auditing.formulas import Normalized, of_rows
from mpsref_torch.auditing.layer import Rows, Sampled, Translated, image_shape, problem_of
from mpsref_torch.auditing.sampled import ALL, Draw, array


class ByKernel(Sampled):
    """A normalization that a kernel of mpsref computes, on the part that its formula takes; that runs it again.

    In training, batch normalization is instance normalization of one image that has the pixels of the batch.
    """

    def __init__(
        self,
        formula: Normalized,
        spec: InstanceNormalization | GroupNormalization | BatchNormalization,
        *,
        joins_images: bool = False,
        fixed: Mapping[str, Tensor | None] = MappingProxyType({}),
    ) -> None:
        super().__init__(layer=spec, **formula.inputs)
        self.formula, self.joins_images = formula, joins_images
        self.fixed = {name: tensor for name, tensor in fixed.items() if tensor is not None}
        self.is_given = isinstance(spec, BatchNormalization)
        """Whether the statistics are; 0 and 1 when the call is run again."""
        self.statistics = {name: one.detach().clone() for name, one in self.fixed.items()} if self.is_given else {}
        if not self.is_given:
            self.count = formula.count
        self.of_rows = formula.own == (3,)
        self.GRADIENTS = OF_GIVEN if self.is_given else OF_OWN  # type: ignore[misc]

    def release(self) -> None:
        super().release()
        self.formula.release()

    def choose(self, draw: Draw) -> None:
        self.formula.choose(draw)

    def part(self, tensor: Tensor) -> Array:
        found = self.formula.of("x", tensor)
        if self.of_rows:
            return found
        n, groups, size, pixels = found.shape
        if self.joins_images:
            found = found.transpose(1, 2, 0, 3)
            n, pixels = 1, n * pixels
        # Pixels stay one behind the other in memory: most steps are along them.
        return found.reshape(n, groups * size, pixels, 1).transpose(0, 2, 3, 1)

    def given(self) -> dict[str, Array]:
        names = {"weight": "gamma", "bias": "beta"}
        given = {names[name]: self._of_input(name, one) for name, one in self.inputs.items() if name in names}
        given |= {name: array(one)[self.formula.some] for name, one in self.statistics.items()}
        return super().given() | given

    def _of_input(self, name: str, tensor: Tensor) -> Array:
        return self.part(tensor) if name == "x" else self.formula.of(name, tensor).ravel()

    def problem(self, method: str, shape: Shape) -> Problem:
        spec, scaled, shifted = self.layer, "weight" in self.inputs, "bias" in self.inputs
        if self.is_given:
            return problem_of(spec, method, shape, gamma=scaled, beta=shifted)
        if isinstance(spec, GroupNormalization):
            spec = replace(spec, groups=shape[3] // self.formula.arranged[3 if self.of_rows else 2])
        return problem_of(spec, method, shape, *(scaled, shifted)[: 2 if method == "forward" else 1])

    def repeated(self, generator: Any) -> Translated:
        return self.formula.repeated(generator)

    def whole(self, method: str) -> Problem:
        n, height, width, c = self.formula.arranged if self.of_rows else image_shape(self.shape)
        return self.problem(method, (1, n * height, width, c) if self.joins_images else (n, height, width, c))


OF_OWN: dict[str, tuple[str, ...]] = {"gradient": ("x", "weight", "bias")}
OF_GIVEN: dict[str, tuple[str, ...]] = {"gradient": ("x",), "statistics_gradient": ("bias", "weight")}


def _of_channels(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    spec: InstanceNormalization | GroupNormalization | BatchNormalization,
    mean: Tensor | None = None,
    variance: Tensor | None = None,
    *,
    joins_images: bool = False,
) -> Translated:
    """Return a normalization of channels: all images, some groups."""
    if x.dim() < 2:
        raise UnsupportedError(f"an input of shape {tuple(x.shape)}")
    (n, c), pixels = x.shape[:2], math.prod(x.shape[2:])
    size = 1 if isinstance(spec, BatchNormalization) else c // spec.groups_in(c)
    is_given = isinstance(spec, BatchNormalization)
    axes = (0, 3) if joins_images or is_given else (2, 3)
    formula = Normalized(x, weight, bias, spec.epsilon, (n, c // size, size, pixels), axes)
    formula.statistics = (0.0, 1.0) if is_given else None
    return ByKernel(formula, spec, joins_images=joins_images, fixed={"mean": mean, "variance": variance})


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
    spec = InstanceNormalization(eps) if training else BatchNormalization(eps)
    return _of_channels(input, weight, bias, spec, running_mean, running_var, joins_images=training)


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
    return _of_channels(input, weight, bias, InstanceNormalization(eps), running_mean, running_var)


def group(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Translated:
    """Translate ``group_norm``."""
    return _of_channels(input, weight, bias, GroupNormalization(num_groups, eps))


def layer(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Translated:
    """Translate ``layer_norm``."""
    formula = of_rows(input, tuple(normalized_shape), weight, bias, eps, centered=True)
    if len(normalized_shape) == 1 and input.dim() > 1 and input.numel() <= ALL // 4:
        return ByKernel(formula, GroupNormalization(1, eps))
    return formula


class AcrossChannels(Rows):
    """``local_response_norm``: some pixels, all of their channels."""

    def __init__(self, input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__(input, CrossChannelNormalization(size, alpha, beta, k), 1)
