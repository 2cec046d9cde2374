"""What all compiled functions have in common."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba.core import event

from mpsref_cpu.compiling import generic, inlined, internal, uncounted

jit: Any = numba.njit
"""Not kept on disk: what it calls must be compiled, or loaded, each time."""


@internal
def shifted(x: Any, by: Any, times: Any) -> Any:
    return x + by[0] * times + by[1]


@inlined
def doubled(x: Any) -> Any:
    return 2 * x


@uncounted
def tripled(x: Any) -> Any:
    return 3 * x


@generic
def quadrupled(x: Any) -> Any:
    return lambda x: 4 * x


def test_constants_share_the_code_for_integers() -> None:
    @jit
    def calls(x: Any, n: Any) -> Any:
        return shifted(x, (0, 1), 2) + shifted(x, (n, 1), 0) + shifted(x, (n, n), n)

    with event.install_recorder("numba:compile") as compilations:
        assert calls(10, 3) == 11 + 11 + 22
    functions = [compiled.data["dispatcher"].py_func.__name__ for _, compiled in compilations.buffer]
    assert functions.count("shifted") == 2, "the start and the end of one compilation"


@pytest.mark.parametrize("function", [doubled, tripled, quadrupled])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_python_cannot_call_what_is_for_compiled_code(function: Any, is_compiled: bool) -> None:
    @jit
    def calls(x: Any) -> Any:
        return function(x) + 1

    if is_compiled:
        assert calls(np.float32(3)) == {doubled: 7, tripled: 10, quadrupled: 13}[function]
    with pytest.raises(TypeError, match=f"{function.__name__} is for compiled code only"):
        function(np.float32(3))
