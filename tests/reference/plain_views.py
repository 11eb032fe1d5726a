"""Weak and strong views and CTAugment's probes one image at a time, in NumPy and Pillow, from the same uniforms."""

from unittest import mock

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from reference import ctaugment, pillow_ops
from reference.pillow_ops import Picture

OPERATIONS = (
    "autocontrast", "blur", "brightness", "color", "contrast", "cutout", "equalize", "invert", "identity", "posterize",
    "rescale", "rotate", "sharpness", "shear_x", "shear_y", "smooth", "solarize", "translate_x", "translate_y",
)  # fmt: skip
DEPTH = 2
WEAK, OPERATION, HOLE = 3, 7, 2  # uniforms: of a shift and mirror, of an operation, of the last hole

Floats = NDArray[np.float64]
Chain = list[tuple[str, tuple[float, float]]]


def draws(strong: str) -> int:
    """Uniforms for an image: weak view, strong view's shift and mirror, its operations, its hole."""
    return 2 * WEAK + (DEPTH * OPERATION if strong == "cta" else 0) + HOLE


def views(image: Picture, u: Floats, rates: ctaugment.Rates | None, mirror: bool) -> tuple[Floats, Floats]:
    """The weak and the strong view of an image (side, side, 3), as the network sees them: (3, side, side) each."""
    strong = shifted(image, u[WEAK : 2 * WEAK], mirror)
    if rates is not None:
        of_policy = u[2 * WEAK : -HOLE]
        strong = changed(strong, learned(of_policy, rates), of_policy)
    row, column = u[-HOLE:]
    strong = pillow_ops.apply(strong, "cutout", 1.0, 0.0, (float(row), float(column)))
    return seen(shifted(image, u[:WEAK], mirror)), seen(strong)


def probe(image: Picture, u: Floats, mirror: bool) -> tuple[Floats, Chain]:
    """A weak view under random operations at random levels, and these."""
    of_policy = u[WEAK : WEAK + DEPTH * OPERATION]
    chain: Chain = [(name, (float(level), float(level2))) for name, (_, level), (_, level2) in parts(of_policy)]
    return seen(changed(shifted(image, u[:WEAK], mirror), chain, of_policy)), chain


def shifted(image: Picture, u: Floats, mirror: bool) -> Picture:
    """Moved by up to an eighth of the side over a reflected border, mirrored where the third uniform says so."""
    side = len(image)
    pad = side // 8
    wide = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
    row, column = int(u[0] * (2 * pad + 1)), int(u[1] * (2 * pad + 1))
    crop = wide[row : row + side, column : column + side]
    return np.ascontiguousarray(crop[:, ::-1] if mirror and u[2] >= 0.5 else crop)


def learned(u: Floats, rates: ctaugment.Rates) -> Chain:
    """Operations uniformly; of each level a bin by its rate, and a place in the bin uniformly."""
    chain: Chain = []
    for name, *of_levels in parts(u):
        levels = [0.0, 0.0]
        for parameter, rate in enumerate(rates.rates[name]):
            choice, inside = of_levels[parameter]
            reached = np.cumsum(rates.probabilities(name, parameter))
            levels[parameter] = (int(np.argmax(reached > choice)) + float(inside)) / len(rate)
        chain.append((name, (levels[0], levels[1])))
    return chain


def parts(u: Floats) -> list[tuple[str, Floats, Floats]]:
    """Of each operation: its name, and two uniforms for each of its two levels."""
    each = u.reshape(DEPTH, OPERATION)
    return [(OPERATIONS[int(row[0] * len(OPERATIONS))], row[1:3], row[3:5]) for row in each]


def changed(image: Picture, chain: Chain, u: Floats) -> Picture:
    """The operations one after the other; the last two uniforms of each are cutout's place."""
    with mock.patch.object(Image, "blend", rounded_once):
        for (name, (level, level2)), row in zip(chain, u.reshape(DEPTH, OPERATION), strict=True):
            image = pillow_ops.apply(image, name, level, level2, (float(row[5]), float(row[6])))
    return image


def rounded_once(a: Image.Image, b: Image.Image, amount: float) -> Image.Image:
    """Image.blend, the same on every machine: Pillow for x86 rounds twice, for ARM once."""
    start, end = np.asarray(a, np.float64), np.asarray(b, np.float64)
    exact = (start + np.float64(np.float32(amount)) * (end - start)).astype(np.float32)
    return Image.fromarray(np.clip(exact, 0, 255).astype(np.uint8))


def seen(image: Picture) -> Floats:
    return np.asarray((image.astype(np.float64) - 127.5) / 128).transpose(2, 0, 1)
