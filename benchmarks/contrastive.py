"""Few labels and no source: does a beginning without labels (train/contrastive.py) help AdaMatch on SVHN?

    python benchmarks/contrastive.py --data DIR --labels 5 --name anchored --runs RUNS --out results/contrastive \
        --recipe '{"contrastive": 1000000, "fitted_head": true, "anchored": true}'

One run of `--budget fast` that differs as told. --constants changes those of the beginning itself. A study: test labels choose.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from adamatch import experiment
from adamatch.config.run import Run
from adamatch.initialise import simclr
from adamatch.train import speed
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--labels", type=int, required=True, help="per class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="adamatch")
    parser.add_argument("--recipe", type=json.loads, default={}, help="what is different in the recipe")
    parser.add_argument("--options", type=json.loads, default={}, help="arguments of the method")
    parser.add_argument(
        "--constants", type=json.loads, default={}, help="of the beginning, e.g. '{\"TEMPERATURE\": 0.1}'"
    )
    parser.add_argument("--name", required=True, help="of what differs")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    for name, value in given.constants.items():
        setattr(simclr, name, type(getattr(simclr, name))(value))
    run = Run(benchmark="digitfive", task="ssl", target="svhn", labels=given.labels, seed=given.seed, budget="fast")
    run = replace(run, method=given.method, options=given.options, recipe=replace(run.recipe, **given.recipe))
    name = f"ssl{given.labels}-{given.method}-{given.name}-s{given.seed}"
    folder = RunFolder(given.runs / name)
    experiment.solve(run, experiment.problem_of(run, given.data), folder, Execution(speed.choose(), quiet=True))
    result = folder.result() or {}
    kept = ("accuracy", "seconds", "wall_seconds", "machine", "versions", "date", "target_shares", "run")
    row = {"name": given.name, "constants": given.constants, **{key: result[key] for key in kept}}
    row["curve"] = [round(each["target"], 2) for each in result["evaluations"]]
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")
    print(f"{name}: {row['accuracy']:.1f}, begins at {row['curve'][0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
