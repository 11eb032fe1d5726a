"""The operations of CTAugment one image at a time, in Pillow."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

Picture = NDArray[np.uint8]
Resampling, AFFINE = Image.Resampling, Image.Transform.AFFINE
METHODS = (
    Resampling.LANCZOS,
    Resampling.BICUBIC,
    Resampling.BILINEAR,
    Resampling.BOX,
    Resampling.HAMMING,
    Resampling.NEAREST,
)

BLENDS = (
    "autocontrast", "equalize", "invert", "blur", "smooth", "brightness", "color", "contrast", "sharpness",
)  # fmt: skip


def blend_is_fused() -> bool:
    """Whether this build of Pillow rounds a + t (b - a) once (fused multiply-add, ARM) or twice (x86)."""
    a, b = Image.new("L", (1, 1), 185), Image.new("L", (1, 1), 0)
    return Image.blend(a, b, 0.8216216564178467).getpixel((0, 0)) == 32


def apply(
    pixels: Picture, name: str, level: float, level2: float, place: tuple[float, float], translate: str = "meant"
) -> Picture:
    """pixels (size, size, 3) -> the same shape; level, level2 and place in [0,1)."""
    image = Image.fromarray(pixels)
    return np.asarray(_apply(image, name, level, level2, place, translate))


def _apply(
    x: Image.Image, name: str, level: float, level2: float, place: tuple[float, float], translate: str
) -> Image.Image:
    size = x.width
    signed = (2 * level - 1) * 0.3
    factor = 0.1 + 1.9 * level
    move = signed * size if translate == "meant" else signed
    match name:
        case "identity":
            return x
        case "autocontrast":
            return Image.blend(x, ImageOps.autocontrast(x), level)
        case "equalize":
            return Image.blend(x, ImageOps.equalize(x), level)
        case "invert":
            return Image.blend(x, ImageOps.invert(x), level)
        case "blur":
            return Image.blend(x, x.filter(ImageFilter.BLUR), level)
        case "smooth":
            return Image.blend(x, x.filter(ImageFilter.SMOOTH), level)
        case "brightness":
            return ImageEnhance.Brightness(x).enhance(factor)
        case "color":
            return ImageEnhance.Color(x).enhance(factor)
        case "contrast":
            return ImageEnhance.Contrast(x).enhance(factor)
        case "sharpness":
            return ImageEnhance.Sharpness(x).enhance(factor)
        case "posterize":
            return ImageOps.posterize(x, 1 + int(level * 7.999))
        case "solarize":
            return ImageOps.solarize(x, int(level * 255.999))
        case "rotate":
            return x.rotate(int(np.round((2 * level - 1) * 45)))
        case "shear_x":
            return x.transform(x.size, AFFINE, (1, signed, 0, 0, 1, 0))
        case "shear_y":
            return x.transform(x.size, AFFINE, (1, 0, 0, signed, 1, 0))
        case "translate_x":
            return x.transform(x.size, AFFINE, (1, 0, move, 0, 1, 0))
        case "translate_y":
            return x.transform(x.size, AFFINE, (1, 0, 0, 0, 1, move))
        case "rescale":
            scale = level * 0.25
            box = (scale * size, scale * size, size * (1 - scale), size * (1 - scale))
            return x.crop(box).resize(x.size, METHODS[int(level2 * 5.99)])
        case "cutout":
            half = (1 + int(level * size * 0.499)) // 2
            row, column = (int(p * size) for p in place)
            hole = (max(0, column - half), max(0, row - half), min(size, column + half), min(size, row + half))
            copy = x.copy()
            if half:
                copy.paste((127, 127, 127), hole)
            return copy
    raise ValueError(name)
