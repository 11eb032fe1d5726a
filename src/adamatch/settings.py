"""What was asked for on one's own images, and what "auto" becomes on this machine, each with its reason."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from adamatch.errors import InputError
from adamatch.train.run import Recipe
from adamatch.train.speed import Machine

WEIGHT_DECAY = {32: 0.0005, 64: 0.001}  # the paper's rule: twice as much for twice the side; 0.002 above
SMALLEST = 8  # pixels: with fewer a network has nothing left to look at


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Each is the argument of `fit` of that name."""

    network: str
    size: int | str
    images: int | str
    batch: int | str
    lr: float
    strong: str
    mirror: bool
    repeat: bool


def choose(asked: Settings, side_of: Callable[[], int], machine: Machine) -> tuple[Recipe, list[str]]:
    """The recipe, and the reasons for what was left to choose; `side_of()` is the images' median side, 0 if not known."""
    on_gpu = machine.device.type == "cuda"
    network, size, images, reasons = asked.network, asked.size, asked.images, []
    if size == "auto":
        side = side_of()
        size = 64 if on_gpu and side > 48 else 32
        of_images = f"the images' median side is {side}" if side else "the images' own size is not known before they are read"
        reasons.append(f"image size: {size}, because {of_images}" + ("" if on_gpu else " and there is no GPU"))
    if network == "auto":
        network = ("wrn-28-2" if int(size) <= 32 else "wrn-34-2") if on_gpu else "wrn-small"
        reasons.append(f"network: {network}, " + ("the paper's for this size" if on_gpu else "because there is no GPU"))
    if images == "auto":
        images = 1_000_000 if on_gpu else 32_000
        cost = (
            "minutes on a GPU; the paper's runs are of 8 million and more"
            if on_gpu
            else "because there is no GPU: minutes at 32 x 32, four times as long at twice the side"
        )
        reasons.append(f"budget: {images:,} labelled images, {cost}")
    if asked.mirror:
        reasons.append("images may be mirrored, as in the paper: --no-mirror for digits, letters, left and right")
    batch = 64 if asked.batch == "auto" else int(asked.batch)
    for name, value, least in (("size", int(size), SMALLEST), ("images", int(images), 1), ("batch", batch, 1)):
        if value < least:
            raise InputError(f"{name} must be at least {least}, not {value}")
    recipe = Recipe(
        network=network,
        size=int(size),
        images=int(images),
        batch=batch,
        weight_decay=WEIGHT_DECAY.get(int(size), 0.002 if int(size) > 64 else 0.0005),
        lr=asked.lr,
        strong=asked.strong,
        mirror=asked.mirror,
        repeat=asked.repeat,
    )
    # The average looks back over a tenth of the run, at most the paper's 1,000 steps: it must not remember the beginning.
    return replace(recipe, average=max(0.5, 1 - 1 / min(1000, recipe.steps / 10))), reasons
