"""Gives cases to processes and watches them: one that hangs, dies or takes too much memory is recorded and replaced."""

import multiprocessing as mp
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from fuzz.worker import Outcome, serve

LONGEST = 10.0  # seconds for one case
MOST = 2048  # MiB that a process may have in memory
START = 120.0  # seconds for a process to import everything
LOOK = 0.05  # seconds between two looks at its memory


class Case(NamedTuple):
    target: str
    number: int
    seed: int


def run(cases: Sequence[Case], table: str, processes: int) -> dict[Case, Outcome]:
    """What came of each case. `table`: the module whose TARGETS they are of."""
    _start_server(table)
    parts = [cases[number::processes] for number in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        done = pool.map(lambda part: _part(part, table), parts)
        found = {case: outcome for part in done for case, outcome in part.items()}
    return {case: found[case] for case in cases}


def _start_server(table: str) -> None:
    mp.get_context("forkserver").set_forkserver_preload(["fuzz.worker", table])
    with mock.patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(sys.path)}):  # by itself it looks elsewhere
        forkserver.ensure_running()


def _part(cases: Sequence[Case], table: str) -> dict[Case, Outcome]:
    outcomes: dict[Case, Outcome] = {}
    left, again = list(cases), set[Case]()
    while left:
        with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as folder:
            rest = _until_it_ends(left, table, Path(folder), outcomes)
        last = left[len(left) - len(rest) - 1]
        if outcomes[last].kind == "hang" and last not in again:  # a machine that is busy may have held it up: once more
            again.add(last)
            rest.insert(0, last)
        left = rest
    return outcomes


def _until_it_ends(cases: list[Case], table: str, folder: Path, outcomes: dict[Case, Outcome]) -> list[Case]:
    """Do cases in a new process; returns those that are left when it had to be ended."""
    # From a server that has imported everything and has no threads: a fork of a process with threads may hang.
    context = mp.get_context("forkserver")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, table, folder), daemon=True)
    process.start()
    theirs.close()
    try:
        if not mine.poll(START) or mine.recv() != "ready":
            raise RuntimeError("the process that reads cannot start")
        for number, case in enumerate(cases):
            mine.send(case)
            outcomes[case] = _watch(process, mine, folder)
            if not process.is_alive():
                return cases[number + 1 :]
        mine.send(None)
        process.join(LONGEST)
        return []
    finally:
        process.kill()
        process.join()


def _watch(process: mp.process.BaseProcess, pipe: "mp.connection.Connection[object, object]", folder: Path) -> Outcome:
    began, before = time.monotonic(), _held_up(process.pid)
    while True:
        with suppress(EOFError, ConnectionResetError):
            if pipe.poll(LOOK):
                outcome = Outcome(*pipe.recv())  # type: ignore[misc]
                return outcome._replace(kind="memory") if outcome.peak > MOST else outcome
        spent = time.monotonic() - began - (_held_up(process.pid) - before)
        if not process.is_alive():
            return Outcome("crash", f"{_tail(folder)}\nended by signal {-(process.exitcode or 0)}", 0, spent)
        memory = _memory(process.pid)
        if memory > MOST or spent > LONGEST:
            process.kill()
            process.join()
            return Outcome("memory" if memory > MOST else "hang", f"{memory:,} MiB after {spent:.1f} s", memory, spent)


def _held_up(pid: int | None) -> float:
    """Seconds that the process has waited for a core so far: those are not its own."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _memory(pid: int | None) -> int:
    """MiB."""
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 >> 20
    return 0


def _tail(folder: Path) -> str:
    with suppress(OSError):
        return (folder / "log").read_bytes()[-2000:].decode(errors="replace")
    return ""
