"""A map of what a network sees: features of source and target images, in two dimensions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from adamatch.augment.views import normalise
from adamatch.evaluate import predict
from adamatch.images.store import Labels, Pixels
from adamatch.report.pool import Pool, spread
from adamatch.report.record import Trained

MOST = 500  # images of each kind: the map of more takes longer, and shows no more
BATCH, BATCH_ON_CPU = 128, 8
NEIGHBOURS = 30  # of t-SNE
FEWEST = 4 * NEIGHBOURS  # images for which t-SNE says more than the two main directions
MAIN = 50  # directions that t-SNE starts from

Points = NDArray[np.float32]


@dataclass(frozen=True)
class FeatureMap:
    """Points [n, 2] in one plane, with a class each: the label in the source, the answer in the target."""

    source: Points
    source_classes: Labels
    target: Points
    target_classes: Labels
    how: str

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {name: getattr(self, name) for name in ("source_classes", "target_classes")}
        points: dict[str, Any] = {name: getattr(self, name).astype(np.float16) for name in ("source", "target")}
        with path.open("wb") as file:  # NumPy would give the file another name
            np.savez_compressed(file, how=np.array(self.how), **points, **arrays)


def load(path: Path) -> FeatureMap:
    with np.load(path, allow_pickle=False) as found:
        points = [found[name].astype(np.float32) for name in ("source", "target")]
        labels = [found[f"{name}_classes"].astype(np.int64) for name in ("source", "target")]
        for each, classes in zip(points, labels, strict=True):
            if each.shape != (len(classes), 2) or not np.isfinite(each).all() or classes.min(initial=0) < 0:
                raise ValueError("not points in a plane, each with a class")
        return FeatureMap(points[0], labels[0], points[1], labels[1], str(found["how"]))


def make(model: Trained, source: Pool, target: Pool) -> FeatureMap | None:
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
