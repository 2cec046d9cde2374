from collections import Counter

import pytest

from mpsref.lessons import answer


@pytest.fixture(autouse=True)
def first_tries(monkeypatch):
    """No exercise has been tried before, nor is it after a test."""
    monkeypatch.setattr(answer, "_tries", Counter())
