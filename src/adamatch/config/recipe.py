"""The hyper-parameters of training, in parts. Defaults are the paper's (section 4)."""

from dataclasses import dataclass
from typing import Literal, get_args

from adamatch.base.errors import InputError
from adamatch.config.schema import check, setting

LARGEST_SIZE = 4096  # pixels; a step of such images fits no machine of today
CHECKPOINT = 65_536  # labelled images between two evaluations, as in the paper
EVALUATIONS = 40  # at least so many in a run: the last ten of a short one are its last quarter
BOTH = ("fit", "train")
Shape = Literal["squeeze", "crop"]
STRONG = ("cta", "cta-published", "randaugment", "cutout")


@dataclass(frozen=True, kw_only=True)
class Network:
    """What is trained. (Its starting weights are the run's: they may be a file.)"""

    network: str = setting(about="{networks}", commands=BOTH)
    batch_norm: str = setting(
        "global",
        "Batch norm's statistics: global, rank (each GPU its own, as in the authors' code) or kept (as they start)",
        choices=("global", "rank", "kept"),
        commands=["train"],
    )


@dataclass(frozen=True, kw_only=True)
class ImageViews:
    """What the network sees of an image."""

    size: int = setting(
        about="Side of the images in training: 32, 64, ...", least=1, most=LARGEST_SIZE, commands=["fit"]
    )
    shape: Shape = setting(  # noqa: RUF009
        "squeeze", "How a rectangle becomes a square", choices=get_args(Shape)
    )
    white: int = setting(
        0, "The value that is white in 16-bit images; 0: there are none, or they say it", least=0, most=65535
    )
    mirror: bool = setting(
        True,
        "May images be flipped horizontally? Not where left and right matter, as in digits and letters",
        commands=BOTH,
    )
    strong: str = setting("cta", "Strong augmentation: " + ", ".join(STRONG), choices=STRONG, commands=BOTH)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long, and in what steps."""

    images: int = setting(about="Labelled images to train for, repeats counted", least=0, most=2**50, commands=BOTH)
    batch: int = setting(64, "Labelled images in a step, of each labelled pool", least=1, most=2**20, commands=BOTH)
    uratio: int = setting(3, "Unlabelled images for each labelled one", least=1, most=2**10, commands=["train"])
    stop_after: int = setting(
        0, "Stop after so many labelled images, in the middle of the schedules", least=0, most=2**50
    )

    @property
    def steps(self) -> int:
        """Of the schedules."""
        return max(1, self.images // self.batch)

    @property
    def last_step(self) -> int:
        """Where the run ends. Without images there are no steps: the first classifier is the result."""
        if not self.images:
            return 0
        return min(self.steps, max(1, self.stop_after // self.batch)) if self.stop_after else self.steps


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """How weights follow the gradients, and what is averaged over steps."""

    optimiser: str = setting("sgd", "sgd or adamw", choices=("sgd", "adamw"))
    lr: float = setting(0.03, "Learning rate at the start", least=0, commands=BOTH)
    lr_end: float = setting(0.25, "The learning rate ends at this part of its start", least=0, most=1)
    lr_body: float = setting(1.0, "The learning rate below the head, as a part of the head's", least=0, most=1)
    weight_decay: float = setting(about="L2 on weights", least=0, commands=["train"])
    momentum: float = setting(0.9, "Of SGD", least=0, most=1)
    ema_decay: float = setting(0.999, "Decay of the weight average and of batch norm's statistics", least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class PseudoLabels:
    """Which guesses count as labels. What is not the paper's is off by default."""

    tau: float = setting(0.9, "Confidence threshold", least=0, most=1, commands=["train"])
    alignment_window: int = setting(
        128, "Batches over which alignment averages the target's classes", least=1, most=2**16
    )
    alignment_decay: float = setting(0.999, "Decay of alignment's average of the source's classes", least=0, most=1)
    alignment_clip: float = setting(
        0.0, "Largest factor by which alignment changes a class; 0: none", least=0, most=65536
    )
    fade_out: bool = setting(False, "Alignment fades out over the second half of the run")
    knn_anchor: bool = setting(False, "Until pseudo-labels count, the surest labels of neighbours do")
    anchor_floor: float = setting(
        0.0,
        "Neighbours' labels keep at least this weight; 0: they fade as pseudo-labels begin to count",
        least=0,
        most=100,
    )


@dataclass(frozen=True, kw_only=True)
class LabelledSampling:
    """How labelled images are drawn, and a few labelled target images among them."""

    balance_classes: bool = setting(False, "Rare classes are drawn as often as the median one")
    repeat: bool = setting(
        True,
        "Repeat few target labels until they fill half of each labelled batch, from the first step, as in the paper; "
        "otherwise they are sampled without replacement, from the middle of the run on",
        commands=BOTH,
    )
    target_labels_from: float = setting(0.0, "The part of the run before labelled target images count", least=0, most=1)
    target_label_steps: int = setting(
        1, "Without repeat, each labelled target image comes once in so many steps", least=1, most=2**20
    )


@dataclass(frozen=True, kw_only=True)
class Initialisation:
    """What happens before the first step."""

    simclr_images: int = setting(
        0, "Images on which the network is pre-trained without labels (SimCLR)", least=0, most=2**50
    )
    linear_probe_init: bool = setting(False, "The head starts as a linear classifier of the starting weights' features")
    probe_neighbours: bool = setting(
        False, "That classifier learns the most likely label of each target image, not all of its likely ones"
    )
    neighbour_networks: str = setting(
        "", "Networks, by commas, in whose ImageNet features neighbours are found; empty: the network's own"
    )
    anchor_part: float = setting(
        0.5, "Of the images of each predicted class, the surest so many have a neighbours' label", least=0, most=1
    )
    frozen: int = setting(
        0,
        "Blocks of an EfficientNet-Lite (Lite0: of 16) that are not trained; all: only a classifier is",
        least=0,
        most=100,
        commands=["fit"],
    )
    cached_views: int = setting(
        4, "With frozen blocks, so many weak and as many strong views of each image", least=1, most=2**10
    )


@dataclass(frozen=True, kw_only=True)
class Recipe(Initialisation, LabelledSampling, PseudoLabels, Optimisation, Schedule, ImageViews, Network):
    """All hyper-parameters: one set for every pair and task of a benchmark."""

    def __post_init__(self) -> None:
        check(self)
        if not self.images and not self.linear_probe_init:
            raise InputError("images=0 trains nothing but a first classifier: it goes with linear_probe_init")
        if self.frozen and self.strong.startswith("cta"):
            raise InputError(
                "frozen blocks: precomputed augmentations cannot adapt as CTAugment does: choose randaugment or cutout"
            )
        if self.frozen and self.neighbour_networks:
            raise InputError("neighbour_networks look at images: not with frozen blocks, which keep features alone")
        if self.frozen and self.simclr_images:
            raise InputError(
                "frozen and simclr_images exclude each other: pre-training without labels is of all blocks"
            )

    @property
    def evaluate_every(self) -> int:
        """Steps between two evaluations: 65,536 images, or a fortieth of a shorter run.

        (A tenth where part of the network is frozen: an evaluation takes as long as many of its steps.)
        """
        evaluations = EVALUATIONS // 4 if self.frozen else EVALUATIONS
        return max(1, min(CHECKPOINT // self.batch, self.last_step // evaluations))
