"""Locks on files. The system frees them when their process ends, in whatever way."""

from pathlib import Path
from typing import IO

from filelock import BaseFileLock, FileLock, Timeout

try:
    import fcntl
except ImportError:  # not a POSIX system: open files cannot be locked, and `lock` says so
    fcntl = None  # type: ignore[assignment]


def take(path: Path) -> BaseFileLock | None:
    """A lock on a file, to be released; the file is made where it is missing. None where another process has it."""
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
    """Whether a process has locked the file. Several may ask at a time."""
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
