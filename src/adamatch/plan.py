"""The plan of a `fit`: what "auto" becomes on this machine and for these images, each choice with its reason."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from adamatch import networks
from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, shortened, unknown
from adamatch.config import presets
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.config.schema import checked, settings_of
from adamatch.images.reading import counted
from adamatch.images.tasks import Problem
from adamatch.initialise.domain_similarity import ENOUGH, MOST, likeness
from adamatch.methods import METHODS
from adamatch.networks.pretrained import IMAGENET, INSTALL, WHEELS, has_imagenet, imagenet, images_of, is_pretrained
from adamatch.networks.weights import load_weights
from adamatch.train import memory
from adamatch.train.batches import method_of
from adamatch.train.speed import Machine

FEW = (
    25  # labels per class, at most: with these, and no source, a network is pre-trained without labels (few-labels.md)
)
WEIGHT_DECAY = {32: 0.0005, 64: 0.001}  # the paper's rule: twice as much for twice the side; 0.002 above
ALL = "all"  # blocks are frozen: nothing but a classifier is trained
SMALLEST = 8  # pixels: with fewer a network has nothing left to look at
PHOTOGRAPH = 96  # pixels: images whose median side is at least this are taken for photographs
LITE = "efficientnet-lite0"
LITE_FROZEN = "efficientnet-lite2"  # where it is not trained, the largest is cheap enough
MINUTES = "Some 4,000 images take about 11 minutes on two cores"


@dataclass(frozen=True)
class Plan:
    """A recipe, where its starting weights come from (empty: nowhere), and the reasons for what was left to choose."""

    recipe: Recipe
    weights: str
    reasons: tuple[str, ...] = ()
    alike: Recipe | None = None  # the recipe where source and target look alike; None: the same, or that is decided

    def __post_init__(self) -> None:
        """Without starting weights the average looks back over a tenth of the run, at most the paper's 1,000 steps.

        It must forget the initial weights.
        """
        if not self.weights:
            average = max(0.5, 1 - 1 / min(1000, self.recipe.steps / 10))
            object.__setattr__(self, "recipe", replace(self.recipe, ema_decay=average))


def asked_for(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for by name, checked; "auto" and None are left to choose."""
    known = {each.name: each for each in settings_of(Recipe, "fit")}
    if settings.get("frozen") == ALL:
        settings = {**settings, "frozen": 0, "images": 0}
    for name in settings.keys() - known.keys():
        raise unknown("argument of fit", name, known)
    return {
        name: checked(known[name], value) for name, value in settings.items() if value is not None and value != "auto"
    }


def opening(source: Any, target: Any, *, seeds: int, twin: bool, report: bool) -> list[str]:
    """What is told first, before any image is read: how many there are, and what comes. `target` None: the source."""
    count, classes = counted(source, labelled=True)
    others = "" if target is None else f" + {counted(target, labelled=False)[0]:,}"
    told = [f"{count:,}{others} images" + (f", {classes:,} classes" if classes else "")] if count else []
    training = "training" if seeds == 1 else f"training {seeds} seeds one after another ({seeds} times as long)"
    coming = ["reading", training, *["training a twin without adaptation"] * twin, "the verdict"]
    return [*told, f"what comes: {', '.join([*coming, *['the page'] * report])}"]


def choose(
    asked: Mapping[str, Any], weights: str, side_of: Callable[[], int], machine: Machine, *, few_labels: bool = False
) -> Plan:
    """Before images are read. `side_of()` is their median side, 0 if it is not known; `few_labels`: of the target."""
    on_gpu = machine.device.type == "cuda"
    reasons: list[str] = []
    network, weights = _network(asked, weights, side_of, reasons)
    values: dict[str, Any] = dict(presets.PHOTOGRAPHS) if weights else {}
    wants = images_of(network)
    size = asked.get("size", wants.size)
    frozen = asked.get("images") == 0
    if frozen and not weights:
        everything = argument("frozen", ALL)
        raise InputError(f"{everything} trains nothing but a classifier, and needs a network that starts from weights")
    if frozen:
        values = dict(presets.FROZEN)
        if on_gpu and weights == IMAGENET and all(map(has_imagenet, presets.NEIGHBOUR_NETWORKS.split(","))):
            values["neighbour_networks"] = presets.NEIGHBOUR_NETWORKS
        reasons.append("the network stays as it is: only a classifier on top of it is trained")
    elif weights and not on_gpu and network in WHEELS and "frozen" not in asked:
        values = dict(presets.PHOTOGRAPHS_ON_CPU)
        reasons.append(
            f"there is no GPU: the network's first {values['frozen']} of 16 blocks stay as they are, computed once for "
            f"{2 * values['cached_views']} versions of each image; the rest is trained ({argument('frozen', 0)}: all "
            f"of it). {MINUTES}"
        )
        if "size" not in asked:
            size = presets.SIZE_ON_CPU
            reasons.append(f"image size: {size}, because there is no GPU")
    if not size:
        side = side_of()
        size = 64 if on_gpu and side > 48 else 32
        of_images = f"the images' median side is {side}" if side else "the images' own size is not known before reading"
        reasons.append(f"image size: {size}, because {of_images}" + ("" if on_gpu else " and there is no GPU"))
    if not network:
        network = ("wrn-28-2" if size <= 32 else "wrn-34-2") if on_gpu else "wrn-small"
        reasons.append(f"network: {network}, " + ("the paper's for this size" if on_gpu else "because there is no GPU"))
    if few_labels and not asked.get("repeat"):
        values |= presets.WAITING if weights else presets.WAITING_FROM_SCRATCH
    values = {
        "weight_decay": WEIGHT_DECAY.get(size, 0.002 if size > 64 else 0.0005),
        "repeat": False,
        **values,
        **asked,
    }
    if "images" not in values:
        values["images"] = 1_000_000 if on_gpu else 32_000
        cost = (
            "minutes on a GPU; the paper's runs are of 8 million and more"
            if on_gpu
            else "because there is no GPU: minutes at 32 x 32, four times as long at twice the side"
        )
        reasons.append(f"training length: {values['images']:,} labelled images, {cost}")
    if values.get("mirror", True):
        never = argument("mirror", False)
        reasons.append(
            f"images may be mirrored in training, as in the paper: {never} for digits, letters, left and right"
        )
    if size < SMALLEST:
        raise InputError(f"size must be at least {SMALLEST}, not {shortened(size)}")
    if values.get("frozen") and values.get("strong", "cta") == "cta":
        values["strong"] = "randaugment"
        reasons.append(
            "strong augmentation: randaugment, because augmentations computed once cannot adapt as those of cta do"
        )
    recipe = Recipe(**values | {"network": network, "size": size, "shape": wants.shape})
    changes = presets.ALIKE_ON_CPU if recipe.frozen else presets.ALIKE
    alike = replace(recipe, **{**changes, **({"lr": asked["lr"]} if "lr" in asked else {})})
    return Plan(recipe, weights, tuple(reasons), alike if weights and not frozen else None)


def _network(asked: Mapping[str, Any], weights: str, side_of: Callable[[], int], reasons: list[str]) -> tuple[str, str]:
    """The network (empty: still to be chosen, by the size) and its starting weights (empty: none)."""
    network: str = asked.get("network", "")
    large = asked.get("size", 0) >= PHOTOGRAPH or ("size" not in asked and side_of() >= PHOTOGRAPH)
    if not network and weights in ("auto", IMAGENET) and large:
        lite = LITE_FROZEN if asked.get("images") == 0 and has_imagenet(LITE_FROZEN) else LITE
        if has_imagenet(lite) or weights == IMAGENET:
            reasons.append(f"network: {lite}, already trained on ImageNet, because these look like photographs")
            return lite, IMAGENET
        reasons.append(f"a network already trained on ImageNet would do much better on photographs: {INSTALL}")
    elif not network and weights == "auto" and "size" in asked and side_of() >= PHOTOGRAPH:
        reasons.append(
            f"size: below {PHOTOGRAPH} pixels no network that was trained on ImageNet is used, and photographs need one"
        )
    if weights == "auto":
        weights = IMAGENET if is_pretrained(network) else "none"
    if weights == IMAGENET and not network:
        network = LITE
    return network, "" if weights == "none" else weights


@dataclass(frozen=True)
class Seen:
    """What is known of the run once its images are read."""

    run: Run
    problem: Problem
    few: bool  # few labels, and no source
    net: nn.Module | None  # a network of one's own
    held: Recipe | None  # of the run that is in the folder
    machine: Machine
    bar: Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def refine(plan: Plan, seen: Seen, *, choose_batch: bool) -> Plan:
    """Pre-training where labels are few, the recipe of domains that look alike, a batch that fits the memory."""
    if seen.few and seen.net is None and METHODS[seen.run.method].unlabelled:
        plan = pretrained(plan)
    if plan.alike:
        plan = _by_likeness(plan, seen)
    return _fitting(plan, seen) if choose_batch else plan


def pretrained(plan: Plan) -> Plan:
    """Few labels and no source: a network that starts from scratch is first pre-trained without labels."""
    if plan.weights or plan.recipe.frozen:
        return plan
    images = plan.recipe.images
    reason = f"few labels, and no source: the network is first pre-trained on {images:,} images without labels"
    recipe = replace(plan.recipe, simclr_images=images, **presets.FEW_WITHOUT_SOURCE)
    return replace(plan, recipe=recipe, reasons=(*plan.reasons, reason))


def _by_likeness(plan: Plan, seen: Seen) -> Plan:
    """The recipe of domains that look alike, or not: as in the run that is there, or as the images want it."""
    assert plan.alike is not None
    held, problem = seen.held, seen.problem
    if held is not None and held.linear_probe_init:
        alike = held.knn_anchor or held.batch_norm == "kept"
        return replace(plan, recipe=plan.alike if alike else plan.recipe, alike=None)
    name = plan.recipe.network
    net = networks.build(name, len(problem.classes))
    load_weights(net, imagenet(name) if plan.weights == IMAGENET else plan.weights)
    source, target = problem.labelled[0].parts, problem.unlabelled.parts
    count = sum(min(MOST, sum(map(len, parts))) for parts in (source, target))
    with seen.bar("comparing source and target", count) as advance:
        return with_likeness(plan, ranks.from_first(lambda: likeness(net, source, target, seen.machine, advance)))


def with_likeness(plan: Plan, likeness: float) -> Plan:
    """Decided by the part of neighbours that are of different domains."""
    assert plan.alike is not None
    recipe = plan.alike if likeness >= ENOUGH else plan.recipe
    if recipe is plan.recipe:
        ending = "source and target look different"
    elif recipe.knn_anchor:
        ending = (
            "source and target look similar: at first, target images are trained on with labels of their neighbours"
        )
    else:
        ending = (
            "source and target look similar: the network's batch norm stays as it was on ImageNet, and the learning "
            f"rate is {recipe.lr:g}"
        )
    near = f"{likeness:.1%} of the images that look most like one of them are of the other"
    reason = f"{ending} ({near}; similar from {ENOUGH:.1%})"
    return replace(plan, recipe=recipe, alike=None, reasons=(*plan.reasons, reason))


def _fitting(plan: Plan, seen: Seen) -> Plan:
    """With a smaller batch where the chosen one does not fit the memory, or did not in the run that is there."""
    recipe, held, problem = plan.recipe, seen.held, seen.problem
    if held is not None and held.batch < recipe.batch:
        return with_batch(plan, held.batch, "as in the run that is there")
    if held is not None or recipe.frozen or not recipe.last_step:  # little or nothing is trained
        return plan
    net = seen.net if seen.net is not None else networks.build(recipe.network, len(problem.classes))
    method = method_of(replace(seen.run, recipe=recipe), problem, net)
    batch = memory.fitting(net, method, recipe, problem, seen.machine)
    return plan if batch == recipe.batch else with_batch(plan, batch, "so that a step fits the free memory")


def with_batch(plan: Plan, batch: int, reason: str) -> Plan:
    """The same, in steps of `batch` labelled images."""
    reason = f"batch: {batch} labelled images instead of {plan.recipe.batch}, {reason}"
    return replace(plan, recipe=replace(plan.recipe, batch=batch), reasons=(*plan.reasons, reason))
