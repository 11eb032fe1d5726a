"""The paper's tables and figures, from runs made by hand; slow: from the embedded benchmark's."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grid.fakes import result
from matplotlib.figure import Figure as Picture
from typer.testing import CliRunner

from adamatch.base.errors import InputError
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.grid import draw, experiments, figures, published
from adamatch.grid.commands import app
from adamatch.grid.render import Figure, Table
from adamatch.grid.schedule import run_grid

ROOT = Path(__file__).parents[2]


def evaluated(run: Run, accuracy: float, values: list[float] | None = None) -> dict[str, Any]:
    """A result whose evaluations are evenly over its images."""
    values = values or [accuracy] * 40
    each = run.recipe.images // len(values)
    rows = [{"images": each * (number + 1), "target": value} for number, value in enumerate(values)]
    return result(run, accuracy) | {"evaluations": rows}


def drawn(name: str, results: list[dict[str, Any]]) -> draw.Made:
    return draw.DRAWINGS[name](figures.finished(results))


def tables(name: str, results: list[dict[str, Any]]) -> tuple[list[Table], list[str]]:
    made, missing = drawn(name, results)
    assert isinstance(made, list)
    return made, missing


def row(table: Table, name: str) -> dict[str, Any]:
    (found,) = [each for each in table.rows if each[0] == name]
    return dict(zip(table.columns, found, strict=True))


@pytest.fixture(scope="module")
def paper() -> list[dict[str, Any]]:
    """All of the paper's runs, each with an accuracy of its benchmark and number of labels."""
    return [
        result(run, 50.0 + 10 * published.SUITES.index(run.benchmark) + run.labels + (run.method == "adamatch"))
        for run in experiments.paper()
    ]


def test_uda_and_the_summaries_have_the_papers_numbers_and_averages_beside_ours(paper: list[dict[str, Any]]) -> None:
    (table,), missing = tables("uda", paper)
    assert not missing
    assert [each[0] for each in table.rows] == ["BaselineBN", "MCD", "NoisyStudent", "FixMatch+", "AdaMatch", "Oracle"]
    assert row(table, "MCD")["domainnet64"] == Figure(60.0, None, 1, 14.9)
    for name, papers in (("ssl", published.SSL), ("ssda", published.SSDA)):
        (table,), missing = tables(name, paper)
        assert not missing
        assert len(table.columns) == 1 + 3 * 4 + 1
        found = row(table, "AdaMatch")
        assert found["digitfive, 10 per class"].mean == pytest.approx(61.0)
        assert found["digitfive, 10 per class"].paper == papers["adamatch"][2]
        assert found["Avg"].mean == pytest.approx(61 + 41 / 4)
        assert found["Avg"].paper == papers["adamatch"][-1]


def test_what_is_missing_is_named_and_a_gap_has_no_average(paper: list[dict[str, Any]]) -> None:
    few = [each for each in paper if (each["run"]["benchmark"], each["run"]["task"]) == ("digitfive", "ssda")]
    gone = [each for each in few if (each["run"]["method"], each["run"]["labels"]) == ("mcd", 10)]
    (table,), missing = tables("ssda", [each for each in few if each not in gone[:3]])
    assert missing == ["digitfive SSDA, 10 per class, MCD: 3 of 20 pairs"]
    assert row(table, "MCD")["Avg"].paper is None  # one benchmark's, not the paper's three
    (table,), missing = tables("ssda", [each for each in few if each not in gone])
    assert missing == ["digitfive SSDA, 10 per class, MCD: 20 of 20 pairs"]
    assert row(table, "MCD")["Avg"] == "-"
    made, missing = tables("ssl", [])
    assert not made
    assert len(missing) == 3 * 4 * 5
    assert "domainnet224 SSL, 25 per class, AdaMatch: 6 of 6 domains" in missing


def test_ssl_by_domain_and_every_pair(paper: list[dict[str, Any]]) -> None:
    made, missing = tables("domains", paper)
    assert not missing
    assert len(made) == 3 * 5
    (table,) = [each for each in made if each.title == "digitfive, SSL, AdaMatch"]
    assert list(table.columns) == ["labels", "mnist", "mnistm", "svhn", "syn", "usps"]
    assert [each[0] for each in table.rows] == ["1 per class", "5 per class", "10 per class", "25 per class"]
    assert row(table, "5 per class")["svhn"].mean == 56.0
    made, missing = tables("pairs", paper)
    assert not missing
    assert len(made) == 3 * (5 * 5 + 1)  # UDA and four numbers of labels, and the oracle's


def test_pre_training_is_one_run_looked_at_three_times() -> None:
    """At its end, at a quarter of its images, and at its best."""
    results = []
    for run in experiments.pretraining():
        values = [10.0] * 9 + [30.0] * 10 + [20.0] * 21 if run.weights else None
        results.append(evaluated(run, 20.0 if run.weights else 5.0, values))
    assert len(results) == 30 * 3 * 2
    (table,), missing = tables("pretraining", results)
    assert not missing
    assert [each[0] for each in table.rows] == ["MCD", "FixMatch+", "AdaMatch"]
    for method, name in (("mcd", "MCD"), ("adamatch", "AdaMatch")):
        means = [row(table, name)[column] for column in published.PRETRAINED_COLUMNS]
        assert [each.mean for each in means] == [5.0, 20.0, 10.0, 30.0]  # 2M: the first ten, of which one is 30
        assert [each.paper for each in means] == published.PRETRAINED[method]
    assert row(table, "FixMatch+")["pre-train (8M)"].paper is None  # the paper names it, and has no number of it
    _, missing = tables("pretraining", [each for each in results if each["run"]["method"] != "mcd"])
    assert missing == ["MCD, random init (8M)", "MCD, pre-train (8M)"]


def test_the_best_window_may_be_the_last_one() -> None:
    assert draw.windows([1.0] * 14 + [30.0] * 6)[-1] == 30.0
    assert len(draw.windows([1.0] * 20)) == 11
    assert draw.windows([1.0, 3.0]) == [2.0]


def test_ablation_and_sensitivity_are_of_the_pairs_that_all_have() -> None:
    runs = list(experiments.ablation())
    results = [result(run, 20.0 + 5 * (not run.options)) for run in runs]
    (table,), missing = tables("ablation", results)
    assert not missing
    assert row(table, "AdaMatch")["domainnet64"] == Figure(25.0, None, 1, 26.3)
    assert row(table, "without distribution alignment")["domainnet64"] == Figure(20.0, None, 1, 17.7)
    odd = [each for run, each in zip(runs, results, strict=True) if run.options != {"align": "none"}]
    alone = [result(replace(runs[0], source="real", target="quickdraw"), 90.0)]  # a pair that no variant has
    (table,), missing = tables("ablation", odd + alone)
    assert missing == ["without distribution alignment"]
    assert row(table, "AdaMatch")["domainnet64"].mean == 25.0
    picture, missing = drawn("sensitivity", results)
    assert isinstance(picture, Picture)
    assert not missing
    tau = picture.axes[0].lines[0]
    assert np.array_equal(tau.get_xydata(), [[0.8, 25.0], [0.9, 25.0], [0.95, 25.0]])
    _, missing = drawn("sensitivity", [each for each in results if each["run"]["recipe"]["uratio"] != 5])
    assert missing == ["domainnet64, uratio=5"]


def test_curves_are_of_the_papers_pair_where_there_is_one() -> None:
    results = [evaluated(run, 20.0) for run in experiments.pretraining() if run.source == "sketch"]
    picture, missing = drawn("curves", results)
    assert isinstance(picture, Picture)
    assert not missing
    assert picture.axes[0].get_title() == "sketch -> clipart"
    names = [line.get_label() for line in picture.axes[0].lines]
    assert names[:2] == ["AdaMatch", "AdaMatch, pre-trained"]
    assert len(names) == 6
    other = [each for each in results if each["run"]["target"] == "real" and not each["run"]["weights"]]
    _, missing = drawn("curves", other)
    assert missing == ["AdaMatch, pre-trained", "MCD, pre-trained", "the paper's pair, sketch -> clipart"]


def test_labels_have_a_panel_for_each_benchmark(paper: list[dict[str, Any]]) -> None:
    for task in ("ssl", "ssda"):
        picture, missing = drawn(f"labels-{task}", paper)
        assert isinstance(picture, Picture)
        assert not missing
        counts = [5, 6, 6] if task == "ssl" else [20, 30, 30]
        titles = [f"{name}, {task.upper()}, {n} pairs" for name, n in zip(published.SUITES, counts, strict=True)]
        assert [axis.get_title() for axis in picture.axes] == titles
        solid = [line for line in picture.axes[0].lines if line.get_linestyle() == "-"]
        assert np.array_equal(solid[-1].get_xydata(), [[1, 52.0], [5, 56.0], [10, 61.0], [25, 76.0]])


def test_means_are_over_the_pairs_and_seeds_that_all_have() -> None:
    """A method with an easy pair more, or another seed, is not better for it."""
    hard = Run(benchmark="digitfive", task="ssda", source="mnist", target="svhn", labels=1, budget="fast")
    easy = replace(hard, target="mnistm")
    more = [result(hard, 50.0), result(easy, 99.0), result(replace(hard, method="mcd"), 60.0)]
    picture, _ = drawn("labels-ssda", more)
    assert isinstance(picture, Picture)
    (axis,) = picture.axes
    assert axis.get_title() == "digitfive, SSDA, 1 pair"
    solid = [line for line in axis.lines if line.get_linestyle() == "-"]
    assert [np.asarray(line.get_xydata()).tolist() for line in solid] == [[[1, 60.0]], [[1, 50.0]]]  # MCD's, AdaMatch's
    uda = Run(source="rendered", target="handwritten")
    without = replace(uda, options={"align": "none"})
    (table,), _ = tables("ablation", [result(uda, 90.0), result(replace(uda, seed=1), 10.0), result(without, 80.0)])
    assert row(table, "AdaMatch")["handwriting"].mean == 90.0


def test_the_command_writes_pictures_and_prints_tables(tmp_path: Path) -> None:
    folder = str(ROOT / "results" / "handwriting")
    told = CliRunner().invoke(app, ["draw", "ssda", folder])
    assert "| AdaMatch | **94.5 ± 1.7** | 95.9 ± 0.7 | 95.2 |" in told.output
    assert "missing: handwriting SSDA, 10 per class, AdaMatch: 1 of 1 pairs" in told.output
    told = CliRunner().invoke(app, ["draw", "labels-ssl", folder, "--out", str(tmp_path / "new" / "a.png")])
    assert told.exit_code == 0, told.output
    assert (tmp_path / "new" / "a.png").stat().st_size > 1000
    for words, says in ((["curves", folder], "give --out FILE.png"), (["curve", folder], "did you mean 'curves'")):
        with pytest.raises(InputError, match=says):
            CliRunner().invoke(app, ["draw", *words], catch_exceptions=False)


def embedded(weights: str) -> Iterator[Run]:
    """Real runs of a second each: all that the paper's tables and figures are made of, on the embedded benchmark."""
    short = recipe("handwriting", images=320)  # ten steps
    uda = Run(source="rendered", target="handwritten", recipe=short)
    for method in experiments.METHODS:
        yield replace(uda, method=method)
        for task, labels in itertools.product(("ssl", "ssda"), published.LABELS):
            source = "" if task == "ssl" else "rendered"
            yield replace(uda, task=task, source=source, labels=labels, method=method)
    yield experiments.oracle(uda)
    yield from (replace(uda, options=options) for options in experiments.ABLATIONS)
    for name, values in experiments.SWEEPS.items():
        yield from (experiments.other(uda, **{name: value}) for value in values)
    for method in ("adamatch", "mcd", "fixmatch+"):
        yield experiments.other(replace(uda, method=method, weights=weights), weight_decay=0.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("runs")
    first = next(embedded(""))
    run_grid([first], out, device="cpu")
    run_grid(embedded(str(out / first.name / "model.safetensors")), out, device="cpu")
    return figures.read(out)


def draws_everything(name: str, results: list[dict[str, Any]], out: Path) -> None:
    made, missing = drawn(name, results)
    assert missing == (["the paper's pair, sketch -> clipart"] if name == "curves" else [])
    if isinstance(made, Picture):
        made.savefig(out / "picture.png")
        assert all(axis.lines for axis in made.axes)
    else:
        assert made
        for row in (row for table in made for row in table.rows):
            assert "-" not in row[1:] or name in ("domains", "pairs")  # no run of the other domain


@pytest.mark.parametrize("name", draw.DRAWINGS)
def test_the_runs_of_the_embedded_benchmark_draw_everything(name: str, tmp_path: Path) -> None:
    draws_everything(name, [evaluated(run, 50.0) for run in embedded("weights.safetensors")], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", draw.DRAWINGS)
def test_trained_on_the_embedded_benchmark_it_draws_everything(
    name: str, tmp_path: Path, trained: list[dict[str, Any]]
) -> None:
    draws_everything(name, trained, tmp_path)
