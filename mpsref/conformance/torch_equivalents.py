"""PyTorch as an oracle and for the benchmark: threads, and tensors on the memory of arrays (NHWC is channels_last)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from mpsref import frameworks
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.device import is_on_device
from mpsref.registry import Problem, Spec

if TYPE_CHECKING:
    from torch import Tensor

Call: TypeAlias = Callable[[], object]

Arrays: TypeAlias = tuple[Array, ...]

Outs: TypeAlias = Arrays | None
"""Memory for the results, or ``None`` for new memory at each call."""

TorchEquivalent: TypeAlias = Callable[..., Call | None]
"""``equivalent(torch, problem, inputs, outs)`` returns a call at the lowest level of PyTorch, or ``None``."""


class JointEquivalent(NamedTuple):
    """Several operations of a kernel that PyTorch computes in one."""

    methods: tuple[str, ...]
    equivalent: Callable[[ModuleType, Spec, Mapping[str, Array]], Call | None]
    """``equivalent(torch, spec, arrays by name)`` returns the call, or ``None`` without one."""


@contextlib.contextmanager
def session(threads: int) -> Iterator[tuple[ModuleType | None, str]]:
    """Yield PyTorch with this many threads, and its version; without PyTorch ``None`` and the reason."""
    try:
        import torch
    except ImportError as error:
        yield None, f"not installed ({error})"
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            yield torch, str(torch.__version__)
    finally:
        torch.set_num_threads(before)


def keywords(problem: Problem) -> Mapping[str, Any] | None:
    """Return the arguments with which PyTorch returns exactly the result of a problem with windows, or ``None``."""
    try:
        words = frameworks.pytorch(problem)
    except ValueError:
        return None
    return words.keywords if words.output_size == words.size else None


def tensor(torch: ModuleType, array: Array) -> Tensor:
    """Return a tensor on the memory of an array, which may be on a device."""
    made: Tensor = torch.from_dlpack(array) if is_on_device(array) else torch.from_numpy(array)
    return made


def nchw(torch: ModuleType, array: Array) -> Tensor:
    """Return a channels-last tensor on the memory of an NHWC array."""
    return tensor(torch, array).permute(0, 3, 1, 2)


def blank(torch: ModuleType, shape: Shape, like: Tensor) -> Tensor:
    """Return an uninitialized channels-last tensor of an NHWC shape on the device of ``like``."""
    made: Tensor = torch.empty(shape, device=like.device)
    return made.permute(0, 3, 1, 2)


def channels_last(result: object) -> tuple[Tensor, ...]:
    """Return the result of a call, a tensor or a tuple of them, as tensors whose channels, if any, come last."""
    tensors = cast("Sequence[Tensor]", result if isinstance(result, (tuple, list)) else (result,))
    return tuple(tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor for tensor in tensors)


def arrays(result: object) -> Arrays:
    """Return the result of a call as arrays whose channels, if any, come last."""
    return tuple(tensor.numpy() for tensor in channels_last(result))
