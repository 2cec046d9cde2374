"""What an audit needs from each kind of layer."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import mpsref_torch
from mpsref.arguments.arrays import Array, Shape
from mpsref.conformance.audit import Check, Step
from mpsref.frameworks.adapter import Tensor
from mpsref.kernels.reference import UNIT_ROUNDOFF
from mpsref.operations import Problem
from mpsref_torch.auditing.sampled import ELEMENTS, VALUES, Draw, array, elements, rows

DTYPES = ("float32", "float64", "float16", "bfloat16")

NOT_OF_LAYERS = {"small probabilities are 0", "zeros by products", "NaN by another formula", "NaN is the extremum"}
"""NaN and infinities are not compared at all."""

RULES = (*(rule for rule in mpsref_torch.RULES if rule not in NOT_OF_LAYERS), "flushes subnormals")
"""Those of the backend ``torch`` that concern layers."""


def rules_on(device: Any) -> tuple[str, ...]:
    """Return the rules that concern a device, with its settings."""
    import torch

    if device.type == "cpu":
        return (*RULES, *mpsref_torch.ON_DEVICE["cpu"])
    if device.type != "cuda":
        return RULES
    convolutions = ("TF32 convolutions",) if torch.backends.cudnn.allow_tf32 else ()
    products = ("TF32 products",) if torch.backends.cuda.matmul.allow_tf32 else ()
    return (*RULES, "transformed convolutions", *convolutions, *products)


IMAGES = frozenset({"x", "y", "target"})
"""Inputs that are not parameters of a layer."""


class Translated(ABC):
    """One call of a function that mpsref knows, translated to its problems.

    ``result`` is called with what the function returned, and keeps the parts of the inputs that ``gradients`` needs.
    """

    inputs: dict[str, Tensor]
    """The tensors for which there may be gradients, by name."""

    fixed: Mapping[str, Tensor] = MappingProxyType({})
    """Tensors that are no inputs, but get other numbers when the call is run again."""

    exact = True
    """Whether a function of sums or means computes them of small integers without a rounding."""

    works_in_place = False
    joins = False
    """Whether ``result`` and ``gradients`` get all results of the function, joined."""
    arranges = False
    """Whether nothing happens but that elements get other numbers in an order or the same memory."""
    notes: tuple[str, ...] = ()
    """What is not compared, with the reason."""

    def prepare(self, draw: Draw) -> None:
        """Take what the function will overwrite; called before a function that works in place."""
        raise NotImplementedError

    def release(self) -> None:
        """Keep only the shapes of images, which are as large as all else together; called after ``result``."""
        for name in IMAGES & self.inputs.keys():
            self.inputs[name] = self.inputs[name].detach().to("meta")

    @abstractmethod
    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        """Return the checks of the result; ``wanted`` are the inputs that will get gradients."""

    @abstractmethod
    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        """Return the checks of the gradients ``found``, from the source gradient ``g`` of the result."""

    def repeated(self, generator: Any) -> Translated:
        """Return what compares the call that is run once more: a formula that counts fewer roundings, if it has one."""
        return self

    def whole(self, method: str) -> Problem | None:
        """Return a problem of the shapes of the whole layer, or ``None``."""
        return None


@dataclass(eq=False)
class RecordedCall(Step):
    """One call of a known function."""

    kind: str = ""
    """Name in ``torch.nn.functional``."""
    again: Numbers = ""
    """What the call gets when it is run once more."""
    translated: Translated | None = None
    module: Any | None = None
    """The module, if what it returned was compared, not what a function in it did."""
    dtype: str = ""
    repeated: bool = False
    """Whether the call is in the backward pass, which repeats a part of the forward pass."""
    compiled: bool = False
    """Whether the function ran through ``torch.compile``."""
    differentiable: bool = False
    """Whether the result requires a gradient."""
    functions: list[str] = field(default_factory=list)
    """The functions of its own that a module calls, with file and line."""
    unit: float = UNIT_ROUNDOFF
    """Unit roundoff of the gradients, where they are less precise than float32."""

    @property
    def is_silent(self) -> bool:
        """Whether elements were only arranged anew, and nothing of it is wrong or left out."""
        arranged = self.translated is not None and self.translated.arranges
        left_out = [one for one in self.reasons if not one.startswith(("no gradient", "gradients: that of"))]
        return arranged and not left_out and not any(one.message for one in self.compared)

    def key(self, method: str) -> object:
        """Return what two calls have in common that are wrong in the same small cases."""
        problem = None if self.translated is None else self.translated.whole(method)
        kind = self.module if self.module is None else type(self.module).__qualname__
        return kind, self.kind, method, None if problem is None else problem.spec, tuple(self.layouts.items())


class Sampled(Translated):
    """A layer with one spec, whose forward pass and gradients are compared on one part of all of its tensors."""

    GRADIENTS: ClassVar[dict[str, tuple[str, ...]]] = {"gradient": ("x",)}
    """By method of the spec, the inputs of the layer whose gradients it returns."""

    HAS_CASES: ClassVar[bool] = True
    """Whether a case string can be the whole layer."""

    part_shape: Shape
    """The shape of the part of the source."""
    channels: list[int]
    """The channels of a layer with parameters that are compared."""

    def __init__(self, x: Tensor, layer: Any, *, works_in_place: bool = False, **others: Tensor | None) -> None:
        self.inputs = {"x": x} | {name: tensor for name, tensor in others.items() if tensor is not None}
        self.layer, self.works_in_place, self.shape = layer, works_in_place, tuple(x.shape)
        self.values: dict[str, Array] = {}
        """Inputs of the problems, by their names there."""

    @abstractmethod
    def choose(self, draw: Draw) -> None:
        """Draw the part."""

    @abstractmethod
    def part(self, tensor: Tensor) -> Array:
        """Return the part of a tensor of the shape of the result as an image."""

    def problem(self, method: str, shape: Shape) -> Problem:
        """Return the problem of a source image of this shape."""
        return problem_of(self.layer, method, shape)

    def given(self) -> dict[str, Array]:
        """Return the inputs of the forward pass."""
        return {"x": self.part(self.inputs["x"])}

    def prepare(self, draw: Draw) -> None:
        self.choose(draw)
        self.values = self.given()
        self.part_shape = next(iter(self.values.values())).shape

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        if not self.values:
            self.prepare(draw)
        found = self.part(y)
        check = self._check("forward", {0: ("result", found)})
        self.values.setdefault("y", found)
        self.keep(wanted)
        return [check]

    def keep(self, wanted: frozenset[str]) -> None:
        """Keep copies of what the gradients are computed from; softmax has its own from the result."""
        problems = [self.problem(method, self.part_shape) for method in self.GRADIENTS if wanted]
        read = {name for problem in problems for name in problem.input_shapes}
        self.values = {name: one.copy("K") for name, one in self.values.items() if name in read}

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        self.values["g"] = self.part(g)
        checks = []
        for method, names in self.GRADIENTS.items():
            of = {
                k: (f"gradient for {name}", self._of_input(name, found[name]))
                for k, name in enumerate(names)
                if name in found
            }
            checks += [self._check(method, of)] if of else []
        self.values = {}
        return checks

    def _of_input(self, name: str, tensor: Tensor) -> Array:
        return self.part(tensor) if name in IMAGES else array(tensor).ravel()[self.channels]

    def _check(self, method: str, found: dict[int, tuple[str, Array]]) -> Check:
        problem = self.problem(method, self.part_shape)
        inputs = tuple(self.values[name] for name in problem.input_shapes)
        return Check(problem, inputs, dict(found.values()), tuple(found))

    def whole(self, method: str) -> Problem | None:
        return self.problem(method, image_shape(self.shape)) if self.HAS_CASES else None


class Elements(Sampled):
    """Some elements, each of which is computed by itself."""

    def choose(self, draw: Draw) -> None:
        self.flat = draw.flat(math.prod(self.shape), ELEMENTS)

    def part(self, tensor: Tensor) -> Array:
        return elements(tensor.expand(self.shape), self.flat)


class Rows(Sampled):
    """Some pixels, all of their elements along an axis."""

    def __init__(self, x: Tensor, layer: Any, axis: int) -> None:
        super().__init__(x, layer)
        self.axis = axis % max(1, x.dim())
        self.lead = self.shape[: self.axis] + self.shape[self.axis + 1 :]

    def choose(self, draw: Draw) -> None:
        self.index = draw.positions(self.lead, max(2, VALUES // self.shape[self.axis]))

    def part(self, tensor: Tensor) -> Array:
        return rows(tensor, self.axis, self.index)

    def whole(self, method: str) -> Problem | None:
        before, after = math.prod(self.shape[: self.axis]), math.prod(self.shape[self.axis + 1 :])
        return self.problem(method, (before, after, 1, self.shape[self.axis])) if self.HAS_CASES else None


Numbers: TypeAlias = Literal["", "products", "sums", "means", "linear", "balanced", "distributions", "pieces"]
"""The numbers that a call gets when it is run once more: small integers, whose sums of products, sums or means
float32 computes exactly, or which some results select; as many 1 as -1; logits of equal probabilities; or numbers on
all pieces of a function of elements. Empty: each element is compared within a few roundings, or there is a mask."""

Made = TypeVar("Made")

Translate = Callable[..., Translated]
"""``translate(*args, **keywords)`` takes the arguments of a function of PyTorch, and raises ``UnsupportedError``."""


def image_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the shape (N, H, W, C) of a tensor (N, C, ...)."""
    n, c, *size = (*shape, 1, 1)[: max(2, len(shape))]
    height, width = (*size, 1, 1)[:2] if len(size) < 3 else (math.prod(size), 1)
    return n, height, width, c


@functools.lru_cache(maxsize=1024)
def made(kind: Callable[..., Made], *arguments: Any, **options: Any) -> Made:
    """Return a spec or a problem, the same object for blocks and layers of one shape: it keeps its tables."""
    return kind(*arguments, **options)


def problem_of(spec: Any, method: str, *arguments: Any, **options: Any) -> Problem:
    """Return a problem of a kernel."""
    problem: Problem = made(spec.problems[method], spec, *arguments, **options)
    return problem
