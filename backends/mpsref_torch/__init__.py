"""PyTorch as a backend: the functions that its users call, and their gradients by autograd.

An implementation is a function ``(torch, problem, *inputs, out)``; ``torch`` is a :class:`mpsref_torch.run.Torch`. It
names the function of PyTorch, whose arguments are those of :mod:`mpsref.frameworks`. Tensors have the memory of the
arrays: ``torch`` is tested mostly with contiguous tensors, ``torch:channels_last`` with channels-last ones.
"""

from __future__ import annotations

from functools import partial

from mpsref import Backend
from mpsref.backend import LazyImplementations
from mpsref_torch.auditing import audit
from mpsref_torch.run import Torch

__all__ = ["audit", "backend", "backend_on", "channels_last", "compiled", "cuda", "mps"]

CONTIGUOUS = ("nchw", "nhwc", "nchw-gap", "nchw-offset", "cnhw")
CHANNELS_LAST = ("nhwc", "nchw", "nhwc-gap", "nhwc-offset", "cnhw")

DISTINCT = 4
"""Problems of an operation that are compiled in a check: each takes seconds."""

RULES = (
    "slope at a kink",
    "slope from the result",
    "folded scale and shift",
    "rounded means",
    "plain sums",
    "variance from squares",
    "zeros by products",
    "NaN by another formula",
)


def backend_on(
    name: str, device: str = "cpu", layouts: tuple[str, ...] = CONTIGUOUS, *, compiles: bool = False
) -> Backend:
    """Return PyTorch on a device as a backend.

    Parameters
    ----------
    name : str
        The name of the backend.
    device : str
        A device of PyTorch, such as "cpu", "cuda" or "mps".
    layouts : tuple of str
        Layouts in which the backend is tested.
    compiles : bool
        Whether functions go through ``torch.compile``.
    """
    run = Torch(device, compiles)
    return Backend(
        name,
        LazyImplementations(__name__, lambda function: partial(function, run)),
        unavailable=run.unavailable,
        device=run.described,
        layouts=layouts,
        named_only=True,
        distinct_problems=DISTINCT if compiles else None,
        dtypes=("float32",),  # in float16 PyTorch rounds intermediate results on a CPU
        rules=RULES,
    )


backend = backend_on("torch")
channels_last = backend_on("torch:channels_last", layouts=CHANNELS_LAST)
compiled = backend_on("torch:compile", compiles=True)
cuda = backend_on("torch:cuda", "cuda")
mps = backend_on("torch:mps", "mps")
