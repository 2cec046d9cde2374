"""Optimizers through ``msl/optimizers.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.optimizers import (
    REGULARIZATIONS,
    Adam,
    AdamStep,
    Optimizer,
    OptimizerStep,
    RMSProp,
    RMSPropStep,
    SGDStep,
    StochasticGradientDescent,
)
from mpsref_metal.launch import Launcher, types, width_of

CONSTANTS = "rate", "keep", "add", "keep_square", "add_square", "epsilon"
NUMBERS = np.dtype(
    [
        *((name, "u4") for name in ("count", "clips", "penalty")),
        *((name, "f4") for name in ("low", "high", "rescale", "scale", *CONSTANTS)),
    ]
)
FLT_MAX = float(np.finfo(np.float32).max)


def sgd(launch: Launcher, problem: SGDStep, *inputs: Array, out: Array | tuple[Array, ...]) -> None:
    """Run ``plain``, ``momentum`` or ``nesterov``."""
    spec = problem.spec
    function = ("nesterov" if spec.use_nesterov_momentum else "momentum") if problem.momentum else "plain"
    outs = out if isinstance(out, tuple) else (out,)
    _run(launch, problem, function, inputs, outs, rate=spec.learning_rate, keep=spec.momentum_scale)


def rmsprop(launch: Launcher, problem: RMSPropStep, *inputs: Array, out: tuple[Array, ...]) -> None:
    """Run ``rmsprop``."""
    spec = problem.spec
    squares = {"keep_square": spec.decay, "add_square": 1 - spec.decay}
    _run(launch, problem, "rmsprop", inputs, out, rate=spec.learning_rate, **squares, epsilon=spec.epsilon)


def adam(launch: Launcher, problem: AdamStep, *inputs: Array, out: tuple[Array, ...]) -> None:
    """Run ``adam`` or ``amsgrad``."""
    spec, function = problem.spec, "amsgrad" if problem.maximum else "adam"
    moments = {
        "keep": spec.beta1,
        "add": 1 - spec.beta1,
        "keep_square": spec.beta2,
        "add_square": 1 - spec.beta2,
    }
    rate = spec.corrected_rate(problem.time_step)
    _run(launch, problem, function, inputs, out, rate=rate, **moments, epsilon=spec.epsilon)


def _run(
    launch: Launcher,
    problem: OptimizerStep,
    function: str,
    inputs: tuple[Array, ...],
    outs: tuple[Array, ...],
    **constants: float,
) -> None:
    """Run a function with the struct ``Optimizer``; unused constants are 0."""
    optimizer: Optimizer = problem.spec
    width = width_of(outs[0].size, *inputs, *outs)
    choices = optimizer.apply_gradient_clipping, REGULARIZATIONS.index(optimizer.regularization_type)
    # Fast math has no infinity; finite gradients are within the limits of float32.
    bounds = np.clip([optimizer.gradient_clip_min, optimizer.gradient_clip_max], -FLT_MAX, FLT_MAX)
    shared = *bounds, optimizer.gradient_rescale, optimizer.regularization_scale
    count, others = outs[0].size // width, (constants.get(name, 0.0) for name in CONSTANTS)
    numbers = np.array([(count, *choices, *shared, *others)], NUMBERS)
    launch.into(("optimizers",), function, [*inputs, numbers], outs, types(width), count)


IMPLEMENTATIONS = {
    (StochasticGradientDescent, "step"): sgd,
    (RMSProp, "step"): rmsprop,
    (Adam, "step"): adam,
}
