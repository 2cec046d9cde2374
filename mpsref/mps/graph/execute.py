"""Execution of a compiled program: steps run in order, and images are released after their last reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.errors import ShapeError
from mpsref.mps.core import image_arguments
from mpsref.mps.core.image import MPSImage
from mpsref.mps.core.image_arguments import ImageArgument, ImageLike
from mpsref.mps.core.properties import closed
from mpsref.mps.core.state import MPSState
from mpsref.mps.graph.compile import CompiledProgram, Number, Place, placed
from mpsref.mps.graph.nodes import Allocator, MPSNNFilterNode, MPSNNImageNode, MPSNNStateNode, Step, StepCall, StepState
from mpsref.registry import Backend

Watch: TypeAlias = Callable[[str, list[Array], Callable[[Backend], list[Array]]], None]
"""``watch(label, arrays, again)`` is called after each step; ``again(backend)`` repeats the step on ``backend``."""


@closed
@dataclass(frozen=True, eq=False)
class RunResult:
    """The results of a run.

    Attributes
    ----------
    images : tuple of ndarray or None
        The result images in order; ``None`` for those that are not needed.
    intermediate_images : mapping of MPSNNImageNode to ndarray
        The exported images, then the results after the first.
    result_states : mapping of MPSNNStateNode to MPSState
        The exported states, which the host can read: those of the kernels of the nodes, for their gradient kernels.
    loss : mapping of str to ndarray
        The loss image of each loss node, by label.
    peak_bytes : int
        The largest memory of images at one time, including inputs.
    all_images : mapping of MPSNNImageNode to ndarray
        All images of a run with ``keep_all``.
    """

    images: tuple[Array | None, ...]
    intermediate_images: Mapping[MPSNNImageNode, Array | None]
    result_states: Mapping[MPSNNStateNode, MPSState]
    loss: Mapping[str, Array]
    peak_bytes: int
    all_images: Mapping[MPSNNImageNode, Array] = field(default_factory=dict)

    @property
    def image(self) -> Array | None:
        """The first result."""
        return self.images[0]


class Execution:
    """The state of one run."""

    def __init__(
        self,
        compiled: CompiledProgram,
        given: Mapping[MPSNNImageNode, ImageLike],
        states: Mapping[MPSNNStateNode, object],
        sequence: int,
        places: tuple[Place, Place],
        *,
        keep_all: bool = False,
        allocator: Allocator | None = None,
        backend: Backend | None = None,
        watch: Watch | None = None,
        updates: bool = True,
    ) -> None:
        """Check the inputs and infer all shapes; ``places`` are those of :meth:`CompiledProgram.placing`."""
        self.compiled, self.program = compiled, compiled.program
        self.sequence, self.keep_all, self.allocator = sequence, keep_all, allocator
        self.backend, self.watch, self.updates = backend, watch, updates
        self.place, self.result = places
        self.arrays = compiled.arrays if backend is None else compiled.arrays_on_host
        self.values = {image: self._input(image, value) for image, value in given.items()}
        self.labels = {state: state.check(value) for state, value in states.items()}
        self.shapes = compiled.bind({image: value.shape for image, value in self.values.items()})
        self.states: dict[MPSNNFilterNode, StepState] = {}
        for step in self.program.forward_steps:
            own: StepState = {}
            if step.node in compiled.parameters:
                own["call"] = self.shapes.calls[step.node]
            for state in step.node.source_states:
                if state in self.labels:
                    own["labels"] = self.labels[state]
                    shape = self.shapes.sources[step.node][0]
                    step.compiled.check_labels(self.labels[state], shape)
            self.states[step.node] = own
        self.prepared: dict[MPSNNFilterNode, Sequence[Array | None]] = {}
        self.replacements: list[Callable[[], None]] = []
        self.live = self.peak = sum(value.nbytes for value in self.values.values())
        self.exported: dict[MPSNNImageNode, Array] = {}
        self.loss: dict[str, Array] = {}

    def _input(self, image: MPSNNImageNode, value: ImageLike) -> Array:
        given = value if isinstance(value, (MPSImage, np.ndarray, list, tuple)) else self.place(value)
        array = image_arguments.source(f"source image {image.name!r}", given).array
        return self.place(_stored(array, self.compiled.dtypes[image]))  # type: ignore[no-any-return]

    def run(self) -> RunResult:
        """Run all steps, then set all updated parameters."""
        program = self.program
        if self._may_be_recorded():
            self._repeat()
        else:
            for step in program.steps:
                self._step(step)
        for step in program.forward_steps:
            if "loss" in self.states[step.node]:
                self._note_loss(step, self.states[step.node])
        if self.updates:
            for step in program.updates:
                self._update(step)
            self.compiled.atomically(self.replacements)
        kept = {image: self.result(value) for image, value in self.exported.items()}
        needed = zip(program.result_images, program.results_are_needed, strict=True)
        return RunResult(
            tuple(kept.get(image) if wanted else None for image, wanted in needed),
            {image: kept.get(image) for image in program.intermediate_images},
            {state: self._result_state(state) for state in program.result_states},
            placed(self.loss, self.result),
            self.peak,
            placed(self.values, self.result) if self.keep_all else {},
        )

    def _may_be_recorded(self) -> bool:
        """Return whether all arrays of the steps may be on a device, and depend on those of the call alone."""
        return (
            self.compiled.memory is not None
            and self.watch is None
            and self.backend is None
            and not self.keep_all
            and self.allocator is None
            and all(image.image_allocator is None for image in self.compiled.dtypes)
        )

    def _repeat(self) -> None:
        """Run all steps on a device, or repeat the launches of an earlier run."""
        assert self.compiled.memory is not None
        given, like = [*self.values.values(), *self.compiled.operands], next(iter(self.values.values()))
        for step in self.program.prepared_steps:
            call = self._call(step, self.compiled.backends[step.node], self.states[step.node])
            self.prepared[step.node] = step.compiled._step_inputs(call, like)
            given += self.prepared[step.node]
        made, (exported, states, self.peak) = self.compiled.memory.repeated(self.shapes.recorded, given, self._computed)
        self.exported = placed(exported, made.__getitem__)
        for node, state in placed(states, made.__getitem__).items():
            self.states[node].update(state)

    def _computed(self) -> tuple[list[Array], tuple[Any, Any, int]]:
        """Run all steps; return all arrays that are read after them, and what they are: numbers in place of arrays."""
        before = {node: set(state) for node, state in self.states.items()}
        for step in self.program.steps:
            self._step(step)
        made: list[Array] = []

        def number(array: Array) -> Number:
            made.append(array)
            return Number(len(made) - 1)

        exported = {state.producer for state in self.program.result_states}
        states = {
            node: {name: placed(value, number) for name, value in state.items() if name not in before[node]}
            for node, state in self.states.items()
            if node in self.compiled.parameters or node in exported or "loss" in state
        }
        return made, (placed(self.exported, number), states, self.peak)

    def _step(self, step: Step) -> None:
        node = step.node
        inputs = self._inputs(step)
        call = self._call(step, self.backend or self.compiled.backends[node], self.states[step.forward])
        before = dict(call.state) if self.watch is not None else {}
        if node not in self.prepared:
            self.prepared[node] = step.compiled._step_inputs(call, inputs[0])
        call.prepared = self.prepared[node]
        result = step.compiled._compute(call, *inputs)
        if self.watch is not None:
            self.watch(self.program.labels[node], _made(result, before, call.state), self._again(step, inputs, before))
        if step.result_is_needed:
            assert result is not None
            self._store(step, result, call.call.shape)
        if not self.keep_all:
            for image in step.released:
                self.live -= self.values[image].nbytes
                del self.values[image]

    def _note_loss(self, step: Step, state: StepState) -> None:
        self.loss[self.program.labels[step.node]] = state["loss"]
        if "labels" in state:
            state["labels"].device_write(state["loss"])
            state["labels"].synchronize()

    def _inputs(self, step: Step) -> list[Array]:
        """Return the images that a step reads, in their widest dtype."""
        arrays = [self.values[image] for image in step.pixels]
        if step.node in self.compiled.wide:
            wide = self.compiled.wide[step.node]
            arrays = [array.astype(wide, copy=False) for array in arrays]
        return arrays

    def _call(self, step: Step, backend: Backend, state: StepState) -> StepCall:
        return StepCall(
            self.shapes.calls[step.node],
            backend,
            self.arrays.get(step.node, {}),
            state,
            step.result_is_needed,
            step.trains,
            self.sequence,
            self.place,
        )

    def _again(self, step: Step, inputs: list[Array], before: StepState) -> Callable[[Backend], list[Array]]:
        def run(backend: Backend) -> list[Array]:
            state = dict(before)
            call = self._call(step, backend, state)
            call.prepared = step.compiled._step_inputs(call, inputs[0])
            return _made(step.compiled._compute(call, *inputs), before, state)

        return run

    def _store(self, step: Step, value: Array, shape: Shape) -> None:
        node, image = step.node, step.result_image
        if value.shape != shape:
            raise ShapeError(
                f"{type(node).__name__} {node.name!r} returned shape {value.shape}; the inferred shape is {shape}"
            )
        value = _stored(value, self.compiled.dtypes[image])
        is_result = image in self.program.result_images
        allocator = self.allocator if is_result else image.image_allocator
        kept = value
        if allocator is not None:
            kept = _copied_into(allocator(value.shape, value.dtype), image, value)
            value = self.place(kept)
        self.values[image] = value
        self.live += value.nbytes
        if self.live > self.peak:
            self.peak = self.live
        if step.result_is_kept:
            self.exported[image] = kept

    # --- parameters --------------------------------------------------------------------------------------------------

    def _update(self, step: Step) -> None:
        """Call the data source of a node with complete gradients; keep the update for the end of the run."""
        parameters = self.compiled.parameters[step.forward]
        replacement = parameters.update(step.updates, self.states[step.forward])
        if replacement is not None:
            self.replacements.append(replacement)

    def _result_state(self, state: MPSNNStateNode) -> MPSState:
        node = state.producer
        assert node is not None
        parameters = self.compiled.parameters.get(node)
        if parameters is not None:
            return parameters.state(self.states[node])
        (compiled,) = (step.compiled for step in self.program.forward_steps if step.node is node)
        kept, shapes = placed(self.states[node], self.result), self.shapes.sources[node]
        given = zip(node.source_images, kept.get("sources") or map(_without_pixels, shapes), strict=True)
        sources = [ImageArgument(image.name, array, array) for image, array in given]
        return _exported(compiled, sources, kept)


def _exported(node: MPSNNFilterNode, sources: Sequence[ImageArgument], kept: StepState) -> MPSState:
    """Return the state of a node without parameters, as the encode of its kernel returns it."""
    kernel = node._kernel()
    state = kernel._result_state(sources[: kernel._number_of_sources], None, None)
    if "mask" in kept:
        kept["mask"].setflags(write=False)
        state._refresh(replace(state.record, extras={**state.record.extras, "mask": kept["mask"]}))
    state.synchronize()
    return state  # type: ignore[no-any-return]


def _without_pixels(shape: Shape) -> Array:
    return np.broadcast_to(np.float32(0), shape)


def _stored(array: Array, dtype: DType) -> Array:
    """Return an image in its storage dtype."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):  # storing in float16 may overflow to infinity
        return array.astype(dtype)


def _made(result: Array | None, before: StepState, after: StepState) -> list[Array]:
    """Return the arrays that a step computed: its result, and the new arrays of its state."""
    new = (value for name, value in after.items() if value is not before.get(name))
    values = (item for value in (result, *new) for item in (value if isinstance(value, tuple) else (value,)))
    return [value for value in values if isinstance(value, np.ndarray)]


def _copied_into(memory: object, image: MPSNNImageNode, value: Array) -> Array:
    """Copy an image into the array of an allocator; ``TypeError`` or ``ShapeError`` if they differ."""
    if not isinstance(memory, np.ndarray) or memory.dtype != value.dtype or not memory.flags.writeable:
        what = f"{memory.dtype} array" if isinstance(memory, np.ndarray) else type(memory).__name__
        raise TypeError(
            f"the allocator of image {image.name!r} returned a {what}; it must return a writable array of dtype "
            f"{value.dtype}"
        )
    if memory.shape != value.shape:
        raise ShapeError(f"the allocator of image {image.name!r} returned shape {memory.shape}, not {value.shape}")
    memory[...] = value
    return memory
