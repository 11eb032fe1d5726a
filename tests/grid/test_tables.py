import csv
import io
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


def made(results: list[dict[str, Any]], title: str, detail: bool = False) -> Table:
    (found,) = [table for table in tables(results, detail) if title in table.title]
    return found


def cell(table: Table, row: str, column: str) -> Figure | str:
    (found,) = [each for each in table.rows if each[0] == row]
    return found[list(table.columns).index(column)]


def test_mean_and_spread_over_seeds() -> None:
    values = [90.0, 93.0, 99.0]
    results = [result(replace(HARD, seed=seed), value) for seed, value in enumerate(values)]
    figure = cell(made(results, "accuracy on the target"), "AdaMatch", "UDA")
    assert isinstance(figure, Figure)
    assert figure.mean == pytest.approx(94.0)
    assert figure.std == pytest.approx(statistics.stdev(values))
    assert figure.n == 3
    assert figure.paper == 96.9  # of this pair
    assert not figure.wider


def test_mean_over_pairs_and_its_spread_is_that_of_the_means() -> None:
    other = replace(HARD, target="mnistm")
    grid = [(HARD, 0, 80.0), (HARD, 1, 90.0), (other, 0, 100.0), (other, 1, 94.0)]
    table = made([result(replace(run, seed=seed), value) for run, seed, value in grid], "accuracy on the target")
    figure = cell(table, "AdaMatch", "UDA")
    assert isinstance(figure, Figure)
    assert figure.mean == pytest.approx(91.0)
    assert figure.std == pytest.approx(statistics.stdev([90.0, 92.0]))
    assert figure.paper == pytest.approx((96.9 + 99.2) / 2)
    assert "n = 2 seeds, means over up to 2 pairs" in table.notes[0]


def test_uneven_seeds_have_no_spread_and_pairs_weigh_the_same() -> None:
    grid = [(HARD, 80.0), (replace(HARD, seed=1), 90.0), (replace(HARD, target="mnistm"), 100.0)]
    figure = cell(made([result(run, value) for run, value in grid], "accuracy on the target"), "AdaMatch", "UDA")
    assert figure == Figure(92.5, None, 1, pytest.approx((96.9 + 99.2) / 2))  # type: ignore[arg-type]


def test_several_results_of_a_pair_and_seed_are_their_mean() -> None:
    """Two budgets, say, with the same recipe: mean and spread are of the same figures, and a seed weighs as any other."""
    grid = [(HARD, 80.0), (replace(HARD, budget="paper"), 90.0), (replace(HARD, seed=1), 95.0)]
    for ordered in (grid, grid[::-1]):
        figure = cell(made([result(run, value) for run, value in ordered], "accuracy on the target"), "AdaMatch", "UDA")
        assert isinstance(figure, Figure)
        assert figure.mean == pytest.approx(90.0)
        assert figure.std == pytest.approx(statistics.stdev([85.0, 95.0]))
        assert figure.n == 2


def test_methods_tasks_and_labels_of_one_benchmark() -> None:
    grid = [
        (HARD, 95.0),
        (replace(HARD, method="mcd"), 60.0),
        (experiments.oracle(HARD), 97.0),
        (replace(HARD, task="ssl", source="", labels=5), 80.0),
        (replace(HARD, task="ssda", labels=1), 96.0),
    ]
    table = made([result(run, value) for run, value in grid], "accuracy on the target")
    assert table.columns == ["method", "UDA", "SSL, 5 per class", "SSDA, 1 per class"]
    assert [row[0] for row in table.rows] == ["MCD", "AdaMatch", "Oracle"]
    best = cell(table, "AdaMatch", "UDA")
    mcd = cell(table, "MCD", "UDA")
    assert isinstance(best, Figure)
    assert isinstance(mcd, Figure)
    assert not best.best  # of one seed nobody knows how far others would lie from it
    assert (mcd.paper, mcd.wider) == (52.1, True)  # the paper's mean over 20 pairs beside one pair of ours
    assert cell(table, "MCD", "SSL, 5 per class") == "-"
    assert "* the paper's mean over all pairs" in table.notes[0]


def test_several_benchmarks_make_a_table_for_each_task() -> None:
    grid = [HARD, Run(benchmark="domainnet64", source="real", target="sketch"), replace(HARD, task="ssda", labels=1)]
    titles = {table.title: list(table.columns) for table in tables([result(run) for run in grid])}
    assert titles == {
        "UDA: accuracy on the target": ["method", "digitfive", "domainnet64"],
        "SSDA: accuracy on the target": ["method", "digitfive, 1 per class"],
    }


def test_matrix_of_pairs() -> None:
    pairs = [("mnist", "svhn"), ("svhn", "mnist"), ("usps", "svhn")]
    table = made([result(replace(HARD, source=s, target=t), 90.0) for s, t in pairs], "every pair")
    assert table.columns == ["source \\ target", "mnist", "svhn"]
    assert cell(table, "usps", "svhn") == Figure(90.0, None, 1, 96.6)
    assert cell(table, "mnist", "mnist") == "-"


def test_ablation_beside_the_papers() -> None:
    results = []
    for run in experiments.ablation():
        results.append(result(run, 20.0 + 5 * (not run.options) - (run.recipe.uratio == 1)))
    table = made(results, "variants of AdaMatch")
    rows = [row[0] for row in table.rows]
    assert rows[:5] == [
        "AdaMatch",
        "without random logit interpolation",
        "without distribution alignment",
        "aligned to source labels (ReMixMatch)",
        "without relative confidence threshold",
    ]
    assert rows[5] == "cutout alone as the strong view"
    assert {"uratio=1", "tau=0.8", "weight_decay=0.0001", "strong=randaugment"} <= set(rows[6:])
    assert cell(table, "AdaMatch", "mean") == Figure(25.0, None, 1, 26.3)
    assert cell(table, "without distribution alignment", "mean") == Figure(20.0, None, 1, 17.7)
    assert cell(table, "uratio=1", "mean") == Figure(24.0, None, 1)
    assert cell(table, "uratio=1", "real -> sketch") == Figure(24.0, None, 1)


def test_a_variant_has_the_same_name_for_every_method() -> None:
    run = replace(HARD, task="ssda", labels=1, method="fixmatch+")
    table = made([result(run, 30.0), result(experiments.never_twice(run), 40.0)], "variants of FixMatch+")
    assert [row[0] for row in table.rows] == ["FixMatch+", "no labelled image twice in a step (repeat=False)"]


def test_detail_has_images_seconds_and_seeds() -> None:
    results = [result(replace(HARD, seed=seed), 95.0, seconds=100.0 + seed) for seed in range(3)]
    table = made(results, "every cell", detail=True)
    (row,) = table.rows
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
    easy, third = replace(HARD, target="mnistm"), replace(HARD, target="usps")
    hard_bn, easy_bn = replace(HARD, method="baseline_bn"), replace(easy, method="baseline_bn")
    grid = [(HARD, 60.0), (easy, 70.0), (third, 80.0), (hard_bn, 90.0), (easy_bn, 40.0)]
    results = [result(run, value) for run, value in grid]
    summary = made(results, "accuracy on the target")
    whole = cell(summary, "AdaMatch", "UDA")
    assert isinstance(whole, Figure)
    assert (round(whole.mean, 6), whole.best, whole.only) == (70.0, False, 0)  # nobody else has all pairs
    assert cell(summary, "BaselineBN", "UDA") == Figure(65.0, None, 1, 62.5, wider=True, only=2)
    assert "[n]: the mean over n of the pairs; do not compare" in summary.notes[0]
    assert "| BaselineBN | 65.0 (62.5*) [2] |" in render([summary])
    table = made(results, "methods on the same pairs")
    assert table.columns == ["method", "mnist -> mnistm", "mnist -> svhn"]
    assert [row[0] for row in table.rows] == ["BaselineBN", "AdaMatch"]
    for method, target, mean in (
        ("AdaMatch", "svhn", 60.0),
        ("BaselineBN", "svhn", 90.0),
        ("AdaMatch", "mnistm", 70.0),
    ):
        figure = cell(table, method, f"mnist -> {target}")
        assert isinstance(figure, Figure)
        assert (figure.mean, figure.only) == (mean, 0)
    titles = [each.title for each in tables([*results, result(replace(third, method="baseline_bn"))])]
    assert not any("same pairs" in title for title in titles)  # all have all: the summary says it


def test_as_many_pairs_need_not_be_the_same_pairs() -> None:
    other = replace(HARD, target="mnistm", method="baseline_bn")
    grid = [(HARD, 60.0), (replace(HARD, seed=1), 60.1), (other, 98.0), (replace(other, seed=1), 98.1)]
    table = made([result(run, value) for run, value in grid], "accuracy on the target")
    for method in ("AdaMatch", "BaselineBN"):
        figure = cell(table, method, "UDA")
        assert isinstance(figure, Figure)
        assert (figure.only, figure.best) == (1, False)


def test_formats() -> None:
    figure = Figure(97.84, 0.26, 3, 97.8, wider=True, best=True)
    table = Table("a_b & c", ["method", "mnist -> svhn"], [["AdaMatch", figure], ["MCD", "-"]], ["n = 3 seeds"])
    assert render([table], "md") == (
        "### a_b & c\n\n| method | mnist -> svhn |\n| --- | ---: |\n"
        "| AdaMatch | **97.8 ± 0.3** (97.8*) |\n| MCD | - |\n\nn = 3 seeds\n"
    )
    latex = render([table], "latex")
    assert r"AdaMatch & \textbf{97.8 $\pm$ 0.3} (97.8*) \\" in latex
    assert r"\caption{a\_b \& c. n = 3 seeds}" in latex
    assert r"mnist $\rightarrow$ svhn" in latex
    (row, again) = csv.DictReader(io.StringIO(render([table, table], "csv")))  # one header for all, and figures alone
    assert again == row
    assert (float(row["mean"]), float(row["spread"]), row["n"], row["paper"]) == (97.84, 0.26, "3", "97.8")
    with pytest.raises(InputError, match="latex"):
        render([table], "tex")


def test_results_are_read_from_kept_files_and_run_folders_each_once(tmp_path: Path) -> None:
    other = replace(HARD, seed=1)
    (tmp_path / f"{HARD.name}.json").write_text(json.dumps(result(HARD)))
    for run in (HARD, other):
        (tmp_path / run.name).mkdir()
        (tmp_path / run.name / "result.json").write_text(json.dumps(result(run)))
    (tmp_path / "step.json").write_text("{}")
    (tmp_path / "statistics.json").write_text(
        json.dumps({"run": "a name", "accuracy": {"target": 1.0}})
    )  # of a benchmark
    assert sorted(each["id"] for each in figures.read(tmp_path)) == sorted([HARD.id, other.id])
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(InputError, match=r"broken\.json"):
        figures.read(tmp_path)


def test_published_figures_agree_with_themselves() -> None:
    """Means that the paper prints beside the figures, or that follow from them."""
    averages = {"baseline_bn": (36.0, 49.7), "mcd": (30.0, 40.9), "noisystudent": (41.0, 47.9)}
    averages |= {"fixmatch+": (46.3, 56.9), "adamatch": (48.4, 60.1)}
    for method, (ssl, ssda) in averages.items():
        assert statistics.fmean(published.SSL[method]) == pytest.approx(ssl, abs=0.06)
        assert statistics.fmean(published.SSDA[method]) == pytest.approx(ssda, abs=0.06)
    pairs = experiments.pairs(("mnist", "mnistm", "svhn", "syn", "usps"))
    digits = {pair: published.pair("digitfive", "uda", "adamatch", *pair) or 0 for pair in pairs}
    assert statistics.fmean(digits.values()) == pytest.approx(published.UDA["adamatch"][0], abs=0.06)
    assert statistics.fmean(value for pair, value in digits.items() if "syn" not in pair) == pytest.approx(
        97.6, abs=0.06
    )
    assert published.mean("domainnet224", "ssda", "fixmatch+", 10) == 44.1
    assert published.mean("domainnet64", "ssl", "adamatch", 1) == 8.1
    assert published.mean("handwriting", "uda", "adamatch") is None


def test_variants_stand_beside_the_method_with_the_same_labels_and_seeds() -> None:
    ssda = replace(HARD, task="ssda")
    base = [result(replace(ssda, labels=labels), value) for labels, value in ((1, 10.0), (5, 70.0), (25, 90.0))]
    varied = result(replace(ssda, labels=5, options={"align": "none"}), 60.0)
    table = made([*base, varied], "variants of AdaMatch")
    assert table.title == "digitfive, SSDA, 5 per class: variants of AdaMatch"
    shown = [cell(table, name, "mnist -> svhn") for name in ("AdaMatch", "without distribution alignment")]
    assert [(each.mean, each.best) for each in shown if isinstance(each, Figure)] == [(70.0, False), (60.0, False)]
    seeds = [result(replace(HARD, seed=seed), value) for seed, value in ((0, 60.0), (1, 90.0))]
    table = made([*seeds, result(replace(HARD, options={"align": "none"}), 75.0)], "variants of AdaMatch")
    figure = cell(table, "AdaMatch", "mnist -> svhn")
    assert isinstance(figure, Figure)
    assert (figure.mean, figure.n) == (60.0, 1)  # of the seed that the variant has


def test_a_budgets_recipe_is_the_usual_one_however_few_have_it() -> None:
    others = [replace(HARD, recipe=replace(HARD.recipe, tau=tau)) for tau in (0.8, 0.95)]
    others.append(replace(others[0], seed=1))
    done = figures.finished([result(run) for run in (*others, HARD)])
    assert [each.variant for each in done] == ["tau=0.8", "tau=0.95", "tau=0.8", ""]


def test_one_label_per_class_has_a_budgets_recipe_though_nothing_is_spread() -> None:
    usual = experiments.with_labels(replace(HARD, labels=1))
    others = [replace(usual, seed=seed, recipe=replace(usual.recipe, late=0.0)) for seed in (1, 2)]
    done = figures.finished([result(run) for run in (usual, *others)])
    assert [each.variant for each in done] == ["", "late=0.0", "late=0.0"]


def test_each_task_has_its_usual_recipe() -> None:
    first = replace(HARD, task="ssda", labels=5)
    runs = [
        HARD,
        replace(HARD, task="ssl", source="", labels=5),
        experiments.with_labels(first),
        first,
        experiments.never_twice(first),
        experiments.not_spread(experiments.with_labels(first)),
    ]
    done = figures.finished([result(run) for run in runs])
    assert [each.variant for each in done] == ["", "", "", "repeat=True, late=0.0", "late=0.0, spread=1", "spread=1"]


def test_generated_domains_have_no_published_figure() -> None:
    table = made([result(replace(HARD, source=name)) for name in ("all", "synthetic_drawn", "usps")], "every pair")
    assert cell(table, "all", "svhn") == Figure(50.0, None, 1, 97.8, wider=True)
    assert cell(table, "usps", "svhn") == Figure(50.0, None, 1, 96.6)


@pytest.mark.parametrize(
    ("others", "bold"),
    [((80.0, 82.0), True), ((87.0, 89.0), True), ((88.5, 90.5), False), ((60.0, 100.0), False), ((80.0,), False)],
)
def test_bold_is_a_lead_that_seeds_do_not_explain(others: tuple[float, ...], bold: bool) -> None:
    """AdaMatch has 91 ± 1.4: bold where it leads by more than both deviations together, which one seed does not tell."""
    ours = [result(replace(HARD, seed=seed), value) for seed, value in enumerate((90.0, 92.0))]
    theirs = [result(replace(HARD, method="fixmatch+", seed=seed), value) for seed, value in enumerate(others)]
    oracle = [result(replace(experiments.oracle(HARD), seed=seed), 99.0) for seed in range(2)]  # it does not compete
    table = made([*ours, *theirs, *oracle], "accuracy on the target")
    assert [row[0] for row in table.rows if isinstance(row[1], Figure) and row[1].best] == ["AdaMatch"] * bold
    assert ("Bold is what leads" in table.notes[0]) == bold


def test_pre_training_beside_the_papers() -> None:
    runs = list(experiments.pre_trained())
    assert len(runs) == 30 * 2 * 3
    assert {run.recipe.weight_decay for run in runs if run.weights} == {0.0}
    assert {run.recipe.stop for run in runs if run.weights} == {0, 2 * 2**20}
    results = []
    for run in runs:
        accuracy = (20.0 if run.weights else 10.0) + (run.method == "adamatch") + 5 * bool(run.recipe.stop)
        evaluations = [{"target": value} for value in [1.0] * 10 + [30.0] * 9 + [0.0] * 10]
        results.append(result(run, accuracy) | {"evaluations": evaluations})
    table = made(results, "pre-training")
    assert [row[0] for row in table.rows] == ["MCD", "AdaMatch"]
    assert [row[1:] for row in table.rows] == [
        [Figure(value, None, 1, paper) for value, paper in zip(values, papers, strict=True)]
        for values, papers in (
            ((10.0, 20.0, 25.0, 30.0), published.PRETRAINED["mcd"]),
            ((11.0, 21.0, 26.0, 30.0), published.PRETRAINED["adamatch"]),
        )
    ]
    few = made([each for each in results if each["run"]["source"] == "real"], "pre-training")
    assert all(isinstance(each, Figure) and each.wider for each in few.rows[0][1:])
    scratch = [each for each in results if not each["run"]["weights"]]
    assert not any("pre-training" in table.title for table in tables(scratch))


def test_a_result_of_another_form_stands_among_the_variants() -> None:
    ssda = replace(HARD, task="ssda", labels=1)
    table = made([result(replace(ssda, form=0), 30.0), result(ssda, 60.0)], "variants of AdaMatch")
    assert [row[0] for row in table.rows] == ["AdaMatch", "as it was before a correction (form=0)"]


def test_the_best_needs_another_to_be_better_than() -> None:
    easy = replace(HARD, target="mnistm")
    grid = [(HARD, 90.0), (easy, 95.0), (replace(HARD, method="fixmatch+"), 97.0)]
    table = made([result(run, value) for run, value in grid], "accuracy on the target")
    assert not any(each.best for row in table.rows for each in row if isinstance(each, Figure))


def test_seeds_are_counted_once() -> None:
    runs = [replace(HARD, weights=weights, recipe=HARD.recipe) for weights in ("/a/w.pt", "/b/w.pt")]
    done = figures.finished([result(run) for run in runs])
    assert len({each.variant for each in done}) == 2
    assert figures.figure(done).n == 1


def test_a_result_of_another_version_is_named() -> None:
    foreign = result(HARD)
    foreign["run"]["recipe"]["colour"] = "blue"
    with pytest.raises(InputError, match="another version of adamatch"):
        tables([foreign])
