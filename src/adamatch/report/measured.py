"""What was measured of a result: accuracy where there are labels, and of the last pseudo-labels how many and how even."""

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
    result, row = folder.result() or {}, _last_row(folder, len(problem.classes))
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


def median_of(result: Mapping[str, Any], name: str = "target") -> int:
    """Of how many evaluations an accuracy of a result.json is the median: those before its test set was added have none."""
    median, evaluations = result.get("median_of", 1), result.get("evaluations", [])
    if not isinstance(median, int) or not isinstance(evaluations, list):
        return 1
    return min(median, sum(isinstance(row, dict) and name in row for row in evaluations))


def of_last(count: int) -> str:
    """What an accuracy is, for a person."""
    return f"median of the last {count} evaluations" if count > 1 else "the last evaluation"


def lines(found: Mapping[str, Any], *, task: str, classes: int, estimated: bool = False) -> list[str]:
    """The same for a person to read; `estimated`: whether there is an estimate where nothing could be measured."""
    told = []
    counts = (
        found["median_of"],
        found.get("source_median_of", found["median_of"]),
    )  # models of earlier versions have the first
    target, source = (f" ({of_last(count)})" for count in counts)
    if found["target_accuracy"] is not None:
        how = f" ({found['tested']})" if found.get("tested") else target
        told.append(f"accuracy on the labelled target images: {found['target_accuracy']:.1f} %{how}")
    if found["source_accuracy"] is not None:
        whose = "" if task == "ssl" else "source "
        told.append(f"accuracy on {found['held_out']} held-out {whose}images: {found['source_accuracy']:.1f} %{source}")
    if task != "ssl" and found["target_accuracy"] is None and not estimated:
        told.append(
            f"accuracy on the target: not known, as no labelled target images were given to measure it ({argument('test')})"
        )
    if found["mask"] is not None:
        told.append(f"target images above the confidence threshold, at the end: {found['mask']:.0%}")
    if found["largest_share"] is not None:
        told.append(
            f"most frequent pseudo-label: {found['largest']}, {percent(found['largest_share'])} of them "
            f"({percent(1 / classes)} if classes were even)"
        )
    return told


def _last_row(folder: RunFolder, classes: int) -> dict[str, Any]:
    """The last line of metrics.jsonl; nothing where it is not one that a run writes."""
    try:
        row = parse((folder.path / "metrics.jsonl").read_bytes().splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return {}
    if not isinstance(row, dict):
        return {}
    counts, mask = row.get("pseudo_labels"), row.get("mask")
    numbers = [*(counts if isinstance(counts, list) else []), *([] if mask is None else [mask])]
    sound = all(isinstance(each, (int, float)) for each in numbers) and (counts is None or isinstance(counts, list))
    return row if sound and len(counts or []) in (0, classes) else {}
