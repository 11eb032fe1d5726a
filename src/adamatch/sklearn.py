"""AdaMatch as a classifier of scikit-learn: images in one array, of which those without a label are the target."""

import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from adamatch.base.errors import InputError
from adamatch.fit import fit

NO_LABEL = ("-1", "-1.0", "nan", "<NA>", "None")  # as text, of what is no text itself
MOST = 2**31 - 1  # of random seeds


class AdaMatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Labelled images are the source, those without a label the target.

    No label is -1 among numbers, as in scikit-learn's semi-supervised classifiers, and None or "" among names. X holds
    images (n, height, width, 3), or paths (n,). Arguments are those of `adamatch.fit`, with these differences:

    twin          off: the same network is not trained on the labelled images alone
    out           the run's folder; None: a temporary one, which is removed. In a search leave it at None
    random_state  the seed, or NumPy's generator, from which it is drawn

    After `fit` there are `classes_`, and `model_`, the `adamatch.Model`.
    """

    def __init__(
        self,
        *,
        network: Any = "auto",
        weights: str = "auto",
        size: int | str = "auto",
        images: int | str = "auto",
        batch: int | str = "auto",
        lr: float | str = "auto",
        strong: str = "auto",
        mirror: bool = True,
        frozen: int | str = "auto",
        method: str = "adamatch",
        options: dict[str, Any] | None = None,
        twin: bool = False,
        out: str | Path | None = None,
        overwrite: bool = False,
        device: str = "auto",
        precision: str = "auto",
        compile: bool | None = None,  # noqa: A002
        quiet: bool = True,
        random_state: Any = None,
    ) -> None:
        self.network = network
        self.weights = weights
        self.size = size
        self.images = images
        self.batch = batch
        self.lr = lr
        self.strong = strong
        self.mirror = mirror
        self.frozen = frozen
        self.method = method
        self.options = options
        self.twin = twin
        self.out = out
        self.overwrite = overwrite
        self.device = device
        self.precision = precision
        self.compile = compile
        self.quiet = quiet
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = tags.input_tags.string = True  # paths
        tags.input_tags.three_d_array = True  # grey images
        return tags

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
        """Train on labelled and unlabelled images.

        `sample_domain`, as in skada, is positive for the source and negative for the target: labels of target images
        are not used then, and y may have them all.
        """
        X, (y, has_label) = _images(X), _labels(y)
        check_consistent_length(X, y)
        source = has_label if sample_domain is None else _source(sample_domain, has_label)
        if not source.any():
            raise InputError("no image has a label: give the classes of some in y (-1, None and '' are no label)")
        values = np.array(y[source].tolist())
        check_classification_targets(values)
        self.classes_, rows = np.unique(values, return_inverse=True)
        names = np.array([str(name) for name in self.classes_])[rows].tolist()
        labelled = (_given(X[source]), names)
        target: Any = _given(X[~source])
        if source.all():
            warnings.warn("every image has a label: there is no target to adapt to", UserWarning, stacklevel=2)
            target = labelled  # as where source and target are one folder
        arguments = self.get_params(deep=False)
        del arguments["out"], arguments["random_state"]
        arguments["seed"] = _seed(self.random_state)
        with TemporaryDirectory(prefix="adamatch-") if self.out is None else nullcontext(self.out) as folder:
            out = Path(folder) / "run" if self.out is None else folder
            model = fit(labelled, target, out, report=self.out is not None, **arguments)
        self.model_ = replace(model, folder=None) if self.out is None else model
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Probabilities (n, k), in the order of `classes_`."""
        check_is_fitted(self)
        X = _images(X)
        found = self.model_.predict_proba(_given(X))
        if len(found) != len(X):
            raise InputError(f"X has {len(X)} rows, and {len(found)} images: give the path of one image in each row")
        place = {name: column for column, name in enumerate(self.model_.classes)}
        columns = [place[str(name).strip()] for name in self.classes_]
        probabilities: NDArray[np.float32] = found[:, columns]
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each image."""
        probabilities = self.predict_proba(X)  # first: it checks that there is a model
        labels: NDArray[Any] = self.classes_[probabilities.argmax(1)]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the images that have a label; the others are left out."""
        X, (y, has_label) = _images(X), _labels(y)
        check_consistent_length(X, y, sample_weight)
        if not has_label.any():
            raise InputError("no image has a label: accuracy needs some (-1, None and '' are no label)")
        weights = None if sample_weight is None else np.asarray(sample_weight)[has_label]
        truth = np.array(y[has_label].tolist())
        return float(accuracy_score(truth, self.predict(X[has_label]), sample_weight=weights))


def _images(X: Any) -> NDArray[Any]:
    """An array of images (n, height, width, channels), or of paths (n,)."""
    try:
        found: NDArray[Any] = np.asarray(X)
    except ValueError:
        raise InputError("X holds images of several sizes: give an array of one size, or paths") from None
    if found.ndim == 1 and all(isinstance(path, (str, Path)) for path in found.tolist()):
        return found
    if found.ndim not in (3, 4):
        raise InputError(f"X has the shape {found.shape}: give images (n, height, width, 3), or paths (n,)")
    return found[..., None] if found.ndim == 3 else found


def _given(X: NDArray[Any]) -> Any:
    """As the package takes images: arrays as they are, paths as a list."""
    return X if X.ndim > 1 else X.tolist()


def _labels(y: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels (n,), and for which images there is one."""
    if y is None:
        raise InputError("the classifier requires y to be passed, but the target y is None: give labels, -1 for none")
    y = column_or_1d(y, warn=True)
    none = [not label if isinstance(label, str) else str(label) in NO_LABEL for label in y.tolist()]
    return y, ~np.array(none, bool)


def _source(sample_domain: Any, has_label: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which images are of the source."""
    domain = column_or_1d(sample_domain)
    check_consistent_length(domain, has_label)
    if not (domain != 0).all():
        raise InputError("sample_domain is positive for the source and negative for the target: it holds 0")
    source: NDArray[np.bool_] = domain > 0
    if lacking := int((source & ~has_label).sum()):
        raise InputError(f"{lacking} images of the source have no label: give one, or a negative sample_domain")
    return source


def _seed(random_state: Any) -> int:
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(MOST))
