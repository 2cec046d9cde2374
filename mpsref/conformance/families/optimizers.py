"""Tests of optimizers: random hyperparameters of either sign, single steps and trajectories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.mutants import LAYOUT_MUTANTS, MutantTable, computed, correct_results, of_results, of_spec
from mpsref.conformance.properties import repeatable
from mpsref.conformance.runner import compute, references, terms
from mpsref.conformance.strategies import often
from mpsref.kernels import Adam, RMSProp, StochasticGradientDescent
from mpsref.kernels.optimizers import (
    REGULARIZATIONS,
    AdamStep,
    Optimizer,
    OptimizerStep,
    RMSPropStep,
    SGDStep,
    regularized,
    sgd_update,
)
from mpsref.registry import Backend, Implementation, Problem, Spec

# --- strategies -------------------------------------------------------------------------------------------------------

SHARED = {
    "learning_rate": st.sampled_from([0.1, 1e-3, 0.5, -0.1]),
    "gradient_rescale": often(1.0, st.sampled_from([0.5, -0.25, 1 / 3])),
    "apply_gradient_clipping": st.booleans(),
    "gradient_clip_min": st.sampled_from([-1.0, -0.25, -np.inf]),
    "gradient_clip_max": st.sampled_from([0.5, 2.0, np.inf]),
    "regularization_type": st.sampled_from(REGULARIZATIONS),
    "regularization_scale": st.sampled_from([0.0, 0.1, 0.5, -1.0]),
}
Strategies: TypeAlias = Mapping[str, st.SearchStrategy[object]]

OWN: Mapping[type[Spec], tuple[Strategies, Strategies]] = {
    StochasticGradientDescent: (
        {"momentum_scale": st.sampled_from([0.9, 0.5, -0.5]), "use_nesterov_momentum": st.booleans()},
        {"momentum": st.booleans()},
    ),
    RMSProp: ({"decay": st.sampled_from([0.9, 0.5, 0.25]), "epsilon": st.sampled_from([1e-8, 0.1])}, {}),
    Adam: (
        {
            "beta1": st.sampled_from([0.9, 0.5, 0.0]),
            "beta2": st.sampled_from([0.999, 0.75]),
            "epsilon": st.sampled_from([1e-8, 0.1]),
        },
        {"maximum": st.booleans(), "time_step": st.integers(1, 5) | st.integers(1, 10**6)},
    ),
}
"""Parameters of each optimizer, and of its problems."""


def problems(spec_type: type[Spec], method: str) -> st.SearchStrategy[Problem]:
    """Draw steps of one optimizer, on arrays of up to four axes."""
    own, call = OWN[spec_type]
    shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)
    return st.builds(spec_type.problems[method], st.builds(spec_type, **SHARED, **own), shapes, **call)


# --- properties -------------------------------------------------------------------------------------------------------


def any_shape(case: Case, backend: Backend) -> None:
    """The elements are independent: a vector of them has the same bits as an array of any shape."""
    problem, inputs = case.of(OptimizerStep), case.inputs()
    flat = replace(problem, shape=(int(np.prod(problem.shape)),))
    results = zip(
        compute(problem, backend, *inputs), compute(flat, backend, *(a.reshape(-1) for a in inputs)), strict=True
    )
    if any(shaped.tobytes() != vector.tobytes() for shaped, vector in results):
        raise Mismatch("any shape: the elements have other results as a vector")


STEPS = 100
"""The length of a trajectory."""


def trajectory(case: Case, backend: Backend) -> None:
    """Each of 100 steps agrees with the step of the reference from the same state; one case in sixteen."""
    if case.seed % 16 == 0:
        follow(case.of(OptimizerStep), case.inputs(), lambda step, *arrays: compute(step, backend, *arrays))


def follow(
    problem: OptimizerStep, inputs: tuple[Array, ...], run: Callable[..., tuple[Array, ...]]
) -> tuple[Array, ...]:
    """Take STEPS steps with ``run(problem, *arrays)``, each of which must agree with the reference; return the last."""
    gradient, *state = inputs
    for k in range(STEPS):
        # The gradient changes, and its second term keeps the values in a moderate range.
        pull = np.roll(gradient, k) / 64 + state[0] / 16
        step = replace(problem, time_step=k + 1) if isinstance(problem, AdamStep) else problem
        arrays = (pull.astype(np.float32), *state)
        found = run(step, *arrays)
        each = zip(found, references(step, *arrays), terms(step, *arrays), strict=True)
        for result, reference, bound in each:
            if not np.isfinite(reference).all():
                return found  # a negative learning rate diverges
            comparator.check(result, reference, bound, "float32")
        state = list(found)
    return found


# --- mutants ----------------------------------------------------------------------------------------------------------

Gradient = Callable[[Optimizer, Array, Array], Array]
"""``gradient(optimizer, g, value)``: the gradient of the update."""


def _with_gradient(gradient: Gradient) -> Implementation:
    """Return the update with another gradient, in place of the clipped, rescaled and regularized one."""

    def formula(problem: OptimizerStep, g: Array, value: Array, *moments: Array) -> tuple[Array, ...]:
        bare = replace(problem.spec, gradient_rescale=1.0, apply_gradient_clipping=False, regularization_type="none")
        return correct_results(replace(problem, spec=bare), gradient(problem.spec, g, value), value, *moments)

    return computed(formula)


def _clip(o: Optimizer, g: Array) -> Array:
    return np.clip(g, o.gradient_clip_min, o.gradient_clip_max) if o.apply_gradient_clipping else g


def _penalty(o: Optimizer, value: Array, l1: Callable[[Array], Array] = np.sign) -> Array:
    kinds = {"none": np.zeros_like(value), "l1": l1(value), "l2": value}
    return np.asarray(o.regularization_scale * kinds[o.regularization_type])


_GRADIENT_MUTANTS: MutantTable = {
    name: _with_gradient(gradient)
    for name, gradient in {
        "the gradient is not clipped": lambda o, g, v: g * o.gradient_rescale + _penalty(o, v),
        "the gradient is clipped after it is rescaled": lambda o, g, v: (
            _clip(o, g * o.gradient_rescale) + _penalty(o, v)
        ),
        "the gradient is clipped after the penalty": lambda o, g, v: _clip(o, g + _penalty(o, v)) * o.gradient_rescale,
        "the gradient is always clipped": lambda o, g, v: (
            np.clip(g, o.gradient_clip_min, o.gradient_clip_max) * o.gradient_rescale + _penalty(o, v)
        ),
        "only the upper bound is applied": lambda o, g, v: (
            (np.minimum(g, o.gradient_clip_max) if o.apply_gradient_clipping else g) * o.gradient_rescale
            + _penalty(o, v)
        ),
        "the rescale divides": lambda o, g, v: _clip(o, g) / o.gradient_rescale + _penalty(o, v),
        "the penalty is rescaled": lambda o, g, v: (_clip(o, g) + _penalty(o, v)) * o.gradient_rescale,
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
    }.items()
}
"""Mistakes in the gradient, before the update: those of every optimizer."""

_SHARED: MutantTable = {
    **_GRADIENT_MUTANTS,
    "the moments are not stored": of_results(lambda results, problem, *inputs: (results[0], *inputs[2:])),
}


def _update(formula: Callable[..., tuple[Array, ...]]) -> Implementation:
    """Compute ``formula(problem, gradient, value, *moments)``, where the gradient is that of the update."""
    return computed(
        lambda problem, g, value, *moments: formula(
            problem, regularized(problem.spec, g, value).gradient, value, *moments
        )
    )


def _sgd(update: Callable[..., tuple[Array, Array]]) -> Implementation:
    """Compute ``update(spec, gradient, value, m)`` where there is a momentum; without one the result is correct."""

    def compute(problem: SGDStep, *inputs: Array) -> tuple[Array, ...]:
        if not problem.momentum:
            return correct_results(problem, *inputs)
        g, value, m = inputs
        new_value, new_m = update(problem.spec, regularized(problem.spec, g, value).gradient, value, m)
        return new_value, new_m

    return computed(compute)


def _correct_update(s: StochasticGradientDescent, gr: Array, v: Array, m: Array) -> tuple[Array, Array]:
    value, momentum = sgd_update(s, gr, v, m, -1)
    return value, momentum


def _momentum_without_rate(s: StochasticGradientDescent, gr: Array, v: Array, m: Array) -> tuple[Array, Array]:
    if s.use_nesterov_momentum:
        return _correct_update(s, gr, v, m)
    m = s.momentum_scale * m + gr
    return v - s.learning_rate * m, m


def _nesterov_of_old_momentum(s: StochasticGradientDescent, gr: Array, v: Array, m: Array) -> tuple[Array, Array]:
    if not s.use_nesterov_momentum:
        return _correct_update(s, gr, v, m)
    return v - s.learning_rate * (gr + s.momentum_scale * m), s.momentum_scale * m + gr


def _epsilon_under_root(problem: RMSPropStep, gr: Array, value: Array, s: Array) -> tuple[Array, ...]:
    spec = problem.spec
    s = spec.decay * s + (1 - spec.decay) * gr**2
    return value - spec.learning_rate * gr / np.sqrt(s + spec.epsilon), s


def _adam(
    rate: Callable[[Adam, int], float] = Adam.corrected_rate,
    root: Callable[[Adam, Array], Array] = lambda p, u: np.sqrt(u) + p.epsilon,
    largest: Callable[[Array, Array], Array] = np.maximum,
) -> Implementation:
    """Return Adam with another rate, divisor or largest velocity."""

    def formula(problem: AdamStep, gr: Array, value: Array, m: Array, u: Array, *umax: Array) -> tuple[Array, ...]:
        spec = problem.spec
        m, u = spec.beta1 * m + (1 - spec.beta1) * gr, spec.beta2 * u + (1 - spec.beta2) * gr**2
        most = [largest(one, u) for one in umax]
        value = value - rate(spec, problem.time_step) * m / root(spec, most[0] if most else u)
        return (value, m, u, *most)

    return _update(formula)


MUTANTS = {
    (StochasticGradientDescent, "step"): {
        **_SHARED,
        "Nesterov momentum is ignored": of_spec(use_nesterov_momentum=lambda s: False),
        "the momentum is not multiplied by the learning rate": _sgd(_momentum_without_rate),
        "Nesterov looks ahead with the old momentum": _sgd(_nesterov_of_old_momentum),
        "the gradient is damped by 1 - momentum scale": _sgd(
            lambda s, gr, v, m: _correct_update(s, gr * (1 - s.momentum_scale), v, m)
        ),
    },
    (RMSProp, "step"): {
        **_SHARED,
        "epsilon is ignored": of_spec(epsilon=lambda s: 0.0),
        "epsilon is under the root": _update(_epsilon_under_root),
        "decay and 1 - decay are swapped": of_spec(decay=lambda s: 1 - s.decay),
    },
    (Adam, "step"): {
        **_SHARED,
        "there is no bias correction": _adam(rate=lambda p, t: p.learning_rate),
        "the time step starts at 0": _adam(rate=lambda p, t: p.corrected_rate(max(1, t - 1))),
        "only the velocity is corrected": _adam(rate=lambda p, t: p.learning_rate * float(np.sqrt(1 - p.beta2**t))),
        "the square root of the corrections is missing": _adam(
            rate=lambda p, t: p.learning_rate * (1 - p.beta2**t) / (1 - p.beta1**t)
        ),
        "epsilon is ignored": of_spec(epsilon=lambda s: 0.0),
        "epsilon is under the root": _adam(root=lambda p, u: np.sqrt(u + p.epsilon)),
        "the largest velocity is not kept": _adam(largest=lambda umax, u: u),
    },
}

_PROPERTIES = {"step": (repeatable, any_shape, trajectory)}

# Parameters have no height, width and channels.
_EQUIVALENT = {"step": LAYOUT_MUTANTS}

FAMILY = Family(
    "optimizers",
    {spec_type: KernelTests(partial(problems, spec_type), _PROPERTIES, _EQUIVALENT) for spec_type in OWN},
    MUTANTS,
)
