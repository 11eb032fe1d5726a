"""What a run's folder holds, read for the page: whatever is there, and a line for whatever is not."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adamatch.base.errors import InputError
from adamatch.base.files import parse, read_json, unsealed
from adamatch.train.run_folder import CLASSES
from adamatch.twin import ALONE
from adamatch.twin import FOLDER as TWIN
from adamatch.verdict.eval_outputs import FOLDER, Probabilities

NOT_JSON = (OSError, ValueError)  # what a damaged, half-written or absurd file raises


@dataclass(frozen=True)
class Record:
    """One run. `said` is what the network said of "target" and held-out "source" images at its last evaluation."""

    path: Path
    run: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any]  # empty while it is under way
    verdict: Mapping[str, Any]
    said: Mapping[str, Probabilities]
    classes: tuple[str, ...]  # empty where the folder does not name them
    twin: "Record | None" = None
    missing: tuple[str, ...] = ()

    @property
    def recipe(self) -> Mapping[str, Any]:
        return section(self.run, "recipe")

    @property
    def finished(self) -> bool:
        return bool(self.result)

    @property
    def accuracy(self) -> float | None:
        """On labelled target images, in percent."""
        return number(self.result.get("accuracy"))

    @property
    def test(self) -> str:
        """What that was measured on, of own images."""
        return str(section(self.result, "run").get("test", ""))

    @property
    def last_step(self) -> int:
        """Where the run ends, 0 if that cannot be told."""
        images, batch, stop = (number(self.recipe.get(name)) or 0 for name in ("images", "batch", "stop"))
        return int(min(images, stop or images) // batch) if batch else 0


def read(path: str | Path, twin: str | Path | None = None) -> Record:
    """The run in a folder; its twin is in `twin`, or in the folder twin/ inside it."""
    path = Path(path)
    run = _run(path)
    missing: list[str] = []
    rows = _rows(path / "metrics.jsonl")
    if not rows:
        missing.append("There are no curves: metrics.jsonl holds no evaluation yet.")
    result, verdict = _optional(path / "result.json", missing), _optional(path / "judge.json", missing)
    said = _said(path / FOLDER)
    if not said:
        missing.append("There are no answers to show: outputs/ is empty. Runs of older versions did not write them.")
    beside = Path(twin) if twin else path / TWIN
    other = read(beside) if twin or (beside / "run.json").is_file() else None
    if twin and other is not None:
        _check_twin(run, other)
    return Record(path, run, rows, result, verdict, said, _classes(path), other, tuple(missing))


def _check_twin(run: Mapping[str, Any], twin: Record) -> None:
    if twin.run.get("method") != ALONE:
        raise InputError(
            f"{twin.path} was trained by {twin.run.get('method')}: a twin is a run on labels alone (--method {ALONE})"
        )
    if twin.run.get("target") != run.get("target"):
        raise InputError(f"{twin.path} has another target than the run: give a twin of the same target")


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts; empty if it is something else."""
    return tuple(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else ()


def counts(value: Any, most: int = 2**31) -> tuple[int, ...]:
    """A list of whole numbers from 0 up; empty if it is something else."""
    sound = isinstance(value, list) and all(type(each) is int and 0 <= each < most for each in value)
    return tuple(value) if sound else ()


def section(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a JSON file that is an object; empty if it is something else."""
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def _run(path: Path) -> Mapping[str, Any]:
    try:
        run = read_json(path / "run.json")
    except (FileNotFoundError, NotADirectoryError):
        what = "is no run's folder (it has no run.json)" if path.exists() else "does not exist"
        raise InputError(f"{path} {what}: give a folder that fit or train made") from None
    except NOT_JSON:
        run = None
    if not isinstance(run, dict):
        raise InputError(f"{path}/run.json cannot be read: copy it anew, or give another run's folder")
    return run


def _optional(path: Path, missing: list[str]) -> Mapping[str, Any]:
    """A JSON object, empty where there is none; a damaged file, or one whose checksum is not right, is noted."""
    if not path.is_file():
        return {}
    try:
        return unsealed(read_json(path))
    except NOT_JSON:
        pass
    missing.append(f"{path.name} is damaged: what it holds is not shown.")
    return {}


def _classes(path: Path) -> tuple[str, ...]:
    """Noted by the run, or by its model."""
    try:
        found = read_json(path / CLASSES)
    except NOT_JSON:
        found = _optional(path / "model.json", []).get("classes")
    return texts(found)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Of a run under way, the last line may be half written."""
    rows = []
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            row = parse(line)
        except NOT_JSON:
            continue
        if isinstance(row, dict) and number(row.get("step")) is not None:
            rows.append(row)
    return rows


def _said(folder: Path) -> Mapping[str, Probabilities]:
    """What was said at the last evaluation that can be read: one under way may be half written."""
    for file in sorted(folder.glob("step-*.npz"), reverse=True):
        try:
            with np.load(file, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in ("target", "source") if name in arrays}
        except Exception:  # whatever NumPy and zipfile raise on a damaged one
            continue
        if "target" in found and all(_are_probabilities(each) for each in found.values()):
            return found
    return {}


def _are_probabilities(values: Any) -> bool:
    sound = isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind == "f" and values.shape[1] > 0
    return bool(sound and np.isfinite(values).all())
