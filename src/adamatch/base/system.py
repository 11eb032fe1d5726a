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


def text(name: str) -> str:
    """What Linux says in /proc."""
    return (PROC / name).read_text()


def free_memory() -> int:
    """Bytes, those of the file cache counted as free. Half of all memory where only that is known (macOS)."""
    with suppress(OSError, StopIteration, ValueError):  # Linux alone has it
        lines = text("meminfo").splitlines()
        available = 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))
        return max(0, min([available, *_left_in_groups()]))
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}) and hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return _windows_memory() if hasattr(ctypes, "windll") else UNKNOWN


def _left_in_groups() -> Iterator[int]:
    """The memory left in each control group (version 2) of this process: containers and cluster jobs have limits."""
    with suppress(OSError, StopIteration):
        lines = text("self/cgroup").splitlines()
        inner = GROUPS / next(line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
        for group in (inner, *inner.parents):
            with suppress(OSError, ValueError):  # "max" is no number
                limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
                counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                yield limit - used + sum(int(counts.get(name, 0)) for name in CACHES)


def _windows_memory() -> int:
    class Status(ctypes.Structure):  # MEMORYSTATUSEX
        _names = ("total", "free", "pages", "free_pages", "virtual", "free_virtual", "extended")
        _fields_ = [("length", ctypes.c_uint32), ("load", ctypes.c_uint32), *((n, ctypes.c_uint64) for n in _names)]

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    return int(status.free)


def fill(path: Path) -> None:
    """Reserve a file's room on the disk: writing to a sparse mapped file on a full disk would crash."""
    length = path.stat().st_size
    with path.open("r+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, length)
            return
        for start in range(0, length, BLOCK):  # written once more as it is: holes become zeros
            file.seek(start)
            block = file.read(min(BLOCK, length - start))
            file.seek(start)
            file.write(block)
