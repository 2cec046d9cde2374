"""Base classes of the kernels: properties, encoding, copies, archives.

A kernel family derives from one of ``MPSCNNKernel``, ``MPSCNNBinaryKernel``, ``MPSCNNMultiaryKernel`` and
``MPSCNNGradientKernel``, declares its properties, and implements ``_compute``, which calls the functional form through
the registry. The base classes do no arithmetic on pixels.

Source: ``MPSKernel.h``, ``MPSCNNKernel.h`` [doc].
"""

from __future__ import annotations

import abc
import copy
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, ClassVar, Generic, NamedTuple, Never, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from mpsref import registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.arguments.parameters import Pair, PairLike, integer, pair
from mpsref.arguments.text import shown
from mpsref.errors import ShapeError
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.clip_regions import Region, channels_read, count, destination_region, images_read, overlap
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.image import MPSImageDescriptor
from mpsref.mps.core.image_arguments import Encoded, ImageArgument, ImageLike, ImageResult, batch_form, expire
from mpsref.mps.core.padding import (
    DEFAULT_PADDING,
    MPSNNDefaultPadding,
    MPSNNPadding,
    forward_placement,
    policy,
    suggested_method,
)
from mpsref.mps.core.properties import (
    Argument,
    PerSource,
    Property,
    PropertyHolder,
    at_least,
    backend_like,
    check_keywords,
    constructed,
    constructor_parameters,
    describe_encode,
    describe_parameters,
    initialize,
    instance_of,
    is_read_only,
    label_like,
    make_constructor,
    multiple_of_four,
    optional,
    properties_of,
    unknown_keyword,
)
from mpsref.mps.core.reads import check_usable
from mpsref.mps.core.serialization import SecureCoding, import_families, secure_coding
from mpsref.mps.core.state import (
    DestinationState,
    ForwardRecord,
    MPSNNBinaryGradientState,
    MPSNNGradientState,
    MPSNNMultiaryGradientState,
    MPSState,
    RecordedState,
    SourceProperties,
    differ,
    one_state,
    state_of_batch,
)
from mpsref.mps.core.types import MPSImageEdgeMode, MPSOffset, MTLRegion
from mpsref.registry import Backend, Problem, Spec

_K = TypeVar("_K", bound="type[MPSKernel]")
_Kernel = TypeVar("_Kernel", bound="MPSKernel")
_T = TypeVar("_T")
_P = ParamSpec("_P")


UNSAVED = "backend", "label"
"""Properties that are no part of what a kernel computes."""


def saved(*arguments: str, version: int = 1) -> Callable[[_K], _K]:
    """Return a class decorator that registers a kernel class for saving, with other arguments than most.

    ``arguments`` are those of the constructor, each also an attribute: by default the read-only ones. All properties
    that can be set are saved, except the backend, which depends on the machine, and the label. Classes of MPS are
    registered when they are made.
    """

    def register(kind: _K) -> _K:
        writable = [name for name, prop in properties_of(kind).items() if not prop.read_only and name not in UNSAVED]
        new = tuple(name for name in writable if name not in kind._coding.properties)
        fixed = tuple(one.name for one in constructor_parameters(kind) if is_read_only(kind, one.name))
        return secure_coding(version, arguments=arguments or fixed, properties=new)(kind)

    return register


def of_zeros(shapes: Sequence[Shape]) -> list[ImageArgument]:
    """Return images of zeros of these shapes, without memory for their pixels."""
    legal = (arrays.as_shape(f"shapes[{k}]", shape) for k, shape in enumerate(shapes))
    images = (np.broadcast_to(np.float32(0), shape) for shape in legal)
    return [ImageArgument(f"source_images[{k}]", image, image) for k, image in enumerate(images)]


class Destination(NamedTuple):
    """The destination of an encode: a given image, or the shape and dtype of a new one."""

    given: ImageArgument | None
    shape: Shape
    dtype: DTypeLike


@functools.lru_cache(maxsize=1024)
def problem_of(spec: Spec, method: str, *fields: Any) -> Problem:
    """Return the problem of a call, the same object for equal arguments."""
    problem: Problem = spec.problems[method](spec, *fields)
    return problem


class Plan(NamedTuple):
    """How to compute a region of a destination: a problem, its inputs, and the part of its result."""

    problem: Problem
    reads: Sequence[int] = (0,)
    """The numbers of the sources that are its inputs."""
    first: Pair | None = None
    """The pixel of its result that is the first of the region, which is 0 outside the result; ``None``: it is whole."""
    operands: tuple[Array | None, ...] = ()
    """Its inputs after the sources, such as weights; ``None`` for one that there is not."""
    source: Callable[[Array], Array] | None = None
    """Returns the input from the source, where they differ."""
    result: Callable[[Array], Array] | None = None
    """Returns the region from the result, where they differ."""

    @property
    def is_direct(self) -> bool:
        """Whether the region is the result of the problem for the sources themselves."""
        return self.first is None and self.source is None and self.result is None

    def run(self, sources: Sequence[Array], out: Array, backend: str | Backend | None) -> None:
        """Write the region ``out``; ``sources`` are the regions that are read."""
        if self.first is None and self.result is None:
            self._run(sources, self.operands, backend, out)
            return
        whole = self.computed(sources, self.operands, backend)
        if self.first is None:
            out[...] = whole
            return
        (y, y_read), (x, x_read) = map(overlap, self.first, out.shape[1:3], whole.shape[1:3])
        out[...] = 0
        out[:, y, x] = whole[:, y_read, x_read]

    def computed(
        self, sources: Sequence[Array], operands: Sequence[Array | None], backend: str | Backend | None
    ) -> Array:
        """Return the region, before it is moved to ``first``, with other operands."""
        result = self._run(sources, operands, backend)
        return result if self.result is None else self.result(result)

    def _run(
        self,
        sources: Sequence[Array],
        operands: Sequence[Array | None],
        backend: str | Backend | None,
        out: Array | None = None,
    ) -> Array:
        inputs = [sources[k] for k in self.reads]
        if self.source is not None:
            inputs = [self.source(*inputs)]
        inputs += self.operands_for(inputs[0], operands)
        return registry.run_one(self.problem, *inputs, out=out, backend=backend)

    def operands_for(self, image: Array, operands: Sequence[Array | None]) -> list[Array]:
        """Return the operands in the dtypes that go with an image."""
        given = [one for one in operands if one is not None]
        if not given:
            return given
        declared = list(self.problem.arguments.items())[-len(given) :]
        return [
            arrays.as_vector(name, one, self.problem.shape_of(wanted.dims), image) if wanted.dtype == "real" else one
            for (name, wanted), one in zip(declared, given, strict=True)
        ]


class Prepared(NamedTuple):
    """An encode into a new destination that is the result of one problem, to be repeated without preparation."""

    problem: Problem
    inputs: tuple[tuple[int, tuple[slice, ...]], ...]
    """For each source that is read, its number and the index of the region."""
    operands: Sequence[Array]
    record: ForwardRecord

    def run(self, sources: Sequence[ImageArgument], backend: str | Backend | None) -> Array:
        """Return the destination."""
        images = [sources[k].array[index] for k, index in self.inputs]
        return registry.run_one(self.problem, *images, *self.operands, backend=backend)


class Remembered(dict[Hashable, tuple[tuple[object, ...], Prepared]]):
    """Up to 8 encodes by key, each valid as long as the properties of a kernel are the same objects."""

    def valid(self, key: Hashable, properties: Iterable[object]) -> Prepared | None:
        """Return the value of ``key``, if there is one that is valid."""
        found = self.get(key)
        return found[1] if found and all(map(operator.is_, properties, found[0])) else None

    def keep(self, key: Hashable, properties: tuple[object, ...], value: Prepared) -> None:
        """Keep a value that is valid for the ``properties``."""
        if len(self) >= 8:
            self.clear()
        self[key] = properties, value


class _Kept:
    """What kernels keep from one encode to the next; not among their properties."""

    __slots__ = ("_configured_by", "_copy_of", "_prepared")
    _copy_of: Self | None
    """Of the copy that an encode configures, the kernel."""
    _configured_by: ForwardRecord | None
    """The record of the last state that has configured a gradient kernel."""
    _prepared: Remembered
    """Encodes that may be repeated, by shapes and dtypes."""

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Raise ``TypeError`` for an abstract class."""
        if inspect.isabstract(cls):
            import_families()
            names = sorted({kind.__name__ for kind in _descendants(cls) if not inspect.isabstract(kind)})
            raise TypeError(
                f"{cls.__name__} is abstract; make one of {', '.join(names) or 'a class that derives from it'}"
            )
        check_keywords(cls, kwargs)
        made = super().__new__(cls)  # not a method of MPSKernel, or this would be the signature of a class
        made._prepared, made._configured_by, made._copy_of = Remembered(), None, None
        return made

    @property
    def _kernel(self) -> Self:
        """The kernel that the user has made."""
        return self._copy_of or self

    def _to_configure(self) -> Self:
        """Return a copy with the same prepared encodes, for one encode."""
        own = object.__new__(type(self))
        own.__dict__.update(self.__dict__)
        own._prepared, own._configured_by = self._prepared, self._configured_by
        own._copy_of = self._copy_of or self
        return own


@constructed(init=False, kw_only=True)
class MPSKernel(_Kept, PropertyHolder, SecureCoding, abc.ABC):
    """Base class of all kernels.

    Properties are checked when they are set; other names raise ``PropertyError``.

    Parameters
    ----------
    backend : str or Backend, optional
        The backend to run on; ``None`` for the current one when the kernel runs.
    **properties
        Initial values of properties, by name.

    Notes
    -----
    ``MPSKernel`` in ``MPSKernel.h`` [doc].
    """

    backend: Property[str | Backend | None] = Property(
        optional(backend_like),
        None,
        "The backend to run on: a name, an ``mpsref.Backend``, or ``None`` for the one in use.",
    )

    label: Property[str | None] = Property(label_like, None, "A string that identifies the kernel; it is not saved.")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, own in vars(cls).items():
            if name.startswith("encode") and inspect.isfunction(own) and "command_buffer" in own.__code__.co_varnames:
                describe_encode(own)
        make_constructor(cls, MPSKernel, (), backend=None)
        if cls.__name__.startswith("MPS") and cls.__module__.startswith("mpsref."):
            describe_parameters(cls)
            saved()(cls)

    def __getstate__(self) -> dict[str, object]:
        """Return the properties, without prepared encodes, for copies."""
        return vars(self)

    def __init__(self, *, backend: str | Backend | None = None, **properties: Any) -> None:
        initialize(self, {"backend": backend, **properties})

    @abc.abstractmethod
    def encode(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel on its images."""

    def _assign(self, **values: object) -> None:
        """Set properties to legal values without a check; keep the present object if it equals the value."""
        own = vars(self)
        for name, value in values.items():
            if own[name] != value:
                own[name] = value

    def copy(self) -> Self:
        """Return an independent kernel with equal properties."""
        return copy.copy(self)

    def __repr__(self) -> str:
        arguments = {name: getattr(self, name) for name in self._coding.arguments}
        fresh = vars(type(self)(**arguments))
        changed = {name: vars(self)[name] for name in properties_of(type(self)) if vars(self)[name] != fresh[name]}
        if isinstance(self.backend, Backend):
            changed["backend"] = self.backend.name
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in (arguments | changed).items())})"
        )


def _descendants(kind: type[object]) -> Iterator[type[object]]:
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)


class Encoding(Generic[_Kernel]):
    """Context manager of an encode: it gives a copy of a kernel to configure, whose properties the kernel has then.

    Encodes of one kernel in several threads configure a copy each. After an error the kernel is unchanged. Raises
    ``OrderError`` for a committed command buffer.
    """

    __slots__ = ("_kernel", "_own", "before")

    def __init__(self, kernel: _Kernel, command_buffer: MPSCommandBuffer | None) -> None:
        if command_buffer is not None:
            check_encodable(command_buffer)
        self._kernel = kernel

    def __enter__(self) -> _Kernel:
        own = self._own = self._kernel._to_configure()
        self.before = tuple(vars(own).values())
        return own

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        new = vars(self._own)
        if len(new) > len(self.before) or not all(map(operator.is_, new.values(), self.before)):
            before = itertools.chain(self.before, itertools.repeat(MISSING))  # new names are last
            pairs = zip(new.items(), before, strict=False)
            vars(self._kernel).update(item for item, old in pairs if item[1] is not old)
        self._kernel._configured_by = self._own._configured_by


_READERS = {
    prefix: operator.itemgetter(*(prefix + name for name in SourceProperties._fields))
    for prefix in ("", "primary_", "secondary_")
}


@constructed(init=False, kw_only=True)
class ImageKernel(MPSKernel):
    """A kernel that reads source images and writes one destination image; not a class of MPS."""

    prefixes: ClassVar[tuple[str, ...]] = ("",)
    """For each source, the prefix of its property names."""
    destination_name: ClassVar[str] = "destination_image"
    state_class: ClassVar[type[RecordedState]] = MPSNNGradientState
    """The state for the gradient kernel."""
    accepts_lists: ClassVar[bool] = False
    """Whether sources may be lists of arrays, which are concatenated; the result is then such a list."""
    recorded: ClassVar[tuple[str, ...]] = ()
    """The properties of the family that a state records, and that its gradient kernel must have, too."""
    repeats: ClassVar[bool] = False
    """Whether encodes into a new destination are prepared for repetition, which needs a plan."""

    clip_rect: Property[MTLRegion | None] = Property(
        types.region,
        None,
        "The region of the destination that is written, MTLRegion; ``None`` (MPSRectNoClip) is all of it.",
    )
    destination_feature_channel_offset: Property[int] = Property(
        multiple_of_four, 0, "The first channel of the destination that is written; a multiple of 4."
    )
    padding: Property[MPSNNPadding] = Property(
        policy, DEFAULT_PADDING, "The policy that sets offsets and size without a destination."
    )
    is_backwards = Property(lambda _, value: bool(value), False, "Whether it is a gradient kernel.", read_only=True)

    @abc.abstractmethod
    def _compute(self, inputs: Sequence[Array], destination: Array, region: Region, *operands: Any) -> None:
        """Write ``destination[region]``, which is not empty, from the images and channels of the sources to read.

        ``operands`` are arguments of the encode in addition to images.
        """

    def _plan(self, shapes: Sequence[Shape], size: Pair) -> Plan | None:
        """Return how to compute a region of ``size`` from inputs of these ``shapes``; see :class:`PlannedKernel`."""
        raise NotImplementedError

    def _prepare(
        self,
        key: Hashable,
        before: tuple[object, ...],
        sources: Sequence[ImageArgument],
        shape: Shape,
        record: ForwardRecord,
    ) -> None:
        """Prepare the repetition of the last encode, on images of one native dtype.

        Nothing is prepared if the encode has changed the properties ``before``.
        """
        dtypes = {source.array.dtype for source in sources}
        same = all(map(operator.is_, vars(self).values(), before))
        if same and 0 not in shape and len(dtypes) == 1 and dtypes.pop().isnative:
            prepared = self._repetition(sources, shape, record)
            if prepared is not None:
                self._prepared.keep(key, before, prepared)

    def _repetition(self, sources: Sequence[ImageArgument], shape: Shape, record: ForwardRecord) -> Prepared | None:
        """Return how to repeat the last encode; ``None`` if its result is not that of one problem."""
        indices, region = self._indices(sources, shape)
        if region.shape != shape:
            return None
        shapes = [source.array[index].shape for source, index in zip(sources, indices, strict=True)]
        plan = self._plan(shapes, region.size)
        if plan is None or not plan.is_direct:
            return None
        operands = plan.operands_for(sources[plan.reads[0]].array, plan.operands)
        return Prepared(plan.problem, tuple((k, indices[k]) for k in plan.reads), operands, record)

    def _channels_written(self, read: Sequence[slice]) -> int:
        """Return the number of channels of the result, given the channels read from each source."""
        return count(read[0])

    def _extras(self, *operands: Any) -> Mapping[str, object]:
        """Return what a state records in addition to the properties of all kernels."""
        return {name: getattr(self, name) for name in self.recorded}

    def _property_name(self, k: int, name: str) -> str:
        return self.prefixes[k] + name

    def _source_properties(self, k: int) -> SourceProperties:
        return SourceProperties._make(_READERS[self.prefixes[k]](vars(self)))

    def _assign_to_source(self, k: int, **values: object) -> None:
        """Set properties of one source like :meth:`_assign`."""
        self._assign(**{self.prefixes[k] + name: value for name, value in values.items()})

    def _channels_needed(self, k: int) -> int | None:
        """Return how many channels the kernel reads from source ``k``; ``None``: as many as there are."""
        return None

    def _channels(self, sources: Sequence[ImageArgument]) -> list[slice]:
        """Return the channels to read from each source."""
        read = []
        for k, source in enumerate(sources):
            properties = self._source_properties(k)
            name = self._property_name(k, "source_feature_channel_offset")
            first, limit = properties.source_feature_channel_offset, properties.source_feature_channel_max_count
            limits = [most for most in (limit, self._channels_needed(k)) if most is not None]
            read.append(channels_read(source.name, name, source.array.shape, first, min(limits, default=None)))
        return read

    def _destination_shape(self, sources: Sequence[ImageArgument], size: Pair) -> Shape:
        """Return the shape of a new destination."""
        z, number = self._source_properties(0).offset.z, sources[0].array.shape[0]
        if z > number:
            name = self._property_name(0, "offset")
            raise ValueError(f"{name}.z is {z}; it must be <= {number}, the number of images of {sources[0].name}")
        first = 0 if self.clip_rect is None else self.clip_rect.origin.z
        written = self._channels_written(self._channels(sources))
        return first + number - z, *size, self.destination_feature_channel_offset + written

    def _select(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[list[Array], Region]:
        """Return the inputs of :meth:`_compute` and the region of the destination that is written."""
        indices, region = self._indices(sources, shape)
        return [source.array[index] for source, index in zip(sources, indices, strict=True)], region

    def _indices(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[list[tuple[slice, ...]], Region]:
        """Return the index of each source to read and the region of the destination to write."""
        channels = self._channels(sources)
        first, written = self.destination_feature_channel_offset, self._channels_written(channels)
        region = destination_region(self.destination_name, shape, self.clip_rect, first, written)
        depth = region.shape[0]
        indices: list[tuple[slice, ...]] = []
        for k, (source, read) in enumerate(zip(sources, channels, strict=True)):
            z = self._source_properties(k).offset.z
            images = images_read(source.name, self._property_name(k, "offset"), source.array.shape, z, depth)
            indices.append((images, slice(None), slice(None), read))
        return indices, region

    def _run(self, sources: Sequence[ImageArgument], destination: Destination, *operands: Any) -> tuple[Array, Region]:
        """Write the given destination, or a new one of zeros."""
        given, shape, dtype = destination
        inputs, region = self._select(sources, shape)
        if given is not None:
            target = given.array
        else:
            images = [source.array for source in sources]
            target = arrays.empty(self.destination_name, shape, np.dtype(dtype).newbyteorder("="), images)
            if region.shape != shape or 0 in shape:
                target.fill(0)
        if 0 not in region.shape:
            self._compute_in_one_dtype(inputs, target, region, *operands)
        return target, region

    def _compute_in_one_dtype(self, inputs: Sequence[Array], target: Array, region: Region, *operands: Any) -> None:
        """Compute in the widest dtype of the images, and round the result to the dtype of the destination."""
        dtypes = {array.dtype for array in (*inputs, target)}
        if len(dtypes) == 1 and target.dtype.isnative:
            self._compute(inputs, target, region, *operands)
            return
        wide = np.result_type(*dtypes).newbyteorder("=")
        result = arrays.empty("the result", target.shape, wide, (target,))
        self._compute([array.astype(wide, copy=False) for array in inputs], result, region, *operands)
        with np.errstate(over="ignore"):  # storing in float16 may overflow to infinity
            target[region] = result[region]

    def _infer_padding(self, sources: Sequence[ImageArgument]) -> tuple[Shape, DType]:
        """Set offsets and edge mode by the padding policy; return shape and dtype of the destination."""
        method = suggested_method(self.padding)
        sizes = set()
        for k, source in enumerate(sources):
            properties = self._source_properties(k)
            size, (y, x) = forward_placement(source.array.shape[1:3], properties.windows, method)
            sizes.add(size)
            self._assign_to_source(k, offset=MPSOffset(x, y, properties.offset.z))
            if isinstance(self.padding, MPSNNDefaultPadding) and self.padding.edge_mode is not None:
                self._assign_to_source(k, edge_mode=self.padding.edge_mode)
        if len(sizes) > 1:
            raise ShapeError(
                f"the padding policy gives the sources different output sizes, {sorted(sizes)}; pass sources that give "
                "one size, or pass destination_size"
            )
        return self._described(sources, self._destination_shape(sources, sizes.pop()))

    def infer_padding(self, *shapes: Shape) -> Shape:
        """Set offsets and edge mode by the padding policy; return the shape of the destination.

        ``shapes`` are the shapes of the sources. A custom policy receives images of zeros.
        """
        if not shapes:
            raise TypeError("infer_padding has no arguments; pass the shape (N, H, W, C) of each source")
        return self._infer_padding(of_zeros(shapes))[0]

    def _state_for(self, shapes: Sequence[Shape], shape: Shape) -> Any:
        """Return the state of an encode with the present properties, of sources of these shapes to one of ``shape``."""
        sources = of_zeros(shapes)
        return self.state_class(self._record(sources, shape, self._indices(sources, shape)[1]))

    def destination_image_descriptor_for_source_images(
        self, source_images: Sequence[ImageLike], source_states: Sequence[MPSState] | MPSState | None = None
    ) -> MPSImageDescriptor:
        """Configure the kernel as an encode without a destination, and return the descriptor of that destination.

        An encode into a destination with this descriptor then gives the result of an encode without destination.

        Parameters
        ----------
        source_images : sequence of images
            The source images of the encode, in its order: one for most kernels; the source gradient and the source
            image for a gradient kernel.
        source_states : sequence of MPSState, optional
            The state of the encode, once or for each image of the batch; empty or ``None`` for none. A gradient kernel
            is configured by its state, and without one by ``padding``.

        Returns
        -------
        MPSImageDescriptor
            Format, size, channels and number of images of the destination.

        Raises
        ------
        ValueError, TypeError
            If an argument is not legal. No property changes.

        Notes
        -----
        ``destinationImageDescriptorForSourceImages:sourceStates:`` in ``MPSCNNKernel.h`` [doc].

        Examples
        --------
        >>> import numpy as np
        >>> from mpsref import mps
        >>> x = np.ones((1, 4, 6, 2), np.float32)
        >>> y, state = mps.MPSCNNPoolingMax(2, 2, 2, 2, offset=(1, 1, 0)).encode(
        ...     x, destination_size=(2, 3), return_state=True
        ... )
        >>> gradient, g = mps.MPSCNNPoolingMaxGradient(2, 2, 2, 2), np.ones_like(y)
        >>> made = gradient.destination_image_descriptor_for_source_images([g, x], [state])
        >>> made.shape, gradient.secondary_offset
        ((1, 4, 6, 2), MPSOffset(x=1, y=1, z=0))
        >>> dx = np.zeros(made.shape, made.dtype)
        >>> gradient.encode(g, x, state, dx) is dx
        True
        """
        legal = (
            f"a list of {self._number_of_sources}, one entry for each source of {type(self).__name__}: put an array "
            "(N, H, W, C) into a list"
        )
        if len(instance_of("source_images", source_images, (list, tuple), legal)) != self._number_of_sources:
            raise ValueError(f"source_images is a list of {len(source_images)}; it must be {legal}")
        sources = [image_arguments.source(f"source_images[{k}]", image) for k, image in enumerate(source_images)]
        state = state_of_batch("source_states", source_states, sources[0].array.shape[0])
        with Encoding(self, None) as own:
            (n, height, width, channels), dtype = own._infer_destination(sources, state)
            return MPSImageDescriptor(types.channel_format("dtype", dtype.name), width, height, channels, n)

    @property
    def _number_of_sources(self) -> int:
        return len(self.prefixes)

    @property
    def is_result_state_reused_across_batch(self) -> bool:
        """Whether all images of a batch must share one state; by default ``False`` [doc].

        Each kernel can also write one state object for a whole batch [design instance-state].
        """
        return False

    def _temporary(self, command_buffer: MPSCommandBuffer, state: Any) -> Any:
        """Return a state, or a list of them, as temporary; ``OrderError`` if the command buffer was committed."""
        for one in state if isinstance(state, list) else [state]:
            one._as_temporary(command_buffer)
        return state

    def _batch_of(self, state: Any) -> Any:
        """Return a list with a state for each image, or the state itself if all images share one."""
        if self.is_result_state_reused_across_batch:
            return state
        return [type(state)(state.record.of_image(k)) for k in range(state.record.source_shapes[0][0])]

    def _result_state(
        self,
        sources: Sequence[ImageArgument],
        source_states: Sequence[MPSState] | MPSState | None,
        destination_image: ImageLike | None,
    ) -> Any:
        """Return the state that an encode would return; no property changes."""
        self._check_no_states(state_of_batch("source_states", source_states, sources[0].array.shape[0]))
        own = self._to_configure()
        if destination_image is None:
            shape, _ = own._infer_padding(sources)
        else:
            shape = image_arguments.destination(self.destination_name, destination_image, sources).array.shape
        return self.state_class(own._record(sources, shape, own._indices(sources, shape)[1]))

    def _check_no_states(self, state: MPSState | None) -> None:
        if state is not None:
            raise ValueError(
                f"source_states has a state of type {type(state).__name__}; {type(self).__name__} reads none: pass None"
            )

    def _infer_destination(self, sources: Sequence[ImageArgument], state: Any) -> tuple[Shape, DType]:
        """Configure the kernel as an encode without destination does; return shape and dtype of the destination."""
        self._check_no_states(state)
        return self._infer_padding(sources)

    def _described(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[Shape, DType]:
        """Return shape and dtype of the destination; a custom policy may change both, and the kernel."""
        dtype = sources[0].array.dtype.newbyteorder("=")
        if isinstance(self.padding, MPSNNDefaultPadding):
            return shape, dtype
        n, height, width, c = shape
        suggested = MPSImageDescriptor(types.channel_format("dtype", dtype.name), width, height, c, n)
        images = [image_arguments.as_image(source) for source in sources]
        chosen = self.padding.destination_image_descriptor_for_source_images(images, (), self, suggested)
        if not isinstance(chosen, MPSImageDescriptor):
            raise TypeError(
                f"{type(self.padding).__name__}.destination_image_descriptor_for_source_images returned "
                f"{shown(chosen)}; it must return an MPSImageDescriptor"
            )
        return chosen.shape, chosen.dtype

    def _checked_states(
        self,
        value: RecordedState | Sequence[RecordedState],
        images: int,
        command_buffer: MPSCommandBuffer | None,
    ) -> RecordedState | list[RecordedState]:
        """Return the state of a batch, or a list with one for each image, unless all images must share a state."""
        if self.is_result_state_reused_across_batch or not differ(value):
            state: RecordedState = one_state("destination_state", value, images)
            self._check_destination_state(state)
            check_usable("destination_state", state, command_buffer)
            return state
        if not len(value) == len({id(state) for state in value}) == images:
            raise ValueError(
                f"destination_state is a list of {len(value)} with {len({id(state) for state in value})} different "
                f"objects; there must be a different state for each of {images} image(s), or one for all"
            )
        for k, state in enumerate(value):
            self._check_destination_state(state)
            check_usable(f"destination_state[{k}]", state, command_buffer)
        return list(value)

    def _check_each_image(self, sources: Sequence[ImageArgument], shape: Shape, images: int) -> None:
        """Raise ``ValueError`` unless image k of the destination is that of image k of each source."""
        _, region = self._indices(sources, shape)
        clip = region.clip_rect
        found = {source.name: source.array.shape[0] for source in sources} | {self.destination_name: shape[0]}
        if set(found.values()) != {images} or (clip.origin.z, clip.size.depth) != (0, images):
            raise ValueError(
                f"destination_state is a list of {images} states, one for each image, but the numbers of images are "
                f"{found}, and images {clip.origin.z} to {clip.origin.z + clip.size.depth - 1} are written; pass "
                "one state, or write an image for each source image"
            )

    def _check_destination_state(self, state: RecordedState) -> None:
        """Raise ``TypeError`` for a state of another class, ``ValueError`` for one that names another kernel."""
        if type(state) is not self.state_class:
            raise TypeError(
                f"destination_state is of type {type(state).__name__}; {type(self).__name__} writes "
                f"{self.state_class.__name__}"
            )
        if state.record.extras.get("kernel", self._kernel) is not self._kernel:
            raise ValueError("destination_state was made by another kernel; pass one that this kernel made, or None")

    def _encode(
        self,
        sources: Sequence[ImageArgument],
        destination_image: ImageLike | None,
        destination_size: PairLike | None,
        return_state: bool,
        destination_state: DestinationState,
        command_buffer: MPSCommandBuffer | None,
        *operands: Any,
    ) -> Encoded:
        """Encode a forward kernel; see :meth:`MPSCNNKernel.encode`."""
        states = None
        if destination_state is not None:
            states = self._checked_states(destination_state, sources[0].array.shape[0], command_buffer)
        infers = destination_image is None and destination_size is None
        key = tuple([(source.array.shape, source.array.dtype) for source in sources])
        repeats = infers and self.repeats and not isinstance(states, list)
        if repeats and (prepared := self._prepared.valid(key, vars(self).values())) is not None:
            check_encodable(command_buffer)
            result = image_arguments.like(sources[0].value, prepared.run(sources, self.backend))
            expire(sources)
            return self._with_state(result, prepared.record, return_state, states)
        with (encoding := Encoding(self, command_buffer)) as own:
            given, dtype = None, sources[0].array.dtype
            if infers:
                shape, dtype = own._infer_padding(sources)
            elif destination_image is None:
                shape = own._destination_shape(sources, pair("destination_size", destination_size, low=1))
            elif destination_size is None:
                given = image_arguments.destination(own.destination_name, destination_image, sources, command_buffer)
                shape = given.array.shape
            else:
                raise ValueError("destination_image and destination_size are both given; pass one of them, or neither")
            if isinstance(states, list):
                own._check_each_image(sources, shape, len(states))
            array, region = own._run(sources, Destination(given, shape, dtype), *operands)
            result = image_arguments.like(sources[0].value, array) if given is None else image_arguments.written(given)
            expire(sources)
            repeats = infers and own.repeats and isinstance(own.padding, MPSNNDefaultPadding)
            if not (return_state or repeats) and states is None:
                return result
            record = own._record(sources, shape, region, *operands)
            if repeats:
                own._prepare(key, encoding.before, sources, shape, record)
            return own._with_state(result, record, return_state, states)

    def _with_state(
        self,
        result: ImageResult,
        record: ForwardRecord,
        return_state: bool,
        states: RecordedState | list[RecordedState] | None,
    ) -> Encoded:
        """Write the destination states; return the result, with the states if ``return_state``."""
        if isinstance(states, list):
            for k, state in enumerate(states):
                state._refresh(record.of_image(k))
        elif states is not None:
            states._refresh(record)
        elif return_state:
            states = self.state_class(record)
        return (result, states) if return_state else result

    def _record(self, sources: Sequence[ImageArgument], shape: Shape, region: Region, *operands: Any) -> ForwardRecord:
        read = self._channels(sources)
        properties = tuple(
            self._source_properties(k)._replace(source_feature_channel_max_count=count(channels))
            for k, channels in enumerate(read)
        )
        return ForwardRecord(
            type(self),
            properties,
            tuple(source.array.shape for source in sources),
            shape,
            region.clip_rect,
            self.destination_feature_channel_offset,
            count(region.channels),
            self._extras(*operands),
        )


class PlannedKernel(ImageKernel):
    """A kernel whose results are those of one problem; not a class of MPS."""

    repeats = True

    @abc.abstractmethod
    def _plan(self, shapes: Sequence[Shape], size: Pair) -> Plan | None:
        """Return how to compute a region of ``size`` from inputs of these ``shapes``; ``None``: by :meth:`_apart`."""

    def _apart(self, inputs: Sequence[Array], destination: Array, region: Region) -> None:
        """Compute a region that has no plan, as :meth:`_compute`."""
        raise NotImplementedError

    def _compute(self, inputs: Sequence[Array], destination: Array, region: Region, *operands: Any) -> None:
        plan = self._plan([image.shape for image in inputs], region.size)
        if plan is None:
            self._apart(inputs, destination, region)
        else:
            plan.run(inputs, destination[region], self.backend)


def _state_forms(state_for: Callable[_P, Any]) -> tuple[Callable[_P, Any], Callable[..., Any], Callable[..., Any]]:
    """Return the forms of a method that returns the state of an encode: for a batch, and temporary ones of both."""
    one, several = state_for.__name__, state_for.__name__.replace("state", "state_batch")

    def batch(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._batch_of(getattr(self, one)(*arguments, **keywords))

    def temporary(self: Any, command_buffer: MPSCommandBuffer, *arguments: Any, **keywords: Any) -> Any:
        return self._temporary(command_buffer, getattr(self, one)(*arguments, **keywords))

    def temporary_batch(self: Any, command_buffer: MPSCommandBuffer, *arguments: Any, **keywords: Any) -> Any:
        return self._temporary(command_buffer, getattr(self, several)(*arguments, **keywords))

    forms: Any = batch, temporary, temporary_batch
    named = (
        (several, f"Return a list with a new state for each image of a batch.\n\n{ONE_FOR_ALL} :meth:`{one}`."),
        (f"temporary_{one.partition('_for_')[0]}_for_command_buffer", f"Return :meth:`{one}` as {TEMPORARY}"),
        (f"temporary_{several.partition('_for_')[0]}_for_command_buffer", f"Return :meth:`{several}` as {TEMPORARY}"),
    )
    signature = inspect.signature(state_for)
    own, *others = signature.parameters.values()
    for form, (name, text) in zip(forms, named, strict=True):
        form.__name__, form.__doc__ = name, text
        leading = [buffer for key, buffer in inspect.signature(form).parameters.items() if key == "command_buffer"]
        form.__signature__ = signature.replace(parameters=[own, *leading, *others])
        form.__qualname__ = state_for.__qualname__.replace(one, name)
    return forms  # type: ignore[no-any-return]


ONE_FOR_ALL = "If :attr:`is_result_state_reused_across_batch`, return the one state of"
TEMPORARY = """temporary: ``read_count`` is 1.

Raises ``OrderError`` if the command buffer was committed."""


@constructed(init=False, kw_only=True)
class MPSCNNKernel(ImageKernel):
    """A kernel with one source image. Source: ``MPSCNNKernel`` in ``MPSCNNKernel.h`` [doc]."""

    offset: Property[MPSOffset] = Property(
        types.offset, MPSOffset(0, 0, 0), "The source pixel of the first pixel of the clip rectangle, MPSOffset."
    )
    edge_mode: Property[MPSImageEdgeMode] = Property(
        types.edge_mode, MPSImageEdgeMode.Zero, "The values outside the source: ``Zero`` or ``Clamp``."
    )
    source_feature_channel_offset: Property[int] = Property(
        multiple_of_four, 0, "The first channel that is read; a multiple of 4."
    )
    source_feature_channel_max_count: Property[int | None] = Property(
        types.limit, None, "The largest number of channels that are read; ``None`` or NSUIntegerMax for all."
    )
    kernel_width = Property(at_least(1), 1, "Width of the window.", read_only=True)
    kernel_height = Property(at_least(1), 1, "Height of the window.", read_only=True)
    stride_in_pixels_x = Property(at_least(1), 1, "Distance of two windows in x.", read_only=True)
    stride_in_pixels_y = Property(at_least(1), 1, "Distance of two windows in y.", read_only=True)
    dilation_rate_x = Property(at_least(1), 1, "Distance of two taps in x.", read_only=True)
    dilation_rate_y = Property(at_least(1), 1, "Distance of two taps in y.", read_only=True)

    def encode(
        self,
        source_image: ImageLike,
        destination_image: ImageLike | None = None,
        *,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
        **unknown: Never,
    ) -> Encoded:
        """Run the kernel on an image and return the destination.

        Parameters
        ----------
        source_image : array_like, MPSImage or batch of images
            The source (N, H, W, C); for some normalizations also a list of arrays whose images have one size.
        destination_image : ndarray, MPSImage or batch of images, optional
            The image to write, not for a list; pixels outside ``clip_rect`` are kept. The present ``offset`` is used.
        destination_size : int or tuple of int, optional
            Height and width of a new destination, zero outside ``clip_rect``. The present ``offset`` is used. Without
            ``destination_image`` and ``destination_size``, ``padding`` sets the size and the property ``offset``.
        return_state : bool, default False
            Whether to return also a state for the gradient kernel.
        destination_state : MPSState or sequence of them, optional
            A state to overwrite and return in place of a new one, or a list with a different state for each image, each
            of which then records its image only.

        Returns
        -------
        destination : ndarray, MPSImage, MPSImageBatch or list of ndarray
            Of the kind of ``source_image``; with ``return_state=True`` a tuple (destination, state).

        Notes
        -----
        ``encodeToCommandBuffer:sourceImage:destinationImage:`` and its variants in ``MPSCNNKernel.h`` [doc].

        Examples
        --------
        >>> import numpy as np
        >>> from mpsref import mps
        >>> pool = mps.MPSCNNPoolingMax(2, 2, 2, 2, offset=(1, 1, 0))
        >>> x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
        >>> pool.encode(x, destination_size=(2, 2))[0, :, :, 0].tolist()
        [[5.0, 7.0], [13.0, 15.0]]
        """
        if unknown:
            raise unknown_keyword(type(self).encode, unknown)
        source = image_arguments.source("source_image", source_image, self.accepts_lists, command_buffer)
        return self._encode(
            (source,), destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = batch_form(encode)

    def result_state_for_source_image(
        self,
        source_image: ImageLike,
        source_states: Sequence[MPSState] | MPSState | None = None,
        destination_image: ImageLike | None = None,
    ) -> Any:
        """Return the state that an encode of ``source_image`` into ``destination_image`` would return.

        Parameters
        ----------
        source_image : array_like (N, H, W, C), MPSImage or batch of images
            The source of the encode.
        source_states : sequence of MPSState, optional
            The states that the encode reads; most kernels read none.
        destination_image : ndarray, MPSImage or batch of images, optional
            The destination of the encode; without one, ``padding`` decides as in an encode.

        Returns
        -------
        MPSState
            A state that records the properties of the kernel, for ``destination_state`` of an encode, which draws the
            mask of a dropout. No property changes.

        Raises
        ------
        ValueError, TypeError
            As the encode.
        Notes
        -----
        ``resultStateForSourceImage:sourceStates:destinationImage:`` in ``MPSCNNKernel.h`` [doc].
        """
        source = image_arguments.source("source_image", source_image)
        return self._result_state((source,), source_states, destination_image)

    (
        result_state_batch_for_source_image,
        temporary_result_state_for_command_buffer,
        temporary_result_state_batch_for_command_buffer,
    ) = _state_forms(result_state_for_source_image)


@constructed(init=False, kw_only=True)
class MPSCNNBinaryKernel(ImageKernel):
    """A kernel with a primary and a secondary source image.

    Each source has the source properties of :class:`mpsref.mps.MPSCNNKernel`, with the prefix ``primary_`` or
    ``secondary_``. Source: ``MPSCNNBinaryKernel`` in ``MPSCNNKernel.h`` [doc].
    """

    prefixes = ("primary_", "secondary_")
    state_class: ClassVar[type[RecordedState]] = MPSNNBinaryGradientState

    primary_offset: Property[MPSOffset] = MPSCNNKernel.offset.replace()
    primary_edge_mode: Property[MPSImageEdgeMode] = MPSCNNKernel.edge_mode.replace()
    primary_source_feature_channel_offset: Property[int] = MPSCNNKernel.source_feature_channel_offset.replace()
    primary_source_feature_channel_max_count: Property[int | None] = (
        MPSCNNKernel.source_feature_channel_max_count.replace()
    )
    primary_kernel_width = MPSCNNKernel.kernel_width.replace()
    primary_kernel_height = MPSCNNKernel.kernel_height.replace()
    primary_stride_in_pixels_x: Property[int] = MPSCNNKernel.stride_in_pixels_x.replace(read_only=False)
    primary_stride_in_pixels_y: Property[int] = MPSCNNKernel.stride_in_pixels_y.replace(read_only=False)
    primary_dilation_rate_x = MPSCNNKernel.dilation_rate_x.replace()
    primary_dilation_rate_y = MPSCNNKernel.dilation_rate_y.replace()

    secondary_offset: Property[MPSOffset] = MPSCNNKernel.offset.replace()
    secondary_edge_mode: Property[MPSImageEdgeMode] = MPSCNNKernel.edge_mode.replace()
    secondary_source_feature_channel_offset: Property[int] = MPSCNNKernel.source_feature_channel_offset.replace()
    secondary_source_feature_channel_max_count: Property[int | None] = (
        MPSCNNKernel.source_feature_channel_max_count.replace()
    )
    secondary_kernel_width = MPSCNNKernel.kernel_width.replace()
    secondary_kernel_height = MPSCNNKernel.kernel_height.replace()
    secondary_stride_in_pixels_x: Property[int] = MPSCNNKernel.stride_in_pixels_x.replace(read_only=False)
    secondary_stride_in_pixels_y: Property[int] = MPSCNNKernel.stride_in_pixels_y.replace(read_only=False)
    secondary_dilation_rate_x = MPSCNNKernel.dilation_rate_x.replace()
    secondary_dilation_rate_y = MPSCNNKernel.dilation_rate_y.replace()

    def encode(
        self,
        primary_image: ImageLike,
        secondary_image: ImageLike,
        destination_image: ImageLike | None = None,
        *,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
        **unknown: Never,
    ) -> Encoded:
        """Run the kernel on two images and return the destination.

        Parameters
        ----------
        primary_image, secondary_image : array_like, MPSImage or batch of images
            The sources (N, H, W, C).
        destination_image, destination_size, return_state, destination_state, command_buffer : optional
            As in :meth:`mpsref.mps.MPSCNNKernel.encode`; ``padding`` sets the offset of each source.

        Returns
        -------
        destination : ndarray, MPSImage or MPSImageBatch
            Of the kind of ``primary_image``; with ``return_state=True`` a tuple (destination, state).

        Raises
        ------
        ShapeError
            If ``padding`` gives the sources different output sizes.

        Notes
        -----
        ``encodeToCommandBuffer:primaryImage:secondaryImage:destinationImage:`` and its variants in
        ``MPSCNNKernel.h`` [doc].
        """
        if unknown:
            raise unknown_keyword(type(self).encode, unknown)
        sources = (
            image_arguments.source("primary_image", primary_image, command_buffer=command_buffer),
            image_arguments.source("secondary_image", secondary_image, command_buffer=command_buffer),
        )
        return self._encode(
            sources, destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = batch_form(encode)

    def result_state_for_primary_image(
        self,
        primary_image: ImageLike,
        secondary_image: ImageLike,
        source_states: Sequence[MPSState] | MPSState | None = None,
        destination_image: ImageLike | None = None,
    ) -> Any:
        """Return the state that an encode would return.

        As :meth:`mpsref.mps.MPSCNNKernel.result_state_for_source_image`.
        """
        sources = (
            image_arguments.source("primary_image", primary_image),
            image_arguments.source("secondary_image", secondary_image),
        )
        return self._result_state(sources, source_states, destination_image)

    (
        result_state_batch_for_primary_image,
        temporary_result_state_for_command_buffer,
        temporary_result_state_batch_for_command_buffer,
    ) = _state_forms(result_state_for_primary_image)


def _at_index(
    values: PerSource[_T],
) -> tuple[Callable[[MPSCNNMultiaryKernel, int], _T], Callable[[MPSCNNMultiaryKernel, object, int], None]]:
    """Return the methods that read and set the value of a property for one source."""

    def value_at_index(self: MPSCNNMultiaryKernel, index: int) -> _T:
        """Return the value for source ``index``; ``ValueError`` if there is no such source."""
        value: _T = getattr(self, values.name)[self._index(index)]
        return value

    def set_value(self: MPSCNNMultiaryKernel, value: object, at_index: int) -> None:
        """Set the value for source ``at_index``; ``ValueError`` if there is no such source."""
        changed = list(getattr(self, values.name))
        changed[self._index(at_index)] = value
        setattr(self, values.name, changed)

    return value_at_index, set_value


@constructed()
class MPSCNNMultiaryKernel(ImageKernel):
    """A kernel with ``source_count`` source images, each with its own set of properties.

    Methods such as ``offset_at_index(index)`` and ``set_offset(value, at_index)`` read and set the value of one source.
    The properties themselves are tuples with one value for each source.

    Notes
    -----
    ``MPSCNNMultiaryKernel`` in ``MPSCNNKernel.h`` [doc].
    """

    state_class = MPSNNMultiaryGradientState

    source_count: Argument[int] = Argument(at_least(1), "The number of source images, >= 1.")
    offset = PerSource(MPSCNNKernel.offset)
    edge_mode = PerSource(MPSCNNKernel.edge_mode)
    kernel_width = PerSource(MPSCNNKernel.kernel_width)
    kernel_height = PerSource(MPSCNNKernel.kernel_height)
    stride_in_pixels_x = PerSource(MPSCNNKernel.stride_in_pixels_x)
    stride_in_pixels_y = PerSource(MPSCNNKernel.stride_in_pixels_y)
    dilation_rate_x = PerSource(MPSCNNKernel.dilation_rate_x)
    dilation_rate_y = PerSource(MPSCNNKernel.dilation_rate_y)
    source_feature_channel_offset = PerSource(MPSCNNKernel.source_feature_channel_offset)
    source_feature_channel_max_count = PerSource(MPSCNNKernel.source_feature_channel_max_count)

    offset_at_index, set_offset = _at_index(offset)
    edge_mode_at_index, set_edge_mode = _at_index(edge_mode)
    kernel_width_at_index, set_kernel_width = _at_index(kernel_width)
    kernel_height_at_index, set_kernel_height = _at_index(kernel_height)
    stride_in_pixels_x_at_index, set_stride_in_pixels_x = _at_index(stride_in_pixels_x)
    stride_in_pixels_y_at_index, set_stride_in_pixels_y = _at_index(stride_in_pixels_y)
    dilation_rate_x_at_index, set_dilation_rate_x = _at_index(dilation_rate_x)
    dilation_rate_y_at_index, set_dilation_rate_y = _at_index(dilation_rate_y)
    source_feature_channel_offset_at_index, set_source_feature_channel_offset = _at_index(source_feature_channel_offset)
    source_feature_channel_max_count_at_index, set_source_feature_channel_max_count = _at_index(
        source_feature_channel_max_count
    )

    def encode(
        self,
        source_images: Sequence[ImageLike],
        destination_image: ImageLike | None = None,
        *,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
        **unknown: Never,
    ) -> Encoded:
        """Run the kernel on ``source_count`` images and return the destination.

        Parameters
        ----------
        source_images : sequence of array_like, MPSImage or batch of images
            The sources, each (N, H, W, C).
        destination_image, destination_size, return_state, destination_state, command_buffer : optional
            As in :meth:`mpsref.mps.MPSCNNKernel.encode`; ``padding`` sets the offset of each source.

        Returns
        -------
        destination : ndarray, MPSImage or MPSImageBatch
            Of the kind of the first source; with ``return_state=True`` a tuple (destination, state).

        Raises
        ------
        ValueError, TypeError, OrderError
            As in :meth:`mpsref.mps.MPSCNNKernel.encode`, and ``ValueError`` for another number of sources.

        Notes
        -----
        ``encodeToCommandBuffer:sourceImages:destinationImage:`` and its variants in ``MPSCNNKernel.h`` [doc].
        """
        if unknown:
            raise unknown_keyword(type(self).encode, unknown)
        if len(source_images) != self.source_count:
            raise ValueError(
                f"source_images has {len(source_images)} images; the kernel has source_count={self.source_count}"
            )
        sources = [
            image_arguments.source(f"source_images[{k}]", image, command_buffer=command_buffer)
            for k, image in enumerate(source_images)
        ]
        return self._encode(
            sources, destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = batch_form(encode)

    def result_state_for_source_images(
        self,
        source_images: Sequence[ImageLike],
        source_states: Sequence[MPSState] | MPSState | None = None,
        destination_image: ImageLike | None = None,
    ) -> Any:
        """Return the state that an encode would return.

        As :meth:`mpsref.mps.MPSCNNKernel.result_state_for_source_image`.
        """
        sources = [image_arguments.source(f"source_images[{k}]", image) for k, image in enumerate(source_images)]
        return self._result_state(sources, source_states, destination_image)

    (
        result_state_batch_for_source_images,
        temporary_result_state_for_command_buffer,
        temporary_result_state_batch_for_command_buffer,
    ) = _state_forms(result_state_for_source_images)

    @property
    def _number_of_sources(self) -> int:
        return self.source_count

    def _index(self, index: int) -> int:
        number = integer("index", index, low=0)
        if number >= self.source_count:
            raise ValueError(f"index is {number}; it must be < source_count={self.source_count}")
        return number

    def _property_name(self, k: int, name: str) -> str:
        return f"{name}[{k}]"

    def _source_properties(self, k: int) -> SourceProperties:
        return SourceProperties._make(getattr(self, name)[k] for name in SourceProperties._fields)

    def _assign_to_source(self, k: int, **values: object) -> None:
        for name, value in values.items():
            known = getattr(self, name)
            self._assign(**{name: (*known[:k], value, *known[k + 1 :])})
