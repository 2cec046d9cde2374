"""One step of the optimizers of ``torch.optim``, their state set to the moments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpsref import Adam, RMSProp, StochasticGradientDescent
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_torch.run import Tensor, Torch


def _leaf(torch: Torch, problem: Any, gradient: Array, value: Array) -> tuple[Tensor, float]:
    """Return the parameter with its gradient, clipped and rescaled as a user does it, and the weight decay."""
    spec = problem.spec
    if spec.regularization_type == "l1":
        raise UnsupportedError("optimizers of PyTorch have no L1 regularization")
    if spec.learning_rate < 0:
        raise UnsupportedError("optimizers of PyTorch take no negative learning rate")
    if spec.regularization_type == "l2" and spec.regularization_scale < 0:
        raise UnsupportedError("optimizers of PyTorch take no negative weight decay")
    leaf, given = torch.tensor(value).clone().requires_grad_(), torch.tensor(gradient).clone()
    if spec.apply_gradient_clipping:
        given = given.clamp(spec.gradient_clip_min, spec.gradient_clip_max)
    leaf.grad = given * spec.gradient_rescale if spec.gradient_rescale != 1 else given
    return leaf, spec.regularization_scale if spec.regularization_type == "l2" else 0.0


def sgd(torch: Torch, problem: Any, gradient: Array, value: Array, *moments: Array, out: Any) -> None:
    spec, optim = problem.spec, torch.torch.optim
    leaf, decay = _leaf(torch, problem, gradient, value)
    scale, rate = (spec.momentum_scale if moments else 0.0), spec.learning_rate
    nesterov = bool(moments) and spec.use_nesterov_momentum
    if scale < 0 or (moments and scale == 0) or (moments and not nesterov and rate == 0):
        raise UnsupportedError(f"SGD of PyTorch has no momentum of {scale} with learning rate {rate}")
    optimizer = optim.SGD([leaf], lr=rate, momentum=scale, weight_decay=decay, nesterov=nesterov)
    # The momentum of MPS contains the learning rate, unless it is Nesterov's.
    unit = 1.0 if nesterov else rate
    for m in moments:
        optimizer.state[leaf]["momentum_buffer"] = torch.tensor(m).clone() / unit
    optimizer.step()
    if not moments:
        out[...] = torch.array(leaf)
        return
    out[0][...], out[1][...] = torch.array(leaf), torch.array(optimizer.state[leaf]["momentum_buffer"] * unit)


def rmsprop(torch: Torch, problem: Any, gradient: Array, value: Array, s: Array, out: Any) -> None:
    spec = problem.spec
    leaf, decay = _leaf(torch, problem, gradient, value)
    optimizer = torch.torch.optim.RMSprop([leaf], spec.learning_rate, spec.decay, spec.epsilon, weight_decay=decay)
    optimizer.state[leaf].update(step=torch.torch.tensor(1.0), square_avg=torch.tensor(s).clone())
    optimizer.step()
    out[0][...], out[1][...] = torch.array(leaf), torch.array(optimizer.state[leaf]["square_avg"])


def adam(torch: Torch, problem: Any, gradient: Array, value: Array, *moments: Array, out: Any) -> None:
    spec, step = problem.spec, problem.time_step
    leaf, decay = _leaf(torch, problem, gradient, value)
    # PyTorch adds epsilon to the corrected root, MPS to the root.
    epsilon = spec.epsilon / math.sqrt(1 - spec.beta2**step)
    betas = spec.beta1, spec.beta2
    optimizer = torch.torch.optim.Adam([leaf], spec.learning_rate, betas, epsilon, decay, amsgrad=problem.maximum)
    names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: len(moments)]
    state = {name: torch.tensor(moment).clone() for name, moment in zip(names, moments, strict=True)}
    optimizer.state[leaf].update(step=torch.torch.tensor(step - 1.0, dtype=torch.torch.float64), **state)
    optimizer.step()
    for target, result in zip(out, (leaf, *(optimizer.state[leaf][name] for name in names)), strict=True):
        target[...] = np.asarray(torch.array(result))


IMPLEMENTATIONS = {
    (StochasticGradientDescent, "step"): sgd,
    (RMSProp, "step"): rmsprop,
    (Adam, "step"): adam,
}
