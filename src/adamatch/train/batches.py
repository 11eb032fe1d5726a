"""What goes into every step: images from the pools, and all of its random numbers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from adamatch import methods
from adamatch.base import ranks
from adamatch.config.run import Recipe, Run
from adamatch.images.feed import Feed
from adamatch.images.tasks import Labelled, Problem, Unlabelled, balanced
from adamatch.methods import Method
from adamatch.train.execution import Execution
from adamatch.train.optim import learning_rate
from adamatch.train.speed import Inputs
from adamatch.train.step import Step


class Supply:
    """`next(done)` gives the inputs of the step after `done` steps.

    Every rank draws for all ranks, from the same seed, and takes its rows: together they do what one process would.
    """

    def __init__(self, run: Run, problem: Problem, step: Step, execution: Execution) -> None:
        self.run, self.classes, self.draws = run, len(problem.classes), step.views.draws
        self.generator = torch.Generator(execution.machine.images).manual_seed(run.seed)
        recipe, pools, probes = run.recipe, problem.labelled, problem.probes if step.views.learns else ()
        taken: list[tuple[Labelled | Unlabelled, int]] = []
        drawn = [
            balanced(pool)
            if recipe.balanced and (recipe.repeat or not number)
            else pool  # the others' images come once each
            for number, pool in enumerate(pools)
        ]
        taken += zip(drawn, labelled_counts(recipe, pools, self.classes), strict=True)
        if step.method.unlabelled:
            unlabelled, guesses = problem.unlabelled, problem.guesses
            taken.append(
                (unlabelled if guesses is None else Labelled(unlabelled.parts, guesses), recipe.batch * recipe.uratio)
            )
        if probes:
            taken += zip(probes, labelled_counts(recipe, probes, self.classes), strict=True)
        self.labelled, self.probes = len(pools), len(probes)
        self.stands_in = recipe.late > 0 and len(pools) > 1  # the first labelled pool for the others, until they count
        device, place = execution.machine.images, execution.place
        self.feeds = [
            Feed(pool, batch=count, classes=self.classes, seed=run.seed * 10 + number, device=device, place=place)
            for number, (pool, count) in enumerate(taken)
        ]
        if self.stands_in:
            count = sum(labelled_counts(recipe, pools, self.classes)[1:])
            self.feeds.append(self.feeds[0].another(batch=count, seed=run.seed * 10 + len(self.feeds)))

    def next(self, done: int) -> Inputs:
        recipe, progress = self.run.recipe, done / self.run.recipe.steps
        batches = [feed.next() for feed in self.feeds]
        stand_in = [batches.pop()] if self.stands_in else []
        rest = len(batches) - self.probes
        early = bool(stand_in) and progress < recipe.late
        x_sl, y_sl = _joined(batches[:1] + stand_in if early else batches[: self.labelled])
        x_tu, y_tu_first = batches[self.labelled] if rest > self.labelled else (x_sl[:0], None)
        x_pr, y_pr = _joined(batches[rest:]) if self.probes else (x_sl, y_sl)
        if (
            early
        ):  # those that stand in fill the batch and have no label: the loss is what it would be without target labels
            y_sl = y_sl.clone()
            y_sl[len(batches[0][0]) :] = 0
        n_sl, n_tu, n_pr = (len(images) * ranks.count() for images in (x_sl, x_tu, x_pr))
        device = self.generator.device
        return Inputs(
            x_sl=x_sl,
            y_sl=y_sl,
            x_tu=x_tu,
            x_pr=x_pr,
            y_pr=y_pr,
            u=ranks.share(torch.rand(n_sl + n_tu + n_pr, self.draws, generator=self.generator, device=device)),
            lam=ranks.share(torch.rand(2 * n_sl, self.classes, generator=self.generator, device=device)),
            progress=torch.full((), progress, device=device),
            lr=torch.full((), learning_rate(recipe.lr, recipe.lr_end, progress), device=device),
            y_tu_first=y_sl[:0] if y_tu_first is None else y_tu_first,
        )

    @property
    def places(self) -> str:
        """Where the images are stored, for a person."""
        near = "on the GPU" if self.generator.device.type == "cuda" else "in memory"
        names = {"device": near, "host": "in memory", "disk": "from disk"}
        return ", ".join(dict.fromkeys(names[feed.place] for feed in self.feeds))

    def seek(self, done: int, state: torch.Tensor) -> bool:
        """Go on after `done` steps; False where the generator's state is another kind of device's, so that draws start anew."""
        for feed in self.feeds:
            feed.seek(done)
        if len(state) == len(self.generator.get_state()):
            self.generator.set_state(state)
            return True
        self.generator.manual_seed(self.run.seed + done)
        return False


def labelled_counts(recipe: Recipe, pools: Sequence[Labelled], classes: int) -> list[int]:
    """How many images of each labelled pool are in a step: a batch, or, of a small pool after the first, each image once.

    (Or once in as many steps as the recipe spreads them over, but at least as many as there are classes. Of several ranks, as
    many as they can share evenly.)
    """
    shared = ranks.count()

    def few(images: int) -> int:
        wanted = max(classes, math.ceil(images / recipe.spread))
        return min(recipe.batch, math.ceil(wanted / shared) * shared, max(shared, images // shared * shared))

    return [recipe.batch, *(recipe.batch if recipe.repeat else few(len(pool)) for pool in pools[1:])]


def method_of(run: Run, problem: Problem, net: nn.Module) -> Method:
    """The run's method, for its network."""
    return methods.build(
        run.method,
        classes=len(problem.classes),
        net=net,
        tau=run.recipe.tau,
        alignment={
            name: getattr(run.recipe, name) for name in ("align", "limit", "window", "decay", "release", "anchored")
        },
        batches=sum(labelled_counts(run.recipe, problem.labelled, len(problem.classes))) / run.recipe.batch,
        options=run.options,
    )


def _joined(batches: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor]:
    """Labelled batches as one."""
    return torch.cat([images for images, _ in batches]), torch.cat(
        [labels for _, labels in batches if labels is not None]
    )
