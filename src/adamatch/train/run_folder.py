"""A run's folder: run.json, metrics.jsonl, checkpoints/, model.safetensors and, when it is done, result.json."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import BaseFileLock
from safetensors import SafetensorError

from adamatch.base import locks, manifest, ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError
from adamatch.base.files import (
    MANIFEST,
    disk_is_full,
    disk_reason,
    make_folder,
    parse,
    read_checked,
    read_json,
    sealed,
    sync,
    unsealed,
    with_retries,
    write_atomically,
)
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.train import resume

ANSWERED = ("questions.json", "answers.csv", ".ask.lock")  # of `adamatch ask`: what people answered outlives a run


class RunFolder:
    """The files of a run. Of several ranks only the first reads and writes them: the others need not see the folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.earlier = self.path / resume.EARLIER  # the finished run that this one prolongs
        self.claimed: Path | None = None  # the run.json that is there as long as the run's folder is
        self.held = False  # by this object

    @contextmanager
    def claim(self, run: Run, *, overwrite: bool = False) -> Iterator[Run]:
        """Lock the folder for this run. Refused are a folder of another run, and one in use by another process.

        Gives the run to do: one that extends a finished run starts from its model.
        """
        with self.hold():
            if ranks.rank() > 0:
                yield ranks.from_first(lambda: run)
                return
            if overwrite:
                self._empty()
            run, new = self._take(run)
            self.claimed = path = self.path / "run.json"
            try:
                yield ranks.from_first(lambda: run)  # the others do not see the folder
            except BaseException:  # Ctrl-C, too
                if new and self.path.is_dir() and [entry.name for entry in self._visible()] == ["run.json"]:
                    path.unlink()  # nothing was done: another run may take the folder
                raise
            finally:
                self.claimed = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the folder against other processes (reentrant). A full disk is an error with a remedy."""
        before = self.held
        lock = None if before or ranks.rank() > 0 else self._lock()
        self.held = True
        try:
            yield
        except (OSError, SafetensorError) as error:
            if not disk_is_full(error):
                raise
            raise InputError(
                f"{self.path}: the disk is full: make room and run the same command again, it resumes"
            ) from None
        finally:
            self.held = before
            if lock is not None:
                lock.release()

    def _lock(self) -> BaseFileLock:
        try:
            make_folder(self.path)
            lock = locks.take(self.path / ".lock")
        except OSError as error:
            raise InputError(f"{self.path} cannot be written ({disk_reason(error)}): choose another folder") from None
        if lock is None:
            raise InputError(f"{self.path} is being used by another process: wait for it, or choose another folder")
        return lock

    def stage(self, name: str) -> "RunFolder":
        """A folder inside, for an earlier generation."""
        inner = RunFolder(self.path / name)
        inner.claimed, inner.earlier = self.claimed, self.earlier
        self.check()
        if ranks.rank() == 0:
            make_folder(inner.path)
        return inner

    def check(self) -> None:
        """Fail if the folder was removed meanwhile: otherwise it would be made again with a part of the run."""
        if self.claimed is not None and not with_retries(self.claimed.exists):
            where = self.claimed.parent
            raise InputError(f"{where} was removed while the run was running: run the same command again")

    def _take(self, run: Run) -> tuple[Run, bool]:
        """The run to do, and whether the folder is new. The same run is resumed or prolonged, another is refused."""
        path = self.path / "run.json"
        remedy = f"choose another folder, or give {argument('overwrite', True)} to replace it"
        if not path.exists():
            if self._visible():
                raise InputError(f"{self.path} is not empty and holds no run: choose another folder")
            write_atomically(path, run.to_json())
            return run, True
        try:
            other = Run.read(path)
        except ValueError:
            raise InputError(f"{path} cannot be read: {remedy}") from None
        run = resume.resumed(other, run)
        finished = (self.path / "result.json").exists()
        if other.id == run.id:  # not ==: JSON has no tuples
            if not finished:
                (self.path / MANIFEST).unlink(missing_ok=True)  # what it lists may be trained again
                resume.check_test(other, run, self.path)
                write_atomically(path, run.to_json())  # with the test set, which may be new
            return run, False
        if resume.prolongs(other, run) and (finished or resume.held(self.path) == other.id):
            resume.keep(self.path, other)
            run = replace(run, continues=other.id)
            self._empty(keep=resume.EARLIER)
            write_atomically(path, run.to_json())
            return run, False
        differs = resume.difference(other, run)
        raise InputError(f"{self.path} holds another run ({differs}): {remedy}")

    def recipe(self) -> Recipe | None:
        """Of the run in the folder, if there is one that can be read."""
        try:
            return Run.read(self.path / "run.json").recipe
        except (OSError, ValueError):
            return None

    def _empty(self, keep: str = "") -> None:
        """Remove all but `keep`: result.json first and run.json last, so that a kill leaves an unfinished run."""
        if self._visible() and not (self.path / "run.json").exists():
            raise InputError(f"{self.path} is not a run's folder: it will not be overwritten")
        (self.path / "result.json").unlink(missing_ok=True)
        sync(self.path)
        for entry in sorted(self.path.iterdir(), key=lambda entry: entry.name == "run.json"):
            if entry.name in ANSWERED or (keep and entry.name in (keep, "run.json")):  # run.json is replaced next
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != ".lock":
                entry.unlink()

    def _visible(self) -> list[Path]:
        """The folder's content without locks, partial files and answers."""
        return [entry for entry in self.path.iterdir() if not entry.name.startswith(".") and entry.name not in ANSWERED]

    def result(self) -> dict[str, Any] | None:
        """The finished run's result.json; None while it is not finished."""
        path = self.path / "result.json"
        return read_result(path) if path.exists() else None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write result.json, the last file of a run: the model must be saved before."""
        if ranks.rank() == 0:
            self.check()
            manifest.forget(self.path, "result.json")
            write_result(self.path / "result.json", result)
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            self.list_files()

    def list_files(self) -> None:
        """Files that are new since the last time, in manifest.json."""
        if ranks.rank() == 0:
            manifest.complete(self.path)

    def append(self, row: Mapping[str, Any]) -> None:
        """One more line of metrics.jsonl; on the disk before a checkpoint says that it was measured."""
        if ranks.rank() > 0:
            return
        self.check()
        path = self.path / "metrics.jsonl"
        new = not path.exists()
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync(self.path)

    def rewind(self, step: int) -> None:
        """Remove metrics after `step`, which are measured again, and partial files of a killed process."""
        if ranks.rank() > 0:
            return
        (self.path / MANIFEST).unlink(missing_ok=True)  # a stage's, whose result was removed
        for left in (".m*.part", "*/.step-*.part"):  # not those that others may be writing: run.json
            for part in self.path.glob(left):
                part.unlink(missing_ok=True)
        path = self.path / "metrics.jsonl"
        if path.exists():
            lines = read_checked(path).decode(errors="replace").split("\n")
            write_atomically(path, "".join(f"{line}\n" for line in lines if _is_until(line, step)))


def _is_until(line: str, step: int) -> bool:
    """Whether a line of metrics is of this step or before; a partial line is not."""
    try:
        return bool(parse(line)["step"] <= step)
    except (ValueError, KeyError, TypeError):
        return False


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """A result.json with a checksum, which `read_result` verifies."""
    write_atomically(path, json.dumps(sealed(result), indent=1))


def read_result(path: Path) -> dict[str, Any]:
    """A run's result.json, or one that was kept elsewhere; published ones have no checksum."""
    try:
        result = unsealed(read_json(path))
        numbers = [result.get(name) or 0 for name in ("accuracy", "source_accuracy", "seconds")]
        if all(isinstance(each, (int, float)) for each in numbers):
            return result
    except ValueError:
        pass
    raise InputError(f"{path} is damaged: remove it, and run the same command again to repeat the run")
