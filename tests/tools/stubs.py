"""The stubs ``__init__.pyi`` of the lazy packages: generated from the classes that their modules define.

``python -m tests.tools.stubs`` writes them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

from mpsref.mpsgraph.function import FUNCTIONS
from mpsref.registry import operations

OWN = {
    "mpsref": {
        "mpsref": ["geometry", "padding"],
        "mpsref.errors": [
            "GraphError",
            "NoGradientError",
            "NotSynchronizedError",
            "OrderError",
            "ShapeError",
            "UnsupportedError",
        ],
        "mpsref.kernels.batch_normalization": ["BatchGradientSums", "BatchStatistics"],
        "mpsref.registry": ["Backend", "Operation", "backends", "register", "set_backend", "use_backend"],
    },
    "mpsref.kernels": {"mpsref.kernels.batch_normalization": ["BatchGradientSums", "BatchStatistics"]},
    "mpsref.mps": {
        "mpsref.mps.core.properties": ["PropertyError"],
        "mpsref.mps.core.serialization": ["SecureCoding", "secure_coding"],
        "mpsref.mps.core.types": ["MPSNNPaddingMethod", "MPSRectNoClip", "NSUIntegerMax"],
    },
    "mpsref.mpsgraph": {
        "mpsref.mpsgraph.descriptors": [
            "Convolution2DOpDescriptor",
            "DepthwiseConvolution2DOpDescriptor",
            "LossReductionType",
            "PaddingStyle",
            "Pooling2DOpDescriptor",
            "PoolingReturnIndicesMode",
            "ResizeMode",
            "ResizeNearestRoundingMode",
            "TensorNamedDataLayout",
        ],
        "mpsref.mpsgraph.graph": ["Graph", "GraphOperation", "GraphTensor"],
    },
    "mpsref.mps.graph": {
        "mpsref.mps.graph.custom": ["CustomKernelGradientNode", "CustomKernelNode"],
        "mpsref.mps.graph.execute": ["RunResult"],
        "mpsref.mps.graph.graph": ["StepError"],
        "mpsref.mps.graph.training": ["TrainingGraph", "training_graph"],
    },
}
"""Public names that are neither kernels nor classes of Apple's."""


def package_of(module: str, name: str) -> str | None:
    """Return the package that exports a class or a function; ``None`` for a private one.

    Apple's classes are public, and data sources. Nodes and their flags belong to graphs, whichever module has them.
    """
    if not name.startswith(("MPS", "MTL")) and not name.endswith("DataSource"):
        return None
    in_graph = module.startswith("mpsref.mps.graph.") or name.endswith(("Node", "Flags"))
    return "mpsref.mps.graph" if in_graph else "mpsref.mps"


def defined() -> dict[str, dict[str, str]]:
    """Return, for each package, the module that defines each exported name."""
    found = {package: {n: m for m, names in own.items() for n in names} for package, own in OWN.items()}
    for spec_type in dict.fromkeys(operation.spec_type for operation in operations()):
        for package in ("mpsref", "mpsref.kernels"):
            found[package][spec_type.__name__] = spec_type.__module__
    importlib.import_module("mpsref.mpsgraph.graph")  # of all functions
    refusing = importlib.import_module("mpsref.mpsgraph.not_built")
    found["mpsref.mpsgraph"] |= {name: one.call.__module__ for name, one in FUNCTIONS.items()}
    found["mpsref.mpsgraph"] |= {
        n: refusing.__name__ for n, v in vars(refusing).items() if inspect.isfunction(v) and n[0] != "_"
    }
    root = importlib.import_module("mpsref.mps")
    for info in pkgutil.walk_packages(root.__path__, "mpsref.mps."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if callable(value) and getattr(value, "__module__", "") == info.name and not name.startswith("_"):
                package = package_of(info.name, name)
                if package is not None:
                    found[package][name] = info.name
    return found


def stub_path(package: str) -> Path:
    """Return the file of a package's stub."""
    return Path(__file__).parents[2].joinpath(*package.split("."), "__init__.pyi")


def declared(package: str) -> dict[str, str]:
    """Return the module of each name that a package's stub imports."""
    found = {}
    for node in ast.parse(stub_path(package).read_text()).body:
        if isinstance(node, ast.ImportFrom):
            module = package if node.module is None else f"{package}.{node.module}" if node.level else node.module
            found |= {alias.name: module for alias in node.names}
    return found


def text(package: str, names: dict[str, str]) -> str:
    """Return the stub; ``import X as X`` exports a name again. Ruff formats it: without it, raise ``RuntimeError``."""
    version = ["__version__: str"] if package == "mpsref" else []
    imports = []
    for name, module in names.items():
        inside = module == package or module.startswith(f"{package}.")
        source = "." + module.removeprefix(package).removeprefix(".") if inside else module
        imports.append(f"from {source} import {name} as {name}")
    found = "\n".join([*imports, *version, ""])
    for command in (["format"], ["check", "--select", "I", "--fix"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(stub_path(package)), "-"]
        ran = subprocess.run(ruff, input=found, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"ruff cannot format the stub of {package}, which stays as it was: {ran.stderr.strip()}")
        found = ran.stdout
    return found


def write() -> None:
    """Write the stubs of all packages, or none."""
    for package, made in [(package, text(package, names)) for package, names in defined().items()]:
        stub_path(package).write_text(made, "utf-8")


if __name__ == "__main__":
    write()
