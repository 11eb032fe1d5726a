"""What each part does by itself: AdaMatch with or without it, on the embedded benchmark.

    python benchmarks/components.py --out results/components.json --task ssl --task ssda --task ssda5
    python benchmarks/components.py --out results/parts.json --task uda --seeds 10
    python benchmarks/components.py --out results/parts.json --task mnist-usps --task usps-mnist --seeds 5 --data DIR

Helps for few labels: SSL and SSDA with one label per class, SSDA with five (ssda5). The parts of AdaMatch: uda, and two
pairs of real digits, which need their data: 8 x 8 pixels, by the recipe of the embedded benchmark. No GPU is needed:
one to six minutes a run on one core. Rows that are there are not measured again.
"""

import statistics
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from evidence import MEASURED, Row, collect, options, shrunk
from scipy.stats import t

from adamatch import experiment
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.train import speed
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder

TESTED = 2000  # images of a target's test set, at most
Change = tuple[dict[str, Any], dict[str, Any]]  # arguments of the method, and of the recipe
END = {"lr_end": 0.02}
BOTH: dict[str, Change] = {
    "as in the paper": ({}, {}),
    "lower thresholds for classes of which few pass": ({"threshold": "classes"}, {}),
    "soft weights instead of a threshold": ({"threshold": "soft"}, {}),
    "alignment faded out": ({}, {"fade_out": True}),
    "no factor of alignment above 2": ({}, {"alignment_clip": 2.0}),
    "7 unlabelled images for each labelled one": ({}, {"uratio": 7}),
    "warm-up over a quarter of the run": ({"warm_up": 0.25}, {}),
    "warm-up over the whole run": ({"warm_up": 1.0}, {}),
    "learning rate to a fiftieth": ({}, END),
}
WITH_SOURCE: dict[str, Change] = {
    "no label twice in a step": ({}, {"repeat": False}),
    "labels from the middle of the run on": ({}, {"target_labels_from": 0.5}),
    "no label twice, from the middle on": ({}, {"repeat": False, "target_labels_from": 0.5}),
}
BEGINNING = {"simclr_images": 40_000, "linear_probe_init": True}
HELD = {"knn_anchor": True}  # not without pre-training: random features carry no neighbourhoods
WITHOUT_SOURCE: dict[str, Change] = {  # the three parts of `--budget fast`
    "a beginning without labels": ({}, BEGINNING),
    "a beginning, held": ({}, BEGINNING | HELD),
    "a beginning, learning rate to a fiftieth": ({}, BEGINNING | END),
    "all three": ({}, BEGINNING | HELD | END),
    "all three, and thresholds of classes": ({"threshold": "classes"}, BEGINNING | HELD | END),
}
FIVE_LABELS: dict[str, Change] = {  # more than a batch: no label is repeated in a step in any case
    "as in the paper": ({}, {}),
    "labels from the middle of the run on": ({}, {"target_labels_from": 0.5}),
    "labels spread over five steps": ({}, {"repeat": False, "target_label_steps": 5}),
    "labels spread over five steps, from the middle on": (
        {},
        {"repeat": False, "target_label_steps": 5, "target_labels_from": 0.5},
    ),
}
PARTS: dict[str, Change] = {  # the first is what the others are compared with
    "AdaMatch": ({}, {}),
    "without random logit interpolation": ({"interpolate": False}, {}),
    "without distribution alignment": ({"align": "none"}, {}),
    "aligned to source labels": ({"align": "labels"}, {}),
    "without relative threshold": ({"threshold": "fixed"}, {}),
    "CTAugment, then cutout": ({}, {"strong": "cta"}),
}
TASKS = {
    "uda": PARTS,
    "mnist-usps": PARTS,
    "usps-mnist": PARTS,
    "ssl": BOTH | WITHOUT_SOURCE,
    "ssda": WITH_SOURCE | BOTH,
    "ssda5": FIVE_LABELS,
}


def train(task: str, variant: str, seed: int, data: Path | None) -> Row:
    torch.set_num_threads(1)
    options, changes = TASKS[task][variant]
    how: dict[str, Any] = {"recipe": replace(recipe("handwriting"), **changes), "options": options, "seed": seed}
    if "-" in task:
        source, target = task.split("-")
        run = Run(benchmark="digitfive", source=source, target=target, **how)
        problem = shrunk(experiment.problem_of(run, data), run.recipe.size, TESTED)
    else:
        source, labels = "" if task == "ssl" else "rendered", {"uda": 0, "ssda5": 5}.get(task, 1)
        run = Run(task=task.removesuffix("5"), source=source, target="handwritten", labels=labels, **how)
        problem = experiment.problem_of(run)
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name, "run"))
        experiment.solve(run, problem, folder, Execution(speed.choose("cpu"), quiet=True))
        result = folder.result() or {}
    return {"task": task, "variant": variant, "seed": seed, **{name: result[name] for name in MEASURED}}


def worth(rows: list[Row], task: str, name: str) -> str:
    """What is lost against the task's first variant, seed by seed, with Student's interval at 95 %."""
    of = {(row["variant"], row["seed"]): row["accuracy"] for row in rows if row["task"] == task}
    first = next(iter(TASKS[task]))
    lost = [of[first, seed] - value for (variant, seed), value in of.items() if variant == name and (first, seed) in of]
    if name == first or len(lost) < 2:
        return ""
    middle, half = statistics.fmean(lost), t.ppf(0.975, len(lost) - 1) * statistics.stdev(lost) / len(lost) ** 0.5
    return f"lost {middle:.1f} ({middle - half:.1f} to {middle + half:.1f})"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="where prepared digits are")
    parser.add_argument("--task", choices=TASKS, action="append", help="all, unless given")
    asked = parser.parse_args()
    tasks = [task for task in TASKS if task in (asked.task or TASKS)]
    every = [(task, name, seed) for task in tasks for name in TASKS[task] for seed in range(asked.seeds)]
    rows = collect(asked.out, ("task", "variant", "seed"), every, partial(train, data=asked.data), asked.processes)
    for task in TASKS:
        for name in TASKS[task]:
            mine = [row["accuracy"] for row in rows if (row["task"], row["variant"]) == (task, name)]
            if mine:
                print(
                    f"{task} {name:48} {statistics.mean(mine):.1f}",
                    *(f"{value:.1f}" for value in mine),
                    worth(rows, task, name),
                )


if __name__ == "__main__":
    main()
