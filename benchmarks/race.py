"""Accuracy against seconds of training on a hard pair: a finished run beside a plain implementation of the same method.

    python benchmarks/race.py RESULT.json --data DIR --out results/digitfive/race

RESULT.json is what `adamatch grid run --keep` wrote. The plain one has the same pair, network, views, schedules and budget, and
is stopped after --seconds. Writes OUT.json (its curve) and OUT.png (both), anew after each of its evaluations.
"""

import argparse
import datetime
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import torch
from plain import Row, train

from adamatch.base.errors import InputError
from adamatch.evaluate import Evaluation
from adamatch.experiment import problem_of, versions
from adamatch.grid.figures import run_of
from adamatch.train import speed

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def plain_rows(
    result: dict[str, Any], data: Path | None, machine: speed.Machine, seconds: float, workers: int
) -> Iterator[Row]:
    run = run_of(result)
    if (run.task, run.method) != ("uda", "adamatch") or run.options:
        raise InputError(f"{run.name}: the plain implementation is of AdaMatch, UDA, without options")
    problem = problem_of(run, data)
    torch.manual_seed(run.seed)
    return train(run.recipe, problem, Evaluation(problem.tests, machine), machine, seconds, workers)


def draw(result: dict[str, Any], plain: list[Row], path: Path) -> None:
    run = run_of(result)
    figure, axis = plt.subplots(figsize=(6.4, 3.8))
    for name, rows in (("adamatch", result["evaluations"]), ("plain PyTorch", plain)):
        label = f"{name}: {rows[-1]['target']:.1f} after {rows[-1]['seconds']:.0f} s"
        axis.plot([row["seconds"] for row in rows], [row["target"] for row in rows], label=label, lw=1.8)
    axis.set_xlabel("seconds of training")
    axis.set_ylabel("accuracy on the target's test set")
    axis.set_title(f"{run.source} -> {run.target}, {result['machine'].split(',')[0]}")
    axis.set_ylim(0, 100)
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 4))
    parser.add_argument("--out", type=Path, default=Path("results/digitfive/race"))
    given = parser.parse_args()
    result = json.loads(given.result.read_text())
    machine = speed.choose(precision="fp32", compile=False)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    facts = {"run": result["id"], "workers": given.workers, "machine": str(machine), "versions": versions()}
    facts["date"] = datetime.date.today().isoformat()
    plain: list[Row] = []
    for row in plain_rows(result, given.data, machine, given.seconds, given.workers):
        plain.append(row)
        given.out.with_suffix(".json").write_text(json.dumps({**facts, "plain": plain}, indent=1))
        draw(result, plain, given.out.with_suffix(".png"))
        print(f"{row['target']:.1f} after {row['seconds']:.0f} s, {row['step']} steps", flush=True)


if __name__ == "__main__":
    main()
