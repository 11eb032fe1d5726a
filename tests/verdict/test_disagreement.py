"""Estimates from disagreement, the range and the gain."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from verdict import made

from adamatch.verdict import accuracy, calibrated, disagreement, eval_outputs

HELD, TRUE = made.labels([1, 1, 1, 1], 400), made.labels([1, 1, 1, 1], 1000, seed=1)
RUN = made.outputs([0.5, 0.6, 0.7, 0.8], TRUE, HELD)
TWIN = replace(made.outputs([0.4, 0.55], TRUE, HELD), target=np.stack([made.said(TRUE, 4, 0.55, seed=90)] * 2))
BOTH = made.beside(RUN, TWIN)
NOTHING_HELD = replace(BOTH, source=RUN.source[:, :0], source_labels=HELD[:0])
FOUND: dict[str, float | None] = {"threshold": 0.9, "twin and source": 0.5, "critic": 0.3}


def test_agreement_with_the_twin() -> None:
    pairs = zip(RUN.target[-1].tolist(), TWIN.target[-1].tolist(), strict=True)
    share = sum(a.index(max(a)) == b.index(max(b)) for a, b in pairs) / 1000
    on_source = (RUN.source[-1].argmax(1) == HELD).mean()
    assert disagreement.twin_and_source(BOTH) == pytest.approx(share * on_source)


def test_what_is_not_known_is_not_estimated() -> None:
    assert disagreement.twin_and_source(RUN) is None
    found = accuracy.estimates(NOTHING_HELD)
    assert set(found.values()) == {None}
    assert accuracy.range_of(found) == (None, None)
    assert accuracy.gain(RUN) is accuracy.gain(NOTHING_HELD) is None


def test_a_critic_finds_no_more_on_images_of_the_same_kind() -> None:
    one, same = (made.said(np.repeat(HELD, 10), 4, 0.95, seed=seed) for seed in (7, 8))
    assert disagreement.discrepancy(one, same) < 0.05
    assert disagreement.discrepancy(RUN.source[-1], RUN.source[-1]) == pytest.approx(0, abs=1e-9)


def test_a_critic_finds_much_where_images_are_of_another_kind() -> None:
    far = made.said(TRUE, 4, 0.5, seed=7, sure=2)
    found = disagreement.discrepancy(RUN.source[-1], far)
    assert found > 0.4
    worse = replace(RUN.at(-1), target=np.stack([far]))
    assert disagreement.critic(worse) == pytest.approx((RUN.source[-1].argmax(1) == HELD).mean() - found)


def test_one_held_out_image_promises_nothing() -> None:
    """There alone a critic has to agree with the network, which is right on it; two images leave it nearly as free."""
    right = np.flatnonzero(RUN.source[-1].argmax(1) == HELD)
    few = [right[:count] for count in (1, 2)]
    one, two = (disagreement.critic(replace(RUN, source=RUN.source[:, rows], source_labels=HELD[rows])) for rows in few)
    assert one is not None
    assert two is not None
    assert 0 <= one < 0.05
    assert one <= two < 0.4


def test_the_harshest_critic_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([0.1, 0.4, 0.2, 0.0, 0.3])
    monkeypatch.setattr(disagreement, "_trained_critic", lambda *_: next(told))
    assert disagreement.discrepancy(RUN.source[-1], RUN.last) == 0.4
    assert next(told, None) is None  # one for each of four classes, and one that favours none


def test_the_loss_of_disagreement_is_the_published_one() -> None:
    z, y = torch.randn(20, 5, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 5
    rows = [
        np.log1p(np.exp(row[label] - np.mean([v for j, v in enumerate(row) if j != label]))) / np.log(2)
        for row, label in zip(z.tolist(), y.tolist(), strict=True)
    ]
    assert float(disagreement.disagreement_loss(z, y)) == pytest.approx(np.mean(rows), rel=1e-5)


def test_the_range_holds_the_truth_here_and_the_gain_is_one() -> None:
    found = accuracy.estimates(BOTH)
    low, high = accuracy.range_of(found)
    assert low is not None
    assert high is not None
    assert low < 0.8 < high + 0.05
    assert accuracy.range_of(found, trusted=False) == (low, None)
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


def test_the_range_is_made_of_the_lowest_of_what_is_known() -> None:
    assert accuracy.range_of(FOUND) == (0.3, 0.9)
    assert accuracy.range_of({**FOUND, "critic": None}) == (0.5, 0.9)
    assert accuracy.range_of({**FOUND, "threshold": 0.2}) == (0.2, 0.2)  # at least is never above at best


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
