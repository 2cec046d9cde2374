"""The pages' PyTorch examples. All other code of the pages is executed when they are built."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```\{code-block\} python\n:class: pytorch\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLES = [(page.name, code) for page in sorted(DOCS.glob("*.md")) for code in BLOCK.findall(page.read_text("utf-8"))]


def test_there_are_examples():
    assert "pooling_average.md" in dict(EXAMPLES)


@pytest.mark.parametrize("code", [code for _, code in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_example(code):
    pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")
    exec(compile(code, "example", "exec"), {})
