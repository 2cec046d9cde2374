"""Planted defects: each is found, by what the table in the documentation says.

``python -m tests.frameworks.test_planted_defects`` prints the tables, with the seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mpsref.conformance import run_case, wide
from mpsref_torch import audit

pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")

import torch

from tests.frameworks.test_audit_sensitivity import through

nn, F = torch.nn, torch.nn.functional
PAGE = Path(__file__).parents[2] / "docs" / "planted_defects.md"


class Wrong(torch.autograd.Function):  # type: ignore[misc]
    """A function whose gradients are changed: those for the input, for weights, for biases."""

    @staticmethod
    def forward(ctx: Any, function: Any, change: Any, *tensors: Any) -> Any:
        ctx.given = function, change
        ctx.save_for_backward(*tensors)
        return function(*tensors)

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        function, change = ctx.given
        leaves = [one.detach().requires_grad_() for one in ctx.saved_tensors]
        with torch.enable_grad():
            found = torch.autograd.grad(function(*leaves), leaves, g[0])
        return None, None, *change(*found)


def wrong(module: Any, change: Callable[..., Any]) -> Any:
    """Return the module, whose gradients are changed."""
    return through(module, lambda function, *tensors: Wrong.apply(function, change, *tensors))


class Residual(nn.Module):  # type: ignore[misc]
    """A residual block whose last gain is 0."""

    def __init__(self, change: Callable[..., Any]) -> None:
        super().__init__()
        self.branch = nn.Sequential(wrong(nn.Conv2d(4, 4, 3, padding=1), change), nn.BatchNorm2d(4))
        nn.init.zeros_(self.branch[1].weight)

    def forward(self, x: Any) -> Any:
        return x + self.branch(x)


class Swish(torch.autograd.Function):  # type: ignore[misc]
    """A derivative without its second term, s + x s (1 - s)."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        return g[0] * torch.sigmoid(ctx.saved_tensors[0])


class Dropped(torch.autograd.Function):  # type: ignore[misc]
    """A convolution of one channel and one tap, whose weight gradient lacks the last product."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight)

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        x, weight = ctx.saved_tensors
        return g[0] * weight, (g[0] * x).flatten()[:-1].sum().reshape(weight.shape)


def dropped() -> Any:
    module = nn.Conv2d(1, 1, 1, bias=False)
    module.forward = lambda x: Dropped.apply(x, module.weight)
    return module


class Calls(nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def scaled(of: int, factor: float) -> Callable[..., Any]:
    return lambda *found: tuple(one * factor if k == of else one for k, one in enumerate(found))


def shifted(dx: Any, *others: Any) -> Any:
    return torch.roll(dx, 1, 2), *others


def last_channel_zero(dx: Any, *others: Any) -> Any:
    dx = dx.clone()
    dx[:, -1] = 0
    return dx, *others


def in_bfloat16(dx: Any, dw: Any, *others: Any) -> Any:
    return dx, dw.bfloat16().float(), *others


class Defect(NamedTuple):
    """What is planted, where, and a part of the report that names it."""

    make: Callable[[], Any]
    shape: tuple[int, ...]
    found_by: str
    autocast: bool = False


CONV = (2, 4, 12, 12)

DEFECTS = {
    "a weight gradient times 101 behind a gain of 0": Defect(
        lambda: Residual(scaled(1, 101.0)), CONV, "exactly 101 times what is expected"
    ),
    "weight gradients in bfloat16 in each of 8 residual blocks": Defect(
        lambda: nn.Sequential(*(Residual(in_bfloat16) for _ in range(8))), CONV, "8 wrong"
    ),
    "a wrong derivative of a `torch.autograd.Function`": Defect(
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3), Calls(lambda x: Swish.apply(x))), CONV, "gradient for x"
    ),
    "one of 100,352 products of a weight gradient is left out": Defect(
        dropped, (2, 1, 224, 224), "gradient for weight"
    ),
    "a normalization's gradient with a relative error of 1e-4": Defect(
        lambda: wrong(nn.BatchNorm2d(4), scaled(0, 1.0001)), CONV, "gradient for x"
    ),
    "a convolution's weight gradient with a relative error of 1e-4": Defect(
        lambda: wrong(nn.Conv2d(4, 4, 3), scaled(1, 1.0001)), CONV, "gradient for weight"
    ),
    "a gradient of SiLU twice as large, under autocast in bfloat16": Defect(
        lambda: nn.Sequential(nn.Conv2d(4, 4, 1), wrong(nn.SiLU(), scaled(0, 2.0))), CONV, "exactly 2 times", True
    ),
    "a pooling gradient one row too low": Defect(lambda: wrong(nn.MaxPool2d(2), shifted), CONV, "gradient for x"),
    "a gradient that is 0 in the last channel": Defect(
        lambda: wrong(nn.AvgPool2d(3, 1, 1), last_channel_zero), CONV, "zero in the last channel"
    ),
}


def report_of(defect: Defect) -> Any:
    torch.manual_seed(0)
    model = defect.make()
    x = torch.randn(defect.shape).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=defect.autocast):
        return audit(model, None, x, shrinks=False)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    report = report_of(DEFECTS[name])
    assert DEFECTS[name].found_by in str(report), str(report)
    assert report.wrong


@pytest.mark.parametrize("name", DEFECTS)
def test_nothing_is_found_without_the_defect(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(wrong.__globals__, "wrong", lambda module, change: module)
    monkeypatch.setattr(Dropped, "apply", F.conv2d)
    monkeypatch.setattr(Swish, "apply", F.silu)
    assert not report_of(DEFECTS[name]).wrong


def lines() -> Iterator[str]:
    """Yield the rows of both tables without their seconds."""
    for mutant in wide.size_mutants():
        cases = wide.wide_cases(mutant.operation)
        case = next(case for case in cases if run_case(case, mutant.backend).status == "failed")
        fields = re.sub(",float32|,seed=.*", "", str(case).partition(":")[2])
        yield f"| {mutant.name} | `{mutant.operation}` | the wide case `{fields}` |"
    for name, defect in DEFECTS.items():
        yield f"| {name} | {defect.found_by} |"


def test_the_page_has_the_planted_defects() -> None:
    text = PAGE.read_text()
    assert not [line for line in lines() if line not in text]


def timed() -> Iterator[str]:
    """Yield the rows with their seconds of processor time; the first audit loads what all need."""
    report_of(next(iter(DEFECTS.values())))
    seconds = []
    for mutant in wide.size_mutants():
        begin = time.process_time()
        next(case for case in wide.wide_cases(mutant.operation) if run_case(case, mutant.backend).status == "failed")
        seconds.append(time.process_time() - begin)
    for defect in DEFECTS.values():
        begin = time.process_time()
        report_of(defect)
        seconds.append(time.process_time() - begin)
    yield from (f"{line} {one:.2g} |" for line, one in zip(lines(), seconds, strict=True))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(*timed(), sep="\n")
