"""Backends by published Metal kernels, where these are not installed."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_pytorch_without_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from mpsref_torch.metal_kernels import backend

    monkeypatch.setenv("ANYMETAL_COLLECTIONS", str(tmp_path))
    assert "a checkout of PyTorch with aten/src" in str(backend.unavailable())
