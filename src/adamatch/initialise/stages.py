"""What happens before the first step, in stages: pre-train without labels, embed, propagate labels, fit the head.

Each stage goes from arrays to arrays; `stages` says which of them a recipe wants. Their outcome is kept among the
checkpoints.
"""

import copy
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn.functional import one_hot

from adamatch.base import ranks
from adamatch.base.files import make_folder, read_checked
from adamatch.base.regular_files import WEIGHTS
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.images.tasks import Labelled, Problem, Unlabelled
from adamatch.initialise import embed, propagate, simclr
from adamatch.initialise.probe import fit_head
from adamatch.networks.frozen import Upper
from adamatch.train import checkpoint, distributed
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder
from adamatch.train.speed import Machine

FILE = "start.safetensors"  # among the checkpoints: a resumed run begins with the same
LABELS = "labels of unlabelled images"  # in that file


@dataclass(frozen=True)
class Stages:
    """What is done before the first step."""

    pretrain: bool  # the network learns from unlabelled images alone
    fit_head: bool
    propagate: bool  # the surest labels of neighbours, to train on until pseudo-labels count

    def __bool__(self) -> bool:
        return self.pretrain or self.fit_head or self.propagate


def stages(run: Run, *, new_head: bool, unlabelled: bool) -> Stages:
    """`new_head`: the starting weights have none for these classes. `unlabelled`: the method uses unlabelled images.

    A run without steps is nothing but a new head.
    """
    recipe = run.recipe
    pretrain = recipe.simclr_images > 0 and unlabelled and not run.continues
    head = recipe.linear_probe_init and (new_head or pretrain or not recipe.last_step)
    # Random features carry no neighbourhoods.
    learned = (bool(run.weights) and not run.continues) or pretrain
    return Stages(pretrain, head, recipe.knn_anchor and recipe.linear_probe_init and unlabelled and learned)


def initialise(
    net: nn.Module,
    problem: Problem,
    run: Run,
    folder: RunFolder,
    execution: Execution,
    *,
    new_head: bool,
    unlabelled: bool,
) -> Problem:
    """Carry out the recipe's stages; returns the problem, with labels for unlabelled images if these are trained on."""
    seen = problem.unlabelled if unlabelled else None
    wanted, sure = stages(run, new_head=new_head, unlabelled=unlabelled), None
    if wanted:
        whole = net.net if isinstance(net, Upper) else net
        done, sure = ranks.from_first(lambda: _load(folder, whole))
        if not done:
            if wanted.pretrain and seen is not None:
                simclr.pretrain(net, seen, run, folder, execution)
            if wanted.fit_head or wanted.propagate:
                starting = net if wanted.fit_head else copy.deepcopy(net)  # a head that was loaded stays
                with execution.bar("features of the images, and a first classifier on them") as advance:
                    how: dict[str, Any] = {"pretrained": wanted.pretrain, "advance": advance}
                    mine = first_head(starting, problem.labelled, seen, run.recipe, execution.machine, **how)
                sure = ranks.from_first(lambda: mine)
            _save(folder, whole, sure)
        distributed.same_weights(whole)
        torch.manual_seed(run.seed)  # dropout later is the same, whether this was done now or before an interruption
    if not run.recipe.knn_anchor or seen is None:
        return problem
    none = np.zeros((len(seen), len(problem.classes)), np.float32)
    return replace(problem, guesses=none if sure is None else sure)


def first_head(
    net: nn.Module,
    pools: Sequence[Labelled],
    unlabelled: Unlabelled | None,
    recipe: Recipe,
    machine: Machine,
    *,
    pretrained: bool = False,
    advance: embed.Advance = embed.unseen,
) -> NDArray[np.float32] | None:
    """Fit `net.head` to the network's features; returns the surest labels of unlabelled images, if there are any.

    Neighbours are found by features under both statistics of batch norm: either can be far better. The head is fitted
    to those that training will have. Of a network that was `pretrained` without labels many features say the same.
    """
    head: Any = net.head
    y = [embed.labels(pool, head.out_features, machine) for pool in pools]
    kept = recipe.batch_norm == "kept"
    before, now = embed.embed(net, pools, unlabelled, machine, keep_statistics=kept, advance=advance)
    if unlabelled:
        if recipe.neighbour_networks:
            parts = [*(pool.parts for pool in pools), unlabelled.parts]
            before = embed.by_networks(recipe.neighbour_networks.split(","), parts, machine, advance)
        seen = [before] if recipe.neighbour_networks and kept else [before, now]
        *both, both_tu = (torch.cat(each, 1) for each in zip(*seen, strict=True))
        if pretrained:
            *both, both_tu = (propagate.uncorrelated(each, both_tu) for each in (*both, both_tu))
        y_tu = propagate.guess(list(zip(both, y, strict=True)), both_tu)
        y.append(one_hot(y_tu.argmax(1), y_tu.shape[1]).to(y_tu) if recipe.probe_neighbours else y_tu)
    fit_head(head, torch.cat(now), torch.cat(y))
    return _sure_labels(y_tu, unlabelled, recipe.anchor_part) if unlabelled else None


def _sure_labels(y: Tensor, unlabelled: Unlabelled, part: float) -> NDArray[np.float32]:
    """Rows of zeros for images whose label is not sure, or that were not looked at; the mean weight of all is 1."""
    sure = np.zeros((len(unlabelled), y.shape[1]), np.float32)
    starts = np.cumsum([0, *map(len, unlabelled.parts)])[:-1]
    rows = zip(starts, embed.rows_of(unlabelled.parts), strict=True)
    sure[np.concatenate([start + some for start, some in rows])] = propagate.surest(y, part).cpu().numpy()
    return sure * np.float32(len(sure) / max(1, sure.sum()))


def _save(folder: RunFolder, net: nn.Module, sure: NDArray[np.float32] | None) -> None:
    if ranks.rank() > 0:
        return
    folder.check()
    make_folder(folder.checkpoints)
    state = net.state_dict()
    if sure is not None:
        state[LABELS] = torch.from_numpy(sure)
    checkpoint.write_tensors(folder.checkpoints / FILE, state)
    shutil.rmtree(folder.checkpoints / simclr.FOLDER, ignore_errors=True)


def _load(folder: RunFolder, net: nn.Module) -> tuple[bool, NDArray[np.float32] | None]:
    """Whether the network could be read, and the labels beside it; a damaged file counts as none."""
    try:
        state = load(read_checked(folder.checkpoints / FILE, WEIGHTS))
        labels = state.pop(LABELS, None)
        net.load_state_dict(state)
    except (OSError, ValueError, SafetensorError, RuntimeError):
        return False, None
    return True, None if labels is None else labels.numpy()
