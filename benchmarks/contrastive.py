"""Few labels and no source: does self-supervised pre-training (initialise/simclr.py) help AdaMatch on SVHN?

    python benchmarks/contrastive.py --data DIR --labels 5 --name anchored --runs RUNS --out results/contrastive \
        --recipe '{"simclr_images": 1000000, "linear_probe_init": true, "knn_anchor": true}'

One run of `--budget fast` that differs as told. --constants changes those of the pre-training. A study: it reads labels
of target tests.
"""

import json
from dataclasses import replace
from pathlib import Path

from evidence import MEASURED, options, write

from adamatch import experiment
from adamatch.config.run import Run
from adamatch.initialise import simclr


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--labels", type=int, required=True, help="per class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="adamatch")
    parser.add_argument("--recipe", type=json.loads, default={}, help="what is different in the recipe")
    parser.add_argument("--options", type=json.loads, default={}, help="arguments of the method")
    parser.add_argument("--constants", type=json.loads, default={}, help="as '{\"TEMPERATURE\": 0.1}'")
    parser.add_argument("--name", required=True, help="of what differs")
    parser.add_argument("--runs", type=Path, required=True)
    asked = parser.parse_args()
    for name, value in asked.constants.items():
        setattr(simclr, name, type(getattr(simclr, name))(value))
    run = Run(benchmark="digitfive", task="ssl", target="svhn", labels=asked.labels, seed=asked.seed, budget="fast")
    run = replace(run, method=asked.method, options=asked.options, recipe=replace(run.recipe, **asked.recipe))
    name = f"ssl{asked.labels}-{asked.method}-{asked.name}-s{asked.seed}"
    result = experiment.train(run, out=asked.runs / name, data=asked.data, quiet=True)
    row = {"name": asked.name, "constants": asked.constants}
    row |= {key: result[key] for key in (*MEASURED, "wall_seconds", "target_shares", "run")}
    row["curve"] = [round(each["target"], 2) for each in result["evaluations"]]
    write(asked.out / f"{name}.json", row)
    print(f"{name}: {row['accuracy']:.1f}, begins at {row['curve'][0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
