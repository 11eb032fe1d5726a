"""AdaMatch: an image classifier for a domain with few or no labels, from a domain that has them."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from adamatch.base import interrupts as interrupts  # before what takes seconds to import

__version__ = "0.1.0"
__all__ = ["Model", "Recipe", "Run", "fit", "load", "recipe", "train"]

if TYPE_CHECKING:
    from adamatch.config.presets import recipe
    from adamatch.config.recipe import Recipe
    from adamatch.config.run import Run
    from adamatch.experiment import train
    from adamatch.fit import fit
    from adamatch.model import Model, load


class _Later:
    """A name that is imported when somebody asks for it: torch takes seconds, and `adamatch --help` can do without.

    A submodule of the same name (fit, train) does not take its place.
    """

    def __init__(self, home: str) -> None:
        self.home = home

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, package: ModuleType, owner: type | None = None) -> Any:
        if self.name not in vars(package):
            vars(package)[self.name] = getattr(importlib.import_module(self.home), self.name)
        return vars(package)[self.name]

    def __set__(self, package: ModuleType, value: Any) -> None:
        if not isinstance(value, ModuleType):
            vars(package)[self.name] = value

    def __delete__(self, package: ModuleType) -> None:
        del vars(package)[self.name]


class _Package(ModuleType):
    Model = _Later("adamatch.model")
    Recipe = _Later("adamatch.config.recipe")
    Run = _Later("adamatch.config.run")
    fit = _Later("adamatch.fit")
    load = _Later("adamatch.model")
    recipe = _Later("adamatch.config.presets")
    train = _Later("adamatch.experiment")

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *__all__})


sys.modules[__name__].__class__ = _Package
