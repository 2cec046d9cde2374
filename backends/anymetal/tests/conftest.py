"""Fixtures of all tests."""

from anymetal_fixtures import (
    device,
    empty_cache,
    fake,
    fake_cuda,
    interruptible,
    package,
    pytest_runtest_setup,
    rare_collections,
)

__all__ = [
    "device", "empty_cache", "fake", "fake_cuda", "interruptible", "package", "pytest_runtest_setup",
    "rare_collections",
]  # fmt: skip
