"""What the methods share: one function per equation of the paper.

Symbols are the paper's: `sl` source labelled, `tu` target unlabelled, `w` and `s` weak and strong view, `z` logits,
`y` labels or probabilities [n, k].
"""

import torch
from torch import Tensor, nn

from adamatch.base import ranks
from adamatch.base.errors import InputError
from adamatch.networks.norm import depends_on_batch, unrecorded


def forward_twice(
    net: nn.Module, x_sl: Tensor, x_tu_w: Tensor, x_tu_s: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Z'_SL, Z_TU,w, Z_TU,s, Z''_SL: source and target in one batch, source alone; eq. (1), (2).

    Batch norm records the joint batch's statistics only, so labelled images are not counted twice. Networks of this
    package take both batches in one pass, each normalised by its own statistics.
    """
    if depends_on_batch(net) and getattr(net, "takes_groups", False):
        n_sl, n_tu = len(x_sl), len(x_tu_w)
        z = precise(net(torch.cat([x_sl, x_sl, x_tu_w, x_tu_s]), groups=(n_sl, n_sl + 2 * n_tu)))
        z_sl_alone, z_sl_joint, z_tu_w, z_tu_s = torch.split(z, [n_sl, n_sl, n_tu, n_tu])
        return z_sl_joint, z_tu_w, z_tu_s, z_sl_alone
    z_sl_joint, z_tu_w, z_tu_s = forward_guessing(net, x_sl, x_tu_w, x_tu_s)
    if not depends_on_batch(net):
        return z_sl_joint, z_tu_w, z_tu_s, z_sl_joint
    with unrecorded(net):
        return z_sl_joint, z_tu_w, z_tu_s, precise(net(x_sl))


def forward_guessing(net: nn.Module, before: Tensor, guessed: Tensor, after: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`forward_joint`, if the second part's logits only make pseudo-labels and need no gradient.

    That part runs separately under no_grad if it does not affect the others (no batch norm).
    """
    if depends_on_batch(net):
        z_before, z_guessed, z_after = forward_joint(net, before, guessed, after)
        return z_before, z_guessed, z_after
    z_before, z_after = forward_joint(net, before, after)
    with torch.no_grad():  # only now: autocast may keep weights as it first casts them
        z_guessed = precise(net(guessed))
    return z_before, z_guessed, z_after


def forward_joint(net: nn.Module, *parts: Tensor) -> tuple[Tensor, ...]:
    """One forward over the concatenated parts; their logits apart again."""
    return torch.split(precise(net(torch.cat(parts))), [len(part) for part in parts])


def precise(z: Tensor) -> Tensor:
    """Half-precision logits in single precision, others as they are."""
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z


def interpolate(z_joint: Tensor, z_alone: Tensor, lam: Tensor) -> Tensor:
    """Random logit interpolation, a factor of its own for every logit; eq. (3)."""
    return lam * z_joint + (1 - lam) * z_alone


def align(y: Tensor, wanted: Tensor, found: Tensor, strength: Tensor | float = 1.0, limit: float = 0.0) -> Tensor:
    """Distribution alignment: each class times wanted / found [k], rows sum to one again; eq. (6).

    At strength 0, y itself. Factors lie between 1 / `limit` and `limit`, unless it is 0.
    """
    factors = ratio(wanted, found)
    return normalize(y * (factors.clamp(1 / limit, limit) if limit else factors) ** strength)


def ratio(wanted: Tensor, found: Tensor) -> Tensor:
    """Where `found` is the mean of y, the mean of y times this is `wanted`; 1e-6 is the authors'."""
    return (1e-6 + wanted) / (1e-6 + found)


def normalize(y: Tensor) -> Tensor:
    return y / y.sum(1, keepdim=True)


def relative_threshold(y_sl_w: Tensor, tau: float) -> Tensor:
    """c_tau: the mean confidence on weak source images, times tau; eq. (7)."""
    return tau * ranks.mean(y_sl_w.amax(1).mean())


def confident(y: Tensor, threshold: Tensor | float) -> Tensor:
    """1.0 where the most likely class reaches the threshold, else 0.0: [n]; eq. (8)."""
    return (y.amax(1) >= threshold).to(y.dtype)


def cross_entropy(y: Tensor, z: Tensor) -> Tensor:
    """H(y, softmax(z)) of every row: [n]."""
    return -(y * z.log_softmax(1)).sum(1)


def labelled_loss(y: Tensor, z_w: Tensor, z_s: Tensor, batches: float | None = None) -> Tensor:
    """Cross-entropy of both views, means over images with a label; or half of that for each of `batches`; eq. (9)."""
    weight = 1 / y.any(1).to(y).mean() if batches is None else 0.5 * batches  # rows of zeros have no label
    return weight * (cross_entropy(y, z_w).mean() + cross_entropy(y, z_s).mean())


def labelled_mean(y: Tensor, z: Tensor) -> Tensor:
    """Mean cross-entropy of the rows that have a label; rows of zeros have none."""
    return cross_entropy(y, z).sum() / y.any(1).sum()


def frequencies(y: Tensor) -> Tensor:
    """How frequent each class is among the labels [k]; rows of zeros are none."""
    return y.sum(0) / y.any(1).sum()


def pseudo_labelled_loss(pseudo: Tensor, mask: Tensor, z_s: Tensor) -> Tensor:
    """Cross-entropy of strong views with pseudo-labels; a mean over all images, masked ones too; eq. (10)."""
    return (cross_entropy(pseudo, z_s) * mask).mean()


def first_loss(y_tu_first: Tensor, z_s: Tensor) -> Tensor:
    """Cross-entropy of strong views with labels from before training; rows of zeros are images without one."""
    if len(y_tu_first) != len(z_s):
        raise InputError(
            "anchored=True needs labels that unlabelled images had before training: y_tu_first in the batch"
        )
    return cross_entropy(y_tu_first, z_s).mean()


def hard(y: Tensor) -> Tensor:
    """One-hot of each row's most likely class."""
    return nn.functional.one_hot(y.argmax(1), y.shape[1]).to(y.dtype)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of two class distributions [k]."""
    return (p * ((p + 1e-6) / (q + 1e-6)).log()).sum()
