"""Compilation of a graph: the nodes to run, their order, their backends and their shapes.

Nodes are in depth-first order from the results, so that a forward node precedes the gradient nodes that read its state.
Nodes that do not contribute to a result, an export or an update are pruned.

A step has a copy of its node, which makes a kernel once (``MPSNNFilterNode._compiled``). For each set of shapes of the
inputs, :func:`infer_shapes` asks the copies in order for the :class:`~mpsref.mps.core.call.Call` of their kernels
(``_bind``), which has the shape of the result. A run (:mod:`mpsref.mps.graph.execute`) runs these calls.

Source: ``MPSNNGraph.h`` [doc]; the order where Apple leaves it open [choice graph-order].
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard, TypeVar

import numpy as np

from mpsref import registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.arguments.device import DeviceArrays, is_on_device, on_host
from mpsref.arguments.text import shown
from mpsref.errors import (
    CycleError,
    DuplicateHandleError,
    GraphError,
    MissingSourceError,
    ShapeError,
    SharedDataSourceWarning,
    UnknownSourceError,
    UnsupportedError,
)
from mpsref.mps.core.call import Call
from mpsref.mps.core.image import MPSImage, is_batch
from mpsref.mps.core.image_arguments import ImageLike
from mpsref.mps.core.types import MPSImageFeatureChannelFormat
from mpsref.mps.graph.nodes import (
    Format,
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
    MPSNNTrainingStyle,
    Step,
)
from mpsref.mps.graph.trainable import NodeParameters, TrainableGradientNode, WeightedNode
from mpsref.registry import Backend

S = TypeVar("S", MPSNNImageNode, MPSNNStateNode)
V = TypeVar("V")

Sources: TypeAlias = Sequence[V] | Mapping[Any, V]
"""Values of the inputs of a graph: in their order, or by node, handle or label."""


# --- order and labels -------------------------------------------------------------------------------------------------


def post_order(
    roots: Sequence[MPSNNFilterNode], producers: Callable[[MPSNNFilterNode], Sequence[MPSNNFilterNode | None]]
) -> list[MPSNNFilterNode]:
    """Return all nodes that ``roots`` depend on, each after its dependencies; ``CycleError`` for a cycle."""
    order: list[MPSNNFilterNode] = []
    done: set[MPSNNFilterNode] = set()
    open_: dict[MPSNNFilterNode, Iterator[MPSNNFilterNode | None]] = {}
    for root in roots:
        if root in done:
            continue
        open_[root] = iter(producers(root))
        while open_:
            node, waiting = next(reversed(open_.items()))
            child = next((source for source in waiting if source is not None and source not in done), None)
            if child is None:
                open_.popitem()
                done.add(node)
                order.append(node)
            elif child in open_:
                labels = [ancestor.name for ancestor in open_]
                cycle = [*labels[list(open_).index(child) :], child.name]
                raise CycleError(f"the graph has a cycle: {' <- '.join(cycle)}; a filter cannot read its own result")
            else:
                open_[child] = iter(producers(child))
    return order


def label(order: Sequence[MPSNNFilterNode]) -> None:
    """Set a unique label on each node without a label."""
    used = {node.label for node in order}
    for node in order:
        if node.label is None:
            node.label = node.derived_label
        number = 1
        while node.label is None:
            if f"{node.kind}{number}" not in used:
                node.label = f"{node.kind}{number}"
                used.add(node.label)
            number += 1


def _distinct(nodes: Sequence[MPSNNFilterNode]) -> dict[MPSNNFilterNode, str]:
    """Return unique labels: repeated ones end in ``#2``, ``#3``, ..."""
    met: Counter[str] = Counter()
    labels = {}
    for node in nodes:
        met[node.name] += 1
        labels[node] = node.name if met[node.name] == 1 else f"{node.name}#{met[node.name]}"
    return labels


# --- the program ------------------------------------------------------------------------------------------------------


class Program:
    """The steps that compute some results, in order; immutable."""

    def __init__(self, result_images: Sequence[MPSNNImageNode], results_are_needed: Sequence[bool]) -> None:
        """Collect, label and prune nodes; raises ``GraphError`` if there is nothing to compute."""
        self.result_images = tuple(result_images)
        self.results_are_needed = tuple(results_are_needed)
        self.needed_images = frozenset(itertools.compress(result_images, results_are_needed))
        roots = []
        for k, image in enumerate(result_images):
            if image.producer is None:
                raise GraphError(
                    f"result_images[{k}] ({image.name!r}) is made by no filter, so there is nothing to compute; pass "
                    "the result_image of a node"
                )
            roots.append(image.producer)
        collected = post_order(roots, _dependencies)
        label(collected)
        kept = self._kept(collected)
        if not kept:
            raise GraphError(
                "nothing is left to compute: no result is needed, nothing is exported and no gradient node trains; "
                "set results_are_needed, export_from_graph or training_style"
            )
        nodes = [node for node in collected if node in kept]
        self.labels = _distinct(nodes)
        self.steps = tuple(self._steps(nodes))
        self.forward_steps = tuple(step for step in self.steps if step.forward is step.node)
        """The steps with a state of their own."""
        self.prepared_steps = tuple(
            step for step in self.steps if type(step.compiled)._step_inputs is not MPSNNFilterNode._step_inputs
        )
        updates = (step for step in self.steps if step.updates is not MPSNNTrainingStyle.NONE)
        self.updates = tuple(sorted(updates, key=lambda step: step.updates is MPSNNTrainingStyle.CPU))
        """The last gradient steps of trainable nodes, in the order in which their data sources are called."""
        images = dict.fromkeys(image for node in nodes for image in node.source_images)
        self.source_images = tuple(image for image in images if image.producer is None)
        """The inputs, in order of first use."""
        states = dict.fromkeys(state for node in nodes for state in node.source_states)
        self.source_states = tuple(state for state in states if state.producer is None)
        """The input states, such as labels, in order of first use."""
        results = (node.result_image for node in nodes)
        self.exported_images = tuple(image for image in results if image.export_from_graph)
        """The images with ``export_from_graph``, in program order."""
        self.intermediate_images = tuple(dict.fromkeys([*self.exported_images, *self.result_images[1:]]))
        """The exported images, then every result but the first that is not among them."""
        made = (state for node in nodes for state in node.result_states or ())
        self.result_states = tuple(state for state in made if state.export_from_graph)
        """The states with ``export_from_graph``, in program order."""
        for number, image in enumerate((i for i in self.source_images if i.label is None), start=1):
            image._number = number

    def _kept(self, collected: Sequence[MPSNNFilterNode]) -> set[MPSNNFilterNode]:
        required = [image.producer for image in self.needed_images if image.producer]
        for node in collected:
            exports = node.result_image.export_from_graph or any(s.export_from_graph for s in node.result_states or ())
            if exports or trains(node):
                required.append(node)
        return set(post_order(required, _dependencies))

    def _steps(self, nodes: Sequence[MPSNNFilterNode]) -> Iterator[Step]:
        kept = self.needed_images | {node.result_image for node in nodes if node.result_image.export_from_graph}
        pixels = {node: tuple(i for i in node.source_images if reads_pixels(node, i)) for node in nodes}
        last_reader = {image: node for node in nodes for image in pixels[node]}
        last_gradient = {node.forward: node for node in nodes if isinstance(node, MPSNNGradientFilterNode)}
        styles = {node.forward: node.training_style for node in nodes if trains(node)}
        read = {image for node in nodes for image in node.source_images}
        states = {state for node in nodes for state in node.source_states}
        for number, node in enumerate(nodes):
            result = node.result_image
            released = [i for i in dict.fromkeys(node.source_images) if last_reader.get(i) is node and i not in kept]
            if result in read and result not in kept and result not in last_reader:
                released.append(result)  # only its size is read
            updates = MPSNNTrainingStyle.NONE
            gradients = node in last_gradient
            if isinstance(node, MPSNNGradientFilterNode):
                exported = any(state.export_from_graph for state in node.forward.result_states or ())
                gradients = trains(node) or exported
                if last_gradient[node.forward] is node:
                    updates = styles.get(node.forward, updates)
            yield Step(
                number,
                node,
                node.forward if isinstance(node, MPSNNGradientFilterNode) else node,
                copy.copy(node),
                result_is_needed=result in read or result in kept,
                result_is_kept=result in kept,
                state_is_read=any(state in states for state in node.result_states or ()),
                trains=gradients,
                updates=updates,
                pixels=pixels[node],
                released=tuple(released),
            )

    def read_count(self, symbol: MPSNNImageNode | MPSNNStateNode) -> int:
        """Return the number of reads of an image or a state by steps."""
        arguments = ([*step.node.source_images, *step.node.source_states] for step in self.steps)
        return sum(each.count(symbol) for each in arguments)


def _dependencies(node: MPSNNFilterNode) -> list[MPSNNFilterNode | None]:
    return [symbol.producer for symbol in (*node.source_images, *node.source_states)]


def trains(node: MPSNNFilterNode) -> TypeGuard[TrainableGradientNode]:
    """Return whether ``node`` is a gradient node that updates parameters."""
    return isinstance(node, TrainableGradientNode) and node.training_style is not MPSNNTrainingStyle.NONE


def reads_pixels(node: MPSNNFilterNode, image: MPSNNImageNode) -> bool:
    """Return whether a step reads the pixels of ``image``, and not only its size."""
    if not isinstance(node, MPSNNGradientFilterNode) or node.reads_pixels:
        return True
    return image is node.source_gradient


# --- inputs and their shapes ------------------------------------------------------------------------------------------


def match_sources(name: str, symbols: Sequence[S], given: Sources[V] | None) -> dict[S, V]:
    """Return the value of each symbol, from a sequence in their order or a mapping by node, handle or label.

    Raises ``MissingSourceError`` and ``UnknownSourceError`` for missing and extra values, and ``DuplicateHandleError``
    for a key that matches several symbols.
    """
    if given is None:
        given = ()
    if isinstance(given, (list, tuple)) and len(given) == len(symbols):
        return dict(zip(symbols, given, strict=True))
    legal = ", ".join(repr(symbol.name) for symbol in symbols) or "none"
    if isinstance(given, Mapping):
        found = {_match(name, symbols, key, legal): value for key, value in given.items()}
        missing = [symbol.name for symbol in symbols if symbol not in found]
        if missing:
            raise MissingSourceError(f"{name} lacks {', '.join(map(repr, missing))}; the graph reads {legal}")
        if len(found) < len(given):
            raise UnknownSourceError(f"{name} names an input twice, by different keys; the graph reads {legal}")
        return {symbol: found[symbol] for symbol in symbols}
    if not isinstance(given, (list, tuple)):
        raise TypeError(
            f"{name} is of type {type(given).__name__}; it must be a list in the order {legal}, or a mapping from "
            f"nodes, handles or labels: for one input write [{name.removesuffix('s')}]"
        )
    if len(given) < len(symbols):
        missing = [symbol.name for symbol in symbols[len(given) :]]
        raise MissingSourceError(f"{name} has {len(given)} items and lacks {', '.join(map(repr, missing))}")
    raise UnknownSourceError(f"{name} has {len(given)} items; the graph reads {len(symbols)}: {legal}")


def _match(name: str, symbols: Sequence[S], key: object, legal: str) -> S:
    matches: list[S] = [symbol for symbol in symbols if symbol is key]
    if not matches:
        matches = [symbol for symbol in symbols if key == symbol.handle or key == symbol.name]
    if not matches:
        raise UnknownSourceError(f"{name} has the key {shown(key)}, which is no input of the graph; it reads {legal}")
    if len(matches) > 1:
        raise DuplicateHandleError(
            f"{name} has the key {shown(key)}, which {len(matches)} inputs have; use the image nodes themselves as keys"
        )
    return matches[0]


class Shapes(NamedTuple):
    """The shapes of a program for given shapes of its inputs."""

    images: Mapping[MPSNNImageNode, Shape]
    calls: Mapping[MPSNNFilterNode, Call]
    sources: Mapping[MPSNNFilterNode, tuple[Shape, ...]]
    """The shapes of the source images of each node."""
    recorded: dict[Any, Any]
    """Recorded runs, see ``DeviceArrays.repeated``."""


def source_shapes(given: Mapping[MPSNNImageNode, Sequence[int]]) -> dict[MPSNNImageNode, Shape]:
    """Check the shapes of the inputs: four axes, and equal numbers of images."""
    shapes: dict[MPSNNImageNode, Shape] = {
        image: arrays.as_shape(f"shape of {image.name!r}", tuple(shape)) for image, shape in given.items()
    }
    if len({shape[0] for shape in shapes.values()}) > 1:
        listed = ", ".join(f"{image.name!r} {shape}" for image, shape in shapes.items())
        raise ShapeError(f"the inputs have different numbers of images: {listed}; N must be the same for all")
    return shapes


def infer_shapes(
    program: Program, given: Mapping[MPSNNImageNode, Shape], parameters: Mapping[MPSNNFilterNode, NodeParameters]
) -> Shapes:
    """Infer the shapes of all steps; the message of a ``ShapeError`` contains the step and its inputs."""
    known = dict(given)
    calls: dict[MPSNNFilterNode, Call] = {}
    source: dict[MPSNNFilterNode, tuple[Shape, ...]] = {}
    for step in program.steps:
        node = step.node
        shapes = source[node] = tuple(known[image] for image in node.source_images)
        states = [calls[state.producer] for state in node.source_states if state.producer is not None]
        try:
            calls[node] = step.compiled._bind(shapes, parameters.get(node), states)
        except ValueError as error:
            inputs = ", ".join(f"{image.name} {known[image]}" for image in node.source_images)
            where = f"step {step.number}, {type(node).__name__} {program.labels[node]!r} on {inputs}"
            raise ShapeError(f"{where}: {error}") from error
        known[node.result_image] = calls[node].shape
    return Shapes(known, calls, source, {})


Place: TypeAlias = Callable[[Any], Any]


def _unchanged(array: Any) -> Any:
    return array


def _goes_up(array: Any) -> bool:
    """Return whether an array is copied to the device: float64 is not a dtype of devices."""
    return isinstance(array, np.ndarray) and array.dtype.itemsize <= 4


def _single(given: Iterable[ImageLike]) -> Iterator[Any]:
    for image in given:
        yield from image if is_batch(image) else (image,)


class Number(int):
    """The number of an array in a list, in the place of the array."""


def placed(found: Any, place: Callable[[Any], Any]) -> Any:
    """Return an array, or the arrays in a tuple or mapping, each as ``place`` returns it; other values unchanged."""
    if isinstance(found, (np.ndarray, Number)) or is_on_device(found):
        return place(found)
    if isinstance(found, Mapping):
        return {name: placed(value, place) for name, value in found.items()}
    if isinstance(found, tuple):
        values = [placed(value, place) for value in found]
        return type(found)(*values) if hasattr(found, "_fields") else tuple(values)
    return found


# --- the compiled program ---------------------------------------------------------------------------------------------


class CompiledProgram:
    """A program with the backend of each step, the storage format of each image, and the current parameters."""

    def __init__(self, program: Program, backend: Backend, format: Format) -> None:
        """Choose backends and read the data sources."""
        self.program, self.backend = program, backend
        self._uploaded: dict[int, tuple[Array, Any]] = {}
        """The parameters on the host that are in force, by identity, and their copies on the device."""
        self.memory: DeviceArrays | None = None
        """The memory of the device on which images stay between steps, if all steps run on it."""
        for step in program.steps:
            step.compiled._check_policy()
        self._store(format)
        self.parameters = self._load()
        self.arrays = self._in_force()
        self.lock = threading.RLock()

    def _store(self, format: Format) -> None:
        """Set the storage of images, and the backends that support it."""
        self.format, program = format, self.program
        self._shapes: dict[tuple[Shape, ...], Shapes] = {}
        results = (step.node.result_image for step in program.steps)
        self.dtypes = {image: self._dtype_of(image) for image in (*program.source_images, *results)}
        self.wide = self._mixed()
        self.backends = {step.node: self._backend_of(step) for step in program.steps}
        memories = {id(backend.arrays): backend.arrays for backend in self.backends.values()}
        self.memory = next(iter(memories.values())) if len(memories) == 1 else None

    def change_format(self, format: Format) -> None:
        """Set the storage of images without a format of their own, for later runs; nothing changes after an error."""
        with self.lock:
            before = self.format
            try:
                self._store(format)
            except Exception:
                self._store(before)
                raise

    def _backend_of(self, step: Step) -> Backend:
        node = step.node
        backend = self.backend if node.backend is None else registry.get_backend(node.backend)
        for reason in (backend.unavailable(), *map(backend.lacks, step.compiled._operations(step))):
            if reason is not None:
                raise UnsupportedError(f"{type(node).__name__} {node.name!r}: {reason}")
        for image in (*step.pixels, node.result_image):
            name = self.dtypes[image].name
            if name not in backend.dtypes:
                raise TypeError(
                    f"image {image.name!r} has the format {name!r}; backend {backend.name!r} takes "
                    f'{", ".join(backend.dtypes)}: use backend="reference", or another format'
                )
        return backend

    def _load(self) -> dict[MPSNNFilterNode, NodeParameters]:
        """Read each data source; a gradient step by default has the parameters of its forward step."""
        found: dict[MPSNNFilterNode, NodeParameters] = {}
        for step in self.program.steps:
            node = step.node
            if isinstance(node, WeightedNode):
                found[node] = node._load()
            elif isinstance(node, TrainableGradientNode):
                found[node] = node._parameters(found[node.forward])
            if step.updates is not MPSNNTrainingStyle.NONE:
                found[step.forward].check_style(step.node, step.updates)
        users: dict[int, list[str]] = {}
        for node, parameters in found.items():
            if isinstance(node, WeightedNode):
                users.setdefault(id(parameters.data_source), []).append(node.name)
        for names in users.values():
            if len(names) > 1:
                warnings.warn(
                    f"{', '.join(names)} share a data source; it is updated once for each of their gradient nodes",
                    SharedDataSourceWarning,
                    stacklevel=4,
                )
        return found

    def _dtype_of(self, image: MPSNNImageNode) -> DType:
        format = self.format if image.format is MPSImageFeatureChannelFormat.NONE else image.format
        return np.dtype(np.float64) if isinstance(format, str) else format.dtype

    def _mixed(self) -> dict[MPSNNFilterNode, DType]:
        """Return the widest dtype of each step whose images differ in dtype."""
        found = {step.node: {self.dtypes[image] for image in step.pixels} for step in self.program.steps}
        return {node: np.result_type(*dtypes) for node, dtypes in found.items() if len(dtypes) > 1}

    def _in_force(self) -> dict[MPSNNFilterNode, Mapping[str, Array | None]]:
        known = {parameters: parameters.arrays() for parameters in dict.fromkeys(self.parameters.values())}
        if self.memory is not None:
            before, self._uploaded = self._uploaded, {}
            memory = self.memory

            def upload(array: Any) -> Any:
                if _goes_up(array):
                    self._uploaded[id(array)] = kept = before.get(id(array)) or (array, memory.upload(array))
                    return kept[1]
                return array

            with memory.scope(()):
                known = {parameters: placed(arrays, upload) for parameters, arrays in known.items()}
        self.operands = [array for arrays in known.values() for array in arrays.values()]
        return {node: known[parameters] for node, parameters in self.parameters.items()}

    @property
    def arrays_on_host(self) -> dict[MPSNNFilterNode, Mapping[str, Array | None]]:
        """The current parameters as NumPy arrays."""
        return {node: placed(arrays, on_host) for node, arrays in self.arrays.items()}

    @contextlib.contextmanager
    def placing(self, given: Iterable[ImageLike]) -> Iterator[tuple[Place, Place]]:
        """Run on the device of the program, if it has one, in the stream of the ``given`` images.

        Gives a function that returns an array where the images of the run are, and one that returns an array where the
        results are: on the device if a given image is there, else on the host.
        """
        if self.memory is None:
            yield _unchanged, _unchanged
            return
        memory, images = self.memory, [one.array if isinstance(one, MPSImage) else one for one in _single(given)]
        with memory.scope(images) as adopt:
            yield (
                lambda array: memory.upload(array) if _goes_up(array) else adopt(array),
                _unchanged if memory.finds(images) else on_host,
            )

    def bind(self, given: Mapping[MPSNNImageNode, Shape]) -> Shapes:
        """Check the shapes of the inputs and infer all others, unless an earlier run did so."""
        key = tuple(given.values())
        with self.lock:
            if key not in self._shapes:
                if len(self._shapes) >= 16:
                    self._shapes.pop(next(iter(self._shapes)))
                self._shapes[key] = infer_shapes(self.program, source_shapes(given), self.parameters)
            return self._shapes[key]

    def atomically(self, changes: Sequence[Callable[[], None]]) -> None:
        """Change parameters; restore all of them after an error or an interruption."""
        if not changes:
            return
        every = list(dict.fromkeys(self.parameters.values()))
        before = [parameters.snapshot() for parameters in every]
        forms = [parameters.form for parameters in every]
        try:
            for change in changes:
                change()
            if [parameters.form for parameters in every] != forms:
                self._shapes.clear()
            self.arrays = self._in_force()
        except BaseException:
            for parameters, old in zip(every, before, strict=True):
                parameters.restore(old)
            raise

    def reload(self) -> None:
        """Read all data sources again."""
        with self.lock:
            self.atomically([parameters.reload for parameters in dict.fromkeys(self.parameters.values())])
