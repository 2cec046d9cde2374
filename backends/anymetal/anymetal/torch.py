"""``torch.mps.compile_shader`` for CPU tensors: without an Apple GPU, and checked as by :func:`anymetal.compile`.

    from anymetal.torch import compile_shader

    library = compile_shader("kernel void twice(device float *x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }")
    library.twice(torch.ones(5))

:func:`mps` puts it in the place of PyTorch's function, so that a test suite runs unchanged.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from reprlib import repr as shorten
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode

from .api import Kernel as ArrayKernel
from .api import Library as ArrayLibrary
from .api import compile
from .arguments import bfloat
from .frontend.signature import Parameter, at
from .interface import CompileError, LaunchError

Threads: TypeAlias = int | Sequence[int] | None

CASTS = {
    "fp16": "float16", "bf16": "bfloat16", "int32": "int32", "int16": "int16", "int8": "int8", "uint8": "uint8",
}  # fmt: skip
"""The values of ``arg_casts``."""

SAME_BITS: dict[Any, Any] = {torch.bfloat16: np.uint16, torch.complex64: np.float32, torch.complex32: np.float16}
"""Dtypes that NumPy lacks, or that are pairs in MSL, and what a kernel takes in their place."""


class ShaderError(CompileError, SyntaxError, RuntimeError):
    """The source is illegal. PyTorch raises one of the two other errors."""

    __str__ = Exception.__str__  # that of a SyntaxError has no text


class CallError(LaunchError, RuntimeError):
    """A call is illegal, or the kernel had undefined behaviour. PyTorch raises a RuntimeError for the former."""


class MissingKernel(AttributeError, RuntimeError):
    """A library has no kernel of this name. PyTorch raises a RuntimeError."""


class Library:
    """Compiled kernels, as attributes: the object that ``torch.mps.compile_shader`` returns."""

    def __init__(self, library: ArrayLibrary, only_mps: bool = False) -> None:
        """Returned by :func:`compile_shader`."""
        self._library, self._only_mps = library, only_mps

    def __getattr__(self, name: str) -> Kernel:
        known = vars(self).get("_library", ())  # a copy is asked for attributes before it has any
        if name.startswith("__") or name not in known:
            raise MissingKernel(f"the library has no kernel {name!r}; it has {', '.join(known) or 'none'}")
        with _errors():
            return Kernel(self._library[name], self._only_mps)

    def __dir__(self) -> list[str]:
        return list(self._library)


class Kernel:
    """A kernel of a library."""

    def __init__(self, kernel: ArrayKernel, only_mps: bool = False) -> None:
        """Returned by ``library.name``."""
        self._kernel, self._about, self._only_mps = kernel, kernel.describe(), only_mps

    @property
    def max_threads_per_threadgroup(self) -> int:
        """The attribute ``max_total_threads_per_threadgroup`` of the kernel, else 1024; on a GPU it may be less."""
        return int(self._about["threads"])

    @property
    def thread_execution_width(self) -> int:
        """The threads of a simdgroup: 32."""
        return 32

    @property
    def static_thread_group_memory_length(self) -> int:
        """The bytes of threadgroup memory that the kernel declares in variables."""
        return int(self._about["threadgroup_bytes"])

    def __call__(
        self,
        *args: Any,
        threads: Threads = None,
        group_size: Threads = None,
        arg_casts: str | Mapping[int, str] | None = None,
        error_buf_idx: int | None = None,
    ) -> None:
        """Run the kernel, and write into the tensors that it may write.

        Parameters
        ----------
        *args : tensor, int, float, or list of these
            The buffers 0, 1, ... A tensor is its memory from its first to its last element; strides are not applied.
            An int is an int64 and a float is a float32, unless ``arg_casts`` says otherwise. A list of tensors is a
            struct of pointers. What the kernel does not declare is ignored.
        threads, group_size : int or sequence of int, optional
            The threads of the grid, by default the elements of the first tensor, and of a threadgroup, by default as
            many along the first axis as the kernel allows.
        arg_casts : str or mapping of int to str, optional
            The types of numbers, for all or by index: ``"fp16"``, ``"bf16"``, ``"int32"``, ``"int16"``, ``"int8"``,
            ``"uint8"``.
        error_buf_idx : int, optional
            The index of the buffer for messages of ``c10/metal/error.h``; messages are raised.

        Raises
        ------
        LaunchError
            For illegal arguments, for numbers that the kernel would read as those of another type, and for undefined
            behaviour of the kernel; no tensor is changed. It is a RuntimeError, too.
        """
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        if threads is None and not tensors:
            raise CallError("the number of threads is undefined: there is no tensor, pass threads=")
        grid = _sizes("threads", tensors[0].numel() if threads is None else threads)
        most = self.max_threads_per_threadgroup
        width = _sizes("group_size", min(grid[0], most) if group_size is None else group_size)
        if group_size is not None and len(width) != len(grid):
            raise CallError(f"group_size={shorten(group_size)} has {len(width)} axes, and threads has {len(grid)}")
        if math.prod(width) > most:
            raise CallError(f"group_size={shorten(group_size)}: a threadgroup has at most {most} threads")
        if 0 in grid:
            return
        parameters = self._kernel.parameters
        for i, known in sorted(parameters.items()):
            if i >= len(args) and i != error_buf_idx:
                raise CallError(
                    f"kernel `{self._about['name']}` has {len(args)} arguments; {i}, `{known.text}`, is missing"
                )
        memory = _Memory(self._only_mps)
        for one in args:
            memory.add(one)
        given = [
            memory.argument(value, parameters[i], _cast(arg_casts, i), f"argument {i}, `{parameters[i].text}`")
            if i in parameters
            else None
            for i, value in enumerate(args)
        ] + [None] * 32
        messages = None
        if error_buf_idx is not None and error_buf_idx in parameters:
            messages = given[error_buf_idx] = np.zeros(parameters[error_buf_idx].nbytes, np.uint8)
        with _errors():
            self._kernel(grid, width, *(given[i] for i in sorted(parameters)))
        if messages is not None and messages[:4].any():
            raise CallError(f"kernel `{self._about['name']}` reported: {_message(messages)}")

    def __repr__(self) -> str:
        return f"anymetal.torch.Kernel({self._about['name']})"


def _message(messages: NDArray[np.uint8]) -> str:
    """Return the first message of an error buffer: file, function, text, and line, in 512 bytes with padding."""
    places = ((4, 132), (132, 260), (260, 510))
    file, function, text = (
        bytes(messages[first:last]).partition(b"\0")[0].decode(errors="replace") for first, last in places
    )
    return f"{file}:{int(messages[512:516].view(np.uint32)[0])}: {function}: {text}"


@contextmanager
def _errors() -> Iterator[None]:
    """Make errors those that PyTorch raises, too."""
    try:
        yield
    except (CompileError, LaunchError) as error:
        if isinstance(error, CompileError):
            raise ShaderError(str(error)) from None
        new = CallError(str(error))
        new.findings = error.findings
        raise new from None


def _sizes(name: str, value: Any) -> tuple[int, ...]:
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(sizes) <= 3 or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in sizes):
        raise CallError(f"{name}={shorten(value)} is one to three numbers from 0 on")
    return sizes


def _cast(casts: Any, index: int) -> str | None:
    name = casts.get(index) if isinstance(casts, Mapping) else casts
    if name is not None and not (isinstance(name, str) and name in CASTS):
        raise CallError(f"arg_casts={shorten(casts)}: {name!r} is none of {', '.join(CASTS)}")
    return CASTS[name] if name is not None else None


class _Memory:
    """The memory of the tensors of a call; tensors that overlap are one array, bound from several offsets."""

    def __init__(self, only_mps: bool) -> None:
        self._only_mps = only_mps
        self._spans: list[tuple[int, int, torch.Tensor]] = []

    def add(self, value: Any) -> None:
        """Take a tensor, or those in a list."""
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(one, torch.Tensor):
                continue
            if one.layout != torch.strided or one.untyped_storage().device.type != "cpu":
                raise CallError(f"a tensor is strided and on the CPU, not {one.layout} on {one.device}")
            if self._only_mps and one.dim() and not _is_mps(one):
                raise CallError("Passed CPU tensor to MPS op: within anymetal.torch.mps(), as on a Mac, use .to('mps')")
            first = one.data_ptr()
            self._spans.append((first, first + _span(one), one))

    def array(self, tensor: torch.Tensor) -> Any:
        """Return a tensor as an argument of a kernel."""
        first, last = tensor.data_ptr(), tensor.data_ptr() + _span(tensor)
        if first == last:
            return None
        start = first
        while True:
            near = [span for span in self._spans if span[0] < last and start < span[1]]
            union = min(span[0] for span in near), max(span[1] for span in near)
            if union == (start, last):
                break
            start, last = union
        dtype = SAME_BITS.get(tensor.dtype)
        if dtype is None:
            dtype = np.uint8 if _name(tensor.dtype).startswith("float8") else _name(tensor.dtype)
        whole = np.ctypeslib.as_array((ctypes.c_uint8 * (last - start)).from_address(start))
        return at(whole.view(dtype), first - start)

    def argument(self, value: Any, known: Parameter, cast: str | None, what: str) -> Any:
        """Return an argument of PyTorch as one of :class:`anymetal.api.Kernel`."""
        if isinstance(value, torch.Tensor):
            return self.array(value)
        values = value if isinstance(value, (list, tuple)) else [value]
        if values and all(isinstance(one, torch.Tensor) for one in values):
            arrays = [self.array(one) for one in values]
            if len(known.members) == 1:
                return {next(iter(known.members)): arrays}
            if len(known.members) != len(values):
                raise CallError(f"{what}: {len(values)} tensors, and it has {len(known.members)} pointers")
            return dict(zip(known.members, arrays, strict=True))
        if not values or not all(isinstance(one, (int, float)) for one in values):
            raise CallError(f"{what}: an argument is a tensor, a number, or a list of these, not {shorten(value)}")
        return _numbers(value, values, known, cast, what)


def _span(tensor: torch.Tensor) -> int:
    """Return the bytes from the first to the last element."""
    if not tensor.numel():
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return int((1 + sum((size - 1) * stride for size, stride in steps)) * tensor.dtype.itemsize)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _numbers(value: Any, values: Sequence[Any], known: Parameter, cast: str | None, what: str) -> Any:
    """Return numbers as the bytes that PyTorch passes; raise if the kernel reads others than these numbers."""
    passed = cast or ("float32" if isinstance(values[0], float) else "int64")
    declared = known.dtype or passed
    array: Any = np.array([float(one) if "float" in passed else int(one) for one in values])
    least, most = (-math.inf, math.inf) if "float" in passed else (np.iinfo(passed).min, np.iinfo(passed).max)
    if array.dtype.hasobject or not all(least <= one <= most or one != one for one in array):
        raise CallError(f"{what}: {shorten(value)} does not fit into {passed}")
    if passed != declared:
        is_int = "float" not in passed + declared and np.dtype(passed).itemsize >= np.dtype(declared).itemsize
        is_alone = is_int and (len(values) == 1 or np.dtype(passed).itemsize == np.dtype(declared).itemsize)
        least, most = (0, 1) if declared == "bool" or not is_int else (np.iinfo(declared).min, np.iinfo(declared).max)
        if not (is_alone and all(least <= one <= most for one in array)):
            cast_to = next((name for name, dtype in CASTS.items() if dtype == declared), None)
            kind = (
                "a float"
                if declared == "float32"
                else f"an int from {least} to {most}"
                if len(values) == 1
                else "a tensor"
            )
            hint = f"arg_casts={cast_to!r}" if cast_to else kind
            raise CallError(
                f"{what}: PyTorch passes {shorten(value)} as {passed}, and the kernel reads {declared}: pass {hint}"
            )
    with np.errstate(over="ignore"):  # on a little-endian machine the first bytes of an int are those of a smaller one
        bits = (
            np.array([bfloat(np.float32(one)) for one in array]) if declared == "bfloat16" else array.astype(declared)
        )
    return bits.tobytes() if known.is_reference else bits


def compile_shader(source: str, **options: Any) -> Library:
    """Compile a Metal shader for CPU tensors, as ``torch.mps.compile_shader`` does for those of an Apple GPU.

    Parameters
    ----------
    source : str
        The MSL text. It may include the headers of PyTorch, ``c10/metal/*.h``.
    **options
        Options of :func:`anymetal.compile`. The default of ``version`` is "3.2".

    Returns
    -------
    Library
        The kernels as attributes; ``dir()`` lists them.

    Raises
    ------
    CompileError
        If the source is illegal; it is a SyntaxError and a RuntimeError, too.

    Examples
    --------
    >>> import torch
    >>> from anymetal.torch import compile_shader
    >>> library = compile_shader('''
    ... kernel void full(device float *out, constant float &value, uint i [[thread_position_in_grid]]) {
    ...     out[i] = value;
    ... }''')
    >>> x = torch.zeros(3)
    >>> library.full(x, 3.5)
    >>> x
    tensor([3.5000, 3.5000, 3.5000])
    >>> library.full(x, 3)
    Traceback (most recent call last):
        ...
    anymetal.torch.CallError: argument 1, `constant float &value`: PyTorch passes 3 as int64, and the kernel reads ...
    """
    if not isinstance(source, str):
        raise TypeError(f"the source is a string, not {type(source).__name__}")
    include = [*options.pop("include", ()), Path(torch.__file__).parent / "include"]
    with _errors():
        # A string of one line that ends with .metal would be the name of a file.
        return Library(compile(source + "\n", **{"version": "3.2", **options}, include=include), _Mps.active > 0)


def _is_mps(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one that the program under test believes to be on the GPU."""
    return bool(tensor.layout == torch.strided and hasattr(tensor.untyped_storage(), "is_anymetal"))


MPS = torch.device("mps", 0)
COPYING = (torch.as_tensor, torch.asarray)
"""Functions that share the memory of a NumPy array if the device is the CPU."""
PROPERTIES: Mapping[Any, Any] = {
    torch.Tensor.device.__get__: MPS, torch.Tensor.is_mps.__get__: True, torch.Tensor.is_cpu.__get__: False,
    torch.Tensor.get_device: 0,
}  # fmt: skip
HOST_ONLY = (torch.Tensor.numpy, torch.Tensor.__array__)


class _Mps(TorchFunctionMode):  # type: ignore[misc]  # of a package that may be missing
    """Tensors on the device mps: they are on the CPU, their storage has a mark, and functions of such return such."""

    active = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function on the CPU, and mark its results if they would be on the GPU."""
        del types
        options = dict(kwargs or {})
        if func is torch.device:
            return func(*args, **options)
        inputs = list(_tensors([*args, *options.values()]))
        if args and isinstance(args[0], torch.Tensor) and func in (*PROPERTIES, *HOST_ONLY) and _is_mps(args[0]):
            if func in HOST_ONLY:
                raise TypeError("can't convert mps:0 device type tensor to numpy: use Tensor.cpu() first")
            return PROPERTIES[func]
        wanted = "cpu" if func is torch.Tensor.cpu else None
        positions = [1] if func is torch.Tensor.to else []
        given = list(args)
        for i, one in enumerate(given):
            if isinstance(one, torch.device) or (i in positions and isinstance(one, str)):
                wanted, given[i] = torch.device(one).type, _host(one)
            elif i in positions and isinstance(one, torch.Tensor):  # x.to(y)
                wanted = "mps" if _is_mps(one) else "cpu"
        if options.get("device") is not None:
            wanted, options["device"] = torch.device(options["device"]).type, _host(options["device"])
        with ExitStack() as stack:
            if _default().type == "mps":  # it would be added below this mode
                stack.enter_context(torch.device("cpu"))
                wanted = "mps" if wanted is None and not inputs and func is not torch.from_numpy else wanted
            result = func(*given, **options)
        on_mps = any(map(_is_mps, inputs)) if wanted is None else wanted == "mps"
        if wanted is not None and isinstance(result, torch.Tensor):
            shared = any(_same_storage(result, one) for one in inputs)
            if (shared and _is_mps(result) != on_mps) or (on_mps and func in COPYING):
                result = result.clone()
        before = [one.untyped_storage() for one in inputs if one.layout == torch.strided]
        for one in _tensors([result]) if on_mps else ():
            if one.dtype == torch.float64:
                raise TypeError("the MPS framework has no float64: use float32")
            if one.layout == torch.strided and not any(one.untyped_storage() is storage for storage in before):
                _mark(one)
        return result


def _default() -> torch.device:
    """Return the default device; without an index its tensors are asked for one, which fails without MPS."""
    try:
        return DEFAULT()
    except RuntimeError:
        return MPS


def _mark(tensor: torch.Tensor) -> None:
    tensor.untyped_storage().is_anymetal = True


def _backward(node: Any, *gradients: Any) -> Any:
    """Run the backward of a ``torch.autograd.Function``, where PyTorch has switched the mode off.

    It replaces ``BackwardCFunction.apply``, which autograd calls. Hooks of the node could not leave the mode after an
    error, and a replaced ``Function.apply`` misses methods that were bound before.
    """
    saved = node.saved_tensors
    for one in gradients if not saved or any(map(_is_mps, saved)) else ():
        if isinstance(one, torch.Tensor):
            _mark(one)
    with _Mps():
        return APPLY(node, *gradients)


APPLY, DEFAULT = BackwardCFunction.apply, torch.get_default_device


def _host(device: Any) -> Any:
    return torch.device("cpu") if torch.device(device).type == "mps" else device


def _same_storage(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether one is a view of the other; a storage is one object, and empty ones have no address."""
    is_strided = first.layout == second.layout == torch.strided
    return is_strided and first.untyped_storage() is second.untyped_storage()


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for one in values:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from _tensors(one)


@contextmanager
def mps(**options: Any) -> Iterator[None]:
    """Let a program find an Apple GPU: ``compile_shader`` of this module, and tensors on the device ``"mps"``.

    Within it ``torch.mps.compile_shader`` is :func:`compile_shader`, MPS is available, and ``device="mps"``,
    ``.to("mps")`` and ``.cpu()`` work: the tensors are on the CPU, copied where PyTorch copies, and their ``device`` is
    ``mps:0``. As on a Mac, kernels refuse tensors that are not on this device, it has no float64, and NumPy does not
    read its tensors. Functions of PyTorch run on the CPU; what they compute on an Apple GPU is not imitated.

    It does not see ``torch.Generator``, ``torch.load`` and threads that are started within it. Operations on tensors of
    both devices are not refused.

    Parameters
    ----------
    **options
        Options of :func:`anymetal.compile` for all shaders.

    Examples
    --------
    >>> import torch
    >>> from anymetal.torch import mps
    >>> with mps():
    ...     library = torch.mps.compile_shader('''
    ...     kernel void twice(device float *x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }''')
    ...     x = torch.arange(3.0, device="mps")
    ...     library.twice(x)
    ...     x.device, x.cpu()
    (device(type='mps', index=0), tensor([0., 2., 4.]))
    """
    module = torch.mps
    replacements: list[tuple[Any, str, Callable[..., Any]]] = [
        (module, "compile_shader", lambda source: compile_shader(source, **options)),
        (module, "is_available", lambda: True),
        (module, "device_count", lambda: 1),
        (module, "synchronize", lambda: None),
        (module, "empty_cache", lambda: None),
        (module, "manual_seed", lambda seed: torch.manual_seed(seed)),  # not that function: dynamo's table has it once
        (module, "seed", lambda: torch.seed()),
        (torch.backends.mps, "is_available", lambda: True),
        (torch.backends.mps, "is_built", lambda: True),
        (torch, "get_default_device", _default),
        (BackwardCFunction, "apply", _backward),
    ]
    with ExitStack() as stack:
        for owner, name, function in replacements:
            stack.enter_context(patch.object(owner, name, function))
        stack.enter_context(patch.object(_Mps, "active", _Mps.active + 1))
        stack.enter_context(_Mps())
        yield
