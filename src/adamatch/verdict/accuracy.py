"""Accuracy without labels, as a range: at best, read off the confidence; at least, read off disagreement."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from adamatch.images.store import Labels
from adamatch.verdict import calibrated, disagreement
from adamatch.verdict.calibrated import Rows
from adamatch.verdict.evidence import Evidence
from adamatch.verdict.misnamed import misnamed

Estimate = Callable[[Evidence], float | None]


def _calibrated(rule: Callable[[Rows, Rows, Labels], float], evidence: Evidence) -> float | None:
    """Of the last evaluation; None where no source images were held out."""
    return rule(evidence.last, evidence.source[-1], evidence.held) if len(evidence.held) else None


# All that were tried, by name; results/estimates.md has how far each is off on real runs.
HIGH: Mapping[str, Estimate] = {
    "source": partial(_calibrated, calibrated.held_out),
    "confidence": partial(_calibrated, calibrated.confidence),
    "difference": partial(_calibrated, calibrated.difference),
    "threshold": partial(_calibrated, calibrated.threshold),
    "transport": partial(_calibrated, calibrated.transport),
}
LOW: Mapping[str, Estimate] = {
    "twin": disagreement.twin,
    "twin and source": disagreement.twin_and_source,
    "earlier": disagreement.earlier,
    "steady": disagreement.steady,
    "unsure": disagreement.unsure,
    "critic": disagreement.critic,
    "critic of twin": disagreement.critic_of_twin,
}
ALL: Mapping[str, Estimate] = {**HIGH, **LOW}
# What the range is made of: of several, the lowest.
AT_BEST = ("threshold",)  # transport is 17 too low on PACS: results/estimates.md
AT_LEAST = ("twin and source", "critic")
RANGE = (*AT_BEST, *AT_LEAST)
GAIN = "difference"  # with transport, few held-out images of many classes give the wrong sign: results/estimates.md
GAIN_FROM_NOTHING = "transport"  # of networks that began from nothing: results/estimates_from_nothing.md


def estimates(evidence: Evidence, names: Iterable[str] = ALL) -> dict[str, float | None]:
    """Estimates by their names, 0 to 1."""
    return {name: ALL[name](evidence) for name in names}


def range_of(found: Mapping[str, float | None], believed: bool = True) -> tuple[float | None, float | None]:
    """(at least, at best), from `estimates`; None where what is needed is not known, and at least is never above at best.

    Nothing is said at best of a network whose confidence is not to be believed (`is_believed`).
    """
    low, high = (_lowest(found, names) for names in (AT_LEAST, AT_BEST))
    return (low if low is None or high is None else min(low, high)), (high if believed else None)


def is_believed(evidence: Evidence) -> bool:
    """Whether confidence says something: not of a network that began from nothing, nor where groups have wrong names.

    Such networks are as sure of wrong answers as of right ones.
    """
    return evidence.started and not misnamed(evidence)


def gain(evidence: Evidence) -> float | None:
    """How much more accurate the run is than its twin, by the same estimate of both: -1 to 1.

    It cannot be more, up or down, than the part of the answers that differ.
    """
    agreement = disagreement.twin(evidence)
    if evidence.twin is None or agreement is None:
        return None
    if not evidence.started and not evidence.holds_every_class:
        return None  # images are dealt out to the classes that held-out images have
    estimate = HIGH[GAIN if evidence.started else GAIN_FROM_NOTHING]
    ours, theirs = estimate(evidence), estimate(evidence.twin)
    if ours is None or theirs is None:
        return None
    differ = 1 - agreement
    return min(max(ours - theirs, -differ), differ)


def _lowest(found: Mapping[str, float | None], names: tuple[str, ...]) -> float | None:
    return min((value for name in names if (value := found[name]) is not None), default=None)
