"""Reads each damaged file in a process of its own, so that a crash, a hang or too much memory ends only that."""

import contextlib
import faulthandler
import importlib
import itertools
import json
import multiprocessing as mp
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest import mock

from fuzz import damage
from fuzz.target import Target, digest

from adamatch.base.errors import InputError

MIB = 1 << 20 if sys.platform == "darwin" else 1 << 10  # of getrusage's unit


class Case(NamedTuple):
    target: str
    number: int
    seed: int


class Outcome(NamedTuple):
    """`kind`: read, refused, traceback, differs, crash, hang or memory."""

    kind: str
    detail: str = ""
    peak: int = 0  # MiB
    seconds: float = 0.0


class Limits(NamedTuple):
    seconds: float = 10.0  # for one case; a second attempt, as the machine may be busy, has five times as many
    memory: int = 2048  # MiB of a process


LIMITS = Limits()


def run(cases: Sequence[Case], table: str, processes: int, limits: Limits = LIMITS) -> dict[Case, Outcome]:
    """The outcome of each case. `table`: the module whose TARGETS they are of."""
    context = mp.get_context("spawn")  # a fork of this process, which may have threads, might hang
    mine, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as folder:
        server = context.Process(target=_serve, args=(theirs, cases, table, processes, limits, Path(folder)))
        server.start()
        theirs.close()
        try:
            found: dict[Case, Outcome] = mine.recv()
        finally:
            server.kill()
            server.join()
    return {case: found[case] for case in cases}


def _serve(
    pipe: "Connection[object, object]", cases: Sequence[Case], table: str, processes: int, limits: Limits, folder: Path
) -> None:
    """Imports everything once, has no threads, and forks for each case."""
    tempfile.tempdir = str(folder)
    targets: dict[str, Target] = importlib.import_module(table).TARGETS
    if (maker := os.fork()) == 0:
        _log_to(folder)
        for number, name in enumerate(targets):
            if any(case.target == name for case in cases):
                _make(targets[name], folder / f"sound {number}")
        os._exit(0)
    if os.waitpid(maker, 0)[1]:
        raise RuntimeError(f"a sound file cannot be made or read: {(folder / 'log').read_text()[-2000:]}")
    places = {name: folder / f"sound {number}" for number, name in enumerate(targets)}
    waiting, outcomes = list(reversed(cases)), dict[Case, Outcome]()
    running: dict[int, tuple[Case, float, Path]] = {}
    count = itertools.count()
    while waiting or running:
        while waiting and len(running) < processes:
            case = waiting.pop()
            seconds = limits.seconds * (5 if case in outcomes else 1)
            place = folder / f"case {next(count)}"
            place.mkdir()
            pid = os.fork()
            if pid == 0:
                _read(targets[case.target], places[case.target], place, case, limits._replace(seconds=seconds))
            running[pid] = case, time.monotonic(), place
        pid, status, usage = os.wait4(-1, 0)
        case, began, place = running.pop(pid)
        first = case not in outcomes
        outcomes[case] = _outcome(place, status, usage.ru_maxrss // MIB, time.monotonic() - began, limits)
        if outcomes[case].kind == "hang" and first:
            waiting.append(case)
        shutil.rmtree(place, ignore_errors=True)
    pipe.send(outcomes)


def _make(target: Target, folder: Path) -> None:
    """A sound file, where it is in its folder, and what is read from it."""
    (folder / "files").mkdir(parents=True)
    with at_a_fixed_time():
        file = target.make(folder / "files").relative_to(folder / "files")
    shutil.copytree(folder / "files", folder / "copy")
    facts = {"file": str(file), "digest": digest(target.read(folder / "copy" / file))}
    (folder / "facts.json").write_text(json.dumps(facts))


def _read(target: Target, sound: Path, place: Path, case: Case, limits: Limits) -> None:
    """Damages a copy and reads it; never returns. SIGALRM ends a process that hangs."""
    _log_to(place)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)
    resource.setrlimit(resource.RLIMIT_DATA, (2 * limits.memory << 20, resource.RLIM_INFINITY))
    random = Random(f"{case.seed}/{case.target}/{case.number}")
    facts = json.loads((sound / "facts.json").read_text())
    change = random.choice((damage.raw, damage.raw, *target.inside))
    path = shutil.copytree(sound / "files", place / "files") / facts["file"]
    path.write_bytes(change(path.read_bytes(), random))
    kind, detail = "read", ""
    try:
        same = digest(target.read(path)) == facts["digest"]
        if not same and change is damage.raw and target.checked:
            kind, detail = "differs", f"{path.stat().st_size} bytes"
    except InputError as error:
        kind, detail = "refused" if "\n" not in str(error) else "traceback", str(error)
    except BaseException as error:
        kind, detail = "memory" if isinstance(error, MemoryError) else "traceback", traceback.format_exc()
    (place / "outcome.json").write_text(json.dumps([kind, detail]))
    os._exit(0)


def _log_to(folder: Path) -> None:
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):  # libraries written in C report damage there
        os.dup2(log, stream)
    faulthandler.enable(os.fdopen(log, "w", closefd=False))


def _outcome(place: Path, status: int, peak: int, seconds: float, limits: Limits) -> Outcome:
    number = os.waitstatus_to_exitcode(status)
    kind, detail = "hang" if number == -signal.SIGALRM else "crash", f"ended with {number}"
    with contextlib.suppress(OSError):
        kind, detail = json.loads((place / "outcome.json").read_text())
    if kind == "crash":
        detail = f"{(place / 'log').read_bytes()[-2000:].decode(errors='replace')}\n{detail}"
    return Outcome("memory" if peak > limits.memory else kind, detail, peak, seconds)


@contextlib.contextmanager
def at_a_fixed_time() -> Iterator[None]:
    """Zip, gzip and MATLAB files contain their time: without this, a case would not repeat."""
    date = "Tue Nov 14 22:13:20 2023"
    with mock.patch("time.time", return_value=1.7e9), mock.patch("time.asctime", return_value=date):
        yield
