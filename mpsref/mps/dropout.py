"""Dropout with Apple's names: kernels, nodes, and the state with the mask of the forward pass.

>>> import numpy as np
>>> drop = MPSCNNDropout(0.5, 1, (1, 1, 1))
>>> x = np.ones((1, 2, 3, 2), np.float32)
>>> y, state = drop.encode(x, return_state=True)
>>> y.ravel().tolist()
[0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
>>> gradient = MPSCNNDropoutGradient(0.5, 1, (1, 1, 1))
>>> bool((gradient.encode(x, x, state) == y).all())
True
>>> drop.sequence
1

Source: ``MPSCNNDropout.h``, ``MPSNNGraphNodes.h`` [doc]; the random number generator is mpsref's own, as Apple
documents none [choice dropout-generator].
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array, Shape, copied, empty
from mpsref.arguments.device import is_on_device, on_host
from mpsref.arguments.parameters import Pair, word_of
from mpsref.errors import OrderError
from mpsref.kernels.dropout import Dropout, probability
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.call import Call, Computation, made, problem_of
from mpsref.mps.core.clip_regions import count, overlap
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.encode import ImageKernel
from mpsref.mps.core.gradient_kernel import WindowedGradient
from mpsref.mps.core.image_arguments import Encoded, ImageArgument, ImageLike, batch_form
from mpsref.mps.core.image_kernels import MPSCNNKernel
from mpsref.mps.core.properties import Argument, Property, constructed, set_read_only
from mpsref.mps.core.state import BufferState, DestinationState, ForwardRecord
from mpsref.mps.core.types import MTLSize
from mpsref.mps.core.whole_image import IMAGE, require_defaults, require_whole
from mpsref.mps.graph.nodes import ForwardKernelNode, GradientKernelNode, MPSNNImageNode, MPSNNStateNode, StepCall

ARGUMENTS = "keep_probability", "seed", "mask_stride_in_pixels"
ONES = MTLSize(1, 1, 1)
MASK = np.dtype(np.uint8)
_numbers = threading.Lock()


def _mask_stride(name: str, value: object) -> MTLSize:
    stride = types.size(name, value)
    for axis, step in zip("xyz", stride, strict=True):
        if step > 1:
            raise ValueError(f"{name}.{axis} is {step}; it must be 0 (one mask value for the axis) or 1")
    return stride


def _word(name: str, value: object) -> int:
    return word_of(name, value, 64)


class MPSCNNDropoutGradientState(BufferState):
    """The state of a forward pass, with its mask."""

    @property
    def mask_data(self) -> Array:
        """The mask, read-only uint8 (N, Hm, Wm, Cm), 1 where an element is kept.

        Raises ``NotSynchronizedError`` unless :meth:`synchronize` has completed since the mask was drawn.
        """
        self.check_readable("mask_data")
        return on_host(self.device_read())

    def device_read(self) -> Array:
        """Return the mask for a kernel that is encoded now, which needs no synchronization.

        Raises ``OrderError`` before the first encode with this ``destination_state``.
        """
        mask: Array | None = self._record.extras["mask"]
        if mask is None:
            raise OrderError(
                "the MPSCNNDropoutGradientState has no mask yet, which an encode draws; pass the state as "
                "destination_state= of MPSCNNDropout.encode first"
            )
        return mask

    def _refresh(self, record: ForwardRecord) -> None:
        super()._refresh(record)
        self.written()


@constructed(init=False)
class _Described:
    """Properties of kernels and nodes."""

    keep_probability: Argument[float] = Argument(probability, "The probability that an element is kept, in (0, 1).")
    seed: Argument[int] = Argument(_word, "The seed of the masks, in [0, 2**64).")
    mask_stride_in_pixels: Argument[MTLSize | tuple[int, int, int]] = Argument(
        _mask_stride, "For x, y and channels: 1 for a mask value at each position, 0 for one value for the axis."
    )

    @property
    def function(self) -> Dropout:
        """The functional form."""
        x, y, z = self.mask_stride_in_pixels
        return made(Dropout, self.keep_probability, self.seed, (y, x, z))  # type: ignore[no-any-return]


class _DropoutKernel(_Described, ImageKernel):
    """A forward or a gradient kernel."""

    recorded = ARGUMENTS


@constructed()
class MPSCNNDropout(_DropoutKernel, MPSCNNKernel):
    """Dropout: :class:`mpsref.Dropout`.

    ``sequence`` is the number of the next mask: an encode that draws a mask uses and increments it. Setting it back
    repeats a run.
    """

    state_class = MPSCNNDropoutGradientState

    _: KW_ONLY
    sequence: Property[int] = Property(_word, 0, "The number of the next mask, in [0, 2**64).")

    def encode(  # type: ignore[override]  # a mask has the size of its image, so there is no size to choose
        self,
        source_image: ImageLike,
        destination_image: ImageLike | None = None,
        *,
        mask: ArrayLike | None = None,
        sequence: int | None = None,
        first_image_index: int = 0,
        return_state: bool = False,
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Encoded:
        """Drop elements of an image and return the destination, of the kind of ``source_image``.

        Parameters
        ----------
        mask : array_like of uint8 (N, Hm, Wm, Cm), optional
            Zeros and ones, in place of a new mask.
        sequence : int, optional
            The number of the mask, in place of the property ``sequence``, which then does not change.
        first_image_index : int, default 0
            The number of image 0 in the whole batch.

        Raises
        ------
        UnsupportedError
            If offset, clip rectangle or channel properties are not the defaults.
        """
        source = image_arguments.source("source_image", source_image, command_buffer=command_buffer)
        require_defaults(self, *IMAGE)
        drop, shape = self.function, source.array.shape
        check_encodable(command_buffer)
        with self._numbered(sequence, draws=mask is None) as number:
            if mask is None:
                out = _target(drop, shape, source.array)
                mask = drop.mask(shape, number, first_image_index, out=out, backend=self.backend)
            else:
                mask = copied("mask", drop.checked_mask(mask, shape), MASK)
            mask.setflags(write=False)
            return self._encode(
                (source,), destination_image, None, return_state, destination_state, command_buffer, mask
            )

    encode_batch = batch_form(encode)

    @contextlib.contextmanager
    def _numbered(self, sequence: int | None, draws: bool) -> Iterator[int]:
        """Give the number of a mask, another one to each thread; after an error it is the next one again."""
        if sequence is not None or not draws:
            yield 0 if sequence is None else sequence
            return
        with _numbers:
            number = self.sequence
            self.sequence = following = (number + 1) % 2**64
        try:
            yield number
        except BaseException:
            with _numbers:
                if self.sequence == following:
                    self.sequence = number
            raise

    @property
    def is_result_state_reused_across_batch(self) -> bool:
        """``True``: ``resultStateBatchForSourceImage`` of this class returns one state [doc]."""
        return True

    def _result_state(self, *arguments: Any) -> Any:
        """Return a state without a mask, which the encode draws."""
        require_defaults(self, *IMAGE)
        return super()._result_state(*arguments)

    def _completed(self, record: ForwardRecord, sources: Sequence[ImageArgument], *operands: Any) -> ForwardRecord:
        size = record.clip_rect.size
        written = size.depth, size.height, size.width, record.destination_feature_channels
        require_whole(self, written, record.source_shapes[0])
        return replace(record, extras={**record.extras, "mask": operands[0] if operands else None})

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        require_defaults(self, *IMAGE)  # again: a padding policy may have set some
        require_whole(self, size, shapes[0])
        return Computation(problem_of(self.function, "forward", shapes[0]))


@constructed()
class MPSCNNDropoutGradient(_DropoutKernel, WindowedGradient):
    """The gradient of dropout, with the mask in the state of the forward pass.

    ``secondary_offset`` shifts the mask; elements outside the mask are dropped [choice dropout-zero].
    """

    state_class = MPSCNNDropoutGradientState
    forward_class = MPSCNNDropout

    def _channels_written(self, read: Sequence[slice]) -> int:
        """Return the channels of the source gradient; the source image is not read."""
        return count(read[0])

    _needs_state = (
        TypeError,
        "the gradient of dropout needs the state that MPSCNNDropout.encode(..., return_state=True) returns, which "
        "holds the mask",
    )

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        require_defaults(
            self,
            *("primary_offset", "kernel_offset_x", "kernel_offset_y", "clip_rect"),
            *("destination_feature_channel_offset", "primary_source_feature_channel_offset"),
            "secondary_source_feature_channel_offset",
        )
        require_whole(self, size, shapes[0])
        return Computation(problem_of(self.function, "gradient", shapes[0]), images=1)

    def _run_with_state(
        self, state: MPSCNNDropoutGradientState, call: Call, images: Sequence[Array], target: Array | None
    ) -> Array:
        function, shape = self.function, images[0].shape
        mask = shifted(state.device_read(), function.mask_shape(shape), self.secondary_offset, function.mask_strides)
        return call.run(images, target, self.backend, (mask,))


def _target(dropout: Dropout, shape: Shape, like: Array) -> Array | None:
    """Return an array for the mask of images of ``shape`` on the device of ``like``; ``None`` for one on the host."""
    return empty("mask", dropout.mask_shape(shape), MASK, (like,)) if is_on_device(like) else None


def shifted(mask: Array, shape: Shape, offset: types.MPSOffset, strides: tuple[int, int, int]) -> Array:
    """Return a mask of ``shape`` whose element is that of ``mask`` at its position plus ``offset``; 0 outside.

    Along an axis with mask stride 0 there is one value for all positions.
    """
    if mask.shape == shape and not any(offset):
        return mask
    moved = empty("mask", shape, MASK, (mask,))
    moved.fill(0)
    starts = offset.z, offset.y * strides[0], offset.x * strides[1], 0
    parts = [overlap(*axis) for axis in zip(starts, shape, mask.shape, strict=True)]
    moved[tuple([written for written, _ in parts])] = mask[tuple([read for _, read in parts])]
    return moved


# --- nodes ------------------------------------------------------------------------------------------------------------


class MPSCNNDropoutGradientNode(_Described, GradientKernelNode):
    """The gradient of dropout, with the mask and the parameters of the forward node."""

    kernel_class, _after_images = MPSCNNDropoutGradient, ("mask",)
    reads_pixels = False

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        keep_probability: float = 0.5,
        seed: int = 0,
        mask_stride_in_pixels: MTLSize | tuple[int, int, int] = ONES,
        **properties: Any,
    ) -> None:
        set_read_only(self, keep_probability=keep_probability, seed=seed, mask_stride_in_pixels=mask_stride_in_pixels)
        super().__init__(source_gradient, source_image, gradient_state, **properties)
        forward = self.forward
        assert isinstance(forward, MPSCNNDropoutNode)
        if forward.function != self.function:
            raise ValueError(
                f"the parameters are those of {self.function}; the forward node has those of {forward.function}: a "
                "mask is drawn once, in the forward pass"
            )


class MPSCNNDropoutNode(_Described, ForwardKernelNode):
    """Dropout, with a new mask in each run.

    Examples
    --------
    >>> MPSCNNDropoutNode(MPSNNImageNode(), keep_probability=0.75).mask_stride_in_pixels
    MTLSize(width=1, height=1, depth=1)
    """

    kind = "drop"
    spec_class = Dropout
    kernel_class = MPSCNNDropout
    gradient_class = MPSCNNDropoutGradientNode
    gradient_properties = ARGUMENTS

    def __init__(
        self,
        source: MPSNNImageNode,
        keep_probability: float = 0.5,
        seed: int = 0,
        mask_stride_in_pixels: MTLSize | tuple[int, int, int] = ONES,
        **properties: Any,
    ) -> None:
        set_read_only(self, keep_probability=keep_probability, seed=seed, mask_stride_in_pixels=mask_stride_in_pixels)
        super().__init__(source, **properties)

    _called, _after_images = ("mask", "forward"), ("mask",)

    def _step_inputs(self, step: StepCall, like: Array) -> Sequence[Array | None]:
        dropout, shape = step.call.spec, step.call.shape
        return [dropout.mask(shape, step.sequence, out=_target(dropout, shape, like), backend=step.backend)]

    def _compute(self, step: StepCall, *images: Array) -> Array | None:
        (step.state["mask"],) = step.prepared
        return super()._compute(step, *images)
