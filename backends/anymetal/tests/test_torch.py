"""``anymetal.torch``: the interface of ``torch.mps.compile_shader`` on CPU tensors, and the device mps."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import numpy as np
import pytest

from anymetal import CompileError, LaunchError, clang

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

SOURCE = """
#include <metal_stdlib>
#include <c10/metal/error.h>
using namespace metal;
struct Pair { device float *a; device const float *b; };
kernel void full(device float *out, constant float &value, uint i [[thread_position_in_grid]]) { out[i] = value; }
kernel void numbers(device int *out, constant uint &n, constant int2 &pair, constant half &h, constant bool &flag,
                    uint2 i [[thread_position_in_grid]]) {
    out[i.y * n + i.x] = flag ? pair.x * pair.y + int(h) : 0;
}
kernel void types(device bfloat *x, device float2 *c, constant bfloat &b, uint i [[thread_position_in_grid]]) {
    x[i] += b;
    c[i] = c[i].yx;
}
kernel void move(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { y[i] = x[i]; }
kernel void pointers(constant Pair &p, uint i [[thread_position_in_grid]]) { p.a[i] = 2 * p.b[i]; }
[[max_total_threads_per_threadgroup(64)]]
kernel void turned(device float *x, uint t [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    threadgroup float shared[64];
    shared[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[t] = shared[n - 1 - t];
}
kernel void positive(device float *x, device c10::metal::ErrorMessages *e, uint i [[thread_position_in_grid]]) {
    if (x[i] < 0) TORCH_REPORT_ERROR(e, "negative at ", i);
}
"""


@pytest.fixture(scope="module")
def library():
    from anymetal.torch import compile_shader

    return compile_shader(SOURCE)


def test_library_and_properties(library):
    assert dir(library) == sorted(["full", "numbers", "types", "move", "pointers", "turned", "positive"])
    kernel = library.turned
    found = kernel.max_threads_per_threadgroup, kernel.thread_execution_width, kernel.static_thread_group_memory_length
    assert found == (64, 32, 256)
    for error in (AttributeError, RuntimeError):
        with pytest.raises(error, match="no kernel 'fill'; it has full, numbers"):
            library.fill  # noqa: B018
    x = torch.zeros(2)
    copy.copy(library).full(x, 1.0)
    assert x.tolist() == [1, 1]


def test_threads_and_groups(library):
    x = torch.zeros(5)
    library.full(x, 2.5)  # the elements of the first tensor
    assert x.tolist() == [2.5] * 5
    library.full(x, 1.0, threads=3)
    assert x.tolist() == [1, 1, 1, 2.5, 2.5]
    library.full(x, -1.0, threads=(2,), group_size=[1])
    assert x.tolist() == [-1, -1, 1, 2.5, 2.5]
    y = torch.arange(64.0)
    library.turned(y)
    assert y.tolist() == list(range(64))[::-1]
    library.full(torch.zeros(0), 1.0)  # no threads


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 6}, r"writes 4 bytes out of bounds: out\[5\]"),
        ({"threads": (1, 2, 3, 4)}, "one to three numbers"),
        ({"threads": -1}, "numbers from 0 on"),
        ({"threads": (5, 1), "group_size": 5}, "has 1 axes, and threads has 2"),
        ({"group_size": 2048}, "at most 1024 threads"),
        ({"group_size": 0}, "1 to "),
        ({"arg_casts": "fp64"}, "'fp64' is none of fp16"),
        ({"arg_casts": ["fp16"]}, r"\['fp16'\] is none of fp16"),
    ],
)
def test_illegal_calls(library, options, message):
    x = torch.zeros(5)
    for error in (LaunchError, RuntimeError):
        with pytest.raises(error, match=message) as caught:
            library.full(x, 1.0, **options)
    assert ("out-of-bounds" in {one.kind for one in caught.value.findings}) == ("out of bounds" in message)
    assert not x.any()


def test_numbers_are_passed_as_pytorch_passes_them(library):
    x, casts = torch.zeros(2, 3, dtype=torch.int32), {2: "int32", 3: "fp16"}
    library.numbers(x, 3, [4, 5], 2.0, True, threads=(3, 2), arg_casts=casts)
    assert (x == 22).all()
    library.numbers(x, 3, [4, 5], 2.0, 0, threads=(3, 2), arg_casts=casts)
    assert not x.any()


@pytest.mark.parametrize(
    ("arguments", "casts", "message"),
    [
        ((3, [4, 5], 2.0, True), {2: "int32"}, r"2\.0 as float32, and the kernel reads float16: pass arg_casts='fp16'"),
        ((3, [4, 5], 2.0, True), {3: "fp16"}, r"\[4, 5\] as int64, and the kernel reads int32: pass arg_casts='int32'"),
        (
            (-3, [4, 5], 2.0, True),
            {2: "int32", 3: "fp16"},
            "-3 as int64, and the kernel reads uint32: pass an int from",
        ),
        ((3.0, [4, 5], 2.0, True), {2: "int32", 3: "fp16"}, "as float32, and the kernel reads uint32"),
        ((3, [4, 2**40], 2.0, True), {2: "int32", 3: "fp16"}, "does not fit into int32"),
        ((3, [], 2.0, True), {2: "int32", 3: "fp16"}, "a tensor, a number, or a list of these"),
        ((3, [4, None], 2.0, True), {2: "int32", 3: "fp16"}, "a tensor, a number, or a list of these"),
        ((3, [4, 5], 2.0), {2: "int32", 3: "fp16"}, "4, `constant bool &flag`, is missing"),
    ],
)
def test_numbers_that_a_kernel_would_misread(library, arguments, casts, message):
    x = torch.zeros(2, 3, dtype=torch.int32)
    with pytest.raises(LaunchError, match=message):
        library.numbers(x, *arguments, threads=(3, 2), arg_casts=casts)
    assert not x.any()


def test_dtypes_without_numpy(library):
    x, c = torch.arange(3).to(torch.bfloat16), torch.tensor([1 + 2j, 3 + 4j, 5 + 6j])
    library.types(x, c, 0.5, arg_casts="bf16")
    assert x.tolist() == [0.5, 1.5, 2.5]
    assert c.tolist() == [2 + 1j, 4 + 3j, 6 + 5j]


def test_views(library):
    x = torch.arange(8.0)
    library.move(x[4:], x[:4])  # two parts of one memory
    assert x.tolist() == [4, 5, 6, 7, 4, 5, 6, 7]
    library.move(x[:4], x[:4])
    with pytest.raises(LaunchError, match="depends on the order of its threads"):
        library.move(x[1:5], x[:4])  # they overlap
    with pytest.raises(LaunchError, match=r"writes 4 bytes out of bounds: out\[3\]"):
        library.full(x[2:5], 0.0, threads=4)  # of the view, not of its storage
    column = torch.zeros(3, 4)[:, 1]
    library.full(column, 1.0, threads=9)  # strides are not applied: from its first to its last element
    assert column._base.flatten().tolist() == [0] + [1] * 9 + [0] * 2
    a, b = torch.zeros(3), torch.arange(3.0)
    library.pointers([a, b], threads=3)
    assert a.tolist() == [0, 2, 4]


def test_errors(library):
    from anymetal.torch import compile_shader

    for error in (CompileError, SyntaxError, RuntimeError):
        with pytest.raises(error, match="undeclared identifier 'q'"):
            compile_shader("kernel void f(device float *x) { x[0] = q; }")
    with pytest.raises(TypeError, match="the source is a string"):
        compile_shader(None)
    with pytest.raises(LaunchError, match="float32, not float64"):
        library.full(torch.zeros(3, dtype=torch.float64), 1.0)
    with pytest.raises(LaunchError, match="is strided and on the CPU"):
        library.full(torch.zeros(3, device="meta"), 1.0)
    with pytest.raises(LaunchError, match="no tensor, pass threads="):
        library.full(1.0)
    with pytest.raises(RuntimeError, match=r"positive` reported: .*positive: negative at 1"):
        library.positive(torch.tensor([1.0, -1.0]), error_buf_idx=1)
    library.positive(torch.tensor([1.0, 1.0]), error_buf_idx=1)


@pytest.fixture
def gpu():
    from anymetal.torch import mps

    with mps():
        yield torch.mps.compile_shader(SOURCE)


def test_what_the_imitation_replaces():
    from anymetal.torch import mps

    before = torch.mps.compile_shader
    with mps():
        assert torch.mps.compile_shader is not before
        assert torch.backends.mps.is_available()
        torch.mps.synchronize()
    assert torch.mps.compile_shader is before
    assert not torch.backends.mps.is_available()
    with pytest.raises(Exception, match=r"(?i)mps"):
        torch.zeros(2, device="mps")


def test_tensors_on_the_imitated_device(gpu):
    h = torch.arange(4.0)
    x = h.to("mps")
    gpu.full(x, 9.0)
    assert h.tolist() == [0, 1, 2, 3]  # .to() copies
    on_host = x.cpu()
    gpu.full(x, 8.0)
    assert on_host.tolist() == [9] * 4  # and .cpu() as well
    made = [
        x, x + 1, x[1:], x.clone(), torch.zeros(2, device="mps:0"), torch.empty_like(h, device="mps"), h.to(x),
        torch.tensor([1], device=torch.device("mps")), torch.split(x, 2)[1],
        torch.as_tensor(np.zeros(2, "f"), device="mps"), torch.nn.Linear(4, 2).to("mps").weight, x.half(),
    ]  # fmt: skip
    assert [one.device for one in made] == [torch.device("mps:0")] * len(made)
    assert [one.is_mps for one in made] == [True] * len(made)
    assert x.to("mps") is x
    empty = torch.zeros(0)
    assert [empty.to("mps").is_mps, (empty + empty).is_mps, empty.is_mps] == [True, False, False]
    sparse = h.to_sparse()
    assert sparse.to("cpu").to_dense().tolist() == [0, 1, 2, 3]
    host = [h, on_host, x.to(h), x.to("cpu"), torch.zeros(2), h.copy_(x)]
    assert {one.device.type for one in host} == {"cpu"}
    shared = np.zeros(2, np.float32)
    gpu.full(torch.as_tensor(shared, device="mps"), 1.0)
    assert not shared.any()


def test_default_devices(gpu):
    with torch.device("mps"):
        gpu.full(torch.zeros(2), 1.0)
        assert torch.get_default_device().type == "mps"
    torch.set_default_device("mps")
    try:
        assert torch.zeros(2).is_mps
        assert not torch.from_numpy(np.zeros(2)).is_mps
    finally:
        torch.set_default_device(None)
    assert not torch.zeros(2).is_mps


def test_what_a_mac_refuses(gpu):
    x = torch.zeros(3, device="mps")
    with pytest.raises(RuntimeError, match="Passed CPU tensor to MPS op"):
        gpu.full(torch.zeros(3), 1.0)
    for read in (lambda: x.numpy(), lambda: np.asarray(x)):
        with pytest.raises(TypeError, match="can't convert mps:0"):
            read()
    for make in (lambda: torch.zeros(3, dtype=torch.float64, device="mps"), lambda: torch.zeros(3).double().to("mps")):
        with pytest.raises(TypeError, match="no float64"):
            make()
    with pytest.raises(AssertionError, match="mps:0 != cpu"):
        torch.testing.assert_close(x, torch.zeros(3))


def test_gradients(gpu):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            y = torch.empty_like(x)
            gpu.pointers([y, x], threads=x.numel())
            return y

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            assert x.is_mps
            y = torch.empty(x.shape, device="mps")
            gpu.pointers([y, gradient.contiguous()], threads=x.numel())
            return y

    x = torch.ones(3, device="mps", requires_grad=True)
    Twice.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert x.grad.is_mps


def test_modules_and_optimizers(gpu):
    model = torch.nn.Linear(3, 1, device="mps")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # imports torch._dynamo, which reads the names of torch
    before = model.weight.detach().cpu()
    model(torch.ones(2, 3).to("mps")).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight.detach().cpu(), before - 0.2)
    assert {one.device.type for one in (*model.parameters(), *model.state_dict().values())} == {"mps"}


TESTS = """
import pytest
import torch

LIBRARY = torch.mps.compile_shader(
    "kernel void twice(device float *x, constant int &n, uint i [[thread_position_in_grid]]) { x[i + n] *= 2; }")

@pytest.mark.parametrize("first", [0, 1])
def test_twice(first):
    x = torch.ones(5, device="mps")
    LIBRARY.twice(x, first)
    assert x.cpu().tolist() == [2] * 5
"""


def test_a_test_suite_runs_unchanged(tmp_path):
    (tmp_path / "test_twice.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "--anymetal", "torch", "-p", "no:cacheprovider", "test_twice.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "out of bounds: x[5]" in done.stdout
