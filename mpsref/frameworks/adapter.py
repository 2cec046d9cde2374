"""Adapters: operations of mpsref computed by functions of a framework, and their gradients by its differentiation.

An adapter derives a class from :class:`Framework` that converts arrays to tensors and differentiates a function. Its
methods then return tables of implementations, forward and gradient, from the function of the framework:

.. code-block:: python

    IMPLEMENTATIONS = {
        **mlx.layer(SoftMax, lambda problem: lambda x: mlx.core.softmax(x, -1)),
        **mlx.convolution(pytorch, lambda x, w, bias, **words: mlx.core.conv2d(x, w, **words) + bias),
    }

``backends/mpsref_mlx`` and ``backends/mpsref_tinygrad`` are two complete adapters.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from importlib import metadata
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.backend import Backend, Implementation
from mpsref.errors import UnsupportedError, install
from mpsref.frameworks import call_text
from mpsref.frameworks.exchange import logits, per_image, weights_from, weights_to
from mpsref.frameworks.explicit_padding import (
    canonical,
    counted,
    divided,
    unpadded,
    with_explicit_padding,
    without_padding,
)
from mpsref.frameworks.words import CallArguments
from mpsref.kernels import (
    Arithmetic,
    BatchNormalization,
    Compare,
    Concatenation,
    Convolution,
    ConvolutionTranspose,
    Dropout,
    FullyConnected,
    GroupNormalization,
    LogSoftMax,
    Loss,
    Neuron,
    Pad,
    PoolingAverage,
    Reduce,
    Reshape,
    Slice,
    SoftMax,
)
from mpsref.kernels.batch_normalization import merged
from mpsref.operations import Operation, OperationKey, Problem, Spec, cached_in_problem

Tensor: TypeAlias = Any
"""A tensor of a framework, which need not be installed."""

Function: TypeAlias = Callable[..., Tensor]
"""A differentiable function of tensors."""

Make: TypeAlias = Callable[[Any], Function]
"""Returns the function that computes a problem; raises ``UnsupportedError`` where the framework has none."""

Convert: TypeAlias = Callable[[Problem], CallArguments]
"""Returns the framework's arguments for a problem, such as :func:`mpsref.frameworks.pytorch`."""

Table: TypeAlias = dict[OperationKey, Implementation]

Kinds: TypeAlias = type[Spec] | tuple[type[Spec], ...]
"""A kernel, or several with the same functions."""

MANY_IMAGES = 1024
"""Up to so many, gradients of parameters of each image are one call for each, which takes TensorFlow 7 ms."""

Program = TypeVar("Program")
"""A compiled function."""

RULES = (
    "slope at a kink",
    "slope from the result",
    "folded scale and shift",
    "rounded means",
    "plain sums",
    "plain means",
    "means of all taps",
    "softsign by a quotient",
    "NaN by another formula",
    "NaN is the extremum",
)
"""The documented differences of every framework so far: :data:`mpsref.conformance.rules.RULES`."""


class AdaptedCall(NamedTuple):
    """The arguments of a framework's function, and what becomes of images before and after it."""

    keywords: dict[str, Any]
    copy: Callable[[Array], Array]
    """Of the source image: what the framework gets."""
    adjoint: Callable[[Array], Array]
    """Of the gradient for that: the gradient for the source image."""
    crop: Callable[[Array], Array]
    extend: Callable[[Array], Array]
    """Of the source gradient: what the framework gets."""
    is_padded: bool
    """Whether the framework computes without padding on another image."""

    def whole(self, g: Array) -> Array:
        """Return the source gradient that the framework gets, in the dtype of ``g``."""
        return self.extend(g).astype(g.dtype, copy=False)


def adapted(problem: Problem, convert: Convert) -> AdaptedCall:
    """Return how a framework computes a problem with windows: with its own arguments, else on a padded image.

    A transposed convolution is else computed whole, without padding; its source image stays as it is.

    Parameters
    ----------
    problem : Problem
        A problem of pooling or convolution; gradients of pooling as :func:`canonical` returns them.
    convert : callable
        Returns the framework's arguments, or raises ``UnsupportedError``.

    Returns
    -------
    AdaptedCall
        Arguments and conversions of images.

    Raises
    ------
    UnsupportedError
        If the framework has no arguments for the problem without padding either.
    """
    try:
        words = convert(problem)
        return AdaptedCall(words.keywords, _same, _same, words.crop, words.extend, False)
    except UnsupportedError:
        if isinstance(problem.spec, ConvolutionTranspose):
            return _whole(problem, convert)
        image, words = with_explicit_padding(problem), convert(without_padding(problem))
        return AdaptedCall(words.keywords, image.copy, image.adjoint, words.crop, words.extend, True)


def _whole(problem: Any, convert: Convert) -> AdaptedCall:
    """Return how a framework computes the whole result of a transposed convolution, of which a part is cut out."""
    spec, part = problem.spec, unpadded(problem)
    first = tuple(k // 2 - k + 1 for k in spec.size)
    size = "output_size" if problem.method == "forward" else "gradient_size"
    changes = {"spec": replace(spec, offset=(0, 0), kernel_offset=first), size: part.lengths}
    return AdaptedCall(convert(replace(problem, **changes)).keywords, _same, _same, part.copy, part.adjoint, True)


adapted_transposed = adapted
"""The same, for a transposed convolution."""


def like(array: Array, shape: Sequence[int]) -> Array:
    """Return zeros of a shape in the order in memory of an image: a source of which only the shape counts."""
    return np.zeros_like(array, shape=tuple(shape))


def _same(image: Array) -> Array:
    return image


def writes_behind_a_column(problem: Any) -> str | None:
    """Return why oneDNN may not compute a convolution: it writes behind its memory (findings "..._conv2d_column").

    Seen from 10,000 elements of an image on; with fewer, less is written, and nothing was seen.
    """
    spec = problem.spec
    if isinstance(spec, ConvolutionTranspose):
        image, columns = problem.input_shapes.get("g", ()), problem.source_shape[2]
    elif isinstance(spec, Convolution):
        image, columns = problem.source_shape, problem.result_size[1]
    else:
        return None
    if columns == 1 and spec.strides[0] > spec.size[0] and math.prod(image[1:]) > 2**12:
        return "conv2d of a large image to one column with a stride above the kernel's height may end the process"
    return None


class Framework(ABC):
    """A framework with automatic differentiation, as an adapter sees it.

    Subclasses set the class attributes and define :meth:`tensor`, :meth:`array` and :meth:`differentiate`. Each other
    method returns implementations of one family of operations, from functions of tensors.
    """

    title: ClassVar[str]
    """The name of the framework in messages."""
    package: ClassVar[str]
    """The package, and the extra of mpsref that installs it."""
    axes: ClassVar[str] = "NHWC"
    """The order of the axes of an image: NHWC or NCHW."""
    optional_bias: ClassVar[bool] = False
    """Whether the functions of layers without biases are called without; otherwise they get zeros."""
    refusals: ClassVar[tuple[str, ...]] = ()
    """Parts of the messages with which the framework refuses arguments; other errors are failures."""
    syntax: ClassVar[call_text.Syntax | None] = None
    """How calls are written, for failures of a check; ``None``: they are not."""

    @abstractmethod
    def tensor(self, array: Array) -> Tensor:
        """Return an array as a tensor: an image in the order :attr:`axes`, other arrays as they are."""

    @abstractmethod
    def array(self, tensor: Tensor) -> Array:
        """Return a tensor as an array: an image in the order NHWC."""

    @abstractmethod
    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        """Return the gradients of ``function(*tensors)`` for the first ``count`` tensors, from that for its result."""

    def unavailable(self) -> str | None:
        """Return ``None``, or the reason why the framework does not run here, and what to install."""
        if importlib.util.find_spec(self.package) is None:
            return f"{self.title} is not installed: {install(self.package)}"
        return None

    def described(self) -> str:
        """Return device and version."""
        return f"CPU, {self.title} {metadata.version(self.package)}"

    def backend(self, name: str, table: Table, **options: Any) -> Backend:
        """Return the backend of a table, used where it is named; in float16 frameworks round intermediate results.

        A check runs the cases of an installed one in a process of their own, which a framework may end.
        """
        about: dict[str, Any] = {"named_only": True, "dtypes": ("float32",), "isolated": True, **options}
        return Backend(name, table, unavailable=self.unavailable, device=self.described, **about)

    def run(self, function: Function, *arrays: Array) -> Array:
        """Return ``function(*tensors)`` as an array."""
        self.note(function, arrays)
        with self._refusing():
            return self.array(self.compiled(function, arrays)(*map(self.tensor, arrays)))

    def gradients(self, function: Function, arrays: Sequence[Array], g: Array, count: int = 1) -> tuple[Array, ...]:
        """Return the gradients of ``function(*tensors)`` for the first ``count`` arrays, from the source gradient."""
        self.note(function, (*arrays, g), count)
        with self._refusing():
            compiled = self.compiled(function, (*arrays, g), count)
            found = self.differentiate(compiled, list(map(self.tensor, arrays)), self.tensor(g), count)
            gradients = tuple(map(self.array, found))
        for array, gradient in zip(arrays, gradients, strict=False):
            if gradient.shape != array.shape:  # assigned to a result it might broadcast
                raise ValueError(f"{self.title} returns a gradient of shape {gradient.shape} for {array.shape}")
        return gradients

    def compiled(self, function: Function, arrays: Sequence[Array], count: int = 0) -> Function:
        """Return what is called, or differentiated for ``count`` arrays: the function, or a compiled one."""
        return function

    def note(self, function: Function, arrays: Sequence[Array], count: int = 0) -> None:
        """Note a call as text, with ``count`` gradients from that in the last array, while calls are noted."""
        call_text.note(self.syntax, function, lambda: [self.written(one) for one in arrays], count)

    def written(self, array: Array) -> str:
        """Return the text of the tensor of an array."""
        assert self.syntax is not None
        image = array.transpose(0, 3, 1, 2) if array.ndim == 4 and self.axes == "NCHW" else array
        return call_text.values(self.syntax, image)

    def gradient(self, function: Function, g: Array, *arrays: Array) -> Array:
        """Return the gradient for the first array."""
        return self.gradients(function, arrays, g)[0]

    def on_device(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which new tensors are on the device of the framework, if there are several."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Run on the device; raise ``UnsupportedError`` where the framework refuses arguments."""
        try:
            with self.on_device():
                yield
        except Exception as error:
            if isinstance(error, UnsupportedError) or not any(part in str(error) for part in self.refusals):
                raise
            raise UnsupportedError(f"{self.title}: {str(error).splitlines()[0]}") from error

    def index(self, y: Any, x: Any, c: Any) -> tuple[Any, ...]:
        """Return the index of rows, columns and channels of all images."""
        return (slice(None), y, x, c) if self.axes == "NHWC" else (slice(None), c, y, x)

    def pairs(self, y: Any, x: Any, c: Any) -> Any:
        """Return the numbers of elements before and after each axis of an image, for functions that pad."""
        return ((0, 0), y, x, c) if self.axes == "NHWC" else ((0, 0), c, y, x)

    def adapted(self, problem: Problem, convert: Convert) -> AdaptedCall:
        """Return how the framework computes a problem with windows."""
        return adapted(problem, convert)

    def vectors(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of the parameters of a normalization of images of ``dtype``."""
        return dtype

    # --- one image to one image ---------------------------------------------------------------------------------------

    def layer(self, kinds: Kinds, make: Make) -> Table:
        """Return the operations of kernels from one image to one; a gradient that takes no image gets zeros as one."""

        def forward(problem: Any, x: Array, out: Array) -> None:
            out[...] = self.run(make(problem), x)

        def gradient(problem: Any, g: Array, *x: Array, out: Array) -> None:
            source = x[0] if x else like(g, problem.source_shape)
            out[...] = self.gradient(make(problem), g, source)

        return _table(kinds, forward=forward, gradient=gradient)

    def calls(self, kind: type[Spec], **methods: Make) -> Table:
        """Return operations that are one call each: ``make(problem)`` is a function of all inputs of the method."""

        def of(make: Make) -> Implementation:
            def run(problem: Any, *inputs: Array, out: Array) -> None:
                out[...] = self.run(make(problem), *inputs)

            return run

        return _table(kind, **{method: of(make) for method, make in methods.items()})

    def softmax(self, softmax: Function, log_softmax: Function) -> Table:
        """Return softmax and its logarithm; the gradients are differentiated at the logarithm of the result."""

        def of(function: Function, *, logarithmic: bool) -> Table:
            def gradient(problem: Any, g: Array, y: Array, out: Array) -> None:
                out[...] = self.gradient(function, g, logits(y, logarithmic))

            kind = LogSoftMax if logarithmic else SoftMax
            return {**self.layer(kind, lambda problem: function), **_table(kind, gradient=gradient)}

        return {**of(softmax, logarithmic=False), **of(log_softmax, logarithmic=True)}

    def of_type(self, table: Mapping[str, Callable[..., Function]], *first: Any) -> Callable[[Any], Function]:
        """Return what makes the function of a neuron or a loss: the entry of its type, called with ``first`` and it."""

        def make(spec: Any) -> Function:
            if spec.type not in table:
                what = type(spec).__name__.lower()
                raise UnsupportedError(f"{self.title} has no {what} {spec.type!r} with the parameters of MPS")
            return table[spec.type](*first, spec)

        return make

    def neurons(self, make: Callable[[Neuron], Function]) -> Table:
        """Return the neurons; ``make(neuron)`` is a function of x, and for PReLU of x and the slopes."""

        def slopes(problem: Any, x: Array) -> list[Array]:
            data = problem.spec.data
            return [] if data is None else [np.array(data, x.dtype)]

        def forward(problem: Any, x: Array, out: Array) -> None:
            out[...] = self.run(make(problem.spec), x, *slopes(problem, x))

        def gradient(problem: Any, g: Array, x: Array, out: Array) -> None:
            out[...] = self.gradient(make(problem.spec), g, x, *slopes(problem, x))

        def parameter_gradient(problem: Any, g: Array, x: Array, out: Array) -> None:
            out[...] = self.gradients(make(problem.spec), [x, *slopes(problem, x)], g, count=2)[1]

        return _table(Neuron, forward=forward, gradient=gradient, parameter_gradient=parameter_gradient)

    # --- windows ------------------------------------------------------------------------------------------------------

    def pooling(self, kind: type[Spec], convert: Convert, function: Function, sums: Function | None = None) -> Table:
        """Return pooling by ``function(x, **keywords)``.

        Where the framework has no arguments for a problem of average pooling, it computes ``sums``, or without it means
        of all taps, as many times as large as there are taps, on the padded image; these are divided by N.
        """
        average = kind is PoolingAverage
        found = cached_in_problem(lambda problem: self.adapted(problem, convert))

        def taps(problem: Any) -> np.float32:
            """Return the number by which a mean on the padded image is divided."""
            means = average and sums is None and found(problem).is_padded
            return np.float32(math.prod(window.kernel for window in problem.spec.windows) if means else 1)

        def layer(here: AdaptedCall) -> Function:
            keywords, pool = here.keywords, sums if average and here.is_padded and sums else function
            return lambda x: pool(x, **keywords)

        def forward(problem: Any, x: Array, out: Array) -> None:
            here, n = found(problem), taps(problem)
            image = here.copy(x)
            y = here.crop(self.run(layer(here), image * n if n > 1 else image))
            out[...] = divided(problem, y) if average and here.is_padded else y

        def gradient(problem: Any, g: Array, *x: Array, out: Array) -> None:
            simple = canonical(problem)
            if simple is None:
                out[...] = 0
                return
            here, n = found(simple), taps(simple)
            g = counted(problem, g)
            g = here.extend(divided(simple, g) * n if average and here.is_padded else g)
            source = here.copy(x[0] if x else like(g, problem.source_shape))
            dx = self.gradient(layer(here), g, source)
            out[...] = problem.place(here.adjoint(dx))

        return _table(kind, forward=forward, gradient=gradient)

    def convolution(
        self, convert: Convert, function: Function, neuron: Callable[[Neuron], Function], layout: str = "OHWI"
    ) -> Table:
        """Return convolution by ``function(x, weights, bias, **keywords)``, with weights in a layout."""

        def to(problem: Any, weights: Array) -> Array:
            return self._weights(weights_to(weights, layout, problem.spec.groups))

        def back(problem: Any, dw: Array) -> Array:
            return weights_from(self._weights(dw, back=True), layout, problem.spec.groups)

        return self._weighted(Convolution, lambda problem: self.adapted(problem, convert), function, neuron, to, back)

    def transposed_convolution(
        self,
        convert: Convert,
        function: Function,
        neuron: Callable[[Neuron], Function],
        layout: str | None = None,
        *,
        biased: bool = False,
    ) -> Table:
        """Return transposed convolution by ``function(x, weights, **keywords)``.

        The weights are those of mpsref, rotated by 180 degrees, or with a ``layout`` those of the convolution whose
        gradient this is. Where the framework has no arguments for a problem, it computes the whole result without
        padding. If ``biased``, the function takes the bias as third argument; it gets none with the whole result.
        """

        def to(problem: Any, weights: Array) -> Array:
            if layout is None:
                return weights[:, ::-1, ::-1]
            return self._weights(weights_to(weights, layout, problem.spec.groups, transposed=True))

        def back(problem: Any, dw: Array) -> Array:
            if layout is None:
                return dw[:, ::-1, ::-1]
            return weights_from(self._weights(dw, back=True), layout, problem.spec.groups, transposed=True)

        of_bias = lambda here: biased and not here.is_padded  # noqa: E731
        return self._weighted(
            ConvolutionTranspose, lambda problem: self.adapted(problem, convert), function, neuron, to, back, of_bias
        )

    def fully_connected(self, function: Function, neuron: Callable[[Neuron], Function]) -> Table:
        """Return fully connected layers by ``function(x, weights, bias)`` of matrices (N, in) and (out, in).

        Its result is a matrix (N, out) or an image of one pixel.
        """

        def flat(array: Array) -> Array:
            return array.reshape(len(array), -1)

        def found(problem: Any) -> AdaptedCall:
            source, result = problem.source_shape, (problem.source_shape[0], 1, 1, problem.output_channels)
            return AdaptedCall({}, flat, lambda dx: dx.reshape(source), lambda y: y.reshape(result), flat, False)

        def back(problem: Any, dw: Array) -> Array:
            return dw.reshape(problem.weights_shape)

        return self._weighted(FullyConnected, found, function, neuron, lambda problem, w: flat(w), back)

    def _weighted(
        self,
        kind: type[Spec],
        find: Callable[[Any], AdaptedCall],
        function: Function,
        neuron: Callable[[Neuron], Function],
        to: Callable[[Any, Array], Array],
        back: Callable[[Any, Array], Array],
        biased: Callable[[AdaptedCall], bool] = lambda here: True,
    ) -> Table:
        """Return a layer by ``function(x, weights, bias, **keywords)``, with weights as ``to`` returns them.

        Where it is not ``biased``, the function takes no bias, which is added to its result.
        """
        found = cached_in_problem(find)

        def forward(problem: Any, x: Array, weights: Array, *biases: Array, out: Array) -> None:
            here, after = found(problem), self._activation(neuron, problem)
            keywords, inputs = here.keywords, (here.copy(x), to(problem, weights))
            if biased(here):
                layer = lambda x, w, *b: after(function(x, w, *b, **keywords))  # noqa: E731
                out[...] = here.crop(self.run(layer, *inputs, *self._biases(problem, x, biases)))
                return
            y = self.run(lambda x, w: function(x, w, **keywords), *inputs)
            out[...] = here.crop(y) + _bias(problem, x, biases)
            if problem.spec.neuron is not None:
                out[...] = self.run(after, out)

        def gradient_data(problem: Any, g: Array, weights: Array, out: Array) -> None:
            here, x = found(problem), like(g, problem.source_shape)
            keywords, bias = here.keywords, self._biases(problem, g) if biased(here) else ()
            layer = lambda x, w, *b: function(x, w, *b, **keywords)  # noqa: E731
            out[...] = here.adjoint(self.gradient(layer, here.whole(g), here.copy(x), to(problem, weights), *bias))

        def gradient_weights(problem: Any, g: Array, x: Array, out: tuple[Array, Array]) -> None:
            here, weights = found(problem), to(problem, like(x, problem.weights_shape))
            keywords, whole, image, bias = here.keywords, here.whole(g), here.copy(x), _bias(problem, x)
            if biased(here):
                layer = lambda w, b, x: function(x, w, b, **keywords)  # noqa: E731
                dw, out[1][...] = self.gradients(layer, [weights, bias, image], whole, count=2)
            else:
                dw = self.gradient(lambda w, x: function(x, w, **keywords), whole, weights, image)
                shape = *g.shape[:3], problem.output_channels
                add = lambda b, y: y + self.on_channels(b)  # noqa: E731
                out[1][...] = self.gradient(add, g, bias, like(g, shape))
            out[0][...] = back(problem, dw)

        return _table(kind, forward=forward, gradient_data=gradient_data, gradient_weights=gradient_weights)

    def _biases(self, problem: Any, image: Array, biases: Sequence[Array] = ()) -> Sequence[Array]:
        """Return the biases that the function of a layer is called with."""
        return () if self.optional_bias and not biases else (_bias(problem, image, biases),)

    def _weights(self, weights: Array, *, back: bool = False) -> Array:
        """Return weights in an order that :meth:`tensor` changes to theirs, or ``back``."""
        if self.axes == "NHWC":
            return weights
        return weights.transpose(0, 3, 1, 2) if back else weights.transpose(0, 2, 3, 1)

    def _activation(self, neuron: Callable[[Neuron], Function], problem: Any) -> Function:
        """Return the function of a layer's neuron."""
        if problem.spec.neuron is None:
            return _same
        if problem.spec.neuron.type == "prelu":
            raise UnsupportedError(f"no layer of {self.title} has PReLU; compute the neuron by itself")
        return neuron(problem.spec.neuron)

    def on_channels(self, vector: Tensor) -> Tensor:
        """Return a vector of the channels so that it broadcasts over an image."""
        return vector if self.axes == "NHWC" else vector.reshape(-1, 1, 1)

    # --- normalization ------------------------------------------------------------------------------------------------

    def group_normalization(self, kind: type[Spec], make: Make, *, broadcasts: bool = False) -> Table:
        """Return instance or group normalization by a function of x, gamma and beta.

        ``broadcasts`` if it takes gamma and beta of each image as well, (N, 1, 1, C).
        """

        def forward(problem: Any, x: Array, *vectors: Array, out: Array) -> None:
            dtype = self.vectors(x.dtype)
            gamma, beta = (one.astype(dtype, copy=False) for one in problem.parameters(vectors, dtype))
            out[...] = self.run(make(problem), x, gamma, beta)

        def gradient(problem: Any, g: Array, x: Array, *vectors: Array, out: tuple[Array, Array, Array]) -> None:
            dtype = self.vectors(x.dtype)
            gamma = problem.parameters(vectors, dtype).astype(dtype, copy=False)
            layer = make(problem)
            if broadcasts:
                gamma = np.tile(gamma, (len(x), 1, 1, 1))
                found = self.gradients(layer, [x, gamma, np.zeros_like(gamma)], g, count=3)
                for target, gradient in zip(out, found, strict=True):
                    target[...] = gradient.reshape(target.shape)
                return
            beta = np.zeros_like(gamma)
            out[0][...], *summed = self.gradients(layer, [x, gamma, beta], g, count=3)
            # Frameworks sum the gradients of gamma and beta over the batch.
            parameters = lambda g, x: self.gradients(layer, [x, gamma, beta], g, count=3)[1:]  # noqa: E731
            if len(x) == 1:
                rows: Sequence[Array] = [one[None] for one in summed]
            elif len(x) <= MANY_IMAGES:
                rows = per_image(parameters, g, x)
            else:
                rows = as_channels(problem, g, x, gamma)
            out[1][...], out[2][...] = rows

        def as_channels(problem: Any, g: Array, x: Array, gamma: Array) -> list[Array]:
            n, h, w, c = x.shape
            g, x = (one.transpose(1, 2, 0, 3).reshape(1, h, w, n * c) for one in (g, x))
            groups = {"groups": n * problem.groups} if kind is GroupNormalization else {}
            layer = make(replace(problem, spec=replace(problem.spec, **groups), source_shape=x.shape))
            found = self.gradients(layer, [x, np.tile(gamma, n), np.zeros(n * c, gamma.dtype)], g, count=3)
            return [one.reshape(n, c) for one in found[1:]]

        return _table(kind, forward=forward, gradient=gradient)

    def batch_normalization(
        self, moments: Callable[[Tensor], tuple[Tensor, Tensor]], make: Make, neuron: Callable[[Neuron], Function]
    ) -> Table:
        """Return batch normalization: ``moments(x)`` are mean and variance; ``make`` returns the layer in evaluation.

        The layer is a function of x, gamma, beta, mean and variance. In training it computes the sums of its gradient
        itself, so the gradient with given sums is unsupported;
        :func:`mpsref.frameworks.training_batch_normalization` is the operation to compare it with.
        """

        def inputs(given: Any) -> list[Array]:
            gamma = np.ones_like(given.mean) if given.gamma is None else given.gamma
            beta = np.zeros_like(given.mean) if given.beta is None else given.beta
            return [given.x, gamma, beta, given.mean, given.variance]

        def layer_of(problem: Any) -> Function:
            layer, after = make(problem), self._activation(neuron, problem)
            return lambda *tensors: after(layer(*tensors))

        def statistics(problem: Any, *arrays: Array, out: tuple[Array, Array]) -> None:
            given = problem.named(arrays)
            mean = self.run(lambda x: moments(x)[0], given.x)
            m2 = self.run(lambda x: moments(x)[1], given.x).astype(out[1].dtype, copy=False) * problem.pixels
            if problem.count:
                seen = [one.astype(np.float64) for one in (given.mean, given.m2, mean, m2)]
                mean, m2 = merged(problem.count, seen[0], seen[1], problem.pixels, seen[2], seen[3])
            out[0][...], out[1][...] = mean, m2

        def forward(problem: Any, *arrays: Array, out: Array) -> None:
            out[...] = self.run(layer_of(problem), *inputs(problem.named(arrays)))

        def statistics_gradient(problem: Any, *arrays: Array, out: tuple[Array, Array]) -> None:
            given, layer = problem.named(arrays), layer_of(problem)
            x, gamma, beta, *rest = inputs(given)
            function = lambda gamma, beta, x, *rest: layer(x, gamma, beta, *rest)  # noqa: E731
            dgamma, dbeta = self.gradients(function, [gamma, beta, x, *rest], given.g, count=2)
            out[0][...] = dbeta + (given.dbeta if problem.count else 0)
            out[1][...] = dgamma + (given.dgamma if problem.count else 0)

        def gradient(problem: Any, *arrays: Array, out: Array) -> None:
            given = problem.named(arrays)
            if problem.count:
                raise UnsupportedError(
                    f"in training {self.title} computes mean, variance and both sums itself; it takes none"
                )
            out[...] = self.gradient(layer_of(problem), given.g, *inputs(given))

        return _table(
            BatchNormalization,
            statistics=statistics,
            forward=forward,
            statistics_gradient=statistics_gradient,
            gradient=gradient,
        )

    # --- movement -----------------------------------------------------------------------------------------------------

    def padding(self, modes: Mapping[str, str], pad: Callable[[Tensor, Any, str, float], Tensor]) -> Table:
        """Return padding by ``pad(image, pairs, mode, fill)``; ``modes`` has the framework's name of each edge mode."""

        def make(problem: Any) -> Function:
            spec = problem.spec
            if spec.edge_mode not in modes or spec.fill_values is not None:
                what = "fill_values" if spec.fill_values is not None else f"edge_mode {spec.edge_mode!r}"
                raise UnsupportedError(f"pad of {self.title} has no {what}")
            around = list(zip(spec.before, spec.after, strict=True))
            if spec.edge_mode == "mirror" and any(map(operator.ge, map(max, around), problem.source_shape[1:])):
                raise UnsupportedError(f"pad of {self.title} reflects once")
            fill = spec.fill_value if spec.edge_mode == "constant" else 0.0
            return lambda x: pad(x, self.pairs(*around), modes[spec.edge_mode], fill)

        return self.layer(Pad, make)

    def reductions(self, reduce: Callable[[Tensor, str, Any], Tensor]) -> Table:
        """Return reductions by ``reduce(image, operation, axes)``, which keeps the axes; one axis is an ``int``."""

        def make(problem: Any) -> Function:
            spec = problem.spec
            (y, x), (height, width) = problem.region
            part = self.index(slice(y, y + height), slice(x, x + width), slice(None))
            axes = [self.axes.index(axis) for axis in REDUCED[spec.over]]
            weight = 1 if spec.operation.startswith("argument") else spec.weight
            over = tuple(axes) if axes[1:] else axes[0]
            return lambda image: scaled(reduce(image[part], spec.operation, over), weight)

        return self.layer(Reduce, make)

    def slices(self, pad: Function) -> Table:
        """Return slices by ``pad(image, pairs)``, which adds zeros around the part inside the image."""

        def make(problem: Any) -> Function:
            index, pads = [], []
            lengths = problem.source_shape[1:]
            for offset, size, n in zip(problem.spec.offset, problem.part_shape[1:], lengths, strict=True):
                begin, end = min(max(offset, 0), n), min(max(offset + size, 0), n)
                before = min(max(-offset, 0), size)
                index.append(slice(begin, max(begin, end)))
                pads.append((before, size - before - max(end - begin, 0)))
            return lambda x: pad(x[self.index(*index)], self.pairs(*pads))

        return self.layer(Slice, make)

    def reshape(self, reshape: Function, transpose: Function) -> Table:
        """Return reshaping by ``reshape(image, shape)`` and ``transpose(image, axes)``."""
        to_nchw, to_nhwc = (0, 3, 1, 2), (0, 2, 3, 1)

        def make(problem: Any) -> Function:
            n, h, w, c = problem.shape
            order = "N" + problem.spec.element_order
            shape = (n, h, w, c) if order == "NHWC" else (n, c, h, w)
            if order == self.axes:
                return lambda x: reshape(x, shape)
            there, back = (to_nchw, to_nhwc) if order == "NCHW" else (to_nhwc, to_nchw)
            return lambda x: transpose(reshape(transpose(x, there), shape), back)

        return self.layer(Reshape, make)

    def concatenation(self, concatenate: Function, pad: Function) -> Table:
        """Return concatenation by ``concatenate(images, axis)``, of images padded by ``pad(image, pairs)``."""

        def make(problem: Any) -> Function:
            rests = [problem.spec.aligned(c) - c for c in problem.channels]
            none = (0, 0)

            def function(*images: Tensor) -> Tensor:
                pairs = zip(images, rests, strict=True)
                whole = [pad(x, self.pairs(none, none, (0, rest))) if rest else x for x, rest in pairs]
                return concatenate(whole, self.axes.index("C"))

            return function

        def forward(problem: Any, *xs: Array, out: Array) -> None:
            out[...] = self.run(make(problem), *xs)

        def gradient(problem: Any, g: Array, out: Any) -> None:
            sources = [like(g, shape) for shape in problem.source_shapes]
            found = self.gradients(make(problem), sources, g, count=len(sources))
            for target, dx in zip(_several(out), found, strict=True):
                target[...] = dx

        return _table(Concatenation, forward=forward, gradient=gradient)

    # --- elements -----------------------------------------------------------------------------------------------------

    def _parts(self, spec: Any, images: Sequence[Tensor]) -> list[Tensor]:
        """Return the elements of the operands that are read, in the length 1 where one is repeated."""
        parts = []
        for operand, image in zip(spec.operands, images, strict=True):
            slices = [slice(o, None if t else o + 1) for t, o in zip(operand.strides, operand.offset, strict=True)]
            parts.append(image[self.index(*slices)])
        return parts

    def arithmetic(self, clip: Function) -> Table:
        """Return arithmetic by the operators of tensors; ``clip(image, low, high)`` bounds the result."""
        combine = {
            "add": operator.add,
            "subtract": operator.sub,
            "multiply": operator.mul,
            "divide": operator.truediv,
        }

        def make(problem: Any) -> Function:
            spec = problem.spec
            low, high = spec.minimum_value, spec.maximum_value
            bounded = math.isfinite(low) or math.isfinite(high)

            def function(*images: Tensor) -> Tensor:
                x, y = self._parts(spec, images)
                x, y = scaled(x, spec.primary_scale), scaled(y, spec.secondary_scale)
                r = scaled(combine[spec.operation](x, y), shift=spec.bias)
                return clip(r, low, high) if bounded else r

            return function

        def forward(problem: Any, x: Array, y: Array, out: Array) -> None:
            out[...] = self.run(make(problem), x, y)

        def gradient(problem: Any, g: Array, *operands: Array, out: Any) -> None:
            given = dict(zip(problem.reads, operands, strict=True))
            shapes = problem.source_shape, problem.secondary_shape
            found = self.gradients(make(problem), [given.get(k, like(g, shapes[k])) for k in (0, 1)], g, count=2)
            for target, k in zip(_several(out), problem.of, strict=True):
                target[...] = found[k]

        return _table(Arithmetic, forward=forward, gradient=gradient)

    def compare(self, absolute: Function, converted: Function) -> Table:
        """Return comparisons; ``converted(mask)`` is a mask in float32."""
        operators = {
            "less": operator.lt,
            "lessorequal": operator.le,
            "greater": operator.gt,
            "greaterorequal": operator.ge,
        }

        def forward(problem: Any, x: Array, y: Array, out: Array) -> None:
            spec = problem.spec

            def function(*images: Tensor) -> Tensor:
                x, y = self._parts(spec, images)
                if spec.comparison_type in operators:
                    return converted(operators[spec.comparison_type](x, y))
                equal = converted(absolute(x - y) <= spec.threshold)
                return equal if spec.comparison_type == "equal" else 1 - equal

            out[...] = self.run(function, x, y)

        return _table(Compare, forward=forward)

    def dropout(self, backward: Make | None = None) -> Table:
        """Return why no framework has dropout with a given mask; ``backward(problem)`` is a function of g and one."""

        def gradient(problem: Any, g: Array, mask: Array, out: Array) -> None:
            assert backward is not None
            out[...] = self.run(backward(problem), g, np.broadcast_to(mask, g.shape).astype(bool))

        def drawn_inside(problem: Any, *inputs: Array, out: Array) -> None:
            raise UnsupportedError(f"dropout of {self.title} draws its mask itself, from a generator of its own")

        return _table(Dropout, mask=drawn_inside, forward=drawn_inside, gradient=gradient if backward else drawn_inside)

    def optimizer(self, kind: type[Spec], step: Callable[..., Sequence[Tensor]]) -> Table:
        """Return an optimizer by ``step(problem, gradient, value, *moments)``: the new value and the new moments."""

        def run(problem: Any, *inputs: Array, out: Any) -> None:
            with self._refusing():
                results = step(problem, *map(self.tensor, inputs))
            for target, result in zip(_several(out), results, strict=True):
                target[...] = self.array(result)

        return _table(kind, step=run)

    def losses(
        self,
        make: Callable[[Loss], Function],
        *,
        of_probabilities: bool = False,
        at_logits: Function | None = None,
        total: Function | None = None,
    ) -> Table:
        """Return losses by functions of predictions and labels, a value for each element.

        That of "softmaxcrossentropy" has a value for each pixel, an image of one channel; ``of_probabilities`` if it is
        computed as ``logsumexp(y) - sum(t y)``, for labels whose sum is 1. If it has a value for each element,
        ``at_logits`` is that formula, which MPS differentiates for the predictions. ``total`` sums each image to
        (N, 1, 1, 1); without it the images are summed in float64 afterwards.
        """

        def of_pixels(problem: Any) -> bool:
            """Return whether the function has one value for each pixel."""
            return problem.spec.type == "softmaxcrossentropy" and (at_logits is None or problem.method == "gradient")

        def check_labels(problem: Any, t: Array) -> None:
            """Raise ``UnsupportedError`` for labels of the softmax of which the framework computes something else."""
            if problem.spec.type != "softmaxcrossentropy" or at_logits is not None:
                return
            if of_probabilities and problem.method == "gradient_labels":
                raise UnsupportedError(f"the cross entropy of {self.title} is right where the labels sum to 1 alone")
            if problem.method == "gradient" or of_probabilities:
                scale, shift = problem.spec.smoothing
                sums = (scale * t[..., : problem.source_shape[3]].astype(float) + shift).sum(axis=3)
                if not np.allclose(sums, 1, atol=1e-6):
                    raise UnsupportedError(
                        f"the labels do not sum to 1; then MPS and the cross entropy of {self.title} differ"
                    )

        def function_of(problem: Any) -> Function:
            spec, channels = problem.spec, problem.source_shape[3]
            if of_pixels(problem) and (problem.weighted or spec.reduction == "none"):
                raise UnsupportedError(f"the cross entropy of {self.title} has one value and weight for each pixel")
            element, (scale, shift) = (at_logits if at_logits and of_pixels(problem) else make(spec)), spec.smoothing
            index = self.index(slice(None), slice(None), slice(channels))

            def function(y: Tensor, t: Tensor, *weights: Tensor) -> Tensor:
                labels = t[index] if spec.label_smoothing == 0 else scale * t[index] + shift
                v = scaled(element(y, labels), spec.weight)
                for factors in weights:
                    v = v * factors[index]
                return v

            if total is None or spec.reduction == "none":
                return function
            return lambda *tensors: total(function(*tensors))

        def forward(problem: Any, y: Array, t: Array, *weights: Array, out: Array) -> None:
            check_labels(problem, t)
            v = self.run(function_of(problem), y, t, *weights)
            sums = v.sum(axis=(1, 2, 3), dtype=np.float64)
            out[...] = v if problem.spec.reduction == "none" else problem.loss_image(sums, *(weights or [None]))

        def gradients(problem: Any, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
            g, y, t, weights = problem.named_inputs(inputs)
            check_labels(problem, t)
            function, shape = function_of(problem), (*y.shape[:3], 1) if of_pixels(problem) else y.shape
            if total is not None and problem.spec.reduction != "none":
                shape = problem.loss_shape
            whole = np.broadcast_to(1 if g is None else problem.source_gradient(g), shape).astype(y.dtype)
            given = [one for one in (y, t, weights) if one is not None]
            return self.gradients(function, given, np.ascontiguousarray(whole), count=2)

        def gradient(problem: Any, *inputs: Array, out: Array) -> None:
            out[...] = gradients(problem, inputs)[0]

        def gradient_labels(problem: Any, *inputs: Array, out: Array) -> None:
            out[...] = gradients(problem, inputs)[1]

        return _table(Loss, forward=forward, gradient=gradient, gradient_labels=gradient_labels)


def refused(reason: str, *operations: OperationKey) -> Table:
    """Return operations that a framework has for no problem, and the reason."""

    def refuse(problem: Any, *inputs: Array, out: Any) -> None:
        raise UnsupportedError(reason)

    return dict.fromkeys(operations, refuse)


class CompilingFramework(Framework):
    """A framework that compiles functions: each function of a problem once.

    Subclasses compile in :meth:`run` and :meth:`differentiate`, with :meth:`kept`.
    """

    _programs: ClassVar[ContextVar[dict[Any, Any]]] = ContextVar("_programs")

    def keeping(self, table: Table) -> Table:
        """Return the implementations such that what they compile is kept with the problem."""
        return {operation: self._keeping(implementation) for operation, implementation in table.items()}

    def _keeping(self, implementation: Implementation) -> Implementation:
        programs: Callable[[Any], dict[Any, Any]] = cached_in_problem(lambda problem: {})

        def run(problem: Any, *inputs: Array, out: Any) -> None:
            token = self._programs.set(programs(problem))
            try:
                implementation(problem, *inputs, out=out)
            finally:
                self._programs.reset(token)

        return run

    def kept(self, make: Callable[[], Program], function: Function, *key: Any) -> Program:
        """Return ``make()``: one program for each ``key`` and each function of the current problem.

        A function is made again in each call, from the problem; it is known by its code, so that the functions of one
        problem must differ in their code.
        """
        programs = self._programs.get({})
        key = getattr(function, "__code__", function), *key
        if key not in programs:
            programs[key] = make()
        program: Program = programs[key]
        return program

    def _activation(self, neuron: Callable[[Neuron], Function], problem: Any) -> Function:
        """Return the function of a layer's neuron, whose slopes are constants of the program."""
        one = problem.spec.neuron
        if one is None or one.data is None:
            return super()._activation(neuron, problem)
        function, slopes = neuron(one), np.array(one.data, np.float32)
        return lambda x: function(x, slopes)


REDUCED = {"row": "W", "column": "H", "featurechannels": "C", "spatial": "HW"}
"""The axes of each direction of a reduction."""


def scaled(x: Tensor, factor: float = 1, shift: float = 0) -> Tensor:
    """Return ``factor * x + shift``, without the operations that change nothing."""
    x = x if factor == 1 else factor * x
    return x if shift == 0 else x + shift


def _table(kinds: Kinds, **methods: Implementation) -> Table:
    """Return the implementations of those methods that the kernels have."""
    every = kinds if isinstance(kinds, tuple) else (kinds,)
    return {Operation(kind, name): run for kind in every for name, run in methods.items() if name in kind.declared}


def _bias(problem: Any, image: Array, biases: Sequence[Array] = ()) -> Array:
    """Return the biases of a layer in the dtype of the image; zeros if there are none."""
    return biases[0].astype(image.dtype, copy=False) if biases else np.zeros(problem.output_channels, image.dtype)


def _several(out: Any) -> tuple[Array, ...]:
    return out if isinstance(out, tuple) else (out,)
