"""Textual description of the windows of a problem: positions, divisors, and the terms of each gradient pixel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mpsref.geometry import EdgeMode, Window, effective_offset
from mpsref.kernels.convolution import SlidingProblem
from mpsref.kernels.convolution_transpose import ConvolutionTranspose
from mpsref.kernels.graph_pooling import GraphPoolingProblem
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.kernels.pooling_average import AverageForward, AverageGradient
from mpsref.kernels.pooling_l2norm import PoolingL2Norm
from mpsref.kernels.pooling_max import PoolingMax
from mpsref.registry import Problem

AXES = ("y", "x")
LEGEND = "x: tap inside the image, .: tap outside, O: centre of the window (o where it is no tap)"
WIDEST_CHART = 28
"""Maximum number of coordinates in a chart; wider windows are listed without one."""
LONGEST_LIST = 16
"""Maximum number of lines for an axis; only the first and last lines of a longer list are shown."""


def explain(problem: Problem) -> str:
    """Describe the windows of a problem, N(x), and for a gradient the contributing taps.

    Parameters
    ----------
    problem : Problem
        One call of an operation, for example ``Case.parse(text).problem``.

    Returns
    -------
    str
        One chart for each axis; one line for an operation without windows.

    Examples
    --------
    >>> from mpsref import PoolingAverage
    >>> spec = PoolingAverage(kernel_size=(1, 3), strides=(1, 2), edge_mode="clamp")
    >>> print(explain(PoolingAverage.problems["forward"](spec, (1, 1, 5, 1))).split("x axis: ")[1])
    5 pixels, 3 windows of kernel size 3, stride 2, offset 0
      pixel    | -1|  0   1   2   3   4|  5
      window 0 |  .   O   x                 |  pixels 0..1, N = 2
      window 1 |          x   O   x         |  pixels 1..3, N = 3
      window 2 |                  x   O   . |  pixels 3..4, N = 2
    <BLANKLINE>
    x: tap inside the image, .: tap outside, O: centre of the window (o where it is no tap)
    """
    lines = [f"{problem.operation}  {problem.spec}"]
    original, problem = problem, of_windows(problem)
    if isinstance(problem, PoolingForward):
        windows = [range(n) for n in problem.output_size]
    elif isinstance(problem, PoolingGradient):
        windows = list(problem.included)
    else:
        return lines[0]
    for axis, name in enumerate(AXES):
        window, length = problem.spec.windows[axis], problem.source_shape[1 + axis]
        lines += ["", f"{name} axis: {_headline(window, length, len(windows[axis]))}"]
        lines += _chart(problem, axis, windows[axis])
    lines += ["", LEGEND]
    if isinstance(problem, PoolingGradient):
        lines += _gradient(problem, _term(original))
    return "\n".join(lines)


def of_windows(problem: Problem) -> Problem:
    """Return the pooling problem with the windows of a convolution, or without indices; others unchanged.

    A transposed convolution has the windows of the gradient of a convolution.
    """
    problem = getattr(problem, "convolution", problem)
    if not isinstance(problem, (SlidingProblem, GraphPoolingProblem)):
        return problem
    windows = problem.spec.windows
    kernel_size, strides, offset, dilations = zip(
        *((w.kernel, w.stride, w.offset, w.dilation) for w in windows), strict=True
    )
    known: Any = problem
    edge_mode: EdgeMode = known.spec.edge_mode if isinstance(problem, SlidingProblem) else "zero"
    spec = PoolingMax(kernel_size, strides, offset, edge_mode, dilations)
    method = "gradient" if problem.method in ("gradient", "gradient_data") else "forward"
    pooling: Problem = spec.problems[method](spec, problem.source_shape, known.result_size)
    return pooling


def _headline(window: Window, length: int, count: int) -> str:
    dilated = f", dilation {window.dilation} (extent {window.extent})" if window.dilation > 1 else ""
    return (
        f"{length} pixels, {count} windows of kernel size {window.kernel}{dilated}, "
        f"stride {window.stride}, offset {window.offset}"
    )


def _divisor(problem: Problem, axis: int, i: int) -> str:
    """Return the text for N of window ``i``; empty if the kernel does not average."""
    if not isinstance(problem, (AverageForward, AverageGradient)):
        return ""
    return f", N = {problem.spec.divisor(axis, i, problem.source_shape)}"


def _chart(problem: PoolingForward | PoolingGradient, axis: int, windows: range) -> Iterator[str]:
    """Yield a line for each window: x tap inside the image, . tap outside, O centre (o if it is not a tap)."""
    if not windows:
        return
    window, length = problem.spec.windows[axis], problem.source_shape[1 + axis]
    low = min(0, window.start(windows[0]))
    high = max(length - 1, window.start(windows[-1]) + window.extent - 1)
    pixels = range(low, high + 1) if high - low < WIDEST_CHART else ()
    label = max(len(f"window {windows[-1]}"), len("pixel"))
    if pixels:
        yield f"  {'pixel':<{label}} |" + _cells([f"{j}" for j in pixels], low, {0, length})
    for i in _shown(windows):
        if i is None:
            yield f"  ... {len(windows) - LONGEST_LIST} more ..."
            continue
        slices = window.inside(i, length)
        inside = range(slices.start, slices.stop, slices.step)
        text = f"pixels {inside[0]}..{inside[-1]}" if inside else "outside the image"
        chart = ""
        if pixels:
            taps = {window.tap(i, t) for t in range(window.kernel)}
            center = window.start(i) + window.center
            marks = [_mark(j, taps, center, length) for j in pixels]
            chart = _cells(marks, low, set()).ljust(4 * len(marks)) + "|"
        yield f"  {f'window {i}':<{label}} |{chart}  {text}{_divisor(problem, axis, i)}"


def _mark(j: int, taps: set[int], center: int, length: int) -> str:
    if j == center:
        return "O" if j in taps else "o"
    return "" if j not in taps else "x" if 0 <= j < length else "."


def _cells(texts: Sequence[str], low: int, edges: set[int]) -> str:
    """Join cells of three characters, with a bar at each edge of the image."""
    return "".join(("|" if k and low + k in edges else "" if not k else " ") + f"{t:>3}" for k, t in enumerate(texts))


def _gradient(problem: PoolingGradient, term: Callable[[int, int, int], str]) -> Iterator[str]:
    """Yield the offsets of a gradient, and for each destination pixel the gradient pixels and terms that it sums."""
    for axis, name in enumerate(AXES):
        window, length = problem.spec.windows[axis], problem.source_shape[1 + axis]
        origin = problem.clip[0][axis] if problem.clip else 0
        offset = problem.kernel_offset[axis] if problem.kernel_offset else window.kernel_offset(origin)
        primary = problem.primary_offset[axis]
        effective = effective_offset(primary, offset, window.stride)
        yield ""
        yield (
            f"{name} axis, gradient: {problem.gradient_size[axis]} pixels of g, primary offset {primary}, "
            f"kernel offset {offset}, effective offset {effective}"
        )
        for q in _shown(range(length)):
            if q is None:
                yield f"  ... {length - LONGEST_LIST} more ..."
            else:
                gathered = problem.gathered(axis, q)
                terms = " + ".join(term(axis, q, i) for i in gathered) or "0"
                yield f"  pixel {q} gathers gradient pixels {gathered}: {terms}"


def _term(problem: Problem) -> Callable[[int, int, int], str]:
    """Return the text of what pixel ``q`` receives from gradient pixel ``i`` along an axis: the terms are summed."""
    if isinstance(problem, AverageGradient):
        return lambda axis, q, i: f"g[{i}] / {problem.spec.divisor(axis, i, problem.source_shape)}"
    if isinstance(problem, GraphPoolingProblem):
        return lambda axis, q, i: f"g[{i}] if indices[{i}] names x[{q}]"
    if isinstance(problem.spec, PoolingMax):
        return lambda axis, q, i: f"g[{i}] if x[{q}] is its maximum"
    if isinstance(problem.spec, PoolingL2Norm):
        return lambda axis, q, i: f"g[{i}] x[{q}] / y[{i}]"

    pooling: Any = of_windows(problem)
    windows, transposed = pooling.spec.windows, isinstance(problem.spec, ConvolutionTranspose)

    def product(axis: int, q: int, i: int) -> str:
        taps = [windows[axis].tap(i, t) for t in range(windows[axis].kernel)]
        return f"x[{i}] w[{taps[::-1].index(q)}]" if transposed else f"g[{i}] w[{taps.index(q)}]"

    return product


def _shown(indices: range) -> Iterator[int | None]:
    """Yield the indices; if there are too many, the first and last with ``None`` between them."""
    if len(indices) <= LONGEST_LIST:
        yield from indices
    else:
        yield from indices[: LONGEST_LIST // 2]
        yield None
        yield from indices[-LONGEST_LIST // 2 :]
