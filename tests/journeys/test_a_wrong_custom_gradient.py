"""A newcomer follows the page on audits to a wrong gradient of their own, named."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text("utf-8")
SECTION = re.search(r"^## A gradient of your own\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)[1]

NUMBER = re.compile(r"\d\.\d+e[+]\d+")
"""An error as a fraction of a small bound: it differs between processors."""

pytestmark = pytest.mark.slow


def audited(folder, code):
    (folder / "model.py").write_text(code, "utf-8")
    (command,) = re.findall(r"^mpsref .*$", SECTION, re.MULTILINE)
    words = shlex.split(command)
    return subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False)


def test_the_page_as_it_is(tmp_path):
    pytest.importorskip("torch")
    (code,) = re.findall(r"```\{code-block\} python\n:caption: model.py\n(.*?)```", SECTION, re.DOTALL)
    done = audited(tmp_path, code)
    assert done.returncode == 1, done.stderr
    (shown,) = re.findall(r"\n\n```\n(.*?)\n```", SECTION, re.DOTALL)
    said = NUMBER.sub("number", " ".join(done.stdout.split()))
    for line in filter(None, shown.splitlines()):
        assert NUMBER.sub("number", " ".join(line.split())) in said
    line = next(number for number, text in enumerate(code.splitlines(), 1) if text.startswith("class Swish"))
    assert f"model.py:{line - 1}" in done.stdout or f"model.py:{line}" in done.stdout
    mended = audited(tmp_path, code.replace("g * s * (1 - s)", "g * (s + x * s * (1 - s))"))
    assert mended.returncode == 0, mended.stdout
