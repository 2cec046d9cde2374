"""A newcomer follows the page on backends to their own wrong Metal kernel, caught, and to its failing case."""

from pathlib import Path

import pytest

from anymetal import clang
from tests.tools.test_docs import run_cells

PAGE = Path(__file__).parents[2] / "docs" / "adding_a_backend.md"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable())),
]


@pytest.mark.usefixtures("few_layers")
def test_the_page_as_it_is(capsys, request):
    names = run_cells(PAGE)
    output = capsys.readouterr().out
    request.getfixturevalue("unshrunk")  # from here on
    wrong = names["check"]([names["backend_of"](names["source"])], names["operations"][1:], number=30)
    (failure,) = [one for one in wrong.failures if one.is_random]
    assert repr(wrong).startswith("<Report: 1 failed")
    assert failure.case in repr(wrong)
    assert "gathers gradient rows" in failure.message
    assert "the reference says" in failure.message
    assert names["case"].problem.source_shape[1] <= 3, "a case that one follows by hand"
    assert "window" in output.lower()
    assert names["right"] != names["source"], "the page asserts that the mended kernel is right"
