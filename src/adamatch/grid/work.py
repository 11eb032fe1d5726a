"""What a worker does, here or on another machine: walk a list of runs, and do those that nobody has done or is doing.

And what engines start workers with: a job, what was asked of the engine, batches of runs.
"""

import _thread
import gc
import importlib
import multiprocessing
import platform
import shutil
import signal
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from adamatch import experiment
from adamatch.base import locks
from adamatch.base.errors import InputError, Interruption, shown
from adamatch.base.files import disk_is_full, disk_reason, is_transient
from adamatch.base.regular_files import read_own
from adamatch.config.run import Run
from adamatch.datasets.catalog import default_root
from adamatch.grid import cost, lease
from adamatch.grid.lease import Lease
from adamatch.grid.state import Folders, one_line
from adamatch.train import speed

RETRY_AFTER = (10.0, 60.0, 300.0)  # seconds, before a run is tried again whose disk was away for a moment
ROOM = 200 * 2**20  # bytes that must be free to start a run: a full disk would fail one run after the other
MOST = 8  # runs in a batch: compiling is paid once in so many, which is little enough
LONGEST = 3600.0  # seconds that a batch of several runs may be estimated to take
ROUNDS = 4  # batches for each place where one can be done, so that the last ones to end do not end late
PATIENCE = 10.0  # seconds in which a file must show up on a shared file system
STOPPED = "the grid was stopped; its runs are saved where they stood"

Train = Callable[[Run, Path, "Job"], object]


class BrokenProcess(InputError):  # noqa: N818
    """This process cannot continue; a new one on the same machine can."""


@dataclass(frozen=True)
class Job:
    """What a worker needs to know; it is sent to other processes."""

    runs: tuple[Run, ...]
    folders: Folders
    train: Train
    _: KW_ONLY
    deadline: float = float("inf")  # on time.monotonic(); no run is started after it
    data: Path | None = None
    device: str = "auto"
    at_a_time: int = 1  # runs that share a GPU
    quiet: bool = True

    def left(self) -> list[Run]:
        """The runs that are neither done nor failed."""
        return [run for run in self.runs if self.folders.state(run) in ("waiting", "running")]

    def absolute(self) -> "Job":
        """The same with paths that mean the same to a worker that was started elsewhere."""
        folders, data = self.folders, self.data or default_root()
        keep = folders.keep.absolute() if folders.keep else None
        return replace(self, folders=Folders(folders.out.absolute(), keep), data=data.absolute())

    def fail(self, run: Run, why: str, trace: str = "") -> None:
        self.folders.record(run, why, trace)
        say(f"failed {run.name}: {why}")


@dataclass(frozen=True)
class Resources:
    """What was asked of an engine; each takes what concerns it."""

    processes: int = 1  # local; more than one share all GPUs that there are
    cpus_per_run: int = 1
    gpus_per_run: float | None = None  # None: one where there are GPUs (Ray), none (SLURM)
    address: str = ""  # of a Ray cluster; empty: $RAY_ADDRESS, else a Ray of this machine alone
    partition: str = ""  # SLURM, as all that follows
    minutes: int = 1440  # after which SLURM ends a job; it goes on in the queue by itself
    array_limit: int | None = None  # None: SLURM's own MaxArraySize
    at_once: int | None = None  # array tasks at the same time; None: as many as there is room for
    options: Mapping[str, str] = field(default_factory=dict)  # further ones of sbatch: account, qos, mem, ...


@dataclass
class Pace:
    """What a step of each shape last took in this process, start-up included, to tell what still fits."""

    measured: dict[cost.Shape, cost.Measured] = field(default_factory=dict)

    def note(self, run: Run, seconds: float) -> None:
        shape = cost.shape(run)
        self.measured[shape] = cost.Measured(shape, seconds / cost.length(run), "this process")

    def fits(self, run: Run, left: float) -> bool:
        """A shape that is new here is estimated from the others; the first run of all is always begun."""
        return not self.measured or cost.estimate(run, self.measured.values()).seconds <= left


def train_one(run: Run, folder: Path, job: Job) -> object:
    machine = replace(speed.choose(job.device), at_a_time=job.at_a_time)
    return experiment.train(run, out=folder, data=job.data, machine=machine, quiet=job.quiet)


def work(job: Job) -> None:
    """What a worker does: walk the list, then once more, for runs whose holder has died meanwhile."""
    pace = Pace()
    walk(job, pace)
    walk_again(job, pace)


def walk(job: Job, pace: Pace | None = None) -> None:
    """Do one run after the other until none is left or the time is over."""
    pace, parent = pace or Pace(), multiprocessing.parent_process()
    for run in job.runs:
        left = job.deadline - time.monotonic()
        if left <= 0 or (parent is not None and not parent.is_alive()):
            return
        if pace.fits(run, left):
            perform(run, job, pace)


def walk_again(job: Job, pace: Pace | None = None) -> None:
    """Do the runs that others had, where these left them or show no life any more."""
    for run in job.left():
        if not lease.shows_life(job.folders.of(run), job.deadline):
            walk(replace(job, runs=(run,)), pace)


def perform(run: Run, job: Job, pace: Pace) -> None:
    """Do one run, unless it is done, has failed, or is being done."""
    for pause in (*RETRY_AFTER, None):
        try:
            _perform(run, job, pace, last=pause is None)
            return
        except Exception as error:
            if disk_is_full(error):
                says = f"the disk is full, at {run.name}: make room and start again"
                raise InputError(f"{platform.node()}: {says}") from None
            if pause is None or not is_transient(error):
                raise
            say(f"{run.name}: {disk_reason(error)}; it is tried again in {pause:.0f} s")
        time.sleep(pause)


def _perform(run: Run, job: Job, pace: Pace, last: bool) -> None:
    """`last`: the run has failed even if its error is of a disk that may come back."""
    folders = job.folders
    if folders.state(run) != "waiting":
        return
    folders.out.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folders.out).free < ROOM:
        says = f"{folders.out} has less than {ROOM >> 20} MB free: make room and start again"
        raise InputError(f"{platform.node()}: {says}")
    folder = folders.make(run)
    held = Lease(folder)
    with held.hold(on_loss=stop_the_loop) as ours:
        # Between the first look and the lease a worker may have ended it; and somebody may train there without a lease.
        if not ours or folders.done(run) or folders.error(run) or locks.is_locked(folder / ".lock"):
            return
        began = time.monotonic()
        say(f"start {run.name}")
        try:
            job.train(run, folder, job)
        except Interruption:
            if not held.lost:
                raise
            say(f"left to another worker, which took it over: {run.name}")
            return
        except Exception as error:
            if disk_is_full(error) or (is_transient(error) and not last):  # no fault of the run
                raise
            job.fail(run, one_line(error), "".join(traceback.format_exception(error)))
        else:
            folders.keep_result(run)
            seconds, result = time.monotonic() - began, folders.result(run) or {}
            pace.note(run, max(seconds, result.get("wall_seconds") or 0.0))  # it may have been resumed
            accuracy = result.get("accuracy")
            say(f"done {run.name}: {'' if accuracy is None else f'{accuracy:.2f} %, '}{seconds:.0f} s")
    _clean_up()


def stop_the_loop() -> None:
    """As SIGTERM does: the training loop saves and stops. Without effect outside of a loop, where nobody listens."""
    _thread.interrupt_main(signal.SIGTERM)


@contextmanager
def on_signals(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    """These signals go to the handler meanwhile, in the main thread: no other can have them."""
    listens = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if listens}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], None]]:
    """To be called now and then: it raises once Ctrl-C or SIGTERM came, which interrupt nothing else meanwhile."""
    caught: list[int] = []

    def check() -> None:
        if caught:
            raise Interruption(STOPPED)

    with on_signals(lambda number, frame: caught.append(number), signal.SIGINT, signal.SIGTERM):
        yield check


def _clean_up() -> None:
    """Give back the memory that the last run held; what was compiled stays, for the next run of the same shapes."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            says = f"the GPU does not work any more in this process ({one_line(error)}): start again"
            raise BrokenProcess(says) from None


def library(engine: str, name: str, where: str = "") -> Any:
    """What an engine is made with."""
    try:
        return importlib.import_module(name.lower())
    except ImportError:
        raise InputError(f"--engine {engine} needs {name}: pip install 'adamatch[{engine}]'{where}") from None


def say(line: str) -> None:
    print(shown(line), file=sys.stderr, flush=True)


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
    while not token.exists() or read_own(token).decode() != token.name:
        if time.monotonic() > end:
            remedy = "give --out on a file system that all machines share, at the same path"
            raise InputError(f"{platform.node()} does not see the {out} that the grid was started with: {remedy}")
        time.sleep(0.5)


def do_batch(job: Job, token: Path, threads: int, until: float = float("inf")) -> None:
    """What a worker on some machine does: its runs, and those whose holder died. `until` is a time of day."""
    check_shared(token, job.folders.out)
    torch.set_num_threads(threads)
    work(replace(job, deadline=time.monotonic() + until - time.time()))
