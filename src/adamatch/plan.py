"""What was asked for on one's own images, and what "auto" becomes on this machine, each with its reason."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from adamatch.base.cli_names import setting
from adamatch.base.errors import InputError, shortened
from adamatch.config.run import BEGUN, SPREAD, Recipe
from adamatch.initialise.domain_similarity import ENOUGH
from adamatch.networks.pretrained import IMAGENET, INSTALL, WHEELS, has_imagenet, images_of, is_pretrained
from adamatch.train.speed import Machine

FEW = 25  # labels per class, at most: with these, and no source, a network had better begin without labels (docs/few-labels.md)
WEIGHT_DECAY = {32: 0.0005, 64: 0.001}  # the paper's rule: twice as much for twice the side; 0.002 above
SMALLEST = 8  # pixels: with fewer a network has nothing left to look at
PHOTOGRAPH = 96  # pixels: images whose median side is at least this are taken for photographs
LITE = "efficientnet-lite0"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Each is the argument of `fit` of that name; None is left to choose, like "auto".

    (`late` follows from others: labelled target images wait, unless they are to be used as in the paper.)
    """

    network: str = "auto"
    weights: str = "auto"
    size: int | str = "auto"
    images: int | str = "auto"
    batch: int | str = "auto"
    lr: float | None = None
    strong: str = "cta"
    mirror: bool = True
    repeat: bool = False
    late: float = 0.0
    frozen: int | str = "auto"


# One recipe for networks that start from ImageNet's weights, found on PACS: results/pacs.md. Where source and target look
# alike, training holds on to the surest labels of neighbours until pseudo-labels count.
PRETRAINED: Mapping[str, Any] = {
    "images": 32_000,
    "batch": 32,
    "lr": 0.01,
    "lr_end": 0.1,
    "weight_decay": 0.002,
    "average": 0.99,
    "balanced": True,
    "limit": 2.0,
    "release": True,
    "fitted_head": True,
}
ALIKE: Mapping[str, Any] = {"anchored": True}

# On a CPU, of the same networks: only the last scales and the head move. Found on PACS: results/cpu.md. Where source and
# target look alike, batch norm keeps the statistics it starts with, and steps are smaller.
FROZEN: Mapping[str, Any] = {
    **PRETRAINED,
    "images": 2_560,
    "batch": 16,
    "lr": 0.03,
    "average": 0.97,
    "window": 16,
    "decay": 0.97,
    "frozen": 11,
    "views": 1,
}
FROZEN_ALIKE: Mapping[str, Any] = {"statistics": "kept", "lr": 0.003}
FROZEN_SIZE = 192  # pixels
MINUTES = "Some 4,000 images take about 11 minutes on two cores"


@dataclass(frozen=True)
class Choice:
    """A recipe, where its starting weights come from (empty: nowhere), and the reasons for what was left to choose.

    `alike` is the recipe where source and target look alike; None: the same, or that is decided.
    """

    recipe: Recipe
    weights: str
    reasons: list[str]
    alike: Recipe | None = None


def choose(asked: Settings, side_of: Callable[[], int], machine: Machine) -> Choice:
    """`side_of()` is the images' median side, 0 if it is not known."""
    for name in ("size", "images", "batch", "frozen"):
        _check_whole(name, getattr(asked, name))
    on_gpu = machine.device.type == "cuda"
    reasons: list[str] = []
    network, weights = _network(asked, side_of, reasons)
    started = weights != ""
    values: dict[str, Any] = dict(PRETRAINED) if started else {"lr": 0.03, "batch": 64}
    wants = images_of(network) if network != "auto" else images_of("")
    size = asked.size if asked.size != "auto" else wants.size
    if asked.frozen != "auto":
        values["frozen"] = int(asked.frozen)
    elif started and not on_gpu and network in WHEELS:
        values, size = dict(FROZEN), FROZEN_SIZE if asked.size == "auto" else asked.size
        reasons.append(
            f"there is no GPU: {values['frozen']} of the network's 16 blocks stay as they are, computed once for "
            f"{2 * values['views']} augmentations of each image; the rest is trained ({setting('frozen', 0)}: all of it). "
            f"{MINUTES}"
        )
        if asked.size == "auto":
            reasons.append(f"image size: {size}, because there is no GPU")
    if not size:
        side = side_of()
        size = 64 if on_gpu and side > 48 else 32
        of_images = (
            f"the images' median side is {side}" if side else "the images' own size is not known before they are read"
        )
        reasons.append(f"image size: {size}, because {of_images}" + ("" if on_gpu else " and there is no GPU"))
    if network == "auto":
        network = ("wrn-28-2" if int(size) <= 32 else "wrn-34-2") if on_gpu else "wrn-small"
        reasons.append(f"network: {network}, " + ("the paper's for this size" if on_gpu else "because there is no GPU"))
    values |= {
        name: value for name in ("images", "batch", "lr") if (value := getattr(asked, name)) not in ("auto", None)
    }
    if "images" not in values:
        values["images"] = 1_000_000 if on_gpu else 32_000
        cost = (
            "minutes on a GPU; the paper's runs are of 8 million and more"
            if on_gpu
            else "because there is no GPU: minutes at 32 x 32, four times as long at twice the side"
        )
        reasons.append(f"training length: {values['images']:,} labelled images, {cost}")
    if asked.mirror:
        never = setting("mirror", False)
        reasons.append(
            f"images may be flipped horizontally, as in the paper: {never} for digits, letters, left and right"
        )
    for name, value, least in (
        ("size", size, SMALLEST),
        ("images", values["images"], 1),
        ("batch", values["batch"], 1),
    ):
        if int(value) < least:
            raise InputError(f"{name} must be at least {least}, not {shortened(value)}")
    values = {"weight_decay": WEIGHT_DECAY.get(int(size), 0.002 if int(size) > 64 else 0.0005), **values}
    same = {name: getattr(asked, name) for name in ("strong", "mirror", "repeat", "late")}
    same["spread"] = SPREAD if asked.late and not started else 1
    if values.get("frozen") and asked.strong == "cta":
        same["strong"] = "randaugment"
        reasons.append(
            "strong augmentation: randaugment, because views made beforehand cannot follow what CTAugment learns"
        )
    recipe = Recipe(network=network, size=int(size), shape=wants.shape, **{**same, **values})
    changes = {**(FROZEN_ALIKE if recipe.frozen else ALIKE), **({"lr": asked.lr} if asked.lr else {})}
    alike = replace(recipe, **changes) if started else None
    return Choice(_averaged(recipe, started), weights, reasons, alike)


def with_likeness(chosen: Choice, likeness: float) -> Choice:
    """Decided by the part of neighbours that are of different domains."""
    assert chosen.alike is not None
    recipe = chosen.alike if likeness >= ENOUGH else chosen.recipe
    seen = f"{likeness:.1%} of the neighbours of images, as the starting weights see them, are of the other domain"
    if recipe is chosen.recipe:
        ending = f"they look different (less than {ENOUGH:.1%})"
    elif recipe.anchored:
        ending = "they look alike. Training holds on to the surest labels of neighbours until pseudo-labels count"
    else:
        ending = (
            f"they look alike. Batch norm keeps the statistics it starts with, and the learning rate is {recipe.lr:g}"
        )
    return Choice(recipe, chosen.weights, [*chosen.reasons, f"source and target: {seen}: {ending}"])


def with_beginning(chosen: Choice) -> Choice:
    """Where labels are few, and there is no source: a network that starts from nothing learns without labels first."""
    if chosen.weights or chosen.recipe.frozen:
        return chosen
    images = chosen.recipe.images
    reason = f"labels are few, and there is no source: the network first learns from {images:,} images without labels"
    return replace(
        chosen, recipe=replace(chosen.recipe, contrastive=images, **BEGUN), reasons=[*chosen.reasons, reason]
    )


def with_batch(chosen: Choice, batch: int, reason: str) -> Choice:
    """The same, in steps of `batch` labelled images."""
    told = [*chosen.reasons, f"batch: {batch} labelled images instead of {chosen.recipe.batch}, {reason}"]
    return Choice(_averaged(replace(chosen.recipe, batch=batch), chosen.weights != ""), chosen.weights, told)


def _averaged(recipe: Recipe, started: bool) -> Recipe:
    """Without starting weights the average looks back over a tenth of the run, at most the paper's 1,000 steps.

    It must not remember the beginning.
    """
    return recipe if started else replace(recipe, average=max(0.5, 1 - 1 / min(1000, recipe.steps / 10)))


def _check_whole(name: str, value: Any) -> None:
    try:
        if value == "auto" or int(value) == float(value):
            return
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{name} is auto or a whole number, not {shortened(value)}")


def _network(asked: Settings, side_of: Callable[[], int], reasons: list[str]) -> tuple[str, str]:
    """The network ("auto": still to be chosen, by the size) and its starting weights."""
    network, weights = asked.network, asked.weights
    large = (int(asked.size) if asked.size != "auto" else side_of()) >= PHOTOGRAPH
    if network == "auto" and weights in ("auto", IMAGENET) and large:
        if has_imagenet(LITE) or weights == IMAGENET:
            reasons.append(f"network: {LITE} from ImageNet's weights, because these look like photographs")
            return LITE, IMAGENET
        reasons.append(f"a network with ImageNet's weights would do much better on photographs: {INSTALL}")
    elif network == weights == "auto" and asked.size != "auto" and side_of() >= PHOTOGRAPH:
        reasons.append(
            f"size: below {PHOTOGRAPH} pixels a network does not start from ImageNet's weights, by which photographs gain much"
        )
    if weights == "auto":
        weights = IMAGENET if is_pretrained(network) else "none"
    if weights == IMAGENET and network == "auto":
        network = LITE
    return network, "" if weights == "none" else weights
