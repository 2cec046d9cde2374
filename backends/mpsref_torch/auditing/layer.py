"""What an audit needs from each kind of layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from mpsref.arguments.arrays import Shape
from mpsref.conformance.audit import Check
from mpsref.frameworks.adapter import Tensor
from mpsref.operations import Problem
from mpsref_torch.auditing.sampled import Draw

DTYPES = ("float32", "float64")

RULES = (
    "slope at a kink",
    "slope from the result",
    "folded scale and shift",
    "rounded means",
    "plain sums",
    "variance from squares",
    "rounded positions",
    "flushes subnormals",
)
"""Those of the backend ``torch`` that concern layers; NaN and infinities are not compared at all."""


def rules_on(device: Any) -> tuple[str, ...]:
    """Return the rules that concern a device, with its settings."""
    import torch

    if device.type != "cuda":
        return RULES
    convolutions = ("TF32 convolutions",) if torch.backends.cudnn.allow_tf32 else ()
    products = ("TF32 products",) if torch.backends.cuda.matmul.allow_tf32 else ()
    return (*RULES, "transformed convolutions", *convolutions, *products)


IMAGES = frozenset({"x", "y", "target"})
"""Inputs that are not parameters of a layer."""


class Layer(ABC):
    """One call of a function that mpsref knows, translated to its problems.

    ``result`` is called with what the function returned, and keeps the parts of the inputs that ``gradients`` needs.
    """

    inputs: dict[str, Tensor]
    """The tensors for which there may be gradients, by name."""

    works_in_place = False
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

    @abstractmethod
    def whole(self, method: str) -> Problem | None:
        """Return a problem of the shapes of the whole layer, or ``None``."""


Translate = Callable[..., Layer]
"""``translate(*args, **keywords)`` takes the arguments of a function of PyTorch, and raises ``UnsupportedError``."""


def image_shape(tensor: Tensor) -> Shape:
    """Return the shape (N, H, W, C) of a tensor (N, C, H, W)."""
    n, c, height, width = tensor.shape
    return n, height, width, c


def problem_of(spec: Any, method: str, *arguments: Any, **options: Any) -> Problem:
    """Return a problem of a kernel."""
    problem: Problem = spec.problems[method](spec, *arguments, **options)
    return problem
