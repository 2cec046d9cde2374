"""The golden results of Apple's kernels, read from ``golden.json`` and checked field by field.

The file has two parts. ``sources`` names the public repositories by key; ``entries`` holds one result a line, sorted by
id. Arrays are nested lists in which ``null`` was not published or not asserted and "NaN", "Infinity", "-Infinity"
stand for themselves; a large regular array is a cycle of values that fills a shape in C order.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair
from mpsref.arguments.text import shown
from mpsref.registry import Backend

Kind: TypeAlias = Literal["measured", "asserted", "relation"]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""From the strongest to the weakest evidence."""

RELATION_CASES = 20
"""Random cases drawn for a relation."""


class Source(NamedTuple):
    """Where an entry was published."""

    repository: str
    """On GitHub: owner/name."""
    paths: tuple[str, ...]
    note: str


class Values(NamedTuple):
    """Numbers of an entry in float64, and which of them are given: the others were not published or not asserted."""

    array: Array
    given: Array

    @classmethod
    def all_given(cls, array: Array) -> Values:
        """Return values that are all given."""
        return cls(array, np.ones(array.shape, bool))


@dataclass(frozen=True)
class Tolerance:
    """``|a - e| <= absolute + relative * |e|``, with the largest ``|e|`` for every element where ``of`` says so."""

    absolute: float
    relative: float
    of: Literal["element", "largest"] = "element"

    def limit(self, expected: Array) -> Array:
        """Return the largest difference allowed at each element."""
        magnitude = np.abs(expected)
        return self.absolute + self.relative * (magnitude.max() if self.of == "largest" else magnitude)


@dataclass(frozen=True, eq=False)
class Entry:
    """One published result: numbers (``inputs`` and ``expected``) or a relation (``choices`` to draw cases from)."""

    id: str
    kernels: tuple[str, ...]
    """Names of MPS classes; more than one where a source states the same of several kernels."""
    direction: Literal["forward", "gradient", "size", "property"]
    kind: Kind
    dtype: Literal["float16", "float32"] | None
    parameters: Mapping[str, Any]
    """In the names and the order (y, x) of mpsref, without those that the source leaves at their defaults."""
    tolerance: Tolerance
    device: str | None
    source: Source
    note: str
    inputs: Mapping[str, Values] = field(default_factory=dict)
    """Images (N, H, W, C), weights OHWI."""
    absent: tuple[str, ...] = ()
    """Inputs that are data files of the source, not included in this package."""
    expected: Mapping[str, Values] = field(default_factory=dict)
    origin: Literal["printed", "literal", "comment", "formula", ""] = ""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """The choices of each case of a relation: a list of values, or {"from", "to"} for a range of integers."""
    data: Mapping[str, list[float]] | None = None
    """Distribution of the values of a relation: {"uniform": [low, high]} or {"normal": [mean, deviation]}."""
    relation: str = ""

    def image(self, name: str) -> Array:
        """Return an input in the dtype of the entry."""
        return self.inputs[name].array.astype(self.dtype or "float32")

    def cases(self) -> Iterator[tuple[dict[str, Any], Callable[[Shape], Array]]]:
        """Draw the cases of a relation: the value of every choice, and a function from a shape to random float64."""
        rng = np.random.default_rng(zlib.crc32(self.id.encode()))
        (distribution, bounds), *_ = (self.data or {"normal": [0.0, 1.0]}).items()
        for _ in range(RELATION_CASES):
            case = {
                name: int(rng.integers(choice["from"], choice["to"] + 1))
                if isinstance(choice, dict)
                else choice[int(rng.integers(len(choice)))]
                for name, choice in self.choices.items()
            }
            yield case, lambda shape: np.asarray(getattr(rng, distribution)(*bounds, shape))


COMMON = {"id", "kernels", "direction", "kind", "dtype", "parameters", "tolerance", "device", "source", "note"}
NUMBERS = {"inputs", "expected", "origin"}
RELATION = {"choices", "data", "relation"}


def _fields(where: str, value: Any, required: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != required:
        found = set(value) if isinstance(value, dict) else set()
        raise ValueError(f"{where}: unknown fields {sorted(found - required)}, missing {sorted(required - found)}")
    return value


def _word(where: str, value: Any, legal: tuple[Any, ...]) -> Any:
    if value not in legal:
        raise ValueError(f"{where} is {shown(value)}; it must be one of {', '.join(map(repr, legal))}")
    return value


def _values(where: str, value: Any) -> Values:
    """Read nested lists, with ``null`` for what is not given, or a cycle of values that fills a shape in C order."""
    if isinstance(value, dict):
        cycle = _fields(where, value, {"shape", "cycle"})
        array = np.resize(np.array(cycle["cycle"], np.float64), cycle["shape"])
        return Values.all_given(array)
    nested = np.array(value, dtype=object)
    try:
        flat = [0.0 if number is None else float(number) for number in nested.flat]  # float reads "NaN", "-Infinity"
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} is not a regular array of numbers: {error}") from error
    given = np.array([number is not None for number in nested.flat], bool)
    return Values(np.array(flat, np.float64).reshape(nested.shape), given.reshape(nested.shape))


def _entry(raw: Any, sources: Mapping[str, Source]) -> Entry:
    where = f"entry {raw.get('id') if isinstance(raw, dict) else raw!r}"
    relation = isinstance(raw, dict) and raw.get("kind") == "relation"
    known = dict(_fields(where, raw, COMMON | (RELATION if relation else NUMBERS)))
    for name, legal in (
        ("direction", ("forward", "gradient", "size", "property")),
        ("kind", KINDS),
        ("dtype", ("float16", "float32", None)),
        ("source", tuple(sources)),
    ):
        _word(f"{where}: {name}", known[name], legal)
    tolerance = {"of": "element", **known["tolerance"]}
    known["tolerance"] = Tolerance(**_fields(f"{where}: tolerance", tolerance, {"absolute", "relative", "of"}))
    _word(f"{where}: tolerance of", known["tolerance"].of, ("element", "largest"))
    known["kernels"], known["source"] = tuple(known["kernels"]), sources[known["source"]]
    if not relation:
        _word(f"{where}: origin", known["origin"], ("printed", "literal", "comment", "formula"))
        inputs = known["inputs"]
        known["absent"] = tuple(name for name, value in inputs.items() if value is None)
        for part in ("inputs", "expected"):
            given = {name: value for name, value in known[part].items() if value is not None}
            known[part] = {name: _values(f"{where}: {part} {name}", value) for name, value in given.items()}
    return Entry(**known)


def parse(text: str) -> tuple[Entry, ...]:
    """Read the entries of a JSON text; raise ``ValueError`` for anything outside the format."""
    document = _fields("the document", json.loads(text), {"sources", "entries"})
    sources = {}
    for key, raw in document["sources"].items():
        known = _fields(f"source {shown(key)}", raw, set(Source._fields))
        sources[key] = Source(known["repository"], tuple(known["paths"]), known["note"])
    entries = tuple(_entry(raw, sources) for raw in document["entries"])
    ids = [entry.id for entry in entries]
    if ids != sorted(set(ids)):
        raise ValueError("entries are not sorted by id, or an id occurs twice")
    return entries


PROBES = "probes"
"""The folder of files that ``mpsref probe`` wrote on a Mac."""


@functools.cache
def load() -> tuple[Entry, ...]:
    """Return all entries, those of files in the folder ``probes`` included, sorted by id."""
    package = resources.files(__package__)
    files = [package.joinpath("golden.json")]
    if (folder := package.joinpath(PROBES)).is_dir():
        files += [file for file in folder.iterdir() if file.name.endswith(".json")]
    entries = [entry for file in files for entry in parse(file.read_text(encoding="utf-8"))]
    return tuple(sorted(entries, key=lambda entry: entry.id))


def by_id(id: str) -> Entry:
    """Return the entry of this id; raise ``ValueError`` for an unknown one."""
    for entry in load():
        if entry.id == id:
            return entry
    raise ValueError(f"no golden entry is called {shown(id)}; golden.load() lists them all")


class Comparison(NamedTuple):
    """A result of a backend and the golden values."""

    name: str
    got: Array
    expected: Values


Adapter: TypeAlias = Callable[[Entry, Backend], Iterator[Comparison]]
"""Runs an entry of one MPS class on a backend. For a relation, the adapter computes the CPU side without the code under
test."""


def over_windows(function: Callable[..., Array], x: Array, kernel: Pair, strides: Pair, pads: list[int]) -> Array:
    """Walk as CPU frameworks do: from the padding on, over what lies inside, while the window fits.

    ``function(window, axis=(1, 2))`` returns the result of a window.
    """
    spans = []
    for axis in (0, 1):
        last = x.shape[1 + axis] + pads[2 + axis] - kernel[axis]
        starts = range(-pads[axis], last + 1, strides[axis])
        spans.append([slice(max(start, 0), start + kernel[axis]) for start in starts])
    rows, columns = spans
    return np.stack([np.stack([function(x[:, r, c], axis=(1, 2)) for c in columns], 1) for r in rows], 1)


def node_output_size(entry: Entry, node: Any, backend: Backend) -> Comparison:
    """Compare the size of the result of a graph node with one source image."""
    from mpsref.mps import graph  # only these entries need it

    (source,) = node.source_images
    height, width = entry.inputs["source_size"].array.astype(int)
    shapes = graph.MPSNNGraph(node.result_image, backend=backend).infer_shapes({source: (1, height, width, 1)})
    size = np.array(shapes[node.result_image][1:3], np.float64)
    return Comparison(f"{type(node).__name__}: output size", size, entry.expected["output_size"])
