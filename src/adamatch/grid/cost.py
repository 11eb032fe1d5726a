"""What a grid costs: steps, hours of one machine, and days on K, from step times that were measured here or elsewhere."""

import heapq
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from adamatch.base.files import read_json
from adamatch.config.run import Run
from adamatch.grid.step_times import MEASURED
from adamatch.images.tasks import POOLS
from adamatch.methods import METHODS, Method, arguments

# Multiply-adds of one image's forward, in 10^9, at a side of so many pixels.
NETWORKS = {
    "wrn-tiny": (0.000203, 8),
    "wrn-small": (0.00313, 16),
    "wrn-28-2": (0.2144, 32),
    "wrn-34-2": (1.143, 64),
    "resnetv2-50": (4.087, 224),
    "resnetv2-101": (7.799, 224),
}
# Of a network that was measured nowhere: what one H200 made of AdaMatch on WRN-28-2 at 32 x 32.
ASSUMED = 2 * 0.2144e9 * 3 * 640 / 0.0068  # operations per second
ASSUMPTION = "assumed: as many operations per second as in AdaMatch's step of WRN-28-2 at 32 x 32 on one H200, which takes 6.8 ms"


class Shape(NamedTuple):
    """What makes two runs' steps cost the same."""

    network: str
    size: int
    batch: int
    uratio: int
    method: str
    pools: int  # labelled batches in a step
    strong: str


class Measured(NamedTuple):
    shape: Shape
    seconds: float  # of one step
    machine: str


# What is known wherever this package is.
KNOWN = [Measured(Shape(*step), ms / 1000, machine) for machine, step, ms in MEASURED]


class Estimate(NamedTuple):
    steps: int
    seconds: float
    basis: str


def shape(run: Run) -> Shape:
    recipe = run.recipe
    pools = POOLS.get(run.task, 1)
    method = (
        "supervised" if run.method == "noisystudent" else run.method
    )  # teachers and students learn from labels alone
    return Shape(recipe.network, recipe.size, recipe.batch, recipe.uratio, method, pools, recipe.strong)


def steps(run: Run) -> int:
    """Steps of the whole run; a teacher's and each student's count."""
    if run.method != "noisystudent":
        return run.recipe.last_step
    return run.recipe.last_step * (1 + arguments.count("generations", run.options.get("generations", 1)))


def length(run: Run) -> float:
    """Steps of the whole run, and how many steps would be as long as learning without labels before them, where it is done."""
    if run.continues or not METHODS.get(run.method, Method).unlabelled:
        return steps(run)  # an earlier run has learned so, or the method never looks at such images: train/beginning.py
    return steps(run) + 2 * run.recipe.contrastive / images(shape(run))  # two views


def work(step: Shape) -> float:
    """Operations of a step's forwards and backwards (a backward is two forwards)."""
    forward, side = NETWORKS.get(step.network, NETWORKS["resnetv2-101"])
    return 2e9 * forward * (step.size / side) ** 2 * 3 * images(step)


def images(step: Shape) -> int:
    """How many images a step sends through the network, each time that it does counted."""
    labelled, unlabelled = step.batch * step.pools, step.batch * step.uratio
    return {
        "adamatch": 4 * labelled + 2 * unlabelled,  # two views; labelled images go through twice
        "fixmatch+": 2 * labelled + 2 * unlabelled,
        "baseline_bn": 2 * labelled + 2 * unlabelled,
        "mcd": 2 * labelled + 2 * unlabelled,  # weak views; labelled in phases 1 and 2, unlabelled in 2 and 3
    }.get(step.method, 2 * labelled)


def measurements(*folders: Path) -> list[Measured]:
    """From every result.json and kept result below the folders, and the step*.json of `benchmarks/step.py` in them."""
    found: list[Measured] = []
    for folder in folders:
        for path in sorted(folder.rglob("*.json")):
            if path.parent.name != "checkpoints":
                found += _of_file(path)
    return found


def _of_file(path: Path) -> list[Measured]:
    try:
        facts = read_json(path)
    except (OSError, ValueError):
        return []
    if not isinstance(facts, dict):
        return []
    try:
        found = _of_facts(facts)
        if all(work(each.shape) > 0 and 0 < each.seconds < math.inf for each in found):
            return found
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
        pass
    return []  # somebody else's file, or another version's


def _of_facts(facts: dict[str, Any]) -> list[Measured]:
    if "rows" in facts:
        rows = [row for row in facts["rows"] if row.get("method") in METHODS and row.get("kernels", True)]
        return [_of_row(row, str(facts.get("machine"))) for row in rows]
    alone = facts.get("at_a_time", 1) == facts.get("ranks", 1) == 1  # a part of a GPU, or several, tell little of one
    if "run" not in facts or not facts.get("seconds") or not alone:
        return []
    run = Run.from_json(json.dumps(facts["run"]))
    return [Measured(shape(run), facts["seconds"] / steps(run), str(facts.get("machine")))]


def _of_row(row: dict[str, Any], machine: str) -> Measured:
    batch, uratio, strong = row.get("batch", 64), row.get("uratio", 3), row.get("strong", "cta")
    shape = Shape(str(row["network"]), int(row["size"]), int(batch), int(uratio), row["method"], 1, str(strong))
    return Measured(shape, float(row["ms"]) / 1000, machine)


@dataclass(frozen=True)
class Rates:
    """Step times by measurement, one's own before those that are known: of the same step, else scaled from others of the same
    network and size (and method, where that was measured); else assumed."""

    measured: Sequence[Measured] = ()

    def estimate(self, run: Run) -> Estimate:
        seconds, basis = (
            _step(shape(run), self.measured) or _step(shape(run), KNOWN) or (work(shape(run)) / ASSUMED, ASSUMPTION)
        )
        return Estimate(steps(run), seconds * length(run), basis)


def _step(wanted: Shape, measured: Sequence[Measured]) -> tuple[float, str] | None:
    """Seconds of a step and what they rest on, where there is something to rest on."""
    if same := [each for each in measured if each.shape == wanted]:
        seconds, machine = _fastest(same, wanted)
        return seconds, f"measured on {machine}"
    if near := [each for each in measured if each.shape[:2] == wanted[:2]]:
        seconds, machine = _fastest([each for each in near if each.shape.method == wanted.method] or near, wanted)
        return seconds, f"scaled from other steps of {wanted.network} at {wanted.size} on {machine}"
    return None


def _fastest(measured: Iterable[Measured], wanted: Shape) -> tuple[float, str]:
    """Seconds of a step on the fastest machine, the median of what was measured there."""
    by_machine: dict[str, list[float]] = {}
    for each in measured:
        by_machine.setdefault(each.machine, []).append(each.seconds * _times_as_long(wanted, each.shape))
    return min((statistics.median(values), machine) for machine, values in by_machine.items())


def _times_as_long(step: Shape, other: Shape) -> float:
    """What one step takes by another: as both were measured on one machine, else by operations."""
    for machine in dict.fromkeys(each.machine for each in KNOWN):
        known = {each.shape: each.seconds for each in KNOWN if each.machine == machine}
        if step in known and other in known:
            return known[step] / known[other]
    return work(step) / work(other)


def step_times(runs: Iterable[Run], estimates: Mapping[str, Estimate]) -> list[str]:
    """The milliseconds that estimates (by run id) rest on, a line for each network and size."""
    times: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        estimate = estimates[run.id]
        ms = 1000 * estimate.seconds / length(run)
        times.setdefault((run.recipe.network, run.recipe.size), []).append(ms)
    return [
        f"a step of {network} at {size} x {size}: {min(ms):.3g} to {max(ms):.3g} ms, by method and labelled pools"
        for (network, size), ms in times.items()
    ]


def wall_time(seconds: Iterable[float], machines: int) -> float:
    """When the last run ends if each machine, once free, takes the longest run that is left."""
    free = [0.0] * machines
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + each)
    return max(free)
