"""The verdict on a run without labels of the target: `judge.json` in its folder.

version         of this form, 1
source_accuracy of held-out source images, in percent, at the end (null: none were held out)
held_out, images, looked_at   how many images were held out, are in the target, and were asked (at most 4,000, spread evenly)
range           {"at_least", "at_best"}: accuracy on the target in percent; null where it cannot be said (at best: of networks
                that began from nothing, where a group of images may have got the wrong name, and where the target does not
                fit; at least: where it does not fit at all)
gain            over the twin, in points, by the same estimate of both; null without a twin, where the target does not fit, and
                of networks that began from nothing where a class has no held-out image
twin            null, or {"steps", "source_accuracy", "agreement" (percent), "beyond_chance" (Cohen's kappa), "changed" (how
                many predictions differ), "rows" (some of these, the surest first), "moves" ([from, to, how many], most first)}
classes         their names, in the order of
shares          {"source" (of its labels), "target" (of predictions), "twin" (of the twin's), "estimated" (of the target, by a
                correction of its predictions; null where a class has no held-out image)}: numbers adding up to 1, or null
warnings        [{"kind", "line", "rows", "pairs"}]: one class, other kind, missing, overturned, wrong name, empty, same
                images, names; some target images that show it, and labelled ones where they come in pairs
chosen          {"step", "rule", "last" (the last step), "agreement" (of the two, in percent)}: which evaluation a rule prefers

Rows count the unlabelled target images as training saw them; `pairs` count the labelled ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adamatch.images.store import Labels, Pixels
from adamatch.verdict import accuracy, choice, eval_outputs, mismatch, shares
from adamatch.verdict.changed import changed
from adamatch.verdict.disagreement import agreement
from adamatch.verdict.evidence import Evidence, Numbers
from adamatch.verdict.evidence import accuracy as measured

FILE = "judge.json"  # in a run's folder
TWIN = "twin"  # the folder of its twin, in there as well
ALONE = "supervised"  # the method of a twin: labelled images alone
VERSION = 1
ROWS = 200  # changed images that are listed
MOVES = 10  # pairs of classes between which images moved


@dataclass(frozen=True)
class Images:
    """What was trained on, as far as a verdict looks at it: target images have no labels here."""

    target: Sequence[Pixels]  # parts, read as one
    labelled: Sequence[Pixels]
    labels: Labels | None  # of the labelled ones; None where they are no class numbers
    same: bool = False  # whether source and target are one set, so that the same images are no surprise


def verdict(evidence: Evidence, images: Images, classes: Sequence[str]) -> dict[str, Any]:
    """All of judge.json."""
    count = sum(map(len, images.target))
    rows = eval_outputs.rows(count)
    labels = evidence.held if images.labels is None else images.labels
    expected = shares.of_labels(labels, len(classes))
    warned = _warnings(evidence, images, expected, classes)
    kinds = {each.kind for each in warned}
    fits, known = kinds.isdisjoint(mismatch.UNFIT), kinds.isdisjoint(mismatch.UNKNOWN)
    low, high = accuracy.range_of(accuracy.estimates(evidence, accuracy.RANGE), fits and accuracy.is_believed(evidence))
    chosen = choice.choose(evidence)
    return {
        "version": VERSION,
        "source_accuracy": _percent(measured(evidence.source[-1], evidence.held)),
        "held_out": len(evidence.held),
        "images": count,
        "looked_at": len(evidence.last),
        "range": {"at_least": _percent(low) if known else None, "at_best": _percent(high)},
        "gain": _percent(accuracy.gain(evidence)) if fits else None,
        "twin": _twin(evidence, rows, classes),
        "classes": list(classes),
        "shares": _shares(evidence, expected),
        "warnings": [each._asdict() for each in warned],
        "chosen": {
            "step": evidence.steps[chosen],
            "rule": choice.RULE,
            "last": evidence.steps[-1],
            "agreement": _percent(agreement(evidence.target[chosen], evidence.last)),
        },
    }


def _twin(evidence: Evidence, rows: Labels, classes: Sequence[str]) -> dict[str, Any] | None:
    if evidence.twin is None:
        return None
    found = changed(evidence.last, evidence.twin.last)
    moved = found.moves * (1 - np.eye(len(classes), dtype=np.int64))
    order = np.argsort(-moved, axis=None, kind="stable")[:MOVES]
    pairs = [(int(i) // len(classes), int(i) % len(classes)) for i in order]
    return {
        "steps": evidence.twin.steps[-1],
        "source_accuracy": _percent(measured(evidence.twin.source[-1], evidence.twin.held)),
        "agreement": _percent(found.agreement),
        "beyond_chance": round(found.beyond_chance, 4),
        "changed": len(found.rows),
        "rows": rows[found.rows[:ROWS]].tolist(),
        "moves": [[classes[a], classes[b], int(moved[a, b])] for a, b in pairs if moved[a, b]],
    }


def _shares(evidence: Evidence, expected: Numbers) -> dict[str, list[float] | None]:
    last, twin = evidence.last, evidence.twin
    estimated = shares.estimated(last, evidence.source[-1], evidence.held) if evidence.holds_every_class else None
    found = {
        "source": expected,
        "target": shares.of_predictions(last),
        "twin": None if twin is None else shares.of_predictions(twin.last),
        "estimated": estimated,
    }
    return {name: None if each is None else each.round(5).tolist() for name, each in found.items()}


def _warnings(evidence: Evidence, images: Images, expected: Numbers, classes: Sequence[str]) -> list[mismatch.Warned]:
    target, labelled = eval_outputs.spread(tuple(images.target)), eval_outputs.spread(tuple(images.labelled))
    in_target, in_labelled = (eval_outputs.rows(sum(map(len, parts))) for parts in (images.target, images.labelled))
    found = [*mismatch.of_outputs(evidence, expected, classes), *mismatch.of_images(target, labelled)]
    told = [
        each._replace(rows=in_target[each.rows].tolist(), pairs=in_labelled[each.pairs].tolist() if each.pairs else [])
        for each in found
        if not (images.same and each.kind == "same images")
    ]
    return told + mismatch.of_names(classes)


def _percent(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(100 * value, 2)
