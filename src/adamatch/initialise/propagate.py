"""Label propagation: labels for unlabelled images from labelled ones with similar features.

In rounds: a linear classifier guesses, guesses and labels spread to neighbours (label spreading, Zhou et al., NeurIPS
2003), and the classifier learns from all of them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from adamatch.initialise.probe import classifier, deviation

NEIGHBOURS = 10  # of each image
KEPT = 0.05  # weight of an image's own prediction; the rest comes from its neighbours
SPREADS = 30  # iterations of spreading
ROUNDS = 3
FEW = 100  # images: the mean and variance of fewer say too little
CHUNK = 1024  # images whose neighbours are looked for at once


def guess(pools: Sequence[tuple[Tensor, Tensor]], x_tu: Tensor) -> Tensor:
    """Probabilities [n_tu, k] of unlabelled images' classes, by their features x [n, d] and (x, y) of labelled ones.

    The features of every pool get mean 0 and variance 1, so that what its images have in common separates nothing. All
    classes have the same weight: those of which there are many must not swallow the others. Where neighbours disagree,
    no class is likely.
    """
    x = torch.cat([standard(x, x if len(x) >= FEW else x_tu) for x in (*(x for x, _ in pools), x_tu)])
    y = torch.cat([y for _, y in pools])
    near, labels = graph(x), y / y.sum(0).clamp(min=1)
    learned = found = y
    for _ in range(ROUNDS):
        weight, bias = classifier(x[: len(learned)], learned)
        guesses = (x[len(y) :] @ weight.T + bias).softmax(1) * (y.sum(0) > 0)
        found = spread(torch.cat([labels, guesses / guesses.sum(0).clamp(min=1e-6)]), near)[len(y) :]
        learned = torch.cat([y, one_hot(found.argmax(1), y.shape[1]).to(y)])
    return found / found.sum(1, keepdim=True).clamp(min=1e-12)


def surest(y: Tensor, part: float) -> Tensor:
    """Probabilities [n, k] -> one-hot labels of the surest `part` of the images of each predicted class, else zeros."""
    best = y.max(1)
    found = torch.zeros_like(y)
    for each in range(y.shape[1]):
        mine = (best.indices == each).nonzero()[:, 0]
        order = best.values[mine].argsort(descending=True, stable=True)
        found[mine[order[: round(part * len(mine))]], each] = 1
    return found


def uncorrelated(x: Tensor, like: Tensor) -> Tensor:
    """Unit-length features along the principal axes of `like`: what several features share counts once."""
    x, like = normalize(x), normalize(like)
    centred = like - like.mean(0)
    axes: Tensor = torch.linalg.eigh(centred.T @ centred).eigenvectors
    return (x - like.mean(0)) @ axes


def standard(x: Tensor, like: Tensor) -> Tensor:
    """Features with the mean and variance of `like` taken out."""
    return (x - like.mean(0)) / deviation(like)


def graph(x: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    """How near each row of x [n, d] is to each other, 0 for most: sparse [n, n].

    Near is who is among the other's nearest by the angle. Sums of rows are evened out: no image is everybody's
    neighbour.
    """
    x, n = normalize(x - x.mean(0)), len(x)
    rows, columns, likeness = [], [], []
    for first in range(0, n, CHUNK):
        found = x[first : first + CHUNK] @ x.T
        found.diagonal(first).fill_(-1)  # none is its own neighbour
        best = found.topk(min(neighbours, n - 1), 1)
        rows.append(torch.arange(first, first + len(found), device=x.device).repeat_interleave(best.indices.shape[1]))
        columns.append(best.indices.flatten())
        likeness.append(best.values.flatten().clamp(min=1e-6))
    row, column, value = torch.cat(rows), torch.cat(columns), torch.cat(likeness)
    both = torch.stack([torch.cat([row, column]), torch.cat([column, row])])
    sums = torch.zeros(n, device=x.device).index_add_(0, both[0], value.repeat(2))
    value = value.repeat(2) * (sums[both[0]] * sums[both[1]]).rsqrt()
    # It is said that nothing is checked, since torch 2.11 warns otherwise.
    with torch.sparse.check_sparse_tensor_invariants(False):  # type: ignore[no-untyped-call]
        return torch.sparse_coo_tensor(both, value, (n, n)).coalesce()


def spread(evidence: Tensor, near: Tensor) -> Tensor:
    """Spreads class scores [n, k] over the graph: neighbours, their neighbours, and so on."""
    found = evidence
    for _ in range(SPREADS):
        found = torch.lerp(near @ found, evidence, KEPT)
    return found
