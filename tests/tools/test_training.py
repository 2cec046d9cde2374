"""The digits: accuracy, reproducible runs, checkpoints (resumed, damaged, interrupted), the command."""

from __future__ import annotations

import io
import json
import os
import re
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy
from typer.testing import CliRunner

from mpsref import cli, registry
from mpsref.training import Settings, Trainer, checkpoint, command, digits
from tests import few, need

need("sklearn", "scikit-learn, which has the digits, is not installed")


@pytest.fixture(scope="module")
def trained() -> Trainer:
    trainer = Trainer(Settings(), "cpu")
    for _ in range(12):
        trainer.epoch()
    return trainer


def losses(backend: str, epochs: int, **settings: Any) -> Trainer:
    trainer = Trainer(Settings(**settings), backend)
    for _ in range(epochs):
        trainer.epoch()
    return trainer


def without_times(trainer: Trainer) -> list[Any]:
    return [replace(epoch, seconds=0.0) for epoch in trainer.history]


def test_the_digits() -> None:
    learn, test = digits.load()
    assert (len(learn.digits), len(test.digits)) == (1198, 599)
    assert learn.images.shape == (1198, 8, 8, 1)
    assert (learn.images.dtype, learn.images.min(), learn.images.max()) == (np.float32, 0, 1)
    images = {image.tobytes() for image in np.concatenate([learn.images, test.images])}
    assert len(images) == 1797, "every digit is in one of the two parts"
    assert np.array_equal(test.one_hot().argmax(axis=3).ravel(), test.digits)


def test_it_recognizes_the_digits(trained: Trainer) -> None:
    assert trained.history[-1].accuracy >= 0.97
    assert trained.history[-1].loss < 0.1 * trained.history[0].loss
    assert len(trained.losses) == 12 * 38


@pytest.mark.slow
def test_sgd_learns_too() -> None:
    assert losses("cpu", 6, optimizer="sgd").history[-1].accuracy > 0.94


@pytest.mark.parametrize("backend", ["reference", pytest.param("metal:clang", marks=pytest.mark.slow)])
def test_backends_agree(trained: Trainer, backend: str) -> None:
    reason = registry.get_backend(backend).unavailable()
    if reason:
        pytest.skip(reason)
    other = losses(backend, 1)
    np.testing.assert_allclose(other.losses[:5], trained.losses[:5], rtol=2e-6)
    np.testing.assert_allclose(other.losses[:20], trained.losses[:20], rtol=1e-3)
    assert abs(other.history[-1].accuracy - trained.history[len(other.history) - 1].accuracy) <= 0.01


def test_the_same_seed_gives_the_same_bits(trained: Trainer) -> None:
    again = losses("cpu", 2)
    assert again.losses == trained.losses[: len(again.losses)]
    assert losses("cpu", 1, seed=1).losses != again.losses[:38]


@pytest.mark.parametrize("optimizer", few(["adam", "sgd"], 1))
def test_a_resumed_run_is_the_same_run(tmp_path: Path, optimizer: str) -> None:
    whole = losses("cpu", 3, optimizer=optimizer)
    part = losses("cpu", 1, optimizer=optimizer)
    part.save(tmp_path / "digits.ckpt")
    resumed = Trainer.resume(tmp_path / "digits.ckpt", "cpu")
    assert resumed.settings == whole.settings
    for _ in range(2):
        resumed.epoch()
    assert resumed.losses == whole.losses
    assert without_times(resumed) == without_times(whole)
    for name, source in whole.network.sources.items():
        other = dict(resumed.network.sources[name].arrays())
        assert all(np.array_equal(array, other[key]) for key, array in source.arrays()), name


def refusal(path: Path) -> str:
    """Return why a checkpoint is refused, or nothing."""
    try:
        Trainer.resume(path, "cpu")
    except ValueError as error:
        return str(error)
    return ""


def test_a_damaged_checkpoint_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "digits.ckpt"
    trainer = Trainer(Settings(), "cpu")
    trainer.save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [b"", b"not a checkpoint", good[: len(good) // 2], good[:-10]]
    places = rng.integers(0, len(good), 20)
    damaged += [good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :] for at in places]
    messages = []
    for content in damaged:
        path.write_bytes(content)
        messages.append(refusal(path))
        assert path.read_bytes() == content
    refused = [message for message in messages if message]
    assert all(str(path) in message for message in refused)
    assert len(refused) >= len(damaged) - 2, "bytes that mean nothing, as a time stamp in the archive, may change"
    with pytest.raises(ValueError, match="does not exist"):
        Trainer.resume(tmp_path / "missing.ckpt", "cpu")


@pytest.mark.parametrize("change", ["format", "shape", "nan", "lack", "settings"])
def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "digits.ckpt"
    Trainer(Settings(), "cpu").save(path)
    header, arrays = checkpoint.read(path)
    if change == "shape":
        arrays["conv1.weights"] = arrays["conv1.weights"][:1]
    elif change == "nan":
        arrays["conv1.weights"][0] = np.nan
    elif change == "lack":
        del arrays["bn1.mean"]
    elif change == "settings":
        header["settings"]["batch"] = 0
    checkpoint.write(path, header, arrays)
    if change == "format":
        with np.load(path) as file:
            content = {name: file[name] for name in file.files}
        content["header"] = np.array(json.dumps({"format": "another"}))
        with path.open("wb") as file:
            np.savez(file, **content)
    with pytest.raises(ValueError, match=r"digits\.ckpt' cannot be used"):
        Trainer.resume(path, "cpu")


def archive(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name, content)


def claimed(shape: tuple[int, ...], dtype: str = "<f4", content: bytes = b"") -> bytes:
    """Return a member of an archive that claims an array of this shape."""
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": dtype})
    return file.getvalue() + content


def of_header(text: str) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(text))
    return file.getvalue()


HEADER = of_header(json.dumps({"format": checkpoint.FORMAT}))
BOMBS: dict[str, tuple[dict[str, bytes], int, str]] = {
    "a file of 2 MB that claims 2 GiB": (
        {"header.npy": HEADER, "a.npy": claimed((2**29,), content=bytes(2**21))},
        zipfile.ZIP_STORED,
        r"'a' has shape \(536870912,\), .* 2147483648 bytes, and a member of 2097152 bytes",
    ),
    "a header of 2 GiB": ({"header.npy": claimed((2**29,), "<U1")}, zipfile.ZIP_STORED, r"'header' has shape"),
    "one text of 2 GiB": ({"header.npy": claimed((), f"<U{2**29 - 1}")}, zipfile.ZIP_STORED, r"'header' has shape"),
    "compressed": (
        {"header.npy": HEADER, "a.npy": claimed((2**24,), content=bytes(2**26))},
        zipfile.ZIP_DEFLATED,
        r"'header' is compressed; the members of a checkpoint are not",
    ),
    "many members": ({f"{k}.npy": HEADER for k in range(100)}, zipfile.ZIP_STORED, r"100 members; .* at most 64"),
    "objects": (
        {"header.npy": HEADER, "a.npy": claimed((0,), "|O")},
        zipfile.ZIP_STORED,
        r"'a' has shape .*object",
    ),
    "negative": (
        {"header.npy": HEADER, "a.npy": claimed((-1, -2), content=bytes(8))},
        zipfile.ZIP_STORED,
        r"one unknown",
    ),
    "no header": ({"a.npy": claimed((0,))}, zipfile.ZIP_STORED, r"KeyError: 'header'"),
    "nested": ({"header.npy": of_header("[" * 10**5)}, zipfile.ZIP_STORED, r"its header is nested too deeply"),
    "nested settings": (
        {"header.npy": of_header(json.dumps({"format": checkpoint.FORMAT, "settings": {"seed": [[[[[[[[]]]]]]]]}}))},
        zipfile.ZIP_STORED,
        r"seed is \[\[",
    ),
    "digits": (
        {"header.npy": of_header('{"format": ' + "9" * 5000 + "}")},
        zipfile.ZIP_STORED,
        r"Exceeds the limit",
    ),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_checkpoint_that_claims_too_much_is_refused_without_the_memory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "digits.ckpt"
    members, compression, message = BOMBS[kind]
    archive(path, members, compression)
    tracemalloc.start()
    try:
        said = refusal(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert re.search(message, said), said
    assert len(said) < 1000
    assert peak < 20 * path.stat().st_size + 2**23


def test_a_checkpoint_is_a_file_of_limited_size(tmp_path: Path) -> None:
    path = tmp_path / "digits.ckpt"
    with path.open("wb") as file:
        file.truncate(checkpoint.MOST_BYTES + 1)
    assert f"{checkpoint.MOST_BYTES + 1} bytes; a checkpoint has at most {checkpoint.MOST_BYTES}" in refusal(path)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        assert "it is not a regular file" in refusal(other)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("history", [{"number": 1, "loss": [[]], "accuracy": 0.5, "seconds": 1}], r"loss is \[\[\]\] of type list"),
        ("history", [{"number": True, "loss": 1, "accuracy": 0.5, "seconds": 1}], "number is the bool True"),
        ("history", [[1, 2, 3, 4]], "TypeError"),
        ("losses", ["a" * 10**6], "losses is 'aaa"),
        ("losses", [10**400], "losses is a number of 1329 bits, too large"),
        ("time_step", -1, "time_step is -1"),
        ("settings", {"optimizer": "adam", "learning_rate": 10**400}, "learning_rate is a number of 1329 bits"),
    ],
)
def test_the_header_of_a_checkpoint_is_checked(tmp_path: Path, name: str, value: Any, message: str) -> None:
    path = tmp_path / "digits.ckpt"
    Trainer(Settings(), "cpu").save(path)
    header, arrays = checkpoint.read(path)
    checkpoint.write(path, header | {name: value}, arrays)
    said = refusal(path)
    assert re.search(message, said), said
    assert len(said) < 1000


def test_an_interruption_while_writing_keeps_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "digits.ckpt"
    trainer = Trainer(Settings(), "cpu")
    trainer.save(path)
    before = path.read_bytes()

    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trainer.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, ["train", *arguments])


def test_the_command(tmp_path: Path) -> None:
    curve, kept = tmp_path / "curve.png", tmp_path / "digits.ckpt"
    done = run("--epochs", "1", "--curve", str(curve), "--checkpoint", str(kept))
    assert done.exit_code == 0, done.output
    assert "epoch   1  loss" in done.output
    assert curve.read_bytes().startswith(b"\x89PNG")
    resumed = run("--epochs", "2", "--resume", str(kept), "--json")
    assert resumed.exit_code == 0, resumed.output
    report = json.loads(resumed.output)
    assert [epoch["number"] for epoch in report["epochs"]] == [1, 2]
    assert report["backend"] == "cpu"


def test_ctrl_c_between_and_inside_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "digits.ckpt"
    assert run("--epochs", "1", "--checkpoint", str(kept)).exit_code == 0
    before = kept.read_bytes()
    steps = []

    def interrupted(self: Any, images: Any, labels: Any, sequence: int) -> float:
        steps.append(sequence)
        if len(steps) == 3:
            raise KeyboardInterrupt
        return 1.0

    monkeypatch.setattr("mpsref.training.network.Network.train", interrupted)
    done = run("--epochs", "2", "--resume", str(kept))
    assert done.exit_code == command.INTERRUPTED
    assert "interrupted in epoch 2" in done.output
    assert kept.read_bytes() == before
    monkeypatch.undo()
    assert run("--epochs", "2", "--resume", str(kept)).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--optimizer", "newton"], "'adam', 'sgd'"),
        (["--backend", "nothing"], "unknown backend 'nothing'"),
        (["--resume", "/nowhere/at/all"], "does not exist"),
    ],
)
def test_bad_input(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code != 0
    assert message in str(done.exception)
