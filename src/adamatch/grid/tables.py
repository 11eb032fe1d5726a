"""The paper's tables from what finished runs say of themselves, the paper's figures beside ours."""

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from adamatch.grid import pretraining, published
from adamatch.grid.experiments import PROTOCOLS
from adamatch.grid.figures import Done, beside, cells_of, figure
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
    "repeat=True, late=0.0": "target labels from the first step on, repeated, as in the paper",
    "spread=1": "as many target labels in each step as there is room for (spread=1)",
    "late=0.0": "target labels from the first step on (late=0)",
    "late=0.0, spread=1": "target labels from the first step on, as many in each as there is room for (late=0, spread=1)",
    "form=0": "as it was before a correction (form=0)",
}
COUNTED = "± is the standard deviation over seeds; {}."
BOLD = " Bold is what leads all others by more than both standard deviations together."
BESIDE = "In parentheses the paper's figure"
WIDER = "* the paper's mean over all pairs of the benchmark, ours over those that are here"
ONLY = "[n]: the mean over n of the pairs; do not compare it with means over other pairs"


def tables(results: Iterable[dict[str, Any]], detail: bool = False) -> list[Table]:
    """Methods by task and labels, pairs, variants; with `detail` every cell with its images, seconds and seeds."""
    done = cells_of(results)
    plain = [each for each in done if not each.variant]
    made = [
        *_summaries(plain),
        *_side_by_side(plain),
        *_matrices(plain),
        *pretraining.tables(done, METHODS),
        *_variants(done),
    ]
    if detail:
        made.append(_cells(done))
    if made and done:
        made[-1] = replace(made[-1], notes=[*made[-1].notes, _evidence(done)])
    return made


def _summaries(done: Sequence[Done]) -> list[Table]:
    """Methods against tasks and labels: a table for one benchmark, or, as in the paper, one for each task of several."""
    columns = sorted({each.setting for each in done}, key=_order)
    benchmarks = list(dict.fromkeys(benchmark for benchmark, _, _ in columns))
    if len(benchmarks) == 1:
        groups = {benchmarks[0]: columns}
    else:
        groups = {task.upper(): [each for each in columns if each[1] == task] for task in ("uda", "ssl", "ssda")}

    def name(benchmark: str, task: str, labels: int) -> str:
        parts = [benchmark if len(benchmarks) > 1 else task.upper(), f"{labels} per class" if labels else ""]
        return ", ".join(part for part in parts if part)

    made = []
    for title, keys in groups.items():
        if not keys:
            continue
        cells = {
            (method, key): [each for each in done if (each.method, each.setting) == (method, key)]
            for method in METHODS
            for key in keys
        }
        rows = [(METHODS[method], [cells[method, key] for key in keys]) for method in METHODS]
        made.append(_table(f"{title}: accuracy on the target", "method", [name(*key) for key in keys], rows))
    return made


def _side_by_side(done: Sequence[Done]) -> list[Table]:
    """Where some methods have more pairs than others: every pair that several have, by itself."""
    made = []
    for key in sorted({each.setting for each in done}, key=_order):
        mine = [each for each in done if each.setting == key]
        have = {method: {each.pair for each in mine if each.method == method} for method in METHODS}
        pairs = sorted(
            pair for pair in set().union(*have.values()) if sum(pair in those for those in have.values()) > 1
        )
        if not pairs or len({frozenset(those) for those in have.values() if those}) == 1:
            continue
        rows = [
            (name, [[each for each in mine if (each.method, each.pair) == (method, pair)] for pair in pairs])
            for method, name in METHODS.items()
        ]
        made.append(
            _table(f"{_titled(key)}: methods on the same pairs", "method", [_arrow(pair) for pair in pairs], rows)
        )
    return made


def _matrices(done: Sequence[Done]) -> list[Table]:
    """For every method with three pairs or more, source against target."""
    made = []
    keys = {(*each.setting, each.method) for each in done if each.task != "ssl"}
    for *setting, method in sorted(keys, key=_order):
        mine = [each for each in done if (*each.setting, each.method) == (*setting, method)]
        if len({each.pair for each in mine}) < 3:
            continue
        sources = sorted({each.run.source for each in mine})
        targets = sorted({each.run.target for each in mine})
        rows = [
            (source, [[each for each in mine if each.pair == (source, target)] for target in targets])
            for source in sources
        ]
        title = f"{_titled(mine[0].setting)}, {METHODS[method]}: every pair"
        made.append(_table(title, "source \\ target", targets, rows, compared=False))
    return made


def _variants(done: Sequence[Done]) -> list[Table]:
    """For every method that was varied: its variants, and itself on the pairs and seeds that any of them was run on."""
    made = []
    keys = {(*each.setting, each.method) for each in done if each.variant}
    for benchmark, task, labels, method in sorted(keys, key=_order):
        mine = [each for each in done if (*each.setting, each.method) == (benchmark, task, labels, method)]
        shared = {(each.pair, each.run.seed) for each in mine if each.variant}
        mine = [each for each in mine if (each.pair, each.run.seed) in shared]
        varied = {pair for pair, _ in shared}
        pairs = sorted(varied)
        names = [_arrow(pair) for pair in pairs]
        of_paper = benchmark == "domainnet64" and method == "adamatch" and varied == set(PROTOCOLS)
        rows = []
        for text in sorted({each.variant for each in mine}, key=_rank):
            row = [each for each in mine if each.variant == text]
            by_pair = [[each for each in row if each.pair == pair] for pair in pairs]
            rows.append((_named(text, method), [row, *by_pair] if len(pairs) > 1 else by_pair))
        columns = ["mean", *names] if len(pairs) > 1 else names
        table = _table(
            f"{_titled((benchmark, task, labels))}: variants of {METHODS[method]}",
            "variant",
            columns,
            rows,
            paper=not of_paper,
        )
        made.append(_with_ablation(table) if of_paper else table)
    return made


def _with_ablation(table: Table) -> Table:
    """The means with those of the paper's section 5."""
    figures = {_named(text, "adamatch"): value for text, value in published.ABLATION.items()}
    rows = []
    for name, mean, *others in table.rows:
        known = figures.get(name) if isinstance(name, str) else None
        rows.append([name, replace(mean, paper=known) if isinstance(mean, Figure) else mean, *others])
    return replace(table, rows=rows, notes=[*table.notes, f"{BESIDE}."])


def _cells(done: Sequence[Done]) -> Table:
    """Every cell: accuracy, seeds, and what it took."""
    rows: list[list[Cell]] = []
    keys = {(*each.setting, each.pair, each.method, each.variant) for each in done}
    for key in sorted(keys, key=lambda key: (*_order(key[:3]), key[3], list(METHODS).index(key[4]), key[5])):
        mine = [each for each in done if (*each.setting, each.pair, each.method, each.variant) == key]
        benchmark, task, labels, pair, method, text = key
        shown = beside(figure(mine), mine) if not text else figure(mine)
        name = (
            f"{benchmark} {task.upper()}{labels or ''} {_arrow(pair)}, {METHODS[method]}{f' ({text})' if text else ''}"
        )
        rows.append([name, shown, f"{shown.n}", f"{mine[0].run.recipe.images:,}", _seconds(mine)])
    notes = [COUNTED.format("seconds are of training, the mean over seeds") + _explained([row[1] for row in rows])]
    return Table("every cell", ["run", "accuracy", "seeds", "images", "seconds"], rows, notes)


def _seconds(done: Sequence[Done]) -> str:
    """Means over seeds; apart for runs that shared a GPU with different numbers of others."""
    shared = sorted({each.result.get("at_a_time", 1) for each in done})
    shown = []
    for count in shared:
        mean = statistics.fmean(
            each.result.get("seconds") or 0.0 for each in done if each.result.get("at_a_time", 1) == count
        )
        shown.append(f"{mean:.0f}{f' ({count} at a time)' if count > 1 else ''}")
    return ", ".join(shown)


def _evidence(done: Sequence[Done]) -> str:
    """Where, with what and when the figures were measured."""

    def all_of(values: Iterable[str]) -> str:
        return " and ".join(sorted({value for value in values if value}))

    results = [each.result for each in done]
    shared = sorted({result.get("at_a_time", 1) for result in results})
    sittings = (sitting for result in results for sitting in result.get("machine", "").split(", then "))
    machines = all_of(re.sub(r", \d+ runs at a time$", "", sitting) for sitting in sittings)
    if shared != [1]:
        machines += f", {' or '.join(map(str, shared))} runs at a time"
    versions = all_of(
        ", ".join(f"{name} {number}" for name, number in result.get("versions", {}).items()) for result in results
    )
    days = sorted(result.get("date", "")[:10] for result in results)
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return f"Measured on {machines}; {versions}; {when}."


def _table(
    title: str,
    corner: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Sequence[Done]]]],
    *,
    compared: bool = True,
    paper: bool = True,
) -> Table:
    """A row for each group of finished runs that has any; a dash where a cell has none. Rows may be of the same pairs, and then
    are compared."""
    named = [(name, groups) for name, groups in rows if any(groups)]
    cells = [[_cell(group, paper) for group in groups] for _, groups in named]
    for column in range(len(columns) if compared else 0):
        _mark_narrow([row[column] for _, row in named], cells, column)
        _mark_best(cells, column, [name for name, _ in named])
    counts = sorted({cell.n for row in cells for cell in row if isinstance(cell, Figure)})
    seeds = (
        f"n = {counts[0]} seed{'s' * (counts[0] > 1)}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]} seeds"
    )
    covered = {len({each.pair for each in group}) for _, groups in named for group in groups if group}
    over = f", means over up to {max(covered)} pairs" if max(covered) > 1 else ""
    notes = [COUNTED.format(seeds + over) + _explained([cell for row in cells for cell in row])]
    return Table(title, [corner, *columns], [[name, *row] for (name, _), row in zip(named, cells, strict=True)], notes)


def _cell(group: Sequence[Done], paper: bool) -> Cell:
    if not group:
        return "-"
    return beside(figure(group), group) if paper and not group[0].variant else figure(group)


def _mark_narrow(groups: Sequence[Sequence[Done]], cells: list[list[Cell]], column: int) -> None:
    """Say of how many pairs a mean is, where others of its column are of pairs that it lacks."""
    pairs = [{each.pair for each in group} for group in groups]
    for row, mine in zip(cells, pairs, strict=True):
        cell = row[column]
        if isinstance(cell, Figure) and mine != set().union(*pairs):
            row[column] = replace(cell, only=len(mine))


def _mark_best(cells: list[list[Cell]], column: int, names: Sequence[str]) -> None:
    """The best of those that can be compared (over all pairs, and no oracle), where its lead is more than seeds make."""
    compared = [
        (row, cell)
        for row, name in zip(cells, names, strict=True)
        if isinstance(cell := row[column], Figure) and not cell.only and name != METHODS["oracle"]
    ]
    compared.sort(key=lambda each: -each[1].mean)
    if len(compared) > 1 and all(_leads(compared[0][1], other) for _, other in compared[1:]):
        row, cell = compared[0]
        row[column] = replace(cell, best=True)


def _leads(best: Figure, other: Figure) -> bool:
    """Whether the difference is more than both standard deviations together: of one seed nobody knows."""
    known = best.spread is not None and other.spread is not None
    return known and best.mean - other.mean > (best.spread or 0.0) + (other.spread or 0.0)


def _explained(cells: Iterable[Cell]) -> str:
    figures = [cell for cell in cells if isinstance(cell, Figure)]
    said = ""
    if any(each.paper is not None for each in figures):
        said += f" {BESIDE}{f' ({WIDER})' if any(each.wider for each in figures) else ''}."
    if any(each.only for each in figures):
        said += f" {ONLY}."
    return said + (BOLD if any(each.best for each in figures) else "")


def _order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Benchmarks as the paper names them, UDA before SSL before SSDA."""
    benchmark, task, *others = key
    suite = published.SUITES.index(benchmark) if benchmark in published.SUITES else len(published.SUITES)
    return (suite, benchmark, ("uda", "ssl", "ssda").index(task), *others)


def _titled(setting: tuple[str, str, int]) -> str:
    benchmark, task, labels = setting
    return f"{benchmark}, {task.upper()}{f', {labels} per class' if labels else ''}"


def _arrow(pair: tuple[str, str]) -> str:
    return " -> ".join(part for part in pair if part)


def _rank(text: str) -> tuple[int, str]:
    known = ["", *VARIANTS]
    return known.index(text) if text in known else len(known), text


def _named(text: str, method: str) -> str:
    return VARIANTS.get(text, text) if text else METHODS[method]
