"""Kernels of mpsref as differentiable functions of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
import mpsref_torch
from mpsref.errors import ShapeError, UnsupportedError

pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")

import torch
from torch.autograd import gradcheck

import mpsref_torch.differentiable
from tests.subjects.derivatives import CASES as SUBJECTS
from tests.subjects.derivatives import IMAGE, Shapes

OTHERS: list[tuple[Any, Shapes, dict[str, Any]]] = [
    (mpsref.Convolution(3, dilations=2), [IMAGE, (2, 3, 3, 5)], {}),
    (mpsref.Convolution(2, neuron=mpsref.Neuron("tanh")), [IMAGE, (2, 2, 2, 5), (2,)], {}),
    (mpsref.ConvolutionTranspose((3, 2), 2, groups=2), [(2, 2, 3, 4), (4, 3, 2, 3), (6,)], {}),
    (mpsref.ConvolutionTranspose(2, 2, neuron=mpsref.Neuron("sigmoid")), [IMAGE, (5, 2, 2, 3), (3,)], {}),
]
"""Neurons, no biases, and weights in the order of PyTorch, with the input channels first."""
FIRST = {(type(spec), len(shapes), *options): (spec, shapes, options) for spec, shapes, options in reversed(SUBJECTS)}
CASES = [*(case for case in FIRST.values() if not isinstance(case[0], mpsref.ConvolutionTranspose)), *OTHERS]
"""A subject of each kind, with and without parameters."""


def tensors(shapes: Shapes, dtype: Any = None) -> list[Any]:
    """Return random tensors; images and weights, whose channels come last in the shapes, have them second."""
    generator = torch.Generator().manual_seed(2)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    drawn = [one.permute(0, 3, 1, 2).contiguous() if one.dim() == 4 else one for one in drawn]
    return [one.to(dtype or torch.float64).requires_grad_() for one in drawn]


def called(spec: Any, backend: str, options: dict[str, Any], inputs: Any) -> Any:
    """Call the function; ``weights`` of a loss are drawn, with zeros."""
    options = options.copy()
    if "weights" in options:
        options["weights"] = (torch.arange(120).reshape(inputs[0].shape) % 3).to(inputs[0].dtype)
    return mpsref_torch.function(spec, backend=backend)(*inputs, **options)


def name_of(case: Any) -> str | None:
    return type(case).__name__ if isinstance(case, mpsref.operations.Spec) else None


@pytest.mark.parametrize(("spec", "shapes", "options"), CASES, ids=name_of)
def test_gradcheck(spec: Any, shapes: Shapes, options: dict[str, Any]) -> None:
    assert gradcheck(
        lambda *inputs: called(spec, "reference", options, inputs), tensors(shapes), atol=1e-6, fast_mode=True
    )


@pytest.mark.parametrize(("spec", "shapes", "options"), CASES, ids=name_of)
def test_the_cpu_backend_agrees_in_float32(spec: Any, shapes: Shapes, options: dict[str, Any]) -> None:
    results = []
    for backend, dtype in (("reference", torch.float64), ("cpu", torch.float32)):
        inputs = tensors(shapes, dtype)
        y = called(spec, backend, options, inputs)
        assert y.dtype == dtype
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
        results.append([y, *torch.autograd.grad(y, inputs, g)])
    for exact, found in zip(*results, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)


def test_every_kernel_with_a_gradient_is_a_function() -> None:
    operations = mpsref.operations.operations()
    with_gradient = {operation.spec_type for operation in operations if operation.method.startswith("gradient")}
    kind_of = mpsref_torch.differentiable.kind_of
    assert {operation.spec_type for operation in operations if kind_of(operation.spec_type)} == with_gradient
    assert {type(spec) for spec, *_ in CASES} == with_gradient


# --- against PyTorch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "shapes", "options", "layer"),
    [
        (
            mpsref.Convolution(3, 2, offset=0, groups=2),
            [(2, 5, 6, 4), (6, 3, 3, 2), (6,)],
            {"output_size": (3, 3)},
            lambda x, w, b: torch.nn.functional.conv2d(x, w, b, 2, 1, groups=2),
        ),
        (
            mpsref.ConvolutionTranspose(3, 2, groups=2, kernel_offset=0),
            [(2, 3, 2, 4), (4, 3, 3, 3), (6,)],
            {"output_size": (5, 3)},
            lambda x, w, b: torch.nn.functional.conv_transpose2d(x, w, b, 2, 1, groups=2),
        ),
        (
            mpsref.BatchNormalization(epsilon=1e-5),
            [IMAGE, (5,), (5,)],
            {},
            lambda x, gamma, beta: torch.nn.functional.batch_norm(x, None, None, gamma, beta, training=True),
        ),
        (
            mpsref.Neuron("prelu", data=[0] * 5),
            [IMAGE, (5,)],
            {},
            lambda x, slopes: torch.nn.functional.prelu(x, slopes),
        ),
        (mpsref.SoftMax(), [IMAGE], {}, lambda x: torch.softmax(x, 1)),
        (
            mpsref.Loss("meansquarederror", "mean", reduce_across_batch=True),
            [IMAGE, IMAGE],
            {},
            torch.nn.functional.mse_loss,
        ),
    ],
    ids=name_of,
)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_layer_of_pytorch(spec: Any, shapes: Shapes, options: Any, layer: Any, memory_format: Any) -> None:
    """Weights, images and gradients are those of PyTorch."""
    inputs = [one.detach() for one in tensors(shapes)]
    inputs[0] = inputs[0].contiguous(memory_format=memory_format)
    found: list[list[Any]] = []
    for compute in (lambda *given: mpsref_torch.function(spec, backend="reference")(*given, **options), layer):
        leaves = [one.clone().requires_grad_() for one in inputs]
        y = compute(*leaves)
        found.append([y.sum(), *torch.autograd.grad((y**2).sum(), leaves)])
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other)


def test_batch_normalization_in_evaluation() -> None:
    x, gamma, beta = tensors([IMAGE, (5,), (5,)])
    mean, variance = torch.randn(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64) + 0.5
    f = mpsref_torch.function(mpsref.BatchNormalization(epsilon=1e-5), backend="reference")
    assert gradcheck(lambda *given: f(*given, mean, variance), (x, gamma, beta))
    expected = torch.nn.functional.batch_norm(x, mean, variance, gamma, beta)
    torch.testing.assert_close(f(x, gamma, beta, mean=mean, variance=variance), expected)
    with pytest.raises(ValueError, match="mean and variance are passed together"):
        f(x, gamma, beta, mean)
    with pytest.raises(UnsupportedError, match=r"mean requires a gradient.*pass mean\.detach\(\)"):
        f(x, gamma, beta, mean.clone().requires_grad_(), variance)


def test_a_layer_of_a_model_is_exchanged() -> None:
    """A wrong layer is found: with its counterpart of mpsref the gradient is another one."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten())
    x = torch.randn(2, 3, 8, 8)

    def gradient() -> Any:
        model.zero_grad()
        model(x).square().sum().backward()
        return model[0].weight.grad.clone()

    expected = gradient()
    model[2].forward = mpsref_torch.function(mpsref.PoolingMax(2, 2, offset=1), backend="cpu")
    torch.testing.assert_close(gradient(), expected)
    model[1].forward = mpsref_torch.function(mpsref.Neuron("relu", a=0.5), backend="cpu")
    assert (gradient() - expected).abs().max() > 0.1


def test_layouts_and_devices_of_tensors() -> None:
    nchw = mpsref_torch.function(mpsref.UpsamplingNearest(2), backend="cpu")
    nhwc = mpsref_torch.function(mpsref.UpsamplingNearest(2), backend="cpu", layout="nhwc")
    x = torch.randn(2, 3, 4, 5)
    y = nchw(x)
    assert y.shape == (2, 3, 8, 10)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(nhwc(x.permute(0, 2, 3, 1)), y.permute(0, 2, 3, 1))
    last = x.contiguous(memory_format=torch.channels_last)
    array = nchw.array(0, "x", last)
    assert array is not None
    assert array.flags.c_contiguous
    assert array.ctypes.data == last.data_ptr()
    half = mpsref_torch.function(mpsref.GroupNormalization(1), backend="cpu")(x.half(), torch.ones(3), torch.zeros(3))
    assert half.dtype == torch.float16


def test_only_wanted_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name in ("gradient_data", "gradient_weights"):
        method = getattr(mpsref.Convolution, name)
        monkeypatch.setattr(
            mpsref.Convolution, name, lambda self, *a, m=method, n=name, **k: (called.append(n), m(self, *a, **k))[1]
        )
    f = mpsref_torch.function(mpsref.Convolution(1), backend="cpu")
    x, w = torch.randn(1, 2, 3, 3), torch.randn(2, 2, 1, 1)
    f(x.requires_grad_(), w).sum().backward()
    assert called == ["gradient_data"]
    assert x.grad is not None
    f(x.detach(), w.requires_grad_()).sum().backward()
    assert called == ["gradient_data", "gradient_weights"]
    assert not f(x.detach(), w.detach()).requires_grad


@pytest.mark.parametrize("spec", [mpsref.SoftMax(), mpsref.Neuron("tanh")], ids=name_of)
def test_backward_after_a_change_in_place_is_refused(spec: Any) -> None:
    (x,) = tensors([IMAGE])
    source = x * 1
    y = mpsref_torch.function(spec, backend="reference")(source)
    (y if isinstance(spec, mpsref.SoftMax) else source).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_there_is_no_second_derivative() -> None:
    (x,) = tensors([IMAGE])
    y = mpsref_torch.function(mpsref.Neuron("tanh"), backend="reference")(x)
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dx.sum().backward()


def test_what_is_refused() -> None:
    pool = mpsref_torch.function(mpsref.PoolingMax(2), backend="cpu")
    with pytest.raises(TypeError, match=r"x is \[1\] of type list; it must be a torch\.Tensor"):
        pool([1])
    with pytest.raises(ShapeError, match=r"x has shape \(2, 3\); images and weights have four axes"):
        pool(torch.ones(2, 3))
    with pytest.raises(TypeError, match="stride is no argument of PoolingMax; it takes x, output_size"):
        pool(torch.ones(1, 1, 2, 2), stride=2)
    with pytest.raises(TypeError, match="Convolution takes x, weights, biases; it got 1 tensors"):
        mpsref_torch.function(mpsref.Convolution(2))(torch.ones(1, 1, 2, 2))
    with pytest.raises(TypeError, match="backend 'cpu' takes float16, float32"):
        pool(torch.ones(1, 1, 2, 2, dtype=torch.float64))
    with pytest.raises(TypeError, match="spec is of type Compare; it must be a kernel with a gradient: Arithmetic"):
        mpsref_torch.function(mpsref.Compare("equal"))
    with pytest.raises(ValueError, match="layout is 'chwn'; it must be one of 'nchw', 'nhwc'"):
        mpsref_torch.function(mpsref.SoftMax(), layout="chwn")
    with pytest.raises(UnsupportedError, match="backend 'metal' is not available"):
        mpsref_torch.function(mpsref.SoftMax(), backend="metal")
    assert repr(pool).endswith("backend='cpu', layout='nchw')")


def test_float16_and_numbers_of_images_of_a_mask() -> None:
    spec = mpsref.Dropout(0.5)
    f = mpsref_torch.function(spec, backend="cpu", layout="nhwc")
    x = torch.ones(2, 4, 5, 3, requires_grad=True)
    y = f(x, sequence=2)
    mask = spec.mask((2, 4, 5, 3), 2, backend="cpu")
    assert np.array_equal(y.detach().numpy(), 2.0 * mask)
    assert torch.equal(f(x, torch.from_numpy(mask)), y)
    y.sum().backward()
    assert np.array_equal(x.grad.numpy(), 2.0 * mask)
