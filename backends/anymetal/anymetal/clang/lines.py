"""Places in the source: the line table of a library, and what its symbols tell."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..frontend.toolchain import SHIM


@dataclass(frozen=True)
class Place:
    """A place in the source."""

    file: str
    line: int
    column: int

    @property
    def is_users(self) -> bool:
        """Whether the file is none of Metal's headers."""
        return not self.file.startswith(str(SHIM))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")


def _elf(file: Any) -> Any:
    from elftools.elf.elffile import ELFFile  # of the extra `metal`, and only for launches with checks

    return ELFFile(file)


def image(path: Path) -> dict[str, Any]:
    """Return what the checks need of a library, with addresses in its file.

    The size of all; where its entry is; for each threadgroup variable its place, bytes and name; and where the flags of
    its basic blocks are, how many, and where the places of the blocks are.
    """
    with path.open("rb") as file:
        elf = _elf(file)
        section = elf.get_section_by_name("anymetal_locals")
        start, end = (section["sh_addr"], section["sh_addr"] + section["sh_size"]) if section else (0, 0)
        symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
        size = max(one["p_vaddr"] + one["p_memsz"] for one in elf.iter_segments() if one["p_type"] == "PT_LOAD")
        flags, blocks = (elf.get_section_by_name(f"__sancov_{name}") for name in ("bools", "pcs"))
        cover = [flags["sh_addr"], flags["sh_size"], blocks["sh_addr"]] if flags else [0, 0, 0]
    entry = next(one["st_value"] for one in symbols if one.name == "anymetal_thread")
    found = {(one["st_value"] - start, one["st_size"], one.name) for one in symbols if start <= one["st_value"] < end}
    named = [[at, size, _variable(name)] for at, size, name in sorted(found) if size]
    variables = [one for one in named if not one[2].startswith("anymetal_zone_")]
    return {"entry": entry, "bytes": size, "variables": variables, "blocks": cover}


def _variable(symbol: str) -> str:
    """Return the name of a variable of a function from its symbol (Itanium ABI): that after the last length."""
    names = [symbol[m.end() :][: int(m[1])] for m in re.finditer(r"(?<!\d)(\d+)(?=[A-Za-z_])", symbol)]
    return names[-1] if symbol.startswith("_Z") and names else symbol


UNSET = re.compile(
    r"^(?P<file>[^\n]*?):(?P<line>\d+):(?P<column>\d+): warning: "
    r"variable '(?P<name>\w+)' (?P<how>is|may be|is used) uninitialized",
    re.M,
)


def unset(warnings: str) -> list[list[Any]]:
    """Return where a variable is used before it is set: file, line, column, name, and whether the compiler is sure."""
    matches = UNSET.finditer(warnings)
    found = {(m["file"], int(m["line"]), int(m["column"]), m["name"], m["how"] == "is") for m in matches}
    return [list(row) for row in sorted(found) if not row[0].startswith(str(SHIM))]


class Lines:
    """The line table of a library."""

    def __init__(self, path: Path) -> None:
        """Read the file of the library."""
        self._addresses, self._rows, self._inlined = list[int](), list[Place | None](), list[tuple[int, int, Place]]()
        with path.open("rb") as file:
            dwarf = _elf(file).get_dwarf_info()
            for unit in dwarf.iter_CUs():
                table = dwarf.line_program_for_CU(unit)
                states = [entry.state for entry in table.get_entries() if entry.state is not None]
                names = [_path(table, number) for number in range(len(table["file_entry"]) + 1)]
                for state in sorted(states, key=lambda one: (one.address, one.end_sequence is False)):
                    self._addresses.append(state.address)
                    place = Place(names[state.file], state.line, state.column)
                    self._rows.append(None if state.end_sequence else place)
                self._inlined += _calls(dwarf, unit, names)

    def places(self, address: int) -> Iterator[Place]:
        """Yield the place of an instruction, and those of the calls that were inlined around it, innermost first."""
        row = bisect_right(self._addresses, address) - 1
        if row >= 0 and (place := self._rows[row]) is not None:
            yield place
        around = [(end - start, place) for start, end, place in reversed(self._inlined) if start <= address < end]
        yield from (place for _, place in sorted(around, key=lambda one: one[0]))

    def unreached(self, blocks: Sequence[int], flags: bytes) -> tuple[Place, ...]:
        """Return the lines of the user's files of which no block ran; ``blocks`` are the places of the blocks."""
        order = sorted(zip(blocks, flags, strict=True))
        starts, ran = [block for block, _ in order], dict[tuple[str, int], bool]()
        for address, row in zip(self._addresses, self._rows, strict=True):
            at = bisect_right(starts, address) - 1
            if row is None or at < 0 or not (row.line and row.column) or not row.is_users:
                continue  # column 0: the start of a function, which may be a copy that is not called
            line = row.file, row.line
            ran[line] = ran.get(line, False) or bool(order[at][1])
        return tuple(Place(file, line, 0) for (file, line), has_run in sorted(ran.items()) if not has_run)

    def place(self, code: int) -> Place | None:
        """Return the place of the access in the files of the user; ``code`` is the address behind it."""
        return next((one for one in self.places(code - 1) if one.line and one.is_users), None)


def _path(table: Any, number: int) -> str:
    if not number:
        return ""
    entry = table["file_entry"][number - 1]
    folder = table["include_directory"][entry.dir_index - 1].decode() + "/" if entry.dir_index else ""
    return str(folder + entry.name.decode())


def _calls(dwarf: Any, unit: Any, names: Sequence[str]) -> Iterator[tuple[int, int, Place]]:
    """Yield the code of each inlined call, and its place."""
    base = unit.get_top_DIE().attributes.get("DW_AT_low_pc")
    for entry in unit.iter_DIEs():
        if entry.tag != "DW_TAG_inlined_subroutine":
            continue
        of = entry.attributes
        column = of["DW_AT_call_column"].value if "DW_AT_call_column" in of else 0
        place = Place(names[of["DW_AT_call_file"].value], of["DW_AT_call_line"].value, column)
        if "DW_AT_ranges" in of:
            for one in dwarf.range_lists().get_range_list_at_offset(of["DW_AT_ranges"].value, unit):
                start = base.value if base else 0
                yield one.begin_offset + start, one.end_offset + start, place
        elif "DW_AT_low_pc" in of:
            start, length = of["DW_AT_low_pc"].value, of["DW_AT_high_pc"].value
            yield start, start + length, place


@functools.lru_cache(maxsize=64)
def lines_of(path: Path) -> Lines:
    """Return the line table of a library."""
    return Lines(path)


@functools.lru_cache(maxsize=256)
def unreached(path: Path, blocks: tuple[int, ...], flags: bytes) -> tuple[Place, ...]:
    """Return the lines of the user's files that no thread of a launch has reached."""
    return lines_of(path).unreached(blocks, flags)
