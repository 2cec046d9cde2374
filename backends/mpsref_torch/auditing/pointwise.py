"""Layers that compute each element or each pixel by itself: activations, softmax, dropout, sums, losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpsref import Arithmetic, Dropout, LogSoftMax, Loss, Neuron, SoftMax
from mpsref.arguments.arrays import Array
from mpsref.conformance.audit import Check
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.operations import Problem
from mpsref_torch.auditing.layer import Layer, problem_of
from mpsref_torch.auditing.normalizing import rows
from mpsref_torch.auditing.sampled import ALL, ELEMENTS, VALUES, Draw, array


def elements(tensor: Tensor, index: tuple[Any, ...]) -> Array:
    """Return some elements as an image (1, 1, number, 1)."""
    tensor = tensor.detach()
    return array(tensor[tuple(tensor.new_tensor(one).long() for one in index)]).reshape(1, 1, -1, 1)


def flat_shape(tensor: Tensor) -> tuple[int, int, int, int]:
    """Return the shape of all elements as an image."""
    return 1, 1, tensor.numel(), 1


class Activation(Layer):
    """A neuron without parameters to learn."""

    def __init__(self, input: Tensor, neuron: Neuron, *, works_in_place: bool = False) -> None:
        self.inputs, self.layer, self.works_in_place = {"x": input}, neuron, works_in_place
        self.kept: Array | None = None
        self.shape = tuple(input.shape)

    def prepare(self, draw: Draw) -> None:
        self.index = draw.positions(self.shape, ELEMENTS)
        self.kept = elements(self.inputs["x"], self.index)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        if self.kept is None:
            self.prepare(draw)
        assert self.kept is not None
        problem = self.layer.problems["forward"](self.layer, self.kept.shape)
        return [Check(problem, (self.kept,), {"result": elements(y, self.index)})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        assert self.kept is not None
        problem = self.layer.problems["gradient"](self.layer, self.kept.shape)
        inputs = elements(g, self.index), self.kept
        return [Check(problem, inputs, {"gradient for x": elements(found["x"], self.index)})]

    def whole(self, method: str) -> Problem:
        n, c, *size = (*self.shape, 1)[: max(2, len(self.shape))]
        shape = (n, *[*size, 1, 1][:2], c) if len(size) < 3 else flat_shape(self.inputs["x"])
        return problem_of(self.layer, method, shape)


class Slopes(Layer):
    """``prelu``: some channels, all of their pixels, for the sums that are the gradients of the slopes."""

    def __init__(self, input: Tensor, weight: Tensor) -> None:
        self.inputs = {"x": input, "weight": weight}
        self.one = weight.numel() == 1
        if self.one and input.numel() > ALL:
            raise UnsupportedError(f"{input.numel()} elements with one slope; its gradient needs all of them")

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        x = self.inputs["x"]
        number = 1 if self.one or x.dim() < 2 else x.shape[1]
        self.channels = draw.some(number, max(1, VALUES // (x.numel() // number)))
        part = self._part(x)
        self.kept = part.copy()
        self.layer = Neuron("prelu", data=array(self.inputs["weight"]).ravel()[self.channels].tolist())
        problem = self.layer.problems["forward"](self.layer, part.shape)
        return [Check(problem, (part,), {"result": self._part(y)})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        part, checks = self._part(g), []
        if "x" in found:
            problem = self.layer.problems["gradient"](self.layer, self.kept.shape)
            checks.append(Check(problem, (part, self.kept), {"gradient for x": self._part(found["x"])}))
        if "weight" in found:
            problem = self.layer.problems["parameter_gradient"](self.layer, self.kept.shape)
            da = array(found["weight"]).ravel()[self.channels]
            checks.append(Check(problem, (part, self.kept), {"gradient for weight": da}))
        return checks

    def _part(self, tensor: Tensor) -> Array:
        if self.one:
            return array(tensor).reshape(1, 1, -1, 1)
        part = tensor.detach().index_select(1, tensor.new_tensor(self.channels).long())
        return array(part.movedim(1, -1)).reshape(1, 1, -1, len(self.channels))

    def whole(self, method: str) -> Problem | None:
        return None  # a case string would have all slopes


class OverChannels(Layer):
    """``softmax`` and ``log_softmax``: some pixels, along their axis."""

    def __init__(self, input: Tensor, dim: int | None, spec: SoftMax | LogSoftMax) -> None:
        if dim is None:
            raise UnsupportedError("dim is None")
        self.inputs, self.axis, self.layer = {"x": input}, dim % max(1, input.dim()), spec
        self.shape = tuple(input.shape)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        lead = self.shape[: self.axis] + self.shape[self.axis + 1 :]
        self.index = draw.positions(lead, max(2, VALUES // self.shape[self.axis]))
        part, self.kept = rows(self.inputs["x"], self.axis, self.index), rows(y, self.axis, self.index)
        problem = self.layer.problems["forward"](self.layer, part.shape)
        return [Check(problem, (part,), {"result": self.kept})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        problem = self.layer.problems["gradient"](self.layer, self.kept.shape)
        inputs = rows(g, self.axis, self.index), self.kept
        return [Check(problem, inputs, {"gradient for x": rows(found["x"], self.axis, self.index)})]

    def whole(self, method: str) -> Problem:
        c = self.shape[self.axis]
        before, after = math.prod(self.shape[: self.axis]), math.prod(self.shape[self.axis + 1 :])
        return problem_of(self.layer, method, (before, after, 1, c))


class Masked(Layer):
    """Dropout, by the mask that its result shows; an input of 0 shows it in its gradient alone."""

    def __init__(
        self, input: Tensor, p: float, training: bool, *, channels: bool = False, works_in_place: bool = False
    ) -> None:
        self.inputs, self.works_in_place, self.by_channel = {"x": input}, works_in_place, channels
        self.shape, self.p = tuple(input.shape), p if training else 0.0
        if channels and input.dim() < 3:
            raise UnsupportedError(f"dropout of channels of an input of shape {self.shape}")
        self.x: Array | None = None

    def prepare(self, draw: Draw) -> None:
        self.index = draw.positions(self.shape, ELEMENTS)
        self.x = elements(self.inputs["x"], self.index)

    def _check(self, method: str, values: Array, actual: Array, what: str) -> Check:
        if self.p in (0.0, 1.0):  # a copy, or zeros: no dropout of MPS
            spec = Neuron("linear", a=1.0 - self.p)
            return Check(spec.problems["forward"](spec, values.shape), (values,), {what: actual})
        layer = Dropout(1 - self.p)
        problem = layer.problems[method](layer, values.shape)
        return Check(problem, (values, self.mask.astype(np.uint8)), {what: actual})

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        if self.x is None:
            self.prepare(draw)
        assert self.x is not None
        actual = elements(y, self.index)
        self.mask = actual != 0
        if self.by_channel:
            self._same_in_a_channel(actual)
        return [self._check("forward", self.x, actual, "result")]

    def _same_in_a_channel(self, actual: Array) -> None:
        """Make the mask that of the whole channel: kept where any of its elements is."""
        n, c = (np.asarray(one) for one in self.index[:2])
        of_channel = np.zeros(self.shape[:2], bool)
        np.logical_or.at(of_channel, (n, c), self.mask.ravel())
        self.mask = of_channel[n, c].reshape(actual.shape)

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        actual = elements(found["x"], self.index)
        self.mask = np.where(self.x == 0, actual != 0, self.mask)
        return [self._check("gradient", elements(g, self.index), actual, "gradient for x")]

    def whole(self, method: str) -> Problem | None:
        return None  # PyTorch draws the mask itself


class TwoOperands(Layer):
    """Sum, difference or product of two tensors; the gradient of a tensor that is repeated is not compared."""

    def __init__(
        self, input: Tensor, other: Tensor, name: Any, alpha: float = 1, *, works_in_place: bool = False
    ) -> None:
        if other is input:
            raise UnsupportedError("an operand twice")
        if other.dtype != input.dtype or other.device != input.device:
            raise UnsupportedError(f"operands of two kinds, {input.dtype} and {other.dtype}")
        self.inputs, self.works_in_place = {"x": input, "y": other}, works_in_place
        self.layer = Arithmetic(name, secondary_scale=alpha)
        self.shape = np.broadcast_shapes(tuple(input.shape), tuple(other.shape))
        repeated = [one for one, tensor in self.inputs.items() if tuple(tensor.shape) != self.shape]
        self.notes = tuple(f"gradient for {one}: a sum over what it is repeated for" for one in repeated)
        self.kept: tuple[Array, Array] | None = None

    def prepare(self, draw: Draw) -> None:
        self.index = draw.positions(self.shape, ELEMENTS)
        x, y = (elements(tensor.detach().expand(self.shape), self.index) for tensor in self.inputs.values())
        self.kept = x, y

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        if self.kept is None:
            self.prepare(draw)
        assert self.kept is not None
        shape = self.kept[0].shape
        problem = self.layer.problems["forward"](self.layer, shape, shape)
        return [Check(problem, self.kept, {"result": elements(y, self.index)})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        assert self.kept is not None
        shape = self.kept[0].shape
        problem = self.layer.problems["gradient"](self.layer, shape, shape)
        whole = {name: dx for name, dx in found.items() if tuple(dx.shape) == self.shape}
        actual = {f"gradient for {name}": elements(dx, self.index) for name, dx in whole.items()}
        values = dict(zip("xy", self.kept, strict=True))
        inputs = tuple(values.get(name, elements(g, self.index)) for name in problem.input_shapes)
        return [Check(problem, inputs, actual, tuple("xy".index(name) for name in whole))]

    def whole(self, method: str) -> Problem | None:
        return None


class ElementLoss(Layer):
    """A loss of elements, such as ``mse_loss``: all elements for a sum, some of them for the gradient."""

    def __init__(self, input: Tensor, target: Tensor, spec: Loss, reduction: str) -> None:
        if not hasattr(target, "shape") or target.shape != input.shape:
            raise UnsupportedError("target and input have different shapes")
        if reduction not in ("none", "mean", "sum"):
            raise UnsupportedError(f"reduction is {reduction!r}")
        self.inputs, self.target, self.reduction = {"x": input, "target": target}, target.detach(), reduction
        self.type, self.factor, self.delta = spec.type, spec.weight, spec.delta

    def _spec(self, reduction: str) -> Loss:
        weight = self.factor / (self.inputs["x"].numel() if self.reduction == "mean" else 1)
        return Loss(self.type, reduction, weight=weight, delta=self.delta)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        x = self.inputs["x"]
        self.index = draw.positions(tuple(x.shape), ELEMENTS)
        self.kept = elements(x, self.index), elements(self.target, self.index)
        if self.reduction == "none":
            spec, given, actual = self._spec("none"), self.kept, elements(y, self.index)
        elif x.numel() > ALL:
            return []
        else:
            given = array(x).reshape(1, 1, -1, 1), array(self.target).reshape(1, 1, -1, 1)
            spec, actual = self._spec("sum"), array(y).reshape(1, 1, 1, 1)
        return [Check(spec.problems["forward"](spec, given[0].shape), given, {"result": actual})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        spec, checks = self._spec("none"), []
        source = elements(g, self.index) if self.reduction == "none" else np.full_like(self.kept[0], array(g).item())
        for name, method in (("x", "gradient"), ("target", "gradient_labels")):
            if name in found:
                problem = spec.problems[method](spec, self.kept[0].shape, chained=True)
                actual = {f"gradient for {name}": elements(found[name], self.index)}
                checks.append(Check(problem, (source, *self.kept), actual))
        return checks

    def whole(self, method: str) -> Problem | None:
        return None


class CrossEntropy(Layer):
    """``cross_entropy``, and ``nll_loss`` of logarithms: all pixels for a sum, some of them for the gradient."""

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
        if reduction not in ("none", "mean", "sum"):
            raise UnsupportedError(f"reduction is {reduction!r}")
        if weight is not None and label_smoothing:
            raise UnsupportedError("weights of classes with smoothed labels")
        self.inputs, self.reduction, self.smoothing = {"x": input}, reduction, label_smoothing
        self.axis, self.classes = (1 if input.dim() > 1 else 0), input.shape[1 if input.dim() > 1 else 0]
        self.probabilities = bool(target.is_floating_point())
        if self.probabilities and weight is not None:
            raise UnsupportedError("weights of classes with probabilities as targets")
        self.target, self.of_logits = target.detach(), of_logits
        lead = input.shape[: self.axis] + input.shape[self.axis + 1 :]
        self.lead = tuple(lead)
        self.weights: Array | None = None
        if not self.probabilities:
            labels = array(self.target).reshape(self.lead)
            of_class = np.ones(self.classes) if weight is None else array(weight).astype(np.float64)
            kept = labels != ignore_index
            self.weights = np.where(kept, of_class[np.where(kept, labels, 0)], 0.0)
        pixels = math.prod(self.lead)
        total = pixels if self.weights is None else float(self.weights.sum())
        self.divisor = total if reduction == "mean" else 1.0
        if self.divisor == 0:
            raise UnsupportedError("no target counts")

    def _spec(self, reduction: str) -> Loss:
        weight = 1 / self.divisor
        if not self.of_logits:
            return Loss("kullbackleiblerdivergence", reduction, weight=weight)
        classes = self.classes if self.smoothing else 1
        return Loss("softmaxcrossentropy", reduction, False, weight, self.smoothing, classes)

    def _given(self, index: tuple[Any, ...]) -> tuple[Array, ...]:
        """Return predictions, labels and weights of some pixels, (pixels, 1, 1, classes)."""
        x = rows(self.inputs["x"], self.axis, index)
        if self.probabilities:
            return x, rows(self.target, self.axis, index)
        t = np.zeros_like(x)
        labels = array(self.target).reshape(self.lead)[index].reshape(-1)
        assert self.weights is not None
        weights = self.weights[index].reshape(-1)
        t[np.arange(len(t)), 0, 0, np.where(weights > 0, labels, 0)] = 1
        return x, t, np.broadcast_to(weights[:, None, None, None], x.shape)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        self.index = draw.positions(self.lead, max(2, VALUES // 2 // self.classes))
        self.kept = self._given(self.index)
        if self.reduction == "none":
            given, across, actual = self.kept, False, array(y)[self.index].reshape(-1, 1, 1, 1)
        elif self.inputs["x"].numel() > ALL:
            return []
        else:
            given, across = self._given(tuple(np.unravel_index(np.arange(math.prod(self.lead)), self.lead))), True
            actual = array(y).reshape(1, 1, 1, 1)
        # The loss of all pixels: they are the columns of one image.
        if across:
            given = tuple(one.reshape(1, -1, 1, self.classes) for one in given)
        spec = self._spec("sum")
        problem = spec.problems["forward"](spec, given[0].shape, weighted=len(given) > 2)
        return [Check(problem, given, {"result": actual})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        if "x" not in found:
            return []
        spec, x = self._spec("none"), self.kept[0]
        problem = spec.problems["gradient"](spec, x.shape, chained=True, weighted=len(self.kept) > 2)
        of_pixel = array(g)[self.index] if self.reduction == "none" else np.full(len(x), array(g).item(), x.dtype)
        source = np.broadcast_to(of_pixel.reshape(-1, 1, 1, 1), x.shape)
        actual = {"gradient for x": rows(found["x"], self.axis, self.index)}
        return [Check(problem, (source, *self.kept), actual)]

    def whole(self, method: str) -> Problem | None:
        return None
