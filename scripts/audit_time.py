"""How long an audit of a PyTorch model takes, in steps of its training.

``python scripts/audit_time.py`` prints a row for each model and batch; names such as ``resnet18`` select some. A step
is a forward and a backward pass. Both are measured in seconds of one thread of the processor, by turns in one process,
and the least of some rounds is taken.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mpsref_torch import audit


def convolved(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> list[Any]:
    """Return a convolution and a batch normalization."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


class Sum(nn.Module):  # type: ignore[misc]  # PyTorch need not be installed
    """Layers, and what their result is added to."""

    def __init__(self, layers: list[Any], beside: list[Any], last: Any) -> None:
        super().__init__()
        self.layers, self.beside, self.last = nn.Sequential(*layers), nn.Sequential(*beside), last

    def forward(self, x: Any) -> Any:
        """Return the sum."""
        return self.last(self.layers(x) + self.beside(x))


def resnet18() -> Any:
    """ResNet-18 [He et al. 2016]."""
    layers = [*convolved(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for c in (64, 64, 128, 128, 256, 256, 512, 512):
        stride = c // inputs
        block = [*convolved(inputs, c, 3, stride), nn.ReLU(inplace=True), *convolved(c, c)]
        layers.append(Sum(block, convolved(inputs, c, 1, stride) if stride > 1 else [], nn.ReLU(inplace=True)))
        inputs = c
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def mobilenet_v2() -> Any:
    """MobileNetV2 [Sandler et al. 2018]."""
    layers, inputs = [*convolved(3, 32, 3, 2), nn.ReLU6(inplace=True)], 32
    for c, number, stride in ((16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)):
        for k in range(number):
            wide, step = 6 * inputs if c > 16 else inputs, stride if k == 0 else 1
            block = [*convolved(inputs, wide, 1), nn.ReLU6(inplace=True)] if c > 16 else []
            block += [*convolved(wide, wide, 3, step, wide), nn.ReLU6(inplace=True), *convolved(wide, c, 1)]
            layers.append(Sum(block, [], nn.Identity()) if step == 1 and inputs == c else nn.Sequential(*block))
            inputs = c
    layers += [*convolved(320, 1280, 1), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(1280, 1000))


def small() -> Any:
    """Two convolutions, the network of the page on audits."""
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 10))


MODELS: dict[str, tuple[Callable[[], Any], int, tuple[int, ...]]] = {
    "resnet18": (resnet18, 224, (1, 4, 16)),
    "mobilenet_v2": (mobilenet_v2, 224, (1, 4)),
    "small": (small, 32, (8,)),
}
"""By name: the model, the side of its images, and the sizes of a batch."""


def measured(call: Callable[[Any], Any], x: Any) -> float:
    """Return the seconds of a call."""
    start = time.process_time()
    call(x)
    return time.process_time() - start


def rounds(model: Any, x: Any, number: int) -> tuple[float, float]:
    """Return the least seconds of a step and of an audit."""

    def step(x: Any) -> None:
        model(x).sum().backward()

    each = [
        (measured(lambda x: audit(model, None, x), x), *(measured(step, x) for _ in range(3))) for _ in range(number)
    ]
    return min(min(steps) for _, *steps in each), min(whole for whole, *_ in each)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default: 5)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | batch | a step | an audit | steps |\n|---|---|---|---|---|")
    for name in given.names:
        make, side, batches = MODELS[name]
        for batch in batches:
            step, whole = rounds(make(), torch.randn(batch, 3, side, side), given.rounds)
            print(f"| {name} | {batch} | {step * 1e3:.1f} ms | {whole * 1e3:.0f} ms | {whole / step:.1f} |", flush=True)


if __name__ == "__main__":
    main()
