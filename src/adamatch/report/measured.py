"""What was measured of a run: accuracies where there are labels; how many pseudo-labels there were, and how even."""

from collections.abc import Mapping
from typing import Any

from adamatch.base.cli_names import argument
from adamatch.base.console import percent
from adamatch.base.files import parse
from adamatch.images.tasks import Problem
from adamatch.train.run_folder import RunFolder


def measured(folder: RunFolder, problem: Problem) -> dict[str, Any]:
    """Accuracies in percent (None: not measured), and of the last pseudo-labels how many there were and how one-sided.

    median_of       of how many last evaluations the target's accuracy is the median; source_median_of: the source's
    tested          where the target's was measured after training: how
    mask            part of the unlabelled images that were sure enough to be learnt from
    largest         the class with the most pseudo-labels
    largest_share   its part of them; a class that swallows the others shows here
    """
    result, row = folder.result() or {}, _last_row(folder)
    counts = row.get("pseudo_labels") or []
    total = sum(counts)
    return {
        "target_accuracy": result.get("accuracy"),
        "median_of": median_of(result, "target"),
        "source_median_of": median_of(result, "source"),
        "tested": result.get("tested"),
        "source_accuracy": result.get("source_accuracy"),
        "held_out": len(problem.tests["source"]) if "source" in problem.tests else 0,
        "mask": row.get("mask"),
        "largest": problem.classes[counts.index(max(counts))] if total else None,
        "largest_share": max(counts) / total if total else None,
    }


def median_of(result: Mapping[str, Any], name: str) -> int:
    """Of how many evaluations a run's accuracy is the median: those from before its test set was given have none."""
    return min(result["median_of"], sum(name in row for row in result["evaluations"])) if result else 1


def of_last(count: int) -> str:
    """What an accuracy is, for a person."""
    return f"median of the last {count} evaluations" if count > 1 else "the last evaluation"


def lines(found: Mapping[str, Any], *, task: str, classes: int, estimated: bool = False) -> list[str]:
    """The same for a person to read; `estimated`: whether there is an estimate where nothing could be measured."""
    told = []
    target, source = (f" ({of_last(found[count])})" for count in ("median_of", "source_median_of"))
    if found["target_accuracy"] is not None:
        how = f" ({found['tested']})" if found["tested"] else target
        told.append(f"accuracy on the labelled target images: {found['target_accuracy']:.1f} %{how}")
    if found["source_accuracy"] is not None:
        whose = "" if task == "ssl" else "source "
        told.append(f"accuracy on {found['held_out']} held-out {whose}images: {found['source_accuracy']:.1f} %{source}")
    if task != "ssl" and found["target_accuracy"] is None and not estimated:
        why = f"no labelled target images were given to measure it ({argument('test')})"
        told.append(f"accuracy on the target: not known, as {why}")
    if found["mask"] is not None:
        told.append(f"target images above the confidence threshold, at the end: {found['mask']:.0%}")
    if found["largest_share"] is not None:
        share, even = percent(found["largest_share"]), percent(1 / classes)
        told.append(f"most frequent pseudo-label: {found['largest']}, {share} of them ({even} if classes were even)")
    return told


def _last_row(folder: RunFolder) -> dict[str, Any]:
    """The last line of metrics.jsonl; nothing where there is none."""
    try:
        row: dict[str, Any] = parse((folder.path / "metrics.jsonl").read_bytes().splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return {}
    return row
