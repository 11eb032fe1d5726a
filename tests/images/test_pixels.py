"""Images that show nothing, and images that are the same."""

import numpy as np
from PIL import Image

from adamatch.datasets.rendered import handwritten, rendered
from adamatch.images import pixels


def test_empty_images() -> None:
    made_images = rendered(20, 16, seed=0).images.copy()
    made_images[3], made_images[7] = 0, (200, 30, 30)
    made_images[9] = np.random.default_rng(0).integers(100, 104, (16, 16, 3))
    assert pixels.empty(made_images).tolist() == [3, 7, 9]


def test_the_same_images_are_found_again_when_saved_anew() -> None:
    source = rendered(300, 32, seed=0).images
    others = rendered(50, 32, seed=1).images
    again = [np.asarray(Image.fromarray(source[i]).resize((40, 40)).resize((32, 32))) for i in (5, 17, 250)]
    brighter = np.clip(source[99].astype(int) + 2, 0, 255).astype(np.uint8)
    target = np.stack([*others[:20], *again, brighter, *others[20:]])
    assert pixels.nearly_same(target, source).tolist() == [[20, 5], [21, 17], [22, 250], [23, 99]]


def test_images_of_one_hash_are_told_apart_by_their_pixels() -> None:
    image = rendered(1, 32, seed=0).images // 2  # no pixel is above 127
    darker, other = image + np.uint8(3), image + np.uint8(60)
    assert pixels.nearly_same(image, other).tolist() == []
    assert pixels.nearly_same(image, np.concatenate([other, darker, image])).tolist() == [[0, 2]]


def test_different_drawings_of_thin_lines_are_not_the_same() -> None:
    """Nearly all of their pixels are white, and brightness hardly rises anywhere."""
    drawn = np.full((40, 96, 96, 3), 255, np.uint8)
    for image, (x, y, side) in zip(drawn, np.random.default_rng(0).integers(10, 43, (40, 3)), strict=True):
        image[y : y + side, x : x + side] = 0
        image[y + 3 : y + side - 3, x + 3 : x + side - 3] = 255
    assert pixels.nearly_same(drawn[:20], drawn[20:]).tolist() == []
    assert pixels.nearly_same(drawn[:20], drawn).tolist() == [[i, i] for i in range(20)]


def test_different_images_are_not_the_same() -> None:
    assert len(pixels.nearly_same(handwritten("test", 8).images, rendered(500, 8, seed=0).images)) < 5
    blank = np.zeros((10, 8, 8, 3), np.uint8)
    assert len(pixels.nearly_same(blank, blank)) == 0
