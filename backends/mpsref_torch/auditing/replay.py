"""Calls that are run once more on numbers with which float32 is exact, or that reach all pieces of a function.

A step of training compares within bounds for the worst order of many roundings. Of a sum of small integers nothing is
rounded: one term that is missing shows. Shapes, strides, types and options are those of the call.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from mpsref.frameworks.adapter import Tensor
from mpsref_torch.auditing.formulas import Normalized
from mpsref_torch.auditing.layer import Seen, Translated
from mpsref_torch.auditing.normalizing import FrozenBatch, Grouped
from mpsref_torch.auditing.sampled import Draw

LINEAR = frozenset(
    """
    conv1d conv2d conv_transpose1d conv_transpose2d convolution linear matmul addmm avg_pool1d avg_pool2d max_pool1d
    max_pool2d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d mean interpolate
    embedding prelu pixel_shuffle pixel_unshuffle add sub mul scaled_dot_product_attention
    """.split()  # noqa: SIM905
)
"""Functions that are linear in an argument, which gets small integers."""

SUMS = frozenset(
    """
    conv1d conv2d conv_transpose1d conv_transpose2d convolution linear matmul addmm embedding prelu
    """.split()  # noqa: SIM905
)
"""Those of which all results are sums of products of their arguments."""

NORMALIZATIONS = frozenset({"batch_norm", "instance_norm", "group_norm", "layer_norm", "rms_norm"})
"""Functions that get numbers with exact means: 1 and -1 in equal numbers."""

PIECEWISE = frozenset(
    "relu leaky_relu hardtanh hardsigmoid hardswish elu softplus silu gelu sigmoid tanh softsign glu abs".split()  # noqa: SIM905
)
"""Functions of elements that get numbers on all of their pieces, whichever the model reaches."""

KINDS = LINEAR | NORMALIZATIONS | PIECEWISE


@dataclass(frozen=True)
class Like:
    """A tensor of a call by its name, and what is the same in the tensor that it gets in its place."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    differentiable: bool

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> Like:
        """Describe a tensor."""
        strides = tuple(tensor.stride())
        return cls(name, tuple(tensor.shape), strides, tensor.dtype, tensor.device, bool(tensor.requires_grad))

    def filled(self, values: Tensor) -> Tensor:
        """Return a tensor of this kind with the values."""
        with torch.no_grad():
            found = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)
            if 0 in self.strides:  # of an expanded tensor, which has no memory of its own
                found = torch.empty(self.shape, dtype=self.dtype, device=self.device)
            found.copy_(values.reshape(self.shape))
        return found.requires_grad_(self.differentiable)


@dataclass(eq=False)
class Again:
    """One call that will be run again, for all calls of the same kind."""

    kind: str
    what: Any
    """The function, or the class of the module."""
    call: Callable[[tuple[Any, ...], dict[str, Any], dict[str, Tensor]], Any]
    """Runs the function, or a copy of the module, on arguments and on the new tensors by name."""
    translate: Callable[..., Translated]
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    seen: list[Seen] = field(default_factory=list)
    g: Like | None = None
    """The gradient of the result, once there was one."""
    context: tuple[str, bool, Any] = ("cpu", False, None)
    """Device, and whether and in which type autocast computes."""

    def key(self) -> object:
        """Return what equal calls have in common."""
        return self.kind, self.what, str(self.args), str(sorted(self.keywords.items())), self.g, self.context

    def run(self, draw: Draw, generator: torch.Generator) -> None:
        """Call, and compare what is returned."""
        fresh: dict[str, Tensor] = {}

        def made(one: Any) -> Any:
            if isinstance(one, (tuple, list)):
                return type(one)(made(each) for each in one)
            if not isinstance(one, Like):
                return one.clone() if isinstance(one, torch.Tensor) else one
            if one.name not in fresh:
                fresh[one.name] = one.filled(_values(self.kind, one, generator))
            return fresh[one.name]

        args, keywords = made(self.args), {name: made(one) for name, one in self.keywords.items()}
        device, enabled, dtype = self.context
        layer = self.translate(*args, **keywords)
        checked = _exactly(layer, fresh, generator)
        with torch.enable_grad(), torch.autocast(device, enabled=enabled, dtype=dtype):
            output = self.call(args, keywords, fresh)
        y = output[0] if isinstance(output, tuple) else output
        exact, sums = self.kind in LINEAR, self.kind in SUMS
        if y.dtype.itemsize < 4 or any(one.dtype.itemsize < 4 for one in fresh.values()):
            return  # sums of products are rounded
        wanted = {name: one for name, one in layer.inputs.items() if one.requires_grad}
        seen = self.seen[0]
        before = len(seen.compared)
        seen.judge(lambda: checked.result(y, frozenset(wanted), draw), again=exact, sums=sums)
        if self.g is not None and y.requires_grad and tuple(y.shape) == self.g.shape and wanted:
            g = self.g.filled(self._source(fresh, generator))
            gradients = torch.autograd.grad(y, list(wanted.values()), g, allow_unused=True)
            found = {name: dx for name, dx in zip(wanted, gradients, strict=True) if dx is not None}
            with torch.no_grad():
                seen.judge(lambda: checked.gradients(g, found, draw), again=exact, sums=sums)
        for other in self.seen[1:]:
            other.compared += seen.compared[before:]

    def _source(self, fresh: dict[str, Tensor], generator: torch.Generator) -> Tensor:
        """Return the gradient of the result; no sum of it, or of its products with the input, is small by chance."""
        assert self.g is not None
        if self.kind in NORMALIZATIONS:
            positive = (fresh["x"].detach() > 0).cpu().to(torch.float32)
            return 2 * positive + torch.randint(-3, 5, self.g.shape, generator=generator)
        if self.kind in PIECEWISE:
            return torch.randint(1, 4, self.g.shape, generator=generator).to(torch.float32)
        return _integers(self.g, generator, 3)


def _integers(like: Like, generator: torch.Generator, most: int) -> Tensor:
    return torch.randint(-most, most + 1, like.shape, generator=generator).to(torch.float32)


def _values(kind: str, like: Like, generator: torch.Generator) -> Tensor:
    """Return the numbers of an argument."""
    if kind in PIECEWISE:
        return 4 * torch.randn(like.shape, generator=generator)
    if kind == "scaled_dot_product_attention" and like.name != "value":
        return torch.randn(like.shape, generator=generator)
    if kind.startswith(("max_pool", "adaptive_max")):  # different numbers, so that no window has its maximum twice
        return torch.randperm(math.prod(like.shape), generator=generator).to(torch.float32)
    if kind in NORMALIZATIONS and like.name == "weight":
        return 1.0 + torch.randint(0, 3, like.shape, generator=generator)
    if kind in NORMALIZATIONS and like.name in ("mean", "variance"):
        return torch.full(like.shape, float(like.name == "variance"))
    found = _integers(like, generator, 2)
    return torch.where(found == 0, 1.0, found) if kind == "prelu" else found  # not at the kink


def _balanced(shape: tuple[int, ...], axes: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return as many 1 as -1, and a 0 if the number is odd, along some axes in random order."""
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    count = math.prod(shape[axis] for axis in axes)
    order = torch.rand((*(shape[axis] for axis in kept), count), generator=generator).argsort(-1)
    line = torch.cat([torch.ones(count // 2), -torch.ones(count // 2), torch.zeros(count % 2)])
    return line[order].reshape(*(shape[axis] for axis in (*kept, *axes))).permute(*_inverse((*kept, *axes)))


def _inverse(order: tuple[int, ...]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def _exactly(layer: Translated, fresh: dict[str, Tensor], generator: torch.Generator) -> Any:
    """Return the layer that compares; that of a normalization counts the roundings of sums that are exact."""
    found: Any = layer
    if isinstance(layer, (FrozenBatch, Grouped)):
        found = layer.as_formula()
    if isinstance(found, Normalized):
        found.steps = 8 + math.log2(max(2, found.count))
        x = fresh["x"]
        with torch.no_grad():
            x.copy_(_balanced(found.arranged, found.axes, generator).reshape(x.shape))
    return found


@contextlib.contextmanager
def own_random() -> Iterator[torch.Generator]:
    """Give random numbers that are not those of the model."""
    with torch.random.fork_rng(devices=[]):
        yield torch.Generator().manual_seed(0)
