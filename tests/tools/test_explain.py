"""The output of ``mpsref explain`` agrees with the geometry."""

import re

from hypothesis import example, given

import mpsref
from mpsref.conformance.case import Case
from mpsref.conformance.families import pooling
from mpsref.viz.explain import explain


def _explain(case):
    return explain(Case.parse(case).problem)


def test_the_worked_windows():
    """Worked example: five pixels, K = 4, s = 3, a ring of one zero: N = 3, 4, 2."""
    text = _explain("PoolingAverage.forward:n1h1w5c1,k1x4,s1x3,clamp,zp0x1,out1x3")
    rows = text.split("x axis")[1].splitlines()[1:]
    assert rows[0].split("|")[1:] == [" -2  -1", "  0   1   2   3   4", "  5   6   7"]
    assert [re.search(r"pixels (\d)\.\.(\d), N = (\d)", row).groups() for row in rows[1:]] == [
        ("0", "1", "3"),
        ("1", "4", "4"),
        ("4", "4", "2"),
    ]
    assert rows[1].count("x") - 1 == 1  # one tap; the other x belongs to "pixels"
    assert rows[1].count(".") - 2 == 2  # two taps outside; the other dots belong to "0..1"
    assert all(row.count("O") == 1 for row in rows[1:])


def test_a_window_outside_the_image_says_so():
    assert "outside the image, N = 0" in _explain("PoolingAverage.forward:n1h1w2c1,k1x2,s1x3,o0x-1,clamp,out1x3")


def test_long_axes_are_shortened_however_long():
    text = _explain("PoolingAverage.forward:n1h1w2000000000c1,k1x3")
    assert "... 1999999984 more ..." in text
    assert len(text.splitlines()) < 40


def test_gradient_offsets():
    text = _explain("PoolingAverage.gradient:n1h1w9c1,k1x3,s1x4,o0x2,g1x2,p0x1")
    assert "primary offset 1, kernel offset -2, effective offset 2" in text


@given(pooling.problems(mpsref.PoolingAverage, "gradient"))
@example(Case.parse("PoolingAverage.gradient:n1h1w17c1,k1x10,s1x10,o0x5,clamp").problem)
def test_gathered_pixels_are_printed(problem):
    """All of them, on axes of up to 16 pixels; else those of the first and last eight."""
    text = explain(problem)
    for runs, part in zip(problem.runs(), text.split("axis, gradient")[1:], strict=True):
        said = {int(q): eval(pixels) for q, pixels in re.findall(r"pixel (\d+) gathers gradient pixels (.*)", part)}
        gathered = [list(range(f, f + c)) for f, c in zip(runs.first.tolist(), runs.count.tolist(), strict=True)]
        size = len(gathered)
        assert [*said] == [q for q in range(size) if size <= 16 or q < 8 or q >= size - 8]
        assert said == {q: gathered[q] for q in said}


def test_convolutions_have_windows_too():
    text = explain(Case.parse("Convolution.forward:n1h1w5c1,k1x3,s1x2,co1,float32,seed=0").problem)
    assert text.startswith("Convolution.forward  Convolution(")
    assert text.splitlines()[-1].endswith("pixels 3..4")
    gathered = explain(Case.parse("ConvolutionTranspose.forward:n1h1w3c1,k1x3,s1x2,co1,float32,seed=0").problem)
    assert "gather" in gathered, "a transposed convolution is the gradient of a convolution"
