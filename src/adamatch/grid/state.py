"""Where a grid stands: read from its folders alone, so that anything may be killed and started again."""

import datetime
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from adamatch.base.errors import InputError
from adamatch.base.files import make_folder, read_json, write_atomically
from adamatch.config.run import Run
from adamatch.grid import lease
from adamatch.train.run_folder import read_result, write_result

State = Literal["done", "failed", "running", "waiting"]
STATES: tuple[State, ...] = ("done", "failed", "running", "waiting")


@dataclass(frozen=True)
class Folders:
    """`out` has a folder for each run; `keep` has the results alone, as NAME.json, to be committed."""

    out: Path
    keep: Path | None = None

    def of(self, run: Run) -> Path:
        return self.out / run.name

    def state(self, run: Run) -> State:
        if self.done(run):
            return "done"
        folder = self.of(run)
        if lease.holder(folder):
            return "running"
        return "failed" if (folder / "error.json").exists() else "waiting"

    def done(self, run: Run) -> bool:
        return any(path.exists() for path in self._results(run))

    def result(self, run: Run) -> dict[str, Any] | None:
        return next((read_result(path) for path in self._results(run) if path.exists()), None)

    def error(self, run: Run) -> dict[str, Any]:
        error: Any = None
        with suppress(FileNotFoundError, ValueError):
            error = read_json(self.of(run) / "error.json")
        return error if isinstance(error, dict) else {}

    def keep_result(self, run: Run) -> None:
        """Copy a finished run's result to where results are kept, once."""
        *kept, own = self._results(run)
        if kept and not kept[0].exists() and own.exists():
            make_folder(kept[0].parent)
            write_result(kept[0], read_result(own))

    def make(self, run: Run) -> Path:
        """The run's folder with its run.json: from now on it may hold a lease or an error."""
        folder = self.of(run)
        try:
            make_folder(folder)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            remedy = "clear the way, or give another --out"
            raise InputError(f"{folder} cannot be made ({error.strerror}): {remedy}") from None
        if not (folder / "run.json").exists():
            write_atomically(folder / "run.json", run.to_json())
        return folder

    def record(self, run: Run, error: str, trace: str = "") -> None:
        """Write down why a run failed."""
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        facts = {"id": run.id, "error": error, "traceback": trace, "date": date, "machine": lease.this_machine()}
        write_atomically(self.make(run) / "error.json", json.dumps(facts, indent=1))

    def forget(self, run: Run) -> None:
        """Let a failed run be tried again."""
        (self.of(run) / "error.json").unlink(missing_ok=True)

    def _results(self, run: Run) -> list[Path]:
        """Where its result may be: where results are kept, and in its folder."""
        return [*([self.keep / f"{run.name}.json"] if self.keep else []), self.of(run) / "result.json"]


def one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"
