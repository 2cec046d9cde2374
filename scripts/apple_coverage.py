"""The sections of the page "Coverage": which names of Apple's CNN and graph headers mpsref has, lacks or leaves out.

The documentation contains them; ``python scripts/apple_coverage.py`` prints them.

The names are facts from ``mpsref/mps/headers.json``, which ``scripts/apple_headers.py`` writes. A class is covered if
``mpsref.mps`` or ``mpsref.mps.graph`` has it. A property or method is covered if the class has it in snake_case with
its arguments and it does not always raise, an initializer if the constructor has its arguments by name and in their
order, an encode if ``encode`` has its arguments.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mpsref.mps
from mpsref.mps import graph
from mpsref.mps.core.properties import Alias, Property
from mpsref.mps.not_built import NotBuilt
from mpsref_apple.fake import snake

HEADERS = Path(mpsref.mps.__file__).with_name("headers.json")
BASE = "MPSCommandBuffer.h", "MPSImage.h", "MPSKernel.h", "MPSState.h", "MPSNeuralNetworkTypes.h", "MPSMatrixTypes.h"

LEFT_OUT = {
    "`to_json`, `from_json` and `copy` replace them": r".*Coder:.*|supportsSecureCoding|copyWithZone:device:",
    "devices and their objects belong to the backends": (
        r"device|options|defaultAllocator|precision|usage|cpuCacheMode|storageMode"
    ),
    "there are no Metal textures and buffers": (
        r"resource.*|texture.*|buffer.*|pixel(Format|Size)|parent|subImage.*|setPurgeableState:|initWithTexture.*"
        r"|initWithParentImage.*|initWithDevice:(bufferSize|resourceList|textureDescriptor):|initWithResources?:"
        r"|temporaryStateWithCommandBuffer:(bufferSize:|resourceList:|textureDescriptor:)?|initWithResource:|temporaryImageWithCommandBuffer:textureDescriptor:.*"
    ),
    "memory is managed by Python: sizes, heaps and hints have no effect on results": (
        r".*[eE]ncodingStorageSize.*|isStateModified|destinationImageAllocator|prefetch.*|heapProvider|predicate|reset"
        r"|appendBatchBarrier|accumulatorPrecision|prefersTemporary.*"
    ),
    "a command buffer is a Python object of its own": (
        r"commandBuffer|commandBufferFromCommandQueue:|commandBufferWithCommandBuffer:|initWithCommandBuffer:"
        r"|rootCommandBuffer|commitAndContinue"
    ),
    "a state is one object for a batch; `encode(..., return_state=True)` returns it": (
        r".*destinationStateIsTemporary:.*|encode.*destinationStates:.*|destinationImageDescriptor.*Kernel:.*"
    ),
    "arrays have a shape and strides instead": (
        r"(read|write)Bytes:dataLayout:bytesPer.*|bytesPer(Row|Image)|batchRepresentation.*|initWithDevice:a:count:"
        r"|initWithDevice:resizeWidth:resizeHeight:numberOfRegions:regions:"
    ),
    "deprecated by Apple": (
        r"matrixDescriptorWithDimensions:.*|rowBytesFromColumns:.*|initWithDevice:convolutionDescriptor:.*|.*neuronFilter:|neuron|neuronParameter[ABC]|setNeuron.*|neuronType"
        r"|initWithDevice:integerScaleFactor.*|initWithDevice:$|graphWithDevice:resultImage:|initWithDevice:resultImage:"
        r"|initWithDevice:neuronFilter.*|.*useNestrovMomentum.*|reloadWeightsAndBiasesWithDataSource:"
    ),
    "called before each encode on a GPU; in mpsref the values are properties": r"propertyCallBack|.*CallBack",
    "optional methods of a data source that the application writes, with the names `lookup_table_for_uint8_kernel`, "
    "`weights_quantization_type`, `weights_layout`, `update` and `update_cpu`": (
        r"lookupTableForUInt8Kernel|weightsQuantizationType|weightsLayout|updateWith.*radientState:sourceState:"
    ),
    "a node is made from its sources and the state of its forward node": r"initWithGradientImages:.*|gradientClass",
}
"""For each reason to leave names out, the selectors: an expression that matches the whole selector."""


RENAMED = {
    "kernelSize": "kernel_size_in_feature_channels",
    "temporaryCNNConvolutionWeightsAndBiasesStateWithCommandBuffer:cnnConvolutionDescriptor:": "temporary_state",
}
"""Names that are others in mpsref."""

OTHER_MEANING = ("neuron",)
"""Deprecated names that mpsref has with another meaning."""

IMPLEMENTED = {
    "MPSCNNConvolutionDataSource": mpsref.mps.ArrayConvolutionDataSource,
    "MPSCNNBatchNormalizationDataSource": mpsref.mps.BatchNormalizationDataSource,
    "MPSCNNInstanceNormalizationDataSource": mpsref.mps.InstanceNormalizationDataSource,
    "MPSCNNGroupNormalizationDataSource": mpsref.mps.GroupNormalizationDataSource,
}
"""For each protocol the class with its optional methods."""


WITHOUT = {
    "MPSHandle": "any object identifies an input",
    "MPSHeapProvider": "memory is that of NumPy",
    "MPSImageAllocator": "memory is that of NumPy",
    "MPSImageTransformProvider": "the scale nodes are not built",
    "MPSNNGramMatrixCallback": "values are properties of nodes",
    "MPSNNLossCallback": "values are properties of nodes",
    "MPSPredicate": "there is no GPU that decides whether a kernel runs",
    "MPSStateResourceList": "states have arrays",
    "MPSTemporaryMatrix": "memory is not reused: use `MPSMatrix`",
    "MPSTemporaryVector": "memory is not reused: use `MPSVector`",
}
"""Why classes and protocols have no counterpart."""

OUTSIDE = {
    "recurrent layers: `MPSRNN...`": (
        "no CNN has them; GRU, LSTM and MGU cells would each be a family of operations of their own"
    ),
    "kernels on arrays of any rank: `MPSNDArray...`": (
        "they are the building blocks of Metal Performance Shaders Graph, whose operations have no images"
    ),
    "linear algebra: other `MPSMatrix...` kernels": "they are no layers; NumPy and SciPy are their reference",
    "filters of images, ray tracing, `MPSKeyedUnarchiver`": "they are no neural networks",
}
"""What the page does not count, and why."""


class Name(NamedTuple):
    """A selector of a class, or of a protocol, and what mpsref does with it."""

    owner: str
    selector: str
    found: str
    """The name in mpsref, or an empty string."""
    reason: str
    """Why it is left out, or an empty string."""


def arguments(selector: str, prefix: str) -> list[str]:
    """Return the names of the arguments of a selector without its prefix, device and command buffer.

    >>> arguments("initWithDevice:kernelWidth:kernelHeight:", "initWith")
    ['kernel_width', 'kernel_height']
    """
    first, *others = selector.rstrip(":").split(":")
    names = [snake(name) for name in (first.removeprefix(prefix), *others)]
    return [name for name in names if name not in ("device", "command_buffer")]


def parameters(call: Any) -> list[str]:
    """Return the names of the parameters of a function or class."""
    return list(inspect.signature(call).parameters)


def of_mpsref(kind: type, selector: str, receiver: str) -> str:
    """Return the name of a selector in mpsref, or an empty string."""
    first, *others = selector.split(":")
    if first in OTHER_MEANING:
        return ""
    if receiver == "init" or re.match(r"(node|graph)With", first):
        wanted = arguments(selector, re.match(r"init(With)?|nodeWith|graphWith", first)[0])  # type: ignore[index]
        if hasattr(kind, snake(selector.rstrip(":").replace(":", "_"))):
            return snake(selector.rstrip(":").replace(":", "_"))
        own = parameters(kind)
        if "sources" in wanted:  # a list in the place of the first source
            wanted.remove("sources")
        return "constructor" if [name for name in own if name in wanted] == wanted else ""
    if first.startswith("encode"):
        name = "encode_batch" if "Batch" in first else snake(first.removesuffix("ToCommandBuffer"))
        method = getattr(kind, name, None)
        own = [] if method is None else parameters(method)
        wanted = arguments(selector, first)[1:] if others else []
        return name if method is not None and set(wanted) <= set(own) else ""
    cut = [re.sub(f"({words}).*", "", first) for words in ("With", "With|For|On")]
    spellings = snake(selector.rstrip(":").replace(":", "_")), *map(snake, (first, *cut)), RENAMED.get(selector, "")
    found = next((name for name in spellings if name and has(kind, name)), "")
    return found if takes(getattr(kind, found, None), found, selector) else ""


def takes(method: Any, name: str, selector: str) -> bool:
    """Return whether a method has the arguments of a selector that its name does not have: by name, or its ending.

    >>> takes(mpsref.mps.MPSImage.read_bytes, "read_bytes", "readBytes:dataLayout:bytesPerRow:")
    False
    """
    if not callable(method) or isinstance(method, type):
        return True
    signature = inspect.signature(method)
    own = [key for key in signature.parameters if key not in ("self", "command_buffer")]
    first, *others = (snake(part) for part in selector.rstrip(":").split(":"))
    if name in (
        first,
        "_".join([first, *others]),
    ):  # the name of the first argument, or of all, is in that of the method
        wanted = others if name == first else []
    else:
        wanted = [re.split("_(?:with|for|on)_", first)[-1], *others] if first.startswith(name) else others
    given = [one.removesuffix("_batch") for one in wanted if one not in ("device", "command_buffer")]
    always_raises = signature.return_annotation in ("NoReturn", "Never")
    return not always_raises and all(any(one.endswith(key) for key in own) for one in given)


def has(kind: type, name: str) -> bool:
    """Return whether a class, or each of the classes that derive from an abstract one, has an attribute."""
    if hasattr(kind, name) or name in getattr(kind, "__dataclass_fields__", ()):
        return True
    children = kind.__subclasses__()
    return bool(children) and vars(kind).get("_abstract", False) and all(has(child, name) for child in children)


def names(owner: str, kind: type, methods: dict[str, Any]) -> Iterator[Name]:
    """Yield what mpsref does with each selector; the setter of a property is not listed."""
    for selector, method in methods.items():
        setter = re.fullmatch(r"set([A-Z])(\w*):", selector)
        if setter and {setter[1].lower() + setter[2], setter[1] + setter[2]} & methods.keys():
            continue
        found = of_mpsref(kind, selector, method["receiver"])
        reasons = [] if found else [why for why, pattern in LEFT_OUT.items() if re.fullmatch(pattern, selector)]
        yield Name(owner, selector, found, reasons[0] if reasons else "")


def read_only(owner: str, kind: type, methods: dict[str, Any]) -> Iterator[str]:
    """Yield the properties that have a setter in MPS and can only be read in mpsref."""
    for selector in methods:
        setter = re.fullmatch(r"set([A-Z])(\w*):", selector)
        if setter and setter[1].lower() + setter[2] in methods.keys() - set(OTHER_MEANING):
            own = getattr(kind, snake(setter[1].lower() + setter[2]), None)
            is_view = isinstance(own, Alias) or (isinstance(own, property) and own.fset is None)
            if own.read_only if isinstance(own, Property) else is_view:
                yield f"`{owner}.{setter[1].lower()}{setter[2]}`"


def table(rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table; the first row is its head."""
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *others))


def page() -> str:
    """Return the page."""
    known = json.loads(HEADERS.read_text("utf-8"))
    chosen = known["classes"] | known["protocols"]
    wanted = {
        name: entry
        for name, entry in sorted(chosen.items())
        if entry["header"] in BASE or re.match(r"MPS(C?NN|Matrix)\w*\.h", entry["header"])
    }
    found: dict[str, list[Name]] = {}
    missing, not_built = [], []
    fixed: list[str] = []
    for name, entry in wanted.items():
        kind = getattr(mpsref.mps, name, None) or getattr(graph, name, None)
        if kind is None:
            missing.append((name, entry["header"]))
        elif issubclass(kind, NotBuilt):
            not_built.append((name, entry["header"], f"{kind.why}; {kind.instead}" if kind.why else kind.instead))
        else:
            fixed += read_only(name, kind, entry["methods"])
            found[name] = list(names(name, IMPLEMENTED.get(name, kind), entry["methods"]))
    every = [one for of_class in found.values() for one in of_class]
    have = [one for one in every if one.found]
    lacks = [one for one in every if not one.found and not one.reason]
    by_reason = {why: [one for one in every if one.reason == why] for why in LEFT_OUT}
    classes: list[tuple[str, ...]] = [("class or protocol", "header", "has", "lacks", "left out")]
    for name, of_class in found.items():
        counts = (sum(bool(one.found) for one in of_class), sum(not one.found and not one.reason for one in of_class))
        left = len(of_class) - sum(counts)
        classes.append((f"`{name}`", f"`{wanted[name]['header']}`", *map(str, (*counts, left))))
    parts = [
        f"The names in the headers come from these public sources: {', '.join(known['sources'])}.",
        f"Of {len(wanted)} classes and protocols mpsref has {len(found)}. {len(not_built)} exist with constructors "
        f"that raise `UnsupportedError`, and {len(missing)} do not exist. Of {len(every)} initializers, methods and "
        f"properties of these {len(found)} it has {len(have)}, leaves out {sum(map(len, by_reason.values()))} on "
        f"purpose, and lacks {len(lacks)}. A property with a setter counts once. The names are those of Apple in "
        "snake_case; `encodeToCommandBuffer:...` is `encode`, and `encodeBatchToCommandBuffer:...` is `encode_batch`.",
        _functions(known["functions"]),
        "## Lacking",
        table([("class or protocol", "names"), *_grouped(lacks)]) if lacks else "Nothing.",
        *(["## Properties that cannot be set", f"With a setter in MPS: {', '.join(fixed)}."] if fixed else []),
        "## Left out on purpose",
        "Names that are inherited are listed at the class that declares them.",
        *(f"**{why[0].upper()}{why[1:]}.**\n\n{_listed(ones)}" for why, ones in by_reason.items() if ones),
        "## Classes that are not built",
        table([("class", "header", "reason and next step"), *((f"`{n}`", f"`{h}`", w) for n, h, w in not_built)]),
        "## Classes and protocols without a counterpart",
        table([("name", "header", "reason"), *((f"`{n}`", f"`{h}`", WITHOUT[n]) for n, h in missing)]),
        "## Not counted",
        table([("classes", "reason"), *OUTSIDE.items()]),
        "## All classes and protocols",
        table(classes),
    ]
    return "\n\n".join(parts) + "\n"


def _functions(names: list[str]) -> str:
    """Return which functions of the headers exist; the others are about devices, memory and kernels in Metal."""
    has = [f"`{name}`" for name in names if hasattr(mpsref.mps, name)]
    others = [f"`{name}`" for name in names if not hasattr(mpsref.mps, name)]
    return (
        f"Of the functions it has {', '.join(has)}. It leaves out those for devices, memory and custom kernels in "
        f"Metal: {', '.join(others)}."
    )


def _grouped(ones: list[Name]) -> list[tuple[str, ...]]:
    """Return a row for each class."""
    of_class: dict[str, list[str]] = {}
    for one in ones:
        of_class.setdefault(one.owner, []).append(f"`{one.selector}`")
    return [(f"`{owner}`", ", ".join(selectors)) for owner, selectors in of_class.items()]


def _listed(ones: list[Name]) -> str:
    """Return the selectors, each with its classes."""
    owners: dict[str, list[str]] = {}
    for one in ones:
        owners.setdefault(one.selector, []).append(f"`{one.owner}`")
    return "\n".join(f"- `{selector}`: {', '.join(found)}" for selector, found in sorted(owners.items()))


if __name__ == "__main__":
    print(page(), end="")
