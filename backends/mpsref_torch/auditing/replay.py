"""Calls that are run once more on numbers with which float32 is exact, or that reach all pieces of a function.

A step of training compares within bounds for the worst order of many roundings. Of a sum of small integers nothing is
rounded: one term that is missing shows. Shapes, strides, types and options are those of the call.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from mpsref.frameworks.adapter import Tensor
from mpsref_torch.auditing.layer import RecordedCall, Translated
from mpsref_torch.auditing.sampled import Draw

ROUNDINGS = {"products": 0, "sums": 0, "means": 4}
"""How often a result is rounded after sums of small integers: a mean is divided, or multiplied by a reciprocal."""

GAP = 128.0
"""Logits whose distance is a multiple of it have probabilities of 0 and 1, and integers as cross entropy."""

PERIOD = 100_003
"""How many random integers are drawn before they are repeated: a prime, so that no axis has the same period."""


def numbers(given: Any) -> Iterator[Tensor]:
    """Yield the tensors of floating-point or complex numbers in arguments."""
    if isinstance(given, torch.Tensor):
        if given.is_floating_point() or given.is_complex():
            yield given
    elif isinstance(given, (tuple, list)):
        for one in given:
            yield from numbers(one)
    elif isinstance(given, dict):
        yield from numbers(tuple(given.values()))


def changed(given: Any, to: Callable[[Any], Any]) -> Any:
    """Return arguments with other tensors, or with tensors in place of what describes them."""
    if isinstance(given, (tuple, list)):
        kind = list if isinstance(given, list) else tuple
        return kind(changed(one, to) for one in given)
    if isinstance(given, dict):
        return {name: changed(one, to) for name, one in given.items()}
    return to(given) if isinstance(given, (torch.Tensor, Like)) else given


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Return one tensor, or all elements of several, one behind the other."""
    return tensors[0] if len(tensors) == 1 else torch.cat([one.reshape(-1) for one in tensors])


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

    def select(self, axis: int) -> tuple[int, ...]:
        """Return the shape without an axis."""
        return self.shape[:axis] + self.shape[axis + 1 :]

    def _may_overlap(self) -> bool:
        """Return whether elements may share memory, as those of expanded tensors and of windows do."""
        last = 0
        for stride, length in sorted(zip(self.strides, self.shape, strict=True)):
            if length > 1 and stride <= last:
                return True
            last += stride * (length - 1)
        return False

    def filled(self, values: Tensor) -> Tensor:
        """Return a tensor of this kind with the values; it has memory of its own for each element."""
        with torch.no_grad():
            kind: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
            if self._may_overlap():
                found = torch.empty(self.shape, **kind)
            else:
                found = torch.empty_strided(self.shape, self.strides, **kind)
            found.copy_(values.reshape(self.shape))
        return found.requires_grad_(self.differentiable)


@dataclass(eq=False)
class Repetition:
    """One call that will be run again, for all calls of the same kind."""

    what: Any
    """The function, or the class of the module."""
    call: Callable[[tuple[Any, ...], dict[str, Any], dict[str, Tensor]], Any]
    """Runs the function, or a copy of the module, on arguments and on the new tensors by name."""
    translate: Callable[..., Translated]
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    seen: list[RecordedCall] = field(default_factory=list)
    g: Like | None = None
    """The gradient of the result, once there was one."""
    context: tuple[str, bool, Any] = ("cpu", False, None)
    """Device, and whether and in which type autocast computes."""

    def key(self) -> object:
        """Return what equal calls have in common."""
        seen = self.seen[0]
        given = _described(self.args), _described(sorted(self.keywords.items()))
        return self.what, seen.kind, seen.again, given, self.g, self.context

    def run(self, draw: Draw, generator: torch.Generator) -> None:
        """Call, and compare what is returned."""
        fresh: dict[str, Tensor] = {}
        seen = self.seen[0]

        def made(one: Any) -> Any:
            if not isinstance(one, Like):
                return one.clone()
            if one.name not in fresh:
                fresh[one.name] = one.filled(_values(seen, one, generator))
            return fresh[one.name]

        args, keywords = changed(self.args, made), changed(self.keywords, made)
        device, enabled, dtype = self.context
        layer = self.translate(*args, **keywords)
        checked = layer.repeated(generator)
        with torch.enable_grad(), torch.autocast(device, enabled=enabled, dtype=dtype):
            output = self.call(args, keywords, fresh)
        results = list(output) if isinstance(output, (tuple, list)) else [output]
        y = joined(results if layer.joins else results[:1])
        if y.dtype.itemsize < 4 or any(one.dtype.itemsize < 4 for one in fresh.values()):
            return  # sums of products are rounded
        transforms = seen.kind.startswith("conv") and "transformed convolutions" in seen.rules
        roundings = ROUNDINGS.get(seen.again) if layer.exact and not transforms else None
        exact = seen.again in ROUNDINGS or seen.again == "linear"
        wanted = {name: one for name, one in layer.inputs.items() if one.requires_grad}
        others = self.seen[1:]
        seen.judge(lambda: checked.result(y, frozenset(wanted), draw), again=exact, roundings=roundings, others=others)
        if self.g is not None and y.requires_grad and tuple(y.shape) == self.g.shape and wanted:
            g = self.g.filled(_source(seen, self.g, fresh, generator))
            gradients = torch.autograd.grad(y, list(wanted.values()), g, allow_unused=True)
            found = {name: dx for name, dx in zip(wanted, gradients, strict=True) if dx is not None}
            roundings = None if seen.again == "means" else roundings  # each term of theirs is rounded
            with torch.no_grad():
                seen.judge(lambda: checked.gradients(g, found, draw), again=exact, roundings=roundings, others=others)


def _described(one: Any) -> Any:
    """Return an argument as a key; tensors of other values differ."""
    if isinstance(one, (tuple, list)):
        return tuple(map(_described, one))
    return id(one) if isinstance(one, torch.Tensor) else one if isinstance(one, Like) else str(one)


def _source(seen: RecordedCall, g: Like, fresh: dict[str, Tensor], generator: torch.Generator) -> Tensor:
    """Return the gradient of the result; no sum of it, or of its products with the input, is small by chance."""
    if seen.again == "balanced":
        positive = (fresh["x"].detach() > 0).cpu()
        return torch.add(_drawn(range(-3, 5), g.shape, generator), positive, alpha=2)
    if seen.again == "pieces":
        return torch.randint(1, 4, g.shape, generator=generator).to(torch.float32)
    return _integers(g, generator, 3)


def _integers(like: Like, generator: torch.Generator, most: int) -> Tensor:
    """Return integers without 0: no term of a sum may be left out without a change."""
    return _drawn([n for n in range(-most, most + 1) if n], like.shape, generator)


def _drawn(integers: Sequence[int], shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return numbers drawn from some, not to be changed: those of a line, begun at a random place."""
    size, begin = math.prod(shape), int(torch.randint(PERIOD, (), generator=generator))
    line, times = _line(tuple(integers), PERIOD), -(-(begin + size) // PERIOD)
    return (line.repeat(times) if times > 1 else line)[begin : begin + size].reshape(shape)


@functools.cache
def _line(integers: tuple[int, ...], length: int) -> Tensor:
    """Return numbers drawn from some."""
    chosen = torch.randint(len(integers), (length,), generator=torch.Generator().manual_seed(0))
    return torch.tensor(integers, dtype=torch.float32)[chosen]


def _values(seen: RecordedCall, like: Like, generator: torch.Generator) -> Tensor:
    """Return the numbers of an argument."""
    kind, again = seen.kind, seen.again
    if again == "pieces":
        return 4 * torch.randn(like.shape, generator=generator)
    if kind == "scaled_dot_product_attention" and like.name != "value":
        return torch.randn(like.shape, generator=generator)
    if "max_pool" in kind:  # different numbers, so that no window has its maximum twice
        rank = 1 if "1d" in kind else 2
        *others, plane = *like.shape[:-rank], math.prod(like.shape[-rank:])
        return _rows(torch.arange(float(plane)), others, generator).reshape(like.shape)
    if again == "balanced" and like.name == "x":
        return torch.zeros(()).expand(like.shape)  # the translated call gives it its numbers
    if again == "balanced" and like.name == "bias":
        return 2 * _integers(like, generator, 1)  # as large as it may be beside a weight of 1
    if again == "balanced" and like.name == "weight":
        places = torch.randperm(math.prod(like.shape), generator=generator)
        return 1.0 + (places % 3).reshape(like.shape)  # some are 1, for which bounds are smallest
    if again == "balanced" and like.name in ("mean", "variance"):
        return torch.full(like.shape, float(like.name == "variance"))
    found = _integers(like, generator, 2)
    if kind == "cross_entropy":  # one class wins in each row
        axis = 1 if len(like.shape) > 1 else 0
        winner = torch.randint(0, like.shape[axis], like.select(axis), generator=generator)
        return found.scatter(axis, winner.unsqueeze(axis), GAP)
    if kind in ("kl_div", "binary_cross_entropy_with_logits"):
        return (found > 0).to(torch.float32) if like.name == "target" else GAP * (2 * found + 1)
    return found


def balanced(shape: tuple[int, ...], axes: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return as many 1 as -1, and a 0 if the number is odd, along some axes: one order, begun at random places."""
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    count, others = math.prod(shape[axis] for axis in axes), [shape[axis] for axis in kept]
    line = torch.cat([torch.ones(count // 2), -torch.ones(count // 2), torch.zeros(count % 2)])
    return (
        _rows(line, others, generator)
        .reshape(*others, *(shape[axis] for axis in axes))
        .permute(*sorted(range(len(shape)), key=(*kept, *axes).__getitem__))
    )


def distribution(size: int, others: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return rows of logits: a power of two of them have the same probability, and the others none."""
    line = torch.full((size,), -GAP)
    line[: 2 ** int(math.log2(size))] = 0
    return _rows(line, others, generator)


def _rows(line: Tensor, others: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return the numbers of a line in one random order, in each row begun at another place."""
    line = line[torch.randperm(len(line), generator=generator)].repeat(2)
    begin = torch.randint(0, len(line) // 2, (math.prod(others),), generator=generator)
    return line.unfold(0, len(line) // 2, 1)[begin].reshape(*others, -1)


@contextlib.contextmanager
def own_random() -> Iterator[torch.Generator]:
    """Give random numbers that are not those of the model."""
    with torch.random.fork_rng(devices=[]):
        yield torch.Generator().manual_seed(0)
