"""Methods by name. Each is an nn.Module with `phases`, `unlabelled` and `weight_decay`; `contract` says what that is."""

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from adamatch.base.errors import InputError, unknown
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
]

METHODS: dict[str, type[Method]] = {
    "adamatch": AdaMatch,
    "fixmatch+": FixMatch,
    "mcd": MCD,
    "noisystudent": NoisyStudent,
    "baseline_bn": BaselineBN,
    "supervised": Supervised,
}


def build(
    name: str,
    *,
    classes: int,
    net: nn.Module,
    tau: float,
    alignment: Mapping[str, Any] = MappingProxyType({}),
    batches: float = 1.0,
    options: Mapping[str, Any],
) -> Method:
    """A method for this network; `tau` and `alignment` are the recipe's, for those that have such, `options` other arguments.

    Options go before what the recipe says. `batches` is how many of labelled images a step has: a part of one counts as such.
    """
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    given: dict[str, Any] = {"classes": classes}
    match name:
        case "adamatch":
            given["tau"], options = tau, {**alignment, "batches": batches, **options}
            if options.get("pools", 1) not in (1, batches):
                says = f"pools is 1 or the number of full labelled batches in a step, {int(batches)} here"
                raise InputError(f"{says}; not {options['pools']!r} (repeat=True fills those of target labels)")
        case "fixmatch+":
            to_labels = {"align": "labels"} if alignment.get("align") == "source" else {}
            given["tau"], options = tau, {**alignment, **to_labels, **options}
        case "noisystudent":
            given["threshold"] = tau
        case "mcd":
            given["features"] = mcd.head(net).in_features
    valid = [option for option in inspect.signature(METHODS[name]).parameters if option not in given]
    for option in options:
        if option not in valid:
            has = f"its options are {', '.join(valid)}" if valid else "it has none"
            raise InputError(f"method {name!r} has no option {option!r}: {has}")
    return METHODS[name](**given, **options)
