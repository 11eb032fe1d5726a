"""What stands in the page's tables: the run beside its twin, its settings, versions and time."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from adamatch.report.image_statistics import Notes
from adamatch.report.prediction_summary import Answers
from adamatch.report.record import Record, number, section

ACCURACY = "accuracy on labelled target images"
TASKS = {
    "uda": "unsupervised domain adaptation",
    "ssl": "semi-supervised learning",
    "ssda": "semi-supervised domain adaptation",
    "oracle": "with all target labels",
}


def title(record: Record) -> str:
    """photo -> art."""
    source, target_labels, target = (str(record.run.get(name) or "") for name in ("source", "target_labels", "target"))
    source = " and ".join(filter(None, (source, target_labels)))
    if record.run.get("task") == "ssl" or not source or source == target:
        return target or record.path.name
    return f"{source} \u2192 {target}"


def facts(record: Record, notes: Notes) -> list[tuple[str, str]]:
    """A few words below the title."""
    task = str(record.run.get("task", ""))
    told = [
        ("method", str(record.run.get("method", "?"))),
        ("task", TASKS.get(task, task)),
        ("network", str(record.recipe.get("network", "?"))),
        ("classes", f"{len(record.classes)}" if record.classes else ""),
        ("source images", f"{notes.source.count:,}" if notes.source else ""),
        ("target images", f"{notes.target.count:,}" if notes.target else ""),
        ("seed", str(record.run.get("seed", ""))),
        ("trained", duration(record)),
    ]
    return [each for each in told if each[1]]


def duration(record: Record) -> str:
    seconds = number(record.result.get("seconds"))
    if seconds is None:
        seconds = number(record.rows[-1].get("seconds")) if record.rows else None
    if seconds is None:
        return ""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def beside(record: Record, found: Answers | None) -> list[tuple[str, str, str]]:
    """What is compared, of the twin and of the adapted network."""
    if record.twin is None:
        return []
    twin, ours = _measured(record.twin), _measured(record)
    if ACCURACY in twin and record.twin.test != record.test:
        twin[ACCURACY] = "\u2013"  # it is of other images
    return [(name, twin.get(name, "\u2013"), ours.get(name, "\u2013")) for name in dict.fromkeys([*twin, *ours])]


def _measured(record: Record) -> dict[str, str]:
    told: dict[str, str] = {}
    for name, key in (
        (ACCURACY, "accuracy"),
        ("accuracy on held-out source images", "source_accuracy"),
    ):
        value = number(record.result.get(key))
        if value is not None:
            told[name] = f"{value:.1f} %"
    if record.said:
        target = record.said["target"].astype(np.float32)
        told["mean confidence on the target"] = f"{target.max(1).mean():.0%}".replace("%", " %")
        counts = np.bincount(target.argmax(1), minlength=target.shape[1])
        largest = int(counts.argmax())
        name = record.classes[largest] if largest < len(record.classes) else str(largest)
        told["most frequent answer"] = f"{name}, {100 * counts[largest] / len(target):.0f} %"
        told["classes that are ever the answer"] = f"{int((counts > 0).sum())} of {len(counts)}"
    told["time of training"] = duration(record)
    return {name: text for name, text in told.items() if text}


def settings(record: Record) -> list[tuple[str, list[tuple[str, str]]]]:
    """Groups of names and values."""
    run = {name: value for name, value in record.run.items() if name not in ("recipe", "options")}
    run |= {f"option {name}": value for name, value in section(record.run, "options").items()}
    result = record.result
    made: dict[str, Any] = {
        name: result.get(name) for name in ("id", "date", "machine", "ranks", "weights") if result.get(name)
    }
    for name, key in (("seconds of training", "seconds"), ("seconds in all", "wall_seconds")):
        value = number(result.get(key))
        made |= {name: f"{value:,.1f}"} if value is not None else {}
    groups: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("Run", run),
        ("Recipe", record.recipe),
        ("Machine and time", made),
        ("Versions", section(result, "versions")),
    )
    return [
        (name, [(str(key).replace("_", " "), _text(value)) for key, value in group.items()])
        for name, group in groups
        if group
    ]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return (
        f"{value:,}" if isinstance(value, int) and value >= 10_000 else "\u2013" if value in ("", None) else str(value)
    )
