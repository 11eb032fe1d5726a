"""What the page needs to know of the images, written at the end of `fit`: images.json, and map.npz beside it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adamatch.base.files import read_json, write_atomically, write_whole
from adamatch.evaluate import predict, score
from adamatch.images.tasks import Problem
from adamatch.images.user_data import OwnData
from adamatch.model import Model
from adamatch.report import features
from adamatch.report.features import FeatureMap
from adamatch.report.pool import Pool
from adamatch.report.record import NOT_JSON, texts

VERSION = 1
IMAGES, MAP = "images.json", "map.npz"
NO_FEATURES = "There is no map: the network has no features(x) that gives a vector for each image."


@dataclass(frozen=True)
class Notes:
    """`given` is what was handed to `fit`, by its argument; None for what is no path."""

    classes: tuple[str, ...] = ()
    source: Pool | None = None
    target: Pool | None = None
    held: tuple[int, ...] = ()  # labels of the held-out source images
    confusion: NDArray[np.int64] | None = None  # of the labelled target images: [class, answer]
    map: FeatureMap | None = None
    given: Mapping[str, str | None] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def of_own(model: Model, problem: Problem, data: OwnData, given: Mapping[str, Any]) -> Notes:
    """Of somebody's own images, at the end of `fit`."""
    whole = data.seen["source"]
    assert whole.labels is not None
    files = list(whole.info.get("files", ()))
    labels, rows, trained = (tuple(each.tolist()) for each in (whole.labels, data.held_out, data.trained))
    looks = {"shape": data.shape, "white": whole.info.get("white", 0)}
    source = Pool.of((whole.images,), files, labels=labels, trained=trained, held_out=rows, **looks)
    if "target" in data.seen:
        files = list(data.seen["target"].info.get("files", ()))
    elif files:  # the source's own images, without those that are held out
        apart = set(rows)
        files = [file for row, file in enumerate(files) if row not in apart]
    target = Pool.of(problem.unlabelled.plain, files, shape=data.shape, white=data.white)
    paths = {
        name: str(each) if isinstance(each, str | Path) else None for name, each in given.items() if each is not None
    }
    return _with_model(Notes(problem.classes, source, target, _held(source), given=paths), model, problem)


def of_problem(problem: Problem, model: Model | None) -> Notes:
    """Of a benchmark's images; there is no model while it is trained."""
    first = problem.labelled[0]
    labels = tuple(first.labels.tolist()) if first.labels.ndim == 1 else ()
    source = Pool.of(first.parts, labels=labels)
    apart = problem.tests["source"].labels if "source" in problem.tests else None
    held = () if apart is None else tuple(apart.tolist())
    notes = Notes(problem.classes, source, Pool.of(problem.unlabelled.plain), held)
    if model is None:
        return replace(notes, missing=("There is no map: the model is not saved yet.",))
    return _with_model(notes, model, problem)


def save(notes: Notes, folder: Path) -> None:
    facts = {
        "version": VERSION,
        "classes": notes.classes,
        "given": notes.given,
        "source": notes.source.to_json() if notes.source else None,
        "target": notes.target.to_json() if notes.target else None,
        "confusion": None if notes.confusion is None else notes.confusion.tolist(),
        "missing": notes.missing,
    }
    write_atomically(folder / IMAGES, json.dumps(facts))
    if notes.map is not None:
        write_whole(folder / MAP, notes.map.save)


def load(folder: Path) -> Notes:
    """What `save` wrote; whatever is not there or cannot be read is said to be missing."""
    try:
        facts = read_json(folder / IMAGES)
    except FileNotFoundError:
        return Notes(
            missing=("There are no pictures: images.json is not in the folder. `fit` writes it when it ends.",)
        )
    except NOT_JSON:
        facts = None
    if not isinstance(facts, dict) or facts.get("version") != VERSION:
        return Notes(missing=("There are no pictures: images.json is damaged, or from another version.",))
    try:
        confusion = facts.get("confusion")
        source = Pool.from_json(facts["source"])
        notes = Notes(
            texts(facts["classes"]),
            source,
            Pool.from_json(facts["target"]),
            _held(source),
            None if confusion is None else _square(confusion, len(facts["classes"])),
            None,
            _paths(facts.get("given") or {}),
            texts(facts.get("missing")),
        )
    except Exception:  # of any other kind than it should be
        return Notes(missing=("There are no pictures: images.json is damaged.",))
    try:
        return replace(notes, map=features.load(folder / MAP))
    except Exception:  # whatever NumPy and zipfile raise on a damaged one
        lost = notes.missing or ("There is no map: map.npz is not in the folder, or damaged.",)
        return replace(notes, missing=lost)


def _held(source: Pool) -> tuple[int, ...]:
    return tuple(source.labels[row] for row in source.held_out) if source.labels else ()


def _square(values: Any, side: int) -> NDArray[np.int64]:
    found = np.array(values, np.int64)
    if found.shape != (side, side) or found.min(initial=0) < 0:
        raise ValueError("not the counts of a class by a class")
    return found


def _paths(given: Any) -> dict[str, str | None]:
    if not all(value is None or isinstance(value, str) for value in given.values()):
        raise ValueError("not paths by names")
    return dict(given)


def _with_model(notes: Notes, model: Model, problem: Problem) -> Notes:
    """What needs the network: mistakes on labelled target images, and the map."""
    test = problem.tests.get("target")
    confusion = None if test is None else score(predict(model.net, test.images, model.machine), test).confusion
    assert notes.source is not None
    assert notes.target is not None
    found = features.make(model, notes.source, notes.target) if notes.source.labels else None
    return replace(notes, confusion=confusion, map=found, missing=() if found else (NO_FEATURES,))
