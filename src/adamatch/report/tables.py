"""What stands in the page's tables: the run beside its twin, its settings, versions and time."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from adamatch.report.image_statistics import Notes
from adamatch.report.record import Record

ACCURACY = "accuracy on labelled target images"
TASKS = {
    "uda": "unsupervised domain adaptation",
    "ssl": "semi-supervised learning",
    "ssda": "semi-supervised domain adaptation",
    "oracle": "with all target labels",
}


def title(record: Record) -> str:
    """photo -> art."""
    source, target = " and ".join(filter(None, (record.run.source, record.run.target_labels))), record.run.target
    if record.run.task == "ssl" or not source or source == target:
        return target or record.path.name
    return f"{source} \u2192 {target}"


def facts(record: Record, notes: Notes) -> list[tuple[str, str]]:
    """A few words below the title."""
    run = record.run
    told = {
        "method": run.method,
        "task": TASKS.get(run.task, run.task),
        "network": run.recipe.network,
        "classes": f"{len(record.classes)}" if record.classes else "",
        "source images": f"{notes.source.count:,}" if notes.source else "",
        "target images": f"{notes.target.count:,}" if notes.target else "",
        "seed": str(run.seed),
        "trained": duration(record),
    }
    return [(name, text) for name, text in told.items() if text]


def duration(record: Record) -> str:
    seconds = record.result.get("seconds", record.rows[-1].get("seconds") if record.rows else None)
    if seconds is None:
        return ""
    if seconds < 7200:
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def beside(record: Record) -> list[tuple[str, str, str]]:
    """What is compared, of the twin and of the adapted network."""
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
    if record.said:
        target = record.said["target"].astype(np.float32)
        told["mean confidence on the target"] = f"{100 * target.max(1).mean():.0f} %"
        counts = np.bincount(target.argmax(1), minlength=target.shape[1])
        largest = int(counts.argmax())
        name = record.classes[largest] if largest < len(record.classes) else str(largest)
        told["most frequent answer"] = f"{name}, {100 * counts[largest] / len(target):.0f} %"
        told["classes that are ever the answer"] = f"{int((counts > 0).sum())} of {len(counts)}"
    told["time of training"] = duration(record)
    return {name: text for name, text in told.items() if text}


def settings(record: Record) -> list[tuple[str, list[tuple[str, str]]]]:
    """Groups of names and values."""
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
