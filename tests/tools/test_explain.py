"""The output of ``mpsref explain`` agrees with the geometry."""

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mpsref
from mpsref import registry
from mpsref.conformance.case import Case
from mpsref.conformance.families import pooling
from mpsref.viz.explain import explain
from tests import examples


def _explain(case):
    return explain(Case.parse(case).problem)


def test_the_worked_windows():
    """Worked example: five pixels, K = 4, s = 3, a ring of one zero: N = 3, 4, 2."""
    text = _explain("PoolingAverage.forward:n1h1w5c1,k1x4,s1x3,clamp,zp0x1,out1x3")
    rows = text.split("x axis")[1].splitlines()[1:-2]
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


def said(part):
    """Return the gradient pixels that the text lists for each pixel of an axis."""
    return {int(q): eval(pixels) for q, pixels in re.findall(r"pixel (\d+) gathers gradient pixels (.*):", part)}


@given(pooling.problems(mpsref.PoolingAverage, "gradient"))
@example(Case.parse("PoolingAverage.gradient:n1h1w17c1,k1x10,s1x10,o0x5,clamp").problem)
def test_gathered_pixels_are_printed(problem):
    """All of them, on axes of up to 16 pixels; else those of the first and last eight."""
    text = explain(problem)
    for runs, part in zip(problem.runs(), text.split("axis, gradient")[1:], strict=True):
        listed = said(part)
        gathered = [list(range(f, f + c)) for f, c in zip(runs.first.tolist(), runs.count.tolist(), strict=True)]
        size = len(gathered)
        assert [*listed] == [q for q in range(size) if size <= 16 or q < 8 or q >= size - 8]
        assert listed == {q: gathered[q] for q in listed}


def test_windows_outside_the_image_read_its_edge_with_clamp():
    text = _explain("PoolingMax.gradient:n1h1w1c1,k1x1,clamp,g1x2")
    assert "pixel 0 gathers gradient pixels [0, 1]" in text.split("x axis, gradient")[1]
    text = _explain("PoolingAverage.gradient:n1h1w1c1,k1x1,clamp,g1x2")
    assert "pixel 0 gathers gradient pixels [0]" in text.split("x axis, gradient")[1], "windows of an average shrink"


@pytest.mark.parametrize("edge_mode", ["zero", "clamp"])
@pytest.mark.parametrize("kind", [mpsref.PoolingAverage, mpsref.PoolingMax, mpsref.PoolingL2Norm])
@examples(20)
@given(data=st.data())
def test_the_listed_contributions_sum_to_the_value(kind, edge_mode, data):
    """Those of each window alone, an image of a batch; where all windows give something, they are the listed ones."""
    drawn = data.draw(pooling.placed_problems(kind, "gradient"))
    spec, size = dataclasses.replace(drawn.spec, edge_mode=edge_mode), tuple(min(5, n) for n in drawn.gradient_size)
    problem = dataclasses.replace(drawn, spec=spec, source_shape=(1, *drawn.source_shape[1:3], 1), gradient_size=size)
    number = math.prod(size)
    each = dataclasses.replace(problem, source_shape=(number, *problem.source_shape[1:]))
    g, *x = (one.astype(float) for one in Case(problem, seed=1).inputs())
    single = np.eye(number).reshape(number, *size, 1)

    def parts(g, *x):
        found = each.operation.formula(each, single * g, *(one.repeat(number, axis=0) for one in x))
        return found.reshape(*size, *value.shape)

    value = problem.operation.formula(problem, g, *x)[0, :, :, 0]
    of_windows, all_equal = parts(g, *x), parts(np.ones_like(g), *map(np.ones_like, x))
    rows, columns = (said(part) for part in explain(problem).split("axis, gradient")[1:])
    for q, k in np.ndindex(value.shape):
        listed = [*itertools.product(rows[q], columns[k])]
        assert problem.where((0, q, k, 0)) == f"gathers gradient rows {rows[q]}, columns {columns[k]}"
        assert sum(of_windows[v, u, q, k] for v, u in listed) == pytest.approx(value[q, k], abs=1e-12)
        if kind is not mpsref.PoolingMax:
            assert listed == [*map(tuple, np.argwhere(all_equal[:, :, q, k]).tolist())]


def test_convolutions_have_windows_too():
    text = explain(Case.parse("Convolution.forward:n1h1w5c1,k1x3,s1x2,co1,float32,seed=0").problem)
    assert text.startswith("Convolution.forward  Convolution(")
    assert text.splitlines()[-3].endswith("pixels 3..4")
    gathered = explain(Case.parse("ConvolutionTranspose.forward:n1h1w3c1,k1x3,s1x2,co1,float32,seed=0").problem)
    assert "gather" in gathered, "a transposed convolution is the gradient of a convolution"


@pytest.mark.parametrize(
    "case",
    [
        "PoolingAverage.gradient:n1h1w9c1,k1x3,s1x2,o0x1,clamp",
        "PoolingAverage.gradient:n1h1w9c1,k1x4,s1x3,zero",
        "PoolingL2Norm.gradient:n1h1w9c1,k1x3,s1x2",
        "Convolution.gradient_data:n1h1w9c1,k1x3,s1x2,co1",
        "ConvolutionTranspose.forward:n1h1w5c1,k1x4,s1x2,co1",
    ],
)
def test_the_terms_of_a_gradient_are_its_value(case):
    """Along an axis of one row, the printed terms are expressions of g, x, y and w."""
    problem = Case.parse(f"{case},float32").problem
    inputs = Case.parse(f"{case},float32").inputs()
    result = registry.run(problem, *inputs, backend="reference")
    values = {name[0]: array.ravel() for name, array in zip(problem.input_shapes, inputs, strict=True)}
    if isinstance(problem.spec, mpsref.PoolingL2Norm):
        values["y"] = problem.spec.forward(inputs[1], problem.gradient_size).ravel()
    terms = re.findall(r"pixel (\d+) gathers gradient pixels .*?: (.*)", explain(problem).split("axis, gradient")[2])
    found = [eval(re.sub(r"\] (?=[wx]\[)", "] * ", text), values) for _, text in terms]
    np.testing.assert_allclose(found, np.ravel(result), rtol=1e-5, atol=1e-6)


def test_pooling_with_indices_has_windows_too():
    forward = explain(Case.parse("GraphPoolingMax.forward:n1h1w5c1,k1x2,s1x2,o0x1,float32").problem)
    assert "pixels 2..3" in forward
    gradient = explain(Case.parse("GraphPoolingMax.gradient:n1h1w3c1,k1x2,o0x1,g1x2,float32").problem)
    assert (
        "pixel 1 gathers gradient pixels [0, 1]: g[0] if indices[0] names x[1] + g[1] if indices[1] names x[1]"
        in gradient
    )
