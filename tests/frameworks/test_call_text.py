"""Calls of frameworks as text: the text runs by itself and computes what the backend computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import registry
from mpsref.conformance.case import Case
from mpsref.conformance.runner import compute
from mpsref.frameworks import call_text

CASES = [
    (
        "PoolingAverage.forward:n1h3w7c2,k1x7,clamp,float32,seed=1",
        ("torch", "jax", "onnxruntime", "tinygrad", "tensorflow"),
    ),
    (
        "PoolingMax.gradient:n1h4w4c2,k2x2,s2x2,o1x1,clamp,float32,seed=2",
        ("torch", "jax", "mlx", "tinygrad", "tensorflow"),
    ),
    (
        "Convolution.forward:n1h4w4c2,k3x3,co2,biased,float32,memory=nhwc,seed=3",
        ("torch", "jax", "mlx", "onnxruntime", "tinygrad", "tensorflow"),
    ),
    (
        "Convolution.gradient_weights:n1h4w4c2,k2x2,o1x1,co1,float32,seed=4",
        ("torch", "jax", "mlx", "tinygrad", "tensorflow"),
    ),
    ("SoftMax.gradient:n1h1w2c3,float32,seed=5", ("torch", "jax", "mlx", "tinygrad", "tensorflow")),
    (
        "Neuron.forward:n1h2w2c2,tanh,a2.0,b0.5,float32,seed=6",
        ("torch", "jax", "mlx", "onnxruntime", "tinygrad", "tensorflow"),
    ),
    (
        "Reduce.forward:n1h2w3c2,mean,spatial,float32,seed=7",
        ("torch", "jax", "mlx", "onnxruntime", "tinygrad", "tensorflow"),
    ),
    ("InstanceNormalization.gradient:n1h2w2c2,eps1e-05,float32,memory=nhwc,seed=8", ("torch", "jax", "mlx")),
    ("Dropout.gradient:n1h2w2c2,keep0.5,float32,seed=9", ("torch",)),
    ("StochasticGradientDescent.step:v4,lr0.5,l2,reg0.1,momentum0.5,float32,seed=1", ("torch",)),
    ("RMSProp.step:v5,lr0.1,decay0.5,eps0.1,float32,seed=2", ("torch",)),
    ("Adam.step:v2x3,lr0.5,beta1_0.5,beta2_0.75,eps0.1,amsgrad,t2,float32,seed=3", ("torch",)),
]


def words(backend: str, text: str) -> tuple[list[str], tuple[np.ndarray, ...]]:
    case = Case.parse(text)
    with call_text.noted() as calls:
        results = compute(case.problem, registry.get_backend(backend), *case.inputs())
    return calls, results


@pytest.mark.parametrize(("text", "name"), [(text, name) for text, names in CASES for name in names])
def test_the_text_of_a_call_computes_its_result(text: str, name: str) -> None:
    (reason,) = (info.reason for info in registry.backends() if info.name == name)
    if reason:
        pytest.skip(reason)
    calls, results = words(name, text)
    found: list[float] = []
    for call in dict.fromkeys(calls):
        *lines, last = call.splitlines()
        given: dict[str, Any] = {}
        exec("\n".join(lines), given)
        value = eval(last, given)
        for one in value if isinstance(value, tuple | list) else [value]:
            one = one.detach() if hasattr(one, "detach") else one
            found += np.asarray(one.numpy() if hasattr(one, "numpy") else one).ravel().tolist()
    # Of layers that crop a result, or have more gradients, there are more numbers; the axes have another order.
    everything = np.array(found)
    for result in results:
        for value in result.ravel():
            assert np.isclose(everything, value, rtol=1e-5, atol=1e-6).any(), (last, value)


def test_a_call_has_the_words_and_the_values_of_the_case() -> None:
    pytest.importorskip("torch")
    calls, _ = words("torch", "PoolingAverage.forward:n1h1w3c1,k1x3,clamp,float32,exact,seed=0")
    assert calls == [
        "import torch\nimport torch.nn.functional as F\nx = torch.tensor([[[[1.0, 2.0, 3.0]]]])\n"
        "F.avg_pool2d(x, kernel_size=(1, 3), stride=(1, 1), padding=(0, 1), count_include_pad=False, "
        "divisor_override=None, ceil_mode=False)"
    ]


def test_outside_of_a_note_nothing_is_named() -> None:
    assert call_text.named("numpy", np) is np
    with call_text.noted():
        assert isinstance(call_text.named("numpy", np).abs, call_text.Named)
        assert call_text.named("numpy", np).abs(-2) == 2


def test_expressions() -> None:
    x, y = call_text.Expression("x"), call_text.Expression("y")
    given = {"x": np.arange(6.0).reshape(2, 3) + 1, "y": np.full((2, 3), 3.0)}
    for one, right in [
        ((1 - x) * 2 / (x + y), (1 - given["x"]) * 2 / (given["x"] + given["y"])),
        ((-x)[:, 1:].sum(1), (-given["x"])[:, 1:].sum(1)),
        (np.array([1.0, 2, 3]) * x, np.array([1.0, 2, 3]) * given["x"]),
        (x @ y.T >= float("-inf"), given["x"] @ given["y"].T >= -np.inf),
        (x**2 - (y - x), given["x"] ** 2 - (given["y"] - given["x"])),
    ]:
        text = call_text._text(one)
        assert np.array_equal(eval(text, {"np": np, **given}), right), text
    with pytest.raises(TypeError):
        bool(x)
    with pytest.raises(TypeError):
        tuple(x)
