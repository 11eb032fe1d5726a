"""How much two domains look alike."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from train import tiny

from adamatch.initialise import domain_similarity as module
from adamatch.initialise import propagate
from adamatch.initialise.domain_similarity import likeness


class Pixels(nn.Module):
    """Features are the first pixel's channels."""

    def features(self, x: Tensor) -> Tensor:
        return x[:, :, 0, 0]


def images(middle: tuple[int, int, int], count: int = 200, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).integers(-40, 41, (count, 1, 1, 3))
    return (np.array(middle) + drawn).astype(np.uint8)


@pytest.mark.parametrize(
    ("source", "target", "expected"), [((100,) * 3, (100,) * 3, 0.5), ((50, 50, 200), (200, 200, 50), 0.0)]
)
def test_one_domain_is_half_and_domains_whose_images_never_meet_are_zero(
    source: tuple[int, int, int], target: tuple[int, int, int], expected: float
) -> None:
    found = likeness(Pixels(), [images(source)], [images(target, seed=1)], tiny.CPU)
    assert found == pytest.approx(expected, abs=0.1 * expected)


def test_it_is_between_where_some_of_a_domain_look_like_the_other() -> None:
    """A quarter of the target is as the source: these find neighbours of both domains, all others their own."""
    source = images((50, 50, 200))
    target = [images((50, 50, 200), 50, seed=1), images((200, 200, 50), 150, seed=2)]
    assert 0.1 < likeness(Pixels(), [source], target, tiny.CPU) < 0.25


def classes(red: int, each: int, seed: int) -> np.ndarray:
    """Ten groups around a circle, `each` images in every one; another red is another domain."""
    turns = np.arange(10) * np.pi / 5
    middles = [(red, round(128 + 90 * np.cos(turn)), round(128 + 90 * np.sin(turn))) for turn in turns]
    drawn = np.random.default_rng(seed).integers(-9, 10, (10, each, 1, 1, 3))
    return (np.array(middles)[:, None, None, None] + drawn).reshape(-1, 1, 1, 3).astype(np.uint8)


@pytest.mark.parametrize("each", [50, 5, 2])
def test_few_images_look_no_more_alike_than_many(each: int) -> None:
    """Of a class with two images, eight of ten neighbours would be of the other domain, or of other classes."""
    assert likeness(Pixels(), [classes(112, each, 0)], [classes(144, each, 1)], tiny.CPU) < 0.05


def test_as_many_images_of_each_domain_count() -> None:
    """With ten times as many images of one domain, nearly all neighbours of the other's would be of it."""
    source, target = images((100, 100, 100), 300), images((100, 100, 100), 30, seed=1)
    assert likeness(Pixels(), [source], [target], tiny.CPU) == pytest.approx(0.5, abs=0.1)


def test_some_of_many_images_are_looked_at_from_the_first_class_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def graph(x: Tensor, nearest: int) -> Tensor:
        seen.append(x)
        return torch.eye(len(x)).to_sparse()

    monkeypatch.setattr(propagate, "graph", graph)
    rising = np.arange(200, dtype=np.uint8)[:, None, None, None].repeat(3, 3)
    monkeypatch.setattr(module, "MOST", 50)
    likeness(Pixels(), [rising], [rising[:20]], tiny.CPU)
    (x,) = seen
    assert len(x) == 40
    first = (x[:20, 0] * 128 + 127.5).round()
    assert first.min() == 0
    assert first.max() >= 190
