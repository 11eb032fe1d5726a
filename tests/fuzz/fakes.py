"""Readers that do what no reader may, each on every damaged file: the fuzzer has to notice."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from fuzz.target import Target

from adamatch.base.errors import InputError

SOUND = b"sound" * 100


def _make(folder: Path) -> Path:
    (folder / "file").write_bytes(SOUND)
    return folder / "file"


def _is_sound(path: Path) -> bool:
    return path.read_bytes() == SOUND


def _refuse(path: Path) -> Any:
    if not _is_sound(path):
        raise InputError(f"{path} is damaged")


def _raise(path: Path) -> Any:
    if not _is_sound(path):
        raise KeyError("step")


def _die(path: Path) -> Any:
    if not _is_sound(path):
        os.kill(os.getpid(), signal.SIGSEGV)


def _wait(path: Path) -> Any:
    if not _is_sound(path):
        time.sleep(1000)


def _wait_once(path: Path) -> Any:
    """As on a machine that is busy with something else."""
    mark = path.parents[2] / f"fuzz-waited-{os.getppid()}"
    if not _is_sound(path):
        if not mark.exists():
            mark.touch()
            time.sleep(1000)
        mark.unlink()


def _fill(path: Path) -> Any:
    """For a moment, too short to be seen by looking from time to time."""
    return None if _is_sound(path) else len(bytes(1 << 30).replace(b"\0", b"x"))


def _keep_filling(path: Path) -> Any:
    kept = []
    while not _is_sound(path):
        kept.append(b"x" * (1 << 25))
        time.sleep(0.01)


def _read(path: Path) -> Any:
    return path.read_bytes()


TARGETS = {
    "refused": Target(_make, _refuse, checked=True),
    "read": Target(_make, _read),
    "traceback": Target(_make, _raise),
    "crash": Target(_make, _die),
    "hang": Target(_make, _wait),
    "read, once more": Target(_make, _wait_once),
    "memory": Target(_make, _fill),
    "memory, more and more": Target(_make, _keep_filling),
    "differs": Target(_make, _read, checked=True),
}
