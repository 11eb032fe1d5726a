"""A network small enough for finite differences, its NumPy twin, and batches for it."""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import torch
from reference import losses
from torch import Tensor, nn

from adamatch.methods.contract import Batch

Array = npt.NDArray[np.float64]
Params = dict[str, Array]


class TinyNet(nn.Module):
    """Linear, batch norm (or none), LeakyReLU, linear; for images of 3 x 2 x 2."""

    def __init__(self, classes: int, *, width: int = 5, norm: bool = True) -> None:
        super().__init__()
        self.body = nn.Linear(12, width, bias=False)
        batch_norm = nn.BatchNorm1d(width, eps=1e-6)
        nn.init.uniform_(batch_norm.weight, 0.5, 1.5)
        nn.init.normal_(batch_norm.bias)
        self.norm = batch_norm if norm else nn.Identity()
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        return nn.functional.leaky_relu(self.norm(self.body(x.flatten(1))), 0.1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def hidden(p: Params, x: Array) -> Array:
    """Before the normalisation."""
    return np.asarray(x.reshape(len(x), -1) @ p["body.weight"].T)


def features(p: Params, x: Array) -> Array:
    """With the statistics of this batch, as in training."""
    h = hidden(p, x)
    if "norm.weight" in p:
        h = (h - h.mean(0)) / np.sqrt(((h - h.mean(0)) ** 2).mean(0) + 1e-6) * p["norm.weight"] + p["norm.bias"]
    return np.where(h > 0, h, 0.1 * h)


def logits(p: Params, x: Array, head: str = "head") -> Array:
    return np.asarray(features(p, x) @ p[f"{head}.weight"].T + p[f"{head}.bias"])


def params_of(net: nn.Module) -> Params:
    return {name: value.detach().numpy().copy() for name, value in net.named_parameters()}


def statistics(net: TinyNet) -> Params:
    """Running mean and variance, and how often they were recorded; a view of the network's own."""
    return {name.removeprefix("norm."): value.numpy() for name, value in net.named_buffers()}


def make_batch(
    seed: int, *, classes: int = 3, n_sl: int = 6, n_tu: int = 9, progress: float = 0.3, absent: int = -1
) -> Batch:
    """Random images with labels, none of them of class `absent`; target images are brighter. The default dtype."""
    draw = torch.Generator().manual_seed(seed)
    source = torch.randn(2, n_sl, 3, 2, 2, generator=draw)
    target = torch.randn(2, n_tu, 3, 2, 2, generator=draw) * 1.5 + 0.7
    present = torch.tensor([c for c in range(classes) if c != absent])
    labels = present[torch.randint(len(present), (n_sl,), generator=draw)]
    lam = torch.rand(2 * n_sl, classes, generator=draw)
    y_sl = nn.functional.one_hot(labels, classes).to(source.dtype)
    y_tu_first = 2 * torch.rand(n_tu, classes, generator=draw).softmax(1)
    y_tu_first[::2] = 0  # half of them have no label
    return Batch(source[0], source[1], y_sl, target[0], target[1], torch.tensor(progress), lam, y_tu_first)


def joined(*parts: Tensor) -> Array:
    return torch.cat(parts).numpy()


def numerical_gradient(loss: Callable[[Params], float], at: Params, names: Iterable[str], step: float = 1e-6) -> Params:
    """Central differences, one number at a time."""
    gradient = {}
    for name in names:
        gradient[name] = np.zeros_like(at[name])
        for place in np.ndindex(at[name].shape):
            up, down = ({**at, name: at[name].copy()} for _ in range(2))
            up[name][place] += step
            down[name][place] -= step
            gradient[name][place] = (loss(up) - loss(down)) / (2 * step)
    return gradient


def autograd(loss: Tensor, *modules: tuple[str, nn.Module]) -> Params:
    """Gradients by name, "prefix" + name; zeros for parameters that the loss does not reach."""
    named = [(prefix + name, value) for prefix, module in modules for name, value in module.named_parameters()]
    gradients = torch.autograd.grad(loss, [value for _, value in named], allow_unused=True, materialize_grads=True)
    return {name: gradient.numpy() for (name, _), gradient in zip(named, gradients, strict=True)}


def assert_matches(
    net: nn.Module,
    found: tuple[Tensor, dict[str, Tensor]],
    theirs: losses.Result,
    of: Callable[[Params], float],
    p: Params,
) -> None:
    """Loss, metrics and gradients equal the reference's; `of` is its loss with constant pseudo-labels."""
    loss, metrics = found
    assert not any(value.requires_grad for value in metrics.values())
    ours = [loss, *(metrics[name] for name in ("loss_source", "loss_target", "threshold"))]
    wanted = [theirs.loss, theirs.source, theirs.target, theirs.threshold]
    np.testing.assert_allclose([value.item() for value in ours], wanted, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(metrics["divergence"].item(), losses.kl(theirs.wanted, theirs.found), atol=1e-12)
    assert_same(autograd(loss, ("", net)), numerical_gradient(of, p, p))


def assert_same(ours: Params, theirs: Params, tolerance: float = 1e-7) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=tolerance, err_msg=name)
