"""The process that reads damaged files: one case at a time, as its parent says, which watches it."""

import contextlib
import faulthandler
import importlib
import os
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest import mock

from fuzz import damage
from fuzz.target import Target, digest

from adamatch.base.errors import InputError

MIB = 1 << 20


class Outcome(NamedTuple):
    """`kind`: read, refused, traceback or differs; and, from the parent: hang, crash, memory."""

    kind: str
    detail: str = ""
    peak: int = 0  # MiB
    seconds: float = 0.0


def serve(parent: Connection, table: str, folder: Path) -> None:
    """Do the cases (target, number, seed) that come, until None does."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):  # libraries written in C speak of damage there
        os.dup2(log, stream)
    faulthandler.enable(os.fdopen(log, "w", closefd=False))
    targets: dict[str, Target] = importlib.import_module(table).TARGETS
    sound: dict[str, Sound] = {}
    parent.send("ready")
    while (case := parent.recv()) is not None:
        name, number, seed = case
        if name not in sound:
            sound[name] = Sound(targets[name], folder / f"sound {len(sound)}")
        parent.send(sound[name].damaged(folder / f"case {number}", Random(f"{seed}/{name}/{number}")))


class Sound:
    """A target's sound files, and what is read from them."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target, self.folder = target, folder
        folder.mkdir()
        with at_a_fixed_time():
            self.file = target.make(folder).relative_to(folder)
        self.data = (folder / self.file).read_bytes()
        copy = shutil.copytree(folder, folder.with_name(f"{folder.name} read"))
        self.digest = digest(target.read(copy / self.file))

    def damaged(self, folder: Path, random: Random) -> Outcome:
        """Damages a copy and reads it. The folder has a new name each time: some readers cache."""
        change = random.choice((damage.raw, damage.raw, *self.target.inside))
        changed = change(self.data, random)
        shutil.copytree(self.folder, folder)
        (folder / self.file).write_bytes(changed)
        _forget_peak()
        began = time.monotonic()
        kind, detail = "read", ""
        try:
            same = digest(self.target.read(folder / self.file)) == self.digest
            if not same and change is damage.raw and self.target.checked:
                kind, detail = "differs", f"{len(changed)} bytes instead of {len(self.data)}"
        except InputError as error:
            kind = "refused" if "\n" not in str(error) else "traceback"
            detail = str(error)
        except BaseException:
            kind, detail = "traceback", traceback.format_exc()
        spent = time.monotonic() - began
        sys.stdout.flush()
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
        return Outcome(kind, detail, _peak(), spent)


@contextlib.contextmanager
def at_a_fixed_time() -> Iterator[None]:
    """Zip, gzip and MATLAB files contain their time: without this, a case would not repeat."""
    with (
        mock.patch("time.time", return_value=1.7e9),
        mock.patch("time.asctime", return_value="Tue Nov 14 22:13:20 2023"),
    ):
        yield


def _forget_peak() -> None:
    with contextlib.suppress(OSError):  # Linux alone can
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """MiB."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) // MIB
