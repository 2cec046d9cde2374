"""Faults planted in the MSL of this project, one at a time: each must be an error."""

from __future__ import annotations

import re
import shutil
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

import mpsref_metal
from anymetal import CompileError, LaunchError, clang
from mpsref import registry
from mpsref.conformance.case import Case
from mpsref_metal import convolution, launch
from mpsref_metal.launch import SOURCES
from tests import few

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

PLACES = [
    pytest.param(
        file.stem,
        found.span(),
        id=f"{file.stem}:{text.count(chr(10), 0, found.start()) + 1}",
        marks=[pytest.mark.slow] * (file.stem not in ("batch_normalization", "held_groups")),
    )
    for file in sorted(SOURCES.glob("*.metal"))
    for text in [file.read_text("utf-8")]
    for found in re.finditer(r"\bthreadgroup_barrier\b", text)
]

BATCH = "BatchNormalization.statistics:n1h96w96c1"
CHANNELS = "CrossChannelNormalization.forward:n1h1w1c500,k9"
GROUP = "GroupNormalization.gradient:n1h17w4c130,scaled"
HELD = "GroupNormalization.forward:n1h7w9c64,g2"
FEW = "GroupNormalization.forward:n1h1w3c64,g2"
PRODUCTS = "Convolution.forward:n1h8w16c32,k1x1,co64"
OF_DATA = "Convolution.gradient_data:n1h8w16c32,k1x1,co64"
OF_WEIGHTS = "Convolution.gradient_weights:n1h8w16c32,k1x1,co64"

AT_BARRIERS = {
    "batch_normalization": (BATCH, "BatchNormalization.statistics_gradient:n1h96w96c1"),
    "convolution_tiles": (PRODUCTS,),
    "cross_channel_normalization": (CHANNELS, "CrossChannelNormalization.gradient:n1h1w1c500,k9"),
    "group_normalization": (GROUP,),
    "held_groups": (HELD,),
    "weight_tiles": (OF_WEIGHTS,),
}
"""For each file the cases that reach its barriers."""


class Plant(NamedTuple):
    """The kind of error in a case if the first ``old`` of a file is ``new``; it is in that file or in ``tiles``."""

    kind: str
    case: str
    file: str
    old: str
    new: str = ""


BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
NONE = "threadgroup_barrier(mem_flags::mem_none);"
DEVICE = "threadgroup_barrier(mem_flags::mem_device);"
OWN = "    Moments own = {0, Values(0.0f), Values(0.0f)};\n"
FETCH = "    Held held = fetch(x, place, slabs);\n"
ZEROS = "    put_zeros(squares, member, sizes);\n"
LARGE = "n1h182w182"
"""More than 2**15 pixels."""

PLANTS = (
    # No barrier between simdgroups.
    Plant("race", BATCH, "batch_normalization", BARRIER),
    Plant("race", CHANNELS, "cross_channel_normalization", BARRIER),
    Plant("race", HELD, "held_groups", BARRIER),
    # No barrier between two phases of a matrix tile: the third fills the tile that is multiplied.
    Plant("race", PRODUCTS, "convolution_tiles", BARRIER),
    Plant("race", OF_WEIGHTS, "weight_tiles", BARRIER),
    Plant("race", OF_DATA, "convolution_tiles", "half_of = 1 - half_of;"),
    # A barrier of other memory.
    Plant("fence", BATCH, "batch_normalization", BARRIER, NONE),
    Plant("fence", CHANNELS, "cross_channel_normalization", BARRIER, DEVICE),
    Plant("fence", OF_WEIGHTS, "weight_tiles", BARRIER, NONE),
    # One past threadgroup memory. All of it is static.
    Plant("out-of-bounds", BATCH, "batch_normalization", "n_of[group_size]", "n_of[group_size - 1]"),
    Plant("out-of-bounds", GROUP, "group_normalization", "of_members[member ^ step]", "of_members[member + step]"),
    Plant("out-of-bounds", PRODUCTS, "tiles", "k < TILE_K", "k <= TILE_K"),
    # Threadgroup memory that is read and not written.
    Plant("uninitialized", BATCH, "batch_normalization", "if (member % step == 0)", "if (member % (2 * step) == 0)"),
    Plant("uninitialized", CHANNELS, "cross_channel_normalization", ZEROS),
    Plant("uninitialized", HELD, "held_groups", "if (lane < slabs.columns)", "if (lane + 1 < slabs.columns)"),
    # A return before a barrier.
    Plant("divergent-barrier", BATCH, "batch_normalization", OWN, f"    if (member >= batch.chunks) return;\n{OWN}"),
    Plant(
        "divergent-barrier", CHANNELS, "cross_channel_normalization", ZEROS, f"    if (!place.exists) return;\n{ZEROS}"
    ),
    Plant("divergent-barrier", FEW, "held_groups", FETCH, f"    if (place.row >= slabs.pixels) return;\n{FETCH}"),
    # An index of 16 bits.
    Plant("truncation", f"Concatenation.forward:{LARGE},c1x1", "concatenation", "uint pixel", "short pixel"),
    Plant("truncation", f"Reshape.forward:{LARGE}c1,size91x364x1,CHW", "reshape", "uint element =", "short element ="),
    Plant(
        "truncation",
        f"Neuron.parameter_gradient:{LARGE}c1,prelu,data0.5",
        "neuron_kernels",
        "uint pixel =",
        "short pixel =",
    ),
)

CONSTANT = "constant constexpr uint LONGEST = 1024;", "constant uint LONGEST [[function_constant(0)]];"
"""A constant of `tiles`, which becomes a function constant that the host does not set."""

FIRST = {one.kind: one for one in reversed(PLANTS)}.values()
"""A plant of each kind."""

CASES = dict.fromkeys([*chain(*AT_BARRIERS.values()), *(one.case for one in PLANTS), PRODUCTS])


def run(checked: bool, *cases: str) -> None:
    """Run cases on a backend that has not compiled anything yet."""
    backend = mpsref_metal.backend_on("metal:planted", clang, sanitize=checked, check_order=not checked)
    for case in map(Case.parse, cases):
        registry.run(case.problem, *case.inputs(), backend=backend)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the MSL sources, which new backends compile; tiles have several simdgroups."""
    monkeypatch.setattr(convolution, "_tiling", lambda *arguments: (64, 128, 1))
    monkeypatch.setattr(launch, "SOURCES", tmp_path / "msl")
    return Path(shutil.copytree(SOURCES, tmp_path / "msl"))


def plant(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")


@pytest.mark.parametrize("case", few([*CASES], 2))
@pytest.mark.parametrize("checked", few([True, False], 1))
def test_nothing_is_found_without_a_plant(case: str, checked: bool, planted: Path) -> None:
    run(checked, case)


def test_variables_that_ended_in_a_launch_are_not_those_of_the_next(planted: Path) -> None:
    case = "GroupNormalization.forward:n1h1w1c3,eps1e-05,float32,exact,seed=0"
    run(True, case, case, case)


@pytest.mark.parametrize(("file", "place"), PLACES)
def test_a_barrier_of_a_simdgroup_is_too_weak(file: str, place: tuple[int, int], planted: Path) -> None:
    source = planted / f"{file}.metal"
    text = source.read_text("utf-8")
    source.write_text(f"{text[: place[0]]}simdgroup_barrier{text[place[1] :]}", "utf-8")
    with pytest.raises(LaunchError, match="depends on the order of its threads"):
        run(False, *AT_BARRIERS[file])


@pytest.mark.parametrize(
    "one",
    few([*FIRST, *(one for one in PLANTS if one not in FIRST)], 3),
    ids=lambda one: f"{one.kind}-{one.file}",
)
def test_the_checks_find_a_plant(one: Plant, planted: Path) -> None:
    plant(planted / f"{one.file}.metal", one.old, one.new)
    with pytest.raises(LaunchError) as caught:
        run(True, one.case)
    errors = [(each.kind, each.place.file) for each in caught.value.findings if each.level == "error" and each.place]
    assert any(kind == one.kind and one.file.endswith(Path(file).stem) for kind, file in errors), errors


@pytest.mark.slow
def test_the_compiler_finds_a_function_constant_without_a_value(planted: Path) -> None:
    plant(planted / "tiles.metal", *CONSTANT)
    with pytest.raises(CompileError, match="no value for the function constant `LONGEST`"):
        run(True, PRODUCTS)
