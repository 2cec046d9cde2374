"""What the objects of the fake do: images in slices of four channels, buffers, command buffers, and everything else.

Kernels, states, descriptors, nodes and graphs are the objects of :mod:`mpsref.mps` with the same names. A selector is
the method or property of that object in snake_case. Images and buffers that a kernel wrote cannot be read before they
were synchronized on a command buffer that has completed.
"""

from __future__ import annotations

import enum
import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.mps import graph
from mpsref.mps.core import types
from mpsref.mps.not_built import NotBuilt
from mpsref.registry import Backend
from mpsref_apple.fake import Fake, NSObject, Object, Refusal, VariableList, camel, headers, snake
from mpsref_apple.fake_graph import GRAPHS

FLOAT32_FORMAT, FLOAT16_FORMAT = 4, 3

# --- Metal ------------------------------------------------------------------------------------------------------------


class Device:
    def on_name(self: Any) -> str:
        return "a fake of Metal Performance Shaders, computed by the reference"

    def on_newCommandQueue(self: Any) -> Any:
        return ready(self.fake, "MTLCommandQueue")

    def on_newBufferWithBytes_length_options_(self: Any, memory: memoryview, length: int, options: int) -> Any:
        if len(memory) != length:
            raise Refusal(f"the buffer has {len(memory)} bytes, and length is {length}")
        return ready(self.fake, "MTLBuffer", memory=bytearray(memory), stale=False)


def ready(fake: Any, kind: str, **values: Any) -> Any:
    """Return an object that Metal or MPS makes itself."""
    made = fake.kind(kind)()
    made.values, made.ready = values, True
    return made


class Buffer:
    values: dict[str, Any]

    def on_contents(self: Any) -> Any:
        if self.values["stale"]:
            raise Refusal("a buffer is read that a kernel wrote: synchronize it, commit and wait before")
        return VariableList(self.values["memory"])

    def on_length(self: Any) -> int:
        return len(self.values["memory"])


class Queue:
    def on_commandBuffer(self: Any) -> Any:
        return ready(self.fake, "MTLCommandBuffer", committed=False, synchronized=[])


class Commands:
    def on_commit(self: Any) -> None:
        if self.values["committed"]:
            raise Refusal("a command buffer was committed before; make another one")
        self.values["committed"] = True

    def on_waitUntilCompleted(self: Any) -> None:
        if not self.values["committed"]:
            raise Refusal("waitUntilCompleted without commit never returns")
        for publish in self.values["synchronized"]:
            publish()

    def on_error(self: Any) -> None:
        return None


# --- images -----------------------------------------------------------------------------------------------------------


class Image:
    on_init = Object.on_init

    def made(self: Any) -> None:
        known = self.values["imageDescriptor"].twin
        self.size = height, width, channels = known.shape[1:]
        self.dtype = known.dtype.type
        self.half = self.dtype is np.float16
        self.slices = np.full((-(-channels // 4), height, width, 4), np.nan, np.float32)
        self.host: Array | None = None

    def on_height(self: Any) -> int:
        return int(self.size[0])

    def on_width(self: Any) -> int:
        return int(self.size[1])

    def on_featureChannels(self: Any) -> int:
        return int(self.size[2])

    def on_featureChannelFormat(self: Any) -> int:
        return int(
            self.fake.alter(self.class_name, "format", np.array(FLOAT16_FORMAT if self.half else FLOAT32_FORMAT))
        )

    @classmethod
    def of_defaultAllocator(cls: Any) -> Any:
        return ready(cls.fake, "MPSImageAllocator", allocates=cls.class_name)

    def on_writeBytes_dataLayout_imageIndex_(self: Any, memory: memoryview, layout: int, index: int) -> None:
        self.on_check(memory, index)
        pixels = np.frombuffer(memory, self.dtype)
        height, width, channels = self.size
        shape = (height, width, channels) if layout == 0 else (channels, height, width)
        pixels = pixels.reshape(shape)
        write(self, pixels if layout == 0 else pixels.transpose(1, 2, 0))
        self.host = self.slices.copy()

    def on_readBytes_dataLayout_imageIndex_(self: Any, memory: memoryview, layout: int, index: int) -> None:
        self.on_check(memory, index)
        if self.class_name == "MPSTemporaryImage":
            raise Refusal("a temporary image cannot be read; set destinationImageAllocator to that of MPSImage")
        if self.host is None:
            raise Refusal("an image is read that a kernel wrote: synchronize it, commit and wait before")
        pixels = pixels_of(self, self.host)
        np.frombuffer(memory, self.dtype)[:] = (pixels if layout == 0 else pixels.transpose(2, 0, 1)).ravel()

    def on_check(self: Any, memory: memoryview, index: int) -> None:
        if index:
            raise Refusal(f"imageIndex is {index}; the image has one image")
        needed = self.dtype().itemsize * math.prod(self.size)
        if memory.nbytes != needed:
            raise Refusal(f"{memory.nbytes} bytes are given for an image of {needed} bytes")

    def on_synchronizeOnCommandBuffer_(self: Any, commands: Any) -> None:

        def publish() -> None:
            self.host = self.slices.copy()

        commands.values["synchronized"].append(publish)


def pixels_of(image: Any, slices: Array | None = None) -> Array:
    """Return the pixels (H, W, C) of an image."""
    slices = image.slices if slices is None else slices
    height, width, channels = image.size
    whole: Array = slices.transpose(1, 2, 0, 3).reshape(height, width, -1)[..., :channels]
    return whole


def write(image: Any, pixels: Array) -> None:
    """Store the pixels (H, W, C) of an image; the components after the last channel are 0."""
    height, width, channels = image.size
    padded = np.zeros((height, width, 4 * len(image.slices)), np.float32)
    padded[..., :channels] = pixels.astype(image.dtype)
    image.slices[...] = padded.reshape(height, width, -1, 4).transpose(2, 0, 1, 3)
    image.host = None


def stack(images: Sequence[Any]) -> Array:
    """Return the pixels (N, H, W, C) of a batch; NaN where none were written."""
    if len({image.size for image in images}) > 1:
        raise Refusal("the images of a batch have different sizes")
    return np.stack([pixels_of(image) for image in images]).astype(images[0].dtype)


# --- the objects of mpsref.mps ----------------------------------------------------------------------------------------

RENAMED = {"primary_images": "source_gradients", "secondary_images": "source_images"}
RENAMED |= {"destination_images": "destination_gradients"}
"""The arguments of a gradient kernel that is called as a kernel with two sources."""


class Mirror(Object):
    """An object of the class of :mod:`mpsref.mps` with the same name."""

    twin: Any
    stale = False
    """Of a vector: whether a kernel has written it since it was synchronized; states know it themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.writers: dict[str, str] = {}

    def on_init(self, selector: str, arguments: dict[str, Any]) -> None:
        """Make the object; an argument that its class does not have is left out."""
        kind: Any = getattr(mps, self.class_name, None) or getattr(graph, self.class_name, NotBuilt)
        if issubclass(kind, NotBuilt):
            super().on_init(selector, arguments)
            return
        values = {snake(name): self.plain(value) for name, value in arguments.items() if name != "device"}
        factory = getattr(kind, snake(selector.rstrip(":").replace(":", "_")), None)
        self.ready = True
        if factory is not None or issubclass(kind, graph.MPSNNFilterNode | graph.MPSNNImageNode):
            self.twin = (factory or kind)(*values.values())
            return
        if issubclass(kind, mps.MPSKernel | graph.MPSNNGraph):
            values["backend"] = self.fake.backend
        known = inspect.signature(kind).parameters
        self.twin = kind(**{name: value for name, value in values.items() if name in known})

    def perform(self, selector: str, arguments: list[Any]) -> Any:
        """Call the method of a selector, or get or set the property."""
        first, *others = selector.rstrip(":").split(":")
        if first.startswith("set") and hasattr(self.twin, snake(first[3:])) and "Allocator" not in first:
            setattr(self.twin, snake(first[3:]), self.plain(arguments[0]))
            return None
        if first.startswith("encode"):
            return self.encode("Batch" in first, dict(zip(map(snake, others), arguments[1:], strict=True)))
        names = [snake("_".join([first, *others[:k]])) for k in reversed(range(len(others) + 1))]
        name = next((name for name in (*names, snake(first.split("With")[0])) if hasattr(self.twin, name)), "")
        if not name:
            return super().perform(selector, arguments)
        found = getattr(self.twin, name)
        if callable(found):
            found = found(*(self.plain(one) for one in arguments if class_of(one) != "MTLCommandBuffer"))
        altered = self.altered(selector, found)
        return self.apple(altered) if altered is found or isinstance(found, np.ndarray) else altered

    def altered(self, selector: str, value: Any) -> Any:
        """Return a value that is read, as functions that are planted for the object and for its writers change it."""
        for kind, label in {self.class_name: selector, **self.writers}.items():
            if planted := self.fake.planted.get((kind, label or selector)):
                value = planted(np.array(value))
        return value

    def encode(self, batch: bool, values: dict[str, Any]) -> Any:
        """Run a kernel; return images if none to write are given."""
        method = self.twin.encode_batch if batch else self.twin.encode
        known = inspect.signature(method).parameters
        values = {name if name in known else RENAMED.get(name, name): value for name, value in values.items()}
        given = {name: self.plain(value) for name, value in values.items()}
        target = next((name for name in values if name.startswith("destination") and "states" not in name), "")
        try:
            result = method(**given)
        except ValueError:  # Apple's kernel may have a result, which is planted
            if (self.class_name, "destination") not in self.fake.planted:
                raise
            result = np.zeros_like(given["source_images"])
        for name, value in values.items():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Mirror):
                    label = ("result" if "result" in name else "moment") if class_of(one) == "MPSVector" else ""
                    one.writers[self.class_name], one.stale = label, bool(label)
        if not isinstance(result, np.ndarray) or result.ndim < 4:
            return None
        if target:
            self.deliver(values[target] if batch else [values[target]], result)
            return None
        images = [self.allocated(result.shape[1:], result.dtype.name) for _ in result]
        self.deliver(images, result)
        return images if batch else images[0]

    def deliver(self, images: list[Any], result: Array) -> None:
        """Write a destination, or what a planted function makes of it."""
        for image, pixels in zip(images, self.fake.alter(self.class_name, "destination", result), strict=True):
            write(image, pixels)

    def on_destinationImageDescriptorForSourceImages_sourceStates_(self, sources: list[Any], states: Any) -> Any:
        """Configure the kernel by its padding policy."""
        return self.apple(self.twin.destination_image_descriptor_for_source_images([stack(sources)], states))

    def allocated(self, size: Sequence[int], dtype: str) -> Any:
        """Return an image of the allocator of the kernel: a temporary one unless it was set."""
        allocator = self.values.get("destinationImageAllocator")
        image: Any = self.fake.kind("MPSTemporaryImage" if allocator is None else allocator.values["allocates"])()
        height, width, channels = size
        descriptor = self.apple(mps.MPSImageDescriptor(types.channel_format("dtype", dtype), width, height, channels))
        image.on_init("", {"imageDescriptor": descriptor})
        return image

    def plain(self, value: Any) -> Any:
        """Return an argument for mpsref."""
        if isinstance(value, list):
            if value and is_image(value[0]):
                return stack(value)
            found = [self.plain(one) for one in value]
            shared = found and isinstance(found[0], mps.MPSState) and all(one is found[0] for one in found)
            return found[0] if shared else found
        if is_image(value):
            return stack([value])
        if isinstance(value, Buffer):
            return np.frombuffer(value.values["memory"], np.float32)
        if isinstance(value, NSObject) and (hasattr(value, "descriptor") or hasattr(value, "gamma")):
            return DataSource(self.fake, value)
        if isinstance(value, bytes | memoryview):
            return np.frombuffer(value, np.float32)
        return value.twin if isinstance(value, Mirror) else value

    def apple(self, value: Any) -> Any:
        """Return a result as MPS does."""
        if type(value) in (list, tuple):
            return [self.apple(one) for one in value]
        if isinstance(value, np.ndarray):
            return ready(self.fake, "MTLBuffer", memory=bytearray(np.float32(value).tobytes()), stale=self.stale)
        if type(value).__name__ in headers()["classes"]:
            made: Any = self.fake.kind(type(value).__name__)()
            made.twin, made.ready = value, True
            return made
        return value.value if isinstance(value, enum.Enum) else value

    def on_synchronizeOnCommandBuffer_(self, commands: Any) -> None:
        """Make it readable when the command buffer has completed."""

        def publish() -> None:
            own = mps.MPSCommandBuffer()
            self.twin.synchronize(own)
            own.commit()
            own.wait_until_completed()

        commands.values["synchronized"].append(publish)


def class_of(value: Any) -> str:
    """Return the name of the class of an object of the fake."""
    return str(getattr(value, "class_name", ""))


def is_image(value: Any) -> bool:
    return class_of(value) in ("MPSImage", "MPSTemporaryImage")


class Weighted:
    """A kernel with weights: the order in which it calls its data source may be planted."""

    def on_init(self: Any, selector: str, arguments: dict[str, Any]) -> None:
        calls = "load", "descriptor", "weights", "biasTerms", "purge"
        if (self.class_name, "calls") in self.fake.planted:
            source = DataSource(self.fake, arguments["weights"])
            for k in np.argsort(self.fake.alter(self.class_name, "calls", np.arange(len(calls)))):
                source.value(calls[k])
        Mirror.on_init(self, selector, arguments)


class DataSource:
    """A data source for mpsref, which calls one of Objective-C."""

    def __init__(self, fake: Any, source: Any) -> None:
        self._fake, self._source = fake, source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(self._source, camel(name)):
            raise AttributeError(name)
        of_mpsref = functools.partial(self.value, camel(name))
        return of_mpsref() if name.startswith("number_of") else of_mpsref  # the numbers are properties

    def value(self, selector: str) -> Any:
        """Return the result of a method."""
        if selector in ("weights", "biasTerms"):
            shape = self._fake.ask(self._source, "descriptor").twin.weights_shape
            shape = shape if selector == "weights" else shape[:1]
            found = self._fake.ask(self._source, selector, math.prod(shape))
            return None if found is None else found.reshape(shape)
        count = self._fake.ask(self._source, "numberOfFeatureChannels")
        found = self._fake.ask(self._source, selector, count or 0)
        return mps.MPSDataType(found) if selector.endswith("ataType") else getattr(found, "twin", found)

    def update(self, gradient_state: Any, source_state: Any, command_buffer: Any = None) -> None:
        """Update the weights."""
        states = "MPSCNNConvolutionGradientState", "MPSCNNConvolutionWeightsAndBiasesState"
        for _ in range(int(self._fake.alter("MPSNNGraph", "updates", np.ones(())))):
            made = (ready(self._fake, kind) for kind in states)
            self._source.updateWithCommandBuffer_gradientState_sourceState_(None, *made)


class BatchState:
    """The state of a batch normalization, whose gradients are nil before the gradient kernel ran."""

    def on_gradientForGamma(self: Any) -> Any:
        return self.perform("gradientForGamma", []) if "MPSCNNBatchNormalizationGradient" in self.writers else None

    def on_gradientForBeta(self: Any) -> Any:
        return self.perform("gradientForBeta", []) if "MPSCNNBatchNormalizationGradient" in self.writers else None


class Dropout:
    def on_resultStateBatchForSourceImage_sourceStates_destinationImage_(self: Any, *images: Any) -> Any:
        """Return the state of the batch, as the header declares; an encode fills it."""
        return ready(self.fake, "MPSCNNDropoutGradientState")

    def on_encodeBatchToCommandBuffer_sourceImages_destinationStates_destinationImages_(
        self: Any, commands: Any, sources: list[Any], states: list[Any], destinations: list[Any]
    ) -> None:
        if any(one is not states[0] for one in states):
            raise Refusal("the images of a batch share one state of a dropout")
        result, states[0].twin = self.twin.encode_batch(stack(sources), return_state=True)
        self.deliver(destinations, result)


class Vector:
    on_init = Object.on_init

    def made(self: Any) -> None:
        descriptor = self.values["descriptor"].twin
        self.twin = np.frombuffer(self.values["buffer"].values["memory"], descriptor.dtype)
        if len(self.twin) != descriptor.length:
            raise Refusal(f"the buffer has {len(self.twin)} values, and the vector {descriptor.length}")

    def on_data(self: Any) -> Any:
        return self.apple(self.altered("data", self.twin))

    def on_synchronizeOnCommandBuffer_(self: Any, commands: Any) -> None:
        commands.values["synchronized"].append(lambda: setattr(self, "stale", False))


class Graph:
    def on_sourceImageHandles(self: Any) -> list[Any]:
        found = self.twin.source_image_handles
        return [found[k] for k in self.fake.alter(self.class_name, "sourceImageHandles", np.arange(len(found)))]

    def on_encodeToCommandBuffer_sourceImages_(self: Any, commands: Any, sources: list[Any]) -> Any:
        y = self.twin.run([stack([source]) for source in sources]).image
        size = self.fake.alter(self.class_name, "size", np.array(y.shape[1:]))
        image = self.allocated([int(n) for n in size], y.dtype.name)
        if image.size == y.shape[1:]:
            write(image, self.fake.alter(self.class_name, "destination", y)[0])
        return image


BEHAVIOURS: dict[str, type[Any]] = {
    "MTLDevice": Device,
    "MTLBuffer": Buffer,
    "MTLCommandQueue": Queue,
    "MTLCommandBuffer": Commands,
    "MPSImage": Image,
    "MPSCNNConvolution": Weighted,
    "MPSCNNBatchNormalizationState": BatchState,
    "MPSCNNDropout": Dropout,
    "MPSVector": Vector,
    "MPSNNGraph": Graph,
    **GRAPHS,
}


def device(backend: Backend | str = "reference") -> Fake:
    """Return a fake whose kernels compute with the reference, or with another backend."""
    return Fake(BEHAVIOURS, Mirror, backend)
