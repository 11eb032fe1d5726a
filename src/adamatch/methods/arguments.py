"""What methods check before they start: one line for the person who gave the argument."""

from collections.abc import Sequence

import torch
from torch import Tensor

from adamatch.base.errors import InputError, shortened, unknown

MOST = 2**16  # of whatever is counted: an average over more batches, or more generations, are a slip of the keyboard


def one_of(kind: str, name: str, *valid: str) -> str:
    if name not in valid:
        raise unknown(kind, name, valid)
    return name


def halved(source_loss: str) -> bool:
    """Whether eq. (9) is the mean of both views' losses ("half", the authors' code) or their sum as printed ("sum")."""
    return one_of("source_loss", source_loss, "sum", "half") == "half"


def view_weight(source_loss: str) -> float:
    """The weight of each view's mean."""
    return 0.5 if halved(source_loss) else 1.0


def flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):  # "no" would count as true
        raise InputError(f"{name} is true or false, not {shortened(value)}")
    return value


def probability(name: str, value: float) -> float:
    if not _is_number(value) or not 0 <= value <= 1:
        raise InputError(f"{name} is a probability: give a number from 0 to 1, not {shortened(value)}")
    return value


def part(name: str, value: float) -> float:
    if not _is_number(value) or not 0 < value <= 1:
        raise InputError(f"{name} is a part of the run: give a number above 0, up to 1, not {shortened(value)}")
    return value


def above_zero(name: str, value: float) -> float:
    if not _is_number(value) or not 0 < value <= MOST:
        raise InputError(f"{name} is a number above 0, up to {MOST:,}, not {shortened(value)}")
    return value


def factor(name: str, value: float) -> float:
    if not _is_number(value) or (value != 0 and not 1 <= value <= MOST):
        raise InputError(f"{name} is a factor: give a number from 1 to {MOST:,}, or 0 for none, not {shortened(value)}")
    return value


def weight(name: str, value: float) -> float:
    if not _is_number(value) or not 0 <= value <= MOST:
        raise InputError(f"{name} is a weight: give a number from 0 to {MOST:,}, not {shortened(value)}")
    return value


def count(name: str, value: int) -> int:
    if not _is_number(value) or not 1 <= value <= MOST or value != int(value):
        raise InputError(f"{name} counts: give a whole number from 1 to {MOST:,}, not {shortened(value)}")
    return int(value)


def distribution(values: Tensor | Sequence[float], classes: int) -> Tensor:
    """A known class distribution [k], checked."""
    try:
        known = torch.as_tensor(values, dtype=torch.get_default_dtype())
    except (TypeError, ValueError, RuntimeError):  # the last of numbers that are too large
        raise InputError(
            f"a known class distribution is a list of {classes} numbers, not {shortened(values)}"
        ) from None
    if known.shape != (classes,):
        raise InputError(
            f"a known class distribution needs {classes} numbers, one per class; this one has {known.numel()}"
        )
    if not bool((known >= 0).all()) or abs(float(known.sum()) - 1) > 1e-3:
        raise InputError(
            f"a known class distribution has no negative number and sums to 1; this one sums to {known.sum():.4g}"
        )
    return known


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
