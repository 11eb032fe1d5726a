"""Benchmarks by name, and the problems made of them."""

from pathlib import Path

import numpy as np
import pytest
from published import formats

from adamatch.base.errors import InputError
from adamatch.datasets import benchmarks
from adamatch.datasets.benchmarks import BENCHMARKS
from adamatch.datasets.catalog import SETS

DIGITS = ("mnist", "mnistm", "svhn", "syn", "usps")


def write(path: Path, value: int, count: int, labelled: bool = True) -> None:
    images = np.full((count, 32, 32, 3), value, np.uint8)
    formats.store(path, images, np.arange(count) % 10 if labelled else None, tuple("0123456789"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A DigitFive of 20 training and 10 test images in each domain; an image's pixels tell its domain."""
    root = tmp_path_factory.mktemp("data")
    for number, domain in enumerate(DIGITS):
        for split, count in (("train", 20), ("test", 10)):
            write(root / "digitfive" / domain / f"{split}-32", number, count)
    return root


def test_every_benchmark_reads_a_set_that_can_be_prepared() -> None:
    for name, benchmark in BENCHMARKS.items():
        if name != "handwriting":
            assert benchmark.size in SETS[benchmark.set].sizes
            assert set(benchmark.domains) <= set(SETS[benchmark.set].domains)


def test_a_pair(root: Path) -> None:
    problem = benchmarks.problem("digitfive", task="uda", source="mnist", target="svhn", root=root)
    assert [int(part.max()) for part in problem.labelled[0].parts] == [DIGITS.index("mnist")]
    assert int(problem.unlabelled.parts[0].max()) == DIGITS.index("svhn")
    assert {name: (len(test), int(test.images.max())) for name, test in problem.tests.items()} == {
        "target": (10, DIGITS.index("svhn")),
        "source": (10, DIGITS.index("mnist")),
    }


@pytest.mark.parametrize("task", ["uda", "ssda", "oracle"])
def test_all_domains_but_the_target(task: str, root: Path) -> None:
    problem = benchmarks.problem(
        "digitfive", task=task, source="all", target="svhn", labels=int(task == "ssda"), root=root
    )
    assert [int(part.max()) for part in problem.labelled[0].parts] == [0, 1, 3, 4]
    assert len(problem.labelled[0]) == 80
    assert len(problem.labelled) == (1 if task == "uda" else 2)
    assert list(problem.tests) == ["target"]


def test_one_domain_with_few_labels(root: Path) -> None:
    problem = benchmarks.problem("digitfive", task="ssl", source="", target="usps", labels=2, seed=5, root=root)
    (pool,) = problem.labelled
    assert len(pool) == 20
    assert int(pool.parts[0].max()) == DIGITS.index("usps")
    same = benchmarks.problem("digitfive", task="ssl", source="usps", target="usps", labels=2, seed=5, root=root)
    assert same.chosen == problem.chosen


@pytest.mark.parametrize(("name", "more"), [("stl10", "unlabelled"), ("svhn", "extra")])
def test_without_a_source_further_images_are_unlabelled_ones(name: str, more: str, tmp_path: Path) -> None:
    for value, (split, count) in enumerate({"train": 20, "test": 10, more: 30}.items()):
        write(tmp_path / name / name / f"{split}-32", value, count, labelled=split != "unlabelled")
    problem = benchmarks.problem(name, task="ssl", source="", target=name, labels=1, root=tmp_path)
    assert [(len(part), int(part.max())) for part in problem.unlabelled.parts] == [(20, 0), (30, 2)]
    assert (len(problem.labelled[0]), int(problem.labelled[0].parts[0].max())) == (10, 0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "digitfiv"}, "no benchmark is called 'digitfiv': did you mean 'digitfive'?"),
        ({"source": "minst"}, "no source domain of digitfive is called 'minst': did you mean 'mnist'?"),
        ({"target": "all"}, "no domain of digitfive is called 'all'"),
        ({"source": "svhn"}, "source and target are both 'svhn': choose two domains, or task ssl for one"),
        ({"source": ""}, "task uda needs a target and a source: digitfive has mnist, mnistm"),
        ({"task": "ssl", "labels": 1}, "task ssl has one domain and 'mnist' is a second one: leave source out"),
        ({"task": "ssl", "labels": 1, "source": "", "target": ""}, "task ssl needs a target: digitfive has"),
        ({"root": Path("nowhere")}, "nowhere/digitfive/svhn/test-32 does not exist"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(given: dict[str, str], says: str, root: Path) -> None:
    asked = {"name": "digitfive", "task": "uda", "source": "mnist", "target": "svhn", "root": root} | given
    with pytest.raises(InputError) as error:
        benchmarks.problem(**asked)  # type: ignore[arg-type]
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_handwriting_needs_no_data() -> None:
    train = benchmarks.load("handwriting", "handwritten", "train", Path("nowhere"))
    test = benchmarks.load("handwriting", "handwritten", "test", Path("nowhere"))
    assert (len(train), len(test), train.size) == (1297, 500, BENCHMARKS["handwriting"].size)
    assert train.classes == test.classes == tuple("0123456789")
