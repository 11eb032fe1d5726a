"""`adamatch data` from outside: what a person types, sees and gets."""

from pathlib import Path

import pytest
from published import formats
from typer.testing import CliRunner

from adamatch.base.errors import InputError
from adamatch.datasets import catalog, commands
from adamatch.datasets.source import DataSet, Domain, File
from adamatch.images.store import Store


def call(*words: str | Path) -> str:
    """The output; what goes wrong is raised, as the package's own main expects it."""
    result = CliRunner().invoke(commands.app, [str(word) for word in words], env={"COLUMNS": "300"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output + (f"exit {result.exit_code}" if result.exit_code else "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for split in ("train", "test"):
        formats.mnist(tmp_path / "in", split)
    return tmp_path / "in"


def test_prepare_list_and_verify(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    said = call("prepare", "digitfive", "--from", folder, "--data", data)
    assert said.count("missing") == 4
    assert "digitfive/usps: no files for train, test (usps.bz2, usps.t.bz2); they come from https://hastie" in said
    assert len(Store.open(data / "digitfive" / "mnist" / "train-32")) == 20
    assert "20 images (already there: left as it is" in call("prepare", "digitfive", "--from", folder, "--data", data)
    (row,) = [line for line in call("list", "--data", data).splitlines() if " mnist " in line]
    assert "test-32 train-32" in row
    said = call("verify", "digitfive", "--data", data)
    assert said.endswith("exit 1")
    assert "20 images, but 60,000 were published" in said
    (data / "digitfive" / "mnist" / "test-32" / "store.json").write_text("{")
    assert "error digitfive/mnist/test-32: " in call("verify", "digitfive", "--data", data)


def test_list_shows_every_domain(tmp_path: Path) -> None:
    said = call("list", "--data", tmp_path)
    for name, data_set in catalog.SETS.items():
        assert all(any(name in line and domain in line for line in said.splitlines()) for domain in data_set.domains)
    assert "non-commercial" in said


def test_errors_are_raised_in_one_line(tmp_path: Path) -> None:
    for words in (
        ("prepare", "digitfive", "--from", tmp_path),
        ("prepare", "digitfives", "--from", tmp_path),
        ("download", "digitfives"),
        ("download", "pacs", "--domain", "photos"),
        ("verify", "--data", tmp_path),
    ):
        with pytest.raises(InputError) as error:
            call(*words)
        assert "\n" not in str(error.value)


def test_download_goes_on_when_one_file_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there.bin").write_bytes(b"x")
    domain = Domain((File("lost.bin"), File("there.bin")), {"train": 1}, "http://page.example/")
    monkeypatch.setitem(catalog.SETS, "zoo", DataSet({"photo": domain}, lambda found, domain: {}, (8,), {}))
    with pytest.raises(InputError, match=r"1 of 2 files of zoo .*lost\.bin.*by hand from http://page\.example/"):
        call("download", "zoo", "--to", tmp_path)


def test_help() -> None:
    for words in ((), ("list",), ("download",), ("prepare",), ("verify",)):
        assert ("Example: adamatch data" in call(*words, "--help")) == (words not in ((), ("list",)))
