"""PyTorch for the benchmark: threads, and tensors on the memory of arrays (NHWC is what it calls channels_last)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from mpsref.arguments.arrays import Array

__all__ = ["Call", "Spelling", "Together", "arrays", "nchw", "session"]

Call: TypeAlias = Callable[[], Any]

Spelling: TypeAlias = Callable[..., Call | None]
"""``spelling(torch, problem, inputs, outs)``, or ``None`` where PyTorch has no words for the problem."""


class Together(NamedTuple):
    """Operations of a kernel that PyTorch does in one: ``spelling(torch, spec, arrays by name)`` or ``None``."""

    methods: tuple[str, ...]
    spelling: Callable[[Any, Any, Mapping[str, Array]], Call | None]


@contextlib.contextmanager
def session(threads: int) -> Iterator[tuple[Any, str]]:
    """Yield PyTorch, with this many threads, and its version; or ``None`` and the reason why not."""
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


def nchw(torch: Any, array: Array) -> Any:
    """Return a channels-last tensor on the memory of an NHWC array."""
    return torch.from_numpy(array).permute(0, 3, 1, 2)


def arrays(result: Any) -> tuple[Array, ...]:
    """Return what a call returned, a tensor or a tuple of them, as arrays whose channels, if any, come last."""
    tensors = result if isinstance(result, (tuple, list)) else (result,)
    return tuple((tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).numpy() for tensor in tensors)
