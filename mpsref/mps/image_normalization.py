"""Instance and group normalization with Apple's names: kernels, gradients, states and nodes.

>>> import numpy as np
>>> source = InstanceNormalizationDataSource(2, gamma=[2, 3], beta=[0, 1], epsilon=3.0)
>>> norm, gradient = MPSCNNInstanceNormalization(source), MPSCNNInstanceNormalizationGradient()
>>> x = np.array([[1, 10], [3, 14]], float).reshape(1, 1, 2, 2)
>>> y, state = norm.encode(x, return_state=True)
>>> y.ravel().round(4).tolist()
[-1.0, -1.2678, 1.0, 3.2678]
>>> g = np.array([[1, 1], [2, 0]], float).reshape(1, 1, 2, 2)
>>> gradient.encode(g, x, state).ravel().round(4).tolist()
[-0.375, 0.243, 0.375, -0.243]
>>> state.synchronize()
>>> state.gradient_for_gamma.round(4).tolist(), state[0].gradient_for_beta.tolist()
([[0.5, -0.7559]], [3.0, 1.0])

>>> source = GroupNormalizationDataSource(4, number_of_groups=2, epsilon=4.0)
>>> norm = MPSCNNGroupNormalization(source)
>>> x = np.array([1, 3, 2, 6, 5, 7, 2, 10], float).reshape(1, 1, 2, 4)
>>> y, state = norm.encode(x, return_state=True)
>>> y[0, 0, :, :2].round(4).tolist()
[[-1.0, -0.3333], [0.3333, 1.0]]
>>> len(state), state.gradient_for_gamma, state.group_normalization is norm
(1, None, True)

Statistics are those of each image. The gradient kernel computes them again, and reads gamma and epsilon of the forward
kernel, which its state names, at the time of the encode [choice weights-at-encode].

Source: ``MPSCNNInstanceNormalization.h``, ``MPSCNNGroupNormalization.h``, ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, ClassVar, Self

import numpy as np

from mpsref.arguments.arrays import Array, DType, Shape, is_array
from mpsref.arguments.parameters import Pair, integer
from mpsref.arguments.text import shown
from mpsref.errors import ShapeError
from mpsref.kernels import GroupNormalization, InstanceNormalization
from mpsref.mps.core.call import Call, Computation, made, problem_of
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.gradient_kernel import WindowedGradient
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.properties import Alias, constructed
from mpsref.mps.core.state import BufferState, ForwardRecord, RecordedState, Synchronized
from mpsref.mps.core.whole_image import DESTINATION, require_defaults
from mpsref.mps.graph.nodes import StepCall, StepState
from mpsref.mps.graph.trainable import TrainableGradientNode, accumulate
from mpsref.mps.normalization import NormalizationKernel, NormalizationNode, NormalizationParameters
from mpsref.mps.normalization_data_source import (
    GroupNormalizationDataSource,
    InstanceNormalizationDataSource,
    MPSCNNInstanceNormalizationDataSource,
    NormalizationBuffers,
    read_only,
)
from mpsref.registry import Spec

WHOLE_GRADIENT = (
    *DESTINATION,
    *("kernel_offset_x", "kernel_offset_y"),
    *(f"{side}_{name}" for name in ("offset", "source_feature_channel_offset") for side in ("primary", "secondary")),
)
"""The properties of gradient kernels that must keep their defaults."""


class ImageNormalizationGradientState(BufferState):
    """The state of a forward kernel, to which its gradient kernel writes the gradients for gamma and beta.

    There is one object for the whole batch: ``gradient_for_gamma`` and ``gradient_for_beta`` are (N, C), a row for each
    image, not summed. ``len(state)`` is N; ``state[n]`` and iteration give the states of single images, with (C,).
    """

    def __init__(self, record: ForwardRecord) -> None:
        """Make the state of one forward pass; it has no gradients yet."""
        super().__init__(record)
        self._gradients: tuple[Array, Array] | None = None
        self._batch: ImageNormalizationGradientState = self
        self._image: int | None = None

    kernel: Alias[ImageNormalizationKernel] = Alias(
        "record.extras", "The forward kernel that made the state.", itemgetter("kernel")
    )
    gamma: Alias[Array] = Alias(
        "kernel.gamma", "The scale of the kernel (C,), as it is now; ones where the data source has none."
    )
    beta: Alias[Array] = Alias(
        "kernel.beta", "The shift of the kernel (C,), as it is now; zeros where the data source has none."
    )

    gradient_for_gamma: Synchronized[Array | None] = Synchronized(
        "_buffers.gradient_for_gamma",
        """dL/dgamma of each image, (N, C), read-only; ``None`` before the gradient has been encoded.

        Raises ``NotSynchronizedError`` before :meth:`synchronize`, until its command buffer has completed.
        """,
    )
    gradient_for_beta: Synchronized[Array | None] = Synchronized(
        "_buffers.gradient_for_beta", "dL/dbeta of each image; otherwise as ``gradient_for_gamma``."
    )

    def check_readable(self, name: str) -> None:
        """Raise ``NotSynchronizedError`` unless the host may read the gradients of the batch, if there are any."""
        if self._batch is not self:
            self._batch.check_readable(name)
        elif self._gradients is not None:
            super().check_readable(name)

    def device_read(self, command_buffer: MPSCommandBuffer | None = None) -> NormalizationBuffers:
        """Return the vectors for a kernel that is encoded now; no synchronization is needed.

        Raises ``OrderError`` for a committed command buffer.
        """
        check_encodable(command_buffer)
        self._read_by_kernel(command_buffer)
        return self._buffers

    @property
    def _buffers(self) -> NormalizationBuffers:
        rows: Sequence[Array | None] = self._batch._gradients or (None, None)
        if self._image is not None:
            rows = [None if gradient is None else gradient[self._image] for gradient in rows]
        return NormalizationBuffers(self.gamma, self.beta, *rows)

    def synchronize(self, command_buffer: MPSCommandBuffer | None = None) -> None:
        """Make the gradients of all images readable by the host once ``command_buffer`` has completed."""
        if self._batch is self:
            super().synchronize(command_buffer)
        else:
            self._batch.synchronize(command_buffer)

    def write(self, dgamma: Array, dbeta: Array) -> None:
        """Store the gradients of a gradient kernel, arrays (N, C)."""
        shape = len(self), self.kernel.gamma.size
        for name, array in (("dgamma", dgamma), ("dbeta", dbeta)):
            if not is_array(array) or array.shape != shape:
                raise ShapeError(f"{name} is {shown(array)}; it must be an array of shape {shape}")
        self._gradients = read_only(dgamma), read_only(dbeta)
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


# --- kernels ----------------------------------------------------------------------------------------------------------


class ImageNormalizationKernel(NormalizationKernel):
    """A forward kernel with a data source; not a class of Apple's."""

    accepts_lists, recorded = True, ("_kernel",)

    state_class: ClassVar[type[ImageNormalizationGradientState]] = ImageNormalizationGradientState

    @property
    @abc.abstractmethod
    def function(self) -> InstanceNormalization | GroupNormalization:
        """The functional form, with the current epsilon."""

    def _check_destination_state(self, state: RecordedState) -> None:
        super()._check_destination_state(state)
        assert isinstance(state, self.state_class)
        _check_whole("destination_state", state)

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        gamma, beta = operands = self._loaded.gamma, self._loaded.beta
        problem = problem_of(self.function, "forward", shapes[0], gamma is not None, beta is not None)
        return Computation(problem, operands=operands)


class ImageNormalizationGradient(WindowedGradient):
    """The gradients for the source image, and in the state for gamma and beta; not a class of Apple's.

    An encode needs the state of the forward pass; gamma and epsilon are those of its kernel.
    """

    accepts_lists = True

    state_class: ClassVar[type[ImageNormalizationGradientState]] = ImageNormalizationGradientState

    _needs_state = ValueError, "pass the state of the forward pass, whose kernel has the epsilon"

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        if state is None:
            self._check_without_state(None)
        shape, dtype = super()._place(sources, asked, state)
        g, x = (source.array.shape for source in sources)
        require_defaults(self, *WHOLE_GRADIENT)
        if not g == x == shape == state.record.source_shapes[0]:
            raise ShapeError(
                f"source_gradient has shape {g}, source_image {x}, destination_gradient {shape} and the source image "
                f"of the forward pass {state.record.source_shapes[0]}; all must be equal"
            )
        return shape, dtype

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        return Computation()  # the three results are computed together

    def _run_with_state(
        self, state: ImageNormalizationGradientState, call: Call, images: Sequence[Array], target: Array | None
    ) -> Array:
        """Compute all three gradients, then write the state, which no error changes."""
        _check_whole("gradient_state", state)
        (g, x), kernel = images, state.kernel
        dx, *gradients = kernel.function.gradient(g, x, kernel._loaded.gamma, backend=self.backend)
        if target is not None:
            with np.errstate(over="ignore"):  # storing in float16 may overflow to infinity
                target[...] = dx
        state.write(*gradients)
        return dx


def _check_whole(name: str, state: ImageNormalizationGradientState) -> None:
    """Raise ``ValueError`` for the state of one image."""
    if state._image is not None:
        raise ValueError(f"{name} is that of one image, {name}[{state._image}]; pass the state of the whole batch")


class MPSCNNInstanceNormalizationGradientState(ImageNormalizationGradientState):
    """The state of instance normalization for its gradient and for the update of gamma and beta."""

    instance_normalization: Alias[NormalizationKernel] = Alias("kernel", "The kernel that made the state.")


@constructed()
class MPSCNNInstanceNormalization(ImageNormalizationKernel):
    """Instance normalization: :class:`mpsref.InstanceNormalization`, with gamma and beta from a data source."""

    kind = "Instance"
    source_class = InstanceNormalizationDataSource
    state_class = MPSCNNInstanceNormalizationGradientState

    @property
    def function(self) -> InstanceNormalization:
        """The functional form, with the present epsilon."""
        return made(InstanceNormalization, self.epsilon)  # type: ignore[no-any-return]

    def reload_data_source(self, data_source: MPSCNNInstanceNormalizationDataSource) -> None:
        """Replace the data source and load gamma and beta, but not epsilon. Deprecated by Apple [doc].

        Raises ``ShapeError`` for another number of channels, and keeps the old data source.
        """
        self._reload_data_source(data_source)


class MPSCNNInstanceNormalizationGradient(ImageNormalizationGradient):
    """The gradient of instance normalization: for the source image, and in the state for gamma and beta."""

    forward_class = MPSCNNInstanceNormalization
    state_class = MPSCNNInstanceNormalizationGradientState


class MPSCNNGroupNormalizationGradientState(ImageNormalizationGradientState):
    """The state of group normalization for its gradient and for the update of gamma and beta."""

    group_normalization: Alias[NormalizationKernel] = Alias("kernel", "The kernel that made the state.")


@constructed()
class MPSCNNGroupNormalization(ImageNormalizationKernel):
    """Group normalization: :class:`mpsref.GroupNormalization`, with groups, gamma and beta from a data source."""

    kind = "Group"
    source_class = GroupNormalizationDataSource
    state_class = MPSCNNGroupNormalizationGradientState

    number_of_groups: Alias[int] = Alias(
        "_loaded.number_of_groups", "The number of groups of channels, from the data source when it was last loaded."
    )

    @property
    def function(self) -> GroupNormalization:
        """The functional form, with the present epsilon."""
        return made(GroupNormalization, self._loaded.number_of_groups, self.epsilon)  # type: ignore[no-any-return]


class MPSCNNGroupNormalizationGradient(ImageNormalizationGradient):
    """The gradient of group normalization: for the source image, and in the state for gamma and beta."""

    forward_class = MPSCNNGroupNormalization
    state_class = MPSCNNGroupNormalizationGradientState


# --- nodes ------------------------------------------------------------------------------------------------------------


class _Parameters(NormalizationParameters):
    kernel: ImageNormalizationKernel

    form: Alias[Spec] = Alias(
        "kernel.function", "The functional form: the data source may change the number of groups."
    )

    def state(self, step_state: StepState) -> ImageNormalizationGradientState:
        """Return a synchronized state with the gradients of one run."""
        state = self.kernel.state_class(step_state["call"].record)
        if "gradients" in step_state:
            state.write(*step_state["gradients"])
        state.synchronize()
        return state


class _GradientNode(TrainableGradientNode):
    def _compute(self, step: StepCall, *images: Array) -> Array:
        dx, *gradients = step.call.spec.gradient(*images, step.parameters["gamma"], backend=step.backend)
        if step.trains:
            accumulate(step.state, "gradients", tuple(gradients))
        return dx  # type: ignore[no-any-return]


class MPSCNNInstanceNormalizationGradientNode(_GradientNode):
    """The gradients of instance normalization for its source, and in its state for gamma and beta."""


class MPSCNNGroupNormalizationGradientNode(_GradientNode):
    """The gradients of group normalization for its source, and in its state for gamma and beta."""


class _Node(NormalizationNode):
    _parameters_class = _Parameters

    def _compute(self, step: StepCall, *images: Array) -> Array:
        parameters = step.parameters
        return step.call.spec.forward(images[0], parameters["gamma"], parameters["beta"], backend=step.backend)  # type: ignore[no-any-return]


class MPSCNNInstanceNormalizationNode(_Node):
    """Instance normalization with the parameters of a data source."""

    kind = "inorm"
    spec_class = InstanceNormalization
    kernel_class = MPSCNNInstanceNormalization
    gradient_class = MPSCNNInstanceNormalizationGradientNode


class MPSCNNGroupNormalizationNode(_Node):
    """Group normalization with the parameters of a data source."""

    kind = "gnorm"
    spec_class = GroupNormalization
    kernel_class = MPSCNNGroupNormalization
    gradient_class = MPSCNNGroupNormalizationGradientNode
