import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grid.fakes import result

from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.grid import experiments, figures, published
from adamatch.grid.render import Figure, Table, render
from adamatch.grid.tables import tables

HARD = Run(benchmark="digitfive", source="mnist", target="svhn", budget="fast")
EASY = replace(HARD, target="mnistm")
MAIN = "accuracy on the target"


def made(results: list[dict[str, Any]], title: str, detail: bool = False) -> Table:
    (found,) = [table for table in tables(results, detail) if title in table.title]
    return found


def cell(table: Table, row: str, column: str) -> Figure | str:
    (found,) = [each for each in table.rows if each[0] == row]
    return found[list(table.columns).index(column)]


def figure(table: Table, row: str, column: str = "UDA") -> Figure:
    found = cell(table, row, column)
    assert isinstance(found, Figure)
    return found


def of(*grid: tuple[Run, float]) -> list[dict[str, Any]]:
    return [result(run, value) for run, value in grid]


def lower(run: Run, **changes: Any) -> Run:
    return replace(run, recipe=replace(run.recipe, **changes))


def seeds(run: Run, *values: float) -> list[dict[str, Any]]:
    return [result(replace(run, seed=seed), value) for seed, value in enumerate(values)]


def test_mean_and_deviation_over_seeds() -> None:
    values = [90.0, 93.0, 99.0]
    found = figure(made(seeds(HARD, *values), MAIN), "AdaMatch")
    assert found.mean == pytest.approx(94.0)
    assert found.std == pytest.approx(statistics.stdev(values))
    assert (found.n, found.paper, found.wider) == (3, 96.9, False)  # the paper's of this pair


def test_mean_over_pairs_and_its_deviation_is_that_of_the_means() -> None:
    table = made([*seeds(HARD, 80.0, 90.0), *seeds(EASY, 100.0, 94.0)], MAIN)
    found = figure(table, "AdaMatch")
    assert found.mean == pytest.approx(91.0)
    assert found.std == pytest.approx(statistics.stdev([90.0, 92.0]))
    assert found.paper == pytest.approx((96.9 + 99.2) / 2)
    assert "n = 2 seeds, means over up to 2 pairs" in table.notes[0]


def test_uneven_seeds_have_no_deviation_and_pairs_weigh_the_same() -> None:
    found = figure(made([*seeds(HARD, 80.0, 90.0), *seeds(EASY, 100.0)], MAIN), "AdaMatch")
    assert found == Figure(92.5, None, 1, pytest.approx((96.9 + 99.2) / 2))  # type: ignore[arg-type]


def test_several_results_of_a_pair_and_seed_are_their_mean() -> None:
    """Two budgets, say, with the same recipe: a seed weighs as any other."""
    grid = [(HARD, 80.0), (replace(HARD, budget="paper"), 90.0), (replace(HARD, seed=1), 95.0)]
    for ordered in (grid, grid[::-1]):
        found = figure(made(of(*ordered), MAIN), "AdaMatch")
        assert found.mean == pytest.approx(90.0)
        assert found.std == pytest.approx(statistics.stdev([85.0, 95.0]))
        assert found.n == 2


def test_methods_tasks_and_labels_of_one_benchmark() -> None:
    ssl, ssda = replace(HARD, task="ssl", source="", labels=5), replace(HARD, task="ssda", labels=1)
    mcd, oracle = replace(HARD, method="mcd"), experiments.oracle(HARD)
    table = made(of((HARD, 95.0), (mcd, 60.0), (oracle, 97.0), (ssl, 80.0), (ssda, 96.0)), MAIN)
    assert table.columns == ["method", "UDA", "SSL, 5 per class", "SSDA, 1 per class"]
    assert [row[0] for row in table.rows] == ["MCD", "AdaMatch", "Oracle"]
    assert not figure(table, "AdaMatch").best  # of one seed nobody knows how far others would lie from it
    assert figure(table, "MCD") == Figure(60.0, None, 1, 52.1, wider=True)  # the paper's mean over 20 pairs
    assert cell(table, "MCD", "SSL, 5 per class") == "-"
    assert "* the paper's mean over all pairs" in table.notes[0]


def test_several_benchmarks_make_a_table_for_each_task() -> None:
    other = Run(benchmark="domainnet64", source="real", target="sketch")
    found = tables(of((replace(HARD, task="ssda", labels=1), 1.0), (other, 1.0), (HARD, 1.0)))
    assert {table.title: list(table.columns) for table in found} == {
        f"UDA: {MAIN}": ["method", "digitfive", "domainnet64"],
        f"SSDA: {MAIN}": ["method", "digitfive, 1 per class"],
    }


def test_matrix_of_pairs() -> None:
    pairs = [("mnist", "svhn"), ("svhn", "mnist"), ("usps", "svhn")]
    table = made(of(*((replace(HARD, source=s, target=t), 90.0) for s, t in pairs)), "every pair")
    assert table.columns == ["source \\ target", "mnist", "svhn"]
    assert cell(table, "usps", "svhn") == Figure(90.0, None, 1, 96.6)
    assert cell(table, "mnist", "mnist") == "-"


def test_ablation_beside_the_papers() -> None:
    runs = experiments.ablation()
    table = made(
        of(*((run, 20.0 + 5 * (not run.options) - (run.recipe.uratio == 1)) for run in runs)), "variants of AdaMatch"
    )
    rows = [row[0] for row in table.rows]
    assert rows[:6] == [
        "AdaMatch",
        "without random logit interpolation",
        "without distribution alignment",
        "aligned to source labels (ReMixMatch)",
        "without relative confidence threshold",
        "cutout alone as the strong view",
    ]
    assert {"uratio=1", "tau=0.8", "weight_decay=0.0001", "strong=randaugment"} <= set(rows[6:])
    assert cell(table, "AdaMatch", "mean") == Figure(25.0, None, 1, 26.3)
    assert cell(table, "without distribution alignment", "mean") == Figure(20.0, None, 1, 17.7)
    assert cell(table, "uratio=1", "mean") == Figure(24.0, None, 1)
    assert cell(table, "uratio=1", "real -> sketch") == Figure(24.0, None, 1)


def test_variants_stand_beside_the_method_with_the_same_labels_and_seeds() -> None:
    ssda = replace(HARD, task="ssda")
    base = of(*((replace(ssda, labels=labels), value) for labels, value in ((1, 10.0), (5, 70.0), (25, 90.0))))
    table = made(
        [*base, result(replace(ssda, labels=5, options={"align": "none"}), 60.0)],
        "digitfive, SSDA, 5 per class: variants of AdaMatch",
    )
    for name, mean in (("AdaMatch", 70.0), ("without distribution alignment", 60.0)):
        assert (figure(table, name, "mnist -> svhn").mean, figure(table, name, "mnist -> svhn").best) == (mean, False)
    varied = result(replace(HARD, options={"align": "none"}), 75.0)
    found = figure(made([*seeds(HARD, 60.0, 90.0), varied], "variants of AdaMatch"), "AdaMatch", "mnist -> svhn")
    assert (found.mean, found.n) == (60.0, 1)  # of the seed that the variant has


def test_detail_has_images_seconds_and_seeds() -> None:
    results = [result(replace(HARD, seed=seed), 95.0, seconds=100.0 + seed) for seed in range(3)]
    (row,) = made(results, "every cell", detail=True).rows
    assert row[0] == "digitfive UDA mnist -> svhn, AdaMatch"
    assert list(row[2:]) == ["3", f"{HARD.recipe.images:,}", "101"]
    (row,) = made([*results[:2], results[2] | {"at_a_time": 5}], "every cell", detail=True).rows
    assert row[4] == "100, 102 (5 at a time)"  # a mean of the two would be of nothing


def test_evidence_names_a_machine_once_however_many_runs_shared_it() -> None:
    alone = result(HARD) | {"machine": "H200, bf16", "at_a_time": 1}
    shared = result(replace(HARD, seed=1)) | {"machine": "H200, bf16, 5 runs at a time", "at_a_time": 5}
    assert tables([alone, shared])[-1].notes[-1].startswith("Measured on H200, bf16, 1 or 5 runs at a time;")
    assert tables([alone])[-1].notes[-1].startswith("Measured on H200, bf16;")
    resumed = alone | {"machine": "H200, bf16, 7 runs at a time, then H200, bf16, 3 runs at a time", "at_a_time": 7}
    assert tables([resumed])[-1].notes[-1].startswith("Measured on H200, bf16, 7 runs at a time;")


def test_methods_with_different_pairs_are_compared_on_those_that_they_share() -> None:
    third = replace(HARD, target="usps")
    hard_bn, easy_bn = (replace(run, method="baseline_bn") for run in (HARD, EASY))
    results = of((HARD, 60.0), (EASY, 70.0), (third, 80.0), (hard_bn, 90.0), (easy_bn, 40.0))
    summary = made(results, MAIN)
    whole = figure(summary, "AdaMatch")
    assert (round(whole.mean, 6), whole.best, whole.only) == (70.0, False, 0)  # nobody else has all pairs
    assert figure(summary, "BaselineBN") == Figure(65.0, None, 1, 62.5, wider=True, only=2)
    assert "[n]: the mean over n of the pairs; do not compare" in summary.notes[0]
    assert "| BaselineBN | 65.0 (62.5*) [2] |" in render([summary])


@pytest.mark.parametrize(
    ("others", "bold"),
    [((80.0, 82.0), True), ((87.0, 89.0), True), ((88.5, 90.5), False), ((60.0, 100.0), False), ((80.0,), False)],
)
def test_bold_is_a_lead_that_seeds_do_not_explain(others: tuple[float, ...], bold: bool) -> None:
    """AdaMatch has 91 ± 1.4: bold where it leads by more than both deviations, which one seed does not tell."""
    theirs, oracles = replace(HARD, method="fixmatch+"), experiments.oracle(HARD)  # which do not compete
    table = made([*seeds(HARD, 90.0, 92.0), *seeds(theirs, *others), *seeds(oracles, 99.0, 99.0)], MAIN)
    assert [row[0] for row in table.rows if isinstance(row[1], Figure) and row[1].best] == ["AdaMatch"] * bold
    assert ("Bold is what leads" in table.notes[0]) == bold


def test_rendering() -> None:
    best = Figure(97.84, 0.26, 3, 97.8, wider=True, best=True)
    table = Table("a_b & c", ["method", "mnist -> svhn"], [["AdaMatch", best], ["MCD", "-"]], ["n = 3 seeds"])
    assert render([table]) == (
        "### a_b & c\n\n| method | mnist -> svhn |\n| --- | ---: |\n"
        "| AdaMatch | **97.8 ± 0.3** (97.8*) |\n| MCD | - |\n\nn = 3 seeds\n"
    )


def test_results_are_read_from_kept_files_and_run_folders_each_once(tmp_path: Path) -> None:
    other = replace(HARD, seed=1)
    (tmp_path / f"{HARD.name}.json").write_text(json.dumps(result(HARD)))
    for run in (HARD, other):
        (tmp_path / run.name).mkdir()
        (tmp_path / run.name / "result.json").write_text(json.dumps(result(run)))
    (tmp_path / "step.json").write_text("{}")
    of_a_benchmark = {"run": "a name", "accuracy": {"target": 1.0}}
    (tmp_path / "statistics.json").write_text(json.dumps(of_a_benchmark))
    assert sorted(each["id"] for each in figures.read(tmp_path)) == sorted([HARD.id, other.id])
    for content in ("{", json.dumps(result(HARD) | {"id": {"a": 1}})):
        (tmp_path / "broken.json").write_text(content)
        with pytest.raises(InputError, match=r"broken\.json"):
            figures.read(tmp_path)


def test_a_result_of_another_version_is_named() -> None:
    foreign = result(HARD)
    foreign["run"]["recipe"]["colour"] = "blue"
    with pytest.raises(InputError, match="another version of adamatch"):
        tables([foreign])


def test_published_figures_are_found() -> None:
    digits = published.DIGITFIVE
    assert set(digits) == set(experiments.pairs(("mnist", "mnistm", "svhn", "syn", "usps")))
    assert statistics.fmean(digits.values()) == pytest.approx(published.UDA["adamatch"][0], abs=0.06)
    without_syn = [value for pair, value in digits.items() if "syn" not in pair]
    assert statistics.fmean(without_syn) == pytest.approx(97.6, abs=0.06)
    assert published.mean("domainnet224", "ssda", "fixmatch+", 10) == 44.1
    assert published.mean("domainnet64", "ssl", "adamatch", 1) == 8.1
    assert published.mean("handwriting", "uda", "adamatch") is None


def test_generated_domains_have_no_published_figure() -> None:
    table = made(of(*((replace(HARD, source=name), 50.0) for name in ("all", "synthetic_drawn", "usps"))), "every pair")
    assert cell(table, "all", "svhn") == Figure(50.0, None, 1, 97.8, wider=True)
    assert cell(table, "usps", "svhn") == Figure(50.0, None, 1, 96.6)


SSDA5 = replace(HARD, task="ssda", labels=5)
SSDA1 = experiments.with_labels(replace(HARD, labels=1))
BY_RECIPE = experiments.with_labels(SSDA5)
ORACLE = experiments.oracle(HARD)
SSL5 = replace(HARD, task="ssl", source="", labels=5)
EACH_TASK = [HARD, SSL5, BY_RECIPE, SSDA5, lower(SSDA5, repeat=False), lower(BY_RECIPE, target_label_steps=1)]
BY_TAU = [lower(HARD, tau=tau) for tau in (0.8, 0.95)]


@pytest.mark.parametrize(
    ("runs", "variants"),
    [
        # A budget's, however few.
        ([*BY_TAU, replace(BY_TAU[0], seed=1), HARD], ["tau=0.8", "tau=0.95", "tau=0.8", ""]),
        (
            [SSDA1, *(replace(lower(SSDA1, target_labels_from=0.0), seed=seed) for seed in (1, 2))],
            ["", "target_labels_from=0.0", "target_labels_from=0.0"],
        ),
        (
            EACH_TASK,
            [
                "",
                "",
                "",
                "repeat=True, target_labels_from=0.0",
                "target_labels_from=0.0, target_label_steps=1",
                "target_label_steps=1",
            ],
        ),  # has its own
        ([ORACLE, replace(ORACLE, seed=1), lower(ORACLE, tau=0.5)], ["", "", "tau=0.5"]),
        ([lower(HARD, tau=0.5), ORACLE, lower(ORACLE, tau=0.5)], ["", f"tau={HARD.recipe.tau}", ""]),  # that of UDA
    ],
)
def test_the_usual_recipe(runs: list[Run], variants: list[str]) -> None:
    assert [each.variant for each in figures.finished(map(result, runs))] == variants


@pytest.mark.parametrize(("uda", "oracle"), [("paper", "fast"), ("fast", "paper")])
def test_an_oracle_by_another_recipe_does_not_stand_beside_uda(uda: str, oracle: str) -> None:
    """However many oracles there are: it is theirs that has to be the recipe of what they are beside."""
    first = Run(benchmark="digitfive", source="mnist", target="svhn", budget=uda)
    other = experiments.oracle(Run(benchmark="digitfive", source="mnist", target="svhn", budget=oracle))
    results = [result(first, 97.0), *seeds(other, 95.0, 95.0, 95.0)]
    assert [row[0] for row in made(results, MAIN).rows] == ["AdaMatch"]
    (row,) = made(results, "variants of Oracle").rows
    assert f"images={other.recipe.images}" in str(row[0])
    found = figure(made([*results, result(experiments.oracle(first), 98.0)], MAIN), "Oracle")
    assert (found.mean, found.n) == (98.0, 1)


def test_seeds_are_counted_once() -> None:
    runs = [replace(HARD, weights=weights, recipe=HARD.recipe) for weights in ("/a/w.pt", "/b/w.pt")]
    done = figures.finished(map(result, runs))
    assert len({each.variant for each in done}) == 2
    assert figures.figure(done).n == 1
