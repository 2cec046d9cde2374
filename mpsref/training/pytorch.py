"""Speed of the same network in PyTorch (eager mode, channels last) on the same device: epochs of both, alternating."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.training.network import KEEP_PROBABILITY
from mpsref.training.trainer import Trainer

ROUNDS = 5


def model_of(trainer: Trainer) -> Any:
    """Return the network as a PyTorch module with the weights of ``trainer``."""
    import torch
    from torch import nn

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            channels = len(trainer.network.sources["bn1"].gamma_array)  # type: ignore[union-attr, arg-type]
            self.conv1, self.bn1 = nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels, eps=1e-5)
            self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels, eps=1e-5)
            self.drop, self.fc = nn.Dropout(1 - KEEP_PROBABILITY), nn.Conv2d(2 * channels, 10, 4)

        def forward(self, x: Any) -> Any:
            first = torch.relu(self.bn1(self.conv1(x)))
            second = torch.relu(self.bn2(self.conv2(first)) + first)
            both = torch.cat([nn.functional.max_pool2d(second, 2), nn.functional.avg_pool2d(second, 2)], dim=1)
            return self.fc(self.drop(both)).flatten(1)

    model: Any = Model()
    model = model.to(memory_format=torch.channels_last)
    with torch.no_grad():
        for name in ("conv1", "conv2", "fc"):
            source: Any = trainer.network.sources[name]
            layer = getattr(model, name)
            layer.weight.copy_(torch.from_numpy(source.weights_array.transpose(0, 3, 1, 2).copy()))
            layer.bias.copy_(torch.from_numpy(source.biases_array.copy()))
    return model


def compare(trainer: Trainer) -> str:
    """Return one line with the median time of an epoch of both."""
    import torch

    backend = trainer.network.training.backend
    device = "cpu" if backend.arrays is None else "cuda"
    model = model_of(trainer).train().to(device)
    settings = trainer.settings
    if settings.optimizer == "adam":
        optimizer: Any = torch.optim.Adam(model.parameters(), settings.learning_rate)
    else:
        optimizer = torch.optim.SGD(model.parameters(), settings.learning_rate, momentum=0.9)
    images, digits = trainer.learn.images, torch.from_numpy(trainer.learn.digits)
    trainer.epoch()  # the first epoch compiles the kernels
    ours, theirs = [], []
    for number in range(ROUNDS + 1):
        theirs.append(_epoch(torch, model, optimizer, images, digits, settings.batch, number, device))
        ours.append(trainer.epoch().seconds)
    mine, other = statistics.median(ours[1:]), statistics.median(theirs[1:])
    where = f"{torch.get_num_threads()} threads" if device == "cpu" else torch.cuda.get_device_name()
    return (
        f"an epoch, {trainer.steps} steps of {settings.batch} images: {backend.name} {mine:.3f} s, PyTorch "
        f"{torch.__version__} eager {other:.3f} s ({where}): {other / mine:.2f}x"
    )


def _epoch(
    torch: Any, model: Any, optimizer: Any, images: Array, digits: Any, batch: int, seed: int, device: str
) -> float:
    order = np.random.default_rng(seed).permutation(len(images))
    start = time.perf_counter()
    for k in range(0, len(order), batch):
        chosen = order[k : k + batch]
        x = torch.from_numpy(images[chosen]).permute(0, 3, 1, 2).to(device)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), digits[chosen].to(device), reduction="sum") / batch
        loss.backward()
        optimizer.step()
        loss.item()
    return time.perf_counter() - start
