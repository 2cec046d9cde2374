"""Batch normalization with Apple's names: the statistics of a batch, and the normalization.

A training step, with the batch in two parts:

>>> import numpy as np
>>> from mpsref.mps.batch_normalization_data_source import BatchNormalizationDataSource
>>> norm = MPSCNNBatchNormalization(BatchNormalizationDataSource(1, gamma=[2.0], beta=[0.5], epsilon=1.5))
>>> x = np.array([1, 2, 4, 5], np.float32).reshape(2, 1, 2, 1)
>>> state = norm.result_state_for_source_image(x)
>>> statistics = MPSCNNBatchNormalizationStatistics()
>>> statistics.encode_batch(x[:1], state)
>>> statistics.encode_batch(x[1:], state)
>>> norm.encode(x, batch_normalization_state=state).ravel().tolist()
[-1.5, -0.5, 1.5, 2.5]
>>> state.synchronize()
>>> state.mean.tolist(), state.variance.tolist()
([3.0], [2.5])

Source: ``MPSCNNBatchNormalization.h`` [doc].
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import pair
from mpsref.errors import OrderError, ShapeError
from mpsref.kernels.batch_normalization import BatchNormalization
from mpsref.kernels.neuron import Neuron
from mpsref.kernels.normalization import real
from mpsref.mps.batch_normalization_data_source import BatchNormalizationDataSource, LoadedParameters, load
from mpsref.mps.batch_normalization_images import (
    Parts,
    check_channels,
    destinations,
    is_list_of_arrays,
    parts_of,
    refuse,
    store,
)
from mpsref.mps.batch_normalization_state import MPSCNNBatchNormalizationState
from mpsref.mps.core import image_arguments
from mpsref.mps.core.clip_regions import destination_region
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.kernel import Encoding, MPSCNNKernel, saved
from mpsref.mps.core.properties import Property, fix, optional
from mpsref.mps.core.serialization import SecureCoding
from mpsref.mps.core.state import one_state
from mpsref.mps.core.whole_image import require_defaults
from mpsref.mps.neuron import MPSNNNeuronDescriptor, neuron_descriptor
from mpsref.mps.normalization_states import (
    MPSCNNNormalizationGammaAndBetaState,
    MPSCNNNormalizationMeanAndVarianceState,
)
from mpsref.registry import Backend

__all__ = [
    "MPSCNNBatchNormalization",
    "MPSCNNBatchNormalizationStatistics",
    "checked_state",
    "images_in",
    "neuron_of",
]

WHOLE = (
    "offset",
    "clip_rect",
    "destination_feature_channel_offset",
    "source_feature_channel_offset",
    "source_feature_channel_max_count",
)
"""What must have its default: statistics of all pixels and a result on a part of them have no documented gradient."""


def neuron_of(descriptor: MPSNNNeuronDescriptor | None) -> Neuron | None:
    """Return the functional form; none at all for the type None, which does nothing."""
    return None if descriptor is None or descriptor.neuron.type == "none" else descriptor.neuron


def checked_state(name: str, value: Any, images: int) -> MPSCNNBatchNormalizationState:
    """Return a batch's state, or the one that a list names for each image; ``TypeError`` for what is none."""
    state = one_state(name, value, images)
    if not isinstance(state, MPSCNNBatchNormalizationState):
        raise TypeError(
            f"{name} is of type {type(state).__name__}; it must be the MPSCNNBatchNormalizationState that "
            "MPSCNNBatchNormalization.result_state_for_source_image returns"
        )
    return state


def images_in(parts: Parts) -> int:
    """Return how many images there are in all parts."""
    return sum(one.array.shape[0] for one in parts)


@saved()
class MPSCNNBatchNormalizationStatistics(MPSCNNKernel):
    """The statistics of a batch, added to a state in one call or in several: :meth:`BatchNormalization.statistics`.

    The parts of a batch may be of any size, also of different ones, and come in any order. All pixels of all images
    count. There is no destination image, so ``encode`` is unavailable [doc].
    """

    append_batch_barrier = True
    """All parts of a batch are to be finished before the normalization starts. Source: [doc]."""

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        """Raise ``UnsupportedError``: use :meth:`encode_batch`."""
        raise refuse(self, "encode", "it makes no image; use encode_batch(source_images, batch_normalization_state)")

    def encode_batch(  # type: ignore[override]  # as Apple's: no other encode is left
        self,
        source_images: Any,
        batch_normalization_state: Any,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> None:
        """Add the pixels of ``source_images`` to the statistics in the state.

        They are an array (N, H, W, C), or a list of such arrays. A state whose statistics were used starts a new batch.
        Without images nothing happens. On an error, ``ValueError`` or ``TypeError`` for what does not fit,
        ``OrderError`` for a committed ``command_buffer``, the state stays as it was.
        """
        parts = parts_of("source_images", source_images)
        state = checked_state("batch_normalization_state", batch_normalization_state, images_in(parts))
        with Encoding(self, command_buffer):
            require_defaults(self, *WHOLE)
            check_channels(parts, state.batch_normalization.number_of_feature_channels)
            norm, seen = BatchNormalization(), state.batch_so_far()
            for one in parts:
                seen = norm.statistics(one.array, seen, backend=self.backend)
            if seen is not None and images_in(parts):
                state.write_statistics(seen)

    def _compute(self, *_: Any) -> None:
        raise AssertionError("encode_batch does not go this way")


@saved("data_source", "fused_neuron_descriptor")
class MPSCNNBatchNormalization(MPSCNNKernel):
    """The normalization of images (N, H, W, C), with a fused neuron: :meth:`BatchNormalization.forward`.

    Without a state it uses the mean and variance of its data source (inference), with one those of the batch. Vectors
    are copied when the kernel is made, and change by a reload alone.
    """

    data_source = Property(lambda _, value: value, None, "Where the vectors come from.", read_only=True)
    fused_neuron_descriptor = Property(
        optional(neuron_descriptor), None, "The neuron that follows, or ``None``.", read_only=True
    )
    epsilon = Property(
        lambda name, value: real(name, value, low=0), 0.0, "What is added to a variance; at first the data source's."
    )
    _loaded: LoadedParameters

    def __init__(
        self,
        data_source: Any,
        fused_neuron_descriptor: MPSNNNeuronDescriptor | None = None,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Load the vectors; every property that can be set may be given by keyword.

        Raises ``TypeError`` or ``ValueError`` (``OrderError`` if ``load`` fails) for a data source that does not fit,
        ``ShapeError`` for a PReLU with another number of slopes than there are channels.
        """
        self._loaded = load(data_source)
        fix(self, data_source=data_source, fused_neuron_descriptor=fused_neuron_descriptor)
        slopes = None if self.fused_neuron_descriptor is None else self.fused_neuron_descriptor.data
        if slopes is not None and len(slopes) != self._loaded.channels:
            raise ShapeError(
                f"fused_neuron_descriptor has {len(slopes)} slopes; the data source has {self._loaded.channels} "
                "channels, and there must be one for each"
            )
        super().__init__(backend=backend, **{"epsilon": self._loaded.epsilon, **properties})

    @property
    def number_of_feature_channels(self) -> int:
        """C: what every image must have."""
        return self._loaded.channels

    @property
    def scale(self) -> tuple[Array, Array]:
        """Gamma and beta as they are now, (C,) each, read-only; ones and zeros where the data source has none."""
        gamma, beta = self._loaded.gamma, self._loaded.beta
        if gamma is not None and beta is not None:
            return gamma, beta
        dtype = np.result_type(np.float32, *(vector for vector in (gamma, beta) if vector is not None))
        ones, zeros = np.ones(self._loaded.channels, dtype), np.zeros(self._loaded.channels, dtype)
        for vector in (ones, zeros):
            vector.setflags(write=False)
        return ones if gamma is None else gamma, zeros if beta is None else beta

    @property
    def statistics(self) -> tuple[Array | None, Array | None]:
        """Mean and variance for inference as they are now, (C,) each, read-only; ``None`` for both without any."""
        return self._loaded.mean, self._loaded.variance

    @property
    def function(self) -> BatchNormalization:
        """The functional form, with the epsilon of now."""
        return BatchNormalization(self.epsilon, neuron_of(self.fused_neuron_descriptor))

    @property
    def is_result_state_reused_across_batch(self) -> bool:
        """``True``: one state serves all images of a batch. Source: [doc]."""
        return True

    # --- encodes ---

    def encode(
        self,
        source_image: Any,
        destination_image: Any = None,
        batch_normalization_state: Any = None,
        *,
        destination_size: Any = None,
        return_state: bool = False,
        destination_state: Any = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Normalize ``source_image`` (N, H, W, C); return the destination, of the kind that was passed in.

        With a ``batch_normalization_state`` the statistics in it are used, and count as used from then on; without one
        those of the data source (``OrderError`` where it has none). A list of arrays gives a list. The destination has
        the shape of the source. ``return_state`` and ``destination_state`` are unavailable [doc].

        Nothing is written, and state and properties stay as they were, when an error is raised: ``ValueError`` or
        ``TypeError`` for what does not fit, ``OrderError`` for a committed ``command_buffer``.
        """
        if return_state or destination_state is not None:
            raise refuse(self, "encode with a destination state", "make one with result_state_for_source_image()")
        parts = parts_of("source_image", source_image)
        state = None
        if batch_normalization_state is not None:
            state = checked_state("batch_normalization_state", batch_normalization_state, images_in(parts))
            if state.batch_normalization is not self:
                raise ValueError(
                    "batch_normalization_state was made by another kernel; pass one that this kernel's "
                    "result_state_for_source_image() made"
                )
        if destination_image is not None and destination_size is not None:
            raise ValueError("destination_image and destination_size are both given; pass one of them, or neither")
        with Encoding(self, command_buffer):
            check_channels(parts, self.number_of_feature_channels)
            dtypes = [self._placed(one, destination_image, destination_size) for one in parts]
            require_defaults(self, *WHOLE)
            given = destinations("destination_image", destination_image, (parts,))
            mean, variance = self._in_force() if state is None else state.statistics_in_force()

            def compute(x: Array, out: Any = None) -> Array:
                scale = self._loaded.gamma, self._loaded.beta
                return self.function.forward(x, mean, variance, *scale, out=out, backend=self.backend)

            results = []
            for one, target, dtype in zip(parts, given, dtypes, strict=True):
                array = store(compute, [one.array], target, dtype)
                results.append(
                    image_arguments.like(one.value, array) if target is None else image_arguments.written(target)
                )
            if state is not None and images_in(parts):
                state.use_statistics()
            return results if is_list_of_arrays(source_image) else results[0]

    encode_batch = encode

    def _placed(self, source: Any, destination_image: Any, destination_size: Any) -> Any:
        """Return the dtype of a new destination, whose size must be that of the source."""
        size = source.array.shape[1:3]
        if destination_size is not None:
            shape, dtype = pair("destination_size", destination_size, low=1), source.array.dtype
        elif destination_image is None:
            (_, height, width, _), dtype = self._place((source,))
            shape = height, width
        else:
            return source.array.dtype
        if shape != size:
            raise ShapeError(f"the destination would have size {shape}; it must be that of the source, {size}")
        return dtype

    def _in_force(self) -> tuple[Array, Array]:
        mean, variance = self.statistics
        if mean is None or variance is None:
            raise OrderError(
                "the data source has no mean and variance, and no batch_normalization_state is given; pass the state "
                "that MPSCNNBatchNormalizationStatistics has written, or give the data source mean() and variance()"
            )
        return mean, variance

    def _compute(self, *_: Any) -> None:
        raise AssertionError("encode does not go this way")

    # --- states ---

    def result_state_for_source_image(
        self, source_image: Any, source_states: Any = None, destination_image: Any = None
    ) -> MPSCNNBatchNormalizationState:
        """Return a new state for a batch, of which ``source_image`` may be any part.

        ``source_states`` has no state, as no other kernel's goes in. Raises ``ValueError`` or ``TypeError`` for images
        that do not fit.
        """
        if source_states is not None and len(source_states):
            raise ValueError(f"source_states has {len(source_states)} states; {type(self).__name__} takes none")
        parts = parts_of("source_image", source_image)
        if not parts:
            raise ValueError("source_image is an empty list; pass one part of the batch at least")
        check_channels(parts, self.number_of_feature_channels)
        destinations("destination_image", destination_image, (parts,))
        first = parts[0]
        shape = first.array.shape
        region = destination_region(self.destination_name, shape, None, 0, shape[3])
        return MPSCNNBatchNormalizationState(self, self._record((first,), shape, region))

    result_state_batch_for_source_image = result_state_for_source_image

    # --- reloads ---

    def reload_gamma_and_beta_from_data_source(self) -> None:
        """Load gamma and beta again, for all later encodes; after an error the old ones stay."""
        new = self._reloaded(self.data_source)
        self._replace(gamma=new.gamma, beta=new.beta)

    def reload_mean_and_variance_from_data_source(self) -> None:
        """Load mean and variance again, for all later encodes; after an error the old ones stay."""
        new = self._reloaded(self.data_source)
        self._replace(mean=new.mean, variance=new.variance)

    def reload_gamma_and_beta(self, gamma_and_beta_state: Any, command_buffer: MPSCommandBuffer | None = None) -> None:
        """Take gamma and beta from a state, as it is at this point of the command buffer.

        A state with more channels than the kernel gives its first ones [doc]; ``ShapeError`` for one with fewer.
        """
        gamma, beta = self._from_state(gamma_and_beta_state, MPSCNNNormalizationGammaAndBetaState, command_buffer)
        self._replace(gamma=gamma, beta=beta)

    def reload_mean_and_variance(
        self, mean_and_variance_state: Any, command_buffer: MPSCommandBuffer | None = None
    ) -> None:
        """Take mean and variance from a state; as :meth:`reload_gamma_and_beta` does."""
        found = self._from_state(mean_and_variance_state, MPSCNNNormalizationMeanAndVarianceState, command_buffer)
        self._replace(mean=found[0], variance=found[1])

    def _replace(self, **vectors: Any) -> None:
        """Put vectors that fit, and never change, in the place of those in force, by name."""
        self._loaded = dataclasses.replace(self._loaded, **vectors)

    def reload_data_source(self, data_source: Any) -> None:
        """Take another data source, and all four vectors from it; epsilon stays. Deprecated by Apple [doc]."""
        self._loaded = self._reloaded(data_source)
        self._assign(data_source=data_source)

    def _reloaded(self, data_source: Any) -> LoadedParameters:
        new = load(data_source)
        if new.channels != self._loaded.channels:
            raise ShapeError(
                f"data_source.number_of_feature_channels is {new.channels}; the kernel was made with "
                f"{self._loaded.channels}: make another kernel"
            )
        return new

    def _from_state(self, state: Any, kind: Any, command_buffer: MPSCommandBuffer | None) -> tuple[Array, Array]:
        if not isinstance(state, kind):
            raise TypeError(f"the state is of type {type(state).__name__}; it must be an {kind.__name__}")
        vectors: tuple[Array, Array] = state.device_read(self.number_of_feature_channels, command_buffer)
        return vectors

    # --- archives ---

    def saved_values(self) -> dict[str, Any]:
        """Return what is saved: the data source if it can be and has the vectors in force, otherwise these vectors."""
        values = super().saved_values()
        loaded = dataclasses.replace(self._loaded, epsilon=self.epsilon)
        if _can_be_saved(self.data_source):
            there = dataclasses.replace(load(self.data_source), epsilon=self.epsilon)
            if there == loaded:
                return values
        vectors = loaded.gamma, loaded.beta, loaded.mean, loaded.variance
        return values | {"data_source": BatchNormalizationDataSource(loaded.channels, *vectors, self.epsilon)}

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {self.number_of_feature_channels} channels from "
            f"{type(self.data_source).__name__}, epsilon={self.epsilon!r}, neuron={self.fused_neuron_descriptor!r}>"
        )


def _can_be_saved(data_source: Any) -> bool:
    """Tell a data source of a class that is registered for saving."""
    try:
        return isinstance(data_source, SecureCoding) and bool(data_source.saved_values())
    except ValueError:
        return False
