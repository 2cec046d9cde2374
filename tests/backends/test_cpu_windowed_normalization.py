"""Chunks of the windowed normalizations: images with more rows than a chunk, and a rest."""

import pytest

from mpsref import LocalContrastNormalization
from mpsref.conformance.case import Case
from mpsref.conformance.runner import run_case
from mpsref.registry import get_backend
from mpsref_cpu.normalization.window_sums import RowChunks


@pytest.mark.parametrize("operation", ["forward", "gradient"])
@pytest.mark.parametrize("kernel", ["LocalContrastNormalization", "SpatialNormalization"])
def test_the_last_chunk_has_the_remaining_rows(kernel, operation):
    case = Case.parse(f"{kernel}.{operation}:n2h37w50c48,k3x5,float32,seed=1")
    chunks = RowChunks.of(case.problem)
    assert chunks.number > 1
    assert 37 % chunks.rows
    outcome = run_case(case, get_backend("cpu"))
    assert outcome.status == "passed", outcome.message


def test_the_most_terms_in_sequence_are_those_of_a_column_and_a_row():
    problem = LocalContrastNormalization((3, 5)).problems["forward"](LocalContrastNormalization((3, 5)), (1, 9, 9, 1))
    assert RowChunks.of(problem).most_terms == 3 + 5
