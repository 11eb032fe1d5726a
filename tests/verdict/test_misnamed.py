"""Groups of images under a wrong name: planted, merged, and none where all is well. Outputs made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from verdict import made

from adamatch.verdict import accuracy, class_shares, mismatch, model_selection
from adamatch.verdict.beside_twin import misnamed
from adamatch.verdict.eval_outputs import EvalOutputs

CLASSES = tuple("abcdefg")
RIGHT = [0, 1, 2, 3, 4, 5, 6]
HELD = made.labels([1] * 7, 350)
TRUE = made.labels([1] * 7, 1400, seed=2)


def outputs(ours: made.Floats, twins: made.Floats) -> EvalOutputs:
    source = made.said(HELD, 7, 0.95, seed=1)[None]
    return EvalOutputs((10,), ours[None], source, HELD, EvalOutputs((10,), twins[None], source, HELD))


def run(called: list[int], twin: float = 0.4, seed: int = 0) -> EvalOutputs:
    """A network that calls each class by another's name (`called`), and a twin that is right on such a part."""
    names = np.array(called)[TRUE]
    return outputs(made.said(names, 7, 0.97, seed=20 + seed), made.said(TRUE, 7, twin, seed=30 + seed))


def pairs(outputs: EvalOutputs) -> set[tuple[int, int]]:
    return {(each.likely, each.predicted) for each in misnamed(outputs)}


@pytest.mark.parametrize("twin", [0.95, 0.6, 0.4, 0.3])
def test_groups_are_found_by_a_twin_however_good_it_is(twin: float) -> None:
    for seed in range(5):
        assert pairs(run(RIGHT, twin, seed)) == set()
    assert pairs(run([0, 4, 2, 3, 1, 5, 6], twin)) == {(1, 4), (4, 1)}  # two that changed their names
    (group,) = misnamed(run([0, 1, 1, 3, 4, 5, 6], twin))  # the other keeps its name: it is in the group as well
    assert (group.likely, group.predicted) == (2, 1)
    assert set(TRUE[group.rows[:50]]) <= {1, 2}
    assert (TRUE[group.rows[:50]] == 2).mean() > 0.5  # what the twin is surest of comes first


def test_a_large_group_is_none() -> None:
    """More than half of the images are in it, and so is more than half of the twin's probability of any class."""
    true = made.labels([12, 1, 1, 1, 1, 1, 1], 1400, seed=3)
    assert pairs(outputs(made.said(true, 7, 0.97, seed=5), made.said(true, 7, 0.3, seed=4))) == set()


def test_a_class_that_has_many_images_has_not_lost_its_name() -> None:
    """A third of all are g, and the twin predicts g mostly among what is a."""
    true, turn = made.labels([4, 1, 1, 1, 1, 1, 5], 1400, seed=3), np.arange(1400)
    its = np.where(true == 0, np.where(turn % 2, 6, 0), np.where(true == 6, turn % 6, true))
    assert pairs(outputs(made.said(true, 7, 1.0, seed=8), made.said(its, 7, 1.0, seed=8))) == set()


def test_a_twin_that_takes_one_class_for_another() -> None:
    """Of what it calls b, somewhat more is c than b; the names are right all the same."""
    turn = np.arange(len(TRUE))
    its = np.where((TRUE == 2) & (turn % 5 < 4), 1, np.where((TRUE == 1) & (turn % 3 == 0), 0, TRUE))
    assert ((its == 1) & (TRUE == 2)).sum() > ((its == 1) & (TRUE == 1)).sum()
    assert pairs(made.twins(run(RIGHT), made.said(its, 7, 1.0, seed=6))) == set()


def test_a_small_group_goes_before_a_large_one_with_more_of_the_class() -> None:
    """All of g are called f. The twin says g of a third of these, and of a sixth of the many a."""
    true, turn = made.labels([12, 1, 1, 1, 1, 1, 2], 1900, seed=3), np.arange(1900)
    its = np.where((true == 6) & (turn % 3 > 0), 1, np.where((true == 0) & (turn % 6 == 0), 6, true))
    assert ((its == 6) & (true == 0)).sum() > ((its == 6) & (true == 6)).sum()
    named = made.said(np.where(true == 6, 5, true), 7, 1.0, seed=5)
    found = pairs(outputs(named, made.said(its, 7, 1.0, seed=4)))
    assert (6, 5) in found
    assert (6, 0) not in found


@given(st.permutations(range(7)))
def test_the_order_of_classes_does_not_matter(order: list[int]) -> None:
    plain = run([0, 1, 1, 3, 4, 6, 5])
    assert plain.twin is not None
    shuffled = outputs(plain.last[:, order], plain.twin.last[:, order])
    found = {(order[likely], order[predicted]) for likely, predicted in pairs(shuffled)}
    assert found == pairs(plain) == {(2, 1), (5, 6), (6, 5)}


def test_a_class_that_nobody_predicts() -> None:
    """Not even the twin: its probability is nothing everywhere."""
    said = made.said(TRUE, 7, 0.4, seed=30)
    said[:, 6] = 0
    assert pairs(made.twins(run([0, 1, 2, 3, 4, 5, 5]), said)) == set()
    assert misnamed(replace(run([0, 1, 1, 3, 4, 5, 6]), twin=None)) == []


def test_it_is_said_with_its_images_and_then_nothing_is_said_at_best() -> None:
    wrong, right = run([0, 1, 1, 3, 4, 5, 6]), run(RIGHT)
    *_, told = mismatch.of_outputs(wrong, class_shares.of_labels(HELD, 7), CLASSES)
    assert told.kind == "wrong name"
    assert "what is called 'b' may be 'c', wholly or in part" in told.line
    assert set(wrong.last[told.rows].argmax(1)) == {1}
    assert mismatch.wrong_name(right, CLASSES) is None
    trusted = [accuracy.is_trusted(each) for each in (wrong, right, replace(right, pretrained=False))]
    assert trusted == [False, True, False]


def test_the_run_with_the_fewest_images_under_a_wrong_name_is_chosen() -> None:
    """And among equals, the surest; however sure one is of wrong names. A group with two likely names counts once."""
    right, other, wrong = run(RIGHT), run(RIGHT, seed=1), run([0, 0, 0, 3, 4, 5, 6])
    less = replace(other, target=other.target**0.5 / (other.target**0.5).sum(-1, keepdims=True))
    scores = model_selection.scores([wrong, less, right], "names")
    assert scores[0] < scores[1] < scores[2]
    assert len(misnamed(wrong)) == 2
    sure = model_selection.scores([wrong, less, right], "certainty") / np.log(7)
    wrongly = model_selection.MISNAMED * (wrong.last.argmax(1) == 0).mean()
    assert scores == pytest.approx(sure - np.array([wrongly, 0, 0]))
    assert model_selection.names(replace(wrong, twin=None)) == pytest.approx(sure[0])
