"""Own images: one call from folders to a model."""

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adamatch import networks
from adamatch import twin as twins
from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.base.errors import InputError, shortened, unknown
from adamatch.config.run import LARGEST_SEED, LATE, MOST_LABELS, Recipe, Run
from adamatch.experiment import solve
from adamatch.finalise import judged
from adamatch.images.listing import contains, lies_in, listed, same_files
from adamatch.images.reading import median_side
from adamatch.images.tasks import Problem, few_of_many
from adamatch.images.user_data import OwnData
from adamatch.initialise.domain_similarity import likeness
from adamatch.methods import METHODS
from adamatch.model import Model, left_out
from adamatch.networks import NETWORKS
from adamatch.networks.pretrained import IMAGENET, TIMM, imagenet
from adamatch.networks.weights import load_weights
from adamatch.plan import FEW, Choice, Settings, choose, with_batch, with_beginning, with_likeness
from adamatch.report import page, printed
from adamatch.train import distributed, memory, precompile, speed
from adamatch.train.batches import labelled_counts, method_of
from adamatch.train.execution import Execution
from adamatch.train.progress import Progress
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Machine

NAMED = 10  # classes that are named before a run


def fit(
    *,
    source: Any,
    target: Any,
    out: str | Path,
    target_labels: Any = None,
    test: Any = None,
    labels_per_class: int | None = None,
    method: str = "adamatch",
    options: Mapping[str, Any] | None = None,
    network: str | nn.Module = "auto",
    weights: str = "auto",
    size: int | str = "auto",
    images: int | str = "auto",
    batch: int | str = "auto",
    lr: float | None = None,
    strong: str = "cta",
    mirror: bool = True,
    repeat: bool = False,
    frozen: int | str = "auto",
    twin: bool = True,
    device: str = "auto",
    precision: str = "auto",
    compile: bool | None = None,  # noqa: A002
    seed: int = 0,
    skip_bad: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
) -> Model:
    """Train a classifier for `target` images from labelled `source` images.

    source          labelled images: one folder per class, a CSV of path,label, arrays (images, labels), a torch dataset
    target          images to adapt to; no labels are needed, and none are used
    target_labels   a few labelled target images, if there are any (semi-supervised domain adaptation)
    test            labelled target images to evaluate on while training; used for measuring alone
    labels_per_class  use only so many labels of each source class; where source and target are the same
                    (semi-supervised learning), the other images serve without their labels
    strong          strong augmentation: cta, cta-published, randaugment or cutout
    mirror          whether images may be flipped horizontally; not where that changes the class (digits, letters, arrows)
    repeat          whether few `target_labels` fill half of each labelled batch from the first step on, as in the paper, by
                    being in it several times; else none comes again before all have come, and they count from the middle of
                    the run on (of a network that starts from scratch, spread over five steps): in such short runs very few
                    labels do harm otherwise. (A classifier that is fitted to starting weights before the first step knows
                    them at once)
    twin            whether the same network is also trained on the labelled images alone, in the folder `twin`, to see what
                    adaptation changed: it takes a fifth to two thirds more time
    network         a name (efficientnet-lite0, wrn-28-2, timm:NAME, ...), or a module of your own whose output is one logit per
                    class (it is copied, not changed); it gets images as (x - 127.5) / 128, so another normalisation belongs
                    into its forward
    weights         what a network given by its name starts from: "imagenet", "none", or a file; "auto" is "imagenet" where
                    the network has such weights
    lr              the learning rate at the start; None: 0.01 from weights, else 0.03 (on a CPU with frozen blocks 0.03, and
                    0.003 where source and target look alike)
    frozen          how many of an EfficientNet-Lite's blocks (16 of Lite0) stay as they are: they are computed once, for a
                    few views of each image, and training begins above them; "auto": some on a CPU, from weights; else none
    out             the run's folder: model, metrics, checkpoints, and report.html, a page to look at. Called again, an
                    interrupted run is resumed from its last checkpoint

    What is left at "auto" is chosen for the machine and the images, and printed. A tenth of the labelled source images is
    held out. What can be known of the result is printed at the end, and is in judge.json and `model.history["judge"]`:
    accuracy on the target as a range, without a label of it; what adaptation changed; signs that source and target do not fit.
    """
    machine = speed.choose(device, precision, compile)
    with distributed.joined(machine.device):
        source, target, target_labels, test = map(listed, (source, target, target_labels, test))
        _check(source, target, method, network, seed, labels_per_class)
        out = Path(out).expanduser()
        for name, given in (("source", source), ("target", target), ("target_labels", target_labels), ("test", test)):
            if contains(given, out):
                raise InputError(f"{out} lies in {argument(name)} {given}, among its images: choose a folder beside it")
            if lies_in(given, out):
                raise InputError(
                    f"{argument(name)} lies in {out}, the run's folder, which may be emptied: move it elsewhere"
                )
        same = _same(source, target)
        asked = Settings(
            network=network if isinstance(network, str) else _shape_of(network),
            weights=str(weights) if isinstance(network, str) else "none",
            size=size,
            images=images,
            batch=batch,
            lr=lr,
            strong=strong,
            mirror=mirror,
            repeat=repeat,
            late=LATE if target_labels is not None and not repeat else 0.0,
            frozen=frozen,
        )
        chosen = choose(asked, lambda: median_side(source), machine)
        recipe, own = chosen.recipe, network if isinstance(network, nn.Module) else None
        data = OwnData(recipe.size, recipe.shape, skip_bad=skip_bad, quiet=quiet or ranks.rank() > 0)
        methods = (method, twins.ALONE) if twin else (method,)
        with precompile.compiled(recipe, methods, machine.device):
            problem = data.problem(source, None if same else target, target_labels, test, labels_per_class, seed)
            few = not chosen.weights and few_of_many(
                problem, FEW
            )  # then there is one domain; weights have learned before
            if own is not None:
                _check_output(own, len(problem.classes), recipe.size)
            elif few and METHODS[method].unlabelled:
                chosen = with_beginning(chosen)
            run = Run(
                benchmark="folders",
                task="ssl" if same else "ssda" if target_labels is not None else "uda",
                source=" and ".join(data.named(source=source, target_labels=target_labels)),
                target=data.named(target=target)[0],
                test="".join(data.named(test=test)),
                labels=labels_per_class or 0,
                method=method,
                options=dict(options or {}),
                seed=seed,
                weights=chosen.weights,
                recipe=chosen.recipe,
            )
            folder, execution = RunFolder(out), Execution(machine, quiet=quiet)
            held = None if overwrite else ranks.from_first(folder.recipe)
            if chosen.alike:
                chosen = _by_likeness(chosen, run, problem, held, machine)
                run = replace(run, recipe=chosen.recipe)
            if batch == "auto":
                chosen = _fitting(chosen, run, problem, held, own, machine)
        run = replace(run, recipe=replace(chosen.recipe, white=data.white))
        progress = Progress(run.recipe, quiet=quiet)
        for line in (f"machine: {machine}", *chosen.reasons, *_remarks(problem, run.recipe)):
            progress.say(line)
        for line in (*data.notes, *left_out(data.skipped)):
            progress.warn(line)
        beside = twins.plan(run, problem) if twin else None
        if beside and (overwrite or not ranks.from_first(lambda: twins.is_trained(out))):
            progress.say(beside.line)
        with folder.hold():
            model = solve(run, problem, folder, execution, net=own, overwrite=overwrite)
            if beside:
                twins.train(beside, problem, folder, execution, net=own)
            told = replace(judged(model, problem, folder, same=same or few), folder=out)
            if ranks.rank() == 0 and page.is_older(out):
                given = {"source": source, "target": target, "target_labels": target_labels, "test": test}
                page.finish(told, problem, data, given)
        if not quiet and ranks.rank() == 0:
            printed.ending(told, out)
        return told


def _check(
    source: Any, target: Any, method: str, network: str | nn.Module, seed: int, labels_per_class: int | None
) -> None:
    """What can be refused before images are read and a folder is made."""
    for name, given in (("source", source), ("target", target)):
        if given is None:
            raise InputError(f"{name} is missing: give a folder, a CSV list, arrays or a dataset")
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if not isinstance(network, (str, nn.Module)):
        raise InputError(f"network is a name or a module, not {network!r}: a class of yours has to be called first")
    if isinstance(network, str) and network not in ("auto", *NETWORKS) and not network.startswith(TIMM):
        raise unknown("network", network, ("auto", *NETWORKS, "timm:NAME"))
    if not hasattr(seed, "__index__") or not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"a seed is a whole number from 0 to {LARGEST_SEED}, not {shortened(seed)}")
    whole = hasattr(labels_per_class, "__index__")
    if labels_per_class is not None and not (whole and 1 <= labels_per_class <= MOST_LABELS):
        raise InputError(
            f"labels per class are a whole number from 1 to {MOST_LABELS}, not {shortened(labels_per_class)}"
        )


def _by_likeness(chosen: Choice, run: Run, problem: Problem, held: Recipe | None, machine: Machine) -> Choice:
    """The recipe of domains that look alike, or not: as in the run that is there (`held`), or as the images want it."""
    assert chosen.alike is not None
    if held is not None and held.fitted_head:
        alike = held.anchored or held.statistics == "kept"
        return replace(chosen, recipe=chosen.alike if alike else chosen.recipe, alike=None)
    net = networks.build(run.recipe.network, len(problem.classes))
    load_weights(net, imagenet(run.recipe.network) if chosen.weights == IMAGENET else chosen.weights)
    source, target = problem.labelled[0].parts, problem.unlabelled.parts
    return with_likeness(chosen, ranks.from_first(lambda: likeness(net, source, target, machine)))


def _fitting(
    chosen: Choice, run: Run, problem: Problem, held: Recipe | None, own: nn.Module | None, machine: Machine
) -> Choice:
    """With a smaller batch, where the one that was chosen does not fit the memory, or a run goes on for which it did not."""
    if held is not None and held.batch < run.recipe.batch:
        return with_batch(chosen, held.batch, "as in the run that is there")
    if held is not None or run.recipe.frozen:  # what is trained above frozen blocks is small
        return chosen
    net = own if own is not None else networks.build(run.recipe.network, len(problem.classes))
    batch = memory.fitting(net, method_of(run, problem, net), run.recipe, problem, machine)
    return (
        chosen
        if batch == run.recipe.batch
        else with_batch(chosen, batch, "so that a step fits the memory that is free")
    )


def _remarks(problem: Problem, recipe: Recipe) -> list[str]:
    count = sum(map(len, problem.labelled))
    names = ", ".join(problem.classes[:NAMED]) + (", ..." if len(problem.classes) > NAMED else "")
    lines = [
        f"{len(problem.classes)} classes ({names}), {count:,} labelled and {len(problem.unlabelled):,} unlabelled images"
    ]
    if "source" in problem.tests:
        lines[0] += f"; {len(problem.tests['source']):,} more labelled ones are held out, to estimate accuracy"
    counts = labelled_counts(recipe, problem.labelled, len(problem.classes))
    pools = [("labelled", len(pool), count) for pool, count in zip(problem.labelled, counts, strict=True)]
    for kind, length, batch in (*pools, ("unlabelled", len(problem.unlabelled), recipe.batch * recipe.uratio)):
        if length < batch:
            lines.append(
                f"{length} {kind} images are fewer than a batch of {batch}: some come more than once in a batch"
            )
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
            f"{type(net).__name__} gives {list(shape)} for two images: with {classes} classes it needs {classes} outputs each"
        )


def _shape_of(net: nn.Module) -> str:
    """A name by which a network of one's own is known again: its class, and a digest of its tensors' names and shapes."""
    shapes = repr([(name, tuple(value.shape)) for name, value in net.state_dict().items()])
    return f"{type(net).__name__} ({hashlib.sha256(shapes.encode()).hexdigest()[:8]})"


def _same(source: Any, target: Any) -> bool:
    return source is target or same_files(source, target)
