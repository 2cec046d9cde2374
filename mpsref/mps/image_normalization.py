"""What the kernels of instance and group normalization share: parameters in force, reloads, gradient states.

Statistics are those of each image, so there is nothing to keep between calls but gamma, beta and epsilon, which belong
to the forward kernel; the gradient kernel reads them through the state, when it is encoded [choice].

Source: ``MPSCNNInstanceNormalization.h``, ``MPSCNNGroupNormalization.h`` [doc].
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import integer
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.kernels.group_normalization import ImageNormalization
from mpsref.kernels.normalization import FLT_MIN, real
from mpsref.mps.core.clip_regions import Region
from mpsref.mps.core.command_buffer import MPSCommandBuffer, SynchronizedState, check_encodable
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.image_lists import ForwardOfLists, GradientOfLists
from mpsref.mps.core.properties import Property, fix
from mpsref.mps.core.serialization import SecureCoding
from mpsref.mps.core.state import ForwardRecord, MPSNNGradientState
from mpsref.mps.core.whole_image import IMAGE, require_defaults, require_whole
from mpsref.mps.image_normalization_data_source import InstanceNormalizationDataSource, LoadedParameters
from mpsref.mps.normalization_states import MPSCNNNormalizationGammaAndBetaState
from mpsref.registry import Backend

__all__ = ["ImageNormalizationGradient", "ImageNormalizationGradientState", "ImageNormalizationKernel"]

WHOLE = tuple(name for name in IMAGE if name != "edge_mode")


def _epsilon(name: str, value: Any) -> float:
    return real(name, value, low=0)


class GradientsOfImages(NamedTuple):
    """What a kernel on the device reads of a state: rows (N, C) for a batch, (C,) for one image."""

    gamma: Array
    """The kernel's scale in force (C,)."""
    beta: Array
    gradient_for_gamma: Array | None
    """``None`` before the gradient kernel has been encoded."""
    gradient_for_beta: Array | None


class ImageNormalizationGradientState(MPSNNGradientState, SynchronizedState):
    """What a forward kernel leaves for its gradient, and that for the update of gamma and beta.

    One object carries the whole batch: ``gradient_for_gamma`` and ``gradient_for_beta`` are (N, C), a row for each
    image, not summed. ``len(state)`` is N; ``state[n]`` and iteration give the states of single images, with (C,).
    """

    __eq__ = object.__eq__  # two states with the same record hold different gradients
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, record: ForwardRecord) -> None:
        """Make the state of one forward pass; it has no gradients yet."""
        super().__init__(record)
        self._gradients: tuple[Array, Array] | None = None
        self._batch: ImageNormalizationGradientState = self
        self._image: int | None = None

    @property
    def kernel(self) -> Any:
        """The forward kernel that made the state."""
        return self.record.extras["kernel"]

    @property
    def gamma(self) -> Array:
        """The scale of the kernel (C,), as it is now; ones where the data source has none."""
        gamma: Array = self.kernel.gamma
        return gamma

    @property
    def beta(self) -> Array:
        """The shift of the kernel (C,), as it is now; zeros where the data source has none."""
        beta: Array = self.kernel.beta
        return beta

    @property
    def gradient_for_gamma(self) -> Array | None:
        """dL/dgamma of each image, (N, C), read-only; ``None`` before the gradient has been encoded.

        Raises ``NotSynchronizedError`` before :meth:`synchronize`, until its command buffer has completed.
        """
        return self._read("gradient_for_gamma", 0)

    @property
    def gradient_for_beta(self) -> Array | None:
        """dL/dbeta of each image; otherwise as ``gradient_for_gamma``."""
        return self._read("gradient_for_beta", 1)

    def _read(self, name: str, k: int) -> Array | None:
        if self._batch._gradients is None:
            return None
        self._batch.check_readable(name)
        return self._rows(k)

    def _rows(self, k: int) -> Array | None:
        gradients = self._batch._gradients
        if gradients is None:
            return None
        rows: Array = gradients[k] if self._image is None else gradients[k][self._image]
        return rows

    def device_read(self, command_buffer: MPSCommandBuffer | None = None) -> GradientsOfImages:
        """Return what a kernel that is encoded now reads; no synchronization is needed.

        Raises ``OrderError`` for a committed command buffer.
        """
        check_encodable(command_buffer)
        return GradientsOfImages(self.gamma, self.beta, self._rows(0), self._rows(1))

    def synchronize(self, command_buffer: MPSCommandBuffer | None = None) -> None:
        """Make the gradients readable by the host once ``command_buffer`` has completed; of one image, those of all."""
        if self._batch is self:
            super().synchronize(command_buffer)
        else:
            self._batch.synchronize(command_buffer)

    def write(self, dgamma: Array, dbeta: Array) -> None:
        """Take the gradients of a gradient kernel in place of those that were there."""
        for array in (dgamma, dbeta):
            array.setflags(write=False)
        self._gradients = dgamma, dbeta
        self.written()

    def _refresh(self, record: ForwardRecord) -> None:
        super()._refresh(record)
        self._gradients = None

    def __len__(self) -> int:
        return self.record.source_shapes[0][0]

    def __getitem__(self, image: int) -> Self:
        number = integer("image", image)
        if not -len(self) <= number < len(self):
            raise IndexError(f"image is {number}; the state is of {len(self)} image(s)")
        if self._image is not None:
            raise TypeError("the state is that of one image; index the state of the batch")
        view = type(self)(self.record)
        view._batch, view._image = self, number % len(self)
        return view

    def __iter__(self) -> Iterator[Self]:
        return iter([self]) if self._image is not None else map(self.__getitem__, range(len(self)))

    def __bool__(self) -> bool:
        return True


class ImageNormalizationKernel(ForwardOfLists):
    """A forward kernel with a data source; not a class of Apple's."""

    state_class: ClassVar[type[Any]] = ImageNormalizationGradientState

    data_source = Property(lambda _, value: value, None, "Where gamma and beta come from.", read_only=True)
    epsilon = Property(_epsilon, FLT_MIN, "What is added to a variance, >= 0; from the data source at first.")

    def __init__(self, data_source: Any, *, backend: str | Backend | None = None, **properties: Any) -> None:
        """Load gamma, beta and epsilon; every property that can be set may be given by keyword.

        Raises ``TypeError`` or ``ValueError`` (``OrderError`` if ``load`` fails) for a data source that does not fit.
        """
        self._loaded = self._load(data_source)
        fix(self, data_source=data_source)
        super().__init__(backend=backend, **{"epsilon": self._loaded.epsilon, **properties})

    @abc.abstractmethod
    def _load(self, data_source: Any) -> LoadedParameters:
        """Return what the data source delivers."""

    @abc.abstractmethod
    def _function(self) -> ImageNormalization:
        """Return the functional form."""

    @abc.abstractmethod
    def _ready_source(self) -> InstanceNormalizationDataSource:
        """Return a data source that can be saved, with the parameters in force."""

    @property
    def number_of_feature_channels(self) -> int:
        """C: every image must have so many channels."""
        return self._loaded.channels

    @property
    def gamma(self) -> Array:
        """The scale in force (C,), read-only; ones where the data source has none."""
        return self._effective(self._loaded.gamma, 1)

    @property
    def beta(self) -> Array:
        """The shift in force (C,), read-only; zeros where the data source has none."""
        return self._effective(self._loaded.beta, 0)

    def _effective(self, vector: Array | None, default: int) -> Array:
        if vector is None:
            vector = np.full(self._loaded.channels, default, np.float32)
            vector.setflags(write=False)
        return vector

    @property
    def is_result_state_reused_across_batch(self) -> bool:
        """``False``: each image has a state of its own [doc]; one object here carries all of them [choice]."""
        return False

    def reload_gamma_and_beta_from_data_source(self) -> None:
        """Load gamma and beta again, for all later encodes; ``ValueError`` if the number of channels has changed.

        ``epsilon`` stays as it is. After any error so do gamma and beta.
        """
        self._replace(self._load(self.data_source))

    def _replace(self, loaded: LoadedParameters) -> None:
        if loaded.channels != self._loaded.channels:
            raise ValueError(
                f"data_source.number_of_feature_channels is now {loaded.channels}; a reload cannot change it from "
                f"{self._loaded.channels}: make another kernel"
            )
        self._loaded = loaded

    def reload_gamma_and_beta(
        self,
        gamma_and_beta_state: MPSCNNNormalizationGammaAndBetaState,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> None:
        """Take the values that the state holds at this point of the command buffer, for all encodes after it.

        A longer state gives its first C values. Raises ``TypeError`` for another class, ``ShapeError`` for a shorter
        one; then the old values stay in force.
        """
        if not isinstance(gamma_and_beta_state, MPSCNNNormalizationGammaAndBetaState):
            raise TypeError(
                f"gamma_and_beta_state is of type {type(gamma_and_beta_state).__name__}; it must be an "
                "MPSCNNNormalizationGammaAndBetaState"
            )
        gamma, beta = gamma_and_beta_state.device_read(self._loaded.channels, command_buffer)
        self._loaded = dataclasses.replace(self._loaded, gamma=gamma, beta=beta, from_data_source=False)

    def _encode(
        self,
        sources: Any,
        destination_image: Any,
        destination_size: Any,
        return_state: bool,
        destination_state: Any,
        command_buffer: MPSCommandBuffer | None,
    ) -> Any:
        """Refuse the state of another kernel, and that of a single image; then encode."""
        if type(destination_state) is self.state_class:
            if destination_state.kernel is not self:
                raise ValueError("destination_state was made by another kernel; pass one of this kernel's, or None")
            _check_whole("destination_state", destination_state)
        return super()._encode(
            sources, destination_image, destination_size, return_state, destination_state, command_buffer
        )

    def _select(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[list[Array], Region]:
        require_defaults(self, *WHOLE)
        parts, region = super()._select(sources, shape)
        if parts[0].shape[3] != self._loaded.channels:
            raise ShapeError(
                f"source_image has {parts[0].shape[3]} channels; number_of_feature_channels of the data source is "
                f"{self._loaded.channels}: both must be equal"
            )
        require_whole(self, self.destination_name, region, sources[0].array.shape)
        return parts, region

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        loaded = self._loaded
        self._function().forward(parts[0], loaded.gamma, loaded.beta, out=destination[region], backend=self.backend)

    def _extras(self) -> Mapping[str, Any]:
        return {"kernel": self}

    def saved_values(self) -> dict[str, Any]:
        """Return what is saved: the data source if it can be and has not been overtaken by a state, else its values."""
        values = super().saved_values()
        if self._loaded.from_data_source and isinstance(self.data_source, SecureCoding):
            return values
        return values | {"data_source": self._ready_source()}

    def __repr__(self) -> str:
        source = type(self.data_source).__name__
        return f"<{type(self).__name__}: {self._loaded.channels} channels from {source}, epsilon={self.epsilon!r}>"


class ImageNormalizationGradient(GradientOfLists):
    """The gradient: for the source image, and for gamma and beta, which go to the state; not a class of Apple's."""

    state_class: ClassVar[type[Any]] = ImageNormalizationGradientState

    def encode(  # type: ignore[override]  # as in the parent class
        self,
        source_gradient: Any,
        source_image: Any,
        gradient_state: Any = None,
        destination_gradient: Any = None,
        **options: Any,
    ) -> Any:
        """Return the gradient for ``source_image``; those for gamma and beta replace what ``gradient_state`` has.

        The state is that of the forward pass, whose kernel has gamma and epsilon; it cannot be left out. Mean and
        variance are those of ``source_image``. Otherwise as in :meth:`mpsref.mps.MPSCNNGradientKernel.encode`; lists of
        arrays are taken too.
        """
        if gradient_state is None:
            raise ValueError("gradient_state is None; pass the state of the forward pass, whose kernel has the epsilon")
        return super().encode(source_gradient, source_image, gradient_state, destination_gradient, **options)

    encode_batch = encode

    def _check_state(self, state: Any) -> None:
        super()._check_state(state)
        _check_whole("gradient_state", state)

    def _run_with_state(
        self,
        state: Any,
        sources: tuple[ImageArgument, ImageArgument],
        given: ImageArgument | None,
        shape: Shape,
        dtype: Any,
    ) -> Array | None:
        """Compute everything, then write the state: an error before leaves it alone."""
        g, x = (one.array for one in sources)
        self._check_defaults()
        if not g.shape == x.shape == shape == state.record.source_shapes[0]:
            raise ShapeError(
                f"source_gradient has shape {g.shape}, source_image {x.shape}, destination_gradient {shape} and the "
                f"source image of the forward pass {state.record.source_shapes[0]}; all must be equal"
            )
        kernel = state.kernel
        dx, *gradients = kernel._function().gradient(g, x, kernel._loaded.gamma, backend=self.backend)
        if given is not None:
            with np.errstate(over="ignore"):  # storing in float16 may overflow to infinity
                given.array[...] = dx
        state.write(*gradients)
        result: Array = dx
        return result

    def _check_defaults(self) -> None:
        names = "primary_offset", "secondary_offset", "kernel_offset_x", "kernel_offset_y", "clip_rect"
        channels = "primary_source_feature_channel_offset", "secondary_source_feature_channel_offset"
        require_defaults(self, *names, *channels, "destination_feature_channel_offset")

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        """Not reached: the three results are computed together, with the state."""
        raise UnsupportedError(f"{type(self).__name__} needs a gradient_state")


def _check_whole(name: str, state: ImageNormalizationGradientState) -> None:
    """Raise ``ValueError`` for the state of one image."""
    if state._image is not None:
        raise ValueError(f"{name} is that of one image, {name}[{state._image}]; pass the state of the whole batch")
