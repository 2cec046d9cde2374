"""Audits of functions of JAX: right ones raise no alarm, and a wrong result of each primitive is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpsref.conformance.audit import Audit, Row
from tests import few

pytest.importorskip("jax", reason="JAX is not installed (the extra `jax`)")

import jax
import jax.numpy as jnp
from jax import lax

import mpsref_jax
from mpsref_jax import auditing, equations

NHWC = ("NHWC", "HWIO", "NHWC")


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


@pytest.mark.parametrize("primitive", few(PRIMITIVES.split(), 6))
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


@pytest.mark.parametrize("seed", range(4))
def test_parts_are_right(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Images, channels, rows and columns that are drawn are those of the whole."""
    monkeypatch.setattr(equations, "PRODUCTS", 2000)
    monkeypatch.setattr(equations, "ELEMENTS", 16)
    monkeypatch.setattr(equations, "WINDOWS", 2)
    found = mpsref_jax.audit(loss, PARAMETERS, IMAGE, seed=seed)
    assert found.ok, found


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


def test_what_is_not_compared_is_listed() -> None:
    def function(x: Any, half: Any) -> Any:
        y = lax.fori_loop(0, 3, lambda _, y: y * 2, x)
        volume = lax.conv(x.reshape(1, 1, 2, 2, 2), x[:1].reshape(1, 1, 1, 1, 1), (1, 1, 1), "SAME")
        return lax.erf(y) + half.astype(jnp.float32) + (half * half).sum(), volume

    found = mpsref_jax.audit(function, normal(8), np.ones(8, np.float16), gradient=False)
    listed = {name: count for _, name, count in found.others}
    assert {"scan of float32", "erf of float32", "mul of float16"} <= {*listed} | {"scan of float32"}
    assert any(name.startswith(("scan", "while")) for name in listed)
    (row,) = rows_of(found, "conv_general_dilated")
    assert row.status == "not compared"
    assert row.reasons == ("convolution over 3 axes",)


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


def test_wrong_rules_of_differentiation_are_those_of_the_user() -> None:
    """What a custom rule and a checkpoint compute is compared, equation by equation."""

    @jax.custom_vjp
    def exp(x: Any) -> Any:
        return jnp.exp(x)

    exp.defvjp(lambda x: (jnp.exp(x), x), lambda x, g: (g * jnp.tanh(x),))
    found = mpsref_jax.audit(jax.checkpoint(lambda x: exp(x).sum()), normal(5))
    assert found.ok
    assert {"exp", "tanh"} <= {row.function for row in found.rows}


def test_gradients_that_are_0_everywhere_are_not_compared() -> None:
    found = mpsref_jax.audit(
        lambda x, w, gain: (gain * (x @ w)).sum(), normal(4, 5), normal(5, 3), np.zeros(3, np.float32)
    )
    rows = rows_of(found, "dot_general")
    assert [(row.function, row.status) for row in rows if row.status != "right"] == [
        ("dot_general (gradient)", "not compared")
    ] * 2
    assert {reason for row in rows for reason in row.reasons} == {"gradient: 0 everywhere"}
    assert not found.complete


def test_integers_have_no_gradient() -> None:
    found = mpsref_jax.audit(lambda table, k: table[k] * 2, normal(5, 3), np.array([1, 2]))
    assert found.ok
    assert rows_of(found, "mul")


@pytest.mark.skipif(jax.__version__ != "0.10.2", reason="seen in JAX 0.10.2")
def test_the_defect_of_negative_padding_is_named() -> None:
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
