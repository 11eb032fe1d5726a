"""What one worker does: walk the list of runs, and do those that nobody has done or is doing."""

import _thread
import gc
import multiprocessing
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

import torch

from adamatch import experiment
from adamatch.base import locks
from adamatch.base.errors import InputError, Interruption, shown
from adamatch.base.files import disk_is_full, disk_reason, may_pass
from adamatch.config.run import Run
from adamatch.grid import cost, lease
from adamatch.grid.lease import Lease
from adamatch.grid.state import Folders, one_line, trace_of
from adamatch.train import speed

AGAIN_AFTER = (10.0, 60.0, 300.0)  # seconds, before a run is tried again whose disk was away for a moment
ROOM = 200 * 2**20  # bytes that must be free to start a run: a full disk would fail one run after the other

Train = Callable[[Run, Path, "Job"], object]


class BrokenProcess(InputError):  # noqa: N818
    """This process can do no run any more, another one on the same machine can."""


@dataclass(frozen=True)
class Job:
    """What a worker needs to know; goes to other processes as it is."""

    runs: tuple[Run, ...]
    folders: Folders
    train: Train
    _: KW_ONLY
    deadline: float = float("inf")  # on time.monotonic(); no run is started after it
    data: Path | None = None
    device: str = "auto"
    at_a_time: int = 1  # runs that share a GPU
    quiet: bool = True


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


def work(job: Job, pace: Pace | None = None) -> None:
    """Walk the list in this process until nothing is left to do or the time is over."""
    pace, parent = pace or Pace(), multiprocessing.parent_process()
    for run in job.runs:
        if parent is not None and not parent.is_alive():
            return
        left = job.deadline - time.monotonic()
        if left <= 0:
            return
        if pace.fits(run, left):
            perform(run, job, pace)


def work_and_look_again(job: Job) -> None:
    """What a worker does. It knows only so what became of the runs that others had, when it came by them."""
    pace = Pace()
    work(job, pace)
    look_again(job, pace)


def look_again(job: Job, pace: Pace | None = None) -> None:
    """Do those runs that wait after all, as whoever had them left them or shows no life any more."""
    left = [run for run in job.runs if job.folders.state(run) in ("waiting", "running")]
    for run in left:
        if not lease.shows_life(job.folders.of(run), job.deadline):
            work(replace(job, runs=(run,)), pace)


def perform(run: Run, job: Job, pace: Pace | None = None) -> None:
    """Do one run, unless it is done, has failed, or is being done. The whole of what an engine has to call."""
    for pause in (*AGAIN_AFTER, None):
        try:
            _perform(run, job, pace, last=pause is None)
            return
        except Exception as error:
            if disk_is_full(error):
                raise InputError(
                    f"{platform.node()}: the disk is full, at {run.name}: make room and start again"
                ) from None
            if pause is None or not may_pass(error):
                raise
            say(f"{run.name}: {disk_reason(error)}; it is tried again in {pause:.0f} s")
        time.sleep(pause)


def _perform(run: Run, job: Job, pace: Pace | None, last: bool) -> None:
    """`last`: an error of the disk that may pass counts as well."""
    folders = job.folders
    if folders.state(run) != "waiting":
        return
    _need_room(folders.out)
    folder = folders.make(run)
    held = Lease(folder)
    with held.hold(on_loss=stop_the_loop) as ours:
        # A worker may have ended it, or failed, between the first look and the lease; somebody may train there without a lease.
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
            if disk_is_full(error) or (may_pass(error) and not last):  # no fault of the run
                raise
            folders.record(run, one_line(error), trace_of(error))
            say(f"failed {run.name}: {one_line(error)}")
        else:
            folders.keep_result(run)
            spent, found = time.monotonic() - began, folders.result(run) or {}
            if pace is not None:
                pace.note(run, max(spent, found.get("wall_seconds") or 0.0))  # it may have been resumed
            accuracy = found.get("accuracy")
            shown = f"{accuracy:.2f} %, " if accuracy is not None else ""
            say(f"done {run.name}: {shown}{spent:.0f} s")
    _clean_up()


def stop_the_loop() -> None:
    """As SIGTERM does: the training loop saves and stops. Without effect outside of a loop, where nobody listens."""
    _thread.interrupt_main(signal.SIGTERM)


def _need_room(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(out).free < ROOM:
        raise InputError(f"{platform.node()}: {out} has less than {ROOM >> 20} MB free: make room and start again")


def _clean_up() -> None:
    """Give back the memory that the last run held; what was compiled stays, for the next run of the same shapes."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise BrokenProcess(
                f"the GPU does not work any more in this process ({one_line(error)}): start again"
            ) from None


def say(line: str) -> None:
    print(shown(line), file=sys.stderr, flush=True)
