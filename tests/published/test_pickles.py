"""CIFAR's pickles: plain values come out equal, and nothing in a pickle is ever run, hashed or made room for."""

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import formats, hostile, hostile_pickles

from adamatch.base.errors import InputError
from adamatch.datasets.pickles import unpickle


def test_harmful_pickles_do_no_harm(tmp_path: Path) -> None:
    """Each in a process of its own, as one of CIFAR's batches: none ends it, fills its memory, writes a file or takes long."""
    tests = Path(__file__).parents[1]
    place = os.pathsep.join([str(tests), *sys.path])
    command = [sys.executable, "-m", "sets.hostile_pickles", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": place}, timeout=300)
    assert done.returncode == 0, done.stderr
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert told.pop("a sound one") == "read: 3 images"
    assert len(told) == len(hostile_pickles.HARMFUL) >= 12
    assert {name: what for name, what in told.items() if what != "refused"} == {}
    assert {path.name for path in tmp_path.iterdir()} == {"cifar-10-python.tar.gz", "told"}, "something was run"


@pytest.mark.parametrize("name", hostile.PICKLES)
def test_what_would_be_run_is_named(name: str) -> None:
    with pytest.raises(InputError, match=r"^batch: 'data_batch_1' .*refused"):
        unpickle(hostile.PICKLES[name], "batch: 'data_batch_1'")


def test_the_corpus_would_do_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(hostile.PICKLES["a command"])
    assert (tmp_path / "harmed").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_pickles_come_out_equal(protocol: int) -> None:
    numbers: dict[bytes | str, Any] = {
        f"a {kind}": np.arange(6, dtype=kind).reshape(2, 3) for kind in ("u1", ">i2", "<u4", "i8", "f4", ">f8")
    }
    columns = np.asfortranarray(formats.random_images(3, 5))
    value: dict[bytes | str, Any] = {
        b"data": formats.random_images(3, 5),
        b"labels": [1, 2],
        b"names": [b"a", "b"],
        b"columns": columns,
        **numbers,
    }
    found = unpickle(pickle.dumps(value, protocol), "here")
    assert found[b"labels"] == [1, 2]
    assert found[b"names"] == [b"a", "b"]
    for key, array in value.items():
        if isinstance(array, np.ndarray):
            np.testing.assert_array_equal(found[key.encode() if isinstance(key, str) else key], array)


def test_the_strings_of_python_2_are_bytes() -> None:
    """As in the published files: protocol 2, and a string for everything."""
    raw = bytes(range(256))
    pixels = hostile_pickles.array(b"K\x10K\x10\x86", hostile_pickles.BYTES, hostile_pickles.binary(raw))
    data = hostile_pickles.batch(b"](K\x01K\x02e", pixels)
    found = unpickle(data.replace(hostile_pickles.text("data"), b"U\x04data"), "here")
    assert found[b"labels"] == [1, 2]
    assert found[b"data"].shape == (16, 16)
    assert found[b"data"].tobytes() == raw


@pytest.mark.parametrize("data", [b"", b"\x80", pickle.dumps([1]), b"a.", b"e.", b"R.", b"]](.", b"h\x07."])
def test_damaged_pickles(data: bytes) -> None:
    with pytest.raises(InputError, match=r"^here is (a damaged pickle|not one of CIFAR's)"):
        unpickle(data, "here")


def test_no_pickle_leaves_anything_behind() -> None:
    sound = pickle.dumps({b"data": np.arange(4, dtype=np.uint8)}, 2)
    before = unpickle(sound, "here")[b"data"]
    for data in hostile_pickles.HARMFUL.values():
        if len(data) < 10_000:
            with suppress(InputError):  # some are refused by what they hold, later
                unpickle(data, "here")
    np.testing.assert_array_equal(unpickle(sound, "here")[b"data"], before)
