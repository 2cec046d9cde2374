"""The cuda runtime on an NVIDIA GPU: what the fake cannot show."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from typer.testing import CliRunner

import anymetal
import shared
from anymetal import LaunchError, cuda
from anymetal.command import app
from shared import COPY, REVERSE, SUMS, reversed_in_groups, size

pytestmark = pytest.mark.nvidia


@pytest.fixture(scope="module")
def device() -> cuda.Device:
    return cuda.open_device()


def python(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter; return what it printed, with standard error where it failed."""
    done = shared.python(code, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_names_its_device(device):
    assert "compute capability" in str(device)
    assert "driver" in str(device)
    assert cuda.unavailable() is None


def test_copies_and_launches(device):
    x = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)  # through pinned memory
    out = device.buffer(x.nbytes)
    device.kernel(COPY).function("copy")(x.size, x, out, size(x.size))
    np.testing.assert_array_equal(np.asarray(out.view("f4")), x)


def test_results_start_as_nan(device):
    for dtype in (np.float32, np.float16):
        assert np.isnan(np.asarray(device.result((3, 5), dtype))).all()
    assert not np.asarray(device.result((7,), np.uint8)).any()


def test_views_and_copies_on_the_device(device):
    x = np.random.default_rng(1).standard_normal((4, 5, 6, 7)).astype(np.float32)
    a = device.array(x)
    np.testing.assert_array_equal(np.asarray(a.transpose(3, 1, 2, 0)), x.transpose(3, 1, 2, 0))
    np.testing.assert_array_equal(np.asarray(a[1:, ::-1, ::2].copy()), x[1:, ::-1, ::2])
    np.testing.assert_array_equal(np.asarray(a.astype(np.float16)), x.astype(np.float16))
    np.testing.assert_array_equal(np.asarray(a.swapaxes(0, 2).reshape(6, -1)), x.swapaxes(0, 2).reshape(6, -1))
    a[:, 1:3] = 2.5
    x[:, 1:3] = 2.5
    a[0] = a[1]
    x[0] = x[1]
    np.testing.assert_array_equal(np.asarray(a), x)
    a.fill(0)
    assert not np.asarray(a).any()


def test_threads_each_with_a_stream(device):
    sums = device.kernel(SUMS).function("sums")
    streams, wrong = [], []

    def work(seed):
        x = np.random.default_rng(seed).integers(-100, 100, 128 * 500).astype(np.int32)
        streams.append(int(device.stream.handle))
        for _ in range(50):
            out = device.buffer(4 * 500)
            sums(x.size, x, out)
            if not np.array_equal(np.asarray(out.view("i4")), x.reshape(-1, 128).sum(1)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(set(streams)) == 8


def test_an_array_in_two_streams(device):
    """The second stream waits for what the first one writes."""
    core = cuda.driver.core()
    x = np.random.default_rng(2).standard_normal(1 << 24).astype(np.float32)
    copy = device.kernel(COPY).function("copy")
    with device.active():
        streams = [core.Device(device.index).create_stream() for _ in range(2)]
    for _ in range(5):
        a, b = device.result(x.shape, "f4"), device.result(x.shape, "f4")
        with device.on(streams[0]):
            copy(x.size, x, a, size(x.size))
        with device.on(streams[1]):
            copy(x.size, a, b, size(x.size))
        np.testing.assert_array_equal(np.asarray(b), x)


def test_two_devices():
    core = cuda.driver.core()
    if len(core.Device.get_all_devices()) < 2:
        pytest.skip("one device")
    x = np.arange(1000, dtype=np.float32)
    first, second = cuda.open_device(0), cuda.open_device(1)
    made = []
    for device in (first, second, first):
        out = device.buffer(x.nbytes)
        device.kernel(COPY).function("copy")(x.size, x, out, size(x.size))
        made.append(out)
    for out in made:
        np.testing.assert_array_equal(np.asarray(out.view("f4")), x)
    with pytest.raises(LaunchError, match="the array is on device 1, the kernel on 0"):
        first.kernel(COPY).function("copy")(4, made[1], made[0], size(4))


def test_too_much_memory(device):
    with pytest.raises(LaunchError, match=r"cannot allocate \d+ bytes: \d+ of its \d+ bytes are free"):
        device.buffer(1 << 45)
    assert np.asarray(device.array(np.ones(3))).sum() == 3  # the context is as before


@pytest.mark.parametrize("threads", [None, 1024])
def test_many_registers(device, threads):
    """256 threads or fewer where a kernel names no number; as many as it names where it does."""
    named = "" if threads is None else f"[[max_total_threads_per_threadgroup({threads})]]"
    values = ", ".join(f"x[i + {k}u * n]" for k in range(200))
    source = f"""#include <metal_stdlib>
    {named} kernel void f(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                          constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {{
        if (i >= n) return;
        float values[200] = {{{values}}};
        for (int round = 0; round < 3; ++round)
            for (int k = 0; k < 200; ++k) values[k] = values[k] * values[(k * 7 + 1) % 200] + 1.0f;
        float sum = 0;
        for (int k = 0; k < 200; ++k) sum += values[k];
        out[i] = sum;
    }}"""
    x = np.zeros((200, 2000), np.float32)
    function = device.kernel(source).function("f")
    assert function.threads == threads or (threads is None and function.threads <= 256)
    out = device.result((2000,), "f4")
    function(2000, x, out, np.uint32(2000))
    found = np.asarray(out)
    assert (found == found[0]).all()
    assert np.isfinite(found).all()


FAULT = """
import numpy as np
import anymetal
from anymetal import LaunchError, cuda
from anymetal.command import app
device = cuda.open_device()
bad = device.kernel('''#include <metal_stdlib>
kernel void wild(device float* x [[buffer(0)]], device const ulong* at [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {{ x[at[i % 2]] = 1; }}''').function("wild")
x = device.buffer(64)
bad(64, x, np.full(2, {index}, np.uint64))
for _ in range(2):
    try:
        np.asarray(x)
    except LaunchError as error:
        print(error)
"""


def test_an_address_fault_ends_the_context():
    lines = python(FAULT.format(index="2**40")).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("kernel `wild` accessed memory outside all of its buffers (CUDA_ERROR_ILLEGAL_ADDRESS)")
        assert "start a new process" in line


def test_forks():
    code = f"""
    import os, warnings, numpy as np
    warnings.simplefilter("ignore")
    import anymetal
    from anymetal import LaunchError, cuda
    def once():
        device = cuda.open_device()
        out = device.buffer(24)
        device.kernel({COPY!r}).function("copy")(6, np.arange(6, dtype=np.float32), out, np.array([6, 0], np.uint32))
        return float(np.asarray(out.view("f4")).sum())
    def child(expected):
        pid = os.fork()
        if pid == 0:
            try:
                result = str(once())
            except LaunchError as error:
                result = str(error)
            os._exit(0 if expected in result else 1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(child("15.0"), once(), child("was forked from one that had used CUDA"), once())
    """
    assert python(code) == "0 15.0 0 15.0"


# ------------------------------------------------------------------------------------------------ other libraries


def test_pytorch(device):
    torch = pytest.importorskip("torch")
    x = torch.arange(4096, dtype=torch.float32, device="cuda")
    a = device.adopt(x)
    assert a.address == x.data_ptr()
    out = device.result((4096,), "f4")
    device.kernel(COPY).function("copy")(4096, a, out, size(4096))
    back = torch.from_dlpack(out)
    assert back.data_ptr() == out.address
    assert torch.equal(back, x)
    turned = device.adopt(x.reshape(64, 64).T)
    np.testing.assert_array_equal(np.asarray(turned), x.cpu().numpy().reshape(64, 64).T)
    assert torch.equal(torch.as_tensor(out, device="cuda"), x)  # through __cuda_array_interface__


def test_cupy(device):
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(4096, dtype=cupy.float32)
    a = device.adopt(x)
    assert a.address == x.data.ptr
    out = device.result((4096,), "f4")
    device.kernel(COPY).function("copy")(4096, a, out, size(4096))
    for back in (cupy.from_dlpack(out), cupy.asarray(out)):
        assert back.data.ptr == out.address
        assert bool((back == x).all())


def test_jax():
    code = f"""
    import os
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax, jax.numpy as jnp, numpy as np
    from anymetal import cuda
    device = cuda.open_device()
    x = jnp.arange(4096, dtype=jnp.float32)
    a = device.adopt(x)
    out = device.result((4096,), "f4")
    device.kernel({COPY!r}).function("copy")(4096, a, out, np.array([4096, 0], np.uint32))
    back = jax.dlpack.from_dlpack(out)
    print(bool((back == x).all()))
    """
    pytest.importorskip("jax")
    assert python(code) == "True"


# ------------------------------------------------------------------------------------------------ exact grids

LANES = """
#include <metal_stdlib>
using namespace metal;
kernel void lanes(device const float *x, device float4 *y, uint i [[thread_position_in_grid]],
                  uint t [[thread_index_in_threadgroup]]) {
    y[i] = float4(simd_sum(x[i]), simd_prefix_inclusive_sum(x[i]), simd_broadcast(x[i], 0), simd_max(x[i]));
}
kernel void product(device const float *a, device const float *b, device float *c,
                    uint2 g [[threadgroup_position_in_grid]]) {
    simdgroup_float8x8 x, y, z = make_filled_simdgroup_matrix<float, 8>(0.0f);
    for (uint k = 0; k < 32; k += 8) {
        simdgroup_load(x, a, 32, ulong2(k, 8 * g.y));
        simdgroup_load(y, b, 16, ulong2(8 * g.x, k));
        simdgroup_multiply_accumulate(z, x, y, z);
    }
    simdgroup_store(z, c, 16, ulong2(8 * g.x, 8 * g.y));
}
kernel void places(device uint *out, uint3 i [[thread_position_in_grid]], uint3 n [[threads_per_grid]],
                   uint3 g [[threadgroup_position_in_grid]], uint3 e [[threads_per_threadgroup]],
                   uint3 w [[threadgroups_per_grid]], uint t [[thread_index_in_threadgroup]],
                   uint s [[simdgroup_index_in_threadgroup]]) {
    const uint at = (i.z * n.y + i.y) * n.x + i.x;
    out[at] = t + 1000 * s + 10000 * (g.x + w.x * (g.y + w.y * g.z)) + 1000000 * (e.x + e.y + e.z);
}"""


@pytest.mark.parametrize(
    ("grid", "group"), [((10, 5), (4, 2)), ((64, 8), (32, 4)), ((7, 3), (7, 3)), ((300, 3), (128, 2))]
)
def test_exact_grids_and_threadgroup_memory_as_a_parameter(device, grid, group):
    x = np.random.default_rng(0).random(grid[::-1], np.float32)
    y, local = device.buffer(x.nbytes), {0: 16, 2: 4 * group[0] * group[1] + 15 & ~15}
    function = device.kernel(REVERSE, version="3.1").function("reverse")
    function.dispatch(grid, x, y, threadgroup=group, local=local)
    np.testing.assert_array_equal(np.asarray(y).view("f4").reshape(x.shape), reversed_in_groups(x, group))


@pytest.mark.parametrize(
    ("grid", "group"), [((9, 5, 7), (4, 2, 3)), ((100, 1, 1), (96, 1, 1)), ((2, 70000, 1), (2, 1, 1))]
)
def test_places_of_threads(grid, group):
    found = np.zeros((2, *grid[::-1]), np.uint32)
    for out, runtime in zip(found, ("clang", "cuda"), strict=True):
        library = anymetal.compile(LANES, runtime=runtime, check_order=False, sanitize=False)
        library["places"](grid, group, out)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("threads", [1, 31, 32, 45, 64, 100])
def test_simdgroups_that_are_not_full(threads):
    x = np.arange(1, 201, dtype=np.float32)
    found = np.zeros((2, 200, 4), np.float32)
    for y, runtime in zip(found, ("clang", "cuda"), strict=True):
        library = anymetal.compile(LANES, runtime=runtime, sanitize=False)
        library["lanes"](200, threads, x, y)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_matrices_of_simdgroups():
    rng = np.random.default_rng(0)
    a, b, c = rng.random((24, 32), np.float32), rng.random((32, 16), np.float32), np.zeros((24, 16), np.float32)
    anymetal.compile(LANES, runtime="cuda")["product"].threadgroups((2, 3), 32, a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_the_largest_threadgroup_memory(device):
    function = device.kernel(REVERSE, version="3.1").function("reverse")
    x = np.arange(1024, dtype=np.float32).reshape(1, 1024)
    y = device.buffer(x.nbytes)
    most = (32768 - function.variable_bytes - 16) // 16 * 16
    function.dispatch((1024, 1), x, y, threadgroup=(1024, 1), local={0: 16, 2: most})
    np.testing.assert_array_equal(np.asarray(y).view("f4"), reversed_in_groups(x, (1024, 1))[0])
    with pytest.raises(LaunchError, match="the maximum is 32768"):
        function.dispatch((1024, 1), x, y, threadgroup=(1024, 1), local={0: 16, 2: most + 16})


def test_the_command(tmp_path):
    (tmp_path / "f.metal").write_text(LANES)
    np.save(tmp_path / "x.npy", np.ones(100, np.float32))
    line = ["--kernel", "lanes", "--grid", "100", "--group", "48", "--buffer", str(tmp_path / "x.npy")]
    line += ["--buffer", "y:float32:400", "--runtime", "cuda", "--save", str(tmp_path)]
    done = CliRunner().invoke(app, [str(tmp_path / "f.metal"), *line])
    assert (done.exit_code, done.stderr) == (0, "")
    assert "on cuda, without checks" in done.stdout
    assert (
        np.load(tmp_path / "y.npy").reshape(100, 4)[:, 0].tolist()
        == [32] * 32 + [16] * 16 + [32] * 32 + [16] * 16 + [4] * 4
    )
