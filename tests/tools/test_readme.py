"""The examples of the README run."""

import re
import shlex
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

import mpsref
from mpsref import cli

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
        done = CliRunner().invoke(cli.app, shlex.split(line)[1:])
        assert done.exit_code == 0, done.output


def test_commands_of_the_table_exist():
    names = set(re.findall(r"^\| `mpsref (\w+)", README, re.MULTILINE))
    text = CliRunner().invoke(cli.app, ["--help"]).output
    assert names
    assert all(re.search(rf"\b{name}\b", text) for name in names)


# --- the picture: python -m tests.tools.test_readme writes it ---------------------------------------------------------

PICTURE = ROOT / "docs" / "_static" / "gradient.svg"
CELL, TOP, BETWEEN = 40, 34, 60


def picture():
    """Return two gradients of the sum of means over 2 x 2 pixels, strides 2, as SVG."""
    g, shape = np.ones((1, 4, 4, 1), np.float32), (1, 7, 7, 1)
    pools = [mpsref.PoolingAverage(2, 2, offset=1, edge_mode=mode) for mode in ("clamp", "zero")]
    correct, wrong = (pool.gradient(g, shape)[0, :, :, 0] for pool in pools)
    side = 7 * CELL
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * side + BETWEEN + 20}" height="{side + TOP + 10}" '
        'font-family="sans-serif" font-size="13" text-anchor="middle">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for image, title, left in (
        (correct, "correct", 10),
        (wrong, "PyTorch 2.13, compiled for Apple GPUs", 10 + side + BETWEEN),
    ):
        lines.append(f'<text x="{left + side // 2}" y="22" font-size="15">{title}</text>')
        for (y, x), value in np.ndenumerate(image):
            at_x, at_y, shade = left + x * CELL, TOP + y * CELL, round(255 - 110 * float(value))
            place = f'x="{at_x}" y="{at_y}" width="{CELL}" height="{CELL}"'
            ink = "black" if value == correct[y, x] else "crimson"
            weight = ' font-weight="bold"' if ink == "crimson" else ""
            lines.append(
                f'<rect {place} fill="rgb({shade},{shade},255)" stroke="white"/>'
                f'<text x="{at_x + CELL // 2}" y="{at_y + CELL // 2 + 5}" fill="{ink}"{weight}>{value:g}</text>'
            )
    return "\n".join([*lines, "</svg>\n"])


def test_the_picture():
    assert PICTURE.read_text("utf-8") == picture()


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
