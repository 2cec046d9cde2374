"""Names of before, until every family has moved."""

from collections.abc import Callable

from mpsref.arguments.arrays import Array
from mpsref.conformance.mutants import Mutant as Fault
from mpsref.conformance.mutants import correct as honest
from mpsref.conformance.mutants import correct_results as honest_results
from mpsref.conformance.mutants import of_problem, of_result, of_results, with_spec

__all__ = ["Fault", "Formula", "honest", "honest_results", "of_problem", "of_result", "of_results", "with_spec"]

Formula = Callable[..., Array]
