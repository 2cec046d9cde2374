"""Code of the pages that a build does not execute (that of PyTorch and MLX), and the reference."""

import re
import runpy

import pytest

import anymetal
import shared

DOCS = shared.ROOT / "docs"
BLOCK = re.compile(r"^```\{code-block\} python\n:class: (pytorch|mlx)\n(.*?)^```", re.DOTALL | re.MULTILINE)
WRITTEN = re.compile(r"^```\{code-cell\} python\n(%%writefile .*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLES = [(page.name, *one) for page in sorted(DOCS.glob("*.md")) for one in BLOCK.findall(page.read_text("utf-8"))]
PACKAGES = {"pytorch": "torch", "mlx": "mlx.core"}


def test_there_are_examples():
    assert {one[:2] for one in EXAMPLES} == {("msl_drop_ins.md", "pytorch"), ("msl_drop_ins.md", "mlx")}


@pytest.mark.parametrize(("framework", "code"), [one[1:] for one in EXAMPLES], ids=[name for name, *_ in EXAMPLES])
def test_example(framework, code):
    pytest.importorskip(PACKAGES[framework], reason=f"{framework} is not installed", exc_type=ImportError)
    exec(compile(code, "example", "exec"), {})


@pytest.mark.parametrize("name", anymetal.__all__)
def test_the_reference_has_every_public_name(name):
    text = (DOCS / "reference.md").read_text("utf-8")
    shown = re.findall(r"auto(?:function|class|module|data):: anymetal\.(?:interface\.)?(\w+)$", text, re.MULTILINE)
    assert hasattr(anymetal, name)
    assert name in {*shown, *", ".join(re.findall(r":members: (.+)", text)).split(", ")}


def test_files_of_pages_are_copied_without_the_magic():
    nodes = pytest.importorskip("docutils.nodes", reason="needs the extra `docs`")
    pytest.importorskip("myst_nb", reason="needs the extra `docs`")
    utils = pytest.importorskip("docutils.utils")
    files = runpy.run_path(str(DOCS / "conf.py"))["_files"]
    found = {}
    for page in DOCS.glob("*.md"):
        for cell in WRITTEN.findall(page.read_text("utf-8")):
            tree = utils.new_document(page.name)
            tree += nodes.literal_block(cell, cell)
            files(None, tree)
            (shown,) = tree.findall(nodes.literal_block)
            (caption,) = tree.findall(nodes.caption)
            found[caption.astext()] = shown.astext()
    assert found.keys() == {"relu.metal", "test_relu.py"}
    assert anymetal.compile(found["relu.metal"]).kernels
    compile(found["test_relu.py"], "test_relu.py", "exec")
