"""One image file of any kind -> RGB as a person sees it -> a square of uint8."""

import functools
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from adamatch.base.errors import InputError, reason
from adamatch.base.regular_files import open_file, read_file
from adamatch.base.urls import Url, fetch
from adamatch.config.recipe import Shape as Shape
from adamatch.images.store import Pixels

# The formats that are read, whatever a file is called. Pillow knows more; some start other programs (EPS: Ghostscript).
# AVIF needs a Pillow that has it, HEIF (photographs of iPhones) the package pillow-heif.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "TGA", "AVIF", "HEIF")
TWELVE_BITS, SIXTEEN_BITS = 4095, 65535
WHITE = (255, 255, 255, 255)
ORIENTATION = 0x0112  # EXIF's tag
BITS_PER_SAMPLE, LARGEST_SAMPLE = 258, 281  # TIFF's tags
HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")  # how such files begin
INSTALL = "pip install 'adamatch[heic]'"
BAND = 1 << 22  # pixels that are converted at a time, where a conversion takes several times their memory


def read_image(source: str | Path | bytes, name: str | None = None, *, white: int = SIXTEEN_BITS) -> Image.Image:
    """The image in a file (or in its bytes) as RGB: turned upright, the first frame, transparency over white.

    `white` is that of 16-bit files that do not say how many bits they use; 0: by the largest value of the image.
    """
    name = name or ("the image" if isinstance(source, bytes) else str(source))
    content = source if isinstance(source, bytes) else _content(source)
    if not content:
        raise InputError(f"{name} is empty (0 bytes)")
    try:
        if content.startswith(b"\x89PNG"):
            opened(content).verify()  # `load` does not compare the checksums of the pixels
        with opened(content) as image:
            image.load()
            return to_rgb(image, white_in(image, content) or white)
    except UnidentifiedImageError:
        if content[4:8] == b"ftyp" and content[8:12] in HEIC_BRANDS and "HEIF" not in kinds():
            raise InputError(f"{name} is a HEIC image, which needs pillow-heif: {INSTALL}") from None
        raise InputError(f"{name} is not an image of a kind that is read here ({', '.join(kinds())})") from None
    except Image.DecompressionBombError:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise InputError(f"{name} has more than {limit / 1e6:.0f} million pixels: make it smaller") from None
    # Pillow's decoders raise nearly anything (OSError, SyntaxError, ValueError, struct.error, ...) on damaged data.
    except Exception as error:
        what = "is truncated" if "truncated" in str(error).lower() else f"is corrupt ({reason(error)})"
        raise InputError(f"{name} {what}") from None


def _content(source: str | Path) -> bytes:
    return fetch(source) if isinstance(source, Url) else read_file(Path(source))


def opened(content: bytes) -> Image.Image:
    """An image, of which only the head is read yet."""
    return Image.open(io.BytesIO(content), formats=kinds())


def short_side(path: Path) -> int:
    """The image's; only its head is read."""
    with open_file(path) as file, Image.open(file, formats=kinds()) as image:
        return min(image.size)


def kinds() -> list[str]:
    """Of FORMATS, those that this Pillow reads."""
    Image.init()
    _take_heif()
    return [kind for kind in FORMATS if kind in Image.OPEN]


@functools.cache
def _take_heif() -> None:
    try:
        import pillow_heif
    except ImportError:
        return
    pillow_heif.register_heif_opener()


def to_rgb(image: Image.Image, white: int = SIXTEEN_BITS) -> Image.Image:
    """Any mode of Pillow -> RGB, turned as its EXIF data say, transparency over white; at most two copies at a time."""
    upright = _upright(image)
    if upright.mode.startswith(("I", "F")):
        return _eight_bits(upright, white, sixteen=image.format == "PPM")
    if upright.has_transparency_data:
        return _over_white(upright)
    return upright if upright is not image and upright.mode == "RGB" else upright.convert("RGB")


class Square(NamedTuple):
    """How images become squares: their side, a rectangle's way, and what is white in 16 bits (0: to be found out)."""

    size: int
    shape: Shape = "squeeze"
    white: int = 0


def square(image: Image.Image, size: int, shape: Shape = "squeeze") -> Pixels:
    """An image as (size, size, 3): squeezed, as in the paper's preparation of DomainNet, or with "crop" the middle.

    A larger side is first resized to a multiple of `size` (bilinear); then whole blocks are averaged, so that every
    pixel counts. A smaller side is enlarged (bicubic).
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


def white_of(most: float) -> int:
    """The white of 16-bit values: 12-bit scans come in 16-bit files, and would be nearly black."""
    return TWELVE_BITS if most <= TWELVE_BITS else SIXTEEN_BITS


def white_in(image: Image.Image, content: bytes) -> int:
    """The largest value that an image of more than 8 bits may have, where its file says it, as few do; else 0."""
    if not image.mode.startswith("I;16"):
        return 0
    if image.format == "PNG":
        at = content.find(b"sBIT", 8, content.find(b"IDAT") + 1)  # it stands before the pixels
        return _largest_of(content[at + 4]) if at > 0 else 0
    tags = getattr(image, "tag_v2", {})
    bits, most = (np.ravel(tags.get(tag, 0))[0] for tag in (BITS_PER_SAMPLE, LARGEST_SAMPLE))
    return int(most) if 255 < most < SIXTEEN_BITS else _largest_of(int(bits))


def _largest_of(bits: int) -> int:
    """Of fewer than 16 bits; 16 is what every such file says."""
    return (1 << bits) - 1 if 8 <= bits < 16 else 0


def _upright(image: Image.Image) -> Image.Image:
    try:
        return image if image.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF data are ignored, as viewers do
        return image


def _over_white(image: Image.Image) -> Image.Image:
    flat = Image.new("RGB", image.size)
    for top, band in _bands(image):
        band = band.convert("RGBA")
        flat.paste(Image.alpha_composite(Image.new("RGBA", band.size, WHITE), band).convert("RGB"), (0, top))
    return flat


def _eight_bits(image: Image.Image, white: int, *, sixteen: bool) -> Image.Image:
    """Grey of more than 8 bits -> RGB: by the full range of its type where that is clear, else from least to most.

    In 16 bits `white` and all above it become white; 0: the image's own. `sixteen`: 32-bit integers that hold 16 (PGM).
    """
    low, high = _range(image, white, sixteen)
    rgb = Image.new("RGB", image.size)
    for top, band in _bands(image):
        scaled = np.rint((np.asarray(band).astype(np.float64) - low) * 255 / max(high - low, 1e-12)).clip(0, 255)
        rgb.paste(Image.fromarray(scaled.astype(np.uint8)).convert("RGB"), (0, top))
    return rgb


def _range(image: Image.Image, white: int, sixteen: bool) -> tuple[float, float]:
    """The values, of (h, w) uint16, int32 or float32, that become black and white."""
    values = np.asarray(image)
    kind, low, high = values.dtype, float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise ValueError("it holds values that are not finite")
    if sixteen:
        return 0, SIXTEEN_BITS
    if kind.itemsize == 2:
        return 0, white or white_of(high)
    if low >= 0 and kind.kind == "f" and high <= 1:
        return 0, 1
    if low >= 0 and high <= 255:
        return 0, 255
    if low >= 0 and kind.kind != "f" and high <= 65535:
        return 0, 65535
    return low, high


def _bands(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """The image in pieces of its full width, from the top, each with its place."""
    rows = max(1, BAND // image.width)
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))
