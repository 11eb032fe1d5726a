"""One image file of any kind -> RGB as a person sees it -> a square of uint8."""

import io
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from adamatch.data.store import Pixels
from adamatch.errors import InputError

Shape = Literal["squeeze", "crop"]  # how a rectangle becomes a square
WHITE = (255, 255, 255, 255)


def read_image(source: str | Path | bytes, name: str | None = None) -> Image.Image:
    """The image in a file (or in its bytes) as RGB: turned upright, the first frame, transparency over white."""
    name = name or ("the image" if isinstance(source, bytes) else str(source))
    content = source if isinstance(source, bytes) else _content(Path(source))
    if not content:
        raise InputError(f"{name} is empty (0 bytes)")
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.load()
            return to_rgb(image)
    except UnidentifiedImageError:
        raise InputError(f"{name} is not an image, or of a kind that Pillow cannot read") from None
    except Image.DecompressionBombError:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise InputError(f"{name} has more than {limit / 1e6:.0f} million pixels: make it smaller") from None
    # Pillow's decoders raise nearly anything (OSError, SyntaxError, ValueError, struct.error, ...) on damaged data.
    except Exception as error:
        what = "is truncated" if "truncated" in str(error).lower() else f"is corrupt ({_line(error)})"
        raise InputError(f"{name} {what}") from None


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode of Pillow -> RGB, turned as its EXIF data say, transparency over white."""
    kind = image.format
    image = _upright(image)
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_eight_bits(np.asarray(image), sixteen=kind == "PPM")).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image).convert("RGB")
    return image.convert("RGB")


def square(image: Image.Image, size: int, shape: Shape = "squeeze") -> Pixels:
    """The whole image squeezed into (size, size, 3), whatever its shape, as in the paper's preparation of DomainNet.

    Or, with shape "crop", the square in its middle, as networks that were trained on ImageNet know images.
    A side that shrinks goes to the largest multiple of `size` that it holds (bilinear) and from there by averaging whole
    blocks, so that every pixel counts; a side that grows is interpolated (bicubic).
    """
    if shape == "crop":
        side, left, top = min(image.size), *((length - min(image.size)) // 2 for length in image.size)
        image = image.crop((left, top, left + side, top + side))
    width, height = image.size
    least = (min(width, size), min(height, size))
    whole = (max(width // size * size, least[0]), max(height // size * size, least[1]))
    if whole != image.size:
        image = image.resize(whole, Image.Resampling.BILINEAR)
    if least != image.size:  # not resize(BOX), which rounds twice and so brightens by half a grey level at factor 2
        image = image.reduce((whole[0] // least[0], whole[1] // least[1]))
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    return np.array(image)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF data: viewers ignore them and show the picture, so do we
        return image


def _eight_bits(values: np.ndarray, *, sixteen: bool) -> Pixels:
    """Grey of more than 8 bits -> uint8: by the full range of its kind where that is clear, else from darkest to brightest.

    values: (h, w) uint16, int32 or float32. `sixteen`: 32-bit integers known to hold 16 (Pillow's reading of PGM).
    """
    grey = values.astype(np.float64)
    if not np.isfinite(grey).all():
        raise ValueError("it holds values that are not finite")
    low, high = grey.min(), grey.max()
    if values.dtype.itemsize == 2 or sixteen:
        low, high = 0, 65535
    elif low >= 0 and values.dtype.kind == "f" and high <= 1:
        low, high = 0, 1
    elif low >= 0 and high <= 255:
        low, high = 0, 255
    elif low >= 0 and values.dtype.kind != "f" and high <= 65535:
        low, high = 0, 65535
    scaled: Pixels = np.rint((grey - low) * 255 / max(high - low, 1e-12)).astype(np.uint8)
    return scaled


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
