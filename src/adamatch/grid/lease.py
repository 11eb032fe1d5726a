"""A lease on a run's folder: while it is held and its holder alive, nobody else does the run. Works on shared file systems.

Leases are files lease-1, lease-2, ...; the highest number counts. A file appears whole, and only one process can make it (a
hard link is atomic, on NFS too). A dead holder's run is taken over by making the next number, which again only one can.

Alive is what a holder on this machine is as long as it has its file locked: the kernel frees the lock with the process. A
holder elsewhere is alive as long as it touches its file. Times are compared with those that the file system itself gives to new
files, so that no machine's clock matters.
"""

import fcntl
import json
import os
import platform
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adamatch.errors import InputError

BEAT = 15.0  # seconds between two touches
DEAD_AFTER = 120.0  # seconds without a touch, for a holder on another machine


def this_machine() -> str:
    """The kernel that runs us, so that two machines of the same name are told apart."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = str(uuid.getnode())
    return f"{platform.node()} {boot}"


class Lease:
    """One attempt to hold a folder. `lost` becomes true when another took it over (we were stopped for long, say)."""

    def __init__(self, folder: Path, *, beat: float = BEAT, dead_after: float = DEAD_AFTER) -> None:
        self.folder, self.beat, self.dead_after = folder, beat, dead_after
        self.lost = False

    @contextmanager
    def hold(self, on_loss: Callable[[], None] = lambda: None) -> Iterator[bool]:
        """Whether we hold it. `on_loss` is called, again and again, when it was taken from us; from another thread."""
        part = self.folder / f".lease-{uuid.uuid4().hex}"
        with part.open("w") as file:
            facts = {"machine": this_machine(), "pid": os.getpid(), "token": part.name}
            file.write(json.dumps({**facts, "locked": _lock(file.fileno(), fcntl.LOCK_EX)}))
            file.flush()
            os.fsync(file.fileno())
            try:
                mine = self._take(part)
            finally:
                part.unlink()
            if mine is None:
                yield False
                return
            end = threading.Event()
            beating = threading.Thread(target=self._beat, args=(mine, end, on_loss), daemon=True)
            beating.start()
            try:
                yield True
            finally:
                end.set()
                beating.join()
                for path in leases(self.folder):
                    if _number(path) <= _number(mine):
                        path.unlink(missing_ok=True)

    def _take(self, part: Path) -> Path | None:
        held = leases(self.folder)
        last = held[-1] if held else None
        judged = _token(last)
        if last is not None and alive(last, self.dead_after, now=_now(self.folder)):
            return None
        mine = self.folder / f"lease-{_number(last) + 1}"
        try:
            os.link(part, mine)
        except FileExistsError:
            return None
        except OSError as error:
            raise InputError(f"{self.folder}: no lease can be made on this file system ({error}): use another folder") from None
        # What was judged dead must still be what lies below ours; else two came through, and neither goes on.
        below = [path for path in leases(self.folder) if path != mine]
        if below and (_number(below[-1]) > _number(mine) or _token(below[-1]) != judged):
            mine.unlink(missing_ok=True)
            return None
        return mine

    def _beat(self, mine: Path, end: threading.Event, on_loss: Callable[[], None]) -> None:
        while not end.wait(self.beat):
            try:
                os.utime(mine)
                self.lost = leases(self.folder)[-1] != mine
            except FileNotFoundError:
                self.lost = True
            except OSError:
                continue  # a file system that is away for a moment: the next touch tells
            if self.lost:
                on_loss()


def leases(folder: Path) -> list[Path]:
    """The folder's leases, the one that counts last."""
    return sorted(folder.glob("lease-*"), key=_number)


def holder(folder: Path, dead_after: float = DEAD_AFTER) -> dict[str, Any] | None:
    """Who does the run at this moment, if anybody."""
    held = leases(folder)
    return _facts(held[-1]) if held and alive(held[-1], dead_after, now=_now(folder)) else None


def holders(folder: Path) -> list[dict[str, Any]]:
    """All who began and did not end, dead or alive."""
    return [_facts(path) for path in leases(folder)]


def alive(lease: Path, dead_after: float, now: float) -> bool:
    """Whether its holder is. `now` is the file system's."""
    facts = _facts(lease)
    if facts.get("locked") and facts["machine"] == this_machine():
        return locked(lease)
    try:
        return now - lease.stat().st_mtime < dead_after
    except FileNotFoundError:
        return False


def locked(path: Path) -> bool:
    """Whether a process has the file locked. The question itself disturbs no other asker."""
    try:
        with path.open() as file:
            return not _lock(file.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _now(folder: Path) -> float:
    probe = folder / f".now-{uuid.uuid4().hex}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink()


def _facts(lease: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(lease.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return facts


def _number(lease: Path | None) -> int:
    text = lease.name.removeprefix("lease-") if lease else "0"
    return int(text) if text.isdigit() else 0


def _token(lease: Path | None) -> str | None:
    return _facts(lease).get("token") if lease else None
