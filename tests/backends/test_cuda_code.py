"""What clang and NVIDIA's assembler make of the MSL kernels: values of a thread are in registers. No GPU is needed.

Each kernel that `metal:cuda` launches for the layers of published networks, at the sizes that `mpsref bench` times.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fake_cuda_core
import mpsref
from anymetal import cuda
from anymetal.cuda import device as cuda_device
from anymetal_fixtures import demand
from mpsref import bench, registry
from mpsref.bench import on_device
from mpsref.registry import Operation
from tests import few

FIRST = "Convolution.forward", "Convolution.gradient_weights", "BatchNormalization.statistics_gradient"
OPERATIONS = sorted(registry.operations(), key=lambda one: str(one) not in FIRST)
IN_MEMORY: dict[str, str] = {}
"""Kernels of which a thread has an array in local memory, and why."""
SPILLED = {
    ("depthwise_sums", 0): (4, "the sums of 25 taps of four channels"),
}
"""By name and threads: bytes of registers that a thread stores in memory, at most, and what they are."""
SPILLS = re.compile(r"Function properties for anymetal_thread\n.*?(\d+) bytes spill stores", re.DOTALL)


@pytest.fixture
def launched(fake_cuda: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[tuple[bytes, bytes], str]]:
    """Both forms of the PTX of what is launched, with the names of kernels. Nothing runs, and memory is not touched."""
    texts: dict[tuple[bytes, bytes], str] = {}
    compile_kernel = cuda_device.compile_kernel

    def compiled(compiler: Any, library: Any, program: Any, kernel: Any, *rest: Any) -> Any:
        made = compile_kernel(compiler, library, program, kernel, *rest)
        texts[made.text, made.relaxed] = kernel.name
        return made

    def allocated(size: int) -> Any:
        memory = np.empty(size, np.uint8)
        fake_cuda_core.blocks[memory.ctypes.data] = size
        return fake_cuda_core._Allocated(memory.ctypes.data, size, memory)

    monkeypatch.setattr(cuda_device, "compile_kernel", compiled)
    monkeypatch.setattr(fake_cuda_core.Buffer, "allocated", allocated)
    for place, name in (
        (fake_cuda_core, "launch"),
        (fake_cuda_core.Buffer, "copy_to"),
        (fake_cuda_core.Buffer, "fill"),
    ):
        monkeypatch.setattr(place, name, lambda *_, **__: None)
    return texts


def launch(operation: Operation) -> None:
    """Launch an operation of all of its layers, in float32."""
    backend, device = registry.get_backend("metal:cuda"), cuda.open_device(0)
    for layer in bench.representative(operation, sys.maxsize):
        problem = on_device.filling(layer, (operation.method,), bench._nbytes).problem(operation.method)
        dtypes = problem.input_dtypes(np.dtype(np.float32))
        with cuda_device.scope(device, cuda_device.LEGACY):
            inputs = [device.empty(shape, dtypes[name]) for name, shape in problem.input_shapes.items()]
        on_device._call(problem, tuple(inputs), backend, cuda.arrays)()


def entry(ptx: bytes) -> str:
    """Return the code of the entry of a kernel: everything that it calls is part of it."""
    text = re.search(r"\.visible \.entry anymetal_thread\(.*?\n\}\n", ptx.decode(), re.DOTALL)
    assert text is not None
    assert "call" not in text[0]
    return text[0]


@pytest.mark.parametrize("operation", few(OPERATIONS, 1), ids=str)
def test_no_array_of_a_thread_is_in_memory(operation: Operation, launched: dict[tuple[bytes, bytes], str]) -> None:
    """An array is in registers if all of its indices are known: loops over it are unrolled."""
    launch(operation)
    found = {name for (ptx, _), name in launched.items() if ".local" in entry(ptx)}
    assert launched or operation.spec_type is mpsref.Reshape
    assert found <= IN_MEMORY.keys()


def assembler() -> str | None:
    """Return the path of ptxas: on the PATH, or in the wheel of NVIDIA's compiler."""
    wheels = (path for folder in sys.path if folder for path in Path(folder, "nvidia").glob("cu*/bin/ptxas"))
    return shutil.which("ptxas") or next(map(str, wheels), None)


@pytest.mark.parametrize("operation", few(OPERATIONS, 1), ids=str)
def test_no_register_is_stored_in_memory(
    operation: Operation, launched: dict[tuple[bytes, bytes], str], tmp_path: Path
) -> None:
    """As NVIDIA's assembler reports; the driver of a GPU has another version of it."""
    ptxas = assembler()
    demand(None if ptxas else "no ptxas: pip install nvidia-cuda-nvcc, or the extra dev", "ANYMETAL_REQUIRE_PTX")
    assert ptxas is not None
    launch(operation)
    file = tmp_path / "kernel.ptx"
    for forms, name in launched.items():
        for ptx in dict.fromkeys(forms):
            file.write_bytes(ptx)
            command = [ptxas, "-v", "-arch=sm_90", str(file), "-o", str(tmp_path / "kernel.cubin")]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
            spilled, bound = SPILLS.search(told), re.search(r"^\.maxntid (\d+)", ptx.decode(), re.MULTILINE)
            assert spilled is not None, told
            if not int(spilled[1]):
                break
        most, _ = SPILLED.get((name, int(bound[1]) if bound else 0), (0, ""))
        assert int(spilled[1]) <= most, f"{name} of {bound and bound[0]}: {told}"
