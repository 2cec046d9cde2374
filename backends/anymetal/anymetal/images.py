"""Textures and samplers as arguments of a kernel: pixel formats, the table that a launch reads, images of MPS."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as shorten
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arguments import SAMPLER, check_memory
from .frontend.kernels import ENTRY_BYTES
from .frontend.signature import ACCESSES, At, Image, Parameter, Pointer, Record, Texels
from .interface import LaunchError

SORTS = ("unorm", "snorm", "uint", "sint", "float", "unorm_srgb")
"""The kinds of texture.h in their order; the packed ones follow."""
PACKED_UNORM, PACKED_UINT, RG11B10, RGB9E5 = range(6, 10)
IS_BGRA, HAS_ALPHA = 1 << 12, 1 << 13
D1, D2, D3, CUBE, ARRAY, DEPTH, BUFFER, SAMPLES = 1, 2, 3, 4, 8, 16, 32, 64
WATCHED, TO_NEAREST = 1, 2
ENTRY = struct.Struct("Q10IQQ")
ROUNDINGS = ("rtz", "rte")
MOST_TEXELS = {"width": 16384, "height": 16384, "depth": 2048, "slices": 2048}
MOST_IN_BUFFER = 1 << 28

READABLE = {
    "h": ("unorm", "snorm", "float", "unorm_srgb"),
    "f": ("unorm", "snorm", "float", "unorm_srgb"),
    "i": ("sint",),
    "u": ("uint",),
    "l": ("uint",),
}
COMPONENTS = {"h": "half", "f": "float", "i": "a signed integer", "u": "an unsigned integer", "l": "ulong"}


class Format(NamedTuple):
    """A pixel format."""

    name: str
    code: int
    """``format`` of texture.h."""
    dtype: np.dtype[Any]
    """That of a component, or of a packed texel."""
    components: int
    """The length of the last axis; 0 for a packed texel."""
    sort: str
    fields: int = 0
    """For each component, from the lowest byte on, its first bit and the number of its bits."""

    @property
    def nbytes(self) -> int:
        """The bytes of a texel."""
        return max(self.components, 1) * self.dtype.itemsize

    @property
    def has_read_write(self) -> bool:
        """Whether a texture with access::read_write may have it: tier 2 of Metal's feature tables."""
        is_named = self.name.startswith(("r8", "r16", "r32", "rgba"))
        is_norm16 = "norm" in self.name and self.dtype.itemsize > 1
        return is_named and "snorm" not in self.name and "srgb" not in self.name and not is_norm16


def _formats() -> dict[str, Format]:
    found = dict[str, Format]()

    def add(name: str, code: int, dtype: str, components: int, sort: str, *fields: tuple[int, int]) -> None:
        packed = sum((at | bits << 8) << 16 * i for i, (at, bits) in enumerate(fields))
        found[name] = Format(name, code, np.dtype(dtype), components, sort, packed)

    for order, count in (("r", 1), ("rg", 2), ("rgba", 4), ("bgra", 4)):
        for log, bits in enumerate((8, 16, 32)):
            for kind, sort in enumerate(SORTS):
                is_known = {"float": bits > 8, "unorm_srgb": bits == 8}.get(sort, bits < 32 or "norm" not in sort)
                if is_known and (order != "bgra" or (bits == 8 and "unorm" in sort)):
                    letter = {"float": "f", "snorm": "i", "sint": "i"}.get(sort, "u")
                    flags = IS_BGRA * (order == "bgra") | HAS_ALPHA * (count == 4)
                    code = kind | log << 4 | count << 8 | flags
                    add(f"{order}{bits}{sort}", code, f"{letter}{bits // 8}", count, sort)
    found["depth32float"] = found["r32float"]._replace(name="depth32float")
    found["depth16unorm"] = found["r16unorm"]._replace(name="depth16unorm")
    with_alpha = HAS_ALPHA | 4 << 8
    none = (0, 0)
    add("a8unorm", PACKED_UNORM | with_alpha, "u1", 0, "unorm", none, none, none, (0, 8))
    add("rgb10a2unorm", PACKED_UNORM | with_alpha, "u4", 0, "unorm", (0, 10), (10, 10), (20, 10), (30, 2))
    add("bgr10a2unorm", PACKED_UNORM | with_alpha, "u4", 0, "unorm", (20, 10), (10, 10), (0, 10), (30, 2))
    add("rgb10a2uint", PACKED_UINT | with_alpha, "u4", 0, "uint", (0, 10), (10, 10), (20, 10), (30, 2))
    add("b5g6r5unorm", PACKED_UNORM | 3 << 8, "u2", 0, "unorm", (11, 5), (5, 6), (0, 5), none)
    add("bgr5a1unorm", PACKED_UNORM | with_alpha, "u2", 0, "unorm", (10, 5), (5, 5), (0, 5), (15, 1))
    add("a1bgr5unorm", PACKED_UNORM | with_alpha, "u2", 0, "unorm", (11, 5), (6, 5), (1, 5), (0, 1))
    add("abgr4unorm", PACKED_UNORM | with_alpha, "u2", 0, "unorm", (12, 4), (8, 4), (4, 4), (0, 4))
    add("rg11b10float", RG11B10 | 3 << 8, "u4", 0, "float")
    add("rgb9e5float", RGB9E5 | 3 << 8, "u4", 0, "float")
    return found


FORMATS = _formats()


def format_named(name: Any) -> Format:
    """Return a format; raise LaunchError for an unknown name."""
    if not isinstance(name, str):
        raise TypeError(f"format={shorten(name)} of type {type(name).__name__}: it is the name of a pixel format")
    if name not in FORMATS:
        raise LaunchError(
            f"format={name!r}: the formats are those of MTLPixelFormat without compression, stencils and video: "
            f"{', '.join(FORMATS)}"
        )
    return FORMATS[name]


class Texture:
    """An array with a pixel format, or the levels of a mipmap, as an argument of a kernel.

    Parameters
    ----------
    array : ndarray, optional
        The texels. Components are the last axis, which may be absent if there is one; before it are width, height and
        depth from the last axis on, the samples of a multisampled texture, and slices or faces. A kernel that writes
        the texture changes it. Texels of a packed format are one number each.
    format : str, optional
        A name of MTLPixelFormat in lower case, such as ``"rgba8unorm"``. The default follows from the dtype, the
        number of components, and the component type of the kernel: uint8 is ``unorm`` for float and half.
    levels : sequence of ndarray, optional
        In place of `array`, the levels of a mipmap from the largest on; each has half the sizes of the one before,
        rounded down. They are copied; :attr:`levels` has the results.

    Raises
    ------
    LaunchError
        For an unknown format, or levels whose sizes do not follow each other.

    Examples
    --------
    >>> import anymetal
    >>> library = anymetal.compile('''
    ... #include <metal_stdlib>
    ... using namespace metal;
    ... kernel void invert(texture2d<half> x, texture2d<half, access::write> y, uint2 at [[thread_position_in_grid]]) {
    ...     half4 v = x.read(at);
    ...     y.write(half4(1 - v.rgb, v.a), at);
    ... }''')
    >>> x = np.array([[[0, 51, 255, 255]]], np.uint8)
    >>> y = np.zeros_like(x)
    >>> library["invert"]((1, 1), (1, 1), textures=[x, anymetal.Texture(y, "bgra8unorm")])
    Launch(changed={'texture(1)': 1}, written={'texture(1)': 1}, findings=(), unreached=())
    >>> y
    array([[[  0, 204, 255, 255]]], dtype=uint8)
    """

    def __init__(
        self, array: NDArray[Any] | None = None, format: str | None = None, /, *, levels: Sequence[Any] | None = None
    ) -> None:
        """Hold them."""
        self.format = None if format is None else format_named(format)
        if (array is None) == (levels is None):
            raise TypeError("a texture has an array, or the levels of a mipmap")
        self.levels: tuple[NDArray[Any], ...] = ()
        if levels is None:
            self.array = array
            return
        parts = [np.asarray(one) for one in levels]
        if not parts or any(one.dtype != parts[0].dtype or one.ndim != parts[0].ndim for one in parts):
            raise LaunchError("levels: a sequence of one array or more, with one dtype and one number of axes")
        self.array = np.concatenate([one.reshape(-1) for one in parts])
        ends = np.cumsum([one.size for one in parts])
        self.levels = tuple(
            self.array[end - one.size : end].reshape(one.shape) for one, end in zip(parts, ends, strict=True)
        )


class Sampler:
    """A sampler as an argument of a kernel; the names of its parameters are those of MSL.

    Parameters
    ----------
    filter : {"nearest", "linear"}, optional
        How texels are chosen, both where a texture is enlarged and where it is reduced.
    mag_filter, min_filter : {"nearest", "linear"}, optional
        The same for one of the two cases.
    mip_filter : {"none", "nearest", "linear"}, optional
        How levels are chosen; with ``"none"`` it is the first one.
    address : str or sequence of three str, optional
        What coordinates outside stand for, for all axes or for each: ``"clamp_to_edge"``, ``"clamp_to_zero"``,
        ``"clamp_to_border"``, ``"repeat"`` or ``"mirrored_repeat"``.
    coord : {"normalized", "pixel"}, optional
        Whether coordinates are from 0 to 1, or texels.
    border_color : {"transparent_black", "opaque_black", "opaque_white"}, optional
        The color of ``"clamp_to_border"``.
    compare_func : str, optional
        The comparison of ``sample_compare``, such as ``"less"``.
    lod_clamp : pair of float, optional
        The least and the largest level.

    Raises
    ------
    LaunchError
        For an unknown name, and for ``coord="pixel"`` with mipmaps, or with an address that repeats.

    Examples
    --------
    >>> import anymetal
    >>> anymetal.Sampler(filter="linear", address="repeat")
    anymetal.Sampler(mag_filter='linear', min_filter='linear', address=('repeat', 'repeat', 'repeat'))
    """

    NAMES: Mapping[str, tuple[str, ...]] = {
        "coord": ("normalized", "pixel"),
        "mag_filter": ("nearest", "linear"),
        "min_filter": ("nearest", "linear"),
        "mip_filter": ("none", "nearest", "linear"),
        "address": ("clamp_to_edge", "clamp_to_zero", "clamp_to_border", "repeat", "mirrored_repeat"),
        "border_color": ("transparent_black", "opaque_black", "opaque_white"),
        "compare_func": (*("never", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "always"),),
    }

    def __init__(
        self, *, filter: str = "nearest", mag_filter: str | None = None, min_filter: str | None = None,
        mip_filter: str = "none", address: str | Sequence[str] = "clamp_to_edge", coord: str = "normalized",
        border_color: str = "transparent_black", compare_func: str = "never",
        lod_clamp: tuple[float, float] = (0, math.inf),
    ) -> None:  # fmt: skip
        """Hold them."""
        modes = (address,) * 3 if isinstance(address, str) else tuple(address)
        given: dict[str, Any] = {
            "coord": coord, "mag_filter": mag_filter or filter, "min_filter": min_filter or filter,
            "mip_filter": mip_filter, "border_color": border_color, "compare_func": compare_func,
        }  # fmt: skip
        if len(modes) != 3:
            raise LaunchError(f"address={shorten(address)}: one name, or one for each of three axes")
        number = {name: self._number(name, value) for name, value in given.items()}
        axes = [self._number("address", mode) for mode in modes]
        if coord == "pixel" and (number["mip_filter"] or max(axes) > 2):
            raise LaunchError(
                'coord="pixel": the address is clamp_to_edge, clamp_to_zero or clamp_to_border, and the mip_filter none'
            )
        least, most = (min(max(round(min(float(one), 16) * 256), 0), 4095) for one in lod_clamp)
        self.state = (
            number["coord"] | number["mag_filter"] << 1 | number["min_filter"] << 3 | number["mip_filter"] << 5
            | sum(mode << 7 + 3 * i for i, mode in enumerate(axes))
            | number["border_color"] << 16 | number["compare_func"] << 18 | least << 27 | most << 39
        )  # fmt: skip
        self._given = {**given, "address": modes}

    def _number(self, name: str, value: Any) -> int:
        if value not in self.NAMES[name]:
            raise LaunchError(f"{name}={shorten(value)}: the values are {', '.join(self.NAMES[name])}")
        return self.NAMES[name].index(value)

    def __repr__(self) -> str:
        plain = {name: values[0] for name, values in self.NAMES.items()} | {"address": (self.NAMES["address"][0],) * 3}
        shown = {name: value for name, value in self._given.items() if value != plain[name]}
        return f"anymetal.Sampler({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class Table:
    """The textures and samplers of a launch, and of the structs in its buffers."""

    def __init__(self, name: str, images: Mapping[str, Mapping[int, Image]], given: Mapping[str, Any], rounding: str):
        """Describe what is bound to the parameters of a kernel."""
        self._flags = TO_NEAREST if rounding == "rte" else 0
        self._entries, self._pointers = bytearray(), dict[int, Pointer]()
        self._written = list[Callable[[], None]]()
        values = {kind: _by_index(name, kind, known, given[kind]) for kind, known in images.items()}
        for index, image in images["texture"].items():
            what = f"texture({index}) of kernel `{name}`, `{image.text}`"
            self._describe(self._position(index), f"texture({index})", image, values["texture"][index], index, what)
        for index, image in images["sampler"].items():
            state = self.sampler(values["sampler"][index], f"sampler({index}) of kernel `{name}`, `{image.text}`")
            at = self._position(index)
            self._entries[at + ENTRY_BYTES - 8 : at + ENTRY_BYTES] = state

    def _position(self, index: int) -> int:
        """Return where an entry is, which exists from now on."""
        self._entries += bytes(max((index + 1) * ENTRY_BYTES - len(self._entries), 0))
        return index * ENTRY_BYTES

    def add(self, key: str, image: Image, value: Any, what: str) -> int:
        """Return where the entry of one more texture is."""
        number = max(len(self._entries) // ENTRY_BYTES, 1)
        at = self._position(number)
        self._describe(at, key, image, value, number, what)
        return at

    @staticmethod
    def sampler(value: Any, what: str) -> bytes:
        """Return the state of a sampler."""
        if not isinstance(value, Sampler):
            raise TypeError(f"{what}: it is an anymetal.Sampler, not {shorten(value)} of type {type(value).__name__}")
        return struct.pack("Q", value.state)

    def _describe(self, at: int, key: str, image: Image, value: Any, index: int, what: str) -> None:
        given = At.of(value)
        if given.offset:
            raise LaunchError(f"{what}: a texture has no offset")
        if given.buffer is None:
            return  # a null texture
        texture = _texture(given.buffer, image, what, self._written)
        form, texels, samples = _fitting(texture, image, what)
        check_memory(texture.array, image.is_written, what)
        data = ENTRY.pack(
            0, *texels[:5], form.code, texels.size, index, samples, self._flags, form.fields, 0
        )  # fmt: skip
        self._entries[at : at + len(data) - 8] = data[:-8]
        unit = form.dtype.itemsize
        about = Parameter(
            image.text, texels.size, unit, image.is_written, 0, min(texels.size, 4) | ord("u") << 8, {}, texels
        )
        self._pointers[at] = Pointer(key, about, At(texture.array, 0, given.is_undefined))

    def record(self, is_written: Callable[[Any], bool]) -> Record:
        """Return the table as a buffer, in which the memory that somebody writes is marked."""
        for at, one in self._pointers.items():
            if one.target.is_undefined or is_written(one.target.buffer):
                self._entries[at + 44] |= WATCHED
        return Record(bytes(self._entries) or bytes(ENTRY_BYTES), self._pointers)

    def finish(self) -> None:
        """Give the images of other libraries what the launch has written."""
        for one in self._written:
            one()


def _by_index(name: str, kind: str, known: Mapping[int, Image], given: Any) -> dict[int, Any]:
    """Return what is bound to the indices of a kind, from a sequence or a mapping."""
    values = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
    listed = ", ".join(f"{kind}({index}) is `{image.text}`" for index, image in known.items()) or f"none is a {kind}"
    if wrong := [index for index in values if index not in known and values[index] is not None]:
        raise LaunchError(f"kernel `{name}` has no {kind}({shorten(wrong[0])}): {listed}")
    if missing := [index for index in known if index not in values]:
        raise LaunchError(f"kernel `{name}`: {kind}({missing[0]}) is not bound: {listed}")
    return values


def _texture(value: Any, image: Image, what: str, written: list[Callable[[], None]]) -> Texture:
    """Return an argument as a texture."""
    if hasattr(value, "__anymetal_texture__"):
        array, name, done = value.__anymetal_texture__()
        if image.is_written and done is not None:
            written.append(done)
        is_flat = not image.kind & (ARRAY | SAMPLES) and image.kind & 7 == D2 and array.ndim == 4 and len(array) == 1
        value = Texture(array[0] if is_flat else array, name)
    if isinstance(value, Texture):
        return value
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"{what}: a texture is an array of NumPy, an anymetal.Texture or None, not {shorten(value)} of type "
            f"{type(value).__name__}"
        )
    return Texture(value)


def kind_name(kind: int) -> str:
    """Return the name of the type of a texture."""
    if kind == SAMPLER:
        return "sampler"
    if kind & BUFFER:
        return "texture_buffer"
    start = "depth" if kind & DEPTH else "texture"
    shape = {D1: "1d", D2: "2d", D3: "3d", CUBE: "cube"}[kind & 7]
    return "".join((start, shape, "_ms" * bool(kind & SAMPLES), "_array" * bool(kind & ARRAY)))


def axes_of(kind: int) -> tuple[str, ...]:
    """Return the names of the axes of an array, but for its components."""
    plane = ("height", "width")
    if kind & 7 == CUBE:
        return ("6 * cubes" if kind & ARRAY else "6 faces", *plane)
    shape = {D1: ("width",), D2: plane, D3: ("depth", *plane)}[kind & 7]
    return (*(("slices",) if kind & ARRAY else ()), *(("samples",) if kind & SAMPLES else ()), *shape)


def _fitting(texture: Texture, image: Image, what: str) -> tuple[Format, Texels, int]:
    """Return the format, the sizes and the number of samples of a texture; raise LaunchError if it does not fit."""
    kind, first = image.kind, texture.levels[0] if texture.levels else texture.array
    if not isinstance(first, np.ndarray):
        raise TypeError(f"{what}: the texels are an array of NumPy, not {type(first).__name__}")
    names = axes_of(kind)
    count = len(names)
    shape = first.shape
    expected = f"a {kind_name(kind)} has the axes ({', '.join(names)}) and perhaps one of 1, 2 or 4 components"
    if first.ndim not in (count, count + 1):
        raise LaunchError(f"{what}: the array has the shape {shape}; {expected}")
    if first.size == 0:
        raise LaunchError(f"{what}: the array has no texels, of shape {shape}")
    components = shape[count] if first.ndim > count else 0
    if components not in (0, 1, 2, 4):
        more = ": append one, with numpy.dstack" if components == 3 else ""
        raise LaunchError(
            f"{what}: the array has {components} components, of shape {shape}; a texel has 1, 2 or 4{more}"
        )
    form = texture.format or _default(first.dtype, components or 1, image, what)
    if first.dtype != form.dtype or (components or 1) != (form.components or 1):
        raise LaunchError(
            f"{what}: the format {form.name} has {form.components or 1} component{'s' * (form.components > 1)} of "
            f"{form.dtype}, and the array {components or 1} of {first.dtype}"
        )
    _check_format(form, image, what)
    sizes = dict(zip(names, shape, strict=False))
    width, height = sizes["width"], sizes.get("height", 1)
    depth, samples = sizes.get("depth", 1), sizes.get("samples", 1)
    slices = math.prod(shape[:count]) // (width * height * depth)
    most = {**MOST_TEXELS, "width": MOST_IN_BUFFER} if kind & BUFFER else MOST_TEXELS
    if kind & 7 == D3:
        most = dict.fromkeys(MOST_TEXELS, MOST_TEXELS["depth"])
    for name, size in {"width": width, "height": height, "depth": depth, "slices": slices // samples}.items():
        if size > most[name]:
            raise LaunchError(f"{what}: its {name} is {size}; that of a {kind_name(kind)} is at most {most[name]}")
    if kind & 7 == CUBE and (height != width or slices % 6 or (not kind & ARRAY and slices != 6)):
        raise LaunchError(f"{what}: the array has the shape {shape}; {expected}, and faces are squares")
    if samples not in (1, 2, 4, 8):
        raise LaunchError(f"{what}: it has {samples} samples; a multisampled texture has 1, 2, 4 or 8")
    levels = len(texture.levels) or 1
    texels = Texels(width, height, depth, slices, levels, form.nbytes)
    if levels > 1 and (kind & (SAMPLES | BUFFER) or kind & 7 == D1):
        raise LaunchError(f"{what}: a {kind_name(kind)} has one level, not {levels}")
    for level, (one, size) in enumerate(zip(texture.levels, texels.shapes, strict=False)):
        wanted = tuple({"width": size[0], "height": size[1], "depth": size[2]}.get(name, sizes[name]) for name in names)
        if one.shape[:count] != wanted:
            raise LaunchError(f"{what}: level {level} has the shape {one.shape}; it must begin with {wanted}")
    return form, texels, samples


def _default(dtype: np.dtype[Any], components: int, image: Image, what: str) -> Format:
    """Return the format that a plain array has."""
    is_number = image.component in "hf"
    bits = 8 * dtype.itemsize
    sort = {"f": "float", "u": "unorm" if is_number else "uint", "i": "snorm" if is_number else "sint"}.get(
        dtype.kind, ""
    )
    name = f"{ {1: 'r', 2: 'rg', 4: 'rgba'}[components] }{bits}{sort}"
    if image.kind & DEPTH:
        name = {"r32float": "depth32float", "r16unorm": "depth16unorm"}.get(name, name)
    if name not in FORMATS:
        raise LaunchError(
            f"{what}: no format has components of {dtype} for {COMPONENTS[image.component]}: pass an array of float32, "
            "float16 or an integer dtype of 8 or 16 bits (unorm, snorm), or an anymetal.Texture with a format"
        )
    return FORMATS[name]


def _check_format(form: Format, image: Image, what: str) -> None:
    """Raise LaunchError for a format that the declaration does not allow."""
    component = COMPONENTS[image.component]
    if form.sort not in READABLE[image.component]:
        legal = " or ".join(READABLE[image.component])
        raise LaunchError(
            f"{what}: the format {form.name} is not read as {component}, which the declaration has: formats for it are "
            f"{legal}"
        )
    if image.component == "h" and form.sort == "float" and form.dtype.itemsize == 4 and form.components:
        raise LaunchError(
            f"{what}: the format {form.name} has 32-bit floats, which half does not hold: pass an array of float16, or "
            "declare a texture of float"
        )
    if image.kind & DEPTH and not form.name.startswith("depth"):
        raise LaunchError(f"{what}: a depth texture has the format depth32float or depth16unorm, not {form.name}")
    if image.component == "l":  # of atomic functions
        if form.name != "rg32uint":
            raise LaunchError(f"{what}: a texture of ulong has the format rg32uint, not {form.name}")
        return
    if ACCESSES[image.access] == "read_write" and not form.has_read_write:
        legal = ", ".join(name for name, one in FORMATS.items() if one.has_read_write)
        raise LaunchError(f"{what}: access::read_write is not for the format {form.name}; it is for {legal}")


def slices(array: NDArray[Any], /, *, padding: float = math.nan) -> NDArray[Any]:
    """Return images with channels last as MPS stores them: slices of four channels, those of an image together.

    Parameters
    ----------
    array : ndarray
        The images, of shape (n, height, width, channels) or (height, width, channels).
    padding : float, optional
        What the channels that fill the last slice of an image hold. MPS leaves them undefined; with the default NaN a
        kernel that uses them gives NaN. For an integer dtype it must be given.

    Returns
    -------
    ndarray
        A new array of shape (n * ceil(channels / 4), height, width, 4), for a ``texture2d_array``.

    Raises
    ------
    LaunchError
        If the array has another number of axes, or an integer dtype has no padding.

    Examples
    --------
    >>> import anymetal
    >>> x = np.arange(5, dtype=np.float16).reshape(1, 1, 1, 5)
    >>> anymetal.slices(x)
    array([[[[ 0.,  1.,  2.,  3.]]],
    <BLANKLINE>
    <BLANKLINE>
           [[[ 4., nan, nan, nan]]]], dtype=float16)
    >>> anymetal.unslice(anymetal.slices(x), 5)
    array([[[[0., 1., 2., 3., 4.]]]], dtype=float16)
    """
    images = np.asarray(array)
    images = images[None] if images.ndim == 3 else images
    if images.ndim != 4 or images.size == 0:
        raise LaunchError(f"the array has the shape {images.shape}; images are (n, height, width, channels)")
    if images.dtype.kind != "f" and math.isnan(padding):
        raise LaunchError(f"padding is NaN, which the dtype {images.dtype} does not hold: pass a number")
    n, height, width, channels = images.shape
    count = -(-channels // 4)
    filled = np.full((n, height, width, 4 * count), padding, images.dtype)
    filled[..., :channels] = images
    parts = filled.reshape(n, height, width, count, 4).transpose(0, 3, 1, 2, 4)
    return np.ascontiguousarray(parts).reshape(n * count, height, width, 4)


def unslice(array: NDArray[Any], channels: int, /) -> NDArray[Any]:
    """Return the images in slices of four channels, the inverse of :func:`slices`.

    Parameters
    ----------
    array : ndarray
        The slices, of shape (n * ceil(channels / 4), height, width, 4).
    channels : int
        The number of channels of an image.

    Returns
    -------
    ndarray
        A new array of shape (n, height, width, channels).

    Raises
    ------
    LaunchError
        If the slices are not those of whole images.
    """
    count = -(-channels // 4)
    if array.ndim != 4 or array.shape[3] != 4 or channels < 1 or array.shape[0] % count:
        raise LaunchError(
            f"the array has the shape {array.shape}; slices of images with {shorten(channels)} channels are "
            f"({max(count, 1)} * n, height, width, 4)"
        )
    parts = array.reshape(-1, count, *array.shape[1:]).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(parts.reshape(*parts.shape[:3], 4 * count)[..., :channels])
