"""Readers that do what no reader may, each on every damaged file: the fuzzer has to notice."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz.target import Target

from adamatch.base.errors import InputError

SOUND = b"sound" * 100


def _make(folder: Path) -> Path:
    (folder / "file").write_bytes(SOUND)
    return folder / "file"


def _faulty(fault: Callable[[Path], Any]) -> Callable[[Path], Any]:
    return lambda path: None if path.read_bytes() == SOUND else fault(path)


def _refuse(path: Path) -> None:
    raise InputError(f"{path} is damaged")


def _raise(path: Path) -> None:
    raise KeyError("step")


def _wait_once(path: Path) -> None:
    """As on a machine that is busy with something else."""
    mark = path.parents[2] / "waited"
    if not mark.exists():
        mark.touch()
        time.sleep(1000)
    mark.unlink()


def _keep_filling(path: Path) -> None:
    kept = []
    while True:
        kept.append(b"x" * (1 << 25))
        time.sleep(0.01)


READERS: dict[str, Callable[[Path], Any]] = {
    "refused": _faulty(_refuse),
    "read": Path.read_bytes,
    "traceback": _faulty(_raise),
    "crash": _faulty(lambda path: os.kill(os.getpid(), signal.SIGSEGV)),
    "hang": _faulty(lambda path: time.sleep(1000)),
    "read, once more": _faulty(_wait_once),
    "memory": _faulty(lambda path: len(bytes(1 << 30).replace(b"\0", b"x"))),  # too short to be seen by looking
    "memory, more and more": _faulty(_keep_filling),
    "differs": Path.read_bytes,
}
TARGETS = {name: Target(_make, read, checked=name in ("refused", "differs")) for name, read in READERS.items()}
