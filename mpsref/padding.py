"""Padding conventions of MPS, TensorFlow, PyTorch, ONNX and Caffe as an offset and an output size.

A kernel of mpsref is placed by two things alone: the ``offset`` of its first window's centre, and how many outputs it
has. Each function here turns one framework's words into these, for both axes, as a :class:`Placement`.

>>> from mpsref import padding
>>> padding.pytorch((112, 112), 3, strides=2, padding=1)
Placement(offset=(0, 0), output_size=(56, 56), edge_mode='clamp', zero_pad_size=(1, 1))
>>> padding.tensorflow((112, 112), 3, strides=2, padding="SAME").offset
(1, 1)

``edge_mode`` and ``zero_pad_size`` are those that make *average pooling* count as the framework does.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from mpsref.arguments.parameters import Pair, PairLike, choice, flag, integer, pair
from mpsref.arguments.text import Suggesting, shown
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.geometry import EDGE_MODES, EdgeMode, Window, ceil_div, tdiv2

__all__ = [
    "TENSORFLOW_AVERAGE_POOLING",
    "TENSORFLOW_AVERAGE_POOLING_VALID_ONLY",
    "PaddingMethod",
    "PaddingPolicy",
    "Placement",
    "caffe",
    "method_inverse",
    "mps",
    "onnx",
    "policy_forward",
    "policy_reverse",
    "pytorch",
    "tensorflow",
]

Y, X = 0, 1  # the axes, in array order

AnyFunction = TypeVar("AnyFunction", bound="Callable[..., Placement]")


class PaddingMethod(enum.IntFlag, boundary=enum.KEEP, metaclass=Suggesting):
    """The bits of a padding policy. Source: ``MPSNNPaddingMethod`` in ``MPSNeuralNetworkTypes.h`` [doc]."""

    AlignCentered = 0
    AlignTopLeft = 1
    AlignBottomRight = 2
    AddRemainderToTopLeft = 0
    AddRemainderToTopRight = 4
    AddRemainderToBottomLeft = 8
    AddRemainderToBottomRight = 12
    SizeValidOnly = 0
    SizeSame = 0x10
    SizeFull = 0x20
    CustomAllowForNodeFusion = 1 << 13
    CustomWhitelistForNodeFusion = 1 << 13
    Custom = 1 << 14
    ExcludeEdges = 1 << 15


ALIGN = 3
REMAINDER_RIGHT, REMAINDER_BOTTOM = 4, 8
REMAINDER = REMAINDER_RIGHT | REMAINDER_BOTTOM
TOP_LEFT, BOTTOM_RIGHT = int(PaddingMethod.AlignTopLeft), int(PaddingMethod.AlignBottomRight)
SIZE = 0x7F0
STYLE = {int(PaddingMethod.SizeValidOnly): -1, int(PaddingMethod.SizeSame): 0, int(PaddingMethod.SizeFull): 1}


class Placement(NamedTuple):
    """Where the windows lie: ``offset`` and ``output_size`` as (y, x), and how average pooling counts."""

    offset: Pair
    output_size: Pair
    edge_mode: EdgeMode = "zero"
    zero_pad_size: Pair = (0, 0)


def _checked(method: object, name: str = "method", kind: str = "PaddingMethod") -> PaddingMethod:
    """Refuse reserved values of the align and size fields; ``kind`` is the name of the class in messages."""
    if isinstance(method, str):
        member = PaddingMethod.like(method) or "SizeSame"
        raise TypeError(f"{name} is {shown(method)} of type str; it must be an integer >= 0, such as {kind}.{member}")
    bits = PaddingMethod(integer(name, method, low=0))
    if bits & ALIGN == ALIGN:
        raise ValueError(f"{name} is {int(bits):#x}; its align field is 3, which is reserved: use 0, 1 or 2")
    if bits & SIZE not in STYLE:
        raise ValueError(
            f"{name} is {int(bits):#x}; its size field is {int(bits & SIZE):#x}, which is reserved: "
            "use SizeValidOnly (0), SizeSame (0x10) or SizeFull (0x20)"
        )
    return bits


def of_policy(method: object, name: str = "method", kind: str = "PaddingMethod") -> PaddingMethod:
    """Refuse reserved values and the bit ``Custom``; the names are those of messages."""
    bits = _checked(method, name, kind)
    if bits & PaddingMethod.Custom:
        raise ValueError(
            f"{name} is {int(bits):#x} with the Custom bit {int(PaddingMethod.Custom):#x}; "
            "a custom policy must be an object of its own, not a method"
        )
    return bits


@dataclass(frozen=True)
class PaddingPolicy:
    """A padding method, with the edge mode that the policy sets on its kernel, if any.

    Source: ``MPSNNDefaultPadding`` in ``MPSNeuralNetworkTypes.h`` [doc].
    """

    method: PaddingMethod
    edge_mode: EdgeMode | None = None

    def __post_init__(self) -> None:
        """Refuse reserved bits, and the custom bit: a custom policy is an object of its own."""
        method = of_policy(self.method)
        if self.edge_mode is not None:
            choice("edge_mode", self.edge_mode, EDGE_MODES)
        object.__setattr__(self, "method", method)

    def inverse(self) -> PaddingPolicy:
        """Return the policy suited to the gradient pass; see :func:`method_inverse`."""
        return PaddingPolicy(method_inverse(self.method), self.edge_mode)


TENSORFLOW_AVERAGE_POOLING = PaddingPolicy(
    PaddingMethod.SizeSame | PaddingMethod.AddRemainderToBottomRight, edge_mode="clamp"
)
"""``paddingForTensorflowAveragePooling`` [doc text; Apple's sample code omits the remainder bits]."""

TENSORFLOW_AVERAGE_POOLING_VALID_ONLY = PaddingPolicy(
    PaddingMethod.SizeValidOnly | PaddingMethod.AlignBottomRight, edge_mode="clamp"
)
"""``paddingForTensorflowAveragePoolingValidOnly``: TensorFlow's VALID [choice padding-tensorflow-valid]."""


@functools.lru_cache(maxsize=256)
def _bits(method: int) -> int:
    """Return the checked bits as a number: operations on flags are slow."""
    return int(_checked(method))


def _left(extra: int, method: int, axis: int) -> int:
    """Return how many of the ``extra`` pixels lie before the image; fewer than 0 crops.

    Source: the helper code in ``MPSNeuralNetworkTypes.h`` and ``MPSState.h`` for the centred split [doc], taken
    literally for a negative ``extra``; the two aligned cases [choice padding-align-crop].
    """
    if method & ALIGN == TOP_LEFT:
        return extra
    if method & ALIGN == BOTTOM_RIGHT:
        return 0
    after = REMAINDER_RIGHT if axis == X else REMAINDER_BOTTOM
    return tdiv2(extra + (0 if method & after else 1))


def _positive(outputs: int, length: int, window: Window, axis: int) -> int:
    if outputs < 1:
        raise ShapeError(
            f"no window fits: an image of {'height' if axis == Y else 'width'} {length} has {outputs} outputs for a "
            f"window of extent {window.extent} and stride {window.stride}; use a larger image, a smaller kernel or "
            "more padding"
        )
    return outputs


def policy_forward(length: int, window: Window, method: int, axis: int) -> Pair:
    """Return (O, o): output size and offset that a padding policy gives a forward kernel on one axis.

    ``axis`` is 0 for y, 1 for x. The offset of ``window`` is not read. Raises ``ValueError`` for reserved bits and
    where no window fits.

    >>> policy_forward(224, Window(7, stride=2), PaddingMethod.SizeSame, axis=0)
    (112, 0)
    """
    bits = _bits(method)
    style = STYLE[bits & SIZE]
    extent, stride = window.extent, window.stride
    outputs = ceil_div(length + style * (extent - 1), stride)
    _positive(outputs, length, window, axis)
    extra = (outputs - 1) * stride + extent - length
    return outputs, window.center - _left(extra, bits, axis)


def policy_reverse(length: int, window: Window, method: int, axis: int) -> Pair:
    """Return (O, ko): output size and kernel offset that a policy gives a reverse kernel; its offset is 0.

    Source: size [doc: ``MPSNeuralNetworkTypes.h``]; the placement, in zero-inserted coordinates [choice
    padding-reverse].

    >>> policy_reverse(4, Window(3, stride=2), PaddingMethod.SizeFull, axis=0)
    (9, -1)
    """
    bits = _bits(method)
    style = STYLE[bits & SIZE]
    outputs = (length - 1) * window.stride + 1 + style * (window.extent - 1)
    _positive(outputs, length, window, axis)
    return outputs, window.center - _left((style + 1) * (window.extent - 1), bits, axis)


def method_inverse(method: int) -> PaddingMethod:
    """Return the method for the gradient pass: Valid and Full change places, and remainders change sides.

    Documented only as suitable for a training gradient pass, with Valid and Full swapped [doc]; the rest [choice
    padding-inverse]. It restores size and place of the source for stride 1; for larger strides no policy can, and a
    gradient state must.

    >>> method_inverse(PaddingMethod.SizeValidOnly) == PaddingMethod.SizeFull | PaddingMethod.AddRemainderToBottomRight
    True
    """
    bits = _checked(method)
    if bits & PaddingMethod.Custom:
        raise UnsupportedError(
            f"method is {int(bits):#x}: a custom policy has no inverse; configure the gradient from a gradient state"
        )
    inverse = bits ^ REMAINDER
    if bits & SIZE == PaddingMethod.SizeSame:
        return PaddingMethod(inverse ^ ALIGN if bits & ALIGN else inverse)
    swapped = {PaddingMethod.SizeValidOnly: PaddingMethod.SizeFull}.get(bits & SIZE, PaddingMethod.SizeValidOnly)
    return PaddingMethod(inverse & ~(ALIGN | SIZE) | swapped)


def _described(place: AnyFunction) -> AnyFunction:
    """Complete the documentation of a placement: all of them have the two sizes, and return the same."""
    summary, given = inspect.cleandoc(place.__doc__ or "").split("Parameters\n----------\n")
    parameters, *others = re.split(r"\n\n(?=Raises|Examples)", given)
    sizes = "input_size, kernel_size : int or pair of int\n    Size (height, width) of the image and of the kernel."
    returned = "Placement\n    Offset, output size, edge mode and zero pad size for a kernel of mpsref."
    sections = [f"{summary}Parameters\n----------\n{sizes}\n{parameters}", f"Returns\n-------\n{returned}", *others]
    place.__doc__ = "\n\n".join(sections)
    return place


@_described
def mps(
    input_size: PairLike,
    kernel_size: PairLike,
    strides: PairLike = 1,
    dilations: PairLike = 1,
    policy: PaddingPolicy | int = PaddingMethod.SizeSame,
) -> Placement:
    """Return the placement of the windows by an MPS padding policy.

    Parameters
    ----------
    strides, dilations : int or pair of int
        Distance (y, x) of two windows, and of two taps.
    policy : PaddingPolicy or int
        The policy, or the bits of its method.

    Raises
    ------
    ShapeError
        If no window fits.

    Examples
    --------
    >>> mps((5, 6), 2, policy=TENSORFLOW_AVERAGE_POOLING)
    Placement(offset=(1, 1), output_size=(5, 6), edge_mode='clamp', zero_pad_size=(0, 0))
    """
    policy = policy if isinstance(policy, PaddingPolicy) else PaddingPolicy(_checked(policy))
    axes = [
        policy_forward(length, window, policy.method, axis)
        for axis, (length, window) in enumerate(_axes(input_size, kernel_size, strides, dilations))
    ]
    return _placement(axes, policy.edge_mode or "zero")


@_described
def tensorflow(
    input_size: PairLike, kernel_size: PairLike, strides: PairLike = 1, dilations: PairLike = 1, padding: str = "SAME"
) -> Placement:
    """Return the placement of TensorFlow's "SAME" or "VALID".

    Its average pooling does not count padding.

    Parameters
    ----------
    strides, dilations : int or pair of int
        Distance (y, x) of two windows, and of two taps.
    padding : {"SAME", "VALID"}
        The padding.
    """
    choice("padding", padding, ("SAME", "VALID"))

    def place(axis: int, length: int, window: Window) -> Pair:
        if padding == "VALID":
            return _floor_outputs(length, window), window.center
        outputs = ceil_div(length, window.stride)
        extra = (outputs - 1) * window.stride + window.extent - length
        return outputs, window.center - max(extra, 0) // 2

    return _place(input_size, kernel_size, strides, dilations, place, "clamp")


@_described
def pytorch(
    input_size: PairLike,
    kernel_size: PairLike,
    strides: PairLike | None = None,
    padding: PairLike = 0,
    dilations: PairLike = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Placement:
    """Return the placement of a PyTorch pooling or convolution layer.

    Parameters
    ----------
    strides : int or pair of int, optional
        Distance (y, x) of two windows; default: the kernel size, as in pooling.
    padding, dilations : int or pair of int
        Zeros (y, x) on each side of the image, and distance of two taps.
    ceil_mode, count_include_pad : bool
        As in pooling layers.

    Examples
    --------
    >>> pytorch((7, 7), 2, ceil_mode=True).output_size
    (4, 4)
    """
    pads = pair("padding", padding, low=0)
    ceil_mode, count_include_pad = flag("ceil_mode", ceil_mode), flag("count_include_pad", count_include_pad)

    def place(axis: int, length: int, window: Window) -> Pair:
        p = pads[axis]
        return _outputs(length, window, (p, p), ceil_mode, inside=True), window.center - p

    strides = kernel_size if strides is None else strides
    zero_pad = pads if count_include_pad else (0, 0)
    return _place(input_size, kernel_size, strides, dilations, place, "clamp", zero_pad)


@_described
def onnx(
    input_size: PairLike,
    kernel_size: PairLike,
    strides: PairLike = 1,
    pads: Sequence[int] = (0, 0, 0, 0),
    dilations: PairLike = 1,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Placement:
    """Return the placement of an ONNX operator.

    Parameters
    ----------
    strides, dilations : int or pair of int
        Distance (y, x) of two windows, and of two taps.
    pads : sequence of int
        Padding (top, left, bottom, right), as in the model file.
    auto_pad : {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"}
        As in the model file; other than "NOTSET" it replaces ``pads``.
    ceil_mode, count_include_pad : bool
        As in the model file.

    Raises
    ------
    UnsupportedError
        For counted asymmetric padding in ceil mode, which no symmetric zero pad describes.
    """
    choice("auto_pad", auto_pad, ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
    ceil_mode, count_include_pad = flag("ceil_mode", ceil_mode), flag("count_include_pad", count_include_pad)
    if not isinstance(pads, Sequence) or len(pads) != 4:
        raise ValueError(f"pads is {shown(pads)}; it must be four integers (top, left, bottom, right)")
    top, left, bottom, right = (integer(f"pads[{k}]", p, low=0) for k, p in enumerate(pads))
    explicit = auto_pad == "NOTSET"
    before, after = ((top, left), (bottom, right)) if explicit else ((0, 0), (0, 0))

    def place(axis: int, length: int, window: Window) -> Pair:
        if auto_pad in ("NOTSET", "VALID"):
            ends = before[axis], after[axis]
            return _outputs(length, window, ends, ceil_mode and explicit, inside=True), window.center - ends[0]
        outputs = ceil_div(length, window.stride)
        extra = (outputs - 1) * window.stride + window.extent - length
        return outputs, window.center - tdiv2(extra + (auto_pad == "SAME_LOWER"))

    edge_mode: EdgeMode = "zero" if count_include_pad else "clamp"
    ring = (0, 0)
    if count_include_pad and ceil_mode and explicit:
        if before != after:
            raise UnsupportedError(
                f"pads is {tuple(pads)!r} with ceil_mode and count_include_pad: MPS has one zero_pad_size for both "
                "sides of an axis; pad the image explicitly, then pool without padding"
            )
        edge_mode, ring = "clamp", before
    return _place(input_size, kernel_size, strides, dilations, place, edge_mode, ring)


@_described
def caffe(input_size: PairLike, kernel_size: PairLike, strides: PairLike = 1, pad: PairLike = 0) -> Placement:
    """Return the placement of a Caffe pooling layer: sizes are rounded up, and averages count padding.

    Parameters
    ----------
    strides, pad : int or pair of int
        Distance (y, x) of two windows, and zeros on each side of the image.
    """
    pads = pair("pad", pad, low=0)

    def place(axis: int, length: int, window: Window) -> Pair:
        p = pads[axis]
        return _outputs(length, window, (p, p), True, inside=any(pads)), window.center - p

    return _place(input_size, kernel_size, strides, 1, place, "clamp", pads)


def _floor_outputs(length: int, window: Window) -> int:
    return (length - window.extent) // window.stride + 1


def _outputs(length: int, window: Window, pads: Pair, ceil_mode: bool, inside: bool) -> int:
    """Return the number of windows over a padded axis; ``inside`` drops a last one that starts in the end padding."""
    padded = length + sum(pads)
    if not ceil_mode:
        return _floor_outputs(padded, window)
    outputs = ceil_div(padded - window.extent, window.stride) + 1
    return outputs - (inside and (outputs - 1) * window.stride >= length + pads[0])


def _axes(input_size: PairLike, kernel_size: PairLike, strides: Any, dilations: Any) -> list[tuple[int, Window]]:
    """Return the length and the window (its offset 0) of both axes."""
    names = ("input_size", "kernel_size", "strides", "dilations")
    columns = [
        pair(name, value, low=1)
        for name, value in zip(names, (input_size, kernel_size, strides, dilations), strict=True)
    ]
    return [(length, Window(k, s, d)) for length, k, s, d in zip(*columns, strict=True)]


def _placement(axes: list[Pair], edge_mode: EdgeMode, zero_pad_size: Pair = (0, 0)) -> Placement:
    (height, oy), (width, ox) = axes
    return Placement((oy, ox), (height, width), edge_mode, zero_pad_size)


def _place(
    input_size: PairLike,
    kernel_size: PairLike,
    strides: Any,
    dilations: Any,
    place: Callable[[int, int, Window], Pair],
    edge_mode: EdgeMode,
    zero_pad_size: Pair = (0, 0),
) -> Placement:
    """Apply ``place(axis, length, window) -> (outputs, offset)`` to both axes."""
    axes = []
    for axis, (length, window) in enumerate(_axes(input_size, kernel_size, strides, dilations)):
        outputs, offset = place(axis, length, window)
        axes.append((_positive(outputs, length, window, axis), offset))
    return _placement(axes, edge_mode, zero_pad_size)
