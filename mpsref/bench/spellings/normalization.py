"""How PyTorch spells instance, group, spatial, local contrast and cross-channel normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpsref.arguments.arrays import Array
from mpsref.bench.pytorch import Call, Spelling, nchw
from mpsref.kernels import (
    CrossChannelNormalization,
    GroupNormalization,
    InstanceNormalization,
    LocalContrastNormalization,
    SpatialNormalization,
)
from mpsref.registry import Spec

__all__ = ["SPELLINGS"]

Outs = tuple[Array, ...] | None


def grouped(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: Outs) -> Call | None:
    """Return ``group_norm`` or ``instance_norm``; their gradients sum those of gamma and beta over the batch."""
    spec, functional = problem.spec, torch.nn.functional
    scaled, shifted = problem.scaled, getattr(problem, "shifted", False)
    instance = isinstance(spec, InstanceNormalization)
    if instance and problem.method == "gradient" and problem.source_shape[0] == 1:
        return None  # PyTorch 2.13 computes something else for a single channels_last image

    def normalize(x: Any, *vectors: Any) -> Any:
        weight, bias = vectors[0] if scaled else None, vectors[-1] if shifted else None
        if instance:
            return functional.instance_norm(x, weight=weight, bias=bias, eps=spec.epsilon)
        return functional.group_norm(x, spec.groups, weight, bias, spec.epsilon)

    images = [nchw(torch, array) for array in inputs if array.ndim == 4]
    vectors = [torch.from_numpy(array) for array in inputs if array.ndim == 1]
    return of_function(torch, normalize, images, outs, vectors)


def windowed(formula: Callable[[Any, Any, Any, Callable[[Any], Any]], Any]) -> Spelling:
    """Return ``formula(torch, spec, x, mean over the window)``; ``None`` unless there is one output for each pixel."""

    def spell(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: Outs) -> Call | None:
        spec, functional = problem.spec, torch.nn.functional
        if problem.output_size != problem.source_shape[1:3] or any(spec.offset):
            return None
        (top, height), (left, width) = ((window.center, window.kernel) for window in spec.windows)
        pads = left, width - 1 - left, top, height - 1 - top

        def mean(image: Any) -> Any:
            return functional.avg_pool2d(functional.pad(image, pads), (height, width), stride=1)

        images = [nchw(torch, array) for array in inputs]
        return of_function(torch, lambda x: formula(torch, spec, x, mean), images, outs)

    return spell


def _spatial(torch: Any, spec: Any, x: Any, mean: Callable[[Any], Any]) -> Any:
    return x * (spec.delta + spec.alpha * mean(x * x)) ** -spec.beta


def _local_contrast(torch: Any, spec: Any, x: Any, mean: Callable[[Any], Any]) -> Any:
    m = mean(x)
    base = spec.delta + spec.alpha * (mean(x * x) - m * m)
    return spec.pm + spec.ps * (x - spec.p0 * m) * base**-spec.beta


def cross_channel(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: Outs) -> Call | None:
    """Return ``local_response_norm``, which has the same words."""
    spec = problem.spec
    words = spec.kernel_size, spec.alpha, spec.beta, spec.delta
    images = [nchw(torch, array) for array in inputs]
    return of_function(torch, lambda x: torch.nn.functional.local_response_norm(x, *words), images, outs)


def of_function(
    torch: Any, function: Callable[..., Any], images: list[Any], outs: Outs, vectors: Sequence[Any] = ()
) -> Call | None:
    """Return ``function(x, *vectors)`` or its gradients, by autograd; ``None`` into memory, which it cannot fill."""
    if outs:
        return None
    *gradients, x = images
    if not gradients:
        return lambda: function(x, *vectors)
    with torch.inference_mode(False), torch.enable_grad():
        g, leaves = gradients[0].clone(), [leaf.clone().requires_grad_() for leaf in (x, *vectors)]
        y = function(*leaves)

    def backward() -> Any:
        with torch.inference_mode(False):
            return torch.autograd.grad(y, leaves, g, retain_graph=True)[0]

    return backward


SPELLINGS: Mapping[type[Spec], Spelling] = {
    InstanceNormalization: grouped,
    GroupNormalization: grouped,
    SpatialNormalization: windowed(_spatial),
    LocalContrastNormalization: windowed(_local_contrast),
    CrossChannelNormalization: cross_channel,
}
"""The function of each kernel."""
