"""What the page needs to know of the images, written at the end of `fit`: images.json, and map.npz beside it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamatch.base.files import read_sealed, sealed, write_atomically, write_whole
from adamatch.evaluate import predict, score
from adamatch.images.tasks import Problem
from adamatch.images.user_data import UserData
from adamatch.report import features
from adamatch.report.features import FeatureMap
from adamatch.report.pool import Pool
from adamatch.report.record import NOT_JSON, Trained

VERSION = 1
IMAGES, MAP = "images.json", "map.npz"
NO_FEATURES = "There is no map: the network has no features(x) that gives a vector for each image."


@dataclass(frozen=True)
class Notes:
    """`given` is what was handed to `fit`, by its argument; None for what is no path."""

    source: Pool | None = None
    target: Pool | None = None
    confusion: NDArray[np.int64] | None = None  # of the labelled target images: [class, answer]
    map: FeatureMap | None = None
    given: Mapping[str, str | None] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def of_own(model: Trained, problem: Problem, data: UserData, given: Mapping[str, Any]) -> Notes:
    """Of somebody's own images, at the end of `fit`."""
    whole = data.seen["source"]
    assert whole.labels is not None
    files, white = list(whole.info.get("files", ())), whole.info.get("white", 0)
    labels, trained = (tuple(each.tolist()) for each in (whole.labels, data.trained))
    source = Pool.of((whole.images,), files, labels=labels, trained=trained, shape=data.shape, white=white)
    if "target" in data.seen:
        files = list(data.seen["target"].info.get("files", ()))
    elif files:  # the source's own images, without those that are held out
        held_out = set(data.held_out.tolist())
        files = [file for row, file in enumerate(files) if row not in held_out]
    target = Pool.of(problem.unlabelled.plain, files, shape=data.shape, white=data.white)
    notes = _with_model(source, target, model, problem)
    given = {name: each for name, each in given.items() if each is not None}
    return replace(
        notes, given={name: str(each) if isinstance(each, str | Path) else None for name, each in given.items()}
    )


def of_problem(problem: Problem, model: Trained | None) -> Notes:
    """Of a benchmark's images; there is no model while it is trained."""
    first = problem.labelled[0]
    labels = tuple(first.labels.tolist()) if first.labels.ndim == 1 else ()
    source, target = Pool.of(first.parts, labels=labels), Pool.of(problem.unlabelled.plain)
    if model is None:
        return Notes(source, target, missing=("There is no map: the model is not saved yet.",))
    return _with_model(source, target, model, problem)


def _with_model(source: Pool, target: Pool, model: Trained, problem: Problem) -> Notes:
    """With what needs the network: mistakes on labelled target images, and the map."""
    test = problem.tests.get("target")
    confusion = None if test is None else score(predict(model.net, test.images, model.machine), test).confusion
    found = features.make(model, source, target) if source.labels else None
    return Notes(source, target, confusion, found, missing=() if found else (NO_FEATURES,))


def save(notes: Notes, folder: Path) -> None:
    facts = {
        "version": VERSION,
        "given": notes.given,
        "source": notes.source.to_json() if notes.source else None,
        "target": notes.target.to_json() if notes.target else None,
        "confusion": None if notes.confusion is None else notes.confusion.tolist(),
        "missing": notes.missing,
    }
    write_atomically(folder / IMAGES, json.dumps(sealed(facts)))
    if notes.map is not None:
        write_whole(folder / MAP, notes.map.save)


def load(folder: Path) -> Notes:
    """What `save` wrote; whatever is not there or cannot be read is said to be missing."""
    try:
        facts = read_sealed(folder / IMAGES)
    except FileNotFoundError:
        return Notes(
            missing=("There are no pictures: images.json is not in the folder. `fit` writes it when it ends.",)
        )
    except NOT_JSON:
        facts = {"version": None}
    if facts["version"] != VERSION:
        return Notes(missing=("There are no pictures: images.json is damaged, or from another version.",))
    source, target = (Pool.from_json(facts[name]) if facts[name] else None for name in ("source", "target"))
    confusion = None if facts["confusion"] is None else np.array(facts["confusion"], np.int64)
    missing, drawn = tuple(facts["missing"]), None
    try:
        drawn = features.load(folder / MAP)
    except Exception:  # whatever NumPy and zipfile raise on a damaged one
        missing = missing or ("There is no map: map.npz is not in the folder, or damaged.",)
    return Notes(source, target, confusion, drawn, facts["given"], missing)
