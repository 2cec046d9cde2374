"""Optimizers under test: random hyperparameters of either sign, single steps and trajectories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import repeatable
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.subject import Subject, often
from mpsref.kernels import REFERENCE, TERMS, Adam, ErrorBound, RMSProp, StochasticGradientDescent
from mpsref.kernels.optimizer_problems import AdamStep, Step
from mpsref.kernels.optimizers import REGULARIZATIONS
from mpsref.registry import Backend, Problem, Spec

__all__ = ["STEPS", "SUBJECTS", "follow", "problems"]

STEPS = 100
"""How long a trajectory is."""

SHARED = {
    "learning_rate": st.sampled_from([0.1, 1e-3, 0.5, -0.1]),
    "gradient_rescale": often(1.0, st.sampled_from([0.5, -0.25, 1 / 3])),
    "apply_gradient_clipping": st.booleans(),
    "gradient_clip_min": st.sampled_from([-1.0, -0.25, -np.inf]),
    "gradient_clip_max": st.sampled_from([0.5, 2.0, np.inf]),
    "regularization_type": st.sampled_from(REGULARIZATIONS),
    "regularization_scale": st.sampled_from([0.0, 0.1, 0.5, -1.0]),
}
OWN: Mapping[type[Spec], tuple[dict[str, Any], dict[str, Any]]] = {
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


def any_shape(case: Case, backend: Backend) -> None:
    """Elements are independent: a vector of them gives the same bits as an array of any shape."""
    problem, inputs = case.problem, case.inputs()
    assert isinstance(problem, Step)
    flat = replace(problem, shape=(int(np.prod(problem.shape)),))
    results = zip(
        compute(problem, backend, *inputs), compute(flat, backend, *(a.reshape(-1) for a in inputs)), strict=True
    )
    if any(shaped.tobytes() != vector.tobytes() for shaped, vector in results):
        raise Mismatch("any shape: the elements have other results as a vector")


def half_of_the_bound(case: Case, backend: Backend) -> None:
    """Where division and square root are those of IEEE 754, half of the bound, which is Metal's, is enough."""
    if backend.fast_math:
        return
    for found, (reference, terms) in zip(compute(case.problem, backend, *case.inputs()), expected(case), strict=True):
        comparator.check(found, reference, terms._replace(magnitude=terms.magnitude / 2), "float32")


def trajectory(case: Case, backend: Backend) -> None:
    """100 steps, each compared with the reference's step from the same values and moments; one case in sixteen."""
    if case.seed % 16 == 0:
        follow(case.problem, case.inputs(), lambda step, *arrays: compute(step, backend, *arrays))


def follow(problem: Problem, inputs: tuple[Array, ...], run: Callable[..., tuple[Array, ...]]) -> tuple[Array, ...]:
    """Take STEPS steps with ``run(problem, *arrays)``, each of which must agree with the reference; return the last."""
    assert isinstance(problem, Step)
    gradient, *state = inputs
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(STEPS):
            # A gradient that changes, and pulls the values back so that they stay where float32 is at ease.
            pull = np.roll(gradient, k) / 64 + state[0] / 16
            step = replace(problem, time_step=k + 1) if isinstance(problem, AdamStep) else problem
            arrays = (pull.astype(np.float32), *state)
            found = run(step, *arrays)
            exact = [array.astype(np.float64) for array in arrays]
            references, terms = (table[step.operation](step, *exact) for table in (REFERENCE, TERMS))
            both = zip(found, _tuple(references), _tuple(terms), strict=True)
            for result, reference, bound in both:
                if not np.isfinite(reference).all():
                    return found  # a negative learning rate leads away
                comparator.check(result, reference, bound, "float32")
            state = list(found)
    return found


def _tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) and not isinstance(results, ErrorBound) else (results,)


_PROPERTIES = {"step": (repeatable, any_shape, half_of_the_bound, trajectory)}

# Parameters have no height, width and channels.
_IMMUNE = {"step": frozenset({"height and width are swapped", "channels-first code on channels-last memory"})}

SUBJECTS: Mapping[type[Spec], Subject] = {
    spec_type: Subject(partial(problems, spec_type), _PROPERTIES, _IMMUNE) for spec_type in OWN
}
