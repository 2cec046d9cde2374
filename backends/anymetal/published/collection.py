"""Collections of published Metal kernels: where their files are, and launches of their kernels on NumPy arrays.

A collection is one module: a class derived from :class:`Collection` whose methods launch kernels as the collection's
own host code does, and functions in ``CASES`` that draw arguments and return what NumPy computes for them. Nothing of a
collection is in the repository: its files are those of an installed package, or of a folder that
``ANYMETAL_COLLECTIONS`` names.
"""

from __future__ import annotations

import fnmatch
import importlib
import os
import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

import anymetal
from anymetal import clang
from anymetal.api import Kernel
from anymetal.clang.findings import Finding
from anymetal.environment import variable
from anymetal.frontend.options import Options
from anymetal.frontend.toolchain import find as find_toolchain

Array: TypeAlias = NDArray[Any]

FOLDERS = "ANYMETAL_COLLECTIONS"
"""The environment variable with folders of unpacked packages and checkouts."""

TYPES = {
    "bool": "?", "char": "i1", "short": "i2", "int": "i4", "long": "i8", "int16_t": "i2", "int32_t": "i4",
    "int64_t": "i8", "uint8_t": "u1", "uint32_t": "u4", "uint64_t": "u8", "size_t": "u8", "float": "f4",
}  # fmt: skip
"""Types of C in structs of arguments."""


class Absent(ValueError):
    """A version of a collection lacks a header, a kernel or a struct that a case launches."""


ABSENT = re.compile(r"'([^'\n]+)' file not found|there is no kernel template `(\w+)`")
NO_CONSTANT = re.compile(r"constants: no function constant (\d+);")


def steps(view: Array, count: int = 0) -> list[int]:
    """Return the strides of a view in elements, filled up with zeros."""
    found = [stride // view.itemsize for stride in view.strides]
    return found + [0] * (count - len(found))


class Collection:
    """Launches of the kernels of a collection, which it finds in a folder."""

    name: ClassVar[str]
    marker: ClassVar[str]
    """The end of the path of a file that shows where the collection is."""
    package: ClassVar[str]
    """What to install or to unpack."""
    version: ClassVar[str] = "3.1"
    """The version of MSL that its host chooses."""

    def __init__(self, marker: Path, *, keeps_on: bool = False, dry: bool = False) -> None:
        """Take the file that :func:`find` returns.

        With ``keeps_on``, a launch in which the checks find an error is repeated without them, for its results. If
        ``dry`` nothing is launched, and the functions that would be are noted.
        """
        self.marker_file, self._keeps_on, self.dry = marker, keeps_on, dry
        self.launches = Counter[str]()
        self.functions = set[str]()
        """Kernel functions and templates of those that were launched."""
        self.reports = list[tuple[str, Finding]]()
        self._compiled: dict[Any, anymetal.Library] = {}

    def launch(
        self,
        source: str | Path,
        kernel: str,
        threads: Sequence[int],
        group: Sequence[int],
        *arguments: Any,
        whole: bool = True,
        local: Mapping[int, int] | None = None,
        constants: Mapping[int | str, Any] | None = None,
        **named: Any,
    ) -> None:
        """Run a kernel under all checks: ``threads`` are threadgroups if ``whole``, as in most hosts.

        ``named`` are textures, samplers, and arguments by the names of their parameters.
        """
        if self.dry:
            self.launches[kernel] += 1
            template = isinstance(source, str) and re.search(r"decltype\((\w+)", source)
            self.functions.add(template[1] if template else self.library(source, {}, False).functions[kernel])
            return

        def run(*, sanitize: bool) -> anymetal.Launch:
            library, found = self._kernel(source, kernel, constants or {}, sanitize)
            self.functions.add(library.functions[kernel])
            self.launches[kernel] += sanitize
            call = found.threadgroups if whole else found
            return call(tuple(threads), tuple(group), *arguments, local=local, **named)

        try:
            self.reports += [(kernel, one) for one in run(sanitize=True).findings]
        except anymetal.LaunchError as error:
            self.reports += [(kernel, one) for one in error.findings]
            if not self._keeps_on:
                raise
            run(sanitize=False)

    def _kernel(
        self, source: str | Path, kernel: str, constants: Mapping[int | str, Any], sanitize: bool
    ) -> tuple[anymetal.Library, Kernel]:
        """Return a compiled source and a kernel of it; a function constant that it lacks is left out if it is false."""
        library = self.library(source, constants, sanitize)
        try:
            return library, library[kernel]
        except anymetal.CompileError as error:
            unknown = NO_CONSTANT.search(str(error))
            if not unknown:
                raise
            if constants[int(unknown[1])]:
                raise Absent(f"function constant {unknown[1]}") from None
            rest = {index: value for index, value in constants.items() if index != int(unknown[1])}
            return self._kernel(source, kernel, rest, sanitize)

    def library(self, source: str | Path, constants: Mapping[int | str, Any], sanitize: bool) -> anymetal.Library:
        """Return a compiled source; raise Absent if this version does not have it."""
        key = source, *sorted(constants.items(), key=str), sanitize
        if key not in self._compiled:
            try:
                self._compiled[key] = anymetal.compile(
                    source, version=self.version, include=self.include(), constants=constants, define=self.define(),
                    sanitize=sanitize, check_order=False, levels={"unread": "off"},  # kernels share lists of parameters
                )  # fmt: skip
            except anymetal.CompileError as error:
                if missing := ABSENT.search(str(error)):
                    raise Absent(missing[1] or missing[2]) from None
                raise
        return self._compiled[key]

    def include(self) -> list[Path]:
        """Return the folders that its sources include files of."""
        return [self.marker_file.parent]

    def files(self) -> list[Path]:
        """Return the files that have kernel functions."""
        return [path for path in sorted(self.marker_file.parent.rglob("*")) if path.suffix in (".metal", ".h")]

    def define(self) -> dict[str, Any]:
        """Return the macros that its host defines."""
        return {}

    def written(self) -> dict[str, tuple[Path, int]]:
        """Return the places where kernel functions are written, by their names: one of a macro may have several."""
        return {
            name: (path, place)
            for path in self.files()
            for name, place in functions(path.read_text(), self._options() if path.suffix == ".metal" else None).items()
        }

    def _options(self) -> Options:
        return Options.of(self.version, self.include(), False, self.define())


FUNCTION = re.compile(r"(?:\[\[\s*kernel\b[^\]]*\]\]|\bkernel)\s+void\s+([\w#]+)\s*\(")
"""The beginning of a kernel function or of a template of one, which an instantiation has not."""


def functions(text: str, options: Options | None) -> dict[str, int]:
    """Return the places in a text where kernel functions are written, by their names: in a macro one place has several.

    Without options macros are not expanded: headers are no sources of their own.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    marked = FUNCTION.sub(lambda one: f"anymetal_{one.start()} {one[0]}", text)
    if options and (toolchain := find_toolchain()):
        _, marked, _ = toolchain.preprocess(marked, options)
    return {one[2]: int(one[1]) for one in re.finditer(r"anymetal_(\d+) " + FUNCTION.pattern, marked)}


def modules() -> dict[str, Any]:
    """Return the collections: the modules of this package that have ``CASES``, by their names."""
    names = [one.name for one in pkgutil.iter_modules([str(Path(__file__).parent)])]
    found = {name: importlib.import_module(f"{__package__}.{name}") for name in names}
    return {name: module for name, module in found.items() if hasattr(module, "CASES")}


def kind_of(module: Any) -> type[Collection]:
    """Return the class of a collection's module."""
    mine = (one for one in vars(module).values() if getattr(one, "__module__", None) == module.__name__)
    return next(one for one in mine if isinstance(one, type) and issubclass(one, Collection))


def lacking(module: Any, opened: Collection, case: str) -> str | None:
    """Return the file that a case needs and the folder of the collection lacks, or ``None``."""
    needed = (file for start, file in getattr(module, "FILES", {}).items() if case.startswith(start))
    return next((file for file in needed if not opened.marker_file.with_name(file).is_file()), None)


def find(kind: type[Collection], folders: Sequence[Path] = ()) -> Path | None:
    """Return the marker file of a collection: in ``folders``, else in those of the environment, else installed."""
    named = [Path(one) for one in (variable(FOLDERS) or "").split(os.pathsep) if one]
    return _find(kind.marker, tuple(folders) or tuple(named), tuple(sys.path))


@cache
def _find(marker: str, folders: tuple[Path, ...], installed: tuple[str, ...]) -> Path | None:
    for folder in folders:
        for path in sorted(folder.rglob(marker.rpartition("/")[2])):
            if path.as_posix().endswith(marker):
                return path
    places = (Path(one) / place / marker for one in installed for place in (".", "mlx/include", "torch/include"))
    return next((path for path in places if path.is_file()), None)


def missing(kind: type[Collection]) -> str | None:
    """Return ``None``, or why the kernels of a collection do not run here and what to do."""
    if find(kind) is None:
        return f"the files of {kind.name} are not here: {kind.package}, in a folder that {FOLDERS} or --checkout names"
    return clang.unavailable()


# --- arguments --------------------------------------------------------------------------------------------------------


def record(fields: Sequence[tuple[str, str, int]], values: Mapping[str, Any]) -> Array:
    """Return a struct of C: its members with name, type and length (0: no array), from values by name."""
    dtype = np.dtype([(name, TYPES[kind], *((length,) if length else ())) for name, kind, length in fields], align=True)
    made = np.zeros(1, dtype)
    for name, _, _ in fields:
        made[0][name] = values[name]
    return made


def members(text: str, name: str) -> list[tuple[str, str, int]]:
    """Return the members of the struct ``name`` in a header: name, type and length of each."""
    found = re.search(rf"struct\s*\{{([^}}]*)\}}\s*{name}\s*;|struct\s+{name}\s*\{{([^}}]*)\}}\s*;", text)
    if found is None:
        raise Absent(f"no struct {name}")
    body = re.sub(r"//[^\n]*", "", found[1] or found[2])
    parts = re.findall(r"(?:const\s+)?(\w+)\s+(\w[^;]*);", body)
    return [
        (one[1], kind, int(one[2] or 0))
        for kind, names in parts
        for one in re.finditer(r"(\w+)\s*(?:\[(\d+)\])?\s*(?:,|$)", names)
    ]


def owner(view: Array) -> tuple[Array, int]:
    """Return the memory from the first byte of the owner of a view to the view's last, and the offset of the view."""
    whole: Any = view
    # Also those of broadcast_to, which are no arrays; the owner of the memory may be no array either.
    while hasattr(getattr(whole, "base", None), "__array_interface__"):
        whole = whole.base
    flat = whole.ravel("K").view(np.uint8)
    last = np.lib.array_utils.byte_bounds(view)[1] - flat.ctypes.data
    return flat[:last], view.ctypes.data - flat.ctypes.data


def at(view: Array, dtype: Any = None) -> Any:
    """Bind a view, with strides of either sign, as memory of ``dtype``; its elements by default."""
    memory, offset = owner(view)
    return anymetal.at(memory.view(dtype or view.dtype), offset)


def blank(shape: Sequence[int], dtype: Any = np.float32) -> Array:
    """Return memory for results: NaN, or the largest integer."""
    dtype = np.dtype(dtype)
    return np.full(shape, np.nan if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind in "iu" else True, dtype)


# --- cases ------------------------------------------------------------------------------------------------------------


def named(*cases: Callable[[Any, Draw], Any]) -> Mapping[str, Case]:
    """Return cases by their names."""
    return {case.__name__: case for case in cases}


@dataclass
class Compared:
    """What kernels and NumPy computed, and how far they may differ."""

    got: Array
    expected: Array
    bound: Any = 0.0

    def difference(self) -> str | None:
        """Return ``None``, or where the two differ."""
        got, expected = np.asarray(self.got, np.float64), np.asarray(self.expected, np.float64)
        if got.shape != expected.shape:
            return f"the shape is {got.shape}, not {expected.shape}"
        with np.errstate(invalid="ignore"):
            bound = np.where(np.isfinite(expected), np.broadcast_to(self.bound, expected.shape), 0)
            same = (got == expected) | (np.isnan(got) & np.isnan(expected)) | (np.abs(got - expected) <= bound)
        if same.all():
            return None
        place = tuple(int(i) for i in np.argwhere(~same)[0])
        return f"element {list(place)} is {got[place]!r}, not {expected[place]!r} within {bound[place]:.3g}"


class Draw:
    """Arguments of a case, drawn by hypothesis."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        """Take ``data.draw`` of ``hypothesis.strategies.data()``."""
        self._draw = draw

    def number(self, low: int, high: int) -> int:
        """Return an integer."""
        from hypothesis import strategies

        return int(self._draw(strategies.integers(low, high)))

    def choice(self, *values: Any) -> Any:
        """Return one of some values."""
        from hypothesis import strategies

        return self._draw(strategies.sampled_from(values))

    def length(self) -> int:
        """Return the length of a row: small, around a multiple of 32, or beyond a threadgroup."""
        return (
            self.number(1, 9) if self.choice(True, False) else self.choice(31, 32, 33, 64, 100, 128, 1023, 1025, 2052)
        )

    def array(self, *shape: int, dtype: Any = np.float32, kind: str | None = None) -> Array:
        """Return numbers: plain ones, small integers with ties, one of them NaN or infinite, or all -infinity."""
        kind = kind or self.choice("plain", "ties", "special")
        random = np.random.default_rng(self.number(0, 2**16))
        if kind == "ties":
            return random.integers(-2, 3, shape).astype(dtype)
        made = random.standard_normal(shape).astype(dtype)
        if kind == "infinite":
            made[...] = -np.inf
        if kind == "special" and made.size:
            made.flat[random.integers(made.size)] = random.choice([np.nan, np.inf, -np.inf])
        return made

    def strided(
        self, *shape: int, dtype: Any = np.float32, kind: str | None = None, rows: bool = True, signed: bool = False
    ) -> Array:
        """Return a view: dense, of axes in another order, every other, repeated, or if ``signed`` reversed.

        With ``rows`` the last axis is contiguous.
        """
        how = self.choice("contiguous", "transposed", "every other", "repeated", *["reversed"] * signed)
        axis = 0 if rows else len(shape) - 1
        if how == "transposed" and (len(shape) > 2 or not rows):
            axes = (1, 0, *range(2, len(shape))) if rows else tuple(reversed(range(len(shape))))
            return self.array(*(shape[i] for i in axes), dtype=dtype, kind=kind).transpose(axes)
        if len(shape) > rows and how == "every other":
            size = [n * (1 + (i == axis)) for i, n in enumerate(shape)]
            return self.array(*size, dtype=dtype, kind=kind)[(*[slice(None)] * axis, slice(None, None, 2))]
        if len(shape) > rows and how == "repeated":
            return np.broadcast_to(self.array(1, *shape[1:], dtype=dtype, kind=kind), shape)
        return self.array(*shape, dtype=dtype, kind=kind)[:: -1 if how == "reversed" else 1]


Case: TypeAlias = Callable[[Any, Draw], "Compared | Sequence[Compared]"]
"""``case(collection, draw)`` draws arguments, launches kernels, and returns what is compared."""


@dataclass
class Outcome:
    """What became of a case."""

    examples: int = 0
    difference: str | None = None
    kernels: frozenset[str] = frozenset()
    reports: list[tuple[str, Finding]] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)
    """What this version lacks: draws that need it are left out."""


def examine(
    collection: Collection, case: Case, examples: int, seed: int | None = None, *, shrink: bool = True
) -> Outcome:
    """Run a case on drawn arguments; with ``shrink`` smaller ones are searched for if the results differ.

    Another ``seed`` draws others.
    """
    import hypothesis
    from hypothesis import HealthCheck, Phase, given, settings, strategies

    outcome = Outcome()
    before, reported = Counter(collection.launches), len(collection.reports)

    def run(data: Any) -> None:
        outcome.examples += 1
        try:
            with np.errstate(all="ignore"):  # cases have NaN and infinities
                compared = case(collection, Draw(data.draw))
        except (Absent, FileNotFoundError) as error:
            outcome.absent.add(getattr(error, "filename", None) or str(error))
            return
        for one in _several(compared):
            if not collection.dry and (difference := one.difference()):
                raise AssertionError(difference)

    quiet = settings(
        max_examples=examples, deadline=None, derandomize=seed is None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, *[Phase.shrink] * shrink], print_blob=False,
        report_multiple_bugs=False,
    )  # fmt: skip
    try:
        quiet(hypothesis.seed(seed)(given(strategies.data())(run)))()
    except (AssertionError, anymetal.LaunchError, anymetal.CompileError) as error:
        kinds = sorted({one.kind for one in getattr(error, "findings", ()) if one.level == "error"})
        first = "".join(f"{kind}: " for kind in kinds) + str(error).splitlines()[0]
        outcome.difference = "\n".join([first, *getattr(error, "__notes__", [])])
    outcome.kernels = frozenset(collection.launches - before)
    outcome.reports = collection.reports[reported:]
    return outcome


def drawn(module: Any, opened: Collection, examples: int) -> dict[str, dict[str, set[Any]]]:
    """Return the numbers, flags and names that each case has in variables after a draw, without launches.

    A case names its variables as the host names its parameters.
    """
    found: dict[str, dict[str, set[Any]]] = {}
    for name, case in module.CASES.items():
        if lacking(module, opened, name) is None:
            values = found.setdefault(name, {})

            def note(frame: Any, event: str, _: object, code: Any = case.__code__, values: Any = values) -> None:
                if event == "return" and frame.f_code is code:
                    for key, value in frame.f_locals.items():
                        if isinstance(value, (bool, int, str)):
                            values.setdefault(key, set()).add(value)
                        elif isinstance(value, type) and issubclass(value, np.generic):
                            values.setdefault(key, set()).add(value.__name__)

            before = sys.getprofile()
            sys.setprofile(note)
            try:
                examine(opened, case, examples)
            finally:
                sys.setprofile(before)
    return found


def shown(values: set[Any]) -> str:
    """Return values as text: up to eight of them, or of more numbers the ends and how many there are.

    Texts that a case composes, as the names of kernels, are left out, and flags that it does not draw.
    """
    if values in ({False}, {True}) or any(
        isinstance(one, str) and not re.fullmatch(r"\w{0,16}", one) for one in values
    ):
        return ""
    known = sorted(values, key=lambda one: (isinstance(one, str), one))
    if len(known) > 8 and not isinstance(known[-1], str):
        return f"{known[0]:,} to {known[-1]:,} ({len(known)} values)"
    if len(known) > 8:
        return f"{len(known)} names"
    return ", ".join(f"{one:,}" if type(one) is int else str(one) or "none" for one in known)


def kernels_to_run(module: Any, opened: Collection, rounds: int) -> set[str]:
    """Return the functions that cases and findings of a collection launch, by some draws, without launching them.

    A case is drawn again while a function is missing in one of the files that it launched functions of.
    """
    cases = {**module.CASES, **{name: case for name, (case, _) in module.FINDINGS.items()}}
    written, reached, files = opened.written(), set[str](), dict[str, set[Path]]()
    wanted = written.keys() - without_launch(module, opened).keys()
    for seed in range(rounds):
        for name, case in cases.items():
            left = {written[one][0] for one in wanted - reached}
            if left & files.get(name, left) and lacking(module, opened, name) is None:
                opened.functions = set()
                examine(opened, case, 12, seed)
                reached |= opened.functions
                files.setdefault(name, set()).update(written[one][0] for one in opened.functions & written.keys())
    return reached


def without_launch(module: Any, opened: Collection) -> dict[str, str]:
    """Return why functions are not run, by their names."""
    reasons = {one: why for pattern, why in module.NOT_RUN.items() for one in fnmatch.filter(opened.written(), pattern)}
    return {name: reasons[name] for name in opened.written() if name in reasons}


def unseen(reports: Sequence[tuple[str, Finding]], reviewed: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """Yield reports that ``REVIEWED`` of a collection does not have."""
    for kernel, one in reports:
        if not any(_is_of(entry, kernel, one.kind) for entry in reviewed):
            yield f"{kernel}: {one}"


def unused(reviewed: Mapping[tuple[str, str], str], seen: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the entries of ``REVIEWED`` that no report has, of which the kernel and the kind are given."""
    return [entry for entry in reviewed if not any(_is_of(entry, *one) for one in seen)]


def _is_of(entry: tuple[str, str], kernel: str, kind: str) -> bool:
    return kernel.startswith(entry[0]) and kind == entry[1]


def _several(compared: Compared | Sequence[Compared]) -> Iterator[Compared]:
    yield from [compared] if isinstance(compared, Compared) else compared
