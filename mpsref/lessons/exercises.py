"""The exercises of all lessons, with their usual wrong answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import mpsref
from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.geometry import Window, effective_offset
from mpsref.lessons.exercise import Arguments, Exercise, Wrong


def _counting(*shape: int) -> Array:
    """Return 1, 2, 3, ... in float64, to follow by hand."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float64).reshape(shape)


def _drawn_array(shape: tuple[int, ...], seed: int) -> Array:
    """Return integers: counting up for seed 0, else random, with ties and of both signs."""
    if seed == 0:
        return _counting(*shape)
    return np.random.default_rng(seed).integers(-6, 7, shape).astype(np.float64)


SMALL, SEED = st.integers(1, 5), st.integers(0, 20)

# ------------------------------------------------------------------------------------------------------ 1: windows


def _pixels_inside(i: int, kernel: int, stride: int, offset: int, length: int) -> list[int]:
    first = offset + i * stride - kernel // 2
    return [max(0, first), min(length, first + kernel)]


WINDOWS = (
    Exercise(
        "first_pixel",
        1,
        st.fixed_dictionaries(
            {
                "i": st.integers(0, 6),
                "kernel": st.integers(1, 7),
                "stride": st.integers(1, 4),
                "offset": st.integers(-3, 4),
            }
        ),
        lambda i, kernel, stride, offset: Window(kernel, stride, 1, offset).start(i),
        "The centre of window i is at offset + i * stride, and the window begins kernel // 2 pixels before its centre.",
        "offset + i * stride - kernel // 2",
        (
            Wrong(
                "This is the centre of the window, not its first pixel.",
                lambda i, kernel, stride, offset: offset + i * stride,
            ),
            Wrong(
                "An even window has more pixels before its centre than after it: kernel // 2 of them, not "
                "(kernel - 1) // 2.",
                lambda i, kernel, stride, offset: offset + i * stride - (kernel - 1) // 2,
            ),
            Wrong(
                "The stride is missing: neighbouring windows are `stride` pixels apart.",
                lambda i, kernel, stride, offset: offset + i - kernel // 2,
            ),
            Wrong("The offset is missing.", lambda i, kernel, stride, offset: i * stride - kernel // 2),
            Wrong(
                "The offset has the wrong sign: a larger offset moves all windows to the right.",
                lambda i, kernel, stride, offset: -offset + i * stride - kernel // 2,
            ),
            Wrong(
                "The stride multiplies the offset, too: only the number of the window is multiplied.",
                lambda i, kernel, stride, offset: (offset + i) * stride - kernel // 2,
            ),
        ),
    ),
    Exercise(
        "output_size",
        1,
        st.fixed_dictionaries(
            {"length": st.integers(4, 20), "stride": st.integers(1, 5), "offset": st.integers(-2, 3)}
        ),
        lambda length, stride, offset: -(-(length - offset) // stride),
        "By default the last window is the last one whose centre lies before the end of the image.",
        "ceil((length - offset) / stride), which is -(-(length - offset) // stride) in integers",
        (
            Wrong(
                "The division rounds down: the last window may have its centre before the end and is missing.",
                lambda length, stride, offset: (length - offset) // stride,
            ),
            Wrong("The offset is missing.", lambda length, stride, offset: -(-length // stride)),
            Wrong(
                "There is one window too many where the division has no remainder.",
                lambda length, stride, offset: (length - offset) // stride + 1,
            ),
            Wrong(
                "The offset has the wrong sign: windows that begin later are fewer.",
                lambda length, stride, offset: -(-(length + offset) // stride),
            ),
        ),
    ),
    Exercise(
        "pixels_inside",
        1,
        st.fixed_dictionaries(
            {
                "i": st.integers(0, 3),
                "kernel": st.integers(1, 5),
                "stride": st.integers(1, 3),
                "offset": st.integers(0, 2),
                "length": st.integers(1, 9),
            }
        ).filter(lambda a: a["offset"] + a["i"] * a["stride"] < a["length"]),
        _pixels_inside,
        "A window reads [first, first + kernel), and the image has the pixels [0, length).",
        "[max(0, first), min(length, first + kernel)] with first = offset + i * stride - kernel // 2",
        (
            Wrong(
                "Pixels outside the image are counted: the window shrinks at the border.",
                lambda i, kernel, stride, offset, length: [
                    offset + i * stride - kernel // 2,
                    offset + i * stride - kernel // 2 + kernel,
                ],
            ),
            Wrong(
                "The end is that of the last pixel; it must be the one after it, as in a slice.",
                lambda i, kernel, stride, offset, length: [
                    _pixels_inside(i, kernel, stride, offset, length)[0],
                    _pixels_inside(i, kernel, stride, offset, length)[1] - 1,
                ],
            ),
            Wrong(
                "The window is moved into the image; it must shrink instead.",
                lambda i, kernel, stride, offset, length: [
                    max(0, offset + i * stride - kernel // 2),
                    min(length, max(0, offset + i * stride - kernel // 2) + kernel),
                ],
            ),
            Wrong(
                "Only the end of the image is considered; the window also shrinks at its beginning.",
                lambda i, kernel, stride, offset, length: [
                    offset + i * stride - kernel // 2,
                    min(length, offset + i * stride - kernel // 2 + kernel),
                ],
            ),
        ),
    ),
)

# ------------------------------------------------------------------------------------------------------ 2: the average


@st.composite
def _pools(draw: Any, gradient: bool, modes: tuple[str, ...]) -> Arguments:
    """Draw the arguments of a pooling exercise: images of one channel, windows that all have a pixel inside."""
    height, width = draw(SMALL), draw(SMALL)
    kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    found: dict[str, Any] = {"kernel": kernel, "stride": stride}
    if len(modes) > 1:
        found["edge_mode"] = draw(st.sampled_from(modes))
    if not gradient:
        return {"x": _drawn_array((height, width), draw(SEED)), **found}
    size = -(-height // stride), -(-width // stride)
    if len(modes) > 1:
        return {"g": _drawn_array(size, draw(SEED)), "height": height, "width": width, **found}
    return {"g": _drawn_array(size, draw(SEED)), "x": _drawn_array((height, width), draw(SEED)), **found}


def _spans(length: int, kernel: int, stride: int) -> list[range]:
    """Return the pixels inside the image of each window."""
    return [
        range(max(0, i * stride - kernel // 2), min(length, i * stride - kernel // 2 + kernel))
        for i in range(-(-length // stride))
    ]


def _uncut(length: int, kernel: int, stride: int) -> list[Any]:
    """Return the pixels of slices whose beginning may be negative, which counts from the end."""
    firsts = (i * stride - kernel // 2 for i in range(-(-length // stride)))
    return [range(length)[first : first + kernel] for first in firsts]


def _uncentred(length: int, kernel: int, stride: int) -> list[Any]:
    """Return the pixels of windows that begin at their centre."""
    return [range(first, min(length, first + kernel)) for first in range(0, length, stride)]


def _average_by(
    divisor: Callable[..., float], spans: Callable[[int, int, int], list[Any]] = _spans
) -> Callable[..., Array]:
    """Return an average with another divisor, ``divisor(rows, columns, kernel, edge_mode)``, or other windows."""

    def average(x: Array, kernel: int, stride: int, edge_mode: str) -> Array:
        rows, columns = (spans(length, kernel, stride) for length in x.shape)
        return np.array(
            [
                [np.divide(x[np.ix_(r, c)].sum(), divisor(len(r), len(c), kernel, edge_mode)) for c in columns]
                for r in rows
            ]
        )

    return average


def _count(rows: int, columns: int, kernel: int, edge_mode: str) -> int:
    return kernel * kernel if edge_mode == "zero" else rows * columns


def _average_gradient_by(
    divisor: Callable[..., float], add: Callable[[float, float], float] = lambda old, new: old + new
) -> Callable[..., Array]:
    """Return a gradient with another divisor, or with another way to join the windows of a pixel."""

    def average_gradient(g: Array, height: int, width: int, kernel: int, stride: int, edge_mode: str) -> Array:
        rows, columns = _spans(height, kernel, stride), _spans(width, kernel, stride)
        dx = np.zeros((height, width))
        for a, r in enumerate(rows):
            for b, c in enumerate(columns):
                for y in r:
                    for x in c:
                        dx[y, x] = add(dx[y, x], g[a, b] / divisor(len(r), len(c), kernel, edge_mode))
        return dx

    return average_gradient


def _pool_case(kind: str, method: str) -> Callable[[Arguments], str]:
    """Return a function that writes the case string of a pooling exercise."""

    def case(arguments: Arguments) -> str:
        kernel, stride = arguments["kernel"], arguments["stride"]
        spec = getattr(mpsref, kind)(kernel, stride, edge_mode=arguments.get("edge_mode", "clamp"))
        shape = arguments["x"].shape if "x" in arguments else (arguments["height"], arguments["width"])
        problem = spec.problems[method](spec, (1, *shape, 1))
        return str(Case(problem, "float32", "exact", 0))

    return case


def _image(array: Array) -> Array:
    return np.asarray(array, np.float64)[None, :, :, None]


MODES = ("clamp", "zero")

AVERAGE = (
    Exercise(
        "average",
        2,
        _pools(False, MODES),
        lambda x, kernel, stride, edge_mode: mpsref.PoolingAverage(kernel, stride, edge_mode=edge_mode).forward(
            _image(x)
        )[0, :, :, 0],
        'The sum of the pixels inside the image is divided by N. With "clamp" N counts the pixels '
        'inside, with "zero" all.',
        'sum / (kernel * kernel) with "zero"; sum / (rows inside * columns inside) with "clamp"',
        (
            Wrong(
                'The window shrinks at the border with "clamp": N counts the pixels inside the image only.',
                _average_by(lambda rows, columns, kernel, edge_mode: kernel * kernel),
            ),
            Wrong(
                'With "zero" N is always kernel * kernel: the zeros outside the image are counted.',
                _average_by(lambda rows, columns, kernel, edge_mode: rows * columns),
            ),
            Wrong(
                "A window that begins outside the image is empty here: a slice such as x[-1:2] counts -1 from the end. "
                "Begin at max(0, first).",
                _average_by(_count, _uncut),
            ),
            Wrong(
                "The windows begin at a * stride; there is their centre, and they begin kernel // 2 pixels before it.",
                _average_by(_count, _uncentred),
            ),
            Wrong("This is the sum: the division is missing.", _average_by(lambda rows, columns, kernel, edge_mode: 1)),
            Wrong(
                "N is that of one axis; it is the product of the counts of both axes.",
                _average_by(lambda rows, columns, kernel, edge_mode: kernel if edge_mode == "zero" else rows),
            ),
            Wrong(
                'The two edge modes are exchanged: "zero" counts all pixels of the window, "clamp" those inside.',
                _average_by(
                    lambda rows, columns, kernel, edge_mode: kernel * kernel if edge_mode == "clamp" else rows * columns
                ),
            ),
        ),
        _pool_case("PoolingAverage", "forward"),
    ),
    Exercise(
        "average_gradient",
        2,
        _pools(True, MODES),
        lambda g, height, width, kernel, stride, edge_mode: mpsref.PoolingAverage(
            kernel, stride, edge_mode=edge_mode
        ).gradient(_image(g), (1, height, width, 1))[0, :, :, 0],
        "A pixel was read by several windows: it gets the sum of g / N over all of them, each with its own N.",
        "for each window: dx[its pixels inside the image] += g[a, b] / N(a, b)",
        (
            Wrong(
                'The window shrinks at the border with "clamp": each window is divided by its own N, not by '
                "kernel * kernel.",
                _average_gradient_by(lambda rows, columns, kernel, edge_mode: kernel * kernel),
            ),
            Wrong(
                'With "zero" N is always kernel * kernel, also at the border.',
                _average_gradient_by(lambda rows, columns, kernel, edge_mode: rows * columns),
            ),
            Wrong(
                "The division is missing: each pixel contributed x / N to the result.",
                _average_gradient_by(lambda rows, columns, kernel, edge_mode: 1),
            ),
            Wrong(
                "A later window overwrites an earlier one: the gradients of all windows of a pixel are added.",
                _average_gradient_by(_count, lambda old, new: new),
            ),
            Wrong(
                "The first window wins: the gradients of all windows of a pixel are added.",
                _average_gradient_by(_count, lambda old, new: old or new),
            ),
        ),
        _pool_case("PoolingAverage", "gradient"),
    ),
)

# ------------------------------------------------------------------------------------------------------ 3: the maximum


def _maximum_by(best: Callable[[Array, int], float]) -> Callable[..., Array]:
    """Return a maximum with another rule: ``best(pixels inside, number outside)``."""

    def maximum(x: Array, kernel: int, stride: int) -> Array:
        rows, columns = (_spans(length, kernel, stride) for length in x.shape)
        return np.array([[best(x[np.ix_(r, c)], kernel**2 - len(r) * len(c)) for c in columns] for r in rows])

    return maximum


def _maximum_gradient_by(
    share: Callable[[Array], Array], add: Callable[[Array, Array], Array] = lambda old, new: old + new
) -> Callable[..., Array]:
    """Return a gradient with another routing: ``share(window)`` is the part of g that each pixel gets."""

    def maximum_gradient(g: Array, x: Array, kernel: int, stride: int) -> Array:
        rows, columns = (_spans(length, kernel, stride) for length in x.shape)
        dx = np.zeros(x.shape)
        for a, r in enumerate(rows):
            for b, c in enumerate(columns):
                place = np.ix_(r, c)
                dx[place] = add(dx[place], share(x[place]) * g[a, b])
        return dx

    return maximum_gradient


def _first(window: Array) -> Array:
    return _one_hot(window, int(np.argmax(window)))


def _last(window: Array) -> Array:
    return _one_hot(window, window.size - 1 - int(np.argmax(window.ravel()[::-1])))


def _one_hot(window: Array, at: int) -> Array:
    found = np.zeros(window.size)
    found[at] = 1
    return found.reshape(window.shape)


MAXIMUM = (
    Exercise(
        "maximum",
        3,
        _pools(False, ("clamp",)),
        lambda x, kernel, stride: mpsref.PoolingMax(kernel, stride, edge_mode="clamp").forward(_image(x))[0, :, :, 0],
        "The largest pixel of the window that lies inside the image. Nothing outside takes part here "
        "(edge mode clamp).",
        "x[first_row:end_row, first_column:end_column].max(), with the ends of pixels_inside",
        (
            Wrong(
                "Zeros outside the image win over negative pixels: nothing outside takes part.",
                _maximum_by(lambda inside, outside: max(inside.max(), 0) if outside else inside.max()),
            ),
            Wrong(
                "The search begins with 0, so that windows of negative pixels give 0: begin with the first pixel.",
                _maximum_by(lambda inside, outside: max(inside.max(), 0)),
            ),
            Wrong("This is the smallest pixel.", _maximum_by(lambda inside, outside: inside.min())),
            Wrong(
                "This is the largest absolute value; the maximum has a sign.",
                _maximum_by(lambda inside, outside: np.abs(inside).max()),
            ),
        ),
        _pool_case("PoolingMax", "forward"),
    ),
    Exercise(
        "maximum_gradient",
        3,
        _pools(True, ("clamp",)),
        lambda g, x, kernel, stride: mpsref.PoolingMax(kernel, stride, edge_mode="clamp").gradient(
            _image(g), _image(x)
        )[0, :, :, 0],
        "Each window gives its g to one pixel: the first of its largest pixels, rows first. A pixel adds what it gets.",
        "for each window: dx[the first pixel that equals the maximum] += g[a, b]",
        (
            Wrong(
                "Equal maxima all get the gradient: only the first of them gets it.",
                _maximum_gradient_by(lambda window: (window == window.max()).astype(float)),
            ),
            Wrong("The last of equal maxima gets the gradient: it must be the first.", _maximum_gradient_by(_last)),
            Wrong(
                "Equal maxima share the gradient: the first of them gets all of it.",
                _maximum_gradient_by(lambda window: (window == window.max()) / (window == window.max()).sum()),
            ),
            Wrong(
                "A pixel that is the maximum of several windows keeps the gradient of the last one: they are added.",
                _maximum_gradient_by(_first, lambda old, new: np.where(new != 0, new, old)),
            ),
            Wrong(
                "The whole window gets the gradient: only its maximum does.",
                _maximum_gradient_by(lambda window: np.ones(window.shape)),
            ),
        ),
        _pool_case("PoolingMax", "gradient"),
    ),
)

# ------------------------------------------------------------------------------------------------------ 4: convolution


@st.composite
def _convolutions(draw: Any, which: str) -> Arguments:
    """Draw the arguments of a convolution of one channel with an odd or even square kernel."""
    height, width, kernel, stride = draw(SMALL), draw(SMALL), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    size = -(-height // stride), -(-width // stride)
    x, weights, g = ((height, width), (kernel, kernel), size)
    arrays = {name: _drawn_array(shape, draw(SEED)) for name, shape in (("x", x), ("weights", weights), ("g", g))}
    if which == "forward":
        return {"x": arrays["x"], "weights": arrays["weights"], "stride": stride}
    if which == "data":
        return {"g": arrays["g"], "weights": arrays["weights"], "height": height, "width": width, "stride": stride}
    return {"g": arrays["g"], "x": arrays["x"], "kernel": kernel, "stride": stride}


def _convolution(x: Array, weights: Array, stride: int) -> Array:
    return _conv(len(weights), stride).forward(_image(x), _ohwi(weights))[0, :, :, 0]


def _convolution_data(g: Array, weights: Array, height: int, width: int, stride: int) -> Array:
    spec = _conv(len(weights), stride)
    return spec.gradient_data(_image(g), _ohwi(weights), (1, height, width, 1))[0, :, :, 0]


def _convolution_weights(g: Array, x: Array, kernel: int, stride: int) -> Array:
    return _conv(kernel, stride).gradient_weights(_image(g), _image(x))[0][0, :, :, 0]


def _strideless(x: Array, weights: Array, stride: int) -> Array:
    wanted = [-(-length // stride) for length in x.shape]
    whole = _convolution(x, weights, 1)
    return whole[: wanted[0], : wanted[1]]


def _strideless_data(g: Array, weights: Array, height: int, width: int, stride: int) -> Array:
    wide = np.zeros((height, width))
    wide[: g.shape[0], : g.shape[1]] = g
    return _convolution_data(wide, weights, height, width, 1)


def _conv(kernel: int, stride: int) -> mpsref.Convolution:
    return mpsref.Convolution(kernel, stride)


def _ohwi(weights: Array) -> Array:
    return np.asarray(weights, np.float64)[None, :, :, None]


def _conv_case(method: str) -> Callable[[Arguments], str]:
    def case(arguments: Arguments) -> str:
        kernel = arguments["kernel"] if "kernel" in arguments else len(arguments["weights"])
        spec: Any = _conv(kernel, arguments["stride"])
        shape = arguments["x"].shape if "x" in arguments else (arguments["height"], arguments["width"])
        return str(Case(spec.problems[method](spec, (1, *shape, 1), 1), "float32", "exact", 0))

    return case


CONVOLUTION = (
    Exercise(
        "convolution",
        4,
        _convolutions("forward"),
        _convolution,
        "Each result is the sum of weight times pixel over the taps of its window; pixels outside are 0.",
        "y[a, b] = sum of weights[t, u] * x[a * stride - kernel // 2 + t, b * stride - kernel // 2 + u]",
        (
            Wrong(
                "The weights are rotated: MPS and the frameworks compute a correlation, weights[t, u] times the "
                "pixel at tap t, u.",
                lambda x, weights, stride: _convolution(x, weights[::-1, ::-1], stride),
            ),
            Wrong("The stride is missing: window a begins at a * stride - kernel // 2.", _strideless),
            Wrong(
                "The weights are transposed: the first index of the weights is the row.",
                lambda x, weights, stride: _convolution(x, weights.T, stride),
            ),
        ),
        _conv_case("forward"),
    ),
    Exercise(
        "convolution_gradient_data",
        4,
        _convolutions("data"),
        _convolution_data,
        "The forward pass with the arrow reversed: what tap t, u read is where weights[t, u] * g goes.",
        "dx[a * stride - kernel // 2 + t, ...] += weights[t, u] * g[a, b]; as a gather, the rotated window on the "
        "gradient with stride - 1 zeros between its pixels",
        (
            Wrong(
                "The weights must be rotated here: in a gather over g the last tap comes first.",
                lambda g, weights, height, width, stride: _convolution_data(
                    g, weights[::-1, ::-1], height, width, stride
                ),
            ),
            Wrong(
                "The stride is missing: there are stride - 1 zeros between the pixels of g.",
                _strideless_data,
            ),
            Wrong(
                "The weights are transposed, not rotated: rotate them by 180 degrees, weights[::-1, ::-1].",
                lambda g, weights, height, width, stride: _convolution_data(g, weights.T, height, width, stride),
            ),
        ),
        _conv_case("gradient_data"),
    ),
    Exercise(
        "convolution_gradient_weights",
        4,
        _convolutions("weights"),
        _convolution_weights,
        "A weight contributes to every result: its gradient is the sum over all windows of g times the "
        "pixel at its tap.",
        "dw[t, u] = sum over a, b of g[a, b] * x[a * stride - kernel // 2 + t, b * stride - kernel // 2 + u]",
        (
            Wrong(
                "The result is rotated: nothing is rotated in the gradient for the weights.",
                lambda g, x, kernel, stride: _convolution_weights(g, x, kernel, stride)[::-1, ::-1],
            ),
            Wrong(
                "This is the mean over the windows; the gradient is the sum.",
                lambda g, x, kernel, stride: _convolution_weights(g, x, kernel, stride) / g.size,
            ),
            Wrong(
                "The result is transposed: the first index is the row of the tap.",
                lambda g, x, kernel, stride: _convolution_weights(g, x, kernel, stride).T,
            ),
        ),
        _conv_case("gradient_weights"),
    ),
)

# ------------------------------------------------------------------------------------------------------ 5: offsets

OFFSETS = (
    Exercise(
        "effective_offset",
        5,
        st.fixed_dictionaries(
            {"primary_offset": st.integers(-4, 4), "kernel_offset": st.integers(-4, 4), "stride": st.integers(1, 4)}
        ),
        lambda primary_offset, kernel_offset, stride: effective_offset(primary_offset, kernel_offset, stride),
        "MPS inserts stride - 1 zeros between the pixels of g, then moves: the primary offset counts "
        "pixels of g before "
        "this, the kernel offset pixels after it.",
        "stride * primary_offset + kernel_offset",
        (
            Wrong(
                "The primary offset counts pixels of g; zero insertion makes each of them `stride` pixels wide.",
                lambda primary_offset, kernel_offset, stride: primary_offset + kernel_offset,
            ),
            Wrong(
                "The kernel offset is added, not subtracted.",
                lambda primary_offset, kernel_offset, stride: stride * primary_offset - kernel_offset,
            ),
            Wrong(
                "Only the primary offset is multiplied by the stride: the kernel offset is applied after zero "
                "insertion.",
                lambda primary_offset, kernel_offset, stride: stride * (primary_offset + kernel_offset),
            ),
            Wrong(
                "The stride multiplies the wrong one: the primary offset counts pixels of g.",
                lambda primary_offset, kernel_offset, stride: primary_offset + stride * kernel_offset,
            ),
        ),
    ),
    Exercise(
        "kernel_offset",
        5,
        st.fixed_dictionaries({"kernel": st.integers(1, 7), "offset": st.integers(-3, 4)}),
        lambda kernel, offset: Window(kernel, 1, 1, offset).kernel_offset(),
        "With this value destination pixel and source pixel are the same. The offset moved the windows "
        "to the right, so "
        "the gradient moves back; an even window has one pixel more before its centre.",
        "(1 if kernel is even else 0) - offset",
        (
            Wrong(
                "The sign is wrong: the gradient moves back by the offset.",
                lambda kernel, offset: (1 - kernel % 2) + offset,
            ),
            Wrong("An even window moves by one pixel: add 1 for it.", lambda kernel, offset: -offset),
            Wrong("The 1 is for even windows, not for odd ones.", lambda kernel, offset: kernel % 2 - offset),
            Wrong(
                "The 1 of an even window is added, not subtracted.", lambda kernel, offset: -(1 - kernel % 2) - offset
            ),
        ),
    ),
    Exercise(
        "offset_of_padding",
        5,
        st.fixed_dictionaries({"kernel": st.integers(1, 7), "padding": st.integers(0, 3)}),
        lambda kernel, padding: kernel // 2 - padding,
        "In PyTorch the first window begins `padding` pixels before the image; the offset of MPS is "
        "where its centre is.",
        "kernel // 2 - padding",
        (
            Wrong(
                "This is the first pixel of the window; the offset is the position of its centre.",
                lambda kernel, padding: -padding,
            ),
            Wrong(
                "The sign is wrong: padding moves the first window to the left.",
                lambda kernel, padding: padding - kernel // 2,
            ),
            Wrong(
                "The centre of an even window is at kernel // 2, not at (kernel - 1) // 2.",
                lambda kernel, padding: (kernel - 1) // 2 - padding,
            ),
        ),
    ),
)

# ------------------------------------------------------------------------------------------------------ 6: batch norm


@st.composite
def _batches(draw: Any, gradient: bool) -> Arguments:
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(2, 3)), draw(st.integers(1, 2))
    x = _drawn_array(shape, draw(SEED))
    found: dict[str, Any] = {"x": x, "epsilon": draw(st.sampled_from((0.125, 0.5)))}
    return {"g": _drawn_array(shape, draw(st.integers(1, 20))), **found} if gradient else found


def _moments(x: Array, axes: tuple[int, ...] = (0, 1, 2)) -> tuple[Array, Array]:
    return x.mean(axes, keepdims=True), x.var(axes, keepdims=True)


def _normalize(x: Array, epsilon: float) -> Array:
    mean, variance = _moments(x)
    found: Array = (x - mean) / np.sqrt(variance + epsilon)
    return found


def _normalize_gradient(g: Array, x: Array, epsilon: float, of_mean: bool = True, of_variance: bool = True) -> Array:
    mean, variance = _moments(x)
    r = 1 / np.sqrt(variance + epsilon)
    xhat = (x - mean) * r
    inner = (
        g - of_mean * g.mean((0, 1, 2), keepdims=True) - of_variance * xhat * (g * xhat).mean((0, 1, 2), keepdims=True)
    )
    found: Array = r * inner
    return found


def _reference_normalize(x: Array, epsilon: float) -> Array:
    spec = mpsref.BatchNormalization(epsilon=epsilon)
    return spec.forward(x, x.mean((0, 1, 2)), x.var((0, 1, 2)))


def _reference_normalize_gradient(g: Array, x: Array, epsilon: float) -> Array:
    spec = mpsref.BatchNormalization(epsilon=epsilon)
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return spec.gradient(g, x, mean, variance, sums=spec.statistics_gradient(g, x, mean, variance))


def _merged(mean_a: float, variance_a: float, n_a: int, mean_b: float, variance_b: float, n_b: int) -> list[float]:
    n = n_a + n_b
    mean = (n_a * mean_a + n_b * mean_b) / n
    between = n_a * (mean_a - mean) ** 2 + n_b * (mean_b - mean) ** 2
    return [mean, (n_a * variance_a + n_b * variance_b + between) / n]


_VALUE = st.integers(-5, 5).map(float)

NORMALIZATION = (
    Exercise(
        "normalize",
        6,
        _batches(False),
        _reference_normalize,
        "Mean and variance of a channel are taken over all images, rows and columns; the variance is divided by N.",
        "(x - mean) / sqrt(variance + epsilon), with x.mean((0, 1, 2)) and x.var((0, 1, 2))",
        (
            Wrong(
                "The variance is divided by N - 1; batch normalization divides by N.",
                lambda x, epsilon: (
                    (x - x.mean((0, 1, 2)))
                    / np.sqrt(x.var((0, 1, 2)) * (x[..., 0].size / max(x[..., 0].size - 1, 1)) + epsilon)
                ),
            ),
            Wrong(
                "Each image is normalized by itself; that is instance normalization. Take the mean over the "
                "images, too.",
                lambda x, epsilon: (x - _moments(x, (1, 2))[0]) / np.sqrt(_moments(x, (1, 2))[1] + epsilon),
            ),
            Wrong(
                "Epsilon is missing: it is added to the variance, below the square root.",
                lambda x, epsilon: (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2))),
            ),
            Wrong(
                "Epsilon is added to the deviation; it is added to the variance, below the square root.",
                lambda x, epsilon: (x - x.mean((0, 1, 2))) / (np.sqrt(x.var((0, 1, 2))) + epsilon),
            ),
            Wrong(
                "All channels are normalized together: each channel has its own mean and variance.",
                lambda x, epsilon: (x - x.mean()) / np.sqrt(x.var() + epsilon),
            ),
        ),
    ),
    Exercise(
        "normalize_gradient",
        6,
        _batches(True),
        _reference_normalize_gradient,
        "x changes the result in three ways: directly, through the mean, and through the variance. The "
        "last two subtract "
        "the mean of g, and xhat times the mean of g * xhat.",
        "(g - mean(g) - xhat * mean(g * xhat)) / sqrt(variance + epsilon)",
        (
            Wrong(
                "The mean and the variance depend on x, too: two means are missing.",
                lambda g, x, epsilon: _normalize_gradient(g, x, epsilon, False, False),
            ),
            Wrong(
                "The path through the mean is missing: subtract the mean of g.",
                lambda g, x, epsilon: _normalize_gradient(g, x, epsilon, False, True),
            ),
            Wrong(
                "The path through the variance is missing: subtract xhat * mean(g * xhat).",
                lambda g, x, epsilon: _normalize_gradient(g, x, epsilon, True, False),
            ),
            Wrong(
                "The last term has sums in place of means: divide by the number of pixels of a channel.",
                lambda g, x, epsilon: (
                    (g - g.sum((0, 1, 2)) - _normalize(x, epsilon) * (g * _normalize(x, epsilon)).sum((0, 1, 2)))
                    / np.sqrt(x.var((0, 1, 2)) + epsilon)
                ),
            ),
        ),
    ),
    Exercise(
        "merged_statistics",
        6,
        st.fixed_dictionaries(
            {
                "mean_a": _VALUE,
                "variance_a": st.integers(0, 6).map(float),
                "n_a": st.integers(1, 4),
                "mean_b": _VALUE,
                "variance_b": st.integers(0, 6).map(float),
                "n_b": st.integers(1, 4),
            }
        ),
        _merged,
        "The variance of two parts has the variances within them, and the distance of their means from "
        "the common mean.",
        "[m, (n_a * (variance_a + (mean_a - m)**2) + n_b * (variance_b + (mean_b - m)**2)) / (n_a + n_b)], with the "
        "weighted mean m",
        (
            Wrong(
                "The two parts have different sizes: weight them by n_a and n_b.",
                lambda mean_a, variance_a, n_a, mean_b, variance_b, n_b: _merged(
                    mean_a, variance_a, 1, mean_b, variance_b, 1
                ),
            ),
            Wrong(
                "The distance of the two means is missing in the variance.",
                lambda mean_a, variance_a, n_a, mean_b, variance_b, n_b: [
                    (n_a * mean_a + n_b * mean_b) / (n_a + n_b),
                    (n_a * variance_a + n_b * variance_b) / (n_a + n_b),
                ],
            ),
            Wrong(
                "The variance is divided by one less; these are divided by the number of pixels.",
                lambda mean_a, variance_a, n_a, mean_b, variance_b, n_b: [
                    _merged(mean_a, variance_a, n_a, mean_b, variance_b, n_b)[0],
                    _merged(mean_a, variance_a, n_a, mean_b, variance_b, n_b)[1] * (n_a + n_b) / (n_a + n_b - 1),
                ],
            ),
        ),
    ),
)

# ------------------------------------------------------------------------------------------------------ 7: softmax


@st.composite
def _channels(draw: Any, names: tuple[str, ...]) -> Arguments:
    shape = draw(st.integers(1, 2)), draw(st.integers(2, 4))
    return {name: _drawn_array(shape, draw(st.integers(1, 20))) / 4 for name in names}


def _softmax(x: Array, axis: int | None = -1) -> Array:
    e = np.exp(x - x.max())
    found: Array = e / e.sum(axis, keepdims=True)
    return found


@st.composite
def _labelled(draw: Any) -> Arguments:
    x = _drawn_array((draw(st.integers(1, 3)), draw(st.integers(2, 4))), draw(st.integers(1, 20))) / 4
    return {"x": x, "digits": np.array([draw(st.integers(0, x.shape[1] - 1)) for _ in x])}


def _one_hots(x: Array, digits: Array) -> Array:
    return np.eye(x.shape[1])[digits]


SOFTMAX = (
    Exercise(
        "softmax_gradient",
        7,
        _channels(("g", "x")),
        lambda g, x: mpsref.SoftMax().gradient(g[:, None, None], _softmax(x)[:, None, None])[:, 0, 0],
        "Each result depends on all channels, because they share the sum of the exponentials.",
        "y * (g - sum(g * y over the channels)), with y = softmax(x)",
        (
            Wrong(
                "Only the diagonal is here: the other channels contribute through the sum.",
                lambda g, x: g * _softmax(x) * (1 - _softmax(x)),
            ),
            Wrong("The sum over the channels is missing.", lambda g, x: g * _softmax(x)),
            Wrong(
                "x is the image before the softmax: compute y = softmax(x) first.",
                lambda g, x: x * (g - (g * x).sum(-1, keepdims=True)),
            ),
            Wrong(
                "The sum runs over all pixels: take it over the channels of each pixel.",
                lambda g, x: _softmax(x) * (g - (g * _softmax(x)).sum()),
            ),
            Wrong(
                "The sum is not weighted: it is the sum of g * y.",
                lambda g, x: _softmax(x) * (g - g.sum(-1, keepdims=True)),
            ),
        ),
    ),
    Exercise(
        "log_softmax_gradient",
        7,
        _channels(("g", "x")),
        lambda g, x: mpsref.LogSoftMax().gradient(g[:, None, None], np.log(_softmax(x))[:, None, None])[:, 0, 0],
        "log softmax is x minus the logarithm of the sum of exponentials; the derivative of the latter is softmax.",
        "g - softmax(x) * sum(g over the channels)",
        (
            Wrong(
                "This is the gradient of softmax, not of its logarithm.",
                lambda g, x: _softmax(x) * (g - (g * _softmax(x)).sum(-1, keepdims=True)),
            ),
            Wrong(
                "The sum is weighted: it is the sum of g alone.",
                lambda g, x: g - _softmax(x) * (g * _softmax(x)).sum(-1, keepdims=True),
            ),
            Wrong("The sum over the channels is missing.", lambda g, x: g - _softmax(x)),
        ),
    ),
    Exercise(
        "cross_entropy_gradient",
        7,
        _labelled(),
        lambda x, digits: _softmax(x) - _one_hots(x, digits),
        "The loss is minus the logarithm of the probability of the right digit, summed over the images.",
        "softmax(x) - one_hot(digits)",
        (
            Wrong("The right digit is missing: subtract 1 there.", lambda x, digits: _softmax(x)),
            Wrong(
                "The sign is wrong: a step against the gradient must increase the right channel.",
                lambda x, digits: _one_hots(x, digits) - _softmax(x),
            ),
            Wrong(
                "This is the mean over the images; the loss here is their sum.",
                lambda x, digits: (_softmax(x) - _one_hots(x, digits)) / len(x),
            ),
            Wrong(
                "Softmax is missing: the exponentials are not divided by their sum.",
                lambda x, digits: np.exp(x) - _one_hots(x, digits),
            ),
        ),
    ),
)

# ------------------------------------------------------------------------------------------------------ 8: Metal


@st.composite
def _vectors(draw: Any) -> Arguments:
    n = draw(st.sampled_from((1, 5, 31, 64, 100, 257, 1500)))
    return {name: _drawn_array((n,), draw(SEED)).astype(np.float32) for name in ("g", "x")}


@st.composite
def _rows(draw: Any) -> Arguments:
    rows = draw(st.integers(1, 3))
    return {"x": _drawn_array((rows, 64), draw(SEED)).astype(np.float32)}


METAL = (
    Exercise(
        "relu_gradient",
        8,
        _vectors(),
        lambda g, x: np.where(x > 0, g, 0),
        "The gradient passes where x was positive; at 0 it is 0.",
        "dx[i] = x[i] > 0 ? g[i] : 0, for i < n",
        (
            Wrong("At x = 0 the gradient is 0: compare with >, not with >=.", lambda g, x: np.where(x >= 0, g, 0)),
            Wrong("This is the forward pass.", lambda g, x: np.maximum(x, 0)),
            Wrong("The sign of g decides; it must be that of x.", lambda g, x: np.where(g > 0, g, 0)),
            Wrong("The gradient is passed everywhere.", lambda g, x: g.copy()),
        ),
    ),
    Exercise(
        "row_sums",
        8,
        _rows(),
        lambda x: x.sum(1),
        "Each threadgroup adds the 64 numbers of its row in threadgroup memory, in six steps that halve their number.",
        "after each step: threadgroup_barrier(mem_flags::mem_threadgroup)",
        (
            Wrong("Only the first number of each row is here: are all steps done?", lambda x: x[:, 0].copy()),
            Wrong("This is the mean; do not divide.", lambda x: x.mean(1)),
            Wrong("The last step is missing: half of each row is added.", lambda x: x[:, ::2].sum(1)),
        ),
    ),
)

# ---------------------------------------------------------------------------------------- 9, 10: gradients in Metal


def _in_metal(exercise: Exercise, lesson: int) -> Exercise:
    """Return an exercise to be written in Metal, where images and weights are float32."""

    def stored(arguments: Arguments) -> Arguments:
        return {k: v.astype(np.float32) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}

    return exercise._replace(name=f"metal_{exercise.name}", lesson=lesson, cases=exercise.cases.map(stored))


METAL_GRADIENTS = (_in_metal(AVERAGE[1], 9), _in_metal(CONVOLUTION[1], 10), _in_metal(CONVOLUTION[2], 10))

EXERCISES: tuple[Exercise, ...] = (
    *WINDOWS, *AVERAGE, *MAXIMUM, *CONVOLUTION, *OFFSETS, *NORMALIZATION, *SOFTMAX, *METAL, *METAL_GRADIENTS
)  # fmt: skip
"""All exercises, lesson after lesson."""
