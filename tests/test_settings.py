"""What "auto" becomes for photographs, with and without a GPU."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from adamatch import plan
from adamatch.base.errors import InputError
from adamatch.initialise.domain_similarity import ENOUGH
from adamatch.plan import FROZEN, FROZEN_ALIKE, FROZEN_SIZE, Settings, choose, with_batch, with_beginning, with_likeness
from adamatch.train.speed import Machine

CPU, GPU = (Machine(torch.device(name), "fp32", compile=False, graph=False) for name in ("cpu", "cuda"))
ASKED = Settings()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "has_imagenet", lambda network: True)


@pytest.mark.usefixtures("installed")
def test_photographs_on_a_cpu_are_trained_above_frozen_blocks() -> None:
    chosen = choose(ASKED, lambda: 227, CPU)
    recipe = chosen.recipe
    assert (recipe.network, chosen.weights, recipe.size) == ("efficientnet-lite0", "imagenet", FROZEN_SIZE)
    assert (recipe.frozen, recipe.views, recipe.batch) == (FROZEN["frozen"], FROZEN["views"], FROZEN["batch"])
    assert recipe.strong == "randaugment"
    assert any("stay as they are" in reason and "minutes" in reason for reason in chosen.reasons)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("weights", "late", "spread"), [("none", 0.5, 5), ("none", 0.0, 1), ("auto", 0.5, 1)])
def test_labels_that_wait_are_spread_where_nothing_was_learned_before(weights: str, late: float, spread: int) -> None:
    assert choose(replace(ASKED, weights=weights, late=late), lambda: 227, GPU).recipe.spread == spread


@pytest.mark.usefixtures("installed")
def test_not_on_a_gpu_nor_where_told_otherwise() -> None:
    recipe = choose(ASKED, lambda: 227, GPU).recipe
    assert (recipe.frozen, recipe.size, recipe.strong) == (0, 224, "cta")
    recipe = choose(replace(ASKED, frozen=0), lambda: 227, CPU).recipe
    assert (recipe.frozen, recipe.size, recipe.strong) == (0, 224, "cta")
    recipe = choose(replace(ASKED, frozen=3, strong="cutout", size=96), lambda: 227, GPU).recipe
    assert (recipe.frozen, recipe.size, recipe.strong) == (3, 96, "cutout")
    with pytest.raises(InputError, match="frozen is a number from 0"):
        choose(replace(ASKED, frozen=-1), lambda: 227, CPU)


@pytest.mark.usefixtures("installed")
def test_what_is_asked_for_stays() -> None:
    recipe = choose(replace(ASKED, size=160, images=640, batch=8, lr=0.5), lambda: 227, CPU).recipe
    assert (recipe.size, recipe.steps, recipe.batch, recipe.lr, recipe.frozen) == (160, 80, 8, 0.5, FROZEN["frozen"])


@pytest.mark.usefixtures("installed")
def test_small_images_are_no_photographs() -> None:
    assert choose(ASKED, lambda: 95, CPU).recipe.network == "wrn-small"
    assert choose(ASKED, lambda: 96, CPU).recipe.network == "efficientnet-lite0"


@pytest.mark.parametrize(
    ("side", "size", "network"),
    [(28, 32, "wrn-28-2"), (48, 32, "wrn-28-2"), (49, 64, "wrn-34-2"), (95, 64, "wrn-34-2")],
)
def test_on_a_gpu_the_networks_are_the_papers(side: int, size: int, network: str) -> None:
    recipe = choose(ASKED, lambda: side, GPU).recipe
    assert (recipe.size, recipe.network) == (size, network)


@pytest.mark.parametrize(("size", "decay"), [(16, 0.0005), (32, 0.0005), (64, 0.001), (128, 0.002), (224, 0.002)])
def test_weight_decay_is_twice_as_much_for_twice_the_side(size: int, decay: float) -> None:
    assert choose(replace(ASKED, size=size, weights="none"), lambda: size, GPU).recipe.weight_decay == decay


def test_without_the_extra_nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "has_imagenet", lambda network: False)
    chosen = choose(ASKED, lambda: 227, CPU)
    assert (chosen.recipe.network, chosen.recipe.frozen, chosen.recipe.size) == ("wrn-small", 0, 32)
    assert "pip install" in chosen.reasons[0]


def test_a_smaller_batch_has_the_average_of_its_steps() -> None:
    chosen = choose(replace(ASKED, size=32, images=6400), lambda: 32, CPU)
    smaller = with_batch(chosen, 16, "why")
    assert smaller.recipe == choose(replace(ASKED, size=32, images=6400, batch=16), lambda: 32, CPU).recipe
    assert smaller.reasons == [*chosen.reasons, "batch: 16 labelled images instead of 64, why"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("machine", "changes", "said"),
    [
        (GPU, {"anchored": True}, "holds on to the surest labels"),
        (CPU, {"statistics": "kept", "lr": FROZEN_ALIKE["lr"]}, "keeps the statistics"),  # where blocks are frozen
    ],
)
def test_where_domains_look_alike_more_is_kept_of_what_was_learned(
    machine: Machine, changes: dict[str, Any], said: str
) -> None:
    open_ = choose(ASKED, lambda: 227, machine)
    alike, different = with_likeness(open_, ENOUGH), with_likeness(open_, ENOUGH - 1e-6)
    assert alike.recipe == replace(open_.recipe, **changes) != open_.recipe
    assert different.recipe == open_.recipe
    assert alike.alike is different.alike is None
    assert alike.reasons[-1].startswith("source and target: 2.5% of the neighbours")
    assert "look alike" in alike.reasons[-1]
    assert said in alike.reasons[-1]
    assert "look different" in different.reasons[-1]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("machine", [CPU, GPU])
def test_a_learning_rate_that_was_asked_for_stays_where_domains_look_alike(machine: Machine) -> None:
    assert with_likeness(choose(replace(ASKED, lr=0.5), lambda: 227, machine), 0.5).recipe.lr == 0.5


def test_without_starting_weights_domains_are_not_compared() -> None:
    assert choose(ASKED, lambda: 32, CPU).alike is None


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("machine", [CPU, GPU])
def test_with_few_labels_and_no_source_a_network_from_nothing_begins_without_labels(machine: Machine) -> None:
    chosen = choose(replace(ASKED, images=6400), lambda: 32, machine)
    begun = with_beginning(chosen)
    assert begun.recipe == replace(chosen.recipe, contrastive=6400, fitted_head=True, anchored=True, lr_end=0.02)
    assert "first learns from 6,400 images without labels" in begun.reasons[-1]
    for other in (
        choose(ASKED, lambda: 227, machine),  # ImageNet's weights have learned before
        choose(replace(ASKED, frozen=2, strong="cutout"), lambda: 32, machine),
    ):
        assert with_beginning(other) == other
