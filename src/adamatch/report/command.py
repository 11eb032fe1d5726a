"""The command that makes a run again, from its run.json."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from adamatch.config.presets import PAPER, PRETRAINED, recipe
from adamatch.config.recipe import Recipe
from adamatch.config.run import OWN, Run
from adamatch.config.schema import settings_of
from adamatch.report.record import Record


def command(record: Record, given: Mapping[str, str | None]) -> str:
    """A shell command, or Python where the command line has no such option; empty for an unknown benchmark."""
    run, out = record.run, f"{record.path.name}-again"
    if run.benchmark == OWN:
        return _fit(run, given, out)
    return _train(run, out) if run.benchmark in PAPER else ""


def _fit(run: Run, given: Mapping[str, str | None], out: str) -> str:
    own = "(" in run.recipe.network  # a user's module: its name has a digest of its shapes
    paths = {"source": None, "target": None} | dict(given)
    options: dict[str, Any] = {"labels_per_class": run.labels or None, "method": run.method}
    options |= {each.name: getattr(run.recipe, each.name) for each in settings_of(Recipe, "fit")}
    if (
        run.recipe.cached_views != Recipe.cached_views
    ):  # chosen on a CPU together with frozen blocks: there is no option for it
        options |= {"frozen": None, "device": "cpu"}
    options |= {"weights": None if own else run.weights or "none", "seed": run.seed, "out": out}
    options |= {"seeds": run.seeds if run.seeds > 1 else None}
    if not own and not run.options and None not in paths.values():
        return _shell("fit", paths | options)
    # Arrays and modules appear under the name of their argument.
    names = {name for name, path in paths.items() if path is None} | ({"network"} if own else set())
    code = paths | options | {"options": run.options or None} | dict.fromkeys(names, "")
    told = [f"{name}={name if name in names else repr(value)}" for name, value in code.items() if value is not None]
    return f"adamatch.fit({', '.join(told)})"


def _train(run: Run, out: str) -> str:
    names = ("benchmark", "task", "source", "target", "labels", "method", "seed", "budget", "weights")
    options = {name: getattr(run, name) for name in names}
    options = {name: value for name, value in options.items() if value not in ("", 0, "paper") or name == "seed"}
    protocol = PRETRAINED if run.weights else {}
    usual = recipe(run.benchmark, run.budget, run.task, **protocol)
    ours, default = asdict(run.recipe), asdict(Run(task=run.task, labels=int(run.labels == 1), recipe=usual).recipe)
    changed = {name: value for name, value in ours.items() if value != default[name]}
    if changed.keys() <= {each.name for each in settings_of(Recipe, "train")}:
        of_method = {f"option {name}": value for name, value in run.options.items()}
        return _shell("train", options | changed | of_method | {"out": out})
    options |= {"options": run.options} if run.options else {}
    arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
    changes = "".join(f", {name}={value!r}" for name, value in changed.items())
    made = f"recipe({run.benchmark!r}, {run.budget!r}, {run.task!r}{changes})"
    return f"adamatch.train(Run({arguments}, recipe={made}), out={out!r})"


def _shell(name: str, options: Mapping[str, Any]) -> str:
    words = ["adamatch", name]
    for key, value in options.items():
        option = key.replace("_", "-")
        if key.startswith("option "):
            words += ["--option", f"{key[7:]}={_text(value)}"]
        elif isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            words += [f"--{option}", _text(value)]
    return shlex.join(words)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
