"""What a grid costs: steps, hours of one machine, and days on several, from step times measured here or elsewhere."""

import heapq
import json
import math
import statistics
import tomllib
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from adamatch.base.files import read_json
from adamatch.config.run import Run
from adamatch.images.tasks import POOLS
from adamatch.methods import METHODS

# For a network that was measured nowhere: what one H200 reaches in a step of 6.8 ms.
ASSUMED = 2 * 0.2144e9 * 3 * 640 / 0.0068  # operations per second
ASSUMPTION = "assumed: as many operations per second as in AdaMatch's step of WRN-28-2 at 32 x 32 on one H200"


class Shape(NamedTuple):
    """What makes two runs' steps cost the same."""

    network: str
    size: int
    batch: int
    uratio: int
    method: str
    pools: int  # labelled batches in a step
    strong: str


_NUMBERS = tomllib.loads((Path(__file__).parent / "cost.toml").read_text())
NETWORKS: dict[str, tuple[float, int]] = _NUMBERS["networks"]
# Seconds of a step that come with the package, so that a plan is the same everywhere.
KNOWN: dict[str, dict[Shape, float]] = {
    machine: {Shape(*row[:-1]): row[-1] / 1000 for row in rows} for machine, rows in _NUMBERS["ms"].items()
}


class Measured(NamedTuple):
    shape: Shape
    seconds: float  # of one step
    machine: str


class Estimate(NamedTuple):
    steps: int  # of all trainings of the run
    step: float  # seconds
    seconds: float
    basis: str


def shape(run: Run) -> Shape:
    recipe = run.recipe
    method = "supervised" if run.method == "noisystudent" else run.method  # its steps are the same
    pools = POOLS.get(run.task, 1)
    return Shape(recipe.network, recipe.size, recipe.batch, recipe.uratio, method, pools, recipe.strong)


def images(step: Shape) -> float:
    """How many images go forwards and back through the network in a step."""
    return METHODS[step.method].images_per_step(step.batch * step.pools, step.batch * step.uratio)


def work(step: Shape) -> float:
    """Operations of a step's forwards and backwards (a backward is two forwards)."""
    forward, side = NETWORKS.get(step.network, NETWORKS["resnetv2-101"])
    return 2e9 * forward * (step.size / side) ** 2 * 3 * images(step)


def steps(run: Run) -> int:
    """Steps of all trainings of a run."""
    return run.recipe.last_step * (1 + METHODS[run.method].generations(run.options))


def length(run: Run) -> float:
    """Steps of a run, and as many more as take the time of self-supervised pre-training, where it begins with that."""
    if run.continues or not METHODS[run.method].unlabelled:
        return steps(run)  # an earlier run has done it, or the method never looks at unlabelled images
    return steps(run) + 2 * run.recipe.simclr_images / images(shape(run))  # two views


def estimate(run: Run, measured: Collection[Measured] = ()) -> Estimate:
    """From `measured` before what comes with the package; else an assumption.

    In each from the same step, else scaled from others of the same network and size (and method, if there are any).
    """
    known = [Measured(step, seconds, machine) for machine, times in KNOWN.items() for step, seconds in times.items()]
    wanted = shape(run)
    seconds, basis = _step(wanted, measured) or _step(wanted, known) or (work(wanted) / ASSUMED, ASSUMPTION)
    return Estimate(steps(run), seconds, seconds * length(run), basis)


def _step(wanted: Shape, measured: Iterable[Measured]) -> tuple[float, str] | None:
    """Seconds of a step on the fastest machine (the median of what was measured there), and what they rest on."""
    near = [each for each in measured if each.shape[:2] == wanted[:2]]
    same = [each for each in near if each.shape == wanted]
    seconds: dict[str, list[float]] = {}
    for each in same or [each for each in near if each.shape.method == wanted.method] or near:
        seconds.setdefault(each.machine, []).append(each.seconds * _ratio(wanted, each.shape))
    if not seconds:
        return None
    fastest, machine = min((statistics.median(values), machine) for machine, values in seconds.items())
    how = "measured" if same else f"scaled from other steps of {wanted.network} at {wanted.size}"
    return fastest, f"{how} on {machine}"


def _ratio(step: Shape, other: Shape) -> float:
    """How many times as long as the other a step takes: as known of one machine, else by operations."""
    for known in KNOWN.values():
        if step in known and other in known:
            return known[step] / known[other]
    return work(step) / work(other)


def measurements(*folders: Path) -> list[Measured]:
    """From every result.json and kept result below the folders, and the step*.json of `benchmarks/step.py` in them."""
    found: list[Measured] = []
    for folder in folders:
        for path in folder.rglob("*.json"):
            if path.parent.name != "checkpoints":
                with suppress(OSError, KeyError, TypeError, AttributeError, ValueError, OverflowError):  # another file
                    these = _of_file(read_json(path))
                    found += [each for each in these if 0 < each.seconds < math.inf and work(each.shape) > 0]
    return found


def _of_file(facts: dict[str, Any]) -> list[Measured]:
    machine = str(facts.get("machine"))
    if "rows" in facts:
        rows = [row for row in facts["rows"] if row.get("method") in METHODS and row.get("kernels", True)]
        return [Measured(_of_row(row), row["ms"] / 1000, machine) for row in rows]
    alone = facts.get("at_a_time", 1) == facts.get("ranks", 1) == 1  # a part of a GPU, or several, tell little of one
    if "run" not in facts or not facts.get("seconds") or not alone:
        return []
    run = Run.from_json(json.dumps(facts["run"]))
    return [Measured(shape(run), facts["seconds"] / steps(run), machine)]


def _of_row(row: dict[str, Any]) -> Shape:
    batch, uratio, strong = row.get("batch", 64), row.get("uratio", 3), row.get("strong", "cta")
    return Shape(row["network"], int(row["size"]), int(batch), int(uratio), row["method"], 1, str(strong))


def wall_time(seconds: Iterable[float], machines: int) -> float:
    """When the last run ends if each machine, once free, takes the longest run that is left."""
    free = [0.0] * machines
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + each)
    return max(free)
