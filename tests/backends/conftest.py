"""Fakes of the packages of GPUs, and real ones where there is such a GPU: those of anymetal's tests."""

from anymetal_fixtures import device, fake, fake_cuda, package, pytest_runtest_setup

__all__ = ["device", "fake", "fake_cuda", "package", "pytest_runtest_setup"]
