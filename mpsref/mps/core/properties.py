"""Properties of kernels: checked when they are set, and listed for ``repr``, equality, copies and archives.

>>> class Blur:
...     radius = Property(at_least(1), 2, "Radius in pixels.")
>>> blur = Blur()
>>> initialize(blur, {"radius": 3})
>>> blur.radius
3
>>> blur.radius = 0
Traceback (most recent call last):
ValueError: radius is 0; it must be an integer >= 1
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from types import FunctionType, MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

from mpsref import registry
from mpsref.arguments.parameters import integer
from mpsref.arguments.text import Missing, near, shown
from mpsref.registry import Backend

T = TypeVar("T")
P = ParamSpec("P")
C = TypeVar("C", bound=type)

Check: TypeAlias = Callable[[str, Any], T]
"""``check(name, value)`` returns the value to store, or raises an error that contains the name."""


class PropertyError(AttributeError, TypeError):
    """The object has no such property, or it cannot be set."""


class _Described(Generic[T]):
    """What the body of a class says about an attribute, whose values are of type ``T``."""

    name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type) -> Self: ...

        @overload
        def __get__(self, instance: object, owner: type) -> T: ...

        def __get__(self, instance: object | None, owner: type) -> Self | T: ...


class Property(_Described[T]):
    """An attribute with immutable values that are checked when it is set.

    A ``read_only`` property is set once, by :func:`set_read_only`. A subclass may redeclare a property with other legal
    values. The value is stored in ``__dict__`` under the name of the property, so reading it calls no function.
    """

    def __init__(self, check: Check[T], default: T, doc: str, read_only: bool = False) -> None:
        self.check, self.default, self.read_only = check, default, read_only
        self.__doc__ = doc

    def __set__(self, instance: object, value: object) -> None:
        if self.read_only:
            raise PropertyError(
                f"{self.name} of {type(instance).__name__} is read-only: it is fixed when the kernel is made; "
                "make another kernel with the new value"
            )
        instance.__dict__[self.name] = self.accepted(instance, value)

    def replace(self, *, default: T | None = None, read_only: bool | None = None) -> Property[T]:
        """Return a new property with the same check; ``default`` and ``read_only`` replace those of this one."""
        return Property(
            self.check,
            self.default if default is None else default,
            self.__doc__ or "",
            self.read_only if read_only is None else read_only,
        )

    def fixed(self) -> Property[T]:
        """Return a new read-only property with the same check and default."""
        return self.replace(read_only=True)

    def accepted(self, instance: object, value: object) -> T:
        """Return the value to store."""
        return self.check(self.name, value)

    def initial(self, instance: object) -> T:
        """Return the default."""
        return self.default


class Argument(Property[T]):
    """A property that is an argument of a constructor, see :func:`constructed`; without ``default`` it is required.

    ``check`` may be a property with the same check and documentation, ``alias`` is another name of the parameter.
    """

    def __init__(
        self,
        check: Check[T] | Property[T],
        doc: str = "",
        *,
        default: Any = MISSING,
        read_only: bool = True,
        alias: str | None = None,
    ) -> None:
        if isinstance(check, Property):
            check, doc = check.check, check.__doc__ or ""
        super().__init__(check, default, doc, read_only)
        self.alias = alias

    if TYPE_CHECKING:

        def __set__(self, instance: object, value: T) -> None: ...  # type: ignore[override]  # for the constructor


class PerSource(Property[tuple[T, ...]]):
    """A property with a value of the property ``of`` for each of the ``source_count`` sources of its kernel."""

    def __init__(self, of: Property[T]) -> None:
        super().__init__(
            lambda name, values: tuple(of.check(f"{name}[{k}]", value) for k, value in enumerate(values)),
            (of.default,),
            f"{of.__doc__} One value for each source.",
        )

    def accepted(self, instance: object, value: object) -> tuple[T, ...]:
        """Check the number of values, and each value."""
        if not isinstance(value, (tuple, list)):
            raise TypeError(f"{self.name} is {shown(value)}; it must be a tuple with one value for each source")
        count = instance.__dict__["source_count"]
        if len(value) != count:
            raise ValueError(f"{self.name} has {len(value)} values; it must have one for each of {count} sources")
        return self.check(self.name, value)

    def initial(self, instance: object) -> tuple[T, ...]:
        """Return the default for each source."""
        return self.default * int(instance.__dict__["source_count"])


class Alias(_Described[T]):
    """A read-only view of another attribute of the object, or of an attribute of that: ``"record.clip_rect"``.

    ``convert`` makes the value from what is there.
    """

    def __init__(self: Alias[Any], of: str, doc: str, convert: Callable[[Any], object] | None = None) -> None:
        self.of, self.convert, self.read = of, convert, operator.attrgetter(of)
        self.__doc__ = doc

    if not TYPE_CHECKING:

        def __get__(self, instance: object | None, owner: type) -> Any:
            """Return the value."""
            if instance is None:
                return self
            value = self.read(instance)
            return value if self.convert is None else self.convert(value)

    def __set__(self, instance: object, value: object) -> None:
        if self.of.startswith("_") or "." in self.of:
            raise refusal(instance, self.name)
        raise PropertyError(f"{self.name} of {type(instance).__name__} is read-only: it is an alias of {self.of}")


class Initializer(Generic[P]):
    """A class method with a name of Apple's that is equivalent to the constructor.

    The ``self`` of a constructor with ``**properties`` is positional, since one of them could have this name.
    """

    def __init__(self, constructor: Callable[Concatenate[Any, P], None]) -> None:
        self.signature = inspect.signature(constructor)

    def __get__(self, instance: object, owner: type[T]) -> Callable[P, T]:
        """Return the method of a class."""

        def make(cls: type[T], *arguments: Any, **keywords: Any) -> T:
            """Return a new descriptor; equivalent to the constructor."""
            return cls(*arguments, **keywords)

        make.__signature__ = self.signature.replace(return_annotation=owner)  # type: ignore[attr-defined]
        return MethodType(make, owner)


_known: dict[type, Mapping[str, Property[Any]]] = {}


def properties_of(kind: type) -> Mapping[str, Property[Any]]:
    """Return the properties of a class by name, those of its bases first."""
    if kind not in _known:
        names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
        found = ((name, getattr(kind, name, None)) for name in names)
        _known[kind] = {name: prop for name, prop in found if isinstance(prop, Property)}
    return _known[kind]


def is_read_only(kind: type, name: str) -> bool:
    """Return whether a class has a property or a view of this name that cannot be set."""
    own = inspect.getattr_static(kind, name, None)
    return own.read_only if isinstance(own, Property) else isinstance(own, Alias)


def set_read_only(instance: object, **values: object) -> None:
    """Set properties at construction, also read-only ones; call it before :func:`initialize`."""
    known = properties_of(type(instance))
    for name, value in values.items():
        instance.__dict__[name] = known[name].accepted(instance, value)


def initialize(instance: object, values: Mapping[str, object]) -> None:
    """Set every property that :func:`set_read_only` has not set to its value in ``values``, or to its default.

    Raises ``PropertyError`` for a name in ``values`` that is not a property, or a read-only property.
    """
    known, kind = properties_of(type(instance)), type(instance).__name__
    for name in values:
        if name not in known or known[name].read_only:
            settable = _settable(type(instance))
            like = near(name, [*settable.split(", "), *inspect.signature(type(instance)).parameters])
            raise PropertyError(f"{name} is no property of {kind} that can be set{like}; those are: {settable}")
    for name, prop in known.items():
        if name in values:
            instance.__dict__[name] = prop.accepted(instance, values[name])
        elif name not in instance.__dict__:
            instance.__dict__[name] = prop.initial(instance)


@dataclass_transform(field_specifiers=(Argument,))
def constructed(*, init: bool = True, kw_only: bool = False) -> Callable[[T], T]:
    """Return a class decorator that tells type checkers which constructor a kernel or a node has [PEP 681].

    It is made when the class is: its arguments are the properties of type :class:`Argument`, those of the bases first.
    ``init=False`` is a base class with arguments, ``kw_only`` one whose properties are keywords.
    """
    return lambda kind: kind


def arguments_of(kind: type) -> dict[str, tuple[Argument[Any], str]]:
    """Return the arguments of a class, and their types.

    A subclass may make an argument a property that is none; a view in its place leaves it an argument.
    """
    found: dict[str, tuple[Argument[Any], str]] = {}
    for base in reversed(kind.__mro__):
        for name, one in vars(base).items():
            if isinstance(one, Argument) and name in base.__annotations__:
                found[name] = one, base.__annotations__[name][len("Argument[") : -1]
            elif isinstance(one, Property):
                found.pop(name, None)
    return found


def make_constructor(kind: Any, base: Any, connected: Sequence[str], **keywords: object) -> None:
    """Make the constructor: ``connected`` and ``keywords`` are those of ``base``, with the arguments between them.

    A class with a constructor of its own, or without arguments, is not changed.
    """
    own = arguments_of(kind)
    if not own or not (kind.__init__ is base.__init__ or hasattr(kind.__init__, "is_made")):
        return
    spelled = {name: one.alias or name for name, (one, _) in own.items()}
    parameters = ["self", *connected, *spelled.values(), *["*"] * bool(keywords), *keywords, "**properties"]
    options = [f"{name}={name}" for name in keywords]
    made: dict[str, Any] = {"base": base}
    exec(  # as dataclasses do, so that Python itself reports missing arguments
        f"def __init__({', '.join(parameters)}):\n"
        f"    self._set_arguments({', '.join(f'{name}={parameter}' for name, parameter in spelled.items())})\n"
        f"    base.__init__(self, {', '.join([*connected, *options])}, **properties)",
        made,
    )
    constructor = made["__init__"]
    constructor.__defaults__ = tuple(one.default for one, _ in own.values() if one.default is not MISSING)
    constructor.__kwdefaults__ = keywords or None
    constructor.__annotations__ = {
        spelled[name]: words for name, (_, words) in own.items()
    } | base.__init__.__annotations__
    constructor.__module__, constructor.__qualname__ = kind.__module__, f"{kind.__qualname__}.__init__"
    constructor.is_made = True
    kind.__init__ = constructor


PARAMETERS = {
    "properties": "Initial values of other properties, by name.",
    "source": "The image.",
    "source_gradient": "The gradient of the forward result.",
    "source_image": "The source of the forward node.",
    "gradient_state": "The ``result_state`` of the forward node.",
    "filter_size": "The kernel size of both axes, in place of the windows; ``(source, size)`` is the same.",
    "stride": "The stride of both axes, with a ``filter_size``, which is the default.",
    "dilation_rate": "The dilation rate of both axes, with a ``filter_size``, which is the default.",
    "kernel_size": "The size of all axes of the window, 5 by default.",
    "sources": "The images, at least one.",
    "left_source": "The primary image, or a list of both.",
    "right_source": "The secondary image.",
    "others": "Further images of some families.",
    "weights": "The source of descriptor, weights and biases.",
    "gamma": "The initial scale (C,), which is copied; ``None`` is 1.",
    "beta": "The initial shift (C,), which is copied; ``None`` is 0.",
    "mean": "The initial mean (C,), which is copied.",
    "variance": "The initial variance (C,), which is copied.",
    "epsilon": "The summand of a variance, >= 0.",
    "optimizer": "The optimizer of gamma and beta.",
}
"""Documentation of the parameters of constructors that are no properties with a documentation of their own."""


class ConstructorSignature:
    """The ``__signature__`` of classes with a ``__new__``: Python below 3.11.4 shows that of ``__new__``."""

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        return inspect.signature(MethodType(owner.__init__, owner))


WORDS = {
    " | None": "",
    " | ": " or ",
    "ArrayLike": "array_like",
    "ImageLike": "array, MPSImage or batch of images",
    "_Optimizer": "MPSNNOptimizer",
}
"""What annotations are called in documentation."""


def _described(one: inspect.Parameter, text: str) -> str:
    """Return the entry of a parameter."""
    words = str(one.annotation)
    for old, new in WORDS.items():
        words = words.replace(old, new)
    default = "" if one.default is one.empty else f", default {one.default!r}"
    default = ", optional" if one.default is None else default
    stars = "*" * ((one.kind is one.VAR_POSITIONAL) + 2 * (one.kind is one.VAR_KEYWORD))
    return f"{stars}{one.name}" + ("" if stars == "**" else f" : {words}{default}") + f"\n    {' '.join(text.split())}"


CALLS = {
    "input_matrix": "A row for each image.",
    "gradient_matrix": "The gradient of the forward result.",
    "forward_output_matrix": "The forward result.",
    "weight_matrix": "A row for each input channel, a column for each output channel.",
    "bias_vector": "A number for each column of the result.",
    "mean_vector": "The mean of each column.",
    "variance_vector": "The variance of each column.",
    "gamma_vector": "The scale of each column; 1 by default.",
    "beta_vector": "The shift of each column; 0 by default.",
    "result_gradient_for_bias_vector": "Where to write the sums of the gradient over rows, of one matrix only.",
    "result_gradient_for_gamma_vector": "Where to write the gradient for gamma.",
    "result_gradient_for_beta_vector": "Where to write the gradient for beta.",
    **dict.fromkeys(
        (
            "result_matrix",
            "result_gradient_for_data_matrix",
            "result_gradient_for_weight_matrix",
            "destination_image",
            "destination_gradient",
        ),
        "Where to write the result; by default a new one.",
    ),
    "command_buffer": "The command buffer to encode on.",
}
"""Documentation of parameters of encodes; others, where there is none, are those of all kernels."""

RAISES = {
    "ValueError, TypeError": "For arguments that do not fit. Nothing is written, and no property changes.",
    "OrderError": "For a committed command buffer.",
}
"""The errors of encodes."""


def describe_encode(method: Callable[..., object]) -> None:
    """Complete the sections "Parameters" and "Raises" of an encode by what is the same for all of them.

    One without the section "Parameters" is not changed if it has a parameter whose documentation is not known.
    """
    head, *sections = re.split(r"\n\n(?=[A-Z]\w+\n-+\n)", inspect.cleandoc(method.__doc__ or ""))
    _, *parameters = inspect.signature(method).parameters.values()
    names = {one.name for one in parameters}
    if not any(one.startswith("Parameters") for one in sections) and not names <= CALLS.keys():
        return
    known: dict[str, list[str]] = {"Parameters": [], "Raises": []}
    known |= {one.partition("\n")[0]: one.split("\n")[2:] for one in sections}
    words = re.findall(r"\w+", " ".join(line.partition(" :")[0] for line in known["Parameters"] if line[:1] != " "))
    missing = [one for one in parameters if one.name not in words]
    known["Parameters"] += [_described(one, CALLS[one.name]) for one in missing if one.name in CALLS]
    others = [one.name for one in missing if one.name not in CALLS]
    if others:
        known["Parameters"] += [", ".join(others), "    As in :meth:`mpsref.mps.MPSCNNKernel.encode`."]
    for error, text in RAISES.items():
        if not any(error in line for line in known["Raises"]):
            known["Raises"] += [error, f"    {text}"]
    order = ["Parameters", "Returns", "Raises", *known]
    made = ["\n".join([name, "-" * len(name), *known[name]]) for name in dict.fromkeys(order) if known.get(name)]
    method.__doc__ = "\n\n".join([head, *made])


def describe_parameters(kind: C) -> C:
    """Add the section "Parameters" to the documentation of a class, from its constructor and its properties.

    A class that has the section, or a parameter without documentation, is not changed.
    """
    own = vars(kind).get("__doc__")
    if own is None or re.search(r"Parameters\n *---", own):
        return kind
    lines = []
    for one in inspect.signature(kind).parameters.values():
        name = one.name
        known = inspect.getattr_static(kind, name, None)
        text = PARAMETERS.get(name) if known is None or inspect.isroutine(known) else known.__doc__
        if text is None:
            return kind
        lines.append(_described(one, text))
    head, *sections = re.split(r"\n\n(?=\w+\n-+\n)", inspect.cleandoc(own), maxsplit=1)
    kind.__doc__ = "\n\n".join([head, "\n".join(["Parameters\n----------", *lines]), *sections])
    return kind


_settable_names: dict[type, str] = {}


def _settable(kind: type) -> str:
    """Return the names of the properties that can be set, for messages."""
    if kind not in _settable_names:
        names = [name for name, prop in properties_of(kind).items() if not prop.read_only]
        others = [name for base in reversed(kind.__mro__) for name, own in vars(base).items() if _sets(own)]
        listed = dict.fromkeys([*names, *(name for name in others if not name.startswith("_"))])
        _settable_names[kind] = ", ".join(listed) or "none"
    return _settable_names[kind]


def _sets(attribute: object) -> bool:
    return isinstance(attribute, property) and attribute.fset is not None


ELSEWHERE = {
    "gradient_image": ": graph.training_graph(...) returns an object whose gradient_image(image) is that of an image",
    "gradientImage": ": graph.training_graph(...) returns an object whose gradient_image(image) is that of an image",
}
"""Hints for attributes that other objects have."""


def check_keywords(kind: type, given: Iterable[str]) -> None:
    """Raise ``TypeError`` for an argument of a constructor in Swift's spelling, with that of Python."""
    for name in given:
        if name != name.lower():
            known = [*inspect.signature(kind).parameters, *properties_of(kind)]
            raise TypeError(
                f"{name} is no argument of {kind.__name__}{near(name, known)}; arguments are in snake_case, see "
                f"help({kind.__name__})"
            )


def unknown_keyword(method: Callable[..., object], given: Iterable[str]) -> TypeError:
    """Return the error for a keyword that a method lacks."""
    name = next(iter(given))
    parameters = inspect.signature(method).parameters.values()
    known = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD and one.name != "self"]
    like = ": did you mean source_gradient?" if name in ELSEWHERE and "source_gradient" in known else near(name, known)
    return TypeError(f"{name} is no argument of {method.__qualname__}{like}; those are: {', '.join(known)}")


def hinting(value: T) -> T:
    """Decorate a class or a function: calls of it, and of methods of the class, name what they take for other keywords.

    Without this, Python's error for the keyword, or for an argument that is missing then, comes without a suggestion.
    Constructors hint at keywords in Swift's spelling alone, and those of kernels and nodes check theirs themselves.
    """
    if isinstance(value, FunctionType):
        return cast(T, _hinting_function(value))
    kind: Any = value
    for name, own in list(vars(kind).items()):
        if not name.startswith("_") or (name == "__init__" and not isinstance(kind.__new__, FunctionType)):
            bound = isinstance(own, (classmethod, staticmethod))
            function = own.__func__ if bound else own
            if isinstance(function, FunctionType) and not hasattr(function, "hints"):
                changed = _hinting_function(function)
                type.__setattr__(kind, name, type(own)(changed) if bound else changed)
    return value


def _hinting_function(function: FunctionType) -> FunctionType:
    """Return a function that checks its keywords before Python does."""
    parameters = inspect.signature(function, follow_wrapped=False).parameters
    kinds = {one.kind for one in parameters.values()}
    if {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds:
        return function  # it passes them on
    names = frozenset(parameters) | getattr(function, "aliases", frozenset())
    of_object, of_class, error = function.__name__ == "__init__", check_keywords, unknown_keyword
    takes_others = of_object or (
        function.__code__.co_flags & inspect.CO_VARKEYWORDS and not hasattr(function, "aliases")
    )

    def call(*given: Any, **named: Any) -> Any:
        if named and not named.keys() <= names:
            unknown = [one for one in named if one not in names and not (takes_others and one == one.lower())]
            if of_object and given:
                of_class(type(given[0]), unknown)
            if unknown:
                raise error(function, unknown)
        return function(*given, **named)

    # With the globals of the function, by which doctest knows the functions of a module.
    made = FunctionType(call.__code__, function.__globals__, function.__name__, None, call.__closure__)
    functools.update_wrapper(made, function)
    made.hints = True  # type: ignore[attr-defined]
    return made


class NoNewAttributes:
    """Base class of objects on which no public attribute but a property can be set."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        hinting(cls)

    def __getattr__(self, name: str) -> Any:
        """Raise ``AttributeError`` with the name that is like it, also for a selector in Swift's spelling."""
        raise Missing(
            f"{type(self).__name__!r} object has no attribute {name!r}",
            name,
            self,
            lambda: ELSEWHERE.get(name) or near(name, dir(type(self))),
        )

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):
            own = getattr(type(self), name, None)
            if not hasattr(own, "__set__") or (isinstance(own, property) and own.fset is None):
                raise refusal(self, name)
        object.__setattr__(self, name, value)


def refusal(instance: object, name: str) -> PropertyError:
    """Return the error of an attempt to set an attribute that is no property, or one that is read-only."""
    kind = type(instance).__name__
    own = getattr(type(instance), name, None)
    known = (own is not None and not callable(own)) or name in getattr(instance, "__dict__", ())
    what = f"{name} of {kind} is read-only" if known else f"{kind} has no property {shown(name)}"
    settable = _settable(type(instance))
    if settable == "none":
        return PropertyError(f"{what}; objects of {kind} cannot be changed: make another one")
    like = "" if known else near(name, settable.split(", "))
    return PropertyError(f"{what}{like}; those that can be set are: {settable}")


def closed(kind: type[T]) -> type[T]:
    """Decorate a frozen dataclass: its error for an attempt to set an attribute is ``PropertyError``."""

    def refuse(self: object, name: str, value: object) -> None:
        raise refusal(self, name)

    kind.__setattr__ = refuse  # type: ignore[method-assign]
    return hinting(kind)


class PropertyHolder:
    """Base class of objects with properties: no other public attribute can be set, and equality compares values."""

    __getattr__, __setattr__ = NoNewAttributes.__getattr__, NoNewAttributes.__setattr__

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        hinting(cls)

    def _set_arguments(self, **values: Any) -> None:
        """Set the arguments of a constructor that :func:`make_constructor` makes."""
        set_read_only(self, **values)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same class and equal properties."""
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # properties change


def instance_of(name: str, value: object, kind: type[T] | tuple[type[T], ...], legal: str = "") -> T:
    """Return an object of a class of MPS, or of the classes that ``legal`` describes; ``TypeError`` for another one.

    >>> instance_of("boxes", 3, (list, tuple), "a list of boxes")
    Traceback (most recent call last):
    TypeError: boxes is of type int; it must be a list of boxes
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        legal = legal or f"an {' or '.join(one.__name__ for one in kinds)}"
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be {legal}")
    return value


def backend_like(name: str, value: str | Backend) -> str | Backend:
    """Check a backend: its name, or the object."""
    registry.get_backend(value)
    return value


def label_like(name: str, value: object) -> str | None:
    """Check a label: a string, or ``None``."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is {shown(value)}; it must be a string, or None")
    return value


class Labelled:
    """Base class of objects with a label that are no kernels. Source: ``label`` [doc]."""

    __slots__ = ()
    _label: str | None = None

    @property
    def label(self) -> str | None:
        """A string that identifies the object, or ``None``."""
        return self._label

    @label.setter
    def label(self, value: str | None) -> None:
        self.__dict__["_label"] = label_like("label", value)


def at_least(low: int) -> Check[int]:
    """Return the check for integers >= ``low``."""
    return lambda name, value: integer(name, value, low)


def optional(check: Check[T]) -> Check[T | None]:
    """Return a check that also accepts ``None``."""
    return lambda name, value: None if value is None else check(name, value)


def multiple_of_four(name: str, value: object) -> int:
    """Check a channel offset: a multiple of 4, since a texture slice has four channels [doc]."""
    number = integer(name, value, low=0)
    if number % 4:
        raise ValueError(f"{name} is {number}; it must be a multiple of 4 (four channels share a slice)")
    return number
