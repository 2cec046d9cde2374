"""The cuda runtime over a fake cuda.core: everything but the GPU. PTX is what clang writes for a real one."""

from __future__ import annotations

import sys
import types
from array import array

import numpy as np
import pytest

from anymetal import CompileError, LaunchError, at, cuda, undefined
from anymetal.cuda import device as cuda_device
from anymetal.cuda import driver, ptx
from anymetal.frontend import toolchain
from anymetal.frontend.options import DEFAULTS, Options
from anymetal.frontend.program import checked
from anymetal_fixtures import demand_ptx
from shared import COPY, REVERSE, SUMS, reversed_in_groups, size

FLOAT, INT = ord("f") * 256 + 4, ord("i") * 256 + 4
"""The numbers of parameters in `anymetal_about`."""


@pytest.fixture
def device(fake_cuda):
    return cuda.Device()


@pytest.fixture
def copy(device):
    return device.kernel(COPY).function("copy")


def floats(out):
    return np.asarray(out.view(np.float32)).tolist()


# ------------------------------------------------------------------------------------------------ PTX


@pytest.fixture
def compiled(request):
    demand_ptx()
    compiler, library = toolchain.find(), ptx.libdevice()

    def compile_one(source, capability=(9, 0), name=None, is_exact=False, **constants):
        options = Options.of("3.1", (), True) if is_exact else DEFAULTS
        program = checked(compiler, source, options)
        kernel = program.kernels[name] if name else next(iter(program.kernels.values()))
        values = program.values(constants)
        return ptx.compile_kernel(compiler, library, program, kernel, capability, options, values, is_exact)

    return compile_one


def test_ptx_of_kernels(compiled):
    first, second = (
        compiled(COPY + SUMS.replace("#include <metal_stdlib>", ""), name=name) for name in ("copy", "sums")
    )
    assert first.about == {
        "threads": None,
        "about": [19, *(4, 4, 0, 0, FLOAT, 1), *(4, 4, 1, 0, FLOAT, 1), *(8, 4, 0, 1, 0, 1)],
        "bindings": first.about["bindings"],
        "shared": 0,
    }
    assert first.about["bindings"][:6] == [0, 1, 1, 1, 2, 1]
    assert second.about["threads"] == 128
    assert second.about["shared"] == 4 * 128
    assert second.about["about"] == [13, *(4, 4, 0, 0, INT, 1), *(4, 4, 1, 0, INT, 1)]
    first, second = first.text.decode(), second.text.decode()
    assert ".maxntid 128, 1, 1\n.minnctapersm 3\n{\n\tgriddepcontrol.wait;\n" in second
    assert ".maxntid" not in first
    assert ")\n{\n\tgriddepcontrol.wait;\n" in first
    assert "bar.sync" in second
    assert ".shared .align 4 .b8" in second


def test_function_constants(compiled):
    source = """
    constant float factor [[function_constant(0)]];
    kernel void scaled(device float* x, uint i [[thread_position_in_grid]]) { x[i] *= factor; }"""
    assert b"0f40400000" in compiled(source, factor=3).text  # 3.0f
    with pytest.raises(CompileError, match="no value for the function constant `factor`"):
        compiled(source)


def test_device_and_constant_are_two_types(compiled):
    source = """
    template <class P> float first(P p) { return *p; }
    kernel void f(device const float* x, constant float* y, device float* out) { *out = first(x) + first(y); }"""
    assert ".visible .entry" in compiled(source).text.decode()


def test_members_of_address_spaces(compiled):
    source = """#include <metal_stdlib>
    struct A {
        float v;
        float at() const device { return 3 * v; }
        float at() const thread { return 5 * v; }
        threadgroup float& own() threadgroup { return v; }
        device float& own() device { return v; }
    };
    kernel void f(device A* x, uint i [[thread_position_in_grid]]) {
        threadgroup A t[32];
        t[i].own() = x[i].at();
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        x[i].own() = t[31 - i].own();
    }"""
    text = compiled(source).text.decode()
    assert "0f40400000" in text  # 3.0f
    assert "0f40A00000" not in text
    assert "st.shared" in text
    assert "st.global" in text


@pytest.mark.parametrize("capability", [(7, 0), (7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 1)])
def test_ptx_for_each_card(compiled, capability):
    text = compiled(SUMS, capability).text.decode()
    major, minor = ptx.architecture(capability)
    assert f".target sm_{major}{minor}" in text
    assert ("griddepcontrol.wait" in text) == (capability >= (9, 0))
    assert (major, minor) <= capability


def test_functions_of_the_library_leave_nothing_open(compiled):
    calls = ["exp(x)", "log2(x)", "pow(x, y)", "tanh(x)", "atan2(x, y)", "fmod(x, y)", "sincos(x, y)", "ldexp(x, 3)"]
    calls += ["round(x)", "rint(x)", "sqrt(x)", "fma(x, y, x)", "float(exp(half(x)))", "rsqrt(x)", "sinpi(x)"]
    lines = "\n".join(f"r += {call};" for call in calls)
    source = f"""#include <metal_stdlib>
    using namespace metal;
    kernel void f(device float* v [[buffer(0)]], uint i [[thread_position_in_grid]]) {{
        float x = v[2 * i], y = v[2 * i + 1], r = 0;
        {lines}
        v[2 * i] = r + simd_sum(x) + float(simd_ballot(x > 0).any());
    }}"""
    text = compiled(source).text.decode()
    assert ".extern" not in text
    assert "shfl.sync" in text


def test_ptx_is_kept_on_disk(compiled, empty_cache):
    first = compiled(COPY)
    (file,) = empty_cache.glob("msl/*.ptx")
    time = file.stat().st_mtime_ns
    assert compiled(COPY).text == first.text
    assert file.stat().st_mtime_ns == time
    file.write_bytes(b"damaged")
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert compiled(COPY).about == first.about
    compiled(COPY, (8, 0))
    assert len(list(empty_cache.glob("msl/*.ptx"))) == 2


# ------------------------------------------------------------------------------------------------ what is missing


def test_no_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    assert '"nvidia-nvvm>=13"; runtime="clang" runs' in str(cuda.unavailable())


def test_no_driver(fake_cuda, monkeypatch):
    class NotFound(RuntimeError):
        pass

    def raising():
        raise NotFound('"cuda" is an NVIDIA driver library\nand more')

    monkeypatch.setattr(fake_cuda.Device, "get_all_devices", raising)
    reason = str(cuda.unavailable())
    assert reason.startswith('no working NVIDIA driver ("cuda" is an NVIDIA driver library): install one for Linux')
    with pytest.raises(LaunchError, match="no working NVIDIA driver"):
        cuda.Device()


def test_no_device(fake_cuda, monkeypatch):
    fake_cuda.faults["init"] = "CUDA_ERROR_NO_DEVICE"
    assert "the NVIDIA driver finds no device (nvidia-smi lists them" in str(cuda.unavailable())
    monkeypatch.setattr(fake_cuda, "cards", [])
    assert "CUDA_VISIBLE_DEVICES may hide them" in str(cuda.unavailable())


def test_an_old_card(fake_cuda, monkeypatch):
    monkeypatch.setattr(fake_cuda, "cards", [("GeForce GTX 1080", (6, 1))])
    assert str(cuda.unavailable()).startswith(
        "GeForce GTX 1080 has compute capability 6.1, and the cuda runtime needs 7.0 (Volta, 2017); "
    )


def test_no_clang(fake_cuda, monkeypatch):
    monkeypatch.delenv("ANYMETAL_CLANG", raising=False)
    monkeypatch.setattr(toolchain, "wheel", lambda: None)
    monkeypatch.setenv("PATH", "/no/such/folder")
    assert str(cuda.unavailable()).endswith('"nvidia-nvvm>=13"')


def test_no_libdevice(fake_cuda, monkeypatch):
    monkeypatch.setenv("ANYMETAL_LIBDEVICE", "/no/such/file")
    assert "ANYMETAL_LIBDEVICE='/no/such/file' is not a file" in str(cuda.unavailable())
    monkeypatch.delenv("ANYMETAL_LIBDEVICE")
    monkeypatch.setattr(ptx, "_installed_libdevice", lambda: None)
    assert "no libdevice.10.bc" in str(cuda.unavailable())
    with pytest.raises(LaunchError, match="set CUDA_HOME"):
        cuda.Device()


def test_another_system(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert "the cuda runtime needs Linux, and this is win32" in str(cuda.unavailable())


def test_names_its_device(device):
    assert str(device) == "cuda.Device(Fake GPU, driver 580.159.04, compute capability 9.0)"


def test_index(fake_cuda):
    assert cuda.Device(1).name == "Other fake GPU"
    for index in (2, -2):
        with pytest.raises(LaunchError, match=f"index={index}: this machine has the devices 0 to 1"):
            cuda.Device(index)


def test_a_forked_process(fake_cuda):
    device = cuda.Device()
    driver._after_fork()
    for call in (cuda.Device, lambda: device.buffer(4), device.finish):
        with pytest.raises(LaunchError, match=r'was forked from one that had used CUDA.*"spawn"'):
            call()
    assert "was forked" in str(cuda.unavailable())


# ------------------------------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    "x",
    [
        np.arange(6, dtype=np.float32),
        np.arange(6, dtype=np.float32).reshape(2, 3),
        array("f", range(6)),
        np.arange(6, dtype=np.float32).tobytes(),
        bytearray(np.arange(6, dtype=np.float32).tobytes()),
    ],
    ids=["array", "matrix", "array.array", "bytes", "bytearray"],
)
def test_any_buffer_is_an_input(device, copy, x):
    out = device.buffer(24)
    handle = copy(6, x, out, size(6))
    handle.wait()
    del handle
    assert floats(out) == [0, 1, 2, 3, 4, 5]


def test_the_callers_arrays_are_never_changed(device, copy):
    x, plain = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    copy(6, x, plain, size(6))
    assert not plain.any()


def test_large_arrays_go_through_pinned_memory(device, copy, fake_cuda):
    x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    for _ in range(3):
        out = device.buffer(x.nbytes)
        copy(x.size, x, out, size(x.size))
        np.testing.assert_array_equal(np.asarray(out.view("f4")), x)
        del out
    assert sum(line.startswith("pin ") for line in fake_cuda.history) <= 2  # one up, one down, used again
    fake_cuda.faults["pin"] = "CUDA_ERROR_OUT_OF_MEMORY"
    np.testing.assert_array_equal(np.asarray(device.array(np.tile(x, 9))), np.tile(x, 9))


def test_small_tables_go_up_once(device, copy, fake_cuda):
    x, out = np.arange(6, dtype=np.float32), device.buffer(24)
    copy(6, x, out, size(6))
    before = len([line for line in fake_cuda.history if line.startswith("copy")])
    copy(6, x.copy(), out, size(6))
    assert len([line for line in fake_cuda.history if line.startswith("copy")]) == before
    copy(6, x, out.view("f4"), size(6))
    out2 = np.zeros(6, np.float32)
    copy(6, x, out2, size(6))  # what is written is a copy of its own
    copy(6, out2, out, size(6))
    assert floats(out) == [0] * 6


def test_another_stream_waits_for_a_table(device, copy, fake_cuda):
    x, out, other, count = np.full(6, 7, np.float32), device.buffer(24), device.buffer(24), size(7)
    with device.active():
        first, second = (fake_cuda.Device(0).create_stream() for _ in range(2))
    history = len(fake_cuda.history)
    with device.on(first):
        copy(6, device.array(x), out, count)
    with device.on(second):
        copy(6, device.array(x), other, count)
    lines = fake_cuda.history[history:]
    assert f"{second.handle:#x} waits for {first.handle:#x}" in lines
    assert not any(line.startswith("sync") for line in lines)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((6, 2), "f")[:, 0], ValueError, r"buffer\(0\) of kernel `copy`: the array is not C-contiguous"),
        (np.zeros(0, "f"), ValueError, "a buffer of 0 bytes"),
        (0, ValueError, "a buffer of 0 bytes"),
        (2**70, ValueError, "a buffer of 1180591620717411303424 bytes: legal sizes are"),
        ("text", TypeError, r"buffer\(0\) of kernel `copy`: an argument is an object with the buffer protocol"),
        (None, TypeError, "not None"),
    ],
)
def test_arguments_that_do_not_fit(device, copy, x, error, message):
    with pytest.raises(error, match=message):
        copy(6, x, device.buffer(24), size(6))


def test_arrays_that_do_not_fit(device, copy):
    a = device.array(np.zeros((6, 2), np.float32))
    with pytest.raises(LaunchError, match=r"buffer\(0\) .* not C-contiguous: pass array.copy\(\)"):
        copy(6, a[:, 0], a, size(6))
    with pytest.raises(LaunchError, match=r"buffer\(0\) .* the array is on device 1, the kernel on 0"):
        copy(6, cuda.Device(1).buffer(24), a, size(6))
    with pytest.raises(LaunchError, match=r"buffer\(2\) of kernel `copy`, .* needs 8 bytes and has 4"):
        copy(6, a, a, np.uint32(6))
    with pytest.raises(LaunchError, match=r"kernel `copy` takes 3 buffers, not 2: buffer\(0\) is `device const float"):
        copy(6, a, a)
    for count in (0, -1, 2**32 + 1):
        with pytest.raises(LaunchError, match=f"count={count}: the number of threads"):
            copy(count, a, a, size(6))
    with pytest.raises(TypeError, match=r"count=1\.5"):
        copy(1.5, a, a, size(6))


def test_sources_that_are_wrong(device):
    with pytest.raises(CompileError, match=r"<msl>:3:\d+: error: .*nothing"):
        device.kernel("#include <metal_stdlib>\nkernel void f(device int* x) {\n  nothing; }")
    with pytest.raises(CompileError, match=r"<msl>:2:\d+: error: MSL has no type 'double'"):
        device.kernel("#include <metal_stdlib>\nkernel void f(device int* x) { double y = 1; x[0] = y; }")
    with pytest.raises(TypeError, match="the source is a string, not bytes"):
        device.kernel(b"")
    with pytest.raises(LaunchError, match="no kernel 'g' in this source; it has copy"):
        device.kernel(COPY).function("g")
    hundred = device.kernel(SUMS.replace("threadgroup(128)", "threadgroup(100)")).function("sums")
    with pytest.raises(LaunchError, match=r"max_total_threads_per_threadgroup\(100\)"):
        hundred(100, np.ones(100, np.int32), device.buffer(4))


def test_kernels_are_compiled_and_loaded_once(device):
    kernel = device.kernel(COPY)
    assert device.kernel(COPY) is kernel
    assert kernel.function("copy") is kernel.function("copy")
    assert [str(each) for each in (kernel, kernel.function("copy"))] == ["cuda.Kernel(copy)", "cuda.Function(copy)"]


# ------------------------------------------------------------------------------------------------ launches


def test_threadgroups(device, fake_cuda):
    x = np.arange(1000, dtype=np.float32)
    device.kernel(COPY).function("copy")(1000, x, device.buffer(4000), size(1000))
    device.kernel(SUMS).function("sums")(256, np.ones(256, np.int32), device.buffer(8))
    launches = [line.split(" on ")[0] for line in fake_cuda.history if line.startswith("launch")]
    assert launches == ["launch copy 4x256", "launch sums 2x128"]


def test_a_kernel_that_stores_registers_gets_more_of_them(device, fake_cuda):
    for stored, loads in ((0, ["3 resident"]), (8, ["3 resident", "2 resident"])):
        fake_cuda.spilled["sums"] = stored
        fake_cuda.history.clear()
        device.kernel(SUMS + "\n" * stored).function("sums")
        assert [line.split(", ")[1] for line in fake_cuda.history if line.startswith("load")] == loads


@pytest.mark.parametrize(("index", "is_early"), [(0, True), (1, False)])
def test_launches_begin_when_those_before_them_end(fake_cuda, index, is_early):
    device = cuda.open_device(index)
    copy = device.kernel(COPY).function("copy")
    arguments = np.zeros(3, np.float32), device.buffer(12), size(3)
    copy(3, *arguments)
    copy.dispatch(3, *arguments)
    launches = [line for line in fake_cuda.history if line.startswith("launch")]
    assert [line.endswith(" early") for line in launches] == [is_early] * 2


def test_threads_that_registers_do_not_allow(device, fake_cuda):
    fake_cuda.registers.update(copy=200, sums=96)
    copy = device.kernel(COPY).function("copy")
    assert copy.threads == 192
    with pytest.raises(LaunchError, match=r"`sums` has max_total_threads_per_threadgroup\(128\); .* allow 96"):
        device.kernel(SUMS).function("sums")
    fake_cuda.faults["launch"] = driver.NO_RESOURCES
    out = device.buffer(24)
    copy(6, np.arange(6, dtype=np.float32), out, size(6))
    assert copy.threads == 96
    assert floats(out) == [0, 1, 2, 3, 4, 5]


def test_a_launch_that_fails(device, copy, fake_cuda):
    fake_cuda.faults["launch"] = "CUDA_ERROR_INVALID_VALUE"
    with pytest.raises(LaunchError, match="kernel `copy` cannot be launched: CUDA_ERROR_INVALID_VALUE: what"):
        copy(6, np.zeros(6, "f"), device.buffer(24), size(6))
    fake_cuda.faults["load"] = "CUDA_ERROR_INVALID_PTX"
    with pytest.raises(LaunchError, match="kernel `sums` cannot be loaded: CUDA_ERROR_INVALID_PTX"):
        device.kernel(SUMS).function("sums")


def test_no_memory(device, fake_cuda):
    fake_cuda.faults["allocate"] = driver.NO_MEMORY
    message = r"cannot allocate 400 bytes: 1000 of its 2000 bytes are free; split the batch, or free arrays"
    with pytest.raises(LaunchError, match=message):
        device.buffer(400)
    assert device.buffer(400).nbytes == 400


@pytest.mark.parametrize("code", sorted(driver.LOST))
def test_faults_end_the_context(device, copy, fake_cuda, code):
    out = device.buffer(24)
    copy(6, np.zeros(6, "f"), out, size(6))
    np.asarray(out)
    device.kernel(SUMS).function("sums")(128, np.ones(128, np.int32), out)
    fake_cuda.faults["sync"] = code
    for call in (lambda: np.asarray(out), lambda: device.buffer(4), lambda: cuda.Device().buffer(4), device.finish):
        with pytest.raises(LaunchError) as error:
            call()
        assert str(error.value).startswith(f"kernel `sums` {driver.LOST[code]} ({code}). The CUDA context")
        assert str(error.value).endswith("start a new process")
    assert cuda.Device(1).buffer(4).nbytes == 4  # the other device has a context of its own


def test_a_fault_of_one_of_several_kernels(device, copy, fake_cuda):
    out = device.buffer(512)
    copy(6, np.zeros(6, "f"), out, size(6))
    device.kernel(SUMS).function("sums")(128, np.ones(128, np.int32), out)
    fake_cuda.faults["sync"] = "CUDA_ERROR_ILLEGAL_ADDRESS"
    with pytest.raises(LaunchError, match=r"^kernel `copy` or kernel `sums` accessed .*; with CUDA_LAUNCH_BLOCKING=1"):
        np.asarray(out)


def test_results_start_as_nan(device):
    assert np.isnan(np.asarray(device.result((2, 3), np.float32))).all()
    assert np.isnan(np.asarray(device.result((2, 3), np.float16))).all()
    assert not np.asarray(device.result((2, 3), np.uint8)).any()
    assert device.result((0, 3), np.float32).shape == (0, 3)


# ------------------------------------------------------------------------------------------------ arrays


def test_views(device):
    x = np.random.default_rng(1).standard_normal((4, 5, 6)).astype(np.float32)
    a = device.array(x)
    assert (a.ndim, a.size, a.nbytes, len(a)) == (3, 120, 480, 4)
    assert repr(a) == "cuda.Array(shape=(4, 5, 6), dtype=float32, device=0)"
    for view in (
        lambda v: v[1:3],
        lambda v: v[:, 2],
        lambda v: v[..., 1::2],
        lambda v: v.transpose(2, 0, 1),
        lambda v: v.swapaxes(0, 2),
        lambda v: v.reshape(20, 6),
        lambda v: v.reshape((2, -1)),
        lambda v: v[1:3].reshape(-1, 3),
        lambda v: v.transpose(2, 0, 1).reshape(6, -1),
        lambda v: v.astype(np.float16),
        lambda v: v[2, 3:, ::2].astype(np.float64) if isinstance(v, np.ndarray) else v[2, 3:, ::2],
    ):
        np.testing.assert_array_equal(np.asarray(view(a)), view(x))
    assert a[1:3].memory is a.memory
    assert a.reshape(-1).address == a.address
    assert a.astype(np.float32, copy=False) is a


def test_writing_into_views(device):
    x = np.random.default_rng(2).standard_normal((4, 5, 6)).astype(np.float32)
    a = device.array(x)
    a[1:3, 2] = 7.5
    x[1:3, 2] = 7.5
    a[0] = a[3]
    x[0] = x[3]
    a[:, :, 0] = np.arange(5, dtype=np.float32)
    x[:, :, 0] = np.arange(5)
    np.testing.assert_array_equal(np.asarray(a), x)
    half = device.result((4, 5, 6), np.float16)
    half[...] = a
    np.testing.assert_array_equal(np.asarray(half), x.astype(np.float16))
    a.fill(0)
    assert not np.asarray(a).any()
    a.fill(2)
    assert (np.asarray(a) == 2).all()


def test_what_is_on_the_device_comes_down_only_when_asked(device, fake_cuda):
    a = device.array(np.ones((4, 5), np.float32))
    history = len(fake_cuda.history)
    with pytest.raises(TypeError):
        a + np.ones((4, 5))
    with pytest.raises(TypeError):
        np.ones((4, 5)) * a
    with pytest.raises(ValueError, match="without a copy"):
        a.__array__(copy=False)
    assert len(fake_cuda.history) == history
    assert np.asarray(a, np.float64).dtype == np.float64


def test_no_copy_of_such_arrays(device):
    a = device.array(np.ones(3, "c8"))
    with pytest.raises(LaunchError, match=r"no copy on the device from .*complex64"):
        a[::2].copy()


def test_more_elements_than_a_kernel_counts(device):
    a, b = device.array(np.ones(1, np.uint8)), device.array(np.ones(1, np.uint8))
    repeated = type(a)(a.memory, (2**32,), a.dtype, (0,))
    with pytest.raises(LaunchError, match=rf"{2**32} elements in one launch: at most {2**32 - 1}; use parts of"):
        repeated[...] = b


def test_exports(device, fake_cuda):
    a = device.array(np.arange(6, dtype=np.float32).reshape(2, 3))
    interface = a.__cuda_array_interface__
    assert interface["data"] == (a.address, False)
    assert (interface["shape"], interface["strides"], interface["typestr"]) == ((2, 3), None, "<f4")
    assert interface["stream"] == device.stream.handle
    assert a.transpose().__cuda_array_interface__["strides"] == (4, 12)
    assert a.__dlpack_device__() == (2, 0)
    exported = a[:, 1:].__dlpack__(stream=1)
    assert (exported.ptr, exported.shape, exported.strides) == (a.address + 4, (2, 2), (3, 1))
    assert f"{1:#x} waits for {device.stream.handle:#x}" in fake_cuda.history
    with pytest.raises(BufferError):
        a.__dlpack__(dl_device=(1, 0))


def test_arrays_of_other_libraries(device):
    x = device.array(np.arange(24, dtype=np.float32).reshape(4, 6))
    theirs = types.SimpleNamespace(__cuda_array_interface__=x.transpose().__cuda_array_interface__)
    a = device.adopt(theirs)
    assert a.address == x.address
    assert not a.is_contiguous
    np.testing.assert_array_equal(np.asarray(a), np.arange(24).reshape(4, 6).T)
    assert device.adopt(x) is x
    with pytest.raises(TypeError, match="an array of type list cannot be read on"):
        device.adopt([1, 2])


def test_the_current_device_of_a_thread_is_restored(fake_cuda):
    """Other libraries, PyTorch for one, go on with the device that was current."""
    fake_cuda.Device(1).set_current()
    device = cuda.Device(0)
    with device.active():
        assert driver.current_index() == 0
        np.asarray(device.array(np.ones(3)))
    assert driver.current_index() == 1


def test_a_context_of_another_library(fake_cuda):
    """JAX makes the context current before this runtime is used."""
    fake_cuda._threads.current, fake_cuda._threads.initialized = 0, set()
    assert cuda.Device().array(np.ones(3)).size == 3


def test_streams(device, copy, fake_cuda):
    """An array that was used in one stream and is used in another makes the second wait."""
    core = fake_cuda
    first, second = core.Stream(0x10), core.Stream(0x20)
    with device.on(first):
        a = device.result((6,), np.float32)
        copy(6, np.arange(6, dtype=np.float32), a, size(6))
    with device.on(second):
        b = device.result((6,), np.float32)
        copy(6, a, b, size(6))
    assert "0x20 waits for 0x10" in core.history
    with device.on(None):
        assert device.stream not in (first, second)
    assert device.foreign_stream(0) == core.LEGACY_DEFAULT_STREAM
    assert device.foreign_stream(2) == core.PER_THREAD_DEFAULT_STREAM
    assert device.foreign_stream(0x30).handle == 0x30


def test_options_of_a_kernel_are_those_of_the_clang_runtime(device, tmp_path):
    (tmp_path / "two.h").write_text("#define TWO bfloat(2.0f)\n")
    source = COPY.replace("#include <metal_stdlib>", "#include <metal_stdlib>\n#include <two.h>", 1)

    def kernel():
        return device.kernel(source, version="3.1", include=[tmp_path], fast_math=False, define={"THREE": 3})

    first = kernel()
    assert kernel() is first
    (tmp_path / "two.h").write_text("#define TWO bfloat(3.0f)\n")
    assert kernel() is not first
    with pytest.raises(CompileError, match=r"two\.h' file not found"):
        device.kernel(source)
    with pytest.raises(CompileError, match="version='9'"):
        device.kernel(source, version="9")


def test_pointers_in_arguments_are_refused(device):
    for parameter in ("constant A& a", "array<device int*, 2> a [[buffer(0)]]"):
        source = f"#include <metal_array>\nusing metal::array; struct A {{ device int* x; }}; kernel void f({parameter}) {{}}"  # noqa: E501
        with pytest.raises(
            LaunchError, match="`f` has an array of buffers, a struct with pointers or a tensor as a parameter"
        ):
            device.kernel(source).function("f")


# ------------------------------------------------------------------------------------------------ exact grids


def test_exact_grids_and_threadgroup_memory_as_a_parameter(device, fake_cuda):
    function, local = device.kernel(REVERSE, version="3.1").function("reverse"), {0: 16, 2: 64}
    x = np.random.default_rng(0).random((5, 10), np.float32)
    y = device.buffer(x.nbytes)
    function.dispatch((10, 5), x, y, threadgroup=(4, 2), local=local)
    np.testing.assert_array_equal(np.asarray(y).view("f4").reshape(x.shape), reversed_in_groups(x, (4, 2)))
    launches = [line.split(" on ")[0] for line in fake_cuda.history if line.startswith("launch")]
    assert launches == [
        "launch reverse (2, 2, 1)x(4, 2, 1)", "launch reverse (2, 1, 1)x(4, 1, 1)",
        "launch reverse (1, 2, 1)x(2, 2, 1)", "launch reverse (1, 1, 1)x(2, 1, 1)",
    ]  # fmt: skip
    function.dispatch_threadgroups(cuda_at(device, (0, 3, 2, 1)), x, y, threadgroup=(2, 2), local=local)
    np.testing.assert_array_equal(
        np.asarray(y).view("f4")[:24].reshape(4, 6), reversed_in_groups(x.ravel()[:24].reshape(4, 6), (2, 2))
    )
    function.dispatch((5, 1), x, at(y, 20), threadgroup=5, local=local)
    assert np.asarray(y).view("f4")[5:10].tolist() == reversed_in_groups(x[:1, :5], (5, 1))[0].tolist()


def cuda_at(device, numbers):
    return at(device.array(np.array(numbers, np.uint32)), 4)


def test_parts_of_large_grids():
    assert [counts for _, counts, _ in cuda_device.parts((1, 70000, 1), (1, 1, 1))] == [(1, 65535, 1), (1, 4465, 1)]
    assert [first for first, _, _ in cuda_device.parts((1, 70000, 1), (1, 1, 1))] == [(0, 0, 0), (0, 65535, 0)]


def test_a_grid_without_whole_threadgroups(device, fake_cuda):
    function = device.kernel(COPY).function("copy")
    out = device.buffer(12)
    function.dispatch(3, np.arange(3, dtype=np.float32), out, size(3), threadgroup=256)
    assert floats(out) == [0, 1, 2]
    assert [line.split(" on ")[0] for line in fake_cuda.history if "launch" in line] == [
        "launch copy (1, 1, 1)x(3, 1, 1)"
    ]


LIMITS = {
    "[[max_total_threads_per_threadgroup(1056)]]": r"\(1056\); a threadgroup has 1 to 1024 threads: name at most",
    "": "kernel `f` has 65540 bytes of threadgroup memory; the maximum is 32768: use smaller arrays",
}


@pytest.mark.parametrize("attribute", LIMITS)
def test_limits_of_threadgroups_are_checked_before_the_driver_loads_a_kernel(device, fake_cuda, attribute):
    """Its own limits are others, and its words name neither the kernel nor the number."""
    length = 8 if attribute else 16384
    source = f"""#include <metal_stdlib>
    {attribute} kernel void f(device float* out, uint t [[thread_position_in_threadgroup]]) {{
        threadgroup float tile[{length}];
        threadgroup float last;
        tile[t] = out[t];
        if (t == 0) last = tile[0];
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        out[t] = tile[t + 1] + last;
    }}"""
    with pytest.raises(LaunchError, match=LIMITS[attribute]):
        device.kernel(source).function("f")
    with pytest.raises(LaunchError, match=LIMITS[attribute]):
        device.kernel(source).function("f", is_exact=True)
    assert "load" not in " ".join(fake_cuda.history)


WRONG_DISPATCHES = {
    "deep": ({"threadgroup": (1, 1, 128)}, "at most 64 threads along the third axis"),
    "registers": ({"threadgroup": 256}, "a threadgroup of kernel `copy` has at most 128 threads"),
    "seconds": ({"seconds": 1}, "seconds=1: the cuda runtime has no limit of time"),
    "no local": ({"local": {0: 16}}, r"kernel `copy` has no parameter threadgroup\(0\)"),
    "offset": ({"x": at(np.ones(4, "f"), 2)}, "the offset 2 is not a multiple of 4 below 16"),
    "undefined": ({"x": undefined(np.ones(4, "f"))}, r"undefined\(\) is for the checks of the clang runtime"),
}


@pytest.mark.parametrize("wrong", WRONG_DISPATCHES)
def test_dispatches_that_are_wrong(device, fake_cuda, wrong):
    given, message = WRONG_DISPATCHES[wrong]
    fake_cuda.registers["copy"] = 128
    x = given.get("x", np.ones(4, "f"))
    options = {key: value for key, value in given.items() if key != "x"}
    with pytest.raises(LaunchError, match=message):
        device.kernel(COPY).function("copy").dispatch((4, 1, 1), x, device.buffer(16), size(4), **options)


def test_threadgroup_memory_needs_a_length(device):
    function = device.kernel(REVERSE, version="3.1").function("reverse")
    for call in (lambda *x: function(8, *x), lambda *x: function.dispatch(8, *x)):
        with pytest.raises(LaunchError, match=r"threadgroup\(0\) of kernel `reverse`.*needs a length in bytes"):
            call(np.ones(8, "f"), device.buffer(32))


def test_ptx_of_exact_grids(compiled):
    text = compiled(REVERSE, is_exact=True).text.decode()
    assert ".extern .shared .align 16 .b8 anymetal_shared[];" in text
    assert all(f"%{name}.{axis}" in text for name in ("tid", "ntid", "ctaid") for axis in "xy")
    assert "anymetal_thread_param_2" in text
    assert "anymetal_thread_param_3" not in text
    assert ".extern .shared" not in compiled(COPY, is_exact=True).text.decode()
