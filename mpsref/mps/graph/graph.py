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

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import choice, flag, integer
from mpsref.errors import GraphError
from mpsref.mps.graph import inspection
from mpsref.mps.graph.compile import CompiledProgram, Program, match_sources, source_shapes
from mpsref.mps.graph.execute import Execution, RunResult
from mpsref.mps.graph.nodes import MPSNNFilterNode, MPSNNImageNode, MPSNNStateNode, allocator, image_node
from mpsref.registry import Backend

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

    The data sources are read once, here.

    Parameters
    ----------
    result_images : MPSNNImageNode or sequence of MPSNNImageNode
        The results.
    results_are_needed : bool or sequence of bool, optional
        For each result, whether it is returned. Of the others only the side effects count, such as the gradients of
        weights. All are needed by default.
    backend : str or Backend, optional
        The backend of nodes that have none of their own.
    format : {"float32", "float16", "float64"}
        Storage of images whose node has no ``format``.
    destination_image_allocator : callable, optional
        ``(shape, dtype) -> array`` for the results.
    output_state_is_temporary : bool
        Kept, without effect.

    Raises
    ------
    GraphError
        If there is nothing to compute.
    UnsupportedError
        If the backend lacks an operation, or a data source the callback of its training style.
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
        self._compiled = CompiledProgram(self.program, self.backend, self.format)
        self._runs = 0

    # --- inputs and results ------------------------------------------------------------------------------------------

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
        """The exported images in program order, then the results after the first."""
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
        given = match_sources("shapes", self.source_images, shapes)
        return dict(self._compiled.bind(source_shapes(given)).images)

    def run(
        self,
        source_images: Any,
        source_states: Any = None,
        *,
        dropout_sequence: int | None = None,
        keep_all: bool = False,
    ) -> RunResult:
        """Run the program on a batch, then update the parameters.

        Nothing runs before all shapes fit. If anything fails, the parameters of the graph stay as they were.

        Parameters
        ----------
        source_images : sequence or mapping of array_like
            Images (N, H, W, C) in the order of ``source_images``, or by node, handle or label.
        source_states : sequence or mapping of MPSCNNLossLabels, optional
            Labels in the order of ``source_states``, or by node, handle or label.
        dropout_sequence : int, optional
            The number of the run, which random masks depend on; by default runs are counted.
        keep_all : bool
            Whether to keep every image, for debugging.

        Returns
        -------
        RunResult
        """
        images = match_sources("source_images", self.source_images, source_images)
        states = match_sources("source_states", self.source_states, source_states)
        keep_all = flag("keep_all", keep_all)
        if dropout_sequence is not None:
            dropout_sequence = integer("dropout_sequence", dropout_sequence, low=0)
        with self._compiled.lock:
            sequence = self._runs if dropout_sequence is None else dropout_sequence
            result = Execution(
                self._compiled,
                images,
                states,
                sequence,
                keep_all=keep_all,
                allocator=self.destination_image_allocator,
            ).run()
            if dropout_sequence is None:
                self._runs += 1
        return result

    execute_async = run

    def compare(
        self, backends: str | Backend | Sequence[str | Backend], source_images: Any, source_states: Any = None
    ) -> list[StepError]:
        """Run the program on the reference, and each step on ``backends`` with the inputs that it has there.

        So errors do not add up through the network. Arrays in the state of a step are compared, too, such as gradients
        of weights. Parameters are not updated.
        """
        images = match_sources("source_images", self.source_images, source_images)
        states = match_sources("source_states", self.source_states, source_states)
        others = registry.get_backends(backends)
        rows: list[StepError] = []

        def watch(label: str, expected: list[Array], again: Callable[[Backend], list[Array]]) -> None:
            if expected:
                rows.extend(_error(label, other.name, expected, again(other)) for other in others)

        reference = registry.get_backend("reference")
        with self._compiled.lock:
            Execution(self._compiled, images, states, self._runs, backend=reference, watch=watch, updates=False).run()
        return rows

    def reload_from_data_sources(self) -> None:
        """Read all data sources again, at once; if one fails, all parameters stay as they were."""
        self._compiled.reload()

    def parameters_of(self, node: MPSNNFilterNode) -> Mapping[str, Array | None]:
        """Return the parameters in force of a node with a data source, by name: read-only arrays."""
        if node not in self._compiled.parameters:
            raise GraphError(f"{type(node).__name__} {node.name!r} has no parameters in this graph")
        return self._compiled.arrays[node]

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
    """Compare the arrays of a step on two backends; a NaN makes the error NaN."""
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
