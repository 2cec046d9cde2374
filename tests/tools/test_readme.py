"""The examples of the README run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def test_python():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shown = [block for block in blocks if "my_package" not in block]
    assert len(shown) >= 3
    exec("\n".join(shown), {"__name__": "readme"})


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
