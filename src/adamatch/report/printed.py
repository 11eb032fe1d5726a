"""Results on the terminal: measurements of a run, predictions, and accuracy per class."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from adamatch.base.cli_names import argument
from adamatch.base.console import percent, print_table, say
from adamatch.base.errors import shown
from adamatch.base.files import parse, read_checked
from adamatch.evaluate import Score
from adamatch.images.checks import Finding
from adamatch.images.tasks import Problem
from adamatch.predictions import Predictions
from adamatch.train.run_folder import RunFolder
from adamatch.verdict import between_seeds, summary
from adamatch.verdict.verdict import TWIN

UNREADABLE, NAMED = 20, 3  # images that are named


def measured(folder: RunFolder, problem: Problem) -> dict[str, Any]:
    """Accuracies in percent (None: not measured), and statistics of the last pseudo-labels.

    twin_accuracy   of its twin, on the same images
    median_of       of how many last evaluations the target's accuracy is the median; source_median_of: the source's
    tested          where the target's was measured after training: how
    mask            share of the unlabelled images above the confidence threshold
    largest         the class with the most pseudo-labels
    largest_share   its share of them; near 1 the classes have collapsed
    seeds           where there were several: how they agreed (verdict/between_seeds.py)
    """
    result, row, twin = folder.result() or {}, _last_row(folder), RunFolder(folder.path / TWIN).result() or {}
    same_test = twin.get("run", {}).get("test") == result.get("run", {}).get("test")
    counts = row.get("pseudo_labels") or []
    total = sum(counts)
    return {
        "target_accuracy": result.get("accuracy"),
        "twin_accuracy": twin.get("accuracy") if same_test else None,
        "median_of": median_of(result, "target"),
        "source_median_of": median_of(result, "source"),
        "tested": result.get("tested"),
        "source_accuracy": result.get("source_accuracy"),
        "held_out": len(problem.tests["source"]) if "source" in problem.tests else 0,
        "mask": row.get("mask"),
        "largest": problem.classes[counts.index(max(counts))] if total else None,
        "largest_share": max(counts) / total if total else None,
        **({"seeds": result["seeds"]} if "seeds" in result else {}),
    }


def median_of(result: Mapping[str, Any], name: str) -> int:
    """Of how many evaluations a run's accuracy is the median; those before its test set was given do not count."""
    return min(result["median_of"], sum(name in row for row in result["evaluations"])) if result else 1


def of_last(count: int) -> str:
    """How an accuracy was taken."""
    return f"median of the last {count} evaluations" if count > 1 else "the last evaluation"


def verdict(known: Mapping[str, Any], found: Mapping[str, Any], folder: Path) -> list[str]:
    """What the page says first, in the same words, and what to do about it: from what was measured, and judge.json."""
    accuracy, its, twin = known["target_accuracy"], known["twin_accuracy"], found["twin"]
    measured = accuracy is not None and its is not None
    gain = accuracy - its if measured else summary.estimated_gain(found)
    told = [summary.how_good(accuracy, found["range"]["at_least"], found["range"]["at_best"])]
    if twin is not None:
        told.append(summary.what_changed(gain, 100 - twin["agreement"], measured=measured))
    if gain is None:
        return told
    words, tone = summary.head(gain, measured=measured)
    if tone == "poor" and measured:
        told.append(f"Take the twin instead: adamatch predict {shlex.quote(str(folder / TWIN))} IMAGES")
    elif tone == "poor":
        told.append(f"Measure both on labelled target images ({argument('test')}) before you take either.")
    return [f"{words}.", *told]


def lines(found: Mapping[str, Any], *, task: str, classes: int, estimated: bool = False) -> list[str]:
    """The same as text; `estimated`: whether there is an estimate without labels."""
    told = between_seeds.lines(found.get("seeds"))
    target, source = (f" ({of_last(found[count])})" for count in ("median_of", "source_median_of"))
    if found["target_accuracy"] is not None:
        how = f" ({found['tested']})" if found["tested"] else target
        told.append(f"accuracy on the labelled target images: {found['target_accuracy']:.1f} %{how}")
        if found["twin_accuracy"] is not None:
            told[-1] += f"; of the twin: {found['twin_accuracy']:.1f} %"
    if found["source_accuracy"] is not None:
        whose = "" if task == "ssl" else "source "
        told.append(f"accuracy on {found['held_out']} held-out {whose}images: {found['source_accuracy']:.1f} %{source}")
    if task != "ssl" and found["target_accuracy"] is None and not estimated:
        why = f"no labelled target images were given to measure it ({argument('test')})"
        told.append(f"accuracy on the target: not known, as {why}")
    if found["mask"] is not None:
        told.append(f"target images used as pseudo-labels, at the end: {found['mask']:.0%}")
    if found["largest_share"] is not None:
        share, even = percent(found["largest_share"]), percent(1 / classes)
        told.append(f"most frequent pseudo-label: {found['largest']}, {share} of them ({even} if classes were even)")
    return told


def _last_row(folder: RunFolder) -> dict[str, Any]:
    """The last line of metrics.jsonl; nothing where there is none."""
    try:
        row: dict[str, Any] = parse(read_checked(folder.path / "metrics.jsonl").splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return {}
    return row


def result(found: Mapping[str, Any], folder: Path) -> None:
    """Print the result of a benchmark's run, from its result.json."""
    for name, key in (("target", "accuracy"), ("source", "source_accuracy")):
        if found[key] is not None:
            say(f"{name} accuracy {found[key]:.2f} % ({of_last(median_of(found, name))})")
    say(f"{found['seconds']:.0f} s of training; the model is in {folder}")


def ending(model: Any, folder: Path) -> None:
    """Print the result of a `fit`, and what to do next."""
    found, task = model.history.get("judge"), model.history["run"]["task"]
    known = model.history["estimate"]
    first, last = (verdict(known, found, folder), summary.lines(found)) if found else ([], [])
    for line in (*first, *lines(known, task=task, classes=len(model.classes), estimated=found is not None), *last):
        say(line)
    say(f"the model is in {folder}: adamatch predict {shlex.quote(str(folder))} IMAGES")
    if (folder / "report.html").exists():
        say(f"to look at: {folder / 'report.html'}")


def findings(found: Sequence[Finding]) -> None:
    """What was found in the images before training, with the names of some: of unreadable ones of many."""
    table = Table("found in the images", "which", box=SIMPLE_HEAD)
    for each in found:
        names = list(each.files[: UNREADABLE if each.kind == "unreadable" else NAMED])
        more = [f"and {len(each.files) - len(names)} more"] if len(each.files) > len(names) else []
        table.add_row(Text(shown(each.line)), Text("\n".join(map(shown, names + more))))
    if found:
        print_table(table, stderr=True)


def predictions(found: Predictions, top: int = 1) -> None:
    """A row for each image; the next likely classes, up to `top`, stand beside the first."""
    table = Table("image", "class", box=SIMPLE_HEAD)
    table.add_column("probability", justify="right")
    for place in range(2, min(top, len(found.classes)) + 1):
        table.add_column(f"{place}.")
    for path, row, (first, *others) in zip(found.paths, found.probabilities, found.likeliest(top), strict=True):
        more = [Text(f"{shown(found.classes[each])} {row[each]:.1%}") for each in others]
        table.add_row(Text(shown(path)), Text(shown(found.classes[first])), f"{row[first]:.1%}", *more)
    print_table(table)


def score(found: Score) -> None:
    table = Table("class", box=SIMPLE_HEAD)
    for column in ("images", "accuracy"):
        table.add_column(column, justify="right")
    table.add_column("mistaken for")
    for number, (name, count, accuracy) in enumerate(found.per_class()):
        wrong = found.confusion[number].copy()
        wrong[number] = 0
        other = f"{found.classes[int(wrong.argmax())]} ({wrong.max()})" if wrong.any() else ""
        table.add_row(Text(shown(name)), str(count), f"{accuracy:.1f} %" if count else "-", Text(shown(other)))
    print_table(table)
    say(f"accuracy {found.accuracy:.2f} % on {int(found.confusion.sum())} images")
    say(f"balanced accuracy {found.balanced_accuracy:.2f} %, macro-F1 {found.macro_f1:.2f} %")
