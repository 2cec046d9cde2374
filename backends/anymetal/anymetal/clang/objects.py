"""What a shared library does when it is loaded, read from its file: code that runs, and symbols that it needs."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..interface import CompileError

CODE = {14: ".init_array", 15: ".fini_array", 16: ".preinit_array"}
"""Types of sections of ELF with functions that run when a library is loaded or unloaded."""
INITIALIZERS, OWN_BYTES = 14, 16
TAGS = {1: "DT_NEEDED", 12: "DT_INIT", 13: "DT_FINI", 0x7FFFFFFD: "DT_AUXILIARY", 0x7FFFFFFF: "DT_FILTER"}
"""Tags of the dynamic section of ELF."""
RELOCATIONS, SYMBOLS, DYNAMIC = 4, 11, 6
RESOLVED = frozenset((37, 1032))
"""Relocations of x86-64 and arm64 with a value that a function of the library computes."""
GLOBAL, RESOLVER = 1, 10
OBJECT_SYMBOLS, HIDDEN = 2, 2

MACH_CODE = {0x09: "__mod_init_func", 0x0A: "__mod_term_func", 0x15: "__thread_init", 0x16: "__init_offsets"}
SYMBOL_TABLE, SEGMENT, ROUTINES = 0x02, 0x19, 0x1A
EXTERNAL, DEFINED, PRIVATE = 0x01, 0x0E, 0x10
"""Bits of the type of a symbol in Mach-O."""


def check_loading(data: bytes, *, is_checked: bool = False) -> list[str]:
    """Raise CompileError if a library runs code when it is loaded; return the symbols that it takes from others.

    A library with checks has two functions of the compiler's sanitizers that run then, and do nothing.
    """
    if data.startswith(b"\x7fELF\x02\x01"):
        found, needed = list(_elf(data, OWN_BYTES if is_checked else 0)), _elf_needed(data, SYMBOLS)
    elif data.startswith(b"\xcf\xfa\xed\xfe"):
        found, needed = list(_mach(data)), _mach_undefined(data)
    else:
        raise CompileError("the compiler wrote a library of an unknown format")
    if found:
        raise CompileError(
            f"<msl>: error: the source has code that runs when it is loaded ({', '.join(sorted(set(found)))}): "
            "give constants values that are known to the compiler"
        )
    return [name for name, _ in needed]


def undefined(data: bytes) -> list[str]:
    """Return the symbols of an object file that are hidden, those of its source, and have no definition."""
    if data.startswith(b"\x7fELF\x02\x01"):
        found = [name for name, visibility in _elf_needed(data, OBJECT_SYMBOLS) if visibility == HIDDEN]
    else:
        found = [name for name, kind in _mach_undefined(data) if kind & PRIVATE]
    return [name for name in found if name != "__dso_handle"]  # which the linker defines


def _sections(data: bytes) -> list[tuple[int, ...]]:
    """Return type, offset, size and linked section of the sections of an ELF file."""
    start, size, count = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58)
    rows = (struct.unpack_from("<IIQQQQI", data, start + size * i) for i in range(count))
    return [(row[1], row[4], row[5], row[6]) for row in rows]


def _records(layout: str, data: bytes, offset: int, size: int) -> Iterator[tuple[int, ...]]:
    return struct.iter_unpack(layout, data[offset : offset + size - size % struct.calcsize(layout)])


def _elf(data: bytes, allowed: int) -> Iterator[str]:
    for kind, offset, size, _ in _sections(data):
        if kind in CODE and size > (allowed if kind == INITIALIZERS else 0):
            yield CODE[kind]
        elif kind == DYNAMIC:
            yield from (TAGS[tag] for tag, _ in _records("<qQ", data, offset, size) if tag in TAGS)
        elif kind == RELOCATIONS:
            yield from ("ifunc" for _, info, _ in _records("<QQq", data, offset, size) if info & 0xFFFFFFFF in RESOLVED)
        elif kind == SYMBOLS:
            yield from ("ifunc" for row in _records("<IBBHQQ", data, offset, size) if row[1] & 15 == RESOLVER)


def _elf_needed(data: bytes, kind_of_section: int) -> Iterator[tuple[str, int]]:
    """Yield the symbols without a definition with their visibility."""
    sections = _sections(data)
    for kind, offset, size, link in sections:
        if kind == kind_of_section:
            for name, info, other, section, _, _ in _records("<IBBHQQ", data, offset, size):
                if name and not section and info >> 4 == GLOBAL:
                    start = sections[link][1] + name
                    yield data[start : data.index(b"\0", start)].decode(errors="replace"), other & 3


def _commands(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield kind, offset and size of the load commands of a Mach-O file."""
    at = 32
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        command, size = struct.unpack_from("<II", data, at)
        yield command, at, size
        at += size


def _mach_undefined(data: bytes) -> Iterator[tuple[str, int]]:
    """Yield the symbols without a definition with the bits of their types."""
    for command, at, _ in _commands(data):
        if command == SYMBOL_TABLE:
            first, count, names = struct.unpack_from("<III", data, at + 8)
            for name, kind, _, _, _ in _records("<IBBHQ", data, first, 16 * count):
                if kind & EXTERNAL and not kind & DEFINED:
                    start = names + name
                    yield data[start : data.index(b"\0", start)].decode(errors="replace").removeprefix("_"), kind


def _mach(data: bytes) -> Iterator[str]:
    for command, at, size in _commands(data):
        if command == ROUTINES:
            yield "LC_ROUTINES_64"
        elif command == SEGMENT:
            for flags in (struct.unpack_from("<I", data, first + 64)[0] for first in range(at + 72, at + size, 80)):
                if flags & 255 in MACH_CODE:
                    yield MACH_CODE[flags & 255]
