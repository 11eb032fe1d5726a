"""Do the runs of a grid. Every worker walks a list of runs; leases say who does what, files what is done."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from adamatch.base.errors import InputError, unknown
from adamatch.config.run import Run
from adamatch.grid import local_engine, ray_engine, slurm_engine
from adamatch.grid.state import STATES, Folders, State
from adamatch.grid.work import Job, Resources, Train, train_one
from adamatch.train import speed

# Where runs are done. All that engines know of each other is on disk, so that they may be mixed and exchanged.
ENGINES: dict[str, Callable[[Job, Resources], None]] = {
    "local": local_engine.run,
    "ray": ray_engine.run,
    "slurm": slurm_engine.run,
}


def run_grid(
    runs: Iterable[Run],
    folder: str | Path,
    *,
    keep: str | Path | None = None,
    seconds: float | None = None,
    retry: bool = False,
    data: str | Path | None = None,
    device: str = "auto",
    train: Train = train_one,
    engine: str = "local",
    resources: Resources = Resources(),  # noqa: B008 - it cannot be changed
) -> dict[State, int]:
    """Do those of the runs that are neither done nor failed; returns how many are in which state afterwards.

    seconds     start no run after so many, nor one that would not end by then as far as this call has seen
    retry       try failed runs again
    engine      local; ray; slurm, which returns once the runs wait in SLURM's queue
    resources   what the engine is asked for
    """
    _check(engine, device, resources)
    folders = Folders(Path(folder), Path(keep) if keep else None)
    for each in filter(None, (folders.out, folders.keep)):
        each.mkdir(parents=True, exist_ok=True)
    deadline = float("inf") if seconds is None else time.monotonic() + seconds
    quiet = resources.processes > 1 or engine != "local" or not sys.stderr.isatty()
    data = Path(data) if data else None
    job = Job(tuple(runs), folders, train, deadline=deadline, data=data, device=device, quiet=quiet)
    for run in job.runs:
        folders.keep_result(run)  # of a worker that was killed before it could
        state = folders.state(run)  # looked at in any case: it is from the first look on that a lease is watched
        if state == "failed" and retry:
            folders.forget(run)
    ENGINES[engine](job, resources)
    states = Counter(folders.state(run) for run in job.runs)
    return {state: states[state] for state in STATES}


def _check(engine: str, device: str, asked: Resources) -> None:
    """Refuse once, rather than by every run, what the engine cannot do."""
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if asked.processes < 1:
        raise InputError(f"processes counts workers: give 1 or more, not {asked.processes}")
    if engine == "local":
        speed.choose(device)
        usual = asdict(Resources(processes=asked.processes))
        if others := [name for name, value in asdict(asked).items() if value != usual[name]]:
            raise InputError(f"{', '.join(others)}: these are for a cluster, give --engine ray or slurm with them")
    elif asked.processes != 1:
        raise InputError(f"--processes is for --engine local: {engine} has as many workers as its cluster has room for")
    elif device not in ("auto", "cpu", "cuda"):
        raise InputError(f"--engine {engine} chooses the GPU by itself: give --device auto, cpu or cuda, not {device}")
    elif asked.cpus_per_run < 1:
        raise InputError(f"--cpus-per-run: give 1 or more, not {asked.cpus_per_run}")
