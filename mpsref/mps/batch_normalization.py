"""Batch normalization with Apple's names: the statistics of a batch, the normalization, its gradient, and nodes.

A training step, with the batch in two chunks:

>>> import numpy as np
>>> from mpsref.mps.normalization_data_source import BatchNormalizationDataSource
>>> norm = MPSCNNBatchNormalization(BatchNormalizationDataSource(1, gamma=[2.0], beta=[0.5], epsilon=1.5))
>>> x, g = (np.array(n, np.float32).reshape(2, 1, 2, 1) for n in ([1, 2, 4, 5], [1, 2, 3, 4]))
>>> state = norm.result_state_for_source_image(x)
>>> statistics = MPSCNNBatchNormalizationStatistics()
>>> statistics.encode_batch(x[:1], state)
>>> statistics.encode_batch(x[1:], state)
>>> norm.encode(x, batch_normalization_state=state).ravel().tolist()
[-1.5, -0.5, 1.5, 2.5]
>>> MPSCNNBatchNormalizationStatisticsGradient().encode_batch(g, x, state)
>>> MPSCNNBatchNormalizationGradient().encode(g, x, state).ravel().tolist()
[-0.625, -0.0625, 0.0625, 0.625]
>>> state.synchronize()
>>> state.mean.tolist(), state.variance.tolist()
([3.0], [2.5])
>>> state.gradient_for_gamma.tolist(), state.gradient_for_beta.tolist()
([3.5], [10.0])

There is one state for a whole batch and all of its chunks. Kernels add to it in the order in which they are encoded;
the host reads it after a synchronization. Gamma, beta and epsilon are read from its kernel, so they are current after a
reload. A batch is complete when a normalization or a gradient kernel has used its statistics: the next statistics
kernel starts a new batch. The same holds for the sums after a gradient kernel [choice batch-restart: Apple documents
``reset``, but not when it must be called].

Both gradient kernels have the fused neuron of the forward kernel, and multiply by its derivative first; gamma, beta and
epsilon are those of the forward kernel at the time of the encode. The statistics gradient kernel computes the gradients
of gamma and beta, which are the sums that the gradient needs [choice batch-sums: Apple's texts name both kernels].

A node normalizes with the statistics of the batch if a gradient step of the graph reads its state, otherwise with those
of its data source; ``flags`` overrides that.

Source: ``MPSCNNBatchNormalization.h``, ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.arguments.device import on_host
from mpsref.arguments.parameters import Pair, PairLike, pair
from mpsref.arguments.text import shown
from mpsref.errors import OrderError, ShapeError, UnsupportedError
from mpsref.kernels.batch_normalization import BatchGradientSums, BatchNormalization, BatchStatistics, not_negative
from mpsref.mps.core import image_arguments
from mpsref.mps.core.call import Computation, made, problem_of
from mpsref.mps.core.clip_regions import destination_region
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.encode import ImageKernel, array_of
from mpsref.mps.core.gradient_kernel import WindowedGradient
from mpsref.mps.core.image_arguments import (
    Encoded,
    ImageArgument,
    ImageLike,
    ImageResult,
    batch_form,
    count_reads,
    is_list_of_arrays,
)
from mpsref.mps.core.image_kernels import MPSCNNKernel
from mpsref.mps.core.kernel import MPSKernel
from mpsref.mps.core.properties import Alias, Argument, Property, constructed, optional
from mpsref.mps.core.reads import check_usable
from mpsref.mps.core.state import (
    BufferState,
    DestinationState,
    ForwardRecord,
    MPSState,
    StateLike,
    Synchronized,
    one_state,
    state_of_batch,
)
from mpsref.mps.core.types import Enumeration, member
from mpsref.mps.core.whole_image import require_defaults
from mpsref.mps.graph.nodes import Step, StepCall, StepState
from mpsref.mps.graph.trainable import JointUpdate, TrainableGradientNode, accumulate
from mpsref.mps.neuron import MPSNNNeuronDescriptor, neuron_descriptor, neuron_of
from mpsref.mps.normalization import (
    WHOLE,
    NormalizationKernel,
    NormalizationNode,
    NormalizationParameters,
    any_source,
    check_channels,
)
from mpsref.mps.normalization_data_source import (
    BatchNormalizationDataSource,
    MPSCNNBatchNormalizationDataSource,
    MPSCNNNormalizationMeanAndVarianceState,
    NormalizationBuffers,
    read_only,
)

# --- images: one array, or a list of arrays that follow each other ----------------------------------------------------


Chunks = list[ImageArgument]


def chunks_of(name: str, value: ImageLike, command_buffer: MPSCommandBuffer | None = None) -> Chunks:
    """Return the images of a batch as one chunk, or a list of arrays (N, H, W, C) as one chunk for each array.

    Sizes and numbers of images may differ. Raises ``TypeError`` or ``ShapeError`` as for a single image.
    """
    if isinstance(value, (list, tuple)) and is_list_of_arrays(value):
        return [image_arguments.source(f"{name}[{k}]", array) for k, array in enumerate(value)]
    return [image_arguments.source(name, value, command_buffer=command_buffer)]


def encoded(
    kernel: Any,
    destination: ImageLike | None,
    sources: Sequence[Chunks],
    size: Pair | None,
    command_buffer: MPSCommandBuffer | None,
    state: Any,
) -> list[ImageResult]:
    """Return the results of all chunks of ``sources``: in the given destination, or new images, of ``size``."""
    parts = [*zip(*sources, strict=True)]
    given: Sequence[ImageArgument | None] = [None] * len(parts)
    if destination is not None:
        given = destinations(kernel.destination_name, destination, sources, command_buffer)
    calls, results = [], []
    for images, target in zip(parts, given, strict=True):
        calls.append(kernel._call(images, size if target is None else target.array.shape))
    operands = kernel._operands(state)
    for images, target, (call, own) in zip(parts, given, calls, strict=True):
        array = call.run([*map(array_of, images)], target and target.array, own.backend, operands)
        results.append(
            image_arguments.in_form_of(images[0].value, array) if target is None else image_arguments.written(target)
        )
        if own is not kernel:
            kernel._take(own, call)
    return results


def destinations(
    name: str, value: ImageLike | None, sources: Sequence[Chunks], command_buffer: MPSCommandBuffer | None = None
) -> list[ImageArgument | None]:
    """Return a destination, or ``None``, for each chunk of the last of ``sources``; both have one shape."""
    chunks = sources[-1]
    if value is None or not chunks:
        return [None] * len(chunks)
    named: list[tuple[str, ImageLike]] = [(name, value)]
    if is_list_of_arrays(value):
        named = [(f"{name}[{k}]", image) for k, image in enumerate(value)]
    if len(named) != len(chunks):
        raise ShapeError(f"{name} has {len(named)} parts and {chunks[0].name} {len(chunks)}; both must have as many")
    given: list[ImageArgument | None] = []
    for (key, image), chunk in zip(named, chunks, strict=True):
        target = image_arguments.destination(key, image, list(itertools.chain.from_iterable(sources)), command_buffer)
        if target.array.shape != chunk.array.shape:
            raise ShapeError(f"{key} has shape {target.array.shape}; the result has shape {chunk.array.shape}")
        given.append(target)
    return given


def unavailable(kernel: MPSKernel, method: str, reason: str) -> UnsupportedError:
    """Return the error for a call that Apple's header marks as unavailable."""
    return UnsupportedError(f"{type(kernel).__name__}.{method} is unavailable: {reason}")


# --- the state --------------------------------------------------------------------------------------------------------


class MPSCNNBatchNormalizationState(BufferState):
    """Statistics and gradient sums of one batch. Made by ``MPSCNNBatchNormalization.result_state_for_source_image``.

    The host reads values that kernels write after :meth:`synchronize`. A new state, and one after :meth:`reset`, can be
    read without it [design batch-early-reads].
    """

    def __init__(self, kernel: MPSCNNBatchNormalization, record: ForwardRecord) -> None:
        """Make an empty state of ``kernel``."""
        super().__init__(record)
        self._kernel = kernel
        self.reset()

    batch_normalization: Alias[MPSCNNBatchNormalization] = Alias("_kernel", "The kernel that made the state.")

    def reset(self) -> None:
        """Discard statistics and sums, as in a new state."""
        self._statistics: BatchStatistics | None = None
        self._variance: Array | None = None  # of the statistics
        self._sums: BatchGradientSums | None = None
        self._statistics_used = self._sums_used = False
        self._readable_version = self._version

    # --- read by the host ---

    gamma: Alias[Array] = Alias(
        "_kernel.gamma", "The current scale of the kernel, (C,); ones where its data source has none.", on_host
    )
    beta: Alias[Array] = Alias(
        "_kernel.beta", "The current shift of the kernel, (C,); zeros where its data source has none.", on_host
    )
    mean: Synchronized[Array | None] = Synchronized(
        "_buffers.mean",
        """The mean of the batch so far, before the first pixel that of the kernel, which may be ``None``.

        Raises ``NotSynchronizedError`` unless :meth:`synchronize` has completed since a kernel has written the state.
        """,
    )
    variance: Synchronized[Array | None] = Synchronized(
        "_buffers.variance",
        "The biased variance of the batch so far, before the first pixel that of the kernel; errors as ``mean``.",
    )
    gradient_for_gamma: Synchronized[Array | None] = Synchronized(
        "_buffers.gradient_for_gamma",
        "dL/dgamma, summed over the pixels so far; ``None`` before the first one. Errors as ``mean``.",
    )
    gradient_for_beta: Synchronized[Array | None] = Synchronized(
        "_buffers.gradient_for_beta",
        "dL/dbeta, summed over the pixels so far; ``None`` before the first one. Errors as ``mean``.",
    )

    @property
    def gradient_for_mean(self) -> Array | None:
        """dL/dmean, for mean and variance as independent inputs; not in MPS [math]. Errors as ``mean``."""
        self.check_readable("gradient_for_mean")
        return None if self._sums is None else read_only(-self.gamma * self._root() * on_host(self._sums.dbeta))

    @property
    def gradient_for_variance(self) -> Array | None:
        """dL/dvariance, for mean and variance as independent inputs; not in MPS [math]. Errors as ``mean``."""
        self.check_readable("gradient_for_variance")
        if self._sums is None:
            return None
        return read_only(-0.5 * self.gamma * self._root() ** 2 * on_host(self._sums.dgamma))

    # --- read and written by kernels ---

    def device_read(self, command_buffer: MPSCommandBuffer | None = None) -> NormalizationBuffers:
        """Return the vectors for a kernel that is encoded now; no synchronization is needed.

        Raises ``OrderError`` for a committed command buffer.
        """
        check_encodable(command_buffer)
        self._read_by_kernel(command_buffer)
        return self._buffers

    @property
    def _buffers(self) -> NormalizationBuffers:
        dgamma, dbeta = (None, None) if self._sums is None else (self._sums.dgamma, self._sums.dbeta)
        statistics = self._kernel.statistics if self._statistics is None else (self._statistics.mean, self._variance)
        return NormalizationBuffers(*self._kernel.scale, dgamma, dbeta, *statistics)

    @property
    def count(self) -> int:
        """The number of pixels in the statistics; 0 if those of the kernel are used."""
        return 0 if self._statistics is None else self._statistics.n

    def batch_so_far(self) -> BatchStatistics | None:
        """Return the statistics that the next statistics kernel adds to; ``None`` where it starts a batch."""
        return None if self._statistics_used else self._statistics

    def sums_so_far(self) -> BatchGradientSums | None:
        """Return the sums that the next statistics gradient kernel adds to; ``None`` where it starts a batch."""
        return None if self._sums_used else self._sums

    def complete_sums(self) -> BatchGradientSums | None:
        """Return the sums for a gradient kernel; ``None`` with frozen statistics.

        Raises ``OrderError`` unless they are over as many pixels as the statistics: otherwise a chunk is missing, or
        was encoded twice.
        """
        if self._statistics is None:
            return None
        n, count = 0 if self._sums is None else self._sums.n, self._statistics.n
        if n != count:
            raise OrderError(
                f"batch_normalization_state has gradient sums over {n} pixels and statistics of {count}; encode "
                "MPSCNNBatchNormalizationStatisticsGradient once for every chunk of the batch before the gradient"
            )
        return self._sums

    def write_statistics(self, statistics: BatchStatistics) -> None:
        """Store the statistics of a batch so far; after a complete batch, reset the state first."""
        if not isinstance(statistics, BatchStatistics):
            raise TypeError(f"statistics is {shown(statistics)}; it must be a BatchStatistics")
        n, mean, m2 = statistics
        variance = read_only(not_negative("variance", m2 / n)) if n else None
        if self._statistics_used:
            self.reset()
        self._statistics = BatchStatistics(n, read_only(mean), read_only(m2)) if n else None
        self._variance = variance
        self.written()

    def write_sums(self, sums: BatchGradientSums) -> None:
        """Store the gradient sums of a batch so far, whose statistics are complete."""
        if not isinstance(sums, BatchGradientSums):
            raise TypeError(f"sums is {shown(sums)}; it must be a BatchGradientSums")
        self._sums = sums._replace(dbeta=read_only(sums.dbeta), dgamma=read_only(sums.dgamma))
        self._sums_used, self._statistics_used = False, True
        self.written()

    def use_statistics(self) -> None:
        """Mark the statistics as used: a batch is complete."""
        self._statistics_used = True

    def use_sums(self) -> None:
        """Mark the sums as used: a batch is complete."""
        self._sums_used = True

    def current_statistics(self) -> tuple[Array, Array]:
        """Return mean and variance of the batch, or else of the kernel; ``OrderError`` without either."""
        statistics = self._statistics
        mean, variance = self._kernel.statistics if statistics is None else (statistics.mean, self._variance)
        if mean is None or variance is None:
            raise OrderError(
                "batch_normalization_state has no statistics, and the data source of its kernel none either; encode "
                "MPSCNNBatchNormalizationStatistics first, or give the data source mean() and variance()"
            )
        return mean, variance

    def _root(self) -> Array:
        variance: Array = on_host(self.current_statistics()[1])
        with np.errstate(divide="ignore"):
            return np.asarray(1 / np.sqrt(variance + variance.dtype.type(self._kernel.epsilon)))

    def __repr__(self) -> str:
        n = 0 if self._sums is None else self._sums.n
        return f"<{type(self).__name__}: {len(self.gamma)} channels, statistics of {self.count} pixels, sums over {n}>"


# --- kernels ----------------------------------------------------------------------------------------------------------


def checked_state(
    name: str, value: StateLike | None, chunks: Chunks, command_buffer: MPSCommandBuffer | None = None
) -> MPSCNNBatchNormalizationState:
    """Return the state of a batch, also from a list with an entry for each image; ``TypeError`` for another value."""
    state = one_state(name, value, images_in(chunks)) if isinstance(value, (list, tuple)) else value
    if not isinstance(state, MPSCNNBatchNormalizationState):
        legal = "the MPSCNNBatchNormalizationState that MPSCNNBatchNormalization.result_state_for_source_image returns"
        raise TypeError(f"{name} is of type {type(state).__name__}; it must be {legal}")
    if state._reads is not None:
        check_usable(name, state, command_buffer)
    return state


def images_in(chunks: Chunks) -> int:
    """Return the number of images in all chunks."""
    return sum(map(len, map(array_of, chunks)))


FUNCTION = BatchNormalization()
"""The functional form of the statistics, which depend on neither epsilon nor neuron."""


class StatisticsOnly(ImageKernel):
    """A kernel that adds to a state, and has no encode but ``encode_batch``; not a class of Apple's."""

    append_batch_barrier = True
    """All chunks of a batch are finished before the next kernel starts. Source: [doc, choice batch-barrier]."""
    _form: ClassVar[str]

    def encode(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise ``UnsupportedError``: use :meth:`encode_batch`."""
        raise self._unavailable("encode")

    def destination_image_descriptor_for_source_images(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise ``UnsupportedError``: there is no destination."""
        raise self._unavailable("destination_image_descriptor_for_source_images")

    def _unavailable(self, method: str) -> UnsupportedError:
        return unavailable(self, method, f"it makes no image; use {self._form}")

    _problem: Any = None  # encode_batch writes the state, not an image


class MPSCNNBatchNormalizationStatistics(StatisticsOnly, MPSCNNKernel):
    """The statistics of a batch, added to a state in one call or in several: :meth:`BatchNormalization.statistics`.

    The chunks of a batch may have different sizes and any order. The statistics are over all pixels of all images.
    There is no destination image, so ``encode`` is unavailable [doc].
    """

    _form = "encode_batch(source_images, batch_normalization_state)"

    def encode_batch(  # as Apple's: no other encode is left
        self,
        source_images: ImageLike,
        batch_normalization_state: StateLike,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> None:
        """Add the pixels of ``source_images`` to the statistics in the state.

        Parameters
        ----------
        source_images : array_like (N, H, W, C), images, or list of arrays
            All of a batch, or some chunks of it.
        batch_normalization_state : MPSCNNBatchNormalizationState
            The state of the batch. If its statistics were used, a new batch starts.
        """
        if command_buffer is not None:
            check_encodable(command_buffer)
        chunks = chunks_of("source_images", source_images, command_buffer)
        state = checked_state("batch_normalization_state", batch_normalization_state, chunks, command_buffer)
        require_defaults(self, *WHOLE)
        check_channels(chunks, state._kernel.number_of_feature_channels)
        statistics = state.batch_so_far()
        for chunk in chunks:
            statistics = FUNCTION.statistics(chunk.array, statistics, backend=self.backend)
        if statistics is not None and images_in(chunks):
            state.write_statistics(statistics)
        count_reads(chunks)


@constructed()
class MPSCNNBatchNormalization(NormalizationKernel):
    """The normalization of images (N, H, W, C), with a fused neuron: :meth:`BatchNormalization.forward`.

    Without a state it uses mean and variance of its data source (inference), with a state those of the batch. Vectors
    are copied when the kernel is made, and changed only by a reload.

    Raises
    ------
    TypeError, ValueError
        For a data source that does not fit; ``OrderError`` if ``load`` fails.
    ShapeError
        For a PReLU with another number of slopes than channels.
    """

    kind = "Batch"
    channels_changed = "is {new}; the kernel was made with {old}"

    source_class = BatchNormalizationDataSource

    data_source: Argument[MPSCNNBatchNormalizationDataSource] = Argument(any_source, "The source of the vectors.")
    fused_neuron_descriptor: Argument[MPSNNNeuronDescriptor | None] = Argument(
        optional(neuron_descriptor), "The neuron that follows, or ``None``.", default=None
    )

    def _set_arguments(self, **values: Any) -> None:
        super()._set_arguments(**values)
        self._neuron = neuron_of(self.fused_neuron_descriptor)
        slopes = None if self.fused_neuron_descriptor is None else self.fused_neuron_descriptor.data
        channels = self.number_of_feature_channels
        if slopes is not None and len(slopes) != channels:
            raise ShapeError(
                f"fused_neuron_descriptor has {len(slopes)} slopes; the data source has {channels} channels, and there "
                "must be one for each"
            )

    @property
    def statistics(self) -> tuple[Array | None, Array | None]:
        """Current mean and variance for inference, (C,) each, read-only; ``None`` for both without any."""
        return self._loaded.mean, self._loaded.variance

    @property
    def function(self) -> BatchNormalization:
        """The functional form, with the present epsilon."""
        return made(BatchNormalization, self.epsilon, self._neuron)  # type: ignore[no-any-return]

    # --- encodes ---

    def encode(
        self,
        source_image: ImageLike,
        destination_image: ImageLike | None = None,
        batch_normalization_state: StateLike | None = None,
        *,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Encoded:
        """Normalize ``source_image`` (N, H, W, C); return the destination, of the kind that was passed in.

        Parameters
        ----------
        source_image : array_like (N, H, W, C), images, or list of arrays
            The images. For a list of arrays the result is a list.
        destination_image : ndarray, images, or list of arrays, optional
            It is overwritten, and must have the shape of the source.
        batch_normalization_state : MPSCNNBatchNormalizationState, optional
            The statistics to use, which completes its batch. By default those of the data source.
        destination_size : tuple of int, optional
            Height and width of a new destination, which must be those of the source.
        return_state, destination_state
            Unavailable [doc].

        Raises
        ------
        OrderError
            Without statistics, and for a committed command buffer.
        """
        if return_state or destination_state is not None:
            raise unavailable(self, "encode with a destination state", "make one with result_state_for_source_image()")
        chunks = chunks_of("source_image", source_image, command_buffer)
        state = None
        if batch_normalization_state is not None:
            state = checked_state("batch_normalization_state", batch_normalization_state, chunks, command_buffer)
            if state._kernel is not self:
                raise ValueError(
                    "batch_normalization_state was made by another kernel; pass one that this kernel's "
                    "result_state_for_source_image() made"
                )
        if destination_image is not None and destination_size is not None:
            raise ValueError("destination_image and destination_size are both given; pass one of them, or neither")
        size = None if destination_size is None else pair("destination_size", destination_size, low=1)
        if command_buffer is not None:
            check_encodable(command_buffer)
        results = encoded(self, destination_image, (chunks,), size, command_buffer, state)
        if state is not None and images_in(chunks):
            state.use_statistics()
        count_reads(chunks)
        if state is not None:
            state._count_read()
        return results[0] if chunks and chunks[0].value is source_image else results

    encode_batch = batch_form(encode)

    def _infer_destination(self, sources: Sequence[ImageArgument], state: Any) -> tuple[Shape, DType]:
        if state is not None:
            checked_state("source_states", state, [*sources])
        return self._place(sources, None, None)

    def _operands(self, state: MPSCNNBatchNormalizationState | None) -> tuple[Array | None, ...]:
        """Return mean, variance, gamma and beta; ``OrderError`` without statistics."""
        loaded = self._loaded
        if state is not None:
            return *state.current_statistics(), loaded.gamma, loaded.beta
        if loaded.mean is None or loaded.variance is None:
            raise OrderError(
                "the data source has no mean and variance, and no batch_normalization_state is given; pass the state "
                "that MPSCNNBatchNormalizationStatistics has written, or give the data source mean() and variance()"
            )
        return loaded.mean, loaded.variance, loaded.gamma, loaded.beta

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        gamma, beta = self._loaded.gamma, self._loaded.beta
        problem = problem_of(self.function, "forward", shapes[0], gamma is not None, beta is not None)
        return Computation(problem, images=1)

    # --- states ---

    def result_state_for_source_image(
        self,
        source_image: ImageLike,
        source_states: Sequence[MPSState] | MPSState | None = None,
        destination_image: ImageLike | None = None,
    ) -> MPSCNNBatchNormalizationState:
        """Return a new state for a batch, of which ``source_image`` may be any chunk.

        ``source_states`` must be empty or ``None``. Raises ``ValueError`` or ``TypeError`` for images that do not fit.
        """
        given = state_of_batch("source_states", source_states, 1)
        if given is not None:
            self._check_state(given)
        chunks = chunks_of("source_image", source_image)
        if not chunks:
            raise ValueError("source_image is an empty list; pass one chunk of the batch at least")
        check_channels(chunks, self.number_of_feature_channels)
        destinations("destination_image", destination_image, (chunks,))
        first = chunks[0]
        shape = first.array.shape
        region = destination_region(self.destination_name, shape, None, 0, shape[3])
        return MPSCNNBatchNormalizationState(self, self._record((first,), [region], shape, region))

    result_state_batch_for_source_image = result_state_for_source_image

    @property
    def is_result_state_reused_across_batch(self) -> bool:
        """``True``: one state for a batch and all its chunks [doc]."""
        return True

    # --- reloads ---

    def reload_mean_and_variance_from_data_source(self) -> None:
        """Load mean and variance again, for all later encodes. No error changes them."""
        new = self._reloaded(self.data_source)
        self._replace(mean=new.mean, variance=new.variance)

    def reload_mean_and_variance(
        self,
        mean_and_variance_state: MPSCNNNormalizationMeanAndVarianceState,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> None:
        """Read mean and variance from a state; otherwise as :meth:`reload_gamma_and_beta`."""
        mean, variance = self._from_state("mean_and_variance", mean_and_variance_state, command_buffer)
        self._replace(mean=mean, variance=variance)

    def reload_data_source(self, data_source: MPSCNNBatchNormalizationDataSource) -> None:
        """Replace the data source and load its vectors, but not epsilon. Deprecated by Apple [doc]."""
        self._reload_data_source(data_source)

    def _details(self) -> str:
        return f", neuron={self.fused_neuron_descriptor!r}"


# --- gradient kernels -------------------------------------------------------------------------------------------------


GRADIENT_SIDES = (
    "offset",
    "source_feature_channel_offset",
    "source_feature_channel_max_count",
    "stride_in_pixels_x",
    "stride_in_pixels_y",
)
WHOLE_GRADIENT = (
    "clip_rect",
    "destination_feature_channel_offset",
    "kernel_offset_x",
    "kernel_offset_y",
    *(f"{side}_{name}" for side in ("primary", "secondary") for name in GRADIENT_SIDES),
)
"""The properties that must keep their defaults: the gradient for a region of an image is not documented."""


@constructed(init=False)
class _BatchGradientKernel(WindowedGradient):
    """A gradient kernel with the neuron of its forward kernel."""

    forward_class = MPSCNNBatchNormalization

    fused_neuron_descriptor: Argument[MPSNNNeuronDescriptor | None] = Argument(
        optional(neuron_descriptor), "The neuron that follows in the forward kernel, or ``None``.", default=None
    )

    def _arguments(
        self,
        source_gradient: ImageLike,
        source_image: ImageLike,
        given: StateLike | None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> tuple[Chunks, Chunks, MPSCNNBatchNormalizationState]:
        """Return the chunks of both images and the state, checked."""
        gradients = chunks_of("source_gradient", source_gradient, command_buffer)
        sources = chunks_of("source_image", source_image, command_buffer)
        state = checked_state("batch_normalization_state", given, gradients, command_buffer)
        if len(gradients) != len(sources):
            raise ShapeError(
                f"source_gradient has {len(gradients)} parts and source_image {len(sources)}; both must have as many"
            )
        kernel = state._kernel
        for g, x in zip(gradients, sources, strict=True):
            if g.array.shape != x.array.shape:
                raise ShapeError(f"{g.name} has shape {g.array.shape} and {x.name} {x.array.shape}; both must be equal")
            if x.array.shape[3] != kernel._loaded.number_of_feature_channels:
                check_channels(sources, kernel._loaded.number_of_feature_channels)  # raises
        if kernel._neuron != self._neuron:
            raise ValueError(
                f"fused_neuron_descriptor is {self.fused_neuron_descriptor!r}; the kernel that made "
                f"batch_normalization_state has {kernel.fused_neuron_descriptor!r}, and both must be equal"
            )
        return gradients, sources, state

    def _set_arguments(self, **values: Any) -> None:
        super()._set_arguments(**values)
        self._neuron = neuron_of(self.fused_neuron_descriptor)

    def _infer_destination(self, sources: Sequence[ImageArgument], state: Any) -> tuple[Shape, DType]:
        g, x = sources
        self._arguments(g.value, x.value, state)
        return self._place(sources, None, None)

    _is_whole = True

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        require_defaults(self, *WHOLE_GRADIENT)
        g, x = sources
        return x.array.shape, g.array.dtype.newbyteorder("=")

    def _operands(self, state: MPSCNNBatchNormalizationState) -> tuple[Any, ...]:
        """Return the function of the forward kernel, mean, variance, gamma and beta."""
        return state._kernel.function, *state.current_statistics(), *state._kernel.scale


@constructed()
class MPSCNNBatchNormalizationStatisticsGradient(StatisticsOnly, _BatchGradientKernel):
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
        gradients, sources, state = self._arguments(
            source_gradients, source_images, batch_normalization_state, command_buffer
        )
        if command_buffer is not None:
            check_encodable(command_buffer)
        require_defaults(self, *WHOLE_GRADIENT)
        (function, *vectors), sums = self._operands(state), state.sums_so_far()
        for g, x in zip(gradients, sources, strict=True):
            sums = function.statistics_gradient(g.array, x.array, *vectors, state=sums, backend=self.backend)
        if sums is not None and images_in(sources):
            state.write_sums(sums)
        count_reads((*gradients, *sources))
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
        gradients, sources, state = self._arguments(source_gradient, source_image, given_state, command_buffer)
        if command_buffer is not None:
            check_encodable(command_buffer)
        results = encoded(self, destination_gradient, (gradients, sources), None, command_buffer, state)
        if images_in(sources):
            state.use_sums()
        count_reads((*gradients, *sources))
        state._count_read()
        return results[0] if gradients and gradients[0].value is source_gradient else results

    encode_batch = batch_form(encode)

    def _operands(self, state: MPSCNNBatchNormalizationState) -> tuple[Any, ...]:
        """Return also the number of pixels of the batch, and its sums."""
        sums = state.complete_sums() or (0, None, None)
        return state._kernel.function, *state.current_statistics(), *state._kernel.scale, *sums

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        return Computation(compute=_gradient, returns_result=True)


def _gradient(images: Sequence[Array], backend: Any, function: Any, *operands: Any) -> Array:
    *vectors, count, dbeta, dgamma = operands  # of a complete state, so they need no check
    return registry.call(function, "gradient", (*images, *vectors, dbeta, dgamma), backend=backend, count=count)


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
        record = step_state["call"].record
        state = MPSCNNBatchNormalizationState(self.kernel, record)
        if "statistics" in step_state:
            state.write_statistics(step_state["statistics"])
        if "gradients" in step_state:
            pixels = math.prod(record.source_shapes[0][:3])
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

    def _compute(self, step: StepCall, *images: Array) -> Array | None:
        g, x = images
        spec, parameters = step.call.spec, step.parameters
        statistics = step.state.get("statistics")
        mean, variance = parameters["mean"], parameters["variance"]
        if statistics is not None:
            mean, variance = statistics.mean, step.state["variance"]
        scale = parameters["gamma"], parameters["beta"]
        sums = None
        if statistics is not None or step.trains:
            sums = spec.statistics_gradient(g, x, mean, variance, *scale, backend=step.backend)
            if step.trains:
                accumulate(step.state, "gradients", (sums.dbeta, sums.dgamma))
        if not step.result_is_needed:
            return None
        batch = None if statistics is None else sums
        return spec.gradient(g, x, mean, variance, *scale, sums=batch, backend=step.backend)  # type: ignore[no-any-return]


class MPSCNNBatchNormalizationNode(NormalizationNode):
    """Batch normalization with the parameters of a data source."""

    kind = "bn"
    spec_class = BatchNormalization
    kernel_class = MPSCNNBatchNormalization
    _parameters_class = _Parameters
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

    def _compute(self, step: StepCall, *images: Array) -> Array:
        spec, parameters, x = step.call.spec, step.parameters, images[0]
        mean, variance = parameters["mean"], parameters["variance"]
        if self._uses_batch(step.trains):
            statistics = spec.statistics(x, backend=step.backend)
            mean, variance = statistics.mean, statistics.variance
            step.state["statistics"], step.state["variance"] = statistics, variance
        elif mean is None:
            raise OrderError(
                f"{self.name}: the data source has no mean and variance, which inference needs; let it return those of "
                'training, or set flags to "always"'
            )
        return spec.forward(x, mean, variance, parameters["gamma"], parameters["beta"], backend=step.backend)  # type: ignore[no-any-return]
