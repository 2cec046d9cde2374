"""The bug bench: published wrong results of frameworks as backends, each of which the check must detect.

Each defect is implemented again from its published mechanism, on top of the reference. ``mpsref bugs`` runs the check
with its default settings on every one. :data:`FINDINGS` are defects of released frameworks with a script for each.

>>> from mpsref.bugs import BUGS, run
>>> found = run(next(bug for bug in BUGS if bug.issue == "huggingface/candle#3727"))
>>> found.detected, found.case.split(":")[0]
(True, 'SoftMax.forward')
"""

from __future__ import annotations

import time
from typing import NamedTuple

from mpsref.bugs import convolution, half, memory, mpsgraph, normalization, pooling, probabilities, sizes, upsampling
from mpsref.bugs.bug import Bug
from mpsref.bugs.findings import FINDINGS, Finding
from mpsref.bugs.known import Confirmation, confirm, without_defects
from mpsref.conformance import CASES, check

__all__ = ["BUGS", "FINDINGS", "Bug", "Confirmation", "Finding", "Found", "confirm", "run", "without_defects"]

BUGS: tuple[Bug, ...] = (
    *pooling.BUGS,
    *convolution.BUGS,
    *normalization.BUGS,
    *upsampling.BUGS,
    *mpsgraph.BUGS,
    *sizes.BUGS,
    *memory.BUGS,
    *half.BUGS,
    *probabilities.BUGS,
)
"""The catalogue, by kernel."""


class Found(NamedTuple):
    """The result of :func:`run`."""

    bug: Bug
    detected: bool
    seconds: float
    """Time of the check, with the search for the smallest case."""
    layers: int
    """Number of layers of published networks that show the defect."""
    case: str
    """The smallest case that shows the defect."""
    message: str


def run(bug: Bug, number: int = CASES, seed: int = 0) -> Found:
    """Check the backend that has a defect.

    Parameters
    ----------
    bug : Bug
        The defect.
    number, seed : int, optional
        Number of random cases, and their seed; default: those of :func:`mpsref.conformance.check`.

    Returns
    -------
    Found
        Whether the check detected it, and the smallest case that shows it.
    """
    start = time.perf_counter()
    report = check([bug.backend], [bug.operation], number, seed)
    seconds = time.perf_counter() - start
    failures = report.failures
    case, message = (str(failures[-1].case), failures[-1].message) if failures else ("", "")
    return Found(bug, bool(failures), seconds, sum(bool(failure.layer) for failure in failures), case, message)
