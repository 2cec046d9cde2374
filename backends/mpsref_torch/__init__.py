"""PyTorch as a backend: the functions that its users call, and their gradients by autograd.

:mod:`mpsref_torch.operations` is the table of functions. Tensors have the memory of the arrays: ``torch`` is tested
mostly with contiguous tensors, ``torch:channels_last`` with channels-last ones.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from mpsref import (
    Adam,
    Arithmetic,
    Backend,
    Loss,
    PoolingL2Norm,
    RMSProp,
    StochasticGradientDescent,
    registry,
)
from mpsref.arguments.parameters import choice
from mpsref.errors import UnsupportedError
from mpsref.frameworks import chains
from mpsref.frameworks.adapter import writes_behind_a_column
from mpsref.kernels.batch_normalization import Statistics
from mpsref.operations import Problem, Spec
from mpsref.operations import operations as all_operations
from mpsref_torch import training
from mpsref_torch.auditing import audit
from mpsref_torch.operations import table
from mpsref_torch.programs import steps
from mpsref_torch.run import Torch
from mpsref_torch.timing import Timing

if TYPE_CHECKING:
    from mpsref_torch.differentiable import Function

__all__ = [
    "audit",
    "backend",
    "backend_on",
    "batch_norm",
    "channels_last",
    "compiled",
    "cuda",
    "function",
    "half",
    "mps",
]

_WAYS = ("-gap", "-offset", "-odd", "-expanded")

CONTIGUOUS = ("nchw", "nhwc", *("nchw" + way for way in _WAYS), "cnhw", "ncwh", "nhwc-odd", "nchw-scalar")
CHANNELS_LAST = ("nhwc", "nchw", *("nhwc" + way for way in _WAYS), "cnhw", "ncwh", "nchw-odd", "nhwc-scalar")

DISTINCT = 4
"""Problems of an operation that are compiled in a check: each takes seconds."""

RULES = (
    "slope at a kink",
    "slope from the result",
    "small probabilities are 0",
    "folded scale and shift",
    "rounded means",
    "plain sums",
    "variance from squares",
    "rounded positions",
    "cross entropy by a logarithm",
    "softsign by a quotient",
    "zeros by products",
    "NaN by another formula",
    "NaN is the extremum",
)

ON_DEVICE = {
    "cpu": ("functions within 2 units", "GELU by polynomials"),  # SLEEF, within 1 unit, the C library, and oneDNN
    "cuda": ("transformed convolutions", "TF32 convolutions", "atomic sums"),
}
"""Further rules, with the settings that PyTorch has by default."""


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
    programs = chains.table(run, lambda: steps(run)) if compiles else {}
    return run.backend(
        name,
        {**table(run), **programs},
        layouts=layouts,
        distinct_problems=DISTINCT if compiles else None,
        rules=(*RULES, *ON_DEVICE.get(device, ())),
        refuses=writes_behind_a_column if device == "cpu" else lambda problem: None,
        timing=None if compiles else Timing(device),
    )


def _unbounded_in_float16(problem: Problem) -> str | None:
    """Return why the rounding of intermediate results to float16 has no simple bound, or ``None``."""
    spec = problem.spec
    if reason := writes_behind_a_column(problem):
        return reason
    if isinstance(spec, Adam | RMSProp | StochasticGradientDescent):
        return "optimizers of MPS have float32 values; see the backend 'torch'"
    if isinstance(spec, Loss):
        return "a loss in float16 rounds terms that cancel, such as log(t) - y"
    if isinstance(spec, PoolingL2Norm):
        return "in float16 the squares of pixels above 255 are infinite, and those below 2**-12 are 0"
    if getattr(spec, "neuron", None) is not None:
        return "in float16 the argument of a neuron behind another operation is rounded"
    if isinstance(problem, Statistics) and problem.count:
        return "in float16 the mean of these pixels is rounded before it is merged with that of earlier calls"
    clamps = isinstance(spec, Arithmetic) and (math.isfinite(spec.minimum_value) or math.isfinite(spec.maximum_value))
    if clamps and problem.method == "gradient":
        return "in float16 rounding decides on which side of a bound of the clamp a result is"
    return None


backend = backend_on("torch")
channels_last = backend_on("torch:channels_last", layouts=CHANNELS_LAST)
channels_last = replace(channels_last, rules=(*channels_last.rules, "plain means"))
compiled = backend_on("torch:compile", compiles=True)
batch_norm = replace(
    backend,
    name="torch:batch_norm",
    implementations=training.table(Torch()),
    layouts=CHANNELS_LAST,
    rules=(*backend.rules, "plain means"),
)
"""Batch normalization in training, see :mod:`mpsref_torch.training`."""
half = replace(
    backend,
    name="torch:float16",
    dtypes=("float16",),
    rules=(*RULES, "float16 arithmetic"),
    refuses=_unbounded_in_float16,
)
"""Images in float16, in which PyTorch rounds intermediate results on a CPU."""
cuda = backend_on("torch:cuda", "cuda")
compiled_cuda = backend_on("torch:cuda:compile", "cuda", CHANNELS_LAST, compiles=True)
mps = backend_on("torch:mps", "mps")


def function(spec: Spec, *, backend: str | Backend | None = None, layout: str = "nchw") -> Function:
    """Return a kernel of mpsref as a function of tensors that autograd differentiates.

    Forward and backward pass run on a backend of mpsref, so that a layer of a model can be exchanged: to find the one
    whose gradient is wrong, or to train with the Metal kernels.

    Parameters
    ----------
    spec : Spec
        A kernel that has a gradient.
    backend : str or Backend, optional
        Where to compute; default: see :func:`mpsref.use_backend`.
    layout : {"nchw", "nhwc"}
        The axes of tensors of rank 4. "nchw": images are (N, C, H, W), and weights have the order of PyTorch,
        (Co, Ci / groups, kH, kW), or of a transposed convolution (Ci, Co / groups, kH, kW). "nhwc": those of mpsref.

    Returns
    -------
    callable
        ``f(*tensors, **options)``, with the arguments of the method ``forward`` of the kernel. In addition:

        - ``BatchNormalization``: ``f(x, gamma=None, beta=None, mean=None, variance=None)``. Without mean and variance
          they are those of the batch, and the gradient is that of training.
        - ``Neuron("prelu", data=...)``: ``f(x, slopes=None)``, of shape (C,), in place of ``data``.
        - ``Dropout``: ``f(x, mask=None, sequence=0, first_image_index=0)``; without a mask it is drawn.
        - ``Concatenation``: ``f(*xs)``.

        Gradients of parameters are summed over the batch. Tensors on other devices are copied to the CPU and back.

    Raises
    ------
    TypeError
        If the kernel has no gradient.
    UnsupportedError
        If the backend is not available.

    Notes
    -----
    With ``layout="nchw"`` tensors in the memory format ``torch.channels_last`` are read without a copy, and results
    are channels_last. ``torch.autograd.gradcheck`` passes in float64 on the backend "reference"; there is no second
    derivative.

    Examples
    --------
    >>> import torch, mpsref
    >>> pool = function(mpsref.PoolingMax(2, 2, offset=1), backend="reference")
    >>> x = torch.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
    >>> pool(x).sum().backward()
    >>> x.grad[0, 0, 1].tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    if (reason := Torch("cpu").unavailable()) is not None:
        raise UnsupportedError(reason)
    from mpsref_torch.differentiable import Function, kind_of

    choice("layout", layout, ("nchw", "nhwc"))
    if (kind := kind_of(type(spec))) is None:
        known = ", ".join(dict.fromkeys(one.spec_type.__name__ for one in all_operations() if kind_of(one.spec_type)))
        raise TypeError(f"spec is of type {type(spec).__name__}; it must be a kernel with a gradient: {known}")
    (chosen,) = registry.get_available(registry.get_backend(backend))
    return Function(spec, chosen, layout, kind)
