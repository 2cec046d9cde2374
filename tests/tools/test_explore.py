"""The explorer without a browser: controls, scenes, words and pages."""

import html
import itertools
import json
import re
import socket
import sys
import urllib.request
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from xml.etree.ElementTree import Element

import numpy as np
import pytest

import mpsref
from mpsref.conformance.case import Case
from mpsref.conformance.runner import references
from mpsref.explore import words
from mpsref.explore.app import application, page, part, serve
from mpsref.explore.controls import (
    FARTHEST,
    KERNELS,
    PRESETS,
    SENTENCES,
    START,
    case_of,
    controls,
    methods,
    simplified,
)  # fmt: skip
from mpsref.explore.drawing import CELL, color, draw
from mpsref.explore.pictures import Pictures
from mpsref.explore.scene import Edit, Scene, View
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
    for control in controls(case):
        form |= control.values | ({f"{control.name}_default": "on"} if control.is_default else {})
    assert case_of(form).problem == case.problem


def test_what_a_default_means_is_what_it_computes(case):
    """The values that a slider has at the default are those that the default stands for."""
    for control in controls(case):
        if control.is_default:
            pair = tuple(map(int, control.values.values()))
            form = {"kernel": type(case.problem.spec).__name__, "method": method_of(case)}
            for other in controls(case):
                form |= other.values | ({f"{other.name}_default": "on"} if other.is_default else {})
            given = case_of({k: v for k, v in form.items() if k != f"{control.name}_default"})
            assert getattr(given.problem, control.name) == pair
            np.testing.assert_array_equal(Scene(simplified(given)).result, Scene(simplified(case_of(form))).result)


def test_every_control_has_a_sentence(case):
    assert {one.name for one in controls(case)} | {"kernel", "method"} <= set(SENTENCES)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_without_values_has_a_scene_for_each_method(name):
    for method in methods(KERNELS[name]):
        scene = Scene(simplified(case_of({"kernel": name, "method": method})))
        assert Pictures(scene, scene.view({}, scene.default)).all()


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
        assert part({"case": text})["problem"] == ""


def text_of(scene, **query):
    return "".join(part.text for part in scene.text(scene.view(query, scene.default)))


def test_texts():
    scene = Scene(Case.parse(START))
    assert text_of(scene, pixel="0,1") == "dx[0, 1] = 1/4 + 2/6 = 0.5833, from g[0, 0] and g[0, 1]"
    assert text_of(scene) == text_of(scene, pixel="1,1")  # one with the most terms
    assert text_of(scene, source="1,2") == "g[1, 2] = 6 adds 6/9 to each of 9 pixels of dx."
    assert text_of(scene, step="1") == "Window 2 of 9. g[0, 1] = 2 adds 2/6 to each of 6 pixels of dx."
    average = Scene(Case.parse(START.replace("gradient", "forward")))
    assert text_of(average) == "y[0, 0] = (1 + 2 + 7 + 8)/4 = 4.5, N = 2 × 2 = 4"
    single = Scene(Case.parse("UpsamplingNearest.forward:n1h3w3c1,s2x2,float32,exact,seed=0"))
    assert text_of(single) == "y[0, 0] = 1"
    largest = Scene(Case.parse("PoolingMax.forward:n1h3w3c1,k2x2,o1x1,float32,exact,seed=0"))
    assert text_of(largest) == "y[0, 0] = 5: the largest of the pixels of the window. In the window: 1, 2, 4, 5."


def test_products_have_the_pixel_before_its_weight():
    scene = Scene(
        Case.parse("Convolution.forward:n1h2w2c1,k1x1,co1,float32,exact,seed=0"), [Edit("weights", (0, 0), -3)]
    )
    assert text_of(scene, pixel="0,1") == "y[0, 1] = 2 · (-3) = -6"


def test_neighbours_have_different_colours():
    for y, x in np.ndindex(4, 4):
        assert len({color((y + a, x + b)) for a in range(3) for b in range(3)}) == 9


def drawn(scene, name, **query):
    """The picture of an image, and its cells by pixel: style and text."""
    pictures = Pictures(scene, scene.view(query, scene.default)).all()
    found = [picture for picture in pictures if picture.name == name][-1 if name == scene.result_name else 0]
    return found, {pixel: found.panel.cell(*place) for place, (pixel, _) in found.pixels.items()}


def test_a_window_its_pixel_and_its_share_have_one_colour(case):
    scene = Scene(case)
    window, image = (scene.source_name, scene.result_name)[:: 1 if scene.spreads else -1]
    chosen = {"source": "1,1"} if scene.spreads else {"pixel": "1,1"}
    _, cells = drawn(scene, window, **chosen)
    assert [pixel for pixel, (style, _) in cells.items() if style.face == color(pixel)] == [(1, 1)]
    picture, cells = drawn(scene, image, **chosen)
    links = scene.weights[:, :, 1, 1] if scene.spreads else scene.weights[1, 1]
    marked = {pixel for pixel, (style, _) in cells.items() if style.edge == color((1, 1))}
    reached = {(y, x) for y, x in np.argwhere(links).tolist()}
    assert reached <= marked
    assert set(picture.below) == reached
    if scene.spreads:
        assert marked == reached
        assert all(color((1, 1)) in picture.stripes.get(pixel, [color((1, 1))]) for pixel in reached)
    for _, _, mark, _ in picture.panel.frames:
        assert mark.color == color((1, 1))


@pytest.mark.parametrize("text", [text for text in CASES if not re.match("Upsampling|.*_weights|LocalContrast", text)])
def test_a_bracket_holds_what_its_window_reads(text):
    """Upsampling and the gradient of weights have no windows, and shares of local contrast reach beyond them."""
    scene = Scene(simplified(Case.parse(text)))
    by_window = scene.weights.transpose(2, 3, 0, 1) if scene.spreads else scene.weights
    for v, u in np.ndindex(*by_window.shape[:2]):
        chosen = {"source" if scene.spreads else "pixel": f"{v},{u}"}
        picture, _ = drawn(scene, scene.result_name if scene.spreads else scene.source_name, **chosen)
        for axis, read in enumerate(np.argwhere(by_window[v, u]).T.tolist()):
            ends = [(bracket.first, bracket.last) for bracket in picture.brackets[axis] if bracket.chosen]
            assert not read or (ends[0][0] <= min(read) and max(read) <= ends[0][1] and len(ends) == 1)


def test_captions_have_one_sentence(case):
    pictures = Pictures(scene := Scene(case), scene.view({}, scene.default)).all()
    for caption in [*(picture.sentence for picture in pictures), *SENTENCES.values()]:
        assert re.fullmatch(r"\w([^.]|\.\d)*[^. ]\.", caption), caption
    text = part({"case": str(case)})["scene"]
    about = re.sub("<[^>]*>", "", text.partition('<details id="about">')[2])
    assert all(html.escape(picture.about, quote=False) in about for picture in pictures)


def test_the_row_of_an_axis_names_the_pixels_of_g():
    axis = Pictures(scene := Scene(Case.parse(START)), scene.view({}, scene.default)).all()[-1].panel
    assert [axis.cell(axis.rows.indices[0], m)[1] for m in axis.columns.indices] == [
        "0",
        "g0",
        "0",
        "g1",
        "0",
        "g2",
        "0",
        "0",
    ]


def test_the_result_stands_beside_its_source(case):
    pictures = Pictures(scene := Scene(case), scene.view({}, scene.default)).all()
    assert [picture.name for picture in pictures[:2]] == [scene.source_name, scene.result_name]


@pytest.mark.parametrize("pixel", ["1,1", "0,0", "2,3", "5,5"])
def test_a_window_keeps_its_colour_after_a_change(pixel):
    before, case, _ = PRESETS["kernel offset"]
    text = part({"case": case, "before": before, "pixel": pixel})["scene"]
    assert text.count("<strong>Source gradient g = ") == 1  # which both have
    sides = [side.partition("</section>")[0] for side in text.split("<section aria-label=")[1:]]
    colors = [re.findall("<path [^>]*stroke:(#\\w+);stroke-width:[13]", side) for side in sides]
    assert len(colors[0]) == len(colors[1]) == 6
    assert colors[0] == colors[1]
    named = [re.findall(r'fill:(#\w+);stroke:(#\w+)"[^>]*></rect><text [^>]*>g(\d)<', side) for side in sides]
    assert {one[2] for one in named[0]} == {"0", "1", "2"}
    assert set(named[0]) == set(named[1])


def test_frames_lie_beside_the_numbers(case):
    """The width of a digit is at most 0.64 of its size in common fonts, and its height 0.74."""
    scene = Scene(case)
    for pixel in ("0,0", "1,1"):
        for picture in Pictures(scene, scene.view({"pixel": pixel}, scene.default)).all():
            draw(svg := Element("div"), picture)
            frames = [
                [float(one.get(name)) for name in ("x", "y", "width", "height")]
                for one in svg.iter("rect")
                if one.get("class")
            ]
            assert frames or scene.windows is None or not picture.has_windows
            for text in svg.iterfind(".//g/text"):
                size = float(re.search(r"font-size:([\d.]+)", text.get("style"))[1])
                middle = float(text.get("x")), float(text.get("y"))
                half = size * sum(0.32 if c not in ". " else 0.17 for c in text.text), size * 0.37
                for (x, y, width, height), axis in itertools.product(frames, (0, 1)):
                    for edge in ((x, x + width), (y, y + height))[axis]:
                        low, high = ((y, y + height), (x, x + width))[axis]
                        is_beside = abs(middle[axis] - edge) >= half[axis] + 0.9
                        assert is_beside or not low - 0.9 < middle[1 - axis] < high + 0.9, (picture.name, text.text)


def test_n_of_brackets():
    picture, _ = drawn(Scene(Case.parse(START)), "dx")
    assert [[(b.first, b.last, b.text) for b in some] for some in picture.brackets] == [
        [(-1, 1, "N = 2"), (1, 3, "N = 3"), (3, 5, "N = 3")]
    ] * 2
    moved, _ = drawn(Scene(Case.parse(START.replace("clamp", "clamp,ko1x0"))), "dx")
    assert [b.first for b in moved.brackets[0]] == [-2, 0, 2]
    assert [b.first for b in moved.brackets[1]] == [-1, 1, 3]


def test_the_rotated_kernel_covers_what_a_pixel_sums():
    for text in (START, CASES[2], "Convolution.gradient_data:n1h6w6c1,k3x3,s2x2,o1x0,co1,float32,exact,seed=0"):
        scene = Scene(Case.parse(text))
        for y, x in np.ndindex(*scene.result.shape[1:3]):
            picture = next(p for p in Pictures(scene, View((y, x), False)).all() if "inserted" in p.panel.title)
            sums = {(v, u) for v, u in np.argwhere(scene.weights[y, x]).tolist()}
            assert {picture.pixels[place][0] for place in picture.below} == sums
            for rows, columns, _, _ in picture.panel.frames:
                assert all(rows[0] <= r <= rows[1] and columns[0] <= c <= columns[1] for r, c in picture.below)
    assert picture.about.endswith(
        "Here y: effective offset -1 = stride 2 × primary offset 0 + kernel offset -1; "
        "x: effective offset 0 = stride 2 × primary offset 0 + kernel offset 0."
    )


def test_playing_ends_at_the_result(case):
    scene = Scene(case)
    _, cells = drawn(scene, scene.result_name, step=str(scene.steps - 1))
    for (y, x), (_, text) in cells.items():
        linear = scene.spreads
        assert not linear or float(text) == pytest.approx(
            float(scene.result[0, y, x, 0]), rel=5e-2, abs=1e-6
        )  # of two digits
        assert text
    _, cells = drawn(scene, scene.result_name, step="0")
    if not scene.spreads:
        assert [pixel for pixel, (_, text) in cells.items() if text] == [(0, 0)]


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name):
    before, case, sentence = PRESETS[name]
    assert all(text == str(simplified(Case.parse(text))) for text in (before, case) if text)
    text = page({"case": case, "before": before})
    assert f'aria-current="page">{name}</a>' in text.replace("&#x27;", "'")
    assert ("Before: " in text) == bool(before)
    if before:
        assert sentence in text
        old, new = Scene(Case.parse(before)), Scene(Case.parse(case))
        assert old.result.shape != new.result.shape or not np.array_equal(old.result, new.result)


def test_the_preset_of_kernel_offset_says_what_it_does():
    before, case, sentence = PRESETS["kernel offset"]
    old, new = (Scene(Case.parse(text)).result[0, :, :, 0] for text in (before, case))
    np.testing.assert_array_equal(new[:-1, :-1], old[1:, 1:])
    assert "one pixel to the top left" in sentence
    assert "<h2>Before: kernel offset (0, 0)</h2>" in (text := page({"case": case, "before": before}))
    assert "<h2>After: kernel offset (1, 1)</h2>" in text


def test_an_edited_pixel_changes_all_that_is_computed_from_it():
    answer = part({"case": START, "values": "g,0,1,20;g,9,9,5", "pixel": "0,1"})
    assert re.sub("<[^>]*>", "", answer["sum"]) == "dx[0, 1] = 1/4 + 20/6 = 3.583, from g[0, 0] and g[0, 1]"
    assert "g[0, 0, 1, 0] = 20\n" in answer["words"]
    assert "g[0, 9" not in answer["words"]  # which the image does not have
    assert "values=g%2C0%2C1%2C20&" in answer["scene"].replace("&amp;", "&")


def test_python_of_an_edited_case():
    case = Case.parse(START)
    names = {}
    exec(words.python_call(case, "\ng[0, 0, 1, 0] = 20"), names)
    expected = Scene(case, [Edit("g", (0, 1), 20.0)]).result
    np.testing.assert_allclose(names["dx"], expected, rtol=1e-5)


def test_a_window_is_framed_where_it_lies():
    text = part({"case": START, "source": "1,1"})["scene"]
    frames = [tag for tag in re.findall(r'<rect class="frame"[^>]*>', text) if color((1, 1)) in tag]
    cell = re.search(r'data-name="dx" data-pixel="1,1"[^>]*>(<rect[^>]*>)', text)[1]
    x, y, width = (float(re.search(rf' {name}="([\d.]+)"', frames[0])[1]) for name in ("x", "y", "width"))
    left, top = (float(re.search(rf' {name}="([\d.]+)"', cell)[1]) for name in ("x", "y"))
    assert (x, y, width) == pytest.approx((left, top, 3 * CELL), abs=0.1 * CELL)


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
        ({"kernel": "PoolingMax", "method": "gradient", "clip": "abc"}, "clip is 'abc'; write four integers: y, x"),
        ({"kernel": "PoolingMax", "source_shape_y": "40", "source_shape_x": "4"}, "shows at most 32"),
        ({"kernel": "PoolingMax", "source_shape_y": "0", "source_shape_x": "4"}, "must be >= 1"),
        ({"kernel": "PoolingMax", "source_shape_y": "9" * 400, "source_shape_x": "4"}, ""),
        ({"case": "PoolingMax.forward:n1h999999w999999c1,k2x2"}, "shows at most 32"),
        ({"case": "PoolingAverage.forward:n1h6w6c1,k3000x3000"}, "324000000 products; the explorer shows at most"),
        ({"case": "PoolingMax.forward:n1h6w6c1,k2x2,d1x9999999"}, "reach over 10000005 pixels; the explorer shows"),
        ({"case": "PoolingMax.forward:n1h6w6c1,out32x32,k2x2,s99999x1"}, "reach over 3099971 pixels"),
        ({"case": "PoolingMax.gradient:n1h6w6c1,k2x2,d1x9999999"}, "reach over 10000000 pixels"),
        ({"case": "PoolingAverage.gradient:n1h6w6c1,g3x3,k3x3,o99999999999x0"}, f"from -{FARTHEST} to {FARTHEST}"),
        (
            {"case": "PoolingAverage.gradient:n1h6w6c1,k3x3,ko0x99999999999"},
            "kernel_offset is (0, 99999999999); the ex",
        ),
        (
            {"case": "PoolingAverage.gradient:n1h6w6c1,k3x3,p99999999999x0"},
            "primary_offset is (99999999999, 0); the ex",
        ),
        ({"case": START, "values": "g,0"}, "'g,0' of a pixel must be written name,y,x,number"),
        ({"case": START, "values": "g,0,1,abc"}, "pixel g[0, 1] cannot be 'abc'; it must be a number, such as 0.5"),
        ({"case": START, "before": "no"}, "has no ':'"),
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
    assert "nan" in answer["scene"]


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


def test_a_scene_has_its_state(server):
    answer = json.loads(get(server, "/scene", kernel="PoolingMax", source_shape_y=4, source_shape_x=5, pixel="1,2"))
    state = html.unescape(re.search(r'data-state="([^"]*)"', answer["scene"])[1])
    again = json.loads(urllib.request.urlopen(f"{server}/scene?{state}").read())
    assert again == answer
    assert answer["scene"].count('data-name="y"') == 20
    assert answer["sum"].startswith("<span")
    assert "y[1, 2]" in answer["sum"]
    assert answer["fields"]["source_shape_x"] == "5"


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
