"""The notebooks of the lessons: in ``docs/lessons`` of a checkout."""

from __future__ import annotations

import json
import re
from pathlib import Path

from mpsref.errors import UnsupportedError

FOLDER = Path(__file__).parents[2] / "docs" / "lessons"


def paths() -> dict[int, Path]:
    """Return the notebooks by the number of the lesson.

    Raises
    ------
    UnsupportedError
        If mpsref was installed without its documentation.
    """
    found = {int(path.name[:2]): path for path in sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))}
    if not found:
        raise UnsupportedError(f"there are no lessons in {FOLDER}; install mpsref from a checkout: pip install -e .")
    return found


def notebooks() -> dict[int, str]:
    """Return the titles of the lessons by number."""
    titles = {}
    for number, path in paths().items():
        first = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
        heading = re.match(r"# (?:Lesson \d+: )?(.*)", first)
        titles[number] = heading[1] if heading else path.stem
    return titles


def copied(number: int, folder: Path) -> Path:
    """Copy a notebook to a folder, and return the path of the copy, which names the pages that the lesson links to.

    Raises
    ------
    ValueError
        If there is a file of this name, which may have a learner's work, or the folder does not exist.
    """
    source = paths()[number]
    target = folder / source.name
    if not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r}; make it first")
    if target.exists():
        raise ValueError(f"{target} exists; move it, or choose another --folder")
    lesson = json.loads(source.read_text("utf-8"))
    for cell in lesson["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = [_LINK.sub(_named, line) for line in cell["source"]]
    target.write_text(json.dumps(lesson, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return target


_LINK = re.compile(r"\[([^]]*)\]\(((?!https?:)[^)#]*)(?:#[^)]*)?\)")
"""A link to another page of the documentation, which leads nowhere from a copy in another folder."""


def _named(link: re.Match[str]) -> str:
    return f"{link[1]} (`{(FOLDER / link[2]).resolve()}`)"
