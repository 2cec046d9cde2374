"""Base class of kernels with any number of sources. Source: ``MPSCNNMultiaryKernel`` in ``MPSCNNKernel.h`` [doc]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpsref.arguments.parameters import integer
from mpsref.mps import operands, types
from mpsref.mps.command_buffer import MPSCommandBuffer
from mpsref.mps.kernel import ImageKernel
from mpsref.mps.properties import PerSource, Property, at_least, fix, multiple_of_four, optional
from mpsref.mps.state import MPSNNMultiaryGradientState, SourceProperties
from mpsref.mps.types import MPSImageEdgeMode, MPSOffset
from mpsref.registry import Backend

__all__ = ["MPSCNNMultiaryKernel"]


def _at_index(name: str) -> tuple[Callable[[Any, int], Any], Callable[[Any, Any, int], None]]:
    """Return the methods that read and set one source's value of a property."""

    def value_at_index(self: MPSCNNMultiaryKernel, index: int) -> Any:
        return getattr(self, name)[self._index(index)]

    def set_value(self: MPSCNNMultiaryKernel, value: Any, at_index: int) -> None:
        values = list(getattr(self, name))
        values[self._index(at_index)] = value
        setattr(self, name, values)

    value_at_index.__doc__ = f"Return ``{name}`` of source ``index``; ``ValueError`` where there is no such source."
    set_value.__doc__ = f"Set ``{name}`` of source ``at_index``; ``ValueError`` where there is no such source."
    return value_at_index, set_value


class MPSCNNMultiaryKernel(ImageKernel):
    """A kernel with ``source_count`` source images, each with its own set of properties.

    Read and set them with Apple's pairs of methods, such as ``offset_at_index(index)`` and ``set_offset(value,
    at_index)``, or all at once: ``offset`` is a tuple with one MPSOffset a source.
    """

    state_class = MPSNNMultiaryGradientState

    source_count = Property(at_least(1), 1, "How many source images there are.", read_only=True)
    offset = PerSource(types.offset, MPSOffset(0, 0, 0), "The source pixel of the clip's first pixel.")
    edge_mode = PerSource(types.edge_mode, MPSImageEdgeMode.Zero, "What is read outside the source.")
    kernel_width = PerSource(at_least(1), 1, "Width of the window.")
    kernel_height = PerSource(at_least(1), 1, "Height of the window.")
    stride_in_pixels_x = PerSource(at_least(1), 1, "Distance of two windows in x.")
    stride_in_pixels_y = PerSource(at_least(1), 1, "Distance of two windows in y.")
    dilation_rate_x = PerSource(at_least(1), 1, "Distance of two taps in x.")
    dilation_rate_y = PerSource(at_least(1), 1, "Distance of two taps in y.")
    source_feature_channel_offset = PerSource(multiple_of_four, 0, "The first channel that is read.")
    source_feature_channel_max_count = PerSource(optional(at_least(1)), None, "How many, at most; or ``None``.")

    offset_at_index, set_offset = _at_index("offset")
    edge_mode_at_index, set_edge_mode = _at_index("edge_mode")
    kernel_width_at_index, set_kernel_width = _at_index("kernel_width")
    kernel_height_at_index, set_kernel_height = _at_index("kernel_height")
    stride_in_pixels_x_at_index, set_stride_in_pixels_x = _at_index("stride_in_pixels_x")
    stride_in_pixels_y_at_index, set_stride_in_pixels_y = _at_index("stride_in_pixels_y")
    dilation_rate_x_at_index, set_dilation_rate_x = _at_index("dilation_rate_x")
    dilation_rate_y_at_index, set_dilation_rate_y = _at_index("dilation_rate_y")
    source_feature_channel_offset_at_index, set_source_feature_channel_offset = _at_index(
        "source_feature_channel_offset"
    )
    source_feature_channel_max_count_at_index, set_source_feature_channel_max_count = _at_index(
        "source_feature_channel_max_count"
    )

    def __init__(self, source_count: int, *, backend: str | Backend | None = None, **properties: Any) -> None:
        """Make a kernel for this number of sources."""
        fix(self, source_count=source_count)
        super().__init__(backend=backend, **properties)

    def encode(
        self,
        source_images: Sequence[Any],
        destination_image: Any = None,
        *,
        destination_size: Any = None,
        return_state: bool = False,
        destination_state: Any = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Run the kernel on ``source_count`` images; all else is as in :meth:`mpsref.mps.MPSCNNKernel.encode`."""
        if len(source_images) != self.source_count:
            raise ValueError(
                f"source_images has {len(source_images)} images; the kernel has source_count={self.source_count}"
            )
        sources = [operands.source(f"source_images[{k}]", image) for k, image in enumerate(source_images)]
        return self._encode(
            sources, destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = encode

    def _index(self, index: int) -> int:
        number = integer("index", index, low=0)
        if number >= self.source_count:
            raise ValueError(f"index is {number}; it must be < source_count={self.source_count}")
        return number

    def _property_name(self, k: int, name: str) -> str:
        return f"{name}[{k}]"

    def _source_properties(self, k: int) -> SourceProperties:
        return SourceProperties._make(getattr(self, name)[k] for name in SourceProperties._fields)

    def _assign_to_source(self, k: int, **values: Any) -> None:
        for name, value in values.items():
            known = getattr(self, name)
            self._assign(**{name: (*known[:k], value, *known[k + 1 :])})
