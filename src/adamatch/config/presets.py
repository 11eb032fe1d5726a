"""Recipes as data: the paper's benchmarks, shorter budgets, few labels, photographs with and without a GPU."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from adamatch.base.errors import unknown
from adamatch.config.recipe import Recipe

MILLION = 2**20  # as the authors count: 32M images at batch 64 are 524,288 steps

_DIGITS = Recipe(network="wrn-28-2", size=32, images=32 * MILLION, weight_decay=0.0005)
_64 = Recipe(network="wrn-34-2", size=64, images=8 * MILLION, weight_decay=0.001)
_224 = Recipe(network="resnetv2-101", size=224, images=8 * MILLION, weight_decay=0.002)

PAPER: dict[str, Recipe] = {
    # Not the paper's: small enough for two CPU cores, and as few steps want shorter averages. Digits have no mirror
    # image.
    "handwriting": Recipe(
        network="wrn-tiny",
        size=8,
        images=40_000,
        batch=32,
        weight_decay=0.0005,
        ema_decay=0.99,
        strong="cutout",
        mirror=False,
    ),
    "digitfive": _DIGITS,
    "domainnet32": replace(_DIGITS, images=8 * MILLION),
    "domainnet64": _64,
    "domainnet128": replace(_224, size=128),
    "domainnet224": _224,
    "office31-64": _64,
    "office31-224": _224,
    "pacs64": _64,
    "cifar10": _DIGITS,
    "cifar100": _DIGITS,
    "stl10": _DIGITS,
    "svhn": _DIGITS,
}
# The paper's protocol for networks with starting weights.
PRETRAINED: Mapping[str, Any] = {
    "weight_decay": 0.0,
    "stop_after": 2 * MILLION,
    "simclr_images": 0,
    "target_label_steps": 1,
}

BUDGETS = ("paper", "fast")
FAST: dict[str, Mapping[str, Any]] = {
    # Digits have no mirror image. The rest is what stops mnist -> svhn from drifting down: docs/what-matters.md.
    "digitfive": {"images": MILLION, "mirror": False, "tau": 0.97, "lr": 0.06, "fade_out": True},
    "pacs64": {"images": MILLION // 2},
}
# In short runs a few labelled target images harm where they count from the first step (docs/what-matters.md): they are
# sampled without replacement, from the middle of the run on; and from scratch they are spread over several steps.
WAITING: Mapping[str, Any] = {"repeat": False, "target_labels_from": 0.5}
WAITING_FROM_SCRATCH: Mapping[str, Any] = {**WAITING, "target_label_steps": 5}
AS_PRINTED: Mapping[str, Any] = {"repeat": True, "target_labels_from": 0.0, "target_label_steps": 1}
# Without a source, most is learned before labels (`simclr_images`), and kept until pseudo-labels count:
# docs/few-labels.md.
FEW_WITHOUT_SOURCE: Mapping[str, Any] = {"linear_probe_init": True, "knn_anchor": True, "lr_end": 0.02}
FAST_TASKS: dict[str, Mapping[str, Any]] = {"ssl": FEW_WITHOUT_SOURCE, "ssda": WAITING_FROM_SCRATCH}

# One's own images. From ImageNet's weights, found on PACS: results/pacs.md. Where source and target look alike,
# training is held to the surest labels of neighbours until pseudo-labels count.
PHOTOGRAPHS: Mapping[str, Any] = {
    "images": 32_000,
    "batch": 32,
    "lr": 0.01,
    "lr_end": 0.1,
    "weight_decay": 0.002,
    "ema_decay": 0.99,
    "balance_classes": True,
    "alignment_clip": 2.0,
    "fade_out": True,
    "linear_probe_init": True,
}
ALIKE: Mapping[str, Any] = {"knn_anchor": True}
# The same on a CPU: only the last scales and the head are trained. Found on PACS: results/cpu.md. Where source and
# target look alike, batch norm keeps the statistics it starts with, and steps are smaller.
PHOTOGRAPHS_ON_CPU: Mapping[str, Any] = {
    **PHOTOGRAPHS,
    "images": 2_560,
    "batch": 16,
    "lr": 0.03,
    "ema_decay": 0.97,
    "alignment_window": 16,
    "alignment_decay": 0.97,
    "frozen": 11,
    "cached_views": 1,
}
ALIKE_ON_CPU: Mapping[str, Any] = {"batch_norm": "kept", "lr": 0.003}
SIZE_ON_CPU = 192  # pixels
# Nothing but a classifier is trained, on the features of the starting weights and of their neighbours: `frozen="all"`.
# On a GPU, where they take seconds, neighbours are found by several networks. No table of results has this yet.
FROZEN: Mapping[str, Any] = {**PHOTOGRAPHS, "batch_norm": "kept", "probe_neighbours": True, "images": 0}
NEIGHBOUR_NETWORKS = "efficientnet-lite1,efficientnet-lite2"


def recipe(benchmark: str, budget: str = "paper", task: str = "uda", **overrides: Any) -> Recipe:
    """The hyper-parameters of a benchmark; `fast` has a million images at most. An override of None changes nothing."""
    if benchmark not in PAPER:
        raise unknown("benchmark", benchmark, PAPER)
    if budget not in BUDGETS:
        raise unknown("budget", budget, BUDGETS)
    known = {each.name for each in fields(Recipe)}
    for name in overrides.keys() - known:
        raise unknown("hyper-parameter", name, known)
    values: dict[str, Any] = {}
    if budget == "fast":
        values = {
            "images": min(PAPER[benchmark].images, MILLION),
            **FAST.get(benchmark, {}),
            **FAST_TASKS.get(task, {}),
        }
    values |= {name: value for name, value in overrides.items() if value is not None}
    if budget == "fast" and task == "ssl":  # as many images before labels as with them
        values.setdefault("simclr_images", values["images"])
    return replace(PAPER[benchmark], **values)
