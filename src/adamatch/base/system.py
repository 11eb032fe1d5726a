"""What Linux, macOS and Windows each do in their own way."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

BLOCK = 2**20
UNKNOWN = 2 * 2**30  # bytes of memory where the system does not tell
PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
CACHES = ("active_file", "inactive_file")  # memory that the system gives back when it is asked for


def cores() -> int:
    """Those that this process may use, where the system knows, else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """Bytes that can be had, what files are cached in counted; macOS tells all there is, of which half is taken."""
    with suppress(OSError, StopIteration, ValueError):  # Linux alone has it
        lines = (PROC / "meminfo").read_text().splitlines()
        available = 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))
        return max(0, min([available, *_left_in_groups()]))
    if hasattr(os, "sysconf"):
        return (
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
            if "SC_PHYS_PAGES" in os.sysconf_names
            else UNKNOWN
        )
    return _windows_memory() if hasattr(ctypes, "windll") else UNKNOWN


def _left_in_groups() -> Iterator[int]:
    """What each control group (version 2) has left that this process is in: a container or a cluster's job may have less."""
    with suppress(OSError, StopIteration):
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
        inner = GROUPS / next(line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
        for group in (inner, *inner.parents):
            with suppress(OSError, ValueError):  # "max" is no number
                limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
                counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                yield limit - used + sum(int(counts.get(name, 0)) for name in CACHES)


def fill(path: Path) -> None:
    """Give a file its room on the disk: a sparse one would meet a full disk as a crash, in the middle of writing."""
    length = path.stat().st_size
    with path.open("r+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, length)
            return
        start = 0
        while start < length:  # what is there stays, and what is not there yet are zeros
            block = file.read(min(BLOCK, length - start))
            file.seek(start)
            file.write(block)
            start += len(block)
            file.seek(start)


def _windows_memory() -> int:
    class Status(ctypes.Structure):  # MEMORYSTATUSEX
        _fields_ = [("length", ctypes.c_uint32), ("load", ctypes.c_uint32)] + [
            (name, ctypes.c_uint64)
            for name in ("total", "free", "pages", "free_pages", "virtual", "free_virtual", "extended")
        ]

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return int(status.free)
