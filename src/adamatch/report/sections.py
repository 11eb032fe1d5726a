"""The content of the page's sections, from a run's record and the statistics of its images."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adamatch.base.console import duration
from adamatch.evaluate import Score
from adamatch.images.store import Labels
from adamatch.report.image_statistics import ImageStatistics
from adamatch.report.pool import Pool
from adamatch.report.record import Record
from adamatch.verdict import between_seeds, eval_outputs, summary
from adamatch.verdict.verdict import ALONE

ACCURACY = "accuracy on labelled target images"
TASKS = {
    "uda": "unsupervised domain adaptation",
    "ssl": "semi-supervised learning",
    "ssda": "semi-supervised domain adaptation",
    "oracle": "with all target labels",
}
MOVES = 8  # the most frequent changes from one class to another
PAIRS = 12  # the most frequent mistakes, where a table of all would be too large
WIDEST = 30  # classes in a table of confusions, and in any other in the order of the classes
TOP = 20  # of more classes, the rows that are shown at once: the worst
FIRST = 12  # classes whose pictures are shown at once: those with the most doubtful images
LISTED = 100  # classes whose pictures are on the page at all
PICTURES = 700  # about so many fit on a page
UNSURE = 0.5  # confidence


@dataclass(frozen=True)
class Predicted:
    """Of n target images: rows in the pool, predicted classes, confidence, and the twin's classes; each [n]."""

    rows: Labels
    classes: Labels
    confidence: NDArray[np.float32]
    twin: Labels | None

    @property
    def changed(self) -> NDArray[np.bool_]:
        return np.zeros(len(self.rows), bool) if self.twin is None else self.twin != self.classes


def predicted(record: Record, images: ImageStatistics) -> Predicted | None:
    """At the last evaluation; None where there was none yet."""
    if not record.outputs:
        return None
    probabilities = record.outputs["target"].astype(np.float32)
    rows = eval_outputs.sampled_rows(images.target.count if images.target else len(probabilities))
    if len(rows) != len(probabilities):  # other images than those of the run
        rows = np.full(len(probabilities), -1, np.int64)
    twin = None
    if record.twin is not None and record.twin.outputs and record.twin.outputs["target"].shape == probabilities.shape:
        twin = record.twin.outputs["target"].argmax(1)
    return Predicted(rows, probabilities.argmax(1), probabilities.max(1), twin)


def verdict(record: Record, found: Predicted | None) -> dict[str, Any]:
    """Two sentences, and the numbers beside them: in percent, None where not known.

    `tone` (good, poor, open) is a class of the style sheet; `accuracy` and `twin` are measured on labelled images.
    """
    span, accuracy = record.verdict.get("range", {}), record.accuracy
    low, high = span.get("at_least"), span.get("at_best")
    twin = record.twin.accuracy if record.twin and record.twin.test == record.test else None  # of the same images
    measured = accuracy is not None and twin is not None
    gain = accuracy - twin if accuracy is not None and twin is not None else summary.estimated_gain(record.verdict)
    compared = found is not None and found.twin is not None and len(found.rows)
    changed = 100 * float(found.changed.mean()) if found and compared else None
    head, tone = _head(record, gain, measured)
    return {
        "head": head,
        "tone": tone,
        "sentences": (_how_good(record, low, high), _what_changed(record, gain, changed, measured)),
        "seeds": between_seeds.lines(record.result.get("seeds")),
        "accuracy": accuracy,
        "at_least": low,
        "at_best": high,
        "gain": gain,
        "measured_gain": measured,
        "changed": changed,
        "twin": twin,
        "chance": 100 / len(record.classes) if record.classes else None,
    }


def _head(record: Record, gain: float | None, measured: bool) -> tuple[str, str]:
    if not record.result:
        return "Under way", "open"
    if gain is None:
        return ("Trained without adaptation" if record.run.method == ALONE else "Trained"), "open"
    return summary.head(gain, measured=measured)


def _how_good(record: Record, low: float | None, high: float | None) -> str:
    if not record.result:
        done, last = int(record.rows[-1]["step"]) if record.rows else 0, record.run.recipe.last_step
        return f"The run has done {done:,} of {last:,} steps: what is below is from its last evaluation."
    return summary.how_good(record.accuracy, low, high)


def _what_changed(record: Record, gain: float | None, changed: float | None, measured: bool) -> str:
    if record.run.method == ALONE:
        return "It was trained on labelled images alone: the target images changed nothing."
    if record.twin is None:
        return "What adaptation changed is not known: there is no twin trained on the labelled images alone beside it."
    return summary.what_changed(gain, changed, measured=measured)


def title(record: Record) -> str:
    """photo -> art."""
    source, target = " and ".join(filter(None, (record.run.source, record.run.target_labels))), record.run.target
    if record.run.task == "ssl" or not source or source == target:
        return target or record.path.name
    return f"{source} \u2192 {target}"


def facts(record: Record, images: ImageStatistics) -> list[tuple[str, str]]:
    """The line below the title."""
    run = record.run
    told = {
        "method": run.method,
        "task": TASKS.get(run.task, run.task),
        "network": run.recipe.network,
        "classes": f"{len(record.classes)}" if record.classes else "",
        "source images": f"{images.source.count:,}" if images.source else "",
        "target images": f"{images.target.count:,}" if images.target else "",
        "seed": str(run.seed) if run.seeds == 1 else f"{run.seed} to {run.each_seed[-1].seed}",
        "trained": training_time(record),
    }
    return [(name, text) for name, text in told.items() if text]


def training_time(record: Record) -> str:
    seconds = record.result.get("seconds", record.rows[-1].get("seconds") if record.rows else None)
    return "" if seconds is None else duration(seconds)


def beside(record: Record) -> list[tuple[str, str, str]]:
    """Rows of a table: a name, the twin's value, and the model's."""
    if record.twin is None:
        return []
    twin, ours = _measured(record.twin), _measured(record)
    if ACCURACY in twin and record.twin.test != record.test:
        twin[ACCURACY] = "\u2013"  # it is of other images
    return [(name, twin.get(name, "\u2013"), ours.get(name, "\u2013")) for name in dict.fromkeys([*twin, *ours])]


def _measured(record: Record) -> dict[str, str]:
    told: dict[str, str] = {}
    for name, key in ((ACCURACY, "accuracy"), ("accuracy on held-out source images", "source_accuracy")):
        value = record.result.get(key)
        if value is not None:
            told[name] = f"{value:.1f} %"
    if record.outputs:
        target = record.outputs["target"].astype(np.float32)
        told["mean confidence on the target"] = f"{100 * target.max(1).mean():.0f} %"
        counts = np.bincount(target.argmax(1), minlength=target.shape[1])
        largest = int(counts.argmax())
        name = record.classes[largest] if largest < len(record.classes) else str(largest)
        told["most frequent prediction"] = f"{name}, {100 * counts[largest] / len(target):.0f} %"
        told["classes that are ever predicted"] = f"{int((counts > 0).sum())} of {len(counts)}"
    told["time of training"] = training_time(record)
    return {name: text for name, text in told.items() if text}


def settings(record: Record) -> list[tuple[str, list[tuple[str, str]]]]:
    """Settings in groups, each with names and values."""
    run = json.loads(record.run.to_json())
    recipe, options, digests = (run.pop(name) for name in ("recipe", "options", "digests"))
    run |= {f"option {name}": value for name, value in options.items()}
    run |= {f"digest of {role}": value for role, value in digests.items()}
    result = record.result
    made = {name: result[name] for name in ("id", "date", "machine", "ranks", "weights") if result.get(name)}
    for name, key in (("seconds of training", "seconds"), ("seconds in all", "wall_seconds")):
        made |= {name: f"{result[key]:,.1f}"} if key in result else {}
    versions = result.get("versions", {})
    groups = {"Run": run, "Recipe": recipe, "Machine and time": made, "Versions": versions}
    return [(name, _shown(group)) for name, group in groups.items() if group]


def _shown(group: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _text(value)) for name, value in group.items()]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}"
    return "\u2013" if value in ("", None) else str(value)


def shares(found: Predicted | None, images: ImageStatistics, record: Record) -> list[dict[str, Any]]:
    """A row for each class: its share, in percent, of source labels and of the twin's and the model's predictions.

    Where the verdict has one, also the estimated share of the target. Of many classes those come first whose share
    adaptation changed the most.
    """
    classes = record.classes
    columns: dict[str, Labels] = {}
    if images.source is not None and images.source.labels:
        columns["source"] = np.array(images.source.labels, np.int64)
    if found is not None:
        columns |= {"twin": found.twin} if found.twin is not None else {}
        columns["adapted"] = found.classes
    if not columns or not classes:
        return []
    parts = {name: percentages(each, len(classes)) for name, each in columns.items()}
    estimated = record.verdict.get("shares", {}).get("estimated")
    if estimated is not None and len(estimated) == len(classes):
        parts["estimated"] = 100 * np.array(estimated, np.float64)
    compared = [parts["twin"], parts["adapted"]] if "twin" in parts else list(parts.values())
    order = worst_first(np.ptp(compared, axis=0))
    return [{"name": classes[i]} | {kind: float(part[i]) for kind, part in parts.items()} for i in order]


def percentages(labels: Labels, classes: int) -> NDArray[np.float64]:
    """[k]: the share of each class in percent."""
    return np.bincount(labels, minlength=classes) * 100 / max(1, len(labels))


def worst_first(values: NDArray[Any]) -> list[int]:
    """Classes in their order; if they are many, those with the largest values first."""
    order: list[int] = np.argsort(-values, kind="stable").tolist()
    return order if len(order) > WIDEST else sorted(order)


def moves(found: Predicted, classes: Sequence[str]) -> list[tuple[str, str, int]]:
    """(twin's class, model's class, images): the most frequent changes first."""
    assert found.twin is not None
    return _pairs(_table(found.twin, found.classes, len(classes)), classes, MOVES)


class Picture(NamedTuple):
    row: int
    name: str  # of its file
    caption: str = ""
    detail: str = ""  # for a closer look
    marks: str = ""  # "unsure", "changed": what the page's filters look for

    @property
    def alt(self) -> str:
        return f"{self.name}: {self.detail}" if self.detail else self.name


def galleries(found: Predicted, target: Pool, classes: Sequence[str], each: int) -> list[dict[str, Any]]:
    """For every class, images of a kind that are predicted as it; the classes with the most doubtful images first.

    Doubtful are those that adaptation changed, and those that the model is unsure of. There are `each` of a kind of
    the first classes, fewer of the others.
    """
    unsure = found.confidence < UNSURE

    def picture(index: int, caption: str = "") -> Picture:
        row, sure = int(found.rows[index]), f"{found.confidence[index]:.0%}"
        detail, marks = f"{classes[found.classes[index]]}, {sure} sure", ["unsure"] if unsure[index] else []
        if found.twin is not None and found.changed[index]:
            detail, marks = f"{detail}; the twin said {classes[found.twin[index]]}", [*marks, "changed"]
        return Picture(row, target.name(row), caption or sure, detail, " ".join(marks))

    counts, doubtful = (
        np.bincount(found.classes[which], minlength=len(classes)) for which in (slice(None), found.changed | unsure)
    )
    order, made = np.lexsort((-counts, -doubtful))[:LISTED].tolist(), []
    for kind, count in zip(order, _room(each, len(order), 3), strict=True):
        mine = np.flatnonzero(found.classes == kind)
        mine = mine[np.argsort(-found.confidence[mine], kind="stable")]
        moved = mine[found.changed[mine]]
        strips = {
            "Surest": [picture(index) for index in mine[:count]],
            "Least sure": [picture(index) for index in mine[count:][::-1][:count]],
            "Changed": [picture(index, f"was {classes[found.twin[index]]}") for index in moved[:count]]
            if found.twin is not None
            else [],
        }
        made.append(
            {
                "names": (classes[kind],),
                "kinds": (kind,),
                "total": len(mine),
                "changed": len(moved),
                "unsure": int(unsure[mine].sum()),
                "strips": {name: strip for name, strip in strips.items() if strip},
            }
        )
    return made


def _room(each: int, groups: int, strips: int) -> list[int]:
    """Of how many pictures a strip is: `each` in the first groups, in the others as many as the page has room for."""
    rest = (PICTURES - strips * each * FIRST) // (strips * max(1, groups - FIRST))
    return [each if place < FIRST else max(1, min(each, rest)) for place in range(groups)]


def names_of(galleries: Sequence[Mapping[str, Any]]) -> list[tuple[int, Picture]]:
    """Every picture once, with the number of its gallery."""
    found = {picture.row: (number, picture) for number, each in enumerate(galleries) for picture in pictures_of(each)}
    return list(found.values())


def pictures_of(gallery: Mapping[str, Any]) -> list[Picture]:
    return [picture for strip in gallery["strips"].values() for picture in strip]


def mistaken(found: Score, pool: Pool, each: int) -> list[dict[str, Any]]:
    """For every pair of a class and another that its images were taken for, the most frequent first: `each` images.

    Those that the model was surest of come first.
    """
    k, rows = len(found.classes), found.mistakes()
    pairs = found.truth[rows] * k + found.predicted[rows]
    kinds, counts = np.unique(pairs, return_counts=True)
    order, made = np.argsort(-counts, kind="stable")[:LISTED].tolist(), []
    for place, count in zip(order, _room(each, len(order), 1), strict=True):
        is_, taken = divmod(int(kinds[place]), k)
        mine = rows[pairs == kinds[place]].tolist()
        sure = [f"{found.confidence[row]:.0%}" for row in mine[:count]]
        detail = f"is {found.classes[is_]}, taken for {found.classes[taken]}"
        strip = [
            Picture(
                row, pool.name(row), how, f"{detail}, {how} sure", "unsure" if found.confidence[row] < UNSURE else ""
            )
            for row, how in zip(mine, sure, strict=False)
        ]
        made.append(
            {
                "names": (found.classes[is_], found.classes[taken]),
                "kinds": (is_, taken),
                "total": len(mine),
                "changed": 0,
                "unsure": int((found.confidence[mine] < UNSURE).sum()),
                "strips": {"": strip},
            }
        )
    return made


def confusion(title: str, counts: NDArray[np.int64], classes: Sequence[str]) -> dict[str, Any] | None:
    """Of counts[class, prediction]; `wide`: whether the table needs all the width there is.

    rows: (class, images, accuracy in percent, cells); a cell: (count, share of its row in percent, right or not).
    pairs: (true class, predicted class, how many). worst: what `by_class` gives. Of many classes there are no rows.
    """
    if counts.shape != (len(classes), len(classes)) or not counts.sum():
        return None
    rows = []
    for i, name in enumerate(classes) if len(classes) <= WIDEST else ():
        of_class = int(counts[i].sum())
        cells = [(int(n), round(100 * int(n) / max(1, of_class)), i == j) for j, n in enumerate(counts[i])]
        rows.append((name, of_class, 100 * int(counts[i, i]) / max(1, of_class), cells))
    total, wide = int(counts.sum()), not rows or sum(max(4, len(name)) for name, *_ in rows) > 44
    found = {"title": title, "accuracy": 100 * int(np.trace(counts)) / total, "total": total}
    found |= {"rows": rows, "wide": wide, "pairs": _pairs(counts, classes, PAIRS)}
    return found | {"worst": [] if rows else by_class(counts, classes)}


def by_class(counts: NDArray[np.int64], classes: Sequence[str]) -> list[tuple[str, int, int, str]]:
    """(class, images, how many are wrong, the class that most of these were taken for), the most wrong first."""
    off = counts.copy()
    np.fill_diagonal(off, 0)
    wrong = off.sum(1)
    return [
        (classes[i], int(counts[i].sum()), int(wrong[i]), classes[off[i].argmax()] if wrong[i] else "")
        for i in np.argsort(-wrong, kind="stable").tolist()
        if counts[i].any()
    ]


def confusions(record: Record, images: ImageStatistics) -> list[dict[str, Any]]:
    """Of labelled target images, if there were any, and of held-out source images."""
    found = []
    if images.confusion is not None:
        found.append(confusion("Labelled target images", images.confusion, record.classes))
    if "source" in record.outputs and len(record.source_labels):
        table = _table(record.source_labels, record.outputs["source"].argmax(1), len(record.classes))
        found.append(confusion("Held-out source images", table, record.classes))
    return [each for each in found if each is not None]


def _table(first: Labels, second: Labels, classes: int) -> NDArray[np.int64]:
    return np.bincount(first * classes + second, minlength=classes * classes).reshape(classes, classes)


def _pairs(table: NDArray[np.int64], classes: Sequence[str], most: int) -> list[tuple[str, str, int]]:
    off = table.copy()
    np.fill_diagonal(off, 0)
    order = [divmod(int(at), len(classes)) for at in np.argsort(-off, axis=None, kind="stable")[:most]]
    return [(classes[i], classes[j], int(off[i, j])) for i, j in order if off[i, j] > 0]
