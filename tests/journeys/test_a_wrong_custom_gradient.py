"""A newcomer follows the page on audits to a wrong gradient of their own, named."""

import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mpsref.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text("utf-8")
SECTION = re.search(r"^## A gradient of your own\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)[1]

NUMBER = re.compile(r"\d\.\d+e[+]\d+")
"""An error as a fraction of a small bound: it differs between processors."""

pytestmark = pytest.mark.slow


@pytest.fixture
def audited(tmp_path, monkeypatch):
    """A function that audits the model of a text with the command of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def audit(code):
        (tmp_path / "model.py").write_text(code, "utf-8")
        sys.modules.pop("model", None)
        importlib.invalidate_caches()
        (command,) = re.findall(r"^mpsref (.*)$", SECTION, re.MULTILINE)
        return CliRunner().invoke(app, shlex.split(command))

    yield audit
    sys.modules.pop("model", None)


def test_the_page_as_it_is(audited):
    pytest.importorskip("torch")
    (code,) = re.findall(r"```\{code-block\} python\n:caption: model.py\n(.*?)```", SECTION, re.DOTALL)
    done = audited(code)
    assert done.exit_code == 1, done.output
    (shown,) = re.findall(r"\n\n```\n(.*?)\n```", SECTION, re.DOTALL)
    said = NUMBER.sub("number", " ".join(done.stdout.split()))
    for line in filter(None, shown.splitlines()):
        assert NUMBER.sub("number", " ".join(line.split())) in said
    line = next(number for number, text in enumerate(code.splitlines(), 1) if text.startswith("class Swish"))
    assert f"model.py:{line - 1}" in done.stdout or f"model.py:{line}" in done.stdout
    mended = audited(code.replace("g * s * (1 - s)", "g * (s + x * s * (1 - s))"))
    assert mended.exit_code == 0, mended.stdout
