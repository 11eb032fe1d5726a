"""Runs commands with a fault in a fork of a process that has imported everything, and again without."""

import contextlib
import ctypes
import errno
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NamedTuple

SHIM = Path(__file__).with_name("shim.c")
# What differs in every run; "sha256" is of a model.json, which has times in it.
TIMES = {"seconds", "wall_seconds", "date", "machine", "sha256", "own_sha256"}
HOWS = {"failed": errno.ENOSPC, "killed": 0}


class Fault(NamedTuple):
    """The n-th operation of a command, which is of a place: what is done to which file."""

    command: str
    place: str
    number: int
    which: str  # first or last, of those of that place
    how: str


class Outcome(NamedTuple):
    said: str  # by the command that was hit: "done", its one line, "killed"
    then: str  # by the same command: "the same", or what is wrong


def build() -> Path:
    """The compiled shim."""
    library = Path(tempfile.mkdtemp(prefix="faults-")) / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl"], check=True)
    return library


def run(command: Any, base: Path, number: int = 0, how: int = 0) -> str:
    """In a fork, in a folder that has what it needs: "done", one line, "killed", or a traceback. Logs operations."""
    child = os.fork()
    if child == 0:
        _call(command, base, number, how)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = (base / "said").read_text(errors="replace")
    if code == 0 and "Traceback" not in said:
        return "done"
    if code == -signal.SIGKILL:
        return "killed"
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    refused = code in (1, 2, 3) and "Traceback" not in said and lines
    return lines[-1] if refused else f"code {code}: {said[-1500:]}"


def _call(command: Any, base: Path, number: int, how: int) -> None:
    from adamatch import cli
    from adamatch.base import files

    said = os.open(base / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(said, stream)
    os.chdir(base / "work")
    files.PAUSES = (0.0,) * 3
    sys.argv = ["adamatch", *command.words.split()]
    below, log = str((base / "work" / command.out).resolve()), str(base / "log")
    ctypes.CDLL(None).fault_arm(below.encode(), log.encode(), ctypes.c_long(number), how)
    code = 70
    try:
        cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        (base / "modules").write_text("\n".join(sys.modules))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def import_as_it_did(base: Path) -> None:
    """What a command imported, before the next forks: in each of them it would take seconds."""
    for name in (base / "modules").read_text().split("\n"):
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def fresh(command: Any, base: Path) -> None:
    """A folder with what the command needs."""
    shutil.rmtree(base, ignore_errors=True)
    (base / "work").mkdir(parents=True)
    child = os.fork()
    if child == 0:
        command.make(base / "work")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def operations(base: Path) -> list[str]:
    """The places of a run that was logged, in order; what is different in each run stands as *."""
    text = (base / "log").read_text().replace("\0", "")
    text = re.sub(r"\.part\b.*|[0-9a-f]{32}", "*", text)
    return [re.sub(r"\d+", "N", re.sub(r"-s0-[0-9a-f]{10}", "", line)) for line in text.splitlines()]


def digest(folder: Path) -> dict[str, Any]:
    """All that a command wrote, but for times, and for the list of checksums, which is compared with the files."""
    from adamatch.base import manifest
    from adamatch.base.files import MANIFEST

    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if (
            path.is_dir()
            or "events" in path.parts
            or path.name.strip(".").startswith(("lock", "lease-"))
            or path.suffix == ".part"
        ):
            continue
        if path.name in ("report.html", MANIFEST):
            problems = list(manifest.problems(path.parent)) if path.name == MANIFEST else []
            assert not problems, problems
            found[name] = "there"
        elif path.suffix in (".json", ".jsonl"):
            found[name] = [_timeless(json.loads(line)) for line in _lines(path)]
        else:
            found[name] = path.read_bytes()
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(each) for name, each in value.items() if name not in TIMES}
    return [_timeless(each) for each in value] if isinstance(value, list) else value
