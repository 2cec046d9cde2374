"""Base class of the gradient kernels, and their configuration by a gradient state.

The primary image is the source gradient, the secondary image is the source image of the forward pass, and the
destination is the gradient for that source. Source: ``MPSCNNGradientKernel`` in ``MPSCNNKernel.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from mpsref.arguments import arrays
from mpsref.arguments.arrays import AXIS_LIMIT, Array, DType, Shape
from mpsref.arguments.parameters import Pair, integer
from mpsref.errors import ShapeError
from mpsref.geometry import Window
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.call import Call, Index
from mpsref.mps.core.clip_regions import Region, count
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable, check_not_a_command_buffer
from mpsref.mps.core.encode import ImageKernel
from mpsref.mps.core.image_arguments import ImageArgument, ImageLike, ImageResult, batch_form, count_reads
from mpsref.mps.core.image_kernels import MPSCNNBinaryKernel
from mpsref.mps.core.padding import MPSNNDefaultPadding, reverse_placement, suggested_method
from mpsref.mps.core.properties import Property, constructed, instance_of
from mpsref.mps.core.reads import check_usable
from mpsref.mps.core.state import ForwardRecord, MPSNNGradientState, MPSState, StateLike, one_per_image, one_state
from mpsref.mps.core.types import MPSImageEdgeMode, MPSOffset, MTLOrigin, MTLRegion, MTLSize


@constructed(init=False, kw_only=True)
class MPSCNNGradientKernel(MPSCNNBinaryKernel):
    """A kernel that computes the gradient for the source image of a forward kernel.

    Both sources have the kernel size, strides and dilations of the forward kernel; the stride is an upsampling factor
    on the source gradient. Pixels outside the source gradient are 0, so its edge mode is ``Zero``.
    """

    destination_name = "destination_gradient"
    state_class = MPSNNGradientState
    forward_class: ClassVar[type[ImageKernel]]
    """The kernel whose states configure this one."""
    primary_edge_mode = Property(
        types.zero_edge_mode, MPSImageEdgeMode.Zero, "The edge mode of the source gradient: Zero."
    )
    kernel_offset_x: Property[int] = Property(
        integer, 0, "x of the rotated window on the zero-inserted source gradient."
    )
    kernel_offset_y: Property[int] = Property(
        integer, 0, "y of the rotated window on the zero-inserted source gradient."
    )
    is_backwards = Property(lambda _, value: bool(value), True, "Whether it is a gradient kernel.", read_only=True)

    def encode(  # type: ignore[override]  # as in MPS, the selectors of gradient kernels differ from those of the parent
        self,
        source_gradient: ImageLike,
        source_image: ImageLike,
        gradient_state: StateLike | None = None,
        destination_gradient: ImageLike | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> ImageResult:
        """Return the gradient for the source image.

        Parameters
        ----------
        source_gradient : array_like, MPSImage or batch of images
            The gradient of the forward result (N, H, W, C).
        source_image : array_like, MPSImage or batch of images
            The source image of the forward pass (N, H, W, C). For some normalizations both may be lists of arrays.
        gradient_state : MPSNNGradientState or sequence of them, optional
            The state of the forward pass, or a list with the state of each image, which may be one object. Without
            ``destination_gradient``, the state sets the properties of the kernel, and the result has the shape of the
            source image.
        destination_gradient : ndarray, MPSImage or batch of images, optional
            The image to write; pixels outside ``clip_rect`` are kept. The present properties are used. Without a state
            and a destination, ``padding`` sets the size and the kernel offsets.

        Returns
        -------
        destination : ndarray, MPSImage, MPSImageBatch or list of ndarray
            Of the kind of ``source_gradient``. ``None`` if the kernel does not compute it.

        Notes
        -----
        ``encodeToCommandBuffer:sourceGradient:sourceImage:gradientState:`` and its variants in ``MPSCNNKernel.h``
        [doc].

        Examples
        --------
        >>> import numpy as np
        >>> from mpsref import mps
        >>> x = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1)
        >>> y, state = mps.MPSCNNPoolingMax(2, 2, 2, 2).encode(x, return_state=True)
        >>> mps.MPSCNNPoolingMaxGradient(2, 2, 2, 2).encode(np.ones_like(y), x, state)[0, :, :, 0].tolist()
        [[0.0, 0.0], [0.0, 1.0]]
        """
        if gradient_state is None:
            self._check_without_state(destination_gradient)
        g = image_arguments.source("source_gradient", source_gradient, self.accepts_lists, command_buffer)
        x = image_arguments.source("source_image", source_image, self.accepts_lists, command_buffer)
        if self.accepts_lists:
            image_arguments.check_pairs_of_lists(g, x)
        state: Any = gradient_state
        if state is not None and not isinstance(state, MPSState):
            if one_per_image(state):
                return self._encode_each(source_gradient, g, x, state, destination_gradient, command_buffer)
            check_not_a_command_buffer("gradient_state", state)
            state = one_state("gradient_state", state, g.array.shape[0])
        if isinstance(state, MPSState) and state._reads is not None:
            check_usable("gradient_state", state, command_buffer)
        if command_buffer is not None:
            check_encodable(command_buffer)
        given, asked = None, None
        if destination_gradient is not None:
            given = image_arguments.destination(self.destination_name, destination_gradient, (g, x), command_buffer)
            asked = given.array.shape
        call, own = self._call((g, x), asked, state)
        array = own._run_with_state(state, call, (g.array, x.array), None if given is None else given.array)
        count_reads((g, x))
        if own is not self:
            self._take(own, call)
        if state is not None:
            if given is None and self._configured_by is not state._record:
                self._configured_by = state._record
            if state._reads:
                state._count_read()
        if given is not None:
            return image_arguments.written(given)
        return None if array is None else image_arguments.in_form_of(source_gradient, array)

    def _encode_each(
        self,
        source_gradient: ImageLike,
        g: ImageArgument,
        x: ImageArgument,
        states: Sequence[MPSNNGradientState],
        destination_gradient: ImageLike | None,
        command_buffer: MPSCommandBuffer | None,
    ) -> ImageResult:
        """Encode each image of a batch with its own state."""
        images = len(states)
        for argument in (g, x):
            if argument.array.shape[0] != images:
                raise ValueError(
                    f"gradient_state is a list of {images} different states, and {argument.name} has "
                    f"{argument.array.shape[0]} images; there must be one state for each image, or one for all"
                )
        given: ImageArgument | None = None
        targets: list[Array | None] = [None] * images
        if destination_gradient is not None:
            given = image_arguments.destination(self.destination_name, destination_gradient, (g, x), command_buffer)
            targets = [given.array[k : k + 1] for k in range(images)]
        pairs = [(g.array[k : k + 1], x.array[k : k + 1]) for k in range(images)]
        if command_buffer is not None:
            check_encodable(command_buffer)
        own = self._to_configure()
        for k, (pair, state) in enumerate(zip(pairs, states, strict=True)):
            # all checks before the first state is written
            check_usable(f"gradient_state[{k}]", state, command_buffer)
            own.destination_image_descriptor_for_source_images(pair, state)
        results = [
            own.encode(*pair, state, target, command_buffer=command_buffer)
            for pair, state, target in zip(pairs, states, targets, strict=True)
        ]
        count_reads((g, x))
        self._take(own)
        if given is not None:
            return image_arguments.written(given)
        if any(result is None for result in results):
            return None
        return image_arguments.in_form_of(source_gradient, arrays.concatenated(results))

    encode_batch = batch_form(encode)

    def _run_with_state(self, state: Any, call: Call, images: Sequence[Array], target: Array | None) -> Array | None:
        """Compute the destination; a family may also write ``state``, and return ``None`` for no destination."""
        return call.run(images, target, self.backend)

    def _record(
        self, sources: Sequence[ImageArgument], indices: Sequence[Index], shape: Shape, region: Region
    ) -> ForwardRecord:
        """Return the record of the forward pass, if there is one."""
        return super()._record(sources, indices, shape, region) if self._state is None else self._state.record

    def _check_state(self, state: Any) -> None:
        call = f"{self.forward_class.__name__}.encode(..., return_state=True)"
        instance_of("gradient_state", state, self.state_class, f"the {self.state_class.__name__} that {call} returns")
        if not issubclass(state.record.kernel_class, self.forward_class):
            raise TypeError(
                f"gradient_state was left by {state.record.kernel_class.__name__}; {type(self).__name__} needs one of "
                f"{self.forward_class.__name__}"
            )
        self._check_recorded(state, self.recorded)

    def _check_recorded(self, state: Any, names: Sequence[str]) -> None:
        for name in names:
            own, forward = getattr(self, name), state.record.extras[name]
            if own != forward:
                raise ValueError(
                    f"{name} is {own!r}; that of the forward kernel in gradient_state is {forward!r}: make the "
                    "gradient kernel with the same"
                )

    _reads_result: ClassVar[bool] = False
    """Whether the source image is the forward result in place of the forward source."""

    _from_record: ClassVar[tuple[str, ...]] = ()
    """The properties whose values are those of the same name in the record."""

    def _configure(self, state: Any, g: Shape, x: Shape) -> None:
        """Set the properties that a state determines."""
        self._assign(**self._configuration(state, g, x))
        if self._from_record:
            self._assign(**{name: state.record.extras[name] for name in self._from_record})

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, object]:
        """Return the properties that a state determines, for images of these shapes; ``ShapeError`` for others."""
        record = state.record
        expected = record.destination_shape if self._reads_result else record.source_shapes[0]
        if x != expected:
            result = "the result of the forward pass has" if self._reads_result else "that of the forward pass was"
            raise ShapeError(f"source_image has shape {x}; {result} {expected}")
        return {}


class WindowedGradient(MPSCNNGradientKernel):
    """A gradient kernel with windows, offsets, clip rectangles and ranges of channels; not a class of MPS."""

    has_source_size: ClassVar[bool] = False
    """Whether the kernel has a ``source_size``, which excludes gradient pixels outside the forward clip rectangle."""

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        g, x = sources
        self._check_windows(state if asked is None else None)
        if asked is None and state is None:
            return self._infer_reverse_padding(g, x)
        if asked is None:
            self._configure(state, g.array.shape, x.array.shape)
        if state is not None and (asked is None or self._is_configured_by(state, g)):
            self._crops = self._parts_read(state, g)
        return super()._place(sources, state.record.source_shapes[0] if asked is None else asked, state)

    def _channels_written(self, read: Sequence[slice]) -> int:
        g, x = map(count, read)
        if g != x:
            raise ShapeError(
                f"{g} channels are read of source_gradient and {x} of source_image; both must be equal: set the "
                "primary_ and secondary_source_feature_channel_offset and _max_count"
            )
        return x

    def _is_configured_by(self, state: Any, g: ImageArgument) -> bool:
        """Return whether the state has configured the kernel last, for a source gradient of this size."""
        record = self._configured_by
        if record is None or record is not state.record:
            return False
        (_, height, width, _), (_, clip) = record.destination_shape, record.clip_rect
        return g.array.shape[1] in (height, clip.height) and g.array.shape[2] in (width, clip.width)

    def _parts_read(self, state: Any, g: ImageArgument) -> Sequence[tuple[slice, slice]]:
        """Return rows and columns to read: without ``source_size``, only the forward clip rectangle of results.

        A kernel with this property reads every pixel of its source gradient.
        """
        corner, (width, height, _) = state.record.clip_rect
        if self.has_source_size or state.record.destination_shape[1:3] == (height, width):
            return ()
        (column, row, _), _ = state._primary_origin(g.array.shape)
        parts = [(slice(row, row + height), slice(column, column + width))]
        if self._reads_result:
            parts.append((slice(corner.y, corner.y + height), slice(corner.x, corner.x + width)))
        return parts

    def _check_windows(self, state: MPSNNGradientState | None) -> None:
        """Raise ``ValueError`` unless both sources have the same windows, those of the forward kernel [doc]."""
        primary, secondary = self._source_properties(0)[2:8], self._source_properties(1)[2:8]
        if primary != secondary:
            raise ValueError(
                f"kernel size, strides and dilations (x before y) are {primary} for the primary and {secondary} for "
                "the secondary image; both must be those of the forward kernel"
            )
        if state is not None and secondary != state.record.sources[0][2:8]:
            raise ValueError(
                f"kernel size, strides and dilations (x before y) are {secondary}; those of the forward kernel in "
                f"gradient_state are {state.record.sources[0][2:8]}: make the gradient kernel with the same"
            )

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, object]:
        """Return the properties that a state with one source determines.

        Source: secondary properties, and the kernel offset for a clip origin of 0 [doc]. The others follow from the
        adjoint [math], or are chosen so that destination and source pixels coincide [choice pooling-state-position].
        """
        known, record = super()._configuration(state, g, x), state.record
        forward = record.sources[0]
        primary_offset, primary_channel = state._primary_origin(g)
        if not self.has_source_size:
            primary_offset = MPSOffset(0, 0, primary_offset.z)  # from the first pixel of _parts_read
        clip_rect = self._clip_of_images(forward.offset.z, record.clip_rect.size.depth, record.source_shapes[0][0])
        corner = MTLOrigin(0, 0, 0) if clip_rect is None else clip_rect.origin
        y_window, x_window = forward.windows
        return {
            **known,
            "primary_offset": primary_offset,
            "primary_source_feature_channel_offset": primary_channel,
            "primary_source_feature_channel_max_count": record.destination_feature_channels,
            "secondary_offset": forward.offset,
            "secondary_edge_mode": forward.edge_mode,
            "secondary_source_feature_channel_offset": forward.source_feature_channel_offset,
            "secondary_source_feature_channel_max_count": forward.source_feature_channel_max_count,
            "destination_feature_channel_offset": forward.source_feature_channel_offset,
            "clip_rect": clip_rect,
            "kernel_offset_x": self._kernel_offset(x_window, x_window.kernel_offset(corner.x)),
            "kernel_offset_y": self._kernel_offset(y_window, y_window.kernel_offset(corner.y)),
        }

    _offset_from: ClassVar[Any] = None
    """Returns the position that is the kernel offset 0; ``None``: position 0."""

    def _kernel_offset(self, window: Window, offset: int) -> int:
        """Return the value of the property for a position of the rotated window on the zero-inserted gradient."""
        return offset if self._offset_from is None else offset - self._offset_from(window)

    def _clip_of_images(self, z: int, depth: int, number: int) -> MTLRegion | None:
        """Return the clip rectangle of the kernel with the images of the forward pass."""
        if self.clip_rect is None:
            if (z, depth) == (0, number):
                return None
            own = MTLRegion(
                MTLOrigin(0, 0, 0), MTLSize(AXIS_LIMIT, AXIS_LIMIT, depth)
            )  # limited to the destination later
        else:
            own = self.clip_rect
        return MTLRegion(own.origin._replace(z=z), own.size._replace(depth=depth))

    def _infer_reverse_padding(self, g: ImageArgument, x: ImageArgument) -> tuple[Shape, DType]:
        """Set the offsets by the padding policy; return shape and dtype of the destination."""
        primary = self._source_properties(0)
        size, (y, column) = reverse_placement(g.array.shape[1:3], primary.windows, suggested_method(self.padding))
        y_window, x_window = self._source_properties(1).windows
        self._assign(
            primary_offset=MPSOffset(0, 0, primary.offset.z),
            kernel_offset_x=self._kernel_offset(x_window, column),
            kernel_offset_y=self._kernel_offset(y_window, y),
        )
        if isinstance(self.padding, MPSNNDefaultPadding) and self.padding.edge_mode is not None:
            self.secondary_edge_mode = self.padding.edge_mode
        return self._described((g, x), self._destination_shape((g, x), size))
