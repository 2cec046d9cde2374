"""Losses of PyTorch, an element each; the sum of each image is its reduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mpsref import Loss
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_torch.run import Function, Tensor, Torch, like

FUNCTIONS: Mapping[str, Callable[[Any, Loss], Function]] = {
    "meanabsoluteerror": lambda f, loss: lambda y, t: f.l1_loss(y, t, reduction="none"),
    "meansquarederror": lambda f, loss: lambda y, t: f.mse_loss(y, t, reduction="none"),
    "huber": lambda f, loss: lambda y, t: f.huber_loss(y, t, reduction="none", delta=loss.delta),
    "kullbackleiblerdivergence": lambda f, loss: lambda y, t: f.kl_div(y, t, reduction="none"),
    "sigmoidcrossentropy": lambda f, loss: (
        lambda y, t: f.binary_cross_entropy_with_logits(y, _smoothed(loss, t), reduction="none")
    ),
    "softmaxcrossentropy": lambda f, loss: (
        lambda y, t: f.cross_entropy(y, _smoothed(loss, t), reduction="none")[:, None]
    ),
}


def _smoothed(loss: Loss, t: Tensor) -> Tensor:
    """Return smoothed labels; the smoothing of PyTorch takes the number of channels for that of the classes."""
    scale, shift = loss.smoothing
    return t if loss.label_smoothing == 0 else scale * t + shift


def _function(torch: Torch, problem: Any, *, reduces: bool) -> Function:
    """Return the loss image as a function of y, t and weights."""
    spec = problem.spec
    if spec.type not in FUNCTIONS:
        raise UnsupportedError(f"PyTorch has no loss {spec.type!r} with the parameters of MPS")
    if problem.weighted and spec.type == "softmaxcrossentropy":
        raise UnsupportedError("cross_entropy of PyTorch has weights of classes, not of elements")
    if spec.type == "softmaxcrossentropy" and spec.reduction == "none":
        raise UnsupportedError("cross_entropy of PyTorch has one loss for each pixel, not for each channel")
    element = FUNCTIONS[spec.type](torch.functional, spec)
    channels, weight = problem.source_shape[3], spec.weight

    def loss_image(y: Tensor, t: Tensor, *weights: Tensor) -> Tensor:
        v = element(y, t[:, :channels]) * weight
        for factors in weights:
            v = v * factors
        return v.flatten(1).sum(1)[:, None, None, None] if reduces else v

    return loss_image


def forward(torch: Torch, problem: Any, y: Array, t: Array, *weights: Array, out: Array) -> None:
    reduces = problem.spec.reduction != "none"
    v = torch(_function(torch, problem, reduces=reduces), y, t, *weights)
    out[...] = problem.loss_image(v[:, 0, 0, 0].astype(np.float64), *(weights or [None])) if reduces else v


def _gradients(torch: Torch, problem: Any, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
    g, y, t, weights = problem.named_inputs(inputs)
    if problem.spec.type == "softmaxcrossentropy" and problem.method == "gradient":
        scale, shift = problem.spec.smoothing
        sums = (scale * t[..., : y.shape[3]].astype(np.float64) + shift).sum(axis=3)
        if not np.allclose(sums, 1, atol=1e-6):
            raise UnsupportedError("the labels do not sum to 1, as the gradient of MPS assumes and PyTorch's does not")
    reduces = problem.spec.reduction != "none"
    upstream = like(y, problem.loss_shape) + 1 if g is None else problem.source_gradient(g)
    function = _function(torch, problem, reduces=reduces)
    given = [one for one in (y, t, weights) if one is not None]
    return torch.gradients(function, given, np.array(upstream, y.dtype), count=2)


def gradient(torch: Torch, problem: Any, *inputs: Array, out: Array) -> None:
    out[...] = _gradients(torch, problem, inputs)[0]


def gradient_labels(torch: Torch, problem: Any, *inputs: Array, out: Array) -> None:
    out[...] = _gradients(torch, problem, inputs)[1]


IMPLEMENTATIONS = {
    (Loss, "forward"): forward,
    (Loss, "gradient"): gradient,
    (Loss, "gradient_labels"): gradient_labels,
}
