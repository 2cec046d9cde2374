"""A newcomer follows the page on MPS in Swift to a training step in Python, as classes and as a graph."""

import re
from pathlib import Path

import pytest

from mpsref import mps
from mpsref.mps import graph
from tests.tools.test_docs import run_cells

PAGE = Path(__file__).parents[2] / "docs" / "from_mps.md"
TEXT = PAGE.read_text("utf-8")
SWIFT = "".join(re.findall(r"^```swift\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))


def test_the_page_as_it_is():
    names = run_cells(PAGE)
    assert len(names["losses"]) == 20
    assert names["losses"][-1] < 0.1 * names["losses"][0]
    assert names["step_of_graph"](names["x"], names["one_hot"]) < names["losses"][-1], "the same weights, a step on"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bMPS\w+", SWIFT))))
def test_each_class_in_swift_is_one_in_python(name):
    assert hasattr(mps, name) or hasattr(graph, name)
    cells = "".join(re.findall(r"^```\{code-cell\} python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))
    assert f".{name}(" in cells, "the line in Python is next to it"
