"""Machines with clocks of their own on one file system, which dates files as they say; eight runs that only pretend."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grid import fakes, many

from adamatch.config.run import Run
from adamatch.grid import lease
from adamatch.grid.schedule import run_grid
from adamatch.grid.work import Job
from adamatch.train.run_folder import RunFolder

GRID = "grid.clocks:eight"
MACHINE = "ADAMATCH_TEST_MACHINE"  # its name, how far its clock is off, and what its trainings do, as JSON


def eight() -> Iterator[Run]:
    yield from (fakes.run(seed=seed) for seed in range(8))


def machine(name: str, out: Path, *more: str, offset: float = 0.0, does: str = "train") -> "subprocess.Popen[str]":
    """`adamatch grid run` of the eight runs on another machine. `does`: train; hang; or kill, once, its own process."""
    command = [sys.executable, "-c", "from grid import clocks; clocks.main()", "grid", "run", GRID, "--out", str(out)]
    environment = many.environment(**{MACHINE: json.dumps([name, offset, does])})
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *more], cwd=many.ROOT, env=environment, text=True, stdout=pipe, stderr=pipe)


def main() -> None:
    from adamatch.cli import main

    run_grid.__kwdefaults__["train"] = train  # type: ignore[index]
    main()


def train(run: Run, folder: Path, job: Job) -> None:
    does = json.loads(os.environ[MACHINE])[2]
    many.note(folder, f"began {os.getpid()}")
    with RunFolder(folder).claim(run):
        if does == "hang":
            time.sleep(600)
        if does == "kill":
            try:
                (folder.parent / ".killed").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        time.sleep(0.2)
        RunFolder(folder).finish(fakes.result(run))
    many.note(folder, "ended")


def _pretend() -> None:
    """In a process of such a machine: its name and its clock, also on the files that it makes and touches."""
    name, offset, _ = json.loads(os.environ[MACHINE])
    utime, link, now = os.utime, os.link, time.time

    def touch(path: Any, times: Any = None, **more: Any) -> None:
        utime(path, times or (now() + offset, now() + offset), **more)

    def link_and_touch(old: Any, new: Any) -> None:
        link(old, new)
        touch(new)

    lease.this_machine = lambda: name
    lease._now = lambda folder: now() + offset
    lease.BEAT, lease.DEAD_AFTER = 0.5, 8.0
    os.utime, os.link, time.time = touch, link_and_touch, lambda: now() + offset  # type: ignore[assignment]


if MACHINE in os.environ:  # also in the worker processes, which import this for `train`
    _pretend()
