"""The command ``anymetal``, also ``python -m anymetal``: list the kernels of a file, or run one under all checks."""

from __future__ import annotations

import contextlib
import json as jsonlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from typer.core import TyperCommand, TyperGroup, TyperOption

from . import metalcompute, pictures
from .api import RUNTIMES, Kernel, Library, compile, refuse
from .arguments import EQUIVALENT, as_number
from .clang.device import launch_seconds
from .clang.findings import LEVELS, Finding, levels_of, suppressions
from .clang.lines import Place
from .frontend.lexer import NAME
from .frontend.options import VERSIONS, Options
from .frontend.signature import undefined
from .interface import CompileError, LaunchError
from .sarif import sarif as sarif_log

DTYPES = (
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
    "float16",
    "float32",
    "bfloat16",
)
"""Dtypes of numbers in options."""
QUOTED = re.compile(r"'(\w+)'")
WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    ("check_order=False", "--one-order"),
    (r"constants=\{.*?\}", lambda one: " ".join(f"--constant {name}=VALUE" for name in QUOTED.findall(one[0]))),
    (r"local=\{(\d+): n\}", r"--threadgroup \1:BYTES"),
    ('runtime="clang"', "--runtime clang"),
    ("ANYMETAL_LAUNCH_SECONDS", "--seconds"),
    (r"\bsanitize=False", "--unchecked"),
    (r"\(in schedule (\d+)", r"(in --schedule \1"),
)
"""Options of the command for what messages name in Python."""
BUFFER = "NAME:DTYPE:LENGTH[=VALUE], FILE.npy or NAME=FILE.npy; an index may stand for the name, INDEX:FILE.npy"
BYTES = "NAME:DTYPE=VALUE[,VALUE...]; an index may stand for the name"


class Commands(TyperGroup):
    """The command without a name, which a file follows, and those with one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the command before its arguments."""
        return list(super().parse_args(ctx, args if args[:1] == ["check"] else ["msl", *args]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; the value of an option has its name in the help text, in place of a type of Python."""
        command = super().get_command(ctx, cmd_name)
        for one in () if command is None else command.params:
            if isinstance(one, TyperOption) and one.metavar is None and not one.is_flag:
                one.metavar = str(one.name).upper()
        return command


class Nameless(TyperCommand):
    """A command whose usage has no name of its own."""

    def get_usage(self, ctx: Any) -> str:
        """Return the line of the usage."""
        return super().get_usage(ctx).replace(" msl [OPTIONS]", " [OPTIONS]")


app = typer.Typer(
    cls=Commands,
    name="msl",
    help="List the kernels of an MSL file with their arguments, run one with checks on the CPU, or compile all.",
    add_completion=False,
    rich_markup_mode=None,
)


class OptionError(ValueError):
    """An option of the command is illegal."""


def worded(text: str, file: Path) -> str:
    """Return a message with the path of the file, and options of the command for what it names in Python."""
    for pattern, option in WORDS:
        text = re.sub(pattern, option, text)
    return text.replace(NAME, str(file))


FileArgument = Annotated[Path, typer.Argument(help="A file with Metal Shading Language.")]
ConstantOption = Annotated[
    list[str] | None, typer.Option(help="A function constant: INDEX=VALUE or NAME=VALUE[,VALUE...].")
]
IncludeOption = Annotated[list[Path] | None, typer.Option(help="A folder of included files, before that of FILE.")]
DefineOption = Annotated[list[str] | None, typer.Option("-D", "--define", help="A macro: NAME or NAME=VALUE.")]
MetalOption = Annotated[str, typer.Option(help=f"The version of MSL: {', '.join(VERSIONS)}.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FastMathOption = Annotated[
    bool, typer.Option("--fast-math", help="NaN, infinity, signed zeros and the order of operations may be ignored.")
]
LevelOption = Annotated[
    list[str] | None, typer.Option(help=f"KIND=LEVEL of findings: {', '.join(LEVELS)}, such as overflow=warning.")
]
SuppressOption = Annotated[Path | None, typer.Option(help="A TOML file of accepted findings: tables [[suppress]].")]
SarifOption = Annotated[Path | None, typer.Option(help="Write the findings to this file as SARIF.")]


@dataclass(frozen=True)
class Argument:
    """What an option binds to a buffer."""

    option: str
    """The option with its value."""
    name: str
    """A name, or an index in digits."""
    value: Any
    """An array, a NumPy scalar, or bytes."""
    origin: str
    dtype: str
    is_undefined: bool = False

    def summary(self, declared: str | None) -> dict[str, Any]:
        """Return shape, dtype and statistics as JSON data; those of numbers that are not NaN."""
        array = np.frombuffer(self.value, np.uint8) if isinstance(self.value, bytes) else np.asarray(self.value)
        dtype = declared or self.dtype or str(array.dtype)
        numbers = array.reshape(-1)
        if dtype == "bfloat16":
            numbers = (numbers.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        about: dict[str, Any] = {"dtype": dtype, "shape": list(array.shape)}
        if numbers.dtype.kind not in "biuf":
            return about | {"min": None, "max": None, "mean": None, "nans": 0}
        known = numbers[~np.isnan(numbers)]
        found = (known.min(), known.max(), known.mean(dtype=np.float64)) if known.size else (None, None, None)
        about |= zip(("min", "max", "mean"), map(_number, found), strict=True)
        return about | {"nans": numbers.size - known.size}


def _number(value: Any) -> int | float | str | None:
    """Return a number of NumPy as JSON data, which has no infinities."""
    if value is None or isinstance(value, np.integer):
        return value if value is None else int(value)
    return float(value) if math.isfinite(value) else str(float(value))


@app.command(cls=Nameless)
def msl(
    file: FileArgument,
    *,
    kernel: Annotated[str | None, typer.Option(help="Run this kernel; without it, list the kernels.")] = None,
    grid: Annotated[str | None, typer.Option(help="Threads of the grid: 1000, or 64,64.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Threads of a threadgroup; by default a row of as many as the kernel allows.")
    ] = None,
    buffer: Annotated[
        list[str] | None, typer.Option(help=f"{BUFFER}. New buffers are zero, or VALUE, which may be undefined.")
    ] = None,
    bytes_: Annotated[list[str] | None, typer.Option("--bytes", help=f"{BYTES}.")] = None,
    texture: Annotated[list[str] | None, typer.Option(help=f"{pictures.TEXTURE}.")] = None,
    sampler: Annotated[list[str] | None, typer.Option(help=f"{pictures.SAMPLER}.")] = None,
    constant: ConstantOption = None,
    threadgroup: Annotated[
        list[str] | None, typer.Option(help="INDEX:BYTES of threadgroup memory that is a parameter, multiples of 16.")
    ] = None,
    include: IncludeOption = None,
    define: DefineOption = None,
    metal: MetalOption = "3.1",
    runtime: Annotated[
        str, typer.Option(help=f"What runs the kernel: {', '.join(RUNTIMES)}. Only clang checks it.")
    ] = "clang",
    save: Annotated[
        Path | None, typer.Option(help="A folder: write each buffer that the kernel may write as NAME.npy.")
    ] = None,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Run in a process of its own, with limits of time and memory.")
    ] = False,
    seconds: Annotated[float | None, typer.Option(help="Limit of the processor time of the launch.")] = None,
    json: JsonOption = False,
    one_order: Annotated[
        bool, typer.Option("--one-order", help="Run once: the result may depend on the order of threads.")
    ] = False,
    fast_math: FastMathOption = False,
    flush_denormals: Annotated[
        bool, typer.Option("--flush-denormals", help="Subnormal numbers of float are zero in arithmetic.")
    ] = False,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Without the checks of each access: faster, and finds less.")
    ] = False,
    level: LevelOption = None,
    lockstep: Annotated[
        str | None, typer.Option(help="The level of lockstep, races of lanes that run in step: as --level lockstep=...")
    ] = None,
    suppress: SuppressOption = None,
    trials: Annotated[
        int | None, typer.Option(help="How many interleavings of atomic operations to try, if these matter: 4.")
    ] = None,
    expect_read: Annotated[
        list[str] | None,
        typer.Option(help="Fail if a part of this buffer or threadgroup memory is not read by any thread."),
    ] = None,
    schedule: Annotated[
        int | None, typer.Option(help="The number of the only interleaving to try, as a finding tells it.")
    ] = None,
    sarif: SarifOption = None,
) -> None:
    """List the kernels of an MSL file with their arguments, or run one with checks for undefined behaviour on the CPU.

    --buffer and --bytes bind to the parameter of their name, else in order to the buffers that remain, --buffer first.
    The exit status is 1 if the source is illegal or the launch fails, and 2 for an illegal option. ``anymetal check
    FILE`` compiles all kernels of a file, and runs none.
    """
    run_only = {
        "--grid": grid, "--group": group, "--buffer": buffer, "--bytes": bytes_, "--threadgroup": threadgroup,
        "--texture": texture, "--sampler": sampler,
        "--save": save, "--seconds": seconds, "--isolate": isolate, "--one-order": one_order, "--sarif": sarif,
        "--unchecked": unchecked, "--level": level, "--lockstep": lockstep, "--suppress": suppress,
        "--trials": trials, "--schedule": schedule, "--expect-read": expect_read,
    }  # fmt: skip
    try:
        _check(file, metal, runtime, include or [], save, seconds)
        with _option(f"--suppress {suppress}"):
            suppressions(suppress)
        checks = {
            "--one-order": one_order, "--flush-denormals": flush_denormals, "--isolate": isolate,
            "--unchecked": unchecked, "--level": level,
            "--lockstep": lockstep, "--suppress": suppress, "--sarif": sarif, "--seconds": seconds,
            "--trials": trials, "--schedule": schedule, "--expect-read": expect_read,
        }  # fmt: skip
        if expect_read and unchecked:
            raise OptionError("--expect-read needs the checks of accesses: leave out --unchecked")
        with _option(f"--runtime {runtime}"):
            refuse(runtime, checks)
        library = compile(
            file, version=metal, include=include or [], define=_defined(define or []),
            constants=dict(_constant(one) for one in constant or []), check_order=not one_order, isolate=isolate,
            sanitize=not unchecked, levels=_levels(level or [], lockstep) if level or lockstep else None,
            suppress=suppress, runtime=runtime, fast_math=fast_math or runtime == "metalcompute",
            denormals="flush" if flush_denormals else "keep", trials=trials, schedule=schedule,
            unread=bool(expect_read),
        )  # fmt: skip
        if kernel is None:
            if given := next((option for option, value in run_only.items() if value not in (None, False, [])), None):
                raise OptionError(f"{given} is an option of a run: add --kernel, one of {', '.join(library)}")
            typer.echo(jsonlib.dumps(_listed(library), indent=2) if json else "\n".join(_lines(library)))
            return
        if kernel not in list(library):
            raise OptionError(f"--kernel {kernel}: {file} has the kernels {', '.join(library)}")
        if grid is None:
            raise OptionError("--kernel needs --grid, the threads of the grid: 1000, or 64,64")
        threads, width = _sizes("--grid", grid), None if group is None else _sizes("--group", group)
        local = dict(_length(one) for one in threadgroup or [])
        arguments = [*map(_buffer, buffer or []), *map(_bytes, bytes_ or [])]
        try:
            shown = [pictures.picture(one) for one in texture or []]
            states = [(f"--sampler {one}", *pictures.sampler(one)) for one in sampler or []]
        except LaunchError as error:
            raise OptionError(str(error)) from None
        images = {
            "texture": pictures.bound(
                "texture", library[kernel].images["texture"], [(one.option, one.name, one) for one in shown]
            ),
            "sampler": pictures.bound("sampler", library[kernel].images["sampler"], states),
        }
        done = _run(library[kernel], threads, width, arguments, local, seconds, save, expect_read or [], images)
        done = (*done[:2], tuple(_of_command(one, file) for one in done[2]), done[3])
        _write(sarif, file, done[2])
    except (OptionError, CompileError, LaunchError, TypeError, MemoryError, OSError) as error:
        found = [_of_command(one, file) for one in getattr(error, "findings", ())]
        if found:
            _write(sarif, file, found)
        if json and found:
            typer.echo(jsonlib.dumps({"kernel": kernel, "findings": [one.describe() for one in found]}, indent=2))
        typer.echo(f"anymetal: {worded(str(error), file)}", err=True)
        raise typer.Exit(1 if isinstance(error, (CompileError, LaunchError)) else 2) from None
    about: dict[str, Any] = {
        "kernel": kernel,
        "grid": threads,
        "group": done[0],
        "orders": 1 if one_order or runtime != "clang" else 2,
        "buffers": done[1],
    }
    about |= {
        "runtime": runtime,
        "checked": not unchecked and runtime == "clang",
        "findings": [one.describe() for one in done[2]],
        "unreached": done[3],
    }
    texts = [worded(one.text({NAME: file.read_text()}), file) for one in done[2]]
    typer.echo(jsonlib.dumps(about, indent=2) if json else "\n".join((*_report(about), *texts)))


@app.command()
def check(
    file: FileArgument,
    *,
    constant: ConstantOption = None,
    include: IncludeOption = None,
    define: DefineOption = None,
    metal: MetalOption = "3.1",
    fast_math: FastMathOption = False,
    level: LevelOption = None,
    suppress: SuppressOption = None,
    json: JsonOption = False,
    sarif: SarifOption = None,
) -> None:
    """Compile every kernel of an MSL file, also the instantiations of templates, and run none.

    The exit status is 1 if a kernel does not compile, or the compiler is certain of an error, and 2 for an illegal
    option.
    """
    rows, found = list[dict[str, Any]](), list[Finding]()
    try:
        _check(file, metal, "clang", include or [], None, None)
        with _option(f"--suppress {suppress}"):
            suppressions(suppress)
        options: dict[str, Any] = {
            "version": metal, "include": include or [], "define": _defined(define or []), "fast_math": fast_math,
            "constants": dict(map(_constant, constant or [])), "suppress": suppress,
            "levels": _levels(level or [], None) if level else None,
        }  # fmt: skip
        try:
            library = compile(file, **options)
        except CompileError as error:
            rows.append({"name": None, "compiled": False})
            found += _not_compiled(str(error), file)
        else:
            for name in library:
                try:
                    own = [_of_command(one, file) for one in library[name].findings]
                    rows.append({"name": name, "compiled": True})
                except (CompileError, LaunchError) as error:
                    rows.append({"name": name, "compiled": False})
                    own = _not_compiled(str(error), file)
                found += [one for one in own if one not in found]
        _write(sarif, file, found)
    except (OptionError, CompileError, LaunchError, TypeError, MemoryError, OSError) as error:
        typer.echo(f"anymetal: {worded(str(error), file)}", err=True)
        raise typer.Exit(2) from None
    texts = [worded(one.text({NAME: file.read_text()}), file) for one in found]
    lines = [f"{one['name']}: {'compiled' if one['compiled'] else 'not compiled'}" for one in rows if one["name"]]
    about = {"kernels": rows, "findings": [one.describe() for one in found]}
    typer.echo(jsonlib.dumps(about, indent=2) if json else "\n".join((*lines, *texts)))
    if any(one.level == "error" for one in found):
        raise typer.Exit(1)


DIAGNOSTIC = re.compile(r"^(?P<file>[^\n]*?):(?:(?P<line>\d+):)?(?:(?P<column>\d+):)? error: (?P<text>[^\n]*)", re.M)


def _not_compiled(text: str, file: Path) -> list[Finding]:
    """Return the errors of a compiler as findings."""
    found = [
        Finding(
            "compile",
            "error",
            one["text"],
            Place(one["file"], int(one["line"]), int(one["column"] or 0)) if one["line"] else None,
        )
        for one in DIAGNOSTIC.finditer(text)
    ]
    return [_of_command(one, file) for one in found or [Finding("compile", "error", text)]]


def _of_command(one: Finding, file: Path) -> Finding:
    """Return a finding in the words of the command."""
    return replace(one, message=worded(one.message, file), advice=worded(one.advice, file))


# ------------------------------------------------------------------------------------------------ options


@contextlib.contextmanager
def _option(option: str) -> Iterator[None]:
    """Raise errors with the name of the option and its value."""
    try:
        yield
    except (ValueError, TypeError, OSError, MemoryError, LaunchError) as error:
        raise OptionError(f"{option}: {error}") from None


def _check(file: Path, metal: str, runtime: str, include: list[Path], save: Path | None, seconds: float | None) -> None:
    """Raise for options that are illegal whatever the source is."""
    if not file.is_file():
        raise OptionError(f"FILE {file}: there is no such file")
    if metal not in VERSIONS:
        raise OptionError(f"--metal {metal}: the versions of MSL are {', '.join(VERSIONS)}")
    if runtime not in RUNTIMES:
        raise OptionError(f"--runtime {runtime}: the runtimes are {', '.join(RUNTIMES)}")
    if runtime != "clang" and (reason := _unavailable(runtime)):
        raise OptionError(f"--runtime {runtime}: {reason}")
    for name, folder in [("--include", folder) for folder in include] + ([("--save", save)] if save else []):
        if not folder.is_dir():
            step = f": make it, mkdir -p {folder}" if name == "--save" and not folder.exists() else ""
            raise OptionError(f"{name} {folder}: there is no such folder{step}")
    with _option(f"--seconds {seconds}"):
        launch_seconds(seconds)


def _unavailable(runtime: str) -> str | None:
    """Return why a GPU cannot be used, or None."""
    if runtime == "cuda":
        from . import cuda

        return cuda.unavailable()
    return metalcompute.unavailable()


def _defined(texts: Iterable[str]) -> dict[str, str]:
    """Return macros by name; one without a value is 1, as in C compilers."""
    macros = {}
    for text in texts:
        name, mark, value = text.partition("=")
        macros[name] = value if mark else "1"
        with _option(f"-D {text}"):
            Options.of(VERSIONS[0], (), True, {name: macros[name]})
    return macros


def _constant(text: str) -> tuple[int | str, Any]:
    found = re.fullmatch(r"(?:(\d{1,5})|([A-Za-z_]\w*))=(.+)", text)
    if not found:
        raise OptionError(f"--constant {text}: it is INDEX=VALUE or NAME=VALUE, such as 3=true")
    values = [_value(f"--constant {text}", one) for one in found[3].split(",")]
    return int(found[1]) if found[1] else found[2], values if len(values) > 1 else values[0]


def _levels(texts: Iterable[str], lockstep: str | None) -> dict[str, str]:
    levels = dict[str, str]()
    for text in [*texts, *([f"lockstep={lockstep}"] if lockstep else [])]:
        kind, mark, value = text.partition("=")
        if not mark:
            raise OptionError(f"--level {text}: it is KIND=LEVEL, such as overflow=warning")
        levels[kind] = {"warn": "warning"}.get(value, value)
    with _option("--level"):
        return levels_of(levels)


def _write(sarif_file: Path | None, file: Path, findings: Iterable[Finding]) -> None:
    if sarif_file:
        with _option(f"--sarif {sarif_file}"):
            sarif_file.write_text(jsonlib.dumps(sarif_log(findings, str(file)), indent=2) + "\n")


def _length(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,5}):(\d{1,10})", text)
    if not found:
        raise OptionError(f"--threadgroup {text}: it is INDEX:BYTES, such as 0:4096")
    return int(found[1]), int(found[2])


def _sizes(option: str, text: str) -> tuple[int, ...]:
    sizes = tuple(map(int, text.split(","))) if re.fullmatch(r"\d{1,10}(,\d{1,10}){0,2}", text) else (0,)
    if not all(0 < size < 2**32 for size in sizes):
        raise OptionError(f"{option} {text}: it is one to three integers from 1 to 2**32 - 1, such as 1000 or 64,64")
    return sizes


def _value(option: str, text: str) -> bool | int | float:
    if text in ("true", "false"):
        return text == "true"
    for convert in (int, float):
        with contextlib.suppress(ValueError):
            return convert(text)
    raise OptionError(f"{option}: {text!r} is no number, nor true or false")


def _values(option: str, dtype: str, texts: Iterable[str]) -> NDArray[Any]:
    """Return numbers as an array; bfloat16 is uint16 with the same bits."""
    if dtype not in DTYPES:
        raise OptionError(f"{option}: {dtype!r} is no dtype; there are {', '.join(DTYPES)}")
    with _option(option):
        data = b"".join(as_number(_value(option, text), dtype, "the value") for text in texts)
    return np.frombuffer(data, EQUIVALENT["bfloat16"] if dtype == "bfloat16" else dtype)


def _buffer(text: str) -> Argument:
    """Return what an option ``--buffer`` binds."""
    option = f"--buffer {text}"
    if file := re.fullmatch(r"(?:(\d+):|(\w+)=)?(.+\.npy)", text):
        path = Path(file[3])
        with _option(option), path.open("rb") as stream:
            array = np.ascontiguousarray(np.lib.format.read_array(stream, allow_pickle=False))
        if array.dtype == "V2":  # as NumPy writes the bfloat16 of ml_dtypes
            array = array.view(np.uint16)
        return Argument(option, file[1] or file[2] or path.stem, array, file[3], "")
    found = re.fullmatch(r"(\w+):(\w+):([^=]+)(?:=(.+))?", text)
    if not found:
        raise OptionError(f"{option}: it is {BUFFER}")
    name, dtype, shape, fill = found.groups()
    is_undefined = fill == "undefined"
    value = _values(option, dtype, [fill if fill and not is_undefined else "false" if dtype == "bool" else "0"])
    with _option(option):
        array = np.full(_sizes("its length", shape), value[0])
    return Argument(option, name, array, f"new, {fill or 'zeros'}", dtype, is_undefined)


def _bytes(text: str) -> Argument:
    """Return what an option ``--bytes`` binds: a scalar, or for several numbers an array or bytes."""
    option = f"--bytes {text}"
    found = re.fullmatch(r"(\w+):(\w+=.+)", text)
    if not found:
        raise OptionError(f"{option}: it is {BYTES}")
    parts, dtype = list[NDArray[Any]](), ""
    for part in found[2].split(","):
        kind, _, number = part.rpartition("=")
        dtype = kind or dtype
        parts.append(_values(option, dtype, [number]))
    if len({part.dtype for part in parts}) > 1:
        return Argument(option, found[1], b"".join(part.tobytes() for part in parts), found[2], "")
    return Argument(option, found[1], np.concatenate(parts) if len(parts) > 1 else parts[0][0], found[2], dtype)


# ------------------------------------------------------------------------------------------------ the run


def _name(declaration: str) -> str:
    """Return the name of a parameter.

    Examples
    --------
    >>> _name("device const float *x"), _name("constant float (&table)[N]")
    ('x', 'table')
    """
    return str(re.findall(r"\w+", re.sub(r"\[[^]]*\]", "", declaration))[-1])


def bind(about: Mapping[str, Any], arguments: Iterable[Argument]) -> dict[int, Argument]:
    """Return the arguments of a kernel, of which :meth:`Kernel.describe` tells, by the index of their buffer."""
    kernel, rows = about["name"], {row["index"]: row for row in about["arguments"] if row["kind"] == "buffer"}
    known = {index: row["type"] for index, row in rows.items()}
    names = {_name(text): index for index, text in known.items()}
    listed = ", ".join(f"buffer({index}) is `{text}`" for index, text in known.items()) or "it has no buffers"
    bound, rest = dict[int, Argument](), list[Argument]()
    if inner := next((row for row in rows.values() if "members" in row), None):
        raise OptionError(
            f"kernel `{kernel}`: `{inner['type']}` holds pointers, which no option binds: call it from Python, with "
            f"{{{', '.join(f'{name!r}: ...' for name in inner['members'])}}}"
        )
    for one in arguments:
        index = int(one.name) if one.name.isdecimal() else names.get(one.name)
        if index is None:
            rest.append(one)
        elif index not in known:
            raise OptionError(f"{one.option}: kernel `{kernel}` has no buffer({index}): {listed}")
        elif index in bound:
            raise OptionError(f"{one.option}: {bound[index].option} is bound to `{known[index]}` already")
        else:
            bound[index] = one
    free = [index for index in known if index not in bound]
    if len(rest) > len(free):
        raise OptionError(f"{rest[len(free)].option}: kernel `{kernel}` has no buffer left for it: {listed}")
    bound |= dict(zip(free, rest, strict=False))
    for index in free[len(rest) :]:
        name, dtype = _name(known[index]), rows[index]["dtype"] or "DTYPE"
        example = f"--bytes {name}:{dtype}=VALUE" if "&" in known[index] else f"--buffer {name}:{dtype}:LENGTH"
        raise OptionError(f"kernel `{kernel}`: nothing is bound to buffer({index}), `{known[index]}`: add {example}")
    return dict(sorted(bound.items()))


def _run(
    kernel: Kernel,
    grid: tuple[int, ...],
    group: tuple[int, ...] | None,
    arguments: Iterable[Argument],
    local: Mapping[int, int],
    seconds: float | None,
    save: Path | None,
    expect_read: Iterable[str],
    images: Mapping[str, Mapping[int, Any]],
) -> tuple[tuple[int, ...], list[dict[str, Any]], tuple[Finding, ...], list[int]]:
    """Run a kernel; return the threads of a threadgroup, and what is known of buffers, findings and unreached lines."""
    about = kernel.describe()
    rows = {row["index"]: row for row in about["arguments"] if row["kind"] == "buffer"}
    known = {index: row["type"] for index, row in rows.items()}
    bound = bind(about, arguments)
    written = {index for index, row in rows.items() if row["written"]}
    files = {index: save / f"{_name(known[index])}.npy" for index in written} if save else {}
    for index, file in files.items():
        if any(file.exists() and file.samefile(one.origin) for one in bound.values() if one.origin.endswith(".npy")):
            raise OptionError(f"--save {save}: it would overwrite {file}, an input; name another folder")
        if file.is_dir():
            raise OptionError(f"--save {save}: {file} for buffer({index}) is a folder")
    group = group or (min(grid[0], about["threads"]),)
    given = [undefined(one.value) if one.is_undefined else one.value for one in bound.values()]
    shown = images["texture"]
    textures = {index: one.texture for index, one in shown.items()}
    launch = kernel(grid, group, *given, local=local, seconds=seconds, textures=textures, samplers=images["sampler"])
    unread = {(_name(known[key]) if isinstance(key, int) else key): n for key, n in (launch.unread or {}).items()}
    for name in expect_read:
        if name not in unread:
            raise OptionError(
                f"--expect-read {name}: kernel `{about['name']}` only reads {', '.join(unread) or 'nothing'}"
            )
        if unread[name]:
            of = "elements" if any(name == _name(text) for text in known.values()) else "bytes that were written"
            raise LaunchError(f"kernel `{about['name']}`: no thread read {unread[name]} {of} of {name}")
    for index, file in files.items():
        np.save(file, bound[index].value)
    about_buffers = [
        {"index": index, "name": _name(known[index]), "type": known[index], "from": one.origin}
        | one.summary(rows[index]["dtype"])
        | {"changed": launch.changed.get(index), "elements_written": (launch.written or {}).get(index)}
        for index, one in bound.items()
    ]
    for index, image in kernel.images["texture"].items():
        one = Argument(shown[index].option, image.name, shown[index].texture.array, shown[index].origin, "")
        key, form = f"texture({index})", shown[index].texture.format
        about_buffers.append(
            {"index": index, "kind": "texture", "name": image.name, "type": image.text, "from": one.origin}
            | one.summary(form.name if form else None)
            | {"changed": launch.changed.get(key), "elements_written": (launch.written or {}).get(key)}
        )
        if save and image.is_written:
            pictures.save(save, image.name, shown[index].texture)
    unreached = [place.line for place in launch.unreached if place.file == NAME]
    return group, about_buffers, launch.findings, unreached


# ------------------------------------------------------------------------------------------------ output


def _listed(library: Library) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": arguments} for name, arguments in library.declared.items()]


def _lines(library: Library) -> Iterator[str]:
    for name, arguments in library.declared.items():
        yield name
        for one in arguments:
            place = f"{one['kind']}({'?' if one['index'] is None else one['index']})"
            yield f"    {place:<16}{one['type']}"


def _report(about: Mapping[str, Any]) -> Iterator[str]:
    grid, group = ("x".join(map(str, about[key])) for key in ("grid", "group"))
    differs = any(one["kind"] == "order" for one in about["findings"])
    results = "different" if differs else "equal"
    ran = f"twice, in opposite orders with {results} results" if about["orders"] == 2 else "once, in one order"
    ran = ran if about["runtime"] == "clang" else f"on {about['runtime']}, without checks"
    checks = ", with all checks" if about["checked"] else ""
    yield f"kernel `{about['kernel']}` ran {grid} threads in threadgroups of {group}, {ran}{checks}"
    for one in about["buffers"]:
        size = math.prod(one["shape"])
        title = f"{one.get('kind', 'buffer')}({one['index']}) {one['name']} ({one['from']})"
        parts = [f"{title}: {one['dtype']} {tuple(one['shape'])}"]
        if one["min"] is not None:
            parts.append(" ".join(f"{key} {_short(one[key])}" for key in ("min", "max", "mean")))
        parts.append(f"{one['nans']} NaN")
        changed, written = one["changed"], one["elements_written"]
        count = "" if written is None else f"{written} written, "
        parts.append("read only" if changed is None else f"{count}{changed} of {size} elements changed")
        yield ", ".join(parts)
    if about["unreached"]:
        yield f"lines that no thread reached: {_ranges(about['unreached'])}"


def _ranges(lines: Sequence[int]) -> str:
    """Return numbers of lines as ranges.

    Examples
    --------
    >>> _ranges([4, 6, 7, 8, 12])
    '4, 6-8, 12'
    """
    starts = [line for line in lines if line - 1 not in lines]
    ends = [line for line in lines if line + 1 not in lines]
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in zip(starts, ends, strict=True))


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
