"""How `fit` ends: the verdict in judge.json and in the model, and three lines that say what is in the run's folder."""

import json
from dataclasses import replace
from typing import Any

from adamatch.base import manifest, ranks
from adamatch.base.files import read_sealed, sealed, write_atomically
from adamatch.images.tasks import Problem
from adamatch.model import Model
from adamatch.report.printed import measured
from adamatch.train.run_folder import RunFolder
from adamatch.verdict import eval_outputs
from adamatch.verdict.verdict import FILE, TWIN, VERSION, verdict

README = """\
model.safetensors and model.json are the model: `adamatch predict FOLDER IMAGES`, or adamatch.load(FOLDER) in Python.
judge.json is the verdict without labels, outputs/ the predictions it rests on, twin/ the same without adaptation.
run.json is the configuration, metrics.jsonl the curves, result.json the result; the same command again resumes the run.
"""
LONG = ("rows", "pairs")  # lists of images: in judge.json, not in the model


def finalised(model: Model, problem: Problem, folder: RunFolder, *, same: bool) -> Model:
    """The model with what is known of it in its history, as saved; `same`: source and target are one set of images."""
    known = ranks.from_first(lambda: measured(folder, problem))
    found = ranks.from_first(lambda: _verdict(problem, folder, same))
    history = model.history | {"estimate": known} | ({"judge": _shortened(found)} if found else {})
    told = replace(model, history=history)
    if ranks.rank() == 0 and told.history != model.history:
        told.save(folder.path)
        manifest.forget(folder.path, "README")
        write_atomically(folder.path / "README", README)
    return told


def _verdict(problem: Problem, folder: RunFolder, same: bool) -> dict[str, Any] | None:
    """The one in the folder, or a new one where there is none, or none with the twin; None without outputs."""
    with_twin = (folder.path / TWIN / "result.json").exists()
    saved = _saved(folder)
    if saved and (saved["twin"] is not None or not with_twin):
        return saved
    outputs = eval_outputs.read(folder.path)
    if outputs is None:
        return None
    if with_twin:
        outputs = outputs.with_twin(eval_outputs.read(folder.path / TWIN))
    found = verdict(outputs, problem.unlabelled, problem.labelled[0], problem.classes, same=same)
    manifest.forget(folder.path, FILE)
    write_atomically(folder.path / FILE, json.dumps(sealed(found), indent=1))
    return found


def _saved(folder: RunFolder) -> dict[str, Any] | None:
    """judge.json; None where it is damaged or of another version, and so has to be made anew."""
    try:
        saved = read_sealed(folder.path / FILE)
    except (FileNotFoundError, ValueError):
        return None
    return saved if saved["version"] == VERSION else None


def _shortened(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _shortened(value) for name, value in found.items() if name not in LONG}
    return [_shortened(each) for each in found] if isinstance(found, list) else found
