"""The loop that fills stores: killed or damaged, it ends with the same store or an error."""

import errno
import multiprocessing as mp
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from published import formats

from adamatch.base import system
from adamatch.base.errors import InputError
from adamatch.datasets import prepare
from adamatch.datasets.archive import Encoded
from adamatch.datasets.prepare import fit
from adamatch.datasets.source import Payload, Split, from_arrays, from_names
from adamatch.images import reading
from adamatch.images.store import Pixels, Store

COUNT = 300


def archive(folder: Path, bad: tuple[int, ...] = ()) -> Split:
    path = folder / "images.zip"
    names = [f"a/{i:04d}.png" for i in range(COUNT)]
    if not path.exists():
        data = [formats.encoded(image) for image in formats.random_images(COUNT, 40, 50, 3)]
        for i in bad:
            data[i] = data[i][: len(data[i]) // 2]
        formats.zipped(path, dict(zip(names, data, strict=True)))
    return from_names(path, names, np.arange(COUNT) % 7, tuple("abcdefg"))


def run(split: Split, path: Path, *, skip_bad: bool = False) -> Store:
    return formats.prepared(split, path, 16, info={"set": "test"}, skip_bad=skip_bad)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_image_is_where_it_belongs(tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "cores", lambda: threads)
    split = archive(tmp_path)
    store = run(split, tmp_path / "store")
    for row, payload in split.images():
        assert isinstance(payload, Encoded)
        np.testing.assert_array_equal(store.images[row], fit(payload, 16))
    np.testing.assert_array_equal(store.labels, np.arange(COUNT) % 7)
    assert store.info == {"set": "test", "from": ["images.zip"]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images.zip", "store"]


def slowly(folder: Path) -> None:
    """What a process that will be killed does."""
    quick = prepare.fit

    def slow(payload: Payload, size: int) -> Pixels:
        time.sleep(0.02)
        return quick(payload, size)

    prepare.fit = slow
    run(archive(folder), folder / "killed")


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_killed_and_run_again(tmp_path: Path) -> None:
    whole = run(archive(tmp_path), tmp_path / "in one go")
    process = mp.get_context("fork").Process(target=slowly, args=(tmp_path,))
    process.start()
    deadline = time.monotonic() + 30
    while not (tmp_path / ".killed.partial/images.npy").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "killed").exists()
    np.testing.assert_array_equal(run(archive(tmp_path), tmp_path / "killed").images, whole.images)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images.zip", "in one go", "killed"]


def test_unreadable_images_stop_it_by_name_or_are_left_out(tmp_path: Path) -> None:
    split = archive(tmp_path, bad=(5, 250))
    message = r"^2 of 300 images cannot be read .*a/0005\.png.* is truncated\): .*--skip-bad"
    with pytest.raises(InputError, match=message):
        run(split, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    store = run(split, tmp_path / "store", skip_bad=True)
    kept = np.delete(np.arange(COUNT), [5, 250])
    np.testing.assert_array_equal(store.labels, kept % 7)
    assert [line.split(": ")[1].split(" ")[0] for line in store.info["skipped"]] == ["'a/0005.png'", "'a/0250.png'"]
    np.testing.assert_array_equal(store.images[297], fit(dict(split.images())[299], 16))


def test_an_error_in_the_archive_ends_it(tmp_path: Path) -> None:
    def images() -> Iterator[tuple[int, Payload]]:
        yield 0, np.zeros((40, 40, 3), np.uint8)
        raise InputError("the archive is damaged")

    with pytest.raises(InputError, match="the archive is damaged"):
        run(Split(2, None, (), images, ()), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_no_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no images"):
        run(from_arrays(formats.random_images(0, 16, 16, 3), None, ("a",), tmp_path), tmp_path / "store")


def test_a_disk_without_room_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(system, "fill", full)
    with pytest.raises(InputError, match=r"store cannot be written \(No space left on device\): make room"):
        run(archive(tmp_path), tmp_path / "store")
