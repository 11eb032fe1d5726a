"""One run, from configuration to result: open its folder, prepare, train, finish."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from adamatch import methods
from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.datasets import benchmarks
from adamatch.evaluate import Evaluation, predict_together
from adamatch.finalise import finished, reopened, tested
from adamatch.images.tasks import Labelled, Problem, Unlabelled, add_labelled
from adamatch.methods import NoisyStudent
from adamatch.model import Model
from adamatch.prepare import Training, prepare
from adamatch.train import distributed, loop, memory, speed, trackers
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Machine
from adamatch.verdict.eval_outputs import OutputWriter

RUNS = Path("runs")


def train(
    run: Run,
    *,
    out: str | Path | None = None,
    data: str | Path | None = None,
    machine: Machine | None = None,
    overwrite: bool = False,
    log: str | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Train on a benchmark, or resume; returns the content of result.json. `log`: "wandb" or "mlflow"."""
    trackers.check(log)
    machine = machine or speed.choose()
    size = benchmarks.get(run.benchmark).size
    if run.recipe.size != size:
        raise InputError(
            f"images of {run.benchmark} are of size {size}, and the recipe's of {run.recipe.size}: do not set size"
        )
    with distributed.joined(machine.device):
        problem = problem_of(run, data)
        distributed.agree(run, problem)
        folder = RunFolder(Path(out) if out else RUNS / run.name)
        solve(run, problem, folder, Execution(machine, quiet=quiet, log=log), overwrite=overwrite)
        return ranks.from_first(folder.result) or {}


def problem_of(run: Run, data: str | Path | None = None) -> Problem:
    """The images of a benchmark's run; `data` is where prepared sets are stored."""
    if run.seeds > 1:
        raise InputError("several seeds are for fit: train one run for each of them")
    return benchmarks.problem(
        run.benchmark,
        task=run.task,
        source=run.source,
        target=run.target,
        labels=run.labels,
        seed=run.seed,
        root=Path(data) if data else None,
    )


def solve(
    run: Run,
    problem: Problem,
    folder: RunFolder,
    execution: Execution,
    *,
    net: nn.Module | None = None,
    overwrite: bool = False,
) -> Model:
    """Train on a problem, generation after generation where the method has them, and save the model."""
    with folder.claim(run, overwrite=overwrite) as run, memory.explained(folder.path):
        training = Training(run, problem, folder, execution, net)
        if (done := ranks.from_first(folder.result)) is not None:
            again = argument("overwrite", True)
            execution.say(f"the run in {folder.path} is finished, and is not trained again ({again} would)")
            saved = reopened(training)
            folder.list_files()  # where it was killed before that
            return tested(training, saved, done)
        if run.continues:
            model = f"the model of the finished run, which is in {folder.earlier}"
            execution.say(f"this is another run: {run.recipe.images:,} images, from {model}")
        for number in range(methods.get(run.method).generations(run.options)):
            teacher = replace(training, folder=folder.stage(f"generation-{number}"))
            if ranks.from_first(teacher.folder.result) is None:
                _train(teacher)
            # Always the saved model: its labels must not depend on an interruption here.
            labelled, before = _labelled_by(reopened(teacher), training), ranks.from_first(teacher.folder.result)
            taught = add_labelled(problem, labelled, run.recipe.uratio, run.seed)
            training = replace(training, problem=taught, number=number + 1, before=before or {})
        return _train(training)


def _train(training: Training) -> Model:
    """From the first weights to a saved model and its result.json."""
    run, folder, execution = training.run, training.folder, training.execution.restarted()
    ready = prepare(training)
    evaluate = _evaluation(ready.problem, training.problem.unlabelled, folder, execution, run.recipe.last_step)
    trained_on = replace(ready.problem, tests={})  # only `evaluate` may see test sets
    average, history = loop.train(run, trained_on, folder, ready.step, evaluate, execution)
    return finished(training, ready, average, history)


def _evaluation(
    problem: Problem, given: Unlabelled, folder: RunFolder, execution: Execution, last: int
) -> loop.Evaluate:
    """Measures accuracy where there are labels, and saves the predictions for the unlabelled images `given`."""
    machine, held_out = execution.machine, problem.tests.get("source")
    accuracies = Evaluation(problem.tests, machine)
    outputs = OutputWriter(problem.classes, problem.unlabelled, given, held_out, folder.path, machine)

    def evaluate(net: nn.Module, step: int) -> dict[str, float]:  # holds no problem, and so no test set
        if step == last or not execution.brief:
            outputs(net, step)
        return accuracies(net)

    return evaluate


def _labelled_by(teacher: Model, training: Training) -> Labelled:
    """Unlabelled images on which a teacher is confident, with its soft predictions as labels (NoisyStudent)."""
    run, classes = training.run, len(teacher.classes)
    method = methods.build(run.method, classes=classes, net=teacher.net, recipe=run.recipe, options=run.options)
    assert isinstance(method, NoisyStudent)
    parts, labels = [], []
    for images in training.problem.unlabelled.parts:
        probabilities = predict_together(teacher.net, images, teacher.machine)
        keep = method.keep(torch.from_numpy(probabilities)).numpy()
        parts.append(images[keep])
        labels.append(probabilities[keep])
    return Labelled(tuple(parts), np.concatenate(labels))
