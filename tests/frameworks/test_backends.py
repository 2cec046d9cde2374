"""Frameworks as backends: what each computes as the reference does, refuses, and gets wrong, in rows of cases."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import Backend, registry
from mpsref.bugs.known import without_defects
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.checker import check_operation
from mpsref.conformance.runner import run_case


def rows(text: str) -> list[tuple[str, str]]:
    """Return a row for each word of lines such as ``jax: a b``."""
    lines = (line.strip().partition(": ") for line in text.strip().splitlines())
    return [(name, word) for name, _, words in lines for word in words.split()]


def backend_of(name: str, **changes: Any) -> Backend:
    """Return a backend whose framework is installed, in this process, where frameworks have computed before."""
    backend = registry.get_backend(name)
    if reason := backend.unavailable():
        pytest.skip(reason)
    return replace(backend, isolated=False, **changes)


# --- what agrees ------------------------------------------------------------------------------------------------------

ENDS_THE_PROCESS = ("mlx LogSoftMax.forward", "tensorflow Convolution.gradient_weights")
"""The scripts mlx_log_softmax.py and tensorflow_conv2d_gradient.py show it."""

ALL = [
    pytest.param(name, str(operation), marks=pytest.mark.filterwarnings("ignore") if name == "tensorflow" else [])
    for name in ("mlx", "tensorflow")
    for operation in registry.get_backend(name).implementations
    if f"{name} {operation}" not in ENDS_THE_PROCESS
]

# Of each way to call it one: .ci/frameworks checks all operations of jax and onnxruntime; tinygrad compiles each shape.
SOME = rows("""
    jax: BatchNormalization.statistics_gradient Loss.gradient Neuron.parameter_gradient SoftMax.gradient
    onnxruntime: Compare.forward Convolution.forward CrossChannelNormalization.forward Pad.forward
    onnxruntime: PoolingL2Norm.forward Slice.forward
    tinygrad: Arithmetic.gradient Convolution.gradient_weights FullyConnected.forward Neuron.gradient
    tinygrad: PoolingAverage.gradient SoftMax.gradient
""")


@pytest.mark.parametrize(("name", "operation"), ALL)
def test_every_operation(name: str, operation: str) -> None:
    backend = backend_of(name, distinct_problems=2)
    (row,) = check_operation(operation_named(operation), [without_defects(backend)], 8)
    assert row.status in ("passed", "partial", "unsupported"), row.failures[-1]
    assert row.status == "passed" or row.reason


@pytest.mark.parametrize(("name", "operation"), SOME)
def test_some_operations(name: str, operation: str) -> None:
    backend = backend_of(name) if name == "onnxruntime" else backend_of(name, distinct_problems=1)
    (row,) = check_operation(operation_named(operation), [backend], 12 if name == "onnxruntime" else 5)
    assert row.status == "passed", (row.reason, row.failures)


AGREE = rows("""
    jax: PoolingMax.gradient:n1h4w4c1,k2x2,s1x1,o1x1,g3x3,float32,hard,seed=7
    jax: PoolingMax.gradient:n2h5w4c3,k2x3,s2x1,o-1x3,g4x3,float32,seed=3
    jax: PoolingAverage.gradient:n2h5w5c2,k3x2,s2x2,clamp,zp1x0,g3x3,p0x-1,ko1x0,float32,seed=1
    jax: PoolingMax.forward:n1h6w7c2,k3x2,s2x1,clamp,float32,seed=1
    jax: PoolingAverage.forward:n1h6w7c2,k3x2,s2x1,clamp,float32,seed=1
    jax: Convolution.forward:n2h6w7c4,k3x2,s2x1,groups2,co6,float32,seed=5
    jax: ConvolutionTranspose.forward:n1h3w4c2,k3x3,s2x3,co3,out5x12,float32,seed=4
    jax: PoolingL2Norm.gradient:n1h4w4c2,k3x3,clamp,float32,exact,seed=0
    jax: PoolingMax.forward:n1h7w6c2,k2x3,s2x1,o3x3,clamp,out2x2,float32,exact,seed=1
    jax: PoolingAverage.gradient:n1h7w6c2,k2x3,s2x1,o3x3,g2x2,float32,exact,seed=1
    jax: Convolution.gradient_weights:n2h7w6c4,k3x2,s2x1,d1x2,groups2,co6,float32,seed=5
    jax: ConvolutionTranspose.gradient_data:n1h3w4c2,k3x3,s2x3,co3,g7x11,float32,seed=4
    jax: Loss.gradient:n2h2w3c2,huber,mean,across,chained,float32,seed=6
    jax: Loss.gradient:n2h1w2c3,softmaxcrossentropy,sum,float32,seed=3
    jax: Loss.forward:n2h1w2c3,softmaxcrossentropy,mean,weighted,float32,seed=3
    jax: FullyConnected.forward:n2h1w3c3,k1x3,neuron:prelu:data1.5_0.25,co2,float32,seed=1
    jax: GroupNormalization.gradient:n3h2w2c4,scaled,g2,eps1e-05,float32,seed=2
    onnxruntime: FullyConnected.forward:n2h1w3c3,k1x3,neuron:prelu:data1.5_0.25,co2,float32,seed=1
    onnxruntime: ConvolutionTranspose.forward:n1h9w6c2,k2x1,s1x2,o2x1,ko1x7,co7,out1x3,biased,float32,exact,seed=5
    onnxruntime: PoolingAverage.forward:n1h5w6c2,k3x2,s2x2,o3x2,clamp,zp1x0,float32,seed=2
    onnxruntime: ConvolutionTranspose.forward:n1h4w5c2,k3x5,co3,float32,seed=1
    onnxruntime: PoolingAverage.forward:n1h6w6c2,k3x3,s2x2,clamp,float32,seed=2
    onnxruntime: PoolingAverage.forward:n1h6w6c2,k3x3,clamp,zp1x1,float32,seed=2
    onnxruntime: BatchNormalization.statistics:n2h2w3c2,count4,float32,seed=3
    onnxruntime: Slice.forward:n1h2w2c2,size2x2x2,o5x0x0,float32,seed=4
    tensorflow: Convolution.gradient_weights:n2h5w4c2,k3x3,co3,float32,seed=1
    tensorflow: Convolution.gradient_weights:n1h5w6c4,k3x2,s2x1,co4,groups2,float32,seed=1
    tensorflow: Convolution.gradient_weights:n1h7w7c2,k3x3,d2x2,co2,float32,seed=1
    tensorflow: UpsamplingBilinear.forward:n1h32w32c5,s2x2,aligned,float32,seed=358
""")
"""Windows before the image and behind it, padded images, slopes of a matrix, labels of any sum, a row an image."""


@pytest.mark.parametrize(("name", "case"), AGREE)
def test_cases(name: str, case: str) -> None:
    outcome = run_case(Case.parse(case), backend_of(name))
    assert outcome.status == "passed" or (outcome.status == "mistrusted" and "Slice" in case), outcome.message


def test_transposed_images_of_mlx() -> None:
    backend = backend_of("mlx", distinct_problems=2)
    import mpsref_mlx

    x = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4).transpose(0, 2, 3, 1)
    (tensor,) = [mpsref_mlx.mlx.tensor(x)]
    assert tensor.shape == x.shape
    np.testing.assert_array_equal(mpsref_mlx.mlx.array(tensor), x)
    (row,) = check_operation(operation_named("PoolingMax.gradient"), [backend], 8)
    assert row.status == "passed", row.failures


# --- what does not ----------------------------------------------------------------------------------------------------

DEFECTS = rows("""
    mlx 0.32.4: ConvolutionTranspose.gradient_data:n1h1w1c1,k1x1,s1x2,co1,g1x2,float32,exact,seed=0
    mlx 0.32.4: ConvolutionTranspose.gradient_weights:n1h1w1c1,k1x1,s1x3,ko0x1,co1,float32,exact,seed=0
    mlx 0.32.4: Neuron.gradient:n1h4w4c1,prelu,data2.0,float32,exact,seed=0
    tensorflow 2.21.0: SoftMax.forward:n1h1w1c2,float32,nonfinite,seed=0
    tinygrad 0.14.0: Compare.forward:n1h1w1c2,float32,nonfinite,seed=0
    tinygrad 0.14.0: UpsamplingBilinear.forward:n1h1w1c1,s1x1,aligned,float32,seed=1
""")
"""Cases that fail in this version; :mod:`mpsref.bugs.findings` has a script for each defect."""


@pytest.mark.parametrize(("release", "case"), DEFECTS)
def test_defects(release: str, case: str) -> None:
    name, _, version = release.partition(" ")
    outcome = run_case(Case.parse(case), backend_of(name, distinct_problems=2))
    assert outcome.status == ("failed" if metadata.version(name) == version else "passed"), outcome.message


LACKING = [
    ("mlx", mpsref.PoolingMax(2, dilations=2), "the dilation is"),
    ("mlx", mpsref.Neuron("relu", a=2), "maximum of x and a"),
    ("mlx", mpsref.UpsamplingBilinear(2), "half a pixel"),
    ("onnxruntime", mpsref.CrossChannelNormalization(4), "LRN of ONNX Runtime takes an odd one"),
    ("onnxruntime", mpsref.CrossChannelNormalization(3, alpha=0), "alpha_ > 0"),
    ("tensorflow", mpsref.PoolingMax(2, dilations=2), "dilations is"),
    ("tensorflow", mpsref.Neuron("prelu", data=(0.5,)), "no neuron 'prelu'"),
    ("tensorflow", mpsref.UpsamplingBilinear(2), "half a pixel"),
    ("tensorflow", mpsref.CrossChannelNormalization(kernel_size=4), "odd number of channels"),
    ("tensorflow", mpsref.Reduce("argumentmax", "featurechannels"), "do not promise which"),
    ("tinygrad", mpsref.UpsamplingBilinear(2), "half a pixel"),
    ("tinygrad", mpsref.Neuron("prelu", data=(0.5,)), "no neuron 'prelu'"),
]


@pytest.mark.parametrize(("name", "spec", "words"), LACKING, ids=str)
def test_what_a_framework_lacks_is_unsupported_with_a_reason(name: str, spec: Any, words: str) -> None:
    with pytest.raises(mpsref.UnsupportedError, match=words):
        spec.forward(np.ones((1, 4, 4, 1), np.float32), backend=backend_of(name))


UNSUPPORTED = [
    ("jax", "BatchNormalization.gradient:n1h2w2c1,count4,float32,seed=1", "it takes none"),
    ("jax", "PoolingMax.gradient:n1h5w6c2,k2x2,d2x2,g3x4,float32,seed=2", "VJP not implemented for select_and_gather"),
    ("jax", "Adam.step", ""),
    ("jax", "RMSProp.step", ""),
    ("jax", "StochasticGradientDescent.step", ""),
    ("jax", "Dropout.mask", ""),
    ("onnxruntime", "PoolingMax.gradient", ""),
    ("torch", "Dropout.mask", "draws its mask itself"),
    ("torch", "SpatialNormalization.forward", "does not implement"),
]


@pytest.mark.parametrize(("name", "case", "reason"), UNSUPPORTED)
def test_unsupported_operations_and_cases_have_a_reason(name: str, case: str, reason: str) -> None:
    backend = backend_of(name)
    if ":" in case:
        outcome = run_case(Case.parse(case), backend)
        status, said = outcome.status, outcome.message
    else:
        (row,) = check_operation(operation_named(case), [backend], 1)
        status, said = row.status, row.reason
    assert status == "unsupported"
    assert said
    assert reason in said


MISSING = [
    ("torch", "torch", "PyTorch", "torch"),
    ("torch:compile", "torch", "PyTorch", "torch"),
    ("torch:mps", "torch", "PyTorch", "torch"),
    ("jax", "jax", "JAX", "jax"),
    ("onnxruntime", "onnx", "onnx", "onnxruntime"),
    ("onnxruntime", "onnxruntime", "onnxruntime", "onnxruntime"),
    ("mlx", "mlx", "MLX", "mlx"),
    ("tensorflow", "tensorflow", "TensorFlow", "tensorflow"),
    ("tinygrad", "tinygrad", "tinygrad", "tinygrad"),
]


@pytest.mark.parametrize(("name", "package", "title", "extra"), MISSING)
def test_a_framework_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, title: str, extra: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.partition(".")[0] == package else name)
    reason = registry.get_backend(name).unavailable()
    assert reason == f'{title} is not installed: pip install -e ".[{extra}]"'


def test_tinygrad_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CC", "clang-99")
    assert "tinygrad compiles with 'clang-99', which is not installed" in str(
        registry.get_backend("tinygrad").unavailable()
    )
