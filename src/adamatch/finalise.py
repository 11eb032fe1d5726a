"""How `fit` ends: the verdict in judge.json and in the model, and three lines that say what is in the run's folder."""

import json
from dataclasses import replace
from typing import Any

from adamatch.base import ranks
from adamatch.base.files import read_sealed, sealed, write_atomically
from adamatch.images.tasks import Problem
from adamatch.model import Model
from adamatch.report.measured import measured
from adamatch.train.run_folder import RunFolder
from adamatch.verdict import evidence
from adamatch.verdict.verdict import FILE as JUDGED
from adamatch.verdict.verdict import TWIN, VERSION, Images, verdict

README = """\
model.safetensors and model.json are the classifier: `adamatch predict FOLDER IMAGES`, or adamatch.load(FOLDER) in Python.
judge.json is what can be said of it without labels, outputs/ what it said on the way, twin/ the same without adaptation.
run.json is what was asked for, metrics.jsonl what was measured, result.json the end; the same command again resumes the run.
"""
ALL_TOO_LONG = ("rows", "pairs")  # lists of images: in judge.json, not in the model


def judged(model: Model, problem: Problem, folder: RunFolder, *, same: bool) -> Model:
    """The model with what is known of it in its history, as saved; `same`: source and target are one set of images."""
    known = ranks.from_first(lambda: measured(folder, problem))
    found = ranks.from_first(lambda: _verdict(problem, folder, same))
    history = model.history | {"estimate": known} | ({"judge": _short(found)} if found else {})
    told = replace(model, history=history)
    if ranks.rank() == 0 and told.history != model.history:
        told.save(folder.path)
        write_atomically(folder.path / "README", README)
    return told


def _verdict(problem: Problem, folder: RunFolder, same: bool) -> dict[str, Any] | None:
    """As it was written, or anew where there is none yet, or none with the twin; None where the run kept no outputs."""
    path = folder.path / JUDGED
    beside = (folder.path / TWIN / "result.json").exists()
    written = read(folder)
    if written and (written["twin"] is not None or not beside):
        return written
    known = evidence.read(folder.path)
    if known is None:
        return None
    if beside:
        known = known.with_twin(evidence.read(folder.path / TWIN))
    source = problem.labelled[0]
    labels = source.labels if source.labels.ndim == 1 else None
    images = Images(problem.unlabelled.parts, source.parts, labels, same)  # type: ignore[arg-type]  # class numbers
    found = verdict(known, images, problem.classes)
    write_atomically(path, json.dumps(sealed(found), indent=1))
    return found


def read(folder: RunFolder) -> dict[str, Any] | None:
    """judge.json; None where it is damaged or of another version, and so has to be made anew."""
    try:
        found = read_sealed(folder.path / JUDGED)
    except (FileNotFoundError, ValueError):
        return None
    return found if found["version"] == VERSION else None


def _short(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _short(value) for name, value in found.items() if name not in ALL_TOO_LONG}
    return [_short(each) for each in found] if isinstance(found, list) else found
