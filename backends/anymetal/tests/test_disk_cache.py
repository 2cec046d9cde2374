"""The cache of compiled code: damaged files, old files, and folders that other users can write."""

from __future__ import annotations

import itertools
import json
import os
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from anymetal import disk_cache

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

    abandoned, recent = left(".build-abandone", disk_cache.ABANDONED + 60), left(".build-recently", 60)
    former, kept = left("zig", 10 * disk_cache.UNUSED), left(disk_cache.kept_by_compiler(folder).name, 60)
    disused = left(f"{KEY}.zig", disk_cache.UNUSED + 60)
    for path in (file, note):
        os.utime(path, (now - disk_cache.UNUSED + 60,) * 2)
    disk_cache._remove_old.cache_clear()
    write(folder, b"new", disk_cache.key("new"))
    assert [path.exists() for path in (abandoned, disused)] == [False, False]
    assert [path.exists() for path in (recent, former, kept)] == [True, True, True]

    assert disk_cache.load(folder, KEY, ".so") is not None
    assert min(file.stat().st_mtime, note.stat().st_mtime) > now - 60, "the use is recorded"
    for path in (file, note):
        os.utime(path, (now - disk_cache.UNUSED - 60,) * 2)
    disk_cache._remove_old.cache_clear()
    write(folder, b"newer", disk_cache.key("newer"))
    assert not file.exists()
    assert not note.exists()
    assert disk_cache.load(folder, disk_cache.key("new"), ".so") is not None


NAMES_OF_USERS = [
    "model.metal",
    KEY,
    f"{KEY}.so.bak",
    f"{KEY[1:]}.json",
    f"{KEY.upper()}.json",
    f"{KEY}.zig",
    ".build-mine",
]


@needs_owners
@pytest.mark.parametrize("name", NAMES_OF_USERS)
@pytest.mark.parametrize("kind", ["file", "link", "link to a folder", "folder"])
def test_files_of_users_are_left_alone(folder: Path, tmp_path: Path, name: str, kind: str) -> None:
    if kind == "folder" and name == f"{KEY}.zig":
        name = f"{KEY}.json"
    entry = write(folder, key=disk_cache.key("another kernel"))
    file, mine = folder / name, tmp_path / "mine"
    mine.mkdir()
    (mine / "work").write_text("of a year")
    if kind == "file":
        file.write_text("of a year")
    elif kind == "folder":
        mine.rename(file)
    else:
        file.symlink_to(mine / "work" if kind == "link" else mine)
    for path in (file, *folder.iterdir()):
        os.utime(path, (0, 0), follow_symlinks=False)
    disk_cache._remove_old.cache_clear()
    disk_cache._remove_old(folder)
    assert not entry.exists()
    work = mine / "work" if kind.startswith("link") else file / "work" if kind == "folder" else file
    assert work.read_text() == "of a year"
    assert list(folder.iterdir()) == [file]

    disk_cache._occupied.cache_clear()
    sentence = f"the folder '{folder}' contains '{name}', which is not a file of this cache; move it elsewhere, or set"
    with pytest.raises(disk_cache.OccupiedError, match=re.escape(sentence)) as caught:
        write(folder)
    with pytest.warns(RuntimeWarning, match=f"are not kept, each process compiles them again: {re.escape(sentence)}"):
        disk_cache.warn_unwritable(folder, caught.value)
    assert list(folder.iterdir()) == [file]


def test_a_folder_is_not_listed_to_read_an_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(folder)
    disk_cache._checked.cache_clear()
    monkeypatch.setattr(os, "scandir", None)
    assert disk_cache.private_folder("test") == folder
    assert disk_cache.load(folder, KEY, ".so") == (file, b"compiled", {"size": 8})


def test_all_files_of_the_cache_are_known(folder: Path) -> None:
    def build(path: Path) -> None:
        path.write_text("compiled")
        disk_cache._occupied.cache_clear()
        assert disk_cache._occupied(folder) is None, "while another process compiles"

    for suffix in (".so", ".bc", ".ptx", ".pch", ".txt", ".code"):
        disk_cache.store(folder, KEY, suffix, build)
    disk_cache.kept_by_compiler(folder).mkdir()
    for name in ("zig", ".nfs00000000012a", ".DS_Store"):
        (folder / name).touch()
    disk_cache._occupied.cache_clear()
    disk_cache.store(folder, KEY, ".so", build)
    with pytest.raises(ValueError, match=r"add its suffix there"):
        disk_cache.store(folder, KEY, ".dylib", build)


def test_files_that_another_process_removes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(folder)
    for path in folder.iterdir():
        os.utime(path, (0, 0))

    def removed_meanwhile(entry: os.DirEntry[str]) -> bool:
        is_note = entry.name.endswith(".json")
        if is_note:
            os.unlink(entry)
        return is_note or entry.name == file.name

    monkeypatch.setattr(disk_cache, "_is_own", removed_meanwhile)
    disk_cache._remove_old.cache_clear()
    disk_cache._remove_old(folder)
    assert list(folder.iterdir()) == []

    (folder / "foreign").touch()
    monkeypatch.setattr(disk_cache, "_is_own", lambda entry: os.unlink(entry))
    disk_cache._occupied.cache_clear()
    assert disk_cache._occupied(folder) is None


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
    assert f"other users can write to the folder '{named}' (mode {mode:04o}); `chmod go-w` it, or set ANYMETAL" in str(
        caught[0].message
    )


def test_a_folder_whose_name_compilers_do_not_read_is_refused(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "a\nb"))
    with pytest.warns(
        RuntimeWarning, match=r"a\\nb/test' has a control character in its name, .*; set ANYMETAL_CACHE_DIR"
    ):
        assert disk_cache.private_folder("test") is None


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
    with pytest.warns(RuntimeWarning, match=r"belongs to another user \(uid 12345\); set ANYMETAL_CACHE_DIR"):
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
        with pytest.raises(FileNotFoundError, match="cache/test"):
            write(folder)
