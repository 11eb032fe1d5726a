"""What goes into every step: images from the pools, and all of its random numbers."""

import torch

from adamatch import ranks
from adamatch.data.feed import Feed
from adamatch.data.tasks import Labelled, Problem, Unlabelled
from adamatch.train.execution import Execution
from adamatch.train.optim import learning_rate
from adamatch.train.run import Recipe, Run
from adamatch.train.speed import Inputs
from adamatch.train.step import Step


class Supply:
    """`next(done)` gives the inputs of the step after `done` steps.

    Every rank draws for all ranks, from the same seed, and takes its rows: together they do what one process would.
    """

    def __init__(self, run: Run, problem: Problem, step: Step, execution: Execution) -> None:
        self.run, self.classes, self.draws = run, len(problem.classes), step.views.draws
        self.labelled = len(problem.labelled)
        self.generator = torch.Generator(execution.machine.device).manual_seed(run.seed)
        pools: list[tuple[Labelled | Unlabelled, int]] = []
        pools += zip(problem.labelled, labelled_counts(run.recipe, problem), strict=True)
        if step.method.unlabelled:
            pools.append((problem.unlabelled, run.recipe.batch * run.recipe.uratio))
        device, place = execution.machine.device, execution.place
        self.feeds = [
            Feed(pool, batch=count, classes=self.classes, seed=run.seed * 10 + number, device=device, place=place)
            for number, (pool, count) in enumerate(pools)
        ]

    def next(self, done: int) -> Inputs:
        batches = [feed.next() for feed in self.feeds]
        x_sl = torch.cat([images for images, _ in batches[: self.labelled]])
        y_sl = torch.cat([labels for _, labels in batches if labels is not None])
        x_tu = batches[self.labelled][0] if len(batches) > self.labelled else x_sl[:0]
        recipe, progress = self.run.recipe, done / self.run.recipe.steps
        n_sl, n_tu, device = len(x_sl) * ranks.count(), len(x_tu) * ranks.count(), self.generator.device
        return Inputs(
            x_sl=x_sl,
            y_sl=y_sl,
            x_tu=x_tu,
            u=ranks.share(torch.rand(2 * n_sl + n_tu, self.draws, generator=self.generator, device=device)),
            lam=ranks.share(torch.rand(2 * n_sl, self.classes, generator=self.generator, device=device)),
            progress=torch.full((), progress, device=device),
            lr=torch.full((), learning_rate(recipe.lr, recipe.lr_end, progress), device=device),
        )

    @property
    def places(self) -> str:
        """Where the images wait."""
        return ", ".join(dict.fromkeys(feed.place for feed in self.feeds))

    def seek(self, done: int, state: torch.Tensor) -> bool:
        """Go on after `done` steps; False where the generator's state is another kind of device's, so that draws start anew."""
        for feed in self.feeds:
            feed.seek(done)
        if len(state) == len(self.generator.get_state()):
            self.generator.set_state(state)
            return True
        self.generator.manual_seed(self.run.seed + done)
        return False


def labelled_counts(recipe: Recipe, problem: Problem) -> list[int]:
    """How many images of each labelled pool are in a step: a batch, or, of a small pool after the first, each image once.

    (Of several ranks, as many as they can share evenly.)
    """
    shared = ranks.count()
    small = [recipe.batch if recipe.repeat else max(shared, len(pool) // shared * shared) for pool in problem.labelled[1:]]
    return [recipe.batch, *(min(recipe.batch, count) for count in small)]
