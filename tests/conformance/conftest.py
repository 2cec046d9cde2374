"""Checks of few layers, and of failures that stay as they are, for tests of the engine."""

from itertools import islice

import pytest

from mpsref.conformance import checker


@pytest.fixture
def few_layers(request, monkeypatch):
    """Three layers of each operation, except in tests with processes, which do not see this."""
    if "all_layers" not in request.fixturenames:
        layers = checker.layer_cases
        monkeypatch.setattr(checker, "layer_cases", lambda operation: islice(layers(operation), 3))


@pytest.fixture
def all_layers():
    """All layers, for tests with processes."""


@pytest.fixture
def unshrunk(monkeypatch):
    """The time for shrinking a failure is over at the first one, except in tests with processes."""
    monkeypatch.setattr(checker, "SHRINK_SECONDS", -1.0)
