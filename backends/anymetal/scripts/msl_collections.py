"""Compile the Metal kernels of published collections, and write a table of what compiled and why the rest did not.

    python scripts/msl_collections.py --mlx mlx --ggml ggml/src/ggml-metal/ggml-metal.metal --candle candle --torch

A collection is a folder or file that the user has: the repository of MLX (its wheel has no `.metal` files), a
`ggml-metal.metal` with the files around it, a folder of candle, the headers of an installed PyTorch. Nothing of them is
copied. Function constants have the value 1.

    python scripts/msl_collections.py --packages packages --checkout pytorch --checkout candle

downloads two small packages of kernels into a folder, or takes what is there, and runs the cases of
``published``: kernels launched as their hosts do, on drawn arguments, under all checks and against NumPy.
Folders of checkouts come before the packages.

With `--launch`, compiled kernels of one result, arrays of numbers and at most one length run under all checks, by one
threadgroup; errors of the checks are printed: the kernel's, or those of a launch that its host does not make.

The column "accepted" counts every kernel: all instantiations of a file go through the front end of the compiler in one
run, without code; where it reports errors, halves of the kernels, until each that fails is known with its cause. The
column "compiled" counts a sample of each file, spread evenly, compiled to code, or with `--all` every kernel.
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

import anymetal
from anymetal.clang.findings import Finding
from anymetal.frontend.kernels import Kernel, supported
from anymetal.frontend.options import Options
from anymetal.frontend.program import Program, checked
from anymetal.frontend.strict import diagnostics
from anymetal.frontend.toolchain import Toolchain, find, missing
from published.collection import functions

TORCH = "#include <metal_stdlib>\n#include <c10/metal/utils.h>\nusing namespace metal;\n#include <{}>\n"
"""A source of PyTorch that includes a header: its headers rely on what is in front of them."""


COLUMNS = ("functions", "declared", "accepted", "tried", "compiled", "launched", "of functions", "reported", "seconds")
LENGTHS = (1, 31, 33, 1000)
"""Threads and elements of a launch."""
MOST_AT_ONCE = 400
"""Kernels of a run of the front end."""


@dataclass
class Count:
    """What became of the kernels of a file, or of the files of a collection."""

    collection: str
    name: str
    kernels: Counter[str] = field(default_factory=Counter)
    """Numbers of those in the columns, and seconds of processor time: few if in the cache."""
    failed: Counter[str] = field(default_factory=Counter)
    """Kernels by cause, and files that the front end rejects as a whole."""

    def __str__(self) -> str:
        causes = "; ".join(f"{count} {cause}" for cause, count in self.failed.most_common()).replace("|", "¦")
        numbers = " | ".join(f"{self.kernels[what]:,}" for what in COLUMNS)
        return f"| {self.collection} | {self.name} | {numbers} | {causes or '-'} |"


def sources(options: argparse.Namespace) -> Iterator[tuple[str, Path, str, str, list[Path]]]:
    """Yield collection, its place, name, text and folders to include of each source."""
    kernels = options.mlx / "mlx/backend/metal/kernels" if options.mlx else None
    places = ("MLX", kernels, options.mlx), ("ggml", options.ggml, None), ("candle", options.candle, None)
    for collection, place, root in places:
        for path in sorted(place.rglob(options.files)) if place and place.is_dir() else [place] if place else []:
            include = [*([root] if root else path.parents[1:3]), path.parent]
            yield collection, path.parent, path.name, path.read_text(), include
    if options.pytorch:
        root = torch() if options.torch in (None, Path()) else options.torch
        for path in sorted((options.pytorch / "aten/src/ATen/native/mps/kernels").glob(options.files)):
            yield "PyTorch", path.parent, path.name, path.read_text(), [options.pytorch / "aten/src", root]
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


def cause(text: str) -> str:
    """Return the first message of an error, without its place."""
    return re.sub(r"^.*?error: ", "", text.splitlines()[0])[:100]


class Front:
    """The front end of the compiler on all kernels of a source."""

    def __init__(self, toolchain: Toolchain, options: Options, program: Program, values: dict[str, str]) -> None:
        """Take a source and values of its function constants."""
        self._run, self._program, self._values = lambda text: toolchain.parse(text, options), program, values

    def failed(self, kernels: Sequence[Kernel]) -> Iterator[tuple[Kernel, str]]:
        """Yield the kernels that it rejects, with their causes."""
        known = list[Kernel]()
        for kernel in kernels:
            try:
                supported(kernel)
                known.append(kernel)
            except anymetal.CompileError as error:
                yield kernel, str(error)
        for first in range(0, len(known), MOST_AT_ONCE):
            yield from self._failed(known[first : first + MOST_AT_ONCE])

    def body(self, kernel: Kernel) -> str:
        """Return C++ that needs a kernel."""
        return f"{kernel.call}({kernel.arguments()});"

    def _failed(self, kernels: Sequence[Kernel]) -> Iterator[tuple[Kernel, str]]:
        calls = {
            kernel: f'extern "C" [[clang::sycl_external]] void anymetal_call_{i}(const anymetal_group *g, uint t) '
            f"{{ {self.body(kernel)} }}"
            for i, kernel in enumerate(kernels)
        }
        errors = self._run(self._program.with_calls(calls, self._values))
        if errors and len(kernels) == 1:
            yield kernels[0], (diagnostics(errors) or [errors])[0]
        elif errors:
            half = len(kernels) // 2
            yield from self._failed(kernels[:half])
            yield from self._failed(kernels[half:])


def launched(kernel: anymetal.Kernel, length: int) -> Sequence[Finding] | None:
    """Launch a kernel of one result, arrays of numbers and at most one length; return reports, None of others."""
    arguments = kernel.describe()["arguments"]
    is_number = ["&" in one["type"] for one in arguments]
    numbers = [one for one, is_one in zip(arguments, is_number, strict=True) if is_one]
    if any(one["kind"] != "buffer" or one["dtype"] in (None, "bfloat16") for one in arguments) or len(numbers) > 1:
        return None
    if sum(one["written"] for one in arguments) != 1 or any(np.dtype(one["dtype"]).kind not in "iu" for one in numbers):
        return None
    random, arrays = np.random.default_rng(0), []
    for one, number in zip(arguments, is_number, strict=True):
        kind = np.dtype(one["dtype"])
        elements = random.integers(0, 9, length * one["bytes"] // kind.itemsize)  # of vectors several
        arrays.append(kind.type(length) if number else elements.astype(kind))
    arrays = [anymetal.undefined(a) if one["written"] else a for one, a in zip(arguments, arrays, strict=True)]
    try:
        return kernel(length, length, *arrays).findings
    except anymetal.LaunchError as error:
        return error.findings


def count(found: Count, text: str, include: list[Path], options: argparse.Namespace, toolchain: Toolchain) -> Count:
    """Compile kernels of a source."""
    start = sum(os.times()[:4])
    define = dict(macro.partition("=")[::2] for macro in options.define)
    flags = Options.of(options.version, include, False, define)
    try:
        program = checked(toolchain, text, flags)
    except anymetal.CompileError as error:
        if "has no kernel function" not in str(error):
            found.failed[f"file: {cause(str(error))}"] += 1
        return found
    values: dict[int | str, int] = {one.name: one.type == "bool" or 1 for one in program.constants}
    front = Front(toolchain, flags, program, program.values(values))
    rejected = {
        kernel.name for kernel, why in front.failed(list(program.kernels.values())) if note(found, kernel.name, why)
    }
    names = [name for name in program.kernels if name not in rejected]
    number = len(names) if options.all else min(options.sample, len(names))
    first = random.Random(options.seed or 1).randrange(len(names) or 1)
    # Evenly: neighbours are instantiations of one template.
    chosen = [names[(k * len(names) + first) // number] for k in range(number)]

    def compiled(share: Sequence[str]) -> Iterator[tuple[str, str, list[Sequence[Finding] | None]]]:
        """Yield the kernels of a share, with the reason for those that are not compiled, and reports of launches."""
        library = anymetal.compile(
            text, version=options.version, include=include, constants=values, define=define,
            sanitize=not options.bare, levels={"unread": "off"},
        )  # fmt: skip
        for name in share:
            try:
                kernel = library[name]
                yield name, "", [launched(kernel, n) for n in LENGTHS] if options.launch else []
            except (anymetal.CompileError, anymetal.LaunchError) as error:
                yield name, str(error), []

    written, launched_of = functions(text, flags), set[int | str]()
    with ThreadPoolExecutor(options.jobs) as pool:  # a library compiles one kernel at a time
        shares = pool.map(lambda k: list(compiled(chosen[k :: options.jobs])), range(options.jobs))
        for name, why, launches in chain.from_iterable(shares):
            found.kernels["compiled"] += not (why and note(found, name, why))
            if any(one is not None for one in launches):
                found.kernels["launched"] += 1
                launched_of.add(written.get(function := program.kernels[name].function, function))
            reports = {str(one) for several in launches for one in several or () if one.level == "error"}
            found.kernels["reported"] += bool(reports)
            for one in sorted(reports):
                print(f"{found.name}: {name}: {one}", file=sys.stderr)
    all_of = {written.get(kernel.function, kernel.function) for kernel in program.kernels.values()}
    found.kernels.update({"functions": len(all_of), "of functions": len(launched_of)})
    found.kernels.update(declared=len(program.kernels), accepted=len(names), tried=len(chosen))
    found.kernels["seconds"] = round(sum(os.times()[:4]) - start)
    return found


def note(found: Count, name: str, why: str) -> bool:
    """Count a kernel that failed."""
    found.failed[cause(why)] += 1
    print(f"{found.name}: {name}: {why[:1000]}", file=sys.stderr)
    return True


PACKAGES = (
    ("libggml-python", "libggml_python-0.20.2.post1.tar.gz", r"ggml-metal/.*\.(metal|h)$|ggml-common\.h$"),
    ("mlx-cpu", "mlx_cpu-0.32.4-py3-none-manylinux_2_35_x86_64.whl", r"metal/kernels/"),
)
RUN = (
    "| collection | place | functions | of them run | kernels | run | agree with NumPy | reports by kind | "
    "not looked at | known to differ |"
)


def declared_in(path: Path, include: list[Path]) -> int:
    """Return the number of kernels of a file, which may have none."""
    try:
        return len(list(anymetal.compile(path, include=include, version="3.2")))
    except anymetal.CompileError as error:
        if "has no kernel function" not in str(error):
            raise
        return 0


def ran(folders: Sequence[Path], examples: int, seed: int | None = None) -> Iterator[str]:
    """Run the cases of the collections in some folders, else installed; yield the rows of a table."""
    from published import collection
    from published.collection import examine, kind_of, lacking, modules, unseen

    for module in modules().values():
        kind = kind_of(module)
        marker = collection.find(kind, folders)
        if marker is None:
            yield f"| {kind.name} | not here: {kind.package} {'| ' * (RUN.count('|') - 3)}|"
            continue
        opened = kind(marker, keeps_on=True)
        run, agree, kinds, new, known = set[str](), set[str](), set[tuple[str, str]](), set[str](), list[str]()
        skipped = [name for name in module.CASES if lacking(module, opened, name)]
        for name in (name for name in module.CASES if name not in skipped):
            outcome = examine(opened, module.CASES[name], examples, seed)
            run |= outcome.kernels
            agree |= outcome.kernels if outcome.difference is None else set()
            kinds |= {(kernel, one.kind) for kernel, one in outcome.reports}
            new |= set(unseen(outcome.reports, module.REVIEWED))
            if outcome.difference is not None:
                print(f"{kind.name}: {name}: {outcome.difference}", file=sys.stderr)
            if outcome.absent:
                print(f"{kind.name}: {name}: not in this version: {', '.join(sorted(outcome.absent))}", file=sys.stderr)
        for one in sorted(new):
            print(f"{kind.name}: {one}", file=sys.stderr)
        for name, (case, _) in module.FINDINGS.items():
            outcome = None if lacking(module, opened, name) else examine(opened, case, examples)
            if outcome and (outcome.difference is not None or list(unseen(outcome.reports, module.REVIEWED))):
                known.append(name)
        files = [path for path in opened.files() if path.suffix == ".metal" and kind.name != "MLX"]
        declared = sum(declared_in(path, opened.include()) for path in files)
        reports = Counter(what for _, what in kinds)
        shown = ", ".join(f"{count} {what}" for what, count in sorted(reports.items())) or "-"
        written = opened.written()
        reached = {written[name] for name in opened.functions & written.keys()}
        yield (
            f"| {kind.name} | {marker.parent} | {len(set(written.values()))} | {len(reached)} | "
            f"{declared or 'templates'} | {len(run)} | {len(agree)} | {shown} | {len(new)} | "
            f"{'; '.join(known) or '-'} |"
        )
        for one in sorted(written.keys() - opened.functions if hasattr(module, "NOT_RUN") else ()):
            why = collection.without_launch(module, opened).get(one, "not by these draws")
            print(f"{kind.name}: {one} was not run: {why}", file=sys.stderr)
        for start, what in () if skipped else collection.unused(module.REVIEWED, kinds):
            print(f"{kind.name}: REVIEWED: no kernel {start}* had a report of the kind {what}", file=sys.stderr)


def draws(folders: Sequence[Path], examples: int) -> Iterator[str]:
    """Yield a table of the values that cases draw, and of what hosts pass."""
    from published import collection
    from published.collection import drawn, kind_of, modules, shown

    yield "| collection | case | what is drawn | what the host passes, by version |\n| - | - | - | - |"
    for module in modules().values():
        kind = kind_of(module)
        marker, rules = collection.find(kind, folders), getattr(module, "HOST", {})
        found = drawn(module, kind(marker, dry=True), examples) if marker else {case: {} for case in rules}
        for case, values in found.items():
            parts = "; ".join(f"{name}: {what}" for name, known in values.items() if (what := shown(known)))
            yield f"| {kind.name} | `{case}` | {parts or 'not here'} | {rules.get(case, 'not stated')} |"


def packages(
    folder: Path | None, checkouts: Sequence[Path], examples: int, seed: int | None, *, with_draws: bool = False
) -> None:
    """Download the small packages that are not in a folder, and print the table."""
    from published.releases import Release

    for package, file, wanted in PACKAGES if folder else ():
        if not (folder / file).is_dir():
            Release(package, file, folder).unpack(wanted)
    if with_draws:
        for row in draws([*checkouts, *([folder] if folder else [])], examples):
            print(row, flush=True)
        return
    print(RUN + "\n" + "| - " * (RUN.count("|") - 1) + "|")
    for row in ran([*checkouts, *([folder] if folder else [])], examples, seed):
        print(row, flush=True)


def main() -> None:
    """Compile the collections that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlx", type=Path, metavar="DIR", help="a folder with mlx/backend/metal/kernels")
    parser.add_argument("--ggml", type=Path, metavar="PATH", help="ggml-metal.metal, or ggml-metal/kernels")
    parser.add_argument("--candle", type=Path, metavar="DIR", help="a folder with .metal files")
    parser.add_argument("--torch", type=Path, metavar="DIR", nargs="?", const=Path(), help="torch/include")
    parser.add_argument("--pytorch", type=Path, metavar="DIR", help="a checkout of PyTorch: aten/src/ATen/native/mps")
    parser.add_argument("--packages", type=Path, metavar="DIR", help="run kernels of packages or checkouts in a folder")
    parser.add_argument("--checkout", type=Path, metavar="DIR", action="append", default=[], help="and of a checkout")
    parser.add_argument("--examples", type=int, default=8, metavar="N", help="of each case that runs")
    parser.add_argument("--draws", action="store_true", help="list what these cases draw, without launches")
    parser.add_argument("--version", default="3.2", help="the version of MSL")
    parser.add_argument("-D", "--define", action="append", default=[], metavar="NAME=VALUE", help="a macro")
    parser.add_argument("--files", default="*.metal", metavar="PATTERN", help="files of a folder")
    parser.add_argument("--bare", action="store_true", help="compile the sample without checks")
    parser.add_argument("--sample", type=int, default=4, metavar="N", help="kernels of each file")
    parser.add_argument("--seed", type=int, help="of the sample, and of the arguments and instantiations of cases")
    parser.add_argument("--launch", action="store_true", help="run those of them that need arrays and a length only")
    parser.add_argument("--all", action="store_true", help="compile every kernel")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="kernels that are compiled at once")
    parser.add_argument("--json", action="store_true", help="write JSON")
    options = parser.parse_args()
    if (toolchain := find()) is None:
        raise SystemExit(missing())
    if options.packages or options.checkout:
        packages(options.packages, options.checkout, options.examples, options.seed, with_draws=options.draws)
        return
    rows, sums = [], dict[str, Count]()
    if not options.json:
        print(
            f"| collection | file or version | {' | '.join(COLUMNS)} | failed |\n" + "| - " * (len(COLUMNS) + 3) + "|"
        )
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
