"""Compiled kernels on disk: found by the next process, and compiled again if they are stale, damaged or not safe."""

from __future__ import annotations

import ast
import importlib
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
from numba import types
from numba.core.serialize import dumps

import mpsref_cpu
from anymetal import disk_cache
from mpsref_cpu import _numba, cache_fingerprint
from mpsref_cpu.cache_fingerprint import fingerprint
from tests import python_path

PROGRAM = """
import numpy as np
from mpsref_cpu.convolution import bias_gradient as family
sums = np.empty(2, np.float32)
family.bias_gradient(np.arange(6, dtype=np.float32).reshape(1, 1, 3, 2), sums)
print(sums.tolist(), sum(family._add_pixels.stats.cache_hits.values()))
"""

GREATEST = """
import numpy as np
from mpsref_cpu.reduction import reduce as family
indices = np.empty(2, np.float32)
family._index(0, 1, np.float32([1, 5, 2, 3, 4, 9]), indices, (1, 2, 3, 0, 0, 1, 2), np.float32(1))
print(indices.tolist(), sum(family._index.stats.cache_hits.values()))
"""

COUNT = """
from mpsref_cpu import family
print(family.count(family.four()), sum(family.count.stats.cache_hits.values()))
"""

FAMILY = """
from mpsref_cpu.compiling import compiled
from mpsref_cpu.rows import four

@compiled
def count(rows):
    return rows.number
"""

ROWS = """
from typing import NamedTuple

class Rows(NamedTuple):
    number: int

def four():
    return Rows(4)
"""


GREATEST_OF_ROWS = """
import numpy as np
from mpsref_cpu import _numba
from mpsref_cpu.compiling import compiled

@compiled
def greatest(rows):
    if rows.size == 0:
        raise ValueError(rows.ndim)
    return rows.max()

_numba.keep_on_disk(greatest, "")

def run():
    hits = greatest(np.ones((2, 3))), sum(greatest.stats.cache_hits.values())
    try:
        greatest(np.ones((2, 0)))
    except ValueError as error:
        return *hits, str(error)
"""


def outcome(cache: Path, program: str = PROGRAM, root: Path | None = None) -> tuple[str, str]:
    """Return what a new process prints, and its warnings; ``root`` contains the backend."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    path = python_path(*([root] if root else []))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "PYTHONPATH": path, "MPSREF_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def copied_backend(folder: Path) -> Path:
    copied = folder / "mpsref_cpu"
    shutil.copytree(Path(mpsref_cpu.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    return copied


@pytest.mark.slow
def test_a_change_in_another_file_is_noticed(tmp_path: Path) -> None:
    helper = copied_backend(tmp_path) / "simd" / "keys.py"
    assert outcome(tmp_path / "cache", GREATEST, tmp_path) == ("[1.0, 2.0] 0", "")
    assert outcome(tmp_path / "cache", GREATEST, tmp_path) == ("[1.0, 2.0] 1", "")
    text = helper.read_text("utf-8")
    assert text.count("uintp(LAST_PLACE - ") == 1
    helper.write_text(text.replace("uintp(LAST_PLACE - ", "uintp(LAST_PLACE + 1 - "), "utf-8")
    assert outcome(tmp_path / "cache", GREATEST, tmp_path) == ("[2.0, 3.0] 0", "")
    helper.write_text(text, "utf-8")
    os.utime(helper)  # as git does it
    assert outcome(tmp_path / "cache", GREATEST, tmp_path) == ("[1.0, 2.0] 1", "")


@pytest.mark.slow
def test_a_cache_that_names_a_former_class_is_not_read(tmp_path: Path) -> None:
    folder = copied_backend(tmp_path)
    (folder / "family.py").write_text(FAMILY, "utf-8")
    (folder / "rows.py").write_text(ROWS, "utf-8")
    assert outcome(tmp_path / "cache", COUNT, tmp_path) == ("4 0", "")
    assert outcome(tmp_path / "cache", COUNT, tmp_path) == ("4 1", "")
    (folder / "rows.py").write_text(ROWS.replace("Rows", "Raws"), "utf-8")
    assert outcome(tmp_path / "cache", COUNT, tmp_path) == ("4 0", "")


def test_what_numba_compiles_with_is_not_imported_for_code_on_disk(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It imports SciPy's linear algebra, which takes as long as all else of a first call."""
    (tmp_path / "greatest_of_rows.py").write_text(GREATEST_OF_ROWS)
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("greatest_of_rows").run() == (1.0, 0, "2")
    program = "import sys, greatest_of_rows; print(greatest_of_rows.run(), 'numba.np.linalg' in sys.modules)"
    assert outcome(empty_cache, program, tmp_path) == ("(1.0, 1, '2') False", "")


# damaged files, and disks that cannot be written


def add(x: float, y: float) -> float:
    return x + y


def run(stamp: str = "") -> int:
    """Call a kernel as a new process does; return how often its code was found on disk."""
    kernel: Any = numba.njit(add)
    _numba.keep_on_disk(kernel, stamp)
    assert kernel(1.0, 2.0) == 3
    return sum(kernel.stats.cache_hits.values())


@pytest.fixture
def folder(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_numba, "_unwritable", set())
    return empty_cache / "cpu"


def test_code_is_found_again(folder: Path) -> None:
    assert [run(), run(), run("other source"), run("other source")] == [0, 1, 0, 1]


def test_without_a_folder(empty_cache: Path) -> None:
    empty_cache.write_text("in the way")
    with pytest.warns(RuntimeWarning, match="are not kept, each process compiles them again"):
        assert run() == 0
    assert run() == 0, "without a second warning"


def replace_all(folder: Path, data: bytes) -> None:
    """Replace what is kept in a folder by files with valid checksums."""
    for note in [*folder.glob("*.json")]:
        disk_cache.store(folder, note.stem, ".code", lambda path: path.write_bytes(data))


def damage_all(folder: Path, change: Callable[[Path], object]) -> None:
    for file in folder.glob("*.code"):
        change(file)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda folder: damage_all(folder, lambda file: os.truncate(file, file.stat().st_size // 2)),
    "empty": lambda folder: damage_all(folder, lambda file: file.write_bytes(b"")),
    "random": lambda folder: damage_all(folder, lambda file: file.write_bytes(os.urandom(4096))),
    "no pickle": lambda folder: replace_all(folder, b"no pickle"),
    "other pickle": lambda folder: replace_all(folder, pickle.dumps({"signature": 1})),
    "incomplete pickle": lambda folder: replace_all(folder, pickle.dumps(((types.float64,) * 2, (1, 2, 3)))),
    "unknown module": lambda folder: replace_all(folder, b"cno_such_module\nno_such_name\n."),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_are_compiled_again(folder: Path, damage: Callable[[Path], object]) -> None:
    assert [run("1"), run("2")] == [0, 0]
    damage(folder)
    with pytest.warns(RuntimeWarning, match=f"a compiled kernel in '{folder}' is damaged"):
        assert run("1") == 0
    assert run("2") == 0, "without a second warning"
    assert [run("1"), run("2")] == [1, 1]


def test_code_for_other_types_is_not_used(folder: Path) -> None:
    assert run() == 0
    (note,) = folder.glob("*.json")
    entry = disk_cache.load(folder, note.stem, ".code")
    assert entry is not None
    _, result = pickle.loads(entry.data)
    replace_all(folder, dumps(((types.int64,) * 2, result)))
    assert [run(), run()] == [0, 1]


def test_a_file_that_grows_too_large(folder: Path) -> None:
    resource = pytest.importorskip("resource", reason="this system has no limits of resources")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.warns(RuntimeWarning, match=rf"kernels are not kept in '{folder}' \(\[Errno 27\] File too large"):
            assert run("1") == 0
        assert run("1") == 0, "without a second warning"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [*folder.iterdir()] == []


@pytest.fixture
def disk(empty_cache: Path) -> Iterator[Path]:
    """A disk of 64 KB with the cache."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount file systems")
    empty_cache.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", empty_cache], check=False).returncode:
        pytest.skip("no permission to mount a file system")
    yield empty_cache
    subprocess.run(["umount", empty_cache], check=True)


def test_a_full_disk(disk: Path, folder: Path) -> None:
    (disk / "full").write_bytes(bytes(56 * 1024))
    with pytest.warns(RuntimeWarning, match=rf"not kept in '{folder}' \(\[Errno 28\] No space left on device"):
        assert run() == 0
    assert run() == 0, "without a second warning"


def test_a_read_only_disk(disk: Path, folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.warns(RuntimeWarning, match=rf"are not kept, .*\[Errno 30\] Read-only file system: '{folder}'"):
        assert run() == 0
    assert run() == 0, "without a second warning"


def test_a_disk_that_has_become_read_only(disk: Path, folder: Path) -> None:
    assert run() == 0
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    assert run() == 1, "what is there is used"
    with pytest.warns(RuntimeWarning, match=rf"not kept in '{folder}' \(\[Errno 30\] Read-only file system"):
        assert run("other source") == 0


# other users


class Planted:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path, str]]:
        return Path.write_text, (self.file, "")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_code_planted_by_another_user_is_not_loaded(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert run() == 0
    replace_all(folder, pickle.dumps(Planted(trace)))
    with pytest.warns(RuntimeWarning, match="is damaged"):
        run()
    assert trace.exists(), "the trap works"
    trace.unlink()

    replace_all(folder, pickle.dumps(Planted(trace)))
    for path in (folder, *folder.iterdir()):
        os.chown(path, 65534, 65534)
    disk_cache._checked.cache_clear()
    disk_cache._warned.clear()
    with pytest.warns(RuntimeWarning, match=rf"folder '{folder}' belongs to another user \(uid 65534\)"):
        assert run() == 0
    assert not trace.exists()


# fingerprints


@pytest.mark.parametrize("part", ["mpsref_cpu.training.dropout", "mpsref_cpu.compiling", "mpsref.kernels.dropout"])
def test_what_the_mask_is_made_of(part: str) -> None:
    assert part in cache_fingerprint._sources("mpsref_cpu.training.dropout")


def test_modules_that_are_imported_from_the_package() -> None:
    assert "mpsref_cpu._numba" in cache_fingerprint._sources("mpsref_cpu.spin_pool")


def test_the_imports_of_a_module_are_found() -> None:
    root = Path(mpsref_cpu.__file__).parent
    paths = [path.relative_to(root.parent).with_suffix("").parts for path in root.rglob("*.py")]
    modules = [".".join(parts) for parts in paths if parts[-1] != "__init__"]
    found = {module: cache_fingerprint._imports(module) for module in modules}
    assert sum(map(len, found.values())) > len(found) > 50
    for module, names in found.items():
        statements = ast.walk(ast.parse(cache_fingerprint._text(module)))
        assert names == cache_fingerprint._named(statements), module


def test_what_runs_kernels_is_no_part_of_them() -> None:
    assert cache_fingerprint._sources("mpsref_cpu.training.dropout").isdisjoint(
        {"mpsref_cpu.threads", "mpsref_cpu.activation.neuron", "mpsref.arguments.arrays"}
    )
    assert fingerprint("mpsref_cpu.training.dropout") != fingerprint("mpsref_cpu.compiling")
