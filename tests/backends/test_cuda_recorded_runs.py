"""Runs of graphs that repeat recorded launches, compared bit by bit with runs that do not."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from anymetal import cuda
from anymetal.cuda import recording
from anymetal.cuda.device import Device
from anymetal.cuda.recording import Recording, RepeatedArrays
from mpsref.mps import graph
from mpsref.mps.dropout import MPSCNNDropoutNode
from mpsref.mps.graph.execute import Execution
from mpsref.mps.graph.nodes import MPSNNFilterNode
from mpsref.training.network import Network
from mpsref.training.trainer import Settings
from tests import few
from tests.mps.graph_checks import Trained
from tests.mps.graph_plans import BINARY, ENDS, UNARY, Action, Plan

BATCH = 4


@pytest.fixture(autouse=True, params=["fake", pytest.param("real", marks=pytest.mark.nvidia)])
def steps(request, monkeypatch):
    """The steps of graphs that are run and not repeated."""
    if request.param == "fake":
        request.getfixturevalue("fake_cuda")
    run, before = [], Execution._step

    def step(self, one):
        run.append(one)
        before(self, one)

    monkeypatch.setattr(Execution, "_step", step)
    return run


def call(self, known, given, run):
    """Take the place of ``repeated``, without repetition."""
    return run()


def images(k, count=BATCH):
    return np.random.default_rng(k).standard_normal((count, 8, 8, 1)).astype(np.float32)


class Networks:
    """Two networks, of which one repeats its runs."""

    def __init__(self, steps, optimizer="adam"):
        self.steps, settings = steps, Settings(optimizer=optimizer, batch=BATCH)
        self.both = [Network(settings.optimizer_on("metal:cuda"), BATCH, 0, "metal:cuda") for _ in range(2)]

    def values(self, run):
        """Call ``run`` on both networks and compare the bits; return whether the one repeated what it ran before."""
        repeating, other = self.both
        before = len(self.steps)
        found, runs = run(repeating), len(self.steps) - before
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RepeatedArrays, "repeated", call)
            assert np.array_equal(found, run(other))
        for one, two in zip(repeating.sources.values(), other.sources.values(), strict=True):
            for (name, mine), (_, its) in zip(one.arrays(), two.arrays(), strict=True):
                assert np.asarray(mine).tobytes() == np.asarray(its).tobytes(), name
        return runs == 0

    def train(self, k, count=BATCH):
        labels = np.eye(10, dtype=np.float32)[np.arange(k, k + count) % 10].reshape(count, 1, 1, 10)
        return self.values(lambda network: network.train(images(k, count), labels, k))

    def change(self, change):
        for network in self.both:
            change(network)


@pytest.mark.parametrize("optimizer", few(["adam", "sgd"], 1))
def test_training(steps, optimizer):
    networks = Networks(steps, optimizer)
    assert [networks.train(k) for k in range(4)] == [False, False, True, True]
    assert [networks.train(k, 3) for k in range(4, 7)] == [False, False, True]  # another shape
    assert networks.train(7)


@pytest.mark.slow
def test_what_changes_between_runs(steps):
    networks = Networks(steps)
    for k in range(3):
        networks.train(k)

    def reset(network):
        source = network.sources["conv2"]
        source.weights_array = np.asarray(source.weights_array) * np.float32(0.5)
        network.optimizer.join()
        network.training.reload_from_data_sources()

    networks.change(reset)
    assert networks.train(3)
    networks.change(lambda network: network.optimizer.optimizer.set_learning_rate(0.5))
    assert networks.train(4)
    # Another graph with the same data sources; it reads them before each run.
    scored = [networks.values(lambda network: np.asarray(network.scores(images(9)))) for _ in range(4)]
    assert scored == [False, False, True, True]
    networks.train(5)
    assert networks.values(lambda network: np.asarray(network.scores(images(9))))
    networks.change(lambda network: setattr(network.training, "format", "float16"))
    assert [networks.train(k) for k in range(6, 9)] == [False, False, True]


def test_errors(steps, fake_cuda):
    networks, before = Networks(steps), Recording.repeat
    for k in range(3):
        networks.train(k)
    for fault in ("allocate", "launch"):

        def repeat(self, device, given, fault=fault):
            fake_cuda.faults[fault] = "CUDA_ERROR_OUT_OF_MEMORY"
            return before(self, device, given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Recording, "repeat", repeat)
            with pytest.raises(cuda.LaunchError):
                networks.train(3)
    assert networks.train(3)

    def fail(network):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(network.sources["bn1"]), "moved", lambda *_: 1 / 0)  # after the step of the optimizer
            with pytest.raises(ZeroDivisionError):
                network.train(images(4), np.zeros((BATCH, 1, 1, 10), np.float32), 4)
        return 0

    assert networks.values(fail)
    assert networks.train(5)


def small(**properties):
    """Return a graph on the device with an exported image."""
    relu = graph.MPSCNNNeuronReLUNode(graph.MPSNNImageNode("x"), a=0.5)
    relu.result_image.export_from_graph = True
    pool = graph.MPSCNNPoolingMaxNode(relu.result_image, filter_size=2)
    return graph.MPSNNGraph(pool.result_image, backend="metal:cuda", **properties)


def relu_and_pool(x):
    relu = np.where(x < 0, x * np.float32(0.5), x)
    return relu, relu.reshape(len(x), 4, 2, 4, 2, 1).max((2, 4))


def check_results_of_former_runs(steps):
    device, made, inputs, results = cuda.open_device(), small(), [], []  # all inputs stay, at addresses of their own
    stream = cuda_stream(device)
    for k in range(6):
        before = len(steps)
        with device.on(stream if k == 4 else None):
            inputs.append(device.array(images(k)))
            results.append(made.run([inputs[k]]))
        assert (len(steps) == before) == (k > 1)
        if k == 3:
            results[k].image[...] = 7  # it is the caller's
    for k, result in enumerate(results):
        relu, pooled = relu_and_pool(images(k))
        (exported,) = result.intermediate_images.values()
        assert np.array_equal(exported, relu)
        assert np.array_equal(result.image, np.full_like(pooled, 7) if k == 3 else pooled)


def cuda_stream(device):
    with device.active():
        return recording.driver.core().Device(0).create_stream()


def test_results_of_former_runs_stay(steps):
    check_results_of_former_runs(steps)


def test_threads(steps):
    made, found = small(), {}
    device = cuda.open_device()

    def work(first):
        for k in range(first, first + 5):
            found[k] = made.run([device.array(images(k))]).image

    threads = [threading.Thread(target=work, args=[first]) for first in (0, 5, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(steps) == 4  # two runs of two steps
    for k, image in found.items():
        assert np.array_equal(image, relu_and_pool(images(k))[1])
    assert len(found) == 15


@pytest.mark.parametrize(
    "why", few(["allocator", "image", "all images", "size", "other shapes", "a read", "a host image"], 3)
)
def test_runs_that_are_not_recorded(steps, why, monkeypatch):
    made, device = small(), cuda.open_device()
    if why == "size":
        monkeypatch.setattr(recording, "LARGEST", 1000)
    before = MPSNNFilterNode._compute
    if why == "a host image":
        monkeypatch.setattr(MPSNNFilterNode, "_compute", lambda *of: np.asarray(before(*of)))
    if why == "a read":
        monkeypatch.setattr(MPSNNFilterNode, "_compute", lambda *of: (np.asarray(of[2]), before(*of))[1])
    for k in range(5):
        if k == 2 and why == "allocator":
            made.destination_image_allocator = np.empty
        if k == 2 and why == "image":
            made.program.exported_images[0].image_allocator = np.empty
        steps.clear()
        x = images(k, k + 1 if why == "other shapes" else BATCH)
        result = made.run([device.array(x)], keep_all=why == "all images")
        assert len(steps) == 2
        assert np.array_equal(result.image, relu_and_pool(x)[1])


def test_runs_with_a_mask_that_is_drawn_on_the_way_are_not_recorded(steps, monkeypatch):
    before = MPSCNNDropoutNode._compute

    def compute(self, step, *images):
        step.prepared = MPSCNNDropoutNode._draw(self, step, *images)
        return before(self, step, *images)

    monkeypatch.setattr(MPSCNNDropoutNode, "_draw", MPSCNNDropoutNode._step_inputs, raising=False)
    monkeypatch.setattr(MPSCNNDropoutNode, "_step_inputs", lambda *_: ())
    monkeypatch.setattr(MPSCNNDropoutNode, "_compute", compute)
    networks = Networks(steps)
    assert not any(networks.train(k) for k in range(4))


def the_batch_of_the_recorded_run(monkeypatch):
    before = Recording.__init__, Recording.repeat

    def init(self, given, *others):
        before[0](self, given, *others)
        self.first = given

    monkeypatch.setattr(Recording, "__init__", init)

    def repeat(self, device, given):  # problems of earlier tests have recordings without `first`
        return before[1](self, device, getattr(self, "first", given))

    monkeypatch.setattr(Recording, "repeat", repeat)


def results_share_memory(monkeypatch):
    before, allocate, kept = Recording.repeat, Device.allocate, {}

    def repeat(self, device, given):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Device, "allocate", lambda *of: kept.get(of) or kept.setdefault(of, allocate(*of)))
            return before(self, device, given)

    monkeypatch.setattr(Recording, "repeat", repeat)


@pytest.mark.parametrize("fault", [the_batch_of_the_recorded_run, results_share_memory])
def test_planted_faults(steps, monkeypatch, fault):
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check_results_of_former_runs(steps)


def test_a_stale_mask_fails(steps, monkeypatch):
    networks, before, masks = Networks(steps), MPSCNNDropoutNode._step_inputs, {}
    of_one = [step.compiled for step in networks.both[0].training.program.prepared_steps]

    def prepare(self, call, like):
        made = before(self, call, like)
        return masks.setdefault(self, made) if self in of_one else made

    monkeypatch.setattr(MPSCNNDropoutNode, "_step_inputs", prepare)
    with pytest.raises(AssertionError):
        assert [networks.train(k) for k in range(3)]


@pytest.mark.parametrize("first", few(range(4), 1))
def test_every_node(steps, first):
    kinds = (*UNARY, *BINARY)[first::4]
    plan = Plan(tuple(Action(kind, 0, 1) for kind in kinds), ((ENDS[first % len(ENDS)], 0),), 0)
    made = Trained(plan, backend="metal:cuda")
    runs = []
    for k in range(4):
        inputs, before = made.network.floats(k), len(steps)
        found = made.run(inputs)
        runs.append(len(steps) > before)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RepeatedArrays, "repeated", call)
            expected = made.run(inputs)
        mine, its = made.gradients(found), made.gradients(expected)
        assert mine.keys() == its.keys()
        for one, other in zip((*found.images, *mine.values()), (*expected.images, *its.values()), strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert runs == [True, True, False, False]
