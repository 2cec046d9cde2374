"""A user of PyTorch follows the README and the page on audits to a wrong gradient function of their own, named."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mpsref.cli import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PAGE = (ROOT / "docs" / "audit.md").read_text("utf-8")
SECTION = re.search(r"^## A first audit\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)[1]
MODEL = ROOT / "examples" / "model.py"

NUMBER = re.compile(r"\d+\.\d+(?:e[-+]\d+)?")


def words(text):
    """Return a text with single spaces and numbers of three digits; more, and parts of a bound, differ between runs."""
    shown = re.sub(r"\b0\.\d\d\b", "A PART OF ITS BOUND", " ".join(text.split()))
    shown = NUMBER.sub(lambda number: f"{float(number[0]):.3g}", shown)
    return re.sub(r"\d\.?\d*e\+\d+", "MANY TIMES ITS BOUND", shown)


@pytest.fixture
def audited(tmp_path, monkeypatch):
    """A function that runs a command of a page in a folder with a text as ``model.py``."""
    pytest.importorskip("torch", reason="PyTorch is not installed (an extra)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def audit(page, text):
        (tmp_path / "model.py").write_text(text, "utf-8")
        sys.modules.pop("model", None)
        (command,) = set(re.findall(r"^(?:cd examples && )?mpsref (audit model:net .*)$", page, re.MULTILINE))
        return CliRunner().invoke(app, shlex.split(command))

    yield audit
    sys.modules.pop("model", None)


def test_the_readme(audited):
    text = MODEL.read_text("utf-8")
    done = audited(README, text)
    assert done.exit_code == 1, done.output
    (shown,) = re.findall(r"```\n(WRONG .*?)```", README, re.DOTALL)
    assert words(shown) in words(done.stdout)
    line = 1 + text.splitlines().index("class Swish(torch.autograd.Function):")
    assert f"model.py:{line}:" in shown


def test_the_page_and_the_mended_model(audited):
    (path,) = re.findall(r"^```\{literalinclude\} (.*)$", SECTION, re.MULTILINE)
    assert (ROOT / "docs" / path).resolve() == MODEL
    text = MODEL.read_text("utf-8")
    done = audited(SECTION, text)
    assert done.exit_code == 1, done.output
    (shown,) = re.findall(r"\n\n```\n(.*?)\n```", SECTION, re.DOTALL)
    for line in filter(None, shown.splitlines()):
        assert words(line) in words(done.stdout)
    (right,) = re.findall(r"last line of `backward` by `([^`]*)`", SECTION)
    (wrong,) = re.findall(r"return g .*", text)
    mended = audited(SECTION, text.replace(wrong, right))
    assert mended.exit_code == 0, mended.stdout
