"""Tens of thousands of illegal calls, the same in every run: each ends with a documented error, and no input changes.

A call is a legal one with one argument, property, token or byte replaced by something else, so some calls are legal.
Documented errors are ``ValueError`` and ``TypeError`` with their subclasses, in messages of limited length.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import mpsref
from mpsref import UnsupportedError, cli, padding, registry
from mpsref.arguments.arrays import Array
from mpsref.arguments.text import cut, shown
from mpsref.backend import Backend
from mpsref.conformance import checker
from mpsref.conformance.case import Case, operations
from mpsref.operations import Operation
from mpsref.training import Settings, Trainer
from mpsref.training import checkpoint as checkpoints
from tests import few
from tests.subjects.classes import (
    CLASSES,
    LEGAL,
    MADE,
    NOT_BUILT,
    OTHERWISE,
    PROTOCOLS,
    arguments,
    legal_arguments,
    made,
)
from tests.subjects.operations import typical

pytestmark = [
    pytest.mark.filterwarnings("ignore::mpsref.errors.TrainingGraphWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NumPy's, of numbers that overflow
]

SEED = 0
"""Another number makes other calls."""

LONGEST_MESSAGE = 8000
"""Lists of legal names are long; values are cut to 400 characters."""


class NoArray:
    """An object that cannot be converted to an array."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise RuntimeError("the memory is gone")


class Text(str):
    """A subclass of str."""


def nested(depth: int) -> list[Any]:
    """Return a list in lists."""
    value: list[Any] = [1]
    for _ in range(depth):
        value = [value]
    return value


def cyclic() -> list[Any]:
    """Return a list that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


def huge(*shape: int, dtype: str = "f4") -> Array:
    """Return an array that needs more memory than any machine has as soon as it is copied."""
    return np.broadcast_to(np.ones(1, dtype), shape)


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


NUMBERS = [None, True, np.True_, 0, -1, -2, 2**31, 2**40, 2**62, 2**63, -(2**63) - 1, 2**64, 10**400, -(10**400)]
NUMBERS += [10**5000, 0.0, 0.5, -0.5, 1.0, 1e308, -1e308, math.nan, math.inf, -math.inf, Fraction(1, 3), 1j]
NUMBERS += [Fraction(10**400), Decimal(1), np.float16("nan"), np.float32(3), np.int8(-3), np.uint64(2**64 - 1)]
NUMBERS += [np.longdouble("1e4000")]
TEXTS = ["", "zero", "float32", "\ud800", "a" * 10**6, "\0", "None", b"zero", Text("clamp"), np.str_("zero"), "{}", "1"]
TUPLES = [(), (0,), (1,), (1, 2), (-1, 2), (True, 2), (1.0, 2), (10**400, 1), (1, 2, 3), (0, 0, 0, 0), ((1, 2), (3, 4))]
TUPLES += [(None, None), [1, 2], [[1, 2], [3]], range(3), {1: 2}, {1, 2}, nested(100), nested(10**5), cyclic(), "ab"]
OBJECTS = [object(), object, NoArray(), len, ..., NotImplemented, slice(None), iter(()), Path("/"), MemoryError()]
SHAPES = [(), (0,), (3,), (1, 2), (0, 1, 1, 1), (1, 0, 1, 1), (1, 2, 3, 4)]
ARRAYS = [
    *(read_only(np.zeros(shape, np.float32)) for shape in SHAPES),
    *(
        read_only(np.ones((1, 4, 4, 2), dtype))
        for dtype in ["f2", ">f4", "f8", "g", "i8", "u1", "?", "c8", "S3", "M8[s]"]
    ),
    read_only(np.full((1, 4, 4, 2), None)),
    read_only(np.array([[[[10**400]]]])),
    np.ma.masked_all((1, 4, 4, 2), np.float32),
    read_only(np.zeros((1, 4, 4, 2), [("a", "f4")])),
    read_only(np.full((1, 4, 4, 2), np.nan, np.float32)),
    memoryview(b"1234"),
    huge(1, 2**15, 2**15, 2**10),
    huge(2**10, 2**15, 2**15, 1, dtype="f2"),
    huge(2**45),
    huge(1, 2**31, 1, 1),
]
JUNK = [*NUMBERS, *TEXTS, *TUPLES, *OBJECTS, *ARRAYS]


def attempt(call: Callable[..., object], *args: Any, **keywords: Any) -> Any:
    """Return the result of a call, or ``FAILED`` after a documented error; the arguments do not change."""
    arrays = [value for value in [*args, *keywords.values()] if type(value) is np.ndarray and value.nbytes < 2**20]
    before = [array.tobytes() for array in arrays]
    try:
        result = call(*args, **keywords)
    except (ValueError, TypeError) as error:
        if len(str(error)) > LONGEST_MESSAGE:
            pytest.fail(f"a message of {len(str(error))} characters: {str(error)[:500]} ...")
        result = FAILED
    except AttributeError:
        if call is not setattr:  # of a property without a setter
            raise
        result = FAILED
    except Exception as error:
        given = ", ".join([*map(shown, args), *(f"{name}={shown(value)}" for name, value in keywords.items())])
        raise AssertionError(f"{call!r} of {given}: {type(error).__name__}: {cut(error)}") from error
    assert before == [array.tobytes() for array in arrays]
    return result


FAILED = object()


def some(random: Random, count: int) -> list[Any]:
    return random.sample(JUNK, count)


# ---- kernels --------------------------------------------------------------------------------------------------------


def arguments_of(case: Case) -> dict[str, Any]:
    """Return legal arguments of the method of a case, by name."""
    problem = case.problem
    inputs = dict(zip(problem.input_shapes, case.inputs(), strict=True))
    method = getattr(problem.spec, problem.method)
    found: dict[str, Any] = {}
    for name, one in inspect.signature(method).parameters.items():
        base = name.removesuffix("_or_shape")
        if name in ("xs", "xs_or_shapes"):
            found[name] = list(inputs.values()) or list(problem.source_shapes)
        elif base in inputs:
            found[name] = inputs[base]
        elif name == "shape":
            found[name] = problem.source_shape
        elif name.endswith("_or_shape"):
            found[name] = problem.shape_of(problem.inputs[base].dims)
        elif hasattr(problem, name) and name not in problem.inputs:
            found[name] = getattr(problem, name)
        elif base in problem.inputs:
            found[name] = None  # an array that is not read
        else:
            assert one.default is not inspect.Parameter.empty, name
    return found


@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_kernels(operation: Operation) -> None:
    random, legal = Random(f"{SEED} {operation}"), 0
    for drawn in checker.random_cases(operation, ("float32", "float16"), 2, 0):
        spec, arguments = drawn.problem.spec, arguments_of(drawn)
        method = getattr(spec, operation.method)
        legal += attempt(method, **arguments) is not FAILED
        for one in fields(spec):
            for value in some(random, 3):
                changed = attempt(replace, spec, **{one.name: value})
                if changed is not FAILED:
                    attempt(getattr(changed, operation.method), **arguments)
        for name in [*arguments, "out", "backend"]:
            for value in some(random, 3):
                attempt(method, **arguments | {name: value})
    assert legal, "the calls that are changed are legal ones"


@pytest.mark.parametrize(
    "name", ["caffe", "method_inverse", "mps", "onnx", "policy_forward", "policy_reverse", "pytorch", "tensorflow"]
)
def test_padding(name: str) -> None:
    random, function = Random(f"{SEED} {name}"), getattr(padding, name)
    legal = {"input_size": (5, 6), "kernel_size": 3, "strides": 2, "pads": (1, 1, 1, 1), "method": 16, "padding": 1}
    names = inspect.signature(function).parameters
    arguments = {name: value for name, value in legal.items() if name in names}
    if name == "tensorflow":
        arguments["padding"] = "SAME"
    for _ in range(60):
        attempt(function, **arguments | {random.choice(list(names)): random.choice(JUNK)})
        attempt(function, *some(random, min(len(names), 3)))


def test_backends() -> None:
    random = Random(f"{SEED} backends")
    for function in (mpsref.set_backend, mpsref.register, registry.get_backend, registry.get_backends, Backend):
        for value in JUNK:
            if value is not None:
                attempt(function, value)
            attempt(function, value, random.choice(JUNK))
    assert registry.get_backend().name == "reference"


# ---- Apple's classes ------------------------------------------------------------------------------------------------


def test_constructors() -> None:
    for kind in CLASSES:
        random = Random(f"{SEED} {kind.__name__}")
        for count in (0, 1, 1, 2, 3):
            attempt(kind, *some(random, count))
        attempt(kind, **{random.choice(list(LEGAL)): random.choice(JUNK)})


@pytest.mark.parametrize("kind", [one for one in CLASSES if one not in MADE], ids=lambda kind: kind.__name__)
def test_classes_without_instances(kind: type[Any]) -> None:
    """They refuse also the arguments of an instance, and say what to use."""
    error, words = UnsupportedError if kind.__name__ in NOT_BUILT else TypeError, r"; (use|make|take|compute|scale) "
    words = rf"^{kind.__name__} (is abstract|is not built|is a base class|cannot be made).*{words}"
    if kind.__name__ in PROTOCOLS:
        words = "^Protocols cannot be instantiated$"
    taken = [one for one in inspect.signature(kind).parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    for given in ((), (1, 2)[: 0 if kind.__name__ in PROTOCOLS else len(taken)]):
        with pytest.raises(error, match=words):
            kind(*given)


@pytest.mark.parametrize("kind", few(MADE[::2] + MADE[1::2], len(MADE) // 2), ids=lambda kind: kind.__name__)
def test_classes(kind: type[Any]) -> None:
    """Constructors, properties, methods, and the JSON of what was saved."""
    name = kind.__name__
    random = Random(f"{SEED} {name}")
    made_one = made(kind)
    assert type(made_one) is kind
    if name not in OTHERWISE:
        legal = arguments(kind)
        for key in [*legal, *list(inspect.signature(kind).parameters)]:
            for value in some(random, 2):
                attempt(kind, **legal | {key: value})
    for key in [key for key in dir(made_one) if not key.startswith("_")]:
        object_ = made(kind)
        for value in some(random, 2):
            attempt(setattr, object_, key, value)
        object_ = made(kind)
        member = attempt(getattr, object_, key)
        if str(getattr(member, "__module__", "")).startswith("mpsref.") and inspect.isroutine(member):
            for _ in range(3):
                attempt_method(made(kind), key, random)
    saved = attempt(made_one.to_json) if hasattr(made_one, "to_json") else FAILED
    if saved is not FAILED:
        for _ in range(20):
            attempt(kind.from_json, changed_text(saved, random))
            attempt(kind.from_dict, changed_data(json.loads(saved), random, JUNK))


def attempt_method(instance: Any, key: str, random: Random) -> None:
    """Call a method with legal arguments, of which one or two are replaced."""
    method = getattr(instance, key)
    try:
        arguments = legal_arguments(method, type(instance).__name__)
        names = list(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        arguments, names = {}, []
    attempt(method, **arguments)
    for name in random.sample(names, min(len(names), 2)):
        arguments[name] = random.choice(JUNK)
    attempt(method, **arguments)
    attempt(method, *some(random, random.randrange(3)))


def changed_text(text: str, random: Random) -> str:
    """Return a text with a character, a number or a part replaced, left out or repeated."""
    at = random.randrange(len(text) + 1)
    part = random.choice(
        ['"', "{", "}", "[", "]", ",", ":", "-", "1e999", "null", "9" * 400, "[" * 5000, "\\ud800", "NaN", ""]
    )
    return text[:at] + part + text[at + random.choice((0, 0, 1, 5, 1000)) :]


PLAIN = [
    None,
    True,
    0,
    -1,
    2**62,
    10**400,
    1.5,
    math.nan,
    math.inf,
    "",
    "a" * 10**5,
    [],
    {},
    nested(100),
    [1],
    {"1": 2},
]
"""Values that JSON has."""


def changed_data(data: Any, random: Random, values: list[Any]) -> Any:
    """Return data with a value replaced."""
    if isinstance(data, dict) and data and random.random() < 0.9:
        key = random.choice(list(data))
        return data | {key: changed_data(data[key], random, values)}
    if isinstance(data, list) and data and random.random() < 0.7:
        at = random.randrange(len(data))
        return [*data[:at], changed_data(data[at], random, values), *data[at + 1 :]]
    return random.choice(values)


# ---- texts and files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_cases(operation: Operation) -> None:
    random = Random(f"{SEED} case {operation}")
    text = str(typical(operation))
    parts = [
        "-",
        "9" * 30,
        "9" * 400,
        "1e999",
        "nan",
        ",",
        ",,",
        ":",
        "seed=1",
        "x",
        "float64",
        "\ud800",
        "a" * 10**5,
        "",
    ]
    for _ in range(25):
        at = random.randrange(len(text))
        attempt(Case.parse, text[:at] + random.choice(parts) + text[at + random.choice((0, 1, 3)) :])
    for value in some(random, 5):
        attempt(Case, value)


COMMANDS = {
    "check": ["-b", "-k", "--cases", "--seed", "-j", "--junit", "--golden"],
    "golden": ["-b", "-k", "--json"],
    "replay": ["-b"],
    "explain": [],
    "plot": ["-o", "--pixel"],
    "bench": ["-b", "-k", "--layer", "--rounds"],
    "train": ["-b", "--epochs", "--optimizer", "--learning-rate", "--batch", "--seed", "--resume", "--curve"],
    "backends": ["--json"],
    "kernels": ["--json"],
    "unknown": [],
}
WORDS = ["0", "-1", "1e400", "nan", "99999999999999999999", "x", "", "/", "/nowhere/x", "\0", "--", "--nothing", "é"]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_lines(command: str) -> None:
    """Every command line has a word that is illegal for its command, so none of them runs for long."""
    random = Random(f"{SEED} {command}")
    for _ in range(8):
        words = [command, "PoolingAverage.nothing", "-k", "Nothing"]
        for option in random.sample(COMMANDS[command], min(2, len(COMMANDS[command]))):
            words += [option, random.choice(WORDS)]
        done = CliRunner().invoke(cli.app, words)
        known = (ValueError, TypeError, OSError, SystemExit)  # those that become one line
        assert done.exception is None or isinstance(done.exception, known), (words, done.exception)
        assert done.exit_code, words


def test_checkpoints(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn, which has the digits, is not installed")
    random, path = Random(f"{SEED} checkpoints"), tmp_path / "digits.ckpt"
    Trainer(Settings(), "reference").save(path)
    good = path.read_bytes()
    header, arrays = checkpoints.read(path)
    for _ in range(60):
        at = random.choice((random.randrange(len(good)), random.randrange(1000), len(good) - random.randrange(3000)))
        path.write_bytes(good[:at] + random.randbytes(random.choice((0, 1, 4, 100))) + good[at + random.randrange(9) :])
        attempt(checkpoints.read, path)
    for _ in range(60):
        changed = changed_data(header | {"format": checkpoints.FORMAT}, random, PLAIN)
        text = json.dumps(changed) if random.random() < 0.7 else changed_text(json.dumps(changed), random)
        with path.open("wb") as file:
            np.savez(file, header=np.array(text), **arrays)
        attempt(Trainer.resume, path, "reference")
    for value in JUNK:
        if isinstance(value, (int, float, str)):
            for name in ("optimizer", "learning_rate", "batch", "seed"):
                attempt(Settings, **{name: value})


def test_devices() -> None:
    clang = pytest.importorskip("anymetal.clang")
    if reason := clang.unavailable():
        pytest.skip(reason)
    random, device = Random(f"{SEED} devices"), clang.Device()
    source = """
    #include <metal_stdlib>
    kernel void f(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { if (i < 4) out[i] = i; }
    """
    kernel = device.kernel(source)
    function = kernel.function("f")
    small = [value for value in JUNK if not isinstance(value, int) or abs(value) < 2**20 or abs(value) > 2**48]
    for value in small:
        attempt(clang.Device, value)
        attempt(clang.Device, seed=value)
        attempt(clang.Device, check_order=value)
        attempt(device.buffer, value)
        attempt(kernel.function, value)
        attempt(function, value, device.buffer(16))
        attempt(function, 4, value)
        attempt(function, *random.sample(small, 2))
    for _ in range(30):
        attempt(device.kernel, changed_text(source, random))
