"""The generators: what they draw follows from the seed alone, and is what it says."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from published import formats

from adamatch.base.errors import InputError
from adamatch.datasets import digits
from adamatch.datasets.source import Found
from adamatch.datasets.synthetic import blend, draw, mnistm_generated, synthetic_drawn


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten photographs, each of one colour, so that a patch tells which one it came from."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(10):
        Image.new("RGB", (60 + i, 50), (i * 20, 255 - i * 20, 7)).save(folder / f"{i}.png")
    return folder


def test_mnistm_is_the_difference_of_a_patch_and_a_digit(tmp_path: Path, photos: Path) -> None:
    images, labels = formats.mnist(tmp_path, "train")
    mnist = digits.mnist(Found(tmp_path))["train"]
    store = formats.prepared(mnistm_generated(mnist, photos, "train"), tmp_path / "store")
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2))).astype(int)
    colours = [(i * 20, 255 - i * 20, 7) for i in range(10)]
    used = set()
    for found, digit in zip(store.images, padded, strict=True):
        corner = tuple(found[0, 0].tolist())  # padding: the photograph itself
        assert corner in colours
        used.add(corner)
        np.testing.assert_array_equal(found, np.abs(np.array(corner) - digit[:, :, None]))
    np.testing.assert_array_equal(store.labels, labels)
    assert len(used) > 3
    assert not used & {colours[0], colours[5]}, "photographs of the test set"


def test_mnistm_patches_come_from_the_whole_photograph(tmp_path: Path) -> None:
    ramp = np.zeros((100, 120, 3), np.uint8)
    ramp[:, :, 0], ramp[:, :, 1] = np.arange(120)[None], np.arange(100)[:, None]
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    for at, corner in (((0.0, 0.0), (0, 0)), ((0.9999, 0.9999), (88, 68))):
        assert tuple(blend(np.zeros((32, 32), np.uint8), tmp_path / "ramp.png", at)[0, 0, :2].tolist()) == corner


def test_too_few_photographs_or_images(tmp_path: Path) -> None:
    formats.mnist(tmp_path, "train")
    mnist = digits.mnist(Found(tmp_path))["train"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has 0 photographs"):
        mnistm_generated(mnist, tmp_path / "empty", "train")
    with pytest.raises(InputError, match="at least 1"):
        synthetic_drawn(0, "train")


def test_drawn_digits_are_balanced_varied_and_repeatable(tmp_path: Path) -> None:
    one = formats.prepared(synthetic_drawn(40, "train", 3), tmp_path / "one", workers=1)
    two = formats.prepared(synthetic_drawn(40, "train", 3), tmp_path / "two", workers=2)
    np.testing.assert_array_equal(one.images, two.images)
    assert one.labels is not None
    assert np.bincount(one.labels).tolist() == [4] * 10
    assert len({image.tobytes() for image in one.images}) == 40
    for other in (synthetic_drawn(40, "train", 4), synthetic_drawn(40, "test", 3)):
        store = formats.prepared(other, tmp_path / "other")
        assert not {x.tobytes() for x in one.images} & {x.tobytes() for x in store.images}
        shutil.rmtree(tmp_path / "other")


def test_drawn_digits_can_be_told_from_their_background() -> None:
    """The middle of the image varies more in brightness than noise of 8 levels does."""
    spread = [
        np.asarray(Image.fromarray(draw(i % 10, (0, 0, i))).convert("L"), float)[8:24, 8:24].std() for i in range(50)
    ]
    assert np.median(spread) > 20
    assert min(spread) > 5
