"""Classes of images by an exported model, without torch and without adamatch: onnxruntime, NumPy and Pillow.

    adamatch export runs/art --to onnx --out art.onnx
    pip install onnxruntime numpy pillow
    python infer_onnx.py art.onnx new/*.jpg

`prepare` makes the pixels that the model was trained on; copy it into a program of your own, whole.
"""

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps

BATCH = 64


def prepare(file: str | Path, size: int, shape: str = "squeeze", white: int = 65535) -> NDArray[np.uint8]:
    """An image file of any kind and size -> uint8 [size, size, 3].

    It is turned upright as its EXIF data say; transparency goes over white; grey of more than 8 bits becomes 8 bits.
    `shape` says how a rectangle becomes a square: "squeeze" (all of it) or "crop" (the square in its middle). A side
    that shrinks goes to the largest multiple of `size` that it holds (bilinear) and from there by averaging whole
    blocks; a side that grows is interpolated (bicubic). `white` is which value is white in grey files of 16 bits, 4095
    for 12-bit scans. `size`, `shape` and `white` are in the model's metadata.
    """
    try:
        with Image.open(file) as opened:
            opened.load()
            image = to_rgb(opened, white)
    except OSError as error:
        raise OSError(f"{file} cannot be read: {error}") from None
    if shape == "crop":
        side, left, top = min(image.size), *((length - min(image.size)) // 2 for length in image.size)
        image = image.crop((left, top, left + side, top + side))
    width, height = image.size
    least = (min(width, size), min(height, size))
    whole = (max(width // size * size, least[0]), max(height // size * size, least[1]))
    if whole != image.size:
        image = image.resize(whole, Image.Resampling.BILINEAR)
    if least != image.size:
        image = image.reduce((whole[0] // least[0], whole[1] // least[1]))
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    return np.array(image)


def to_rgb(image: Image.Image, white: int) -> Image.Image:
    kind = image.format
    with contextlib.suppress(Exception):  # damaged EXIF data: the picture as it is
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(eight_bits(np.asarray(image), white, sixteen=kind == "PPM")).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image).convert("RGB")
    return image.convert("RGB")


def eight_bits(values: NDArray[np.generic], white: int, *, sixteen: bool) -> NDArray[np.uint8]:
    """Grey of more than 8 bits: by the full range of its kind where that is clear, else from darkest to brightest."""
    grey = values.astype(np.float64)
    low, high = grey.min(), grey.max()
    if values.dtype.itemsize == 2 or sixteen:
        low, high = 0, 65535 if sixteen else white
    elif low >= 0 and values.dtype.kind == "f" and high <= 1:
        low, high = 0, 1
    elif low >= 0 and high <= 255:
        low, high = 0, 255
    elif low >= 0 and values.dtype.kind != "f" and high <= 65535:
        low, high = 0, 65535
    scaled: NDArray[np.uint8] = np.rint((grey - low) * 255 / max(high - low, 1e-12)).clip(0, 255).astype(np.uint8)
    return scaled


class Classifier:
    """An exported model. Its metadata say which classes it knows and which images it takes."""

    def __init__(self, file: str | Path) -> None:
        self.session = onnxruntime.InferenceSession(str(file), providers=onnxruntime.get_available_providers())
        facts = self.session.get_modelmeta().custom_metadata_map
        self.classes: list[str] = json.loads(facts["classes"])
        self.how = int(facts["size"]), facts["shape"], int(facts["white"])

    def __call__(self, files: list[str]) -> NDArray[np.float32]:
        """Probabilities [n, classes] of image files."""
        images = np.stack([prepare(file, *self.how) for file in files])
        probabilities: NDArray[np.float32] = self.session.run(["probabilities"], {"images": images})[0]
        return probabilities


def main(model: str, files: list[str]) -> None:
    classify = Classifier(model)
    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        try:
            rows = classify(batch)
        except OSError as error:
            sys.exit(f"error: {error}")
        for file, row in zip(batch, rows, strict=True):
            print(f"{file}\t{classify.classes[row.argmax()]}\t{row.max():.4f}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python infer_onnx.py MODEL.onnx IMAGE...")
    main(sys.argv[1], sys.argv[2:])
