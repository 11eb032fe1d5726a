from collections import Counter
from pathlib import Path

import pytest

from adamatch import methods, networks
from adamatch.base.errors import InputError
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.datasets.benchmarks import BENCHMARKS
from adamatch.grid import experiments, published
from adamatch.grid.tables import METHODS as NAMES
from adamatch.methods import METHODS


def test_paper_has_exactly_the_2420_runs() -> None:
    runs = list(experiments.paper())
    assert len({run.id for run in runs}) == len(runs) == 2420
    assert Counter(run.task for run in runs) == {"uda": 80 * 5, "ssda": 80 * 4 * 5, "ssl": 17 * 4 * 5, "oracle": 80}
    assert {run.budget for run in runs} == {"paper"}
    five = {"baseline_bn", "mcd", "noisystudent", "fixmatch+", "adamatch"}
    for suite, pairs in (("digitfive", 20), ("domainnet64", 30), ("domainnet224", 30)):
        mine = [run for run in runs if run.benchmark == suite]
        for task in ("uda", "ssda"):
            assert {run.method for run in mine if run.task == task} == five
            assert len({(run.source, run.target) for run in mine if run.task == task}) == pairs
        domains = BENCHMARKS[suite].domains
        ssl = {(run.target, run.labels) for run in mine if run.task == "ssl"}
        assert ssl == {(domain, labels) for domain in domains for labels in (1, 5, 10, 25)}
        assert all(run.source != run.target for run in mine)


def test_the_paper_as_printed_has_the_sum_and_cutout() -> None:
    ours, printed = list(experiments.paper()), list(experiments.paper_as_printed())
    assert len({run.id for run in [*ours, *printed]}) == 2 * 2420
    assert {run.recipe.strong for run in printed} == {"cutout"}
    sums = {run.method for run in printed if run.options == {"source_loss": "sum"}}
    assert sums == {"adamatch", "baseline_bn", "noisystudent", "supervised"}
    net = networks.build("wrn-tiny", 3)
    for run in {run.method: run for run in printed}.values():  # each method takes these options
        methods.build(run.method, classes=3, net=net, recipe=run.recipe, options=run.options)
    assert [run.id for run in experiments.load("paper-as-printed")] == [run.id for run in printed]


def test_first_step_is_few_labels_as_the_paper_has_them() -> None:
    runs = experiments.load("first-step")
    assert [run.id for run in experiments.load("first_step")] == [run.id for run in runs]
    assert len(runs) == 9 + 6 + 3
    papers = [run for run in runs if run.recipe.repeat]
    assert len(papers) == 15
    assert all(run.recipe.target_labels_from == 0 and not run.recipe.simclr_images for run in runs)
    ssda = [run for run in papers if (run.task, run.method) == ("ssda", "adamatch")]
    assert {(run.labels, run.seed) for run in ssda} == {(labels, seed) for labels in (1, 5, 25) for seed in range(3)}
    assert not any(run.options for run in runs)


def test_handwriting_has_seven_methods_three_tasks_three_seeds_and_variants() -> None:
    runs = experiments.load("handwriting")
    base = recipe("handwriting")
    cells = Counter((run.method, run.task, run.labels) for run in runs if not run.options and run.recipe == base)
    assert set(cells.values()) == {3}
    assert cells.keys() >= {(method, task, 1) for method in METHODS for task in ("ssl", "ssda")}
    assert len(runs) == 6 * 5 * 3 + 3 + 4 * 3 + 2 * 3 + 3 + 3


def test_ablation_varies_one_thing_at_a_time_on_six_pairs() -> None:
    runs = experiments.load("ablation")
    base = Run(benchmark="domainnet64").recipe
    for pair in published.ABLATION_PAIRS:
        mine = [run for run in runs if (run.source, run.target) == pair]
        changed = [
            len(run.options)
            + sum(getattr(run.recipe, name) != getattr(base, name) for name in base.__dataclass_fields__)
            for run in mine
        ]
        assert Counter(changed) == {0: 1, 1: 4 + 3 + 2 + 3 + 2}
    assert len(runs) == 6 * 15


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
        ("import adamatch\ndef f(): yield adamatch.Run(method='adamtach')", "did you mean 'adamatch'"),
    ],
)
def test_what_is_no_grid_is_told(code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"grid_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    with pytest.raises(InputError, match=says):
        experiments.load(f"{name}:f")


@pytest.mark.parametrize(
    ("name", "only", "says"),
    [
        ("papre", "", "did you mean 'paper'"),
        ("no_such_module:runs", "", "must lie in this folder"),
        ("digits", "nothing-like-it", "has 'nothing-like-it' in its name"),
    ],
)
def test_unknown_grids_and_filters_are_one_line(name: str, only: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        experiments.load(name, only)
    assert "\n" not in str(caught.value)
