"""One label per class on real digits, as a CPU bears it: mnist -> mnistm at 16 x 16, WRN-tiny, 1,000 steps.

    python benchmarks/few_labels.py --data DIR --runs runs/few_labels --out results/few_labels.json

Twelve to twenty minutes a run on one core; stopped, the same line resumes. A study: it reads labels of target tests.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from evidence import MEASURED, Row, collect, options, shrunk

from adamatch import experiment
from adamatch.config.run import Run
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder

SIZE, STEPS, TESTED = 16, 1000, 2000
VARIANTS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {  # labels, options, changes of the recipe
    "no target labels": (0, {}, {}),
    "repeated": (1, {}, {"repeat": True, "target_labels_from": 0.0}),
    "repeated, pools=2": (1, {"pools": 2}, {"repeat": True, "target_labels_from": 0.0}),
    "none twice in a step": (1, {}, {"repeat": False, "target_labels_from": 0.0}),
    "none twice, from the middle of the run on": (1, {}, {"repeat": False, "target_labels_from": 0.5}),
    "repeated, from the middle of the run on": (1, {}, {"repeat": True, "target_labels_from": 0.5}),
}


def train(variant: str, runs: Path, data: Path | None) -> Row:
    labels, method, changes = VARIANTS[variant]
    task = "ssda" if labels else "uda"
    run = Run(benchmark="digitfive", task=task, source="mnist", target="mnistm", labels=labels, budget="fast")
    small = {"size": SIZE, "network": "wrn-tiny", "images": run.recipe.batch * STEPS, "ema_decay": 0.995, **changes}
    run = replace(run, options=method, recipe=replace(run.recipe, **small))
    folder = RunFolder(runs / variant)
    experiment.solve(run, shrunk(experiment.problem_of(run, data), SIZE, TESTED), folder, Execution(quiet=True))
    result = folder.result() or {}
    curve = [round(row["target"], 2) for row in result["evaluations"]]
    return {"variant": variant, **{name: result[name] for name in MEASURED}, "curve": curve}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="some of them, by name")
    asked = parser.parse_args()
    every = [(name,) for name in asked.only or VARIANTS]
    collect(asked.out, ("variant",), every, partial(train, runs=asked.runs, data=asked.data))


if __name__ == "__main__":
    main()
