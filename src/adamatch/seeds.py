"""Several seeds of one run: trained one after another, compared without labels of the target, and made one model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from adamatch import experiment, methods
from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError
from adamatch.base.files import read_checked, write_atomically
from adamatch.config.run import Run
from adamatch.evaluate import Evaluation
from adamatch.finalise import reopened, result, saved
from adamatch.images.tasks import Problem
from adamatch.initialise.embed import batches
from adamatch.kernels import runtime
from adamatch.model import Model
from adamatch.networks.average import mean_of
from adamatch.networks.norm import estimate_statistics
from adamatch.prepare import Training
from adamatch.train.execution import Execution
from adamatch.train.loop import History
from adamatch.train.run_folder import RunFolder
from adamatch.verdict import between_seeds, eval_outputs

FOLDER = "seeds"  # in a run's folder: a whole run for each seed
METRICS = "metrics.jsonl"


def check(count: int, *, trained: bool) -> None:
    """Refuse several seeds where they change nothing, or cannot be trained. `trained`: more than a classifier is."""
    leave = f"leave out {argument('seeds')}"
    if count > 1 and not trained:
        raise InputError(f"only a classifier is trained here, and every seed ends with the same one: {leave}")
    if count > 1 and ranks.count() > 1:
        raise InputError(f"several seeds are trained one after another, by one process: {leave}, or torchrun")


def solve(
    run: Run,
    problem: Problem,
    folder: RunFolder,
    execution: Execution,
    *,
    net: nn.Module | None = None,
    overwrite: bool = False,
) -> Model:
    """Train every seed of a run, each in a folder of its own, and save what they become. One seed is a run as ever."""
    if run.seeds == 1:
        return experiment.solve(run, problem, folder, execution, net=net, overwrite=overwrite)
    with folder.claim(run, overwrite=overwrite) as run:
        if folder.result() is not None:
            return experiment.solve(run, problem, folder, execution, net=net)
        trained = {}
        for number, each in enumerate(run.each_seed, 1):
            inside = RunFolder(folder.path / FOLDER / str(each.seed))
            inside.earlier = folder.earlier
            done = inside.result() is not None
            cost = execution.twin_cost * run.seeds if number == run.seeds else 0.0  # the twin comes after the last
            whose, quiet = f"seed {number} of {run.seeds}: ", execution.quiet or done
            execution.maps.clear()  # those of another seed
            how = replace(execution, whose=whose, quiet=quiet, twin_cost=cost)
            experiment.solve(each, problem, inside, how, net=net)
            trained[each.seed] = Training(run, problem, inside, execution, net)
        with replace(execution, whose="").bar("comparing the seeds"):
            return _joined(trained, folder)


def _joined(trained: Mapping[int, Training], folder: RunFolder) -> Model:
    """One model of several seeds: the average of their weights where that works, else the nearest to all of them."""
    found = {seed: _said(each.folder) for seed, each in trained.items()}
    facts = between_seeds.compared(found)
    nearest = trained[facts["nearest"]]
    run, problem, machine = nearest.run, nearest.problem, nearest.execution.machine
    model = reopened(nearest)
    average = mean_of(reopened(trained[seed]).net for seed in between_seeds.remaining(facts))
    seen = problem.unlabelled if methods.get(run.method).unlabelled else None
    with runtime.off(average):
        estimate_statistics(average, batches(problem.labelled, seen, machine), like=model.net)
    target, held_out = problem.unlabelled, problem.tests.get("source")
    write = eval_outputs.OutputWriter(problem.classes, target, target, held_out, folder.path, machine)
    write(average.eval(), run.recipe.last_step)
    facts = between_seeds.judged(facts, found, _said(folder))
    if facts["average"]:
        model = replace(model, net=average)
    else:
        write(model.net, run.recipe.last_step)
    write_atomically(folder.path / METRICS, read_checked(nearest.folder.path / METRICS).decode())
    done = [each.folder.result() or {} for each in trained.values()]
    known = _result(nearest, done, model.net) | {"seeds": facts}
    history = {name: known[name] for name in ("accuracy", "run")}
    return saved(replace(model, folder=folder.path, history=history), folder, known)


def _said(folder: RunFolder) -> eval_outputs.EvalOutputs:
    found = eval_outputs.read(folder.path)
    if found is None:
        raise InputError(f"{folder.path} has lost its outputs: give {argument('overwrite', True)} to begin anew")
    return between_seeds.middle_and_last(found)


def _result(nearest: Training, done: list[dict[str, Any]], net: nn.Module) -> dict[str, Any]:
    """The content of result.json: the final model is measured, once; the time is that of all seeds."""
    run, machine = nearest.run, nearest.execution.machine
    step = run.recipe.last_step
    row = {"step": step, "images": step * run.recipe.batch, **Evaluation(nearest.problem.tests, machine)(net)}
    seconds, wall = (sum(each[name] for each in done) for name in ("seconds", "wall_seconds"))
    machines = list(dict.fromkeys(each["machine"] for each in done))
    history = History([row], seconds, wall, machines, max(each["at_a_time"] for each in done))
    its = nearest.folder.result() or {}
    return result(run, nearest.problem, history, {}) | {name: its[name] for name in ("weights", "target_shares")}
