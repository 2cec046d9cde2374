"""A developer of Swift follows the README to one class by its name, and the page on MPS in Swift to a training step."""

import re
from pathlib import Path

import numpy as np
import pytest

from mpsref import mps
from mpsref.mps import graph
from tests.tools.test_docs import run_cells

PAGE = Path(__file__).parents[2] / "docs" / "from_mps.md"
TEXT = PAGE.read_text("utf-8")
SWIFT = "".join(re.findall(r"^```swift\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))


def test_a_class_of_the_readme(capsys):
    """Its arguments are those of the line in Swift, in snake_case and without the device; the output is as shown."""
    readme = (PAGE.parents[1] / "README.md").read_text("utf-8")
    swift, python, shown = re.search(
        r"^```swift\n(.*?)^```.*?^```python\n(.*?)^```\n\n```\n(.*?)^```", readme, re.DOTALL | re.MULTILINE
    ).groups()
    kind, arguments = re.search(r"(MPS\w+)\(device: device, (.*)\)", swift).groups()
    named = re.sub(r"([A-Z])", r"_\1", arguments).lower().replace(": ", "=")
    assert f"mps.{kind}({named})" in python
    exec(python, {"np": np})
    assert capsys.readouterr().out == shown


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
