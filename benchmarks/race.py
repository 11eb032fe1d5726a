"""Accuracy against seconds of training on a hard pair: a finished run beside a plain implementation of the same method.

    python benchmarks/race.py RESULT.json --data DIR --out results/digitfive/race

RESULT.json is what `adamatch grid run --keep` wrote. The plain one has the same pair, network, views, schedules and
budget, and is stopped after --seconds. Writes OUT.json (its curve) and OUT.png (both), anew after each evaluation.
"""

import datetime
import json
import math
import os
from pathlib import Path
from typing import Any

import torch
from evidence import options, write
from matplotlib.figure import Figure
from plain import Row, train

from adamatch.base.errors import InputError
from adamatch.evaluate import Evaluation
from adamatch.experiment import problem_of
from adamatch.finalise import versions
from adamatch.grid.figures import run_of
from adamatch.train import speed


def draw(result: dict[str, Any], plain: list[Row], path: Path) -> None:
    run = run_of(result)
    figure = Figure(figsize=(6.4, 3.8))
    axis = figure.subplots()
    for name, rows in (("adamatch", result["evaluations"]), ("plain PyTorch", plain)):
        label = f"{name}: {rows[-1]['target']:.1f} after {rows[-1]['seconds']:.0f} s"
        axis.plot([row["seconds"] for row in rows], [row["target"] for row in rows], label=label, lw=1.8)
    title = f"{run.source} -> {run.target}, {result['machine'].split(',')[0]}"
    axis.set(xlabel="seconds of training", ylabel="accuracy on the target's test set", title=title, ylim=(0, 100))
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = options(__doc__, out="results/digitfive/race")
    parser.add_argument("result", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 4))
    asked = parser.parse_args()
    result = json.loads(asked.result.read_text())
    run = run_of(result)
    if (run.task, run.method) != ("uda", "adamatch") or run.options:
        raise InputError(f"{run.name}: the plain implementation is of AdaMatch, UDA, without options")
    machine = speed.choose(precision="fp32", compile=False)
    problem = problem_of(run, asked.data)
    facts = {"run": result["id"], "workers": asked.workers, "machine": str(machine), "versions": versions()}
    facts["date"] = datetime.date.today().isoformat()
    plain: list[Row] = []
    torch.manual_seed(run.seed)
    for row in train(run.recipe, problem, Evaluation(problem.tests, machine), machine, asked.seconds, asked.workers):
        plain.append(row)
        write(asked.out.with_suffix(".json"), {**facts, "plain": plain})
        draw(result, plain, asked.out.with_suffix(".png"))
        print(f"{row['target']:.1f} after {row['seconds']:.0f} s, {row['step']} steps", flush=True)


if __name__ == "__main__":
    main()
