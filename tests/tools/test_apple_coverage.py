"""The page "Coverage", the names in Apple's headers, and the values of enumerations."""

from __future__ import annotations

import importlib.util
import json
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from mpsref import mps
from mpsref.mps import graph

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def coverage() -> ModuleType:
    spec = importlib.util.spec_from_file_location("apple_coverage", ROOT / "scripts/apple_coverage.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_name_is_lacking(coverage: Any) -> None:
    assert "## Lacking\n\nNothing.\n" in coverage.page()


def test_names_are_found_by_their_arguments(coverage: Any) -> None:
    pool = mps.MPSCNNPoolingMaxGradient
    of = coverage.of_mpsref
    assert of(pool, "initWithDevice:kernelWidth:kernelHeight:", "init") == "constructor"
    assert of(pool, "initWithDevice:kernelHeight:kernelWidth:", "init") == ""
    assert of(pool, "initWithDevice:kernelWidth:kernelDepth:", "init") == ""
    name = "encodeBatchToCommandBuffer:sourceGradients:sourceImages:gradientStates:"
    assert of(pool, name, "instance") == "encode_batch"
    assert of(pool, name.replace("gradientStates", "labels"), "instance") == ""
    assert of(pool, "sourceSize", "instance") == "source_size"
    assert of(pool, "sourceDepth", "instance") == ""
    step = "encodeToCommandBuffer:inputGradientVector:inputValuesVector:inputMomentumVector:resultValuesVector:"
    assert of(mps.MPSNNOptimizerStochasticGradientDescent, step, "instance") == "encode"
    assert of(mps.MPSNNOptimizerRMSProp, step, "instance") == ""


def test_a_method_counts_with_its_arguments_alone(coverage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(kind: Any, selector: str) -> str:
        return str(coverage.of_mpsref(kind, selector, "instance"))

    reload = "reloadWeightsAndBiasesWith"
    assert of(mps.MPSCNNConvolution, f"{reload}CommandBuffer:state:") == "reload_weights_and_biases"
    assert of(mps.MPSCNNConvolution, f"{reload}DataSource:") == ""
    assert of(mps.MPSImage, "readBytes:dataLayout:imageIndex:") == "read_bytes"
    assert of(mps.MPSImage, "readBytes:dataLayout:bytesPerRow:imageIndex:") == ""
    temporary = "temporaryImageWithCommandBuffer:"
    assert of(mps.MPSTemporaryImage, f"{temporary}imageDescriptor:") == "temporary_image_with_command_buffer"
    assert of(mps.MPSTemporaryImage, f"{temporary}textureDescriptor:") == ""
    update = "updateGammaAndBetaWithInstanceNormalizationStateBatch:"
    assert of(mps.InstanceNormalizationDataSource, update) == "update_gamma_and_beta"

    def unavailable(self: Any, state: Any, command_buffer: Any = None) -> NoReturn:
        raise NotImplementedError

    monkeypatch.setattr(mps.MPSCNNConvolution, "reload_weights_and_biases", unavailable)
    assert of(mps.MPSCNNConvolution, f"{reload}CommandBuffer:state:") == ""


def test_read_only_properties_are_found(coverage: Any) -> None:
    methods = {"setA:": {}, "a": {}, "setBackend:": {}}
    assert list(coverage.read_only("K", mps.MPSCNNNeuronReLU, methods)) == ["`K.a`"]
    assert list(coverage.read_only("K", mps.MPSNNNeuronDescriptor, methods)) == []
    methods = {"setOffset:": {}, "offset": {}, "setKernelWidth:": {}, "kernelWidth": {}}
    assert list(coverage.read_only("K", mps.MPSCNNPoolingMax, methods)) == ["`K.kernelWidth`"]


OTHERS = {"MPSCNNBatchNormalizationFlags.Default": "automatic"}
"""Members whose name is another in the headers."""


def enumerations() -> dict[str, type[Enum]]:
    found = {}
    for module in (mps, graph):
        for name in module.__all__:
            kind = getattr(module, name)
            if isinstance(kind, type) and issubclass(kind, Enum):
                found[name] = kind
    return found


@pytest.mark.parametrize("name", sorted(enumerations()))
def test_members_of_enumerations_have_the_values_of_apple(name: str) -> None:
    known = json.loads((ROOT / "mpsref/mps/headers.json").read_text("utf-8"))["enumerations"]
    if name not in known:
        pytest.skip(f"{name} is not in the headers of MPS")
    values = {key.removeprefix(name).lower(): value for key, value in known[name].items()}
    for member in enumerations()[name]:
        word = OTHERS.get(f"{name}.{member.name}", member.name.lower().rstrip("_"))
        assert member.value in [value for key, value in values.items() if key.endswith(word)], values
