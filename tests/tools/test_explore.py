"""The explorer without a browser: controls, scenes, words and pages."""

import json
import re
import socket
import sys
import urllib.request
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode

import numpy as np
import pytest

import mpsref
from mpsref.conformance.case import Case
from mpsref.conformance.runner import references
from mpsref.explore import words
from mpsref.explore.app import application, part, serve
from mpsref.explore.controls import KERNELS, START, case_of, controls, methods, simplified
from mpsref.explore.scene import Scene
from mpsref.viz.explain import explain

CASES = [
    START,
    "PoolingAverage.forward:n1h5w4c1,k3x2,s2x1,o1x0,clamp,zp1x1,float32,exact,seed=0",
    "PoolingAverage.gradient:n1h6w6c1,k3x3,s2x2,clamp,p1x0,ko1x1,clip1x0+4x5,float32,exact,seed=0",
    "PoolingMax.forward:n1h6w7c1,k3x2,s2x1,o1x0,d2x1,float32,exact,seed=0",
    "PoolingMax.gradient:n1h6w7c1,k3x2,s2x1,o1x0,d2x1,float32,exact,seed=0",
    "PoolingL2Norm.forward:n1h5w5c1,k3x3,float32,exact,seed=0",
    "PoolingL2Norm.gradient:n1h5w5c1,k3x3,clamp,float32,seed=0",
    "Convolution.forward:n1h6w5c1,k3x3,s1x2,d2x1,co1,float32,seed=0",
    "Convolution.gradient_data:n1h6w5c1,k3x3,s2x2,co1,float32,seed=0",
    "Convolution.gradient_weights:n1h6w5c1,k3x3,co1,float32,exact,seed=0",
    "ConvolutionTranspose.forward:n1h3w3c1,k3x3,s2x2,co1,float32,seed=0",
    "ConvolutionTranspose.gradient_data:n1h3w3c1,k3x3,s2x2,co1,float32,seed=0",
    "ConvolutionTranspose.gradient_weights:n1h4w3c1,k3x3,s2x2,co1,float32,seed=0",
    "UpsamplingNearest.forward:n1h3w3c1,s2x3,float32,seed=0",
    "UpsamplingNearest.gradient:n1h3w3c1,s2x2,float32,seed=0",
    "UpsamplingBilinear.forward:n1h4w3c1,s2x2,aligned,float32,seed=0",
    "UpsamplingBilinear.gradient:n1h4w3c1,s2x2,float32,seed=0",
    "SpatialNormalization.forward:n1h5w5c1,k3x3,alpha0.5,float32,seed=0",
    "SpatialNormalization.gradient:n1h5w5c1,k3x3,alpha0.5,float32,seed=0",
    "LocalContrastNormalization.forward:n1h5w5c1,k3x3,alpha1.0,delta1.0,float32,seed=0",
    "LocalContrastNormalization.gradient:n1h5w5c1,k3x3,alpha1.0,delta1.0,float32,seed=0",
]
DOCS = Path(__file__).parents[2] / "docs"
RESULTS = {"forward": "y", "gradient_weights": "dw"}


def method_of(case):
    return case.problem.operation.method


@pytest.fixture(params=CASES)
def case(request):
    return simplified(Case.parse(request.param))


def test_every_kernel_and_method_is_tried():
    tried = {(type(c.problem.spec).__name__, method_of(c)) for c in map(Case.parse, CASES)}
    assert tried == {(name, method) for name, kind in KERNELS.items() for method in methods(kind)}


def test_controls_and_case_are_inverse(case):
    form = {"kernel": type(case.problem.spec).__name__, "method": method_of(case)}
    assert case_of(form | {control.name: control.value for control in controls(case)}).problem == case.problem


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_without_values_has_a_scene_for_each_method(name):
    for method in methods(KERNELS[name]):
        assert Scene(simplified(case_of({"kernel": name, "method": method}))).data()["pixels"]


def test_weights_are_derivatives(case):
    """By central differences, in float64; of linear passes the weights give the result, too."""
    scene = Scene(case)
    inputs = {name: array.astype(np.float64) for name, array in scene.inputs.items()}
    source = inputs[scene.source_name]
    for y, x in np.ndindex(*source.shape[1:3]):
        sides = []
        for step in (1e-4, -1e-4):
            moved = source.copy()
            moved[0, y, x, 0] += step
            sides.append(references(case.problem, *(inputs | {scene.source_name: moved}).values())[0][0, :, :, 0])
        np.testing.assert_allclose(scene.weights[:, :, y, x], (sides[0] - sides[1]) / 2e-4, atol=1e-5, rtol=1e-5)
    if scene.source_name == "g":
        total = np.einsum("abij,ij->ab", scene.weights, source[0, :, :, 0])
        np.testing.assert_allclose(total, scene.result[0, :, :, 0], atol=1e-9)


def test_taps_and_gathered_pixels_are_those_of_explain():
    forward = Scene(Case.parse("PoolingAverage.forward:n1h5w4c1,k3x2,s2x1,o1x0,clamp,zp1x1,float32,exact,seed=0"))
    assert [(t.pixel, t.kind) for t in forward.terms((1, 0))] == [
        ((2, -1), "tap"), ((2, 0), "tap"), ((3, -1), "tap"), ((3, 0), "center"), ((4, -1), "tap"), ((4, 0), "tap")
    ]  # fmt: skip
    lines = explain(forward.problem).splitlines()
    n = [int(line.rpartition("N = ")[2]) for line in lines if line.strip().startswith(("window 1", "window 0"))]
    assert forward.count((1, 0)) == f"N = {n[1]} × {n[2]} = {n[1] * n[2]}"
    gradient = Scene(Case.parse(START))
    gathers = re.findall(r"pixel (\d+) gathers gradient pixels \[([\d, ]*)\]", explain(gradient.problem))
    rows = {int(q): [int(p) for p in pixels.split(",")] for q, pixels in gathers[:6]}
    for pixel in np.ndindex(6, 6):
        assert [t.pixel for t in gradient.terms(pixel)] == [(a, b) for a in rows[pixel[0]] for b in rows[pixel[1]]]


def test_a_hollow_center_is_no_tap():
    scene = Scene(Case.parse("PoolingMax.forward:n1h6w6c1,k2x2,d2x2,float32,exact,seed=0"))
    assert [(t.pixel, t.kind) for t in scene.terms((2, 2))] == [
        ((1, 1), "tap"), ((1, 3), "tap"), ((2, 2), "hollow"), ((3, 1), "tap"), ((3, 3), "tap")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "page", [*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("lessons/*.ipynb"))], ids=lambda page: page.name
)
def test_cases_in_the_documentation_can_be_opened(page):
    for text in re.findall(r"mpsref explore '([^']+)'", page.read_text("utf-8")):
        assert Scene(simplified(Case.parse(text))).grids


def test_texts():
    scene = Scene(Case.parse(START))
    assert scene.text((0, 1)) == "dx[0, 1] = 1/4 · g[0, 0] + 1/6 · g[0, 1] = 0.583333"
    largest = Scene(Case.parse("PoolingMax.forward:n1h3w3c1,k2x2,o1x1,float32,exact,seed=0"))
    assert largest.text((0, 0)).startswith("y[0, 0] = 5: the largest of the pixels of the window. In the window: 1, 2,")


def test_python_computes_the_case(case):
    names = {}
    exec(words.python_call(case), names)
    result = names[RESULTS.get(method_of(case), "dx")]
    np.testing.assert_allclose(result, references(case.problem, *case.inputs())[0], rtol=1e-5)


def test_classes_of_mps_compute_the_case(case):
    text = words.mps_call(case)
    names = dict(zip(case.problem.input_shapes, case.inputs(), strict=True))
    names.setdefault("x", np.ones(case.problem.source_shape, np.float32))
    names.setdefault("weights", np.ones((1, *getattr(case.problem.spec, "kernel_size", (1, 1)), 1), np.float32))
    exec(text, names)
    expected = references(case.problem, *case.inputs())[0]
    if "# " not in text:
        result = np.reshape(names[RESULTS.get(method_of(case), "dx")], expected.shape)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_words_of_frameworks():
    found = {one.framework: one for one in words.of_frameworks(Case.parse(START).problem)}
    assert "padding=(1, 1)" in found["PyTorch"].text
    assert "count_include_pad=False" in found["PyTorch"].text
    assert not found["TensorFlow"].exists
    assert "begins at" in found["TensorFlow"].text


@pytest.mark.parametrize(
    ("form", "offset", "size"),
    [
        ({"framework": "PyTorch", "padding": "1"}, (0, 0), (3, 3)),
        ({"framework": "PyTorch", "padding": "0, 1", "ceil_mode": "on", "count_include_pad": "on"}, (1, 0), (3, 4)),
        ({"framework": "TensorFlow", "padding": "SAME"}, (1, 1), (3, 3)),
        ({"framework": "ONNX", "padding": "1, 1, 0, 0"}, (0, 0), (3, 3)),
        ({"framework": "ONNX", "padding": "SAME_LOWER"}, (0, 0), (3, 3)),
        ({"framework": "Caffe", "padding": "1"}, (0, 0), (4, 4)),
        ({"framework": "MPS", "padding": "SizeValidOnly"}, (1, 1), (2, 2)),
    ],
)
def test_padding_of_a_framework_places_the_windows(form, offset, size):
    case = words.placed(Case.parse(START), form)
    assert (case.problem.spec.offset, case.problem.gradient_size) == (offset, size)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"kernel": "Pooling"}, "kernel is 'Pooling'; use one of PoolingAverage"),
        ({"kernel": "PoolingMax", "kernel_size_y": "x", "kernel_size_x": "1"}, "kernel_size y is 'x'; it must be an"),
        ({"kernel": "PoolingMax", "kernel_size_y": "0", "kernel_size_x": "1"}, "kernel_size"),
        ({"kernel": "PoolingMax", "kernel_size_y": "2"}, "one of its two values"),
        ({"kernel": "PoolingMax", "method": "gradient", "clip": "1, 2"}, "four integers"),
        ({"kernel": "PoolingMax", "source_shape_y": "40", "source_shape_x": "4"}, "shows at most 32"),
        ({"kernel": "PoolingMax", "source_shape_y": "0", "source_shape_x": "4"}, "must be >= 1"),
        ({"kernel": "PoolingMax", "source_shape_y": "9" * 400, "source_shape_x": "4"}, ""),
        ({"case": "PoolingMax.forward:n1h999999w999999c1,k2x2"}, "shows at most 32"),
        ({"case": "PoolingAverage.forward:n1h6w6c1,k3000x3000"}, "324000000 products; the explorer shows at most"),
        ({"case": "PoolingMax.forward:n1h6w6c1,k2x2,d1x9999999"}, "reach over 10000005 pixels; the explorer shows"),
        ({"case": "PoolingMax.forward:n1h6w6c1,out32x32,k2x2,s99999x1"}, "reach over 3099971 pixels"),
        ({"case": "PoolingMax.gradient:n1h6w6c1,k2x2,d1x9999999"}, "reach over 10000000 pixels"),
        ({"case": "SoftMax.forward:n1h1w1c4"}, "the explorer has PoolingAverage"),
        ({"case": "<script>"}, "has no ':'"),
    ],
)
def test_bad_input_gets_a_sentence(query, sentence):
    answer = part(query)
    assert set(answer) == {"problem"}
    assert answer["problem"]
    assert sentence in answer["problem"]
    assert len(answer["problem"]) < 500


@pytest.mark.parametrize(("alpha", "delta"), [("inf", "1"), ("0", "0")])
def test_results_that_are_not_finite_are_shown(alpha, delta):
    query = {"kernel": "SpatialNormalization", "method": "gradient", "alpha": alpha, "delta": delta}
    answer = part(query)
    assert answer["problem"] == ""
    assert "nan" in answer["html"]


def test_a_port_in_use_gets_a_sentence():
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} of 127.0.0.1: .*; choose another with --port"):
            serve(port=port, browser=False)


def get(server, path, **query):
    with urllib.request.urlopen(f"{server}{path}?{urlencode(query)}") as answer:
        return answer.read().decode()


def test_pages(server):
    for case in CASES[:4]:
        shown = re.search(r'data-copy="(\w+\.\w+:[^"]*)"', get(server, "/", case=case))[1]
        assert Case.parse(shown).problem == simplified(Case.parse(case)).problem
    assert 'role="alert">kernel is' in get(server, "/", kernel="no")
    assert "&lt;script&gt;" in get(server, "/", case="<script>")


def test_a_scene_has_its_address_and_its_data(server):
    answer = json.loads(get(server, "/scene", kernel="PoolingMax", source_shape_y=4, source_shape_x=5))
    with urllib.request.urlopen(server + answer["address"]) as page:
        data = json.loads(re.search(r'id="data">(.*?)</script>', page.read().decode())[1])
    assert len(data["pixels"]) == 20
    assert data["pixels"]["0,0"]["text"].startswith("y[0, 0] = 7: the largest")


def test_padding_redirects_to_its_case(server):
    form = {"case": START, "framework": "PyTorch", "padding": "1", "ceil_mode": "on"}
    assert ",g4x4," in get(server, "/place", **form)
    wrong = get(server, "/place", case=START, framework="PyTorch", padding="SAME")
    assert "padding must be one integer, or two" in wrong


def test_only_this_machine_is_answered(server):
    request = urllib.request.Request(server, headers={"Host": "example.com"})
    with pytest.raises(HTTPError, match="400"):
        urllib.request.urlopen(request)


def test_without_its_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    with pytest.raises(mpsref.UnsupportedError, match=r"\.\[explore\]"):
        application()
