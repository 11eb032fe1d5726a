"""Runs of a second: a problem of 8 x 8 images in memory, and processes that die at a chosen moment of such a run."""

import dataclasses
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch._dynamo  # an optimiser would import it, three seconds long, in every process
from safetensors.torch import load_file, save
from torch import Tensor

from adamatch import experiment
from adamatch.base.errors import Interruption
from adamatch.config import recipe as recipes
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.images.feed import Place
from adamatch.images.store import Store
from adamatch.images.tasks import Problem, make_problem
from adamatch.model import Model
from adamatch.train import checkpoint
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Captured, Machine

CLASSES = ("dark", "grey", "light")
CPU = Machine(torch.device("cpu"), "fp32", compile=False, graph=False)
STEPS = 12
EVERY = 3  # steps between two evaluations, each with a checkpoint
RECIPE = Recipe(
    network="wrn-tiny",
    size=8,
    images=4 * STEPS,
    batch=4,
    uratio=2,
    weight_decay=0.001,
    ema_decay=0.8,
    strong="cutout",
    mirror=False,
    tau=0.4,
)


def store(count: int, seed: int) -> Store:
    """Three shades with much noise."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count, dtype=np.int64) % 3)
    noise = rng.integers(0, 120, (count, 8, 8, 3))
    return Store((noise + 60 * labels[:, None, None, None]).astype(np.uint8), labels, CLASSES)


def problem(task: str = "uda", *, labels: int = 0, seed: int = 0, target: Store | None = None) -> Problem:
    sources = [] if task == "ssl" else [store(30, 1)]
    return make_problem(task, sources, target or store(27, 2), {"target": store(12, 3)}, labels=labels, seed=seed)


def a_run(**changes: Any) -> Run:
    """A tiny run; `changes` may be fields of the run or of its recipe."""
    known = {each.name for each in dataclasses.fields(Recipe)}
    recipe = dataclasses.replace(RECIPE, **{name: value for name, value in changes.items() if name in known})
    rest = {name: value for name, value in changes.items() if name not in known}
    return Run(benchmark="tiny", source="a", target="b", recipe=recipe, **rest)


def solve(
    of: Run,
    out: Path,
    *,
    posed: Problem | None = None,
    place: Place = "auto",
    seconds_per_checkpoint: float = 0.0,
    quiet: bool = True,
    log: str | None = None,
    **given: Any,
) -> Model:
    """Do a run; a checkpoint at every evaluation."""
    posed = posed or problem(of.task, labels=of.labels, seed=of.seed)
    steps = of.recipe.last_step
    with mock.patch.object(recipes, "EVALUATIONS", steps // EVERY):
        return experiment.solve(
            of,
            posed,
            RunFolder(out),
            Execution(CPU, place, quiet, seconds_per_checkpoint, log),
            **given,
        )


def weights(out: Path) -> dict[str, Tensor]:
    return load_file(out / "model.safetensors")


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(a[name].numpy().tobytes() == b[name].numpy().tobytes() for name in a)


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def in_process(function: Callable[..., None], *args: Any) -> int:
    """The exit code of a process of its own that calls the function."""
    process = started(function, *args)
    process.join(60)
    assert process.exitcode is not None, "still running"
    return process.exitcode


def started(function: Callable[..., None], *args: Any) -> BaseProcess:
    """A process of its own that calls the function. It imports what we have imported only once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=function, args=args)
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):  # else it does not find what to import
        process.start()
    return process


def doomed(text: str, out: Path, moment: str, place: Place = "auto") -> None:
    """Do the run of this JSON, and die by SIGKILL at a moment such as "step 5" (see MOMENTS).

    "half 2" is within the second writing of tensors, "rename result.json" and "renamed result.json" around its rename.
    """
    torch.set_num_threads(1)
    kind, _, which = moment.partition(" ")
    if kind == "half":
        die_in_the_middle(int(which))
    elif kind in ("rename", "renamed"):
        die_around_a_rename(which, after=kind == "renamed")
    else:
        at_call(*MOMENTS[kind], int(which), die)
    solve(Run.from_json(text), out, place=place)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_the_middle(number: int) -> None:
    calls = itertools.count(1)

    def write(tensors: dict[str, Tensor], path: Path) -> None:
        content = save(tensors)
        if next(calls) == number:
            path.write_bytes(content[: random.randrange(len(content) + 1)])
            die()
        path.write_bytes(content)

    checkpoint.save_file = write


def die_around_a_rename(name: str, after: bool) -> None:
    replace = os.replace

    def rename(old: Path, new: Path) -> None:
        if after:
            replace(old, new)
        if new.name == name:
            die()
        if not after:
            replace(old, new)

    os.replace = rename  # type: ignore[assignment]


def interrupted(text: str, out: Path, step: int, number: int) -> None:
    """Do the run of this JSON; before this step a signal arrives. What the run says of it is in the file `said`."""
    torch.set_num_threads(1)
    at_call(Captured, "__call__", step, lambda: os.kill(os.getpid(), number))
    try:
        solve(Run.from_json(text), out)
    except Interruption as stop:
        out.with_suffix(".said").write_text(str(stop))


def holding(out: Path, text: str, ready: Path, done: Path) -> None:
    """Hold a run's folder until the file `done` is there."""
    with RunFolder(out).claim(Run.from_json(text)):
        ready.touch()
        while not done.exists():
            time.sleep(0.01)


# What is called when the n-th such thing is about to happen.
MOMENTS: dict[str, tuple[Any, str]] = {
    "step": (Captured, "__call__"),
    "line": (RunFolder, "append"),
    "tensors": (checkpoint, "save_file"),
    "facts": (checkpoint, "write_atomically"),  # a checkpoint has its tensors and not yet its JSON file
    "old": (checkpoint, "_newest_first"),  # a checkpoint is whole, the oldest is not yet dropped
    "model": (Model, "save"),
    "result": (RunFolder, "finish"),  # all is done and saved but for result.json
}


def at_call(owner: Any, name: str, number: int, act: Callable[[], None]) -> None:
    """From now on: before the call of this number of a function or method, do something."""
    function, calls = getattr(owner, name), itertools.count(1)

    def counted(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            act()
        return function(*args, **kwargs)

    setattr(owner, name, counted)


def raising(function: Callable[..., Any], number: int, error: BaseException) -> Callable[..., Any]:
    """The function, but for its call of this number."""
    calls = itertools.count(1)

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            raise error
        return function(*args, **kwargs)

    return call
