"""Ten targets: no warning for five that fit, the right one for each of five that do not; outputs made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from verdict import made

from adamatch.images.checks import SHOWN
from adamatch.verdict import class_shares, mismatch
from adamatch.verdict.eval_outputs import EvalOutputs

CLASSES = tuple("abcdefg")
EVEN = [1.0] * 7
HELD = made.labels(EVEN, 350)
EXPECTED = class_shares.of_labels(HELD, 7)


def run(true: made.Labels, right: float, twin: float, seed: int = 0, sure: float = 6.0) -> EvalOutputs:
    """A network right on such a part, and a twin that errs on its own, as networks do that begin from nothing."""
    source = made.said(HELD, 7, 0.95, seed=1)[None]
    ours, its = (made.said(true, 7, each, seed=seed + n, sure=sure)[None] for n, each in ((20, right), (30, twin)))
    alone = EvalOutputs((10,), its, source, HELD)
    return EvalOutputs((10,), ours, source, HELD, alone, pretrained=False)


def kinds(outputs: EvalOutputs) -> list[str]:
    return [each.kind for each in mismatch.of_outputs(outputs, EXPECTED, CLASSES)]


@pytest.mark.parametrize(
    ("true", "right", "twin"),
    [
        (EVEN, 0.95, 0.9),  # hardly a shift
        (EVEN, 0.85, 0.6),  # one that adaptation bridges
        (EVEN, 0.9, 0.35),  # one that is far, and bridged all the same
        ([3, 2, 2, 1, 1, 1, 1], 0.85, 0.7),  # other frequencies of classes
        ([1, 1, 1, 1, 1, 1, 0.3], 0.6, 0.55),  # a rare class, and adaptation that does little
    ],
)
def test_no_warning_where_all_is_well(true: list[float], right: float, twin: float) -> None:
    for seed in range(5):
        assert kinds(run(made.labels(true, 700, seed=seed), right, twin, seed)) == []


def test_classes_that_the_target_lacks() -> None:
    true = made.labels([1, 1, 1, 0, 1, 0, 1], 700)
    outputs = run(true, 0.97, 0.95)
    (found,) = mismatch.of_outputs(outputs, EXPECTED, CLASSES)
    assert found.kind == "missing"
    assert "no images of d, f:" in found.line
    # the same where alignment has dealt out the target's images to all classes
    dealt = np.where(np.arange(700) % 3 == 0, made.labels(EVEN, 700, seed=4), true)
    aligned = replace(outputs, target=made.said(dealt, 7, 1.0, seed=5)[None])
    (found,) = mismatch.of_outputs(aligned, EXPECTED, CLASSES)
    assert (found.kind, "no images of d, f:" in found.line) == ("missing", True)
    assert set(aligned.last[found.rows].argmax(1)) <= {3, 5}
    assert kinds(replace(run(true, 0.85, 0.8), twin=None)) == []  # what the network names now and then may be there
    assert kinds(replace(outputs, twin=None, target=made.said(true, 7, 1.0)[None])) == ["missing"]
    (found,) = mismatch.of_outputs(run(made.labels([1, 1, 0, 0, 0, 0, 0], 700), 0.98, 0.97), EXPECTED, CLASSES)
    assert "no images of c, d, e, f, g:" in found.line


def test_a_twin_that_knows_little_does_not_say_what_is_missing() -> None:
    """It never names d, and is wrong of most of the others as well, as sure of all."""
    true = made.labels(EVEN, 700)
    outputs = run(true, 0.9, 0.35)
    its = made.said(np.where(true == 3, 4, np.where(np.arange(700) % 2, true, (true + 1) % 3)), 7, 1.0, seed=8)
    assert "missing" not in kinds(made.twins(outputs, its))


def test_a_class_of_which_the_twin_is_unsure_is_not_missing() -> None:
    """The network names d as often as it is there; the twin takes it for others, less sure than it is of those."""
    true = made.labels(EVEN, 700)
    outputs = run(true, 0.95, 0.9)
    for sure, found in ((6.0, ["missing"]), (3.0, [])):
        its = made.said(true, 7, 0.9, seed=30)
        wrong = made.said(np.where(true == 3, (np.arange(700) % 3), true), 7, 1.0, seed=8, sure=sure)
        its[true == 3] = wrong[true == 3]
        its[:, 3] = 0
        assert kinds(made.twins(outputs, its)) == found


def test_half_of_the_classes_are_missing_where_both_networks_waver() -> None:
    """Only a and b are there. The twin gives 30% of the images to the others, alignment 40%, less surely."""
    true, others = made.labels([1, 1, 0, 0, 0, 0, 0], 700), made.labels([0, 0, 1, 1, 1, 1, 1], 700, seed=4)
    outputs, turn = run(true, 0.9, 0.9), np.arange(700)
    dealt = turn % 10 < 4
    its, names = np.where(turn % 10 < 3, others, true), np.where(dealt, others, true)
    outputs = made.twins(outputs, made.said(its, 7, 1.0, seed=8, sure=5.0))
    for sure, found in ((3.0, ["missing"]), (6.0, [])):
        unsure, usual = (made.said(names, 7, 1.0, seed=9, sure=each) for each in (sure, 6.0))
        assert kinds(replace(outputs, target=np.where(dealt[:, None], unsure, usual)[None])) == found


def test_all_of_one_class() -> None:
    true = made.labels([0, 0, 1, 0, 0, 0, 0], 400)
    (found,) = mismatch.of_outputs(run(true, 0.95, 0.9), EXPECTED, CLASSES)
    assert (found.kind, "'c'" in found.line) == ("one class", True)
    dealt = replace(run(true, 0.95, 0.95), target=made.said(made.labels(EVEN, 400), 7, 1.0)[None])
    assert kinds(dealt) == ["one class"]  # alignment hides it, the twin does not
    as_source = np.array([0, 0, 0.97, 0.03, 0, 0, 0])
    assert mismatch.of_outputs(run(true, 0.95, 0.9), as_source, CLASSES) == []


def test_what_was_sure_is_overturned() -> None:
    """The twin is sure of all images; adaptation gives a part of them to the next class: most, or some, unsurely."""
    true = made.labels(EVEN, 700)
    outputs = run(true, 1.0, 1.0)
    for tenths, sure, found in ((6, 6.0, ["overturned"]), (4, 6.0, []), (3, 3.0, ["overturned"]), (1, 3.0, [])):
        names = np.where(np.arange(700) % 10 < tenths, (true + 1) % 7, true)
        renamed = replace(outputs, target=made.said(names, 7, 1.0, sure=sure)[None], pretrained=True)
        warned = mismatch.overturned(renamed, CLASSES)
        assert ([warned.kind] if warned else []) == found
        assert mismatch.overturned(replace(renamed, pretrained=False), CLASSES) is None
    few = made.labels(EVEN, mismatch.ENOUGH - 1)
    turned, small = made.said((few + 1) % 7, 7, 1.0), run(few, 1.0, 1.0)
    mixed = np.where(np.arange(len(few))[:, None] % 2, turned, small.last)
    assert mismatch.overturned(replace(small, target=mixed[None], pretrained=True), CLASSES) is None


def test_images_of_another_kind() -> None:
    """Both say something, and not the same; with a twin that takes most for one class, unsure of it, as well."""
    nothing = made.labels(EVEN, 700, seed=3)
    outputs = run(nothing, 1 / 7, 1 / 7)
    (found,) = mismatch.of_outputs(outputs, EXPECTED, CLASSES)
    assert found.kind == "other kind"
    assert len(found.rows) == SHOWN
    one = made.said(made.labels([1, 1, 30, 1, 1, 1, 1], 700), 7, 1.0, sure=1.5)
    assert kinds(made.twins(outputs, one)) == ["other kind"]


def test_a_target_too_small_to_tell() -> None:
    assert kinds(run(made.labels([1, 1, 1, 0, 1, 1, 1], 60), 0.98, 0.95)) == []
