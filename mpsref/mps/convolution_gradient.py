"""The gradient of a convolution: for the source image, and for weights and biases, which add up in the state.

>>> import numpy as np
>>> from mpsref.mps.convolution import MPSCNNConvolution
>>> from mpsref.mps.convolution_data_source import ArrayConvolutionDataSource
>>> from mpsref.mps.convolution_descriptor import MPSCNNConvolutionDescriptor
>>> descriptor = MPSCNNConvolutionDescriptor(3, 1, 1, 1, stride_in_pixels_x=2)
>>> source = ArrayConvolutionDataSource(descriptor, [1, 10, 100], [0.5])
>>> x, g = (np.array(row, np.float32).reshape(1, 1, -1, 1) for row in ([1, 2, 3, 4, 5], [1, 2, 3]))
>>> y, state = MPSCNNConvolution(source).encode(x, return_state=True)
>>> MPSCNNConvolutionGradient(source).encode(g, x, state).ravel().tolist()
[10.0, 102.0, 20.0, 203.0, 30.0]
>>> state.synchronize()
>>> state.gradient_for_weights.ravel().tolist(), state.gradient_for_biases.tolist()
([16.0, 22.0, 10.0], [6.0])

Source: ``MPSCNNConvolution.h`` [doc]; the sum over batch and groups in the gradient for weights [math].
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, flag
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.geometry import effective_offset
from mpsref.kernels.convolution import WeightedKernel as WeightedSpec
from mpsref.mps.convolution import MPSCNNConvolution, convolution
from mpsref.mps.convolution_kernel import ForwardWeightedKernel, WeightedKernel
from mpsref.mps.convolution_loading import LoadedWeights
from mpsref.mps.convolution_state import MPSCNNConvolutionGradientState
from mpsref.mps.convolution_types import MPSCNNConvolutionGradientOption, gradient_option
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.clip_regions import Region, count
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.gradient_kernel import MPSCNNGradientKernel
from mpsref.mps.core.image import MPSImageDescriptor
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.kernel import Encoding, saved
from mpsref.mps.core.properties import Property
from mpsref.mps.core.state import one_state
from mpsref.mps.core.types import MPSImageEdgeMode

__all__ = ["MPSCNNConvolutionGradient", "WeightedGradientKernel"]

DATA = MPSCNNConvolutionGradientOption.GradientWithData
WEIGHTS = MPSCNNConvolutionGradientOption.GradientWithWeightsAndBias


class WeightedGradientKernel(WeightedKernel, MPSCNNGradientKernel):
    """The gradient of a kernel with weights; not a class of Apple's.

    It has its own copy of the weights: forward and gradient kernel are reloaded one by one [doc].
    """

    state_class = MPSCNNConvolutionGradientState
    forward_class: ClassVar[type[ForwardWeightedKernel]]

    gradient_option = Property(
        gradient_option, MPSCNNConvolutionGradientOption.All, "Which gradients: for the data, for the weights, or both."
    )
    serialize_weights_and_biases = Property(flag, False, "Deprecated, and without effect since 10.14. Source: [doc].")

    def _check_loaded(self, loaded: LoadedWeights) -> None:
        super()._check_loaded(loaded)
        descriptor = loaded.descriptor
        if descriptor.neuron is not None:
            raise ValueError(
                f"fused_neuron_descriptor is {descriptor.fused_neuron_descriptor!r}; a convolution that is trained "
                "must have none: use a neuron kernel of its own, whose gradient comes first"
            )
        if descriptor.batch_normalization is not None:
            raise ValueError(
                "the descriptor has a batch normalization for inference; a convolution that is trained must have none, "
                "or its gradient would be that of the folded weights"
            )
        if descriptor.sub_pixel_factor != 1:
            raise UnsupportedError(
                f"sub_pixel_scale_factor is {descriptor.sub_pixel_factor}; there is no gradient of a sub-pixel "
                "convolution: use a plain convolution and rearrange its result yourself"
            )

    @property
    def source_gradient_feature_channels(self) -> int:
        """Channels of the source gradient: those of the forward result."""
        return self._loaded.descriptor.output_feature_channels

    @property
    def source_image_feature_channels(self) -> int:
        """Channels of the forward source image, and of the result."""
        return self._loaded.descriptor.input_feature_channels

    def encode(  # type: ignore[override]
        self,
        source_gradient: Any,
        source_image: Any,
        gradient_state: Any = None,
        destination_gradient: Any = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Return the gradient for ``source_image``, and add those for weights and biases to ``gradient_state``.

        ``gradient_option`` says which of both. Without the gradient for the data, ``None`` is returned and a given
        destination is left alone; without that for weights and biases the state is left alone, and may be ``None`` if
        there is a destination. Otherwise as in :meth:`mpsref.mps.MPSCNNGradientKernel.encode`.
        """
        if gradient_state is None:
            self._check_without_state(destination_gradient)
        return super().encode(
            source_gradient, source_image, gradient_state, destination_gradient, command_buffer=command_buffer
        )

    encode_batch = encode

    def _check_without_state(self, destination_gradient: Any) -> None:
        if destination_gradient is None or self.gradient_option & WEIGHTS:
            raise ValueError(
                "gradient_state is None; pass the state of the forward pass: only with a destination_gradient and "
                f"gradient_option {DATA!r} can it be left out"
            )

    def _check_state(self, state: Any) -> None:
        super()._check_state(state)
        if not self.same_layer(state.kernel):
            raise ValueError(
                f"gradient_state is of a layer with {state.kernel.descriptor!r}, this kernel has {self.descriptor!r}; "
                "kernel size, channels, strides, dilation, groups and kind must be the same"
            )

    def _channels_written(self, read: Sequence[slice]) -> int:
        expected = self.source_gradient_feature_channels, self.source_image_feature_channels
        names = "source_gradient", "source_image"
        for name, side, channels, legal in zip(names, self.prefixes, map(count, read), expected, strict=True):
            if channels != legal:
                raise ShapeError(
                    f"{channels} channels are read of {name}; they must be {legal}, as many as the weights are for: "
                    f"pass another image, or set {side}source_feature_channel_offset and _max_count"
                )
        return expected[1]

    def _run_with_state(
        self,
        state: Any,
        sources: tuple[ImageArgument, ImageArgument],
        given: ImageArgument | None,
        shape: Shape,
        dtype: Any,
    ) -> Array | None:
        """Compute everything, then write the state: an error before leaves it alone."""
        option, result = self.gradient_option, None
        gradients = None
        if option & WEIGHTS:
            g, x = self._select(sources, shape)[0]
            images = np.result_type(g, x)
            # Where a backend takes float64, the sums over the batch are taken in it, and rounded once with the state's.
            wide = np.float64 if "float64" in registry.get_backend(self.backend).dtypes else images
            wider = (one.astype(wide, copy=False) for one in (g, x))
            gradients = *self._parameter_gradients(*wider), np.result_type(np.float32, images)
        if option & DATA:
            result = super()._run_with_state(state, sources, given, shape, dtype)
        if gradients is not None:
            state.accumulate(*gradients)
        return result

    def _parameter_gradients(self, g: Array, x: Array) -> tuple[Array, Array]:
        """Return the gradients for weights and biases from the parts of the images that are read."""
        if 0 in g.shape:  # the forward clip rectangle was empty
            shape = self.weights_shape
            return np.zeros(shape, g.dtype), np.zeros(shape[0], g.dtype)
        return self._weights_function().gradient_weights(g, x, backend=self.backend)

    @abc.abstractmethod
    def _weights_function(self) -> WeightedSpec:
        """Return the functional form whose ``gradient_weights`` takes those parts."""

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        g, x = parts
        if 0 in g.shape:
            destination[region] = 0
        else:
            self._write_data_gradient(g, x.shape, destination, region)

    @abc.abstractmethod
    def _write_data_gradient(self, g: Array, shape: Shape, destination: Array, region: Region) -> None:
        """Write ``destination[region]``, the gradient for a source whose part that is read has this ``shape``."""

    def _write_part(self, function: WeightedSpec, g: Array, shape: Shape, destination: Array, region: Region) -> None:
        """Write that part of the gradient for a source of ``shape`` which the rows and columns of the region name."""
        target, (_, height, width, _) = destination[region], shape
        if region.rows.stop > height or region.columns.stop > width:
            raise ShapeError(
                f"clip_rect covers the rows below {region.rows.stop} and the columns below {region.columns.stop} of "
                f"{self.destination_name}; the source image has only {height} x {width}: use a smaller clip_rect"
            )
        if region.size == (height, width):
            function.gradient_data(g, self._functional_weights, shape, out=target, backend=self.backend)
            return
        whole = function.gradient_data(g, self._functional_weights, shape, backend=self.backend)
        target[...] = whole[:, region.rows, region.columns]

    def destination_image_descriptor_for_source_images(
        self, source_images: Sequence[Any], source_states: Sequence[Any]
    ) -> MPSImageDescriptor:
        """Configure the kernel from a state, as an encode without destination does; return what that would make.

        ``source_images`` are the source gradient and the source image, ``source_states`` has the one state.
        """
        g, x = map(image_arguments.source, ("source_gradient", "source_image"), source_images)
        state = one_state("source_states", list(source_states), len(source_states))
        self._check_state(state)
        with Encoding(self, None):
            self._configure(state, g, x)
        n, height, width, channels = state.record.source_shapes[0]
        dtype = g.array.dtype.newbyteorder("=").name
        return MPSImageDescriptor(types.channel_format("dtype", dtype), width, height, channels, n)


@saved("data_source")
class MPSCNNConvolutionGradient(WeightedGradientKernel):
    """The gradient of :class:`MPSCNNConvolution`, from g (N, OH, OW, Co) and the source (N, H, W, Ci) to (N, H, W, Ci).

    The gradient for the data depends on ``primary_offset`` and ``kernel_offset_x/y`` alone, through their effective
    offset; the one for the weights on ``secondary_offset``, which is the *left edge* of the first window [choice], and
    ``secondary_edge_mode``. A state sets all of them.
    """

    forward_class = MPSCNNConvolution

    def _family_configuration(self, state: Any) -> Mapping[str, Any]:
        offset, (y, x) = state.source.offset, state.source.windows
        return {"secondary_offset": offset._replace(x=offset.x - x.center, y=offset.y - y.center)}

    def _run_with_state(
        self,
        state: Any,
        sources: tuple[ImageArgument, ImageArgument],
        given: ImageArgument | None,
        shape: Shape,
        dtype: Any,
    ) -> Array | None:
        self._check_edge_modes({self.secondary_edge_mode} | ({state.source.edge_mode} if state is not None else set()))
        return super()._run_with_state(state, sources, given, shape, dtype)

    def _check_edge_modes(self, modes: set[MPSImageEdgeMode]) -> None:
        if self.gradient_option & DATA and MPSImageEdgeMode.Clamp in modes:
            raise UnsupportedError(
                f"the edge mode of the convolution is {MPSImageEdgeMode.Clamp!r}, for which Apple defines no gradient "
                f"for the data; set gradient_option to {WEIGHTS!r}, or pad the image and use Zero"
            )

    def _weights_function(self) -> WeightedSpec:
        source = self._source_properties(1)
        y_window, x_window = source.windows
        offset = y_window.offset + y_window.center, x_window.offset + x_window.center
        return convolution(source, offset, self._loaded.descriptor.effective_groups)

    def _write_data_gradient(self, g: Array, shape: Shape, destination: Array, region: Region) -> None:
        """Write the gradient for a forward pass with the offset that the effective offset stands for."""
        source = self._source_properties(0)
        function = convolution(source, self._forward_offset(), self._loaded.descriptor.effective_groups)
        shape = g.shape[0], *region.size, shape[3]
        function.gradient_data(g, self._functional_weights, shape, out=destination[region], backend=self.backend)

    def _forward_offset(self) -> Pair:
        windows = self._source_properties(0).windows
        kernel_offsets = self.kernel_offset_y, self.kernel_offset_x
        y, x = (
            window.even - effective_offset(window.offset, kernel_offset, window.stride)
            for window, kernel_offset in zip(windows, kernel_offsets, strict=True)
        )
        return y, x
