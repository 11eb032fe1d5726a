"""Classes as frequent as SVHN's in the target, even in the source: AdaMatch as printed, and with other alignments.

Takes the embedded benchmark, of whose target a part of each class is left out; needs no data and no GPU.

    python benchmarks/uneven.py --out FILE [--processes 2]
    python benchmarks/uneven.py --even --out FILE    (for comparison)

Runs that are in the file already are not done again.
"""

import json
import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import evidence
import numpy as np
import torch

from adamatch import experiment
from adamatch.config.run import Run
from adamatch.datasets import benchmarks
from adamatch.images.store import Store
from adamatch.images.tasks import make_problem
from adamatch.train import speed
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder

FREQUENCIES = (0.067, 0.190, 0.146, 0.114, 0.101, 0.093, 0.077, 0.077, 0.072, 0.064)  # of the digits 0 to 9 in SVHN
VARIANTS: dict[str, dict[str, Any]] = {
    "as printed": {},
    "released": {"fade_out": True},
    "tau 0.97": {"tau": 0.97},
    "released, tau 0.97": {"fade_out": True, "tau": 0.97},
    "no factor above 2": {"alignment_clip": 2.0},
    "no factor above 2, released": {"alignment_clip": 2.0, "fade_out": True},
}


def thinned(store: Store) -> Store:
    """The most frequent class as it is, of the others a part."""
    rows = []
    for number, frequency in enumerate(FREQUENCIES):
        of_class = np.random.default_rng(number).permutation(np.flatnonzero(store.labels == number))
        rows.append(of_class[: round(len(of_class) * frequency / max(FREQUENCIES))])
    chosen = np.sort(np.concatenate(rows))
    return replace(store, images=store.images[chosen], labels=np.asarray(store.labels)[chosen])


def distance(shares: Sequence[float], store: Store) -> float:
    """Total variation between class shares and those of a store's labels."""
    true = np.bincount(np.asarray(store.labels), minlength=len(shares)) / len(store)
    return float(np.abs(np.asarray(shares) - true).sum() / 2)


def train(variant: str, seed: int, even: bool) -> dict[str, Any]:
    """One run on one thread. "distance" is that of the target's class shares as found to those of its labels."""
    torch.set_num_threads(1)
    parts = (("rendered", "train"), ("handwritten", "train"), ("handwritten", "test"))
    source, target, test = (benchmarks.load("handwriting", *part) for part in parts)
    if not even:
        target, test = thinned(target), thinned(test)
    run = Run(source="rendered", target="handwritten", seed=seed)
    run = replace(run, recipe=replace(run.recipe, **VARIANTS[variant]))
    with tempfile.TemporaryDirectory() as folder:
        held = RunFolder(Path(folder) / "run")
        problem = make_problem("uda", [source], target, {"target": test})
        experiment.solve(run, problem, held, Execution(speed.choose("cpu"), quiet=True))
        result = held.result()
    assert result is not None
    found = {"accuracy": result["accuracy"], "divergence": result["evaluations"][-1]["divergence"]}
    found["distance"] = distance(result["target_shares"], target)
    facts = {name: result[name] for name in ("machine", "versions", "date")}
    return {"variant": variant, "seed": seed, **found, **facts}


def main() -> None:
    parser = evidence.options(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--even", action="store_true", help="leave the target's classes as they are")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = json.loads(given.out.read_text()) if given.out.exists() else []
    every = [(name, seed) for name in VARIANTS for seed in range(given.seeds)]
    done = {(row["variant"], row["seed"]) for row in rows}
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(train, *each, given.even) for each in every if each not in done]):
            rows.append(future.result())
            rows.sort(key=lambda row: every.index((row["variant"], row["seed"])))
            evidence.write(given.out, rows)
    for row in rows:
        print(f"{row['variant']:28} {row['seed']} {row['accuracy']:.1f} ({row['distance']:.3f})")


if __name__ == "__main__":
    main()
