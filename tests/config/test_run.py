"""Presets against the paper, and the configuration of a run as text and as a name."""

import json
import math
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adamatch.base.errors import InputError
from adamatch.config.presets import AS_PRINTED, FAST, MILLION, PAPER, recipe
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.train.loop import MEDIAN_OF

# Section 4 of the paper. network, side, labelled images in millions, weight decay
PUBLISHED = {
    "digitfive": ("wrn-28-2", 32, 32, 0.0005),
    "domainnet32": ("wrn-28-2", 32, 8, 0.0005),
    "domainnet64": ("wrn-34-2", 64, 8, 0.001),
    "domainnet224": ("resnetv2-101", 224, 8, 0.002),
    "office31-64": ("wrn-34-2", 64, 8, 0.001),
    "office31-224": ("resnetv2-101", 224, 8, 0.002),
}


@pytest.mark.parametrize("benchmark", PUBLISHED)
def test_presets_are_the_papers(benchmark: str) -> None:
    network, size, millions, weight_decay = PUBLISHED[benchmark]
    ours = recipe(benchmark, "paper")
    assert ours == Recipe(
        network=network, size=size, images=millions * MILLION, weight_decay=weight_decay,
        batch=64, uratio=3, tau=0.9, lr=0.03, lr_end=0.25,
        momentum=0.9, ema_decay=0.999,  # from the authors' code
        strong="cta", mirror=True, stop_after=0,
    )  # fmt: skip
    assert ours.evaluate_every * ours.batch == 2**16
    assert MEDIAN_OF == 10


@pytest.mark.parametrize("benchmark", ["digitfive", "domainnet64", "domainnet224"])
def test_starting_weights_bring_the_papers_protocol(benchmark: str) -> None:
    run = Run(benchmark=benchmark, weights="resnet101.safetensors")
    assert run.recipe.weight_decay == 0
    assert run.recipe.stop_after == 2 * MILLION  # early stop
    assert run.recipe.last_step == 2 * MILLION // 64
    assert run.recipe.steps == recipe(benchmark).steps  # in the middle of the same schedules
    assert replace(run.recipe, weight_decay=recipe(benchmark).weight_decay, stop_after=0) == recipe(benchmark)


@pytest.mark.parametrize("benchmark", PAPER)
def test_in_short_runs_labelled_target_images_wait_and_are_not_repeated(benchmark: str) -> None:
    assert recipe(benchmark, "fast", "ssda") == replace(
        recipe(benchmark, "fast"), repeat=False, target_labels_from=0.5, target_label_steps=5
    )
    assert Run(benchmark=benchmark, task="ssda", labels=5, budget="fast").recipe == recipe(benchmark, "fast", "ssda")
    assert recipe(benchmark, "paper", "ssda") == recipe(benchmark)
    assert recipe(benchmark, "fast", "ssda", **AS_PRINTED) == recipe(benchmark, "fast")


def test_nothing_is_spread_that_fills_a_batch_or_has_one_image_of_each_class() -> None:
    one = Run(benchmark="digitfive", task="ssda", labels=1, budget="fast")
    assert one.recipe.target_label_steps == 1
    assert one == replace(one, recipe=replace(one.recipe, target_label_steps=3))  # one run, not two
    five = replace(one, labels=5, recipe=recipe("digitfive", "fast", "ssda"))
    assert five.recipe.target_label_steps == 5
    assert replace(five, recipe=replace(five.recipe, repeat=True)).recipe.target_label_steps == 1
    begun = Run(benchmark="digitfive", task="ssda", labels=5, budget="fast", weights="timm:a")
    assert begun.recipe.target_label_steps == 1  # it has learned before
    own = replace(one, benchmark="folders", recipe=five.recipe)  # whose labels per class are the source's
    assert own.recipe.target_label_steps == 5


@pytest.mark.parametrize("benchmark", PAPER)
def test_in_short_runs_without_a_source_as_many_images_come_before_labels_as_with_them(benchmark: str) -> None:
    fast = recipe(benchmark, "fast")
    begun = replace(fast, simclr_images=fast.images, linear_probe_init=True, knn_anchor=True, lr_end=0.02)
    assert recipe(benchmark, "fast", "ssl") == begun
    assert recipe(benchmark, "fast", "ssl", images=640) == replace(begun, images=640, simclr_images=640)
    assert recipe(benchmark, "fast", "ssl", simclr_images=0) == replace(begun, simclr_images=0)
    assert recipe(benchmark, "paper", "ssl") == recipe(benchmark)


@pytest.mark.parametrize(
    ("images", "batch", "stop", "steps", "last", "every"),
    [
        (32 * 2**20, 64, 0, 524_288, 524_288, 1024),
        (8_000_000, 64, 0, 125_000, 125_000, 1024),
        (8_000_000, 64, 2_000_000, 125_000, 31_250, 781),  # a fortieth of where it stops
        (1_000_000, 64, 0, 15_625, 15_625, 390),
        (64_000, 64, 0, 1000, 1000, 25),
        (640, 64, 0, 10, 10, 1),
        (63, 64, 0, 1, 1, 1),
        (640, 64, 1, 10, 1, 1),
        (640, 64, 10_000, 10, 10, 1),  # not beyond the end
        (10**9, 100_000, 0, 10_000, 10_000, 1),
    ],
)
def test_steps(images: int, batch: int, stop: int, steps: int, last: int, every: int) -> None:
    short = recipe("digitfive", images=images, batch=batch, stop_after=stop)
    assert (short.steps, short.last_step, short.evaluate_every) == (steps, last, every)


RUN = Run(
    source="rendered",
    target="handwritten",
    options={"align": "none"},
    recipe=recipe("handwriting", "paper", repeat=False),  # where nothing is repeated, labels may be spread
)
PARTS = ("anchor_part", "tau", "alignment_decay", "lr_end", "lr_body", "momentum", "ema_decay")  # of 1
CHANGES: dict[str, Any] = {
    "benchmark": "folders",
    "task": "ssda",
    "source": "all",
    "target": "rendered",
    "labels": 3,
    "method": "mcd",
    "options": {"align": "labels"},
    "seed": 1,
    "seeds": 3,
    "first_seed": 7,
    "budget": "fast",
    "weights": "weights.safetensors",
    "target_labels": "few",
    "continues": "0123456789",
    "digests": {"source": "1a2b3c4d"},
    "network": "wrn-34-2",
    "strong": "randaugment",
    "mirror": True,
    "batch_norm": "rank",
    "fade_out": True,
    "balance_classes": True,
    "linear_probe_init": True,
    "knn_anchor": True,
    "probe_neighbours": True,
    "neighbour_networks": "efficientnet-lite1",
    "repeat": True,
    "shape": "crop",
    "optimiser": "adamw",
}


def changed(name: str) -> Run:
    if name not in {each.name for each in fields(Recipe)}:
        return replace(RUN, **{name: CHANGES[name]})
    value = CHANGES[name] if name in CHANGES else getattr(RUN.recipe, name) + (-0.125 if name in PARTS else 1)
    return replace(RUN, recipe=replace(RUN.recipe, **{name: value}))


NAMES = [each.name for kind in (Run, Recipe) for each in fields(kind) if each.name not in ("recipe", "test")]


def test_ids_are_all_different_and_names_too() -> None:
    runs = [RUN, *(changed(name) for name in NAMES)]
    assert len({run.id for run in runs}) == len({run.name for run in runs}) == len(runs)
    assert RUN.name == f"handwriting-uda-rendered-handwritten-adamatch-s0-{RUN.id}"
    assert replace(RUN, task="ssl", source="", labels=5).name.startswith("handwriting-ssl5-handwritten-adamatch-s0-")


def test_the_id_is_known_and_the_same_in_another_process() -> None:
    code = "import sys; from adamatch.config.run import Run; print(Run.from_json(sys.argv[1]).id)"
    said = subprocess.run(
        [sys.executable, "-c", code, RUN.to_json()], capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == RUN.id
    assert len(RUN.id) == 10


@given(
    seed=st.integers(0, 2**40),
    lr=st.floats(1e-9, 10),
    images=st.integers(1, 10**9),
    options=st.dictionaries(
        st.text(min_size=1),
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        max_size=4,
    ),
)
def test_text_and_back(seed: int, lr: float, images: int, options: dict[str, Any]) -> None:
    run = Run(seed=seed, options=options, recipe=recipe("digitfive", lr=lr, images=images))
    again = Run.from_json(run.to_json())
    assert again == run
    assert again.to_json() == run.to_json()
    backwards = Run(seed=seed, options=dict(reversed(options.items())), recipe=run.recipe)
    assert backwards.to_json() == run.to_json()
    assert list(json.loads(run.to_json())) == sorted(json.loads(run.to_json()))


def test_a_setting_at_its_default_is_no_part_of_the_id() -> None:
    """So that a new setting leaves the ids of finished runs as they are."""
    facts = json.loads(RUN.to_json())
    assert facts["recipe"].pop("lr_body") == 1.0
    assert Run.from_json(json.dumps(facts)).id == RUN.id


def test_a_test_set_is_no_part_of_what_a_run_is() -> None:
    run = Run(source="rendered", target="handwritten")
    assert replace(run, test="photos (1a2b3c4d)").id == run.id
    assert replace(run, test="photos (1a2b3c4d)").to_json() != run.to_json()


def test_every_kept_result_is_found_by_its_name() -> None:
    results = [json.loads(path.read_text()) for path in (Path(__file__).parents[2] / "results").rglob("*-s?-*.json")]
    assert len(results) > 150
    for result in results:
        run = Run.from_json(json.dumps(result["run"]))
        assert run.id == result["id"]


def test_an_override_of_none_leaves_a_value_alone() -> None:
    assert recipe("digitfive", lr=None, images=5).lr == 0.03
    assert recipe("digitfive", mirror=False).mirror is False
    assert recipe("digitfive", weight_decay=0).weight_decay == 0


def test_an_override_goes_before_the_budget() -> None:
    for benchmark, changes in FAST.items():
        for name, value in changes.items():
            other = not value if isinstance(value, bool) else value / 2
            assert getattr(recipe(benchmark, "fast", "uda", **{name: other}), name) == other
    assert recipe("digitfive", "fast", tau=0.9) == replace(recipe("digitfive", "fast"), tau=0.9)


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    run = Run(seed=np.int64(3), labels=np.int64(2), options={"target": torch.tensor([0.25, 0.75])})  # type: ignore[arg-type]
    assert run == Run(seed=3, labels=2, options={"target": [0.25, 0.75]})
    assert Run.from_json(run.to_json()) == run
    assert (
        Run(recipe=recipe("digitfive", lr=1, images=1e6)).to_json()
        == Run(recipe=recipe("digitfive", lr=1.0, images=10**6)).to_json()
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: recipe("digitfife"), "no benchmark is called 'digitfife': did you mean 'digitfive'?"),
        (lambda: Run(benchmark="pacs"), "no benchmark is called 'pacs': did you mean 'pacs64'?"),
        (lambda: recipe("digitfive", "fats"), "no budget is called 'fats': did you mean 'fast'?"),
        (lambda: recipe("digitfive", weight_decy=1), "did you mean 'weight_decay'?"),
        (lambda: recipe("digitfive", tau=90), "tau is a number from 0 to 1, not 90"),
        (lambda: Run(seed=-1), "seed is a number from 0 to 281,474,976,710,656, not -1"),
        (lambda: Run(seed=10**20), "seed is a number from 0 to"),
        *(
            (lambda name=name: recipe("handwriting", "paper", "uda", **{name: 0}), f"{name} is a number from 1 to ")
            for name in ("batch", "uratio", "size")
        ),
        (lambda: recipe("handwriting", images=0), "images=0 trains nothing but a first classifier"),
        (lambda: recipe("handwriting", lr=-0.1), "lr is a number from 0 up, not -0.1"),
        (lambda: recipe("handwriting", lr=math.nan), "lr is a number from 0 up, not nan"),
        (lambda: recipe("handwriting", lr="fast"), "lr is a number, not 'fast'"),
        (lambda: recipe("handwriting", batch=63.9), "batch is a whole number, not 63.9"),
        (lambda: recipe("handwriting", frozen=1, strong="cta-published"), "cannot adapt as CTAugment does"),
        (lambda: recipe("handwriting", weight_decay=-0.1), "weight_decay is a number from 0"),
        (lambda: recipe("handwriting", lr_end=2), "lr_end is a number from 0 to 1, not 2.0"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(make: Any, says: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert says in str(error.value)
    assert "\n" not in str(error.value)
