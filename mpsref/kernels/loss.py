"""Losses: a number for each element or image that measures how far predictions are from labels, and its gradients.

Forward          ``v = W l(y, t)``, or the sum of v over each image, divided as the reduction says
Gradient         ``dy = g W dl/dy``: that of the sum, whatever the reduction is [doc]
Gradient labels  ``dt = g W dl/dt``, 0 in channels of the labels that the predictions do not have

``W`` is ``weight``, times the weights image where there is one. To train on a mean, put the divisor into ``weight``.
The ten losses l are the rows of :data:`FUNCTIONS`. A product with a factor t or 1 - t that is 0 is 0, whatever the
logarithm [choice loss-zero-logarithm].

Source: MPSCNNLoss, MPSNNForwardLoss, MPSNNLossGradient in ``MPSCNNLoss.h``: loss and derivative by y [doc], derivative
by t [math]. Where the text contradicts itself or its own gradient, the formula is the consistent one of TensorFlow's
losses of the same names [choice loss-hinge, loss-huber, loss-divergence]: labels of the hinge loss are mapped to -1 and
+1 in both directions; Huber's square is of the error; the softmax gradient is ``softmax(y) - t``; the Kullback-Leibler
gradient is ``-t``; the sign of 0 is 0.

The error of an element is the sum over the steps of its formula of their roundings, each relative to the result of
that step: ``errors`` of the rows, in units of 2**-24, and four for the factors of the result. Functions and quotients
have the errors that a backend states [math; costs of the functions: design error-bounds]. What softmax adds is its own
bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from mpsref import codecs
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, ImageShape, Shape
from mpsref.arguments.device import on_host
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.kernels.reference import FAR, ErrorBound, functions, gamma
from mpsref.kernels.softmax import log_softmax_error, softmax_error
from mpsref.operations import Argument, Arguments, ImageProblem, Spec, operation
from mpsref.registry import call

REDUCTIONS = ("none", "sum", "mean", "sumbynonzeroweights")
"""By the lower-case name, in the order of Apple's numbers."""

Function = Callable[["Loss", Array, Array], Any]
"""``function(loss, y, t)`` of predictions and smoothed labels returns an array like y."""


class Domain(NamedTuple):
    """A closed interval, open at its lower end if ``above``."""

    low: float
    high: float
    above: bool = False

    def contains(self, values: Array) -> Array:
        """Return for each value whether it is inside; NaN and infinities are not."""
        inside = (values > self.low if self.above else values >= self.low) & (values <= self.high)
        return np.asarray(inside & np.isfinite(values))

    def __str__(self) -> str:
        low = f"{'>' if self.above else '>='} {self.low:g}" if np.isfinite(self.low) else ""
        high = f"<= {self.high:g}" if np.isfinite(self.high) else ""
        return " and ".join(filter(None, ["finite", low, high]))


ANY = Domain(-np.inf, np.inf)
UNIT = Domain(0, 1)


def times(t: Array, factor: Array) -> Any:
    """t * factor, and 0 where t is 0."""
    return np.where(t == 0, 0, t * factor)


def over(t: Array, divisor: Array) -> Array:
    """t / divisor, and 0 where t is 0."""
    return np.where(t == 0, 0, t / divisor)


def sigmoid(y: Array) -> Array:
    """1 / (1 + exp(-y)), without overflow."""
    e = np.exp(-np.abs(y))
    return np.asarray(np.where(y >= 0, 1, e) / (1 + e))


def log_softmax(y: Array) -> Array:
    """Logarithm of softmax over the last axis, with the largest value subtracted first."""
    shifted = y - y.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _size(v: Array) -> Array:
    return np.abs(np.log(v))


def _of_logarithm(v: Array, roundings: int) -> Array:
    """Return the error of log(v) where v has so many roundings, and of a product with it."""
    return roundings + (functions().log + 1) * _size(v)


def _of_sigmoid(y: Array) -> Array:
    """Return the error of sigmoid(y), whose exponential has an error that grows with its argument."""
    s = sigmoid(y)
    return np.asarray((functions().exp + 1 + functions().quotient + np.abs(y) * (1 + 4 * sigmoid(-y))) * s)


def _huber(size: Array, delta: float, offset: float) -> Array:
    return np.where(size <= delta, 0.5 * size**2, 0.5 * delta**2 + delta * (size + offset))


class LossFunction(NamedTuple):
    """One loss type: the loss, its derivatives, what bounds their errors, and where they are defined."""

    element: Function
    """l."""
    slope: Function
    """dl/dy."""
    label_slope: Function
    """dl/dt', with the smoothed label t', which the chain rule multiplies by the factor of the smoothing."""
    errors: tuple[Function, Function, Function]
    """Of the loss, of its derivative by y, and of that by t, in units of roundoff."""
    predictions: Domain = ANY
    labels: Domain = ANY
    over_channels: bool = False
    """Whether a value depends on all channels of its pixel."""


FUNCTIONS: Mapping[str, LossFunction] = {
    # |y - t|
    "meanabsoluteerror": LossFunction(
        element=lambda loss, y, t: np.abs(y - t),
        slope=lambda loss, y, t: np.sign(y - t),
        label_slope=lambda loss, y, t: np.sign(t - y),
        errors=(
            lambda loss, y, t: np.abs(y - t),
            lambda loss, y, t: np.zeros_like(y),
            lambda loss, y, t: np.zeros_like(y),
        ),
    ),
    # (y - t)**2
    "meansquarederror": LossFunction(
        element=lambda loss, y, t: (y - t) ** 2,
        slope=lambda loss, y, t: 2 * (y - t),
        label_slope=lambda loss, y, t: 2 * (t - y),
        errors=(
            lambda loss, y, t: 3 * (y - t) ** 2,
            lambda loss, y, t: 2 * np.abs(y - t),
            lambda loss, y, t: 2 * np.abs(y - t),
        ),
    ),
    # -t' log_softmax(y); y are logits. The derivative is exact where the weights of a pixel are equal and its labels
    # sum to 1.
    "softmaxcrossentropy": LossFunction(
        element=lambda loss, y, t: -times(t, log_softmax(y)),
        slope=lambda loss, y, t: np.exp(log_softmax(y)) - t,
        label_slope=lambda loss, y, t: -log_softmax(y),
        errors=(
            lambda loss, y, t: 4 * t * np.abs(log_softmax(y)),
            lambda loss, y, t: np.exp(log_softmax(y)) + 3 * t,
            lambda loss, y, t: np.abs(log_softmax(y)),
        ),
        labels=UNIT,
        over_channels=True,
    ),
    # -t' log s - (1 - t') log(1 - s), s = sigmoid(y), written so that nothing overflows
    "sigmoidcrossentropy": LossFunction(
        element=lambda loss, y, t: np.maximum(y, 0) - y * t + np.log1p(np.exp(-np.abs(y))),
        slope=lambda loss, y, t: sigmoid(y) - t,
        label_slope=lambda loss, y, t: -y,
        errors=(
            lambda loss, y, t: (
                2 * np.maximum(y, 0)
                + 6 * np.abs(y) * t
                + 2
                + (functions().exp + functions().log + 2 + np.abs(y)) * np.log1p(np.exp(-np.abs(y)))
            ),
            lambda loss, y, t: _of_sigmoid(y) + 3 * t,
            lambda loss, y, t: np.abs(y),
        ),
        labels=UNIT,
    ),
    # -t log y; y are probabilities
    "categoricalcrossentropy": LossFunction(
        element=lambda loss, y, t: -times(t, np.log(y)),
        slope=lambda loss, y, t: -over(t, y),
        label_slope=lambda loss, y, t: -np.log(y),
        errors=(
            lambda loss, y, t: t * _of_logarithm(y, 0),
            lambda loss, y, t: functions().quotient * t / y,
            lambda loss, y, t: _of_logarithm(y, 0),
        ),
        predictions=Domain(0, 1, above=True),
        labels=UNIT,
    ),
    # max(1 - (2t - 1) y, 0), with labels 0 and 1; at the kink the slope is 0
    "hinge": LossFunction(
        element=lambda loss, y, t: np.maximum(1 - (2 * t - 1) * y, 0),
        slope=lambda loss, y, t: np.where(1 + (1 - 2 * t) * y > 0, 1 - 2 * t, 0),
        label_slope=lambda loss, y, t: np.where(1 + (1 - 2 * t) * y > 0, -2 * y, 0),
        errors=(
            lambda loss, y, t: 1 + 3 * np.abs((2 * t - 1) * y),
            lambda loss, y, t: np.abs(1 - 2 * t),
            lambda loss, y, t: np.zeros_like(y),
        ),
        labels=UNIT,
    ),
    # (y - t)**2 / 2 up to |y - t| = delta, then a line of slope delta
    "huber": LossFunction(
        element=lambda loss, y, t: _huber(np.abs(y - t), loss.delta, -loss.delta),
        slope=lambda loss, y, t: np.clip(y - t, -loss.delta, loss.delta),
        label_slope=lambda loss, y, t: np.clip(t - y, -loss.delta, loss.delta),
        errors=(
            lambda loss, y, t: 5 * _huber(np.abs(y - t), loss.delta, loss.delta),
            lambda loss, y, t: np.minimum(np.abs(y - t), loss.delta),
            lambda loss, y, t: np.minimum(np.abs(y - t), loss.delta),
        ),
    ),
    # -y t: the loss of an image is 1 plus the sum of these, one number
    "cosinedistance": LossFunction(
        element=lambda loss, y, t: -y * t,
        slope=lambda loss, y, t: -t,
        label_slope=lambda loss, y, t: -y,
        errors=(
            lambda loss, y, t: np.abs(y * t),
            lambda loss, y, t: np.zeros_like(y),
            lambda loss, y, t: np.zeros_like(y),
        ),
    ),
    # -t log(y + epsilon) - (1 - t) log(1 - y + epsilon)
    "log": LossFunction(
        element=lambda loss, y, t: -times(t, np.log(y + loss.epsilon)) - times(1 - t, np.log(1 - y + loss.epsilon)),
        slope=lambda loss, y, t: over(1 - t, 1 - y + loss.epsilon) - over(t, y + loss.epsilon),
        label_slope=lambda loss, y, t: np.log(1 - y + loss.epsilon) - np.log(y + loss.epsilon),
        errors=(
            lambda loss, y, t: (
                t * _of_logarithm(y + loss.epsilon, 2)
                + np.abs(1 - t) * (_of_logarithm(1 - y + loss.epsilon, 3) + _size(1 - y + loss.epsilon))
            ),
            lambda loss, y, t: (
                (functions().quotient + 4) * np.abs(1 - t) / (1 - y + loss.epsilon)
                + (functions().quotient + 2) * t / (y + loss.epsilon)
            ),
            lambda loss, y, t: _of_logarithm(y + loss.epsilon, 2) + _of_logarithm(1 - y + loss.epsilon, 3),
        ),
        predictions=UNIT,
        labels=UNIT,
    ),
    # t (log t - y); y are logarithms of probabilities
    "kullbackleiblerdivergence": LossFunction(
        element=lambda loss, y, t: times(t, np.log(t) - y),
        slope=lambda loss, y, t: -t,
        label_slope=lambda loss, y, t: np.log(t) + 1 - y,
        errors=(
            lambda loss, y, t: t * ((functions().log + 2) * _size(np.where(t == 0, 1, t)) + 2 * np.abs(y)),
            lambda loss, y, t: np.zeros_like(y),
            lambda loss, y, t: (functions().log + 2) * _size(t) + 2 + 2 * np.abs(y),
        ),
        predictions=Domain(-np.inf, 0),
        labels=UNIT,
    ),
}
"""By the lower-case name, in the order of Apple's numbers."""

LOSS_TYPES = tuple(FUNCTIONS)

LOGITS = "softmaxcrossentropy", "sigmoidcrossentropy"
"""The loss types of logits, which may smooth their labels."""

PIECEWISE_POLYNOMIALS = "meanabsoluteerror", "meansquarederror", "hinge", "huber", "cosinedistance"
"""The loss types that round nothing where inputs are small integers."""


class Loss(Spec):
    """A loss of one of ten types.

    Parameters
    ----------
    type : str or int
        One of :data:`LOSS_TYPES`, or Apple's number of it.
    reduction : str or int, optional
        One of :data:`REDUCTIONS`, or Apple's number of it; "cosinedistance" takes "sum" alone.
    reduce_across_batch : bool, optional
        Whether the loss of all images is one number, that of image 0.
    weight : float, optional
        Any finite number.
    label_smoothing : float, optional
        In [0, 1], for the two cross entropies of logits.
    number_of_classes : int, optional
        At least 1, for label smoothing of "softmaxcrossentropy".
    epsilon : float, optional
        At least 0, for "log".
    delta : float, optional
        Greater than 0, for "huber".

    Examples
    --------
    >>> loss = Loss("meansquarederror")
    >>> y = np.array([1, 2, 3], np.float32).reshape(1, 1, 1, 3)
    >>> t = np.array([1, 0, 5], np.float32).reshape(1, 1, 1, 3)
    >>> loss.forward(y, t).tolist()
    [[[[8.0]]]]
    >>> loss.gradient(None, y, t).ravel().tolist()
    [0.0, 4.0, -4.0]
    """

    type: str = parameter(codecs.enumerated(*LOSS_TYPES))
    reduction: str = parameter(codecs.enumerated(*REDUCTIONS), default="sum")
    reduce_across_batch: bool = parameter(codecs.flag("across", "each"), default=False)
    weight: float = parameter(codecs.number("w"), default=1.0)
    label_smoothing: float = parameter(codecs.number("ls", 0, 1), default=0.0)
    number_of_classes: int = parameter(codecs.integer("classes", low=1), default=1)
    epsilon: float = parameter(codecs.number("eps", 0), default=1e-7)
    delta: float = parameter(codecs.number("delta", 0, above=True), default=1.0)

    def _check(self) -> None:
        if self.type == "cosinedistance" and self.reduction != "sum":
            raise ValueError(
                f"reduction is {self.reduction!r}; it must be 'sum' for the loss type 'cosinedistance', which is one "
                "number an image"
            )

    @property
    def smoothing(self) -> tuple[float, float]:
        """(a, b) of the smoothed label ``a * t + b``."""
        if self.type == "softmaxcrossentropy":
            return 1 - self.label_smoothing, self.label_smoothing / self.number_of_classes
        if self.type == "sigmoidcrossentropy":
            return 1 - self.label_smoothing, 0.5 * self.label_smoothing
        return 1.0, 0.0

    def loss_shape(self, shape: ImageShape) -> ImageShape:
        """Return the shape of the loss image for predictions of ``shape``."""
        return shape if self.reduction == "none" else (shape[0], 1, 1, 1)

    def forward(
        self,
        y: ArrayLike,
        t: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        validate: bool = False,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Compute the loss image.

        Parameters
        ----------
        y : array_like, shape (N, H, W, C)
            Predictions.
        t, weights : array_like, shape (N, H, W, C)
            Labels, and weights of the elements; they may have more channels, which are ignored.
        validate : bool, optional
            Whether to check that all values are in the domain of the loss type; values outside give the
            results of IEEE 754 arithmetic.

        Returns
        -------
        ndarray, shape (N, 1, 1, 1), or (N, H, W, C) for the reduction "none"
            In the dtype of ``y``.

        Raises
        ------
        ShapeError
            If an image does not fit ``y``.
        ValueError
            With ``validate``, for the first value outside its domain.
        """
        if validate:
            check_domains(self.type, y, t)
        return call(self, "forward", (y, t, weights), out=out, backend=backend)

    def gradient(
        self,
        g: ArrayLike | None,
        y: ArrayLike,
        t: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        validate: bool = False,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Compute dL/dy; the reduction does not divide it.

        Parameters
        ----------
        g : array_like or None
            Source gradient in the shape of the loss image; ``None`` is all ones. Across the batch ``g`` of image 0
            holds for all.
        y, t, weights, validate
            As in :meth:`forward`.

        Returns
        -------
        ndarray, shape (N, H, W, C)
            In the dtype of ``g``, or of ``y`` without it.
        """
        if validate:
            check_domains(self.type, y, t)
        return call(self, "gradient", (g, y, t, weights), out=out, backend=backend)

    def gradient_labels(
        self,
        g: ArrayLike | None,
        y: ArrayLike,
        t: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        validate: bool = False,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Compute dL/dt, in the shape of ``t``; otherwise as :meth:`gradient`."""
        if validate:
            check_domains(self.type, y, t)
        return call(self, "gradient_labels", (g, y, t, weights), out=out, backend=backend)


def check_domains(loss_type: str, y: ArrayLike, t: ArrayLike) -> None:
    """Raise ``ValueError`` that names the first prediction or label outside its domain.

    Arrays on a device are copied to the host.
    """
    predictions, labels = on_host(arrays.as_image("y", y)), on_host(arrays.as_image("t", t))
    labels = labels[..., : predictions.shape[3]]
    function = FUNCTIONS[loss_type]
    for name, values, domain in (("y", predictions, function.predictions), ("t", labels, function.labels)):
        outside = ~domain.contains(values)
        if outside.any():
            index = tuple(int(k) for k in np.argwhere(outside)[0])
            raise ValueError(
                f"{name}[{', '.join(map(str, index))}] is {values[index]}; with the loss type {loss_type!r} each value "
                f"must be {domain}"
            )


class LossProblem(ImageProblem):
    """An operation on predictions y (N, H, W, C) and labels t (N, H, W, ``label_channels``), of which C are read."""

    spec: Loss
    label_channels: int = parameter(codecs.integer("t"), default=None)
    weighted: bool = parameter(codecs.flag("weighted", "unweighted"), default=False)
    """Whether there is a weights image, (N, H, W, C)."""

    def _check(self) -> None:
        channels = self.source_shape[3]
        self._fill(label_channels=lambda: channels)
        if self.label_channels < channels:
            raise ShapeError(
                f"t has {self.label_channels} channels and y has {channels}; the labels need at least as many (more "
                "are ignored)"
            )
        if self.weighted and self.spec.type == "cosinedistance":
            raise ValueError(
                "weights are given with the loss type 'cosinedistance'; it has one weight an image: pass None"
            )

    @classmethod
    def from_call(cls, spec: Any, given: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Self, dict[int, Array]]:
        """Leave out channels of the weights that y does not have."""
        *g, y, t, weights = given
        if weights is not None:
            y, weights = arrays.as_image("y", y), arrays.as_image("weights", weights)
            if weights.shape[3] > y.shape[3]:
                weights = weights[..., : y.shape[3]]
        return super().from_call(spec, (*g, y, t, weights), options)

    @property
    def function(self) -> LossFunction:
        """The functions of the loss type."""
        return FUNCTIONS[self.spec.type]

    @property
    def loss_shape(self) -> ImageShape:
        """The shape of the loss image."""
        return self.spec.loss_shape(self.source_shape)

    def shape_hint(self, name: str, shape: Shape) -> str:
        return f", that of the loss image with the reduction {self.spec.reduction!r}" if name == "g" else ""

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Move predictions and labels to where the loss is defined and the decisions at kinks are exact.

        Numbers are folded into [-8, 8] and rounded to multiples of 2**-8, so that ``y - t`` and the decisions at kinks
        are exact in float32. Large logits become :data:`FAR`, which needs no such decision. Some labels and weights are
        0; labels are not where the derivative by them is infinite.
        """
        predictions, labels = self.function.predictions, self.function.labels
        least = 1 if (self.spec.type, self.method) == ("kullbackleiblerdivergence", "gradient_labels") else 0
        values = {name: _folded(array.astype(np.float64)) for name, array in drawn.items()}
        if labels is UNIT:
            values["t"] = np.maximum(_mixed(values["t"]) % 9, least) / 8
        if predictions is UNIT or predictions.above:
            values["y"] = (_mixed(values["y"]) % 63 + 1) / 64
        elif predictions.high == 0:
            values["y"] = -np.abs(values["y"])
        elif self.spec.type in LOGITS:
            is_large = np.abs(drawn["y"]) >= FAR / 2
            values["y"] = np.where(is_large, np.copysign(FAR, drawn["y"]), values["y"])
        if "weights" in values:
            values["weights"][_mixed(values["weights"]) % 5 == 0] = 0
        return {name: array.astype(drawn[name].dtype) for name, array in values.items()}

    def where(self, index: tuple[int, ...]) -> str:
        n, row, column, channel = index
        return (
            f"image {n}" if self.spec.reduction != "none" else f"image {n}, pixel ({row}, {column}), channel {channel}"
        )


def _folded(numbers: Array) -> Array:
    return np.asarray(np.round((numbers - 16 * np.round(numbers / 16)) * 256) / 256)


def _mixed(values: Array) -> Array:
    """Return a non-negative integer for each multiple of 2**-8; different values give different integers."""
    return np.asarray(np.abs(values * 256).astype(np.int64) * 37 % 8191)


READ: Arguments = {
    "y": "n h w c",
    "t": "n h w label_channels",
    "weights": Argument("n h w c", when="weighted"),
}
CHAINED: Arguments = {"g": Argument("loss_shape", when="chained"), **READ}


class LossForward(LossProblem, method="forward", inputs=READ, results={"v": "loss_shape"}):
    """``forward``: the loss image, (N, 1, 1, 1), or (N, H, W, C) where nothing is reduced."""

    def divisors(self, weights: Array | None) -> Array:
        """Return what the sum of each image is divided by, (N,); 0 where the result is 0.

        Across the batch it is one number for all, in element 0.
        """
        n, height, width, channels = self.source_shape
        pixels = height * width
        counts = np.ones(n)
        if self.spec.reduction == "mean":
            counts *= pixels if self.function.over_channels else pixels * channels
        elif self.spec.reduction == "sumbynonzeroweights":
            every = pixels * channels if self.spec.weight else 0
            counts *= every if weights is None else np.count_nonzero(weights, axis=(1, 2, 3))
        if self.spec.reduce_across_batch and self.spec.reduction != "sum":
            counts[:1] = counts.sum()
        return counts

    def loss_image(self, sums: Array, weights: Array | None) -> Array:
        """Return the loss image (N, 1, 1, 1) from the sum of v over each image, (N,)."""
        loss = self.spec
        if loss.type == "cosinedistance":
            sums = loss.weight + sums  # the loss of an image is 1 - sum of y t
        if loss.reduce_across_batch:
            sums = sums.sum(keepdims=True)
        if loss.reduction != "sum":  # the divisor is 1
            divisors = self.divisors(weights)[: len(sums)]
            sums = np.divide(sums, divisors, out=np.zeros_like(sums), where=divisors > 0)
        image = np.zeros(self.loss_shape, sums.dtype)
        image[: len(sums), 0, 0, 0] = sums
        return image


class LossGradient(LossProblem, method="gradient", inputs=CHAINED, results={"dy": "n h w c"}):
    """``gradient``: dy, like y, from the source gradient g where there is one, y, t and weights."""

    chained: bool = parameter(codecs.flag("chained", "unchained"), default=False)
    """Whether there is a source gradient g; without one it is 1."""

    def named_inputs(self, inputs: Sequence[Array]) -> tuple[Array | None, Array, Array, Array | None]:
        """Return g, y, t and weights; ``None`` for those that are not given."""
        found = dict(zip(self.arguments, inputs, strict=True))
        return found.get("g"), found["y"], found["t"], found.get("weights")

    def source_gradient(self, g: Array) -> Array:
        """Return the source gradient of each image: with a reduction across the batch, the value of image 0."""
        across = self.spec.reduce_across_batch and self.spec.reduction != "none"
        return np.broadcast_to(g[:1], g.shape) if across else g


class LossGradientLabels(LossGradient, method="gradient_labels", results={"dt": "n h w label_channels"}):
    """``gradient_labels``: dt, like t; otherwise as ``gradient``."""


def evaluate(problem: LossProblem, derivative: str, y: Array, t: Array) -> Array:
    """Return ``element``, ``slope`` or ``label_slope`` of the loss type; NaN where y or t is NaN."""
    function, loss = problem.function, problem.spec
    t = t[..., : y.shape[3]]
    a, b = loss.smoothing
    unknown: Array = np.isnan(y) | np.isnan(t)
    if function.over_channels:
        unknown = np.any(unknown, axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        value = getattr(function, derivative)(loss, y, a * t + b)
        return np.where(unknown, np.nan, a * value if derivative == "label_slope" else value)


def weighted(problem: LossProblem, values: Array, weights: Array | None) -> Array:
    """W times values."""
    return np.asarray(problem.spec.weight * (values if weights is None else weights * values))


def element_error(loss: Loss, derivative: str, y: Array, t: Array) -> Array:
    """Return the largest error of ``element``, ``slope`` or ``label_slope`` at each element.

    ``t`` are the labels before smoothing, with as many channels as ``y``.
    """
    a, b = loss.smoothing
    function = FUNCTIONS[loss.type]
    errors = function.errors[("element", "slope", "label_slope").index(derivative)]
    smoothed = t if function.labels == ANY else np.abs(a * t) + b  # labels of any sign occur in differences y - t
    found = gamma(1) * (errors(loss, y, smoothed) + 4 * np.abs(getattr(function, derivative)(loss, y, smoothed)))
    if loss.type == "softmaxcrossentropy":
        found = found + _softmax_error(derivative, y, smoothed)
    return np.broadcast_to(a * found if derivative == "label_slope" else found, y.shape)


def _softmax_error(derivative: str, y: Array, t: Array) -> Array:
    """Return the errors of softmax and log-softmax."""
    channels = y.shape[-1]
    spread = y.max(axis=-1, keepdims=True) - y.min(axis=-1, keepdims=True)
    logarithm = log_softmax(y)
    if derivative == "slope":
        return softmax_error(channels, spread, np.exp(logarithm))
    shifted = y - y.max(axis=-1, keepdims=True)
    of_logarithm = log_softmax_error(channels, spread, np.abs(shifted) + np.abs(shifted - logarithm))
    return np.asarray(of_logarithm * (t if derivative == "element" else 1))


def _exact(problem: LossProblem, magnitude: Array) -> Array:
    """Return where no rounding occurs: all terms are multiples of 2**-13, and their sum is below 2**11."""
    loss = problem.spec
    dyadic = (loss.weight * 64) % 1 == 0 and (loss.delta * 8) % 1 == 0
    return np.asarray((magnitude < 2.0**11) & (dyadic and loss.type in PIECEWISE_POLYNOMIALS))


def forward_bound(problem: LossForward, y: Array, t: Array, weights: Array | None = None) -> ErrorBound:
    """Return the errors of the elements, and what their sum adds: gamma(T + 6) for its T terms."""
    loss, (n, *size) = problem.spec, problem.source_shape
    factor = np.abs(weighted(problem, np.ones_like(y), weights))
    with np.errstate(all="ignore"):
        magnitude = factor * np.abs(evaluate(problem, "element", y, t))
        of_element = factor * element_error(loss, "element", y, t[..., : y.shape[3]])
    if loss.reduction == "none":
        return ErrorBound(of_element, _exact(problem, magnitude))
    magnitude, sums = (array.sum(axis=(1, 2, 3)) for array in (magnitude, of_element))
    if loss.type == "cosinedistance":
        magnitude = magnitude + abs(loss.weight)
    count, divisors = math.prod(size), problem.divisors(weights)
    if loss.reduce_across_batch:
        count, divisors = count * n, divisors[:1]
        magnitude, sums = magnitude.sum(keepdims=True), sums.sum(keepdims=True)
    sums = sums + gamma(count + 6) * magnitude
    limit = np.zeros(problem.loss_shape)
    limit[: len(sums), 0, 0, 0] = np.divide(sums, divisors, out=np.zeros_like(sums), where=divisors > 0)
    exact = np.ones(limit.shape, bool)
    exact[: len(sums), 0, 0, 0] = _exact(problem, magnitude) & (np.frexp(divisors)[0] % 0.5 == 0)
    return ErrorBound(limit, exact)


@operation(Loss, problem=LossForward, bound=forward_bound)
def forward(problem: LossForward, y: Array, t: Array, weights: Array | None = None) -> Array:
    """v = W l, or the sum of v over each image, divided as the reduction says."""
    v = weighted(problem, evaluate(problem, "element", y, t), weights)
    return v if problem.spec.reduction == "none" else problem.loss_image(v.sum(axis=(1, 2, 3)), weights)


def chained(problem: LossGradient, derivative: str, *inputs: Array) -> Array:
    """Return the weighted derivative, times the source gradient where there is one."""
    g, y, t, weights = problem.named_inputs(inputs)
    values = weighted(problem, evaluate(problem, derivative, y, t), weights)
    return values if g is None else problem.source_gradient(g) * values


def gradient_bound(problem: LossGradient, *inputs: Array) -> ErrorBound:
    """Return the errors of the derivatives, times the absolute values of weights and source gradient."""
    derivative = "slope" if problem.method == "gradient" else "label_slope"
    g, y, t, weights = problem.named_inputs(inputs)
    factor = np.abs(weighted(problem, np.ones_like(y), weights))
    if g is not None:
        factor = factor * np.abs(problem.source_gradient(g))
    t = t[..., : y.shape[3]]
    with np.errstate(all="ignore"):
        magnitude = factor * np.abs(evaluate(problem, derivative, y, t))
        of_element = factor * element_error(problem.spec, derivative, y, t)
    extra = problem.result_shapes[0][3] - y.shape[3]
    beyond = ((0, 0), (0, 0), (0, 0), (0, extra))
    return ErrorBound(np.pad(of_element, beyond), np.pad(_exact(problem, magnitude), beyond, constant_values=True))


@operation(Loss, problem=LossGradient, bound=gradient_bound)
def gradient(problem: LossGradient, *inputs: Array) -> Array:
    """dy = g W dl/dy."""
    return chained(problem, "slope", *inputs)


@operation(Loss, problem=LossGradientLabels, bound=gradient_bound)
def gradient_labels(problem: LossGradientLabels, *inputs: Array) -> Array:
    """dt = g W dl/dt, 0 in channels that y does not have."""
    dt = chained(problem, "label_slope", *inputs)
    channels = problem.source_shape[3]
    return np.pad(dt, ((0, 0), (0, 0), (0, 0), (0, problem.label_channels - channels)))
