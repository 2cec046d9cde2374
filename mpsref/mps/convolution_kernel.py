"""Base classes of the kernels with weights: convolution, fully connected layer, transposed convolution; their states.

They load weights from a data source, reload, export, copy and save them. A kernel reads its weights when it is encoded:
a reload has an effect on later encodes only [choice weights-at-encode].

A forward kernel makes one gradient state for a whole batch. Every gradient kernel that is encoded with the state adds
the gradients for weights and biases to its buffers. They are not divided by the batch size and not reset: a new batch
needs a new state. Kernels read the buffers in the order in which they are encoded, the host after a synchronization.

Source: ``MPSCNNConvolution.h`` [doc]; "zero at creation, every encode adds" [choice convolution-accumulates].
"""

from __future__ import annotations

import abc
import dataclasses
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, DType, Shape, is_array
from mpsref.arguments.parameters import Pair, flag
from mpsref.arguments.text import cut, shown
from mpsref.errors import OrderError, ShapeError, UnsupportedError
from mpsref.kernels.convolution import WeightedSpec
from mpsref.mps.convolution_data_source import (
    ArrayConvolutionDataSource,
    LoadedWeights,
    MPSCNNConvolutionDataSource,
    MPSCNNConvolutionWeightsAndBiasesState,
    immutable,
    load,
    rounded,
    shaped,
)
from mpsref.mps.convolution_descriptor import (
    MPSCNNConvolutionDescriptor,
    MPSCNNConvolutionGradientOption,
    MPSCNNConvolutionWeightsLayout,
    MPSNNConvolutionAccumulatorPrecisionOption,
    gradient_option,
)
from mpsref.mps.core.call import Call, Computation, problem_of
from mpsref.mps.core.clip_regions import count
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable, check_not_a_command_buffer
from mpsref.mps.core.encode import ImageKernel
from mpsref.mps.core.gradient_kernel import WindowedGradient
from mpsref.mps.core.image_kernels import MPSCNNKernel
from mpsref.mps.core.properties import Alias, Property, instance_of, set_read_only
from mpsref.mps.core.serialization import SecureCoding
from mpsref.mps.core.state import BufferState, ForwardRecord, RecordedState, SourceProperties, Synchronized
from mpsref.mps.core.types import member
from mpsref.mps.neuron import MPSNNNeuronDescriptor
from mpsref.registry import Backend

DATA = MPSCNNConvolutionGradientOption.GradientWithData
WEIGHTS = MPSCNNConvolutionGradientOption.GradientWithWeightsAndBias
GEOMETRY = SourceProperties._fields[2:8]


class WeightedKernel(ImageKernel):
    """A kernel that loads weights from a data source when it is made; not a class of Apple's."""

    data_source = Property(lambda _, value: value, None, "The source of the weights.", read_only=True)
    _loaded: LoadedWeights

    def __init__(
        self,
        weights: MPSCNNConvolutionDataSource | None = None,
        *,
        data_source: MPSCNNConvolutionDataSource | None = None,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        if weights is not None and data_source is not None:
            raise TypeError("weights and data_source are both given; they are the same: pass one of them")
        chosen: Any = data_source if weights is None else weights
        loaded = load(chosen)
        self._check_loaded(loaded)
        self._loaded = loaded
        set_read_only(self, data_source=chosen)
        for prefix in self.prefixes:
            set_read_only(self, **{prefix + name: getattr(loaded.descriptor, name) for name in GEOMETRY})
        super().__init__(backend=backend, **{"label": loaded.label, **properties})

    def _check_loaded(self, loaded: LoadedWeights) -> None:
        """Raise ``ValueError`` for weights that do not fit this class."""

    def _check_channels(self, names: Sequence[str], read: Sequence[slice]) -> None:
        """Raise ``ShapeError`` unless the channels that are read of each source are those of the weights."""
        for k, (name, channels) in enumerate(zip(names, map(count, read), strict=True)):
            if channels != (needed := self._channels_needed[k]):
                raise ShapeError(
                    f"{channels} channels are read of {name}; they must be {needed}, as many as the weights are for: "
                    f"pass an image with at least that many from {self._property_name(k, 'source_feature_channel')}"
                    "_offset on, and leave _max_count"
                )

    def reload_weights_and_biases_from_data_source(self) -> None:
        """Load the weights again, for all later encodes.

        Raises ``ValueError`` if the descriptor has changed, other than in neuron and batch normalization. No error
        changes the weights.
        """
        loaded = load(self.data_source)
        self._check_loaded(loaded)
        if loaded.fixed != self._loaded.fixed:
            raise ValueError(
                f"data_source.descriptor() is now {loaded.descriptor!r}; a reload may change neuron and batch "
                f"normalization of {self._loaded.descriptor!r} alone: make another kernel"
            )
        self._loaded = loaded

    def reload_weights_and_biases(
        self, state: MPSCNNConvolutionWeightsAndBiasesState, command_buffer: MPSCommandBuffer | None = None
    ) -> None:
        """Read weights and biases from a state, for all encodes that follow on the command buffer.

        Parameters
        ----------
        state : MPSCNNConvolutionWeightsAndBiasesState
            The weights, which are rounded to the kernel's weight type, and the biases; without biases those of the
            kernel do not change [choice reload-without-biases]. No synchronization is needed.
        command_buffer : MPSCommandBuffer, optional
            The command buffer to encode on.

        Raises
        ------
        TypeError, ShapeError
            For another state, or another size. No error changes the weights.
        ValueError
            If a batch normalization is folded into the weights.
        OrderError
            For a committed command buffer.
        """
        check_not_a_command_buffer("state", state, "reload_weights_and_biases(state, command_buffer=buffer)")
        legal = (
            "an MPSCNNConvolutionWeightsAndBiasesState; a data source is read by "
            "reload_weights_and_biases_from_data_source()"
        )
        instance_of("state", state, MPSCNNConvolutionWeightsAndBiasesState, legal)
        old = self._loaded
        if old.descriptor.batch_normalization is not None:
            raise ValueError(
                "a batch normalization for inference is folded into the weights, which a state cannot replace; use "
                "reload_weights_and_biases_from_data_source(), or a data source without it"
            )
        new = state.device_read(command_buffer)
        weights = shaped("state's weights", new.weights, self.weights_shape)
        biases = None if new.biases is None else shaped("state's biases", new.biases, self.weights_shape[:1])
        self._replace(weights, biases)

    def _replace(self, weights: Array | None = None, biases: Array | None = None) -> None:
        """Replace weights and biases by checked read-only arrays; ``None`` keeps the array."""
        old = self._loaded
        if weights is None:
            weights = old.weights
        elif old.kernel_type == "float16":
            weights = rounded(weights, "float16")
        biases = old.biases if biases is None else biases
        self._loaded = dataclasses.replace(old, weights=weights, biases=biases, from_data_source=False)

    weights_shape: Alias[Shape] = Alias(
        "_loaded.descriptor.weights_shape",
        "Shape of the weights: output channels, height, width, input channels of a group (none for depthwise).",
    )

    descriptor: Alias[MPSCNNConvolutionDescriptor] = Alias(
        "_loaded.descriptor",
        "A copy of the descriptor that the weights were loaded with.",
        MPSCNNConvolutionDescriptor.copy,
    )
    groups: Alias[int] = Alias("_loaded.descriptor.groups", "The number of groups of channels.")
    channel_multiplier: Alias[int] = Alias(
        "_loaded.descriptor.channel_multiplier",
        "Result channels for each source channel of a depthwise convolution, 0 for a regular one. Source: [doc].",
    )

    def same_layer(self, other: WeightedKernel) -> bool:
        """Whether both have the same kernel size, channels, strides, dilation, groups and kind."""
        instance_of("other", other, WeightedKernel, "a convolution or a gradient of one")
        return self._loaded.fixed == other._loaded.fixed

    @property
    def _functional_weights(self) -> Array:
        """The weights of the functional form, which have four axes."""
        weights = self._loaded.weights
        return weights if weights.ndim == 4 else weights[..., None]

    def copy(self, backend: str | Backend | None = None) -> Self:
        """Return an equal kernel, for another ``backend`` if it is not ``None``.

        The data source is copied by its ``copy_with_device(backend)`` or ``copy()``, and shared if it has neither.
        """
        twin = super().copy()
        if backend is not None:
            twin.backend = backend
        source = self.data_source
        if callable(getattr(source, "copy_with_device", None)):
            source = source.copy_with_device(twin.backend)
        elif callable(getattr(source, "copy", None)):
            source = source.copy()
        set_read_only(twin, data_source=source)
        return twin

    def saved_values(self) -> dict[str, object]:
        """Return the values to save: the data source if it has the current weights, else a new one with them."""
        values = super().saved_values()
        if self._loaded.from_data_source and isinstance(self.data_source, SecureCoding):
            return values
        descriptor = self.descriptor
        descriptor.batch_normalization = None  # the weights have it already
        loaded = self._loaded
        return values | {
            "data_source": ArrayConvolutionDataSource(
                descriptor, loaded.weights, loaded.biases, loaded.kernel_type, loaded.label
            )
        }

    def __repr__(self) -> str:
        source = type(self.data_source).__name__
        return f"<{type(self).__name__}: {self._loaded.descriptor!r} from {source}, backend={self.backend!r}>"


# --- gradient states --------------------------------------------------------------------------------------------------


class ConvolutionGradients(NamedTuple):
    """Read-only gradients for weights and biases, as kernels read them."""

    weights: Array
    """dL/dw, in the shape of the weights."""
    biases: Array
    """dL/db, one for each output channel."""


class MPSCNNConvolutionGradientState(BufferState):
    """The state of a convolution, to which its gradient kernel adds the gradients for weights and biases."""

    def __init__(self, record: ForwardRecord) -> None:
        """Make the state of one forward pass; its buffers are zero."""
        super().__init__(record)
        self._buffers: ConvolutionGradients | None = None
        self._is_complete = False

    kernel: Alias[ForwardWeightedKernel] = Alias(
        "_record.extras", "The forward kernel that made the state.", operator.itemgetter("kernel")
    )
    convolution: Alias[ForwardWeightedKernel | None] = Alias("kernel", "The convolution that made the state.")

    gradient_for_weights: Synchronized[Array] = Synchronized(
        "_read",
        """dL/dw, in the shape of the weights, read-only.

        Raises ``NotSynchronizedError`` unless :meth:`synchronize` has completed since the last gradient kernel was
        encoded with this state.
        """,
        lambda read: read().weights,
    )
    gradient_for_biases: Synchronized[Array] = Synchronized(
        "_read",
        "dL/db (Co,), also if there are no biases [choice convolution-bias-gradient]; as ``gradient_for_weights``.",
        lambda read: read().biases,
    )

    @property
    def gradient_for_weights_layout(self) -> MPSCNNConvolutionWeightsLayout:
        """The order of ``gradient_for_weights``: OHWI."""
        return MPSCNNConvolutionWeightsLayout.OHWI

    def device_read(self, command_buffer: MPSCommandBuffer | None = None) -> ConvolutionGradients:
        """Return the gradients for a kernel that is encoded now, which needs no synchronization.

        Raises ``OrderError`` for a committed command buffer.
        """
        check_encodable(command_buffer)
        self._read_by_kernel(command_buffer)
        return self._read()

    def _read(self) -> ConvolutionGradients:
        """Return the gradients of a batch, which is complete then."""
        self._is_complete |= self._buffers is not None
        if self._buffers is None:
            shape: Shape = self.kernel.weights_shape
            made = np.zeros(shape, np.float32), np.zeros(shape[0], np.float32)
            self._buffers = ConvolutionGradients(*map(immutable, made))
        return self._buffers

    def check_same_batch(self, name: str) -> None:
        """Raise ``OrderError`` if the gradients of a batch were read: a state is not reusable for another one [doc]."""
        if self._is_complete:
            raise OrderError(
                f"{cut(name)} has the gradients of a batch, which have been read; a state of a convolution is not "
                "reusable across batches: take the new state of encode(..., return_state=True)"
            )

    def accumulate(self, weights: Array, biases: Array, dtype: DType) -> None:
        """Add the sums of one gradient kernel, rounded once to ``dtype``.

        Buffers are float32, and float64 after a pass in float64. The state keeps the arrays without a copy.
        """
        for name, array in (("weights", weights), ("biases", biases)):
            if not is_array(array):
                raise TypeError(f"{name} is {shown(array)}; it must be an array")
        self.check_same_batch("the state")
        if self._buffers is None:
            sums = weights.reshape(self.kernel.weights_shape), biases
        else:
            before = self._buffers
            dtype = np.result_type(dtype, before.weights)
            sums = before.weights + weights.reshape(before.weights.shape), before.biases + biases
        self._buffers = ConvolutionGradients(*[immutable(gradient.astype(dtype, copy=False)) for gradient in sums])
        self.written()


# --- forward and gradient kernels -------------------------------------------------------------------------------------


class _AccumulatorPrecision(Property[MPSNNConvolutionAccumulatorPrecisionOption]):
    def accepted(self, instance: object, value: object) -> MPSNNConvolutionAccumulatorPrecisionOption:
        """Raise ``ValueError`` for ``Half`` with float32 weights. Source: [doc]."""
        chosen = self.check(self.name, value)
        assert isinstance(instance, WeightedKernel)
        _check_precision(chosen, instance._loaded)
        return chosen


def _check_precision(chosen: MPSNNConvolutionAccumulatorPrecisionOption, loaded: LoadedWeights) -> None:
    if chosen is MPSNNConvolutionAccumulatorPrecisionOption.Half and loaded.kernel_type == "float32":
        raise ValueError(
            f"accumulator_precision_option is {chosen!r}; with float32 kernel weights it must be "
            f"{MPSNNConvolutionAccumulatorPrecisionOption.Float!r}, or the data source's kernel_weights_data_type() "
            "must be 'float16'"
        )


class ForwardWeightedKernel(WeightedKernel, MPSCNNKernel):
    """A forward kernel with weights: convolution, fully connected layer, transposed convolution."""

    state_class: ClassVar[type[MPSCNNConvolutionGradientState]] = MPSCNNConvolutionGradientState
    accumulator_precision_option = _AccumulatorPrecision(
        partial(member, kind=MPSNNConvolutionAccumulatorPrecisionOption),
        MPSNNConvolutionAccumulatorPrecisionOption.Float,
        "The precision of sums on Apple's devices; no effect here.",
    )

    def _check_loaded(self, loaded: LoadedWeights) -> None:
        super()._check_loaded(loaded)
        if "accumulator_precision_option" in vars(self):
            _check_precision(self.accumulator_precision_option, loaded)

    input_feature_channels: Alias[int] = Alias(
        "_loaded.descriptor.input_feature_channels", "Channels of the source image."
    )
    output_feature_channels: Alias[int] = Alias(
        "_loaded.descriptor.output_feature_channels", "Channels of the result, before a sub-pixel rearrangement."
    )
    fused_neuron_descriptor: Alias[MPSNNNeuronDescriptor] = Alias(
        "_loaded.descriptor.fused_neuron_descriptor", "The neuron that is applied to the result."
    )

    @abc.abstractmethod
    def _spec(self) -> WeightedSpec:
        """Return the functional form, with the current properties."""

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        weights, biases = operands = self._functional_weights, self._loaded.biases
        return Computation(
            problem_of(self._spec(), "forward", shapes[0], len(weights), size, biases is not None), operands=operands
        )

    recorded: ClassVar[tuple[str, ...]] = ("_kernel",)
    _channels_needed = Alias("_loaded.descriptor", "Of the source.", lambda of: (of.input_feature_channels,))

    def _channels_written(self, read: Sequence[slice]) -> int:
        self._check_channels(("source_image",), read)
        return self.output_feature_channels // self._loaded.descriptor.sub_pixel_factor**2

    @property
    def is_result_state_reused_across_batch(self) -> bool:
        """``True``: the gradients for weights and biases are sums over the batch [doc]."""
        return True

    def _check_destination_state(self, state: RecordedState) -> None:
        super()._check_destination_state(state)
        assert isinstance(state, MPSCNNConvolutionGradientState)
        state.check_same_batch("destination_state")

    def export_weights_and_biases(
        self, result_state_can_be_temporary: bool = False, command_buffer: MPSCommandBuffer | None = None
    ) -> MPSCNNConvolutionWeightsAndBiasesState:
        """Return a state with the current weights and biases, folded and rounded.

        ``result_state_can_be_temporary`` has no effect. Raises ``OrderError`` for a committed command buffer.
        """
        check_encodable(command_buffer)
        return MPSCNNConvolutionWeightsAndBiasesState.sharing(self._loaded.weights, self._loaded.biases)


def check_trainable(loaded: LoadedWeights, name: str, form: str) -> None:
    """Raise ``ValueError`` for weights without a gradient, of a kernel or a node ``name``."""
    descriptor = loaded.descriptor
    if descriptor.neuron is not None:
        raise ValueError(
            f"fused_neuron_descriptor is {descriptor.fused_neuron_descriptor!r}; a {name} that is trained must have "
            f"none: use a neuron {form} of its own, whose gradient comes first"
        )
    if descriptor.batch_normalization is not None:
        raise ValueError(
            f"the descriptor has a batch normalization for inference; a {name} that is trained must have none, or its "
            f"gradient would be that of the folded weights: use a {form} of its own"
        )
    if descriptor.sub_pixel_factor != 1:
        raise UnsupportedError(
            f"sub_pixel_scale_factor is {descriptor.sub_pixel_factor}; there is no gradient of a sub-pixel "
            "convolution: use a plain one and rearrange its result yourself"
        )


class WeightedGradientKernel(WeightedKernel, WindowedGradient):
    """The gradient of a kernel with weights; not a class of Apple's.

    It has its own copy of the weights: forward and gradient kernel are reloaded separately [doc]. An encode adds the
    gradients for weights and biases to the state, which is required, except for a ``gradient_option`` without them and
    with a destination. It returns ``None`` if the gradient for the source image is not computed.
    """

    state_class = MPSCNNConvolutionGradientState
    forward_class: ClassVar[type[ForwardWeightedKernel]]

    gradient_option = Property(
        gradient_option,
        MPSCNNConvolutionGradientOption.All,
        "The gradients to compute: for the data, for the weights, or both.",
    )
    serialize_weights_and_biases = Property(flag, False, "Deprecated, and without effect since 10.14. Source: [doc].")

    def _check_loaded(self, loaded: LoadedWeights) -> None:
        super()._check_loaded(loaded)
        check_trainable(loaded, "convolution", "kernel")

    source_gradient_feature_channels: Alias[int] = Alias(
        "_loaded.descriptor.output_feature_channels", "Channels of the source gradient: those of the forward result."
    )
    source_image_feature_channels: Alias[int] = Alias(
        "_loaded.descriptor.input_feature_channels", "Channels of the forward source image, and of the result."
    )

    _needs_state = (
        ValueError,
        "pass the state of the forward pass: only with a destination_gradient and "
        f"gradient_option {DATA!r} can it be left out",
    )
    _always_needs_state = Alias("gradient_option", "Of gradients for the weights.", lambda option: option & WEIGHTS)

    def _check_state(self, state: MPSCNNConvolutionGradientState) -> None:
        super()._check_state(state)
        self._check_layer(state)

    def _check_layer(self, state: MPSCNNConvolutionGradientState) -> None:
        """Check what may change between encodes with one state."""
        if state._is_complete and self.gradient_option & WEIGHTS:
            state.check_same_batch("gradient_state")
        if self._loaded.fixed != state.kernel._loaded.fixed:
            raise ValueError(
                f"gradient_state is of a layer with {state.kernel.descriptor!r}, this kernel has {self.descriptor!r}; "
                "kernel size, channels, strides, dilation, groups and kind must be the same"
            )

    _channels_needed = Alias(
        "_loaded.descriptor", "Of both images.", lambda of: (of.output_feature_channels, of.input_feature_channels)
    )

    def _channels_written(self, read: Sequence[slice]) -> int:
        self._check_channels(("source_gradient", "source_image"), read)
        return self.source_image_feature_channels

    def _run_with_state(
        self, state: MPSCNNConvolutionGradientState | None, call: Call, images: Sequence[Array], target: Array | None
    ) -> Array | None:
        """Compute all gradients, then write the state, which no error changes."""
        option, result, gradients = self.gradient_option, None, None
        if state is not None:
            self._check_layer(state)
        if option & WEIGHTS:
            g, x = [image if index is None else image[index] for image, index in zip(images, call.reads, strict=True)]
            narrow = np.result_type(g, x)
            # Sums over the batch are in float64 if the backend supports it, and rounded when the state is written.
            wide = np.float64 if "float64" in registry.get_backend(self.backend).dtypes else narrow
            sums = self._parameter_gradients(g.astype(wide, copy=False), x.astype(wide, copy=False))
            gradients = *sums, np.result_type(np.float32, narrow)
        if option & DATA:
            result = super()._run_with_state(state, call, images, target)
        if gradients is not None:
            assert state is not None  # see _check_without_state
            state.accumulate(*gradients)
        return result

    def _parameter_gradients(self, g: Array, x: Array) -> tuple[Array, Array]:
        """Return the gradients for weights and biases from the regions of the images that are read."""
        if 0 in g.shape:  # the forward clip rectangle was empty
            shape = self.weights_shape
            return np.zeros(shape, g.dtype), np.zeros(shape[0], g.dtype)
        return self._weights_function().gradient_weights(g, x, backend=self.backend)

    @abc.abstractmethod
    def _weights_function(self) -> WeightedSpec:
        """Return the functional form whose ``gradient_weights`` is that of the regions that are read."""

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        g, source = shapes
        if 0 in g:
            return Computation(compute=lambda images, backend: 0, images=1)
        if self.gradient_option & DATA:
            return self._data_gradient(g, source, size)
        return Computation(images=1)  # which does not run

    def _data_gradient(self, g: Shape, source: Shape, size: Pair) -> Computation:
        """Return the problem of the gradient for the data, in the pixels of the source."""
        x, y = (0, 0) if self.clip_rect is None else self.clip_rect.origin[:2]
        if y + size[0] > source[1] or x + size[1] > source[2]:
            raise ShapeError(
                f"clip_rect covers the rows below {y + size[0]} and the columns below {x + size[1]} of "
                f"{self.destination_name}; the source image has only {source[1]} x {source[2]}: use a smaller clip_rect"
            )
        return self._of_data(self._weights_function(), g, source, None if size == source[1:3] else (y, x))

    def _of_data(self, function: WeightedSpec, g: Shape, source: Shape, first: Pair | None = None) -> Computation:
        weights = self._functional_weights
        problem = problem_of(function, "gradient_data", source, len(weights), g[1:3])
        return Computation(problem, first, (weights,))
