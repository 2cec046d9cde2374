"""The tables by window and tap against the plain definition: every window, tap and pixel, near and far."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mpsref.geometry import EDGE_MODES, EdgeMode, Window
from mpsref.kernels.convolution import pixels_of, windows_at

windows = st.builds(
    Window,
    st.integers(1, 7),
    st.integers(1, 5) | st.just(2**40),
    st.integers(1, 5) | st.just(2**40),
    st.integers(-9, 12) | st.sampled_from([-(2**60), 2**60]),
)
lengths = st.integers(1, 9)


@given(windows, lengths, lengths, st.sampled_from(EDGE_MODES))
def test_pixels_of_windows(window: Window, n: int, length: int, edge_mode: EdgeMode) -> None:
    table = pixels_of(window, n, length, edge_mode)
    assert table.shape == (n, window.kernel)
    for i in range(n):
        for t in range(window.kernel):
            pixel = window.tap(i, t)
            inside = 0 <= pixel < length
            nearest = -1 if edge_mode == "zero" else min(max(pixel, 0), length - 1)
            assert table[i, t] == (pixel if inside else nearest)


@given(windows, lengths, lengths)
def test_windows_at_pixels(window: Window, n: int, length: int) -> None:
    table = windows_at(window, n, length)
    expected = {(j, t): i for j in range(length) for i, t in window.gather_set(j, n)}
    for j in range(length):
        for t in range(window.kernel):
            assert table[j, t] == expected.get((j, t), -1)


def test_tables_are_shared_and_cannot_be_written() -> None:
    table = pixels_of(Window(3), 4, 4, "zero")
    assert not table.flags.writeable
    assert table is pixels_of(Window(3), 4, 4, "zero")
