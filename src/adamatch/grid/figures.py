"""Figures from finished runs: mean and standard deviation over seeds, the paper's accuracy beside them."""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from adamatch.base.errors import InputError, shortened
from adamatch.base.files import read_json
from adamatch.config.presets import BUDGETS, PAPER, recipe
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.grid import published
from adamatch.grid.render import Figure
from adamatch.images.tasks import POOLS
from adamatch.methods import METHODS
from adamatch.train.run_folder import read_result

TYPES: dict[str, type] = {
    "id": str,
    "versions": dict,
    "at_a_time": int,
    "machine": str,
    "date": str,
}  # as tables need them
T = TypeVar("T")
K = TypeVar("K")


class Done(NamedTuple):
    """A finished run with its place in the tables, where an oracle is a method of UDA."""

    run: Run
    method: str
    task: str
    variant: str  # how it differs from the usual recipe of its task, as "tau=0.8"
    result: dict[str, Any]

    @property
    def setting(self) -> tuple[str, str, int]:
        """Benchmark, task and labels per class: methods are compared within one setting."""
        return (self.run.benchmark, self.task, self.run.labels)

    @property
    def title(self) -> str:
        benchmark, task, labels = self.setting
        return f"{benchmark}, {task.upper()}{f', {labels} per class' if labels else ''}"

    @property
    def at_a_time(self) -> int:
        """How many runs shared the GPU."""
        return int(self.result.get("at_a_time", 1))

    @property
    def pair(self) -> tuple[str, str]:
        return (self.run.source, self.run.target)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Lists of items by their key, in the order in which keys first appear."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def read(folder: Path) -> list[dict[str, Any]]:
    """All results in a folder, each run's once: kept ones (NAME.json) and those of run folders (NAME/result.json)."""
    results = {}
    for path in sorted({*folder.glob("*.json"), *folder.glob("*/result.json")}):
        try:
            facts = read_json(path)
        except ValueError:
            raise InputError(f"{path} is not a result: its JSON cannot be read") from None
        if isinstance(facts, dict) and facts.keys() >= {"id", "run", "accuracy"}:
            result = results[str(facts["id"])] = read_result(path)
            if not all(isinstance(result.get(name, kind()), kind) for name, kind in TYPES.items()):
                raise InputError(f"{path} is damaged: copy it anew")
    return list(results.values())


def run_of(result: dict[str, Any]) -> Run:
    with suppress(ValueError, KeyError):
        run = Run.from_json(json.dumps(result["run"]))
        if run.task in POOLS and run.method in METHODS:
            return run
    which = shortened(result.get("id"))
    raise InputError(f"result {which} was written by another version of adamatch: read it with that one")


def finished(results: Iterable[dict[str, Any]]) -> list[Done]:
    """Finished runs, each once. The usual recipe of a task is a budget's if any run has it, else the most frequent one.

    An oracle is compared with UDA, so its usual recipe is that of UDA if there are such runs.
    """
    each_once = {result["id"]: result for result in results if result.get("accuracy") is not None}
    runs = [(run_of(result), result) for result in each_once.values()]
    usual: dict[tuple[str, str], Recipe] = {}
    for (benchmark, task), mine in grouped(runs, lambda each: (each[0].benchmark, each[0].task)).items():
        presets = [recipe(benchmark, budget, task) for budget in BUDGETS] if benchmark in PAPER else []
        recipes = Counter(_preset(run, presets) for run, _ in mine)
        usual[benchmark, task] = max(recipes, key=lambda each: (each in presets, recipes[each]))
    done = []
    for run, result in runs:
        method, task = ("oracle", "uda") if run.task == "oracle" else (run.method, run.task)
        theirs = usual.get((run.benchmark, task), usual[run.benchmark, run.task])
        done.append(Done(run, method, task, variant(run, theirs), result))
    return done


def _preset(run: Run, presets: Sequence[Recipe]) -> Recipe:
    """The preset that the run was made from (which may have changed `spread` of it), else its recipe."""
    return next((each for each in presets if replace(run, recipe=each) == run), run.recipe)


def variant(run: Run, usual: Recipe) -> str:
    """How a run differs from the usual recipe: method options, hyper-parameters, starting weights."""
    mine, theirs = asdict(run.recipe), asdict(replace(run, recipe=usual).recipe)
    if run.recipe.repeat:  # `spread` has no effect then
        del mine["target_label_steps"]
    own = dict(run.options) | {name: value for name, value in mine.items() if value != theirs[name]}
    if run.weights:
        own["weights"] = run.weights
    return ", ".join(f"{name}={value}" for name, value in own.items())


def figure(done: Sequence[Done]) -> Figure:
    """The mean over pairs, with its standard deviation over seeds where every seed has the same pairs.

    Several results of one pair and seed, as of two budgets with the same recipe, count as their mean.
    """
    means = {
        key: statistics.fmean(each.result["accuracy"] for each in group)
        for key, group in grouped(done, lambda each: (each.run.seed, each.pair)).items()
    }
    by_seed = grouped(means, lambda key: key[0])
    by_pair = grouped(means, lambda key: key[1])
    mean = statistics.fmean(statistics.fmean(means[key] for key in keys) for keys in by_pair.values())
    std, n = None, min(map(len, by_pair.values()))
    if len(by_seed) > 1 and len({frozenset(pair for _, pair in keys) for keys in by_seed.values()}) == 1:
        std = statistics.stdev(statistics.fmean(means[key] for key in keys) for keys in by_seed.values())
    first = done[0]
    paper, wider = published.accuracy(*first.setting[:2], first.method, first.run.labels, by_pair.keys(), first.variant)
    return Figure(mean, std, n, paper, wider)
