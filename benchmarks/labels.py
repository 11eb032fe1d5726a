"""Accuracy against labels per class, from a folder of results: a panel for each pair (SSL: domain), each method a line.

    python benchmarks/labels.py results/digitfive --out results/digitfive/labels.png

Thin are runs whose target labels count from the first step on, repeated, as in the paper. Dashed are the paper's means
over all pairs (SSL: domains) of the benchmark, dotted is AdaMatch without any target label (UDA).
"""

from pathlib import Path
from typing import Any

from evidence import options
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adamatch.base.errors import InputError
from adamatch.grid import published
from adamatch.grid.figures import Done, figure, finished, read
from adamatch.grid.tables import METHODS

TASKS = {"ssl": "SSL", "ssda": "SSDA"}
COUNTS = (1, 5, 25)


def as_in_the_paper(each: Done) -> bool:
    """Whether the labels of the target count from the first step on, repeated, and nothing is learned before."""
    recipe = each.run.recipe
    return recipe.repeat and not recipe.target_labels_from and not recipe.simclr_images and not each.run.options


def panel(axis: Axes, task: str, done: list[Done]) -> None:
    """One pair: mean and standard deviation over seeds for each method and number of labels."""
    mine = [each for each in done if each.task == task]
    for number, method in enumerate(name for name in METHODS if any(each.method == name for each in mine)):
        ours, name, color = [each for each in mine if each.method == method], METHODS[method], f"C{number}"
        line(axis, [each for each in ours if not each.variant], label=name, color=color, marker="o", ms=4, lw=1.6)
        early = [each for each in ours if each.variant and as_in_the_paper(each)]
        line(axis, early, label=f"{name}, labels as in the paper", color=color, lw=1, alpha=0.5)
        known = [published.mean(mine[0].run.benchmark, task, method, count) or float("nan") for count in COUNTS]
        axis.plot(COUNTS, known, label=f"{name}, the paper's mean", color=color, ls="--", lw=1)
    without = [each for each in done if (each.task, each.method, each.variant) == ("uda", "adamatch", "")]
    if without:
        axis.axhline(figure(without).mean, label="AdaMatch, no target labels", color="0.4", ls=":", lw=1)
    title = f"{TASKS[task]}, {' -> '.join(filter(None, mine[0].pair))}"
    axis.set(title=title, xscale="log", xlabel="labels per class", ylim=(0, 103))
    axis.set_xticks(COUNTS, [str(count) for count in COUNTS])
    axis.minorticks_off()
    axis.grid(alpha=0.3)


def line(axis: Axes, done: list[Done], **how: Any) -> None:
    """Mean and standard deviation against labels per class."""
    by_count = {count: [each for each in done if each.run.labels == count] for count in COUNTS}
    figures = {count: figure(group) for count, group in by_count.items() if group}
    if figures:
        spreads = [each.std or 0.0 for each in figures.values()]
        axis.errorbar(list(figures), [each.mean for each in figures.values()], spreads, capsize=2, **how)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    done = finished(read(asked.folder))
    panels = [(task, pair) for task in TASKS for pair in sorted({each.pair for each in done if each.task == task})]
    if not panels:
        raise InputError(f"{asked.folder} has no result of SSL or SSDA: adamatch grid run ... --keep {asked.folder}")
    picture = Figure(figsize=(4.2 * len(panels), 4.4))
    axes = picture.subplots(1, len(panels), sharey=True, squeeze=False)
    for axis, (task, pair) in zip(axes[0], panels, strict=True):
        panel(axis, task, [each for each in done if each.pair == pair])
    axes[0][0].set_ylabel("accuracy on the target")
    shown = {label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    picture.legend(shown.values(), shown.keys(), loc="lower center", ncols=3, fontsize=8)
    picture.tight_layout(rect=(0, 0.15, 1, 1))
    picture.savefig(asked.out, dpi=110)


if __name__ == "__main__":
    main()
