"""Locks on files. The system frees them when their process ends, however it does."""

from pathlib import Path
from typing import IO

from filelock import BaseFileLock, FileLock, Timeout

try:
    import fcntl
except ImportError:  # not a POSIX system: no lock on an open file, and whoever asks is told so
    fcntl = None  # type: ignore[assignment]


def take(path: Path) -> BaseFileLock | None:
    """A lock on a file, which is made where it is missing; to be released. None where another has it: nobody waits."""
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


def lock(file: IO[str]) -> bool:
    """Lock an open file until it is closed; whether that was possible."""
    return fcntl is not None and _flock(file, fcntl.LOCK_EX)


def is_locked(path: Path) -> bool:
    """Whether a process has the file locked. The question itself disturbs no other asker."""
    try:
        with path.open() as file:
            return fcntl is not None and not _flock(file, fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _flock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file.fileno(), kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
