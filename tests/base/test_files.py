"""Files that are written whole, checksummed JSON, and disks that are away for a moment."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damage import DEEP
from safetensors import SafetensorError

from adamatch.base import files
from adamatch.base.errors import InputError


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, in no time."""
    pauses: list[float] = []
    monkeypatch.setattr("adamatch.base.files.time.sleep", pauses.append)
    return pauses


def failing(number: int, times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    left = iter(range(times))

    def call(*args: Any) -> Any:
        if next(left, None) is not None:
            raise OSError(number, os.strerror(number))
        return then(*args)

    return call


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_disk_that_was_away_for_a_moment_is_tried_again(
    number: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    monkeypatch.setattr(os, name, failing(number, 3, getattr(os, name)))
    files.write_atomically(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert slept == list(files.PAUSES)
    monkeypatch.setattr(os, name, failing(number, 4, getattr(os, name)))
    with pytest.raises(OSError, match=os.strerror(number)):
        files.write_atomically(tmp_path / "file", "other")
    assert (tmp_path / "file").read_text() == "text" or name == "fsync"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS])
def test_other_errors_are_told_at_once(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    monkeypatch.setattr(os, "replace", failing(number, 1, os.replace))
    with pytest.raises(OSError, match=os.strerror(number)) as error:
        files.write_atomically(tmp_path / "file", "text")
    assert slept == []
    assert list(tmp_path.iterdir()) == []
    assert files.disk_is_full(error.value) == (number in (errno.ENOSPC, errno.EDQUOT))


def test_what_a_disk_said() -> None:
    assert files.disk_reason(OSError(errno.ESTALE, "x")) == os.strerror(errno.ESTALE)
    assert files.disk_reason(OSError(errno.EDQUOT, "x")) == "the disk is full"
    assert files.disk_reason(SafetensorError("Error while serializing: I/O error (os error 28)")) == "the disk is full"
    assert files.disk_reason(ValueError("first\nsecond")) == "first"
    assert files.is_transient(SafetensorError(f"I/O error: Stale file handle (os error {errno.ESTALE})"))
    assert not files.is_transient(SafetensorError("HeaderTooLarge"))
    try:
        try:
            raise OSError(errno.ESTALE, "stale")
        except OSError:
            raise ValueError("the checkpoint could not be written") from None
    except ValueError as error:
        wrapped = error
    assert files.is_transient(wrapped)


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, sync = list[bool](), os.fsync

    def watched(number: int) -> None:
        named.append((tmp_path / "file").exists())
        sync(number)

    monkeypatch.setattr(os, "fsync", watched)
    files.write_atomically(tmp_path / "file", "text")
    assert named == [False, True]  # the file, and the folder with its name
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL, 9, sync))  # a file system that cannot sync a folder
    files.write_atomically(tmp_path / "file", "other")
    assert (tmp_path / "file").read_text() == "other"


def test_json_is_read_or_raises_one_kind_of_error(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for content in (b"", b"{", b"\xff\xfe\x00", DEEP.encode(), b"9" * 10_000):
        path.write_bytes(content)
        with pytest.raises(ValueError):
            files.read_json(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        files.read_json(path)
    os.mkfifo(path)
    with pytest.raises(ValueError, match="not a regular file"):
        files.read_json(path)
    with pytest.raises(ValueError, match="not a regular file"):
        files.read_json(tmp_path)


def test_a_checksum_is_the_files_sha_256(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert files.checksum(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_seal_is_of_what_will_be_read() -> None:
    facts = {"a": (1, 2), "b": {3: 0.1}, "c": float("inf"), "d": "\udcff"}
    assert files.sealed(facts) == files.sealed(json.loads(json.dumps(facts)))
    read = json.loads(json.dumps(files.sealed(facts)))
    assert files.unsealed(read) == {"a": [1, 2], "b": {"3": 0.1}, "c": float("inf"), "d": "\udcff"}
    assert files.unsealed({"a": 1}) == {"a": 1}, "a published result"
    for changed in (read | {"a": [1, 3]}, read | {"own_sha256": None}):
        with pytest.raises(ValueError, match="changed"):
            files.unsealed(changed)
    with pytest.raises(ValueError, match="not an object"):
        files.unsealed([])
    one, other = (files.sealed(each) for each in ({"b": 1, "a": {"d": 2, "c": 3}}, {"a": {"c": 3, "d": 2}, "b": 1}))
    assert one[files.SEAL] == other[files.SEAL], "whatever the order of the names"


def test_a_file_that_is_asked_for_has_a_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "new"):
        (tmp_path / f"link to {name}").symlink_to(name)
        assert files.destination(tmp_path / name) == tmp_path / name
        assert files.destination(tmp_path / f"link to {name}") == tmp_path.resolve() / name


def test_what_no_file_may_replace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "lost").symlink_to("nowhere/x")
    for name, words in (
        ("", "is a folder: give the name of a file in it"),
        ("pipe", "is not a regular file (a pipe or a device?): choose another name"),
        ("link", "is not a regular file (a pipe or a device?): choose another name"),
        ("nowhere/x", "nowhere does not exist: make it, or choose another place for x"),
        ("lost", "nowhere does not exist: make it, or choose another place for x"),
        ("file/x", "file is not a folder: choose another place for x"),
    ):
        with pytest.raises(InputError) as refused:
            files.destination(tmp_path / name)
        assert str(refused.value).startswith(str(tmp_path))
        assert str(refused.value).endswith(words), name


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EROFS, "x", "a.part"), f"({os.strerror(errno.EROFS)}): choose another place"),
        (OSError(errno.ENOSPC, "x"), f"({os.strerror(errno.ENOSPC)}): make room, or choose another place"),
        (OSError("only words"), "(only words): choose another place"),
    ],
)
def test_an_error_of_the_disk_names_the_file_and_the_remedy(error: OSError, words: str) -> None:
    with pytest.raises(InputError) as told, files.writing(Path("a")):
        raise error
    assert str(told.value) == f"a cannot be written {words}"
