"""What holds for the encode of every kernel on images: kinds of images, destinations, command buffers, dtypes."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from mpsref import OrderError, ShapeError, mps, registry
from mpsref.arguments.arrays import Array
from mpsref.mps.core.call import Call
from tests.contracts.test_objects import VALUES, settable
from tests.subjects.classes import LOSS, MADE, WEIGHTS, X, arguments, calls_of, legal_arguments, made

WITHOUT_IMAGES = {
    "MPSCNNBatchNormalization": "reads a state of its own, see tests/mps/test_batch_normalization.py",
    "MPSCNNBatchNormalizationGradient": "as above",
    "MPSCNNBatchNormalizationStatistics": "makes no image",
    "MPSCNNBatchNormalizationStatisticsGradient": "makes no image",
    "MPSCNNYOLOLoss": "takes labels that are a state, see tests/mps/test_yolo_loss.py",
    "MPSCNNLoss": "takes labels that are a state, see tests/mps/test_loss.py",
    "MPSNNLossGradient": "takes two results, see tests/mps/test_loss.py",
    "MPSNNOptimizerAdam": "takes vectors",
    "MPSNNOptimizerRMSProp": "takes vectors",
    "MPSNNOptimizerStochasticGradientDescent": "takes vectors",
    "MPSNNGraph": "is no kernel",
} | {one.__name__: "takes matrices, see tests/mps/test_matrix.py" for one in MADE if "Matrix" in one.__name__[:9]}
KINDS = [kind for kind in MADE if hasattr(kind, "encode") and kind.__name__ not in WITHOUT_IMAGES]

READS_RESULT = mps.MPSCNNSoftMaxGradient, mps.MPSCNNLogSoftMaxGradient
ONE_RESULT_OF_MANY = mps.MPSCNNAddGradient, mps.MPSCNNSubtractGradient, mps.MPSCNNMultiplyGradient

AS_THEY_ARE = mps.MPSCNNSpatialNormalizationGradient, mps.MPSCNNLocalContrastNormalizationGradient
"""With a destination, their offset is not taken from the state, which counts for even windows."""


def kernel(kind: type[Any], backend: str | None = None) -> Any:
    return kind(**arguments(kind), backend=backend)


SIZE = {"reshaped_width": 2, "reshaped_height": 4, "reshaped_feature_channels": 4}


def images_of(
    kind: type[Any], dtype: Any = np.float32, n: int = 2, size: int = 4
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the images of an encode by name, and its other arguments: the state of the forward pass."""
    x = (X[:n, :size, :size] + 1 / 64).astype(dtype)
    if not kind.__name__.endswith("Gradient") or kind is mps.MPSNNInitialGradient:
        names = legal_arguments(made(kind).encode, kind.__name__)
        size = SIZE if kind is mps.MPSNNReshape else {}
        return {name: x for name in names if name not in ("return_state", *SIZE)}, size
    forward = kernel(getattr(mps, kind.__name__.removesuffix("Gradient")))
    size = SIZE if kind is mps.MPSNNReshapeGradient else {}
    y, state = forward.encode(*[x] * (2 if kind in ONE_RESULT_OF_MANY else 1), **size, return_state=True)
    g = np.linspace(-1, 1, y.size, dtype=dtype).reshape(y.shape)
    return {"source_gradient": g, "source_image": y if kind in READS_RESULT else x}, {"gradient_state": state}


def encoded(kind: type[Any], dtype: Any = np.float32, backend: str | None = None, n: int = 2) -> Any:
    images, others = images_of(kind, dtype, n)
    return kernel(kind, backend).encode(**images, **others)


def destination_of(kind: type[Any]) -> str:
    return "destination_gradient" if "source_gradient" in images_of(kind)[0] else "destination_image"


every_kernel = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@every_kernel
def test_what_goes_in_comes_out(kind: type[Any]) -> None:
    expected = encoded(kind)
    assert type(expected) is np.ndarray
    for convert, form in [
        (mps.MPSImage, mps.MPSImage),
        (mps.MPSImageBatch.from_array, mps.MPSImageBatch),
        (lambda x: [mps.MPSImage(x[:1]), mps.MPSImage(x[1:])], mps.MPSImageBatch),
    ]:
        images, others = images_of(kind)
        result = kernel(kind).encode(**{name: convert(x) for name, x in images.items()}, **others)
        assert type(result) is form
        np.testing.assert_array_equal(np.asarray(result), expected)


@every_kernel
def test_a_destination_is_filled_and_returned(kind: type[Any]) -> None:
    expected, name = encoded(kind), destination_of(kind)
    images, others = images_of(kind)
    if kind in AS_THEY_ARE:
        expected = kernel(kind).encode(**images, **others, **{name: np.empty_like(expected)})
    for target in (np.full_like(expected, 7), mps.MPSImage(np.full_like(expected, 7))):
        assert kernel(kind).encode(**images, **others, **{name: target}) is target
        np.testing.assert_array_equal(np.asarray(target), expected)
    for bad, error, words in [
        (np.full(expected.shape, 7, np.int32), TypeError, name),
        (images[next(iter(images))], ValueError, name),
    ]:
        before = bad.copy()
        with pytest.raises(error, match=words):
            kernel(kind).encode(**images, **others, **{name: bad})
        np.testing.assert_array_equal(bad, before)


@every_kernel
def test_a_command_buffer_takes_encodes_until_it_is_committed(kind: type[Any]) -> None:
    buffer, expected = mps.MPSCommandBuffer(), encoded(kind)
    images, others = images_of(kind)
    target = {destination_of(kind): np.full_like(expected, 7)}
    np.testing.assert_array_equal(kernel(kind).encode(**images, **others, command_buffer=buffer), expected)
    buffer.commit()
    with pytest.raises(OrderError, match="command_buffer"):
        kernel(kind).encode(**images, **others, **target, command_buffer=buffer)
    with pytest.raises(TypeError, match="command_buffer"):
        kernel(kind).encode(**images, **others, **target, command_buffer="queue")
    assert all((array == 7).all() for array in target.values())


@every_kernel
def test_float32_and_float16_images(kind: type[Any], seldom_compiled: str) -> None:
    exact = encoded(kind, np.float64, "reference")
    assert exact.dtype == np.float64
    for dtype, rtol in ((np.float32, 1e-4), (np.float16, 2e-2)):
        result = encoded(kind, dtype, seldom_compiled)
        assert result.dtype == dtype
        if seldom_compiled != "reference:input-dtype":
            np.testing.assert_allclose(result, exact, rtol=rtol, atol=rtol * max(1, np.abs(exact).max()))


@every_kernel
def test_an_empty_batch(kind: type[Any]) -> None:
    result = encoded(kind, n=0)
    assert result.shape == (0, *encoded(kind).shape[1:])


class Uses(NamedTuple):
    """An encode, the images and the states that it reads or writes, and its other arguments."""

    kernel: Any
    encode: Callable[..., Any]
    images: dict[str, Array]
    states: dict[str, Any]
    others: dict[str, Any]


def uses(kind: type[Any]) -> Uses:
    """Return an encode of any kernel on images, with all states; the last image is the destination, if there is one."""
    if "BatchNormalization" in kind.__name__:
        forward = mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(2))
        state = forward.result_state_for_source_image(X)
        mps.MPSCNNBatchNormalizationStatistics().encode_batch(X, state)
        if kind is mps.MPSCNNBatchNormalizationGradient:
            mps.MPSCNNBatchNormalizationStatisticsGradient().encode_batch(X, X, state)
        one = forward if kind is mps.MPSCNNBatchNormalization else kernel(kind)
        encode = one.encode_batch if "Statistics" in kind.__name__ else one.encode
        names = [name for name in inspect.signature(encode).parameters if name.startswith("source")]
        found = Uses(one, encode, dict.fromkeys(names, X), {"batch_normalization_state": state}, {})
        if "Statistics" in kind.__name__:
            return found
    elif kind is mps.MPSNNLossGradient:
        y, state = mps.MPSNNForwardLoss(LOSS).encode(X, X, X, return_state=True)
        images = {"source_gradient": y, "source_image": X, "labels": X, "weights": X}
        found = Uses(one := kernel(kind), one.encode, images, {"source_state": state}, {})
    elif kind in (mps.MPSCNNLoss, mps.MPSCNNYOLOLoss):
        x = np.full((2, 1, 1, 6), 0.5, np.float32) if kind is mps.MPSCNNYOLOLoss else X
        found = Uses(
            one := kernel(kind), one.encode, {"source_image": x}, {}, {"labels": mps.MPSCNNLossLabels((1, 1, 1), x)}
        )
    else:
        images, others = images_of(kind)
        one = kernel(kind)
        states = {name: others.pop(name) for name in list(others) if name.endswith("state")}
        found = Uses(one, one.encode, images, states, others)
    parameters = inspect.signature(found.encode).parameters
    name = "destination_gradient" if "source_gradient" in parameters else "destination_image"
    result = found.encode(**found.images, **found.states, **found.others)
    if kind is mps.MPSCNNConvolutionTranspose:
        convolution = mps.MPSCNNConvolution(found.kernel.data_source)
        found.states["convolution_gradient_state"] = convolution.encode(X, return_state=True)[1]
    if "return_state" in parameters and kind is not mps.MPSCNNBatchNormalization:
        found.states["destination_state"] = found.encode(**found.images, **found.others, return_state=True)[1]
    found.images[name] = np.full_like(result, 7)
    return found


def temporary(found: Uses, name: str, buffer: mps.MPSCommandBuffer, batch: bool) -> tuple[dict[str, Any], list[Any]]:
    """Return the arguments of an encode with a temporary image, a batch of them or a temporary state, and those."""
    call = found.images | found.states | found.others
    made = [call[name]]
    if name in found.images:
        made = [mps.MPSTemporaryImage(part) for part in (np.split(call[name], 2) if batch else made)]
        call[name] = made if batch else made[0]
    return call, [one._as_temporary(buffer) for one in made]


def temporary_like(image: Any, buffer: mps.MPSCommandBuffer) -> Any:
    """Return an array as a batch of temporary images, and a list of arrays as a list of such batches."""
    if isinstance(image, list):
        return [temporary_like(one, buffer) for one in image]
    batch = mps.MPSImageBatch.from_array(image)
    for one in batch:
        one._as_temporary(buffer).read_count = 99
    return batch


def optimizer_calls(kind: type[Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of all forms of an optimizer."""
    stems = [name.removesuffix("_vectors") for name in kind.moments]
    for form, shape in (("vector", 2), ("matrix", (1, 2))):
        names = f"input_gradient_{form}", f"input_values_{form}", *(f"{stem}_{form}" for stem in stems)
        call = {name: np.ones(shape, np.float32) for name in names}
        yield call
        yield call | {f"result_values_{form}": np.ones(shape, np.float32)}
    layer, lists = made(mps.MPSCNNConvolution), {name: [WEIGHTS.ravel().copy(), None] for name in kind.moments}
    yield {"convolution_gradient_state": layer.encode(X, return_state=True)[1],
           "convolution_source_state": layer.export_weights_and_biases(), **lists}  # fmt: skip
    state = uses(mps.MPSCNNBatchNormalizationGradient).states["batch_normalization_state"]
    lists = {name: [np.ones(2, np.float32) for _ in "gb"] for name in kind.moments}
    yield {"batch_normalization_state": state, **lists}
    yield {f"batch_normalization_{of}_state": state for of in ("gradient", "source")} | lists


def repeatable(kind: type[Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield encodes of a kernel by their form: with arrays, into destinations, on a command buffer, as a batch."""
    buffer = mps.MPSCommandBuffer()
    if kind not in ON_IMAGES:
        own = kernel(kind, "reference")
        encodes = [name for name in dir(own) if name.startswith("encode") and callable(getattr(own, name))]
        optimizer = issubclass(kind, mps.MPSNNOptimizer)
        for name in encodes:
            method = getattr(own, name)
            for call in optimizer_calls(kind) if optimizer else [legal_arguments(method, kind.__name__)]:
                yield f"{name} {[*call]}", partial(method, **call, command_buffer=buffer)
        return
    found = uses(kind)
    found.kernel.backend = "reference"
    into = {name: image for name, image in found.images.items() if name.startswith("destination")}
    written = {name: state for name, state in found.states.items() if name.startswith("destination")}
    states = {name: state for name, state in found.states.items() if name not in written}
    images = {name: image for name, image in found.images.items() if name not in into}
    temporary = {name: temporary_like(image, buffer) for name, image in images.items()}
    target = {name: temporary_like(image, buffer) for name, image in into.items()}
    listed = {name: [*map(list, x)] if isinstance(x, list) else list(x) for name, x in temporary.items()}
    single = {name: [*map(mps.MPSImage, x)] if isinstance(x, list) else mps.MPSImage(x) for name, x in images.items()}
    encodes = {found.encode, getattr(found.kernel, "encode_batch", found.encode)}
    for encode in sorted(encodes, key=lambda encode: encode.__name__):
        for form, call in {
            "arrays": images,
            "images": single,
            "lists of images": listed,
            "arrays into an array": images | into,
            "arrays, with a state to write": images | written,
            "a batch, on a command buffer": temporary | {"command_buffer": buffer},
            "a batch into a batch, on a command buffer": temporary | target | {"command_buffer": buffer},
            "the same, with a state to write": temporary | target | written | {"command_buffer": buffer},
        }.items():
            yield f"{encode.__name__}: {form}", partial(encode, **call, **states, **found.others)


NOT_COUNTED = """
The first encode of each shape, and those with a custom padding policy, which make a call.
Lists of arrays, and a state or labels for each image, which are read one by one.
Batch normalization with a neuron, whose comparison and hash are two functions more.
Runs of graphs: see tests/mps/test_graph_run.py.
"""
"""What no test of the number of functions looks at."""


@pytest.mark.parametrize("kind", [one for one in MADE if issubclass(one, mps.MPSKernel)], ids=lambda one: one.__name__)
def test_an_encode_is_few_functions_away_from_the_registry(kind: type[Any]) -> None:
    """No detour is left on the way; not looked at is NOT_COUNTED."""
    ends = {registry.run.__code__, registry.call.__code__}
    if kind is mps.MPSNNInitialGradient:  # which calls no operation, but has ones
        ends = {made(kind)._problem([X.shape], X.shape[1:3]).compute.__code__}
    for form, encode in repeatable(kind):
        for _ in range(2):
            encode()
        calls = calls_of(encode)
        before = itertools.takewhile(lambda code: code not in ends, calls)
        names = {(code.co_filename, code.co_qualname) for code in before}
        assert 3 < len(names) <= 26, (form, len(names), names)
        assert ends & set(calls), (form, "the registry is not reached")


OTHER = "MPSMatrix|Optimizer"
ON_IMAGES = [one for one in MADE if issubclass(one, mps.MPSKernel) and not re.search(OTHER, one.__name__)]
on_images = pytest.mark.parametrize("kind", ON_IMAGES, ids=lambda kind: kind.__name__)


@on_images
def test_a_temporary_image_or_state_that_cannot_be_used_is_refused(kind: type[Any]) -> None:
    """Nothing is written, counted or changed then; this holds for the image of a batch, too."""
    found = uses(kind)
    reasons = "read_count is 0", "of another command buffer", "status Committed"
    for name, batch, words in itertools.product(found.images | found.states, (False, True), reasons):
        found, buffer = uses(kind), mps.MPSCommandBuffer()
        before = found.kernel.copy()
        call, made = temporary(found, name, buffer, batch)
        if words == "read_count is 0":
            made[-1].read_count = 0
        elif words == "status Committed":
            buffer.commit()
        else:
            call["command_buffer"] = mps.MPSCommandBuffer()
        counts = [one.read_count for one in made]
        with pytest.raises(OrderError, match=rf"^{name.removesuffix('s')}s? is a temporary \w+ .*{words}"):
            found.encode(**call)
        assert [one.read_count for one in made] == counts
        assert found.kernel == before
        for key in found.images.keys() & {"destination_image", "destination_gradient"}:
            target = mps.MPSImageBatch(call[key]) if isinstance(call[key], list) else call[key]
            assert (np.asarray(target) == 7).all()


@on_images
def test_an_encode_counts_the_reads_of_temporary_images_and_states(kind: type[Any]) -> None:
    found = uses(kind)
    for name, batch in itertools.product(found.images | found.states, (False, True)):
        found, buffer = uses(kind), mps.MPSCommandBuffer()
        call, made = temporary(found, name, buffer, batch)
        found.encode(**call, command_buffer=buffer)
        reads = not name.startswith("destination_") and kind is not mps.MPSCNNBatchNormalizationStatistics
        left = 0 if reads or name == "source_images" else 1
        assert [one.read_count for one in made] == [left] * len(made), name


FORWARD = [kind for kind in KINDS if "destination_state" in inspect.signature(kind.encode).parameters]


@pytest.mark.parametrize("kind", FORWARD, ids=lambda kind: kind.__name__)
def test_a_state_can_be_made_before_the_encode(kind: type[Any]) -> None:
    """An encode with this destination state writes what another encode returns, for the gradient kernel, too."""
    for form in ("", "batch", "temporary", "temporary batch"):
        found = uses(kind)
        target = found.images.pop("destination_image")
        plain = next(name for name in dir(kind) if name.startswith("result_state_for_"))
        name = plain.replace("state", "state_batch") if "batch" in form else plain
        leading: tuple[Any, ...] = ()
        if "temporary" in form:
            name, leading = f"temporary_{name.partition('_for_')[0]}_for_command_buffer", (mps.MPSCommandBuffer(),)
        legal = inspect.signature(getattr(kind, plain)).parameters
        sources = {key: image for key, image in found.images.items() if key in legal}
        one, other = kernel(kind), kernel(kind)
        made = getattr(one, name)(*leading, **sources, destination_image=target)
        assert one == other
        y, state = other.encode(**found.images, return_state=True, **found.others)
        assert one.encode(**found.images, **found.others, destination_image=target, destination_state=made) is target
        np.testing.assert_array_equal(y, target, form)
        for k, mine in enumerate(made if isinstance(made, list) else [made]):
            theirs = state.record.of_image(k) if isinstance(made, list) else state.record
            assert (type(mine), mine.is_temporary) == (type(state), "temporary" in form), form
            for part in ("kernel_class", "source_shapes", "destination_shape", "clip_rect"):
                assert getattr(mine.record, part) == getattr(theirs, part), (form, part)
        gradient = getattr(mps, f"{kind.__name__}Gradient", None)
        if gradient in KINDS:
            images, _ = images_of(gradient)
            results = [kernel(gradient).encode(**images, gradient_state=one) for one in (made, state)]
            np.testing.assert_array_equal(*results, form)


def outcome(one: Any, call: dict[str, Any]) -> Any:
    """Return the result of an encode, or its error."""
    try:
        return one.encode(**call)
    except (ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


@every_kernel
def test_repeated_encodes_use_the_current_properties(kind: type[Any]) -> None:
    images, others = images_of(kind)
    call = images | others | ({"sequence": 1} if kind is mps.MPSCNNDropout else {})
    expected = kernel(kind).encode(**call)
    for name in settable(kind):
        one, fresh = kernel(kind), kernel(kind)
        before = getattr(fresh, name)
        for value in VALUES:
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                setattr(fresh, name, value)
                if getattr(fresh, name) != before:
                    break
        else:
            continue  # it is read-only
        for _ in range(3):
            np.testing.assert_array_equal(one.encode(**call), expected)
        setattr(one, name, value)
        wanted = outcome(fresh, call)
        for _ in range(2):
            np.testing.assert_array_equal(outcome(one, call), wanted, name)


def in_two_threads(one: Any, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    """Return the results of two encodes, both of which configure the kernel before either of them computes."""
    both = threading.Barrier(2, timeout=20)
    owner, name = (type(one), "_run_with_state") if hasattr(one, "_run_with_state") else (Call, "run")
    run = getattr(owner, name)

    def after_both_are_configured(*arguments: Any) -> Any:
        both.wait()
        return run(*arguments)

    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(owner, name, after_both_are_configured)
        return list(pool.map(lambda call: one.encode(**call), calls))


@every_kernel
def test_two_threads_encode_with_one_kernel(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    size = 4 if "Reshape" in kind.__name__ or "FullyConnected" in kind.__name__ else 3
    calls = [images | others for images, others in (images_of(kind), images_of(kind, n=1, size=size))]
    one = kernel(kind)
    found = in_two_threads(one, calls, monkeypatch)
    if kind is mps.MPSCNNDropout:  # the masks 0 and 1, one for each thread
        first = int(not np.array_equal(found[0], kernel(kind).encode(**calls[0], sequence=0)))
        calls = [call | {"sequence": k} for call, k in zip(calls, (first, 1 - first), strict=True)]
        assert one.sequence == 2
    for result, call in zip(found, calls, strict=True):
        np.testing.assert_array_equal(result, kernel(kind).encode(**call))


PARTS: dict[str, Any] = {
    "offset": (1, 0, 0), "edge_mode": 1, "primary_offset": (1, 0), "secondary_offset": (1, 0), "kernel_offset_x": 1,
    "kernel_offset_y": 1, "source_feature_channel_offset": 4, "source_feature_channel_max_count": 1,
    "primary_source_feature_channel_offset": 4, "secondary_source_feature_channel_max_count": 1,
    "destination_feature_channel_offset": 4, "clip_rect": ((0, 0, 0), (1, 1, 1)),
}  # fmt: skip
"""Properties with which a kernel reads or writes parts of its images, or places them elsewhere."""

BY_STATE = "ConvolutionTransposeGradient|FullyConnectedGradient"
IGNORED = {
    "clip_rect": "no class",
    "offset": "FullyConnected|InitialGradient|MPSNNReduce",
    "edge_mode": "CrossChannel|FullyConnected|Group|Instance|SoftMax|Neuron|CNNPoolingMax|InitialGradient|MPSNNPad",
    "secondary_offset": f"{BY_STATE}|MPSCNNConvolutionGradient",  # counts for the weights alone
    "secondary_source_feature_channel_max_count": f"{BY_STATE}|Dropout|Group|Instance",
}
"""Classes on whose results a property has no effect; of others that is the state of the forward pass."""


@every_kernel
def test_a_part_of_an_image_is_computed_or_refused(kind: type[Any]) -> None:
    """A refusal names the property, and comes before anything is written or changed."""
    images, others = images_of(kind)
    plain = np.full_like(encoded(kind), 7)
    kernel(kind).encode(**images, **others, **{destination_of(kind): plain})
    for name in sorted(PARTS.keys() & settable(kind)):
        if name == "edge_mode" and kind is mps.MPSCNNConvolutionTranspose:  # Zero alone
            continue
        one, found = kernel(kind), np.full_like(plain, 7)
        setattr(one, name, PARTS[name])
        before, result = one.copy(), outcome(one, images | others | {destination_of(kind): found})
        if isinstance(result, str):
            assert result.startswith(f"UnsupportedError: {name} is ") or not result.startswith("UnsupportedError")
            assert (found == 7).all(), name
            assert one == before, name
        else:
            without_effect = re.search(IGNORED.get(name, BY_STATE), kind.__name__)
            assert bool(without_effect) == np.array_equal(found, plain), name


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "source_gradient" in images_of(kind)[0]], ids=str)
def test_states_and_images_of_another_pass_are_refused(kind: type[Any]) -> None:
    """Nothing is written or changed then."""
    images, others = images_of(kind)
    _, pooled = mps.MPSNNSlice().encode(X, return_state=True)
    g, x = images.values()
    for changed, error, words in [
        ({"gradient_state": pooled}, TypeError, "gradient_state (was left by|is of type)"),
        ({"gradient_state": "state"}, TypeError, "gradient_state is of type str"),
        ({"source_gradient": np.concatenate([g, g], axis=1)}, ShapeError, "source_gradient has shape"),
        ({"source_image": x[:1]}, ValueError, "source_image|has shape"),
        ({"source_image": np.concatenate([x, x], axis=2)}, ShapeError, "source_image has shape"),
    ]:
        one, target = kernel(kind), np.full_like(encoded(kind), 7)
        before = one.copy()
        for into in ({}, {destination_of(kind): target}):
            if into and "Shape" in error.__name__:
                continue  # with a destination, an image of any size is read as the properties say
            with pytest.raises(error, match=words):
                one.encode(**images | others | changed | into)
            assert one == before
        assert (target == 7).all()


def test_two_threads_encode_with_another_offset_each(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [{"source_image": X[:, :size, :size]} for size in (4, 3)]
    kernels = [mps.MPSCNNPoolingMax(2, 2, 2, 2) for _ in range(3)]
    found = in_two_threads(kernels[2], calls, monkeypatch)
    for one, result, call in zip(kernels, found, calls, strict=False):
        np.testing.assert_array_equal(result, one.encode(**call))
    assert kernels[0].offset != kernels[1].offset
    assert kernels[2].offset in (kernels[0].offset, kernels[1].offset)
