"""A run's folder: run.json, metrics.jsonl, checkpoints/, model.safetensors and, written last, result.json. Done is a file."""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adamatch import ranks
from adamatch.errors import InputError
from adamatch.train.checkpoint import write_atomically
from adamatch.train.run import Run


class RunFolder:
    """Where a run keeps what it has done. Of several ranks only the first reads and writes it: the others need not see it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"

    @contextmanager
    def claim(self, run: Run, *, overwrite: bool = False) -> Iterator[None]:
        """Hold the folder for this run: no other run's folder, and no other process at the same time."""
        if ranks.rank() > 0:
            yield
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise InputError(f"{self.path} cannot be written ({error.strerror}): choose another folder") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"{self.path} is being used by another process: wait for it, or choose another folder"
                ) from None
            if overwrite:
                self._empty()
            new = self._take(run)
            try:
                yield
            except Exception:
                if new and [entry.name for entry in self._visible()] == ["run.json"]:
                    (self.path / "run.json").unlink()  # nothing was done: the mistake can be corrected, in the same folder
                raise

    def _take(self, run: Run) -> bool:
        """Whether the run is new here; the same run may go on, another may not begin."""
        held = self.path / "run.json"
        if held.exists():
            try:
                other = Run.from_json(held.read_text())
            except (ValueError, KeyError, TypeError):
                raise InputError(f"{held} cannot be read: choose another folder, or give --overwrite to replace it") from None
            if other.id != run.id:  # not ==: JSON has no tuples
                raise InputError(
                    f"{self.path} holds another run ({_difference(other, run)}): choose another folder, or give --overwrite to "
                    "replace it"
                )
        elif self._visible():
            raise InputError(f"{self.path} is not empty and holds no run: choose another folder")
        else:
            write_atomically(held, run.to_json())
            return True
        return False

    def _empty(self) -> None:
        if self._visible() and not (self.path / "run.json").exists():
            raise InputError(f"{self.path} is not a run's folder: it will not be overwritten")
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != ".lock":
                entry.unlink()

    def _visible(self) -> list[Path]:
        """What is in the folder but for the lock and what a killed process left half written."""
        return [entry for entry in self.path.iterdir() if not entry.name.startswith(".")]

    def result(self) -> dict[str, Any] | None:
        """What the finished run says of itself; None while it is not finished."""
        path = self.path / "result.json"
        return read_result(path) if path.exists() else None

    def finish(self, result: Mapping[str, Any]) -> None:
        if ranks.rank() > 0:
            return
        write_atomically(self.path / "result.json", json.dumps(result, indent=1))
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def append(self, row: Mapping[str, Any]) -> None:
        """One more line of metrics.jsonl."""
        if ranks.rank() > 0:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def rewind(self, step: int) -> None:
        """Forget the metrics after `step`: they will be measured again."""
        path = self.path / "metrics.jsonl"
        if ranks.rank() == 0 and path.exists():
            rows = [line for line in path.read_text().splitlines() if _step_of(line) <= step]
            write_atomically(path, "".join(f"{line}\n" for line in rows))


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError):
        return float("inf")  # half a line, from a process that was killed in its middle


def _difference(theirs: Run, ours: Run) -> str:
    """What tells two runs apart, as `batch is 32 there and 16 here`; the first three things."""
    flat = [facts | facts.pop("recipe") for facts in (json.loads(run.to_json()) for run in (theirs, ours))]
    names = [name for name in dict.fromkeys([*flat[0], *flat[1]]) if flat[0].get(name) != flat[1].get(name)]
    if names == ["form"]:
        return "of an earlier version, in which the same configuration meant something else"
    told = [f"{name} is {flat[0].get(name)} there and {flat[1].get(name)} here" for name in names[:3]]
    return ", ".join(told) + (" ..." if len(names) > len(told) else "")


def read_result(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text())
    except ValueError:
        result = None
    if not isinstance(result, dict):
        raise InputError(f"{path} is damaged: remove it, and give the same command again")
    return result
