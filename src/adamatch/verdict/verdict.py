"""The verdict on a run without labels of the target: `judge.json` in its folder.

version         of this format, 1
source_accuracy of held-out source images, in percent, at the end (null: none were held out)
held_out, images, looked_at   how many images were held out, are in the target, and were sampled from it (at most 4,000)
range           {"at_least", "at_best"}: accuracy on the target in percent; both null where it cannot be told: where the
                range is wider than 40 points, with fewer than 50 held-out images, of networks trained from scratch,
                where a group of images may have got the wrong name, and where the target does not fit
gain            over the twin, in points, by the same estimate of both; null without a twin, where the target does not
                fit, and of networks trained from scratch where a class has no held-out image
twin            null, or {"steps", "source_accuracy", "agreement" (percent), "beyond_chance" (Cohen's kappa), "changed"
                (how many predictions differ), "rows" (some of these, the surest first), "moves" ([from, to, how many])}
classes         their names, in the order of
shares          {"source" (of its labels), "target" (of predictions), "twin" (of its own), "estimated" (of the target,
                by a correction of its predictions; null where a class has no held-out image)}: numbers adding up to 1,
                or null
warnings        [{"kind", "line", "rows", "pairs", "files"}]. Of predictions: one class, other kind, missing,
                overturned, wrong name. Of images, before training: unreadable, two classes, same images, test images,
                empty, tiny, few images, names. Target and labelled images that show it, and files' names for people

Rows count the unlabelled target images as training saw them; `pairs` count the labelled ones that it saw.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from adamatch.images.checks import Finding
from adamatch.images.store import Labels
from adamatch.images.tasks import Labelled, Unlabelled
from adamatch.verdict import accuracy, class_shares, mismatch
from adamatch.verdict.beside_twin import changed
from adamatch.verdict.eval_outputs import EvalOutputs, Numbers, sampled_rows
from adamatch.verdict.eval_outputs import accuracy as measured

FILE = "judge.json"  # in a run's folder
TWIN = "twin"  # the folder of its twin, in there as well
ALONE = "supervised"  # the method of a twin: labelled images alone
VERSION = 1
ROWS = 200  # changed images that are listed
MOVES = 10  # pairs of classes between which images moved


def verdict(
    outputs: EvalOutputs,
    target: Unlabelled,
    labelled: Labelled,
    classes: Sequence[str],
    findings: Sequence[Finding] = (),
) -> dict[str, Any]:
    """All of judge.json. `findings`: what was found in the images before training."""
    count = len(target)
    labels = labelled.labels if labelled.labels.ndim == 1 else outputs.source_labels
    expected = class_shares.of_labels(labels, len(classes))  # type: ignore[arg-type]  # class numbers
    in_target = sampled_rows(count)
    signs = mismatch.of_outputs(outputs, expected, classes)
    warned = [*(each._replace(rows=in_target[list(each.rows)].tolist()) for each in signs), *findings]
    kinds = {each.kind for each in warned}
    fits = kinds.isdisjoint(mismatch.UNFIT)
    low, high = (accuracy.range_of(outputs) if fits else None) or (None, None)
    return {
        "version": VERSION,
        "source_accuracy": _percent(measured(outputs.source[-1], outputs.source_labels)),
        "held_out": len(outputs.source_labels),
        "images": count,
        "looked_at": len(outputs.last),
        "range": {"at_least": _percent(low), "at_best": _percent(high)},
        "gain": _percent(accuracy.gain(outputs)) if fits else None,
        "twin": _twin(outputs, in_target, classes),
        "classes": list(classes),
        "shares": _shares(outputs, expected),
        "warnings": [each._asdict() for each in warned],
    }


def _twin(outputs: EvalOutputs, rows: Labels, classes: Sequence[str]) -> dict[str, Any] | None:
    if outputs.twin is None:
        return None
    found = changed(outputs.last, outputs.twin.last)
    moved = found.moves * (1 - np.eye(len(classes), dtype=np.int64))
    most = np.argsort(-moved, axis=None, kind="stable")[:MOVES]
    pairs = [divmod(int(each), len(classes)) for each in most]
    return {
        "steps": outputs.twin.steps[-1],
        "source_accuracy": _percent(measured(outputs.twin.source[-1], outputs.twin.source_labels)),
        "agreement": _percent(found.agreement),
        "beyond_chance": round(found.kappa, 4),
        "changed": len(found.rows),
        "rows": rows[found.rows[:ROWS]].tolist(),
        "moves": [[classes[a], classes[b], int(moved[a, b])] for a, b in pairs if moved[a, b]],
    }


def _shares(outputs: EvalOutputs, expected: Numbers) -> dict[str, list[float] | None]:
    found: dict[str, Numbers | None] = {"source": expected, "target": class_shares.of_predictions(outputs.last)}
    found["twin"] = None if outputs.twin is None else class_shares.of_predictions(outputs.twin.last)
    on_source = outputs.source[-1], outputs.source_labels
    found["estimated"] = class_shares.estimated(outputs.last, *on_source) if outputs.holds_every_class else None
    return {name: None if each is None else each.round(5).tolist() for name, each in found.items()}


def _percent(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(100 * value, 2)
