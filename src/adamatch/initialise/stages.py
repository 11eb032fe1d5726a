"""The network as it is before the first step, and labels of unlabelled images that it is sure of then."""

import copy
import shutil
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from adamatch.base import ranks
from adamatch.base.files import make_folder, write_whole
from adamatch.config.run import Run
from adamatch.images.tasks import Problem
from adamatch.initialise import simclr
from adamatch.initialise.linear_probe import start_head
from adamatch.networks.frozen import Upper
from adamatch.train import distributed, resume
from adamatch.train.execution import Execution
from adamatch.train.progress import bar_before
from adamatch.train.run_folder import RunFolder

FILE = "start.safetensors"  # among the checkpoints: a run that goes on begins with the same
LABELS = "labels of unlabelled images"  # in that file


class Beginning:
    """Called with a network and its problem, lets the network learn as far as the recipe wants it before the first step."""

    def __init__(self, run: Run, folder: RunFolder, execution: Execution) -> None:
        self.run, self.execution = run, execution
        self.folder, self.file = folder, folder.checkpoints / FILE

    def __call__(self, net: nn.Module, problem: Problem, *, new_head: bool, unlabelled: bool) -> Problem:
        """The problem, with labels of unlabelled images where they are to be held to them.

        `unlabelled` says whether the method looks at them at all.
        """
        recipe, seen = self.run.recipe, problem.unlabelled if unlabelled else None
        learned = self.run.weights.startswith(resume.FROM)  # it goes on with a finished run's model
        alone = seen if recipe.contrastive and not learned else None  # images from which it learns without labels
        fitted = recipe.fitted_head and (new_head or alone is not None)
        started = (
            bool(self.run.weights) and not learned
        )  # a network that has learned nothing has no neighbours to tell of
        guessed = started and recipe.anchored and recipe.fitted_head and seen is not None
        sure = None
        if alone is not None or fitted or guessed:
            whole = net.net if isinstance(net, Upper) else net
            there, sure = ranks.from_first(lambda: self._loaded(whole))
            if not there:
                if alone is not None:
                    simclr.begin(net, alone, self.run, self.folder, self.execution)
                if fitted or guessed:
                    how = {"kept": recipe.statistics == "kept", "alone": alone is not None}
                    starting = net if fitted else copy.deepcopy(net)  # a head that is there already stays
                    with bar_before(self.execution.quiet) as bar:
                        bar.add_task("the head is fitted to what the network sees", total=None)
                        mine = start_head(starting, problem.labelled, seen, self.execution.machine, **how)
                    sure = ranks.from_first(lambda: mine)
                self._save(whole, sure)
            distributed.same_weights(whole)
            torch.manual_seed(
                self.run.seed
            )  # dropout later is the same, whether this was done now or before an interruption
        if not recipe.anchored or seen is None:
            return problem
        return replace(
            problem, guesses=np.zeros((len(seen), len(problem.classes)), np.float32) if sure is None else sure
        )

    def _save(self, net: nn.Module, sure: NDArray[np.float32] | None) -> None:
        if ranks.rank() > 0:
            return
        self.folder.check()
        make_folder(self.folder.checkpoints)
        state = {name: each.contiguous() for name, each in net.state_dict().items()}
        if sure is not None:
            state[LABELS] = torch.from_numpy(sure)
        write_whole(self.file, lambda part: save_file(state, part))
        shutil.rmtree(self.folder.checkpoints / simclr.FOLDER, ignore_errors=True)

    def _loaded(self, net: nn.Module) -> tuple[bool, NDArray[np.float32] | None]:
        """Whether the network could be read, and the labels beside it; a damaged file counts as none."""
        try:
            state = load_file(self.file)
            labels = state.pop(LABELS, None)
            net.load_state_dict(state)
        except (OSError, SafetensorError, RuntimeError):
            return False, None
        return True, None if labels is None else labels.numpy()
