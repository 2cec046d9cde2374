"""The gradient of batch normalization with Apple's names, from sums over the batch; and the nodes of graphs.

>>> import numpy as np
>>> from mpsref.mps.batch_normalization import MPSCNNBatchNormalization, MPSCNNBatchNormalizationStatistics
>>> from mpsref.mps.normalization_data_source import BatchNormalizationDataSource
>>> norm = MPSCNNBatchNormalization(BatchNormalizationDataSource(1, gamma=[2.0], beta=[0.5], epsilon=1.5))
>>> x, g = (np.array(n, np.float32).reshape(2, 1, 2, 1) for n in ([1, 2, 4, 5], [1, 2, 3, 4]))
>>> state = norm.result_state_for_source_image(x)
>>> MPSCNNBatchNormalizationStatistics().encode_batch(x, state)
>>> y = norm.encode(x, batch_normalization_state=state)
>>> MPSCNNBatchNormalizationStatisticsGradient().encode_batch(g, x, state)
>>> MPSCNNBatchNormalizationGradient().encode(g, x, state).ravel().tolist()
[-0.625, -0.0625, 0.0625, 0.625]
>>> state.synchronize()
>>> state.gradient_for_gamma.tolist(), state.gradient_for_beta.tolist()
([3.5], [10.0])

Both kernels have the fused neuron of the forward kernel, and multiply by its derivative first; gamma, beta and epsilon
are those of the forward kernel at the time of the encode. The statistics gradient kernel computes the gradients of
gamma and beta, which are the sums that the gradient needs [choice batch-sums: Apple's texts name both kernels].

A node normalizes with the statistics of the batch if a gradient step of the graph reads its state, otherwise with those
of its data source; ``flags`` overrides that.

Source: ``MPSCNNBatchNormalization.h``, ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.errors import OrderError
from mpsref.kernels import BatchNormalization
from mpsref.kernels.batch_normalization import BatchGradientSums, not_negative
from mpsref.mps.batch_normalization import (
    Chunks,
    MakesNoImage,
    MPSCNNBatchNormalization,
    MPSCNNBatchNormalizationState,
    check_channels,
    check_pairs,
    checked_state,
    chunks_of,
    destinations,
    encoded,
    images_in,
    unavailable,
)
from mpsref.mps.core.clip_regions import Region
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.gradient_kernel import MPSCNNGradientKernel
from mpsref.mps.core.image_arguments import ImageArgument, ImageLike, ImageResult, batch_form, expire, is_list_of_arrays
from mpsref.mps.core.kernel import constructed
from mpsref.mps.core.properties import Argument, Property, optional
from mpsref.mps.core.state import StateLike
from mpsref.mps.core.types import Enumeration, member
from mpsref.mps.core.whole_image import require_defaults
from mpsref.mps.graph.nodes import Call, Step, StepState
from mpsref.mps.graph.trainable import JointUpdate, TrainableGradientNode, accumulate
from mpsref.mps.neuron import MPSNNNeuronDescriptor, neuron_descriptor, neuron_of
from mpsref.mps.normalization import NormalizationNode, NormalizationParameters

SIDES = (
    "offset",
    "source_feature_channel_offset",
    "source_feature_channel_max_count",
    "stride_in_pixels_x",
    "stride_in_pixels_y",
)
WHOLE = (
    "clip_rect",
    "destination_feature_channel_offset",
    "kernel_offset_x",
    "kernel_offset_y",
    *(f"{side}_{name}" for side in ("primary", "secondary") for name in SIDES),
)
"""The properties that must keep their defaults: the gradient for a region of an image is not documented."""


@constructed(init=False)
class _BatchGradientKernel(MPSCNNGradientKernel):
    """A gradient kernel with the neuron of its forward kernel."""

    forward_class = MPSCNNBatchNormalization

    fused_neuron_descriptor: Argument[MPSNNNeuronDescriptor | None] = Argument(
        optional(neuron_descriptor), "The neuron that follows in the forward kernel, or ``None``.", default=None
    )

    def _arguments(
        self, source_gradient: ImageLike, source_image: ImageLike, given: StateLike | None
    ) -> tuple[Chunks, Chunks, MPSCNNBatchNormalizationState]:
        """Return the chunks of both images and the state, checked."""
        gradients, sources = chunks_of("source_gradient", source_gradient), chunks_of("source_image", source_image)
        state = checked_state("batch_normalization_state", given, images_in(gradients))
        check_pairs(gradients, sources)
        kernel = state.batch_normalization
        check_channels(sources, kernel.number_of_feature_channels)
        if neuron_of(kernel.fused_neuron_descriptor) != neuron_of(self.fused_neuron_descriptor):
            raise ValueError(
                f"fused_neuron_descriptor is {self.fused_neuron_descriptor!r}; the kernel that made "
                f"batch_normalization_state has {kernel.fused_neuron_descriptor!r}, and both must be equal"
            )
        return gradients, sources, state

    def _infer_destination(self, sources: Sequence[ImageArgument], state: Any) -> tuple[Shape, DType]:
        g, x = sources
        self._arguments(g.value, x.value, state)
        require_defaults(self, *WHOLE)
        return x.array.shape, g.array.dtype.newbyteorder("=")

    def _vectors(self, state: MPSCNNBatchNormalizationState) -> tuple[Array, Array, Array, Array]:
        """Return mean, variance, gamma and beta."""
        return *state.current_statistics(), *state.batch_normalization.scale


@constructed()
class MPSCNNBatchNormalizationStatisticsGradient(MakesNoImage, _BatchGradientKernel):
    """The sums that the gradient of a batch needs, added to a state: :meth:`BatchNormalization.statistics_gradient`.

    It is encoded once for each chunk of the batch, in any order. The summands are ``g' = g * f'(z)`` and ``g' * xhat``
    with the final statistics of the batch, which must be complete. There is no destination image: the encodes of
    :class:`MPSCNNGradientKernel` are unavailable [doc].
    """

    _form = "encode_batch(source_gradients, source_images, batch_normalization_state)"

    def encode_batch(  # as Apple's: no other encode is left
        self,
        source_gradients: ImageLike,
        source_images: ImageLike,
        batch_normalization_state: StateLike | None = None,
        destination_gradients: ImageLike | None = None,
        *,
        gradient_states: StateLike | None = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> None:
        """Add the sums over ``source_gradients`` to the state.

        Parameters
        ----------
        source_gradients, source_images : array_like (N, H, W, C), images, or list of arrays
            The gradient of the forward result, and the images of the forward pass, of equal shapes.
        batch_normalization_state : MPSCNNBatchNormalizationState
            The state of the batch. If its sums were used, new sums start. Without statistics of a batch, those of the
            forward kernel are used (frozen statistics).
        destination_gradients, gradient_states
            Unavailable [doc].

        Raises
        ------
        OrderError
            Without statistics, and for a committed command buffer.
        """
        if gradient_states is not None or destination_gradients is not None:
            raise unavailable(self, "encode_batch with gradient states or destinations", f"use {self._form}")
        gradients, sources, state = self._arguments(source_gradients, source_images, batch_normalization_state)
        check_encodable(command_buffer)
        require_defaults(self, *WHOLE)
        vectors, function, sums = self._vectors(state), state.batch_normalization.function, state.sums_so_far()
        for g, x in zip(gradients, sources, strict=True):
            sums = function.statistics_gradient(g.array, x.array, *vectors, state=sums, backend=self.backend)
        if sums is not None and images_in(sources):
            state.write_sums(sums)
        expire((*gradients, *sources))
        state._count_read()


@constructed()
class MPSCNNBatchNormalizationGradient(_BatchGradientKernel):
    """The gradient for the source images, from the sums in a state: :meth:`BatchNormalization.gradient`.

    It may be encoded for single images, for chunks of the batch or for all of it, in any order and repeatedly.
    """

    def encode(  # type: ignore[override]  # as Apple's, with a state of its own kind
        self,
        source_gradient: ImageLike,
        source_image: ImageLike,
        batch_normalization_state: StateLike | None = None,
        destination_gradient: ImageLike | None = None,
        *,
        gradient_state: StateLike | None = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> ImageResult:
        """Return the gradient for ``source_image``, of the kind that ``source_gradient`` is.

        Parameters
        ----------
        source_gradient, source_image : array_like (N, H, W, C), images, or list of arrays
            The gradient of the forward result, and the images of the forward pass, of equal shapes. For lists of arrays
            the result is a list.
        batch_normalization_state : MPSCNNBatchNormalizationState
            The state of the batch, with sums over all of its pixels. Without statistics of a batch, mean and variance
            are constants, those of the forward kernel, and no sums are needed.
        destination_gradient : ndarray, images, or list of arrays, optional
            It is overwritten, and must have the shape of the source.
        gradient_state : MPSCNNBatchNormalizationState
            Another name of ``batch_normalization_state``.

        Raises
        ------
        OrderError
            Without statistics or with incomplete sums, and for a committed command buffer.
        """
        if batch_normalization_state is not None and gradient_state is not None:
            raise TypeError("batch_normalization_state and gradient_state are both given; they are the same: pass one")
        given_state = batch_normalization_state if gradient_state is None else gradient_state
        gradients, sources, state = self._arguments(source_gradient, source_image, given_state)
        check_encodable(command_buffer)
        require_defaults(self, *WHOLE)
        given = destinations("destination_gradient", destination_gradient, (gradients, sources))
        dtypes = [g.array.dtype for g in gradients]
        operands = state.batch_normalization.function, self._vectors(state), state.complete_sums()
        results = encoded(self, (gradients, sources), given, dtypes, *operands)
        if images_in(sources):
            state.use_sums()
        expire((*gradients, *sources))
        state._count_read()
        return results if is_list_of_arrays(source_gradient) else results[0]

    encode_batch = batch_form(encode)

    def _compute(self, inputs: Sequence[Array], destination: Array, region: Region, *operands: Any) -> None:
        function, vectors, sums = operands
        function.gradient(*inputs, *vectors, sums=sums, out=destination[region], backend=self.backend)


# --- nodes ------------------------------------------------------------------------------------------------------------


class MPSCNNBatchNormalizationFlags(Enumeration):
    """The statistics that a node uses. Source: ``MPSNNGraphNodes.h`` [doc]."""

    Default = 0
    Always = 1
    Never = 2


def _flags(name: str, value: object) -> MPSCNNBatchNormalizationFlags:
    """Check the flags: a member, its number, or a name in lower case; "automatic" is the default."""
    return member(name, "default" if value == "automatic" else value, MPSCNNBatchNormalizationFlags)


class _Parameters(NormalizationParameters):
    """Gamma, beta, mean and variance of one batch normalization in one graph."""

    pairs = "gamma_and_beta", "mean_and_variance"
    updates_together = True
    kernel: MPSCNNBatchNormalization

    def _update_together(self, joint: JointUpdate, step_state: StepState) -> Callable[[], None]:
        dbeta, dgamma = step_state["gradients"]
        statistics = step_state.get("statistics")
        later = joint((dgamma, dbeta), None if statistics is None else (statistics.mean, step_state["variance"]))

        def change() -> None:
            like, _ = self.kernel.scale
            new = self._joint_result(later(), dict.fromkeys(("gamma", "beta", "mean", "variance"), like))
            if "variance" in new:
                not_negative("variance", new["variance"])
            self.kernel._replace(**new)

        return change

    def arrays(self) -> Mapping[str, Array | None]:
        """Return the current gamma, beta, mean and variance."""
        mean, variance = self.kernel.statistics
        return {**super().arrays(), "mean": mean, "variance": variance}

    def state(self, step_state: StepState) -> MPSCNNBatchNormalizationState:
        """Return a synchronized state with the gradients of one run."""
        state = MPSCNNBatchNormalizationState(self.kernel, self.record(step_state["shapes"], {}))
        if "statistics" in step_state:
            state.write_statistics(step_state["statistics"])
        if "gradients" in step_state:
            pixels = math.prod(step_state["shapes"][0][:3])
            state.write_sums(BatchGradientSums(pixels, *step_state["gradients"]))
        state.synchronize()
        return state


class MPSCNNBatchNormalizationGradientNode(TrainableGradientNode):
    """The gradients of batch normalization for its source, and in its state for gamma and beta.

    Statistics of a data source are constants, which have no gradient [choice batch-frozen].
    """

    def _methods(self, step: Step) -> Sequence[str]:
        forward = self.forward
        assert isinstance(forward, MPSCNNBatchNormalizationNode)
        of_batch = step.trains or forward._uses_batch(True)
        return [*["statistics_gradient"] * of_batch, *["gradient"] * step.result_is_needed]

    def _compute(self, call: Call, *images: Array) -> Array | None:
        g, x = images
        spec, parameters = call.spec, call.parameters
        statistics = call.state.get("statistics")
        mean, variance = parameters["mean"], parameters["variance"]
        if statistics is not None:
            mean, variance = statistics.mean, call.state["variance"]
        scale = parameters["gamma"], parameters["beta"]
        sums = None
        if statistics is not None or call.trains:
            sums = spec.statistics_gradient(g, x, mean, variance, *scale, backend=call.backend)
            if call.trains:
                accumulate(call.state, "gradients", (sums.dbeta, sums.dgamma))
        if not call.result_is_needed:
            return None
        batch = None if statistics is None else sums
        return spec.gradient(g, x, mean, variance, *scale, sums=batch, backend=call.backend)  # type: ignore[no-any-return]


class MPSCNNBatchNormalizationNode(NormalizationNode):
    """Batch normalization with the parameters of a data source."""

    kind = "bn"
    spec_class = BatchNormalization
    kernel_class = MPSCNNBatchNormalization
    parameters_class = _Parameters
    gradient_class = MPSCNNBatchNormalizationGradientNode

    flags: Property[MPSCNNBatchNormalizationFlags] = Property(
        _flags,
        MPSCNNBatchNormalizationFlags.Default,
        "Its statistics: those of the batch, or stored ones.",
    )

    def _methods(self, step: Step) -> Sequence[str]:
        return [*["statistics"] * self._uses_batch(step.trains), "forward"]

    def _uses_batch(self, trains: bool) -> bool:
        """Whether a forward step uses the statistics of its batch."""
        if self.flags is MPSCNNBatchNormalizationFlags.Default:
            return trains
        return self.flags is MPSCNNBatchNormalizationFlags.Always

    def _compute(self, call: Call, *images: Array) -> Array:
        spec, parameters, x = call.spec, call.parameters, images[0]
        mean, variance = parameters["mean"], parameters["variance"]
        if self._uses_batch(call.trains):
            statistics = spec.statistics(x, backend=call.backend)
            mean, variance = statistics.mean, statistics.variance
            call.state["statistics"], call.state["variance"] = statistics, variance
        elif mean is None:
            raise OrderError(
                f"{self.name}: the data source has no mean and variance, which inference needs; let it return those of "
                'training, or set flags to "always"'
            )
        return spec.forward(x, mean, variance, parameters["gamma"], parameters["beta"], backend=call.backend)  # type: ignore[no-any-return]
