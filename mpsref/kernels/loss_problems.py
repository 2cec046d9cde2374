"""Calls of a loss without the pixels: which images there are, of which shapes, and what sums are divided by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from mpsref import codecs, operations
from mpsref.arguments.arrays import Array, ImageShape, Shape
from mpsref.arguments.parameters import integer
from mpsref.errors import ShapeError
from mpsref.kernels import loss_domains
from mpsref.kernels.loss_formulas import FORMULAS, LossFormula

if TYPE_CHECKING:
    from mpsref.kernels.loss import Loss


class LossProblem(operations.ImageProblem):
    """An operation on predictions y (N, H, W, C) and labels t (N, H, W, ``label_channels``), of which C are read."""

    spec: Loss
    label_channels: int = field(default=cast(int, None), metadata={"codec": codecs.integer("t")})
    weighted: bool = field(default=False, metadata={"codec": codecs.flag("weighted", "unweighted")})
    """Whether there is a weights image, (N, H, W, C)."""

    def __post_init__(self) -> None:
        """Check the shapes; ``label_channels=None`` is as many as the predictions have."""
        super().__post_init__()
        channels = self.source_shape[3]
        label_channels = channels if self.label_channels is None else integer("label_channels", self.label_channels)
        if label_channels < channels:
            raise ShapeError(
                f"t has {label_channels} channels and y has {channels}; the labels need at least as many (more are "
                "ignored)"
            )
        object.__setattr__(self, "label_channels", label_channels)
        if self.weighted and self.spec.type == "cosinedistance":
            raise ValueError(
                "weights are given with the loss type 'cosinedistance'; it has one weight an image: pass None"
            )

    @property
    def formula(self) -> LossFormula:
        """What the loss type computes."""
        return FORMULAS[self.spec.type]

    @property
    def label_shape(self) -> ImageShape:
        """The shape of the labels."""
        return (*self.source_shape[:3], self.label_channels)

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """Predictions, labels, and the weights where there are any."""
        weights = {"weights": self.source_shape} if self.weighted else {}
        return {"y": self.source_shape, "t": self.label_shape, **weights}

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Move predictions and labels to where the loss is defined and the decisions at kinks are exact."""
        return loss_domains.legal(self.spec.type, self.method, drawn)

    def where(self, index: tuple[int, ...]) -> str:
        """Name the image, or the pixel and the channel."""
        n, row, column, channel = index
        return (
            f"image {n}" if self.spec.reduction != "none" else f"image {n}, pixel ({row}, {column}), channel {channel}"
        )


class LossForward(LossProblem):
    """``forward``: the loss image, (N, 1, 1, 1), or (N, H, W, C) where nothing is reduced."""

    method: ClassVar[str] = "forward"

    @property
    def result_shapes(self) -> tuple[ImageShape]:
        """The loss image."""
        return (self.spec.loss_shape(self.source_shape),)

    def divisors(self, weights: Array | None) -> Array:
        """Return what the sum of each image is divided by, (N,); 0 where the result is 0.

        Across the batch it is one number for all, in element 0.
        """
        n, height, width, channels = self.source_shape
        pixels = height * width
        counts = np.ones(n)
        if self.spec.reduction == "mean":
            counts *= pixels if self.formula.over_channels else pixels * channels
        elif self.spec.reduction == "sumbynonzeroweights":
            every = pixels * channels if self.spec.weight else 0
            counts *= every if weights is None else np.count_nonzero(weights, axis=(1, 2, 3))
        if self.spec.reduce_across_batch and self.spec.reduction != "sum":
            counts[:1] = counts.sum()
        return counts

    def loss_image(self, sums: Array, weights: Array | None) -> Array:
        """Return the loss image (N, 1, 1, 1) from the sum of v over each image, (N,)."""
        loss = self.spec
        if loss.type == "cosinedistance":
            sums = loss.weight + sums  # the loss of an image is 1 - sum of y t
        if loss.reduce_across_batch:
            sums = sums.sum(keepdims=True)
        if loss.reduction != "sum":  # which divides by 1
            divisors = self.divisors(weights)[: len(sums)]
            sums = np.divide(sums, divisors, out=np.zeros_like(sums), where=divisors > 0)
        image = np.zeros(self.result_shapes[0], sums.dtype)
        image[: len(sums), 0, 0, 0] = sums
        return image


class LossGradient(LossProblem):
    """``gradient``: dy, like y, from the source gradient g where there is one, y, t and weights."""

    method: ClassVar[str] = "gradient"
    chained: bool = field(default=False, metadata={"codec": codecs.flag("chained", "unchained")})
    """Whether there is a source gradient g; without one it is 1."""

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient, then what the forward pass reads."""
        own = {"g": self.spec.loss_shape(self.source_shape)} if self.chained else {}
        return {**own, **super().input_shapes}

    @property
    def result_shapes(self) -> tuple[ImageShape]:
        """The gradient of the predictions."""
        return (self.source_shape,)

    def named_inputs(self, inputs: Sequence[Array]) -> tuple[Array | None, Array, Array, Array | None]:
        """Return g, y, t and weights, ``None`` for what is not there."""
        found = dict(zip(self.input_shapes, inputs, strict=True))
        return found.get("g"), found["y"], found["t"], found.get("weights")

    def source_gradient(self, g: Array) -> Array:
        """Return what of ``g`` belongs to each image: with a reduction across the batch, the value of image 0."""
        across = self.spec.reduce_across_batch and self.spec.reduction != "none"
        return np.broadcast_to(g[:1], g.shape) if across else g


class LossGradientLabels(LossGradient):
    """``gradient_labels``: dt, like t; otherwise as ``gradient``."""

    method: ClassVar[str] = "gradient_labels"

    @property
    def result_shapes(self) -> tuple[ImageShape]:
        """The gradient of the labels."""
        return (self.label_shape,)
