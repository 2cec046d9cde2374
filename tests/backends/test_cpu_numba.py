"""The cpu backend with releases of numba that lack a private part which it uses: same bits, one warning."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numba
import pytest

PROGRAM = """
import hashlib, sys, warnings
from numba import _dispatcher
from numba.core import callconv, caching, codegen, dispatcher, funcdesc

class Hidden:
    '''An attribute that mpsref_cpu does not find, and numba does, as if numba had renamed it.'''

    def __init__(self, name, value=None):
        self.name, self.value = name, value

    def __get__(self, instance, owner=None):
        if sys._getframe(1).f_globals["__name__"].startswith("mpsref_cpu"):
            raise AttributeError(f"no attribute {self.name!r}", name=self.name)
        if self.value is None:
            return instance.__dict__[self.name]
        return self.value.__get__(instance, owner)

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value

def hide(owner, name):
    setattr(owner, name, Hidden(name, vars(owner).get(name)))

PARTS = {
    "compute_fingerprint": lambda: delattr(_dispatcher, "compute_fingerprint"),
    "get_pointer_to_function": lambda: hide(codegen.JITCodeLibrary, "get_pointer_to_function"),
    "llvm_func_name": lambda: hide(funcdesc.FunctionDescriptor, "llvm_func_name"),
    "get_function_type": lambda: hide(callconv.CPUCallConv, "get_function_type"),
    "call_function": lambda: hide(callconv.CPUCallConv, "call_function"),
    "_source_stamp": lambda: hide(caching.IndexDataCacheFile, "_source_stamp"),
    "_load_index": lambda: hide(caching.IndexDataCacheFile, "_load_index"),
    "flush": lambda: hide(caching.IndexDataCacheFile, "flush"),
    "_cache_file": lambda: hide(caching.Cache, "_cache_file"),
    "_cache": lambda: hide(dispatcher.Dispatcher, "_cache"),
}
for name in sys.argv[1:]:
    PARTS[name]()

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    from mpsref import Convolution, Neuron, PoolingAverage, PoolingMax
    from mpsref_cpu import threads
    from mpsref_cpu.simd.elementary import exp

    threads.thread_count = lambda: 2
    rng = np.random.default_rng(0)
    x, g = (rng.standard_normal((4, 32, 32, 48)).astype(np.float32) for _ in range(2))
    w = rng.standard_normal((8, 3, 3, 48)).astype(np.float32)
    digest = hashlib.sha256()
    for result in (
        PoolingAverage(3).forward(x, backend="cpu"),
        PoolingMax(3).gradient(g, x, backend="cpu"),
        Convolution(3, neuron=Neuron("relu")).forward(x, w, backend="cpu"),
    ):
        digest.update(result.tobytes())
    try:
        exp(1.0)
    except TypeError as error:
        print(error)
print(digest.hexdigest())
print(threads._team is not None)
for warning in caught:
    print(warning.category.__name__, warning.message)
"""

ADDRESSES = ["get_pointer_to_function", "llvm_func_name", "get_function_type", "call_function"]
STAMPS = ["_source_stamp", "_load_index", "flush", "_cache_file", "_cache"]


Outcome = Callable[..., tuple[str, bool, list[str]]]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Return what runs a process without parts of numba: the digest of its results, whether threads shared the work,
    and warnings.
    """
    folder = tmp_path_factory.mktemp("numba")

    def run(*missing: str) -> tuple[str, bool, list[str]]:
        cache = folder / (
            "other_stamps" if set(missing) & set(STAMPS) else "stamps"
        )  # else they would evict each other
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        arguments = [sys.executable, "-c", PROGRAM, *missing]
        done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        refused, digest, shared, *warnings = done.stdout.splitlines()
        assert refused == "exp is for compiled code only"
        return digest, shared == "True", warnings

    return run


@pytest.fixture(scope="module")
def expected(outcome: Outcome) -> str:
    digest, shared, warnings = outcome()
    assert shared
    assert not warnings
    return digest


@pytest.mark.parametrize("part", ["compute_fingerprint", *ADDRESSES, *STAMPS])
def test_a_missing_part_costs_time_and_no_bit(outcome: Outcome, expected: str, part: str) -> None:
    digest, shared, (warning,) = outcome(part)
    assert digest == expected
    assert shared is (part not in ADDRESSES)
    assert warning.startswith(f"RuntimeWarning numba {numba.__version__} lacks ")
    assert part in warning


def test_one_warning_names_all_missing_parts(outcome: Outcome, expected: str) -> None:
    digest, shared, (warning,) = outcome("compute_fingerprint", *ADDRESSES, "_source_stamp")
    assert digest == expected
    assert not shared
    assert all(part in warning for part in ("compute_fingerprint", *ADDRESSES, "_source_stamp"))
