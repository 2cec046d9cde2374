"""Launches of MSL functions: source text, input buffers, and float32 result buffers.

The MSL functions of a family are in one ``.metal`` file, which is preceded by compile-time constants, the prelude and
shared files. Other values are passed in buffers, scalars in one ``constant`` struct. Results are float32 and are
rounded by NumPy, as in all backends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeGuard, cast

import numpy as np
from numpy.typing import DTypeLike

from anymetal import ArrayDevice, Device, Function
from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.errors import UnsupportedError

STORAGE = {
    "float32": "float",
    "float16": "half",
    "uint8": "uchar",
    "uint16": "ushort",
    "uint32": "uint",
    "int32": "int",
}

WIDE = 4
"""Number of neighbouring channels that a thread reads, computes and writes together, where they are aligned."""

FEW_TERMS = 4
"""Maximum number of terms of the sums of which a thread computes several for single channels."""

SOURCES = Path(__file__).with_name("msl")
"""The folder of the MSL sources."""

LONGEST = 1024
"""Maximum number of additions in sequence, as in ``msl/prelude.metal``."""

MOST_INDICES = 2**32 - 2**12
"""Images with fewer elements are indexed in 32 bits, others in 64 bits; a loop may step a little past the end."""

MOST_THREADS = 2**32 - 2**12
"""Maximum number of threads: positions have 32 bits, and the grid is rounded up to whole threadgroups."""


class Gpu(NamedTuple):
    """The GPU for which launches are tuned. The numbers affect results by rounding."""

    cores: int
    threads: int
    """The number of threads that fill the GPU."""
    together: int
    """Maximum number of floats that a thread computes one by one or in packs."""

    def together_of(self, elements: int, channels: int, width: int, terms: float) -> int:
        """Return how many packs of a pixel a thread computes: up to ``together`` floats if enough threads remain.

        Neighbouring threads still access at least 64 bytes in sequence. Single channels are computed together only if
        their sums have few terms.
        """
        packs, most = channels // width, min(self.together // width, elements // width // self.threads)
        least = 16 if width > 1 else packs if terms > FEW_TERMS else 1
        return max((k for k in range(2, most + 1) if packs % k == 0 and packs // k * width >= least), default=1)


H200 = Gpu(cores=132, threads=2**17, together=16)
"""An NVIDIA H200; the numbers are fitted to measured times."""

APPLE = Gpu(cores=16, threads=2**14, together=8)
"""An Apple GPU of 8 to 40 cores. The numbers are reasoned, not measured: about as many threads in a core as on an H200,
and half of the floats in a thread, which has fewer registers."""


class Tables(list[Array]):
    """Arrays that never change, such as index tables; a device without arrays of its own copies them once."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        """Store the arrays, none of which may be written later."""
        super().__init__(arrays)
        self.size = max(array.size for array in self)
        self.made: dict[Any, Any] = {}
        """What is made of the tables, by what it depends on in addition."""
        self._on: dict[Device, Sequence[Any]] = {}

    def on(self, device: Device) -> Sequence[Any]:
        """Return the arrays in the memory of a device."""
        buffers = self._on.get(device)
        if buffers is None:
            buffers = self if has_arrays(device) else [device.buffer(array) for array in self]
            self._on[device] = buffers
        return buffers


Buffers: TypeAlias = Sequence[Any]
"""The input buffers of a function in their order, arrays and ``Tables``."""


def bound(device: Device, buffers: Buffers) -> list[Any]:
    """Return input buffers as arguments of a launch."""
    arguments: list[Any] = []
    for buffer in buffers:
        arguments += buffer.on(device) if isinstance(buffer, Tables) else (buffer,)
    return arguments


class Step(NamedTuple):
    """A launch of several that fill one result."""

    function: str
    buffers: Buffers
    known: tuple[str, ...]
    threads: int


class Launcher:
    """Runs MSL functions on a device, which is opened at the first launch."""

    def __init__(self, device: Callable[[], Device], gpu: Gpu = H200) -> None:
        """Store ``device``, which returns the device of a call, and the GPU for which launches are tuned."""
        self.device, self.gpu = device, gpu
        self._function: Callable[..., Function] = cache(self._compile)

    def run(
        self,
        files: tuple[str, ...],
        function: str,
        buffers: Buffers,
        results: Sequence[tuple[Shape, DTypeLike]],
        known: tuple[str, ...] = (),
        count: int | None = None,
    ) -> list[Array]:
        """Run a function and return its results.

        Parameters
        ----------
        files : tuple of str
            The files of the source after the prelude.
        function : str
            The name of the function.
        buffers : sequence of ndarray or Tables
            The input buffers, C-contiguous.
        results : sequence of (shape, dtype)
            The result buffers, which follow the input buffers. Float results are initialized with NaN, because a fault
            on a GPU may not be reported.
        known : tuple of str, optional
            Lines of MSL before the prelude: compile-time constants, in addition to ``Index``.
        count : int, optional
            Number of threads; default: one for each element of the first result.

        Returns
        -------
        list of ndarray
            On an ``ArrayDevice``, arrays on the device, which NumPy functions copy to the host.
        """
        sizes = [math.prod(shape) for shape, _ in results]
        threads = _checked(sizes[0] if count is None else count, *sizes)
        device = self.device()
        run = self._function(device, files, function, (*known, _index([*buffers, *sizes])))
        arguments = bound(device, buffers)
        if has_arrays(device):
            made = [device.result(shape, dtype) for shape, dtype in results]
            run(threads, *arguments, *made)
            return made
        memories = [
            device.buffer(size * np.dtype(dtype).itemsize) for size, (_, dtype) in zip(sizes, results, strict=True)
        ]
        arrays = [
            np.frombuffer(memory, dtype).reshape(shape)
            for memory, (shape, dtype) in zip(memories, results, strict=True)
        ]
        for array in arrays:
            array.fill(np.nan if array.dtype.kind == "f" else 0)
        handle = run(threads, *arguments, *memories)
        del handle  # waits
        return arrays

    def into(
        self,
        files: tuple[str, ...],
        function: str,
        buffers: Buffers,
        out: Array | tuple[Array, ...],
        known: tuple[str, ...] = (),
        count: int | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        """Run a function with results of a dtype and of the shapes of ``out``, and round them into ``out``.

        ``count`` is the number of threads, by default one for each element of the first result. Arrays of the dtype on
        the device are written directly.
        """
        device, outs = self.device(), out if isinstance(out, tuple) else (out,)
        if has_arrays(device) and all(device.is_result(one, dtype) for one in outs):
            threads = _checked(outs[0].size if count is None else count, *(one.size for one in outs))
            known = (*known, _index([*buffers, *outs]))
            run = self._function(device, files, function, known)
            run(threads, *bound(device, buffers), *map(device.cleared, outs))
            return
        results = self.run(files, function, buffers, [(one.shape, dtype) for one in outs], known, count)
        for result, one in zip(results, outs, strict=True):
            store(result, one)

    def empty(self, shape: Shape) -> Array:
        """Return a float32 array for results of ``into``, on an ``ArrayDevice`` in its memory."""
        device = self.device()
        if has_arrays(device):
            return cast(Array, device.result(shape, np.float32))
        return np.empty(shape, np.float32)

    def in_parts(self, files: tuple[str, ...], steps: Sequence[Step], shape: Shape, out: Array | None = None) -> Array:
        """Run launches that fill parts of one float32 result of a shape; return it, or round it into ``out``."""
        device, size = self.device(), math.prod(shape)
        if has_arrays(device):
            direct = out is not None and device.is_result(out, np.float32)
            result = memory = device.cleared(out) if direct else device.result(shape, np.float32)
        else:
            memory = device.buffer(4 * size)
            result = np.frombuffer(memory, np.float32).reshape(shape)
            result.fill(np.nan)
        for function, buffers, known, threads in steps:
            run = self._function(device, files, function, (*known, _index([*buffers, size])))
            handle = run(_checked(threads, size), *bound(device, buffers), memory)
            del handle  # waits
        if out is None or result is out:
            return cast(Array, result)
        store(result, out)
        return out

    def __call__(
        self,
        files: tuple[str, ...],
        function: str,
        images: Sequence[Array],
        tables: Sequence[Array],
        out: Array,
        terms: float,
        groups: bool = False,
    ) -> None:
        """Run a gather over windows with one thread for ``width_of`` channels, and round the results into ``out``.

        The buffers are ``images`` (a source gradient, if any, then the source image), ``tables``, the struct
        ``Shapes``, and the result. ``Tables`` are copied to the device once. Sums have at most ``terms`` terms. With
        ``groups`` the function computes several packs of a pixel in a thread, see ``Gpu.together_of``.
        """
        width, gathered = width_of(out.shape[3], *images, out), images[0]
        known, shapes, count = _gather(
            self.gpu, gathered.shape, out.shape, gathered.dtype, images[-1].dtype, width, terms, groups
        )
        others = [tables] if isinstance(tables, Tables) else tables
        self.into(files, function, [*images, *others, shapes], out, known, count)

    @staticmethod
    def _compile(device: Device, files: tuple[str, ...], function: str, known: tuple[str, ...]) -> Function:
        parts = ("prelude", *files)
        texts = [f'#line 1 "{file}.metal"\n{(SOURCES / f"{file}.metal").read_text("utf-8")}' for file in parts]
        # The check of a source that begins with the library's header uses the precompiled header.
        source = "\n".join(["#include <metal_stdlib>", "#define SPECIALIZED", *known, *texts])
        return device.kernel(source).function(function)


@lru_cache(1024)
def _gather(
    gpu: Gpu, gathered: Shape, shape: Shape, gradient: DType, storage: DType, width: int, terms: float, groups: bool
) -> tuple[tuple[str, ...], Tables, int]:
    """Return the constants of a gather, the struct ``Shapes``, and the number of threads."""
    size = math.prod(shape)
    together = gpu.together_of(size, shape[3], width, terms) if groups else 1
    known = *types(width, Storage=storage, Gradient=gradient), *short_sums(terms), *packs_together(together)
    return known, shapes_of(gathered, shape, width, together), size // width // together


def has_arrays(device: Device) -> TypeGuard[ArrayDevice]:
    """Return whether a device has arrays of its own."""
    return _have_arrays(type(device))


@cache
def _have_arrays(kind: type[Device]) -> bool:
    return issubclass(kind, ArrayDevice)  # looks up each method of the protocol, which takes 20 microseconds


def _checked(threads: int, *sizes: int) -> int:
    """Check that 32 bits suffice for thread positions and result elements; return the number of threads."""
    if max(threads, *sizes) > MOST_THREADS:
        raise UnsupportedError(
            f"the result has {max(threads, *sizes)} elements; a launch has at most {MOST_THREADS}: split the batch"
        )
    return threads


def width_of(channels: int, *arrays: Array | Tables) -> int:
    """Return how many neighbouring channels a thread computes: ``WIDE`` if all arrays are aligned to them, else 1.

    ``channels`` is the number of channels of all of ``arrays``, or their greatest common divisor. Arrays in the memory
    of a device may begin anywhere; NumPy arrays are copied to aligned memory.
    """
    if channels % WIDE:
        return 1
    for array in arrays:  # not any(...), which calls a function for each
        if getattr(array, "address", 0) % (4 * WIDE):
            return 1
    return WIDE


def types(width: int, **images: Array | type[np.generic] | np.dtype[np.generic]) -> tuple[str, ...]:
    """Return the lines of MSL for threads that compute ``width`` channels: ``Values``, and the types of stored images.

    >>> types(4, Storage=np.float16)[1::3]
    ('#define Values float4', '#define Storage half4')
    """
    stored = [(name, image if isinstance(image, (type, np.dtype)) else image.dtype) for name, image in images.items()]
    return _types(width, *stored)


@cache
def _types(width: int, *dtypes: tuple[str, DTypeLike]) -> tuple[str, ...]:
    lanes = "" if width == 1 else str(width)
    return (
        f"constant constexpr uint WIDTH = {width};",
        f"#define Values float{lanes}",
        f"#define Flags bool{lanes}",
        f"#define Counts uint{lanes}",
        *(f"#define {name} {STORAGE[np.dtype(dtype).name]}{lanes}" for name, dtype in dtypes),
    )


def short_sums(terms: float) -> tuple[str, ...]:
    """Return the line of MSL that says that a sum has few terms, if ``terms`` is that."""
    return ("#define SHORT_SUMS",) if terms <= LONGEST else ()


def typedef(name: str, image: Array) -> str:
    """Return the MSL typedef ``name`` for the type of a value of an image."""
    return f"typedef {STORAGE[image.dtype.name]} {name};"


def _index(buffers: Iterable[Array | Tables | int]) -> str:
    """Return the typedef of ``Index``, an index of an element of any of the buffers."""
    most = max([buffer if isinstance(buffer, int) else buffer.size for buffer in buffers])
    return f"typedef {'uint' if most < MOST_INDICES else 'ulong'} Index;"


def store(result: Array, out: Array) -> None:
    """Round a result to the dtype of ``out``."""
    if result.dtype == out.dtype:
        out[...] = result.reshape(out.shape)
        return
    with np.errstate(over="ignore"):
        out[...] = result.reshape(out.shape)


@lru_cache(1024)
def shapes_of(gathered: Shape, shape: Shape, width: int, together: int = 1) -> Tables:
    """Return the struct ``Shapes`` of the prelude for a result; ``gathered`` is the shape of what is summed."""
    n, height, columns, channels = shape
    packs = channels // width
    size = n * height * columns * packs // together, packs, height, columns
    return Tables([np.array([*size, *gathered[1:3], *extent(height, columns, packs // together)], np.uint32)])


def packs_together(number: int) -> tuple[str, ...]:
    """Return the line of MSL that says how many packs a thread computes, if more than one."""
    return (f"#define TOGETHER {number}",) if number > 1 else ()


def extent(*size: int) -> tuple[int, ...]:
    """Return the struct ``Extent`` of the prelude for a height, a width and a number of packs."""
    return tuple(number for length in size for number in divisor(length))


def divisor(value: int) -> tuple[int, int, int, int]:
    """Return the struct ``Divisor`` of the prelude: value, multiplier, increment and shift.

    The multiplier is ``2**(32 + shift) / value``, rounded up if the error is small enough for all dividends of 32 bits.
    Otherwise it is rounded down and the dividend is increased by 1, and then the error is small enough.

    >>> [divisor(d)[1:] for d in (1, 3, 7)]
    [(4294967295, 1, 0), (2863311531, 0, 1), (2454267026, 1, 2)]
    """
    shift = value.bit_length() - 1
    below, rest = divmod(1 << 32 + shift, value)
    if rest == 0:
        return value, 2**32 - 1, 1, shift
    return (value, below + 1, 0, shift) if value - rest <= 1 << shift else (value, below, 1, shift)
