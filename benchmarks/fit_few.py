"""Few labels and no source, as a user has them: `adamatch.fit` on the embedded handwriting, with the beginning that it chooses.

    python benchmarks/fit_few.py --out results/fit_few.json [--processes 2] [--seeds 3] [--labels 1 5]

For comparison without that beginning, with thresholds of classes, and with the labelled images alone. Needs no data and no GPU:
about five minutes a run on one core. Tested on 500 images that are not trained on. What is there counts as done.
"""

import argparse
import importlib
import json
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import torch

import adamatch
from adamatch.base.files import read_json
from adamatch.datasets.rendered import handwritten
from adamatch.train.run_folder import RunFolder

SIZE = 8
VARIANTS: dict[str, dict[str, Any]] = {  # arguments of fit
    "as fit chooses": {},
    "as fit chooses, thresholds of classes": {"options": {"threshold": "classes"}},
    "without a beginning": {},
    "without a beginning, thresholds of classes": {"options": {"threshold": "classes"}},
    "labelled images alone": {"method": "supervised"},
}


def trained(variant: str, labels: int, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    if variant.startswith("without a beginning"):
        importlib.import_module("adamatch.fit").FEW = 0  # type: ignore[attr-defined]
    images = handwritten("train", SIZE)
    with tempfile.TemporaryDirectory() as folder:
        adamatch.fit(
            source=images,
            target=images,
            test=handwritten("test", SIZE),
            labels_per_class=labels,
            mirror=False,
            seed=seed,
            size=SIZE,
            out=folder,
            twin=False,
            quiet=True,
            **VARIANTS[variant],
        )
        result = RunFolder(folder).result() or {}
    told = {
        "variant": variant,
        "labels": labels,
        "seed": seed,
        "curve": [each["target"] for each in result["evaluations"]],
    }
    return told | {key: result[key] for key in ("accuracy", "seconds", "machine", "versions", "date", "run")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--labels", type=int, nargs="*", default=(1, 5), help="labels per class")
    given = parser.parse_args()
    rows = list(read_json(given.out)) if given.out.exists() else []
    done = {(row["variant"], row["labels"], row["seed"]) for row in rows}
    every = [(variant, labels, seed) for seed, labels, variant in product(range(given.seeds), given.labels, VARIANTS)]
    waiting = [each for each in every if each not in done]
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for each in as_completed([pool.submit(trained, *each) for each in waiting]):
            row = each.result()
            rows = sorted([*rows, row], key=lambda row: (row["labels"], [*VARIANTS].index(row["variant"]), row["seed"]))
            given.out.write_text(json.dumps(rows, indent=1) + "\n")
            print(f"{row['labels']} labels, {row['variant']}, seed {row['seed']}: {row['accuracy']:.1f}", flush=True)


if __name__ == "__main__":
    main()
