"""The functions and modules of PyTorch that an audit compares, each with the problems of mpsref that it computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from mpsref import LogSoftMax, Loss, Neuron, SoftMax
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref_torch.auditing import formulas, moves, normalizing, pointwise, sliding
from mpsref_torch.auditing.layer import Numbers, Translate, Translated
from mpsref_torch.auditing.pointwise import Activation, CrossEntropy, ElementLoss, Masked, OverChannels, TwoOperands


def _neuron(make: Callable[..., Neuron], *, in_place: bool = False) -> Translate:
    """Return the translation of a function of x and the parameters of ``make``."""

    def translate(input: Tensor, *args: Any, inplace: bool = False, **keywords: Any) -> Translated:
        return Activation(input, make(*args, **keywords), works_in_place=inplace or in_place)

    own = inspect.signature(translate).parameters
    given = own["input"], *inspect.signature(make).parameters.values(), own["inplace"]
    translate.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
    return translate


def _clamped(min_val: float = -1.0, max_val: float = 1.0) -> Neuron:
    if min_val != 0:
        raise UnsupportedError(f"min_val is {min_val}; ReLUN of MPS is 0 there")
    return Neuron("relun", a=0.0, b=max_val)


def _softplus(beta: float = 1.0, threshold: float = 20.0) -> Neuron:
    if threshold < 20:
        raise UnsupportedError(f"threshold is {threshold}; a line from there on differs from softplus of MPS")
    return Neuron("softplus", a=1 / beta, b=beta)


def _gelu(approximate: str = "none") -> Neuron:
    if approximate != "none":
        raise UnsupportedError(f"approximate is {approximate!r}; GeLU of MPS is not approximated")
    return Neuron("gelu")


def _loss(function: Any, make: Callable[..., Translated]) -> Translate:
    """Return the translation of a loss: ``make`` gets its arguments by their names there."""
    signature = inspect.signature(function)

    def translate(*args: Any, **keywords: Any) -> Translated:
        bound = signature.bind(*args, **keywords)
        bound.apply_defaults()
        given = dict(bound.arguments)
        refused = [name for name in ("size_average", "reduce", "pos_weight") if given.pop(name, None) is not None]
        if refused:
            raise UnsupportedError(f"the argument {refused[0]}")
        return make(**given)

    return translate


def _elements(make: Callable[..., Loss]) -> Callable[..., Translated]:
    """Return what makes a loss of elements from the arguments of PyTorch; ``make`` gets those that are its own."""

    def made(input: Tensor, target: Tensor, reduction: str, weight: Any = None, **parameters: Any) -> Translated:
        if weight is not None:
            raise UnsupportedError("weights of elements")
        return ElementLoss(input, target, make(**parameters), reduction)

    return made


def _smooth_l1(beta: float) -> Loss:
    return Loss("huber", delta=beta, weight=1 / beta) if beta > 0 else Loss("meanabsoluteerror")


def _divergence(log_target: bool) -> Loss:
    if log_target:
        raise UnsupportedError("log_target")
    return Loss("kullbackleiblerdivergence")


def _softmax(spec: SoftMax | LogSoftMax) -> Translate:
    def translate(input: Tensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Translated:
        if dtype is not None and dtype != input.dtype:
            raise UnsupportedError(f"a result of another dtype, {dtype}")
        return OverChannels(input, dim, spec)

    return translate


def _dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, channels: bool = False
) -> Translated:
    return Masked(input, p, training, channels=channels, works_in_place=inplace)


def _operands(name: str, *, in_place: bool = False) -> Translate:
    """Return the translation of an operation on two tensors, or on a tensor and a number."""

    def translate(input: Any, other: Any, *, alpha: float = 1, out: Any = None) -> Translated:
        if not isinstance(input, torch.Tensor) or out is not None:
            raise UnsupportedError("a number with a tensor, or an array for the result")
        if isinstance(other, torch.Tensor) and (other.dim() or not input.dim()):
            return TwoOperands(input, other, name, alpha, works_in_place=in_place)
        if isinstance(other, torch.Tensor) and other.requires_grad:
            raise UnsupportedError("a tensor of one number that requires a gradient")
        number = float(other)
        shift = {"add": number * alpha, "subtract": -number * alpha, "multiply": 0.0}[name]
        neuron = Neuron("linear", a=number if name == "multiply" else 1.0, b=shift)
        return Activation(input, neuron, works_in_place=in_place)

    return translate


def _divided(input: Any, other: Any, *, rounding_mode: Any = None, out: Any = None) -> Translated:
    """Return the translation of a tensor over a number."""
    if not isinstance(input, torch.Tensor) or isinstance(other, torch.Tensor) or rounding_mode or out is not None:
        raise UnsupportedError("a quotient of tensors, or one that is rounded")
    return Activation(input, Neuron("linear", a=1 / other, b=0.0))


LOSSES: Mapping[Any, Callable[..., Translated]] = {
    F.l1_loss: _elements(lambda: Loss("meanabsoluteerror")),
    F.mse_loss: _elements(lambda: Loss("meansquarederror")),
    F.huber_loss: _elements(lambda delta: Loss("huber", delta=delta)),
    F.smooth_l1_loss: _elements(_smooth_l1),
    F.kl_div: _elements(_divergence),
    F.binary_cross_entropy_with_logits: _elements(lambda: Loss("sigmoidcrossentropy")),
    F.cross_entropy: CrossEntropy,
    F.nll_loss: partial(CrossEntropy, of_logits=False),
}

T = torch.Tensor


class Known(NamedTuple):
    """What an audit has for some functions and modules of PyTorch."""

    name: str
    """In ``torch.nn.functional``."""
    translate: Translate
    names: str = ""
    """Of the functions: in ``torch.nn.functional``, in ``torch`` and of tensors; default: the name."""
    modules: type[nn.Module] | tuple[type[nn.Module], ...] = ()
    """Modules that compute it; more special ones come first."""
    again: Numbers = ""
    """What the call gets when it is run once more."""
    functions: tuple[Any, ...] = ()
    """The functions, where others of the same name take other arguments."""

    def found(self) -> Iterator[Any]:
        """Yield the functions."""
        yield from self.functions or (
            getattr(space, name)
            for name in (self.names or self.name).split()
            for space in (F, torch, T)
            if hasattr(space, name)
        )


def _pooling(name: str, translate: Translate, module: str, again: Numbers, other: str = "") -> list[Known]:
    """Return the rows of pooling over two axes and over one; ``other`` is the end of another name of its functions."""
    return [
        Known(
            f"{name}{rank}d",
            partial(translate, rank=rank),
            " ".join(dict.fromkeys((f"{name}{rank}d", f"{name}{rank}d{other}"))),
            getattr(nn, f"{module}{rank}d"),
            again,
        )
        for rank in (2, 1)
    ]


TABLE: tuple[Known, ...] = (
    Known("conv2d", sliding.ConvolutionLayer, "conv2d conv1d", (nn.Conv2d, nn.Conv1d), "products"),
    Known(
        "conv_transpose2d",
        sliding.TransposedLayer,
        "conv_transpose2d conv_transpose1d",
        (nn.ConvTranspose2d, nn.ConvTranspose1d),
        "products",
    ),
    Known("linear", sliding.LinearLayer, "linear", nn.Linear, "products"),
    Known("matmul", formulas.Product, "matmul __matmul__ mm bmm", (), "products"),
    *_pooling("avg_pool", sliding.average, "AvgPool", "means"),
    *_pooling("max_pool", sliding.largest, "MaxPool", "linear", "_with_indices"),
    *_pooling("lp_pool", sliding.norm, "LPPool", ""),
    *_pooling("adaptive_avg_pool", partial(sliding.adaptive, largest=False), "AdaptiveAvgPool", "means"),
    *_pooling(
        "adaptive_max_pool", partial(sliding.adaptive, largest=True), "AdaptiveMaxPool", "linear", "_with_indices"
    ),
    Known("fold", moves.Folded, again="sums"),
    Known("mean", sliding.MeanOfPixels, again="means"),
    Known("scaled_dot_product_attention", formulas.Attention, again="linear"),
    Known("embedding", formulas.Table, "", nn.Embedding, "sums", (F.embedding,)),
    Known("pixel_shuffle", formulas.Shuffled, "", nn.PixelShuffle, "linear"),
    Known("pixel_unshuffle", partial(formulas.Shuffled, back=True), "", nn.PixelUnshuffle, "linear"),
    Known("interpolate", sliding.interpolate, "", nn.Upsample, "linear"),
    Known("batch_norm", normalizing.batch, "", nn.modules.batchnorm._BatchNorm, "balanced", (F.batch_norm,)),
    Known(
        "batch_norm",
        lambda input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled=True: (
            normalizing.batch(input, running_mean, running_var, weight, bias, training, momentum, eps)
        ),
        again="balanced",
        functions=(torch.batch_norm,),
    ),
    Known(
        "instance_norm",
        normalizing.instance,
        "",
        nn.modules.instancenorm._InstanceNorm,
        "balanced",
        (F.instance_norm,),
    ),
    Known("group_norm", normalizing.group, "", nn.GroupNorm, "balanced"),
    Known("layer_norm", normalizing.layer, "", nn.LayerNorm, "balanced"),
    Known("rms_norm", formulas.rms_norm, "", nn.RMSNorm, "balanced"),
    Known("local_response_norm", normalizing.AcrossChannels, "", nn.LocalResponseNorm),
    Known("hardtanh", _neuron(lambda: Neuron("relun", a=0.0, b=6.0)), "relu6", nn.ReLU6, "pieces"),
    Known("hardtanh", _neuron(_clamped), "", nn.Hardtanh, "pieces"),
    Known("relu", _neuron(lambda: Neuron("relu")), "", nn.ReLU, "pieces"),
    Known("relu", _neuron(lambda: Neuron("relu"), in_place=True), "relu_"),
    Known("silu", formulas.silu, "", nn.SiLU, "pieces"),
    Known("hardswish", formulas.hardswish, "", nn.Hardswish, "pieces"),
    Known("glu", formulas.glu, "", nn.GLU, "pieces"),
    Known(
        "leaky_relu", _neuron(lambda negative_slope=0.01: Neuron("relu", a=negative_slope)), "", nn.LeakyReLU, "pieces"
    ),
    Known("sigmoid", _neuron(lambda: Neuron("sigmoid")), "", nn.Sigmoid, "pieces"),
    Known("sigmoid", _neuron(lambda: Neuron("sigmoid"), in_place=True), "sigmoid_"),
    Known("hardsigmoid", _neuron(lambda: Neuron("hardsigmoid", a=1 / 6, b=0.5)), "", nn.Hardsigmoid, "pieces"),
    Known("tanh", _neuron(lambda: Neuron("tanh")), "", nn.Tanh, "pieces"),
    Known("tanh", _neuron(lambda: Neuron("tanh"), in_place=True), "tanh_"),
    Known("softplus", _neuron(_softplus), "", nn.Softplus, "pieces"),
    Known("softsign", _neuron(lambda: Neuron("softsign")), "", nn.Softsign, "pieces"),
    Known("elu", _neuron(lambda alpha=1.0: Neuron("elu", a=alpha)), "", nn.ELU, "pieces"),
    Known("gelu", _neuron(_gelu), "", nn.GELU, "pieces"),
    Known("abs", _neuron(lambda: Neuron("absolute")), "abs __abs__", (), "pieces"),
    Known("prelu", pointwise.Slopes, "", nn.PReLU, "products"),
    Known("softmax", _softmax(SoftMax()), "", nn.Softmax, "distributions"),
    Known("log_softmax", _softmax(LogSoftMax()), "", nn.LogSoftmax, "distributions"),
    Known("dropout", _dropout, "", nn.Dropout),
    Known("dropout2d", partial(_dropout, channels=True), "dropout1d dropout2d dropout3d", nn.Dropout2d),
    Known("add", _operands("add"), "add __add__", (), "sums"),
    Known("add", _operands("add", in_place=True), "add_ __iadd__"),
    Known("sub", _operands("subtract"), "sub __sub__", (), "sums"),
    Known("mul", _operands("multiply"), "mul __mul__", (), "sums"),
    Known("div", _divided, "div __truediv__ true_divide"),
    *(
        Known(function.__name__, _loss(function, make), "", (), "means", (function,))
        for function, make in LOSSES.items()
    ),
)
"""A row for each translation of arguments."""

KNOWN: Mapping[Any, Known] = {function: row for row in TABLE for function in row.found()}


def _convolved(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Translated:
    if transposed:
        return sliding.TransposedLayer(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return sliding.ConvolutionLayer(input, weight, bias, stride, padding, dilation, groups)


def _resized(
    input: Tensor, output_size: Any, align_corners: bool, scales: Any = None, other: Any = None, *, mode: str
) -> Translated:
    factors = scales if isinstance(scales, (tuple, list)) else (scales, other)
    sizes = (
        output_size if output_size is not None else [int(n * f) for n, f in zip(input.shape[2:], factors, strict=True)]
    )
    return formulas.resized(input, sizes, factors, align_corners, cubic=mode == "bicubic")


def _softmax_of(spec: SoftMax | LogSoftMax) -> Translate:
    return lambda input, dim, half_to_float=False: OverChannels(input, dim, spec)


ATEN: Mapping[str, Known] = {
    "embedding": Known(
        "embedding",
        lambda weight, indices, padding_idx=-1, *more: formulas.Table(
            indices, weight, padding_idx if padding_idx >= 0 else None, None, 2.0, *more
        ),
        again="sums",
    ),
    "convolution": Known("convolution", _convolved, again="products"),
    "native_batch_norm": KNOWN[torch.batch_norm],
    "native_layer_norm": KNOWN[F.layer_norm],
    "native_group_norm": Known(
        "group_norm",
        lambda input, weight, bias, n, c, pixels, groups, eps: normalizing.group(input, groups, weight, bias, eps),
        again="balanced",
    ),
    "_adaptive_avg_pool2d": KNOWN[F.adaptive_avg_pool2d],
    "max_pool2d_with_indices": KNOWN[F.max_pool2d],
    "upsample_bilinear2d": Known("interpolate", partial(_resized, mode="bilinear"), again="linear"),
    "upsample_bicubic2d": Known("interpolate", partial(_resized, mode="bicubic"), again="linear"),
    "_softmax": Known("softmax", _softmax_of(SoftMax()), again="distributions"),
    "_log_softmax": Known("log_softmax", _softmax_of(LogSoftMax()), again="distributions"),
    "mm": KNOWN[torch.matmul],
    "bmm": KNOWN[torch.matmul],
}
"""By name in ``torch.ops.aten``, where the arguments are others than those of the function of the same name."""

SAME = frozenset(
    """
    conv1d conv2d conv_transpose2d linear avg_pool2d max_pool2d adaptive_avg_pool2d batch_norm layer_norm group_norm
    rms_norm relu leaky_relu hardtanh sigmoid hardsigmoid hardswish silu tanh softplus elu gelu prelu abs glu softmax
    log_softmax add sub mul matmul pixel_shuffle pixel_unshuffle scaled_dot_product_attention mean
    """.split()  # noqa: SIM905
)
"""Names in ``torch.ops.aten`` of functions with the same arguments."""


OPERATORS = type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor)
"""The types of an operator and of one of its overloads."""


def name_of(function: Any) -> str:
    """Return the name of a function, of an overload without its own, and that of the property which it gets."""
    name = str(getattr(function, "__name__", function))
    return str(getattr(function.__self__, "__name__", name)) if name == "__get__" else name.partition(".")[0]


def known_function(function: Any) -> Known | None:
    """Return the row of a function, also of one in ``torch.ops.aten``, or ``None``."""
    found = KNOWN.get(function)
    if found is not None:
        return found
    name = name_of(function)
    if name in moves.MOVES or name in moves.CONVERSIONS:
        return Known(name, moves.translation(function, name), again="sums")
    if not isinstance(function, OPERATORS):
        return None
    space, name, *_ = str(function).split(".")
    if space != "aten":
        return None
    if name in ATEN:
        return ATEN[name]
    names = next(
        (getattr(one, name) for one in (torch, F) if name in SAME and KNOWN.get(getattr(one, name, None))), None
    )
    return None if names is None else KNOWN[names]


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _attributes(row: Known, module: Any) -> Arguments:
    """Return the arguments of a function that a module has as attributes of the same names."""
    names = [*inspect.signature(row.translate).parameters][1:]
    return (), {name: getattr(module, name) for name in names if hasattr(module, name)}


def _convolution(row: Known, module: Any) -> Arguments:
    if module.padding_mode != "zeros":
        raise UnsupportedError(f"padding_mode is {module.padding_mode!r}; its padding is a function of its own")
    return _attributes(row, module)


def _batch(row: Known, module: Any) -> Arguments:
    training = module.training or module.running_mean is None
    return (module.running_mean, module.running_var, module.weight, module.bias, training, 0.0, module.eps), {}


def _instance(row: Known, module: Any) -> Arguments:
    own = module.training or not module.track_running_stats
    return (module.running_mean, module.running_var, module.weight, module.bias, own, 0.0, module.eps), {}


READ: Mapping[str, Callable[[Known, Any], Arguments]] = {
    "conv2d": _convolution,
    "batch_norm": _batch,
    "instance_norm": _instance,
}
"""What reads the arguments of modules whose attributes are not the arguments."""


def has_own_forward(module: nn.Module) -> bool:
    """Return whether the class of a module computes something else than the class of PyTorch that it is made from."""
    kinds: tuple[Any, ...] = type(module).__mro__
    of_torch = next(kind for kind in kinds if kind.__module__.startswith("torch.nn.modules."))
    return kinds[0].forward is not of_torch.forward


def of_module(module: nn.Module) -> tuple[Known, Callable[[Any], Arguments]] | None:
    """Return the row of a module and what reads its arguments, or ``None``."""
    row = next((row for row in TABLE if isinstance(module, row.modules)), None)
    return None if row is None else (row, partial(READ.get(row.name, _attributes), row))
