"""What the file of a shared library tells: code that runs when it is loaded, needed symbols, threadgroup memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from .. import CompileError

ENTRY, LOCAL, THREADS = "mpsref_thread", "mpsref_local", "mpsref_threads"
"""The entry point of a kernel, and sections: its static threadgroup memory, and the threads of a group that it names."""

CODE = {14: ".init_array", 15: ".fini_array", 16: ".preinit_array"}
"""Types of sections of ELF with functions that run when a library is loaded or unloaded."""
TAGS = {1: "DT_NEEDED", 12: "DT_INIT", 13: "DT_FINI", 0x7FFFFFFD: "DT_AUXILIARY", 0x7FFFFFFF: "DT_FILTER"}
"""Tags of the dynamic section of ELF."""
RELOCATIONS, SYMBOLS, DYNAMIC = 4, 11, 6
RESOLVED = frozenset((37, 1032))
"""Relocations of x86-64 and arm64 with a value that a function of the library computes."""
GLOBAL, RESOLVER = 1, 10

UNDEFINED, EXTERNAL = 0x0E, 0x01
"""Bits of the type of a symbol in Mach-O: none of the first are set for one of another library."""
SYMTAB = 2
MACH_CODE = {0x09: "__mod_init_func", 0x0A: "__mod_term_func", 0x15: "__thread_init", 0x16: "__init_offsets"}
SEGMENT, ROUTINES = 0x19, 0x1A


class Contents(NamedTuple):
    """The symbols that a library takes from others, and where its threadgroup memory lies."""

    needed: list[str]
    local_offset: int
    """Bytes from the entry point to the threadgroup memory."""
    local_bytes: int
    threads: int | None
    """The attribute ``max_total_threads_per_threadgroup``."""


def contents(data: bytes) -> Contents:
    """Return what a library contains; raise CompileError if it runs code when it is loaded."""
    if data.startswith(b"\x7fELF\x02\x01"):
        found, symbols, section = list(_elf(data)), _elf_symbols(data), _elf_section
    elif data.startswith(b"\xcf\xfa\xed\xfe"):
        found, symbols, section = list(_mach(data)), _mach_symbols(data), _mach_section
    else:
        raise CompileError("the compiler wrote a library of an unknown format")
    if found:
        raise CompileError(
            f"<msl>: error: the source has code that runs when it is loaded ({', '.join(sorted(set(found)))}): "
            "give constants values that are known to the compiler"
        )
    needed = [name for name, place in symbols.items() if place is None]
    (local, _, nbytes), (_, at, named) = section(data, LOCAL), section(data, THREADS)
    threads = struct.unpack_from("<I", data, at)[0] if named else None
    return Contents(needed, local - (symbols.get(ENTRY) or 0), nbytes, threads)


class _Section(NamedTuple):
    name: int
    kind: int
    address: int
    offset: int
    size: int
    link: int


def _sections(data: bytes) -> list[_Section]:
    """Return the sections of an ELF file."""
    start, size, count = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58)
    rows = (struct.unpack_from("<IIQQQQI", data, start + size * i) for i in range(count))
    return [_Section(*row[:2], *row[3:]) for row in rows]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode(errors="replace")


def _records(layout: str, data: bytes, offset: int, size: int) -> Iterator[tuple[int, ...]]:
    return struct.iter_unpack(layout, data[offset : offset + size - size % struct.calcsize(layout)])


def _elf(data: bytes) -> Iterator[str]:
    for _, kind, _, offset, size, _ in _sections(data):
        if kind in CODE and size:
            yield CODE[kind]
        elif kind == DYNAMIC:
            yield from (TAGS[tag] for tag, _ in _records("<qQ", data, offset, size) if tag in TAGS)
        elif kind == RELOCATIONS:
            yield from ("ifunc" for _, info, _ in _records("<QQq", data, offset, size) if info & 0xFFFFFFFF in RESOLVED)
        elif kind == SYMBOLS:
            yield from ("ifunc" for row in _records("<IBBHQQ", data, offset, size) if row[1] & 15 == RESOLVER)


def _elf_symbols(data: bytes) -> dict[str, int | None]:
    """Return the addresses of global symbols; None for one of another library."""
    sections = _sections(data)
    found: dict[str, int | None] = {}
    for _, kind, _, offset, size, link in sections:
        if kind == SYMBOLS:
            for name, info, _, section, value, _ in _records("<IBBHQQ", data, offset, size):
                if name and info >> 4 == GLOBAL:
                    found[_text(data, sections[link].offset + name)] = value if section else None
    return found


def _elf_section(data: bytes, name: str) -> tuple[int, int, int]:
    """Return the address, the offset in the file and the size of a section, zeros if there is none."""
    sections = _sections(data)
    names = sections[struct.unpack_from("<H", data, 62)[0]].offset
    found = (section for section in sections if _text(data, names + section.name) == name)
    return next(((section.address, section.offset, section.size) for section in found), (0, 0, 0))


def _commands(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the load commands of a Mach-O file: kind, offset, size."""
    at = 32
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        command, size = struct.unpack_from("<II", data, at)
        yield command, at, size
        at += size


def _mach(data: bytes) -> Iterator[str]:
    for command, at, size in _commands(data):
        if command == ROUTINES:
            yield "LC_ROUTINES_64"
        elif command == SEGMENT:
            for flags in (struct.unpack_from("<I", data, first + 64)[0] for first in range(at + 72, at + size, 80)):
                if flags & 255 in MACH_CODE:
                    yield MACH_CODE[flags & 255]


def _mach_symbols(data: bytes) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for command, at, _ in _commands(data):
        if command == SYMTAB:
            first, count, names, _ = struct.unpack_from("<IIII", data, at + 8)
            for name, kind, _, _, value in _records("<IBBHQ", data, first, 16 * count):
                if kind & EXTERNAL:
                    found[_text(data, names + name).removeprefix("_")] = value if kind & UNDEFINED else None
    return found


def _mach_section(data: bytes, name: str) -> tuple[int, int, int]:
    for command, at, size in _commands(data):
        if command == SEGMENT:
            for first in range(at + 72, at + size, 80):
                if data[first : first + 16].rstrip(b"\0").decode(errors="replace") == name:
                    address, nbytes, offset = struct.unpack_from("<QQI", data, first + 32)
                    return address, offset, nbytes
    return 0, 0, 0
