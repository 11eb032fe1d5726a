"""Accuracy on the target without labels, as a range: at best by confidence, at least by agreement. And the gain."""

from collections.abc import Callable

from adamatch.verdict.beside_twin import misnamed
from adamatch.verdict.calibrated import difference, threshold, transport
from adamatch.verdict.eval_outputs import EvalOutputs, accuracy, agreement

WIDEST = 0.4  # a wider range says nothing
ENOUGH = 50  # held-out images: of fewer, confidence is not known well enough
# By transport, few held-out images of many classes give the wrong sign (results/estimates.md). For networks trained
# from scratch it is better (results/estimates_from_nothing.md).
GAIN, GAIN_FROM_SCRATCH = difference, transport


def range_of(outputs: EvalOutputs) -> tuple[float, float] | None:
    """(at least, at best), 0 to 1; None where it cannot be told without labels, or is too wide to say anything."""
    low, high = at_least(outputs), at_best(outputs)
    if low is None or high is None or len(outputs.source_labels) < ENOUGH or not is_trusted(outputs):
        return None
    return (min(low, high), high) if high - low <= WIDEST else None


def at_least(outputs: EvalOutputs) -> float | None:
    """Agreement with the twin, which saw no target image, times accuracy on held-out source images."""
    if outputs.twin is None or not len(outputs.source_labels):
        return None
    return agreement(outputs.last, outputs.twin.last) * accuracy(outputs.source[-1], outputs.source_labels)


def at_best(outputs: EvalOutputs) -> float | None:
    """The part of target images that is surer than as many source images as are wrong."""
    return from_confidence(threshold, outputs)


def from_confidence(estimate: Callable[..., float], outputs: EvalOutputs) -> float | None:
    """By a function of `calibrated`, at the last evaluation; None where no source images were held out."""
    held_out = len(outputs.source_labels)
    return estimate(outputs.last, outputs.source[-1], outputs.source_labels) if held_out else None


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
    differ = 1 - agreement(outputs.last, outputs.twin.last)
    return min(max(ours - theirs, -differ), differ)
