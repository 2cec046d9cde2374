"""The MSL of this project with one barrier too weak at a time: each must be an error."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mpsref
import mpsref_metal
from anymetal import LaunchError, clang
from mpsref.arguments.arrays import Array
from mpsref_metal import convolution, launch
from mpsref_metal.launch import SOURCES

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

PLACES = [
    pytest.param(file.stem, found.span(), id=f"{file.stem}:{text.count(chr(10), 0, found.start()) + 1}")
    for file in sorted(SOURCES.glob("*.metal"))
    for text in [file.read_text("utf-8")]
    for found in re.finditer(r"\bthreadgroup_barrier\b", text)
]


def values(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def of_a_batch(backend: mpsref.Backend) -> None:
    spec, x, one = mpsref.BatchNormalization(), values(1, 96, 96, 1), np.ones(1, np.float32)
    spec.statistics(x, backend=backend)
    spec.statistics_gradient(x, x, one, one, backend=backend)


def across_channels(backend: mpsref.Backend) -> None:
    spec, x = mpsref.CrossChannelNormalization(9), values(1, 1, 1, 500)
    spec.forward(x, backend=backend)
    spec.gradient(x, x, backend=backend)


def of_a_group(backend: mpsref.Backend) -> None:
    x = values(1, 17, 4, 130)
    mpsref.GroupNormalization(1).gradient(x, x, values(130), backend=backend)


def products(backend: mpsref.Backend) -> None:
    mpsref.Convolution(1).forward(values(1, 8, 16, 32), values(64, 1, 1, 32), backend=backend)


def products_of_gradients(backend: mpsref.Backend) -> None:
    mpsref.Convolution(1).gradient_weights(values(1, 8, 16, 64), values(1, 8, 16, 32), backend=backend)


def held(backend: mpsref.Backend) -> None:
    mpsref.GroupNormalization(2).forward(values(1, 7, 9, 64), values(64), values(64), backend=backend)


CASES: dict[str, Callable[[mpsref.Backend], None]] = {
    "batch_normalization": of_a_batch,
    "convolution_tiles": products,
    "cross_channel_normalization": across_channels,
    "group_normalization": of_a_group,
    "held_groups": held,
    "weight_tiles": products_of_gradients,
}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the MSL sources, which backends made by ``backend_on`` compile; tiles have several simdgroups."""
    monkeypatch.setattr(convolution, "_tiling", lambda *arguments: (64, 128, 1))
    monkeypatch.setattr(launch, "SOURCES", tmp_path / "msl")
    return Path(shutil.copytree(SOURCES, tmp_path / "msl"))


@pytest.mark.parametrize("file", CASES)
def test_the_barriers_suffice(file: str, planted: Path) -> None:
    CASES[file](mpsref_metal.backend_on("metal:clang", clang))


@pytest.mark.parametrize(("file", "place"), PLACES)
def test_a_barrier_of_a_simdgroup_is_too_weak(file: str, place: tuple[int, int], planted: Path) -> None:
    source = planted / f"{file}.metal"
    text = source.read_text("utf-8")
    source.write_text(f"{text[: place[0]]}simdgroup_barrier{text[place[1] :]}", "utf-8")
    with pytest.raises(LaunchError, match="depends on the order of its threads"):
        CASES[file](mpsref_metal.backend_on("metal:clang", clang))
