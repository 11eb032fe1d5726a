"""What a worker does: walk the list of runs, and do those that nobody has done or is doing."""

import _thread
import gc
import multiprocessing
import platform
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from adamatch import experiment
from adamatch.base import locks
from adamatch.base.errors import InputError, Interruption, shown
from adamatch.base.files import disk_is_full, disk_reason, is_transient
from adamatch.config.run import Run
from adamatch.grid import cost, lease
from adamatch.grid.lease import Lease
from adamatch.grid.state import Folders, one_line
from adamatch.train import speed

RETRY_AFTER = (10.0, 60.0, 300.0)  # seconds, before a run is tried again whose disk was away for a moment
ROOM = 200 * 2**20  # bytes that must be free to start a run: a full disk would fail one run after the other
STOPPED = "the grid was stopped; its runs are saved where they stood"

Train = Callable[[Run, Path, "Job"], object]


class BrokenProcess(InputError):  # noqa: N818
    """This process can do no run any more, another one on the same machine can."""


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
            folders.record(run, one_line(error), "".join(traceback.format_exception(error)))
            say(f"failed {run.name}: {one_line(error)}")
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
def on_signals(handler: Callable[[int, Any], None]) -> Iterator[bool]:
    """Ctrl-C and SIGTERM go to the handler meanwhile; whether they do: only the main thread can have them."""
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield bool(numbers)
    finally:
        for number, old in before.items():
            signal.signal(number, old)


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


def say(line: str) -> None:
    print(shown(line), file=sys.stderr, flush=True)
