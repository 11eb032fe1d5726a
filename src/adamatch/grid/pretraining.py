"""The paper's table of pre-training (section 4.1): DomainNet at 224 x 224, UDA, from scratch and from ImageNet's weights."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from adamatch.config.presets import PRETRAINED, recipe
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.grid import published
from adamatch.grid.figures import Done, figure, variant
from adamatch.grid.render import Cell, Figure, Table
from adamatch.train.loop import MEDIAN_OF

SUITE = "domainnet224"
COLUMNS = ("random init (8M)", "pre-train (8M)", "pre-train (2M)", "pre-train (best window: ORACLE)")
WEIGHTS = "timm:resnetv2_101.a1h_in1k"  # the authors' are Keras's
PROTOCOL = replace(recipe(SUITE, **PRETRAINED), stop=0)  # the paper's, to the end


def runs(pairs: Iterable[tuple[str, str]]) -> Iterator[Run]:
    """MCD and AdaMatch on these pairs: from scratch; stopped at 2M images; to the end, where the best window is looked for."""
    for source, target in pairs:
        for method in published.PRETRAINED:
            scratch = Run(benchmark=SUITE, source=source, target=target, method=method)
            early = Run(benchmark=SUITE, source=source, target=target, method=method, weights=WEIGHTS)
            yield from (scratch, early, replace(early, recipe=replace(early.recipe, stop=0)))


def tables(done: Sequence[Done], names: dict[str, str]) -> list[Table]:
    """That table, where there are runs with starting weights for it; rows by the `names` of methods."""
    mine = [
        each
        for each in done
        if (each.run.benchmark, each.task) == (SUITE, "uda") and each.method in published.PRETRAINED
    ]
    loaded = [each for each in mine if each.run.weights and not each.run.options]
    usual = _usual(loaded)
    shown, others = [each for each in loaded if _kind(each) == usual], [each for each in loaded if _kind(each) != usual]
    rows: list[list[Cell]] = []
    for method, paper in published.PRETRAINED.items():
        scratch = [each for each in mine if each.method == method and not each.variant and _as_long(each.run.recipe)]
        to_the_end = [each for each in shown if each.method == method and not each.run.recipe.stop]
        stopped = [each for each in shown if each.method == method and each.run.recipe.stop]
        windows = [each._replace(result={**each.result, "accuracy": best_window(each)}) for each in to_the_end]
        groups = (scratch, to_the_end, stopped, windows)
        if any(groups[1:]):
            rows.append([names[method], *(_cell(group, value) for group, value in zip(groups, paper, strict=True))])
    notes = [
        "In parentheses the paper's figure, a mean over 30 pairs. The best window is found with the target's test labels."
    ]
    if others:
        notes.append(f"Pre-trained are runs with {_told(shown)}; those with {_told(others)} stand among the variants.")
    return [Table(f"{SUITE}, UDA: pre-training", ["method", *COLUMNS], rows, notes)] if rows else []


def best_window(done: Done) -> float:
    """The highest median of ten evaluations in a row."""
    values = [row["target"] for row in done.result["evaluations"] if "target" in row]
    last = max(1, len(values) - MEDIAN_OF + 1)
    return max(float(statistics.median(values[first : first + MEDIAN_OF])) for first in range(last))


def _kind(done: Done) -> tuple[str, Recipe]:
    """What is the same in all columns with starting weights: these, and the recipe, at whichever of both ends it stops."""
    own = done.run.recipe
    return done.run.weights, replace(own, stop=0) if own.stop == PRETRAINED["stop"] else own


def _as_long(own: Recipe) -> bool:
    """Whether it goes over as many images as the columns say."""
    return (own.images, own.stop) == (PROTOCOL.images, 0)


def _usual(loaded: Sequence[Done]) -> tuple[str, Recipe] | None:
    """What to show, of all methods: the paper's protocol, then the grid's weights, if any run has them; else the commonest."""
    kinds = Counter(kind for kind in map(_kind, loaded) if _as_long(kind[1]))
    return max(kinds, key=lambda kind: (kind[1] == PROTOCOL, kind[0] == WEIGHTS, kinds[kind]), default=None)


def _told(group: Iterable[Done]) -> str:
    """Their weights, and what of their recipes is not the paper's protocol."""
    runs = (replace(each.run, recipe=_kind(each)[1]) for each in group)
    return " or ".join(dict.fromkeys(variant(run, PROTOCOL) for run in runs))


def _cell(group: Sequence[Done], paper: float) -> Figure | str:
    return replace(figure(group), paper=paper, wider=len({each.pair for each in group}) < 30) if group else "-"
