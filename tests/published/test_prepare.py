"""The loop that fills stores: killed, damaged, with one worker or several, it ends with the same store or an error."""

import errno
import io
import multiprocessing as mp
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from published import formats

from adamatch.base.errors import InputError
from adamatch.datasets import prepare
from adamatch.datasets.archive import Encoded
from adamatch.datasets.prepare import fit, portions, store_split
from adamatch.datasets.source import Payload, Split, Wanted, from_arrays, from_names
from adamatch.images.store import Pixels, Store

COUNT = 300


def archive(folder: Path, count: int = COUNT, bad: tuple[int, ...] = ()) -> Split:
    path = folder / "images.zip"
    names = [f"a/{i:04d}.png" for i in range(count)]
    if not path.exists():
        data = [formats.encoded(image) for image in formats.random_images(count, 40, 50, 3)]
        for i in bad:
            data[i] = data[i][: len(data[i]) // 2]
        formats.zipped(path, dict(zip(names, data, strict=True)))
    return from_names(path, names, np.arange(count) % 7, tuple("abcdefg"))


def run(split: Split, path: Path, **how: Any) -> Store:
    return formats.prepared(split, path, 16, info={"set": "test"}, **how)


def same(one: Path, other: Path) -> bool:
    return all((one / n).read_bytes() == (other / n).read_bytes() for n in ("images.npy", "labels.npy", "store.json"))


@pytest.mark.parametrize("workers", [1, 3])
def test_every_image_is_where_it_belongs(tmp_path: Path, workers: int) -> None:
    split = archive(tmp_path)
    store = run(split, tmp_path / "store", workers=workers)
    for index, payload in split.images(np.arange(COUNT) % 37 == 0):
        assert isinstance(payload, Encoded)
        np.testing.assert_array_equal(store.images[index], fit(payload, 16))
    np.testing.assert_array_equal(store.labels, np.arange(COUNT) % 7)
    assert store.info == {"set": "test", "from": ["images.zip"]}
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []


def slowly(folder: Path) -> None:
    """What a process that will be killed does: 2,000 images at about a thousand a second."""
    quick = prepare.fit

    def slow(payload: Payload, size: int) -> Pixels:
        time.sleep(0.002)
        return quick(payload, size)

    prepare.fit = slow
    for _ in store_split(lambda: archive(folder, 2000), folder / "killed", 16, info={"set": "test"}, workers=2):
        pass


def start(folder: Path, *, until: int) -> BaseProcess:
    """A process at work, as soon as `until` images are done."""
    process = mp.get_context("fork").Process(target=slowly, args=(folder,))
    process.start()
    deadline = time.monotonic() + 30
    while done(folder) < until and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.002)
    return process


def done(folder: Path) -> int:
    try:
        return int(np.load(folder / ".killed.partial" / "done.npy").sum())
    except (OSError, ValueError, EOFError):
        return 0


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_killed_five_times_and_finished(tmp_path: Path) -> None:
    archive(tmp_path, 2000)
    moments = random.Random(0)
    for kill in range(5):
        before = done(tmp_path)
        process = start(tmp_path, until=before + moments.randint(0, 250))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not (tmp_path / "killed").exists(), f"kill {kill}: it was finished before"
        assert done(tmp_path) >= before, "it began again"
    assert 0 < done(tmp_path) < 2000
    process = start(tmp_path, until=2001)
    process.join()
    run(archive(tmp_path, 2000), tmp_path / "in one go")
    assert same(tmp_path / "killed", tmp_path / "in one go")


def alive(process: str) -> bool:
    """It exists, and is not just waiting to be buried."""
    try:
        return ") Z " not in Path("/proc", process, "stat").read_text()
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    archive(tmp_path, 2000)
    process = start(tmp_path, until=10)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.kill()
    process.join()
    deadline = time.monotonic() + 10
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))


def test_another_archive_is_not_mixed_into_half_a_store(tmp_path: Path) -> None:
    next(store_split(lambda: archive(tmp_path), tmp_path / "store", 16, info={"set": "test"}, workers=1))
    assert np.load(tmp_path / ".store.partial" / "done.npy").any()
    (tmp_path / "images.zip").unlink()
    split = archive(tmp_path, COUNT - 1)
    store = run(split, tmp_path / "store")
    assert len(store) == COUNT - 1


def test_other_images_in_the_same_folder_are_not_mixed_into_half_a_store(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    (folder / "a").mkdir(parents=True)
    images = formats.random_images(COUNT + 1, 16, 16, 3)
    for i, image in enumerate(images):
        (folder / "a" / f"{i:04d}.png").write_bytes(formats.encoded(image))

    def split(first: int) -> Split:
        names = [f"a/{i:04d}.png" for i in range(first, first + COUNT)]
        return from_names(folder, names, np.zeros(COUNT, int), ("a",))

    next(store_split(lambda: split(0), tmp_path / "store", 16, info={}, workers=1))
    assert np.load(tmp_path / ".store.partial" / "done.npy").any()
    np.testing.assert_array_equal(run(split(1), tmp_path / "store").images, images[1:])


def test_unreadable_images_stop_it_by_name_or_are_left_out(tmp_path: Path) -> None:
    split = archive(tmp_path, bad=(5, 250))
    with pytest.raises(
        InputError, match=r"^2 of 300 images cannot be read .*a/0005\.png.* is truncated\): .*--skip-bad"
    ):
        run(split, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    assert np.load(tmp_path / ".store.partial" / "done.npy").sum() == COUNT - 2, "the others are kept"
    store = run(split, tmp_path / "store", skip_bad=True)
    kept = np.delete(np.arange(COUNT), [5, 250])
    np.testing.assert_array_equal(store.labels, kept % 7)
    assert [line.split(": ")[1].split(" ")[0] for line in store.info["skipped"]] == ["'a/0005.png'", "'a/0250.png'"]
    (index, payload), *_ = split.images(np.arange(COUNT) == 299)
    assert index == 299
    np.testing.assert_array_equal(store.images[297], fit(payload, 16))


def test_an_error_in_the_archive_ends_it(tmp_path: Path) -> None:
    def images(wanted: Wanted) -> Iterator[tuple[int, Payload]]:
        yield 0, np.zeros((40, 40, 3), np.uint8)
        raise InputError("the archive is damaged")

    with pytest.raises(InputError, match="the archive is damaged"):
        run(Split(2, None, (), images, ()), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def made(value: int) -> Payload:
    return np.full((16, 16, 3), value, np.uint8)


def test_payloads_of_every_kind(tmp_path: Path) -> None:
    image = formats.random_images(1, 16, 16, 3)[0]
    Image.fromarray(image).save(tmp_path / "a.png")
    np.testing.assert_array_equal(fit(tmp_path / "a.png", 16), image)
    np.testing.assert_array_equal(fit(Encoded("a", (tmp_path / "a.png").read_bytes()), 16), image)
    np.testing.assert_array_equal(fit(image, 16), image)
    np.testing.assert_array_equal(fit(image[:, :, 0], 16), np.repeat(image[:, :, :1], 3, axis=2))
    np.testing.assert_array_equal(fit(partial(made, 9), 16), made(9))  # type: ignore[arg-type]
    assert fit(image, 8).shape == (8, 8, 3)


def test_portions_are_bounded_by_number_and_by_bytes() -> None:
    assert [len(p) for p in portions((i, Path("x")) for i in range(150))] == [32, 32, 32, 32, 22]
    large = np.zeros(3 << 18, np.uint8)
    assert [len(p) for p in portions((i, large) for i in range(7))] == [3, 3, 1]


def test_no_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no images"):
        run(from_arrays(formats.random_images(0, 16, 16, 3), None, ("a",), [tmp_path]), tmp_path / "store")


def test_a_full_disk_is_an_error_and_what_was_done_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.FileIO):
        """A file on a disk with room for 40 images."""

        def write(self, block: Any) -> int:
            if self.tell() >= 40 * 16 * 16 * 3:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(block)

    split = from_arrays(formats.random_images(100, 16, 16, 3), None, ("a",), [tmp_path])
    real = Path.open
    with monkeypatch.context() as patched:
        patched.setattr(
            Path, "open", lambda p, mode="r", **how: Full(p, mode) if mode == "r+b" else real(p, mode, **how)
        )
        with pytest.raises(InputError, match=r"cannot be written \(No space left on device\): make room"):
            run(split, tmp_path / "store")
    assert np.load(tmp_path / ".store.partial" / "done.npy").sum() == 40
    np.testing.assert_array_equal(run(split, tmp_path / "store").images, formats.random_images(100, 16, 16, 3))


def suicide() -> Payload:
    os._exit(9)


def test_a_worker_that_is_killed_is_an_error(tmp_path: Path) -> None:
    def images(wanted: Wanted) -> Iterator[tuple[int, Payload]]:
        yield 0, suicide  # type: ignore[misc]

    with pytest.raises(InputError, match="fewer --workers"):
        run(Split(1, None, (), images, ()), tmp_path / "store")
