"""What Linux, macOS and Windows each do in their own way."""

import ctypes
import os
from pathlib import Path

BLOCK = 2**20
UNKNOWN = 2 * 2**30  # bytes of memory where the system does not tell


def cores() -> int:
    """Those that this process may use, where the system knows, else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """Bytes; macOS tells all there is, of which half is taken."""
    if hasattr(os, "sysconf"):
        names = os.sysconf_names
        page = os.sysconf("SC_PAGE_SIZE")
        if "SC_AVPHYS_PAGES" in names:
            return os.sysconf("SC_AVPHYS_PAGES") * page
        return os.sysconf("SC_PHYS_PAGES") * page // 2 if "SC_PHYS_PAGES" in names else UNKNOWN
    return _windows_memory() if hasattr(ctypes, "windll") else UNKNOWN


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
            (name, ctypes.c_uint64) for name in ("total", "free", "pages", "free_pages", "virtual", "free_virtual", "extended")
        ]

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return int(status.free)
