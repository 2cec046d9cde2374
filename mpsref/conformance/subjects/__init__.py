"""Which kernels are under test: a table for each family."""

from __future__ import annotations

from collections.abc import Mapping

from mpsref import registry
from mpsref.conformance.subject import Subject
from mpsref.conformance.subjects import (
    arithmetic,
    batch_normalization,
    convolution,
    dropout,
    loss,
    movement,
    neuron,
    normalization,
    optimizers,
    pooling,
    reduce,
    softmax,
    upsampling,
)

__all__ = ["SUBJECTS"]

FAMILIES = (
    arithmetic,
    batch_normalization,
    convolution,
    dropout,
    loss,
    movement,
    neuron,
    normalization,
    optimizers,
    pooling,
    reduce,
    softmax,
    upsampling,
)

SUBJECTS: Mapping[type[registry.Spec], Subject] = {
    spec_type: subject for family in FAMILIES for spec_type, subject in family.SUBJECTS.items()
}
