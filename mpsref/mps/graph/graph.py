"""Compiled graphs, which run on any backend.

>>> import numpy as np
>>> from mpsref.mps import graph
>>> x = graph.MPSNNImageNode("x")
>>> pooled = graph.MPSCNNPoolingMaxNode(x, filter_size=2)
>>> compiled = graph.MPSNNGraph(pooled.result_image)
>>> compiled.run([np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)]).image.ravel().tolist()
[5.0, 7.0, 13.0, 15.0]

Source: ``MPSNNGraph.h`` [doc]. A run returns when it has completed. Images are stored as
float32 by default, where MPS stores float16 [design graph-format].
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.device import on_host
from mpsref.arguments.parameters import flag, integer
from mpsref.errors import GraphError
from mpsref.mps.core import image_arguments
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable, check_not_a_command_buffer
from mpsref.mps.core.image import MPSTemporaryImage, is_batch
from mpsref.mps.core.image_arguments import ImageLike, ImageResult
from mpsref.mps.core.properties import Alias, Property, PropertyHolder, initialize, instance_of
from mpsref.mps.core.reads import check_usable
from mpsref.mps.core.types import MPSImageFeatureChannelFormat
from mpsref.mps.graph import inspection
from mpsref.mps.graph.compile import CompiledProgram, Program, Sources, match_sources, source_shapes
from mpsref.mps.graph.execute import Execution, RunResult
from mpsref.mps.graph.nodes import (
    Allocator,
    Format,
    MPSNNFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
    allocator,
    image_format,
    image_node,
)
from mpsref.registry import Backend

Item = TypeVar("Item")


class StepError(NamedTuple):
    """The difference between a backend and the reference in one step, with the same inputs."""

    label: str
    """The label of the step."""
    backend: str
    """The name of the backend."""
    absolute: float
    """The largest difference."""
    relative: float
    """The largest difference divided by the largest magnitude in the result of the reference."""


class _Storage(Property[Format]):
    """The format of a graph, which applies to later runs."""

    def __set__(self, instance: object, value: object) -> None:
        assert isinstance(instance, MPSNNGraph)
        instance._compiled.change_format(self.accepted(instance, value))
        super().__set__(instance, value)


def _handles(of: str) -> Alias[tuple[Hashable, ...]]:
    return Alias(of, f"The handles of :attr:`{of}`.", lambda symbols: tuple(one.handle for one in symbols))


class MPSNNGraph(PropertyHolder):
    """A graph compiled for some results.

    The constructor reads all data sources.

    Parameters
    ----------
    result_images : MPSNNImageNode or sequence of MPSNNImageNode
        The results.
    results_are_needed : bool or sequence of bool, optional
        For each result, whether a run returns it; by default all. A result that is not needed is computed only as far
        as its gradients of parameters and its exports require.
    result_image, result_image_is_needed : optional
        The same for one result, in place of ``result_images`` and ``results_are_needed``.
    backend : str or Backend, optional
        The backend of nodes without a backend.
    **properties
        Initial values of properties, by name: ``format``, ``destination_image_allocator``,
        ``output_state_is_temporary``.

    Raises
    ------
    GraphError
        If there is nothing to compute.
    UnsupportedError
        If the backend lacks an operation, or a data source lacks the callback of its training style.

    Notes
    -----
    ``MPSNNGraph`` in ``MPSNNGraph.h`` [doc].

    Examples
    --------
    >>> from mpsref.mps import graph
    >>> x = graph.MPSNNImageNode("x")
    >>> relu = graph.MPSCNNNeuronReLUNode(x, label="relu")
    >>> pooled = graph.MPSCNNPoolingMaxNode(relu.result_image, filter_size=2, label="pool")
    >>> compiled = MPSNNGraph(pooled.result_image)
    >>> print(compiled.table({"x": (2, 8, 8, 3)}))
    step  kind     class                 label  reads     reads state  result    shape
    0     forward  MPSCNNNeuronReLUNode  relu   x                      relu.out  2x8x8x3
    1     forward  MPSCNNPoolingMaxNode  pool   relu.out               pool.out  2x4x4x3
    inputs: x
    input states: -
    results: pool.out
    exports: -
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]

    format: Property[Format] = _Storage(
        image_format,
        MPSImageFeatureChannelFormat.Float32,
        'Storage of images without a format, MPSImageFeatureChannelFormat or ``"float64"`` [design graph-format].',
    )
    destination_image_allocator: Property[Allocator | None] = Property(
        allocator, None, "``(shape, dtype) -> array`` for the results."
    )
    output_state_is_temporary = Property(flag, False, "No effect.")

    def __init__(
        self,
        result_images: MPSNNImageNode | Sequence[MPSNNImageNode] | None = None,
        results_are_needed: bool | Sequence[bool] | None = None,
        *,
        result_image: MPSNNImageNode | None = None,
        result_image_is_needed: bool | None = None,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        if result_image is not None or result_image_is_needed is not None:
            if result_images is not None or results_are_needed is not None:
                raise TypeError("result_image and result_images are both given; pass one of them")
            result_images, results_are_needed = result_image, result_image_is_needed
        if isinstance(result_images, Sequence):
            wanted = [image_node(f"result_images[{k}]", image) for k, image in enumerate(result_images)]
        else:
            wanted = [image_node("result_images", result_images)]
        if not wanted:
            raise GraphError("result_images is empty; pass the result_image of at least one node")
        initialize(self, properties)
        self._program = Program(wanted, _needed(results_are_needed, len(wanted)))
        self._compiled = CompiledProgram(self._program, registry.get_backend(backend), self.format)
        self._runs = 0

    backend: Alias[Backend] = Alias("_compiled.backend", "The backend of nodes without a backend.")
    program: Alias[Program] = Alias("_program", "The steps in their order.")
    # --- inputs and results ------------------------------------------------------------------------------------------

    source_images: Alias[tuple[MPSNNImageNode, ...]] = Alias(
        "program.source_images",
        "The input images in the order of :meth:`run`, which is that of first use [choice graph-order].",
    )

    source_image_handles = _handles("source_images")
    source_states: Alias[tuple[MPSNNStateNode, ...]] = Alias(
        "program.source_states", "The input states, such as labels."
    )
    source_state_handles = _handles("source_states")
    intermediate_images: Alias[tuple[MPSNNImageNode, ...]] = Alias(
        "program.intermediate_images", "The exported images in program order, then the results after the first."
    )
    intermediate_image_handles = _handles("intermediate_images")
    result_states: Alias[tuple[MPSNNStateNode, ...]] = Alias(
        "program.result_states", "The exported states in program order."
    )
    result_state_handles = _handles("result_states")
    result_handle: Alias[Hashable] = Alias(
        "program.result_images", "The handle of the first result.", lambda images: images[0].handle
    )
    result_image_is_needed: Alias[bool] = Alias(
        "program.results_are_needed", "Whether the first result is needed.", operator.itemgetter(0)
    )

    def read_count_for_source_image_at_index(self, index: int) -> int:
        """Return the number of reads of an input image in a run.

        Parameters
        ----------
        index : int
            Index in :attr:`source_images`.

        Returns
        -------
        int
            The number of arguments of steps that are this image.

        Notes
        -----
        ``readCountForSourceImageAtIndex:`` in ``MPSNNGraph.h`` [doc].
        """
        return self.program.read_count(_item("source_images", self.source_images, index))

    def read_count_for_source_state_at_index(self, index: int) -> int:
        """Return the number of reads of an input state in a run; ``index`` is that in :attr:`source_states`."""
        return self.program.read_count(_item("source_states", self.source_states, index))

    # --- shapes and runs ---------------------------------------------------------------------------------------------

    def infer_shapes(self, shapes: Sources[Shape]) -> dict[MPSNNImageNode, Shape]:
        """Return the shapes of all images for given shapes of the inputs.

        Parameters
        ----------
        shapes : mapping or sequence of tuple of int
            The shape (N, H, W, C) of each input, by node, handle or label, or in the order of ``source_images``.

        Returns
        -------
        dict of MPSNNImageNode to tuple of int
            The shapes of the inputs and of the results of all steps.

        Raises
        ------
        ShapeError
            If the shapes are not legal for a step; the message contains the step, its node and its inputs.
        """
        given = match_sources("shapes", self.source_images, shapes)
        return dict(self._compiled.bind(source_shapes(given)).images)

    def run(
        self,
        source_images: Sources[ImageLike],
        source_states: Sources[object] | None = None,
        *,
        dropout_sequence: int | None = None,
        keep_all: bool = False,
    ) -> RunResult:
        """Run the graph on a batch, then update the parameters.

        All shapes are checked before the first step. After an error, the parameters of the graph are unchanged.

        Parameters
        ----------
        source_images : sequence or mapping of array_like or MPSImage
            Images (N, H, W, C) in the order of :attr:`source_images`, or by node, handle or label.
        source_states : sequence or mapping of MPSCNNLossLabels, optional
            Labels in the order of :attr:`source_states`, or by node, handle or label.
        dropout_sequence : int, optional
            The number of the run, which selects random masks; by default runs are counted.
        keep_all : bool
            Whether to keep all images, for debugging.

        Returns
        -------
        RunResult

        Raises
        ------
        MissingSourceError, UnknownSourceError, DuplicateHandleError
            If an input is missing, unknown or ambiguous.
        ShapeError, TypeError
            If an input has an illegal shape, dtype or type.
        OrderError
            If an update of a data source fails.

        Notes
        -----
        There is no such method in MPS: :meth:`encode` has the form of Apple's.
        """
        images = match_sources("source_images", self.source_images, source_images)
        states = match_sources("source_states", self.source_states, source_states)
        keep_all = flag("keep_all", keep_all)
        temporary = self._temporary(images, None)
        if dropout_sequence is not None:
            dropout_sequence = integer("dropout_sequence", dropout_sequence, low=0)
        with self._compiled.lock, self._compiled.placing(images.values()) as places:
            sequence = self._runs if dropout_sequence is None else dropout_sequence
            result = Execution(
                self._compiled,
                images,
                states,
                sequence,
                places,
                keep_all=keep_all,
                allocator=self.destination_image_allocator,
            ).run()
            if dropout_sequence is None:
                self._runs += 1
        for image, reads in temporary:
            image.read_count -= reads
        return result

    def _temporary(
        self, images: Mapping[MPSNNImageNode, ImageLike], command_buffer: MPSCommandBuffer | None
    ) -> list[tuple[MPSTemporaryImage, int]]:
        """Return the temporary inputs and their numbers of reads; ``ValueError`` if fewer are left."""
        found = []
        for node, value in images.items():
            for image in value if is_batch(value) else (value,):
                if isinstance(image, MPSTemporaryImage):
                    check_usable(f"source image {node.name!r}", image, command_buffer)
                    reads = self._program.read_count(node)
                    if image.read_count < reads:
                        raise ValueError(
                            f"read_count of source image {node.name!r} is {image.read_count}; the graph reads it "
                            f"{reads} times: set read_count to read_count_for_source_image_at_index before the run"
                        )
                    found.append((image, reads))
        return found

    def encode(
        self,
        source_images: Sources[ImageLike],
        source_states: Sources[object] | None = None,
        intermediate_images: list[ImageResult] | None = None,
        destination_states: list[Any] | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> ImageResult:
        """Run the graph on a batch, and return the first result.

        Parameters
        ----------
        source_images, source_states : sequence or mapping
            Inputs as in :meth:`run`; a source may be a list of images.
        intermediate_images : list, optional
            The exported images are appended to it, in the order of :attr:`intermediate_images`.
        destination_states : list, optional
            The exported states are appended to it, in the order of :attr:`result_states`.
        command_buffer : MPSCommandBuffer, optional
            The command buffer to encode on.

        Returns
        -------
        ndarray, MPSImage, MPSImageBatch or None
            The first result, of the kind of the first source; ``None`` if it is not needed.

        Raises
        ------
        ValueError, TypeError
            As :meth:`run`.
        OrderError
            If the command buffer was committed.

        Notes
        -----
        ``encodeToCommandBuffer:sourceImages:sourceStates:intermediateImages:destinationStates:`` and
        ``encodeBatchToCommandBuffer:sourceImages:sourceStates:`` in ``MPSNNGraph.h`` [doc].

        Examples
        --------
        >>> import numpy as np
        >>> from mpsref import mps
        >>> from mpsref.mps import graph
        >>> pooled = graph.MPSCNNPoolingMaxNode(graph.MPSNNImageNode("x"), filter_size=2)
        >>> batch = [mps.MPSImage(np.full((1, 2, 2, 1), k, np.float32)) for k in range(3)]
        >>> MPSNNGraph(pooled.result_image).encode_batch([batch])[2].array.tolist()
        [[[[2.0]]]]
        """
        check_not_a_command_buffer("source_images", source_images)
        check_encodable(command_buffer)
        for name, given in (("intermediate_images", intermediate_images), ("destination_states", destination_states)):
            if given is not None:
                instance_of(name, given, list, "a list, which is appended to")
        images = match_sources("source_images", self.source_images, source_images)
        like = next(iter(images.values()), None)
        self._temporary(images, command_buffer)
        result = self.run(images, source_states)
        if intermediate_images is not None:
            intermediate_images += [_of_kind(like, image) for image in result.intermediate_images.values()]
        if destination_states is not None:
            destination_states += result.result_states.values()
        return _of_kind(like, result.image)

    encode_batch = encode

    def execute_async(
        self,
        source_images: Sources[ImageLike],
        completion_handler: Callable[[ImageResult, Exception | None], object] | None = None,
    ) -> ImageResult:
        """Run the graph on a batch, call the handler, and return the first result.

        Parameters
        ----------
        source_images : sequence or mapping
            Images as in :meth:`encode`.
        completion_handler : callable, optional
            ``handler(result, error)`` is called before this method returns [choice graph-order]. ``error`` is ``None``,
            or the exception of the run, and then ``result`` is ``None`` and nothing is raised.

        Returns
        -------
        ndarray, MPSImage, MPSImageBatch or None
            The first result, as of :meth:`encode`; ``None`` after an error that the handler has received.

        Raises
        ------
        ValueError, TypeError
            As :meth:`run`, without a handler.

        Notes
        -----
        In MPS the handler receives errors of the execution only; an illegal argument ends the program.
        ``executeAsyncWithSourceImages:completionHandler:`` in ``MPSNNGraph.h`` [doc].
        """
        if completion_handler is not None and not callable(completion_handler):
            raise TypeError(
                f"completion_handler is of type {type(completion_handler).__name__}; it must be a function "
                "(result, error), or None"
            )
        result, failure = None, None
        try:
            result = self.encode(source_images)
        except Exception as error:
            if completion_handler is None:
                raise
            failure = error
        if completion_handler is not None:
            completion_handler(result, failure)
        return result

    def compare(
        self,
        backends: str | Backend | Sequence[str | Backend],
        source_images: Sources[ImageLike],
        source_states: Sources[object] | None = None,
    ) -> list[StepError]:
        """Compare each step on other backends with the reference.

        The graph runs on the reference backend, and each step also on ``backends`` with the same inputs, so that errors
        do not accumulate. The arrays in the state of a step, such as gradients of weights, are also compared.
        Parameters are not updated.

        Parameters
        ----------
        backends : str, Backend or sequence of them
            The backends to compare.
        source_images, source_states : sequence or mapping
            Inputs as in :meth:`run`.

        Returns
        -------
        list of StepError
            One for each step and backend, in the order of the steps.
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
            Execution(
                self._compiled,
                images,
                states,
                self._runs,
                (on_host, on_host),
                backend=reference,
                watch=watch,
                updates=False,
            ).run()
        return rows

    def reload_from_data_sources(self) -> None:
        """Read all data sources again; after an error, all parameters are unchanged.

        Updates of the graph do not change the arrays of a data source, so the weights that it delivers replace trained
        ones: let it copy what its ``update`` returned, or copy :meth:`parameters_of`, before.
        """
        self._compiled.reload()

    def parameters_of(self, node: MPSNNFilterNode) -> Mapping[str, Array | None]:
        """Return the current parameters of a node with a data source.

        Parameters
        ----------
        node : MPSNNFilterNode
            A node of this graph.

        Returns
        -------
        mapping of str to ndarray or None
            Read-only arrays by name, such as ``"weights"``.

        Raises
        ------
        GraphError
            If the node has no parameters in this graph.
        """
        instance_of("node", node, MPSNNFilterNode, "a node of the graph")
        if node not in self._compiled.parameters:
            raise GraphError(f"{type(node).__name__} {node.name!r} has no parameters in this graph")
        return self._compiled.arrays_on_host[node]

    # --- inspection --------------------------------------------------------------------------------------------------

    def _known(self, shapes: Sources[Shape] | None) -> dict[MPSNNImageNode, Shape]:
        return {} if shapes is None else self.infer_shapes(shapes)

    def table(self, shapes: Sources[Shape] | None = None) -> str:
        """Return a table with a line for each step.

        Parameters
        ----------
        shapes : mapping or sequence of tuple of int, optional
            The shapes of the inputs as in :meth:`infer_shapes`, to list those of all images.
        """
        return inspection.table(self.program, self._known(shapes))

    def to_mermaid(self, shapes: Sources[Shape] | None = None) -> str:
        """Return the graph as Mermaid code for Markdown pages; ``shapes`` as in :meth:`table`."""
        return inspection.mermaid(self.program, self._known(shapes))

    def to_dot(self, shapes: Sources[Shape] | None = None) -> str:
        """Return the graph as Graphviz code; ``shapes`` as in :meth:`table`."""
        return inspection.dot(self.program, self._known(shapes))

    @property
    def debug_description(self) -> str:
        """The result of :meth:`table`."""
        return self.table()

    __str__ = table


def _of_kind(like: ImageLike | None, array: Array | None) -> ImageResult:
    """Return an image of a run as an object of the kind of ``like``, a source; images of float64 as arrays."""
    if array is None or like is None or array.dtype.itemsize > 4:
        return array
    return image_arguments.in_form_of(like, array)


def _item(name: str, items: Sequence[Item], index: int) -> Item:
    number = integer("index", index, low=0)
    if number >= len(items):
        raise ValueError(f"index is {number}; {name} has {len(items)} items")
    return items[number]


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
