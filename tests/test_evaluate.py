"""Accuracy, per class and in all, against counting by hand."""

import math

import numpy as np
import pytest
import torch
from colours import CLASSES, arrays
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score
from torch import nn

from adamatch.base import ranks
from adamatch.base.errors import InputError
from adamatch.evaluate import Evaluation, predict, predict_together, score
from adamatch.images.store import Store
from adamatch.train import speed

CPU = speed.choose("cpu")


def test_score_counts_as_scikit_learn_does() -> None:
    rng = np.random.default_rng(0)
    labels, guesses = rng.integers(0, 3, 50), rng.integers(0, 3, 50)
    found = score(np.eye(3, dtype=np.float32)[guesses], Store(np.zeros((50, 1, 1, 3), np.uint8), labels, CLASSES))
    assert found.accuracy == pytest.approx(100 * np.mean(labels == guesses))
    assert np.array_equal(found.confusion, confusion_matrix(labels, guesses))
    for number, (name, count, accuracy) in enumerate(found.per_class()):
        mine = labels == number
        assert (name, count) == (CLASSES[number], mine.sum())
        assert accuracy == pytest.approx(100 * np.mean(guesses[mine] == number))


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize("present", [(0, 1, 2, 3), (0, 2), (3,)])  # classes that images have; all but 1 are predicted
def test_means_over_classes_are_those_of_scikit_learn(present: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(present))
    labels, guesses = rng.choice(present, 60), rng.choice([0, 2, 2, 3], 60)
    store = Store(np.zeros((60, 1, 1, 3), np.uint8), labels, ("a", "b", "c", "d", "e"))  # of "e" there is nothing
    found = score(np.eye(5, dtype=np.float32)[guesses], store)
    assert found.balanced_accuracy == pytest.approx(100 * balanced_accuracy_score(labels, guesses))
    assert found.macro_f1 == pytest.approx(100 * f1_score(labels, guesses, average="macro"))


def test_mistakes_are_named_with_the_most_confident_first() -> None:
    probabilities = np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8], [0.3, 0.7]], np.float32)
    store = Store(np.zeros((4, 1, 1, 3), np.uint8), np.array([1, 1, 1, 0]), ("a", "b"), {"files": list("wxyz")})
    found = score(probabilities, store)
    assert [(found.paths[row], found.confidence[row].item()) for row in found.mistakes()] == [
        ("x", pytest.approx(0.9)),
        ("z", pytest.approx(0.7)),
        ("w", pytest.approx(0.6)),
    ]
    assert score(probabilities, Store(store.images, store.labels, store.classes)).paths == ("0", "1", "2", "3")


def test_a_class_without_images_has_no_accuracy() -> None:
    store = Store(np.zeros((2, 1, 1, 3), np.uint8), np.array([0, 0]), CLASSES)
    found = score(np.eye(3, dtype=np.float32)[[0, 1]], store)
    assert found.accuracy == 50
    assert [math.isnan(accuracy) for _, _, accuracy in found.per_class()] == [False, True, True]


def test_without_labels_there_is_nothing_to_evaluate() -> None:
    with pytest.raises(InputError, match="no labels"):
        score(np.zeros((2, 3), np.float32), Store(np.zeros((2, 1, 1, 3), np.uint8), None, CLASSES))


class Brightest(nn.Module):
    """Takes the strongest channel for the class; counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return 10 * x.mean((2, 3)).flip(1)


def test_predict_normalises_and_orders_channels() -> None:
    images, labels = arrays(7)
    found = predict(Brightest(), images, CPU)
    assert np.array_equal(found.argmax(1), labels)
    z = 10 * ((images.astype(np.float64) - 127.5) / 128).mean((1, 2))[:, ::-1]
    expected = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    assert found == pytest.approx(expected, abs=1e-5)


def test_the_network_sees_exactly_what_it_was_trained_on() -> None:
    seen: list[torch.Tensor] = []

    class Watching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x)
            return x.mean((2, 3))

    images = arrays(3)[0]
    predict(Watching(), images, CPU)
    expected = (images.transpose(0, 3, 1, 2).astype(np.float64) - 127.5) / 128
    assert np.array_equal(seen[0].numpy(), expected)  # float32 holds all of these


def test_several_ranks_predict_what_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven images for three ranks: shares are filled up to three rows, and come back in the order of one process."""
    images = np.random.default_rng(0).integers(0, 256, (7, 8, 8, 3), dtype=np.uint8)
    whole, shares = predict(Brightest(), images, CPU), list[torch.Tensor]()
    monkeypatch.setattr(ranks, "_count", 3)

    def gather(mine: torch.Tensor) -> torch.Tensor:
        if len(shares) < 3:
            shares.append(mine)
            return mine
        return torch.stack(shares, 1).flatten(0, 1)

    monkeypatch.setattr(ranks, "gathered", gather)
    for rank in range(3):
        monkeypatch.setattr(ranks, "_rank", rank)
        predict_together(Brightest(), images, CPU)
    assert [share.shape for share in shares] == [(3, 3)] * 3
    found = predict_together(Brightest(), images, CPU)
    assert found.shape == (7, 3)
    assert found == pytest.approx(whole, abs=1e-6)


def test_evaluation_of_several_sets_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = arrays(9)
    tests = {"right": Store(images, labels, CLASSES), "shifted": Store(images, (labels + 1) % 3, CLASSES)}
    monkeypatch.setattr("adamatch.evaluate.BATCH", 4)
    for resident in (2**31, 1):  # kept on the device, or read anew
        monkeypatch.setattr("adamatch.evaluate.RESIDENT", resident)
        net = Brightest()
        assert Evaluation(tests, CPU)(net) == {"right": 100.0, "shifted": 0.0}
        assert net.calls == 6
