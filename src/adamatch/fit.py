"""Own images: one call from folders to a model."""

import copy
import functools
import hashlib
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adamatch import methods, plan
from adamatch import seeds as several
from adamatch import twin as twins
from adamatch.ask import answers
from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, shortened, unknown
from adamatch.config.recipe import Recipe
from adamatch.config.run import OWN, Run
from adamatch.config.schema import settings_of
from adamatch.finalise import finalised
from adamatch.images import checks
from adamatch.images.inputs import normalised
from adamatch.images.listing import contains, lies_in, same_files
from adamatch.images.reading import median_side
from adamatch.images.tasks import Problem, few_of_many
from adamatch.images.user_data import UserData, name_of
from adamatch.model import FILES, ONNX, Model, facts_of
from adamatch.networks import NETWORKS
from adamatch.networks.pretrained import IMAGENET, TIMM
from adamatch.report import page, printed
from adamatch.train import distributed, precompile, speed, trackers
from adamatch.train.batches import labelled_counts
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder
from adamatch.verdict.verdict import ALONE

NAMED = 10  # classes that are named before a run


def fit(
    source: Any,
    target: Any,
    out: str | Path,
    *,
    target_labels: Any = None,
    test: Any = None,
    labels_per_class: int | None = None,
    method: str = "adamatch",
    options: Mapping[str, Any] | None = None,
    network: str | nn.Module = "auto",
    weights: str = "auto",
    twin: bool = True,
    device: str = "auto",
    precision: str = "auto",
    compile: bool | None = None,  # noqa: A002
    seed: int = 0,
    seeds: int = 1,
    skip_bad: bool = False,
    overwrite: bool = False,
    report: bool = True,
    log: str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Model:
    """Train a classifier for `target` images from labelled `source` images.

    source          labelled images: one folder per class, a CSV of path,label, arrays (images, labels), a torch
                    dataset, {class: images}, and more (docs/inputs.md)
    target          images to adapt to; no labels are needed, and none are used
    out             the run's folder: model, metrics, checkpoints, and report.html, a page to look at. Called again, an
                    interrupted run is resumed from its last checkpoint
    target_labels   a few labelled target images, if there are any (semi-supervised domain adaptation); or the folder of
                    a run whose questions were answered (`adamatch ask`): images of no class are left out then
    test            labelled target images to evaluate on while training; used for measuring alone
    labels_per_class  use only so many labels of each source class; where source and target are the same
                    (semi-supervised learning), the other images serve without their labels
    method          adamatch, or another one of adamatch.methods; `options` are its arguments
    network         a name (efficientnet-lite0, wrn-28-2, timm:NAME, ...), or a module of your own whose output is one
                    logit per class (it is copied, not changed); it gets images as (x - 127.5) / 128
    weights         what a network given by its name starts from: "imagenet", "none", a file, or the folder of a run,
                    which says the network, too; "auto" is "imagenet" where the network has such weights
    twin            whether the same network is also trained on the labelled images alone, in the folder `twin`, to see
                    what adaptation changed: it takes a fifth to two thirds more time
    seeds           train so many runs, which differ in their seed alone, one after another; drop one that fell, and
                    make one model of the others. How far they agree on the target is said
    report          whether the page report.html is made; the same call makes it later, without training again
    log             "wandb" or "mlflow": configuration, metrics and result go there, too (docs/questions.md)
    settings        hyper-parameters: size, images, batch, lr, strong, mirror, repeat, frozen (below)

    What is left at "auto" is chosen for the machine and the images, and printed. A tenth of the labelled source images
    is held out. What is wrong with the images is printed before training. What can be known of the result is printed
    at the end, and is in judge.json and `model.history["judge"]`: accuracy on the target as a range, without a label of
    it; what adaptation changed; signs that source and target do not fit.
    """
    machine = speed.choose(device, precision, compile)
    trackers.check(log)
    with distributed.joined(machine.device):
        given = {"source": source, "target": target, "target_labels": target_labels, "test": test}
        once = {id(images): normalised(images) for images in given.values()}  # what is given twice stays one thing
        given = {role: once[id(images)] for role, images in given.items()}
        out = Path(out).expanduser()
        _check(given, out, method, network, seed, seeds, labels_per_class)
        own = network if isinstance(network, nn.Module) else None
        if own is None and weights not in ("auto", IMAGENET, "none") and Path(weights).is_dir():
            if out.resolve() == Path(weights).resolve():  # --overwrite would remove it
                raise InputError(f"{out} is the run to start from: choose another {argument('out')}")
            network, weights, settings = _of_run(Path(weights), str(network), settings)
        asked = plan.asked_for({"network": network if own is None else _shape_of(own), **settings})
        several.check(seeds, trained=asked.get("images") != 0)
        source, target, target_labels, test = given.values()
        of_none: frozenset[Path] = frozenset()
        if answers.is_asked(target_labels):
            named, of_none = answers.labelled(target_labels)
            target_labels = normalised(named)
        same = source is target or same_files(source, target)
        execution = Execution(machine, quiet=quiet, log=log)
        coming: dict[str, Any] = {"seeds": seeds, "twin": twin and method != ALONE, "report": report}
        for line in plan.opening(source, None if same else target, **coming):
            execution.say(line)
        chosen = plan.choose(
            asked,
            str(weights) if own is None else "none",
            functools.cache(lambda: median_side(source)),
            machine,
            few_labels=target_labels is not None,
        )
        alone = quiet or ranks.rank() > 0
        data = UserData(chosen.recipe.size, chosen.recipe.shape, of_none=of_none, skip_bad=skip_bad, quiet=alone)
        with precompile.compiled(chosen.recipe, (method, ALONE) if twin else (method,), machine.device):
            problem = data.problem(source, None if same else target, target_labels, test, labels_per_class, seed)
            if "" in problem.classes:
                raise InputError("a class has no name: give one to its images")
            if own is not None:
                _check_output(own, len(problem.classes), chosen.recipe.size)
            roles = [role for role, images in given.items() if images is not None and role != "test"]
            names: dict[str, Any] = {role: name_of(given[role]) for role in roles}
            run = Run(
                benchmark=OWN,
                task="ssl" if same else "ssda" if target_labels is not None else "uda",
                **names,
                test="" if test is None else f"{name_of(test)} ({data.digest('test')})",
                digests={role: data.digest(role) for role in roles},
                labels=labels_per_class or 0,
                method=method,
                options=dict(options or {}),
                seed=seed,
                seeds=seeds,
                weights=chosen.weights,
                recipe=chosen.recipe,
            )
            folder = RunFolder(out)
            held = None if overwrite else ranks.from_first(folder.recipe)
            few = not chosen.weights and few_of_many(problem, plan.FEW)  # then there is one domain
            with execution.bar("looking at the images"):
                findings = ranks.from_first(lambda: checks.look(data, same=same or few))
            seen = plan.Seen(run, problem, few, own, held, machine, execution.bar)
            chosen = plan.refine(chosen, seen, choose_batch="batch" not in asked)
        run = replace(run, recipe=replace(chosen.recipe, white=data.white))
        for line in (f"machine: {machine}", *chosen.reasons, *_remarks(problem, run.recipe)):
            execution.say(line)
        for line in data.notes:
            execution.warn(line)
        if ranks.rank() == 0:
            printed.findings(findings)
        distributed.agree(run, problem)
        beside = twins.plan(run, problem) if twin else None
        if beside and (overwrite or not ranks.from_first(lambda: twins.is_trained(out))):
            execution.say(beside.line)
            execution = replace(execution, whose="model: ", twin_cost=beside.cost)
        with folder.hold():
            model = several.solve(run, problem, folder, execution, net=own, overwrite=overwrite)
            execution = replace(execution, whose="")
            with page.named(out) if report else nullcontext():
                if beside:
                    twins.train(beside, problem, folder, execution, net=own)
                with execution.bar("the verdict: what can be said without labels"):
                    told = replace(finalised(model, problem, folder, findings), folder=out)
                if ranks.rank() == 0 and page.is_older(out):
                    if report:
                        with execution.bar("the page, report.html"):
                            page.finish(told, problem, data, given)
                    if own is not None:
                        with suppress(InputError):  # without it, the command line cannot predict
                            told.export(out / ONNX)
            folder.list_files()
        if not quiet and ranks.rank() == 0:
            printed.ending(told, out)
        return told


def _check(
    given: Mapping[str, Any],
    out: Path,
    method: str,
    network: str | nn.Module,
    seed: int,
    seeds: int,
    labels_per_class: int | None,
) -> None:
    """What can be refused before images are read and a folder is made."""
    for name in ("source", "target"):
        if given[name] is None:
            raise InputError(f"{name} is missing: give a folder, a CSV list, arrays or a dataset")
    methods.get(method)
    if not isinstance(network, (str, nn.Module)):
        raise InputError(f"network is a name or a module, not {network!r}: a class of yours has to be called first")
    if isinstance(network, str) and network not in ("auto", *NETWORKS) and not network.startswith(TIMM):
        raise unknown("network", network, ("auto", *NETWORKS, "timm:NAME"))
    counts: list[tuple[str, Any, int]] = [("seed", seed, 0), ("seeds", seeds, 1)]
    counts += [("labels_per_class", labels_per_class, 1)] if labels_per_class is not None else []
    for name, value, least in counts:
        if not hasattr(value, "__index__") or value < least:
            raise InputError(f"{argument(name)} is a whole number from {least}, not {shortened(value)}")
    Run(seeds=seeds, labels=labels_per_class or 0)  # refuses what is too large
    Run(seed=seed + seeds - 1)  # the last of them
    for name, images in given.items():
        if contains(images, out):
            raise InputError(f"{out} lies in {argument(name)} {images}, among its images: choose a folder beside it")
        if lies_in(images, out):
            raise InputError(
                f"{argument(name)} lies in {out}, the run's folder, which may be emptied: move it elsewhere"
            )


def _of_run(folder: Path, network: str, settings: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """What to start from where a run's folder is given as weights: its network, its weights, and its image size."""
    facts = facts_of(folder)
    if not facts["network"]:
        raise InputError(f"{folder} holds a network of your own: give that as network=, with its weights")
    if network not in ("auto", facts["network"]):
        raise InputError(f"{folder} holds {facts['network']}, not {network}: leave out {argument('network')}")
    return facts["network"], str(folder / FILES[0]), {**settings, "size": settings.get("size") or facts["size"]}


def _remarks(problem: Problem, recipe: Recipe) -> list[str]:
    count = sum(map(len, problem.labelled))
    names = ", ".join(problem.classes[:NAMED]) + (", ..." if len(problem.classes) > NAMED else "")
    lines = [
        f"{len(problem.classes)} classes ({names}), {count:,} labelled and "
        f"{len(problem.unlabelled):,} unlabelled images"
    ]
    if "source" in problem.tests:
        lines[0] += f"; {len(problem.tests['source']):,} more labelled ones are set aside, to measure accuracy on"
    counts = labelled_counts(recipe, problem.labelled, len(problem.classes))
    pools = [("labelled", len(pool), count) for pool, count in zip(problem.labelled, counts, strict=True)]
    for kind, length, batch in (*pools, ("unlabelled", len(problem.unlabelled), recipe.batch * recipe.uratio)):
        if length < batch and recipe.last_step:
            lines.append(f"{length} {kind} images are fewer than the {batch} of a training step: some come twice in it")
    return lines


def _check_output(net: nn.Module, classes: int, size: int) -> None:
    """A network of one's own must give one logit per class, for images of this size."""
    trial = copy.deepcopy(net).cpu().eval()
    try:
        with torch.no_grad():
            given = trial(torch.zeros(2, 3, size, size))
            shape = tuple(given.shape) if isinstance(given, torch.Tensor) else (type(given).__name__,)
    except Exception as error:  # whatever somebody else's module may raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{type(net).__name__} cannot take images [2, 3, {size}, {size}] ({first})") from None
    if shape != (2, classes):
        raise InputError(
            f"{type(net).__name__} gives {list(shape)} for two images: {classes} classes need {classes} outputs each"
        )


def _shape_of(net: nn.Module) -> str:
    """The name of a user's network in run.json: its class, and a digest of its tensors' names and shapes."""
    shapes = repr([(name, tuple(value.shape)) for name, value in net.state_dict().items()])
    return f"{type(net).__name__} ({hashlib.sha256(shapes.encode()).hexdigest()[:8]})"


# What `help(adamatch.fit)` lists as settings is declared in the schema.
assert fit.__doc__ is not None
fit.__doc__ += "\n    The settings:\n\n" + "\n".join(
    f"    {field.name:15} {field.metadata['about']}" for field in settings_of(Recipe, "fit") if field.name != "network"
)
