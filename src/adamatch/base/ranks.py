"""Several processes (ranks) that do one run together: which rows of a batch are whose, and sums over the ranks.

Rank r of n has the rows r, r + n, r + 2n, ... of the batch that one process would have. In a single process every
function here returns its argument. `together` says which processes there are.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
Rows = TypeVar("Rows", bound=Tensor | np.ndarray[Any, Any])
Some = TypeVar("Some", Tensor, Tensor | None)
PATIENCE = timedelta(hours=2)  # of a rank that waits for a slower one; dead ones are noticed in seconds elsewhere

_count, _rank = 1, 0
_host: Any = None  # a gloo group, for tensors in the host's memory


class Silence(Exception):  # noqa: N818
    """Another rank did not answer (timeout)."""


@contextmanager
def together() -> Iterator[None]:
    """Within it, all processes of torch.distributed's group work as one."""
    global _count, _rank, _host
    if not dist.is_initialized() or dist.get_world_size() == 1 or _count > 1:
        yield
        return
    with _answered():
        _host = dist.new_group(backend="gloo", timeout=PATIENCE)
    _count, _rank = dist.get_world_size(), dist.get_rank()
    try:
        yield
        dist.destroy_process_group(_host)
    finally:
        _count, _rank, _host = 1, 0, None


def count() -> int:
    return _count


def rank() -> int:
    return _rank


def on_this_machine() -> int:
    """How many ranks share this machine's memory."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", _count)) if _count > 1 else 1


def share(rows: Rows) -> Rows:
    """This rank's rows of all."""
    return rows if _count == 1 else rows[_rank::_count]  # type: ignore[return-value]  # of the same kind


def mean(x: Tensor) -> Tensor:
    """The mean of x over the ranks; with a gradient."""
    return x if _count == 1 else total(x) / _count


def total(x: Tensor) -> Tensor:
    """The sum of x over the ranks; with a gradient."""
    return x if _count == 1 else _total(x)


def every(x: Tensor) -> Tensor:
    """x of every rank: [ranks, *x.shape]; with a gradient."""
    return x[None] if _count == 1 else _every(x, _count)


def gathered(rows: Tensor) -> Tensor:
    """The rows of all ranks, as many from each, in the order of one process."""
    return rows if _count == 1 else _every(rows, _count).transpose(0, 1).flatten(0, 1)


def averaged(tensors: Sequence[Some]) -> list[Some]:
    """Means over the ranks, in one message; None (no gradient) stays None."""
    present = [tensor for tensor in tensors if tensor is not None]
    if _count == 1 or not present:
        return list(tensors)
    flat = mean(torch.cat([tensor.reshape(-1) for tensor in present]))
    means = iter(torch.split(flat, [tensor.numel() for tensor in present]))
    return [None if tensor is None else next(means).view(tensor.shape).to(tensor.dtype) for tensor in tensors]


def everyone(value: T) -> list[T]:
    """Each rank's value, in order."""
    values: list[Any] = [value]
    if _count > 1:
        values = [None] * _count
        with _answered():
            dist.all_gather_object(values, value, group=_host)
    return values


def from_first(function: Callable[[], T]) -> T:
    """The function's result on rank 0, which alone calls it: files, clocks and decisions are rank 0's."""
    if _count == 1:
        return function()
    value: list[Any] = [function() if _rank == 0 else None]
    with _answered():
        dist.broadcast_object_list(value, src=0, group=_host, device=torch.device("cpu"))
    return value[0]  # type: ignore[no-any-return]


def wait() -> None:
    """Until all ranks are here."""
    everyone(None)


@contextmanager
def _answered() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise Silence(str(error).strip().splitlines()[0]) from error


def _group(x: Tensor) -> Any:
    return _host if x.is_cpu else None


# Opaque to torch.compile, recorded by CUDA graphs. No rank appears outside of them: all ranks compile the same graph,
# and so exchange messages in the same order.


@torch.library.custom_op("adamatch::total", mutates_args=())
def _total(x: Tensor) -> Tensor:
    x = x.clone(memory_format=torch.contiguous_format)
    with _answered():
        dist.all_reduce(x, group=_group(x))
    return x


@torch.library.custom_op("adamatch::every", mutates_args=())
def _every(x: Tensor, count: int) -> Tensor:
    found = x.new_empty((count, *x.shape))  # `count` is an argument, so that a compiled graph is cached by it
    with _answered():
        dist.all_gather(list(found), x.contiguous(), group=_group(x))
    return found


@torch.library.custom_op("adamatch::own_of_total", mutates_args=())
def _own_of_total(x: Tensor) -> Tensor:
    return _total(x)[_rank].clone()  # type: ignore[no-any-return]


@_total.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_every.register_fake
def _(x: Tensor, count: int) -> Tensor:
    return x.new_empty((count, *x.shape))


@_own_of_total.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[1:])


# The loss is that of all ranks: a value's gradient is the sum over the ranks' losses.
_total.register_autograd(lambda ctx, gradient: _total(gradient))
_every.register_autograd(lambda ctx, gradient: (_own_of_total(gradient), None))
