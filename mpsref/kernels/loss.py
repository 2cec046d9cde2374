"""Losses: a number for each element or image that says how far predictions are from labels, and its gradients.

Forward          ``v = W l(y, t)``, or the sum of v over each image, divided as the reduction says
Gradient         ``dy = g W dl/dy``: that of the sum, whatever the reduction is [doc]
Gradient labels  ``dt = g W dl/dt``, 0 in channels of the labels that the predictions do not have

``W`` is ``weight``, times the weights image where there is one. To train on a mean, put the divisor into ``weight``.
The formulas of l are in :mod:`mpsref.kernels.loss_formulas`.

Source: MPSCNNLoss, MPSNNForwardLoss, MPSNNLossGradient in ``MPSCNNLoss.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, ImageShape
from mpsref.arguments.parameters import flag, integer, named, number
from mpsref.errors import ShapeError
from mpsref.kernels import loss_bounds, loss_domains
from mpsref.kernels.loss_formulas import LOSS_TYPES, evaluate, weighted
from mpsref.kernels.loss_problems import LossForward, LossGradient, LossGradientLabels
from mpsref.kernels.posing import posed
from mpsref.operations import Declaration, Formula, OperationKey

REDUCTIONS = ("none", "sum", "mean", "sumbynonzeroweights")
"""By the lower-case name, in the order of Apple's numbers."""


class Loss(operations.Spec):
    """A loss of one of ten types.

    ``type`` is one of LOSS_TYPES, ``reduction`` one of REDUCTIONS, by name or by Apple's number; "cosinedistance" takes
    the reduction "sum" alone. ``weight`` is any finite number; ``label_smoothing`` in [0, 1] and
    ``number_of_classes`` >= 1 count in the two cross entropies of logits, ``epsilon`` >= 0 in "log", ``delta`` > 0 in
    "huber".

    >>> loss = Loss("meansquarederror")
    >>> y = np.array([1, 2, 3], np.float32).reshape(1, 1, 1, 3)
    >>> t = np.array([1, 0, 5], np.float32).reshape(1, 1, 1, 3)
    >>> loss.forward(y, t).tolist()
    [[[[8.0]]]]
    >>> loss.gradient(None, y, t).ravel().tolist()
    [0.0, 4.0, -4.0]
    """

    type: str = field(metadata={"codec": codecs.word(*LOSS_TYPES)})
    reduction: str = field(default="sum", metadata={"codec": codecs.word(*REDUCTIONS)})
    reduce_across_batch: bool = field(default=False, metadata={"codec": codecs.flag("across", "each")})
    weight: float = field(default=1.0, metadata={"codec": codecs.number("w")})
    label_smoothing: float = field(default=0.0, metadata={"codec": codecs.number("ls")})
    number_of_classes: int = field(default=1, metadata={"codec": codecs.integer("classes")})
    epsilon: float = field(default=1e-7, metadata={"codec": codecs.number("eps")})
    delta: float = field(default=1.0, metadata={"codec": codecs.number("delta")})

    problems: ClassVar = {"forward": LossForward, "gradient": LossGradient, "gradient_labels": LossGradientLabels}

    def __post_init__(self) -> None:
        """Check every parameter."""
        checked = {
            "type": named("type", self.type, LOSS_TYPES),
            "reduction": named("reduction", self.reduction, REDUCTIONS),
            "reduce_across_batch": flag("reduce_across_batch", self.reduce_across_batch),
            "weight": number("weight", self.weight),
            "label_smoothing": number("label_smoothing", self.label_smoothing, 0, 1),
            "number_of_classes": integer("number_of_classes", self.number_of_classes, low=1),
            "epsilon": number("epsilon", self.epsilon, 0),
            "delta": number("delta", self.delta, 0, above=True),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.type == "cosinedistance" and self.reduction != "sum":
            raise ValueError(
                f"reduction is {self.reduction!r}; it must be 'sum' for the loss type 'cosinedistance', which is one "
                "number an image"
            )

    def loss_shape(self, shape: ImageShape) -> ImageShape:
        """Return the shape of the loss image for predictions of ``shape``."""
        return shape if self.reduction == "none" else (shape[0], 1, 1, 1)

    def forward(
        self, y: Any, t: Any, weights: Any = None, *, validate: bool = False, out: Any = None, backend: Any = None
    ) -> Array:
        """Return the loss image of predictions ``y`` and labels ``t``, in the dtype of ``y``.

        Its shape is (N, 1, 1, 1), for the reduction "none" (N, H, W, C). Labels and ``weights`` are images like ``y``;
        they may have more channels, which are ignored. ``validate`` demands values in the domain of the loss type
        (``ValueError``); without it values outside give what IEEE 754 makes of them.
        """
        inputs, shared = self._inputs(y, t, weights, validate)
        problem = posed(LossForward, self, inputs[0].shape, *shared)
        return registry.run_one(problem, *inputs, out=out, backend=backend)

    def gradient(
        self,
        g: Any,
        y: Any,
        t: Any,
        weights: Any = None,
        *,
        validate: bool = False,
        out: Any = None,
        backend: Any = None,
    ) -> Array:
        """Return dL/dy from the source gradient ``g``, which has the shape of the loss image; ``None`` is all ones.

        The reduction does not divide it. Across the batch ``g`` of image 0 holds for all. The dtype is that of ``g``.
        """
        return self._gradient(LossGradient, g, (y, t, weights), validate, out, backend)

    def gradient_labels(
        self,
        g: Any,
        y: Any,
        t: Any,
        weights: Any = None,
        *,
        validate: bool = False,
        out: Any = None,
        backend: Any = None,
    ) -> Array:
        """Return dL/dt, in the shape of ``t``; otherwise as :meth:`gradient`."""
        return self._gradient(LossGradientLabels, g, (y, t, weights), validate, out, backend)

    def _gradient(
        self,
        kind: Callable[..., LossGradient],
        g: Any,
        read: tuple[Any, Any, Any],
        validate: bool,
        out: Any,
        backend: Any,
    ) -> Array:
        inputs, shared = self._inputs(*read, validate)
        problem = posed(kind, self, inputs[0].shape, *shared, g is not None)
        if g is not None:
            g = arrays.as_image("g", g)
            if g.shape != problem.input_shapes["g"]:
                raise ShapeError(
                    f"g has shape {g.shape}; with the reduction {self.reduction!r} and y of shape {inputs[0].shape} it "
                    f"must be {problem.input_shapes['g']}, that of the loss image"
                )
            inputs = (g, *inputs)
        return registry.run_one(problem, *inputs, out=out, backend=backend)

    def _inputs(self, y: Any, t: Any, weights: Any, validate: bool) -> tuple[tuple[Array, ...], tuple[int, bool]]:
        """Return the arrays that are read, and two fields of the problem: label_channels and weighted."""
        y, t = arrays.as_image("y", y), arrays.as_image("t", t)
        read = {"t": t} if weights is None else {"t": t, "weights": arrays.as_image("weights", weights)}
        for name, array in read.items():
            if array.shape[:3] != y.shape[:3] or array.shape[3] < y.shape[3]:
                raise ShapeError(
                    f"{name} has shape {array.shape} and y has shape {y.shape}; N, H and W must be equal, and {name} "
                    "must have at least as many channels"
                )
        if validate:
            loss_domains.check(self.type, y, t[..., : y.shape[3]])
        inputs = (y, t) if weights is None else (y, t, read["weights"][..., : y.shape[3]])
        return inputs, (t.shape[3], weights is not None)


def forward(problem: LossForward, y: Array, t: Array, weights: Array | None = None) -> Array:
    """v = W l, or the sum of v over each image, divided as the reduction says."""
    v = weighted(problem, evaluate(problem, "element", y, t), weights)
    return v if problem.spec.reduction == "none" else problem.loss_image(v.sum(axis=(1, 2, 3)), weights)


def gradient(problem: LossGradient, *inputs: Array) -> Array:
    """dy = g W dl/dy."""
    return chained(problem, "slope", *inputs)


def gradient_labels(problem: LossGradientLabels, *inputs: Array) -> Array:
    """dt = g W dl/dt, 0 in channels that y does not have."""
    dt = chained(problem, "label_slope", *inputs)
    channels = problem.source_shape[3]
    return np.pad(dt, ((0, 0), (0, 0), (0, 0), (0, problem.label_channels - channels)))


def chained(problem: LossGradient, derivative: str, *inputs: Array) -> Array:
    """Return the weighted derivative, times the source gradient where there is one."""
    g, y, t, weights = problem.named_inputs(inputs)
    values = weighted(problem, evaluate(problem, derivative, y, t), weights)
    return values if g is None else problem.source_gradient(g) * values


SPECS: tuple[type[operations.Spec], ...] = (Loss,)
REFERENCE: dict[OperationKey, Formula] = {
    (Loss, "forward"): forward,
    (Loss, "gradient"): gradient,
    (Loss, "gradient_labels"): gradient_labels,
}
TERMS: dict[OperationKey, Formula] = {
    (Loss, "forward"): loss_bounds.forward_terms,
    (Loss, "gradient"): loss_bounds.gradient_terms,
    (Loss, "gradient_labels"): loss_bounds.gradient_terms,
}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
