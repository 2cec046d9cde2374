"""Golden results: input and output pairs of Apple's own kernels, measured on Apple hardware and published by others.

``golden.json`` holds every numeric result of an MPS CNN kernel found in public sources, one entry a line. None was
measured by this project. The strength of an entry as evidence depends on its ``kind``:

measured   the source prints the output of MPS
asserted   a public test requires it of MPS, and is reported or maintained as passing: its tolerance is what is proven
relation   no numbers; random data within stated ranges agree with a CPU result within a tolerance: good evidence for
           geometry, weak for digits

and on the ``origin`` of its numbers: "printed", "literal" (of a test), "comment", or "formula" (the source reports the
largest distance between MPS and this formula on these inputs; the numbers are those of the formula). Entries of dtype
``None`` do not say whether their images were float16 or float32; they run in float32.

Files that ``mpsref probe`` wrote on a Mac are golden entries too, in the folder ``probes``: measured by their senders.

Each family of :mod:`mpsref.conformance` has an adapter for each MPS class, which turns an entry into calls.

>>> from mpsref.conformance import golden
>>> entry = golden.by_id("pool-average-k2-default-edge-dest2")
>>> entry.expected["y"].array[0, :, :, 0].tolist()
[[0.25, 0.75], [1.25, 3.0]]
>>> golden.compare(entry, "reference").status
'agree'
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from mpsref.arguments.text import shown
from mpsref.conformance import families
from mpsref.conformance.golden_entries import KINDS, Comparison, Entry, Kind, Tolerance, by_id, load
from mpsref.errors import UnsupportedError, loaded
from mpsref.registry import Backend, get_available, get_backend

__all__ = [
    "KNOWN_DIFFERENCES",
    "Entry",
    "Result",
    "Status",
    "SummaryRow",
    "by_id",
    "compare",
    "load",
    "run",
    "summary",
    "unexpected",
]

Status: TypeAlias = Literal["agree", "disagree", "not implemented yet", "not applicable"]

STATUSES: tuple[Status, ...] = get_args(Status)
"""In the order of the columns of the table."""

_PADDING_CHANNEL = (
    "padding channels are 0 here; on the hardware the last one of a source with one or two channels reads 1, "
    "the alpha that a one- or two-component texture lacks"
)
KNOWN_DIFFERENCES: dict[str, str] = {
    **{f"concatenation-{sources}": _PADDING_CHANNEL for sources in ("1", "1-1", "1-4", "2", "2-2", "3-1")},
    "graph-addition-node-primary-scale-2": "MPSNNGraph of that release ignores the primary scale of an addition node; "
    "it is documented to count, and counts here",
    "resize-bilinear-aligned-corner-float16": "that GPU truncates where it stores float16; here a store rounds to the "
    "nearest, ties to even",
    "size-convolution-transpose-k4-s2-metaltensors": "a unit test asserts stride x length with its policy; "
    'here it is the size that Apple documents for "same" of a reverse kernel, (length - 1) x stride + 1',
    "upsampling-bilinear-2x-macos-10.13": "macOS 10.13 sampled at half-pixel centres; here, as since macOS 10.14, "
    "output i reads position i / scale",
}
"""Entries from which mpsref differs on purpose, by id, each with the reason."""


@dataclass(frozen=True)
class Result:
    """The outcome of one entry on one backend."""

    entry: Entry
    backend: str
    status: Status
    reason: str = ""
    """For a disagreement, the known reason or the worst element; otherwise the kernels left out, if any."""
    worst: float | None = None
    """The largest difference as a fraction of the tolerance; ``None`` where nothing was compared."""

    unexpected: bool = False
    """Whether it disagrees without being a known difference, or agrees although it is one."""


def compare(entry: Entry, backend: str | Backend | None = None) -> Result:
    """Run a golden entry on a backend and compare within the tolerance that its source proves.

    Elements that the source does not give are skipped. A backend with fast math also skips NaN and infinite ones.

    Parameters
    ----------
    entry
        A golden entry, as :func:`load` and :func:`by_id` return it.
    backend
        The backend, or its name; ``None`` is the current default.

    Returns
    -------
    Result
        Status, reason, and the largest difference as a fraction of the tolerance.
    """
    chosen = get_backend(backend)
    result = functools.partial(Result, entry, chosen.name)
    if entry.absent:
        return result("not applicable", f"input {entry.absent[0]!r} is a data file that is no part of this package")
    if (dtype := entry.dtype or "float32") not in chosen.dtypes:
        return result("not applicable", f"backend {chosen.name!r} takes {', '.join(chosen.dtypes)}, not {dtype}")
    differences: list[_Difference] = []
    missing: dict[str, str] = {}
    adapters = (
        dict.fromkeys(entry.kernels, _replay_probe) if "probe" in entry.parameters else families.golden_adapters()
    )
    for kernel in entry.kernels:
        if kernel not in adapters:
            missing[kernel] = f"{kernel} has no counterpart here yet"
            continue
        try:
            differences += [
                _difference(pair, entry.tolerance, chosen.fast_math) for pair in adapters[kernel](entry, chosen)
            ]
        except UnsupportedError as error:
            missing[kernel] = str(error)
    left_out = "; ".join(missing.values())
    if len(missing) == len(entry.kernels):
        return result("not implemented yet", left_out)
    if not any(difference.compared for difference in differences):
        return result("not applicable", "every value is NaN or infinite, and fast math has neither")
    worst = max(differences, key=lambda difference: difference.fraction)
    listed = KNOWN_DIFFERENCES.get(entry.id)
    if worst.fraction > 1:
        # A listed difference is one of numbers: it excuses no NaN and no wrong shape.
        excused = listed if all(difference.of_numbers for difference in differences) else None
        return result("disagree", excused or worst.text, worst.fraction, unexpected=not excused)
    if listed:
        reason = "listed as a known difference, but agrees: take it off the list"
        return result("agree", reason, worst.fraction, unexpected=True)
    return result("agree", f"only in part: {left_out}" if missing else "", worst.fraction)


def _replay_probe(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run a problem of the probe, which the package that has the probe replays."""
    (replay,) = [loaded(point) for point in metadata.entry_points(group="mpsref.golden", name="probe")]
    id, number = entry.parameters["probe"], entry.parameters["problem"]
    expected = entry.expected["result"]
    result = replay(id, number, backend)
    yield Comparison(f"{id}, problem {number}", result.reshape(expected.array.shape), expected)


class _Difference(NamedTuple):
    fraction: float
    text: str
    compared: int
    of_numbers: bool
    """Whether the shape is right, and every element that is finite there is finite here."""


def _difference(pair: Comparison, tolerance: Tolerance, finite_only: bool) -> _Difference:
    """Find the element with the largest difference, as a fraction of its tolerance."""
    where, got, (expected, given) = pair
    if got.shape != expected.shape:
        return _Difference(np.inf, f"{where} has shape {got.shape} here, {expected.shape} on the hardware", 1, False)
    use = given & np.isfinite(expected) if finite_only else given
    got = got.astype(np.float64)
    equal = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = np.abs(got - expected) / tolerance.limit(expected)
    fraction[np.isnan(fraction)] = np.inf  # a NaN or an infinity on one side alone is no agreement
    fraction[equal | ~use] = 0
    if not fraction.size:
        return _Difference(0.0, "", 0, True)
    at = np.unravel_index(int(fraction.argmax()), fraction.shape)
    text = f"{where}[{', '.join(map(str, at))}] is {got[at]:.9g} here, {expected[at]:.9g} on the hardware"
    of_numbers = bool((np.isfinite(got) | ~np.isfinite(expected) | ~use).all())
    how_far = f"{text}: {fraction[at]:.3g} times the tolerance"
    return _Difference(float(fraction[at]), how_far, int(use.sum()), of_numbers)


def run(backends: str | Backend | Iterable[str | Backend], kernels: Iterable[str] | None = None) -> list[Result]:
    """Compare golden entries on each of the backends.

    Parameters
    ----------
    backends
        Backends, or their names.
    kernels
        Names of Apple's classes; ``None`` stands for all.

    Returns
    -------
    list of Result
        One for each backend and entry.

    Raises
    ------
    ValueError
        A kernel has no entry.
    UnsupportedError
        A backend is not available.
    """
    entries, chosen = load(), get_available(backends)
    if kernels is not None:
        wanted, known = list(kernels), {kernel for entry in entries for kernel in entry.kernels}
        for name in wanted:
            if name not in known:
                raise ValueError(
                    f"no published result is of kernel {shown(name)}; there are some of {', '.join(sorted(known))}"
                )
        entries = tuple(entry for entry in entries if set(wanted) & set(entry.kernels))
    return [compare(entry, backend) for backend in chosen for entry in entries]


def unexpected(results: Iterable[Result]) -> list[Result]:
    """Return the results that must fail a run: unlisted disagreements, and listed differences that agree."""
    return [result for result in results if result.unexpected]


class SummaryRow(NamedTuple):
    """A line of the table: the number of entries of a kernel and kind by status, over all backends."""

    kernel: str
    kind: Kind
    counts: Mapping[Status, int]
    reasons: tuple[str, ...]
    """For each entry that disagrees or does not apply: its id, its backends and the reason."""


def summary(results: Iterable[Result]) -> list[SummaryRow]:
    """Count entries by kernel and kind.

    An entry that ran on several backends counts once: as disagreeing if it disagrees on one of them, else as agreeing
    if it agrees on one of them.
    """
    by_entry: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_entry[result.entry.id].append(result)
    rows: dict[tuple[str, int], tuple[dict[Status, int], list[str]]] = {}
    precedence: tuple[Status, ...] = ("disagree", "agree", "not applicable", "not implemented yet")
    for id, of_entry in by_entry.items():
        entry = of_entry[0].entry
        key = ", ".join(entry.kernels), KINDS.index(entry.kind)
        counts, reasons = rows.setdefault(key, (dict.fromkeys(STATUSES, 0), []))
        counts[min((result.status for result in of_entry), key=precedence.index)] += 1
        because: dict[str, list[str]] = defaultdict(list)
        for result in of_entry:
            if result.unexpected or result.status in ("disagree", "not applicable"):
                because[result.reason].append(result.backend)
        reasons += [f"{id} ({', '.join(backends)}): {reason}" for reason, backends in because.items()]
    return [
        SummaryRow(kernel, KINDS[kind], counts, tuple(reasons))
        for (kernel, kind), (counts, reasons) in sorted(rows.items())
    ]
