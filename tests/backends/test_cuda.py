"""The backend ``metal:cuda`` over a fake cuda.core: everything but the GPU. PTX is what clang writes for a real one."""

from __future__ import annotations

import numpy as np
import pytest

import mpsref
import mpsref_metal
from anymetal import cuda
from mpsref.conformance import checker
from mpsref.operations import Operation
from tests.backends import on_device


def test_the_backend_says_why():
    if mpsref_metal.cuda.unavailable() is None:
        pytest.skip("there is an NVIDIA GPU")
    x = np.ones((1, 4, 4, 1), np.float32)
    with pytest.raises(mpsref.UnsupportedError, match='backend="metal:clang" runs the same kernels'):
        mpsref.SoftMax().forward(x, backend=mpsref_metal.cuda)


def test_a_backend(fake_cuda):
    backend = mpsref_metal.backend_on("metal:cuda", cuda)
    x = np.random.default_rng(3).integers(-8, 8, (2, 9, 7, 3)).astype(np.float32)
    pool = mpsref.PoolingAverage(kernel_size=(2, 2), strides=(2, 1), edge_mode="clamp")
    for dtype in (np.float32, np.float16):
        y = pool.forward(x.astype(dtype))
        found = pool.forward(x.astype(dtype), backend=backend)
        assert found.dtype == dtype
        assert found.tolist() == y.tolist()
    assert backend.device() == str(cuda.open_device())


ON_DEVICE = [
    Operation(mpsref.SoftMax, "gradient"),
    Operation(mpsref.BatchNormalization, "statistics"),
    Operation(mpsref.ConvolutionTranspose, "gradient_weights"),
    Operation(mpsref.FullyConnected, "gradient_weights"),
    Operation(mpsref.Concatenation, "forward"),
    Operation(mpsref.Arithmetic, "gradient"),
    Operation(mpsref.Dropout, "forward"),
    Operation(mpsref.Loss, "forward"),
]


@pytest.mark.slow
@pytest.mark.parametrize("operation", ON_DEVICE, ids=str)
def test_operations_on_the_device(fake_cuda, operation):
    """With inputs and results on the device, and with NumPy arrays."""
    host = mpsref_metal.backend_on("metal:cuda", cuda)
    on_device.downloads.clear()
    rows = checker.check_operation(operation, [host, on_device.backend_on_device(host)], number=3)
    assert [row.status for row in rows] == ["passed", "passed"]
    assert set(on_device.downloads) <= set(on_device.FINISHED_ON_THE_HOST)


# ------------------------------------------------------------------------------------------------ arrays of users


class Theirs:
    """An array of another library on the device."""

    def __init__(self, held, stream=None, index=0, strides=None):
        self.held, self.index = held, index
        interface = held.__cuda_array_interface__ | {"stream": stream}
        self.__cuda_array_interface__ = {key: value for key, value in interface.items() if value is not None}

    def __dlpack_device__(self):
        return (2, self.index)


@pytest.fixture
def backend(fake_cuda):
    on_device.downloads.clear()
    return mpsref_metal.backend_on("metal:cuda", cuda)


@pytest.fixture
def x():
    return np.random.default_rng(4).integers(-8, 8, (2, 9, 7, 3)).astype(np.float32)


POOL = mpsref.PoolingMax(kernel_size=(3, 2), strides=2)


def test_results_stay_where_the_inputs_are(backend, x, fake_cuda):
    POOL.__dict__.pop("_calls", None)
    device = cuda.open_device()
    given = device.array(x)
    POOL.forward(given, backend=backend)  # compiles, and tables go up
    before = len(fake_cuda.history)
    y = POOL.forward(given, backend=backend)
    assert isinstance(y, cuda.Array)
    assert not [line for line in fake_cuda.history[before:] if line.startswith(("copy", "sync"))]
    assert len(POOL.__dict__["_calls"]) == 1  # prepared once
    np.testing.assert_array_equal(np.asarray(y), POOL.forward(x))
    dx = POOL.gradient(y, given, backend=backend)
    np.testing.assert_array_equal(np.asarray(dx), POOL.gradient(POOL.forward(x), x))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_results_go_into_arrays_on_the_device(backend, x, dtype):
    device = cuda.open_device()
    x = x.astype(dtype)
    y = POOL.forward(x)
    out = device.result(y.shape, dtype)
    theirs = Theirs(out)
    assert POOL.forward(device.array(x), backend=backend, out=theirs) is theirs
    np.testing.assert_array_equal(np.asarray(out), y)
    out.fill(0)
    assert POOL.forward(x, backend=backend, out=out) is out  # from the host
    np.testing.assert_array_equal(np.asarray(out), y)
    wide = device.result((*y.shape[:3], 8), dtype)
    POOL.forward(device.array(x), backend=backend, out=wide[..., 2:5])  # strided
    np.testing.assert_array_equal(np.asarray(wide[..., 2:5]), y)
    host = np.empty_like(y)
    assert POOL.forward(device.array(x), backend=backend, out=host) is host
    np.testing.assert_array_equal(host, y)


def test_results_that_do_not_fit(backend, x):
    given = cuda.open_device().array(x)
    with pytest.raises(mpsref.ShapeError, match="out has shape"):
        POOL.forward(given, backend=backend, out=cuda.open_device().result((1, 2, 3, 4), np.float32))
    with pytest.raises(TypeError, match="out has dtype float16; the result has dtype float32"):
        POOL.forward(given, backend=backend, out=cuda.open_device().result(POOL.forward(x).shape, np.float16))
    with pytest.raises(ValueError, match="shares memory with an input"):
        mpsref.SoftMax().forward(given, backend=backend, out=given)
    with pytest.raises(TypeError, match=r"x has dtype int32"):
        POOL.forward(given.astype(np.int32), backend=backend)
    with pytest.raises(mpsref.ShapeError, match="of rank 3"):
        POOL.forward(given[0], backend=backend)


def test_calls_follow_the_stream_of_their_arrays(backend, x, fake_cuda):
    held = cuda.open_device().array(x)
    first, second = Theirs(held, stream=0x50), Theirs(held, stream=0x60)
    y = mpsref.SoftMax().forward(first, backend=backend)
    assert y.memory.stream.handle == 0x50
    launches = [line for line in fake_cuda.history if line.startswith("launch")]
    assert launches[-1].endswith("on 0x50 early")
    history = len(fake_cuda.history)
    mpsref.SoftMax().gradient(first, second, backend=backend)
    assert "0x60 waits for 0x50" in fake_cuda.history[history:]
    assert not any(line.startswith("sync") for line in fake_cuda.history[history:])
    mpsref.SoftMax().forward(Theirs(held), backend=backend)  # of a library that does not name its stream
    assert fake_cuda.history[-1].startswith("sync")


def test_arrays_on_two_devices(backend, x):
    first, second = cuda.open_device(0).array(x), cuda.open_device(1).array(x)
    with pytest.raises(ValueError, match="the arrays are on the devices 0, 1; one call has one device"):
        mpsref.SoftMax().gradient(first, second, backend=backend)
    y = mpsref.SoftMax().forward(second, backend=backend)
    assert y.device.index == 1
    np.testing.assert_array_equal(np.asarray(y), mpsref.SoftMax().forward(x, backend=backend))


def test_other_backends_read_arrays_of_the_host(backend, x):
    given = cuda.open_device().array(x)
    for other in ("reference", "cpu"):
        with pytest.raises(TypeError, match=r"x is on a device, cuda.Array\(.*pass numpy.asarray\(x\)"):
            mpsref.SoftMax().forward(given, backend=other)


def test_empty_batches_on_the_device(backend):
    y = mpsref.SoftMax().forward(cuda.open_device().result((0, 4, 4, 2), np.float32), backend=backend)
    assert (type(y), y.shape) == (cuda.Array, (0, 4, 4, 2))
