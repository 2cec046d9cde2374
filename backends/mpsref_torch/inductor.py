"""The Metal kernels that ``torch.compile`` writes for Apple GPUs, run on one, or without a Mac by a runtime for MSL.

Inductor, the compiler of PyTorch, can write Metal Shading Language in every wheel. A function is split into a forward
and a backward graph as by ``torch.compile``, their device is changed to "mps" on fake tensors, and the programs that
inductor writes for them are run with tensors of the CPU, their kernels in the clang runtime: the other runtimes have no
exact grids. All private parts of PyTorch that this needs are in this module. On an Apple GPU ``torch.compile`` runs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import platform
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from anymetal import clang
from anymetal.fork_safe import cached_property
from mpsref import Adam, Backend, RMSProp, StochasticGradientDescent
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError, install
from mpsref.frameworks.adapter import Function, Table, Tensor
from mpsref.operations import OperationKey, Problem
from mpsref_torch import RULES, operations
from mpsref_torch.run import Torch, identity

TESTED = ("2.13",)
"""Releases of PyTorch with which this module was tested."""

VERSION = "3.1"
"""The version of MSL: the oldest that the headers of these releases compile with."""

KEPT = 16
"""Programs that are kept; each has its own graph of PyTorch."""

DISTINCT = 8
"""Problems of an operation that are compiled in a check: each takes about a second."""

OPTIMIZERS = (StochasticGradientDescent, RMSProp, Adam)

# The backward graph was traced with the strides of the forward graph, so inductor must not pad them.
CONFIGURATION = {"compile_threads": 1, "cpp_wrapper": False, "comprehensive_padding": False}

ERROR_BYTES = 16384
"""At least the size of ``c10::metal::ErrorMessages``, which starts with the number of messages."""

ERROR_TEXT = 4 + 128 + 128
"""Offset of the text of the first message, after its file and its function."""

CPU = {"device='mps'": "device='cpu'", "device='mps:0'": "device='cpu'"}
EXTERNAL = re.compile(r"\b(?:extern_kernels\.(\w+)|torch\.ops\.(\w+\.\w+)(?:\.\w+)?)\(")
"""Calls of kernels that inductor does not write."""

OF_COMPONENT = re.compile(r"static_cast<decltype\(\w+\.[xyzw]\)>")
"""A cast to the type of a component of a vector: clang takes it for a reference, to which no new value is bound."""

ATOMIC = "AtomicType"


def unavailable() -> str | None:
    """Return ``None``, or why Metal kernels of PyTorch cannot be written or run here."""
    if importlib.util.find_spec("torch") is None:
        return f"PyTorch is not installed: {install('torch')}"
    if _has_gpu():
        return None
    version = metadata.version("torch")
    if not version.startswith(tuple(f"{known}." for known in TESTED)):
        return (
            f"torch:metal uses private parts of PyTorch and was tested with {', '.join(TESTED)}, not with {version}: "
            f'pip install "torch=={TESTED[-1]}.*"'
        )
    return clang.unavailable()


@dataclass(eq=False)
class Inductor(Torch):
    """Functions of PyTorch as inductor compiles them for an Apple GPU, forward and backward a program each."""

    syntax = None  # the kernels are compiled for another device

    device: str = "cpu"
    _programs: dict[object, Function] = field(default_factory=dict, repr=False)

    def unavailable(self) -> str | None:
        """Return ``None``, or why nothing can be compiled or run."""
        return unavailable()

    def described(self) -> str:
        """Return what runs."""
        return f"clang on the CPU, Metal kernels of PyTorch {metadata.version('torch')}"

    def compiled(self, function: Function, arrays: Sequence[Array], count: int = 0) -> Function:
        """Return the function, compiled when it is first called with these shapes and strides.

        A program has the gradients of the first ``count`` tensors only.
        """
        import torch._inductor.lowering  # noqa: F401, decompositions use it without importing it
        from functorch.compile import aot_function, min_cut_rematerialization_partition
        from torch._inductor.decomposition import select_decomp_table

        key = (identity(function), count, *((array.shape, array.strides, array.dtype.str) for array in arrays))
        if key not in self._programs:
            while len(self._programs) >= KEPT:
                self._programs.pop(next(iter(self._programs)))
            self._programs[key] = aot_function(
                function,
                fw_compiler=self._compiled_graph,
                bw_compiler=self._compiled_graph,
                partition_fn=min_cut_rematerialization_partition,
                decompositions=select_decomp_table(),
            )
        return self._programs[key]

    # ------------------------------------------------------------------------------------------ compilation

    def _compiled_graph(self, graph: Any, inputs: Sequence[Tensor]) -> Any:
        """Return a graph of PyTorch as a function, with its kernels in the clang runtime and tensors on the CPU."""
        from functorch.compile import make_boxed_func

        with self._as_on_a_mac():
            try:
                text = self._written(graph, inputs)
            except Exception as error:  # of any kind: inductor has no common one
                lines = str(error).strip().splitlines()
                reason = f"{type(error).__name__}: {lines[0] if lines else ''}"
                raise UnsupportedError(f"inductor cannot compile this for an Apple GPU: {reason}") from error
            external = EXTERNAL.search(text, text.index("class Runner"))
            if external:
                name = external[1] or external[2]
                raise UnsupportedError(f"inductor writes no Metal kernel for this: it calls {name}")
            if cast := OF_COMPONENT.search(text):
                raise UnsupportedError(
                    f"inductor writes {cast[0]}, which clang refuses; whether Apple's compiler does is not known"
                )
            for gpu, cpu in CPU.items():
                text = text.replace(gpu, cpu)
            scope: dict[str, Any] = {"__name__": "mpsref_torch.program"}
            exec(compile(text, "<inductor>", "exec"), scope)
        scope["empty_strided"] = self._empty
        call: Callable[[list[Tensor]], Sequence[Tensor]] = scope["call"]
        return make_boxed_func(lambda *tensors: call(list(tensors)))

    def _written(self, graph: Any, inputs: Sequence[Tensor]) -> str:
        """Return the Python program, with MSL in it, that inductor writes for a graph on the CPU."""
        from torch._inductor.debug import DebugContext
        from torch._inductor.graph import GraphLowering
        from torch._inductor.virtualized import V
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx

        torch = self.torch
        for node in graph.graph.nodes:
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("mps")}
        graph.recompile()
        with FakeTensorMode() as mode, torch.no_grad():
            fakes = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="mps") for x in inputs]
            graph = make_fx(graph)(*fakes)
        lowering = GraphLowering(graph, example_inputs=fakes)
        with V.set_graph_handler(lowering), V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
            lowering.run(*fakes)
            wrapper, _ = lowering.codegen()
        return str(wrapper.value)

    @contextlib.contextmanager
    def _as_on_a_mac(self) -> Iterator[None]:
        """Make inductor compile for an Apple GPU, with kernels in the clang runtime."""
        from unittest import mock

        from torch._inductor import config
        from torch._inductor.runtime import runtime_utils

        cores = mock.patch.object(self.torch._C, "_mps_get_core_count", create=True, return_value=8)
        compiler = mock.patch.object(runtime_utils, "compile_mps_shader", self._library)
        with cores, compiler, config.patch(CONFIGURATION), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield

    # ------------------------------------------------------------------------------------------ kernels

    @cached_property
    def _devices(self) -> dict[bool, clang.Device]:
        """Devices by whether the order of threads must not change results: additions of atomic floats do."""
        return {True: clang.Device(), False: clang.Device(check_order=False)}

    def _library(self, source: str) -> _Library:
        """Compile MSL as ``torch.mps.compile_shader``."""
        device = self._devices[ATOMIC not in source]
        folder = Path(str(self.torch.__file__)).parent / "include"
        # PyTorch turns fast math off.
        kernel = device.kernel(f"#include <metal_stdlib>\n{source}", version=VERSION, include=[folder], fast_math=False)
        return _Library(self, device, kernel)

    def _empty(self, shape: Sequence[int], strides: Sequence[int], **options: Any) -> Tensor:
        """Return memory for results, filled with NaN or the largest integer."""
        made = self.torch.empty_strided(shape, strides, **options)
        return made.fill_(np.nan if made.is_floating_point() else 1)


@dataclass
class _Library:
    """The kernels of a program, as attributes."""

    torch: Inductor
    device: clang.Device
    kernel: clang.Kernel

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = self.kernel.function(name)

        def launch(
            *tensors: Tensor, threads: Sequence[int], group_size: Any = None, error_buf_idx: int | None = None
        ) -> None:
            memory = [_memory(self.torch.torch, tensor) for tensor in tensors]
            buffers = [self.device.buffer(one) for one in memory]
            if error_buf_idx is not None:
                buffers.insert(error_buf_idx, self.device.buffer(ERROR_BYTES))
            function.dispatch(threads, *buffers, threadgroup=group_size)
            if error_buf_idx is not None:
                errors = buffers.pop(error_buf_idx)
                if errors[:4].any():
                    raise RuntimeError(f"kernel {name}: {bytes(errors[ERROR_TEXT:]).split(bytes(1))[0].decode()}")
            for one, buffer in zip(memory, buffers, strict=True):
                np.copyto(one, buffer, where=one != buffer)

        return launch


def _memory(torch: Any, tensor: Tensor) -> Array:
    """Return the bytes from the first to the last element of a tensor."""
    length = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    found: Array = tensor.as_strided((length,), (1,)).view(torch.uint8).numpy()
    return found


def _refuses(problem: Problem) -> str | None:
    if problem.operation.spec_type in OPTIMIZERS:
        return "torch:metal runs functions of tensors; optimizers of PyTorch are objects"
    return None


@cache
def _has_gpu() -> bool:
    """Return whether there is an Apple GPU; PyTorch, whose import takes seconds, is imported only where one can be."""
    if platform.system() != "Darwin":
        return False
    import torch

    return bool(torch.backends.mps.is_available())


@cache
def run() -> Torch:
    """Return what runs the kernels on this machine."""
    return Torch("mps", compiles=True) if _has_gpu() else Inductor()


@cache
def _table(torch: Torch) -> Table:
    return operations.table(torch)


def _run(key: OperationKey, *arguments: Any, out: Any) -> None:
    _table(run())[key](*arguments, out=out)


backend = Backend(
    "torch:metal",
    {key: partial(_run, key) for key in operations.table(Torch())},
    unavailable=unavailable,
    device=lambda: run().described(),
    refuses=_refuses,
    layouts=("nchw", "nhwc"),
    named_only=True,
    distinct_problems=DISTINCT,
    dtypes=("float32",),
    rules=RULES,
    isolated=True,
)
