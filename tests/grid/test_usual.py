"""Which runs a table takes for the usual ones, and where the others stand."""

from dataclasses import replace
from typing import Any

import pytest
from grid.fakes import result
from grid.test_tables import HARD, cell, made

from adamatch.config.presets import PRETRAINED
from adamatch.config.run import Run
from adamatch.grid import experiments, figures, pretraining
from adamatch.grid.render import Figure
from adamatch.grid.tables import tables

EARLY = Run(benchmark=pretraining.SUITE, source="real", target="sketch", weights="timm:a")
TO_THE_END = replace(EARLY, recipe=replace(EARLY.recipe, stop=0))
AT_2M, TO_8M = "pre-train (2M)", "pre-train (8M)"


def pre_trained(run: Run, accuracy: float) -> dict[str, Any]:
    return result(run, accuracy) | {"evaluations": [{"target": accuracy}]}


def lower(run: Run, **changes: Any) -> Run:
    return replace(run, recipe=replace(run.recipe, **changes))


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (replace(EARLY, weights="timm:b"), "weights=timm:b"),
        (lower(EARLY, lr=0.001), "lr=0.001, weights=timm:a"),
        (lower(EARLY, stop=2**20), f"stop={2**20}, weights=timm:a"),
        (replace(lower(TO_THE_END, lr=0.001), weights="timm:b"), "lr=0.001, weights=timm:b"),
    ],
)
def test_other_weights_and_recipes_are_not_averaged(other: Run, told: str) -> None:
    both = [pre_trained(EARLY, 40.0), pre_trained(TO_THE_END, 30.0)]
    alone, mixed = (made(results, "pre-training") for results in (both, [*both, pre_trained(other, 20.0)]))
    assert mixed.rows == alone.rows
    for column, mean in ((AT_2M, 40.0), (TO_8M, 30.0)):
        figure = cell(mixed, "AdaMatch", column)
        assert isinstance(figure, Figure)
        assert (figure.mean, figure.n) == (mean, 1)
    assert alone.notes == mixed.notes[: len(alone.notes)]
    assert f"Pre-trained are runs with weights=timm:a; those with {told} stand among the variants." in mixed.notes
    variants = made([*both, pre_trained(other, 20.0)], "variants of AdaMatch")
    means = [row[1].mean for row in variants.rows if isinstance(row[1], Figure)]
    assert sorted(means) == [20.0, 30.0, 40.0]


def test_pre_trained_are_the_papers_protocol_and_the_grids_weights_before_the_commonest() -> None:
    grids = replace(EARLY, weights=pretraining.WEIGHTS)
    for usual, others in ((EARLY, lower(EARLY, lr=0.001)), (grids, EARLY), (lower(EARLY, lr=0.1), None)):
        results = [pre_trained(replace(usual, seed=0), 40.0)]
        results += [pre_trained(replace(others, seed=seed), 20.0) for seed in range(3) if others]
        for ordered in (results, results[::-1]):
            figure = cell(made(ordered, "pre-training"), "AdaMatch", AT_2M)
            assert isinstance(figure, Figure)
            assert (figure.mean, figure.n) == (40.0, 1)
    seeds = [pre_trained(replace(EARLY, seed=seed), 20.0) for seed in range(2)]
    figure = cell(
        made([pre_trained(replace(EARLY, weights="timm:b"), 40.0), *seeds], "pre-training"), "AdaMatch", AT_2M
    )
    assert isinstance(figure, Figure)
    assert (figure.mean, figure.n) == (20.0, 2)  # the commonest


def test_what_stops_elsewhere_makes_no_table_of_pre_training() -> None:
    assert EARLY.recipe.stop == PRETRAINED["stop"]
    titles = [table.title for table in tables([pre_trained(lower(EARLY, stop=2**20), 40.0)])]
    assert not any("pre-training" in title for title in titles)


def test_shorter_runs_do_not_stand_under_8m_images() -> None:
    """However many there are, as of the budget `fast`; from scratch too."""
    scratch = replace(Run(benchmark=pretraining.SUITE, source="real", target="sketch", budget="fast"), seed=1)
    fast = [replace(lower(each, images=2**20), seed=seed) for each in (EARLY, TO_THE_END) for seed in range(3)]
    short = [pre_trained(run, 90.0) for run in (scratch, *fast)]
    assert not any("pre-training" in table.title for table in tables(short))
    table = made([*short, pre_trained(EARLY, 40.0), pre_trained(TO_THE_END, 30.0)], "pre-training")
    assert cell(table, "AdaMatch", "random init (8M)") == "-"
    for column, mean in ((AT_2M, 40.0), (TO_8M, 30.0)):
        figure = cell(table, "AdaMatch", column)
        assert isinstance(figure, Figure)
        assert (figure.mean, figure.n) == (mean, 1)
    told = f"those with images={2**20}, weights=timm:a stand among the variants"
    assert any(told in note for note in table.notes)


@pytest.mark.parametrize(("uda", "oracle"), [("paper", "fast"), ("fast", "paper")])
def test_an_oracle_by_another_recipe_does_not_stand_beside_uda(uda: str, oracle: str) -> None:
    """However many oracles there are: it is theirs that has to be the recipe of what they are beside."""
    first = Run(benchmark="digitfive", source="mnist", target="svhn", budget=uda)
    other = experiments.oracle(Run(benchmark="digitfive", source="mnist", target="svhn", budget=oracle))
    results = [result(first, 97.0), *(result(replace(other, seed=seed), 95.0) for seed in range(3))]
    assert [row[0] for row in made(results, "accuracy on the target").rows] == ["AdaMatch"]
    (row,) = made(results, "variants of Oracle").rows
    assert f"images={other.recipe.images}" in str(row[0])
    beside = [*results, result(experiments.oracle(first), 98.0)]
    figure = cell(made(beside, "accuracy on the target"), "Oracle", "UDA")
    assert isinstance(figure, Figure)
    assert (figure.mean, figure.n) == (98.0, 1)


def test_oracles_alone_have_their_own_usual_recipe() -> None:
    alone = [
        experiments.oracle(HARD),
        replace(experiments.oracle(HARD), seed=1),
        experiments.oracle(lower(HARD, tau=0.5)),
    ]
    assert [each.variant for each in figures.cells_of([result(run) for run in alone])] == ["", "", "tau=0.5"]
    beside = figures.cells_of([result(run) for run in (lower(HARD, tau=0.5), *alone)])
    assert [each.variant for each in beside] == ["", f"tau={HARD.recipe.tau}", f"tau={HARD.recipe.tau}", ""]
