"""The embedded benchmark's images: digits drawn with fonts, and scikit-learn's real handwriting.

Both are white on black, as RGB, at whatever size is asked. Nothing is downloaded.
"""

from functools import cache
from math import ceil
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from adamatch.base.errors import InputError, unknown
from adamatch.images.store import Labels, Pixels, Store

CLASSES = tuple("0123456789")
TEST_PER_CLASS = 50
SPLIT_SEED = 0

# The fonts of matplotlib whose digits look like digits. Left out: symbol fonts (STIXSiz*, STIXNonUni*, cmex10, cmsy10,
# *Display, LastResort), which have none, and cmmi10, whose old-style digits stand at different heights.
FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)
OVERSAMPLE = 4  # drawn this many times larger, then averaged: smooth edges at any place, slant and size
WEIGHTS = (0.0, 0.015, 0.03)  # thickening of the strokes on either side, as a part of the image's side


def rendered(count: int, size: int, seed: int) -> Store:
    """Digits in 21 fonts, varied in size, place, slant, weight and brightness; classes balanced; fixed by the seed."""
    if count < 1 or size < 8:
        raise InputError(f"cannot render {count} images of {size} x {size}: at least 1 image of at least 8 x 8")
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count, dtype=np.int64) % len(CLASSES))
    fonts = rng.integers(len(FONTS), size=count)
    weights = rng.integers(len(WEIGHTS), size=count)
    shapes = rng.random((count, 6))

    @cache
    def glyph(font: int, digit: int, weight: int) -> Image.Image:
        return _glyph(FONTS[font], CLASSES[digit], OVERSAMPLE * size, WEIGHTS[weight])

    images = np.empty((count, size, size, 3), np.uint8)
    for i in range(count):
        drawn = glyph(int(fonts[i]), int(labels[i]), int(weights[i]))
        images[i] = _place(drawn, OVERSAMPLE * size, shapes[i])[:, :, None]
    return Store(images, labels, CLASSES, {"origin": "digits drawn with matplotlib's fonts", "seed": seed})


def handwritten(split: Literal["train", "test"], size: int) -> Store:
    """scikit-learn's 1,797 handwritten digits: 1,297 to train and 500 (50 per class) to test, always the same.

    They are 8 x 8 with 17 grey levels; here 0..255, enlarged (bicubic) to `size`.
    """
    if split not in ("train", "test"):
        raise unknown("split", split, ("train", "test"))
    from sklearn.datasets import load_digits  # here, because importing it takes a second

    digits = load_digits()
    labels: Labels = digits.target.astype(np.int64)
    order = np.argsort(np.random.default_rng(SPLIT_SEED).random(len(labels)))
    test = np.concatenate([order[labels[order] == digit][:TEST_PER_CLASS] for digit in range(len(CLASSES))])
    in_test = np.isin(np.arange(len(labels)), test)
    chosen = np.flatnonzero(in_test if split == "test" else ~in_test)
    grey = np.rint(digits.images[chosen] * (255 / 16)).astype(np.uint8)
    enlarged = (Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC) for image in grey)
    images = np.stack([np.asarray(image.convert("RGB")) for image in enlarged])
    return Store(images, labels[chosen], CLASSES, {"origin": "sklearn.datasets.load_digits", "split": split})


@cache
def typeface(font: str, size: int) -> ImageFont.FreeTypeFont:
    import matplotlib as mpl  # here, because it takes a second that nobody else should wait for

    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf", size)


def _glyph(font: str, digit: str, side: int, weight: float) -> Image.Image:
    """A digit, white on black, cut to its outline; about `side` pixels high."""
    face, stroke = typeface(font, side), round(weight * side)
    left, top, right, bottom = (ceil(edge) for edge in face.getbbox(digit, stroke_width=stroke))
    canvas = Image.new("L", (right - left + 4, bottom - top + 4))
    ImageDraw.Draw(canvas).text((2 - left, 2 - top), digit, fill=255, font=face, stroke_width=stroke)
    outline = canvas.getbbox()
    assert outline is not None, f"{font} has no glyph for {digit}"
    return canvas.crop(outline)


def _place(glyph: Image.Image, side: int, u: NDArray[np.float64]) -> Pixels:
    """Draw the glyph into a square of `side` pixels and reduce it; u: six uniforms in [0, 1)."""
    height = (0.6 + 0.3 * u[0]) * side
    slant = -0.25 + 0.5 * u[1]
    stretch = 0.85 + 0.3 * u[2]
    brightness = 0.65 + 0.35 * u[3]
    zoom = glyph.height / height  # glyph pixels per image pixel, vertically
    width = glyph.width / zoom * stretch + abs(slant) * height
    if width > 0.95 * side:  # keep the whole digit in view
        width = 0.95 * side
        stretch = (width - abs(slant) * height) * zoom / glyph.width
    x = side / 2 + (u[4] - 0.5) * min(side - width, 0.25 * side)
    y = side / 2 + (u[5] - 0.5) * min(side - height, 0.25 * side)
    # image (i, j) -> glyph: undo the place, then the slant, then the size
    across = zoom / stretch
    matrix = (
        *(across, across * slant, glyph.width / 2 - across * (x + slant * y)),
        *(0.0, zoom, glyph.height / 2 - zoom * y),
    )
    drawn = glyph.transform((side, side), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
    small: Pixels = np.rint(np.asarray(drawn.reduce(OVERSAMPLE)) * brightness).astype(np.uint8)
    return small
