"""A backend whose implementations get all arrays on the device, as calls with arrays of PyTorch or CuPy do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import mpsref
from anymetal import cuda

FINISHED_ON_THE_HOST = ("Loss.forward", "Loss.gradient", "Loss.gradient_labels", "Neuron.parameter_gradient")
"""Operations that add up a few numbers in float64, which no GPU of Apple has."""

downloads: list[str] = []
"""Operations that copied an array to the host by themselves."""


class OnDevice(Mapping[Any, Any]):
    """Implementations of a backend, with inputs that go up before and results that come down after."""

    def __init__(self, backend: mpsref.Backend) -> None:
        self._table = backend.implementations

    def __getitem__(self, key: Any) -> Any:
        implementation = self._table[key]

        def run(problem: Any, *inputs: Any, out: Any) -> None:
            device = cuda.current_device()
            outs = out if isinstance(out, tuple) else (out,)
            made = tuple(device.result(one.shape, one.dtype) for one in outs)
            sources = [device.array(one) for one in inputs]
            before = cuda.Array.__array__

            def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
                downloads.append(f"{key[0].__name__}.{key[1]}")
                return before(self, *args, **kwargs)

            cuda.Array.__array__ = counted  # type: ignore[method-assign]
            try:
                implementation(problem, *sources, out=made if isinstance(out, tuple) else made[0])
            finally:
                cuda.Array.__array__ = before  # type: ignore[method-assign]
            for target, result in zip(outs, made, strict=True):
                target[...] = np.asarray(result)

        return run

    def __contains__(self, key: object) -> bool:
        return key in self._table

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def backend_on_device(backend: mpsref.Backend, name: str = "metal:cuda on the device") -> mpsref.Backend:
    """The backend, with all arrays on the device."""
    return mpsref.Backend(
        name, OnDevice(backend), unavailable=backend.unavailable, device=backend.device, fast_math=True
    )
