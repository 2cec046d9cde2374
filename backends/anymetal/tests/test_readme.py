"""The README of anymetal: its kernel, its command and the message."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

import shared
from anymetal import clang

README = (shared.ROOT / "README.md").read_text("utf-8")


def test_the_kernel_is_that_of_the_file():
    (shown,) = re.findall(r"```metal\n(.*?)```", README, re.DOTALL)
    assert shown == (shared.ROOT / "examples" / "relu.metal").read_text("utf-8")


@pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))
def test_the_first_command_prints_the_message():
    (line,) = re.findall(r"&& anymetal (.+)", README)
    done = subprocess.run(
        [sys.executable, "-m", "anymetal", *shlex.split(line)],
        cwd=shared.ROOT, capture_output=True, text=True, timeout=120, env=shared.environment(),
    )  # fmt: skip
    assert done.returncode == 1
    assert f"```\n{done.stderr}```" in README


@pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))
def test_the_test_is_red(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "test_relu.py").write_text(code, "utf-8")
    (tmp_path / "relu.metal").write_bytes((shared.ROOT / "examples" / "relu.metal").read_bytes())
    command = [sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=shared.environment())
    (message,) = re.findall(r"^anymetal\.LaunchError: .+", README, re.MULTILINE)
    assert message in done.stdout
