"""Do a grid's runs that are not done. Every worker walks a list of runs; leases say who does what, files what is done."""

import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from adamatch.config.run import Run
from adamatch.grid import engines
from adamatch.grid.spread import Resources
from adamatch.grid.state import STATES, Folders, State
from adamatch.grid.work import Job, Train, train_one
from adamatch.train import speed


def run_grid(
    runs: Iterable[Run],
    folder: str | Path,
    *,
    keep: str | Path | None = None,
    seconds: float | None = None,
    processes: int = 1,
    retry: bool = False,
    data: str | Path | None = None,
    device: str = "auto",
    train: Train = train_one,
    engine: str = "local",
    resources: Resources | None = None,
) -> dict[State, int]:
    """Do those of the runs that are neither done nor failed; returns how many are in which state afterwards.

    seconds     start no run after so many, nor one that would not end by then as far as this call has seen
    processes   1: one run after the other in this process; more: so many worker processes, spread over the GPUs that there are
    retry       try failed runs again
    engine      local; ray; slurm, which returns once the runs wait in SLURM's queue
    resources   what the engines ray and slurm are asked for
    """
    folders = Folders(Path(folder), Path(keep) if keep else None)
    if engine == "local":
        speed.choose(device)  # refused once, rather than by every run
    for each in (folders.out, folders.keep):
        if each is not None:
            each.mkdir(parents=True, exist_ok=True)
    deadline = float("inf") if seconds is None else time.monotonic() + seconds
    quiet = processes > 1 or engine != "local" or not sys.stderr.isatty()
    where = Path(data) if data else None
    job = Job(tuple(runs), folders, train, deadline=deadline, data=where, device=device, quiet=quiet)
    do = engines.choose(engine, job, asked := replace(resources or Resources(), processes=processes))
    for run in job.runs:
        folders.keep_result(run)  # of a worker that was killed before it could
        if (
            folders.state(run) == "failed" and retry
        ):  # looked at in any case: of leases that change later it is known who lives
            folders.forget(run)
    do(job, asked)
    states = Counter(folders.state(run) for run in job.runs)
    return {state: states[state] for state in STATES}
