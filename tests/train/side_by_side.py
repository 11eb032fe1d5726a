"""A run in float64 by the package, from `Run` to its last checkpoint, and by the plain trainer of `reference`."""

import copy
import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from reference.plain_losses import Shown
from reference.trainer import Drawn, Settings, Trainer
from torch import Tensor, nn
from train import several, tiny

from adamatch import methods, networks
from adamatch.config.run import Run
from adamatch.images.sampler import IndexStream
from adamatch.images.tasks import Labelled, Problem, Unlabelled, add_labelled
from adamatch.methods.contract import Batch, Method, Phase

STEPS = 20
# Everything is to show within twenty steps: the schedules, decay, short averages, thresholds that some images pass.
RECIPE: dict[str, Any] = {
    "batch": 6,
    "images": 6 * STEPS,
    "uratio": 2,
    "lr": 0.05,
    "weight_decay": 0.02,
    "ema_decay": 0.8,
    "strong": "cta",
    "mirror": True,
    "tau": 0.9,
}
METHODS: dict[str, dict[str, Any]] = {
    "adamatch": {"fade_out": True},
    "fixmatch+": {"method": "fixmatch+"},
    "mcd": {"method": "mcd"},
    "noisystudent": {"method": "noisystudent"},
    "baseline_bn": {"method": "baseline_bn"},
    "supervised": {"method": "supervised"},
}
TASKS: dict[str, dict[str, Any]] = {
    "uda": {"seed": 1},
    "ssl": {"task": "ssl", "labels": 3},
    "ssda": {"task": "ssda", "labels": 1, "seed": 3},
}
MORE: dict[str, dict[str, Any]] = {  # what has no case among these
    "adamatch uda, as printed": {"fade_out": False, "strong": "cutout", "mirror": False, "seed": 2},
    "adamatch ssda, few": {"task": "ssda", "labels": 1, "repeat": False},
    # Few target labels as `fit` uses them: spread over steps, from the middle on; before, source images stand in.
    **{
        f"{method} ssda, as in fit": {
            **METHODS[method],
            "task": "ssda",
            "labels": 3,
            "repeat": False,
            "target_labels_from": 0.5,
            "target_label_steps": 2,
            "seed": 4,
        }
        for method in ("adamatch", "fixmatch+", "mcd", "noisystudent")
    },
    "noisystudent ssda, cutout": {
        "method": "noisystudent",
        "tau": 0.99,
        "task": "ssda",
        "labels": 2,
        "strong": "cutout",
    },
}
GRID = {f"{method} {task}": METHODS[method] | TASKS[task] for method in METHODS for task in TASKS}
CASES = {name: tiny.a_run(**{**RECIPE, **changes}) for name, changes in (GRID | MORE).items()}


@dataclass
class Training:
    """What the package did between first weights and last checkpoint, in a run's, teacher's or student's training."""

    method: Method
    first: dict[str, Tensor]  # weights and statistics before step 1; MCD's other head as "second"
    shown: list[Batch] = field(default_factory=list)
    last: dict[str, Tensor] = field(default_factory=dict)  # the tensors of its last checkpoint


@dataclass
class Outcome:
    """Both sides, training by training."""

    run: Run
    ours: list[Training]
    rows: list[dict[str, Any]]  # what the package measured, evaluation by evaluation
    plain: list[Trainer] = field(default_factory=list)
    shown: list[list[Shown]] = field(default_factory=list)  # what the plain trainer's losses were shown


@functools.cache
def outcome(name: str) -> Outcome:
    """Of the case of this name; done once in a process."""
    run = CASES[name]
    problem = tiny.problem(run.task, labels=run.labels, seed=run.seed)
    with tempfile.TemporaryDirectory() as folder, float64():
        out = Path(folder) / "run"
        both = Outcome(run, done(run, problem, out), tiny.rows(out))
        for training in both.ours:
            plain = Trainer(settings(run), *first_values(training))
            pools = problem.labelled if not both.plain else taught(run, problem, both.plain[-1])
            draw = Draw(run, problem, pools)
            both.shown.append([plain.step(draw.next()) for _ in range(STEPS)])
            both.plain.append(plain)
    return both


@contextmanager
def float64() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)


def done(run: Run, problem: Problem, out: Path) -> list[Training]:
    """The package's side, through `experiment.solve` and the loop; only the network's precision is not as usual."""
    trainings: list[Training] = []
    build = methods.build

    def building(name: str, *, net: nn.Module, **given: Any) -> Method:
        method = build(name, net=net, **given)
        first = {key: value.clone() for key, value in net.state_dict().items()}
        first |= {key.replace("head", "second"): value.detach().clone() for key, value in method.named_parameters()}
        training = Training(method, first)

        def showing(phase: Phase) -> Phase:
            def loss(net: nn.Module, batch: Batch) -> Any:
                if phase is phases[0]:
                    if not training.shown:
                        trainings.append(training)
                    training.shown.append(copy.deepcopy(batch))
                return phase.loss(net, batch)

            return Phase(loss, phase.trains)

        phases = method.phases
        method.phases = [showing(phase) for phase in phases]
        return method

    with (
        mock.patch.dict(
            networks.NETWORKS, {"wrn-tiny": functools.partial(several.Precise, widths=(8, 16, 32), stem=8)}
        ),
        mock.patch.object(methods, "build", building),
        mock.patch("adamatch.train.run_folder.shutil.rmtree"),  # the last checkpoints stay
    ):
        tiny.solve(run, out, posed=problem, seconds_per_checkpoint=1000)
    state = several.state(out)
    for number, training in enumerate(trainings):
        place = out.name if training is trainings[-1] else f"generation-{number}"
        training.last = {
            key.removeprefix(f"{place} "): value for key, value in state.items() if key.startswith(f"{place} ")
        }
    return trainings


def settings(run: Run) -> Settings:
    recipe = run.recipe
    same = ("batch", "lr", "lr_end", "momentum", "weight_decay", "tau", "strong", "mirror")
    return Settings(
        method=run.method,
        classes=3,
        steps=recipe.images // recipe.batch,
        average=recipe.ema_decay,
        release=recipe.fade_out,
        seed=run.seed,
        **{name: getattr(recipe, name) for name in same},
    )


def first_values(training: Training) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The first weights and running statistics."""
    values = {name: value for name, value in training.first.items() if value.is_floating_point()}
    running = {name: value for name, value in values.items() if "running" in name}
    return {name: value for name, value in values.items() if name not in running}, running


def taught(run: Run, problem: Problem, teacher: Trainer) -> tuple[Labelled, ...]:
    """NoisyStudent: the labelled images, and the unlabelled ones of which the teacher is surer than tau."""
    images = np.concatenate([np.asarray(part) for part in problem.unlabelled.parts])
    seen = torch.from_numpy((images.astype(np.float64) - 127.5) / 128).permute(0, 3, 1, 2)
    guesses = teacher.predict(seen)
    sure = guesses.max(1) > run.recipe.tau
    assert 0 < sure.sum() < len(sure)
    given = Labelled((images[sure],), guesses[sure].astype(np.float32))
    drawn = add_labelled(problem, given, run.recipe.uratio, run.seed).labelled[0].drawn  # rows in the package's order
    pools = [*problem.labelled, given]
    labels = np.concatenate([probabilities(pool.labels) for pool in pools])
    return (Labelled(tuple(part for pool in pools for part in pool.parts), labels.astype(np.float32), drawn),)


def probabilities(labels: NDArray[Any]) -> NDArray[np.float64]:
    return np.eye(3)[labels] if labels.ndim == 1 else labels.astype(np.float64)


class Draw:
    """Pictures and labels of the rows that the package's streams hand out.

    Of each labelled pool, of the unlabelled one and, where labels are guessed, of the pools that probes are from."""

    def __init__(self, run: Run, problem: Problem, pools: tuple[Labelled, ...]) -> None:
        recipe = run.recipe
        self.recipe, self.done = recipe, 0
        small = [self.images_of(pool) for pool in pools[1:]]
        unlabelled = [] if run.method in ("supervised", "noisystudent") else [problem.unlabelled]
        probed = problem.labelled if pools is not problem.labelled and recipe.strong == "cta" else ()
        self.pools: list[Labelled | Unlabelled] = [*pools, *unlabelled, *probed]
        counts = [
            recipe.batch,
            *small,
            *[recipe.batch * recipe.uratio] * len(unlabelled),
            *[recipe.batch if number == 0 else self.images_of(pool) for number, pool in enumerate(probed)],
        ]
        self.waits = recipe.target_labels_from > 0 and len(pools) > 1
        if self.waits:
            self.pools.append(pools[0])
            counts.append(sum(small))
        self.ends = np.cumsum([len(pools), len(unlabelled), len(probed)])
        self.streams = []
        for number, (pool, count) in enumerate(zip(self.pools, counts, strict=True)):
            drawn = getattr(pool, "drawn", None)
            length = len(pool) if drawn is None else len(drawn)
            self.streams.append(IndexStream(length, count, run.seed * 10 + number, torch.device("cpu")))

    def images_of(self, pool: Labelled) -> int:
        """Of a pool of few target labels in a step: each once in so many steps, but no fewer than there are classes."""
        if self.recipe.repeat:
            return self.recipe.batch
        return min(self.recipe.batch, len(pool), max(3, -(-len(pool) // self.recipe.target_label_steps)))

    def next(self) -> Drawn:
        pictures, labels = [], []
        for pool, stream in zip(self.pools, self.streams, strict=True):
            rows = stream.next().numpy()
            drawn = getattr(pool, "drawn", None)
            rows = rows if drawn is None else drawn[rows]
            pictures.append(np.concatenate([np.asarray(part) for part in pool.parts])[rows])
            labels.append(probabilities(pool.labels[rows]) if isinstance(pool, Labelled) else np.zeros((0, 3)))
        first, second, third = self.ends
        none = pictures[0][:0]
        x_sl, y_sl = np.concatenate(pictures[:first]), np.concatenate(labels[:first])
        waiting = self.waits and self.done / self.recipe.steps < self.recipe.target_labels_from
        if waiting:  # further source images, whose labels do not count
            x_sl, y_sl = np.concatenate([pictures[0], pictures[-1]]), np.concatenate([labels[0], labels[-1]])
        self.done += 1
        x_tu = np.concatenate([none, *pictures[first:second]])
        if third == second:
            counted = np.concatenate([labels[0], 0 * labels[-1]]) if waiting else y_sl
            return Drawn(x_sl, counted, x_tu, x_sl, y_sl)
        return Drawn(x_sl, y_sl, x_tu, np.concatenate(pictures[second:third]), np.concatenate(labels[second:third]))
