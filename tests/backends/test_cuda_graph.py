"""Classes and graphs of mpsref.mps with images on the device, over the fake cuda.core and on an NVIDIA GPU."""

from __future__ import annotations

import numpy as np
import pytest

import mpsref
from anymetal import cuda
from mpsref import mps
from mpsref.mps import graph
from mpsref.training.trainer import Settings, Trainer
from tests import few
from tests.mps.graph_checks import check_backends
from tests.mps.graph_plans import BINARY, ENDS, UNARY, Action, Plan

CHANNELS, OUTPUTS = 4, 8


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.nvidia)])
def device(request):
    if request.param == "fake":
        request.getfixturevalue("fake_cuda")
    return cuda.open_device()


@pytest.fixture
def downloads(monkeypatch):
    """The shapes of the arrays that were copied to the host."""
    found, before = [], cuda.Device.download

    def download(self, array):
        found.append(array.shape)
        return before(self, array)

    monkeypatch.setattr(cuda.Device, "download", download)
    return found


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def convolution(kernel):
    descriptor = mps.MPSCNNConvolutionDescriptor(3, 3, CHANNELS, OUTPUTS)
    source = mps.ArrayConvolutionDataSource(descriptor, random(OUTPUTS, 3, 3, CHANNELS, seed=5), random(OUTPUTS))
    return kernel(source)


def normalization():
    return mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(CHANNELS, epsilon=1e-3))


def convolved(x):
    y, state = convolution(mps.MPSCNNConvolution).encode(x, return_state=True)
    dx = convolution(mps.MPSCNNConvolutionGradient).encode(y, x, state)
    state.synchronize()
    return y, dx, state.gradient_for_weights, state.gradient_for_biases


def normalized(x):
    kernel = normalization()
    state = kernel.result_state_for_source_image(x)
    mps.MPSCNNBatchNormalizationStatistics().encode_batch(x[:1], state)
    mps.MPSCNNBatchNormalizationStatistics().encode_batch(x[1:], state)
    y = kernel.encode(x, batch_normalization_state=state)
    mps.MPSCNNBatchNormalizationStatisticsGradient().encode_batch(y, x, state)
    dx = mps.MPSCNNBatchNormalizationGradient().encode(y, x, state)
    state.synchronize()
    return y, dx, state.mean, state.variance, state.gradient_for_gamma, state.gradient_for_beta


def pooled(x):
    y, state = mps.MPSCNNPoolingMax(3, 3, 2, 2).encode(x, return_state=True)
    clipped = mps.MPSCNNPoolingAverage(2, 2, 2, 2, clip_rect=((1, 0, 0), (2, 2, 2))).encode(x, destination_size=(3, 4))
    return y, mps.MPSCNNPoolingMaxGradient(3, 3, 2, 2).encode(y, x, state), clipped


def dropped(x):
    y, state = mps.MPSCNNDropout(0.5, 1, (1, 1, 1)).encode(x, return_state=True)
    return y, mps.MPSCNNDropoutGradient(0.5, 1, (1, 1, 1)).encode(x, x, state)


def lost(x):
    labels = mps.MPSCNNLossLabels((1, 1, 1), abs(random(*x.shape, seed=9)))
    dx = mps.MPSCNNLoss(mps.MPSCNNLossDescriptor("softmaxcrossentropy", "sum")).encode(x, labels)
    labels.synchronize()
    return dx, labels.loss_image


def combined(x):
    total = mps.MPSCNNAdd().encode(x, x)
    joined = mps.MPSCNNSoftMax().encode(mps.MPSCNNNeuronReLU(a=0.5).encode(total))
    halves = mps.MPSCNNSoftMax().encode(x[:, :4])  # a view that is not contiguous
    return joined, halves, mps.MPSNNGramMatrixCalculation(alpha=0.5).encode(x)


@pytest.mark.parametrize("kernels", few([combined, pooled, convolved, normalized, dropped, lost], 1))
def test_images_of_kernels_stay_on_the_device(device, downloads, kernels):
    x = random(2, 6, 8, CHANNELS)
    expected = kernels(x)
    with mpsref.use_backend("metal:cuda"):
        found = kernels(device.array(x))
    images = [one for one in found if isinstance(one, cuda.Array)]
    of_the_state = [one for one in found if not isinstance(one, cuda.Array)]
    assert images
    assert downloads.count(found[0].shape) == 0
    assert all(type(one) is np.ndarray for one in of_the_state)  # the accessors of states are read by the host
    for one, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), reference, rtol=1e-4, atol=1e-5)


def test_an_image_has_its_pixels_on_the_device(device, downloads):
    x = random(2, 3, 4, CHANNELS)
    image = mps.MPSImage(device.array(x))
    assert isinstance(image.array, cuda.Array)
    image.write_bytes(np.ascontiguousarray(2 * x[0]), "heightxwidthxfeaturechannels", 0)
    made = mps.MPSCNNNeuronReLU(backend="metal:cuda").encode(image)
    batch = mps.MPSImageBatch.from_array(device.array(x), copy=False)
    scaled = mps.MPSCNNNeuronLinear(a=2, b=0, backend="metal:cuda").encode(batch)
    assert isinstance(made.array, cuda.Array)
    assert isinstance(scaled[1].array, cuda.Array)
    assert not downloads
    assert made.to_nhwc()[0].tolist() == np.maximum(2 * x[0], 0).tolist()
    assert made.to_chw(1).tolist() == np.maximum(x[1], 0).transpose(2, 0, 1).tolist()
    assert np.array_equal(scaled.to_array(), 2 * x)
    assert mps.MPSImage(device.array(x)) == mps.MPSImage(x)


def test_what_a_device_array_cannot_do(device):
    given = device.array(random(1, 4, 4, CHANNELS))
    with pytest.raises(TypeError, match=r"source_image.*on a device|x is on a device.*reads NumPy arrays"):
        mps.MPSCNNPoolingMax(2, 2, 2, 2, backend="reference").encode(given)
    with pytest.raises(TypeError, match="indexed with integers and slices"):
        given[np.array([0])]
    with pytest.raises(TypeError, match=r"numpy\.add does not compute with cuda\.Array"):
        np.add(given, 1)
    frozen = given.view()
    frozen.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        frozen[:1] = 0
    with pytest.raises(ValueError, match="read-only"):
        mpsref.SoftMax().forward(device.array(random(1, 4, 4, CHANNELS)), out=frozen, backend="metal:cuda")


def test_arrays_of_other_shapes_do_not_reach_the_device(device):
    problem = mpsref.PoolingMax.problems["forward"](mpsref.PoolingMax(2, 2), (1, 4, 4, CHANNELS))
    backend = mpsref.registry.get_backend("metal:cuda")
    right = device.array(random(1, 4, 4, CHANNELS))
    mpsref.registry.run(problem, right, backend=backend)
    for wrong in (right[:, :3], right.reshape(1, 2, 8, CHANNELS)):
        for out in (None, device.empty((1, 2, 2, CHANNELS), np.float32)):
            with pytest.raises(
                mpsref.ShapeError, match=r"x has shape .*; this problem of PoolingMax\.forward reads x of"
            ):
                mpsref.registry.run(problem, wrong, out=out, backend=backend)
    with pytest.raises(TypeError, match="reads x; 2 arrays are given"):
        mpsref.registry.run(problem, right, right, backend=backend)


class Part(mps.MPSNNPadding):
    padding_method = mps.MPSNNPaddingMethod.Custom | mps.MPSNNPaddingMethod.SizeSame

    def destination_image_descriptor_for_source_images(self, source_images, source_states, kernel, descriptor):
        kernel.clip_rect = (1, 0, 0), (2, 3, 2)
        return mps.MPSImageDescriptor("float16", descriptor.width, descriptor.height, CHANNELS, 2)


def test_parts_of_images_stay_on_the_device(device, downloads):
    """Those that a custom padding policy has chosen, forward and gradient, also when launches are repeated."""
    node = graph.MPSCNNPoolingAverageNode(graph.MPSNNImageNode("x"), 2, 3, 1, 1, padding_policy=Part())
    g = graph.MPSNNImageNode("g")
    for image in (node.result_image, node.gradient_filter_with_source(g).result_image):
        made, exact = (graph.MPSNNGraph(image, backend=backend) for backend in ("metal:cuda", "reference"))
        for k in range(3):
            given = [random(2, 5, 6, CHANNELS, seed=k + n) for n in range(len(made.source_images))]
            result = made.run([device.array(one) for one in given]).image
            assert isinstance(result, cuda.Array)
            assert not downloads
            np.testing.assert_allclose(np.asarray(result), exact.run(given).image, rtol=1e-3, atol=1e-6)
            downloads.clear()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_stays_on_the_device(device, downloads, optimizer, tmp_path):
    trainer, reference = (Trainer(Settings(optimizer=optimizer, batch=8), name) for name in ("metal:cuda", "reference"))
    labels = trainer.learn.one_hot()
    for k in range(4):
        batch = np.arange(8 * k, 8 * k + 8)
        downloads.clear()
        losses = [one.network.train(one.learn.images[batch], labels[batch], k) for one in (trainer, reference)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
        assert set(downloads) <= {(8, 1, 1, 1), (8, 1)}  # the loss, and its sums, which the host adds
    joint = trainer.network.optimizer
    held = [joint.values, *joint.moments.values(), *(array for s in joint.sources for array in s.parameters)]
    assert all(isinstance(array, cuda.Array) for array in held)
    images = trainer.held_out.images[:20]
    np.testing.assert_allclose(trainer.network.scores(images), reference.network.scores(images), atol=2e-2)
    trainer.save(tmp_path / "checkpoint")
    resumed = Trainer.resume(tmp_path / "checkpoint", "reference")
    np.testing.assert_array_equal(resumed.network.optimizer.values, np.asarray(joint.values))


def test_results_of_a_graph_are_where_its_images_are(device, downloads):
    x = random(2, 6, 6, CHANNELS)
    relu = graph.MPSCNNNeuronReLUNode(graph.MPSNNImageNode("x"), a=0.5)
    relu.result_image.export_from_graph = True
    pool = graph.MPSCNNPoolingMaxNode(relu.result_image, filter_size=2)
    made = graph.MPSNNGraph(graph.MPSCNNSoftMaxNode(pool.result_image).result_image, backend="metal:cuda")
    expected = graph.MPSNNGraph(made.program.result_images[0], backend="reference").run([x])
    result = made.run([device.array(x)])
    assert isinstance(result.image, cuda.Array)
    assert isinstance(next(iter(result.intermediate_images.values())), cuda.Array)
    assert not downloads
    of_numpy = made.run([x])
    assert downloads == [(2, 6, 6, CHANNELS), (2, 3, 3, CHANNELS)]  # what the caller gets, and nothing between
    for image in (result.image, of_numpy.image):
        np.testing.assert_allclose(np.asarray(image), expected.image, rtol=1e-5)
    assert type(of_numpy.image) is np.ndarray
    encoded = made.encode([mps.MPSImage(device.array(x))])
    assert isinstance(encoded.array, cuda.Array)


def test_a_graph_on_several_backends_keeps_images_on_the_host(device):
    x = random(1, 4, 4, CHANNELS)
    relu = graph.MPSCNNNeuronReLUNode(graph.MPSNNImageNode("x"))
    soft = graph.MPSCNNSoftMaxNode(relu.result_image, backend="reference")
    result = graph.MPSNNGraph(soft.result_image, backend="metal:cuda").run([x])
    np.testing.assert_allclose(result.image, mpsref.SoftMax().forward(np.maximum(x, 0)), rtol=1e-5)


KINDS = (*UNARY, *BINARY)


FIVES = [(KINDS[first : first + 5],) for first in range(0, len(KINDS), 5)]


@pytest.mark.parametrize("kinds", few(FIVES, 1), ids="+".join)
def test_every_node_on_the_device(device, kinds):
    actions = tuple(Action(kind, 0, 1) for kind in kinds)
    for repeat in range(2):
        check_backends(Plan(actions, ((ENDS[len(kinds[0]) % 4], 0),), repeat), ["metal:cuda"])


# ------------------------------------------------------------------------------------------------ recorded calls


class Problem:
    """What a call computes; recorded calls are kept in it."""


class Implementation:
    """y = 2 * concat(x, x + constants)[0], with temporaries, constants, a fill and a copy on the device."""

    def __init__(self, reads=False):
        self.runs, self.reads = 0, reads

    def __call__(self, problem, x, out):
        self.runs += 1
        constants = x.upload(np.full(x.shape, 3, np.float32))
        both = x.joined([x + constants])
        both[0] = 0
        if self.reads and np.asarray(x)[0, 0] > 100:
            return
        out[...] = (both * 2)[: len(x)]


def test_recorded_calls(device):
    implementation, problem = Implementation(), Problem()
    run = cuda.recorded(implementation)
    with cuda.arrays.scope(()):
        for k in range(5):
            x, out = random(3, 4, seed=k), device.empty((3, 4), np.float32)
            run(problem, device.array(x), out=out)
            x[0] = 0
            np.testing.assert_array_equal(np.asarray(out), 2 * x)
        assert implementation.runs == 2  # the second run was recorded
        x, elsewhere = random(3, 4), device.empty((13,), np.float32)
        run(problem, device.array(x), out=elsewhere[1:].reshape(3, 4))  # another alignment
        assert implementation.runs == 3
        for other in (problem := Problem(), problem, problem):  # an argument of a launch may be either array
            run(other, out, out=out)
        assert implementation.runs == 6
    for _ in range(3):  # outside a scope results start as NaN, which is not recorded
        run(problem, device.array(x), out=out)
    assert implementation.runs == 9


def test_recorded_calls_on_parts_of_arrays(device):
    implementation, problem = Implementation(), Problem()
    run = cuda.recorded(implementation)
    x, out = random(8, 4), device.empty((8, 4), np.float32)
    whole = device.array(x)
    with cuda.arrays.scope(()):
        for first in (4, 3, 2, 1):  # rows of 16 bytes have one alignment
            run(problem, whole[first : first + 3], out=out[first + 1 : first + 4])
            wanted = 2 * x[first : first + 3]
            wanted[0] = 0
            np.testing.assert_array_equal(np.asarray(out)[first + 1 : first + 4], wanted)
    assert implementation.runs == 2


def test_calls_that_use_other_arrays_are_not_recorded(device):
    kept, problem = [], Problem()

    def add(problem, x, out):
        out[...] = x + kept[-1]

    run = cuda.recorded(add)
    with cuda.arrays.scope(()):
        for k in range(4):
            x, y = random(3, 4, seed=k), random(3, 4, seed=k + 10)
            kept.append(device.array(y))
            out = device.empty((3, 4), np.float32)
            run(problem, device.array(x), out=out)
            np.testing.assert_array_equal(np.asarray(out), x + y)


def test_calls_that_read_values_are_not_recorded(device):
    implementation, problem = Implementation(reads=True), Problem()
    run = cuda.recorded(implementation)
    with cuda.arrays.scope(()):
        for k in range(4):
            run(problem, device.array(random(3, 4, seed=k)), out=device.empty((3, 4), np.float32))
    assert implementation.runs == 4


def test_a_recorded_call_without_memory(fake_cuda):
    device, run, problem = cuda.open_device(), cuda.recorded(Implementation()), Problem()
    with cuda.arrays.scope(()):
        x, out = device.array(random(3, 4)), device.empty((3, 4), np.float32)
        for _ in range(2):
            run(problem, x, out=out)
        fake_cuda.faults["allocate"] = "CUDA_ERROR_OUT_OF_MEMORY"
        with pytest.raises(cuda.LaunchError, match="cannot allocate"):
            run(problem, x, out=out)
        run(problem, x, out=out)


def test_other_problems_have_recordings_of_their_own(device):
    x = device.array(random(40, seed=1))
    adam = mpsref.Adam(learning_rate=0.1)
    value, *moments = (abs(random(40, seed=k)) for k in range(2, 5))
    for step in (1, 2, 3, 4, 5):
        found = adam.step(x, device.array(value), *map(device.array, moments), time_step=step, backend="metal:cuda")
        wanted = adam.step(np.asarray(x), value, *moments, time_step=step)
        for one, other in zip(found[:3], wanted[:3], strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-5, atol=1e-7)


def test_the_buffer_of_an_array_is_one_copy(device, downloads):
    given = device.array(random(3, 4))
    assert given.__buffer__(0).tolist() == given.tolist()  # what numpy.asarray calls from Python 3.12 on
    assert len(downloads) == 2
