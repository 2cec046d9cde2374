"""How PyTorch spells dropout with a given mask, the losses, and steps of the optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mpsref.arguments.arrays import Array
from mpsref.bench.pytorch import Call, Spelling, nchw
from mpsref.kernels import Adam, Dropout, Loss, RMSProp, StochasticGradientDescent
from mpsref.registry import Spec

__all__ = ["SPELLINGS"]

Outs = tuple[Array, ...] | None


def dropout(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: Outs) -> Call | None:
    """Return the product with mask and scale, both ways that of PyTorch's gradient; no other draws the same mask."""
    if problem.method == "mask":
        return None
    image, mask = nchw(torch, inputs[0]), nchw(torch, inputs[1]).bool()
    scale = float(problem.spec.scale)
    backward = torch.ops.aten.native_dropout_backward
    if not outs:
        return lambda: backward(image, mask, scale)
    out = nchw(torch, outs[0])
    return lambda: backward.out(image, mask, scale, out=out)


def loss(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: Outs) -> Call | None:
    """Return a loss of PyTorch's or its gradient by predictions, with the weight 1 and nothing before or after it."""
    spec = problem.spec
    plain = spec.weight == 1 and not problem.weighted and problem.label_channels == problem.source_shape[3]
    if not plain or spec.reduce_across_batch or getattr(problem, "chained", False):
        return None
    y, t = (nchw(torch, array) for array in inputs)
    if problem.method == "forward":
        each = _elements(torch, spec, problem.source_shape[3], y, t)
        if each is None or spec.reduction not in ("none", "sum"):
            return None
        if spec.reduction == "none":
            return each if spec.type != "softmaxcrossentropy" else None
        return lambda: each().reshape(len(y), -1).sum(1).reshape(-1, 1, 1, 1)
    return _slopes(torch, spec, y, t) if problem.method == "gradient" else None


def _elements(torch: Any, spec: Loss, channels: int, y: Any, t: Any) -> Call | None:
    """Return the losses of all elements, of all pixels for softmax."""
    functional = torch.nn.functional
    smoothed = {"label_smoothing": spec.label_smoothing}
    calls: dict[str, Call] = {
        "meanabsoluteerror": lambda: functional.l1_loss(y, t, reduction="none"),
        "meansquarederror": lambda: functional.mse_loss(y, t, reduction="none"),
        "huber": lambda: functional.huber_loss(y, t, reduction="none", delta=spec.delta),
        "kullbackleiblerdivergence": lambda: functional.kl_div(y, t, reduction="none"),
        "softmaxcrossentropy": lambda: functional.cross_entropy(y, t, reduction="none", **smoothed),
        "sigmoidcrossentropy": lambda: functional.binary_cross_entropy_with_logits(y, t, reduction="none"),
    }
    same_classes = spec.type == "softmaxcrossentropy" and spec.number_of_classes == channels
    return calls.get(spec.type) if not spec.label_smoothing or same_classes else None


def _slopes(torch: Any, spec: Loss, y: Any, t: Any) -> Call | None:
    """Return the gradient of the sum."""
    if spec.label_smoothing:
        return None
    aten, one, summed = torch.ops.aten, torch.ones(()), 2
    calls: dict[str, Call] = {
        "meanabsoluteerror": lambda: torch.sub(y, t).sign_(),
        "meansquarederror": lambda: aten.mse_loss_backward(one, y, t, summed),
        "huber": lambda: aten.huber_loss_backward(one, y, t, summed, spec.delta),
        "softmaxcrossentropy": lambda: torch.softmax(y, 1).sub_(t),
        "sigmoidcrossentropy": lambda: torch.sigmoid(y).sub_(t),
    }
    return calls.get(spec.type)


def optimizer(step: Callable[..., Any]) -> Spelling:
    """Return a spelling of ``step(torch, problem, gradient, value, *moments)``, the formulas of ``torch.optim``."""

    def spell(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: Outs) -> Call | None:
        spec = problem.spec
        if spec.apply_gradient_clipping or spec.gradient_rescale != 1 or spec.regularization_type == "l1":
            return None
        gradient, value, *moments = (
            nchw(torch, array) if array.ndim == 4 else torch.from_numpy(array) for array in inputs
        )
        decay = spec.regularization_scale if spec.regularization_type == "l2" else 0

        def call() -> Any:
            used = gradient.add(value, alpha=decay) if decay else gradient
            return step(torch, problem, used, value, *moments)

        return call

    return spell


def sgd(torch: Any, problem: Any, gradient: Any, value: Any, *moments: Any) -> Any:
    """Return the new values, and the new momentum where there is one."""
    spec = problem.spec
    if not moments:
        return value.add(gradient, alpha=-spec.learning_rate)
    share = 1 if spec.use_nesterov_momentum else spec.learning_rate
    m = moments[0].mul(spec.momentum_scale).add_(gradient, alpha=share)
    if not spec.use_nesterov_momentum:
        return value - m, m
    return value.add(gradient.add(m, alpha=spec.momentum_scale), alpha=-spec.learning_rate), m


def rmsprop(torch: Any, problem: Any, gradient: Any, value: Any, s: Any) -> Any:
    """Return the new values and sums of squares."""
    spec = problem.spec
    s = s.mul(spec.decay).addcmul_(gradient, gradient, value=1 - spec.decay)
    return value.addcdiv(gradient, s.sqrt().add_(spec.epsilon), value=-spec.learning_rate), s


def adam(torch: Any, problem: Any, gradient: Any, value: Any, m: Any, u: Any, *largest: Any) -> Any:
    """Return the new values, momentum and velocities."""
    spec = problem.spec
    m = m.lerp(gradient, 1 - spec.beta1)
    u = u.mul(spec.beta2).addcmul_(gradient, gradient, value=1 - spec.beta2)
    most = [torch.maximum(largest[0], u)] if largest else []
    root = (most[0] if most else u).sqrt().add_(spec.epsilon)
    return (value.addcdiv(m, root, value=-spec.corrected_rate(problem.time_step)), m, u, *most)


SPELLINGS: Mapping[type[Spec], Spelling] = {
    Dropout: dropout,
    Loss: loss,
    StochasticGradientDescent: optimizer(sgd),
    RMSProp: optimizer(rmsprop),
    Adam: optimizer(adam),
}
