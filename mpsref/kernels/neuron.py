"""Neurons: functions of one value, applied to every pixel and channel, and their gradients.

Forward    ``y = f(x)``
Gradient   ``dx = g * f'(x)``, with x the source image of the forward pass
PReLU      ``da[c] = sum over images and pixels with x < 0 of g * x``, the gradient for its slopes

The sixteen functions are the rows of :data:`mpsref.kernels.neuron_curves.CURVES`.

Source: ``MPSCNNNeuron.h`` [doc]; the gradient for PReLU's slopes is an extension [math].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, cast

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import choice, integer
from mpsref.errors import ShapeError
from mpsref.kernels.neuron_curves import CURVES, TYPES, error, folded, slope, value
from mpsref.kernels.posing import posed
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey

__all__ = ["TYPES", "Neuron", "neuron_codec", "slope", "value"]


class NeuronProblem(operations.ImageProblem):
    """What the operations of a neuron share: images of one shape, with a channel for each slope of PReLU."""

    spec: Neuron

    def __post_init__(self) -> None:
        """Check the shape."""
        super().__post_init__()
        channels, data = self.source_shape[3], self.spec.data
        if data is not None and len(data) != channels:
            raise ShapeError(
                f"data has {len(data)} values and the image {channels} channels (axis 3); "
                "it must have one value for each channel"
            )

    @property
    def result_shapes(self) -> tuple[Shape]:
        """An image of the same shape."""
        return (self.source_shape,)

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Bring x into [-8, 8], and the argument of a power or a logarithm to where they are finite."""
        return drawn | {"x": folded(self.spec, drawn["x"])}


class NeuronForward(NeuronProblem):
    """``forward``: y from x."""

    method: ClassVar[str] = "forward"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source image x."""
        return {"x": self.source_shape}


class NeuronGradient(NeuronProblem):
    """``gradient``: dx from g and x."""

    method: ClassVar[str] = "gradient"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g, and the source image x of the forward pass."""
        return {"g": self.source_shape, "x": self.source_shape}


class NeuronParameterGradient(NeuronGradient):
    """``parameter_gradient`` of PReLU: da from g and x."""

    method: ClassVar[str] = "parameter_gradient"

    def __post_init__(self) -> None:
        """Check the shape and the type."""
        super().__post_init__()
        if self.spec.type != "prelu":
            raise ValueError(f"type is {self.spec.type!r}; only 'prelu' has parameters to learn: use gradient()")

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """As for the other operations, and with values below 0: the sum is over these."""
        x = folded(self.spec, drawn["x"])
        return drawn | {"x": x if (x < 0).any() else -x}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """One number for each channel."""
        return (self.source_shape[3:],)

    def result_dtypes(self, *inputs: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        """Parameters are float32, and float64 where the images are."""
        return (np.dtype(np.float64 if inputs[0] == np.float64 else np.float32),)


class Neuron(operations.Spec):
    """A neuron of one of the sixteen :data:`TYPES`, given by name or by Apple's number.

    ``a``, ``b`` and ``c`` are finite; ``None`` is the documented default, and those that the type does not have read
    0.0. ``data`` is one slope for each channel, for PReLU alone.

    >>> Neuron("relun", a=0.0)
    Neuron('relun', a=0.0, b=6.0)
    >>> Neuron("relun", a=0.0).forward(np.array([[[[-1, 3, 8]]]], np.float32)).ravel().tolist()
    [-0.0, 3.0, 6.0]
    """

    type: str = field(metadata={"codec": codecs.word(*TYPES)})
    a: float = field(default=cast(float, None), metadata={"codec": codecs.number("a")})
    b: float = field(default=cast(float, None), metadata={"codec": codecs.number("b")})
    c: float = field(default=cast(float, None), metadata={"codec": codecs.number("c")})
    data: Sequence[float] | None = field(default=None, metadata={"codec": codecs.numbers("data")})

    problems: ClassVar = {
        "forward": NeuronForward,
        "gradient": NeuronGradient,
        "parameter_gradient": NeuronParameterGradient,
    }

    def __post_init__(self) -> None:
        """Check every parameter and fill in the defaults."""
        object.__setattr__(self, "type", _type_named(self.type))
        needs = CURVES[self.type].needs
        for name in "abc":
            given = getattr(self, name)
            number = needs.get(name, 0.0) if given is None else _number(name, given)
            if self.type == "prelu" and name == "a" and number:
                raise ValueError(f"a is {number}; PReLU has a slope for each channel: pass data=[...] instead")
            object.__setattr__(self, name, number if name in needs else 0.0)
        object.__setattr__(self, "data", _slopes(self.type, self.data))
        if self.type == "exponential" and self.c != -1 and self.c <= 0:
            raise ValueError(f"c is {self.c}; as the base of Exponential it must be > 0, or -1 for e")
        if self.type == "logarithm" and self.c != -1 and (self.c <= 0 or self.c == 1):
            raise ValueError(f"c is {self.c}; as the base of Logarithm it must be > 0 and not 1, or -1 for e")

    def __repr__(self) -> str:
        needed = [f"{name}={getattr(self, name)!r}" for name in CURVES[self.type].needs]
        data = [] if self.data is None else [f"data={self.data!r}"]
        return f"Neuron({', '.join([repr(self.type), *needed, *data])})"

    def forward(self, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return f(x) of the image ``x`` (N, H, W, C), in its shape and dtype.

        Raises ``ShapeError`` where PReLU has another number of slopes than ``x`` has channels.
        """
        x = arrays.as_image("x", x)
        return registry.run_one(posed(NeuronForward, self, x.shape), x, out=out, backend=backend)

    def gradient(self, g: Any, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return dL/dx = g * f'(x), in the dtype of ``g``; ``x`` is the source image of the forward pass.

        Raises ``ShapeError`` where the shapes of ``g`` and ``x`` differ, and as :meth:`forward` does.
        """
        g, x = _pair_of_images(g, x)
        return registry.run_one(posed(NeuronGradient, self, x.shape), g, x, out=out, backend=backend)

    def parameter_gradient(self, g: Any, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return dL/d(data) of PReLU, (C,): the sum of g*x over all images and pixels with x < 0, as float32.

        Raises ``ValueError`` for another type, and as :meth:`gradient` does.
        """
        g, x = _pair_of_images(g, x)
        return registry.run_one(posed(NeuronParameterGradient, self, x.shape), g, x, out=out, backend=backend)


def neuron_codec(code: str = "neuron") -> codecs.Codec:
    """Return the token of a field that holds a neuron: that of the neuron alone, with colons for commas.

    >>> neuron_codec().write(Neuron("elu", a=0.5))
    'neuron:elu:a0.5'
    """
    own = {"a": codecs.number("a"), "b": codecs.number("b"), "c": codecs.number("c"), "data": codecs.numbers("data")}
    parts = "".join(rf"(?::{token.pattern})?" for token in own.values())

    def read(name: str, *values: str | None) -> Neuron:
        given = {key: own[key].read(text) for key, text in zip(own, values, strict=True) if text is not None}
        return Neuron(name, **given)

    def write(neuron: Neuron) -> str:
        names = [*CURVES[neuron.type].needs, *(["data"] if neuron.data else [])]
        return ":".join([code, neuron.type, *(own[name].write(getattr(neuron, name)) for name in names)])

    def convert(name: str, value: Any) -> Neuron:
        if not isinstance(value, Neuron):
            raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be None or an mpsref.Neuron")
        return value

    return codecs.Codec(f"{code}:relu:a0.1", rf"{code}:({'|'.join(TYPES)}){parts}", read, write, convert)


def _type_named(given: Any) -> str:
    if isinstance(given, str):
        return choice("type", given, TYPES)
    number = integer("type", given)
    if not 0 <= number < len(TYPES):
        raise ValueError(f"type is {number}; it must be a number from 0 to {len(TYPES) - 1}, or a name: {TYPES}")
    return TYPES[number]


def _number(name: str, given: Any) -> float:
    """Return a parameter as a float that is a finite number in float32, too."""
    legal = "a finite number of magnitude <= 3.4e38 (float32)"
    if isinstance(given, (bool, np.bool_, str, bytes)) or np.ndim(given) or not hasattr(given, "__float__"):
        raise TypeError(f"{name} is {given!r} of type {given.__class__.__name__}; it must be {legal}")
    try:
        number = float(given) + 0.0  # -0.0 compares equal to 0.0 and is to print alike
    except OverflowError:
        number = math.inf
    if not abs(number) <= float(np.finfo(np.float32).max):
        raise ValueError(f"{name} is {number}; it must be {legal}")
    return number


def _slopes(kind: str, data: Any) -> tuple[float, ...] | None:
    """Return the slopes of PReLU as a tuple, ``None`` for another type."""
    if kind != "prelu":
        if data is not None:
            raise ValueError(f"data is given, and type is {kind!r}; only 'prelu' has data: leave it out")
        return None
    if data is None:
        raise ValueError("data is None; PReLU needs one slope for each channel: data=[...]")
    values = [data] if np.ndim(data) == 0 else list(data)
    if np.ndim(data) != 1 or not values:
        raise ValueError(f"data has shape {np.shape(data)}; it must be one-dimensional and not empty, (C,)")
    return tuple(_number(f"data[{c}]", one) for c, one in enumerate(values))


def _pair_of_images(g: Any, x: Any) -> tuple[Array, Array]:
    g, x = arrays.as_image("g", g), arrays.as_image("x", x)
    if g.shape != x.shape:
        raise ShapeError(f"g has shape {g.shape} and x {x.shape}; both must be the same")
    return g, x


def forward(problem: NeuronForward, x: Array) -> Array:
    """y = f(x)."""
    return value(problem.spec, x)


def gradient(problem: NeuronGradient, g: Array, x: Array) -> Array:
    """dx = g * f'(x)."""
    return g * slope(problem.spec, x)


def parameter_gradient(problem: NeuronParameterGradient, g: Array, x: Array) -> Array:
    """da[c] = sum of g * x where x < 0: there y = data[c] * x. A NaN in x counts, too."""
    return np.asarray(np.where(x >= 0, 0, g * x).sum((0, 1, 2)))


EXACT = ("none", "absolute")
"""Nothing is computed, only selected."""


def forward_terms(problem: NeuronForward, x: Array) -> ErrorBound:
    """Return the bound of the value."""
    y = abs(value(problem.spec, x))
    return (
        ErrorBound(y, np.float64(0))
        if problem.spec.type in EXACT
        else ErrorBound.of_error(error(problem.spec, "value", x))
    )


def gradient_terms(problem: NeuronGradient, g: Array, x: Array) -> ErrorBound:
    """Return the bound of the slope, times g."""
    y = abs(g * slope(problem.spec, x))
    if problem.spec.type in EXACT:
        return ErrorBound(y, np.float64(0))
    return ErrorBound.of_error(abs(g) * error(problem.spec, "slope", x))


def parameter_terms(problem: NeuronParameterGradient, g: Array, x: Array) -> ErrorBound:
    """Sum of |g * x|, and m = number of terms + 4; sums of small integers are exact."""
    magnitude, count = np.where(x < 0, abs(g * x), 0).sum((0, 1, 2)), (x < 0).sum((0, 1, 2))
    return ErrorBound(magnitude, count + 4, magnitude <= 2.0**24)


REFERENCE: dict[OperationKey, Formula] = {
    (Neuron, "forward"): forward,
    (Neuron, "gradient"): gradient,
    (Neuron, "parameter_gradient"): parameter_gradient,
}
TERMS: dict[OperationKey, Formula] = {
    (Neuron, "forward"): forward_terms,
    (Neuron, "gradient"): gradient_terms,
    (Neuron, "parameter_gradient"): parameter_terms,
}
SPECS = (Neuron,)

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
