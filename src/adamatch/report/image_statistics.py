"""Statistics of the images, and the map of features: saved by `fit` in images.json and map.npz for the report."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from adamatch.base import manifest
from adamatch.base.files import read_checked, read_sealed, sealed, write_atomically, write_whole
from adamatch.base.regular_files import arrays_in
from adamatch.evaluate import predict, score
from adamatch.images.store import Labels, Pixels
from adamatch.images.tasks import Problem
from adamatch.images.user_data import UserData
from adamatch.initialise import embed
from adamatch.networks.conv import Classifier
from adamatch.networks.frozen import sooner
from adamatch.report.pool import Pool, spread
from adamatch.report.record import NOT_JSON
from adamatch.train.speed import Machine
from adamatch.verdict.eval_outputs import save_arrays

VERSION = 1
IMAGES, MAP = "images.json", "map.npz"
NO_PICTURES = "There are no pictures: images.json is not in the folder. `fit` writes it when it ends."
NO_FEATURES = "There is no map: the network has no features(x) that gives a vector for each image."
MOST = 500  # images of each kind: the map of more takes longer, and shows no more
NEIGHBOURS = 30  # of t-SNE
FEWEST = 4 * NEIGHBOURS  # images from which on t-SNE shows more than two principal components
MAIN = 50  # principal components that t-SNE starts from

Points = NDArray[np.float32]


class FeatureMap(NamedTuple):
    """Points [n, 2] in one plane, with a class each: the label in the source, the prediction in the target."""

    source: Points
    source_classes: Labels
    target: Points
    target_classes: Labels
    how: str


@dataclass(frozen=True)
class ImageStatistics:
    """`given`: the paths that `fit` was called with, by argument; None for arrays and datasets."""

    source: Pool | None = None
    target: Pool | None = None
    confusion: NDArray[np.int64] | None = None  # of the labelled target images: [class, prediction]
    map: FeatureMap | None = None
    given: Mapping[str, str | None] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def of_own(model: Any, problem: Problem, data: UserData, given: Mapping[str, Any]) -> ImageStatistics:
    """Of the user's images, at the end of `fit`."""
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


def of_problem(problem: Problem, model: Any) -> ImageStatistics:
    """Of a benchmark's images; `model` is None during training."""
    first = problem.labelled[0]
    labels = tuple(first.labels.tolist()) if first.labels.ndim == 1 else ()
    source, target = Pool.of(first.parts, labels=labels), Pool.of(problem.unlabelled.plain)
    if model is None:
        return ImageStatistics(source, target, missing=("There is no map: the model is not saved yet.",))
    return _with_model(source, target, model, problem)


def _with_model(source: Pool, target: Pool, model: Any, problem: Problem) -> ImageStatistics:
    """With the confusion matrix of labelled target images and the map, which need the network."""
    net, test = sooner(model.net, model.machine.device), problem.tests.get("target")
    confusion = None if test is None else score(predict(net, test.images, model.machine), test).confusion
    found = feature_map(model, source, target) if source.labels else None
    return ImageStatistics(source, target, confusion, found, missing=() if found else (NO_FEATURES,))


def save(notes: ImageStatistics, folder: Path) -> None:
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


def load(folder: Path) -> ImageStatistics:
    """What `save` wrote; `missing` names what is not there or cannot be read."""
    try:
        facts = read_sealed(folder / IMAGES)
    except FileNotFoundError:
        return ImageStatistics(missing=(NO_PICTURES,))
    except NOT_JSON:
        facts = {"version": None}
    if facts["version"] != VERSION:
        return ImageStatistics(missing=("There are no pictures: images.json is damaged, or from another version.",))
    source, target = (Pool.from_json(facts[name]) if facts[name] else None for name in ("source", "target"))
    confusion = None if facts["confusion"] is None else np.array(facts["confusion"], np.int64)
    missing, drawn = tuple(facts["missing"]), None
    try:
        arrays: dict[str, Any] = arrays_in(read_checked(folder / MAP))
        points = {name: arrays[name].astype(np.float32) for name in ("source", "target")}
        drawn = FeatureMap(**(arrays | points | {"how": str(arrays["how"])}))
    except Exception:  # NumPy and zipfile raise all kinds
        missing = missing or ("There is no map: map.npz is not in the folder, or damaged.",)
    return ImageStatistics(source, target, confusion, drawn, facts["given"], missing)


def feature_map(model: Any, source: Pool, target: Pool) -> FeatureMap | None:
    """None where the network has no `features(x)` that gives a vector for each image."""
    rows = [spread(pool.count, MOST) for pool in (source, target)]
    images = [np.stack([pool.pixels(row) for row in mine]) for pool, mine in zip((source, target), rows, strict=True)]
    net = sooner(model.net, model.machine.device)
    found = [_features(net, each, model.machine) for each in images]
    if found[0] is None or found[1] is None:
        return None
    points, how = _plane(np.concatenate([found[0], found[1]]))
    labels = np.array([source.labels[row] for row in rows[0]], np.int64)
    if isinstance(net, Classifier):  # its features are there already
        predicted = net.head(torch.from_numpy(found[1]).to(model.machine.device)).argmax(1).cpu().numpy()
    else:
        predicted = predict(net, images[1], model.machine).argmax(1)
    return FeatureMap(points[: len(labels)], labels, points[len(labels) :], predicted, how)


def _features(net: nn.Module, images: Pixels, machine: Machine) -> NDArray[np.float32] | None:
    """[n, d]"""
    features = getattr(net, "features", None)
    if not callable(features) or isinstance(features, nn.Module):  # torchvision's are layers before the pooling
        return None
    try:
        found: NDArray[np.float32] = embed.features(net, (images,), machine).flatten(1).cpu().numpy()
    except Exception:  # whatever a user's module may raise: the page does without a map
        return None
    return found if np.isfinite(found).all() else None


def _plane(features: NDArray[np.float32]) -> tuple[Points, str]:
    """[n, d] -> [n, 2], and the method: t-SNE of the principal components, or of few images the first two of these."""
    centred = features - features.mean(0)
    if len(features) < FEWEST:
        return _main(centred, 2), "PCA"
    from sklearn.manifold import TSNE  # takes a second to import

    made = TSNE(2, perplexity=NEIGHBOURS, init="pca", max_iter=500, random_state=0).fit_transform(_main(centred, MAIN))
    return made.astype(np.float32), "t-SNE"


def _main(centred: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Coordinates along the first principal components; zeros where there are fewer."""
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    found = centred @ directions[:count].T
    return np.pad(found, ((0, 0), (0, count - found.shape[1]))).astype(np.float32)
