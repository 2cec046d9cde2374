"""What all kernels with weights share: the data source, the weights in force, reload and export, copies, archives.

Weights are bound when a kernel is encoded, so a reload reaches every later encode and no earlier one [choice].
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import ShapeError
from mpsref.kernels import Neuron
from mpsref.mps.convolution_data_source import ArrayConvolutionDataSource
from mpsref.mps.convolution_descriptor import MPSCNNConvolutionDescriptor
from mpsref.mps.convolution_loading import LoadedWeights, load, rounded, shaped
from mpsref.mps.convolution_state import MPSCNNConvolutionGradientState
from mpsref.mps.convolution_types import MPSNNConvolutionAccumulatorPrecisionOption, precision
from mpsref.mps.convolution_weights import MPSCNNConvolutionWeightsAndBiasesState
from mpsref.mps.core import image_arguments
from mpsref.mps.core.clip_regions import destination_region
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.kernel import ImageKernel, MPSCNNKernel
from mpsref.mps.core.properties import Property, fix
from mpsref.mps.core.serialization import SecureCoding
from mpsref.mps.core.state import one_state
from mpsref.mps.neuron import MPSNNNeuronDescriptor
from mpsref.registry import Backend

__all__ = ["ForwardWeightedKernel", "WeightedKernel"]

GEOMETRY = (
    "kernel_width",
    "kernel_height",
    "stride_in_pixels_x",
    "stride_in_pixels_y",
    "dilation_rate_x",
    "dilation_rate_y",
)


class WeightedKernel(ImageKernel):
    """A kernel that loads weights from a data source when it is made; not a class of Apple's."""

    data_source = Property(lambda _, value: value, None, "Where the weights come from.", read_only=True)
    _loaded: LoadedWeights

    def __init__(self, data_source: Any, *, backend: str | Backend | None = None, **properties: Any) -> None:
        """Load the weights; every property that can be set may be given by keyword.

        Raises ``TypeError`` or ``ValueError`` (``OrderError`` if ``load`` fails) for a data source, or a descriptor,
        that does not fit.
        """
        loaded = load(data_source)
        self._check_loaded(loaded)
        self._loaded = loaded
        fix(self, data_source=data_source)
        for prefix in self.prefixes:
            fix(self, **{prefix + name: getattr(loaded.descriptor, name) for name in GEOMETRY})
        super().__init__(backend=backend, **properties)

    def _check_loaded(self, loaded: LoadedWeights) -> None:
        """Raise ``ValueError`` for weights that this class cannot use."""

    def reload_weights_and_biases_from_data_source(self) -> None:
        """Load the weights again, at once and for all later encodes.

        Neuron and batch normalization may have changed; ``ValueError`` if anything else of the descriptor has. After
        any error the old weights stay in force.
        """
        loaded = load(self.data_source)
        self._check_loaded(loaded)
        if loaded.descriptor.fixed != self._loaded.descriptor.fixed:
            raise ValueError(
                f"data_source.descriptor() is now {loaded.descriptor!r}; a reload may change neuron and batch "
                f"normalization of {self._loaded.descriptor!r} alone: make another kernel"
            )
        self._loaded = loaded

    def reload_weights_and_biases(
        self, state: MPSCNNConvolutionWeightsAndBiasesState, command_buffer: MPSCommandBuffer | None = None
    ) -> None:
        """Take the weights that ``state`` holds at this point of the command buffer, for all encodes after it.

        No synchronization is needed. They are rounded to the kernel's weight type; a state without biases leaves the
        biases alone [choice]. Raises ``ShapeError`` for a state of another size, ``ValueError`` if a batch
        normalization was folded into the weights; then the old ones stay in force.
        """
        if not isinstance(state, MPSCNNConvolutionWeightsAndBiasesState):
            raise TypeError(
                f"state is of type {type(state).__name__}; it must be an MPSCNNConvolutionWeightsAndBiasesState"
            )
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
        """Put arrays that fit, and never change, in the place of those in force; ``None`` keeps one."""
        old = self._loaded
        if weights is None:
            weights = old.weights
        elif old.kernel_type == "float16":
            weights = rounded(weights, "float16")
        biases = old.biases if biases is None else biases
        self._loaded = dataclasses.replace(old, weights=weights, biases=biases, from_data_source=False)

    @property
    def weights_shape(self) -> Shape:
        """Shape of the weights: output channels, height, width, input channels of a group (none for depthwise)."""
        return self._loaded.descriptor.weights_shape

    @property
    def descriptor(self) -> MPSCNNConvolutionDescriptor:
        """A copy of the descriptor that the weights were loaded with."""
        return self._loaded.descriptor.copy()

    @property
    def groups(self) -> int:
        """Into how many groups the channels fall."""
        return self._loaded.descriptor.groups

    @property
    def channel_multiplier(self) -> int:
        """Result channels for each source channel of a depthwise convolution, 0 for a regular one. Source: [doc]."""
        return self._loaded.descriptor.channel_multiplier

    @property
    def label(self) -> str | None:
        """The name that the data source gave."""
        return self._loaded.label

    def same_layer(self, other: WeightedKernel) -> bool:
        """Whether both have kernel size, channels, strides, dilation, groups and kind in common."""
        return self._loaded.descriptor.fixed == other._loaded.descriptor.fixed

    @property
    def _functional_weights(self) -> Array:
        """The weights as the functional form takes them: with four axes."""
        weights = self._loaded.weights
        return weights if weights.ndim == 4 else weights[..., None]

    def copy(self, backend: str | Backend | None = None) -> Self:
        """Return an equal kernel, for another ``backend`` if one is named.

        The data source is copied with its ``copy_with_device(backend)`` or ``copy()``, and shared where it has neither.
        """
        twin = super().copy()
        if backend is not None:
            twin.backend = backend
        source = self.data_source
        if callable(getattr(source, "copy_with_device", None)):
            source = source.copy_with_device(twin.backend)
        elif callable(getattr(source, "copy", None)):
            source = source.copy()
        fix(twin, data_source=source)
        return twin

    def saved_values(self) -> dict[str, Any]:
        """Return what is saved: the data source if it can be, otherwise the weights in force.

        The latter are saved too if they came from a state, because the data source does not have them.
        """
        values = super().saved_values()
        if self._loaded.from_data_source and isinstance(self.data_source, SecureCoding):
            return values
        plain = self.descriptor
        plain.batch_normalization = None  # the weights have it already
        loaded = self._loaded
        return values | {
            "data_source": ArrayConvolutionDataSource(
                plain, loaded.weights, loaded.biases, loaded.kernel_type, loaded.label
            )
        }

    def __repr__(self) -> str:
        source = type(self.data_source).__name__
        return f"<{type(self).__name__}: {self._loaded.descriptor!r} from {source}, backend={self.backend!r}>"


class _AccumulatorPrecision(Property[MPSNNConvolutionAccumulatorPrecisionOption]):
    def accepted(self, instance: Any, value: Any) -> MPSNNConvolutionAccumulatorPrecisionOption:
        """Float32 weights need ``Float``. Source: [doc]."""
        chosen = precision(self.name, value)
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

    accumulator_precision_option = _AccumulatorPrecision(
        precision, MPSNNConvolutionAccumulatorPrecisionOption.Float, "What Apple adds products up in; no effect here."
    )

    def _check_loaded(self, loaded: LoadedWeights) -> None:
        super()._check_loaded(loaded)
        if "accumulator_precision_option" in vars(self):
            _check_precision(self.accumulator_precision_option, loaded)

    @property
    def input_feature_channels(self) -> int:
        """Channels of the source image."""
        return self._loaded.descriptor.input_feature_channels

    @property
    def output_feature_channels(self) -> int:
        """Channels of the result, before a sub-pixel rearrangement."""
        return self._loaded.descriptor.output_feature_channels

    @property
    def fused_neuron_descriptor(self) -> MPSNNNeuronDescriptor:
        """The neuron that every result passes through."""
        return self._loaded.descriptor.fused_neuron_descriptor

    @property
    def is_result_state_reused_across_batch(self) -> bool:
        """``True``: one state serves all images of a batch. Source: [doc]."""
        return True

    @property
    def _neuron(self) -> Neuron | None:
        return self._loaded.descriptor.neuron

    def _channels_written(self, read: Any) -> int:
        channels = read[0].stop - read[0].start
        if channels != self.input_feature_channels:
            raise ShapeError(
                f"{channels} channels are read of source_image; they must be {self.input_feature_channels}, as many as "
                "the weights are for: pass another image, or set source_feature_channel_offset and _max_count"
            )
        return self.output_feature_channels // self._loaded.descriptor.sub_pixel_factor**2

    def _encode(
        self,
        sources: Any,
        destination_image: Any,
        destination_size: Any,
        return_state: bool,
        destination_state: Any,
        command_buffer: MPSCommandBuffer | None,
    ) -> Any:
        """Refuse the state of another kernel, whose gradients have another meaning; then encode."""
        state = one_state("destination_state", destination_state, sources[0].array.shape[0])
        if isinstance(state, MPSCNNConvolutionGradientState) and state.kernel is not self:
            raise ValueError("destination_state was made by another kernel; pass one that this kernel made, or None")
        return super()._encode(sources, destination_image, destination_size, return_state, state, command_buffer)

    def result_state_for_source_image(
        self, source_image: Any, source_states: Any = (), destination_image: Any = None
    ) -> Any:
        """Return the state that an encode of ``source_image`` into ``destination_image`` would leave.

        Set every property of the kernel before. ``source_states`` are those that the encode gets, if any. Raises
        ``ValueError`` or ``TypeError`` as the encode would.
        """
        if list(source_states):
            raise ValueError(f"source_states has {len(list(source_states))} states; {type(self).__name__} takes none")
        return self._result_state(source_image, destination_image)

    def result_state_batch_for_source_image(
        self, source_image: Any, source_states: Any = (), destination_image: Any = None
    ) -> Any:
        """The same, for a batch: one state serves all of its images."""
        return self.result_state_for_source_image(source_image, source_states, destination_image)

    def _result_state(self, source_image: Any, destination_image: Any) -> Any:
        source = image_arguments.source("source_image", source_image)
        given = image_arguments.destination(self.destination_name, destination_image, (source,))
        first, written = self.destination_feature_channel_offset, self._channels_written(self._channels((source,)))
        shape = given.array.shape
        region = destination_region(self.destination_name, shape, self.clip_rect, first, written)
        return self.state_class(self._record((source,), shape, region))

    def export_weights_and_biases(
        self, result_state_can_be_temporary: bool = False, command_buffer: MPSCommandBuffer | None = None
    ) -> MPSCNNConvolutionWeightsAndBiasesState:
        """Return a state with the weights and biases in force: as used, rounded and with everything folded in.

        ``result_state_can_be_temporary`` has no effect. Raises ``OrderError`` for a committed command buffer.
        """
        check_encodable(command_buffer)
        return MPSCNNConvolutionWeightsAndBiasesState.sharing(self._loaded.weights, self._loaded.biases)
