"""A lease on a run's folder: while its holder lives, nobody else does the run. For shared file systems, too.

Leases are files lease-1, lease-2, ...; the highest number counts. A file appears whole, and only one process can make
it (a hard link is atomic, on NFS too). A dead holder's run is taken over by making the next number.

A holder on this machine lives as long as it has its file locked: the system frees the lock with the process. One
elsewhere touches its file; it is dead when this process has seen no touch for long. That is measured from the first
look on: dates of files are some machine's, whose clock may be a day off. They serve for a first guess, for people.
"""

import json
import os
import platform
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from adamatch.base import locks, system
from adamatch.base.errors import InputError
from adamatch.base.files import read_json

BEAT = 15.0  # seconds between two touches
DEAD_AFTER = 120.0  # seconds without a touch, for a holder on another machine


class Sight(NamedTuple):
    """What this process has seen of a lease."""

    touched: int  # its date
    since: float  # on the monotonic clock: when it was first seen with this date
    lives: bool  # whether the date was seen to change


_sights: dict[tuple[Path, str], Sight] = {}


def this_machine() -> str:
    """The kernel that runs us, so that two machines of the same name are told apart."""
    try:
        boot = system.text("sys/kernel/random/boot_id").strip()
    except OSError:
        boot = str(uuid.getnode())
    return f"{platform.node()} {boot}"


class Lease:
    """One attempt to hold a folder. `lost`: another process took it over (as when ours was stopped for long)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost = False

    @contextmanager
    def hold(self, on_loss: Callable[[], None] = lambda: None) -> Iterator[bool]:
        """Whether we hold it. `on_loss` is called, again and again and from another thread, once it is lost."""
        part = self.folder / f".lease-{uuid.uuid4().hex}"
        with part.open("w") as file:
            facts = {"machine": this_machine(), "pid": os.getpid(), "token": part.name}
            file.write(json.dumps({**facts, "locked": locks.lock(file)}))
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
        judged = _facts(held[-1])["token"] if held else None
        if held and not dead(held[-1]):
            return None
        mine = self.folder / f"lease-{1 + max(map(_number, self.folder.glob('lease-*')), default=0)}"
        if not _number(mine):
            raise InputError(f"{self.folder} has files called lease-N that no worker made: remove them")
        try:
            os.link(part, mine)
        except FileExistsError:
            return None
        except OSError as error:
            why = f"no lease can be made on this file system ({error})"
            raise InputError(f"{self.folder}: {why}: use another folder") from None
        # What was judged dead must still be the highest below ours. Else two processes got here, and neither goes on.
        below = [path for path in leases(self.folder) if path != mine]
        if below and (_number(below[-1]) > _number(mine) or _facts(below[-1])["token"] != judged):
            mine.unlink(missing_ok=True)
            return None
        return mine

    def _beat(self, mine: Path, end: threading.Event, on_loss: Callable[[], None]) -> None:
        while not end.wait(BEAT):
            try:
                os.utime(mine)
                self.lost = leases(self.folder)[-1:] != [mine]  # whoever took over may have ended already
            except FileNotFoundError:
                self.lost = True
            except OSError:
                continue  # a file system that is away for a moment: the next touch tells
            if self.lost:
                on_loss()


def leases(folder: Path) -> list[Path]:
    """The folder's leases, the one that counts last."""
    return sorted((path for path in folder.glob("lease-*") if _number(path) and path.is_file()), key=_number)


def holders(folder: Path) -> list[dict[str, Any]]:
    """All who began and did not end, dead or alive."""
    return [_facts(path) for path in leases(folder)]


def holder(folder: Path) -> dict[str, Any] | None:
    """Who does the run now. A holder elsewhere that was not watched for long enough is judged by its file's date."""
    held = leases(folder)
    if not held or dead(held[-1]):
        return None
    facts, seen = _facts(held[-1]), _look(held[-1])
    if _is_ours(facts) or seen is None or seen.lives or abs(_now(folder) - seen.touched / 1e9) < DEAD_AFTER:
        return facts
    return None


def shows_life(folder: Path, until: float = float("inf")) -> bool:
    """Whether the run's holder lives; waits until that or its death is certain, or until then (monotonic clock)."""
    first: tuple[Path, Sight | None] | None = None
    while (held := leases(folder)) and not dead(held[-1]):
        now = (held[-1], _look(held[-1]))
        first = first or now
        if now != first or _is_ours(_facts(held[-1])) or time.monotonic() >= until:
            return True
        time.sleep(min(1.0, DEAD_AFTER / 10))
    return False


def dead(lease: Path) -> bool:
    """Whether its holder is, for certain."""
    if _is_ours(_facts(lease)):
        return not locks.is_locked(lease)
    seen = _look(lease)
    return seen is None or time.monotonic() - seen.since >= DEAD_AFTER


def _look(lease: Path) -> Sight | None:
    """What is known of it, this look included; None if it is gone."""
    try:
        touched = lease.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    key = (lease, _facts(lease)["token"])
    before = _sights.get(key)
    if before is None or before.touched != touched:
        _sights[key] = Sight(touched, time.monotonic(), before is not None)
    return _sights[key]


def _is_ours(facts: dict[str, Any]) -> bool:
    """Whether its holder is on this machine, and has it locked if it lives."""
    return bool(facts["locked"]) and facts["machine"] == this_machine()


def _now(folder: Path) -> float:
    """By the clock that dates new files there."""
    probe = folder / f".now-{uuid.uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:  # somebody else's folder, which we may only read
        return time.time()
    finally:
        probe.unlink(missing_ok=True)


def _facts(lease: Path) -> dict[str, Any]:
    """Who made it; of a file that no worker wrote, nothing is known."""
    found: Any = None
    with suppress(FileNotFoundError, ValueError):
        found = read_json(lease)
    known = found if isinstance(found, dict) else {}
    machine, token = (str(known.get(name) or "unknown") for name in ("machine", "token"))
    return {"machine": machine, "pid": known.get("pid", "?"), "token": token, "locked": known.get("locked") is True}


def _number(lease: Path) -> int:
    """0 for what is no lease, whatever its name."""
    found = re.fullmatch(r"lease-([0-9]{1,6})", lease.name)
    return int(found[1]) if found else 0
