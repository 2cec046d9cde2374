"""Batch normalization of PyTorch in training: its result and all gradients, as instance normalization of a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import frameworks
from mpsref.conformance import check
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.runner import run_case
from mpsref.registry import Backend

pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")

import torch

import mpsref_torch
from mpsref_torch import training

OPERATIONS = [operation_named(f"InstanceNormalization.{method}") for method in ("forward", "gradient")]


def test_it_passes() -> None:
    for row in check(replace(mpsref_torch.batch_norm, distinct_problems=8), OPERATIONS, 16).rows:
        assert row.status == "passed", row.failures
        assert row.refused <= 4  # images of one pixel, two of them wide, and the worked example with an epsilon of 0


@pytest.mark.parametrize("result", [0, 1, 2], ids=["dx", "dgamma", "dbeta"])
def test_each_gradient_is_compared(result: int) -> None:
    def wrong(problem: Any, *inputs: Any, out: Any) -> None:
        mpsref_torch.batch_norm.implementations[OPERATIONS[1]](problem, *inputs, out=out)
        out[result][...] *= 1.001

    case = Case.parse("InstanceNormalization.gradient:n2h4w3c4,eps1e-05,float32,seed=1")
    assert run_case(case, mpsref_torch.batch_norm).status == "passed"
    assert run_case(case, Backend("wrong", {OPERATIONS[1]: wrong})).status == "failed"


def test_a_batch_is_an_image() -> None:
    generator = np.random.default_rng(0)
    x, g = generator.standard_normal((2, 1, 6, 4, 3)).astype(np.float32)
    gamma = np.array([1, 2, 3], np.float32)
    expected = frameworks.training_batch_normalization(
        mpsref.BatchNormalization(1e-5), training.batch_of(x[0]), training.batch_of(g[0]), gamma
    )
    norm = mpsref.InstanceNormalization(1e-5)
    found = norm.forward(x, gamma), *norm.gradient(g, x, gamma)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.ravel(), other.ravel(), rtol=1e-4, atol=1e-5)


def test_batches_in_both_layouts() -> None:
    image = np.arange(120, dtype=np.float32).reshape(6, 4, 5)
    nchw = np.ascontiguousarray(image.transpose(2, 0, 1)).transpose(1, 2, 0)
    last, first = (mpsref_torch.run.Torch("cpu").tensor(training.batch_of(one)) for one in (image, nchw))
    assert last.shape == first.shape == (3, 5, 2, 4)
    assert torch.equal(last, first)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert first.is_contiguous()
    assert len(training.batch_of(image[:5])) == 1
