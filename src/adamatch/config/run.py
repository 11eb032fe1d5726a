"""The configuration of a run: which cell of which table (`Run`), and how it is trained (`Recipe`)."""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, get_args

from adamatch.base.errors import InputError, shortened, unknown
from adamatch.base.files import parse, read_json
from adamatch.images.decode import Shape
from adamatch.images.tasks import POOLS

MILLION = 2**20  # as the authors count: 32M images at batch 64 are 524,288 steps
STATISTICS = ("global", "rank", "kept")
OPTIMISERS = ("sgd", "adamw")
ALIGNED = ("source", "estimated")
# What was added after runs had been made and named: at its default it is left out of a run's text, and so out of its name.
LATER = {
    "statistics": "global",
    "release": False,
    "repeat": True,
    "shape": "squeeze",
    "lr_body": 1.0,
    "optimiser": "sgd",
}
LATER |= {"frozen": 0, "views": 4, "white": 0, "balanced": False, "late": 0.0, "fitted_head": False}
LATER |= {"align": "source", "limit": 0.0, "window": 128, "decay": 0.999, "anchored": False, "contrastive": 0}
LATER |= {"spread": 1}
CHECKPOINT = 65_536  # labelled images between two evaluations, as in the paper
# At least so many in a run: shorter budgets are evaluated more often, so that the last ten are its last quarter.
EVALUATIONS = 40
LARGEST_SIZE = 4096  # pixels; a step of such images fits no machine of today
LARGEST = sys.float_info.max  # none is infinite
RANGES = {  # of the hyper-parameters
    "batch": (1, 2**20),
    "images": (1, 2**50),
    "uratio": (1, 2**10),
    "tau": (0.0, 1.0),
    "size": (1, LARGEST_SIZE),
    "lr": (0.0, LARGEST),
    "lr_end": (0.0, 1.0),
    "lr_body": (0.0, 1.0),
    "weight_decay": (0.0, LARGEST),
    "momentum": (0.0, 1.0),
    "average": (0.0, 1.0),
    "stop": (0, 2**50),
    "contrastive": (0, 2**50),
    "frozen": (0, 100),
    "views": (1, 2**10),
    "limit": (0.0, 65536.0),
    "window": (1, 2**16),
    "decay": (0.0, 1.0),
    "white": (0, 65535),
    "late": (0.0, 1.0),
    "spread": (1, 2**20),
}
LARGEST_SEED = 2**48
MOST_LABELS = 2**31
FORM = 1  # what configurations mean now


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Hyper-parameters: one set for every pair and task of a benchmark. Defaults are the paper's (section 4)."""

    network: str
    size: int
    images: int  # labelled images over which schedules run
    shape: Shape = "squeeze"  # how a rectangle becomes a square
    white: int = 0  # which value of 16-bit images is white; 0: there are none, or they say it themselves
    weight_decay: float
    batch: int = 64  # labelled images in a step (each labelled pool's, where there are two)
    uratio: int = 3  # unlabelled images for each of them
    tau: float = 0.9
    align: str = "source"  # predictions on the target: to the source's classes, or to an estimate of the target's own
    limit: float = 0.0  # the largest factor by which alignment makes a class more or less likely; 0: none
    window: int = 128  # batches over which the target's class average is taken
    decay: float = 0.999  # of the source's class average
    release: bool = False  # AdaMatch lets its alignment go over the second half of the run (not in the paper)
    lr: float = 0.03
    lr_end: float = 0.25  # the learning rate ends at this part of its start
    lr_body: float = 1.0  # the learning rate below the head, as part of the head's
    frozen: int = 0  # so many lower blocks of the network stay as they are, and are computed once (train/bank.py)
    views: int = 4  # of these there are then so many weak and as many strong views of each image
    optimiser: str = "sgd"
    momentum: float = 0.9
    average: float = 0.999  # decay of the weight average and of batch norm's running statistics
    strong: str = "cta"
    mirror: bool = True
    fitted_head: bool = False  # the head begins as a linear classifier of what the starting weights make of the images
    contrastive: int = (
        0  # images on which the network first learns to tell views of one from others (train/contrastive.py)
    )
    anchored: bool = False  # until pseudo-labels count, the surest labels of neighbours do (train/neighbours.py)
    balanced: bool = False  # rare classes of labelled images are drawn as often as the median one
    repeat: bool = (
        True  # few labelled target images fill a batch, each in it several times; False: none again before all came
    )
    late: float = 0.0  # the part of the run before labelled target images count in its steps
    spread: int = (
        1  # without repeat, each of them comes once in so many steps, or oftener: a step has as many as classes
    )
    statistics: str = (
        "global"  # batch norm's: of the batch, of each "rank" (the authors' code), or "kept" as they start
    )
    stop: int = 0  # stop after so many labelled images, in the middle of the schedules; 0: go to their end

    def __post_init__(self) -> None:
        for each in fields(self):  # lr=1 and lr=1.0 are the same recipe: its text has to be the same too
            if each.type in (int, float):
                given = getattr(self, each.name)
                try:
                    object.__setattr__(self, each.name, each.type(given))
                except (TypeError, ValueError, OverflowError):
                    raise InputError(f"{each.name} is a number, not {shortened(given)}") from None
                if isinstance(given, float) and each.type(given) != given == given:  # nan is refused below
                    raise InputError(f"{each.name} is a whole number, not {shortened(given)}")
            elif each.type in (str, bool) and not isinstance(getattr(self, each.name), each.type):
                kind = "a name" if each.type is str else "true or false"
                raise InputError(f"{each.name} is {kind}, not {shortened(getattr(self, each.name))}")
        for kind, name, valid in (
            ("kind of statistics", self.statistics, STATISTICS),
            ("optimiser", self.optimiser, OPTIMISERS),
            ("alignment", self.align, ALIGNED),
            ("shape", self.shape, get_args(Shape)),
        ):
            if name not in valid:
                raise unknown(kind, name, valid)
        if self.frozen and self.strong.startswith("cta"):
            raise InputError(
                "views that are made beforehand, for frozen blocks, cannot follow CTAugment: choose randaugment or cutout"
            )
        if self.frozen and self.contrastive:
            raise InputError(
                "what images alone teach, before training, goes to the whole network: frozen and contrastive exclude each other"
            )
        for name, (least, most) in RANGES.items():
            if not least <= getattr(self, name) <= most:  # nor is nan
                upwards = "up" if most == LARGEST else f"to {most:,.0f}"
                raise InputError(f"{name} is a number from {least:g} {upwards}, not {shortened(getattr(self, name))}")

    @property
    def steps(self) -> int:
        """Of the schedules."""
        return max(1, self.images // self.batch)

    @property
    def last_step(self) -> int:
        """Where the run ends."""
        return min(self.steps, max(1, self.stop // self.batch)) if self.stop else self.steps

    @property
    def evaluate_every(self) -> int:
        """Steps between two evaluations: 65,536 images, or a fortieth of a shorter run.

        (A tenth where part of the network is frozen: steps are few and small there, and an evaluation is as long as many.)
        """
        evaluations = EVALUATIONS // 4 if self.frozen else EVALUATIONS
        return max(1, min(CHECKPOINT // self.batch, self.last_step // evaluations))


_DIGITS = Recipe(network="wrn-28-2", size=32, images=32 * MILLION, weight_decay=0.0005)
_64 = Recipe(network="wrn-34-2", size=64, images=8 * MILLION, weight_decay=0.001)
_224 = Recipe(network="resnetv2-101", size=224, images=8 * MILLION, weight_decay=0.002)

PAPER: dict[str, Recipe] = {
    # Not the paper's: small enough for two CPU cores, and as few steps want shorter averages. Digits have no mirror image.
    "handwriting": Recipe(
        network="wrn-tiny",
        size=8,
        images=40_000,
        batch=32,
        weight_decay=0.0005,
        average=0.99,
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
FAST: dict[str, Mapping[str, Any]] = {
    # Digits have no mirror image. The rest is what stops mnist -> svhn from drifting down: docs/what-matters.md.
    "digitfive": {"images": MILLION, "mirror": False, "tau": 0.97, "lr": 0.06, "release": True},
    "pacs64": {"images": MILLION // 2},
}
# In short runs a few labelled target images harm where they count from the first step: docs/what-matters.md.
LATE = 0.5  # so they wait for this part of the run,
SPREAD = 5  # and from scratch they are spread over so many steps
AS_PRINTED: Mapping[str, Any] = {"repeat": True, "late": 0.0, "spread": 1}
# Without a source, most is learned before labels (`contrastive`), and held on to until pseudo-labels count: docs/few-labels.md.
BEGUN: Mapping[str, Any] = {"fitted_head": True, "anchored": True, "lr_end": 0.02}
FAST_TASKS: dict[str, Mapping[str, Any]] = {
    "ssl": BEGUN,  # and as many images before labels as with them
    "ssda": {"repeat": False, "late": LATE, "spread": SPREAD},
}
BUDGETS = ("paper", "fast")
# The paper's protocol with starting weights, which have learned before.
PRETRAINED: Mapping[str, Any] = {"weight_decay": 0.0, "stop": 2 * MILLION, "contrastive": 0, "spread": 1}


def recipe(benchmark: str, budget: str = "paper", task: str = "uda", **overrides: Any) -> Recipe:
    """The hyper-parameters of a benchmark; `fast` has a million images at most. None in overrides leaves a value alone."""
    if benchmark not in PAPER:
        raise unknown("benchmark", benchmark, PAPER)
    if budget not in BUDGETS:
        raise unknown("budget", budget, BUDGETS)
    known = {each.name for each in fields(Recipe)}
    for name in overrides.keys() - known:
        raise unknown("hyper-parameter", name, known)
    short = {"images": min(PAPER[benchmark].images, MILLION)}
    changes = {**short, **FAST.get(benchmark, {}), **FAST_TASKS.get(task, {})} if budget == "fast" else {}
    given = {name: value for name, value in overrides.items() if value is not None}
    found = replace(PAPER[benchmark], **changes | given)
    begins = budget == "fast" and task == "ssl" and "contrastive" not in given
    return replace(found, contrastive=found.images) if begins else found


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run. `options` are arguments of the method (ablations); `labels` counts labelled target images per class."""

    benchmark: str = "handwriting"
    task: str = "uda"
    source: str = ""
    target: str = ""
    labels: int = 0
    method: str = "adamatch"
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    budget: str = "paper"
    weights: str = ""  # a file of starting weights, or timm:NAME
    test: str = (
        ""  # what else it is evaluated on, of own images: no part of what the run is, since it may be added later
    )
    form: int = FORM  # 0: a result from when the configuration meant something else (see `reformed`); to be read only
    recipe: Recipe = field(default=None)  # type: ignore[assignment]  # filled in from benchmark and budget

    def __post_init__(self) -> None:
        if self.recipe is None:
            protocol = PRETRAINED if self.weights else {}
            object.__setattr__(self, "recipe", recipe(self.benchmark, self.budget, self.task, **protocol))
        for name in ("labels", "seed"):  # NumPy's numbers, too: JSON has none of these
            object.__setattr__(self, name, int(getattr(self, name)))
        each_in_every_step = self.recipe.repeat or (self.labels == 1 and self.benchmark in PAPER)
        if self.recipe.spread > 1 and each_in_every_step:
            object.__setattr__(self, "recipe", replace(self.recipe, spread=1))
        for each in fields(self):
            if each.type is str and not isinstance(getattr(self, each.name), str):
                raise InputError(f"{each.name} is a name, not {shortened(getattr(self, each.name))}")
        options = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in self.options.items()}
        object.__setattr__(self, "options", options)
        for name, what, most in (("seed", "a seed is", LARGEST_SEED), ("labels", "labels per class are", MOST_LABELS)):
            if not 0 <= getattr(self, name) <= most:
                raise InputError(f"{what} a number from 0 to {most}, not {shortened(getattr(self, name))}")

    @property
    def reformed(self) -> bool:
        """Whether the configuration meant something else in form 0 (what: docs/faithfulness.md), and has another id since."""
        if self.method == "adamatch":  # two labelled pools, and nothing said of their weight
            return POOLS.get(self.task, 1) > 1 and self.options.get("pools", 1) == 1 and "batches" not in self.options
        if self.method == "fixmatch+":  # which had no release
            return self.recipe.release and "release" not in self.options
        return self.method == "noisystudent"

    def to_json(self) -> str:
        """Canonical: equal runs give equal text."""
        values = asdict(self)
        if not self.form or not self.reformed:
            del values["form"]
        if not self.test:
            del values["test"]
        for name, default in LATER.items():
            if values["recipe"][name] == default:
                del values["recipe"][name]
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a run.json. Raises ValueError, or OSError where there is none."""
        return cls.from_json(json.dumps(read_json(path)))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError, whatever else the text may be."""
        try:
            values = parse(text)
            run = cls(**values | {"recipe": Recipe(**values["recipe"])})
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a run: {error!r}") from None
        return replace(run, form=0) if "form" not in values and run.reformed else run

    @cached_property
    def id(self) -> str:
        """A short name that is the same for the same configuration, everywhere."""
        return hashlib.sha256(replace(self, test="").to_json().encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """The name of its folder: readable, and unique by its id."""
        pair = self.target if self.task == "ssl" else f"{self.source}-{self.target}"
        labels = f"{self.labels}" if self.labels else ""
        return f"{self.benchmark}-{self.task}{labels}-{pair}-{self.method}-s{self.seed}-{self.id}"
