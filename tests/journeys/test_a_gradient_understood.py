"""A student follows the page on lessons: terms of a gradient in the terminal, its sum in the browser, an exercise."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from mpsref.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "lessons" / "index.md").read_text("utf-8")
SHOWN = re.findall(r"\n\n```\n(.*?\n)```", PAGE, re.DOTALL)


def test_the_terms_in_the_terminal():
    (line,) = re.findall(r"^mpsref (explain .*)$", PAGE, re.MULTILINE)
    done = CliRunner().invoke(app, shlex.split(line))
    assert done.exit_code == 0
    assert {*SHOWN[0].splitlines()} <= {*done.stdout.splitlines()}


def test_the_sum_in_the_browser():
    from mpsref.explore.app import part

    (case,) = re.findall(r"^mpsref explore '(.*)'$", PAGE, re.MULTILINE)
    (claim,) = re.findall(r"`(dx\[0, 1\] = [^`]*)`", PAGE)
    assert re.sub("<[^>]*>", "", part({"case": case, "pixel": "0,1"})["sum"]).startswith(claim)


def test_the_exercise(tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    mended, said = re.search(r"^With `([^`]*)` it prints `([^`]*)`", PAGE, re.MULTILINE).groups()
    script = tmp_path / "exercise.py"
    for text, answer in ((code, SHOWN[1].strip()), (code.replace("return offset + i * stride", mended), said)):
        script.write_text(text, "utf-8")
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip() == answer
