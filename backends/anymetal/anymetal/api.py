"""Compile Metal Shading Language, and call its kernels with NumPy arrays."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from reprlib import repr as shorten
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import isolation
from .arguments import as_number, check_array, record, tensor
from .clang.device import launch_seconds, sparse_memory
from .clang.findings import Finding
from .clang.lines import Place
from .clang.report import found_error
from .frontend.signature import ACCESSES, At, Image, Parameter, Record, is_value
from .frontend.toolchain import LARGEST_TEXT
from .images import COMPONENTS, ROUNDINGS, Table, axes_of, kind_name
from .interface import CompileError, LaunchError
from .isolation import Call, Request, Results, placed

Size: TypeAlias = int | Sequence[int]
"""A number of threads or threadgroups, or up to three."""

Images: TypeAlias = Sequence[Any] | Mapping[int, Any]
"""Textures or samplers, from index 0 on or by index."""

RUNTIMES = ("clang", "cuda", "metalcompute")


@dataclass(frozen=True)
class Launch:
    """What a launch did."""

    changed: Mapping[int | str, int]
    """The number of elements that have other bytes than before, for each buffer that the kernel may write;
    ``"0.y"`` is that to which the member ``y`` of buffer 0 points. ``"texture(1)"`` is texture 1, with its texels."""
    written: Mapping[int | str, int] | None = None
    """The number of elements that were written; None without ``sanitize``."""
    findings: tuple[Finding, ...] = ()
    """What the checks found, below the level of an error."""
    unreached: tuple[Place, ...] = ()
    """With ``sanitize``: the lines of the kernel that no thread reached."""
    unread: Mapping[int | str, int] | None = field(default=None, repr=False)
    """With ``unread=True``: the number of elements that no thread read, for each buffer that the kernel only reads; and
    by the name of threadgroup memory the bytes that were written last and not read, of all threadgroups."""


class Kernel:
    """A kernel function of a :class:`Library`."""

    def __init__(self, request: Request, function: Any, isolate: bool) -> None:
        """Returned by ``library[name]``."""
        self._request, self._function, self._isolate = request, function, isolate
        self._apart: Kernel | None = None
        signature = function.signature
        self._known = [
            (index, known, f"buffer({index}) of kernel `{signature.name}`, `{known.text}`")
            for index, known in sorted(signature.parameters.items())
        ]
        self._count = signature.buffers

    def __call__(
        self,
        grid: Size,
        group: Size,
        /,
        *arguments: Any,
        local: Mapping[int, int] | None = None,
        seconds: float | None = None,
        textures: Images = (),
        samplers: Images = (),
        **named: Any,
    ) -> Launch:
        """Run exactly the threads of a grid, as Metal's ``dispatchThreads``.

        Parameters
        ----------
        grid, group : int or sequence of int
            The threads of the grid and of a threadgroup, along one to three axes.
        *arguments : object
            The buffers in the order of their indices, which is that of :attr:`parameters`. NumPy arrays have the dtype
            of the declaration and are changed in place, after the launch has succeeded, if the kernel may write them.
            ``anymetal.at(array, offset)`` binds an array from an offset in bytes on. A parameter ``constant T&``
            takes a Python number that is in the range of T, a NumPy scalar of its dtype, a structured array of its
            size, or ``bytes`` of its size. A struct in which some members are pointers is a mapping from the names of
            its members to arrays and numbers, and several are a list of such; ``None`` is a null pointer.
            ``array<device T *, N>`` is N arguments. A tensor is an array of as many axes, the last of which is its
            first dimension, and may have strides.
        local : mapping of int to int, optional
            The bytes of each parameter with the attribute ``[[threadgroup(index)]]``, multiples of 16.
        seconds : float, optional
            Limit of the processor time of the launch. The default is in ``ANYMETAL_LAUNCH_SECONDS``, else 60.
        textures : sequence or mapping, optional
            The textures from index 0 on, or by index: arrays of NumPy, :class:`anymetal.Texture`, or None for a null
            texture. The axes of an array are those of the declaration, ``(height, width, components)`` for
            ``texture2d``; see :doc:`textures`. An array of textures takes as many indices.
        samplers : sequence or mapping, optional
            The samplers, each an :class:`anymetal.Sampler`.
        **named : object
            Buffers, textures and samplers by the names of their parameters: those that no other argument binds.
            ``array<device T *, N>`` is a sequence. A parameter with the name of one of the arguments above is bound by
            its position.

        Returns
        -------
        Launch
            How many elements of each written buffer changed.

        Raises
        ------
        LaunchError
            For illegal arguments and for undefined behaviour of the kernel; no array is changed.
        """
        with refused():
            bound, images = self._bound(arguments, named, textures, samplers)
            return self._launch("dispatch", grid, group, bound, images, local, seconds)

    def threadgroups(
        self,
        groups: Any,
        group: Size,
        /,
        *arguments: Any,
        local: Mapping[int, int] | None = None,
        seconds: float | None = None,
        textures: Images = (),
        samplers: Images = (),
        **named: Any,
    ) -> Launch:
        """Run whole threadgroups, as Metal's ``dispatchThreadgroups``.

        Parameters
        ----------
        groups : int, sequence of int, or At
            The threadgroups along one to three axes; ``anymetal.at(array, offset)`` reads three numbers of dtype uint32
            there.
        group : int or sequence of int
            The threads of a threadgroup.
        *arguments, local, seconds, textures, samplers, **named
            As for a call.

        Returns
        -------
        Launch
            How many elements of each written buffer changed.

        Raises
        ------
        LaunchError
            As for a call.
        """
        with refused():
            bound, images = self._bound(arguments, named, textures, samplers)
            return self._launch("dispatch_threadgroups", groups, group, bound, images, local, seconds)

    @property
    def images(self) -> Mapping[str, Mapping[int, Image]]:
        """The textures and the samplers by index."""
        known: Mapping[str, Mapping[int, Image]] = self._function.signature.images
        return known

    @property
    def parameters(self) -> Mapping[int, Parameter]:
        """The buffers by index, in its order, as the compiler has laid them out."""
        known: Mapping[int, Parameter] = self._function.signature.parameters
        return known

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the compiler found without a launch: variables that are used before they are set."""
        return tuple(getattr(self._function, "findings", ()))

    def describe(self) -> dict[str, Any]:
        """Return the kernel as JSON data: name, largest threadgroup, bytes of threadgroup variables, and arguments."""
        signature = self._function.signature
        kinds = {"buffer": signature.parameters, "threadgroup": signature.locals}
        return {
            "name": signature.name,
            "threads": signature.threads,
            "threadgroup_bytes": self._function.variable_bytes,
            "arguments": [
                {"index": index, "kind": kind, "type": known.text, "bytes": known.element.nbytes}
                | {"dtype": known.element.dtype, "alignment": known.element.alignment}
                | {"written": bool(known.element.is_written)}
                | ({"rank": known.rank} if known.rank else {})
                | ({"members": list(known.members)} if known.members and not known.rank else {})
                for kind, found in kinds.items()
                for index, known in sorted(found.items())
            ]
            + [
                {"index": index, "kind": kind, "type": image.text}
                | (
                    {
                        "texture": kind_name(image.kind),
                        "access": ACCESSES[image.access],
                        "written": bool(image.is_written),
                    }
                    | {"component": COMPONENTS[image.component], "axes": [*axes_of(image.kind), "components"]}
                    if kind == "texture"
                    else {}
                )
                for kind, found in signature.images.items()
                for index, image in found.items()
            ],
        }

    def _bound(
        self, given: tuple[Any, ...], named: Mapping[str, Any], textures: Images, samplers: Images
    ) -> tuple[tuple[Any, ...], Mapping[str, Images]]:
        """Return the arguments of a call in the order of the indices of the buffers, and textures and samplers."""
        images: dict[str, Images] = {"texture": textures, "sampler": samplers}
        for kind, value in images.items():
            if not isinstance(value, (Mapping, list, tuple)):
                raise TypeError(f"{kind}s is of type {type(value).__name__}; it is a list, or a mapping from indices")
        if not named:
            return given, images
        for kind, known in self.images.items():
            of_names = dict[str, list[int]]()
            for index, image in known.items():
                of_names.setdefault(image.name, []).append(index)
            if found := of_names.keys() & named.keys():
                one_by_one = images[kind]
                bound = dict(one_by_one) if isinstance(one_by_one, Mapping) else dict(enumerate(one_by_one))
                for key in found:
                    value, indices = named[key], of_names[key]
                    if not bound.keys().isdisjoint(indices):
                        name = self._function.signature.name
                        raise LaunchError(f"kernel `{name}`: `{key}` is bound by its index, too")
                    values = value if len(indices) > 1 else [value]
                    if not isinstance(values, (list, tuple)) or len(values) != len(indices):
                        name = self._function.signature.name
                        what = f"an array of {len(indices)} {kind}s: pass a list of {len(indices)}"
                        raise LaunchError(f"kernel `{name}`: `{key}` is {what}")
                    bound |= zip(indices, values, strict=True)
                images[kind] = bound
                named = {key: value for key, value in named.items() if key not in found}
        return self._buffers(given, named), images

    def _buffers(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the buffers of a call in the order of their indices."""
        if not named:
            return given
        parameters, name = list(self.parameters.values()), self._function.signature.name
        names = [known.name for known in parameters]
        rest = [key for key in names[len(given) :] if key not in names[: len(given)]]
        for key in named:
            if key not in rest:
                problem = "is bound by its position, too" if key in names[: len(given)] else "is no buffer of it"
                listed = ", ".join(dict.fromkeys(names)) or "none"
                raise LaunchError(f"kernel `{name}`: `{key}` {problem}; the buffers are {listed}")
        if missing := [key for key in dict.fromkeys(rest) if key not in named]:
            raise LaunchError(f"kernel `{name}`: no argument for {', '.join(f'`{key}`' for key in missing)}")
        bound = list(given)
        for key in dict.fromkeys(rest):
            if names.count(key) == 1 and not parameters[names.index(key)].is_element:
                bound.append(named[key])
                continue
            value, count = named[key], names.count(key)
            if not isinstance(value, (list, tuple)) or len(value) != count:
                raise LaunchError(f"kernel `{name}`: `{key}` is an array of {count} buffers: pass a list of {count}")
            bound += value
        return tuple(bound)

    def _launch(
        self, method: str, grid: Any, group: Any, given: tuple[Any, ...], images: Mapping[str, Images], local: Any,
        seconds: float | None,
    ) -> Launch:  # fmt: skip
        signature = self._function.signature
        signature.check_arguments(len(given), len(self._known))
        has_images = signature.table >= 0 or any(images.values())
        table = Table(signature.name, signature.images, images, self._request.rounding) if has_images else None
        bound = {one[0]: self._convert(*one, value, table) for one, value in zip(self._known, given, strict=True)}
        if table:
            bound[signature.table] = table.record(lambda array: False)
        arrays: dict[int | str, NDArray[Any]] = {}
        written: dict[int | str, NDArray[Any]] = {}
        numbers: dict[int | str, int] = {index: index for index in range(self._count)}
        behind = itertools.count(self._count)
        for index, value in bound.items():
            if isinstance(value, At) and value.buffer is not None:
                arrays[index] = value.buffer
                if signature.parameters[index].is_written:
                    written[index] = value.buffer
            for pointer in value.pointers.values() if isinstance(value, Record) else ():
                key = f"{index}.{pointer.name}"
                if index == signature.table:
                    key = pointer.name
                elif signature.parameters[index].rank:
                    key = index
                arrays[key], numbers[key] = pointer.target.buffer, next(behind)
                written |= {key: pointer.target.buffer} if pointer.about.is_written else {}
        spots = {i: _place(array) for i, array in arrays.items()}
        sizes = {key: array.itemsize for key, array in arrays.items()}
        if table:
            spots_written = {spots[key] for key in written}
            is_watched = self._function.device.checks and self._function.device.counts_unread
            bound[signature.table] = filled = table.record(lambda array: is_watched or _place(array) in spots_written)
            sizes |= {one.name: one.about.nbytes for one in filled.pointers.values()}
        self._check_overlaps(arrays, written, spots)
        places: dict[tuple[int, int], int] = {}
        position = {i: places.setdefault(spot, len(places)) for i, spot in spots.items()}
        known = {id(array): position[i] for i, array in arrays.items()}
        memory: dict[int, NDArray[np.uint8]] = {}
        for i, array in arrays.items():
            if i in written or position[i] not in memory:
                memory[position[i]] = _bytes(array)
        if self._isolate and any(map(sparse_memory, memory.values())):
            raise LaunchError("sparse memory is used in place: it cannot be sent to a process of its own")
        written = {i: array for i, array in written.items() if sparse_memory(array) is None}
        values = (bound.get(i, UNUSED) for i in range(self._count))
        call = Call(
            method, grid, group, list(memory.values()), sorted({position[i] for i in written}),
            [one if isinstance(one, bytes) else placed(one, lambda array: known[id(array)]) for one in values],
            local, seconds,
        )  # fmt: skip
        started = time.monotonic()
        try:
            done = self._run(call)
        except LaunchError as error:
            if not self._function.device.checks or any(map(sparse_memory, memory.values())):
                raise
            left = launch_seconds(seconds) - (time.monotonic() - started)
            found, run = self._with_columns(call._replace(seconds=max(left, 0)), error.findings)
            raise smaller_case(call, error if found is None else found, run, left) from None
        changed = {}
        for i in written:
            changed[i] = differing(memory[position[i]], done.memory[position[i]], sizes[i])
        for place, after in done.memory.items():
            memory[place][...] = after
        if table:
            table.finish()
        if not self._function.device.checks:
            return Launch(changed)
        counts = {i: done.written[numbers[i]] // sizes[i] for i in written}
        unread: dict[int | str, int] | None = None
        if self._function.device.counts_unread and done.unread is not None:
            unread = {key: value for key, value in done.unread.items() if isinstance(key, str)}
            for i in arrays:
                if not any(position[i] == position[j] for j in written):
                    unread[i] = done.unread[numbers[i]] // sizes[i]
        return Launch(changed, counts, tuple(done.findings), tuple(done.unreached), unread)

    def _run(self, call: Call) -> Results:
        name = self._function.signature.name
        return isolation.run(self._request, name, call) if self._isolate else call.run(self._function)

    def _with_columns(
        self, call: Call, known: Sequence[Finding]
    ) -> tuple[LaunchError | None, Callable[[Call], object]]:
        """Return the error of a launch with the columns that the compiler dropped, and what runs with such columns.

        It makes one access of two, as those of ``c ? x[i] : x[j]``, which has no column. Returns None if no column is
        missing, or the code with separate accesses has other findings.
        """
        lacking = any(one.level == "error" and one.place and not one.place.column for one in known)
        if lacking and self._apart is None:
            request = replace(self._request, is_apart=True)
            with contextlib.suppress(CompileError):  # a clang without the flags
                function = request.function(request.open(), self._function.signature.name)
                self._apart = Kernel(request, function, self._isolate)
        if lacking and self._apart is not None:
            try:
                self._apart._run(call)
            except LaunchError as error:
                if _without_columns(error.findings) == _without_columns(known):
                    return error, self._apart._run
        return None, self._run

    def _check_overlaps(
        self, arrays: Mapping[int | str, NDArray[Any]], written: Collection[int | str], spots: Mapping[int | str, Any]
    ) -> None:
        """Raise if two arrays share a part of their memory, which are not the same, and one of them may be written."""
        for (i, first), (j, second) in itertools.combinations(arrays.items(), 2):
            if not (i in written or j in written) or spots[i] == spots[j]:
                continue
            if np.may_share_memory(first, second):
                names = (str(key) if str(key).startswith("texture") else f"buffer({key})" for key in (i, j))
                raise LaunchError(
                    f"{' and '.join(names)} of kernel `{self._function.signature.name}` overlap, and one may be "
                    "written: pass one array to both, with anymetal.at(array, offset)"
                )

    def _convert(self, index: int, known: Parameter, what: str, value: Any, table: Table | None) -> bytes | At | Record:
        """Return an argument as an array from an offset on, or as the bytes of a value; raise for an illegal one."""
        signature = self._function.signature
        if known.members:
            return tensor(known, value, what) if known.rank else record(known, value, what, table, index)
        array, offset, is_undefined = At.of(value)
        if isinstance(array, (np.ndarray, np.generic)):
            check_array(array, known, what)
        if isinstance(array, np.ndarray):
            signature.check_size(index, max(array.nbytes - offset, 0), is_value=is_value(array))
            return At(array, offset, is_undefined)
        if array is None and self._function.device.checks and not known.is_reference:
            return At(None, 0)  # the launch reports the accesses to it
        if array is None:
            raise LaunchError(f"{what}: it is not bound, the argument is None")
        if not isinstance(array, (bool, int, float, bytes, np.generic)):
            raise TypeError(
                f"{what}: an argument is an array of NumPy, a number or bytes, not a {type(array).__name__}"
            )
        if known.is_written or offset or is_undefined:
            raise LaunchError(f"{what}: it is memory, pass an array of NumPy, not {shorten(array)}")
        if isinstance(array, (bytes, np.generic)):
            data = array if isinstance(array, bytes) else array.tobytes()
        elif known.is_reference:
            data = as_number(array, known.dtype, what)
        else:
            raise LaunchError(f"{what}: it is a pointer, pass an array of NumPy, not {shorten(array)}")
        signature.check_size(index, len(data), is_value=True)
        return data

    def __repr__(self) -> str:
        return f"anymetal.Kernel({self._function.signature.name})"


class refused:
    """Give a finding to the error of a launch that does not begin."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, LaunchError):
            error.findings = error.findings or (Finding("launch", "error", str(error)),)


def _without_columns(findings: Sequence[Finding]) -> set[Any]:
    return {(one.kind, one.level, one.place and (one.place.file, one.place.line)) for one in findings}


def smaller_case(call: Call, error: LaunchError, run: Callable[[Call], object], seconds: float) -> LaunchError:
    """Return an error with a smaller grid and buffers that have its first finding, if a search finds such.

    It ends after some seconds. A difference between orders, which a smaller grid need not have, is no part of it.
    """
    wanted = next(((one.kind, one.place) for one in error.findings if one.level == "error" and one.threads), None)
    end = time.monotonic() + min(SHRINKING_SECONDS, seconds)

    def errors(found: LaunchError) -> set[tuple[str, Place | None]]:
        return {(one.kind, one.place) for one in found.findings if one.level == "error" and one.kind != "order"}

    def has(one: Call) -> bool:
        if (left := end - time.monotonic()) <= 0:
            return False
        try:
            run(one._replace(seconds=left))
        except LaunchError as found:
            return wanted in errors(found) and errors(found) <= errors(error)
        return False

    def sizes(value: Any) -> tuple[int, ...]:
        return tuple(value) if isinstance(value, (tuple, list)) else (value,)

    def smaller(old: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for axis, size in enumerate(old):
            for new in sorted({1, size // 2, size - 32, size - 1} & set(range(1, size))):
                yield *old[:axis], new, *old[axis + 1 :]

    def shorter(memory: Sequence[NDArray[np.uint8]]) -> Iterator[list[NDArray[np.uint8]]]:
        for i, one in enumerate(memory):
            if one.nbytes >= 32 and wanted and wanted[0] != "out-of-bounds":  # a short buffer has errors of its own
                yield [*memory[:i], one[: one.nbytes // 32 * 16], *memory[i + 1 :]]

    if wanted is None or call.method != "dispatch" or any(one.kind == "endless" for one in error.findings):
        return error
    best = call._replace(grid=sizes(call.grid), group=sizes(call.group))
    while time.monotonic() < end:
        both = [best.group, *smaller(best.group)] if best.group != best.grid else list(smaller(best.group))
        trials = [best._replace(grid=one, group=one) for one in both if math.prod(one) < math.prod(best.grid)]
        trials += [best._replace(grid=one) for one in smaller(best.grid)]
        trials += [best._replace(group=one) for one in smaller(best.group)]
        trials += [best._replace(memory=one) for one in shorter(best.memory)]
        found = next((one for one in trials if has(one)), None)
        if found is None:
            break
        best = found
    grid, group = ("x".join(map(str, one)) for one in (best.grid, best.group))
    short = [
        f"buffer({i}) of {best.memory[one.buffer].nbytes} bytes"
        for i, one in enumerate(call.arguments)
        if isinstance(one, At) and one.buffer is not None
        and best.memory[one.buffer].nbytes < call.memory[one.buffer].nbytes
    ]  # fmt: skip
    if not short and (best.grid, best.group) == (sizes(call.grid), sizes(call.group)):
        return error
    text = f"A smaller grid with the first error: {grid} threads in threadgroups of {group}"
    return found_error("\n".join((str(error), ", ".join((text, *short)))), error.findings)


SHRINKING_SECONDS = 1.0
"""Time of the search for a smaller grid, if the launch has left as much."""

UNUSED = bytes(16)
"""What is bound to an index that no parameter has."""


def _place(array: NDArray[Any]) -> tuple[int, int]:
    return array.__array_interface__["data"][0], array.nbytes


def differing(before: NDArray[np.uint8], after: NDArray[np.uint8], size: int) -> int:
    """Return how many elements of a size differ in their bytes, which are compared as words."""
    word = f"u{math.gcd(size, 8)}"
    differs = before.view(word) != after.view(word)
    return int(np.count_nonzero(differs.reshape(before.nbytes // size, -1).any(1) if size not in WORDS else differs))


WORDS = (1, 2, 4, 8)


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array in C order; they share its memory."""
    return array.view(np.ndarray).reshape(-1).view(np.uint8)


class Descriptions(Mapping[str, dict[str, Any]]):
    """The kernels of a library as JSON data, by name; each is compiled when it is looked up."""

    def __init__(self, library: Library) -> None:
        """Returned by ``Library.kernels``."""
        self._library = library

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._library[name].describe()

    def __iter__(self) -> Iterator[str]:
        return iter(self._library)

    def __len__(self) -> int:
        return len(list(self._library))


class Library:
    """A compiled source, returned by :func:`compile`: ``library[name]`` is a kernel."""

    def __init__(self, request: Request, isolate: bool) -> None:
        """Compile the source."""
        self._request, self._isolate = request, isolate
        self._compiled = request.open()
        self._functions = dict[str, Kernel]()

    @property
    def kernels(self) -> Mapping[str, dict[str, Any]]:
        """The kernels by name, as JSON data: the largest threadgroup, the bytes of threadgroup variables, and for each
        buffer and each threadgroup memory its index, declaration, bytes and alignment of an element, the dtype of its
        numbers (None for a struct), whether it may be written, and the members of a struct with pointers."""
        return Descriptions(self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._compiled.program.kernels)

    def __getitem__(self, name: str) -> Kernel:
        with refused():
            if not isinstance(name, str) or name not in self._functions:
                function = self._request.function(self._compiled, name)
                self._functions[name] = Kernel(self._request, function, self._isolate)
            return self._functions[name]

    @property
    def declared(self) -> Mapping[str, list[dict[str, Any]]]:
        """The arguments of each kernel as the source declares them, as JSON data: nothing is compiled for it.

        The index is None if it is an expression.
        """
        return {
            name: [{"index": one.index, "kind": one.kind, "type": one.text} for one in kernel.listed]
            for name, kernel in self._compiled.program.kernels.items()
        }

    @property
    def functions(self) -> Mapping[str, str]:
        """The name of the function in the source, or of its template, for each kernel."""
        return {name: kernel.function for name, kernel in self._compiled.program.kernels.items()}

    def __repr__(self) -> str:
        return f"anymetal.Library({', '.join(self)})"


def compile(
    source: str | os.PathLike[str],
    /,
    *,
    version: str = "3.1",
    include: Sequence[str | os.PathLike[str]] = (),
    define: Mapping[str, Any] | None = None,
    constants: Mapping[int | str, Any] | None = None,
    fast_math: bool = False,
    denormals: str = "keep",
    runtime: str = "clang",
    check_order: bool = True,
    sanitize: bool = True,
    levels: Mapping[str, str] | None = None,
    suppress: str | os.PathLike[str] | None = None,
    isolate: bool = False,
    trials: int | None = None,
    schedule: int | None = None,
    unread: bool = False,
    texture_write_rounding: str = "rtz",
) -> Library:
    """Compile Metal Shading Language; the kernels take NumPy arrays, and run on the CPU with checks of their behaviour.

    Parameters
    ----------
    source : str or path
        The MSL text, or the path of a file: an ``os.PathLike``, or a string in one line that ends with ``.metal``.
    version : {"2.3", "2.4", "3.0", "3.1", "3.2", "4.0"}, optional
        The version of MSL.
    include : sequence of path, optional
        Folders of files that the source includes, in the order of the search; that of a file is before them.
    define : mapping of str to object, optional
        Macros and their values; ``None`` is an empty one, and a bool is 1 or 0.
    constants : mapping of int or str to object, optional
        Function constants by index or name.
    fast_math : bool, optional
        Whether NaNs, infinities, signed zeros and the order of operations may be ignored.
    denormals : {"keep", "flush"}, optional
        Whether subnormal numbers (of ``float``) are kept in arithmetic, or are zero.
    runtime : {"clang", "cuda", "metalcompute"}, optional
        ``"cuda"`` runs the kernels on an NVIDIA GPU, and ``"metalcompute"`` on an Apple GPU, without checks of their
        behaviour: ``check_order`` and ``sanitize`` have no effect, and the options of checks are refused. The arguments
        of launches are checked. What a runtime lacks is an error that names it, see :mod:`anymetal.cuda` and
        :mod:`anymetal.metalcompute`.
    check_order : bool, optional
        Whether each launch runs twice, in opposite orders of its threads, with results that must be equal.
    sanitize : bool, optional
        Whether each access of a launch is checked: races, fences, bounds, uninitialized memory, arithmetic.
    levels : mapping of str to str, optional
        Levels of kinds of findings: ``"error"``, ``"warning"``, ``"note"`` or ``"off"``. A launch with an error raises.
    suppress : path, optional
        A TOML file of findings that are accepted, see :class:`anymetal.clang.Device`.
    isolate : bool, optional
        Whether each launch runs in a process of its own, which may use ``ANYMETAL_LAUNCH_MEMORY`` MiB (default 4096)
        beyond its buffers. Running a kernel is running native code: this keeps a crash from the calling process, and is
        no protection from hostile code.
    trials : int, optional
        How many interleavings a launch with ``sanitize`` tries, if a thread uses a value of an atomic that another one
        may change: they switch between threads at atomic operations, with up to 8 threadgroups at once, and end after
        16,384 operations. The default is 4; 0 also leaves out the pass in which weak exchanges fail.
    schedule : int, optional
        The number of the only interleaving to try, as a finding tells it: it is the same in each launch of the kernel
        with as many threads.
    unread : bool, optional
        Whether a launch with ``sanitize`` counts the elements that no thread read, in ``Launch.unread``: an input of
        which a part has no influence on the results. It takes more memory and time.
    texture_write_rounding : {"rtz", "rte"}, optional
        How a float is rounded that is written to a texture with floats of less than 32 bits: toward zero, as Apple's
        GPUs do by default, or to the nearest number.

    Returns
    -------
    Library
        The kernels by name.

    Raises
    ------
    CompileError
        If the source is illegal, with line numbers of the source.

    Examples
    --------
    >>> import anymetal
    >>> library = anymetal.compile('''
    ... kernel void axpy(device const float *x, device float *y, constant float &a,
    ...                  uint i [[thread_position_in_grid]]) { y[i] += a * x[i]; }''')
    >>> x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    >>> library["axpy"](4, 4, x, y, 10)
    Launch(changed={1: 3}, written={1: 4}, findings=(), unreached=())
    >>> y
    array([ 1., 11., 21., 31.], dtype=float32)
    >>> [argument["type"] for argument in library.kernels["axpy"]["arguments"]]
    ['device const float *x', 'device float *y', 'constant float &a']

    An access outside an array is an error, and no array is changed:

    >>> library["axpy"](5, 5, x, y, 10)
    Traceback (most recent call last):
        ...
    anymetal.LaunchError: kernel `axpy`: 1 error (threads=5 runs 5 threads, 1 threadgroups of 5)...
    """
    if runtime not in RUNTIMES:
        raise LaunchError(f"runtime={shorten(runtime)}: the runtimes of compile() are {', '.join(map(repr, RUNTIMES))}")
    if not isinstance(isolate, bool):
        raise TypeError(f"isolate is of type {type(isolate).__name__}; it is True or False")
    text, folders = read(source)
    if not isinstance(constants, Mapping | None):
        raise TypeError(
            f"constants is of type {type(constants).__name__}; it is a mapping from indices or names to values"
        )
    tried = {name: value for name, value in (("trials", trials), ("schedule", schedule)) if value is not None}
    given: dict[str, object] = {"levels": levels, "suppress": suppress, "isolate": isolate, **tried, "unread": unread}
    refuse(runtime, {"denormals": denormals != "keep", **given})
    if runtime == "metalcompute":
        folders = []  # the package includes no files
    options = {"version": version, "include": [*folders, *_sequence(include)], "fast_math": fast_math, "define": define}
    device = {"check_order": check_order, "denormals": denormals, "sanitize": sanitize, "levels": levels}
    device |= {"suppress": suppress, **tried, "unread": unread}
    if texture_write_rounding not in ROUNDINGS:
        legal = " and ".join(map(repr, ROUNDINGS))
        raise LaunchError(f"texture_write_rounding={shorten(texture_write_rounding)}: the values are {legal}")
    request = Request(text, options, device, dict(constants or {}), runtime, texture_write_rounding)
    return Library(request, isolate)


def refuse(runtime: str, given: Mapping[str, object]) -> None:
    """Raise for options that the clang runtime alone has, if another one is chosen and they are given."""
    for option in given if runtime != "clang" else ():
        if given[option] not in (None, False, []):
            raise LaunchError(f"{option} is an option of the clang runtime; the {runtime} runtime does not have it")


def _sequence(include: Any) -> Sequence[Any]:
    if isinstance(include, (str, bytes, os.PathLike)) or not isinstance(include, Sequence):
        raise TypeError(f"include={shorten(include)} is a sequence of folders")
    return include


def read(source: Any) -> tuple[str, list[Path]]:
    """Return the text of a source, and the folder of its file."""
    is_path = isinstance(source, os.PathLike) or (isinstance(source, str) and re.fullmatch(r"[^\n]*\.metal", source))
    if not is_path and not isinstance(source, str):
        raise TypeError(f"the source is a string or a path, not {type(source).__name__}")
    if not is_path:
        return _checked(source, "the source"), []
    path = Path(source)
    try:
        data = path.read_bytes()
        return _checked(data.decode(), f"the source {str(path)!r}"), [path.absolute().parent]
    except OSError as error:
        raise CompileError(f"the source {str(path)!r} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise CompileError(
            f"the source {str(path)!r} is no text: byte {error.start} is not UTF-8 (a compiled .metallib is no source)"
        ) from None


def _checked(text: str, what: str) -> str:
    if "\0" in text:
        raise CompileError(f"{what} is no text: character {text.index(chr(0))} is NUL")
    if len(text) > LARGEST_TEXT << 20:
        raise CompileError(f"{what} has {len(text)} characters; the maximum is {LARGEST_TEXT << 20}")
    return text
