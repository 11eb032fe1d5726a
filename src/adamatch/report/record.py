"""A run's folder, read for the report. Of what is missing or damaged there is a line."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adamatch.base.errors import InputError
from adamatch.base.files import parse, read_checked, read_sealed
from adamatch.base.regular_files import arrays_in
from adamatch.config.run import Run
from adamatch.images.store import Labels
from adamatch.verdict import eval_outputs
from adamatch.verdict.eval_outputs import Probabilities
from adamatch.verdict.verdict import ALONE, TWIN
from adamatch.verdict.verdict import FILE as JUDGED

NOT_JSON = (OSError, ValueError)  # what reading a damaged file raises


@dataclass(frozen=True)
class Record:
    """One run. `outputs`: probabilities of "target" and held-out "source" images at the last evaluation."""

    path: Path
    run: Run
    rows: Sequence[Mapping[str, float]]  # of metrics.jsonl, its numbers
    result: Mapping[str, Any]  # empty while it is under way
    verdict: Mapping[str, Any]  # empty where there is none
    outputs: Mapping[str, Probabilities]
    source_labels: Labels  # of the held-out source images in `outputs`
    classes: tuple[str, ...]  # their numbers, where the folder does not name them
    twin: "Record | None" = None
    missing: tuple[str, ...] = ()

    @property
    def accuracy(self) -> float | None:
        """On labelled target images, in percent."""
        return self.result.get("accuracy")

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """Of the verdict: `rows` of the target that show it, and of labelled images where they come in `pairs`."""
        return list(self.verdict.get("warnings", []))

    @property
    def test(self) -> str:
        """The user's test set, where accuracy was measured on one."""
        return str(self.result.get("run", {}).get("test", ""))


def read(path: str | Path, twin: str | Path | None = None) -> Record:
    """The run in a folder; its twin is in `twin`, or in the folder twin/ inside it."""
    path = Path(path)
    run, missing = _run(path), list[str]()
    rows = _rows(path / "metrics.jsonl", missing)
    result, verdict = _optional(path / "result.json", missing), _optional(path / JUDGED, missing)
    outputs, facts = _outputs(path / eval_outputs.FOLDER, missing), eval_outputs.Facts((), (), np.zeros(0, np.int64))
    try:
        facts = eval_outputs.facts(path)
    except InputError as error:
        missing.append(str(error))
    classes = facts.classes
    if not outputs:
        missing.append("There are no predictions to show: outputs/ is empty.")
    elif len(classes) != outputs["target"].shape[1]:
        classes = tuple(map(str, range(outputs["target"].shape[1])))
        missing.append("Classes have numbers here: their names are not in the folder.")
    beside = Path(twin) if twin else path / TWIN
    other = read(beside) if twin or (beside / "run.json").is_file() else None
    if twin and other is not None:
        _check_twin(run, other)
    return Record(path, run, rows, result, verdict, outputs, facts.source, classes, other, tuple(missing))


def target_of(run: Run) -> tuple[str, ...]:
    """What identifies the target images."""
    return run.benchmark, run.target, run.digests.get("target", "")


def _check_twin(run: Run, twin: Record) -> None:
    if twin.run.method != ALONE:
        remedy = f"a twin is a run on labels alone (--method {ALONE})"
        raise InputError(f"{twin.path} was trained by {twin.run.method}: {remedy}")
    if target_of(twin.run) != target_of(run):
        raise InputError(f"{twin.path} has another target than the run: give a twin of the same target")


def _run(path: Path) -> Run:
    try:
        return Run.read(path / "run.json")
    except (FileNotFoundError, NotADirectoryError):
        what = "is no run's folder (it has no run.json)" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: give a folder that fit or train made") from None
    except NOT_JSON:
        raise InputError(f"{path}/run.json cannot be read: copy it anew, or give another run's folder") from None


def _optional(path: Path, missing: list[str]) -> Mapping[str, Any]:
    """A JSON object, empty where there is none; of a damaged file there is a line."""
    try:
        return read_sealed(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except NOT_JSON:
        missing.append(f"{path.name} is damaged: what it holds is not shown.")
        return {}


def _rows(path: Path, missing: list[str]) -> list[dict[str, float]]:
    """The numbers of each evaluation. Of a run under way, the last line may be half written."""
    rows, text = [], b""
    try:
        text = read_checked(path)
    except FileNotFoundError:
        pass
    except NOT_JSON:
        missing.append("metrics.jsonl is damaged: what it holds is not shown.")
    for line in text.decode(errors="replace").splitlines():
        with suppress(ValueError, AttributeError, OverflowError):
            numbers = {name: value for name, value in parse(line).items() if isinstance(value, int | float)}
            rows.append({name: float(value) for name, value in numbers.items() if math.isfinite(value)})
    rows = [row for row in rows if "step" in row]
    if not rows:
        missing.append("There are no curves: metrics.jsonl holds no evaluation yet.")
    return rows


def _outputs(folder: Path, missing: list[str]) -> Mapping[str, Probabilities]:
    """Of the last evaluation that can be read."""
    for file in sorted(folder.glob("step-*.npz"), reverse=True):
        try:
            return arrays_in(read_checked(file))
        except Exception:  # whatever a damaged one raises
            missing.append(f"outputs/{file.name} is damaged: what it holds is not shown.")
    return {}
