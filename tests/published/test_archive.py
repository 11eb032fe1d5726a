"""Members of archives: the good ones come out as they went in, the bad ones are refused by name."""

from pathlib import Path

import pytest
from published import formats, hostile

from adamatch.base.errors import InputError
from adamatch.datasets.archive import Encoded, contents, members, safe_name

FILES = {"a/b/one.png": b"1" * 700, "a/two.png": b"", "three.txt": b"x" * 100_000}


def write(folder: Path, kind: str) -> Path:
    path = folder / f"x.{kind}"
    if kind == "folder":
        for name, data in FILES.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    else:
        (formats.zipped if kind == "zip" else formats.tar)(path, FILES)
    return path


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "folder"])
def test_members_come_out_as_they_went_in(tmp_path: Path, kind: str) -> None:
    assert {m.name: m.read() for m in members(write(tmp_path, kind))} == FILES


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "folder"])
def test_contents_are_the_wanted_ones_under_their_index(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind)
    found = dict(contents(path, {"three.txt": 7, "a/two.png": 2}))
    read = {i: p.data if isinstance(p, Encoded) else p.read_bytes() for i, p in found.items()}
    assert read == {7: FILES["three.txt"], 2: b""}
    with pytest.raises(InputError, match=r"lacks nowhere\.png"):
        list(contents(path, {"nowhere.png": 0}))


def test_a_list_cannot_lead_out_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match="leads out"):
        list(contents(tmp_path / "in", {"../secret": 0}))


def test_what_a_mac_leaves_behind_is_passed_over(tmp_path: Path) -> None:
    formats.zipped(tmp_path / "x.zip", {"a/1.png": b"1", "__MACOSX/a/._1.png": b"2", "a/.DS_Store": b"3"})
    assert [m.name for m in members(tmp_path / "x.zip")] == ["a/1.png"]


@pytest.mark.parametrize("case", hostile.ARCHIVES, ids=lambda case: case.name)
def test_hostile_archives_are_refused_by_name(tmp_path: Path, case: hostile.Case) -> None:
    path = tmp_path / case.file
    case.write(path)
    with pytest.raises(InputError) as refusal:
        [member.read() for member in members(path)]
    assert all(word in str(refusal.value) for word in case.says), refusal.value
    assert "\n" not in str(refusal.value)
    assert sorted(tmp_path.rglob("*")) == [path], "something was written"


@pytest.mark.parametrize("name", ["", ".", "a\0b", "/etc/x", "C:/x", "a\\x", "a/../../x"])
def test_names_that_are_none_or_lead_elsewhere(name: str) -> None:
    with pytest.raises(InputError, match="refused"):
        safe_name(name, "here")
