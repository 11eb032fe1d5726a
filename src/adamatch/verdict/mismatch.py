"""Signs that source and target do not fit together, from predictions of the network and its twin."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adamatch.base.console import percent
from adamatch.images.checks import SHOWN, Finding
from adamatch.images.store import Labels
from adamatch.verdict.beside_twin import changed, misnamed
from adamatch.verdict.calibrated import entropy
from adamatch.verdict.class_shares import of_predictions
from adamatch.verdict.eval_outputs import EvalOutputs, Numbers, Probabilities, predictions

# "Expected" is a class's share of the source's labels. One set of limits for all data.
ENOUGH = 20  # images expected of a class, from which on it is looked for
RARE, RARE_ALONE = 0.15, 0.05  # part of what is expected: by network and twin, by the network alone
SELDOM = 0.3  # the same, by the twin
TRUSTED = 0.65  # agreement with the twin on the other images, from which on it counts that it never predicts a class
AS_SURE = 0.95  # and the twin is at least so sure, compared with all images, where the network alone predicts the class
HALF = 0.5  # of a class's expected count; of all expected images, where many classes are missing
ONE_SIDED = 0.8  # part of the images in one class ...
USUAL = 0.5  # ... of which the source has less than this part
UNRELATED = 0.1  # kappa of network and twin, below which neither is to be believed
SURE, SURE_ENOUGH = 0.2, 0.5  # the twin is sure of an image if it is surer than of a fifth of the held-out ones
RENAMED = 0.5  # part of what the twin is sure of that adaptation gives another class, from which on it is a sign
UNSURE, RENAMED_UNSURELY = 0.3, 0.1  # or this part, where the network itself is sure of less than UNSURE of all images
NAMED = 5  # classes
UNFIT = ("one class", "other kind", "overturned", "missing")  # with these neither an accuracy nor a gain is told


def of_outputs(outputs: EvalOutputs, expected: Numbers, classes: Sequence[str]) -> list[Finding]:
    """From outputs; `expected` are the shares of the source's labels [k]. Rows are those of the outputs."""
    worst = one_sided(outputs, expected, classes) or unrelated(outputs) or missing(outputs, expected, classes)
    found = (worst,) if worst else (overturned(outputs, classes), wrong_name(outputs, classes))
    return [each for each in found if each]


def one_sided(outputs: EvalOutputs, expected: Numbers, classes: Sequence[str]) -> Finding | None:
    """Nearly all images in one class: by the network, or by a twin that is as sure as of held-out images."""
    asked = {"": outputs.last}
    if outputs.twin is not None and len(outputs.source_labels) and _sure(outputs.twin).mean() >= SURE_ENOUGH:
        asked[", without adaptation,"] = outputs.twin.last
    for whose, probabilities in asked.items():
        shares = of_predictions(probabilities)
        top = int(shares.argmax())
        if shares[top] >= ONE_SIDED and expected[top] < USUAL:
            line = (
                f"{shares[top]:.0%} of the target images are taken{whose} for {classes[top]!r}, and "
                f"{percent(expected[top])} of the labelled images are of it: "
                "are there other classes in the target, or did the others collapse into this one?"
            )
            return Finding("one class", line, _surest(probabilities, predictions(probabilities) == top))
    return None


def unrelated(outputs: EvalOutputs) -> Finding | None:
    """The predictions with and without adaptation have nothing to do with each other."""
    if outputs.twin is None:
        return None
    found = changed(outputs.last, outputs.twin.last)
    if found.kappa >= UNRELATED or found.agreement >= USUAL:
        return None
    line = (
        f"with and without adaptation the network agrees on {found.agreement:.0%} of the target images, hardly more "
        "than by chance: is the target of the same kind as the labelled images?"
    )
    return Finding("other kind", line, found.rows[:SHOWN].tolist())


def missing(outputs: EvalOutputs, expected: Numbers, classes: Sequence[str]) -> Finding | None:
    """Classes that the labelled images have, and the target hardly has.

    Alignment gives every class its share of the target, also one that is not there. The twin knows no alignment: where
    it mostly agrees with the network otherwise, a class that it never predicts is likely not there; unless the network
    predicts it, and the twin is unsure of just these images.
    """
    ours = outputs.last
    absent = of_predictions(ours) < RARE_ALONE * expected
    if outputs.twin is not None:
        absent = _absent(ours, outputs.twin.last, expected) | _half_unnamed(ours, outputs.twin.last, expected)
    found = np.flatnonzero(absent & (expected * len(ours) >= ENOUGH))
    if not len(found):
        return None
    listed = ", ".join(classes[each] for each in found[:NAMED])
    listed += f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    which = "it" if len(found) == 1 else "these"
    line = f"the target seems to have few or no images of {listed}: predictions of {which} are doubtful"
    return Finding("missing", line, _surest(ours, np.isin(predictions(ours), found)))


def _absent(ours: Probabilities, twins: Probabilities, expected: Numbers) -> NDArray[np.bool_]:
    """Classes that network and twin rarely agree on, and that the twin seldom predicts, unless it is unsure there."""
    mine, its, sure = predictions(ours), predictions(twins), twins.max(1)
    both = np.bincount(mine[mine == its], minlength=len(expected)) / len(mine)
    absent: NDArray[np.bool_] = (both < RARE * expected) & (of_predictions(twins) < SELDOM * expected)
    others = ~np.isin(mine, np.flatnonzero(absent))
    if not others.any() or (mine == its)[others].mean() < TRUSTED:
        return np.zeros_like(absent)
    for each in np.flatnonzero(absent):
        alone = (mine == each) & (its != each)
        absent[each] = alone.mean() < RARE * expected[each] or sure[alone].mean() >= AS_SURE * sure.mean()
    return absent


def _half_unnamed(ours: Probabilities, twins: Probabilities, expected: Numbers) -> NDArray[np.bool_]:
    """Classes that the twin seldom predicts, where they are half of what is expected.

    The network must confirm the twin's other predictions, and be less sure where it predicts these classes itself.
    """
    mine, its, sure = predictions(ours), predictions(twins), ours.max(1)
    seldom: NDArray[np.bool_] = of_predictions(twins) < HALF * expected
    named, called = ~seldom[its], seldom[mine]
    if not named.any() or called.all() or not called.any() or expected[seldom].sum() < HALF:
        return np.zeros_like(seldom)
    confirmed = (mine == its)[named].mean() >= HALF
    return seldom & bool(confirmed and sure[called].mean() < AS_SURE * sure[~called].mean())


def overturned(outputs: EvalOutputs, classes: Sequence[str]) -> Finding | None:
    """Adaptation renames most of what the twin is sure of (as of held-out images); or some, and is sure of little.

    Alignment spreads a target of one class over all of them; so does a run that went wrong. Only of networks that began
    from learned weights: others are sure without reason.
    """
    if outputs.twin is None or not outputs.pretrained or not len(outputs.source_labels):
        return None
    sure = _sure(outputs.twin)
    mine, its = predictions(outputs.last), predictions(outputs.twin.last)
    renamed = sure & (mine != its)
    limit = RENAMED_UNSURELY if _sure(outputs).mean() < UNSURE else RENAMED
    if sure.sum() < ENOUGH or renamed.sum() <= limit * sure.sum():
        return None
    shares = np.bincount(its[sure], minlength=len(classes)) / sure.sum()
    line = (
        f"without adaptation the network is sure of {sure.sum()} target images ({shares.max():.0%} of them are "
        f"{classes[int(shares.argmax())]!r}), and adaptation renames {renamed.sum() / sure.sum():.0%} of these: "
        "does the target have all classes, or did adaptation go wrong?"
    )
    return Finding("overturned", line, _surest(outputs.twin.last, renamed))


def wrong_name(outputs: EvalOutputs, classes: Sequence[str]) -> Finding | None:
    """Groups of images that may have got another class's name as a whole."""
    groups = misnamed(outputs)
    if not groups:
        return None
    told = [f"{classes[each.predicted]!r} may be {classes[each.likely]!r}" for each in groups[:NAMED]]
    told += [f"{len(groups) - NAMED} more"] if len(groups) > NAMED else []
    line = f"a group of images may have got the wrong name: what is called {', and '.join(told)}, wholly or in part"
    of_each = SHOWN // len(groups[:NAMED])
    return Finding("wrong name", line, [int(row) for each in groups[:NAMED] for row in each.rows[:of_each]])


def _sure(outputs: EvalOutputs) -> NDArray[np.bool_]:
    """Of which target images a network is as sure as of those held out."""
    found: NDArray[np.bool_] = -entropy(outputs.last) >= np.quantile(-entropy(outputs.source[-1]), SURE)
    return found


def _surest(probabilities: Probabilities, of: NDArray[np.bool_]) -> list[int]:
    rows: Labels = np.flatnonzero(of)
    found: list[int] = rows[np.argsort(-probabilities[rows].max(1), kind="stable")][:SHOWN].tolist()
    return found
