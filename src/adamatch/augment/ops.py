"""The 19 image operations of CTAugment, batched: another operation and level for every image, no host read.

Every operation is one setting of four families (affine map, resize, blend, cutout) that run over the whole batch in
this order; an image whose operation lies in another family gets the family's identity. Results equal Pillow's.
"""

import torch
from torch import Tensor, nn

from adamatch.augment import color, geometry
from adamatch.augment.weak import grey_square
from adamatch.base.errors import InputError, unknown

OPS = (
    "autocontrast", "blur", "brightness", "color", "contrast", "cutout", "equalize", "invert", "identity", "posterize",
    "rescale", "rotate", "sharpness", "shear_x", "shear_y", "smooth", "solarize", "translate_x", "translate_y",
)  # fmt: skip

METHODS = 6  # of rescale, whose second level chooses one

# The blend's amount is start + slope * level; operations that are not named here keep the image.
PLAIN, ENHANCE, FULL = (0.0, 1.0), (0.1, 1.9), (1.0, 0.0)
AMOUNTS = {
    "autocontrast": PLAIN, "equalize": PLAIN, "invert": PLAIN, "blur": PLAIN, "smooth": PLAIN,
    "brightness": ENHANCE, "color": ENHANCE, "contrast": ENHANCE, "sharpness": ENHANCE,
    "posterize": FULL, "solarize": FULL,
}  # fmt: skip

# Published translations move by at most 0.3 pixels, which nearest sampling rounds away; 0.3 of the side is meant.
TRANSLATIONS = ("meant", "published")


class Tables(nn.Module):
    """What the operations look up, for square images of one size; follows the module that holds it to its device."""

    rotation: Tensor
    first: Tensor
    weight: Tensor
    stretch: Tensor
    amount: Tensor

    def __init__(self, size: int, translate: str = "meant") -> None:
        super().__init__()
        if translate not in TRANSLATIONS:
            raise unknown("translation", translate, TRANSLATIONS)
        self.size = size
        self.reach = size if translate == "meant" else 1
        first, weight = geometry.resize_taps(size)
        amount = torch.tensor([AMOUNTS.get(name, (0.0, 0.0)) for name in OPS], dtype=torch.float64)
        self.register_buffer("rotation", geometry.rotations(size), persistent=False)
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("stretch", color.stretches(), persistent=False)
        self.register_buffer("amount", amount, persistent=False)


def apply(x: Tensor, op: Tensor, level: Tensor, level2: Tensor, place: Tensor, tables: Tables) -> Tensor:
    """One operation per image.

    x uint8 [B,3,S,S], op int64 [B] into OPS, level and level2 (rescale's method) float32 [B] in [0,1),
    place float32 [B,2] (cutout's centre, vertical then horizontal) -> uint8 [B,3,S,S]
    """
    if x.shape[1:] != (shape := (3, tables.size, tables.size)):
        raise InputError(f"images of shape {tuple(x.shape[1:])}: the operations were built for {shape}")
    level = level.double()  # levels become pixels, degrees and amounts as in Python
    x = geometry.affine(x, _matrix(op, level, tables))
    x = geometry.resize(x, *_resize_setting(op, level, level2.double(), tables))
    x = _blend(x, op, level, tables)
    return _cutout(x, op, level, place.double())


def _is(op: Tensor, name: str) -> Tensor:
    """Which images have this operation, bool [B]."""
    return op == OPS.index(name)


def _matrix(op: Tensor, level: Tensor, tables: Tables) -> tuple[Tensor, ...]:
    """The affine map of rotate, shear and translate, six int32 [B]."""
    angle = torch.where(_is(op, "rotate"), ((2 * level - 1) * geometry.LARGEST_ANGLE).round(), 0.0)
    a, b, c, d, e, f = tables.rotation[angle.long() + geometry.LARGEST_ANGLE].unbind(1)
    shear = (2 * level - 1) * 0.3
    slope, centre = geometry.fixed(shear), geometry.fixed(0.5 + shear * 0.5)
    shear_x, shear_y = _is(op, "shear_x"), _is(op, "shear_y")
    b, c = torch.where(shear_x, slope, b), torch.where(shear_x, centre, c)
    d, f = torch.where(shear_y, slope, d), torch.where(shear_y, centre, f)
    move = ((2 * level - 1) * 0.3 * tables.reach + 0.5).floor().int() * geometry.ONE
    c = c + torch.where(_is(op, "translate_x"), move, 0)
    f = f + torch.where(_is(op, "translate_y"), move, 0)
    return a, b, c, d, e, f


def _resize_setting(op: Tensor, level: Tensor, level2: Tensor, tables: Tables) -> tuple[Tensor, Tensor]:
    """First taps int64 [B,S] and weights int32 [B,TAPS,S] of rescale, which cuts up to a quarter off every side."""
    margin = torch.where(_is(op, "rescale"), (level * 0.25 * tables.size).round(), 0.0).long()
    method = (level2 * (METHODS - 0.01)).long()
    return tables.first[margin, method], tables.weight[margin, method]


def _blend(x: Tensor, op: Tensor, level: Tensor, tables: Tables) -> Tensor:
    """Everything that is Pillow's blend of two images a and b: enhancers, lookup tables, filters."""

    def image(v: Tensor) -> Tensor:
        return v.reshape(-1, 1, 1, 1)

    start, slope = tables.amount[op].unbind(1)
    amount = (start + slope * level).float()
    smooth, blur = color.smooth_and_blur(x)
    luma = color.grey(x)
    pixels = luma[0].numel()
    mean = (2 * luma.sum((1, 2, 3), dtype=torch.int32) + pixels) // (2 * pixels)  # rounded, as the enhancer does
    ground = torch.where(_is(op, "contrast"), mean, 0).float()

    a = torch.where(image(_is(op, "brightness") | _is(op, "contrast")), image(ground), x.float())
    a = torch.where(image(_is(op, "color")), luma.float(), a)
    a = torch.where(image(_is(op, "sharpness")), smooth, a)
    b = _look_up(x, op, level, tables).float()
    b = torch.where(image(_is(op, "smooth")), smooth, b)
    b = torch.where(image(_is(op, "blur")), blur, b)
    return color.blend(a, b, image(amount))


def _look_up(x: Tensor, op: Tensor, level: Tensor, tables: Tables) -> Tensor:
    """x through the 256 entries of autocontrast, equalize, invert, posterize or solarize; other images unchanged."""

    def channel(v: Tensor) -> Tensor:
        return v.reshape(-1, 1, 1)

    pixels = x.flatten(2).long()  # before the reductions: Inductor's amin of uint8 is wrong on CPUs (torch 2.13)
    low, high = pixels.amin(2, keepdim=True), pixels.amax(2, keepdim=True)
    bits = torch.where(_is(op, "posterize"), 1 + (level * 7.999).int(), 8)
    # Inversion is solarisation from 0 on.
    threshold = torch.where(_is(op, "solarize"), (level * 255.999).int(), 256)
    threshold = torch.where(_is(op, "invert"), 0, threshold)
    value = torch.arange(256, dtype=torch.int32, device=x.device).reshape(1, 1, 256)
    value = value & channel(256 - (1 << (8 - bits)))
    table = torch.where(value < channel(threshold), value, 255 - value)
    table = torch.where(channel(_is(op, "autocontrast")), color.autocontrast_table(low, high, tables.stretch), table)
    table = torch.where(channel(_is(op, "equalize")), color.equalize_table(pixels, high), table)
    return table.to(torch.uint8).gather(2, pixels).reshape(x.shape)


def _cutout(x: Tensor, op: Tensor, level: Tensor, place: Tensor) -> Tensor:
    """A grey square of up to half the side, cut at the border; its centre is a pixel chosen by place."""
    size = x.shape[-1]
    half = torch.where(_is(op, "cutout"), (1 + (level * size * 0.499).int()) // 2, 0).reshape(-1, 1, 1)
    return grey_square(x, (place * size).int(), half)
