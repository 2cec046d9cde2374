"""The connection to Metal Performance Shaders: device, queue, images, buffers, and objects that MPS calls back.

Everything goes through PyObjC, whose modules a :class:`Runtime` holds. A test puts others in their place.

Images are float32, one ``MPSImage`` each. Their channels lie in slices of four;
``writeBytes:dataLayout:imageIndex:`` and ``readBytes:dataLayout:imageIndex:`` convert from and to
height x width x channels.
"""

from __future__ import annotations

import functools
import importlib
import math
import platform
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import UnsupportedError, install
from mpsref.operations import OperationKey

Object: TypeAlias = Any
"""An object of Objective-C, whose methods PyObjC makes at run time."""

Images: TypeAlias = list[Object]
Table: TypeAlias = dict[OperationKey, Callable[..., None]]
"""Functions ``(runtime, problem, *inputs, out)``."""

SHARED = 0
"""``MTLResourceStorageModeShared``: memory that CPU and GPU share."""


ABSTRACT = {
    "MPSCNNArithmetic": "initWithDevice:",
    "MPSCNNArithmeticGradient": "initWithDevice:isSecondarySourceFilter:",
    "MPSNNReduceUnary": "initWithDevice:",
    "MPSNNReduceBinary": "initWithDevice:",
}
"""Initializers that the headers declare for concrete classes only; PyObjC refuses them for subclasses too."""

FORMATS: dict[str, np.dtype[Any]] = {"Float16": np.dtype(np.float16), "Float32": np.dtype(np.float32)}
"""Formats of the feature channels of images that can be read."""


def unavailable() -> str | None:
    """Return ``None``, or why Metal Performance Shaders cannot be used here."""
    if current.modules is not None:
        return None
    if platform.system() != "Darwin":
        return "Metal Performance Shaders exists on macOS only; `mpsref probe --dry-run` runs over a fake of it"
    try:
        importlib.import_module("MetalPerformanceShaders")
    except ImportError:
        return f"PyObjC's binding of Metal Performance Shaders is not installed: {install('mps')}"
    if in_use().device is None:
        return "Metal has no device here, as in some virtual machines; use a Mac with a GPU"
    return None


def described() -> str:
    """Return the name of the device."""
    return str(in_use().device.name())


@dataclass(eq=False)
class Runtime:
    """The modules of PyObjC, a device and its queue."""

    mps: Object
    """``MetalPerformanceShaders``"""
    metal: Object
    """``Metal``"""
    objc: Object
    graph_module: Object = None
    """``MetalPerformanceShadersGraph``; by default it is imported at the first use."""

    def __post_init__(self) -> None:
        """Replace the metadata that makes PyObjC refuse the initializers of concrete classes."""
        for name, selector in ABSTRACT.items():
            self.objc.registerMetaDataForSelector(name.encode(), selector.encode(), {})

    @functools.cached_property
    def graphs(self) -> Object:
        """``MetalPerformanceShadersGraph``, which is a distribution of its own."""
        if self.graph_module is not None:
            return self.graph_module
        try:
            return importlib.import_module("MetalPerformanceShadersGraph")
        except ImportError as error:
            raise UnsupportedError(f"PyObjC's binding of MPSGraph is not installed: {install('mps')}") from error

    @functools.cached_property
    def device(self) -> Object:
        """The default device, or ``None``."""
        return self.metal.MTLCreateSystemDefaultDevice()

    @functools.cached_property
    def queue(self) -> Object:
        """The queue of all command buffers."""
        return self.device.newCommandQueue()

    @functools.cached_property
    def sources(self) -> Sources:
        """The classes of data sources."""
        return Sources(self.objc)

    def constant(self, name: str) -> int:
        """Return a member of an enumeration."""
        return int(getattr(self.mps, name))

    def constant_of(self, kind: str, word: str) -> int:
        """Return the member of an enumeration whose name in lower case is ``word``."""
        from mpsref import mps  # at first use: the backend is listed without it

        names = {one.name.lower(): one.name for one in getattr(mps, kind)}
        return self.constant(kind + names[word].replace("NONE", "None"))

    def new(self, kind: str, initializer: str = "initWithDevice_", *arguments: object) -> Object:
        """Return a new object of a class whose initializer takes the device and ``arguments``."""
        return getattr(getattr(self.mps, kind).alloc(), initializer)(self.device, *arguments)

    def images(self, shape: Shape, channel_format: str = "Float32") -> Images:
        """Return N images of (N, H, W, C)."""
        n, height, width, channels = shape
        make = self.mps.MPSImageDescriptor.imageDescriptorWithChannelFormat_width_height_featureChannels_
        descriptor = make(self.constant(f"MPSImageFeatureChannelFormat{channel_format}"), width, height, channels)
        return [self.new("MPSImage", "initWithDevice_imageDescriptor_", descriptor) for _ in range(n)]

    def upload(self, x: Array) -> Images:
        """Return images with the pixels of ``x``, (N, H, W, C)."""
        images, layout = self.images(x.shape), self.constant("MPSDataLayoutHeightxWidthxFeatureChannels")
        for image, pixels in zip(images, np.ascontiguousarray(x, np.float32), strict=True):
            image.writeBytes_dataLayout_imageIndex_(pixels.tobytes(), layout, 0)
        return images

    def download(self, images: Sequence[Object]) -> Array:
        """Return the pixels of images, (N, H, W, C), in the format that they have."""
        layout = self.constant("MPSDataLayoutHeightxWidthxFeatureChannels")
        known = {self.constant(f"MPSImageFeatureChannelFormat{name}"): dtype for name, dtype in FORMATS.items()}
        found = []
        for image in images:
            number, size = int(image.featureChannelFormat()), (image.height(), image.width(), image.featureChannels())
            if number not in known:
                raise UnsupportedError(
                    f"MPS made an image of MPSImageFeatureChannelFormat {number}; only float16 and float32 can be read"
                )
            memory = bytearray(math.prod(size) * known[number].itemsize)
            image.readBytes_dataLayout_imageIndex_(memory, layout, 0)
            found.append(np.frombuffer(memory, known[number]).reshape(size))
        return np.stack(found)

    def buffer(self, values: Array) -> Object:
        """Return a buffer with float32 values."""
        memory = np.ascontiguousarray(values, np.float32).tobytes()
        return self.device.newBufferWithBytes_length_options_(memory, len(memory), SHARED)

    def values(self, buffer: Object, shape: Shape) -> Array:
        """Return float32 values of a buffer."""
        number = int(np.prod(shape))
        memory = bytes(buffer.contents().as_buffer(4 * number))
        return np.frombuffer(memory, np.float32).reshape(shape)

    @contextmanager
    def commands(self, *results: Images | Object) -> Iterator[Object]:
        """Yield a command buffer; then make ``results`` readable, commit it and wait for its end.

        A result that is known only after encoding is appended to a list among ``results``.
        """
        command_buffer = self.queue.commandBuffer()
        yield command_buffer
        for result in results:
            for one in result if isinstance(result, Sequence) else [result]:  # an NSArray is a Sequence, and no list
                one.synchronizeOnCommandBuffer_(command_buffer)
        command_buffer.commit()
        command_buffer.waitUntilCompleted()
        if command_buffer.error() is not None:
            raise RuntimeError(f"Metal reports {command_buffer.error()}")

    def returns_images(self, kernel: Object) -> None:
        """Make a kernel allocate images that can be read, not temporary ones."""
        kernel.setDestinationImageAllocator_(self.mps.MPSImage.defaultAllocator())


class _Current:
    """The runtime in use."""

    def __init__(self) -> None:
        self.modules: Runtime | None = None


current = _Current()


@functools.cache
def _of_pyobjc() -> Runtime:
    mps, metal, objc = map(importlib.import_module, ("MetalPerformanceShaders", "Metal", "objc"))
    return Runtime(mps, metal, objc)


def in_use() -> Runtime:
    """Return the runtime in use: that of PyObjC unless :func:`using` put another in its place."""
    return current.modules or _of_pyobjc()


@contextmanager
def using(modules: Runtime) -> Iterator[Runtime]:
    """Run the backend on other modules than those of PyObjC."""
    before, current.modules = current.modules, modules
    try:
        yield modules
    finally:
        current.modules = before


POINTERS = ("weights", "biasTerms", "gamma", "beta", "mean", "variance")
"""Methods of data sources that return a pointer to numbers."""

BASE = "MPSRefDataSource"


class Sources:
    """Classes of data sources, made when they are needed: a name of a class exists once in a process.

    PyObjC's metadata describes the pointers as arrays of unknown length and would copy them one element at a time,
    ``void *`` not at all. For the base class here they are plain pointers, which a method returns as an address.
    """

    def __init__(self, objc: Object) -> None:
        self._objc, self._made = objc, dict[str, Object]()

    @functools.cached_property
    def _base(self) -> Object:
        base = type(BASE, (self._objc.lookUpClass("NSObject"),), {})
        for name in POINTERS:
            self._objc.registerMetaDataForSelector(BASE.encode(), name.encode(), {"retval": {"type": b"^v"}})
        return base

    def _protocol(self, name: str) -> Object:
        try:
            return self._objc.protocolNamed(name)
        except self._objc.ProtocolError:  # no code that is loaded uses it; methods are looked up by name anyway
            return None

    def make(self, protocol: str, signatures: dict[str, bytes], values: dict[str, Any]) -> Object:
        """Return a data source whose methods return ``values``; arrays as the address of their memory.

        A method without a value returns ``nil``. ``calls`` of the data source are the names of the methods called.
        """
        if protocol not in self._made:
            self._made[protocol] = self._class(protocol, signatures)
        source = self._made[protocol].alloc().init()
        source.calls = []
        source.values = {
            name: np.ascontiguousarray(value, np.float32) if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }
        return source

    def _class(self, name: str, signatures: dict[str, bytes]) -> Object:
        """Return a class with these methods; PyObjC requires exactly the signatures of the protocol."""
        protocol, methods = self._protocol(name), {}
        for method, signature in signatures.items():
            selector = method.replace("_", ":").encode()
            known = None if protocol is None else protocol.descriptionForInstanceMethod_(selector)
            methods[method] = self._method(method, selector, known[1] if known else signature)
        keywords = {} if protocol is None else {"protocols": [protocol]}
        kind = f"MPSRef{name.removeprefix('MPSCNN')}"
        return types.new_class(kind, (self._base,), keywords, lambda body: body.update(methods))

    def _method(self, name: str, selector: bytes, signature: bytes) -> Object:
        def method(self: Object, *_: object) -> Any:
            self.calls.append(name)
            if name == "copyWithZone_":
                return self
            value = self.values.get(name)
            return value.ctypes.data if isinstance(value, np.ndarray) else value

        method.__name__ = name
        return self._objc.selector(method, selector=selector, signature=signature)
