"""The table of PyTorch: the functions that its users call, for each kernel of mpsref.

``table(torch)`` returns implementations on a device; :class:`mpsref.frameworks.Framework` makes them of functions of
tensors (N, C, H, W), and their gradients by autograd. Where mpsref passes what autograd keeps, a result or a mask, the
operator that autograd calls takes it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpsref import (
    Adam,
    CrossChannelNormalization,
    GraphPoolingMax,
    GraphResizeBilinear,
    GraphResizeNearest,
    GroupNormalization,
    InstanceNormalization,
    LogSoftMax,
    Loss,
    Neuron,
    Operation,
    PoolingAverage,
    PoolingL2Norm,
    PoolingMax,
    RMSProp,
    SoftMax,
    StochasticGradientDescent,
    UnsupportedError,
    UpsamplingBilinear,
    UpsamplingNearest,
    frameworks,
)
from mpsref.arguments.arrays import Array
from mpsref.frameworks import call_text
from mpsref.frameworks.adapter import Function, Table, Tensor, like, scaled
from mpsref.frameworks.words import CallArguments
from mpsref_torch.run import SYNTAX, Torch

# --- neurons and losses -----------------------------------------------------------------------------------------------


def _hard_sigmoid(torch: Torch, n: Neuron) -> Function:
    if (n.a, n.b) == (1 / 6, 0.5):
        return torch.functional.hardsigmoid  # type: ignore[no-any-return]
    return lambda x: torch.torch.clamp(n.a * x + n.b, 0, 1)


def _relun(torch: Torch, n: Neuron) -> Function:
    if n.a == 0 and n.b >= 0:
        return lambda x: torch.functional.hardtanh(x, 0.0, n.b)
    return lambda x: torch.torch.clamp(torch.functional.leaky_relu(x, n.a), max=n.b)


def _softplus(torch: Torch, n: Neuron) -> Function:
    if n.a * n.b == 1:
        return lambda x: torch.functional.softplus(x, n.b)
    return lambda x: n.a * torch.functional.softplus(n.b * x)


NEURONS: Mapping[str, Callable[[Torch, Neuron], Function]] = {
    "none": lambda torch, n: lambda x: x * 1,
    "relu": lambda torch, n: torch.functional.relu if n.a == 0 else lambda x: torch.functional.leaky_relu(x, n.a),
    "linear": lambda torch, n: lambda x: n.a * x + n.b,
    "sigmoid": lambda torch, n: torch.functional.sigmoid,
    "hardsigmoid": _hard_sigmoid,
    "tanh": lambda torch, n: lambda x: scaled(torch.functional.tanh(scaled(x, n.b)), n.a),
    "absolute": lambda torch, n: torch.torch.abs,
    "softplus": _softplus,
    "softsign": lambda torch, n: torch.functional.softsign,
    "elu": lambda torch, n: lambda x: torch.functional.elu(x, n.a),
    "relun": _relun,
    "power": lambda torch, n: lambda x: torch.torch.pow(scaled(x, n.a, n.b), n.c),
    "exponential": lambda torch, n: lambda x: torch.torch.exp(scaled(scaled(x, n.a, n.b), n.log_base)),
    "logarithm": lambda torch, n: lambda x: scaled(torch.torch.log(scaled(x, n.a, n.b)), 1 / n.log_base),
    "gelu": lambda torch, n: torch.functional.gelu,
    "prelu": lambda torch, n: torch.functional.prelu,
}

LOSSES: Mapping[str, Callable[[Any, Loss], Function]] = {
    "meanabsoluteerror": lambda f, loss: lambda y, t: f.l1_loss(y, t, reduction="none"),
    "meansquarederror": lambda f, loss: lambda y, t: f.mse_loss(y, t, reduction="none"),
    "huber": lambda f, loss: lambda y, t: f.huber_loss(y, t, reduction="none", delta=loss.delta),
    "kullbackleiblerdivergence": lambda f, loss: lambda y, t: f.kl_div(y, t, reduction="none"),
    "sigmoidcrossentropy": lambda f, loss: lambda y, t: f.binary_cross_entropy_with_logits(y, t, reduction="none"),
    "softmaxcrossentropy": lambda f, loss: lambda y, t: f.cross_entropy(y, t, reduction="none")[:, None],
}  # labels are smoothed before: the smoothing of PyTorch takes the number of channels for that of the classes


# --- optimizers: one step, with the state set to the moments ----------------------------------------------------------


def _leaf(problem: Any, gradient: Tensor, value: Tensor) -> tuple[Tensor, float]:
    """Return the parameter with its gradient, clipped and rescaled as a user does it, and the weight decay."""
    spec = problem.spec
    if spec.regularization_type == "l1":
        raise UnsupportedError("optimizers of PyTorch have no L1 regularization")
    if spec.learning_rate < 0:
        raise UnsupportedError("optimizers of PyTorch take no negative learning rate")
    if spec.regularization_type == "l2" and spec.regularization_scale < 0:
        raise UnsupportedError("optimizers of PyTorch take no negative weight decay")
    leaf, given = value.clone().requires_grad_(), gradient.clone()
    if spec.apply_gradient_clipping:
        given = given.clamp(spec.gradient_clip_min, spec.gradient_clip_max)
    leaf.grad = scaled(given, spec.gradient_rescale)
    return leaf, spec.regularization_scale if spec.regularization_type == "l2" else 0.0


def _fused(torch: Torch) -> dict[str, bool]:
    return {"fused": True} if torch.fused else {}


def _written(tensor: Tensor) -> str:
    return call_text.values(SYNTAX, tensor.detach().cpu().numpy())


def _step(optimizer: Any, leaf: Tensor) -> None:
    """Take a step; while calls are noted, with its text."""

    def text() -> str:
        first = inspect.signature(type(optimizer)).parameters
        own = {name: one for name, one in optimizer.defaults.items() if name in first and one != first[name].default}
        words = "".join(f", {name}={one!r}" for name, one in own.items())
        state = ", ".join(f"{name}={_written(one)}" for name, one in optimizer.state[leaf].items())
        lines = [f"x = {SYNTAX.leaf.format(_written(leaf))}", f"x.grad = {_written(leaf.grad)}"]
        lines.append(f"optimizer = torch.optim.{type(optimizer).__name__}([x]{words})")
        lines += [f"optimizer.state[x].update({state})"] if state else []
        return "\n".join(["import torch", *lines, "optimizer.step()", "[x, *optimizer.state[x].values()]"])

    call_text.note_text(text)
    optimizer.step()


def _sgd(torch: Torch, problem: Any, gradient: Tensor, value: Tensor, *moments: Tensor) -> Sequence[Tensor]:
    spec = problem.spec
    leaf, decay = _leaf(problem, gradient, value)
    scale, rate = (spec.momentum_scale if moments else 0.0), spec.learning_rate
    nesterov = bool(moments) and spec.use_nesterov_momentum
    if scale < 0 or (moments and scale == 0) or (moments and not nesterov and rate == 0):
        raise UnsupportedError(f"SGD of PyTorch has no momentum of {scale} with learning rate {rate}")
    words = {"momentum": scale, "weight_decay": decay, "nesterov": nesterov, **_fused(torch)}
    optimizer = torch.torch.optim.SGD([leaf], lr=rate, **words)
    unit = 1.0 if nesterov else rate  # the momentum of MPS contains the learning rate, unless it is Nesterov's
    for m in moments:
        optimizer.state[leaf]["momentum_buffer"] = m / unit
    _step(optimizer, leaf)
    return [leaf, *(optimizer.state[leaf]["momentum_buffer"] * unit for _ in moments)]


def _rmsprop(torch: Torch, problem: Any, gradient: Tensor, value: Tensor, s: Tensor) -> Sequence[Tensor]:
    spec = problem.spec
    leaf, decay = _leaf(problem, gradient, value)
    optimizer = torch.torch.optim.RMSprop([leaf], spec.learning_rate, spec.decay, spec.epsilon, weight_decay=decay)
    optimizer.state[leaf].update(step=torch.torch.tensor(1.0), square_avg=s.clone())
    _step(optimizer, leaf)
    return leaf, optimizer.state[leaf]["square_avg"]


def _adam(torch: Torch, problem: Any, gradient: Tensor, value: Tensor, *moments: Tensor) -> Sequence[Tensor]:
    spec, step = problem.spec, problem.time_step
    leaf, decay = _leaf(problem, gradient, value)
    epsilon = spec.epsilon / math.sqrt(1 - spec.beta2**step)  # MPS adds it to the root before the correction
    betas = spec.beta1, spec.beta2
    words = {"amsgrad": problem.maximum, **_fused(torch)}
    optimizer = torch.torch.optim.Adam([leaf], spec.learning_rate, betas, epsilon, decay, **words)
    names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: len(moments)]
    state = {name: moment.clone() for name, moment in zip(names, moments, strict=True)}
    kind = torch.torch.float32 if torch.fused else torch.torch.float64
    optimizer.state[leaf].update(step=torch.torch.tensor(step - 1.0, dtype=kind), **state)
    _step(optimizer, leaf)
    return [leaf, *(optimizer.state[leaf][name] for name in names)]


# --- the table --------------------------------------------------------------------------------------------------------

PAD_MODES = {"zero": "constant", "constant": "constant", "clamp": "replicate", "mirror": "reflect"}
REDUCTIONS = {"min": "amin", "max": "amax", "argumentmin": "argmin", "argumentmax": "argmax"}


def table(torch: Torch) -> Table:
    """Return the implementations of PyTorch on a device; PyTorch is imported when one of them is called."""

    def normalization(problem: Any) -> Function:
        spec, f = problem.spec, torch.functional
        if isinstance(spec, InstanceNormalization):
            return lambda x, gamma, beta: f.instance_norm(x, weight=gamma, bias=beta, eps=spec.epsilon)
        return lambda x, gamma, beta: f.group_norm(x, spec.groups, gamma, beta, spec.epsilon)

    def batch_normalization(problem: Any) -> Function:
        batch_norm, epsilon = torch.functional.batch_norm, problem.spec.epsilon
        return lambda x, gamma, beta, mean, variance: batch_norm(
            x, mean, variance, gamma, beta, training=False, eps=epsilon
        )

    def local_response(problem: Any) -> Function:
        spec = problem.spec
        parameters = spec.kernel_size, spec.alpha, spec.beta, spec.delta
        return lambda x: torch.functional.local_response_norm(x, *parameters)

    def upsampling(problem: Any) -> Function:
        size, interpolate = problem.large_shape[1:3], torch.functional.interpolate
        if isinstance(problem.spec, UpsamplingNearest):
            return lambda x: interpolate(x, size=size, mode="nearest")
        if not problem.spec.align_corners:
            raise UnsupportedError("without aligned corners PyTorch shifts the positions by half a pixel; MPS does not")
        return lambda x: interpolate(x, size=size, mode="bilinear", align_corners=True)

    def resize(problem: Any) -> Function:
        spec, size, interpolate = problem.spec, problem.large_shape[1:3], torch.functional.interpolate
        if spec.scale_offset is None and isinstance(spec, GraphResizeBilinear):
            if spec.center_result or spec.align_corners:
                return lambda x: interpolate(x, size=size, mode="bilinear", align_corners=spec.align_corners)
        elif spec.scale_offset is None and not spec.align_corners:
            mode = {("floor", False): "nearest", ("round_prefer_ceil", True): "nearest-exact"}.get(
                (spec.rounding, spec.center_result)
            )
            if mode:
                return lambda x: interpolate(x, size=size, mode=mode)
        raise UnsupportedError(
            "PyTorch interpolates with centres or aligned corners, and copies pixels of positions rounded down, or of "
            "centres to the nearest"
        )

    def pooled(problem: Any) -> tuple[CallArguments, dict[str, Any]]:
        if (problem.spec.indices, problem.spec.layout) != ("global_flatten_2d", "NCHW"):
            raise UnsupportedError("PyTorch numbers the pixels of a plane (H, W) alone")
        words = frameworks.pytorch(problem)
        return words, words.keywords

    def pool_with_indices(problem: Any, x: Array, out: tuple[Array, Array]) -> None:
        words, arguments = pooled(problem)
        pool = torch.functional.max_pool2d
        for k, result in enumerate(out):
            result[...] = words.crop(torch.run(lambda x, k=k: pool(x, **arguments, return_indices=True)[k], x))

    def gradient_from_indices(problem: Any, g: Array, indices: Array, out: Array) -> None:
        words, arguments = pooled(problem)
        given = [arguments[name] for name in ("kernel_size", "stride", "padding", "dilation", "ceil_mode")]
        backward = torch.aten.max_pool2d_with_indices_backward
        images = words.extend(g), like(g, problem.source_shape), words.extend(indices)
        out[...] = torch.run(lambda g, x, indices: backward(g, x, *given, indices.long()), *images)

    def of_softmax(log: bool) -> Callable[[Any], Function]:
        def make(problem: Any) -> Function:
            backward = torch.aten._log_softmax_backward_data if log else torch.aten._softmax_backward_data
            return lambda g, y: backward(g, y, 1, y.dtype)

        return make

    def dropout(problem: Any) -> Function:
        backward, scale = torch.aten.native_dropout_backward, float(problem.spec.scale)
        return lambda g, mask: backward(g, mask, scale)

    def pad(x: Tensor, pairs: Any, mode: str = "constant", fill: float = 0.0) -> Tensor:
        _, channels, rows, columns = pairs
        if mode == "constant":
            return torch.functional.pad(x, (*columns, *rows, *channels), value=fill)
        if any(channels):
            raise UnsupportedError(f"mode {mode!r} of PyTorch's pad leaves the channels of an image alone")
        return torch.functional.pad(x, (*columns, *rows), mode=mode)

    def reduce(x: Tensor, operation: str, axes: Any) -> Tensor:
        return getattr(torch.torch, REDUCTIONS.get(operation, operation))(x, axes, keepdim=True).to(x.dtype)

    neuron = torch.of_type(NEURONS, torch)

    def loss(spec: Any) -> Any:
        return torch.of_type(LOSSES, torch.functional)(spec)  # imports PyTorch, which may not be installed

    def sums(x: Tensor, **words: Any) -> Tensor:
        return torch.functional.avg_pool2d(x, **{**words, "divisor_override": 1})

    return {
        **torch.pooling(PoolingMax, frameworks.pytorch, lambda x, **words: torch.functional.max_pool2d(x, **words)),
        **torch.pooling(
            PoolingAverage, frameworks.pytorch, lambda x, **words: torch.functional.avg_pool2d(x, **words), sums
        ),
        **torch.pooling(PoolingL2Norm, frameworks.pytorch, lambda x, **words: torch.functional.lp_pool2d(x, **words)),
        **torch.convolution(
            frameworks.pytorch, lambda *tensors, **words: torch.functional.conv2d(*tensors, **words), neuron, "OIHW"
        ),
        **torch.transposed_convolution(
            frameworks.pytorch,
            lambda *tensors, **words: torch.functional.conv_transpose2d(*tensors, **words),
            neuron,
            "OIHW",
            biased=True,
        ),
        **torch.fully_connected(lambda *tensors: torch.functional.linear(*tensors), neuron),
        **torch.group_normalization(InstanceNormalization, normalization),
        **torch.group_normalization(GroupNormalization, normalization),
        **torch.batch_normalization(
            lambda x: torch.aten.batch_norm_update_stats(x, None, None, 0.0), batch_normalization, neuron
        ),
        **torch.layer(CrossChannelNormalization, local_response),
        **torch.neurons(neuron),
        **torch.softmax(lambda x: torch.functional.softmax(x, 1), lambda x: torch.functional.log_softmax(x, 1)),
        **torch.calls(SoftMax, gradient=of_softmax(log=False)),
        **torch.calls(LogSoftMax, gradient=of_softmax(log=True)),
        **torch.dropout(dropout),
        **torch.losses(loss, total=lambda v: v.flatten(1).sum(1)[:, None, None, None]),
        **torch.layer((UpsamplingNearest, UpsamplingBilinear), upsampling),
        Operation(GraphPoolingMax, "forward"): pool_with_indices,
        Operation(GraphPoolingMax, "gradient"): gradient_from_indices,
        **torch.layer((GraphResizeBilinear, GraphResizeNearest), resize),
        **torch.padding(PAD_MODES, pad),
        **torch.reductions(reduce),
        **torch.slices(pad),
        **torch.reshape(lambda x, shape: x.reshape(shape), lambda x, axes: x.permute(axes)),
        **torch.concatenation(lambda images, axis: torch.torch.cat(images, axis), pad),
        **torch.arithmetic(lambda x, low, high: torch.torch.clamp(x, low, high)),
        **torch.compare(lambda x: torch.torch.abs(x), lambda mask: mask.float()),
        **torch.optimizer(StochasticGradientDescent, lambda *step: _sgd(torch, *step)),
        **torch.optimizer(RMSProp, lambda *step: _rmsprop(torch, *step)),
        **torch.optimizer(Adam, lambda *step: _adam(torch, *step)),
    }
