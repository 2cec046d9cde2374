"""Arrays of every kind: layouts, byte orders, other libraries' objects, and the caller's ``out``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from mpsref import Adam, PoolingAverage, ShapeError, mps
from mpsref.arguments.arrays import Array, check_apart
from tests.contracts.test_operations import SUBCLASSES, Hostile
from tests.subjects.classes import MADE, arguments

POOL = PoolingAverage(3, 2)
X = np.random.default_rng(0).standard_normal((2, 5, 4, 3)).astype(np.float32)
G = np.random.default_rng(1).standard_normal((2, 3, 2, 3)).astype(np.float32)


def test_one_pixel_seen_everywhere(backend: str) -> None:
    """Zero strides: a constant image that has one element in memory."""
    x = np.broadcast_to(np.float32(3), (2, 5, 4, 3))
    y = PoolingAverage(2, 2, 1, "clamp").forward(x, backend=backend)
    assert np.array_equal(y, np.full(y.shape, 3))


def test_identity_does_not_return_its_input(backend: str) -> None:
    y = PoolingAverage(1).forward(X, backend=backend)
    assert np.array_equal(y, X)
    assert not np.shares_memory(y, X)


# ---- other libraries' objects ---------------------------------------------------------------------------------------


class WithArray:
    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.array


class WithDLPack:
    """DLPack and nothing else."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **words: Any) -> Any:
        return self.array.__dlpack__(**words)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OnAnotherDevice(WithDLPack):
    def __dlpack_device__(self) -> Any:
        return (2, 0)  # CUDA

    def __dlpack__(self, **words: Any) -> Any:
        raise BufferError("this memory is on a GPU")


class Broken:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise KeyError("lazy")


@pytest.mark.parametrize("wrap", [WithArray, WithDLPack, memoryview, list, np.ndarray.tolist])
def test_objects_that_turn_into_arrays(backend: str, wrap: Callable[[Array], Any]) -> None:
    """A list of images is a batch; plain Python numbers are float64, for the reference alone."""
    x, g = wrap(X), wrap(G)
    if wrap is np.ndarray.tolist and not backend.startswith("reference"):
        with pytest.raises(TypeError, match="x has dtype float64"):
            POOL.forward(x, backend=backend)
        return
    y = POOL.forward(x, backend=backend)
    np.testing.assert_allclose(y, POOL.forward(X, backend=backend), rtol=1e-5, atol=1e-6)
    dx = POOL.gradient(g, x, backend=backend)
    np.testing.assert_allclose(dx, POOL.gradient(G, X, backend=backend), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("thing", "reason"),
    [
        (Broken(), "lazy"),
        (OnAnotherDevice(X), "on a GPU"),
        ([[1.0], [2.0, 3.0]], "inhomogeneous"),
    ],
    ids=["broken", "device", "ragged"],
)
def test_objects_that_do_not(thing: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=rf"x of type .* cannot be read as a NumPy array \(.*{reason}.*; pass a NumPy"):
        POOL.forward(thing)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_matrices_have_the_wrong_rank(backend: str) -> None:
    with pytest.raises(ShapeError, match=r"x has shape \(2, 2\) of rank 2"):
        POOL.forward(np.matrix([[1.0, 2.0], [3.0, 4.0]]), backend=backend)


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    module: ModuleType = pytest.importorskip("torch", reason="these tests feed tensors of PyTorch")
    return module


def test_tensors(torch: ModuleType, backend: str) -> None:
    tensor, upstream = torch.from_numpy(X.copy()), torch.from_numpy(G.copy())
    for x, g in [(tensor, upstream), (tensor.half(), upstream.half())]:
        y = POOL.forward(x, backend=backend)
        assert type(y) is np.ndarray
        assert np.array_equal(y, POOL.forward(x.numpy(), backend=backend))
        dx = POOL.gradient(g, x, backend=backend)
        assert np.array_equal(dx, POOL.gradient(g.numpy(), x.shape, backend=backend))
    assert torch.equal(tensor, torch.from_numpy(X))


def test_tensors_that_numpy_cannot_read(torch: ModuleType) -> None:
    tensor = torch.from_numpy(X.copy())
    for bad, reason in [
        (tensor.clone().requires_grad_(), r"requires grad.*detach\(\)"),
        (tensor.bfloat16(), "BFloat16"),
        (tensor.to("meta"), "meta"),
        (tensor.to_sparse(), "Sparse"),
    ]:
        with pytest.raises(TypeError, match=rf"x of type Tensor cannot be read as a NumPy array .*{reason}"):
            POOL.forward(bad)
    with pytest.raises(TypeError, match="x has dtype int32; it must be float16 or float32"):
        POOL.forward(tensor.int())


# ---- out ------------------------------------------------------------------------------------------------------------


def test_out_must_not_overlap_an_input(backend: str) -> None:
    """Neither wholly nor by one element, neither the array nor the object that it came from."""
    pool, x = PoolingAverage(3), X.copy()
    for source in (x, WithArray(x), x.view()):
        with pytest.raises(ValueError, match=r"out shares memory with an input; kernels are out-of-place"):
            pool.forward(source, out=x, backend=backend)
    memory = np.zeros(2 * X.size - 1, np.float32)
    first, second = (memory[k : k + X.size].reshape(X.shape) for k in (0, X.size - 1))
    first[...] = X
    for out in (second, first[:, ::-1]):
        with pytest.raises(ValueError, match="out shares memory with an input"):
            pool.forward(first, out=out, backend=backend)
    swapped = x.view(x.dtype.newbyteorder(">"))  # a copy is computed on, but the memory is the same
    with pytest.raises(ValueError, match="out shares memory with an input"):
        pool.gradient(swapped, x.shape, out=x, backend=backend)
    assert np.array_equal(x, X)


def test_out_may_lie_between_the_elements_of_an_input(backend: str) -> None:
    memory = np.empty((2, 5, 4, 6), np.float32)
    x, out = memory[..., ::2], memory[..., 1::2]
    x[...] = X
    pool = PoolingAverage(3)
    assert np.array_equal(pool.forward(x, out=out, backend=backend), pool.forward(X, backend=backend))
    assert np.array_equal(x, X)


def test_the_average_gradient_does_not_read_the_source(backend: str) -> None:
    """So its memory may be that of the result."""
    x = X.copy()
    assert POOL.gradient(G, x, out=x, backend=backend) is x
    assert np.array_equal(x, POOL.gradient(G, X, backend=backend))


def overlapping_outs() -> dict[str, tuple[tuple[Array, ...], str]]:
    a, b, c = (np.zeros(8, np.float32) for _ in range(3))
    shared = r"^out\[2\] shares memory with out\[1\]; pass an array of its own for each result$"
    itself = r"^out\[0\] overlaps itself: with shape \(4,\) and strides \(0,\) several elements share memory"
    return {
        "the same twice": ((a, b, b), shared),
        "the same three times": ((a, a, a), r"^out\[1\] shares memory with out\[0\]"),
        "one element": ((a[:4], b[:4], b[3:7]), shared),
        "reversed": ((a, b, b[::-1]), shared),
        "itself": ((as_strided(a, (4,), (0,)), b[:4], c[:4]), itself),
    }


@pytest.mark.parametrize("kind", overlapping_outs())
def test_results_must_not_overlap_each_other(backend: str, kind: str) -> None:
    out, message = overlapping_outs()[kind]
    inputs = [np.ones(out[0].shape, np.float32) for _ in range(4)]
    with pytest.raises(ValueError, match=message):
        Adam().step(*inputs, out=out, backend=backend)
    assert not any(array.any() for array in out)


def test_results_may_lie_between_each_other(backend: str) -> None:
    memory = np.zeros(24, np.float32)
    inputs = [np.ones(8, np.float32) for _ in range(4)]
    expected = Adam().step(*inputs, backend=backend)
    Adam().step(*inputs, out=(memory[::3], memory[1::3], memory[2::3]), backend=backend)
    for k in range(3):
        assert np.array_equal(memory[k::3], expected[k])


@pytest.mark.parametrize("strides", [(48, 12, 0, 4), (60, 4, 4, 4), (0, 48, 16, 4), (40, 16, 8, 4), (-40, 16, -8, 4)])
def test_out_must_not_overlap_itself(backend: str, strides: tuple[int, ...]) -> None:
    memory = np.zeros(200, np.float32)
    out = as_strided(memory[100:], G.shape, strides)
    with pytest.raises(ValueError, match=r"^out overlaps itself: with shape .* several elements share memory; pass"):
        POOL.forward(X, out=out, backend=backend)
    assert not memory.any()


def test_an_overlap_that_cannot_be_decided_is_refused_at_once() -> None:
    memory = np.zeros(2**28, np.float32)  # never written, so it takes no memory
    first = as_strided(memory, (12, 18, 26, 22), (231960, 173140, 164440, 201552))
    second = as_strided(memory[1:], (19, 28, 32, 29), (12736, 112492, 303536, 218700))
    message = r"^a may share memory with b: strides \(231960, .* too irregular to decide it; .*, or a copy of b$"
    with pytest.raises(ValueError, match=message):
        check_apart("a", first, "b", second)
    check_apart("a", first, "b", second[:1, :1, :1])


# ---- subclasses -----------------------------------------------------------------------------------------------------


def test_masked_weights_of_a_data_source() -> None:
    masked = np.ma.MaskedArray(np.ones((2, 3, 3, 2), np.float32), mask=True)
    source = mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(3, 3, 2, 2), np.ones((2, 3, 3, 2), "f4"))
    source.weights = lambda: masked  # type: ignore[method-assign]
    with pytest.raises(TypeError, match=r"^data_source.weights\(\) is a masked array"):
        mps.MPSCNNConvolution(source)


def test_the_overlap_with_a_subclass_is_found(backend: str) -> None:
    x, vector = X.copy(), np.ones(3, np.float32)
    with pytest.raises(ValueError, match="out shares memory with an input"):
        PoolingAverage(3).forward(x.view(Hostile), out=x, backend=backend)
    with pytest.raises(ValueError, match="out shares memory with an input"):
        PoolingAverage(3).forward(x, out=x.view(Hostile), backend=backend)
    inputs: list[Any] = [np.ones(3, np.float32), vector.view(Hostile), *np.ones((2, 3), np.float32)]
    out = [np.empty(3, np.float32), vector, np.empty(3, np.float32)]
    with pytest.raises(ValueError, match=r"out\[1\] shares memory with an input"):
        Adam().step(*inputs, out=tuple(out), backend=backend)
    assert np.array_equal(x, X)


ENCODED = [
    kind
    for kind in MADE
    if list(inspect.signature(getattr(kind, "encode", len)).parameters)[1:3] == ["source_image", "destination_image"]
    and kind not in (mps.MPSCNNBatchNormalization, mps.MPSNNReshape)  # which need more than images
]


def kernel(kind: type[Any]) -> Any:
    return kind(**arguments(kind), backend="cpu")


@pytest.mark.parametrize("kind", ENCODED, ids=lambda kind: kind.__name__)
def test_subclasses_as_images_of_kernels(kind: type[Any]) -> None:
    x = np.abs(np.random.default_rng(0).standard_normal((2, 4, 4, 2))).astype(np.float32)
    expected = kernel(kind).encode(x)
    for subclass in SUBCLASSES:
        memory = np.full(expected.shape, np.nan, np.float32)
        destination = memory.view(subclass)
        assert kernel(kind).encode(x.view(subclass), destination) is destination
        np.testing.assert_array_equal(memory, expected)
        memory[...] = np.nan
        image = mps.MPSImage(destination, copy=False)
        assert kernel(kind).encode(mps.MPSImage(x.view(subclass), copy=False), image) is image
        np.testing.assert_array_equal(memory, expected)


def test_subclasses_as_vectors_of_an_optimizer() -> None:
    names = ["input_gradient_vector", "input_values_vector", "input_momentum_vector", "input_velocity_vector"]
    for kind in SUBCLASSES:
        memory: dict[str, Any] = {name: np.ones(5, np.float32) for name in names}
        wanted = mps.MPSNNOptimizerAdam(0.1).encode(**memory)
        given = {name: np.ones(5, np.float32) for name in names}
        result = np.zeros(5, np.float32)
        destination = result.view(kind)
        arrays: dict[str, Any] = {name: array.view(kind) for name, array in given.items()}
        adam = mps.MPSNNOptimizerAdam(0.1)
        assert adam.encode(**arrays, result_values_vector=destination) is destination
        np.testing.assert_array_equal(result, wanted)
        for name in names:
            np.testing.assert_array_equal(given[name], memory[name])


def test_one_image_twice_in_a_batch_that_is_written() -> None:
    kernel = mps.MPSCNNPoolingMax(2, 2)
    image = mps.MPSImage(np.zeros((1, 2, 2, 3), np.float32))
    source = np.ones((2, 4, 4, 3), np.float32)
    with pytest.raises(ValueError, match=r"^image 1 of destination_image shares memory with another image"):
        kernel.encode(source, destination_image=[image, image])
    assert not image.array.any()
