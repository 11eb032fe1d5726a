"""Classes as frequent as SVHN's in the target, even in the source: AdaMatch as printed, and with other alignments.

Takes the embedded benchmark, of whose target a part of each class is left out; needs no data and no GPU.

python benchmarks/uneven.py --out results/uneven.json
python benchmarks/uneven.py --even --out results/even.json    (for comparison)
"""

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adamatch import experiment
from adamatch.data.store import Store
from adamatch.data.tasks import Problem, pose
from adamatch.sets import benchmarks
from adamatch.train import speed
from adamatch.train.execution import Execution
from adamatch.train.folder import RunFolder
from adamatch.train.run import Run

FREQUENCIES = (0.067, 0.190, 0.146, 0.114, 0.101, 0.093, 0.077, 0.077, 0.072, 0.064)  # of the digits 0 to 9 in SVHN
VARIANTS: dict[str, dict[str, Any]] = {
    "as printed": {},
    "released": {"release": True},
    "tau 0.97": {"tau": 0.97},
    "released, tau 0.97": {"release": True, "tau": 0.97},
    "estimated": {"align": "estimated"},
    "no factor above 2": {"limit": 2.0},
    "no factor above 2, released": {"limit": 2.0, "release": True},
}


def thinned(store: Store) -> Store:
    """The most frequent class as it is, of the others a part."""
    assert store.labels is not None
    rows = []
    for number, frequency in enumerate(FREQUENCIES):
        of_class = np.random.default_rng(number).permutation(np.flatnonzero(store.labels == number))
        rows.append(of_class[: round(len(of_class) * frequency / max(FREQUENCIES))])
    chosen = np.sort(np.concatenate(rows))
    return replace(store, images=store.images[chosen], labels=store.labels[chosen])


def problem(even: bool) -> Problem:
    source, target, test = (
        benchmarks.load("handwriting", domain, split)
        for domain, split in (("rendered", "train"), ("handwritten", "train"), ("handwritten", "test"))
    )
    if not even:
        target, test = thinned(target), thinned(test)
    return pose("uda", [source], target, {"target": test})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--even", action="store_true", help="leave the target's classes as they are")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    posed, machine = problem(given.even), speed.choose()
    rows = []
    for name, changes in VARIANTS.items():
        for seed in range(given.seeds):
            run = Run(source="rendered", target="handwritten", seed=seed)
            run = replace(run, recipe=replace(run.recipe, **changes))
            with tempfile.TemporaryDirectory() as folder:
                held = RunFolder(Path(folder) / "run")
                experiment.solve(run, posed, held, Execution(machine, quiet=True))
                result = held.result()
            assert result is not None
            last = result["evaluations"][-1]
            rows.append({"variant": name, "seed": seed, "accuracy": result["accuracy"], "divergence": last["divergence"]})
            facts = {"machine": result["machine"], "versions": result["versions"], "date": result["date"], "rows": rows}
            given.out.write_text(json.dumps(facts, indent=1) + "\n")
        values = [row["accuracy"] for row in rows if row["variant"] == name]
        print(f"{name:20} {statistics.fmean(values):.1f}  {[round(value, 1) for value in values]}", flush=True)


if __name__ == "__main__":
    main()
