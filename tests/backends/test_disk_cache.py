"""The cache of compiled code: damaged files, old files, and folders that other users can write."""

from __future__ import annotations

import itertools
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from mpsref import disk_cache

pytestmark = pytest.mark.usefixtures("empty_cache")

KEY = disk_cache.key("a kernel", 1)

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system has no owners of files")


@pytest.fixture
def folder(empty_cache: Path) -> Path:
    found = disk_cache.private_folder("test")
    assert found is not None
    return found


def write(folder: Path, data: bytes = b"compiled", key: str = KEY) -> Path:
    def build(path: Path) -> dict[str, int]:
        path.write_bytes(data)
        return {"size": len(data)}

    return disk_cache.store(folder, key, ".so", build).file


def test_an_entry(folder: Path) -> None:
    assert disk_cache.load(folder, KEY, ".so") is None
    file = write(folder)
    assert disk_cache.load(folder, KEY, ".so") == (file, b"compiled", {"size": 8})
    assert disk_cache.load(folder, disk_cache.key("a kernel", 2), ".so") is None
    assert sorted(folder.iterdir()) == sorted([file, folder / f"{KEY}.json"])
    write(folder, b"compiled otherwise")
    entry = disk_cache.load(folder, KEY, ".so")
    assert entry is not None
    assert entry.data == b"compiled otherwise"


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "truncated": lambda file, note: os.truncate(file, 4),
    "empty": lambda file, note: file.write_bytes(b""),
    "other bytes": lambda file, note: file.write_bytes(b"compilex"),
    "empty note": lambda file, note: note.write_bytes(b""),
    "truncated note": lambda file, note: os.truncate(note, 20),
    "bytes as note": lambda file, note: note.write_bytes(b"\xff\xfe\x00"),
    "other note": lambda file, note: note.write_text("[]"),
    "nested note": lambda file, note: note.write_text("[" * 100_000),
    "incomplete note": lambda file, note: note.write_text(json.dumps({"sha256": file.stem})),
    "note of another folder": lambda file, note: note.write_text(json.dumps({"sha256": f"../test/{file.stem}"})),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_dropped_with_one_warning(folder: Path, damage: Callable[[Path, Path], object]) -> None:
    other = disk_cache.key("another kernel")
    for key in (KEY, other):
        damage(write(folder, key=key), folder / f"{key}.json")
    with pytest.warns(RuntimeWarning, match=f"a compiled kernel in '{folder}' is damaged"):
        assert disk_cache.load(folder, KEY, ".so") is None
    assert disk_cache.load(folder, other, ".so") is None
    assert not (folder / f"{KEY}.json").exists()
    file = write(folder)
    assert disk_cache.load(folder, KEY, ".so") == (file, b"compiled", {"size": 8})


def test_an_entry_without_its_file_is_absent(folder: Path) -> None:
    write(folder).unlink()
    assert disk_cache.load(folder, KEY, ".so") is None


def test_old_files_are_removed(folder: Path) -> None:
    file, note = write(folder), folder / f"{KEY}.json"
    now = time.time()

    def left(name: str, age: float) -> Path:
        scratch = folder / name
        scratch.mkdir()
        (scratch / "made.so").touch()
        os.utime(scratch, (now - age, now - age))
        return scratch

    abandoned, recent = left(".build-abandoned", disk_cache.ABANDONED + 60), left(".build-recent", 60)
    other = left("zig", 10 * disk_cache.UNUSED)
    for path in (file, note):
        os.utime(path, (now - disk_cache.UNUSED + 60,) * 2)
    disk_cache._remove_old.cache_clear()
    write(folder, b"new", disk_cache.key("new"))
    assert not abandoned.exists()
    assert recent.exists()
    assert other.exists()

    assert disk_cache.load(folder, KEY, ".so") is not None
    assert min(file.stat().st_mtime, note.stat().st_mtime) > now - 60, "the use is recorded"
    for path in (file, note):
        os.utime(path, (now - disk_cache.UNUSED - 60,) * 2)
    disk_cache._remove_old.cache_clear()
    write(folder, b"newer", disk_cache.key("newer"))
    assert not file.exists()
    assert not note.exists()
    assert disk_cache.load(folder, disk_cache.key("new"), ".so") is not None


@needs_owners
def test_folders_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = disk_cache.private_folder("test")
    finally:
        os.umask(before)
    assert folder == tmp_path / "cache" / "test"
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]


@needs_owners
@pytest.mark.parametrize(
    ("place", "mode"),
    [*itertools.product(["cache/test", "cache", "."], [0o770, 0o720, 0o707, 0o777]), ("cache/test", 0o1777)],
)
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, place: str, mode: int) -> None:
    (tmp_path / "cache" / "test").mkdir(mode=0o700, parents=True)
    (tmp_path / place).chmod(mode)
    with pytest.warns(RuntimeWarning, match="are not kept") as caught:
        assert disk_cache.private_folder("test") is None
    assert disk_cache.private_folder("test") is None
    named = (tmp_path / place).resolve()
    assert f"other users can write to the folder '{named}' (mode {mode:04o}); `chmod go-w` it, or set MPSREF" in str(
        caught[0].message
    )


@needs_owners
def test_a_link_leads_to_the_folder_that_is_checked(tmp_path: Path) -> None:
    (tmp_path / "shared" / "test").mkdir(parents=True)
    (tmp_path / "cache").symlink_to(tmp_path / "shared")
    assert disk_cache.private_folder("test") == tmp_path / "shared" / "test"
    disk_cache._checked.cache_clear()
    (tmp_path / "shared").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="shared' \\(mode 0777\\)"):
        assert disk_cache.private_folder("test") is None


@needs_owners
def test_others_may_write_next_to_the_folder_if_they_cannot_replace_it(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o1777)  # as /tmp
    assert disk_cache.private_folder("test") == tmp_path / "cache" / "test"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("place", ["cache/test", "cache"])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "cache" / "test").mkdir(mode=0o700, parents=True)
    os.chown(tmp_path / place, 12345, -1)
    with pytest.warns(RuntimeWarning, match=r"belongs to another user \(uid 12345\); set MPSREF_CACHE_DIR"):
        assert disk_cache.private_folder("test") is None


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="are not kept, each process compiles them again: .*Not a directory"):
        assert disk_cache.private_folder("test") is None


def test_a_folder_that_has_disappeared(folder: Path) -> None:
    folder.rmdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert disk_cache.load(folder, KEY, ".so") is None
        with pytest.raises(OSError, match=r"\.build-"):
            write(folder)
