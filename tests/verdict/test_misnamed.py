"""Groups of images under a wrong name: planted, merged, and none where all is well. Outputs made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from verdict import made

from adamatch.verdict import accuracy, choice, mismatch, shares
from adamatch.verdict.evidence import Evidence
from adamatch.verdict.misnamed import misnamed

CLASSES = tuple("abcdefg")
HELD = made.labels([1] * 7, 350)
TRUE = made.labels([1] * 7, 1400, seed=2)


def run(called: list[int], twin: float = 0.4, seed: int = 0) -> Evidence:
    """A network that calls each class by another's name (`called`), and a twin that is right on such a part."""
    source = made.said(HELD, 7, 0.95, seed=1)[None]
    names = np.array(called)[TRUE]
    alone = Evidence((10,), made.said(TRUE, 7, twin, seed=30 + seed)[None], source, HELD)
    return Evidence((10,), made.said(names, 7, 0.97, seed=20 + seed)[None], source, HELD, alone)


def pairs(evidence: Evidence) -> set[tuple[int, int]]:
    return {(each.rather, each.called) for each in misnamed(evidence)}


@pytest.mark.parametrize("twin", [0.95, 0.6, 0.4, 0.3])
def test_no_group_where_names_are_right(twin: float) -> None:
    for seed in range(5):
        assert pairs(run([0, 1, 2, 3, 4, 5, 6], twin, seed)) == set()


def test_a_large_group_is_none() -> None:
    """More than half of the images are in it, and so is more than half of whatever the twin says."""
    true = made.labels([12, 1, 1, 1, 1, 1, 1], 1400, seed=3)
    plain = run([0, 1, 2, 3, 4, 5, 6])
    assert plain.twin is not None
    alone = replace(plain.twin, target=made.said(true, 7, 0.3, seed=4)[None])
    assert pairs(replace(plain, target=made.said(true, 7, 0.97, seed=5)[None], twin=alone)) == set()


def test_a_class_that_has_many_images_has_not_lost_its_name() -> None:
    """A third of all are g, and the twin speaks of g mostly among what is a."""
    true = made.labels([4, 1, 1, 1, 1, 1, 5], 1400, seed=3)
    plain = run([0, 1, 2, 3, 4, 5, 6])
    assert plain.twin is not None
    its = np.where(true == 0, np.where(np.arange(1400) % 2, 6, 0), np.where(true == 6, np.arange(1400) % 6, true))
    both = [made.said(each, 7, 1.0, seed=8)[None] for each in (true, its)]
    assert pairs(replace(plain, target=both[0], twin=replace(plain.twin, target=both[1]))) == set()


def test_a_twin_that_takes_one_class_for_another() -> None:
    """Of what it calls b, somewhat more is c than b; the names are right all the same."""
    plain = run([0, 1, 2, 3, 4, 5, 6])
    assert plain.twin is not None
    its = np.where(
        (TRUE == 2) & (np.arange(len(TRUE)) % 5 < 4),
        1,
        np.where((TRUE == 1) & (np.arange(len(TRUE)) % 3 == 0), 0, TRUE),
    )
    assert ((its == 1) & (TRUE == 2)).sum() > ((its == 1) & (TRUE == 1)).sum()
    assert pairs(replace(plain, twin=replace(plain.twin, target=made.said(its, 7, 1.0, seed=6)[None]))) == set()


@pytest.mark.parametrize("twin", [0.95, 0.6, 0.4, 0.3])
def test_two_classes_that_changed_their_names(twin: float) -> None:
    assert pairs(run([0, 4, 2, 3, 1, 5, 6], twin)) == {(1, 4), (4, 1)}


@pytest.mark.parametrize("twin", [0.95, 0.6, 0.4, 0.3])
def test_a_class_that_is_called_by_anothers_name(twin: float) -> None:
    """The other keeps its name: it is in the group as well."""
    (group,) = misnamed(run([0, 1, 1, 3, 4, 5, 6], twin))
    assert (group.rather, group.called) == (2, 1)
    assert set(TRUE[group.rows[:50]]) <= {1, 2}
    assert (TRUE[group.rows[:50]] == 2).mean() > 0.5  # what the twin is surest of comes first


def test_a_small_group_goes_before_a_large_one_of_which_more_is_said() -> None:
    """All of g are called f. The twin says g of a third of these, and of a sixth of the many a."""
    true = made.labels([12, 1, 1, 1, 1, 1, 2], 1900, seed=3)
    plain, turn = run([0, 1, 2, 3, 4, 5, 6]), np.arange(len(true))
    assert plain.twin is not None
    its = np.where((true == 6) & (turn % 3 > 0), 1, np.where((true == 0) & (turn % 6 == 0), 6, true))
    assert ((its == 6) & (true == 0)).sum() > ((its == 6) & (true == 6)).sum()
    alone = replace(plain.twin, target=made.said(its, 7, 1.0, seed=4)[None])
    named = made.said(np.where(true == 6, 5, true), 7, 1.0, seed=5)[None]
    assert (6, 5) in pairs(replace(plain, target=named, twin=alone))
    assert (6, 0) not in pairs(replace(plain, target=named, twin=alone))


@given(st.permutations(range(7)))
def test_the_order_of_classes_does_not_matter(order: list[int]) -> None:
    plain = run([0, 1, 1, 3, 4, 6, 5])
    assert plain.twin is not None
    shuffled = replace(
        plain, target=plain.target[:, :, order], twin=replace(plain.twin, target=plain.twin.target[:, :, order])
    )
    assert (
        {(order[rather], order[called]) for rather, called in pairs(shuffled)}
        == pairs(plain)
        == {(2, 1), (5, 6), (6, 5)}
    )


def test_a_class_that_nobody_speaks_of() -> None:
    """Not even the twin: its probability is nothing everywhere."""
    plain = run([0, 1, 2, 3, 4, 5, 5])
    assert plain.twin is not None
    said = plain.twin.target.copy()
    said[..., 6] = 0
    assert pairs(replace(plain, twin=replace(plain.twin, target=said))) == set()
    assert misnamed(replace(plain, twin=None)) == []


def test_it_is_said_with_its_images_and_then_nothing_is_said_at_best() -> None:
    wrong, right = run([0, 1, 1, 3, 4, 5, 6]), run([0, 1, 2, 3, 4, 5, 6])
    expected = shares.of_labels(HELD, 7)
    *_, told = mismatch.of_outputs(wrong, expected, CLASSES)
    assert told.kind == "wrong name"
    assert "what is called 'b' may be 'c', wholly or in part" in told.line
    assert set(wrong.last[told.rows].argmax(1)) == {1}
    assert mismatch.wrong_name(right, CLASSES) == []
    assert [accuracy.is_believed(each) for each in (wrong, right, replace(right, started=False))] == [
        False,
        True,
        False,
    ]
    low, high = accuracy.range_of(accuracy.estimates(wrong), accuracy.is_believed(wrong))
    assert low is not None
    assert high is None


def test_among_runs_the_one_with_the_fewest_images_under_a_wrong_name_is_chosen() -> None:
    """And among equals, the surest; however sure one is of wrong names."""
    right, other, wrong = run([0, 1, 2, 3, 4, 5, 6]), run([0, 1, 2, 3, 4, 5, 6], seed=1), run([0, 1, 1, 3, 4, 5, 5])
    less = replace(other, target=other.target**0.5 / (other.target**0.5).sum(-1, keepdims=True))
    scores = choice.among([wrong, less, right], "names")
    assert scores[0] < scores[1] < scores[2]
    sure = (scores - choice.among([wrong, less, right], "certainty") / np.log(7))[0]
    called = np.isin(wrong.last.argmax(1), [1, 5]).mean()
    assert sure == pytest.approx(-choice.WRONG * called)


def test_a_group_with_two_other_names_counts_once() -> None:
    merged = run([0, 0, 0, 3, 4, 5, 6])
    assert {each.called for each in misnamed(merged)} == {0}
    assert len(misnamed(merged)) == 2
    wrong = choice.certainty(merged) / np.log(7) - choice.names(merged)
    assert wrong == pytest.approx(choice.WRONG * (merged.last.argmax(1) == 0).mean())


def test_without_a_twin_names_are_certainty() -> None:
    alone = replace(run([0, 1, 1, 3, 4, 5, 6]), twin=None)
    assert choice.names(alone) == pytest.approx(choice.certainty(alone) / np.log(7))
