"""The first weights of a head: a linear classifier of what a network with learned weights makes of the images.

A head that starts at random has the first steps spoil what the layers below it have learned (Kumar et al., ICLR 2022).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from adamatch.augment.views import normalise
from adamatch.data.store import Pixels
from adamatch.data.tasks import Labelled, Unlabelled
from adamatch.train import neighbours
from adamatch.train.speed import Machine

MOST = 4096  # images of each pool that are looked at
BATCH = 64  # of them at a time
DECAY = 0.05  # of the classifier's weights, for features of mean 0 and variance 1
ROUNDS = 100  # of L-BFGS, at most


def start_head(net: nn.Module, pools: Sequence[Labelled], unlabelled: Unlabelled | None, machine: Machine) -> None:
    """Give `net.head` its first weights. Unlabelled images, if it is to learn from them, have labels of their neighbours.

    Where frozen blocks were computed beforehand, images are their maps.
    """
    head: Any = net.head
    net.to(machine.device).eval()
    found = [looked_at(net, pool, head.out_features, machine) for pool in pools]
    if unlabelled:
        x_tu = features(net, unlabelled.parts, machine)
        found.append((x_tu, neighbours.guess(found, x_tu, classifier)))
    x, y = (torch.cat(each) for each in zip(*found, strict=True))
    weight, bias = classifier(x, y)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    net.train()


def looked_at(net: nn.Module, pool: Labelled, classes: int, machine: Machine) -> tuple[Tensor, Tensor]:
    """Features [n, d] and labels [n, k] of a pool's images, or of some of them where there are many."""
    of_parts = np.split(np.asarray(pool.labels), np.cumsum([len(part) for part in pool.parts])[:-1])
    some = [labels[rows] for labels, rows in zip(of_parts, _rows(pool.parts), strict=True)]
    labels = torch.as_tensor(np.concatenate(some)).to(machine.device)
    y = labels if labels.ndim == 2 else nn.functional.one_hot(labels.long(), classes)
    return features(net, pool.parts, machine), y.float()


@torch.no_grad()
def features(net: nn.Module, parts: Sequence[Pixels], machine: Machine) -> Tensor:
    """[n, d], of images as they are, or of some of them where there are many."""
    found = []
    for part, rows in zip(parts, _rows(parts), strict=True):
        for start in range(0, len(rows), BATCH):
            images = torch.from_numpy(np.array(part[rows[start : start + BATCH]])).to(machine.device)
            images = images[:, 0] if images.ndim == 5 else images  # the first view is the image as it is
            found.append(net.features(normalise(images.permute(0, 3, 1, 2))).float())  # type: ignore[operator]
    return torch.cat(found)


def _rows(parts: Sequence[Pixels]) -> list[NDArray[np.int64]]:
    """Of each part every row, or every second, third, ... where there are more than MOST in all."""
    every = -(-sum(map(len, parts)) // MOST)
    return [np.arange(0, len(part), every) for part in parts]


def classifier(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression of y [n, k] on x [n, d]: weight [k, d] and bias [k]."""
    mean, spread = x.mean(0), neighbours.deviation(x)
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
