"""Neurons: functions of one value, applied to every pixel and channel, and their gradients.

Forward    ``y = f(x)``
Gradient   ``dx = g * f'(x)``, with x the source image of the forward pass
PReLU      ``da[c] = sum over images and pixels with x < 0 of g * x``, the gradient of its slopes

The sixteen functions are the rows of :data:`ACTIVATIONS`. Each is evaluated so that no intermediate value overflows,
and NaN in gives NaN out, except for the constant derivatives of "none" and "linear". At a kink the derivative has the
value that Apple documents; where the documentation is silent or contradicts itself, ReLUN is flat from its clamp on
[math], and Absolute has the derivative 0 at 0 [obs neuron-absolute].

Source: ``MPSCNNNeuronType.h``, ``MPSCNNNeuron.h``: functions and derivatives [doc], that of GeLU
[choice neuron-gelu] and the condition of HardSigmoid [choice neuron-hardsigmoid]; the gradient of PReLU's slopes is an
extension [math].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mpsref import codecs
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import choice, integer
from mpsref.arguments.text import shown
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.kernels.one_image import ReadsPixels
from mpsref.kernels.reference import FAR, ErrorBound, Functions, functions, gamma
from mpsref.operations import ImageProblem, operation, vector
from mpsref.registry import call


class Activation(NamedTuple):
    """A function of one value and its derivative.

    Both take the neuron, for its parameters, and the argument: ``u = a*x + b`` if ``affine``, else x.
    """

    value: Callable[[Neuron, Array], Array]
    slope: Callable[[Neuron, Array], Array]
    needs: Mapping[str, float] = {}
    """The parameters and their defaults."""
    affine: bool = False
    roundings: Callable[[Functions], tuple[int, int]] = lambda of: (1, 1)
    """The roundings of value and slope, relative to them, before the last one, for these errors of functions."""
    moves: int = 0
    """The roundings of the argument, relative to its terms."""


def _tanh_slope(n: Neuron, x: Array) -> Array:
    z = np.exp(-2 * abs(n.b * x))  # 1 - tanh(b*x)**2 would cancel
    return np.asarray(n.a * n.b * 4 * z / (1 + z) ** 2)


def _sigmoid(x: Array) -> Array:
    z = np.exp(-abs(x))
    return np.asarray(np.where(x >= 0, 1.0, z) / (1 + z))


def _sigmoid_slope(n: Neuron, x: Array) -> Array:
    z = np.exp(-abs(x))
    return np.asarray(z / (1 + z) ** 2)


def _softplus(n: Neuron, x: Array) -> Array:
    u = n.b * x
    return n.a * np.asarray(np.maximum(u, 0) + np.log1p(np.exp(-abs(u))))


def _clamped(n: Neuron, x: Array) -> Array:
    """Return the derivative of ReLUN: 0 where the clamp is reached, whatever the sign of x."""
    return np.where(_relu(n.a, x) >= n.b, 0.0, _relu_slope(n.a, x))


def _relu(a: Any, x: Array) -> Array:
    return np.where(x >= 0, x, a * x)


def _relu_slope(a: Any, x: Array) -> Array:
    return np.where(x >= 0, 1.0, a)


def _power(u: Array, c: float) -> Array:
    return np.float_power(u, c)  # numpy.power takes a root where c is 0.5, which is another function at -inf


def _power_slope(n: Neuron, u: Array) -> Array:
    return n.a * n.c * _power(u, n.c - 1) if n.c else np.zeros_like(u)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])  # NumPy has no erf


def _normal(x: Array) -> Array:
    """Return the normal distribution function ``(1 + erf(x/sqrt(2))) / 2`` without cancellation."""
    return 0.5 * np.asarray(_erfc(-x * math.sqrt(0.5)))


ACTIVATIONS: Mapping[str, Activation] = {
    "none": Activation(lambda n, x: x, lambda n, x: np.ones_like(x), roundings=lambda of: (0, 0)),
    "relu": Activation(lambda n, x: _relu(n.a, x), lambda n, x: _relu_slope(n.a, x), {"a": 0.0}),
    "linear": Activation(lambda n, u: u, lambda n, u: np.full_like(u, n.a), {"a": 1.0, "b": 0.0}, affine=True, moves=3),
    "sigmoid": Activation(
        lambda n, x: _sigmoid(x),
        _sigmoid_slope,
        roundings=lambda of: (of.exp + 1 + of.quotient, of.exp + 2 * (1 + of.quotient) + 1),
        moves=4,
    ),
    "hardsigmoid": Activation(
        lambda n, u: np.clip(u, 0, 1),
        lambda n, u: np.where((u >= 0) & (u <= 1), n.a, 0.0),
        {"a": 0.2, "b": 0.5},
        affine=True,
        moves=3,
    ),
    "tanh": Activation(
        lambda n, x: n.a * np.tanh(n.b * x),
        _tanh_slope,
        {"a": 1.0, "b": 1.0},
        roundings=lambda of: (of.tanh + 1, of.exp + 2 * (1 + of.quotient) + 5),
        moves=6,
    ),
    "absolute": Activation(lambda n, x: abs(x), lambda n, x: np.sign(x), roundings=lambda of: (0, 0)),
    "softplus": Activation(
        _softplus,
        lambda n, x: n.a * n.b * _sigmoid(n.b * x),
        {"a": 1.0, "b": 1.0},
        roundings=lambda of: (of.exp + of.log + of.quotient + 2, of.exp + 1 + of.quotient + 3),
        moves=6,
    ),
    "softsign": Activation(
        lambda n, x: x / (1 + abs(x)),
        lambda n, x: (1 / (1 + abs(x))) ** 2,
        roundings=lambda of: (1 + of.quotient, 3 + 2 * of.quotient),
    ),
    "elu": Activation(
        lambda n, x: np.where(x >= 0, x, n.a * np.expm1(np.minimum(x, 0))),
        lambda n, x: np.where(x >= 0, 1.0, n.a * np.exp(np.minimum(x, 0))),
        {"a": 1.0},
        roundings=lambda of: (2, of.exp + 1),
        moves=4,
    ),
    "prelu": Activation(
        lambda n, x: _relu(np.asarray(n.data, x.dtype), x),
        lambda n, x: _relu_slope(np.asarray(n.data, x.dtype), x),
    ),
    "relun": Activation(lambda n, x: np.minimum(_relu(n.a, x), n.b), _clamped, {"a": 1.0, "b": 6.0}, moves=1),
    "power": Activation(
        lambda n, u: _power(u, n.c),
        _power_slope,
        {"a": 1.0, "b": 0.0, "c": 1.0},
        affine=True,
        roundings=lambda of: (of.power, of.power + 3),
        moves=3,
    ),
    "exponential": Activation(
        lambda n, u: np.exp(u * n.log_base),
        lambda n, u: n.a * n.log_base * np.exp(u * n.log_base),
        {"a": 1.0, "b": 0.0, "c": -1.0},
        affine=True,
        roundings=lambda of: (of.exp, of.exp + 3),
        moves=7,
    ),
    "logarithm": Activation(
        lambda n, u: np.log(u) / n.log_base,
        lambda n, u: n.a / (n.log_base * u),
        {"a": 1.0, "b": 0.0, "c": -1.0},
        affine=True,
        roundings=lambda of: (of.log + 1 + of.quotient, 3 + of.quotient),
        moves=3,
    ),
    "gelu": Activation(
        lambda n, x: x * _normal(x),
        lambda n, x: _normal(x) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi),
        roundings=lambda of: (2, 1),
    ),
}
"""Every type of neuron, in the order of Apple's numbers."""

TYPES = tuple(ACTIVATIONS)


def argument(neuron: Neuron, x: Array) -> Array:
    """Return the argument of the activation: ``a*x + b`` or x itself."""
    return neuron.a * x + neuron.b if ACTIVATIONS[neuron.type].affine else x


def value(neuron: Neuron, x: Array) -> Array:
    """Return f(x) in the dtype of ``x``, float of any width; the slopes of PReLU belong to the last axis.

    >>> from mpsref import Neuron
    >>> value(Neuron("relu", a=0.5), np.array([-2.0, 3.0])).tolist()
    [-1.0, 3.0]
    """
    return _evaluated(ACTIVATIONS[neuron.type].value, neuron, x)


def slope(neuron: Neuron, x: Array) -> Array:
    """Return f'(x) in the dtype of ``x``, at a kink the documented value.

    >>> from mpsref import Neuron
    >>> slope(Neuron("relu", a=0.5), np.array([-2.0, 0.0])).tolist()
    [0.5, 1.0]
    """
    return _evaluated(ACTIVATIONS[neuron.type].slope, neuron, x)


def _evaluated(function: Callable[[Neuron, Array], Array], neuron: Neuron, x: Array) -> Array:
    # Infinity and NaN are correct results beyond the range of the dtype or the domain of the function.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        result = np.asarray(function(neuron, argument(neuron, x)), x.dtype)
    is_constant = function is ACTIVATIONS[neuron.type].slope and neuron.type in ("none", "linear")
    # A comparison with NaN is false, and NaN to the power of 0 is 1: put NaN back.
    return result if is_constant else np.where(np.isnan(x), x, result)


def activation_error(neuron: Neuron, of: str, x: Array) -> Array:
    """Return how far a float32 result may be from the ``of`` ("value" or "slope") at ``x``, float64.

    The change of the function when its argument moves by the roundings of that, those that are relative to the result,
    and those of a sum that cancels, relative to its terms. Functions and quotients have the stated errors
    [math, design error-bounds].
    """
    activation = ACTIVATIONS[neuron.type]
    function, roundings = getattr(activation, of), activation.roundings(functions())[of == "slope"]
    x = np.clip(x, -(2.0**100), 2.0**100)  # the error of a function that is constant at infinity is finite there
    u = argument(neuron, x)
    magnitude = abs(neuron.a * x) + abs(neuron.b) if activation.affine else abs(x)
    with np.errstate(all="ignore"):
        at, below, above = (function(neuron, u + gamma(activation.moves) * sign * magnitude) for sign in (0, -1, 1))
        moved = np.maximum(abs(below - at), abs(above - at))
        return np.asarray(moved + gamma(roundings) * abs(at) + _cancelled(neuron, of, x))


def _cancelled(neuron: Neuron, of: str, x: Array) -> Any:
    """Return the error of a sum whose terms are larger than it: 1 + z, e**x - 1, and the normal distribution.

    The distribution is a polynomial times an exponential, as in Metal's kernel, or half of 1 + erf. Its density has the
    error of an exponential whose argument has two roundings.
    """
    if neuron.type == "softplus" and of == "value":
        return gamma(1) * abs(neuron.a)
    if neuron.type == "elu" and of == "value":
        power = np.exp(np.minimum(x, 0))  # expm1 has the error of a function, which is relative to the difference
        return np.where(x < 0, gamma(functions().exp) * abs(neuron.a) * np.maximum(power, 1 - power), 0)
    if neuron.type != "gelu":
        return 0.0
    density = np.exp(-0.5 * x * x)
    of_distribution = gamma(5) + gamma(16) * density
    return (
        abs(x) * of_distribution
        if of == "value"
        else of_distribution + abs(x) * density * gamma(functions().exp + 2 + x * x)
    )


def _type_named(name: str, given: object) -> str:
    if isinstance(given, str):
        return choice(name, given, TYPES)
    number = integer(name, given)
    if not 0 <= number < len(TYPES):
        raise ValueError(f"{name} is {number}; it must be a number from 0 to {len(TYPES) - 1}, or a name: {TYPES}")
    return TYPES[number]


def _number(name: str, given: Any) -> float:
    """Return a parameter as a float that is a finite number in float32, too."""
    legal = "a finite number of magnitude <= 3.4e38 (float32)"
    if (
        isinstance(given, (bool, np.bool_, str, bytes))
        or getattr(given, "ndim", None)
        or not hasattr(given, "__float__")
    ):
        raise TypeError(f"{name} is {shown(given)} of type {given.__class__.__name__}; it must be {legal}")
    try:
        number = float(given) + 0.0  # -0.0 compares equal to 0.0 and prints alike
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
    shape = arrays.as_array("data", data).shape
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"data has shape {shape}; it must be one-dimensional and not empty, (C,)")
    try:
        values = list(data)
    except MemoryError:
        raise ValueError(f"data has shape {shape}, and does not fit into memory; pass fewer slopes") from None
    return tuple(_number(f"data[{c}]", one) for c, one in enumerate(values))


_a, _b, _c = (codecs.number(code)._replace(convert=_number) for code in "abc")


class Neuron(ReadsPixels):
    """A function of one value, applied to every element.

    Parameters
    ----------
    type : str or int
        One of the sixteen :data:`TYPES`, or Apple's number of it.
    a, b, c : float, optional
        Finite parameters of the function; the default is the documented one, and 0.0 where the type has no such
        parameter.
    data : sequence of float, optional
        One slope for each channel, for "prelu" alone.

    Examples
    --------
    >>> Neuron("relun", a=0.0)
    Neuron('relun', a=0.0, b=6.0)
    >>> Neuron("relun", a=0.0).forward(np.array([[[[-1, 3, 8]]]], np.float32)).ravel().tolist()
    [-0.0, 3.0, 6.0]
    """

    type: str = parameter(codecs.word(*TYPES)._replace(convert=_type_named))
    a: float = parameter(_a, default=None)
    b: float = parameter(_b, default=None)
    c: float = parameter(_c, default=None)
    data: Sequence[float] | None = parameter(codecs.numbers("data"), default=None)

    def _check(self) -> None:
        needs = ACTIVATIONS[self.type].needs
        for name in "abc":
            number = needs.get(name, 0.0) if getattr(self, name) is None else getattr(self, name)
            if self.type == "prelu" and name == "a" and number:
                raise ValueError(f"a is {number}; PReLU has a slope for each channel: pass data=[...] instead")
            self._set(**{name: number if name in needs else 0.0})
        self._set(data=_slopes(self.type, self.data))
        if self.type == "exponential" and self.c != -1 and self.c <= 0:
            raise ValueError(f"c is {self.c}; as the base of Exponential it must be > 0, or -1 for e")
        if self.type == "logarithm" and self.c != -1 and (self.c <= 0 or self.c == 1):
            raise ValueError(f"c is {self.c}; as the base of Logarithm it must be > 0 and not 1, or -1 for e")

    def __repr__(self) -> str:
        needed = [f"{name}={getattr(self, name)!r}" for name in ACTIVATIONS[self.type].needs]
        data = [] if self.data is None else [f"data={self.data!r}"]
        return f"Neuron({', '.join([repr(self.type), *needed, *data])})"

    @property
    def log_base(self) -> float:
        """The logarithm of the base c of "exponential" and "logarithm"; c = -1 stands for e."""
        return 1.0 if self.c == -1 else math.log(self.c)

    def parameter_gradient(
        self, g: ArrayLike, x: ArrayLike, *, out: Array | None = None, backend: BackendLike = None
    ) -> Array:
        """Compute dL/d(data) of PReLU: the sum of g*x over all images and pixels with x < 0.

        Parameters
        ----------
        g, x
            As in :meth:`gradient`.

        Returns
        -------
        ndarray, shape (C,)
            float32; float64 if ``g`` is float64.

        Raises
        ------
        ValueError
            If the type is not "prelu".
        """
        return call(self, "parameter_gradient", (g, x), out=out, backend=backend)


def neuron_codec(code: str = "neuron") -> codecs.Codec:
    """Return the codec of a field that holds a neuron or ``None``: the token of the neuron, with colons for commas.

    >>> neuron_codec().write(Neuron("elu", a=0.5))
    'neuron:elu:a0.5'
    """
    own = {"a": _a, "b": _b, "c": _c, "data": codecs.numbers("data")}
    parts = "".join(rf"(?::{codec.pattern})?" for codec in own.values())

    def read(name: str, *values: str | None) -> Neuron:
        given = {key: own[key].read(text) for key, text in zip(own, values, strict=True) if text is not None}
        return Neuron(name, **given)

    def write(neuron: Neuron) -> str:
        names = [*ACTIVATIONS[neuron.type].needs, *(["data"] if neuron.data else [])]
        return ":".join([code, neuron.type, *(own[name].write(getattr(neuron, name)) for name in names)])

    def convert(name: str, value: object) -> Neuron | None:
        if value is not None and not isinstance(value, Neuron):
            raise TypeError(
                f"{name} is {shown(value)} of type {value.__class__.__name__}; it must be None or an mpsref.Neuron"
            )
        return value

    return codecs.Codec(f"{code}:relu:a0.1", rf"{code}:({'|'.join(TYPES)}){parts}", read, write, convert)


def check_slopes(name: str, neuron: Neuron | None, channels: int, of: str = "image") -> None:
    """Raise ``ShapeError`` for PReLU without a slope for each channel."""
    if neuron is not None and neuron.data is not None and len(neuron.data) != channels:
        raise ShapeError(
            f"{name} has {len(neuron.data)} values and the {of} {channels} channels (axis 3); "
            "it must have one value for each channel"
        )


class NeuronForward(ImageProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "n h w c"}):
    """``forward``: y from x."""

    spec: Neuron

    def _check(self) -> None:
        check_slopes("data", self.spec, self.source_shape[3])

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Bring x into [-8, 8], and the argument of a power or a logarithm to where they are finite."""
        return drawn | {"x": folded(self.spec, drawn["x"])}

    def legal_nonfinite(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Leave no infinity where it is multiplied by a slope that may round to 0, or in a*x + b with a = 0."""
        constant = ACTIVATIONS[self.spec.type].affine and self.spec.a == 0
        finite = {"g", "x"} if constant else {"g"}
        return {name: np.where(np.isinf(array), 1, array) if name in finite else array for name, array in drawn.items()}


class NeuronGradient(
    NeuronForward, method="gradient", inputs={"g": "n h w c", "x": "n h w c"}, results={"dx": "n h w c"}
):
    """``gradient``: dx from g and x."""


class NeuronParameterGradient(NeuronGradient, method="parameter_gradient", results={"da": vector()}):
    """``parameter_gradient`` of PReLU: da from g and x."""

    def _check(self) -> None:
        super()._check()
        if self.spec.type != "prelu":
            raise ValueError(f"type is {self.spec.type!r}; only 'prelu' has parameters to learn: use gradient()")

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """As for the other operations, with additional values below 0, which the sum is over."""
        x = folded(self.spec, drawn["x"])
        return drawn | {"x": x if (x < 0).any() else -x}

    def result_dtypes(self, *inputs: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        """Return float32, or float64 where ``g`` is."""
        return (np.promote_types(np.float32, inputs[0]),)


def folded(neuron: Neuron, x: Array) -> Array:
    """Map numbers to [-8, 8] such that powers and logarithms are finite and their arguments not tiny.

    Large arguments become :data:`FAR` of types without parameters that could make a subnormal of their exponential.
    """
    remainder = np.fmod(x, 8)
    if neuron.type in SATURATING:
        return np.where(np.abs(x) >= FAR / 2, np.copysign(x.dtype.type(FAR), x), remainder)
    if neuron.type not in ("power", "logarithm") or neuron.a == 0:
        return remainder
    u = 0.125 + abs(remainder.astype(np.float64)) * (3.75 / 8)
    if neuron.type == "power" and neuron.c == int(neuron.c):
        u = np.where((remainder == 0) & (neuron.c >= 0), 0.0, np.copysign(u, remainder))
    return np.asarray((u - neuron.b) / neuron.a, x.dtype)


SATURATING = ("sigmoid", "hardsigmoid", "softsign", "elu", "gelu")
"""Bounded for negative numbers; no parameter is multiplied by the argument of their exponential."""

EXACT = ("none", "absolute")
"""Nothing is computed, only selected."""


def forward_bound(problem: NeuronForward, x: Array) -> ErrorBound:
    """Return the bound of the value."""
    if problem.spec.type in EXACT:
        return ErrorBound(np.zeros(x.shape))
    return ErrorBound(activation_error(problem.spec, "value", x))


@operation(Neuron, problem=NeuronForward, bound=forward_bound)
def forward(problem: NeuronForward, x: Array) -> Array:
    """y = f(x)."""
    return value(problem.spec, x)


def gradient_bound(problem: NeuronGradient, g: Array, x: Array) -> ErrorBound:
    """Return the bound of the slope, times g."""
    if problem.spec.type in EXACT:
        return ErrorBound(np.zeros(x.shape))
    return ErrorBound(abs(g) * activation_error(problem.spec, "slope", x))


@operation(Neuron, problem=NeuronGradient, bound=gradient_bound)
def gradient(problem: NeuronGradient, g: Array, x: Array) -> Array:
    """dx = g * f'(x)."""
    return g * slope(problem.spec, x)


def parameter_gradient_bound(problem: NeuronParameterGradient, g: Array, x: Array) -> ErrorBound:
    """Sum of |g * x|, and m = number of terms + 4; sums of small integers are exact."""
    magnitude, count = np.where(x < 0, abs(g * x), 0).sum((0, 1, 2)), (x < 0).sum((0, 1, 2))
    return ErrorBound.of_terms(magnitude, count + 4, magnitude <= 2.0**24)


@operation(Neuron, problem=NeuronParameterGradient, bound=parameter_gradient_bound)
def parameter_gradient(problem: NeuronParameterGradient, g: Array, x: Array) -> Array:
    """da[c] = sum of g * x where x < 0: there y = data[c] * x. A NaN in x is included."""
    return np.asarray(np.where(x >= 0, 0, g * x).sum((0, 1, 2)))
