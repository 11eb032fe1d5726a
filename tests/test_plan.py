"""What "auto" becomes for photographs and small images, with and without a GPU."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from adamatch import plan
from adamatch.base.errors import InputError
from adamatch.config.presets import ALIKE_ON_CPU, PHOTOGRAPHS_ON_CPU, SIZE_ON_CPU
from adamatch.initialise.domain_similarity import ENOUGH
from adamatch.plan import Plan, asked_for, pretrained, with_batch, with_likeness
from adamatch.train.speed import Machine

CPU, GPU = (Machine(torch.device(name), "fp32", compile=False, graph=False) for name in ("cpu", "cuda"))


def choose(side: int, machine: Machine, *, weights: str = "auto", few: bool = False, **settings: Any) -> Plan:
    return plan.choose(asked_for(settings), weights, lambda: side, machine, few_labels=few)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "has_imagenet", lambda network: True)


@pytest.mark.usefixtures("installed")
def test_photographs_on_a_cpu_are_trained_above_frozen_blocks() -> None:
    chosen = choose(227, CPU)
    recipe = chosen.recipe
    assert (recipe.network, chosen.weights, recipe.size) == ("efficientnet-lite0", "imagenet", SIZE_ON_CPU)
    assert [getattr(recipe, name) for name in PHOTOGRAPHS_ON_CPU] == [*PHOTOGRAPHS_ON_CPU.values()]
    assert recipe.strong == "randaugment"
    assert any("stay as they are" in reason and "minutes" in reason for reason in chosen.reasons)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("weights", "settings", "expected"),
    [
        ("none", {}, (False, 0.5, 5)),
        ("auto", {}, (False, 0.5, 1)),  # where something was learned before, nothing is spread
        ("none", {"repeat": True}, (True, 0.0, 1)),
    ],
)
def test_few_target_labels_wait(weights: str, settings: dict[str, Any], expected: tuple[bool, float, int]) -> None:
    recipe = choose(227, GPU, weights=weights, few=True, **settings).recipe
    assert (recipe.repeat, recipe.target_labels_from, recipe.target_label_steps) == expected
    recipe = choose(227, GPU, weights=weights, **settings).recipe
    assert (recipe.target_labels_from, recipe.target_label_steps) == (0.0, 1)


@pytest.mark.usefixtures("installed")
def test_not_on_a_gpu_nor_where_told_otherwise() -> None:
    recipe = choose(227, GPU).recipe
    assert (recipe.frozen, recipe.size, recipe.strong) == (0, 224, "cta")
    recipe = choose(227, CPU, frozen=0).recipe
    assert (recipe.frozen, recipe.size, recipe.strong) == (0, 224, "cta")
    recipe = choose(227, GPU, frozen=3, strong="cutout", size=96).recipe
    assert (recipe.frozen, recipe.size, recipe.strong) == (3, 96, "cutout")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"frozen": -1}, "frozen is a number from 0"),
        ({"size": "large"}, "size is a number, not 'large'"),
        ({"batch": 2.5}, "batch is a whole number, not 2.5"),
        ({"size": 4}, "size must be at least 8, not 4"),
        ({"strong": "cutoff"}, "no value of strong is called 'cutoff': did you mean 'cutout'?"),
        ({"learning_rate": 1}, "no argument of fit is called 'learning_rate'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as error:
        choose(32, CPU, **settings)
    assert says in str(error.value)


@pytest.mark.usefixtures("installed")
def test_what_is_asked_for_stays() -> None:
    recipe = choose(227, CPU, size=160, images=640, batch=8, lr=0.5).recipe
    assert (recipe.size, recipe.steps, recipe.batch, recipe.lr) == (160, 80, 8, 0.5)
    assert recipe.frozen == PHOTOGRAPHS_ON_CPU["frozen"]
    assert choose(227, CPU, size="auto", lr=None).recipe == choose(227, CPU).recipe


@pytest.mark.usefixtures("installed")
def test_small_images_are_no_photographs() -> None:
    assert choose(95, CPU).recipe.network == "wrn-small"
    assert choose(96, CPU).recipe.network == "efficientnet-lite0"


@pytest.mark.parametrize(
    ("side", "size", "network"),
    [(28, 32, "wrn-28-2"), (48, 32, "wrn-28-2"), (49, 64, "wrn-34-2"), (95, 64, "wrn-34-2")],
)
def test_on_a_gpu_the_networks_are_the_papers(side: int, size: int, network: str) -> None:
    recipe = choose(side, GPU).recipe
    assert (recipe.size, recipe.network) == (size, network)


@pytest.mark.parametrize(("size", "decay"), [(16, 0.0005), (32, 0.0005), (64, 0.001), (128, 0.002), (224, 0.002)])
def test_weight_decay_is_twice_as_much_for_twice_the_side(size: int, decay: float) -> None:
    assert choose(size, GPU, size=size, weights="none").recipe.weight_decay == decay


def test_without_the_extra_nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "has_imagenet", lambda network: False)
    chosen = choose(227, CPU)
    assert (chosen.recipe.network, chosen.recipe.frozen, chosen.recipe.size) == ("wrn-small", 0, 32)
    assert "pip install" in chosen.reasons[0]


def test_a_smaller_batch_has_the_average_of_its_steps() -> None:
    chosen = choose(32, CPU, size=32, images=6400)
    smaller = with_batch(chosen, 16, "why")
    assert smaller.recipe == choose(32, CPU, size=32, images=6400, batch=16).recipe
    assert smaller.reasons == (*chosen.reasons, "batch: 16 labelled images instead of 64, why")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("machine", "changes", "said"),
    [
        (GPU, {"knn_anchor": True}, "labels of their neighbours"),
        (CPU, ALIKE_ON_CPU, "batch norm stays"),  # where blocks are frozen
    ],
)
def test_where_domains_look_alike_more_is_kept_of_what_was_learned(
    machine: Machine, changes: dict[str, Any], said: str
) -> None:
    open_ = choose(227, machine)
    alike, different = with_likeness(open_, ENOUGH), with_likeness(open_, ENOUGH - 1e-6)
    assert alike.recipe == replace(open_.recipe, **changes) != open_.recipe
    assert different.recipe == open_.recipe
    assert alike.alike is different.alike is None
    assert alike.reasons[-1].startswith("source and target look similar")
    assert "2.5% of the images that look most like" in alike.reasons[-1]
    assert said in alike.reasons[-1]
    assert "look different" in different.reasons[-1]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("machine", [CPU, GPU])
def test_a_learning_rate_that_was_asked_for_stays_where_domains_look_alike(machine: Machine) -> None:
    assert with_likeness(choose(227, machine, lr=0.5), 0.5).recipe.lr == 0.5


def test_without_starting_weights_domains_are_not_compared() -> None:
    assert choose(32, CPU).alike is None


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("machine", [CPU, GPU])
def test_with_few_labels_and_no_source_a_network_from_scratch_is_pretrained(machine: Machine) -> None:
    chosen = choose(32, machine, images=6400)
    begun = pretrained(chosen)
    assert begun.recipe == replace(
        chosen.recipe, simclr_images=6400, linear_probe_init=True, knn_anchor=True, lr_end=0.02
    )
    assert "pre-trained on 6,400 images without labels" in begun.reasons[-1]
    for other in (choose(227, machine), choose(32, machine, frozen=2, strong="cutout")):
        assert pretrained(other) == other


@pytest.mark.parametrize("steps", [1, 20, 500, 5_000, 50_000])
def test_the_weight_average_does_not_remember_the_beginning(steps: int) -> None:
    recipe = choose(8, CPU, size=8, images=steps * 64).recipe
    assert recipe.steps == steps
    assert recipe.ema_decay <= 0.999
    assert recipe.ema_decay**steps <= 0.5
    assert steps < 10_000 or recipe.ema_decay == pytest.approx(0.999)


def test_choices_on_a_cpu_are_affordable_and_reasoned() -> None:
    chosen = choose(64, CPU)
    assert (chosen.recipe.size, chosen.recipe.batch, chosen.weights) == (32, 64, "")
    assert "median side is 64 and there is no GPU" in chosen.reasons[0]
    assert "mirror=False" in chosen.reasons[3]
    assert len(chosen.reasons) == 4
