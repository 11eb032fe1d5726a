"""Accuracy on the target without labels, as a range: at best by confidence, at least by disagreement. And the gain."""

from collections.abc import Callable, Mapping

from adamatch.verdict import disagreement
from adamatch.verdict.beside_twin import misnamed
from adamatch.verdict.calibrated import difference, threshold, transport
from adamatch.verdict.eval_outputs import EvalOutputs

AT_BEST, AT_LEAST = "threshold", ("twin and source", "critic")
# By transport, few held-out images of many classes give the wrong sign (results/estimates.md). For networks trained
# from scratch it is better (results/estimates_from_nothing.md).
GAIN, GAIN_FROM_SCRATCH = difference, transport


def estimates(outputs: EvalOutputs) -> dict[str, float | None]:
    """What the range is made of, by name: 0 to 1, or None where the outputs do not have what it needs."""
    return {
        "threshold": from_confidence(threshold, outputs),
        "twin and source": disagreement.twin_and_source(outputs),
        "critic": disagreement.critic(outputs),
    }


def from_confidence(estimate: Callable[..., float], outputs: EvalOutputs) -> float | None:
    """By a function of `calibrated`, at the last evaluation; None where no source images were held out."""
    held_out = len(outputs.source_labels)
    return estimate(outputs.last, outputs.source[-1], outputs.source_labels) if held_out else None


def range_of(found: Mapping[str, float | None], trusted: bool = True) -> tuple[float | None, float | None]:
    """(at least, at best), from `estimates`; None where what is needed is not known. At least is never above at best.

    No upper end is given of a network whose confidence is not to be trusted (`is_trusted`).
    """
    low = min((value for name in AT_LEAST if (value := found[name]) is not None), default=None)
    high = found[AT_BEST]
    return (low if low is None or high is None else min(low, high)), (high if trusted else None)


def is_trusted(outputs: EvalOutputs) -> bool:
    """Whether confidence says something: not of a network trained from scratch, nor where groups may have wrong names.

    Such networks are as sure of wrong answers as of right ones.
    """
    return outputs.pretrained and not misnamed(outputs)


def gain(outputs: EvalOutputs) -> float | None:
    """How much more accurate the run is than its twin, by the same estimate of both: -1 to 1.

    It cannot be more, up or down, than the part of the predictions that differ.
    """
    if outputs.twin is None or not (outputs.pretrained or outputs.holds_every_class):  # transport needs every class
        return None
    estimate = GAIN if outputs.pretrained else GAIN_FROM_SCRATCH
    ours, theirs = from_confidence(estimate, outputs), from_confidence(estimate, outputs.twin)
    if ours is None or theirs is None:
        return None
    differ = 1 - disagreement.agreement(outputs.last, outputs.twin.last)
    return min(max(ours - theirs, -differ), differ)
