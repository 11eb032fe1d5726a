"""Verification finds what was put wrong, and stays quiet where nothing is."""

import json
from pathlib import Path

import numpy as np
import pytest
from published import formats

from adamatch.base.errors import InputError
from adamatch.base.files import checksum, sealed, unsealed
from adamatch.datasets import catalog, verify
from adamatch.datasets.source import DataSet, Domain

CLASSES = ("cat", "dog", "emu")


def write(path: Path, count: int, seed: int = 0, **info: object) -> Path:
    return formats.store(path, formats.random_images(count, 8, 8, 3, seed=seed), np.arange(count) % 3, CLASSES, **info)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A published set of 30 + 9 images in three classes, of which 12 are a customary subset; prepared as published."""
    domain = Domain((), {"train": (10, 10, 10), "test": 9}, "page", subset={"train": 12})
    monkeypatch.setitem(catalog.SETS, "zoo", DataSet({"photo": domain}, lambda found, domain: {}, (8,), {}))
    write(tmp_path / "zoo" / "photo" / "train-8", 30, 0)
    write(tmp_path / "zoo" / "photo" / "test-8", 9, 1)
    return tmp_path


def found(root: Path, level: str) -> list[str]:
    return [f"{store}: {text}" for kind, store, text in verify.verify(root, "zoo") if kind == level]


def test_a_good_set(root: Path) -> None:
    assert found(root, "error") == found(root, "note") == []
    assert "zoo/photo/train-8: 30 images, as published in each class" in found(root, "ok")


@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "store.json"])
def test_a_file_that_is_changed_cut_or_missing(root: Path, name: str) -> None:
    path = root / "zoo" / "photo" / "train-8" / name
    path.write_bytes(path.read_bytes()[:-5] + b"\1" + path.read_bytes()[-4:])
    assert len(found(root, "error")) == 1
    path.write_bytes(path.read_bytes()[:50])
    assert len(found(root, "error")) == 1
    if name != "store.json":
        path.unlink()
        assert len(found(root, "error")) == 1


def test_counts_per_class(root: Path) -> None:
    path = root / "zoo" / "photo" / "train-8"
    labels = np.load(path / "labels.npy")
    labels[0] = 1
    np.save(path / "labels.npy", labels)
    head = unsealed(json.loads((path / "store.json").read_text()))
    head["sha256"]["labels.npy"] = checksum(path / "labels.npy")
    (path / "store.json").write_text(json.dumps(sealed(head)))
    assert found(root, "error") == ["zoo/photo/train-8: images per class are (9, 11, 10), not (10, 10, 10)"]


def test_a_wrong_number_and_a_customary_one(root: Path) -> None:
    write(root / "zoo" / "photo" / "train-8", 29)
    assert found(root, "error") == ["zoo/photo/train-8: 29 images, but 30 were published"]
    write(root / "zoo" / "photo" / "train-8", 12)
    assert found(root, "error") == []
    assert found(root, "note") == ["zoo/photo/train-8: the customary subset of 12 of the 30 published images"]


def test_a_sum_is_held_against_both_splits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for total, errors in ((39, 0), (40, 1)):
        entry = DataSet({"photo": Domain((), {"train+test": total}, "page")}, lambda found, domain: {}, (8,), {})
        monkeypatch.setitem(catalog.SETS, "zoo", entry)
        assert len(found(root, "error")) == errors


def test_images_that_were_left_out(root: Path) -> None:
    write(root / "zoo" / "photo" / "test-8", 9, 1, skipped=["a.zip: 'b.png' is truncated"])
    assert found(root, "error") == [
        "zoo/photo/test-8: 1 images could not be read and are left out (first: a.zip: 'b.png' is truncated)"
    ]


def test_nothing_prepared(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no prepared store.*prepare pacs --from DIR"):
        list(verify.verify(tmp_path, "pacs"))
