"""Runs with frozen blocks: what is computed once is what the network would compute, and the saved model is whole."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from train import tiny

from adamatch import networks
from adamatch.augment.views import Picked, Views, normalise
from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.images.tasks import Problem, Unlabelled
from adamatch.initialise import feature_cache
from adamatch.initialise.feature_cache import FeatureCache
from adamatch.model import Model
from adamatch.networks.efficientnet_lite import EfficientNetLite
from adamatch.networks.frozen import Upper
from adamatch.networks.norm import BatchNorm
from adamatch.train.execution import Execution
from adamatch.verdict import eval_outputs

FROZEN = {"network": "efficientnet-lite0", "frozen": 11, "cached_views": 2, "strong": "randaugment", "lr": 0.01}


def a_run(**changes: Any) -> Run:
    return tiny.a_run(**FROZEN | changes)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of starting weights."""
    path = tmp_path_factory.mktemp("weights") / "lite.safetensors"
    save_file(network().state_dict(), path)
    return str(path)


def cached(run: Run, net: EfficientNetLite, *, unlabelled: bool = True) -> Problem:
    filled = FeatureCache(Upper(net, run.recipe.frozen), run, Execution(tiny.CPU, quiet=True))
    return filled(tiny.problem(), unlabelled=unlabelled)


def network() -> EfficientNetLite:
    """Its statistics are those of some images: else their maps would all but vanish from scale to scale."""
    torch.manual_seed(0)
    net = networks.build("efficientnet-lite0", 3)
    assert isinstance(net, EfficientNetLite)
    for module in net.modules():
        if isinstance(module, BatchNorm):
            module.momentum = 1.0
    with torch.no_grad():
        net(normalise(torch.from_numpy(tiny.problem().labelled[0].parts[0]).permute(0, 3, 1, 2)))
    return net.eval()


@torch.no_grad()
def test_the_cache_holds_the_views_after_the_frozen_blocks() -> None:
    net, run, raw = network(), a_run(), tiny.problem()
    found = cached(run, net)
    (pool,), (maps,) = found.labelled, found.labelled[0].parts
    assert maps.shape == (30, 4, 1, 1, 112)
    assert maps.dtype == np.float16
    assert np.array_equal(pool.labels, raw.labelled[0].labels)
    assert found.unlabelled.parts[0].shape == (27, 4, 1, 1, 112)
    assert found.tests["target"].images.shape == (12, 1, 1, 112)

    def through(x: torch.Tensor) -> torch.Tensor:
        y = net.bn1(net.conv_stem(x + 0.5 / 128))
        for stage in net.blocks[:5]:
            for block in stage:  # type: ignore[attr-defined]
                y = block(y, None)
        last: torch.Tensor = y.permute(0, 2, 3, 1)
        return last

    images = torch.from_numpy(raw.labelled[0].parts[0]).permute(0, 3, 1, 2)
    views, generator = Views(8, strong="randaugment", mirror=False), torch.Generator().manual_seed(run.seed * 10)
    for rows in torch.split(torch.arange(30), feature_cache.BATCH):
        x = images[rows]
        (_, first), (weak, second) = (views(x, torch.rand(len(x), views.draws, generator=generator)) for _ in range(2))
        for place, view in enumerate((normalise(x), weak, first, second)):
            torch.testing.assert_close(torch.from_numpy(maps[rows, place]).float(), through(view), rtol=2e-3, atol=2e-3)
    assert np.array_equal(found.unlabelled.plain[0], found.unlabelled.parts[0][:, 0])


def test_draws_follow_from_the_seed_and_the_pool_not_from_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    of_source = tiny.problem().labelled[0]
    same = replace(tiny.problem(), unlabelled=Unlabelled(of_source.parts))

    def made(seed: int) -> tuple[Any, Any]:
        found = FeatureCache(Upper(network(), 11), a_run(seed=seed), Execution(tiny.CPU, quiet=True))(same)
        return found.labelled[0].parts[0], found.unlabelled.parts[0]

    (labelled, unlabelled), (again, _), (other, _) = made(0), made(0), made(1)
    assert np.array_equal(labelled, again)
    for different in (unlabelled, other):
        assert np.array_equal(labelled[:, 0], different[:, 0])
        assert not np.array_equal(labelled[:, 2], different[:, 2])
    tests = cached(a_run(), network()).tests["target"].images
    monkeypatch.setattr(feature_cache, "BATCH", 5)
    np.testing.assert_allclose(cached(a_run(), network()).tests["target"].images, tests, rtol=2e-3, atol=2e-3)


def test_what_is_not_trained_on_is_there_once() -> None:
    assert cached(a_run(), network(), unlabelled=False).unlabelled.parts[0].shape[1] == 1


def test_a_twin_finds_what_was_made_of_the_same_images(monkeypatch: pytest.MonkeyPatch) -> None:
    net, execution, raw = network(), Execution(tiny.CPU, quiet=True), tiny.problem()

    def made(run: Run, problem: Problem = raw, *, unlabelled: bool = True) -> list[Any]:
        found = FeatureCache(Upper(net, run.recipe.frozen), run, execution)(problem, unlabelled=unlabelled)
        return [found.labelled[0].parts[0], found.unlabelled.parts[0], found.tests["target"].images]

    alone = cached(a_run(), network(), unlabelled=False)
    first = made(a_run())
    with monkeypatch.context() as patch:
        patch.setattr(FeatureCache, "_views_of", None)  # no view is made
        again, twin = made(a_run()), made(a_run(), unlabelled=False)
    for mine, its in zip(first, again, strict=True):
        assert np.shares_memory(mine, its)
    for mine, its in zip(twin, (alone.labelled[0].parts[0], alone.unlabelled.parts[0]), strict=False):
        assert np.array_equal(mine, its)
    others = {"seed": 1}, {"mirror": True}, {"strong": "cutout"}, {"cached_views": 1}
    copied = replace(raw, unlabelled=Unlabelled((raw.unlabelled.parts[0].copy(),)))
    for other in (*(made(a_run(**each)) for each in others), made(a_run(), copied)):
        assert not np.shares_memory(other[1], first[1])
    with torch.no_grad():
        net.bn1.bias.add_(1)
    assert not np.shares_memory(made(a_run())[1], first[1])


def test_more_than_fits_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        feature_cache, "free_host", lambda: 70_000
    )  # it would take 240 * 112 * 2 of them, and 30% stay free
    with pytest.raises(InputError, match=r"240 views of the images take .* frozen=0 "):
        cached(a_run(), network())


def test_a_weak_and_a_strong_view_are_picked() -> None:
    x = torch.arange(6.0).half().reshape(1, 6, 1, 1, 1).expand(2, 6, 1, 1, 3)
    weak, strong = Picked()(x, torch.tensor([[0.0, 0.0], [0.99, 0.5]]))
    assert weak.shape == (2, 3, 1, 1)
    assert weak[:, 0].flatten().tolist() == [0, 2]
    assert strong[:, 0].flatten().tolist() == [3, 4]
    assert weak.dtype == torch.float32


@pytest.mark.parametrize("changes", [{}, {"method": "noisystudent", "options": {"generations": 1}}], ids=str)
def test_killed_and_started_again(changes: dict[str, Any], started: str, tmp_path: Path) -> None:
    """Teachers label the images themselves, by the whole network."""
    run = a_run(weights=started, **changes)
    tiny.solve(run, tmp_path / "whole")
    assert tiny.in_process(tiny.doomed, run.to_json(), tmp_path / "run", "step 9") == -signal.SIGKILL
    tiny.solve(run, tmp_path / "run")
    assert tiny.same(tiny.weights(tmp_path / "run"), tiny.weights(tmp_path / "whole"))


@pytest.mark.parametrize("method", ["adamatch", "supervised"])
def test_the_saved_model_is_the_whole_network(method: str, started: str, tmp_path: Path) -> None:
    before = load_file(started)
    model = tiny.solve(a_run(method=method, weights=started), tmp_path / "run")
    assert isinstance(model.net, EfficientNetLite)
    after = tiny.weights(tmp_path / "run")
    assert after.keys() == before.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {"head.weight", "conv_head.weight", "bn2.running_mean", "blocks.5.0.conv_pw.weight"} <= moved
    assert not any(name.startswith(("conv_stem", "bn1", *(f"blocks.{scale}." for scale in range(5)))) for name in moved)
    tiny.solve(tiny.a_run(), tmp_path / "other")  # with nothing frozen, images are known by the same names
    assert eval_outputs.facts(tmp_path / "run").images == eval_outputs.facts(tmp_path / "other").images != ()
    # From the images, the opened model predicts what evaluations found from the cache.
    opened = Model.load(tmp_path / "run", device="cpu")
    test = tiny.problem().tests["target"]
    assert opened.evaluate((test.images, test.labels)).accuracy == pytest.approx(
        tiny.rows(tmp_path / "run")[-1]["target"]
    )
