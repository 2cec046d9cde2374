"""``anymetal.mlx``: the interface of ``mx.fast.metal_kernel`` on CPU arrays, and the kernels of mlx-lm."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from anymetal import CompileError, LaunchError, clang

mx = pytest.importorskip("mlx.core", reason="MLX is not installed", exc_type=ImportError)
pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
lm = importlib.import_module("mlx_lm_kernels")
sys.path.remove(str(ROOT / "scripts"))


def run(source, *inputs, shape=None, dtype=None, size=None, **options):
    """Run a kernel on inputs a, b, ... with one output."""
    from anymetal.mlx import metal_kernel

    names = ("atomic_outputs", "ensure_row_contiguous", "header", "compile_options", "levels")
    made = {name: options.pop(name) for name in names if name in options}
    kernel = metal_kernel("tried", [*"abc"[: len(inputs)]], ["out"], source, **made)
    shape = getattr(inputs[0], "shape", ()) if shape is None else shape
    size = int(np.prod(shape)) if size is None else size
    dtype = inputs[0].dtype if dtype is None else dtype
    arrays = {"inputs": [*inputs], "output_shapes": [shape], "output_dtypes": [dtype]}
    return kernel(**arrays | {"grid": (size, 1, 1), "threadgroup": (256, 1, 1)} | options)[0]


def test_generated_source(capsys):
    x = mx.arange(12).reshape(3, 4).astype(mx.bfloat16)
    source = """
    uint i = thread_position_in_grid.x;  // b_shape
    if (FLAG) out[i] = static_cast<T>(a[i] * b * N + c[0] + a_shape[1]);"""
    template = [("T", mx.float16), ("N", 3), ("FLAG", True)]
    out = run(
        source, x, mx.array(2, mx.int32), mx.array([7], mx.uint8), dtype=mx.float16, template=template, verbose=True
    )
    np.testing.assert_array_equal(np.array(out), np.arange(12).reshape(3, 4) * 6 + 11)
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "template <typename T, int N, bool FLAG> [[kernel]] void custom_kernel_tried(",
        "const device bfloat16_t* a [[buffer(0)]], const constant int* a_shape [[buffer(1)]],",
        "const constant int32_t& b [[buffer(2)]], const constant uint8_t* c [[buffer(3)]],",
        "device float16_t* out [[buffer(4)]], uint3 thread_position_in_grid [[thread_position_in_grid]]) {",
        "decltype(custom_kernel_tried<float16_t, 3, 1>)",
    ):
        assert part in text
    assert "a_strides" not in text
    assert "b_shape [[" not in text  # it has no dimensions


def test_small_inputs_are_constant():
    source = "const device float *p = a; out[0] = p[0];"
    assert run(source, mx.arange(8.0), shape=(1,)).item() == 0
    with pytest.raises(CompileError, match=r"address space|cannot initialize"):
        run(source, mx.arange(7.0), shape=(1,))


VIEWS = {
    "contiguous": lambda x: x,
    "rows": lambda x: x[1::2],
    "columns": lambda x: x[:, 2::3],
    "transposed": lambda x: x.T,
    "broadcast": lambda x: mx.broadcast_to(x[:1], (3, 16)),
    "reversed": lambda x: x[::-1, ::-2],
}
LOCATED = """
    uint i = thread_position_in_grid.x;
    auto at = elem_to_loc<int64_t>(i, a_shape, a_strides, a_ndim);
    out[i] = a[at];"""


@pytest.mark.parametrize("view", VIEWS)
def test_strides(view):
    x = VIEWS[view](mx.arange(64).reshape(4, 16).astype(mx.bfloat16))
    assert mx.array_equal(run(LOCATED, x, ensure_row_contiguous=False), x)
    assert mx.array_equal(run("out[thread_position_in_grid.x] = a[thread_position_in_grid.x];", x), x)


def test_a_strided_array_is_checked_from_its_first_to_its_last_element():
    x = mx.arange(64.0).reshape(4, 16)[1:3, 4:8]
    with pytest.raises(LaunchError, match=r"out of bounds: a\[20\].* of 80 bytes"):
        run(
            "out[thread_position_in_grid.x] = a[thread_position_in_grid.x];",
            x,
            ensure_row_contiguous=False,
            shape=(21,),
        )


DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16")
SLOW = [pytest.param(one, marks=pytest.mark.slow) for one in DTYPES]


@pytest.mark.parametrize("dtype", ["bool_", "complex64", *SLOW])
def test_dtypes(dtype):
    x = (mx.arange(9) % 2).astype(getattr(mx, dtype))
    assert mx.array_equal(run("out[thread_position_in_grid.x] = a[thread_position_in_grid.x];", x), x)


def test_outputs():
    add = "atomic_fetch_add_explicit(&out[0], a[thread_position_in_grid.x], memory_order_relaxed);"
    total = run(add, mx.arange(10.0), shape=(2,), size=10, atomic_outputs=True, init_value=3)
    assert total.tolist() == [48, 3]
    rounded = mx.array([1e8, -1e8, 1, 0, 0, 0, 0, 0, 0])  # the sum depends on the order of the threads
    run(add, rounded, shape=(1,), size=9, atomic_outputs=True, init_value=0)
    half = run("out[thread_position_in_grid.x] = a[thread_position_in_grid.x];", mx.arange(4.0), size=2)
    assert half[:2].tolist() == [0, 1]
    assert mx.isnan(half[2:]).all()  # not written
    with pytest.raises(LaunchError, match="before anything wrote it"):
        run("out[thread_position_in_grid.x] += a[thread_position_in_grid.x];", mx.arange(4.0))
    assert run("out[0] = 1;", mx.zeros((0,)), size=0).shape == (0,)
    assert run("out[thread_position_in_grid.x] = a;", 2.5, shape=(3,), dtype=mx.float32).tolist() == [2.5] * 3


def test_threadgroups_are_not_larger_than_the_grid():
    count = run("out[thread_position_in_grid.x] = dispatch_threads_per_threadgroup.x;", mx.arange(3), dtype=mx.int32)
    assert count.tolist() == [3, 3, 3]


def test_math_modes():
    source = "#if defined(__FAST_MATH__)\nout[0] = 1;\n#else\nout[0] = 0;\n#endif\n"
    found = [
        run(source, mx.zeros((9,)), shape=(1,), compile_options={"math_mode": one}).item() for one in ("safe", "fast")
    ]
    assert found == [0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compile_options": {"math_mode": "precise"}}, "safe, relaxed, fast"),
        ({"compile_options": {"unknown": 1}}, "math_mode"),
        ({"template": [("T", 1.5)]}, "Dtype, an int or a bool"),
        ({"grid": (1, 1)}, "three sizes"),
        ({"grid": (-1, 1, 1)}, "three sizes"),
        ({"threadgroup": (1025, 1, 1)}, "at most 1024 threads"),
        ({"stream": mx.cpu}, "Only supports the GPU"),
        ({"threadgroup": (0, 1, 1)}, "1 to "),
        ({"inputs": []}, "`inputs` to have size 1 but got size 0"),
        ({"output_shapes": []}, "`output_shapes` to have size 1"),
        ({"output_dtypes": [mx.int32] * 2}, "`output_dtypes` to have size 1"),
    ],
)
def test_illegal_calls(options, message):
    with pytest.raises(ValueError, match=message):
        run("out[0] = a[0];", mx.arange(9.0), **options)


def test_no_outputs():
    from anymetal.mlx import metal_kernel

    with pytest.raises(ValueError, match="at least one output"):
        metal_kernel("none", ["x"], [], "")


def test_the_imitation():
    from anymetal.mlx import metal

    before = mx.fast.metal_kernel, mx.default_device
    x = mx.arange(9.0)
    with metal(check_order=False):
        assert mx.metal.is_available()
        assert mx.default_device() == mx.gpu
        with mx.stream(mx.cpu):
            assert mx.default_device() == mx.cpu
        assert mx.default_device() == mx.gpu
        with mx.stream(mx.gpu):
            assert mx.default_device() == mx.gpu
            assert (x + 1).sum().item() == 45
        kernel = mx.fast.metal_kernel(
            name="twice", input_names=["x"], output_names=["y"],
            source="y[thread_position_in_grid.x] = 2 * x[thread_position_in_grid.x];",
        )  # fmt: skip
        sizes = {"grid": (9, 1, 1), "threadgroup": (9, 1, 1), "output_shapes": [(9,)], "output_dtypes": [mx.float32]}

        @mx.custom_function
        def twice(x):
            return kernel(inputs=[x], **sizes)[0]

        @twice.vjp
        def twice_vjp(x, cotangent, _):
            return kernel(inputs=[cotangent], **sizes)[0]

        assert mx.compile(twice)(x).tolist() == (2 * x).tolist()
        assert mx.grad(lambda x: (twice(x) * x).sum())(x).tolist() == (4 * x).tolist()
    assert (mx.fast.metal_kernel, mx.default_device) == before
    assert not mx.metal.is_available()
    with pytest.raises(ValueError, match=r"mx\.disable_compile"):
        mx.compile(lambda x: kernel(inputs=[x], **sizes)[0])(x)


def test_the_imitation_leaves_compilation_as_it_was():
    from anymetal.mlx import _compiles, metal

    assert _compiles()
    mx.disable_compile()
    try:
        with metal():
            assert not _compiles()
        assert not _compiles()
    finally:
        mx.enable_compile()


QUICK = ("qk_norm", "bitlinear_matmul", "kl_forward")
CASES = [
    pytest.param(case, id=case.kernel, marks=[] if case.kernel in QUICK else pytest.mark.slow) for case in lm.CASES
]
installed = pytest.mark.skipif(lm.missing() is not None, reason=str(lm.missing()))


@installed
@pytest.mark.parametrize("case", CASES)
def test_kernels_of_mlx_lm(case):
    error, reports = lm.run(case)
    assert error <= lm.LARGEST
    assert ("race" in reports) if case.is_race else reports == []


@installed
@pytest.mark.parametrize(
    ("kernel", "old", "new", "kind"),
    [
        ("qk_norm", "? static_cast<float>(x[d]) : 0.0f", "? static_cast<float>(x[d + 400]) : 0.0f", "out-of-bounds"),
        ("qk_norm", "n) * HQ + h", "n) * HQ + h / 2", "race"),
        ("bitlinear_matmul", "& 3) - 1);\n", "& 3) - 2);\n", None),
    ],
)
def test_a_fault_in_a_kernel_of_mlx_lm_is_found(kernel, old, new, kind):
    case = next(case for case in lm.CASES if case.kernel == kernel)

    def change(name, source):
        assert name != kernel or old in source
        return source.replace(old, new)

    if kind is None:
        assert max(lm.largest_error(*one) for one in lm.results(case, change)) > 1000 * lm.LARGEST
    else:
        with pytest.raises(LaunchError) as caught:
            lm.results(case, change)
        assert kind in {one.kind for one in caught.value.findings}


@installed
def test_every_kernel_of_mlx_lm_has_a_case():
    assert lm.declared() <= {case.kernel for case in lm.CASES}


def test_the_table_of_the_page():
    page = (ROOT / "docs/msl_drop_ins.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([\w./]+)` \| ([^|]*) \|", page, re.MULTILINE)
    assert rows == [(case.kernel, case.file, case.plain) for case in lm.CASES]
