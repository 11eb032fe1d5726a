"""The scikit-learn classifier: what it trains is what `fit` trains, and it goes where scikit-learn's own go."""

import inspect
import pickle
import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from colours import TINY, arrays
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted, validate_data

import adamatch
from adamatch.base.errors import InputError
from adamatch.config.recipe import Recipe
from adamatch.config.schema import settings_of
from adamatch.sklearn import AdaMatchClassifier

HOW: dict[str, Any] = {**TINY, "network": "wrn-tiny", "weights": "none"}
NAMES = np.array(["blue", "green", "red"])


def classifier(**given: Any) -> AdaMatchClassifier:
    return AdaMatchClassifier(**{**HOW, "random_state": 0, **given})


def images(count: int = 12) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """As many labelled images as there are without a label, which are darker."""
    source, target = arrays(count), arrays(count, seed=1, dark=60)
    return np.concatenate([source[0], target[0]]), np.concatenate([source[1], np.full(count, -1)])


def same(one: AdaMatchClassifier, other: Any) -> bool:
    X = arrays(9, seed=2)[0]
    return np.array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.fixture(scope="module")
def fitted() -> AdaMatchClassifier:
    return classifier().fit(*images())


def test_it_trains_what_fit_trains(fitted: AdaMatchClassifier, tmp_path: Path) -> None:
    """Images with a label are the source, the others the target."""
    model = adamatch.fit(arrays(12), arrays(12, seed=1, dark=60)[0], tmp_path / "run", **HOW, twin=False, seed=0)
    assert same(fitted, model)
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert not same(fitted, classifier(random_state=1).fit(*images()))


def test_it_learns_the_target_without_its_labels() -> None:
    target = arrays(60, seed=1, dark=60)
    learnt = classifier(images=400, batch=8, mirror=False).fit(*images(60))
    assert learnt.score(*target) > 0.9


def test_classes_are_in_their_own_order() -> None:
    """12 names of numbers are sorted otherwise than 12 numbers."""
    X, y = images(36)
    y[:36] = np.arange(36) % 12
    found = classifier().fit(X, y)
    assert found.classes_.tolist() == list(range(12))
    assert found.predict(X).tolist() == [int(name) for name in found.model_.predict(X).labels]
    assert len(set(found.predict(X).tolist())) > 1


@pytest.mark.parametrize("none", [None, "", float("nan")], ids=repr)
def test_names_and_paths_are_the_same_as_arrays(none: object, fitted: AdaMatchClassifier, tmp_path: Path) -> None:
    X, y = images()
    files = [tmp_path / f"{number}.png" for number in range(len(X))]
    for file, image in zip(files, X, strict=True):
        Image.fromarray(image).save(file)
    names = np.array([none if label < 0 else NAMES[label] for label in y], object)
    found = classifier().fit(files, names)
    assert same(found, fitted)
    assert found.classes_.tolist() == NAMES.tolist()
    assert np.array_equal(found.predict(np.array(files, object)), NAMES[fitted.predict(X)])
    assert found.predict_proba([]).shape == (0, 3)
    with pytest.raises(InputError, match="X has 1 rows, and 24 images: give the path of one image in each row"):
        found.predict([tmp_path])


def test_labels_of_the_target_domain_are_not_used(fitted: AdaMatchClassifier) -> None:
    X, y = images()
    domain = np.where(y < 0, -2, 1)
    for labels in (0, 1, 2, -1):
        assert same(classifier().fit(X, np.where(y < 0, labels, y), sample_domain=domain), fitted)
    with pytest.raises(InputError, match="12 images of the source have no label"):
        classifier().fit(X, y, sample_domain=-domain)
    with pytest.raises(InputError, match="positive for the source and negative for the target: it holds 0"):
        classifier().fit(X, y, sample_domain=np.zeros(len(X)))


def test_without_a_target_it_says_so_and_learns_from_the_labelled_images() -> None:
    with pytest.warns(UserWarning, match="every image has a label: there is no target to adapt to"):
        found = classifier().fit(*arrays(12))
    assert found.predict(arrays(3)[0]).shape == (3,)


def test_a_score_is_of_the_images_that_have_a_label(fitted: AdaMatchClassifier) -> None:
    X, y = images()
    wanted = accuracy_score(y[:12], fitted.predict(X[:12]))
    assert fitted.score(X, y) == wanted
    weights = np.arange(24.0)
    assert fitted.score(X, y, weights) == accuracy_score(y[:12], fitted.predict(X[:12]), sample_weight=weights[:12])
    with pytest.raises(InputError, match="no image has a label: accuracy needs some"):
        fitted.score(X[12:], y[12:])


def test_clones_pipelines_and_searches() -> None:
    X, y = images(24)
    search = GridSearchCV(
        make_pipeline(FunctionTransformer(), classifier()), {"adamatchclassifier__lr": [0.03, 0.0]}, cv=2
    )
    search.fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = classifier(lr=search.best_params_["adamatchclassifier__lr"]).fit(X, y)
    assert np.array_equal(best.predict_proba(X), search.predict_proba(X))
    assert same(clone(best).fit(X, y), best)
    domain = np.where(y < 0, -1, 1)
    scores = cross_val_score(classifier(), X, np.abs(y), cv=2, params={"sample_domain": domain}, error_score="raise")
    assert ((scores >= 0) & (scores <= 1)).all()


def test_the_folder_of_a_run_stays_where_it_was_asked_for(
    fitted: AdaMatchClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    kept, lost = classifier(out=tmp_path / "run").fit(*images()), classifier().fit(*images())
    assert not list((tmp_path / "temporary").iterdir())
    assert lost.model_.folder is None
    assert kept.model_.folder == tmp_path / "run"
    assert same(kept, adamatch.load(tmp_path / "run", device="cpu"))
    assert same(pickle.loads(pickle.dumps(fitted)), fitted)


def test_arguments_are_those_of_fit() -> None:
    known = {*inspect.signature(adamatch.fit).parameters} | {each.name for each in settings_of(Recipe, "fit")}
    assert {*AdaMatchClassifier().get_params()} - {"out", "random_state"} <= known
    with pytest.raises(InputError, match="no network is called 'wrn-teeny': did you mean 'wrn-tiny'"):
        classifier(network="wrn-teeny").fit(*images())


@pytest.mark.parametrize(
    ("X", "y", "says"),
    [
        (
            np.zeros((6, 192)),
            np.arange(6) % 3,
            r"X has the shape \(6, 192\): give images \(n, height, width, 3\), or pat",
        ),
        (np.arange(6), np.arange(6) % 3, r"X has the shape \(6,\)"),
        ([np.zeros((8, 8, 3)), np.zeros((9, 9, 3))], [0, 1], "X holds images of several sizes"),
        (arrays(6)[0], None, "requires y to be passed, but the target y is None"),
        (arrays(6)[0], [-1] * 6, "no image has a label: give the classes of some in y"),
        (arrays(6)[0], [0, 1], "inconsistent numbers of samples"),
        (arrays(6)[0], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "Unknown label type: continuous"),
        (arrays(6)[0], [0, 0, 0, -1, -1, -1], "has one class only"),
    ],
)
def test_what_is_wrong_is_said_in_words(X: Any, y: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        classifier().fit(X, y)


def test_it_has_to_be_fitted_first() -> None:
    with pytest.raises(NotFittedError):
        classifier().predict(arrays(6)[0])


class OfRows(AdaMatchClassifier):
    """Rows of numbers as images: scikit-learn's checks know nothing else. What is of rows alone is seen to here."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = type(tags.input_tags)()
        tags.classifier_tags.poor_score = True  # of two steps
        return tags

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:
        return super().fit(_as_images(validate_data(self, X, ensure_min_samples=2)), y, sample_domain)

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        check_is_fitted(self)
        return super().predict_proba(_as_images(validate_data(self, X, reset=False)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))


def _as_images(X: NDArray[Any]) -> NDArray[np.uint8]:
    levels = (255 / (1 + np.exp(-X.astype(float)))).astype(np.uint8)
    return np.resize(levels.T, (8 * 8 * 3, len(X))).T.reshape(-1, 8, 8, 3)


# The checks that fail, and why they have to.
EXCEPTED = {"check_classifiers_classes": "its classes are -1 and 1, and -1 is no label here"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_pass_but_for_those_that_are_argued() -> None:
    found = check_estimator(OfRows(**HOW), expected_failed_checks=EXCEPTED, on_skip=None, on_fail=None)
    status = {kind: [each["check_name"] for each in found if each["status"] == kind] for kind in ("passed", "skipped")}
    failed = [each for each in found if each["status"] not in status]
    print(f"{len(found)} checks: {len(status['passed'])} pass, skipped {status['skipped']}, excepted {[*EXCEPTED]}")
    assert {each["check_name"] for each in failed} == EXCEPTED.keys(), [each["exception"] for each in failed]
    assert status["skipped"] == ["check_array_api_input"]  # no array API but NumPy's is claimed
    assert len(status["passed"]) > 50
