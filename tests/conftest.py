"""What tests of several files share: the backends that can run here, one test for each; profiles of hypothesis."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

import mpsref

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

AVAILABLE = [info.name for info in mpsref.backends() if info.available]


@pytest.fixture(scope="session", params=AVAILABLE)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend that can run here, the reference among them."""
    name: str = request.param
    return name


@pytest.fixture(scope="session", params=[name for name in AVAILABLE if not name.startswith("metal")])
def ieee_backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend whose NaN and infinities follow IEEE 754; fast math of Metal leaves them open."""
    name: str = request.param
    return name
