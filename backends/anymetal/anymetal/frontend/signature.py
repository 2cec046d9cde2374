"""Signatures of kernels, and the check of the arguments of a launch: buffers, their sizes, number of threads."""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Mapping, Sequence
from reprlib import repr as shorten
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..interface import LaunchError
from .kernels import MOST_BUFFERS, MOST_IMAGES, TENSOR, Kernel

MOST_LOCAL_BYTES = 32768
LOCAL_MULTIPLE = 16
MOST_THREADS = 1024
LAYOUT = (
    ". Its size is a multiple of its alignment, and members are aligned: a vector of 3 components has the size and the "
    "alignment of one of 4, unless its type is packed"
)

Extent: TypeAlias = tuple[int, int, int]
"""Numbers of threads or threadgroups along the axes of a grid."""


NAME = re.compile(r"\( ?[*&] ?(\w+) ?\)|[\w)>*& ]\b(\w+)(?: ?\[.*\])*(?:, element \d+)?$")
"""The name of a parameter in its declaration."""


class Parameter(NamedTuple):
    """A buffer of a kernel, or its threadgroup memory of a length that the caller chooses."""

    text: str
    """The declaration."""
    nbytes: int
    """The size of its element; for a reference, of what it refers to."""
    alignment: int
    is_written: int
    is_reference: int
    numbers: int = 0
    """The kind of the numbers in it, a letter of NumPy (``V`` for bfloat) * 256, plus their bytes; 0 for a struct."""
    members: Mapping[str, Member] = {}
    """The members of a struct in which some are pointers."""
    texels: Texels | None = None
    """The sizes of a texture."""

    @property
    def name(self) -> str:
        """The name in the declaration, or an empty string."""
        found = NAME.search(self.text)
        return (found[1] or found[2]) if found else ""

    @property
    def is_element(self) -> bool:
        """Whether it is one of an array of buffers."""
        return ", element " in self.text

    @property
    def rank(self) -> int:
        """The number of dimensions of a tensor, 0 for another parameter."""
        return self.members[TENSOR[1]].length if TENSOR[1] in self.members else 0

    @property
    def element(self) -> Parameter:
        """What a buffer consists of: the elements of a tensor, or itself."""
        return self.members[TENSOR[0]].about if self.rank else self

    @property
    def is_inner(self) -> bool:
        """Whether it is what a pointer in a struct points to; its text is ``buffer(0).y``."""
        return self.text.startswith("buffer(")

    @property
    def dtype(self) -> str | None:
        """The name of the dtype of the numbers in it; None for another type."""
        return _dtype(self.numbers)


@functools.cache
def _dtype(numbers: int) -> str | None:
    kind, size = chr(numbers >> 8), numbers & 255
    return (np.dtype(f"{kind}{size}").name if kind != "V" else "bfloat16") if size else None


class Image(NamedTuple):
    """A texture or a sampler of a kernel."""

    text: str
    """The declaration."""
    kind: int
    """The bits of texture.h, or 255 for a sampler."""
    access: int = 0
    """The position in ``ACCESSES``."""
    component: str = ""
    """``h``, ``f``, ``i`` or ``u``: half, float, signed, unsigned."""

    @property
    def name(self) -> str:
        """The name in the declaration, or an empty string."""
        found = NAME.search(self.text)
        return (found[1] or found[2]) if found else ""

    @property
    def is_written(self) -> int:
        """Whether the kernel may write it."""
        return int(self.access >= ACCESSES.index("write"))


ACCESSES = ("sample", "read", "write", "read_write")


class Texels(NamedTuple):
    """The sizes of a texture in memory, as the levels of mipmaps follow each other."""

    width: int
    height: int
    depth: int
    slices: int
    levels: int
    size: int
    """The bytes of a texel."""

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """Width, height and depth of each level."""
        whole_size = (self.width, self.height, self.depth)
        return [
            (max(x >> i, 1), max(y >> i, 1), max(z >> i, 1)) for i in range(self.levels) for x, y, z in (whole_size,)
        ]

    def place(self, offset: int) -> str:
        """Return where the texel with a byte is, in words."""
        texel, level = offset // self.size, 0
        while texel >= (count := self.slices * math.prod(self.shapes[level])):
            texel, level = texel - count, level + 1
        width, height, depth = self.shapes[level]
        row, x = divmod(texel, width)
        plane, y = divmod(row, height)
        n, z = divmod(plane, depth)
        parts = [str(x), *([str(y)] if self.height > 1 else []), *([str(z)] if self.depth > 1 else [])]
        more = [f" of slice {n}"] * (self.slices > 1) + [f" of level {level}"] * (level > 0)
        return "".join((f"({', '.join(parts)})", *more))

    def __str__(self) -> str:
        sizes = [self.width, self.height, *([self.depth] if self.depth > 1 else [])]
        return "x".join(map(str, sizes)) + " texels" + (f" with {self.slices} slices" if self.slices > 1 else "")


class Member(NamedTuple):
    """A member of a struct with pointers: numbers, or pointers to numbers."""

    offset: int
    length: int
    """The number of elements of an array, else 1."""
    is_pointer: int
    about: Parameter
    """What it is, or what it points to."""
    image: Image | None = None
    """What it is if it is a texture or a sampler."""


class Pointer(NamedTuple):
    """What a pointer in a struct points to."""

    name: str
    about: Parameter
    target: At


class Record(NamedTuple):
    """The bytes of structs, and what the pointers in them point to, by offset."""

    data: bytes
    pointers: Mapping[int, Pointer]
    textures: Mapping[int, int] = {}
    """Where in the table of the launch textures are that it holds, by offset."""


NO_IMAGES: Mapping[str, Mapping[int, Image]] = {kind: {} for kind in MOST_IMAGES}


class Signature(NamedTuple):
    """The parameters of a kernel and the size of its threadgroups."""

    name: str
    threads: int
    """The attribute ``max_total_threads_per_threadgroup``, with a default defined by the runtime."""
    parameters: Mapping[int, Parameter]
    """The buffers, by index."""
    locals: Mapping[int, Parameter]
    """The threadgroup memory, by index."""
    axes: int = 1
    """The number of components of the thread positions."""
    images: Mapping[str, Mapping[int, Image]] = NO_IMAGES
    """The textures and the samplers, by index."""
    table: int = -1
    """The index of the buffer that describes them, or -1."""

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        threads: int | None,
        about: Sequence[int],
        bindings: Sequence[int],
        members: Sequence[int] = (),
        images: Sequence[int] = (),
        image_bindings: Sequence[int] = (),
    ) -> Signature:
        """Create it from a kernel, the threads that it names, and the arrays of its library (see abi.h)."""
        found: dict[str, dict[int, Parameter]] = {"buffer": {}, "threadgroup": {}}
        rows, parts = zip(*(iter(about[1:]),) * 6, strict=True), zip(*(iter(members),) * 7, strict=True)
        for parameter, row, index, exists in zip(kernel.bindings, rows, bindings[::2], bindings[1::2], strict=False):
            *numbers, length = row
            inner = {name: _member(name, *part) for name, part in zip(parameter.members, parts, strict=False)}
            for i in range(length if exists else 0):
                text = f"{parameter.text}, element {i}" if parameter.is_array else parameter.text
                if index + i >= MOST_BUFFERS:
                    raise LaunchError(
                        f"kernel `{kernel.name}`: `{text}` has the index {index + i}, above {MOST_BUFFERS - 1}"
                    )
                if index + i in found[parameter.kind]:
                    raise LaunchError(f"kernel `{kernel.name}` uses a {parameter.kind} index twice: {index + i}")
                found[parameter.kind][index + i] = Parameter(text, *numbers)._replace(members=inner)
        all_images: dict[str, dict[int, Image]] = {kind: {} for kind in MOST_IMAGES}
        of_images = zip(*(iter(images),) * 4, strict=True)
        for parameter, row, index, exists in zip(
            kernel.images, of_images, image_bindings[::2], image_bindings[1::2], strict=False
        ):
            kind, access, code, length = row
            known, most = all_images[parameter.kind], MOST_IMAGES[parameter.kind]
            for i in range(length if exists else 0):
                text = f"{parameter.text}, element {i}" if parameter.is_array else parameter.text
                if index + i >= most:
                    raise LaunchError(
                        f"kernel `{kernel.name}`: `{text}` has the {parameter.kind} index {index + i}, above {most - 1}"
                    )
                if index + i in known:
                    raise LaunchError(f"kernel `{kernel.name}` uses a {parameter.kind} index twice: {index + i}")
                known[index + i] = Image(text, kind, access, chr(code))
        return cls(
            kernel.name,
            MOST_THREADS if threads is None else threads,
            dict(sorted(found["buffer"].items())),
            dict(sorted(found["threadgroup"].items())),
            kernel.axes,
            {kind: dict(sorted(one.items())) for kind, one in all_images.items()},
            kernel.table,
        )

    @property
    def buffers(self) -> int:
        """The number of buffers of a launch."""
        return max(self.table, *self.parameters, -1) + 1

    def is_written(self, index: int) -> int:
        """Return whether the kernel may write a buffer."""
        return self.parameters[index].is_written if index in self.parameters else 0

    def check_threads(self) -> None:
        """Raise for a threadgroup size that metalcompute cannot launch; it divides by the number of simdgroups."""
        if self.threads not in range(32, 1025, 32):
            raise LaunchError(
                f"kernel `{self.name}` has max_total_threads_per_threadgroup({self.threads}); "
                "legal values are the multiples of 32 from 32 to 1024"
            )

    def check_limits(self, nbytes: int) -> None:
        """Raise if no pipeline can have the threadgroup variables of a kernel, or the threads that it names."""
        self.check_local(nbytes)
        if not 1 <= self.threads <= MOST_THREADS:
            raise LaunchError(
                f"kernel `{self.name}` has max_total_threads_per_threadgroup({self.threads}); a threadgroup has 1 to "
                f"{MOST_THREADS} threads: name at most as many"
            )

    def check_local(self, nbytes: int, parts: str = "") -> None:
        """Raise if a kernel has more threadgroup memory than Metal provides."""
        if nbytes > MOST_LOCAL_BYTES:
            raise LaunchError(
                f"kernel `{self.name}` has {shorten(nbytes)} bytes of threadgroup memory{parts}; "
                f"the maximum is {MOST_LOCAL_BYTES}: use smaller arrays, or more threadgroups with a part each"
            )

    def check_lengths(self, static: int, local: Mapping[int, int]) -> None:
        """Raise for an illegal length of threadgroup memory; ``static`` are the bytes of variables."""
        for index, known in self.locals.items():
            nbytes, what = local.get(index, 0), f"threadgroup({index}) of kernel `{self.name}`, `{known.text}`"
            if nbytes < max(known.nbytes, 1) or nbytes % LOCAL_MULTIPLE:
                raise LaunchError(
                    f"{what}, needs a length in bytes, a multiple of {LOCAL_MULTIPLE} from {known.nbytes} on, "
                    f"not {shorten(nbytes)}: local={{{index}: n}}"
                )
        for index in local:
            if index not in self.locals:
                known_indices = ", ".join(f"threadgroup({i})" for i in self.locals) or "none"
                raise LaunchError(
                    f"kernel `{self.name}` has no parameter threadgroup({shorten(index)}); it has {known_indices}"
                )
        self.check_local(static + sum(local.values()), f", {static} of them in variables" if local else "")

    def check_arguments(self, given: int, expected: int | None = None) -> None:
        """Raise for a wrong number of buffers; the default is one for each index up to the largest."""
        expected = self.buffers if expected is None else expected
        if given != expected:
            raise LaunchError(
                f"kernel `{self.name}` takes {expected} buffers, not {given}: "
                + ", ".join(f"buffer({i}) is `{known.text}`" for i, known in sorted(self.parameters.items()))
            )

    def check_size(self, index: int, nbytes: int, *, is_value: bool = False) -> None:
        """Raise for a buffer that is smaller than what its reference refers to, or for a value of another size."""
        known = self.parameters.get(index)
        if known is None or not known.is_reference or nbytes == known.nbytes:
            return
        if nbytes < known.nbytes or is_value:
            raise LaunchError(
                f"buffer({index}) of kernel `{self.name}`, `{known.text}`, needs {known.nbytes} bytes and has {nbytes}"
                + (LAYOUT if known.nbytes > 8 else "")
            )

    def check_offset(self, name: str, offset: int, alignment: int, nbytes: int) -> None:
        """Raise for an offset that lies outside of a buffer, or is not aligned."""
        if offset >= nbytes or offset % alignment:
            raise LaunchError(
                f"{name} of kernel `{self.name}`: the offset {shorten(offset)} is not a multiple of {alignment} below "
                f"{nbytes}, the bytes of the buffer"
            )

    def groups(self, count: Any, threads: int) -> int:
        """Return the number of threadgroups of ``threads`` threads that run ``count`` threads."""
        wanted = whole("count", count, "the number of threads")
        groups = -(-wanted // threads)
        if not 0 < groups * threads <= 2**32:
            raise LaunchError(
                f"count={shorten(wanted)}: the number of threads is 1 to 2**32 after rounding up to threadgroups"
            )
        return groups

    def grid(self, threads: Any, threadgroup: Any) -> tuple[Extent, Extent]:
        """Return the threads of an exact grid and of its threadgroups, along three axes."""
        grid = _extent("threads", threads)
        return grid, self._width("threads", grid, (min(grid[0], self.threads),) if threadgroup is None else threadgroup)

    def whole_grid(self, groups: Any, threadgroup: Any) -> tuple[Extent, Extent]:
        """Return the threads of a grid of whole threadgroups, and of its threadgroups, along three axes."""
        counts = _extent("groups", groups, "a number of threadgroups")
        width = _extent("threadgroup", threadgroup)
        x, y, z = (count * size for count, size in zip(counts, width, strict=True))
        if max(x, y, z) > 2**32 - 1:
            raise LaunchError(f"groups={counts} of threadgroup={width}: the threads along an axis are 1 to 2**32 - 1")
        return (x, y, z), self._width("groups", (x, y, z), width)

    def _width(self, name: str, grid: Extent, threadgroup: Any) -> Extent:
        """Return the threads of a threadgroup, checked with the threads of the grid."""
        chosen = _extent("threadgroup", threadgroup)
        most = min(self.threads, MOST_THREADS)
        if math.prod(chosen) > most:
            raise LaunchError(
                f"threadgroup={chosen}: a threadgroup of kernel `{self.name}` has at most {most} threads; use smaller "
                "ones"
            )
        if self.axes == 1 and math.prod(grid) != grid[0]:
            raise LaunchError(
                f"threads={grid}: kernel `{self.name}` has thread positions of one component, for grids of one axis"
            )
        if math.prod(grid) > 2**32:
            raise LaunchError(f"{name}={grid}: the number of threads is 1 to 2**32")
        return chosen


IMAGE_MEMBER = 2
"""``is_pointer`` of a texture or a sampler."""


def _member(name: str, offset: int, length: int, is_pointer: int, *about: int) -> Member:
    nbytes, alignment, is_written, numbers = about
    if is_pointer == IMAGE_MEMBER:
        image = Image(name, numbers & 255, is_written, chr(numbers >> 8))
        return Member(offset, length, is_pointer, Parameter(name, nbytes, alignment, 0, 0), image)
    return Member(offset, length, is_pointer, Parameter(name, nbytes, alignment, is_written, 0, numbers))


class At(NamedTuple):
    """A buffer from an offset in bytes on, made by :func:`at`, or one with undefined contents (:func:`undefined`)."""

    buffer: Any
    offset: int = 0
    is_undefined: bool = False

    @classmethod
    def of(cls, argument: Any) -> At:
        """Return an argument of a launch as one."""
        return argument if isinstance(argument, At) else cls(argument)


def undefined(buffer: Any, /) -> At:
    """Return a buffer whose contents the kernel must not use before it has written them, as an argument of a launch.

    A launch with ``sanitize=True`` reports a read of such an element. ``buffer`` may be the result of :func:`at`; all
    of its memory is undefined then.

    Examples
    --------
    >>> import anymetal
    >>> library = anymetal.compile('''
    ... kernel void twice(device float *x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }''', sanitize=True)
    >>> library["twice"](3, 3, anymetal.undefined(np.zeros(3, np.float32)))
    Traceback (most recent call last):
        ...
    anymetal.LaunchError: kernel `twice`: 1 error...
    """
    return At.of(buffer)._replace(is_undefined=True)


def at(buffer: Any, offset: int, /) -> At:
    """Return a buffer from an offset in bytes on, as an argument of a launch.

    Raises
    ------
    LaunchError
        If the offset is negative.
    """
    if whole("offset", offset, "an offset in bytes") < 0:
        raise LaunchError(f"offset={shorten(offset)}: an offset in bytes is 0 or more")
    return At(buffer, whole("offset", offset, "an offset in bytes"))


def is_value(argument: Any) -> bool:
    """Return whether an argument is a value for a reference, rather than memory that may be longer."""
    if isinstance(argument, np.ndarray):
        return argument.ndim == 0 or (argument.dtype.fields is not None and argument.size == 1)
    return isinstance(argument, (bytes, np.generic))


def lengths_of(local: Any) -> dict[int, int]:
    """Return lengths of threadgroup memory by index."""
    if local is None:
        return {}
    if not isinstance(local, Mapping):
        raise TypeError(f"local is of type {type(local).__name__}; it is a mapping from an index to a length in bytes")
    named = local.items()
    return {whole("local", key, "an index"): whole(f"local[{key}]", value, "a length") for key, value in named}


def indirect(groups: Any) -> tuple[int, ...]:
    """Return the numbers of threadgroups in a buffer."""
    buffer, offset, _ = At.of(groups)
    found = bytes_of(buffer)
    if isinstance(found, int) or offset % 4 or offset + 12 > found.nbytes:
        size = "no buffer" if isinstance(found, int) else f"{found.nbytes} bytes"
        raise LaunchError(
            f"the numbers of threadgroups are three of type uint32 (12 bytes) at an offset that is a multiple of 4: "
            f"the offset is {shorten(offset)}, in {size}"
        )
    return tuple(map(int, found[offset : offset + 12].view(np.uint32)))


def _extent(name: str, value: Any, what: str = "a number of threads") -> Extent:
    """Return one to three numbers of threads as three."""
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(parts) <= 3:
        raise LaunchError(f"{name}={shorten(value)} has one to three components")
    sizes = tuple(whole(name, part, what) for part in parts)
    if min(sizes) < 1 or max(sizes) > 2**32 - 1:
        raise LaunchError(f"{name}={shorten(value)}: {what} is 1 to 2**32 - 1")
    x, y, z = *sizes, *(1 for _ in range(3 - len(sizes)))
    return x, y, z


def whole(name: str, value: Any, meaning: str) -> int:
    """Return an integer; raise ``TypeError`` for anything else, a bool too."""
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name}={shorten(value)} of type {type(value).__name__}: {meaning} is an integer")


def device_index(index: Any, known: int) -> int:
    """Return the index of a device of this machine; -1 is the first."""
    number = whole("index", index, "the index of a device")
    if number not in range(-1, known):
        devices = "there is one device, 0" if known == 1 else f"this machine has the devices 0 to {known - 1}"
        raise LaunchError(f"index={shorten(number)}: {devices}")
    return max(number, 0)


def bytes_of(argument: Any) -> NDArray[np.uint8] | int:
    """Return the bytes of an object with the buffer protocol, or the length that an integer is."""
    if type(argument) is int:
        return argument
    if isinstance(argument, np.ndarray) and argument.dtype.kind == "V" and _is_extension(argument):
        argument = argument.reshape(-1).view(np.uint8)
    try:
        view = memoryview(argument)
    except (TypeError, ValueError):  # ValueError: an array of a dtype that the protocol has no format of
        if hasattr(type(argument), "__index__") and not isinstance(argument, (bool, np.ndarray)):
            return whole("length", argument, "the length of a buffer")
        raise TypeError(
            "an argument is an object with the buffer protocol or the length of a new buffer, not "
            f"{shorten(argument)} of type {type(argument).__name__}"
        ) from None
    if "O" in view.format:
        raise TypeError("the array holds Python objects; pass an array of numbers")
    if not view.c_contiguous:
        raise LaunchError("the array is not C-contiguous: pass numpy.ascontiguousarray(...)")
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def _is_extension(array: NDArray[Any]) -> bool:
    """Return whether an array may be viewed as bytes, and has a dtype of ml_dtypes: their buffers have no format."""
    return array.dtype.fields is None and array.flags.c_contiguous and array.size > 0


def find_kernel(name: Any, known: Mapping[str, Any]) -> Any:
    """Return the entry of a kernel function in ``known``."""
    if not isinstance(name, str):
        raise TypeError(f"name is of type {type(name).__name__}; it is the name of a kernel function, a str")
    if name not in known:
        raise LaunchError(f"no kernel {shorten(name)} in this source; it has {', '.join(known)}")
    return known[name]
