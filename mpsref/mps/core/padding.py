"""Padding policies: objects that set the offsets of a kernel and the size of its result.

A kernel applies its policy if no destination is given. The policy sets properties of the kernel, which keep their new
values.

>>> import numpy as np
>>> from mpsref import mps
>>> pool = mps.MPSCNNPoolingMax(2, 2, 2, 2, padding=MPSNNDefaultPadding.padding_for_tensorflow_average_pooling())
>>> pool.encode(np.ones((1, 5, 6, 1), np.float32)).shape, pool.offset, pool.edge_mode
((1, 3, 3, 1), MPSOffset(x=1, y=1, z=0), MPSImageEdgeMode.Clamp)

A custom policy derives from :class:`MPSNNPadding`. Source: ``MPSNeuralNetworkTypes.h`` [doc].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mpsref.arguments.parameters import Pair
from mpsref.arguments.text import shown
from mpsref.errors import UnsupportedError
from mpsref.geometry import Window
from mpsref.mps.core.image import MPSImage, MPSImageDescriptor
from mpsref.mps.core.properties import closed, hinting
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.core.state import MPSState
from mpsref.mps.core.types import MPSImageEdgeMode, MPSNNPaddingMethod, edge_mode
from mpsref.padding import (
    TENSORFLOW_AVERAGE_POOLING,
    TENSORFLOW_AVERAGE_POOLING_VALID_ONLY,
    PaddingPolicy,
    of_policy,
    policy_forward,
    policy_reverse,
)


@hinting
class MPSNNPadding:
    """Base class of custom padding policies.

    Attributes
    ----------
    padding_method : MPSNNPaddingMethod
        The bit ``Custom``, and the bits from which the suggested size and offsets are computed.

    Notes
    -----
    The protocol ``MPSNNPadding`` in ``MPSNeuralNetworkTypes.h`` [doc].

    Examples
    --------
    >>> class ShiftByOne(MPSNNPadding):
    ...     def destination_image_descriptor_for_source_images(self, source_images, source_states, kernel, descriptor):
    ...         kernel.offset = (1, 1, 0)
    ...         return descriptor
    """

    padding_method: MPSNNPaddingMethod = MPSNNPaddingMethod.Custom | MPSNNPaddingMethod.SizeValidOnly

    def label(self) -> str:
        """Return a string that describes the policy."""
        return repr(self)

    def destination_image_descriptor_for_source_images(
        self,
        source_images: Sequence[MPSImage],
        source_states: Sequence[MPSState],
        kernel: Any,
        descriptor: MPSImageDescriptor,
    ) -> MPSImageDescriptor:
        """Return the descriptor of the destination.

        Parameters
        ----------
        source_images : sequence of MPSImage
            The sources.
        source_states : sequence of MPSState
            Empty [design objects-options].
        kernel : MPSKernel
            A copy of the kernel that the encode configures; its properties may be set, and the kernel has them after
            the encode. Its offsets are those suggested by the other bits of ``padding_method``.
        descriptor : MPSImageDescriptor
            The suggested destination.

        Returns
        -------
        MPSImageDescriptor
            ``descriptor`` or another one.
        """
        raise UnsupportedError(
            f"{type(self).__name__} must define destination_image_descriptor_for_source_images"
            "(source_images, source_states, kernel, descriptor), which returns an MPSImageDescriptor"
        )

    def inverse(self) -> MPSNNPadding | None:
        """Return the policy of the gradient pass, or ``None`` for a custom policy [choice padding-inverse]."""
        return None


@secure_coding(version=1, arguments=("padding_method", "edge_mode"))
@closed
@dataclass(frozen=True, repr=False)
class MPSNNDefaultPadding(MPSNNPadding, SecureCoding):
    """A policy described by bits.

    Parameters
    ----------
    padding_method : MPSNNPaddingMethod or int
        The bits, without ``Custom``: a custom policy derives from :class:`MPSNNPadding`.
    edge_mode : MPSImageEdgeMode or str, optional
        The edge mode to set on the kernel; ``None`` does not change it.

    Raises
    ------
    ValueError
        For reserved bits, and for the bit ``Custom``.

    Notes
    -----
    ``MPSNNDefaultPadding`` in ``MPSNeuralNetworkTypes.h`` [doc].
    """

    padding_method: MPSNNPaddingMethod = MPSNNPaddingMethod.SizeSame
    edge_mode: MPSImageEdgeMode | None = None

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "padding_method", of_policy(self.padding_method, "padding_method", "MPSNNPaddingMethod")
        )
        if self.edge_mode is not None:
            object.__setattr__(self, "edge_mode", edge_mode("edge_mode", self.edge_mode))

    @classmethod
    def padding_with_method(cls, method: int) -> Self:
        """Return a policy with these bits that does not change the edge mode."""
        return cls(of_policy(method, kind="MPSNNPaddingMethod"))

    @classmethod
    def padding_for_tensorflow_average_pooling(cls) -> Self:
        """Return TensorFlow's SAME: an odd pixel of padding is at the bottom right, and N excludes padding."""
        return cls._of(TENSORFLOW_AVERAGE_POOLING)

    @classmethod
    def padding_for_tensorflow_average_pooling_valid_only(cls) -> Self:
        """Return TensorFlow's VALID."""
        return cls._of(TENSORFLOW_AVERAGE_POOLING_VALID_ONLY)

    def inverse(self) -> Self:
        """Return the policy for the gradient pass: see :func:`mpsref.padding.method_inverse`."""
        return type(self)(PaddingPolicy(self.padding_method).inverse().method, self.edge_mode)

    @classmethod
    def _of(cls, policy: PaddingPolicy) -> Self:
        return cls(policy.method, None if policy.edge_mode is None else edge_mode("edge_mode", policy.edge_mode))

    def __repr__(self) -> str:
        mode = "" if self.edge_mode is None else f", edge_mode={self.edge_mode!r}"
        return f"MPSNNDefaultPadding({spelled(self.padding_method)}{mode})"


DEFAULT_PADDING: MPSNNPadding = MPSNNDefaultPadding()
"""The default of kernels: centred, remainder to the top left, size of the source over the stride [doc]."""


def policy(name: str, value: object) -> MPSNNPadding:
    """Check a padding policy."""
    if not isinstance(value, MPSNNPadding):
        raise TypeError(
            f"{name} is {shown(value)} of type {type(value).__name__}; it must be an MPSNNDefaultPadding, for example "
            "MPSNNDefaultPadding.padding_with_method(MPSNNPaddingMethod.SizeValidOnly), or derive from MPSNNPadding"
        )
    if not isinstance(value, MPSNNDefaultPadding):
        of_policy(suggested_method(value), "padding_method")  # raises for reserved bits
        if not value.padding_method & MPSNNPaddingMethod.Custom:
            raise ValueError(
                f"{name} is a {type(value).__name__} with padding_method {spelled(value.padding_method)}; a custom "
                "policy must have the bit MPSNNPaddingMethod.Custom"
            )
    return value


def suggested_method(value: MPSNNPadding) -> MPSNNPaddingMethod:
    """Return the bits without ``Custom``."""
    if isinstance(value, MPSNNDefaultPadding):
        return value.padding_method
    return value.padding_method & ~MPSNNPaddingMethod.Custom


_NAMES = {int(member): name for name, member in MPSNNPaddingMethod.__members__.items() if int(member)}


def spelled(method: MPSNNPaddingMethod) -> str:
    """Return Python code of a padding method.

    >>> spelled(MPSNNPaddingMethod(0x1C))
    'MPSNNPaddingMethod.AddRemainderToBottomRight | MPSNNPaddingMethod.SizeSame'
    """
    names, rest = [], int(method)
    for mask, fallback in ((0x3, ""), (0xC, ""), (0x7F0, "SizeValidOnly"), (0x2000, ""), (0x4000, ""), (0x8000, "")):
        member = _NAMES.get(rest & mask, fallback)
        names += [f"MPSNNPaddingMethod.{member}"] if member else []
    return " | ".join(names)


@functools.lru_cache(maxsize=8192)
def _placement(
    rule: Callable[[int, Window, int, int], Pair],
    size: Pair,
    windows: tuple[Window, Window],
    method: MPSNNPaddingMethod,
) -> tuple[Pair, Pair]:
    """Return output size and offset, both (y, x), of a kernel on an image of ``size``."""
    (height, y), (width, x) = map(rule, size, windows, (method, method), (0, 1))
    return (height, width), (y, x)


forward_placement = functools.partial(_placement, policy_forward)
reverse_placement = functools.partial(_placement, policy_reverse)
"""The offset of a reverse kernel is 0; this is its kernel offset."""
