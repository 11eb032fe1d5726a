"""The head's first weights: a linear classifier of what starting weights make of the images."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from train import tiny

from adamatch import networks
from adamatch.config.recipe import Recipe
from adamatch.images.tasks import Labelled, Unlabelled
from adamatch.initialise import embed, probe, propagate, stages
from adamatch.kernels import depthwise_ops, norm_ops
from adamatch.networks.norm import estimate_statistics
from adamatch.networks.weights import load_weights


def recipe(kept: bool) -> Recipe:
    return replace(tiny.RECIPE, batch_norm="kept" if kept else "global")


def test_the_classifier_is_that_of_an_independent_library() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    x = rng.normal(size=(200, 5)) * [1, 2, 3, 4, 5] + y[:, None] * [1.0, 0, 2, 0, 0] + 7
    weight, bias = probe.classifier(torch.from_numpy(x).float(), torch.eye(3)[y])
    z = (x - x.mean(0)) / x.std(0)
    theirs = LogisticRegression(C=1 / (0.05 * len(x)), max_iter=1000, tol=1e-8).fit(z, y)
    ours = (torch.from_numpy(x).float() @ weight.T + bias).softmax(1).numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(z), atol=2e-3)


def test_a_feature_that_never_varies_on_labelled_images_does_not_count_for_much() -> None:
    x = torch.cat([torch.tensor([[0.0], [1.0]] * 20), torch.zeros(40, 1)], 1)
    weight, _ = probe.classifier(x, torch.eye(2)[[0, 1] * 20])
    assert weight[:, 1].abs().max() <= 1e-6
    assert torch.isfinite(weight).all()


@pytest.mark.parametrize("most", [embed.MOST, 10])
def test_images_or_their_maps_give_the_same_head(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    (pool,) = tiny.problem().labelled
    looked_at = pool.parts[0][:: -(-30 // most)]
    monkeypatch.setattr(embed, "MOST", most)
    monkeypatch.setattr(embed, "PIXELS", 0)
    views = np.stack([pool.parts[0], 0 * pool.parts[0]], 1)  # of which the second is never looked at
    halves = Labelled((pool.parts[0][:15], pool.parts[0][15:]), pool.labels)
    soft = replace(pool, labels=np.eye(3, dtype=np.float32)[pool.labels])
    alone = Labelled((looked_at,), pool.labels[:: -(-30 // most)])
    expected = head_of(alone, kept=True)
    for each in (pool, halves, soft, replace(pool, parts=(views,))):
        torch.testing.assert_close(head_of(each, kept=True), expected, rtol=1e-3, atol=1e-4)


def head_of(
    pool: Labelled, weights: Path | None = None, unlabelled: Unlabelled | None = None, *, kept: bool = False
) -> Tensor:
    torch.manual_seed(0)
    net = networks.build("wrn-tiny", 3)
    if weights:
        load_weights(net, weights)
    stages.first_head(net, [pool], unlabelled, recipe(kept), tiny.CPU)
    assert net.training
    found: Tensor = net.state_dict()["head.weight"]
    return found


@pytest.mark.parametrize("kept", [True, False])
def test_features_are_normalised_as_in_the_training_that_follows(kept: bool) -> None:
    """The head is fitted under batch norm's statistics of these very images, unless the network keeps its own."""
    problem = tiny.problem()
    (pool,) = problem.labelled
    torch.manual_seed(0)
    net = networks.build("wrn-tiny", 3)
    twin = copy.deepcopy(net)
    stages.first_head(net, [pool], None, recipe(kept), tiny.CPU)
    moved = {
        name
        for name, value in net.state_dict().items()
        if "running" in name and not value.equal(twin.state_dict()[name])
    }
    assert bool(moved) != kept
    if not kept:
        estimate_statistics(twin, embed.batches([pool], None, tiny.CPU))
    x = embed.features(twin.eval(), pool.parts, tiny.CPU)
    weight, _ = probe.classifier(x, embed.labels(pool, 3, tiny.CPU))
    torch.testing.assert_close(net.state_dict()["head.weight"], weight)


@pytest.mark.parametrize(("classes", "method"), [(3, "adamatch"), (5, "adamatch"), (5, "supervised")])
def test_a_run_begins_with_such_a_head_only_where_its_own_is_new(classes: int, method: str, tmp_path: Path) -> None:
    problem = tiny.problem()
    (pool,) = problem.labelled
    weights = tmp_path / "weights.safetensors"
    save_file(networks.build("wrn-tiny", classes).state_dict(), weights)
    run = tiny.a_run(method=method, weights=str(weights), linear_probe_init=True, lr=0.0)
    found = tiny.solve(run, tmp_path / "run").net.state_dict()["head.weight"]
    seen = problem.unlabelled if method == "adamatch" else None  # source only never looks at target images
    expected = load_file(weights)["head.weight"] if classes == 3 else head_of(pool, weights, seen)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    if method == "supervised":
        assert not torch.allclose(found, head_of(pool, weights, problem.unlabelled), rtol=1e-2)


def test_more_small_images_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    (pool,) = tiny.problem().labelled
    every, pixels = head_of(pool, kept=True), 30 * pool.parts[0].shape[1] ** 2
    monkeypatch.setattr(embed, "MOST", 10)
    monkeypatch.setattr(embed, "PIXELS", pixels)
    assert torch.equal(head_of(pool, kept=True), every)
    monkeypatch.setattr(embed, "PIXELS", pixels - 1)
    assert not torch.allclose(head_of(pool, kept=True), every)


@pytest.mark.parametrize("most", [embed.MOST, 10])
def test_the_surest_labels_of_neighbours_are_told(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Each beside its own image, whichever part it is in; the mean weight is 1."""
    (pool,) = tiny.problem().labelled
    images, net = pool.parts[0], networks.build("wrn-tiny", 3)
    monkeypatch.setattr(embed, "MOST", most)
    monkeypatch.setattr(embed, "PIXELS", 0)
    every = -(-30 // most)
    looked_at = np.concatenate([np.arange(0, 12, every), np.arange(12, 30, every)])
    said: list[Tensor] = []

    def guess(pools: object, x_tu: Tensor) -> Tensor:
        said.append(torch.rand(len(x_tu), 3, generator=torch.Generator().manual_seed(1)).softmax(1))
        return said[-1]

    monkeypatch.setattr(propagate, "guess", guess)
    sure = stages.first_head(net, [pool], Unlabelled((images[:12], images[12:])), recipe(True), tiny.CPU)
    assert sure is not None
    expected = np.zeros((30, 3))
    expected[looked_at] = propagate.surest(said[0], 0.5)
    np.testing.assert_allclose(sure, expected * 30 / expected.sum(), rtol=1e-5)
    assert stages.first_head(net, [pool], None, tiny.RECIPE, tiny.CPU) is None


@pytest.mark.parametrize("kept", [False, True])
def test_no_kernel_is_compiled_for_it(monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    """Each would take longer than the few passes that it is for."""

    def refuse(*_: object) -> bool:
        raise AssertionError("a kernel would run")

    net, (pool,) = networks.build("efficientnet-lite0", 3), tiny.problem().labelled
    monkeypatch.setattr(embed, "BATCHES", 2)
    monkeypatch.setattr(norm_ops, "norm_runs_on", refuse)
    monkeypatch.setattr(depthwise_ops, "runs_on", refuse)
    stages.first_head(net, [pool], Unlabelled(pool.parts), recipe(kept), tiny.CPU)
    with pytest.raises(AssertionError, match="a kernel would run"):  # afterwards they are used again
        net(torch.zeros(2, 3, 32, 32))


@pytest.mark.parametrize("alone", [False, True])
def test_features_of_a_network_that_learned_alone_are_uncorrelated(
    monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    problem = tiny.problem()
    seen: list[Tensor] = []

    def guess(pools: list[tuple[Tensor, Tensor]], x_tu: Tensor) -> Tensor:
        seen.extend([pools[0][0], x_tu])
        return torch.full((len(x_tu), 3), 1 / 3)

    monkeypatch.setattr(propagate, "guess", guess)
    torch.manual_seed(0)
    stages.first_head(
        networks.build("wrn-tiny", 3), problem.labelled, problem.unlabelled, tiny.RECIPE, tiny.CPU, pretrained=alone
    )
    covariance = torch.cov(seen[1].T).abs()
    apart = float((covariance - covariance.diag().diag()).max() / covariance.max())
    assert apart < 1e-4 if alone else apart > 0.1
    assert seen[0].shape[1] == seen[1].shape[1]


def test_neighbours_are_found_by_the_networks_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With these as the only features, and each image's most likely label for the classifier."""
    problem, asked = tiny.problem(), []

    def by_networks(names: Sequence[str], pools: Sequence[Any], machine: Any, advance: Any) -> list[Tensor]:
        asked.append(tuple(names))
        return [torch.eye(3)[torch.arange(sum(map(len, pool))) % 3] for pool in pools]

    monkeypatch.setattr(embed, "by_networks", by_networks)
    how = replace(recipe(True), neighbour_networks="a,b", probe_neighbours=True, anchor_part=1.0)
    sure = stages.first_head(networks.build("wrn-tiny", 3), problem.labelled, problem.unlabelled, how, tiny.CPU)
    assert asked == [("a", "b")]
    assert sure is not None
    assert (sure.argmax(1).reshape(-1, 3) == sure.argmax(1)[:3]).all()  # images with the same features have one label
