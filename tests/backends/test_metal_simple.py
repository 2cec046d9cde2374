"""The plain kernels in ``msl/simple``: second opinions, under all checks of anymetal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import anymetal
from mpsref.conformance import check
from mpsref.conformance.checker import random_cases
from mpsref.conformance.runner import run_case
from mpsref.operations import Operation
from mpsref_metal import simple
from mpsref_metal.launch import SOURCES
from tests import few

pytestmark = pytest.mark.skipif(simple.backend.unavailable() is not None, reason="no clang")

TEXTURES = Path(__file__).with_name("test_simple_textures.py")

FILES = {path.stem: path.read_text() for path in (SOURCES / "simple").glob("*.metal")}

MISTAKES = (
    ("pooling_average", "- axis.taps / 2", "- (axis.taps - 1) / 2", "PoolingAverage.gradient"),
    ("pooling_average", "axis.length - 1 + axis.zero_pad", "axis.length - 1", "PoolingAverage.forward"),
    ("pooling_average", "(N(rows, a) * N(columns, b))", "(rows.taps * columns.taps)", "PoolingAverage.gradient"),
    ("pooling_max", "value > best.value", "value >= best.value", "PoolingMax.gradient"),
    ("pooling_max", "+ t * axis.dilation", "+ t", "PoolingMax.forward"),
    ("pooling_l2norm", "upstream * times", "upstream", "PoolingL2Norm.gradient"),
    ("pooling_l2norm", "if (y > 0) sum", "sum", "PoolingL2Norm.gradient"),
    ("convolution_forward", "+ first + c", "+ c", "Convolution.forward"),
    ("convolution_gradient_data", "rows.taps + t)", "rows.taps + rows.taps - 1 - t)", "Convolution.gradient_data"),
    ("convolution_gradient_weights", "< channels.images", "< 1", "Convolution.gradient_weights"),
    ("batch_normalization", "m2[c] = squares", "m2[c] = squares / pixels", "BatchNormalization.statistics"),
    ("batch_normalization", "+ epsilon)", ") + epsilon", "BatchNormalization.forward"),
    ("batch_normalization_gradient", " + xhat * dgamma[c]", "", "BatchNormalization.gradient"),
    ("softmax", "(upstream[c] - sum)", "upstream[c]", "SoftMax.gradient"),
    ("upsampling_bilinear", "if (axis.clamps && j", "if (j", "UpsamplingBilinear.gradient"),
    ("dropout", "i < 10", "i < 9", "Dropout.mask"),
    ("dropout", "4 * block + k < drawing.elements", "true", "Dropout.mask"),
)


def named(name: str) -> Operation:
    return next(one for key in simple.backend.implementations if str(one := Operation(*key)) == name)


OPERATIONS = [Operation(*key) for key in simple.backend.implementations]


@pytest.mark.parametrize("operation", few(OPERATIONS[::2] + OPERATIONS[1::2], 6), ids=str)
def test_agrees_with_the_reference(operation: Operation) -> None:
    report = check([simple.backend], [operation], number=12)
    assert not report.failures, report.failures[-1].message
    assert report.rows[0].cases >= 5, "most of the small random problems run"


@pytest.mark.slow
@pytest.mark.parametrize(("file", "right", "wrong", "operation"), MISTAKES)
def test_a_mistake_is_found(file: str, right: str, wrong: str, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert right in FILES[file]
    mistaken, plain = anymetal.compile(FILES[file].replace(right, wrong)), simple._library
    monkeypatch.setattr(simple, "_library", lambda name: mistaken if name == file else plain(name))
    cases = random_cases(named(operation), simple.backend.dtypes, 30, 0)
    failed = next(found for case in cases if (found := run_case(case, simple.backend)).status == "failed")
    assert ("raised" in failed.message) == (wrong == "true"), "only this mistake writes outside of an array"


def test_each_file_stands_alone() -> None:
    for name, text in FILES.items():
        assert re.findall(r"#include (.*)", text) == ["<metal_stdlib>"], name
        code = re.sub("//.*", "", text)
        if name.endswith("_texture"):  # texels are half, sums are not; it is no operation, and has a test of its own
            assert {*re.findall(r"(\w+) sum\b", code)} in ({"float"}, {"float4"}), name
            assert f'launch("{name}"' in TEXTURES.read_text("utf-8"), name
        else:
            assert "half" not in code, name
        assert len(text.splitlines()) <= 60, name
