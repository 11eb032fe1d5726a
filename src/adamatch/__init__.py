"""AdaMatch: an image classifier for a domain with few or no labels, from a domain that has them."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from adamatch.base import interrupts as interrupts  # before what takes seconds to import

__version__ = "0.1.0"
__all__ = ["AdaMatch", "Batch", "Model", "Recipe", "Run", "fit", "load", "recipe", "train"]

if TYPE_CHECKING:
    from adamatch.config.presets import recipe
    from adamatch.config.recipe import Recipe
    from adamatch.config.run import Run
    from adamatch.experiment import train
    from adamatch.fit import fit
    from adamatch.methods import AdaMatch, Batch
    from adamatch.model import Model, load


HOMES = {
    "AdaMatch": "adamatch.methods",
    "Batch": "adamatch.methods",
    "Model": "adamatch.model",
    "Recipe": "adamatch.config.recipe",
    "Run": "adamatch.config.run",
    "fit": "adamatch.fit",
    "load": "adamatch.model",
    "recipe": "adamatch.config.presets",
    "train": "adamatch.experiment",
}


class _Package(ModuleType):
    """Names are imported when somebody asks for them: torch takes seconds, and `adamatch --help` can do without.

    A submodule of the same name (fit, train) does not take its place.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = vars(self)[name] = getattr(importlib.import_module(HOMES[name]), name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *__all__})


sys.modules[__name__].__class__ = _Package
