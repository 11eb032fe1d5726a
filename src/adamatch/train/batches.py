"""What goes into every step: images from the pools, and all of its random numbers."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from adamatch import methods
from adamatch.base import ranks
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run
from adamatch.images.feed import Feed
from adamatch.images.tasks import Labelled, Problem, Unlabelled, balanced
from adamatch.methods import Method
from adamatch.train.execution import Execution
from adamatch.train.optim import learning_rate
from adamatch.train.speed import Inputs
from adamatch.train.step import Step


class Batches:
    """`next(done)` gives the inputs of the step after `done` steps.

    Every rank draws for all ranks, from the same seed, and takes its rows: together they do what one process would.
    """

    def __init__(self, run: Run, problem: Problem, step: Step, execution: Execution) -> None:
        self.run, self.classes, self.draws = run, len(problem.classes), step.views.draws
        self.generator = torch.Generator(execution.machine.images).manual_seed(run.seed)
        recipe, device, seeds = run.recipe, execution.machine.images, itertools.count(10 * run.seed)

        def feed(pool: Labelled | Unlabelled, batch: int) -> Feed:
            where = {"device": device, "place": execution.place}
            return Feed(pool, batch=batch, classes=self.classes, seed=next(seeds), **where)  # type: ignore[arg-type]

        self.labelled, self.probes = [], []
        counts = labelled_counts(recipe, problem.labelled, self.classes)
        for number, (pool, count) in enumerate(zip(problem.labelled, counts, strict=True)):
            # Labelled target images that are not repeated are drawn once each.
            balance = recipe.balance_classes and (recipe.repeat or number == 0)
            self.labelled.append(feed(balanced(pool) if balance else pool, count))
        self.unlabelled = None
        if step.method.unlabelled:
            images, guesses = problem.unlabelled, problem.guesses
            guessed = images if guesses is None else Labelled(images.parts, guesses)
            self.unlabelled = feed(guessed, recipe.batch * recipe.uratio)
        if step.views.learns and problem.probes:
            probed = zip(problem.probes, labelled_counts(recipe, problem.probes, self.classes), strict=True)
            self.probes = [feed(pool, count) for pool, count in probed]
        # Source images replace labelled target images until these count.
        self.stand_in = None
        if recipe.target_labels_from > 0 and len(counts) > 1:
            self.stand_in = self.labelled[0].another(batch=sum(counts[1:]), seed=next(seeds))
        named = [*self.labelled, self.unlabelled, *self.probes, self.stand_in]
        self.feeds = [each for each in named if each is not None]

    def next(self, done: int) -> Inputs:
        recipe, progress = self.run.recipe, done / self.run.recipe.steps
        labelled = [feed.next() for feed in self.labelled]
        stand_in = self.stand_in.next() if self.stand_in is not None else None
        waiting = stand_in is not None and progress < recipe.target_labels_from
        x_sl, y_sl = _joined([labelled[0], stand_in] if waiting and stand_in else labelled)
        x_pr, y_pr = _joined([feed.next() for feed in self.probes]) if self.probes else (x_sl, y_sl)
        if waiting:  # replacements have no label: the loss is as without target labels
            y_sl = y_sl.clone()
            y_sl[len(labelled[0][0]) :] = 0
        x_tu, y_tu_first = (x_sl[:0], None) if self.unlabelled is None else self.unlabelled.next()
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
        """Where the images are stored, in words."""
        near = "from the GPU's memory" if self.generator.device.type == "cuda" else "from memory"
        names = {"device": near, "host": "from memory", "disk": "from disk"}
        return ", ".join(dict.fromkeys(names[feed.place] for feed in self.feeds))

    def seek(self, done: int, state: Tensor) -> bool:
        """Resume after `done` steps; False after another kind of device: random numbers are drawn anew."""
        for feed in self.feeds:
            feed.seek(done)
        if len(state) == len(self.generator.get_state()):
            self.generator.set_state(state)
            return True
        self.generator.manual_seed(self.run.seed + done)
        return False


def labelled_counts(recipe: Recipe, pools: Sequence[Labelled], classes: int) -> list[int]:
    """Images of each labelled pool in a step: a batch each; of small pools after the first, every image once.

    (Or once in `target_label_steps` steps, but at least as many images as classes, and a number that ranks can share.)
    """
    shared = ranks.count()

    def few(images: int) -> int:
        wanted = max(classes, math.ceil(images / recipe.target_label_steps))
        return min(recipe.batch, math.ceil(wanted / shared) * shared, max(shared, images // shared * shared))

    return [recipe.batch, *(recipe.batch if recipe.repeat else few(len(pool)) for pool in pools[1:])]


def method_of(run: Run, problem: Problem, net: nn.Module) -> Method:
    """The run's method, for its network."""
    counts = labelled_counts(run.recipe, problem.labelled, len(problem.classes))
    return methods.build(
        run.method,
        classes=len(problem.classes),
        net=net,
        recipe=run.recipe,
        batches=sum(counts) / run.recipe.batch,
        options=run.options,
    )


def _joined(batches: Sequence[tuple[Tensor, Tensor | None]]) -> tuple[Tensor, Tensor]:
    """Labelled batches as one."""
    return torch.cat([images for images, _ in batches]), torch.cat(
        [labels for _, labels in batches if labels is not None]
    )
