"""Every published number, against the paper's own source where ADAMATCH_PAPER names it."""

import os
import re
import statistics
from pathlib import Path

import pytest

from adamatch.grid import published
from adamatch.grid.tables import METHODS

PAPER = os.environ.get("ADAMATCH_PAPER", "")
WITHOUT = {
    "w/o random logit interpolation": "interpolate=False",
    "w/o distribution alignment": "align=none",
    "w/o relative confidence threshold": "threshold=fixed",
    "AdaMatch": "",
}


@pytest.fixture(scope="module")
def paper() -> str:
    if not PAPER:
        pytest.skip("ADAMATCH_PAPER does not name the paper's source")
    return Path(PAPER).read_text()


def rows(paper: str, label: str) -> dict[str, list[float]]:
    """The numbers of the table with this label, by the first words of their rows."""
    before = paper[: paper.index(rf"\label{{{label}}}")]
    body = before[before.rindex(r"\begin{tabular}") : before.rindex(r"\end{tabular}")]
    found = {}
    for line in body.split(r"\\"):
        name, *cells = re.sub(r"\\(midrule|bottomrule|toprule|hline)|\\textbf|[{}]", "", line).split("&")
        values = [float(cell) for cell in cells if re.fullmatch(r"\s*\d+\.\d\s*", cell)]
        if values:
            found[name.strip()] = values
    return found


@pytest.mark.parametrize("task", ["uda", "ssl", "ssda"])
def test_summaries_are_the_papers(paper: str, task: str) -> None:
    ours = getattr(published, task.upper())
    assert rows(paper, f"tab:{task}_summary") == {METHODS[method]: values for method, values in ours.items()}


def test_pre_training_and_ablation_are_the_papers(paper: str) -> None:
    theirs = rows(paper, "tab:pretraining")
    assert theirs == {METHODS[method]: values for method, values in published.PRETRAINED.items()}
    found = rows(paper, "tab:ablation_exclude_one_out")
    assert {WITHOUT[name]: value for name, (value,) in found.items()} == published.ABLATION


def test_the_six_pairs_are_the_papers(paper: str) -> None:
    named = re.search(r"The 6 protocols include (.*?)\.\}", paper)
    assert named
    pairs = re.findall(r"(\w+)\$\\rightarrow\$(\w+)", named[1])
    assert tuple(pairs) == published.ABLATION_PAIRS


def test_numbers_agree_with_each_other() -> None:
    """Of what stands twice in the paper, and of its means, without its source."""
    for table in (published.SSL, published.SSDA):
        for method, (*values, average) in table.items():
            assert len(values) == len(published.SUITES) * len(published.LABELS)
            assert average == pytest.approx(statistics.fmean(values), abs=0.051), method
    for method, (scratch, *_) in published.PRETRAINED.items():
        assert scratch == published.UDA[method][2]
    assert len(published.DIGITFIVE) == 20
    assert statistics.fmean(published.DIGITFIVE.values()) == pytest.approx(published.UDA["adamatch"][0], abs=0.05)
    assert published.accuracy("domainnet224", "uda", "adamatch", 0, []) == (28.7, True)
