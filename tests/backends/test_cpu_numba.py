"""The cpu backend with releases of numba that lack a private part which it uses: same results, one warning."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
from numba.core import codegen

from mpsref_cpu import _numba
from mpsref_cpu.compiling import compiled, internal

PROGRAM = """
import faulthandler, hashlib, importlib, json, os, pkgutil, sys, types, warnings
import numba
import numpy as np
from numba.core import dispatcher
import mpsref

numba.njit(lambda x: x + 1)(1.0)  # what numba imports for that, children need not

def is_mine():
    '''Return whether mpsref_cpu looks up an attribute.'''
    return sys._getframe(2).f_globals["__name__"].startswith(("pkgutil", "mpsref_cpu"))

class Hidden:
    '''An attribute that mpsref_cpu does not find, and numba does, as if numba had renamed it.'''

    def __init__(self, name, value=None):
        self.name, self.value = name, value

    def __get__(self, instance, owner=None):
        if is_mine():
            raise AttributeError(f"no attribute {self.name!r}", name=self.name)
        if self.value is None:
            return instance.__dict__[self.name]
        return self.value.__get__(instance, owner)

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value

class HidingModule(types.ModuleType):
    def __getattribute__(self, name):
        if f"{super().__getattribute__('__name__')}:{name}" in sys.argv and is_mine():
            raise AttributeError(f"no attribute {name!r}", name=name)
        return super().__getattribute__(name)

def hide(part):
    module, _, path = part.partition(":")
    owner, _, name = path.rpartition(".")
    if not path:
        hidden_modules.add(module)
    elif owner:
        owner = pkgutil.resolve_name(f"{module}:{owner}")
        setattr(owner, name, Hidden(name, vars(owner).get(name)))
    else:
        importlib.import_module(module).__class__ = HidingModule

def find_module(name, package=None):
    if name in hidden_modules:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return import_module(name, package)

def run(missing):
    global hidden_modules, import_module
    hidden_modules, import_module, sys.argv = set(), importlib.import_module, missing
    for part in missing:
        hide(part)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        importlib.import_module = find_module
        from mpsref_cpu import _numba, threads
        importlib.import_module = import_module

        threads.thread_count = lambda: 2
        # It is compiled soon; products of small integers and 0.5 are exact, however the compiler combines them.
        x = np.random.default_rng(0).integers(-99, 99, (4, 32, 32, 48)).astype(np.float32)
        result = mpsref.Neuron("relu", a=0.5).forward(x, backend="cpu")
    texts = [f"{warning.category.__name__} {warning.message}" for warning in caught]
    return hashlib.sha256(result).hexdigest(), threads._team is not None, texts

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(300, exit=True)
        try:
            print(json.dumps(run(json.loads(line))), flush=True)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            print("null", flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("null", flush=True)
"""
"""Answers lists of missing parts, each in a child that has imported numba, but not mpsref_cpu."""

PARTS = sorted(set(re.findall(r'"(numba[\w.]*:[\w.]+)"', Path(_numba.__file__).read_text("utf-8"))))
"""All that the module looks up."""

MODULES = sorted({part.partition(":")[0] + ":" for part in PARTS})

SHARING = [
    "numba.core.codegen:CPUCodeLibrary.add_ir_module",
    "numba.core.codegen:CPUCodeLibrary._finalize_final_module",
    "numba.core.codegen:CPUCodeLibrary._optimize_functions",
    "numba.core.codegen:CodeLibrary.enable_object_caching",
    "numba.core.codegen:JITCodeLibrary",
    "numba.core.callconv:RETCODE_NONE",
    "numba.core.callconv:RETCODE_OK",
    "numba.core.compiler:Compiler.define_pipelines",
]
"""Without these each kernel runs in the calling thread."""

CACHE = "numba.core.dispatcher:Dispatcher._cache"

Outcome = Callable[..., tuple[str, bool, list[str]]]


@pytest.fixture(scope="module")
def outcome() -> Iterator[Outcome]:
    """Return what runs a process without parts of numba: the digest of its results, whether threads shared the work,
    and warnings.
    """
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as running:
        questions, answers = running.stdin, running.stdout
        assert questions is not None
        assert answers is not None

        def run(*missing: str) -> tuple[str, bool, list[str]]:
            print(json.dumps(missing), file=questions, flush=True)
            digest, shared, warnings = json.loads(answers.readline())  # null if it failed
            return digest, shared, warnings

        yield run


@pytest.fixture(scope="module")
def expected(outcome: Outcome) -> str:
    digest, shared, warnings = outcome()
    assert shared
    assert not warnings
    return digest


def test_the_parts_that_are_hidden() -> None:
    assert {*SHARING, "numba.core.serialize:dumps"} < {*PARTS}
    assert len(PARTS) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("part", [*(part for part in PARTS if part not in SHARING[1:]), CACHE])
def test_a_missing_part_costs_time_alone(outcome: Outcome, expected: str, part: str) -> None:
    digest, shared, (warning,) = outcome(part)
    assert digest == expected
    assert shared is (part not in SHARING)
    assert warning.startswith(f"RuntimeWarning numba {numba.__version__} lacks {part.replace(':', '.')}, which")


@pytest.mark.slow
@pytest.mark.parametrize("missing", [[*PARTS, CACHE], MODULES], ids=["parts", "modules"])
def test_one_warning_names_all_missing_parts(outcome: Outcome, expected: str, missing: list[str]) -> None:
    digest, shared, (warning,) = outcome(*missing)
    assert digest == expected
    assert not shared
    for name in PARTS:
        assert name.replace(":", ".") in warning


INTERNAL = """
import importlib, pkgutil
import mpsref_cpu
from numba import extending
from numba.core import dispatcher

del dispatcher._DispatcherBase._compile_for_args  # with which numba calls a function that is not compiled yet

modules = [importlib.import_module(found.name) for found in pkgutil.walk_packages(mpsref_cpu.__path__, "mpsref_cpu.")]
functions = {value for module in modules for value in vars(module).values() if callable(value)}
internal = [f for f in functions if getattr(getattr(f, "__code__", None), "co_name", None) == "refuse"]
intrinsics = [f for f in functions if isinstance(f, extending._Intrinsic)]
for function in [*internal, *intrinsics]:
    for arguments in (), (1.0,), (1.0, 2.0), (1, 2, 3):
        try:
            result = function(*arguments)
        except (TypeError, NotImplementedError) as error:
            assert "is for compiled code only" in str(error) or "is not usable in pure-python" in str(error), error
        else:
            raise AssertionError(f"{function} returned {result}")
print(len(internal) > 100, len(intrinsics) > 10)
"""


def test_python_cannot_call_an_internal_function_whatever_numba_does() -> None:
    done = subprocess.run([sys.executable, "-c", INTERNAL], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True True\n"


def test_a_kernel_is_optimized_once_and_what_it_calls_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @internal
    def twice(x: float) -> float:
        return 2 * x

    @internal
    def six_times(x: float) -> float:
        return 3 * twice(x)

    @compiled
    def kernel(x: float) -> float:
        return six_times(x) + twice(x)

    passes: list[str] = []
    for name in ("_optimize_functions", "_optimize_final_module"):
        optimize = getattr(codegen.CPUCodeLibrary, name)

        def noted(library: codegen.CPUCodeLibrary, *given: object, optimize: Any = optimize, name: str = name) -> None:
            passes.append(f"{library.name.rpartition('.')[2]} {name}")
            optimize(library, *given)

        monkeypatch.setattr(codegen.CPUCodeLibrary, name, noted)
    assert kernel(1.5) == 12
    parts = [
        f"{part} {name}"
        for part in ("six_times", "twice")
        for name in ("_optimize_final_module", "_optimize_functions")
    ]
    assert sorted(one for one in passes if not one.startswith("nrt ")) == ["kernel _optimize_final_module", *parts]
