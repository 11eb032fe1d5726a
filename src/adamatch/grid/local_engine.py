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
from pathlib import Path
from typing import Any

import torch

from adamatch.base import system
from adamatch.base.errors import InputError, Interruption
from adamatch.grid import lease
from adamatch.grid.work import (
    STOPPED,
    BrokenProcess,
    Job,
    Resources,
    on_signals,
    say,
    stop_on_signals,
    stop_the_loop,
    work,
)

DEATHS = 2  # a run that kills so many workers of one call (too little memory, say) has failed
EARLY_DEATHS = 10  # so many workers may end with no run in their hands before the engine gives up
# Exit codes of a worker that was asked to stop, that cannot go on (a full disk, say), that a new one replaces.
ASKED_TO_STOP, REFUSED, BROKEN = 3, 4, 5


def run(job: Job, asked: Resources) -> None:
    """An engine: so many processes on this machine; one is this process itself. One that dies is replaced."""
    if asked.processes == 1:
        work(job)
        return
    context = multiprocessing.get_context("spawn")
    deaths: Counter[str] = Counter()
    workers: dict[int, BaseProcess] = {}
    missing = list(range(asked.processes))
    with stop_on_signals() as check:
        try:
            while missing or workers:
                for number in missing:
                    workers[number] = context.Process(target=_worker, args=(job, number, asked.processes))
                    with on_signals(signal.SIG_IGN, signal.SIGINT):  # Ctrl-C, which would end the worker in its imports
                        workers[number].start()
                connection.wait([worker.sentinel for worker in workers.values()], timeout=1)
                check()
                ended = {number: worker for number, worker in workers.items() if worker.exitcode is not None}
                missing = [number for number, worker in ended.items() if _is_missed(job, worker, deaths)]
                workers = {number: worker for number, worker in workers.items() if number not in ended}
        finally:
            for worker in workers.values():
                worker.terminate()  # it writes a checkpoint first
            for worker in workers.values():
                worker.join()


def _is_missed(job: Job, worker: BaseProcess, deaths: Counter[str]) -> bool:
    """Whether a worker that ended is to be replaced. A run that kills every worker has failed."""
    code = worker.exitcode or 0
    if code == 0:
        return False
    if code == ASKED_TO_STOP:
        raise Interruption(STOPPED)
    if code == REFUSED:
        raise InputError("a worker cannot continue: its line above says why")
    me = (worker.pid, lease.this_machine())
    runs = [run for run in job.runs if me in _holders(job.folders.of(run))]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    deaths.update([run.id for run in runs] or [""])
    if deaths[""] > EARLY_DEATHS:
        raise InputError(f"workers end before they start a run ({how}): try --processes 1 to see why")
    for run in runs:
        if deaths[run.id] >= DEATHS and not job.folders.done(run):
            job.fail(run, f"its process ended {DEATHS} times with {how}: too little memory is a frequent cause")
    return True


def _holders(folder: Path) -> list[tuple[Any, str]]:
    return [(facts["pid"], facts["machine"]) for facts in lease.holders(folder)]


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
    except (InputError, OSError) as error:
        say(f"error: {error}")
        sys.exit(BROKEN if isinstance(error, BrokenProcess) else REFUSED)


def _follow() -> None:
    """End with the process that started this one: a run that is under way is saved, and no other begins."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    while True:  # until the loop listens; it may not yet have begun
        stop_the_loop()
        time.sleep(1)
