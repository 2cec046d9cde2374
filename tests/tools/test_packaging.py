"""The wheels of mpsref and of anymetal, and an editable install of both."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
ANYMETAL = ROOT / "backends" / "anymetal"
PROJECT, OTHER = (
    tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"] for folder in (ROOT, ANYMETAL)
)

HOOK = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"


def built(source: Path, kind: str, target: Path) -> Path:
    """Return the file that the build backend makes of a source."""
    done = subprocess.run(
        [sys.executable, "-c", HOOK, f"build_{kind}", str(target)],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return target / done.stdout.split()[-1]


def described(wheel: Path) -> tuple[set[str], list[str]]:
    """The packages in a wheel, and what it requires of anymetal."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        required = re.findall(r"^Requires-Dist: (anymetal\b.*)$", archive.read(about).decode(), re.MULTILINE)
    return {name.split("/")[0] for name in names if ".dist-info/" not in name}, required


def packages() -> set[str]:
    return {"mpsref", *(file.parent.name for file in (ROOT / "backends").glob("*/__init__.py"))}


@pytest.fixture(scope="module")
def from_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of mpsref that is built from its sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built(ROOT, "sdist", folder)) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # not in 3.11.2
    (source,) = (path for path in folder.iterdir() if path.is_dir())
    return built(source, "wheel", folder)


def test_a_wheel_requires_anymetal_and_does_not_contain_it(from_sdist: Path) -> None:
    """Also one that is built from the sdist, which has the hook."""
    minor = ".".join(PROJECT["version"].split(".")[:2])
    assert described(from_sdist) == (packages(), [f"anymetal~={minor}.0"])


def test_a_wheel_of_anymetal_contains_it_alone(tmp_path: Path) -> None:
    wheel = built(ANYMETAL, "wheel", tmp_path)
    assert described(wheel) == ({"anymetal"}, [])
    assert wheel.name.startswith(f"anymetal-{'.'.join(PROJECT['version'].split('.')[:2])}."), "the same minor version"


def test_an_editable_install_has_anymetal_of_the_checkout(tmp_path: Path) -> None:
    wheel = built(ROOT, "editable", tmp_path)
    found, required = described(wheel)
    assert required == []
    assert found == {"_mpsref.pth", f"mpsref-{PROJECT['version']}.data"}, "paths, and the command anymetal"
    with zipfile.ZipFile(wheel) as archive:
        folders = archive.read("_mpsref.pth").decode().split()
        (script,) = (one for one in archive.infolist() if one.filename.endswith("/scripts/anymetal"))
    assert script.external_attr >> 16 & 0o111, "pip keeps the mode of a script"
    assert folders == [str(ROOT), str(ROOT / "backends"), str(ANYMETAL)]


def test_both_packages_are_imported_from_one_place(tmp_path: Path) -> None:
    """Beside a wheel of anymetal, an editable install of mpsref would run that, and not the checkout."""
    code = "import mpsref, anymetal; print(mpsref.__file__, anymetal.__file__, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    ours, other = (Path(line).parents[1] for line in done.stdout.split("\n")[:2])
    expected = ours / "backends" / "anymetal" if (ours / "pyproject.toml").is_file() else ours
    assert other == expected, "`pip uninstall anymetal` removes the other one"


@pytest.mark.parametrize(("ours", "theirs"), [("metal", "clang,metalcompute"), ("nvidia", "cuda")])
def test_extras_need_what_those_of_anymetal_need(ours: str, theirs: str) -> None:
    """The markers differ: on an Apple GPU mpsref does not need clang."""
    first = map(Requirement, PROJECT["optional-dependencies"][ours])
    second = (Requirement(one) for extra in theirs.split(",") for one in OTHER["optional-dependencies"][extra])
    assert {(one.name, one.specifier) for one in first} == {(one.name, one.specifier) for one in second}
