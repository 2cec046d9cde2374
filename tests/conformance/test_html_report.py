"""The HTML page of a report, and the counts of what was tried."""

from xml.etree import ElementTree

import numpy as np
import pytest

from mpsref.conformance import check, checker, families, html_report, mutants
from mpsref.conformance.case import Case, operation_named, operations
from mpsref.conformance.report import Failure, Report, Row
from mpsref.conformance.tally import ERROR, added, described, histogram, tally
from mpsref.errors import UnsupportedError
from mpsref.registry import Backend

pytestmark = pytest.mark.usefixtures("few_layers")

GRADIENT = operation_named("PoolingAverage.gradient")
RIGHT = Backend("right", {op: mutants.of_problem(lambda problem: problem) for op in operations()})


def parsed(report):
    """The page as a tree: with the elements that HTML does not close taken out."""
    page = html_report.page(report)
    assert page.startswith("<!doctype html>")
    text = page.removeprefix("<!doctype html>")
    for script in ("style", "script"):
        before, _, rest = text.partition(f"<{script}>")
        text = before + rest.partition(f"</{script}>")[2]
    for tag in ("meta", "link", "input"):
        pieces = text.split(f"<{tag}")
        text = pieces[0] + "".join(piece.partition(">")[2] for piece in pieces[1:])
    return ElementTree.fromstring(text)


def words(element):
    return " ".join(element.itertext())


def grids(root):
    """The tables of numbers: (caption, numbers, marks)."""
    for side in root.iterfind(".//div[@class='side wide']/table"):
        cells = [line.findall("td") for line in side.findall("tr")]
        numbers = np.array([[float(cell.text) for cell in line] for line in cells])
        yield (
            side.find("caption").text,
            numbers,
            np.array([[cell.get("class") == "wrong" for cell in line] for line in cells]),
        )


def test_failures_are_drawn_with_the_wrong_elements_marked():
    def corner(problem, g, out=None):
        result = problem.spec.gradient(g, problem.source_shape, primary_offset=problem.primary_offset)
        out[...] = result
        out[0, -1, -1, 0] += 1

    operation = operation_named("PoolingAverage.gradient")
    backend = Backend("corner", {operation: corner})
    case = Case.parse("PoolingAverage.gradient:n1h3w4c2,k2x2,clamp,float32,exact,seed=0")
    outcome = checker.outcome_of(case, backend)
    failure = Failure(str(case), "corner", outcome.message, results=outcome.results)
    root = parsed(Report("1", 0, (Row(str(operation), "corner", "CPU", failures=(failure,)),)))
    found = {caption: (numbers, marks) for caption, numbers, marks in grids(root)}
    g = case.inputs()[0]
    expected = case.problem.spec.gradient(g.astype(np.float64), (1, 3, 4, 2))
    for c in range(2):
        np.testing.assert_allclose(found[f"g[0, :, :, {c}]"][0], g[0, :, :, c])
        np.testing.assert_allclose(found[f"result[0, :, :, {c}], expected"][0], expected[0, :, :, c], rtol=1e-5)
    numbers, marks = found["result[0, :, :, 0], of the backend"]
    assert np.argwhere(marks).tolist() == [[2, 3]]
    assert numbers[2, 3] == pytest.approx(expected[0, 2, 3, 0] + 1)
    assert not found["result[0, :, :, 1], of the backend"][1].any()
    assert failure.replay in words(root)
    assert "window 0" in words(root), "the windows are explained"


def test_a_real_check_with_failures():
    mutant = next(m for m in families.mutants() if m.name == "the sum is of g, not of g * y")
    report = check([mutant.backend, RIGHT], [mutant.operation], number=20)
    root = parsed(report)
    rows = root.findall(".//table[@id='rows']/tbody/tr")
    assert [row.get("class") for row in rows] == ["failed", "passed"]
    drawn = [marks for caption, _, marks in grids(root) if "backend" in caption]
    assert any(marks.any() for marks in drawn)


def test_text_is_escaped_and_everything_is_there():
    failure = Failure("PoolingAverage.gradient:n1h1w1c1,k1x1,seed=0", "b <&>", "x < y & z", "net.layer")
    report = Report(
        "1.2.3", 7,
        (
            Row(str(GRADIENT), "b <&>", "CPU", 4, 0, 0.5, failures=(failure,)),
            Row(str(GRADIENT), "c", "GPU", reason="no such thing"),
        ),
        (("metal", "no Mac"),),
    )  # fmt: skip
    assert "b <&>" not in html_report.page(report)
    text = words(parsed(report))
    for part in ("b <&>", "x < y & z", "net.layer", "no such thing", "no Mac", "1.2.3", "seed 7"):
        assert part in text


def test_every_case_counts_once():
    (row,) = check([RIGHT], [GRADIENT], number=20).rows
    for feature in ("dtype", "data", "images", "channels", "edge_mode"):
        assert sum(row.tried[feature].values()) == row.cases
    assert sum(row.tried[ERROR].values()) == row.passed
    assert row.tried["strides"][1] <= row.cases, "a pair of equal numbers counts once"


def test_counts_of_blocks_are_added():
    whole, parts = (check([RIGHT], [GRADIENT], number=n).rows[0] for n in (70, 60))
    assert sum(whole.tried["data"].values()) == whole.cases > parts.cases
    assert added([parts.tried, {"data": {"real": 1}}])["data"]["real"] == parts.tried["data"]["real"] + 1


@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_every_operation_has_counts_and_their_histograms_lose_nothing(operation):
    for case in [*checker.random_cases(operation, RIGHT.dtypes, 4, 3)]:
        for feature, counts in tally(case, 0.5).items():
            bins = histogram(operation, feature, counts)
            assert sum(bins.values()) == sum(counts.values())


@pytest.mark.parametrize("value", [2**64 - 1, 2**63, -(2**63)])
def test_numbers_of_64_bits_are_counted(value):
    operation, counts = operation_named("Dropout.mask"), {value: 2, 0: 1}
    bins = histogram(operation, "seed", counts)
    assert sum(bins.values()) == 3
    (name,) = (name for name, count in bins.items() if count == 2)
    assert min(map(int, name.split(" to "))) <= value <= max(map(int, name.split(" to ")))
    assert f"{name} 2" in described(operation, {"seed": counts})
    root = parsed(Report("1", 0, (Row(str(operation), "b", "CPU", 1, tried={"seed": counts}),)))
    assert name in words(root)


ODD = "\x1b[31mred\x00\x7f\x9b \ud800 \ufdd0\ufffe\U0001ffff"
"""Controls, a lone surrogate and noncharacters, which XML, UTF-8 or HTML cannot hold."""
ESCAPED = "\\x1b[31mred\\x00\\x7f\\x9b \\ud800 \\ufdd0\\ufffe\\U0001ffff"


def test_any_text_of_an_exception_is_reported():
    """Also as its type, as a reason, and in the name and the device of a backend."""

    def broken(problem, *inputs, out):
        if problem.method == "gradient":
            raise UnsupportedError(ODD)
        raise type("Odd\x1b", (Exception,), {})(ODD)

    def silent(problem, *inputs, out):
        raise type("Odd", (Exception,), {"__str__": lambda self: 1 / 0})

    chosen = [operation_named(f"SoftMax.{method}") for method in ("forward", "gradient")]
    backends = [Backend(f"b {ODD}", dict.fromkeys(chosen, broken), device=lambda: f"device {ODD}")]
    report = check([*backends, Backend("silent", {chosen[0]: silent})], chosen, number=2)
    page, junit = html_report.page(report), report.junit()
    for text in (page, junit, "".join(ElementTree.fromstring(junit).find("testsuite").attrib.values())):
        assert ESCAPED in text
        text.encode()
        assert not any(character in text for character in ODD if character not in " [31mred")
    failure = ElementTree.fromstring(junit).find("testsuite/testcase/failure")
    assert (failure.get("type"), failure.get("message")) == ("raised Odd\\x1b", f"raised Odd\\x1b: {ESCAPED}")
    assert f"device {ESCAPED}" in words(parsed(report))
    assert report.rows[2].reason == ESCAPED
    assert report.rows[1].failures[-1].message == "raised Odd: ZeroDivisionError in __str__"


def test_values_that_were_not_tried_are_shown():
    report = Report(
        "1", 0, (Row(str(GRADIENT), "b", "CPU", 1, tried={"edge_mode": {"clamp": 3}, "height": {2: 1, 40: 2}}),)
    )
    tables = {
        table.find("caption").text: {line[0].text: line[2].text for line in table.findall("tr")}
        for table in parsed(report).iterfind(".//div[@class='tried']/table")
    }
    assert tables["edge mode"] == {"zero": "0", "clamp": "3"}
    assert tables["height"] == {str(n): "0" for n in range(3, 9)} | {
        "2": "1", "9 to 16": "0", "17 to 32": "0", "33 to 64": "2"
    }  # fmt: skip
