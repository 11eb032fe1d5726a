"""Before the first step: a network with its starting weights, a method, and the stages of initialisation."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from adamatch import networks
from adamatch.base import ranks
from adamatch.config.run import Run
from adamatch.images.tasks import Problem
from adamatch.initialise.feature_cache import FeatureCache
from adamatch.initialise.stages import initialise
from adamatch.model import Model
from adamatch.networks.frozen import Upper
from adamatch.networks.norm import has_batch_norm, has_foreign_batch_norm
from adamatch.networks.pretrained import IMAGENET, imagenet
from adamatch.networks.weights import load_weights
from adamatch.train import distributed
from adamatch.train.batches import method_of
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder
from adamatch.train.step import Step


@dataclass(frozen=True)
class Training:
    """One training of a run: most have one, those with teachers one more for each of them."""

    run: Run
    problem: Problem
    folder: RunFolder
    execution: Execution
    net: nn.Module | None = None  # a user's own network
    number: int = 0
    before: Mapping[str, Any] = field(default_factory=dict)  # its teacher's result, whose seconds count


class Prepared(NamedTuple):
    """What the loop trains, and on what."""

    step: Step
    problem: Problem  # with features instead of images where blocks are frozen, and with propagated labels
    weights: str | None  # the starting weights, and which of them fitted


def prepare(training: Training) -> Prepared:
    """Build and initialise what is trained."""
    run, problem, folder, execution = training.run, training.problem, training.folder, training.execution
    first = run.seed if run.first_seed is None else run.first_seed
    torch.manual_seed(first * 1000 + training.number)  # fresh weights; all later has generators of its own
    own = copy.deepcopy(training.net)
    net = own if own is not None else networks.build(run.recipe.network, len(problem.classes))
    weights, new_head = _load_weights(net, run, folder)
    distributed.same_weights(net)
    trained = Upper(net, run.recipe.frozen) if run.recipe.frozen else net
    method = method_of(run, problem, trained)
    if not execution.brief:
        for note in (*problem.notes, *([weights] if weights else []), *_remarks(run, net)):
            execution.say(note)
    if isinstance(trained, Upper):
        problem = FeatureCache(trained, run, execution)(problem, unlabelled=method.unlabelled)
    problem = initialise(trained, problem, run, folder, execution, new_head=new_head, unlabelled=method.unlabelled)
    return Prepared(Step(trained, method, run.recipe, execution.machine, execution.say), problem, weights)


def _load_weights(net: nn.Module, run: Run, folder: RunFolder) -> tuple[str | None, bool]:
    """Give the network its starting weights, if it has any; returns what fitted, and whether its head is new."""
    if run.continues:
        earlier = Model.load(folder.earlier, net=copy.deepcopy(net), device="cpu")
        net.load_state_dict(earlier.net.state_dict())
        return f"starting weights: those of the finished run in {folder.earlier}", False
    if not run.weights:
        return None, False
    if run.weights != IMAGENET:
        report = load_weights(net, run.weights)
    else:
        report = replace(load_weights(net, imagenet(run.recipe.network)), where=f"{run.recipe.network}, ImageNet")
    return str(report), report.new_head


def _remarks(run: Run, net: nn.Module) -> Iterator[str]:
    """Warnings about a network before it is trained."""
    void = "then a part of AdaMatch changes nothing (its two forward passes are the same)"
    if run.method == "adamatch" and not has_batch_norm(net):
        yield f"this network has no batch norm: {void}"
    elif run.method == "adamatch" and run.recipe.batch_norm == "kept" and run.recipe.last_step:
        yield f"batch norm stays as it was: {void}"
    if ranks.count() > 1:
        yield f"{ranks.count()} ranks share every batch: {run.recipe.batch // ranks.count()} labelled images each"
        if has_foreign_batch_norm(net):
            other = "torch.nn.SyncBatchNorm has those of all (on GPUs)"
            yield f"this network's own kind of batch norm has statistics per rank: {other}"
