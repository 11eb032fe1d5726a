"""The paper's tables from finished runs, the paper's figures beside ours."""

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from adamatch.grid import published
from adamatch.grid.figures import Done, figure, finished, grouped
from adamatch.grid.render import Cell, Figure, Table

METHODS = {  # rows in the paper's order
    "supervised": "Supervised",
    "baseline_bn": "BaselineBN",
    "mcd": "MCD",
    "noisystudent": "NoisyStudent",
    "fixmatch+": "FixMatch+",
    "adamatch": "AdaMatch",
    "oracle": "Oracle",
}
VARIANTS = {  # rows after the method itself, in this order; others after them
    "interpolate=False": "without random logit interpolation",
    "align=none": "without distribution alignment",
    "align=labels": "aligned to source labels (ReMixMatch)",
    "threshold=fixed": "without relative confidence threshold",
    "strong=cutout": "cutout alone as the strong view",
    "strong=cta": "CTAugment, then cutout as the strong view",
    "pools=2": "threshold and alignment from the source alone, as in the authors' code (pools=2)",
    "repeat=False": "no labelled image twice in a step (repeat=False)",
    "repeat=True, target_labels_from=0.0": "target labels from the first step on, repeated, as in the paper",
    "target_label_steps=1": "as many target labels in each step as there is room for",
    "target_labels_from=0.0": "target labels from the first step on",
    "target_labels_from=0.0, target_label_steps=1": "target labels from the first step on, as many in each as fit",
}
TASKS = ("uda", "ssl", "ssda")
SPREAD = "± is the standard deviation over seeds; {}."
BOLD = " Bold is what leads all others by more than both standard deviations together."
PAPER = " In parentheses the paper's figure{}."
WIDER = " (* the paper's mean over all pairs of the benchmark, ours over those that are here)"
ONLY = " [n]: the mean over n of the pairs; do not compare it with means over other pairs."


def tables(results: Iterable[dict[str, Any]], detail: bool = False) -> list[Table]:
    """Methods by task and labels, pairs, variants; with `detail` every cell with its images, seconds and seeds."""
    done = sorted(finished(results), key=_order)
    plain = [each for each in done if not each.variant]
    made = [*_summaries(plain), *matrices(plain), *_variants(done)]
    if detail:
        made.append(_every_cell(done))
    if done:
        made[-1] = replace(made[-1], notes=[*made[-1].notes, _evidence(done)])
    return made


def _order(done: Done) -> tuple[Any, ...]:
    """Benchmarks as the paper names them, UDA before SSL before SSDA."""
    benchmark, task, labels = done.setting
    suite = published.SUITES.index(benchmark) if benchmark in published.SUITES else len(published.SUITES)
    known = ["", *VARIANTS]
    variant = known.index(done.variant) if done.variant in known else len(known)
    return suite, benchmark, TASKS.index(task), labels, done.method, variant, done.variant, done.pair


def _summaries(done: Sequence[Done]) -> Iterator[Table]:
    """Methods against tasks and labels: a table for one benchmark; of several, as in the paper, one for each task."""
    several = len({each.run.benchmark for each in done}) > 1

    def column(each: Done) -> str:
        benchmark, task, labels = each.setting
        return (benchmark if several else task.upper()) + (f", {labels} per class" if labels else "")

    groups = grouped(done, lambda each: each.task.upper() if several else each.run.benchmark)
    for title in sorted(groups, key=[task.upper() for task in TASKS].index) if several else groups:
        cells = [(METHODS[each.method], column(each), each) for each in groups[title]]
        columns = dict.fromkeys(name for _, name, _ in cells)
        yield table(f"{title}: accuracy on the target", "method", cells, METHODS.values(), columns)


def matrices(done: Sequence[Done], least: int = 3) -> Iterator[Table]:
    """For every method with so many pairs or more, source against target."""
    for mine in grouped(done, lambda each: (each.setting, each.method)).values():
        if mine[0].task != "ssl" and len({each.pair for each in mine}) >= least:
            sources, targets = (sorted(set(names)) for names in zip(*(each.pair for each in mine), strict=True))
            title = f"{mine[0].title}, {METHODS[mine[0].method]}: every pair"
            cells = [(*each.pair, each) for each in mine]
            yield table(title, "source \\ target", cells, sources, targets, compared=False)


def _variants(done: Sequence[Done]) -> Iterator[Table]:
    """For every method that was varied: its variants, and itself on the pairs and seeds that any of them was run on."""
    for group in grouped(done, lambda each: (each.setting, each.method)).values():
        varied = {(each.pair, each.run.seed) for each in group if each.variant}
        if not varied:
            continue
        mine = [each for each in group if (each.pair, each.run.seed) in varied]
        name = METHODS[mine[0].method]
        cells = [(VARIANTS.get(each.variant, each.variant) or name, _arrow(each.pair), each) for each in mine]
        columns = [_arrow(pair) for pair in sorted({pair for pair, _ in varied})]
        if len(columns) > 1:
            columns.insert(0, "mean")
            cells += [(row, "mean", each) for row, _, each in cells]
        rows = dict.fromkeys(row for row, _, _ in cells)
        yield table(f"{mine[0].title}: variants of {name}", "variant", cells, rows, columns)


def _every_cell(done: Sequence[Done]) -> Table:
    """Accuracy, number of seeds, and what a run took."""
    rows: list[list[Cell]] = []
    order = list(METHODS)
    done = sorted(done, key=lambda each: (*_order(each)[:4], each.pair, order.index(each.method), each.variant))
    for mine in grouped(done, lambda each: (each.setting, each.pair, each.method, each.variant)).values():
        first, accuracy = mine[0], figure(mine)
        benchmark, task, labels = first.setting
        name = f"{benchmark} {task.upper()}{labels or ''} {_arrow(first.pair)}, {METHODS[first.method]}"
        name += f" ({first.variant})" if first.variant else ""
        rows.append([name, accuracy, f"{accuracy.n}", f"{first.run.recipe.images:,}", _seconds(mine)])
    notes = [SPREAD.format("seconds are of training, the mean over seeds") + _explained(row[1] for row in rows)]
    return Table("every cell", ["run", "accuracy", "seeds", "images", "seconds"], rows, notes)


def _seconds(done: Sequence[Done]) -> str:
    """Means over seeds; apart for runs that shared a GPU with different numbers of others."""
    means = []
    for count, mine in sorted(grouped(done, lambda each: each.at_a_time).items()):
        mean = statistics.fmean(each.result.get("seconds") or 0.0 for each in mine)
        means.append(f"{mean:.0f}{f' ({count} at a time)' if count > 1 else ''}")
    return ", ".join(means)


def _evidence(done: Sequence[Done]) -> str:
    """Where, with what and when the figures were measured."""

    def all_of(values: Iterable[str]) -> str:
        return " and ".join(sorted({value for value in values if value}))

    results = [each.result for each in done]
    sessions = (session for result in results for session in result.get("machine", "").split(", then "))
    machines = all_of(re.sub(r", \d+ runs at a time$", "", session) for session in sessions)
    if (shared := sorted({each.at_a_time for each in done})) != [1]:
        machines += f", {' or '.join(map(str, shared))} runs at a time"
    each_versions = (result.get("versions", {}).items() for result in results)
    versions = all_of(", ".join(f"{name} {number}" for name, number in each) for each in each_versions)
    days = sorted(result.get("date", "")[:10] for result in results)
    return f"Measured on {machines}; {versions}; {' to '.join(sorted({days[0], days[-1]}))}."


def table(
    title: str,
    corner: str,
    cells: Iterable[tuple[str, str, Done]],
    rows: Iterable[str],
    columns: Iterable[str],
    compared: bool = True,
) -> Table:
    """Figures of runs with the same row and column; a dash where there is none, no row where there is nothing.

    `compared`: rows are of the same pairs, so that the best can be told.
    """
    groups = {place: [cell[2] for cell in group] for place, group in grouped(cells, lambda cell: cell[:2]).items()}
    columns = list(columns)
    rows = [row for row in rows if any((row, column) in groups for column in columns)]
    found: dict[tuple[str, str], Figure] = {}
    for column in columns:
        mine = {row: groups[row, column] for row in rows if (row, column) in groups}
        figures = _compared(mine) if compared else {row: figure(group) for row, group in mine.items()}
        found |= {(row, column): each for row, each in figures.items()}
    covered = max(len({each.pair for each in groups[place]}) for place in found)
    counts = sorted({each.n for each in found.values()})
    seeds = f"n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seed{'s' * (counts[-1] > 1)}"
    note = SPREAD.format(seeds + (f", means over up to {covered} pairs" if covered > 1 else ""))
    lines = [[row, *(found.get((row, column), "-") for column in columns)] for row in rows]
    return Table(title, [corner, *columns], lines, [note + _explained(found.values())])


def _compared(groups: dict[str, list[Done]]) -> dict[str, Figure]:
    """A column's figures by row. One that is over fewer pairs than others says so; of the rest the best is marked.

    The best leads all others (but for oracles) by more than both standard deviations, which one seed does not tell.
    """
    pairs = {row: {each.pair for each in group} for row, group in groups.items()}
    everything = set().union(*pairs.values())
    figures = {}
    for row, group in groups.items():
        figures[row] = replace(figure(group), only=len(pairs[row]) if pairs[row] != everything else 0)
    rivals = [row for row, each in figures.items() if not each.only and row != METHODS["oracle"]]
    first, *others = sorted(rivals, key=lambda row: -figures[row].mean) or [""]
    if others and all(figures[first].leads(figures[other]) for other in others):
        figures[first] = replace(figures[first], best=True)
    return figures


def _explained(cells: Iterable[Cell]) -> str:
    figures = [cell for cell in cells if isinstance(cell, Figure)]
    paper = PAPER.format(WIDER * any(each.wider for each in figures)) * any(each.paper is not None for each in figures)
    return paper + ONLY * any(each.only for each in figures) + BOLD * any(each.best for each in figures)


def _arrow(pair: tuple[str, str]) -> str:
    return " -> ".join(filter(None, pair))
