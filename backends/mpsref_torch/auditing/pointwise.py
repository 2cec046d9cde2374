"""Layers that compute each element or each pixel by itself: activations, softmax, dropout, sums, losses."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch

from mpsref import Arithmetic, Dropout, LogSoftMax, Loss, Neuron, SoftMax
from mpsref.arguments.arrays import Array, Shape
from mpsref.conformance.audit import Check, Computed
from mpsref.conformance.rounded import Rounded, log_softmax, softmax
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.operations import Problem
from mpsref_torch.auditing import replay
from mpsref_torch.auditing.formulas import OfRows
from mpsref_torch.auditing.layer import Elements, Rows, Sampled, Translated, problem_of
from mpsref_torch.auditing.sampled import ALL, VALUES, Draw, array, positions_on, rows


class Activation(Elements):
    """A neuron without parameters to learn."""

    exact = False


class Slopes(Sampled):
    """``prelu``: some channels, all of their pixels, for the sums that are the gradients of the slopes."""

    GRADIENTS: ClassVar = {"gradient": ("x",), "parameter_gradient": ("weight",)}
    HAS_CASES = False  # a case string would have all slopes

    def __init__(self, input: Tensor, weight: Tensor) -> None:
        super().__init__(input, None, weight=weight)
        self.one = weight.numel() == 1
        if self.one and input.numel() > ALL:
            raise UnsupportedError(f"{input.numel()} elements with one slope; its gradient needs all of them")

    def choose(self, draw: Draw) -> None:
        number = 1 if self.one or len(self.shape) < 2 else self.shape[1]
        self.channels = draw.some(number, max(1, VALUES // (math.prod(self.shape) // number)))
        self.layer = Neuron("prelu", data=array(self.inputs["weight"]).ravel()[self.channels].tolist())

    def part(self, tensor: Tensor) -> Array:
        if self.one:
            return array(tensor).reshape(1, 1, -1, 1)
        part = tensor.detach().index_select(1, positions_on(tensor, self.channels))
        return array(part.movedim(1, -1)).reshape(1, 1, -1, len(self.channels))


class OverChannels(Rows):
    """``softmax`` and ``log_softmax``: some pixels, along their axis."""

    def __init__(self, input: Tensor, dim: int | None, spec: SoftMax | LogSoftMax) -> None:
        if dim is None:
            raise UnsupportedError("dim is None")
        super().__init__(input, spec, dim)

    def repeated(self, generator: Any) -> Translated:
        """Return a formula that counts the roundings of equal probabilities, whose sums are exact in every order."""
        x, steps = self.inputs["x"], 8.0
        with torch.no_grad():
            x.copy_(replay.distribution(self.shape[self.axis], self.lead, generator).movedim(-1, self.axis))
        logarithmic = isinstance(self.layer, LogSoftMax)

        def backward(g: Rounded, x: Rounded) -> dict[str, Rounded]:
            p = softmax(x, steps)
            return {"x": g - p * g.sum(-1, steps) if logarithmic else p * (g - (g * p).sum(-1, steps))}

        forward = log_softmax if logarithmic else softmax
        return OfRows(x, lambda x: forward(x, steps), backward, self.axis)


class Masked(Elements):
    """Dropout, by the mask that its result shows; an input of 0 shows it in its gradient alone."""

    HAS_CASES = False  # PyTorch draws the mask itself

    def __init__(
        self, input: Tensor, p: float, training: bool, *, channels: bool = False, works_in_place: bool = False
    ) -> None:
        rate = p if training else 0.0
        # A copy, or zeros, are no dropout of MPS.
        layer = Neuron("linear", a=1.0 - rate) if rate in (0.0, 1.0) else Dropout(1 - rate)
        super().__init__(input, layer, works_in_place=works_in_place)
        self.by_channel = channels
        if channels and input.dim() < 3:
            raise UnsupportedError(f"dropout of channels of an input of shape {self.shape}")

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        if not self.values:
            self.prepare(draw)
        mask = self.part(y) != 0
        self.values["mask"] = (self._of_channels(mask) if self.by_channel else mask).astype(np.uint8)
        self.hidden = self.values["x"] == 0
        return super().result(y, wanted, draw)

    def _of_channels(self, mask: Array) -> Array:
        """Return the mask of whole channels: kept where any of their elements is."""
        n, c, *_ = np.unravel_index(self.flat, self.shape)
        of_channel = np.zeros(self.shape[:2], bool)
        np.logical_or.at(of_channel, (n, c), mask.ravel())
        found: Array = of_channel[n, c].reshape(mask.shape)
        return found

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        if "mask" in self.values:
            self.values["mask"][self.hidden & (self.part(found["x"]) != 0)] = 1
        return super().gradients(g, found, draw)


class TwoOperands(Elements):
    """Sum, difference or product of two tensors; of one that is repeated, some elements of the gradient."""

    GRADIENTS: ClassVar = {"gradient": ("x", "y")}
    HAS_CASES = False

    def __init__(
        self, input: Tensor, other: Tensor, name: Any, alpha: float = 1, *, works_in_place: bool = False
    ) -> None:
        if other is input:
            raise UnsupportedError("an operand twice")
        if not other.is_floating_point() or other.device != input.device:
            raise UnsupportedError(f"operands of two kinds, {input.dtype} and {other.dtype}")
        super().__init__(input, Arithmetic(name, secondary_scale=alpha), works_in_place=works_in_place, y=other)
        self.shape = np.broadcast_shapes(tuple(input.shape), tuple(other.shape))
        self.sizes = {name: tuple(tensor.shape) for name, tensor in self.inputs.items()}
        self.exact = _is_short(alpha)
        self.slopes = {"add": (1.0, alpha), "subtract": (1.0, -alpha)}.get(name)
        """What a sum of the gradient is multiplied with; ``None`` for the other operand."""
        self.others: dict[str, list[tuple[tuple[int, ...], Any]]] = {}
        """Of a repeated operand some indices, and the elements of the other that its element meets."""

    def given(self) -> dict[str, Array]:
        return {name: self.part(tensor) for name, tensor in self.inputs.items()}

    def problem(self, method: str, shape: Shape) -> Problem:
        return problem_of(self.layer, method, shape, shape)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        for name in wanted:
            if self.sizes[name] == self.shape:
                continue
            other = self.inputs["y" if name == "x" else "x"].detach().expand(self.shape)
            size = math.prod(self.sizes[name])
            number = max(1, min(8, VALUES * size // math.prod(self.shape)))
            indices = np.unravel_index(draw.some(size, number), self.sizes[name]) if self.sizes[name] else [[]]
            each = [tuple(map(int, one)) for one in zip(*indices, strict=True)] or [()]
            met = [None if self.slopes else array(self._met(other, name, one)).copy() for one in each]
            self.others[name] = list(zip(each, met, strict=True))
        return super().result(y, wanted, draw)

    def _met(self, tensor: Tensor, name: str, index: tuple[int, ...]) -> Tensor:
        """Return the elements of a tensor of the whole shape that one element of a repeated operand meets."""
        own = self.sizes[name]
        fixed = [slice(None) if length == 1 else k for k, length in zip(index, own, strict=True)]
        return tensor[(*(slice(None),) * (tensor.dim() - len(own)), *fixed)]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        checks = super().gradients(g, {name: dx for name, dx in found.items() if tuple(dx.shape) == self.shape}, draw)
        for name, others in self.others.items():
            if name not in found:
                continue
            sums, inputs, actual = [], [], []
            for index, other in others:
                part = Rounded(array(self._met(g.detach(), name, index)).ravel())
                factor = self.slopes[name == "y"] if self.slopes else other.ravel()
                sums.append((part * factor if self.slopes != (1.0, 1) else part).sum(0))
                inputs.append(part.value)
                actual.append(array(found[name][index]))
            checks.append(
                Check(Computed.of(Rounded.joined(sums)), tuple(inputs), {f"gradient for {name}": np.array(actual)})
            )
        return checks


def _is_short(number: float) -> bool:
    """Return whether products of small integers and a number are exact in float32."""
    return float(number * 16).is_integer() and abs(number) <= 16


REDUCTIONS = ("none", "mean", "sum")


class ElementLoss(Elements):
    """A loss of elements, such as ``mse_loss``: all elements for a sum, some of them for the gradient."""

    GRADIENTS: ClassVar = {"gradient": ("x",), "gradient_labels": ("target",)}
    HAS_CASES = False

    def __init__(self, input: Tensor, target: Tensor, layer: Loss, reduction: str) -> None:
        if not hasattr(target, "shape") or target.shape != input.shape:
            raise UnsupportedError("target and input have different shapes")
        if reduction not in REDUCTIONS:
            raise UnsupportedError(f"reduction is {reduction!r}")
        super().__init__(input, layer, target=target)
        self.reduction = reduction
        self.exact = _is_short(layer.delta) and _is_short(layer.weight) and input.numel() <= VALUES

    def problem(self, method: str, shape: Shape, reduction: str = "none") -> Problem:
        layer = self.layer
        weight = layer.weight / (math.prod(self.shape) if self.reduction == "mean" else 1)
        options = {} if method == "forward" else {"chained": True}
        return problem_of(Loss(layer.type, reduction, weight=weight, delta=layer.delta), method, shape, **options)

    def given(self) -> dict[str, Array]:
        return {"y": self.part(self.inputs["x"]), "t": self.part(self.inputs["target"])}

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        if self.reduction == "none":
            return super().result(y, wanted, draw)
        self.prepare(draw)
        self.keep(wanted)
        if math.prod(self.shape) > ALL:
            return []
        given = tuple(array(tensor).reshape(1, 1, -1, 1) for tensor in self.inputs.values())
        problem = self.problem("forward", given[0].shape, "sum")
        return [Check(problem, given, {"result": array(y).reshape(1, 1, 1, 1)})]


class CrossEntropy(Rows):
    """``cross_entropy``, and ``nll_loss`` of logarithms: all pixels for a sum, some of them for the gradient."""

    HAS_CASES = False

    def __init__(
        self,
        input: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        of_logits: bool = True,
    ) -> None:
        if reduction not in REDUCTIONS:
            raise UnsupportedError(f"reduction is {reduction!r}")
        if weight is not None and label_smoothing:
            raise UnsupportedError("weights of classes with smoothed labels")
        super().__init__(input, None, 1 if input.dim() > 1 else 0)
        self.reduction, self.smoothing, self.classes = reduction, label_smoothing, input.shape[self.axis]
        self.probabilities = bool(target.is_floating_point())
        if self.probabilities and weight is not None:
            raise UnsupportedError("weights of classes with probabilities as targets")
        self.target, self.of_logits = target.detach(), of_logits
        self.weights: Array | None = None
        if not self.probabilities:
            labels = array(self.target).reshape(self.lead)
            of_class = np.ones(self.classes) if weight is None else array(weight).astype(np.float64)
            kept = labels != ignore_index
            self.weights = np.where(kept, of_class[np.where(kept, labels, 0)], 0.0)
        total = math.prod(self.lead) if self.weights is None else float(self.weights.sum())
        self.divisor = total if reduction == "mean" else 1.0
        plain = weight is None and not label_smoothing and not self.probabilities
        self.exact = plain and math.prod(self.lead) <= VALUES // 2
        if self.divisor == 0:
            raise UnsupportedError("no target counts")

    def problem(self, method: str, shape: Shape) -> Problem:
        reduction, weight = "sum" if method == "forward" else "none", 1 / self.divisor
        if self.of_logits:
            classes = self.classes if self.smoothing else 1
            spec = Loss("softmaxcrossentropy", reduction, False, weight, self.smoothing, classes)
        else:
            spec = Loss("kullbackleiblerdivergence", reduction, weight=weight)
        options = {"weighted": self.weights is not None} | ({} if method == "forward" else {"chained": True})
        return problem_of(spec, method, shape, **options)

    def choose(self, draw: Draw) -> None:
        self.index = draw.positions(self.lead, max(2, VALUES // 2 // self.classes))

    def part(self, tensor: Tensor) -> Array:
        """Return some pixels; of the gradient of a loss, what each of their elements gets."""
        of_pixels = tensor if tensor.dim() != len(self.lead) else tensor.unsqueeze(self.axis)
        return super().part(of_pixels.expand(self.shape))

    def given(self) -> dict[str, Array]:
        return self._given(self.index)

    def _given(self, index: tuple[Any, ...]) -> dict[str, Array]:
        """Return predictions, labels and weights of some pixels, (pixels, 1, 1, classes)."""
        x = rows(self.inputs["x"], self.axis, index)
        if self.probabilities:
            return {"y": x, "t": rows(self.target, self.axis, index)}
        t = np.zeros_like(x)
        labels = array(self.target).reshape(self.lead)[index].reshape(-1)
        assert self.weights is not None
        weights = self.weights[index].reshape(-1)
        t[np.arange(len(t)), 0, 0, np.where(weights > 0, labels, 0)] = 1
        return {"y": x, "t": t, "weights": np.broadcast_to(weights[:, None, None, None], x.shape)}

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        self.prepare(draw)
        kept = tuple(self.values.values())
        self.keep(wanted)
        if self.reduction == "none":
            given, actual = kept, array(y)[self.index].reshape(-1, 1, 1, 1)
        elif math.prod(self.shape) > ALL:
            return []
        else:  # all pixels, as the columns of one image
            every = self._given(np.unravel_index(np.arange(math.prod(self.lead)), self.lead)).values()
            given, actual = tuple(one.reshape(1, -1, 1, self.classes) for one in every), array(y).reshape(1, 1, 1, 1)
        return [Check(self.problem("forward", given[0].shape), given, {"result": actual})]
