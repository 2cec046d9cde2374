"""Code of the pages that a build does not execute (those of PyTorch and MLX), the tutorial, and the API reference."""

import ast
import re
import runpy
from pathlib import Path

import pytest

import mpsref
from mpsref import mps, mpsgraph
from mpsref.conformance import checker
from mpsref.mps import graph
from mpsref.mpsgraph.graph import FUNCTIONS
from mpsref.registry import operations

DOCS = Path(__file__).parents[2] / "docs"
EXPANDED = runpy.run_path(str(DOCS / "entries.py"))["expanded"]
BLOCK = re.compile(r"^```\{code-block\} python\n:class: (pytorch|mlx)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CELL = re.compile(r"^```\{code-cell\} python\n(?:---\n.*?^---\n|(?::[^\n]*\n)*)(.*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLES = [(page.name, *one) for page in sorted(DOCS.glob("*.md")) for one in BLOCK.findall(page.read_text("utf-8"))]
PACKAGES = {"pytorch": "torch", "mlx": "mlx.core"}
TUTORIAL = DOCS / "tutorial_digits.md"


def documented():
    """Yield (module, name, members) of each entry of the reference pages."""
    entry = re.compile(
        r"^\.\. (?:currentmodule:: (.+)|auto(?:class|function|data):: (\w+)\n(?:   :members: (.+))?)", re.MULTILINE
    )
    for page in sorted((*(DOCS / "reference").glob("*.md"), *DOCS.glob("*.md"))):
        module = ""
        for where, name, members in entry.findall(EXPANDED(page.read_text("utf-8"))):
            module = where or module
            if name:
                yield module, name, members


DOCUMENTED = list(documented())
INCLUDE = re.compile(r"^```\{literalinclude\} (\S+)\n((?::.*\n)*)```", re.MULTILINE)
INCLUDED = [
    (page.name, *found) for page in sorted(DOCS.glob("*.md")) for found in INCLUDE.findall(page.read_text("utf-8"))
]


def test_there_are_examples():
    assert ("pooling_average.md", "pytorch") in [example[:2] for example in EXAMPLES]


@pytest.mark.parametrize(("framework", "code"), [one[1:] for one in EXAMPLES], ids=[name for name, *_ in EXAMPLES])
def test_example(framework, code):
    pytest.importorskip(PACKAGES[framework], reason=f"{framework} is not installed (an extra)", exc_type=ImportError)
    exec(compile(code, "example", "exec"), {})


def run_cells(page):
    """Run the cells of a page in order and in one namespace, and return it; lines with magics are skipped."""
    text, names = page.read_text("utf-8"), {}
    for cell in CELL.finditer(text):
        code = re.sub(r"^%.*$", "", cell[1], flags=re.MULTILINE)
        above = "\n" * text.count("\n", 0, cell.start(1))  # tracebacks have the line numbers of the page
        exec(compile(above + code, str(page), "exec"), names)
    return names


def test_tutorial():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (the extra `examples`)")
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed (the extra `plot`)")
    pyplot.switch_backend("Agg")
    names = run_cells(TUTORIAL)
    pyplot.close("all")
    assert len(names["by_hand"]) == len(names["automatic"]) == 10  # ran to the end, on all parameters
    assert len(names["trainer"].history) == 4


def test_the_problems_list_inputs_that_are_passed():
    """Not those of which the gradient needs only the shape; a condition is named where it is not always passed."""
    pytest.importorskip("IPython", reason="IPython is not installed (the extra `docs`)")
    pages = run_cells(DOCS / "problems.md")["parts"]
    shown = {}
    for head, _, line in (part.splitlines()[:3] for part in pages):
        listed = re.findall(r"`(\w+)` \(([^)]*)\)", line.partition(" Results:")[0])
        shown |= dict.fromkeys(head.removeprefix("## ").split(", "), listed)
    assert shown.keys() == {str(one) for one in operations()}
    for operation in operations():
        listed = shown[str(operation)]
        always = {name for name, text in listed if ", if " not in text}
        cases = checker.random_cases(operation, ("float32",), 1 if len(always) == len(listed) else 12, 0)
        passed = [set(case.problem.input_shapes) for case in cases]
        if str(operation) != "Concatenation.forward":
            assert always <= set.intersection(*passed), operation
            assert {name for name, _ in listed} == set.union(*passed), operation


def test_a_step_of_mpsgraph():
    names = run_cells(DOCS / "from_mpsgraph.md")
    assert names["losses"][-1] < 0.9 * names["losses"][0]


def test_the_operations_of_pytorch_lead_to_functions_and_selectors():
    """Of MPSGraph's operations those that a row names by the begin of a selector, unless it says "not"."""
    text = (DOCS / "aten_on_mps.md").read_text("utf-8")
    assert set(re.findall(r"~mpsref\.mpsgraph\.(\w+)", text)) <= set(mpsgraph.__all__)
    for row in re.findall(r"^\| .* \|$", text, re.MULTILINE)[2:]:
        _, _, graph_operations, functions, _, _ = row.split("|")
        selectors = [FUNCTIONS[name].selector for name in re.findall(r"mpsgraph\.(\w+)", functions)]
        for begin in re.findall(r"`([a-zA-Z]\w*2D\w*|normalization\w+|resize\w+With\w+)(?:\.\.\.|`)", graph_operations):
            assert any(one.startswith(begin) for one in selectors), (begin, selectors)


@pytest.mark.parametrize("module", [mpsref, mps, graph, mpsgraph], ids=lambda module: module.__name__)
def test_the_reference_has_every_public_name_once(module):
    """The errors, geometry and padding are documented as whole modules."""
    names = set(module.__all__) - {"__version__", "geometry", "padding", *mpsref.errors.__all__}
    listed = [name for where, name, _ in DOCUMENTED if where == module.__name__]
    assert sorted(listed) == sorted(names)


@pytest.mark.parametrize("module", [mps, graph], ids=lambda module: module.__name__)
def test_each_class_of_apple_is_two_clicks_away(module):
    """The API reference is in the sidebar, and links to each class."""
    assert "\nreference/index\n" in (DOCS / "index.md").read_text("utf-8")
    text = EXPANDED((DOCS / "reference" / "index.md").read_text("utf-8"))
    linked = re.findall(rf"{{py:class}}`~{module.__name__}\.(\w+)`", text)
    assert sorted(linked) == sorted(name for name in module.__all__ if isinstance(getattr(module, name), type))


@pytest.mark.parametrize("entry", ["kernel offset", "kernelOffset", "effective offset"])
def test_the_search_puts_windows_first(entry):
    """By a main entry of the index: test_search.py searches in a browser."""
    assert f" <! {entry}>`" in (DOCS / "windows.md").read_text("utf-8")


def test_a_module_without_public_names_is_an_error():
    with pytest.raises(ValueError, match=r"mpsref\.kernels\.pools: no public name of mpsref, .* is defined in this"):
        EXPANDED("# Page\n\n```{reference}\nmpsref.kernels.pools\nmpsref.kernels.softmax\n```\n")


@pytest.mark.parametrize(("page", "path", "options"), INCLUDED, ids=[f"{page}-{path}" for page, path, _ in INCLUDED])
def test_included_source_exists(page, path, options):
    source = (DOCS / path).read_text("utf-8")
    for kind, text in re.findall(r"^:(pyobject|start-at|end-before): (.+)$", options, re.MULTILINE):
        if kind == "pyobject":
            *outer, name = text.split(".")
            body = ast.parse(source).body
            for part in [*outer, name]:
                found = [node for node in body if getattr(node, "name", None) == part]
                assert found, f"{path} has no {text}"
                body = found[0].body
        else:
            assert text.strip('"') in source, f"{path} has no {text!r}"


def test_cells_that_fail_are_noticed(tmp_path):
    page = tmp_path / "page.md"
    cells = ":tags: [remove-cell]\n%matplotlib inline\nx = 1", "---\nmystnb:\n  image:\n---\nx += 1", "assert x == 3"
    page.write_text("\n\n".join(f"```{{code-cell}} python\n{cell}\n```" for cell in cells), "utf-8")
    with pytest.raises(AssertionError):
        run_cells(page)
    page.write_text(page.read_text("utf-8").replace("== 3", "== 2"), "utf-8")
    assert run_cells(page)["x"] == 2
