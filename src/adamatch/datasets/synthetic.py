"""Digit domains that can be made where the originals cannot be had. Their names say that they are not those.

`mnistm_generated`: MNIST blended with patches of photographs (their difference), as Ganin and Lempitsky made MNIST-M.
`synthetic_drawn`: numbers of one to three digits drawn with fonts, in the manner of their Synthetic Digits: varied
place, slant, colours, clutter and blur; the label is the middle digit.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from adamatch.base.errors import InputError
from adamatch.datasets.archive import is_image
from adamatch.datasets.digits import CLASSES
from adamatch.datasets.rendered import FONTS, typeface
from adamatch.datasets.source import Found, Payload, Split, Wanted
from adamatch.images.decode import read_image
from adamatch.images.store import Pixels

SIDE = 32
OVERSAMPLE = 3  # drawn larger and averaged, so that edges are smooth
TEST_PHOTOS = 5  # every fifth photograph serves the test set only, so that no background is in both


def mnistm_generated(find: Callable[[], Split], photos: Path, split: str, seed: int = 0) -> Split:
    """Each image of MNIST (padded to 32 x 32) as |patch - digit|, the patch cut at random out of a photograph."""
    mnist = find()
    found = [path for name, paths in sorted(Found(photos).files.items()) if is_image(name) for path in paths]
    chosen = [path for i, path in enumerate(sorted(found)) if (i % TEST_PHOTOS == 0) == (split == "test")]
    if not chosen:
        needed = f"at least 2 are needed (one in {TEST_PHOTOS} is for the test set)"
        raise InputError(f"{photos} has {len(found)} photographs: {needed}")

    def images(wanted: Wanted) -> Iterator[tuple[int, Payload]]:
        for index, digit in mnist.images(wanted):
            assert isinstance(digit, np.ndarray), "MNIST is read as arrays"
            random = np.random.default_rng((seed, split == "test", index))
            yield index, partial(blend, digit, chosen[int(random.integers(len(chosen)))], random.random(2).tolist())

    return Split(mnist.count, mnist.labels, CLASSES, images, (*mnist.files, photos))


def blend(digit: Pixels, photo: Path, at: Sequence[float]) -> Pixels:
    """digit: (32, 32); at: where in the photograph the patch is cut, from 0 to 1 in each direction."""
    picture = _photo(photo)
    top, left = (int(u * (length - SIDE + 1)) for u, length in zip(at, picture.shape, strict=False))
    patch = picture[top : top + SIDE, left : left + SIDE].astype(np.int16)
    blended: Pixels = np.abs(patch - digit[:, :, None]).astype(np.uint8)
    return blended


@lru_cache(maxsize=256)  # about 120 MB
def _photo(path: Path) -> Pixels:
    """A photograph with a short side of about 320, the size of those in BSDS500 from which MNIST-M was made."""
    image = read_image(path)
    scale = 320 / min(image.size)
    if scale < 1 or min(image.size) < SIDE:
        image = image.resize((max(round(image.width * scale), SIDE), max(round(image.height * scale), SIDE)))
    return np.asarray(image)


def synthetic_drawn(count: int, split: str, seed: int = 0) -> Split:
    """`count` images, as many of each digit as of any other."""
    if count < 1:
        raise InputError(f"{count} images were asked for: at least 1")
    labels = np.random.default_rng((seed, split == "test")).permutation(np.arange(count, dtype=np.int64) % 10)

    def images(wanted: Wanted) -> Iterator[tuple[int, Payload]]:
        for i in np.flatnonzero(wanted):
            yield int(i), partial(draw, int(labels[i]), (seed, int(split == "test"), int(i)))

    return Split(count, labels, CLASSES, images, ())


def draw(digit: int, seed: Sequence[int]) -> Pixels:
    """A number whose middle digit is `digit`, on a plain background, in colours that can be told apart."""
    random = np.random.default_rng(tuple(seed))
    before, after = (str(random.integers(10)) if random.random() < 0.5 else "" for _ in range(2))
    ink, paper = _colours(random)
    big = SIDE * OVERSAMPLE
    font = typeface(FONTS[int(random.integers(len(FONTS)))], int(big * random.uniform(0.55, 0.95)))
    canvas = Image.new("RGB", (2 * big, 2 * big), paper)
    pen = ImageDraw.Draw(canvas)
    for _ in range(int(random.integers(4))):  # clutter: lines in other colours, behind the digits
        ends = random.uniform(0.3, 1.7, 4) * big
        pen.line(tuple(ends), fill=tuple(random.integers(0, 256, 3).tolist()), width=int(random.integers(2, 9)))
    beside = random.uniform(-0.02, 0.08) * big + font.getlength(str(digit)) / 2  # from the middle to the next digits
    for text, at, anchor in ((before, big - beside, "rm"), (after, big + beside, "lm"), (str(digit), big, "mm")):
        pen.text((at, big), text, fill=ink, font=font, anchor=anchor)
    shift = tuple((random.uniform(-0.1, 0.1, 2) * big).tolist())
    turned = canvas.rotate(random.uniform(-15, 15), Image.Resampling.BILINEAR, translate=shift, fillcolor=paper)
    small = turned.crop((big // 2, big // 2, big // 2 + big, big // 2 + big)).reduce(OVERSAMPLE)
    blurred = small.filter(ImageFilter.GaussianBlur(random.uniform(0, 1.2)))
    noise = random.normal(0, random.uniform(0, 8), (SIDE, SIDE, 3))
    return (np.asarray(blurred) + noise).round().clip(0, 255).astype(np.uint8)


def _colours(random: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ink and paper, at least 60 levels of brightness apart."""
    brightness = np.array([0.299, 0.587, 0.114])
    while True:
        ink, paper = random.integers(0, 256, (2, 3))
        if abs((ink - paper) @ brightness) >= 60:
            return tuple(ink.tolist()), tuple(paper.tolist())
