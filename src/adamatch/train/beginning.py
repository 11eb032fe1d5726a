"""The network as it is before the first step, and what it says of unlabelled images then."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from adamatch import ranks
from adamatch.data.tasks import Problem
from adamatch.files import make_folder, write_whole
from adamatch.nets import fused
from adamatch.nets.frozen import Upper
from adamatch.train import again, contrastive, distributed
from adamatch.train.execution import Execution
from adamatch.train.folder import RunFolder
from adamatch.train.head import features, start_head
from adamatch.train.run import Run

FILE = "start.safetensors"  # among the checkpoints: a run that goes on begins with the same


class Beginning:
    """Called with a network and its problem, lets the network learn as far as the recipe wants it before the first step."""

    def __init__(self, run: Run, folder: RunFolder, execution: Execution) -> None:
        self.run, self.folder, self.execution = run, folder, execution

    def __call__(self, net: nn.Module, problem: Problem, *, new_head: bool, unlabelled: bool) -> Problem:
        """The problem, with what the network says of unlabelled images where they are to be held to it.

        `unlabelled` says whether the method looks at them at all.
        """
        recipe, machine, seen = self.run.recipe, self.execution.machine, problem.unlabelled if unlabelled else None
        learned = self.run.weights.startswith(again.FROM)  # it goes on with a finished run's model
        alone = seen if recipe.contrastive and not learned else None  # images from which it learns without labels
        if alone is not None or (recipe.fitted_head and new_head):
            whole = net.net if isinstance(net, Upper) else net
            if not ranks.from_first(lambda: _loaded(whole, self.folder.checkpoints / FILE)):
                if alone is not None:
                    contrastive.begin(net, alone, self.run, self.execution)
                if recipe.fitted_head:
                    start_head(net, problem.labelled, seen, machine, kept=recipe.statistics == "kept")
                self._save(whole)
            distributed.same_weights(whole)
        if not recipe.anchored or seen is None:
            return problem
        net.to(machine.device).eval()
        with torch.no_grad(), fused.off(net):
            z: Tensor = net.head(features(net, seen.parts, machine, len(seen)))  # type: ignore[operator]
        net.train()
        return replace(problem, guesses=z.softmax(1).cpu().numpy())

    def _save(self, net: nn.Module) -> None:
        if ranks.rank() > 0:
            return
        self.folder.check()
        make_folder(self.folder.checkpoints)
        state = {name: each.contiguous() for name, each in net.state_dict().items()}
        write_whole(self.folder.checkpoints / FILE, lambda part: save_file(state, part))


def _loaded(net: nn.Module, path: Path) -> bool:
    """Whether the network could be read; a damaged file counts as none."""
    try:
        net.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError):
        return False
    return True
