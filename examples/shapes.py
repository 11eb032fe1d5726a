"""Two folders of images to try everything with: drawings, which have labels, and "photographs" of the same things.

    python examples/shapes.py shapes

makes shapes/drawings (labelled), shapes/photos (to adapt to), shapes/few (two labelled photos of each class),
shapes/test (labelled photos that no training sees) and shapes/new. All are drawn here, by Pillow and NumPy: nothing is
fetched.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIDE, FINE = 128, 3  # pixels of an image, and how many times finer it is drawn
FOLDERS = {"drawings": 40, "photos": 40, "few": 2, "test": 20, "new": 2}  # images of each class
Points = list[tuple[float, float]]
ARC = [math.pi * (number / 20 - 0.5) for number in range(21)]  # half a circle


def polygon(corners: int, dent: float = 1.0) -> Points:
    """Corners on a circle; with a dent, every second one is drawn in: a star."""
    count = corners if dent == 1 else 2 * corners
    radii = [1.0 if number % 2 == 0 else dent for number in range(count)]
    angles = [2 * math.pi * number / count - math.pi / 2 for number in range(count)]
    return [(radius * math.cos(angle), radius * math.sin(angle)) for radius, angle in zip(radii, angles, strict=True)]


SHAPES: dict[str, Points] = {
    "circle": polygon(40),
    "cross": [(x * 0.33, y * 0.33) for x, y in ((-1, -3), (1, -3), (1, -1), (3, -1), (3, 1), (1, 1))]
    + [(x * 0.33, y * 0.33) for x, y in ((1, 3), (-1, 3), (-1, 1), (-3, 1), (-3, -1), (-1, -1))],
    "house": [(-0.8, 0.9), (-0.8, -0.1), (0, -0.95), (0.8, -0.1), (0.8, 0.9)],
    "moon": [(0.45 - math.cos(t), math.sin(t)) for t in ARC]
    + [(0.45 - 0.3 * math.cos(t), math.sin(t)) for t in ARC[::-1]],
    "star": polygon(5, 0.42),
    "triangle": polygon(3),
}


def placed(shape: Points, rng: np.random.Generator, turn: float) -> Points:
    """Somewhere in the image, of some size, turned by up to `turn`."""
    radius, angle = rng.uniform(0.24, 0.4) * SIDE * FINE, rng.uniform(-turn, turn)
    x0, y0 = rng.uniform(0.42, 0.58, 2) * SIDE * FINE
    cos, sin = radius * math.cos(angle), radius * math.sin(angle)
    return [(x0 + cos * x - sin * y, y0 + sin * x + cos * y) for x, y in shape]


def drawing(shape: Points, rng: np.random.Generator) -> Image.Image:
    """Ink on white paper."""
    image = Image.new("RGB", (SIDE * FINE, SIDE * FINE), tuple(rng.integers(235, 256, 3).tolist()))
    ink, fill = tuple(rng.integers(0, 90, 3).tolist()), tuple(rng.integers(60, 256, 3).tolist())
    points = placed(shape, rng, 0.2)
    pen = ImageDraw.Draw(image)
    pen.polygon(points, fill=fill if rng.random() < 0.5 else None)
    pen.line([*points, points[0], points[1]], fill=ink, width=int(rng.integers(6, 14)), joint="curve")
    return image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def photo(shape: Points, rng: np.random.Generator) -> Image.Image:
    """The same as a thing that lies on a table: coloured ground, shadow, uneven light, blur and noise."""
    side = SIDE * FINE
    ground = _cloud(rng, side) * rng.uniform(20, 90) + rng.uniform(30, 200, 3)
    image = Image.fromarray(ground.clip(0, 255).astype(np.uint8))
    points = placed(shape, rng, 0.7)
    shadow, thing = Image.new("L", (side, side)), Image.new("L", (side, side))
    ImageDraw.Draw(shadow).polygon([(x + 14, y + 18) for x, y in points], fill=130)
    ImageDraw.Draw(thing).polygon(points, fill=255)
    image.paste((0, 0, 0), mask=shadow.filter(ImageFilter.GaussianBlur(12)))
    surface = _cloud(rng, side) * rng.uniform(10, 60) + rng.uniform(40, 230, 3)
    image.paste(Image.fromarray(surface.clip(0, 255).astype(np.uint8)), mask=thing)
    image = image.resize((SIDE, SIDE), Image.Resampling.LANCZOS).filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 1.2)))
    light = np.linspace(rng.uniform(0.6, 1), rng.uniform(0.6, 1), SIDE)[None, :, None]
    noisy = np.asarray(image) * light + rng.normal(0, rng.uniform(2, 12), (SIDE, SIDE, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def _cloud(rng: np.random.Generator, side: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Smooth noise around 0: [side, side, 1]."""
    coarse = Image.fromarray(rng.integers(0, 256, (7, 7)).astype(np.uint8))
    return np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), float)[:, :, None] / 128 - 1


def make(folder: Path, counts: dict[str, int] | None = None, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for name, count in (counts or FOLDERS).items():
        draw: Callable[[Points, np.random.Generator], Image.Image] = drawing if name == "drawings" else photo
        for kind, shape in SHAPES.items():
            (folder / name / kind).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                draw(shape, rng).save(folder / name / kind / f"{number:03}.jpg", quality=90)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python shapes.py FOLDER")
    make(Path(sys.argv[1]))
    print(f"{sys.argv[1]}: {', '.join(FOLDERS)}")
