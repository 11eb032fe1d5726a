"""The command that makes a run again, from its run.json."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from adamatch.config.run import PAPER, PRETRAINED, Recipe, Run, recipe
from adamatch.report.record import NOT_JSON, Record
from adamatch.train import resume

# Hyper-parameters that are options of `adamatch train`, and of `adamatch fit`.
OF_TRAIN = (
    *("images", "batch", "uratio", "tau", "lr", "weight_decay", "network", "strong", "mirror", "repeat", "statistics"),
)
OF_FIT = ("network", "size", "images", "batch", "lr")
SWITCHES = ("mirror", "repeat")


def command(record: Record, given: Mapping[str, str | None]) -> str:
    """For a shell, or for Python where the command line has no words for it; empty where that is not known."""
    run, out = record.run, f"{record.path.name}-again"
    try:
        weights = _weights(record.path, run)
    except NOT_JSON:
        return ""
    if run.benchmark == resume.OWN:
        return _fit(run, weights, given, out)
    return _train(run, weights, out) if run.benchmark in PAPER else ""


def _weights(folder: Path, run: Run) -> str:
    """What the run began from; of one that was prolonged, what the first one did."""
    if not run.weights.startswith(resume.FROM):
        return run.weights
    return _weights(folder / resume.EARLIER, Run.read(folder / resume.EARLIER / "run.json"))


def _fit(run: Run, weights: str, given: Mapping[str, str | None], out: str) -> str:
    own = "(" in run.recipe.network  # a module of one's own is named with a digest of its shapes
    paths = {"source": None, "target": None} | dict(given)
    said: dict[str, Any] = {"labels_per_class": run.labels or None, "method": run.method}
    said |= {name: getattr(run.recipe, name) for name in OF_FIT}
    said |= {"weights": None if own else weights or "none", "strong": run.recipe.strong}
    # On a CPU blocks are frozen together with scales for which there is no option: they are left to be chosen again.
    said |= {"device": "cpu"} if run.recipe.views != Recipe.views else {"frozen": run.recipe.frozen}
    said |= {"mirror": run.recipe.mirror, "repeat": run.recipe.repeat, "seed": run.seed, "out": out}
    if not own and not run.options and None not in paths.values():
        return _shell("fit", paths | said)
    # What is no path stands under the name of its argument.
    names = {name for name, path in paths.items() if path is None} | ({"network"} if own else set())
    code = paths | said | {"options": run.options or None} | dict.fromkeys(names, "")
    told = [f"{name}={name if name in names else repr(value)}" for name, value in code.items() if value is not None]
    return f"adamatch.fit({', '.join(told)})"


def _train(run: Run, weights: str, out: str) -> str:
    names = ("benchmark", "task", "source", "target", "labels", "method", "seed", "budget")
    said: dict[str, Any] = {name: getattr(run, name) for name in names} | {"weights": weights}
    said = {name: value for name, value in said.items() if value not in ("", 0, "paper") or name == "seed"}
    protocol = PRETRAINED if weights else {}
    usual = Run(
        task=run.task, labels=int(run.labels == 1), recipe=recipe(run.benchmark, run.budget, run.task, **protocol)
    )
    ours, default = asdict(run.recipe), asdict(usual.recipe)
    changed = {each.name: ours[each.name] for each in fields(Recipe) if ours[each.name] != default[each.name]}
    if changed.keys() <= set(OF_TRAIN):
        options = {f"option {name}": value for name, value in run.options.items()}
        return _shell("train", said | changed | options | {"out": out})
    said |= {"options": run.options} if run.options else {}
    arguments = ", ".join(f"{name}={value!r}" for name, value in said.items())
    changes = "".join(f", {name}={value!r}" for name, value in changed.items())
    made = f"recipe({run.benchmark!r}, {run.budget!r}, {run.task!r}{changes})"
    return f"adamatch.train(Run({arguments}, recipe={made}), out={out!r})"


def _shell(name: str, said: Mapping[str, Any]) -> str:
    words = ["adamatch", name]
    for key, value in said.items():
        option = key.replace("_", "-")
        if key in SWITCHES:
            words.append(f"--{option}" if value else f"--no-{option}")
        elif key.startswith("option "):
            words += ["--option", f"{key[7:]}={_text(value)}"]
        elif value is not None:
            words += [f"--{option}", _text(value)]
    return shlex.join(words)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
