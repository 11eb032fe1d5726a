"""Shares of classes, what changed, alike names, images that show nothing or are the same."""

import numpy as np
import pytest
from PIL import Image
from verdict import made

from adamatch.datasets.rendered import handwritten, rendered
from adamatch.verdict import calibrated, class_shares, image_checks, mismatch
from adamatch.verdict.beside_twin import changed


def test_shares_of_labels_and_predictions() -> None:
    labels = np.array([0, 0, 2, 2, 2])
    assert class_shares.of_labels(labels, 4).tolist() == [0.4, 0, 0.6, 0]
    assert class_shares.of_labels(labels[:0], 2).tolist() == [0, 0]
    assert class_shares.of_predictions(np.eye(3)[[0, 1, 1]]).tolist() == pytest.approx([1 / 3, 2 / 3, 0])


def test_the_estimated_shares_correct_the_predictions() -> None:
    held, true = made.labels([1, 1, 1], 3000), made.labels([8, 1, 1], 3000, seed=1)
    source, target = (made.said(each, 3, 0.8, seed=2, sure=4) for each in (held, true))
    found = class_shares.estimated(target, source, held)
    assert found.sum() == pytest.approx(1)
    assert np.abs(found - [0.8, 0.1, 0.1]).max() < 0.04
    assert np.abs(found - [0.8, 0.1, 0.1]).max() < np.abs(class_shares.of_predictions(target) - [0.8, 0.1, 0.1]).max()


def test_the_estimate_knows_how_often_the_source_has_each_class() -> None:
    """A target like the source needs no correction, however uneven its classes are."""
    held = made.labels([6, 3, 1], 3000)
    source = made.said(held, 3, 0.8, seed=2, sure=4)
    said = calibrated.with_temperature(source, calibrated.temperature(source, held)).mean(0)
    assert said[0] > 2 * said[2]
    assert np.abs(class_shares.estimated(source, source, held) - said).max() < 1e-5


def test_what_changed_between_two_networks() -> None:
    true = made.labels([1, 1, 1], 300)
    ours, twins = made.said(true, 3, 0.9, seed=1), made.said(true, 3, 0.6, seed=2)
    found = changed(ours, twins)
    mine, its = ours.argmax(1), twins.argmax(1)
    assert sorted(found.rows) == [i for i in range(300) if mine[i] != its[i]]
    assert found.moves[1, 2] == sum(a == 1 and b == 2 for a, b in zip(its, mine, strict=True))
    assert found.agreement == pytest.approx(1 - len(found.rows) / 300)
    chance = sum((mine == each).mean() * (its == each).mean() for each in range(3))
    assert found.kappa == pytest.approx((found.agreement - chance) / (1 - chance))
    surest = np.minimum(ours.max(1), twins.max(1))[found.rows]
    assert (np.diff(surest) <= 0).all()
    alone = np.eye(3, dtype=np.float32)[np.zeros(5, int)]
    assert changed(alone, alone).kappa == 1


def test_names_that_are_likely_one_class() -> None:
    groups = [("Dog", "dogs"), ("cat ", "cat"), ("glass", "glasses"), ("butterfly", "Butterflies")]
    groups += [("ice_cream", "ice cream"), ("box", "boxes")]
    found = mismatch.of_names([name for group in groups for name in (*group, group[0] + " bus")])
    assert [each.line for each in found] == [f"are these the same class? {a!r} and {b!r}" for a, b in groups]


def test_names_that_are_not() -> None:
    names = ["1", "10", "1.0", "-1", "a", "as", "bus", "cactus", "class 1", "class 11", "ß", "+", "-", "猫", "犬"]
    assert mismatch.of_names(names) == []


def test_empty_images() -> None:
    made_images = rendered(20, 16, seed=0).images.copy()
    made_images[3], made_images[7] = 0, (200, 30, 30)
    made_images[9] = np.random.default_rng(0).integers(100, 104, (16, 16, 3))
    assert image_checks.empty(made_images).tolist() == [3, 7, 9]


def test_the_same_images_are_found_again_when_saved_anew() -> None:
    source = rendered(300, 32, seed=0).images
    others = rendered(50, 32, seed=1).images
    again = [np.asarray(Image.fromarray(source[i]).resize((40, 40)).resize((32, 32))) for i in (5, 17, 250)]
    brighter = np.clip(source[99].astype(int) + 2, 0, 255).astype(np.uint8)
    target = np.stack([*others[:20], *again, brighter, *others[20:]])
    assert image_checks.nearly_same(target, source).tolist() == [[20, 5], [21, 17], [22, 250], [23, 99]]


def test_images_of_one_hash_are_told_apart_by_their_pixels() -> None:
    image = rendered(1, 32, seed=0).images // 2  # no pixel is above 127
    darker, other = image + np.uint8(3), image + np.uint8(60)
    assert image_checks.nearly_same(image, other).tolist() == []
    assert image_checks.nearly_same(image, np.concatenate([other, darker, image])).tolist() == [[0, 2]]


def test_different_drawings_of_thin_lines_are_not_the_same() -> None:
    """Nearly all of their pixels are white, and brightness hardly rises anywhere."""
    drawn = np.full((40, 96, 96, 3), 255, np.uint8)
    for image, (x, y, side) in zip(drawn, np.random.default_rng(0).integers(10, 43, (40, 3)), strict=True):
        image[y : y + side, x : x + side] = 0
        image[y + 3 : y + side - 3, x + 3 : x + side - 3] = 255
    assert image_checks.nearly_same(drawn[:20], drawn[20:]).tolist() == []
    assert image_checks.nearly_same(drawn[:20], drawn).tolist() == [[i, i] for i in range(20)]


def test_different_images_are_not_the_same() -> None:
    assert len(image_checks.nearly_same(handwritten("test", 8).images, rendered(500, 8, seed=0).images)) < 5
    blank = np.zeros((10, 8, 8, 3), np.uint8)
    assert len(image_checks.nearly_same(blank, blank)) == 0
