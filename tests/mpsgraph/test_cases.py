"""The functions of MPSGraph give the expected results of cases made by PyTorch and by definition, on three backends."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpsref import mpsgraph
from mpsref.arguments.arrays import Array
from mpsref.mpsgraph.function import FUNCTIONS

CASES = {case["id"]: case for case in json.loads((Path(__file__).parent / "cases.json").read_text("utf-8"))["cases"]}


def tensor(given: Any) -> Array:
    if isinstance(given, str):  # zeros (N, H, W, C): only its shape counts
        return np.zeros([int(n) for n in re.findall(r"\d+", given)][:4], np.float32)
    values = [np.nan if value is None else value for value in given["data"]]
    return np.array(values, np.float32).reshape(given["shape"])


def call(name: str, case: dict[str, Any], backend: str, **more: Any) -> Any:
    """Call a function with the inputs and parameters that it has; the others belong to the descriptor."""
    names = inspect.signature(FUNCTIONS[name].call).parameters
    given: dict[str, Any] = {key: tensor(value) for key, value in case["inputs"].items()}
    if "indices" in given:
        given["indices"] = given["indices"].astype(np.int32)
    parameters = dict(case["parameters"])
    if "descriptor" in names:
        kind = (
            mpsgraph.Pooling2DOpDescriptor if "pooling" in name else
            mpsgraph.DepthwiseConvolution2DOpDescriptor if "depthwise" in name else mpsgraph.Convolution2DOpDescriptor
        )  # fmt: skip
        of = {key: parameters.pop(key) for key in list(parameters) if key not in names and key != "name"}
        given["descriptor"] = kind(**of)
    known = {key: value for key, value in {**given, **parameters, **more}.items() if key in names}
    return FUNCTIONS[name].call(**known, backend=backend)


def results(case: dict[str, Any], backend: str) -> dict[str, Any]:
    operation, parameters = case["operation"], case["parameters"]
    if "normalization" in operation:
        axes, of_gamma = parameters["axes"], parameters["gradient_reduction_axes"]
        x = tensor(case["inputs"]["source"])
        found = {"mean": mpsgraph.mean_of_tensor(x, axes, backend=backend)}
        found["variance"] = mpsgraph.variance_of_tensor(x, axes, backend=backend)
        given = found["mean"], found["variance"]
        again = mpsgraph.variance_of_tensor(x, axes, found["mean"], backend=backend)
        np.testing.assert_allclose(again, found["variance"], rtol=1e-5)
        found["result"] = call("normalization", case, backend, tensor=x, mean=given[0], variance=given[1])
        gradient = {"mean": given[0], "variance": given[1], "reduction_axes": of_gamma}
        for name in ("gamma_gradient", "beta_gradient"):
            found[name] = call(f"normalization_{name}", case, backend, **gradient)
        sums = {name: found[name] for name in ("gamma_gradient", "beta_gradient")}
        found["source_gradient"] = call("normalization_gradient", case, backend, **gradient, **sums)
        return found
    if "reduction_type" in parameters:
        name = operation.split(" ")[0]
        return {kind: call(name, case, backend, reduction_type=kind) for kind in case["expected"]}
    first, _, second = operation.partition(" and ")
    if second:
        return {"result": call(first, case, backend), "gradient_result": call(second, case, backend)}
    if first.endswith(" (indices)"):
        first = first.replace(" (indices)", "_from_indices")
    return {"result": call(first, case, backend)}


@pytest.mark.parametrize("backend", ["reference", "cpu", "metal:clang"])
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, backend: str) -> None:
    found = results(CASES[name], backend)
    assert set(found) == set(CASES[name]["expected"])
    for key, expected in CASES[name]["expected"].items():
        wanted = tensor(expected)
        assert found[key].shape == wanted.shape
        np.testing.assert_allclose(found[key], wanted, rtol=2e-6, atol=2e-6)
