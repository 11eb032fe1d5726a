"""What finished runs say, made into figures: mean and standard deviation over seeds, the paper's beside them."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from adamatch.base.errors import InputError, shortened
from adamatch.base.files import read_json
from adamatch.config.presets import BUDGETS, PAPER, recipe
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.datasets.benchmarks import BENCHMARKS
from adamatch.grid import published
from adamatch.grid.render import Figure
from adamatch.images.tasks import POOLS
from adamatch.methods import METHODS
from adamatch.train.run_folder import read_result


class Done(NamedTuple):
    """A finished run: its cell in the tables (oracle is a method of UDA there), and its result."""

    run: Run
    method: str
    task: str
    variant: str  # what makes it another than the benchmark's recipe, as "tau=0.8"
    result: dict[str, Any]

    @property
    def setting(self) -> tuple[str, str, int]:
        """Benchmark, task and labels per class: what has to be the same where methods are compared."""
        return (self.run.benchmark, self.task, self.run.labels)

    @property
    def pair(self) -> tuple[str, str]:
        return (self.run.source, self.run.target)


def read(folder: Path) -> list[dict[str, Any]]:
    """All results in a folder: kept ones (NAME.json) and those of run folders (NAME/result.json)."""
    paths = sorted({*folder.glob("*.json"), *folder.glob("*/result.json")})
    results = {}
    for path in paths:
        try:
            facts = read_json(path)
        except ValueError:
            raise InputError(f"{path} is not a result: its JSON cannot be read") from None
        if isinstance(facts, dict) and facts.keys() >= {"id", "run", "accuracy"}:
            results[str(facts["id"])] = _sound(read_result(path), path)
    return list(results.values())


def _sound(result: dict[str, Any], path: Path) -> dict[str, Any]:
    """Of the kinds that a table needs; whatever else there is, is not looked at."""
    versions, shared = result.get("versions", {}), result.get("at_a_time", 1)
    texts = [result.get("machine", ""), result.get("date", "")]
    if (
        not isinstance(versions, dict)
        or not isinstance(shared, int)
        or not all(isinstance(each, str) for each in texts)
    ):
        raise InputError(f"{path} is damaged: copy it anew")
    return result


def run_of(result: dict[str, Any]) -> Run:
    with suppress(ValueError, KeyError):
        run = Run.from_json(json.dumps(result["run"]))
        if run.task in POOLS and run.method in METHODS:
            return run
    raise InputError(
        f"result {shortened(result.get('id'))} was written by another version of adamatch: read it with that one"
    )


def cells_of(results: Iterable[dict[str, Any]]) -> list[Done]:
    """Finished runs with their cells. A task's usual recipe is a budget's, if any run has it, else the commonest.

    An oracle stands beside runs of UDA, so that its usual recipe is theirs, where there are any.
    """
    each_once = {result["id"]: result for result in results if result.get("accuracy") is not None}
    runs = [(run_of(result), result) for result in each_once.values()]
    usual: dict[tuple[str, str], Recipe] = {}
    for benchmark, task in dict.fromkeys((run.benchmark, run.task) for run, _ in runs):
        presets = [recipe(benchmark, budget, task) for budget in BUDGETS] if benchmark in PAPER else []
        mine = [run for run, _ in runs if (run.benchmark, run.task) == (benchmark, task)]
        recipes = Counter(_known(run, presets) for run in mine)
        usual[benchmark, task] = max(recipes, key=lambda each: (each in presets, recipes[each]))
    done = []
    for run, result in runs:
        method, task = ("oracle", "uda") if run.task == "oracle" else (run.method, run.task)
        theirs = usual.get((run.benchmark, task), usual[run.benchmark, run.task])
        done.append(Done(run, method, task, variant(run, theirs), result))
    return done


def _known(run: Run, presets: Sequence[Recipe]) -> Recipe:
    """The preset that a run has, though nothing of it be spread with one label per class; else its recipe."""
    return next((each for each in presets if replace(run, recipe=each) == run), run.recipe)


def variant(run: Run, usual: Recipe) -> str:
    """What a run has of its own: options of its method, starting weights, hyper-parameters other than the usual ones."""
    mine, theirs = asdict(run.recipe), asdict(replace(run, recipe=usual).recipe)
    if run.recipe.repeat:  # nothing is spread then
        del mine["spread"]
    own = dict(run.options) | {name: value for name, value in mine.items() if value != theirs[name]}
    if run.weights:
        own["weights"] = run.weights
    return ", ".join(f"{name}={value}" for name, value in own.items())


def figure(done: Sequence[Done]) -> Figure:
    """The mean over pairs; the spread is that of this mean over seeds, where every seed has the same pairs.

    Several results of one pair and seed, as of two budgets with the same recipe, are their mean.
    """
    by_both: dict[tuple[int, tuple[str, str]], list[float]] = {}
    for each in done:
        by_both.setdefault((each.run.seed, each.pair), []).append(each.result["accuracy"])
    by_seed: dict[int, dict[tuple[str, str], float]] = {}
    by_pair: dict[tuple[str, str], list[float]] = {}
    for (seed, pair), values in by_both.items():
        by_seed.setdefault(seed, {})[pair] = statistics.fmean(values)
        by_pair.setdefault(pair, []).append(statistics.fmean(values))
    mean = statistics.fmean(statistics.fmean(values) for values in by_pair.values())
    even = len({frozenset(pairs) for pairs in by_seed.values()}) == 1
    if not even or len(by_seed) == 1:
        return Figure(mean, None, min(map(len, by_pair.values())))
    return Figure(mean, statistics.stdev(statistics.fmean(pairs.values()) for pairs in by_seed.values()), len(by_seed))


def beside(ours: Figure, done: Sequence[Done]) -> Figure:
    """With the paper's figure: of the same pairs where it is known, else the mean over all pairs."""
    first, pairs = done[0], list(dict.fromkeys(each.pair for each in done))
    benchmark = first.run.benchmark
    known = [published.pair(benchmark, first.task, first.method, *pair) for pair in pairs]
    if known and None not in known:
        return replace(ours, paper=statistics.fmean(each for each in known if each is not None))
    domains = len(BENCHMARKS[benchmark].domains) if benchmark in BENCHMARKS else 0
    everything = domains if first.task == "ssl" else domains * (domains - 1)
    mean = published.mean(benchmark, first.task, first.method, first.run.labels)
    return replace(ours, paper=mean, wider=mean is not None and len(pairs) < everything)
