"""Numbers beyond the range of a float, arrays beyond the memory, and objects of ``mpsref.mps`` of the wrong type."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref import (
    Backend,
    Concatenation,
    Dropout,
    Neuron,
    Pad,
    PoolingAverage,
    ShapeError,
    SoftMax,
    UnsupportedError,
    mps,
)
from mpsref.arguments import arrays
from mpsref.mps import graph

X = np.ones((2, 4, 4, 2), np.float32)


# ---- memory ---------------------------------------------------------------------------------------------------------


def large(*shape: int, dtype: str = "f4") -> Any:
    """Return an array that takes 4 bytes, and as a contiguous one more than any machine has."""
    return np.broadcast_to(np.ones(1, dtype), shape)


HUGE = large(2**10, 2**15, 2**15, 2**10)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda backend: SoftMax().forward(HUGE, backend=backend), "x"),
        (lambda backend: SoftMax().gradient(HUGE, HUGE, backend=backend), "g"),
        (lambda backend: PoolingAverage(3, 2).forward(HUGE, (1, 1), backend=backend), "x"),
        (lambda backend: Concatenation().forward([HUGE, HUGE], backend=backend), "x0|x1|xs"),
    ],
)
def test_broadcast_inputs_that_need_more_memory_than_there_is(call: Any, name: str, backend: str) -> None:
    message = (
        rf"^(the result would have|({name}) has) .* ({HUGE.nbytes}|{2 * HUGE.nbytes}) bytes.*cannot be allocated \("
    )
    with pytest.raises(ShapeError, match=message):
        call(backend)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Pad((0, 0, 0), (0, 0, 0), "constant", fill_values=large(2**45)),
            "fill_values has 35184372088832 n",
        ),
        (lambda: Neuron("prelu", data=large(2**45)), "data has shape (35184372088832,), and does not fit into memory"),
        (lambda: SoftMax().gradient(X, large(2**45)), "y has shape (35184372088832,) of rank 1"),
        (lambda: PoolingAverage(3).gradient(X, b"size"), "x has dtype |S4"),
        (lambda: Dropout().mask(b"size"), "shape is b'size'; it must be a shape (N, H, W, C)"),
        (lambda: Dropout().mask(large(2**45)), "shape has 35184372088832 elements"),
    ],
)
def test_vectors_that_are_no_vectors(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(message)}"):
        call()


def test_an_input_is_named_with_its_bytes(backend: str) -> None:
    with pytest.raises(
        ShapeError,
        match=r"^x has shape \(1024, 32768, 32768, 1024\) \(float32\); a contiguous copy of it has 4503599627370496 "
        r"bytes, which cannot be allocated \(this machine has \d+ bytes\); pass a smaller batch$",
    ):
        PoolingAverage(3, 2).forward(HUGE, (1, 1), backend=backend)


def test_what_the_system_promises_without_having_it_is_refused(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """Systems give addresses for more memory than they have, and end a process that writes to all of it."""
    monkeypatch.setattr(arrays, "machine_memory", lambda: 2**12)
    x = np.ones((1, 2**6, 2**6, 1), np.float32)
    with pytest.raises(
        ShapeError, match=r"^the result would have shape .* 16384 bytes\), which cannot be allocated \(th"
    ):
        SoftMax().forward(x, backend=backend)
    with pytest.raises(ShapeError, match=r"^mask has shape|^the result would have shape"):
        Dropout().forward(x, np.ones((1, 2**7, 2**6, 1), np.uint8)[:, ::2], backend=backend)


def test_intermediate_arrays_that_need_more_memory_than_there_is() -> None:
    def fail(problem: Any, *inputs: Any, out: Any) -> None:
        np.empty(2**62, np.uint8)

    poor = Backend("poor", {(SoftMax, "forward"): fail})
    for out in (None, np.empty_like(X)):
        with pytest.raises(
            ShapeError,
            match=r"^SoftMax.forward of x of shape \(2, 4, 4, 2\) \(256 bytes\) needs more memory than there is for "
            r"its intermediate arrays \(Unable to allocate .*; pass a smaller batch, or use another backend$",
        ):
            SoftMax().forward(X, out=out, backend=poor)


# ---- objects --------------------------------------------------------------------------------------------------------


def states() -> list[type[Any]]:
    found = [getattr(mps, name) for name in mps.__all__ if name.endswith("GradientState")]
    return [one for one in found if one is not mps.MPSCNNBatchNormalizationState]


@pytest.mark.parametrize("kind", states(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("record", [None, "x", 3, object()])
def test_the_record_of_a_state(kind: type[Any], record: object) -> None:
    with pytest.raises(TypeError, match=r"^record is of type \w+; it must be a ForwardRecord: the encode of"):
        kind(record)


def test_the_arguments_of_the_state_of_a_batch_normalization() -> None:
    kernel = mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(2))
    with pytest.raises(TypeError, match=r"^record is of type str"):
        mps.MPSCNNBatchNormalizationState(kernel, "x")  # type: ignore[arg-type]


def convolution() -> mps.MPSCNNConvolution:
    descriptor = mps.MPSCNNConvolutionDescriptor(3, 3, 2, 2)
    return mps.MPSCNNConvolution(mps.ArrayConvolutionDataSource(descriptor, np.ones((2, 3, 3, 2), np.float32)))


@pytest.mark.parametrize("other", [None, "x", mps.MPSCNNPoolingMax(3, 3)])
def test_the_layer_that_is_compared(other: Any) -> None:
    with pytest.raises(TypeError, match=r"^other is of type \w+; it must be a convolution or a gradient of one"):
        convolution().same_layer(other)
    assert convolution().same_layer(convolution())


def test_the_state_that_a_transposed_convolution_is_paired_with() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(3, 3, 2, 2)
    source = mps.ArrayConvolutionDataSource(descriptor, np.ones((2, 3, 3, 2), np.float32))
    _, state = mps.MPSCNNConvolutionTranspose(source).encode(X, return_state=True)
    for other in ("x", 3, state.record):
        with pytest.raises(TypeError, match=r"^state is of type \w+; it must be an MPSCNNConvolutionGradientState or"):
            state.pair(other)
    assert state.convolution is None
    _, paired = convolution().encode(X, return_state=True)
    state.pair(paired)
    assert state.convolution is not None


@pytest.mark.parametrize("gradients", [("x", "y"), (None, None), (np.ones(2), np.ones(2)), (np.ones((2, 2)), "y")])
def test_the_gradients_that_are_written_to_a_state(gradients: Any) -> None:
    kernel = mps.MPSCNNInstanceNormalization(mps.InstanceNormalizationDataSource(2))
    _, state = kernel.encode(X, return_state=True)
    with pytest.raises(ShapeError, match=r"^d(gamma|beta) is .*; it must be an array of shape \(2, 2\)"):
        state.write(*gradients)
    assert state.gradient_for_gamma is None


def test_a_padding_policy_without_its_method() -> None:
    pool = mps.MPSCNNPoolingMax(3, 3, padding=mps.MPSNNPadding())
    with pytest.raises(UnsupportedError, match="must define destination_image_descriptor_for_source_images"):
        pool.encode(X)


def test_a_training_graph_has_no_arguments() -> None:
    with pytest.raises(TypeError, match=r"takes 1 positional argument but 2 were given"):
        graph.TrainingGraph("x")  # type: ignore[call-arg]
    for last in ("x", None, 3, graph.MPSNNImageNode("x")):
        with pytest.raises(TypeError, match="last is of type"):
            graph.training_graph(last)  # type: ignore[arg-type]
