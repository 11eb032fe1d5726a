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
from typing import Any, NoReturn

import torch

from adamatch.base import system
from adamatch.base.errors import InputError, Interruption
from adamatch.config.run import Run
from adamatch.grid import lease
from adamatch.grid.batches import Resources
from adamatch.grid.work import STOPPED, BrokenProcess, Job, on_signals, say, stop_the_loop, work

DEATHS = 2  # a run that kills so many workers of one call (too little memory, say) has failed
EARLY_DEATHS = 10  # so many workers may end with no run in their hands before the engine gives up
# Exit codes of a worker that was asked to stop, that cannot go on (a full disk, say), that a new one replaces.
ASKED_TO_STOP, REFUSED, BROKEN = 3, 4, 5


def run(job: Job, asked: Resources) -> None:
    """An engine: so many processes on this machine; one is this process itself."""
    if asked.processes == 1:
        work(job)
    else:
        _workers(job, asked.processes)


def _workers(job: Job, count: int) -> None:
    """Worker processes. One that dies is replaced, its run resumed by whoever comes to it."""
    context = multiprocessing.get_context("spawn")
    deaths: Counter[str] = Counter()
    workers: dict[int, BaseProcess] = {}
    with on_signals(_interrupt) as listens:

        def start(number: int) -> None:
            workers[number] = context.Process(target=_worker, args=(job, number, count))
            if (
                listens
            ):  # Ctrl-C reaches workers too, and is not for them: it would end them in the middle of their imports
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            workers[number].start()
            if listens:
                signal.signal(signal.SIGINT, _interrupt)

        try:
            for number in range(count):
                start(number)
            while workers:
                connection.wait([worker.sentinel for worker in workers.values()])
                for number, worker in list(workers.items()):
                    if worker.exitcode is None:
                        continue
                    del workers[number]
                    if worker.exitcode == ASKED_TO_STOP:
                        _interrupt()
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


def _after_death(job: Job, worker: BaseProcess, deaths: Counter[str]) -> None:
    """Count the deaths of the run that it was at; a run that kills every worker has failed."""

    def had(run: Run) -> bool:
        holders = [(facts["pid"], facts["machine"]) for facts in lease.holders(job.folders.of(run))]
        return (worker.pid, lease.this_machine()) in holders

    runs = [run for run in job.runs if had(run)]
    code = worker.exitcode or 0
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    deaths.update([run.id for run in runs] or [""])
    if deaths[""] > EARLY_DEATHS:
        raise InputError(f"workers end before they start a run ({how}): try --processes 1 to see why")
    for run in runs:
        if deaths[run.id] >= DEATHS and not job.folders.done(run):
            why = f"its process ended {DEATHS} times with {how}: too little memory is a frequent cause"
            job.folders.record(run, why)
            say(f"failed {run.name}: its process ended with {how}")


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
        work(job)
    except Interruption:
        sys.exit(ASKED_TO_STOP)
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


def _interrupt(number: int = 0, frame: Any = None) -> NoReturn:
    raise Interruption(STOPPED)
