"""Alone, nothing happens; on three ranks, shares and sums are those of one process, and so are gradients."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from train import several

from adamatch.base import ranks
from adamatch.base.errors import InputError
from adamatch.train import distributed


def test_alone_everything_is_given_back_as_it_is() -> None:
    x, rows = torch.rand(4, 3), np.arange(4)
    assert (ranks.count(), ranks.rank(), ranks.on_this_machine()) == (1, 0, 1)
    for function in (ranks.share, ranks.mean, ranks.total, ranks.gathered):
        assert function(x) is x
    assert ranks.share(rows) is rows
    given = [x, None]
    assert all(mine is theirs for mine, theirs in zip(ranks.averaged(given), given, strict=True))
    assert ranks.everyone("a") == ["a"]
    assert ranks.from_first(lambda: rows) is rows
    with distributed.joined(several.CPU), ranks.together():
        assert ranks.count() == 1


def test_alone_there_is_nothing_in_the_graph() -> None:
    seen: list[str] = []

    def look(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op.startswith("call"))
        return graph.forward

    torch.compile(lambda x: ranks.mean(x) + ranks.gathered(ranks.share(x)), backend=look)(torch.ones(2))
    assert len(seen) == 1


def exchange() -> None:
    with distributed.joined(several.CPU):
        rank, count = ranks.rank(), ranks.count()
        assert count == 3
        whole = torch.arange(36.0, dtype=torch.float64).reshape(12, 3)
        mine = ranks.share(whole)
        assert torch.equal(mine, whole[[rank, rank + 3, rank + 6, rank + 9]])
        assert torch.equal(ranks.gathered(mine), whole)
        assert torch.equal(ranks.gathered(mine.long()), whole.long())
        assert np.array_equal(ranks.share(whole.numpy()), mine.numpy())
        assert torch.equal(ranks.mean(mine.mean(0)), whole.mean(0))
        assert torch.equal(ranks.total(mine.sum(0).t()), whole.sum(0))
        assert int(ranks.total(torch.tensor(rank))) == 3
        assert ranks.every(torch.tensor(rank)).tolist() == [0, 1, 2]
        first, none, last = ranks.averaged([mine.t(), None, torch.tensor(float(rank))])
        assert none is None
        assert first is not None
        assert torch.equal(first, whole.reshape(4, 3, 3).mean(1).t())
        assert last == 1
        assert ranks.everyone({"rank": rank}) == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
        assert ranks.from_first(lambda: f"of {rank}") == "of 0"
        with distributed.joined(several.CPU):  # inside of it already
            assert ranks.count() == 3
        gradients(rank, whole)
        compiled(mine)
    assert ranks.count() == 1
    with distributed.joined(several.CPU):  # and once more
        assert ranks.everyone(ranks.rank()) == [0, 1, 2]


def statistic(of: Tensor, weights: Tensor) -> Tensor:
    """Something that depends on every row of every rank, differently on each rank."""
    mean, each = ranks.mean(of.square().sum()), ranks.every(of.sum())
    return (weights * of).sum() * mean + (each.square() * torch.arange(1.0, 4.0, dtype=of.dtype)).sum() * weights.sum()


def gradients(rank: int, whole: Tensor) -> None:
    """The gradient of the sum of all ranks' values, as autograd has it in one process."""
    weights = torch.linspace(-1, 2, 12, dtype=torch.float64)[:, None]
    rows = ranks.share(whole / 36).requires_grad_()
    (mine,) = torch.autograd.grad(statistic(rows, ranks.share(weights)), rows)
    leaf = (whole / 36).requires_grad_()
    mean = leaf.square().sum() / 3
    each = torch.stack([leaf[r::3].sum() for r in range(3)]).square() * torch.arange(1.0, 4.0, dtype=torch.float64)
    values = [(weights[r::3] * leaf[r::3]).sum() * mean + each.sum() * weights[r::3].sum() for r in range(3)]
    (theirs,) = torch.autograd.grad(torch.stack(values).sum(), leaf)
    assert torch.allclose(mine, theirs[rank::3], rtol=1e-12, atol=1e-12)


def compiled(mine: Tensor) -> None:
    """The compiler takes the exchanges for opaque operations, with their gradients."""
    for rows in (mine.clone(), mine[:2].clone()):
        found = []
        for function in (statistic, torch.compile(statistic, backend="aot_eager", fullgraph=True)):
            leaf = rows.clone().requires_grad_()
            value = function(leaf, leaf.detach())
            found.append((value.detach(), *torch.autograd.grad(value, leaf)))
        for eager, fast in zip(*found, strict=True):
            assert torch.allclose(eager, fast, rtol=1e-12)


def test_three_ranks() -> None:
    assert several.on_ranks(3, exchange) == [0, 0, 0]


@pytest.mark.parametrize(
    ("batch", "count", "near"), [(32, 3, "30 or batch=33"), (2, 4, "4"), (65, 2, "64 or batch=66")]
)
def test_a_batch_has_to_divide(batch: int, count: int, near: str) -> None:
    with pytest.raises(InputError, match=f"use batch={near}$"):
        distributed.check_batch(batch, count)
    distributed.check_batch(batch * count, count)
