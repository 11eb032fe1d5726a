"""Work for other machines: what is asked of an engine, batches of runs, and what a worker does with a batch."""

import platform
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.datasets.catalog import default_root
from adamatch.grid import cost
from adamatch.grid.state import Folders
from adamatch.grid.work import Job, work

MOST = 8  # runs in a batch: compiling is paid once in so many, which is little enough
LONGEST = 3600.0  # seconds that a batch of several runs may be estimated to take
ROUNDS = 4  # batches for each place where one can be done, so that the last ones to end do not end late
PATIENCE = 10.0  # seconds in which a file must show up on a shared file system


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What was asked of an engine; each takes what concerns it."""

    processes: int = 1  # local
    cpus_per_run: int = 1
    gpus_per_run: float | None = None  # None: one where there are GPUs (Ray), none (SLURM)
    address: str = ""  # of a Ray cluster; empty: $RAY_ADDRESS, else a Ray of this machine alone
    partition: str = ""  # SLURM, as all that follows
    minutes: int = 1440  # after which SLURM ends a job; it goes on in the queue by itself
    array_limit: int | None = None  # None: SLURM's own MaxArraySize
    at_once: int | None = None  # array tasks at the same time; None: as many as there is room for
    options: Mapping[str, str] = field(default_factory=dict)  # further ones of sbatch: account, qos, mem, ...


def absolute(job: Job) -> Job:
    """The same with paths that mean the same to a worker that was started elsewhere."""
    folders, data = job.folders, job.data or default_root()
    keep = folders.keep.absolute() if folders.keep else None
    return replace(job, folders=Folders(folders.out.absolute(), keep), data=data.absolute())


def batches(runs: Sequence[Run], places: int = 1) -> list[tuple[Run, ...]]:
    """Runs of the same shapes together, so that a worker compiles once; few enough that all places have work."""
    most = max(1, min(MOST, len(runs) // (ROUNDS * places)))
    made: list[list[Run]] = []  # in the order of their first runs: the most wanted first
    filling: dict[object, tuple[list[Run], float]] = {}
    for run in runs:
        shape = (run.benchmark, cost.shape(run))
        batch, seconds = filling.get(shape, ([], 0.0))
        own = cost.estimate(run).seconds
        if not batch or len(batch) == most or seconds + own > LONGEST:
            batch, seconds = [], 0.0
            made.append(batch)
        batch.append(run)
        filling[shape] = (batch, seconds + own)
    return [tuple(batch) for batch in made]


def write_token(folder: Path) -> Path:
    """A file that holds its own name: whoever starts a grid writes it, and every worker must find it."""
    token = folder / f".shared-{uuid.uuid4().hex}"
    folder.mkdir(parents=True, exist_ok=True)
    token.write_text(token.name)
    return token


def check_shared(token: Path, out: Path) -> None:
    """That this machine sees the folder of the machine that started the grid."""
    end = time.monotonic() + PATIENCE
    while not token.exists() or token.read_text() != token.name:
        if time.monotonic() > end:
            remedy = "give --out on a file system that all machines share, at the same path"
            raise InputError(f"{platform.node()} does not see the {out} that the grid was started with: {remedy}")
        time.sleep(0.5)


def do_batch(job: Job, token: Path, threads: int, until: float = float("inf")) -> None:
    """What a worker on some machine does: its runs, and those whose holder died. `until` is a time of day."""
    check_shared(token, job.folders.out)
    torch.set_num_threads(threads)
    work(replace(job, deadline=time.monotonic() + until - time.time()))
