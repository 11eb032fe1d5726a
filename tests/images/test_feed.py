"""Feeds: the same batches wherever the images are kept, and wherever a feed is resumed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from published import formats
from torch import Tensor

from adamatch.images import feed as feeds
from adamatch.images.feed import Feed, Place, choose_place
from adamatch.images.store import Store
from adamatch.images.tasks import Labelled, Unlabelled

CPU = torch.device("cpu")
PLACES: tuple[Place, ...] = ("device", "host", "disk")


def images(count: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


def pool(*sizes: int, labelled: bool = True) -> Labelled | Unlabelled:
    parts = tuple(images(size, number) for number, size in enumerate(sizes))
    return Labelled(parts, np.arange(sum(sizes), dtype=np.int64) % 3) if labelled else Unlabelled(parts)


def feed(of: Labelled | Unlabelled, place: Place = "device", **given: Any) -> Feed:
    return Feed(of, **{"batch": 4, "classes": 3, "seed": 7, "device": CPU, "place": place, **given})


def take(of: Feed, count: int) -> list[tuple[Tensor, Tensor | None]]:
    return [of.next() for _ in range(count)]


def equal(a: list[tuple[Tensor, Tensor | None]], b: list[tuple[Tensor, Tensor | None]]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x, u) and (y is v is None or (y is not None and v is not None and torch.equal(y, v)))
        for (x, y), (u, v) in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("sizes", [(11,), (5, 1, 9)])
@pytest.mark.parametrize("soft", [False, True])
def test_images_come_with_their_own_labels(place: Place, sizes: tuple[int, ...], soft: bool) -> None:
    of = pool(*sizes)
    assert isinstance(of, Labelled)
    expected = np.eye(3, dtype=np.float32)[of.labels]
    if soft:
        expected = np.random.default_rng(0).dirichlet([1, 1, 1], len(of)).astype(np.float32)
        of = Labelled(of.parts, expected)
    whole = torch.from_numpy(np.concatenate(of.parts)).permute(0, 3, 1, 2)
    taken = take(feed(of, place), 20)
    assert equal(taken, take(feed(of, "device"), 20))
    for x, y in taken:
        assert x.dtype == torch.uint8
        assert x.shape == (4, 3, 8, 8)
        assert x.is_contiguous(memory_format=torch.channels_last)
        assert y is not None
        assert y.shape == (4, 3)
        for image, label in zip(x, y, strict=True):
            row = int((whole == image).flatten(1).all(1).nonzero().item())
            assert label.tolist() == expected[row].tolist()


def test_a_pool_on_disk_is_mapped_and_gives_the_same(tmp_path: Path) -> None:
    pixels = images(20, 0)
    mapped = Unlabelled((Store.open(formats.store(tmp_path / "store", pixels)).images,))
    assert isinstance(mapped.parts[0], np.memmap)
    assert equal(take(feed(mapped, "disk"), 10), take(feed(Unlabelled((pixels,)), "device"), 10))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("taken", [0, 1, 5, 200])
def test_resumed_anywhere(place: Place, taken: int) -> None:
    of = pool(6, 5)
    straight = feed(of, place)
    take(straight, taken)
    assert straight.taken == taken  # the batch that a thread has gathered ahead does not count
    sought = feed(of, place)
    take(sought, 3)  # a batch is ahead: it has to be forgotten
    sought.seek(taken)
    assert equal(take(straight, 7), take(sought, 7))
    assert straight.taken == sought.taken == taken + 7
    sought.seek(taken)
    fresh = feed(of, place)
    fresh.seek(taken)
    assert equal(take(sought, 2), take(fresh, 2))


def test_seeds_differ_and_unlabelled_images_have_no_labels() -> None:
    of = pool(40, labelled=False)
    assert not equal(take(feed(of), 5), take(feed(of, seed=8), 5))
    assert all(y is None for _, y in take(feed(of), 3))


@pytest.mark.parametrize("place", ["device", "disk"])
def test_another_feed_of_the_same_images_holds_them_once(place: Place) -> None:
    of = pool(5, 9)
    first, alone = feed(of, place), take(feed(of, place), 3)
    other = first.another(batch=5, seed=2)
    assert [part.data_ptr() for part in other.parts] == [part.data_ptr() for part in first.parts]
    assert equal([first.next()], alone[:1])
    assert equal(take(other, 7), take(feed(of, place, batch=5, seed=2), 7))
    assert equal(take(first, 2), alone[1:]), "neither disturbs the other"
    assert (first.taken, other.taken) == (3, 7)


def test_a_pool_that_is_too_large_for_memory_stays_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    of = pool(10)
    monkeypatch.setattr(feeds, "free_host", lambda: 3 * 10 * 8 * 8 * 3)
    assert choose_place(of, CPU) == "device"
    monkeypatch.setattr(feeds, "free_host", lambda: 10 * 8 * 8 * 3)
    assert choose_place(of, CPU) == "disk"
    assert feed(of, "auto").place == "disk"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("place", PLACES)
def test_the_same_batches_on_a_gpu(place: Place) -> None:
    of = pool(30, 11)
    device = torch.device("cuda")
    on_gpu = [(x.cpu(), None if y is None else y.cpu()) for x, y in take(feed(of, place, device=device), 150)]
    assert equal(on_gpu, take(feed(of), 150))
