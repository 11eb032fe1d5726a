"""Image files of many kinds and sizes, for tests that want to see them all."""

import itertools
from pathlib import Path

import numpy as np
from PIL import Image

MODES = {  # of Pillow: the suffix of a format that holds it
    "RGB": ".png",
    "L": ".jpg",
    "RGBA": ".png",
    "1": ".png",
    "LA": ".png",
    "P": ".png",
    "I;16": ".png",
    "CMYK": ".jpg",
    "YCbCr": ".jpg",
    "F": ".tiff",
    "I": ".tiff",
}
EXIF_ORIENTATION = 274


def write_mixed(folder: Path, count: int, largest: int = 100, seed: int = 0) -> list[Path]:
    """`count` files in all modes, sides from 1 to `largest`, some turned by EXIF; smooth, so that resizing matters."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, (mode, suffix) in zip(range(count), itertools.cycle(MODES.items()), strict=False):
        width, height = (int(side) for side in rng.integers(1, largest + 1, 2))
        coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 4), dtype=np.uint8), "RGBA").resize((width, height))
        grey = np.asarray(coarse.convert("L"))
        if mode == "I;16":
            image = Image.fromarray(grey.astype(np.uint16) * 256)
        elif mode == "F":
            image = Image.fromarray(grey.astype(np.float32) / 255)
        elif mode == "I":
            image = Image.fromarray(grey.astype(np.int32) * 300)
        else:
            image = coarse if mode == "RGBA" else coarse.convert("RGB").convert(mode)
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = int(rng.integers(1, 9))
        files.append(folder / f"{number:04d}{suffix}")
        image.save(files[-1], exif=exif if mode in ("RGB", "L", "YCbCr") else Image.Exif())
    return files
