"""The benchmark: what it measures, what it compares, what it reports. Not how fast anything is."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import mpsref
from mpsref import BatchNormalization, Neuron, PoolingAverage, bench, cli, registry
from mpsref.arguments.arrays import Array
from mpsref.backend import Timed, Timing
from mpsref.bench import BenchReport, Measurement, html_report, timing
from mpsref.bench.report import COUNTED_BYTES
from mpsref.conformance import data, layers
from mpsref.conformance.layer import Layer
from mpsref_cpu import backend
from scripts import speed
from tests import few, python_path

FORWARD, GRADIENT = (registry.Operation(PoolingAverage, method) for method in ("forward", "gradient"))
LAYER = Layer(
    "tiny.pool", "Tiny", PoolingAverage(2, 2, 1), (2, 6, 8, 3), {"output_size": (3, 4), "gradient_size": (3, 4)}
)


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waits, and few calls: what is measured counts here, not how well."""
    for name in ("PAUSE_SECONDS", "WAKE_SECONDS", "ROUND_SECONDS"):
        monkeypatch.setattr(timing, name, 0.0)


class Stub:
    """The reference plays PyTorch, wrong by ``error``."""

    def __init__(self, error: float) -> None:
        self.error = error

    @contextlib.contextmanager
    def session(self, threads: int) -> Iterator[str]:
        yield "stub"

    def timed(self, problem: registry.Problem, inputs: Sequence[Array], *, fresh: bool = True) -> Timed | None:
        def call() -> Array:
            return np.asarray(registry.run(problem, *inputs, backend="reference")) + self.error

        return Timed(call, (call(),))

    def together(self, spec: registry.Spec, named: Mapping[str, Array]) -> Timed | None:
        return None


def load(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    for name in ("torch", "torch:cuda"):
        monkeypatch.setitem(registry._loaded, name, registry.Backend(name, {}, **fields))


def with_pytorch(monkeypatch: pytest.MonkeyPatch, error: float = 0.0) -> None:
    """Let the reference play PyTorch."""
    load(monkeypatch, timing=Stub(error))


def without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    load(monkeypatch, unavailable=lambda: "PyTorch is not installed")


def inputs_of(problem: registry.Problem) -> tuple[Array, ...]:
    return data.inputs(problem, "float32", "real", 1)


def printed(report: BenchReport) -> str:
    stream = io.StringIO()
    bench.render(report, Console(file=stream, width=200))
    return stream.getvalue()


def test_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with_pytorch(monkeypatch)
    steps: list[tuple[str, float, float]] = []
    report = bench.run(
        [backend, "reference"], None, [LAYER], rounds=1, scaling=True, progress=lambda *step: steps.append(step)
    )
    assert [m.operation for m in report.measurements] == [str(FORWARD), str(GRADIENT)]
    for m in report.measurements:
        assert (m.layer, m.shape, m.nbytes) == ("tiny.pool", (2, 6, 8, 3), 4 * (2 * 6 * 8 * 3 + 2 * 3 * 4 * 3))
        assert set(m.backends) == {"cpu", "reference"}
        assert m.pytorch is not None
        assert min(m.copy, m.pytorch, *m.backends.values()) > 0
        assert m.speedup("cpu") == m.pytorch / m.backends["cpu"]
        assert m.bandwidth("cpu") == m.copy / m.backends["cpu"]
    assert report.pytorch == "stub"
    assert report.devices == {"cpu": backend.device(), "reference": "CPU"}
    assert report.means() == [], "a tiny layer does not count"
    assert len(report.scaling) == 2 * 2 * 4
    titles, done, total = zip(*steps, strict=True)
    assert titles[:2] == (f"{FORWARD} tiny.pool", f"{GRADIENT} tiny.pool")
    assert all("three sizes" in title for title in titles[2:])
    assert len(titles) == 4
    assert list(done) == sorted(done)
    assert done[0] == 0 < done[1] < done[-1] == total[0] == total[-1]
    text = printed(report)
    for word in ("tiny.pool", "PyTorch stub", "x PyTorch", str(GRADIENT), "ns per element"):
        assert word in text


def test_scaling_grows_one_axis_and_its_outputs() -> None:
    rows = list(bench._scale(FORWARD, LAYER, backend, rounds=1))
    assert [row.axis for row in rows] == list("NHWC")
    assert rows[1].shapes == ((4, 6, 8, 64), (4, 12, 8, 64), (4, 24, 8, 64))
    assert all(len(row.nanoseconds) == 3 and min(row.nanoseconds) > 0 for row in rows)
    assert LAYER.grown(1, 4).call["output_size"] == (12, 4)
    assert LAYER.grown(2, 4).call["output_size"] == (3, 16)
    assert LAYER.grown(3, 4).call["output_size"] == (3, 4)


def test_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    report = bench.run([backend], [FORWARD], [LAYER], rounds=1)
    assert report.pytorch.startswith("not installed")
    (m,) = report.measurements
    assert m.pytorch is None
    assert m.speedup("cpu") is None
    assert "PyTorch not installed: pip install" in printed(report)


def test_a_wrong_answer_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    with_pytorch(monkeypatch, error=0.01)
    with pytest.raises(ValueError, match="'cpu' and PyTorch do not agree"):
        bench.run([backend], [GRADIENT], [LAYER], rounds=1)


def test_a_backend_without_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pytorch(monkeypatch)
    half = registry.Backend("half", {FORWARD: backend.implementations[FORWARD]})
    report = bench.run([half], None, [LAYER], rounds=1, scaling=True)
    assert [set(m.backends) for m in report.measurements] == [{"half"}, set()]
    assert {row.operation for row in report.scaling} == {str(FORWARD)}
    assert printed(report)


def test_bad_names() -> None:
    with pytest.raises(ValueError, match="unknown backend 'gpu'"):
        bench.run(["gpu"])
    with pytest.raises(ValueError, match=r"no layer is called 'alexnet.pool9'"):
        bench.run([backend], None, ["alexnet.pool9"])
    absent = registry.Backend("absent", {}, unavailable=lambda: "no such device: buy one")
    with pytest.raises(mpsref.UnsupportedError, match="buy one"):
        bench.run([absent])


def report_of(*measurements: Measurement) -> BenchReport:
    return BenchReport("0", "machine", 2, "2.0", {"cpu": "CPU"}, 1, measurements, ())


def test_means_are_geometric_and_count_large_layers_alone() -> None:
    large = Measurement("op", "large", (1, 1, 1, 1), 1_000_000, 0, {"cpu": 1.0}, copy=0.5, pytorch=8.0)
    other = replace(large, backends={"cpu": 2.0}, pytorch=4.0)
    unspelled = replace(large, pytorch=None)
    small = replace(large, nbytes=999_999, pytorch=1e9, copy=1e9)
    (mean,) = report_of(large, other, unspelled, small).means()
    assert (mean.layers, mean.compared) == (3, 2)
    assert mean.speedup == pytest.approx(4.0)  # of 8 and 2
    assert mean.bandwidth == pytest.approx((0.5 * 0.25 * 0.5) ** (1 / 3))


def test_operations_far_from_their_limit_come_first() -> None:
    near = Measurement("near", "a", (1, 1, 1, 1), 1_000_000, 0, {"cpu": 1.0}, copy=0.9, pytorch=2.0)
    far = replace(near, operation="far", backends={"cpu": 3.0})
    heavy = replace(near, operation="heavy", flops=10, copy=0.1, product=0.6)
    assert [m.limit for m in (near, far, heavy)] == [0.9, 0.9, 0.6]
    report = report_of(near, far, heavy)
    assert {mean.operation: round(mean.limit, 6) for mean in report.means()} == {"near": 0.9, "far": 0.3, "heavy": 0.6}
    shown, _, table = printed(report).partition("Furthest from the limit")
    assert "A time is the median of 1 rounds of one run; of 1 at least" in shown
    assert table.index("far") < table.index("heavy") < table.index("near")
    assert "30%" in table


def test_a_mask_of_dropout_counts_one_byte_an_element() -> None:
    layer = layers.by_name("alexnet.drop6")
    size = math.prod(layer.source_shape)
    assert [bench._nbytes(layer.problem(method)) for method in ("mask", "forward")] == [size, (4 + 1 + 4) * size]


def test_representative_layers_are_spread_over_the_sizes() -> None:
    every = [layer for layer in layers.load("PoolingAverage") if FORWARD.method in layer.methods]
    sizes = sorted(bench._nbytes(layer.problem(FORWARD.method)) for layer in every)
    chosen = bench.representative(FORWARD)
    assert len({*chosen}) == 12 < len(every)
    picked = [bench._nbytes(layer.problem(FORWARD.method)) for layer in chosen]
    assert picked == sorted(picked)
    assert sizes.index(picked[0]) < len(sizes) / 6
    assert sizes.index(picked[-1]) > len(sizes) * 5 / 6
    assert bench.representative(registry.Operation(mpsref.SoftMax, "forward")) == [*layers.load("SoftMax")]


@pytest.mark.parametrize(("rounds", "seconds", "made"), [(7, 0.0, 3), (2, 0.0, 2), (7, 1e9, 7)])
def test_rounds_end_when_their_time_is_spent(
    monkeypatch: pytest.MonkeyPatch, rounds: int, seconds: float, made: int
) -> None:
    turns: list[int] = []

    def turn(call: Any) -> float:
        turns.append(1)
        return 0.01

    monkeypatch.setattr(timing, "_seconds", turn)
    assert timing.take_turns([lambda: None], rounds, seconds) == [0.01]
    assert len(turns) == made


@pytest.mark.parametrize(("takes", "seconds", "made"), [(0.06, 0.01, 1), (0.06, 1e9, 3), (0.001, 0.0, 12)])
def test_a_long_call_has_one_turn_of_one_call(takes: float, seconds: float, made: int) -> None:
    """A short one is called at least four times in a turn, to wake threads and for a median of three."""
    calls: list[int] = []

    def call() -> None:
        time.sleep(takes)
        calls.append(1)

    (median,) = timing.take_turns([call], 3, seconds)
    assert median >= takes
    assert len(calls) == made if takes > timing.LONG_SECONDS else len(calls) >= made


WAITING = """
import sys, time
sys.modules["torch"] = None  # takes long
from mpsref import bench, cli

measure, count = bench._measure, 0

def wait_at_the_third(*arguments):
    global count
    count += 1
    if count == 3:
        print("waiting", file=sys.stderr, flush=True)
        time.sleep(60)
    return measure(*arguments)

bench._measure = wait_at_the_third
cli.main()
"""


@pytest.mark.parametrize("number", few([signal.SIGTERM, signal.SIGINT], 1), ids=lambda number: number.name)
def test_an_ended_run_prints_what_it_has(number: signal.Signals) -> None:
    words = ["bench", "-b", "reference", "-k", "PoolingAverage", "--rounds", "1"]
    words += ["--layer", "nin_cifar10.pool3", "--layer", "lenet5.s4"]
    command = [sys.executable, "-c", WAITING, *words]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": python_path()},
    ) as run:
        assert run.stderr is not None
        assert any(line == "waiting\n" for line in run.stderr)
        run.send_signal(number)
        output, errors = run.communicate(timeout=30)
    assert run.returncode == cli.INTERRUPTED, errors
    assert "interrupted; the report has what had finished" in errors
    shown, left = output.split("2 of 4 are not measured: ")
    assert "PoolingAverage.forward" in shown
    assert "nin_cifar10.pool3" in shown
    assert "lenet5.s4" in shown
    assert " ".join(left.partition("Geometric")[0].split()).startswith(
        "PoolingAverage.gradient nin_cifar10.pool3, PoolingAverage.gradient lenet5.s4"
    )


def test_an_interrupt_before_the_first_measurement_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pytorch(monkeypatch)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "_measure", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        bench.run([backend], [FORWARD], [LAYER], rounds=1)
    assert type(caught.value) is KeyboardInterrupt


def test_json() -> None:
    large = Measurement("op", "large", (1, 2, 3, 4), 1_000_000, 0, {"cpu": 1.0}, copy=0.5, pytorch=None)
    parsed = json.loads(report_of(large).json())
    assert parsed["format"] == 1
    assert parsed["measurements"][0]["backends"] == {"cpu": 1.0}
    assert parsed["measurements"][0]["pytorch"] is None
    assert parsed["means"][0]["speedup"] is None


@pytest.mark.slow
def test_html() -> None:
    small = Measurement("Pad.forward", "a <b>", (1, 1, 1, 1), 1_000_000, 0, {"cpu": 1.0}, copy=0.25, pytorch=3.0)
    heavy = Measurement("Convolution.forward", "c", (1, 1, 1, 1), 9, 10, {"cpu": 2.0}, 0.1, None, product=1.0)
    page = html_report.page(report_of(small, heavy))
    assert "A time is the median of 1 rounds" in page
    assert page.count('<img src="data:image/svg+xml;base64,') == 3
    assert page.count(' alt="') == 3
    assert "<td>a &lt;b&gt;</td>" in page
    assert '<td class="number">25%</td>' in page, "of the copy"
    assert '<td class="number">50%</td>' in page, "of the matrix product"
    assert html_report.page(report_of(heavy)).count("<img") == 1, "nothing to compare with PyTorch or with the copy"
    assert "<img" not in html_report.page(report_of())


def test_html_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends before it measures anything."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(mpsref.errors.UnsupportedError, match=r'pip install -e "\.\[plot\]"'):
        html_report.page(report_of())


def test_runners_take_turns() -> None:
    order: list[str] = []

    def call(name: str) -> None:
        time.sleep(0.001)
        order.append(name)

    calls = [partial(call, name) for name in "ab"]
    times = timing.take_turns(calls, rounds=3)
    turns = [name for k, name in enumerate(order) if k == 0 or order[k - 1] != name]
    assert turns == list("ababab")
    assert len(times) == 2


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("nbytes", [1000, 1_000_001])
def test_the_copy_copies_everything(nbytes: int, threads: int) -> None:
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    with ThreadPoolExecutor(2) as pool:
        timing.copy_of(source, target, pool, threads)()
    assert target.all()


@pytest.mark.parametrize("operation", registry.operations(), ids=str)
def test_scaling_has_sizes_of_each_layer(operation: registry.Operation) -> None:
    for layer in bench.representative(operation, 1000):
        base = layer.small(channels=64, batch=4)
        for axis, length in enumerate(base.source_shape):
            grown = base.grown(axis, 4)
            assert grown.source_shape[axis] == 4 * length
            assert grown.problem(operation.method).flops >= base.problem(operation.method).flops


def test_large_results_are_not_allocated_anew() -> None:
    wide = replace(LAYER, source_shape=(1, 6, 8, 200_000))
    problems = [layer.problem(GRADIENT.method) for layer in (LAYER, wide)]
    assert bench._outs(problems[0]) is None
    outs = bench._outs(problems[1])
    assert outs is not None
    (x,) = inputs_of(problems[1])
    call = bench._call(problems[1], (x,), backend)
    assert call() is call()
    assert outs[0].shape == (1, 6, 8, 200_000)


def test_given_memory_has_the_dtypes_of_the_results() -> None:
    (layer, *_) = layers.load("GraphPoolingMax")
    problem = replace(layer, source_shape=(8, *layer.source_shape[1:])).problem("forward")
    outs = bench._outs(problem)
    assert outs is not None
    assert [out.dtype for out in outs] == [np.float32, np.int32]


def pytorch() -> Timing:
    """Return the calls of PyTorch."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    timing = registry.get_backend("torch").timing
    assert timing is not None
    return timing


def returned(call: Any) -> list[Array]:
    """Return the tensors that a call returned as arrays, with the channels of images last."""
    result = call()
    tensors = [one for one in (result if isinstance(result, (tuple, list)) else [result]) if one is not None]
    return [np.asarray(one.permute(0, 2, 3, 1) if one.dim() == 4 else one) for one in tensors]


@pytest.mark.slow
def test_pytorch_computes_every_layer_that_it_can_place() -> None:
    theirs = pytorch()
    small = [layer.small(channels=2, batch=2) for layer in layers.load("PoolingAverage")]
    placed = 0
    for layer in small:
        for operation in (FORWARD, GRADIENT):
            problem = layer.problem(operation.method)
            inputs = inputs_of(problem)
            with theirs.session(1):
                timed = theirs.timed(problem, inputs)
                if timed is not None:
                    placed += 1
                    ours = registry.run(problem, *inputs, backend="reference")
                    assert timing.difference(ours, timed.results) is None
                    assert timing.difference(ours, returned(timed.call)) is None
    assert placed > len(small)


OPERATORS = """
    PoolingAverage.gradient nin_cifar10.pool2 avg_pool2d_backward.default grad_input
    PoolingMax.forward alexnet.pool1 max_pool2d_with_indices.default out
    PoolingMax.gradient alexnet.pool1 max_pool2d_with_indices_backward.default grad_input
    PoolingL2Norm.gradient torch_svhn.pool1 several none
    Convolution.forward alexnet.conv3 _convolution_pointwise.default none
    Convolution.gradient_weights alexnet.conv3 convolution_backward.default none
    ConvolutionTranspose.gradient_data unet.up1 convolution_backward.default none
    FullyConnected.gradient_data alexnet.fc6 mm.default out
    GroupNormalization.gradient resnet50_gn.layer1 native_group_norm_backward.default none
    BatchNormalization.statistics resnet50.bn1 batch_norm_update_stats.default none
    BatchNormalization.gradient resnet50.bn1 none none
    SoftMax.gradient resnet50.softmax _softmax_backward_data.default out
    Neuron.forward alexnet.relu1 relu.default out
    Arithmetic.gradient resnet18.layer1 several several
    Dropout.mask alexnet.drop6 none none
    Dropout.forward alexnet.drop6 native_dropout_backward.default out
    Reduce.gradient global_mean.head div.Tensor none
    Reshape.forward vgg16_flat.flatten none none
    SpatialNormalization.gradient zf.norm1 several none
    Adam.step vit_b16.mlp several several
"""


@pytest.mark.parametrize("row", OPERATORS.strip().splitlines())
def test_the_call_of_pytorch_is_its_operator(row: str) -> None:
    """Into new memory, then into given memory; several are a formula, or the backward pass of autograd."""
    theirs = pytorch()
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Operators(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not func.is_view:
                seen.append(str(func).partition(".")[2])
            return func(*args, **(kwargs or {}))

    operation, layer, operator, variant = row.split()
    into = variant if variant in ("none", "several") else f"{operator.partition('.')[0]}.{variant}"
    problem = layers.by_name(layer).small(batch=2).problem(operation.partition(".")[2])
    assert str(problem.operation) == operation
    inputs = inputs_of(problem)
    for fresh, expected in ((True, operator), (False, into)):
        with theirs.session(1):
            timed = theirs.timed(problem, inputs, fresh=fresh)
            if expected == "none":
                assert timed is None
                continue
            assert timed is not None
            seen.clear()
            with Operators():
                first = returned(timed.call)
            assert seen == [expected] if expected != "several" else len(seen) > 1
            second = returned(timed.call)
        ours = registry.run(problem, *inputs, backend="reference")
        assert timing.difference(ours, timed.results) is None
        for one, other, result in zip(first, second, timed.results, strict=False):
            assert np.array_equal(one, other)
            assert np.array_equal(one.ravel(), result.ravel()) or operation.startswith("BatchNorm")
            assert fresh or np.shares_memory(one, other) or operation == "Adam.step"


def test_pytorch_cannot_place_a_window_behind_its_padding() -> None:
    for spec in (PoolingAverage(3, 2, 3), PoolingAverage(3, 2, -1), PoolingAverage(4, 2, (2, 1), "clamp", 3)):
        problem = replace(LAYER, spec=spec).problem("forward")
        assert pytorch().timed(problem, inputs_of(problem)) is None
    less = replace(LAYER, call={"output_size": (2, 4)}).problem("forward")
    assert pytorch().timed(less, inputs_of(less)) is None, "PyTorch computes another row of windows"


def test_importing_it_imports_neither_pytorch_nor_numba() -> None:
    code = "import sys, mpsref.bench; print(sorted({'torch', 'numba', 'rich'} & set(sys.modules)))"
    root = str(Path(mpsref.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


NORM = Layer("tiny.norm", "Tiny", BatchNormalization(0.1), (2, 3, 4, 5))
FOUR = [registry.Operation(BatchNormalization, method) for method in BatchNormalization.problems]


@pytest.mark.slow
def test_what_pytorch_does_in_one_is_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pytorch(monkeypatch)
    report = bench.run("cpu", FOUR, [NORM], rounds=1)
    assert [m.operation for m in report.measurements] == [*map(str, FOUR), "BatchNormalization.together"]
    *parts, together = report.measurements
    assert together.nbytes == sum(part.nbytes for part in parts)
    assert together.backends.keys() == {"cpu"}
    assert together.pytorch is None
    report = bench.run("cpu", FOUR[1:], [NORM], rounds=1)
    assert [m.operation for m in report.measurements] == [*map(str, FOUR[1:])]


def test_the_training_step_of_pytorch_is_the_four_operations() -> None:
    norm, draw = NORM.spec, np.random.default_rng(3).standard_normal
    g, x = (draw(NORM.source_shape).astype(np.float32) for _ in range(2))
    gamma, beta = (draw(5).astype(np.float32) for _ in range(2))
    step = pytorch().together
    timed = step(norm, {"g": g, "x": x, "gamma": gamma, "beta": beta})
    assert timed is not None
    y, dx, dgamma, dbeta = timed.results
    seen = norm.statistics(x)
    given = seen.mean, seen.variance, gamma, beta
    sums = norm.statistics_gradient(g, x, *given)
    expected = norm.forward(x, *given), norm.gradient(g, x, *given, sums), sums.dgamma, sums.dbeta
    for theirs, ours in zip((y, dx, dgamma, dbeta), expected, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
    assert step(replace(norm, neuron=Neuron("relu")), {"g": g, "x": x}) is None


@pytest.mark.parametrize("name", ["speed_cpu.json", "speed_nvidia.json"])
def test_recorded_reports(name: str) -> None:
    path = speed.DOCS / name
    report, note = speed.read(path.read_text("utf-8"))
    assert speed.written(report, note) == path.read_text("utf-8")
    known = {layer.name for layer in layers.load()}
    assert {m.layer for m in report.measurements} <= known, "measure again: layers have been renamed"
    text = speed.page(path)
    for mean in report.means():
        assert f"| `{mean.operation}` | {mean.layers} | " in text
        if mean.speedup is not None and mean.speedup < 1:
            assert f"`{mean.operation}` {mean.speedup:.2f}" in text
    (backend_name,) = report.devices
    for m in report.measurements:
        ratio = m.speedup(backend_name)
        if ratio is not None and ratio < speed.LISTED and m.nbytes >= COUNTED_BYTES:
            (line,) = (line for line in text.splitlines() if line.startswith(f"- `{m.operation}`, "))
            assert f"{m.layer} {ratio:.2f}" in line


def test_lost_speed_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, _ = speed.read((speed.DOCS / "speed_cpu.json").read_text("utf-8"))
    (name, operation), measurements = ("cpu", "Arithmetic.gradient"), record.measurements
    slower = tuple(
        replace(m, backends={name: 1.3 * m.backends[name]}) if m.operation == operation else m for m in measurements
    )
    paths = [tmp_path / "record.json", tmp_path / "report.json"]
    for path, rows in zip(paths, (measurements, slower), strict=True):
        path.write_text(replace(record, measurements=rows).json(), "utf-8")
    with pytest.raises(SystemExit) as ended:
        speed.main(paths[0], paths[1:])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{operation} has 0.77 of its recorded speed")
    with pytest.raises(SystemExit) as ended:
        speed.main(paths[0], paths[:1])
    assert ended.value.code == 0
