"""Estimates from disagreement, and the range."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import entropy, ks_2samp
from verdict import made

from adamatch.train import resume
from adamatch.verdict import accuracy, disagreement, evidence
from adamatch.verdict.evidence import Evidence

HELD, TRUE = made.labels([1, 1, 1, 1], 400), made.labels([1, 1, 1, 1], 1000, seed=1)
RUN = made.evidence([0.5, 0.6, 0.7, 0.8], TRUE, HELD)
TWIN = replace(made.evidence([0.4, 0.55], TRUE, HELD), target=np.stack([made.said(TRUE, 4, 0.55, seed=90)] * 2))
BOTH = made.beside(RUN, TWIN)
NOTHING_HELD = replace(RUN, source=RUN.source[:, :0], held=HELD[:0])


def share(a: made.Floats, b: made.Floats) -> float:
    """Image by image."""
    same = sum(list(x).index(max(x)) == list(y).index(max(y)) for x, y in zip(a, b, strict=True))
    return same / len(a)


def test_agreement_with_the_twin_and_with_earlier_evaluations() -> None:
    assert disagreement.twin(BOTH) == pytest.approx(share(RUN.target[3], TWIN.target[1]))
    on_source = (RUN.source[3].argmax(1) == HELD).mean()
    assert disagreement.twin_and_source(BOTH) == pytest.approx(share(RUN.target[3], TWIN.target[1]) * on_source)
    assert disagreement.earlier(RUN) == pytest.approx(np.mean([share(RUN.target[i], RUN.target[3]) for i in (1, 2)]))
    said = RUN.target[1:].argmax(2)
    assert disagreement.steady(RUN) == np.mean([len(set(column)) == 1 for column in said.T.tolist()])


def test_what_is_not_known_is_not_estimated() -> None:
    assert [disagreement.twin(RUN), disagreement.twin_and_source(RUN), disagreement.critic_of_twin(RUN)] == [None] * 3
    assert disagreement.critic(NOTHING_HELD) is None
    assert disagreement.earlier(RUN.only_last()) is None
    found = accuracy.estimates(NOTHING_HELD)
    assert all(found[name] is None for name in accuracy.HIGH)
    assert accuracy.range_of(found) == (None, None)
    assert accuracy.gain(RUN) is None


def test_a_critic_finds_no_more_on_images_of_the_same_kind() -> None:
    one, same = (made.said(np.repeat(HELD, 10), 4, 0.95, seed=seed) for seed in (7, 8))
    assert disagreement.discrepancy(one, same) < 0.05
    assert disagreement.discrepancy(RUN.source[-1], RUN.source[-1]) == pytest.approx(0, abs=1e-9)


def test_a_critic_finds_much_where_images_are_of_another_kind() -> None:
    far = made.said(TRUE, 4, 0.5, seed=7, sure=2)
    assert disagreement.discrepancy(RUN.source[-1], far) > 0.4
    assert unsure_by_hand(RUN.source[-1], far) > 0.4
    worse = replace(RUN, target=np.stack([far]), source=RUN.source[-1:], steps=(1,))
    on_source = (RUN.source[-1].argmax(1) == HELD).mean()
    assert disagreement.critic(worse) == pytest.approx(on_source - disagreement.discrepancy(RUN.source[-1], far))
    assert disagreement.unsure(worse) == pytest.approx(on_source - unsure_by_hand(RUN.source[-1], far))


def test_one_held_out_image_promises_nothing() -> None:
    """There alone a critic has to agree with the network, which is right on it; two images leave it nearly as free."""
    right = np.flatnonzero(RUN.source[-1].argmax(1) == HELD)
    for first in range(3):
        few = [right[first : first + count] for count in (1, 2)]
        one, two = (disagreement.critic(replace(RUN, source=RUN.source[:, rows], held=HELD[rows])) for rows in few)
        assert one is not None
        assert two is not None
        assert 0 <= one < 0.05
        assert one <= two < 0.4


def test_the_harshest_critic_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([0.1, 0.4, 0.2, 0.0, 0.3])
    monkeypatch.setattr(disagreement, "_trained_critic", lambda *_: next(told))
    assert disagreement.discrepancy(RUN.source[-1], RUN.last) == 0.4
    assert next(told, None) is None  # one for each of four classes, and one that favours none


def unsure_by_hand(source: made.Floats, target: made.Floats) -> float:
    return float(
        ks_2samp(
            *(entropy(each.T.astype(float)) for each in (target, source)), alternative="less", method="asymp"
        ).statistic
    )


def test_the_loss_of_disagreement_is_the_published_one() -> None:
    z, y = torch.randn(20, 5, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 5
    rows = [
        np.log1p(np.exp(row[label] - np.mean([v for j, v in enumerate(row) if j != label]))) / np.log(2)
        for row, label in zip(z.tolist(), y.tolist(), strict=True)
    ]
    assert float(disagreement.disagreement_loss(z, y)) == pytest.approx(np.mean(rows), rel=1e-5)


def test_the_range_holds_the_truth_here_and_the_gain_is_one() -> None:
    low, high = accuracy.range_of(accuracy.estimates(BOTH))
    assert low is not None
    assert high is not None
    assert low < 0.8 < high + 0.05
    gained = accuracy.gain(BOTH)
    assert gained is not None
    assert 0.05 < gained < 0.35


@pytest.mark.parametrize(("started", "name"), [(True, "difference"), (False, "transport")])
def test_the_gain_is_by_what_suits_the_networks_start(started: bool, name: str) -> None:
    ours, theirs = accuracy.HIGH[name](RUN), accuracy.HIGH[name](TWIN)
    assert ours is not None
    assert theirs is not None
    assert accuracy.gain(replace(BOTH, started=started)) == ours - theirs


def test_the_gain_is_no_more_than_what_differs() -> None:
    sure = np.where(RUN.last == RUN.last.max(1, keepdims=True), 0.97, 0.01).astype(np.float32)  # the same answers
    same = replace(RUN, target=np.stack([sure]), source=RUN.source[-1:], steps=(1,))
    ours, theirs = accuracy.HIGH["difference"](RUN), accuracy.HIGH["difference"](same)
    assert ours is not None
    assert theirs is not None
    assert abs(ours - theirs) > 0.02
    assert accuracy.gain(made.beside(RUN, same)) == 0


def test_of_a_class_without_a_held_out_image_the_gain_from_nothing_is_not_known() -> None:
    some = HELD < 3
    fewer = [replace(each, source=each.source[:, some], held=HELD[some]) for each in (RUN, TWIN)]
    assert accuracy.gain(replace(made.beside(*fewer), started=False)) is None
    assert accuracy.gain(made.beside(*fewer)) is not None


def test_the_range_is_made_of_the_lowest_of_what_is_known() -> None:
    found: dict[str, float | None] = dict.fromkeys((*accuracy.HIGH, *accuracy.LOW), 0.9)
    found |= {"twin and source": 0.5, "critic": 0.3, "twin": 0.1}  # of the last nothing is said
    assert accuracy.range_of(found) == (0.3, 0.9)
    assert accuracy.range_of({**found, "critic": None}) == (0.5, 0.9)


def test_at_least_is_never_above_at_best() -> None:
    found: dict[str, float | None] = dict.fromkeys((*accuracy.HIGH, *accuracy.LOW), 0.9)
    found |= dict.fromkeys(accuracy.AT_BEST, 0.4)
    assert accuracy.range_of(found) == (0.4, 0.4)


@pytest.mark.parametrize(("first", "started"), [("", False), ("imagenet", True)])
def test_a_run_that_was_prolonged_began_as_the_first_one(first: str, started: bool, tmp_path: Path) -> None:
    made.kept(tmp_path, RUN, weights=f"{resume.FROM}1234")
    assert not evidence.read(tmp_path).started  # type: ignore[union-attr]  # of the first nothing is known
    made.kept(tmp_path / resume.EARLIER, RUN, weights=first)
    for folder in (tmp_path, tmp_path / resume.EARLIER):
        assert evidence.read(folder).started is started  # type: ignore[union-attr]


def test_nothing_is_said_at_best_of_a_network_that_is_not_believed() -> None:
    low, high = accuracy.range_of(accuracy.estimates(BOTH), believed=False)
    assert low is not None
    assert high is None


def test_evidence_up_to_an_evaluation() -> None:
    early: Evidence = BOTH.at(1)
    assert early.steps == (100, 200)
    assert np.array_equal(early.last, RUN.target[1])
    assert early.twin is TWIN
    assert RUN.with_twin(made.evidence([0.5], TRUE[:10], HELD)).twin is None  # other images
    assert RUN.with_twin(made.evidence([0.5], TRUE, HELD[:3])).twin is None  # other held-out ones
