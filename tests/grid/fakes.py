"""Grids and trainings for the tests of the schedule; importable by the processes that they start."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adamatch.base.errors import InputError
from adamatch.config.presets import recipe
from adamatch.config.run import Run
from adamatch.grid import work
from adamatch.grid.work import Job
from adamatch.train.run_folder import RunFolder

RECIPE = recipe("handwriting", images=16, batch=8)  # two steps


def tiny() -> Iterator[Run]:
    """Real runs, as small as they get."""
    for seed in range(2):
        for method in ("supervised", "baseline_bn"):
            yield run(method=method, seed=seed)


def run(**changes: Any) -> Run:
    values: dict[str, Any] = {"source": "rendered", "target": "handwritten", "recipe": RECIPE}
    return Run(**values | changes)


def result(done: Run, accuracy: float = 50.0, seconds: float = 1.0) -> dict[str, Any]:
    """A result.json made by hand."""
    facts = {"id": done.id, "run": json.loads(done.to_json()), "accuracy": accuracy, "seconds": seconds}
    return {**facts, "machine": "1 CPU threads, fp32", "median_of": 10}


def train(run: Run, folder: Path, job: Job) -> None:
    """Pretends: notes that it began and ended. Seed 7 fails; seed 9 takes its process with it."""
    held = RunFolder(folder)
    with held.claim(run):
        held.append({"step": 0, "began": os.getpid()})
        if run.seed == 7:
            raise InputError("this one cannot be done\nand this is its second line")
        if run.seed == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        held.finish(result(run))


def train_and_break(run: Run, folder: Path, job: Job) -> None:
    """Seed 8 fails, and takes the GPU of its process with it."""
    if run.seed == 8:
        work._clean_up = _broken  # of this process alone
        raise InputError("a CUDA error")
    train(run, folder, job)


def _broken() -> None:
    raise work.BrokenProcess("the GPU does not work any more")


def train_slowly(run: Run, folder: Path, job: Job) -> None:
    time.sleep(1.2)
    train(run, folder, job)


def starts(folder: Path) -> int:
    """How often a pretended run was begun."""
    try:
        return len((folder / "metrics.jsonl").read_text().splitlines())
    except FileNotFoundError:
        return 0
