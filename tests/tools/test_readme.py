"""The examples of the README run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_python():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shown = [block for block in blocks if "my_package" not in block]
    assert len(shown) >= 3
    exec("\n".join(shown), {"__name__": "readme"})


def test_a_source_gradient_is_not_the_forward_result():
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "mpsref/mps").rglob("*.py")]
    found = [line for file in files for line in file.read_text("utf-8").splitlines() if AS_GRADIENT.search(line)]
    assert found == []


AS_GRADIENT = re.compile(r"(?:[gG]radient(?:\([^()]*\))?|backward|reverse)\.encode\(y\b")
"""The gradient of a forward result is g in examples, not the result itself."""


def test_replay_and_explain():
    lines = re.findall(r"^mpsref (?:replay|explain) '.*$", README, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        command = [sys.executable, "-c", "from mpsref.cli import main; main()", *shlex.split(line)[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr


def test_commands_of_the_table_exist():
    names = set(re.findall(r"^\| `mpsref (\w+)", README, re.MULTILINE))
    command = [sys.executable, "-c", "from mpsref.cli import main; main()", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert names
    assert all(re.search(rf"\b{name}\b", text) for name in names)
