"""Planted faults of the losses: formulas as they are printed elsewhere, weights, reductions, labels, chains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, of_problem, of_result, with_spec
from mpsref.kernels import Loss, loss, loss_formulas
from mpsref.kernels.loss_problems import LossForward, LossGradient, LossProblem
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]


def _inputs(problem: LossProblem, inputs: tuple[Array, ...]) -> dict[str, Array]:
    """Return the arrays by name, float64."""
    return {name: a.astype(np.float64) for name, a in zip(problem.input_shapes, inputs, strict=True)}


def _solved(problem: LossProblem, arrays: Mapping[str, Array]) -> Array:
    """Return what the reference computes for these arrays, as many as there are."""
    fields: dict[str, Any] = {"weighted": "weights" in arrays, "label_channels": arrays["t"].shape[3]}
    if isinstance(problem, LossGradient):
        fields["chained"] = "g" in arrays
    other = replace(problem, **fields)
    result: Array = loss.REFERENCE[problem.operation](other, *(arrays[name] for name in other.input_shapes))
    return result


def _of_inputs(change: Callable[[dict[str, Array], Any], dict[str, Array]]) -> Callable[..., None]:
    """Compute on other inputs: ``change(arrays, problem)``."""

    def run(problem: LossProblem, *inputs: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            result = _solved(problem, change(_inputs(problem, inputs), problem))
            out[...] = 0  # in channels that other labels do not have
            out[..., : result.shape[3]] = result

    return run


def _without(name: str) -> Callable[..., None]:
    return _of_inputs(lambda arrays, problem: {key: a for key, a in arrays.items() if key != name})


def _changed(name: str, change: Callable[[Array, Any], Array]) -> Callable[..., None]:
    return _of_inputs(
        lambda arrays, problem: arrays | ({name: change(arrays[name], problem)} if name in arrays else {})
    )


def _of_type(loss_type: str, formula: Callable[[Loss, Array, Array], Array]) -> Callable[..., None]:
    """Compute another ``formula(spec, y, smoothed labels)`` for one type of loss; the others are right."""

    def run(problem: LossProblem, *inputs: Array, out: Array) -> None:
        arrays = _inputs(problem, inputs)
        with np.errstate(all="ignore"):
            if problem.spec.type != loss_type:
                out[...] = _solved(problem, arrays)
                return
            y, spec = arrays["y"], problem.spec
            t = arrays["t"][..., : y.shape[3]]
            if spec.label_smoothing > 0:
                a, b = problem.formula.smoothing(spec)
                t = a * t + b
            values = loss_formulas.weighted(problem, formula(spec, y, t), arrays.get("weights"))
            if isinstance(problem, LossForward) and spec.reduction != "none":
                values = problem.loss_image(values.sum(axis=(1, 2, 3)), arrays.get("weights"))
            if isinstance(problem, LossGradient) and "g" in arrays:
                values = problem.source_gradient(arrays["g"]) * values
            out[...] = 0
            out[..., : values.shape[3]] = values

    return run


def _shifted_labels(t: Array, problem: LossProblem) -> Array:
    """Labels read as if they had as many channels as the predictions."""
    return np.resize(t, problem.source_shape)


def _by_mean(result: Array, problem: LossProblem, *inputs: Array) -> Array:
    """The gradient of the mean where the mean is asked for."""
    elements = result[0, ..., : problem.source_shape[3]].size
    return result / elements if problem.spec.reduction == "mean" else result


SHARED: Table = {
    "the weight is ignored": of_problem(with_spec(weight=lambda s: 1.0)),
    "the weight is squared": of_problem(with_spec(weight=lambda s: s.weight**2)),
    "the weights image is ignored": _without("weights"),
    "the weights image is squared": _changed("weights", lambda w, p: w**2),
    "the weights of the first image hold for all": _changed("weights", lambda w, p: np.repeat(w[:1], len(w), axis=0)),
    "labels are read as if they had no further channels": _changed("t", _shifted_labels),
    "the labels of the first image hold for all": _changed("t", lambda t, p: np.repeat(t[:1], len(t), axis=0)),
    "labels are not smoothed": of_problem(with_spec(label_smoothing=lambda s: 0.0)),
    "epsilon is ignored": of_problem(with_spec(epsilon=lambda s: 0.0)),
    "delta is 1": of_problem(with_spec(delta=lambda s: 1.0)),
}
CONSTANT: Table = {
    "smoothing takes one class": of_problem(with_spec(number_of_classes=lambda s: 1)),
    "smoothed labels lose their constant": of_problem(with_spec(number_of_classes=lambda s: 10**6)),
}
"""In what is added to smoothed labels, which the derivative by the labels does not see."""


def _forward() -> Table:
    def reduction(change: Callable[[Loss], str]) -> Callable[..., None]:
        def of_loss(spec: Loss) -> str:
            return spec.reduction if spec.reduction == "none" or spec.type == "cosinedistance" else change(spec)

        return of_problem(with_spec(reduction=of_loss))

    return {
        "the mean is a sum": reduction(lambda s: "sum" if s.reduction == "mean" else s.reduction),
        "the sum is a mean": reduction(lambda s: "mean" if s.reduction == "sum" else s.reduction),
        "weights of 0 count too": reduction(
            lambda s: (
                "mean" if s.reduction == "sumbynonzeroweights" and s.type != "softmaxcrossentropy" else s.reduction
            )
        ),
        "the reduction across the batch is ignored": of_problem(with_spec(reduce_across_batch=lambda s: False)),
        "the reduction always runs across the batch": of_problem(with_spec(reduce_across_batch=lambda s: True)),
        "the mean of softmax is over channels too": of_result(
            lambda image, p, *_: (
                image / p.source_shape[3]
                if (p.spec.type, p.spec.reduction) == ("softmaxcrossentropy", "mean")
                else image
            )
        ),
        "the loss across the batch is written to all images": of_result(
            lambda image, p, *_: (
                np.repeat(image[:1], len(image), axis=0)
                if p.spec.reduce_across_batch and p.spec.reduction != "none"
                else image
            )
        ),
        "hinge labels stay 0 and 1": _of_type("hinge", lambda s, y, t: np.maximum(1 - t * y, 0)),
        "Huber squares the prediction": _of_type(
            "huber",
            lambda s, y, t: np.where(
                np.abs(y - t) <= s.delta, 0.5 * y**2, 0.5 * s.delta**2 + s.delta * (np.abs(y - t) - s.delta)
            ),
        ),
        "Huber lacks its half": _of_type(
            "huber",
            lambda s, y, t: np.where(
                np.abs(y - t) <= s.delta, (y - t) ** 2, 0.5 * s.delta**2 + s.delta * (np.abs(y - t) - s.delta)
            ),
        ),
        "the squared error is halved": _of_type("meansquarederror", lambda s, y, t: 0.5 * (y - t) ** 2),
        "softmax runs over the whole image": _of_type("softmaxcrossentropy", _softmax_of_image),
        "the entropy takes softmax of probabilities": _of_type("softmaxcrossentropy", lambda s, y, t: -t * y),
        "sigmoid cross entropy takes probabilities": _of_type(
            "sigmoidcrossentropy", lambda s, y, t: np.maximum(y, 0) - y * t
        ),
        "cosine distance lacks its 1": of_result(
            lambda image, p, *_: image - p.spec.weight if p.spec.type == "cosinedistance" else image
        ),
        "log takes the ones alone": _of_type("log", lambda s, y, t: -t * np.log(y + s.epsilon)),
        "the divergence lacks log t": _of_type("kullbackleiblerdivergence", lambda s, y, t: -t * y),
        "the logarithm has base 2": _of_type("categoricalcrossentropy", lambda s, y, t: -t * np.log2(y)),
        "the error keeps its sign": _of_type("meanabsoluteerror", lambda s, y, t: y - t),
    }


def _softmax_of_image(spec: Loss, y: Array, t: Array) -> Array:
    flat = loss_formulas.log_softmax(y.reshape(len(y), -1)).reshape(y.shape)
    return -t * flat


def _chains() -> Table:
    return {
        "the source gradient is ignored": _without("g"),
        "across the batch each image has its own source gradient": of_problem(
            with_spec(reduce_across_batch=lambda s: False)
        ),
        "image 0's source gradient holds for all": of_problem(
            lambda p: p if p.spec.reduction == "none" else with_spec(reduce_across_batch=lambda s: True)(p)
        ),
        "the gradient is that of the mean": of_result(_by_mean),
    }


def _gradient() -> Table:
    return {
        **_chains(),
        "the gradient of softmax is y - t": _of_type("softmaxcrossentropy", lambda s, y, t: y - t),
        "the gradient of softmax goes through the labels' sum": _of_type(
            "softmaxcrossentropy",
            lambda s, y, t: np.exp(loss_formulas.log_softmax(y)) * t.sum(axis=-1, keepdims=True) - t,
        ),
        "the gradient of sigmoid cross entropy is y - t": _of_type("sigmoidcrossentropy", lambda s, y, t: y - t),
        "the sign of 0 is 1": _of_type("meanabsoluteerror", lambda s, y, t: np.where(y >= t, 1.0, -1.0)),
        "the squared error lacks its 2": _of_type("meansquarederror", lambda s, y, t: y - t),
        "the gradient of the divergence is -t / y": _of_type("kullbackleiblerdivergence", lambda s, y, t: -t / y),
        "Huber's slope has no sign": _of_type(
            "huber", lambda s, y, t: np.where(np.abs(y - t) <= s.delta, y - t, s.delta)
        ),
        "hinge has a slope at its kink": _of_type(
            "hinge", lambda s, y, t: np.where(1 + (1 - 2 * t) * y >= 0, 1 - 2 * t, 0)
        ),
        "hinge labels stay 0 and 1": _of_type("hinge", lambda s, y, t: np.where(1 - t * y > 0, -t, 0)),
        "categorical cross entropy is not divided by y": _of_type("categoricalcrossentropy", lambda s, y, t: -t),
        "cosine distance has its own sign": _of_type("cosinedistance", lambda s, y, t: t),
        "log takes the ones alone": _of_type("log", lambda s, y, t: -t / (y + s.epsilon)),
    }


def _gradient_labels() -> Table:
    return {
        **_chains(),
        "the gradient is that of the predictions": _as_predictions,
        "the slope of smoothing is forgotten": of_result(
            lambda dt, p, *_: dt / (1 - p.spec.label_smoothing) if p.spec.label_smoothing else dt
        ),
        "channels beyond the predictions repeat them": _repeated,
        "the sign is lost": of_result(lambda dt, *_: np.abs(dt)),
        "the divergence lacks its 1": _of_type("kullbackleiblerdivergence", lambda s, y, t: np.log(t) - y),
        "hinge lacks its 2": _of_type("hinge", lambda s, y, t: np.where(1 + (1 - 2 * t) * y > 0, -y, 0)),
        "sigmoid cross entropy takes the sigmoid": _of_type(
            "sigmoidcrossentropy", lambda s, y, t: -1 / (1 + np.exp(-y))
        ),
        "softmax cross entropy takes the logits": _of_type("softmaxcrossentropy", lambda s, y, t: -y),
        "log takes the ones alone": _of_type("log", lambda s, y, t: -np.log(y + s.epsilon)),
    }


def _as_predictions(problem: LossGradient, *inputs: Array, out: Array) -> None:
    with np.errstate(all="ignore"):
        arrays = [a.astype(np.float64) for a in inputs]
        out[...] = 0
        out[..., : problem.source_shape[3]] = loss.gradient(problem, *arrays)


def _repeated(problem: LossGradient, *inputs: Array, out: Array) -> None:
    with np.errstate(all="ignore"):
        dt = _solved(problem, _inputs(problem, inputs))
        channels = problem.source_shape[3]
        out[...] = dt[..., np.arange(out.shape[3]) % channels]


def faults() -> Iterator[Fault]:
    """Yield the faults of the losses, beside those that every kernel can have."""
    tables = {
        "forward": SHARED | CONSTANT | _forward(),
        "gradient": SHARED | CONSTANT | _gradient(),
        "gradient_labels": SHARED | _gradient_labels(),
    }
    for method, table in tables.items():
        for name, run in table.items():
            yield Fault(name, Operation(Loss, method), run)
