"""Convolution on the cpu backend: every path, in every dtype, within its memory, and the same bits every time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref import registry
from mpsref.arguments.arrays import Array
from mpsref.conformance.guards import GuardedArray
from mpsref.kernels import Convolution, ConvolutionTranspose, FullyConnected, Neuron
from mpsref.registry import Problem
from mpsref_cpu import backend, threads
from mpsref_cpu.convolution import plan as convolution_plan
from mpsref_cpu.convolution import weight_gradient as convolution_weights
from mpsref_cpu.convolution.microkernels import LANES
from tests import few

METHODS = "forward", "gradient_data", "gradient_weights"

C, T, F = Convolution, ConvolutionTranspose, FullyConnected
LAYERS: dict[str, tuple[Any, tuple[int, ...], int, tuple[int, int]]] = {
    "channels of every width": (C(3), (2, 6, 7, 20), 61, (6, 7)),
    "more terms than a piece": (C(3, offset=1), (1, 5, 6, 70), 24, (3, 4)),
    "more terms than a piece, few lanes": (C(3), (1, 6, 7, 48), 8, (6, 7)),
    "one tap, a rest of half the lanes": (C(1), (2, 9, 12, 6), LANES + LANES // 2, (9, 12)),
    "one tap, whole images in one run": (C(1), (3, 4, 5, 40), 132, (4, 5)),
    "many channels, short rows": (C(3), (3, 4, 4, 52), 130, (4, 4)),
    "many channels in groups": (C(3, groups=2), (2, 5, 5, 36), 40, (5, 5)),
    "many channels in many groups": (C(3, groups=10), (2, 5, 4, 180), 200, (5, 4)),
    "few channels": (C(7, 2), (1, 15, 17, 3), 33, (8, 9)),
    "few results": (C(3), (2, 6, 9, 32), 3, (6, 9)),
    "few results of few terms": (C((1, 2), groups=5), (2, 3, 4, 10), 15, (3, 4)),
    "dilated, strided, even": (C((4, 2), (2, 3), (3, 2), (1, -1)), (2, 11, 13, 8), 7, (6, 5)),
    "a tile of 16 lanes": (C((4, 2), (2, 3), (3, 2), (1, -1)), (2, 11, 13, 8), 9, (6, 5)),
    "windows outside": (C(2, 1, 1, (-4, 9)), (1, 3, 4, 5), 6, (9, 7)),
    "depthwise": (C(3, groups=36), (2, 7, 9, 36), 36, (7, 9)),
    "depthwise, strided": (C(5, 2, groups=17), (2, 12, 13, 17), 17, (6, 7)),
    "depthwise, strided, even": (C(6, 2, groups=17), (2, 10, 18, 17), 17, (5, 9)),
    "depthwise, dilated": (C(3, 1, 2, groups=8), (1, 6, 7, 8), 8, (6, 7)),
    "depthwise, more taps than a sum": (C(24, offset=12, groups=3), (1, 24, 25, 3), 3, (1, 2)),
    "depthwise, multiplied": (C(3, groups=6), (2, 5, 6, 6), 18, (5, 6)),
    "one input channel a group, many outputs": (C(3, groups=3), (2, 5, 6, 3), 15, (5, 6)),
    "transposed": (T(4, 2, kernel_offset=-1), (2, 5, 6, 20), 18, (10, 12)),
    "transposed in groups": (T(3, (3, 1), 1, groups=2), (2, 5, 4, 8), 6, (11, 5)),
    "transposed, many channels in groups": (T(3, (3, 1), 1, groups=2), (2, 5, 4, 40), 36, (11, 5)),
    "transposed, many channels in many groups": (T(3, 2, groups=6), (1, 3, 4, 108), 114, (5, 7)),
    "transposed depthwise, multiplied": (T(3, 2, groups=5), (2, 4, 5, 5), 10, (7, 9)),
    "fully connected, few images": (F((3, 5)), (3, 3, 5, 37), 101, (1, 1)),
    "fully connected, many images": (F((1, 9)), (131, 1, 9, 59), 98, (1, 1)),
}


SLOW = "depthwise, ", "16 lanes"

layers = pytest.mark.parametrize("layer", few(sorted(LAYERS, key=lambda name: any(word in name for word in SLOW)), 21))
"""Each path; special depthwise layers and another width, which take as long to compile as all others, are slow."""


def problem_of(layer: str, method: str, spec: Any = None) -> Problem:
    own, shape, channels, size = LAYERS[layer]
    problem: Problem = own.problems[method](spec or own, shape, channels, size)
    return problem


def integers(problem: Problem, dtype: str = "float32", seed: int = 0) -> list[Array]:
    """Small integers, so that every order of summation gives the same result."""
    generator = np.random.default_rng(seed)
    return [generator.integers(-4, 5, shape).astype(dtype) for shape in problem.input_shapes.values()]


def run(problem: Problem, inputs: list[Array], where: Any = backend, out: Any = None) -> tuple[Array, ...]:
    result = registry.run(problem, *inputs, backend=where, out=out)
    return result if isinstance(result, tuple) else (result,)


def assert_exact(problem: Problem, inputs: list[Array]) -> None:
    for result, expected in zip(run(problem, inputs), run(problem, inputs, "reference"), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.fixture
def set_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets how many threads a kernel may use, on any machine, however little there is to do."""
    monkeypatch.setattr(threads, "GRAIN", 1)
    return lambda count: monkeypatch.setattr(threads, "thread_count", lambda: count)


@pytest.mark.parametrize("method", METHODS)
@layers
def test_every_path_is_exact_on_integers_and_stays_within_its_memory(layer: str, method: str) -> None:
    problem = problem_of(layer, method)
    values = integers(problem)
    inputs = [GuardedArray(f"input {k}", v.shape, v.dtype, v) for k, v in enumerate(values)]
    results = [GuardedArray(f"result {k}", s, np.dtype(np.float32)) for k, s in enumerate(problem.result_shapes)]
    arrays = tuple(result.array for result in results)
    run(problem, [i.array for i in inputs], out=arrays if len(arrays) > 1 else arrays[0])
    for guarded in (*inputs, *results):
        guarded.check()
    for result, expected in zip(arrays, run(problem, values, "reference"), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layer", few([name for name in LAYERS if "windows" not in name], 8))
def test_float16_is_storage_alone(layer: str, method: str) -> None:
    problem = problem_of(layer, method)
    assert_exact(problem, integers(problem, "float16"))


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float32", "float16")], ids="-".join)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layer", few(["few channels", "transposed", "depthwise", "fully connected, few images"], 2))
def test_operands_may_have_different_dtypes(layer: str, method: str, dtypes: tuple[str, str]) -> None:
    problem = problem_of(layer, method)
    assert_exact(problem, [v.astype(dtype) for v, dtype in zip(integers(problem), dtypes, strict=True)])


@pytest.mark.parametrize("layer", ["channels of every width", "few channels", "depthwise", "windows outside"])
@pytest.mark.parametrize("method", ["forward", "gradient_weights"])
def test_clamped_windows(layer: str, method: str) -> None:
    own, *_ = LAYERS[layer]
    spec = C(own.kernel_size, own.strides, own.dilations, own.offset, own.groups, "clamp")
    problem = problem_of(layer, method, spec)
    assert_exact(problem, integers(problem))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layer", ["channels of every width", "few results", "depthwise", "transposed"])
def test_biases_and_neurons(layer: str, dtype: str) -> None:
    own, shape, channels, size = LAYERS[layer]
    generator = np.random.default_rng(3)
    slopes = tuple(generator.integers(-3, 4, channels).tolist())
    for neuron in (None, Neuron("prelu", data=slopes), Neuron("absolute")):
        spec = own.__class__(own.kernel_size, own.strides, groups=own.groups, neuron=neuron)
        problem = spec.problems["forward"](spec, shape, channels, size, True)
        *inputs, biases = integers(problem, dtype)
        inputs.append(biases.astype(np.float32))
        assert_exact(problem, inputs)


@pytest.mark.parametrize("method", METHODS)
@layers
def test_bits_do_not_depend_on_the_number_of_threads(
    layer: str, method: str, set_threads: Callable[[int], None]
) -> None:
    problem = problem_of(layer, method)
    generator = np.random.default_rng(1)
    inputs = [generator.standard_normal(shape).astype(np.float32) for shape in problem.input_shapes.values()]
    set_threads(1)
    alone = [result.tobytes() for result in run(problem, inputs)]
    for count in (2, 3, 16):
        set_threads(count)
        assert [result.tobytes() for result in run(problem, inputs)] == alone


@pytest.mark.parametrize("method", METHODS)
def test_work_is_cut_and_its_pieces_fit_together(method: str, set_threads: Callable[[int], None]) -> None:
    """Layers large enough for several blocks of rows, parts of pixels and slices of channels."""
    generator = np.random.default_rng(2)
    for spec, shape, channels in (
        (C(3), (3, 40, 41, 36), 72),
        (C(1), (4, 7, 7, 200), 260),
        (C(3, groups=32), (6, 60, 50, 32), 32),
    ):
        problem = spec.problems[method](spec, shape, channels, shape[1:3])
        inputs = [generator.integers(-2, 3, s).astype(np.float32) for s in problem.input_shapes.values()]
        set_threads(3)
        for result, expected in zip(run(problem, inputs), run(problem, inputs, "reference"), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_which_path_a_problem_takes() -> None:
    def path(layer: str, method: str) -> str:
        return convolution_plan.plan(problem_of(layer, method)).path

    assert (
        path("few results", "forward") == "few_outputs" == path("transposed", "forward").replace("dense", "few_outputs")
    )
    assert path("few results", "gradient_data") == "dense"
    assert path("few channels", "gradient_data") == "dense", "33 is no multiple of a vector"
    for layer in ("depthwise", "depthwise, multiplied", "transposed depthwise, multiplied"):
        assert path(layer, "forward") == path(layer, "gradient_data") == "depthwise"
    assert path("one input channel a group, many outputs", "forward") == "dense"


def test_which_depthwise_kernels_have_code_of_their_own() -> None:
    def near(layer: str) -> list[tuple[int, ...]]:
        blocks = convolution_plan.plan(problem_of(layer, "forward")).blocks
        return [(lanes, *map(len, tuples)) for lanes, _, _, tuples in blocks]

    assert near("depthwise") == [(LANES, 3, 1), (4, 1, 1)]
    assert near("depthwise, strided") == [(16, 5, 2), (1, 1, 1)]
    assert near("depthwise, more taps than a sum") == [(2, 1, 1), (1, 1, 1)]


def test_chunks_of_depthwise_kernels_are_whole_images() -> None:
    spec = C(3, groups=960)
    plan = convolution_plan.plan(spec.problems["forward"](spec, (128, 7, 7, 960), 960, (7, 7)))
    assert plan.rows % 7 == 0 < plan.rows < plan.all_rows == 896


def test_how_weight_gradients_are_summed() -> None:
    def plan(layer: str) -> convolution_weights.Plan:
        return convolution_weights.plan(problem_of(layer, "gradient_weights"))

    assert plan("depthwise").depthwise
    assert plan("transposed").exchanged
    assert plan("many channels, short rows").x.tap_start.tolist() == [0, 1, 2, 3], "a part for each tap"
    assert plan("few channels").x.tap_start[-1] > 7, "the middle of the image and its borders"


def test_blocks_have_all_widths() -> None:
    plan = convolution_plan.plan(problem_of("channels of every width", "forward"))
    assert [lanes for lanes, *_ in plan.blocks] == [LANES]
    assert [lanes for *_, lanes in convolution_plan.cut(LANES + 5, "dense")] == [LANES, LANES]
    assert [lanes for *_, lanes in convolution_plan.cut(5, "dense")] == [8]
    assert [lanes for *_, lanes in convolution_plan.cut(LANES + 7, "depthwise")] == [LANES, 4, 2, 1]


def test_skipped_taps_are_not_multiplied() -> None:
    x = np.ones((1, 3, 3, 4), np.float32)
    for groups in (1, 4):
        w = np.ones((4, 3, 3, 4 // groups), np.float32)
        w[:, 0] = w[:, :, 0] = np.inf
        y = C(3, groups=groups).forward(x, w, backend="cpu")
        assert np.isfinite(y[0, 0, 0]).all()
        assert np.isinf(y[0, 1:, 1:]).all()
        g = np.zeros((1, 3, 3, 4), np.float32)
        g[0, 0, 0] = np.inf
        dw, _ = C(3, groups=groups).gradient_weights(g, x, backend="cpu")
        assert (dw[:, 0] == 0).all()
        assert (dw[:, :, 0] == 0).all()
        assert np.isinf(dw[:, 1:, 1:]).all()


def test_read_only_inputs_are_not_compiled_for_again() -> None:
    from mpsref_cpu.convolution.dense import dense

    problem = problem_of("channels of every width", "forward")
    inputs = integers(problem)
    (expected,) = run(problem, inputs)
    compiled = len(dense.signatures)  # type: ignore[attr-defined]
    for array in inputs:
        array.flags.writeable = False
    (result,) = run(problem, inputs)
    np.testing.assert_array_equal(result, expected)
    assert len(dense.signatures) == compiled  # type: ignore[attr-defined]


def third(*shape: int) -> Array:
    """A number whose multiples are rounded the same way again and again."""
    return np.full(shape, 1 / 3, np.float32)


ONE_THIRD = float(np.float32(1 / 3))
BLOCKED = 1100 * 2.0**-24
"""The error of a sum of equal terms with at most 1,024 additions in sequence, and some more for the sums of sums."""


def relative(result: Array, expected: float) -> float:
    return float(np.abs(result.astype(np.float64) / expected - 1).max())


@pytest.mark.parametrize("groups", [1, 3])
def test_large_sums_over_pixels_are_sums_of_sums(groups: int) -> None:
    n = 3 * 300 * 310
    x = np.full((3, 300, 310, 3), ONE_THIRD, np.float32)
    dw, db = C(1, groups=groups).gradient_weights(x, np.ones_like(x), backend="cpu")
    assert relative(dw, n * ONE_THIRD) < BLOCKED
    assert relative(db, n * ONE_THIRD) < BLOCKED


def test_a_row_longer_than_a_sum() -> None:
    x = third(1, 1, 70_000, 2)
    dw, _ = C(1).gradient_weights(x, np.ones_like(x), backend="cpu")
    assert relative(dw, 70_000 * ONE_THIRD) < BLOCKED


def test_large_sums_over_channels_are_sums_of_sums() -> None:
    many = 20_000
    x, w = third(2, 1, 1, many), np.ones((5, 1, 1, many), np.float32)
    assert relative(C(1).forward(x, w, backend="cpu"), many * ONE_THIRD) < BLOCKED
    assert relative(C(1).forward(x, w[:2], backend="cpu"), many * ONE_THIRD) < BLOCKED
    assert (
        relative(C(1).gradient_data(x, w[:1].reshape(many, 1, 1, 1), (2, 1, 1, 1), backend="cpu"), many * ONE_THIRD)
        < BLOCKED
    )
    assert relative(F(1).forward(x, w, backend="cpu"), many * ONE_THIRD) < BLOCKED
    g = third(2, 1, 1, many)
    w = np.ones((many, 1, 1, 7), np.float32)
    assert relative(F(1).gradient_data(g, w, (2, 1, 1, 7), backend="cpu"), many * ONE_THIRD) < BLOCKED
    assert (
        relative(F(1).gradient_data(np.repeat(g, 10, 0), w, (20, 1, 1, 7), backend="cpu"), many * ONE_THIRD) < BLOCKED
    )


def script(text: str) -> str:
    """Run Python text in a process of its own and return what it printed."""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=300, env={**os.environ})
    assert done.returncode == 0, done.stderr
    return done.stdout


SETUP = """
import sys
import numpy as np
from mpsref.kernels import Convolution, FullyConnected
from mpsref_cpu import backend
from mpsref_cpu import threads
threads.thread_count = lambda: 2
"""


def test_importing_the_backend_loads_neither_its_kernels_nor_blas() -> None:
    """Compiling loads SciPy's BLAS, as numba does for every function; no kernel calls it, nor sets its threads."""
    modules = "scipy.linalg", "mpsref_cpu.convolution.convolution"
    assert script(SETUP + f"print([name in sys.modules for name in {modules}])") == "[False, False]\n"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads peak memory from /proc")
def test_workspace_is_smaller_than_the_largest_operand() -> None:
    printed = script(
        SETUP
        + """
def peak(): return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
def reset(): open("/proc/self/clear_refs", "w").write("5")
def measure(call, largest, result):
    reset()
    before = peak()
    call()
    print((peak() - before - result) / largest)
def layer(conv, shape, channels):
    for x in (np.ones((1, 9, 9, shape[3]), np.float32), np.ones(shape, np.float32)):
        w = np.ones((channels, *conv.size, shape[3] // conv.groups), np.float32)
        y = np.ones((*x.shape[:3], channels), np.float32)
        dx = np.ones(x.shape, np.float32)
        dw = np.ones(w.shape, np.float32), np.ones(channels, np.float32)
        largest = max(x.nbytes, w.nbytes, y.nbytes)
        calls = (
            lambda: conv.forward(x, w, out=y, backend=backend),
            lambda: conv.gradient_data(y, w, x.shape, out=dx, backend=backend),
            lambda: conv.gradient_weights(y, x, out=dw, backend=backend),
        )
        if len(x) == 1:
            [call() for call in calls]
        else:
            [measure(call, largest, 0) for call in calls]
layer(Convolution(3), (6, 160, 160, 48), 64)
layer(Convolution(3), (2, 12, 12, 512), 512)
layer(Convolution(5, groups=64), (6, 160, 160, 64), 64)
"""
    )
    shares = [float(line) for line in printed.split()]
    assert len(shares) == 9
    assert max(shares) < 1.1, shares


def test_the_backend_has_all_operations() -> None:
    for spec in (C, T, F):
        for method in METHODS:
            assert registry.get_backend("cpu").why_not((spec, method), LAYERS["depthwise"][0]) is None
