"""MATLAB 5 files, held against SciPy's writer and reader."""

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from adamatch.base.errors import InputError
from adamatch.datasets import matfile

KINDS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]


def saved(compressed: bool, **arrays: Any) -> io.BytesIO:
    out = io.BytesIO()
    scipy.io.savemat(out, arrays, do_compression=compressed)
    out.seek(0)
    return out


@settings(max_examples=60)
@given(
    st.sampled_from(KINDS),
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.booleans(),
    st.text("abcdefghij", min_size=1, max_size=20),
)
def test_any_numeric_array_comes_out_equal(kind: str, shape: list[int], compressed: bool, name: str) -> None:
    array = np.random.default_rng(0).integers(0, 100, shape).astype(kind)
    (found,) = matfile.load(saved(compressed, **{name: array, "zz": 1.5}), (name,), "here")
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("compressed", [True, False])
def test_numbers_can_be_taken_in_pieces(compressed: bool) -> None:
    array = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 500), dtype=np.uint8)
    x = next(v for v in matfile.variables(saved(compressed, X=array, y=np.ones(500)), "here") if v.name == "X")
    pieces = [x.take(32 * 32 * 3 * n) for n in (1, 99, 400)]
    np.testing.assert_array_equal(np.concatenate(pieces), array.reshape(-1, order="F"))


def test_other_variables_are_passed_over() -> None:
    file = saved(True, text="hello", cell=np.array([1, "a"], object), struct={"a": 1}, wanted=np.arange(6.0))
    found: NDArray[Any] = matfile.load(file, ("wanted",), "here")[0]
    np.testing.assert_array_equal(found.reshape(-1), np.arange(6))


@pytest.mark.parametrize("name", ["text", "cell", "struct", "complex"])
def test_what_is_not_numbers_is_refused(name: str) -> None:
    file = saved(False, text="hello", cell=np.array([1, "a"], object), struct={"a": 1}, complex=np.array([1j]))
    with pytest.raises(InputError, match=f"here: {name} is a .*not read"):
        matfile.load(file, (name,), "here")


@pytest.mark.parametrize("compressed", [True, False])
def test_every_cut_and_many_flips_are_noticed_or_harmless(compressed: bool) -> None:
    """Never another error than ours, and never an endless read."""
    whole = saved(compressed, X=np.arange(300, dtype=np.uint8)[:, None]).getvalue()
    random = np.random.default_rng(0)
    for cut in range(0, len(whole) - 1, 7):
        with pytest.raises(InputError):
            matfile.load(io.BytesIO(whole[:cut]), ("X",), "here")
    for _ in range(300):
        flipped = bytearray(whole)
        flipped[random.integers(126, len(whole))] ^= 1 << random.integers(8)
        with suppress(InputError):
            matfile.load(io.BytesIO(bytes(flipped)), ("X",), "here")


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="here has no array called y"):
        matfile.load(saved(True, X=np.ones(3)), ("y",), "here")
