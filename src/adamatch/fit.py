"""Own images: one call from folders to a model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from adamatch.data.folders import median_side, read
from adamatch.data.store import Store
from adamatch.data.tasks import Problem, Unlabelled, choose, labelled
from adamatch.errors import InputError
from adamatch.experiment import solve
from adamatch.model import Model
from adamatch.train import speed
from adamatch.train.folder import RunFolder
from adamatch.train.progress import Progress
from adamatch.train.run import Recipe, Run
from adamatch.train.speed import Machine

HELD_OUT = 0.1  # of the source images, to estimate accuracy on the source
WEIGHT_DECAY = {32: 0.0005, 64: 0.001}  # the paper's rule: twice as much for twice the side; 0.002 above


def fit(
    *,
    source: Any,
    target: Any,
    out: str | Path,
    target_labels: Any = None,
    test: Any = None,
    labels_per_class: int | None = None,
    method: str = "adamatch",
    options: Mapping[str, Any] | None = None,
    network: str | nn.Module = "auto",
    size: int | str = "auto",
    images: int | str = "auto",
    batch: int | str = "auto",
    device: str = "auto",
    precision: str = "auto",
    compile: bool | None = None,  # noqa: A002
    seed: int = 0,
    skip_bad: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
) -> Model:
    """Train a classifier for `target` images from labelled `source` images.

    source          labelled images: one folder per class, a CSV of path,label, arrays (images, labels), a torch dataset
    target          images to adapt to; no labels are needed, and none are looked at
    target_labels   a few labelled target images, if there are any (semi-supervised domain adaptation)
    test            labelled target images to evaluate on while training; they choose nothing
    labels_per_class  use only so many labels of each source class; where source and target are the same folder
                    (semi-supervised learning), the other images serve without their labels
    out             the run's folder: model, metrics, checkpoints. Called again, an interrupted run goes on where it was

    What is left at "auto" is chosen for the machine and the images, and said.
    """
    machine = speed.choose(device, precision, compile)
    same = isinstance(source, (str, Path)) and isinstance(target, (str, Path)) and Path(source) == Path(target)
    chosen = _choose(source, machine, network, size, images, batch)
    own = network if isinstance(network, nn.Module) else None
    problem = _problem(source, None if same else target, target_labels, test, chosen.size, labels_per_class, seed, skip_bad)
    run = Run(
        benchmark="folders",
        task="ssl" if same else "ssda" if target_labels is not None else "uda",
        source=_name(source),
        target=_name(target),
        labels=labels_per_class or 0,
        method=method,
        options=dict(options or {}),
        seed=seed,
        recipe=replace(chosen.recipe, network=type(own).__name__) if own is not None else chosen.recipe,
    )
    with Progress(run.recipe, quiet=quiet) as progress:
        for line in (f"machine: {machine}", *chosen.reasons, *_remarks(problem, run.recipe)):
            progress.say(line)
    return solve(run, problem, RunFolder(out), machine=machine, net=own, overwrite=overwrite, quiet=quiet)


@dataclass(frozen=True)
class _Choice:
    recipe: Recipe
    size: int
    reasons: tuple[str, ...]


def _choose(
    source: Any, machine: Machine, network: str | nn.Module, size: int | str, images: int | str, batch: int | str
) -> _Choice:
    """Fill in what was left at "auto", each with its reason."""
    on_gpu = machine.device.type == "cuda"
    reasons = []
    if size == "auto":
        side = median_side(source) if isinstance(source, (str, Path)) else 0
        size = 64 if side > 48 else 32
        reasons.append(f"image size: {size}, because the median side is {side or 'unknown'}")
    if network == "auto":
        network = ("wrn-28-2" if int(size) <= 32 else "wrn-34-2") if on_gpu else "wrn-small"
        reasons.append(f"network: {network}, " + ("the paper's for this size" if on_gpu else "because there is no GPU"))
    if images == "auto":
        images = 1_000_000 if on_gpu else 32_000
        reasons.append(
            f"budget: {images:,} labelled images, " + ("about the paper's accuracy" if on_gpu else "some minutes on a CPU")
        )
    count = 64 if batch == "auto" else int(batch)
    short = int(images) // count < 10_000  # steps: averages over the last 1,000 of them would remember the beginning
    recipe = Recipe(
        network=network if isinstance(network, str) else "",
        size=int(size),
        images=int(images),
        batch=count,
        weight_decay=WEIGHT_DECAY.get(int(size), 0.002),
        strong="cta" if on_gpu else "cutout",
        average=0.99 if short else 0.999,
    )
    return _Choice(recipe, int(size), tuple(reasons))


def _problem(
    source: Any, target: Any, target_labels: Any, test: Any, size: int, labels_per_class: int | None, seed: int, skip_bad: bool
) -> Problem:
    """Labelled pools from the source and what target labels there are; `target` None means the source's own images."""
    whole = read(source, size=size, labelled=True, skip_bad=skip_bad)
    kept, held_out = _hold_out(whole, seed)
    chosen: tuple[int, ...] = ()
    if labels_per_class is not None:
        assert kept.labels is not None
        rows, _ = choose(kept.labels, kept.classes, labels_per_class, seed)
        chosen = tuple(int(row) for row in rows)
        pools = [labelled(_rows(kept, rows))]
    else:
        pools = [labelled(kept)]
    if target_labels is not None:
        pools.append(labelled(read(target_labels, size=size, classes=whole.classes, labelled=True, skip_bad=skip_bad)))
    images = kept.images if target is None else read(target, size=size, labelled=False, skip_bad=skip_bad).images
    tests = {"source": held_out} if len(held_out) else {}
    if test is not None:
        tests["target"] = read(test, size=size, classes=whole.classes, labelled=True, skip_bad=skip_bad)
    return Problem(tuple(pools), Unlabelled((images,)), whole.classes, tests, chosen)


def _hold_out(store: Store, seed: int) -> tuple[Store, Store]:
    """A tenth of every class apart, where a class has ten images or more."""
    assert store.labels is not None
    rng = np.random.default_rng([seed, 17])
    apart = np.zeros(len(store), dtype=bool)
    for number in range(len(store.classes)):
        rows = rng.permutation(np.flatnonzero(store.labels == number))
        apart[rows[: int(len(rows) * HELD_OUT)]] = True
    return _rows(store, np.flatnonzero(~apart)), _rows(store, np.flatnonzero(apart))


def _rows(store: Store, rows: Any) -> Store:
    assert store.labels is not None
    return Store(store.images[rows], store.labels[rows], store.classes)


def _remarks(problem: Problem, recipe: Recipe) -> list[str]:
    count = sum(map(len, problem.labelled))
    lines = [f"{len(problem.classes)} classes, {count:,} labelled and {len(problem.unlabelled):,} unlabelled images"]
    for pool, batch in [(pool, recipe.batch) for pool in problem.labelled] + [
        (problem.unlabelled, recipe.batch * recipe.uratio)
    ]:
        if len(pool) == 0:
            raise InputError("there is no image to train on: a pool is empty")
        if len(pool) < batch:
            lines.append(f"{len(pool)} images are fewer than a batch of {batch}: some will come more than once in a batch")
    return lines


def _name(images: Any) -> str:
    return str(images) if isinstance(images, (str, Path)) else type(images).__name__
