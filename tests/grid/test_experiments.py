from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from adamatch.base.errors import InputError
from adamatch.config.presets import BUDGETS, recipe
from adamatch.config.run import Run
from adamatch.datasets.benchmarks import BENCHMARKS
from adamatch.grid import experiments
from adamatch.grid.tables import METHODS as NAMES
from adamatch.methods import METHODS


def test_paper_has_exactly_the_2420_runs() -> None:
    runs = list(experiments.paper())
    assert len(runs) == 2420
    assert len({run.id for run in runs}) == 2420
    assert Counter(run.task for run in runs) == {"uda": 80 * 5, "ssda": 80 * 4 * 5, "ssl": 17 * 4 * 5, "oracle": 80}
    assert {run.budget for run in runs} == {"paper"}
    five = {"baseline_bn", "mcd", "noisystudent", "fixmatch+", "adamatch"}
    for suite, pairs, domains in (("digitfive", 20, 5), ("domainnet64", 30, 6), ("domainnet224", 30, 6)):
        mine = [run for run in runs if run.benchmark == suite]
        assert Counter(run.task for run in mine) == {
            "uda": 5 * pairs,
            "ssda": 20 * pairs,
            "ssl": 20 * domains,
            "oracle": pairs,
        }
        for task in ("uda", "ssda"):
            assert {run.method for run in mine if run.task == task} == five
            assert len({(run.source, run.target) for run in mine if run.task == task}) == pairs
        assert {(run.target, run.labels) for run in mine if run.task == "ssl"} == {
            (domain, labels) for domain in BENCHMARKS[suite].domains for labels in (1, 5, 10, 25)
        }
        assert all(run.source != run.target for run in mine)


def test_handwriting_has_seven_methods_three_tasks_three_seeds_and_variants() -> None:
    runs = experiments.load("handwriting")
    usual = {recipe("handwriting", budget) for budget in BUDGETS}
    cells = Counter((run.method, run.task, run.labels) for run in runs if not run.options and run.recipe in usual)
    assert set(cells.values()) == {3}
    six = set(METHODS)
    assert {cell[0] for cell in cells if cell[1] == "uda"} == six
    assert {cell for cell in cells if cell[1] != "uda"} == {
        ("supervised", "oracle", 0),
        *((method, task, labels) for method in six for task in ("ssl", "ssda") for labels in (1, 5)),
    }
    variants = Counter((run.task, run.labels, str(dict(run.options))) for run in runs if run.options)
    assert Counter(task for task, _, _ in variants) == {"uda": 4, "ssda": 2}
    assert set(variants.values()) == {3}
    assert Counter((run.task, run.labels) for run in runs if not run.recipe.repeat) == {("ssda", 1): 3}
    assert Counter((run.method, run.task) for run in runs if run.recipe.strong == "cta") == {("adamatch", "uda"): 3}
    assert len(runs) == 6 * 5 * 3 + 3 + 4 * 3 + 2 * 3 + 3 + 3


def test_digits_has_what_its_tables_need() -> None:
    runs = experiments.load("digits")
    plain = [run for run in runs if run.task == "uda" and run.method == "adamatch" and not run.options]
    assert len({(run.source, run.target) for run in plain}) == 12
    assert {run.seed for run in plain if (run.source, run.target) == ("mnist", "svhn")} == {0, 1, 2, 3, 4, 5}
    same = [run for run in plain if run.recipe == recipe("digitfive", "fast") and run.seed < 3]
    assert Counter((run.source, run.target) for run in same) == dict.fromkeys(
        {(run.source, run.target) for run in plain}, 3
    )
    rivals = {(run.source, run.target) for run in runs if run.task == "uda" and run.method == "fixmatch+"}
    assert rivals == {(run.source, run.target) for run in plain}
    for target in ("svhn", "mnistm"):
        pair = [run for run in runs if (run.source, run.target, run.seed) == ("mnist", target, 0)]
        assert {run.method for run in pair if run.task == "uda"} == set(METHODS)
        assert sum(run.task == "oracle" for run in pair) == 1
        assert sum(bool(run.options) for run in pair if run.task == "uda") == 4
        assert sum(run.recipe.strong == "cutout" for run in pair) == 1
    for task in ("ssl", "ssda"):
        few = {(run.method, run.labels) for run in runs if run.task == task}
        assert few == {(method, labels) for method in ("adamatch", "fixmatch+") for labels in (1, 5, 25)}
    usual = recipe("digitfive", "fast", "ssda")
    assert {(run.method, run.labels) for run in runs if run == replace(run, recipe=usual) and run.task == "ssda"} == few
    assert {run.budget for run in runs} == {"fast"}


def test_few_has_three_seeds_of_each_task_and_the_recipe_of_its_task() -> None:
    runs = experiments.load("few")
    in_every_step = [run for run in runs if run.labels > 1 and run.task == "ssda" and run.recipe.spread == 1]
    assert Counter((run.source, run.labels, run.method) for run in in_every_step) == {("mnist", 5, "adamatch"): 6}
    assert {run.seed for run in in_every_step} == set(range(6))
    runs = [run for run in runs if run not in in_every_step]
    for run in runs:
        assert run == replace(run, recipe=recipe("digitfive", "fast", run.task))
    more = [run for run in runs if run.seed > 2]
    assert {(run.method, run.task, run.target, run.labels, run.seed) for run in more} == {
        ("adamatch", "ssda", "svhn", 5, seed) for seed in (3, 4, 5)
    }
    compared = [run for run in runs if run.options]
    assert Counter((run.task, run.target, run.labels, str(run.options)) for run in compared) == {
        ("ssl", "svhn", 1, "{'threshold': 'classes'}"): 3
    }
    for method, seeds in (("adamatch", 3), ("fixmatch+", 1)):
        plain = [run for run in runs if run.method == method and run.seed < 3 and not run.options]
        mine = Counter((run.task, run.source, run.target, run.labels) for run in plain)
        assert mine == {
            (task, source, target, labels): seeds
            for task, source, target in (("ssl", "", "svhn"), ("ssda", "mnist", "svhn"), ("ssda", "usps", "mnistm"))
            for labels in (1, 5, 25)
        }


def test_ablation_varies_one_thing_at_a_time_on_six_pairs() -> None:
    runs = experiments.load("ablation")
    base = Run(benchmark="domainnet64").recipe
    for pair in experiments.PROTOCOLS:
        mine = [run for run in runs if (run.source, run.target) == pair]
        changed = [
            len(run.options)
            + sum(getattr(run.recipe, name) != getattr(base, name) for name in base.__dataclass_fields__)
            for run in mine
        ]
        assert Counter(changed) == {0: 1, 1: 4 + 3 + 2 + 3 + 2}
    assert len(runs) == 6 * 15


def test_study_changes_little_at_a_time_and_leaves_the_mirror_out() -> None:
    runs = experiments.load("study")
    base = runs[0]
    assert (base.source, base.target, base.recipe.images, base.recipe.mirror) == ("mnist", "svhn", 500_000, False)
    fast = replace(recipe("digitfive", "fast"), images=500_000)
    assert fast in {run.recipe for run in runs}
    for run in runs[1:]:
        changed, others = (
            {key for key, value in asdict(run.recipe).items() if value != asdict(of)[key]} for of in (base.recipe, fast)
        )
        assert min(len(changed), len(others)) <= 3
        assert changed or run.options or run.source != base.source or run.target != base.target
    assert [run.recipe.mirror for run in runs].count(True) == 1


def test_every_method_has_a_name_in_the_tables() -> None:
    assert set(METHODS) | {"oracle"} == set(NAMES)


def test_a_grid_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_grid.py").write_text(
        "from adamatch.config.run import Run\n"
        "def seeds():\n    yield from (Run(source='rendered', target='handwritten', seed=n // 2) for n in range(6))\n"
    )
    assert [run.seed for run in experiments.load("my_grid:seeds")] == [0, 1, 2]  # each once
    assert [run.seed for run in experiments.load("my_grid:seeds", only="-s2-")] == [2]
    assert experiments.short("my_grid:seeds") == "seeds"
    with pytest.raises(InputError, match="no function nothing"):
        experiments.load("my_grid:nothing")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def f(): return None", "has to yield runs"),
        ("def f(): yield 3", "has to yield runs"),
        ("def f(): return []", "has no run"),
        ("f = 3", "has no function f"),
        ("def f(", "cannot be read"),
    ],
)
def test_what_is_no_grid_is_told(code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"grid_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    with pytest.raises(InputError, match=says):
        experiments.load(f"{name}:f")


@pytest.mark.parametrize("name", ["papre", "no_such_module:runs"])
def test_unknown_grids_are_one_line(name: str) -> None:
    with pytest.raises(InputError) as caught:
        experiments.load(name)
    assert "\n" not in str(caught.value)


def test_a_filter_that_leaves_nothing_says_so() -> None:
    with pytest.raises(InputError, match="has 'nothing-like-it' in its name"):
        experiments.load("digits", only="nothing-like-it")
