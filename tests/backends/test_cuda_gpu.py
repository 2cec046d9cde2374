"""The backend ``metal:cuda`` on an NVIDIA GPU: what the fake cannot show."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import mpsref
import mpsref_metal
from anymetal import cuda
from mpsref.conformance import checker
from mpsref.conformance.case import operations as all_operations
from tests import python_path
from tests.backends import on_device

pytestmark = pytest.mark.nvidia


@pytest.fixture(scope="module")
def device() -> cuda.Device:
    return cuda.open_device()


@pytest.mark.parametrize("operation", list(all_operations()), ids=str)
def test_operations_on_the_device(operation, monkeypatch):
    """With inputs and results on the device, on small random cases."""
    monkeypatch.setattr(checker, "layer_cases", lambda operation: [])
    backend = on_device.backend_on_device(mpsref_metal.cuda)
    on_device.downloads.clear()
    (row,) = checker.check_operation(operation, [backend], number=20)
    assert row.status == "passed", row.failures
    assert set(on_device.downloads) <= set(on_device.FINISHED_ON_THE_HOST)


POOL = mpsref.PoolingMax(kernel_size=3, strides=2)


@pytest.fixture
def x():
    return np.random.default_rng(4).integers(-8, 8, (4, 33, 31, 24)).astype(np.float32)


def test_operations_on_tensors_of_pytorch(x):
    """In place, in PyTorch's stream, whichever it is, and with results that PyTorch takes without a copy."""
    torch = pytest.importorskip("torch")
    backend = mpsref_metal.cuda
    expected = POOL.forward(x)
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for _ in range(5):
                given = torch.full(x.shape, 1e9, device="cuda")
                torch.cuda._sleep(2_000_000)  # what follows would overtake it in another stream
                given.copy_(torch.from_numpy(x))
                y = POOL.forward(given, backend=backend)
                assert isinstance(y, cuda.Array)
                assert int(y.memory.stream.handle) in (stream.cuda_stream, 1)
                back = torch.from_dlpack(y)
                given.fill_(-1e9)
                assert back.data_ptr() == y.address
                np.testing.assert_array_equal(back.cpu().numpy(), expected)
            out = torch.empty(expected.shape, device="cuda")
            assert POOL.forward(torch.from_numpy(x).cuda(), backend=backend, out=out) is out
            np.testing.assert_array_equal(out.cpu().numpy(), expected)
    channels_last = torch.from_numpy(x).cuda().permute(0, 3, 1, 2)  # NCHW, in the memory of NHWC
    y = POOL.forward(channels_last.permute(0, 2, 3, 1), backend=backend)
    np.testing.assert_array_equal(np.asarray(y), expected)
    y = POOL.forward(torch.from_numpy(x).cuda().permute(0, 2, 1, 3), backend=backend)  # strided
    np.testing.assert_array_equal(np.asarray(y), POOL.forward(x.transpose(0, 2, 1, 3)))
    with pytest.raises(TypeError, match="x has dtype int64"):
        POOL.forward(torch.zeros((1, 4, 4, 1), dtype=torch.int64, device="cuda"), backend=backend)
    with pytest.raises(TypeError, match="bfloat16"):
        POOL.forward(torch.zeros((1, 4, 4, 1), dtype=torch.bfloat16, device="cuda"), backend=backend)


def test_operations_on_arrays_of_cupy(x):
    cupy = pytest.importorskip("cupy")
    given = cupy.asarray(x)
    y = POOL.forward(given, backend="metal:cuda")
    np.testing.assert_array_equal(cupy.from_dlpack(y).get(), POOL.forward(x))
    with cupy.cuda.Stream(non_blocking=True):
        dx = POOL.gradient(y, given, backend="metal:cuda")
        np.testing.assert_array_equal(cupy.asarray(dx).get(), POOL.gradient(POOL.forward(x), x))


def test_operations_on_arrays_of_jax():
    pytest.importorskip("jax")
    code = """
    import os
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax, jax.numpy as jnp, numpy as np, mpsref
    x = np.random.default_rng(0).standard_normal((2, 8, 8, 5)).astype(np.float32)
    given = jnp.asarray(x) * 2
    y = mpsref.SoftMax().forward(given, backend="metal:cuda")
    back = jax.dlpack.from_dlpack(y)
    print(np.allclose(back, mpsref.SoftMax().forward(2 * x), atol=1e-6))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=False, timeout=120, env=os.environ | {"PYTHONPATH": python_path()},
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr


def test_convolution_against_pytorch():
    """All three passes, resident on the device, in float32 without TF32."""
    torch = pytest.importorskip("torch")
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    x, w = torch.randn(8, 28, 28, 32, device="cuda"), torch.randn(48, 3, 3, 32, device="cuda") / 17
    g = torch.randn(8, 28, 28, 48, device="cuda")
    conv = mpsref.Convolution(3)
    y = torch.from_dlpack(conv.forward(x, w, backend="metal:cuda"))
    expected = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=1)
    assert y.shape == (8, 28, 28, 48)
    torch.testing.assert_close(y, expected.permute(0, 2, 3, 1), rtol=1e-4, atol=1e-4)
    dw, db = map(torch.from_dlpack, conv.gradient_weights(g, x, backend="metal:cuda"))
    xs = x.permute(0, 3, 1, 2)
    weights = torch.nn.grad.conv2d_weight(xs, (48, 32, 3, 3), g.permute(0, 3, 1, 2), padding=1)
    torch.testing.assert_close(dw, weights.permute(0, 2, 3, 1), rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(db, g.sum((0, 1, 2)), rtol=1e-3, atol=1e-2)


def test_sums_of_losses_and_slopes_do_not_wait(device, monkeypatch):
    """No array on the device is copied to the host, also where losses are chained and divided by numbers of weights."""
    rng = np.random.default_rng(0)
    y, t, weights = (rng.standard_normal((3, 40, 40, 4)).astype(np.float32) for _ in range(3))
    g = rng.standard_normal((3, 1, 1, 1)).astype(np.float32)
    loss, neuron = mpsref.Loss("huber", "sumbynonzeroweights"), mpsref.Neuron("prelu", data=(0.1, 0.2, 0.3, 0.4))
    wanted = [loss.forward(y, t, weights), loss.gradient(g, y, t, weights), neuron.parameter_gradient(t, y)]
    y, t, weights, g = map(device.array, (y, t, weights, g))
    with monkeypatch.context() as patched:
        patched.setattr(cuda.Device, "download", None)
        found = [
            loss.forward(y, t, weights, backend="metal:cuda"),
            loss.gradient(g, y, t, weights, backend="metal:cuda"),
            neuron.parameter_gradient(t, y, backend="metal:cuda"),
        ]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-4, atol=1e-5)


def test_a_timer_measures_arrays_that_another_stream_has_used():
    arrays = mpsref_metal.cuda.arrays
    x = arrays.put(np.ones((1, 64, 64, 64), np.float32), (256, 64, 64, 64))
    kernel = mpsref.Neuron("relu")
    assert np.asarray(x).size  # in the stream of the thread
    seconds = arrays.timer(lambda: kernel.forward(x, backend="metal:cuda"))()
    assert 2 * x.nbytes / seconds < 20e12  # faster than the memory of any GPU: nothing was measured
