"""manifest.json: what is damaged, missing or a link is found, and a kill in between is repaired by the same command."""

import json
import os
from pathlib import Path

import pytest

from adamatch.base import files, manifest
from adamatch.base.files import MANIFEST, listed, read_checked, sealed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.json", "outputs/one.npz", "twin/model.json", "begun/x", "report.html", ".lock", "lease-1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'"{name}"')
    manifest.complete(tmp_path / "twin")
    manifest.complete(tmp_path)
    return tmp_path


def test_it_lists_the_files_of_a_run(folder: Path) -> None:
    assert [*listed(folder)] == ["a.json", "outputs/one.npz", "report.html", f"twin/{MANIFEST}"]
    assert listed(folder)["a.json"] == [8, files.checksum(folder / "a.json")]
    assert list(manifest.problems(folder)) == []
    (folder / "report.html").write_text("another")  # it may be made anew
    assert list(manifest.problems(folder)) == []


@pytest.mark.posix
def test_every_damage_is_a_line(folder: Path) -> None:
    (folder / "a.json").write_text("changed")
    (folder / "outputs/one.npz").unlink()
    (folder / "report.html").unlink()
    os.mkfifo(folder / "report.html")
    (folder / "twin/model.json").write_text("changed")
    found = list(manifest.problems(folder))
    words = ("a.json was changed", "one.npz is missing", "report.html cannot be read", "twin/model.json was changed")
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


def test_a_listed_file_is_compared_before_it_is_parsed(folder: Path) -> None:
    for name in ("a.json", "outputs/one.npz"):
        assert read_checked(folder / name) == f'"{name}"'.encode()
        (folder / name).write_text("[" * 1000)
        with pytest.raises(ValueError, match="changed since it was written"):
            read_checked(folder / name)


def test_what_is_written_anew_leaves_the_list_first(folder: Path) -> None:
    manifest.forget(folder, "a.json")
    (folder / "a.json").write_text("new")  # a kill would be here
    assert read_checked(folder / "a.json") == b"new"
    (folder / "outputs/one.npz").write_text("damaged")
    manifest.complete(folder)
    assert list(manifest.problems(folder)) == [f"{folder}/outputs/one.npz was changed since it was written"]


LISTS: tuple[object, ...] = ([], {}, {"a.json": 1}, {"a.json": [1]}, {"a.json": ["x", 1]})


@pytest.mark.parametrize("text", ["", "{}", "[]", *(json.dumps(sealed({"files": each})) for each in LISTS)])
def test_a_damaged_list_counts_as_none(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text)
    assert read_checked(folder / "a.json")
    (line,) = manifest.problems(folder)
    assert "manifest.json is damaged: run the same command again, or copy the folder anew" in line


@pytest.mark.posix
def test_a_list_of_a_stranger_leads_nowhere(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "secret").write_text("x")
    (folder / "link").symlink_to(other)
    names = ("../x", str(other / "secret"), "link/secret", "nothing\0", "x" * 5000)
    files.write_atomically(folder / MANIFEST, json.dumps(sealed({"files": {name: [1, "x"] for name in names}})))
    found = list(manifest.problems(folder))
    assert len(found) == len(names)
    assert all("cannot be read" in line for line in found)


@pytest.mark.posix
def test_a_file_of_ours_is_no_link(folder: Path) -> None:
    (folder / "a.json").rename(folder / "b.json")
    (folder / "a.json").symlink_to("b.json")
    with pytest.raises(ValueError, match=r"a\.json is a link: put the file itself there"):
        files.read_json(folder / "a.json")
