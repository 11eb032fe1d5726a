"""Which evaluation of a run, and which of several runs, is likely the best: rules that see no label of the target."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from adamatch.images.store import Labels
from adamatch.verdict.calibrated import entropy, threshold, transport
from adamatch.verdict.disagreement import agreement
from adamatch.verdict.evidence import Evidence, Floats, Numbers, guesses
from adamatch.verdict.misnamed import misnamed

SPREAD = 0.05  # temperature of soft neighbourhood density, as published
NEIGHBOURS = 500  # images at most that are compared with each other
WRONG = 10.0  # a tenth of all images under a wrong name counts as much as knowing all and nothing of each image
WARM = 0.25  # evaluations before so much of the run are not chosen: there the network still says anything

Score = Callable[[Evidence], Numbers]  # one number for every evaluation: the larger, the better


def last(evidence: Evidence) -> Numbers:
    """The paper's: stop at the end."""
    return np.arange(len(evidence.steps), dtype=np.float64)


def confidence(evidence: Evidence) -> Numbers:
    """Mean probability of the most likely class."""
    return np.asarray(evidence.target.max(-1).mean(-1), np.float64)


def certainty(evidence: Evidence) -> Numbers:
    """Mean negative entropy."""
    return np.asarray(-entropy(evidence.target).mean(-1))


def information(evidence: Evidence) -> Numbers:
    """Mutual information of images and classes: sure of each image, and of many classes in all."""
    return np.asarray(entropy(evidence.target.mean(1)) - entropy(evidence.target).mean(-1))


def ensemble(evidence: Evidence) -> Numbers:
    """Agreement with what all evaluations say on average."""
    together = evidence.target.mean(0)
    return np.array([agreement(each, together) for each in evidence.target])


def ensemble_of_late(evidence: Evidence) -> Numbers:
    """Agreement with the average of the second half of the evaluations."""
    together = evidence.target[len(evidence.steps) // 2 :].mean(0)
    return np.array([agreement(each, together) for each in evidence.target])


def names(evidence: Evidence) -> Numbers:
    """Few images in groups that may have the wrong name; among equals, certainty. Without a twin, certainty alone."""
    groups = [{group.called for group in misnamed(evidence.at(each))} for each in range(len(evidence.steps))]
    wrong = [np.isin(guesses(said), list(called)).mean() for said, called in zip(evidence.target, groups, strict=True)]
    sure = certainty(evidence) / np.log(max(2, evidence.target.shape[2]))  # from -1 to 0
    return np.asarray(sure - WRONG * np.array(wrong))


def density(evidence: Evidence) -> Numbers:
    """Soft neighbourhood density (Saito et al., ICCV 2021): how close to many others the outputs of an image lie."""
    return np.array([neighbourhood(each) for each in evidence.target])


def neighbourhood(probabilities: Floats) -> float:
    """The mean entropy of how alike [n, n] images are, of at most NEIGHBOURS of them spread evenly."""
    few = probabilities[_some(probabilities)].astype(np.float64)
    few /= np.linalg.norm(few, axis=1, keepdims=True)
    alike = few @ few.T / SPREAD
    np.fill_diagonal(alike, -np.inf)
    alike = np.exp(alike - alike.max(1, keepdims=True))
    return float(entropy(alike / alike.sum(1, keepdims=True)).mean()) if len(few) > 1 else 0.0


def by_threshold(evidence: Evidence) -> Numbers:
    """The accuracy that each evaluation's confidence promises."""
    return _estimated(evidence, threshold)


def by_transport(evidence: Evidence) -> Numbers:
    """The accuracy that optimal transport to the source's labels promises."""
    return _estimated(evidence, transport)


def source(evidence: Evidence) -> Numbers:
    """Accuracy on held-out source images."""
    if not len(evidence.held):
        return last(evidence)
    return np.asarray((guesses(evidence.source) == evidence.held).mean(-1), dtype=np.float64)


RULES: Mapping[str, Score] = {
    "last": last,
    "ensemble": ensemble,
    "late ensemble": ensemble_of_late,
    "names": names,
    "density": density,
    "information": information,
    "certainty": certainty,
    "confidence": confidence,
    "threshold": by_threshold,
    "transport": by_transport,
    "source": source,
}
RULE = "last"  # what is told: on PACS no other rule was clearly better (results/estimates.md)
AMONG = "ensemble"  # and among several runs: on three sets of runs 1.2 to 2.6 points better than taking any of them


def choose(evidence: Evidence, rule: str = RULE) -> int:
    """The index of the best evaluation by a rule; of equals the later one."""
    scores = RULES[rule](evidence).copy()
    scores[: int(len(scores) * WARM)] = -np.inf
    return len(scores) - 1 - int(scores[::-1].argmax())


def among(runs: Sequence[Evidence], rule: str = AMONG) -> Numbers:
    """A score for each of several runs that looked at the same target images, of what each says at its end.

    Rules of agreement ask how far a run agrees with all runs together. For "last" runs are alike.
    """
    ends = np.stack([each.last for each in runs])
    if rule == "last":
        return np.zeros(len(runs))
    if rule in ("ensemble", "late ensemble"):
        return np.array([agreement(each, ends.mean(0)) for each in ends])
    return np.array([RULES[rule](each.only_last())[-1] for each in runs])


def _estimated(evidence: Evidence, rule: Callable[..., float]) -> Numbers:
    """By a rule of `calibrated`, from at most NEIGHBOURS images; where no source images were held out, as `last`."""
    if not len(evidence.held):
        return last(evidence)
    pairs = zip(evidence.target[:, _some(evidence.last)], evidence.source, strict=True)
    return np.array([rule(target, source, evidence.held) for target, source in pairs])


def _some(said: Floats) -> Labels:
    """Rows, at most NEIGHBOURS of them, spread evenly."""
    return np.unique(np.linspace(0, len(said) - 1, min(len(said), NEIGHBOURS)).astype(np.int64))
