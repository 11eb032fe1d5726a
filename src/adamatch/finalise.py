"""How a training ends: its model and result.json. How `fit` ends: the verdict, and what is in the run's folder."""

import copy
import datetime
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import adamatch
from adamatch import card
from adamatch.ask import target
from adamatch.base import manifest, ranks
from adamatch.base.files import read_sealed, sealed, write_atomically
from adamatch.config.run import Run
from adamatch.evaluate import Evaluation, predict_together
from adamatch.images.checks import Finding
from adamatch.images.store import Pixels
from adamatch.images.tasks import Problem, split_hash
from adamatch.model import Model
from adamatch.networks.frozen import Upper
from adamatch.prepare import Prepared, Training
from adamatch.report.printed import measured
from adamatch.train.loop import History
from adamatch.train.run_folder import RunFolder
from adamatch.verdict import eval_outputs
from adamatch.verdict.verdict import FILE, TWIN, VERSION, verdict

LONG = ("rows", "pairs", "files")  # lists of images: in judge.json, not in the model


def finished(training: Training, ready: Prepared, average: nn.Module, history: History) -> Model:
    """Save the model of a training that is done, and its result."""
    run, recipe, method = training.run, training.run.recipe, ready.step.method
    shares = None if method.shares is None else [round(share, 4) for share in method.shares.tolist()]
    facts = result(run, ready.problem, history, training.before) | {"weights": ready.weights, "target_shares": shares}
    model = Model(
        average.net if isinstance(average, Upper) else average,
        training.problem.classes,
        recipe.size,
        "" if training.net is not None else recipe.network,
        training.execution.machine,
        {"accuracy": facts["accuracy"], "run": facts["run"]},
        recipe.shape,
        white=recipe.white,
    )
    return saved(model, training.folder, facts)


def reopened(training: Training) -> Model:
    """The model of a training that was finished before."""
    machine, net = training.execution.machine, copy.deepcopy(training.net)
    return replace(Model.load(training.folder.path, net=net, device=str(machine.device)), machine=machine)


def tested(training: Training, model: Model, done: dict[str, Any]) -> Model:
    """The model, evaluated if a test set was given after training; the result notes that."""
    test = training.run.test
    if not test or done.get("run", {}).get("test", "") == test:
        return model
    with training.execution.bar("measuring accuracy on the test images"):
        found = Evaluation({"target": training.problem.tests["target"]}, model.machine)(model.net)["target"]
    facts = done | {"accuracy": found, "last": found, "tested": "after training, the final model alone"}
    facts["run"] = done.get("run", {}) | {"test": test}
    return saved(replace(model, history=model.history | {"accuracy": found}), training.folder, facts)


def saved(model: Model, folder: RunFolder, facts: Mapping[str, Any]) -> Model:
    """The model first: a run is finished when it has a result."""
    folder.check()
    if ranks.rank() == 0:
        model.save(folder.path)
    folder.finish(facts)
    return model


def result(run: Run, problem: Problem, history: History, before: Mapping[str, Any]) -> dict[str, Any]:
    """The content of result.json. The reported accuracy is the median; the best is an oracle's and chooses nothing.

    `before` is the result of its teacher, if it had one: that time counts.
    """
    targets = [row["target"] for row in history.evaluations if "target" in row]
    chosen = problem.chosen
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
        "labelled_subset": {"rows": list(chosen), "hash": split_hash(chosen)} if chosen else None,
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


def finalised(model: Model, problem: Problem, folder: RunFolder, findings: Sequence[Finding]) -> Model:
    """Add the estimate and the verdict to the saved model. `findings`: what was found in the images."""
    _predict_target(model, problem, folder)
    estimate = ranks.from_first(lambda: measured(folder, problem))
    found = ranks.from_first(lambda: _verdict(problem, folder, findings))
    history = model.history | {"estimate": estimate, "images": _counts(problem)}
    history |= {"judge": _shortened(found)} if found else {}
    known = replace(model, history=history)
    if ranks.rank() == 0 and known.history != model.history:
        facts: dict[str, Any] = {"classes": known.classes, "network": known.network, "size": known.size}
        write_atomically(folder.path / card.CARD, card.text(**facts, history=history))
        known.save(folder.path)  # last: from its history the same command knows that this is done
    return known


def _counts(problem: Problem) -> dict[str, int]:
    """How many images there were, by what they were used for."""
    source, *few = map(len, problem.labelled)
    held_out = len(problem.tests.get("source", ()))
    return {"labelled": source, "target_labels": sum(few), "unlabelled": len(problem.unlabelled), "held_out": held_out}


def _predict_target(model: Model, problem: Problem, folder: RunFolder) -> None:
    """Save what model and twin say of every target image, from their last outputs where these hold all images."""
    if ranks.from_first(lambda: target.is_current(folder.path)):
        return
    said: list[target.Said | None] = [None, None]
    for number, path in enumerate((folder.path, folder.path / TWIN)):
        if not ranks.from_first(lambda path=path: (path / "result.json").exists()):  # type: ignore[misc]
            continue
        outputs = ranks.from_first(lambda path=path: eval_outputs.read(path))  # type: ignore[misc]
        if outputs is not None and outputs.target.shape[1] == len(problem.unlabelled):
            said[number] = target.Said.of(outputs.last)
            continue
        each = model if path == folder.path else Model.load(path, net=copy.deepcopy(model.net))
        parts = [predict_together(each.net, images, model.machine) for images in problem.unlabelled.plain]
        said[number] = target.Said.of(np.concatenate(parts))
    if ranks.rank() == 0 and said[0] is not None:
        target.write(folder.path, said[0], said[1], _taught(problem))


def _taught(problem: Problem) -> NDArray[np.bool_]:
    """Which unlabelled images are among the labelled ones, too: their labels were learned from."""

    def key(image: Pixels) -> bytes:
        step = max(1, len(image) // 16)  # some of the pixels are enough
        return image[::step, ::step].tobytes()

    known = {key(image) for pool in problem.labelled for part in pool.parts for image in part}
    return np.array([key(image) in known for part in problem.unlabelled.plain for image in part])


def _verdict(problem: Problem, folder: RunFolder, findings: Sequence[Finding]) -> dict[str, Any] | None:
    """The saved verdict, or a new one where there is none or it lacks the twin; None without predictions."""
    with_twin = (folder.path / TWIN / "result.json").exists()
    before = _verdict_in(folder)
    if before and (before["twin"] is not None or not with_twin):
        return before
    outputs = eval_outputs.read(folder.path)
    if outputs is None:
        return None
    if with_twin:
        outputs = outputs.with_twin(eval_outputs.read(folder.path / TWIN))
    found = verdict(outputs, problem.unlabelled, problem.labelled[0], problem.classes, findings)
    manifest.forget(folder.path, FILE)
    write_atomically(folder.path / FILE, json.dumps(sealed(found), indent=1))
    return found


def _verdict_in(folder: RunFolder) -> dict[str, Any] | None:
    """judge.json; None where it is missing, damaged, or of another version."""
    try:
        saved = read_sealed(folder.path / FILE)
    except (FileNotFoundError, ValueError):
        return None
    return saved if saved["version"] == VERSION else None


def _shortened(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _shortened(value) for name, value in found.items() if name not in LONG}
    return [_shortened(each) for each in found] if isinstance(found, list) else found
