"""The embedded benchmark: balanced, fixed by its seed, every font legible, and a split that never moves."""

import hashlib

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from adamatch.base.errors import InputError
from adamatch.datasets.rendered import CLASSES, FONTS, _glyph, handwritten, rendered


def test_rendered_has_the_shape_and_balance_asked_for() -> None:
    store = rendered(203, 16, seed=1)
    assert store.images.shape == (203, 16, 16, 3)
    assert store.images.dtype == np.uint8
    assert store.labels is not None
    assert set(np.bincount(store.labels, minlength=10)) == {20, 21}
    assert store.classes == tuple("0123456789")
    assert (store.images == store.images[..., :1]).all(), "grey"
    assert not np.array_equal(store.labels[:20], np.arange(20) % 10), "shuffled"


def test_rendered_is_fixed_by_its_seed() -> None:
    first, again, other = rendered(60, 16, 3), rendered(60, 16, 3), rendered(60, 16, 4)
    assert np.array_equal(first.images, again.images)
    assert not np.array_equal(first.images, other.images)


@pytest.mark.parametrize("size", [8, 16, 32])
def test_rendered_is_white_on_black_with_every_digit_in_view(size: int) -> None:
    images = rendered(300, size, 0).images[..., 0].astype(float)
    ink = images.mean((1, 2)) / images.max((1, 2))
    assert (images.max((1, 2)) > 60).all()
    assert ((ink > 0.02) & (ink < 0.55)).all()
    rows = np.array([np.ptp(np.flatnonzero((image > 30).any(1))) + 1 for image in images])
    assert (rows >= 0.45 * size).all()


@pytest.mark.parametrize("font", FONTS)
def test_every_font_has_ten_different_digits_of_one_height(font: str) -> None:
    glyphs = [_glyph(font, digit, 64, 0.0) for digit in CLASSES]
    heights = [glyph.height for glyph in glyphs]
    assert max(heights) <= 1.45 * min(heights), "old-style or symbol glyphs"  # cmti10's 4 and 7 hang below the line
    pictures = {np.asarray(glyph.resize((16, 16))).tobytes() for glyph in glyphs}
    assert len(pictures) == 10


def test_the_split_is_disjoint_complete_balanced_and_never_moves() -> None:
    train, test = handwritten("train", 8), handwritten("test", 8)
    assert train.labels is not None
    assert test.labels is not None
    assert (np.bincount(test.labels) == 50).all()
    digits = load_digits()
    every = np.rint(digits.images * 255 / 16).astype(np.uint8)
    known = {image.tobytes(): label for image, label in zip(every, digits.target, strict=True)}
    assert [known[image[..., 0].tobytes()] for image in test.images] == test.labels.tolist()
    both = sorted(image.tobytes() for image in np.concatenate([train.images, test.images]))
    assert both == sorted(np.repeat(image[..., None], 3, -1).tobytes() for image in every)
    assert hashlib.sha256(test.images.tobytes()).hexdigest()[:16] == "5f06435d6f96a302"


def test_handwritten_is_enlarged_as_pillow_enlarges() -> None:
    small, large = handwritten("test", 8), handwritten("test", 20)
    expected = Image.fromarray(small.images[7][..., 0]).resize((20, 20), Image.Resampling.BICUBIC)
    assert np.array_equal(large.images[7][..., 2], np.asarray(expected))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1 image"):
        rendered(0, 16, 0)
    with pytest.raises(InputError, match="did you mean 'test'"):
        handwritten("tests", 16)  # type: ignore[arg-type]
