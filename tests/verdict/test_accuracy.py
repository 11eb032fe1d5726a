"""The range of the accuracy, and the gain."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verdict import made

from adamatch.verdict import accuracy, calibrated, eval_outputs

HELD, TRUE = made.labels([1, 1, 1, 1], 400), made.labels([1, 1, 1, 1], 1000, seed=1)
RUN = made.outputs([0.5, 0.6, 0.7, 0.8], TRUE, HELD)
TWIN = replace(made.outputs([0.4, 0.55], TRUE, HELD), target=np.stack([made.said(TRUE, 4, 0.55, seed=90)] * 2))
BOTH = made.beside(RUN, TWIN)
NOTHING_HELD = replace(BOTH, source=RUN.source[:, :0], source_labels=HELD[:0])


def test_agreement_with_the_twin() -> None:
    pairs = zip(RUN.target[-1].tolist(), TWIN.target[-1].tolist(), strict=True)
    share = sum(a.index(max(a)) == b.index(max(b)) for a, b in pairs) / 1000
    on_source = (RUN.source[-1].argmax(1) == HELD).mean()
    assert accuracy.at_least(BOTH) == pytest.approx(share * on_source)


def test_what_is_not_known_is_not_estimated() -> None:
    assert accuracy.at_least(RUN) is None
    assert accuracy.at_best(NOTHING_HELD) is None
    assert accuracy.range_of(NOTHING_HELD) is None
    assert accuracy.gain(RUN) is accuracy.gain(NOTHING_HELD) is None


def test_the_range_holds_the_truth_here_and_the_gain_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "WIDEST", 0.6)
    told = accuracy.range_of(BOTH)
    assert told is not None
    assert told[0] < 0.8 < told[1] + 0.05
    gained = accuracy.gain(BOTH)
    assert gained is not None
    assert 0.05 < gained < 0.35


@pytest.mark.parametrize(("pretrained", "estimate"), [(True, calibrated.difference), (False, calibrated.transport)])
def test_the_gain_is_by_what_suits_the_networks_start(pretrained: bool, estimate: Any) -> None:
    ours, theirs = (estimate(each.last, each.source[-1], HELD) for each in (RUN, TWIN))
    assert accuracy.gain(replace(BOTH, pretrained=pretrained)) == ours - theirs


def test_the_gain_is_no_more_than_what_differs() -> None:
    sure = np.where(RUN.last == RUN.last.max(1, keepdims=True), 0.97, 0.01).astype(np.float32)  # the same predictions
    same = replace(RUN.at(-1), target=np.stack([sure]))
    ours, theirs = (accuracy.from_confidence(calibrated.difference, each) for each in (RUN, same))
    assert ours is not None
    assert theirs is not None
    assert abs(ours - theirs) > 0.02
    assert accuracy.gain(made.beside(RUN, same)) == 0


def test_of_a_class_without_a_held_out_image_the_gain_from_scratch_is_not_known() -> None:
    some = HELD < 3
    fewer = [replace(each, source=each.source[:, some], source_labels=HELD[some]) for each in (RUN, TWIN)]
    assert accuracy.gain(replace(made.beside(*fewer), pretrained=False)) is None
    assert accuracy.gain(made.beside(*fewer)) is not None


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [(0.5, 0.9, (0.5, 0.9)), (0.95, 0.9, (0.9, 0.9)), (0.45, 0.9, None), (None, 0.9, None), (0.5, None, None)],
)
def test_a_range_is_told_if_it_is_narrow_and_known(
    low: float | None, high: float | None, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accuracy, "at_least", lambda _: low)
    monkeypatch.setattr(accuracy, "at_best", lambda _: high)
    assert accuracy.range_of(BOTH) == told
    assert accuracy.range_of(replace(BOTH, pretrained=False)) is None
    few = np.arange(accuracy.ENOUGH - 1)
    assert accuracy.range_of(replace(BOTH, source=BOTH.source[:, few], source_labels=HELD[few])) is None


@pytest.mark.parametrize(("weights", "pretrained"), [("", False), ("imagenet", True)])
def test_a_run_says_whether_it_began_from_learned_weights(weights: str, pretrained: bool, tmp_path: Path) -> None:
    made.kept(tmp_path, RUN, weights=weights)
    found = eval_outputs.read(tmp_path)
    assert found is not None
    assert found.pretrained is pretrained


def test_a_twin_on_other_images_is_none() -> None:
    assert RUN.with_twin(TWIN).twin is TWIN
    assert RUN.with_twin(made.outputs([0.5], TRUE[:10], HELD)).twin is None
    assert RUN.with_twin(made.outputs([0.5], TRUE, HELD[:3])).twin is None  # other held-out ones
