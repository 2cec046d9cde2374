"""The audit of a PyTorch model: it is silent about right layers and names wrong ones."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import mpsref_torch
from mpsref import BatchNormalization, frameworks
from mpsref.bugs import BUGS, Bug
from mpsref.cli import app
from mpsref.conformance.audit import Audit, Check, Computed, Row, Step
from mpsref.conformance.case import Case
from mpsref.conformance.rounded import Rounded
from mpsref.conformance.runner import run_case
from mpsref_torch import audit

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")

nn, F = torch.nn, torch.nn.functional
VERSION = str(torch.__version__).partition("+")[0]
LAYOUTS = (torch.contiguous_format, torch.channels_last)
layouts = pytest.mark.parametrize("layout", LAYOUTS, ids=["contiguous", "channels_last"])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small layers are slower on several threads if other tests run at the same time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def images(*shape: int, layout: Any = torch.contiguous_format) -> Any:
    torch.manual_seed(0)
    return torch.randn(shape).contiguous(memory_format=layout)


def names(report: Any) -> list[str]:
    return [row.function for row in report.rows]


def compared(row: Any) -> list[str]:
    return [what for what, _ in row.compared]


# --- right layers -----------------------------------------------------------------------------------------------------


def every_layer() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.ConvTranspose2d(8, 6, (3, 2), 2, 1, 1),
        nn.InstanceNorm2d(6, affine=True),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Upsample(scale_factor=2),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        nn.GroupNorm(2, 6),
        nn.Conv2d(6, 12, 3, groups=3, dilation=2, padding="same", bias=False),
        nn.PReLU(12),
        nn.LocalResponseNorm(3),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        nn.MaxPool2d(2, 2, dilation=2, padding=1),
        nn.LPPool2d(2, 2),
        nn.Softmax(1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 5),
        nn.Dropout(0.3),
        nn.Softplus(),
        nn.LayerNorm(5),
        nn.Hardsigmoid(),
    )


@layouts
@pytest.mark.parametrize("training", [True, False])
def test_right_layers_are_right(layout: Any, training: bool) -> None:
    model = every_layer().to(memory_format=layout).train(training)
    x, target = images(2, 3, 33, 29, layout=layout), torch.tensor([1, 2])
    report = audit(model, F.cross_entropy, (x, target))
    assert report.ok, str(report)
    assert [row.layer for row in report.rows[:-1]] == [str(k) for k in range(24) if k != 18]
    assert report.rows[-1].function == "cross_entropy"
    assert not [row for row in report.rows if row.reasons]
    assert compared(report.rows[0]) == ["result", "gradient for weight", "gradient for bias"]  # x needs no gradient
    assert compared(report.rows[4]) == ["result", "gradient for x", "gradient for weight", "gradient for bias"]
    assert all(
        compared(row)[:2] == ["result", "gradient for x"] for row in report.rows[1:] if row.layer != "20" or training
    )
    for row in report.rows[:-1]:
        parameters = {f"gradient for {name}" for name, _ in model[int(row.layer)].named_parameters()}
        assert parameters <= set(compared(row)), row
    assert not report.others
    assert report.complete


class Functional(nn.Module):  # type: ignore[misc]
    """Functions, a module that is used twice, shared parameters, a frozen one, a detached branch, operands."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.tied = nn.Conv2d(4, 4, 3, padding=1)
        self.tied.weight = self.conv.weight
        self.frozen = nn.BatchNorm2d(4).requires_grad_(False)

    def forward(self, x: Any) -> Any:
        x = self.conv(self.conv(x))
        x = torch.relu(x) + F.relu(self.tied(x))
        x = x * self.frozen(x).sigmoid()
        aside = F.max_pool2d(x.detach(), 2)
        x = F.interpolate(F.avg_pool2d(x, 2), scale_factor=2, mode="nearest")
        with torch.no_grad():
            aside = torch.tanh(aside)
        return F.conv2d(x, self.conv.weight), F.silu(x), aside


def test_functions_repeated_uses_and_frozen_parameters() -> None:
    report = audit(Functional(), None, images(2, 4, 12, 10))
    assert report.ok, str(report)
    found = [(row.layer.split()[0], row.function) for row in report.rows]
    assert found.count(("conv", "conv2d")) == 2
    assert [row.reasons for row in report.rows if row.function in ("max_pool2d", "tanh")] == [
        ("no gradient: the result does not require one",)
    ] * 2
    (batch,) = [row for row in report.rows if row.layer == "frozen"]
    assert compared(batch) == ["result", "gradient for x"]
    assert all("test_audit.py:" in row.layer for row in report.rows if row.function in ("avg_pool2d", "add", "mul"))
    assert not report.others


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # with one pixel more on one side
@pytest.mark.parametrize(
    "module",
    [
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AvgPool2d((2, 3), divisor_override=6),
        nn.MaxPool2d(3, 2, 1, dilation=2),
        nn.LPPool2d(2, 3, 2),
        nn.Conv2d(4, 6, (3, 2), padding="same", dilation=(2, 3), groups=2),
    ],
    ids=str,
)
def test_the_paddings_of_windows(module: Any) -> None:
    report = audit(module, None, images(2, 4, 8, 9).requires_grad_())
    assert report.ok, str(report)
    assert "gradient for x" in dict(report.rows[0].compared)


def test_layers_of_one_axis() -> None:
    layers = nn.Conv1d(3, 4, 3), nn.AvgPool1d(2), nn.ConvTranspose1d(4, 3, 4, 2), nn.MaxPool1d(3, 2), nn.Conv1d(3, 2, 1)
    report = audit(nn.Sequential(*layers), None, images(2, 3, 30))
    assert report.ok, str(report)
    assert not [row for row in report.rows if row.reasons]
    assert compared(report.rows[2]) == ["result", "gradient for x", "gradient for weight", "gradient for bias"]


def test_dropout_in_evaluation_returns_its_input() -> None:
    layers = nn.Conv2d(2, 3, 1), nn.Dropout(0.5), nn.Dropout(0.5, inplace=True), nn.ReLU(inplace=True)
    report = audit(nn.Sequential(*layers).eval(), None, images(2, 2, 4, 4))
    assert report.ok
    assert [compared(row) for row in report.rows[1:]] == [["result"], ["result"], ["result", "gradient for x"]]
    assert not [row.reasons for row in report.rows if row.reasons]


@pytest.mark.parametrize("dropout", [nn.Dropout(0.5), nn.Dropout2d(0.5)], ids=str)
def test_dropout_of_zeros_shows_its_mask_in_the_gradient(dropout: Any) -> None:
    report = audit(nn.Sequential(nn.Conv2d(2, 8, 1), nn.ReLU(), dropout), None, images(2, 2, 6, 6))
    assert report.ok, str(report)
    assert compared(report.rows[2]) == ["result", "gradient for x"]


def test_gradients_and_buffers_of_the_model_are_kept() -> None:
    model = every_layer()
    model[0].weight.grad = kept = torch.ones_like(model[0].weight)
    x, mean, state = images(2, 3, 33, 29), model[1].running_mean.clone(), torch.random.get_rng_state()
    audit(model, None, x)
    assert model[0].weight.grad is kept
    assert model[4].weight.grad is None
    assert torch.equal(model[1].running_mean, mean)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not model[0]._forward_hooks


LOSSES: dict[str, tuple[Callable[..., Any], Any]] = {
    "mse": (F.mse_loss, torch.randn(4, 5)),
    "l1 sum": (lambda y, t: F.l1_loss(y, t, reduction="sum"), torch.randn(4, 5)),
    "huber": (lambda y, t: F.huber_loss(y, t, delta=0.5), torch.randn(4, 5)),
    "smooth l1": (lambda y, t: F.smooth_l1_loss(y, t, beta=0.5), torch.randn(4, 5)),
    "none": (lambda y, t: F.mse_loss(y, t, reduction="none").sum(), torch.randn(4, 5)),
    "logits": (F.binary_cross_entropy_with_logits, torch.rand(4, 5)),
    "labels": (F.cross_entropy, torch.tensor([0, 4, 2, 2])),
    "ignored": (lambda y, t: F.cross_entropy(y, t, ignore_index=2), torch.tensor([0, 4, 2, 2])),
    "weights": (lambda y, t: F.cross_entropy(y, t, weight=torch.arange(1.0, 6)), torch.tensor([0, 4, 2, 2])),
    "smoothed": (lambda y, t: F.cross_entropy(y, t, label_smoothing=0.1), torch.tensor([0, 4, 2, 2])),
    "probabilities": (F.cross_entropy, torch.softmax(torch.randn(4, 5), 1)),
    "nll": (lambda y, t: F.nll_loss(F.log_softmax(y, 1), t), torch.tensor([0, 4, 2, 2])),
    "kl": (lambda y, t: F.kl_div(F.log_softmax(y, 1), t, reduction="sum"), torch.softmax(torch.randn(4, 5), 1)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    loss, target = LOSSES[name]
    report = audit(nn.Linear(7, 5), loss, (images(4, 7), target))
    assert report.ok, str(report)
    assert not [row.reasons for row in report.rows if row.reasons]
    assert report.rows[-1].function.endswith(("_loss", "cross_entropy", "_div", "_with_logits"))
    assert compared(report.rows[-1]) == ["result", "gradient for x"]


def test_what_no_gradient_reads_is_not_kept() -> None:
    from mpsref_torch.auditing.functions import KNOWN
    from mpsref_torch.auditing.sampled import Draw

    x = images(2, 4, 3, 3)
    for function, arguments, read in (
        (F.group_norm, (2,), {"x"}),
        (F.softmax, (1,), {"y"}),
        (F.dropout, (0.5,), {"mask"}),
    ):
        for wanted, kept in ((frozenset(), set()), (frozenset("x"), read)):
            layer: Any = KNOWN[function].translate(x, *arguments)
            layer.result(function(x, *arguments), wanted, Draw(0))
            assert layer.values.keys() == kept


def test_large_layers_are_compared_in_part() -> None:
    model = nn.Sequential(nn.Conv2d(3, 40, 5, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.BatchNorm2d(40))
    report = audit(model, None, images(3, 3, 150, 130))
    assert report.ok, str(report)


def test_adaptive_means_of_windows_of_several_sizes() -> None:
    """Right ones, and a gradient that divides by the size of the largest window (PaddlePaddle/Paddle#74077)."""

    class Largest(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.shape = x.shape
            return F.adaptive_avg_pool2d(x, (3, 4))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x = torch.zeros(ctx.shape, requires_grad=True)
            counts = 3 * torch.tensor([2, 3, 2])[:, None]
            with torch.enable_grad():
                y = F.adaptive_avg_pool2d(x, (3, 4))
            return torch.autograd.grad(y, x, g * counts / 9)[0]

    class Wrong(nn.AdaptiveAvgPool2d):
        def forward(self, x: Any) -> Any:
            return Largest.apply(x)

    x = images(2, 3, 5, 9)
    for layout in LAYOUTS:
        report = audit(
            nn.Sequential(nn.Conv2d(3, 3, 1), nn.AdaptiveAvgPool2d((3, 4))), None, x.to(memory_format=layout)
        )
        assert report.ok, str(report)
        assert compared(report.rows[1]) == ["result", "gradient for x"]
    report = audit(nn.Sequential(nn.Conv2d(3, 3, 1), Wrong((3, 4))), None, x)
    assert [row.function for row in report.wrong] == ["Wrong"]
    assert report.wrong[0].message.startswith("gradient for x")


def test_what_is_not_compared_is_listed() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.LPPool2d(4, 2), nn.Mish(), nn.Conv3d(3, 2, 1))
    report = audit(model[:3], None, images(2, 2, 9, 9))
    assert report.ok
    assert report.rows[1].status == "not compared"
    assert "norm_type is 4.0; MPS has the L2 norm" in report.rows[1].reasons[0]
    assert ("2", "mish", 1) in report.others
    assert not report.complete
    text = str(report)
    assert "1 (lp_pool2d): norm_type is 4.0" in text
    assert "mish: 1 in 2" in text
    assert text.endswith("1 right, 0 wrong, 1 not compared; 1 calls of functions that mpsref does not have"), text
    nothing = audit(nn.Mish(), None, images(2, 2, 9, 9))
    assert not nothing.ok


def test_sums_of_products_that_underflow_are_right() -> None:
    model = nn.Linear(96, 8, bias=False)
    nn.init.normal_(model.weight, std=1e-4)
    report = audit(model, None, images(64, 96) * 2.0**-139)
    assert report.ok, str(report)
    assert "flushes subnormals" in report.rules


def test_infinities_are_no_wrong_results() -> None:
    x = images(2, 2, 9, 9)
    x[0, 0, 4, 4] = torch.inf
    report = audit(nn.Sequential(nn.ReLU(), nn.Conv2d(2, 3, 3)), None, x)
    assert not report.wrong
    assert "NaN or infinities" in str(report)


@functools.cache
def torchvision_models() -> Any:
    """Return torchvision.models; a wheel for CUDA lacks its own operators on a CPU, which networks do not use."""
    try:
        return importlib.import_module("torchvision.models")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        models = importlib.import_module("torchvision.models")
        models.operators = library  # they exist as long as it
        return models


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
@pytest.mark.filterwarnings("ignore")  # of torchvision about itself
@pytest.mark.parametrize(
    ("name", "layout", "training"),
    [
        ("squeezenet1_1", LAYOUTS[0], True),
        ("resnet18", LAYOUTS[1], False),
    ],
)
def test_networks_of_torchvision_are_right(name: str, layout: Any, training: bool) -> None:
    torch.manual_seed(1)
    model = torchvision_models().get_model(name, weights=None).train(training).to(memory_format=layout)
    report = audit(model, None, images(2, 3, 48, 48, layout=layout))
    assert report.ok, str(report)
    assert len(report.rows) > 40


# --- wrong layers: PyTorch itself -------------------------------------------------------------------------------------


class Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, channels: int) -> None:
        super().__init__()
        c = channels
        first = nn.ReflectionPad2d(1), nn.Conv2d(c, c, 3), nn.InstanceNorm2d(c), nn.ReLU(True)
        self.body = nn.Sequential(*first, nn.ReflectionPad2d(1), nn.Conv2d(c, c, 3), nn.InstanceNorm2d(c))

    def forward(self, x: Any) -> Any:
        return x + self.body(x)


def generator(width: int = 8, blocks: int = 2) -> Any:
    """A generator like that of CycleGAN."""
    w = width
    down = [nn.Conv2d(w, 2 * w, 3, 2, 1), nn.InstanceNorm2d(2 * w), nn.ReLU(True)]
    up = [nn.ConvTranspose2d(2 * w, w, 3, 2, 1, 1), nn.InstanceNorm2d(w), nn.ReLU(True)]
    first = [nn.ReflectionPad2d(3), nn.Conv2d(3, w, 7), nn.InstanceNorm2d(w), nn.ReLU(True)]
    last = [nn.ReflectionPad2d(3), nn.Conv2d(w, 3, 7), nn.Tanh()]
    return nn.Sequential(*first, *down, *(Residual(2 * w) for _ in range(blocks)), *up, *last)


@pytest.mark.skipif(VERSION != "2.13.0", reason="seen in PyTorch 2.13.0")
def test_instance_normalization_of_one_channels_last_image_is_named() -> None:
    model, x = generator().to(memory_format=torch.channels_last), images(1, 3, 32, 32, layout=torch.channels_last)
    report = audit(model, None, x)
    assert [(row.layer, row.function) for row in report.wrong] == [
        ("7.body.6", "instance_norm"),
        ("8.body.6", "instance_norm"),
    ]
    for row in report.wrong:
        assert dict(row.layouts)["g"] == "nhwc"
        assert row.replay == f"mpsref replay '{row.case}' --backend torch"
        case = Case.parse(row.case)
        assert case.problem.source_shape == (1, 1, 2, 2)  # type: ignore[attr-defined]
        assert run_case(case, mpsref_torch.backend).status == "failed"
    assert report.wrong[0].case in str(report)
    contiguous = audit(generator(), None, images(1, 3, 32, 32))
    assert contiguous.ok, str(contiguous)


# --- wrong layers: the plants of the bug bench ------------------------------------------------------------------------


def nhwc(tensor: Any) -> Any:
    """Return the array of a tensor, on its memory."""
    return tensor.detach().permute(0, 2, 3, 1).numpy()


def nchw(array: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array.transpose(0, 3, 1, 2)))


class Planted(torch.autograd.Function):  # type: ignore[misc]
    """Runs the operations of a layer on the reference, and one of them with a defect."""

    @staticmethod
    def forward(ctx: Any, bug: Bug, module: Any, layer: Any, forward: Any, x: Any, *parameters: Any) -> Any:
        ctx.given = bug, module, layer
        ctx.save_for_backward(x, *parameters)
        with torch.no_grad():
            y = forward(x)
        if hasattr(layer, "y_shape"):
            layer.y_shape = tuple(y.shape)
        if bug.operation.method != "forward":
            return y
        given = [one.detach().numpy() for one in parameters]
        if isinstance(module, nn.modules.conv._ConvNd):
            given[0] = weights_of(module, parameters)
        return nchw(run(bug, layer.whole("forward"), nhwc(x), *given)[0])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (bug, module, layer), (x, *parameters) = ctx.given, ctx.saved_tensors
        found = gradients(bug, module, layer, nhwc(grad_outputs[0]), nhwc(x), parameters)
        return (None, None, None, None, *found)


def run(bug: Bug, problem: Any, *inputs: Any) -> tuple[Any, ...]:
    """Run a problem, with the defect if it is in this operation; what is not written is 1."""
    out = tuple(np.ones(shape, np.float32) for shape in problem.result_shapes)
    if problem.operation == bug.operation:
        bug.run(problem, *inputs, out=out if len(out) > 1 else out[0])
        return out
    found = problem.operation.formula(problem, *(one.astype(np.float64) for one in inputs))
    return tuple(one.astype(np.float32) for one in (found if isinstance(found, tuple) else (found,)))


def weights_of(module: Any, parameters: Any) -> Any:
    transposed = isinstance(module, nn.ConvTranspose2d)
    return frameworks.weights_from(parameters[0].detach().numpy(), "OIHW", module.groups, transposed)


def gradients(bug: Bug, module: Any, layer: Any, g: Any, x: Any, parameters: Any) -> tuple[Any, ...]:
    if isinstance(module, nn.modules.conv._ConvNd):
        (dx,) = run(bug, layer.whole("gradient_data"), g, weights_of(module, parameters))
        dw, db = run(bug, layer.whole("gradient_weights"), g, x)
        dw = frameworks.weights_to(dw, "OIHW", module.groups, isinstance(module, nn.ConvTranspose2d))
        return nchw(dx), torch.from_numpy(np.ascontiguousarray(dw)), torch.from_numpy(db)
    if isinstance(module, nn.BatchNorm2d):
        spec, gamma = BatchNormalization(module.eps), parameters[0].detach().numpy()
        n, *_ = seen = spec.statistics(x, backend="reference")
        given = g, x, seen.mean, seen.variance
        dbeta, dgamma = run(bug, spec.problems["statistics_gradient"](spec, x.shape), *given)
        problem = spec.problems["gradient"](spec, x.shape, count=n, gamma=True)
        (dx,) = run(bug, problem, *given, gamma, dbeta, dgamma)
        return nchw(dx), torch.from_numpy(dgamma), torch.from_numpy(dbeta)
    if isinstance(module, (nn.InstanceNorm2d, nn.GroupNorm)):
        dx, dgamma, dbeta = run(bug, layer.whole("gradient"), g, x, parameters[0].detach().numpy())
        return nchw(dx), torch.from_numpy(dgamma.sum(0)), torch.from_numpy(dbeta.sum(0))
    problem = layer.whole("gradient")
    return (nchw(run(bug, problem, *((g, x) if "x" in problem.input_shapes else (g,)))[0]),)


def plant(bug: Bug, module: Any) -> Any:
    """Return the module with the defect in its forward or backward pass."""
    from mpsref_torch.auditing.functions import of_module

    row, read = of_module(module)
    own = type(module).forward

    def forward(self: Any, x: Any) -> Any:
        args, keywords = read(self)
        layer = row.translate(x, *args, **keywords)
        return Planted.apply(bug, self, layer, lambda x: own(self, x), x, *self.parameters())

    module.forward = forward.__get__(module)
    return module


LAYERS: dict[str, tuple[Callable[[], Any], ...]] = {
    "PoolingAverage": (
        lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        lambda: nn.AvgPool2d((3, 2), 2, (1, 0), ceil_mode=True),
        lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    ),
    "PoolingMax": (lambda: nn.MaxPool2d(3, 2, 1), lambda: nn.MaxPool2d((1, 2), 1, dilation=(2, 1))),
    "Convolution": (
        lambda: nn.Conv2d(4, 8, 3, (2, 3), 1, groups=2),
        lambda: nn.Conv2d(4, 4, (3, 2), 2, groups=4),
        lambda: nn.Conv2d(4, 6, 1, 2),
        lambda: nn.Conv2d(1, 4, 2, (1, 3)),
        lambda: nn.Conv2d(4, 3, 3, 2, 1),
        lambda: nn.Conv2d(4, 8, 3, 2, 1, groups=4),
        lambda: nn.Conv2d(4, 4, 3, 1, 2, 2, groups=4),
        lambda: nn.Conv2d(4, 3, (5, 3), (3, 1), 1),
    ),
    "ConvolutionTranspose": (
        lambda: nn.ConvTranspose2d(4, 3, 3, 2, 1),
        lambda: nn.ConvTranspose2d(4, 3, 1, 2, 0, 1),
    ),
    "InstanceNormalization": (lambda: nn.InstanceNorm2d(4, affine=True),),
    "GroupNormalization": (lambda: nn.GroupNorm(2, 4),),
    "BatchNormalization": (lambda: nn.BatchNorm2d(4),),
    "UpsamplingBilinear": (
        lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        lambda: nn.Upsample(scale_factor=12, mode="bilinear", align_corners=True),
    ),
}


def seen_in_a_model(bug: Bug) -> Iterator[Any]:
    for make in LAYERS[bug.operation.spec_type.__name__]:
        for n, height, width in ((2, 9, 8), (1, 3, 2)):
            torch.manual_seed(0)
            middle = make()
            source = getattr(middle, "in_channels", 4)
            channels = middle(torch.zeros(n, source, height, width)).shape[1]
            model = nn.Sequential(nn.Conv2d(3, source, 1), plant(bug, middle), nn.Conv2d(channels, 2, 1))
            yield audit(model, None, images(n, 3, height, width))


ELSEWHERE = {
    "pytorch/pytorch#96225": "from 65,536 images on",
    "pytorch/pytorch#129207": "from 65,537 channels on",
    "pytorch/pytorch#188335": "for a kernel side of 256 or more",
    "pytorch/pytorch#134430": "no layer of PyTorch: a resize of MPSGraph",
    "pytorch/pytorch#183571": "for NaN",
    "pytorch/pytorch#177116": "from 32,769 terms on",
    "pytorch/pytorch#94043": "for a softmax that is 0",
    "pytorch/pytorch#142836": "from 65,537 columns on",
    "pytorch/pytorch#153957": "from 32,769 outputs on",
    "pytorch/pytorch#135447": "from 65,537 images on",
    "pytorch/pytorch#189495": "from 65,536 images on",
    "tracel-ai/burn#5626": "for 104 channels, 120, ...",
    "pytorch/pytorch#124591": "for one row",
    "microsoft/onnxruntime#27749": "for 5 channels and other odd numbers",
    "microsoft/onnxruntime#31986": "in a resize of an NHWC image",
    "tracel-ai/burn#2945": "for a large epsilon",
    "ml-explore/mlx#2504": "for a kernel of 182 x 182",
    "pytorch/pytorch#118115": "in an optimizer",
    "bitsandbytes-foundation/bitsandbytes#1185": "in an optimizer",
    "huggingface/candle#3727": "in float16",
    "jax-ml/jax#40409": "in float16",
    "jax-ml/jax#39899": "in float16",
    "jax-ml/jax#38885": "in float16",
    "ml-explore/mlx#4379": "in float16",
    "apache/mxnet#9007": "in float16",
    "apache/mxnet#19362": "in float16",
    "pytorch/pytorch#196949": "from 65,537 pixels on",
    "openxla/xla#5544": "from 8,193 negative zeros on",
    "ROCm/MIOpen#1109": "from 769 images on",
    "tenstorrent/tt-metal#51278": "from 4,097 channels on",
    "robertknight/rten#1447": "no layer of PyTorch: a resize of MPSGraph",
    "paiml/aprender#2199": "in a loss",
    "ml-explore/mlx#657": "for a slice",
    "modular/modular#6129": "for a kernel of 128 taps",
    "tenstorrent/tt-metal#53846": "for equal values",
    "opencv/opencv#27191": "for large images",
    "pytorch/pytorch#38922": "from 32,769 results on",
    "pytorch/pytorch#193061": "from 32,769 rows on",
    "tracel-ai/burn#5382": "in float16",
    "sbryngelson/ANEForge#113": "in float16",
    "ROCm/MIOpen#2344": "in float16",
    "FluxML/NNlib.jl#68": "for probabilities that are 0",
    "huggingface/candle#2328": "for large arguments",
    "tracel-ai/burn#5373": "for large arguments",
    "pytorch/pytorch#31938": "for a negative slope",
    "pytorch/pytorch#2221": "in a loss",
    "tenstorrent/tt-metal#55346": "no layer of PyTorch: an index of a largest value",
    "nv-legate/cupynumeric#987": "for infinities",
    "ARM-software/ComputeLibrary#924": "for windows of 2 x 2 with stride 2 in images of less than 7 columns",
}
"""Defects that the small models below cannot show, and where they occur."""

OUTSIDE = "microsoft/onnxruntime#29637"
"""Its windows begin outside of the image with dilation, where a clamped edge and PyTorch differ."""


class Part(nn.Module):  # type: ignore[misc]
    """A slice, or twice a layer, side by side, whose gradients are slices."""

    def __init__(self, layer: Any = None) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return torch.cat([self.layer(x), self.layer(x)], 1) if self.layer else x[:, 1:]


def with_strided_weights(bug: Bug) -> Any:
    return plant(bug, nn.Conv2d(4, 3, 3).to(memory_format=torch.channels_last))


IN_MEMORY: dict[str, Callable[[Bug], tuple[Any, ...]]] = {
    "pytorch/pytorch#131750": lambda bug: (Part(), plant(bug, nn.GroupNorm(1, 3))),
    "pytorch/pytorch#192212": lambda bug: (with_strided_weights(bug),),
    "pytorch/pytorch#189233": lambda bug: (Part(plant(bug, nn.AvgPool2d(2))),),
}
"""Defects of tensors whose memory is not packed, and layers in which such tensors occur."""


@pytest.mark.parametrize("issue", IN_MEMORY)
def test_a_defect_of_tensors_that_are_not_packed_is_named_in_its_layer(issue: str) -> None:
    (bug,) = (bug for bug in BUGS if bug.issue == issue)
    torch.manual_seed(0)
    layers = IN_MEMORY[issue](bug)
    report = audit(nn.Sequential(nn.Conv2d(3, 4, 1), *layers), None, images(2, 3, 9, 8, layout=torch.channels_last))
    assert {row.layer.partition(".")[0] for row in report.wrong} == {str(len(layers))}, str(report)


@pytest.mark.parametrize(
    "bug", [bug for bug in BUGS if bug.issue not in (OUTSIDE, *ELSEWHERE, *IN_MEMORY)], ids=lambda bug: bug.issue
)
def test_a_defect_of_the_catalogue_is_named_in_its_layer(bug: Bug) -> None:
    wrong = None
    for report in seen_in_a_model(bug):
        assert {row.layer for row in report.wrong} <= {"1"}, str(report)
        if report.wrong:
            wrong = report.wrong[0]
            break
    assert wrong is not None
    what, fraction = max(wrong.compared, key=lambda one: one[1])
    assert fraction > 1
    assert what == "result" if bug.operation.method == "forward" else what.startswith("gradient for ")
    assert wrong.message.startswith(f"{next(one for one, f in wrong.compared if f > 1)}: ")


def test_a_dilated_window_that_continues_at_a_wrong_pixel_is_named() -> None:
    bug = next(bug for bug in BUGS if bug.issue == OUTSIDE)
    x = images(2, 4, 6, 7)
    x[..., 0] = -100  # what a clamped edge reads wins in no window
    x.requires_grad_()
    report = audit(plant(bug, nn.MaxPool2d((1, 2), 1, (0, 1), dilation=(1, 2))), None, x)
    assert [row.function for row in report.wrong] == ["MaxPool2d"]
    assert audit(nn.MaxPool2d((1, 2), 1, (0, 1), dilation=(1, 2)), None, x).ok


def test_a_module_with_a_defect_shrinks_to_a_small_case() -> None:
    bug = next(bug for bug in BUGS if bug.issue == "tracel-ai/burn#5308")  # nothing is written where C is even
    model = nn.Sequential(nn.Conv2d(3, 6, 1), plant(bug, nn.AvgPool2d(3, 2, 1)))
    (row,) = audit(model, None, images(2, 3, 12, 10)).wrong
    case = Case.parse(row.case)
    assert case.problem.source_shape[3] == 2  # type: ignore[attr-defined]
    assert str(case.problem.operation) == "PoolingAverage.gradient"
    assert run_case(case, bug.backend).status == "failed"
    assert not row.replay  # no installed backend has this module


class Standardized(nn.Conv2d):  # type: ignore[misc]
    """A convolution that is not that of its own weights."""

    def forward(self, x: Any) -> Any:
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, w, self.bias, self.stride, self.padding)


def test_a_module_that_calls_its_function_with_other_tensors_is_right() -> None:
    conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 3, 1))
    report = audit(nn.Sequential(Standardized(3, 4, 3), conv), None, images(2, 3, 8, 8))
    assert report.ok, str(report)
    assert names(report).count("conv2d") == 2
    assert all("gradient for weight" in compared(row) for row in report.rows if row.function == "conv2d")


def test_a_gradient_of_a_wrong_shape_is_named() -> None:
    x = images(1, 2, 4, 4)

    class Sum(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.relu()

        @staticmethod
        def backward(ctx: Any, *g: Any) -> Any:
            return 2 * g[0]

    layer = nn.ReLU()
    layer.forward = Sum.apply
    (row,) = audit(nn.Sequential(nn.Conv2d(2, 2, 1), layer), None, x).wrong
    assert (row.layer, row.function) == ("1", "ReLU")
    assert row.message.startswith("gradient for x: ")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PyTorch about itself
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="there is no C++ compiler")
def test_compiled_layers() -> None:
    report = audit(nn.Sequential(nn.AvgPool2d(2)), None, images(2, 4, 6, 6).requires_grad_(), compiles=True)
    assert report.ok, str(report)
    assert names(report) == ["AvgPool2d"]
    assert compared(report.rows[0]) == ["result", "gradient for x"]
    assert not report.rows[0].notes, "it is called again on other numbers"
    assert "layers compiled" in report.runtime


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PyTorch about itself
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="there is no C++ compiler")
def test_compiled_models() -> None:
    pool = nn.AvgPool2d(3, 2, 1, ceil_mode=True)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), pool)
    x = images(2, 3, 9, 8)
    assert audit(model, None, x).complete
    compiled: dict[str, Any] = {
        "OptimizedModule": torch.compile(model),
        "1": nn.Sequential(model[0], torch.compile(pool)),
        "Applies": Applies(torch.compile(lambda y: pool(y))),
    }
    for place, one in compiled.items():
        report = audit(one, None, x)
        assert [row.layer for row in report.rows if row.function == "torch.compile"] == [place], str(report)
        assert [row.function for row in report.wrong] == (["avg_pool2d"] if VERSION == "2.13.0" else []), str(report)
        assert not report.complete
    report = audit(nn.Sequential(*(nn.Conv2d(3, 3, 1, bias=k % 2 > 0) for k in range(10))), None, x, compiles=True)
    assert report.complete, str(report)


# --- arguments, and the command ---------------------------------------------------------------------------------------


def test_illegal_arguments() -> None:
    with pytest.raises(TypeError, match=r"model is of type int; it must be a torch\.nn\.Module"):
        audit(3, None, images(1, 2))
    with pytest.raises(TypeError, match=r"the loss is \(1, 3\); it must be a tensor of one element"):
        audit(nn.Linear(2, 3), lambda y: y, images(1, 2))
    with pytest.raises(TypeError, match="the model returned int without a tensor"):
        audit(type("Constant", (nn.Module,), {"forward": lambda self, x: 3})(), None, images(1, 2))


def test_inputs_and_outputs_in_containers() -> None:
    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 2)

        def forward(self, x: Any, y: Any) -> Any:
            return {"sum": self.head(x + y), "more": [self.head(x)], "labels": x.argmax(1)}

    x, y = images(4, 3), images(4, 3) + 1
    for batch in (((x, y),), ({"x": x, "y": y},)):
        report = audit(Model(), None, batch)
        assert report.ok
        assert names(report).count("linear") == 2


MODELS = """
import torch
from torch import nn

def right():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())

class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        return g

class Relu(nn.ReLU):
    def forward(self, x):
        return Wrong.apply(x)

wrong = nn.Sequential(nn.Conv2d(3, 4, 3), Relu())
batch = torch.ones(2, 3, 8, 8), torch.tensor([1, 2])

def loss(output, target):
    return nn.functional.cross_entropy(output.mean((2, 3)), target)

def nothing():
    return 3
"""


@pytest.fixture
def folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "audited_models.py").write_text(MODELS, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("folder")
def test_the_command() -> None:
    found = CliRunner().invoke(app, ["audit", "audited_models:right", "--input", "1,3,8,8", "--channels-last"])
    assert found.exit_code == 0, found.output
    assert "2 right, 0 wrong, 0 not compared" in found.output
    arguments = ["audit", "audited_models:wrong", "--batch", "audited_models:batch", "--loss", "audited_models:loss"]
    found = CliRunner().invoke(app, [*arguments, "--eval", "--json"])
    assert found.exit_code == 1, found.output
    report = json.loads(found.output)
    assert report["ok"] is False
    assert [row["layer"] for row in report["rows"] if row["status"] == "wrong"] == ["1"]
    assert [row["function"] for row in report["rows"]] == ["conv2d", "Relu", "mean", "cross_entropy"]
    assert report["rows"][1]["case"].startswith("Neuron.gradient:n1h1w1c1,relu,")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audited_models:right"], "pass --input 1,3,256,256"),
        (["audited_models:right", "--input", "1,x"], "--input is '1,x'; it must be positive integers"),
        (["audited_models", "--input", "1,3,8,8"], "'audited_models' names no object; write package.module:name"),
        (["audited_models:left", "--input", "1,3,8,8"], "the module 'audited_models' has no 'left'"),
        (["no_such_module:right", "--input", "1,3,8,8"], "No module named 'no_such_module'"),
        (["audited_models:nothing", "--input", "1,3,8,8"], "audited_models:nothing gives int; it must be a torch.nn"),
        (["audited_models:right", "--input", "1,2,8,8"], "audited_models:right failed with an input of shape 1,2,8,8"),
        (["audited_models:right", "--input", "1,3,8,8", "--device", "warp"], "has no device 'warp' here"),
    ],
)
def test_bad_usage(arguments: list[str], message: str) -> None:
    found = CliRunner().invoke(app, ["audit", *arguments])
    assert isinstance(found.exception, (ValueError, TypeError)), found.output
    assert message in str(found.exception)


def test_an_audit_is_a_table_in_a_notebook() -> None:
    wrong = Row("net.pool", "avg_pool2d", (1, 2), (("result", 0.5),), "<2> wrong", "a case", replay="mpsref replay")
    found = Audit((wrong, Row("net.relu", "relu", (1,), (("result", 0.1),))), (), "torch", 0, (), 1.0)
    page = found._repr_html_()
    assert page.count("#f6b7b7") == 1
    assert "&lt;2&gt; wrong" in page
    assert "mpsref replay" in page
    assert "1 right, 1 wrong, 0 not compared" in page


# --- zeros, custom functions, types that are less precise -------------------------------------------------------------


class Gated(nn.Module):  # type: ignore[misc]
    """A branch whose last gain is 0, as timm initializes it."""

    def __init__(self, wrong: float = 1.0) -> None:
        super().__init__()
        self.conv, self.gain = nn.Conv2d(3, 3, 3, padding=1), nn.Parameter(torch.zeros(3, 1, 1))
        self.conv.forward = lambda x: Scaled.apply(x, self.conv.weight, self.conv.bias, wrong)

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) * self.gain


class Scaled(torch.autograd.Function):  # type: ignore[misc]
    """A convolution whose gradient for weights is multiplied by a number."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, factor: float) -> Any:
        ctx.save_for_backward(x, weight)
        ctx.factor = factor
        return F.conv2d(x, weight, bias, padding=1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        (g,), (x, weight) = grad_outputs, ctx.saved_tensors
        dw = torch.nn.grad.conv2d_weight(x, weight.shape, g, padding=1)
        return None, ctx.factor * dw, g.sum((0, 2, 3)), None


def test_gradients_behind_a_gain_of_0() -> None:
    model, x = Gated(101.0), images(2, 3, 8, 8)
    report = audit(model, None, x)
    (row,) = report.wrong
    assert row.function == "Conv2d"
    assert "exactly 101 times what is expected" in row.message
    assert "parameters that are 0 were small random numbers" in str(report)
    assert not model.gain.any()
    assert audit(Gated(), None, x).complete
    kept = audit(model, None, x, as_is=True)
    assert not kept.complete
    assert [row.status for row in kept.rows if row.function == "Conv2d"] == ["in part"]
    assert "0 everywhere" in str(kept)


def test_a_large_normalization_whose_input_needs_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("formulas", "normalizing"):
        monkeypatch.setattr(importlib.import_module(f"mpsref_torch.auditing.{name}"), "ALL", 2**10)
    (row,) = audit(nn.LayerNorm(64), None, images(1, 1, 64, 64)[0, 0]).rows
    assert row.status == "in part", row.message
    assert row.reasons == ("gradients for weight and bias: 4096 elements",)


@pytest.mark.parametrize(
    ("divisors", "expected", "reasons"),
    [
        ((1e-9, 1.0), "in part", ["result: the error of 50% of its elements has no bound"]),
        ((1e-9, 0.5e-6), "not compared", ["result: the error of 100% of its elements has no bound"]),
        ((1.0, 2.0), "right", []),
    ],
)
def test_a_number_whose_error_has_no_bound_is_not_compared(divisors: Any, expected: str, reasons: list[str]) -> None:
    def checks() -> list[Check]:
        found = Rounded(np.array([0.0, 1.0])) * (1 / Rounded(np.array(divisors), 1e-6))
        return [Check(Computed.of(found), (), {"result": actual})]

    step = Step("layer", "reciprocal")
    actual = np.array([0.0, 1 / np.float32(divisors[1])], np.float32)
    step.judge(checks)
    assert (step.row().status, step.reasons) == (expected, reasons)


class Counts(nn.Module):  # type: ignore[misc]
    """A layer with buffers of its own, and an error in its second call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)
        nn.init.zeros_(self.conv.bias)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("fixed", torch.ones(1).expand(2, 1, 1))
        self.register_buffer("last", torch.zeros(2))

    def forward(self, x: Any) -> Any:
        y = self.conv(x) + self.fixed
        self.calls = self.calls + 1
        self.last += y.detach().mean((0, 2, 3))
        if len(x) > 2:
            raise KeyError("a batch that it does not take")
        return y


@pytest.mark.parametrize("batch", [2, 3])
def test_parameters_gradients_and_buffers_are_afterwards_what_they_were(batch: int) -> None:
    model = Counts()
    (weight, bias), calls = model.parameters(), model.calls
    gradient = weight.grad = torch.ones_like(weight)
    collections = gc.get_threshold()
    with pytest.raises(KeyError) if batch > 2 else contextlib.nullcontext():
        audit(model, None, images(batch, 3, 8, 8))
    assert model.calls is calls
    assert [one.any().item() for one in (calls, model.last, bias)] == [False] * 3
    assert (weight.grad is gradient, bias.grad) == (True, None)
    assert torch.is_autocast_cache_enabled()
    assert gc.get_threshold() == collections


def test_what_cannot_start_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, raised = Gated(), RuntimeError("no compiler")
    monkeypatch.setattr(torch, "compile", lambda *args, **keywords: (_ for _ in ()).throw(raised))
    with pytest.raises(RuntimeError, match="no compiler"):
        audit(model, None, images(2, 3, 8, 8), compiles=True)
    assert not model.gain.any()


def test_lazy_modules() -> None:
    report = audit(nn.Sequential(nn.LazyConv2d(4, 1), nn.LazyBatchNorm2d()), None, images(2, 3, 8, 8))
    assert [row.status for row in report.rows] == ["right", "right"], str(report)


def function_of(forward: Any, backward: Any) -> Any:
    """Return a function with a backward pass of its own."""

    def run(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return forward(x)

    def back(ctx: Any, g: Any) -> Any:
        return backward(*ctx.saved_tensors, g)

    return type("Own", (torch.autograd.Function,), {"forward": staticmethod(run), "backward": staticmethod(back)})


class Applies(nn.Module):  # type: ignore[misc]
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.conv = function, nn.Conv2d(3, 4, 3)

    def forward(self, x: Any) -> Any:
        return self.function(self.conv(x))


def outside(x: Any) -> Any:
    """Return x**3 by NumPy, which autograd does not see."""
    return torch.from_numpy(x.detach().numpy() ** 3)


OWN: dict[str, tuple[Any, Any, str]] = {
    "right": (lambda x: x**3, lambda x, g: 3 * x * x * g, "right"),
    "slightly wrong": (lambda x: x**3, lambda x, g: 3.0003 * x * x * g, "wrong"),
    "shifted": (lambda x: x**3, lambda x, g: (3 * x * x * g).roll(1, 2), "wrong"),
    "outside": (outside, lambda x, g: 3 * x * x * g, "right"),
    "wrong outside": (outside, lambda x, g: 3.003 * x * x * g, "wrong"),
    "half seen": (lambda x: x * x.detach(), lambda x, g: 2 * x * g, "right"),
    "wrong in place": (lambda x: 1 * x, lambda x, g: g.mul_(2), "wrong"),
    "in place": (lambda x: x.relu(), lambda x, g: g.mul_(x > 0), "wrong"),
    "at a kink": (lambda x: x.relu().clamp(min=0), lambda x, g: g * (x > 0), "right"),
    "wrong at a kink": (lambda x: x.relu().clamp(min=0), lambda x, g: 1.01 * g * (x > 0), "wrong"),
    "rounded inside": (lambda x: (x.bfloat16() ** 2).to(x.dtype), lambda x, g: 2 * x * g, "right"),
    "wrong and rounded inside": (lambda x: (x.bfloat16() ** 2).to(x.dtype), lambda x, g: 3 * x * g, "wrong"),
}


@pytest.mark.parametrize("name", OWN)
def test_a_backward_pass_against_the_derivative_of_its_forward_pass(name: str) -> None:
    forward, backward, status = OWN[name]
    own = function_of(forward, backward).apply
    report = audit(Applies(lambda x: own(x.relu() if "kink" in name else x)), None, images(2, 3, 9, 8))
    (row,) = [row for row in report.rows if row.function == "Own"]
    assert row.status == status, str(report)
    assert report.ok == (status == "right")
    assert ("central differences" in str(row.notes)) == (name in ("outside", "wrong outside", "half seen"))
    assert ("are at a kink" in str(row.notes)) == ("kink" in name)
    assert ("shifted by one row" in row.message) == (name == "shifted")
    assert ("changes it in place" in row.message) == (name in ("in place", "wrong in place"))
    assert (dict(row.compared).get("gradient for x", 2) > 1) == (status == "wrong" and name != "in place")


def test_functions_of_an_audit_within_another_and_of_another_thread() -> None:
    model, x = Applies(function_of(lambda x: x**3, lambda x, g: 3 * x * x * g).apply), images(2, 3, 9, 8)
    reports = []

    def loss(y: Any) -> Any:
        thread = threading.Thread(target=lambda: model(x))
        thread.start()
        thread.join()
        reports.append(audit(model, None, x))
        return model(x).square().sum() + y.square().sum()

    reports.append(audit(model, loss, x))
    for report in reports:
        assert report.ok, str(report)
    found = [[row.status for row in report.rows if row.function == "Own"] for report in reports]
    assert found == [["right"], ["right"] * 2]
    base = importlib.import_module("mpsref_torch.auditing.custom").BASE
    assert "apply" not in vars(base)


NAN = float("nan")


@pytest.mark.parametrize(
    ("function", "after", "reason"),
    [
        ((lambda x: 1 * x, lambda x, g: g), lambda y: (y * NAN).nan_to_num(), "in the gradient of the result"),
        ((lambda x: x.sqrt(), lambda x, g: NAN * g), lambda y: y, "NaN or infinities close to the arguments"),
    ],
)
def test_a_backward_pass_of_nan_is_not_right(function: Any, after: Any, reason: str) -> None:
    own = function_of(*function)
    report = audit(Applies(lambda x: after(own.apply(x))), None, images(2, 3, 9, 8))
    (row,) = report.unchecked
    assert (row.function, row.status) == ("Own", "not compared")
    assert reason in row.reasons[0]
    assert not report.ok


def test_a_backward_pass_that_cannot_be_compared_is_counted() -> None:
    calls: list[int] = []

    def changing(x: Any) -> Any:
        calls.append(1)
        return torch.from_numpy(x.detach().numpy() * np.asarray(len(calls), x.detach().numpy().dtype))

    report = audit(Applies(function_of(changing, lambda x, g: g).apply), None, images(2, 3, 9, 8))
    assert not report.ok
    assert [row.function for row in report.unchecked] == ["Own"]
    assert str(report).endswith("1 backward passes of your own not compared")


A = torch.ops.aten
TODAY: dict[str, Callable[[Any], Any]] = {
    "silu": F.silu,
    "aten.silu": A.silu,
    "aten.hardswish": A.hardswish.default,
    "aten.hardsigmoid": A.hardsigmoid,
    "attention": lambda x: F.scaled_dot_product_attention(x, x.sin(), x.cos(), is_causal=True),
    "aten.attention": lambda x: A.scaled_dot_product_attention(x, x.sin(), x.cos()),
    "rms": lambda x: A.rms_norm(x, [x.shape[-1]]),
    "channels": lambda x: F.layer_norm(x, x.shape[1:]),
    "aten.native_layer_norm": lambda x: A.native_layer_norm(x, [x.shape[-1]], None, None, 1e-5)[0],
    "glu": lambda x: A.glu(x, 1),
    "bilinear": lambda x: F.interpolate(x, (7, 13), mode="bilinear"),
    "scaled": lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic"),
    "aten.bilinear": lambda x: A.upsample_bilinear2d(x, [7, 13], True),
    "pixel_shuffle": lambda x: A.pixel_shuffle(x, 2),
    "uneven": lambda x: A._adaptive_avg_pool2d(x, [4, 3]),
    "uneven maxima": lambda x: F.adaptive_max_pool2d(x, (4, 3)),
    "stochastic depth": lambda x: x * (x.new_empty((2, 1, 1, 1)).bernoulli_(0.9) / 0.9),
    "matmul": lambda x: x @ x.new_ones(10, 3),
}


@pytest.mark.parametrize("name", TODAY)
def test_functions_of_todays_models(name: str) -> None:
    report = audit(Applies(TODAY[name]), None, images(2, 3, 11, 12))
    own = [row for row in report.rows if row.function not in ("conv2d", "div")]
    assert own, str(report)
    assert all("gradient for x" in compared(row) and row.status == "right" for row in own), str(report)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast(dtype: str) -> None:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 5)
    x = images(2, 3, 8, 8)
    with torch.autocast("cpu", getattr(torch, dtype)):
        report = audit(nn.Sequential(*layers), F.cross_entropy, (x, torch.tensor([1, 2])))
        assert report.complete, str(report)
        wrong = nn.Sequential(*layers)
        wrong[0] = Applies(function_of(lambda y: y * 1.0, lambda y, g: 1.5 * g).apply)
        wrong[0].conv = nn.Conv2d(3, 8, 3)
        assert audit(wrong, F.cross_entropy, (x, torch.tensor([1, 2]))).wrong


# --- elements that move, modules of one's own, gradients that are changed ---------------------------------------------


def assigned(index: Any, value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        y = x.clone()
        y[index] = value(x)
        return y

    return run


TWICE = torch.tensor([0, 0, 2])
MOVING: dict[str, Callable[[Any], Any]] = {
    "reflect": lambda x: F.pad(x, (3, 2, 1, 2), "reflect"),
    "replicate": lambda x: F.pad(x, (3, 2, 1, 2), "replicate"),
    "circular": lambda x: F.pad(x, (3, 2, 1, 2), "circular"),
    "constant": lambda x: F.pad(x, (-1, 2), value=-3.3),
    "unfold": lambda x: F.unfold(x, (3, 2), 2, 1, (1, 2)),
    "fold": lambda x: F.fold(x.reshape(2, 6, 20), output_size=(10, 2), kernel_size=(3, 1), padding=(1, 0)),
    "windows": lambda x: x.unfold(2, 3, 1),
    "a copy of windows of windows": lambda x: x.unfold(2, 3, 1).unfold(3, 3, 2).flatten(2),
    "index_select": lambda x: x.index_select(1, TWICE),
    "integers": lambda x: x[:, TWICE],
    "pairs": lambda x: x[TWICE.clamp(max=1), TWICE],
    "booleans": lambda x: x[x > 0],
    "slices": lambda x: x[:, 1:, ::2, -1],
    "assignment": assigned((slice(None), 0), lambda x: 0.5),
    "assignment of a tensor": assigned((slice(None), 0), lambda x: x[0, 1]),
    "assignment to booleans": assigned((slice(None), torch.tensor([True, False, True, False])), lambda x: x[:, 1:3]),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "expand": lambda x: x[:, :1].expand(-1, 4, -1, -1),
    "a copy of an expanded tensor": lambda x: x[:, :1].expand(-1, 4, -1, -1).flatten(1),
    "stack": lambda x: torch.stack([x, x.flip(3)], 1),
    "cat": lambda x: torch.cat([x, x[:, :1], x], 1),
    "roll": lambda x: x.roll((1, 2), (2, 3)),
    "flip": lambda x: x.flip(1, 2),
    "gather": lambda x: x.gather(1, x.argsort(1)[:, :2]),
    "where": lambda x: torch.where(x > 0, x, x.flip(1)),
    "masked_fill": lambda x: x.masked_fill(x > 0, -1e9) * 1e-9,
    "shuffled": lambda x: F.channel_shuffle(x, 2),
    "part of a split": lambda x: x.split(3, 1)[0],
    "half": lambda x: x.half().float(),
}


@layouts
@pytest.mark.parametrize("name", MOVING)
def test_functions_that_move_elements(name: str, layout: Any) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        model = Applies(MOVING[name]).to(memory_format=layout, dtype=dtype)
        report = audit(model, None, images(2, 3, 8, 7, layout=layout).to(dtype))
        assert report.complete, str(report)
        assert not [row.notes for row in report.rows if row.notes]
        own = [row for row in report.rows if row.function not in ("conv2d", "mul")]
        assert own or name == "half"
        assert all({"result", "gradient for x"} <= {*compared(row)} for row in own), str(report)


def test_views_and_copies_of_whole_tensors_have_no_row() -> None:
    report = audit(Applies(lambda x: x.permute(0, 2, 3, 1).contiguous().view(2, -1).double()), None, images(2, 3, 8, 7))
    assert report.complete, str(report)
    assert names(report) == ["conv2d"]
    assert "calls that move elements: 4, right, without a row" in str(report)
    assert json.loads(report.json())["silent"] == 4


def without_border(g: Any, x: Any, padding: Any) -> Any:
    left, right, top, bottom = padding
    return g[..., top : g.shape[-2] - bottom, left : g.shape[-1] - right].clone()


def last_index(g: Any, shape: Any, dim: int, index: Any) -> Any:
    """Overwrite, where an index twice adds."""
    return g.new_zeros(shape).index_copy(dim, index, g)


@pytest.mark.filterwarnings("ignore")  # of PyTorch about the functions that are replaced
@pytest.mark.parametrize(
    ("function", "operator", "key", "wrong"),
    [
        ("reflect", "reflection_pad2d_backward", "CPU", without_border),
        ("replicate", "replication_pad2d_backward", "CPU", lambda g, x, pad: without_border(g, x, pad) / 2),
        ("index_select", "index_select_backward", "CompositeImplicitAutograd", last_index),
    ],
)
def test_a_native_gradient_that_drops_elements_is_named(function: str, operator: str, key: str, wrong: Any) -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl(operator, wrong, key)
    try:
        report = audit(Applies(MOVING[function]), None, images(2, 3, 8, 7))
    finally:
        del library  # what is registered lasts as long as it
    (row,) = report.wrong
    assert row.message.startswith("gradient for x: ")
    assert "image 0, pixel (" in row.message
    assert audit(Applies(MOVING[function]), None, images(2, 3, 8, 7)).complete


class WrongMove(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
    """A result of roll that is rolled too far in float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return func(found, 1, 3) if func is torch.Tensor.roll and found.dtype == torch.float32 else found


def test_a_wrong_move_is_named() -> None:
    with WrongMove():
        report = audit(Applies(MOVING["roll"]), None, images(2, 3, 8, 7))
    (row,) = report.wrong
    assert row.message.startswith("result: ")
    assert "shifted by one column" in row.message


def test_complex_numbers_are_listed() -> None:
    functions = {
        "abs": lambda x: torch.fft.rfft2(x).abs(),
        "__getitem__": lambda x: torch.fft.irfft2(torch.fft.rfft2(x)[..., :3]),
        "mul": lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(2, -1, 2)) * 2),
    }
    for name, function in functions.items():
        report = audit(Applies(function), None, images(2, 3, 8, 8))
        assert report.ok
        assert not report.complete
        (row,) = [row for row in report.rows if row.function == name]
        assert row.status == "not compared"
        assert "complex64" in row.reasons[0]
        assert any("complex64" in one for _, one, _ in report.others)


class Positions(nn.Embedding):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return self.weight[: x.shape[-1]]


class CallArguments(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(20, 8), Positions(12, 8)

    def forward(self, x: Any) -> Any:
        return self.words(x) + self.positions(x)


class Cosine(nn.Linear):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return F.normalize(x, dim=-1) @ F.normalize(self.weight, dim=-1).t()


class Equalized(nn.Linear):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return torch.addmm(self.bias, x, (self.weight * 0.5).t())


class OverChannels(nn.LayerNorm):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        c = x - x.mean(1, keepdim=True)
        return self.weight[:, None, None] * c / (c.pow(2).mean(1, keepdim=True) + self.eps).sqrt()


class Frozen(nn.BatchNorm2d):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        scale = self.weight / (self.running_var + self.eps).sqrt()
        return x * scale[:, None, None] + (self.bias - self.running_mean * scale)[:, None, None]


class Largest(nn.MaxPool2d):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x.amax((2, 3), keepdim=True)


class Columns(nn.Conv2d):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return (2 * self.weight.flatten(1) @ F.unfold(x, self.kernel_size)).unflatten(2, (4, 4))


class Doubled(nn.ReLU):  # type: ignore[misc]
    """Not what the class of PyTorch computes, in a function with a backward pass of its own."""

    def forward(self, x: Any) -> Any:
        return function_of(lambda x: 2 * x.relu(), lambda x, g: 2 * g * (x > 0)).apply(x)


SUBCLASSES: dict[str, tuple[Any, Any]] = {
    "positions": (CallArguments, torch.randint(0, 12, (2, 7))),
    "cosine": (lambda: nn.Sequential(nn.Linear(5, 6), Cosine(6, 4, bias=False)), images(3, 5)),
    "equalized": (lambda: nn.Sequential(nn.Linear(5, 6), Equalized(6, 4)), images(3, 5)),
    "over channels": (lambda: nn.Sequential(nn.Conv2d(3, 6, 1), OverChannels(6)), images(2, 3, 6, 6)),
    "frozen": (lambda: nn.Sequential(nn.Conv2d(3, 6, 1), Frozen(6)), images(2, 3, 6, 6)),
    "largest": (lambda: nn.Sequential(nn.Conv2d(3, 6, 1), Largest(2)), images(2, 3, 6, 6)),
    "columns": (lambda: nn.Sequential(nn.Conv2d(3, 6, 1), Columns(6, 4, 3)), images(2, 3, 6, 6)),
    "doubled": (lambda: nn.Sequential(nn.Conv2d(3, 6, 1), Doubled()), images(2, 3, 6, 6)),
    "parametrized": (
        lambda: nn.Sequential(nn.Linear(5, 6), nn.utils.parametrizations.weight_norm(Equalized(6, 4))),
        images(3, 5),
    ),
}


@pytest.mark.parametrize("name", SUBCLASSES)
def test_a_module_with_a_forward_of_its_own_is_what_its_functions_compute(name: str) -> None:
    make, x = SUBCLASSES[name]
    report = audit(make(), None, x)
    assert report.ok, str(report)
    assert not {"Positions", "Cosine", "Equalized", "OverChannels", "Frozen", "Largest", "Doubled"} & {*names(report)}
    assert len(report.rows) + len(report.others) > 1


CHANGES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "detach": (lambda y, model: y * y.detach(), "detach"),
    "data": (lambda y, model: y * y.data, "data"),
    "hook": (lambda y, model: (y.register_hook(lambda g: 2 * g), y * 1)[1], "register_hook"),
    "hook in place": (lambda y, model: (y.register_hook(lambda g: (g.mul_(2), None)[1]), y * 1)[1], "register_hook"),
    "hook that looks": (lambda y, model: (y.register_hook(lambda g: None), y * 1)[1], ""),
    "parameter": (
        lambda y, model: (model.conv.weight.register_hook(lambda g: g.clamp(0)), y)[1],
        "hook of a parameter",
    ),
    "parameter that looks": (lambda y, model: (model.conv.weight.register_hook(lambda g: None), y)[1], ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_ends_or_changes_a_gradient_is_listed(name: str) -> None:
    function, listed = CHANGES[name]
    model = Applies(lambda y: function(y, model))
    report = audit(model, None, images(2, 3, 8, 7))
    assert report.ok, str(report)
    found = [row.function for row in report.rows if row.status == "not compared"]
    assert found[-1:] == ([listed] if listed else [])
    assert report.complete == (not listed)


def test_a_parameter_with_a_hook_from_before() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1))
    model[0].weight.register_post_accumulate_grad_hook(lambda p: (p.grad.mul_(0.5), None)[1])
    (row,) = [row for row in audit(model, None, images(2, 3, 8, 7)).rows if row.reasons]
    assert (row.layer, row.function) == ("0.weight", "hook of a parameter")


TERMS: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "cross entropy": (
        lambda x: F.binary_cross_entropy_with_logits(x, torch.zeros_like(x), reduction="none"),
        -9,
        -4,
    ),
    "mean cross entropy": (lambda x: F.binary_cross_entropy_with_logits(x, torch.zeros_like(x)), -9, -4),
    "gelu": (F.gelu, -4.5, 4.5),
    "softsign": (F.softsign, -60, 60),
    "softmax with a mask": (lambda x: x.masked_fill(x > 3, -1e9).softmax(-1), -4, 4),
    "log_softmax with a mask": (lambda x: x.masked_fill(x > 3, -1e9).log_softmax(-1), -4, 4),
}


@pytest.mark.parametrize("name", TERMS)
def test_terms_that_cancel_are_right(name: str) -> None:
    """Also with an error that is planted they are found wrong."""
    function, low, high = TERMS[name]
    x = torch.linspace(low, high, 48000)
    for start in range(12 if name == "gelu" else 1):
        model = Applies(lambda y: function(y))
        model.conv = nn.PReLU(1, 1.0)
        report = audit(model, None, x[start::12].reshape(1, 40, 100))
        assert not report.wrong, str(report)


def test_the_numbers_at_the_first_wrong_element() -> None:
    for kind, function in ((nn.SiLU, F.silu), (nn.Sigmoid, F.sigmoid)):
        layers = nn.Sequential(nn.PReLU(1, 1.0), kind())
        for forward, backward, words in (
            (lambda x, f=function: 1.001 * f(x), lambda x, g: g, "There x is 2."),
            (function, lambda x, g: 2 * g, ", x is 2."),
        ):
            layers[1].forward = function_of(forward, backward).apply
            (row,) = audit(layers, None, torch.full((1, 4), 2.0)).wrong
            assert words in row.message, row.message


def test_a_row_that_needs_no_gradient_is_called_that() -> None:
    report = audit(nn.Sequential(nn.ReLU(), nn.Conv2d(3, 2, 1)), None, images(1, 3, 4, 4))
    assert report.complete
    text = str(report)
    assert "not compared:" not in text
    assert text.count("no gradient needed") == 1
    assert text.endswith("2 right, 0 wrong, 0 not compared")


@pytest.mark.usefixtures("folder")
def test_exit_statuses() -> None:
    with open("more_models.py", "w", encoding="utf-8") as file:
        file.write("from torch import nn\nmish = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Mish())\n")
    arguments = ["audit", "more_models:mish", "--input", "1,3,8,8", "--autocast", "bfloat16"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert CliRunner().invoke(app, [*arguments, "--strict"]).exit_code == 3
    found = CliRunner().invoke(app, [*arguments[:-1], "int8"])
    assert "--autocast is 'int8'; it must be bfloat16 or float16" in str(found.exception)


# ---- numbers of calls that are made again


def test_integers_are_repeated_after_a_prime_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpsref_torch.auditing import replay  # it imports PyTorch

    monkeypatch.setattr(replay, "PERIOD", 11)
    with replay.own_random() as generator:
        found = replay._integers(replay.Like.of("x", torch.zeros(3, 2, 7)), generator, 2)
        line = found.reshape(-1)
        assert found.shape == (3, 2, 7)
        assert found.dtype == torch.float32
        assert set(line.tolist()) <= {-2, -1, 1, 2}
        assert torch.equal(line[11:], line[:-11])


@pytest.mark.parametrize(
    ("kind", "shape"), [("max_pool2d", (2, 3, 4, 5)), ("max_pool2d", (3, 4, 5)), ("max_pool1d", (2, 3, 9))]
)
def test_no_window_has_its_maximum_twice(kind: str, shape: tuple[int, ...]) -> None:
    from mpsref_torch.auditing import replay
    from mpsref_torch.auditing.layer import RecordedCall

    seen = RecordedCall("", kind, shape, kind=kind)
    with replay.own_random() as generator:
        found = replay._values(seen, replay.Like.of("x", torch.zeros(shape)), generator)
    planes = found.reshape(-1, shape[-1] if kind.endswith("1d") else shape[-1] * shape[-2])
    assert found.shape == shape
    assert all(len(plane.unique()) == plane.numel() for plane in planes)
    assert not torch.equal(planes[0], planes[1])


# ---- equal calls, which are compared together


class Changed(torch.autograd.Function):  # type: ignore[misc]
    """Runs a module, and changes what it returns or one of its gradients."""

    @staticmethod
    def forward(ctx: Any, own: Any, change: Any, x: Any, *parameters: Any) -> Any:
        ctx.own, ctx.change = own, change
        ctx.save_for_backward(x, *parameters)
        return change.get("result", torch.clone)(own(x, *parameters))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        leaves = [one.detach().requires_grad_() for one in ctx.saved_tensors]
        with torch.enable_grad():
            found = torch.autograd.grad(ctx.own(*leaves), leaves, grad_outputs)
        names = ("gradient for x", "gradient for weight", "gradient for bias")
        return (None, None, *(ctx.change.get(name, torch.clone)(one) for name, one in zip(names, found, strict=False)))


def added(*index: Any, by: float = 0.01) -> Callable[[Any], Any]:
    return lambda one: one.index_put(tuple(map(torch.tensor, index)), torch.tensor(by), accumulate=True)


def scaled(index: Any, by: float) -> Callable[[Any], Any]:
    def change(one: Any) -> Any:
        one = one.clone()
        one[index] *= by
        return one

    return change


def equal_blocks() -> Any:
    """Four blocks of equal layers."""
    torch.manual_seed(0)
    blocks = [(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*(layer for block in blocks for layer in block))


CONV, NORM, RELU = 0, 1, 2


@pytest.mark.parametrize(
    ("kind", "what", "change"),
    [
        pytest.param(CONV, "result", added(1, 3, 5, 5), id="a pixel"),
        pytest.param(CONV, "result", added(0, 0, 0, 0, by=np.nan), id="NaN"),
        pytest.param(CONV, "result", scaled(-1, 1.001), id="the last image"),
        pytest.param(CONV, "gradient for x", lambda dx: dx[:, [0, 2, 1, 3, 4, 5, 6, 7]], id="exchanged channels"),
        pytest.param(CONV, "gradient for x", scaled((-1, -1, -1, -1), 1.01), id="the last pixel of a gradient"),
        pytest.param(CONV, "gradient for weight", scaled((..., -1, -1), 0.0), id="the last tap"),
        pytest.param(CONV, "gradient for bias", scaled(2, 1.01), id="a bias"),
        pytest.param(NORM, "gradient for x", scaled(-1, 1.01), id="the last image of a normalization"),
        pytest.param(NORM, "gradient for weight", scaled(7, 1.01), id="a gain"),
        pytest.param(RELU, "gradient for x", scaled((1, 4, 6, 7), 0.5), id="an element"),
    ],
)
def test_of_equal_calls_the_wrong_one_is_named(kind: int, what: str, change: Callable[[Any], Any]) -> None:
    for block in (1, 2, 3):
        model = equal_blocks()
        module = model[3 * block + kind]
        names = [name for name, _ in module.named_parameters()]
        functional = type(module)(*((8, 8, 3), (8,), ())[kind], **({"padding": 1} if kind == CONV else {}))

        def own(x: Any, *parameters: Any, module: Any = functional, names: Any = names) -> Any:
            return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x,))

        module.forward = lambda x, module=module, own=own: Changed.apply(own, {what: change}, x, *module.parameters())
        report = audit(model, None, images(2, 8, 12, 12), shrinks=False)
        assert [row.layer for row in report.wrong] == [str(3 * block + kind)], str(report)
        assert report.wrong[0].message.startswith(f"{what}: "), report.wrong[0].message


def test_equal_calls_are_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpsref.conformance import audit as audits

    numbers: dict[Any, list[int]] = {}
    own = audits.compare

    def count(checks: Any, manner: Any) -> Any:
        found = own(checks, manner)
        numbers.setdefault(type(checks[0].problem).__name__, []).append(len(checks))
        return found

    monkeypatch.setattr(audits, "compare", count)
    report = audit(equal_blocks(), None, images(2, 8, 12, 12))
    assert report.complete, str(report)
    kinds = "ConvolutionForward", "ConvolutionGradientWeights", "NormalizationForward", "NormalizationGradient"
    for name in (*kinds, "NeuronForward", "NeuronGradient"):
        assert max(numbers[name]) >= 4, numbers


class Overwrites(nn.Module):  # type: ignore[misc]
    """Changes what a layer was computed from."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        large = F.interpolate(y, scale_factor=2)
        y += 1.0
        return large, y


def test_a_call_is_compared_with_the_numbers_that_it_was_given() -> None:
    report = audit(Overwrites(), None, images(2, 3, 8, 8))
    assert not report.wrong, str(report)
    assert [row.status for row in report.rows[:2]] == ["right", "right"], str(report)


class InAThread(nn.Module):  # type: ignore[misc]
    """Calls its layers in another thread."""

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(self.layers(x)))
        thread.start()
        thread.join()
        return found[0]


def test_modules_are_compared_where_their_functions_are_not_seen() -> None:
    layers = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU(inplace=True)
    report = audit(InAThread(*layers), None, images(2, 3, 8, 8))
    assert report.complete, str(report)
    assert names(report) == ["Conv2d", "ReLU", "Conv2d", "ReLU"]
