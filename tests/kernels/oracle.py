"""One axis of windows by brute force: the plain definitions, and random windows to try them on.

Nothing here calls the code under test. Of a :class:`mpsref.geometry.Window` only the four numbers are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from hypothesis import strategies as st

from mpsref.geometry import Window
from tests import examples

thorough = examples(200)

HUGE = 2**62


def center(w: Window) -> int:
    return ((w.kernel - 1) * w.dilation + 1) // 2


def taps(w: Window, i: int) -> list[int]:
    """The source pixels of window i, one a tap."""
    return [w.offset + w.stride * i - center(w) + w.dilation * t for t in range(w.kernel)]


def reads(w: Window, i: int, pixels: Iterable[int]) -> list[tuple[int, int]]:
    """Each (pixel, tap) of window i among ``pixels``; walks over the pixels, so the kernel may be huge."""
    found = []
    for j in pixels:
        tap, rest = divmod(j - (w.offset + w.stride * i - center(w)), w.dilation)
        if rest == 0 and 0 <= tap < w.kernel:
            found.append((j, tap))
    return found


def included(p0: int, source_size: int | None, gradient_length: int) -> list[int]:
    """The pixels of the source gradient that count."""
    return [u for u in range(gradient_length) if u - p0 >= 0 and (source_size is None or u - p0 < source_size)]


def scatter(w: Window, weights: Sequence[int], g: Sequence[int], p0: int, pixels: Iterable[int]) -> Counter[int]:
    """Form A: window ``u - p0`` hands ``weights[t] * g[u]`` to the pixel under tap t; the plane has no borders."""
    dx: Counter[int] = Counter()
    for u in pixels:
        for t, j in enumerate(taps(w, u - p0)):
            dx[j] += weights[t] * g[u]
    return dx


def zero_inserted(g: Sequence[int], stride: int, pixels: Iterable[int]) -> Callable[[int], int]:
    """U[m] = g[m / s] where s divides m and pixel m / s is among ``pixels``, else 0."""
    inserted = {stride * u: g[u] for u in pixels}
    return lambda m: inserted.get(m, 0)


def correlate(w: Window, weights: Sequence[int], u: Callable[[int], int], at: int) -> int:
    """The kernel, as it is, with its centre at ``at``: the sum over t of weights[t] * U[at - c + d*t]."""
    return sum(weight * u(at - center(w) + w.dilation * t) for t, weight in enumerate(weights))


def forward(w: Window, weights: Sequence[int], x: Sequence[int], outputs: int) -> list[int]:
    """y[i] = the sum over the taps inside the image of weights[t] * x[tap]."""
    return [sum(weights[t] * x[j] for t, j in enumerate(taps(w, i)) if 0 <= j < len(x)) for i in range(outputs)]


small_naturals = st.integers(1, 6)


def windows() -> st.SearchStrategy[Window]:
    """Small windows: even and odd, dilated, strides with and without a common factor with the dilation."""
    near, far = st.integers(-12, 12), st.sampled_from([-1000, -999, 1000, 1001])
    return st.builds(Window, small_naturals, small_naturals, small_naturals, st.one_of(near, near, near, far))


edge = 2**30  # where the tables change from int64 to Python integers
huge_naturals = st.one_of(
    st.integers(1, 6),
    st.integers(1, HUGE),
    st.builds(
        lambda power, delta: max(1, power + delta), st.sampled_from([edge, 2**31, 2**32, HUGE]), st.integers(-3, 0)
    ),
)
huge_integers = st.builds(lambda sign, n: sign * (n - 1), st.sampled_from([-1, 1]), huge_naturals)


@st.composite
def placed_windows(
    draw: st.DrawFn, numbers: st.SearchStrategy[int], length: int, first: int = 0, count: int = 1
) -> Window:
    """A window placed so that one of ``count`` windows, counted from ``first``, reads a pixel of the image."""
    kernel, stride, dilation = draw(numbers), draw(numbers), draw(numbers)
    tap = draw(st.integers(0, kernel - 1))
    i = first + draw(st.integers(0, count - 1))
    j = draw(st.integers(0, length - 1))
    at_zero = Window(kernel, stride, dilation)
    return Window(kernel, stride, dilation, offset=j - (stride * i - center(at_zero) + dilation * tap))
