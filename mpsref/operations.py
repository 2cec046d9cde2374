"""Operations: the parameters of a kernel, a call of one of its methods, and the formula that defines the result.

A :class:`Spec` holds the parameters of a kernel and no arrays. A :class:`Problem` describes a call of one of its
methods by shapes and geometry, without the values of the arrays. The decorator :func:`operation` declares a method at
its formula. The declaration determines the shapes and dtypes of inputs and results, the checks of arguments, the
reference backend, and the expected results in the conformance suite.

>>> from mpsref import SoftMax
>>> problem = SoftMax.problems["gradient"](SoftMax(), (1, 4, 4, 2))
>>> problem.input_shapes, problem.result_shapes
({'g': (1, 4, 4, 2), 'y': (1, 4, 4, 2)}, ((1, 4, 4, 2),))
>>> str(problem.operation), problem.operation.formula.__doc__
('SoftMax.gradient', 'dx = y * (g - sum(g * y)).')
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, TypeVar, dataclass_transform

import numpy as np

from anymetal.fork_safe import cached_property, importing
from mpsref import codecs
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, ImageShape, Shape
from mpsref.arguments.text import near
from mpsref.codecs import parameter
from mpsref.errors import ShapeError, loaded

Formula: TypeAlias = Callable[..., Any]
"""``formula(problem, *inputs)`` returns one result or a tuple of them, computed in the dtype of the inputs."""

OperationKey: TypeAlias = tuple[type[Any], str]
"""An :class:`Operation`, or an equal tuple."""

Value = TypeVar("Value")
AnyFormula = TypeVar("AnyFormula", bound=Formula)

KERNELS_GROUP = "mpsref.kernels"
"""Entry point group of the modules that declare kernels of other packages."""


@dataclass_transform(frozen_default=True, field_specifiers=(parameter, field))
class _Record:
    """Base of specs and problems: subclasses are frozen dataclasses whose fields are converted by their codecs."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    field_names: ClassVar[tuple[str, ...]] = ()
    _codecs: ClassVar[Mapping[str, Any]] = {}
    """The codec of each field, or ``None``."""
    _conversions: ClassVar[tuple[tuple[str, Callable[[str, object], Any], bool], ...]] = ()
    """Of each field with a codec that converts: its name, the conversion, and whether ``None`` is legal."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True)(cls)
        cls.field_names = tuple(one.name for one in fields(cls))
        cls._codecs = {one.name: one.metadata.get("codec") for one in fields(cls)}
        codecs_of = ((one, cls._codecs[one.name]) for one in fields(cls))
        cls._conversions = tuple(
            (one.name, codec.convert, one.default is None)
            for one, codec in codecs_of
            if codec is not None and codec.convert is not None
        )

    def __post_init__(self) -> None:
        values = self.__dict__  # the fields are frozen
        for name, convert, optional in self._conversions:
            value = values[name]
            if value is not None or not optional:
                values[name] = convert(name, value)
        self._check()

    def _check(self) -> None:
        """Check conditions on several fields, after the conversion of all fields."""

    def _set(self, **values: Any) -> None:
        """Set fields to values derived from other fields; only for :meth:`_check`."""
        self.__dict__.update(values)

    def _fill(self, **defaults: Callable[[], Any]) -> None:
        """Set fields that are ``None`` to defaults derived from other fields; only for :meth:`_check`."""
        for name, default in defaults.items():
            if self.__dict__[name] is None:
                self.__dict__[name] = default()

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without cached values, for copies and pickles."""
        return {name: self.__dict__[name] for name in self.field_names}


class Spec(_Record):
    """Parameters of a kernel, without arrays.

    Subclasses are frozen dataclasses; each field is a :func:`mpsref.codecs.parameter`. They document their own ones:
    those of their base are put before these.
    """

    problems: ClassVar[dict[str, type[Any]]]
    """The :class:`Problem` subclass of each operation, by method name."""
    declared: ClassVar[dict[str, Declaration]]
    """The declaration of each operation, by method name."""
    listed: ClassVar[bool] = True
    """Whether :func:`operations` lists the operations; those of programs are not: only some backends have them."""

    def __init_subclass__(cls) -> None:
        if cls.__doc__ and (shared := _parameters(cls.__base__)):
            head, *sections = re.split(r"\n\n(?=(?:Parameters|Examples)\n---)", inspect.cleandoc(cls.__doc__))
            own = _parameters(cls)
            sections = sections[1:] if own else sections
            cls.__doc__ = "\n\n".join([head, "\n".join(filter(None, [PARAMETERS + shared, own])), *sections])
        super().__init_subclass__()
        type.__setattr__(cls, "__init__", _checking(cls.__init__, cls.field_names))
        cls.problems, cls.declared = {}, {}
        for method in vars(cls).values():
            if {"out", "backend"} <= getattr(method, "__annotations__", {}).keys():
                method.__doc__ = _completed(method)


def _checking(initialize: Callable[..., None], names: tuple[str, ...]) -> Callable[..., None]:
    """Return a constructor that names the parameters where one does not exist."""
    known = frozenset(names)

    @functools.wraps(initialize)
    def checking(self: Spec, *given: Any, **named: Any) -> None:
        if not named.keys() <= known:
            name = next(one for one in named if one not in known)
            hint = PADDING_HINT if name in PADDING_WORDS and "offset" in known else near(name, names)
            raise TypeError(
                f"{name} is no parameter of {type(self).__name__}{hint}; those are: {', '.join(names) or 'none'}"
            )
        initialize(self, *given, **named)

    return checking


PADDING_WORDS = frozenset(("padding", "pads", "pad", "auto_pad", "ceil_mode", "count_include_pad"))
PADDING_HINT = (
    ", whose windows begin at an offset: mpsref.padding.pytorch((height, width), kernel_size, strides, padding) "
    "returns offset and output_size, as mpsref.padding.tensorflow and mpsref.padding.onnx do"
)

PARAMETERS = "Parameters\n----------\n"


def _parameters(kind: Any) -> str:
    """Return the section "Parameters" of the documentation of a class, without its title."""
    return inspect.cleandoc(kind.__doc__ or "").partition(PARAMETERS)[2].partition("\n\n")[0]


def _completed(method: Callable[..., Any]) -> str | None:
    """Return the documentation of a method of a kernel, with what is the same in many of them.

    These are the parameters ``out`` and ``backend``, and a result that is an image like the first argument or, of a
    gradient, like the source.
    """
    text = method.__doc__
    if not text or "Parameters\n" not in text:
        return text
    single = "tuple" not in method.__annotations__["out"]
    head, *sections = re.split(r"\n\n(?=(?:Returns|Raises)\n---)", inspect.cleandoc(text))
    destination = [
        "out : ndarray, optional" if single else "out : tuple of ndarray, optional",
        "    Array for the result." if single else "    Arrays for the results.",
        "backend : str or Backend, optional",
        "    Where to compute; default: see :func:`mpsref.use_backend`.",
    ]
    if method.__annotations__.get("return") == "Array" and not any(one.startswith("Returns") for one in sections):
        first = next(iter(method.__annotations__))
        sections.insert(0, f"Returns\n-------\nndarray, shape (N, H, W, C)\n    In the dtype of ``{first}``.")
    return "\n\n".join(["\n".join([head, *destination]), *sections])


class Operation(NamedTuple):
    """A kernel and the name of one of its methods."""

    spec_type: type[Spec]
    method: str

    def __str__(self) -> str:
        return f"{self.spec_type.__name__}.{self.method}"

    @property
    def formula(self) -> Formula:
        """The function that defines the results."""
        return self.spec_type.declared[self.method].formula

    @property
    def error_bound(self) -> Formula:
        """The function that returns the :class:`mpsref.kernels.reference.ErrorBound` of each result."""
        return self.spec_type.declared[self.method].bound

    def results(self, problem: Problem, *inputs: Array) -> tuple[Array, ...]:
        """Return what the formula gives, as a tuple also for a single result."""
        return _as_tuple(self.formula(problem, *inputs))

    def bounds(self, problem: Problem, *inputs: Array) -> tuple[Any, ...]:
        """Return the error bound of each result."""
        return _as_tuple(self.error_bound(problem, *inputs))


def _as_tuple(found: Any) -> tuple[Any, ...]:
    return found if type(found) is tuple else (found,)  # a bound is a named tuple


class Declaration(NamedTuple):
    """The functions that :func:`operation` declares."""

    formula: Formula
    bound: Formula


class Argument(NamedTuple):
    """An array that an operation reads or returns.

    ``dims`` is a shape as a list of words: ``n h w c`` are the axes of the source image, and other words are names of
    attributes of the problem (an integer or a tuple of integers). ``"n output_size c"`` is the shape (N, OH, OW, C).
    """

    dims: str
    dtype: Literal["image", "weights", "real", "uint8", "int32", "shape"] = "image"
    """"image" and "weights": the dtype of the images; "real": float32, or float64 with float64 images; "shape": only
    the shape of the array is read, and a shape is accepted instead of the array."""
    when: str = ""
    """Name of an attribute of the problem: the array is read if the attribute is true. If it is a field, the array is
    optional, and ``None`` if the field is false; otherwise only its shape is read if the attribute is false."""


_INTEGERS: dict[str, np.dtype[Any]] = {"uint8": np.dtype(np.uint8), "int32": np.dtype(np.int32)}

_words = functools.cache(str.split)
"""The words of a shape in :class:`Argument`."""


@functools.cache
def _result_dtypes(
    read: tuple[str, ...], inputs: tuple[np.dtype[Any], ...], returned: tuple[str, ...]
) -> tuple[np.dtype[Any], ...]:
    """Return :meth:`Problem.result_dtypes`, from what :class:`Argument` says of the inputs and of the results."""
    images = [dtype for dtype, kind in zip(inputs, read, strict=True) if kind == "image"]
    kinds = {"real": np.result_type(np.float32, *(images or inputs)), **_INTEGERS}
    if inputs:
        kinds["image"] = inputs[0]
    return tuple(kinds[kind] for kind in returned)


def _arguments(declared: Arguments) -> dict[str, Argument]:
    return {name: Argument(one) if isinstance(one, str) else one for name, one in declared.items()}


def vector(dims: str = "c", when: str = "") -> Argument:
    """Return the argument of a statistic or a parameter: ``float32`` with ``float16`` images."""
    return Argument(dims, "real", when)


def shape_only(dims: str = "n h w c") -> Argument:
    """Return the argument of an image of which only the shape is read."""
    return Argument(dims, "shape")


Arguments: TypeAlias = Mapping[str, "str | Argument"]


class Problem(_Record):
    """One call of an operation without the values of its arrays: hashable, and sufficient to compute all indices."""

    spec: Spec
    method: ClassVar[str] = ""
    inputs: ClassVar[Mapping[str, Argument]] = MappingProxyType({})
    """The arrays that the operation reads, in the order of the arguments of its implementations."""
    results: ClassVar[Mapping[str, Argument]] = MappingProxyType({})
    """The results."""
    is_varied: ClassVar[bool] = False
    """Whether it is a result of :meth:`varied`."""

    def __init_subclass__(
        cls, method: str = "", inputs: Arguments | None = None, results: Arguments | None = None
    ) -> None:
        """Declare the method's name and its arrays, as keywords of the class statement."""
        super().__init_subclass__()
        if method:
            cls.method = method
        if inputs is not None:
            cls.inputs = _arguments(inputs)
        if results is not None:
            cls.results = _arguments(results)

    @cached_property
    def operation(self) -> Operation:
        """The operation of this problem."""
        return Operation(type(self.spec), self.method)

    @cached_property
    def arguments(self) -> dict[str, Argument]:
        """The arrays that this call reads."""
        return {
            name: one
            for name, one in self.inputs.items()
            if one.dtype != "shape" and (not one.when or getattr(self, one.when))
        }

    @cached_property
    def input_shapes(self) -> Mapping[str, Shape]:
        """Name and shape of each array that the operation reads, in the order of :attr:`inputs`."""
        return {name: self.shape_of(one.dims) for name, one in self.arguments.items()}

    @cached_property
    def result_shapes(self) -> tuple[Shape, ...]:
        """Shape of each result."""
        return tuple(self.shape_of(one.dims) for one in self._returned())

    def _returned(self) -> Iterator[Argument]:
        return (one for one in self.results.values() if not one.when or getattr(self, one.when))

    def shape_of(self, dims: str) -> Shape:
        """Return the shape that ``dims`` describes, see :class:`Argument`."""
        shape: Shape = ()
        for word in _words(dims):
            length = self.axis(word) if len(word) == 1 else getattr(self, word)
            shape += (length,) if isinstance(length, int) else tuple(length)
        return shape

    def axis(self, letter: str) -> int:
        """Return the length of the axis n, h, w or c of the source image."""
        raise NotImplementedError

    @classmethod
    def size_field(cls) -> str | None:
        """Return the field that is height and width of an array with images, by its declared shape, or ``None``.

        >>> from mpsref import PoolingMax, SoftMax
        >>> PoolingMax.problems["gradient"].size_field(), SoftMax.problems["gradient"].size_field()
        ('gradient_size', None)
        """
        shapes = (_words(one.dims) for one in (*cls.inputs.values(), *cls.results.values()))
        return next(
            (size for first, size, *_ in (s for s in shapes if len(s) > 1) if first == "n" and size in cls.field_names),
            None,
        )

    @property
    def flops(self) -> int:
        """Number of multiplications and additions if these dominate the cost, else 0."""
        return 0

    def where(self, index: tuple[int, ...]) -> str:
        """Return the windows of one element of the first result as text for a message."""
        return ""

    def input_dtypes(self, image: np.dtype[Any]) -> Mapping[str, np.dtype[Any]]:
        """Return the dtype of each input for images of dtype ``image``."""
        kinds = {
            "image": image,
            "weights": image,
            "real": np.promote_types(image, np.float32),
            **_INTEGERS,
        }
        return {name: kinds[one.dtype] for name, one in self.arguments.items()}

    def result_dtypes(self, *inputs: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        """Return the dtype of each result: for an image that of the first input, for "real" at least float32."""
        read = tuple([one.dtype for one in self.arguments.values()])
        return _result_dtypes(read, inputs, tuple([one.dtype for one in self._returned()]))

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Return legal inputs of the operation, computed from an array of random numbers for each input."""
        return drawn

    def legal_nonfinite(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Return inputs with NaN and infinities, without those for which rounding determines the result."""
        return drawn

    def shape_hint(self, name: str, shape: Shape) -> str:
        """Return a text to append to the error message about an array of a wrong shape."""
        return ""

    def varied(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with other values of fields that values of :func:`cached_in_problem` do not depend on."""
        self.__dict__.setdefault("_plans", {})  # shared with the copy
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.__dict__.pop("_recorded", None)  # of a backend, for the values of this problem
        copy.__dict__["is_varied"] = True
        for name, value in changes.items():
            codec = type(self).__dataclass_fields__[name].metadata["codec"]
            copy.__dict__[name] = codec.convert(name, value)
        return copy

    @classmethod
    def from_call(cls, spec: Any, given: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Self, dict[int, Array]]:
        """Check a call; return its problem and the arrays that it reads, by their positions in ``given``.

        ``given`` has a value for each of :attr:`inputs`, ``options`` the fields that are not determined by shapes.
        """
        return _from_call(cls, spec, given, options)

    @classmethod
    def from_shapes(cls, spec: Any, *shapes: Shape) -> Self:
        """Return the problem of a call with arrays of these shapes, one for each of :attr:`inputs`.

        Raises ``ShapeError`` if the shapes do not fit together.

        >>> from mpsref import PoolingMax
        >>> PoolingMax.problems["gradient"].from_shapes(PoolingMax(2, 2), (1, 2, 3, 1), (1, 4, 6, 1)).gradient_size
        (2, 3)
        """
        known = dict(zip(cls.inputs, shapes, strict=True))
        inferred: dict[str, Any] = {}
        for name, shape in known.items():
            _infer(_words(cls.inputs[name].dims), shape, cls._codecs, inferred)
        problem = cls(spec, **inferred)
        for name in known:
            _check_shape(problem, name, known)
        return problem


class ImageProblem(Problem):
    """A problem whose source is an image (N, H, W, C)."""

    source_shape: ImageShape = parameter(codecs.image_shape())

    def shape_of(self, dims: str) -> Shape:
        """Return the shape that ``dims`` describes, which in most cases is that of the source image."""
        return self.source_shape if dims == "n h w c" else super().shape_of(dims)

    def axis(self, letter: str) -> int:
        """Return N, H, W or C of the source image."""
        return self.source_shape["nhwc".index(letter)]


def operation(
    *spec_types: type[Spec],
    method: str = "",
    problem: type[Problem] = ImageProblem,
    inputs: Arguments | None = None,
    results: Arguments | None = None,
    bound: Formula,
) -> Callable[[AnyFormula], AnyFormula]:
    """Declare the decorated function as the formula of a method of ``spec_types``.

    Parameters
    ----------
    *spec_types : type[Spec]
        The kernels that have this operation.
    method : str
        Name of the method; default: that of ``problem``.
    problem : type[Problem]
        The class of its problems. A subclass adds fields and geometry that the shapes do not determine.
    inputs, results : mapping of str to str or Argument
        The arrays in order, only together with ``method``; default: those declared in ``problem``.
    bound : callable
        ``bound(problem, *inputs)`` returns the error bound of each result.
    """
    if method:
        name = spec_types[0].__name__ + method.title().replace("_", "")
        body = {"__module__": spec_types[0].__module__, "__doc__": problem.__doc__}
        problem = type(name, (problem,), body, method=method, inputs=inputs, results=results)

    def declare(formula: AnyFormula) -> AnyFormula:
        for spec_type in spec_types:
            spec_type.problems[problem.method] = problem
            spec_type.declared[problem.method] = Declaration(formula, bound)
        return formula

    return declare


def operations() -> list[Operation]:
    """List all operations: those of mpsref, of installed packages, and those declared in this process.

    Other packages declare kernels in modules that are entry points of the group ``mpsref.kernels``.

    >>> [str(operation) for operation in operations()][:2]
    ['Adam.step', 'Arithmetic.forward']
    """
    specs = sorted(_declared_specs(), key=lambda spec_type: spec_type.__name__)
    return [Operation(spec_type, method) for spec_type in specs for method in spec_type.declared]


def operation_of(name: str) -> Operation | None:
    """Return the operation of this name, the last one that was declared, or ``None``."""
    kind, _, method = name.partition(".")
    found = [
        spec_type for spec_type in _declared_specs() if spec_type.__name__ == kind and method in spec_type.declared
    ]
    return Operation(found[-1], method) if found else None


@functools.cache
def _import_kernels() -> None:
    """Import every module that declares operations."""
    with importing:
        from importlib import metadata  # as slow to import as the rest of mpsref

        package = import_module("mpsref.kernels")
        for module in iter_modules(package.__path__, "mpsref.kernels."):
            import_module(module.name)
        for point in metadata.entry_points(group=KERNELS_GROUP):
            loaded(point)


def _declared_specs() -> Iterator[type[Spec]]:
    """Yield all kernels with declared operations."""
    _import_kernels()
    found, left = {Spec}, [Spec]
    for kind in left:
        new = [derived for derived in kind.__subclasses__() if derived not in found]  # of two bases: once
        found.update(new)
        left += new
        if kind is not Spec and kind.declared and kind.listed:
            yield kind


def _from_call(
    kind: type[Any], spec: Spec, given: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[Any, dict[int, Array]]:
    """Check the arrays of a call, infer the fields of its problem from the shapes, and check all shapes."""
    codec_of = kind._codecs
    listed = list(zip(kind.inputs.items(), given, strict=True))
    values: dict[str, Any] = {}
    shapes: dict[str, Shape] = {}
    inferred: dict[str, Any] = {}
    for (name, one), value in listed:
        if one.when in codec_of:
            inferred[one.when] = value is not None
            if value is None:
                continue
        values[name] = value
        if one.dtype == "real":
            continue
        may_be_shape = one.dtype == "shape" or (one.when and one.when not in codec_of)
        if may_be_shape and arrays.is_shape(value):
            shapes[name] = arrays.as_shape(f"{name}_or_shape", value)
        else:
            values[name] = _CONVERTED[one.dtype](name, value)
            shapes[name] = values[name].shape
        _infer(_words(one.dims), shapes[name], codec_of, inferred)
    problem = kind(spec, **{**inferred, **options})
    images = [name for (name, one), _ in listed if one.dtype == "image" and name in shapes]
    inputs: dict[int, Array] = {}
    for position, ((name, one), _) in enumerate(listed):
        if name not in values:
            continue
        if one.dtype == "real":
            like = (values[image] for image in images if hasattr(values[image], "dtype"))
            values[name] = arrays.as_vector(name, values[name], problem.shape_of(one.dims), *like)
        else:
            _check_shape(problem, name, shapes, source_is_given="source_shape" in options)
        if name in problem.arguments:
            if not hasattr(values[name], "dtype"):
                raise TypeError(
                    f"{name} is the shape {shapes[name]}; {problem.operation} reads its values: pass the array itself"
                )
            inputs[position] = values[name]
    return problem, inputs


def _check_shape(problem: Any, name: str, shapes: Mapping[str, Shape], *, source_is_given: bool = False) -> None:
    """Raise ``ShapeError`` unless the array ``name`` has the shape that the problem of all ``shapes`` declares."""
    expected = problem.input_shapes.get(name) or problem.shape_of(problem.inputs[name].dims)
    if shapes[name] != expected:
        others = ", ".join(f"{other} of shape {shape}" for other, shape in shapes.items() if other != name)
        if source_is_given:
            others += f" and a source of shape {problem.source_shape}"
        raise ShapeError(
            f"{name} has shape {shapes[name]}; with {others or problem.spec} it must have shape {expected}"
            f"{problem.shape_hint(name, shapes[name])}"
        )


def _as_weights(name: str, value: object) -> Array:
    weights = arrays.as_float(name, value)
    if 0 in weights.shape:
        raise ShapeError(f"{name} has shape {weights.shape}; each axis must be >= 1")
    return weights


def _as_int32(name: str, value: object) -> Array:
    array = arrays.as_array(name, value)
    if array.dtype.newbyteorder("=") != np.int32:
        raise TypeError(f"{name} has dtype {array.dtype}; it must be int32: pass {name}.astype(numpy.int32)")
    return array


_CONVERTED = {
    "image": arrays.as_image,
    "shape": arrays.as_image,
    "weights": _as_weights,
    "uint8": arrays.as_array,
    "int32": _as_int32,
}


def _infer(words: list[str], shape: Shape, codec_of: Mapping[str, Any], inferred: dict[str, Any]) -> None:
    """Infer the source shape and fields of a problem from the axes of ``shape`` whose positions are determined."""
    if words == ["n", "h", "w", "c"]:
        inferred.setdefault("source_shape", shape)
        return
    for step in (1, -1):  # from the left and from the right, up to a word of unknown length
        at = 0
        for word in words[::step]:
            codec = codec_of.get(word)
            if len(word) > 1 and codec is None:
                break
            length = 1 if codec is None else codec.length
            if at + length > len(shape):
                break
            lengths = shape[at : at + length] if step == 1 else shape[len(shape) - at - length : len(shape) - at]
            if codec is not None:
                inferred.setdefault(word, lengths[0] if length == 1 else lengths)
            at += length
        else:
            return  # every position is known from the left


def cached_in_problem(make: Callable[[Any], Value]) -> Callable[[Any], Value]:
    """Cache the value of a function of a problem or a spec in that object.

    The object is not hashed, and the value is released with the object. Backends use it for values derived from a
    problem, such as index tables.

    >>> @cached_in_problem
    ... def name(spec):
    ...     return [type(spec).__name__]
    >>> from mpsref import SoftMax
    >>> spec = SoftMax()
    >>> name(spec) is name(spec)
    True
    """

    @functools.wraps(make)
    def kept(owner: Any) -> Value:
        plans = owner.__dict__.get("_plans")
        if plans is None:
            plans = owner.__dict__["_plans"] = {}
        try:
            value: Value = plans[make]
        except KeyError:
            value = plans[make] = make(owner)
        return value

    return kept
