"""A folder that holds a run already: what tells it from the one that is asked for, and a finished run that is prolonged."""

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError
from adamatch.base.files import sync
from adamatch.config.run import Run

EARLIER = "earlier"  # the folder of the finished run that a longer one starts from, in that one's folder
FROM = f"{EARLIER}:"  # its weights: this, and the id of that run
OWN = "folders"  # the benchmark of somebody's own images
# What follows from other arguments is told only where nothing else differs.
FOLLOWS = (
    *("task", "average", "align", "limit", "window", "decay", "release", "balanced", "late", "spread", "fitted_head"),
    *("contrastive", "anchored", "lr_end", "lr_body", "views", "weight_decay"),
    *("shape", "white", "form", "stop"),
)
NAMED = 3  # arguments that are named
PIXELS = {"size", "shape"}


def difference(theirs: Run, ours: Run) -> str:
    """What tells two runs apart, as `--batch was 32 and is 16 now`, in the words of whoever asks; the first three things."""
    if theirs.weights.startswith(FROM):  # which nobody asked for
        theirs = replace(theirs, weights=ours.weights)
    then, now = (
        facts | facts.pop("recipe") for facts in (json.loads(json.dumps(asdict(run))) for run in (theirs, ours))
    )
    names = [name for name in now if then[name] != now[name] and name != "test"]
    if ours.benchmark == OWN and PIXELS.intersection(names):  # their digests are of images as they are trained on
        same = [name for name in ("source", "target") if without_digests(then[name]) == without_digests(now[name])]
        names = [name for name in names if name not in same]
    if names == ["form"]:
        return "of an earlier version, in which the same configuration meant something else"
    names.sort(key=lambda name: name in FOLLOWS)
    given = [name for name in names if name not in FOLLOWS] or names
    told = [_told(name, then[name], now[name], own=ours.benchmark == OWN) for name in given[:NAMED]]
    return ", ".join(told) + (" ..." if len(given) > len(told) else "")


def check_test(theirs: Run, ours: Run, where: Path) -> None:
    """A test set may be added to a run that is not finished; another, or none, would mix what was measured."""
    if theirs.test and theirs.test != ours.test:
        now = f"is {ours.test} now" if ours.test else "is missing now"
        raise InputError(
            f"{where}: {argument('test')} was {theirs.test} and {now}: give the same until the run is finished"
        )


def resumed(theirs: Run, ours: Run) -> Run:
    """Ours; where theirs is the same from an earlier run's model, it is that one that is meant."""
    return replace(ours, weights=theirs.weights) if theirs.weights.startswith(FROM) and _same(theirs, ours) else ours


def prolongs(theirs: Run, ours: Run) -> bool:
    """Whether ours is the same for more images."""
    follows = {
        name: getattr(theirs.recipe, name) for name in ("images", "average", "contrastive")
    }  # the images, or from them
    shorter = replace(ours, recipe=replace(ours.recipe, **follows))
    return ours.recipe.images > theirs.recipe.images and _same(theirs, shorter)


def _same(theirs: Run, ours: Run) -> bool:
    weights = ours.weights if theirs.weights.startswith(FROM) else theirs.weights
    return replace(theirs, weights=weights).id == ours.id


def keep(folder: Path, theirs: Run) -> None:
    """Copy a finished run into `earlier`, where a longer one finds its model. Killed in the middle, it is done anew."""
    if held(folder) == theirs.id:
        return
    part = folder / f".{EARLIER}.part"
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(folder, part, ignore=shutil.ignore_patterns(".*", "checkpoints"))
    shutil.rmtree(folder / EARLIER, ignore_errors=True)  # it is in the copy
    part.rename(folder / EARLIER)
    sync(folder)


def held(folder: Path) -> str:
    """The id of the finished run in `earlier`; empty where there is none."""
    place = folder / EARLIER
    try:
        return Run.read(place / "run.json").id if (place / "result.json").is_file() else ""
    except (OSError, ValueError):
        return ""


def _told(name: str, then: Any, now: Any, *, own: bool) -> str:
    if own and name in ("source", "target"):
        before, after = (_split(text) for text in (then, now))
        which = 0
        if name == "source" and before[0] == after[0]:
            name, which = "target_labels", 1
        was, now_is = (each[which].rsplit(" (", 1)[0] or "not given" for each in (before, after))
        same = f"{argument(name)}: {was} holds other images or labels now"
        return same if was == now_is else f"{argument(name)} was {was} and is {now_is} now"
    if name == "labels" and own:
        name = "labels_per_class"
    return f"{argument(name)} was {_value(then)} and is {_value(now)} now"


def without_digests(text: str) -> str:
    """`photos (1a2b3c4d) and few (5e6f7a8b)`: photos and few."""
    return re.sub(r" \([0-9a-f]{8}\)(?=$| and )", "", text)


def _split(text: str) -> tuple[str, str]:
    """`photos (1a2b3c4d) and few (5e6f7a8b)`: the source, and the labelled target images."""
    first, found, second = text.partition(") and ")
    return (f"{first})", second) if found else (text, "")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value in ("", None, {}) else f"{value}"
