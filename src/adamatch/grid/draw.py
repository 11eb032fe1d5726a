"""The paper's tables and figures from whatever runs there are, the paper's numbers beside ours, and what is missing."""

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from adamatch.datasets.benchmarks import BENCHMARKS
from adamatch.grid import experiments, published
from adamatch.grid.figures import Done, figure, grouped
from adamatch.grid.render import Figure, Table
from adamatch.grid.tables import METHODS, VARIANTS, matrices, table
from adamatch.train.loop import MEDIAN_OF

FIVE = experiments.METHODS
SWEPT = {"tau": "confidence threshold tau", "uratio": "uratio", "weight_decay": "weight decay"}
EARLY = 0.25  # of the run: the paper's 2M of 8M images
CURVES = ("sketch", "clipart")  # the paper's pair; another where there is no run of it
Made = tuple[list[Table] | Picture, list[str]]  # a table or a picture, and what is missing


def uda(done: Sequence[Done]) -> Made:
    """Table 2: methods against benchmarks."""
    mine = [each for each in done if each.task == "uda" and not each.variant]
    cells = [(METHODS[each.method], each.run.benchmark, each) for each in mine]
    made = _one("UDA: accuracy on the target", cells, _benchmarks(mine))
    return made, _missing(mine, (*FIVE, "oracle"), "uda", (0,))


def few(done: Sequence[Done], task: str) -> Made:
    """Tables 5 and 6: methods against benchmarks and labels per class, and their mean where no column is missing."""
    mine = [each for each in done if each.task == task and not each.variant and each.method in FIVE]
    here = {(each.run.benchmark, each.run.labels) for each in mine}
    wanted = [key for key in itertools.product(_benchmarks(mine), published.LABELS) if key in here]
    cells = [(METHODS[e.method], f"{e.run.benchmark}, {e.run.labels} per class", e) for e in mine]
    made = _one(f"{task.upper()}: accuracy on the target", cells, [f"{b}, {n} per class" for b, n in wanted])
    papers = published.SSL if task == "ssl" else published.SSDA
    full = wanted == list(itertools.product(published.SUITES, published.LABELS))
    return [_averaged(each, papers if full else {}) for each in made], _missing(mine, FIVE, task, published.LABELS)


def domains(done: Sequence[Done]) -> Made:
    """Appendix: SSL, labels per class against domains, for every method."""
    mine = [each for each in done if each.task == "ssl" and not each.variant]
    made = []
    for (benchmark, method), group in grouped(mine, lambda each: (each.run.benchmark, each.method)).items():
        cells = [(f"{each.run.labels} per class", each.run.target, each) for each in group]
        rows = [f"{labels} per class" for labels in sorted({each.run.labels for each in group})]
        made.append(
            table(f"{benchmark}, SSL, {METHODS[method]}", "labels", cells, rows, BENCHMARKS[benchmark].domains, False)
        )
    return made, _missing(mine, FIVE, "ssl", published.LABELS)


def pairs(done: Sequence[Done]) -> Made:
    """Appendix: UDA and SSDA, source against target, for every method and number of labels."""
    mine = [each for each in done if each.task != "ssl" and not each.variant]
    found = _missing(mine, FIVE, "uda", (0,)) + _missing(mine, FIVE, "ssda", published.LABELS)
    return list(matrices(mine, least=1)), found


def pretraining(done: Sequence[Done]) -> Made:
    """Table 3: from scratch and from ImageNet weights, at 8M and 2M images of one run, and at its best."""
    scratch, at_8m, at_2m, best = published.PRETRAINED_COLUMNS
    cells, names = [], ("mcd", "fixmatch+", "adamatch")
    for each in (one for one in done if one.method in names and one.task == "uda" and not one.run.options):
        if not each.variant:
            cells.append(_with(each, scratch, each.result["accuracy"]))
        elif each.run.weights and not each.run.recipe.weight_decay and not each.run.recipe.stop_after:
            seen = [(row["images"], row["target"]) for row in each.result["evaluations"] if "target" in row]
            early = [value for images, value in seen if images <= EARLY * each.run.recipe.images]
            cells.append(_with(each, at_8m, each.result["accuracy"]))
            cells.append(_with(each, at_2m, float(statistics.median(early[-MEDIAN_OF:] or [seen[0][1]]))))
            cells.append(_with(each, best, max(windows([value for _, value in seen]))))
    have = {(row, column) for row, column, _ in cells}
    missing = [f"{METHODS[m]}, {c}" for m in names for c in (scratch, at_8m) if (METHODS[m], c) not in have]
    made = _one("UDA: pre-training", cells, published.PRETRAINED_COLUMNS, compared=False)
    note = ["2M images are a part of the run of 8M; the best window is found with the target's test labels."]
    return [replace(each, notes=[*each.notes, *note]) for each in made], missing


def windows(values: Sequence[float]) -> list[float]:
    """The medians of ten evaluations in a row."""
    starts = range(max(1, len(values) - MEDIAN_OF + 1))
    return [float(statistics.median(values[start : start + MEDIAN_OF])) for start in starts]


def ablation(done: Sequence[Done]) -> Made:
    """Table 4: AdaMatch without one part, on the pairs that all have."""
    mine = _shared([each for each in _adamatch(done) if each.variant in published.ABLATION], published.ABLATION)
    names = {variant: VARIANTS.get(variant, METHODS["adamatch"]) for variant in published.ABLATION}
    cells = [(names[each.variant], each.run.benchmark, each) for each in mine]
    made = [table("UDA: without one part", "AdaMatch", cells, names.values(), _benchmarks(mine), False)] if mine else []
    return made, [names[variant] for variant in published.ABLATION.keys() - {each.variant for each in mine}]


def sensitivity(done: Sequence[Done]) -> Made:
    """Figure 4: AdaMatch with other values of tau, uratio and weight decay, on the pairs that all of them have."""
    picture, missing = Picture(figsize=(10.5, 3.4)), []
    for axis, (name, words) in zip(picture.subplots(1, len(SWEPT)), SWEPT.items(), strict=True):
        mine = [each for each in _adamatch(done) if each.variant == "" or each.variant.rpartition("=")[0] == name]
        mine = _shared(mine, {each.variant for each in mine})
        for benchmark, group in grouped(mine, lambda each: each.run.benchmark).items():
            by_value = grouped(group, lambda each, name=name: getattr(each.run.recipe, name))  # type: ignore[misc]
            _line(axis, {value: figure(by_value[value]) for value in sorted(by_value)}, label=benchmark)
            wanted = set(experiments.SWEEPS[name]) - by_value.keys()
            missing += [f"{benchmark}, {name}={value}" for value in sorted(wanted)]
        axis.set(xlabel=words, ylabel="accuracy on the target", xscale="log" if name == "weight_decay" else "linear")
        axis.legend(fontsize=8) if axis.lines else None
    return picture, missing


def curves(done: Sequence[Done]) -> Made:
    """Figure 5: accuracy during the run on Sketch -> Clipart, from scratch and pre-trained."""
    names = ("adamatch", "mcd", "fixmatch+")
    usual = [each for each in done if not each.variant or (each.run.weights and not each.run.options)]
    mine = [each for each in usual if each.task == "uda" and each.method in names]
    pair = min((each.pair for each in mine), key=lambda pair: (pair != CURVES, pair), default=CURVES)
    picture = Picture(figsize=(5.5, 4))
    axis = picture.subplots()
    for (method, pretrained), group in grouped(mine, lambda each: (each.method, bool(each.run.weights))).items():
        for each in (one for one in group if one.pair == pair and one.run.seed == min(x.run.seed for x in group)):
            rows = [row for row in each.result["evaluations"] if "target" in row]
            x, y = [row["images"] for row in rows], [row["target"] for row in rows]
            label = METHODS[method] + (", pre-trained" if pretrained else "")
            axis.plot(x, y, label=label, color=f"C{names.index(method)}", ls="--" if pretrained else "-")
    axis.set(title=" -> ".join(pair), xlabel="labelled images", ylabel="accuracy on the target")
    axis.legend(fontsize=8) if axis.lines else None
    have = {(each.method, bool(each.run.weights)) for each in mine if each.pair == pair}
    wanted = [each for each in itertools.product(names[:2], (False, True)) if each not in have]
    missing = [METHODS[method] + ", pre-trained" * pretrained for method, pretrained in wanted]
    return picture, missing + ([] if pair == CURVES else ["the paper's pair, " + " -> ".join(CURVES)])


def labels(done: Sequence[Done], task: str) -> Made:
    """Figures 2 and 3: accuracy against labels per class, means over pairs that all have; dashed are the paper's."""
    mine = [each for each in done if each.task == task and not each.variant]
    names = _benchmarks(mine)
    picture = Picture(figsize=(4 * max(1, len(names)), 4))
    for axis, benchmark in zip(picture.subplots(1, max(1, len(names)), squeeze=False)[0], names, strict=False):
        here = [each for each in mine if each.run.benchmark == benchmark and each.method in FIVE]
        cells = grouped(here, lambda each: (each.method, each.run.labels)).values()
        shared = set.intersection(*({each.pair for each in cell} for cell in cells))
        for number, method in enumerate(FIVE):
            group = [each for each in here if each.method == method and each.pair in (shared or {each.pair})]
            counts = grouped(group, lambda each: each.run.labels)
            _line(axis, {n: figure(counts[n]) for n in sorted(counts)}, label=METHODS[method], color=f"C{number}")
            if benchmark in published.SUITES:
                known = [published.mean(benchmark, task, method, count) or 0.0 for count in published.LABELS]
                axis.plot(published.LABELS, known, color=f"C{number}", ls="--", lw=1)
        count = f"{len(shared)} pair{'s' * (len(shared) > 1)}" if shared else "different pairs"
        axis.set(title=f"{benchmark}, {task.upper()}, {count}", xscale="log", xlabel="labels per class")
        axis.set_xticks(published.LABELS, [str(count) for count in published.LABELS])
        axis.legend(fontsize=8)
    return picture, _missing(mine, FIVE, task, published.LABELS)


DRAWINGS: dict[str, Callable[[Sequence[Done]], Made]] = {
    "uda": uda,
    "pretraining": pretraining,
    "ablation": ablation,
    "ssl": lambda done: few(done, "ssl"),
    "ssda": lambda done: few(done, "ssda"),
    "domains": domains,
    "pairs": pairs,
    "labels-ssl": lambda done: labels(done, "ssl"),
    "labels-ssda": lambda done: labels(done, "ssda"),
    "sensitivity": sensitivity,
    "curves": curves,
}


def _averaged(made: Table, papers: dict[str, list[float]]) -> Table:
    """With the mean of each row that has no gap; the paper's last column is beside it."""
    rows = []
    for row in made.rows:
        means = [cell.mean for cell in row[1:] if isinstance(cell, Figure)]
        method = next(name for name, shown in METHODS.items() if shown == row[0])
        paper = papers[method][-1] if papers else None
        rows.append([*row, Figure(statistics.fmean(means), paper=paper) if len(means) == len(row) - 1 else "-"])
    return replace(made, columns=[*made.columns, "Avg"], rows=rows)


def _adamatch(done: Iterable[Done]) -> list[Done]:
    return [each for each in done if (each.task, each.method) == ("uda", "adamatch")]


def _shared(done: list[Done], variants: Iterable[str]) -> list[Done]:
    """Those of the pairs and seeds that every variant of a benchmark has been run on."""
    kept = []
    for mine in grouped(done, lambda each: each.run.benchmark).values():
        there = [v for v in variants if any(each.variant == v for each in mine)]
        shared = set.intersection(*({(e.pair, e.run.seed) for e in mine if e.variant == v} for v in there))
        kept += [each for each in mine if (each.pair, each.run.seed) in shared] if len(there) > 1 else []
    return kept


def _line(axis: Axes, values: dict[float, Figure], **how: Any) -> None:
    """Means over seeds and pairs, with their standard deviations."""
    if values:
        spreads = [each.std or 0.0 for each in values.values()]
        axis.errorbar(
            list(values), [each.mean for each in values.values()], spreads, capsize=2, marker="o", ms=4, **how
        )


def _with(each: Done, column: str, accuracy: float) -> tuple[str, str, Done]:
    return METHODS[each.method], column, each._replace(variant=column, result={"accuracy": accuracy})


def _one(title: str, cells: list[tuple[str, str, Done]], columns: Iterable[str], compared: bool = True) -> list[Table]:
    return [table(title, "method", cells, METHODS.values(), columns, compared)] if cells else []


def _benchmarks(done: Iterable[Done]) -> list[str]:
    """The paper's first."""
    return sorted({each.run.benchmark for each in done}, key=lambda name: ([*published.SUITES, name].index(name), name))


def _missing(done: Sequence[Done], methods: Iterable[str], task: str, counts: Iterable[int]) -> list[str]:
    """Cells that have not all pairs (SSL: domains) of their benchmark; of the paper's where there is no run at all."""
    missing = []
    for benchmark, method, count in itertools.product(_benchmarks(done) or published.SUITES, methods, counts):
        mine = [
            each for each in done if (each.run.benchmark, each.method, each.run.labels) == (benchmark, method, count)
        ]
        names = BENCHMARKS[benchmark].domains
        wanted = {("", name) for name in names} if task == "ssl" else set(experiments.pairs(names))
        if benchmark not in published.SUITES:  # no benchmark of the paper: the pairs that anything was run on
            wanted = {each.pair for each in done if (each.run.benchmark, each.task) == (benchmark, task)}
        if left := wanted - {each.pair for each in mine if each.task == task}:
            where = "domains" if task == "ssl" else "pairs"
            labels = f", {count} per class" if count else ""
            missing.append(
                f"{benchmark} {task.upper()}{labels}, {METHODS[method]}: {len(left)} of {len(wanted)} {where}"
            )
    return missing
