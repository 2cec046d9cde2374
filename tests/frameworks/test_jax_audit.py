"""Audits of functions of JAX: right ones raise no alarm, and a wrong result of each primitive is found."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mpsref.cli import app
from mpsref.conformance import isolation
from mpsref.conformance.audit import Audit, Row, without_zeros
from tests import few

pytest.importorskip("jax", reason="JAX is not installed (the extra `jax`)")

import jax
import jax.numpy as jnp
from jax import lax

import mpsref_jax
from mpsref_jax import auditing, custom, equations, isolated

NHWC = ("NHWC", "HWIO", "NHWC")


@pytest.fixture(autouse=True)
def few_small_cases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search for no small cases, which are compiled one after the other, except in tests of that search."""
    if "small_cases" not in request.fixturenames:
        monkeypatch.setattr(auditing, "CASES_OF", ())


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the process that has compiled the equations of tests before, although it has grown."""
    monkeypatch.setattr(isolation, "GROWTH", 2 << 30)


@pytest.fixture
def small_cases() -> None:
    """Search for small cases of what is wrong."""


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def conv(x: Any, w: Any, strides: Any = (1, 1), padding: Any = "SAME", **keywords: Any) -> Any:
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=NHWC, **keywords)


def loss(parameters: Any, x: Any) -> Any:
    """A network with a layer of each kind."""
    grouped, dilated, transposed, dense = parameters
    y = jax.nn.relu(conv(x, grouped, (2, 2), feature_group_count=2))
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME")
    y = jax.nn.sigmoid(conv(y, dilated, rhs_dilation=(2, 1)))
    y = conv(y, transposed, padding=((1, 2), (2, 1)), lhs_dilation=(2, 3))
    y = lax.reduce_window(y, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 3, 1), "SAME") / 4
    mean = y.mean(axis=(1, 2), keepdims=True)
    y = jnp.tanh((y - mean) * lax.rsqrt(jnp.square(y - mean).mean(axis=(1, 2), keepdims=True) + 1e-3))
    return -jax.nn.log_softmax(y.reshape(len(y), -1) @ dense)[:, 1].mean()


PARAMETERS = normal(3, 3, 2, 6), normal(3, 2, 6, 4), normal(2, 3, 4, 3), 0.1 * normal(36, 5)
IMAGE = normal(2, 9, 11, 4)


def rows_of(found: Audit, primitive: str) -> list[Row]:
    return [row for row in found.rows if row.function.partition(" ")[0] == primitive]


def test_a_network_and_its_gradient_are_right() -> None:
    found = mpsref_jax.audit(loss, PARAMETERS, IMAGE)
    assert found.ok, found
    assert not found.others
    assert not any(row.reasons for row in found.rows)
    functions = {row.function for row in found.rows}
    assert {"conv_general_dilated", "conv_general_dilated (gradient)", "reduce_window_max", "rsqrt"} <= functions
    assert {"select_and_scatter_add (gradient)", "dot_general (gradient)", "reduce_window_sum (gradient)"} <= functions
    places = {row.layer.partition(":")[0] for row in found.rows}
    assert places == {"test_jax_audit.py"}
    assert "conv_general_dilated (gradient)" in str(found)


PRIMITIVES = """
conv_general_dilated dot_general reduce_window_sum reduce_window_max select_and_scatter_add reduce_sum reduce_max
logistic tanh exp log max add_any add sub mul div neg rsqrt square
"""


@pytest.mark.parametrize("primitive", few(PRIMITIVES.split(), 5))
def test_a_wrong_primitive_is_found(monkeypatch: pytest.MonkeyPatch, primitive: str) -> None:
    """Only it, although everything after it has other operands."""
    plain = auditing.bind

    def wrong(equation: Any, operands: Any) -> Any:
        found = plain(equation, operands)
        if equation.primitive.name == primitive and found.dtype == jnp.float32:
            return found * 1.001 + 1e-6
        return found

    monkeypatch.setattr(auditing, "bind", wrong)
    found = mpsref_jax.audit(loss, PARAMETERS, IMAGE)
    assert not found.ok
    assert {row.function.partition(" ")[0] for row in found.wrong} == {primitive}
    if primitive not in ("add_any", "sub"):  # some results are 0
        assert all(row.status == "wrong" for row in rows_of(found, primitive) if np.prod(row.shape) > 64)


@pytest.mark.parametrize("seed", few(range(4), 2))
def test_parts_are_right(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Images, channels, rows and columns that are drawn are those of the whole."""
    monkeypatch.setattr(equations, "PRODUCTS", 2000)
    monkeypatch.setattr(equations, "ELEMENTS", 16)
    monkeypatch.setattr(equations, "WINDOWS", 2)
    found = mpsref_jax.audit(loss, PARAMETERS, IMAGE, seed=seed)
    assert found.ok, found


def test_programs_are_kept_for_the_next_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other shapes and other settings of JAX are other programs."""
    exported: list[str] = []
    plain = isolated._exported

    def recorded(equation: Any, operands: Any) -> bytes | None:
        exported.append(equation.primitive.name)
        return plain(equation, operands)

    monkeypatch.setattr(isolated, "_exported", recorded)
    monkeypatch.setattr(isolated, "_programs", {})
    monkeypatch.setattr(isolated, "MOST_PROGRAMS", 12)

    def count(length: int) -> int:
        exported.clear()
        assert mpsref_jax.audit(lambda x, w: jnp.tanh(x @ w), normal(3, length), normal(length, 2), gradient=False).ok
        assert len(isolated._programs) <= 12
        return len(exported)

    assert count(4) == 2
    assert count(4) == 0
    assert count(5) == 1  # tanh has operands of the same shape
    with jax.default_matmul_precision("float32"):
        assert count(4) == 2
    assert all(count(length) for length in range(6, 20))
    assert count(4)  # the first programs are gone
    before = [*isolated._programs]
    for _ in range(2):  # with a function in it an equation is known by its address, which another one may get
        exported.clear()
        mpsref_jax.audit(lambda x: lax.fori_loop(0, 3, lambda _, y: y * 2, x), normal(3), gradient=False)
        assert exported == ["scan"]
    assert [*isolated._programs] == before


@pytest.mark.parametrize(
    ("function", "arguments", "primitive"),
    [
        (lambda x, w: jnp.einsum("bij,bkj->bik", x, w), (normal(3, 4, 5), normal(3, 2, 5)), "dot_general"),
        (
            lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "VALID"),
            (normal(5, 6),),
            "reduce_window_max",
        ),
        (
            lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 3), (1, 1), "SAME"),
            (normal(5, 6),),
            "reduce_window_min",
        ),
        (lambda x: jnp.argmax(x, axis=1), (normal(5, 6),), "argmax"),
        (lambda x: jnp.min(x, axis=(0, 2)) + x.sum() ** 3, (normal(2, 3, 4),), "reduce_min"),
        (lambda x, w: jnp.convolve(x, w), (normal(9), normal(3)), "conv_general_dilated"),
        (
            lambda x, w: conv(x, w, (2, 1), ((2, 3), (1, 4)), lhs_dilation=(3, 2), rhs_dilation=(1, 2)),
            (normal(2, 4, 3, 2), normal(2, 3, 2, 3)),
            "conv_general_dilated",
        ),
    ],
)
def test_equations(function: Any, arguments: Any, primitive: str) -> None:
    found = mpsref_jax.audit(function, *arguments)
    assert found.ok, found
    assert all(row.compared for row in rows_of(found, primitive))
    assert rows_of(found, primitive)


def test_results_that_are_flushed_to_0_are_right() -> None:
    """On a CPU JAX computes 0 in place of subnormal numbers."""
    x = np.array([-100, -90, 1e-39, 1e-20, 3, 0], np.float32)
    found = mpsref_jax.audit(lambda x: [jnp.exp(x), x * x, jnp.sqrt(abs(x)), x - 2 * x, (x * x).sum()], x)
    assert found.ok, found


def test_what_is_not_compared_is_listed() -> None:
    def function(x: Any, half: Any) -> Any:
        y = lax.fori_loop(0, 3, lambda _, y: y * 2, x)
        volume = lax.conv(x.reshape(1, 1, 2, 2, 2), x[:1].reshape(1, 1, 1, 1, 1), (1, 1, 1), "SAME")
        return lax.erf(y) + half.astype(jnp.float32) + (half * half).sum(), volume

    found = mpsref_jax.audit(function, normal(8), np.ones(8, np.float16), gradient=False)
    listed = {name: count for _, name, count in found.others}
    assert {"scan of float32", "erf of float32"} <= {*listed} | {"scan of float32"}
    assert any(name.startswith(("scan", "while")) for name in listed)
    (row,) = rows_of(found, "conv_general_dilated")
    assert row.status == "not compared"
    assert row.reasons == ("convolution over 3 axes",)


def moving(x: Any, k: Any) -> Any:
    """Return what moves, selects and converts elements of (5, 6, 3), whose gradients do so, too."""
    y = jnp.pad(x, ((1, 2), (0, 1), (0, 0))) + lax.pad(x, jnp.float32(2), ((2, 1, 0), (-3, 4, 0), (0, 0, 0)))
    y = y + lax.pad(x, jnp.float32(1), ((-1, 0, 1), (1, 0, 0), (0, 0, 0)))
    y = jnp.flip(y.transpose(1, 0, 2), 0)[1:6:2] + lax.dynamic_slice(y, (k[0], 1, 0), (3, 6, 3))[:, :1]
    y = lax.dynamic_update_slice(y, x[:2, :2, :2], (k[1], 3, 1))
    y = jnp.concatenate([lax.clamp(-0.5, y, 0.5), y[k][:, :, k[:2]].sum(-1, keepdims=True) * jnp.ones(3)])
    y = jnp.where(y > 0.1, y, jnp.repeat(y[:1], len(y), 0)) + x[k, k[::-1]][0] + jnp.take(x, 9, axis=0, mode="clip")[0]
    y = y + jnp.take_along_axis(y, jnp.argsort(y, axis=1), axis=1).astype(jnp.bfloat16).astype(jnp.float32)
    return jnp.round(y) + jnp.floor(y) + jnp.sign(y) * y + lax.round(y) + jnp.float32(1) * y.astype(jnp.int32)


POSITIONS = np.array([2, 0, 2])


def test_what_moves_is_compared() -> None:
    found = mpsref_jax.audit(moving, normal(5, 6, 3), POSITIONS)
    assert found.ok, found
    assert {name for _, name, _ in found.others} <= {"sort of float32"}, found
    assert found.silent > 40


MOVED = """
pad gather scatter-add dynamic_slice dynamic_update_slice convert_element_type broadcast_in_dim transpose rev clamp
round floor sign select_n slice concatenate reshape gt
"""


@pytest.mark.parametrize("primitive", few(MOVED.split(), 3))
def test_a_wrong_move_is_found(monkeypatch: pytest.MonkeyPatch, primitive: str) -> None:
    plain, met = auditing.bind, []

    def wrong(equation: Any, operands: Any) -> Any:
        found = plain(equation, operands)
        if equation.primitive.name.replace("_add", "-add") != primitive or np.size(found) < 8:
            return found
        met.append(equation.primitive.name)
        flat = jnp.ravel(found)
        return flat.at[-1].set(~flat[-1] if found.dtype == bool else flat[-1] + 1).reshape(found.shape)

    monkeypatch.setattr(auditing, "bind", wrong)
    found = mpsref_jax.audit(moving, normal(5, 6, 3), POSITIONS)
    assert met
    assert {row.function.partition(" ")[0] for row in found.wrong} == {*met}, found
    assert all("1 of " in row.message for row in found.wrong)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jnp.cumsum(x), "cumsum"),
        (lambda x: jnp.sort(x), "sort"),
        (lambda x: jnp.abs(x * (1 + 2j)), "mul"),
        (lambda x: x.at[np.array([0, 9])].get(mode="fill"), "gather"),
        (lambda x: jnp.fft.rfft(x), "fft"),
        (lambda x: x.at[np.array([0, 0])].max(2.0), "scatter"),
    ],
)
def test_what_moves_or_accumulates_and_is_not_compared_is_listed(function: Any, name: str) -> None:
    found = mpsref_jax.audit(function, normal(8), gradient=False)
    assert any(one.startswith(name) for _, one, _ in found.others), found
    assert not found.complete


def test_elements_that_are_not_finite_are_left_out() -> None:
    """A row of which nothing is masked, one with a mask, and one with nothing else."""
    scores = np.array([[1, 2, 3], [4, -np.inf, -np.inf], [-np.inf] * 3], np.float32)
    found = mpsref_jax.audit(lambda x: jax.nn.softmax(x), scores)
    assert found.ok, found
    assert {"exp", "sub", "reduce_max"} <= {row.function for row in found.rows if row.compared}
    found = mpsref_jax.audit(lambda x: jnp.exp(x), np.full(2, np.inf, np.float32), gradient=False)
    assert not found.ok
    assert found.rows[0].reasons == ("no element has finite operands",)
    assert mpsref_jax.audit(lambda x: x[:0].sum() + x.sum(), normal(3)).ok


def test_gradients_that_are_0_everywhere_are_not_compared() -> None:
    """A sum is compared on small integers even then; other functions and parts are not."""
    arguments = normal(4, 5), normal(5, 3), {"gain": np.zeros(3, np.float32)}
    function = lambda x, w, p: (p["gain"] * jnp.tanh(x @ w)).sum()  # noqa: E731
    found = mpsref_jax.audit(function, *arguments, as_is=True)
    (row,) = [row for row in rows_of(found, "mul") if "gradient: 0 everywhere" in row.reasons]
    assert row.status == "not compared"
    assert not found.complete
    assert not found.remarks
    found = mpsref_jax.audit(function, *arguments)
    assert found.complete, found
    assert "small random numbers in this audit (argument 2['gain']); --as-is" in found.remarks[0]
    assert not arguments[2]["gain"].any()


def test_zeros_that_hide_gradients() -> None:
    rng = np.random.default_rng(0)
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4) + 1
    assert without_zeros(matrix, rng) is None
    matrix[1], matrix[:, 2], matrix[0, 0] = 0, 0, 0
    found = without_zeros(matrix, rng)
    assert found is not None
    assert (np.argwhere(found == 0) == [[0, 0]]).all()
    assert found.dtype == np.float32
    gain = without_zeros(np.array([0, 2, 0], jnp.bfloat16), rng)
    assert gain is not None
    assert (gain.astype(float) > 0).all()
    assert gain.dtype == jnp.bfloat16
    assert without_zeros(np.zeros((), np.float32), rng) is not None


# --- functions with rules of their own --------------------------------------------------------------------------------


def vjp(function: Any, backward: Any, forward: Any = None) -> Any:
    own = jax.custom_vjp(function)
    own.defvjp(lambda *x: ((forward or function)(*x), x), backward)
    return own


def jvp(function: Any, rule: Any) -> Any:
    own = jax.custom_jvp(function)
    own.defjvp(rule)
    return own


def outside(x: Any) -> Any:
    """Return x**3 by NumPy, which JAX does not differentiate."""
    return jax.pure_callback(lambda x: np.asarray(x) ** 3, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@jax.custom_gradient
def cubed(x: Any) -> Any:
    return x**3, lambda g: 3 * x * x * g


def rounded(x: Any) -> Any:
    return jnp.square(x.astype(jnp.bfloat16)).astype(x.dtype)


def kept(x: Any) -> Any:
    """Return some elements; others in float64, for which JAX draws other numbers."""
    return x * jax.random.bernoulli(jax.random.key(0, impl="rbg"), 0.5, x.shape)  # the default one compiles for seconds


OWN: dict[str, tuple[Any, str]] = {
    "right": (vjp(lambda x: x**3, lambda r, g: (3 * r[0] ** 2 * g,)), "right"),
    "off by 1.01": (vjp(lambda x: x**3, lambda r, g: (3.03 * r[0] ** 2 * g,)), "wrong"),
    "slightly off": (vjp(lambda x: x**3, lambda r, g: (3.0001 * r[0] ** 2 * g,)), "wrong"),
    "twice": (vjp(lambda x: x**3, lambda r, g: (6 * r[0] ** 2 * g,)), "wrong"),
    "zero": (vjp(lambda x: x**3, lambda r, g: (0 * g,)), "wrong"),
    "wrong axis": (vjp(lambda x: x.cumsum(1), lambda r, g: (g[:, :, ::-1].cumsum(2)[:, :, ::-1],)), "wrong"),
    "right axis": (vjp(lambda x: x.cumsum(1), lambda r, g: (g[:, ::-1].cumsum(1)[:, ::-1],)), "right"),
    "another result": (vjp(lambda x: x**3, lambda r, g: (3 * r[0] ** 2 * g,), lambda x: x**3 + 1), "wrong"),
    "jvp": (jvp(jnp.exp, lambda x, t: (jnp.exp(x[0]), t[0] * jnp.exp(x[0]))), "right"),
    "wrong jvp": (jvp(jnp.exp, lambda x, t: (jnp.exp(x[0]), t[0] * jnp.exp(-x[0]))), "wrong"),
    "outside": (vjp(outside, lambda r, g: (3 * r[0] ** 2 * g,)), "right"),
    "wrong outside": (vjp(outside, lambda r, g: (3.03 * r[0] ** 2 * g,)), "wrong"),
    "half seen": (vjp(lambda x: x * lax.stop_gradient(x), lambda r, g: (2 * r[0] * g,)), "right"),
    "decorated": (cubed, "right"),
    "at a kink": (vjp(lambda x: jnp.maximum(x, 0), lambda r, g: (jnp.where(r[0] > 0, g, 0),)), "right"),
    "wrong at a kink": (vjp(lambda x: jnp.maximum(x, 0), lambda r, g: (jnp.where(r[0] > 0, 1.01 * g, 0),)), "wrong"),
    "rounded inside": (vjp(rounded, lambda r, g: (2 * r[0] * g,)), "right"),
    "random": (vjp(kept, lambda r, g: (kept(g),)), "right"),
    "wrong and random": (vjp(kept, lambda r, g: (1.01 * kept(g),)), "wrong"),
    "wrong and rounded inside": (vjp(rounded, lambda r, g: (3 * r[0] * g,)), "wrong"),
}


DIFFERENCES = {"outside", "wrong outside", "half seen", "random", "wrong and random"}


@pytest.mark.parametrize("name", few([*OWN][::2] + [*OWN][1::2], 10))
def test_a_rule_against_the_derivative_of_its_function(name: str) -> None:
    function, status = OWN[name]
    found = mpsref_jax.audit(
        lambda x: function(jnp.maximum(x, -0.5) if "kink" not in name else jnp.maximum(x, 0)), IMAGE
    )
    (row,) = [row for row in found.rows if row.required]
    assert row.status == status, str(found)
    assert found.ok == (status == "right")
    assert row.layer.startswith("test_jax_audit.py:")
    assert ("central differences" in str(row.notes)) == (name in DIFFERENCES)
    assert ("exactly 2 times what is expected" in row.message) == (name == "twice")
    assert ("are at a kink" in str(row.notes)) == ("kink" in name)
    assert ("result of its rule" in row.message) == (name == "another result")


def test_rules_in_a_step_of_training_in_a_loop_and_behind_a_trace() -> None:
    """Where nothing in a jaxpr says that a rule was used."""
    wrong, right = OWN["off by 1.01"][0], OWN["right"][0]
    for function, status in ((wrong, "wrong"), (right, "right")):

        @jax.jit
        def step(x: Any, function: Any = function) -> Any:
            body = jax.checkpoint(lambda y, _: (jnp.tanh(function(y)), None))
            return x - jax.grad(lambda x: lax.scan(body, x, None, length=5)[0].sum())(x)

        x = normal(3, 4)
        before = step(x)
        found = mpsref_jax.audit(step, x, gradient=False)
        (row,) = [row for row in found.rows if row.required]
        assert row.status == status, str(found)
        assert "first 2 of" in row.notes[0]
        assert "debug_callback" not in str(jax.make_jaxpr(step)(x))  # nothing of the audit is left
        assert (step(x) == before).all()
    assert jax.custom_vjp.__call__.__module__.startswith("jax.")


def test_arguments_of_rules() -> None:
    """Trees, numbers, functions and integers; each call of another shape has a row."""

    @partial(jax.custom_vjp, nondiff_argnums=(0, 3))
    def function(f: Any, x: Any, given: Any, power: float = 2.0) -> Any:
        return {"y": f(x) * given["gain"][given["index"]] ** power, "index": given["index"]}

    def backward(f: Any, power: float, r: Any, g: Any) -> Any:
        x, given = r
        of = lambda x, gain: f(x) * gain[given["index"]] ** power  # noqa: E731
        dx, dgain = jax.vjp(of, x, given["gain"])[1](g["y"])
        return dx, {"gain": 1.5 * dgain, "index": np.zeros((), jax.dtypes.float0)}

    function.defvjp(lambda f, x, given, power: (function(f, x, given, power), (x, given)), backward)

    def loss(x: Any, gain: Any) -> Any:
        given = {"gain": gain, "index": jnp.asarray(1)}
        return function(jnp.tanh, x, given)["y"].sum() + function(jnp.tanh, x[:2], given, power=3.0)["y"].sum()

    found = mpsref_jax.audit(loss, normal(4, 3), normal(5))
    rows = [row for row in found.rows if row.required]
    assert [(row.shape, row.status) for row in rows] == [((4, 3), "wrong"), ((2, 3), "wrong")], str(found)
    assert all(row.message.startswith("gradient for given['gain']") for row in rows)
    assert all(dict(row.compared)["gradient for x"] <= 1 for row in rows)


MODULE = """
import jax, numpy as np
batch = np.ones((3, 2), np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
def right(w, x):
    return jax.nn.sigmoid(x @ w).sum()
def unknown(w, x):
    return right(w, x) + jax.lax.erf(x).sum()
@jax.custom_vjp
def twice(x):
    return 2 * x
twice.defvjp(lambda x: (2 * x, None), lambda _, g: (g,))
def wrong(w, x):
    return twice(x @ w).sum()
@jax.custom_vjp
def outside(x):
    return jax.pure_callback(lambda x: x * np.float32(np.random.default_rng().random()), x, x)
outside.defvjp(lambda x: (outside(x), None), lambda _, g: (g,))
def unchecked(w, x):
    return right(w, x) + outside(x).sum()
"""


@pytest.mark.parametrize(
    ("name", "options", "status"),
    [
        ("right", ["--strict"], 0),
        ("unknown", [], 0),
        ("unknown", ["--strict"], 3),
        ("wrong", [], 1),
        ("unchecked", [], 3),
        ("right", ["--compile"], 2),
    ],
)
def test_exit_statuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: list[str], status: int
) -> None:
    (tmp_path / "functions_of_jax.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    given = ["audit", f"functions_of_jax:{name}", "--jax", "--batch", "functions_of_jax:batch", *options]
    found = CliRunner().invoke(app, given)
    if status == 2:
        assert "--compile concerns models of PyTorch" in str(found.exception)
        return
    assert found.exit_code == status, found.output
    assert ("1 backward passes of your own not compared" in found.output) == (name == "unchecked")


def test_a_rule_that_cannot_be_compared_is_counted() -> None:
    calls: list[int] = []

    def changing(x: Any) -> Any:
        def outside(x: Any) -> Any:
            calls.append(1)
            return np.asarray(x) * np.asarray(len(calls), x.dtype)

        return jax.pure_callback(outside, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def closed(x: Any) -> Any:
        return vjp(lambda y: y * x, lambda r, g: (g,))(lax.stop_gradient(x)).sum()

    for function in (vjp(changing, lambda r, g: (g,)), closed):
        found = mpsref_jax.audit(function, normal(3, 4), gradient=False)
        assert [row.status for row in found.unchecked] == ["not compared"], str(found)
        assert not found.ok
        assert str(found).endswith("1 backward passes of your own not compared")


# --- less precise types, and errors that are small --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", few([jnp.bfloat16, jnp.float16], 1))
def test_types_that_are_less_precise(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    parameters, image = jax.tree.map(lambda one: jnp.asarray(one, dtype), (PARAMETERS, IMAGE))

    def function(parameters: Any, x: Any) -> Any:
        return loss(parameters, x) + jax.nn.sigmoid(8 * x).sum()

    found = mpsref_jax.audit(function, parameters, image)
    assert found.ok, found
    assert not found.others
    assert {"conv_general_dilated", "select_and_scatter_add (gradient)"} <= {row.function for row in found.rows}
    plain = auditing.bind

    def wrong(equation: Any, operands: Any) -> Any:
        found = plain(equation, operands)
        return found * 1.05 if equation.primitive.name in ("conv_general_dilated", "tanh") else found

    monkeypatch.setattr(auditing, "bind", wrong)
    found = mpsref_jax.audit(function, parameters, image)
    assert {row.function.partition(" ")[0] for row in found.wrong} == {"conv_general_dilated", "tanh"}
    right = vjp(jnp.tanh, lambda r, g: (g * (1 - jnp.tanh(r[0]) ** 2),))
    assert mpsref_jax.audit(right, image).rows[-1].status == "right"
    off = vjp(jnp.tanh, lambda r, g: (1.5 * g * (1 - jnp.tanh(r[0]) ** 2),))
    assert mpsref_jax.audit(off, image).rows[-1].status == "wrong"


def test_a_tap_that_is_missing_in_a_gradient_for_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """One product of 20,000 in each sum is within the bound for real numbers."""
    plain = auditing.bind
    x, w = normal(4, 72, 72, 2), normal(3, 3, 2, 3)

    def dropped(equation: Any, operands: Any) -> Any:
        if equation.primitive.name == "conv_general_dilated" and "transpose" in str(equation.source_info.name_stack):
            operands = [operands[0], jnp.ravel(operands[1]).at[0].set(0).reshape(operands[1].shape)]
        return plain(equation, operands)

    def found() -> set[str]:
        return {
            row.function for row in mpsref_jax.audit(lambda w: jnp.tanh(conv(x, w, padding="VALID")).sum(), w).wrong
        }

    assert not found()
    monkeypatch.setattr(auditing, "bind", dropped)
    assert found() == {"conv_general_dilated (gradient)"}


def test_sums_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """One missing term of 500 is seen with integers; the bound of 5,000 additions is wider than the sum."""
    plain = auditing.bind

    def dropped(equation: Any, operands: Any) -> Any:
        if equation.primitive.name == "reduce_sum":
            operands = [operands[0].at[:1].set(0)]
        return plain(equation, operands)

    def row(count: int) -> Row:
        x = jnp.asarray(normal(count, 3), jnp.bfloat16)
        found = mpsref_jax.audit(lambda b: jnp.tanh(x + b), jnp.ones(3, jnp.bfloat16))
        return rows_of(found, "reduce_sum")[0]

    assert row(500).message == ""
    assert row(5000).status == "not compared"
    assert "sums of 5000 terms in bfloat16 have no bound" in row(5000).reasons[0]
    monkeypatch.setattr(auditing, "bind", dropped)
    assert "called again on small integers" in row(500).message


def test_integers_have_no_gradient() -> None:
    found = mpsref_jax.audit(lambda table, k: table[k] * 2, normal(5, 3), np.array([1, 2]))
    assert found.ok
    assert rows_of(found, "mul")


@pytest.mark.skipif(jax.__version__ != "0.10.2", reason="seen in JAX 0.10.2")
def test_the_defect_of_negative_padding_is_named(small_cases: None) -> None:
    """A transposed convolution whose result ends behind the last pixel that a tap reaches."""
    found = mpsref_jax.audit(
        lambda x, w: conv(x, w, padding=((0, 0), (-1, 1))).sum(), normal(2, 3, 4, 8), normal(1, 1, 8, 1)
    )
    assert "conv_general_dilated" in {row.function for row in found.wrong}
    assert "elements are wrong" in str(found)


def test_the_example_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs/audit.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(import jax.*?)^```", page, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(code, "audit.md", "exec"), names)
    assert names["report"].ok


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.skipif(jax.__version__ != "0.10.2", reason="seen in JAX 0.10.2")
def test_an_equation_that_ends_its_process_is_named() -> None:
    """XLA aborts where padding is at least as wide as the kernel, and the image is dilated along the other axis."""

    @jax.custom_vjp
    def double(x: Any) -> Any:
        return 2 * x

    double.defvjp(lambda x: (2 * x, None), lambda _, g: (2 * g,))

    def loss(w: Any, x: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        convolved = jax.lax.conv_general_dilated
        y = convolved(double(x), w, (1, 1), ((0, 0), (2, 3)), lhs_dilation=(2, 1), dimension_numbers=names)
        return jnp.tanh(convolved(y, w, (1, 1), "SAME", dimension_numbers=names)).sum()

    found = mpsref_jax.audit(loss, normal(2, 3, 1, 1), normal(1, 3, 1, 1))
    (row,) = found.wrong
    assert row.function == "conv_general_dilated"
    assert row.layer.startswith("test_jax_audit.py:")
    assert "the process that ran it ended by SIGABRT" in row.message
    assert [row.status for row in rows_of(found, "tanh")] == ["right"]
    assert [row.status for row in found.rows if row.function == "conv_general_dilated"] == ["wrong", "right"]
    (own,) = found.unchecked
    assert "ends its process" in own.reasons[0]
    assert mpsref_jax.audit(lambda x: jnp.tanh(x).sum(), normal(3)).complete


def test_all_threads_see_that_float64_is_enabled() -> None:
    """Callbacks run in threads of JAX; a setting of the user for one thread does not become one for all."""

    def elsewhere() -> str:
        with ThreadPoolExecutor(1) as pool:
            return str(pool.submit(lambda: jnp.asarray(1.0).dtype).result())

    with custom._x64():
        assert elsewhere() == "float64"
    with jax.enable_x64(True), custom._x64():
        pass
    assert elsewhere() == "float32"
