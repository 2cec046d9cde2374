"""The table of the names in Apple's headers is complete and consistent."""

import json
from importlib import resources

import pytest

HEADERS = json.loads(resources.files("mpsref.mps").joinpath("headers.json").read_text(encoding="utf-8"))
KERNELS = ("MPSCNNPoolingMaxGradient", "MPSCNNConvolutionGradient", "MPSCNNDropout", "MPSNNOptimizerAdam", "MPSNNGraph")


def ancestors(name):
    while name in HEADERS["classes"]:
        yield name
        name = HEADERS["classes"][name]["super"]


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_derive_from_the_base_class(name):
    assert "MPSKernel" in ancestors(name)


def test_a_selector_has_a_colon_for_each_argument():
    kinds = HEADERS["classes"] | HEADERS["protocols"]
    methods = {selector: method for kind in kinds.values() for selector, method in kind["methods"].items()}
    assert len(methods) > 900
    assert not [selector for selector, method in methods.items() if selector.count(":") != len(method["arguments"])]


def test_names_arguments_and_numbers_of_a_sample():
    add = HEADERS["classes"]["MPSCNNAddGradient"]["methods"]["initWithDevice:isSecondarySourceFilter:"]
    assert [kind for _, kind in add["arguments"]] == ["id<MTLDevice>", "BOOL"]
    assert HEADERS["enumerations"]["MPSImageEdgeMode"]["MPSImageEdgeModeClamp"] == 1
    assert HEADERS["structs"]["MPSOffset"] == ["{MPSOffset=qqq}", ["x", "y", "z"]]
    assert "biasTerms" in HEADERS["protocols"]["MPSCNNConvolutionDataSource"]["methods"]
    assert HEADERS["conversions"]["MPSImage"]["readBytes:dataLayout:imageIndex:"]["2"]["type_modifier"] == "o"
