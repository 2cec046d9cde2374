"""The arguments with which a framework computes a problem: the inverse of :mod:`mpsref.padding`.

Each function returns the keyword arguments of the framework's own function, and the size of what it returns, which may
be larger than the result of the problem: the rest is cut off, and a source gradient is extended with zeros. Where a
framework has no such arguments, an :class:`mpsref.UnsupportedError` states why; :func:`mpsref.frameworks.unpadded` and
:func:`mpsref.frameworks.with_explicit_padding` then serve any geometry.

>>> from mpsref import PoolingAverage
>>> spec = PoolingAverage(3, 2, offset=(0, 0), edge_mode="clamp", zero_pad_size=1)
>>> problem = spec.problems["forward"](spec, (1, 8, 8, 1), (5, 5))
>>> words = pytorch(problem)
>>> words.keywords["padding"], words.keywords["ceil_mode"], words.keywords["count_include_pad"]
((1, 1), True, True)
>>> tensorflow(problem)
Traceback (most recent call last):
mpsref.errors.UnsupportedError: padding "SAME" of TensorFlow begins at (0, 0) and has 4 x 4 windows...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from mpsref import padding
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import Pair
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.frameworks.explicit_padding import Sliding, extended, transposed_padding
from mpsref.geometry import Window
from mpsref.kernels import ConvolutionTranspose
from mpsref.kernels.convolution import WeightedProblem
from mpsref.operations import Problem
from mpsref.padding import Placement


class CallArguments(NamedTuple):
    """Keyword arguments of a framework's function, and the size of its result."""

    keywords: dict[str, Any]
    output_size: Pair
    """Height and width of what the framework returns; at least those of the problem."""
    size: Pair
    """Height and width of the problem's result, or source gradient."""

    def crop(self, result: Array) -> Array:
        """Return the part of the framework's result (N, OH, OW, C) that is the result of the problem."""
        return result[:, : self.size[0], : self.size[1]]

    def extend(self, g: Array) -> Array:
        """Return a source gradient of the framework's size: ``g`` with zeros behind it."""
        return extended(g, self.output_size)


def pytorch(problem: Problem) -> CallArguments:
    """Return the keyword arguments of PyTorch for a problem.

    The function is ``avg_pool2d``, ``max_pool2d``, ``lp_pool2d``, ``conv2d`` or ``conv_transpose2d`` of
    ``torch.nn.functional``.

    Parameters
    ----------
    problem : Problem
        A problem of pooling, convolution or transposed convolution; gradients of pooling as
        :func:`mpsref.frameworks.canonical` returns them.

    Returns
    -------
    CallArguments
        ``padding``, ``ceil_mode``, ``count_include_pad``, ``divisor_override``, ``output_padding`` and so on.

    Raises
    ------
    UnsupportedError
        If PyTorch cannot place the windows so, or gives taps outside the image another value.
    """
    if isinstance(problem.spec, ConvolutionTranspose):
        return _pytorch_transposed(problem)
    sliding = Sliding.of(problem)
    spec: Any = problem.spec
    pads = _symmetric("PyTorch", sliding)
    strides, dilations = _strides(sliding), _dilations(sliding)
    if isinstance(problem, WeightedProblem):
        _check_value("PyTorch", sliding, problem)
        size = _enough("PyTorch", sliding, _placed(padding.pytorch, sliding, padding=pads))
        keywords = {"stride": strides, "padding": pads, "dilation": dilations, "groups": spec.groups}
        return CallArguments(keywords, size, sliding.outputs)
    if any(pad > window.kernel // 2 for pad, window in zip(pads, sliding.windows, strict=True)):
        raise UnsupportedError(
            f"the first window of pooling begins {pads} pixels before the image; PyTorch pads pooling by at most half "
            "of the kernel"
        )
    keywords = {"kernel_size": tuple(window.kernel for window in sliding.windows), "stride": strides}
    reason = UnsupportedError("")
    for ceil_mode in (False, True):
        try:
            size = _enough("PyTorch", sliding, _placed(padding.pytorch, sliding, padding=pads, ceil_mode=ceil_mode))
            _check_value("PyTorch", sliding, problem)
            own: dict[str, Any] = {"norm_type": 2.0} if sliding.padding == "none" else {"padding": pads}
            if sliding.padding == "counted":
                own |= _torch_divisor(problem, sliding, pads)
            elif sliding.padding == "lowest":
                own["dilation"] = dilations
            return CallArguments({**keywords, **own, "ceil_mode": ceil_mode}, size, sliding.outputs)
        except UnsupportedError as error:
            reason = error
    raise reason


def _torch_divisor(problem: Problem, sliding: Sliding, pads: Pair) -> dict[str, Any]:
    """Return ``count_include_pad`` and ``divisor_override`` that give every window the N of the problem."""
    for include in (True, False):
        if _same_divisors(problem, sliding, "clamp", pads if include else (0, 0)):
            return {"count_include_pad": include, "divisor_override": None}
    taps = int(np.prod([window.kernel for window in sliding.windows]))
    if _same_divisors(problem, sliding, "zero", (0, 0)):
        return {"count_include_pad": True, "divisor_override": taps}
    raise UnsupportedError(
        f"zero_pad_size is {problem.spec.zero_pad_size}; the windows are padded by {pads}, and "  # type: ignore[attr-defined]
        "PyTorch counts this padding, none, or all taps of each window"
    )


def _pytorch_transposed(problem: Problem) -> CallArguments:
    """Return ``padding`` and ``output_padding`` of a transposed convolution."""
    spec: Any = problem.spec
    assert isinstance(problem, WeightedProblem)
    pads, size = transposed_padding(spec), problem.result_size
    if min(pads) < 0:
        raise UnsupportedError(
            f"the result begins {tuple(-pad for pad in pads)} pixels before the first one that a tap reaches; PyTorch "
            "has no negative padding"
        )
    least = [
        (n - 1) * s - 2 * p + k
        for n, s, p, k in zip(problem.source_shape[1:3], spec.strides, pads, spec.size, strict=True)
    ]
    rests = tuple(max(0, wanted - smallest) for wanted, smallest in zip(size, least, strict=True))
    if any(rest >= s for rest, s in zip(rests, spec.strides, strict=True)):
        raise UnsupportedError(
            f"the result needs output_padding {rests}; PyTorch's is smaller than the strides {tuple(spec.strides)}"
        )
    returned = tuple(rest + smallest for rest, smallest in zip(rests, least, strict=True))
    keywords = {
        "stride": spec.strides,
        "padding": pads,
        "output_padding": rests,
        "groups": spec.groups,
    }
    return CallArguments(keywords, (returned[0], returned[1]), size)


def tensorflow(problem: Problem) -> CallArguments:
    """Return the keyword arguments of TensorFlow for a problem, with the padding "SAME" or "VALID".

    The function is ``avg_pool2d``, ``max_pool2d``, ``conv2d`` or ``conv2d_transpose`` of ``tf.nn``.

    Parameters
    ----------
    problem : Problem
        As in :func:`pytorch`.

    Returns
    -------
    CallArguments
        ``ksize``, ``strides``, ``padding``, ``dilations``, and ``output_shape`` of a transposed convolution.

    Raises
    ------
    UnsupportedError
        If neither padding places the windows so, or taps outside the image have another value.
    """
    spec: Any = problem.spec
    if isinstance(spec, ConvolutionTranspose):
        convolution: Any = problem.convolution  # type: ignore[attr-defined]
        words = tensorflow(convolution)
        if words.output_size != convolution.result_size:
            raise UnsupportedError(
                f"the source is {convolution.result_size}; TensorFlow's convolution of the result has "
                f"{words.output_size} pixels, and its transpose takes no other source"
            )
        assert isinstance(problem, WeightedProblem)
        return CallArguments(
            words.keywords | {"output_shape": problem.result_image}, problem.result_size, problem.result_size
        )
    sliding = Sliding.of(problem)
    strides, dilations = _strides(sliding), _dilations(sliding)
    if sliding.padding == "none":
        raise UnsupportedError("TensorFlow has no L2-norm pooling")
    keywords: dict[str, Any] = {"strides": strides, "dilations": dilations}
    if not isinstance(problem, WeightedProblem):
        if dilations != (1, 1):
            raise UnsupportedError(f"dilations is {dilations}; max_pool2d of TensorFlow has none")
        keywords = {"strides": strides, "ksize": tuple(window.kernel for window in sliding.windows)}
    reason = UnsupportedError("")
    for name in ("VALID", "SAME"):
        try:
            placement = _placed(padding.tensorflow, sliding, padding=name)
            size = _enough(f'padding "{name}" of TensorFlow', sliding, placement)
            _check_value("TensorFlow", sliding, problem)
            if sliding.padding == "counted" and not _same_divisors(problem, sliding, "clamp", (0, 0)):
                raise UnsupportedError("average pooling of TensorFlow counts the pixels inside the image alone")
            return CallArguments(keywords | {"padding": name}, size, sliding.outputs)
        except UnsupportedError as error:
            reason = error
    raise reason


OnnxStyle: TypeAlias = Literal["pads", "auto_pad", "ceil_mode"]


def onnx(problem: Problem, style: OnnxStyle = "pads") -> CallArguments:
    """Return the attributes of an ONNX operator for a problem.

    The operator is ``AveragePool``, ``MaxPool``, ``LpPool``, ``Conv`` or ``ConvTranspose``.

    Parameters
    ----------
    problem : Problem
        As in :func:`pytorch`.
    style : {"pads", "auto_pad", "ceil_mode"}
        How windows are placed that can be placed in several ways: by the pads that they need, by "SAME_UPPER",
        "SAME_LOWER" or "VALID", or by equal pads in ceil mode.

    Returns
    -------
    CallArguments
        ``kernel_shape``, ``strides``, ``pads`` (top, left, bottom, right), ``ceil_mode`` and so on.

    Raises
    ------
    UnsupportedError
        If a window would begin inside the image or padding would exceed the kernel, or taps outside the image have
        another value.
    """
    spec: Any = problem.spec
    if isinstance(spec, ConvolutionTranspose):
        words = _pytorch_transposed(problem)
        pads = words.keywords["padding"]
        rests = words.keywords["output_padding"]
        kernel = {"kernel_shape": spec.size, "strides": words.keywords["stride"], "group": words.keywords["groups"]}
        return CallArguments({**kernel, "pads": (*pads, *pads), "output_padding": rests}, *words[1:])
    sliding = Sliding.of(problem)
    before = _symmetric("ONNX", sliding)
    after = tuple(
        max(0, window.tap(count - 1, window.kernel - 1) + 1 - length)
        for window, count, length in zip(sliding.windows, sliding.outputs, sliding.lengths, strict=True)
    )
    kernel = {"kernel_shape": tuple(w.kernel for w in sliding.windows), "strides": _strides(sliding)}
    if sliding.padding in ("zero", "lowest"):
        kernel["dilations"] = _dilations(sliding)
    pooling = not isinstance(problem, WeightedProblem)
    if not pooling:
        kernel["group"] = spec.groups
    _check_value("ONNX", sliding, problem)
    average = sliding.padding == "counted"
    for placed, pads, include in _onnx_choices(pooling, average, (*before, after[0], after[1]), style):
        try:
            size = _enough("ONNX", sliding, _placed(padding.onnx, sliding, **placed))
        except UnsupportedError:
            continue
        keywords = {**kernel, **placed}
        if pooling:
            keywords.setdefault("ceil_mode", False)
            if any(pad >= window.kernel for pad, window in zip(pads, sliding.windows * 2, strict=True)):
                continue
        if average:
            if not _onnx_divisors(problem, sliding, pads, include):
                continue
            keywords["count_include_pad"] = include
        return CallArguments(keywords, size, sliding.outputs)
    raise UnsupportedError(
        f"the windows reach {before} pixels before and {after} behind the image; "
        + (
            f"with zero_pad_size {spec.zero_pad_size} and edge_mode {spec.edge_mode!r} ONNX counts other taps"
            if average
            else "ONNX pads pooling by less than the kernel"
        )
    )


def _onnx_choices(
    pooling: bool, average: bool, exact: tuple[int, int, int, int], style: OnnxStyle
) -> Iterator[tuple[dict[str, Any], tuple[int, int, int, int], bool]]:
    """Yield attributes, the pads that they mean, and count_include_pad; those of the style first."""
    equal = *exact[:2], *exact[:2]
    counted = (False, True) if average else (False,)
    choices: list[tuple[dict[str, Any], tuple[int, int, int, int], bool]] = []
    if style == "auto_pad":
        names = ("SAME_UPPER", "SAME_LOWER") if any(exact) else ("VALID", "SAME_UPPER")
        choices += [({"auto_pad": name}, exact, include) for name in names for include in counted]
    ceil = [({"pads": equal, "ceil_mode": True}, equal, include) for include in counted]
    if style == "ceil_mode" and pooling:
        choices += ceil
    yield from choices
    yield from (({"pads": exact}, exact, include) for include in counted)
    if average:
        yield from ceil[1:]


def _onnx_divisors(problem: Problem, sliding: Sliding, pads: tuple[int, int, int, int], include: bool) -> bool:
    """Return whether each window has the N of the problem if it counts the taps inside the pads, or none of them."""
    if not include:
        return _same_divisors(problem, sliding, "clamp", (0, 0))
    counts = [
        [len(window.taps_between(i, -pads[axis], length + pads[axis + 2])) for i in range(count)]
        for axis, (window, count, length) in enumerate(
            zip(sliding.windows, sliding.outputs, sliding.lengths, strict=True)
        )
    ]
    return counts == _divisors(problem, sliding)


def jax(problem: Problem) -> CallArguments:
    """Return the keyword arguments of JAX for a problem.

    The function is ``jax.lax.conv_general_dilated`` or ``jax.lax.reduce_window``, on (H, W) alone: a caller adds the
    entries 1 and (0, 0) of the other axes. Average pooling is a sum of windows, divided by N with
    :func:`mpsref.frameworks.divided`. Weights of a transposed convolution are those of mpsref, not rotated.

    Parameters
    ----------
    problem : Problem
        As in :func:`pytorch`.

    Returns
    -------
    CallArguments
        ``window_strides``, ``padding`` ((top, bottom), (left, right)), dilations; the result has the size of the
        problem.

    Raises
    ------
    UnsupportedError
        If taps outside the image have another value than the padding, 0 or for max pooling minus infinity.
    """
    spec: Any = problem.spec
    if isinstance(spec, ConvolutionTranspose):
        assert isinstance(problem, WeightedProblem)
        pads: list[tuple[int, int]] = []
        strides: Any = spec.strides
        for e, k, s, n, length in zip(
            spec.effective_offsets,
            spec.size,
            strides,
            problem.result_size,
            problem.source_shape[1:3],
            strict=True,
        ):
            first = e - k // 2
            pads.append((-first, first + n + k - 2 - (length - 1) * s))
        keywords: dict[str, Any] = {
            "window_strides": (1, 1),
            "padding": tuple(pads),
            "lhs_dilation": strides,
        }
        return CallArguments(
            {**keywords, "rhs_dilation": (1, 1), "feature_group_count": spec.groups},
            problem.result_size,
            problem.result_size,
        )
    sliding = Sliding.of(problem)
    _check_value("JAX", sliding, problem)
    exact = [
        (-window.start(0), window.tap(count - 1, window.kernel - 1) + 1 - length)
        for window, count, length in zip(sliding.windows, sliding.outputs, sliding.lengths, strict=True)
    ]
    keywords = {"window_strides": _strides(sliding), "padding": tuple(exact)}
    if isinstance(problem, WeightedProblem):
        keywords |= {"lhs_dilation": (1, 1), "rhs_dilation": _dilations(sliding), "feature_group_count": spec.groups}
    else:
        keywords |= {
            "window_dimensions": tuple(window.kernel for window in sliding.windows),
            "window_dilation": _dilations(sliding),
        }
    return CallArguments(keywords, sliding.outputs, sliding.outputs)


def _strides(sliding: Sliding) -> Pair:
    y, x = (window.stride for window in sliding.windows)
    return y, x


def _dilations(sliding: Sliding) -> Pair:
    y, x = (window.dilation for window in sliding.windows)
    return y, x


def _symmetric(framework: str, sliding: Sliding) -> Pair:
    """Return how many pixels the first window begins before the image, on both axes."""
    y, x = (-window.start(0) for window in sliding.windows)
    if min(y, x) < 0:
        raise UnsupportedError(
            f"the first window begins at pixel {(-y, -x)}; {framework} has no negative padding: crop the image before"
        )
    return y, x


def _placed(convention: Callable[..., Placement], sliding: Sliding, **words: Any) -> Placement:
    """Return the windows of a framework with these words."""
    kernel = tuple(window.kernel for window in sliding.windows)
    try:
        return convention(sliding.lengths, kernel, _strides(sliding), dilations=_dilations(sliding), **words)
    except ShapeError as error:
        raise UnsupportedError(f"with {words} {error}") from error


def _enough(what: str, sliding: Sliding, placement: Placement) -> Pair:
    """Return the output size of a framework if its windows begin where those of the problem do and are enough."""
    wanted = tuple(window.offset for window in sliding.windows)
    if placement.offset != wanted or any(n < m for n, m in zip(placement.output_size, sliding.outputs, strict=True)):
        height, width = placement.output_size
        first = tuple(o - w.center for o, w in zip(placement.offset, sliding.windows, strict=True))
        begins = tuple(window.start(0) for window in sliding.windows)
        raise UnsupportedError(
            f"{what} begins at {first} and has {height} x {width} windows; the problem begins at {begins} and has "
            f"{sliding.outputs[0]} x {sliding.outputs[1]}"
        )
    return placement.output_size


def _check_value(framework: str, sliding: Sliding, problem: Problem) -> None:
    """Raise ``UnsupportedError`` if taps outside the image have another value than in a framework's padding.

    A mean has no such value: it counts taps.
    """
    if sliding.padding == "counted" or sliding.edge_mode == "lowest" or not sliding.outside():
        return
    if sliding.padding == "none":
        raise UnsupportedError(f"taps lie outside the image; {framework} has no padding for L2-norm pooling")
    if sliding.padding == "lowest":
        if sliding.edge_mode == "zero":
            raise UnsupportedError(
                f'taps lie outside the image and edge_mode is "zero"; the padding of {framework} is minus infinity'
            )
        if not all(map(_edge_is_inside, sliding.windows, sliding.outputs, sliding.lengths)):
            raise UnsupportedError(
                f"a window reads the edge pixel only by taps outside the image; {framework} leaves these out"
            )
    elif sliding.edge_mode == "clamp":
        raise UnsupportedError(f'taps lie outside the image and edge_mode is "clamp"; {framework} reads 0 there')


def _edge_is_inside(window: Window, count: int, length: int) -> bool:
    """Return whether each window that reads beyond an edge of the image has also a tap at the pixel of that edge."""
    for i in range(count):
        taps = [window.tap(i, t) for t in range(window.kernel)]
        if (taps[0] < 0 and 0 not in taps) or (taps[-1] >= length and length - 1 not in taps):
            return False
    return True


def _divisors(problem: Problem, sliding: Sliding) -> list[list[int]]:
    """Return N of every window on both axes."""
    spec: Any = problem.spec
    return [
        [window.divisor(i, length, spec.edge_mode, pad) for i in range(count)]
        for window, count, length, pad in zip(
            sliding.windows, sliding.outputs, sliding.lengths, spec.zero_pad, strict=True
        )
    ]


def _same_divisors(problem: Problem, sliding: Sliding, edge_mode: Any, ring: Pair) -> bool:
    """Return whether the windows have the N of this edge mode and zero pad."""
    other = [
        [window.divisor(i, length, edge_mode, pad) for i in range(count)]
        for window, count, length, pad in zip(sliding.windows, sliding.outputs, sliding.lengths, ring, strict=True)
    ]
    return other == _divisors(problem, sliding)
