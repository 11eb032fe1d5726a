"""Arrays out of files, held against NumPy's own reading; nothing in a file is ever run."""

import gzip
import io
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st
from published import formats, hostile

from adamatch.base.errors import InputError
from adamatch.datasets import numeric


def read(path: Path) -> None:
    """As the readers do."""
    if path.suffix == ".h5":
        numeric.h5(path, "train/data", "train/target")
    elif path.suffix == ".gz":
        numeric.idx(path, 3)
    else:
        with path.open("rb") as file:
            numeric.mat(file, ("X", "y"), str(path))


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


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(2000)))
    with pytest.raises(InputError, match=r"a\.gz .*bomb"):
        numeric.unpacked(tmp_path / "a.gz", 1000)


@pytest.mark.parametrize("text", [b"", b" \n", b"1 2 3", b"1 x", b"1 2\n3 4\n5"])
def test_tables_that_are_none(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "t").write_bytes(text)
    with pytest.raises(InputError, match="fetch it again"):
        numeric.table(tmp_path / "t", 2)


def saved(compressed: bool, **arrays: object) -> io.BytesIO:
    out = io.BytesIO()
    scipy.io.savemat(out, arrays, do_compression=compressed)
    out.seek(0)
    return out


@settings(max_examples=40)
@given(
    st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]),
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.booleans(),
)
def test_mat(kind: str, shape: list[int], compressed: bool) -> None:
    array = np.random.default_rng(0).integers(0, 100, shape).astype(kind)
    others = {
        "text": "hello",
        "cell": np.array([1, "a"], object),
        "struct": {"a": 1},
        "nothing": np.empty((0, 0), object),
    }
    (found,) = numeric.mat(saved(compressed, wanted=array, **others), ("wanted",), "here")
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("name", ["text", "cell", "struct", "sparse", "complex"])
def test_what_is_not_numbers_in_a_mat_is_refused(name: str) -> None:
    sparse = scipy.sparse.csr_array(np.eye(3))
    file = saved(
        False, text="hello", cell=np.array([1, "a"], object), struct={"a": 1}, sparse=sparse, complex=np.array([1j])
    )
    with pytest.raises(InputError, match=rf"here cannot be read .*{name} is not an array of real numbers"):
        numeric.mat(file, (name,), "here")


@pytest.mark.parametrize("compressed", [True, False])
def test_a_mat_that_is_cut_or_changed_is_an_error_or_harmless(compressed: bool) -> None:
    """Never another error than ours, and never an endless read; where there is a checksum, never another number."""
    array = np.arange(300, dtype=np.uint8)[:, None]
    whole = saved(compressed, X=array).getvalue()
    random = np.random.default_rng(0)
    for cut in range(0, len(whole) - 8, 7):
        with pytest.raises(InputError, match="here"):
            numeric.mat(io.BytesIO(whole[:cut]), ("X",), "here")
    for _ in range(300):
        flipped = bytearray(whole)
        flipped[random.integers(126, len(whole))] ^= 1 << random.integers(8)
        with suppress(InputError):
            (found,) = numeric.mat(io.BytesIO(flipped), ("X",), "here")
            assert not compressed or np.array_equal(found, array)


def test_a_missing_array_is_named() -> None:
    with pytest.raises(InputError, match="here has no array called y"):
        numeric.mat(saved(True, X=np.ones(3)), ("y",), "here")
