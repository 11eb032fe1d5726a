"""Arrays out of files, held against NumPy's own reading; nothing in a file is ever run."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from published import formats, hostile

from adamatch.base.errors import InputError
from adamatch.datasets import matfile, numeric


def read(path: Path) -> None:
    """As the readers do."""
    if path.suffix == ".npz":
        numeric.npz(path, "images", "labels")
    elif path.suffix == ".h5":
        numeric.h5(path, "train/data", "train/target")
    elif path.suffix == ".gz":
        numeric.idx(path, 3)
    else:
        with path.open("rb") as file:
            matfile.load(file, ("X", "y"), str(path))


@pytest.mark.parametrize("case", hostile.ARRAYS, ids=lambda case: case.name)
def test_hostile_arrays_are_refused_by_name(
    tmp_path: Path, case: hostile.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / case.file
    case.write(path)
    with pytest.raises(InputError) as refusal:
        read(path)
    assert all(word in str(refusal.value) for word in case.says), refusal.value
    assert sorted(tmp_path.rglob("*")) == [path], "something was run"


def test_idx(tmp_path: Path) -> None:
    images, _ = formats.mnist(tmp_path, "train")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    np.testing.assert_array_equal(numeric.idx(path, 3), images)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"<html>", whole[:-9] + b"x" * 9):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"train-images-idx3-ubyte\.gz.*fetch it again"):
            numeric.idx(path, 3)
    with pytest.raises(InputError, match="3 dimensions"):
        numeric.idx(tmp_path / "train-labels-idx1-ubyte.gz", 3)


def test_npz(tmp_path: Path) -> None:
    images, labels = formats.random_images(4, 6, 6, 3), formats.random_labels(4)
    np.savez_compressed(tmp_path / "a.npz", images=images, labels=labels)
    for found, made in zip(numeric.npz(tmp_path / "a.npz", "images", "labels"), (images, labels), strict=True):
        np.testing.assert_array_equal(found, made)
    with pytest.raises(InputError, match="no array called other"):
        numeric.npz(tmp_path / "a.npz", "other")


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numeric, "LARGEST", 1000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(2000)))
    with pytest.raises(InputError, match=r"a\.gz .*bomb"):
        numeric.unpacked(tmp_path / "a.gz")


@pytest.mark.parametrize("text", [b"", b"1 2 3", b"1 x", b"1 2\n3 4\n5"])
def test_tables_that_are_none(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "t").write_bytes(text)
    with pytest.raises(InputError, match="fetch it again"):
        numeric.table(tmp_path / "t", 2)


def test_h5_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "usps.h5").write_bytes(b"x" * 100)
    with pytest.raises(InputError, match=r"usps\.h5 cannot be read"):
        numeric.h5(tmp_path / "usps.h5", "train/data")
    formats.usps_h5(tmp_path)
    with pytest.raises(InputError, match="train/nothing"):
        numeric.h5(tmp_path / "usps.h5", "train/nothing")
