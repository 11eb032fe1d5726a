"""The first weights of a head: a linear classifier of what a network with learned weights makes of the images.

A head that starts at random has the first steps spoil what the layers below it have learned (Kumar et al., ICLR 2022).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from adamatch.augment.views import normalise
from adamatch.images.store import Pixels
from adamatch.images.tasks import Labelled, Unlabelled
from adamatch.initialise import propagate
from adamatch.kernels import runtime
from adamatch.networks.norm import estimate_statistics, has_batch_norm
from adamatch.train.speed import Machine

MOST, PIXELS = 4096, 2**25  # images of each pool that are looked at; of small ones as many as have so many pixels
BATCH, BATCH_ON_CPU = 64, 8  # of them at a time: with more, a CPU spends half of its time on memory
BATCHES = 20  # of which batch norm gets its statistics
DECAY = 0.05  # of the classifier's weights, for features of mean 0 and variance 1
ROUNDS = 100  # of L-BFGS, at most


def start_head(
    net: nn.Module,
    pools: Sequence[Labelled],
    unlabelled: Unlabelled | None,
    machine: Machine,
    *,
    kept: bool = False,
    alone: bool = False,
) -> NDArray[np.float32] | None:
    """Give `net.head` its first weights. Unlabelled images, if it is to learn from them, have labels of their neighbours.

    Returns the surest of these labels (n, k): rows of zeros for images whose label is not sure, or that were not looked at. The
    others weigh more instead, so that the mean weight is 1.

    Training replaces the statistics of batch norm, unless they are `kept`: so they are replaced first, and the head begins with
    features as they are then. Neighbours are told by these and by features from before: either can be far better. Where
    frozen blocks were computed beforehand, images are their maps. `alone` says that the network has learned from unlabelled
    images alone: it tells them by angles, and many of its features say the same.
    """
    head: Any = net.head
    parts = [*(pool.parts for pool in pools), *([unlabelled.parts] if unlabelled else [])]
    net.to(machine.device).eval()
    y = [labels(pool, head.out_features, machine) for pool in pools]
    with runtime.off(net):
        x = before = [features(net, each, machine) for each in parts]
        if not kept and has_batch_norm(net):
            estimate_statistics(net, batches(pools, unlabelled, machine))
            net.eval()
            x = [features(net, each, machine) for each in parts]
    if unlabelled:
        *both, both_tu = (torch.cat(each, 1) for each in zip(before, x, strict=True))
        if alone:
            *both, both_tu = (propagate.uncorrelated(each, both_tu) for each in (*both, both_tu))
        y.append(propagate.guess(list(zip(both, y, strict=True)), both_tu, classifier))
    weight, bias = classifier(torch.cat(x), torch.cat(y))
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    net.train()
    if unlabelled is None:
        return None
    sure = np.zeros((len(unlabelled), head.out_features), np.float32)
    starts = np.cumsum([0, *map(len, unlabelled.parts)])[:-1]
    looked_at = np.concatenate([start + rows for start, rows in zip(starts, _rows(unlabelled.parts), strict=True)])
    sure[looked_at] = propagate.surest(y[-1]).cpu().numpy()
    sure *= len(sure) / max(1, sure.sum())
    return sure


def labels(pool: Labelled, classes: int, machine: Machine) -> Tensor:
    """[n, k], of the images whose features are looked at."""
    of_parts = np.split(np.asarray(pool.labels), np.cumsum([len(part) for part in pool.parts])[:-1])
    some = torch.as_tensor(np.concatenate([each[rows] for each, rows in zip(of_parts, _rows(pool.parts), strict=True)]))
    return (some if some.ndim == 2 else nn.functional.one_hot(some.long(), classes)).float().to(machine.device)


@torch.no_grad()
def features(net: nn.Module, parts: Sequence[Pixels], machine: Machine, most: int | None = None) -> Tensor:
    """[n, d], of images as they are, or of some of them where there are many.

    The last batch is as large as the others, with images a second time: a GPU plans its convolutions anew for every shape,
    which takes longer than these passes.
    """
    found, batch = [], BATCH if machine.device.type == "cuda" else BATCH_ON_CPU
    for part, rows in zip(parts, _rows(parts, most), strict=True):
        for start in range(0, len(rows), batch):
            some = rows[start : start + batch]
            x = _images(part, np.resize(some, batch), machine)
            found.append(net.features(x)[: len(some)].float())  # type: ignore[operator]
    return torch.cat(found)


def _images(part: Pixels, rows: NDArray[np.int64], machine: Machine) -> Tensor:
    """As a network gets them."""
    images = torch.from_numpy(np.array(part[rows])).to(machine.device)
    images = images[:, 0] if images.ndim == 5 else images  # the first view is the image as it is
    return normalise(images.permute(0, 3, 1, 2))


def batches(pools: Sequence[Labelled], unlabelled: Unlabelled | None, machine: Machine) -> Iterator[Tensor]:
    """Such as training has: of unlabelled images three times as many as of each labelled pool."""
    draws = np.random.default_rng(0)
    counts = [*((pool.parts, BATCH) for pool in pools), *([(unlabelled.parts, 3 * BATCH)] if unlabelled else [])]
    shares = [(part, -(-count * len(part) // sum(map(len, parts)))) for parts, count in counts for part in parts]
    for _ in range(BATCHES):
        yield torch.cat(
            [_images(part, np.sort(draws.integers(len(part), size=share)), machine) for part, share in shares]
        )


def _rows(parts: Sequence[Pixels], most: int | None = None) -> list[NDArray[np.int64]]:
    """Of each part every row, or every second, third, ... where there are more than `most` in all."""
    most = most or max(MOST, PIXELS // (parts[0].shape[-3] * parts[0].shape[-2]))
    every = -(-sum(map(len, parts)) // most)
    return [np.arange(0, len(part), every) for part in parts]


def classifier(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression of y [n, k] on x [n, d]: weight [k, d] and bias [k]."""
    mean, spread = x.mean(0), propagate.deviation(x)
    z = (x - mean) / spread
    weight = torch.zeros(y.shape[1], x.shape[1], device=x.device, requires_grad=True)
    bias = torch.zeros(y.shape[1], device=x.device, requires_grad=True)
    search = torch.optim.LBFGS([weight, bias], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        found = cross_entropy(z @ weight.T + bias, y) + DECAY / 2 * weight.square().sum()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    search.step(loss)  # type: ignore[no-untyped-call]
    scaled = (weight / spread).detach()
    return scaled, bias.detach() - scaled @ mean
