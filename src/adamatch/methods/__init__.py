"""Methods by name. Each is an nn.Module with `phases`; `contract` says what else a method has."""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from torch import nn

from adamatch.base.errors import InputError, unknown
from adamatch.config.recipe import PseudoLabels
from adamatch.methods import mcd
from adamatch.methods.adamatch import AdaMatch
from adamatch.methods.baseline import BaselineBN, Supervised
from adamatch.methods.contract import Batch, Method, Metrics, Pass, Phase
from adamatch.methods.fixmatch import FixMatch
from adamatch.methods.mcd import MCD
from adamatch.methods.noisy_student import NoisyStudent

__all__ = [
    "MCD",
    "METHODS",
    "AdaMatch",
    "BaselineBN",
    "Batch",
    "FixMatch",
    "Method",
    "Metrics",
    "NoisyStudent",
    "Pass",
    "Phase",
    "Supervised",
    "build",
    "get",
]

METHODS: dict[str, type[Method]] = {
    "adamatch": AdaMatch,
    "fixmatch+": FixMatch,
    "mcd": MCD,
    "noisystudent": NoisyStudent,
    "baseline_bn": BaselineBN,
    "supervised": Supervised,
}


def get(name: str) -> type[Method]:
    """The class of a method."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def build(
    name: str,
    *,
    classes: int,
    net: nn.Module,
    recipe: PseudoLabels = PseudoLabels(),  # noqa: B008  # it is frozen
    options: Mapping[str, Any] = MappingProxyType({}),
    batches: float = 1.0,
) -> Method:
    """A method for this network. It gets the recipe's settings that its arguments name; `options` go before these.

    `batches` is how many full batches of labelled images a step has: a part of one counts as such.
    """
    method, known = get(name), {each.name: getattr(recipe, each.name) for each in fields(PseudoLabels)}
    arguments = inspect.signature(method).parameters
    valid = [argument for argument in arguments if argument not in ("classes", "features", "tau")]
    for option in options:
        if option not in valid:
            has = f"its options are {', '.join(valid)}" if valid else "it has none"
            raise InputError(f"method {name!r} has no option {option!r}: {has}")
    given = {name: value for name, value in {**known, "batches": batches, **options}.items() if name in arguments}
    if "features" in arguments:
        given["features"] = mcd.head(net).in_features
    return method(classes=classes, **given)
