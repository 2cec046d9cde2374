"""Figures of windows: they agree with the geometry, and no text overlaps, also for large problems."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

import mpsref
from mpsref import registry
from mpsref.conformance.case import Case
from mpsref.errors import UnsupportedError
from mpsref.kernels.pooling import PoolingForward
from mpsref.viz import plotting
from mpsref.viz.grid_figure import FEW, MOST, Panel, Ruler, shown
from mpsref.viz.plotting import plot
from tests import few

pytest.importorskip("matplotlib", reason="matplotlib is not installed (the extra `plot`)")

FORWARD = [
    "PoolingAverage.forward:n1h5w5c1,k3x3,s2x2,clamp",
    "PoolingAverage.forward:n1h5w8c1,k2x4,s3x2,o1x0,clamp,zp0x1",
    "PoolingAverage.forward:n1h1w8c1,k1x2,s1x3,o0x1,out1x3",
    "PoolingAverage.forward:n1h6w3c1,k4x3,s1x2,o-3x5,clamp,zp2x2,out6x3",
]
GRADIENT = [
    "PoolingAverage.gradient:n1h5w5c1,k3x3,s2x2,clamp",
    "PoolingAverage.gradient:n1h6w8c1,k4x3,s2x3,o1x1,g4x4,p1x0,size2x3,clip1x0+4x7",
    "PoolingAverage.gradient:n1h7w4c1,k2x5,s1x2,o0x2,clamp,zp0x1,g7x3,p-1x0,ko2x-1",
    "PoolingAverage.gradient:n1h4w1c1,k3x1,s5x1,g1x1,size0x1",
]
LARGE = [
    "PoolingAverage.forward:n1h112w112c1,k7x7,s2x2,o3x3,clamp",
    "PoolingAverage.forward:n1h224w224c1,k224x224,o112x112,out1x1",
    "PoolingAverage.forward:n1h4w4c1,k3x3,o999999999999x-999999999999,out2x2",
    "PoolingAverage.gradient:n1h112w112c1,k7x7,s2x2,o3x3,clamp",
    "PoolingAverage.gradient:n1h1000w224c1,k3x3",
    "PoolingAverage.gradient:n1h30w9c1,k40x3,s1x20,g30x40,clip11x0+9x9",
]


def problem_of(case: str) -> Any:
    return Case.parse(f"{case},float32").problem


def strips(problem: Any) -> list[tuple[int, Panel]]:
    """The panels of one axis each, with the axis."""
    if isinstance(problem, PoolingForward):
        panels = plotting._forward(problem)[1]
    else:
        panels = plotting._gradient(problem, plotting._pixel(problem, None))[1]
    return [(1 if panel.title.startswith(("x", "Both")) else 0, panel) for panel in panels]


@pytest.mark.parametrize("case", FORWARD)
def test_each_row_of_an_axis_shows_the_taps_of_its_window(case: str) -> None:
    problem = problem_of(case)
    for axis, panel in strips(problem):
        window, length = problem.spec.windows[axis], problem.source_shape[1 + axis]
        for i in panel.rows.indices:
            taps = {window.tap(i, t): t for t in range(window.kernel)}
            for j in panel.columns.indices:
                style, text = panel.cell(i, j)
                assert text == (str(taps[j]) if j in taps else "")
                assert (style is plotting.TAP) == (j in taps and 0 <= j < length)
            assert (i, window.start(i) + window.center) in panel.rings
            n = window.divisor(i, length, problem.spec.edge_mode, problem.spec.zero_pad[axis])
            assert panel.after[i] == f"N = {n}"
            counted = [s for s, t in (panel.cell(i, j) for j in panel.columns.indices) if t and "not" not in s.key]
            assert len(counted) == n


@pytest.mark.parametrize("case", GRADIENT)
def test_each_row_of_an_axis_shows_the_gradient_pixels_that_a_pixel_gathers(case: str) -> None:
    problem = problem_of(case)
    for axis, panel in strips(problem):
        runs = problem.runs()[axis]
        for q in panel.rows.indices[1:]:
            gathered = {int(runs.first[q]) + runs.step * k for k in range(runs.count[q])}
            hit = {m for m in panel.columns.indices if panel.cell(q, m)[0] is plotting.HIT}
            assert {panel.cell(panel.rows.indices[0], m)[1] for m in hit} == {f"g{u}" for u in gathered}
            taps = [int(text) for m in panel.columns.indices if (text := panel.cell(q, m)[1])]
            assert taps in ([], list(range(problem.spec.windows[axis].kernel))[::-1])


@pytest.mark.parametrize("case", FORWARD)
def test_the_heat_map_is_n_of_each_window(case: str) -> None:
    problem = problem_of(case)
    (_, counts), _ = plotting._forward(problem)
    inverse_y, inverse_x = problem.reciprocals()
    for a, b in itertools.product(counts.rows.indices, counts.columns.indices):
        n = int(counts.cell(a, b)[1])
        assert n * inverse_y[a] * inverse_x[b] == pytest.approx(1 if n else 0)


def test_the_sum_of_the_chosen_pixel() -> None:
    problem = problem_of(GRADIENT[0])
    assert plotting._sum(problem, (1, 2)) == "dx[1, 2] = g[0, 1]/6 + g[1, 1]/9"
    assert plotting._sum(problem, (3, 3)) == "dx[3, 3] = g[1, 1]/9 + g[1, 2]/6 + g[2, 1]/6 + g[2, 2]/4"
    assert plotting._sum(problem_of(GRADIENT[3]), (0, 0)) == "dx[0, 0] = 0"
    late = problem_of("PoolingAverage.gradient:n1h4w1c1,k3x1,s2x1,clamp,g3x1,p1x0")  # window 0 has gradient pixel 1
    assert plotting._sum(late, (1, 0)) == "dx[1, 0] = g[1, 0]/2 + g[2, 0]/3"
    many = problem_of("PoolingAverage.gradient:n1h5w5c1,k3x3,g5x5")
    assert plotting._sum(many, (2, 2)) == "dx[2, 2]: 9 windows"
    largest = problem_of("PoolingMax.gradient:n1h1w5c1,k1x3,s1x2")  # not all of them give the pixel something
    assert plotting._sum(largest, (0, 1)) == "dx[0, 1]: windows of g[0, 0], g[0, 1]"


def test_the_default_pixel_gathers_most() -> None:
    problem = problem_of(GRADIENT[1])
    pixel = plotting._pixel(problem, None)
    y, x = problem.runs()
    assert y.count[pixel[0]] * x.count[pixel[1]] == max(y.count) * max(x.count)


@pytest.mark.parametrize(
    "case", few([GRADIENT[1], *LARGE[-2:], FORWARD[3], *FORWARD[:3], GRADIENT[0], *GRADIENT[2:], *LARGE[:-2]], 4)
)
def test_no_text_overlaps_another_or_leaves_the_page(case: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = plot(problem_of(case))
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in figure.axes[0].texts]
    page = figure.bbox
    for (name, box), (other, second) in itertools.combinations(boxes, 2):
        assert not box.overlaps(second), f"{name!r} and {other!r}"
    for name, box in boxes:
        assert page.x0 < box.x0 < box.x1 < page.x1, name
        assert page.y0 < box.y0 < box.y1 < page.y1, name
    assert max(figure.get_size_inches()) < 24


@pytest.mark.parametrize("method", ["forward", "gradient"])
@pytest.mark.parametrize("edge_mode", ["zero", "clamp"])
def test_dilation_and_kernels_that_do_not_average(method: str, edge_mode: Any) -> None:
    spec = mpsref.PoolingMax(kernel_size=(2, 3), dilations=(3, 2), edge_mode=edge_mode)
    problem = spec.problems[method](spec, (1, 6, 6, 1))
    for axis, panel in strips(problem):
        window = spec.windows[axis]
        for i in panel.rows.indices[method == "gradient" :]:
            written = [j for j in panel.columns.indices if panel.cell(i, j)[1]]
            assert [b - a for a, b in itertools.pairwise(written)] == [window.dilation] * (window.kernel - 1)
    texts = {text.get_text() for text in plot(problem).axes[0].texts}
    assert not any("N =" in text or text.startswith("N of") for text in texts)
    assert ("tap that reads the edge pixel" in texts) == (method == "forward" and edge_mode == "clamp")


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_files(tmp_path: Path, name: str, start: bytes) -> None:
    plot(problem_of(FORWARD[0]), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_bad_arguments(tmp_path: Path) -> None:
    gradient = problem_of(GRADIENT[0])
    with pytest.raises(ValueError, match=r"pixel is \(5, 0\); it must lie in the image, .* below \(5, 5\)"):
        plot(gradient, pixel=(5, 0))
    with pytest.raises(ValueError, match=r"pixel\[0\] is -1; it must be an integer >= 0"):
        plot(gradient, pixel=(-1, 0))
    with pytest.raises(TypeError, match=r"pixel\[1\] is 1\.0 of type float"):
        plot(gradient, pixel=(1, 1.0))
    with pytest.raises(ValueError, match="only legal for a gradient problem: omit it"):
        plot(problem_of(FORWARD[0]), pixel=(0, 0))
    with pytest.raises(ValueError, match="bad"):
        plot(gradient, tmp_path / "picture.bad")
    assert not list(tmp_path.iterdir())


def test_a_problem_without_windows() -> None:
    class Pointwise(registry.ImageProblem):
        method: ClassVar[str] = "forward"

    with pytest.raises(UnsupportedError, match=r"PoolingAverage\.forward has no windows to draw"):
        plot(Pointwise(mpsref.PoolingAverage(2), (1, 2, 2, 1)))


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnsupportedError, match=r'need matplotlib .*: pip install -e ".\[plot\]"'):
        plot(problem_of(FORWARD[0]))


def test_matplotlib_is_imported_on_first_use() -> None:
    script = "import sys, mpsref.viz.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_an_axis_that_is_cut() -> None:
    assert shown(range(MOST)) == list(range(MOST))
    assert len(shown(range(MOST + 1))) == FEW
    assert shown(range(-5, 2**62), range(100, 102)) == [-5, -4, -3, -2, 100, 101, *range(2**62 - 4, 2**62)]
    ruler = Ruler([0, 1, 7, 8])
    assert (ruler.at, ruler.gaps, ruler.length) == ({0: 0, 1: 1, 7: 3, 8: 4}, [2], 5)
    assert ruler.span(0, 1) == (0, 2)
    assert ruler.span(1, 4) == (1, 2.5)  # half a gap further: its end is not shown
    assert ruler.span(6, 8) == (2.5, 5)
    assert ruler.span(3, 5) is None
