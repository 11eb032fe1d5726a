"""What the page needs to know of the images and the network, written at the end of `fit`: images.json and map.npz."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from adamatch.augment.views import normalise
from adamatch.base import manifest
from adamatch.base.files import read_checked, read_sealed, sealed, write_atomically, write_whole
from adamatch.base.regular_files import arrays_in
from adamatch.evaluate import predict, score
from adamatch.images.store import Labels, Pixels
from adamatch.images.tasks import Problem
from adamatch.images.user_data import UserData
from adamatch.report.pool import Pool, spread
from adamatch.report.record import NOT_JSON
from adamatch.train.speed import Machine
from adamatch.verdict.eval_outputs import save_arrays

VERSION = 1
IMAGES, MAP = "images.json", "map.npz"
NO_PICTURES = "There are no pictures: images.json is not in the folder. `fit` writes it when it ends."
NO_FEATURES = "There is no map: the network has no features(x) that gives a vector for each image."
MOST = 500  # images of each kind: the map of more takes longer, and shows no more
BATCH, BATCH_ON_CPU = 128, 8
NEIGHBOURS = 30  # of t-SNE
FEWEST = 4 * NEIGHBOURS  # images for which t-SNE says more than the two main directions
MAIN = 50  # directions that t-SNE starts from

Points = NDArray[np.float32]


class Trained(Protocol):
    """What reports need of a model (`adamatch.model.Model`)."""

    @property
    def net(self) -> nn.Module: ...

    @property
    def machine(self) -> Machine: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def history(self) -> dict[str, Any]: ...

    @property
    def folder(self) -> Path | None: ...


class FeatureMap(NamedTuple):
    """Points [n, 2] in one plane, with a class each: the label in the source, the answer in the target."""

    source: Points
    source_classes: Labels
    target: Points
    target_classes: Labels
    how: str


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
    paths = {name: str(each) if isinstance(each, str | Path) else None for name, each in given.items()}
    paths = {name: path for name, path in paths.items() if given[name] is not None}
    return replace(_with_model(source, target, model, problem), given=paths)


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
    found = feature_map(model, source, target) if source.labels else None
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
    manifest.forget(folder, IMAGES, MAP)
    write_atomically(folder / IMAGES, json.dumps(sealed(facts)))
    if (drawn := notes.map) is not None:
        points = {name: getattr(drawn, name).astype(np.float16) for name in ("source", "target")}
        write_whole(folder / MAP, lambda part: save_arrays(part, **drawn._asdict() | points))


def load(folder: Path) -> Notes:
    """What `save` wrote; whatever is not there or cannot be read is said to be missing."""
    try:
        facts = read_sealed(folder / IMAGES)
    except FileNotFoundError:
        return Notes(missing=(NO_PICTURES,))
    except NOT_JSON:
        facts = {"version": None}
    if facts["version"] != VERSION:
        return Notes(missing=("There are no pictures: images.json is damaged, or from another version.",))
    source, target = (Pool.from_json(facts[name]) if facts[name] else None for name in ("source", "target"))
    confusion = None if facts["confusion"] is None else np.array(facts["confusion"], np.int64)
    missing, drawn = tuple(facts["missing"]), None
    try:
        arrays: dict[str, Any] = arrays_in(read_checked(folder / MAP))
        points = {name: arrays[name].astype(np.float32) for name in ("source", "target")}
        drawn = FeatureMap(**(arrays | points | {"how": str(arrays["how"])}))
    except Exception:  # whatever NumPy and zipfile raise on a damaged one
        missing = missing or ("There is no map: map.npz is not in the folder, or damaged.",)
    return Notes(source, target, confusion, drawn, facts["given"], missing)


def feature_map(model: Trained, source: Pool, target: Pool) -> FeatureMap | None:
    """None where the network has no `features(x)`, or such as gives no vector for each image."""
    rows = [spread(pool.count, MOST) for pool in (source, target)]
    images = [np.stack([pool.pixels(row) for row in mine]) for pool, mine in zip((source, target), rows, strict=True)]
    found = [_features(model, each) for each in images]
    if found[0] is None or found[1] is None:
        return None
    points, how = _plane(np.concatenate([found[0], found[1]]))
    labels = np.array([source.labels[row] for row in rows[0]], np.int64)
    answers = predict(model.net, images[1], model.machine).argmax(1)
    return FeatureMap(points[: len(labels)], labels, points[len(labels) :], answers, how)


@torch.inference_mode()
def _features(model: Trained, images: Pixels) -> NDArray[np.float32] | None:
    """[n, d]"""
    features = getattr(model.net, "features", None)
    if not callable(features) or isinstance(features, nn.Module):  # torchvision's are layers before the pooling
        return None
    rows = []
    try:
        batch = BATCH if model.machine.device.type == "cuda" else BATCH_ON_CPU
        for start in range(0, len(images), batch):
            x = torch.from_numpy(images[start : start + batch]).to(model.machine.device)
            with model.machine.autocast():
                rows.append(features(normalise(x.permute(0, 3, 1, 2))).float().flatten(1).cpu())
        found: NDArray[np.float32] = torch.cat(rows).numpy()
    except Exception:  # whatever somebody else's module may raise: the page does without a map
        return None
    return found if np.isfinite(found).all() else None


def _plane(features: NDArray[np.float32]) -> tuple[Points, str]:
    """[n, d] -> [n, 2], and how: t-SNE of the main directions, or with few images the two main directions alone."""
    centred = features - features.mean(0)
    if len(features) < FEWEST:
        return _main(centred, 2), "PCA"
    from sklearn.manifold import TSNE  # takes a second to import

    made = TSNE(2, perplexity=NEIGHBOURS, init="pca", max_iter=500, random_state=0).fit_transform(_main(centred, MAIN))
    return made.astype(np.float32), "t-SNE"


def _main(centred: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The coordinates along the main directions; zeros where there are fewer."""
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    found = centred @ directions[:count].T
    return np.pad(found, ((0, 0), (0, count - found.shape[1]))).astype(np.float32)
