"""Calls of PyTorch for the benchmark: those of the table, at their lowest level, with tensors that are prepared.

The first call of an implementation is recorded while it runs. A gradient is the operator that autograd calls, such as
``avg_pool2d_backward``; several operators are timed through autograd. :data:`CALLS` has what users call in another
form than a check: in another layout, with weights that are converted before, or where autograd has nothing to compute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from mpsref import (
    Adam,
    Arithmetic,
    BatchNormalization,
    Concatenation,
    Convolution,
    Dropout,
    GroupNormalization,
    InstanceNormalization,
    LocalContrastNormalization,
    LogSoftMax,
    Loss,
    Reduce,
    RMSProp,
    SoftMax,
    SpatialNormalization,
    StochasticGradientDescent,
    UnsupportedError,
    frameworks,
)
from mpsref.arguments.arrays import Array
from mpsref.backend import Timed
from mpsref.frameworks.adapter import AdaptedCall, Convert, Function, Table, Tensor
from mpsref.operations import OperationKey, Problem, Spec
from mpsref_torch.operations import table
from mpsref_torch.run import Torch

Call: TypeAlias = Callable[[], Any]

# --- calls of the table -----------------------------------------------------------------------------------------------

INTO = {"max_pool2d_with_indices": ("out", "out indices"), "pow": ("Tensor_Scalar_out", "out")}
"""Variants that write into given memory, and their arguments, where their names are not the usual ones."""

COPYING = ("relu", "native_dropout_backward")
"""Operators that are timed into given memory although their variant computes elsewhere and copies."""


def again(operator: Any, arguments: Any, keywords: Any, result: Any, *, fresh: bool) -> Call | None:
    """Return the same call of an operator, into the memory of its result unless ``fresh``; ``None`` if it cannot."""
    if fresh:
        return partial(operator, *arguments, **keywords)
    packet = operator.overloadpacket
    name = packet.__name__
    usual = "grad_input" if name.endswith("backward") and name not in COPYING else "out"
    variant, names = INTO.get(name, (usual, usual))
    if variant not in packet.overloads():
        return None
    into = getattr(packet, variant)
    if name not in COPYING and any(tag.name == "generated" for tag in into.tags):
        return None
    given = dict(zip(names.split(), result if isinstance(result, tuple) else (result,), strict=True))
    return partial(into, *arguments, **keywords, **given)


@dataclass(eq=False)
class Recorder(Torch):
    """PyTorch that keeps its first call, as one that can be repeated."""

    fresh: bool = True
    """Whether the repeated call allocates its result."""
    kept: list[Call | None] = field(default_factory=list)

    def adapted(self, problem: Any, convert: Convert) -> AdaptedCall:
        """Return the arguments with which PyTorch returns exactly the result of a problem."""
        words = convert(problem)
        if words.output_size != words.size:
            raise UnsupportedError(f"the result of PyTorch is larger: {words.output_size}")
        return super().adapted(problem, convert)

    def run(self, function: Function, *arrays: Array) -> Array:
        """Return ``function(*tensors)``, and keep the call."""
        with self.torch.inference_mode(False), self.torch.no_grad():  # a composite operator is seen in inference mode
            return self.array(self._keep(partial(function, *map(self.tensor, arrays))))

    def gradients(self, function: Function, arrays: Sequence[Array], g: Array, count: int = 1) -> tuple[Array, ...]:
        """Return the gradients, and keep their call, of which the forward pass is no part."""
        with self.torch.inference_mode(False), self.torch.enable_grad():
            return super().gradients(function, arrays, g, count)

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        """Return the gradients by ``torch.autograd.grad``."""
        leaves = [tensor.detach().requires_grad_(k < count) for k, tensor in enumerate(tensors)]
        y, wanted, autograd = function(*leaves), leaves[:count], self.torch.autograd

        def backward() -> Any:
            with self.torch.inference_mode(False):
                return autograd.grad(y, wanted, g, retain_graph=True, allow_unused=True)

        zeros = map(self.torch.zeros_like, leaves)
        return [z if d is None else d for d, z in zip(self._keep(backward), zeros, strict=False)]

    def _keep(self, call: Call) -> Any:
        """Make a call, and keep it: the operator where it is one, nothing where there are none but views."""
        from torch.utils._python_dispatch import TorchDispatchMode

        seen: list[Any] = []

        class Operators(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                if not func.is_view:
                    seen.append((func, args, kwargs or {}, result))
                return result

        with Operators():
            result = call()
        if len(seen) == 1:
            self.kept.append(again(*seen[0], fresh=self.fresh))
        else:
            self.kept.append(call if seen and self.fresh else None)
        return result


def normalized(torch: Torch) -> Table:
    """Return what PyTorch has no function for: normalizations by the pixels around, of which a check has no use."""

    def make(formula: Callable[..., Tensor]) -> Callable[[Any], Function]:
        def of(problem: Any) -> Function:
            spec, functional = problem.spec, torch.functional
            if problem.output_size != problem.source_shape[1:3] or any(window.offset for window in spec.windows):
                raise UnsupportedError("not one output for each pixel")
            (top, height), (left, width) = ((window.center, window.kernel) for window in spec.windows)
            pads = left, width - 1 - left, top, height - 1 - top
            mean = lambda x: functional.avg_pool2d(functional.pad(x, pads), (height, width), stride=1)  # noqa: E731
            return lambda x: formula(spec, x, mean)

        return of

    def spatial(spec: Any, x: Tensor, mean: Function) -> Tensor:
        return x * (spec.delta + spec.alpha * mean(x * x)) ** -spec.beta

    def local_contrast(spec: Any, x: Tensor, mean: Function) -> Tensor:
        m = mean(x)
        base = spec.delta + spec.alpha * (mean(x * x) - m * m)
        return spec.pm + spec.ps * (x - spec.p0 * m) * base**-spec.beta

    return {
        **torch.layer(SpatialNormalization, make(spatial)),
        **torch.layer(LocalContrastNormalization, make(local_contrast)),
    }


# --- other calls ------------------------------------------------------------------------------------------------------


def convolution(torch: Torch, problem: Any, tensors: Sequence[Tensor], fresh: bool) -> Call | None:
    """Return the forward pass with weights in oneDNN's own layout, where this build of PyTorch has that."""
    x, weight, *bias = tensors
    if problem.spec.neuron or not fresh or torch.device != "cpu" or not torch.torch.backends.mkldnn.is_available():
        return None
    words = Recorder().adapted(problem, frameworks.pytorch).keywords
    strides, pads, dilations = (list(words[name]) for name in ("stride", "padding", "dilation"))
    groups = words["groups"]
    packed = torch.torch._C._nn.mkldnn_reorder_conv2d_weight(
        weight.to_mkldnn(), pads, strides, dilations, groups, list(x.shape)
    )
    pointwise = torch.torch.ops.mkldnn._convolution_pointwise
    return lambda: pointwise(x, packed, bias[0] if bias else None, pads, strides, dilations, groups, "none", [], "")


def softmax(torch: Torch, problem: Any, tensors: Sequence[Tensor], fresh: bool) -> Call:
    """Return either kernel, or its gradient, over the last axis: the fastest case of PyTorch."""
    log, aten = isinstance(problem.spec, LogSoftMax), torch.aten
    last = [tensor.permute(0, 2, 3, 1) for tensor in tensors]
    if problem.method == "forward":
        packet, into, rest = (aten._log_softmax if log else aten._softmax), "out", (3, False)
    else:
        packet = aten._log_softmax_backward_data if log else aten._softmax_backward_data
        into, rest = "out" if log else "grad_input", (3, torch.torch.float32)
    if fresh:
        return lambda: packet(*last, *rest).permute(0, 3, 1, 2)
    out = {into: torch.torch.empty_like(last[0])}
    return lambda: packet.out(*last, *rest, **out).permute(0, 3, 1, 2)


def dropout(torch: Torch, problem: Any, tensors: Sequence[Tensor], fresh: bool) -> Call | None:
    """Return the product with mask and scale, which is the gradient of PyTorch; it has no other masks than its own."""
    backward, (image, mask) = torch.aten.native_dropout_backward, tensors
    return again(backward.default, (image, mask.bool(), float(problem.spec.scale)), {}, image.clone(), fresh=fresh)


def concatenation_gradient(torch: Torch, problem: Any, tensors: Sequence[Tensor], fresh: bool) -> Call:
    """Return copies in place of PyTorch's views."""
    if any(problem.spec.aligned(c) != c for c in problem.channels):
        raise UnsupportedError("sources are padded")
    slices, last = torch.torch.split(tensors[0], list(problem.channels), 1), torch.torch.channels_last
    copies = [one.clone(memory_format=last) for one in slices]
    if fresh:
        return lambda: [one.clone(memory_format=last) for one in slices]
    return lambda: [copy.copy_(one) for copy, one in zip(copies, slices, strict=True)]


def reduce_gradient(torch: Torch, problem: Any, tensors: Sequence[Tensor], fresh: bool) -> Call:
    """Return the gradient of a mean of the whole image, in memory of its own."""
    spec, (g,) = problem.spec, tensors
    if spec.clip or spec.weight != 1 or spec.operation != "mean" or not fresh:
        raise UnsupportedError("no mean of the whole image")
    n, height, width, c = problem.source_shape
    last = torch.torch.channels_last
    return lambda: (g / problem.count).expand(n, c, height, width).contiguous(memory_format=last)


def arithmetic_gradient(torch: Torch, problem: Any, tensors: Sequence[Tensor], fresh: bool) -> Call:
    """Return both gradients; that of an operand which is as large as the result is a copy."""
    spec, t = problem.spec, torch.torch
    unscaled = (spec.primary_scale, spec.secondary_scale) == (1, 1)
    if not unscaled or spec.clamps or spec.bias or any(any(operand.offset) for operand in spec.operands):
        raise UnsupportedError("with scales, a bias, a clamp or offsets")
    folded = [tuple((2, 3, 1)[axis] for axis, s in enumerate(operand.strides) if s == 0) for operand in spec.operands]
    g, *operands = tensors

    def terms(k: int, out: Tensor | None) -> Tensor:
        if spec.operation == "multiply":
            return t.mul(g, operands[1 - k], out=out)
        if spec.operation == "subtract" and k == 1:
            return t.neg(g, out=out)
        if folded[k]:
            return g
        return g.clone() if out is None else out.copy_(g)

    def both(outs: Sequence[Tensor | None] = (None, None)) -> list[Tensor]:
        return [
            t.sum(terms(k, None), axes, keepdim=True, out=outs[k]) if axes else terms(k, outs[k])
            for k, axes in enumerate(folded)
        ]

    return both if fresh else partial(both, both())


def loss_forward(torch: Torch, problem: Any, tensors: Sequence[Tensor], fresh: bool) -> Call | None:
    """Return the cross entropy with the smoothing of PyTorch where all channels are classes."""
    spec, (y, t) = problem.spec, tensors[:2]
    classes = spec.type == "softmaxcrossentropy" and spec.number_of_classes == problem.source_shape[3]
    if not spec.label_smoothing or not classes or problem.weighted or spec.reduction != "sum" or spec.weight != 1:
        return None
    smoothed = {"reduction": "none", "label_smoothing": spec.label_smoothing}
    return lambda: torch.functional.cross_entropy(y, t, **smoothed).flatten(1).sum(1)[:, None, None, None]


def loss_gradient(torch: Torch, problem: Any, tensors: Sequence[Tensor], fresh: bool) -> Call | None:
    """Return the gradient of the sum by predictions, without weights and source gradient."""
    spec = problem.spec
    whole = problem.label_channels == problem.source_shape[3] and not spec.label_smoothing
    if problem.weighted or problem.chained or spec.weight != 1 or spec.reduce_across_batch or not whole:
        return None
    (y, t), aten, one, summed = tensors, torch.aten, tensors[0].new_ones(()), 2
    calls: Mapping[str, Call] = {
        "meanabsoluteerror": lambda: torch.torch.sub(y, t).sign_(),
        "meansquarederror": lambda: aten.mse_loss_backward(one, y, t, summed),
        "huber": lambda: aten.huber_loss_backward(one, y, t, summed, spec.delta),
        "softmaxcrossentropy": lambda: torch.torch.softmax(y, 1).sub_(t),
        "sigmoidcrossentropy": lambda: torch.torch.sigmoid(y).sub_(t),
    }
    return calls.get(spec.type)


def batch_gradient(torch: Torch, problem: Any, tensors: Sequence[Tensor], fresh: bool) -> Call | None:
    """Return the last step of the backward pass of synchronized batch normalization, which a GPU has."""
    given = problem.named(tensors)
    if not problem.count or torch.device == "cpu" or problem.spec.activates:
        return None
    root = (given.variance + problem.spec.epsilon).rsqrt()
    count = torch.torch.tensor([problem.count], dtype=torch.torch.int32, device=given.x.device)
    arguments = given.g, given.x, given.mean, root, given.gamma, given.dbeta, given.dgamma / root, count
    return partial(torch.aten.batch_norm_backward_elemt, *arguments)


def optimizer(step: Callable[..., Any]) -> Callable[..., Call]:
    """Return the formula of an optimizer of ``torch.optim``, into new memory."""

    def call(torch: Torch, problem: Any, tensors: Sequence[Tensor], fresh: bool) -> Call:
        spec, (gradient, value, *moments) = problem.spec, tensors
        if spec.apply_gradient_clipping or spec.gradient_rescale != 1 or spec.regularization_type == "l1":
            raise UnsupportedError("a gradient that is clipped, rescaled, or has L1 regularization")
        if spec.regularization_type == "l2":
            return lambda: step(problem, gradient.add(value, alpha=spec.regularization_scale), value, *moments)
        return lambda: step(problem, gradient, value, *moments)

    return call


def sgd(problem: Any, gradient: Tensor, value: Tensor, *moments: Tensor) -> Any:
    spec = problem.spec
    if not moments:
        return value.add(gradient, alpha=-spec.learning_rate)
    factor = 1 if spec.use_nesterov_momentum else spec.learning_rate
    m = moments[0].mul(spec.momentum_scale).add_(gradient, alpha=factor)
    if not spec.use_nesterov_momentum:
        return value - m, m
    return value.add(gradient.add(m, alpha=spec.momentum_scale), alpha=-spec.learning_rate), m


def rmsprop(problem: Any, gradient: Tensor, value: Tensor, s: Tensor) -> Any:
    spec = problem.spec
    s = s.mul(spec.decay).addcmul_(gradient, gradient, value=1 - spec.decay)
    return value.addcdiv(gradient, s.sqrt().add_(spec.epsilon), value=-spec.learning_rate), s


def adam(problem: Any, gradient: Tensor, value: Tensor, m: Tensor, u: Tensor, *largest: Tensor) -> Any:
    spec = problem.spec
    m = m.lerp(gradient, 1 - spec.beta1)
    u = u.mul(spec.beta2).addcmul_(gradient, gradient, value=1 - spec.beta2)
    most = [largest[0].maximum(u)] if largest else []
    root = (most[0] if most else u).sqrt().add_(spec.epsilon)
    return (value.addcdiv(m, root, value=-spec.corrected_rate(problem.time_step)), m, u, *most)


CALLS: Mapping[OperationKey, Callable[..., Call | None]] = {
    (Convolution, "forward"): convolution,
    **{(kind, method): softmax for kind in (SoftMax, LogSoftMax) for method in ("forward", "gradient")},
    **{(Dropout, method): dropout for method in ("forward", "gradient")},
    (Concatenation, "gradient"): concatenation_gradient,
    (Reduce, "gradient"): reduce_gradient,
    (Arithmetic, "gradient"): arithmetic_gradient,
    (Loss, "forward"): loss_forward,
    (Loss, "gradient"): loss_gradient,
    (BatchNormalization, "gradient"): batch_gradient,
    (StochasticGradientDescent, "step"): optimizer(sgd),
    (RMSProp, "step"): optimizer(rmsprop),
    (Adam, "step"): optimizer(adam),
}
"""Calls in another form than a check makes; one that returns ``None`` leaves the problem to the table."""

# --- for the benchmark ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """PyTorch on a device, as :class:`mpsref.backend.Timing`."""

    device: str = "cpu"

    @contextlib.contextmanager
    def session(self, threads: int) -> Iterator[str]:
        """Yield the version of PyTorch, which has this many threads and computes in float32."""
        import torch

        before = torch.get_num_threads()
        settings = torch.backends.cuda.matmul, torch.backends.cudnn
        tf32 = [setting.allow_tf32 for setting in settings]
        torch.set_num_threads(threads)
        for setting in settings:
            setting.allow_tf32 = False
        try:
            with torch.inference_mode():
                yield str(torch.__version__)
        finally:
            torch.set_num_threads(before)
            for setting, value in zip(settings, tf32, strict=True):
                setting.allow_tf32 = value

    def timed(self, problem: Problem, inputs: Sequence[Array], *, fresh: bool = True) -> Timed | None:
        """Return the call of PyTorch for a problem, and its results."""
        images = problem.input_shapes.get("x", (0,))[0]
        if isinstance(problem.spec, InstanceNormalization) and problem.method == "gradient" and images == 1:
            return None  # PyTorch 2.13 computes another gradient for a single channels-last image
        run = Recorder(self.device, fresh=fresh)
        try:
            if problem.operation in CALLS:
                tensors = [run.tensor(array) for array in inputs]
                if (call := CALLS[problem.operation](run, problem, tensors, fresh)) is not None:
                    return Timed(call, arrays(run, call()))
            dtypes = problem.result_dtypes(*(array.dtype for array in inputs))
            results = tuple(np.empty(*one) for one in zip(problem.result_shapes, dtypes, strict=True))
            implementations = table(run) | normalized(run)
            if problem.operation not in implementations:
                return None
            implementations[problem.operation](problem, *inputs, out=results if len(results) > 1 else results[0])
        except UnsupportedError:
            return None
        if len(run.kept) > 1 and isinstance(problem.spec, InstanceNormalization | GroupNormalization):
            results = results[:1]  # the others were computed for each image
        return None if run.kept[0] is None else Timed(run.kept[0], results)

    def together(self, spec: Spec, named: Mapping[str, Array]) -> Timed | None:
        """Return a training step of batch normalization: both passes with the statistics of the batch."""
        if not isinstance(spec, BatchNormalization) or spec.activates:
            return None
        run = Recorder(self.device)
        aten, epsilon = run.aten, spec.epsilon
        g, x = run.tensor(named["g"]), run.tensor(named["x"])
        gamma, beta = (run.tensor(named[name]) if name in named else None for name in ("gamma", "beta"))

        def step() -> tuple[Tensor, ...]:
            y, mean, root = aten.native_batch_norm(x, gamma, beta, None, None, True, 0.0, epsilon)
            mask = [True, gamma is not None, beta is not None]
            return y, *aten.native_batch_norm_backward(g, x, gamma, None, None, mean, root, True, epsilon, mask)

        return Timed(step, arrays(run, step()))


def arrays(run: Torch, result: Any) -> tuple[Array, ...]:
    """Return the result of a call, a tensor or several, as arrays; some releases leave out masked gradients."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    return tuple(run.array(one) for one in results if one is not None)
