"""The twin of a run: the same network trained on the labelled images alone, to show what adaptation changed."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from adamatch import methods
from adamatch.base import ranks
from adamatch.base.cli_names import argument
from adamatch.config.run import Run
from adamatch.experiment import solve
from adamatch.images.tasks import Problem
from adamatch.model import Model
from adamatch.train.batches import labelled_counts
from adamatch.train.execution import Execution
from adamatch.train.run_folder import RunFolder
from adamatch.verdict.verdict import ALONE, TWIN

LARGEST_COST = 1 / 3  # of the run's own


@dataclass(frozen=True)
class Twin:
    """A run on the labelled images alone, and its cost relative to the run, in images that go through the network.

    Measured times were up to twice that: small batches do not keep a GPU busy.
    """

    run: Run
    cost: float

    @property
    def line(self) -> str:
        """The announcement."""
        recipe, without = self.run.recipe, f"({argument('twin', False)} leaves it out)"
        if not recipe.last_step:
            return f"afterwards the same with the labelled images alone, to see what adaptation changes {without}"
        return (
            "afterwards a twin is trained, the same network on the labelled images alone, to see what adaptation "
            f"changes: {self.cost:.0%} to {2 * self.cost:.0%} more time {without}"
        )


def plan(run: Run, problem: Problem) -> Twin | None:
    """The same recipe, cut to a third of the run's cost; None where the run itself uses labelled images only."""
    if run.method == ALONE:
        return None
    recipe, method = run.recipe, methods.get(run.method)
    labelled = sum(labelled_counts(recipe, problem.labelled, len(problem.classes)))
    images = method.images_per_step(labelled, recipe.batch * recipe.uratio) * (1 + method.generations(run.options))
    cost = methods.get(ALONE).images_per_step(labelled, 0) / images
    if cost > LARGEST_COST:
        images, stop = (int(count * LARGEST_COST / cost) for count in (recipe.images, recipe.stop_after))
        recipe = replace(recipe, images=max(min(recipe.batch, recipe.images), images), stop_after=stop)
    alone = replace(run.each_seed[-1], method=ALONE, options={}, recipe=recipe)  # the last one's features are cached
    return Twin(alone, min(cost, LARGEST_COST) / run.seeds)


def is_trained(folder: Path) -> bool:
    """Whether a run's folder has a finished one."""
    return RunFolder(folder / TWIN).result() is not None


def train(twin: Twin, problem: Problem, folder: RunFolder, execution: Execution, net: nn.Module | None = None) -> Model:
    """Train or resume the twin, inside the run's folder."""
    inside = RunFolder(folder.path / TWIN)
    done = ranks.from_first(lambda: is_trained(folder.path))
    if not done:
        execution.say("now the twin: the same network, trained on the labelled images alone")
    how = replace(execution, quiet=execution.quiet or done, brief=True, whose="twin: ", twin_cost=0.0)
    return solve(twin.run, problem, inside, how, net=net)
