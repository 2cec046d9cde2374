"""The stubs of the lazy packages are current, and importing a package imports no family."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import stubs


@pytest.mark.parametrize("package", sorted(stubs.OWN))
def test_the_stub_of_a_package_is_current(package: str) -> None:
    assert stubs.declared(package) == stubs.defined()[package], "run `python -m tests.tools.kernel`: it writes them"


def test_without_ruff_no_stub_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stubs, "stub_path", lambda package: tmp_path / f"{package}.pyi")
    stubs.stub_path("mpsref").write_text("as it was")
    ruff = subprocess.CompletedProcess([], 1, "", "No module named ruff")
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", lambda *args, **words: ruff)
        with pytest.raises(RuntimeError, match="the stub of mpsref, which stays as it was: No module named ruff"):
            stubs.write()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["as it was"]


def test_ruff_formats_a_stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    monkeypatch.setattr(stubs, "stub_path", lambda package: tmp_path / f"{package}.pyi")
    stubs.write()
    assert "import SoftMax as SoftMax" in stubs.stub_path("mpsref").read_text()


@pytest.mark.parametrize("package", sorted(stubs.OWN))
def test_every_declared_name_is_exported(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == dir(module) == sorted(stubs.declared(package))
    assert all(getattr(module, name) is not None or name == "MPSRectNoClip" for name in module.__all__)
    with pytest.raises(AttributeError, match="missing"):
        _ = module.missing


@pytest.mark.parametrize("package", sorted(stubs.OWN))
def test_no_name_is_that_of_a_module(package: str) -> None:
    """Importing such a module would hide the name."""
    modules = {info.name for info in pkgutil.iter_modules(importlib.import_module(package).__path__)}
    assert modules.isdisjoint(name for name, module in stubs.declared(package).items() if module != package)


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_families_are_imported_when_they_are_used() -> None:
    run(
        "import sys, mpsref.mps\n"
        "assert not any(name.startswith('mpsref.mps.') for name in sys.modules)\n"
        "mpsref.mps.MPSImage\n"
        "assert 'mpsref.mps.core.image' in sys.modules and 'mpsref.mps.core.kernel' not in sys.modules"
    )


def test_archives_of_families_that_are_not_imported_yet_are_read() -> None:
    run(
        "from mpsref import mps\n"
        "text = mps.MPSCNNPoolingMax(3, 2).to_json()\n"
        "import subprocess, sys\n"
        "code = f'from mpsref import mps; assert mps.MPSKernel.from_json({text!r}).kernel_width == 3'\n"
        "subprocess.run([sys.executable, '-c', code], check=True)"
    )


def test_a_name_of_a_family_that_is_not_imported_yet_is_taken() -> None:
    run(
        "from mpsref import mps\n"
        "class MPSCNNPoolingMax(mps.SecureCoding): pass\n"
        "try:\n    mps.secure_coding(1)(MPSCNNPoolingMax)\n"
        "except ValueError as error:\n    assert 'is taken by mpsref.mps.pooling' in str(error)\n"
        "else:\n    raise AssertionError"
    )
