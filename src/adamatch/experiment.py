"""One run from configuration to result: the problem, the network, the method, the loop, the model, `result.json`."""

import copy
import datetime
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import adamatch
from adamatch import methods, networks
from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError
from adamatch.config.run import Run
from adamatch.datasets import benchmarks
from adamatch.evaluate import Evaluation, predict_together
from adamatch.images.feed import Place
from adamatch.images.tasks import Labelled, Problem, Unlabelled, add_labelled, split_hash
from adamatch.initialise.feature_cache import FeatureCache
from adamatch.initialise.stages import initialise
from adamatch.methods import NoisyStudent
from adamatch.model import Model
from adamatch.networks.frozen import Upper
from adamatch.networks.norm import has_batch_norm, has_foreign_batch_norm
from adamatch.networks.pretrained import IMAGENET, imagenet
from adamatch.networks.weights import load_weights
from adamatch.train import distributed, loop, memory, resume, speed
from adamatch.train.batches import method_of
from adamatch.train.execution import SECONDS_PER_CHECKPOINT, Execution
from adamatch.train.loop import History
from adamatch.train.progress import Progress
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Machine
from adamatch.train.step import Step
from adamatch.verdict.eval_outputs import OutputWriter

RUNS = Path("runs")


def train(
    run: Run,
    *,
    out: str | Path | None = None,
    data: str | Path | None = None,
    machine: Machine | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    place: Place = "auto",
    seconds_per_checkpoint: float = SECONDS_PER_CHECKPOINT,
) -> dict[str, Any]:
    """Do one run of a benchmark, or go on with it; returns what stands in its result.json."""
    machine = machine or speed.choose()
    size = benchmarks.get(run.benchmark).size
    if run.recipe.size != size:
        raise InputError(
            f"images of {run.benchmark} are of size {size}, and the recipe's of {run.recipe.size}: leave its size alone"
        )
    with distributed.joined(machine.device):
        problem = problem_of(run, data)
        folder = RunFolder(Path(out) if out else RUNS / run.name)
        solve(run, problem, folder, Execution(machine, place, quiet, seconds_per_checkpoint), overwrite=overwrite)
        return ranks.from_first(folder.result) or {}


def problem_of(run: Run, data: str | Path | None = None) -> Problem:
    """What a run of a benchmark trains on and is tested on; `data` is where prepared sets lie."""
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
    distributed.agree(run, problem)
    with folder.claim(run, overwrite=overwrite) as claimed, memory.explained(run.recipe, folder.path):
        run = ranks.from_first(lambda: claimed)  # the others do not see the folder
        say = Progress(run.recipe, quiet=execution.quiet).say
        done = ranks.from_first(folder.result)
        if done is not None:
            say(f"the run in {folder.path} is finished, and is not trained again ({argument('overwrite', True)} would)")
            model = _saved(run, problem, folder, copy.deepcopy(net), execution.machine)
            folder.list_files()  # where it was killed before that
            tested = done.get("run", {}).get("test", "") == run.test or not run.test
            return model if tested else _test_later(run, problem, folder, model, done)
        if run.continues:
            where = folder.path / resume.EARLIER
            say(
                f"this is another run: {run.recipe.images:,} images, "
                f"from the model of the finished run, which is in {where}"
            )
        generations, taught, before = methods.get(run.method).generations(run.options), problem, None
        for number in range(generations):
            stage = Stage(folder.stage(f"generation-{number}"), number, before, folder.path)
            if ranks.from_first(stage.folder.result) is None:
                _train(run, taught, stage, net, execution)
            before = ranks.from_first(stage.folder.result)
            # Always as it was saved: what it teaches must not depend on whether the run was interrupted here.
            teacher = _saved(run, problem, stage.folder, copy.deepcopy(net), execution.machine)
            sure = _teach(run, teacher.net, problem, execution.machine)
            taught = add_labelled(problem, sure, run.recipe.uratio, run.seed)
        return _train(run, taught, Stage(folder, generations, before, folder.path), net, execution)


@dataclass(frozen=True)
class Stage:
    """One training of a run: most have one, and those with teachers one for each of them before."""

    folder: RunFolder
    number: int
    before: Mapping[str, Any] | None  # the result of its teacher, whose seconds count
    root: Path  # the run's folder


def _saved(run: Run, problem: Problem, folder: RunFolder, net: nn.Module | None, machine: Machine) -> Model:
    """The model in the folder, on every rank: rank 0 reads it."""
    if ranks.rank() == 0:
        model = Model.load(folder.path, net=net, device=str(machine.device))
    else:
        built = net if net is not None else networks.build(run.recipe.network, len(problem.classes))
        network, recipe = "" if net is not None else run.recipe.network, run.recipe
        built = built.to(machine.device).eval()
        model = Model(built, problem.classes, recipe.size, network, machine, shape=recipe.shape, white=recipe.white)
    distributed.same_weights(model.net)
    return replace(model, machine=machine, history=ranks.from_first(lambda: model.history))


def _train(run: Run, problem: Problem, stage: Stage, net: nn.Module | None, execution: Execution) -> Model:
    """From the first weights to a saved model and its result.json."""
    execution, machine = execution.anew(), execution.machine
    torch.manual_seed(run.seed * 1000 + stage.number)  # fresh weights; everything later has generators of its own
    network = "" if net is not None else run.recipe.network
    # Every stage starts from the weights that were given.
    built = copy.deepcopy(net) if net is not None else networks.build(network, len(problem.classes))
    loaded, new_head = _start(built, run, stage.root)
    distributed.same_weights(built)
    trained = Upper(built, run.recipe.frozen) if run.recipe.frozen else built
    method = method_of(run, problem, trained)
    say = Progress(run.recipe, quiet=execution.quiet).say
    if not execution.brief:
        for note in (*problem.notes, *([loaded] if loaded else []), *_remarks(run, built)):
            say(note)
    given = problem.unlabelled
    if isinstance(trained, Upper):
        problem = FeatureCache(trained, run, execution)(problem, unlabelled=method.unlabelled)
    needs = {"new_head": new_head, "unlabelled": method.unlabelled}
    problem = initialise(trained, problem, run, stage.folder, execution, **needs)
    average, history = loop.train(
        run,
        replace(problem, tests={}),  # test sets are for `evaluate` alone
        stage.folder,
        Step(trained, method, run.recipe, machine, say),
        _evaluation(problem, given, stage.folder, execution, run.recipe.last_step),
        execution,
    )
    average = average.net if isinstance(average, Upper) else average
    shares = None if method.shares is None else [round(share, 4) for share in method.shares.tolist()]
    facts = result(run, problem, history, stage.before or {}) | {"weights": loaded, "target_shares": shares}
    told = {"accuracy": facts["accuracy"], "run": facts["run"]}
    shape, white = run.recipe.shape, run.recipe.white
    model = Model(average, problem.classes, run.recipe.size, network, machine, told, shape, white=white)
    stage.folder.check()
    if ranks.rank() == 0:
        model.save(stage.folder.path)
    stage.folder.finish(facts)
    return model


def _evaluation(
    problem: Problem, given: Unlabelled, folder: RunFolder, execution: Execution, last: int
) -> loop.Evaluate:
    """Measures accuracy where there are labels, and saves the predictions for the unlabelled images `given`."""
    accuracies, classes = Evaluation(problem.tests, execution.machine), problem.classes
    outputs = OutputWriter(
        classes, problem.unlabelled, given, problem.tests.get("source"), folder.path, execution.machine
    )

    def evaluate(net: nn.Module, step: int) -> dict[str, float]:  # holds no problem, and so no test set
        if step == last or not execution.brief:
            outputs(net, step)
        folder.name(classes)
        return accuracies(net)

    return evaluate


def _test_later(run: Run, problem: Problem, folder: RunFolder, model: Model, done: dict[str, Any]) -> Model:
    """A test set that came after training: the final model is measured, and the result says so."""
    found = Evaluation({"target": problem.tests["target"]}, model.machine)(model.net)["target"]
    facts = done | {"accuracy": found, "last": found, "tested": "after training, the final model alone"}
    facts["run"] = done.get("run", {}) | {"test": run.test}
    model = replace(model, history=model.history | {"accuracy": found})
    if ranks.rank() == 0:
        model.save(folder.path)
    folder.finish(facts)
    return model


def _start(net: nn.Module, run: Run, root: Path) -> tuple[str | None, bool]:
    """Give the network its starting weights, if it has any; returns what fitted, and whether its head is new."""
    if run.continues:
        if ranks.rank() == 0:  # the others get them from it
            net.load_state_dict(
                Model.load(root / resume.EARLIER, net=copy.deepcopy(net), device="cpu").net.state_dict()
            )
        return f"weights of the finished run in {root / resume.EARLIER}: all of them loaded", False
    if not run.weights:
        return None, False
    if run.weights != IMAGENET:
        report = load_weights(net, run.weights)
    else:
        report = replace(load_weights(net, imagenet(run.recipe.network)), where=f"{run.recipe.network}, ImageNet")
    return str(report), report.new_head


def _remarks(run: Run, net: nn.Module) -> Iterator[str]:
    """Warnings about a network before it is trained."""
    void = "both forwards of AdaMatch coincide, and interpolation changes nothing"
    if run.method == "adamatch" and not has_batch_norm(net):
        yield f"this network has no batch norm: {void}"
    elif run.method == "adamatch" and run.recipe.batch_norm == "kept":
        yield f"batch norm keeps the statistics it starts with: {void}"
    if ranks.count() > 1:
        yield f"{ranks.count()} ranks share every batch: {run.recipe.batch // ranks.count()} labelled images each"
        if has_foreign_batch_norm(net):
            other = "torch.nn.SyncBatchNorm has those of all (on GPUs)"
            yield f"this network's own kind of batch norm has statistics per rank: {other}"


def _teach(run: Run, teacher: nn.Module, problem: Problem, machine: Machine) -> Labelled:
    """Unlabelled images on which a teacher is confident, with its soft predictions as labels (NoisyStudent)."""
    classes = len(problem.classes)
    method = methods.build(run.method, classes=classes, net=teacher, recipe=run.recipe, options=run.options)
    assert isinstance(method, NoisyStudent)
    parts, labels = [], []
    for images in problem.unlabelled.parts:
        probabilities = predict_together(teacher, images, machine)
        keep = method.keep(torch.from_numpy(probabilities)).numpy()
        parts.append(images[keep])
        labels.append(probabilities[keep])
    return Labelled(tuple(parts), np.concatenate(labels))


def result(run: Run, problem: Problem, history: History, before: Mapping[str, Any]) -> dict[str, Any]:
    """The content of result.json. The reported accuracy is the median; the best is an oracle's and chooses nothing.

    `before` is the result of its teacher, if it had one: that time counts.
    """
    targets = [row["target"] for row in history.evaluations if "target" in row]
    return {
        "id": run.id,
        "run": asdict(run),
        "accuracy": history.accuracy("target"),
        "source_accuracy": history.accuracy("source"),
        "last": targets[-1] if targets else None,
        "best_ORACLE": max(targets, default=None),
        "evaluations": history.evaluations,
        "median_of": history.median_of,
        "evaluate_every_images": run.recipe.evaluate_every * run.recipe.batch,
        "labelled_subset": {"rows": list(problem.chosen), "hash": split_hash(problem.chosen)}
        if problem.chosen
        else None,
        "seconds": before.get("seconds", 0.0) + history.seconds,
        "wall_seconds": before.get("wall_seconds", 0.0) + history.wall,
        "machine": ", then ".join(history.machines),
        "at_a_time": history.at_a_time,
        "ranks": ranks.count(),
        "versions": versions(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def versions() -> Mapping[str, str]:
    own, python = adamatch.__version__, platform.python_version()
    return {"adamatch": own, "torch": torch.__version__, "python": python, "numpy": np.__version__}
