"""The compiled graph: a program that runs on any backend.

>>> import numpy as np
>>> from mpsref.mps import graph
>>> x = graph.MPSNNImageNode("x")
>>> pooled = graph.MPSCNNPoolingMaxNode(x, filter_size=2)
>>> compiled = graph.MPSNNGraph(pooled.result_image)
>>> compiled.run([np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)]).image.ravel().tolist()
[5.0, 7.0, 13.0, 15.0]

Source: ``MPSNNGraph.h`` [doc]. There are no command buffers: a run returns when everything is done. Images are stored
as float32 unless the graph or the image says otherwise; MPS stores float16 [choice].
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import choice, flag, integer
from mpsref.errors import GraphError, SharedDataSourceWarning, UnsupportedError
from mpsref.mps.graph import inspection
from mpsref.mps.graph.execution import Execution, RunResult
from mpsref.mps.graph.nodes import MPSNNFilterNode, MPSNNTrainingStyle
from mpsref.mps.graph.places import MPSNNImageNode, MPSNNStateNode, allocator, image_node
from mpsref.mps.graph.program import Program
from mpsref.mps.graph.shapes import Shapes, bind, source_shapes
from mpsref.mps.graph.sources import sources
from mpsref.mps.graph.step import Step
from mpsref.mps.graph.trainable import Parameters, TrainableGradientNode, WeightedNode
from mpsref.registry import Backend

__all__ = ["MPSNNGraph", "StepError"]

FORMATS = ("float16", "float32", "float64")


class StepError(NamedTuple):
    """How far a backend is from the reference in one step, both on the reference's inputs."""

    label: str
    backend: str
    absolute: float
    """The largest difference."""
    relative: float
    """The same, as a fraction of the largest value that the step made."""


class MPSNNGraph:
    """A graph compiled for some results.

    ``result_images`` is an image node or several; of those that are not needed only the side effects count, such as the
    gradients of weights. ``format`` is how images are stored whose node does not say it. What the data sources hold is
    read once, here. Raises ``GraphError`` where there is nothing to compute, ``UnsupportedError`` where the backend
    lacks an operation or a data source the callback of its training style.
    """

    def __init__(
        self,
        result_images: MPSNNImageNode | Sequence[MPSNNImageNode],
        results_are_needed: bool | Sequence[bool] | None = None,
        *,
        backend: str | Backend | None = None,
        format: str = "float32",
        destination_image_allocator: Callable[[Shape, Any], Array] | None = None,
        output_state_is_temporary: bool = False,
    ) -> None:
        """Compile."""
        is_list = isinstance(result_images, Sequence)
        wanted = list(result_images) if is_list else [image_node("result_images", result_images)]  # type: ignore[arg-type]
        for k, image in enumerate(wanted):
            image_node(f"result_images[{k}]", image)
        if not wanted:
            raise GraphError("result_images is empty; name the result_image of at least one node")
        self.backend = registry.get_backend(backend)
        self.format = choice("format", format, FORMATS)
        self.destination_image_allocator = allocator("destination_image_allocator", destination_image_allocator)
        self.output_state_is_temporary = flag("output_state_is_temporary", output_state_is_temporary)
        self.program = Program(wanted, _needed(results_are_needed, len(wanted)))
        results = (step.node.result_image for step in self.program.steps)
        self._dtypes = {image: self._dtype_of(image) for image in (*self.program.source_images, *results)}
        self._wide = self._mixed()
        self._backends = {step.node: self._backend_of(step) for step in self.program.steps}
        self._parameters = self._load()
        self._arrays = self._in_force()
        self._lock = threading.RLock()
        self._bound: dict[tuple[Shape, ...], Shapes] = {}
        self._runs = 0

    def _backend_of(self, step: Step) -> Backend:
        node = step.node
        backend = self.backend if node.backend is None else registry.get_backend(node.backend)
        for reason in (backend.unavailable(), *map(backend.lacks, step.kernel._operations(step))):
            if reason is not None:
                raise UnsupportedError(f"{type(node).__name__} {node.name!r}: {reason}")
        for image in (*step.pixels, node.result_image):
            name = self._dtypes[image].name
            if name not in backend.dtypes:
                raise TypeError(
                    f"image {image.name!r} has the format {name!r}; backend {backend.name!r} takes "
                    f'{", ".join(backend.dtypes)}: use backend="reference", or another format'
                )
        return backend

    def _load(self) -> dict[MPSNNFilterNode, Parameters]:
        """Read each data source; a gradient step has the parameters of its forward step unless it has its own."""
        found: dict[MPSNNFilterNode, Parameters] = {}
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
                    stacklevel=3,
                )
        return found

    def _dtype_of(self, image: MPSNNImageNode) -> np.dtype[Any]:
        """Return how the pixels of an image are stored."""
        return np.dtype(self.format if image.format == "none" else image.format)

    def _mixed(self) -> dict[MPSNNFilterNode, np.dtype[Any]]:
        """Return the dtype that a step computes in where its images are stored in different ones: the widest."""
        found = {step.node: {self._dtypes[image] for image in step.pixels} for step in self.program.steps}
        return {node: np.result_type(*dtypes) for node, dtypes in found.items() if len(dtypes) > 1}

    def _in_force(self) -> dict[MPSNNFilterNode, Mapping[str, Array | None]]:
        known = {parameters: parameters.arrays() for parameters in dict.fromkeys(self._parameters.values())}
        return {node: known[parameters] for node, parameters in self._parameters.items()}

    # --- what goes in and out ----------------------------------------------------------------------------------------

    @property
    def source_images(self) -> tuple[MPSNNImageNode, ...]:
        """The inputs, in the order in which :meth:`run` takes them: that of first use [choice]."""
        return self.program.source_images

    @property
    def source_image_handles(self) -> tuple[Hashable, ...]:
        """Their handles."""
        return tuple(image.handle for image in self.source_images)

    @property
    def source_states(self) -> tuple[MPSNNStateNode, ...]:
        """The input states, such as labels."""
        return self.program.source_states

    @property
    def source_state_handles(self) -> tuple[Hashable, ...]:
        """Their handles."""
        return tuple(state.handle for state in self.source_states)

    @property
    def intermediate_images(self) -> tuple[MPSNNImageNode, ...]:
        """The exported images in program order, then the results behind the first."""
        return self.program.intermediate_images

    @property
    def intermediate_image_handles(self) -> tuple[Hashable, ...]:
        """Their handles."""
        return tuple(image.handle for image in self.intermediate_images)

    @property
    def result_states(self) -> tuple[MPSNNStateNode, ...]:
        """The exported states in program order."""
        return self.program.result_states

    @property
    def result_state_handles(self) -> tuple[Hashable, ...]:
        """Their handles."""
        return tuple(state.handle for state in self.result_states)

    @property
    def result_handle(self) -> Hashable:
        """The handle of the first result."""
        return self.program.result_images[0].handle

    @property
    def result_image_is_needed(self) -> bool:
        """Whether the first result is needed."""
        return self.program.results_are_needed[0]

    def read_count_for_source_image_at_index(self, index: int) -> int:
        """Return how many arguments of steps are this input."""
        return self.program.read_count(self.source_images[index])

    def read_count_for_source_state_at_index(self, index: int) -> int:
        """Return how many arguments of steps are this input state."""
        return self.program.read_count(self.source_states[index])

    # --- shapes and runs ---------------------------------------------------------------------------------------------

    def infer_shapes(self, shapes: Mapping[Any, Shape]) -> dict[MPSNNImageNode, Shape]:
        """Return the shape of every image for inputs of ``shapes``, by node, handle or label.

        Raises ``ShapeError`` that names the step, its node and its inputs.
        """
        given = sources("shapes", self.source_images, shapes)
        return dict(self._bind(source_shapes(given)).images)

    def _bind(self, given: Mapping[MPSNNImageNode, Shape]) -> Shapes:
        key = tuple(given.values())
        with self._lock:
            if key not in self._bound:
                if len(self._bound) >= 16:
                    self._bound.pop(next(iter(self._bound)))
                self._bound[key] = self._checked(bind(self.program, given, self._parameters))
            return self._bound[key]

    def _checked(self, shapes: Shapes) -> Shapes:
        """Ask each backend whether it takes the functions as they are bound now."""
        for step in self.program.steps:
            spec, backend = shapes.bound[step.node].spec, self._backends[step.node]
            for operation in step.kernel._operations(step):
                reason = backend.why_not(operation, spec) if isinstance(spec, operation[0]) else None
                if reason is not None:
                    raise UnsupportedError(f"{type(step.node).__name__} {step.node.name!r}: {reason}")
        return shapes

    def run(
        self,
        source_images: Any,
        source_states: Any = None,
        *,
        dropout_sequence: int | None = None,
        keep_all: bool = False,
    ) -> RunResult:
        """Run the program on a batch and return its results; then the parameters are updated.

        ``source_images`` are arrays (N, H, W, C) in the order of ``source_images``, or a mapping from nodes, handles or
        labels; ``source_states`` are :class:`~mpsref.mps.MPSCNNLossLabels` in the same ways. Nothing runs before all
        shapes fit. ``keep_all`` keeps every image for debugging. If anything fails, the parameters of the graph stay
        as they were.
        """
        images = sources("source_images", self.source_images, source_images)
        states = sources("source_states", self.source_states, source_states)
        keep_all = flag("keep_all", keep_all)
        if dropout_sequence is not None:
            dropout_sequence = integer("dropout_sequence", dropout_sequence, low=0)
        with self._lock:
            sequence = self._runs if dropout_sequence is None else dropout_sequence
            execution = Execution(self, images, states, sequence, keep_all)
            result = execution.run()
            if dropout_sequence is None:
                self._runs += 1
        return result

    execute_async = run

    def compare(
        self, backends: str | Backend | Sequence[str | Backend], source_images: Any, source_states: Any = None
    ) -> list[StepError]:
        """Run the program on the reference; run each step on ``backends``, too, on what the reference had.

        So errors do not add up through the network. What a step leaves in its state counts, too, such as gradients of
        weights. Parameters are not updated.
        """
        images = sources("source_images", self.source_images, source_images)
        states = sources("source_states", self.source_states, source_states)
        others = registry.get_backends(backends)
        rows: list[StepError] = []

        def watch(label: str, expected: list[Array], again: Callable[[Backend], list[Array]]) -> None:
            if expected:
                rows.extend(_error(label, other.name, expected, again(other)) for other in others)

        with self._lock:
            reference = registry.get_backend("reference")
            Execution(self, images, states, self._runs, False, backend=reference, watch=watch, updates=False).run()
        return rows

    def reload_from_data_sources(self) -> None:
        """Read all data sources again, at once; if one fails, all parameters stay as they were."""
        with self._lock:
            self._atomically([parameters.reload for parameters in dict.fromkeys(self._parameters.values())])

    def _atomically(self, changes: Sequence[Callable[[], None]]) -> None:
        """Change parameters; after an error, or an interruption, put all of them back."""
        if not changes:
            return
        every = list(dict.fromkeys(self._parameters.values()))
        before = [parameters.snapshot() for parameters in every]
        forms = [parameters.form for parameters in every]
        try:
            for change in changes:
                change()
            if [parameters.form for parameters in every] != forms:
                self._bound.clear()
            self._arrays = self._in_force()
        except BaseException:
            for parameters, old in zip(every, before, strict=True):
                parameters.restore(old)
            raise

    def parameters_of(self, node: MPSNNFilterNode) -> Mapping[str, Array | None]:
        """Return the parameters in force of a node with a data source, by name: read-only arrays."""
        if node not in self._parameters:
            raise GraphError(f"{type(node).__name__} {node.name!r} has no parameters in this graph")
        return self._arrays[node]

    # --- inspection --------------------------------------------------------------------------------------------------

    def _known(self, shapes: Mapping[Any, Shape] | None) -> dict[MPSNNImageNode, Shape]:
        return {} if shapes is None else self.infer_shapes(shapes)

    def table(self, shapes: Mapping[Any, Shape] | None = None) -> str:
        """Return the program as text, a line for each step; with the ``shapes`` of the inputs, those of all images."""
        return inspection.table(self.program, self._known(shapes))

    def to_mermaid(self, shapes: Mapping[Any, Shape] | None = None) -> str:
        """Return the graph as Mermaid, which Markdown pages draw."""
        return inspection.mermaid(self.program, self._known(shapes))

    def to_dot(self, shapes: Mapping[Any, Shape] | None = None) -> str:
        """Return the graph in the language of Graphviz."""
        return inspection.dot(self.program, self._known(shapes))

    @property
    def debug_description(self) -> str:
        """The same as :meth:`table`."""
        return self.table()

    __str__ = table


def _error(label: str, backend: str, expected: Sequence[Array], got: Sequence[Array]) -> StepError:
    """Compare what a step made on two backends; NaN where there is one."""
    wide = [array.astype(np.float64) for array in expected]
    differences = [np.abs(mine - theirs).max(initial=0.0) for mine, theirs in zip(got, wide, strict=True)]
    difference = float(np.max(differences))
    largest = max(float(np.abs(array).max(initial=0.0)) for array in wide)
    return StepError(label, backend, difference, difference / (largest or 1.0))


def _needed(given: bool | Sequence[bool] | None, count: int) -> list[bool]:
    flags = [True] * count if given is None else [given] if isinstance(given, bool) else list(given)
    if len(flags) != count:
        raise GraphError(f"results_are_needed has {len(flags)} values; there are {count} result images")
    return [flag(f"results_are_needed[{k}]", value) for k, value in enumerate(flags)]
