"""Planted faults of the optimizers: in what happens to the gradient first, and in the update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, of_problem, of_results, with_spec
from mpsref.kernels import Adam, RMSProp, StochasticGradientDescent
from mpsref.kernels.optimizers import Optimizer, adam, regularized, rmsprop, sgd, sgd_update
from mpsref.registry import Operation, Problem, Spec

__all__ = ["faults"]

Table = Mapping[str, Callable[..., None]]
Gradient = Callable[[Optimizer, Array, Array], Array]
"""``gradient(optimizer, g, value)``: what the update takes for the gradient."""

FORMULAS: Mapping[type[Spec], Callable[..., Any]] = {StochasticGradientDescent: sgd, RMSProp: rmsprop, Adam: adam}


def _stored(formula: Callable[..., Any]) -> Callable[..., None]:
    """Compute ``formula(problem, *inputs)`` in float64 and store the results."""

    def run(problem: Problem, *inputs: Array, out: Any) -> None:
        with np.errstate(all="ignore"):
            results = formula(problem, *(array.astype(np.float64) for array in inputs))
            targets, found = (v if isinstance(v, tuple) else (v,) for v in (out, results))
            for target, result in zip(targets, found, strict=True):
                target[...] = result

    return run


def _with_gradient(spec_type: type[Spec], gradient: Gradient) -> Callable[..., None]:
    """Return the update with another gradient, of which nothing more is to be prepared."""

    def formula(problem: Any, g: Array, value: Array, *moments: Array) -> Any:
        bare = replace(problem.spec, gradient_rescale=1.0, apply_gradient_clipping=False, regularization_type="none")
        prepared = gradient(problem.spec, g, value)
        return FORMULAS[spec_type](replace(problem, spec=bare), prepared, value, *moments)

    return _stored(formula)


def _clip(o: Optimizer, g: Array) -> Array:
    return np.clip(g, o.gradient_clip_min, o.gradient_clip_max) if o.apply_gradient_clipping else g


def _penalty(o: Optimizer, value: Array, l1: Callable[[Array], Array] = np.sign) -> Array:
    kinds = {"none": np.zeros_like(value), "l1": l1(value), "l2": value}
    return np.asarray(o.regularization_scale * kinds[o.regularization_type])


GRADIENTS: Mapping[str, Gradient] = {
    "the gradient is not clipped": lambda o, g, v: g * o.gradient_rescale + _penalty(o, v),
    "the gradient is clipped after it is rescaled": lambda o, g, v: _clip(o, g * o.gradient_rescale) + _penalty(o, v),
    "the gradient is clipped after the penalty": lambda o, g, v: _clip(o, g + _penalty(o, v)) * o.gradient_rescale,
    "the gradient is always clipped": lambda o, g, v: (
        np.clip(g, o.gradient_clip_min, o.gradient_clip_max) * o.gradient_rescale + _penalty(o, v)
    ),
    "only the upper bound is applied": lambda o, g, v: (
        (np.minimum(g, o.gradient_clip_max) if o.apply_gradient_clipping else g) * o.gradient_rescale + _penalty(o, v)
    ),
    "the rescale is ignored": lambda o, g, v: _clip(o, g) + _penalty(o, v),
    "the rescale divides": lambda o, g, v: _clip(o, g) / o.gradient_rescale + _penalty(o, v),
    "the rescale holds for the penalty too": lambda o, g, v: (_clip(o, g) + _penalty(o, v)) * o.gradient_rescale,
    "the penalty is ignored": lambda o, g, v: _clip(o, g) * o.gradient_rescale,
    "the penalty is subtracted": lambda o, g, v: _clip(o, g) * o.gradient_rescale - _penalty(o, v),
    "the L2 penalty is twice the value": lambda o, g, v: (
        _clip(o, g) * o.gradient_rescale + _penalty(o, v) * (2 if o.regularization_type == "l2" else 1)
    ),
    "the L1 penalty is 1 for negative values too": lambda o, g, v: (
        _clip(o, g) * o.gradient_rescale + _penalty(o, v, np.ones_like)
    ),
    "L1 and L2 are swapped": lambda o, g, v: (
        _clip(o, g) * o.gradient_rescale
        + o.regularization_scale * {"none": 0 * v, "l1": v, "l2": np.sign(v)}[o.regularization_type]
    ),
}
"""What can go wrong before any update."""


def _first_only(results: tuple[Array, ...], problem: Problem, *inputs: Array) -> tuple[Array, ...]:
    """The moments are not stored."""
    return (results[0], *inputs[2:])


def _sgd() -> Table:
    def update(change: Callable[..., Any]) -> Callable[..., None]:
        """``change(spec, gr, value, m)`` with a momentum; without one all is right."""

        def formula(problem: Any, g: Array, value: Array, m: Array | None = None) -> Any:
            gr = regularized(problem.spec, g, value).gradient
            wrong = change if m is not None else sgd_update
            return wrong(problem.spec, gr, value, m, -1)

        return _stored(formula)

    return {
        "the step goes uphill": of_problem(with_spec(learning_rate=lambda s: -s.learning_rate)),
        "the momentum scale is ignored": of_problem(with_spec(momentum_scale=lambda s: 0.0)),
        "Nesterov's form is ignored": of_problem(with_spec(use_nesterov_momentum=lambda s: False)),
        "Nesterov's form is always used": of_problem(with_spec(use_nesterov_momentum=lambda s: True)),
        "the plain momentum does not hold the learning rate": update(
            lambda s, gr, v, m, sign: (
                sgd_update(s, gr, v, m, sign)
                if s.use_nesterov_momentum
                else (v - s.learning_rate * (s.momentum_scale * m + gr), s.momentum_scale * m + gr)
            )
        ),
        "Nesterov looks ahead with the old momentum": update(
            lambda s, gr, v, m, sign: (
                (v - s.learning_rate * (gr + s.momentum_scale * m), s.momentum_scale * m + gr)
                if s.use_nesterov_momentum
                else sgd_update(s, gr, v, m, sign)
            )
        ),
        "the gradient is damped by 1 - momentum scale": update(
            lambda s, gr, v, m, sign: sgd_update(s, gr * (1 - s.momentum_scale), v, m, sign)
        ),
        "the moments are not stored": of_results(_first_only),
    }


def _rmsprop() -> Table:
    def update(change: Callable[..., Any]) -> Callable[..., None]:
        def formula(problem: Any, g: Array, value: Array, s: Array) -> Any:
            return change(problem.spec, regularized(problem.spec, g, value).gradient, value, s)

        return _stored(formula)

    def mean(p: RMSProp, gr: Array, s: Array) -> Array:
        return np.asarray(p.decay * s + (1 - p.decay) * gr**2)

    def step(p: RMSProp, gr: Array, v: Array, s: Array) -> Array:
        return np.asarray(v - p.learning_rate * gr / (np.sqrt(s) + p.epsilon))

    return {
        "the step goes uphill": of_problem(with_spec(learning_rate=lambda s: -s.learning_rate)),
        "epsilon is ignored": of_problem(with_spec(epsilon=lambda s: 0.0)),
        "epsilon is under the root": update(
            lambda p, gr, v, s: (
                v - p.learning_rate * gr / np.sqrt(mean(p, gr, s) + p.epsilon),
                mean(p, gr, s),
            )
        ),
        "decay and 1 - decay are swapped": of_problem(with_spec(decay=lambda s: 1 - s.decay)),
        "the square is not damped": update(
            lambda p, gr, v, s: (step(p, gr, v, p.decay * s + gr**2), p.decay * s + gr**2)
        ),
        "the gradient is not squared": update(
            lambda p, gr, v, s: (
                step(p, gr, v, p.decay * s + (1 - p.decay) * np.abs(gr)),
                p.decay * s + (1 - p.decay) * np.abs(gr),
            )
        ),
        "the old mean divides": update(lambda p, gr, v, s: (step(p, gr, v, s), mean(p, gr, s))),
        "the root is forgotten": update(
            lambda p, gr, v, s: (v - p.learning_rate * gr / (mean(p, gr, s) + p.epsilon), mean(p, gr, s))
        ),
        "the moments are not stored": of_results(_first_only),
    }


def _adam() -> Table:
    def update(
        rate: Callable[[Adam, int], float] = Adam.corrected_rate,
        root: Callable[[Adam, Array], Array] = lambda p, u: np.sqrt(u) + p.epsilon,
        velocity: Callable[[Adam, Array, Array], Array] = lambda p, gr, u: p.beta2 * u + (1 - p.beta2) * gr**2,
        largest: Callable[[Array, Array], Array] = np.maximum,
    ) -> Callable[..., None]:
        """Return Adam with one of its parts replaced."""

        def formula(problem: Any, g: Array, value: Array, m: Array, u: Array, umax: Array | None = None) -> Any:
            spec = problem.spec
            gr = regularized(spec, g, value).gradient
            m, u = spec.beta1 * m + (1 - spec.beta1) * gr, velocity(spec, gr, u)
            divisor = u if umax is None else largest(umax, u)
            value = value - rate(spec, problem.time_step) * m / root(spec, divisor)
            return (value, m, u) if umax is None else (value, m, u, divisor)

        return _stored(formula)

    return {
        "the step goes uphill": of_problem(with_spec(learning_rate=lambda s: -s.learning_rate)),
        "there is no bias correction": update(rate=lambda p, t: p.learning_rate),
        "the time step starts at 0": update(rate=lambda p, t: p.corrected_rate(max(1, t - 1))),
        "the time step is one ahead": update(rate=lambda p, t: p.corrected_rate(t + 1)),
        "only the momentum is corrected": update(rate=lambda p, t: p.learning_rate / (1 - p.beta1**t)),
        "only the velocity is corrected": update(rate=lambda p, t: p.learning_rate * float(np.sqrt(1 - p.beta2**t))),
        "the corrections lack their root": update(
            rate=lambda p, t: p.learning_rate * (1 - p.beta2**t) / (1 - p.beta1**t)
        ),
        "beta1 and beta2 are swapped": of_problem(with_spec(beta1=lambda s: s.beta2, beta2=lambda s: s.beta1)),
        "epsilon is ignored": of_problem(with_spec(epsilon=lambda s: 0.0)),
        "epsilon is under the root": update(root=lambda p, u: np.sqrt(u + p.epsilon)),
        "the root is forgotten": update(root=lambda p, u: u + p.epsilon),
        "the velocity is of magnitudes": update(velocity=lambda p, gr, u: p.beta2 * u + (1 - p.beta2) * np.abs(gr)),
        "the largest velocity is forgotten": update(largest=lambda umax, u: u),
        "the smallest velocity is taken": update(largest=np.minimum),
        "the moments are not stored": of_results(_first_only),
    }


TABLES: Mapping[type[Spec], Table] = {StochasticGradientDescent: _sgd(), RMSProp: _rmsprop(), Adam: _adam()}


def faults() -> Iterator[Fault]:
    """Yield the faults of the optimizers, beside those that every kernel can have."""
    for spec_type, own in TABLES.items():
        before = {name: _with_gradient(spec_type, gradient) for name, gradient in GRADIENTS.items()}
        for name, run in (before | dict(own)).items():
            yield Fault(name, Operation(spec_type, "step"), run)
