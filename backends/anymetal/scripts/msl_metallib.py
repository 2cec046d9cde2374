"""Compare the kernels of MLX and PyTorch as anymetal reads them with what Apple's compiler wrote into a macOS wheel.

    pip download --no-deps --only-binary :all: --platform macosx_14_0_arm64 mlx-metal torch
    unzip mlx_metal-*.whl mlx/lib/mlx.metallib
    python scripts/msl_metallib.py mlx/lib/mlx.metallib --mlx mlx
    unzip torch-*.whl "torch/include/*" torch/lib/libtorch_cpu.dylib
    python scripts/msl_metallib.py torch/lib/libtorch_cpu.dylib --torch torch/include

`--mlx` is the repository, `--torch` a folder of headers, of the same version; the library of PyTorch contains a
metallib. All names are compared. Of a random sample of each file, or with `--all` of every kernel, the arguments are:
their indices, the bytes and the alignment of what they point or refer to, whether they can be written, whether they are
device or threadgroup memory, and for a struct the offset and the bytes of each member. Apple's side is the metadata
`air.kernel` of the bitcode, which llvmlite reads; ours are assertions that the front end of the compiler checks.
"""

from __future__ import annotations

import argparse
import random
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from msl_collections import Front, sources

import anymetal
from anymetal.frontend.kernels import Kernel
from anymetal.frontend.options import Options
from anymetal.frontend.program import checked
from anymetal.frontend.toolchain import find, missing

THREADGROUP = 3


class Argument(NamedTuple):
    """A buffer, or threadgroup memory, of a kernel in a metallib."""

    index: int
    space: int
    """The number of the address space: 1 device, 2 constant, 3 threadgroup."""
    nbytes: int
    alignment: int
    is_written: bool
    members: tuple[tuple[str, int, int], ...]
    """Name, offset and bytes of each member of a struct."""


class Metallib:
    """The kernels of a metallib, which may lie in another file.

    At 0x10 is its size, at 0x18 the offset of the list of functions, at 0x48 that of their bitcode.
    """

    def __init__(self, path: Path) -> None:
        """Read the list; raise ValueError for a file without a metallib."""
        data = path.read_bytes()
        for match in re.finditer(b"MTLB", data):
            rest = len(data) - match.start()
            if rest > 0x50 and 0x50 < (size := struct.unpack_from("<Q", data, match.start() + 0x10)[0]) <= rest:
                self._data = data[match.start() : match.start() + size]
                break
        else:
            raise ValueError(f"{path} has no metallib, which begins with MTLB")
        self.functions = dict(self._functions())

    def _functions(self) -> Iterator[tuple[str, bytes]]:
        """Yield names with their bitcode: tags of four letters, each with a length and its contents, up to ENDT."""
        data, (start,), (code,) = self._data, *(struct.unpack_from("<Q", self._data, at) for at in (0x18, 0x48))
        (count,) = struct.unpack_from("<I", data, start)
        at = start + 4
        for _ in range(count):
            (length,) = struct.unpack_from("<I", data, at)
            tags, place = dict[bytes, bytes](), at + 4
            while (tag := data[place : place + 4]) != b"ENDT":
                (size,) = struct.unpack_from("<H", data, place + 4)
                tags[tag] = data[place + 6 : place + 6 + size]
                place += 6 + size
            at += length
            first = code + struct.unpack("<3Q", tags[b"OFFT"])[2]
            yield tags[b"NAME"].rstrip(b"\0").decode(), data[first : first + struct.unpack("<Q", tags[b"MDSZ"])[0]]

    def arguments(self, name: str) -> list[Argument]:
        """Return the arguments of a kernel that are memory, in order."""
        text = str(llvm.parse_bitcode(self.functions[name]))
        nodes = dict(re.findall(r"^(!\d+) = (?:distinct )?!\{(.*)\}$", text, re.MULTILINE))
        (kernel,) = re.findall(r"^!air\.kernel = !\{(!\d+)\}$", text, re.MULTILINE)
        rows = (nodes[node] for node in nodes[nodes[kernel].split(", ")[2]].split(", ") if node in nodes)
        return [_argument(row, nodes) for row in rows if '!"air.buffer"' in row]


MEMBER = re.compile(r'i32 (\d+), i32 (\d+), i32 (\d+), !"[^"]*", !"(\w+)"')
"""Offset, bytes of an element, length of an array or 0, and name of a member."""


def _argument(row: str, nodes: dict[str, str]) -> Argument:
    def number(name: str) -> int:
        found = re.search(rf'!"air\.{name}", i32 (\d+)', row)
        assert found, (name, row)
        return int(found[1])

    return Argument(
        *map(number, ("location_index", "address_space", "arg_type_size", "arg_type_align_size")),
        is_written='!"air.read"' not in row,
        members=tuple(
            (name, int(offset), int(nbytes) * max(int(length), 1))
            for node in re.findall(r'!"air.struct_type_info", (!\d+)', row)
            for offset, nbytes, length, name in MEMBER.findall(nodes[node])
        ),
    )


def assertions(kernel: Kernel, apple: Sequence[Argument]) -> str:
    """Return C++ that the compiler rejects if a kernel has other arguments than Apple's."""
    ours = kernel.bindings
    if len(ours) != len(apple):
        return f'static_assert(false, "{len(ours)} arguments, Apple has {len(apple)}");'
    places = [place for place, known in enumerate(kernel.parameters) if known in ours]
    parts = [f"constexpr anymetal::about<decltype(+({kernel.call}))> about;"]
    for i, (known, one) in enumerate(zip(ours, apple, strict=True)):
        wanted = {
            "bytes": (f"about.numbers[{1 + 6 * i}]", one.nbytes),
            "alignment": (f"about.numbers[{2 + 6 * i}]", one.alignment),
            "whether it is written": (f"about.numbers[{3 + 6 * i}]", int(one.is_written)),
            "index": (f"uint({known.value})", one.index),
            "space": (str(int(known.kind == "threadgroup")), int(one.space == THREADGROUP)),
        }
        parts += [f'static_assert({a} == {b}u, "{what}");' for what, (a, b) in wanted.items()]
        parts.append(f"typedef anymetal::parameter<decltype(+({kernel.call})), {places[i]}>::type type{i};")
        for name, offset, nbytes in one.members:
            parts.append(f'static_assert(__builtin_offsetof(type{i}, {name}) == {offset}, "offset of {name}");')
            parts.append(f'static_assert(sizeof(type{i}::{name}) == {nbytes}, "bytes of {name}");')
    return " ".join(parts)


class Compared(Front):
    """The front end of the compiler on assertions about kernels."""

    apple: dict[str, list[Argument]]

    def body(self, kernel: Kernel) -> str:
        """Return what is checked of a kernel."""
        return assertions(kernel, self.apple[kernel.name])


def main() -> None:
    """Compare what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metallib", type=Path, help="a metallib, or a file that contains one")
    parser.add_argument("--mlx", type=Path, metavar="DIR", help="a folder with mlx/backend/metal/kernels")
    parser.add_argument("--torch", type=Path, metavar="DIR", help="torch/include")
    parser.add_argument("--sample", type=int, default=10, metavar="N", help="kernels of each file")
    parser.add_argument("--all", action="store_true", help="compare the arguments of every kernel")
    options: Any = parser.parse_args(
        namespace=argparse.Namespace(ggml=None, candle=None, pytorch=None, files="*.metal")
    )
    if (toolchain := find()) is None:
        raise SystemExit(missing())
    library, found, compared, kinds = Metallib(options.metallib), set[str](), 0, Counter[str]()
    structs = members = 0
    for _, _, file, text, include in sources(options):
        flags = Options.of("4.0", include, False)
        try:
            program = checked(toolchain, text, flags)
        except anymetal.CompileError as error:
            print(f"{file}: {str(error).splitlines()[0]}")
            continue
        common = [name for name in program.kernels if name in library.functions]
        found |= program.kernels.keys()
        values: dict[int | str, int] = {one.name: one.type == "bool" or 1 for one in program.constants}
        chosen = common if options.all else random.Random(1).sample(common, min(options.sample, len(common)))
        front = Compared(toolchain, flags, program, program.values(values))
        front.apple = {name: library.arguments(name) for name in chosen}
        for kernel, why in front.failed([program.kernels[name] for name in chosen]):
            what = re.sub(r"^.*?error: ", "", why.splitlines()[0])
            kinds[what] += 1
            print(f"{file}: {kernel.name}: {what}")
        compared += len(chosen)
        found_members = [sum(len(one.members) for one in arguments) for arguments in front.apple.values()]
        structs, members = structs + sum(map(bool, found_members)), members + sum(found_members)
        print(
            f"{file}: {len(program.kernels)} kernels, {len(common)} in the metallib, {len(chosen)} compared", flush=True
        )
    lacking, more = library.functions.keys() - found, found - library.functions.keys()
    print(f"{len(library.functions)} kernels in the metallib, {len(found)} in the sources, {len(found - more)} in both")
    for where, names in (("metallib", lacking), ("sources", more)):
        print(f"only in the {where}: {len(names)}, such as {', '.join(sorted(names)[:5])}")
    print(
        f"{compared} kernels compared, of them {structs} with structs ({members} members), {kinds.total()} differ: "
        f"{dict(kinds)}"
    )


if __name__ == "__main__":
    main()
