"""What each help for few labels does by itself: AdaMatch with it, on two tasks of the embedded benchmark.

    python benchmarks/components.py --out results/components.json [--processes 2] [--seeds 3] [--task ssl]

SSL and SSDA with one label per class, SSDA with five (ssda5). Needs no data and no GPU: one to six minutes a run on one core.
What is there counts as done.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from adamatch import experiment
from adamatch.config.run import Run
from adamatch.train import speed
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder

Change = tuple[dict[str, Any], dict[str, Any]]  # arguments of the method, and of the recipe
END = {"lr_end": 0.02}
BOTH: dict[str, Change] = {
    "as in the paper": ({}, {}),
    "lower thresholds for classes of which few pass": ({"threshold": "classes"}, {}),
    "soft weights instead of a threshold": ({"threshold": "soft"}, {}),
    "aligned to an estimate": ({}, {"align": "estimated"}),
    "alignment faded out": ({}, {"release": True}),
    "no factor of alignment above 2": ({}, {"limit": 2.0}),
    "7 unlabelled images for each labelled one": ({}, {"uratio": 7}),
    "warm-up over a quarter of the run": ({"warm_up": 0.25}, {}),
    "warm-up over the whole run": ({"warm_up": 1.0}, {}),
    "learning rate to a fiftieth": ({}, END),
}
WITH_SOURCE: dict[str, Change] = {
    "no label twice in a step": ({}, {"repeat": False}),
    "labels from the middle of the run on": ({}, {"late": 0.5}),
    "no label twice, from the middle on": ({}, {"repeat": False, "late": 0.5}),
}
BEGINNING = {"contrastive": 40_000, "fitted_head": True}
HELD = {"anchored": True}  # not without a beginning: a network that starts at random knows no neighbours
WITHOUT_SOURCE: dict[str, Change] = {  # the three parts of `--budget fast`
    "a beginning without labels": ({}, BEGINNING),
    "a beginning, held": ({}, BEGINNING | HELD),
    "a beginning, learning rate to a fiftieth": ({}, BEGINNING | END),
    "all three": ({}, BEGINNING | HELD | END),
    "all three, and thresholds of classes": ({"threshold": "classes"}, BEGINNING | HELD | END),
}
FIVE_LABELS: dict[str, Change] = {  # more than a batch: none comes again before all have come in any case
    "as in the paper": ({}, {}),
    "labels from the middle of the run on": ({}, {"late": 0.5}),
    "labels spread over five steps": ({}, {"repeat": False, "spread": 5}),
    "labels spread over five steps, from the middle on": ({}, {"repeat": False, "spread": 5, "late": 0.5}),
}
TASKS = {"ssl": BOTH | WITHOUT_SOURCE, "ssda": WITH_SOURCE | BOTH, "ssda5": FIVE_LABELS}


def train(task: str, variant: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    options, changes = TASKS[task][variant]
    source, labels = "" if task == "ssl" else "rendered", 5 if task == "ssda5" else 1
    run = Run(
        task=task.removesuffix("5"), source=source, target="handwritten", labels=labels, options=options, seed=seed
    )
    run = replace(run, recipe=replace(run.recipe, **changes))
    with tempfile.TemporaryDirectory() as folder:
        held = RunFolder(Path(folder) / "run")
        experiment.solve(run, experiment.problem_of(run, None), held, Execution(speed.choose("cpu"), quiet=True))
        result = held.result()
    assert result is not None
    facts = {name: result[name] for name in ("accuracy", "seconds", "machine", "versions", "date")}
    return {"task": task, "variant": variant, "seed": seed, **facts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--task", choices=TASKS, action="append", help="both, unless given")
    given = parser.parse_args()
    rows = json.loads(given.out.read_text()) if given.out.exists() else []
    done = {(row["task"], row["variant"], row["seed"]) for row in rows}
    every = [(task, name, seed) for task, each in TASKS.items() for name in each for seed in range(given.seeds)]
    wanted = [each for each in every if each[0] in (given.task or TASKS)]
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(train, *each) for each in wanted if each not in done]):
            rows.append(future.result())
            print(*(rows[-1][name] for name in ("task", "variant", "seed", "accuracy")), sep="\t", flush=True)
            rows.sort(key=lambda row: every.index((row["task"], row["variant"], row["seed"])))
            given.out.write_text(json.dumps(rows, indent=1) + "\n")
    for task, variants in TASKS.items():
        for name in variants:
            mine = [row["accuracy"] for row in rows if (row["task"], row["variant"]) == (task, name)]
            if mine:
                print(f"{task} {name:48} {statistics.mean(mine):.1f}", *(f"{value:.1f}" for value in mine))


if __name__ == "__main__":
    main()
