"""Operations, backends and dispatch; what comes in through the door, and what importing costs."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import Backend, Operation, PoolingAverage, UnsupportedError, registry
from mpsref.arguments.arrays import Array
from mpsref.backend import LazyImplementations
from mpsref.conformance.case import operations
from mpsref.errors import loaded

POOL = PoolingAverage(3, 2)
X = np.random.default_rng(0).standard_normal((2, 5, 4, 3)).astype(np.float32)
Y = POOL.forward(X, backend="reference")
FORWARD, GRADIENT = Operation(PoolingAverage, "forward"), Operation(PoolingAverage, "gradient")
MAX_GRADIENT = Operation(mpsref.PoolingMax, "gradient")


def constant(value: float) -> Any:
    def implementation(problem: registry.Problem, *inputs: Array, out: Array) -> None:
        out.fill(value)

    return implementation


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers or sets is gone after it."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(registry, "_default", registry._default)


@pytest.fixture
def seven() -> Backend:
    return mpsref.register(Backend("seven", {FORWARD: constant(7)}))


# ---- operations and backends ----------------------------------------------------------------------------------------


def test_operations() -> None:
    found = list(operations())
    assert [op for op in found if op.spec_type is PoolingAverage] == [FORWARD, GRADIENT]
    assert [str(op) for op in (FORWARD, GRADIENT)] == ["PoolingAverage.forward", "PoolingAverage.gradient"]
    assert all(callable(operation.formula) and callable(operation.error_bound) for operation in found)
    for operation in found:
        problem_type = operation.spec_type.problems[operation.method]
        assert problem_type.method == operation.method
        assert callable(getattr(operation.spec_type, operation.method))


def test_the_reference_is_always_there() -> None:
    rows = mpsref.backends()
    names = [row.name for row in rows]
    assert names[:2] == ["reference", "reference:input-dtype"]
    assert len(set(names)) == len(names)
    for row in rows:
        assert row.available == bool(row.device) == (not row.reason)
    for operation in operations():
        assert registry.get_backend("reference").why_not(operation, POOL) is None


def test_a_registered_backend(seven: Backend) -> None:
    assert registry.get_backend("seven") is registry.get_backend(seven) is seven
    assert ("seven", True, "CPU", "") in mpsref.backends()
    assert (POOL.forward(X, backend="seven") == 7).all()
    assert (POOL.forward(X, backend=Backend("not registered", {FORWARD: constant(8)})) == 8).all()


def test_what_a_backend_lacks_is_never_run_elsewhere(seven: Backend) -> None:
    with pytest.raises(UnsupportedError, match=r"backend 'seven' does not implement PoolingAverage.gradient"):
        POOL.gradient(Y, X, backend=seven)
    absent = Backend("absent", {FORWARD: constant(7)}, unavailable=lambda: "plug the device in")
    with pytest.raises(UnsupportedError, match=r"^plug the device in$"):
        POOL.forward(X, backend=absent)
    assert absent.why_not(GRADIENT, POOL) == "plug the device in"


def test_a_backend_says_which_dtypes_it_takes() -> None:
    single = Backend("single", {FORWARD: constant(7)}, dtypes=("float32",))
    assert POOL.forward(X, backend=single).dtype == np.float32
    with pytest.raises(TypeError, match=r"x has dtype float16; backend 'single' takes float32: convert it, or use"):
        POOL.forward(X.astype(np.float16), backend=single)


def test_names_are_taken_once(seven: Backend) -> None:
    taken = ["seven", *(row.name for row in mpsref.backends())]
    for name in taken:
        with pytest.raises(ValueError, match=rf"backend name '{name}' is taken; known: reference, "):
            mpsref.register(Backend(name, {}))
    with pytest.raises(TypeError, match=r"backend is of type str; it must be an mpsref.Backend"):
        mpsref.register("seven")  # type: ignore[arg-type]


# ---- the default ----------------------------------------------------------------------------------------------------


def chosen() -> str:
    return registry.get_backend().name


def test_use_backend_nests_and_survives_exceptions(seven: Backend) -> None:
    with mpsref.use_backend("seven"):
        assert (POOL.forward(X) == 7).all()
        assert np.array_equal(POOL.forward(X, backend="reference"), Y)
        with mpsref.use_backend("reference:input-dtype"):
            assert chosen() == "reference:input-dtype"
        with pytest.raises(KeyError), mpsref.use_backend("reference"):
            raise KeyError
        assert chosen() == "seven"
    assert chosen() == "reference"
    with mpsref.use_backend(Backend("anonymous", {})):
        assert chosen() == "anonymous"


def test_set_backend(seven: Backend) -> None:
    mpsref.set_backend("seven")
    assert (POOL.forward(X) == 7).all()
    with mpsref.use_backend("reference"):
        assert chosen() == "reference"
        mpsref.set_backend("reference:input-dtype")
        assert chosen() == "reference"
    assert chosen() == "reference:input-dtype"
    mpsref.set_backend("reference")
    assert np.array_equal(POOL.forward(X), Y)


@pytest.mark.parametrize("choose", [mpsref.set_backend, lambda name: mpsref.use_backend(name).__enter__()])
def test_a_bad_default_is_refused_when_it_is_set(choose: Any) -> None:
    for bad, error, message in [
        ("nope", ValueError, "unknown backend 'nope'; `mpsref backends` lists all"),
        (None, TypeError, "backend is None"),
        (3, TypeError, "backend is of type int"),
    ]:
        with pytest.raises(error, match=message):
            choose(bad)
        assert chosen() == "reference"


def test_threads_do_not_see_each_other(seven: Backend) -> None:
    inside, done = threading.Barrier(2, timeout=10), threading.Barrier(2, timeout=10)

    def work(name: str) -> list[str]:
        before = chosen()
        with mpsref.use_backend(name):
            inside.wait()  # both are in their blocks now
            during = chosen()
            done.wait()
        return [before, during, chosen()]

    with mpsref.use_backend("reference:input-dtype"), ThreadPoolExecutor(2) as pool:
        results = list(pool.map(work, ["seven", "reference"]))
        assert chosen() == "reference:input-dtype"
    assert results == [["reference", "seven", "reference"], ["reference", "reference", "reference"]]


def test_tasks_do_not_see_each_other(seven: Backend) -> None:
    async def work(name: str) -> list[str]:
        with mpsref.use_backend(name):
            await asyncio.sleep(0)
            during = chosen()
        return [during, chosen()]

    async def main() -> list[list[str]]:
        return list(await asyncio.gather(work("seven"), work("reference:input-dtype")))

    assert asyncio.run(main()) == [["seven", "reference"], ["reference:input-dtype", "reference"]]


# ---- what comes in through the door ---------------------------------------------------------------------------------


class Loopback:
    """The reference behind the door of a backend; keeps what arrives."""

    def __init__(self) -> None:
        self.calls: list[tuple[registry.Problem, tuple[Array, ...], Array]] = []
        right = registry.get_backend("reference").implementations

        def record(problem: registry.Problem, *inputs: Array, out: Array) -> None:
            self.calls.append((problem, inputs, out))
            for array in (*inputs, out):
                assert array.flags.c_contiguous
                assert array.dtype.isnative
                assert array.size
            assert out.flags.writeable
            right[problem.operation](problem, *inputs, out=out)

        self.backend = Backend("loopback", dict.fromkeys(operations(), record))


@pytest.fixture
def loopback() -> Loopback:
    return Loopback()


def test_nothing_is_copied_without_need(loopback: Loopback) -> None:
    x, y, dx = X.copy(), np.empty_like(Y), np.empty_like(X)
    POOL.forward(x, out=y, backend=loopback.backend)
    POOL.gradient(y, x, out=dx, backend=loopback.backend)
    (_, (first,), first_out), (_, (second,), second_out) = loopback.calls
    pairs = [(first, x), (first_out, y), (second, y), (second_out, dx)]
    assert all(np.shares_memory(inside, outside) for inside, outside in pairs)


def test_an_array_that_is_passed_twice_is_not_taken_for_another_one_later() -> None:
    x, y = np.full((1, 1, 1, 1), 1, np.float32), np.full((1, 1, 1, 1), 10, np.float32)
    add = mpsref.Arithmetic("add")
    assert [add.forward(*pair).item() for pair in ((x, x), (x, y), (y, x), (y, y), (x, y))] == [2, 11, 11, 20, 11]


def test_empty_batches_are_answered_at_the_door(loopback: Loopback) -> None:
    assert POOL.forward(X[:0], backend=loopback.backend).shape == (0, *Y.shape[1:])
    assert POOL.gradient(Y[:0], X[:0], backend=loopback.backend).shape == (0, *X.shape[1:])
    assert not loopback.calls


def test_illegal_problems_do_not_reach_a_backend(loopback: Loopback) -> None:
    with mpsref.use_backend(loopback.backend):
        with pytest.raises(ValueError, match="output_size"):
            POOL.forward(X, (0, 1))
        with pytest.raises(ValueError, match="out shares memory"):
            PoolingAverage(1).forward(X, out=X)
        with pytest.raises(ValueError, match="rank 3"):
            POOL.forward(X[0])
        with pytest.raises(ValueError, match="g has shape"):
            POOL.gradient(Y[:1], X)
        with pytest.raises(ValueError, match="clip is 3"):
            POOL.gradient(Y, X, clip=3)
    assert not loopback.calls


def test_an_error_of_a_backend_is_the_callers_to_see() -> None:
    def fail(problem: registry.Problem, *inputs: Array, out: Array) -> None:
        raise OSError("the device is gone")

    with pytest.raises(OSError, match="the device is gone"):
        POOL.forward(X, backend=Backend("failing", {FORWARD: fail}))


# ---- entry points that do not work ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("mpsref_no_such_module:backend", r"ModuleNotFoundError: No module named 'mpsref_no_such_module'"),
        ("mpsref.geometry:no_such_name", r"AttributeError: .*no_such_name.?"),
        ("mpsref.geometry:Window", r"TypeError: mpsref.geometry:Window is a type, not an mpsref.Backend"),
        ("module_that_exits:backend", "SystemExit: not here"),
    ],
)
def test_a_backend_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, reason: str
) -> None:
    (tmp_path / "module_that_exits.py").write_text("raise SystemExit('not here')")
    monkeypatch.syspath_prepend(tmp_path)
    registry._loaded.clear()
    broken = EntryPoint("broken", value, registry.ENTRY_POINT_GROUP)
    points = {"broken": broken, **registry._entry_points()}
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    row = {row.name: row for row in mpsref.backends()}["broken"]
    assert not row.available
    with pytest.raises(UnsupportedError, match=rf"^backend 'broken' \({value}\) cannot be loaded: {reason}$") as caught:
        POOL.forward(X, backend="broken")
    assert str(caught.value) == row.reason
    assert np.array_equal(POOL.forward(X), Y)


def test_a_module_that_exits_does_not_end_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "module_that_exits.py").write_text("raise SystemExit('not here')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^backend 'module_that_exits:b' cannot be loaded: SystemExit: not here"):
        POOL.forward(X, backend="module_that_exits:b")
    point = EntryPoint("exits", "module_that_exits:b", "mpsref.kernels")
    with pytest.raises(
        ImportError, match=r"^mpsref.kernels: 'exits' \(module_that_exits:b\) cannot be loaded: SystemExit"
    ):
        loaded(point)


def test_the_cpu_backend_needs_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    with pytest.raises(UnsupportedError, match=r"NUMBA_DISABLE_JIT is set, .* unset it"):
        POOL.forward(X, backend="cpu")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    np.testing.assert_allclose(POOL.forward(X, backend="cpu"), Y, rtol=1e-6, atol=1e-7)
    monkeypatch.setattr("mpsref_cpu.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"numba is not installed: pip install numba"):
        PoolingAverage(3).forward(X, backend="cpu")


# ---- importing is cheap ---------------------------------------------------------------------------------------------


def run(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_importing_loads_numpy_and_nothing_else() -> None:
    modules = run("import sys, numpy; before = set(sys.modules); import mpsref; print(*set(sys.modules) - before)")
    foreign = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert foreign <= {"anymetal", "mpsref", "numpy", "lazy_loader"}
    assert {name for name in modules if name.startswith("anymetal")} == {"anymetal", "anymetal.fork_safe"}
    assert not [name for name in modules if name.startswith(("mpsref.conformance", "mpsref.cli"))]


def test_the_reference_runs_without_looking_for_backends() -> None:
    code = """
import sys, numpy, mpsref
mpsref.PoolingAverage(2).forward(numpy.ones((1, 2, 2, 1), "f4"))
print(mpsref.registry._entry_points.cache_info().currsize, *{name.partition(".")[0] for name in sys.modules})
"""
    lookups, *modules = run(code)
    assert lookups == "0"
    assert not {"numba", "scipy", "mpsref_cpu", "mpsref_metal"} & set(modules)


def test_commands_import_what_they_need() -> None:
    """A list of backends takes versions from metadata, and a list of commands takes a line from each."""
    code = "import sys; from mpsref import cli; sys.argv[1:] = [{!r}]\ntry: cli.main()\n"
    code += "finally: print('---', *sys.modules)"
    printed = [run(code.format(word)) for word in ("--help", "backends")]
    helped, listed = (set(words[words.index("---") :]) for words in printed)
    assert {"mpsref_apple.probe.command", "anymetal.command"} <= helped
    assert not helped & {"mpsref_apple.over_objc", "mpsref.kernels.pooling", "numba", "rich.console"}
    assert "mpsref_torch" in listed
    assert not listed & {"torch", "jax", "onnx", "onnxruntime", "tensorflow", "tinygrad", "numba", "unittest.mock"}


def test_a_name_that_two_packages_claim_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    registry._loaded.clear()
    claims = tuple(EntryPoint("twice", f"mpsref.{name}:backend", registry.ENTRY_POINT_GROUP) for name in ("a", "b"))
    points = {"twice": claims[1], **registry._entry_points()}
    monkeypatch.setattr(registry, "_installed", lambda: claims)
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    reason = "backend name 'twice' is claimed by mpsref.a:backend and mpsref.b:backend; uninstall all but one"
    with pytest.raises(UnsupportedError, match=f"^{reason}$"):
        POOL.forward(X, backend="twice")


def test_a_backend_that_cannot_describe_itself_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise OSError("no driver")

    monkeypatch.setitem(registry._registered, "moody", Backend("moody", {}, device=fail))
    rows = {row.name: row for row in mpsref.backends()}
    assert not rows["moody"].available
    assert "OSError: no driver" in rows["moody"].reason
    assert rows["reference"].available


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((5, {}), TypeError, "name is 5; it must be a non-empty str"),
        (("", {}), TypeError, "name is ''"),
        (("mine", None), TypeError, "implementations is of type NoneType; it must be a mapping"),
        (("mine", {"PoolingAverage.forward": max}), TypeError, r"the key 'PoolingAverage.forward'; a key is a kernel"),
        (("mine", {(mpsref.PoolingAverage, "backward"): max}), TypeError, r"'backward'\); a key is a kernel"),
        (("mine", {FORWARD: 7}), TypeError, r"implementations\[PoolingAverage.forward\] is of type int"),
        (("mine", {}, None), TypeError, "unavailable is None; it must be a function"),
    ],
)
def test_what_a_backend_is_made_of(arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Backend(*arguments)


@pytest.mark.parametrize("dtypes", [(), "float32", ["float32"], ("flaot32",), (np.float32,)])
def test_which_dtypes_a_backend_may_take(dtypes: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="dtypes is"):
        Backend("mine", {}, dtypes=dtypes)


def test_a_backend_refuses_by_a_function() -> None:
    with pytest.raises(TypeError, match="refuses is None; it must be a function"):
        Backend("mine", {}, refuses=None)


def test_a_result_that_is_allocated_at_the_second_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x = mpsref.PoolingAverage(2), np.ones((1, 4, 4, 1), np.float32)
    right, empty, refused = kernel.forward(x, backend="cpu"), np.empty, iter([MemoryError()])

    def scarce(*arguments: Any, **options: Any) -> Any:
        for error in refused:
            raise error
        return empty(*arguments, **options)

    monkeypatch.setattr(np, "empty", scarce)
    assert np.array_equal(kernel.forward(x, backend="cpu"), right)
    assert next(refused, None) is None


def test_one_backend_is_a_list_of_one() -> None:
    cpu = registry.get_backend("cpu")
    assert registry.get_backends("cpu") == registry.get_backends(cpu) == registry.get_backends(["cpu"]) == [cpu]
    assert registry.get_backends(()) == []
    with pytest.raises(ValueError, match="unknown backend 'c'"):
        registry.get_backends(list("cpu"))


def test_an_implementation_sees_plain_arrays_at_every_call() -> None:
    """Also where the first call of a problem, after which it is known, had plain ones."""
    seen = []

    def look(problem: registry.Problem, x: Array, out: Array) -> None:
        seen.append(type(x) is np.ndarray and x.flags.c_contiguous and x.dtype.isnative)
        out.fill(0)

    looking = Backend("looking", {(PoolingAverage, "forward"): look})
    pool, x = PoolingAverage(2, 2), np.zeros((1, 4, 4, 2), np.float32)
    for given in (x, x[:, ::-1], x[..., ::-1], x.astype(">f4"), np.asfortranarray(x), x):
        pool.forward(given, backend=looking)
    assert seen == [True] * 6


def test_a_call_of_strided_arrays_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[object] = []
    check = registry._checked_call
    monkeypatch.setattr(registry, "_checked_call", lambda *given: checks.append(given) or check(*given))
    pool, x = PoolingAverage((2, 3), (1, 2)), np.arange(5 * 7 * 3, dtype=np.float32).reshape(1, 5, 7, 3)
    problem = pool.problems["forward"](pool, x.shape, (5, 4))
    calls = lambda x: pool.forward(x, backend="cpu"), lambda x: registry.run(problem, x, backend="cpu")
    for call in calls:
        checks.clear()
        for given in (x[:, ::-1], x[..., ::-1], x, np.asfortranarray(-x), x[:, :, ::-1]):
            np.testing.assert_array_equal(call(given), call(given.copy(order="C")))
        assert len(checks) == 1
        for _ in range(2):
            np.testing.assert_array_equal(call(x.astype(">f4")), call(x))
        assert len(checks) == 3  # another byte order is checked in each call


@pytest.mark.parametrize("value", [1.0, True])
def test_a_prepared_call_is_not_used_for_an_equal_value_of_another_type(value: Any) -> None:
    """1, 1.0 and True are equal keys of a dictionary, but only 1 is a legal size or offset."""
    pool, g, shape = PoolingAverage(3, 2), Y[:1], (1, *X.shape[1:])
    expected = pool.gradient(g, shape, (1, 0), backend="cpu")
    with pytest.raises(TypeError, match="primary_offset"):
        pool.gradient(g, shape, (value, 0), backend="cpu")
    with pytest.raises(TypeError, match="shape"):
        pool.gradient(g, (value, *shape[1:]), (1, 0), backend="cpu")
    np.testing.assert_array_equal(pool.gradient(g, shape, (1, 0), backend="cpu"), expected)


def test_a_prepared_call_is_not_used_for_another_dtype() -> None:
    right = registry.get_backend("reference").implementations
    single = Backend("single", {MAX_GRADIENT: right[MAX_GRADIENT]}, dtypes=("float32",))
    pool = mpsref.PoolingMax(3, 2)
    for g, x, name in ((Y, X.astype(np.float16), "x"), (Y.astype(np.float16), X, "g")):
        pool.gradient(Y, X, backend=single)
        with pytest.raises(TypeError, match=f"{name} has dtype float16; backend 'single' takes float32"):
            pool.gradient(g, x, backend=single)


def _called(call: Callable[[], object]) -> list[str]:
    """Return the names of the functions that a repeated call crosses."""
    for _ in range(2):
        call()
    called: list[str] = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    return called[1:]


@pytest.mark.parametrize("kernel", ["PoolingAverage", "PoolingMax", "PoolingL2Norm", "SoftMax", "Neuron"])
def test_a_repeated_gradient_crosses_few_functions(kernel: str) -> None:
    parameters = {"SoftMax": (), "Neuron": ("tanh",)}.get(kernel, (2, 2))
    spec = getattr(mpsref, kernel)(*parameters)
    y = spec.forward(X, backend="cpu")
    called = _called(lambda: spec.gradient(y, y if kernel == "SoftMax" else X, backend="cpu"))
    assert called[0] == "gradient"
    assert len(called) <= 9, called


def test_repeated_reductions_and_arithmetic_cross_few_functions() -> None:
    add, times = mpsref.Arithmetic("add"), mpsref.Arithmetic("multiply", secondary_strides=(0, 0, 1))
    y, total = X[:, :1, :1].copy(), mpsref.Reduce("sum", "row")
    assert len(_called(lambda: total.forward(X, backend="cpu"))) <= 14
    assert len(_called(lambda: add.forward(X, X, backend="cpu"))) <= 11
    assert len(_called(lambda: add.gradient(X, X, X, backend="cpu"))) <= 20
    assert len(_called(lambda: times.gradient(X, X, y, backend="cpu"))) <= 48


def test_specs_that_differ_in_the_sign_of_zero_do_not_share_calls() -> None:
    """They are equal, but their results are not."""
    x = np.ones((1, 1, 1, 1), np.float32)
    specs = [mpsref.Pad((0, 0, 0), (0, 1, 0), "constant", fill_value=fill) for fill in (0.0, -0.0, 0.0)]
    assert specs[0] == specs[1]
    filled = [spec.forward(x, backend="reference")[0, 0, 1, 0] for spec in specs]
    assert [bool(np.signbit(value)) for value in filled] == [False, True, False]
    assert specs[0].__dict__["_calls"] is specs[2].__dict__["_calls"] is not specs[1].__dict__["_calls"]


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_family_is_imported_without_garbage_collections(
    is_enabled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"lazy_backend_{is_enabled}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / package / "softmax.py").write_text(
        "import gc; from mpsref import SoftMax; IMPLEMENTATIONS = {(SoftMax, 'forward'): [print, exit][gc.isenabled()]}"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        assert LazyImplementations(package)[mpsref.SoftMax, "forward"] is print
        assert gc.isenabled() is is_enabled
    finally:
        (gc.enable if before else gc.disable)()
