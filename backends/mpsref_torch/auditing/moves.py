"""Functions that move elements: where a function puts the positions of its elements says where each gradient goes.

The function runs once more in float64 on the numbers of the positions of its inputs. Each element of the result is then
the position of an element, or a constant such as the zeros of padding. The gradient of an element is the sum of those
of all places to which it was moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from mpsref.arguments.arrays import Array
from mpsref.conformance.audit import Check, Computed
from mpsref.conformance.rounded import Rounded
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.kernels.reference import gamma
from mpsref_torch.auditing.layer import Translated
from mpsref_torch.auditing.replay import Like, changed, joined, numbers
from mpsref_torch.auditing.sampled import VALUES, Draw, array, positions_on

MOVES = frozenset(
    """
    view view_as reshape reshape_as flatten unflatten permute transpose t T mT H mH adjoint swapaxes swapdims movedim
    moveaxis squeeze unsqueeze contiguous clone expand expand_as broadcast_to repeat tile repeat_interleave cat concat
    concatenate stack hstack vstack dstack split split_with_sizes chunk tensor_split hsplit vsplit dsplit unbind select
    narrow slice index_select take_along_dim gather diagonal flip fliplr flipud rot90 roll unfold pad channel_shuffle
    native_channel_shuffle masked_select masked_fill where tril triu meshgrid __getitem__ __setitem__
    """.split()  # noqa: SIM905
)
"""Names of functions of which each element of the result is an element of an input, or a constant."""

CONVERSIONS = frozenset("to type_as float double half bfloat16 cpu cuda _to_copy".split())  # noqa: SIM905
"""Names of functions that change the type, the device, or nothing."""

FIRST = 2.0**50
"""The number of the first position; no constant of a model is one of the integers behind it."""

LARGEST = 2**24
"""Elements of the inputs and the results of a call; of a larger one the positions do not fit into memory beside it."""


class Linked(Translated):
    """A function with links from elements of its inputs to elements of its results, which are counted in order."""

    joins = True

    def __init__(self, tensors: Sequence[Tensor], *, works_in_place: bool = False) -> None:
        self.inputs, self.works_in_place = {}, works_in_place
        for tensor in tensors:
            if tensor.numel() and all(tensor is not one for one in self.inputs.values()):
                name = ("x", "y")[len(self.inputs)] if len(self.inputs) < 2 else f"input {len(self.inputs)}"
                self.inputs[name] = tensor
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self.inputs.items()}
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        self.starts = dict(zip(self.inputs, np.cumsum([0, *sizes]).tolist(), strict=False))
        self.count = sum(sizes)
        if self.count > LARGEST:
            raise UnsupportedError(f"{self.count} elements")
        self._drawn = False

    def positions(self, name: str) -> Tensor:
        """Return the numbers of the positions of an input, in a tensor like it."""
        like = replace(Like.of(name, self.inputs[name]), dtype=torch.float64, differentiable=False)
        first = FIRST + self.starts[name]
        count = math.prod(like.shape)
        return like.filled(torch.arange(first, first + count, dtype=torch.float64, device=like.device))

    def links(self) -> tuple[Tensor, bool, int]:
        """Return positions of inputs for each result, or the other way round, if the second is true; number of results.

        Elements without a link have a negative one.
        """
        raise NotImplementedError

    def prepare(self, draw: Draw) -> None:
        link, of_inputs, results = self.links()
        if self.count + results > LARGEST:
            raise UnsupportedError(f"{self.count + results} elements")
        self._results = results
        self._some = draw.positions((results,), VALUES)[0]
        places, sources = _pairs(link, self._some, of_inputs)
        values = self._values(sources)
        self._expected = _sums(values, places, len(self._some))
        if (constants := self.constants(self._some)) is not None:
            without = np.bincount(places, minlength=len(self._some)) == 0
            self._expected = Rounded(np.where(without, constants, self._expected.value), self._expected.error)
        self._back = {}
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            some = draw.positions((size,), max(8, min(VALUES, VALUES * size // max(1, results))))[0]
            self._back[name] = some, *_pairs(link, self.starts[name] + some, not of_inputs)
        self._drawn = True

    def constants(self, some: Array) -> Array | None:
        """Return the numbers that results without a link have; ``None``: they are 0."""
        return None

    def _values(self, sources: Array) -> Array:
        found = np.zeros(len(sources))
        for name, tensor in self.inputs.items():
            own = (sources >= self.starts[name]) & (sources < self.starts[name] + math.prod(self.shapes[name]))
            found[own] = _picked(tensor, sources[own] - self.starts[name])
        return found

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        if not self._drawn:
            self.prepare(draw)
        if y.numel() != self._results:
            raise UnsupportedError(f"a result of {y.numel()} elements; in float64 it has {self._results}")
        return [self._check("result", self._expected, y, self._some, tuple(y.shape))]

    def release(self) -> None:
        self.inputs = {name: tensor.detach().to("meta") for name, tensor in self.inputs.items()}

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        checks = []
        for name, dx in found.items():
            some, places, sources = self._back[name]
            expected = _sums(_picked(g, sources), places, len(some))
            checks.append(self._check(f"gradient for {name}", expected, dx, some, self.shapes[name]))
        return checks

    @staticmethod
    def _check(what: str, expected: Rounded, tensor: Tensor, some: Array, shape: tuple[int, ...]) -> Check:
        actual, where = _picked(tensor, some), partial(_where, some, shape)
        if len(some) == math.prod(shape) and len(shape) == 4:  # all of an image
            value, error, actual = (
                one.reshape(shape).transpose(0, 2, 3, 1) for one in (expected.value, expected.error, actual)
            )
            expected, where = Rounded(value, error), _where_in_image  # type: ignore[assignment]
        return Check(Computed.of(expected, where=where), (), {what: actual})


def _where(some: Array, shape: tuple[int, ...], index: tuple[int, ...]) -> str:
    return f"element {list(map(int, np.unravel_index(some[index[0]], shape)))} of {list(shape)}"


def _where_in_image(index: tuple[int, ...]) -> str:
    n, row, column, channel = index
    return f"image {n}, pixel ({row}, {column}), channel {channel}"


def _picked(tensor: Tensor, index: Any) -> Array:
    """Return elements of a tensor by their numbers, without a copy of the others."""
    tensor = tensor.detach()
    index = np.asarray(index, np.int64)
    if not tensor.dim():
        return np.broadcast_to(array(tensor), index.shape).copy()
    if tensor.is_contiguous():
        return array(tensor.reshape(-1)[positions_on(tensor, index)])
    places = np.unravel_index(index, tuple(tensor.shape))
    return array(tensor[tuple(positions_on(tensor, one) for one in places)])


def _pairs(link: Tensor, some: Array, reverse: bool) -> tuple[Array, Array]:
    """Return the links of some elements: indices in ``some``, and the elements that they are linked with.

    ``link`` has an element for each of those that ``some`` selects from, or it leads to these if ``reverse``.
    """
    if not reverse:
        found = link[positions_on(link, some)].cpu().numpy()
        kept = np.flatnonzero(found >= 0)
        return kept, found[kept]
    size = max(int(link.max()) if link.numel() else 0, int(some.max(initial=0))) + 1
    rank = torch.full((size + 1,), -1, dtype=torch.int32, device=link.device)  # the last one is that of no link
    rank[positions_on(link, some)] = torch.arange(len(some), dtype=torch.int32, device=link.device)
    ranks = rank[torch.where(link < 0, size, link)]
    sources = torch.nonzero(ranks >= 0).ravel()
    return ranks[sources].cpu().numpy().astype(np.int64), sources.cpu().numpy()


def _sums(values: Array, places: Array, count: int) -> Rounded:
    """Return the sums of the values of each place; a sum of n numbers has n - 1 roundings, one number has none."""
    values = values.astype(np.float64)
    number = np.bincount(places, minlength=count)
    size = np.bincount(places, abs(values), minlength=count)
    error = np.where(number > 1, gamma(number - 1) * size, 0.0)
    return Rounded(np.bincount(places, values, minlength=count), error)


class Moved(Linked):
    """A call of a function that moves elements."""

    def __init__(self, function: Any, args: Any, keywords: Any) -> None:
        name = getattr(function, "__name__", "")
        given = args[:1] if name.endswith("_as") else (args, keywords)  # of the other it takes the shape
        super().__init__(list(numbers(given)), works_in_place=name == "__setitem__")
        self._call: Any = function, args, keywords
        self.arranges = False
        """Whether the results have each element once, and the order in which they are numbered or the same memory."""

    def links(self) -> tuple[Tensor, bool, int]:
        function, args, keywords = self._call
        given = {id(tensor): self.positions(name) for name, tensor in self.inputs.items()}
        args, keywords = (changed(one, lambda tensor: given.get(id(tensor), tensor)) for one in (args, keywords))
        with torch.no_grad():
            output = function(*args, **keywords)
        output = args[0] if self.works_in_place else output
        found = joined(list(output) if isinstance(output, (tuple, list)) else [output]).reshape(-1)
        moved = (found >= FIRST) & (found < FIRST + self.count)
        link = torch.where(moved, found - FIRST, -1).to(torch.long)
        self._constants, self._call = found, None
        every = len(self.inputs) == 1 and len(link) == self.count
        self.one_to_one = every and bool((torch.bincount(link.clamp(min=0), minlength=1) == 1).all())
        self.in_order = every and bool((link == torch.arange(self.count, device=link.device)).all())
        return link, False, len(link)

    def constants(self, some: Array) -> Array | None:
        found, self._constants = self._constants, None
        return array(found[positions_on(found, some)])

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        checks = super().result(y, wanted, draw)
        shares = any(_memory(one) == _memory(y) for one in self.inputs.values())
        self.arranges = self.in_order or (self.one_to_one and shares)
        return checks


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


class Folded(Linked):
    """``fold``: each element is added to that of the image from which ``unfold`` takes it."""

    def __init__(self, input: Tensor, output_size: Any, *args: Any, **keywords: Any) -> None:
        super().__init__([input])
        kernel = args[0] if args else keywords["kernel_size"]
        rows, columns = (kernel, kernel) if isinstance(kernel, int) else kernel
        size = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)
        *batch, taps, _ = input.shape
        self._image: Any = (*batch, taps // (rows * columns), *size), args, keywords

    def links(self) -> tuple[Tensor, bool, int]:
        (shape, args, keywords), self._image = self._image, None
        results = math.prod(shape)
        device = self.inputs["x"].device
        image = torch.arange(1, results + 1, dtype=torch.float64, device=device).reshape(shape)
        return F.unfold(image, *args, **keywords).reshape(-1).to(torch.long) - 1, True, results


class Converted(Linked):
    """A tensor in another type, on another device, or the same again."""

    def __init__(self, function: Any, args: Any, keywords: Any) -> None:
        super().__init__(args[:1])
        self.arranges = True

    def links(self) -> tuple[Tensor, bool, int]:
        return torch.arange(self.count), False, self.count

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        if not y.is_floating_point():
            raise UnsupportedError(f"a result in {y.dtype}")
        return super().result(y, wanted, draw)


def translation(function: Any, name: str) -> Callable[..., Translated]:
    """Return the translation of the calls of a function by its name in ``MOVES`` or ``CONVERSIONS``."""
    kind = Converted if name in CONVERSIONS else Moved
    return lambda *args, **keywords: kind(function, args, keywords)
