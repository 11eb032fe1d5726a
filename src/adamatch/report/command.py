"""The command that makes a run again, from its run.json."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from adamatch.config.presets import PAPER, PRETRAINED, recipe
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.report.record import Record, section

OF_TRAIN = (
    "images",
    "batch",
    "uratio",
    "tau",
    "lr",
    "weight_decay",
    "network",
    "strong",
    "mirror",
    "repeat",
    "statistics",
)
OF_FIT = ("network", "size", "images", "batch", "lr")
NAMES = dict.fromkeys(("benchmark", "task", "source", "target", "method")) | {"budget": "paper", "weights": ""}
OWN = "folders"  # the benchmark of one's own images


def command(record: Record, given: Mapping[str, str | None]) -> str:
    """For a shell, or for Python where the command line has no words for it; empty where run.json does not say enough."""
    run, values = record.run, section(record.run, "recipe")
    if (
        not values
        or "seed" not in run
        or not all(isinstance(run.get(name, given), str) for name, given in NAMES.items())
    ):
        return ""
    out = f"{record.path.name}-again"
    if run["benchmark"] == OWN:
        return _fit(run, values, given, out)
    return _train(run, values, out)


def _fit(run: Mapping[str, Any], values: Mapping[str, Any], given: Mapping[str, str | None], out: str) -> str:
    own = "(" in str(values.get("network"))  # a module of one's own is named with a digest of its shapes
    paths = {"source": None, "target": None} | dict(given)
    said: dict[str, Any] = {"labels_per_class": run.get("labels") or None, "method": run["method"]}
    said |= {name: values.get(name) for name in OF_FIT}
    said |= {"weights": None if own else run.get("weights") or "none", "strong": values.get("strong", "cta")}
    # On a CPU some is chosen with the frozen scales for which there is no option: then they are left to be chosen again.
    said |= {"frozen": values.get("frozen", 0)} if values.get("views", 4) == 4 else {"device": "cpu"}
    said |= {
        "mirror": bool(values.get("mirror", True)),
        "repeat": bool(values.get("repeat", True)),
        "seed": run["seed"],
    }
    said["out"] = out
    if not own and not run.get("options") and None not in paths.values():
        return _shell("fit", paths | said, switches=("mirror", "repeat"))
    # What is no path stands under the name of its argument.
    names = {name for name, path in paths.items() if path is None} | ({"network"} if own else set())
    code = paths | said | {"options": run.get("options") or None} | dict.fromkeys(names, "")
    told = [f"{name}={name if name in names else repr(value)}" for name, value in code.items() if value is not None]
    return f"adamatch.fit({', '.join(told)})"


def _train(run: Mapping[str, Any], values: Mapping[str, Any], out: str) -> str:
    names = ("benchmark", "task", "source", "target", "labels", "method", "seed", "budget", "weights")
    said = {name: run[name] for name in names if run.get(name) not in (None, "", 0, "paper") or name == "seed"}
    if run["benchmark"] not in PAPER:
        return ""
    budget, task, protocol = (
        run.get("budget", "paper"),
        run.get("task", "uda"),
        PRETRAINED if run.get("weights") else {},
    )
    mine = recipe(run["benchmark"], budget, task, **protocol)
    usual = asdict(Run(task=task, labels=int(run.get("labels") == 1), recipe=mine).recipe)  # of one, nothing is spread
    whole = dict(values)
    changed = {
        each.name: whole[each.name]
        for each in fields(Recipe)
        if each.name in whole and whole[each.name] != usual[each.name]
    }
    if changed.keys() <= set(OF_TRAIN):
        options = {f"option {name}": value for name, value in section(run, "options").items()}
        return _shell("train", said | changed | options | {"out": out}, switches=("mirror", "repeat"))
    said["options"] = section(run, "options")
    arguments = ", ".join(f"{name}={value!r}" for name, value in said.items() if value != {})
    changes = "".join(f", {name}={value!r}" for name, value in changed.items())
    made = f"recipe({run['benchmark']!r}, {budget!r}, {task!r}{changes})"
    return f"adamatch.train(Run({arguments}, recipe={made}), out={out!r})"


def _shell(name: str, said: Mapping[str, Any], switches: tuple[str, ...]) -> str:
    words = ["adamatch", name]
    for key, value in said.items():
        option = key.replace("_", "-")
        if key in switches:
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
