"""Link each statement of the documentation that is tagged *choice*, *obs* or *design* to the page "open choices".

Run ``python scripts/link_choices.py`` after a change of the declarations in ``backends/mpsref_apple/probe``.
"""

import re
import sys
from pathlib import Path

from mpsref_apple.probe import choices
from mpsref_apple.probe.declare import Choice

DOCS = Path(__file__).parent.parent / "docs"
TAG = r"\[([^\]\[]*\b{tag}\b[^\]\[]*)\](?!\()"
"""A tag in brackets that is no link yet."""


def linked(line: str, one: Choice) -> str:
    """Return a line with its tag as a link to the entry of a choice."""
    target = f"(open_choices.md#{one.id})"
    if target in line:
        other = "choice|obs" if one.tag == "design" else "design"
        return re.sub(rf"\b({other})\b(?=[^\]\[]*\]{re.escape(target)})", one.tag, line)
    for tag in ("choice", "obs", "design"):
        found = re.sub(TAG.format(tag=tag), rf"[\1]{target}", line, count=1)
        if found != line:
            return linked(found, one)
        head, _, last = line.rstrip().removesuffix("|").rpartition("|")
        cell = re.sub(rf"(?<!\[)\b{tag}\b", f"[{tag}]{target}", last, count=1)
        if cell != last:
            return linked(f"{head}|{cell}|\n", one)
    return line


def main() -> int:
    """Write links; return 1 if a statement was not found."""
    lost = 0
    for one in choices():
        for name, part in one.lines():
            file = DOCS / f"{name}.md"
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            numbers = [number for number, line in enumerate(lines) if part in line]
            if len(numbers) != 1:
                print(f"{one.id}: {len(numbers)} lines of {name}.md have {part!r}")
                lost = 1
                continue
            if not lines[numbers[0]].startswith("        "):
                lines[numbers[0]] = linked(lines[numbers[0]], one)
                file.write_text("".join(lines), encoding="utf-8")
    return lost


if __name__ == "__main__":
    sys.exit(main())
