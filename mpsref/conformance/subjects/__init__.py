"""Which kernels are under test: a table for each family."""

from __future__ import annotations

from collections.abc import Mapping

from mpsref import registry
from mpsref.conformance.families import modules_of
from mpsref.conformance.subject import Subject

__all__ = ["SUBJECTS"]

FAMILIES = modules_of(__name__)

SUBJECTS: Mapping[type[registry.Spec], Subject] = {
    spec_type: subject for family in FAMILIES for spec_type, subject in family.SUBJECTS.items()
}
