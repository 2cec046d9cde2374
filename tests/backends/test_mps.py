"""Apple's kernels as a backend, over the fake of the Objective-C runtime: the calls are legal and their results right.

None of this has run on a Mac. A mistake in the calls must fail here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import mpsref
import mpsref_apple
from mpsref import cli, registry
from mpsref.conformance import checker
from mpsref.conformance.case import operation_named
from mpsref.conformance.checker import check_operation
from mpsref.errors import UnsupportedError
from mpsref.operations import operations
from mpsref_apple import fake_kernels, normalization, over_fake, runtime, training, weighted, windows
from mpsref_apple.fake import NO_CLIP, Fake, NSObject, Refusal, Selector, headers
from mpsref_apple.fake_kernels import device
from mpsref_apple.probe.run import replay
from tests import few

BACKEND = replace(mpsref_apple.backend, distinct_problems=4)
SUPPORTED = [str(operation) for operation in operations() if operation in BACKEND.implementations]
RUNS = [name for name in SUPPORTED if not name.startswith("Dropout")]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(checker, "SHRINK_SECONDS", 0)  # whether a mistake fails is enough
    made = device()
    with runtime.using(made.runtime()):
        yield made


@pytest.fixture
def few_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out layers whose arrays have thousands of slices: the fake checks each message to each of them."""
    layers = checker.layer_cases
    short = lambda case: all(prod(shape[::3]) < 1000 for shape in case.problem.input_shapes.values())  # noqa: E731
    monkeypatch.setattr(checker, "layer_cases", lambda operation: [one for one in layers(operation) if short(one[1])])


def check(name: str, number: int = 6, backend: mpsref.Backend = BACKEND) -> Any:
    (row,) = check_operation(operation_named(name), [backend], number)
    return row


@pytest.mark.usefixtures("few_slices")
@pytest.mark.parametrize("name", few([*RUNS][::3] + [*RUNS][1::3] + [*RUNS][2::3], 24))
def test_operation(name: str) -> None:
    row = check(name)
    assert row.status == "passed", row.failures[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_layers_of_any_size(name: str) -> None:
    row = check(name)
    assert row.status == "passed", row.failures[-1]


MANUAL: dict[str, dict[str, Any]] = {
    "primary offset": {"primary_offset": (1, 0)},
    "source size": {"source_size": (1, 2)},
    "kernel offset": {"kernel_offset": (0, -1)},
    "clip": {"clip": ((1, 0), (2, 3))},
    "all": {"primary_offset": (-1, 1), "source_size": (2, 1), "kernel_offset": (1, 2), "clip": ((0, 1), (4, 3))},
}


def agrees(options: dict[str, Any], kind: Any) -> bool:
    rng = np.random.default_rng(1)
    g, x = rng.normal(size=(2, 3, 2, 5)).astype(np.float32), rng.normal(size=(2, 5, 6, 5)).astype(np.float32)
    spec = kind((3, 2), (2, 3), offset=(2, 0))
    expected = spec.gradient(g, x, **options)
    return np.allclose(spec.gradient(g, x, **options, backend=BACKEND), expected, 1e-5, 1e-6)


@pytest.mark.parametrize("kind", [mpsref.PoolingMax, mpsref.PoolingAverage, mpsref.PoolingL2Norm])
@pytest.mark.parametrize("options", MANUAL)
def test_properties_of_a_pooling_gradient_are_set(options: str, kind: Any) -> None:
    assert agrees(MANUAL[options], kind)


def test_without_a_mac_it_is_unavailable_with_a_reason() -> None:
    with runtime.using(None):  # type: ignore[arg-type]
        reason = runtime.unavailable()
    assert reason is None or "macOS" in reason or "PyObjC" in reason or "Metal has no device" in reason


# --- planted mistakes -------------------------------------------------------------------------------------------------


def swapped(pair: tuple[int, int]) -> tuple[int, int, int]:
    return pair[0], pair[1], 0


def planar(self: runtime.Runtime, x: Any) -> list[Any]:
    images = self.images(x.shape)
    for image, pixels in zip(images, np.asarray(x, np.float32), strict=True):
        image.writeBytes_dataLayout_imageIndex_(np.ascontiguousarray(pixels.transpose(2, 0, 1)).tobytes(), 0, 0)
    return images


def shifted_slices(self: runtime.Runtime, x: Any) -> list[Any]:
    return original_upload(self, np.roll(x, 1, axis=3) if x.shape[3] > 4 else x)


original_upload = runtime.Runtime.upload
original_source = weighted.source_of
original_pooling = windows.configure_pooling


def transposed(run: Any, problem: Any, weights: Any, *biases: Any) -> Any:
    return original_source(run, problem, np.ascontiguousarray(weights.transpose(0, 2, 1, 3)), *biases)


def half_precision(run: Any, problem: Any, weights: Any, *biases: Any) -> Any:
    source = original_source(run, problem, weights, *biases)
    source.values["kernelWeightsDataType"] = run.constant("MPSDataTypeFloat16")
    return source


def without_clip(run: Any, kernel: Any, problem: Any) -> None:
    original_pooling(run, kernel, problem)
    kernel.setClipRect_(NO_CLIP)


def without_source_size(run: Any, kernel: Any, problem: Any) -> None:
    original_pooling(run, kernel, replace(problem, source_size=None))


def without_kernel_offset(run: Any, kernel: Any, problem: Any) -> None:
    original_pooling(run, kernel, problem)
    kernel.setKernelOffsetX_(0)


def fresh_state(run: Any, problem: Any, given: Any, state: Any, *images: Any) -> None:
    """Leave out the statistics."""


MISTAKES: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "offset swapped": ("PoolingAverage.forward", windows, "offset_of", swapped),
    "offset of a convolution swapped": ("Convolution.gradient_data", weighted, "offset_of", swapped),
    "planar pixels": ("SoftMax.forward", runtime.Runtime, "upload", planar),
    "channels one slice off": ("Neuron.forward", runtime.Runtime, "upload", shifted_slices),
    "weights OWHI": ("Convolution.forward", weighted, "source_of", transposed),
    "weights in float16": ("Convolution.forward", weighted, "source_of", half_precision),
}


@pytest.mark.usefixtures("few_slices")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_fails(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, module, attribute, wrong = MISTAKES[mistake]
    monkeypatch.setattr(module, attribute, wrong)
    several = replace(BACKEND, distinct_problems=12)
    assert check(name, 24, several).status == "failed"


MANUAL_MISTAKES = {
    "clip": without_clip,
    "source size": without_source_size,
    "kernel offset": without_kernel_offset,
}


@pytest.mark.parametrize("options", MANUAL_MISTAKES)
def test_a_property_that_is_not_set_fails(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "configure_pooling", MANUAL_MISTAKES[options])
    assert not agrees(MANUAL[options], mpsref.PoolingMax)


@pytest.mark.parametrize("name", ["gradientForWeights", "gradientForBiases"])
def test_a_wrong_buffer_of_a_state_fails(fake: Fake, name: str) -> None:
    fake.planted["MPSCNNConvolutionGradient", name] = lambda values: values * 2
    assert check("Convolution.gradient_weights").status == "failed"


def test_sums_of_a_call_get_into_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    g, x = rng.normal(size=(2, 2, 3, 3, 2)).astype(np.float32)
    vectors = np.float32([[3, -2], [1, 36], [7, -1], [-5, 2]])
    mean, variance, dbeta, dgamma = vectors
    spec, sums = mpsref.BatchNormalization(1e-3), mpsref.BatchGradientSums(5, dbeta, dgamma)
    calls: list[Callable[[Any], Any]] = [
        lambda backend: spec.gradient(g, x, mean, variance, sums=sums, backend=backend),
        lambda backend: np.stack(spec.statistics_gradient(g, x, mean, variance, state=sums, backend=backend)[1:]),
        lambda backend: np.stack(spec.statistics(x, mpsref.BatchStatistics(5, mean, variance), backend=backend)[1:]),
    ]
    for call in calls:
        np.testing.assert_allclose(call(BACKEND), call("reference"), 1e-5, 1e-5)
    for name, change in (("pixels_with", np.float32(0.25)), ("gradients_with", np.float32(1))):
        original = getattr(normalization, name)
        monkeypatch.setattr(normalization, name, lambda *given, made=original, more=change: made(*given) + more)
    for call in calls:
        assert not np.allclose(call(BACKEND), call("reference"), 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("count", "mean", "neuron", "reason"),
    [
        (1, 1, None, "no 1 float32 numbers have the mean and the variance of the call"),
        (4, 1e8, None, "no 4 float32 numbers have"),
        (4, 1, mpsref.Neuron("tanh", 1, 1), "mean of a call with a neuron is not that of its batch"),
        (20000, 1, None, "a texture of Metal is at most 16384 wide"),
    ],
)
def test_sums_that_no_images_have_are_refused(count: int, mean: float, neuron: Any, reason: str) -> None:
    x, ones = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2), np.ones(2, np.float32)
    sums = mpsref.BatchGradientSums(count, ones, ones)
    with pytest.raises(UnsupportedError, match=f"{reason}.*cannot initialize the size of its own"):
        mpsref.BatchNormalization(1e-3, neuron).gradient(x, x, ones * mean, ones, sums=sums, backend=BACKEND)


def test_dropout_draws_its_mask_and_the_gradient_has_the_same(fake: Fake) -> None:
    run, ones = runtime.in_use(), np.ones((2, 40, 50, 4), np.float32)
    y, dx = training.dropped(run, mpsref.Dropout(0.75, seed=3), ones, ones)
    assert y.tolist() == dx.tolist()
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
    assert abs((y > 0).mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / y.size)
    with pytest.raises(UnsupportedError, match="draws its mask: it is stored internally"):
        mpsref.Dropout(0.5).mask((1, 2, 2, 1), backend=BACKEND)


REFUSED = [
    (mpsref.SpatialNormalization((3, 5)), "forward", ((1, 5, 5, 1),), "equal width and height"),
    (mpsref.UpsamplingBilinear(2, True), "gradient", ((1, 4, 4, 1),), "has no alignCorners"),
    (mpsref.Arithmetic("add", primary_offset=(0, 0, 1)), "forward", ((1, 2, 2, 3), (1, 2, 2, 2)), "multiples of 4"),
    (mpsref.Convolution(1, groups=2), "forward", ((1, 2, 2, 4), (4, 1, 1, 2)), "multiple of 4 of both"),
    (mpsref.Convolution(1, groups=2), "forward", ((1, 2, 2, 2), (4, 1, 1, 1)), "channel multiplier of 1"),
]


@pytest.mark.parametrize(("spec", "method", "shapes", "reason"), REFUSED, ids=[row[3] for row in REFUSED])
def test_what_mps_documents_as_illegal_is_refused(spec: Any, method: str, shapes: Any, reason: str) -> None:
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    with pytest.raises(UnsupportedError, match=reason):
        getattr(spec, method)(*arrays, backend=BACKEND)


# --- what the fake refuses --------------------------------------------------------------------------------------------


def kernel(fake: Fake) -> Any:
    return fake.MPSCNNPoolingMax.alloc().initWithDevice_kernelWidth_kernelHeight_(
        fake.MTLCreateSystemDefaultDevice(), 2, 2
    )


def unsynchronized(fake: Fake) -> Any:
    run = runtime.in_use()
    sources, results = run.upload(np.ones((1, 2, 2, 1))), run.images((1, 2, 2, 1))
    with run.commands() as commands:
        pool = run.new("MPSCNNSoftMax")
        pool.encodeBatchToCommandBuffer_sourceImages_destinationImages_(commands, sources, results)
    return run.download(results)


def temporary(fake: Fake) -> Any:
    run, x = runtime.in_use(), np.ones((1, 2, 2, 1), np.float32)
    spec = mpsref.PoolingMax(1)
    gradient, state_of = windows.pooling_kernel(run, spec, "Gradient"), windows.forward_pooling(run, spec)
    images = run.upload(x)
    states = state_of.resultStateBatchForSourceImage_sourceStates_destinationImage_(images, None, run.images(x.shape))
    results: list[Any] = []
    with run.commands(results) as commands:
        encode = gradient.encodeBatchToCommandBuffer_sourceGradients_sourceImages_gradientStates_
        results += encode(commands, images, images, states)
    return run.download(results)


def committed(fake: Fake) -> Any:
    run = runtime.in_use()
    images = run.upload(np.ones((1, 1, 1, 1)))
    with run.commands() as commands:
        pass
    return run.new("MPSCNNSoftMax").encodeBatchToCommandBuffer_sourceImages_destinationImages_(
        commands, images, run.images((1, 1, 1, 1))
    )


def bytes_for_weights(fake: Fake) -> Any:
    source = type("Source", (NSObject,), {"weights": Selector(lambda self: b"\0" * 4, b"weights", b"^v@:")})()
    return fake.ask(source, "weights", 1)


def only_for_subclasses(fake: Fake) -> Any:
    """Metadata for the concrete class alone: it may inherit the method, for which PyObjC asks the superclass."""
    objc = type(fake.objc)()
    objc.registerMetaDataForSelector(b"MPSCNNAdd", b"initWithDevice:", {})
    fake.objc = objc
    return runtime.in_use().new("MPSCNNAdd")


CALLS: dict[str, tuple[Callable[[Fake], Any], str]] = {
    "selector": (lambda f: kernel(f).setKernelOffset_((0, 0, 0)), "has no selector setKernelOffset:"),
    "class": (lambda f: f.MPSCNNPoolingMin, "has MPSCNNPoolingMin"),
    "member": (lambda f: f.MPSImageEdgeModeWrap, "has MPSImageEdgeModeWrap"),
    "number of arguments": (lambda f: kernel(f).setOffset_(0, 0), "takes 1 arguments, not 2"),
    "struct": (lambda f: kernel(f).setOffset_((0, 0)), "must be MPSOffset"),
    "sign": (lambda f: kernel(f).setClipRect_(((-1, 0, 0), (1, 1, 1))), "must be MTLRegion"),
    "enumeration": (lambda f: kernel(f).setEdgeMode_(7), "must be MPSImageEdgeMode"),
    "float for a count": (lambda f: kernel(f).setDestinationFeatureChannelOffset_(4.0), "must be NSUInteger"),
    "number for a flag": (lambda f: f.MPSCNNLossDescriptor.cnnLossDescriptorWithType_reductionType_(0, 9), "Reduction"),
    "nil": (lambda f: f.MPSCNNSoftMax.alloc().initWithDevice_(None), "must be id<MTLDevice>"),
    "uninitialized": (lambda f: f.MPSCNNSoftMax.alloc().setOffset_((0, 0, 0)), "was not initialized"),
    "pointer": (
        lambda f: kernel(f).encodeToCommandBuffer_sourceImage_destinationState_destinationStateIsTemporary_(
            runtime.in_use().queue.commandBuffer(), runtime.in_use().images((1, 1, 1, 1))[0], None, False
        ),
        "PyObjC's metadata has no conversion",
    ),
    "unsynchronized": (unsynchronized, "synchronize it, commit and wait"),
    "temporary": (temporary, "temporary image cannot be read"),
    "committed": (committed, "was committed before"),
    "unavailable": (only_for_subclasses, "'initWithDevice:' is NS_UNAVAILABLE for MPSCNNArithmetic"),
    "bytes for weights": (bytes_for_weights, "cannot convert an array of void"),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_fake_refuses(call: str, fake: Fake) -> None:
    function, message = CALLS[call]
    with pytest.raises((Refusal, AttributeError), match=message):
        function(fake)


@pytest.mark.parametrize(("name", "selector"), runtime.ABSTRACT.items())
def test_initializers_that_pyobjc_refuses_are_made_available(name: str, selector: str, fake: Fake) -> None:
    kinds = [kind for kind, known in headers()["classes"].items() if known["super"] == name and "Base" not in kind]
    assert kinds
    arguments = [fake.MTLCreateSystemDefaultDevice(), *([True] if "Secondary" in selector else [])]
    for kind in kinds:
        assert getattr(getattr(fake, kind).alloc(), selector.replace(":", "_"))(*arguments).ready
    del fake.objc.metadata[name, selector]
    with pytest.raises(Refusal, match=f"NS_UNAVAILABLE for {name}"):
        getattr(getattr(fake, kinds[0]).alloc(), selector.replace(":", "_"))(*arguments)


def test_arrays_of_results_are_no_lists(fake: Fake) -> None:
    run, x = runtime.in_use(), np.ones((2, 2, 2, 1), np.float32)
    kernel = windows.forward_pooling(run, mpsref.PoolingMax(1))
    images = run.upload(x)
    states = kernel.resultStateBatchForSourceImage_sourceStates_destinationImage_(images, None, run.images(x.shape))
    assert not isinstance(states, list)
    assert isinstance(states, Sequence)
    assert isinstance(states[:1], list)
    assert len(states) == 2


def test_gradients_of_batch_statistics_are_nil_before_the_gradient_kernel(fake: Fake) -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 2, 2, 1)
    seen = []
    original = normalization.encode_gradients

    def encode(run: Any, spec: Any, state: Any, *images: Any) -> None:
        seen.append((state.gradientForGamma(), state.gradientForBeta()))
        original(run, spec, state, *images)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalization, "encode_gradients", encode)
        mpsref.BatchNormalization(1e-3).statistics_gradient(x, x, *np.ones((2, 1), np.float32), backend=BACKEND)
    assert seen == [(None, None)]


def test_images_are_read_in_their_format(fake: Fake) -> None:
    run, x = runtime.in_use(), np.float32([1, 2**-11, 1 + 2**-11]).reshape(1, 1, 3, 1)
    (image,) = run.images(x.shape, "Float16")
    image.writeBytes_dataLayout_imageIndex_(x.astype(np.float16).tobytes(), 0, 0)
    assert run.download([image]).ravel().tolist() == [1, 2**-11, 1]
    fake.planted["MPSImage", "format"] = lambda values: values * 0 + 2
    with pytest.raises(UnsupportedError, match="MPSImageFeatureChannelFormat 2; only float16 and float32"):
        run.download([image])


def test_a_gradient_without_the_state_that_configures_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "on_resultStateBatchForSourceImage_sourceStates_destinationImage_"
    monkeypatch.setattr(fake_kernels.Mirror, name, lambda *arguments: None, raising=False)
    x = np.ones((1, 4, 4, 1), np.float32)
    with pytest.raises(UnsupportedError, match="made no state, so its gradient kernel has neither the offset"):
        mpsref.PoolingAverage(3, 2, offset=1).gradient(x[:, :2, :2], x, backend=BACKEND)
    assert mpsref.PoolingAverage(1).gradient(x, x, backend=BACKEND).tolist() == x.tolist()


def test_a_data_source_without_a_required_method_is_refused(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(weighted.SIGNATURES, "biasTerms")
    with pytest.raises(Refusal, match="lacks biasTerms, which MPSCNNConvolutionDataSource requires"):
        mpsref.Convolution(1).forward(*np.ones((2, 1, 1, 1, 1), np.float32), backend=BACKEND)


def test_channels_lie_in_slices_of_four(fake: Fake) -> None:
    x = np.arange(2 * 3 * 6, dtype=np.float32).reshape(1, 2, 3, 6)
    (image,) = runtime.in_use().upload(x)
    assert image.slices.shape == (2, 2, 3, 4)
    assert image.slices[1, 1, 2].tolist() == [34, 35, 0, 0]


def test_signatures_are_those_of_the_protocol(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = np.ones((2, 1, 1, 1, 1), np.float32)
    monkeypatch.setitem(weighted.SIGNATURES, "load", b"q@:")
    assert mpsref.Convolution(1).forward(*arguments, backend=BACKEND).ravel().tolist() == [1]


def test_a_signature_that_is_not_that_of_the_protocol_is_refused(fake: Fake) -> None:
    methods = {name: Selector(lambda self: None, name.encode(), b"q@:") for name in weighted.SIGNATURES}
    with pytest.raises(Refusal, match="dataType has the signature q@:, in the protocol I@:"):
        type("Source", (NSObject,), methods, protocols=[fake.objc.protocolNamed("MPSCNNConvolutionDataSource")])


# --- the backend mps:fake ---------------------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``mps:fake`` known by name, also where the installed package is older; without another runtime."""
    monkeypatch.setattr(runtime.current, "modules", None)
    monkeypatch.setitem(registry._registered, "mps:fake", over_fake.backend)


def command(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, ["check", *arguments, "--jobs", "1"])


FEW = "-k", "PoolingMax.gradient", "-k", "BatchNormalization.forward"


@pytest.mark.slow
@pytest.mark.usefixtures("installed", "few_layers")
def test_the_command_runs_over_the_fake() -> None:
    done = command("-b", "mps:fake", *FEW, "--cases", "6")
    assert done.exit_code == 0, done.output
    assert "2 passed" in done.output
    assert runtime.current.modules is None


@pytest.mark.usefixtures("installed", "few_layers", "unshrunk")
def test_a_planted_mistake_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    name, module, attribute, wrong = MISTAKES["offset swapped"]
    monkeypatch.setattr(module, attribute, wrong)
    done = command("-b", "mps:fake", "-k", name, "--cases", "24")
    assert done.exit_code == 1, done.output
    assert "1 failed" in done.output


@pytest.mark.usefixtures("installed")
def test_the_fake_is_not_taken_for_apples_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    (info,) = [info for info in mpsref.backends() if info.name == "mps:fake"]
    assert info.available
    assert info.device == "a fake of Metal Performance Shaders, computed by the reference"
    assert "mps:fake" in registry.named_only()
    assert mpsref_apple.backend.name == "mps"
    with pytest.raises(UnsupportedError, match="objects of MPS"):
        replay("graph-order", 0, over_fake.backend)
    monkeypatch.setattr(registry, "_names", lambda: ["reference", "mps:fake"])
    assert "Ran on reference." in CliRunner().invoke(cli.app, ["golden"]).output
