"""Accuracy against labels per class, from a folder of results: SSL and SSDA, each method a line.

    python benchmarks/labels.py results/digitfive --out results/digitfive/labels.png

Dashed are the paper's means over all pairs (SSL: domains) of the benchmark, dotted is AdaMatch on the same pairs without any
target label (UDA).
"""

import argparse
from pathlib import Path

import matplotlib

from adamatch.errors import InputError
from adamatch.grid import published
from adamatch.grid.figures import Done, cells_of, figure, read
from adamatch.grid.tables import METHODS

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

TASKS = {"ssl": "SSL", "ssda": "SSDA"}


def panel(axis: Axes, task: str, done: list[Done]) -> None:
    """One task: mean and standard deviation over seeds for each method and number of labels."""
    mine = [each for each in done if each.task == task]
    for number, method in enumerate(dict.fromkeys(name for name in METHODS if any(e.method == name for e in mine))):
        counts = sorted({each.run.labels for each in mine if each.method == method})
        groups = [[each for each in mine if (each.method, each.run.labels) == (method, count)] for count in counts]
        figures = [figure(group) for group in groups]
        means, spreads = [each.mean for each in figures], [each.spread or 0.0 for each in figures]
        axis.errorbar(counts, means, spreads, label=METHODS[method], color=f"C{number}", marker="o", ms=4, capsize=2, lw=1.6)
        known = [published.mean(groups[0][0].run.benchmark, task, method, count) for count in counts]
        if all(value is not None for value in known):
            name = f"{METHODS[method]}, paper's mean"
            axis.plot(counts, known, label=name, color=f"C{number}", ls="--", lw=1)  # type: ignore[arg-type]
    pairs = {each.pair for each in mine}
    without = [each for each in done if (each.task, each.method) == ("uda", "adamatch") and each.pair in pairs]
    if without:
        axis.axhline(figure(without).mean, label="AdaMatch, no target labels", color="0.4", ls=":", lw=1)
    axis.set_xscale("log")
    axis.set_xticks(ticks := sorted({each.run.labels for each in mine}), [str(count) for count in ticks])
    axis.minorticks_off()
    names = sorted(" -> ".join(filter(None, pair)) for pair in pairs)
    axis.set_title(f"{TASKS[task]}, {names[0] if len(names) == 1 else f'mean of {len(names)}'}")
    axis.set_xlabel("labels per class")
    axis.set_ylim(0, 100)
    axis.grid(alpha=0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    done = [each for each in cells_of(read(given.folder)) if not each.variant]
    tasks = [task for task in TASKS if any(each.task == task for each in done)]
    if not tasks:
        raise InputError(f"{given.folder} has no result of SSL or SSDA: adamatch grid run ... --keep {given.folder}")
    figure_, axes = plt.subplots(1, len(tasks), figsize=(4.8 * len(tasks), 3.8), sharey=True, squeeze=False)
    for axis, task in zip(axes[0], tasks, strict=True):
        panel(axis, task, done)
    axes[0][0].set_ylabel("accuracy on the target")
    axes[0][-1].legend(loc="lower right", fontsize=8)
    figure_.tight_layout()
    figure_.savefig(given.out, dpi=110)


if __name__ == "__main__":
    main()
