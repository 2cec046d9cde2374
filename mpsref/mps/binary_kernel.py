"""Base class of the kernels with two source images. Source: ``MPSCNNBinaryKernel`` in ``MPSCNNKernel.h`` [doc]."""

from __future__ import annotations

from typing import Any, ClassVar

from mpsref.mps import operands, types
from mpsref.mps.command_buffer import MPSCommandBuffer
from mpsref.mps.kernel import ImageKernel
from mpsref.mps.properties import Property, at_least, multiple_of_four, optional
from mpsref.mps.state import MPSNNBinaryGradientState, RecordedState
from mpsref.mps.types import MPSImageEdgeMode, MPSOffset

__all__ = ["MPSCNNBinaryKernel"]


class MPSCNNBinaryKernel(ImageKernel):
    """A kernel with a primary and a secondary source image.

    Each source has its own set of the properties that :class:`mpsref.mps.MPSCNNKernel` has for its one; the first pixel
    of the clip rectangle belongs to ``primary_offset`` in one and to ``secondary_offset`` in the other.
    """

    prefixes = ("primary_", "secondary_")
    state_class: ClassVar[type[RecordedState]] = MPSNNBinaryGradientState

    primary_offset = Property(
        types.offset, MPSOffset(0, 0, 0), "The primary pixel of the clip's first pixel, MPSOffset."
    )
    primary_edge_mode = Property(types.edge_mode, MPSImageEdgeMode.Zero, "What is read outside the primary image.")
    primary_source_feature_channel_offset = Property(multiple_of_four, 0, "The first primary channel that is read.")
    primary_source_feature_channel_max_count = Property(optional(at_least(1)), None, "How many, at most; or ``None``.")
    primary_kernel_width = Property(at_least(1), 1, "Width of the window on the primary image.", read_only=True)
    primary_kernel_height = Property(at_least(1), 1, "Height of the window on the primary image.", read_only=True)
    primary_stride_in_pixels_x = Property(at_least(1), 1, "Distance of two windows in x on the primary image.")
    primary_stride_in_pixels_y = Property(at_least(1), 1, "Distance of two windows in y on the primary image.")
    primary_dilation_rate_x = Property(at_least(1), 1, "Distance of two taps in x, primary image.", read_only=True)
    primary_dilation_rate_y = Property(at_least(1), 1, "Distance of two taps in y, primary image.", read_only=True)

    secondary_offset = Property(
        types.offset, MPSOffset(0, 0, 0), "The secondary pixel of the clip's first pixel, MPSOffset."
    )
    secondary_edge_mode = Property(types.edge_mode, MPSImageEdgeMode.Zero, "What is read outside the secondary image.")
    secondary_source_feature_channel_offset = Property(multiple_of_four, 0, "The first secondary channel that is read.")
    secondary_source_feature_channel_max_count = Property(
        optional(at_least(1)), None, "How many, at most; or ``None``."
    )
    secondary_kernel_width = Property(at_least(1), 1, "Width of the window on the secondary image.", read_only=True)
    secondary_kernel_height = Property(at_least(1), 1, "Height of the window on the secondary image.", read_only=True)
    secondary_stride_in_pixels_x = Property(at_least(1), 1, "Distance of two windows in x on the secondary image.")
    secondary_stride_in_pixels_y = Property(at_least(1), 1, "Distance of two windows in y on the secondary image.")
    secondary_dilation_rate_x = Property(at_least(1), 1, "Distance of two taps in x, secondary image.", read_only=True)
    secondary_dilation_rate_y = Property(at_least(1), 1, "Distance of two taps in y, secondary image.", read_only=True)

    def encode(
        self,
        primary_image: Any,
        secondary_image: Any,
        destination_image: Any = None,
        *,
        destination_size: Any = None,
        return_state: bool = False,
        destination_state: Any = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Run the kernel on two images and return the destination, of the kind that ``primary_image`` is.

        Everything else is as in :meth:`mpsref.mps.MPSCNNKernel.encode`. A padding policy places the windows of each
        source; where it gives them different output sizes, ``ShapeError``.
        """
        sources = (
            operands.source("primary_image", primary_image),
            operands.source("secondary_image", secondary_image),
        )
        return self._encode(
            sources, destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = encode
