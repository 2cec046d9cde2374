"""The README of anymetal: its kernels, its commands and their messages, word for word."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import shared
from anymetal import clang

README = (shared.ROOT / "README.md").read_text("utf-8")
KERNELS = "relu", "total"


def run(name: str, folder: Path = shared.ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command of the README for a file of ``examples``, in a folder that has it."""
    (line,) = re.findall(rf"\banymetal (examples/{name}\.metal .+)", README)
    command = [sys.executable, "-m", "anymetal", *shlex.split(line)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=shared.environment())


def test_the_kernels_are_those_of_the_files() -> None:
    shown = re.findall(r"```metal\n(.*?)```", README, re.DOTALL)
    assert shown == [(shared.ROOT / "examples" / f"{name}.metal").read_text("utf-8") for name in KERNELS]


@pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))
@pytest.mark.parametrize("name", KERNELS)
def test_the_command_prints_the_message(name: str) -> None:
    done = run(name)
    assert done.returncode == 1
    assert f"```\n{done.stderr}```" in README


@pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))
def test_what_the_readme_says_mends_both_races(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    text = (shared.ROOT / "examples" / "total.metal").read_text("utf-8")
    flags, call, pointer = re.findall(
        r"`([^`]+)`", re.search(r"^With `mem_flags.*reported\.$", README, re.MULTILINE)[0]
    )
    for old, new, status in (("mem_flags::mem_none", flags, 1), ("sum[0] += part[0]", call, 0)):
        text = text.replace(old, new).replace("device float *sum", pointer if new == call else "device float *sum")
        (tmp_path / "examples" / "total.metal").write_text(text, "utf-8")
        done = run("total", tmp_path)
        assert (done.returncode, "[fence]" in done.stderr) == (status, False)
    assert "sum (new, zeros): float32 (1,), min 1024 max 1024" in done.stdout


@pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))
def test_the_test_is_red(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "test_relu.py").write_text(code, "utf-8")
    (tmp_path / "relu.metal").write_bytes((shared.ROOT / "examples" / "relu.metal").read_bytes())
    command = [sys.executable, "-m", "pytest", "-q"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=shared.environment())
    (message,) = re.findall(r"^anymetal\.LaunchError: .+", README, re.MULTILINE)
    assert message in done.stdout
