"""What all compiled functions have in common."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from mpsref_cpu.compiling import compiled, inlined, internal

jit: Any = numba.njit
"""Not kept on disk: what it calls must be compiled, or loaded, each time."""


@compiled
def shifted(x: Any, by: Any, times: Any) -> Any:
    return x + by[0] * times + by[1]


@inlined
def doubled(x: Any) -> Any:
    return 2 * x


@internal
def tripled(x: Any) -> Any:
    return 3 * x


def test_constants_share_the_code_for_integers() -> None:
    @jit
    def calls(x: Any, n: Any) -> Any:
        return shifted(x, (0, 1), 2) + shifted(x, (n, 1), 0) + shifted(x, (n, n), n) + shifted(x, by=(5, n), times=1)

    assert calls(10, 3) == 11 + 11 + 22 + 18
    assert len(shifted.overloads) == 1


@pytest.mark.parametrize("function", [doubled, tripled])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_python_cannot_call_what_is_for_compiled_code(function: Any, is_compiled: bool) -> None:
    @jit
    def calls(x: Any) -> Any:
        return function(x) + 1

    if is_compiled:
        assert calls(np.float32(3)) == {doubled: 7, tripled: 10}[function]
    with pytest.raises(TypeError, match=f"{function.__name__} is for compiled code only"):
        function(np.float32(3))
