"""Checks of few layers, for tests of the engine."""

from itertools import islice

import pytest

from mpsref.conformance import checker


@pytest.fixture
def few_layers(request, monkeypatch):
    """Three layers of each operation, except in tests marked slow, whose processes do not see this."""
    if request.node.get_closest_marker("slow") is None:
        layers = checker.layer_cases
        monkeypatch.setattr(checker, "layer_cases", lambda operation: islice(layers(operation), 3))
