"""Resuming: how a requested run differs from the folder's, and longer runs that start from a finished one."""

import json
import shutil
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError
from adamatch.base.files import sync
from adamatch.config.recipe import Recipe
from adamatch.config.run import OWN, Run
from adamatch.config.schema import settings_of

EARLIER = "earlier"  # in a run's folder, the finished run whose model it starts from
NAMED = 3  # arguments that are named
NOT_ASKED = {"recipe", "digests", "continues", "test", "task"}
AS_TRAINED = ("size", "shape")  # digests are of images as they are trained on


def difference(theirs: Run, ours: Run) -> str:
    """How two runs differ, as `--batch was 32 and is 16 now`; three differences at most."""
    then, now = (json.loads(json.dumps(asdict(run) | asdict(run.recipe))) for run in (theirs, ours))
    names = [name for name in now if then[name] != now[name] and name not in NOT_ASKED]
    told: list[str] = []
    for name in sorted(names, key=lambda name: name not in _asked(ours)):
        if told and name not in _asked(ours):
            break  # it follows from the others
        argument_name = "labels_per_class" if name == "labels" and ours.benchmark == OWN else name
        told.append(f"{argument(argument_name)} was {_value(then[name])} and is {_value(now[name])} now")
    if not {*AS_TRAINED} & {*names}:
        for role, digest in ours.digests.items():
            if theirs.digests.get(role, digest) != digest and then[role] == now[role]:
                told.append(f"{argument(role)}: {now[role]} holds other images or labels now")
    return ", ".join(told[:NAMED]) + (" ..." if len(told) > NAMED else "")


def _asked(run: Run) -> set[str]:
    """Names of what users set; the rest of a recipe is derived."""
    settings = settings_of(Recipe, "fit" if run.benchmark == OWN else "train")
    return {each.name for each in fields(Run)} - NOT_ASKED | {each.name for each in settings}


def check_test(theirs: Run, ours: Run, where: Path) -> None:
    """A test set may be added to a run that is not finished; another, or none, would mix what was measured."""
    if theirs.test and theirs.test != ours.test:
        now = f"is {ours.test} now" if ours.test else "is missing now"
        raise InputError(
            f"{where}: {argument('test')} was {theirs.test} and {now}: give the same until the run is finished"
        )


def resumed(theirs: Run, ours: Run) -> Run:
    """The requested run; if the folder's is the same, started from an earlier run's model, the folder's."""
    return replace(ours, continues=theirs.continues) if _same(theirs, ours) else ours


def prolongs(theirs: Run, ours: Run) -> bool:
    """Whether ours is the same run for more images."""
    follows = {name: getattr(theirs.recipe, name) for name in ("images", "ema_decay", "simclr_images")}
    shorter = replace(ours, recipe=replace(ours.recipe, **follows))
    return ours.recipe.images > theirs.recipe.images and _same(theirs, shorter)


def _same(theirs: Run, ours: Run) -> bool:
    return replace(theirs, continues="").id == replace(ours, continues="").id


def keep(folder: Path, theirs: Run) -> None:
    """Copy a finished run into `earlier`, for a longer run to start from. If it is interrupted, it is repeated."""
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


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value in ("", None, {}) else f"{value}"
