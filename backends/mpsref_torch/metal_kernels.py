"""The backend ``pytorch:mps``: the functions of PyTorch with the Metal kernels of a checkout in place of its own.

The functions are those of the backend ``torch``. While one runs, or is differentiated, the operators of aten that have
a kernel in :mod:`published.pytorch` are launched there on the memory of the tensors, as on an Apple GPU; all
others are computed by PyTorch on the CPU. A problem that launches no kernel is not supported: there PyTorch calls
MPSGraph. A gradient of images for which PyTorch has a kernel of volumes only is that of a volume of depth 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from mpsref import (
    Adam,
    Convolution,
    Dropout,
    GroupNormalization,
    LogSoftMax,
    Loss,
    PoolingAverage,
    PoolingMax,
    SoftMax,
    StochasticGradientDescent,
    UpsamplingBilinear,
    UpsamplingNearest,
)
from mpsref.arguments.arrays import Array
from mpsref.backend import Implementation
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Function, Table, Tensor
from mpsref_torch import RULES, operations
from mpsref_torch.run import Torch

try:
    from published.collection import find, missing
    from published.pytorch import Pytorch, pair
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: the published kernels are in a clone of mpsref, and not in its wheel") from None

WINDOWS = ("kernel_size", "stride", "padding", "dilation")


class Launches:
    """Operators of aten by the kernels of a checkout."""

    def __init__(self, kernels: Pytorch, torch: Any) -> None:
        """Take the collection and the module of PyTorch."""
        self._kernels, self._torch, self.count = kernels, torch, 0

    def operators(self) -> dict[Any, Callable[..., Any]]:
        """Return the operators that have kernels."""
        aten = self._torch.ops.aten
        own = {
            "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
            "upsample_nearest2d", "upsample_nearest2d_backward", "upsample_bilinear2d", "upsample_bilinear2d_backward",
            "_softmax", "_log_softmax", "_softmax_backward_data", "native_group_norm", "native_group_norm_backward",
            "native_dropout_backward", "_fused_adam_", "_fused_sgd_", "convolution",
        }  # fmt: skip
        return {getattr(aten, name).default: self._counted(getattr(self, name.strip("_"))) for name in own}

    def _counted(self, launch: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **keywords: Any) -> Any:
            self.count += 1
            return launch(*arguments, **keywords)

        return run

    def _result(self, like: Tensor, size: Sequence[int], dtype: Any = None, *, zeros: bool = False) -> Tensor:
        last = self._torch.channels_last
        order = last if like.is_contiguous(memory_format=last) else self._torch.contiguous_format
        made = self._torch.empty(size, dtype=dtype or like.dtype, memory_format=order)
        return made.zero_() if zeros else made

    def _windows(self, x: Tensor, given: Sequence[Any], ceil_mode: bool) -> tuple[dict[str, Any], list[int]]:
        kernel, stride, padding, dilation = (pair(one) if one not in ([], ()) else pair(given[0]) for one in given)
        size = []
        for n, k, s, p, d in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True):
            found = (n + 2 * p - d * (k - 1) - 1 + (s - 1) * ceil_mode) // s + 1
            size.append(found - (ceil_mode and (found - 1) * s >= n + p))
        return dict(zip(WINDOWS, (kernel, stride, padding, dilation), strict=True)), [*x.shape[:2], *size]

    def max_pool2d_with_indices(
        self, x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return maxima and their indices."""
        words, size = self._windows(x, (kernel, stride, padding, dilation), ceil_mode)
        out, indices = self._result(x, size), self._result(x, size, self._torch.int64)
        self._kernels.max_pool(_view(x), _view(out), _view(indices), **words)
        return out, indices

    def max_pool2d_with_indices_backward(
        self, g: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, at: Tensor
    ) -> Tensor:
        """Return the gradient of maxima."""
        words, _ = self._windows(x, (kernel, stride, padding, dilation), ceil_mode)
        dx = self._result(x, x.shape, zeros=True)
        self._kernels.max_pool_backward(_view(dx), _view(g), _view(at), **words)
        return dx

    def avg_pool2d(
        self, x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        include: bool = True, divisor: int | None = None,
    ) -> Tensor:  # fmt: skip
        """Return means."""
        words, size = self._windows(x, (kernel, stride, padding, 1), ceil_mode)
        out = self._result(x, size)
        self._kernels.avg_pool(_view(x), _view(out), count_include_pad=include, divisor_override=divisor, **words)
        return out

    def avg_pool2d_backward(
        self, g: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include: bool,
        divisor: int | None,
    ) -> Tensor:  # fmt: skip
        """Return the gradient of means."""
        words, _ = self._windows(x, (kernel, stride, padding, 1), ceil_mode)
        dx = self._result(x, x.shape, zeros=True)
        words |= {"count_include_pad": include, "divisor_override": divisor}
        self._kernels.avg_pool(_view(dx), _view(g), backward=True, **words)
        return dx

    def upsample_nearest2d(self, x: Tensor, size: Any, *scales: Any) -> Tensor:
        """Return the nearest elements."""
        return self._upsampled("nearest2d", x, size, scales)

    def upsample_bilinear2d(self, x: Tensor, size: Any, align_corners: bool, *scales: Any) -> Tensor:
        """Return interpolated elements."""
        return self._upsampled("bilinear2d", x, size, scales, align_corners=align_corners)

    def upsample_nearest2d_backward(self, g: Tensor, size: Any, source: Any, *scales: Any) -> Tensor:
        """Return the gradient of the nearest elements, by the kernel of volumes."""
        return self._upsampled("nearest_3d", g, source, scales, backward=True)

    def upsample_bilinear2d_backward(
        self, g: Tensor, size: Any, source: Any, align_corners: bool, *scales: Any
    ) -> Tensor:
        """Return the gradient of interpolated elements, by the kernel of volumes."""
        return self._upsampled("trilinear", g, source, scales, align_corners=align_corners, backward=True)

    def _upsampled(
        self, name: str, x: Tensor, size: Any, scales: Any, *, backward: bool = False, **words: Any
    ) -> Tensor:
        if any(one is not None for one in scales):
            raise UnsupportedError(
                "upsampling by scale factors that differ from the ratio of the sizes is not launched"
            )
        whole = size if backward else [*x.shape[:2], *size]
        out = self._result(x, whole, zeros=backward)
        arrays = (_view(out)[:, :, None], _view(x)[:, :, None]) if backward else (_view(x), _view(out))
        self._kernels.upsample(name, *arrays, backward=backward, **words)
        return out

    def convolution(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
        transposed: bool, more: Any, groups: int,
    ) -> Tensor:  # fmt: skip
        """Return a convolution, by the kernel for long filters."""
        words, size = self._windows(x, (weight.shape[2:], stride, padding, dilation), False)
        out = self._torch.empty([len(x), len(weight), *size[2:]])
        arrays = _dense(x), _dense(weight), None if bias is None else _dense(bias)
        self._kernels.conv2d(*arrays, _view(out), **words)
        return out

    def softmax(self, x: Tensor, dim: int, half_to_float: bool, *, logarithmic: bool = False) -> Tensor:
        """Return softmax along an axis."""
        out = self._torch.empty(x.shape)
        self._kernels.softmax(_view(x), _view(out), dim % x.dim(), logarithmic=logarithmic)
        return out

    def log_softmax(self, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
        """Return the logarithm of softmax."""
        return self.softmax(x, dim, half_to_float, logarithmic=True)

    def softmax_backward_data(self, g: Tensor, y: Tensor, dim: int, dtype: Any) -> Tensor:
        """Return the gradient of softmax: with the axis as the last of contiguous tensors."""
        g, y = (one.movedim(dim, -1).contiguous() for one in (g, y))
        dx = self._torch.empty(y.shape)
        self._kernels.softmax_backward(_view(g), _view(y), _view(dx))
        return dx.movedim(-1, dim)

    def native_group_norm(
        self, x: Tensor, gamma: Tensor, beta: Tensor, n: int, c: int, hw: int, groups: int, epsilon: float
    ) -> Any:
        """Return normalized groups, means and reciprocal deviations."""
        found = self._kernels.group_norm(_dense(x), _dense(gamma), _dense(beta), groups, epsilon)
        return tuple(map(self._torch.from_numpy, found))

    def native_group_norm_backward(
        self, g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor, n: int, c: int, hw: int, groups: int,
        mask: Sequence[bool],
    ) -> Any:  # fmt: skip
        """Return the gradients for x, gamma and beta."""
        arrays = _dense(g), _dense(x), _dense(mean), _dense(rstd), _dense(gamma)
        found = self._kernels.group_norm_backward(*arrays, groups)
        return tuple(map(self._torch.from_numpy, found))

    def native_dropout_backward(self, g: Tensor, mask: Tensor, scale: float) -> Tensor:
        """Return the gradient of dropout."""
        found = self._kernels.dropout_backward(_dense(g), _dense(mask), scale)
        return self._torch.from_numpy(found)

    def fused_adam(
        self, values: Any, grads: Any, averages: Any, squares: Any, maxima: Any, states: Any, *, lr: float,
        beta1: float, beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool, **scaling: Any,
    ) -> None:  # fmt: skip
        """Update values and moments."""
        lists = {"params": values, "grads": grads, "exp_avgs": averages, "exp_avg_sqs": squares}
        lists |= ({"max_exp_avg_sqs": maxima} if amsgrad else {}) | {"state_steps": states}
        numbers = map(np.float32, (lr, beta1, beta2, weight_decay, eps))
        kernel = f"fused_adam{'_amsgrad' * amsgrad}_float_float"
        self._updated(kernel, lists, *numbers, np.uint8(maximize))

    def fused_sgd(
        self, values: Any, grads: Any, moments: Any, *, weight_decay: float, momentum: float, lr: float,
        dampening: float, nesterov: bool, maximize: bool, is_first_step: bool, **scaling: Any,
    ) -> None:  # fmt: skip
        """Update values and moments."""
        lists, decay = {"params": values, "grads": grads}, np.float32(weight_decay)
        if momentum == 0:
            self._updated("fused_sgd_float", lists, decay, np.float32(lr), np.uint8(maximize))
            return
        lists |= {"momentum_buffer_list": moments}
        numbers = map(np.float32, (momentum, lr, dampening))
        flags = map(np.uint8, (nesterov, maximize, is_first_step))
        self._updated("fused_sgd_momentum_float", lists, decay, *numbers, *flags)

    def _updated(self, kernel: str, lists: dict[str, Any], *numbers: Any) -> None:
        arrays = {name: list(map(_dense, tensors)) for name, tensors in lists.items()}
        self._kernels.optimizer(kernel, arrays, *numbers)
        for name, tensors in lists.items():
            for tensor, array in zip(tensors, arrays[name], strict=True):
                tensor.detach().copy_(self._torch.from_numpy(array).reshape(tensor.shape))


def _view(tensor: Tensor) -> Array:
    """Return the array of a tensor as a view of its whole memory."""
    tensor = tensor.detach()
    memory = tensor.new_empty(0).set_(tensor.untyped_storage()).numpy()
    strides = [stride * memory.itemsize for stride in tensor.stride()]
    return np.lib.stride_tricks.as_strided(memory[tensor.storage_offset() :], tensor.shape, strides)


def _dense(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.detach().numpy())


@cache
def _opened(file: Any) -> Pytorch:
    return Pytorch(file)


class Kernels(Torch):
    """PyTorch on the CPU, with kernels of a checkout."""

    fused = True

    def unavailable(self) -> str | None:
        """Return ``None``, or why it does not run here."""
        return super().unavailable() or missing(Pytorch)

    def described(self) -> str:
        """Return where the kernels are from."""
        return f"clang on the CPU, Metal kernels in {find(Pytorch)}, with {super().described()}"

    @contextmanager
    def launching(self) -> Iterator[None]:
        """Launch kernels in place of operators; there must be some."""
        from torch.utils._python_dispatch import TorchDispatchMode

        launches = Launches(_opened(find(Pytorch)), self.torch)
        operators = launches.operators()

        class Mode(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return operators.get(operator, operator)(*args, **(kwargs or {}))

        with Mode():
            yield
        if not launches.count:
            raise UnsupportedError("PyTorch computes this without a Metal kernel of its own")

    def run(self, function: Function, *arrays: Array) -> Array:
        """Return ``function(*tensors)`` as an array."""
        with self.launching():
            return super().run(function, *arrays)

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        """Return the gradients; forward and backward launch kernels."""
        with self.launching():
            return super().differentiate(function, tensors, g, count)


def table(run: Kernels) -> Table:
    """Return the implementations that may launch kernels."""
    whole = operations.table(run)

    def stepping(implementation: Implementation) -> Implementation:
        def step(problem: Any, *inputs: Array, out: Any) -> None:
            with run.launching():
                implementation(problem, *inputs, out=out)

        return step

    both = (PoolingMax, PoolingAverage, UpsamplingNearest, UpsamplingBilinear, SoftMax, GroupNormalization)
    chosen = {key: whole[key] for key in whole if key[0] in both}
    chosen |= {
        (kind, method): whole[kind, method]
        for kind, method in (
            (Convolution, "forward"),
            (LogSoftMax, "forward"),
            (Loss, "forward"),
            (Dropout, "gradient"),
        )
    }
    steps = ((kind, "step") for kind in (Adam, StochasticGradientDescent))
    return chosen | {key: stepping(whole[key]) for key in steps}


run = Kernels()
backend = run.backend("pytorch:mps", table(run), rules=RULES)
