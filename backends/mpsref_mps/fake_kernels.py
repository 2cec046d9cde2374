"""What the objects of the fake do: images in slices of four channels, command buffers, states, and kernels.

Kernels compute with the functional form of the reference, from the properties that the objects of Apple's headers have.
Results are written where the clip rectangle and the channel offset say. Images and buffers that a kernel wrote cannot
be read before they were synchronized on a command buffer that has completed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

import mpsref
from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.geometry import Window
from mpsref.kernels.compare import COMPARISONS
from mpsref.kernels.loss import LOSS_TYPES, REDUCTIONS
from mpsref.kernels.neuron import TYPES
from mpsref.mps import graph
from mpsref.padding import TENSORFLOW_AVERAGE_POOLING_VALID_ONLY, method_inverse, policy_forward, policy_reverse
from mpsref_mps.fake import NO_CLIP, UNLIMITED, Fake, NSObject, Object, Refusal, VariableList, lower_first

Defaults: TypeAlias = dict[str, Any]

EDGE_MODES: dict[int, Any] = {0: "zero", 1: "clamp"}
FLOAT32, FLOAT32_FORMAT, FLOAT16_FORMAT = 268435488, 4, 3

# --- Metal ------------------------------------------------------------------------------------------------------------


class Device:
    def on_name(self: Any) -> str:
        return "a fake of Metal Performance Shaders, computed by the reference"

    def on_newCommandQueue(self: Any) -> Any:
        return ready(self.fake, "MTLCommandQueue")

    def on_newBufferWithBytes_length_options_(self: Any, memory: memoryview, length: int, options: int) -> Any:
        if len(memory) != length:
            raise Refusal(f"the buffer has {len(memory)} bytes, and length is {length}")
        return buffer(self.fake, bytearray(memory))


def ready(fake: Any, kind: str, **values: Any) -> Any:
    """Return an object that Metal or MPS makes itself."""
    made = fake.kind(kind)()
    made.on_init(values)
    return made


def buffer(fake: Any, memory: bytearray | Array) -> Any:
    if isinstance(memory, np.ndarray):
        memory = bytearray(np.ascontiguousarray(memory, np.float32).tobytes())
    return ready(fake, "MTLBuffer", memory=memory, stale=False)


def floats(one: Any) -> Array:
    return np.frombuffer(bytes(one.values["memory"]), np.float32).astype(np.float64)


class Buffer:
    def on_contents(self: Any) -> Any:
        if self.values["stale"]:
            raise Refusal("a buffer is read that a kernel wrote: synchronize it, commit and wait before")
        return VariableList(self.values["memory"])

    def on_length(self: Any) -> int:
        return len(self.values["memory"])


def written(one: Any, values: Array) -> None:
    """Store what a kernel wrote to a buffer."""
    one.values["memory"][:] = np.ascontiguousarray(values, np.float32).tobytes()
    one.values["stale"] = True


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
    def made(self: Any) -> None:
        known = self.values["imageDescriptor"].values
        self.size = known["height"], known["width"], known["featureChannels"]
        self.half = known["channelFormat"] == FLOAT16_FORMAT
        self.dtype = np.float16 if self.half else np.float32
        if known["channelFormat"] not in (FLOAT32_FORMAT, FLOAT16_FORMAT):
            raise Refusal("the kernels need images of float16 or float32")
        height, width, channels = self.size
        if min(self.size) < 1:
            raise Refusal(f"an image of {height} x {width} x {channels} has no pixels")
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
    padded[..., :channels] = pixels.astype(np.float16) if image.half else pixels
    image.slices[...] = padded.reshape(height, width, -1, 4).transpose(2, 0, 1, 3)
    image.host = None


def stack(images: Sequence[Any]) -> Array:
    """Return the pixels (N, H, W, C) of a batch, in float64."""
    if len({image.size for image in images}) > 1:
        raise Refusal("the images of a batch have different sizes")
    found = np.stack([pixels_of(image) for image in images]).astype(np.float64)
    if np.isnan(found).any() and not any(image.host is not None for image in images):
        raise Refusal("a kernel reads pixels that were never written")
    return found


# --- kernels ----------------------------------------------------------------------------------------------------------


class Kernel:
    """Base of all kernels."""

    defaults: Defaults = {
        "destinationFeatureChannelOffset": 0,
        "clipRect": NO_CLIP,
        "destinationImageAllocator": None,
    }

    def offset_pair(self: Any, prefix: str = "") -> tuple[int, int]:
        x, y, z = self.values[lower(prefix, "offset")]
        if z:
            raise Refusal("offset.z is not 0 for images of one image each")
        return y, x

    def region(self: Any, destination: Any) -> tuple[slice, slice]:
        """Return the rows and the columns of a destination that are written."""
        (x0, y0, _), (width, height, _) = self.values["clipRect"]
        rows, columns = destination.size[:2]
        return slice(min(y0, rows), min(rows, y0 + height)), slice(min(x0, columns), min(columns, x0 + width))

    def deliver(self: Any, destinations: Sequence[Any], values: Array, label: str = "destination") -> None:
        """Write the results of a clip to images."""
        values = self.fake.alter(self.class_name, label, values)
        first = self.values["destinationFeatureChannelOffset"]
        for image, result in zip(destinations, values, strict=True):
            whole = pixels_of(image).copy()
            rows, columns = self.region(image)
            whole[rows, columns, first : first + result.shape[2]] = result
            write(image, whole)

    def allocated(self: Any, count: int, size: tuple[int, int, int]) -> list[Any]:
        """Return images of the allocator of the kernel: temporary ones unless it was set."""
        allocator = self.values["destinationImageAllocator"]
        kind = "MPSTemporaryImage" if allocator is None else allocator.values["allocates"]
        height, width, channels = size
        known = {"height": height, "width": width, "featureChannels": channels, "channelFormat": FLOAT32_FORMAT}
        descriptor = ready(self.fake, "MPSImageDescriptor", **known)
        return [ready(self.fake, kind, imageDescriptor=descriptor) for _ in range(count)]

    def read_channels(self: Any, images: Sequence[Any], prefix: str = "") -> Array:
        """Return the channels of a source that a kernel reads."""
        first = self.values[lower(prefix, "sourceFeatureChannelOffset")]
        count = self.values[lower(prefix, "sourceFeatureChannelMaxCount")]
        if first % 4:
            raise Refusal(f"sourceFeatureChannelOffset is {first}; it must be a multiple of 4")
        return stack(images)[..., first : first + count]


def lower(prefix: str, name: str) -> str:
    return prefix + name[:1].upper() + name[1:] if prefix else name


def source_defaults(prefix: str) -> dict[str, Any]:
    known = {"offset": (0, 0, 0), "edgeMode": 0, "sourceFeatureChannelOffset": 0}
    known |= {"sourceFeatureChannelMaxCount": UNLIMITED, "strideInPixelsX": 1, "strideInPixelsY": 1}
    return {lower(prefix, name): value for name, value in known.items()}


class State:
    """A state, with the properties of the forward kernel when it was made."""

    def on_synchronizeOnCommandBuffer_(self: Any, commands: Any) -> None:

        def publish() -> None:
            for value in self.values.values():
                if getattr(value, "class_name", "") == "MTLBuffer":
                    value.values["stale"] = False

        commands.values["synchronized"].append(publish)


class Unary(Kernel):
    """``MPSCNNKernel``"""

    defaults: Defaults = source_defaults("")
    state_name = "MPSNNGradientState"

    def forward(self: Any, x: Array, size: tuple[int, int]) -> Array:
        raise NotImplementedError(f"the fake has no forward pass of {self.class_name}")

    def on_encodeBatchToCommandBuffer_sourceImages_destinationImages_(
        self: Any, commands: Any, sources: list[Any], destinations: list[Any]
    ) -> None:
        self.run(commands, sources, destinations)

    def run(self: Any, commands: Any, sources: list[Any], destinations: list[Any]) -> Array:
        if len(sources) != len(destinations):
            raise Refusal(f"there are {len(sources)} sources and {len(destinations)} destinations")
        rows, columns = self.region(destinations[0])
        x = self.read_channels(sources)
        self.deliver(destinations, self.forward(x, (rows.stop - rows.start, columns.stop - columns.start)))
        return np.asarray(x)

    def on_encodeBatchToCommandBuffer_sourceImages_destinationStates_destinationImages_(
        self: Any, commands: Any, sources: list[Any], states: list[Any], destinations: list[Any]
    ) -> None:
        x = self.run(commands, sources, destinations)
        self.fill(states, x, destinations)

    def fill(self: Any, states: list[Any], x: Array, destinations: list[Any]) -> None:
        """Store in states what the forward pass leaves for its gradient."""

    def on_resultStateBatchForSourceImage_sourceStates_destinationImage_(
        self: Any, sources: list[Any], states: Any, destinations: list[Any]
    ) -> list[Any]:
        return [self.new_state(one, result) for one, result in zip(sources, destinations, strict=True)]

    def on_resultStateForSourceImage_sourceStates_destinationImage_(
        self: Any, source: Any, states: Any, destination: Any
    ) -> Any:
        return self.new_state(source, destination)

    def on_destinationImageDescriptorForSourceImages_sourceStates_(self: Any, sources: list[Any], states: Any) -> Any:
        """Apply the padding policy."""
        known, method = self.values, self.values["padding"].values["method"]
        placed = []
        for axis, name, stride in ((0, "Height", "strideInPixelsY"), (1, "Width", "strideInPixelsX")):
            window = Window(known[f"kernel{name}"], known[stride])
            placed.append(policy_forward(sources[0].size[axis], window, method, axis))
        (height, y), (width, x) = placed
        known["offset"] = (x, y, 0)
        size = {"height": height, "width": width, "featureChannels": sources[0].size[2]}
        return ready(self.fake, "MPSImageDescriptor", **size, channelFormat=FLOAT32_FORMAT)

    def state_of(self: Any) -> str:
        """Return the class of the states."""
        return str(self.state_name)

    def new_state(self: Any, source: Any, destination: Any) -> Any:
        record = {"kernel": self, "forward": dict(self.values), "source": source.size, "result": destination.size}
        return ready(self.fake, self.state_of(), **record)


class Gradient(Kernel):
    """``MPSCNNGradientKernel``"""

    defaults: Defaults = {"kernelOffsetX": 0, "kernelOffsetY": 0}

    def configure(self: Any, state: Any) -> None:
        """Take the properties of the forward kernel from a state."""
        forward = state.values["forward"]
        self.values |= {"secondaryOffset": forward["offset"], "secondaryEdgeMode": forward["edgeMode"]}

    def gradient(self: Any, g: Array, x: Any, destination: Any, state: Any, states: Any) -> Array:
        raise NotImplementedError(f"the fake has no gradient of {self.class_name}")

    def on_encodeBatchToCommandBuffer_sourceGradients_sourceImages_gradientStates_(
        self: Any, commands: Any, gradients: list[Any], sources: list[Any], states: list[Any]
    ) -> list[Any]:
        if not len(gradients) == len(sources) == len(states):
            raise Refusal("gradients, images and states are not as many")
        if gradients[0].size != states[0].values["result"]:
            raise Refusal(f"the source gradient is {gradients[0].size}, the result was {states[0].values['result']}")
        self.configure(states[0])
        destinations: list[Any] = self.allocated(len(sources), self.destination_size(sources[0], states[0]))
        g, x = stack(gradients), stack(sources) if self.reads_source(sources) else None
        self.deliver(destinations, self.gradient(g, x, destinations[0], states[0], states=states))
        return destinations

    def reads_source(self: Any, sources: list[Any]) -> bool:
        return all(image.host is not None for image in sources)

    def destination_size(self: Any, source: Any, state: Any) -> tuple[int, int, int]:
        return source.size  # type: ignore[no-any-return]

    def on_encodeBatchToCommandBuffer_sourceGradients_sourceImages_gradientStates_destinationGradients_(
        self: Any, commands: Any, gradients: Any, sources: Any, states: Any, destinations: list[Any]
    ) -> None:
        self.deliver(destinations, self.gradient(stack(gradients), stack(sources), destinations[0], states[0], states))

    def on_encodeBatchToCommandBuffer_primaryImages_secondaryImages_destinationImages_(
        self: Any, commands: Any, gradients: list[Any], sources: list[Any], destinations: list[Any]
    ) -> None:
        g, x = stack(gradients), stack(sources) if self.reads_source(sources) else None
        self.deliver(destinations, self.gradient(g, x, destinations[0], None, states=None))


class Binary(Kernel):
    """``MPSCNNBinaryKernel``"""

    defaults: Defaults = source_defaults("primary") | source_defaults("secondary")


# --- kernels of one function ------------------------------------------------------------------------------------------


class Function(Unary):
    """A kernel whose ``spec(kernel, offset, edge mode)`` is a functional form."""

    spec: Any = None

    def forward(self: Any, x: Array, size: tuple[int, int]) -> Array:
        spec = self.spec(self.offset_pair(), self.values["edgeMode"])
        sized = "output_size" in spec.problems["forward"].field_names
        return spec.forward(x, size) if sized else spec.forward(x)  # type: ignore[no-any-return]


class FunctionGradient(Gradient):
    spec: Any = None

    def function(self: Any) -> Any:
        return self.spec(self.offset_pair("secondary"), self.values["secondaryEdgeMode"])

    def gradient(self: Any, g: Array, x: Any, destination: Any, state: Any, states: Any) -> Array:
        source = x if x is not None else (len(g), *destination.size)
        return self.function().gradient(g, source)  # type: ignore[no-any-return]


# --- pooling ----------------------------------------------------------------------------------------------------------


def pooling_spec(kernel: Any, offset: tuple[int, int], edge_mode: int) -> Any:
    known, kind = kernel.values, POOLING[kernel.class_name.removesuffix("Gradient")]
    options: dict[str, Any] = {}
    if kind is mpsref.PoolingAverage:
        options["zero_pad_size"] = known["zeroPadSizeY"], known["zeroPadSizeX"]
    if kind is mpsref.PoolingMax:
        options["dilations"] = known.get("dilationRateY", 1), known.get("dilationRateX", 1)
    size, strides = (known["kernelHeight"], known["kernelWidth"]), (known["strideInPixelsY"], known["strideInPixelsX"])
    return kind(size, strides, offset=offset, edge_mode=EDGE_MODES[edge_mode], **options)


class PoolingGradient(FunctionGradient):
    defaults: Defaults = {"sourceSize": (UNLIMITED,) * 3}

    def configure(self: Any, state: Any) -> None:
        Gradient.configure(self, state)
        forward = state.values["forward"]
        if "zeroPadSizeX" in forward:
            self.values |= {name: forward[name] for name in ("zeroPadSizeX", "zeroPadSizeY")}
        origin = self.values["clipRect"][0]
        windows = self.function().windows
        ko = [o - max(0, w.offset - w.center) for w, o in zip(windows, (origin[1], origin[0]), strict=True)]
        self.values |= {"kernelOffsetY": ko[0], "kernelOffsetX": ko[1]}

    def gradient(self: Any, g: Array, x: Any, destination: Any, state: Any, states: Any) -> Array:
        spec = self.function()
        if spec.reads_source and x is None:
            raise Refusal(f"{self.class_name} reads a source that has no pixels")
        width, height, _ = self.values["sourceSize"]
        size = None if width == UNLIMITED else (height, width)
        source = x if x is not None else (len(g), *destination.size)
        full = spec.gradient(g, source, self.offset_pair("primary"), size)
        rows, columns = self.region(destination)
        ko = self.values["kernelOffsetY"], self.values["kernelOffsetX"]
        result = np.zeros((len(g), rows.stop - rows.start, columns.stop - columns.start, g.shape[3]))
        pixels = [placed(w, k, n) for w, k, n in zip(spec.windows, ko, result.shape[1:3], strict=True)]
        for q, y in enumerate(pixels[0]):
            for p, column in enumerate(pixels[1]):
                if 0 <= y < full.shape[1] and 0 <= column < full.shape[2]:
                    result[:, q, p] = full[:, y, column]
        return result


def placed(window: Window, kernel_offset: int, n: int) -> range:
    """Return the source pixels of a clip: from the first window inside the source on, moved by the kernel offset."""
    first = max(0, window.offset - window.center) + kernel_offset
    return range(first, first + n)


def pair_of(base: type[Any], **values: Any) -> type[Any]:
    """Return a behaviour with other attributes."""
    return type(base.__name__, (base,), values)


# --- normalization with windows, and upsampling -----------------------------------------------------------------------

WINDOWED = {
    "MPSCNNSpatialNormalization": mpsref.SpatialNormalization,
    "MPSCNNLocalContrastNormalization": mpsref.LocalContrastNormalization,
    "MPSCNNCrossChannelNormalization": mpsref.CrossChannelNormalization,
}
PARAMETERS = {
    "MPSCNNSpatialNormalization": {"alpha": 1.0, "beta": 5.0, "delta": 1.0},
    "MPSCNNLocalContrastNormalization": {
        "alpha": 0.0,
        "beta": 0.5,
        "delta": 1 / 1024,
        "p0": 1.0,
        "pm": 0.0,
        "ps": 1.0,
    },
    "MPSCNNCrossChannelNormalization": {"alpha": 1.0, "beta": 5.0, "delta": 1.0},
}


def windowed_spec(kernel: Any, offset: tuple[int, int], edge_mode: int) -> Any:
    name, known = kernel.class_name.removesuffix("Gradient"), kernel.values
    parameters = {key: single(known[key]) for key in PARAMETERS[name]}
    if name == "MPSCNNCrossChannelNormalization":
        return WINDOWED[name](known["kernelSize"], **parameters)
    size = known["kernelHeight"], known["kernelWidth"]
    if size[0] != size[1]:
        raise Refusal(f"{name} needs equal width and height, not {size}")
    return WINDOWED[name](size, **parameters, offset=offset)


def single(value: float) -> float:
    """Return a number as a float property of Objective-C holds it."""
    return float(np.float32(value))


def upsampling_spec(kernel: Any, offset: tuple[int, int], edge_mode: int) -> Any:
    scale = kernel.values["integerScaleFactorY"], kernel.values["integerScaleFactorX"]
    if "Nearest" in kernel.class_name:
        return mpsref.UpsamplingNearest(scale)
    aligned = kernel.values.get("alignCorners", False)
    return mpsref.UpsamplingBilinear(scale, aligned, edge_mode=EDGE_MODES[edge_mode])


# --- pointwise --------------------------------------------------------------------------------------------------------

NEEDS = {"relu": "a", "linear": "ab", "hardsigmoid": "ab", "tanh": "ab", "softplus": "ab", "elu": "a", "relun": "ab"}
NEEDS |= dict.fromkeys(("power", "exponential", "logarithm"), "abc")


class DefaultPadding:
    def made(self: Any) -> None:
        self.values["paddingMethod"] = self.values["method"]

    def on_inverse(self: Any) -> Any:
        return ready(self.fake, "MPSNNDefaultPadding", method=int(method_inverse(self.values["method"])))

    @classmethod
    def of_paddingForTensorflowAveragePoolingValidOnly(cls: Any) -> Any:
        return ready(cls.fake, "MPSNNDefaultPadding", method=int(TENSORFLOW_AVERAGE_POOLING_VALID_ONLY.method))


class NeuronDescriptor:
    defaults: Defaults = {"a": 0.0, "b": 0.0, "c": 0.0, "data": None}

    def made(self: Any) -> None:
        if isinstance(self.values.get("data"), bytes):
            self.values["type"] = TYPES.index("prelu")


def neuron_spec(descriptor: Any) -> mpsref.Neuron | None:
    if descriptor is None:
        return None
    known, name = descriptor.values, TYPES[descriptor.values["type"]]
    if name == "prelu":
        return mpsref.Neuron("prelu", data=np.frombuffer(known["data"], np.float32).tolist())
    parameters: list[Any] = [single(known[key]) for key in NEEDS.get(name, "")]
    return mpsref.Neuron(name, *parameters)


SOFTMAX = {"MPSCNNSoftMax": mpsref.SoftMax(), "MPSCNNLogSoftMax": mpsref.LogSoftMax()}


LARGEST = float(np.finfo(np.float32).max)


class Arithmetic(Binary):
    defaults: Defaults = {
        "primaryScale": 1.0,
        "secondaryScale": 1.0,
        "bias": 0.0,
        "minimumValue": -LARGEST,
        "maximumValue": LARGEST,
        "primaryStrideInFeatureChannels": 1,
        "secondaryStrideInFeatureChannels": 1,
    }

    def function(self: Any) -> mpsref.Arithmetic:
        known = self.values
        options: dict[str, Any] = {}
        for side in ("primary", "secondary"):
            x, y, _ = known[f"{side}Offset"]
            channel = known[f"{side}SourceFeatureChannelOffset"]
            if channel % 4:
                raise Refusal(f"{side}SourceFeatureChannelOffset is {channel}; it must be a multiple of 4")
            strides = known[f"{side}StrideInPixelsY"], known[f"{side}StrideInPixelsX"]
            options[f"{side}_strides"] = (*strides, known[f"{side}StrideInFeatureChannels"])
            options[f"{side}_offset"] = y, x, channel
        for name, bound in (("minimumValue", -LARGEST), ("maximumValue", LARGEST)):
            if known[name] != bound:
                options["minimum_value" if name == "minimumValue" else "maximum_value"] = single(known[name])
        scales = single(known["primaryScale"]), single(known["secondaryScale"]), single(known["bias"])
        return mpsref.Arithmetic(self.class_name.removeprefix("MPSCNN").lower(), *scales, **options)

    def on_encodeBatchToCommandBuffer_primaryImages_secondaryImages_destinationImages_(
        self: Any, commands: Any, primary: list[Any], secondary: list[Any], destinations: list[Any]
    ) -> None:
        self.deliver(destinations, self.function().forward(stack(primary), stack(secondary)))

    def on_resultStateBatchForPrimaryImage_secondaryImage_sourceStates_destinationImage_(
        self: Any, primary: list[Any], secondary: list[Any], states: Any, destinations: list[Any]
    ) -> list[Any]:
        kind, spec = "MPSCNNArithmeticGradientState", self.function()
        return [
            ready(self.fake, kind, spec=spec, sizes=(one.size, other.size), result=result.size, operands=None)
            for one, other, result in zip(primary, secondary, destinations, strict=True)
        ]

    def on_encodeBatchToCommandBuffer_primaryImages_secondaryImages_destinationStates_destinationImages_(
        self: Any, commands: Any, primary: list[Any], secondary: list[Any], states: list[Any], destinations: list[Any]
    ) -> None:
        for state in states:
            state.values["operands"] = stack(primary), stack(secondary)
        self.on_encodeBatchToCommandBuffer_primaryImages_secondaryImages_destinationImages_(
            commands, primary, secondary, destinations
        )


class ArithmeticGradient(Gradient):
    defaults: Defaults = {
        "primaryScale": 1.0,
        "secondaryScale": 1.0,
        "bias": 0.0,
        "secondaryStrideInFeatureChannels": 1,
    }

    def configure(self: Any, state: Any) -> None:
        """Nothing is copied: the caller sets scales and strides."""

    def destination_size(self: Any, source: Any, state: Any) -> tuple[int, int, int]:
        found: tuple[int, int, int] = state.values["sizes"][int(self.values["isSecondarySourceFilter"])]
        return found

    def gradient(self: Any, g: Array, x: Any, destination: Any, state: Any, states: Any) -> Array:
        spec, k = state.values["spec"], int(self.values["isSecondarySourceFilter"])
        product = "Multiply" in self.class_name
        source = 1 - k if product else k
        known = self.values
        strides = known["secondaryStrideInPixelsY"], known["secondaryStrideInPixelsX"]
        if (*strides, known["secondaryStrideInFeatureChannels"]) != tuple(spec.operands[source].strides):
            raise Refusal("the strides of the gradient kernel are not those of the image passed as its source image")
        if spec.clamps:
            first, second = (part.part(one) for part, one in zip(spec.operands, state.values["operands"], strict=True))
            ones = replace(spec, primary_offset=(0, 0, 0), secondary_offset=(0, 0, 0))
            free = replace(ones, minimum_value=-math.inf, maximum_value=math.inf)
            r = free.forward(first, second)
            g = g * ((spec.minimum_value < r) & (r < spec.maximum_value))
        term = single(known["primaryScale"]) * g
        if product:
            term = term * single(known["secondaryScale"]) * np.broadcast_to(spec.operands[source].part(x), g.shape)
        operand = spec.operands[k]
        axes = tuple(axis + 1 for axis, t in enumerate(operand.strides) if t == 0)
        term = term.sum(axis=axes, keepdims=True)
        result = np.zeros((len(g), *destination.size))
        index = (slice(o, o + n) for o, n in zip(operand.offset, term.shape[1:], strict=True))
        result[(slice(None), *index)] = term
        return result + single(known["bias"])


class Compare(Arithmetic):
    defaults: Defaults = {"comparisonType": 0, "threshold": 0.0}

    def on_encodeBatchToCommandBuffer_primaryImages_secondaryImages_destinationImages_(
        self: Any, commands: Any, primary: list[Any], secondary: list[Any], destinations: list[Any]
    ) -> None:
        spec = mpsref.Compare(COMPARISONS[self.values["comparisonType"]], single(self.values["threshold"]))
        self.deliver(destinations, spec.forward(stack(primary), stack(secondary)))


class WeightedMean(Binary):
    def on_encodeBatchToCommandBuffer_primaryImages_secondaryImages_destinationImages_(
        self: Any, commands: Any, primary: list[Any], secondary: list[Any], destinations: list[Any]
    ) -> None:
        self.deliver(destinations, (stack(primary) * stack(secondary)).mean(axis=3, keepdims=True))


class ArgumentMax(Unary):
    def forward(self: Any, x: Array, size: tuple[int, int]) -> Array:
        return np.asarray(x.argmax(axis=3)[..., None], np.float64)


def resize_spec(kernel: Any, offset: tuple[int, int], edge_mode: int) -> Any:
    known = kernel.values
    return mpsref.ResizeBilinear((known["resizeHeight"], known["resizeWidth"]), known["alignCorners"])


class Crop(Unary):
    def made(self: Any) -> None:
        if len(self.values["regions"]) != self.values["numberOfRegions"]:
            raise Refusal("numberOfRegions is not the length of regions")

    def forward(self: Any, x: Array, size: tuple[int, int]) -> Array:
        (((x0, y0, _), (width, height, _)),) = self.values["regions"]
        known = self.values["resizeHeight"], self.values["resizeWidth"]
        return mpsref.CropAndResizeBilinear(known, (y0, x0, y0 + height, x0 + width)).forward(x)


class Reshape(Unary):
    def on_encodeToCommandBuffer_sourceImage_reshapedWidth_reshapedHeight_reshapedFeatureChannels_(
        self: Any, commands: Any, source: Any, width: int, height: int, channels: int
    ) -> Any:
        destinations: list[Any] = self.allocated(1, (height, width, channels))
        self.deliver(destinations, stack([source]).reshape(1, height, width, channels))
        return destinations[0]


# --- kernels with weights ---------------------------------------------------------------------------------------------


class ConvolutionDescriptor:
    defaults: Defaults = {
        "strideInPixelsX": 1,
        "strideInPixelsY": 1,
        "dilationRateX": 1,
        "dilationRateY": 1,
        "groups": 1,
    }
    defaults |= {"fusedNeuronDescriptor": None}

    def on_setBatchNormalizationParametersForInferenceWithMean_variance_gamma_beta_epsilon_(
        self: Any, *parameters: Any
    ) -> None:
        *arrays, epsilon = parameters
        for name, values in zip(("mean", "variance", "gamma", "beta"), arrays, strict=True):
            self.values[name] = np.frombuffer(values, np.float32).astype(np.float64)
        self.values["epsilon"] = single(epsilon)


CALLS = "load", "descriptor", "weights", "biasTerms", "purge"


def loaded(kernel: Any) -> dict[str, Any]:
    """Return what a kernel loads from its data source."""
    fake, source, found = kernel.fake, kernel.values["weights"], dict[str, Any]()
    for name in [CALLS[k] for k in np.argsort(fake.alter(kernel.class_name, "calls", np.arange(len(CALLS))))]:
        found[name] = fake.ask(source, name, pointed(found["descriptor"]).get(name, 0) if "descriptor" in found else 0)
    if found["load"] is not True:
        raise Refusal("load did not return YES")
    if fake.ask(source, "dataType") != FLOAT32:
        raise Refusal("dataType is not float32")
    descriptor, weights, biases = found["descriptor"], found["weights"], found["biasTerms"]
    known, groups = descriptor.values, groups_of(descriptor)
    inputs, outputs = known["inputFeatureChannels"], known["outputFeatureChannels"]
    if depthwise(descriptor) and inputs != outputs:
        raise Refusal("only a channel multiplier of 1 is supported")
    if not depthwise(descriptor) and groups > 1 and (inputs // groups % 4 or outputs // groups % 4):
        raise Refusal("a group must have a multiple of 4 channels")
    weights = weights.astype(np.float64).reshape(outputs, known["kernelHeight"], known["kernelWidth"], inputs // groups)
    if "variance" in known:
        factor = known["gamma"] / np.sqrt(known["variance"] + known["epsilon"])
        weights = weights * factor[:, None, None, None]
        biases = known["beta"] + factor * ((0 if biases is None else biases) - known["mean"])
    single_precision = fake.ask(source, "kernelWeightsDataType") == FLOAT32
    weights = weights.astype(np.float32 if single_precision else np.float16).astype(np.float64)
    return {"descriptor": descriptor, "groups": groups, "weights": weights, "biases": biases}


def depthwise(descriptor: Any) -> bool:
    return bool(descriptor.class_name == "MPSCNNDepthWiseConvolutionDescriptor")


def groups_of(descriptor: Any) -> int:
    return int(descriptor.values["inputFeatureChannels" if depthwise(descriptor) else "groups"])


def pointed(descriptor: Any) -> dict[str, int]:
    """Return the numbers of weights and biases."""
    known = descriptor.values
    names = "kernelHeight", "kernelWidth", "inputFeatureChannels", "outputFeatureChannels"
    weights = math.prod(known[name] for name in names) // groups_of(descriptor)
    return {"weights": weights, "biasTerms": known["outputFeatureChannels"]}


def convolution_spec(kernel: Any, known: dict[str, Any]) -> mpsref.Convolution:
    """Return the function of a convolution; ``known`` are the properties with offset and edge mode."""
    values = kernel.loaded["descriptor"].values
    x, y, _ = known["offset"]
    return mpsref.Convolution(
        (values["kernelHeight"], values["kernelWidth"]),
        (values["strideInPixelsY"], values["strideInPixelsX"]),
        (values["dilationRateY"], values["dilationRateX"]),
        offset=(y, x),
        groups=kernel.loaded["groups"],
        edge_mode=EDGE_MODES[known["edgeMode"]],
        neuron=neuron_spec(values["fusedNeuronDescriptor"]) if "Gradient" not in kernel.class_name else None,
    )


def transpose_spec(kernel: Any, known: dict[str, Any]) -> mpsref.ConvolutionTranspose:
    values = kernel.loaded["descriptor"].values
    x, y, _ = known["offset"]
    return mpsref.ConvolutionTranspose(
        (values["kernelHeight"], values["kernelWidth"]),
        (values["strideInPixelsY"], values["strideInPixelsX"]),
        offset=(y, x),
        kernel_offset=(known["kernelOffsetY"], known["kernelOffsetX"]),
        groups=kernel.loaded["groups"],
        neuron=neuron_spec(values["fusedNeuronDescriptor"]) if "Gradient" not in kernel.class_name else None,
    )


def fully_connected_spec(kernel: Any, known: dict[str, Any]) -> mpsref.FullyConnected:
    values = kernel.loaded["descriptor"].values
    neuron = neuron_spec(values["fusedNeuronDescriptor"]) if "Gradient" not in kernel.class_name else None
    return mpsref.FullyConnected((values["kernelHeight"], values["kernelWidth"]), neuron=neuron)


class Weighted(Unary):
    state_name = "MPSCNNConvolutionGradientState"
    function: Any = staticmethod(convolution_spec)

    def made(self: Any) -> None:
        self.loaded = loaded(self)

    def forward(self: Any, x: Array, size: tuple[int, int]) -> Array:
        spec = self.function(self, self.values)
        return spec.forward(x, self.loaded["weights"], self.loaded["biases"], size)  # type: ignore[no-any-return]

    def on_resultStateBatchForSourceImage_sourceStates_destinationImage_(
        self: Any, sources: list[Any], states: Any, destinations: list[Any]
    ) -> list[Any]:
        """Return one state for the whole batch."""
        state = self.new_state(sources[0], destinations[0])
        shape = self.loaded["weights"].shape
        state.values |= {"gradientForWeights": buffer(self.fake, np.zeros(shape))}
        state.values |= {"gradientForBiases": buffer(self.fake, np.zeros(shape[0]))}
        return [state] * len(sources)

    def on_reloadWeightsAndBiasesWithCommandBuffer_state_(self: Any, commands: Any, state: Any) -> None:
        self.loaded["weights"] = floats(state.values["weights"]).reshape(self.loaded["weights"].shape)
        if state.values["biases"] is not None:
            self.loaded["biases"] = floats(state.values["biases"])

    def on_encodeBatchToCommandBuffer_sourceImages_convolutionGradientStates_(
        self: Any, commands: Any, sources: list[Any], states: list[Any]
    ) -> list[Any]:
        known = states[0].values
        x, y, _ = known["forward"]["offset"]
        width, height = (known["kernel"].loaded["descriptor"].values[name] for name in ("kernelWidth", "kernelHeight"))
        self.values |= {"kernelOffsetX": (width % 2 == 0) - x, "kernelOffsetY": (height % 2 == 0) - y}
        size = (*known["source"][:2], self.loaded["weights"].shape[0])
        destinations: list[Any] = self.allocated(len(sources), size)
        self.run(commands, sources, destinations)
        return destinations


class Transposed(Weighted):
    def on_destinationImageDescriptorForSourceImages_sourceStates_(self: Any, sources: list[Any], states: Any) -> Any:
        """Apply the padding policy."""
        known, method = self.loaded["descriptor"].values, self.values["padding"].values["method"]
        placed = []
        for axis, name, stride in ((0, "Height", "strideInPixelsY"), (1, "Width", "strideInPixelsX")):
            window = Window(known[f"kernel{name}"], known[stride])
            placed.append(policy_reverse(sources[0].size[axis], window, method, axis))
        (height, y), (width, x) = placed
        self.values |= {"kernelOffsetX": x, "kernelOffsetY": y}
        size = {"height": height, "width": width, "featureChannels": known["outputFeatureChannels"]}
        return ready(self.fake, "MPSImageDescriptor", **size, channelFormat=FLOAT32_FORMAT)


class WeightedGradient(Gradient):
    defaults: Defaults = {"gradientOption": 3}

    def on_encodeBatchToCommandBuffer_sourceGradients_sourceImages_gradientStates_destinationGradients_(
        self: Any, commands: Any, gradients: Any, sources: Any, states: Any, destinations: list[Any]
    ) -> None:
        found = self.gradient(stack(gradients), stack(sources), destinations[0], states[0], states)
        self.deliver(destinations, found if self.values["gradientOption"] & 1 else stack(destinations))

    function: Any = staticmethod(convolution_spec)

    def made(self: Any) -> None:
        self.loaded = loaded(self)

    def clamps(self: Any, spec: Any) -> bool:
        return isinstance(spec, mpsref.Convolution) and spec.edge_mode == "clamp"

    def gradient(self: Any, g: Array, x: Any, destination: Any, state: Any, states: Any) -> Array:
        if any(one is not state for one in states):
            raise Refusal("the images of a batch share one state of a convolution")
        spec, known = self.function(self, state.values["forward"]), state.values
        dx = np.zeros((len(g), *destination.size))
        if self.values["gradientOption"] & 1:
            of_zeros = replace(spec, edge_mode="zero") if self.clamps(spec) else spec
            dx = of_zeros.gradient_data(g, self.loaded["weights"], dx.shape)
        if self.values["gradientOption"] & 2:
            found = dict(zip(("gradientForWeights", "gradientForBiases"), spec.gradient_weights(g, x), strict=True))
            for name, values in found.items():
                values = self.fake.alter(self.class_name, name, values)
                written(known[name], floats(known[name]) + np.ravel(values))
        return dx


# --- batch, instance and group normalization --------------------------------------------------------------------------


def normalization_source(kernel: Any, batch: bool = False) -> dict[str, Any]:
    """Return what a kernel loads from its data source."""
    fake, source = kernel.fake, kernel.values["dataSource"]
    if batch and fake.ask(source, "load") is not True:
        raise Refusal("load did not return YES")
    channels = fake.ask(source, "numberOfFeatureChannels")
    names = ("gamma", "beta", "mean", "variance") if batch else ("gamma", "beta")
    known = {name: fake.ask(source, name, channels) for name in names}
    if not batch:
        known["groups"] = fake.ask(source, "numberOfGroups") if "Group" in kernel.class_name else channels
    kernel.values.setdefault("epsilon", fake.ask(source, "epsilon"))
    return known


class BatchNormalization(Unary):
    defaults: Defaults = {"fusedNeuronDescriptor": None}
    state_name = "MPSCNNBatchNormalizationState"

    def made(self: Any) -> None:
        self.loaded = normalization_source(self, batch=True)

    def forward(self: Any, x: Array, size: tuple[int, int]) -> Array:
        known = self.loaded
        return batch_spec(self).forward(x, known["mean"], known["variance"], known["gamma"], known["beta"])

    def new_state(self: Any, source: Any, destination: Any) -> Any:
        state = Unary.new_state(self, source, destination)
        state.values |= {"statistics": None, "sums": None, "gradientForGamma": None, "gradientForBeta": None}
        for name in ("mean", "variance", "gamma", "beta"):
            state.values[name] = buffer(self.fake, self.loaded[name])
        return state

    def on_encodeToCommandBuffer_sourceImage_batchNormalizationState_destinationImage_(
        self: Any, commands: Any, source: Any, state: Any, destination: Any
    ) -> None:
        known = [floats(state.values[name]) for name in ("mean", "variance", "gamma", "beta")]
        self.deliver([destination], batch_spec(self).forward(stack([source]), *known))
        state.values["used"] = True


def batch_spec(kernel: Any) -> mpsref.BatchNormalization:
    neuron = neuron_spec(kernel.values["fusedNeuronDescriptor"])
    return mpsref.BatchNormalization(single(kernel.values["epsilon"]), neuron)


class Statistics(Unary):
    def on_encodeBatchToCommandBuffer_sourceImages_batchNormalizationState_(
        self: Any, commands: Any, sources: list[Any], state: Any
    ) -> None:
        spec, known = batch_spec(state.values["kernel"]), state.values
        if known.get("used"):
            known |= {"statistics": None, "used": False}
        known["statistics"] = spec.statistics(stack(sources), known["statistics"])
        for name, values in (("mean", known["statistics"].mean), ("variance", known["statistics"].variance)):
            written(known[name], self.fake.alter(self.class_name, name, values))


class BatchGradient(Gradient):
    defaults: Defaults = {"fusedNeuronDescriptor": None, "appendBatchBarrier": True}

    def parameters(self: Any, state: Any) -> tuple[Any, ...]:
        forward = state.values["kernel"]
        ours, theirs = self.values["fusedNeuronDescriptor"], forward.values["fusedNeuronDescriptor"]
        if neuron_spec(ours) != neuron_spec(theirs):
            raise Refusal("the neuron of a gradient kernel must be that of the forward kernel")
        known = [floats(state.values[name]) for name in ("mean", "variance", "gamma", "beta")]
        return batch_spec(forward), *known


class StatisticsGradient(BatchGradient):
    def on_encodeBatchToCommandBuffer_sourceGradients_sourceImages_batchNormalizationState_(
        self: Any, commands: Any, gradients: list[Any], sources: list[Any], state: Any
    ) -> None:
        spec, *known = self.parameters(state)
        sums = spec.statistics_gradient(stack(gradients), stack(sources), *known, state=state.values["sums"])
        state.values["sums"] = sums


class BatchNormalizationGradient(BatchGradient):
    def on_encodeBatchToCommandBuffer_sourceGradients_sourceImages_batchNormalizationState_destinationGradients_(
        self: Any, commands: Any, gradients: list[Any], sources: list[Any], state: Any, destinations: list[Any]
    ) -> None:
        spec, *known = self.parameters(state)
        batch, sums = state.values["statistics"] is not None, state.values["sums"]
        if batch and sums is None:
            raise Refusal("the statistics gradient was not encoded")
        g, x = stack(gradients), stack(sources)
        self.deliver(destinations, spec.gradient(g, x, *known, sums=sums if batch else None))
        if sums is not None:
            filled(self, state, gradientForGamma=sums.dgamma, gradientForBeta=sums.dbeta)


def filled(kernel: Any, state: Any, **values: Array) -> None:
    """Give a state the buffers that are nil before the gradient kernel ran."""
    for name, one in values.items():
        state.values[name] = buffer(kernel.fake, one)
        written(state.values[name], kernel.fake.alter(kernel.class_name, name, one))


class ImageNormalization(Unary):
    def made(self: Any) -> None:
        self.loaded = normalization_source(self)

    def state_of(self: Any) -> str:
        return f"{self.class_name}GradientState"

    def function(self: Any) -> mpsref.GroupNormalization:
        return mpsref.GroupNormalization(self.loaded["groups"], single(self.values["epsilon"]))

    def forward(self: Any, x: Array, size: tuple[int, int]) -> Array:
        return self.function().forward(x, self.loaded["gamma"], self.loaded["beta"])  # type: ignore[no-any-return]

    def new_state(self: Any, source: Any, destination: Any) -> Any:
        state = Unary.new_state(self, source, destination)
        state.values |= {"filled": False, "gradientForGamma": None, "gradientForBeta": None}
        return state

    def fill(self: Any, states: list[Any], x: Array, destinations: list[Any]) -> None:
        for state in states:
            state.values["filled"] = True


class ImageNormalizationGradient(Gradient):
    def gradient(self: Any, g: Array, x: Any, destination: Any, state: Any, states: Any) -> Array:
        if len({id(one) for one in states}) != len(states):
            raise Refusal("each image has a state of its own")
        if not all(one.values["filled"] for one in states):
            raise Refusal("the forward kernel did not write the states")
        forward = state.values["kernel"]
        dx, dgamma, dbeta = forward.function().gradient(g, x, forward.loaded["gamma"])
        for n, one in enumerate(states):
            filled(self, one, gradientForGamma=dgamma[n], gradientForBeta=dbeta[n])
        return dx  # type: ignore[no-any-return]


# --- graphs: those of mpsref.mps.graph --------------------------------------------------------------------------------


class ImageNode:
    def made(self: Any) -> None:
        self.node = graph.MPSNNImageNode(self.values["handle"])


class FilterNode:
    def on_init(self: Any, arguments: dict[str, Any]) -> None:
        self.node = getattr(graph, self.class_name)(*(plain(self.fake, value) for value in arguments.values()))
        Object.on_init(self, {})

    def on_resultImage(self: Any) -> Any:
        return wrapped(self.fake, "MPSNNImageNode", self.node.result_image)

    def on_trainingGraphWithSourceGradient_nodeHandler_(self: Any, gradient: Any, handler: Any) -> list[Any]:
        made = self.node.training_graph_with_source_gradient(None, None)
        return [wrapped(self.fake, type(node).__name__, node) for node in made]


class CrossChannelNode(FilterNode):
    def on_kernelSizeInFeatureChannels(self: Any) -> Any:
        size = self.node.kernel_size_in_feature_channels
        return self.fake.alter(self.class_name, "kernelSizeInFeatureChannels", size)


def wrapped(fake: Any, kind: str, node: Any) -> Any:
    """Return a node of mpsref as an object of the fake."""
    made = fake.kind(kind)()
    made.node, made.ready = node, True
    return made


def plain(fake: Any, value: Any) -> Any:
    """Return an argument of a node for the class of the same name in mpsref."""
    if isinstance(value, (list, tuple)):
        return [plain(fake, one) for one in value]
    if isinstance(value, NSObject):
        return GraphSource(fake, value)
    return np.frombuffer(value, np.float32) if isinstance(value, bytes) else getattr(value, "node", value)


class GraphSource:
    """A data source of a convolution for mpsref, which calls one of Objective-C."""

    def __init__(self, fake: Any, source: Any) -> None:
        self._fake, self._source = fake, source

    def load(self) -> Any:
        return self._fake.ask(self._source, "load")

    def data_type(self) -> str:
        return "float32"

    kernel_weights_data_type = data_type

    def descriptor(self) -> mps.MPSCNNConvolutionDescriptor:
        known = self._fake.ask(self._source, "descriptor").values
        names = "kernelWidth", "kernelHeight", "inputFeatureChannels", "outputFeatureChannels"
        return mps.MPSCNNConvolutionDescriptor(*(known[name] for name in names))

    def weights(self) -> Array:
        shape = self.descriptor().weights_shape
        found: Array = self._fake.ask(self._source, "weights", math.prod(shape)).reshape(shape)
        return found

    def bias_terms(self) -> Array:
        found: Array = self._fake.ask(self._source, "biasTerms", self.descriptor().output_feature_channels)
        return found

    def label(self) -> Any:
        return self._fake.ask(self._source, "label")

    def purge(self) -> None:
        self._fake.ask(self._source, "purge")

    def update(self, gradient_state: Any, source_state: Any, command_buffer: Any = None) -> None:
        states = "MPSCNNConvolutionGradientState", "MPSCNNConvolutionWeightsAndBiasesState"
        for _ in range(int(self._fake.alter("MPSNNGraph", "updates", np.ones(())))):
            made = (ready(self._fake, kind) for kind in states)
            self._source.updateWithCommandBuffer_gradientState_sourceState_(None, *made)


class Graph:
    defaults: Defaults = {"format": FLOAT16_FORMAT, "destinationImageAllocator": None}

    def made(self: Any) -> None:
        result, needed = self.values["resultImage"].node, self.values["resultImageIsNeeded"]
        self.graph = graph.MPSNNGraph(result_image=result, result_image_is_needed=needed, backend="reference")

    def on_sourceImageHandles(self: Any) -> list[Any]:
        found = self.graph.source_image_handles
        order = self.fake.alter(self.class_name, "sourceImageHandles", np.arange(len(found)))
        return [found[k] for k in order]

    def on_encodeToCommandBuffer_sourceImages_(self: Any, commands: Any, sources: list[Any]) -> Any:
        if self.values["format"] != FLOAT32_FORMAT:
            raise Refusal("the result has format float16; set the format of the graph")
        y = self.graph.run([stack([source]).astype(np.float32) for source in sources]).image
        size = self.fake.alter(self.class_name, "size", np.array(y.shape[1:]))
        height, width, channels = map(int, size)
        (image,) = Kernel.allocated(self, 1, (height, width, channels))
        if image.size == y.shape[1:]:
            write(image, self.fake.alter(self.class_name, "destination", y)[0])
        return image


# --- training ---------------------------------------------------------------------------------------------------------


class Dropout(Unary):
    state_name = "MPSCNNDropoutGradientState"

    def forward(self: Any, x: Array, size: tuple[int, int]) -> Array:
        known = self.values
        width, height, depth = known["maskStrideInPixels"]
        spec = mpsref.Dropout(single(known["keepProbability"]), known["seed"], (height, width, depth))
        drawn = self.fake.random.random(spec.mask_shape(x.shape)) < spec.keep_probability
        self.mask = spec, drawn.astype(np.uint8)
        return spec.forward(x, self.mask[1])

    def on_resultStateBatchForSourceImage_sourceStates_destinationImage_(
        self: Any, sources: list[Any], states: Any, destinations: list[Any]
    ) -> Any:
        """Return the state of the batch, as the header declares."""
        return self.new_state(sources[0], destinations[0])

    def fill(self: Any, states: list[Any], x: Array, destinations: list[Any]) -> None:
        if any(one is not states[0] for one in states):
            raise Refusal("the images of a batch share one state of a dropout")
        states[0].values["mask"] = self.mask


class DropoutGradient(Gradient):
    def gradient(self: Any, g: Array, x: Any, destination: Any, state: Any, states: Any) -> Array:
        if "mask" not in state.values or any(one is not state for one in states):
            raise Refusal("the forward kernel did not write the state, or it is not that of the batch")
        spec, mask = state.values["mask"]
        return spec.gradient(g, mask)  # type: ignore[no-any-return]


class LossDescriptor:
    defaults: Defaults = {
        "reduceAcrossBatch": False,
        "weight": 1.0,
        "labelSmoothing": 0.0,
        "numberOfClasses": 1,
    }
    defaults |= {"epsilon": 1e-7, "delta": 1.0}


def loss_spec(kernel: Any) -> mpsref.Loss:
    known = kernel.values["lossDescriptor"].values
    return mpsref.Loss(
        LOSS_TYPES[known["type"]],
        REDUCTIONS[known["reductionType"]],
        known["reduceAcrossBatch"],
        single(known["weight"]),
        label_smoothing=single(known["labelSmoothing"]),
        number_of_classes=known["numberOfClasses"],
        epsilon=single(known["epsilon"]),
        delta=single(known["delta"]),
    )


class ForwardLoss(Unary):
    def on_encodeBatchToCommandBuffer_sourceImages_labels_weights_destinationStates_destinationImages_(
        self: Any, commands: Any, sources: list[Any], labels: list[Any], weights: Any, states: Any, results: list[Any]
    ) -> None:
        factors = None if weights is None else stack(weights)
        self.deliver(results, loss_spec(self).forward(stack(sources), stack(labels), factors))


class LossGradient(Binary):
    defaults: Defaults = {"computeLabelGradients": False}

    def on_encodeBatchToCommandBuffer_sourceGradients_sourceImages_labels_weights_sourceStates_destinationGradients_(
        self: Any,
        commands: Any,
        gradients: list[Any],
        sources: list[Any],
        labels: list[Any],
        weights: Any,
        states: Any,
        results: list[Any],
    ) -> None:
        spec, factors = loss_spec(self), None if weights is None else stack(weights)
        compute = spec.gradient_labels if self.values["computeLabelGradients"] else spec.gradient
        self.deliver(results, compute(stack(gradients), stack(sources), stack(labels), factors))


class YOLODescriptor:
    """The properties that were set; all others have the defaults of mpsref."""


class Labels:
    def made(self: Any) -> None:
        known = self.values["labelsDescriptor"].values
        width, height, channels = known["size"]
        self.pixels = np.frombuffer(known["data"], np.float32).reshape(1, height, width, channels)


YOLO_SCALES = {"ScaleXY": "scale_xy", "ScaleWH": "scale_wh", "ScaleObject": "scale_object"}
YOLO_SCALES |= {"ScaleClass": "scale_class", "ScaleNoObject": "scale_no_object"}


class YOLO(Unary):
    def on_encodeBatchToCommandBuffer_sourceImages_labels_destinationImages_(
        self: Any, commands: Any, sources: list[Any], labels: list[Any], destinations: list[Any]
    ) -> None:
        known = self.values["lossDescriptor"].values
        names = "XYLossType", "WHLossType", "confidenceLossType", "classesLossType", "reductionType"
        given: dict[str, Any] = {
            python: single(known[lower_first(apple)])
            for apple, python in YOLO_SCALES.items()
            if lower_first(apple) in known
        }
        xy, wh, confidence, classes, reduction = (known[lower_first(name)] for name in names)
        made = mps.MPSCNNYOLOLossDescriptor(xy, wh, confidence, classes, reduction, known["anchorBoxes"], **given)
        t = np.concatenate([one.pixels for one in labels]).astype(np.float64)
        self.deliver(destinations, made.function.gradient(None, stack(sources), t, backend="reference"))


class Vector:
    def made(self: Any) -> None:
        known = self.values["descriptor"].values
        if known["dataType"] != FLOAT32 or self.values["buffer"].on_length() != 4 * known["length"]:
            raise Refusal("the buffer does not have as many float32 values as the vector")

    def on_data(self: Any) -> Any:
        return self.values["buffer"]

    def on_synchronizeOnCommandBuffer_(self: Any, commands: Any) -> None:
        commands.values["synchronized"].append(lambda: self.values["buffer"].values.update(stale=False))


def unbounded(bound: float) -> float:
    """Return a clip bound; the largest number stands for none."""
    return single(bound) if abs(bound) < LARGEST else math.copysign(math.inf, bound)


class OptimizerDescriptor:
    defaults: Defaults = {"applyGradientClipping": False, "gradientClipMin": -LARGEST, "gradientClipMax": LARGEST}


class Optimizer:
    defaults: Defaults = {"optimizerDescriptor": None, "momentumScale": 0.0, "useNesterovMomentum": False}
    defaults |= {"decay": 0.9, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "timeStep": 0}

    def options(self: Any) -> dict[str, Any]:
        if self.values["optimizerDescriptor"] is None:
            return {"learning_rate": single(self.values["learningRate"])}
        known = self.values["optimizerDescriptor"].values
        bounds = {"gradient_clip_min": known["gradientClipMin"], "gradient_clip_max": known["gradientClipMax"]}
        return {
            "learning_rate": single(known["learningRate"]),
            "gradient_rescale": single(known["gradientRescale"]),
            "apply_gradient_clipping": known["applyGradientClipping"],
            "regularization_type": ("none", "l1", "l2")[known["regularizationType"]],
            "regularization_scale": single(known["regularizationScale"]),
            **{name: unbounded(bound) for name, bound in bounds.items()},
        }

    def step(self: Any, commands: Any, result: Any, spec: Any, *vectors: Any, **options: Any) -> None:
        arrays = [None if one is None else floats(one.values["buffer"]) for one in vectors]
        found = spec.step(*arrays, **options)
        outputs = [one for one in found if one is not None]
        targets = [result, *(one for one in vectors[2:] if one is not None)]
        for target, values in zip(targets, outputs, strict=True):
            label = "result" if target is result else "moment"
            written(target.values["buffer"], self.fake.alter(self.class_name, label, values))


class SGD(Optimizer):
    def on_encodeToCommandBuffer_inputGradientVector_inputValuesVector_inputMomentumVector_resultValuesVector_(
        self: Any, commands: Any, gradient: Any, values: Any, m: Any, result: Any
    ) -> None:
        known = self.values
        spec = mpsref.StochasticGradientDescent(
            momentum_scale=single(known["momentumScale"]),
            use_nesterov_momentum=known["useNesterovMomentum"],
            **self.options(),
        )
        self.step(commands, result, spec, gradient, values, m)

    def on_encodeToCommandBuffer_convolutionGradientState_convolutionSourceState_inputMomentumVectors_resultState_(
        self: Any, commands: Any, gradients: Any, source: Any, moments: list[Any], result: Any
    ) -> None:
        known, target = source.values, result.values
        spec = mpsref.StochasticGradientDescent(momentum_scale=single(self.values["momentumScale"]), **self.options())
        for n, (name, of) in enumerate((("weights", "gradientForWeights"), ("biases", "gradientForBiases"))):
            values = floats(known[name])
            if n < len(moments):
                values, _ = spec.step(floats(gradients.values[of]), values, floats(moments[n].values["buffer"]))
            written(target[name], self.fake.alter(self.class_name, name, values))


class RMSProp(Optimizer):
    def on_encodeToCommandBuffer_inputGradientVector_inputValuesVector_inputSumOfSquaresVector_resultValuesVector_(
        self: Any, commands: Any, gradient: Any, values: Any, s: Any, result: Any
    ) -> None:
        spec = mpsref.RMSProp(decay=self.values["decay"], epsilon=single(self.values["epsilon"]), **self.options())
        self.step(commands, result, spec, gradient, values, s)


class Adam(Optimizer):
    def adam(self: Any, commands: Any, *vectors: Any) -> None:
        known = self.values
        known["timeStep"] += 1
        options = self.options() | {"epsilon": single(known["epsilon"])}
        spec = mpsref.Adam(beta1=known["beta1"], beta2=known["beta2"], **options)
        self.step(commands, vectors[-1], spec, *vectors[:-1], time_step=known["timeStep"])


_VECTORS = "inputGradientVector_inputValuesVector_inputMomentumVector_inputVelocityVector_"
for _maximum in ("", "maximumVelocityVector_"):
    setattr(Adam, f"on_encodeToCommandBuffer_{_VECTORS}{_maximum}resultValuesVector_", Adam.adam)

POOLING = {
    "MPSCNNPoolingAverage": mpsref.PoolingAverage,
    "MPSCNNPoolingL2Norm": mpsref.PoolingL2Norm,
    "MPSCNNPoolingMax": mpsref.PoolingMax,
    "MPSCNNDilatedPoolingMax": mpsref.PoolingMax,
}
ZERO_PAD = {"zeroPadSizeX": 0, "zeroPadSizeY": 0}
WEIGHTED = {
    "MPSCNNConvolution": convolution_spec,
    "MPSCNNConvolutionTranspose": transpose_spec,
    "MPSCNNFullyConnected": fully_connected_spec,
}

BEHAVIOURS: dict[str, type[Any]] = {
    "MTLDevice": Device,
    "MTLBuffer": Buffer,
    "MTLCommandQueue": Queue,
    "MTLCommandBuffer": Commands,
    "MPSImage": Image,
    "MPSState": State,
    "MPSCNNKernel": Unary,
    "MPSCNNBinaryKernel": Binary,
    "MPSCNNGradientKernel": Gradient,
    "MPSNNNeuronDescriptor": NeuronDescriptor,
    "MPSNNDefaultPadding": DefaultPadding,
    "MPSCNNArithmetic": Arithmetic,
    "MPSCNNArithmeticGradient": ArithmeticGradient,
    "MPSCNNConvolutionDescriptor": ConvolutionDescriptor,
    "MPSCNNBatchNormalization": BatchNormalization,
    "MPSCNNBatchNormalizationStatistics": Statistics,
    "MPSCNNBatchNormalizationStatisticsGradient": StatisticsGradient,
    "MPSCNNBatchNormalizationGradient": BatchNormalizationGradient,
    "MPSCNNDropout": Dropout,
    "MPSCNNDropoutGradient": DropoutGradient,
    "MPSCNNLossDescriptor": LossDescriptor,
    "MPSNNForwardLoss": ForwardLoss,
    "MPSCNNLossLabels": Labels,
    "MPSCNNYOLOLossDescriptor": YOLODescriptor,
    "MPSCNNYOLOLoss": YOLO,
    "MPSNNLossGradient": LossGradient,
    "MPSNNCompare": Compare,
    "MPSNNReduceFeatureChannelsAndWeightsMean": WeightedMean,
    "MPSNNReduceFeatureChannelsArgumentMax": ArgumentMax,
    "MPSNNResizeBilinear": pair_of(Function, spec=resize_spec),
    "MPSNNReshape": Reshape,
    "MPSNNImageNode": ImageNode,
    "MPSNNFilterNode": FilterNode,
    "MPSCNNCrossChannelNormalizationNode": CrossChannelNode,
    "MPSNNCropAndResizeBilinear": Crop,
    "MPSNNGraph": Graph,
    "MPSVector": Vector,
    "MPSNNOptimizerDescriptor": OptimizerDescriptor,
    "MPSNNOptimizerStochasticGradientDescent": SGD,
    "MPSNNOptimizerRMSProp": RMSProp,
    "MPSNNOptimizerAdam": Adam,
}
FUNCTIONS: dict[str, tuple[Any, Defaults]] = {
    **{name: (pooling_spec, ZERO_PAD if "Average" in name else {}) for name in POOLING},
    **{name: (windowed_spec, parameters) for name, parameters in PARAMETERS.items()},
    "MPSCNNUpsamplingNearest": (upsampling_spec, {}),
    "MPSCNNUpsamplingBilinear": (upsampling_spec, {"alignCorners": False}),
    "MPSCNNNeuron": (lambda kernel, *_: neuron_spec(kernel.values["neuronDescriptor"]), {}),
    **{name: (lambda kernel, *_: SOFTMAX[kernel.class_name.removesuffix("Gradient")], {}) for name in SOFTMAX},
}
"""The functional form of kernels that are one, and the defaults of their properties."""
for _name, (_spec, _defaults) in FUNCTIONS.items():
    _gradient = PoolingGradient if _name in POOLING else FunctionGradient
    BEHAVIOURS[_name] = pair_of(Function, spec=_spec, defaults=_defaults)
    BEHAVIOURS[f"{_name}Gradient"] = pair_of(_gradient, spec=_spec, defaults=_defaults)
for _name, _function in WEIGHTED.items():
    _states = "MPSCNNConvolutionTransposeGradientState" if "Transpose" in _name else "MPSCNNConvolutionGradientState"
    _defaults = {"kernelOffsetX": 0, "kernelOffsetY": 0}
    _base = Transposed if "Transpose" in _name else Weighted
    BEHAVIOURS[_name] = pair_of(_base, function=staticmethod(_function), state_name=_states, defaults=_defaults)
    BEHAVIOURS[f"{_name}Gradient"] = pair_of(WeightedGradient, function=staticmethod(_function))
for _name in ("MPSCNNInstanceNormalization", "MPSCNNGroupNormalization"):
    BEHAVIOURS[_name], BEHAVIOURS[f"{_name}Gradient"] = ImageNormalization, ImageNormalizationGradient


def device() -> Fake:
    """Return a fake whose kernels compute with the reference."""
    return Fake(BEHAVIOURS)
