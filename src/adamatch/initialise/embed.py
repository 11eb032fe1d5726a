"""Features of all images under the starting weights: for neighbours, the first classifier, and domain similarity."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate

from adamatch import networks
from adamatch.augment.views import normalise
from adamatch.images.store import Pixels
from adamatch.images.tasks import Labelled, Unlabelled
from adamatch.kernels import runtime
from adamatch.networks.efficientnet_lite import EfficientNetLite
from adamatch.networks.frozen import Whole
from adamatch.networks.norm import estimate_statistics, has_batch_norm
from adamatch.networks.pretrained import imagenet
from adamatch.networks.weights import load_weights
from adamatch.train.speed import Machine

MOST, PIXELS = 4096, 2**25  # images of each pool that are looked at; of small ones as many as have so many pixels
BATCH, BATCH_ON_CPU = 64, 8  # of them at a time: with more, a CPU spends half of its time on memory
BATCHES = 20  # of which batch norm gets its statistics

LARGER = 1.15  # times the side of the images
Views = Sequence[Callable[[Tensor], Tensor]]
AS_IT_IS: Views = (lambda x: x,)
Advance = Callable[[int], None]


def unseen(_: int) -> None:
    """Nobody looks at the progress."""


def _larger(x: Tensor) -> Tensor:
    return interpolate(x, scale_factor=LARGER, mode="bicubic", antialias=True)


LARGER_AND_MIRRORED: Views = (_larger, lambda x: _larger(x).flip(3))


def embed(
    net: nn.Module,
    pools: Sequence[Labelled],
    unlabelled: Unlabelled | None,
    machine: Machine,
    *,
    keep_statistics: bool,
    advance: Advance = unseen,
) -> tuple[list[Tensor], list[Tensor]]:
    """Features [n, d] of each labelled pool and of the unlabelled images, twice.

    First under the starting statistics of batch norm, then under those that training will have: estimated from these
    images, unless the recipe keeps the first.
    """
    parts = [*(pool.parts for pool in pools), *([unlabelled.parts] if unlabelled else [])]
    net.to(machine.device).eval()
    with runtime.off(net):
        now = before = [features(net, each, machine, advance=advance) for each in parts]
        if not keep_statistics and has_batch_norm(net):
            estimate_statistics(net, batches(pools, unlabelled, machine))
            net.eval()
            now = [features(net, each, machine, advance=advance) for each in parts]
    net.train()
    return before, now


def by_networks(
    names: Sequence[str], pools: Sequence[Sequence[Pixels]], machine: Machine, advance: Advance = unseen
) -> list[Tensor]:
    """Features [n, d] of each pool in several networks with ImageNet's weights, side by side.

    Of each image and its mirror image the mean, somewhat larger than the network was trained on: networks see more then
    (FixRes: Touvron et al., NeurIPS 2019).
    """
    found: list[list[Tensor]] = [[] for _ in pools]
    for name in names:
        net = networks.build(name, 1)
        load_weights(net, imagenet(name))
        net = (Whole(net) if isinstance(net, EfficientNetLite) else net).to(machine.device).eval()
        with runtime.off(net):
            for pool, mine in zip(pools, found, strict=True):
                mine.append(features(net, pool, machine, views=LARGER_AND_MIRRORED, advance=advance))
    return [torch.cat(each, 1) for each in found]


@torch.no_grad()
def features(
    net: nn.Module,
    parts: Sequence[Pixels],
    machine: Machine,
    most: int | None = None,
    *,
    views: Views = AS_IT_IS,
    advance: Advance = unseen,
) -> Tensor:
    """[n, d], of images as they are, or of some of them where there are many: the mean over `views`.

    The last batch is as large as the others, with images a second time: a GPU plans its convolutions for each new
    shape, which takes longer than these passes. `advance` is called with the number of images that are done.
    """
    found, batch = [], BATCH if machine.device.type == "cuda" else BATCH_ON_CPU
    for part, rows in zip(parts, rows_of(parts, most), strict=True):
        for start in range(0, len(rows), batch):
            some = rows[start : start + batch]
            x = _images(part, np.resize(some, batch), machine)
            seen = [net.features(view(x))[: len(some)].float() for view in views]  # type: ignore[operator]
            found.append(torch.stack(seen).mean(0))
            advance(len(some))
    return torch.cat(found)


def labels(pool: Labelled, classes: int, machine: Machine) -> Tensor:
    """[n, k], of the images whose features are looked at."""
    of_parts = np.split(np.asarray(pool.labels), np.cumsum([len(part) for part in pool.parts])[:-1])
    some = np.concatenate([each[rows] for each, rows in zip(of_parts, rows_of(pool.parts), strict=True)])
    y = torch.as_tensor(some)
    return (y if y.ndim == 2 else nn.functional.one_hot(y.long(), classes)).float().to(machine.device)


def batches(pools: Sequence[Labelled], unlabelled: Unlabelled | None, machine: Machine) -> Iterator[Tensor]:
    """Batches as in training: three unlabelled images for each image of a labelled pool."""
    draws = np.random.default_rng(0)
    counts = [*((pool.parts, BATCH) for pool in pools), *([(unlabelled.parts, 3 * BATCH)] if unlabelled else [])]
    shares = [(part, -(-count * len(part) // sum(map(len, parts)))) for parts, count in counts for part in parts]
    for _ in range(BATCHES):
        rows = [np.sort(draws.integers(len(part), size=share)) for part, share in shares]
        yield torch.cat([_images(part, some, machine) for (part, _), some in zip(shares, rows, strict=True)])


def rows_of(parts: Sequence[Pixels], most: int | None = None) -> list[NDArray[np.int64]]:
    """Of each part every row, or every second, third, ... where there are more than `most` in all."""
    most = most or max(MOST, PIXELS // (parts[0].shape[-3] * parts[0].shape[-2]))
    every = -(-sum(map(len, parts)) // most)
    return [np.arange(0, len(part), every) for part in parts]


def _images(part: Pixels, rows: NDArray[np.int64], machine: Machine) -> Tensor:
    """As a network gets them."""
    images = torch.from_numpy(np.array(part[rows])).to(machine.device)
    images = images[:, 0] if images.ndim == 5 else images  # the first view is the image as it is
    return normalise(images.permute(0, 3, 1, 2))
