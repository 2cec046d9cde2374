"""The smallest relative error of each function that an audit sees, and the table of them in the documentation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpsref_torch import audit
from tests import few

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")

nn, F = torch.nn, torch.nn.functional
SIZE = (4, 16, 20, 20)
PAGE = Path(__file__).parents[2] / "docs" / "audit_sensitivity.md"


class Off(torch.autograd.Function):  # type: ignore[misc]
    """A function of which one result has a relative error."""

    @staticmethod
    def forward(ctx: Any, function: Any, what: int, error: float, *tensors: Any) -> Any:
        ctx.given, ctx.what, ctx.error = function, what, error
        ctx.save_for_backward(*tensors)
        y = function(*tensors)
        return y * (1 + error) if what < 0 else y

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        leaves = [one.detach().requires_grad_(one.is_floating_point()) for one in ctx.saved_tensors]
        with torch.enable_grad():
            y = ctx.given(*leaves)
        wanted = [one for one in leaves if one.requires_grad]
        found = dict(zip(map(id, wanted), torch.autograd.grad(y, wanted, g[0]), strict=True))
        scaled = [found.get(id(one)) for one in leaves]
        if ctx.what >= 0:
            scaled[ctx.what] = scaled[ctx.what] * (1 + ctx.error)
        return None, None, None, *scaled


def through(module: Any, call: Callable[..., Any]) -> Any:
    """Return a module that computes ``call(function, x, *parameters)``, function being what it has computed."""
    own, names = type(module).forward, [name for name, _ in module.named_parameters()]

    def function(x: Any, *tensors: Any) -> Any:
        clone = type(module).__new__(type(module))
        clone.__dict__.update(module.__dict__)
        clone._parameters = dict(module._parameters) | dict(zip(names, tensors, strict=True))
        return own(clone, x)

    module.forward = lambda x: call(function, x, *module.parameters())
    return module


def off(module: Any, what: int, error: float) -> Any:
    """Return a module of which the result (-1) or the gradient of an input or a parameter has a relative error."""
    return through(module, lambda function, *tensors: Off.apply(function, what, error, *tensors))


MODULES: dict[str, Callable[[], Any]] = {
    "conv2d": lambda: nn.Conv2d(16, 16, 3, padding=1),
    "conv2d, depthwise": lambda: nn.Conv2d(16, 16, 5, padding=2, groups=16),
    "conv_transpose2d": lambda: nn.ConvTranspose2d(16, 8, 3, 2),
    "linear": lambda: nn.Linear(20, 12),
    "avg_pool2d": lambda: nn.AvgPool2d(3, 2, 1),
    "max_pool2d": lambda: nn.MaxPool2d(3, 2, 1),
    "adaptive_avg_pool2d, uneven": lambda: nn.AdaptiveAvgPool2d(7),
    "adaptive_max_pool2d, uneven": lambda: nn.AdaptiveMaxPool2d(7),
    "batch_norm": lambda: nn.BatchNorm2d(16),
    "batch_norm, evaluation": lambda: nn.BatchNorm2d(16).eval(),
    "instance_norm": lambda: nn.InstanceNorm2d(16, affine=True),
    "group_norm": lambda: nn.GroupNorm(4, 16),
    "layer_norm": lambda: nn.LayerNorm(20),
    "layer_norm, three axes": lambda: nn.LayerNorm(SIZE[1:]),
    "rms_norm": lambda: nn.RMSNorm(20),
    "relu": nn.ReLU,
    "hardswish": nn.Hardswish,
    "hardsigmoid": nn.Hardsigmoid,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "softmax": lambda: nn.Softmax(1),
    "glu": lambda: nn.GLU(1),
    "prelu": lambda: nn.PReLU(16),
    "interpolate, bilinear": lambda: nn.Upsample((29, 33), mode="bilinear"),
    "pixel_shuffle": lambda: nn.PixelShuffle(2),
    "embedding": lambda: nn.Embedding(50, 24),
}


def seen(make: Callable[[], Any], what: int, error: float) -> bool:
    """Return whether an audit names a module with a relative error."""
    torch.manual_seed(0)
    made = make()
    x = torch.randint(0, 50, (8, 30)) if isinstance(made, nn.Embedding) else torch.randn(SIZE).requires_grad_()
    report = audit(off(made, what, error), None, x, shrinks=False)
    assert report.rows[-1].function == type(made).__name__, str(report)
    return bool(report.wrong)


def results(name: str) -> list[int]:
    """Return the results of a module: -1, and the positions of the inputs and parameters with gradients."""
    module = MODULES[name]()
    first = 1 if isinstance(module, nn.Embedding) else 0
    return [-1, *range(first, 1 + len(list(module.parameters())))]


def stated(name: str) -> dict[int, float]:
    """Return the errors of a function in the table of the documentation, by result."""
    (line,) = [
        one for one in PAGE.read_text("utf-8").splitlines() if one.startswith(f"| {name} |") and one.count("|") == 6
    ]
    return {what: float(cell) for what, cell in zip((-1, 0, 1, 2), line.split("|")[2:-1], strict=True) if cell.strip()}


@pytest.mark.parametrize("name", few([*MODULES][::3] + [*MODULES][1::3] + [*MODULES][2::3], 10))
def test_the_errors_of_the_documentation_are_seen(name: str) -> None:
    """Another processor may see smaller ones."""
    errors = stated(name)
    assert [*errors] == results(name)
    assert [what for what, error in errors.items() if error > 1e-4 or not seen(MODULES[name], what, error)] == []


def test_no_error_is_not_seen() -> None:
    assert not [name for name, make in MODULES.items() if seen(make, -1, 0.0)]


CALLED = {
    "l1_loss": (torch._C._nn, "l1_loss"),
    "mse_loss": (torch._C._nn, "mse_loss"),
    "huber_loss": (torch._C._nn, "huber_loss"),
    "smooth_l1_loss": (torch._C._nn, "smooth_l1_loss"),
    "kl_div": (torch, "kl_div"),
    "binary_cross_entropy_with_logits": (torch, "binary_cross_entropy_with_logits"),
    "cross_entropy": (torch._C._nn, "cross_entropy_loss"),
    "nll_loss": (torch._C._nn, "nll_loss_nd"),
    "softmax": (torch.Tensor, "softmax"),
    "log_softmax": (torch.Tensor, "log_softmax"),
}
"""What the functions call; of a sum of thousands of terms the bound alone would hide an error."""


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("name", CALLED)
@pytest.mark.parametrize("factor", [1.0, 1.00001])
def test_a_function_over_many_elements_is_run_again(monkeypatch: pytest.MonkeyPatch, name: str, factor: float) -> None:
    owner, called = CALLED[name]
    function, inner = getattr(F, name), getattr(owner, called)
    torch.manual_seed(0)
    x, labels = torch.randn(1, 20000) if "softmax" in name else torch.randn(4000, 10), torch.arange(4000) % 10
    target = labels if name in ("cross_entropy", "nll_loss") else torch.rand_like(x)
    monkeypatch.setattr(owner, called, lambda *args, **keywords: inner(*args, **keywords) * factor)
    loss = (lambda y: function(y, 1).square().sum()) if "softmax" in name else (lambda y: function(y, target))
    report = audit(nn.Identity(), loss, x.requires_grad_())
    (row,) = [row for row in report.rows if row.function == name]
    assert row.status == ("right" if factor == 1 else "wrong"), str(report)
    assert (factor == 1) == (row.worst <= 1)


def smallest(make: Callable[[], Any], what: int) -> float:
    return next(error for error in (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0) if seen(make, what, error))


def table() -> str:
    """Return the table of the documentation."""
    lines = ["| function | `y` | `dx` | `dw` | `db` |", "|---|---|---|---|---|"]
    for name, make in MODULES.items():
        cells = {what: f"{smallest(make, what):.0e}" for what in results(name)}
        lines.append(f"| {name} | {' | '.join(cells.get(what, '') for what in (-1, 0, 1, 2))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
