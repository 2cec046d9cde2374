"""A fake of the Objective-C runtime, to run the backend without a Mac.

The classes, selectors, argument types, structs and enumerations are those of Apple's headers, in ``mps/headers.json``.
A call of a selector that a class does not have, a wrong number or type of arguments, a number that is no member of an
enumeration, an argument that PyObjC cannot convert, an image that is read before it was synchronized: all raise
:class:`Refusal`. Kernels compute with the reference, see :mod:`mpsref_apple.fake_kernels`.

Nothing here is evidence of what Apple's kernels compute.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import re
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, ClassVar

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.text import shown
from mpsref.backend import Backend
from mpsref_apple.mpsgraph import names
from mpsref_apple.runtime import Runtime

UNLIMITED = 2**64 - 1
NO_CLIP = ((0, 0, 0), (UNLIMITED, UNLIMITED, UNLIMITED))
FLAGS = ("Options", "Option", "Flags", "Method", "Usage")
"""Endings of the names of enumerations whose members are flags, which may be combined."""

REGION = [["d"] * 3] * 2
"""``MPSRegion``: origin and size, which PyObjC does not describe."""

ADOPTS = {"MPSNNDefaultPadding": "MPSNNPadding"}
"""The protocols that classes have."""


class Refusal(TypeError):
    """A call that Apple's headers, PyObjC or Metal do not allow."""


@functools.cache
def headers() -> dict[str, Any]:
    """Return the table of names, those of MPSGraph included."""
    found: dict[str, Any] = json.loads(resources.files("mpsref.mps").joinpath("headers.json").read_text("utf-8"))
    for table in ("classes", "enumerations"):
        found[table] |= names()[table]
    return found


def lower_first(name: str) -> str:
    """Return a name as that of a property."""
    return name[:1].lower() + name[1:]


def snake(name: str) -> str:
    """Return a name of Apple's in the spelling of mpsref.

    >>> snake("cnnNeuronPReLUDescriptorWithData"), snake("encodeToCommandBuffer"), snake("temporaryCNNState")
    ('cnn_neuron_prelu_descriptor_with_data', 'encode_to_command_buffer', 'temporary_cnn_state')
    """
    name = re.sub("(?<=[XY])at(?=Index)", "At", name)
    for word in ("PReLU", "CNN", "YOLO", "IOU"):
        name = name.replace(word, word.title())
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def camel(name: str) -> str:
    """Return a name of mpsref in the spelling of Apple's; not for names with an abbreviation in capitals."""
    return lower_first(name.title().replace("_", ""))


def struct_fields(encoding: str) -> Any:
    """Return the types in an encoding such as ``{MTLSize=QQQ}``, nested."""
    depth: list[list[Any]] = [[]]
    for part in re.findall(r"\{\w+=|\}|[a-zA-Z]", encoding):
        if part.endswith("="):
            depth.append([])
        elif part == "}":
            done = depth.pop()
            depth[-1].append(done)
        else:
            depth[-1].append(part)
    return depth[0][0]


CODES = {"NSUInteger": "Q", "float": "f", "BOOL": "B", "void": "v", "float *": "^f", "void *": "^v"}
CODES |= {"NSZone?": "^{_NSZone=}"}


def type_code(kind: str) -> str:
    """Return the letter of a type in a signature."""
    return CODES.get(kind, "I" if kind in headers()["enumerations"] else "@")


class Protocol:
    """``objc.formal_protocol``"""

    def __init__(self, name: str) -> None:
        self.name, self.methods = name, headers()["protocols"][name]["methods"]

    def descriptionForInstanceMethod_(self, selector: bytes) -> tuple[bytes, bytes] | None:
        """Return selector and signature of a method."""
        declared = self.methods.get(selector.decode())
        if declared is None:
            return None
        arguments = "".join(type_code(kind) for _, kind in declared["arguments"])
        return selector, f"{type_code(declared['returns'])}@:{arguments}".encode()


class NSObject:
    """Root class of data sources that Python implements."""

    def __init_subclass__(cls, protocols: Sequence[Protocol] = ()) -> None:
        """Raise ``Refusal`` for a class that lacks a required method of a protocol, or has another signature."""
        for protocol in protocols:
            for selector, declared in protocol.methods.items():
                method = getattr(cls, selector.replace(":", "_"), None)
                if not isinstance(method, Selector) or method.selector != selector:
                    if not declared.get("optional"):
                        raise Refusal(f"a data source lacks {selector}, which {protocol.name} requires")
                    continue
                known = protocol.descriptionForInstanceMethod_(selector.encode())
                if known is not None and method.signature != known[1].decode():
                    raise Refusal(
                        f"{selector} has the signature {method.signature}, in the protocol {known[1].decode()}"
                    )

    @classmethod
    def alloc(cls) -> NSObject:
        """Return a new object."""
        return cls()

    def init(self) -> NSObject:
        """Return the object."""
        return self


class NSArray(Sequence[Any]):
    """What methods of MPS return for an array: under PyObjC a sequence, and no list; its slices are lists."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = list(items)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]


class Selector:
    """A Python method with the signature that Objective-C sees."""

    def __init__(self, function: Callable[..., Any], selector: bytes = b"", signature: bytes = b"") -> None:
        self.function, self.selector, self.signature = function, selector.decode(), signature.decode()

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        return self if instance is None else functools.partial(self.function, instance)


class VariableList:
    """``objc.varlist``: memory without a known length."""

    def __init__(self, memory: bytearray) -> None:
        self._memory = memory

    def as_buffer(self, count: int) -> memoryview:
        """Return the first ``count`` bytes; Apple does not check the length, the fake does."""
        if count > len(self._memory):
            raise Refusal(f"{count} bytes are read of a buffer of {len(self._memory)}")
        return memoryview(self._memory)[:count]


class ProtocolError(Exception):
    """``objc.ProtocolError``."""


class Objc:
    """The module ``objc``."""

    ProtocolError = ProtocolError
    selector = Selector

    def __init__(self) -> None:
        self.metadata: dict[tuple[str, str], dict[str, Any]] = {}

    autorelease_pool = contextlib.nullcontext

    def lookUpClass(self, name: str) -> type[NSObject]:
        """Return a class by its name."""
        if name != "NSObject":
            raise Refusal(f"the fake has no class {name} to derive from")
        return NSObject

    def protocolNamed(self, name: str) -> Protocol:
        """Return a protocol."""
        if name not in headers()["protocols"]:
            raise ProtocolError(name)
        return Protocol(name)

    def registerMetaDataForSelector(self, kind: bytes, selector: bytes, metadata: dict[str, Any]) -> None:
        """Replace the metadata of a method for a class and those that derive from it."""
        self.metadata[kind.decode(), selector.decode()] = metadata


class Object:
    """An object of a class of the headers."""

    fake: ClassVar[Fake]
    class_name: ClassVar[str]

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.ready = False

    @classmethod
    def alloc(cls) -> Object:
        """Return an object that must be initialized."""
        return cls()

    def on_init(self, selector: str, arguments: dict[str, Any]) -> None:
        """Take the arguments of an initializer or a class factory."""
        self.values |= arguments
        self.ready = True
        self.made()

    def made(self) -> None:
        """Finish an object whose values are known."""

    def perform(self, selector: str, arguments: list[Any]) -> Any:
        """Set or get a value."""
        if len(arguments) == 1 and (found := re.fullmatch(r"set([A-Z]\w*):", selector)):
            self.values[lower_first(found[1])] = arguments[0]
            return None
        if not arguments and selector in self.values:
            return self.values[selector]
        raise NotImplementedError(f"the fake has no behaviour for {self.class_name} {selector}")

    def __getattr__(self, name: str) -> Any:
        raise Refusal(f"{self.class_name} has no selector {name.replace('_', ':')}")


class Fake:
    """The modules of PyObjC, over the table of Apple's names; ``behaviours`` are the methods of its classes.

    ``planted`` has, by the name of a class and of what it writes, functions that change results: a mistake, or another
    behaviour.
    """

    def __init__(
        self, behaviours: dict[str, type[Any]], root: type[Object] = Object, backend: Backend | str = "reference"
    ) -> None:
        self.behaviours, self.root, self.backend = behaviours, root, backend
        self.planted: dict[tuple[str, str], Callable[[Array], Array]] = {}
        self.objc = Objc()
        self._classes: dict[str, type[Object]] = {}

    # --- the modules ---

    def __getattr__(self, name: str) -> Any:
        """Return a class, a member of an enumeration or a constant, as attributes of both modules."""
        if name in headers()["classes"] or name in headers()["protocols"]:
            return self.kind(name)
        for members in headers()["enumerations"].values():
            if name in members:
                return members[name]
        if name == "MPSRectNoClip":
            return NO_CLIP
        raise AttributeError(f"neither MetalPerformanceShaders nor Metal has {name}")

    def MTLCreateSystemDefaultDevice(self) -> Object:
        """Return the device."""
        device = self.kind("MTLDevice")()
        device.ready = True
        return device

    def runtime(self) -> Runtime:
        """Return the modules for the backend."""
        return Runtime(self, self, self.objc, self)

    # --- classes ---

    def kind(self, name: str) -> type[Object]:
        """Return a class of the headers, or the class of objects with a protocol of Metal."""
        if name not in self._classes:
            declared = headers()["classes"].get(name) or headers()["protocols"][name]
            parent = declared.get("super", "NSObject")
            base = self.kind(parent) if parent in headers()["classes"] else self.root
            behaviour = self.behaviours.get(name)
            bases = (behaviour, base) if behaviour else (base,)
            body = {"fake": self, "class_name": name}
            made: type[Object] = type(name, bases, body)
            adopted = headers()["protocols"].get(ADOPTS.get(name, ""), {"methods": {}})
            for selector, method in (adopted["methods"] | declared["methods"]).items():
                setattr(made, selector.replace(":", "_"), self._method(name, selector, method))
            self._classes[name] = made
        return self._classes[name]

    def _method(self, owner: str, selector: str, declared: dict[str, Any]) -> Any:
        receiver, returns = declared["receiver"], declared["returns"]
        kinds = [kind for _, kind in declared["arguments"]]
        words = [part for part in selector.split(":") if part]

        def checked(arguments: Sequence[object]) -> list[Any]:
            if len(arguments) != len(kinds):
                raise Refusal(f"{owner} {selector} takes {len(kinds)} arguments, not {len(arguments)}")
            return [
                self.argument(owner, selector, index, kind, value)
                for index, (kind, value) in enumerate(zip(kinds, arguments, strict=True))
            ]

        if receiver == "instance":

            def call(self: Object, *arguments: Any) -> Any:
                if not self.ready:
                    raise Refusal(f"{owner} {selector} is sent to an object that was not initialized")
                self.fake.available(type(self), selector)
                result = _perform(self, selector, checked(arguments))
                if result is not None and not isinstance(result, list) and re.fullmatch(r"\w+Batch\??", returns):
                    result = [result] * len(arguments[0])  # the images of a batch share it
                return NSArray(result) if isinstance(result, list) else result

            return call
        first = re.sub(r"^.*?With(?=[A-Z])", "", words[0]) if words else ""
        names = [lower_first(word) for word in (first, *words[1:])][: len(kinds)]

        def initialize(self: Object, *arguments: object) -> Object:
            self.fake.available(type(self), selector)
            self.on_init(selector, dict(zip(names, checked(arguments), strict=True)))
            return self

        if receiver == "init":
            return initialize

        def make(cls: type[Object], *arguments: object) -> Any:
            handler = getattr(cls, "of_" + selector.replace(":", "_"), None)
            return handler(*checked(arguments)) if handler else initialize(cls(), *arguments)

        return classmethod(make)

    def available(self, kind: type[Object], selector: str) -> None:
        """Raise ``Refusal`` for a method that PyObjC does not call: NS_UNAVAILABLE for the class or one above it.

        PyObjC asks the nearest registration above the class that implements the method. Which one that is, headers do
        not say, so metadata for a subclass alone does not help.
        """
        for one in kind.__mro__:
            name = vars(one).get("class_name", "")
            refused = selector in headers()["unavailable"].get(name, ())
            if refused and (name, selector) not in self.objc.metadata:
                raise Refusal(f"{kind.class_name}: {selector!r} is NS_UNAVAILABLE for {name}")

    # --- arguments ---

    def argument(self, owner: str, selector: str, index: int, kind: str, value: Any) -> Any:
        """Return an argument as the method gets it; raise ``Refusal`` if it is not of its type."""
        where = f"argument {index + 1} of {owner} {selector}"
        if kind.endswith("?"):
            if value is None:
                return None
            kind = kind[:-1]
        if kind.endswith("**") or kind == "block":
            raise Refusal(f"{where} is a {kind}, for which PyObjC's metadata has no conversion")
        if kind.endswith("*"):
            return self._pointer(owner, selector, index, kind, value)
        if array := re.fullmatch(r"NSArray<(.*)>|(\w+?)Batch", kind):
            element = array[1] or array[2]
            if not isinstance(value, (list, tuple, NSArray)):
                raise Refusal(f"{where} is {shown(value)}; it must be a list of {element}")
            return [self.argument(owner, selector, index, element, one) for one in value]
        test = getattr(self, f"_is_{kind.replace(' ', '_')}", None)
        if test is None:
            test = functools.partial(self._is, kind)
        if not test(value):
            raise Refusal(f"{where} is {shown(value)}; it must be {kind}")
        if kind == "id<MTLCommandBuffer>" and value.values["committed"]:
            raise Refusal(f"{where} was committed before; make another command buffer")
        return float(np.float32(value)) if kind == "float" else value

    def _is(self, kind: str, value: Any) -> bool:
        tables = headers()
        if kind in tables["enumerations"]:
            members = set(tables["enumerations"][kind].values())
            if not isinstance(value, int) or isinstance(value, bool):
                return False
            every = functools.reduce(int.__or__, members)
            return value in members or (kind.endswith(FLAGS) and value == value & every)
        if kind in tables["structs"]:
            return _fits(struct_fields(tables["structs"][kind][0]), value)
        if found := re.fullmatch(r"id<(\w+)>", kind):
            return self._conforms(found[1], value)
        if kind in ("NSData", "NSString", "NSZone"):
            return isinstance(value, {"NSData": bytes, "NSString": str}.get(kind, int))
        return isinstance(value, Object) and value.ready and any(one.__name__ == kind for one in type(value).__mro__)

    def _conforms(self, protocol: str, value: Any) -> bool:
        if protocol in ("MPSImageAllocator", "MPSNNPadding") or protocol.startswith("MTL"):
            return isinstance(value, Object) and protocol in (value.class_name, ADOPTS.get(value.class_name))
        required = headers()["protocols"][protocol]["methods"]
        return isinstance(value, NSObject) and all(
            isinstance(getattr(type(value), selector.replace(":", "_"), None), Selector)
            for selector, declared in required.items()
            if not declared.get("optional")
        )

    @staticmethod
    def _is_MPSGraphTensorDataDictionary(value: Any) -> bool:
        kinds = {(getattr(key, "class_name", ""), getattr(one, "class_name", "")) for key, one in dict(value).items()}
        return isinstance(value, dict) and kinds <= {("MPSGraphTensor", "MPSGraphTensorData")}

    @staticmethod
    def _is_NSNumber(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    @staticmethod
    def _is_NSObject(value: Any) -> bool:
        return isinstance(value, NSObject)

    @staticmethod
    def _is_NSUInteger(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= UNLIMITED

    _is_size_t = _is_NSUInteger

    @staticmethod
    def _is_NSInteger(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63

    @staticmethod
    def _is_float(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    _is_double = _is_float

    @staticmethod
    def _is_BOOL(value: Any) -> bool:
        return isinstance(value, bool)

    def _pointer(self, owner: str, selector: str, index: int, kind: str, value: Any) -> Any:
        where = f"argument {index + 1} of {owner} {selector}"
        known = self._conversion(owner, selector).get(str(index + 2))
        registered = self.objc.metadata.get((owner, selector), {}).get("arguments", {}).get(index + 2)
        if registered == {"type_modifier": b"n", "c_array_length_in_arg": index + 1} and kind == "MPSRegion *":
            if not isinstance(value, list) or not all(_fits(REGION, one) for one in value):
                raise Refusal(f"{where} is {shown(value)}; it must be a list of MPSRegion")
            return value
        if known is None:
            raise Refusal(f"{where} is a {kind}, for which PyObjC's metadata has no conversion")
        writable = known.get("type_modifier") == "o"
        try:
            view = memoryview(value)
        except TypeError:
            raise Refusal(f"{where} is {shown(value)}; PyObjC needs a buffer") from None
        if not view.contiguous or (writable and view.readonly):
            raise Refusal(f"{where} must be a contiguous {'writable ' if writable else ''}buffer")
        return view

    def _conversion(self, owner: str, selector: str) -> dict[str, Any]:
        tables = headers()
        while owner in tables["classes"]:
            if found := tables["conversions"].get(owner, {}).get(selector):
                return dict(found)
            owner = tables["classes"][owner]["super"]
        return dict(tables["conversions"]["NSObject"].get(selector, {}))

    # --- calls of data sources ---

    def ask(self, source: NSObject, selector: str, count: int = 0) -> Any:
        """Call a method of a data source as MPS does; ``count`` floats if it returns a pointer."""
        method = getattr(source, selector.replace(":", "_"), None)
        if method is None:
            return None
        value = method()
        kind = next(
            declared["methods"][selector]["returns"]
            for declared in headers()["protocols"].values()
            if selector in declared["methods"]
        )
        if not kind.endswith("*") or value is None:
            return float(np.float32(value)) if kind == "float" else value
        plain = any((one.__name__, selector) in self.objc.metadata for one in type(source).__mro__)
        if plain:
            if not isinstance(value, int):
                raise Refusal(f"{selector} returned {shown(value)}; PyObjC takes the address of a plain pointer")
            return np.ctypeslib.as_array((ctypes.c_float * count).from_address(value)).copy()
        if kind == "void *":
            raise Refusal(f"{selector} returned {shown(value)}; PyObjC cannot convert an array of void")
        return np.array(tuple(value), np.float32)

    def alter(self, kind: str, name: str, values: Array) -> Array:
        """Return what a kernel writes: the computed values, or those that a planted function makes of them."""
        function = self.planted.get((kind, name))
        return values if function is None else np.asarray(function(values))


def _perform(target: Object, selector: str, arguments: list[Any]) -> Any:
    handler = getattr(type(target), "on_" + selector.replace(":", "_"), None)
    return target.perform(selector, arguments) if handler is None else handler(target, *arguments)


def _fits(fields: Any, value: Any) -> bool:
    if isinstance(fields, list):
        if not isinstance(value, (list, tuple)) or len(value) != len(fields):
            return False
        return all(map(_fits, fields, value))
    if fields in "Qq":
        low = 0 if fields == "Q" else -(2**63)
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= UNLIMITED
    return isinstance(value, (int, float))
