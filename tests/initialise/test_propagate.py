"""Labels of neighbours, against dense float64 references and on clusters that can be told apart."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import one_hot

from adamatch.initialise import propagate


def dense(x: Tensor) -> np.ndarray:
    """The graph, one pair of images after the other."""
    z = x.double().numpy()
    z = z - z.mean(0)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    likeness, near = z @ z.T, np.zeros((len(z), len(z)))
    for i in range(len(z)):
        others = [j for j in np.argsort(-likeness[i]) if j != i][: propagate.NEIGHBOURS]
        for j in others:
            near[i, j] += max(likeness[i, j], 1e-6)
            near[j, i] += max(likeness[i, j], 1e-6)
    sums = near.sum(1)
    found: np.ndarray = near / np.sqrt(sums[:, None] * sums)
    return found


@pytest.mark.parametrize("n", [5, 40])  # fewer than there would be neighbours, and more
def test_graph_and_spread_are_those_of_a_dense_reference(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    monkeypatch.setattr(propagate, "CHUNK", 7)
    torch.manual_seed(n)
    x, evidence = torch.randn(n, 6), torch.rand(n, 3)
    expected = dense(x)
    np.testing.assert_allclose(propagate.graph(x).to_dense().numpy(), expected, atol=1e-5)
    found = evidence.double().numpy()
    for _ in range(propagate.SPREADS):
        found = (1 - propagate.KEPT) * expected @ found + propagate.KEPT * evidence.double().numpy()
    np.testing.assert_allclose(propagate.spread(evidence, propagate.graph(x)).numpy(), found, atol=1e-4)


def test_spread_comes_near_to_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagate, "SPREADS", 500)
    torch.manual_seed(0)
    x, evidence = torch.randn(40, 6), torch.rand(40, 3)
    closed = propagate.KEPT * np.linalg.solve(np.eye(40) - (1 - propagate.KEPT) * dense(x), evidence.double().numpy())
    np.testing.assert_allclose(propagate.spread(evidence, propagate.graph(x)).numpy(), closed, atol=1e-4)


def clusters(counts: list[int], shift: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """So many points of each class around a corner of its own, all of them moved by `shift`, with their labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    x = 4 * np.eye(len(counts), 8)[labels] + rng.normal(size=(len(labels), 8)) + shift
    return torch.from_numpy(x).float(), torch.from_numpy(labels)


@settings(max_examples=10)
@given(st.floats(-30, 30), st.integers(0, 100))
def test_clusters_keep_their_names_wherever_the_target_was_moved_to(shift: float, seed: int) -> None:
    (x, y), (x_tu, y_tu) = clusters([50, 50, 50], 0, seed), clusters([60, 60, 60], shift, seed + 1)
    found = propagate.guess([(x, one_hot(y).float())], x_tu)
    torch.testing.assert_close(found.sum(1), torch.ones(180))
    assert (found.argmax(1) == y_tu).float().mean() > 0.95


def test_a_frequent_class_does_not_swallow_rare_ones() -> None:
    (x, y), (x_tu, y_tu) = clusters([300, 15, 15], 0), clusters([20, 60, 60], 3, seed=1)
    found = propagate.guess([(x, one_hot(y).float())], x_tu)
    assert (found.argmax(1) == y_tu).float().mean() > 0.9


def test_of_few_labelled_images_mean_and_variance_are_those_of_the_target() -> None:
    (x, y), (x_tu, y_tu) = clusters([2, 2, 2], 5), clusters([60, 60, 60], 5, seed=1)
    few = (x[y != 2], one_hot(y)[y != 2].float())  # whose own mean is not that of all classes
    third = (x[y == 2], one_hot(y)[y == 2].float())
    assert (propagate.guess([few, third], x_tu).argmax(1) == y_tu).float().mean() > 0.95


def test_a_class_without_any_label_is_never_guessed() -> None:
    (x, y), (x_tu, _) = clusters([60, 60], 0), clusters([30, 30, 30], 0, seed=1)
    found = propagate.guess([(x, one_hot(y, 4).float())], x_tu)
    torch.testing.assert_close(found.sum(1), torch.ones(90))
    assert not found[:, 2:].any()


@given(st.integers(0, 40), st.integers(2, 5), st.integers(0, 2**31))
def test_the_surest_half_of_each_class_is_labelled(n: int, classes: int, seed: int) -> None:
    y = torch.rand(n, classes, generator=torch.Generator().manual_seed(seed)).softmax(1)
    found = propagate.surest(y, 0.3)
    said, sure = y.argmax(1), found.any(1)
    assert torch.equal(found[sure], one_hot(said[sure], classes).to(y))
    for each in range(classes):
        confidence = y[said == each].max(1).values
        taken = sure[said == each]
        assert taken.sum() == round(0.3 * len(taken))
        if 0 < taken.sum() < len(taken):
            assert confidence[taken].min() >= confidence[~taken].max()


def test_what_many_features_have_in_common_counts_once() -> None:
    """One thing that tells nothing is in thirty features, what tells the classes is in one."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 150)
    nothing, tells = rng.normal(size=(300, 1)), 2.0 * y[:, None] - 1 + 0.2 * rng.normal(size=(300, 1))
    x = torch.from_numpy(np.concatenate([np.repeat(nothing, 30, 1), tells, np.full((300, 1), 20.0)], 1)).float()
    few, labels = x[[0, 150]], torch.eye(2)
    plain = propagate.guess([(few, labels)], x).argmax(1).numpy()
    apart, turned = (propagate.uncorrelated(each, x) for each in (few, x))
    found = propagate.guess([(apart, labels)], turned).argmax(1).numpy()
    assert (plain == y).mean() < 0.8
    assert (found == y).mean() > 0.9
