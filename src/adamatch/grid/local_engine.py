"""The engine `local`: one run after the other in this process, or several processes on this machine."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import NoReturn

import torch

from adamatch.base import system
from adamatch.base.errors import InputError, Interruption
from adamatch.grid import lease
from adamatch.grid.spread import Resources
from adamatch.grid.work import BrokenProcess, Job, say, stop_the_loop, work_and_look_again

DEATHS = 2  # a run that kills so many workers of one call (too little memory, say) has failed
EARLY_DEATHS = 10  # so many workers may end with no run in their hands before the engine gives up
# Exit codes of a worker that was asked to stop, of one that cannot go on (a full disk, say), of one that a new one replaces.
STOPPED, REFUSED, BROKEN = 3, 4, 5


def run(job: Job, asked: Resources) -> None:
    """An engine: so many processes on this machine; one is this process itself."""
    if asked.processes < 1:
        raise InputError(f"processes counts workers: give 1 or more, not {asked.processes}")
    if asked.processes == 1:
        work_and_look_again(job)
    else:
        _workers(job, asked.processes)


def _workers(job: Job, count: int) -> None:
    """Worker processes. One that dies is replaced, its run resumed by whoever comes to it."""
    context = multiprocessing.get_context("spawn")
    deaths: Counter[str] = Counter()
    workers: dict[int, BaseProcess] = {}

    listens = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()

    def start(number: int) -> None:
        workers[number] = context.Process(target=_worker, args=(job, number, count))
        if listens:  # Ctrl-C reaches workers too, and is not for them: it would end them in the middle of their imports
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        workers[number].start()
        if listens:
            signal.signal(signal.SIGINT, raise_interruption)

    before = {number: signal.signal(number, raise_interruption) for number in listens}
    try:
        for number in range(count):
            start(number)
        while workers:
            connection.wait([worker.sentinel for worker in workers.values()])
            for number, worker in list(workers.items()):
                if worker.exitcode is None:
                    continue
                del workers[number]
                if worker.exitcode == STOPPED:
                    raise_interruption()
                if worker.exitcode == REFUSED:
                    raise InputError("a worker cannot continue: its line above says why")
                if worker.exitcode != 0:
                    _after_death(job, worker, deaths)
                    start(number)
    finally:
        for worker in workers.values():
            worker.terminate()  # it writes a checkpoint first
        for worker in workers.values():
            worker.join()
        for number, handler in before.items():
            signal.signal(number, handler)


def _after_death(job: Job, worker: BaseProcess, deaths: Counter[str]) -> None:
    """Count the deaths of the run that it was at; a run that kills every worker has failed."""
    was_at = [run for run in job.runs if any(_is_of(facts, worker) for facts in lease.holders(job.folders.of(run)))]
    code = worker.exitcode or 0
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    if not was_at:
        deaths[""] += 1
        if deaths[""] > EARLY_DEATHS:
            raise InputError(f"workers end before they start a run ({how}): try --processes 1 to see why")
    for run in was_at:
        deaths[run.id] += 1
        if deaths[run.id] >= DEATHS and not job.folders.done(run):
            job.folders.record(
                run, f"its process ended {DEATHS} times with {how}: too little memory is a frequent cause"
            )
            say(f"failed {run.name}: its process ended with {how}")


def _is_of(facts: dict[str, object], worker: BaseProcess) -> bool:
    return facts.get("pid") == worker.pid and facts.get("machine") == lease.this_machine()


def _worker(job: Job, number: int, count: int) -> None:
    """The life of a worker process: a share of the cores, one GPU, the walk."""
    threading.Thread(target=_follow, daemon=True).start()
    torch.set_num_threads(max(1, system.cores() // count))
    gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    gpus = [] if "-1" in gpus else gpus or [str(gpu) for gpu in range(torch.cuda.device_count())]
    if gpus and job.device in ("auto", "cuda"):
        mine = number % len(gpus)
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[mine]  # CUDA is not yet started in this process
        job = replace(job, at_a_time=len(range(mine, count, len(gpus))))
    elif job.device.startswith("cuda:"):
        job = replace(job, at_a_time=count)
    try:
        work_and_look_again(job)
    except Interruption:
        sys.exit(STOPPED)
    except BrokenProcess as error:  # a new worker takes its place
        say(f"a worker ends: {error}")
        sys.exit(BROKEN)
    except (InputError, OSError) as error:
        say(f"error: {error}")
        sys.exit(REFUSED)


def _follow() -> None:
    """End with the process that started this one: a run that is under way is saved, and no other begins."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    while True:  # until the loop listens; it may not yet have begun
        stop_the_loop()
        time.sleep(1)


def raise_interruption(number: int = 0, frame: FrameType | None = None) -> NoReturn:
    raise Interruption("the grid was stopped; its runs are saved where they stood")
