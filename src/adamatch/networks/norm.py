"""Batch normalisation with its activation, for several groups of images that share a batch but not their statistics."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor, cat, equal, nn, no_grad, rsqrt, split, stack, var_mean
from torch.nn.functional import batch_norm, hardtanh, leaky_relu
from torch.nn.modules.batchnorm import _BatchNorm

from adamatch.base import ranks
from adamatch.kernels import norm_ops
from adamatch.kernels.norm_ops import of_all_ranks, record


class BatchNorm(nn.BatchNorm2d):
    """Batch normalisation, then LeakyReLU (`slope=1.0`: none), cut off at `ceiling` (ReLU6: slope 0.0, ceiling 6.0).

    Triton kernels where they can run, plain PyTorch elsewhere.
    """

    def __init__(
        self,
        channels: int,
        *,
        eps: float = 1e-6,
        momentum: float = 0.001,
        slope: float = 0.1,
        ceiling: float | None = None,
    ) -> None:
        super().__init__(channels, eps=eps, momentum=momentum)
        self.slope, self.ceiling = slope, ceiling
        self.fused = True
        self.shared = True  # of several ranks: statistics of all their images, rather than of each rank's own

    def forward(self, x: Tensor, groups: tuple[int, ...] | None = None) -> Tensor:
        """x [N,C,H,W] -> same; `groups` (summing to N) have statistics of their own; the last one's are recorded."""
        if not self.training:
            y = batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
            return activate(y, self.slope, self.ceiling)
        groups = groups or (len(x),)
        if self._runs(groups, x):
            return self._run(groups, x)[0]
        # num_batches_tracked stays as it is: only momentum=None would use it, and each count is a kernel launch.
        mean, var = self._running()
        settings = (groups, self.momentum or 0.0, self.eps, self.slope, self._over_ranks(), self.ceiling)
        return norm_act(x, self.weight, self.bias, mean, var, *settings)

    def add(self, a: Tensor, b: Tensor, groups: tuple[int, ...] | None = None) -> tuple[Tensor, Tensor]:
        """a + b, and its normalised activation: the end of one residual block and the start of the next in one pass."""
        if self._runs(groups := groups or (len(a),), a, b):
            y, total = self._run(groups, a, branch=b)
            return total, y
        total = a + b
        return total, self(total, groups)

    def _runs(self, groups: tuple[int, ...], x: Tensor, *others: Tensor) -> bool:
        """Whether kernels can take all of these."""
        alike = all((each.shape, each.dtype) == (x.shape, x.dtype) for each in others)
        return self.training and self.fused and alike and all(norm_ops.norm_runs_on(e, groups) for e in (x, *others))

    def _run(self, groups: tuple[int, ...], x: Tensor, **added: Tensor) -> tuple[Tensor, Tensor]:
        settings = (self.eps, self.slope, self._over_ranks(), self.ceiling)
        y, stats, total = norm_ops.norm_act(x, self.weight, self.bias, list(groups), *settings, **added)
        pixels = groups[-1] * x.shape[2] * x.shape[3]
        record(stats.detach(), pixels, *self._running(), self.momentum or 0.0, self._over_ranks())
        return y, total

    def _running(self) -> tuple[Tensor | None, Tensor | None]:
        return (self.running_mean, self.running_var) if self.track_running_stats else (None, None)

    def _over_ranks(self) -> bool:
        return self.shared and ranks.count() > 1


def norm_act(
    x: Tensor, weight: Tensor, bias: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    groups: tuple[int, ...], momentum: float, eps: float, slope: float, shared: bool = False,
    ceiling: float | None = None,
) -> Tensor:  # fmt: skip
    """By each group's statistics, if `shared` of all ranks; the running ones, if given, move to the last group's."""
    if shared:
        y, stats = shared_norm(x, weight, bias, groups, eps)
        record(stats.detach(), groups[-1] * x.shape[2] * x.shape[3], running_mean, running_var, momentum, shared)
        return activate(y, slope, ceiling)
    *others, last = split(x, list(groups))
    parts = [batch_norm(part, None, None, weight, bias, True, 0.0, eps) for part in others]
    parts.append(batch_norm(last, running_mean, running_var, weight, bias, True, momentum, eps))
    return activate(cat(parts) if others else parts[0], slope, ceiling)


def shared_norm(x: Tensor, weight: Tensor, bias: Tensor, groups: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """Each group normalised by the mean and the variance [groups, 2, C] of its images on all ranks, and these."""
    parts = split(x.to(weight.dtype), list(groups))
    own = [stack(var_mean(part, (0, 2, 3), correction=0)[::-1]) for part in parts]
    stats = of_all_ranks(stack(own))  # [groups, 2, C]
    scale = (rsqrt(stats[:, 1] + eps) * weight)[..., None, None]
    mean = stats[:, 0, :, None, None]
    y = [(part - mean[i]) * scale[i] + bias[:, None, None] for i, part in enumerate(parts)]
    return cat(y).to(x.dtype), stats


def activate(x: Tensor, slope: float, ceiling: float | None) -> Tensor:
    if slope == 0.0 and ceiling is not None:
        return hardtanh(x, 0.0, ceiling)  # one pass instead of two
    x = x if slope == 1.0 else leaky_relu(x, slope)
    return x if ceiling is None else x.clamp(max=ceiling)


@contextmanager
def _off(modules: list[nn.Module], switch: str) -> Iterator[None]:
    """Within it, a switch of these modules, which is on, is off."""
    for module in modules:
        setattr(module, switch, False)
    try:
        yield
    finally:
        for module in modules:
            setattr(module, switch, True)


def unrecorded(net: nn.Module) -> AbstractContextManager[None]:
    """Within it, training batches are normalised by their own statistics, and the running ones are left alone."""
    norms = [module for module in net.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    return _off([*norms], "track_running_stats")


def unshared(net: nn.Module) -> AbstractContextManager[None]:
    """Within it, statistics are of each rank's own images."""
    return _off([module for module in net.modules() if isinstance(module, BatchNorm) and module.shared], "shared")


@no_grad()
def estimate_statistics(net: nn.Module, batches: Iterable[Tensor], *, like: nn.Module | None = None) -> None:
    """Running statistics become the mean over these batches, seen as in training; the same on every rank.

    Those that are equal in `like`, the same network with other weights, stay: they were not trained.
    """
    norms = [module for module in net.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    theirs = {} if like is None else dict(zip(net.modules(), like.modules(), strict=True))
    kept = [norm for norm in norms if norm in theirs and _same_statistics(norm, theirs[norm])]
    norms = [norm for norm in norms if norm not in kept]
    momenta = [norm.momentum for norm in norms]
    net.train()
    for norm in kept:
        norm.eval()
    for number, batch in enumerate(batches if norms else ()):
        for norm in norms:
            norm.momentum = 1 / (number + 1)
        with unshared(net):
            net(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def _same_statistics(norm: nn.Module, other: nn.Module) -> bool:
    return all(equal(*pair) for pair in zip(norm.buffers(), other.buffers(), strict=True))


def keep_statistics(net: nn.Module) -> None:
    """Training batches are normalised with the running statistics as they are, until the next `net.train()`."""
    for module in net.modules():
        if isinstance(module, _BatchNorm):
            module.eval()


def has_batch_norm(net: nn.Module) -> bool:
    return any(isinstance(module, _BatchNorm) for module in net.modules())


def depends_on_batch(net: nn.Module) -> bool:
    """Whether the output for an image depends on the rest of its batch, in the network's current mode."""
    return any(isinstance(module, _BatchNorm) and module.training for module in net.modules())


def has_foreign_batch_norm(net: nn.Module) -> bool:
    """Whether any batch norm cannot share its statistics between ranks."""
    ours = (BatchNorm, nn.SyncBatchNorm)
    return any(isinstance(module, _BatchNorm) and not isinstance(module, ours) for module in net.modules())
