"""``mx.fast.metal_kernel`` of MLX for CPU arrays: without an Apple GPU, and checked as by :func:`anymetal.compile`.

    from anymetal.mlx import metal_kernel

    kernel = metal_kernel("twice", ["x"], ["y"], "y[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];")
    sizes = {"grid": (x.size, 1, 1), "threadgroup": (32, 1, 1)}
    [y] = kernel(inputs=[x], **sizes, output_shapes=[x.shape], output_dtypes=[x.dtype])

:func:`metal` puts it in the place of MLX's function, so that a test suite runs unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from reprlib import repr as shorten
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from .api import Kernel, compile
from .frontend.signature import at, undefined

ATTRIBUTES = {
    "uint": (
        "dispatch_quadgroups_per_threadgroup", "dispatch_simdgroups_per_threadgroup", "quadgroup_index_in_threadgroup",
        "quadgroups_per_threadgroup", "simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup",
        "thread_execution_width", "thread_index_in_quadgroup", "thread_index_in_simdgroup",
        "thread_index_in_threadgroup", "threads_per_simdgroup",
    ),
    "uint3": (
        "dispatch_threads_per_threadgroup", "grid_origin", "grid_size", "thread_position_in_grid",
        "thread_position_in_threadgroup", "threadgroup_position_in_grid", "threadgroups_per_grid", "threads_per_grid",
        "threads_per_threadgroup",
    ),
}  # fmt: skip
"""Attributes that are parameters if the source has their names, by type."""

TYPES = {
    "bool": "bool", "float16": "float16_t", "float32": "float", "bfloat16": "bfloat16_t", "complex64": "complex64_t",
}  # fmt: skip
"""Types of MSL by the names of dtypes; the others have an underscore and a t: ``int32_t``."""

LARGEST_CONSTANT = 8
"""The number of elements from which on an array is in device memory."""

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
UTILITIES = "mlx/backend/metal/kernels/utils.h"
"""The header of MLX that its kernels may use: ``elem_to_loc``, ``ceildiv``, types."""

INCLUDE = Path(mx.__file__).parent / "include"
MATH = {"safe": False, "relaxed": True, "fast": True}
"""Whether a math mode is fast math."""


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool = False,
    compile_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[..., list[Any]]:
    """Make a kernel from the body of a function in MSL, as ``mx.fast.metal_kernel`` does, for arrays on the CPU.

    Parameters
    ----------
    name : str
        The name of the kernel.
    input_names, output_names : sequence of str
        The names of the arrays.
    source : str
        The body. It may use the arrays, and of an input ``x`` also ``x_shape``, ``x_strides`` and ``x_ndim``; the
        parameters of the template; and attributes such as ``thread_position_in_grid``, which are `uint` or `uint3`.
    header : str, optional
        Source before the kernel.
    ensure_row_contiguous : bool, optional
        Whether inputs with other strides are copied.
    atomic_outputs : bool, optional
        Whether the outputs are ``device atomic<T> *``. Their values may depend on the order of threads, which is not
        checked then.
    compile_options : mapping, optional
        ``{"math_mode": "safe"}``, ``"relaxed"`` or ``"fast"``.
    **options
        Options of :func:`anymetal.compile`. The default of ``version`` is "3.2".

    Returns
    -------
    callable
        It takes ``inputs``, ``output_shapes``, ``output_dtypes``, ``grid``, ``threadgroup``, ``template``,
        ``init_value``, ``verbose`` and ``stream`` as MLX's does, runs the kernel at once, and returns the outputs. An
        output is undefined before the kernel writes it, unless there is an ``init_value``. It raises
        :class:`anymetal.LaunchError` for undefined behaviour of the kernel, and ``CompileError`` for an illegal source.

    Raises
    ------
    ValueError
        For illegal arguments.

    Examples
    --------
    >>> import mlx.core as mx
    >>> from anymetal.mlx import metal_kernel
    >>> kernel = metal_kernel("axpy", ["x", "a"], ["y"], '''
    ...     uint i = thread_position_in_grid.x;
    ...     y[i] = static_cast<T>(a * x[i]);''')
    >>> x = mx.arange(4.0)
    >>> kernel(
    ...     inputs=[x, 3.0], template=[("T", mx.float16)], grid=(4, 1, 1), threadgroup=(4, 1, 1),
    ...     output_shapes=[x.shape], output_dtypes=[mx.float16],
    ... )
    [array([0, 3, 6, 9], dtype=float16)]
    """
    if not output_names:
        raise ValueError("[metal_kernel] Must specify at least one output.")
    wrong = next(iter({**(compile_options or {})}.keys() - {"math_mode"}), None)
    mode = (compile_options or {}).get("math_mode", "safe")
    if wrong is not None or mode not in MATH:
        raise ValueError(f"[metal_kernel] compile_options={compile_options}: math_mode is one of {', '.join(MATH)}.")
    names = [f"{kind} {one}" for kind, found in ATTRIBUTES.items() for one in found if one in source]
    made: dict[str, Kernel] = {}
    settings = {"version": "3.2", "check_order": not atomic_outputs, "fast_math": MATH[mode], **options}
    settings["include"] = [*settings.get("include", ()), INCLUDE]
    if mode == "fast":
        settings["define"] = {"__FAST_MATH__": 1, **(settings.get("define") or {})}

    def signature(
        inputs: Sequence[Any], output_dtypes: Sequence[Any], template: Sequence[tuple[str, Any]]
    ) -> tuple[str, str]:
        """Return the source of the kernel for these dtypes, and its name."""
        parameters = []
        for one, array in zip(input_names, inputs, strict=True):
            space = "constant" if array.size < LARGEST_CONSTANT else "device"
            parameters.append(f"const {space} {_type(array.dtype)}{'*' if array.ndim else '&'} {one}")
            parameters += [f"const constant {kind}{one}{suffix}" for kind, suffix in _extras(one, array)]
        for one, dtype in zip(output_names, output_dtypes, strict=True):
            parameters.append(f"device {f'atomic<{_type(dtype)}>' if atomic_outputs else _type(dtype)}* {one}")
        parameters = [f"{one} [[buffer({i})]]" for i, one in enumerate(parameters)]
        parameters += [f"{one} [[{one.split()[1]}]]" for one in names]
        kinds = ", ".join(f"{_kind(value)} {one}" for one, value in template)
        values = ", ".join(_value(value) for _, value in template)
        full = f"custom_kernel_{name}"
        text = f"[[kernel]] void {full}(\n    " + ",\n    ".join(parameters) + f") {{\n{source}\n}}\n"
        if template:
            one = f"{full}<{values}>"
            text = f'template <{kinds}>\n{text}template [[host_name("{full}")]] [[kernel]] decltype({one}) {one};\n'
        return header + "\n" + text, full

    def _extras(one: str, array: Any) -> list[tuple[str, str]]:
        """Return the types and names of what the source uses of the shape of an input."""
        found = (("int* ", "_shape"), ("int64_t* ", "_strides"), ("int& ", "_ndim"))
        return [(kind, suffix) for kind, suffix in found if array.ndim and one + suffix in source]

    def run(
        *,
        inputs: Sequence[Any],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[Any],
        grid: Sequence[int],
        threadgroup: Sequence[int],
        template: Sequence[tuple[str, Any]] | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: Any = None,
    ) -> list[Any]:
        if stream is not None and stream not in (mx.gpu, mx.Device(mx.gpu)):
            raise ValueError("[metal_kernel] Only supports the GPU.")
        wanted = {"inputs": input_names, "output_shapes": output_names, "output_dtypes": output_names}
        for what, given in {"inputs": inputs, "output_shapes": output_shapes, "output_dtypes": output_dtypes}.items():
            if len(given) != len(wanted[what]):
                raise ValueError(
                    f"[metal_kernel] Expected `{what}` to have size {len(wanted[what])} but got size {len(given)}."
                )
        arrays = [one if isinstance(one, mx.array) else mx.array(one) for one in inputs]
        text, full = signature(arrays, output_dtypes, template or ())
        if verbose:
            print(f"Generated source code for `{name}`:\n```\n{text}\n```")
        if text not in made:
            uses = HEADER + (f'#include "{UTILITIES}"\n' if (INCLUDE / UTILITIES).exists() else "")
            made[text] = compile(uses + text, **settings)[full]
        kernel = made[text]
        arguments: list[Any] = []
        for one, array in zip(input_names, arrays, strict=True):
            memory = _memory(array, ensure_row_contiguous)
            arguments.append(_bound(memory))
            extras = {
                "_shape": np.array(array.shape, np.int32), "_ndim": np.int32(array.ndim),
                "_strides": np.array([step // memory.itemsize for step in memory.strides], np.int64),
            }  # fmt: skip
            arguments += [extras[suffix] for _, suffix in _extras(one, array)]
        outputs = [_output(shape, dtype, init_value) for shape, dtype in zip(output_shapes, output_dtypes, strict=True)]
        arguments += [None if not one.size else one if init_value is not None else undefined(one) for one in outputs]
        sizes = [tuple(map(int, one)) for one in (grid, threadgroup)]
        if any(len(one) != 3 or min(one) < 0 for one in sizes):
            raise ValueError(
                f"[metal_kernel] grid={shorten(grid)}, threadgroup={shorten(threadgroup)}: three sizes each."
            )
        most = kernel.describe()["threads"]
        if math.prod(sizes[1]) > most:
            raise ValueError(f"[metal_kernel] threadgroup={shorten(threadgroup)}: it has at most {most} threads.")
        if 0 not in sizes[0]:
            kernel(sizes[0], tuple(map(min, *sizes)), *arguments)
        return [_array(one, dtype) for one, dtype in zip(outputs, output_dtypes, strict=True)]

    return run


def _type(dtype: Any) -> str:
    name = _name(dtype)
    return TYPES.get(name, f"{name}_t")


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2].removesuffix("_")


def _kind(value: Any) -> str:
    """Return what a parameter of a template is."""
    if isinstance(value, (bool, int)):
        return "bool" if isinstance(value, bool) else "int"
    if isinstance(value, mx.Dtype):
        return "typename"
    raise ValueError(f"[metal_kernel] template: a value is an mlx.core.Dtype, an int or a bool, not {shorten(value)}.")


def _value(value: Any) -> str:
    return _type(value) if isinstance(value, mx.Dtype) else str(int(value))


def _memory(array: Any, is_contiguous: bool) -> NDArray[Any]:
    """Return the memory of an array; that of bfloat16 as uint16."""
    try:
        mx.eval(array)
    except ValueError as error:
        raise ValueError(f"{error} A kernel of anymetal runs at once: call mx.disable_compile().") from None
    memory = np.asarray(memoryview(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array))
    return np.ascontiguousarray(memory).reshape(array.shape) if is_contiguous else memory


def _bound(memory: NDArray[Any]) -> Any:
    """Return memory as an argument: all of it, from the first element on."""
    if not memory.size:
        return None
    if memory.flags.c_contiguous:
        return memory
    first, last = np.lib.array_utils.byte_bounds(memory)
    place = memory.__array_interface__["data"][0]
    start = tuple(size - 1 if step < 0 else 0 for size, step in zip(memory.shape, memory.strides, strict=True))
    lowest = memory[tuple(slice(one, one + 1) for one in start)]
    size = memory.itemsize
    whole = np.lib.stride_tricks.as_strided(lowest, ((last - first) // size,), (size,), writeable=False)
    return at(whole, place - first)


def _output(shape: Sequence[int], dtype: Any, value: float | None) -> NDArray[Any]:
    """Return a new output; without a value it has NaNs, or integers of ones."""
    kind = "uint16" if dtype == mx.bfloat16 else _name(dtype)
    memory = np.empty(tuple(shape), np.dtype(kind))
    if value is not None:
        filled = mx.full(tuple(shape), value, dtype=dtype)
        memory[...] = _memory(filled, True)
    else:
        memory.reshape(-1).view(np.uint8)[...] = 1 if kind == "bool" else 255
    return memory


def _array(memory: NDArray[Any], dtype: Any) -> Any:
    return mx.array(memory).view(mx.bfloat16) if dtype == mx.bfloat16 else mx.array(memory)


class _Devices:
    """The default device that a program sees: the GPU, until it asks for another."""

    def __init__(self) -> None:
        self._device = mx.Device(mx.gpu)
        self._stream, self._set = mx.stream, mx.set_default_device

    def default(self) -> Any:
        return self._device

    def choose(self, device: Any) -> None:
        self._device = mx.Device(device) if isinstance(device, mx.DeviceType) else device

    @contextmanager
    def stream(self, stream: Any) -> Iterator[Any]:
        """As ``mx.stream``; what would run on the GPU runs on the CPU."""
        before = self._device
        device = stream.device if isinstance(stream, mx.Stream) else stream
        self.choose(device)
        try:
            with self._stream(mx.cpu if self._device.type == mx.gpu else stream) as inner:
                yield inner
        finally:
            self._device = before


@contextmanager
def metal(**options: Any) -> Iterator[None]:
    """Let a program find Metal: ``mx.fast.metal_kernel`` is :func:`metal_kernel`.

    Within it ``mx.metal.is_available()`` is true and ``mx.default_device()`` is the GPU, unless the program chooses the
    CPU by ``mx.set_default_device`` or ``mx.stream``. All functions of MLX run on the CPU. ``mx.compile`` is off, since
    a kernel needs the values of its inputs at once; for the same reason kernels do not run within ``mx.vmap``. Modules
    that make kernels when they are imported must be imported within it. ``stream=mx.gpu`` as an argument of other
    functions is not imitated.

    Parameters
    ----------
    **options
        Options of :func:`anymetal.compile` for all kernels.

    Examples
    --------
    >>> import mlx.core as mx
    >>> from anymetal.mlx import metal
    >>> with metal():
    ...     kernel = mx.fast.metal_kernel(
    ...         "next", ["x"], ["y"], "y[thread_position_in_grid.x] = x[thread_position_in_grid.x + 1];")
    ...     kernel(inputs=[mx.arange(9)], grid=(9, 1, 1), threadgroup=(9, 1, 1), output_shapes=[(9,)],
    ...            output_dtypes=[mx.int32])
    Traceback (most recent call last):
        ...
    anymetal.LaunchError: kernel `custom_kernel_next`: 1 error (threads=(9, 1, 1) runs 9 threads, ...
    """

    def replaced(*args: Any, **settings: Any) -> Callable[..., list[Any]]:
        return metal_kernel(*args, **{**options, **settings})

    devices, compiles = _Devices(), _compiles()
    with ExitStack() as stack:
        stack.enter_context(patch.object(mx.fast, "metal_kernel", replaced))
        stack.enter_context(patch.object(mx.metal, "is_available", lambda: True))
        stack.enter_context(patch.object(mx, "is_available", lambda device: True))
        stack.enter_context(patch.object(mx, "default_device", devices.default))
        stack.enter_context(patch.object(mx, "set_default_device", devices.choose))
        stack.enter_context(patch.object(mx, "stream", devices.stream))
        mx.disable_compile()
        stack.callback(mx.enable_compile if compiles else mx.disable_compile)
        yield


def _compiles() -> bool:
    """Return whether ``mx.compile`` is on: a function is called once for two calls of what it compiles."""
    calls: list[Any] = []

    def probe(x: Any) -> Any:
        calls.append(x)
        return x + 1

    compiled = mx.compile(probe)
    compiled(mx.array(0))
    compiled(mx.array(0))
    return len(calls) == 1
