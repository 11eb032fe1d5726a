"""Pipes, devices, links without end and files of any size among images: one line each, and no waiting."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from published import formats

from adamatch.base import regular_files
from adamatch.base.errors import InputError
from adamatch.base.regular_files import open_file
from adamatch.datasets import digits
from adamatch.datasets.archive import members
from adamatch.datasets.source import Found
from adamatch.images.decode import read_image
from adamatch.images.reading import median_side, read, stream

SECONDS = 20
pytestmark = pytest.mark.posix  # pipes, devices and alarms


@pytest.fixture(autouse=True)
def no_waiting(tmp_path: Path) -> Iterator[None]:
    """What waits for a pipe would wait for ever."""

    def give_up(*_: object) -> None:
        for path in tmp_path.rglob("*"):
            if path.is_fifo():
                os.close(os.open(path, os.O_RDWR))  # so that threads which wait for it end
        pytest.fail("it waits")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(regular_files.LARGEST + 1)  # a hole: it takes no room


def sizeless(path: Path) -> None:
    """What has no size may have no end; this one has."""
    path.symlink_to("/proc/cpuinfo")


BAD = {
    pipe: "not a regular file",
    device: "not a regular file",
    nothing: "does not exist",
    huge: "has 256 MiB, more than the 256 MiB that it may have",
    sizeless: "empty",
}


@pytest.fixture(params=BAD, ids=lambda make: make.__name__)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """cat/ and dog/ with a good image each, and a bad one of a kind; and what is to be said of it."""
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.fromarray(formats.random_images(1, 9, 9, 3)[0]).save(tmp_path / "images" / name / "good.png")
    request.param(tmp_path / "images/cat/bad.png")
    return tmp_path / "images", BAD[request.param]


def test_in_a_folder_they_are_named(folder: tuple[Path, str]) -> None:
    place, says = folder
    assert median_side(place) == 9
    for source, labelled in ((place, True), (place, False), (place / "cat", None)):
        (why,) = read(source, size=8, labelled=labelled).info["skipped"].values()
        assert re.search(rf"bad\.png .*{says}", why)


def test_one_by_one_and_in_a_list(folder: tuple[Path, str]) -> None:
    place, says = folder
    with pytest.raises(InputError, match=rf"bad\.png .*{says}"):
        read_image(place / "cat/bad.png")
    with pytest.raises(InputError, match="cannot be read"):
        open_file(Path("a\0b"))
    (place / "list.csv").write_text("cat/good.png,cat\ncat/bad.png,dog\n")
    assert len(read(place / "list.csv", size=8, skip_bad=True)) == 1
    with pytest.raises(InputError, match=r"bad\.png "):
        list(stream([place / "cat/good.png", place / "cat/bad.png"], size=8)[1])


@pytest.mark.parametrize("make", [pipe, device, nothing], ids=lambda make: make.__name__)
def test_in_an_unpacked_archive(make: object, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    make(tmp_path / "set/bad.png")  # type: ignore[operator]
    with pytest.raises(InputError, match=r"bad\.png is a pipe, a device or a link to nothing: remove it"):
        list(members(tmp_path / "set"))


@pytest.mark.parametrize("name", ["usps.h5", "zip.train.gz", "train_32x32.mat", "mnist_m.tar.gz"])
def test_as_an_archive(name: str, tmp_path: Path) -> None:
    pipe(tmp_path / name)
    read = digits.svhn if name.endswith(".mat") else digits.mnist_m if "mnist" in name else digits.usps
    with pytest.raises(InputError, match=name):
        read(Found(tmp_path))["train"]()
