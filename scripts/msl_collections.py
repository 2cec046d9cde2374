"""Compile the Metal kernels of published collections, and write a table of what compiled and why the rest did not.

    python scripts/msl_collections.py --mlx mlx --ggml ggml/src/ggml-metal/ggml-metal.metal --candle candle --torch

A collection is a folder or file that the user has: the repository of MLX (its wheel has no `.metal` files), a
`ggml-metal.metal` with the files around it, a folder of candle, the headers of an installed PyTorch. Nothing of them is
copied. Of each file a random sample of kernels is compiled with checks, or with `--all` every kernel. Function
constants have the value 1. Tensor operations, which no runtime here has, are a cause of their own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import anymetal
from anymetal.frontend.options import Options
from anymetal.frontend.program import checked
from anymetal.frontend.toolchain import Toolchain, find, missing

TORCH = "#include <metal_stdlib>\n#include <c10/metal/utils.h>\nusing namespace metal;\n#include <{}>\n"
"""A source of PyTorch that includes a header: its headers rely on what is in front of them."""


@dataclass
class Count:
    """What became of the kernels of a file, or of the files of a collection."""

    collection: str
    name: str
    kernels: Counter[str] = field(default_factory=Counter)
    """Numbers of those declared, tried and compiled, and seconds of processor time: few for what is in the cache."""
    failed: Counter[str] = field(default_factory=Counter)
    """Kernels by cause, and files that the front end rejects as a whole."""

    def __str__(self) -> str:
        causes = "; ".join(f"{count} {cause}" for cause, count in self.failed.most_common()).replace("|", "¦")
        numbers = " | ".join(f"{self.kernels[what]:,}" for what in ("declared", "tried", "compiled", "seconds"))
        return f"| {self.collection} | {self.name} | {numbers} | {causes or '-'} |"


def sources(options: argparse.Namespace) -> Iterator[tuple[str, Path, str, str, list[Path]]]:
    """Yield collection, its place, name, text and folders to include of each source."""
    kernels = options.mlx / "mlx/backend/metal/kernels" if options.mlx else None
    places = ("MLX", kernels, options.mlx), ("ggml", options.ggml, None), ("candle", options.candle, None)
    for collection, place, root in places:
        for path in sorted(place.rglob("*.metal")) if place and place.is_dir() else [place] if place else []:
            yield collection, path.parent, path.name, path.read_text(), [root or path.parent.parent, path.parent]
    if options.torch:
        root = torch() if options.torch == Path() else options.torch
        for path in (
            *sorted((root / "c10/metal").glob("*.h")),
            *sorted((root / "ATen/native/mps/kernels").glob("*.h")),
        ):
            yield "PyTorch", root, path.name, TORCH.format(path.relative_to(root)), [root]


def torch() -> Path:
    """Return the folder of the headers of the installed PyTorch."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise SystemExit("--torch: PyTorch is not installed; pass the folder of its headers, torch/include")
    return Path(found.origin).with_name("include")


def version(place: Path) -> str:
    """Return the version that the package around a file states."""
    for folder in (place, *place.resolve().parents):
        for name in ("PKG-INFO", "*.dist-info/METADATA", "Cargo.toml", "version.py"):
            for about in folder.glob(name):
                if stated := re.search(r"""(?mi)^(?:__)?version(?:__)?\s*[:=]\s*["']?([\w.+]+)""", about.read_text()):
                    return stated[1]
    return "unknown"


def cause(error: anymetal.CompileError) -> str:
    """Return the first message of an error, without its place."""
    text = str(error)
    if re.search("MetalPerformancePrimitives|metal_tensor|metal_cooperative_tensor", text):
        return "tensor operations"
    return re.sub(r"^.*?error: ", "", text.splitlines()[0])[:100]


def count(found: Count, text: str, include: list[Path], options: argparse.Namespace, toolchain: Toolchain) -> Count:
    """Compile kernels of a source."""
    start = sum(os.times()[:4])
    try:
        program = checked(toolchain, text, Options.of(options.version, include, False))
    except anymetal.CompileError as error:
        if "has no kernel function" not in str(error):
            found.failed[f"file: {cause(error)}"] += 1
        return found
    values: dict[int | str, int] = {one.name: one.type == "bool" or 1 for one in program.constants}
    library = anymetal.compile(text, version=options.version, include=include, constants=values)
    names = list(program.kernels)
    chosen = names if options.all else random.Random(options.seed).sample(names, min(options.sample, len(names)))
    for name in chosen:
        try:
            library[name]
        except anymetal.CompileError as error:
            found.failed[cause(error)] += 1
            print(f"{found.name}: {name}: {str(error)[:1000]}", file=sys.stderr)
    found.kernels.update(declared=len(names), tried=len(chosen), compiled=len(chosen) - found.failed.total())
    found.kernels["seconds"] = round(sum(os.times()[:4]) - start)
    return found


def main() -> None:
    """Compile the collections that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlx", type=Path, metavar="DIR", help="a folder with mlx/backend/metal/kernels")
    parser.add_argument("--ggml", type=Path, metavar="FILE", help="ggml-metal.metal")
    parser.add_argument("--candle", type=Path, metavar="DIR", help="a folder with .metal files")
    parser.add_argument("--torch", type=Path, metavar="DIR", nargs="?", const=Path(), help="torch/include")
    parser.add_argument("--version", default="3.2", help="the version of MSL")
    parser.add_argument("--sample", type=int, default=4, metavar="N", help="kernels of each file")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--all", action="store_true", help="compile every kernel")
    parser.add_argument("--json", action="store_true", help="write JSON")
    options = parser.parse_args()
    if (toolchain := find()) is None:
        raise SystemExit(missing())
    rows, sums = [], dict[str, Count]()
    if not options.json:
        print("| collection | file or version | kernels | tried | compiled | seconds | failed |\n" + "| - " * 7 + "|")
    for collection, place, name, text, include in sources(options):
        rows.append(count(Count(collection, name), text, include, options, toolchain))
        sums.setdefault(collection, Count(f"**{collection}**", version(place)))
        sums[collection].kernels.update(rows[-1].kernels)
        sums[collection].failed.update(rows[-1].failed)
        if not options.json and (rows[-1].kernels or rows[-1].failed):
            print(rows[-1], flush=True)
    if options.json:
        json.dump({"collections": list(sums.values()), "files": rows}, sys.stdout, default=vars)
    else:
        print(*sums.values(), sep="\n")


if __name__ == "__main__":
    main()
