"""The engine `ray`: batches of runs as tasks of Ray Core, on a cluster by its address or on this machine alone."""

import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from adamatch.base.errors import InputError, Interruption
from adamatch.config.run import Run
from adamatch.grid import lease
from adamatch.grid.local_engine import EARLY_DEATHS
from adamatch.grid.state import one_line
from adamatch.grid.work import (
    BrokenProcess,
    Job,
    Resources,
    batches,
    do_batch,
    library,
    say,
    stop_on_signals,
    write_token,
)

RETRIES = 2  # of a task whose worker or machine died, by Ray itself
GRACE = 30.0  # seconds for tasks that are asked to stop to write their checkpoints


def run(job: Job, asked: Resources) -> None:
    """An engine: returns when every run is done, failed, or done by somebody else."""
    ray = library("ray", "Ray", ", on every machine of the cluster")
    job = job.absolute()
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, asked.address)
    token = write_token(job.folders.out)
    try:
        with stop_on_signals() as check:
            _drive(ray, job, asked, token, check)
    finally:
        token.unlink(missing_ok=True)
        if ours:
            ray.shutdown()


def _drive(ray: Any, job: Job, asked: Resources, token: Path, check: Callable[[], None]) -> None:
    """Hand out the batches; what a dead worker leaves undone is handed out again."""
    gpus, places = _places(ray, job, asked)
    until = job.deadline - time.monotonic() + time.time()
    job = replace(
        job,
        device=job.device if gpus else "cpu",
        at_a_time=int(1 / gpus) if 0 < gpus < 1 else 1,
        deadline=float("inf"),  # monotonic clocks are each machine's own
    )
    deaths: Counter[str] = Counter()
    pending: dict[Any, tuple[Run, ...]] = {}
    needs = {"num_cpus": asked.cpus_per_run, "num_gpus": gpus}

    def submit(batch: tuple[Run, ...]) -> None:
        if not batch:
            return
        task = ray.remote(**needs, max_retries=RETRIES, retry_exceptions=[Interruption])(_task)
        pending[task.remote(replace(job, runs=batch), token, asked.cpus_per_run, until)] = batch

    for batch in batches(job.left(), places):
        submit(batch)
    try:
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=1)  # inside of it no signal can raise
            check()
            if not ready:
                continue
            ended = ready[0]
            batch = pending.pop(ended)
            try:
                ray.get(ended)
            except ray.exceptions.RayTaskError as error:
                raise InputError(f"a task could not be done on its machine: {one_line(error.cause or error)}") from None
            except ray.exceptions.RayError as error:
                submit(_after_death(job, batch, deaths, one_line(error)))
                continue
            for each in batch:
                job.folders.keep_result(each)  # where the worker's folder of kept results is not ours
    finally:
        for task in pending:
            ray.cancel(task)  # as Ctrl-C would: a run that is under way is saved
        if pending:
            ray.wait(list(pending), num_returns=len(pending), timeout=GRACE)


def _task(job: Job, token: Path, threads: int, until: float) -> None:
    """What a Ray worker does. A full disk or a folder that is not shared end the grid, as everywhere."""
    try:
        do_batch(job, token, threads, until)
    except BrokenProcess as error:
        say(f"error: {error}")
        os._exit(1)  # Ray does the rest of the batch again, in a new process


def _after_death(job: Job, batch: tuple[Run, ...], deaths: Counter[str], reason: str) -> tuple[Run, ...]:
    """What is left of a batch that Ray gave up after its retries: the run that its workers died of has failed."""
    undone = replace(job, runs=batch).left()
    folders = {run.id: job.folders.of(run) for run in undone}
    culprits = [run for run in undone if lease.leases(folders[run.id]) and not lease.shows_life(folders[run.id])]
    for run in culprits:
        job.fail(run, f"its workers died {RETRIES + 1} times ({reason}): too little memory is a frequent cause")
    if not culprits:
        deaths[""] += 1
        if deaths[""] > EARLY_DEATHS:
            raise InputError(f"Ray's workers end before they start a run ({reason}): try --engine local to see why")
    return tuple(run for run in undone if run not in culprits)


def _places(ray: Any, job: Job, asked: Resources) -> tuple[float, int]:
    """GPUs for a run, and how many runs the cluster can do at the same time."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    there = sum(node.get("GPU", 0) for node in nodes)
    gpus = asked.gpus_per_run
    if gpus is None:
        gpus = 1.0 if there and job.device != "cpu" else 0.0
    if not gpus and job.device == "cuda":
        there_are = "none were asked for or are in the Ray cluster"
        raise InputError(f"--device cuda needs GPUs, and {there_are}: give --gpus-per-run 1")
    if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise InputError(f"--gpus-per-run: give a part of one (0.5) or whole ones, not {gpus}")
    rooms = [node.get("CPU", 0) // asked.cpus_per_run for node in nodes]
    if gpus:
        per_gpu = [int(1 / gpus) * node.get("GPU", 0) if gpus <= 1 else node.get("GPU", 0) // gpus for node in nodes]
        rooms = [min(pair) for pair in zip(rooms, per_gpu, strict=True)]
    if sum(rooms) < 1:
        needs = f"{asked.cpus_per_run} CPUs and {gpus:g} GPUs for a run (in all it has {there:g} GPUs)"
        raise InputError(f"no machine of the Ray cluster has {needs}: give other --cpus-per-run and --gpus-per-run")
    return gpus, int(sum(rooms))


def _connect(ray: Any, address: str) -> None:
    where = address or os.environ.get("RAY_ADDRESS", "") or "local"
    remedy = "start one with `ray start --head`, or leave --address out to use this machine alone"
    endpoint = re.fullmatch(r"(?:ray://)?\[?([^\[\]/]+)\]?:(\d+)", where)
    if endpoint:
        try:  # Ray itself would try for minutes
            socket.create_connection((endpoint[1], int(endpoint[2])), timeout=5).close()
        except (OSError, OverflowError):
            raise InputError(f"no Ray cluster answers at {where}: {remedy}") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address=where, logging_level="error", log_to_driver=True)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        # To an address that was given, Ray sends its token only if told to; that is the user's to decide.
        asks = "if it asks for a token, set RAY_AUTH_MODE=token; else "
        raise InputError(f"no Ray cluster can be reached at {where} ({one_line(error)}): {asks}{remedy}") from None
