"""Rules that choose an evaluation or a run, against obvious versions."""

from dataclasses import replace

import numpy as np
import pytest
from verdict import made

from adamatch.verdict import choice
from adamatch.verdict.evidence import Evidence

HELD, TRUE = made.labels([1, 1, 1, 1], 400), made.labels([1, 1, 1, 1], 600, seed=1)
RUN = made.evidence([0.3, 0.6, 0.9, 0.9, 0.6, 0.4, 0.3, 0.3], TRUE, HELD)


def entropy(row: list[float]) -> float:
    return -float(sum(p * np.log(p) for p in row if p > 0))


def test_scores_are_what_their_names_say() -> None:
    target = RUN.target.astype(float)
    assert choice.confidence(RUN) == pytest.approx([np.mean([max(row) for row in rows]) for rows in target], rel=1e-5)
    certain = [-np.mean([entropy(row) for row in rows]) for rows in target.tolist()]
    assert choice.certainty(RUN) == pytest.approx(certain, rel=1e-3)
    spread = [entropy(list(rows.mean(0))) for rows in target]
    assert choice.information(RUN) == pytest.approx(np.array(spread) + certain, rel=1e-3)
    together = target.mean(0).argmax(1)
    assert choice.ensemble(RUN) == pytest.approx([np.mean(rows.argmax(1) == together) for rows in target])
    late = target[4:].mean(0).argmax(1)
    assert choice.ensemble_of_late(RUN) == pytest.approx([np.mean(rows.argmax(1) == late) for rows in target])
    assert choice.source(RUN) == pytest.approx([np.mean(rows.argmax(1) == HELD) for rows in RUN.source])


def test_density_image_by_image() -> None:
    rows = RUN.target[2][:30].astype(float)
    unit = rows / np.sqrt((rows**2).sum(1, keepdims=True))
    expected = []
    for i in range(30):
        weights = np.exp([unit[i] @ unit[j] / choice.SPREAD for j in range(30) if j != i])
        expected.append(entropy(list(weights / weights.sum())))
    assert choice.neighbourhood(rows.astype(np.float32)) == pytest.approx(np.mean(expected), rel=1e-4)


def test_agreement_with_the_ensemble_finds_the_best_moment() -> None:
    assert choice.choose(RUN, "ensemble") in (2, 3)
    assert choice.choose(RUN, "last") == 7


def test_the_beginning_is_not_chosen_and_of_equals_the_later_is() -> None:
    first = made.evidence([0.99, 0.5, 0.5, 0.5], TRUE, HELD)
    for rule in choice.RULES:
        assert choice.choose(first, rule) >= 1
    same = replace(RUN, target=np.stack([RUN.target[2]] * 8), source=np.stack([RUN.source[2]] * 8))
    assert {choice.choose(same, rule) for rule in choice.RULES} == {7}


@pytest.mark.parametrize("rule", list(choice.RULES))
def test_without_held_out_images_every_rule_still_chooses(rule: str) -> None:
    nothing: Evidence = replace(RUN, source=RUN.source[:, :0], held=HELD[:0])
    assert 2 <= choice.choose(nothing, rule) <= 7


def test_among_runs_the_one_that_agrees_with_all() -> None:
    runs = [made.evidence([right], TRUE, HELD) for right in (0.5, 0.9, 0.6)]
    runs = [
        replace(run, target=made.said(TRUE, 4, right, seed=70 + i)[None])
        for i, (run, right) in enumerate(zip(runs, (0.5, 0.9, 0.6), strict=True))
    ]
    assert choice.among(runs).argmax() == 1
    for rule in choice.RULES:
        assert choice.among(runs, rule).shape == (3,)
    # what a run said before its end does not count
    longer = [made.before(run, 0.2 * number) for number, run in enumerate(runs)]
    for rule in choice.RULES:
        assert choice.among(longer, rule) == pytest.approx(choice.among(runs, rule))
