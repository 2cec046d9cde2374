"""Published results of loss kernels and of the loss node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpsref.conformance.golden_entries import Adapter, Comparison, Entry
from mpsref.kernels import Loss
from mpsref.registry import Backend


def _loss(entry: Entry) -> Loss:
    names = {"loss_type": "type", "reduction_type": "reduction"}
    parameters = {names.get(key, key): value for key, value in entry.parameters.items()}
    words: dict[str, Any] = {k: value.lower() if isinstance(value, str) else value for k, value in parameters.items()}
    return Loss(**words)


def forward(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run the loss alone."""
    loss = _loss(entry).forward(entry.image("y"), entry.image("labels"), backend=backend)
    yield Comparison("loss", loss, entry.expected["loss"])


def node(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run what the node's result image holds: the gradient."""
    gradient = _loss(entry).gradient(None, entry.image("y"), entry.image("labels"), backend=backend)
    yield Comparison("result_image", gradient, entry.expected["result_image"])


ADAPTERS: dict[str, Adapter] = {"MPSNNForwardLoss": forward, "MPSCNNLossNode": node}
