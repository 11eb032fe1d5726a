"""AdaMatch: an image classifier for a domain with few or no labels, from a domain that has them."""

__version__ = "0.1.0"

from adamatch.experiment import train
from adamatch.fit import fit
from adamatch.model import Model, load
from adamatch.train.run import Recipe, Run, recipe

__all__ = ["Model", "Recipe", "Run", "fit", "load", "recipe", "train"]
