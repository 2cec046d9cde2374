"""Random graphs: their automatic gradients are central differences, and all backends agree."""

from __future__ import annotations

import pytest
from hypothesis import assume, given

from mpsref import registry
from tests import examples
from tests.mps.graph_checks import check_backends, check_gradients, check_program, check_sums, smooth
from tests.mps.graph_plans import Plan, plans

OTHERS = [name for name in ("cpu", "metal:clang") if registry.get_backend(name).unavailable() is None]


@examples(60)
@given(plans())
def test_sums_and_programs(plan: Plan) -> None:
    check_sums(plan)
    check_program(plan)


@examples(50)
@given(plans())
def test_gradients_are_central_differences(plan: Plan) -> None:
    assume(smooth(plan))
    check_gradients(plan)


@pytest.mark.skipif(not OTHERS, reason="no backend but the reference can run here")
@examples(30)
@given(plans())
def test_backends_agree(plan: Plan) -> None:
    assume(smooth(plan))
    check_backends(plan, OTHERS)
