"""One run: which cell of which table, or whose own images; and the recipe by which it is trained."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from adamatch.base.errors import InputError
from adamatch.base.files import parse, read_json
from adamatch.config.presets import PAPER, PRETRAINED, recipe
from adamatch.config.recipe import Recipe
from adamatch.config.schema import changed, check, setting

OWN = "folders"  # the benchmark of somebody's own images


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run. `options` are arguments of the method (ablations)."""

    benchmark: str = setting("handwriting")
    task: str = setting("uda")
    source: str = setting("")
    target: str = setting("")
    target_labels: str = setting("", "Own images: where the labelled target images are")
    labels: int = setting(0, "Labelled target images per class", least=0, most=2**31)
    method: str = setting("adamatch")
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = setting(0, "Random seed", least=0, most=2**48)
    seeds: int = setting(1, "Own images: how many runs, which differ in their seed alone", least=1, most=64)
    first_seed: int | None = None  # of several seeds the first, from whose weights all start; None: this one
    budget: str = setting("paper")
    weights: str = setting("", "A file of starting weights, imagenet, or timm:NAME")
    continues: str = setting("", "The id of a shorter finished run whose model this one starts from")
    digests: Mapping[str, str] = field(default_factory=dict)  # of own images, by their argument
    test: str = setting("", "Own images: the test set. No part of the run's id: it may be added later")
    recipe: Recipe = field(default=None)  # type: ignore[assignment]  # filled in from benchmark and budget

    def __post_init__(self) -> None:
        if self.recipe is None:
            protocol = PRETRAINED if self.weights else {}
            object.__setattr__(self, "recipe", recipe(self.benchmark, self.budget, self.task, **protocol))
        check(self)
        each_in_every_step = self.recipe.repeat or (self.labels == 1 and self.benchmark in PAPER)
        if self.recipe.target_label_steps > 1 and each_in_every_step:
            object.__setattr__(self, "recipe", replace(self.recipe, target_label_steps=1))
        # NumPy's arrays, too: JSON has none of these
        options = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in self.options.items()}
        object.__setattr__(self, "options", options)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a run.json. Raises ValueError, or OSError where there is none."""
        return cls.from_json(json.dumps(read_json(path)))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError, whatever else the text may be."""
        try:
            values = parse(text)
            return cls(**values | {"recipe": Recipe(**values["recipe"])})
        except (KeyError, TypeError, AttributeError, OverflowError, InputError) as error:
            raise ValueError(f"not a run: {error!r}") from None

    @cached_property
    def id(self) -> str:
        """A short name that is the same for the same configuration, everywhere."""
        values = changed(replace(self, test="")) | {"recipe": changed(self.recipe)}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]

    @property
    def each_seed(self) -> list[Self]:
        """A run for each of its seeds: `seed` and those that follow. They start from the weights of the first."""
        first = replace(self, seeds=1)
        return [first, *(replace(first, seed=self.seed + n, first_seed=self.seed) for n in range(1, self.seeds))]

    @property
    def name(self) -> str:
        """The name of its folder: readable, and unique by its id."""
        pair = self.target if self.task == "ssl" else f"{self.source}-{self.target}"
        labels = f"{self.labels}" if self.labels else ""
        return f"{self.benchmark}-{self.task}{labels}-{pair}-{self.method}-s{self.seed}-{self.id}"
